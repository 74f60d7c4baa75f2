/* Who may be a victim, and what its end would cost. The rules are asked twice: here by the planner
 * for all that runs, and by the state machine for each victim before it takes the plan
 * (policy_victim_check). Never says yes to a protected class, below the minimum runtime, or to what
 * is on its way out already. */
#include "policy/preempt/preempt_internal.h"

#include <stdlib.h>
#include <string.h>

/* Preemption is what a class may do unless it says no; objects made in the process may carry no
 * default. */
#define PLACE_OF(type, c, ...) PLACE_##c,
enum { SCHEMA_priority_class_spec(PLACE_OF) };
#undef PLACE_OF

static const struct priority_class_spec *class_of(const struct workload_spec *s,
                                                  const struct object *const *classes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct priority_class_spec *c = object_as(classes[i], priority_class)->spec;

        if (s->priorityClassName[0] ? strcmp(classes[i]->meta->name, s->priorityClassName) == 0
                                    : c->globalDefault)
            return c;
    }
    return NULL;
}

static bool may_preempt(const struct priority_class_spec *c)
{
    return !c || c->mayPreempt || !(c->has >> PLACE_mayPreempt & 1);
}

static int64_t value_of(const struct priority_class_spec *c)
{
    return c ? c->value : 0;
}

static bool runs_undisturbed(const struct object *v)
{
    const struct workload_status *s = object_as(v, workload)->status;

    return s && s->phase == PHASE_RUNNING && s->placement && !s->migration[0] &&
           !v->meta->deletionTimestamp;
}

/* What neither priority nor quota can overrule. */
static enum reason spared(const struct object *v, const struct priority_class_spec *c,
                          int64_t now_ms)
{
    const struct workload_status *s = object_as(v, workload)->status;

    if (c && c->neverVictim)
        return REASON_VICTIM_PROTECTED;
    if (!runs_undisturbed(v))
        return REASON_VICTIM_NOT_RUNNING;
    if (c && c->minimumRuntime > 0 && now_ms - s->phaseSince < c->minimumRuntime)
        return REASON_VICTIM_YOUNG;
    return REASON_NONE;
}

enum reason policy_victim_check(const struct object *w, const struct object *v, int64_t now_ms,
                                const struct object *const *classes, size_t n_classes,
                                const struct object *const *queues, size_t n_queues,
                                int64_t (*held)(const char *queue, const char *class_, void *arg),
                                void *arg)
{
    const struct workload *ww = object_as(w, workload), *vw = object_as(v, workload);
    const struct priority_class_spec *wc = class_of(ww->spec, classes, n_classes);
    const struct priority_class_spec *vc = class_of(vw->spec, classes, n_classes);
    enum reason r = spared(v, vc, now_ms);
    int64_t borrowed, unfilled;
    struct need need;

    if (r != REASON_NONE)
        return r;
    if (strcmp(w->meta->uid, v->meta->uid) == 0)
        return REASON_VICTIM_NOT_LOWER;
    if (value_of(vc) < value_of(wc) && may_preempt(wc))
        return REASON_NONE;
    need_read(ww->spec, &need);
    borrowed = policy_quota_borrowed(
        policy_queue_of(v, queues, n_queues), policy_queue_of(w, queues, n_queues),
        vw->status->placement->class_, queues, n_queues, held, arg, &unfilled);
    return borrowed > 0 && need_milli(&need, need.min_workers) <= unfilled
               ? REASON_NONE
               : REASON_VICTIM_NOT_LOWER;
}

/* ---- harm
 * ------------------------------------------------------------------------------------------------------
 */
/* Since when work would have to be done again: the newest checkpoint of this very epoch, or its
 * placement. The phase's own time is not asked: it begins anew when a target was out of reach. */
static int64_t unsaved_since(const struct workload_status *s)
{
    if (s->checkpoint && s->checkpoint->verifiedAt && s->checkpoint->epoch == s->epoch)
        return s->checkpoint->verifiedAt;
    return s->placement->since ? s->placement->since : s->phaseSince;
}

/* Money for the checkpoint's way out, where no other target reaches the store that it lies in. */
static double egress_of(const struct pool *p, const struct hold *h)
{
    const struct workload *w = object_as(h->workload, workload);
    const struct table *t = &p->t;
    const struct target_rec *here = h->i_target == NONE ? NULL : &t->targets[h->i_target];
    const char *store = w->spec->checkpoint ? w->spec->checkpoint->store : "";
    const struct object *sheet;
    double price;

    if (!here || !here->spec || !here->spec->priceSheet[0] || !w->status->checkpoint ||
        w->status->checkpoint->bytes <= 0)
        return 0;
    sheet = docs_get(&p->docs[KIND_PRICE_SHEET], "", here->spec->priceSheet);
    price = sheet ? object_as(sheet, price_sheet)->spec->egressPerGiB : 0;
    if (price <= 0 || t->n_targets < 2)
        return 0;
    for (uint32_t i = 0; store[0] && i < t->n_targets; i++) {
        const struct target_spec *s = t->targets[i].spec;

        if (s && i != h->i_target && text_in(store, (const char *const *)s->stores, s->n_stores))
            return 0;
    }
    return price * ((double)w->status->checkpoint->bytes / (double)(1 << 30));
}

static void judge_harm(const struct planner *x, struct suspect *s)
{
    const struct workload_status *st = object_as(s->hold->workload, workload)->status;
    double gpus = (double)s->hold->milli / 1000, price = st->placement->gpuHourPrice;
    int64_t ms = x->now_ms - unsaved_since(st);

    s->lost = ms > 0 ? gpus * (double)ms / 1000 : 0;
    s->restart = gpus * RESTART_HOURS * 3600;
    s->egress = egress_of(x->p, s->hold);
    /* Where a GPU-hour has no price, it counts as one unit of money. */
    s->harm = s->lost + s->restart + s->egress / (price > 0 ? price : 1) * 3600;
}

/* ---- suspects
 * --------------------------------------------------------------------------------------------------
 */
static bool may_reclaim(struct planner *x, const struct hold *h)
{
    uint32_t q = h->i_queue == NONE ? x->p->n_queues : h->i_queue;
    int64_t *cell, unfilled;

    if (x->pl->queue == NONE || h->i_class == NONE || h->milli <= 0)
        return false;
    cell = &x->borrowed[(size_t)q * x->p->t.n_classes + h->i_class];
    if (*cell < 0) {
        struct quota_view v = quota_view_pool(x->p, h->i_class);

        *cell = quota_borrowed(&v, h->i_queue, x->pl->queue, &unfilled);
        if (x->milli > unfilled)
            *cell = 0;
    }
    return *cell > 0;
}

static bool suspect_is(struct planner *x, struct hold *h, bool *ret_reclaim)
{
    const struct docs *d = &x->p->docs[KIND_PRIORITY_CLASS];
    const struct object *v = h->workload;
    const struct priority_class_spec *c;

    if (h->kind != HOLD_PLACED || h->off || !runs_undisturbed(v) ||
        strcmp(v->meta->uid, x->pl->obj->meta->uid) == 0)
        return false;
    c = class_of(object_as(v, workload)->spec, d->v, d->n);
    if (spared(v, c, x->now_ms) != REASON_NONE)
        return false;
    *ret_reclaim = !(x->may_preempt && value_of(c) < x->value);
    return !*ret_reclaim || may_reclaim(x, h);
}

static int cmp_suspect(const void *pa, const void *pb)
{
    const struct suspect *a = pa, *b = pb;

    if (a->harm != b->harm)
        return a->harm < b->harm ? -1 : 1;
    return strcmp(a->hold->key, b->hold->key);
}

/* Seats by node: counted, then filled in the order of the suspects, so that equal sets of holds
 * give equal lists whatever the order in which they came. */
static void seats_build(struct planner *x)
{
    uint32_t nodes = x->p->t.n_nodes, sum = 0;

    x->first = arena_array(x->a, uint32_t, nodes + 2);
    for (uint32_t i = 0; i < x->n; i++) {
        for (uint32_t k = 0; k < x->s[i].hold->n; k++) {
            if (x->s[i].hold->at[k].slot != NONE)
                x->first[x->s[i].hold->at[k].slot + 2]++;
        }
    }
    for (uint32_t i = 0; i < nodes; i++) {
        sum += x->first[i + 2];
        x->first[i + 2] = sum;
    }
    x->seats = arena_array(x->a, struct seat, sum + 1);
    for (uint32_t i = 0; i < x->n; i++) {
        for (uint32_t k = 0; k < x->s[i].hold->n; k++) {
            uint32_t node = x->s[i].hold->at[k].slot;

            if (node != NONE)
                x->seats[x->first[node + 1]++] = (struct seat){i, k};
        }
    }
}

void suspects_find(struct planner *x)
{
    const struct docs *d = &x->p->docs[KIND_PRIORITY_CLASS];
    const struct priority_class_spec *c = class_of(x->pl->spec, d->v, d->n);
    size_t cells = ((size_t)x->p->n_queues + 1) * x->p->t.n_classes;

    x->value = value_of(c);
    x->may_preempt = may_preempt(c);
    x->borrowed = arena_array(x->a, int64_t, cells);
    for (size_t i = 0; i < cells; i++)
        x->borrowed[i] = -1;
    x->s = arena_array(x->a, struct suspect, x->p->n_holds + 1);
    for (uint32_t i = 0; i < x->p->n_holds; i++) {
        bool reclaim;

        if (!suspect_is(x, x->p->holds[i], &reclaim))
            continue;
        x->s[x->n] = (struct suspect){.hold = x->p->holds[i], .reclaim = reclaim};
        judge_harm(x, &x->s[x->n++]);
    }
    if (x->n > 1)
        qsort(x->s, x->n, sizeof(*x->s), cmp_suspect);
    seats_build(x);
}

/* ---- how far a reclaim may go
 * ----------------------------------------------------------------------------------
 * Work cannot be cut: one that holds borrowed and guaranteed GPUs may go, as what its queue is
 * guaranteed stays free for it. But nothing goes once its queue borrows no more, or once the
 * claimant has what it is owed. The smallest first: that allows the most. */
static int cmp_milli(const void *pa, const void *pb)
{
    const struct suspect *a = *(struct suspect *const *)pa, *b = *(struct suspect *const *)pb;

    if (a->hold->milli != b->hold->milli)
        return a->hold->milli < b->hold->milli ? -1 : 1;
    return strcmp(a->hold->key, b->hold->key);
}

bool reclaim_bounds(struct planner *x, const uint32_t *v, uint32_t n)
{
    struct suspect **r = mem_zalloc(sizeof(struct suspect *) * (n + 1));
    uint32_t k = 0, done = 0;
    bool ok = true;

    for (uint32_t i = 0; i < n; i++) {
        if (x->s[v[i]].reclaim)
            r[k++] = &x->s[v[i]];
    }
    if (k > 1)
        qsort(r, k, sizeof(struct suspect *), cmp_milli);
    for (; ok && done < k; done++) {
        struct hold *h = r[done]->hold;
        struct quota_view q = quota_view_pool(x->p, h->i_class);
        int64_t unfilled, taken = 0;

        for (uint32_t i = 0; i < done; i++)
            taken += r[i]->hold->i_class == h->i_class ? r[i]->hold->milli : 0;
        ok = quota_borrowed(&q, h->i_queue, x->pl->queue, &unfilled) > 0 && taken < unfilled;
        accounts_add(x->p, h, -1);
    }
    while (done-- > 0)
        accounts_add(x->p, r[done]->hold, 1);
    mem_free(r);
    return ok;
}
