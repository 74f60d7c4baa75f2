/* What the two halves of a room share: its sessions (sim_room.c) and its runs (sim_runs.c). */
#ifndef HANSE_TESTS_SIM_FEDERATION_SIM_ROOM_INTERNAL_H
#define HANSE_TESTS_SIM_FEDERATION_SIM_ROOM_INTERNAL_H

#include "tests/sim/federation/sim_target_wire.h"

extern struct sim_room_events room_events;

/* sim_room.c: tells every session what became of it. */
void room_tell_all(struct sim_run *run);
/* sim_runs.c */
struct sim_run *sim_run_begin(struct sim_room *r, const struct record *m);
void sim_run_seen(const struct sim_run *run, struct record *m);
void sim_run_signal(struct sim_run *run);
void sim_run_kill_in(struct sim_run *run, uint64_t ms); /* 0: now */
void sim_run_end(struct sim_run *run, int exit_code, int signo);
bool sim_run_still(const struct sim_run *run); /* its shim hears and does nothing */
void sim_run_lease(struct sim_run *run, uint64_t now);

#endif
