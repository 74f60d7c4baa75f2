/* A federation in the virtual world: three members, two rooms, users, faults and the checks. One
 * seed is one life of it. */
#ifndef HANSE_TESTS_SIM_FEDERATION_SIM_FEDERATION_H
#define HANSE_TESTS_SIM_FEDERATION_SIM_FEDERATION_H

#include "tests/sim/federation/sim_member.h"
#include "tests/sim/federation/sim_target.h"

#define FED_ROOMS 2
#define FED_WORKLOADS_MAX 256
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
struct fed_digest {
    uint64_t digest, term;
    bool known;
};
/* What one life is made of. */
struct fed_script {
    enum sim_plant plant;
    bool steps; /* programs make steps, write checkpoints and resume */
};
struct fed {
    struct sim_world *w;
    struct fed_script script;
    struct sim_host *hosts[SIM_MEMBERS];
    struct sim_member *members[SIM_MEMBERS]; /* NULL: down */
    bool paused[SIM_MEMBERS];
    bool started[SIM_MEMBERS]; /* has been started once */
    struct sim_room *rooms[FED_ROOMS];
    struct sim_store store;
    struct fed_progress *progress;
    size_t n_progress, cap_progress;
    int64_t lost_steps;
    unsigned resumed, finished,
        twice; /* twice: finished again, because the first end could not be told */
    struct fed_workload workloads[FED_WORKLOADS_MAX];
    unsigned n_workloads, n_requests, faults, acked, unknown;
    struct fed_digest *digests; /* by entry number */
    uint64_t n_digests, checked;
    struct root *newest; /* that any member has had */
    char (*intents)[RUN_KEY_MAX];
    size_t n_intents, cap_intents;
    enum fed_profile profile;
    uint64_t cut_until_ms[SIM_MEMBERS + FED_ROOMS][SIM_MEMBERS + FED_ROOMS];
    unsigned leases_over; /* places let go by an expired lease alone, as the end's state tells */
    uint32_t phases, intent_ops; /* bits of what the states have held */
    bool quiet, docs, probe_sent, probe_acked;
    char failed[512]; /* the first check that did not hold */
};

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
/* sim_users.c */
void fed_users_start(struct fed *f);
void fed_docs(struct fed *f);      /* namespace and Targets; again until acknowledged */
void fed_probe(struct fed *f);     /* one write that must be acknowledged */
void fed_unsuspend(struct fed *f); /* and takes drains back; again and again */
/* sim_faults.c */
void fed_faults_start(struct fed *f);
void fed_member_up(struct fed *f, unsigned i);

/* One life: returns 0, or 1 with `failed` written. */
struct fed_outcome {
    bool done;
    uint64_t hash, events, entries;
    unsigned resumed, finished, twice;
    int64_t lost_steps;
    unsigned workloads, acked, unknown, faults, submits, answers_lost, leases_lost, leases_over;
    uint32_t phases, intent_ops;
    char failed[512];
};
void fed_run(uint64_t seed, const struct fed_script *script, struct fed_outcome *ret);

#endif
