/* Requests to save and go on (spec.saveRequest, `hanse save`). */
#ifndef HANSE_CONTROLPLANE_LEADER_SAVE_SAVE_H
#define HANSE_CONTROLPLANE_LEADER_SAVE_SAVE_H

#include "controlplane/leader/context/context.h"

struct saves {
    void *by_uid; /* struct save, by the uid of its workload */
    struct list all;
};

void saves_init(struct brain *b);
void saves_reset(struct brain *b);
void save_change(struct brain *b, const struct object *before, const struct object *after);
void save_observed(struct brain *b, const char *workload_uid, const struct observation *o);
void saves_tick(struct brain *b); /* reach changed, or what was refused may be allowed now */
void saves_drop(struct brain *b);

#endif
