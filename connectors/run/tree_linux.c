/* Process trees on Linux: /proc, pidfds, control groups. Direct system calls on purpose: this is
 * what the seam does not have. Signals go through a pidfd whose process was checked after it was
 * opened, so that a number that was taken over by a stranger is never hit. */
#include "connectors/run/tree_linux.h"

#include "api/base/mem.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES_MAX 262144
#define ENVIRON_MAX (1u << 20)
#define KERNEL_THREAD 0x00200000 /* PF_KTHREAD among the flags of /proc/PID/stat */

struct proc {
    int64_t pid, parent;
    uint64_t start;
    char state;
    bool kernel; /* a thread of the kernel: never ours, and it has no environment */
    bool member;
};
struct procs {
    struct proc *v;
    size_t n, cap;
};

static int read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    ssize_t n = read(fd, out, size - 1);
    (void)close(fd);
    if (n < 0)
        return -1;
    out[n] = '\0';
    return (int)n;
}

/* pid, state, parent, start; false when it is gone. The name may hold anything: fields count from
 * the last ')'. */
static bool proc_read(int64_t pid, struct proc *ret)
{
    char path[64], s[1024];
    char *end;

    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    if (read_text(path, s, sizeof s) <= 0)
        return false;
    char *p = strrchr(s, ')');
    if (!p || p[1] != ' ' || !p[2])
        return false;
    ret->state = p[2];
    ret->parent = strtoll(p + 3, &p, 10);
    long threads = 0;
    for (int i = 0; i < 17; i++) { /* flags are the fifth from here */
        p += strspn(p, " ");
        if (i == 4)
            ret->kernel = strtoull(p, NULL, 10) & KERNEL_THREAD;
        if (i == 15)
            threads = strtol(p, NULL, 10);
        p += strcspn(p, " ");
    }
    ret->start = strtoull(p, &end, 10);
    if (end == p)
        return false;
    ret->pid = pid;
    ret->member = false;
    /* A process whose first thread has ended looks like a zombie as long as the others live. */
    if (ret->state == 'Z' && threads > 1)
        ret->state = 'S';
    return true;
}

uint64_t tree_process_start(int64_t pid)
{
    struct proc p;

    return proc_read(pid, &p) ? p.start : 0;
}

static int procs_read(struct procs *ps)
{
    DIR *d = opendir("/proc");
    const struct dirent *e;

    if (!d)
        return -errno;
    while ((e = readdir(d)) != NULL && ps->n < PROCESSES_MAX) {
        struct proc p;
        if (!isdigit((unsigned char)e->d_name[0]) || !proc_read(strtoll(e->d_name, NULL, 10), &p))
            continue;
        if (ps->n == ps->cap) {
            ps->cap = ps->cap ? ps->cap * 2 : 256;
            ps->v = mem_realloc(ps->v, ps->cap * sizeof *ps->v);
        }
        ps->v[ps->n++] = p;
    }
    (void)closedir(d);
    return 0;
}

static struct proc *procs_find(const struct procs *ps, int64_t pid)
{
    for (size_t i = 0; i < ps->n; i++)
        if (ps->v[i].pid == pid)
            return &ps->v[i];
    return NULL;
}

static void mark_descendants(struct procs *ps, int64_t root)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < ps->n; i++) {
            struct proc *p = &ps->v[i];
            if (p->member)
                continue;
            const struct proc *up = p->parent == root ? NULL : procs_find(ps, p->parent);
            if (p->parent == root || (up && up->member))
                p->member = more = true;
        }
    }
}

static void mark_group(struct procs *ps, const char *group)
{
    char path[RUN_GROUP_MAX + 16], *s = mem_alloc(ENVIRON_MAX), *save = NULL;

    (void)snprintf(path, sizeof path, "%s/cgroup.procs", group);
    if (read_text(path, s, ENVIRON_MAX) > 0)
        for (char *t = strtok_r(s, "\n", &save); t; t = strtok_r(NULL, "\n", &save)) {
            struct proc *p = procs_find(ps, strtoll(t, NULL, 10));
            if (p)
                p->member = true;
        }
    mem_free(s);
}

static bool has_marker(int64_t pid, const char *marker, char *scratch)
{
    char path[64];
    size_t name = strlen(RUN_MARKER_ENV "="), len = strlen(marker);

    (void)snprintf(path, sizeof path, "/proc/%lld/environ", (long long)pid);
    int n = read_text(path, scratch, ENVIRON_MAX);
    for (const char *p = scratch; n > 0 && p < scratch + n; p += strlen(p) + 1) {
        if (strncmp(p, RUN_MARKER_ENV "=", name) != 0)
            continue;
        const char *v = p + name;
        return marker[len - 1] == '/' ? strncmp(v, marker, len) == 0 : strcmp(v, marker) == 0;
    }
    return false;
}

static void mark_by_environment(struct procs *ps, const char *marker)
{
    char *scratch = mem_alloc(ENVIRON_MAX);

    for (size_t i = 0; i < ps->n; i++)
        if (!ps->v[i].member && !ps->v[i].kernel && ps->v[i].state != 'Z')
            ps->v[i].member = has_marker(ps->v[i].pid, marker, scratch);
    mem_free(scratch);
}

/* Reaps what came to this process as subreaper; the loop reaps `watched` itself. */
static void reap(const struct runner_tree *t, const struct procs *ps)
{
    int64_t self = getpid();

    for (size_t i = 0; t->root == self && i < ps->n; i++)
        if (ps->v[i].parent == self && ps->v[i].state == 'Z' && ps->v[i].pid != t->watched &&
            ps->v[i].pid != t->spare[0] && ps->v[i].pid != t->spare[1])
            (void)waitpid((pid_t)ps->v[i].pid, NULL, WNOHANG);
}

static int members(const struct runner_tree *t, struct procs *ps)
{
    int n = 0;
    int rc = procs_read(ps);

    if (rc < 0)
        return rc;
    if (t->root)
        mark_descendants(ps, t->root);
    if (t->group && *t->group)
        mark_group(ps, t->group);
    if (t->marker && *t->marker)
        mark_by_environment(ps, t->marker);
    for (size_t i = 0; i < ps->n; i++) {
        struct proc *p = &ps->v[i];
        p->member = p->member && p->state != 'Z' && p->state != 'X' && p->pid != t->spare[0] &&
                    p->pid != t->spare[1];
        n += p->member;
    }
    return n;
}

int tree_process_count(struct runner_os *os, const struct runner_tree *t)
{
    struct procs ps = {0};

    (void)os;
    int n = members(t, &ps);
    reap(t, &ps);
    mem_free(ps.v);
    return n;
}

static void signal_one(const struct proc *p, int signo)
{
    struct proc now;
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)p->pid, 0);

    if (fd < 0)
        return;
    if (proc_read(p->pid, &now) && now.start == p->start)
        (void)syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0);
    (void)close(fd);
}

int tree_signal(struct runner_os *os, const struct runner_tree *t, int signo)
{
    struct procs ps = {0};
    char path[RUN_GROUP_MAX + 16];

    (void)os;
    if (signo == SIGKILL && t->group && *t->group) {
        (void)snprintf(path, sizeof path, "%s/cgroup.kill", t->group);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd >= 0) {
            if (write(fd, "1", 1) != 1) { /* a kernel before 5.14: the other nets do */
            }
            (void)close(fd);
        }
    }
    int n = members(t, &ps);
    for (size_t i = 0; i < ps.n; i++)
        if (ps.v[i].member)
            signal_one(&ps.v[i], signo);
    mem_free(ps.v);
    return n;
}

int tree_adopt_orphans(struct runner_os *os, struct err *err)
{
    (void)os;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        return err_set(err, E_INTERNAL, "the kernel does not let this process adopt orphans: %s",
                       strerror(errno));
    return 0;
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

void tree_group_remove(struct runner_os *os, const char *group)
{
    (void)os;
    if (group && *group)
        (void)rmdir(group);
}

void tree_log_trim(struct runner_os *os, const char *path, uint64_t max_bytes)
{
    struct stat st;
    const off_t half =
        (off_t)(max_bytes / 2) & ~(off_t)0xfffff; /* whole blocks of any file system */
    int fd = open(path, O_RDWR | O_CLOEXEC);

    (void)os;
    if (fd < 0)
        return;
    while (half > 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size > max_bytes) {
        if (fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, half) == 0)
            continue;
        /* Not on this file system: all goes; bounded is more important than whole. */
        if (ftruncate(fd, 0) != 0)
            break;
    }
    (void)close(fd);
}
