/* Workloads that wait for a place, in the order of the lanes. */
#ifndef HANSE_CONTROLPLANE_LEADER_QUEUE_WAITING_H
#define HANSE_CONTROLPLANE_LEADER_QUEUE_WAITING_H

#include "controlplane/leader/context/context.h"

struct waiting {
    struct tree *queued, *stopped; /* Workloads by policy_wait_key */
    struct tree *resume; /* by lane: the workload that the last cycle would have looked at next */
};

/* True when it waits for the scheduler. A workload between two places waits for its mover
 * instead. */
bool workload_queued(const struct object *o);
/* True when its partition policy stopped it and its owner suspended it: it is queued, so that
 * resuming starts it. */
bool workload_stopped_held(const struct object *o);
struct tree *waiting_tree(void); /* an empty tree of Workloads */
void waiting_reset(struct brain *b);
void waiting_change(struct brain *b, const struct object *before, const struct object *after);
void waiting_enter(struct brain *b, const struct object *o); /* held.c releases it */
void waiting_drop(struct brain *b);
/* waiting_next: the workload after o in its lane. waiting_lane: the first of the lane after o's, or
 * of all when o is NULL. Both return NULL when there is none. */
const struct object *waiting_next(const struct tree *queued, const struct object *o);
const struct object *waiting_lane(const struct tree *queued, const struct object *o);

#endif
