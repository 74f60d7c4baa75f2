/* What a mover is made of, and what it does: commands and calls. */
#ifndef HANSE_CONTROLPLANE_LEADER_MOVE_STEPS_H
#define HANSE_CONTROLPLANE_LEADER_MOVE_STEPS_H

#include "controlplane/leader/context/context.h"
#include "controlplane/leader/context/index.h"

/* One open Migration. Level-triggered like a driver: mover_tick looks at the Migration, its
 * workload and its destination as the root has them, and does the one next thing. Nothing here is
 * truth. */
struct mover {
    struct list link, of; /* among all, and those whose workload has the same hash */
    struct indexed by_uid;
    struct brain *brain;
    char uid[64], ns[64], name[256];
    uint64_t workload_hash; /* of ns and name of its Workload */
    const struct object *o; /* the Migration as the newest root has it; a reference */
    unsigned proposing;     /* commands on their way into the log */
    bool calling;           /* stage() */
    bool dead;
    bool foreseen;      /* proposed ahead of the state that it needs: a refusal says nothing */
    uint64_t room_seen; /* the room that it last looked for a destination in */
    uint64_t looked_ms; /* when */
    uint64_t told_ms;   /* when it was last told why it waits */
    uint32_t backoff_ms;
    struct call call;
    char staging[80];  /* digest that is being read on the destination */
    unsigned bad;      /* checkpoints that could not be read there */
    char refused[256]; /* why START was: the destination does not hold any more */
    struct timer again;
};

struct site;
const struct migration_status *mover_status(const struct mover *m);
const struct object *mover_workload(const struct mover *m); /* NULL: gone, or another one */
void mover_tick(struct mover *m);
void mover_backoff(struct mover *m);
void mover_free(struct mover *m); /* once nothing is under way */

/* ---- steps.c ---- */
void mover_step(struct mover *m, enum move_step step);
void mover_wait(struct mover *m, const char *reason, const char *message);
void mover_abort(struct mover *m, enum move_phase outcome, const char *reason, const char *message);
void mover_reserve(struct mover *m, const struct object *workload, const struct move_choice *c);
void mover_quiesce_source(struct mover *m, const struct object *workload);
void mover_stage(struct mover *m, struct site *t, const struct object *workload);

#endif
