/* Requests over streams, repeated over the members of a cluster until one answers (client.h).
 *
 * A lane is a state machine: IDLE → CONNECTING → WAITING → (BACKOFF → CONNECTING …) → IDLE.
 * Callbacks of streams and timers store what happened and call lane_failed or lane_answered;
 * nothing else moves it. */
#include "api/cli/net/client.h"
#include "api/cli/net/http_answer.h"

#include <stdio.h>
#include <string.h>

#define TIMEOUT_MS 30000
#define CONNECT_MS 4000
#define ANSWER_MS 10000
#define BACKOFF_FIRST_MS 40
#define BACKOFF_MAX_MS 1000
#define BODY_MAX_BYTES ((size_t)256 << 20)

struct server {
    char name[CLIENT_ADDRESS_MAX + 16]; /* as given */
    char address[CLIENT_ADDRESS_MAX];   /* host:port or unix:… */
};
struct client {
    struct loop *loop;
    struct tls_config *tls;
    struct server server[CLIENT_SERVERS_MAX];
    unsigned n;
    unsigned good; /* answered last: lanes begin here */
    char *token, *headers;
    uint64_t timeout_ms, answer_ms;
};

enum lane_state { LANE_IDLE, LANE_CONNECTING, LANE_WAITING, LANE_BACKOFF };
struct client_lane {
    struct client *c;
    enum lane_state state;
    struct stream *stream;         /* NULL = none; its events carry this lane */
    unsigned server;               /* of the stream, or the next to try */
    char host[CLIENT_ADDRESS_MAX]; /* a redirect's address, or "" */
    bool reused, sent, redirected, doubted;
    struct http_answer in;
    struct timer timer;
    /* the request */
    struct client_request rq;
    struct client_answer *answer;
    char key[64];
    char *path;
    uint64_t deadline_ms, backoff_ms;
    unsigned tls_failures, tries;
    bool maybe_done; /* a try was sent and not answered for sure */
    struct err last;
    void (*done)(void *arg, const struct err *err);
    void *arg;
};

static void lane_try(struct client_lane *l);
static void lane_failed(struct client_lane *l, const struct err *why);
static void lane_answered(struct client_lane *l);

/* ---- client ---- */
static int server_set(struct server *s, const char *url, struct err *err)
{
    const char *host = url;

    if (!strncmp(url, "https://", 8))
        host = url + 8;
    else if (strncmp(url, "unix:", 5) != 0)
        return err_set(err, E_USAGE,
                       "server \"%s\": expected https://HOST:PORT (Hanse speaks TLS only)", url);
    size_t n = host == url ? strlen(host) : strcspn(host, "/");
    if (host != url && host[n] && host[n + 1])
        return err_set(err, E_USAGE, "server \"%s\": expected https://HOST:PORT without a path",
                       url);
    if (!n || n + 5 >= sizeof s->address || strlen(url) >= sizeof s->name)
        return err_set(err, E_USAGE, "server \"%s\": expected https://HOST:PORT", url);
    const char *bracket = memchr(host, ']', n), *from = bracket ? bracket : host;
    bool port = host == url || memchr(from, ':', n - (size_t)(from - host));
    (void)snprintf(s->address, sizeof s->address, "%.*s%s", (int)n, host, port ? "" : ":443");
    str_copy(s->name, sizeof s->name, url);
    return 0;
}

int client_create(const struct client_spec *spec, struct client **ret, struct err *err)
{
    struct client *c = mem_new(struct client);

    c->loop = spec->loop;
    c->timeout_ms = spec->timeout_ms ? spec->timeout_ms : TIMEOUT_MS;
    c->answer_ms = spec->answer_ms ? spec->answer_ms : ANSWER_MS;
    for (unsigned i = 0; i < spec->n_servers && c->n < CLIENT_SERVERS_MAX; i++) {
        int rv = server_set(&c->server[c->n++], spec->servers[i], err);
        if (rv) {
            (void)client_destroy(c);
            return rv;
        }
    }
    if (!c->n) {
        (void)client_destroy(c);
        return err_set(err, E_USAGE, "no server is known: name one with --server or a kubeconfig");
    }
    c->tls = spec->tls ? tls_config_ref(spec->tls) : NULL;
    c->token = spec->token ? mem_strdup(spec->token) : NULL;
    c->headers = spec->headers ? mem_strdup(spec->headers) : NULL;
    *ret = c;
    return 0;
}

struct client *client_destroy(struct client *c)
{
    if (!c)
        return NULL;
    if (c->tls)
        (void)tls_config_unref(c->tls);
    if (c->token)
        explicit_bzero(c->token, strlen(c->token));
    mem_free(c->token);
    mem_free(c->headers);
    mem_free(c);
    return NULL;
}

unsigned client_servers(const struct client *c)
{
    return c->n;
}

void client_answer_init(struct client_answer *a)
{
    *a = (struct client_answer){0};
    buf_init(&a->body, BODY_MAX_BYTES);
}

void client_answer_fini(struct client_answer *a)
{
    buf_fini(&a->body);
}

/* ---- streams ---- */
static void lane_drop(struct client_lane *l)
{
    static const struct stream_events none = {0};

    if (l->stream) {
        stream_set(l->stream, &none, NULL);
        stream_abort(l->stream, "given up");
    }
    l->stream = NULL;
}

static void on_open(struct stream *s, void *arg);
static void on_data(struct stream *s, const void *p, size_t n, void *arg);
static void on_closed(struct stream *s, const struct err *why, void *arg);
static const struct stream_events events = {.open = on_open, .data = on_data, .closed = on_closed};

static int body_piece(const void *p, size_t n, void *arg)
{
    struct client_lane *l = arg;

    if (l->rq.data && l->in.status == 200)
        return l->rq.data(p, n, l->rq.arg);
    buf_add(&l->answer->body, p, n);
    return l->answer->body.failed ? E_TOOLARGE : 0;
}

static void on_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct client_lane *l = arg;
    struct err e = {0};

    (void)s;
    if (l->state != LANE_WAITING) { /* nobody asked: this connection is of no use any more */
        lane_drop(l);
        return;
    }
    int rv = http_answer_feed(&l->in, p, n, body_piece, l, &e);
    if (l->rq.data && l->in.status == 200) {
        timer_stop(&l->timer); /* a stream may take as long as it likes, unless it is told else */
        if (l->rq.silent_ms)
            timer_start(&l->timer, l->rq.silent_ms);
        l->doubted = false;
    }
    if (rv > 0 || (rv && l->rq.data && l->in.status == 200)) {
        l->in.keep_alive = false; /* the reader has had enough */
        lane_answered(l);
    } else if (rv == E_TOOLARGE) {
        (void)err_set(&e, E_TOOLARGE, "the answer is larger than %zu MiB: ask for less",
                      BODY_MAX_BYTES >> 20);
        lane_drop(l);
        lane_failed(l, &e);
    } else if (rv) {
        lane_drop(l);
        lane_failed(l, &e);
    } else if (l->in.state == ANSWER_DONE) {
        lane_answered(l);
    }
}

static void on_closed(struct stream *s, const struct err *why, void *arg)
{
    struct client_lane *l = arg;
    struct err e = *why;

    (void)s;
    l->stream = NULL;
    if (l->state == LANE_WAITING) {
        struct err cut = {0};
        if (!why->code && l->in.begun && !http_answer_end(&l->in, &cut)) {
            lane_answered(l);
            return;
        }
        if (!e.code)
            e = cut;
        if (!e.code)
            (void)err_set(&e, E_CONNECT, "%s: the connection ended before an answer",
                          l->c->server[l->server].name);
        lane_failed(l, &e);
    } else if (l->state == LANE_CONNECTING) {
        if (!e.code)
            (void)err_set(&e, E_CONNECT, "%s: the connection was refused",
                          l->c->server[l->server].name);
        lane_failed(l, &e);
    }
}

static void send_request(struct client_lane *l)
{
    const struct client_request *rq = &l->rq;
    AUTO_BUF b = {0};

    buf_init(&b, (64u << 10) + rq->body.n);
    buf_printf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: hanse/" HANSE_VERSION "\r\n",
               rq->method, l->path,
               *l->host ? l->host
               : !strncmp(l->c->server[l->server].address, "unix:", 5)
                   ? "localhost"
                   : l->c->server[l->server].address);
    buf_printf(&b, "Accept: %s\r\n", rq->accept ? rq->accept : "application/json");
    if (l->c->token)
        buf_printf(&b, "Authorization: Bearer %s\r\n", l->c->token);
    if (l->c->headers)
        buf_str(&b, l->c->headers);
    if (*l->key)
        buf_printf(&b, "Idempotency-Key: %s\r\n", l->key);
    if (rq->upgrade)
        buf_printf(&b, "Connection: Upgrade\r\nUpgrade: %s\r\n", rq->upgrade);
    if (rq->body.n)
        buf_printf(&b, "Content-Type: %s\r\n",
                   rq->content_type ? rq->content_type : "application/json");
    if (strcmp(rq->method, "GET") != 0)
        buf_printf(&b, "Content-Length: %zu\r\n", rq->body.n);
    buf_str(&b, "\r\n");
    buf_add(&b, rq->body.p, rq->body.n);
    l->state = LANE_WAITING;
    l->sent = true;
    http_answer_next(&l->in);
    uint64_t now = loop_now_ms(l->c->loop), left = l->deadline_ms > now ? l->deadline_ms - now : 0;
    bool others = l->c->n > 1 && !rq->here;
    if (rq->patient)
        timer_stop(&l->timer);
    else
        timer_start(&l->timer, others && left > l->c->answer_ms ? l->c->answer_ms : left);
    stream_write(l->stream, b.p, b.n);
}

static void on_open(struct stream *s, void *arg)
{
    (void)s;
    send_request(arg);
}

/* ---- tries ---- */
static bool repeatable(const struct client_lane *l)
{
    return !l->rq.upgrade && (!strcmp(l->rq.method, "GET") || *l->key || l->rq.operation);
}

static void lane_end(struct client_lane *l, const struct err *err)
{
    timer_stop(&l->timer);
    l->state = LANE_IDLE;
    l->answer->tries = l->tries;
    if (l->rq.data && l->in.status == 200)
        l->answer->status = 200; /* a stream that had begun, whatever its end */
    mem_free(l->path);
    l->path = NULL;
    if (!err)
        l->c->good = l->server;
    l->done(l->arg, err);
}

static void lane_give_up(struct client_lane *l)
{
    struct err e = l->last;
    bool reads = !strcmp(l->rq.method, "GET");

    lane_drop(l);
    if (reads && l->rq.data && l->in.status == 200 && e.code == E_CONNECT) {
        (void)err_set(&e, E_CONNECT,
                      "the member was lost while it told (%s): there may be more; try again, "
                      "others may answer",
                      l->last.text);
    } else if (l->maybe_done && !reads) {
        (void)err_set(&e, E_UNKNOWN,
                      "the outcome is unknown: the request was sent and no answer came (%s); read "
                      "back before you repeat it", l->last.text);
    } else if (e.code == E_CONNECT || e.code == E_TIMEOUT || !e.code) {
        int code = l->maybe_done ? E_UNAVAIL : E_CONNECT;
        (void)err_set(
            &e, code,
            "no member of the cluster answered: %s; see --server, --context and --timeout",
            *l->last.text ? l->last.text : "out of time");
    }
    lane_end(l, &e);
}

static void lane_backoff(struct client_lane *l, uint64_t at_least_ms)
{
    uint64_t now = loop_now_ms(l->c->loop);
    uint64_t wait = l->backoff_ms / 2 + loop_random_u64(l->c->loop) % (l->backoff_ms / 2 + 1);

    if (wait < at_least_ms)
        wait = at_least_ms;
    l->backoff_ms = l->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : l->backoff_ms * 2;
    if (now + wait >= l->deadline_ms) {
        lane_give_up(l);
        return;
    }
    l->state = LANE_BACKOFF;
    timer_start(&l->timer, wait);
}

static void next_server(struct client_lane *l)
{
    *l->host = '\0';
    l->redirected = false;
    if (!l->rq.here)
        l->server = (l->server + 1) % l->c->n;
}

/* The stream is gone. What was sent may have had its effect; only a request with a key is sent
 * again. */
static void lane_failed(struct client_lane *l, const struct err *why)
{
    bool stale =
        l->reused && !l->in.begun; /* a kept connection that the server had closed meanwhile */

    timer_stop(&l->timer);
    lane_drop(l);
    if (l->sent)
        l->maybe_done = true;
    l->last = *why;
    if (why->code == E_TLS && ++l->tls_failures >= l->c->n) {
        lane_end(l, why);
        return;
    }
    if (l->sent && (!repeatable(l) || (l->rq.data && l->in.status == 200)) && !stale) {
        lane_give_up(l);
        return;
    }
    if (why->code == E_TOOLARGE) {
        lane_end(l, why);
        return;
    }
    l->sent = false;
    if (stale && repeatable(l)) {
        lane_try(l);
        return;
    }
    if (stale) {
        lane_give_up(l);
        return;
    }
    next_server(l);
    /* Every server is asked once before the first pause. */
    if (l->tries % l->c->n != 0 && why->code != E_TIMEOUT)
        lane_try(l);
    else
        lane_backoff(l, 0);
}

static void lane_try(struct client_lane *l)
{
    struct err e = {0};

    l->tries++;
    l->sent = false;
    l->reused = l->stream != NULL;
    if (l->stream) {
        send_request(l);
        return;
    }
    l->state = LANE_CONNECTING;
    http_answer_fini(&l->in);
    http_answer_init(&l->in);
    timer_start(&l->timer, CONNECT_MS + 1000);
    const char *address = *l->host ? l->host : l->c->server[l->server].address;
    bool plain = !strncmp(address, "unix:", 5);
    if (stream_connect(l->c->loop, address, plain ? NULL : l->c->tls, plain ? NULL : ALPN_HTTP,
                       CONNECT_MS, &events, l, &l->stream, &e)) {
        l->stream = NULL;
        timer_stop(&l->timer);
        l->last = e;
        if (e.code == E_CONNECT)
            lane_backoff(l, 0);
        else
            lane_end(l, &e);
    }
}

/* 307: to the host that it names, once, without leaving the cluster's scheme. */
static bool lane_redirect(struct client_lane *l)
{
    const char *to = l->in.location;

    if (l->redirected || (strncmp(to, "https://", 8) != 0 && strncmp(to, "unix:", 5) != 0))
        return false;
    const char *host = *to == 'u' ? to : to + 8;
    size_t n = *to == 'u' ? strcspn(host, "?") : strcspn(host, "/?");
    if (!n || n >= sizeof l->host || (*to == 'u' && l->c->tls))
        return false;
    (void)snprintf(l->host, sizeof l->host, "%.*s", (int)n, host);
    l->redirected = true;
    lane_drop(l);
    buf_reset(&l->answer->body);
    lane_try(l);
    return true;
}

static bool try_again_status(int status)
{
    return status == 429 || status == 502 || status == 503 || status == 504;
}

static void lane_answered(struct client_lane *l)
{
    int status = l->in.status;
    struct client_answer *a = l->answer;

    timer_stop(&l->timer);
    if (status == 101 && l->stream) /* what comes behind it is for who takes it */
        stream_pause(l->stream, true);
    if (status == 307 && lane_redirect(l))
        return;
    if (status != 101 && (!l->in.keep_alive || *l->host))
        lane_drop(l);
    a->status = status;
    str_copy(a->location, sizeof a->location, l->in.location);
    str_copy(a->content_type, sizeof a->content_type, l->in.content_type);
    if (try_again_status(status) && (repeatable(l) || status == 503 || status == 429)) {
        struct err e = {0};
        (void)!client_status(a, &e);
        uint64_t at_least =
            l->in.retry_after_s > 0 && status == 429 ? (uint64_t)l->in.retry_after_s * 1000 : 0;
        if (at_least > 5000)
            at_least = 5000;
        if (loop_now_ms(l->c->loop) + at_least + l->backoff_ms < l->deadline_ms) {
            l->last = e;
            l->maybe_done = l->maybe_done || status == 504 || status == 502;
            buf_reset(&a->body);
            if (status != 429) {
                lane_drop(l);
                next_server(l);
            }
            lane_backoff(l, at_least);
            return;
        }
    }
    lane_end(l, NULL);
}

static void on_timer(void *arg)
{
    struct client_lane *l = arg;
    struct err e = {0};

    if (l->state == LANE_BACKOFF) {
        lane_try(l);
        return;
    }
    bool body = l->rq.data && l->in.status == 200;
    if (body && !l->doubted) { /* perhaps who reads was held up: what has come is read first */
        l->doubted = true;
        timer_start(&l->timer, CONNECT_MS);
        return;
    }
    (void)err_set(&e, body ? E_CONNECT : E_TIMEOUT, "%s: %s", l->c->server[l->server].name,
                  body ? "it tells nothing any more" : "no answer in time");
    if (!body && loop_now_ms(l->c->loop) >= l->deadline_ms) {
        l->maybe_done = l->maybe_done || l->sent;
        l->last = e;
        lane_give_up(l);
        return;
    }
    lane_failed(l, &e);
}

/* ---- lanes ---- */
struct client_lane *client_lane_create(struct client *c)
{
    struct client_lane *l = mem_new(struct client_lane);

    l->c = c;
    l->server = c->good;
    http_answer_init(&l->in);
    timer_init(&l->timer, c->loop, on_timer, l);
    return l;
}

struct client_lane *client_lane_destroy(struct client_lane *l)
{
    if (!l)
        return NULL;
    timer_stop(&l->timer);
    lane_drop(l);
    http_answer_fini(&l->in);
    mem_free(l->path);
    mem_free(l);
    return NULL;
}

void client_lane_pin(struct client_lane *l, unsigned server)
{
    if (server % l->c->n != l->server)
        lane_drop(l);
    l->server = server % l->c->n;
}

void client_start(struct client_lane *l, const struct client_request *rq,
                  struct client_answer *answer, void (*done)(void *arg, const struct err *err),
                  void *arg)
{
    PRE(l->state == LANE_IDLE);
    l->rq = *rq;
    l->answer = answer;
    l->done = done;
    l->arg = arg;
    l->path = mem_strdup(rq->path);
    l->deadline_ms = loop_now_ms(l->c->loop) + (rq->timeout_ms ? rq->timeout_ms : l->c->timeout_ms);
    l->backoff_ms = BACKOFF_FIRST_MS;
    l->tries = l->tls_failures = 0;
    l->maybe_done = l->redirected = l->doubted = false;
    *l->host = '\0';
    l->last = (struct err){0};
    buf_reset(&answer->body);
    answer->status = 0;
    *l->key = '\0';
    if (rq->key)
        str_copy(l->key, sizeof l->key, rq->key);
    else if (strcmp(rq->method, "GET") != 0 && !rq->upgrade && !rq->operation)
        (void)snprintf(l->key, sizeof l->key, "hanse-%016llx%016llx",
                       (unsigned long long)loop_random_u64(l->c->loop),
                       (unsigned long long)loop_random_u64(l->c->loop));
    lane_try(l);
}

struct waiting {
    struct loop *loop;
    bool over;
    struct err err;
};
static void perform_done(void *arg, const struct err *err)
{
    struct waiting *w = arg;

    if (err)
        w->err = *err;
    w->over = true;
    loop_stop(w->loop);
}

void client_run_until(struct loop *l, const bool *flag)
{
    while (!*flag)
        loop_uv_run(l);
}

int client_perform(struct client_lane *l, const struct client_request *rq,
                   struct client_answer *answer, struct err *err)
{
    struct waiting w = {.loop = l->c->loop};

    client_start(l, rq, answer, perform_done, &w);
    client_run_until(l->c->loop, &w.over);
    if (w.err.code && err)
        *err = w.err;
    return w.err.code;
}

struct stream *client_take_stream(struct client_lane *l, struct buf *early)
{
    struct stream *s = l->stream;

    PRE(l->state == LANE_IDLE && s);
    buf_add(early, l->in.in.p, l->in.in.n);
    stream_pause(s, false); /* in a later turn of the loop */
    l->stream = NULL;
    http_answer_fini(&l->in);
    http_answer_init(&l->in);
    return s;
}
