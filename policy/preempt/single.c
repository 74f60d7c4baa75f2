/* One worker: the least harm over all nodes of a group, exact. Nodes are looked at in the order of
 * a bound, so that most are left aside without a search. */
#include "policy/preempt/preempt_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct lead {
    double bound;
    uint32_t member;
};

static int cmp_lead(const void *pa, const void *pb)
{
    const struct lead *a = pa, *b = pb;

    if (a->bound != b->bound)
        return a->bound < b->bound ? -1 : 1;
    return (a->member > b->member) - (a->member < b->member);
}

void plan_keep(struct planner *x, const struct offer *o, const uint32_t *v, uint32_t n, double harm)
{
    const struct offer *best = x->best.offer;

    /* Of equal harm: the step of the policy's order that comes first, then the cheaper place. */
    if (best && harm > x->best.harm * (1 + HARM_EQUAL))
        return;
    if (best && harm >= x->best.harm * (1 - HARM_EQUAL) &&
        (o->rank > best->rank || (o->rank == best->rank && o->useful >= best->useful)) &&
        (o != best || harm >= x->best.harm))
        return;
    x->best.offer = o;
    x->best.n = n;
    x->best.harm = harm;
    memmove(x->best.v, v, sizeof(*v) * n);
}

void plan_single(struct planner *x, const struct offer *o)
{
    const struct group *g = &x->p->t.groups[o->group];
    struct lead *leads = mem_zalloc(sizeof(*leads) * (g->n + 1));
    uint32_t *v = x->scratch, n = 0, k;
    double best = HUGE_VAL;

    for (uint32_t m = g->m0; m < g->m0 + g->n; m++) {
        uint32_t node = x->p->t.members[m].node;

        if (x->p->t.nodes[node].ok && x->first[node + 1] > x->first[node])
            leads[n++] = (struct lead){node_bound(x, m, 1, false), m};
    }
    if (n > 1)
        qsort(leads, n, sizeof(*leads), cmp_lead);
    /* A tie with another group is decided by plan_keep: hence not below its harm, but up to it. */
    if (x->best.offer)
        best = x->best.harm * (1 + 2 * HARM_EQUAL);
    for (uint32_t i = 0; i < n && leads[i].bound < best * (1 - HARM_EQUAL); i++) {
        double harm = node_solve(x, leads[i].member, 1, best, v, &k);

        if (harm >= best)
            continue;
        best = harm;
        plan_keep(x, o, v, k, harm);
    }
    mem_free(leads);
}
