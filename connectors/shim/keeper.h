/* The keeper of one rank's checkpoints, inside the shim: makes the program's folder, verifies what
 * it resumes from, seals what it saves. The work is done on the thread pool, one piece at a time;
 * this part only says what is next. Private to connectors/shim. */
#ifndef HANSE_CONNECTORS_SHIM_KEEPER_H
#define HANSE_CONNECTORS_SHIM_KEEPER_H

#include "api/base/loop/loop.h"
#include "connectors/checkpoint/checkpoint.h"
#include "connectors/shim/shim.h"

enum keeper_state {
    KEEPER_PREPARING, /* folders, and what it is to resume from */
    KEEPER_READY,     /* the program may start; manifests are sealed as they come */
    KEEPER_FAILED,    /* it must not start: keeper_why */
    KEEPER_SETTLED    /* after keeper_settle: nothing is under way, all that there is is sealed */
};
struct keeper;
/* cfg is borrowed while it lives. changed() comes from the loop whenever the state or the newest
 * seal is another; it must not call back. */
struct keeper *keeper_create(struct loop *l, const struct run_checkpoints *cfg,
                             void (*changed)(void *arg), void *arg);
/* The program was asked to save and exit: what it saves now is looked at when it is gone, and then
 * need not be copied. */
void keeper_pause(struct keeper *k);
/* Last look; with `look` false what is under way is broken off. SETTLED follows, also when the
 * store hangs: after KEEPER_PATIENCE_MS without a byte of progress keeper_stuck is true. */
void keeper_settle(struct keeper *k, bool look);
/* When SETTLED or FAILED. One that is stuck is left to the end of the process. */
struct keeper *keeper_destroy(struct keeper *k);

enum keeper_state keeper_state(const struct keeper *k);
bool keeper_stuck(const struct keeper *k);
const struct err *keeper_why(const struct keeper *k); /* FAILED */
const struct err *
keeper_unsealed(const struct keeper *k); /* of the manifest that is there now; code 0 = fine */
const struct checkpoint_sealed *keeper_newest(const struct keeper *k);
const char *keeper_dir(const struct keeper *k);      /* HANSE_CHECKPOINT_DIR */
const char *keeper_resume(const struct keeper *k);   /* HANSE_RESUME_DIR, or "" */
int64_t keeper_resume_ranks(const struct keeper *k); /* HANSE_RESUME_RANKS */

#endif
