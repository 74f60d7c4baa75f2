/* The door: streams of runners that have not shown a token yet. Anybody can open one, so it holds
 * few, for a moment, and reads no more of each than a HELLO has. It must never let through whose
 * token does not hold. */
#include "connectors/home/home.h"

#include "api/base/list.h"
#include "api/base/log.h"

#include <string.h>

#define GUESTS_MAX 256
#define PATIENCE_MS 5000
#define HELLO_MAX_BYTES 16384
#define REFUSED_EVERY_MS 10000 /* the log hears of those without a token so often */

struct home_door {
    struct loop *loop;
    struct home_keys keys;
    struct list guests;
    unsigned n;
    uint64_t refused, refused_told_ms; /* refused: since the log was told */
    void (*arrived)(void *arg, const struct home_arrival *a);
    void *arg;
};
struct guest {
    struct list link;
    struct home_door *door;
    struct stream *stream;
    struct frame_reader reader;
    struct timer patience;
    size_t bytes;      /* that it has sent */
    struct arena *mem; /* of hello */
    struct home_hello *hello;
    bool said;
};

static const struct stream_events nobody = {0};

void home_refuse(struct stream *s, enum home_refusal r, const char *why)
{
    const struct home_refused told = {
        .text = why, .over = r != HOME_NOT_NOW, .spent = r == HOME_TOKEN_SPENT};

    stream_set(s, &nobody, NULL);
    wire_tell(s, HOME_REFUSED, 0, home_refused, &told);
    stream_close(s);
}

void home_redirect(struct stream *s, const char *leader_address)
{
    const struct wire_redirect told = {.address = leader_address};

    stream_set(s, &nobody, NULL);
    wire_tell(s, HOME_REDIRECT, 0, wire_redirect, &told);
    stream_close(s);
}

static void guest_free(struct guest *g)
{
    timer_stop(&g->patience);
    list_remove(&g->link);
    g->door->n--;
    frame_reader_fini(&g->reader);
    (void)arena_destroy(g->mem);
    mem_free(g);
}

/* It says no more to who has shown nothing than that it is refused. */
static void guest_refuse(struct guest *g, const char *why)
{
    struct home_door *d = g->door;
    struct stream *s = g->stream;
    uint64_t now = loop_now_ms(d->loop);

    d->refused++;
    if (!d->refused_told_ms || now - d->refused_told_ms >= REFUSED_EVERY_MS) {
        log_event(LOG_WARN, "runner.refused",
                  LOG_FIELDS({"address", log_str(stream_peer(s)->address)}, {"why", log_str(why)},
                             {"count", log_u64(d->refused)}));
        d->refused_told_ms = now;
        d->refused = 0;
    }
    guest_free(g);
    home_refuse(s, HOME_NOT_NOW, why);
}

static void patience_over(void *arg)
{
    guest_refuse(arg, "it has not shown a token in time");
}

static int guest_frame(const struct frame *f, void *arg)
{
    struct guest *g = arg;

    g->said = true;
    g->mem = arena_create(0);
    if (f->type != HOME_HELLO || wire_read(home_hello, f->body, g->mem, &g->hello, NULL) < 0)
        g->hello = NULL;
    return 1; /* no more is read of it before it is welcome */
}

static void guest_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct guest *g = arg;
    struct home_door *d = g->door;
    struct home_token token;
    struct err err = {0};

    g->bytes += n;
    if (g->bytes > HELLO_MAX_BYTES || frame_feed(&g->reader, p, n, guest_frame, g, &err) < 0) {
        guest_refuse(g, "what it says cannot be read");
        return;
    }
    if (!g->said)
        return;
    if (!g->hello || home_token_verify(g->hello->token, &d->keys, &token, &err) < 0) {
        guest_refuse(g, g->hello ? err.text : "what it says cannot be read");
        return;
    }
    AUTO_ARENA mem = g->mem;
    const struct home_arrival a = {.stream = s,
                                   .token = arena_memdup(mem, &token, sizeof token),
                                   .hello = g->hello,
                                   .mem = &mem};
    g->mem = NULL;
    guest_free(g);
    stream_set(s, &nobody, NULL);
    d->arrived(d->arg, &a);
}

static void guest_closed(struct stream *s, const struct err *why, void *arg)
{
    (void)s;
    (void)why;
    guest_free(arg);
}

static const struct stream_events guest_events = {.data = guest_data, .closed = guest_closed};

void home_door_enter(struct home_door *d, struct stream *s)
{
    struct guest *g = mem_new(struct guest);

    if (d->n == GUESTS_MAX) /* the oldest has had its time */
        guest_refuse(container_of(d->guests.next, struct guest, link), "too many are at the door");
    g->door = d;
    g->stream = s;
    frame_reader_init(&g->reader);
    list_push(&d->guests, &g->link);
    d->n++;
    timer_init(&g->patience, d->loop, patience_over, g);
    timer_start(&g->patience, PATIENCE_MS);
    stream_set(s, &guest_events, g);
}

struct home_door *home_door_create(struct loop *l, const struct home_keys *keys,
                                   void (*arrived)(void *arg, const struct home_arrival *a),
                                   void *arg)
{
    struct home_door *d = mem_new(struct home_door);

    d->loop = l;
    d->keys = *keys;
    d->arrived = arrived;
    d->arg = arg;
    list_init(&d->guests);
    return d;
}

struct home_door *home_door_destroy(struct home_door *d)
{
    while (d && !list_empty(&d->guests)) {
        struct guest *g = container_of(d->guests.next, struct guest, link);
        struct stream *s = g->stream;
        guest_free(g);
        stream_set(s, &nobody, NULL);
        stream_abort(s, "this member is shutting down");
    }
    mem_free(d);
    return NULL;
}
