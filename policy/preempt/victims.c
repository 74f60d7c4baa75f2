/* Which workloads may be victims, and what their end would cost. The rules are checked twice: here
 * by the planner for everything that runs, and by the state machine for each victim before it takes
 * the plan (policy_victim_check). A protected class, a run below its minimum runtime, and a run
 * that is on its way out already are never victims. */
#include "policy/preempt/preempt_internal.h"

#include "api/base/failpoint.h"

#include <stdlib.h>
#include <string.h>

#define AHEAD 16
#define CPU_WORKER 0.001 /* GPUs that a worker without one counts for, so that its work counts */
/* What a victim leaves beyond what is asked for is not wasted: those who wait take it, and need no
 * victims of their own. Its harm is counted at this share. Measured on a recorded trace, see
 * tests/bench/preempt/README.md: from 0 to 0.4 less is lost in all than with 1. */
#define SPARE_SHARE 0.1

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

    if (c && c->neverVictim && !PLANTED("policy.any-victim"))
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

/* ---- harm ---- */
static void egress_begin(struct planner *x)
{
    const struct table *t = &x->p->t;
    size_t cells = (size_t)x->p->n_stores * t->n_targets;

    x->egress = arena_array(x->a, double, t->n_targets + 1);
    x->reach = arena_array(x->a, signed char, cells + 1);
    memset(x->reach, -1, cells);
    for (uint32_t i = 0; i < t->n_targets; i++) {
        const struct target_spec *s = t->targets[i].spec;
        const struct object *o =
            s ? docs_get(&x->p->docs[KIND_PRICE_SHEET], "", s->priceSheet) : NULL;

        /* Where there is no other target, nothing ever leaves. */
        x->egress[i] = o && t->n_targets > 1 ? object_as(o, price_sheet)->spec->egressPerGiB : 0;
    }
}

static bool reached_elsewhere(struct planner *x, const struct hold *h)
{
    const struct table *t = &x->p->t;
    signed char *cell;

    if (h->i_store == NONE)
        return false;
    cell = &x->reach[(size_t)h->i_store * t->n_targets + h->i_target];
    if (*cell < 0) {
        const char *store = object_as(h->workload, workload)->spec->checkpoint->store;

        *cell = 0;
        for (uint32_t i = 0; i < t->n_targets; i++) {
            const struct target_spec *s = t->targets[i].spec;

            if (s && i != h->i_target && store_listed(store, s))
                *cell = 1;
        }
    }
    return *cell;
}

/* Money for the checkpoint's way out, where no other target reaches the store that it lies in. */
static double egress_of(struct planner *x, const struct hold *h)
{
    if (h->state_bytes <= 0 || h->i_target == NONE || x->egress[h->i_target] <= 0 ||
        reached_elsewhere(x, h))
        return 0;
    return x->egress[h->i_target] * ((double)h->state_bytes / (double)(1 << 30));
}

static double charged(const struct planner *x, const struct hold *h, double harm)
{
    enum need_mode mode = x->pl->need.mode;

    if ((mode != NEED_WHOLE && mode != NEED_FRACTION) || h->milli <= x->milli)
        return harm;
    return harm * ((double)x->milli + SPARE_SHARE * (double)(h->milli - x->milli)) /
           (double)h->milli;
}

static struct victim judge(struct planner *x, const struct hold *h)
{
    double gpus = (double)h->milli / 1000, price = h->price > 0 ? h->price : 1;
    double weight = h->milli > 0 ? gpus : CPU_WORKER * h->n;
    double s = x->now_ms > h->unsaved_since ? (double)(x->now_ms - h->unsaved_since) / 1000 : 0;
    struct victim v = {.workload = h->workload};

    v.lost_gpu_s = gpus * s;
    v.restart_gpu_s = gpus * RESTART_HOURS * 3600;
    v.egress = egress_of(x, h);
    /* Where a GPU-hour has no price, it counts as one unit of money. */
    v.harm = weight * (s + RESTART_HOURS * 3600) + v.egress / price * 3600;
    v.charged = charged(x, h, v.harm);
    return v;
}

struct victim victim_of(struct planner *x, uint32_t suspect)
{
    struct victim v = judge(x, x->s[suspect].hold);

    v.reclaim = x->s[suspect].reclaim;
    return v;
}

int suspect_cmp(const struct planner *x, uint32_t a, uint32_t b)
{
    const struct suspect *p = &x->s[a], *q = &x->s[b];

    if (p->harm != q->harm)
        return p->harm < q->harm ? -1 : 1;
    return strcmp(p->hold->key, q->hold->key);
}

/* By heap: the order asks the planner, and a plan may have thousands of victims. */
static void sift(const struct planner *x, uint32_t *v, uint32_t i, uint32_t n)
{
    uint32_t top = v[i];

    for (uint32_t c; (c = 2 * i + 1) < n; i = c) {
        c += c + 1 < n && suspect_cmp(x, v[c + 1], v[c]) > 0;
        if (suspect_cmp(x, v[c], top) <= 0)
            break;
        v[i] = v[c];
    }
    v[i] = top;
}

void plan_sort(const struct planner *x, uint32_t *v, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(x, v, i, n);
    for (uint32_t i = n; i-- > 1;) {
        uint32_t last = v[i];

        v[i] = v[0];
        v[0] = last;
        sift(x, v, 0, i);
    }
}

/* ---- suspects ---- */
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

static bool suspect_is(struct planner *x, const struct hold *h, bool *ret_reclaim)
{
    const struct docs *d = &x->p->docs[KIND_PRIORITY_CLASS];
    const struct priority_class_spec *c;

    /* What is out of reach cannot be asked to go. */
    if (!h->runs || h->off || h == x->own || h->i_target == NONE ||
        x->p->t.targets[h->i_target].reach != REACH_YES)
        return false;
    c = h->i_priority == NONE ? NULL : object_as(d->v[h->i_priority], priority_class)->spec;
    if (c && ((c->neverVictim && !PLANTED("policy.any-victim")) ||
              (c->minimumRuntime > 0 && x->now_ms - h->runs_since < c->minimumRuntime)))
        return false;
    *ret_reclaim = !(x->may_preempt && value_of(c) < x->value);
    return !*ret_reclaim || may_reclaim(x, h);
}

static void seat_add(struct planner *x, uint32_t i, uint32_t k, uint32_t slot, int32_t milli)
{
    if (slot != NONE)
        x->seats[x->first[slot + 1]++] = (struct seat){i, k, milli};
}

/* Seats by node: counted, then filled. */
static void seats_build(struct planner *x)
{
    uint32_t nodes = x->p->t.n_nodes, sum = 0, most = 0;

    x->first = arena_array(x->a, uint32_t, nodes + 2);
    for (uint32_t i = 0; i < x->n; i++) {
        const struct hold *h = x->s[i].hold;

        if (x->s[i].slot != NONE) {
            x->first[x->s[i].slot + 2]++;
            continue;
        }
        for (uint32_t k = 0; k < h->n; k++) {
            if (h->at[k].slot != NONE)
                x->first[h->at[k].slot + 2]++;
        }
    }
    for (uint32_t i = 0; i < nodes; i++) {
        most = x->first[i + 2] > most ? x->first[i + 2] : most;
        sum += x->first[i + 2];
        x->first[i + 2] = sum;
    }
    x->rates = arena_array(x->a, struct rate, most + 1);
    x->seats = arena_array(x->a, struct seat, sum + 1);
    for (uint32_t i = 0; i < x->n; i++) {
        const struct hold *h = x->s[i].hold;

        if (x->s[i].slot != NONE) {
            seat_add(x, i, 0, x->s[i].slot, x->s[i].milli);
            continue;
        }
        for (uint32_t k = 0; k < h->n; k++)
            seat_add(x, i, k, h->at[k].slot, hold_at_milli(&h->at[k]));
    }
}

static void suspect_add(struct planner *x, struct hold *h, bool reclaim)
{
    struct suspect *s = &x->s[x->n++];

    *s = (struct suspect){.hold = h, .harm = judge(x, h).charged, .reclaim = reclaim, .slot = NONE};
    if (h->n != 1)
        return;
    s->slot = h->at[0].slot;
    s->milli = hold_at_milli(&h->at[0]);
}

void suspects_find(struct planner *x)
{
    const struct docs *d = &x->p->docs[KIND_PRIORITY_CLASS];
    uint32_t i_class = pool_priority_index(x->p, x->pl->spec);
    const struct priority_class_spec *c =
        i_class == NONE ? NULL : object_as(d->v[i_class], priority_class)->spec;
    size_t cells = ((size_t)x->p->n_queues + 1) * x->p->t.n_classes;

    x->value = value_of(c);
    x->may_preempt = may_preempt(c);
    x->own = pool_hold_of(x->p, x->pl->obj->meta->uid);
    x->borrowed = arena_array(x->a, int64_t, cells);
    for (size_t i = 0; i < cells; i++)
        x->borrowed[i] = -1;
    egress_begin(x);
    x->s = arena_array(x->a, struct suspect, x->p->n_holds + 1);
    for (uint32_t i = 0; i < x->p->n_holds; i++) {
        struct hold *h = x->p->holds[i];
        bool reclaim;

        /* They lie anywhere in memory: ask for those to come while this one is judged. */
        if (i + AHEAD < x->p->n_holds) {
            const char *next = (const char *)x->p->holds[i + AHEAD];

            __builtin_prefetch(next + offsetof(struct hold, i_target));
            __builtin_prefetch(next + offsetof(struct hold, at));
        }
        if (suspect_is(x, h, &reclaim))
            suspect_add(x, h, reclaim);
    }
    x->scratch = arena_array(x->a, uint32_t, 2 * ((size_t)x->n + 1));
    x->best.v = arena_array(x->a, uint32_t, x->n + 1);
    x->spare = arena_array(x->a, uint32_t, x->n + 1);
    seats_build(x);
}

/* ---- how far a reclaim may go ---- */
/* Work cannot be cut: one that holds borrowed and guaranteed GPUs may go, as what its queue is
 * guaranteed stays free for it. But nothing goes once its queue borrows no more, or once the
 * claimant has what it is owed. The smallest first, of equals in the order of the plan: that
 * allows the most, and the state machine asks in the same order. */
static int cmp_milli(const void *pa, const void *pb)
{
    const struct suspect *a = *(struct suspect *const *)pa, *b = *(struct suspect *const *)pb;

    if (a->hold->milli != b->hold->milli)
        return a->hold->milli < b->hold->milli ? -1 : 1;
    if (a->harm != b->harm)
        return a->harm < b->harm ? -1 : 1;
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
