/* CLOSE: the log itself proves that a try never started. Its runners begin by a claim in this very
 * log, and there is none; from then on none is taken. Or they start nothing later than a time that
 * has passed by whichever clock, and its target has it in no list since. */
#include "tests/support/store/recover_kit.h"

static struct result claim(struct kit *k, int64_t try_, int64_t rank, const char *instance)
{
    union command c = {.head = {.type = CMD_RUN}};

    str_copy(c.run.ns, sizeof c.run.ns, k->ns);
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    c.run.epoch = kit_status(k, "w")->epoch;
    c.run.try_ = try_;
    c.run.step = STEP_CLAIM;
    c.run.rank = rank;
    str_copy(c.run.instance, sizeof c.run.instance, instance);
    return kit_apply(k, &c);
}

static void members(struct kit *k, uint32_t level)
{
    union command c = {.member = {.head = {.type = CMD_MEMBER},
                                  .member = {.id = 1, .feature_level = level},
                                  .cluster_uid = UID}};

    assert_int_equal(kit_apply(k, &c).code, 0);
}

#define WITHIN_MS 60000
#define ERROR_MS 5000

/* A gang of two on a target whose runners call home, or do not, or start within some time alone;
 * dispatched. */
static void goes_so(struct kit *k, uint32_t level, bool runners, bool in_time)
{
    struct target *t;

    kit_begin(k);
    members(k, level);
    t = arena_new(k->a, struct target);
    t->spec = arena_new(k->a, struct target_spec);
    t->spec->type = TARGET_CALLOUT;
    t->spec->tier = TIER_HUB;
    t->spec->connection = arena_new(k->a, struct target_connection);
    t->spec->connection->server = "https://fra.test";
    t->spec->connection->runners = runners;
    if (in_time) {
        t->spec->limits = arena_new(k->a, struct target_limits);
        t->spec->limits->startWithin = WITHIN_MS;
        t->spec->limits->clockError = ERROR_MS;
    }
    assert_int_equal(kit_create(k, KIND_TARGET, "", "fra", t).code, 0);
    assert_int_equal(kit_facts(k, "fra", 1, 4, true).code, 0);
    assert_int_equal(kit_workload(k, k->ns, "w", 2, 1).code, 0);
    assert_int_equal(kit_place(k, "w", "fra.n0", 0, 2, 1).code, 0);
    assert_int_equal(kit_run(k, "w", 1, 1, STEP_DISPATCH).code, 0);
}

static void goes(struct kit *k, uint32_t level, bool runners)
{
    goes_so(k, level, runners, false);
}

/* Its target was asked at that time, and had it nowhere. */
static int close_of(struct kit *k, int64_t unlisted_ms)
{
    union command c = {.run = {.head = {.type = CMD_RUN},
                               .step = STEP_CLOSE,
                               .epoch = 1,
                               .try_ = 1,
                               .name = "w",
                               .requeue = true,
                               .proof = PROOF_NEVER_STARTED,
                               .unlisted_ms = unlisted_ms}};

    str_copy(c.run.ns, sizeof c.run.ns, k->ns);
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    return kit_apply(k, &c).code;
}

static void test_nobody_has_claimed(void **state)
{
    static const enum run_step ways[] = {STEP_UNKNOWN, STEP_ACCEPTED, STEP_QUIESCE, STEP_PENDING};
    struct kit k;

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        goes(&k, FEATURE_LEVEL, true);
        assert_string_equal(kit_status(&k, "w")->intent->home, UID);
        assert_int_equal(kit_run(&k, "w", 1, 1, ways[i]).code, 0);
        k.requeue = true;
        assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CLOSE).code, 0);
        const struct workload_status *s = kit_status(&k, "w");
        assert_int_equal(s->phase, PHASE_QUEUED);
        assert_null(s->placement);
        assert_int_equal(s->n_ends, 1);
        assert_string_equal(s->ends[0].reason, "NeverClaimed");
        assert_int_equal(s->ends[0].proof, PROOF_NEVER_STARTED);
        assert_int_equal(epoch_ended(s), 0); /* nothing of it has saved anything */
        assert_int_equal(claim(&k, 1, 0, "late").code, E_STALE);
        kit_end(&k);
    }
}

/* Its place is kept where nothing else is asked for: who comes with an old token is refused, and
 * the next try is claimed by its own. */
static void test_the_next_try(void **state)
{
    struct kit k;

    (void)state;
    goes(&k, FEATURE_LEVEL, true);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CLOSE).code, 0);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_RESERVED);
    assert_int_equal(claim(&k, 1, 0, "late").code, E_STALE);
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_DISPATCH).code, 0);
    assert_int_equal(claim(&k, 1, 0, "late").code, E_STALE);
    assert_int_equal(claim(&k, 2, 0, "b").code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_CLOSE).code, E_STALE);
    kit_end(&k);
}

/* One of a gang is enough: its program may have begun, whatever became of the others. */
static void test_somebody_has_claimed(void **state)
{
    struct kit k;

    (void)state;
    goes(&k, FEATURE_LEVEL, true);
    assert_int_equal(claim(&k, 1, 1, "b").code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CLOSE).code, E_STALE);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_UNKNOWN);
    failpoint_plant("run.claims-ignored"); /* which the simulator and the leader's tests see */
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CLOSE).code, 0);
    failpoint_plant(NULL);
    kit_end(&k);
}

static void test_where_no_claim_is_needed(void **state)
{
    struct kit k;

    (void)state;
    goes(&k, FEATURE_LEVEL, false); /* its runners do not call home */
    assert_string_equal(kit_status(&k, "w")->intent->home, "");
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CLOSE).code, E_STALE);
    kit_end(&k);
    goes(&k, FEATURE_MACHINES, true); /* sent while some leader might have taken it without */
    assert_string_equal(kit_status(&k, "w")->intent->home, "");
    members(&k, FEATURE_LEVEL);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CLOSE).code, E_STALE);
    kit_end(&k);
}

static void test_a_run_that_was_seen(void **state)
{
    struct kit k;

    (void)state;
    goes(&k, FEATURE_LEVEL, true);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_RUNNING).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CLOSE).code, E_STALE);
    kit_end(&k);
}

static void test_a_stop_that_was_asked_for(void **state)
{
    struct kit k;

    (void)state;
    goes(&k, FEATURE_LEVEL, true);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_STOP).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CLOSE).code, 0);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_CANCELLED);
    kit_end(&k);
}

/* What a later state had of claims is lost: none is known, and its program runs. */
static void test_a_state_that_went_back(void **state)
{
    struct kit k;

    (void)state;
    for (int planted = 0; planted < 2; planted++) {
        goes(&k, FEATURE_LEVEL, true);
        assert_int_equal(kit_recover_begin(&k, UID ".2", root_rv(k.root) + 1000).code, 0);
        assert_int_equal(kit_lost(&k, "w").code, 0);
        assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CLOSE).code, E_BUSY);
        assert_int_equal(kit_settle(&k, "fra").code, 0);
        assert_int_equal(root_recovering(k.root), 0);
        if (planted) { /* without the rule it would be taken */
            failpoint_plant("run.any-log");
            assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CLOSE).code, 0);
            failpoint_plant(NULL);
            kit_end(&k);
            continue;
        }
        assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CLOSE).code, E_STALE);
        assert_int_equal(kit_status(&k, "w")->phase, PHASE_UNKNOWN);
        /* What begins from here on has all its claims here. */
        assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ABSENT).code, 0);
        kit_end(&k);
    }
}

static void test_its_time_is_over(void **state)
{
    struct kit k;

    (void)state;
    goes_so(&k, FEATURE_LEVEL, false, true);
    const struct intent *in = kit_status(&k, "w")->intent;
    int64_t by = in->startBy, over = by + ERROR_MS;
    assert_int_equal(by, in->at + WITHIN_MS);
    assert_int_equal(in->clockError, ERROR_MS);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    assert_int_equal(close_of(&k, 0), E_STALE);
    assert_int_equal(close_of(&k, over + 1), E_STALE); /* that time has not come yet */
    k.now = over + 10000;
    assert_int_equal(close_of(&k, 0), E_STALE); /* nobody has asked, */
    assert_int_equal(close_of(&k, by + 1), E_STALE); /* or when some clock might still permit it */
    assert_int_equal(close_of(&k, over), E_STALE);
    assert_int_equal(close_of(&k, over + 1), 0);
    const struct workload_status *s = kit_status(&k, "w");
    assert_int_equal(s->phase, PHASE_QUEUED);
    assert_string_equal(s->ends[0].reason, "NotStartedInTime");
    kit_end(&k);
}

static void test_its_time_is_over_for_those_alone_that_have_one(void **state)
{
    struct kit k;

    (void)state;
    goes(&k, FEATURE_LEVEL, false); /* it may be started at any time */
    assert_int_equal(kit_status(&k, "w")->intent->startBy, 0);
    k.now += 10 * WITHIN_MS;
    assert_int_equal(close_of(&k, k.now), E_STALE);
    kit_end(&k);
    goes_so(&k, FEATURE_MACHINES, false, true);
    assert_int_equal(kit_status(&k, "w")->intent->startBy, 0);
    kit_end(&k);
    goes_so(&k, FEATURE_LEVEL, true, true); /* who has claimed has begun in time, or is about to */
    assert_int_equal(claim(&k, 1, 0, "a").code, 0);
    k.now += 10 * WITHIN_MS;
    assert_int_equal(close_of(&k, k.now), E_STALE);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_has_claimed),
        cmocka_unit_test(test_the_next_try),
        cmocka_unit_test(test_somebody_has_claimed),
        cmocka_unit_test(test_where_no_claim_is_needed),
        cmocka_unit_test(test_a_run_that_was_seen),
        cmocka_unit_test(test_a_stop_that_was_asked_for),
        cmocka_unit_test(test_a_state_that_went_back),
        cmocka_unit_test(test_its_time_is_over),
        cmocka_unit_test(test_its_time_is_over_for_those_alone_that_have_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
