/* A machine room that lives in the virtual world, outside of all members, and the scripted driver
 * that members reach it with.
 *
 * The room runs what is submitted by key (uid, epoch, try), keeps every end, refuses a key once it
 * has said that it is absent, and stops a run whose lease is not renewed in time. Programs make
 * steps, write checkpoints, save when they are asked to (or do not), and resume. With chaos on it
 * also loses answers, answers late, does things twice, breaks connections and refuses orders. What
 * it records is the truth that the members are measured against. */
#ifndef HANSE_TESTS_SIM_FEDERATION_SIM_TARGET_H
#define HANSE_TESTS_SIM_FEDERATION_SIM_TARGET_H

#include "connectors/connector.h"
#include "tests/sim/federation/sim_store.h"
#include "tests/sim/world/sim_loop.h"

/* Planted bugs: one at a time, to prove that the checks see them. */
enum sim_plant {
    PLANT_NONE,
    PLANT_FORGETS_REFUSAL, /* the room takes a key after it told that it is absent */
    PLANT_LOST_IS_ABSENT,  /* the driver takes an unanswered find() for "absent" */
    PLANT_NEW_KEY,         /* the driver submits again, under a new key, when no answer came */
    PLANT_NO_LEASE,        /* the room's runners ignore the end of their lease */
    PLANT_NO_GUARD,        /* nobody ends the program of a shim that stands still */
    PLANT_LOST_IS_ENDED,   /* the driver takes a lost connection for the end of what ran there */
    PLANT_SWEEPS_ALL,      /* the driver's sweep ends what is owned, too */
    PLANT_OLD_CUT,         /* the driver tells an old epoch's checkpoint as the present one's */
    PLANT_NO_VERIFY,       /* the room's runners resume from what they did not verify */
    PLANT_AFRESH,          /* the driver forgets what it is to resume from */
    PLANT_LOSES_CUT,       /* the driver forgets the checkpoint that came with an end */
    PLANT_NR
};
const char *sim_plant_text(enum sim_plant p);

/* What a program does, as its workload's environment says (SIM_WORK). */
enum sim_habit {                  /* when it is asked to save and exit */
                 HABIT_SAVES = 1, /* writes a checkpoint, then exits 75 */
                 HABIT_IGNORES,   /* goes on until it is killed */
                 HABIT_TEARS,     /* exits 75 in the midst of its checkpoint */
                 HABIT_SLOW,      /* saves, but not within its grace */
                 HABIT_LEAVES,    /* has never saved: exits 0, as if all were done; else it saves */
                 HABIT_NR
};
struct sim_work {
    int64_t steps; /* 0: a program without steps, of random length */
    /* a checkpoint each `interval` steps, which takes so long */
    int64_t step_ms, interval, write_ms;
    int64_t habit;
    int64_t fails_at; /* exits 1 after this step, in its first epoch; 0 = never */
};
#define SIM_WORK_ENV "SIM_WORK"
void sim_work_print(const struct sim_work *w, char out[128]); /* "NAME=values" */
bool sim_work_parse(const char *env, struct sim_work *ret);

struct sim_run {
    struct list link;
    struct run_key key;
    /* STARTING, RUNNING, ENDED; ABSENT: what it was to resume from was no good */
    enum run_state state;
    int exit_code, term_signal;
    bool lease_lost;
    const char *reason;
    int64_t grant; /* number of its lease; 0: its runner is old, and takes no other */
    uint64_t lease_ms, from_ms, until_ms; /* on the room's clock */
    uint64_t began_ms, ended_ms;          /* of the world */
    uint64_t still_until_ms; /* until then its shim stands still, and its program runs on */
    bool told;               /* to save and end */
    bool untold;             /* how it ended nobody could say */
    uint64_t memory;         /* the state folder that has it */
    char cluster[64];        /* whose it is, by the state of which it was sent */
    uint64_t state_rv;
    bool forgotten;
    struct timer next; /* running, then its next step of note, then ended */
    struct timer kill;
    struct sim_room *room;
    void *thing; /* of a scripted target: what stands for it there */

    struct sim_work work;
    uint32_t devices; /* bit node * 4 + device: what it was given */
    int64_t ranks, keep;
    char base[160];
    struct sim_cut resumed; /* path "": from the start */
    int64_t step;
    uint64_t program; /* its state after `step` steps */
    uint64_t mark_ms; /* up to which its steps are counted */
    bool writing, leaving;
    const struct sim_cut *newest; /* of its own */
};
struct sim_room {
    char name[32]; /* of its Target and its host */
    struct sim_world *w;
    struct sim_host *host;
    struct sim_store *store;
    struct loop *loop;  /* of the runs and their leases: what shims are to an agent */
    struct loop *agent; /* of the sessions; NULL: it is down */
    struct list runs, refused, sessions;
    struct timer leases;
    struct {
        char cluster[64];
        uint64_t rv;
        int64_t time_ms;
    } heard;     /* how far the hub's state had come; with its runs, since it is on the disk */
    bool forgot; /* its agent's state folder was lost once */
    bool chaos, agent_up;                            /* agent_up: started, or about to */
    /* Not NULL: a scripted target (tests/sim/scripted), which hears of its runs by this. */
    void (*told)(struct sim_run *run);
    unsigned sick;                                   /* a bit for each node */
    unsigned nodes, gpus, long_percent;              /* so many runs outlast a partition */
    unsigned taken;                                  /* leases of another length */
    uint64_t next_session, session_since_ms, memory; /* memory: which state folder its agent has */
    unsigned again; /* orders of runs that it had; also what it does twice by itself */
    unsigned submits, answers_lost, late, twice, refusals, leases_lost, finished;
    int64_t lost_steps;
};
/* What the test wants to know: called before a run begins, before one is stopped or signalled, and
 * when one has ended with all its steps done (or, of those without steps, well). */
struct sim_room_events {
    void (*begins)(void *arg, struct sim_room *r, const struct sim_run *run);
    void (*stops)(void *arg, struct sim_room *r, const struct run_key *k);
    void (*finished)(void *arg, struct sim_room *r, const struct sim_run *run);
    void *arg;
};
/* Starts the room on a host of its name. The store is the caller's. */
struct sim_room *sim_room_create(struct sim_world *w, const char *name, struct sim_store *store,
                                 const struct sim_room_events *ev);
unsigned sim_room_alive(const struct sim_room *r, const char *uid); /* runs that live now */
/* Faults. The agent's process ends and is started again: runs and leases go on. A power cut ends
 * all runs. */
void sim_room_agent(struct sim_room *r, bool up);
void sim_room_power(struct sim_room *r, bool on);
/* Its agent ends, and begins again with a state folder that is empty: what runs goes on, by its
 * lease, and nobody there knows of it; nor of what was refused. */
void sim_room_forget(struct sim_room *r);
void sim_room_sick(struct sim_room *r, unsigned nodes);                  /* from now on */
void sim_room_kill_run(struct sim_room *r, struct sim_run *run);         /* its shim is killed */
void sim_run_stand_still(struct sim_run *run, uint64_t ms);              /* its shim is stopped */
struct sim_run *sim_room_run(const struct sim_room *r, const char *uid); /* that lives, or NULL */

/* For brain_config.driver. The Target's name is the room's host. */
const struct connector_ops *sim_target_driver(enum target_type type);
void sim_target_plant(enum sim_plant p);
/* Rooms know clusters, as agents do: whose their runs are, and how far the hub's state had come;
 * and they keep documents. Without it they serve one hub that never forgets. */
void sim_target_marks(bool on);

#endif
