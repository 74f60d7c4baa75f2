/* Who waits for a place, in the order of the lanes. */
#ifndef HANSE_CONTROLPLANE_LEADER_QUEUE_WAITING_H
#define HANSE_CONTROLPLANE_LEADER_QUEUE_WAITING_H

#include "controlplane/leader/context/context.h"

struct waiting {
    struct tree *queued, *stopped; /* Workloads by policy_wait_key */
    struct tree *resume;           /* by lane: whom the last cycle would have looked at next */
};

/* It waits for the scheduler. Who is on its way from one place to another waits for its mover. */
bool workload_queued(const struct object *o);
/* Stopped by its partition policy, and its owner holds it: queued, so that letting go starts it. */
bool workload_stopped_held(const struct object *o);
struct tree *waiting_tree(void); /* empty; of Workloads */
void waiting_reset(struct brain *b);
void waiting_change(struct brain *b, const struct object *before, const struct object *after);
void waiting_enter(struct brain *b, const struct object *o); /* held.c lets it in again */
void waiting_drop(struct brain *b);
/* After o in its lane; the first of the lane after that of o (NULL: of all). NULL: nobody. */
const struct object *waiting_next(const struct tree *queued, const struct object *o);
const struct object *waiting_lane(const struct tree *queued, const struct object *o);

#endif
