/* How a tree is held together: by a PID namespace, or by a control group of version 2. The kernel
 * says when it is empty, and ends all of it at once. This file finds by a trial process which one
 * the machine permits, because no other source says what a kernel, a container or a mount option
 * takes away. A tree must never count as empty when the look failed. */
#include "connectors/shim/tree_linux.h"
#include "connectors/shim/will_linux.h"

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

static const char *const names[RUN_PROCESSES_NR] = {"searched", "cgroup", "pidNamespace"};

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

/* ---- namespaces: their first process is the last to go, and takes all along ---- */
static bool init_is_gone(const char *will)
{
    struct will w;
    char path[64], s[512];

    if (!will || !*will)
        return false;
    if (access(will, F_OK) != 0 && errno == ENOENT) /* its runner begins with that, and has not */
        return true;
    if (!will_read(will, &w))
        return false; /* not known */
    if (!w.init || tree_process_start(w.init) != w.init_start)
        return true;
    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)w.init);
    const char *p = group_text(path, s, sizeof s) > 0 ? strrchr(s, ')') : NULL;
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

/* ---- both; a namespace may have a group beside it, for limits ---- */
static bool has_group(const struct runner_tree *t)
{
    return t->group && *t->group;
}

bool held_is_empty(const struct runner_tree *t)
{
    if (t->held == RUN_NAMESPACE && !init_is_gone(t->will))
        return false;
    return t->held == RUN_SEARCHED || !has_group(t) || group_is_empty(t->group);
}

bool held_kill(const struct runner_tree *t)
{
    bool group =
        has_group(t) && (group_write(t->group, "cgroup.kill", "1") || group_is_empty(t->group));

    if (t->held == RUN_NAMESPACE)
        return init_kill(t->will);
    return t->held == RUN_CGROUP && group;
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

/* A namespace goes with its first process, whoever else has died by then; a group's processes wait
 * for somebody to end them. */
enum run_processes held_probe(struct runner_os *os, enum run_processes most, char ret_why[256])
{
    int e = most < RUN_NAMESPACE ? 0 : namespace_try();
    const char *why = NULL;

    (void)os;
    ret_why[0] = '\0';
    group_sweep();
    if (most == RUN_NAMESPACE && e == 0)
        return RUN_NAMESPACE;
    if (most == RUN_NAMESPACE)
        (void)snprintf(ret_why, 256, "no PID namespace can be made: %s", strerror(e));
    else
        (void)snprintf(ret_why, 256, "pidNamespace was not asked for");
    why = most < RUN_CGROUP ? "cgroup was not asked for" : group_try();
    if (!why)
        return RUN_CGROUP;
    size_t n = strlen(ret_why);
    (void)snprintf(ret_why + n, 256 - n, "; %s", why);
    return RUN_SEARCHED;
}
