/* Looks at what others run on a target (`hanse adopt TARGET --shadow`): one at a time, read from
 * the target page by page, placed on a copy of the pool in slices, told once. */
#ifndef HANSE_CONTROLPLANE_LEADER_ADOPT_ADOPT_H
#define HANSE_CONTROLPLANE_LEADER_ADOPT_ADOPT_H

#include "controlplane/leader/context/context.h"

struct adopt_look;
struct adopts {
    struct adopt_look *now; /* owned; NULL: nobody asks */
};
void adopt_drop(struct brain *b); /* the leadership is over: so is the look */

#endif
