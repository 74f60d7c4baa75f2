/* A lower bound of the harm on a node, from a few sums, so that most nodes need no search. It is
 * never above the truth: it treats victims as divisible, and each of their devices as one that the
 * workload could use. */
#include "policy/preempt/preempt_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INSERT_MAX 24

/* GPU milli, MIG instances or CPU: what of it is missing for so many workers. */
static double missing(const struct planner *x, uint32_t member, uint32_t slots)
{
    const struct table *t = &x->p->t;
    const struct need *n = &x->pl->need;
    const struct node_rec *r = &t->nodes[t->members[member].node];
    double free = 0, most = 0;

    if (n->mode == NEED_CPU)
        return n->cpu > 0
                   ? (double)slots * (double)n->cpu - (double)t->cpu_free[t->members[member].node]
                   : 0;
    for (uint32_t i = r->dev0; i < r->dev0 + r->n_dev; i++) {
        const struct device *d = &t->devices[i];
        double here = 0;

        if (d->member != member || d->mig != (n->mode == NEED_MIG))
            continue;
        if (n->mode != NEED_MIG)
            here = d->free_milli > 0 ? d->free_milli : 0;
        for (uint32_t k = 0; n->mode == NEED_MIG && k < d->spec->n_migProfiles && k < 64; k++)
            here += !(d->mig_used >> k & 1) && strcmp(d->spec->migProfiles[k], n->mig) == 0;
        free += here;
        most = here > most ? here : most;
    }
    if (n->mode == NEED_MIG)
        return (double)slots * n->count - free;
    if (n->mode == NEED_FRACTION && slots == 1)
        return n->milli - most; /* it lies on one device */
    return (double)slots * n->count * n->milli - free;
}

static double amount_of(const struct planner *x, const struct seat *s)
{
    const struct hold *h = x->s[s->suspect].hold;

    if (x->pl->need.mode == NEED_CPU)
        return (double)h->cpu;
    if (x->pl->need.mode == NEED_MIG)
        return (double)h->at[s->at].n_gpus + (double)h->at[s->at].count;
    return (double)s->milli;
}

static int cmp_rate(const void *pa, const void *pb)
{
    const struct rate *a = pa, *b = pb;

    return (a->rate > b->rate) - (a->rate < b->rate);
}

static void rates_sort(struct rate *v, uint32_t n)
{
    if (n > INSERT_MAX) {
        qsort(v, n, sizeof(*v), cmp_rate);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        struct rate r = v[i];
        uint32_t k = i;

        for (; k > 0 && v[k - 1].rate > r.rate; k--)
            v[k] = v[k - 1];
        v[k] = r;
    }
}

double node_bound(struct planner *x, uint32_t member, uint32_t slots, bool shared)
{
    uint32_t node = x->p->t.members[member].node, n = 0;
    uint32_t from = x->first[node], to = x->first[node + 1];
    double want = missing(x, member, slots), harm = 0;

    for (uint32_t i = from; want > 0 && i < to;) {
        const struct seat *seat = &x->seats[i];
        const struct suspect *s = &x->s[seat->suspect];
        double amount = 0;

        for (; i < to && x->seats[i].suspect == seat->suspect; i++)
            amount += amount_of(x, &x->seats[i]);
        if (s->gone)
            want -= amount;
        else if (amount > 0)
            x->rates[n++] = (struct rate){
                shared && s->hold->milli > 0 ? s->harm / (double)s->hold->milli : s->harm / amount,
                amount};
    }
    if (want <= 0)
        return 0;
    rates_sort(x->rates, n);
    for (uint32_t i = 0; want > 0 && i < n; i++) {
        harm += x->rates[i].rate * (x->rates[i].amount < want ? x->rates[i].amount : want);
        want -= x->rates[i].amount;
    }
    return want > 0 ? HUGE_VAL : harm * (1 - HARM_EQUAL / 2);
}
