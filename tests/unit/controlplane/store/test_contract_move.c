/* The contract of migrations: the whole table as a golden text (tests/golden/move.txt, written anew
 * with HANSE_GOLDEN_WRITE=1) and what must hold over all of it. The brain, the simulator and the
 * CLI build on it: a transition is added with its line, none is changed in passing. */
#include "tests/support/golden/golden.h"
#include "tests/support/store/store_kit.h"

static void test_table_is_the_golden_one(void **state)
{
    struct golden g;
    char have[128];

    (void)state;
    golden_open(&g, "move.txt");
    for (enum move_phase p = MP_PENDING; p <= MP_CANCELLED; p++)
        for (enum move_step s = MOVE_BEGIN; s <= MOVE_ABORT; s++) {
            enum move_phase to = move_next(p, s);
            if (!to)
                continue;
            (void)snprintf(have, sizeof have, "%s %s %s\n", move_phase_text(p), move_step_text(s),
                           move_phase_text(to));
            golden_next(&g, have);
        }
    golden_close(&g, true);
}

/* From every phase there is a way on and a way back, until it has ended; then there is none. */
static void test_ways_on_and_back(void **state)
{
    (void)state;
    for (enum move_phase p = MP_PENDING; p <= MP_CANCELLED; p++) {
        enum move_phase back = move_next(p, MOVE_ABORT);
        int on = 0;

        for (enum move_step s = MOVE_BEGIN; s < MOVE_ABORT; s++) {
            enum move_phase to = move_next(p, s);

            assert_true(!to || to > p || s == MOVE_WAIT); /* never back by a step forward */
            on += to && to != p;
        }
        assert_int_equal(move_open(p), back == MP_FAILED || back == MP_CANCELLED);
        assert_int_equal(move_open(p), on > 0);
    }
    assert_int_equal(move_next((enum move_phase)0, MOVE_ABORT), 0);
    assert_int_equal(move_next(MP_PENDING, MOVE_BEGIN), 0); /* BEGIN makes it, and never again */
}

/* A destination is held from the reservation until the workload takes it, without a gap. */
static void test_what_holds(void **state)
{
    (void)state;
    for (enum move_phase p = MP_PENDING; p <= MP_CANCELLED; p++) {
        assert_true(!move_holds(p) || move_open(p));
        for (enum move_step s = MOVE_BEGIN; s <= MOVE_ABORT; s++) {
            enum move_phase to = move_next(p, s);

            if (to && !move_holds(p) && move_holds(to))
                assert_int_equal(s, MOVE_RESERVE);
            if (to && move_holds(p) && !move_holds(to))
                assert_true(s == MOVE_START || s == MOVE_ABORT);
        }
    }
}

/* There is no way to a new epoch but by way of Fencing, where the old one's end is proved. */
static void test_start_comes_after_the_proof(void **state)
{
    (void)state;
    for (enum move_phase p = MP_PENDING; p <= MP_CANCELLED; p++)
        for (enum move_step s = MOVE_BEGIN; s <= MOVE_ABORT; s++) {
            enum move_phase to = move_next(p, s);

            if (to == MP_STARTING)
                assert_true(p == MP_FENCING && s == MOVE_START);
            if (to == MP_SUCCEEDED)
                assert_true(p == MP_STARTING && s == MOVE_COMMIT);
        }
}

static void test_names(void **state)
{
    (void)state;
    for (enum move_step s = MOVE_BEGIN; s <= MOVE_ABORT; s++)
        for (enum move_step other = MOVE_BEGIN; other < s; other++)
            assert_string_not_equal(move_step_text(s), move_step_text(other));
    assert_string_equal(move_step_text((enum move_step)0), "?");
    assert_string_equal(move_step_text((enum move_step)(MOVE_ABORT + 1)), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_the_golden_one),
        cmocka_unit_test(test_ways_on_and_back),
        cmocka_unit_test(test_what_holds),
        cmocka_unit_test(test_start_comes_after_the_proof),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
