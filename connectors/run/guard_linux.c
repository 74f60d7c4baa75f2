/* The guard: parent of the shim, for the one case that the shim cannot handle, its own sudden
 * death. It holds no lease and takes no orders; it waits. It is subreaper as well, so that what the
 * shim leaves behind comes here, the program's exit status too: it must never reap that before it
 * has read it. No loop, no allocation worth the name: there is little that can fail. */
#include "connectors/run/run.h"
#include "connectors/run/tree_linux.h"
#include "connectors/run/will_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t shim_pid; /* for the handler; set once */

static void hand_on(int signo)
{
    int e = errno;

    if (shim_pid > 0)
        (void)kill((pid_t)shim_pid, signo);
    errno = e;
}

/* The same promise as file_write: whole and on disk, or not there. */
static bool write_durably(const char *dir, const char *name, const void *p, size_t n)
{
    char path[4096], tmp[4096];

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    (void)snprintf(tmp, sizeof tmp, "%s/%s.guard", dir, name);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool ok = write(fd, p, n) == (ssize_t)n && fsync(fd) == 0;
    (void)close(fd);
    ok = ok && rename(tmp, path) == 0;
    int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d >= 0) {
        ok = ok && fsync(d) == 0;
        (void)close(d);
    }
    return ok;
}

static void end_tree(const char *marker, const char *group, int64_t program)
{
    struct runner_tree t = {.marker = marker,
                            .group = group,
                            .root = getpid(),
                            .spare = {getpid(), 0},
                            .watched = program};

    while (tree_process_count(NULL, &t) != 0) {
        (void)tree_signal(NULL, &t, SIGKILL);
        (void)poll(NULL, 0, 10);
    }
}

static void runner_killed(struct run_report *r, int status)
{
    *r = (struct run_report){.step = RUN_STEP_ENDED, .term_signal = SIGKILL};
    (void)snprintf(r->reason, sizeof r->reason, "RunnerKilled");
    (void)snprintf(r->message, sizeof r->message,
                   "the runner was killed (signal %d); its guard ended the program",
                   WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static int end_for_the_shim(const char *dir, const char *marker, const char *group,
                            const char *will, int status)
{
    char path[4096];
    struct will w = {0};
    struct run_report r;

    (void)will_read(will, &w);
    end_tree(marker, group, w.pid);
    tree_group_remove(NULL, group);
    if (!will_tell(dir, will, true, &r))
        runner_killed(&r, status);
    int exit_status = r.term_signal ? 128 + r.term_signal : r.exit_code;
    if (!dir)
        return exit_status;
    (void)snprintf(path, sizeof path, "%s/" RUN_END_FILE, dir);
    if (access(path, F_OK) == 0) /* it had said all, and died after that */
        return exit_status;
    struct buf b;
    buf_init(&b, 4096);
    run_report_print(&r, &b);
    for (int tries = 0; !write_durably(dir, RUN_END_FILE, b.p, b.n) && tries < 600; tries++)
        (void)poll(NULL, 0, 1000); /* a full disk: the agent will look for itself meanwhile */
    buf_fini(&b);
    return exit_status;
}

static void guard_run(const char *dir, const char *marker, const char *group, const char *will)
{
    static const int handed[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    struct sigaction sa = {.sa_handler = hand_on};
    int status;
    pid_t pid;

    for (size_t i = 0; i < sizeof handed / sizeof *handed; i++)
        (void)sigaction(handed[i], &sa, NULL);
    do /* for the shim alone: what it leaves behind stays as it is */
        pid = waitpid((pid_t)shim_pid, &status, 0);
    while (pid < 0 && errno == EINTR);
    /* It ended by itself: it has said all, or declined to start because another runner holds this
     * worker. */
    if (pid == (pid_t)shim_pid && WIFEXITED(status))
        _exit(WEXITSTATUS(status));
    _exit(end_for_the_shim(dir, marker, group, will, status));
}

/* Without a folder the will is in our memory, and is written through /proc. Where that is closed to
 * the shim there is none: an end that it did not see is then lost with it. */
static void will_place(const char *dir, char out[RUN_WILL_MAX])
{
    if (dir) {
        (void)snprintf(out, RUN_WILL_MAX, "%.4000s/" WILL_FILE, dir);
        return;
    }
    int fd = memfd_create("hanse-will", MFD_CLOEXEC);
    (void)snprintf(out, RUN_WILL_MAX, "/proc/%lld/fd/%d", (long long)getpid(), fd);
    if (fd < 0 || access(out, R_OK | W_OK) != 0)
        out[0] = '\0';
}

int guard_split(const char *dir, const char *marker, const char *group, char ret_will[RUN_WILL_MAX],
                struct err *err)
{
    sigset_t all, before;

    if (tree_adopt_orphans(NULL, err) < 0)
        return err ? err->code : E_INTERNAL;
    will_place(dir, ret_will);
    (void)signal(SIGCHLD, SIG_DFL); /* inherited as ignored, it would have the kernel reap */
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before); /* none is lost before the handlers stand */
    pid_t pid = fork();
    if (pid < 0)
        return err_set(err, E_LIMIT, "cannot start the guard: %s", strerror(errno));
    if (pid > 0) {
        shim_pid = pid;
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        guard_run(dir, marker, group, ret_will);
    }
    /* A group of its own: who kills the guard's group leaves the shim, which holds the lease,
     * alone. */
    (void)setsid();
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return 0;
}
