/* Several workers at once. In each domain that may hold them all, this takes the step that costs
 * least per worker gained, until there is room; then it lets victims stay that turned out not to be
 * needed. A step is the cheapest set that frees one more worker on one node (exact, view.c), or one
 * gang with all its nodes. The result is then improved (refine.c): with few possible victims by
 * trying every set that could do less harm, else by letting one or two of them stay and gathering
 * anew. That is bounded, so a plan may be dearer than the best one, but never dearer than the steps
 * alone found. */
#include "policy/preempt/gang_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- heap ---- */
static bool step_before(const struct gang_plan *g, const struct step *a, const struct step *b)
{
    if (a->rate != b->rate)
        return a->rate < b->rate;
    if (a->at != b->at)
        return a->at < b->at;
    return a->suspect != NONE && suspect_cmp(g->x, a->suspect, b->suspect) < 0;
}

static void heap_push(struct gang_plan *g, struct step s)
{
    uint32_t i = g->n_heap++;

    if (g->n_heap > g->cap_heap) {
        g->cap_heap = g->cap_heap ? g->cap_heap * 2 : 256;
        g->heap = mem_realloc(g->heap, sizeof(*g->heap) * g->cap_heap);
    }
    for (; i > 0 && step_before(g, &s, &g->heap[(i - 1) / 2]); i = (i - 1) / 2)
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
        if (c + 1 < g->n_heap && step_before(g, &g->heap[c + 1], &g->heap[c]))
            c++;
        if (!step_before(g, &g->heap[c], &last))
            break;
        g->heap[i] = g->heap[c];
        i = c;
    }
    g->heap[i] = last;
    return top;
}

/* ---- room ---- */
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
int64_t gang_look(struct gang_plan *g, uint32_t suspect, bool keep)
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

/* ---- steps ---- */
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
        if (x->s[s->suspect].gone || x->s[s->suspect].banned)
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
        gain = gang_look(g, s->suspect, false);
    } else {
        gain = (int64_t)slots_now(g, s->at) - g->slots[s->at];
        for (uint32_t i = 0; i < *n; i++) {
            /* Its own node was counted: only what it frees elsewhere. */
            if (spans_nodes(x->s[v[i]].hold))
                gain +=
                    gang_look(g, v[i], false) - ((int64_t)slots_now(g, s->at) - g->slots[s->at]);
        }
    }
    for (uint32_t i = 0; i < *n; i++)
        x->s[v[i]].gone = false;
    gain = gain < left ? gain : left;
    return gain > 0 ? harm / (double)gain : HUGE_VAL;
}

static void offer_node(struct gang_plan *g, uint32_t at)
{
    struct planner *x = g->x;
    uint32_t node = node_of(g, at);
    double rate;

    if (!x->p->t.nodes[node].ok || x->first[node + 1] == x->first[node])
        return;
    rate = g->version[at] ? node_bound(x, g->m0 + at, g->slots[at] + 1, true) : g->bound[at];
    if (rate < HUGE_VAL)
        heap_push(g, (struct step){rate, g->version[at], at, NONE});
}

/* What room was made on, further workers may have for another price now. */
static void take_all(struct gang_plan *g, const uint32_t *v, uint32_t n)
{
    struct planner *x = g->x;

    for (uint32_t i = 0; i < n; i++) {
        x->s[v[i]].gone = true;
        g->taken[g->n_taken++] = v[i];
        g->harm += x->s[v[i]].harm;
    }
    for (uint32_t i = 0; i < n; i++)
        (void)gang_look(g, v[i], true);
    for (uint32_t i = 0; i < n && g->room < g->want; i++) {
        const struct hold *h = x->s[v[i]].hold;

        for (uint32_t k = 0; k < h->n; k++) {
            uint32_t at = h->at[k].slot == NONE ? NONE : g->member_of[h->at[k].slot];

            if (at == NONE || (k && h->at[k].slot == h->at[k - 1].slot))
                continue;
            g->version[at]++;
            offer_node(g, at);
        }
    }
}

bool gang_gather(struct gang_plan *g, double bound)
{
    struct planner *x = g->x;
    uint32_t *v = x->scratch, n = 0;

    while (g->room < g->want && g->n_heap && g->harm < bound) {
        struct step s = heap_pop(g);

        if (s.at != NONE && s.version != g->version[s.at])
            continue;
        s.rate = judge(g, &s, v, &n);
        if (s.rate == HUGE_VAL)
            continue;
        if (g->n_heap && s.rate * (1 - HARM_EQUAL) > g->heap[0].rate)
            heap_push(g, s);
        else
            take_all(g, v, n);
    }
    return g->room >= g->want;
}

/* Whoever is not needed stays, the dearest first. */
void gang_prune(struct gang_plan *g)
{
    struct planner *x = g->x;
    uint32_t n = 0;

    plan_sort(x, g->taken, g->n_taken);
    g->harm = 0;
    for (uint32_t i = g->n_taken; i-- > 0;) {
        uint32_t v = g->taken[i];

        x->s[v].gone = false;
        (void)gang_look(g, v, true);
        if (g->room >= g->want)
            continue;
        x->s[v].gone = true;
        (void)gang_look(g, v, true);
        g->set[n++] = v;
        g->harm += x->s[v].harm;
    }
    memcpy(g->taken, g->set, sizeof(*g->taken) * n);
    g->n_taken = n;
}

/* ---- one domain ---- */
/* Those with workers on several nodes, once each: where their first worker of this run is. */
static void offer_gangs(struct gang_plan *g)
{
    struct planner *x = g->x;
    const struct need *need = &x->pl->need;
    int64_t left = g->want - g->room;

    for (uint32_t at = 0; at < g->n; at++) {
        uint32_t node = node_of(g, at), last = NONE;

        for (uint32_t i = x->first[node]; i < x->first[node + 1]; i++) {
            uint32_t s = x->seats[i].suspect, k = 0;
            const struct hold *h = x->s[s].hold;
            int64_t most = left;

            if (s == last || !spans_nodes(h))
                continue;
            last = s;
            while (h->at[k].slot == NONE || g->member_of[h->at[k].slot] == NONE)
                k++;
            if (h->at[k].slot != node)
                continue;
            /* Each node of it gains what it held there, and one more with what was free. */
            if (need->mode == NEED_WHOLE && h->milli / (1000 * (int64_t)need->count) + h->n < left)
                most = h->milli / (1000 * (int64_t)need->count) + h->n;
            heap_push(g, (struct step){x->s[s].harm / (double)most, 0, NONE, s});
        }
    }
}

void gang_offer(struct gang_plan *g)
{
    g->n_heap = 0;
    for (uint32_t i = 0; i < g->n; i++)
        offer_node(g, i);
    offer_gangs(g);
}

static void plan_run(struct gang_plan *g, const struct offer *o)
{
    struct planner *x = g->x;

    g->harm = 0;
    g->n_taken = 0;
    for (uint32_t i = 0; i < g->n; i++)
        g->member_of[node_of(g, i)] = i;
    gang_offer(g);
    if (gang_gather(g, x->best.offer ? x->best.harm * 2 : HUGE_VAL)) {
        gang_prune(g);
        gang_refine(g);
        plan_keep(x, o, g->taken, g->n_taken, g->harm);
    }
    for (uint32_t i = 0; i < g->n_taken; i++)
        x->s[g->taken[i]].gone = false;
    for (uint32_t i = 0; i < g->n; i++)
        g->member_of[node_of(g, i)] = NONE;
}

/* ---- all domains of a group ---- */
struct domain {
    uint32_t lo, hi; /* members of the group */
    int64_t room;
    double bound;
};

static int cmp_domain(const void *pa, const void *pb)
{
    const struct domain *a = pa, *b = pb;

    if (a->bound != b->bound)
        return a->bound < b->bound ? -1 : 1;
    return (a->lo > b->lo) - (a->lo < b->lo);
}

static int cmp_double(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;

    return (a > b) - (a < b);
}

/* The harm of a domain is at least that of its cheapest nodes, filled. tmp: room for its nodes. */
static void domain_bound(const struct gang_plan *g, const struct group *grp, struct domain *d,
                         double *tmp)
{
    const struct need *need = &g->x->pl->need;
    int64_t left = g->want - d->room, most = left;

    if (need->mode == NEED_WHOLE)
        most = grp->max_dev / need->count;
    memcpy(tmp, g->bound + d->lo, sizeof(*tmp) * (d->hi - d->lo));
    if (d->hi - d->lo > 1)
        qsort(tmp, d->hi - d->lo, sizeof(*tmp), cmp_double);
    d->bound = 0;
    for (uint32_t i = 0; left > 0 && i < d->hi - d->lo && tmp[i] < HUGE_VAL; i++) {
        d->bound += tmp[i] * (double)(most < left ? most : left);
        left -= most < left ? most : left;
    }
    if (left > 0)
        d->bound = HUGE_VAL;
}

static uint32_t domains_find(struct gang_plan *g, const struct group *grp, struct domain *out)
{
    const struct table *t = &g->x->p->t;
    const struct need *need = &g->x->pl->need;
    enum domain_level level = need->within ? need->within : LEVEL_TARGET;
    double *tmp = mem_alloc(sizeof(*tmp) * (grp->n + 1));
    uint32_t n = 0;

    for (uint32_t i = 0; i < grp->n; i++) {
        uint32_t node = t->members[grp->m0 + i].node;

        if (i == 0 || t->nodes[node].domain[level] !=
                          t->nodes[t->members[grp->m0 + i - 1].node].domain[level])
            out[n++] = (struct domain){.lo = i};
        g->slots[i] = member_slots(t, grp->m0 + i, need);
        g->bound[i] =
            t->nodes[node].ok ? node_bound(g->x, grp->m0 + i, g->slots[i] + 1, true) : HUGE_VAL;
        out[n - 1].hi = i + 1;
        out[n - 1].room += g->slots[i];
    }
    for (uint32_t i = 0; i < n; i++)
        domain_bound(g, grp, &out[i], tmp);
    if (n > 1)
        qsort(out, n, sizeof(*out), cmp_domain);
    mem_free(tmp);
    return n;
}

void plan_gang(struct planner *x, const struct offer *o)
{
    const struct group *grp = &x->p->t.groups[o->group];
    const struct table *t = &x->p->t;
    struct gang_plan g = {.x = x, .want = x->pl->need.min_workers};
    struct domain *d = mem_zalloc(sizeof(*d) * (grp->n + 1));
    uint32_t *slots = mem_zalloc(sizeof(*slots) * 2 * (grp->n + 1)), n;
    double *bound = mem_zalloc(sizeof(*bound) * (grp->n + 1));

    g.member_of = mem_alloc(sizeof(*g.member_of) * (t->n_nodes + 1));
    memset(g.member_of, 0xff, sizeof(*g.member_of) * t->n_nodes); /* NONE */
    g.taken = mem_alloc(sizeof(*g.taken) * 2 * ((size_t)x->n + 1));
    g.set = g.taken + x->n + 1;
    g.slots = slots;
    g.bound = bound;
    x->looks = GANG_LOOKS_MAX;
    n = domains_find(&g, grp, d);
    for (uint32_t i = 0; i < n; i++) {
        if (d[i].bound == HUGE_VAL ||
            (x->best.offer && d[i].bound >= x->best.harm * (1 - HARM_EQUAL)))
            break;
        g.m0 = grp->m0 + d[i].lo;
        g.n = d[i].hi - d[i].lo;
        g.slots = slots + d[i].lo;
        g.version = slots + grp->n + 1 + d[i].lo;
        g.bound = bound + d[i].lo;
        g.room = d[i].room;
        plan_run(&g, o);
    }
    mem_free(d);
    mem_free(slots);
    mem_free(bound);
    mem_free(g.member_of);
    mem_free(g.taken);
    mem_free(g.heap);
}
