/* The guard: the parent of the shim, for what the shim cannot handle: its own sudden death, and
 * that it stands still (SIGSTOP, swap, a debugger) while its program runs on. It takes no orders;
 * it waits for the shim's end and for the newest deadline that the shim has told it. It is
 * subreaper as well, so that orphans of the shim come here, with the program's exit status: it must
 * never reap that before it has read it. It has no loop and allocates almost nothing, so that
 * little can fail. */
#include "connectors/shim/shim.h"
#include "connectors/shim/tree_linux.h"
#include "connectors/shim/will_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHIM_PATIENCE_MS 500 /* for a shim whose program was ended over its head, to tell so */
#define AGAIN_MS 20
#define BLIND_MS 500 /* between two looks, where the kernel gives no descriptors to wait on */

const int run_signals[RUN_SIGNALS] = {SIGUSR1, SIGUSR2, SIGQUIT, SIGALRM, SIGWINCH};

static volatile sig_atomic_t shim_pid; /* for the handler; set once */

/* Between shim and guard, made ahead of the fork. The deadline is twice the milliseconds of
 * CLOCK_BOOTTIME, plus one when it is that of the lease; 0 = none. */
static struct {
    _Atomic uint64_t *deadline; /* in shared memory */
    int earlier;                /* an eventfd: the guard has to look at it again; or -1 */
} shared = {.earlier = -1};

void guard_deadline_tell(uint64_t until_ms, bool lost)
{
    const uint64_t one = 1, now = until_ms ? until_ms << 1 | lost : 0;

    if (!shared.deadline)
        return;
    uint64_t was = atomic_exchange(shared.deadline, now);
    if (now && (!was || now >> 1 < was >> 1) && write(shared.earlier, &one, sizeof one) < 0)
        return; /* full: it will look anyway */
}

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

static struct runner_tree guarded_tree(const struct guard_spec *g, const char *will, int64_t shim,
                                       int64_t program)
{
    return (struct runner_tree){.held = g->held,
                                .will = will,
                                .marker = g->marker,
                                .group = g->group,
                                .root = getpid(),
                                .spare = {getpid(), shim},
                                .watched = program};
}

static void end_tree(const struct guard_spec *g, const char *will, int64_t program)
{
    struct runner_tree t = guarded_tree(g, will, 0, program);

    while (tree_process_count(NULL, &t) != 0) {
        (void)tree_signal(NULL, &t, SIGKILL);
        (void)poll(NULL, 0, 10);
    }
}

static void runner_killed(struct run_report *r, int status, bool lease_lost)
{
    *r = (struct run_report){.step = RUN_STEP_ENDED, .term_signal = SIGKILL};
    if (lease_lost) {
        run_report_lease_lost(r);
        return;
    }
    str_copy(r->reason, sizeof r->reason, end_text(END_RUNNER_KILLED));
    (void)snprintf(r->message, sizeof r->message,
                   "the runner was killed (signal %d); its guard ended the program",
                   WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static int end_for_the_shim(const struct guard_spec *g, const char *will, int status)
{
    char path[4096];
    struct will w = {0};
    struct run_report r;

    (void)will_read(will, &w);
    end_tree(g, will, w.pid);
    tree_group_remove(NULL, g->group);
    if (!will_tell(g->dir, will, true, &r))
        runner_killed(&r, status, w.lease_lost);
    r.searched = g->held == RUN_SEARCHED;
    int exit_status = r.term_signal ? 128 + r.term_signal : r.exit_code;
    if (!g->dir)
        return exit_status;
    (void)snprintf(path, sizeof path, "%s/" RUN_END_FILE, g->dir);
    if (access(path, F_OK) == 0) /* it had said all, and died after that */
        return exit_status;
    struct buf b;
    buf_init(&b, WIRE_REPORT_MAX);
    bool whole = run_report_print(&r, &b, NULL) == 0; /* else the agent looks for itself */
    for (int tries = 0; whole && !write_durably(g->dir, RUN_END_FILE, b.p, b.n) && tries < 600;
         tries++)
        (void)poll(NULL, 0, 1000); /* a full disk: the agent will look for itself meanwhile */
    buf_fini(&b);
    return exit_status;
}

/* ---- waiting: for the shim's end, and for its deadline ---- */
static uint64_t boot_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* When to act, in the clock's ms; 0 = never. */
static uint64_t act_at(bool *ret_lost)
{
    uint64_t d = shared.deadline ? atomic_load(shared.deadline) : 0;

    *ret_lost = d & 1;
    return d ? (d >> 1) + GUARD_MARGIN_MS : 0;
}

static bool shim_ended(int *ret_status)
{
    /* for the shim alone: what it leaves behind stays as it is */
    return waitpid((pid_t)shim_pid, ret_status, WNOHANG) == (pid_t)shim_pid;
}

/* The shim has let the deadline pass. Its program is ended over its head; if it lives it finds that
 * and tells; if it does not move, it is killed, and we tell. False: it has told. */
static bool enforce(const struct guard_spec *g, const char *will, bool lost, int *ret_status)
{
    uint64_t until = boot_ms() + SHIM_PATIENCE_MS;
    struct will w = {0};

    if (lost)
        will_flag(NULL, will, WILL_LEASE_LOST);
    for (;;) {
        (void)will_read(will, &w);
        struct runner_tree t = guarded_tree(g, will, shim_pid, w.pid);
        if (tree_process_count(NULL, &t) != 0)
            (void)tree_signal(NULL, &t, SIGKILL);
        if (shim_ended(ret_status))
            return true;
        if (!act_at(&lost))
            return false;
        if (boot_ms() >= until)
            (void)kill((pid_t)shim_pid, SIGKILL);
        (void)poll(NULL, 0, AGAIN_MS);
    }
}

static int shim_wait(const struct guard_spec *g, const char *will)
{
    int status = 0, timer = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    struct pollfd f[3] = {
        {.fd = (int)syscall(SYS_pidfd_open, (pid_t)shim_pid, 0), .events = POLLIN},
        {.fd = timer, .events = POLLIN},
        {.fd = shared.earlier, .events = POLLIN}};
    bool blind = f[0].fd < 0 || timer < 0 || shared.earlier < 0, lost;
    uint64_t n;

    while (!shim_ended(&status)) {
        uint64_t at = act_at(&lost);
        if (at && boot_ms() >= at) {
            if (enforce(g, will, lost, &status))
                break;
            continue;
        }
        struct itimerspec when = {
            .it_value = {.tv_sec = (time_t)(at / 1000), .tv_nsec = (long)(at % 1000) * 1000000}};
        (void)timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
        (void)poll(f, 3, blind ? BLIND_MS : -1);
        if (f[2].revents && read(shared.earlier, &n, sizeof n) < 0)
            continue; /* somebody else's wake-up: it is looked at again anyway */
    }
    return status;
}

static void guard_run(const struct guard_spec *g, const char *will)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction sa = {.sa_handler = hand_on};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        (void)sigaction(ends[i], &sa, NULL);
    for (size_t i = 0; i < RUN_SIGNALS; i++)
        (void)sigaction(run_signals[i], &sa, NULL);
    int status = shim_wait(g, will);
    /* It ended by itself: it has said all, or declined to start because another runner holds this
     * worker. */
    if (WIFEXITED(status))
        _exit(WEXITSTATUS(status));
    _exit(end_for_the_shim(g, will, status));
}

/* To ourselves /proc is open, also where our memory is closed to others of our user. */
static bool open_to_others(const char *path)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0)
        _exit(access(path, R_OK | W_OK) != 0);
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
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
    if (fd < 0 || !open_to_others(out))
        out[0] = '\0';
}

static void share(uint64_t lease_until_ms)
{
    void *p = mmap(NULL, sizeof *shared.deadline, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    shared.deadline = p == MAP_FAILED ? NULL : p;
    shared.earlier = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    guard_deadline_tell(lease_until_ms, true);
}

int guard_split(const struct guard_spec *g, char ret_will[RUN_WILL_MAX], struct err *err)
{
    sigset_t all, before;

    if (tree_adopt_orphans(NULL, err) < 0)
        return err ? err->code : E_INTERNAL;
    (void)signal(SIGCHLD, SIG_DFL); /* inherited as ignored, it would have the kernel reap */
    will_place(g->dir, ret_will);
    if (g->held == RUN_NAMESPACE && !*ret_will)
        return err_set(err, E_INVALID,
                       "--processes pidNamespace needs a readable /proc, or --dir: nobody could "
                       "tell when the namespace is empty");
    share(g->lease_until_ms);
    if (!shared.deadline)
        return err_set(err, E_NOSPACE, "cannot start the guard: no memory");
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before); /* none is lost before the handlers stand */
    pid_t pid = fork();
    if (pid < 0)
        return err_set(err, E_LIMIT, "cannot start the guard: %s", strerror(errno));
    if (pid > 0) {
        shim_pid = pid;
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        guard_run(g, ret_will);
    }
    /* A group of its own: who kills the guard's group leaves the shim, which holds the lease,
     * alone. */
    (void)setsid();
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return 0;
}
