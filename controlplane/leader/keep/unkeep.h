/* What a Workload printed goes from the stores of logs ahead of the Workload itself: of one that is
 * deleted, or is to be archived. */
#ifndef HANSE_CONTROLPLANE_LEADER_KEEP_UNKEEP_H
#define HANSE_CONTROLPLANE_LEADER_KEEP_UNKEEP_H

#include "controlplane/leader/context/context.h"
#include "controlplane/store/archive/archive.h"

#define UNKEEP_BAD 8
struct unkeep {
    struct timer look;
    struct logs_cursor at; /* where the next look begins */
    struct unkeep_job *job; /* on a thread; NULL: none */
    bool told;              /* that it could not be done, since it could */
    struct unkeep_bad {     /* stores that did not answer: what is there is passed over meanwhile */
        char store[804];
        uint64_t until_ms; /* loop time */
    } bad[UNKEEP_BAD];
    size_t next_bad;
};

void unkeep_reset(struct brain *b);
void unkeep_drop(struct brain *b);

#endif
