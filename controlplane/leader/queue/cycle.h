/* Cycles over the waiting workloads, in slices. */
#ifndef HANSE_CONTROLPLANE_LEADER_QUEUE_CYCLE_H
#define HANSE_CONTROLPLANE_LEADER_QUEUE_CYCLE_H

#include "controlplane/leader/context/context.h"

struct cycle;
struct cycles {
    struct cycle *now; /* the cycle under way, owned; NULL: none */
    /* wanted: a cycle is due; posted: a slice is posted to the loop */
    bool wanted, posted;
    unsigned in_flight; /* proposals of the last cycle without an answer; the next waits for 0 */
    struct timer timer;
    uint64_t begun, decided, last_ms; /* figures for status; last_ms: duration of the last cycle */
    struct durations slices, slices_cpu;
};

void cycle_init(struct brain *b);
void cycle_want(struct brain *b); /* a cycle begins soon, or after the one under way */
/* Count the commands of a cycle, or beside one, that are on their way into the log. No cycle begins
 * before all are answered, so that a pool never holds two guesses for one workload. */
void cycle_proposed(struct brain *b);
void cycle_answered(struct brain *b, bool refused);
void cycle_drop(struct brain *b); /* ends the cycle under way */
void cycle_stop(struct brain *b); /* ends it, and stops the timer */

#endif
