/* One decision whether a run should move: its cost and its gain. */
#ifndef HANSE_POLICY_MOVE_INTERNAL_H
#define HANSE_POLICY_MOVE_INTERNAL_H

#include "policy/place/place_internal.h"

/* What a policy that names causes, but no figures, gets. */
#define MOVE_MIN_STAY_MS (10L * 60 * 1000)

struct moving {
    struct place *pl; /* the decision about it, with its own quota given back */
    const struct placement *at;
    /* its present place, priced as a candidate would be; group NONE: not known any more */
    struct row here;
    uint32_t step;     /* its step of the policy's order; NONE: no step */
    double gpus;       /* GPUs that it holds */
    double speed;      /* relative speed of its class */
    double lost_h;     /* hours since its newest verified checkpoint, on its class */
    double left_h;     /* hours of work left at speed 1, if it stays; 0: overdue */
    bool left_guessed; /* it states no duration */
};
/* Fills in the figures of a move to r: lost work, money, saving (0 without prices). */
void move_figures(const struct moving *m, const struct row *r, struct move_choice *ret);
uint32_t order_step_of(const struct placement_policy_spec *order, const struct object *target,
                       enum capacity capacity); /* returns NONE when it is in no step */
double move_min_saving(const struct migrate_policy *s);
/* move_gain.c: chooses a row for the cause, and the reason; NULL: none is worth it. */
struct row *move_gain(const struct moving *m, enum move_cause cause, struct move_choice *ret);
/* move_must.c: policy_must_leave, with a sentence in why. */
enum move_cause must_leave(const struct pool *p, const struct object *workload, char *why,
                           size_t size);

#endif
