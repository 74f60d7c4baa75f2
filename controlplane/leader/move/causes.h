/* Why running work moves without being asked. */
#ifndef HANSE_CONTROLPLANE_LEADER_MOVE_CAUSES_H
#define HANSE_CONTROLPLANE_LEADER_MOVE_CAUSES_H

#include "controlplane/leader/context/context.h"

struct causes {
    struct timer timer;
    bool due;
    struct cursor must, better;             /* where the passes over all are */
    uint64_t must_ms, better_ms, second_ms; /* on the loop: when each was last begun */
    unsigned looks;                         /* in this second */
};

void causes_reset(struct brain *b);
void causes_drop(struct brain *b);
void causes_look(struct brain *b);
void causes_change(struct brain *b, enum kind_id kind, const struct object *before,
                   const struct object *after);
/* Its target is lost for longer than it accepts: begins a Migration when something has room. */
bool causes_replace(struct brain *b, const struct object *workload);

#endif
