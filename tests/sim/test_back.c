/* Federations whose hub forgets: older copies of all data put back by hand, or no data at all, from
 * a seed each (sim/federation/sim_back.c). HANSE_SIM_SEED, _SEEDS, _FROM, _TRACE and _BUG as in
 * test_federation.c. */
#include "tests/sim/federation/sim_federation.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#define SEEDS 45

static struct fed_outcome seed_run(uint64_t seed, const char *bug)
{
    return fed_run_apart(seed, &(struct fed_script){.back = true, .steps = true, .bug = bug});
}

static void test_seeds(void **state)
{
    uint64_t only = fed_number("HANSE_SIM_SEED", 0), n = fed_number("HANSE_SIM_SEEDS", SEEDS);
    uint64_t from = only ? only : fed_number("HANSE_SIM_FROM", 1);
    unsigned failed = 0, submits = 0;

    (void)state;
    for (uint64_t seed = from; seed < from + (only ? 1 : n); seed++) {
        struct fed_outcome o = seed_run(seed, getenv("HANSE_SIM_BUG"));
        submits += o.submits;
        if (*o.failed)
            print_error("seed %llu: %s\n", (unsigned long long)seed, o.failed);
        failed += *o.failed != 0;
    }
    print_message("%u submits\n", submits);
    assert_int_equal(failed, 0);
    assert_true(only || submits > 0);
}

/* Of the program: floors are forgotten; recovery is settled over a Target that the state does not
 * know. */
static void test_planted(void **state)
{
    static const char *const bugs[] = {"recover.no-floor", "recover.no-strangers"};

    (void)state;
    if (getenv("HANSE_SIM_SEED") || getenv("HANSE_SIM_FROM"))
        skip();
    for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++) {
        struct fed_outcome o = {0};
        uint64_t seed = 0;
        /* Two lives of one epoch may leave a world that never comes to rest: no proof either. */
        while ((!*o.failed || strncmp(o.failed, "ended", 5) == 0) && seed < 2ull * SEEDS)
            o = seed_run(++seed, bugs[i]);
        print_message("planted %s: seed %llu: %s\n", bugs[i], (unsigned long long)seed,
                      *o.failed ? o.failed : "NOT SEEN");
        assert_true(*o.failed && strncmp(o.failed, "ended", 5) != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds),
                                       cmocka_unit_test(test_planted)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
