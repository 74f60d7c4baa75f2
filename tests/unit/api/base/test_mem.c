/* Arenas and bounded buffers. */
#include "api/base/err.h"
#include "api/base/mem.h"
#include "tests/support/unit.h"

#include <string.h>

static void test_arena(void **state)
{
    AUTO_ARENA a = arena_create(0);
    unsigned char *all[200];

    (void)state;
    for (size_t i = 0; i < 200; i++) {
        size_t n = i * i + 1; /* small ones, and larger ones than a chunk */

        all[i] = arena_alloc(a, n);
        assert_int_equal((uintptr_t)all[i] % 16, 0);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(all[i][k], 0);
        memset(all[i], (int)i, n);
    }
    for (size_t i = 0; i < 200; i++) /* nobody wrote into a neighbour */
        for (size_t k = 0; k < i * i + 1; k++)
            assert_int_equal(all[i][k], i);
    assert_true(arena_used(a) > 2000000);
    arena_reset(a);
    assert_int_equal(arena_used(a), 0);
    assert_string_equal(arena_strdup(a, "text"), "text");
    assert_string_equal(arena_strndup(a, "text", 2), "te");
    assert_string_equal(arena_strndup(a, "", 0), "");
    assert_string_equal(arena_printf(a, "%0300d", 7) + 299, "7");
    assert_memory_equal(arena_memdup(a, "abc", 3), "abc", 3);
}

static void test_arena_first_is_large(void **state)
{
    AUTO_ARENA a = arena_create(0);

    (void)state;
    memset(arena_alloc(a, 100000), 1, 100000);
    memset(arena_alloc(a, 100000), 2, 100000);
    arena_reset(a);
    assert_int_equal(((char *)arena_alloc(a, 100))[99], 0);
}

static void test_arena_limit(void **state)
{
    AUTO_ARENA a = arena_create(1000);

    (void)state;
    arena_set_soft(a, true);
    assert_non_null(arena_alloc(a, 500));
    assert_null(arena_alloc(a, 600));
    assert_null(arena_alloc(a, SIZE_MAX));
    assert_null(arena_strndup(a, "x", SIZE_MAX));
    assert_non_null(arena_alloc(a, 400)); /* a refusal changes nothing */
}

static void test_arena_sized(void **state)
{
    AUTO_ARENA a = arena_create_sized(100, 4000);

    (void)state;
    arena_set_soft(a, true);
    char *first = arena_alloc(a, 40), *second = arena_alloc(a, 64);
    assert_ptr_equal(second, first + 48); /* both in the piece that came with it: 48 + 64 = 112 */
    for (size_t i = 0; i < 45; i++)
        memset(arena_alloc(a, 70), 7, 70); /* and it grows */
    assert_null(arena_alloc(a, 400));
    arena_reset(a);
    assert_ptr_equal(arena_alloc(a, 40), first);
}

static void test_buf_limit(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 10);
    buf_str(&b, "12345");
    assert_false(b.failed);
    buf_str(&b, "678901");
    assert_true(b.failed);
    assert_int_equal(b.n, 5);
    buf_char(&b, 'x'); /* once failed, nothing more */
    assert_string_equal(b.p, "12345");
    buf_reset(&b);
    buf_printf(&b, "%s", "1234567890");
    assert_false(b.failed);
    assert_int_equal(b.n, 10);
    assert_null(buf_reserve(&b, 1));
    buf_fini(&b);
}

static void test_buf_moves(void **state)
{
    struct buf b;
    size_t n;

    (void)state;
    buf_init(&b, 100000);
    for (int i = 0; i < 1000; i++)
        buf_printf(&b, "%d,", i);
    buf_printf(&b, "%0400d", 3);
    assert_string_equal(b.p + b.n - 2, "03");
    buf_consume(&b, 4);
    assert_memory_equal(b.p, "2,3,", 4);
    char *p = buf_steal(&b, &n);
    assert_int_equal(strlen(p), n);
    assert_int_equal(b.n, 0);
    mem_free(p);
    char *to = buf_reserve(&b, 3);
    memcpy(to, "abc", 3);
    b.n += 3;
    assert_string_equal(b.p, "abc");
    buf_consume(&b, 3);
    assert_int_equal(b.n, 0);
    buf_fini(&b);
    p = buf_steal(&b, &n);
    assert_string_equal(p, "");
    mem_free(p);
}

static void test_cut_is_marked(void **state)
{
    char to[8];

    (void)state;
    str_cut(to, sizeof to, "sevenCh");
    assert_string_equal(to, "sevenCh");
    str_cut(to, sizeof to, "eight in");
    assert_string_equal(to, "eigh\xe2\x80\xa6");
    str_cut(to, sizeof to, "abc\xc3\xa4\xc3\xa4zz"); /* no half of a character is left */
    assert_string_equal(to, "abc\xe2\x80\xa6");
    str_cut(to, sizeof to, NULL);
    assert_string_equal(to, "");
    str_cut_words(to, sizeof to, "so it is");
    assert_string_equal(to, "so \xe2\x80\xa6");
    str_cut_words(to, sizeof to, "so it");
    assert_string_equal(to, "so it");
    str_cut_words(to, sizeof to, "onewordonly");
    assert_string_equal(to, "onew\xe2\x80\xa6");
    str_cut_words(to, sizeof to, NULL);
    assert_string_equal(to, "");
}

static void test_long_errors_are_marked(void **state)
{
    char said[2 * ERR_TEXT_MAX];
    struct err e;

    (void)state;
    memset(said, 'x', sizeof said);
    said[sizeof said - 1] = '\0';
    (void)err_set(&e, E_INVALID, "%s", said);
    assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
    assert_string_equal(e.text + ERR_TEXT_MAX - 5, "x\xe2\x80\xa6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena),         cmocka_unit_test(test_arena_first_is_large),
        cmocka_unit_test(test_arena_limit),   cmocka_unit_test(test_buf_limit),
        cmocka_unit_test(test_buf_moves),     cmocka_unit_test(test_arena_sized),
        cmocka_unit_test(test_cut_is_marked), cmocka_unit_test(test_long_errors_are_marked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
