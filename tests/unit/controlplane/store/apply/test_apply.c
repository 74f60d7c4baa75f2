/* Commands one by one: what each does, and what each refuses without changing anything. */
#include "controlplane/store/store_internal.h"
#include "tests/support/store/store_kit.h"

static void test_write(void **state)
{
    struct kit k;
    struct result r;

    (void)state;
    kit_begin(&k);
    assert_int_equal(kit_namespace(&k, "a").code, 0);
    r = kit_namespace(&k, "a");
    assert_int_equal(r.code, E_EXISTS);
    assert_string_equal(r.text, "namespaces \"a\" already exists");
    r = kit_workload(&k, "nowhere", "w", 1, 1);
    assert_int_equal(r.code, E_NOTFOUND);
    assert_int_equal(kit_workload(&k, "a", "w", 1, 1).code, 0);
    const struct object *o = root_get(k.root, KIND_WORKLOAD, "a", "w");
    const struct workload *w = object_as(o, workload);
    assert_int_equal(w->status->phase, PHASE_QUEUED);
    assert_int_equal(o->meta->generation, 1);
    assert_int_equal(o->meta->creationTimestamp, k.now);
    assert_int_equal(w->status->queuedAt, k.now);
    assert_ptr_equal(root_workload_by_uid(k.root, o->meta->uid), o);

    /* equal body: nothing moves; another spec: generation + 1, status kept */
    uint64_t rv = root_rv(k.root);
    AUTO_ARENA a = arena_create(0);
    struct workload *e = object_edit_as(o, workload, a);
    r = kit_update(&k, KIND_WORKLOAD, "a", "w", e, rv, false);
    assert_int_equal(r.code, 0);
    assert_true(r.unchanged);
    assert_int_equal(root_rv(k.root), rv);
    e->spec->priorityClassName = "high";
    e->status = NULL;
    r = kit_update(&k, KIND_WORKLOAD, "a", "w", e, rv, false);
    assert_string_equal(r.text, "");
    o = root_get(k.root, KIND_WORKLOAD, "a", "w");
    assert_int_equal(o->meta->generation, 2);
    assert_int_equal(object_as(o, workload)->status->phase, PHASE_QUEUED);
    r = kit_update(&k, KIND_WORKLOAD, "a", "w", e, rv, false);
    assert_int_equal(r.code, E_CONFLICT);
    assert_non_null(strstr(
        r.text, "the object has been modified; please apply your changes to the latest version"));

    /* a status from outside moves no phase */
    e->status = arena_new(a, struct workload_status);
    e->status->phase = PHASE_SUCCEEDED;
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, "a", "w", e, 0, true).code, 0);
    assert_int_equal(kit_phase(&k, "a", "w"), PHASE_QUEUED);

    /* deletion with a finalizer waits for it */
    e = object_edit_as(root_get(k.root, KIND_WORKLOAD, "a", "w"), workload, a);
    const char *finalizers[] = {"x.dev/y"};
    e->metadata->finalizers = finalizers;
    e->metadata->n_finalizers = 1;
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, "a", "w", e, 0, false).code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, "a", "w").code, 0);
    assert_true(root_get(k.root, KIND_WORKLOAD, "a", "w")->meta->deletionTimestamp != 0);
    e->metadata->n_finalizers = 0;
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, "a", "w", e, 0, false).code, 0);
    assert_null(root_get(k.root, KIND_WORKLOAD, "a", "w"));
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, "a", "w").code, E_NOTFOUND);
    kit_end(&k);
}

static void test_all_or_nothing(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    uint64_t rv = root_rv(k.root), digest = k.root->digest;
    struct write_op ops[3] = {0};
    kit_op_queue(&k, &ops[0], "q1", "");
    kit_op_queue(&k, &ops[1], "q2", "q1");
    kit_op_queue(&k, &ops[2], "q1", "");
    struct result r = kit_write(&k, ops, 3, "abc", "id-1");
    assert_int_equal(r.code, E_EXISTS);
    assert_int_equal(r.op, 2);
    assert_int_equal(root_rv(k.root), rv);
    assert_null(root_get(k.root, KIND_QUEUE, "", "q1"));
    assert_string_equal(root_revision(k.root), "");
    assert_true(digest != k.root->digest); /* the request id is kept */

    kit_op_queue(&k, &ops[0], "q1", "q2"); /* a cycle */
    kit_op_queue(&k, &ops[1], "q2", "q1");
    r = kit_write(&k, ops, 2, "abc", "id-2");
    assert_int_equal(r.code, E_INVALID);
    assert_null(root_get(k.root, KIND_QUEUE, "", "q2"));

    kit_op_queue(&k, &ops[0], "q2", "q1");
    kit_op_queue(&k, &ops[1], "q1", "");
    assert_int_equal(kit_write(&k, ops, 2, "abc", "id-3").code, 0);
    assert_string_equal(root_revision(k.root), "abc");
    assert_string_equal(root_get(k.root, KIND_QUEUE, "", "q1")->meta->revision, "abc");
    rv = root_rv(k.root);
    kit_op_queue(&k, &ops[0], "q9", "");
    r = kit_write(&k, ops, 1, "def", "id-3"); /* the same id: the first answer */
    assert_int_equal(r.code, 0);
    assert_int_equal(r.rv, rv);
    assert_null(root_get(k.root, KIND_QUEUE, "", "q9"));

    /* the same documents under a new commit: it is told, the generation stays */
    struct write_op again = {.verb = WRITE_UPDATE, .kind = KIND_QUEUE, .name = "q1"};
    again.object = object_ref(root_get(k.root, KIND_QUEUE, "", "q1"));
    assert_int_equal(kit_write(&k, &again, 1, "def", "id-4").code, 0);
    assert_string_equal(root_get(k.root, KIND_QUEUE, "", "q1")->meta->revision, "def");
    assert_int_equal(root_get(k.root, KIND_QUEUE, "", "q1")->meta->generation, 1);
    kit_end(&k);
}

/* Hints are found after the reason was told: they are news, once. */
static void test_hints_come_later(void **state)
{
    const char *hints[] = {"4 workers instead of 8 (fra)"},
               *other[] = {"tier burst allowed too (x)"};
    struct kit k;
    union command c;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 1);
    assert_int_equal(kit_workload(&k, "default", "w", 1, 8).code, 0);
    assert_false(kit_pending(&k, "w", "NothingFits", 3).unchanged);
    for (int i = 0; i < 4; i++) {
        kit_place_head(&k, &c, "w", "Pending", "NothingFits");
        c.place.decision->queuePosition = 3;
        c.place.decision->hints = i < 2 ? hints : other;
        c.place.decision->n_hints = 1;
        assert_int_equal(kit_apply(&k, &c).unchanged, i % 2);
    }
    assert_true(kit_pending(&k, "w", "NothingFits", 3).unchanged); /* nobody looked: they stay */
    const struct object *o = root_get(k.root, KIND_DECISION, "default", "w-pending");
    assert_string_equal(object_as(o, decision)->spec->hints[0], other[0]);
    kit_end(&k);
}

/* A program that was told to go by its target's failure may say 0: its work is not done. */
static void test_what_its_target_broke_off_has_not_succeeded(void **state)
{
    static const struct {
        const char *reason;
        enum phase leads_to;
    } rows[] = {
        {"LeaseLost", PHASE_FAILED},        {"RunnerKilled", PHASE_FAILED},
        {"MachineRestarted", PHASE_FAILED}, {"StartFailed", PHASE_FAILED},
        {"Completed", PHASE_SUCCEEDED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct kit k;
        kit_begin(&k);
        kit_level_set(&k, FEATURE_GRANTS);
        kit_pool(&k, 1, 1);
        assert_int_equal(kit_workload(&k, "default", "w", 1, 1).code, 0);
        assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 1).code, 0);
        assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
        assert_int_equal(kit_run(&k, "w", 1, 1, STEP_RUNNING).code, 0);
        k.reason = rows[i].reason;
        assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
        assert_int_equal(kit_phase(&k, "default", "w"), rows[i].leads_to);
        assert_string_equal(kit_status(&k, "w")->reason, rows[i].reason);
        kit_end(&k);
    }
}

static void test_place_and_run(void **state)
{
    struct kit k;
    struct node_usage u;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 2, 4);
    assert_int_equal(kit_workload(&k, "default", "w", 2, 2).code, 0);
    struct result r = kit_pending(&k, "w", "NothingFits", 3);
    assert_int_equal(r.code, 0);
    assert_false(r.unchanged);
    assert_non_null(root_get(k.root, KIND_DECISION, "default", "w-pending"));
    assert_true(kit_pending(&k, "w", "NothingFits", 3).unchanged);

    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 2, 2).code, 0);
    assert_int_equal(kit_phase(&k, "default", "w"), PHASE_RESERVED);
    assert_null(root_get(k.root, KIND_DECISION, "default", "w-pending"));
    assert_non_null(root_get(k.root, KIND_DECISION, "default", "w-e1"));
    assert_true(root_usage(k.root, "fra.n0", &u));
    assert_int_equal(u.device_milli[3], 1000);
    assert_int_equal(u.gpu_milli, 4000);
    assert_int_equal(root_queue_held(k.root, "", "h100"), 4000);

    assert_int_equal(kit_workload(&k, "default", "v", 1, 1).code, 0);
    r = kit_place(&k, "v", "fra.n0", 3, 1, 1); /* taken */
    assert_int_equal(r.code, E_PLACE);
    assert_non_null(strstr(r.text, "GPU 3"));
    assert_int_equal(kit_place(&k, "v", "fra.n9", 0, 1, 1).code, E_PLACE);
    assert_int_equal(kit_place(&k, "w", "fra.n1", 0, 2, 2).code, E_STALE); /* not queued */

    assert_int_equal(kit_run(&k, "w", 1, 0, STEP_ACCEPTED).code, E_STALE);
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_DISPATCH).code, E_STALE);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, E_STALE);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ABSENT).code, 0);
    assert_int_equal(kit_phase(&k, "default", "w"), PHASE_RESERVED);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_RUNNING).code, E_STALE);
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_RUNNING).code,
                     E_STALE); /* the first try speaks no more */
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_RUNNING).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_ABSENT).code, E_STALE); /* it ran */
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_LEASE_OVER).code, E_STALE);
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_UNKNOWN).code, 0);
    assert_true(root_usage(k.root, "fra.n0", &u)); /* unknown keeps its place */
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_ABSENT).code, E_STALE);
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_SEEN).code, 0);
    assert_int_equal(kit_phase(&k, "default", "w"), PHASE_RUNNING);

    /* a delete waits for the proof */
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, "default", "w").code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_STOP).code, 0);
    assert_int_equal(kit_phase(&k, "default", "w"), PHASE_QUIESCING);
    k.now += 3600 * 1000;
    assert_int_equal(kit_run(&k, "w", 1, 2, STEP_ENDED).code, 0);
    assert_null(root_get(k.root, KIND_WORKLOAD, "default", "w"));
    assert_null(root_get(k.root, KIND_DECISION, "default", "w-e1")); /* it owned it */
    assert_false(root_usage(k.root, "fra.n0", &u));
    assert_int_equal(kit_place(&k, "v", "fra.n0", 3, 1, 1).code, 0);
    kit_end(&k);
}

static struct result delete_within(struct kit *k, const char *name, int64_t seconds)
{
    struct write_op op;

    kit_op(&op, WRITE_DELETE, KIND_WORKLOAD, "default", name, NULL);
    op.graced = true;
    op.grace_seconds = seconds;
    return kit_write(k, &op, 1, "", "");
}

static void test_a_deletion_says_its_grace(void **state)
{
    struct kit k;
    int64_t seconds = -1;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    assert_int_equal(kit_workload(&k, "default", "w", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
#define W root_get(k.root, KIND_WORKLOAD, "default", "w")
    int64_t contract = workload_grace_ms(W);
    assert_int_equal(delete_within(&k, "w", -1).code, E_INVALID);
    assert_int_equal(delete_within(&k, "w", DELETION_GRACE_MAX_S + 1).code, E_INVALID);
    assert_int_equal(W->meta->deletionTimestamp, 0);
    assert_int_equal(workload_grace_ms(W), contract);
    assert_false(delete_within(&k, "w", 60).unchanged);
    assert_int_equal(workload_grace_ms(W), 60000);
    assert_true(delete_within(&k, "w", 61).unchanged); /* it is never made longer */
    assert_true(kit_delete(&k, KIND_WORKLOAD, "default", "w").unchanged);
    assert_false(delete_within(&k, "w", 2).unchanged);
    assert_int_equal(workload_grace_ms(W), 2000);
    struct workload *b = object_edit_as(W, workload, k.a);
    b->metadata->has = 0; /* as a client's update has it */
    b->metadata->deletionGracePeriodSeconds = 0;
    b->spec->queue = "other";
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, "default", "w", b, 0, false).code, 0);
    assert_int_equal(workload_grace_ms(W), 2000);
    assert_false(delete_within(&k, "w", 0).unchanged);
    assert_true(meta_grace(W->meta, &seconds));
    assert_int_equal(seconds, 0);
    assert_int_equal(workload_grace_ms(W), 0);
    kit_end(&k);
}

static const struct workload_status *status_of(struct kit *k, const char *name)
{
    return object_as(root_get(k->root, KIND_WORKLOAD, "default", name), workload)->status;
}

static void test_ends(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 4);
    k.retries = 1;
    assert_int_equal(kit_workload(&k, "default", "w", 1, 2).code, 0);
    for (int64_t epoch = 1; epoch <= 2; epoch++) {
        assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 2).code, 0);
        assert_int_equal(kit_run(&k, "w", epoch, 1, STEP_DISPATCH).code, 0);
        assert_int_equal(kit_run(&k, "w", epoch, 1, STEP_RUNNING).code, 0);
        k.now += 1800 * 1000;
        struct run_checkpoint ck = {.step = 10 * epoch, .digest = "sha256:x", .name = "c"};
        k.checkpoint = &ck;
        assert_int_equal(kit_run(&k, "w", epoch + 1, 1, STEP_CHECKPOINT).code, E_STALE);
        assert_int_equal(kit_run(&k, "w", epoch, 1, STEP_CHECKPOINT).code, 0);
        if (epoch > 1)
            assert_int_equal(kit_run(&k, "w", epoch - 1, 1, STEP_CHECKPOINT).code, E_STALE);
        k.checkpoint = NULL;
        k.now += 1800 * 1000;
        k.exit_code = 3;
        assert_int_equal(kit_run(&k, "w", epoch, 1, STEP_ENDED).code, 0);
        assert_int_equal(kit_run(&k, "w", epoch, 1, STEP_ENDED).code, E_STALE);
        assert_int_equal(kit_phase(&k, "default", "w"), epoch == 1 ? PHASE_QUEUED : PHASE_FAILED);
    }
    const struct workload_status *s = status_of(&k, "w");
    assert_int_equal(s->n_ends, 2);
    assert_int_equal(s->ends[1].exitCode, 3);
    assert_int_equal(s->checkpoint->step, 20);
    assert_int_equal(s->retries, 2);
    assert_true(s->spent->gpuHours > 3.999 && s->spent->gpuHours < 4.001);
    assert_true(s->spent->cost > 7.99 && s->spent->cost < 8.01);
    assert_true(s->spent->wasted > 1.999 && s->spent->wasted < 2.001);
    assert_int_equal(root_queue_held(k.root, "", ""), 0);

    /* unknown: ended by the lease, placed again as the caller asks */
    k.exit_code = 0;
    assert_int_equal(kit_workload(&k, "default", "u", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "u", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "u", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "u", 1, 1, STEP_RUNNING).code, 0);
    assert_int_equal(kit_run(&k, "u", 1, 1, STEP_UNKNOWN).code, 0);
    assert_int_equal(kit_run(&k, "u", 1, 1, STEP_LEASE_OVER).code, 0);
    assert_int_equal(kit_phase(&k, "default", "u"), PHASE_STOPPED);
    assert_int_equal(kit_run(&k, "u", 1, 0, STEP_REQUEUE).code, 0);
    assert_int_equal(kit_phase(&k, "default", "u"), PHASE_QUEUED);
    assert_int_equal(kit_run(&k, "u", 1, 0, STEP_STOP).code, 0);
    assert_int_equal(kit_phase(&k, "default", "u"), PHASE_CANCELLED);
    kit_end(&k);
}

static void test_namespace_and_target(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 3, 4);
    assert_int_equal(kit_namespace(&k, "team").code, 0);
    assert_int_equal(kit_workload(&k, "team", "w", 1, 1).code, 0);
    assert_int_equal(kit_workload(&k, "team", "v", 1, 1).code, 0);
    k.ns = "team";
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_delete(&k, KIND_NAMESPACE, "", "team").code, 0);
    const struct object *ns = root_get(k.root, KIND_NAMESPACE, "", "team");
    assert_non_null(ns);
    assert_string_equal(object_as(ns, namespace_)->status->phase, "Terminating");
    assert_null(root_get(k.root, KIND_WORKLOAD, "team", "v"));
    assert_true(root_get(k.root, KIND_WORKLOAD, "team", "w")->meta->deletionTimestamp != 0);
    assert_int_equal(kit_workload(&k, "team", "x", 1, 1).code, E_FORBIDDEN);
    assert_int_equal(kit_delete(&k, KIND_TARGET, "", "fra").code, 0);
    assert_non_null(root_get(k.root, KIND_TARGET, "", "fra"));
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ABSENT).code,
                     0); /* never started: reserved, nothing outside */
    assert_null(root_get(k.root, KIND_WORKLOAD, "team", "w"));
    assert_null(root_get(k.root, KIND_NAMESPACE, "", "team"));
    assert_null(root_get(k.root, KIND_TARGET, "", "fra"));
    assert_int_equal(root_count(k.root, KIND_NODE), 0);
    assert_int_equal(root_count(k.root, KIND_DECISION), 0);
    assert_int_equal(tree_count(k.root->dead), 0);
    kit_end(&k);
}

static void test_facts(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 3, 4);
    const struct target_status *s =
        object_as(root_get(k.root, KIND_TARGET, "", "fra"), target)->status;
    assert_int_equal(s->nodes, 3);
    assert_int_equal(s->n_gpus, 1);
    assert_int_equal(s->gpus[0].total, 12);
    assert_string_equal(s->conditions[0].type, "Connected");
    uint64_t rv = root_rv(k.root);
    assert_true(kit_facts(&k, "fra", 3, 4, true).unchanged);
    assert_int_equal(root_rv(k.root), rv);
    assert_int_equal(kit_facts(&k, "fra", 2, 4, true).code, 0);
    assert_int_equal(root_count(k.root, KIND_NODE), 2);
    assert_int_equal(
        object_as(root_get(k.root, KIND_TARGET, "", "fra"), target)->status->inventoryRevision, 2);
    assert_int_equal(kit_facts(&k, "nowhere", 1, 1, true).code, E_NOTFOUND);
    kit_end(&k);
}

static void test_entries(void **state)
{
    struct kit k;
    struct err e = {0};
    AUTO_BUF b;

    (void)state;
    kit_begin(&k);
    buf_init(&b, LIMIT_ENTRY_MAX_BYTES);
    entry_begin(&b, &(struct entry_head){k.number, 1, k.now});
    entry_end(&b);
    assert_int_equal(b.n % 8, 0);
    uint64_t before = root_digest(k.root);
    assert_int_equal(store_apply(&k.root, 1000000, 1, slice_make(b.p, b.n), NULL, NULL, &e),
                     E_CORRUPT);
    for (size_t i = 0; i < b.n; i++) {
        b.p[i] ^= 4;
        assert_int_equal(
            store_apply(&k.root, 1000000, 1u << 30, slice_make(b.p, b.n), NULL, NULL, &e),
            E_CORRUPT);
        b.p[i] ^= 4;
    }
    assert_int_equal(store_apply(&k.root, 1000000, 1, slice_make(b.p, b.n - 8), NULL, NULL, &e),
                     E_CORRUPT);
    assert_true(root_digest(k.root) == before);
    struct root *after = NULL;
    struct result r;
    union command c = {.head = {.type = CMD_MEMBER}};
    c.member.member.id = 3;
    store_try(k.root, k.now, &c, &r, &after);
    assert_int_equal(r.code, 0);
    assert_int_equal(tree_count(after->members), 1);
    assert_int_equal(tree_count(k.root->members), 0);
    (void)root_unref(after);
    kit_end(&k);
}

static void test_changes(void **state)
{
    struct kit k;
    struct err e = {0};
    uint64_t seen[3] = {0};

    (void)state;
    kit_begin(&k);
    assert_int_equal(kit_namespace(&k, "a").code, 0);
    uint64_t rv = root_rv(k.root);
    assert_int_equal(kit_workload(&k, "a", "w", 1, 1).code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, "a", "w").code, 0);
    assert_int_equal(root_changes(k.root, rv, kit_change, seen, &e), 0);
    assert_int_equal(seen[0], 2);
    assert_int_equal(seen[1], rv + 2); /* of the deletion */
    assert_int_equal(seen[2], rv + 2); /* and its object carries it */
    while (root_rv(k.root) < LIMIT_CHANGES_MAX + 10u) {
        (void)kit_namespace(&k, "b");
        assert_int_equal(kit_delete(&k, KIND_NAMESPACE, "", "b").code, 0);
    }
    assert_int_equal(root_changes(k.root, 1, kit_change, seen, &e), E_GONE);
    assert_int_equal(root_changes(k.root, root_oldest_change(k.root) - 1, kit_change, seen, &e), 0);
    kit_end(&k);
}

/* 9,000 one-line changes of an object of 250 kB once cost 4.6 GiB: the window counted changes. */
static void test_changes_are_bounded_by_bytes(void **state)
{
    enum { BIG = 250000, TIMES = 500 };
    union command member = {.member = {.head = {.type = CMD_MEMBER, .user = "x"},
                                       .member = {.id = 1, .name = "m1", .feature_level = 0}}};
    char *text = mem_zalloc(BIG + 1);
    uint64_t seen[3] = {0}, held;
    struct err e = {0};
    struct kit k;

    (void)state;
    memset(text, 'x', BIG);
    kit_begin(&k);
    for (int level = FEATURE_FOUND; level <= FEATURE_GRANTS; level++) {
        member.member.member.feature_level = (uint32_t)level;
        assert_int_equal(kit_apply(&k, &member).code, 0);
        for (int i = 0; i < TIMES; i++) {
            const struct object *o = root_get(k.root, KIND_NAMESPACE, "", "default");
            AUTO_ARENA a = arena_create(0);
            struct namespace_ *ns = object_edit(o, a);
            struct kv note[] = {{"big", text}};
            text[i % BIG] = (char)('a' + i % 26 + (level & 1 ? -32 : 0));
            ns->metadata->annotations = note;
            ns->metadata->n_annotations = 1;
            assert_int_equal(kit_update(&k, KIND_NAMESPACE, "", "default", ns, 0, false).code, 0);
        }
        held = k.root->changes_bytes;
        if (level < FEATURE_GRANTS) /* older members count: as long as there is one, all do */
            assert_true(held > (uint64_t)TIMES * BIG * 9 / 10);
    }
    print_message("%llu bytes in %llu changes\n", (unsigned long long)held,
                  (unsigned long long)tree_count(k.root->changes));
    assert_true(held <= LIMIT_CHANGES_MAX_BYTES && held > LIMIT_CHANGES_MAX_BYTES - 2 * BIG);
    assert_true(tree_count(k.root->changes) >= LIMIT_CHANGES_MIN);
    assert_int_equal(root_changes(k.root, root_rv(k.root) - TIMES, kit_change, seen, &e), E_GONE);
    assert_int_equal(root_changes(k.root, root_rv(k.root) - 10, kit_change, seen, &e), 0);
    root_check(k.root);
    kit_end(&k);
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_all_or_nothing),
        cmocka_unit_test(test_hints_come_later),
        cmocka_unit_test(test_what_its_target_broke_off_has_not_succeeded),
        cmocka_unit_test(test_place_and_run),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_a_deletion_says_its_grace),
        cmocka_unit_test(test_namespace_and_target),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_changes_are_bounded_by_bytes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
