/* One member on a virtual host: core and brain, wired as controlplane/server/server.c wires them,
 * without its API. The test proposes what the API would. */
#ifndef HANSE_TESTS_SIM_FEDERATION_SIM_MEMBER_H
#define HANSE_TESTS_SIM_FEDERATION_SIM_MEMBER_H

#include "controlplane/raft/core.h"
#include "controlplane/leader/brain.h"
#include "tests/sim/world/sim_loop.h"

struct sim_member;
struct sim_member_events {
    /* After each new root; on the member's core loop. */
    void (*root)(void *arg, struct sim_member *m, const struct root *r);
    void *arg;
};
struct sim_member { /* of one process; the next start has its own. What a crash leaves is not freed:
                       each seed runs in a process of its own */
    struct sim_host *host;
    struct loop *loop, *core_loop;
    uint64_t id;
    bool bootstrap, root_posted, closing;
    struct core *core; /* NULL: not started yet, or could not */
    struct brain *brain;
    struct err error; /* why it ended by itself; code 0 = it did not */
    struct sim_member_events ev;
};
#define SIM_MEMBERS 3
#define SIM_REDIAL_MS 1500 /* that a member counts on (brain_config) */
/* Starts member `id` on host "mID"; a host that is down is booted. */
struct sim_member *sim_member_start(struct sim_host *h, uint64_t id, bool bootstrap,
                                    const struct sim_member_events *ev);
/* An orderly end: brain, then core; then its process exits. */
void sim_member_close(struct sim_member *m);

#endif
