/* The helper of `hanse exec` and `hanse port-forward`: one command with pipes or a terminal for its
 * three streams, or one connection to a program's port, relayed over a unix socket to the agent. It
 * is a process of its own because the seam starts programs without pipes, and makes no connections
 * without TLS. When the socket ends, or SIGTERM comes, it kills the command's group. A connection
 * must never reach a port on which another run listens. */
#include "connectors/shim/tenant_linux.h"
#include "connectors/shim/tree_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEADER 16
#define CHUNK 16384

struct relay {
    int sock, in, out[2]; /* -1 = closed */
    int held; /* the terminal until the command ends: who closes his streams is not hung up */
    int signals; /* SIGTERM and SIGCHLD; a port has none: nothing is left when it dies */
    bool terminal, port; /* what the command is on; port: there is no command */
    pid_t pid;
    bool in_eof; /* close `in` once what waits is written */
    char from[HEADER + CHUNK * 4];
    size_t n_from;
    char wait[CHUNK * 8]; /* for the command's input */
    size_t n_wait;
};

/* A run that ends sends SIGTERM to all that is of it, us too: who died of it would leave a command
 * that ignores it. Ahead of the command, which gets back what was. */
static bool signals_take(struct relay *r, sigset_t *was)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGCHLD);
    r->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->signals >= 0 && sigprocmask(SIG_BLOCK, &set, was) == 0;
}

/* False: there was a SIGTERM. */
static bool signals_read(const struct relay *r)
{
    struct signalfd_siginfo si;
    bool stay = true;

    while (read(r->signals, &si, sizeof si) == (ssize_t)sizeof si)
        stay = stay && si.ssi_signo != SIGTERM;
    return stay;
}

/* It is reaped later: until then its number is nobody else's. */
static bool command_ended(const struct relay *r)
{
    siginfo_t si = {0};

    return waitid(P_PID, (id_t)r->pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid != 0;
}

static bool send_all(int fd, const void *p, size_t n)
{
    const char *s = p;

    while (n > 0) {
        ssize_t k = send(fd, s, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        s += k;
        n -= (size_t)k;
    }
    return true;
}

static bool send_frame(int fd, uint8_t type, uint8_t flags, uint64_t id, const void *p, size_t n)
{
    unsigned char h[HEADER] = {0};
    uint32_t len = (uint32_t)(n + HEADER - 4);

    for (int i = 0; i < 4; i++)
        h[i] = (unsigned char)(len >> (8 * i));
    h[4] = type;
    h[5] = flags;
    for (int i = 0; i < 8; i++)
        h[8 + i] = (unsigned char)(id >> (8 * i));
    return send_all(fd, h, HEADER) && (n == 0 || send_all(fd, p, n));
}

static int dial(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    str_copy(a.sun_path, sizeof a.sun_path, path);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

/* Where the program is: its namespace is that of our children. */
static int start_inside(const struct enter_spec *s, bool terminal, const char *const *argv)
{
    char cwd[4096];
    int status;

    if (enter_group(s) || !getcwd(cwd, sizeof cwd)) /* ahead: neither need be seen from there */
        return 126;
    int e = namespace_join(s->will);
    if (!e && chdir(cwd) != 0)
        e = errno;
    if (e) {
        (void)fprintf(stderr, "hanse exec: cannot join the program's namespace: %s\n", strerror(e));
        return 126;
    }
    pid_t pid = fork();
    if (pid < 0)
        return 126;
    if (pid == 0) {
        if (terminal && (setsid() < 0 || ioctl(0, TIOCSCTTY, 0) != 0))
            _exit(126);
        bool refused = s->tenant.uid && tenant_become(&s->tenant);
        if (terminal) /* it is in no group of ours */
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(refused ? 126 : enter_become(argv));
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void terminal_size(int fd, unsigned rows, unsigned columns)
{
    const struct winsize w = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};

    if (rows && columns)
        (void)ioctl(fd, TIOCSWINSZ, &w);
}

/* size: "ROWSxCOLUMNS"; 0: not known */
static bool start_terminal(struct relay *r, const struct enter_spec *s, const char *size,
                           const char *const *argv)
{
    char name[64], *end = NULL;
    sigset_t was;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    unsigned long rows = strtoul(size, &end, 10);
    unsigned long columns = *end == 'x' ? strtoul(end + 1, NULL, 10) : 0;

    if (master < 0 || grantpt(master) || unlockpt(master) || ptsname_r(master, name, sizeof name))
        return false;
    terminal_size(master, rows > UINT16_MAX ? 0 : (unsigned)rows,
                  columns > UINT16_MAX ? 0 : (unsigned)columns);
    int slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0 || (s->tenant.uid && fchown(slave, s->tenant.uid, s->tenant.gid) != 0))
        return false;
    r->terminal = true;
    if (!signals_take(r, &was))
        return false;
    r->pid = fork();
    if (r->pid < 0)
        return false;
    if (r->pid == 0) {
        (void)sigprocmask(SIG_SETMASK, &was, NULL);
        (void)setsid();
        for (int i = 0; i < 3; i++)
            (void)dup2(slave, i);
        if (!*s->will && ioctl(0, TIOCSCTTY, 0) != 0)
            _exit(126);
        (void)signal(SIGPIPE, SIG_DFL);
        _exit(*s->will ? start_inside(s, true, argv) : enter_exec(s, argv));
    }
    (void)close(slave);
    (void)fcntl(master, F_SETFL, O_NONBLOCK);
    r->out[0] = master;
    r->in = fcntl(master, F_DUPFD_CLOEXEC, 3);
    r->held = fcntl(master, F_DUPFD_CLOEXEC, 3);
    return r->in >= 0 && r->held >= 0;
}

static bool start(struct relay *r, const struct enter_spec *s, const char *const *argv)
{
    int p[3][2];
    sigset_t was;

    for (int i = 0; i < 3; i++)
        if (pipe2(p[i], O_CLOEXEC) != 0)
            return false;
    if (!signals_take(r, &was))
        return false;
    r->pid = fork();
    if (r->pid < 0)
        return false;
    if (r->pid == 0) {
        (void)sigprocmask(SIG_SETMASK, &was, NULL);
        (void)setsid();
        (void)dup2(p[0][0], 0);
        (void)dup2(p[1][1], 1);
        (void)dup2(p[2][1], 2);
        for (int i = 0; i < 3; i++) { /* who only waits must not keep its input open */
            (void)close(p[i][0]);
            (void)close(p[i][1]);
        }
        (void)signal(SIGPIPE, SIG_DFL);
        _exit(*s->will ? start_inside(s, false, argv) : enter_exec(s, argv));
    }
    r->in = p[0][1];
    r->out[0] = p[1][0];
    r->out[1] = p[2][0];
    (void)close(p[0][0]);
    (void)close(p[1][1]);
    (void)close(p[2][1]);
    (void)fcntl(r->in, F_SETFL, O_NONBLOCK);
    return true;
}

static void shut(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* One whole frame from the agent, if there is one. */
static bool take_frame(struct relay *r)
{
    const unsigned char *h = (const unsigned char *)r->from;

    if (r->n_from < HEADER)
        return false;
    size_t len = (size_t)h[0] | (size_t)h[1] << 8 | (size_t)h[2] << 16 | (size_t)h[3] << 24;
    size_t body = len - (HEADER - 4);
    if (len < HEADER - 4 || body > sizeof r->from - HEADER)
        exit(1); /* not our agent */
    if (r->n_from < HEADER + body || (h[4] == ATTACH_DATA && r->n_wait + body > sizeof r->wait))
        return false;
    if (h[4] == ATTACH_DATA && r->in >= 0) {
        memcpy(r->wait + r->n_wait, r->from + HEADER, body);
        r->n_wait += body;
    }
    if (h[4] == ATTACH_EOF)
        r->in_eof = true;
    const unsigned char *size = h + HEADER;
    if (h[4] == ATTACH_SIZE && body == 4 && r->terminal && r->out[0] >= 0)
        terminal_size(r->out[0], (unsigned)(size[0] | size[1] << 8),
                      (unsigned)(size[2] | size[3] << 8));
    r->n_from -= HEADER + body;
    memmove(r->from, r->from + HEADER + body, r->n_from);
    return true;
}

static void feed_input(struct relay *r)
{
    while (r->n_wait > 0 && r->in >= 0) {
        ssize_t k = write(r->in, r->wait, r->n_wait);
        if (k < 0 && errno == EAGAIN)
            return;
        if (k <= 0) {
            shut(&r->in);
            r->n_wait = 0;
            return;
        }
        r->n_wait -= (size_t)k;
        memmove(r->wait, r->wait + k, r->n_wait);
    }
    if (!r->in_eof || r->in < 0)
        return;
    if (r->port)
        (void)shutdown(r->in, SHUT_WR);
    if (r->terminal && write(r->in, "\004", 1) < 0 && errno == EAGAIN)
        return; /* once more, when there is room */
    shut(&r->in);
}

/* False when the agent is gone. */
static bool from_agent(struct relay *r)
{
    ssize_t k = recv(r->sock, r->from + r->n_from, sizeof r->from - r->n_from, 0);

    if (k < 0 && errno == EINTR)
        return true;
    if (k <= 0)
        return false;
    r->n_from += (size_t)k;
    return true;
}

static bool from_command(struct relay *r, int i, uint64_t id)
{
    char chunk[CHUNK];
    ssize_t k = read(r->out[i], chunk, sizeof chunk);

    if (k < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (k <= 0) {
        shut(&r->out[i]);
        if (k < 0 && r->port) /* it was reset: nothing is taken, either */
            shut(&r->in);
        return !r->port || send_frame(r->sock, ATTACH_EOF, 0, id, NULL, 0);
    }
    return send_frame(r->sock, ATTACH_DATA, (uint8_t)(i + 1), id, chunk, (size_t)k);
}

/* Until nothing moves any more: what was written makes room for frames that are here already, and
 * of them no poll will tell. */
static void pass_input(struct relay *r)
{
    size_t held;

    do {
        held = r->n_from + r->n_wait;
        while (take_frame(r)) {
        }
        feed_input(r);
    } while (r->n_from + r->n_wait != held);
}

/* True once nothing more is said, and the command has ended; false when it is not wanted any more:
 * the agent, or the run, has ended. */
static bool relay(struct relay *r, uint64_t id)
{
    for (;;) {
        pass_input(r);
        bool silent = r->out[0] < 0 && r->out[1] < 0;
        if (silent && (r->port ? r->in < 0 : command_ended(r)))
            return true;
        struct pollfd f[5] = {{.fd = r->sock, .events = r->n_from < sizeof r->from ? POLLIN : 0},
                              {.fd = r->out[0], .events = POLLIN},
                              {.fd = r->out[1], .events = POLLIN},
                              {.fd = r->n_wait > 0 || r->in_eof ? r->in : -1, .events = POLLOUT},
                              {.fd = r->signals, .events = POLLIN}};
        if (poll(f, 5, -1) < 0 && errno != EINTR)
            return false;
        if (f[4].revents && !signals_read(r))
            return false;
        if (f[0].revents && !from_agent(r))
            return false;
        for (int i = 0; i < 2; i++)
            if (f[1 + i].revents && !from_command(r, i, id))
                return false;
    }
}

/* ---- a port ---- */
/* An address at which connections to 127.0.0.1 or ::1 arrive. */
static bool is_local(const char *address)
{
    static const char *const known[] = {"0100007F",
                                        "00000000",
                                        "00000000000000000000000000000000",
                                        "00000000000000000000000001000000",
                                        "0000000000000000FFFF00000100007F",
                                        "0000000000000000FFFF000000000000"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(address, known[i]))
            return true;
    return false;
}

/* Counts the sockets that listen on the port, in the table (/proc/net/tcp), and adds their inodes.
 * Negative: it cannot be told. */
static int listeners(const char *table, unsigned port, struct port_sockets *v)
{
    FILE *f = fopen(table, "re");
    char line[512], address[33], at[5], state[3], inode[21];
    int n = 0;

    if (!f)
        return errno == ENOENT ? 0 : -1;
    while (n >= 0 && fgets(line, sizeof line, f)) {
        if (sscanf(line,
                   "%*[ 0-9]: %32[0-9A-F]:%4[0-9A-F] %*[0-9A-F]:%*[0-9A-F] %2[0-9A-F]"
                   " %*s %*s %*s %*[0-9] %*[0-9] %20[0-9]",
                   address, at, state, inode) != 4 ||
            strcmp(state, "0A") != 0 || strtoul(at, NULL, 16) != port || !is_local(address))
            continue;
        if (v->n == PORT_SOCKETS_MAX) {
            n = -1;
            break;
        }
        v->inodes[v->n++] = strtoull(inode, NULL, 10);
        n++;
    }
    bool whole = !ferror(f);
    (void)fclose(f);
    return whole ? n : -1;
}

/* All that listen on the port are of this run; ret: what they are, and whether 127.0.0.1 or ::1 is
 * theirs. Returns 0, or why not: ATTACH_NOBODY, ATTACH_STRANGER. */
static int port_check(const struct runner_tree *t, unsigned port, struct port_sockets *ret)
{
    *ret = (struct port_sockets){0};
    int v4 = listeners("/proc/net/tcp", port, ret);
    int v6 = listeners("/proc/net/tcp6", port, ret);

    if (v4 < 0 || v6 < 0)
        return ATTACH_STRANGER;
    if (v4 + v6 == 0)
        return ATTACH_NOBODY;
    ret->six = v4 == 0;
    return tree_holds_sockets(t, ret) ? 0 : ATTACH_STRANGER;
}

static int port_dial(unsigned port, bool six)
{
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 b = {.sin6_family = AF_INET6,
                                   .sin6_port = htons((uint16_t)port),
                                   .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = fd < 0 ? -1
             : six  ? connect(fd, (const struct sockaddr *)&b, sizeof b)
                    : connect(fd, (const struct sockaddr *)&a, sizeof a);

    if (rc != 0 && fd >= 0) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

/* Looks before and after: what listened in between is what listens now, so that the connection is
 * with none but this run. */
static int port_open(const struct runner_tree *t, unsigned port, int *ret)
{
    struct port_sockets before, after;
    int why = port_check(t, port, &before);

    if (why)
        return why;
    *ret = port_dial(port, before.six);
    if (*ret < 0)
        return ATTACH_NOBODY;
    why = port_check(t, port, &after);
    bool same = !why && before.n == after.n &&
                !memcmp(before.inodes, after.inodes, before.n * sizeof *before.inodes);
    if (same)
        return 0;
    (void)close(*ret);
    return why ? why : ATTACH_NOBODY;
}

int attach_port(const char *socket_path, uint64_t id, const struct runner_tree *t, unsigned port)
{
    static struct relay r = {.in = -1, .out = {-1, -1}, .signals = -1, .port = true};
    int fd = -1, why = port_open(t, port, &fd);
    const unsigned char none = 0;

    r.sock = dial(socket_path);
    if (r.sock < 0 || !send_frame(r.sock, ATTACH_HELLO, (uint8_t)why, id, NULL, 0) || why)
        return 126;
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    r.out[0] = fd;
    r.in = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (r.in >= 0 && relay(&r, id))
        (void)send_frame(r.sock, ATTACH_END, 0, id, &none, 1);
    return 0;
}

/* ---- a command ---- */
/* Also where it has not made its group yet: then it is killed alone, and its group, which it may
 * have made and filled just before, once it is dead. Its number is nobody else's until it is
 * reaped. */
static void kill_all(pid_t pid)
{
    siginfo_t si;

    (void)kill(-pid, SIGKILL);
    (void)kill(pid, SIGKILL);
    while (waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    (void)kill(-pid, SIGKILL);
}

int attach_exec(const char *socket_path, uint64_t id, const struct enter_spec *s,
                const char *terminal, const char *const *argv)
{
    static struct relay r = {.in = -1, .out = {-1, -1}, .signals = -1};
    int status = 0;

    r.sock = dial(socket_path);
    if (r.sock < 0 || !send_frame(r.sock, ATTACH_HELLO, 0, id, NULL, 0) ||
        !(terminal ? start_terminal(&r, s, terminal, argv) : start(&r, s, argv)))
        return 126;
    bool whole = relay(&r, id);
    if (!whole)
        kill_all(r.pid);
    while (waitpid(r.pid, &status, 0) < 0 && errno == EINTR) {
    }
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    unsigned char byte = (unsigned char)code;
    if (whole)
        (void)send_frame(r.sock, ATTACH_END, 0, id, &byte, 1);
    return code;
}
