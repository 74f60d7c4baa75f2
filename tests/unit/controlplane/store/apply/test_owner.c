/* propagationPolicy: an owner goes after its dependents (Foreground), or without them (Orphan), as
 * Kubernetes' garbage collector does it; in slices, and across a snapshot. */
#include "tests/support/store/store_kit.h"

static struct kit k;

static int setup(void **state)
{
    (void)state;
    k = (struct kit){0};
    kit_begin(&k);
    kit_level_set(&k, FEATURE_GRANTS);
    kit_pool(&k, 3, 4);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kit_end(&k);
    return 0;
}

static const struct object *dataset_of(const char *name)
{
    return root_get(k.root, KIND_DATASET, "default", name);
}

static struct owner_ref reference(const struct object *owner, bool blocks)
{
    return (struct owner_ref){.apiVersion = kind_api_version(owner->kind),
                              .kind = owner->kind->kind,
                              .name = arena_strdup(k.a, owner->meta->name),
                              .uid = arena_strdup(k.a, owner->meta->uid),
                              .blockOwnerDeletion = blocks};
}

/* Owners are objects that there are; held: it has a finalizer of somebody else. */
static void made(const char *name, const struct object *const *owners, uint32_t n, bool blocks,
                 bool held)
{
    static const char *const finalizers[] = {"x.dev/y"};
    struct dataset *d = arena_new(k.a, struct dataset);
    struct write_op op;

    d->spec = arena_new(k.a, struct dataset_spec);
    d->metadata = kit_meta(&k, "default", name);
    d->metadata->ownerReferences = arena_array(k.a, struct owner_ref, n + 1);
    d->metadata->n_ownerReferences = n;
    for (uint32_t i = 0; i < n; i++)
        d->metadata->ownerReferences[i] = reference(owners[i], blocks);
    if (held) {
        d->metadata->finalizers = (const char **)(uintptr_t)finalizers;
        d->metadata->n_finalizers = 1;
    }
    kit_op(&op, WRITE_CREATE, KIND_DATASET, "default", name, d);
    assert_int_equal(kit_write(&k, &op, 1, "", "").code, 0);
}

static void child(const char *name, const char *owner, bool blocks, bool held)
{
    const struct object *o = dataset_of(owner);

    made(name, &o, 1, blocks, held);
}

static void deleted(enum kind_id kind, const char *name, enum propagation how)
{
    struct write_op op;

    kit_op(&op, WRITE_DELETE, kind, "default", name, NULL);
    op.propagation = how;
    assert_int_equal(kit_write(&k, &op, 1, "", "").code, 0);
}

/* Slices of two objects, with a snapshot read after each. */
static void collected(void)
{
    for (int slices = 0; root_collect_due(k.root); slices++) {
        union command c = {
            .collect = {.head = {.type = CMD_COLLECT}, .objects = 2, .bytes = 1 << 20}};

        assert_true(slices < 100);
        assert_int_equal(kit_apply(&k, &c).code, 0);
        kit_reload(&k);
    }
}

static void released(const char *name)
{
    struct dataset *d = object_edit_as(dataset_of(name), dataset, k.a);

    d->metadata->n_finalizers = 0;
    assert_int_equal(kit_update(&k, KIND_DATASET, "default", name, d, 0, false).code, 0);
}

static void test_foreground_waits_for_what_blocks(void **state)
{
    (void)state;
    made("owner", NULL, 0, false, false);
    child("a", "owner", true, false);
    child("b", "owner", true, true);
    child("c", "owner", false, true);
    child("of-a", "a", true, true);
    deleted(KIND_DATASET, "owner", PROPAGATE_FOREGROUND);
    assert_true(dataset_of("owner")->meta->deletionTimestamp != 0);
    assert_string_equal(dataset_of("owner")->meta->finalizers[0], "foregroundDeletion");
    assert_int_equal(dataset_of("a")->meta->deletionTimestamp, 0);
    collected();
    for (int i = 0; i < 4; i++) /* each is told to go, and stays for a reason */
        assert_true(
            dataset_of((const char *[]){"a", "b", "c", "of-a"}[i])->meta->deletionTimestamp);
    released("b");
    collected();
    assert_null(dataset_of("b"));
    assert_non_null(dataset_of("owner")); /* a blocks, which waits for its own */
    released("of-a");
    collected();
    assert_null(dataset_of("of-a"));
    assert_null(dataset_of("a"));
    assert_null(dataset_of("owner")); /* c says not that it blocks */
    assert_non_null(dataset_of("c"));
    released("c");
    collected();
    assert_null(dataset_of("c"));
    assert_int_equal(tree_count(k.root->dead), 0);
}

static void test_one_that_comes_later_is_told_too(void **state)
{
    (void)state;
    made("owner", NULL, 0, false, false);
    child("a", "owner", true, true);
    deleted(KIND_DATASET, "owner", PROPAGATE_FOREGROUND);
    collected();
    child("late", "owner", true, true);
    released("a");
    collected();
    assert_true(dataset_of("late")->meta->deletionTimestamp != 0);
    assert_non_null(dataset_of("owner"));
    released("late");
    collected();
    assert_null(dataset_of("owner"));
}

static void test_orphans_stay_without_the_reference(void **state)
{
    (void)state;
    made("owner", NULL, 0, false, false);
    for (int i = 0; i < 5; i++)
        child(arena_printf(k.a, "c%d", i), "owner", true, false);
    deleted(KIND_DATASET, "owner", PROPAGATE_ORPHAN);
    assert_string_equal(dataset_of("owner")->meta->finalizers[0], "orphan");
    collected();
    assert_null(dataset_of("owner"));
    for (int i = 0; i < 5; i++)
        assert_int_equal(dataset_of(arena_printf(k.a, "c%d", i))->meta->n_ownerReferences, 0);
    assert_int_equal(tree_count(k.root->dead), 0);
}

static void test_another_owner_keeps_it(void **state)
{
    (void)state;
    made("one", NULL, 0, false, false);
    made("two", NULL, 0, false, false);
    const struct object *both[] = {dataset_of("one"), dataset_of("two")};
    made("child", both, 2, true, false);
    deleted(KIND_DATASET, "one", PROPAGATE_FOREGROUND);
    collected();
    assert_null(dataset_of("one"));
    assert_int_equal(dataset_of("child")->meta->n_ownerReferences, 1);
    assert_int_equal(dataset_of("child")->meta->deletionTimestamp, 0);
    deleted(KIND_DATASET, "two", PROPAGATE_FOREGROUND);
    collected();
    assert_null(dataset_of("two"));
    assert_null(dataset_of("child"));
}

/* Each would wait for the other, and for ever. */
static void test_a_circle_goes(void **state)
{
    (void)state;
    made("one", NULL, 0, false, false);
    child("two", "one", true, false);
    struct dataset *d = object_edit_as(dataset_of("one"), dataset, k.a);
    d->metadata->ownerReferences = arena_array(k.a, struct owner_ref, 2);
    d->metadata->ownerReferences[0] = reference(dataset_of("two"), true);
    d->metadata->ownerReferences[1] = reference(dataset_of("one"), true);
    d->metadata->n_ownerReferences = 2;
    assert_int_equal(kit_update(&k, KIND_DATASET, "default", "one", d, 0, false).code, 0);
    deleted(KIND_DATASET, "one", PROPAGATE_FOREGROUND);
    collected();
    assert_null(dataset_of("one"));
    assert_null(dataset_of("two"));
    assert_int_equal(tree_count(k.root->dead), 0);
}

static void test_the_user_changes_his_mind(void **state)
{
    (void)state;
    made("owner", NULL, 0, false, false);
    child("a", "owner", true, true);
    deleted(KIND_DATASET, "owner", PROPAGATE_FOREGROUND);
    collected();
    deleted(KIND_DATASET, "owner", PROPAGATE_BACKGROUND);
    assert_null(dataset_of("owner"));
    collected();
    released("a");
    collected();
    assert_null(dataset_of("a"));
    assert_int_equal(tree_count(k.root->dead), 0);
}

/* Seen: it stayed for ever, since nobody had begun to look at it. */
static void test_no_new_finalizer_while_it_goes(void **state)
{
    static const char *const more[] = {"x.dev/y", "foregroundDeletion"};
    struct dataset *d;

    (void)state;
    made("owner", NULL, 0, false, true);
    deleted(KIND_DATASET, "owner", PROPAGATE_DEFAULT);
    d = object_edit_as(dataset_of("owner"), dataset, k.a);
    d->metadata->finalizers = (const char **)(uintptr_t)more;
    d->metadata->n_finalizers = 2;
    struct result r = kit_update(&k, KIND_DATASET, "default", "owner", d, 0, false);
    assert_int_equal(r.code, E_INVALID);
    assert_non_null(strstr(r.text, "foregroundDeletion"));
    d->metadata->n_finalizers = 1; /* those that it has may stay */
    assert_int_equal(kit_update(&k, KIND_DATASET, "default", "owner", d, 0, false).code, 0);
    released("owner");
    assert_null(dataset_of("owner"));
}

static void test_no_finalizer_leaves_an_index_behind(void **state)
{
    static const char *const orphan[] = {"orphan"};
    struct workload *w;

    (void)state;
    assert_int_equal(kit_workload(&k, "default", "w", 1, 1).code, 0);
    w = object_edit_as(kit_get(&k, "w"), workload, k.a);
    w->metadata->finalizers = (const char **)(uintptr_t)orphan;
    w->metadata->n_finalizers = 1;
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, "default", "w", w, 0, false).code, E_INVALID);
}

/* Its Decision explains it as long as it runs. */
static void test_live_work_ends_before_its_dependents_go(void **state)
{
    (void)state;
    assert_int_equal(kit_workload(&k, "default", "w", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    size_t decisions = root_count(k.root, KIND_DECISION);
    assert_true(decisions > 0);
    deleted(KIND_WORKLOAD, "w", PROPAGATE_FOREGROUND);
    collected();
    assert_int_equal(root_count(k.root, KIND_DECISION), decisions);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ABSENT).code, 0);
    collected();
    assert_null(kit_get(&k, "w"));
    assert_int_equal(root_count(k.root, KIND_DECISION), 0);
    assert_int_equal(tree_count(k.root->dead), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {T(test_foreground_waits_for_what_blocks),
                                       T(test_one_that_comes_later_is_told_too),
                                       T(test_orphans_stay_without_the_reference),
                                       T(test_another_owner_keeps_it),
                                       T(test_a_circle_goes),
                                       T(test_the_user_changes_his_mind),
                                       T(test_no_new_finalizer_while_it_goes),
                                       T(test_no_finalizer_leaves_an_index_behind),
                                       T(test_live_work_ends_before_its_dependents_go)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
