/* The keeper of one rank's checkpoints, inside the shim: it makes the program's folder, verifies
 * the checkpoint to resume from, and seals what the program saves. The thread pool does the work,
 * one piece at a time; this part only decides what is next. Private to connectors/shim. */
#ifndef HANSE_CONNECTORS_SHIM_KEEPER_H
#define HANSE_CONNECTORS_SHIM_KEEPER_H

#include "api/base/loop/loop.h"
#include "connectors/checkpoint/checkpoint.h"
#include "connectors/shim/shim.h"

enum keeper_state {
    KEEPER_PREPARING, /* makes folders, and verifies the checkpoint to resume from */
    KEEPER_READY,     /* the program may start; the keeper seals manifests as they come */
    KEEPER_FAILED,    /* the program must not start; keeper_why says why */
    KEEPER_SETTLED    /* after keeper_settle: no work is under way, and everything is sealed */
};
struct keeper;
/* cfg is borrowed while it lives. The loop calls changed() when the state or the newest seal
 * changes; it must not call back. */
struct keeper *keeper_create(struct loop *l, const struct run_checkpoints *cfg,
                             void (*changed)(void *arg), void *arg);
/* The program was asked to save and exit: the keeper looks at what it saves now when it is gone,
 * and then need not copy it. */
void keeper_pause(struct keeper *k);
/* A request to save and go on. What is saved for it has a larger step than the manifest when it
 * came, which the keeper looks up first: then keeper_save_due is true, and the caller signals until
 * somebody has taken the signal. With own_cuts it is saved once a cut has it. Where ranks share a
 * folder the first answers for all. changed() tells of all further news. A number that is not above
 * the one before is the same request. */
void keeper_save(struct keeper *k, int64_t number, uint64_t grace_ms);
bool keeper_save_due(const struct keeper *k);
void keeper_save_asked(struct keeper *k); /* the program has taken the signal */
const struct run_save *keeper_saved(const struct keeper *k);
/* Takes a last look; with `look` false it breaks off the work under way. SETTLED follows, also when
 * the store hangs: after KEEPER_PATIENCE_MS without a byte of progress keeper_stuck is true. */
void keeper_settle(struct keeper *k, bool look);
/* Called when SETTLED or FAILED. A stuck keeper is left to the end of the process. */
struct keeper *keeper_destroy(struct keeper *k);

enum keeper_state keeper_state(const struct keeper *k);
bool keeper_stuck(const struct keeper *k);
const struct err *keeper_why(const struct keeper *k); /* set in state FAILED */
const struct err *
keeper_unsealed(const struct keeper *k); /* why the present manifest is not sealed; code 0: it is */
const struct checkpoint_sealed *keeper_newest(const struct keeper *k);
/* of own_cuts: the newest cut that was written, or found */
const struct checkpoint_gathered *keeper_cut(const struct keeper *k);
void keeper_cut_known(struct keeper *k, int64_t number); /* a hub surely has that one */
const char *keeper_dir(const struct keeper *k);          /* HANSE_CHECKPOINT_DIR */
const char *keeper_resume(const struct keeper *k);       /* HANSE_RESUME_DIR, or "" */
/* The program's environment: cfg's, and where it saves and resumes. */
const char *const *keeper_env(const struct keeper *k, const struct runner_config *cfg,
                              struct arena *m);

#endif
