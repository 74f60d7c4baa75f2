/* One mover for each open Migration. */
#ifndef HANSE_CONTROLPLANE_LEADER_MOVE_MOVER_H
#define HANSE_CONTROLPLANE_LEADER_MOVE_MOVER_H

#include "controlplane/leader/context/context.h"

struct movers {
    struct list all;
    void *by_uid;
    struct list *of; /* by hash of their workload: MOVER_BUCKETS lists, made when needed */
    unsigned n;
    uint64_t room; /* counts what may have made room somewhere */
    bool posted;
};

void mover_change(struct brain *b, const struct object *before, const struct object *after);
void movers_init(struct brain *b);
void movers_reset(struct brain *b);
void movers_drop(struct brain *b);
void movers_fini(struct brain *b);
unsigned movers_count(const struct brain *b);
void movers_workload(struct brain *b, const struct object *workload); /* it changed */
void movers_look(struct brain *b);                                    /* room or reach changed */
/* The driver has just proposed the end of its epoch: what follows on that is proposed, too. */
void movers_ending(struct brain *b, const struct object *workload, bool with_checkpoint);
/* A Migration of it holds a destination: its old place may be let go once the lease allows. */
bool mover_replacement_held(struct brain *b, const struct object *workload);
/* For whom open ones make room, as many as movers_count at most; the texts are the root's. */
size_t movers_for(const struct brain *b, const char **ret);
/* open, or NULL */
const struct object *migration_of(struct brain *b, const struct object *workload);

#endif
