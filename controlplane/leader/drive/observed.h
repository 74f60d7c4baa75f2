/* What targets report of runs without being asked. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_OBSERVED_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_OBSERVED_H

#include "controlplane/leader/drive/driver.h"

void driver_observed(struct site *t, const struct observation *o);
void driver_take_seen(struct driver *d, const struct observation *o);

#endif
