/* Mixed federations from a seed: two rooms with agents, a Kubernetes, a Slurm and a cloud under one
 * hub, whose work moves between them; leaders that crash, links that are cut, and all that the
 * three do (tests/support/scripted). The checks are those of all federations; nothing is left
 * behind on the three, and none of their programs ever lives twice.
 *
 *   HANSE_SIM_SEED=n    only this seed, HANSE_SIM_TRACE=1 with its trace
 *   HANSE_SIM_SEEDS=n   so many seeds instead of 8
 *   HANSE_SIM_FROM=n    from this seed on
 *   HANSE_SCRIPTED_PLANT=name   with a rule broken by the scripted driver
 *   HANSE_SIM_BUG=name          with that planted bug of the program */
#include "tests/sim/scripted/sim_scripted.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS 8
#define REPEATED 1
#define PLANT_SEEDS 30

static struct fed_outcome life(uint64_t seed, enum scripted_plant plant, const char *bug)
{
    sim_mixed_plant(plant);
    return fed_run_apart(seed, &(struct fed_script){.steps = true,
                                                    .moves = true,
                                                    .rooms = true,
                                                    .mixed = &sim_mixed,
                                                    .bug = bug});
}
static enum scripted_plant plant_wanted(void)
{
    const char *name = getenv("HANSE_SCRIPTED_PLANT");

    for (int p = 0; name && p < SCRIPTED_NR; p++)
        if (!strcmp(name, scripted_plant_text((enum scripted_plant)p)))
            return (enum scripted_plant)p;
    return SCRIPTED_NONE;
}
static void test_seeds(void **state)
{
    uint64_t only = fed_number("HANSE_SIM_SEED", 0), n = fed_number("HANSE_SIM_SEEDS", SEEDS),
             from = only ? only : fed_number("HANSE_SIM_FROM", 1), events = 0;
    unsigned failed = 0, workloads = 0, finished = 0, faults = 0, moved = 0;

    (void)state;
    for (uint64_t seed = from; seed < from + (only ? 1 : n); seed++) {
        struct fed_outcome o = life(seed, plant_wanted(), getenv("HANSE_SIM_BUG"));
        failed += fed_tell(seed, &o, "sim_mixed");
        events += o.events;
        workloads += o.workloads;
        finished += o.finished;
        faults += o.faults;
        moved += o.moves[MP_SUCCEEDED];
        if (seed < from + REPEATED && !only) {
            struct fed_outcome again = life(seed, plant_wanted(), getenv("HANSE_SIM_BUG"));
            if (again.hash != o.hash || again.events != o.events) {
                print_error("seed %llu: two runs differ\n", (unsigned long long)seed);
                failed++;
            }
        }
    }
    print_message("%llu events, %u workloads, %u finished, %u faults, %u moves completed\n",
                  (unsigned long long)events, workloads, finished, faults, moved);
    assert_int_equal(failed, 0);
    if (!only && n >= SEEDS)
        assert_true(finished && moved);
}

/* Each must be seen by a check, and by one that is meant for it: where another one is first, the
 * next seed is asked. "w": what the state calls Succeeded nobody has seen. */
static const struct {
    enum scripted_plant plant;
    const char *bug, *seen;
} planted[] = {{SCRIPTED_SWEEPS_ALL, NULL, "I6"},
               {SCRIPTED_DOUBT_IS_ENDED, NULL, "I1 w"},
               {SCRIPTED_STARTS_LATE, NULL, "I1 W1 W2"},
               {SCRIPTED_NONE, "run.unknown-is-refused", "I1 W2 W5"}};
static void test_planted(void **state)
{
    unsigned unseen = 0;

    (void)state;
    if (getenv("HANSE_SIM_SEED") || getenv("HANSE_SIM_FROM"))
        skip();
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        struct fed_outcome o = {0};
        uint64_t seed = 0;
        bool seen = false;
        while (!seen && seed < PLANT_SEEDS) {
            o = life(++seed, planted[i].plant, planted[i].bug);
            char check[3] = {o.failed[0], o.failed[0] ? o.failed[1] : '\0', '\0'};
            if (check[0] == 'w')
                check[1] = '\0';
            seen = *o.failed && strstr(planted[i].seen, check);
        }
        unseen += !seen;
        const char *name =
            planted[i].bug ? planted[i].bug : scripted_plant_text(planted[i].plant);
        print_message("planted %s: seed %llu: %s%s\n", name,
                      (unsigned long long)seed, *o.failed ? o.failed : "NOT SEEN",
                      seen ? "" : " (BY ANOTHER CHECK)");
    }
    assert_int_equal(unseen, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds),
                                       cmocka_unit_test(test_planted)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
