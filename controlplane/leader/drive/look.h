/* Before a second start: whether there is one, and what checkpoints the store holds. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_LOOK_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_LOOK_H

#include "controlplane/leader/drive/driver.h"

/* True while the target searches the store; the driver is ticked again. False: it may be
 * dispatched. */
bool driver_look(struct driver *d, struct site *t);
/* Proposes REQUEUE, and returns true, when the place has another number of workers than saved the
 * checkpoint to resume from. */
bool driver_place_differs(struct driver *d);
/* True when the end that was seen leads back to the queue without counting as a failure: the run
 * was stopped for that, was failed by its target, or saved and asks for it. */
bool driver_end_requeues(const struct driver *d);
/* Adds the reason to out when what its target failed counts all the same. */
void driver_end_counts(const struct driver *d, char *out, size_t size);

#endif
