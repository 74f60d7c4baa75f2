/* Preemption: the set of running workloads whose end makes room and does the least harm. Planned
 * once over all targets and classes that everything but room lets the workload use, then tried: the
 * victims are taken off the pool, the workload is placed by the very code that will place it, and
 * all is put back. A plan that does not hold when it is tried is never returned. */
#include "policy/preempt/preempt_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_BYTES ((size_t)64 << 10) /* of one that is tried, without its decision */

/* ---- where ---- */
/* Is quota all that is against it? */
static bool past_quota(struct planner *x, struct row *r)
{
    if (reason_cure(r->reason) != CURE_QUOTA)
        return false;
    r->reason = REASON_NONE;
    price_row(x->pl, r);
    if (r->reason == REASON_NONE)
        filter_order(x->pl, r);
    return r->reason == REASON_NONE;
}

static void offers_find(struct planner *x)
{
    const struct table *t = &x->p->t;
    bool over = x->pl->pending == REASON_POLICY_LIMIT;

    x->offers = arena_array(x->a, struct offer, t->n_groups + 1);
    for (uint32_t i = 0; i < t->n_targets; i++) {
        const struct target_rec *r = &t->targets[i];
        enum reason why = r->obj ? filter_target(x->pl, i).reason : REASON_NO_TARGETS;

        if (why != REASON_NONE && why != REASON_TARGET_LIMIT)
            continue;
        for (uint32_t g = r->g0; g < r->g0 + r->n_groups; g++) {
            struct row row = {.target = i, .group = g, .member = NONE};
            bool quota;

            if (!group_asked_for(x->pl, g))
                continue;
            quota = !filter_group(x->pl, &row);
            if (quota && !past_quota(x, &row))
                continue;
            x->offers[x->n_offers++] =
                (struct offer){.group = g,
                               .rank = row.rank,
                               .useful = row.useful,
                               .limited = quota || over || why != REASON_NONE,
                               .kept = quota || over};
        }
    }
}

void plan_offer(struct planner *x, const struct offer *o)
{
    if (x->pl->need.workers == 1)
        plan_single(x, o);
    else
        plan_gang(x, o);
}

static void search(struct planner *x)
{
    x->best = (struct solution){.v = x->best.v};
    for (uint32_t i = 0; i < x->n_offers; i++) {
        const struct offer *o = &x->offers[i];
        const struct group *g = &x->p->t.groups[o->group];

        if (o->excluded)
            continue;
        need_at(x->pl, &x->pl->need, g);
        if (o->limited)
            plan_limited(x, o);
        else
            plan_offer(x, o);
    }
    need_at(x->pl, &x->pl->need, NULL);
}

/* ---- trying it ---- */
static int try_plan(struct planner *x, struct preempt_plan *ret, struct err *err)
{
    int r;

    for (uint32_t i = 0; i < x->best.n; i++)
        hold_switch(x->p, x->s[x->best.v[i]].hold, false);
    r = policy_place(x->p, x->pl->rq, x->a, &ret->decision, &ret->placement, err);
    for (uint32_t i = 0; i < x->best.n; i++)
        hold_switch(x->p, x->s[x->best.v[i]].hold, true);
    return r;
}

/* ---- the record ---- */
static void tell_victims(struct planner *x, struct preempt_plan *plan)
{
    struct decision_spec *d = plan->decision;
    char text[512];
    size_t n;
    size_t told = 0;

    n = (size_t)snprintf(text, sizeof(text), "makes room on %.64s; %.0f GPU-seconds are lost by ",
                         plan->placement->target, plan->lost_gpu_s);
    for (; told < plan->n && n < 360; told++) {
        const struct meta *m = plan->victims[told].workload->meta;

        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%.40s/%.60s (%.0f)", told ? ", " : "",
                              m->namespace_, m->name, plan->victims[told].lost_gpu_s);
    }
    if (told < plan->n)
        (void)snprintf(text + n, sizeof(text) - n, " and %zu more", plan->n - told);
    d->outcome = "Pending"; /* until its victims are proved gone */
    d->epoch = 0;
    d->reason = reason_text(REASON_PREEMPTING);
    d->message = arena_strdup(x->a, text);
    policy_decision_hint(d, NULL, 0); /* the last candidates go before the victims do */
}

static void fill_plan(struct planner *x, struct preempt_plan *plan)
{
    plan->n = x->best.n;
    plan->victims = arena_array(x->a, struct victim, plan->n + 1);
    plan_sort(x, x->best.v, x->best.n);
    for (uint32_t i = 0; i < x->best.n; i++) {
        plan->victims[i] = victim_of(x, x->best.v[i]);
        plan->harm += plan->victims[i].harm;
        plan->charged += plan->victims[i].charged;
        plan->lost_gpu_s += plan->victims[i].lost_gpu_s;
    }
    plan->requeue = x->best.offer->kept;
    tell_victims(x, plan);
}

/* At most what one plan takes, with all that run for suspects; each plan that is tried takes a
 * decision more. */
static size_t bytes_needed(const struct planner *x)
{
    const struct table *t = &x->p->t;
    size_t seats = 0, targets = t->n_targets + 1, holds = x->p->n_holds + 1;

    for (uint32_t i = 0; i < x->p->n_holds; i++)
        seats += x->p->holds[i]->n ? x->p->holds[i]->n : 1;
    return ((size_t)1 << 20) + ((size_t)t->n_groups + 1) * (sizeof(struct offer) + 512) +
           targets * (sizeof(double) + 512) + targets * x->p->n_stores +
           ((size_t)x->p->n_queues + 1) * t->n_classes * sizeof(int64_t) +
           ((size_t)t->n_nodes + 2) * sizeof(uint32_t) +
           holds * (sizeof(struct suspect) + 4 * sizeof(uint32_t) + sizeof(struct victim)) +
           (seats + 2) * (sizeof(struct seat) + sizeof(struct rate));
}

static int plan_make(struct planner *x, struct preempt_plan **ret, struct err *err)
{
    size_t needs = bytes_needed(x);
    int r = 0;

    if (needs > arena_room(x->a))
        return err_set(err, E_LIMIT,
                       "whom to end for it is not planned: with %u that run it takes %zu MiB, and "
                       "%zu MiB are there",
                       x->p->n_holds, needs >> 20, arena_room(x->a) >> 20);
    offers_find(x);
    suspects_find(x);
    if (!x->n)
        return 0;
    x->view = mem_new(struct view);
    x->fits = arena_create(0);
    for (;;) {
        if (arena_room(x->a) < PLAN_BYTES + x->n * sizeof(struct victim))
            break; /* the plans that were tried did not hold: no more of them */
        struct preempt_plan *plan = arena_new(x->a, struct preempt_plan);

        search(x);
        if (!x->best.offer)
            break;
        r = try_plan(x, plan, err);
        if (r < 0)
            break;
        if (plan->placement) {
            fill_plan(x, plan);
            *ret = plan;
            break;
        }
        x->offers[x->best.offer - x->offers].excluded = true;
    }
    mem_free(x->view);
    x->fits = arena_destroy(x->fits);
    return r;
}

int policy_preempt(const struct pool *p, const struct place_request *rq, struct arena *a,
                   struct preempt_plan **ret, struct err *err)
{
    struct planner *x = arena_new(a, struct planner);
    struct decision_spec *d;
    struct placement *placement;
    int r = policy_place(p, rq, a, &d, &placement, err);

    *ret = NULL;
    /* It needs no victims, or has some already. */
    if (r < 0 || placement || pool_nominated(p, rq->workload->meta->uid))
        return r;
    x->p = pool_settle(p);
    x->a = a;
    x->now_ms = rq->now_ms;
    x->pl = arena_new(a, struct place);
    x->pl->p = x->p;
    x->pl->rq = rq;
    x->pl->a = a;
    x->pl->obj = rq->workload;
    place_begin(x->pl);
    if (place_refused(x->pl) && x->pl->pending != REASON_POLICY_LIMIT)
        return 0;
    x->milli = need_milli(&x->pl->need, x->pl->need.min_workers);
    return plan_make(x, ret, err);
}
