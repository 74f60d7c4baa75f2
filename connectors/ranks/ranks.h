/* The names by which the program of a rank finds itself and its peers, as the frameworks read them
 * that people train with. One list for all drivers: what a program sees must not depend on who
 * started it. */
#ifndef HANSE_CONNECTORS_RANKS_RANKS_H
#define HANSE_CONNECTORS_RANKS_RANKS_H

#include "api/base/mem.h"

#include <stddef.h>
#include <stdint.h>

/* Where the ranks of a gang meet, as a program, a server or a workload may have said it itself. */
#define RANKS_HOST "MASTER_ADDR"
#define RANKS_PORT "MASTER_PORT"

struct ranks_place {
    const char *host, *port; /* of rank 0: a name, or an address of either version */
    int64_t rank, world;
};
struct ranks_name {
    const char *name, *value;
};
/* Returns how many names there are, in the arena. Each is a default: whatever the program is given
 * under that name otherwise stays. */
size_t ranks_names(const struct ranks_place *p, struct arena *a, const struct ranks_name **ret);

#endif
