/* A cycle over the queue: who is next, then place, hold, and look again. What does not fit lets the
 * next one try. */
#include "policy/place/place_internal.h"

#include <stdlib.h>
#include <string.h>

int policy_turn(struct pool *p, struct turns *t, size_t lane, struct cycle_item *it,
                const struct object *next, const struct place_request *rq, struct arena *a,
                struct err *err)
{
    int r = policy_place(p, rq, a, &it->decision, &it->placement, err);

    if (r == 0 && !it->placement)
        r = shadows_pass(turns_shadows(t), p, rq, it, a, err);
    if (r == 0 && it->placement)
        pool_hold_placement(p, it->workload, it->placement);
    policy_turns_took(t, lane, r == 0 && it->placement ? TURN_PLACED : TURN_WAITS, next);
    if (r == 0 && !it->placement)
        r = shadows_add(turns_shadows(t), p, rq, it->decision, a, err);
    return r;
}

bool policy_turns_keep(struct turns *t, struct pool *p)
{
    struct shadows *v = turns_shadows(t);
    bool looked = v->looked;

    v->looked = false;
    if (looked)
        shadows_begin(v, p);
    return looked;
}

void policy_turns_over(struct turns *t, struct pool *p, bool whole)
{
    shadows_end(turns_shadows(t), p, whole);
}

struct span { /* of the sorted items */
    size_t at, end;
};

/* Those that are alike stand together, in their order. */
static struct span *lanes_make(struct turns *t, const struct cycle_item *v, size_t n,
                               struct arena *a)
{
    struct span *s = arena_array(a, struct span, n + 1);
    size_t lanes = 0;

    for (size_t i = 0; i < n; i++) {
        if (i == 0 || !wait_same_lane(v[i - 1].workload, v[i].workload))
            s[lanes++] = (struct span){i, i};
        s[lanes - 1].end = i + 1;
    }
    for (size_t i = 0; i < lanes; i++)
        (void)policy_turns_lane(t, v[s[i].at].workload);
    return s;
}

int policy_cycle(struct pool *p, struct cycle_item *items, size_t n, int64_t now_ms, uint64_t seed,
                 int64_t log_index, size_t max_placed, struct arena *a, struct err *err)
{
    struct turns *t = policy_turns_create(p);
    struct cycle_item *v = arena_array(a, struct cycle_item, n + 1);
    struct span *spans;
    size_t placed = 0;
    int r = 0;

    for (size_t i = 0; i < n; i++)
        v[i] = (struct cycle_item){.workload = items[i].workload};
    if (n > 1)
        qsort(v, n, sizeof(*v), wait_cmp);
    spans = lanes_make(t, v, n, a);
    for (size_t i = 0; i < n; i++) {
        struct cycle_item *it = &items[i];
        struct place_request rq = {.now_ms = now_ms, .seed = seed, .log_index = log_index};
        size_t lane = policy_turns_next(t, &rq.queue_position);
        struct span *s = &spans[lane];
        const struct object *next = s->at + 1 < s->end ? v[s->at + 1].workload : NULL;

        INV(lane != SIZE_MAX);
        *it = v[s->at++];
        rq.workload = it->workload;
        it->position = rq.queue_position;
        if (r == 0 && (max_placed == 0 || placed < max_placed))
            r = policy_turn(p, t, lane, it, next, &rq, a, err);
        else
            policy_turns_took(t, lane, TURN_WAITS, next);
        (void)policy_turns_keep(t, p);
        placed += it->placement != NULL;
    }
    policy_turns_over(t, p, true);
    (void)policy_turns_destroy(t);
    return r;
}
