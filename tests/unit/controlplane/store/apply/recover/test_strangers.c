/* Targets that the state does not know, and whose agents dial in: they are awaited. */
#include "tests/support/store/recover_kit.h"

static struct result stranger(struct kit *k, const char *name)
{
    union command c = kit_recover_step(RECOVER_STRANGER);

    str_copy(c.recover.name, sizeof c.recover.name, name);
    return kit_apply(k, &c);
}

/* Settles with these names, of Targets that have told or are said to be dead. */
static struct result settle_all(struct kit *k, const char *const *names, uint32_t n)
{
    union command c = kit_recover_step(RECOVER_SETTLE);
    struct write_op *op = arena_array(k->a, struct write_op, n + 1);

    for (uint32_t i = 0; i < n; i++)
        kit_op(&op[i], WRITE_DELETE, KIND_TARGET, "", names[i], NULL);
    c.recover.ops = op;
    c.recover.n = n;
    return kit_apply(k, &c);
}

static void target(struct kit *k, const char *name)
{
    struct target *t = arena_new(k->a, struct target);

    t->spec = arena_new(k->a, struct target_spec);
    t->spec->type = TARGET_AGENT;
    assert_int_equal(kit_create(k, KIND_TARGET, "", name, t).code, 0);
}

/* A Target that was made after the state which came back: it may carry its work. */
static void test_a_stranger_is_awaited(void **state)
{
    static const char *const all[] = {"fra", "late", "other"};
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    assert_int_equal(kit_workload(&k, k.ns, "waits", 1, 1).code, 0);
    assert_true(stranger(&k, "late").unchanged); /* nothing is recovered */
    assert_false(root_stranger(k.root, "late"));
    assert_int_equal(kit_recover_begin(&k, UID ".2", root_rv(k.root) + 1000).code, 0);
    assert_int_equal(kit_lost(&k, "waits").code, 0);
    uint64_t digest = root_digest(k.root);
    assert_int_equal(stranger(&k, "late").code, 0);
    assert_true(root_stranger(k.root, "late") && root_digest(k.root) != digest);
    assert_true(stranger(&k, "late").unchanged);
    assert_true(stranger(&k, "fra").unchanged);
    assert_int_equal(stranger(&k, "No name").code, E_INVALID);
    assert_int_equal(stranger(&k, "").code, E_INVALID);
    assert_int_equal(stranger(&k, "other").code, 0);
    root_check(k.root);

    struct result r = kit_settle(&k, "fra");
    assert_int_equal(r.code, E_CONFLICT);
    assert_non_null(strstr(r.text, "apply Target late, or say that it is dead (--dead late)"));
    assert_non_null(strstr(r.text, "1 more"));
    assert_int_equal(kit_place(&k, "waits", "fra.n0", 0, 1, 1).code, E_PLACE);

    /* Through a snapshot, as a member that comes back has it. */
    struct root *again = NULL;
    struct err e;
    AUTO_BUF bytes;
    buf_init(&bytes, (size_t)64 << 20);
    assert_int_equal(snapshot_encode(k.root, &bytes, &e), 0);
    assert_int_equal(snapshot_decode(slice_make(bytes.p, bytes.n), &again, &e), 0);
    assert_true(root_stranger(again, "late") && root_strangers(again, NULL, 0) == 2);
    assert_int_equal(root_digest(again), root_digest(k.root));
    (void)root_unref(again);

    /* Applied, it is a Target as any: it has to tell what runs there. */
    target(&k, "late");
    assert_false(root_stranger(k.root, "late"));
    assert_non_null(strstr(settle_all(&k, all, 1).text, "Target late has not told"));
    assert_non_null(strstr(settle_all(&k, all, 2).text, "--dead other"));
    assert_int_equal(settle_all(&k, all, 3).code, 0);
    assert_int_equal(root_strangers(k.root, NULL, 0), 0);
    assert_int_equal(kit_place(&k, "waits", "fra.n0", 0, 1, 1).code, 0);
    kit_end(&k);
}

/* To delete a Target that is silent says nothing of what runs there. */
static void test_a_deleted_target_is_awaited(void **state)
{
    static const char *const wrong[] = {"fra", "gone", "nosuch"};
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    target(&k, "gone");
    target(&k, "before");
    assert_int_equal(kit_delete(&k, KIND_TARGET, "", "before").code, 0);
    assert_int_equal(kit_recover_begin(&k, UID ".2", root_rv(k.root) + 1000).code, 0);
    assert_int_equal(root_strangers(k.root, NULL, 0), 0);
    assert_int_equal(kit_delete(&k, KIND_TARGET, "", "gone").code, 0);
    assert_true(root_stranger(k.root, "gone"));
    assert_non_null(strstr(kit_settle(&k, "fra").text, "--dead gone"));

    /* Who names nobody has meant somebody else. */
    struct result r = settle_all(&k, wrong, 3);
    assert_int_equal(r.code, E_NOTFOUND);
    assert_non_null(strstr(r.text, "no Target nosuch"));
    assert_non_null(strstr(r.text, "fra, gone"));
    assert_true(root_recovering(k.root));
    assert_int_equal(settle_all(&k, wrong, 2).code, 0);
    assert_int_equal(kit_delete(&k, KIND_TARGET, "", "fra").code, 0); /* it is settled */
    assert_int_equal(root_strangers(k.root, NULL, 0), 0);
    kit_end(&k);
}

static void test_strangers_are_bounded(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    assert_int_equal(kit_recover_begin(&k, "", 0).code, 0);
    for (unsigned i = 0; i < STRANGERS_MAX; i++)
        assert_int_equal(stranger(&k, arena_printf(k.a, "t%04u", i)).code, 0);
    assert_int_equal(stranger(&k, "one-more").code, E_LIMIT);
    assert_true(stranger(&k, "t0000").unchanged);
    assert_int_equal(kit_delete(&k, KIND_TARGET, "", "fra").code, 0); /* it counts all the same */
    assert_true(root_strangers(k.root, NULL, 0) == STRANGERS_MAX + 1);
    assert_non_null(strstr(kit_settle(&k, "nosuch").text, " more"));
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_stranger_is_awaited),
                                       cmocka_unit_test(test_a_deleted_target_is_awaited),
                                       cmocka_unit_test(test_strangers_are_bounded)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
