/* A PID namespace of the program's own: every process in it dies with the first one, also after
 * setsid or with an empty environment, and none can leave it. Where a control group can be made as
 * well, it holds the program and its children, but not keeper and init, whose use is not the
 * program's.
 *
 *     shim ─► keeper (this process, outside) ─┬─► init (pid 1 inside: adopts, reaps, mounts /proc)
 *                                             └─► program (pid 2 inside)
 *
 * The shim knows the keeper as the program: the keeper passes signals on to the program's group,
 * and ends as the program ends. The shim's death ends the keeper, and that ends init (PDEATHSIG).
 * When only the program has ended, init stays for the processes that it left behind: until none is
 * left, the shim is dead, or LINGER_MS have passed. */
#include "connectors/shim/tenant_linux.h"
#include "connectors/shim/tree_linux.h"
#include "connectors/shim/will_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINGER_MS 30000 /* the shim kills what is left long before: LEFTOVER_GRACE_MAX_MS */
#define REAP_EVERY_MS 50
#define ACK_MS 2000

/* One byte each, between keeper and init. */
enum word { WORD_GO = 'g', WORD_READY = 'r', WORD_FAILED = 'f', WORD_EXITED = 'x' };

static volatile sig_atomic_t program_pid;

static void hand_on(int signo)
{
    int e = errno;

    if (program_pid <= 0)
        return;
    /* Its whole group, as of a program without a namespace; before its setsid it is alone. */
    if (kill((pid_t)-program_pid, signo) != 0)
        (void)kill((pid_t)program_pid, signo);
    errno = e;
}

static bool file_put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    bool ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    (void)close(fd);
    return ok;
}

/* As root, or as the root of a user namespace in which we stay who we are. 0 or an errno. */
static int leave(void)
{
    char map[64];
    unsigned uid = geteuid(), gid = getegid();

    if (unshare(CLONE_NEWPID | CLONE_NEWNS) == 0)
        return 0;
    if (errno != EPERM || unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) != 0)
        return errno;
    (void)file_put("/proc/self/setgroups", "deny");
    (void)snprintf(map, sizeof map, "%u %u 1", gid, gid);
    if (!file_put("/proc/self/gid_map", map))
        return errno;
    (void)snprintf(map, sizeof map, "%u %u 1", uid, uid);
    return file_put("/proc/self/uid_map", map) ? 0 : errno;
}

static bool say(int fd, char word)
{
    return send(fd, &word, 1, MSG_NOSIGNAL) == 1;
}

/* 0: the other side is gone, or says nothing in time. */
static char hear(int fd, int ms)
{
    struct pollfd f = {.fd = fd, .events = POLLIN};
    char word = 0;
    int rc;

    do
        rc = poll(&f, 1, ms);
    while (rc < 0 && errno == EINTR);
    return rc == 1 && recv(fd, &word, 1, 0) == 1 ? word : 0;
}

/* ---- init ---- */
/* What is mounted outside later is seen inside, never the other way round. */
static bool own_proc(void)
{
    return mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 &&
           mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
}

static void init_linger(int shim)
{
    struct pollfd f = {.fd = shim, .events = POLLIN};

    for (int ms = 0; ms < LINGER_MS; ms += REAP_EVERY_MS) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        }
        if ((pid < 0 && errno == ECHILD) || poll(&f, 1, ms < 500 ? 5 : REAP_EVERY_MS) > 0)
            break;
    }
    _exit(0);
}

/* shim: its pidfd, or -1 */
static void init_run(int sock, int shim)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_NAME, "hanse-init");
    for (int i = 1; i <= SIGRTMAX; i++)
        (void)signal(i, SIG_DFL); /* for pid 1 that is: ignored */
    if (hear(sock, -1) != WORD_GO)
        _exit(1);
    if (!own_proc() || chdir("/")) { /* holds no folder */
        (void)say(sock, WORD_FAILED);
        _exit(1);
    }
    (void)say(sock, WORD_READY);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++) /* nor anybody's pipe */
        (void)dup2(null, fd);
    for (;;) {
        struct pollfd f = {.fd = sock, .events = POLLIN};
        char word = 0;
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        if (poll(&f, 1, REAP_EVERY_MS) <= 0)
            continue;
        if (recv(sock, &word, 1, 0) != 1 || word != WORD_EXITED)
            _exit(1); /* the keeper is gone, and with it all */
        (void)prctl(PR_SET_PDEATHSIG, 0);
        (void)say(sock, WORD_READY);
        (void)close(sock);
        init_linger(shim);
    }
}

/* Its pid, or minus an errno. */
static pid_t init_start(int shim, int *ret_sock)
{
    int s[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s) != 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(s[0]);
        init_run(s[1], shim);
    }
    int e = errno;
    (void)close(s[1]);
    if (pid < 0) {
        (void)close(s[0]);
        return -e;
    }
    *ret_sock = s[0];
    return pid;
}

/* ---- keeper ---- */
static void as_the_program_ended(int status)
{
    const struct rlimit none = {0, 0};
    int signo = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

    if (!signo)
        _exit(WEXITSTATUS(status));
    (void)setrlimit(RLIMIT_CORE, &none); /* the core that counts is the program's */
    (void)signal(signo, SIG_DFL);
    (void)raise(signo);
    _exit(128 + signo);
}

static void hand_signals_on(void)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGCONT};
    struct sigaction sa = {.sa_handler = hand_on, .sa_flags = SA_RESTART};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        (void)sigaction(ends[i], &sa, NULL);
    for (size_t i = 0; i < RUN_SIGNALS; i++)
        (void)sigaction(run_signals[i], &sa, NULL);
}

static int refused(const char *what, int e)
{
    (void)fprintf(stderr, "hanse run: no PID namespace: %s: %s\n", what, strerror(e));
    return 126;
}

static int become(const struct enter_spec *s, const char *const *argv)
{
    int rc = enter_group(s);

    if (rc == 0 && s->tenant.uid)
        rc = tenant_view(&s->tenant);
    if (rc == 0 && s->tenant.uid)
        rc = tenant_become(&s->tenant);
    return rc ? rc : enter_become(argv);
}

int namespace_run(const struct enter_spec *s, const char *const *argv)
{
    sigset_t all, before;
    int shim = s->parent ? (int)syscall(SYS_pidfd_open, (pid_t)s->parent, 0) : -1;
    int sock = -1, status, e = leave();

    if (e)
        return refused("unshare", e);
    pid_t init = init_start(shim, &sock);
    if (init < 0)
        return refused("fork", -init);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* new credentials clear it */
    if (s->parent && getppid() != (pid_t)s->parent)
        return 128 + SIGKILL;
    if (*s->will && !will_program(s->will, init))
        return refused(s->will, errno);
    int will = will_open(s->will); /* the path may be of this /proc, and init mounts another one */
    if (!say(sock, WORD_GO) || hear(sock, -1) != WORD_READY)
        return refused("mounting /proc", EPERM);
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before); /* none is lost before the handlers stand */
    pid_t pid = fork();
    if (pid < 0)
        return refused("fork", errno);
    if (pid == 0) {
        (void)setsid();
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        _exit(become(s, argv));
    }
    program_pid = pid;
    hand_signals_on();
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    program_pid = 0;
    if (say(sock, WORD_EXITED)) { /* init is there: the program did not die with it */
        will_flag_to(will, WILL_EXITED);
        (void)hear(sock, ACK_MS);
    }
    as_the_program_ended(status);
    return 126;
}

/* ---- may we? ---- */
int namespace_try(void)
{
    int status;
    pid_t pid = fork();

    if (pid < 0)
        return errno;
    if (pid == 0) {
        int sock = -1, e = leave();
        pid_t init = e ? 0 : init_start(-1, &sock);
        if (init < 0)
            e = -init;
        if (!e && (!say(sock, WORD_GO) || hear(sock, ACK_MS) != WORD_READY))
            e = EPERM; /* a container that covers parts of /proc lets nobody mount another */
        _exit(e & 0xff);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EPERM;
}

static bool same_users(int64_t pid)
{
    struct stat a, b;
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%lld/ns/user", (long long)pid);
    return stat(path, &a) == 0 && stat("/proc/self/ns/user", &b) == 0 && a.st_ino == b.st_ino;
}

int namespace_join(const char *will)
{
    struct will w;

    if (!*will || !will_read(will, &w) || !w.init)
        return 0;
    int flags = CLONE_NEWPID | CLONE_NEWNS | (same_users(w.init) ? 0 : CLONE_NEWUSER);
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)w.init, 0), e = ESRCH;
    if (fd < 0)
        return errno;
    if (tree_process_start(w.init) == w.init_start)
        e = setns(fd, flags) == 0 ? 0 : errno;
    (void)close(fd);
    return e;
}
