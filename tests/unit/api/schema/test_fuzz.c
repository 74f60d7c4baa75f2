/* The fuzz targets of api/schema without a fuzzer: seeded random mutations of good inputs, some
 * seconds. With clang, the same files run under libFuzzer (-fsanitize=fuzzer). */
#define LLVMFuzzerTestOneInput fuzz_tlv
#include "tests/fuzz/fuzz_tlv.c"
#include "tests/support/unit.h"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_json
#include "tests/fuzz/fuzz_json.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_yaml
#include "tests/fuzz/fuzz_yaml.c"
#undef LLVMFuzzerTestOneInput

#include <stdio.h>
#include <string.h>

static uint64_t seed = 0x9e3779b97f4a7c15u;

static uint64_t rnd(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static size_t mutate(uint8_t *p, size_t n, size_t max)
{
    static const char words[] = "{}[]\",:0-9e\\u \n#&*!|>'\xff\x80\x01\x7f";

    for (uint64_t times = 1 + rnd(6); times > 0 && n > 2; times--) {
        size_t at = 1 + rnd(n - 1), len = rnd(8);
        switch (rnd(4)) {
        case 0:
            p[at] = (uint8_t)rnd(256);
            break;
        case 1:
            p[at] = (uint8_t)words[rnd(sizeof words - 1)];
            break;
        case 2: /* cut */
            len = at + len > n ? n - at : len;
            memmove(p + at, p + at + len, n - at - len);
            n -= len;
            break;
        default: /* repeat */
            len = at + len > n ? n - at : len;
            if (n + len <= max) {
                memmove(p + at + len, p + at, n - at);
                n += len;
            }
        }
    }
    return n;
}

static void run(int (*target)(const uint8_t *, size_t), const uint8_t *good, size_t n,
                unsigned rounds)
{
    uint8_t *p = mem_alloc(n + 256);

    for (unsigned i = 0; i < rounds; i++) {
        memcpy(p, good, n);
        size_t m = mutate(p, n, n + 256);
        uint8_t *exact = mem_alloc(m); /* so that a read past the end is seen */
        memcpy(exact, p, m);
        (void)target(exact, m);
        mem_free(exact);
    }
    mem_free(p);
}

static void test_mutations(void **state)
{
    static char text[65536];
    FILE *f = fopen("tests/golden/examples.yaml", "r");
    struct yaml_doc *docs;
    struct err e;
    size_t n, size;

    (void)state;
    assert_non_null(f);
    size = fread(text, 1, sizeof text, f);
    (void)fclose(f);
    assert_int_equal(yaml_parse_all(text, size, "f", &docs, &n, &e), 0);
    run(fuzz_yaml, (uint8_t *)text, size, 1500);
    for (size_t i = 0; i < n; i++) {
        AUTO_BUF log = {0}, json = {0};
        struct object *o = NULL;
        const struct kind *k = kind_by_name(cJSON_GetObjectItem(docs[i].json, "kind")->valuestring);
        buf_init(&log, 1u << 20);
        buf_init(&json, 1u << 20);
        assert_int_equal(object_from_json(k, docs[i].json, DECODE_USER, &o, &e), 0);
        buf_char(&log, (char)(k->id - 1));
        object_encode(o, &log);
        object_print_json(o, &json);
        run(fuzz_tlv, (uint8_t *)log.p, log.n, 12000);
        run(fuzz_json, (uint8_t *)json.p, json.n, 1500);
        run(fuzz_yaml, (uint8_t *)json.p, json.n, 800);
        (void)object_unref(o);
    }
    yaml_docs_free(docs, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutations)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
