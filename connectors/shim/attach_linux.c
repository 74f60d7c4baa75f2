/* The helper of `hanse exec`: one command with pipes for its three streams, relayed over a unix
 * socket to the agent. It is a process of its own because the seam starts programs without pipes.
 * When the socket ends, it kills the command's group: no reader is left. */
#include "connectors/shim/tenant_linux.h"
#include "connectors/shim/tree_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEADER 16
#define CHUNK 16384

struct relay {
    int sock, in, out[2]; /* -1 = closed */
    pid_t pid;
    bool in_eof; /* close `in` once what waits is written */
    char from[HEADER + CHUNK * 4];
    size_t n_from;
    char wait[CHUNK * 8]; /* for the command's input */
    size_t n_wait;
};

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
static int start_inside(const struct enter_spec *s, const char *const *argv)
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
    if (pid == 0)
        _exit(s->tenant.uid && tenant_become(&s->tenant) ? 126 : enter_become(argv));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static bool start(struct relay *r, const struct enter_spec *s, const char *const *argv)
{
    int p[3][2];

    for (int i = 0; i < 3; i++)
        if (pipe2(p[i], O_CLOEXEC) != 0)
            return false;
    r->pid = fork();
    if (r->pid < 0)
        return false;
    if (r->pid == 0) {
        (void)setsid();
        (void)dup2(p[0][0], 0);
        (void)dup2(p[1][1], 1);
        (void)dup2(p[2][1], 2);
        for (int i = 0; i < 3; i++) { /* who only waits must not keep its input open */
            (void)close(p[i][0]);
            (void)close(p[i][1]);
        }
        (void)signal(SIGPIPE, SIG_DFL);
        _exit(*s->will ? start_inside(s, argv) : enter_exec(s, argv));
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
    if (r->in_eof)
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

    if (k < 0 && errno == EINTR)
        return true;
    if (k <= 0) {
        shut(&r->out[i]);
        return true;
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

static bool relay(struct relay *r, uint64_t id)
{
    while (r->out[0] >= 0 || r->out[1] >= 0) {
        pass_input(r);
        struct pollfd f[4] = {{.fd = r->sock, .events = r->n_from < sizeof r->from ? POLLIN : 0},
                              {.fd = r->out[0], .events = POLLIN},
                              {.fd = r->out[1], .events = POLLIN},
                              {.fd = r->n_wait > 0 ? r->in : -1, .events = POLLOUT}};
        if (poll(f, 4, -1) < 0 && errno != EINTR)
            return false;
        if (f[0].revents && !from_agent(r))
            return false;
        for (int i = 0; i < 2; i++)
            if (f[1 + i].revents && !from_command(r, i, id))
                return false;
    }
    return true;
}

int attach_exec(const char *socket_path, uint64_t id, const struct enter_spec *s,
                const char *const *argv)
{
    static struct relay r = {.in = -1, .out = {-1, -1}};
    int status = 0;

    r.sock = dial(socket_path);
    if (r.sock < 0 || !send_frame(r.sock, ATTACH_HELLO, 0, id, NULL, 0) || !start(&r, s, argv))
        return 126;
    bool whole = relay(&r, id);
    if (!whole)
        (void)kill(-r.pid, SIGKILL);
    while (waitpid(r.pid, &status, 0) < 0 && errno == EINTR) {
    }
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    unsigned char byte = (unsigned char)code;
    if (whole)
        (void)send_frame(r.sock, ATTACH_END, 0, id, &byte, 1);
    return code;
}
