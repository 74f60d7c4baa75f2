/* Estimates when a workload starts: the first expected end of running work after which it fits,
 * tried in order on the pool as it would be then. It is computed only for the head of a queue,
 * because the start of every other depends on those before it. Work that states no duration, or is
 * overdue, counts as running on. There is no estimate when the next few ends make no room: a guess
 * further ahead is worth nothing. */
#include "policy/hints/hints_internal.h"

#include <string.h>

#define ENDS_MAX 64
#define HOLDS_MAX 20000

struct end {
    struct hold *hold;
    int64_t at_ms;
};

/* Could its end help? It is where room is missing, or holds of the class of which quota is. */
static bool in_the_way(const struct hints *h, const struct hold *hold)
{
    for (uint32_t i = 0; i < h->pl->n_rows; i++) {
        const struct row *r = &h->pl->rows[i];
        const struct group *g = r->group == NONE ? NULL : &h->p->t.groups[r->group];

        if (!g)
            continue;
        if (reason_cure(r->reason) == CURE_ROOM && hold->i_target == r->target &&
            (hold->i_class == g->class_ || r->reason == REASON_CPU ||
             r->reason == REASON_MEMORY || r->reason == REASON_OTHERS))
            return true;
        if (reason_cure(r->reason) == CURE_QUOTA && hold->i_class == g->class_)
            return true;
    }
    return false;
}

static bool sooner(const struct end *a, const struct end *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : strcmp(a->hold->key, b->hold->key) < 0;
}

/* The next ENDS_MAX, in order. */
static uint32_t ends_find(const struct hints *h, struct end *v)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->p->n_holds; i++) {
        struct end e = {h->p->holds[i], 0};
        uint32_t at;

        if (e.hold->kind != HOLD_PLACED || e.hold->off || !in_the_way(h, e.hold))
            continue;
        e.at_ms = hold_ends_at(h->p, e.hold);
        if (e.at_ms <= h->rq->now_ms || (n == ENDS_MAX && !sooner(&e, &v[n - 1])))
            continue;
        n += n < ENDS_MAX;
        for (at = n - 1; at > 0 && sooner(&e, &v[at - 1]); at--)
            v[at] = v[at - 1];
        v[at] = e;
    }
    return n;
}

/* Does it fit at the end of the k-th, those before it gone? */
static bool fits_after(struct hints *h, struct end *v, uint32_t n, uint32_t k, struct tried *t)
{
    bool r;

    for (uint32_t i = 0; i <= k && i < n; i++)
        hold_switch(h->p, v[i].hold, false);
    r = hint_try(h, h->rq->workload, v[k].at_ms, t);
    for (uint32_t i = 0; i <= k && i < n; i++)
        hold_switch(h->p, v[i].hold, true);
    return r;
}

static void tell(const struct hints *h, const struct end *e, struct decision_spec *d)
{
    const struct meta *who = e->hold->workload->meta, *own = h->rq->workload->meta;

    d->startEstimate = e->at_ms;
    d->startAfter = strcmp(who->namespace_, own->namespace_) == 0
                        ? arena_strdup(h->a, who->name)
                        : arena_printf(h->a, "%s/%s", who->namespace_, who->name);
}

int policy_start_estimate(const struct pool *p, const struct place_request *rq, struct arena *a,
                          struct decision_spec *d, struct err *err)
{
    AUTO_ARENA scratch = arena_create(0);
    struct hints h = {.p = pool_settle(p), .rq = rq, .a = a, .tries = HINT_TRIES};
    struct end v[ENDS_MAX];
    uint32_t n, low = 0, high;
    struct tried t;
    int r;

    if (rq->queue_position > 1 || h.p->n_holds > HOLDS_MAX ||
        pool_nominated(p, rq->workload->meta->uid))
        return 0;
    h.pl = arena_new(scratch, struct place);
    r = place_look(h.pl, h.p, rq, scratch, err);
    if (r < 0 || h.pl->chosen || h.pl->pending != REASON_NONE)
        return r;
    n = ends_find(&h, v);
    if (!n || !fits_after(&h, v, n, n - 1, &t))
        return 0;
    for (high = n - 1; low < high;) { /* fits after high, not before low */
        uint32_t mid = low + (high - low) / 2;

        if (fits_after(&h, v, n, mid, &t))
            high = mid;
        else
            low = mid + 1;
    }
    tell(&h, &v[low], d);
    return 0;
}
