/* Whole federations from a seed: three members, two rooms, users, and a minute of faults; then
 * quiet. Each seed runs in a process of its own, so that an abort is a failure of that seed, and
 * what a crash of a member leaves behind goes with it.
 *
 *   HANSE_SIM_SEED=n    only this seed, HANSE_SIM_TRACE=1 with its trace
 *   HANSE_SIM_SEEDS=n   so many seeds instead of 100
 *   HANSE_SIM_FROM=n    from this seed on
 *   HANSE_SIM_PLANT=name   with that planted bug of the rooms
 *   HANSE_SIM_BUG=name     with that planted bug of the program */
#include "tests/sim/federation/sim_federation.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 100
#define REPEATED 3

static struct fed_outcome seed_run(uint64_t seed, enum sim_plant plant, const char *bug)
{
    return fed_run_apart(seed, &(struct fed_script){.plant = plant, .bug = bug});
}

static void test_seeds(void **state)
{
    uint64_t only = fed_number("HANSE_SIM_SEED", 0), n = fed_number("HANSE_SIM_SEEDS", SEEDS);
    struct fed_outcome sum = {0};
    unsigned failed = 0, bulk[BULK_NR] = {0};

    (void)state;
    uint64_t from = only ? only : fed_number("HANSE_SIM_FROM", 1);
    for (uint64_t seed = from; seed < from + (only ? 1 : n); seed++) {
        struct fed_outcome o = seed_run(seed, fed_plant_wanted(), getenv("HANSE_SIM_BUG"));
        failed += fed_tell(seed, &o, "sim_federation");
        sum.events += o.events;
        sum.entries += o.entries;
        sum.workloads += o.workloads;
        sum.acked += o.acked;
        sum.unknown += o.unknown;
        sum.faults += o.faults;
        sum.submits += o.submits;
        sum.again += o.again;
        sum.answers_lost += o.answers_lost;
        sum.leases_lost += o.leases_lost;
        sum.leases_over += o.leases_over;
        sum.phases |= o.phases;
        sum.intent_ops |= o.intent_ops;
        bulk[o.bulk]++;
        if (seed < from + REPEATED && !only) {
            struct fed_outcome again = seed_run(seed, fed_plant_wanted(), getenv("HANSE_SIM_BUG"));
            if (again.hash != o.hash || again.events != o.events) {
                print_error("seed %llu: two runs differ\n", (unsigned long long)seed);
                failed++;
            }
        }
    }
    print_message("%llu events, %llu entries, %u workloads, %u writes acknowledged, %u unknown, "
                  "%u faults, %u submits, %u again, %u answers lost, %u leases lost, %u over\n",
                  (unsigned long long)sum.events, (unsigned long long)sum.entries, sum.workloads,
                  sum.acked, sum.unknown, sum.faults, sum.submits, sum.again,
                  sum.answers_lost, sum.leases_lost, sum.leases_over);
    assert_int_equal(failed, 0);
    if (only || n < SEEDS)
        return;
    /* A test that has stopped to reach what it is about must say so. */
    for (int p = PHASE_QUEUED; p <= PHASE_UNKNOWN; p++)
        if (!(sum.phases & 1u << p))
            fail_msg("no seed has a workload that is %s", phase_text((enum phase)p));
    assert_true(sum.intent_ops & 1u << INTENT_QUIESCE && sum.intent_ops & 1u << INTENT_STOP);
    for (int b = BULK_NONE; b < BULK_NR; b++)
        assert_true(bulk[b]);
    assert_true(sum.leases_lost && sum.leases_over && sum.unknown && sum.answers_lost);
}

/* Seeds that bugs were found with, by name; they stay, also where they are among the first
 * hundred. */
static const struct {
    uint64_t seed;
    const char *what;
} regressions[] = {
    {10, "a site that waits for answers is freed under its own timer"},
    {51, "a site that waits for answers is freed under its own timer, after two elections"},
};
static void test_regressions(void **state)
{
    (void)state;
    if (getenv("HANSE_SIM_SEED") || getenv("HANSE_SIM_FROM"))
        skip();
    for (size_t i = 0; i < sizeof regressions / sizeof *regressions; i++) {
        struct fed_outcome o = seed_run(regressions[i].seed, PLANT_NONE, NULL);
        if (fed_tell(regressions[i].seed, &o, "sim_federation"))
            fail_msg("back again: %s", regressions[i].what);
    }
}

/* Leases run out where links are cut for long: those seeds only. */
static void planted(enum sim_plant plant, const char *bug, bool of_leases)
{
    uint64_t step = of_leases ? FED_PROFILE_NR : 1, seed = 0;
    struct fed_outcome o = {0};

    for (unsigned i = 0; !*o.failed && i < SEEDS; i++) {
        seed = i * step + (of_leases ? FED_LINKS : 1);
        o = seed_run(seed, plant, bug);
    }
    print_message("planted %s: seed %llu: %s\n", bug ? bug : sim_plant_text(plant),
                  (unsigned long long)seed, *o.failed ? o.failed : "NOT SEEN");
    if (!*o.failed || !strncmp(o.failed, "ended", 5))
        fail_msg("a planted bug was not seen by a check");
}

/* Of the program: a lease is judged by what documents say now; the refusal of an order that was
 * sent again is taken for that of the first one. */
static const struct {
    const char *name;
    bool of_leases;
} bugs[] = {{"run.lease-of-today", true}, {"run.resent-is-refused", false}};

static void test_planted(void **state)
{
    (void)state;
    if (getenv("HANSE_SIM_SEED") || getenv("HANSE_SIM_FROM"))
        skip();
    for (int p = PLANT_NONE + 1; p <= PLANT_SWEEPS_ALL; p++)
        planted((enum sim_plant)p, NULL, p == PLANT_NO_LEASE || p == PLANT_NO_GUARD);
    for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++)
        planted(PLANT_NONE, bugs[i].name, bugs[i].of_leases);
}

/* A leader that stamps by its own clock. */
static void test_planted_clock(void **state)
{
    struct fed_outcome o = {0};
    uint64_t seed = 0;

    (void)state;
    if (getenv("HANSE_SIM_SEED"))
        skip();
    while (!*o.failed && seed < SEEDS)
        o = fed_run_apart(++seed, &(struct fed_script){.bug = "raft.own-clock"});
    print_message("planted raft.own-clock: seed %llu: %s\n", (unsigned long long)seed,
                  *o.failed ? o.failed : "NOT SEEN");
    assert_int_equal(strncmp(o.failed, "I10", 3), 0);
}

/* Of slices of COLLECT: seeds with large cascades only. */
static void test_planted_collect(void **state)
{
    static const char *const of[] = {"collect.skips-one", "collect.by-name", "collect.any-child",
                                     "collect.no-bound"};

    (void)state;
    if (getenv("HANSE_SIM_SEED") || getenv("HANSE_SIM_FROM"))
        skip();
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct fed_outcome o = {0};
        uint64_t seed = 0;
        while (!*o.failed && seed < SEEDS)
            if (fed_bulk_tale(++seed) == (i < 3 ? BULK_OWNER : BULK_CROWD))
                o = fed_run_apart(seed, &(struct fed_script){.bug = of[i]});
        print_message("planted %s: seed %llu: %s\n", of[i], (unsigned long long)seed,
                      *o.failed ? o.failed : "NOT SEEN");
        assert_int_equal(strncmp(o.failed, "B", 1), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeds), cmocka_unit_test(test_regressions),
        cmocka_unit_test(test_planted), cmocka_unit_test(test_planted_clock),
        cmocka_unit_test(test_planted_collect)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
