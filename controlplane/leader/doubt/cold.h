/* A hub that has just begun: old work waits until every Target has told what runs there. */
#ifndef HANSE_CONTROLPLANE_LEADER_DOUBT_COLD_H
#define HANSE_CONTROLPLANE_LEADER_DOUBT_COLD_H

#include "controlplane/leader/context/context.h"

struct site;
struct cold {
    bool on; /* Targets are awaited */
    struct timer look;
    uint64_t known_ms; /* on the loop: since then this process has had a leader; 0 = never yet */
    int64_t before_ms; /* by the cluster's time: work of before then is held */
};

void cold_known(struct brain *b); /* of any member */
void cold_begin(struct brain *b);
void cold_mark(struct brain *b); /* who is awaited, by the root */
void cold_look(struct brain *b); /* a Target has listed, is silent, or is gone */
void cold_init(struct brain *b);
void cold_drop(struct brain *b);
bool cold_awaits(const struct site *t);
bool cold_holds(const struct brain *b, const struct object *workload);

#endif
