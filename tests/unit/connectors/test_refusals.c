/* What an error of a target blames, where it says no more than its code. */
#include "connectors/connector.h"
#include "tests/support/unit.h"

static void test_codes(void **state)
{
    static const struct {
        int code;
        enum refusal_class class_;
        enum refusal_scope scope;
    } t[] = {{E_INVALID, REFUSED_INVALID, BLAMES_WORKLOAD},
             {E_NOTIMPL, REFUSED_INVALID, BLAMES_WORKLOAD},
             {E_FORBIDDEN, REFUSED_AUTHORISATION, BLAMES_WORKLOAD},
             {E_UNAUTH, REFUSED_AUTHORISATION, BLAMES_TARGET},
             {E_LIMIT, REFUSED_CAPACITY, BLAMES_TARGET},
             {E_STALE, REFUSED_CONFLICT, BLAMES_WORKLOAD}};

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_int_equal(refusal_of_code(t[i].code).class_, t[i].class_);
        assert_int_equal(refusal_of_code(t[i].code).scope, t[i].scope);
    }
    /* It was not reached, or what went wrong is ours: it refused nothing. */
    assert_int_equal(refusal_of_code(E_UNAVAIL).class_, 0);
    assert_int_equal(refusal_of_code(E_INTERNAL).class_, 0);
    assert_int_equal(refusal_of_code(E_TOOLARGE).class_, 0);
    assert_int_equal(refusal_of_code(0).class_, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
