/* A machine room that lives in the virtual world, outside of all members, and the scripted driver
 * that members reach it with.
 *
 * The room runs what is submitted by key (uid, epoch, try), keeps every end, refuses a key once it
 * has said that it is absent, and stops a run whose lease is not renewed in time. With chaos on it
 * also loses answers, answers late, does things twice, breaks connections and refuses orders. What
 * it records is the truth that the members are measured against. */
#ifndef HANSE_TESTS_SIM_FEDERATION_SIM_TARGET_H
#define HANSE_TESTS_SIM_FEDERATION_SIM_TARGET_H

#include "connectors/connector.h"
#include "tests/sim/world/sim_loop.h"

/* Planted bugs: one at a time, to prove that the checks see them. */
enum sim_plant {
    PLANT_NONE,
    PLANT_FORGETS_REFUSAL, /* the room takes a key after it told that it is absent */
    PLANT_LOST_IS_ABSENT,  /* the driver takes an unanswered find() for "absent" */
    PLANT_NEW_KEY,         /* the driver submits again, under a new key, when no answer came */
    PLANT_NO_LEASE,        /* the room's runners ignore the end of their lease */
    PLANT_LOST_IS_ENDED,   /* the driver takes a lost connection for the end of what ran there */
    PLANT_SWEEPS_ALL,      /* the driver's sweep ends what is owned, too */
    PLANT_NR
};
const char *sim_plant_text(enum sim_plant p);

struct sim_run {
    struct list link;
    struct run_key key;
    enum run_state state; /* STARTING, RUNNING, ENDED */
    int exit_code, term_signal;
    bool lease_lost;
    uint64_t lease_ms, until_ms; /* on the room's clock */
    uint64_t began_ms, ended_ms; /* of the world */
    struct timer next;           /* running, then ended */
    struct sim_room *room;
};
struct sim_room {
    char name[32]; /* of its Target and its host */
    struct sim_world *w;
    struct sim_host *host;
    struct loop *loop;
    struct list runs, refused, sessions;
    bool chaos;
    unsigned nodes, gpus, long_percent; /* so many runs outlast a partition */
    uint64_t next_session;
    unsigned submits, answers_lost, late, twice, refusals, leases_lost;
};
/* What the test wants to know: called before a run begins, and before one is stopped or signalled.
 */
struct sim_room_events {
    void (*begins)(void *arg, struct sim_room *r, const struct run_key *k);
    void (*stops)(void *arg, struct sim_room *r, const struct run_key *k);
    void *arg;
};
/* Starts the room on a host of its name. */
struct sim_room *sim_room_create(struct sim_world *w, const char *name,
                                 const struct sim_room_events *ev);
unsigned sim_room_alive(const struct sim_room *r, const char *uid); /* runs that live now */
/* For brain_config.driver. The Target's name is the room's host. */
const struct connector_ops *sim_target_driver(enum target_type type);
void sim_target_plant(enum sim_plant p);

#endif
