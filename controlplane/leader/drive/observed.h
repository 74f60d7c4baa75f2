/* What targets report of runs without being asked. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_OBSERVED_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_OBSERVED_H

#include "controlplane/leader/drive/driver.h"

void driver_observed(struct site *t, const struct observation *o);
void driver_take_seen(struct driver *d, const struct observation *o);
/* Takes in where a run is that was pending. */
void driver_seated(struct site *t, const struct run_key *k, const struct placement *at);
/* Proposes what was seen of a run's waiting at its target, or that it has its nodes; true if it
 * did. */
bool driver_pending(struct driver *d);
/* Returns why a run that waits there is to be withdrawn (limits.pendingFor of its Target), or
 * NULL. */
const char *driver_pending_over(struct driver *d);

#endif
