/* Streams over TCP and unix sockets: sending, reading and ending. TLS is beside it (stream_tls.c).
 *
 * A stream ends exactly once, by ustream_end; `closed` comes from the handle's close callback or,
 * without one, from an idle round: never from inside a call of the user. Small writes that the
 * kernel takes at once allocate nothing. */
#include "api/base/uv/uv_internal.h"
#include "api/base/net/tls.h"

#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void deliver(struct uv_stream_impl *s)
{
    struct uv_impl *im = s->im;
    static const struct err none = {0};

    list_remove(&s->link);
    list_remove(&s->todo_link);
    im->n_streams--;
    if (s->base.ev && s->base.ev->closed)
        s->base.ev->closed(&s->base, s->why ? s->why : &none, s->base.arg);
    ustream_tls_fini(s);
    mem_free(s->flight);
    buf_fini(&s->wait);
    buf_fini(&s->early);
    mem_free(s->why);
    mem_free(s);
    uv_listeners_retry(im);
}

static void on_handle_closed(uv_handle_t *h)
{
    struct uv_stream_impl *s = h->data;

    s->has_handle = false;
    if (s->state == ST_GONE)
        deliver(s);
    else
        ustream_connect_next(s);
}

void ustream_end(struct uv_stream_impl *s, const struct err *why)
{
    if (s->state == ST_GONE)
        return;
    if (!s->why && why) {
        s->why = mem_new(struct err);
        *s->why = *why;
    }
    s->state = ST_GONE;
    s->reading = false;
    timer_stop(&s->deadline);
    list_remove(&s->todo_link);
    ustream_shake_forget(s);
    ustream_resolve_forget(s);
    way_forget(s);
    if (!s->has_handle)
        ustream_todo(s);
    else if (!uv_is_closing(&s->h.handle))
        uv_close(&s->h.handle, on_handle_closed);
}

/* For connect_uv.c: the handle of a failed attempt goes; then ustream_connect_next. */
void ustream_retry(struct uv_stream_impl *s)
{
    uv_close(&s->h.handle, on_handle_closed);
}

void ustream_fail(struct uv_stream_impl *s, int code, const char *fmt, ...)
{
    char text[ERR_TEXT_MAX];
    struct err why = {0};
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)err_set(&why, code, "%s", text);
    ustream_end(s, &why);
}

static void on_deadline(void *arg)
{
    struct uv_stream_impl *s = arg;

    if (s->state == ST_CLOSING)
        ustream_end(s, NULL);
    else
        ustream_fail(s, E_TIMEOUT, "%s: %s took longer than the deadline", ustream_dialed(s),
                     s->state == ST_HANDSHAKE ? "the TLS handshake"
                     : s->state == ST_PROXY   ? "its answer"
                                              : "connecting");
}

struct uv_stream_impl *ustream_create(struct uv_impl *im, const struct stream_events *ev, void *arg)
{
    struct uv_stream_impl *s = mem_new(struct uv_stream_impl);

    s->base.ops = &uv_stream_ops;
    s->base.loop = &im->base;
    s->base.ev = ev;
    s->base.arg = arg;
    s->im = im;
    s->h.handle.data = s;
    list_init(&s->todo_link);
    list_init(&s->shake_link);
    list_push(&im->streams, &s->link);
    im->n_streams++;
    timer_init(&s->deadline, &im->base, on_deadline, s);
    buf_init(&s->wait, SIZE_MAX / 2);
    buf_init(&s->early, SIZE_MAX / 2);
    return s;
}

/* ---- sending ---- */

static void finish_closing(struct uv_stream_impl *s);
static void end_our_side(struct uv_stream_impl *s);

static size_t pending(const struct stream *base)
{
    const struct uv_stream_impl *s = STREAM_OF(base);

    return s->early.n + s->flight_n + s->wait.n;
}

static void fly(struct uv_stream_impl *s);

static void on_written(uv_write_t *req, int status)
{
    struct uv_stream_impl *s = req->data;

    mem_free(s->flight);
    s->flight = NULL;
    s->flight_n = 0;
    if (s->state == ST_GONE)
        return;
    if (status < 0) {
        ustream_fail(s, E_CONNECT, "%s: the connection was lost: %s", s->base.peer.address,
                     uv_strerror(status));
    } else if (s->wait.n) {
        s->flight = buf_steal(&s->wait, &s->flight_n);
        fly(s);
    } else if (s->state == ST_CLOSING) {
        finish_closing(s);
    } else if (s->finished) {
        end_our_side(s);
    } else if (s->state == ST_OPEN && s->base.ev && s->base.ev->drained) {
        s->base.ev->drained(&s->base, s->base.arg);
    }
}

static void fly(struct uv_stream_impl *s)
{
    size_t n = s->flight_n;
    uv_buf_t b = {.base = s->flight, .len = n};

    s->write_req.data = s;
    int rc = uv_write(&s->write_req, &s->h.stream, &b, 1, on_written);
    if (rc) {
        mem_free(s->flight);
        s->flight = NULL;
        s->flight_n = 0;
        ustream_fail(s, E_CONNECT, "%s: sending failed: %s", s->base.peer.address, uv_strerror(rc));
    }
}

void ustream_send(struct uv_stream_impl *s, const char *p, size_t n)
{
    if (s->state == ST_GONE || !n)
        return;
    if (s->flight) {
        buf_add(&s->wait, p, n);
        return;
    }
    while (n) {
        /* uv_buf_t has no const; the bytes are only read. */
        union {
            const char *c;
            char *m;
        } u = {p};
        uv_buf_t b = {.base = u.m, .len = n};
        int done = uv_try_write(&s->h.stream, &b, 1);

        if (done == UV_EAGAIN)
            break;
        if (done < 0) {
            ustream_fail(s, E_CONNECT, "%s: the connection was lost: %s", s->base.peer.address,
                         uv_strerror(done));
            return;
        }
        p += done;
        n -= (size_t)done;
    }
    if (n) {
        s->flight = memcpy(mem_alloc(n), p, n);
        s->flight_n = n;
        fly(s);
    }
}

static void write_op(struct stream *base, const void *p, size_t n)
{
    struct uv_stream_impl *s = STREAM_OF(base);

    if (s->finished)
        return;
    if (s->state < ST_OPEN)
        buf_add(&s->early, p, n);
    else if (s->state == ST_OPEN && s->ssl)
        ustream_tls_write(s, p, n);
    else if (s->state == ST_OPEN)
        ustream_send(s, p, n);
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *b)
{
    struct uv_stream_impl *s = h->data;

    (void)suggested;
    *b = (uv_buf_t){.base = s->im->raw, .len = sizeof s->im->raw};
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *b)
{
    struct uv_stream_impl *s = h->data;

    if (n == 0 || s->state == ST_GONE)
        return;
    if (n == UV_EOF) {
        ustream_peer_ended(s, !s->ssl);
    } else if (n < 0 && s->state == ST_CLOSING) {
        ustream_end(s, NULL);
    } else if (n < 0) {
        ustream_fail(s, E_CONNECT, "%s: the connection was lost: %s", ustream_dialed(s),
                     uv_strerror((int)n));
    } else if (s->state == ST_PROXY) {
        way_input(s, b->base, (size_t)n);
    } else if (s->state == ST_CLOSING) {
        /* Nobody is interested any more; it is read so that the end is not a reset. */
    } else if (s->ssl) {
        ustream_tls_input(s, b->base, (size_t)n);
    } else if (s->base.ev && s->base.ev->data) {
        s->base.ev->data(&s->base, b->base, (size_t)n, s->base.arg);
    }
}

void ustream_read(struct uv_stream_impl *s, bool on)
{
    if (s->state == ST_GONE || s->peer_ended || on == s->reading)
        return;
    s->reading = on;
    if (!on)
        (void)uv_read_stop(&s->h.stream);
    else if (uv_read_start(&s->h.stream, on_alloc, on_read))
        ustream_fail(s, E_CONNECT, "%s: the connection was lost", s->base.peer.address);
}

static void pause_op(struct stream *base, bool paused)
{
    struct uv_stream_impl *s = STREAM_OF(base);

    if (s->paused == paused)
        return;
    s->paused = paused;
    if (s->state != ST_OPEN)
        return;
    if (paused)
        ustream_read(s, false);
    else
        ustream_todo(s); /* bytes may be at hand: they must not be delivered from here */
}

/* libuv does not poll what is not read. */
static bool hung_up_op(const struct stream *base)
{
    const struct uv_stream_impl *s = container_of(base, struct uv_stream_impl, base);
    struct pollfd f = {.events = POLLRDHUP};

    return s->state == ST_OPEN && uv_fileno(&s->h.handle, &f.fd) == 0 && poll(&f, 1, 0) == 1;
}

/* ---- opening ---- */

void ustream_opened(struct uv_stream_impl *s)
{
    bool had_early = s->early.n != 0;

    s->state = ST_OPEN;
    s->opened = true;
    timer_stop(&s->deadline);
    ustream_resolve_forget(s);
    way_forget(s);
    if (had_early) {
        if (s->ssl)
            ustream_tls_write(s, s->early.p, s->early.n);
        else
            ustream_send(s, s->early.p, s->early.n);
        buf_fini(&s->early);
    }
    if (s->state != ST_OPEN)
        return;
    if (s->server)
        s->accept(s->listener, &s->base, s->accept_arg);
    else if (s->base.ev && s->base.ev->open)
        s->base.ev->open(&s->base, s->base.arg);
    if (s->state == ST_OPEN && had_early && !pending(&s->base) && s->base.ev && s->base.ev->drained)
        s->base.ev->drained(&s->base, s->base.arg);
    if (s->state == ST_OPEN && !s->paused && !s->ssl)
        ustream_read(s, true);
}

/* ---- ending ---- */

static void on_shutdown(uv_shutdown_t *req, int status)
{
    struct uv_stream_impl *s = req->data;

    if (s->state == ST_GONE)
        return;
    if (status < 0 || s->peer_ended)
        ustream_end(s, NULL);
    else if (s->state == ST_CLOSING || !s->paused)
        ustream_read(s,
                     true); /* until the peer ends its side: a reset could destroy what was sent */
}

static void end_our_side(struct uv_stream_impl *s)
{
    s->shut = true;
    s->shutdown_req.data = s;
    if (uv_shutdown(&s->shutdown_req, &s->h.stream, on_shutdown))
        ustream_end(s, NULL);
}

/* All was sent: ends our side of the connection. */
static void finish_closing(struct uv_stream_impl *s)
{
    if (s->state != ST_CLOSING)
        return;
    if (!s->shut)
        end_our_side(s);
    else if (s->finished) /* it was ended before: only the peer's is missing */
        ustream_read(s, true);
}

static void begin_closing(struct uv_stream_impl *s)
{
    s->state = ST_CLOSING;
    timer_start(&s->deadline, CLOSE_DEADLINE_MS);
    if (s->ssl)
        ustream_tls_bye(s);
    if (s->state == ST_CLOSING && !s->flight)
        finish_closing(s);
}

static void set_why(struct uv_stream_impl *s, int code, const char *text)
{
    if (s->why)
        return;
    s->why = mem_new(struct err);
    (void)err_set(s->why, code, "%s: %s", s->base.peer.address, text);
}

static void close_op(struct stream *base)
{
    struct uv_stream_impl *s = STREAM_OF(base);

    if (s->state == ST_GONE || s->state == ST_CLOSING)
        return;
    set_why(s, E_OK, "closed");
    if (s->state == ST_OPEN)
        begin_closing(s);
    else
        ustream_end(s, NULL);
}

static void finish_op(struct stream *base)
{
    struct uv_stream_impl *s = STREAM_OF(base);

    PRE(!s->tls);
    if (s->state != ST_OPEN || s->finished)
        return;
    s->finished = true;
    if (s->peer_ended)
        close_op(base);
    else if (!s->flight)
        end_our_side(s);
}

static void abort_op(struct stream *base, const char *why)
{
    struct uv_stream_impl *s = STREAM_OF(base);

    if (s->state != ST_GONE)
        ustream_fail(s, E_CANCELLED, "%s", why ? why : "aborted");
}

void ustream_peer_ended(struct uv_stream_impl *s, bool orderly)
{
    ustream_read(s, false);
    s->peer_ended = true;
    if (s->state == ST_CLOSING) {
        if (s->shut)
            ustream_end(s, NULL);
    } else if (s->state == ST_OPEN && s->finished && s->shut) {
        set_why(s, E_OK, "both sides ended the connection");
        ustream_end(s, NULL);
    } else if (s->state == ST_OPEN && !s->tls && !s->finished && s->base.ev && s->base.ev->eof) {
        s->base.ev->eof(&s->base, s->base.arg);
    } else if (s->state == ST_OPEN) {
        if (orderly)
            set_why(s, E_OK, "the peer ended the connection");
        else
            set_why(s, E_CONNECT, "the connection was cut without a TLS close");
        begin_closing(s);
    } else if (s->state == ST_PROXY) {
        ustream_fail(s, E_CONNECT, "%s: it ended the connection without an answer",
                     ustream_dialed(s));
    } else if (s->state != ST_GONE) {
        ustream_fail(s, E_CONNECT, "%s: the peer ended the connection during the handshake",
                     ustream_dialed(s));
    }
}

const struct stream_ops uv_stream_ops = {
    .write = write_op,
    .pending = pending,
    .pause = pause_op,
    .close = close_op,
    .abort = abort_op,
    .finish = finish_op,
    .hung_up = hung_up_op,
};

/* ---- idle rounds ---- */

static void todo_one(struct uv_stream_impl *s)
{
    if (s->state == ST_GONE) {
        if (!s->has_handle)
            deliver(s);
    } else if (s->state == ST_RESOLVE) {
        ustream_connect_next(s);
    } else if (s->state == ST_OPEN && !s->paused) {
        if (s->ssl)
            ustream_tls_resume(s);
        else
            ustream_read(s, true);
    }
}

void uv_todo_run(struct uv_impl *im)
{
    struct list now, *e;

    list_init(&now);
    while ((e = list_pop(&im->todo)))
        list_push(&now, e); /* what is added from here on waits for the next round */
    while ((e = list_pop(&now)))
        todo_one(container_of(e, struct uv_stream_impl, todo_link));
    ustream_tls_shakes(im);
    if (list_empty(&im->todo) && !im->n_shakes && !im->due)
        (void)uv_idle_stop(&im->idle);
}
