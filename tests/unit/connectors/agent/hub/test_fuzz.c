/* The fuzz target of what agents say, driven over mutated good sessions: no crash, no leak. And
 * what an agent may send within its frames, and a server must not die of. */
#define FUZZ_IN_TEST
#include "tests/fuzz/fuzz_agent.c"
#include "tests/support/unit.h"

static uint64_t seed = 11;

static uint32_t rnd(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 13) % n;
}

static void frame_put(struct buf *b, int type, const char *body)
{
    uint32_t n = (uint32_t)strlen(body) + 12;
    unsigned char head[16] = {(unsigned char)n, (unsigned char)(n >> 8), (unsigned char)(n >> 16),
                              (unsigned char)(n >> 24), (unsigned char)type};

    buf_add(b, head, sizeof head);
    buf_str(b, body);
}

static void session_put(struct buf *b)
{
    frame_put(b, AF_HELLO,
              "{\"target\":\"t1\",\"version\":\"1\",\"session\":\"s\",\"bootId\":\"b\","
              "\"stateId\":\"i\",\"instance\":\"p\",\"at\":5,\"runs\":[{\"key\":\"u.1.1\","
              "\"state\":\"running\",\"checkpoint\":{\"step\":3,\"bytes\":9,"
              "\"digest\":\"sha256:aa\",\"path\":\"/ck/e1/cut-1.json\",\"ranks\":2}}]}");
    frame_put(b, AF_BEAT, "{\"at\":1005}");
    frame_put(b, AF_NODES,
              "{\"page\":0,\"more\":true,\"nodes\":[{\"apiVersion\":\"hanse.dev/v1alpha1\","
              "\"kind\":\"Node\",\"metadata\":{\"name\":\"t1.n1\"},\"spec\":{\"target\":\"t1\","
              "\"gpus\":[{\"index\":0,\"class\":\"h100\",\"memory\":\"80Gi\"}]}}]}");
    frame_put(b, AF_NODES,
              "{\"page\":1,\"nodes\":[{\"metadata\":{\"name\":\"t1.n2\"},"
              "\"spec\":{\"target\":\"t1\"},\"status\":{\"health\":\"Ready\"}}]}");
    frame_put(b, AF_OBSERVED,
              "{\"key\":\"u.1.1\",\"state\":\"ended\",\"exitCode\":1,\"signal\":0,\"proof\":"
              "\"ProcessTreeGone\","
              "\"reason\":\"Error\",\"message\":\"exit status 1\"}");
    frame_put(b, AF_RESULT, "{\"outcome\":0,\"seen\":{\"key\":\"u.1.1\",\"state\":\"absent\"}}");
    frame_put(b, SF_END, "{\"exit\":0}");
}

static void mutations(int (*target)(const uint8_t *data, size_t size), int rounds)
{
    static const unsigned char odd[] = {0, 1, 0x7f, 0x80, 0xff, '{', '}', '[', '"', ',', '9'};
    AUTO_BUF good;

    buf_init(&good, 1u << 16);
    session_put(&good);
    (void)target((const uint8_t *)good.p, good.n);
    assert_false(fz.closed);
    for (int i = 0; i < rounds; i++) {
        size_t size = rnd(4) ? good.n : rnd((uint32_t)good.n + 1);
        uint8_t *copy = mem_alloc(good.n);
        memcpy(copy, good.p, good.n);
        for (uint32_t m = 1 + rnd(4); m > 0; m--)
            copy[rnd((uint32_t)good.n)] = rnd(2) ? odd[rnd(sizeof odd)] : (uint8_t)rnd(256);
        copy = mem_realloc(copy, size ? size : 1);
        (void)target(copy, size);
        mem_free(copy);
    }
}

static void test_mutations(void **state)
{
    (void)state;
    mutations(fuzz_agent, 20000);
}

/* Who is not the hub's session says what only that may say: it is passed over. */
static void test_a_guest(void **state)
{
    (void)state;
    mutations(fuzz_guest, 5000);
}

/* Four million nodes that are none: a list is counted before room is made for it. */
static void test_a_list_of_nothing(void **state)
{
    AUTO_BUF b, body;

    (void)state;
    buf_init(&b, 16u << 20);
    buf_init(&body, 8u << 20);
    buf_str(&body, "{\"nodes\":[0");
    for (int i = 0; i < 4000000; i++)
        buf_str(&body, ",0");
    buf_str(&body, "]}");
    frame_put(&b, AF_HELLO, "{\"target\":\"t1\"}");
    frame_put(&b, AF_NODES, body.p);
    (void)fuzz_agent((const uint8_t *)b.p, b.n);
    assert_true(fz.closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutations),
                                       cmocka_unit_test(test_a_guest),
                                       cmocka_unit_test(test_a_list_of_nothing)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
