/* What arrays have to begin or to tell, slice by slice. */
#ifndef HANSE_CONTROLPLANE_LEADER_KEEP_ARRAYS_H
#define HANSE_CONTROLPLANE_LEADER_KEEP_ARRAYS_H

#include "controlplane/leader/context/context.h"

struct arrays {
    struct timer rest;
    bool under_way, moved; /* moved: a slice of this round began or told something */
    struct cursor at;      /* the array that had the last slice */
    uint64_t asked_ms;
};

void arrays_look(struct brain *b); /* called at every new root */
void arrays_reset(struct brain *b);
void arrays_drop(struct brain *b);

#endif
