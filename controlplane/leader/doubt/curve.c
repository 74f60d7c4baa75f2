/* How far the resourceVersion had come at which time of the state. It lets the leader judge an
 * agent's report of how far the state was long ago. A copy that was put back goes on, and soon has
 * a higher resourceVersion than its original had; but not at the time that the agent reports.
 *
 * Dropped points make the answer larger, never smaller: a state that never went back must not be
 * accused. */
#include "controlplane/leader/doubt/back.h"

#define EVERY_MS 1000

void rv_curve_add(struct rv_curve *c, int64_t time_ms, uint64_t rv)
{
    const struct rv_point *last = c->n ? &c->v[c->n - 1] : NULL;

    if (last && (time_ms - last->time_ms < EVERY_MS || rv <= last->rv))
        return;
    if (!c->v)
        c->v = mem_alloc(RV_CURVE_MAX * sizeof *c->v);
    if (c->n == RV_CURVE_MAX) { /* drop every other point of the older half */
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

    while (lo < hi) { /* find the first point that is later */
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
