/* What targets carry is taken over, in epochs above all seen; what they tell may be anything. */
#include "tests/support/store/recover_kit.h"

/* What the state takes for held may be somebody else's by now. An end that its target tells frees
 * it, and starts nothing before recovery is settled. */
static void test_an_end_frees_the_place(void **state)
{
    struct kit was, k;

    (void)state;
    kit_begin(&was);
    kit_pool(&was, 1, 4);
    struct object *since = object_ref(kit_carried(&was, "since", 0));
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    for (unsigned i = 0; i < 2; i++) {
        const char *name = i ? "done" : "moved";
        assert_int_equal(kit_workload(&k, k.ns, name, 1, 1).code, 0);
        assert_int_equal(kit_place(&k, name, "fra.n0", i, 1, 1).code, 0);
        assert_int_equal(kit_run(&k, name, 1, 1, STEP_DISPATCH).code, 0);
        assert_int_equal(kit_run(&k, name, 1, 1, STEP_RUNNING).code, 0);
    }
    assert_int_equal(kit_recover_begin(&k, UID ".2", root_rv(k.root) + 1000).code, 0);
    assert_int_equal(kit_lost(&k, "moved").code, 0);
    assert_int_equal(kit_lost(&k, "done").code, 0);
    assert_int_equal(kit_adopt(&k, since, 1, 1, false, 0).code, E_PLACE);
    k.requeue = true;
    assert_int_equal(kit_run(&k, "moved", 1, 1, STEP_ENDED).code, 0); /* it was told to stop */
    k.requeue = false;
    assert_int_equal(kit_run(&k, "done", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(kit_status(&k, "done")->phase, PHASE_SUCCEEDED);
    assert_int_equal(kit_status(&k, "moved")->phase, PHASE_QUEUED);
    assert_int_equal(kit_place(&k, "moved", "fra.n0", 2, 1, 1).code, E_PLACE);
    assert_int_equal(kit_adopt(&k, since, 1, 1, false, 0).code, 0);
    root_check(k.root);
    assert_int_equal(kit_settle(&k, "fra").code, 0);
    assert_int_equal(kit_place(&k, "moved", "fra.n0", 2, 1, 1).code, 0);
    assert_true(kit_status(&k, "moved")->epoch > EPOCH_STEP);
    kit_end(&k);
    (void)object_unref(since);
    kit_end(&was);
}

static void test_what_targets_carry(void **state)
{
    struct kit was, k;

    (void)state;
    kit_begin(&was);
    kit_pool(&was, 1, 4);
    struct object *a = object_ref(kit_carried(&was, "a", 0)),
                  *b = object_ref(kit_carried(&was, "b", 1)),
                  *c = object_ref(kit_carried(&was, "c", 2));
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    assert_int_equal(kit_recover_begin(&k, "", 0).code, 0);
    assert_int_equal(kit_adopt(&k, a, 1, 1, false, 0).code, 0);
    assert_int_equal(kit_adopt(&k, a, 1, 1, false, 0).code, E_STALE); /* it is here */
    assert_int_equal(kit_adopt(&k, a, 1, 2, false, 0).code, 0);       /* a newer try of it */
    assert_int_equal(kit_adopt(&k, a, 3, 1, false, 0).code, 0);       /* a newer epoch of it */
    assert_int_equal(kit_adopt(&k, a, 2, 1, false, 0).code, E_STALE);
    assert_true(kit_status(&k, "a")->phase == PHASE_UNKNOWN && kit_status(&k, "a")->epoch == 3);
    assert_string_equal(kit_get(&k, "a")->meta->uid, a->meta->uid);
    assert_int_equal(kit_run(&k, "a", 3, 1, STEP_SEEN).code, 0);
    assert_int_equal(kit_run(&k, "a", 3, 1, STEP_RUNNING).code, 0);

    assert_int_equal(kit_adopt(&k, b, 1, 1, true, 0).code, 0); /* it had come to its end */
    assert_int_equal(kit_status(&k, "b")->phase, PHASE_SUCCEEDED);
    assert_int_equal(kit_adopt(&k, b, 2, 1, false, 0).code, E_STALE);
    assert_int_equal(kit_adopt(&k, c, 1, 1, true, 1).code, 0); /* it failed, and has no retries */
    assert_int_equal(kit_status(&k, "c")->phase, PHASE_FAILED);

    /* A device is never promised twice: somebody has to say which one goes. */
    assert_int_equal(kit_workload(&k, k.ns, "mine", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "mine", "fra.n0", 3, 1, 1).code, 0);
    const struct object *d = kit_carried(&was, "d", 3);
    assert_int_equal(kit_adopt(&k, d, 1, 1, false, 0).code, E_PLACE);
    root_check(k.root);
    assert_int_equal(kit_settle(&k, "fra").code, 0);
    kit_end(&k);
    (void)object_unref(a);
    (void)object_unref(b);
    (void)object_unref(c);
    kit_end(&was);
}

/* The document, with another placement than it had. */
static int adopt_with(struct kit *k, const struct object *doc, int64_t epoch,
                      void (*change)(struct placement *p))
{
    struct workload *w = object_edit_as(doc, workload, k->a);

    change(w->status->placement);
    struct object *o = object_make(doc->kind, w);
    int code = kit_adopt(k, o, epoch, 1, false, 0).code;
    (void)object_unref(o);
    root_check(k->root);
    return code;
}
static void held_by_another(struct placement *p)
{
    p->assignments[0].gpus[0] = 1;
}
static void no_such_device(struct placement *p)
{
    p->assignments[0].gpus[0] = 64;
}
static void more_than_a_device(struct placement *p)
{
    p->assignments[0].gpuMilli = INT64_MAX;
}
static void a_price_below_zero(struct placement *p)
{
    p->gpuHourPrice = -1;
}
static void another_device(struct placement *p)
{
    p->assignments[0].gpus[0] = 2;
}

/* Whatever a target tells of a run whose workload holds a device of that node already: no abort,
 * and nothing is held that cannot be. */
static void test_what_targets_tell_may_be_anything(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    assert_int_equal(kit_recover_begin(&k, "", 0).code, 0);
    struct object *doc = object_ref(kit_carried(&k, "a", 0));
    (void)kit_carried(&k, "b", 1);
    assert_int_equal(adopt_with(&k, doc, 2, held_by_another), E_PLACE);
    assert_int_equal(adopt_with(&k, doc, 2, no_such_device), E_PLACE);
    assert_int_equal(adopt_with(&k, doc, 2, more_than_a_device), E_PLACE);
    assert_int_equal(adopt_with(&k, doc, 2, a_price_below_zero), E_INVALID);
    assert_int_equal(adopt_with(&k, doc, INT64_MAX, another_device), E_INVALID);
    assert_int_equal(adopt_with(&k, doc, 2, another_device), 0);
    (void)object_unref(doc);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_an_end_frees_the_place),
                                       cmocka_unit_test(test_what_targets_carry),
                                       cmocka_unit_test(test_what_targets_tell_may_be_anything)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
