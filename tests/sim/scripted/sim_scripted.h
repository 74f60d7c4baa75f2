/* Scripted targets (tests/support/scripted) in the virtual world: a host with an API, whose
 * programs are those of a room (sim_runs.c), and the link that members reach it by. */
#ifndef HANSE_TESTS_SIM_SCRIPTED_SIM_SCRIPTED_H
#define HANSE_TESTS_SIM_SCRIPTED_SIM_SCRIPTED_H

#include "tests/sim/federation/sim_federation.h"
#include "tests/support/scripted/scripted.h"

#define SCRIPTED_ROOMS (FED_ROOMS_MAX - FED_ROOMS)
struct sim_scripted {
    struct sim_room room; /* first */
    struct scripted_peer peer;
    bool in_time; /* it cannot refuse a key: its runners start in time, or never */
    struct list sessions;
    uint64_t next_session;
};
/* Starts it on a host of its name, which is that of its Target, too. */
struct sim_scripted *sim_scripted_create(struct fed *f, enum scripted_kind kind, const char *name);
extern const struct scripted_link_ops sim_scripted_link;
void sim_scripted_fill(const struct connector *c, const struct run_order *o,
                       unsigned char load[SCRIPTED_LOAD]);

extern const struct fed_mixed sim_mixed;
/* A rule broken on purpose in every life that begins from now on. */
void sim_mixed_plant(enum scripted_plant p);

#endif
