/* One mover for each open Migration. */
#ifndef HANSE_CONTROLPLANE_LEADER_MOVE_MOVER_H
#define HANSE_CONTROLPLANE_LEADER_MOVE_MOVER_H

#include "controlplane/leader/context/context.h"

struct movers {
    struct list all;
    void *by_uid;
    struct list *of; /* MOVER_BUCKETS lists by hash of the workload; owned; NULL: none */
    unsigned n;
    uint64_t room; /* counted up when room may have come somewhere */
    bool posted;
};

void mover_change(struct brain *b, const struct object *before, const struct object *after);
void movers_init(struct brain *b);
void movers_reset(struct brain *b);
void movers_drop(struct brain *b);
void movers_fini(struct brain *b);
unsigned movers_count(const struct brain *b);
void movers_workload(struct brain *b, const struct object *workload); /* the workload changed */
void movers_look(struct brain *b); /* room or reach changed: ticks all */
/* The driver has just proposed the end of the workload's epoch: proposes the steps that follow, so
 * that they come into the same entry. */
void movers_ending(struct brain *b, const struct object *workload, bool with_checkpoint);
/* True when a Migration of it holds a destination: its old place may be let go once the lease
 * allows. */
bool mover_replacement_held(struct brain *b, const struct object *workload);
/* Lists the workloads for which open Migrations make room, as NAMESPACE/NAME, at most movers_count
 * of them; the root owns the texts. */
size_t movers_for(const struct brain *b, const char **ret);
/* Returns the open Migration of the workload, or NULL. */
const struct object *migration_of(struct brain *b, const struct object *workload);

#endif
