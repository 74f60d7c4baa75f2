/* Machines of Targets: pools of them are kept as spec.machines says. They are ordered under keys
 * that the log has first, renewed while they are wanted, and released when they are too many. */
#ifndef HANSE_CONTROLPLANE_LEADER_MACHINES_MACHINES_H
#define HANSE_CONTROLPLANE_LEADER_MACHINES_MACHINES_H

#include "controlplane/leader/context/context.h"

struct machines {
    struct list farms; /* one a Target that has or had pools (machines_internal.h) */
    void *by_target;
    struct timer look;
};

void machines_init(struct brain *b);
void machines_reset(struct brain *b);
void machines_change(struct brain *b, const struct change *c);
void machines_machine(struct brain *b, const char *target, const struct machine_seen *m);
void machines_unread(struct brain *b, const char *target, const char *key, const char *why);
void machines_prices(struct brain *b, const char *target, const struct machine_price *v, size_t n,
                     const char *currency);
void machines_look_soon(struct brain *b);
void machines_drop(struct brain *b);
void machines_fini(struct brain *b);

#endif
