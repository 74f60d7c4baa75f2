/* Connections: heads with absolute deadlines, bodies with a least rate, one request at a time,
 * answers in order. This file must never call a handler before a request is whole, nor read on
 * while one is being answered. */
#include "api/http/http_internal.h"

#include <stdio.h>
#include <string.h>

#define HEAD_MAX ((size_t)LIMIT_URL_MAX_BYTES + LIMIT_HEADERS_MAX_BYTES)
#define PIPELINE_MAX 65536
#define BODY_GRACE_MS 5000

static void conn_work(struct http_conn *c);

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } t[] = {{100, "Continue"},
             {101, "Switching Protocols"},
             {200, "OK"},
             {201, "Created"},
             {202, "Accepted"},
             {204, "No Content"},
             {304, "Not Modified"},
             {307, "Temporary Redirect"},
             {400, "Bad Request"},
             {401, "Unauthorized"},
             {403, "Forbidden"},
             {404, "Not Found"},
             {405, "Method Not Allowed"},
             {406, "Not Acceptable"},
             {408, "Request Timeout"},
             {409, "Conflict"},
             {410, "Gone"},
             {413, "Content Too Large"},
             {414, "URI Too Long"},
             {415, "Unsupported Media Type"},
             {422, "Unprocessable Content"},
             {429, "Too Many Requests"},
             {431, "Request Header Fields Too Large"},
             {500, "Internal Server Error"},
             {501, "Not Implemented"},
             {502, "Bad Gateway"},
             {503, "Service Unavailable"},
             {504, "Gateway Timeout"},
             {505, "HTTP Version Not Supported"},
             {507, "Insufficient Storage"}};

    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        if (t[i].status == status)
            return t[i].text;
    return "Status";
}

/* ---- requests ---- */
static struct http_request *request_create(struct http_conn *c)
{
    struct http_request *rq = mem_new(struct http_request);

    rq->conn = c;
    rq->loop = c->server->loop;
    rq->arena = arena_create(0);
    rq->share = http_share_ref(c->server->share);
    buf_init(&rq->body, LIMIT_BODY_MAX_BYTES + 1);
    return rq;
}
void http_request_free(struct http_request *rq)
{
    http_share_set(rq->share, HTTP_IN, rq->slot, &rq->held, 0);
    rq->share = http_share_unref(rq->share);
    buf_fini(&rq->body);
    rq->arena = arena_destroy(rq->arena);
    mem_free(rq);
}

static void state_set(struct http_conn *c, enum conn_state s, uint64_t deadline_ms)
{
    c->state = s;
    c->state_since_ms = loop_now_ms(c->server->loop);
    if (deadline_ms)
        timer_start(&c->deadline, deadline_ms);
    else
        timer_stop(&c->deadline);
}

/* Refuses what the connection carries and ends it: nothing after such bytes can be trusted. */
static void conn_refuse(struct http_conn *c, int status, const char *why)
{
    char text[512];
    int body = snprintf(NULL, 0, "%d: %s\n", status, why);
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: "
                     "%d\r\n%sConnection: close\r\n\r\n"
                     "%d: %s\n",
                     status, http_status_text(status), body,
                     status == 429 ? "Retry-After: 1\r\n" : "", status, why);

    c->server->stats.refused++;
    stream_write(c->stream, text, (size_t)n);
    if (c->rq) {
        http_request_free(c->rq);
        c->rq = NULL;
    }
    buf_reset(&c->in);
    state_set(c, CONN_CLOSING, 0);
    stream_close(c->stream);
}

/* Its body counts among those under way; refused, and false, when there are too many bytes of
 * them. */
static bool body_held(struct http_conn *c)
{
    struct http_request *rq = c->rq;

    if (rq->body.n > rq->held &&
        http_share_over(rq->share, HTTP_IN, rq->slot, rq->body.n - rq->held)) {
        conn_refuse(c, 429, "too many bytes of requests are under way: try again later");
        return false;
    }
    http_share_set(rq->share, HTTP_IN, rq->slot, &rq->held, rq->body.n);
    return true;
}

static void request_run(struct http_conn *c)
{
    const char *why = "";
    int rv = c->rq->gzip_body ? http_body_inflate(c->rq, &why) : 0;

    if (rv) {
        conn_refuse(c, rv, why);
        return;
    }
    if (!body_held(c))
        return;
    c->rq->msg.body = slice_make(c->rq->body.n ? c->rq->body.p : "", c->rq->body.n);
    state_set(c, CONN_HANDLING, 0);
    c->server->stats.requests++;
    c->server->handler(c->rq, c->server->arg);
}

/* ---- bytes in ---- */
static void head_begin(struct http_conn *c, size_t head_n)
{
    const char *why = "";

    c->rq = request_create(c);
    int rv = http_parse_head(c->parse, c->in.p, head_n, c->rq, &why);
    if (rv) {
        conn_refuse(c, rv, why);
        return;
    }
    buf_consume(&c->in, head_n);
    http_share_set(c->server->share, HTTP_OUT, c->slot, &c->held, 0); /* of who asked before */
    c->slot = c->rq->slot =
        http_share_slot(stream_peer(c->stream), http_header_get(c->rq, "authorization"));
    conn_pending(c);
    if (http_parse_bodyless(c->parse)) {
        request_run(c);
        return;
    }
    if (c->rq->expect_continue)
        stream_write(c->stream, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    state_set(c, CONN_BODY, BODY_GRACE_MS);
}

static void head_look(struct http_conn *c)
{
    while (c->in.n >= 2 && !memcmp(c->in.p, "\r\n", 2))
        buf_consume(&c->in, 2); /* an empty line between requests is allowed (RFC 9112 §2.2) */
    const char *end = c->in.n ? memmem(c->in.p, c->in.n, "\r\n\r\n", 4) : NULL;
    if (end && (size_t)(end - c->in.p) + 4 <= HEAD_MAX) {
        head_begin(c, (size_t)(end - c->in.p) + 4);
        return;
    }
    if (end || c->in.n > HEAD_MAX)
        conn_refuse(c, 431, "the request's head is larger than the limit");
    else if (c->in.n && memmem(c->in.p, c->in.n, "\n\n", 2))
        conn_refuse(c, 400, "a bare line feed");
    else if (c->in.n && c->state_since_ms && !timer_active(&c->deadline))
        timer_start(&c->deadline, c->server->cfg.header_timeout_ms);
}

static void body_look(struct http_conn *c)
{
    const char *why = "";
    size_t used = 0;
    bool done = false;

    if (c->in.n == 0)
        return;
    int rv = http_parse_body(c->parse, c->in.p, c->in.n, c->rq, &used, &done, &why);
    if (rv) {
        conn_refuse(c, rv, why);
        return;
    }
    buf_consume(&c->in, used);
    if (body_held(c) && done)
        request_run(c);
}

/* Level-triggered: looks at what is there until nothing more can be done. Never re-enters
 * itself. */
static void conn_work(struct http_conn *c)
{
    size_t before;

    if (c->working)
        return;
    c->working = true;
    do {
        before = c->in.n + 1;
        enum conn_state was = c->state;
        if (c->state == CONN_HEAD && c->in.n)
            head_look(c);
        else if (c->state == CONN_BODY)
            body_look(c);
        if (c->state == was && c->in.n + 1 == before)
            break;
    } while (c->state == CONN_HEAD || c->state == CONN_BODY);
    c->working = false;
    bool pause = c->state == CONN_HANDLING && c->in.n > PIPELINE_MAX;
    if (c->state != CONN_CLOSING && pause != c->paused) {
        c->paused = pause;
        stream_pause(c->stream, pause);
    }
}

static void on_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct http_conn *c = arg;

    (void)s;
    c->server->stats.bytes_in += n;
    if (c->state == CONN_CLOSING)
        return;
    if (c->state == CONN_HEAD &&
        c->in.n == 0) /* the head's deadline is absolute, from its first byte */
        state_set(c, CONN_HEAD, c->server->cfg.header_timeout_ms);
    buf_add(&c->in, p, n);
    if (c->in.failed)
        conn_refuse(c, 413, "too much was sent ahead");
    else
        conn_work(c);
}

static void on_drained(struct stream *s, void *arg)
{
    struct http_conn *c = arg;

    (void)s;
    conn_pending(c);
    if (c->rq && c->rq->streaming && c->rq->on_drained) {
        void (*cb)(void *) = c->rq->on_drained;
        c->rq->on_drained = NULL;
        cb(c->rq->on_drained_arg);
    }
}

static void server_maybe_closed(struct http_server *s)
{
    if (s->closing && list_empty(&s->conns) && s->closed) {
        void (*cb)(void *) = s->closed;
        void *arg = s->closed_arg;
        timer_stop(&s->grace);
        s->share = http_share_unref(s->share);
        mem_free(s);
        cb(arg);
    }
}

static void on_closed(struct stream *st, const struct err *why, void *arg)
{
    struct http_conn *c = arg;
    struct http_server *s = c->server;
    struct http_request *rq = c->rq;
    bool handling = c->state == CONN_HANDLING;

    (void)st;
    (void)why;
    timer_stop(&c->deadline);
    list_remove(&c->link);
    http_share_set(s->share, HTTP_OUT, c->slot, &c->held, 0);
    s->stats.open--;
    c->parse = http_parse_destroy(c->parse);
    buf_fini(&c->in);
    mem_free(c);
    if (rq && rq->streaming) {
        rq->conn = NULL;
        void (*cb)(void *) = rq->on_close;
        void *cb_arg = rq->on_close_arg;
        http_request_free(rq);
        if (cb)
            cb(cb_arg);
    } else if (rq && handling && !rq->answered) {
        rq->conn = NULL; /* the handler still has it; it is freed when it answers */
    } else if (rq) {
        http_request_free(rq);
    }
    server_maybe_closed(s);
}
static const struct stream_events events = {
    .data = on_data, .drained = on_drained, .closed = on_closed};

/* ---- deadlines ---- */
static void deadline_over(void *arg)
{
    struct http_conn *c = arg;
    const struct http_config *cfg = &c->server->cfg;
    uint64_t spent = loop_now_ms(c->server->loop) - c->state_since_ms;

    switch (c->state) {
    case CONN_HEAD:
        if (c->in.n)
            conn_refuse(c, 408, "the request's head took too long");
        else
            stream_close(c->stream); /* idle */
        break;
    case CONN_BODY:
        if (spent >
                cfg->body_timeout_ms + (uint64_t)LIMIT_BODY_MAX_BYTES * 1000 / cfg->min_body_rate ||
            (spent >= BODY_GRACE_MS &&
             (c->rq->body.n + c->in.n) * 1000 / spent < cfg->min_body_rate))
            conn_refuse(c, 408, "the request's body comes too slowly");
        else
            timer_start(&c->deadline, BODY_GRACE_MS);
        break;
    case CONN_HANDLING:
    case CONN_CLOSING:
        break;
    }
}

void conn_request_done(struct http_conn *c, bool keep_alive)
{
    http_request_free(c->rq);
    c->rq = NULL;
    if (!keep_alive || c->server->closing) {
        state_set(c, CONN_CLOSING, 0);
        stream_close(c->stream);
        return;
    }
    state_set(c, CONN_HEAD,
              c->in.n ? c->server->cfg.header_timeout_ms : c->server->cfg.idle_timeout_ms);
    conn_work(c);
}

void conn_pending(struct http_conn *c)
{
    http_share_set(c->server->share, HTTP_OUT, c->slot, &c->held, stream_pending(c->stream));
}

/* ---- the server ---- */
struct http_server *http_server_create(struct loop *l, const struct http_config *cfg,
                                       http_handler h, void *arg)
{
    struct http_server *s = mem_new(struct http_server);

    s->loop = l;
    s->handler = h;
    s->arg = arg;
    if (cfg)
        s->cfg = *cfg;
    if (!s->cfg.header_timeout_ms)
        s->cfg.header_timeout_ms = 10000;
    if (!s->cfg.body_timeout_ms)
        s->cfg.body_timeout_ms = 60000;
    if (!s->cfg.idle_timeout_ms)
        s->cfg.idle_timeout_ms = 120000;
    if (!s->cfg.min_body_rate)
        s->cfg.min_body_rate = 1024;
    list_init(&s->conns);
    s->share = http_share_create();
    timer_init(&s->grace, l, NULL, s);
    return s;
}

void http_server_accept(struct http_server *s, struct stream *st)
{
    struct http_conn *c;

    if (s->closing || s->stats.open >= LIMIT_CONNECTIONS_MAX) {
        stream_abort(st, "no more connections are taken");
        return;
    }
    c = mem_new(struct http_conn);
    c->server = s;
    c->stream = st;
    c->parse = http_parse_create();
    buf_init(&c->in, HEAD_MAX + LIMIT_BODY_MAX_BYTES);
    timer_init(&c->deadline, s->loop, deadline_over, c);
    list_push(&s->conns, &c->link);
    s->stats.connections++;
    s->stats.open++;
    stream_set(st, &events, c);
    state_set(c, CONN_HEAD, s->cfg.header_timeout_ms);
}

static void grace_over(void *arg)
{
    struct http_server *s = arg;

    list_for_each_safe (it, tmp, &s->conns)
        stream_abort(container_of(it, struct http_conn, link)->stream,
                     "the server is shutting down");
}

void http_server_close(struct http_server *s, uint64_t grace_ms, void (*closed)(void *arg),
                       void *arg)
{
    s->closing = true;
    s->closed = closed;
    s->closed_arg = arg;
    list_for_each_safe (it, tmp, &s->conns) {
        struct http_conn *c = container_of(it, struct http_conn, link);
        if (c->rq && c->rq->streaming && !c->rq->unframed)
            stream_write(c->stream, "0\r\n\r\n", 5); /* watches end with their last chunk */
        if (c->state == CONN_HEAD || (c->rq && c->rq->streaming)) {
            c->state = CONN_CLOSING;
            stream_close(c->stream);
        }
    }
    timer_init(&s->grace, s->loop, grace_over, s);
    timer_start(&s->grace, grace_ms);
    if (list_empty(&s->conns)) {
        s->closed = NULL;
        timer_stop(&s->grace);
        loop_post(s->loop, closed, arg);
        s->share = http_share_unref(s->share);
        mem_free(s);
    }
}

void http_server_stats(const struct http_server *s, struct http_stats *ret)
{
    *ret = s->stats;
}
