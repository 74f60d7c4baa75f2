/* What runners hold by the log, and what documents would give them. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_LEASE_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_LEASE_H

#include "controlplane/leader/drive/driver.h"

struct lease_grant lease_wanted(const struct object *workload, const struct site *t); /* today */
void lease_dispatch(struct driver *d, const struct site *t); /* the intent, with its grant */
/* True: a step is on its way. Its runner holds what was offered; the documents say another one. */
bool lease_acknowledged(struct driver *d);
bool lease_offer(struct driver *d, const struct site *t);
int64_t lease_next_number(const struct driver *d);
bool lease_offered(const struct driver *d, struct run_offer *ret);
/* All of that target are renewed from now on; returns those to which another lease is offered. */
size_t drivers_renewed(struct site *t, uint64_t sent_ms, struct run_offer *ret, size_t max);
void lease_renewed(struct driver *d, uint64_t sent_ms);
void lease_pace(const struct driver *d); /* tells its site how often renewals must come */
/* 0: no runner of it can be alive any more, unless somebody renews it. */
uint64_t lease_left_ms(const struct driver *d);

#endif
