/* Clients of a federation who write down all that they ask and are told: what the judge of
 * histories (tests/support/history) then judges. They reach any member that is up, also one that is
 * paused or cut off and takes itself for the leader, through the table of calls that the API uses
 * (controlplane/server/backend.h), give up after a while, and ask again with the same request id
 * elsewhere. Watchers follow one member and go on at another. */
#ifndef HANSE_TESTS_SIM_CLIENTS_SIM_CLIENTS_H
#define HANSE_TESTS_SIM_CLIENTS_SIM_CLIENTS_H

#include "tests/sim/federation/sim_federation.h"
#include "tests/support/history/history.h"

struct sim_clients;
/* One life: clients, faults of the members, quiet, judgement (fed_fail). */
void sim_clients_live(struct fed *f);

/* ---- between the files ---- */
#define CLIENTS 5
#define WATCHERS 3
#define CLIENT_KEYS 4
#define CLIENTS_FROM_MS 5000
#define CLIENTS_FAULTS_UNTIL_MS 30000
struct sim_clients *sim_clients_start(struct fed *f);
void sim_clients_stop(struct sim_clients *x); /* what is under way may still be answered */
void sim_clients_last(struct sim_clients *x); /* one more write, which all watchers must see */
bool sim_clients_done(struct sim_clients *x); /* it is acknowledged, and seen by all */
struct history *sim_clients_history(struct sim_clients *x);
struct sim_member *sim_clients_member(struct sim_clients *x); /* up in any way, or NULL */
struct backend *sim_clients_backend(struct sim_clients *x, struct sim_member *m);
uint64_t sim_clients_moment(struct sim_clients *x); /* each later than the one before */
bool sim_clients_stopped(const struct sim_clients *x);
uint32_t sim_clients_key(struct sim_clients *x, const char *name);
/* sim_watchers.c */
struct sim_watcher {
    struct sim_clients *x;
    struct fed *f;
    unsigned id;
    struct sim_member *m; /* NULL: it looks for another */
    uint64_t since;
    uint32_t watch;
    bool begun, seen_last;
};
void sim_watcher_start(struct sim_watcher *w);

#endif
