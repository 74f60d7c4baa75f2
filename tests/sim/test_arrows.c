/* A crash at every arrow of a move: each cause (test_causes.c has the others), each phase and
 * failpoint, each party.
 *
 *   HANSE_SIM_ARROW="CAUSE PHASE-or-point PARTY"   only this one; HANSE_SIM_TRACE=1 with its trace
 *   HANSE_SIM_SEEDS=n   so many seeds of each instead of 2 */
#include "tests/sim/federation/sim_federation.h"
#include "tests/support/unit.h"

static const enum move_cause causes[] = {MOVE_ASKED,      MOVE_DRAIN,      MOVE_PREEMPTION,
                                         MOVE_COMPLIANCE, MOVE_REPATRIATE, MOVE_LOST};

static void all_of(enum move_cause cause)
{
    assert_int_equal(fed_arrow_all(cause, 2), 0);
}

static void test_asked(void **state)
{
    (void)state;
    all_of(causes[0]);
}
static void test_drain(void **state)
{
    (void)state;
    all_of(causes[1]);
}
static void test_preemption(void **state)
{
    (void)state;
    all_of(causes[2]);
}
static void test_compliance(void **state)
{
    (void)state;
    all_of(causes[3]);
}
static void test_repatriate(void **state)
{
    (void)state;
    all_of(causes[4]);
}
static void test_lost(void **state)
{
    (void)state;
    all_of(causes[5]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asked),      cmocka_unit_test(test_drain),
        cmocka_unit_test(test_preemption), cmocka_unit_test(test_compliance),
        cmocka_unit_test(test_repatriate), cmocka_unit_test(test_lost)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
