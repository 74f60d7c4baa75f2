/* The contract of connector.h: what every driver has to do, asked through struct connector_ops
 * alone. A program that has a driver brings a struct connector_rig, makes it the state of its
 * cmocka group and runs CONNECTOR_CONTRACT_TESTS: submit, adopt, refuse, find, stop, deadlines, and
 * who may be told what. */
#ifndef HANSE_TESTS_SUPPORT_CONNECTOR_CONTRACT_H
#define HANSE_TESTS_SUPPORT_CONNECTOR_CONTRACT_H

#include "connectors/connector.h"
#include "controlplane/leader/site/listing.h"
#include "tests/support/unit.h"

/* Programs that the rig can have run, as its driver runs them. */
enum contract_program {
    PROGRAM_STAYS, /* until it is stopped; SIGUSR1 ends it with 75 */
    PROGRAM_ENDS,  /* at once, with 3 */
    /* Keeps the program contract: starts from the step in HANSE_RESUME_DIR, or 0; saves 10 steps on
     * at once, and on SIGUSR1 10 further on, then exits with 75. Its order has a checkpoint_dir
     * that belongs to the key's uid, and keep 2. */
    PROGRAM_SAVES
};
#define PROGRAM_STAYS_EXIT 75
#define PROGRAM_ENDS_EXIT 3

#define CONTRACT_CLOCK_ERROR_MS 4000
struct connector_rig {
    struct loop *loop;
    void (*run)(struct loop *l); /* until loop_stop */
    const struct connector_ops *ops;
    const struct object *target;
    void *arg;
    /* Fills in the order but for its key; what it names is good until the rig ends. */
    void (*order)(struct connector_rig *r, const struct run_key *k, enum contract_program what,
                  struct run_order *ret);
    /* The target stops answering (calls reach it, or are lost), or goes on. */
    void (*silence)(struct connector_rig *r, bool on);
    /* From outside, past the driver: how often this key was ever started, and whether it is
     * alive. */
    unsigned (*starts)(struct connector_rig *r, const struct run_key *k);
    bool (*alive)(struct connector_rig *r, const struct run_key *k);
    /* The step that this key's program found when it started; -1 when it never did. */
    int64_t (*resumed)(struct connector_rig *r, const struct run_key *k);
    /* For the tests of what a target can do. What it, or others, do to a run that lives: false
     * where they cannot. heal: all of it is over, and nothing is refused or queued any more. */
    unsigned n_troubles;
    bool (*trouble)(struct connector_rig *r, const struct run_key *k, unsigned which);
    void (*heal)(struct connector_rig *r);
    void (*queue)(struct connector_rig *r, uint64_t ms); /* all new runs wait so long */
    /* Orders come so late, and nobody hears of them. The clocks of its machines are off by
     * CONTRACT_CLOCK_ERROR_MS at most. NULL: the target refuses keys by itself. */
    void (*late)(struct connector_rig *r, uint64_t ms);
    /* The next order is refused in this way; false: there are no more. */
    bool (*refuse)(struct connector_rig *r, unsigned which);
    /* Somebody else has something of this key's name; how many of those are as they were. */
    void (*stranger)(struct connector_rig *r, const struct run_key *k);
    unsigned (*strangers)(struct connector_rig *r);
    const char *(*broken)(struct connector_rig *r); /* a rule, as seen from outside; "": none */
    uint64_t call_ms; /* so long a call may take; 0: 10 s */
    void (*env)(struct connector_rig *r, struct connector_env *ret); /* or NULL: adds to it */
    void (*attached)(struct connector_rig *r); /* or NULL: rig->connector was created anew */
    /* What the driver finds in its Secret, or NULL: none; what its HTTP client goes over. */
    const char *(*secret)(void *arg, const char *name, const char *key);
    const struct web_transport_ops *web;

    /* the suite's */
    struct connector *connector;
    bool reachable;
    size_t n_seen;
    struct observation seen[128]; /* the latest of each key */
    unsigned n_used;             /* how often it was told how busy devices are; the last one */
    struct run_use used;
    unsigned n_seated;           /* runs that left the target's queue; the last one, */
    struct run_key seated;       /* where its rank 0 was put, and its first device */
    char seat[256];
    int64_t seat_gpu;
    struct run_key worker; /* of whose worker something was told last, and what */
    struct run_worker told;
    char told_id[64], told_reason[64];
    int64_t told_clock_ms;
    unsigned noticed; /* how often notices were told, and the last ones */
    size_t n_notices;
    struct notice notices[4];
    const char *resume_path, *resume_digest; /* of the next orders; NULL = none */
    int64_t start_from_ms, start_by_ms;      /* likewise; 0: none */
    uint64_t serial, dice;
    struct listing nodes; /* what it told of its nodes, as the leader takes it */
    unsigned pages, deltas, unfit;
};
/* Creates the connector and waits until the target is in reach; ends it. */
void connector_rig_begin(struct connector_rig *r);
void connector_rig_end(struct connector_rig *r);
bool connector_until(struct connector_rig *r, bool (*cond)(void *arg), void *arg, uint64_t ms);

void connector_runs_and_tells_the_end(void **state);
void connector_adopts_a_second_submit(void **state);
void connector_repeats_orders_where_it_says_so(void **state);
void connector_refuses_what_it_called_absent(void **state);
void connector_refuses_older_epochs(void **state);
void connector_stops_with_proof_and_again(void **state);
void connector_stops_what_never_was(void **state);
void connector_quiesces_by_signal(void **state);
void connector_ends_calls_by_their_deadline(void **state);
void connector_ends_calls_when_destroyed(void **state);
void connector_holds_no_truth(void **state);
void connector_sweeps_what_nobody_owns(void **state);
void connector_finalizes_what_has_ended(void **state);
void connector_reports_checkpoints(void **state);
void connector_resumes_what_was_saved(void **state);
void connector_starts_nothing_from_a_bad_one(void **state);
void connector_stages_without_starting(void **state);

/* What a target can do that is no fault of the driver: it must not believe it. */
void connector_believes_no_appearance(void **state);
void connector_waits_in_a_queue(void **state);
void connector_says_what_a_refusal_blames(void **state);
void connector_touches_nothing_of_others(void **state);
void connector_starts_each_try_once(void **state);
void connector_starts_in_time_or_never(void **state);

#define CONNECTOR_CONTRACT_TESTS                                                                   \
    cmocka_unit_test(connector_runs_and_tells_the_end),                                            \
        cmocka_unit_test(connector_adopts_a_second_submit),                                        \
        cmocka_unit_test(connector_repeats_orders_where_it_says_so),                               \
        cmocka_unit_test(connector_refuses_what_it_called_absent),                                 \
        cmocka_unit_test(connector_refuses_older_epochs),                                          \
        cmocka_unit_test(connector_stops_with_proof_and_again),                                    \
        cmocka_unit_test(connector_stops_what_never_was),                                          \
        cmocka_unit_test(connector_quiesces_by_signal),                                            \
        cmocka_unit_test(connector_ends_calls_by_their_deadline),                                  \
        cmocka_unit_test(connector_ends_calls_when_destroyed),                                     \
        cmocka_unit_test(connector_holds_no_truth),                                                \
        cmocka_unit_test(connector_sweeps_what_nobody_owns),                                       \
        cmocka_unit_test(connector_finalizes_what_has_ended),                                      \
        cmocka_unit_test(connector_reports_checkpoints),                                           \
        cmocka_unit_test(connector_resumes_what_was_saved),                                        \
        cmocka_unit_test(connector_starts_nothing_from_a_bad_one),                                 \
        cmocka_unit_test(connector_stages_without_starting)

#endif
