/* The effects of a driver: steps into the log, and calls to its connector. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_CALLS_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_CALLS_H

#include "controlplane/leader/drive/driver.h"

enum driver_call { CALL_SUBMIT = 1, CALL_FIND, CALL_QUIESCE, CALL_STOP };
void driver_call(struct driver *d, struct site *t, enum driver_call kind);
/* limits.inFlight calls are under way to its target: it is ticked again. */
bool driver_held_back(struct driver *d, struct site *t);
void driver_hurry(struct driver *d, struct site *t); /* a deletion's grace was made shorter */
void driver_step(struct driver *d, enum run_step step, const char *reason, const char *message);
/* Proved: nothing ever started under its key. */
void driver_seen_absent(struct driver *d, const char *reason, const char *message);
/* ENDED or ABSENT with what was seen. */
void driver_step_end(struct driver *d, enum run_step step, bool requeue);
void driver_propose(struct driver *d, union command *c); /* a step; fills in whose it is */
bool driver_checkpoint_news(const struct driver *d);
void driver_tell(struct driver *d);
/* A newer one than the log knows lies in the store; of an older epoch. */
void driver_step_found(struct driver *d, const struct run_checkpoint_report *r);
void driver_backoff(struct driver *d);        /* ticks again later, and later each time */
void driver_checkpoint_bad(struct driver *d); /* what it was to resume from, for the reason seen */

#endif
