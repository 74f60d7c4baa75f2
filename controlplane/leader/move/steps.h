/* The struct of a mover, and its effects: commands and calls. */
#ifndef HANSE_CONTROLPLANE_LEADER_MOVE_STEPS_H
#define HANSE_CONTROLPLANE_LEADER_MOVE_STEPS_H

#include "controlplane/leader/context/context.h"
#include "controlplane/leader/context/index.h"

/* One open Migration. It is level-triggered like a driver: mover_tick looks at the Migration, its
 * workload and its destination as the root has them, and does the one next thing. It holds no
 * truth. */
struct mover {
    struct list link, of; /* links in movers.all and in its bucket of movers.of */
    struct indexed by_uid;
    struct brain *brain;
    char uid[64], ns[64], name[256];
    uint64_t workload_hash; /* hash of namespace and name of its Workload */
    const struct object *o; /* its Migration as the newest root has it; holds a reference */
    unsigned proposing;     /* commands that were proposed and not answered */
    bool calling;           /* stage() is awaited */
    /* its Migration is not open any more; freed when nothing is awaited */
    bool dead;
    bool foreseen;      /* proposed before the state that it needs: a refusal means nothing */
    uint64_t room_seen; /* movers.room at the last search for a destination */
    uint64_t looked_ms; /* loop time of that search; 0: none yet */
    uint64_t told_ms;   /* loop time at which a reason to wait was last proposed */
    uint32_t backoff_ms;
    struct brain_call call;
    char staging[80]; /* digest of the checkpoint that the destination reads */
    unsigned bad;     /* number of checkpoints that the destination could not read */
    struct timer again;
};

struct site;
const struct migration_status *mover_status(const struct mover *m);
/* NULL: it is gone, or another one has its name */
const struct object *mover_workload(const struct mover *m);
void mover_tick(struct mover *m);
void mover_backoff(struct mover *m);
void mover_free(struct mover *m); /* frees it when no answer is awaited */

/* ---- steps.c ---- */
void mover_step(struct mover *m, enum move_step step);
void mover_wait(struct mover *m, const char *reason, const char *message);
void mover_abort(struct mover *m, enum move_phase outcome, const char *reason, const char *message);
void mover_reserve(struct mover *m, const struct object *workload, const struct move_choice *c);
void mover_quiesce_source(struct mover *m, const struct object *workload);
void mover_stage(struct mover *m, struct site *t, const struct object *workload);

#endif
