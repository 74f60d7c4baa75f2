/* How many objects of a kind a namespace may have: counted exactly whatever happens to them,
 * refused to users and to nobody else, told in status.used of the quotas that count them. */
#include "tests/support/store/quota_kit.h"

#define WL "count/workloads.hanse.dev"

static const char *name_of(struct kit *k, int i)
{
    return arena_printf(k->a, "w%d", i);
}

static void test_the_eleventh(void **state)
{
    struct kit k;

    (void)state;
    quota_begin(&k);
    quota_make(&k, "objects", WL "=10 secrets=1");
    for (int i = 0; i < 10; i++)
        assert_int_equal(user_workload(&k, name_of(&k, i), 0).code, 0);
    assert_string_equal(quota_used(&k, "objects", WL), "10");
    assert_string_equal(quota_used(&k, "objects", "secrets"), "0");
    struct result r = user_workload(&k, "w10", 0);
    assert_int_equal(r.code, E_FORBIDDEN);
    assert_string_equal(r.text,
                        "workloads.hanse.dev \"w10\" is forbidden: exceeded quota: objects, "
                        "requested: " WL "=1, used: " WL "=10, limited: " WL "=10");
    assert_string_equal(quota_used(&k, "objects", WL), "10");
    assert_int_equal(user_delete(&k, KIND_WORKLOAD, "w3").code, 0);
    assert_string_equal(quota_used(&k, "objects", WL), "9");
    kit_reload(&k);
    assert_int_equal(user_workload(&k, "w10", 0).code, 0);
    assert_int_equal(user_workload(&k, "w11", 0).code, E_FORBIDDEN);
    /* another namespace, another kind, and what Hanse writes itself */
    assert_int_equal(kit_namespace(&k, "team").code, 0);
    k.ns = "team";
    assert_int_equal(user_workload(&k, "w11", 0).code, 0);
    k.ns = "default";
    assert_int_equal(user_create(&k, KIND_SECRET, "a", arena_new(k.a, struct secret)).code, 0);
    assert_int_equal(user_create(&k, KIND_SECRET, "b", arena_new(k.a, struct secret)).code,
                     E_FORBIDDEN);
    assert_int_equal(
        kit_create(&k, KIND_SECRET, "default", "c", arena_new(k.a, struct secret)).code, 0);
    assert_string_equal(quota_used(&k, "objects", "secrets"), "2");
    kit_end(&k);
}

static void test_all_or_nothing(void **state)
{
    struct write_op ops[3];
    struct kit k;

    (void)state;
    quota_begin(&k);
    quota_make(&k, "objects", WL "=2");
    for (int i = 0; i < 3; i++)
        user_op(&k, &ops[i], KIND_WORKLOAD, name_of(&k, i), quota_workload(&k, 0));
    struct result r = user_ops(&k, ops, 3);
    assert_int_equal(r.code, E_FORBIDDEN);
    assert_int_equal(r.op, 2);
    assert_string_equal(quota_used(&k, "objects", WL), "0");
    for (int i = 0; i < 2; i++)
        user_op(&k, &ops[i], KIND_WORKLOAD, name_of(&k, i), quota_workload(&k, 0));
    uint64_t before = root_rv(k.root);
    r = user_ops(&k, ops, 2);
    assert_int_equal(r.code, 0);
    /* its answer tells the version of what was written; the quota's comes behind, once */
    assert_int_equal(r.rv, before + 2);
    assert_int_equal(root_rv(k.root), before + 3);
    kit_end(&k);
}

static void test_finalizers_and_the_namespace(void **state)
{
    static const char *const finalizers[] = {"x.dev/y"};
    struct kit k;

    (void)state;
    quota_begin(&k);
    assert_int_equal(kit_namespace(&k, "team").code, 0);
    k.ns = "team";
    quota_make(&k, "objects", WL "=2 count/resourcequotas=2 resourcequotas=2");
    assert_string_equal(quota_used(&k, "objects", "count/resourcequotas"), "1");
    assert_string_equal(quota_used(&k, "objects", "resourcequotas"), "1");
    assert_int_equal(user_workload(&k, "a", 0).code, 0);
    struct workload *w = object_edit_as(kit_get(&k, "a"), workload, k.a);
    w->metadata->finalizers = (const char **)(uintptr_t)finalizers;
    w->metadata->n_finalizers = 1;
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, "team", "a", w, 0, false).code, 0);
    assert_int_equal(user_delete(&k, KIND_WORKLOAD, "a").code, 0);
    assert_string_equal(quota_used(&k, "objects", WL), "1"); /* it is there still */
    w = object_edit_as(kit_get(&k, "a"), workload, k.a);
    w->metadata->n_finalizers = 0;
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, "team", "a", w, 0, false).code, 0);
    assert_string_equal(quota_used(&k, "objects", WL), "0");
    assert_int_equal(user_workload(&k, "b", 0).code, 0);
    assert_int_equal(kit_delete(&k, KIND_NAMESPACE, "", "team").code, 0);
    for (int i = 0; i < 500 && root_collect_due(k.root); i++) {
        union command c = {
            .collect = {.head = {.type = CMD_COLLECT}, .objects = 2, .bytes = 1 << 20}};

        assert_int_equal(kit_apply(&k, &c).code, 0);
        root_check(k.root);
    }
    assert_null(root_get(k.root, KIND_NAMESPACE, "", "team"));
    assert_int_equal(root_objects(k.root, "team", KIND_WORKLOAD), 0);
    assert_int_equal(root_objects(k.root, "team", KIND_RESOURCE_QUOTA), 0);
    kit_end(&k);
}

static void slices(struct kit *k, const char *name, uint32_t objects)
{
    union command c = {.array = {.head = {.type = CMD_ARRAY}, .objects = objects}};

    str_copy(c.array.ns, sizeof c.array.ns, k->ns);
    str_copy(c.array.name, sizeof c.array.name, name);
    str_copy(c.array.uid, sizeof c.array.uid, kit_get(k, name)->meta->uid);
    assert_int_equal(kit_apply(k, &c).code, 0);
    root_check(k->root);
}

static void test_arrays(void **state)
{
    struct kit k;

    (void)state;
    quota_begin(&k);
    quota_make(&k, "objects", WL "=10");
    assert_int_equal(user_workload(&k, "one", 0).code, 0);
    struct result r = user_workload(&k, "arr", 9);
    assert_int_equal(r.code, E_FORBIDDEN);
    assert_non_null(strstr(r.text, "requested: " WL "=10, used: " WL "=1, limited: " WL "=10"));
    assert_non_null(strstr(r.text, "an array and each index count"));
    assert_int_equal(user_workload(&k, "arr", 8).code, 0);
    assert_string_equal(quota_used(&k, "objects", WL), "10"); /* before the first one is begun */
    assert_int_equal(user_workload(&k, "two", 0).code, E_FORBIDDEN);
    /* grown before it begins, it would not fit, either */
    struct workload *w = object_edit_as(kit_get(&k, "arr"), workload, k.a);
    struct write_op op;
    w->spec->array->count = 9;
    kit_op(&op, WRITE_UPDATE, KIND_WORKLOAD, "default", "arr", w);
    r = user_ops(&k, &op, 1);
    assert_int_equal(r.code, E_FORBIDDEN);
    assert_non_null(strstr(r.text, "requested: " WL "=1, "));
    for (int i = 0; i < 4; i++) {
        slices(&k, "arr", 2);
        assert_string_equal(quota_used(&k, "objects", WL), "10");
    }
    assert_null(root_array_due(k.root, "", ""));
    assert_int_equal(root_count(k.root, KIND_WORKLOAD), 10);
    assert_int_equal(user_delete(&k, KIND_WORKLOAD, "arr-3").code, 0);
    assert_string_equal(quota_used(&k, "objects", WL), "9");
    kit_reload(&k);
    /* one that is deleted begins no more */
    assert_int_equal(user_delete(&k, KIND_WORKLOAD, "one").code, 0);
    assert_int_equal(user_workload(&k, "b", 1).code, 0);
    assert_string_equal(quota_used(&k, "objects", WL), "10");
    assert_int_equal(user_delete(&k, KIND_WORKLOAD, "b").code, 0);
    assert_string_equal(quota_used(&k, "objects", WL), "8");
    kit_end(&k);
}

static void test_what_hanse_makes_is_counted(void **state)
{
    struct kit k;

    (void)state;
    quota_begin(&k);
    quota_make(&k, "objects", "count/events=1 " WL "=1");
    assert_int_equal(user_workload(&k, "a", 0).code, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            kit_create(&k, KIND_EVENT, "default", name_of(&k, i), arena_new(k.a, struct event))
                .code,
            0);
    assert_string_equal(quota_used(&k, "objects", "count/events"), "3");
    assert_int_equal(user_create(&k, KIND_EVENT, "mine", arena_new(k.a, struct event)).code,
                     E_FORBIDDEN);
    /* it runs, is decided about, ends, leaves for the archive: nothing is in its way */
    uint64_t rv = root_rv(k.root);
    assert_int_equal(kit_pending(&k, "a", "NoRoom", 1).code, 0);
    const struct object *q = root_get(k.root, KIND_RESOURCE_QUOTA, "default", "objects");
    assert_true((uint64_t)q->meta->resourceVersion <=
                rv); /* not written for what it does not say */
    struct write_op op;
    kit_op(&op, WRITE_DELETE, KIND_EVENT, "default", "w0", NULL);
    union command c = {.archive = {.head = {.type = CMD_ARCHIVE},
                                   .close_bytes = ARCHIVE_CLOSE_MIN_BYTES,
                                   .close_after_ms = 1000,
                                   .ops = &op,
                                   .n = 1}};
    assert_int_equal(kit_apply(&k, &c).code, 0);
    assert_string_equal(quota_used(&k, "objects", "count/events"), "2");
    kit_end(&k);
}

static void test_the_quota_itself(void **state)
{
    struct kit k;
    struct write_op op;
    struct result r;

    (void)state;
    quota_begin(&k);
    assert_int_equal(user_workload(&k, "a", 0).code, 0);
    quota_make(&k, "objects", WL "=0"); /* made later than what is there: told, nothing is taken */
    assert_string_equal(quota_used(&k, "objects", WL), "1");
    assert_int_equal(user_workload(&k, "b", 0).code, E_FORBIDDEN);
    struct workload *w = object_edit_as(kit_get(&k, "a"), workload, k.a);
    w->spec->suspend = true;
    kit_op(&op, WRITE_UPDATE, KIND_WORKLOAD, "default", "a", w);
    assert_int_equal(user_ops(&k, &op, 1).code, 0);
    /* nobody writes its status by hand */
    struct resource_quota *q = object_edit_as(
        root_get(k.root, KIND_RESOURCE_QUOTA, "default", "objects"), resource_quota, k.a);
    q->status->n_used = 0;
    kit_op(&op, WRITE_UPDATE_STATUS, KIND_RESOURCE_QUOTA, "default", "objects", q);
    assert_int_equal(user_ops(&k, &op, 1).code, 0);
    assert_string_equal(quota_used(&k, "objects", WL), "1");
    q->spec = quota_of(&k, WL "=2 count/events=5")->spec;
    kit_op(&op, WRITE_UPDATE, KIND_RESOURCE_QUOTA, "default", "objects", q);
    assert_int_equal(user_ops(&k, &op, 1).code, 0);
    assert_string_equal(quota_used(&k, "objects", "count/events"), "0");
    assert_int_equal(user_workload(&k, "b", 0).code, 0);
    /* the strictest of several holds */
    quota_make(&k, "tight", "count/workloads=1");
    r = user_workload(&k, "c", 0);
    assert_int_equal(r.code, E_FORBIDDEN);
    quota_make(&k, "x3", "secrets=1");
    for (int i = 4; i <= LIMIT_QUOTAS_MAX; i++)
        quota_make(&k, arena_printf(k.a, "x%d", i), "secrets=1");
    r = user_create(&k, KIND_RESOURCE_QUOTA, "x9", quota_of(&k, "secrets=1"));
    assert_int_equal(r.code, E_FORBIDDEN);
    assert_non_null(strstr(r.text, "at most 8 ResourceQuotas"));
    kit_end(&k);
}

static void test_a_dry_run_is_held_to_it(void **state)
{
    union command c = {.head = {.type = CMD_WRITE, .user = "alice"}};
    struct write_op op;
    struct result r;
    struct root *after = NULL;
    struct kit k;

    (void)state;
    quota_begin(&k);
    quota_make(&k, "objects", WL "=1");
    c.write.ops = &op;
    c.write.n = 1;
    user_op(&k, &op, KIND_WORKLOAD, "a", quota_workload(&k, 0));
    store_try(k.root, k.now, &c, &r, &after);
    assert_int_equal(r.code, 0);
    root_check(after);
    after = root_unref(after);
    assert_string_equal(quota_used(&k, "objects", WL), "0");
    assert_int_equal(user_workload(&k, "b", 0).code, 0);
    store_try(k.root, k.now, &c, &r, &after);
    assert_int_equal(r.code, E_FORBIDDEN);
    (void)root_unref(after);
    op.object = object_unref(op.object);
    kit_end(&k);
}

/* What is refused, or done, for another reason is left to apply. */
static void test_asked_ahead(void **state)
{
    struct write_op op;
    struct err e = {0};
    struct kit k;

    (void)state;
    quota_begin(&k);
    quota_make(&k, "objects", WL "=1");
    assert_int_equal(user_workload(&k, "a", 0).code, 0);
    user_op(&k, &op, KIND_WORKLOAD, "b", quota_workload(&k, 0));
    assert_int_equal(root_quota_over(k.root, &op, &e), E_FORBIDDEN);
    kit_level_set(&k, FEATURE_FOUND); /* members of then refuse nobody */
    assert_int_equal(root_quota_over(k.root, &op, &e), 0);
    kit_level_set(&k, FEATURE_GRANTS);
    op.object = object_unref(op.object);
    user_op(&k, &op, KIND_WORKLOAD, "a", quota_workload(&k, 0)); /* there already */
    assert_int_equal(root_quota_over(k.root, &op, &e), 0);
    op.object = object_unref(op.object);
    struct workload *w = object_edit_as(kit_get(&k, "a"), workload, k.a);
    w->spec->array = arena_new(k.a, struct array_spec);
    w->spec->array->count = 5;
    kit_op(&op, WRITE_UPDATE, KIND_WORKLOAD, "default", "a", w);
    assert_int_equal(root_quota_over(k.root, &op, &e), E_FORBIDDEN);
    assert_non_null(strstr(e.text, "requested: " WL "=5"));
    op.rv = (uint64_t)kit_get(&k, "a")->meta->resourceVersion + 1; /* somebody was faster */
    assert_int_equal(root_quota_over(k.root, &op, &e), 0);
    op.rv--;
    assert_int_equal(root_quota_over(k.root, &op, &e), E_FORBIDDEN);
    str_copy(op.uid, sizeof op.uid, "of-another");
    assert_int_equal(root_quota_over(k.root, &op, &e), 0);
    op.uid[0] = '\0';
    op.verb = WRITE_UPDATE_STATUS;
    assert_int_equal(root_quota_over(k.root, &op, &e), 0);
    op.object = object_unref(op.object);
    kit_op(&op, WRITE_DELETE, KIND_WORKLOAD, "default", "a", NULL);
    assert_int_equal(root_quota_over(k.root, &op, &e), 0);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_eleventh),
                                       cmocka_unit_test(test_all_or_nothing),
                                       cmocka_unit_test(test_finalizers_and_the_namespace),
                                       cmocka_unit_test(test_arrays),
                                       cmocka_unit_test(test_what_hanse_makes_is_counted),
                                       cmocka_unit_test(test_the_quota_itself),
                                       cmocka_unit_test(test_a_dry_run_is_held_to_it),
                                       cmocka_unit_test(test_asked_ahead)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
