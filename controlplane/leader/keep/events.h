/* core/v1 Events for people. */
#ifndef HANSE_CONTROLPLANE_LEADER_KEEP_EVENTS_H
#define HANSE_CONTROLPLANE_LEADER_KEEP_EVENTS_H

#include "controlplane/leader/context/context.h"

#define EVENTS_MAX 256
struct events {
    struct list waiting; /* events that the next flush proposes */
    unsigned n;          /* length of waiting, at most EVENTS_MAX */
    struct timer timer;
};

void events_init(struct brain *b);
void events_change(struct brain *b, const struct change *c);
/* Tells why something of it goes on for a while. The callers of this and of the next two may repeat
 * it at any rate: an Event is repeated at most every ten seconds. `reason` is static: NotReplaced
 * (a lost workload keeps its place, since nothing else has room), NotAnswered, RunNotRead. */
void events_sometimes(struct brain *b, const struct object *workload, const char *reason,
                      const char *why);
/* cause: MOVE_SICK or MOVE_SPOT */
void events_stays(struct brain *b, const struct object *workload, enum move_cause cause,
                  const char *why);
/* Tells that the runner of a lost workload may live for left_ms more by the lease it was
 * granted. */
void events_lease_runs(struct brain *b, const struct object *workload, uint64_t left_ms);
/* Of a Target, or its machines; reason is static. */
void events_of_target(struct brain *b, const struct object *target, const char *reason,
                      const char *why);
/* The target lists a run of the workload as alive that it had called ended. */
void events_end_denied(struct brain *b, const struct object *target, const struct object *workload,
                       const char *why);
void events_book_full(struct brain *b, const struct object *target, const char *why);
void PRINTF_LIKE(4, 5) events_of_checkpoint(struct brain *b, const struct object *workload,
                                            const char *reason, const char *fmt, ...);
void events_drop(struct brain *b);
const char *events_uid(struct brain *b, struct arena *a); /* a new uid for an object */
/* Records in hanse-system what `who` said about a Target. Once cb is called without an error, the
 * Event is in the log under that name. */
void PRINTF_LIKE(7, 8)
    events_act(struct brain *b, const char *who, const char *target, const char *reason,
               propose_cb cb, void *arg, const char *fmt, ...);

#endif
