/* The pool, as it follows the root, and what cycles decide on its way into the log. */
#ifndef HANSE_CONTROLPLANE_LEADER_QUEUE_SCHEDULER_H
#define HANSE_CONTROLPLANE_LEADER_QUEUE_SCHEDULER_H

#include "controlplane/leader/context/context.h"

struct scheduler { /* for people; since this process began */
    uint64_t placed, refused;
};

void scheduler_reset(struct brain *b); /* a pool from the whole root */
void scheduler_change(struct brain *b, const struct change *c);
void scheduler_reach(struct brain *b, const char *target, bool reachable);
void scheduler_node(struct brain *b, const struct object *node); /* as it is to be used now */
void scheduler_want(struct brain *b);
/* A step of the machine of a workload that holds nothing. */
void scheduler_step(struct brain *b, const struct object *o, enum run_step step, const char *reason,
                    const char *message);
/* Proposes what was decided about one workload: its place, or why it waits. */
void scheduler_tell(struct brain *b, const struct cycle_item *it);

#endif
