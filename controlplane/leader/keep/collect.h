/* Proposes, slice by slice, what follows from deletions and changed GpuClasses. */
#ifndef HANSE_CONTROLPLANE_LEADER_KEEP_COLLECT_H
#define HANSE_CONTROLPLANE_LEADER_KEEP_COLLECT_H

#include "controlplane/leader/context/context.h"

struct collect {
    struct timer rest;
    bool under_way; /* a slice is on its way into the log */
    /* loop time of the last proposal; number of answers */
    uint64_t asked_ms, slices;
};

void collect_look(struct brain *b); /* called at every new root */
void collect_reset(struct brain *b);
void collect_drop(struct brain *b);

#endif
