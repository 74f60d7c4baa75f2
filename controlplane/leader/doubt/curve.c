/* How far the state had come at which of its own times: by it an agent's word of how far it once
 * was can be judged long after. A copy that was put back goes on, and soon has come further than
 * the state that it is a copy of; but at the time of which the agent speaks it had not.
 *
 * Points that are let go make what it says larger, never smaller: it must not accuse a state that
 * never went back. */
#include "controlplane/leader/doubt/back.h"

#define EVERY_MS 1000

void rv_curve_add(struct rv_curve *c, int64_t time_ms, uint64_t rv)
{
    const struct rv_point *last = c->n ? &c->v[c->n - 1] : NULL;

    if (last && (time_ms - last->time_ms < EVERY_MS || rv <= last->rv))
        return;
    if (!c->v)
        c->v = mem_alloc(RV_CURVE_MAX * sizeof *c->v);
    if (c->n == RV_CURVE_MAX) { /* every other one of the older half goes */
        size_t n = 0;
        for (size_t i = 0; i < RV_CURVE_MAX; i++)
            if (i >= RV_CURVE_MAX / 2 || i % 2)
                c->v[n++] = c->v[i];
        c->n = n;
    }
    c->v[c->n++] = (struct rv_point){time_ms, rv};
}

uint64_t rv_curve_most(const struct rv_curve *c, int64_t time_ms)
{
    size_t lo = 0, hi = c->n;

    while (lo < hi) { /* the first that is later */
        size_t mid = lo + (hi - lo) / 2;
        if (c->v[mid].time_ms > time_ms)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo < c->n && time_ms > 0 ? c->v[lo].rv : UINT64_MAX;
}

void rv_curve_fini(struct rv_curve *c)
{
    mem_free(c->v);
    *c = (struct rv_curve){0};
}
