/* A federation in the virtual world: three members, two rooms, users, faults and the checks. One
 * seed is one life of it. */
#ifndef HANSE_TESTS_SIM_FEDERATION_SIM_FEDERATION_H
#define HANSE_TESTS_SIM_FEDERATION_SIM_FEDERATION_H

#include "tests/sim/federation/sim_member.h"
#include "tests/sim/federation/sim_target.h"

#define FED_ROOMS 2     /* with agents */
#define FED_ROOMS_MAX 5 /* and a Kubernetes, a Slurm and a cloud, as scripted ones */
#define FED_WORKLOADS_MAX 256
#define FED_POINTS_MAX 64
enum fed_profile { FED_ALL, FED_MEMBERS, FED_LINKS, FED_PROFILE_NR }; /* what fails most */
#define FED_FAULTS_FROM_MS 8000
#define FED_FAULTS_UNTIL_MS 68000
#define FED_PROGRESS_MS 10000 /* a write must be acknowledged so soon after the last fault */
#define FED_END_MS 400000

struct fed_workload { /* as its user knows it */
    char name[32], uid[40];
    bool created, delete_sent, deleted;
};
struct fed_progress { /* of one workload, as the rooms have seen it */
    char uid[64];
    int64_t epoch; /* of its newest run */
    unsigned begun, finished;
    int64_t finished_epoch;
    struct sim_run *last;
};
/* One of the large things of sim_bulk.c. */
enum fed_bulk_tale { BULK_NONE, BULK_OWNER, BULK_CROWD, BULK_HALL, BULK_LARGE, BULK_NR };
struct fed_bulk {
    enum fed_bulk_tale tale;
    unsigned stage, done, next; /* of what a stage asks for: acknowledged; with what is under way */
    bool more, over;            /* more: the stage is not at its end with that */
    unsigned n_requests;
    void *bytes; /* of the command that is under way */
    size_t n_bytes;
    uint64_t asked_until_ms;
    uint64_t changes, removed_bytes; /* since the newest root */
};
struct fed_digest {
    uint64_t digest, term;
    bool known;
};
/* One crash at one arrow of one move: all else is quiet. */
enum fed_party {
    PARTY_NONE,
    PARTY_LEADER,
    PARTY_FOLLOWER,
    PARTY_SOURCE, /* its target loses power */
    PARTY_DESTINATION,
    PARTY_SOURCE_AGENT,
    PARTY_DESTINATION_AGENT,
    PARTY_SOURCE_SHIM,
    PARTY_DESTINATION_SHIM,
    PARTY_NR
};
const char *fed_party_text(enum fed_party p);
struct fed_arrow {
    enum move_cause cause;
    enum move_phase phase; /* dies as the log says this; 0: at a point */
    char point[64];        /* dies inside of this failpoint, the nth time: the leader */
    unsigned nth;
    enum fed_party party;
};

/* A Kubernetes, a Slurm and a cloud beside the rooms: tests/sim/scripted. */
struct fed;
struct fed_mixed {
    void (*make)(struct fed *f);
    void (*target)(struct fed *f, struct arena *a, struct target_spec *s, const char *room);
    void (*start)(struct fed *f); /* what goes wrong there */
    void (*quiet)(struct fed *f);
    void (*end)(struct fed *f, const struct root *r); /* nothing is left behind */
};
/* What one life is made of. */
struct fed_script {
    enum sim_plant plant;
    bool steps; /* programs make steps, write checkpoints and resume */
    /* users ask for moves, production work preempts, one room is the hub of the other */
    bool moves;
    bool causes;  /* with moves: prices change, data arrives, nodes fall sick, guarantees are
                     reclaimed, notices come */
    bool rooms;   /* rooms lose power, agents and shims; checkpoints are damaged */
    bool back;    /* all members' data is put back to an older copy, or is lost (sim_back.c) */
    const struct fed_mixed *mixed; /* with scripted targets (tests/sim/scripted), or NULL */
    bool clients; /* only clients that write down what they are told (tests/sim/clients), and faults
                     of members */
    const char *bug;               /* planted in the program (failpoint_plant), or NULL */
    const struct fed_arrow *arrow; /* then no users, no faults but this */
};
struct fed_history { /* as the judge of histories counted */
    size_t ops, unknown, lists, events, configurations;
};
struct fed {
    struct sim_world *w;
    struct fed_script script;
    struct sim_host *hosts[SIM_MEMBERS];
    struct sim_member *members[SIM_MEMBERS]; /* NULL: down */
    bool paused[SIM_MEMBERS];
    bool started[SIM_MEMBERS]; /* has been started once */
    struct sim_room *rooms[FED_ROOMS_MAX];
    unsigned n_rooms;
    struct sim_store store;
    struct fed_progress *progress;
    size_t n_progress, cap_progress;
    int64_t lost_steps;
    unsigned resumed, finished,
        twice; /* twice: finished again, because the first end could not be told */
    struct fed_workload workloads[FED_WORKLOADS_MAX];
    unsigned n_workloads, n_requests, n_moves, faults, acked, unknown, transfers;
    struct fed_history history;
    struct fed_digest *digests; /* by entry number */
    uint64_t n_digests, checked;
    struct root *newest; /* that any member has had */
    char (*intents)[RUN_KEY_MAX];
    size_t n_intents, cap_intents;
    enum fed_profile profile;
    uint64_t cut_until_ms[SIM_MEMBERS + FED_ROOMS_MAX][SIM_MEMBERS + FED_ROOMS_MAX];
    unsigned gains;       /* moves for gain that were begun */
    unsigned leases_over; /* places let go by an expired lease alone, as the end's state tells */
    uint32_t phases, intent_ops; /* bits of what the states have held */
    struct {
        uint64_t number; /* entry in which the phase was come to */
        unsigned died, passed;
        bool scheduled;
        uint32_t phases;
        char from[64], to[64];
    } arrow;
    char points[FED_POINTS_MAX][64]; /* failpoints that were reached */
    unsigned n_points;
    unsigned moves[MP_CANCELLED + 1];  /* how often a Migration was seen in a phase */
    unsigned causes[MOVE_RECLAIM + 1]; /* migrations by cause */
    bool clock_wrong;                  /* of one member; a majority's are right */
    struct fed_bulk bulk;
    unsigned unmade; /* of the rooms the last so many have no Target yet */
    bool quiet, docs, probe_sent, probe_acked;
    char failed[512]; /* the first check that did not hold */
};

/* sim_federation.c */
uint64_t fed_below(struct fed *f, uint64_t n); /* at random, of the world's seed */
bool fed_over(void *fed);                      /* a check has failed: for sim_run_until */
/* sim_checks.c */
void fed_fail(struct fed *f, const char *fmt, ...) PRINTF_LIKE(2, 3);
void fed_check_root(void *fed, struct sim_member *m, const struct root *r);
void fed_check_begin(void *fed, struct sim_room *room, const struct sim_run *run);
void fed_check_stop(void *fed, struct sim_room *room, const struct run_key *k);
bool fed_settled(struct fed *f); /* all workloads have ended or are explained */
void fed_check_end(struct fed *f);
struct root *fed_newest(struct fed *f); /* of the members that are up; a reference, or NULL */
/* sim_checks_work.c: steps, checkpoints, devices */
void fed_check_work_begin(struct fed *f, struct sim_room *room, const struct sim_run *run);
void fed_check_finished(void *fed, struct sim_room *room, const struct sim_run *run);
void fed_check_change(struct fed *f, const struct root *r, const struct change *c);
/* sim_checks_moves.c */
bool fed_moves_over(struct fed *f);
void fed_check_moves_end(struct fed *f, const struct root *r);
void fed_check_move(struct fed *f, const struct root *r, const struct change *c);
/* sim_arrows.c */
void fed_arrow_live(struct fed *f);
void fed_arrow_root(struct fed *f, struct sim_member *m, const struct root *r);
void fed_arrow_change(struct fed *f, const struct root *r, const struct change *c);
/* sim_users.c */
struct fed_request { /* what its answer is for */
    int workload;    /* -1: none */
    enum write_verb verb;
    bool docs, probe;
};
struct sim_member *fed_member_pick(struct fed *f); /* that a user would reach, or NULL */
void fed_propose(struct fed *f, struct sim_member *m, union command *c,
                 const struct fed_request *rq); /* lets go of the objects */
struct meta *fed_meta(struct arena *a, const char *ns, const char *name, const char *uid);
void fed_op(struct write_op *op, enum write_verb verb, enum kind_id kind, const char *ns,
            const char *name, const void *body);
/* false: it is so already */
bool fed_drain(struct fed *f, struct sim_member *m, const char *room, bool on);
void fed_users_start(struct fed *f);
void fed_docs(struct fed *f);      /* namespace and Targets; again until acknowledged */
void fed_probe(struct fed *f);     /* one write that must be acknowledged */
void fed_unsuspend(struct fed *f); /* and takes drains back; again and again */
/* sim_edits.c */
void fed_edits_start(struct fed *f); /* documents change all the time, until faults are over */
/* sim_bulk.c: large cascades, large objects, GpuClasses of many nodes */
enum fed_bulk_tale fed_bulk_tale(uint64_t seed);
void fed_bulk_start(struct fed *f, uint64_t seed);
bool fed_bulk_settled(struct fed *f);
void fed_bulk_change(struct fed *f, const struct change *c);
void fed_check_bulk_root(struct fed *f, const struct root *r); /* before r is the newest */
void fed_check_bulk_end(struct fed *f, const struct root *r);
/* sim_asks.c */
#define FED_MOVE_DOCS 5
#define FED_MIN_STAY_MS 3000
#define FED_AT_MOST_EVERY_MS 10000
uint32_t fed_move_docs(struct fed *f, struct arena *a, struct write_op *ops);
/* "": anywhere */
void fed_ask_move(struct fed *f, struct sim_member *m, const char *workload, const char *to);
void fed_move_any(struct fed *f, struct sim_member *m);
void fed_cancel_move(struct fed *f, struct sim_member *m);
/* sim_causes.c: why work moves that nobody asked for */
#define FED_CAUSE_DOCS (2 + FED_ROOMS_MAX + 2)
bool fed_for_gain(const struct fed *f);    /* prices and data matter */
bool fed_with_queues(const struct fed *f); /* "a" is guaranteed the hub, "b" borrows */
uint32_t fed_cause_docs(struct fed *f, struct arena *a, struct write_op *ops);
void fed_gain_policy(struct arena *a, struct placement_policy_spec *s);
void fed_cause_price(struct fed *f, struct sim_member *m, const char *room, double price);
void fed_cause_data(struct fed *f, struct sim_member *m, const char *room);
void fed_cause_notice(struct fed *f, const char *workload); /* again until it is heard */
void fed_cause_for(struct fed *f, struct sim_member *m, const char *workload,
                   enum move_cause cause);
void fed_cause_any(struct fed *f, struct sim_member *m);
/* sim_arrow_all.c: prints; how many failed */
unsigned fed_arrow_all(enum move_cause cause, uint64_t seeds); /* of each; HANSE_SIM_SEEDS */
/* sim_back.c */
void fed_back_live(struct fed *f, uint64_t seed);
bool fed_was_deleted(const struct fed *f, const char *uid); /* its user asked for that */
/* sim_faults.c */
void fed_faults_start(struct fed *f);
void fed_member_up(struct fed *f, unsigned i);
void fed_members_up(void *fed);                  /* all that are down: for sim_at */
void fed_member_down(struct fed *f, unsigned i); /* power cut */
unsigned fed_leader(struct fed *f); /* who takes itself for it; anybody when nobody does */
void fed_fault(struct fed *f);      /* one, as the profile has it */
void fed_quiet(struct fed *f);      /* all is healed */

/* One life: returns 0, or 1 with `failed` written. */
struct fed_outcome {
    bool done;
    uint64_t hash, events, entries;
    unsigned resumed, finished, twice;
    int64_t lost_steps;
    unsigned workloads, acked, unknown, faults, submits, again, answers_lost;
    unsigned leases_lost, leases_over;
    unsigned transfers, gains;
    struct fed_history history;
    enum fed_bulk_tale bulk;
    uint32_t phases, intent_ops, arrow_phases;
    unsigned causes[MOVE_RECLAIM + 1];
    unsigned moves[MP_CANCELLED + 1], died, refused_cuts;
    char points[FED_POINTS_MAX][64];
    unsigned n_points;
    char failed[512];
};
/* sim_seed.c: the same in a process of its own, so that an abort is a failure of that life
 * alone. */
struct fed_outcome fed_run_apart(uint64_t seed, const struct fed_script *script);
/* The number that the environment says under this name. */
uint64_t fed_number(const char *name, uint64_t otherwise);
enum sim_plant fed_plant_wanted(void); /* by HANSE_SIM_PLANT */
/* 1 when it failed, and then says how, and how `program` shows it again. */
unsigned fed_tell(uint64_t seed, const struct fed_outcome *o, const char *program);
void fed_run(uint64_t seed, const struct fed_script *script, struct fed_outcome *ret);

#endif
