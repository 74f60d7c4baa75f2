/* The fuzz target of apply over some seeds; more: HANSE_FUZZ_SEEDS, HANSE_FUZZ_FROM. */
#define FUZZ_IN_TEST
#include "tests/fuzz/fuzz_apply.c"
#include "tests/support/store/store_kit.h"

static unsigned asked(const char *name, unsigned or)
{
    const char *s = getenv(name);

    return s ? (unsigned)strtoul(s, NULL, 10) : or ;
}

static void test_seeds(void **state)
{
    unsigned from = asked("HANSE_FUZZ_FROM", 1), n = asked("HANSE_FUZZ_SEEDS", 24);

    struct fuzz_taken taken = {{0}};

    (void)state;
    for (unsigned i = from; i < from + n; i++) {
        uint8_t seed[4];

        le_put_u32(seed, i);
        if (getenv("HANSE_FUZZ_FROM"))
            (void)fprintf(stderr, "seed %u\n", i);
        (void)fuzz_apply_counted(seed, sizeof seed, &taken);
    }
    for (int t = CMD_WRITE; t <= CMD_RECOVER; t++) {
        print_message("command %d: %llu taken\n", t, (unsigned long long)taken.n[t]);
        assert_true(t == CMD_LEDGER || t == CMD_REQUEST || t == CMD_REMOVE || t == CMD_MIGRATE ||
                    n < 24 || taken.n[t] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
