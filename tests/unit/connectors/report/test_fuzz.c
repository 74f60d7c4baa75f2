/* The fuzz target of reports, driven over mutated good ones: no crash, and nothing is believed that
 * the token has not signed. */
#define FUZZ_IN_TEST
#include "tests/fuzz/fuzz_report.c"
#include "tests/support/unit.h"

static uint64_t seed = 11;

static uint32_t rnd(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 13) % n;
}

static void good_make(struct buf *b)
{
    const struct home_token t = report_kit_token();
    struct run_report r = {.step = RUN_STEP_ENDED, .exit_code = 3, .message = "exit status 3"};
    char token[HOME_TOKEN_MAX];

    r.cut = (struct run_checkpoint_report){.present = true, .step = 9, .ranks = 4};
    str_copy(r.cut.path, sizeof r.cut.path, "/ck/e3/cut-9.json");
    str_copy(r.cut.digest, sizeof r.cut.digest, "sha256:00");
    report_kit_token_text(&t, 0, token);
    report_line_print(token, &r, 7, 1900000001000, b);
    fuzz_report_good = slice_make(b->p, b->n);
}

static void test_mutations(void **state)
{
    static const unsigned char odd[] = {0, 1, 0x7f, 0x80, 0xff, '{', '}', '"', ',', '\n', '/', '9'};
    AUTO_BUF good;

    (void)state;
    buf_init(&good, 1u << 16);
    good_make(&good);
    assert_int_equal(fuzz_report((const uint8_t *)good.p, good.n), 0);
    for (int i = 0; i < 40000; i++) {
        size_t size = rnd(4) ? good.n : rnd((uint32_t)good.n + 1);
        uint8_t *copy = mem_alloc(good.n);
        memcpy(copy, good.p, good.n);
        for (uint32_t m = 1 + rnd(4); m > 0; m--)
            copy[rnd((uint32_t)good.n)] = rnd(2) ? odd[rnd(sizeof odd)] : (uint8_t)rnd(256);
        copy = mem_realloc(copy, size ? size : 1);
        (void)fuzz_report(copy, size);
        mem_free(copy);
    }
}

/* Each byte of it changed, each length of it: none holds. */
static void test_no_byte_may_be_another_one(void **state)
{
    AUTO_BUF good;

    (void)state;
    buf_init(&good, 1u << 16);
    good_make(&good);
    for (size_t i = 0; i + 1 < good.n; i++) {
        uint8_t *copy = mem_alloc(good.n);
        memcpy(copy, good.p, good.n);
        copy[i] ^= 1;
        assert_true(fuzz_report(copy, good.n) < 0);
        mem_free(copy);
    }
    for (size_t n = 0; n + 1 < good.n; n++) {
        uint8_t *copy = mem_alloc(n + 1);
        memcpy(copy, good.p, n);
        assert_true(fuzz_report(copy, n) < 0);
        mem_free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutations),
                                       cmocka_unit_test(test_no_byte_may_be_another_one)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
