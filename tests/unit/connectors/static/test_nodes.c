/* The JSON nodes of hanse-run: a program that has them uses no others, so text goes through them to
 * a tree and back here. */
#include "api/schema/schema.h"
#include "connectors/static/nodes.c"
#include "tests/support/unit.h"

static void there_and_back(const char *text)
{
    struct err err = {0};
    cJSON *j = NULL;
    AUTO_BUF out = {0};

    buf_init(&out, 4096);
    assert_int_equal(json_parse(text, strlen(text), &j, &err), 0);
    json_print_tree(j, &out);
    buf_char(&out, 0);
    assert_string_equal(out.p, text);
    cJSON_Delete(j);
}

static void test_text_comes_back(void **state)
{
    (void)state;
    there_and_back("null");
    there_and_back("[]");
    there_and_back("{\"a\":{\"b\":[1,2.50,\"x\\ny\",true,false,null,{}]},\"c\":9007199254740992}");
}

static void test_trees_are_put_together(void **state)
{
    cJSON *j = cJSON_CreateObject();
    AUTO_BUF out = {0};

    (void)state;
    buf_init(&out, 4096);
    cJSON *list = cJSON_AddArrayToObject(j, "list");
    assert_true(cJSON_AddItemToArray(list, cJSON_CreateString("first")));
    assert_true(cJSON_AddItemToArray(list, cJSON_CreateNumber(-3e9)));
    assert_true(cJSON_AddItemToArray(list, cJSON_CreateNull()));
    assert_non_null(cJSON_AddNumberToObject(j, "n", 4));
    assert_non_null(cJSON_AddStringToObject(j, "N", "other case"));
    json_print_tree(j, &out);
    buf_char(&out, 0);
    assert_string_equal(out.p,
                        "{\"list\":[\"first\",-3000000000,null],\"n\":4,\"N\":\"other case\"}");
    assert_int_equal(cJSON_GetArraySize(list), 3);
    assert_ptr_equal(list->child->prev, list->child->next->next);
    assert_int_equal(list->child->next->valueint, INT32_MIN);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, "N")),
                        "other case");
    assert_null(cJSON_GetObjectItemCaseSensitive(j, "LIST"));
    assert_null(cJSON_GetStringValue(list));
    assert_true(cJSON_IsArray(list) && cJSON_IsObject(j) && !cJSON_IsString(NULL));
    cJSON_Delete(j);
}

static void test_what_cannot_be_added(void **state)
{
    cJSON *j = cJSON_CreateArray();

    (void)state;
    assert_false(cJSON_AddItemToArray(j, j));
    assert_false(cJSON_AddItemToArray(j, NULL));
    assert_false(cJSON_AddItemToObject(NULL, "a", j));
    assert_null(cJSON_AddNumberToObject(NULL, "a", 1));
    assert_int_equal(cJSON_GetArraySize(NULL), 0);
    cJSON_Delete(j);
    cJSON_Delete(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_comes_back),
        cmocka_unit_test(test_trees_are_put_together),
        cmocka_unit_test(test_what_cannot_be_added),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
