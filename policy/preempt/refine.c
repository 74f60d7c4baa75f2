/* Improves a gang's plan beyond what single steps find: with few possible victims it tries every
 * set that could do less harm; else it lets one or two victims stay and gathers what is missing
 * then. It is bounded by GANG_LOOKS_MAX, and never leaves a worse plan. */
#include "policy/preempt/gang_internal.h"

#include "api/base/failpoint.h"

#include <string.h>

#define EXACT_MAX 16 /* suspects of a domain, to try every set */
#define PAIRS_MAX 6  /* victims, to let two of them stay */

/* ---- better than by steps ---- */
static void leave(struct gang_plan *g, const uint32_t *v, uint32_t n, bool gone)
{
    struct planner *x = g->x;

    for (uint32_t i = 0; i < n; i++)
        x->s[v[i]].gone = gone;
    for (uint32_t i = 0; i < n; i++) {
        const struct hold *h = x->s[v[i]].hold;

        (void)gang_look(g, v[i], true);
        for (uint32_t k = 0; k < h->n; k++) {
            if (h->at[k].slot != NONE && g->member_of[h->at[k].slot] != NONE)
                g->version[g->member_of[h->at[k].slot]]++;
        }
    }
}

/* The plan without these, when that is better; else all is as it was. old: room for the victims. */
static bool try_without(struct gang_plan *g, const uint32_t *ban, uint32_t n_ban, uint32_t *old)
{
    struct planner *x = g->x;
    uint32_t n_old = g->n_taken, n = 0;
    double harm = g->harm;
    bool better;

    memcpy(old, g->taken, sizeof(*old) * n_old);
    g->harm = 0;
    for (uint32_t i = 0; i < n_ban; i++)
        x->s[ban[i]].banned = true;
    for (uint32_t i = 0; i < n_old; i++) {
        if (x->s[old[i]].banned)
            continue;
        g->taken[n++] = old[i];
        g->harm += x->s[old[i]].harm;
    }
    g->n_taken = n;
    leave(g, ban, n_ban, false);
    gang_offer(g);
    better = gang_gather(g, harm * 1.5);
    if (better) {
        gang_prune(g);
        better = g->harm < harm * (1 - HARM_EQUAL);
    }
    for (uint32_t i = 0; i < n_ban; i++)
        x->s[ban[i]].banned = false;
    if (better)
        return true;
    leave(g, g->taken, g->n_taken, false);
    memcpy(g->taken, old, sizeof(*old) * n_old);
    g->n_taken = n_old;
    leave(g, g->taken, n_old, true);
    g->harm = harm;
    return false;
}

static bool swap_some(struct gang_plan *g, uint32_t *old)
{
    for (uint32_t i = 0; i < g->n_taken; i++) { /* the dearest first */
        for (uint32_t k = i; k < (g->n_taken <= PAIRS_MAX ? g->n_taken : i + 1); k++) {
            uint32_t ban[2] = {g->taken[i], g->taken[k]};

            if (g->x->looks < g->n)
                return false;
            g->x->looks -= g->n;
            if (try_without(g, ban, k > i ? 2 : 1, old))
                return true;
        }
    }
    return false;
}

/* Every set of few suspects: the dearest is tried to stay, then to go; all that is not decided yet
 * is gone, so that what cannot make room is left as soon as that shows. */
struct exact {
    struct gang_plan *g;
    uint32_t v[EXACT_MAX], n, best[EXACT_MAX], n_best;
    double harm; /* of the best */
    bool found;
};

static void exact_leaf(struct exact *e, double harm)
{
    struct planner *x = e->g->x;
    uint32_t set[EXACT_MAX], n = 0;
    bool reclaim = false;

    for (uint32_t i = 0; i < e->n; i++) {
        if (!x->s[e->v[i]].gone)
            continue;
        set[n++] = e->v[i];
        reclaim |= x->s[e->v[i]].reclaim;
    }
    if (reclaim && !reclaim_bounds(x, set, n))
        return;
    memcpy(e->best, set, sizeof(*set) * n);
    e->n_best = n;
    e->harm = harm;
    e->found = true;
}

static void exact_descend(struct exact *e, uint32_t i, double harm)
{
    struct gang_plan *g = e->g;

    if (harm >= e->harm * (1 - HARM_EQUAL) || !g->x->looks)
        return;
    if (i == e->n) {
        exact_leaf(e, harm);
        return;
    }
    g->x->looks--;
    leave(g, &e->v[i], 1, false);
    if (g->room >= g->want)
        exact_descend(e, i + 1, harm);
    leave(g, &e->v[i], 1, true);
    exact_descend(e, i + 1, harm + g->x->s[e->v[i]].harm);
}

/* The suspects of the domain, the dearest first; false when they are too many. */
static bool exact_begin(struct exact *e)
{
    struct gang_plan *g = e->g;
    struct planner *x = g->x;

    for (uint32_t at = 0; at < g->n; at++) {
        uint32_t node = node_of(g, at);

        for (uint32_t i = x->first[node]; i < x->first[node + 1]; i++) {
            uint32_t s = x->seats[i].suspect, k = 0;

            while (k < e->n && e->v[k] != s)
                k++;
            if (k < e->n)
                continue;
            if (e->n == EXACT_MAX)
                return false;
            for (k = e->n++; k > 0 && suspect_cmp(x, e->v[k - 1], s) < 0; k--)
                e->v[k] = e->v[k - 1];
            e->v[k] = s;
        }
    }
    return true;
}

static bool every_set(struct gang_plan *g)
{
    struct exact e = {.g = g, .harm = g->harm};

    if (!exact_begin(&e))
        return false;
    leave(g, g->taken, g->n_taken, false);
    leave(g, e.v, e.n, true);
    if (g->room >= g->want)
        exact_descend(&e, 0, 0);
    leave(g, e.v, e.n, false);
    if (e.found) {
        memcpy(g->taken, e.best, sizeof(*e.best) * e.n_best);
        g->n_taken = e.n_best;
        g->harm = e.harm;
    }
    leave(g, g->taken, g->n_taken, true);
    return true;
}

void gang_refine(struct gang_plan *g)
{
    uint32_t *old;

    if (PLANTED("policy.greedy-gangs") || every_set(g))
        return;
    old = mem_alloc(sizeof(*old) * (g->x->n + 1));
    while (swap_some(g, old))
        continue;
    mem_free(old);
}
