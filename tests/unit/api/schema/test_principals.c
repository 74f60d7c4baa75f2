/* The principals of a Target as a document: no row says what cannot be, no two rows stand for the
 * same runs, and what an older version let in stays. */
#include <stdio.h>
#include <string.h>

#include "api/schema/schema.h"
#include "tests/support/unit.h"

static struct object *with(const struct target_principal *rows)
{
    struct meta m = {.name = "t"};
    struct secret_ref key = {.secret = "k"};
    struct target_connection c = {.server = "https://t.example", .credentialsFrom = &key};
    struct target_principal v[4];
    struct target_spec s = {
        .type = TARGET_CALLOUT, .tier = TIER_HUB, .connection = &c, .principals = v};
    struct target t = {.metadata = &m, .spec = &s};

    for (; rows && rows[s.n_principals].name; s.n_principals++)
        v[s.n_principals] = rows[s.n_principals];
    return object_make(kind_by_id(KIND_TARGET), &t);
}

static void says(const struct target_principal *was, const struct target_principal *now,
                 const char *said)
{
    struct object *old = was ? with(was) : NULL, *o = with(now);
    struct err e = {0};
    char text[1024];

    assert_int_equal(object_admit(old, o, &e), said ? E_INVALID : 0);
    (void)snprintf(text, sizeof text, "%s: %s", e.field, e.text);
    if (said && !strstr(text, said))
        fail_msg("it says: %s", text);
    (void)object_unref(o);
    (void)object_unref(old);
}

static const char *a[] = {"a"}, *ab[] = {"a", "b"}, *aa[] = {"a", "a"}, *q[] = {"q"},
                  *r[] = {"r"}, *qr[] = {"q", "r"}, *all[] = {"*"}, *odd[] = {"X Y"},
                  *dotted[] = {"a.b"};

#define ROWS(...) ((const struct target_principal[]){__VA_ARGS__, {.name = NULL}})
#define ROW(who, ns, queue)                                                                        \
    {                                                                                              \
        .name = (who), .namespaces = (ns), .n_namespaces = sizeof(ns) / sizeof *(ns),              \
        .queues = (queue), .n_queues = sizeof(queue) / sizeof *(queue)                             \
    }
#define WHOLE(who, ns)                                                                             \
    {                                                                                              \
        .name = (who), .namespaces = (ns), .n_namespaces = sizeof(ns) / sizeof *(ns)               \
    }
#define REST(who)                                                                                  \
    {                                                                                              \
        .name = (who)                                                                              \
    }

static void test_a_row_says_what_can_be(void **state)
{
    (void)state;
    says(NULL, ROWS(WHOLE("anna", ab), REST("arn:aws:iam::1:role/x")), NULL);
    says(NULL, ROWS(WHOLE("an na", a)), "spec.principals[0].name");
    says(NULL, ROWS(WHOLE("anna\n", a)), "spec.principals[0].name");
    says(NULL, ROWS(REST("bob"), WHOLE("anna", all)), "spec.principals[1].namespaces[0]: \"*\"");
    says(NULL, ROWS(WHOLE("anna", odd)), "spec.principals[0].namespaces[0]");
    says(NULL, ROWS(WHOLE("anna", dotted)), "spec.principals[0].namespaces[0]");
    says(NULL, ROWS(ROW("anna", a, odd)), "spec.principals[0].queues[0]");
    says(NULL, ROWS(WHOLE("anna", aa)), "spec.principals[0]: names \"a\" twice");
}

static void test_no_two_rows_stand_for_the_same(void **state)
{
    (void)state;
    says(NULL, ROWS(WHOLE("anna", a), ROW("bob", ab, q), ROW("carl", a, r)), NULL);
    says(NULL, ROWS(WHOLE("anna", ab), WHOLE("bob", a)),
         "spec.principals[1]: stands for namespace \"a\", which spec.principals[0] does, too");
    says(NULL, ROWS(ROW("anna", a, qr), ROW("bob", ab, q)),
         "spec.principals[1]: stands for namespace \"a\" and Queue \"q\", which");
    says(NULL, ROWS(REST("anna"), WHOLE("bob", a), REST("carl")),
         "spec.principals[2]: has no namespaces, as spec.principals[0] has none");
}

static void test_what_was_let_in_stays(void **state)
{
    const struct target_principal *twice = ROWS(WHOLE("anna", a), WHOLE("bob", a));

    (void)state;
    says(twice, twice, NULL);
    says(twice, ROWS(WHOLE("anna", a)), NULL);
    says(ROWS(WHOLE("anna", a)), twice, "which spec.principals[0] does, too");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_row_says_what_can_be),
        cmocka_unit_test(test_no_two_rows_stand_for_the_same),
        cmocka_unit_test(test_what_was_let_in_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
