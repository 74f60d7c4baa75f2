/* How fast users may write into a namespace: decided by the state and the time of entries alone,
 * the same where it is asked ahead; nothing is counted twice, nothing of Hanse's own is. */
#include "controlplane/server/figures.h"
#include "tests/support/store/quota_kit.h"

static struct result secret_make(struct kit *k)
{
    return user_create(k, KIND_SECRET, arena_printf(k->a, "s%llu", (unsigned long long)k->number),
                       arena_new(k->a, struct secret));
}

/* How many of n are let in at this time. */
static int let_in(struct kit *k, int n)
{
    int in = 0;

    for (int i = 0; i < n; i++) {
        struct result r = secret_make(k);

        assert_true(r.code == 0 || r.code == E_LIMIT);
        in += r.code == 0;
    }
    return in;
}

static void test_a_bucket(void **state)
{
    struct kit k;

    (void)state;
    quota_begin(&k);
    quota_make(&k, "pace", QUOTA_BURST "=5 " QUOTA_RATE "=2");
    assert_int_equal(let_in(&k, 8), 5);
    struct result r = secret_make(&k);
    assert_int_equal(r.code, E_LIMIT);
    assert_int_equal(r.retry_s, 1);
    assert_string_equal(
        r.text, "exceeded quota: pace, namespace default is written too fast: limited: "
                "hanse.dev/writes-per-second=2, hanse.dev/writes-burst=5: try again in 1 s");
    k.now += 499;
    assert_int_equal(let_in(&k, 2), 0);
    k.now += 1;
    assert_int_equal(let_in(&k, 2), 1);
    kit_reload(&k); /* another member goes on from the same level */
    k.now += 1250;
    assert_int_equal(let_in(&k, 9), 2);
    k.now += 250;
    assert_int_equal(let_in(&k, 9), 1);
    k.now += 3600 * 1000;
    assert_int_equal(let_in(&k, 9), 5);
    k.now -= 1800 * 1000; /* an entry's time that goes back gives nothing */
    assert_int_equal(let_in(&k, 9), 0);
    kit_end(&k);
}

static void test_ten_seconds_worth(void **state)
{
    struct kit k;

    (void)state;
    quota_begin(&k);
    quota_make(&k, "pace", QUOTA_RATE "=500m");
    assert_int_equal(let_in(&k, 9), 5);
    assert_int_equal(secret_make(&k).retry_s, 2);
    kit_end(&k);
}

/* Who asks for more than the burst at once gets it, and pays for it. */
static void test_a_large_set(void **state)
{
    struct write_op ops[10];
    struct kit k;

    (void)state;
    quota_begin(&k);
    assert_int_equal(kit_namespace(&k, "team").code, 0);
    quota_make(&k, "pace", QUOTA_BURST "=5 " QUOTA_RATE "=1");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 10; i++)
            user_op(&k, &ops[i], KIND_SECRET, arena_printf(k.a, "a%d-%d", round, i),
                    arena_new(k.a, struct secret));
        struct result r = user_ops(&k, ops, 10);
        assert_int_equal(r.code, round ? E_LIMIT : 0);
        if (round)
            assert_int_equal(r.retry_s, 10); /* 5 in debt, and 5 to be full */
    }
    k.now += 5000;
    assert_int_equal(let_in(&k, 3), 0);
    k.now += 1000;
    assert_int_equal(let_in(&k, 3), 1);
    kit_end(&k);
}

static void test_what_costs_nothing(void **state)
{
    struct write_op op;
    struct kit k;

    (void)state;
    quota_begin(&k);
    assert_int_equal(kit_namespace(&k, "team").code, 0);
    quota_make(&k, "pace", QUOTA_BURST "=2 " QUOTA_RATE "=1");
    /* what Hanse writes by itself */
    for (int i = 0; i < 5; i++)
        assert_int_equal(kit_create(&k, KIND_EVENT, "default", arena_printf(k.a, "e%d", i),
                                    arena_new(k.a, struct event))
                             .code,
                         0);
    /* another namespace */
    k.ns = "team";
    assert_int_equal(let_in(&k, 5), 5);
    k.ns = "default";
    /* the answer of before: by stamp, and by key, also while nothing else is let in */
    user_op(&k, &op, KIND_SECRET, "once", arena_new(k.a, struct secret));
    union command c = user_command(&k, &op, 1);
    (void)snprintf(c.request.key, sizeof c.request.key, "k1");
    (void)snprintf(c.request.fingerprint, sizeof c.request.fingerprint, "p");
    for (int i = 0; i < 4; i++) {
        struct result r = kit_apply(&k, &c), ahead = {0};

        assert_int_equal(r.code, 0);
        assert_true(r.repeated == (i > 0));
        assert_false(root_rate_over(k.root, k.now, &c.request, &ahead));
    }
    op.object = object_unref(op.object);
    user_op(&k, &op, KIND_SECRET, "twice", arena_new(k.a, struct secret));
    c = user_command(&k, &op, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(kit_apply(&k, &c).code, 0);
    op.object = object_unref(op.object);
    assert_int_equal(secret_make(&k).code, E_LIMIT); /* two were counted, each once */
    assert_int_equal(
        kit_create(&k, KIND_EVENT, "default", "last", arena_new(k.a, struct event)).code, 0);
    /* a refusal for being too fast is no answer for good */
    user_op(&k, &op, KIND_SECRET, "later", arena_new(k.a, struct secret));
    c = user_command(&k, &op, 1);
    (void)snprintf(c.request.key, sizeof c.request.key, "k2");
    struct result r = kit_apply(&k, &c);
    assert_int_equal(r.code, E_LIMIT);
    assert_false(r.final);
    k.now += 1000;
    assert_int_equal(kit_apply(&k, &c).code, 0);
    op.object = object_unref(op.object);
    /* the quota itself, as fast as one likes */
    struct resource_quota *q = object_edit_as(
        root_get(k.root, KIND_RESOURCE_QUOTA, "default", "pace"), resource_quota, k.a);
    q->spec = quota_of(&k, QUOTA_BURST "=3 " QUOTA_RATE "=1")->spec;
    kit_op(&op, WRITE_UPDATE, KIND_RESOURCE_QUOTA, "default", "pace", q);
    assert_int_equal(user_ops(&k, &op, 1).code, 0);
    assert_int_equal(secret_make(&k).code, E_LIMIT);
    assert_int_equal(user_delete(&k, KIND_RESOURCE_QUOTA, "pace").code, 0);
    assert_int_equal(let_in(&k, 9), 9);
    quota_make(&k, "pace", QUOTA_BURST "=2 " QUOTA_RATE "=1");
    assert_int_equal(let_in(&k, 9), 2);
    kit_end(&k);
}

static void test_a_refused_write_costs_too(void **state)
{
    struct kit k;

    (void)state;
    quota_begin(&k);
    quota_make(&k, "pace", QUOTA_BURST "=3 " QUOTA_RATE "=1");
    for (int i = 0; i < 3; i++)
        assert_int_equal(user_delete(&k, KIND_SECRET, "none").code, E_NOTFOUND);
    assert_int_equal(user_delete(&k, KIND_SECRET, "none").code, E_LIMIT);
    kit_end(&k);
}

static void test_a_changed_rate(void **state)
{
    struct write_op op;
    struct kit k;

    (void)state;
    quota_begin(&k);
    quota_make(&k, "pace", QUOTA_BURST "=10 " QUOTA_RATE "=1");
    assert_int_equal(let_in(&k, 10), 10);
    k.now += 2000;
    struct resource_quota *q = object_edit_as(
        root_get(k.root, KIND_RESOURCE_QUOTA, "default", "pace"), resource_quota, k.a);
    q->spec = quota_of(&k, QUOTA_BURST "=10 " QUOTA_RATE "=4")->spec;
    kit_op(&op, WRITE_UPDATE, KIND_RESOURCE_QUOTA, "default", "pace", q);
    assert_int_equal(user_ops(&k, &op, 1).code, 0);
    k.now += 1000;
    assert_int_equal(let_in(&k, 10), 2 + 4); /* each second at its rate */
    kit_end(&k);
}

/* Asked ahead of the log it is what apply says. */
static void test_asked_ahead(void **state)
{
    struct write_op op;
    struct kit k;

    (void)state;
    quota_begin(&k);
    quota_make(&k, "pace", QUOTA_BURST "=2 " QUOTA_RATE "=1");
    for (int i = 0; i < 12; i++) {
        struct result ahead = {0};

        user_op(&k, &op, KIND_SECRET, arena_printf(k.a, "s%d", i), arena_new(k.a, struct secret));
        union command c = user_command(&k, &op, 1);
        bool over = root_rate_over(k.root, k.now, &c.request, &ahead);
        struct result r = user_ops(&k, &op, 1);
        assert_true(over == (r.code == E_LIMIT));
        if (over) {
            assert_int_equal(ahead.code, r.code);
            assert_int_equal(ahead.retry_s, r.retry_s);
            assert_string_equal(ahead.text, r.text);
        }
        k.now += 400;
    }
    kit_end(&k);
}

/* Of the quota "pace" as it is shown now: USED/HARD of its burst. */
static void shows(struct kit *k, const char *says)
{
    const struct object *o = root_get(k->root, KIND_RESOURCE_QUOTA, "default", "pace");
    struct figures *f = NULL;
    struct object *shown = figures_shown(&f, k->root, k->now, o);
    char text[64];

    assert_non_null(shown);
    const struct resource_quota_status *s = object_as(shown, resource_quota)->status;
    const char *hard = label_get(s->hard, s->n_hard, QUOTA_BURST),
               *used = label_get(s->used, s->n_used, QUOTA_BURST);

    assert_null(label_get(s->hard, s->n_hard, QUOTA_RATE)); /* which has no figure */
    assert_null(label_get(s->used, s->n_used, QUOTA_RATE));
    assert_string_equal(label_get(s->hard, s->n_hard, "count/events"), "9");
    assert_string_equal(label_get(s->used, s->n_used, "secrets"), "1");
    assert_int_equal(s->n_hard, 3);
    assert_int_equal(s->n_used, 3);
    for (uint32_t i = 1; i < s->n_used; i++)
        assert_true(strcmp(s->used[i - 1].key, s->used[i].key) < 0);
    (void)snprintf(text, sizeof text, "%s/%s", used ? used : "", hard ? hard : "");
    assert_string_equal(text, says);
    (void)object_unref(shown);
    (void)figures_destroy(f);
}

static void test_what_is_shown(void **state)
{
    struct write_op ops[10];
    struct figures *f = NULL;
    struct kit k;

    (void)state;
    quota_begin(&k);
    quota_make(&k, "pace", "count/events=9 " QUOTA_BURST "=5 " QUOTA_RATE "=2 secrets=1");
    assert_int_equal(secret_make(&k).code, 0);
    shows(&k, "1/5");
    int64_t rv = root_get(k.root, KIND_RESOURCE_QUOTA, "default", "pace")->meta->resourceVersion;
    for (int i = 0; i < 3; i++)
        assert_int_equal(user_delete(&k, KIND_WORKLOAD, "none").code, E_NOTFOUND); /* it costs */
    shows(&k, "4/5");
    k.now += 499; /* begun ones count */
    shows(&k, "4/5");
    k.now += 1;
    shows(&k, "3/5");
    kit_reload(&k);
    shows(&k, "3/5");
    k.now += 3600 * 1000;
    shows(&k, "0/5");
    for (int i = 0; i < 10; i++)
        kit_op(&ops[i], WRITE_DELETE, KIND_WORKLOAD, "default", "none", NULL);
    assert_int_equal(user_ops(&k, ops, 10).code, E_NOTFOUND);
    shows(&k, "10/5"); /* in debt */
    /* no watch fires for it */
    const struct object *o = root_get(k.root, KIND_RESOURCE_QUOTA, "default", "pace");
    assert_int_equal(o->meta->resourceVersion, rv);
    struct write_op op;
    struct resource_quota *q = object_edit_as(o, resource_quota, k.a);
    q->spec = quota_of(&k, "count/events=9 " QUOTA_RATE "=500m secrets=1")->spec;
    kit_op(&op, WRITE_UPDATE, KIND_RESOURCE_QUOTA, "default", "pace", q);
    assert_int_equal(user_ops(&k, &op, 1).code, 0);
    k.now += 10 * 1000;
    shows(&k, "5/5"); /* ten seconds' worth; 5 were owed, and are paid */
    quota_make(&k, "counts", "secrets=1");
    assert_null(figures_shown(&f, k.root, k.now,
                              root_get(k.root, KIND_RESOURCE_QUOTA, "default", "counts")));
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_shown),      cmocka_unit_test(test_a_bucket),
        cmocka_unit_test(test_ten_seconds_worth),  cmocka_unit_test(test_a_large_set),
        cmocka_unit_test(test_what_costs_nothing), cmocka_unit_test(test_a_refused_write_costs_too),
        cmocka_unit_test(test_a_changed_rate),     cmocka_unit_test(test_asked_ahead)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
