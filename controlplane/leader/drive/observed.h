/* What targets report of runs without being asked. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_OBSERVED_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_OBSERVED_H

#include "controlplane/leader/drive/driver.h"

void driver_observed(struct site *t, const struct observation *o);
/* Takes in a checkpoint that is told ahead of what is known of its run. */
void driver_saved(struct site *t, const struct run_key *k, const struct run_checkpoint_report *c);
void driver_take_seen(struct driver *d, const struct observation *o);
/* Who says that nothing of a run was ever started, and was seen to run it, has forgotten: he cannot
 * tell; unless he proves as well that nothing of it is left: then it has ended. Returns o, or room,
 * which then has what o is worth. */
const struct observation *driver_doubt(const struct driver *d, const struct observation *o,
                                       struct observation *room);
/* Records the proof that nothing ever started under the run's key. */
void driver_seen_absent(struct driver *d, const char *reason, const char *message);
/* Records that provably nothing was started, and nothing will be: as this workload is, no runner
 * can take it. It has failed, not its target. */
void driver_never_starts(struct driver *d, const struct err *err);
/* It waited too long in its target's own queue: it is not placed there again at once. */
void driver_withdrawn(struct driver *d);
/* Takes in the refusal of its one order: nothing has started, and what is blamed. */
void driver_rejected(struct driver *d, const struct refusal *why, const struct observation *seen,
                     const struct err *err);
/* The log has let its place go. An end that its target told is in the log by then, and it hears of
 * that. */
void driver_over(struct driver *d);
/* Takes in what is told of a run's workers. */
void driver_workers(struct site *t, const struct run_workers *w);
/* Returns in arena a what is known of them, as the log has it; 0: nothing. */
uint32_t driver_workers_told(const struct driver *d, struct arena *a, struct worker_status **ret);
/* Forgets what was told of an earlier try, its seats and its workers. */
void driver_told_forget(struct driver *d);
/* Writes which worker of a gang failed first, where and how, ahead of what the message says; out
 * may not overlap with message. */
void driver_workers_blame(const struct driver *d, const char *message, char *out, size_t n);
/* A call about it has ended so: what is not answered for long while it is dispatched is told. */
void driver_silence(struct driver *d, enum outcome out, const struct err *err);
/* A copy of it lives on a target that had called it ended: it waits, and true is returned. */
bool driver_copy_lives(struct driver *d);
/* True when its target is in reach and has not been able to tell what became of it for as long as a
 * silent one is given (suspectAfter). */
bool driver_untold(const struct driver *d, const struct site *t);
/* find() could not tell, either. True: it is asked again after a pause, in which its lease may
 * decide. */
bool driver_still_untold(struct driver *d, const struct site *t);
bool driver_asks_again(struct driver *d); /* false: not yet; it is ticked when it is time */
/* Proposes UNKNOWN when its target is out of reach, has another agent, or cannot tell what became
 * of it; true if it did. */
bool driver_lost(struct driver *d, const struct site *t);
/* It is Unknown for another reason by now: proposes that; true if it did. */
bool driver_lost_otherwise(struct driver *d, const struct site *t);
/* Takes in where a run is that was pending. */
void driver_seated(struct site *t, const struct run_key *k, const struct placement *at);
/* Proposes what was seen of a run's waiting at its target, or that it has its nodes; true if it
 * did. */
bool driver_pending(struct driver *d);
/* Returns why a run that waits there is to be withdrawn (limits.pendingFor of its Target), or
 * NULL. */
const char *driver_pending_over(struct driver *d);

#endif
