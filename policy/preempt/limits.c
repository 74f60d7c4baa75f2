/* For a preemptor that lacks more than room: work that may be a victim uses up its quota, the
 * policy's maxGPUs or the target's limit of workloads. This finds the room first, then adds the
 * victims that let the workload through, the least harm for what they give back first; then it lets
 * victims stay that are not needed. */
#include "policy/preempt/preempt_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct obstacle {
    enum reason reason; /* REASON_NONE: nothing is in the way */
    uint32_t queue;     /* whose limit; NONE = everybody's */
    bool all;           /* GPUs of any class count */
    int64_t missing;    /* GPUs × 1000, or workloads */
};

static struct obstacle obstacle_find(struct planner *x, const struct offer *o)
{
    const struct group *g = &x->p->t.groups[o->group];
    const struct target_rec *t = &x->p->t.targets[g->target];
    struct quota_view v = quota_view_pool(x->p, g->class_);
    struct obstacle r = {.queue = NONE};
    struct quota_answer a;

    if (x->pl->order && x->pl->order->maxGPUs > 0 &&
        x->p->policy_held[x->pl->i_policy] + x->milli > x->pl->order->maxGPUs * 1000)
        return (struct obstacle){.reason = REASON_POLICY_LIMIT,
                                 .queue = NONE,
                                 .missing = x->p->policy_held[x->pl->i_policy] + x->milli -
                                            x->pl->order->maxGPUs * 1000};
    if (t->spec->limits && t->spec->limits->workloads > 0 &&
        t->workloads >= t->spec->limits->workloads)
        return (struct obstacle){.reason = REASON_TARGET_LIMIT,
                                 .queue = NONE,
                                 .missing = t->workloads + 1 - t->spec->limits->workloads};
    if (!x->p->n_queues || x->pl->need.mode == NEED_CPU)
        return r;
    a = quota_check(&v, x->pl->queue, x->milli);
    r.reason = a.reason;
    r.all = a.all;
    if (a.reason == REASON_QUOTA_BURST) {
        r.queue = strmap_get(&x->p->queue_by_name, a.queue);
        r.missing = a.held + x->milli - a.limit;
    } else if (a.reason != REASON_NONE) {
        r.missing = x->milli - (a.limit - a.held);
    }
    return r;
}

static bool helps(const struct planner *x, const struct obstacle *b, const struct offer *o,
                  const struct hold *h)
{
    const struct group *g = &x->p->t.groups[o->group];
    uint32_t q = h->i_queue;

    if (b->reason == REASON_TARGET_LIMIT)
        return h->i_target == g->target;
    if (b->reason == REASON_POLICY_LIMIT)
        return h->milli > 0 && h->i_policy == x->pl->i_policy;
    if (h->milli <= 0 || (!b->all && h->i_class != g->class_))
        return false;
    while (q != NONE && q != b->queue)
        q = x->p->queue_tree.parent[q];
    return b->queue == NONE || q == b->queue;
}

/* The suspect that gives back most for its harm; NONE when nobody helps. */
static uint32_t cheapest(const struct planner *x, const struct obstacle *b, const struct offer *o,
                         const bool *useless)
{
    uint32_t best = NONE;
    double best_rate = HUGE_VAL;

    for (uint32_t i = 0; i < x->n; i++) {
        const struct hold *h = x->s[i].hold;
        int64_t gives;
        double rate;

        if (h->off || useless[i] || !helps(x, b, o, h))
            continue;
        gives = b->reason == REASON_TARGET_LIMIT ? 1 : h->milli;
        rate = x->s[i].harm / (double)(gives < b->missing ? gives : b->missing);
        if (rate > best_rate || (rate == best_rate && suspect_cmp(x, i, best) > 0))
            continue;
        best = i;
        best_rate = rate;
    }
    return best;
}

/* Takes victims off until nothing is in the way; false when that does not come to pass. */
static bool clear_way(struct planner *x, const struct offer *o, uint32_t *v, uint32_t *n,
                      bool *useless)
{
    struct obstacle b = obstacle_find(x, o), after;

    while (b.reason != REASON_NONE) {
        uint32_t i = cheapest(x, &b, o, useless);

        if (i == NONE)
            return false;
        hold_switch(x->p, x->s[i].hold, false);
        after = obstacle_find(x, o);
        /* What a queue that does not lend gives back is kept for it: no help to others. */
        if (after.reason == b.reason && after.queue == b.queue && after.missing >= b.missing) {
            hold_switch(x->p, x->s[i].hold, true);
            useless[i] = true;
            continue;
        }
        v[(*n)++] = i;
        b = after;
    }
    return true;
}

static bool has_room(struct planner *x, const struct offer *o)
{
    struct gang_answer answer;

    if (x->pl->need.workers == 1)
        return fit_single(&x->p->t, o->group, &x->pl->need) != NONE;
    arena_reset(x->fits); /* asked for each victim, in each offer */
    gang_fit(&x->p->t, o->group, &x->pl->need, x->pl->pack, x->fits, &answer);
    return answer.workers > 0;
}

/* Whoever may come back without being in the way stays, the dearest first. */
static uint32_t keep_needed(struct planner *x, const struct offer *o, uint32_t *v, uint32_t n)
{
    uint32_t *old = mem_alloc(sizeof(*old) * (n + 1)), k = 0;

    plan_sort(x, v, n);
    memcpy(old, v, sizeof(*v) * n);
    for (uint32_t i = n; i-- > 0;) {
        hold_switch(x->p, x->s[old[i]].hold, true);
        if (obstacle_find(x, o).reason == REASON_NONE && has_room(x, o))
            continue;
        hold_switch(x->p, x->s[old[i]].hold, false);
        v[k++] = old[i];
    }
    mem_free(old);
    return k;
}

void plan_limited(struct planner *x, const struct offer *o)
{
    struct solution before = x->best, room = {.v = x->spare};
    uint32_t *v = mem_alloc(sizeof(*v) * (2 * (size_t)x->n + 1)), n = 0;
    bool *useless = mem_zalloc(x->n + 1), ok = has_room(x, o);
    double harm = 0;

    if (!ok) {
        x->best = room;
        plan_offer(x, o);
        room = x->best;
        x->best = before;
        ok = room.offer != NULL;
    }
    for (uint32_t i = 0; i < room.n; i++) {
        v[n++] = room.v[i];
        hold_switch(x->p, x->s[room.v[i]].hold, false);
    }
    ok = ok && clear_way(x, o, v, &n, useless);
    if (ok)
        n = keep_needed(x, o, v, n);
    for (uint32_t i = 0; i < x->n; i++)
        hold_switch(x->p, x->s[i].hold, true);
    for (uint32_t i = 0; i < n; i++)
        harm += x->s[v[i]].harm;
    if (ok && reclaim_bounds(x, v, n))
        plan_keep(x, o, v, n, harm);
    mem_free(v);
    mem_free(useless);
}
