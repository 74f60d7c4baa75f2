/* What has ended long ago moves from the state into the archive. */
#ifndef HANSE_CONTROLPLANE_LEADER_KEEP_RETENTION_H
#define HANSE_CONTROLPLANE_LEADER_KEEP_RETENTION_H

#include "controlplane/leader/context/context.h"
#include "controlplane/store/archive/archive.h"

struct retention {
    struct timer look;
    struct archive_cursor at; /* where it looks next, */
    bool more;                /* and whether soon */
};

void retention_reset(struct brain *b);
void retention_drop(struct brain *b);

#endif
