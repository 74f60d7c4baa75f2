/* Cycles over those who wait, in slices. */
#ifndef HANSE_CONTROLPLANE_LEADER_QUEUE_CYCLE_H
#define HANSE_CONTROLPLANE_LEADER_QUEUE_CYCLE_H

#include "controlplane/leader/context/context.h"

struct cycle;
struct cycles {
    struct cycle *now; /* under way, or NULL */
    bool wanted, posted;
    unsigned in_flight; /* answers to what the last one proposed; awaited before the next */
    struct timer timer;
    uint64_t begun, decided, last_ms; /* for people; last_ms: how long the last one took */
    struct durations slices, slices_cpu;
};

void cycle_init(struct brain *b);
void cycle_want(struct brain *b); /* one begins soon, or after the one under way */
/* A command of the cycle, or beside it, is on its way into the log; its answer came. None begins
 * before all have come, so that a pool never holds two guesses for one workload. */
void cycle_proposed(struct brain *b);
void cycle_answered(struct brain *b, bool refused);
void cycle_drop(struct brain *b); /* ends the one under way */
void cycle_stop(struct brain *b); /* and none begins by time */

#endif
