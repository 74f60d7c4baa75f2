/* Workloads that are placed and taken back again and again without ever running wait before they
 * are placed once more, longer each time: else they would be placed as fast as the log goes, at
 * everybody's cost. Who is refused for something that it names itself (a missing Secret) waits at
 * once; whose store, target or target's zone failed it may try a few other places first. The wait
 * ends when its spec, or a Secret of its namespace, changes, and all is forgotten once it runs. Its
 * target has done nothing wrong by that and is not avoided.
 *
 * Only the leader's memory keeps this: a new leader tries each once more. */
#include "controlplane/leader/queue/held.h"

#include "controlplane/leader/context/index.h"
#include "controlplane/leader/queue/scheduler.h"
#include "controlplane/leader/queue/waiting.h"

#include <stdio.h>
#include <string.h>

#define HELD_MIN_MS 1000
#define HELD_MAX_MS 60000
#define FREE_TRIES 3 /* in a row, of who is not refused for a fault of its own */

struct held {
    struct indexed by_uid;
    struct list link;
    char uid[64], ns[64], name[256];
    int64_t generation;
    uint64_t until_ms, last_ms;
    unsigned tries; /* in a row that ended before anything of it ran */
    bool waits;
};

static struct held *held_find(const struct brain *b, const char *uid)
{
    struct indexed *e = index_find(&b->held->by_uid, uid);

    return e ? container_of(e, struct held, by_uid) : NULL;
}

static void held_free(struct brain *b, struct held *h)
{
    index_remove(&b->held->by_uid, &h->by_uid);
    list_remove(&h->link);
    mem_free(h);
}

static struct held *held_make(struct brain *b, const struct object *o)
{
    struct held *h = mem_new(struct held);

    str_copy(h->uid, sizeof h->uid, o->meta->uid);
    str_copy(h->ns, sizeof h->ns, o->meta->namespace_);
    str_copy(h->name, sizeof h->name, o->meta->name);
    h->by_uid.key = h->uid;
    index_add(&b->held->by_uid, &h->by_uid);
    list_init(&h->link);
    list_push(&b->held->all, &h->link);
    return h;
}

static void wake_arm(struct brain *b)
{
    uint64_t now = loop_now_ms(b->loop), next = UINT64_MAX;

    list_for_each (it, &b->held->all) {
        const struct held *h = container_of(it, struct held, link);
        if (h->waits && h->until_ms < next)
            next = h->until_ms;
    }
    if (next != UINT64_MAX)
        timer_start(&b->held->wake, next > now ? next - now : 0);
}

static void wake(void *arg)
{
    struct brain *b = arg;
    uint64_t now = loop_now_ms(b->loop);

    list_for_each (it, &b->held->all) {
        struct held *h = container_of(it, struct held, link);
        if (!h->waits || h->until_ms > now)
            continue;
        h->waits = false;
        const struct object *o = root_get(b->root, KIND_WORKLOAD, h->ns, h->name);
        if (o && !strcmp(o->meta->uid, h->uid) && workload_queued(o)) {
            waiting_enter(b, o);
            scheduler_want(b);
        }
    }
    wake_arm(b);
}

/* ---- how long ---- */
/* Why it came back, or NULL: it ran, or waits for want of room. */
static const struct end_row *never_ran(const struct object *o)
{
    const struct end_row *r = end_row(object_as(o, workload)->status->reason);

    return r->began == END_NEVER || r->again == AGAIN_HELD ? r : NULL;
}

static void hold(struct brain *b, struct held *h, const struct object *o, const struct end_row *why)
{
    h->generation = o->meta->generation;
    h->tries++;
    h->waits = why->again == AGAIN_HELD || h->tries > FREE_TRIES;
    if (!h->waits)
        return;
    h->last_ms = h->last_ms ? h->last_ms * 2 : HELD_MIN_MS;
    h->last_ms = h->last_ms < HELD_MAX_MS ? h->last_ms : HELD_MAX_MS;
    h->until_ms = loop_now_ms(b->loop) + h->last_ms;
    wake_arm(b);
}

bool held_back(struct brain *b, const struct object *before, const struct object *after)
{
    struct held *h = held_find(b, (after ? after : before)->meta->uid);
    bool queued = after && workload_queued(after);
    bool came = queued && !(before && workload_queued(before));

    if (h && (!after || phase_final(object_as(after, workload)->status->phase) ||
              object_as(after, workload)->status->phase == PHASE_RUNNING)) {
        held_free(b, h);
        return false;
    }
    if (came && never_ran(after)) {
        h = h ? h : held_make(b, after);
        hold(b, h, after, never_ran(after));
    } else if (h && queued && h->generation != after->meta->generation) {
        h->waits = false;
    }
    return h && h->waits && queued;
}

void held_secret(struct brain *b, const char *ns)
{
    bool any = false;

    list_for_each (it, &b->held->all) {
        struct held *h = container_of(it, struct held, link);
        if (h->waits && !strcmp(h->ns, ns)) {
            h->until_ms = 0;
            any = true;
        }
    }
    if (any)
        wake_arm(b);
}

void held_drop(struct brain *b)
{
    if (!b->held->wake.loop)
        return;
    timer_stop(&b->held->wake);
    while (!list_empty(&b->held->all))
        held_free(b, container_of(b->held->all.next, struct held, link));
}

void held_reset(struct brain *b)
{
    held_drop(b);
    list_init(&b->held->all);
    timer_init(&b->held->wake, b->loop, wake, b);
}
