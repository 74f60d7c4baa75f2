/* How busy the GPUs of runs are, as targets measure them. */
#ifndef HANSE_CONTROLPLANE_LEADER_USE_USE_H
#define HANSE_CONTROLPLANE_LEADER_USE_USE_H

#include "controlplane/leader/context/context.h"

struct uses {
    void *by_uid; /* struct used, by the uid of its Workload */
    struct list all;
};

void uses_init(struct brain *b);
void uses_reset(struct brain *b);
void use_change(struct brain *b, const struct object *before, const struct object *after);
void use_told(struct brain *b, const char *target, const struct run_use *u);
void uses_drop(struct brain *b);
void uses_metrics(struct brain *b, struct buf *out);

#endif
