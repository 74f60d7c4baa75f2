/* The pace that leases set: what a run lives through by it. */
#include "connectors/pace.h"
#include "tests/support/unit.h"

static void grace_is_kept_within_half_of_a_lease(void **state)
{
    (void)state;
    assert_int_equal(pace_save_ms(300000, 30000), 30000);
    assert_int_equal(pace_save_ms(40000, 30000), 20000);
    assert_int_equal(pace_save_ms(40000, 0), 0);
}

/* An absence of 1.5 s, an election, and all that a renewal is older than it looks. */
static void a_short_lease_outlives_an_election(void **state)
{
    (void)state;
    for (uint64_t lease = 8000; lease < 60000; lease += 500) {
        uint64_t stale = pace_beat_ms(lease) + ROUND_MS + lease / 8;
        uint64_t save = pace_save_ms(lease, 30000);
        assert_true(lease - save >= 6000);
        assert_true(save >= 2000); /* and there is something to save in */
        assert_true(lease - save > stale + 1500 + 1000);
        /* a member that never comes back is given up in time to find another */
        assert_true(lease - save > stale + pace_silence_ms(lease, 5000) + 500);
    }
}

static void what_is_shorter_keeps_its_order(void **state)
{
    (void)state;
    for (uint64_t lease = 1000; lease < 8000; lease += 100) {
        assert_true(pace_save_ms(lease, 30000) <= lease / 2);
        assert_true(pace_save_ms(lease, 30000) >= lease / 4);
        assert_true(pace_beat_ms(lease) >= 250 && pace_beat_ms(lease) <= 1000);
    }
}

static void silence_without_a_lease_is_as_told(void **state)
{
    (void)state;
    assert_int_equal(pace_silence_ms(0, 10000), 10000);
    assert_int_equal(pace_silence_ms(8000, 10000), 2500);
    assert_int_equal(pace_silence_ms(1000, 10000), 2500);
    assert_int_equal(pace_silence_ms(300000, 10000), 10000);
    assert_int_equal(pace_beat_ms(0), 1000);
    assert_int_equal(pace_beat_ms(8000), 500);
}

static void who_is_refused_asks_more_and_more_seldom(void **state)
{
    (void)state;
    for (unsigned n = 0; n <= 12; n++)
        assert_int_equal(pace_redial_ms(0, n), 5000);
    for (unsigned n = 0; n < 100; n++) {
        assert_true(pace_redial_ms(0, n + 1) >= pace_redial_ms(0, n));
        assert_int_equal(pace_redial_ms(8000, n), 5000); /* its lease does not wait */
    }
    assert_int_equal(pace_redial_ms(0, 14), 20000);
    assert_int_equal(pace_redial_ms(0, 4000000000u), 120000);
}

/* Never later than the beginning of the round that it follows. */
static void a_lease_counts_from_before_the_round(void **state)
{
    (void)state;
    assert_int_equal(pace_lease_from(10000, 0), 9500);
    assert_int_equal(pace_lease_from(10000, 200), 9700);
    assert_int_equal(pace_lease_from(10000, 500), 10000);
    assert_int_equal(pace_lease_from(10000, 9000), 10000);
    assert_int_equal(pace_lease_from(100, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_refused_asks_more_and_more_seldom),
        cmocka_unit_test(grace_is_kept_within_half_of_a_lease),
        cmocka_unit_test(a_short_lease_outlives_an_election),
        cmocka_unit_test(what_is_shorter_keeps_its_order),
        cmocka_unit_test(silence_without_a_lease_is_as_told),
        cmocka_unit_test(a_lease_counts_from_before_the_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
