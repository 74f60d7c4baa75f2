/* What the scripted driver and the room say to each other: records of one size. */
#ifndef HANSE_TESTS_SIM_FEDERATION_SIM_TARGET_WIRE_H
#define HANSE_TESTS_SIM_FEDERATION_SIM_TARGET_WIRE_H

#include "tests/sim/federation/sim_target.h"

#include <string.h>

#define ROOM_PORT "9000"

enum room_record {
    ROOM_HELLO = 1, /* room: session in id, clock, memory in from; then a ROOM_SEEN for each run */
    ROOM_BEAT,      /* room: clock */
    ROOM_SEEN,      /* room: what became of a run */
    ROOM_ANSWER,    /* room: to the request of that id */
    ROOM_LISTED,    /* room: one run of a LIST; ROOM_ANSWER ends it */
    ROOM_SUBMIT,
    ROOM_FIND,
    ROOM_SIGNAL,
    ROOM_STOP,
    ROOM_STAGE,
    ROOM_RENEW, /* of all; with a key: another lease is offered to that one, if its number is new */
    ROOM_LIST,
    ROOM_INVENTORY,
    ROOM_CLAIM, /* the run belongs to `cluster` from now on */
    ROOM_FORGET /* it has ended, and is listed no more */
};
struct record {
    uint64_t type, id;
    struct run_key key;
    uint64_t clock, from, lease_ms, grace_ms;
    int64_t grant; /* number of the lease that it holds, or that is offered; 0: it takes no other */
    int64_t state, outcome, exit_code, term_signal, lease_lost, nodes, gpus;
    struct sim_work work;
    int64_t any_ranks;            /* its program can resume with another number of workers */
    int64_t ranks, keep, devices; /* ROOM_INVENTORY: devices has the nodes that are sick */
    int64_t look_epoch, known_epoch, known_step, cut_epoch; /* of STAGE that looks; its answer */
    int64_t cut_step, cut_bytes, cut_ranks, cut_write_ms;   /* cut_bytes 0: none */
    /* Where rooms keep what they hear (sim_target_marks): the state of the hub that says it; of
     * HELLO what the room has heard; of LISTED whose the run is, and by which state. */
    int64_t stopped; /* it was told to save and end, and had not come to its end */
    char cluster[64];
    uint64_t rv;
    int64_t time_ms;
    /* of what it is to resume from, or has written */
    char reason[32], base[160], path[256], digest[80];
};
struct record_reader {
    size_t n;
    char p[sizeof(struct record)];
};
/* Calls each() for whole records until it returns false. */
void record_feed(struct record_reader *r, const void *p, size_t n,
                 bool (*each)(const struct record *m, void *arg), void *arg);
struct record record_make(enum room_record type);
/* sim_runs.c: what an order says, but for where its lease counts from. */
void sim_order_fill(const char *target, const struct run_order *o, struct record *m);
extern enum sim_plant sim_planted;
extern bool sim_marks;

#endif
