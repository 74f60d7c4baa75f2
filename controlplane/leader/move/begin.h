/* Migrations that the brain itself begins, on their way into the log. */
#ifndef HANSE_CONTROLPLANE_LEADER_MOVE_BEGIN_H
#define HANSE_CONTROLPLANE_LEADER_MOVE_BEGIN_H

#include "controlplane/leader/context/context.h"

struct plans {
    unsigned n; /* plans that were proposed and not answered */
};

unsigned begin_count(const struct brain *b);
/* Fills in one workload of a plan. *b borrows texts and documents. */
void begin_fill(struct move_begin *b, const struct object *workload, enum move_cause cause,
                const struct move_choice *c);
/* Holds its destination in the pool until the root holds it. */
void begin_hold(struct brain *b, const struct object *workload, const struct placement *p);
void begin_drop(struct brain *b, const char *workload_uid);
bool begin_possible(const struct brain *b, const struct object *workload);
void begin_propose(struct brain *b, struct migrate_cmd *m, void (*done)(void *arg, bool begun),
                   void *arg);

#endif
