/* What holds a tree together: a control group of version 2, or a PID namespace. The kernel says
 * when it is empty, and ends all of it at once. Which one this machine permits is found by trying
 * it with a process of our own: what a kernel, a container or a mount option takes away is not told
 * anywhere. Must never call a tree empty when it could not look. */
#include "connectors/run/tree_linux.h"
#include "connectors/run/will_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_MS 2000
#define GROUP_DEPTH 8 /* programs make groups of their own in ours */

static const char *const names[RUN_PROCESSES_NR] = {"searched", "pidNamespace", "cgroup"};

const char *run_processes_text(enum run_processes p)
{
    return names[p < RUN_PROCESSES_NR ? p : RUN_SEARCHED];
}

bool run_processes_parse(const char *s, enum run_processes *ret)
{
    for (unsigned i = 0; i < RUN_PROCESSES_NR; i++)
        if (strcmp(s, names[i]) == 0) {
            *ret = (enum run_processes)i;
            return true;
        }
    return false;
}

/* ---- control groups ---- */
static int read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, out, size - 1);
    int e = errno;
    (void)close(fd);
    if (n < 0)
        return -e;
    out[n] = '\0';
    return (int)n;
}

static bool group_write(const char *group, const char *file, const char *text)
{
    char path[RUN_GROUP_MAX + 32];

    (void)snprintf(path, sizeof path, "%s/%s", group, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    (void)close(fd);
    return ok;
}

bool group_join(const char *group)
{
    return group_write(group, "cgroup.procs", "0");
}

/* Gone is empty: only an empty group can be removed. */
static bool group_is_empty(const char *group)
{
    char path[RUN_GROUP_MAX + 32], s[256];

    (void)snprintf(path, sizeof path, "%s/cgroup.events", group);
    int n = read_text(path, s, sizeof s);
    if (n == -ENOENT || n == -ENODEV)
        return access(group, F_OK) != 0 && errno == ENOENT;
    return n > 0 && strstr(s, "populated 0") != NULL;
}

/* Our own place in the unified hierarchy, also where it hangs beside version 1. */
void tree_group_create(struct runner_os *os, const char *name, char out[RUN_GROUP_MAX])
{
    static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char own[4096], path[RUN_GROUP_MAX + 64];

    (void)os;
    out[0] = '\0';
    if (read_text("/proc/self/cgroup", own, sizeof own) <= 0)
        return;
    char *p = strncmp(own, "0::", 3) == 0 ? own : strstr(own, "\n0::");
    if (!p)
        return;
    p += p == own ? 3 : 4;
    p[strcspn(p, "\n")] = '\0';
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/cgroup.controllers", roots[i]);
        if (access(path, F_OK) != 0)
            continue;
        int n = snprintf(path, sizeof path, "%s%s/hanse-%s", roots[i], strcmp(p, "/") == 0 ? "" : p,
                         name);
        if (n < RUN_GROUP_MAX && (mkdir(path, 0755) == 0 || errno == EEXIST))
            (void)snprintf(out, RUN_GROUP_MAX, "%s", path);
        return;
    }
}

static void group_remove(const char *group, int depth)
{
    char path[RUN_GROUP_MAX + 260];
    const struct dirent *e;

    if (rmdir(group) == 0 || depth == GROUP_DEPTH)
        return;
    DIR *d = opendir(group);
    if (!d)
        return;
    while ((e = readdir(d)) != NULL)
        if (e->d_type == DT_DIR && e->d_name[0] != '.') {
            (void)snprintf(path, sizeof path, "%s/%s", group, e->d_name);
            group_remove(path, depth + 1);
        }
    (void)closedir(d);
    (void)rmdir(group);
}

void tree_group_remove(struct runner_os *os, const char *group)
{
    (void)os;
    if (group && *group)
        group_remove(group, 0);
}

/* ---- namespaces: their first process is the last to go, and takes all along ---- */
static bool init_is_gone(const char *will)
{
    struct will w;
    char path[64], s[512];

    if (!will || !will_read(will, &w))
        return false; /* not known */
    if (!w.init || tree_process_start(w.init) != w.init_start)
        return true;
    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)w.init);
    const char *p = read_text(path, s, sizeof s) > 0 ? strrchr(s, ')') : NULL;
    return p && p[1] == ' ' && p[2] == 'Z';
}

static bool init_kill(const char *will)
{
    struct will w;

    if (!will || !will_read(will, &w))
        return false;
    if (!w.init) /* not begun */
        return true;
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)w.init, 0);
    if (fd < 0)
        return true;
    bool ok = tree_process_start(w.init) != w.init_start ||
              syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0;
    (void)close(fd);
    return ok;
}

/* ---- both ---- */
bool held_is_empty(const struct runner_tree *t)
{
    if (t->held == RUN_CGROUP)
        return group_is_empty(t->group);
    return t->held == RUN_SEARCHED || init_is_gone(t->will);
}

bool held_kill(const struct runner_tree *t)
{
    if (t->held == RUN_CGROUP)
        return group_write(t->group, "cgroup.kill", "1") || group_is_empty(t->group);
    return t->held == RUN_NAMESPACE && init_kill(t->will);
}

/* ---- trying ---- */
static bool await_empty(const char *group, bool empty)
{
    for (int ms = 0; ms < PROBE_MS; ms += 5) {
        if (group_is_empty(group) == empty)
            return true;
        (void)poll(NULL, 0, 5);
    }
    return false;
}

static const char *group_try(void)
{
    char group[RUN_GROUP_MAX], name[64], path[RUN_GROUP_MAX + 32];
    const char *why = NULL;

    (void)snprintf(name, sizeof name, "probe.%lld", (long long)getpid());
    tree_group_create(NULL, name, group);
    if (!*group)
        return "no control group of version 2 can be made here";
    (void)snprintf(path, sizeof path, "%s/cgroup.kill", group);
    pid_t pid = access(path, W_OK) == 0 ? fork() : -1;
    if (pid == 0) {
        if (group_join(group))
            (void)poll(NULL, 0, 4 * PROBE_MS);
        _exit(1);
    }
    if (pid < 0)
        why = "the kernel has no cgroup.kill (5.14)";
    else if (!await_empty(group, false))
        why = "no process can be put into a control group";
    else if (!group_write(group, "cgroup.kill", "1") || !await_empty(group, true))
        why = "cgroup.kill does not end what is in a control group";
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    tree_group_remove(NULL, group);
    return why;
}

enum run_processes held_probe(struct runner_os *os, enum run_processes most, char ret_why[256])
{
    const char *why = most < RUN_CGROUP ? "cgroup was not asked for" : group_try();

    (void)os;
    ret_why[0] = '\0';
    if (!why)
        return RUN_CGROUP;
    int e = most < RUN_NAMESPACE ? 0 : namespace_try();
    if (most >= RUN_NAMESPACE && e == 0) {
        (void)snprintf(ret_why, 256, "%s", why);
        return RUN_NAMESPACE;
    }
    (void)snprintf(ret_why, 256, "%s; %s%s", why,
                   e ? "no PID namespace can be made: " : "pidNamespace was not asked for",
                   e ? strerror(e) : "");
    return RUN_SEARCHED;
}
