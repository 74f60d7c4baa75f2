/* asker HOST PORT CA EACH RATE SECONDS SETTLE OBJECTS SEED CLASS: one or more users who ask a
 * server for datasets d0…, as tests/bench/noisy.py says. Their tokens come on the input, one a
 * line, up to an empty line; each has EACH connections. Then it says "ready", reads when to begin
 * (CLOCK_MONOTONIC, ns), and asks RATE times a second for each user, at set times (0: as fast as it
 * is answered). CLASS: fifo, its delays do not count as the server's; idle, it computes only where
 * nobody else would; other. Prints, for what was due from SETTLE s on, a line WHAT STATUS
 * MICROSECONDS (from when it was due) each, then "end" with its own CPU time and the 99th
 * percentile of how late it woke, in microseconds. Written in C because a slower client competes
 * with the server for the machine that both run on. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define BASE "/apis/hanse.dev/v1alpha1/namespaces/default/datasets"
#define USERS_MAX 64
#define LINES_MAX 1024
#define LATE_MAX 4096 /* requests of one user that are due and have no connection */
#define TOKEN_MAX 2048
#define HEAD_MAX 4096
#define SECOND 1000000000ll

enum what { WHAT_READ, WHAT_WRITE, WHAT_LIST };
static const char *const names[] = {"read", "write", "list"};

struct user {
    char token[TOKEN_MAX];
    int64_t due;            /* the next one */
    int64_t late[LATE_MAX]; /* a ring */
    unsigned late_at, n_late;
    struct line *free[LINES_MAX];
    unsigned n_free;
};
struct line { /* one connection; one request at a time */
    struct user *user;
    SSL *ssl;
    int fd;
    enum what what;
    int64_t due;
    char head[HEAD_MAX]; /* as far as it has come */
    size_t head_n;
    bool whole_head, chunked;
    size_t left;  /* of a body that says its length */
    char tail[5]; /* the last bytes of one that does not */
    int status;
};
struct sample {
    enum what what;
    int status;
    int64_t took;
};

static struct {
    struct user users[USERS_MAX];
    struct line lines[LINES_MAX];
    unsigned n_users, n_lines;
    struct sample *samples;
    int64_t *woke; /* how late */
    size_t n_samples, cap_samples, n_woke, cap_woke;
    int64_t start, settle, end, step; /* step: between two of one user; 0: as fast as answered */
    long objects;
    uint64_t seed;
} G;

static void fail(const char *what)
{
    (void)fprintf(stderr, "asker: %s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * SECOND + ts.tv_nsec;
}

static uint64_t pick(uint64_t n) /* splitmix64 */
{
    uint64_t z = G.seed += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % n;
}

static void *grown(void *v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return v;
    *cap = *cap ? *cap * 2 : 4096;
    v = realloc(v, *cap * size);
    if (!v)
        fail("memory");
    return v;
}

static void line_open(struct line *l, struct user *u, const struct addrinfo *at, SSL_CTX *ctx)
{
    int one = 1;

    l->user = u;
    l->fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->fd < 0 || connect(l->fd, at->ai_addr, at->ai_addrlen))
        fail("connecting");
    (void)setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    l->ssl = SSL_new(ctx);
    if (!l->ssl || !SSL_set_fd(l->ssl, l->fd) || SSL_connect(l->ssl) != 1)
        fail("the TLS handshake");
    (void)fcntl(l->fd, F_SETFL, O_NONBLOCK);
    u->free[u->n_free++] = l;
}

/* Half reads, four tenths writes, the rest pages of a list. */
static void ask(struct line *l, int64_t due)
{
    uint64_t x = pick(10), n = pick((uint64_t)G.objects);
    char body[80], text[TOKEN_MAX + 600];
    int body_n = 0, text_n;

    l->what = x < 5 ? WHAT_READ : x < 9 ? WHAT_WRITE : WHAT_LIST;
    l->due = due;
    l->head_n = 0;
    l->whole_head = false;
    if (l->what == WHAT_WRITE)
        body_n = snprintf(body, sizeof body, "{\"metadata\":{\"annotations\":{\"n\":\"%llu\"}}}",
                          (unsigned long long)pick(1u << 30));
    if (l->what == WHAT_LIST)
        text_n = snprintf(text, sizeof text, "GET " BASE "?limit=100&resourceVersion=0");
    else
        text_n =
            snprintf(text, sizeof text, "%s " BASE "/d%llu?%s", body_n ? "PATCH" : "GET",
                     (unsigned long long)n, body_n ? "fieldManager=noisy" : "resourceVersion=0");
    text_n +=
        snprintf(text + text_n, sizeof text - (size_t)text_n,
                 " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n", l->user->token);
    if (body_n)
        text_n += snprintf(text + text_n, sizeof text - (size_t)text_n,
                           "Content-Type: application/merge-patch+json\r\nContent-Length: %d\r\n",
                           body_n);
    text_n += snprintf(text + text_n, sizeof text - (size_t)text_n, "\r\n%.*s", body_n, body);
    if (SSL_write(l->ssl, text, text_n) != text_n)
        fail("asking");
}

static void ask_all(int64_t now)
{
    for (unsigned i = 0; i < G.n_users; i++) {
        struct user *u = &G.users[i];
        for (; G.step && u->due <= now; u->due += G.step) {
            if (u->n_late == LATE_MAX) { /* he gives up on the oldest */
                u->late_at++;
                u->n_late--;
            }
            u->late[(u->late_at + u->n_late++) % LATE_MAX] = u->due;
        }
        while (u->n_free && (u->n_late || !G.step)) {
            int64_t due = G.step ? u->late[u->late_at++ % LATE_MAX] : now;
            u->n_late -= G.step != 0;
            ask(u->free[--u->n_free], due);
        }
    }
}

/* True once the answer is whole. */
static bool take(struct line *l, const char *p, size_t n)
{
    if (!l->whole_head) {
        size_t had = l->head_n, fits = HEAD_MAX - 1 - had < n ? HEAD_MAX - 1 - had : n;
        char *end, *length;

        memcpy(l->head + had, p, fits);
        l->head_n += fits;
        l->head[l->head_n] = 0;
        end = strstr(l->head, "\r\n\r\n");
        if (!end && l->head_n == HEAD_MAX - 1)
            fail("an answer's head");
        if (!end)
            return false;
        end += 4;
        l->whole_head = true;
        l->status = (int)strtol(l->head + 9, NULL, 10);
        length = strstr(l->head, "Content-Length: ");
        l->chunked = !length || length > end;
        l->left = l->chunked ? 0 : strtoul(length + 16, NULL, 10);
        memset(l->tail, 0, sizeof l->tail);
        p += (size_t)(end - l->head) - had;
        n -= (size_t)(end - l->head) - had;
    }
    if (!l->chunked) {
        l->left -= n < l->left ? n : l->left;
        return !l->left;
    }
    for (size_t i = n > 5 ? n - 5 : 0; i < n; i++) {
        memmove(l->tail, l->tail + 1, 4);
        l->tail[4] = p[i];
    }
    return !memcmp(l->tail, "0\r\n\r\n", 5);
}

static void line_read(struct line *l)
{
    static char part[65536];
    bool whole = false;
    int n = 0;

    ERR_clear_error();
    while (!whole && (n = SSL_read(l->ssl, part, sizeof part)) > 0)
        whole = take(l, part, (size_t)n);
    if (!whole && SSL_get_error(l->ssl, n) == SSL_ERROR_WANT_READ)
        return;
    if (!whole)
        fail("a connection was ended");
    if (l->due >= G.settle) {
        G.samples = grown(G.samples, G.n_samples, &G.cap_samples, sizeof *G.samples);
        G.samples[G.n_samples++] = (struct sample){l->what, l->status, now_ns() - l->due};
    }
    l->user->free[l->user->n_free++] = l;
}

static void run(void)
{
    int poll = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN}, got[64];
    int64_t now;

    for (unsigned i = 0; i < G.n_lines; i++) {
        ev.data.ptr = &G.lines[i];
        (void)epoll_ctl(poll, EPOLL_CTL_ADD, G.lines[i].fd, &ev);
    }
    ev.data.ptr = NULL;
    (void)epoll_ctl(poll, EPOLL_CTL_ADD, timer, &ev);
    while ((now = now_ns()) < G.end) {
        int64_t soonest = G.end;
        if (now >= G.start)
            ask_all(now);
        for (unsigned i = 0; i < G.n_users && G.step; i++)
            soonest = G.users[i].due < soonest ? G.users[i].due : soonest;
        if (now < G.start)
            soonest = G.start;
        struct itimerspec at = {.it_value = {soonest / SECOND, soonest % SECOND}};
        (void)timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        int n = epoll_wait(poll, got, 64, -1);
        for (int i = 0; i < n; i++) {
            if (got[i].data.ptr) {
                line_read(got[i].data.ptr);
                continue;
            }
            G.woke = grown(G.woke, G.n_woke, &G.cap_woke, sizeof *G.woke);
            G.woke[G.n_woke++] = now_ns() - soonest;
        }
    }
    (void)close(timer);
    (void)close(poll);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void tell(const struct rusage *before)
{
    struct rusage r;

    (void)getrusage(RUSAGE_SELF, &r);
    for (size_t i = 0; i < G.n_samples; i++)
        (void)printf("%s %d %lld\n", names[G.samples[i].what], G.samples[i].status,
                     (long long)G.samples[i].took / 1000);
    if (G.n_woke)
        qsort(G.woke, G.n_woke, sizeof *G.woke, compare);
    int64_t cpu = (r.ru_utime.tv_sec + r.ru_stime.tv_sec - before->ru_utime.tv_sec -
                   before->ru_stime.tv_sec) *
                      1000000 +
                  r.ru_utime.tv_usec + r.ru_stime.tv_usec - before->ru_utime.tv_usec -
                  before->ru_stime.tv_usec;
    (void)printf("end %lld %lld\n", (long long)cpu,
                 (long long)(G.n_woke ? G.woke[G.n_woke * 99 / 100] / 1000 : 0));
}

int main(int argc, char **argv)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *at;
    struct sched_param fifo = {.sched_priority = 10}, none = {0};
    struct rusage before;
    char text[TOKEN_MAX];

    if (argc != 11) {
        (void)fputs("asker HOST PORT CA EACH RATE SECONDS SETTLE OBJECTS SEED CLASS\n", stderr);
        return 64;
    }
    long each = strtol(argv[4], NULL, 10);
    double rate = strtod(argv[5], NULL), seconds = strtod(argv[6], NULL);
    double settle = strtod(argv[7], NULL);
    G.objects = strtol(argv[8], NULL, 10);
    G.seed = strtoul(argv[9], NULL, 10);
    G.step = rate > 0 ? (int64_t)((double)SECOND / rate) : 0;
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (!ctx || SSL_CTX_load_verify_locations(ctx, argv[3], NULL) != 1)
        fail("the CA's certificate");
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    if (getaddrinfo(argv[1], argv[2], &hints, &at))
        fail("the server's address");
    while (G.n_users < USERS_MAX && fgets(text, sizeof text, stdin) && *text != '\n') {
        struct user *u = &G.users[G.n_users++];
        text[strcspn(text, "\n")] = 0;
        (void)snprintf(u->token, sizeof u->token, "%s", text);
        for (long i = 0; i < each && G.n_lines < LINES_MAX; i++)
            line_open(&G.lines[G.n_lines++], u, at, ctx);
    }
    freeaddrinfo(at);
    if (!strcmp(argv[10], "fifo"))
        (void)sched_setscheduler(0, SCHED_FIFO, &fifo);
    else if (!strcmp(argv[10], "idle"))
        (void)sched_setscheduler(0, SCHED_IDLE, &none);
    (void)puts("ready");
    (void)fflush(stdout);
    if (!fgets(text, sizeof text, stdin))
        return 1;
    G.start = strtoll(text, NULL, 10);
    G.settle = G.start + (int64_t)(settle * (double)SECOND);
    G.end = G.start + (int64_t)(seconds * (double)SECOND);
    for (unsigned i = 0; i < G.n_users && G.step; i++)
        G.users[i].due = G.start + (int64_t)pick((uint64_t)G.step);
    (void)getrusage(RUSAGE_SELF, &before);
    run();
    tell(&before);
    return 0;
}
