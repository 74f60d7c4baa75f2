/* Tokens in the state: they are made for what is there, never changed, and leave when they hold no
 * more, by the entry's time. */
#include "tests/support/store/store_kit.h"

static struct service_account *account_of(struct kit *k)
{
    return arena_new(k->a, struct service_account);
}

static struct token *token_of(struct kit *k, const char *account, const char *uid, int64_t until)
{
    struct token *t = arena_new(k->a, struct token);

    t->spec = arena_new(k->a, struct token_spec);
    t->spec->user = "someone";
    t->spec->serviceAccount = account;
    t->spec->serviceAccountUid = uid;
    t->spec->expirationTimestamp = until;
    t->spec->hash = slice_make("0123456789abcdef0123456789abcdef", 32);
    return t;
}

static const struct object *token_get(const struct kit *k, const char *name)
{
    return root_get(k->root, KIND_TOKEN, "default", name);
}

static size_t collect(struct kit *k, int64_t now)
{
    struct token_cursor at = {0};
    struct write_op ops[8];
    union command c = {.remove = {.head = {.type = CMD_REMOVE}, .ops = ops}};
    size_t n, all = 0;
    bool end;

    do { /* two at a time, that its cursor is used */
        end = root_tokens_void(k->root, now, &at, 2, ops, 8, &n);
        c.remove.n = (uint32_t)n;
        all += n;
        if (n)
            assert_int_equal(kit_apply(k, &c).code, 0);
    } while (!end);
    return all;
}

static void test_made_for_what_is_there(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    assert_int_equal(kit_create(&k, KIND_SERVICE_ACCOUNT, "default", "bot", account_of(&k)).code,
                     0);
    const char *uid = root_get(k.root, KIND_SERVICE_ACCOUNT, "default", "bot")->meta->uid;
    struct token *t = token_of(&k, "bot", "of-another", k.now + 1000);
    assert_int_equal(kit_create(&k, KIND_TOKEN, "default", "t", t).code, E_CONFLICT);
    t = token_of(&k, "bot", uid, k.now);
    assert_int_equal(kit_create(&k, KIND_TOKEN, "default", "t", t).code, E_CONFLICT);
    t = token_of(&k, "bot", uid, k.now + 1000);
    t->spec->hash.n = 31;
    assert_int_equal(kit_create(&k, KIND_TOKEN, "default", "t", t).code, E_INVALID);
    t->spec->hash.n = 32;
    assert_int_equal(kit_create(&k, KIND_TOKEN, "default", "t", t).code, 0);
    t = object_edit_as(token_get(&k, "t"), token, k.a);
    t->spec->user = "system:admin";
    assert_int_equal(kit_update(&k, KIND_TOKEN, "default", "t", t, 0, false).code, E_METHOD);
    assert_string_equal(object_as(token_get(&k, "t"), token)->spec->user, "someone");
    kit_end(&k);
}

static void test_leaves_when_it_holds_no_more(void **state)
{
    struct kit k;
    struct write_op op;

    (void)state;
    kit_begin(&k);
    assert_int_equal(kit_create(&k, KIND_SERVICE_ACCOUNT, "default", "bot", account_of(&k)).code,
                     0);
    const char *uid =
        arena_strdup(k.a, root_get(k.root, KIND_SERVICE_ACCOUNT, "default", "bot")->meta->uid);
    int64_t late = k.now + 100000;
    for (int i = 0; i < 5; i++) {
        struct token *t =
            token_of(&k, i % 2 ? "bot" : "", i % 2 ? uid : "", i ? late : k.now + 1000);
        assert_int_equal(kit_create(&k, KIND_TOKEN, "default", arena_printf(k.a, "t%d", i), t).code,
                         0);
    }
    assert_int_equal(collect(&k, k.now), 0);
    /* A leader whose clock is ahead asks too early: the entry's time counts. */
    assert_int_equal(collect(&k, late + 1), 5);
    assert_int_equal(root_count(k.root, KIND_TOKEN), 5);
    k.now += 1000;
    assert_int_equal(collect(&k, k.now), 1);
    assert_null(token_get(&k, "t0"));
    kit_op(&op, WRITE_DELETE, KIND_SERVICE_ACCOUNT, "default", "bot", NULL);
    assert_int_equal(kit_write(&k, &op, 1, "", "").code, 0);
    assert_int_equal(kit_create(&k, KIND_SERVICE_ACCOUNT, "default", "bot", account_of(&k)).code,
                     0);
    assert_non_null(token_void(k.root, token_get(&k, "t1"), k.now));
    assert_null(token_void(k.root, token_get(&k, "t2"), k.now));
    assert_int_equal(collect(&k, k.now), 2);
    assert_null(token_get(&k, "t1"));
    assert_non_null(token_get(&k, "t2"));
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_for_what_is_there),
        cmocka_unit_test(test_leaves_when_it_holds_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
