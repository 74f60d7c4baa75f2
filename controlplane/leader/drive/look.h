/* Before a second start: what checkpoints the store holds. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_LOOK_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_LOOK_H

#include "controlplane/leader/drive/driver.h"

/* True while the target searches the store; the driver is ticked again. False: it may be
 * dispatched. */
bool driver_look(struct driver *d, struct site *t);
/* Proposes REQUEUE, and returns true, when the place has another number of workers than saved the
 * checkpoint to resume from. */
bool driver_place_differs(struct driver *d);

#endif
