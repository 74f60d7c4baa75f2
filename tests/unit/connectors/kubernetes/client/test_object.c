/* What an API server sent is read member by member; what is missing, or of another type, is as if
 * it were not there. */
#include "connectors/kubernetes/client/client.h"
#include "tests/support/unit.h"

#include <string.h>

static cJSON *parsed(const char *text)
{
    cJSON *o = cJSON_Parse(text);

    assert_non_null(o);
    return o;
}

static void reads_members(void **state)
{
    cJSON *o = parsed("{\"metadata\":{\"name\":\"n1\",\"labels\":{\"a.b/c\":\"x\",\"a\":\"y\"},"
                      "\"annotations\":{\"k.v/w\":\"z\"},\"deletionTimestamp\":"
                      "\"2026-11-28T02:00:00Z\"},\"spec\":{\"n\":3}}");

    (void)state;
    assert_string_equal(kube_text(o, "metadata.name"), "n1");
    assert_string_equal(kube_label(o, "a.b/c"), "x");
    assert_string_equal(kube_label(o, "a"), "y");
    assert_string_equal(kube_label(o, "a.b"), "");
    assert_string_equal(kube_annotation(o, "k.v/w"), "z");
    assert_true(kube_deleting(o));
    assert_true(cJSON_IsNumber(kube_at(o, "spec.n")));
    assert_ptr_equal(kube_at(o, ""), o);
    cJSON_Delete(o);
}

static void wrong_types_are_absent(void **state)
{
    cJSON *o = parsed("{\"metadata\":[{\"name\":\"n1\"}],\"spec\":{\"n\":3,\"m\":null,"
                      "\"text\":\"x\"},\"Spec\":{\"q\":\"r\"}}");

    (void)state;
    assert_string_equal(kube_text(o, "metadata.name"), "");
    assert_string_equal(kube_label(o, "a"), "");
    assert_string_equal(kube_text(o, "spec.n"), "");
    assert_string_equal(kube_text(o, "spec.m"), "");
    assert_string_equal(kube_text(o, "spec"), "");
    assert_string_equal(kube_text(o, "spec.text.more"), "");
    assert_string_equal(kube_text(o, "spec.q"), ""); /* names are told apart by case */
    assert_string_equal(kube_text(NULL, "spec.q"), "");
    assert_null(kube_at(o, "spec.te"));
    assert_false(kube_deleting(o));
    assert_false(kube_deleting(NULL));
    cJSON_Delete(o);
}

static void reads_times(void **state)
{
    (void)state;
    assert_int_equal(kube_time_ms("1970-01-01T00:00:01Z"), 1000);
    assert_int_equal(kube_time_ms("1970-01-01T01:00:01.250000+01:00"), 1250);
    assert_int_equal(kube_time_ms("null"), 0);
    assert_int_equal(kube_time_ms(""), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_members),
        cmocka_unit_test(wrong_types_are_absent),
        cmocka_unit_test(reads_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
