/* What follows from a deletion or a changed GpuClass, in slices: nothing is lost, no command does
 * more than its slice, and members that replay, or read a snapshot on the way, come to the same. */
#include "tests/support/store/store_kit.h"

static struct result collect(struct kit *k, uint32_t objects, uint64_t bytes)
{
    union command c = {
        .collect = {.head = {.type = CMD_COLLECT}, .objects = objects, .bytes = bytes}};

    return kit_apply(k, &c);
}

/* The state as another member has it, that reads a snapshot now. */
static void dataset(struct kit *k, const char *ns, const char *name, const struct object *owner,
                    size_t bytes)
{
    struct dataset *d = arena_new(k->a, struct dataset);
    struct write_op op;

    d->metadata = kit_meta(k, ns, name);
    d->spec = arena_new(k->a, struct dataset_spec);
    if (owner) {
        struct owner_ref *r = arena_new(k->a, struct owner_ref);

        *r = (struct owner_ref){.apiVersion = kind_api_version(owner->kind),
                                .kind = owner->kind->kind,
                                .name = owner->meta->name,
                                .uid = owner->meta->uid};
        d->metadata->ownerReferences = r;
        d->metadata->n_ownerReferences = 1;
    }
    if (bytes) {
        struct kv *kv = arena_new(k->a, struct kv);
        char *value = arena_alloc(k->a, bytes + 1);

        memset(value, 'x', bytes);
        *kv = (struct kv){"x.dev/large", value};
        d->metadata->annotations = kv;
        d->metadata->n_annotations = 1;
    }
    kit_op(&op, WRITE_CREATE, KIND_DATASET, ns, name, d);
    assert_int_equal(kit_write(k, &op, 1, "", "").code, 0);
    if (bytes)
        arena_reset(k->a);
}

#define LARGE 1400000 /* bytes of a child */
/* Seen: every member aborted, and again at each restart: the arena of one command held a copy of
 * each child. With `level` 0 it is a log of before. */
static void large_owner(uint32_t level, int children)
{
    struct kit k;

    kit_begin(&k);
    if (level)
        kit_level_set(&k, level);
    dataset(&k, "default", "owner", NULL, 0);
    const struct object *owner = root_get(k.root, KIND_DATASET, "default", "owner");
    owner = object_ref(owner);
    for (int i = 0; i < children; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "child%d", i);
        dataset(&k, "default", name, owner, LARGE);
    }
    (void)object_unref(owner);
    assert_int_equal(kit_delete(&k, KIND_DATASET, "default", "owner").code, 0);
    if (level < FEATURE_GRANTS) {
        assert_int_equal(root_count(k.root, KIND_DATASET), 0);
    } else {
        assert_int_equal(root_count(k.root, KIND_DATASET), children);
        assert_true(root_collect_due(k.root));
        for (uint64_t was = (uint64_t)children; was > 0;) {
            assert_int_equal(collect(&k, 4096, 4 << 20).code, 0);
            uint64_t now = root_count(k.root, KIND_DATASET);
            assert_true(was - now >= 1 && was - now <= (4 << 20) / LARGE + 1);
            was = now;
        }
        while (root_collect_due(k.root))
            assert_int_equal(collect(&k, 1, 1).code, 0);
    }
    assert_int_equal(tree_count(k.root->dead), 0);
    k.root = root_unref(k.root);
    k.a = arena_destroy(k.a);
    (void)tree_reap(SIZE_MAX);
}

static void test_large_owner(void **state)
{
    (void)state;
    large_owner(FEATURE_GRANTS, 20);
}

static void test_large_owner_of_an_old_log(void **state)
{
    (void)state;
    large_owner(0, 190);
}

#define MANY 700
static void test_namespace(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_level_set(&k, FEATURE_GRANTS);
    kit_pool(&k, 3, 4);
    assert_int_equal(kit_namespace(&k, "team").code, 0);
    k.ns = "team";
    for (int i = 0; i < MANY; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "d%d", i);
        dataset(&k, "team", name, NULL, 0);
    }
    assert_int_equal(kit_workload(&k, "team", "w", 1, 1).code, 0);
    assert_int_equal(kit_workload(&k, "team", "v", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_delete(&k, KIND_NAMESPACE, "", "team").code, 0);
    assert_non_null(root_get(k.root, KIND_WORKLOAD, "team", "v"));
    assert_int_equal(kit_workload(&k, "team", "x", 1, 1).code, E_FORBIDDEN);

    /* what lives is waited for, and nothing is proposed meanwhile */
    while (root_collect_due(k.root))
        assert_int_equal(collect(&k, 64, COLLECT_MAX_BYTES).code, 0);
    assert_null(root_get(k.root, KIND_WORKLOAD, "team", "v"));
    assert_true(root_get(k.root, KIND_WORKLOAD, "team", "w")->meta->deletionTimestamp != 0);
    assert_int_equal(root_count(k.root, KIND_DATASET), MANY);
    assert_true(collect(&k, 64, COLLECT_MAX_BYTES).unchanged);

    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ABSENT).code, 0);
    assert_null(root_get(k.root, KIND_WORKLOAD, "team", "w"));
    int slices = 0;
    for (uint64_t was = MANY; root_collect_due(k.root); slices++) {
        assert_int_equal(collect(&k, 64, COLLECT_MAX_BYTES).code, 0);
        uint64_t now = root_count(k.root, KIND_DATASET);
        assert_true(was - now <= 64);
        was = now;
        if (slices % 4 == 0)
            kit_reload(&k);
    }
    assert_true(slices >= MANY / 64);
    assert_null(root_get(k.root, KIND_NAMESPACE, "", "team"));
    assert_int_equal(root_count(k.root, KIND_DECISION), 0);
    assert_int_equal(tree_count(k.root->dead), 0);
    kit_end(&k);
}

/* Contents with finalizers: each that goes wakes the namespace up for a look, not for a walk. */
static void test_namespace_of_finalizers(void **state)
{
    static const char *const finalizers[] = {"x.dev/y"};
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_level_set(&k, FEATURE_GRANTS);
    assert_int_equal(kit_namespace(&k, "team").code, 0);
    for (int i = 0; i < 200; i++) {
        struct dataset *d = arena_new(k.a, struct dataset);

        d->spec = arena_new(k.a, struct dataset_spec);
        struct write_op op;
        const char *name = arena_printf(k.a, "d%03d", i);
        d->metadata = kit_meta(&k, "team", name);
        d->metadata->finalizers = (const char **)(uintptr_t)finalizers;
        d->metadata->n_finalizers = 1;
        kit_op(&op, WRITE_CREATE, KIND_DATASET, "team", name, d);
        assert_int_equal(kit_write(&k, &op, 1, "", "").code, 0);
    }
    assert_int_equal(kit_delete(&k, KIND_NAMESPACE, "", "team").code, 0);
    while (root_collect_due(k.root))
        assert_int_equal(collect(&k, 64, COLLECT_MAX_BYTES).code, 0);
    kit_reload(&k);
    for (int i = 199; i >= 0; i--) {
        const char *name = arena_printf(k.a, "d%03d", i);
        struct dataset *d =
            object_edit_as(root_get(k.root, KIND_DATASET, "team", name), dataset, k.a);

        assert_true(d->metadata->deletionTimestamp != 0);
        d->metadata->n_finalizers = 0;
        assert_int_equal(kit_update(&k, KIND_DATASET, "team", name, d, 0, false).code, 0);
        int slices = 0;
        for (; root_collect_due(k.root); slices++)
            assert_int_equal(collect(&k, 4, COLLECT_MAX_BYTES).code, 0);
        assert_true(slices <= 2);
    }
    assert_null(root_get(k.root, KIND_NAMESPACE, "", "team"));
    kit_end(&k);
}

/* Many owners of nothing: each costs something, too. */
static void test_many_owners(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_level_set(&k, FEATURE_GRANTS);
    for (int i = 0; i < 100; i++) {
        const char *name = arena_printf(k.a, "o%d", i);

        dataset(&k, "default", name, NULL, 0);
        const struct object *o = object_ref(root_get(k.root, KIND_DATASET, "default", name));
        dataset(&k, "default", arena_printf(k.a, "c%d", i), o, 0);
        (void)object_unref(o);
        assert_int_equal(kit_delete(&k, KIND_DATASET, "default", name).code, 0);
        assert_int_equal(kit_delete(&k, KIND_DATASET, "default", arena_printf(k.a, "c%d", i)).code,
                         0);
    }
    assert_int_equal(k.root->dead_due, 100);
    assert_int_equal(collect(&k, 10, COLLECT_MAX_BYTES).code, 0);
    assert_int_equal(k.root->dead_due, 90);
    while (root_collect_due(k.root))
        assert_int_equal(collect(&k, 10, COLLECT_MAX_BYTES).code, 0);
    assert_int_equal(collect(&k, 0, 1).code, E_INVALID);
    assert_int_equal(collect(&k, 1, COLLECT_MAX_BYTES + 1).code, E_INVALID);
    kit_end(&k);
}

static void class_write(struct kit *k, const char *name, const char *alias)
{
    struct gpu_class *c = arena_new(k->a, struct gpu_class);
    const char **aliases = arena_array(k->a, const char *, 1);

    aliases[0] = alias;
    c->spec = arena_new(k->a, struct gpu_class_spec);
    c->spec->memory = (int64_t)80 << 30;
    c->spec->aliases = aliases;
    c->spec->n_aliases = 1;
    assert_int_equal(kit_create(k, KIND_GPU_CLASS, "", name, c).code, 0);
}

static void models_told(struct kit *k, uint32_t nodes)
{
    union command c = {.head = {.type = CMD_FACTS}};
    struct node *n = arena_array(k->a, struct node, nodes);

    (void)snprintf(c.facts.target, sizeof c.facts.target, "fra");
    c.facts.complete = true;
    c.facts.nodes = n;
    c.facts.n = nodes;
    for (uint32_t i = 0; i < nodes; i++) {
        n[i].metadata = arena_new(k->a, struct meta);
        n[i].metadata->name = arena_printf(k->a, "fra.n%u", i);
        n[i].spec = arena_new(k->a, struct node_spec);
        n[i].spec->target = "fra";
        n[i].spec->gpus = arena_array(k->a, struct gpu, 8);
        n[i].spec->n_gpus = 8;
        for (uint32_t g = 0; g < 8; g++)
            n[i].spec->gpus[g] =
                (struct gpu){.index = g, .model = i % 2 ? "MODEL A" : "MODEL B", .class_ = ""};
    }
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static void counts(struct kit *k, const char *class_, int64_t total, int64_t revision)
{
    const struct target_status *s =
        object_as(root_get(k->root, KIND_TARGET, "", "fra"), target)->status;
    int64_t n = 0;

    for (uint32_t i = 0; i < s->n_gpus; i++)
        n += strcmp(s->gpus[i].class_, class_) == 0 ? s->gpus[i].total : 0;
    assert_int_equal(n, total);
    assert_int_equal(s->inventoryRevision, revision);
}

#define NODES 300
static void test_classes(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_level_set(&k, FEATURE_GRANTS);
    kit_pool(&k, 1, 1);
    models_told(&k, NODES);
    counts(&k, "a", 0, 2);
    class_write(&k, "a", "MODEL A");
    assert_int_equal(root_count_of(k.root->class_gpus, key_str("a")), 0);
    assert_true(root_collect_due(k.root));
    assert_int_equal(collect(&k, 101, COLLECT_MAX_BYTES).code, 0);
    int64_t some = root_count_of(k.root->class_gpus, key_str("a"));
    assert_true(some > 0 && some < 100 * 8000);
    counts(&k, "a", 0, 2);
    kit_reload(&k);
    class_write(&k, "b", "MODEL B"); /* begins anew, and forgets nothing */
    int slices = 0;
    for (; root_collect_due(k.root); slices++)
        assert_int_equal(collect(&k, 64, COLLECT_MAX_BYTES).code, 0);
    assert_true(slices >= NODES / 64);
    counts(&k, "a", NODES / 2 * 8, 3);
    counts(&k, "b", NODES / 2 * 8, 3);
    class_write(&k, "c", "MODEL C"); /* nothing is of it: nothing changes */
    uint64_t rv = root_rv(k.root);
    while (root_collect_due(k.root))
        assert_int_equal(collect(&k, 64, COLLECT_MAX_BYTES).code, 0);
    assert_int_equal(root_rv(k.root), rv);
    kit_end(&k);
}

/* As members did it before: in the command itself, with the same outcome. */
static void test_classes_of_an_old_log(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 1);
    models_told(&k, NODES);
    class_write(&k, "a", "MODEL A");
    counts(&k, "a", NODES / 2 * 8, 3);
    assert_false(root_collect_due(k.root));
    kit_end(&k);
}

/* An update that would make an object larger than a snapshot takes is refused, and changes
 * nothing. */
static void test_too_large(void **state)
{
    const size_t most = (size_t)LIMIT_COMMAND_MAX_BYTES - 110;
    struct kit k;

    (void)state;
    kit_begin(&k);
    struct target *t = arena_new(k.a, struct target);
    char *text = arena_alloc(k.a, most + 1);
    t->spec = arena_new(k.a, struct target_spec);
    t->spec->type = TARGET_AGENT;
    assert_int_equal(kit_create(&k, KIND_TARGET, "", "fra", t).code, 0);
    union command c = {.head = {.type = CMD_FACTS}};
    struct node *n = arena_new(k.a, struct node);
    memset(text, 'x', most);
    (void)snprintf(c.facts.target, sizeof c.facts.target, "fra");
    c.facts.nodes = n;
    c.facts.n = 1;
    n->metadata = arena_new(k.a, struct meta);
    n->metadata->name = "fra.n0";
    n->spec = arena_new(k.a, struct node_spec);
    n->spec->target = "fra";
    n->status = arena_new(k.a, struct node_status);
    n->status->reason = text;
    uint64_t rv = root_rv(k.root);
    struct result r = kit_apply(&k, &c);
    assert_int_equal(r.code, E_TOOLARGE);
    assert_non_null(strstr(r.text, "larger than"));
    assert_int_equal(root_rv(k.root), rv);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_owner),
                                       cmocka_unit_test(test_large_owner_of_an_old_log),
                                       cmocka_unit_test(test_namespace),
                                       cmocka_unit_test(test_namespace_of_finalizers),
                                       cmocka_unit_test(test_many_owners),
                                       cmocka_unit_test(test_classes),
                                       cmocka_unit_test(test_classes_of_an_old_log),
                                       cmocka_unit_test(test_too_large)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
