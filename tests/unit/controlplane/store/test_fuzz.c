/* The fuzz targets of the store, driven over mutated good inputs: no crash, no leak, no endless
 * loop. */
#define FUZZ_IN_TEST
#include "tests/fuzz/fuzz_command.c"
#include "tests/fuzz/fuzz_snapshot.c"
#include "tests/support/store/move_kit.h"

static uint64_t seed = 7;

static uint32_t rnd(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 13) % n;
}

static void mutate(const void *p, size_t n, int rounds, int (*target)(const uint8_t *, size_t))
{
    static const unsigned char odd[] = {0, 1, 0x7f, 0x80, 0xff, '/', '.'};

    for (int i = 0; i < rounds; i++) {
        uint8_t *copy = mem_alloc(n); /* of exactly this size, so that ASan sees the end */
        size_t size = rnd(4) ? n : rnd((uint32_t)n + 1);

        memcpy(copy, p, n);
        for (uint32_t m = 1 + rnd(4); m > 0; m--)
            copy[rnd((uint32_t)n)] = rnd(2) ? odd[rnd(sizeof odd)] : (uint8_t)rnd(256);
        copy = mem_realloc(copy, size ? size : 1);
        (void)target(copy, size);
        mem_free(copy);
    }
}

static void test_mutations(void **state)
{
    struct kit k;
    struct err e = {0};
    AUTO_BUF b;

    (void)state;
    kit_begin(&k);
    buf_init(&k.log, (size_t)1 << 24);
    kit_pool(&k, 1, 2);
    (void)kit_workload(&k, "default", "w", 1, 1);
    (void)kit_place(&k, "w", "fra.n0", 0, 1, 1);
    (void)kit_run(&k, "w", 1, 1, STEP_DISPATCH);
    assert_int_equal(kit_checkpoint(&k, "w", 1, 3, "sha256:a").code, 0);
    (void)kit_workload(&k, "default", "p", 1, 1);
    struct move_begin move = kit_begin_of(&k, "w", MOVE_DRAIN, kit_placement(&k, "fra.n0", 1, 1));
    assert_int_equal(kit_plan(&k, &move, 1, NULL, NULL).code, 0);
    assert_int_equal(kit_plan(&k, NULL, 0, "p", kit_placement(&k, "fra.n0", 0, 1)).code, 0);
    assert_int_equal(kit_step(&k, "w-m1", MOVE_QUIESCE).code, 0);
    (void)kit_delete(&k, KIND_NAMESPACE, "", "default");
    for (size_t at = 0; at < k.log.n;) {
        size_t n = le_get_u32((const unsigned char *)k.log.p + at);
        const char *entry = k.log.p + at + 4;

        mutate(entry, n, 200, fuzz_command);
        mutate(entry + 52, le_get_u32((const unsigned char *)entry + 48), 1500, fuzz_command);
        at += 4 + n;
    }
    buf_init(&b, (size_t)1 << 24);
    assert_int_equal(snapshot_encode(k.root, &b, &e), 0);
    mutate(b.p, b.n, 3000, fuzz_snapshot);
    b.p[8] = 3; /* the same fields, in pieces */
    for (char how = 1; how < 4; how++) {
        b.p[12] = how;
        for (int i = 0; i < 10; i++) {
            le_put_u32((unsigned char *)b.p + 16, rnd((uint32_t)b.n));
            mutate(b.p, b.n, 100, fuzz_snapshot);
        }
    }
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutations)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
