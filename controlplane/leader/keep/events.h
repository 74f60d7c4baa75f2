/* core/v1 Events for people. */
#ifndef HANSE_CONTROLPLANE_LEADER_KEEP_EVENTS_H
#define HANSE_CONTROLPLANE_LEADER_KEEP_EVENTS_H

#include "controlplane/leader/context/context.h"

#define EVENTS_MAX 256
struct events {
    struct list waiting;
    unsigned n;
    struct timer timer;
};

void events_init(struct brain *b);
void events_change(struct brain *b, const struct change *c);
/* A lost workload whose place is kept, since nothing else has room; may be called at any rate. */
void events_not_replaced(struct brain *b, const struct object *workload, const char *why);
void events_stays_sick(struct brain *b, const struct object *workload, const char *why);
/* A lost workload whose runner may live so much longer by the lease that it was granted. */
void events_lease_runs(struct brain *b, const struct object *workload, uint64_t left_ms);
void events_book_full(struct brain *b, const struct object *target, const char *why);
void PRINTF_LIKE(4, 5) events_of_checkpoint(struct brain *b, const struct object *workload,
                                            const char *reason, const char *fmt, ...);
void events_drop(struct brain *b);
const char *events_uid(struct brain *b, struct arena *a); /* a new one, for an object */
/* What somebody says about a Target, in hanse-system: in the log, under his name, once cb is called
 * without an error. */
void PRINTF_LIKE(7, 8)
    events_act(struct brain *b, const char *who, const char *target, const char *reason,
               propose_cb cb, void *arg, const char *fmt, ...);

#endif
