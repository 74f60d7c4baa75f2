/* The runners of guest.h. */
#include "tests/support/home/guest.h"

#include "tests/support/unit.h"

#include <string.h>

#define GUEST(s) container_of(s, struct guest, base)

static int heard(const struct frame *f, void *arg)
{
    struct guest *g = arg;
    struct home_refused *why = NULL;
    AUTO_ARENA a = arena_create(0);

    g->renewals += f->type == HOME_RENEW;
    g->goes += f->type == HOME_GO;
    if (f->type == HOME_REFUSED && wire_read(home_refused, f->body, a, &why, NULL) == 0) {
        str_copy(g->refused, sizeof g->refused, why->text);
        g->over = why->over;
    }
    return 0;
}

static void guest_write(struct stream *s, const void *p, size_t n)
{
    struct err e;

    assert_int_equal(frame_feed(&GUEST(s)->reader, p, n, heard, GUEST(s), &e), 0);
}

static size_t guest_pending(const struct stream *s)
{
    (void)s;
    return 0;
}

static void guest_pause(struct stream *s, bool paused)
{
    (void)s;
    (void)paused;
}

static void guest_close(struct stream *s)
{
    GUEST(s)->here = false;
    frame_reader_fini(&GUEST(s)->reader);
}

static void guest_abort(struct stream *s, const char *why)
{
    (void)why;
    guest_close(s);
}

static void mouth_write(struct stream *s, const void *p, size_t n)
{
    struct guest *g = container_of(s, struct guest, mouth);

    g->base.ev->data(&g->base, p, n, g->base.arg);
}

int guest_comes(struct guest *g, struct loop *l, const struct home_token *t,
                const struct run_report *r, guest_taker take, void *taker)
{
    static const struct stream_ops ops = {.write = guest_write,
                                          .pending = guest_pending,
                                          .pause = guest_pause,
                                          .close = guest_close,
                                          .abort = guest_abort};
    static const struct stream_ops says = {.write = mouth_write};
    const struct home_hello h = {.token = "", .report = (struct run_report *)r, .instance = "a"};
    const struct home_arrival a = {.stream = &g->base, .token = t, .hello = &h};
    struct err e;

    *g = (struct guest){.base = {.ops = &ops, .loop = l}, .mouth = {.ops = &says}, .here = true};
    frame_reader_init(&g->reader);
    return take(taker, &a, &e);
}

void guest_beats(struct guest *g)
{
    if (g->here)
        wire_tell(&g->mouth, HOME_BEAT, 0, wire_beat, &(const struct wire_beat){.at_ms = 1});
}

void guest_tells(struct guest *g, const struct run_report *r)
{
    if (g->here)
        wire_tell(&g->mouth, HOME_REPORT, 1, run_report, r);
}

void guest_goes(struct guest *g)
{
    const struct err lost = {.code = E_CONNECT};

    if (!g->here)
        return;
    guest_close(&g->base);
    g->base.ev->closed(&g->base, &lost, g->base.arg);
}
