/* Names of checkpoint stores as they are written: one store, one name. And what lies there stays
 * laid out as it was. */
#include <string.h>

#include "api/schema/schema.h"
#include "tests/support/unit.h"

static struct object *workload(const char *store)
{
    struct meta m = {.name = "w", .namespace_ = "default", .uid = "u"};
    struct run_spec run = {.script = "true"};
    struct checkpoint_spec c = {.store = store};
    struct workload_spec spec = {.run = &run, .checkpoint = &c};
    struct workload body = {.metadata = &m, .spec = &spec};

    return object_make(kind_by_id(KIND_WORKLOAD), &body);
}

static struct object *target(const char *store, bool local)
{
    struct meta m = {.name = "t", .uid = "u"};
    const char *v[] = {"s3-fra", store};
    struct target_spec spec = {.type = TARGET_AGENT, .tier = TIER_HUB};
    struct target body = {.metadata = &m, .spec = &spec};

    if (local) {
        spec.localStores = v;
        spec.n_localStores = 2;
    } else {
        spec.stores = v;
        spec.n_stores = 2;
    }
    return object_make(kind_by_id(KIND_TARGET), &body);
}

static void admit(struct object *o, const char *field)
{
    struct err e = {0};

    assert_int_equal(object_admit(NULL, o, &e), field ? E_INVALID : 0);
    if (field)
        assert_string_equal(e.field, field);
    assert_int_equal(object_admit(o, o, &e), 0); /* what is there stays */
    (void)object_unref(o);
}

static void test_names(void **state)
{
    static const char *const good[] = {"/",      "/ck",       "/ck/",  "/ck/a..b/.x",
                                       "s3://b", "s3://b/p/", "s3-fra"};
    static const char *const bad[] = {"//ck",  "/ck//a",    "/ck/../us",   "/ck/.",      "/..",
                                      "s3://", "s3://b//p", "s3://b/../c", "file:/x",    "gs://b/p",
                                      "tmp/x", "/a\nb",     "../x",        "s3://b/\x7f"};

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        admit(workload(good[i]), NULL);
        admit(target(good[i], false), NULL);
        admit(target(good[i], true), NULL);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        admit(workload(bad[i]), "spec.checkpoint.store");
        admit(target(bad[i], false), "spec.stores[1]");
        admit(target(bad[i], true), "spec.localStores[1]");
    }
    admit(workload(""), NULL); /* none */
    admit(target("", true), "spec.localStores[1]");
}

static struct object *logs(const char *store, bool keys)
{
    struct meta m = {.name = "t", .uid = "u"};
    struct secret_ref ref = {.secret = "keys"};
    struct target_logs l = {.store = store, .credentialsFrom = keys ? &ref : NULL};
    struct target_spec spec = {.type = TARGET_AGENT, .tier = TIER_HUB, .logs = &l};
    struct target body = {.metadata = &m, .spec = &spec};

    return object_make(kind_by_id(KIND_TARGET), &body);
}

/* Logs go where somebody can write. */
static void test_logs(void **state)
{
    static const char *const bad[] = {"s3-fra",   "//logs",      "/logs/../us",      "s3://",
                                      "gs://b/p", "s3://bk/pre", "s3://UPPER_case/x"};

    (void)state;
    admit(logs("/logs", false), NULL);
    admit(logs("s3://bucket/p", false), NULL);
    admit(logs("s3://bucket/p", true), NULL);
    admit(logs("/logs", true), "spec.logs.credentialsFrom");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        admit(logs(bad[i], false), "spec.logs.store");
}

/* Its next start could not resume from what the one before has saved. */
static void test_a_layout_stays(void **state)
{
    AUTO_ARENA a = arena_create(0);
    struct object *was = workload("/ck");
    struct workload *w = object_edit_as(was, workload, a);
    struct err e;

    (void)state;
    w->spec->checkpoint->keep = 7;
    struct object *kept = object_make(was->kind, w);
    assert_int_equal(object_validate_update(was, kept, &e), 0);
    w->spec->checkpoint->layout = LAYOUT_SHARED;
    struct object *other = object_make(was->kind, w);
    assert_int_equal(object_validate_update(was, other, &e), E_INVALID);
    assert_string_equal(e.field, "spec.checkpoint.layout");
    (void)object_unref(other);
    (void)object_unref(kept);
    (void)object_unref(was);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_logs),
                                       cmocka_unit_test(test_a_layout_stays)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
