/* A run that waits in its target's own queue (PENDING) holds no node and costs nothing; its queue
 * and its target count it. SEATED puts it where the target has put it. */
#include "controlplane/store/ledger/ledger_internal.h"
#include "tests/support/store/store_kit.h"

static struct placement *seats(struct kit *k, const char *node, int64_t first, int64_t gpus)
{
    return kit_workers(k, node, first, 1, gpus);
}

static struct result step(struct kit *k, enum run_step step, const struct placement *at)
{
    struct run_pending p = {.reason = "", .message = "", .position = 3, .estimate = k->now + 60000};
    union command c = {.head = {.type = CMD_RUN}};

    str_copy(c.run.ns, sizeof c.run.ns, k->ns);
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    c.run.epoch = kit_status(k, "w")->epoch;
    c.run.try_ = kit_status(k, "w")->intent->try_;
    c.run.step = step;
    if (step == STEP_PENDING) {
        c.run.pending = &p;
        (void)snprintf(c.run.reason, sizeof c.run.reason, "Resources");
        (void)snprintf(c.run.message, sizeof c.run.message, "nodes are in use");
    }
    c.run.seats = (struct placement *)(uintptr_t)at;
    return kit_apply(k, &c);
}

static int64_t held(struct kit *k, const char *node)
{
    struct node_usage u = {0};

    (void)root_usage(k->root, node, &u);
    return u.gpu_milli;
}

/* Two nodes of four; w is placed on n0 with two, dispatched, and pending there. */
static void waits(struct kit *k)
{
    kit_begin(k);
    kit_level_set(k, FEATURE_LEVEL);
    kit_pool(k, 2, 4);
    assert_int_equal(kit_workload(k, k->ns, "w", 1, 2).code, 0);
    assert_int_equal(kit_place(k, "w", "fra.n0", 0, 1, 2).code, 0);
    assert_int_equal(kit_run(k, "w", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(held(k, "fra.n0"), 2000);
    assert_int_equal(step(k, STEP_PENDING, NULL).code, 0);
}

static void test_it_holds_no_node_and_costs_nothing(void **state)
{
    struct kit k;

    (void)state;
    waits(&k);
    const struct workload_status *s = kit_status(&k, "w");
    assert_int_equal(s->phase, PHASE_STARTING);
    assert_string_equal(s->reason, "Resources");
    assert_string_equal(s->pending->reason, "Resources");
    assert_string_equal(s->pending->message, "nodes are in use");
    assert_int_equal(s->pending->position, 3);
    assert_int_equal(s->pending->estimate, k.now + 60000);
    int64_t since = s->pending->since;
    assert_int_equal(held(&k, "fra.n0"), 0);
    assert_null(ledger_hold(k.root, kit_get(&k, "w")));
    assert_int_equal(s->placement->gpus, 2000); /* its queue and its target count it */
    assert_int_equal(step(&k, STEP_PENDING, NULL).code, 0);
    assert_int_equal(kit_status(&k, "w")->pending->since, since);
    assert_int_equal(kit_status(&k, "w")->pending->asked->n_assignments, 1);
    /* Another may be placed on the node that was chosen for it. */
    assert_int_equal(kit_workload(&k, k.ns, "v", 1, 4).code, 0);
    assert_int_equal(kit_place(&k, "v", "fra.n0", 0, 1, 4).code, 0);
    kit_end(&k);
}

static void test_it_is_where_the_target_puts_it(void **state)
{
    struct kit k;

    (void)state;
    waits(&k);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_RUNNING).code, E_STALE); /* its nodes come first */
    int64_t before = k.now;
    assert_int_equal(step(&k, STEP_SEATED, seats(&k, "fra.n1", 2, 2)).code, 0);
    const struct workload_status *s = kit_status(&k, "w");
    assert_null(s->pending);
    assert_string_equal(s->placement->assignments[0].node, "fra.n1");
    assert_int_equal(s->placement->assignments[0].gpus[0], 2);
    assert_true(s->placement->since >= before); /* it is charged from here on */
    assert_int_equal(held(&k, "fra.n1"), 2000);
    assert_int_equal(held(&k, "fra.n0"), 0);
    assert_non_null(ledger_hold(k.root, kit_get(&k, "w")));
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_RUNNING).code, 0);
    kit_end(&k);
}

/* Which devices, the target need not say: those that are free by the log. */
static void test_devices_that_are_not_named(void **state)
{
    struct kit k;

    (void)state;
    waits(&k);
    assert_int_equal(kit_workload(&k, k.ns, "v", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "v", "fra.n1", 0, 1, 1).code, 0);
    assert_int_equal(step(&k, STEP_SEATED, seats(&k, "fra.n1", 0, 0)).code, 0);
    const struct assignment *a = &kit_status(&k, "w")->placement->assignments[0];
    assert_int_equal(a->n_gpus, 2);
    assert_int_equal(a->gpus[0], 1);
    assert_int_equal(a->gpus[1], 2);
    kit_end(&k);
}

/* Workers of one gang on one node get devices of their own. */
static void test_devices_of_a_gang_on_one_node(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_level_set(&k, FEATURE_LEVEL);
    kit_pool(&k, 2, 4);
    assert_int_equal(kit_workload(&k, k.ns, "w", 2, 2).code, 0);
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 2, 2).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(step(&k, STEP_PENDING, NULL).code, 0);
    assert_int_equal(step(&k, STEP_SEATED, kit_workers(&k, "fra.n1", 0, 2, 0)).code, 0);
    const struct placement *p = kit_status(&k, "w")->placement;
    assert_int_equal(p->assignments[0].gpus[1], 1);
    assert_int_equal(p->assignments[1].gpus[0], 2);
    assert_int_equal(held(&k, "fra.n1"), 4000);
    kit_end(&k);
}

static void test_what_others_hold_is_not_taken(void **state)
{
    struct kit k;

    (void)state;
    waits(&k);
    assert_int_equal(kit_workload(&k, k.ns, "v", 1, 3).code, 0);
    assert_int_equal(kit_place(&k, "v", "fra.n1", 0, 1, 3).code, 0);
    assert_int_equal(step(&k, STEP_SEATED, seats(&k, "fra.n1", 0, 2)).code, E_PLACE);
    assert_int_equal(step(&k, STEP_SEATED, seats(&k, "fra.n1", 0, 0)).code, E_PLACE);
    assert_int_equal(step(&k, STEP_SEATED, seats(&k, "ber.n1", 0, 2)).code, E_PLACE);
    struct placement *two = kit_workers(&k, "fra.n0", 0, 2, 1);
    assert_int_equal(step(&k, STEP_SEATED, two).code, E_INVALID);
    assert_non_null(kit_status(&k, "w")->pending);         /* nothing has changed */
    assert_int_equal(step(&k, STEP_SEATED, NULL).code, 0); /* as it was decided */
    assert_int_equal(held(&k, "fra.n0"), 2000);
    assert_int_equal(step(&k, STEP_SEATED, seats(&k, "fra.n0", 2, 2)).code,
                     0); /* it has its nodes */
    assert_int_equal(kit_status(&k, "w")->placement->assignments[0].gpus[0], 0);
    kit_end(&k);
}

/* Withdrawn: provably it never ran. Also a try whose place would have been kept waits again. */
static void test_it_is_withdrawn(void **state)
{
    struct kit k;

    (void)state;
    waits(&k);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_QUIESCE).code, 0);
    assert_non_null(kit_status(&k, "w")->pending);
    k.requeue = true;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ABSENT).code, 0);
    assert_int_equal(kit_phase(&k, k.ns, "w"), PHASE_QUEUED);
    assert_null(kit_status(&k, "w")->pending);
    k.requeue = false;
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 2).code, 0);
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(step(&k, STEP_PENDING, NULL).code, 0);
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_ABSENT).code, 0);
    assert_int_equal(kit_phase(&k, k.ns, "w"), PHASE_QUEUED);
    kit_end(&k);
}

/* Out of reach and back; a member that reads a snapshot has it, too. */
static void test_it_outlives_silence(void **state)
{
    struct kit k;

    (void)state;
    waits(&k);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    assert_non_null(kit_status(&k, "w")->pending);
    kit_reload(&k);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_SEEN).code, 0);
    assert_int_equal(kit_phase(&k, k.ns, "w"), PHASE_STARTING);
    assert_string_equal(kit_status(&k, "w")->pending->reason, "Resources");
    assert_int_equal(step(&k, STEP_SEATED, NULL).code, 0);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_holds_no_node_and_costs_nothing),
        cmocka_unit_test(test_it_is_where_the_target_puts_it),
        cmocka_unit_test(test_devices_that_are_not_named),
        cmocka_unit_test(test_devices_of_a_gang_on_one_node),
        cmocka_unit_test(test_what_others_hold_is_not_taken),
        cmocka_unit_test(test_it_is_withdrawn),
        cmocka_unit_test(test_it_outlives_silence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
