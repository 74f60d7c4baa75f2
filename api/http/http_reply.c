/* Answers. A request whose client has gone takes its answer and forgets it. */
#include "api/http/http_internal.h"

#include <stdio.h>
#include <string.h>

#define GZIP_FROM 1400
#define SMALL 16384 /* an answer that is always given, in one write */

const struct http_message *http_message(const struct http_request *rq)
{
    return &rq->msg;
}
const char *http_header_get(const struct http_request *rq, const char *lower_name)
{
    for (unsigned i = 0; i < rq->msg.n_headers; i++)
        if (!strcmp(rq->msg.headers[i].name, lower_name))
            return rq->msg.headers[i].value;
    return NULL;
}
const char *http_param_get(const struct http_request *rq, const char *name)
{
    for (unsigned i = 0; i < rq->msg.n_params; i++)
        if (!strcmp(rq->msg.params[i].name, name))
            return rq->msg.params[i].value;
    return NULL;
}
const struct peer_identity *http_peer(const struct http_request *rq)
{
    static const struct peer_identity nobody;

    return rq->conn ? stream_peer(rq->conn->stream) : &nobody;
}
struct arena *http_arena(struct http_request *rq)
{
    return rq->arena;
}

bool http_gone(const struct http_request *rq)
{
    return !rq->conn;
}

static void gone(void *arg)
{
    http_request_free(arg);
}
/* A stream that began after its client had gone: told as if the client went now. */
static void gone_late(void *arg)
{
    struct http_request *rq = arg;
    void (*cb)(void *) = rq->ended ? NULL : rq->on_close;
    void *cb_arg = rq->on_close_arg;

    gone(rq);
    if (cb)
        cb(cb_arg);
}

static void head_print(struct buf *b, int status, const char *type, const char *const *extra)
{
    buf_printf(b, "HTTP/1.1 %d %s\r\n", status, http_status_text(status));
    if (type)
        buf_printf(b, "Content-Type: %s\r\n", type);
    for (; extra && *extra; extra += 2)
        if (!strpbrk(extra[0], "\r\n") && !strpbrk(extra[1], "\r\n"))
            buf_printf(b, "%s: %s\r\n", extra[0], extra[1]);
}

static bool worth_gzip(const struct http_request *rq, struct slice body, const char *type)
{
    return rq->accepts_gzip && body.n >= GZIP_FROM && !rq->head_only && type &&
           strncmp(type, "image/", 6);
}

void http_reply(struct http_request *rq, int status, const char *type, struct slice body,
                const char *const *extra)
{
    struct http_conn *c = rq->conn;
    bool keep = rq->keep_alive, has_body = status != 204 && status != 304;
    AUTO_BUF out = {0};
    AUTO_BUF zipped = {0};

    PRE(!rq->answered && !rq->streaming);
    rq->answered = true;
    if (!c) {
        gone(rq);
        return;
    }
    buf_init(&out, LIMIT_HEADERS_MAX_BYTES);
    buf_init(&zipped, body.n + 65536);
    head_print(&out, status, type, extra);
    if (worth_gzip(rq, body, type) && http_body_deflate(body, &zipped)) {
        buf_str(&out, "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n");
        body = slice_make(zipped.p, zipped.n);
    }
    if (body.n > SMALL && http_share_over(rq->share, HTTP_OUT, c->slot, body.n)) {
        static const char crowded[] = "429: too many bytes of answers wait for their clients: read "
                                      "them, and try again later\n";
        static const char *const later[] = {"Retry-After", "1", NULL};
        buf_reset(&out);
        body = slice_make(crowded, sizeof crowded - 1);
        head_print(&out, 429, "text/plain", later);
    }
    if (has_body)
        buf_printf(&out, "Content-Length: %zu\r\n", body.n);
    if (!keep || c->server->closing)
        buf_str(&out, "Connection: close\r\n");
    else if (rq->http10)
        buf_str(&out, "Connection: keep-alive\r\n");
    buf_str(&out, "\r\n");
    if (has_body && !rq->head_only && body.n <= SMALL && body.n + out.n < out.max)
        buf_add(&out, body.p, body.n); /* one write */
    else if (has_body && !rq->head_only) {
        stream_write(c->stream, out.p, out.n);
        c->server->stats.bytes_out += out.n;
        buf_reset(&out);
        stream_write(c->stream, body.p, body.n);
        c->server->stats.bytes_out += body.n;
    }
    if (out.n) {
        stream_write(c->stream, out.p, out.n);
        c->server->stats.bytes_out += out.n;
    }
    conn_pending(c);
    conn_request_done(c, keep);
}

void http_chunk_begin(struct http_request *rq, int status, const char *type,
                      const char *const *extra, void (*on_close)(void *arg), void *arg)
{
    struct http_conn *c = rq->conn;
    AUTO_BUF out = {0};

    PRE(!rq->answered && !rq->streaming);
    rq->on_close = on_close;
    rq->on_close_arg = arg;
    rq->streaming = true;
    rq->unframed = rq->http10;
    if (!c) {
        rq->late = true;
        loop_post(rq->loop, gone_late, rq);
        return;
    }
    buf_init(&out, LIMIT_HEADERS_MAX_BYTES);
    head_print(&out, status, type, extra);
    buf_str(&out,
            rq->unframed ? "Connection: close\r\n\r\n" : "Transfer-Encoding: chunked\r\n\r\n");
    stream_write(c->stream, out.p, out.n);
    c->server->stats.bytes_out += out.n;
}

void http_chunk_frame(struct buf *out, const void *p, size_t n)
{
    buf_printf(out, "%zx\r\n", n);
    buf_add(out, p, n);
    buf_str(out, "\r\n");
}

void http_chunk(struct http_request *rq, const void *p, size_t n)
{
    AUTO_BUF out = {0};

    if (!rq->conn || n == 0 || rq->head_only)
        return;
    if (rq->unframed) {
        http_chunk_raw(rq, p, n);
        return;
    }
    buf_init(&out, n + 64);
    http_chunk_frame(&out, p, n);
    http_chunk_raw(rq, out.p, out.n);
}

void http_chunk_raw(struct http_request *rq, const void *framed, size_t n)
{
    if (!rq->conn || rq->head_only)
        return;
    stream_write(rq->conn->stream, framed, n);
    conn_pending(rq->conn);
    rq->conn->server->stats.bytes_out += n;
}

bool http_crowded(const struct http_request *rq, size_t n)
{
    const struct http_conn *c = rq->conn;

    return c && c->held && http_share_over(rq->share, HTTP_OUT, c->slot, n);
}

size_t http_pending(const struct http_request *rq)
{
    return rq->conn ? stream_pending(rq->conn->stream) : 0;
}
void http_on_drained(struct http_request *rq, void (*cb)(void *arg), void *arg)
{
    rq->on_drained = cb;
    rq->on_drained_arg = arg;
}

void http_last(struct http_request *rq)
{
    rq->keep_alive = false;
}

void http_chunk_end(struct http_request *rq)
{
    struct http_conn *c = rq->conn;
    void (*cb)(void *) = rq->on_close;
    void *arg = rq->on_close_arg;

    PRE(rq->streaming);
    if (!c) {
        PRE(rq->late && !rq->ended);
        rq->ended = true; /* freed by gone_late */
    } else {
        bool keep = rq->keep_alive && !rq->unframed;
        if (!rq->unframed && !rq->head_only)
            stream_write(c->stream, "0\r\n\r\n", 5);
        rq->answered = true;
        rq->streaming = false;
        conn_request_done(c, keep);
    }
    if (cb)
        cb(arg);
}

void http_abort(struct http_request *rq)
{
    if (rq->conn) {
        rq->answered = true;
        stream_abort(rq->conn->stream, "the answer could not be completed");
    } else if (!rq->late) { /* else gone_late ends it */
        gone(rq);
    }
}

static void conn_upgraded_free(void *arg)
{
    struct http_conn *c = arg;

    c->parse = http_parse_destroy(c->parse);
    buf_fini(&c->in);
    mem_free(c);
}

struct stream *http_upgrade(struct http_request *rq, const char *protocol,
                            struct slice *ret_early_bytes)
{
    struct http_conn *c = rq->conn;
    char text[256];

    if (!c)
        return NULL;
    int n = snprintf(
        text, sizeof text,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: Upgrade\r\n\r\n", protocol);
    stream_write(c->stream, text, (size_t)n);
    struct stream *st = c->stream;
    size_t early = c->in.n;
    *ret_early_bytes = slice_make(early ? arena_memdup(rq->arena, c->in.p, early) : "", early);
    /* Connection and request end here; the early bytes live until the caller returns to the
     * loop. */
    timer_stop(&c->deadline);
    list_remove(&c->link);
    http_share_set(c->server->share, HTTP_OUT, c->slot, &c->held, 0);
    c->server->stats.open--;
    c->state = CONN_CLOSING;
    c->rq = NULL;
    rq->conn = NULL;
    loop_post(rq->loop, conn_upgraded_free, c);
    loop_post(rq->loop, gone, rq);
    return st;
}
