/* The guard: parent of the shim, for the one case that the shim cannot handle, its own sudden
 * death. It holds no lease and takes no orders; it waits. It is subreaper as well, so that what the
 * shim leaves behind comes here. No loop, no allocation worth the name: there is little that can
 * fail. */
#include "connectors/run/run.h"
#include "connectors/run/tree_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
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

static void end_tree(const char *marker, const char *group)
{
    struct runner_tree t = {
        .marker = marker, .group = group, .root = getpid(), .spare = {getpid(), 0}};

    while (tree_process_count(NULL, &t) != 0) {
        (void)tree_signal(NULL, &t, SIGKILL);
        (void)poll(NULL, 0, 10);
    }
}

static int end_for_the_shim(const char *dir, const char *marker, const char *group, int status)
{
    char path[4096];
    struct run_report r = {.step = RUN_STEP_ENDED, .exit_code = 0, .term_signal = SIGKILL};

    end_tree(marker, group);
    tree_group_remove(NULL, group);
    if (!dir)
        return 128 + SIGKILL;
    (void)snprintf(path, sizeof path, "%s/" RUN_END_FILE, dir);
    if (access(path, F_OK) == 0) /* it had said all, and died after that */
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    (void)snprintf(r.reason, sizeof r.reason, "RunnerKilled");
    (void)snprintf(r.message, sizeof r.message,
                   "the runner was killed (signal %d); its guard ended the program",
                   WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    struct buf b;
    buf_init(&b, 4096);
    run_report_print(&r, &b);
    for (int tries = 0; !write_durably(dir, RUN_END_FILE, b.p, b.n) && tries < 600; tries++)
        (void)poll(NULL, 0, 1000); /* a full disk: the agent will look for itself meanwhile */
    buf_fini(&b);
    return 128 + SIGKILL;
}

static void guard_run(const char *dir, const char *marker, const char *group)
{
    static const int handed[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    struct sigaction sa = {.sa_handler = hand_on};
    int status;
    pid_t pid;

    for (size_t i = 0; i < sizeof handed / sizeof *handed; i++)
        (void)sigaction(handed[i], &sa, NULL);
    do
        pid = waitpid(-1, &status, 0);
    while ((pid < 0 && errno == EINTR) || (pid >= 0 && pid != (pid_t)shim_pid));
    /* It ended by itself: it has said all, or declined to start because another runner holds this
     * worker. */
    if (pid == (pid_t)shim_pid && WIFEXITED(status))
        _exit(WEXITSTATUS(status));
    _exit(end_for_the_shim(dir, marker, group, status));
}

int guard_split(const char *dir, const char *marker, const char *group, struct err *err)
{
    sigset_t all, before;

    if (tree_adopt_orphans(NULL, err) < 0)
        return err ? err->code : E_INTERNAL;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before); /* none is lost before the handlers stand */
    pid_t pid = fork();
    if (pid < 0)
        return err_set(err, E_LIMIT, "cannot start the guard: %s", strerror(errno));
    if (pid > 0) {
        shim_pid = pid;
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        guard_run(dir, marker, group);
    }
    /* A group of its own: who kills the guard's group leaves the shim, which holds the lease,
     * alone. */
    (void)setsid();
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return 0;
}
