/* Work that moves and nobody asked: sick nodes, data that arrived, cheaper capacity, a guarantee
 * that is reclaimed, a notice for its machines. A crash at every arrow of each, as test_arrows.c
 * has it for the other causes; and federations from a seed in which prices change all the time.
 *
 *   HANSE_SIM_ARROW="CAUSE PHASE-or-point PARTY"   only this one; HANSE_SIM_TRACE=1 with its trace
 *   HANSE_SIM_SEEDS=n   so many seeds: of each arrow instead of 1, of federations instead of 16
 *   HANSE_SIM_SEED=n, HANSE_SIM_FROM=n   federations: only this seed; from this seed on
 *   HANSE_SIM_BUG=name  federations: with that bug planted in the program */
#include "tests/sim/federation/sim_federation.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS 16
#define PLANT_SEEDS 60

static const enum move_cause causes[] = {MOVE_SICK, MOVE_DATA, MOVE_CHEAPER, MOVE_RECLAIM,
                                         MOVE_SPOT};

/* ---- arrows ---- */
static void arrows(enum move_cause cause)
{
    if (getenv("HANSE_SIM_SEED") || getenv("HANSE_SIM_FROM"))
        skip();
    assert_int_equal(fed_arrow_all(cause, 1), 0);
}
static void test_sick(void **state)
{
    (void)state;
    arrows(causes[0]);
}
static void test_data(void **state)
{
    (void)state;
    arrows(causes[1]);
}
static void test_cheaper(void **state)
{
    (void)state;
    arrows(causes[2]);
}
static void test_reclaim(void **state)
{
    (void)state;
    arrows(causes[3]);
}
static void test_spot(void **state)
{
    (void)state;
    arrows(causes[4]);
}

/* ---- from a seed ---- */
static struct fed_outcome life(uint64_t seed, const char *bug)
{
    return fed_run_apart(
        seed, &(struct fed_script){
                  .steps = true, .moves = true, .rooms = true, .causes = true, .bug = bug});
}
static void test_seeds(void **state)
{
    uint64_t only = fed_number("HANSE_SIM_SEED", 0), n = fed_number("HANSE_SIM_SEEDS", SEEDS),
             from = only ? only : fed_number("HANSE_SIM_FROM", 1);
    unsigned failed = 0, sum[MOVE_RECLAIM + 1] = {0}, gains = 0, workloads = 0;

    (void)state;
    if (getenv("HANSE_SIM_ARROW"))
        skip();
    for (uint64_t seed = from; seed < from + (only ? 1 : n); seed++) {
        struct fed_outcome o = life(seed, getenv("HANSE_SIM_BUG"));
        failed += fed_tell(seed, &o, "sim_causes");
        for (int c = MOVE_PREEMPTION; c <= MOVE_RECLAIM; c++)
            sum[c] += o.causes[c];
        gains += o.gains;
        workloads += o.workloads;
    }
    print_message("%u workloads, %u moves for gain;", workloads, gains);
    for (int c = MOVE_PREEMPTION; c <= MOVE_RECLAIM; c++)
        print_message(" %s %u", move_cause_text((enum move_cause)c), sum[c]);
    print_message("\n");
    assert_int_equal(failed, 0);
    for (size_t i = 0; i < sizeof causes / sizeof *causes && !only && n >= SEEDS; i++)
        if (!sum[causes[i]])
            fail_msg("no seed has a migration because of %s", move_cause_text(causes[i]));
}
/* What would make work go to and fro. */
static void test_planted(void **state)
{
    static const char *const planted[] = {"policy.restless", "policy.any-saving"};
    unsigned unseen = 0;

    (void)state;
    if (getenv("HANSE_SIM_SEED") || getenv("HANSE_SIM_FROM") || getenv("HANSE_SIM_ARROW"))
        skip();
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        struct fed_outcome o = {0};
        uint64_t seed = 0;

        bool seen = false;
        while (!seen && seed < PLANT_SEEDS) {
            o = life(++seed, planted[i]);
            seen = !strncmp(o.failed, "M7", 2);
        }
        unseen += !seen;
        print_message("planted %s: seed %llu: %s%s\n", planted[i], (unsigned long long)seed,
                      *o.failed ? o.failed : "NOT SEEN", seen ? "" : " (BY ANOTHER CHECK)");
    }
    assert_int_equal(unseen, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sick),    cmocka_unit_test(test_data), cmocka_unit_test(test_cheaper),
        cmocka_unit_test(test_reclaim), cmocka_unit_test(test_spot), cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_planted)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
