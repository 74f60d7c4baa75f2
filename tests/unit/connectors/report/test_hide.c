/* What a target was told in confidence is in no text that it says: values whole, twice, within one
 * another, or cut off by the text's end; and tokens of runners however they are written. */
#include "connectors/report/hide.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

static const char *const values[] = {"hunter2", NULL, "hunter2hunter", "abc", "k\"e/y"};

static void becomes(const char *said, const char *told)
{
    char *text = strdup(said); /* of its very size, for the sanitizer */

    hide_values_cut(text, values, sizeof values / sizeof *values);
    assert_string_equal(text, told);
    free(text);
}

static void name_becomes(const char *said, const char *told)
{
    char *text = strdup(said);

    hide_values(text, values, sizeof values / sizeof *values);
    assert_string_equal(text, told);
    free(text);
}

static void test_values(void **state)
{
    (void)state;
    becomes("", "");
    becomes("hun", "hun");
    becomes("hunter2", "***");
    becomes("hunter2hunter and hunter2", "*** and ***");
    becomes("hunter2hunter2", "***");
    becomes("abc is too short to be looked for", "abc is too short to be looked for");
    becomes("the end is hunt", "the end is ***");
    becomes("k\"e/y", "***");
    becomes("in base64: aHVudGVyMg== or aHVudGVyMg", "in base64: ***== or ***");
    becomes("cut: aHVudGV", "cut: ***");
    becomes("of a token: aGFuc2UtcnVuLTEvYzEvdS4xLjEvMC8xLzEvYWJj= too",
            "of a token: aGFuc2UtcnVuLTEv*** too");
    char none[] = "hunter2";
    hide_values(none, NULL, 0);
    assert_string_equal(none, "hunter2");
}

/* A key or a cursor that is altered would be another one. */
static void test_names(void **state)
{
    (void)state;
    name_becomes("node-hunt", "node-hunt");
    name_becomes("node-hunter", "node-hunter");
    name_becomes("node-hunter2", "node-***");
    name_becomes("hunter2-node", "***-node");
    name_becomes("hanse-run-1/c/u.1.1/0/1/7/0011", "hanse-run-1/c/u.1.1/0/1/7/***");
    becomes("node-hunt", "node-***");
}

#define NAME "hanse-run-1/0123456789abcdef.3/a-b.12.3/0/16/1700000000000"
static void test_tokens(void **state)
{
    (void)state;
    becomes(NAME, NAME); /* which reports have */
    becomes("{\"of\":\"" NAME "\",\"number\":2}", "{\"of\":\"" NAME "\",\"number\":2}");
    becomes(NAME "/", NAME "/");
    becomes(NAME "/0011223344", NAME "/***");
    becomes(NAME "/0", NAME "/*"); /* cut */
    becomes("[\"" NAME "/0011\",\"" NAME "/2233\"]", "[\"" NAME "/***\",\"" NAME "/***\"]");
    becomes("hanse-run-1\\/c\\/u.1.1\\/0\\/1\\/7\\/0011",
            "hanse-run-1\\/c\\/u.1.1\\/0\\/1\\/7\\/***");
    becomes("hanse-run-1%2Fc%2fu.1.1%2F0%2F1%2F7%2F0011",
            "hanse-run-1%2Fc%2fu.1.1%2F0%2F1%2F7%2F***");
    becomes("hanse-run-1hanse-run-1/c/u.1.1/0/1/7/00112233",
            "hanse-run-1hanse-run-1/c/u.1.1/0/1/7/***");
    becomes("hanse-run-1/hanse-run-1/c/u.1.1/0/1/7/00112233",
            "hanse-run-1/hanse-run-1/c/u.1.1/0/1/*/***");
    becomes("hanse-run-1", "hanse-run-1");
    becomes("hanse-run-1%2", "hanse-run-1%2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_tokens)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
