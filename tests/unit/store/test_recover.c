/* A state that was lost, or went back: nothing that may be alive elsewhere is placed or taken for
 * ended before recovery is settled; what targets carry is taken over in epochs above all seen. */
#include "api/base/failpoint.h"
#include "tests/unit/store/store_kit.h"

#define UID "0123456789abcdef0123456789abcdef"

static union command step(enum recover_step s)
{
    return (union command){.recover = {.head = {.type = CMD_RECOVER, .user = "alice"}, .step = s}};
}

static struct result begin(struct kit *k, const char *uid, uint64_t rv)
{
    union command c = step(RECOVER_BEGIN);

    (void)snprintf(c.recover.cluster_uid, sizeof c.recover.cluster_uid, "%s", uid);
    c.recover.rv = rv;
    return kit_apply(k, &c);
}

static struct result lost(struct kit *k, const char *name)
{
    union command c = step(RECOVER_LOST);

    (void)snprintf(c.recover.ns, sizeof c.recover.ns, "%s", k->ns);
    (void)snprintf(c.recover.name, sizeof c.recover.name, "%s", name);
    (void)snprintf(c.recover.uid, sizeof c.recover.uid, "%s", kit_get(k, name)->meta->uid);
    return kit_apply(k, &c);
}

static struct result settle(struct kit *k, const char *target)
{
    union command c = step(RECOVER_SETTLE);
    struct write_op op;

    kit_op(&op, WRITE_DELETE, KIND_TARGET, "", target, NULL);
    c.recover.ops = &op;
    c.recover.n = *target != 0;
    return kit_apply(k, &c);
}

static struct result adopt(struct kit *k, const struct object *doc, int64_t epoch, int64_t try_,
                           bool ended, int64_t exit_code)
{
    union command c = step(RECOVER_ADOPT);
    struct write_op op = {
        .verb = WRITE_CREATE, .kind = KIND_WORKLOAD, .object = (struct object *)(uintptr_t)doc};

    c.recover.ops = &op;
    c.recover.n = 1;
    c.recover.epoch = epoch;
    c.recover.try_ = try_;
    c.recover.ended = ended;
    c.recover.exit_code = exit_code;
    c.recover.proof = PROOF_TREE_GONE;
    (void)snprintf(c.recover.uid, sizeof c.recover.uid, "%s", doc->meta->uid);
    (void)snprintf(op.ns, sizeof op.ns, "%s", doc->meta->namespace_);
    (void)snprintf(op.name, sizeof op.name, "%s", doc->meta->name);
    return kit_apply(k, &c);
}

static const struct workload_status *status(struct kit *k, const char *name)
{
    return object_as(kit_get(k, name), workload)->status;
}

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
    assert_int_equal(begin(&k, UID ".2", rv + 1000).code, 0);
    assert_int_equal(begin(&k, UID, 0).code, E_CONFLICT); /* never back */
    assert_int_equal(begin(&k, "", rv).code, E_STALE);
    assert_string_equal(root_cluster_uid(k.root), UID ".2");
    assert_int_equal(root_changes(k.root, rv + 5, count_change, &n, &e), E_GONE);
    assert_int_equal(root_changes(k.root, root_rv(k.root), count_change, &n, &e), 0);
    assert_int_equal(lost(&k, "runs").code, 0);
    assert_int_equal(lost(&k, "waits").code, 0);
    assert_true(lost(&k, "waits").unchanged);
    assert_int_equal(status(&k, "runs")->phase, PHASE_UNKNOWN);
    root_check(k.root);

    /* What this state does not have any more may have been granted, or tried, since. */
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_LEASE_OVER).code, E_BUSY);
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_ABSENT).code, E_BUSY);
    assert_int_equal(kit_place(&k, "waits", "fra.n0", 1, 1, 1).code, E_PLACE);
    /* Work of today is no matter of yesterday's. */
    assert_int_equal(kit_workload(&k, k.ns, "new", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "new", "fra.n0", 2, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "runs", 1, 1, STEP_SEEN).code, 0); /* alive: here it is */
    assert_int_equal(status(&k, "runs")->epochFloor, 0);
    assert_int_equal(settle(&k, "").code, E_CONFLICT); /* fra was not heard */
    assert_int_equal(settle(&k, "fra").code, 0);
    assert_int_equal(root_recovering(k.root), 0);
    assert_int_equal(kit_place(&k, "waits", "fra.n0", 1, 1, 1).code, 0);
    assert_true(status(&k, "waits")->epoch > EPOCH_STEP);
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
    assert_int_equal(status(&k, "w0001")->phase, PHASE_SUCCEEDED);
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
    assert_int_equal(status(&k, "w0000")->phase, PHASE_UNKNOWN);
    assert_int_equal(status(&k, "w0001")->phase, PHASE_SUCCEEDED);
    int64_t first = status(&k, "w1099")->epochFloor;
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
    assert_int_equal(settle(&k, "fra").code, 0);
    assert_int_equal(kit_place(&k, "w1099", "fra.n0", 3, 1, 1).code, 0);
    assert_int_equal(status(&k, "w1099")->epoch, first + 1);
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
    assert_int_equal(begin(&k, UID ".2", root_rv(k.root) + 1000).code, 0);
    assert_true(root_went_back(k.root));
    assert_int_equal(kit_place(&k, "waits", "fra.n0", 2, 1, 1).code, E_PLACE);
    assert_int_equal(kit_run(&k, "held", 1, 1, STEP_DISPATCH).code, E_BUSY);
    assert_int_equal(settle(&k, "fra").code, 0); /* over them, as no brain does */
    assert_int_equal(begin(&k, UID ".3", root_rv(k.root) + 1000).code, 0);
    assert_int_equal(kit_run(&k, "held", 1, 0, STEP_REQUEUE).code, 0); /* touched */
    assert_true(status(&k, "held")->epochFloor > EPOCH_STEP);
    assert_true(lost(&k, "held").unchanged);
    assert_int_equal(lost(&k, "runs").code, 0);
    assert_int_equal(status(&k, "runs")->phase, PHASE_UNKNOWN);
    assert_int_equal(lost(&k, "waits").code, 0);
    assert_int_equal(settle(&k, "fra").code, 0);
    assert_int_equal(kit_place(&k, "held", "fra.n0", 2, 1, 1).code, 0);
    assert_true(status(&k, "held")->epoch > EPOCH_STEP);
    root_check(k.root);
    kit_end(&k);
}

/* What another state had: the documents as their runs carry them. */
static const struct object *carried(struct kit *from, const char *name, int64_t device)
{
    assert_int_equal(kit_workload(from, from->ns, name, 1, 1).code, 0);
    assert_int_equal(kit_place(from, name, "fra.n0", device, 1, 1).code, 0);
    assert_int_equal(kit_run(from, name, 1, 1, STEP_DISPATCH).code, 0);
    return kit_get(from, name);
}

/* What the state takes for held may be somebody else's by now. An end that its target tells frees
 * it, and starts nothing before recovery is settled. */
static void test_an_end_frees_the_place(void **state)
{
    struct kit was, k;

    (void)state;
    kit_begin(&was);
    kit_pool(&was, 1, 4);
    struct object *since = object_ref(carried(&was, "since", 0));
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    for (unsigned i = 0; i < 2; i++) {
        const char *name = i ? "done" : "moved";
        assert_int_equal(kit_workload(&k, k.ns, name, 1, 1).code, 0);
        assert_int_equal(kit_place(&k, name, "fra.n0", i, 1, 1).code, 0);
        assert_int_equal(kit_run(&k, name, 1, 1, STEP_DISPATCH).code, 0);
        assert_int_equal(kit_run(&k, name, 1, 1, STEP_RUNNING).code, 0);
    }
    assert_int_equal(begin(&k, UID ".2", root_rv(k.root) + 1000).code, 0);
    assert_int_equal(lost(&k, "moved").code, 0);
    assert_int_equal(lost(&k, "done").code, 0);
    assert_int_equal(adopt(&k, since, 1, 1, false, 0).code, E_PLACE);
    k.requeue = true;
    assert_int_equal(kit_run(&k, "moved", 1, 1, STEP_ENDED).code, 0); /* it was told to stop */
    k.requeue = false;
    assert_int_equal(kit_run(&k, "done", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(status(&k, "done")->phase, PHASE_SUCCEEDED);
    assert_int_equal(status(&k, "moved")->phase, PHASE_QUEUED);
    assert_int_equal(kit_place(&k, "moved", "fra.n0", 2, 1, 1).code, E_PLACE);
    assert_int_equal(adopt(&k, since, 1, 1, false, 0).code, 0);
    root_check(k.root);
    assert_int_equal(settle(&k, "fra").code, 0);
    assert_int_equal(kit_place(&k, "moved", "fra.n0", 2, 1, 1).code, 0);
    assert_true(status(&k, "moved")->epoch > EPOCH_STEP);
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
    struct object *a = object_ref(carried(&was, "a", 0)), *b = object_ref(carried(&was, "b", 1)),
                  *c = object_ref(carried(&was, "c", 2));
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    assert_int_equal(begin(&k, "", 0).code, 0);
    assert_int_equal(adopt(&k, a, 1, 1, false, 0).code, 0);
    assert_int_equal(adopt(&k, a, 1, 1, false, 0).code, E_STALE); /* it is here */
    assert_int_equal(adopt(&k, a, 1, 2, false, 0).code, 0);       /* a newer try of it */
    assert_int_equal(adopt(&k, a, 3, 1, false, 0).code, 0);       /* a newer epoch of it */
    assert_int_equal(adopt(&k, a, 2, 1, false, 0).code, E_STALE);
    assert_true(status(&k, "a")->phase == PHASE_UNKNOWN && status(&k, "a")->epoch == 3);
    assert_string_equal(kit_get(&k, "a")->meta->uid, a->meta->uid);
    assert_int_equal(kit_run(&k, "a", 3, 1, STEP_SEEN).code, 0);
    assert_int_equal(kit_run(&k, "a", 3, 1, STEP_RUNNING).code, 0);

    assert_int_equal(adopt(&k, b, 1, 1, true, 0).code, 0); /* it had come to its end */
    assert_int_equal(status(&k, "b")->phase, PHASE_SUCCEEDED);
    assert_int_equal(adopt(&k, b, 2, 1, false, 0).code, E_STALE);
    assert_int_equal(adopt(&k, c, 1, 1, true, 1).code, 0); /* it failed, and has no retries */
    assert_int_equal(status(&k, "c")->phase, PHASE_FAILED);

    /* A device is never promised twice: somebody has to say which one goes. */
    assert_int_equal(kit_workload(&k, k.ns, "mine", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "mine", "fra.n0", 3, 1, 1).code, 0);
    const struct object *d = carried(&was, "d", 3);
    assert_int_equal(adopt(&k, d, 1, 1, false, 0).code, E_PLACE);
    root_check(k.root);
    assert_int_equal(settle(&k, "fra").code, 0);
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
    int code = adopt(k, o, epoch, 1, false, 0).code;
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
    assert_int_equal(begin(&k, "", 0).code, 0);
    struct object *doc = object_ref(carried(&k, "a", 0));
    (void)carried(&k, "b", 1);
    assert_int_equal(adopt_with(&k, doc, 2, held_by_another), E_PLACE);
    assert_int_equal(adopt_with(&k, doc, 2, no_such_device), E_PLACE);
    assert_int_equal(adopt_with(&k, doc, 2, more_than_a_device), E_PLACE);
    assert_int_equal(adopt_with(&k, doc, 2, a_price_below_zero), E_INVALID);
    assert_int_equal(adopt_with(&k, doc, INT64_MAX, another_device), E_INVALID);
    assert_int_equal(adopt_with(&k, doc, 2, another_device), 0);
    (void)object_unref(doc);
    kit_end(&k);
}

/* ---- what was deleted
 * ------------------------------------------------------------------------------------------------
 */
static struct result begin_anew(struct kit *k, const char *uid, uint64_t known)
{
    union command c = step(RECOVER_BEGIN);

    (void)snprintf(c.recover.cluster_uid, sizeof c.recover.cluster_uid, "%s", uid);
    c.recover.rv = root_rv(k->root) + RECOVER_RV_JUMP;
    c.recover.known = known;
    return kit_apply(k, &c);
}

static struct result adopt_from(struct kit *k, const struct object *doc, const char *cluster,
                                uint64_t rv, bool ended)
{
    union command c = step(RECOVER_ADOPT);
    struct write_op op = {
        .verb = WRITE_CREATE, .kind = KIND_WORKLOAD, .object = (struct object *)(uintptr_t)doc};

    c.recover.ops = &op;
    c.recover.n = 1;
    c.recover.epoch = c.recover.try_ = 1;
    c.recover.ended = c.recover.requeue = ended;
    c.recover.proof = PROOF_TREE_GONE;
    c.recover.known = rv;
    (void)snprintf(c.recover.cluster_uid, sizeof c.recover.cluster_uid, "%s", cluster);
    (void)snprintf(c.recover.uid, sizeof c.recover.uid, "%s", doc->meta->uid);
    (void)snprintf(op.ns, sizeof op.ns, "%s", doc->meta->namespace_);
    (void)snprintf(op.name, sizeof op.name, "%s", doc->meta->name);
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
    struct object *w = object_ref(carried(&k, "w", 0));
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
    assert_int_equal(lost(&k, "w").code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "w").code, 0);
    assert_int_equal(settle(&k, "fra").code, 0);
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
        (void)snprintf(last, sizeof last, "%s", uid);
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
    assert_int_equal(lost(&k, "runs").code, 0); /* "waits" and "held" are not marked yet */
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
    assert_int_equal(settle(&k, "fra").code, 0);
    assert_true(root_collect_due(k.root));
    assert_int_equal(begin_anew(&k, "", 0).code, 0); /* before they went: once more */
    collected(&k);
    assert_non_null(kit_get(&k, "waits"));
    again(&k);
    assert_int_equal(settle(&k, "fra").code, 0);
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
        docs[i] = object_ref(carried(&was, names[i], i));
        assert_int_equal(adopt(&k, docs[i], 1, 1, false, 0).code, 0); /* the state has it */
        k.requeue = i < 2;
        assert_int_equal(kit_run(&k, names[i], 1, 1, STEP_ENDED).code, 0);
    }
    assert_int_equal(status(&k, "c")->phase, PHASE_SUCCEEDED);
    assert_int_equal(kit_place(&k, "b", "fra.n0", 0, 1, 1).code, 0);
    int64_t epoch = status(&k, "b")->epoch;
    assert_int_equal(begin_anew(&k, UID ".5.00000001", root_rv(k.root)).code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "a").code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "b").code, 0);
    assert_int_equal(kit_run(&k, "b", epoch, 0, STEP_STOP).code, 0);
    assert_string_equal(phase_and_reason(&k, "b"), "Cancelled");
    assert_int_equal(adopt(&k, docs[2], 2, 1, false, 0).code, E_STALE); /* ended for good */
    assert_int_equal(adopt(&k, docs[0], epoch + 1, 1, false, 0).code, 0);
    assert_int_equal(adopt(&k, docs[1], epoch + 1, 1, true, 0).code, 0);
    assert_string_equal(phase_and_reason(&k, "b"), "Succeeded");
    const struct object *a = kit_get(&k, "a");
    assert_true(a->meta->deletionTimestamp && status(&k, "a")->phase == PHASE_UNKNOWN);
    assert_int_equal(kit_run(&k, "a", epoch + 1, 1, STEP_SEEN).code, 0);
    assert_int_equal(kit_run(&k, "a", epoch + 1, 1, STEP_STOP).code, 0);
    assert_int_equal(kit_run(&k, "a", epoch + 1, 1, STEP_ENDED).code, 0);
    assert_null(kit_get(&k, "a")); /* its end is proved, and it was the newest */
    root_check(k.root);
    assert_int_equal(settle(&k, "fra").code, 0);
    collected(&k);
    assert_null(kit_get(&k, "b"));
    kit_end(&k);
    for (unsigned i = 0; i < 3; i++)
        (void)object_unref(docs[i]);
    kit_end(&was);
}

static struct result stranger(struct kit *k, const char *name)
{
    union command c = step(RECOVER_STRANGER);

    (void)snprintf(c.recover.name, sizeof c.recover.name, "%s", name);
    return kit_apply(k, &c);
}

/* Settles with these names, of Targets that have told or are said to be dead. */
static struct result settle_all(struct kit *k, const char *const *names, uint32_t n)
{
    union command c = step(RECOVER_SETTLE);
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
    assert_int_equal(begin(&k, UID ".2", root_rv(k.root) + 1000).code, 0);
    assert_int_equal(lost(&k, "waits").code, 0);
    uint64_t digest = root_digest(k.root);
    assert_int_equal(stranger(&k, "late").code, 0);
    assert_true(root_stranger(k.root, "late") && root_digest(k.root) != digest);
    assert_true(stranger(&k, "late").unchanged);
    assert_true(stranger(&k, "fra").unchanged);
    assert_int_equal(stranger(&k, "No name").code, E_INVALID);
    assert_int_equal(stranger(&k, "").code, E_INVALID);
    assert_int_equal(stranger(&k, "other").code, 0);
    root_check(k.root);

    struct result r = settle(&k, "fra");
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
    assert_int_equal(begin(&k, UID ".2", root_rv(k.root) + 1000).code, 0);
    assert_int_equal(root_strangers(k.root, NULL, 0), 0);
    assert_int_equal(kit_delete(&k, KIND_TARGET, "", "gone").code, 0);
    assert_true(root_stranger(k.root, "gone"));
    assert_non_null(strstr(settle(&k, "fra").text, "--dead gone"));

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
    assert_int_equal(begin(&k, "", 0).code, 0);
    for (unsigned i = 0; i < STRANGERS_MAX; i++)
        assert_int_equal(stranger(&k, arena_printf(k.a, "t%04u", i)).code, 0);
    assert_int_equal(stranger(&k, "one-more").code, E_LIMIT);
    assert_true(stranger(&k, "t0000").unchanged);
    assert_int_equal(kit_delete(&k, KIND_TARGET, "", "fra").code, 0); /* it counts all the same */
    assert_true(root_strangers(k.root, NULL, 0) == STRANGERS_MAX + 1);
    assert_non_null(strstr(settle(&k, "nosuch").text, " more"));
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_deleted_before_the_backup),
                                       cmocka_unit_test(test_ancestors),
                                       cmocka_unit_test(test_deleted_while_recovering),
                                       cmocka_unit_test(test_deleted_and_found),
                                       cmocka_unit_test(test_a_state_that_went_back),
                                       cmocka_unit_test(test_a_state_that_begins_anew),
                                       cmocka_unit_test(test_halfway),
                                       cmocka_unit_test(test_an_end_frees_the_place),
                                       cmocka_unit_test(test_what_targets_carry),
                                       cmocka_unit_test(test_what_targets_tell_may_be_anything),
                                       cmocka_unit_test(test_a_stranger_is_awaited),
                                       cmocka_unit_test(test_a_deleted_target_is_awaited),
                                       cmocka_unit_test(test_strangers_are_bounded)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
