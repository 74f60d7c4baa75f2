/* Leases: what runners hold by the log, and what documents would give them. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_LEASE_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_LEASE_H

#include "controlplane/leader/drive/driver.h"

/* by today's documents */
struct lease_grant lease_wanted(const struct object *workload, const struct site *t);
/* proposes DISPATCH: the intent with its grant */
void lease_dispatch(struct driver *d, const struct site *t);
/* True when a step was proposed. lease_acknowledged: the runner holds the offered lease.
 * lease_offer: the documents grant another lease than the runner holds. */
bool lease_acknowledged(struct driver *d);
bool lease_offer(struct driver *d, const struct site *t);
int64_t lease_next_number(const struct driver *d);
bool lease_offered(const struct driver *d, struct run_offer *ret);
/* Notes for all drivers of the target that their leases count from sent_ms (loop time); returns how
 * many of them have another lease on offer, and at most max of these offers in ret. */
size_t drivers_renewed(struct site *t, uint64_t sent_ms, struct run_offer *ret, size_t max);
void lease_renewed(struct driver *d, uint64_t sent_ms);
void lease_pace(const struct driver *d); /* tells its site the shortest lease it may hold */
/* Of a run that is Unknown: proposes CLOSE where its runners begin by a claim alone and nobody has
 * claimed: no process has started its program, and from that entry on none can. It gives those who
 * may be on their way some time, and a run that waits in its target's queue as long as it may wait;
 * one that is not wanted any more, none. True if it did. */
bool lease_closes(struct driver *d, struct site *t, bool unwanted);
/* The log's time from which on nothing of its try is started any more (intent.startBy, and how far
 * clocks may be off); 0: none is told. */
int64_t lease_starts_until(const struct driver *d);
/* Proposes CLOSE where its target was asked after that time, and had it nowhere; true if it did. */
bool lease_too_late(struct driver *d);
/* Returns the longest lease that the runners of that try may hold, where all of them have told that
 * they hold one; 0: they have not. */
uint64_t lease_held_ms(const struct intent *in);
/* Its runner holds no lease: silence of its target never ends it, and never proves its end. */
bool lease_none(const struct driver *d);
/* Returns the ms for which a runner may still be alive if nobody renews its lease. */
uint64_t lease_left_ms(const struct driver *d);

#endif
