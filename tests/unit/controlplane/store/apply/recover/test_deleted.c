/* What was deleted stays away: before the backup, while it is open what runs where, and since. */
#include "tests/support/store/recover_kit.h"

static struct result begin_anew(struct kit *k, const char *uid, uint64_t known)
{
    union command c = kit_recover_step(RECOVER_BEGIN);

    str_copy(c.recover.cluster_uid, sizeof c.recover.cluster_uid, uid);
    c.recover.rv = root_rv(k->root) + RECOVER_RV_JUMP;
    c.recover.known = known;
    return kit_apply(k, &c);
}

static struct result adopt_from(struct kit *k, const struct object *doc, const char *cluster,
                                uint64_t rv, bool ended)
{
    union command c = kit_recover_step(RECOVER_ADOPT);
    struct write_op op = {
        .verb = WRITE_CREATE, .kind = KIND_WORKLOAD, .object = (struct object *)(uintptr_t)doc};

    c.recover.ops = &op;
    c.recover.n = 1;
    c.recover.epoch = c.recover.try_ = 1;
    c.recover.ended = c.recover.requeue = ended;
    c.recover.proof = PROOF_TREE_GONE;
    c.recover.known = rv;
    str_copy(c.recover.cluster_uid, sizeof c.recover.cluster_uid, cluster);
    str_copy(c.recover.uid, sizeof c.recover.uid, doc->meta->uid);
    str_copy(op.ns, sizeof op.ns, doc->meta->namespace_);
    str_copy(op.name, sizeof op.name, doc->meta->name);
    return kit_apply(k, &c);
}

static void named(struct kit *k)
{
    union command c = {.member = {.head = {.type = CMD_MEMBER},
                                  .member = {.id = 1, .feature_level = FEATURE_LEVEL},
                                  .cluster_uid = UID}};

    kit_begin(k);
    assert_int_equal(kit_apply(k, &c).code, 0);
    kit_pool(k, 1, 4);
}

static void again(struct kit *k) /* as a member that reads a snapshot has it */
{
    struct root *r = NULL;
    struct err e;
    AUTO_BUF bytes;

    buf_init(&bytes, (size_t)64 << 20);
    assert_int_equal(snapshot_encode(k->root, &bytes, &e), 0);
    assert_int_equal(snapshot_decode(slice_make(bytes.p, bytes.n), &r, &e), 0);
    assert_true(root_digest(r) == root_digest(k->root));
    (void)root_unref(k->root);
    k->root = r;
    root_check(r);
}

static void collected(struct kit *k)
{
    union command c = {.collect = {.head = {.type = CMD_COLLECT}, .objects = 2, .bytes = 1u << 20}};

    for (unsigned i = 0; root_collect_due(k->root); i++) {
        assert_true(i < 100);
        assert_int_equal(kit_apply(k, &c).code, 0);
        root_check(k->root);
    }
}

/* Where the state branched off it is known what it had: what it has no more, it let go. */
static void test_deleted_before_the_backup(void **state)
{
    struct kit k;

    (void)state;
    named(&k);
    struct object *w = object_ref(kit_carried(&k, "w", 0));
    uint64_t sent = root_rv(k.root);
    k.requeue = true;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "w").code, 0);
    uint64_t branch = root_rv(k.root);
    assert_true(root_had(k.root, UID, branch) && !root_had(k.root, UID, branch + 1));
    assert_int_equal(begin_anew(&k, UID ".5.00000001", branch).code, 0);
    again(&k);
    assert_true(root_had(k.root, UID, branch) && !root_had(k.root, UID, branch + 1));
    assert_false(root_had(k.root, UID, 0) || root_had(k.root, "", 1) || root_had(k.root, "x", 1));
    assert_true(root_had(k.root, UID ".5.00000001", root_rv(k.root)));
    assert_int_equal(adopt_from(&k, w, UID, sent, true).code, E_STALE);
    /* What that cluster did since, and others did, is not known. */
    failpoint_plant("recover.undeletes");
    assert_int_equal(adopt_from(&k, w, UID, sent, true).code, 0);
    failpoint_plant(NULL);
    assert_int_equal(kit_lost(&k, "w").code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "w").code, 0);
    assert_int_equal(kit_settle(&k, "fra").code, 0);
    collected(&k);
    assert_int_equal(adopt_from(&k, w, UID, branch + 1, true).code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "w").code, 0);
    assert_int_equal(adopt_from(&k, w, "fedcba9876543210fedcba9876543210", 1, true).code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "w").code, 0);
    assert_int_equal(adopt_from(&k, w, UID, 0, true).code, 0); /* nobody can say */
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "w").code, 0);
    assert_int_equal(adopt_from(&k, w, UID, sent, false).code, 0); /* it lives, so it is taken */
    root_check(k.root);
    kit_end(&k);
    (void)object_unref(w);
}

/* The whole line is remembered, the newest of it; of copies that were put back nothing is. */
static void test_ancestors(void **state)
{
    char uid[CLUSTER_UID_MAX], last[CLUSTER_UID_MAX];
    struct kit k;

    (void)state;
    named(&k);
    assert_int_equal(begin_anew(&k, UID ".2", root_rv(k.root)).code, 0); /* in the same log */
    assert_false(root_had(k.root, UID, 1));
    assert_true(root_had(k.root, UID ".2", 1));
    assert_int_equal(begin_anew(&k, UID ".3.00000001", 7).code, 0);
    assert_true(root_had(k.root, UID ".2", 7) && !root_had(k.root, UID ".2", 8));
    assert_int_equal(begin_anew(&k, UID ".4.00000002", 0).code, 0);
    assert_false(root_had(k.root, UID ".3.00000001", 1));
    assert_int_equal(begin_anew(&k, UID ".5.00000003", UINT64_MAX).code, 0);
    assert_true(root_had(k.root, UID ".4.00000002", 1)); /* no further than it had come */
    assert_false(root_had(k.root, UID ".4.00000002", root_rv(k.root)));
    for (unsigned i = 10; i < 10 + ANCESTORS_MAX; i++) { /* 99 and 100: by number, not by text */
        (void)snprintf(uid, sizeof uid, UID ".%u.%08u", i < 12 ? i : 85 + i, i);
        assert_int_equal(begin_anew(&k, uid, root_rv(k.root)).code, 0);
        again(&k);
        str_copy(last, sizeof last, uid);
    }
    assert_int_equal(tree_count(k.root->ancestors), ANCESTORS_MAX);
    assert_false(root_had(k.root, UID ".2", 7));
    assert_true(root_had(k.root, UID ".5.00000003", 1) && root_had(k.root, last, 1));
    root_check(k.root);
    kit_end(&k);
}

static const char *phase_and_reason(struct kit *k, const char *name)
{
    const struct object *o = kit_get(k, name);

    assert_non_null(o);
    assert_true(o->meta->deletionTimestamp != 0);
    assert_string_equal(object_as(o, workload)->status->reason, "Recovering");
    assert_non_null(strstr(object_as(o, workload)->status->message, "it is deleted"));
    return phase_text(object_as(o, workload)->status->phase);
}

/* It may live where this state does not know: it goes when that is settled. */
static void test_deleted_while_recovering(void **state)
{
    static const char *const names[] = {"waits", "held", "runs", "done"};
    struct kit k;

    (void)state;
    named(&k);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(kit_workload(&k, k.ns, names[i], 1, 1).code, 0);
        if (i)
            assert_int_equal(kit_place(&k, names[i], "fra.n0", i, 1, 1).code, 0);
    }
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "done", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "done", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(begin_anew(&k, UID ".5.00000001", root_rv(k.root)).code, 0);
    assert_int_equal(kit_lost(&k, "runs").code, 0); /* "waits" and "held" are not marked yet */
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, names[i]).code, 0);
    assert_null(kit_get(&k, "done")); /* it had ended: it lives nowhere */
    assert_string_equal(phase_and_reason(&k, "waits"), "Queued");
    assert_string_equal(phase_and_reason(&k, "held"), "Reserved");
    assert_string_equal(phase_and_reason(&k, "runs"), "Unknown");
    assert_int_equal(kit_run(&k, "held", 1, 0, STEP_STOP).code, 0); /* as who drives it does */
    assert_string_equal(phase_and_reason(&k, "held"), "Cancelled");
    k.requeue = true;
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_ENDED).code, 0);
    assert_string_equal(phase_and_reason(&k, "runs"), "Queued");
    assert_int_equal(kit_place(&k, "waits", "fra.n0", 1, 1, 1).code, E_PLACE);
    assert_int_equal(kit_workload(&k, k.ns, "new", 1, 1).code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "new").code, 0);
    assert_null(kit_get(&k, "new")); /* of today */
    collected(&k);
    again(&k);
    assert_int_equal(kit_settle(&k, "fra").code, 0);
    assert_true(root_collect_due(k.root));
    assert_int_equal(begin_anew(&k, "", 0).code, 0); /* before they went: once more */
    collected(&k);
    assert_non_null(kit_get(&k, "waits"));
    again(&k);
    assert_int_equal(kit_settle(&k, "fra").code, 0);
    collected(&k);
    for (unsigned i = 0; i < 3; i++)
        assert_null(kit_get(&k, names[i]));
    assert_int_equal(tree_count(k.root->dead), 0);
    failpoint_plant("recover.deletes-at-once");
    assert_int_equal(kit_workload(&k, k.ns, "waits", 1, 1).code, 0);
    assert_int_equal(begin_anew(&k, UID ".6.00000002", root_rv(k.root)).code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "waits").code, 0);
    assert_null(kit_get(&k, "waits"));
    failpoint_plant(NULL);
    kit_end(&k);
}

/* A newer run of it is found: taken over to be stopped, and then it goes; or it had ended. */
static void test_deleted_and_found(void **state)
{
    struct kit was, k;
    struct object *docs[3];
    static const char *const names[] = {"a", "b", "c"};

    (void)state;
    named(&was);
    named(&k);
    for (unsigned i = 0; i < 3; i++) {
        docs[i] = object_ref(kit_carried(&was, names[i], i));
        assert_int_equal(kit_adopt(&k, docs[i], 1, 1, false, 0).code, 0); /* the state has it */
        k.requeue = i < 2;
        assert_int_equal(kit_run(&k, names[i], 1, 1, STEP_ENDED).code, 0);
    }
    assert_int_equal(kit_status(&k, "c")->phase, PHASE_SUCCEEDED);
    assert_int_equal(kit_place(&k, "b", "fra.n0", 0, 1, 1).code, 0);
    int64_t epoch = kit_status(&k, "b")->epoch;
    assert_int_equal(begin_anew(&k, UID ".5.00000001", root_rv(k.root)).code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "a").code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "b").code, 0);
    assert_int_equal(kit_run(&k, "b", epoch, 0, STEP_STOP).code, 0);
    assert_string_equal(phase_and_reason(&k, "b"), "Cancelled");
    assert_int_equal(kit_adopt(&k, docs[2], 2, 1, false, 0).code, E_STALE); /* ended for good */
    assert_int_equal(kit_adopt(&k, docs[0], epoch + 1, 1, false, 0).code, 0);
    assert_int_equal(kit_adopt(&k, docs[1], epoch + 1, 1, true, 0).code, 0);
    assert_string_equal(phase_and_reason(&k, "b"), "Succeeded");
    const struct object *a = kit_get(&k, "a");
    assert_true(a->meta->deletionTimestamp && kit_status(&k, "a")->phase == PHASE_UNKNOWN);
    assert_int_equal(kit_run(&k, "a", epoch + 1, 1, STEP_SEEN).code, 0);
    assert_int_equal(kit_run(&k, "a", epoch + 1, 1, STEP_STOP).code, 0);
    assert_int_equal(kit_run(&k, "a", epoch + 1, 1, STEP_ENDED).code, 0);
    assert_null(kit_get(&k, "a")); /* its end is proved, and it was the newest */
    root_check(k.root);
    assert_int_equal(kit_settle(&k, "fra").code, 0);
    collected(&k);
    assert_null(kit_get(&k, "b"));
    kit_end(&k);
    for (unsigned i = 0; i < 3; i++)
        (void)object_unref(docs[i]);
    kit_end(&was);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deleted_before_the_backup), cmocka_unit_test(test_ancestors),
        cmocka_unit_test(test_deleted_while_recovering), cmocka_unit_test(test_deleted_and_found)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
