/* Proposes, slice by slice, the indexes that arrays have to begin, suspend or resume. */
#ifndef HANSE_CONTROLPLANE_LEADER_KEEP_ARRAYS_H
#define HANSE_CONTROLPLANE_LEADER_KEEP_ARRAYS_H

#include "controlplane/leader/context/context.h"

struct arrays {
    struct timer rest;
    bool under_way, moved; /* moved: a slice of this round had an effect */
    struct cursor at;      /* the array whose slice was proposed last */
    uint64_t asked_ms;     /* loop time of the last proposal */
};

void arrays_look(struct brain *b); /* called at every new root */
void arrays_reset(struct brain *b);
void arrays_drop(struct brain *b);

#endif
