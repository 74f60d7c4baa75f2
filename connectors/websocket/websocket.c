/* One connection: TCP, TLS, the opening handshake, frames, the closing one. Whatever ends it is
 * told once; who has closed it hears nothing more, and it goes once its stream has. */
#include "connectors/websocket/websocket_internal.h"

#include "api/base/net/proxy.h"
#include "api/base/net/tls.h"
#include "api/base/net/url.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define PING_MS 25000                /* what lies between keeps the connection for so long */
#define PONGS_MAX ((size_t)64 << 10) /* not yet taken by the other side */
#define REQUEST_MAX ((size_t)128 << 10)

struct websocket {
    struct loop *loop;
    struct stream *stream;             /* NULL: it is gone */
    const struct websocket_events *ev; /* NULL: nobody hears of it any more */
    void *arg;
    char who[300];
    struct buf request; /* until it has left; a secret */
    struct websocket_asked asked;
    char protocols[200];
    struct buf in; /* the answer as far as it came */
    struct websocket_answered answered;
    struct websocket_reader reader;
    bool open, head, closing; /* head: of an answer that refuses it; closing: we have said so */
    struct err why;           /* what ended it; code 0: nothing yet */
    bool rightly;             /* the other side closed it, and all is well */
    struct timer ping, deadline;
};

static void free_it(struct websocket *w)
{
    timer_stop(&w->ping);
    timer_stop(&w->deadline);
    OPENSSL_cleanse(w->request.p, w->request.n);
    buf_fini(&w->request);
    buf_fini(&w->in);
    mem_free(w);
}

/* ---- frames that leave ---- */
static void frame_write(struct websocket *w, uint8_t opcode, const void *head, size_t n_head,
                        const void *p, size_t n)
{
    unsigned char mask[4], h[WEBSOCKET_HEAD_MAX];
    AUTO_BUF b;

    loop_random(w->loop, mask, sizeof mask);
    buf_init(&b, WEBSOCKET_HEAD_MAX + n_head + n);
    unsigned h_n = websocket_head(opcode, n_head + n, mask, h);
    buf_add(&b, h, h_n);
    if (n_head)
        buf_add(&b, head, n_head);
    if (n)
        buf_add(&b, p, n);
    INV(!b.failed);
    websocket_mask((unsigned char *)b.p + h_n, n_head + n, mask, 0);
    stream_write(w->stream, b.p, b.n);
}

static void closing_say(struct websocket *w, unsigned code)
{
    const unsigned char b[2] = {(unsigned char)(code >> 8), (unsigned char)code};

    if (w->open && !w->closing && w->stream)
        frame_write(w, WEBSOCKET_CLOSE, b, sizeof b, NULL, 0);
    w->closing = true;
}

static void fail(struct websocket *w, const struct err *why)
{
    if (!w->why.code && !w->rightly)
        w->why = *why;
    closing_say(w, why->code == E_SYNTAX ? 1002 : 1001);
    if (w->stream)
        stream_close(w->stream);
}

/* ---- the answer ---- */
static bool body_whole(const struct websocket *w)
{
    static const char last[] = "0\r\n\r\n"; /* the chunk that ends it */
    size_t n = w->in.n - w->answered.n, last_n = sizeof last - 1;

    if (n >= WEBSOCKET_REFUSAL_MAX)
        return true;
    if (w->answered.chunked)
        return n >= last_n && memcmp(w->in.p + w->in.n - last_n, last, last_n) == 0;
    return w->answered.length >= 0 && (int64_t)n >= w->answered.length;
}

static void refused(struct websocket *w)
{
    struct err err;

    (void)err_set(&err, E_CONNECT, "it answered %d", w->answered.status);
    fail(w, &err);
}

static void opened(struct websocket *w)
{
    w->open = true;
    timer_stop(&w->deadline);
    timer_start(&w->ping, PING_MS);
    if (w->ev)
        w->ev->open(w->arg, w->answered.protocol);
}

static void frames_came(struct websocket *w, const char *p, size_t n);

static void answer_came(struct websocket *w)
{
    struct err err;
    int rc = 1;

    if (!w->head) {
        buf_char(&w->in, '\0'); /* for who reads it as text */
        w->in.n--;
        rc = websocket_answer(&w->asked, w->in.p, w->in.n, &w->answered, &err);
    }
    if (rc < 0) {
        fail(w, &err);
    } else if (rc > 0 && w->answered.status != 101) {
        w->head = true;
        if (body_whole(w))
            refused(w);
    } else if (rc > 0) {
        opened(w);
        frames_came(w, w->in.p + w->answered.n, w->in.n - w->answered.n);
    }
}

/* ---- frames that come ---- */
static void close_came(struct websocket *w, const struct websocket_frame *f)
{
    const unsigned char *b = f->p;
    unsigned code = f->n >= 2 ? (unsigned)b[0] << 8 | b[1] : 1005;
    struct err err;

    if (f->n == 1) {
        (void)err_set(&err, E_SYNTAX, "it closed the connection with half a status");
        fail(w, &err);
        return;
    }
    if (code == 1000 || !f->n) {
        w->rightly = true;
        closing_say(w, 1000);
        stream_close(w->stream);
        return;
    }
    (void)err_set(&err, E_CONNECT, "it closed the connection (%u)%s%.*s", code,
                  f->n > 2 ? ": " : "", f->n > 2 ? (int)f->n - 2 : 0,
                  f->n > 2 ? (const char *)b + 2 : "");
    for (char *s = err.text; *s; s++)
        if ((unsigned char)*s < ' ' || (unsigned char)*s > '~')
            *s = '?';
    fail(w, &err);
}

static void frame_came(struct websocket *w, const struct websocket_frame *f)
{
    if (f->opcode == WEBSOCKET_PING) { /* who reads none of them gets no more */
        if (stream_pending(w->stream) < PONGS_MAX)
            frame_write(w, WEBSOCKET_PONG, NULL, 0, f->p, f->n);
    } else if (f->opcode == WEBSOCKET_CLOSE)
        close_came(w, f);
    else if (f->opcode == WEBSOCKET_BINARY && w->ev)
        w->ev->data(w->arg, f->p, f->n, f->first, f->last);
}

static bool is_over(const struct websocket *w)
{
    return w->why.code || w->rightly || !w->ev || !w->stream;
}

static void frames_came(struct websocket *w, const char *p, size_t n)
{
    struct websocket_frame f;
    struct err err;
    size_t taken = 0;

    while (!is_over(w)) {
        int rc = websocket_read(&w->reader, p, n, &taken, &f, &err);
        if (rc < 0)
            fail(w, &err);
        if (rc <= 0)
            return;
        p += taken;
        n -= taken;
        frame_came(w, &f);
    }
}

/* ---- the stream ---- */
static void on_open(struct stream *s, void *arg)
{
    struct websocket *w = arg;

    stream_write(s, w->request.p, w->request.n);
    OPENSSL_cleanse(w->request.p, w->request.n);
    buf_reset(&w->request);
}

static void on_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct websocket *w = arg;

    (void)s;
    if (is_over(w))
        return;
    if (w->open) {
        frames_came(w, p, n);
        return;
    }
    buf_add(&w->in, p, n);
    if (!w->in.failed) {
        answer_came(w);
    } else if (w->head) {
        refused(w);
    } else {
        struct err err;
        (void)err_set(&err, E_CONNECT, "its answer is larger than %d bytes", WEBSOCKET_REFUSAL_MAX);
        fail(w, &err);
    }
}

static void on_closed(struct stream *s, const struct err *why, void *arg)
{
    struct websocket *w = arg;
    struct websocket_end end = {.err = w->why};

    (void)s;
    w->stream = NULL;
    if (!w->why.code && !w->rightly)
        (void)err_set(&end.err, why->code ? why->code : E_CONNECT, "%s",
                      why->code ? why->text : "it closed the connection without a word");
    if (w->head) {
        end.status = w->answered.status;
        end.body = slice_make(w->in.p + w->answered.n, w->in.n - w->answered.n);
    }
    if (end.err.code)
        (void)err_prefix(&end.err, "%.250s", w->who);
    if (w->ev)
        w->ev->closed(w->arg, &end);
    free_it(w);
}

static void on_ping(void *arg)
{
    struct websocket *w = arg;

    if (w->stream && !w->closing) {
        frame_write(w, WEBSOCKET_PING, NULL, 0, NULL, 0);
        timer_start(&w->ping, PING_MS);
    }
}

static void on_deadline(void *arg)
{
    struct websocket *w = arg;

    if (!w->why.code)
        (void)err_set(&w->why, E_TIMEOUT, "it did not open it in time");
    if (w->stream)
        stream_abort(w->stream, w->why.text);
}

static const struct stream_events events = {.open = on_open, .data = on_data, .closed = on_closed};

/* ---- asking ---- */
static const char *or_empty(const char *s)
{
    return s ? s : "";
}

static void request_make(struct websocket *w, const struct websocket_config *g, const struct url *u)
{
    const char *host = g->url + (u->tls ? 8 : 7);
    struct buf *b = &w->request;

    buf_printf(b, "GET %.*s%s HTTP/1.1\r\nHost: %.*s\r\n", u->path_n, g->url + u->origin_n, g->path,
               u->origin_n - (u->tls ? 8 : 7), host);
    buf_printf(b,
               "User-Agent: hanse/" HANSE_VERSION "\r\nUpgrade: websocket\r\n"
               "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n"
               "Sec-WebSocket-Protocol: %s\r\n",
               w->asked.key, g->protocols);
    if (*or_empty(g->token))
        buf_printf(b, "Authorization: Bearer %s\r\n", g->token);
    buf_str(b, "\r\n");
}

static void address_of(const struct websocket_config *g, const struct url *u, char ret[300])
{
    int skip = u->tls ? 8 : 7;
    const char *host = g->url + skip, *bracket = memchr(host, ']', (size_t)(u->origin_n - skip));
    const char *colon = strchr(bracket ? bracket : host, ':');
    bool port = colon && colon < g->url + u->origin_n;

    (void)snprintf(ret, 300, "%.*s%s", u->origin_n - skip, host,
                   port     ? ""
                   : u->tls ? ":443"
                            : ":80");
}

static int dial(struct websocket *w, const struct websocket_config *g, const struct url *u,
                struct err *err)
{
    const struct tls_config_spec spec = {
        .cert_pem = *or_empty(g->cert_pem) ? g->cert_pem : NULL,
        .key_pem = *or_empty(g->key_pem) ? g->key_pem : NULL,
        .ca_pem = *or_empty(g->ca_pem) ? g->ca_pem : NULL,
    };
    struct tls_config *tls = NULL;
    struct proxy proxy;
    char address[300];
    int rc = u->tls ? tls_config_create(&spec, false, &tls, err) : 0;
    int via = rc < 0                                ? rc
              : w->loop->ops->connect_via && u->tls ? proxy_environment(&proxy, err)
                                                    : 0;

    address_of(g, u, address);
    if (via == 1)
        rc = stream_connect_via(w->loop, &proxy, address, tls, u->tls ? ALPN_HTTP : NULL,
                                g->deadline_ms, &events, w, &w->stream, err);
    else if (via == 0)
        rc = stream_connect(w->loop, address, tls, u->tls ? ALPN_HTTP : NULL, g->deadline_ms,
                            &events, w, &w->stream, err);
    else
        rc = via;
    if (via == 1)
        proxy_wipe(&proxy);
    (void)tls_config_unref(tls);
    return rc;
}

/* A path with a line end in it would be a header of its own. */
static int config_check(const struct websocket_config *g, struct url *ret, struct err *err)
{
    int rc = url_parse(g->url, ret, err);

    for (const char *s = g->path; rc == 0 && *s; s++)
        if (*s <= ' ' || *s > '~')
            rc = err_set(err, E_INVALID, "a path with letters that no request takes");
    for (const char *s = or_empty(g->token); rc == 0 && *s; s++)
        if (*s <= ' ' || *s > '~')
            rc = err_set(err, E_INVALID, "a token with letters that no header takes");
    return rc == 0 && !ret->tls && !ret->loopback
               ? err_set(err, E_INVALID, "http:// is taken for this machine alone")
               : rc;
}

int websocket_create(struct loop *l, const struct websocket_config *g,
                     const struct websocket_events *ev, void *arg, struct websocket **ret,
                     struct err *err)
{
    struct websocket *w;
    unsigned char random[16];
    struct url u;
    uint64_t now = loop_now_ms(l);
    int rc = config_check(g, &u, err);

    if (rc < 0)
        return rc;
    w = mem_new(struct websocket);
    w->loop = l;
    w->ev = ev;
    w->arg = arg;
    str_copy(w->who, sizeof w->who, g->who);
    str_copy(w->protocols, sizeof w->protocols, g->protocols);
    w->asked.protocols = w->protocols;
    loop_random(l, random, sizeof random);
    websocket_key_make(random, w->asked.key);
    buf_init(&w->request, REQUEST_MAX);
    buf_init(&w->in, WEBSOCKET_ANSWER_MAX + WEBSOCKET_REFUSAL_MAX + 1);
    timer_init(&w->ping, l, on_ping, w);
    timer_init(&w->deadline, l, on_deadline, w);
    request_make(w, g, &u);
    rc = w->request.failed ? err_set(err, E_TOOLARGE, "%.250s: the request is too large", w->who)
                           : dial(w, g, &u, err);
    if (rc < 0) {
        free_it(w);
        return rc;
    }
    timer_start(&w->deadline, g->deadline_ms > now ? g->deadline_ms - now : 0);
    *ret = w;
    return 0;
}

/* ---- the owner's ---- */
void websocket_send(struct websocket *w, const void *head, size_t n_head, const void *p, size_t n)
{
    PRE(w->open);
    if (w->stream && !w->closing)
        frame_write(w, WEBSOCKET_BINARY, head, n_head, p, n);
}

size_t websocket_pending(const struct websocket *w)
{
    return w->stream ? stream_pending(w->stream) : 0;
}

void websocket_pause(struct websocket *w, bool paused)
{
    if (w->stream && !w->closing)
        stream_pause(w->stream, paused);
}

void websocket_close(struct websocket *w)
{
    w->ev = NULL;
    timer_stop(&w->ping);
    closing_say(w, 1000);
    if (!w->stream) /* its end is being told */
        return;
    if (w->open)
        stream_close(w->stream);
    else
        stream_abort(w->stream, "nobody waits for it any more");
}
