/* Figures about Migrations that ended while this brain led. */
#ifndef HANSE_CONTROLPLANE_LEADER_MOVE_MOVES_H
#define HANSE_CONTROLPLANE_LEADER_MOVE_MOVES_H

#include "controlplane/leader/context/context.h"

#define MOVE_CAUSES 12
#define PAUSE_BUCKETS 10
struct moves {
    uint64_t ended[MOVE_CAUSES][3]; /* by cause; then Succeeded, Failed, Cancelled */
    /* Histogram of the time without progress: counts by bucket, sum, number. */
    uint64_t pause[PAUSE_BUCKETS + 1], pause_sum_ms, pauses;
};

void moves_count(struct brain *b, const struct object *before, const struct object *after);
void moves_metrics(const struct brain *b, struct buf *out);

#endif
