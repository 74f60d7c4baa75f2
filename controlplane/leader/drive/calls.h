/* The effects of a driver: steps into the log, and calls to its connector. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_CALLS_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_CALLS_H

#include "controlplane/leader/drive/driver.h"

enum driver_call { CALL_SUBMIT = 1, CALL_FIND, CALL_QUIESCE, CALL_STOP };
void driver_call(struct driver *d, struct site *t, enum driver_call kind);
/* True when limits.inFlight calls to its target are under way; the driver is ticked again when one
 * is answered. */
bool driver_held_back(struct driver *d, struct site *t);
/* True when its target refused lately, and this workload waits for the end of that, or is placed
 * again. */
bool driver_paused(struct driver *d, struct site *t);
/* repeats a stop under way if the grace was shortened */
void driver_hurry(struct driver *d, struct site *t);
void driver_step(struct driver *d, enum run_step step, const char *reason, const char *message);
/* Proposes ENDED or ABSENT with what was seen. */
void driver_step_end(struct driver *d, enum run_step step, bool requeue);
/* proposes a step, and fills in the workload's name, uid and epoch */
void driver_propose(struct driver *d, union command *c);
bool driver_checkpoint_news(const struct driver *d);
void driver_tell(struct driver *d);
/* Proposes CHECKPOINT_FOUND: the store holds a newer checkpoint of an older epoch than the log
 * knows. */
void driver_step_found(struct driver *d, const struct run_checkpoint_report *r);
void driver_backoff(struct driver *d);        /* ticks again after a pause that grows each time */
void driver_checkpoint_bad(struct driver *d); /* marks the checkpoint to resume from as bad */

#endif
