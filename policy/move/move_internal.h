/* One question whether a run should move: what it costs, what it brings. */
#ifndef HANSE_POLICY_MOVE_INTERNAL_H
#define HANSE_POLICY_MOVE_INTERNAL_H

#include "policy/place/place_internal.h"

struct moving {
    struct place *pl; /* looked at, with its own quota given back */
    const struct placement *at;
    /* where it is: priced as a candidate would be; group NONE: not known any more */
    struct row here;
    uint32_t step;     /* of the policy's order; NONE: of none */
    double gpus;       /* that it holds */
    double speed;      /* of the class here */
    double lost_h;     /* since its newest verified checkpoint, on this class */
    double left_h;     /* of work at speed 1, when it stays; 0 = overdue */
    bool left_guessed; /* its duration is not told */
};
/* Figures of a move to r: lost work, money, saving (0 without prices). */
void move_figures(const struct moving *m, const struct row *r, struct move_choice *ret);
uint32_t order_step_of(const struct placement_policy_spec *order, const struct object *target,
                       enum capacity capacity); /* NONE: of none */
double move_min_saving(const struct migrate_policy *s);
/* move_gain.c: chooses a row for the cause and says why; NULL: none is worth it. */
struct row *move_gain(const struct moving *m, enum move_cause cause, struct move_choice *ret);
/* move_must.c: as policy_must_leave, with the sentence. */
enum move_cause must_leave(const struct pool *p, const struct object *workload, char *why,
                           size_t size);

#endif
