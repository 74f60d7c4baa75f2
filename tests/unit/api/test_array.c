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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_admitted),
                                       cmocka_unit_test(test_updates),
                                       cmocka_unit_test(test_column)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
