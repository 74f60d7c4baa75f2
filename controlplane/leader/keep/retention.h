/* Moves what ended long ago from the state into the archive. */
#ifndef HANSE_CONTROLPLANE_LEADER_KEEP_RETENTION_H
#define HANSE_CONTROLPLANE_LEADER_KEEP_RETENTION_H

#include "controlplane/leader/context/context.h"
#include "controlplane/store/archive/archive.h"

struct retention {
    struct timer look;
    struct archive_cursor at; /* where the next look begins */
    bool more;                /* that look did not reach the end: the next comes soon */
};

void retention_reset(struct brain *b);
void retention_drop(struct brain *b);

#endif
