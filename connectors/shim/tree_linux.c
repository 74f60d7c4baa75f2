/* Process trees on Linux: /proc, pidfds. What holds a tree is in held_linux.c. Direct system calls
 * on purpose: this is what the seam does not have. Signals go through a pidfd whose process was
 * checked after it was opened, so that a number that was taken over by a stranger is never hit. */
#include "connectors/shim/tree_linux.h"

#include "api/base/mem.h"
#include "connectors/shim/will_linux.h"

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
#include <time.h>
#include <unistd.h>

#define PROCESSES_MAX 262144
#define ENVIRON_MAX (1u << 20)
#define PASSES 3       /* complete ones, one after the other, that find nothing */
#define FREEZES 8      /* passes that stop what they find, until one finds nothing new */
#define CHASES 2000    /* looks at a subreaper's children, which is where a chain of forks shows */
#define CHASE_QUIET 50 /* of them, one after the other, that find none */
#define KERNEL_THREAD 0x00200000 /* PF_KTHREAD among the flags of /proc/PID/stat */
#define FORKED 0x00000040        /* PF_FORKNOEXEC */
#define YOUNG_MS 100             /* from a fork to its exec, at most, on a busy machine */

struct proc {
    int64_t pid, parent, session, group;
    uint64_t start;
    char state;
    bool kernel; /* a thread of the kernel: never ours, and it has no environment */
    bool forked; /* and has not become another program since */
    bool member;
};
struct procs {
    struct proc *v;
    size_t n, cap;
    bool cut; /* there are more */
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
        if (i == 0)
            ret->group = strtoll(p, NULL, 10);
        if (i == 1)
            ret->session = strtoll(p, NULL, 10);
        if (i == 4) {
            ret->kernel = strtoull(p, NULL, 10) & KERNEL_THREAD;
            ret->forked = strtoull(p, NULL, 10) & FORKED;
        }
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

static int by_pid(const void *a, const void *b)
{
    int64_t x = ((const struct proc *)a)->pid, y = ((const struct proc *)b)->pid;

    return (x > y) - (x < y);
}

static int procs_read(struct procs *ps)
{
    DIR *d = opendir("/proc");
    const struct dirent *e;

    if (!d)
        return -errno;
    while ((e = readdir(d)) != NULL) {
        struct proc p;
        if (!isdigit((unsigned char)e->d_name[0]) || !proc_read(strtoll(e->d_name, NULL, 10), &p))
            continue;
        if (ps->n == PROCESSES_MAX) {
            ps->cut = true;
            break;
        }
        if (ps->n == ps->cap) {
            ps->cap = ps->cap ? ps->cap * 2 : 256;
            ps->v = mem_realloc(ps->v, ps->cap * sizeof *ps->v);
        }
        ps->v[ps->n++] = p;
    }
    (void)closedir(d);
    if (ps->n)
        qsort(ps->v, ps->n, sizeof *ps->v, by_pid);
    return 0;
}

static struct proc *procs_find(const struct procs *ps, int64_t pid)
{
    const struct proc key = {.pid = pid};

    return ps->n ? bsearch(&key, ps->v, ps->n, sizeof key, by_pid) : NULL;
}

/* Whatever descends from a member is one. */
static void mark_descendants(struct procs *ps, int64_t root)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < ps->n; i++) {
            struct proc *p = &ps->v[i];
            if (p->member)
                continue;
            const struct proc *up = root && p->parent == root ? NULL : procs_find(ps, p->parent);
            if ((root && p->parent == root) || (up && up->member))
                p->member = more = true;
        }
    }
}

/* The program's session and process group, as long as its number is certainly its own. */
static void mark_session(struct procs *ps, const char *path)
{
    struct will w;

    if (!path || !will_read(path, &w) || !w.pid)
        return;
    const struct proc *leader = procs_find(ps, w.pid);
    if (!leader || leader->start != w.start)
        return;
    for (size_t i = 0; i < ps->n; i++)
        if (ps->v[i].session == w.pid || ps->v[i].group == w.pid || ps->v[i].pid == w.pid)
            ps->v[i].member = true;
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

/* Its marker, in scratch; NULL: it has none, or it cannot be read. */
static const char *marker_of(int64_t pid, char *scratch)
{
    char path[64];
    size_t name = strlen(RUN_MARKER_ENV "=");

    (void)snprintf(path, sizeof path, "/proc/%lld/environ", (long long)pid);
    int n = read_text(path, scratch, ENVIRON_MAX);
    for (const char *p = scratch; n > 0 && p < scratch + n; p += strlen(p) + 1)
        if (strncmp(p, RUN_MARKER_ENV "=", name) == 0)
            return p + name;
    return NULL;
}

static bool has_marker(int64_t pid, const char *marker, char *scratch)
{
    size_t len = strlen(marker);
    const char *v = marker_of(pid, scratch);

    return v && (marker[len - 1] == '/' ? strncmp(v, marker, len) == 0 : strcmp(v, marker) == 0);
}

static void mark_by_environment(struct procs *ps, const char *marker)
{
    char *scratch = mem_alloc(ENVIRON_MAX);

    for (size_t i = 0; i < ps->n; i++)
        if (!ps->v[i].member && !ps->v[i].kernel && ps->v[i].state != 'Z')
            ps->v[i].member = has_marker(ps->v[i].pid, marker, scratch);
    mem_free(scratch);
}

/* A child of this process that is nobody's: whoever has the marker of another run is that one's
 * (one that a program gave to its own `hanse run` says nothing). */
static bool is_stray(const struct runner_tree *t, int64_t pid, char *scratch)
{
    if (t->spared(pid, t->arg))
        return false;
    const char *marker = marker_of(pid, scratch);
    return !marker || strncmp(marker, "local.", 6) == 0;
}

static void mark_strays(struct procs *ps, const struct runner_tree *t)
{
    int64_t self = getpid();
    char *scratch = mem_alloc(ENVIRON_MAX);

    for (size_t i = 0; i < ps->n; i++) {
        struct proc *p = &ps->v[i];
        if (!p->member && p->parent == self && p->state != 'Z')
            p->member = is_stray(t, p->pid, scratch);
    }
    mem_free(scratch);
}

/* The loop has them: their exits are not to be taken from it. */
static bool is_own(const struct runner_tree *t, int64_t pid)
{
    return t->own && t->own(pid, t->own_arg);
}

/* Reaps what came to this process as subreaper; the loop reaps `watched` itself. A namespace is not
 * empty before the last of its dead is reaped. */
static void reap(const struct runner_tree *t, const struct procs *ps)
{
    int64_t self = getpid();

    for (size_t i = 0; (t->root == self || t->spared) && i < ps->n; i++) {
        const struct proc *p = &ps->v[i];
        if (p->parent == self && p->state == 'Z' && p->pid != t->watched && p->pid != t->spare[0] &&
            p->pid != t->spare[1] && !is_own(t, p->pid) &&
            !(t->spared && t->spared(p->pid, t->arg)))
            (void)waitpid((pid_t)p->pid, NULL, WNOHANG);
    }
}

/* One pass. Negative: it was not complete. */
static int members(const struct runner_tree *t, struct procs *ps)
{
    int n = 0;
    int rc = procs_read(ps);

    if (rc < 0)
        return rc;
    if (t->group && *t->group)
        mark_group(ps, t->group);
    if (t->marker && *t->marker)
        mark_by_environment(ps, t->marker);
    if (t->spared)
        mark_strays(ps, t);
    mark_session(ps, t->will);
    mark_descendants(ps, t->root);
    for (size_t i = 0; i < ps->n; i++) {
        struct proc *p = &ps->v[i];
        p->member = p->member && p->state != 'Z' && p->state != 'X' && p->pid != t->spare[0] &&
                    p->pid != t->spare[1];
        n += p->member;
    }
    return n == 0 && ps->cut ? E_LIMIT : n;
}

static bool signal_one(const struct proc *p, int signo)
{
    struct proc now;
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)p->pid, 0);

    if (fd < 0)
        return false;
    bool same = proc_read(p->pid, &now) && now.start == p->start &&
                syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0) == 0;
    (void)close(fd);
    return same;
}

/* A process that forks and exits, and its child the same, is gone before a pass over /proc is done.
 * Its orphans come to the subreaper: its children are looked at over and over, without a pause. */
static bool chase_once(const struct runner_tree *t, int64_t root, int signo, char *children,
                       char *scratch)
{
    char path[64], *save = NULL;
    bool any = false;

    (void)snprintf(path, sizeof path, "/proc/%lld/task/%lld/children", (long long)root,
                   (long long)root);
    if (read_text(path, children, ENVIRON_MAX) < 0)
        return false;
    for (char *n = strtok_r(children, " ", &save); n; n = strtok_r(NULL, " ", &save)) {
        struct proc p;
        int64_t pid = strtoll(n, NULL, 10);
        if (pid == t->spare[0] || pid == t->spare[1] || pid == t->watched || !proc_read(pid, &p) ||
            p.parent != root || (t->spared && !is_stray(t, pid, scratch)) ||
            (p.state == 'Z' && is_own(t, pid)))
            continue;
        any = true;
        if (p.state == 'Z') /* else the list of the dead grows faster than it is read */
            (void)waitpid((pid_t)pid, NULL, WNOHANG);
        else if (signo)
            (void)signal_one(&p, signo);
    }
    return any;
}

static void chase(const struct runner_tree *t)
{
    int64_t root = t->spared ? getpid() : t->root;
    char *children = mem_alloc(ENVIRON_MAX), *scratch = mem_alloc(ENVIRON_MAX);

    for (int i = 0, quiet = 0; root == getpid() && i < CHASES && quiet < CHASE_QUIET; i++)
        quiet = chase_once(t, root, SIGKILL, children, scratch) ? 0 : quiet + 1;
    mem_free(children);
    mem_free(scratch);
}

int tree_process_count(struct runner_os *os, const struct runner_tree *t)
{
    int n = 0;

    (void)os;
    for (int i = 0; n == 0 && i < (t->held == RUN_SEARCHED ? PASSES : 1); i++) {
        struct procs ps = {0};
        n = members(t, &ps);
        reap(t, &ps);
        mem_free(ps.v);
    }
    return n == 0 && !held_is_empty(t) ? 1 : n;
}

/* What is stopped does not fork. */
static void freeze(const struct runner_tree *t)
{
    bool more = true;

    for (int i = 0; more && i < FREEZES; i++) {
        struct procs ps = {0};
        more = false;
        (void)members(t, &ps);
        for (size_t k = 0; k < ps.n; k++)
            if (ps.v[k].member && ps.v[k].state != 'T')
                more |= signal_one(&ps.v[k], SIGSTOP);
        mem_free(ps.v);
    }
}

int tree_signal(struct runner_os *os, const struct runner_tree *t, int signo)
{
    struct procs ps = {0};

    (void)os;
    if (signo == SIGKILL && !held_kill(t)) {
        chase(t);
        freeze(t);
    }
    int n = members(t, &ps);
    for (size_t i = 0; i < ps.n; i++)
        if (ps.v[i].member)
            (void)signal_one(&ps.v[i], signo);
    mem_free(ps.v);
    return n;
}

/* True when the signal's bit is set in that mask of /proc/PID/status: "SigCgt" has those that the
 * process catches, "SigIgn" those that it ignores. One that is only held back says nothing: who is
 * just being started has all of them blocked. */
static bool in_mask(int64_t pid, const char *mask, int signo)
{
    char path[64], line[16], s[8192];

    (void)snprintf(path, sizeof path, "/proc/%lld/status", (long long)pid);
    int n = snprintf(line, sizeof line, "\n%s:", mask);
    const char *p = read_text(path, s, sizeof s) > 0 ? strstr(s, line) : NULL;
    return p && strtoull(p + n, NULL, 16) >> (signo - 1) & 1;
}

/* PROGRAM checkpoint commit … */
static bool is_commit(int64_t pid)
{
    static const char words[] = "checkpoint\0commit"; /* with the NUL behind it */
    char path[64], s[4096] = "";

    (void)snprintf(path, sizeof path, "/proc/%lld/cmdline", (long long)pid);
    int n = read_text(path, s, sizeof s);
    size_t at = n > 0 ? strlen(s) + 1 : sizeof s;

    return at + sizeof words <= sizeof s && memcmp(s + at, words, sizeof words) == 0;
}

int tree_commits(struct runner_os *os, const struct runner_tree *t, int signo)
{
    struct procs ps = {0};
    int n = members(t, &ps), starting = 0;
    struct timespec now = {0};
    uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);

    (void)os;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    for (size_t i = 0; i < ps.n; i++) {
        const struct proc *p = &ps.v[i];
        /* Who has just been forked may be about to become one. */
        starting +=
            p->member && (p->forked ? p->start * 1000 / hz + YOUNG_MS > ms
                                    : is_commit(p->pid) && !in_mask(p->pid, "SigIgn", signo));
    }
    mem_free(ps.v);
    return n < 0 ? n : starting;
}

int tree_ask(struct runner_os *os, const struct runner_tree *t, int signo)
{
    struct procs ps = {0};
    int n = members(t, &ps), asked = 0;

    (void)os;
    for (size_t i = 0; i < ps.n; i++) {
        const struct proc *p = &ps.v[i];
        /* The keeper of a namespace catches it to hand it on, to who catches it or not. */
        bool keeper = t->held == RUN_NAMESPACE && p->pid == t->watched;
        if (p->member && !keeper && in_mask(p->pid, "SigCgt", signo))
            asked += signal_one(p, signo);
    }
    mem_free(ps.v);
    return n < 0 ? n : asked;
}

/* Sets the bits of those that the process has open. */
static uint64_t sockets_of(int64_t pid, const struct port_sockets *v)
{
    char path[64], link[64];
    uint64_t held = 0;
    const struct dirent *e;

    (void)snprintf(path, sizeof path, "/proc/%lld/fd", (long long)pid);
    DIR *d = opendir(path);
    while (d && (e = readdir(d)) != NULL) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof link - 1);
        if (n <= 0)
            continue;
        link[n] = '\0';
        if (strncmp(link, "socket:[", 8) != 0)
            continue;
        for (size_t i = 0; i < v->n; i++)
            if (v->inodes[i] == strtoull(link + 8, NULL, 10))
                held |= (uint64_t)1 << i;
    }
    if (d)
        (void)closedir(d);
    return held;
}

bool tree_holds_sockets(const struct runner_tree *t, const struct port_sockets *v)
{
    struct procs ps = {0};
    uint64_t held = 0, all = v->n < 64 ? ((uint64_t)1 << v->n) - 1 : UINT64_MAX;

    (void)members(t, &ps);
    for (size_t i = 0; i < ps.n && held != all; i++)
        if (ps.v[i].member)
            held |= sockets_of(ps.v[i].pid, v);
    mem_free(ps.v);
    return held == all;
}

int tree_adopt_orphans(struct runner_os *os, struct err *err)
{
    (void)os;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        return err_set(err, E_INTERNAL, "the kernel does not let this process adopt orphans: %s",
                       strerror(errno));
    return 0;
}
