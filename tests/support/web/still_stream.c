/* The one connection of still_stream.h. */
#include "tests/support/web/still_stream.h"

#include <string.h>

struct still_stream still_stream;
#define S still_stream

static void on_opening(void *arg)
{
    (void)arg;
    S.open = true;
    S.base.ev->open(&S.base, S.base.arg);
}

static void on_closing(void *arg)
{
    struct err why = S.why;

    (void)arg;
    S.dialed = S.open = false;
    timer_stop(&S.opening);
    S.base.ev->closed(&S.base, &why, S.base.arg);
}

static void ours_write(struct stream *s, const void *p, size_t n)
{
    (void)s;
    if (n)
        buf_add(&S.sent, p, n);
}

static size_t ours_pending(const struct stream *s)
{
    (void)s;
    return S.pending;
}

static void ours_pause(struct stream *s, bool paused)
{
    (void)s;
    S.paused = paused;
}

static void ours_close(struct stream *s)
{
    (void)s;
    S.ended = true;
    timer_start(&S.closing, 1);
}

static void ours_abort(struct stream *s, const char *why)
{
    (void)err_set(&S.why, E_CANCELLED, "%s", why);
    ours_close(s);
}

static int ours_connect(struct loop *l, const char *address, const struct tls_config *tls,
                        const char *alpn, uint64_t deadline_ms, const struct stream_events *ev,
                        void *arg, struct stream **ret, struct err *err)
{
    static const struct stream_ops ops = {.write = ours_write,
                                          .pending = ours_pending,
                                          .pause = ours_pause,
                                          .close = ours_close,
                                          .abort = ours_abort};

    (void)tls;
    (void)alpn;
    (void)deadline_ms;
    (void)err;
    INV(!S.dialed);
    S.base = (struct stream){.ops = &ops, .loop = l, .ev = ev, .arg = arg};
    str_copy(S.address, sizeof S.address, address);
    S.dialed = true;
    S.open = S.paused = S.ended = false;
    S.n_dialed++;
    S.pending = 0;
    S.why = (struct err){0};
    buf_reset(&S.sent);
    timer_init(&S.opening, l, on_opening, NULL);
    timer_init(&S.closing, l, on_closing, NULL);
    if (S.opens)
        timer_start(&S.opening, 1);
    *ret = &S.base;
    return 0;
}

void still_stream_begin(struct loop *l)
{
    S = (struct still_stream){.before = l->ops, .ops = *l->ops, .opens = true};
    S.ops.connect = ours_connect;
    l->ops = &S.ops;
    buf_init(&S.sent, 16u << 20);
}

void still_stream_end(struct loop *l)
{
    INV(!S.dialed); /* nobody has forgotten it */
    l->ops = S.before;
    buf_fini(&S.sent);
}

void still_stream_say(const void *p, size_t n)
{
    INV(S.open);
    if (!S.ended)
        S.base.ev->data(&S.base, p, n, S.base.arg);
}

void still_stream_lose(const char *why)
{
    if (why)
        (void)err_set(&S.why, E_CONNECT, "%s", why);
    timer_start(&S.closing, 0);
}
