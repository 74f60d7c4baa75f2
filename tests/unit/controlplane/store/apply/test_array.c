/* Arrays: indexes are begun in order, each once, as many at once as they may; what becomes of them
 * is in the array's status, whoever ends, deletes or archives them, after snapshots and after the
 * state went back, too. */
#include "api/base/failpoint.h"
#include "tests/support/store/store_kit.h"

/* The state as another member has it, that reads a snapshot now. */
static struct result array_make(struct kit *k, const char *name, int64_t count, int64_t parallelism)
{
    struct workload *w = arena_new(k->a, struct workload);

    w->spec = arena_new(k->a, struct workload_spec);
    w->spec->run = arena_new(k->a, struct run_spec);
    w->spec->run->script = "true";
    w->spec->run->retries = k->retries;
    w->spec->resources = arena_new(k->a, struct resources);
    w->spec->resources->cpu = 1000;
    w->spec->resources->gpu = arena_new(k->a, struct gpu_request);
    w->spec->resources->gpu->count = 1;
    w->spec->array = arena_new(k->a, struct array_spec);
    w->spec->array->count = count;
    w->spec->array->parallelism = parallelism;
    return kit_create(k, KIND_WORKLOAD, k->ns, name, w);
}

static struct result slice_of(struct kit *k, const char *name, uint32_t objects)
{
    const struct object *o = kit_get(k, name);
    union command c = {.array = {.head = {.type = CMD_ARRAY}, .objects = objects}};

    str_copy(c.array.ns, sizeof c.array.ns, k->ns);
    str_copy(c.array.name, sizeof c.array.name, name);
    str_copy(c.array.uid, sizeof c.array.uid, o ? o->meta->uid : "none");
    return kit_apply(k, &c);
}

/* As the leader does it: while there is something to do. */
static void all_slices(struct kit *k)
{
    const struct object *o;

    while ((o = root_array_due(k->root, "", ""))) {
        struct result r = slice_of(k, o->meta->name, 64);

        assert_int_equal(r.code, 0);
        if (r.unchanged)
            return;
    }
}

static const struct workload_status *status_of(struct kit *k, const char *name)
{
    return object_as(kit_get(k, name), workload)->status;
}

static void sets_are(struct kit *k, const char *name, const char *active, const char *completed,
                     const char *failed)
{
    const struct workload_status *s = status_of(k, name);

    assert_string_equal(s->activeIndexes, active);
    assert_string_equal(s->completedIndexes, completed);
    assert_string_equal(s->failedIndexes, failed);
    root_check(k->root);
}

static struct result dispatch(struct kit *k, const char *name, int64_t epoch)
{
    struct lease_grant g = {.lease = 60000, .grace = 1000, .kill = 5000, .number = 1};
    union command c = {.run = {.head = {.type = CMD_RUN},
                               .step = STEP_DISPATCH,
                               .epoch = epoch,
                               .try_ = 1,
                               .grant = &g}};

    str_copy(c.run.ns, sizeof c.run.ns, k->ns);
    str_copy(c.run.name, sizeof c.run.name, name);
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, name)->meta->uid);
    return kit_apply(k, &c);
}

/* It runs and ends, with this exit code. */
static void run_index(struct kit *k, const char *name, int64_t epoch, int64_t exit_code)
{
    assert_int_equal(kit_place(k, name, "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(dispatch(k, name, epoch).code, 0);
    assert_int_equal(kit_run(k, name, epoch, 1, STEP_RUNNING).code, 0);
    k->exit_code = exit_code;
    assert_int_equal(kit_run(k, name, epoch, 1, STEP_ENDED).code, 0);
    k->exit_code = 0;
}

static void begin(struct kit *k)
{
    kit_begin(k);
    kit_level_set(k, FEATURE_GRANTS);
    kit_pool(k, 2, 8);
}

static const char *env_of(const struct object *o, const char *name)
{
    const struct run_spec *r = object_as(o, workload)->spec->run;

    for (uint32_t i = 0; i < r->n_env; i++)
        if (!strcmp(r->env[i].name, name))
            return r->env[i].value;
    return "";
}

static void test_to_the_end(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    k.retries = 1;
    assert_int_equal(array_make(&k, "a", 4, 2).code, 0);
    assert_int_equal(status_of(&k, "a")->phase, PHASE_QUEUED);
    all_slices(&k);
    sets_are(&k, "a", "0-1", "", "");
    assert_int_equal(status_of(&k, "a")->phase, PHASE_RUNNING);
    assert_null(kit_get(&k, "a-2")); /* two at once */
    assert_null(root_array_due(k.root, "", ""));

    const struct object *o = kit_get(&k, "a-1"), *a = kit_get(&k, "a");
    assert_string_equal(env_of(o, "HANSE_ARRAY_INDEX"), "1");
    assert_string_equal(env_of(o, "HANSE_ARRAY_COUNT"), "4");
    assert_string_equal(label_get(o->meta->labels, o->meta->n_labels, LABEL_ARRAY), "a");
    assert_string_equal(label_get(o->meta->labels, o->meta->n_labels, LABEL_ARRAY_INDEX), "1");
    assert_true(o->meta->n_ownerReferences == 1 && o->meta->ownerReferences[0].controller);
    assert_string_equal(o->meta->ownerReferences[0].uid, a->meta->uid);
    assert_null(object_as(o, workload)->spec->array);

    run_index(&k, "a-1", 1, 0);
    sets_are(&k, "a", "0", "1", "");
    all_slices(&k);
    sets_are(&k, "a", "0,2", "1", "");
    run_index(&k, "a-0", 1, 7); /* a retry of its own */
    sets_are(&k, "a", "0,2", "1", "");
    kit_reload(&k);
    run_index(&k, "a-0", 2, 7);
    sets_are(&k, "a", "2", "1", "0");
    all_slices(&k);
    run_index(&k, "a-2", 1, 0);
    assert_int_equal(status_of(&k, "a")->phase, PHASE_RUNNING);
    run_index(&k, "a-3", 1, 0);
    sets_are(&k, "a", "", "1-3", "0");
    const struct workload_status *s = status_of(&k, "a");
    assert_int_equal(s->phase, PHASE_FAILED);
    assert_string_equal(s->reason, "IndexesFailed");
    assert_string_equal(s->message, "1 of 4 indexes failed: 0");
    assert_true(s->succeeded == 3 && s->failed == 1 && s->active == 0 && s->endedAt == k.now);
    assert_null(root_array_due(k.root, "", ""));
    assert_int_equal(slice_of(&k, "a", 64).code, E_STALE);
    kit_end(&k);
}

static void test_all_succeed(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(array_make(&k, "a", 2, 0).code, 0);
    all_slices(&k);
    run_index(&k, "a-0", 1, 0);
    run_index(&k, "a-1", 1, 0);
    assert_int_equal(status_of(&k, "a")->phase, PHASE_SUCCEEDED);
    assert_string_equal(status_of(&k, "a")->completedIndexes, "0-1");
    kit_end(&k);
}

/* It never holds a place or a run itself. */
static void test_never_itself(void **state)
{
    struct kit k;
    struct migration *m;

    (void)state;
    begin(&k);
    assert_int_equal(array_make(&k, "a", 2, 1).code, 0);
    assert_int_equal(kit_place(&k, "a", "fra.n0", 0, 1, 1).code, E_STALE);
    all_slices(&k);
    assert_int_equal(kit_place(&k, "a", "fra.n0", 0, 1, 1).code, E_STALE);
    assert_int_equal(kit_run(&k, "a", 0, 0, STEP_STOP).code, E_STALE);
    assert_int_equal(kit_run(&k, "a", 0, 0, STEP_FENCED).code, E_STALE);
    m = arena_new(k.a, struct migration);
    m->spec = arena_new(k.a, struct migration_spec);
    m->spec->workload = "a";
    struct result r = kit_create(&k, KIND_MIGRATION, k.ns, "m", m);
    assert_int_equal(r.code, E_CONFLICT);
    assert_non_null(strstr(r.text, "array"));
    kit_end(&k);
}

/* Deleted or archived, an index counts as it ended, and is never begun again. */
static void test_index_goes(void **state)
{
    struct kit k;
    struct write_op op;
    union command c = {.remove = {.head = {.type = CMD_REMOVE}, .ops = &op, .n = 1}};

    (void)state;
    begin(&k);
    assert_int_equal(array_make(&k, "a", 5, 2).code, 0);
    all_slices(&k);
    run_index(&k, "a-0", 1, 0);
    kit_op(&op, WRITE_DELETE, KIND_WORKLOAD, k.ns, "a-0", NULL);
    assert_int_equal(kit_apply(&k, &c).code, 0);
    assert_null(kit_get(&k, "a-0"));
    sets_are(&k, "a", "1", "0", "");

    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "a-1").code,
                     0); /* it waits: gone at once */
    assert_null(kit_get(&k, "a-1"));
    sets_are(&k, "a", "", "0", "1");
    all_slices(&k);
    sets_are(&k, "a", "2-3", "0", "1");

    assert_int_equal(kit_place(&k, "a-2", "fra.n0", 0, 1, 1).code, 0); /* it runs: once stopped */
    assert_int_equal(dispatch(&k, "a-2", 1).code, 0);
    assert_int_equal(kit_run(&k, "a-2", 1, 1, STEP_RUNNING).code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "a-2").code, 0);
    sets_are(&k, "a", "2-3", "0", "1");
    assert_int_equal(kit_run(&k, "a-2", 1, 1, STEP_STOP).code, 0);
    assert_int_equal(kit_run(&k, "a-2", 1, 1, STEP_ENDED).code, 0);
    assert_null(kit_get(&k, "a-2"));
    sets_are(&k, "a", "3", "0", "1-2");
    all_slices(&k);
    sets_are(&k, "a", "3-4", "0", "1-2");
    kit_reload(&k);
    run_index(&k, "a-3", 1, 0);
    run_index(&k, "a-4", 1, 0);
    assert_int_equal(status_of(&k, "a")->phase, PHASE_FAILED);
    assert_null(kit_get(&k, "a-1"));
    kit_end(&k);
}

static void collect_all(struct kit *k)
{
    union command c = {
        .collect = {.head = {.type = CMD_COLLECT}, .objects = 256, .bytes = 1 << 20}};

    while (root_collect_due(k->root))
        assert_int_equal(kit_apply(k, &c).code, 0);
}

/* Its deletion reaches its indexes; one made again under its name waits for the names. */
static void test_deleted(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(array_make(&k, "a", 3, 2).code, 0);
    all_slices(&k);
    assert_int_equal(kit_place(&k, "a-0", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(dispatch(&k, "a-0", 1).code, 0);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "a").code, 0);
    assert_null(kit_get(&k, "a"));
    collect_all(&k);
    assert_null(kit_get(&k, "a-1"));
    assert_true(kit_get(&k, "a-0")->meta->deletionTimestamp);

    assert_int_equal(array_make(&k, "a", 3, 2).code, 0);
    all_slices(&k);
    sets_are(&k, "a", "", "", "");
    assert_string_equal(status_of(&k, "a")->reason, "IndexNameTaken");
    assert_int_equal(kit_run(&k, "a-0", 1, 1, STEP_STOP).code, 0);
    assert_int_equal(kit_run(&k, "a-0", 1, 1, STEP_ENDED).code, 0);
    assert_null(kit_get(&k, "a-0"));
    all_slices(&k);
    sets_are(&k, "a", "0-1", "", "");
    assert_string_equal(status_of(&k, "a")->reason, "");
    kit_end(&k);
}

static struct result change(struct kit *k, const char *name, bool suspend, int64_t parallelism,
                            const char *script)
{
    struct workload *w = object_edit_as(kit_get(k, name), workload, k->a);

    w->spec->suspend = suspend;
    w->spec->array->parallelism = parallelism;
    w->spec->run->script = script;
    return kit_update(k, KIND_WORKLOAD, k->ns, name, w, 0, false);
}

static bool held(struct kit *k, const char *name)
{
    return object_as(kit_get(k, name), workload)->spec->suspend;
}

static void test_suspend_and_edit(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(array_make(&k, "a", 200, 100).code, 0);
    assert_int_equal(change(&k, "a", false, 100, "false").code, 0); /* nothing was begun yet */
    assert_int_equal(slice_of(&k, "a", 64).code, 0);
    sets_are(&k, "a", "0-63", "", ""); /* a slice at a time */
    struct result r = change(&k, "a", false, 100, "true");
    assert_int_equal(r.code, E_INVALID);
    assert_string_equal(r.field, "spec.run");
    all_slices(&k);
    sets_are(&k, "a", "0-99", "", "");

    assert_int_equal(change(&k, "a", true, 120, "false").code, 0);
    assert_int_equal(slice_of(&k, "a", 64).code, 0);
    assert_true(held(&k, "a-63") && !held(&k, "a-64"));
    kit_reload(&k);
    all_slices(&k);
    assert_true(held(&k, "a-99"));
    sets_are(&k, "a", "0-99", "", "");
    assert_string_equal(status_of(&k, "a")->reason, "Suspended");
    assert_int_equal(change(&k, "a", false, 120, "false").code, 0);
    all_slices(&k);
    assert_false(held(&k, "a-0"));
    sets_are(&k, "a", "0-119", "", "");
    assert_string_equal(status_of(&k, "a")->reason, "");

    struct workload *w = object_edit_as(kit_get(&k, "a"), workload, k.a);
    w->spec->array->count = 300;
    r = kit_update(&k, KIND_WORKLOAD, k.ns, "a", w, 0, false);
    assert_int_equal(r.code, E_INVALID);
    assert_string_equal(r.field, "spec.array.count");
    w->spec->array = NULL;
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, k.ns, "a", w, 0, false).code, E_INVALID);
    kit_end(&k);
}

/* However many there are, few are there at once; and the rest fail with the deadline. */
static void test_bounds(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(array_make(&k, "a", 100000, 0).code, 0);
    all_slices(&k);
    sets_are(&k, "a", "0-999", "", "");
    assert_int_equal(slice_of(&k, "a", 0).code, E_INVALID);
    assert_int_equal(slice_of(&k, "a", ARRAY_MAX_OBJECTS + 1).code, E_INVALID);
    assert_int_equal(change(&k, "a", false, 2, "true").code, 0); /* lowered: none is ended for it */
    assert_null(root_array_due(k.root, "", ""));
    kit_end(&k);
}

static void test_deadline(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(array_make(&k, "a", 100000, 2).code, 0);
    struct workload *w = object_edit_as(kit_get(&k, "a"), workload, k.a);
    w->spec->deadline = k.now + 1000;
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, k.ns, "a", w, 0, false).code, 0);
    all_slices(&k);
    k.now += 2000;
    run_index(&k, "a-0", 1, 0);
    all_slices(&k);
    sets_are(&k, "a", "1", "0", "2-99999");
    assert_int_equal(kit_run(&k, "a-1", 0, 0, STEP_STOP).code, 0);
    assert_int_equal(status_of(&k, "a")->phase, PHASE_FAILED);
    assert_string_equal(status_of(&k, "a")->reason, "DeadlineExceeded");
    kit_end(&k);
}

/* Finished ones leave for the archive by their own time, or as the array goes on. */
static void test_retention(void **state)
{
    struct kit k;
    struct archive_cursor at = {0};
    struct write_op ops[8];
    size_t n = 0;

    (void)state;
    begin(&k);
    assert_int_equal(array_make(&k, "a", 2, 2).code, 0);
    all_slices(&k);
    run_index(&k, "a-0", 1, 0);
    run_index(&k, "a-1", 1, 1);
    (void)root_archive_due(k.root, k.now + 3600 * 1000 - 1, &at, 10000, ops, 8, &n);
    assert_int_equal(n, 0);
    at = (struct archive_cursor){0};
    (void)root_archive_due(k.root, k.now + 3600 * 1000, &at, 10000, ops, 8, &n);
    assert_int_equal(n, 1); /* what failed is looked at for a week */
    assert_string_equal(ops[0].name, "a-0");
    kit_end(&k);
}

/* Its newest indexes are far ahead of the first: that leaves at once. So many failed that no more
 * are begun. */
static void test_too_many_fail(void **state)
{
    struct kit k;
    struct archive_cursor at = {0};
    struct write_op op;
    size_t n = 0;

    (void)state;
    begin(&k);
    assert_int_equal(array_make(&k, "a", 100000, 0).code, 0);
    all_slices(&k);
    run_index(&k, "a-0", 1, 0);
    for (int i = 1; i <= LIMIT_ARRAY_FAILED_MAX; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "a-%d", i);
        if (!kit_get(&k, name))
            all_slices(&k);
        assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, name).code, 0);
        arena_reset(k.a);
        if (i == 500) { /* as long as fewer than LIMIT_ARRAY_KEPT were begun behind it, it stays */
            (void)root_archive_due(k.root, k.now, &at, 100000, &op, 1, &n);
            assert_int_equal(n, 0);
            at = (struct archive_cursor){0};
        }
    }
    (void)root_archive_due(k.root, k.now, &at, 100000, &op, 1, &n);
    assert_int_equal(n, 1);
    assert_string_equal(op.name, "a-0");
    all_slices(&k);
    const struct workload_status *s = status_of(&k, "a");
    assert_string_equal(s->reason, "TooManyFailures");
    assert_true(s->begun == 100000 && s->phase == PHASE_RUNNING && s->active > 0);
    assert_int_equal(s->active + s->failed + s->succeeded, 100000);
    assert_null(root_array_due(k.root, "", ""));
    kit_end(&k);
}

static void went_back(struct kit *k)
{
    union command c = {.recover = {.head = {.type = CMD_RECOVER}, .step = RECOVER_BEGIN}};

    (void)snprintf(c.recover.cluster_uid, sizeof c.recover.cluster_uid, "cluster-1.2");
    c.recover.rv = root_rv(k->root) + RECOVER_RV_JUMP;
    assert_int_equal(kit_apply(k, &c).code, 0);
}

/* A run of an index that this state has not begun, as its target carries it. */
static struct result adopt(struct kit *k, const struct object *told, bool ended)
{
    union command c = {.recover = {.head = {.type = CMD_RECOVER, .user = "admin"},
                                   .step = RECOVER_ADOPT,
                                   .epoch = 1,
                                   .try_ = 1,
                                   .ended = ended,
                                   .proof = PROOF_TREE_GONE}};
    struct write_op op = {.verb = WRITE_CREATE, .kind = KIND_WORKLOAD};

    str_copy(c.recover.uid, sizeof c.recover.uid, told->meta->uid);
    str_copy(op.ns, sizeof op.ns, told->meta->namespace_);
    str_copy(op.name, sizeof op.name, told->meta->name);
    op.object = (struct object *)(uintptr_t)told;
    c.recover.ops = &op;
    c.recover.n = 1;
    return kit_apply(k, &c);
}

/* A state that went back to before its third and fourth index were begun: nothing is begun until it
 * is known what runs, what is found belongs to it again, and none is begun beside it. */
static void test_recovered(void **state)
{
    struct kit k;
    struct object *told[2];

    (void)state;
    begin(&k);
    assert_int_equal(array_make(&k, "a", 6, 2).code, 0);
    all_slices(&k);
    struct root *backup = root_ref(k.root);
    uint64_t number = k.number, index = k.index;
    run_index(&k, "a-0", 1, 0);
    run_index(&k, "a-1", 1, 0);
    all_slices(&k);
    assert_int_equal(kit_place(&k, "a-2", "fra.n0", 2, 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "a-3", "fra.n0", 3, 1, 1).code, 0);
    assert_int_equal(dispatch(&k, "a-3", 1).code, 0);
    told[0] = object_ref(kit_get(&k, "a-2"));
    told[1] = object_ref(kit_get(&k, "a-3"));
    (void)root_unref(k.root);
    k.root = backup;
    k.number = number;
    k.index = index;

    went_back(&k);
    union command c = {.recover = {.head = {.type = CMD_RECOVER}, .step = RECOVER_LOST}};
    str_copy(c.recover.ns, sizeof c.recover.ns, k.ns);
    (void)snprintf(c.recover.name, sizeof c.recover.name, "a");
    str_copy(c.recover.uid, sizeof c.recover.uid, kit_get(&k, "a")->meta->uid);
    assert_int_equal(kit_apply(&k, &c).code, 0);
    assert_int_equal(status_of(&k, "a")->phase, PHASE_RUNNING);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "a-0").code, 0); /* waits for SETTLE */
    assert_int_equal(slice_of(&k, "a", 64).code, E_BUSY);

    assert_int_equal(adopt(&k, told[1], false).code, 0);
    const struct object *o = kit_get(&k, "a-3");
    assert_true(o->meta->n_ownerReferences == 1);
    assert_string_equal(o->meta->ownerReferences[0].uid, kit_get(&k, "a")->meta->uid);
    sets_are(&k, "a", "0-1,3", "", "");
    assert_int_equal(adopt(&k, told[0], true).code, 0);
    sets_are(&k, "a", "0-1,3", "2", "");

    struct write_op dead = {.verb = WRITE_DELETE, .kind = KIND_TARGET, .name = "fra"};
    union command settled = {
        .recover = {.head = {.type = CMD_RECOVER}, .step = RECOVER_SETTLE, .ops = &dead, .n = 1}};
    assert_int_equal(kit_apply(&k, &settled).code, 0);
    collect_all(&k);
    assert_null(kit_get(&k, "a-0"));
    sets_are(&k, "a", "1,3", "2", "0");
    assert_int_equal(kit_run(&k, "a-1", 0, 0, STEP_STOP).code, 0);
    all_slices(&k);
    sets_are(&k, "a", "3-4", "2", "0-1"); /* 2 and 3 were passed over */
    assert_int_equal(status_of(&k, "a-4")->epochFloor, status_of(&k, "a")->epochFloor);
    assert_true(status_of(&k, "a")->epochFloor >= EPOCH_STEP);
    assert_int_equal(status_of(&k, "a")->begun, 5);
    (void)object_unref(told[0]);
    (void)object_unref(told[1]);
    kit_end(&k);
}

/* Somebody else's Workload of an index's name is no index. */
static void test_not_an_index(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(array_make(&k, "a", 3, 3).code, 0);
    assert_int_equal(kit_workload(&k, k.ns, "a-1", 1, 1).code, 0);
    all_slices(&k);
    sets_are(&k, "a", "0", "", "");
    assert_non_null(strstr(status_of(&k, "a")->message, "a-1"));
    run_index(&k, "a-1", 1, 0);
    sets_are(&k, "a", "0", "", "");
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, k.ns, "a-1").code, 0);
    all_slices(&k);
    sets_are(&k, "a", "0-2", "", "");
    kit_end(&k);
}

static void set_is(const char *text, bool good)
{
    AUTO_ARENA a = arena_create(0);
    struct indexes x;

    assert_int_equal(indexes_read(text, a, &x), good);
    if (good)
        assert_string_equal(indexes_text(&x, a), text);
}

static void test_sets(void **state)
{
    static const char *const bad[] = {"-",   "1-", "1,", ",1",   "1-1", "2-1",  "1,2",    "1-3,4",
                                      "3,1", "01", "1 ", "1--2", "x",   "1,,2", "1234567"};
    AUTO_ARENA a = arena_create(0);
    struct indexes x;
    bool in[200] = {0};
    uint32_t seed = 1;

    (void)state;
    set_is("", true);
    set_is("0", true);
    set_is("0-41,43,99998-99999", true);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        set_is(bad[i], false);
    assert_true(indexes_read("", a, &x));
    for (int n = 0; n < 5000; n++) { /* as a plain table would have it */
        seed = seed * 1664525u + 1013904223u;
        int64_t i = seed >> 8 & 127, to = i + (seed >> 16 & 7);
        struct indexes again;
        int64_t count = 0;

        if (seed >> 24 & 1)
            indexes_add(&x, i, to, a);
        else
            indexes_remove(&x, i, a);
        for (int64_t j = i; j <= (seed >> 24 & 1 ? to : i); j++)
            in[j] = seed >> 24 & 1;
        for (int64_t j = 0; j < 200; j++) {
            assert_int_equal(indexes_end(&x, j) >= 0, in[j]);
            count += in[j];
        }
        assert_int_equal(x.count, count);
        assert_true(indexes_read(indexes_text(&x, a), a, &again) && again.count == count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_to_the_end),   cmocka_unit_test(test_all_succeed),
        cmocka_unit_test(test_never_itself), cmocka_unit_test(test_index_goes),
        cmocka_unit_test(test_deleted),      cmocka_unit_test(test_suspend_and_edit),
        cmocka_unit_test(test_bounds),       cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_retention),    cmocka_unit_test(test_too_many_fail),
        cmocka_unit_test(test_recovered),    cmocka_unit_test(test_not_an_index),
        cmocka_unit_test(test_sets)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
