/* The causes for which running work moves without a user's request. */
#ifndef HANSE_CONTROLPLANE_LEADER_MOVE_CAUSES_H
#define HANSE_CONTROLPLANE_LEADER_MOVE_CAUSES_H

#include "controlplane/leader/context/context.h"

struct causes {
    struct timer timer;
    bool due; /* something changed, or a plan was refused: all are looked at again */
    struct cursor must, better; /* positions of the passes over all Workloads */
    /* loop times at which each pass, and this second, began */
    uint64_t must_ms, better_ms, second_ms;
    unsigned looks; /* looks in this second */
};

void causes_reset(struct brain *b);
void causes_drop(struct brain *b);
void causes_look(struct brain *b);
void causes_change(struct brain *b, enum kind_id kind, const struct object *before,
                   const struct object *after);
/* True when a workload that must leave goes also when nothing else has room: it is saved, stopped
 * and queued. */
bool causes_goes_anyway(struct brain *b, const struct object *workload, enum move_cause cause);
/* Begins a Migration of a workload whose target is lost for longer than it accepts, if another
 * place has room; true when it was begun. */
bool causes_replace(struct brain *b, const struct object *workload);

#endif
