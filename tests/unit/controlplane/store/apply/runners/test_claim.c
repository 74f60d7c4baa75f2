/* Which process begins as a worker of a run whose runners call home (CLAIM): the first one that
 * came with its token, by the log, and no other for as long as that try is the present one. */
#include "tests/support/store/store_kit.h"

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

/* A gang of three, dispatched. */
static void goes(struct kit *k)
{
    kit_begin(k);
    kit_level_set(k, FEATURE_LEVEL);
    kit_pool(k, 1, 4);
    assert_int_equal(kit_workload(k, k->ns, "w", 3, 1).code, 0);
    assert_int_equal(kit_place(k, "w", "fra.n0", 0, 3, 1).code, 0);
    assert_int_equal(kit_run(k, "w", 1, 1, STEP_DISPATCH).code, 0);
}

static void claims_are(struct kit *k, uint32_t n, const char *instances)
{
    const struct intent *in = kit_status(k, "w")->intent;

    assert_int_equal(in->n_claims, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(in->claims[i].instance[0], instances[i]);
    for (uint32_t i = 1; i < n; i++)
        assert_true(in->claims[i].rank > in->claims[i - 1].rank);
}

static void test_the_first_that_comes_begins(void **state)
{
    struct kit k;

    (void)state;
    goes(&k);
    assert_int_equal(claim(&k, 1, 2, "c").code, 0);
    assert_int_equal(claim(&k, 1, 0, "a").code, 0);
    assert_int_equal(claim(&k, 1, 1, "b").code, 0);
    claims_are(&k, 3, "abc");
    struct result again = claim(&k, 1, 1, "b"); /* it says so once more */
    assert_int_equal(again.code, 0);
    assert_true(again.unchanged);
    assert_int_equal(claim(&k, 1, 1, "x").code, E_CONFLICT);
    assert_int_equal(claim(&k, 1, 2, "x").code, E_CONFLICT);
    claims_are(&k, 3, "abc");
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_DISPATCHING);
    kit_end(&k);
}

static void test_only_ranks_of_the_run_are_claimed(void **state)
{
    struct kit k;

    (void)state;
    goes(&k);
    assert_int_equal(claim(&k, 1, 3, "a").code, E_INVALID);
    assert_int_equal(claim(&k, 1, -1, "a").code, E_INVALID);
    assert_int_equal(claim(&k, 1, 0, "").code, E_INVALID);
    assert_int_equal(claim(&k, 2, 0, "a").code, E_STALE);
    claims_are(&k, 0, "");
    kit_end(&k);
}

static void test_it_stands_through_the_life_of_the_try(void **state)
{
    struct kit k;

    (void)state;
    goes(&k);
    assert_int_equal(claim(&k, 1, 0, "a").code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_RUNNING).code, 0);
    assert_int_equal(claim(&k, 1, 0, "x").code, E_CONFLICT);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    assert_int_equal(claim(&k, 1, 0, "x").code, E_CONFLICT);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_QUIESCE).code, 0);
    assert_int_equal(claim(&k, 1, 0, "x").code, E_CONFLICT);
    claims_are(&k, 1, "a");
    kit_end(&k);
}

static void test_the_next_try_is_claimed_anew(void **state)
{
    struct kit k;

    (void)state;
    goes(&k);
    assert_int_equal(claim(&k, 1, 0, "a").code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ABSENT).code, 0);
    assert_int_equal(claim(&k, 1, 0, "a").code, E_STALE);
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_DISPATCH).code, 0);
    claims_are(&k, 0, "");
    assert_int_equal(claim(&k, 1, 0, "a").code, E_STALE);
    assert_int_equal(claim(&k, 2, 0, "b").code, 0);
    claims_are(&k, 1, "b");
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_that_comes_begins),
        cmocka_unit_test(test_only_ranks_of_the_run_are_claimed),
        cmocka_unit_test(test_it_stands_through_the_life_of_the_try),
        cmocka_unit_test(test_the_next_try_is_claimed_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
