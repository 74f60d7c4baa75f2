/* Requests at most once: answers under a key are final, for a day, within bounds; answers under a
 * member's stamp last as long as somebody may wait for them. */
#include "tests/support/store/store_kit.h"

#define HOUR_MS (3600ll * 1000)

/* Of a queue: created, or refused by the API (refusal). */
struct ask {
    const char *user, *key, *print, *name, *old;
    int refusal, wide;
    bool again, part, remove;
    uint64_t session, number, floor;
};

static struct result ask(struct kit *k, struct ask q)
{
    union command c = {.head = {.type = CMD_REQUEST}};
    struct write_op op;

    kit_op_queue(k, &op, q.name ? q.name : "q", "");
    if (q.remove) {
        op.object = object_unref(op.object);
        op.verb = WRITE_DELETE;
    }
    str_copy(c.head.user, sizeof c.head.user, q.user ? q.user : "alice");
    (void)snprintf(c.head.request_id, sizeof c.head.request_id, "r-%llu",
                   (unsigned long long)k->number);
    str_copy(c.request.key, sizeof c.request.key, q.key ? q.key : "");
    str_copy(c.request.fingerprint, sizeof c.request.fingerprint,
             q.print ? q.print
             : q.key ? "p"
                     : "");
    str_copy(c.request.old_id, sizeof c.request.old_id, q.old ? q.old : "");
    c.request.again = q.again;
    c.request.part = q.part;
    c.request.refusal = (uint32_t)-q.refusal;
    (void)snprintf(c.request.text, sizeof c.request.text, "%*s", q.wide,
                   q.refusal ? "no such queue" : "");
    c.request.member = 2;
    c.request.session = q.session;
    c.request.number = q.number;
    c.request.floor = q.floor;
    c.request.write.ops = &op;
    c.request.write.n = q.refusal ? 0 : 1;
    struct result r = kit_apply(k, &c);
    op.object = object_unref(op.object);
    return r;
}

#define ASK(...) ask(&k, (struct ask){__VA_ARGS__})

static void test_a_refusal_is_final(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    struct result no = ASK(.key = "a", .refusal = E_NOTFOUND);
    assert_int_equal(no.code, E_NOTFOUND);
    assert_true(no.final && !no.repeated);
    /* What waited in a member that was stopped comes now, and could be done. */
    struct result late = ASK(.key = "a");
    assert_int_equal(late.code, E_NOTFOUND);
    assert_string_equal(late.text, "no such queue");
    assert_true(late.final && late.repeated);
    assert_null(root_get(k.root, KIND_QUEUE, "", "q"));
    /* And the other way round: who was refused on an old view is told what was done. */
    struct result yes = ASK(.key = "b");
    assert_int_equal(yes.code, 0);
    assert_true(yes.final && !yes.repeated);
    struct result told = ASK(.key = "b", .refusal = E_CONFLICT);
    assert_int_equal(told.code, 0);
    assert_true(told.repeated && told.rv == yes.rv);
    /* The state's own refusal, too. */
    assert_int_equal(ASK(.key = "c").code, E_EXISTS);
    assert_int_equal(kit_delete(&k, KIND_QUEUE, "", "q").code, 0);
    assert_int_equal(ASK(.key = "c").code, E_EXISTS);
    assert_null(root_get(k.root, KIND_QUEUE, "", "q"));
    /* Keys are each user's own, and name one request. */
    assert_int_equal(ASK(.key = "c", .user = "bob").code, 0);
    struct result other = ASK(.key = "c", .print = "another");
    assert_int_equal(other.code, E_INVALID);
    assert_string_equal(other.field, "Idempotency-Key");
    assert_true(other.final);
    root_check(k.root);
    kit_end(&k);
}

/* What is no answer is not kept: computed from an old version, the first of several parts,
 * later. */
static void test_what_is_not_final(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    assert_int_equal(ASK(.key = "a", .name = "x").code, 0);
    struct result r = ASK(.key = "b", .name = "x", .again = true);
    assert_int_equal(r.code, E_EXISTS);
    assert_false(r.final);
    r = ASK(.key = "b", .name = "x", .remove = true, .again = true, .part = true);
    assert_int_equal(r.code, 0);
    assert_false(r.final);
    r = ASK(.key = "b", .name = "y");
    assert_int_equal(r.code, 0);
    assert_true(r.final);
    r = ASK(.key = "b", .name = "z", .part = true); /* a part that comes late */
    assert_int_equal(r.code, 0);
    assert_true(r.repeated);
    assert_null(root_get(k.root, KIND_QUEUE, "", "z"));
    assert_false(ASK(.key = "c", .refusal = E_UNAVAIL).final);
    assert_int_equal(ASK(.key = "c", .name = "z").code, 0);
    kit_end(&k);
}

/* A user fills his share, and no more; a day later there is room; nothing goes early. */
static void test_keys_are_bounded(void **state)
{
    struct result r = {0}, first;
    struct kit k;
    unsigned n = 0;

    (void)state;
    kit_begin(&k);
    first = ASK(.key = "first");
    for (; n < 200000 && r.code != E_LIMIT; n++) {
        char key[REQUEST_ID_MAX];
        (void)snprintf(key, sizeof key, "k%0120u", n);
        r = ASK(.key = key, .refusal = E_NOTFOUND, .wide = 255);
        if (n % 1000 == 0)
            arena_reset(k.a);
    }
    print_message("%u answers of one user in %llu bytes\n", n,
                  (unsigned long long)k.root->keys_bytes);
    assert_int_equal(r.code, E_LIMIT);
    assert_true(n > 65536 && k.root->keys_bytes <= LIMIT_KEYS_USER_MAX_BYTES);
    assert_int_equal(ASK(.key = "new", .user = "bob", .name = "b").code, 0);
    assert_int_equal(kit_namespace(&k, "c").code, 0);
    k.now += 24 * HOUR_MS - 1000;
    r = ASK(.key = "first");
    assert_int_equal(r.code, 0);
    assert_true(r.repeated && r.rv == first.rv);
    assert_int_equal(ASK(.key = "new").code, E_LIMIT);
    k.now += 2000;
    uint64_t before = tree_count(k.root->keys);
    assert_int_equal(ASK(.key = "new", .name = "d").code, 0);
    assert_true(before - tree_count(k.root->keys) < 32); /* bounded work for one entry */
    root_check(k.root);
    kit_end(&k);
}

static void test_stamps(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    struct result one = ASK(.session = 5, .number = 1, .floor = 1);
    assert_int_equal(one.code, 0);
    struct result again = ASK(.session = 5, .number = 1, .floor = 1); /* its answer was lost */
    assert_int_equal(again.code, 0);
    assert_true(again.rv == one.rv);
    assert_int_equal(ASK(.session = 5, .number = 2, .floor = 1).code, E_EXISTS);
    assert_int_equal(kit_delete(&k, KIND_QUEUE, "", "q").code, 0);
    /* Nobody waits for those below 3: they are let go, and never done again. */
    assert_int_equal(ASK(.session = 5, .number = 3, .floor = 3, .name = "x").code, 0);
    assert_int_equal(tree_count(k.root->recents), 1);
    assert_int_equal(ASK(.session = 5, .number = 2, .floor = 1).code, E_UNAVAIL);
    assert_null(root_get(k.root, KIND_QUEUE, "", "q"));
    /* It started anew: what waited in a socket from before is over. */
    assert_int_equal(ASK(.session = 6, .number = 1, .floor = 1, .name = "y").code, 0);
    assert_int_equal(ASK(.session = 5, .number = 4, .floor = 3).code, E_UNAVAIL);
    assert_int_equal(tree_count(k.root->recents), 1);
    assert_int_equal(ASK(.session = 6, .number = LIMIT_STAMPS_MAX + 1, .floor = 1).code, E_LIMIT);
    assert_int_equal(root_session(k.root, 2), 6);
    assert_int_equal(root_session(k.root, 1), 0);
    root_check(k.root);
    kit_end(&k);
}

/* The first sending was taken by a member of the version before, or by one that is behind. */
static void test_what_older_members_did(void **state)
{
    union command member = {.member = {.head = {.type = CMD_MEMBER, .user = "x"},
                                       .member = {.id = 1, .name = "m1", .feature_level = 5}}};
    struct write_op op;
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_op_queue(&k, &op, "q", "");
    struct result first = kit_write(&k, &op, 1, "", "k-a-1");
    assert_int_equal(first.code, 0);
    assert_int_equal(kit_apply(&k, &member).code, 0);
    struct result again = ASK(.key = "a", .refusal = E_EXISTS, .old = "k-a");
    assert_int_equal(again.code, 0);
    assert_true(again.repeated && again.rv == first.rv);
    kit_op_queue(&k, &op, "q", "");
    assert_int_equal(kit_write(&k, &op, 1, "", "k-a-1").rv, first.rv);
    assert_int_equal(ASK(.key = "b", .refusal = E_NOTFOUND, .old = "k-b").code, E_NOTFOUND);
    kit_op_queue(&k, &op, "b", "");
    assert_int_equal(kit_write(&k, &op, 1, "", "k-b").code, E_UNAVAIL);
    assert_null(root_get(k.root, KIND_QUEUE, "", "b"));
    kit_end(&k);
}

static void test_a_snapshot_keeps_them(void **state)
{
    struct root *back = NULL;
    struct err e = {0};
    struct kit k;
    AUTO_BUF b;

    (void)state;
    kit_begin(&k);
    buf_init(&b, 1 << 20);
    assert_int_equal(ASK(.key = "a", .refusal = E_NOTFOUND).code, E_NOTFOUND);
    assert_int_equal(ASK(.session = 5, .number = 7, .floor = 6).code, 0);
    assert_int_equal(snapshot_encode(k.root, &b, &e), 0);
    assert_int_equal(snapshot_decode(slice_make(b.p, b.n), &back, &e), 0);
    assert_true(root_digest(back) == root_digest(k.root));
    root_check(back);
    k.root = root_unref(k.root);
    k.root = back;
    assert_int_equal(ASK(.key = "a").code, E_NOTFOUND);
    assert_int_equal(ASK(.key = "a", .print = "x").code, E_INVALID);
    assert_int_equal(ASK(.session = 5, .number = 7, .floor = 6, .name = "x").code, 0);
    assert_null(root_get(k.root, KIND_QUEUE, "", "x"));
    assert_int_equal(ASK(.session = 5, .number = 5, .floor = 5).code, E_UNAVAIL);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_refusal_is_final),
                                       cmocka_unit_test(test_what_is_not_final),
                                       cmocka_unit_test(test_keys_are_bounded),
                                       cmocka_unit_test(test_stamps),
                                       cmocka_unit_test(test_what_older_members_did),
                                       cmocka_unit_test(test_a_snapshot_keeps_them)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
