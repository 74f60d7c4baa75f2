/* The contract of the epoch machine: the whole table as a golden text, what must hold over all of
 * it, and that a RUN command does in every phase what the table says. Drivers, brain and migration
 * build on it: a transition is added with its line in tests/golden/epoch.txt, none is changed in
 * passing. */
#include "controlplane/store/store_internal.h"
#include "tests/support/golden/golden.h"
#include "tests/support/store/store_kit.h"

#define EPOCH 2 /* the epoch under test; the first one ended, so that there is a past */

/* Facts about checkpoints: they move nothing. */
static bool told_only(enum run_step s)
{
    return s == STEP_CHECKPOINT || s == STEP_CHECKPOINT_BAD;
}

/* Facts about its lease, and its use: of this very try, and they move nothing either. */
static bool lease_step(enum run_step s)
{
    return s == STEP_OFFER || s == STEP_GRANT || s == STEP_SAVE || s == STEP_CLAIM ||
           s == STEP_USE;
}

static bool proof_step(enum run_step s)
{
    return s == STEP_ENDED || s == STEP_ABSENT || s == STEP_CLOSE || s == STEP_LEASE_OVER ||
           s == STEP_FENCED;
}

/* ---- the table ---- */
static void test_table_is_the_golden_one(void **state)
{
    struct golden g;
    char have[128];

    (void)state;
    golden_open(&g, "epoch.txt");
    for (enum phase p = PHASE_QUEUED; p <= PHASE_UNKNOWN; p++)
        for (enum run_step s = STEP_DISPATCH; s <= STEP_LAST; s++) {
            enum phase to = epoch_next(p, s);
            if (!to)
                continue;
            (void)snprintf(have, sizeof have, "%s %s %s\n", phase_text(p), run_step_text(s),
                           phase_text(to));
            golden_next(&g, have);
        }
    golden_close(&g, true);
}

static void test_only_proof_leaves_what_may_run(void **state)
{
    (void)state;
    for (enum phase p = PHASE_QUEUED; p <= PHASE_UNKNOWN; p++)
        for (enum run_step s = STEP_DISPATCH; s <= STEP_LAST; s++) {
            enum phase to = epoch_next(p, s);
            if (!to)
                continue;
            if (phase_live(p) && !phase_live(to) && !proof_step(s))
                fail_msg("%s by %s to %s without a proof", phase_text(p), run_step_text(s),
                         phase_text(to));
            if (phase_holds(p) && !phase_holds(to) && !proof_step(s) &&
                !(p == PHASE_RESERVED && (s == STEP_REQUEUE || s == STEP_STOP)))
                fail_msg("%s by %s lets its reservation go", phase_text(p), run_step_text(s));
            if (proof_step(s) && !phase_live(p))
                fail_msg("%s: %s proves an end of nothing", phase_text(p), run_step_text(s));
            if (!phase_holds(p) && phase_holds(to))
                fail_msg("%s by %s holds what no PLACE reserved", phase_text(p), run_step_text(s));
            if (!phase_live(p) && phase_live(to))
                assert_true(p == PHASE_RESERVED && s == STEP_DISPATCH);
            if (told_only(s) || lease_step(s))
                assert_int_equal(to, p);
            if (s == STEP_ABSENT || s == STEP_CLOSE) {
                assert_int_equal(to, PHASE_RESERVED);
                assert_int_not_equal(p, PHASE_RUNNING);
            }
            if (s == STEP_LEASE_OVER || s == STEP_FENCED || s == STEP_SEEN)
                assert_int_equal(p, PHASE_UNKNOWN);
        }
}

static void test_final_phases_are_final(void **state)
{
    (void)state;
    for (enum phase p = PHASE_QUEUED; p <= PHASE_UNKNOWN; p++) {
        if (!phase_final(p))
            continue;
        assert_false(phase_holds(p));
        for (enum run_step s = STEP_DISPATCH; s <= STEP_LAST; s++)
            assert_int_equal(epoch_next(p, s), told_only(s) ? (int)p : 0);
    }
}

static void test_unknown_keeps_holding(void **state)
{
    (void)state;
    assert_true(phase_holds(PHASE_UNKNOWN) && phase_live(PHASE_UNKNOWN));
    for (enum run_step s = STEP_DISPATCH; s <= STEP_LAST; s++) {
        enum phase to = epoch_next(PHASE_UNKNOWN, s);
        if (to && !proof_step(s))
            assert_true(phase_holds(to));
    }
    for (enum phase p = PHASE_QUEUED; p <= PHASE_UNKNOWN;
         p++) /* whatever may run can go out of reach */
        if (phase_live(p) && p != PHASE_UNKNOWN)
            assert_int_equal(epoch_next(p, STEP_UNKNOWN), PHASE_UNKNOWN);
}

static bool reaches_final(enum phase from, unsigned seen)
{
    if (phase_final(from))
        return true;
    if (seen & (1u << from))
        return false;
    for (enum run_step s = STEP_DISPATCH; s <= STEP_LAST; s++) {
        enum phase to = epoch_next(from, s);
        if (to && to != from && reaches_final(to, seen | (1u << from)))
            return true;
    }
    return false;
}

static void test_every_live_phase_ends_by_proof(void **state)
{
    (void)state;
    for (enum phase p = PHASE_QUEUED; p <= PHASE_UNKNOWN; p++) {
        bool proved = false;
        for (enum run_step s = STEP_DISPATCH; s <= STEP_LAST; s++)
            proved |= proof_step(s) && epoch_next(p, s);
        assert_int_equal(proved, phase_live(p));
        assert_true(reaches_final(p, 0));
        if (!phase_final(p)) /* a stop may be asked for anywhere */
            assert_int_not_equal(epoch_next(p, STEP_STOP), 0);
    }
    assert_int_equal(epoch_next((enum phase)0, STEP_STOP), 0);
    assert_int_equal(epoch_next(PHASE_RUNNING, (enum run_step)(STEP_LAST + 1)), 0);
    assert_int_equal(epoch_next(PHASE_RUNNING, STEP_CHECKPOINT_FOUND), 0);
}

/* ---- apply and the table ---- */
static const struct workload_status *status(struct kit *k)
{
    return object_as(kit_get(k, "w"), workload)->status;
}

static int64_t try_of(struct kit *k)
{
    return status(k)->intent ? status(k)->intent->try_ : 0;
}

static struct result step_as(struct kit *k, int64_t epoch, int64_t try_, enum run_step step,
                             enum proof proof)
{
    struct run_checkpoint ck = {.step = 7, .digest = "sha256:x", .name = "c"};
    struct lease_grant grant = {.lease = 8000, .grace = 1000, .kill = 5000, .number = 2};
    union command c = {.head = {.type = CMD_RUN}};

    c.run.grant = lease_step(step) ? &grant : NULL;
    str_copy(c.run.ns, sizeof c.run.ns, k->ns);
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    c.run.epoch = epoch;
    c.run.try_ = try_;
    c.run.step = step;
    c.run.proof = proof;
    c.run.exit_code = k->exit_code;
    c.run.requeue = k->requeue;
    c.run.checkpoint = told_only(step) || step == STEP_CHECKPOINT_FOUND ? &ck : NULL;
    if (step == STEP_CHECKPOINT_FOUND) { /* of the epoch that ran last */
        ck.epoch = EPOCH - 1;
        ck.path = "/store/cut";
    }
    if (step == STEP_CHECKPOINT_BAD) {
        ck.epoch = status(k)->checkpoint ? status(k)->checkpoint->epoch : epoch;
        (void)snprintf(c.run.reason, sizeof c.run.reason, "CheckpointTorn");
    }
    return kit_apply(k, &c);
}

static enum proof proof_of(enum run_step s)
{
    if (s == STEP_ABSENT || s == STEP_CLOSE)
        return PROOF_NEVER_STARTED;
    return proof_step(s) ? PROOF_TREE_GONE : (enum proof)0;
}

/* As the brain would send it now. */
static int step(struct kit *k, enum run_step s)
{
    int64_t epoch = status(k)->epoch;

    if (s == STEP_CHECKPOINT && status(k)->phase == PHASE_RESERVED)
        epoch--; /* of the one that ran last */
    return step_as(k, epoch, try_of(k) + (s == STEP_DISPATCH), s, proof_of(s)).code;
}

#define PATH_MAX_STEPS 6
static const enum run_step paths[PHASE_UNKNOWN + 1][PATH_MAX_STEPS] = {
    [PHASE_DISPATCHING] = {STEP_DISPATCH},
    [PHASE_STARTING] = {STEP_DISPATCH, STEP_ACCEPTED},
    [PHASE_RUNNING] = {STEP_DISPATCH, STEP_ACCEPTED, STEP_RUNNING},
    [PHASE_QUIESCING] = {STEP_DISPATCH, STEP_QUIESCE},
    [PHASE_STOPPED] = {STEP_DISPATCH, STEP_RUNNING, STEP_UNKNOWN, STEP_LEASE_OVER},
    [PHASE_SUCCEEDED] = {STEP_DISPATCH, STEP_ENDED},
    [PHASE_FAILED] = {STEP_DISPATCH, STEP_ENDED},
    [PHASE_CANCELLED] = {STEP_STOP},
    [PHASE_UNKNOWN] = {STEP_DISPATCH, STEP_UNKNOWN},
};

/* The same, and another lease is offered. */
static const enum run_step offered_paths[PHASE_UNKNOWN + 1][PATH_MAX_STEPS] = {
    [PHASE_STARTING] = {STEP_DISPATCH, STEP_ACCEPTED, STEP_OFFER},
    [PHASE_RUNNING] = {STEP_DISPATCH, STEP_RUNNING, STEP_OFFER},
    [PHASE_QUIESCING] = {STEP_DISPATCH, STEP_RUNNING, STEP_OFFER, STEP_QUIESCE},
    [PHASE_UNKNOWN] = {STEP_DISPATCH, STEP_RUNNING, STEP_OFFER, STEP_UNKNOWN},
};

/* A workload in phase `p` of its second epoch. */
static void arrive(struct kit *k, enum phase p, bool offered)
{
    const enum run_step *path = offered && *offered_paths[p] ? offered_paths[p] : paths[p];

    kit_begin(k);
    kit_pool(k, 1, 4);
    assert_int_equal(kit_workload(k, "default", "w", 1, 2).code, 0);
    assert_int_equal(kit_place(k, "w", "fra.n0", 0, 1, 2).code, 0);
    assert_int_equal(step(k, STEP_DISPATCH), 0);
    k->requeue = true;
    assert_int_equal(step(k, STEP_ENDED), 0);
    k->requeue = false;
    assert_int_equal(status(k)->phase, PHASE_QUEUED);
    if (p != PHASE_QUEUED)
        assert_int_equal(kit_place(k, "w", "fra.n0", 0, 1, 2).code, 0);
    k->exit_code = p == PHASE_FAILED;
    for (int i = 0; i < PATH_MAX_STEPS && path[i]; i++)
        assert_int_equal(step(k, path[i]), 0);
    k->exit_code = 0;
    assert_int_equal(status(k)->phase, p);
    assert_int_equal(status(k)->epoch, p == PHASE_QUEUED ? EPOCH - 1 : EPOCH);
}

static void holds_as_its_phase(struct kit *k)
{
    struct node_usage u;
    bool holds = phase_holds(status(k)->phase);

    /* in the target's own queue: on no node */
    assert_int_equal(root_usage(k->root, "fra.n0", &u), holds && !status(k)->pending);
    assert_int_equal(root_queue_held(k->root, "", "h100"), holds ? 2000 : 0);
    assert_int_equal(object_live(kit_get(k, "w")), phase_live(status(k)->phase));
}

/* A step that is refused leaves every byte as it was. */
static void refused(struct kit *k, int64_t epoch, int64_t try_, enum run_step s, enum proof proof,
                    int code)
{
    uint64_t rv = root_rv(k->root), digest = k->root->digest;
    struct result r = step_as(k, epoch, try_, s, proof);

    if (r.code != code)
        fail_msg("%s by %s of epoch %d try %d: %d (%s), expected %d", phase_text(status(k)->phase),
                 run_step_text(s), (int)epoch, (int)try_, r.code, r.text, code);
    assert_true(root_rv(k->root) == rv && k->root->digest == digest);
}

static void test_apply_does_what_the_table_says(void **state)
{
    struct kit k;

    (void)state;
    for (enum phase p = PHASE_QUEUED; p <= PHASE_UNKNOWN; p++)
        for (enum run_step s = STEP_DISPATCH; s <= STEP_LAST; s++) {
            enum phase to = epoch_next(p, s);
            arrive(&k, p, s == STEP_GRANT);
            int64_t epoch = status(&k)->epoch, try_ = try_of(&k) + (s == STEP_DISPATCH);
            if (!to) {
                refused(&k, epoch, try_, s, proof_of(s), E_STALE);
                kit_end(&k);
                continue;
            }
            if (p == PHASE_UNKNOWN && s == STEP_UNKNOWN) { /* members of before would not follow */
                refused(&k, epoch, try_, s, proof_of(s), E_STALE);
                kit_level_set(&k, FEATURE_TELLS);
            }
            refused(&k, epoch + 1, try_, s, proof_of(s), E_STALE); /* another epoch never speaks */
            if (s == STEP_CHECKPOINT_BAD) { /* of one that is known, of this epoch, by any try */
                refused(&k, epoch, try_, s, (enum proof)0, E_STALE);
                assert_int_equal(step(&k, STEP_CHECKPOINT), 0);
                refused(&k, epoch - 1, try_, s, (enum proof)0, E_STALE);
            }
            if (!told_only(s)) {
                refused(&k, epoch - 1, try_, s, proof_of(s), E_STALE);
                refused(&k, epoch, try_ + 1, s, proof_of(s), E_STALE); /* nor another try */
                refused(&k, epoch, try_ - 1, s, proof_of(s), E_STALE);
            }
            /* What these say is for test_save.c and test_claim.c; saying nothing is refused. */
            if (s == STEP_SAVE || s == STEP_CLAIM) {
                refused(&k, epoch, try_, s, (enum proof)0, E_INVALID);
                kit_end(&k);
                continue;
            }
            if (proof_step(s))
                refused(&k, epoch, try_, s, (enum proof)0, E_INVALID);
            if (s == STEP_CLOSE) { /* its runners need no claim; where they do: test_close.c */
                refused(&k, epoch, try_, s, PROOF_TREE_GONE, E_INVALID);
                refused(&k, epoch, try_, s, proof_of(s), E_STALE);
                kit_end(&k);
                continue;
            }
            if (s == STEP_SEEN)
                to = status(&k)->phaseBefore;
            int code = step(&k, s);
            if (code || status(&k)->phase != to)
                fail_msg("%s by %s: %d, then %s; the table says %s", phase_text(p),
                         run_step_text(s), code, phase_text(status(&k)->phase), phase_text(to));
            holds_as_its_phase(&k);
            kit_end(&k);
        }
}

/* The notes of epoch.def: where a step leads when something else holds. */
static void test_notes_of_the_table(void **state)
{
    static const struct {
        enum phase from;
        enum run_step steps[4];
        bool requeue;
        int64_t exit_code, retries;
        enum phase to;
    } notes[] = {
        {PHASE_RUNNING, {STEP_ENDED}, false, 1, 0, PHASE_FAILED},
        {PHASE_RUNNING, {STEP_ENDED}, false, 1, 1, PHASE_QUEUED},
        {PHASE_RUNNING, {STEP_ENDED}, true, 1, 0, PHASE_QUEUED},
        {PHASE_RUNNING, {STEP_STOP, STEP_ENDED}, true, 1, 1, PHASE_CANCELLED},
        {PHASE_RUNNING, {STEP_QUIESCE, STEP_STOP, STEP_ENDED}, true, 0, 0, PHASE_CANCELLED},
        {PHASE_RUNNING, {STEP_STOP, STEP_QUIESCE, STEP_ENDED}, true, 0, 0, PHASE_CANCELLED},
        {PHASE_STARTING, {STEP_ABSENT}, true, 0, 0, PHASE_QUEUED},
        {PHASE_STARTING, {STEP_STOP, STEP_ABSENT}, true, 0, 0, PHASE_CANCELLED},
        {PHASE_UNKNOWN, {STEP_LEASE_OVER}, true, 0, 0, PHASE_QUEUED},
        {PHASE_UNKNOWN, {STEP_FENCED}, true, 0, 0, PHASE_QUEUED},
        {PHASE_UNKNOWN, {STEP_STOP, STEP_FENCED}, true, 0, 0, PHASE_CANCELLED},
        {PHASE_UNKNOWN, {STEP_STOP, STEP_LEASE_OVER}, false, 0, 0, PHASE_CANCELLED},
        {PHASE_STARTING, {STEP_UNKNOWN, STEP_SEEN}, false, 0, 0, PHASE_STARTING},
        {PHASE_RUNNING, {STEP_UNKNOWN, STEP_SEEN}, false, 0, 0, PHASE_RUNNING},
        {PHASE_QUIESCING, {STEP_UNKNOWN, STEP_SEEN}, false, 0, 0, PHASE_QUIESCING},
        {PHASE_RUNNING, {STEP_UNKNOWN, STEP_STOP, STEP_SEEN}, false, 0, 0, PHASE_QUIESCING},
        {PHASE_RUNNING, {STEP_UNKNOWN, STEP_QUIESCE, STEP_SEEN}, false, 0, 0, PHASE_QUIESCING},
    };
    struct kit k;

    (void)state;
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        arrive(&k, notes[i].from, false);
        AUTO_ARENA a = arena_create(0);
        struct workload *w = object_edit_as(kit_get(&k, "w"), workload, a);
        w->spec->run->retries = notes[i].retries;
        assert_int_equal(kit_update(&k, KIND_WORKLOAD, "default", "w", w, 0, false).code, 0);
        k.requeue = notes[i].requeue;
        k.exit_code = notes[i].exit_code;
        for (int j = 0; j < 4 && notes[i].steps[j]; j++)
            assert_int_equal(step(&k, notes[i].steps[j]), 0);
        if (status(&k)->phase != notes[i].to)
            fail_msg("note %zu: %s, expected %s", i, phase_text(status(&k)->phase),
                     phase_text(notes[i].to));
        holds_as_its_phase(&k);
        kit_end(&k);
    }
    arrive(&k, PHASE_RUNNING,
           false); /* what was seen running is never absent, wherever it is now */
    assert_int_equal(step(&k, STEP_QUIESCE), 0);
    refused(&k, EPOCH, 1, STEP_ABSENT, PROOF_NEVER_STARTED, E_STALE);
    assert_int_equal(step(&k, STEP_UNKNOWN), 0);
    refused(&k, EPOCH, 1, STEP_ABSENT, PROOF_NEVER_STARTED, E_STALE);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_the_golden_one),
        cmocka_unit_test(test_only_proof_leaves_what_may_run),
        cmocka_unit_test(test_final_phases_are_final),
        cmocka_unit_test(test_unknown_keeps_holding),
        cmocka_unit_test(test_every_live_phase_ends_by_proof),
        cmocka_unit_test(test_apply_does_what_the_table_says),
        cmocka_unit_test(test_notes_of_the_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
