/* A state that was lost, or went back: nothing that may be alive elsewhere is placed or taken for
 * ended before recovery is settled. */
#include "tests/support/store/recover_kit.h"

static bool count_change(const struct change *c, void *arg)
{
    (void)c;
    (*(unsigned *)arg)++;
    return true;
}

static void test_a_state_that_went_back(void **state)
{
    struct kit k;
    struct err e;
    unsigned n = 0;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    assert_int_equal(kit_workload(&k, k.ns, "runs", 1, 1).code, 0);
    assert_int_equal(kit_workload(&k, k.ns, "waits", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "runs", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_RUNNING).code, 0);
    uint64_t rv = root_rv(k.root);
    assert_int_equal(kit_recover_begin(&k, UID ".2", rv + 1000).code, 0);
    assert_int_equal(kit_recover_begin(&k, UID, 0).code, E_CONFLICT); /* never back */
    assert_int_equal(kit_recover_begin(&k, "", rv).code, E_STALE);
    assert_string_equal(root_cluster_uid(k.root), UID ".2");
    assert_int_equal(root_changes(k.root, rv + 5, count_change, &n, &e), E_GONE);
    assert_int_equal(root_changes(k.root, root_rv(k.root), count_change, &n, &e), 0);
    assert_int_equal(kit_lost(&k, "runs").code, 0);
    assert_int_equal(kit_lost(&k, "waits").code, 0);
    assert_true(kit_lost(&k, "waits").unchanged);
    assert_int_equal(kit_status(&k, "runs")->phase, PHASE_UNKNOWN);
    root_check(k.root);

    /* What this state does not have any more may have been granted, or tried, since. */
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_LEASE_OVER).code, E_BUSY);
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_ABSENT).code, E_BUSY);
    assert_int_equal(kit_place(&k, "waits", "fra.n0", 1, 1, 1).code, E_PLACE);
    /* Work of today is no matter of yesterday's. */
    assert_int_equal(kit_workload(&k, k.ns, "new", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "new", "fra.n0", 2, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_SEEN).code, 0); /* alive: here it is */
    assert_int_equal(kit_status(&k, "runs")->epochFloor, 0);
    assert_int_equal(kit_settle(&k, "").code, E_CONFLICT); /* fra was not heard */
    assert_int_equal(kit_settle(&k, "fra").code, 0);
    assert_int_equal(root_recovering(k.root), 0);
    assert_int_equal(kit_place(&k, "waits", "fra.n0", 1, 1, 1).code, 0);
    assert_true(kit_status(&k, "waits")->epoch > EPOCH_STEP);
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_ENDED).code, 0);
    kit_end(&k);
}

/* Offline, the same: by the same entries, into a log of its own. */
static void test_a_state_that_begins_anew(void **state)
{
    struct store_anew how = {.term = 9, .member = {.id = 7, .feature_level = FEATURE_LEVEL}};
    struct store_anew_found found;
    struct member_info all[4];
    struct kit k;
    struct err e;

    (void)state;
    kit_begin(&k);
    union command c = {.member = {.head = {.type = CMD_MEMBER}, .cluster_uid = UID}};
    for (c.member.member.id = 1; c.member.member.id <= 3; c.member.member.id++)
        assert_int_equal(kit_apply(&k, &c).code, 0); /* members that tell no level */
    kit_pool(&k, 1, 4);
    for (unsigned i = 0; i < 1100; i++) { /* more than one entry takes */
        char name[16];
        (void)snprintf(name, sizeof name, "w%04u", i);
        assert_int_equal(kit_workload(&k, k.ns, name, 1, 1).code, 0);
    }
    assert_int_equal(kit_place(&k, "w0000", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "w0000", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "w0000", 1, 1, STEP_RUNNING).code, 0);
    assert_int_equal(kit_place(&k, "w0001", "fra.n0", 1, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "w0001", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "w0001", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(kit_status(&k, "w0001")->phase, PHASE_SUCCEEDED);
    uint64_t rv = root_rv(k.root), index = root_index(k.root), number = root_number(k.root);

    cluster_begin_anew(root_cluster_uid(k.root), 1900000000000, 0x5eed, how.cluster_uid);
    assert_string_equal(how.cluster_uid, UID ".1900000000.00005eed");
    struct root *r = root_ref(k.root);
    assert_int_equal(store_begin_anew(&r, &how, &found, &e), 0);
    assert_int_equal(root_rv(k.root), rv); /* what was taken is as it was */
    assert_int_equal(found.members, 3);
    assert_int_equal(found.lost, 1099);
    assert_int_equal(found.kept, 1);
    assert_string_equal(root_cluster_uid(r), how.cluster_uid);
    assert_true(root_rv(r) > rv + RECOVER_RV_JUMP - 1 && root_recovering(r));
    assert_true(root_index(r) > index && root_number(r) > number && root_term(r) == 9);
    assert_int_equal(root_members(r, all, 4), 1);
    assert_int_equal(all[0].id, 7);
    assert_int_equal(root_feature_level(r), FEATURE_LEVEL);
    root_check(r);
    struct root *old = k.root;
    k.root = root_ref(r);
    k.index = root_index(r);
    k.number = root_number(r);
    k.term = root_term(r);
    assert_int_equal(kit_status(&k, "w0000")->phase, PHASE_UNKNOWN);
    assert_int_equal(kit_status(&k, "w0001")->phase, PHASE_SUCCEEDED);
    int64_t first = kit_status(&k, "w1099")->epochFloor;
    assert_int_equal(first, 1900000000000); /* by the time that is its generation */
    AUTO_BUF bytes;
    buf_init(&bytes, (size_t)64 << 20);
    assert_int_equal(snapshot_encode(r, &bytes, &e), 0);
    struct root *again = NULL;
    assert_int_equal(snapshot_decode(slice_make(bytes.p, bytes.n), &again, &e), 0);
    assert_int_equal(root_digest(again), root_digest(r));
    (void)root_unref(again);

    /* Twice from each of what it was, what it became before anybody settled it, and what it was
     * after: none gives an epoch that another may have given. */
    assert_int_equal(kit_settle(&k, "fra").code, 0);
    assert_int_equal(kit_place(&k, "w1099", "fra.n0", 3, 1, 1).code, 0);
    assert_int_equal(kit_status(&k, "w1099")->epoch, first + 1);
    struct root *const froms[] = {old, r, k.root};
    int64_t floors[6] = {0};
    for (size_t i = 0; i < 6; i++) {
        struct root *next = root_ref(froms[i / 2]);
        cluster_begin_anew(root_cluster_uid(next), 1900000001000 + (int64_t)i * 1000, 0xbeef + i,
                           how.cluster_uid);
        assert_int_equal(store_begin_anew(&next, &how, &found, &e), 0);
        const struct object *o = root_get(next, KIND_WORKLOAD, k.ns, "w1099");
        floors[i] = object_as(o, workload)->status->epochFloor;
        assert_true(floors[i] > first + 1);
        for (size_t before = 0; before < i; before++)
            assert_true(floors[before] - floors[i] >= 1000 || floors[i] - floors[before] >= 1000);
        (void)root_unref(next);
    }
    (void)root_unref(r);
    (void)root_unref(old);
    kit_end(&k);
}

/* The leader dies before all are marked: nothing of the others moves, and whoever touches one of
 * them marks it. */
static void test_halfway(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    assert_int_equal(kit_workload(&k, k.ns, "runs", 1, 1).code, 0);
    assert_int_equal(kit_workload(&k, k.ns, "held", 1, 1).code, 0);
    assert_int_equal(kit_workload(&k, k.ns, "waits", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "runs", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "held", "fra.n0", 1, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_RUNNING).code, 0);
    assert_false(root_went_back(k.root));
    assert_int_equal(kit_recover_begin(&k, UID ".2", root_rv(k.root) + 1000).code, 0);
    assert_true(root_went_back(k.root));
    assert_int_equal(kit_place(&k, "waits", "fra.n0", 2, 1, 1).code, E_PLACE);
    assert_int_equal(kit_run(&k, "held", 1, 1, STEP_DISPATCH).code, E_BUSY);
    assert_int_equal(kit_settle(&k, "fra").code, 0); /* over them, as no brain does */
    assert_int_equal(kit_recover_begin(&k, UID ".3", root_rv(k.root) + 1000).code, 0);
    assert_int_equal(kit_run(&k, "held", 1, 0, STEP_REQUEUE).code, 0); /* touched */
    assert_true(kit_status(&k, "held")->epochFloor > EPOCH_STEP);
    assert_true(kit_lost(&k, "held").unchanged);
    assert_int_equal(kit_lost(&k, "runs").code, 0);
    assert_int_equal(kit_status(&k, "runs")->phase, PHASE_UNKNOWN);
    assert_int_equal(kit_lost(&k, "waits").code, 0);
    assert_int_equal(kit_settle(&k, "fra").code, 0);
    assert_int_equal(kit_place(&k, "held", "fra.n0", 2, 1, 1).code, 0);
    assert_true(kit_status(&k, "held")->epoch > EPOCH_STEP);
    root_check(k.root);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_state_that_went_back),
                                       cmocka_unit_test(test_a_state_that_begins_anew),
                                       cmocka_unit_test(test_halfway)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
