/* A copy of one node, from which victims can be removed and put back many times for the price of a
 * few additions; the code of real decisions (fit.c) says how many workers fit. The search on it is
 * exact: it tries every set of suspects that could be the least, and skips only sets that a bound
 * proves worse. */
#include "policy/preempt/preempt_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* of one search; the best found until then is kept. Never seen in use. */
#define STEPS_MAX 200000

void view_load(struct planner *x, uint32_t member)
{
    const struct table *t = &x->p->t;
    struct view *v = x->view;
    const struct node_rec *n = &t->nodes[t->members[member].node];

    v->member = t->members[member];
    v->node = *n;
    v->cpu = t->cpu_free[v->member.node];
    v->memory = t->memory_free[v->member.node];
    v->member.node = 0;
    v->node.dev0 = 0;
    v->node.n_dev = n->n_dev < DEVICES_MAX ? n->n_dev : DEVICES_MAX;
    for (uint32_t i = 0; i < v->node.n_dev; i++) {
        struct device *d = &v->dev[i];

        *d = t->devices[n->dev0 + i];
        d->member = d->member == member ? 0 : NONE;
        if (!d->mig)
            continue;
        for (uint32_t k = 0; k < d->spec->n_migProfiles && k < MIG_MAX; k++)
            v->over[i][k] = d->mig_over[k];
        d->mig_over = v->over[i];
    }
    v->t = (struct table){.nodes = &v->node,
                          .members = &v->member,
                          .devices = v->dev,
                          .groups = t->groups,
                          .classes = t->classes,
                          .cpu_free = &v->cpu,
                          .memory_free = &v->memory};
}

static void device_take(struct view *v, struct device *d, int32_t milli)
{
    if (d->member == 0 && !d->mig)
        v->member.n_free -= d->free_milli == 1000;
    d->free_milli -= milli;
    if (d->member == 0 && !d->mig)
        v->member.n_free += d->free_milli == 1000;
}

/* Its workers on this node; as table_apply does. */
static void seat_take(struct view *v, const struct hold *h, const struct hold_at *at, int sign)
{
    int64_t count;

    v->cpu -= sign * h->cpu;
    v->memory -= sign * h->memory;
    for (uint32_t k = 0; k < at->n_gpus; k++) {
        struct device *d = node_device(&v->t, &v->node, at->gpus[k]);

        if (!d)
            continue;
        if (at->mig[0] && d->mig) {
            device_mig_take(d, at->mig, sign);
            continue;
        }
        device_take(v, d, sign * at->milli);
    }
    count = counted_held(&v->t, &v->node, h, at);
    if (!count)
        v->member.strayed += (uint32_t)(sign * counted_strayed(&v->t, &v->node, h, at,
                                                               &v->t.groups[v->member.group]));
    for (; count > 0; count--) {
        struct device *d = counted_take(&v->t, &v->node, h->class_, hold_at_kind(at), sign);

        if (d->mig)
            device_mig_take(d, d->spec->migProfiles[0], sign);
        else
            device_take(v, d, sign * at->milli);
    }
}

void view_take(struct planner *x, uint32_t node, uint32_t suspect, int sign)
{
    const struct hold *h = x->s[suspect].hold;

    for (uint32_t i = x->first[node]; i < x->first[node + 1]; i++) {
        if (x->seats[i].suspect == suspect)
            seat_take(x->view, h, &h->at[x->seats[i].at], sign);
    }
}

uint32_t view_slots(const struct planner *x)
{
    return member_slots(&x->view->t, 0, &x->pl->need);
}

/* ---- the search ---- */
/* Suspects in order of harm, the most first; each is tried to stay, then to go. All that is not
 * decided yet is taken away, so that a set that cannot make room is left as soon as that shows. */
enum { BY_GPU, BY_CPU, BY_MEMORY, BY_NR };
struct chip {
    const struct suspect *s;
    uint32_t suspect, lo, hi; /* its seats */
    double harm, amount[BY_NR];
};
struct search {
    struct planner *x;
    struct chip *chip;
    uint32_t n, slots, steps;
    uint32_t *order[BY_NR]; /* by harm for each amount, the least first */
    double want[BY_NR];     /* that the suspects have to give up */
    bool *go;
    uint32_t *set; /* scratch */
    double bound;  /* best so far */
    uint32_t *ret, *ret_n;
    bool any_reclaim;
};

static void chip_take(struct search *s, const struct chip *c, int sign)
{
    const struct planner *x = s->x;
    const struct hold *h = x->s[c->suspect].hold;

    for (uint32_t i = c->lo; i < c->hi; i++)
        seat_take(x->view, h, &h->at[x->seats[i].at], sign);
}

/* The least harm that those from `from` on must do, were they divisible. */
static double rest_bound(const struct search *s, uint32_t from, int by)
{
    double want = s->want[by], harm = 0;

    for (uint32_t i = 0; want > 0 && i < from; i++)
        want -= s->go[i] ? s->chip[i].amount[by] : 0;
    for (uint32_t k = 0; want > 0 && k < s->n; k++) {
        const struct chip *c = &s->chip[s->order[by][k]];

        if (s->order[by][k] < from || c->amount[by] <= 0)
            continue;
        harm += c->amount[by] <= want ? c->harm : c->harm * want / c->amount[by];
        want -= c->amount[by];
    }
    return want > 0 ? HUGE_VAL : harm;
}

static void leaf(struct search *s, double harm)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        if (s->go[i])
            s->set[n++] = s->chip[i].suspect;
    }
    if (s->any_reclaim && !reclaim_bounds(s->x, s->set, n))
        return;
    memcpy(s->ret, s->set, sizeof(*s->ret) * n);
    *s->ret_n = n;
    s->bound = harm;
}

static void descend(struct search *s, uint32_t i, double harm)
{
    if (++s->steps > STEPS_MAX || harm >= s->bound)
        return;
    if (i == s->n) {
        leaf(s, harm);
        return;
    }
    for (int by = 0; by < BY_NR; by++) {
        if (s->want[by] > 0 && harm + rest_bound(s, i, by) >= s->bound * (1 - HARM_EQUAL / 4))
            return;
    }
    chip_take(s, &s->chip[i], 1);
    if (view_slots(s->x) >= s->slots)
        descend(s, i + 1, harm);
    chip_take(s, &s->chip[i], -1);
    s->go[i] = true;
    descend(s, i + 1, harm + s->chip[i].harm);
    s->go[i] = false;
}

/* ---- setting it up ---- */
static bool device_counts(const struct device *d, const struct need *n)
{
    return d->member == 0 && (n->mode == NEED_MIG) == d->mig &&
           !(n->mode == NEED_FRACTION && d->counted) &&
           !(n->mode == NEED_WHOLE && n->hard && d->shared);
}

static double seat_gpu(const struct planner *x, const struct hold *h, const struct hold_at *at)
{
    const struct view *v = x->view;
    const struct need *n = &x->pl->need;
    double sum = 0;

    for (uint32_t k = 0; n->mode != NEED_CPU && k < at->n_gpus; k++) {
        const struct device *d = node_device(&v->t, &v->node, at->gpus[k]);

        if (!d || !device_counts(d, n))
            continue;
        if (n->mode != NEED_MIG)
            sum += at->milli;
        else
            sum += strcmp(at->mig, n->mig) == 0;
    }
    if (n->mode == NEED_WHOLE && !*at->mig && !at->shares)
        sum += (double)at->milli * (double)counted_held(&v->t, &v->node, h, at);
    else if (n->mode == NEED_MIG && slice_same(hold_at_kind(at), need_kind(n)))
        sum += (double)counted_held(&v->t, &v->node, h, at);
    return sum;
}

/* What the suspects have to give up at least, by GPU, CPU and memory. */
static void wants(const struct planner *x, uint32_t slots, double *want)
{
    const struct view *v = x->view;
    const struct need *n = &x->pl->need;
    double have = 0;

    for (uint32_t i = 0; i < v->node.n_dev; i++) {
        const struct device *d = &v->dev[i];

        if (!device_counts(d, n))
            continue;
        if (n->mode != NEED_MIG)
            have += d->free_milli > 0 ? d->free_milli : 0;
        for (uint32_t k = 0; n->mode == NEED_MIG && k < d->spec->n_migProfiles && k < 64; k++)
            have += !(d->mig_used >> k & 1) && strcmp(d->spec->migProfiles[k], n->mig) == 0;
    }
    want[BY_GPU] = -have;
    if (n->mode == NEED_MIG)
        want[BY_GPU] += (double)slots * n->count;
    else if (n->mode != NEED_CPU)
        want[BY_GPU] += (double)slots * n->count * n->milli;
    want[BY_CPU] = n->cpu > 0 ? (double)slots * (double)n->cpu - (double)v->cpu : 0;
    want[BY_MEMORY] = n->memory > 0 ? (double)slots * (double)n->memory - (double)v->memory : 0;
}

static void chips_gather(struct search *s, uint32_t node)
{
    struct planner *x = s->x;
    uint32_t from = x->first[node], to = x->first[node + 1];

    for (uint32_t i = from; i < to;) {
        struct chip *c = &s->chip[s->n];
        const struct suspect *v = &x->s[x->seats[i].suspect];
        bool useful = false;

        *c = (struct chip){.s = v, .suspect = x->seats[i].suspect, .lo = i, .harm = v->harm};
        for (; i < to && x->seats[i].suspect == c->suspect; i++) {
            c->amount[BY_GPU] += seat_gpu(x, v->hold, &v->hold->at[x->seats[i].at]);
            c->amount[BY_CPU] += (double)v->hold->cpu;
            c->amount[BY_MEMORY] += (double)v->hold->memory;
        }
        c->hi = i;
        if (v->gone || v->banned)
            continue;
        /* Devices of another shape may be in its way even where the sum would do. */
        useful = c->amount[BY_GPU] > 0;
        for (int by = 0; by < BY_NR; by++)
            useful |= s->want[by] > 0 && c->amount[by] > 0;
        s->any_reclaim |= v->reclaim;
        s->n += useful;
    }
}

struct ranked {
    double rate;
    uint32_t i;
};

static int cmp_rate(const void *pa, const void *pb)
{
    const struct ranked *a = pa, *b = pb;

    if (a->rate != b->rate)
        return a->rate < b->rate ? -1 : 1;
    return (a->i > b->i) - (a->i < b->i);
}

static void orders_build(struct search *s, struct ranked *tmp)
{
    for (int by = 0; by < BY_NR; by++) {
        if (s->want[by] <= 0)
            continue;
        for (uint32_t i = 0; i < s->n; i++) {
            double amount = s->chip[i].amount[by];

            tmp[i] = (struct ranked){amount > 0 ? s->chip[i].harm / amount : HUGE_VAL, i};
        }
        if (s->n > 1)
            qsort(tmp, s->n, sizeof(*tmp), cmp_rate);
        for (uint32_t i = 0; i < s->n; i++)
            s->order[by][i] = tmp[i].i;
    }
}

static int cmp_chip(const void *pa, const void *pb) /* the most harm first */
{
    const struct chip *a = pa, *b = pb;

    if (a->harm != b->harm)
        return a->harm > b->harm ? -1 : 1;
    return strcmp(b->s->hold->key, a->s->hold->key);
}

static void gone_leave(struct planner *x, uint32_t node)
{
    for (uint32_t i = x->first[node]; i < x->first[node + 1]; i++) {
        const struct suspect *v = &x->s[x->seats[i].suspect];

        if (v->gone)
            seat_take(x->view, v->hold, &v->hold->at[x->seats[i].at], -1);
    }
}

/* One search over the view as it is; only devices that it lets count. */
static double search_run(struct planner *x, uint32_t node, uint32_t slots, double bound,
                         uint32_t *ret, uint32_t *ret_n)
{
    uint32_t most = x->first[node + 1] - x->first[node];
    struct search s = {.x = x, .slots = slots, .bound = bound, .ret = ret, .ret_n = ret_n};
    char *mem = mem_zalloc((sizeof(struct chip) + sizeof(struct ranked) +
                            (BY_NR + 1) * sizeof(uint32_t) + sizeof(bool)) *
                           (most + 1));
    double least = 0;

    s.chip = (struct chip *)(void *)mem;
    struct ranked *tmp = (struct ranked *)(void *)(s.chip + most + 1);
    s.set = (uint32_t *)(void *)(tmp + most + 1);
    for (int by = 0; by < BY_NR; by++)
        s.order[by] = s.set + (size_t)(by + 1) * (most + 1);
    s.go = (bool *)(s.set + (size_t)(BY_NR + 1) * (most + 1));
    wants(x, slots, s.want);
    chips_gather(&s, node);
    if (s.n > 1)
        qsort(s.chip, s.n, sizeof(*s.chip), cmp_chip);
    orders_build(&s, tmp);
    for (int by = 0; by < BY_NR; by++) {
        double b = s.want[by] > 0 ? rest_bound(&s, 0, by) : 0;

        least = b > least ? b : least;
    }
    if (least < bound) {
        for (uint32_t i = 0; i < s.n; i++)
            chip_take(&s, &s.chip[i], -1);
        if (view_slots(x) >= slots)
            descend(&s, 0, 0);
    }
    mem_free(mem);
    return s.bound < bound ? s.bound : HUGE_VAL;
}

/* A fraction lies on one device: each is a search of its own, with only that device in sight. */
static double by_device(struct planner *x, uint32_t member, uint32_t slots, double bound,
                        uint32_t *ret, uint32_t *ret_n)
{
    uint32_t node = x->p->t.members[member].node, n_dev;
    double best = HUGE_VAL;

    view_load(x, member);
    n_dev = x->view->node.n_dev;
    for (uint32_t d = 0; d < n_dev; d++) {
        double got;

        view_load(x, member);
        if (x->view->dev[d].member != 0 || x->view->dev[d].mig)
            continue;
        gone_leave(x, node);
        for (uint32_t k = 0; k < n_dev; k++)
            x->view->dev[k].member = k == d ? 0 : NONE;
        got = search_run(x, node, slots, bound, ret, ret_n);
        best = got < best ? got : best;
        if (got < bound)
            bound = got;
    }
    return best;
}

double node_solve(struct planner *x, uint32_t member, uint32_t slots, double bound, uint32_t *ret,
                  uint32_t *ret_n)
{
    uint32_t node = x->p->t.members[member].node;

    if (!x->p->t.nodes[node].ok)
        return HUGE_VAL;
    if (x->pl->need.mode == NEED_FRACTION && slots == 1)
        return by_device(x, member, slots, bound, ret, ret_n);
    view_load(x, member);
    gone_leave(x, node);
    return search_run(x, node, slots, bound, ret, ret_n);
}
