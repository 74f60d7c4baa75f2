/* Retention: what is finished goes when it is asked for; what is under way, or may still be needed,
 * stays whoever asks. */
#include "tests/support/store/move_kit.h"

#define DAY_MS 86400000ll

/* Removes what has ended before `before`; returns how many were listed. */
static size_t retain(struct kit *k, int64_t before, size_t max)
{
    union command c = {.remove = {.head = {.type = CMD_REMOVE}}};
    struct write_op ops[64];
    uint64_t objects = 0, left = 0;

    for (int i = 1; i < KIND_LIMIT; i++)
        objects += root_count(k->root, (enum kind_id)i);
    size_t n = root_finished(k->root, before, ops, max);
    c.remove.ops = ops;
    c.remove.n = (uint32_t)n;
    struct result r = kit_apply(k, &c);
    assert_int_equal(r.code, 0);
    assert_int_equal(r.unchanged, n == 0);
    for (int i = 1; i < KIND_LIMIT; i++)
        left += root_count(k->root, (enum kind_id)i);
    assert_true(left + n <= objects); /* all that was listed went */
    root_check(k->root);
    return n;
}

static bool removed(struct kit *k, enum kind_id kind, const char *name, const char *uid)
{
    union command c = {.remove = {.head = {.type = CMD_REMOVE}}};
    struct write_op op;

    const char *ns = kind_by_id(kind)->namespaced ? "default" : "";
    kit_op(&op, WRITE_DELETE, kind, ns, name, NULL);
    str_copy(op.uid, sizeof op.uid, uid);
    c.remove.ops = &op;
    c.remove.n = 1;
    assert_int_equal(kit_apply(k, &c).code, 0);
    return !root_get(k->root, kind, ns, name);
}

static void requeue(struct kit *k, const char *name, int64_t epoch)
{
    k->requeue = true;
    assert_int_equal(kit_run(k, name, epoch, 1, STEP_ENDED).code, 0);
    k->requeue = false;
}

static void test_what_is_needed_stays(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_target(&k, "fra", TIER_HUB, 2, 4);
    kit_running(&k, "w", "", "fra.n0", 0, 2);
    assert_int_equal(kit_checkpoint(&k, "w", 1, 1, "sha256:1").code, 0);
    struct move_begin b = kit_begin_of(&k, "w", MOVE_DRAIN, kit_placement(&k, "fra.n1", 0, 2));
    assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
    k.now += DAY_MS;
    assert_int_equal(retain(&k, k.now, 64), 0);
    assert_false(removed(&k, KIND_WORKLOAD, "w", ""));
    assert_false(removed(&k, KIND_MIGRATION, "w-m1", ""));
    assert_false(removed(&k, KIND_CHECKPOINT, "w-e1-s1", ""));
    assert_false(removed(&k, KIND_DECISION, "w-e1", ""));
    assert_false(removed(&k, KIND_DECISION, "w-e2", "")); /* of the destination */
    assert_int_equal(kit_step(&k, "w-m1", MOVE_ABORT).code, 0);
    assert_false(removed(&k, KIND_MIGRATION, "w-m1", "another"));
    assert_int_equal(retain(&k, k.now, 64), 0); /* ended just now */
    k.now += 1;
    assert_int_equal(retain(&k, k.now, 64), 1);
    assert_null(kit_move(&k, "w-m1"));
    requeue(&k, "w", 1);
    assert_int_equal(kit_pending(&k, "w", "NothingFits", 1).code, 0);
    assert_false(removed(&k, KIND_DECISION, "w-pending", "")); /* why it waits */
    assert_string_equal(kit_place(&k, "w", "fra.n0", 0, 1, 2).text, "");
    assert_true(removed(&k, KIND_DECISION, "w-e1", "")); /* an epoch of the past */
    assert_false(removed(&k, KIND_DECISION, "w-e2", ""));
    assert_false(removed(&k, KIND_TARGET, "fra", ""));
    kit_end(&k);
}

static void test_what_has_ended_goes_with_all_that_was_made_for_it(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_target(&k, "fra", TIER_HUB, 1, 4);
    for (int i = 0; i < 4; i++) {
        const char *name = arena_printf(k.a, "w%d", i);

        kit_running(&k, name, "", "fra.n0", i, 1);
        assert_int_equal(kit_checkpoint(&k, name, 1, 1, "sha256:1").code, 0);
        assert_string_equal(kit_ask(&k, arena_printf(k.a, "m%d", i), name, "").text, "");
        k.now += 1000;
        assert_int_equal(kit_run(&k, name, 1, 1, STEP_ENDED).code, 0);
        if (i == 3) /* its migration is still to be closed */
            continue;
        assert_int_equal(kit_step(&k, arena_printf(k.a, "m%d", i), MOVE_ABORT).code, 0);
    }
    assert_false(removed(&k, KIND_WORKLOAD, "w3", ""));
    assert_int_equal(retain(&k, k.now - 3500, 64), 1); /* the decision about w0 */
    assert_int_equal(retain(&k, k.now - 2500, 64), 3); /* w0, its move; the decision about w1 */
    assert_null(kit_get(&k, "w0"));
    assert_null(kit_move(&k, "m0"));
    assert_null(root_get(k.root, KIND_CHECKPOINT, "default", "w0-e1-s1"));
    assert_null(root_get(k.root, KIND_DECISION, "default", "w0-e1"));
    assert_non_null(kit_get(&k, "w1"));
    assert_int_equal(retain(&k, k.now + 1, 1), 1); /* as many as fit */
    while (retain(&k, k.now + 1, 3) > 0)
        ;
    assert_int_equal(root_count(k.root, KIND_WORKLOAD), 1);
    assert_int_equal(kit_step(&k, "m3", MOVE_ABORT).code, 0);
    while (retain(&k, k.now + 1, 64) > 0)
        ;
    assert_int_equal(root_count(k.root, KIND_WORKLOAD), 0);
    assert_int_equal(root_count(k.root, KIND_MIGRATION), 0);
    assert_int_equal(root_count(k.root, KIND_DECISION), 0);
    assert_int_equal(root_count(k.root, KIND_CHECKPOINT), 0);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_needed_stays),
        cmocka_unit_test(test_what_has_ended_goes_with_all_that_was_made_for_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
