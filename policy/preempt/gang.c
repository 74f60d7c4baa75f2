/* Several workers at once. In each domain that may hold them all: take the step that costs least
 * for the workers it makes room for, until there is room; then let everybody stay who turned out
 * not to be needed. A step is the cheapest set that frees one more worker on one node (exact,
 * view.c), or one gang with all its nodes. Greedy: the least of the domains wins, and a plan may
 * be dearer than the best there is. */
#include "policy/preempt/preempt_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct step { /* on a heap, the best rate first */
    double rate;
    uint32_t version; /* of the node when it was judged */
    uint32_t at;      /* member of the run, or NONE */
    uint32_t suspect; /* a gang, or NONE */
};
struct gang_plan {
    struct planner *x;
    uint32_t m0, n; /* members of the run */
    uint32_t *slots, *version;
    uint32_t *member_of; /* by node: place in the run, NONE = elsewhere; shared by all runs */
    struct step *heap;
    uint32_t n_heap, cap_heap;
    uint32_t *taken, n_taken, *set;
    int64_t room, want;
    double harm;
};

static uint32_t node_of(const struct gang_plan *g, uint32_t at)
{
    return g->x->p->t.members[g->m0 + at].node;
}

/* ---- heap
 * ------------------------------------------------------------------------------------------------------
 */
static bool step_before(const struct step *a, const struct step *b)
{
    if (a->rate != b->rate)
        return a->rate < b->rate;
    if (a->at != b->at)
        return a->at < b->at;
    return a->suspect < b->suspect;
}

static void heap_push(struct gang_plan *g, struct step s)
{
    uint32_t i = g->n_heap++;

    if (g->n_heap > g->cap_heap) {
        g->cap_heap = g->cap_heap ? g->cap_heap * 2 : 256;
        g->heap = mem_realloc(g->heap, sizeof(*g->heap) * g->cap_heap);
    }
    for (; i > 0 && step_before(&s, &g->heap[(i - 1) / 2]); i = (i - 1) / 2)
        g->heap[i] = g->heap[(i - 1) / 2];
    g->heap[i] = s;
}

static struct step heap_pop(struct gang_plan *g)
{
    struct step top = g->heap[0], last = g->heap[--g->n_heap];
    uint32_t i = 0;

    for (;;) {
        uint32_t c = 2 * i + 1;

        if (c >= g->n_heap)
            break;
        if (c + 1 < g->n_heap && step_before(&g->heap[c + 1], &g->heap[c]))
            c++;
        if (!step_before(&g->heap[c], &last))
            break;
        g->heap[i] = g->heap[c];
        i = c;
    }
    g->heap[i] = last;
    return top;
}

/* ---- room
 * ------------------------------------------------------------------------------------------------------
 */
/* Workers that fit on a member once all that is gone has left. */
static uint32_t slots_now(const struct gang_plan *g, uint32_t at)
{
    struct planner *x = g->x;
    uint32_t node = node_of(g, at), last = NONE;

    view_load(x, g->m0 + at);
    for (uint32_t i = x->first[node]; i < x->first[node + 1]; i++) {
        uint32_t s = x->seats[i].suspect;

        if (s != last && x->s[s].gone)
            view_take(x, node, s, -1);
        last = s;
    }
    return view_slots(x);
}

/* Looks again at every member of the run on which the suspect has a worker; the sum of the gain. */
static int64_t look_again(struct gang_plan *g, uint32_t suspect, bool keep)
{
    const struct hold *h = g->x->s[suspect].hold;
    int64_t gain = 0;
    uint32_t last = NONE;

    for (uint32_t k = 0; k < h->n; k++) {
        uint32_t at = h->at[k].slot == NONE ? NONE : g->member_of[h->at[k].slot], now;

        if (at == NONE || h->at[k].slot == last)
            continue;
        last = h->at[k].slot;
        now = slots_now(g, at);
        gain += (int64_t)now - g->slots[at];
        if (keep)
            g->slots[at] = now;
    }
    if (keep)
        g->room += gain;
    return gain;
}

static bool spans_nodes(const struct hold *h)
{
    for (uint32_t k = 1; k < h->n; k++) {
        if (h->at[k].slot != h->at[0].slot)
            return true;
    }
    return false;
}

/* ---- steps
 * -----------------------------------------------------------------------------------------------------
 */
static bool may_add(struct gang_plan *g, const uint32_t *v, uint32_t n)
{
    bool reclaim = false;

    for (uint32_t i = 0; i < n; i++)
        reclaim |= g->x->s[v[i]].reclaim;
    if (!reclaim)
        return true;
    memcpy(g->set, g->taken, sizeof(*g->set) * g->n_taken);
    memcpy(g->set + g->n_taken, v, sizeof(*v) * n);
    return reclaim_bounds(g->x, g->set, g->n_taken + n);
}

/* The set of a step; returns its harm for each worker gained, HUGE_VAL when it gains none. */
static double judge(struct gang_plan *g, const struct step *s, uint32_t *v, uint32_t *n)
{
    struct planner *x = g->x;
    int64_t gain = 0, left = g->want - g->room;
    double harm;

    if (s->suspect != NONE) {
        if (x->s[s->suspect].gone)
            return HUGE_VAL;
        v[0] = s->suspect;
        *n = 1;
        harm = x->s[s->suspect].harm;
    } else {
        harm = node_solve(x, g->m0 + s->at, g->slots[s->at] + 1, HUGE_VAL, v, n);
    }
    if (harm == HUGE_VAL || !may_add(g, v, *n))
        return HUGE_VAL;
    for (uint32_t i = 0; i < *n; i++)
        x->s[v[i]].gone = true;
    if (s->suspect != NONE) {
        gain = look_again(g, s->suspect, false);
    } else {
        gain = (int64_t)slots_now(g, s->at) - g->slots[s->at];
        for (uint32_t i = 0; i < *n; i++) {
            /* Its own node was counted: only what it frees elsewhere. */
            if (spans_nodes(x->s[v[i]].hold))
                gain +=
                    look_again(g, v[i], false) - ((int64_t)slots_now(g, s->at) - g->slots[s->at]);
        }
    }
    for (uint32_t i = 0; i < *n; i++)
        x->s[v[i]].gone = false;
    gain = gain < left ? gain : left;
    return gain > 0 ? harm / (double)gain : HUGE_VAL;
}

static void step_offer(struct gang_plan *g, struct step s, uint32_t *v)
{
    uint32_t n;

    s.rate = judge(g, &s, v, &n);
    s.version = s.at == NONE ? 0 : g->version[s.at];
    if (s.rate < HUGE_VAL)
        heap_push(g, s);
}

static void take_all(struct gang_plan *g, const uint32_t *v, uint32_t n, uint32_t *scratch)
{
    struct planner *x = g->x;

    for (uint32_t i = 0; i < n; i++) {
        x->s[v[i]].gone = true;
        g->taken[g->n_taken++] = v[i];
        g->harm += x->s[v[i]].harm;
    }
    for (uint32_t i = 0; i < n; i++)
        (void)look_again(g, v[i], true);
    for (uint32_t i = 0; i < n && g->room < g->want; i++) {
        const struct hold *h = x->s[g->taken[g->n_taken - n + i]].hold;

        for (uint32_t k = 0; k < h->n; k++) {
            uint32_t at = h->at[k].slot == NONE ? NONE : g->member_of[h->at[k].slot];

            if (at == NONE || (k && h->at[k].slot == h->at[k - 1].slot))
                continue;
            g->version[at]++;
            step_offer(g, (struct step){.at = at, .suspect = NONE}, scratch);
        }
    }
}

static bool gather(struct gang_plan *g, double bound)
{
    struct planner *x = g->x;
    uint32_t *v = mem_zalloc(sizeof(*v) * 2 * (x->n + 1)), *scratch = v + x->n + 1, n;

    while (g->room < g->want && g->n_heap && g->harm < bound) {
        struct step s = heap_pop(g);
        double rate;

        if (s.at != NONE && s.version != g->version[s.at])
            continue;
        /* Less may be wanted than when it was judged, and less free elsewhere. */
        rate = judge(g, &s, v, &n);
        if (rate == HUGE_VAL)
            continue;
        if (rate > s.rate && g->n_heap && rate > g->heap[0].rate) {
            s.rate = rate;
            heap_push(g, s);
            continue;
        }
        take_all(g, v, n, scratch);
    }
    mem_free(v);
    return g->room >= g->want;
}

/* Whoever is not needed stays, the dearest first. */
static int cmp_down(const void *pa, const void *pb)
{
    uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

    return (a < b) - (a > b);
}

static void prune(struct gang_plan *g)
{
    struct planner *x = g->x;
    uint32_t n = 0;

    if (g->n_taken > 1)
        qsort(g->taken, g->n_taken, sizeof(*g->taken), cmp_down);
    for (uint32_t i = 0; i < g->n_taken; i++) {
        uint32_t v = g->taken[i];

        x->s[v].gone = false;
        (void)look_again(g, v, true);
        if (g->room >= g->want) {
            g->harm -= x->s[v].harm;
            continue;
        }
        x->s[v].gone = true;
        (void)look_again(g, v, true);
        g->taken[n++] = v;
    }
    g->n_taken = n;
    g->harm = 0;
    for (uint32_t i = 0; i < n; i++)
        g->harm += x->s[g->taken[i]].harm;
}

/* ---- one domain
 * ------------------------------------------------------------------------------------------------
 */
static void offer_gangs(struct gang_plan *g, uint32_t *v)
{
    struct planner *x = g->x;

    for (uint32_t at = 0; at < g->n; at++) {
        uint32_t node = node_of(g, at), last = NONE;

        for (uint32_t i = x->first[node]; i < x->first[node + 1]; i++) {
            uint32_t s = x->seats[i].suspect;
            const struct hold *h = x->s[s].hold;

            /* Once, where its first worker of this run is. */
            if (s != last && spans_nodes(h)) {
                uint32_t k = 0;

                while (h->at[k].slot == NONE || g->member_of[h->at[k].slot] == NONE)
                    k++;
                if (h->at[k].slot == node)
                    step_offer(g, (struct step){.at = NONE, .suspect = s}, v);
            }
            last = s;
        }
    }
}

static void plan_run(struct gang_plan *g, const struct offer *o)
{
    struct planner *x = g->x;
    uint32_t *v = mem_zalloc(sizeof(*v) * (x->n + 1));

    g->room = 0;
    g->harm = 0;
    g->n_heap = g->n_taken = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        g->member_of[node_of(g, i)] = i;
        g->slots[i] = member_slots(&x->p->t, g->m0 + i, &x->pl->need);
        g->room += g->slots[i];
        g->version[i] = 0;
    }
    for (uint32_t i = 0; i < g->n && g->room < g->want; i++) {
        uint32_t node = node_of(g, i);

        if (x->p->t.nodes[node].ok && x->first[node + 1] > x->first[node])
            step_offer(g, (struct step){.at = i, .suspect = NONE}, v);
    }
    offer_gangs(g, v);
    if (g->room < g->want && gather(g, x->best.offer ? x->best.harm * 2 : HUGE_VAL)) {
        prune(g);
        plan_keep(x, o, g->taken, g->n_taken, g->harm);
    }
    for (uint32_t i = 0; i < x->n; i++)
        x->s[i].gone = false;
    for (uint32_t i = 0; i < g->n; i++)
        g->member_of[node_of(g, i)] = NONE;
    mem_free(v);
}

void plan_gang(struct planner *x, const struct offer *o)
{
    const struct group *grp = &x->p->t.groups[o->group];
    const struct table *t = &x->p->t;
    const struct need *need = &x->pl->need;
    enum domain_level level = need->within ? need->within : LEVEL_TARGET;
    struct gang_plan g = {.x = x, .want = need->min_workers};
    uint32_t lo = 0;

    g.slots = mem_zalloc(sizeof(*g.slots) * 2 * (grp->n + 1));
    g.version = g.slots + grp->n + 1;
    g.member_of = mem_alloc(sizeof(*g.member_of) * (t->n_nodes + 1));
    for (uint32_t i = 0; i < t->n_nodes; i++)
        g.member_of[i] = NONE;
    g.taken = mem_zalloc(sizeof(*g.taken) * 2 * (x->n + 1));
    g.set = g.taken + x->n + 1;
    for (uint32_t i = 1; i <= grp->n; i++) {
        if (i < grp->n && t->nodes[t->members[grp->m0 + i].node].domain[level] ==
                              t->nodes[t->members[grp->m0 + i - 1].node].domain[level])
            continue;
        g.m0 = grp->m0 + lo;
        g.n = i - lo;
        plan_run(&g, o);
        lo = i;
    }
    mem_free(g.slots);
    mem_free(g.member_of);
    mem_free(g.taken);
    mem_free(g.heap);
}
