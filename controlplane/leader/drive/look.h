/* What the store holds, ahead of a second life. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_LOOK_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_LOOK_H

#include "controlplane/leader/drive/driver.h"

/* True: it is being asked; ticked again. False: it may be dispatched. */
bool driver_look(struct driver *d, struct site *t);
/* Its place is for another number of workers than saved what it resumes from: the step back was
 * proposed. */
bool driver_place_differs(struct driver *d);

#endif
