/* Arrays as documents: what is refused when they are written, what may change later. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/schema/schema.h"
#include "tests/support/unit.h"

#define NAME63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

struct made {
    struct meta m;
    struct env_var env;
    struct run_spec run;
    struct array_spec array;
    struct workload_spec spec;
    struct workload_status status;
    struct workload w;
};

static struct made *made(const char *name, int64_t count, const char *script, const char *env)
{
    struct made *x = calloc(1, sizeof *x);

    assert_non_null(x);
    x->m = (struct meta){.name = name, .namespace_ = "default", .uid = "u"};
    x->env = (struct env_var){.name = env, .value = "1"};
    x->run = (struct run_spec){.script = script, .env = &x->env, .n_env = *env != 0};
    x->array = (struct array_spec){.count = count};
    x->spec = (struct workload_spec){.run = &x->run, .array = &x->array};
    x->w = (struct workload){.metadata = &x->m, .spec = &x->spec};
    return x;
}

static void admit(struct made *x, const char *field)
{
    struct object *o = object_make(kind_by_id(KIND_WORKLOAD), &x->w);
    struct err e = {0};

    assert_int_equal(object_admit(NULL, o, &e), field ? E_INVALID : 0);
    if (field)
        assert_string_equal(e.field, field);
    assert_int_equal(object_admit(o, o, &e), 0); /* what is there stays */
    (void)object_unref(o);
    free(x);
}

static void test_admitted(void **state)
{
    char *large = calloc(1, 70000);
    struct made *x;

    (void)state;
    assert_non_null(large);
    memset(large, 'x', 69999);
    admit(made("a", 100000, "true", ""), NULL);
    admit(made(NAME63 + 2, 10, "true", ""), NULL);
    admit(made(NAME63 + 2, 11, "true", ""), "metadata.name");
    admit(made("a", 0, "true", ""), "spec.array.count");
    admit(made("a", 2, "true", "HANSE_ARRAY_INDEX"), "spec.run.env");
    admit(made("a", 2, "true", "HANSE_ARRAY_COUNT"), "spec.run.env");
    admit(made("a", 2, large, ""), "spec.run");
    x = made("a", 2, "", "");
    x->run.manifest = slice_make("{}", 2);
    admit(x, "spec.array");
    x = made("a", 2, large, "HANSE_ARRAY_INDEX"); /* of what is none, nothing of that is asked */
    x->spec.array = NULL;
    admit(x, NULL);
    free(large);
}

static int update(struct made *from, struct made *to, struct err *e)
{
    struct object *old, *now;
    int r;

    from->status.begun = 1;
    from->w.status = to->w.status = &from->status;
    old = object_make(kind_by_id(KIND_WORKLOAD), &from->w);
    now = object_make(kind_by_id(KIND_WORKLOAD), &to->w);
    r = array_validate_update(old, now, e);
    (void)object_unref(old);
    (void)object_unref(now);
    return r;
}

static void test_updates(void **state)
{
    struct made *a = made("a", 4, "true", ""), *b = made("a", 4, "true", "");
    struct err e = {0};

    (void)state;
    b->array.parallelism = 3;
    b->spec.suspend = true;
    b->spec.ttlSecondsAfterFinished = 60;
    assert_int_equal(update(a, b, &e), 0);
    b->array.count = 5;
    assert_int_equal(update(a, b, &e), E_INVALID);
    assert_string_equal(e.field, "spec.array.count");
    b->array.count = 4;
    b->spec.priorityClassName = "high";
    assert_int_equal(update(a, b, &e), E_INVALID);
    assert_string_equal(e.field, "spec.priorityClassName");
    b->spec.array = NULL;
    assert_int_equal(update(a, b, &e), E_INVALID);
    assert_string_equal(e.field, "spec.array");
    b->spec.array = &b->array;
    a->status.epoch = 1; /* placed before arrays were known: an ordinary run */
    assert_int_equal(update(a, b, &e), 0);
    free(a);
    free(b);
}

#define OWNER(name_)                                                                               \
    {                                                                                              \
        .apiVersion = "hanse.dev/v1alpha1", .kind = "Workload", .name = name_, .uid = "ua",        \
        .controller = true                                                                         \
    }

static const struct owner_ref owners[] = {
    OWNER("a"),
    {.apiVersion = "v1", .kind = "Secret", .name = "s", .uid = "us"},
    {.apiVersion = "hanse.dev/v1alpha1", .kind = "Workload", .name = "a", .uid = "other"},
    OWNER("b"),
};
static const struct kv told[] = {{LABEL_ARRAY, "a"}, {LABEL_ARRAY_INDEX, "1"}, {"team", "x"}};
static const struct kv other_array[] = {{LABEL_ARRAY, "b"}, {LABEL_ARRAY_INDEX, "1"}};
static const struct kv other_index[] = {{LABEL_ARRAY, "a"}, {LABEL_ARRAY_INDEX, "2"}};

struct told {
    const struct kv *labels;
    uint32_t n_labels;
    const struct owner_ref *owners;
    uint32_t n_owners;
};

static struct object *index_made(const char *name, const struct told *t, const char *class)
{
    struct made *x = made(name, 0, "true", "");

    x->spec.array = NULL;
    x->spec.priorityClassName = class;
    x->m.labels = (struct kv *)(uintptr_t)t->labels;
    x->m.n_labels = t->n_labels;
    x->m.ownerReferences = (struct owner_ref *)(uintptr_t)t->owners;
    x->m.n_ownerReferences = t->n_owners;
    struct object *o = object_make(kind_by_id(KIND_WORKLOAD), &x->w);
    free(x);
    return o;
}

/* What tells whose an index is stays; all else of it may be edited. */
static void test_an_index_stays_its_array_s(void **state)
{
    static const struct {
        const char *name;
        struct told was, is;
        const char *field;
    } cases[] = {
        {"a-1", {told, 3, owners, 1}, {told, 3, owners, 1}, ""},
        {"a-1", {told, 3, owners, 1}, {told, 2, owners, 2}, ""}, /* others come and go */
        {"a-1", {told, 2, owners, 1}, {told, 1, owners, 1}, "metadata.labels." LABEL_ARRAY_INDEX},
        {"a-1", {told, 2, owners, 1}, {told + 1, 1, owners, 1}, "metadata.labels." LABEL_ARRAY},
        {"a-1", {told, 2, owners, 1}, {other_array, 2, owners, 1}, "metadata.labels." LABEL_ARRAY},
        {"a-1",
         {told, 2, owners, 1},
         {other_index, 2, owners, 1},
         "metadata.labels." LABEL_ARRAY_INDEX},
        {"a-1", {told, 2, owners, 1}, {told, 2, NULL, 0}, "metadata.ownerReferences"},
        {"a-1", {told, 2, owners, 1}, {told, 2, owners + 1, 1}, "metadata.ownerReferences"},
        {"a-1", {told, 2, owners, 1}, {told, 2, owners + 2, 1}, "metadata.ownerReferences"},
        /* what an older version let go stays so, or is put back */
        {"a-1", {NULL, 0, owners, 1}, {NULL, 0, owners, 1}, ""},
        {"a-1", {NULL, 0, owners, 1}, {told, 2, owners, 1}, ""},
        {"a-1", {other_array, 2, owners, 1}, {told, 2, owners, 1}, ""},
        {"a-1", {told, 2, NULL, 0}, {told, 2, owners, 1}, ""},
        {"a-1", {told, 2, NULL, 0}, {told, 1, NULL, 0}, "metadata.labels." LABEL_ARRAY_INDEX},
        /* no index: of another name, or of an owner that is no array of it */
        {"b", {told, 2, owners, 1}, {NULL, 0, NULL, 0}, ""},
        {"a-x", {told, 2, owners, 1}, {NULL, 0, NULL, 0}, ""},
        {"a-1", {NULL, 0, owners + 3, 1}, {told, 2, NULL, 0}, ""},
        {"a-2", {told, 2, NULL, 0}, {NULL, 0, NULL, 0}, ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct object *was = index_made(cases[i].name, &cases[i].was, ""),
                      *is = index_made(cases[i].name, &cases[i].is, "high");
        struct err e = {0};

        assert_int_equal(object_admit(was, is, &e), *cases[i].field ? E_INVALID : 0);
        assert_string_equal(e.field, cases[i].field);
        if (e.code)
            assert_non_null(strstr(e.text, "the array instead"));
        assert_int_equal(object_admit(NULL, is, &e), 0); /* made by hand it counts for nothing */
        (void)object_unref(was);
        (void)object_unref(is);
    }
}

static void test_column(void **state)
{
    struct made *a = made("a", 4, "true", "");
    const struct column *c = NULL;
    const struct kind *k = kind_by_id(KIND_WORKLOAD);

    (void)state;
    for (unsigned i = 0; i < k->n_columns; i++)
        if (!strcmp(k->columns[i].name, "INDEXES"))
            c = &k->columns[i];
    assert_non_null(c);
    for (int i = 0; i < 3; i++) {
        AUTO_BUF b = {0};
        struct object *o;

        buf_init(&b, 100);
        a->status.succeeded = i == 1 ? 3 : 0;
        a->w.status = &a->status;
        a->spec.array = i == 2 ? NULL : &a->array;
        o = object_make(kind_by_id(KIND_WORKLOAD), &a->w);
        column_cell(c, o, 0, &b);
        assert_string_equal(b.n ? b.p : "", i == 0 ? "0/4" : i == 1 ? "3/4" : "");
        (void)object_unref(o);
    }
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_admitted), cmocka_unit_test(test_updates),
        cmocka_unit_test(test_an_index_stays_its_array_s), cmocka_unit_test(test_column)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
