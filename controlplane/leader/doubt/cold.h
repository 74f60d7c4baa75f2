/* A hub that has just begun dispatches older work only after every Target has told what runs
 * there. */
#ifndef HANSE_CONTROLPLANE_LEADER_DOUBT_COLD_H
#define HANSE_CONTROLPLANE_LEADER_DOUBT_COLD_H

#include "controlplane/leader/context/context.h"

struct site;
struct cold {
    bool on; /* true while Targets are awaited */
    struct timer look;
    uint64_t known_ms; /* loop time at which this process first had a leader; 0: never yet */
    int64_t before_ms; /* cluster time: workloads created up to then are held back */
};

void cold_known(struct brain *b); /* called on any member */
void cold_begin(struct brain *b);
void cold_mark(struct brain *b); /* marks the Targets that the root has as connected */
void cold_look(struct brain *b); /* called when a Target has listed, is silent, or is gone */
void cold_init(struct brain *b);
void cold_drop(struct brain *b);
bool cold_awaits(const struct site *t);
bool cold_holds(const struct brain *b, const struct object *workload);

#endif
