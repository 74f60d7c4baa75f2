/* The pool, which follows the root, and the PLACE commands for what cycles decide. */
#ifndef HANSE_CONTROLPLANE_LEADER_QUEUE_SCHEDULER_H
#define HANSE_CONTROLPLANE_LEADER_QUEUE_SCHEDULER_H

#include "controlplane/leader/context/context.h"

struct scheduler { /* figures for status, since the process began */
    uint64_t placed, refused;
};

void scheduler_reset(struct brain *b); /* makes the pool from the whole root */
void scheduler_change(struct brain *b, const struct change *c);
void scheduler_reach(struct brain *b, const char *target, bool reachable);
/* puts the node into the pool as it may be used now */
void scheduler_node(struct brain *b, const struct object *node);
void scheduler_want(struct brain *b);
/* Proposes a step of a workload that holds no place. */
void scheduler_step(struct brain *b, const struct object *o, enum run_step step, const char *reason,
                    const char *message);
/* Proposes the decision about one workload: its place, or the reason why it waits. */
void scheduler_tell(struct brain *b, const struct cycle_item *it);

#endif
