/* Room for those who may preempt, and nominations. */
#ifndef HANSE_CONTROLPLANE_LEADER_MOVE_PREEMPT_H
#define HANSE_CONTROLPLANE_LEADER_MOVE_PREEMPT_H

#include "controlplane/leader/context/context.h"

struct preempts {
    bool waiting;            /* somebody waits for room */
    bool planning, dropping; /* a command is on its way into the log */
    uint64_t cycled_ms;      /* on the loop: when a cycle was last asked for, for time passes */
    struct vain {            /* looked at, and nothing helped */
        char uid[64];
        uint64_t until_ms;
    } vain[64];
    unsigned next_vain;
    struct list nominees; /* workloads for which room is being made, */
    void *nominees_by_uid;
    size_t n_nominees;
};

/* After a cycle over the queue: room for those who may preempt, the first CYCLE_ROOM that wait for
 * it, in queue order. */
#define CYCLE_ROOM 96 /* of those who wait for room: more than may have been looked at in vain */
bool preempt_waits(const struct cycle_item *it); /* for room that others hold */
struct preempt_walk {                            /* zeroed: from the first on */
    size_t at;
    unsigned looks;
};
/* At most one plan each time, for a plan is as much as a slice may take. False: it is over. */
bool preempt_cycle(struct brain *b, const struct cycle_item *waiting, size_t n,
                   struct preempt_walk *walk);
void preempt_nominee(struct brain *b, const struct object *workload); /* as the root now has it */
size_t preempt_count(const struct brain *b);                          /* of nominations */
void preempt_tick(struct brain *b);
void preempt_init(struct brain *b);
void preempt_reset(struct brain *b);
void preempt_drop(struct brain *b);

#endif
