/* Preemption: room for workloads that may take it, and nominations. */
#ifndef HANSE_CONTROLPLANE_LEADER_MOVE_PREEMPT_H
#define HANSE_CONTROLPLANE_LEADER_MOVE_PREEMPT_H

#include "controlplane/leader/context/context.h"

struct preempts {
    bool waiting;            /* some workload waits for room */
    bool planning, dropping; /* a command was proposed and not answered */
    /* loop time at which a cycle was last asked for because time had passed */
    uint64_t cycled_ms;
    /* a workload for which no plan was found, and is not tried again before until_ms */
    struct vain {
        char uid[64];
        uint64_t until_ms;
    } vain[64];
    unsigned next_vain;
    struct list nominees; /* workloads for which room is being made */
    void *nominees_by_uid;
    size_t n_nominees;
};

/* After a cycle over the queue: room for the first CYCLE_ROOM workloads, in queue order, that wait
 * for it and may preempt. */
#define CYCLE_ROOM 96 /* more than the entries of preempts.vain */
/* true when the item waits for room that others hold */
bool preempt_waits(const struct cycle_item *it);
struct preempt_walk { /* position in the items; zeroed: at the first */
    size_t at;
    unsigned looks;
};
/* Makes at most one plan per call, for a plan is as much as a slice may take. False: the walk is
 * over. */
bool preempt_cycle(struct brain *b, const struct cycle_item *waiting, size_t n,
                   struct preempt_walk *walk);
/* reads its nomination from the root */
void preempt_nominee(struct brain *b, const struct object *workload);
size_t preempt_count(const struct brain *b); /* number of nominations */
void preempt_tick(struct brain *b);
void preempt_init(struct brain *b);
void preempt_reset(struct brain *b);
void preempt_drop(struct brain *b);

#endif
