/* A cycle over the queue: who is next, then place, hold, and look again. Priority first; among
 * equal priorities the queue that has had least for its weight (seen from the root down); in a
 * queue deadline, then submission. What does not fit lets the next one try. */
#include "policy/place/place_internal.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    struct cycle_item item;
    int64_t priority, deadline, since;
    uint32_t queue;
};
struct lane { /* items of one queue, in order */
    uint32_t queue, at, end;
    int64_t pending;
};
struct cycle {
    struct pool *p;
    double *used; /* GPU-hours, by queue */
    struct entry *entries;
    struct lane *lanes;
    uint32_t n_lanes;
};

int64_t pool_priority(const struct pool *p, const struct workload_spec *s)
{
    const struct docs *d = &p->docs[KIND_PRIORITY_CLASS];
    const struct object *o = s->priorityClassName[0] ? docs_get(d, "", s->priorityClassName) : NULL;

    for (uint32_t i = 0; !o && !s->priorityClassName[0] && i < d->n; i++) {
        if (object_as(d->v[i], priority_class)->spec->globalDefault)
            o = d->v[i];
    }
    return o ? object_as(o, priority_class)->spec->value : 0;
}

static void read_entry(const struct pool *p, struct entry *e)
{
    const struct workload *w = object_as(e->item.workload, workload);

    e->priority = pool_priority(p, w->spec);
    e->deadline = w->spec->deadline ? w->spec->deadline : INT64_MAX;
    e->since = w->status && w->status->queuedAt ? w->status->queuedAt
                                                : e->item.workload->meta->creationTimestamp;
    e->queue = pool_queue_index(p, w);
}

static int cmp_in_queue(const struct entry *a, const struct entry *b)
{
    const struct meta *x = a->item.workload->meta, *y = b->item.workload->meta;
    int c;

    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    if (a->deadline != b->deadline)
        return a->deadline < b->deadline ? -1 : 1;
    if (a->since != b->since)
        return a->since < b->since ? -1 : 1;
    c = strcmp(x->namespace_, y->namespace_);
    if (c == 0)
        c = strcmp(x->name, y->name);
    return c ? c : strcmp(x->uid, y->uid);
}

static int cmp_entry(const void *pa, const void *pb)
{
    const struct entry *a = pa, *b = pb;

    if (a->queue != b->queue)
        return a->queue < b->queue ? -1 : 1;
    return cmp_in_queue(a, b);
}

/* ---- fair share
 * ---------------------------------------------------------------------------------------------------
 */
/* What each queue and those below it have had, by place in docs[KIND_QUEUE]: summed once a cycle,
 * in the order that it was told. */
static double *use_sum(const struct pool *p, struct arena *a)
{
    double *sum = arena_array(a, double, p->n_queues + 1);

    for (size_t i = 0; i < p->n_use; i++)
        for (uint32_t q = strmap_get(&p->queue_by_name, p->use[i].queue); q != NONE;
             q = p->queue_tree.parent[q])
            sum[q] += p->use[i].gpu_hours;
    return sum;
}

/* That, and what they hold now as if for one hour more. */
static double share_of(const struct cycle *c, uint32_t queue)
{
    const struct pool *p = c->p;
    double weight = object_as(p->docs[KIND_QUEUE].v[queue], queue)->spec->weight;
    double had = c->used[queue] + (double)*queue_cell(p, queue, p->n_account_classes) / 1000;

    return had / (weight > 0 ? weight : 1e-9);
}

static uint32_t depth_of(const struct pool *p, uint32_t queue)
{
    uint32_t n = 0;

    for (; queue != NONE; queue = p->queue_tree.parent[queue])
        n++;
    return n;
}

/* Compares the two branches below the nearest queue that both are in. Work outside of any queue
 * goes last. */
static int cmp_share(const struct cycle *c, uint32_t a, uint32_t b)
{
    const struct pool *p = c->p;
    uint32_t da = depth_of(p, a), db = depth_of(p, b);
    double x, y;

    if (a == b)
        return 0;
    if (a == NONE || b == NONE)
        return a == NONE ? 1 : -1;
    for (; da > db && p->queue_tree.parent[a] != b; da--)
        a = p->queue_tree.parent[a];
    for (; db > da && p->queue_tree.parent[b] != a; db--)
        b = p->queue_tree.parent[b];
    while (p->queue_tree.parent[a] != p->queue_tree.parent[b] && p->queue_tree.parent[a] != b &&
           p->queue_tree.parent[b] != a) {
        a = p->queue_tree.parent[a];
        b = p->queue_tree.parent[b];
    }
    x = share_of(c, a);
    y = share_of(c, b);
    return (x > y) - (x < y);
}

static struct lane *next_lane(const struct cycle *c)
{
    struct lane *best = NULL;

    for (uint32_t i = 0; i < c->n_lanes; i++) {
        struct lane *l = &c->lanes[i];
        const struct entry *e = &c->entries[l->at], *b;
        int order;

        if (l->at == l->end)
            continue;
        if (!best) {
            best = l;
            continue;
        }
        b = &c->entries[best->at];
        if (e->priority != b->priority)
            order = e->priority > b->priority ? -1 : 1;
        else if ((order = cmp_share(c, l->queue, best->queue)) == 0)
            order = cmp_in_queue(e, b);
        if (order < 0)
            best = l;
    }
    return best;
}

static void lanes_make(struct cycle *c, size_t n, struct arena *a)
{
    c->lanes = arena_array(a, struct lane, n);
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || c->entries[i].queue != c->entries[i - 1].queue)
            c->lanes[c->n_lanes++] = (struct lane){c->entries[i].queue, i, i, 0};
        c->lanes[c->n_lanes - 1].end = i + 1;
    }
}

static int place_item(struct pool *p, struct cycle_item *it, const struct place_request *rq,
                      struct arena *a, struct err *err)
{
    int r = policy_place(p, rq, a, &it->decision, &it->placement, err);

    if (r == 0 && it->placement)
        pool_hold_placement(p, it->workload, it->placement);
    return r;
}

int policy_cycle(struct pool *p, struct cycle_item *items, size_t n, int64_t now_ms, uint64_t seed,
                 int64_t log_index, const char *revision, size_t max_placed, struct arena *a,
                 struct err *err)
{
    struct cycle c = {.p = pool_settle(p), .entries = arena_array(a, struct entry, n)};
    size_t placed = 0;
    int r = 0;

    c.used = use_sum(c.p, a);
    for (size_t i = 0; i < n; i++) {
        c.entries[i].item = items[i];
        c.entries[i].item.decision = NULL;
        c.entries[i].item.placement = NULL;
        read_entry(p, &c.entries[i]);
    }
    if (n > 1)
        qsort(c.entries, n, sizeof(*c.entries), cmp_entry);
    lanes_make(&c, n, a);
    for (size_t i = 0; i < n; i++) {
        struct lane *l = next_lane(&c);

        items[i] = c.entries[l->at++].item;
        items[i].position = ++l->pending;
        if (r == 0 && (max_placed == 0 || placed < max_placed)) {
            struct place_request rq = {.workload = items[i].workload,
                                       .now_ms = now_ms,
                                       .seed = seed,
                                       .log_index = log_index,
                                       .revision = revision,
                                       .queue_position = items[i].position};

            r = place_item(p, &items[i], &rq, a, err);
        }
        if (items[i].placement) {
            l->pending--;
            placed++;
        }
    }
    return r;
}
