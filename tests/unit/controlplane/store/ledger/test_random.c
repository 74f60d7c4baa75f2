/* A long random history against an independent replay: every line equal, the sum that of capacity ×
 * time, exactly. The default is short; LEDGER_EVENTS sets how many commands must have changed
 * something (tests/bench/ledger does the million). */
#include "tests/support/ledger/ledger_world.h"
#include "tests/support/unit.h"
#include "controlplane/store/store_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define EVENTS 24000
#define ROUNDS 6

static void history(uint64_t seed, uint64_t events)
{
    struct ledger_world *w = ledger_world_create(seed);
    struct ledger_difference d;
    int others = 0, measured = 0;

    for (int i = 0; i < ROUNDS; i++) {
        ledger_world_run(w, events / ROUNDS);
        ledger_model_compare(ledger_world_model(w), ledger_world_root(w), &d);
        if (d.wrong)
            fail_msg("seed %llu, round %d: %llu of %llu lines differ: %s", (unsigned long long)seed,
                     i, (unsigned long long)d.wrong, (unsigned long long)d.lines, d.example);
        assert_true(d.error == 0 && d.money < 1e-9);
        assert_int_equal(ledger_model_spent_wrong(ledger_world_model(w)), 0);
        root_check(ledger_world_root(w));
        others += d.others;
        measured += d.measured;
    }
    assert_true(others > 0 || seed % 2); /* others hold devices in the worlds of even seeds */
    assert_true(measured > 0 || seed % 2); /* where all members know what that is */
    struct ledger_counts n = ledger_world_counts(w);
    assert_true(n.placed > events / 50 && n.ended > events / 200 && n.moved > events / 4000);
    assert_true(n.snapshots > 0 && n.terms > 1 && d.lines > 100); /* it was no idle walk */
    ledger_world_destroy(w);
}

static void test_histories(void **state)
{
    const char *asked = getenv("LEDGER_EVENTS");
    uint64_t events = asked ? strtoull(asked, NULL, 10) : EVENTS;

    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed += 3) /* one of them with counted devices, too */
        history(seed, events / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_histories)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
