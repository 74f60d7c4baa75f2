/* Workloads that were taken back before they ran, and are not to be placed yet. */
#ifndef HANSE_CONTROLPLANE_LEADER_QUEUE_HELD_H
#define HANSE_CONTROLPLANE_LEADER_QUEUE_HELD_H

#include "controlplane/leader/context/context.h"

struct held_back {
    void *by_uid; /* tsearch tree of the same entries */
    struct list all;
    struct timer wake;
};

/* Takes in every change of a Workload. True: it is not to be placed yet. */
bool held_back(struct brain *b, const struct object *before, const struct object *after);
void held_secret(struct brain *b, const char *ns); /* a Secret of that namespace changed */
void held_reset(struct brain *b);
void held_drop(struct brain *b);

#endif
