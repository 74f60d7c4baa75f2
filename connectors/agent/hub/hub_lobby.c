/* The lobby: this hub hears agents first that it turns away because it has no such Target. Their
 * HELLO says how far the state had come that they served, and this hub's may be an older copy of
 * it. The lobby must hold an agent no longer than that takes, and accept none. */
#include "connectors/agent/hub/hub_internal.h"

#include <stdio.h>
#include <string.h>

#define GUESTS_MAX 256
#define PATIENCE_MS 5000

struct connector_lobby {
    struct loop *loop;
    struct list guests;
    unsigned n;
    lobby_heard heard;
    void *arg;
};
struct guest {
    struct list link;
    struct connector_lobby *lobby;
    struct stream *stream;
    struct frame_reader reader;
    struct timer patience;
    struct arena *mem; /* of hello */
    struct wire_hello *hello;
    bool said; /* something */
    char target[256], why[400];
};

static void guest_free(struct guest *g)
{
    timer_stop(&g->patience);
    list_remove(&g->link);
    g->lobby->n--;
    frame_reader_fini(&g->reader);
    (void)arena_destroy(g->mem);
    mem_free(g);
}

static void guest_leave(struct guest *g)
{
    connector_agent_refuse(g->stream, g->why);
    guest_free(g);
}

static void patience_over(void *arg)
{
    guest_leave(arg);
}

static int guest_frame(const struct frame *f, void *arg)
{
    struct guest *g = arg;

    g->said = true;
    g->mem = arena_create(0);
    if (f->type != AF_HELLO || wire_read(wire_hello, f->body, g->mem, &g->hello, NULL) < 0)
        g->hello = NULL; /* it says nothing */
    return 1;            /* and no more is read of it */
}

static void guest_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct guest *g = arg;
    struct connector_lobby *y = g->lobby;
    const struct wire_hello *hello;
    char target[256];

    (void)s;
    if (frame_feed(&g->reader, p, n, guest_frame, g, NULL) < 0) {
        guest_leave(g);
        return;
    }
    if (!g->said)
        return;
    AUTO_ARENA mem = g->mem;
    hello = g->hello;
    g->mem = NULL;
    str_copy(target, sizeof target, g->target);
    guest_leave(g);
    if (hello && strcmp(hello->target, target) == 0) { /* as of one that is taken */
        y->heard(y->arg, target, hello->heard_cluster, hello->heard_rv, hello->heard_time_ms);
        y->heard(y->arg, target, hello->cluster, 0, 0);
    }
}

static void guest_closed(struct stream *s, const struct err *why, void *arg)
{
    (void)s;
    (void)why;
    guest_free(arg);
}

static const struct stream_events guest_events = {.data = guest_data, .closed = guest_closed};

void connector_lobby_enter(struct connector_lobby *y, struct stream *s, const char *target,
                           const char *why)
{
    struct guest *g = mem_new(struct guest);

    if (y->n == GUESTS_MAX) /* the oldest has had its time */
        guest_leave(container_of(y->guests.next, struct guest, link));
    g->lobby = y;
    g->stream = s;
    str_copy(g->target, sizeof g->target, target);
    str_copy(g->why, sizeof g->why, why);
    frame_reader_init(&g->reader);
    list_push(&y->guests, &g->link);
    y->n++;
    timer_init(&g->patience, y->loop, patience_over, g);
    timer_start(&g->patience, PATIENCE_MS);
    stream_set(s, &guest_events, g);
}

struct connector_lobby *connector_lobby_create(struct loop *l, lobby_heard heard, void *arg)
{
    struct connector_lobby *y = mem_new(struct connector_lobby);

    y->loop = l;
    y->heard = heard;
    y->arg = arg;
    list_init(&y->guests);
    return y;
}

struct connector_lobby *connector_lobby_destroy(struct connector_lobby *y)
{
    while (y && !list_empty(&y->guests))
        guest_leave(container_of(y->guests.next, struct guest, link));
    mem_free(y);
    return NULL;
}
