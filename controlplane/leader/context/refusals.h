/* What follows on a refused order, by what its target blames. */
#ifndef HANSE_CONTROLPLANE_LEADER_CONTEXT_REFUSALS_H
#define HANSE_CONTROLPLANE_LEADER_CONTEXT_REFUSALS_H

#include "controlplane/leader/context/context.h"

/* The cluster's time; of a brain without a core (tests): that of its state. */
int64_t brain_time_ms(const struct brain *b);
/* What the state is told of a refusal, for how long: of the target, of a zone or a class of it, or
 * of this workload there. False: nothing, because nobody is blamed or not all members know of
 * it. */
bool refusal_pause(const struct root *r, const struct object *workload, const char *target,
                   const struct refusal *why, struct target_pause *ret);
/* How many ms a pause still lasts that concerns the place of the workload there; 0: none. */
int64_t refusal_lasts(const struct brain *b, const struct object *workload, const char *target);

#endif
