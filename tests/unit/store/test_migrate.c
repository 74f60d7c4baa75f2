/* Moves as transactions: each step, each way back, and what may never be: a destination that is not
 * held, or held for nobody; an epoch that starts ahead of the last one's proved end; half a plan; a
 * victim that policy protects. */
#include "tests/unit/store/move_kit.h"

static void begin(struct kit *k)
{
    kit_begin(k);
    kit_target(k, "fra", TIER_HUB, 1, 4);
    kit_target(k, "ber", TIER_SPOKE, 1, 4);
}

static void step_ok(struct kit *k, const char *name, enum move_step step)
{
    struct result r = kit_step(k, name, step);

    if (r.code)
        fail_msg("%s: %s", move_step_text(step), r.text);
    root_check(k->root);
}

static void step_stale(struct kit *k, const char *name, enum move_step step, const char *says)
{
    uint64_t rv = root_rv(k->root), digest = k->root->digest;
    struct result r = kit_step(k, name, step);

    if (r.code != E_STALE || !strstr(r.text, says))
        fail_msg("%s: %d \"%s\", expected stale \"%s\"", move_step_text(step), r.code, r.text,
                 says);
    assert_true(root_rv(k->root) == rv && k->root->digest == digest);
}

static void held(struct kit *k, int64_t fra, int64_t ber)
{
    assert_int_equal(kit_held(k, "fra.n0"), fra);
    assert_int_equal(kit_held(k, "ber.n0"), ber);
    root_check(k->root);
}

static void end_source(struct kit *k, const char *name, int64_t epoch)
{
    k->requeue = true;
    assert_int_equal(kit_run(k, name, epoch, 1, STEP_ENDED).code, 0);
    k->requeue = false;
    assert_int_equal(kit_status(k, name)->phase, PHASE_QUEUED);
}

/* ---- the whole way ---- */
static void test_from_target_to_target(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    kit_running(&k, "w", "", "fra.n0", 0, 2);
    int64_t queued = kit_status(&k, "w")->queuedAt;
    k.now += 100000;
    assert_int_equal(kit_checkpoint(&k, "w", 1, 40, "sha256:a").code, 0);
    k.now += 10000;
    struct move_begin b = kit_begin_of(&k, "w", MOVE_DRAIN, kit_placement(&k, "ber.n0", 1, 2));
    assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
    assert_string_equal(kit_status(&k, "w")->migration, "w-m1");
    const struct migration_status *s = kit_move_status(&k, "w-m1");
    assert_int_equal(s->phase, MP_QUIESCING);
    assert_string_equal(s->from, "fra");
    assert_string_equal(s->to, "ber");
    assert_true(s->fromEpoch == 1 && s->toEpoch == 2 && s->lostGpuSeconds == 60 && s->saving == 7);
    const struct object *d = root_get(k.root, KIND_DECISION, "default", "w-e2");
    assert_int_equal(object_as(d, decision)->spec->epoch, 2);
    assert_int_equal(kit_move(&k, "w-m1")->meta->n_ownerReferences, 1);
    assert_int_equal(root_queue_held(k.root, "", "h100"), 2000); /* once, not twice */
    held(&k, 2, 2);
    step_ok(&k, "w-m1", MOVE_QUIESCE);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_QUIESCING);
    assert_int_equal(kit_status(&k, "w")->intent->op, INTENT_QUIESCE);
    k.now += 2000;
    assert_int_equal(kit_checkpoint(&k, "w", 1, 42, "sha256:b").code, 0);
    k.now += 500;
    end_source(&k, "w", 1);
    assert_int_equal(kit_status(&k, "w")->queuedAt, queued);         /* it keeps its place */
    assert_true(kit_move_status(&k, "w-m1")->lostGpuSeconds == 1.0); /* 2 GPUs, half a second */
    held(&k, 0, 2);
    step_stale(&k, "w-m1", MOVE_STAGE, "does not follow");
    step_ok(&k, "w-m1", MOVE_VERIFY);
    assert_int_equal(kit_move_status(&k, "w-m1")->step, 42);
    assert_true(kit_move_status(&k, "w-m1")->lostGpuSeconds == 1.0);
    k.now += 100;
    step_ok(&k, "w-m1", MOVE_STAGE);
    step_stale(&k, "w-m1", MOVE_COMMIT, "does not follow");
    k.now += 100;
    step_ok(&k, "w-m1", MOVE_START);
    held(&k, 0, 2);
    const struct workload_status *ws = kit_status(&k, "w");
    assert_int_equal(ws->phase, PHASE_RESERVED);
    assert_int_equal(ws->epoch, 2);
    assert_string_equal(ws->placement->target, "ber");
    assert_string_equal(ws->placement->decision, "w-e2");
    assert_string_equal(ws->migration, "w-m1");
    step_stale(&k, "w-m1", MOVE_COMMIT, "not seen running");
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_DISPATCH).code, 0);
    step_stale(&k, "w-m1", MOVE_COMMIT, "not seen running");
    k.now += 300;
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_RUNNING).code, 0);
    step_ok(&k, "w-m1", MOVE_COMMIT);
    s = kit_move_status(&k, "w-m1");
    assert_int_equal(s->phase, MP_SUCCEEDED);
    assert_string_equal(s->reason, "Moved");
    assert_int_equal(s->pause, 3000); /* from the signal to running again */
    assert_true(s->endedAt == k.now);
    static const enum move_phase way[] = {MP_QUIESCING, MP_VERIFYING, MP_STAGING,
                                          MP_FENCING,   MP_STARTING,  MP_SUCCEEDED};
    assert_int_equal(s->n_phases, sizeof way / sizeof *way);
    for (uint32_t i = 0; i < s->n_phases; i++) {
        assert_int_equal(s->phases[i].phase, way[i]);
        assert_true(s->phases[i].at >= (i ? s->phases[i - 1].at : s->startedAt));
    }
    assert_true(s->phases[5].at == k.now);
    assert_string_equal(kit_status(&k, "w")->migration, "");
    assert_true(kit_status(&k, "w")->movedAt == k.now);
    step_stale(&k, "w-m1", MOVE_ABORT, "does not follow");
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_from_target_to_target),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
