/* Whose turn is it? Many lanes, each of workloads in one order; the next is found among their
 * heads: priority first; among equal priorities those whose room was kept in the cycle before, then
 * the queue that has had least for its weight, seen from the root down; in a queue deadline, then
 * submission. A heap for each queue, over its own
 * lanes and the queues below it: who has had a turn changes one path to the root, so that a hundred
 * thousand turns of a thousand queues cost no more than the sorting of them.
 *
 * What it knows of queues, priorities and shares is the pool's: where that has changed otherwise
 * than by the turns themselves, the heaps are made anew from the heads. */
#include "policy/place/place_internal.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

struct lane {
    const struct object *head; /* borrowed; NULL: nobody any more */
    int64_t priority;
    uint32_t kept;         /* rank of its head among those whose room was kept; NONE */
    uint32_t queue, place; /* NONE: in no queue; where its queue's turns are counted */
};
struct heap {
    uint32_t *v, n; /* of candidates: the best is the first */
};
struct turns {
    struct pool *p;
    struct lane *lanes;
    uint32_t n_lanes, cap_lanes;
    /* By queue: turns taken that still wait. Names that the pool lets go of count on. */
    struct strmap place_of;
    int64_t *waiting;
    uint32_t n_places, cap_places;
    struct arena *names;
    /* From here on made anew. Nodes: a queue with all below it, then (n + 1 later) its own lanes
     * alone; the root is queue n. Candidates: lanes, then nodes. */
    struct arena *a;
    uint64_t at;  /* the pool's changes that all of it goes by; 0 = none */
    double *used; /* GPU-hours, by queue */
    struct heap *nodes;
    uint32_t *at_place; /* of a candidate in its heap */
    uint32_t n;         /* queues */
    struct shadows shadows;
};

struct shadows *turns_shadows(struct turns *t)
{
    return &t->shadows;
}

/* ---- one lane's order ---- */
static int64_t waits_since(const struct object *o)
{
    const struct workload_status *s = object_as(o, workload)->status;

    return s && s->queuedAt ? s->queuedAt : o->meta->creationTimestamp;
}

static int64_t deadline_of(const struct object *o)
{
    int64_t t = object_as(o, workload)->spec->deadline;

    return t ? t : INT64_MAX;
}

static int cmp_i64(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int cmp_in_lane(const struct object *a, const struct object *b)
{
    int c = cmp_i64(deadline_of(a), deadline_of(b));

    if (c == 0)
        c = cmp_i64(waits_since(a), waits_since(b));
    if (c == 0)
        c = strcmp(a->meta->namespace_, b->meta->namespace_);
    if (c == 0)
        c = strcmp(a->meta->name, b->meta->name);
    return c ? c : strcmp(a->meta->uid, b->meta->uid);
}

static int cmp_lanes(const struct object *a, const struct object *b)
{
    const struct workload_spec *x = object_as(a, workload)->spec, *y = object_as(b, workload)->spec;
    int c = strcmp(x->queue, y->queue);

    if (c == 0 && !*x->queue)
        c = strcmp(a->meta->namespace_, b->meta->namespace_);
    return c ? c : strcmp(x->priorityClassName, y->priorityClassName);
}

int wait_cmp(const void *pa, const void *pb)
{
    const struct object *a = ((const struct cycle_item *)pa)->workload,
                        *b = ((const struct cycle_item *)pb)->workload;
    int c = cmp_lanes(a, b);

    return c ? c : cmp_in_lane(a, b);
}

bool wait_same_lane(const struct object *a, const struct object *b)
{
    return cmp_lanes(a, b) == 0;
}

static void key_text(struct wait_key *k, const char *s)
{
    size_t n = strlen(s) + 1, room = sizeof(k->p) - k->n;

    n = n < room ? n : room;
    memcpy(k->p + k->n, s, n);
    k->n += n;
}

static void key_number(struct wait_key *k, int64_t v)
{
    uint64_t u = (uint64_t)v ^ 1ull << 63; /* so that bytes compare as numbers do */

    for (int shift = 56; shift >= 0 && k->n < sizeof(k->p); shift -= 8)
        k->p[k->n++] = (unsigned char)(u >> shift);
}

void policy_wait_key(const struct object *workload, struct wait_key *ret)
{
    const struct workload_spec *s = object_as(workload, workload)->spec;

    ret->n = 0;
    key_text(ret, s->queue);
    if (!*s->queue)
        key_text(ret, workload->meta->namespace_);
    key_text(ret, s->priorityClassName);
    ret->lane = ret->n;
    key_number(ret, deadline_of(workload));
    key_number(ret, waits_since(workload));
    key_text(ret, workload->meta->namespace_);
    key_text(ret, workload->meta->name);
    key_text(ret, workload->meta->uid);
}

/* ---- fair share ---- */
/* What each queue and those below it have had, by place in docs[KIND_QUEUE], in the order that it
 * was told. */
static double *use_sum(const struct pool *p, struct arena *a)
{
    double *sum = arena_array(a, double, p->n_queues + 1);

    for (size_t i = 0; i < p->n_use; i++)
        for (uint32_t q = strmap_get(&p->queue_by_name, p->use[i].queue); q != NONE;
             q = p->queue_tree.parent[q])
            sum[q] += p->use[i].gpu_hours;
    return sum;
}

/* That, and what they hold now as if for one hour more. Work outside of any queue goes last. */
static double share_of(const struct turns *t, uint32_t queue)
{
    const struct pool *p = t->p;
    double weight, had;

    if (queue == t->n)
        return DBL_MAX;
    weight = object_as(p->docs[KIND_QUEUE].v[queue], queue)->spec->weight;
    had = t->used[queue] + (double)*queue_cell(p, queue, p->n_account_classes) / 1000;
    return had / (weight > 0 ? weight : 1e-9);
}

/* ---- heaps ---- */
static uint32_t own_node(const struct turns *t, uint32_t queue)
{
    return t->n + 1 + queue;
}

static const struct lane *best_lane(const struct turns *t, uint32_t candidate)
{
    while (candidate >= t->n_lanes)
        candidate = t->nodes[candidate - t->n_lanes].v[0];
    return &t->lanes[candidate];
}

static bool goes_before(const struct turns *t, uint32_t a, uint32_t b)
{
    const struct lane *x = best_lane(t, a), *y = best_lane(t, b);
    double sx, sy;

    if (x->priority != y->priority)
        return x->priority > y->priority;
    if (x->kept != y->kept)
        return x->kept < y->kept;
    if (a >= t->n_lanes && b >= t->n_lanes) {
        sx = share_of(t, (a - t->n_lanes) % (t->n + 1));
        sy = share_of(t, (b - t->n_lanes) % (t->n + 1));
        if (sx != sy)
            return sx < sy;
    }
    return cmp_in_lane(x->head, y->head) < 0;
}

static void heap_set(struct turns *t, struct heap *h, uint32_t at, uint32_t candidate)
{
    h->v[at] = candidate;
    t->at_place[candidate] = at;
}

static void heap_down(struct turns *t, struct heap *h, uint32_t at)
{
    uint32_t c = h->v[at];

    for (uint32_t i = 2 * at + 1; i < h->n; i = 2 * at + 1) {
        if (i + 1 < h->n && goes_before(t, h->v[i + 1], h->v[i]))
            i++;
        if (!goes_before(t, h->v[i], c))
            break;
        heap_set(t, h, at, h->v[i]);
        at = i;
    }
    heap_set(t, h, at, c);
}

static void heap_remove(struct turns *t, struct heap *h, uint32_t at)
{
    uint32_t last = h->v[--h->n];

    if (at == h->n)
        return;
    heap_set(t, h, at, last);
    while (at > 0 && goes_before(t, last, h->v[(at - 1) / 2])) {
        heap_set(t, h, at, h->v[(at - 1) / 2]);
        at = (at - 1) / 2;
        heap_set(t, h, at, last);
    }
    heap_down(t, h, at);
}

static void heap_make(struct turns *t, struct heap *h)
{
    for (uint32_t i = h->n / 2; i-- > 0;)
        heap_down(t, h, i);
}

/* ---- made anew ---- */
static uint32_t place_of(struct turns *t, uint32_t queue)
{
    const char *name = queue == NONE ? "" : t->p->docs[KIND_QUEUE].v[queue]->meta->name;
    uint32_t i = strmap_get(&t->place_of, name);

    if (i != NONE)
        return i;
    if (t->n_places == t->cap_places) {
        t->cap_places = t->cap_places ? t->cap_places * 2 : 64;
        t->waiting = mem_realloc(t->waiting, sizeof(*t->waiting) * t->cap_places);
    }
    t->waiting[t->n_places] = 0;
    strmap_set(&t->place_of, arena_strdup(t->names, name), t->n_places);
    return t->n_places++;
}

/* Room in every heap for what may come into it. */
static void nodes_make(struct turns *t)
{
    const struct queue_tree *tree = &t->p->queue_tree;
    uint32_t nodes = 2 * (t->n + 1), *room = arena_array(t->a, uint32_t, nodes), *v;
    size_t all = 0;

    t->nodes = arena_array(t->a, struct heap, nodes);
    t->at_place = arena_array(t->a, uint32_t, (size_t)t->n_lanes + nodes);
    for (uint32_t i = 0; i < t->n_lanes; i++)
        room[own_node(t, t->lanes[i].queue == NONE ? t->n : t->lanes[i].queue)]++;
    for (uint32_t q = 0; q <= t->n; q++)
        room[q] = 1;
    for (uint32_t q = 0; q < t->n; q++)
        room[tree->parent[q] == NONE ? t->n : tree->parent[q]]++;
    for (uint32_t i = 0; i < nodes; i++)
        all += room[i];
    v = arena_array(t->a, uint32_t, all);
    for (uint32_t i = 0; i < nodes; v += room[i++])
        t->nodes[i].v = v;
}

static void node_close(struct turns *t, uint32_t queue)
{
    struct heap *own = &t->nodes[own_node(t, queue)], *with = &t->nodes[queue];

    heap_make(t, own);
    if (own->n) {
        heap_set(t, with, with->n, t->n_lanes + own_node(t, queue));
        with->n++;
    }
    heap_make(t, with);
}

static void turns_renew(struct turns *t)
{
    const struct queue_tree *tree = &pool_settle(t->p)->queue_tree;

    t->n = t->p->n_queues;
    arena_reset(t->a);
    t->used = use_sum(t->p, t->a);
    for (uint32_t i = 0; i < t->n_lanes; i++) {
        struct lane *l = &t->lanes[i];

        l->queue = l->head ? pool_queue_index(t->p, object_as(l->head, workload)) : NONE;
        if (l->head)
            l->priority = pool_priority(t->p, object_as(l->head, workload)->spec);
        if (l->head)
            l->place = place_of(t, l->queue);
    }
    nodes_make(t);
    for (uint32_t i = 0; i < t->n_lanes; i++) {
        struct heap *own =
            &t->nodes[own_node(t, t->lanes[i].queue == NONE ? t->n : t->lanes[i].queue)];

        if (!t->lanes[i].head)
            continue;
        heap_set(t, own, own->n, i);
        own->n++;
    }
    for (uint32_t i = 0; i < t->n && tree->order[i] != NONE; i++) {
        uint32_t q = tree->order[i];
        struct heap *up = &t->nodes[tree->parent[q] == NONE ? t->n : tree->parent[q]];

        node_close(t, q);
        if (!t->nodes[q].n)
            continue;
        heap_set(t, up, up->n, t->n_lanes + q);
        up->n++;
    }
    node_close(t, t->n);
    t->at = t->p->changes;
}

/* ---- turns ---- */
struct turns *policy_turns_create(struct pool *p)
{
    struct turns *t = mem_new(struct turns);

    t->p = p;
    t->names = arena_create(TURNS_MAX_BYTES);
    t->a = arena_create(TURNS_MAX_BYTES);
    return t;
}

struct turns *policy_turns_destroy(struct turns *t)
{
    if (!t)
        return NULL;
    (void)arena_destroy(t->names);
    (void)arena_destroy(t->a);
    strmap_fini(&t->place_of);
    mem_free(t->waiting);
    mem_free(t->lanes);
    mem_free(t);
    return NULL;
}

size_t policy_turns_lane(struct turns *t, const struct object *head)
{
    if (t->n_lanes == t->cap_lanes) {
        t->cap_lanes = t->cap_lanes ? t->cap_lanes * 2 : 64;
        t->lanes = mem_realloc(t->lanes, sizeof(*t->lanes) * t->cap_lanes);
    }
    t->lanes[t->n_lanes] =
        (struct lane){.head = head, .kept = pool_kept_rank(t->p, head), .queue = NONE};
    t->at = 0;
    return t->n_lanes++;
}

size_t policy_turns_next(struct turns *t, int64_t *ret_position)
{
    const struct lane *l;

    if (t->at != t->p->changes)
        turns_renew(t);
    if (!t->nodes[t->n].n)
        return SIZE_MAX;
    l = best_lane(t, t->n_lanes + t->n);
    *ret_position = t->waiting[l->place] + 1;
    return (size_t)(l - t->lanes);
}

/* The node's candidate is worse than it was, or gone. */
static void candidate_worse(struct turns *t, uint32_t node, uint32_t candidate)
{
    struct heap *h = &t->nodes[node];
    bool gone =
        candidate < t->n_lanes ? !t->lanes[candidate].head : !t->nodes[candidate - t->n_lanes].n;

    if (gone)
        heap_remove(t, h, t->at_place[candidate]);
    else
        heap_down(t, h, t->at_place[candidate]);
}

/* What a queue holds concerns its own lanes and, one step up, itself. Of two that have both become
 * worse the deeper one goes down first: below it all is in order. */
static void path_worse(struct turns *t, uint32_t lane)
{
    const struct queue_tree *tree = &t->p->queue_tree;
    uint32_t q = t->lanes[lane].queue == NONE ? t->n : t->lanes[lane].queue;

    candidate_worse(t, own_node(t, q), lane);
    candidate_worse(t, q, t->n_lanes + own_node(t, q));
    while (q != t->n) {
        uint32_t up = tree->parent[q] == NONE ? t->n : tree->parent[q];
        uint32_t below = t->n_lanes + q, own = t->n_lanes + own_node(t, up);

        if (!t->nodes[own_node(t, up)].n || up == t->n) {
            candidate_worse(t, up, below);
        } else if (t->at_place[below] > t->at_place[own]) {
            candidate_worse(t, up, below);
            candidate_worse(t, up, own);
        } else {
            candidate_worse(t, up, own);
            candidate_worse(t, up, below);
        }
        q = up;
    }
}

void policy_turns_took(struct turns *t, size_t lane, enum turn_end end, const struct object *head)
{
    struct lane *l = &t->lanes[lane];
    /* Room that was nominated for it may be larger than what it took: shares fall, too. */
    bool shaken = !t->at || (end == TURN_PLACED ? pool_nominated(t->p, l->head->meta->uid) != NULL
                                                : t->at != t->p->changes);

    if (end == TURN_WAITS)
        t->waiting[l->place]++;
    l->head = head;
    l->kept = pool_kept_rank(t->p, head);
    if (shaken || l->kept != NONE) { /* what comes up in its place may go before others */
        t->at = 0;
        return;
    }
    path_worse(t, (uint32_t)lane);
    t->at = t->p->changes;
}
