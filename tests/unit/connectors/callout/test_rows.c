/* What a server tells of its machines is read row by row: what cannot be read is told as that, and
 * spoils no other row; but a list that has such a row did not come to its end. */
#include "connectors/callout/callout.h"
#include "tests/support/unit.h"
#include "tests/support/web/callout_world.h"
#include "tests/support/web/still_loop.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define GOOD(key)                                                                                  \
    "{\"key\":\"" key "\",\"state\":\"joined\",\"price\":2.5,\"currency\":\"EUR\","                \
    "\"billedFrom\":1000,\"class\":\"h100\",\"gpus\":4}"

static struct world {
    struct loop *loop;
    struct object *target;
    struct connector *c;
    bool reachable;
    char seen[512], unread[512], why[512];
    unsigned n_unread;
} W;

static void on_reach(void *arg, bool reachable, const char *session, const char *why)
{
    (void)arg;
    (void)session;
    (void)why;
    W.reachable = reachable;
}
static void on_observed(void *arg, const struct observation *o)
{
    (void)arg;
    (void)o;
}
static void on_nodes(void *arg, const struct inventory_page *p)
{
    (void)arg;
    (void)p;
}
static void add(char *to, size_t size, const char *key)
{
    size_t n = strlen(to);

    (void)snprintf(to + n, size - n, "%s%s", n ? " " : "", *key ? key : "?");
}
static void on_machine(void *arg, const struct machine_seen *m)
{
    (void)arg;
    add(W.seen, sizeof W.seen, m->key);
}
static void on_unread(void *arg, const char *key, const char *why)
{
    (void)arg;
    W.n_unread++;
    add(W.unread, sizeof W.unread, key);
    str_copy(W.why, sizeof W.why, why);
}
static void on_prices(void *arg, const struct machine_price *v, size_t n, const char *currency)
{
    (void)arg;
    (void)v;
    (void)n;
    (void)currency;
    add(W.seen, sizeof W.seen, "prices");
}
static const char *secret_get(void *arg, const char *name, const char *key)
{
    (void)arg;
    (void)name;
    return !strcmp(key, "key") ? CALLOUT_WORLD_KEY : NULL;
}
static void secret_put(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

static int begin(void **state)
{
    static const struct connector_events events = {.reach = on_reach,
                                                   .observed = on_observed,
                                                   .nodes = on_nodes,
                                                   .machine = on_machine,
                                                   .machine_unread = on_unread,
                                                   .prices = on_prices};
    struct connector_env env = {.events = &events,
                                .secret_get = secret_get,
                                .secret_put = secret_put,
                                .web = &script_web_ops};
    cJSON *j = cJSON_Parse(
        "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{\"name\":\"t1\"},"
        "\"spec\":{\"type\":\"callout\",\"tier\":\"burst\",\"connection\":{\"server\":"
        "\"https://rack.test\",\"credentialsFrom\":{\"secret\":\"rack\"}}}}");
    struct err e;

    (void)state;
    W = (struct world){.loop = still_loop_create(11)};
    env.loop = W.loop;
    assert_int_equal(object_from_json(kind_by_id(KIND_TARGET), j, 0, &W.target, &e), 0);
    cJSON_Delete(j);
    callout_world_begin(W.loop);
    assert_int_equal(connector_callout_ops.create(&env, W.target, &W.c, &e), 0);
    still_loop_run(W.loop, 5000);
    assert_true(W.reachable);
    return 0;
}

static int end(void **state)
{
    (void)state;
    connector_callout_ops.destroy(W.c);
    (void)object_unref(W.target);
    (void)still_loop_destroy(W.loop);
    return 0;
}

struct asked {
    struct call call; /* first */
    unsigned done;
    enum outcome out;
};
static void on_done(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    struct asked *a = (struct asked *)c;

    (void)seen;
    (void)err;
    a->done++;
    a->out = out;
}

enum ask { ASK_ORDER, ASK_LIST, ASK_RENEW, ASK_PRICES };
static enum outcome ask(enum ask what, const char *answer)
{
    static const char *const keys[] = {"k1"};
    const struct machine_order o = {.key = "k1",
                                    .class_ = "h100",
                                    .zone = "a",
                                    .ttl_ms = 60000,
                                    .image = "",
                                    .currency = "",
                                    .cluster = "c",
                                    .pool = "p"};
    struct asked a = {.call = {.deadline_ms = loop_now_ms(W.loop) + 15000, .done = on_done}};
    const struct machine_ops *ops = connector_callout_ops.machines;

    callout_world.machines = answer;
    W.seen[0] = W.unread[0] = W.why[0] = '\0';
    W.n_unread = 0;
    if (what == ASK_ORDER)
        ops->order(W.c, &o, &a.call);
    else if (what == ASK_LIST)
        ops->list(W.c, &a.call);
    else if (what == ASK_RENEW)
        ops->renew(W.c, keys, 1, 60000, &a.call);
    else
        ops->prices(W.c, &a.call);
    still_loop_run(W.loop, 1000);
    assert_int_equal(a.done, 1);
    return a.out;
}

/* What the cloud might say of a machine that it bills. */
static const char *const bad[] = {
    "{\"key\":\"k1\",\"state\":\"booting\",\"price\":-5}",
    "{\"key\":\"k1\",\"state\":\"booting\",\"price\":1e308}",
    "{\"key\":\"k1\",\"state\":\"booting\",\"price\":\"2.5\"}",
    "{\"key\":\"k1\",\"state\":\"booting\",\"price\":2,\"currency\":\"E\"}",
    "{\"key\":\"k1\",\"state\":\"booting\",\"billedFrom\":-5}",
    "{\"key\":\"k1\",\"state\":\"booting\",\"gpus\":-7}",
    "{\"key\":\"k1\",\"state\":\"zombie\"}",
    "{\"key\":\"k1\"}",
    "{\"key\":\"k1\",\"state\":\"booting\",\"id\":\"" /* 130 letters */
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123"
    "456789012345678901234567890123456789\"}",
};

static void test_an_answer_that_cannot_be_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ask(ASK_ORDER, bad[i]), OUT_UNKNOWN);
        assert_string_equal(W.seen, "");
        assert_string_equal(W.unread, "k1");
        assert_true(*W.why);
    }
    static const char *const others[] = {GOOD("k2"), "[]", "NaN", "", "{\"price\":NaN}", "7",
                                         "{\"key\":\"k1\",\"state\":\"booting\",\"price\":1e999}"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(ask(ASK_ORDER, others[i]), OUT_UNKNOWN);
        assert_string_equal(W.seen, "");
        assert_string_equal(W.unread, "k1");
    }
    assert_int_equal(ask(ASK_ORDER, GOOD("k1")), OUT_DONE);
    assert_string_equal(W.seen, "k1");
    assert_int_equal(W.n_unread, 0);
}

static void test_a_row_that_cannot_be_read_spoils_no_other(void **state)
{
    char text[2000];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        (void)snprintf(text, sizeof text, "{\"machines\":[%s,%s,%s]}", GOOD("k0"), bad[i],
                       GOOD("k2"));
        assert_int_equal(ask(ASK_LIST, text), OUT_UNKNOWN); /* it proves that nothing is gone */
        assert_string_equal(W.seen, "k0 k2");
        assert_string_equal(W.unread, "k1");
        assert_int_equal(ask(ASK_RENEW, text), OUT_UNKNOWN);
        assert_string_equal(W.seen, "k0 k2");
    }
    /* Nor are rows of which not even the key can be read. */
    assert_int_equal(ask(ASK_LIST, "{\"machines\":[7,{\"key\":\"a b\",\"state\":\"joined\"},"
                                   "{\"state\":\"joined\"}," GOOD("k0") "]}"),
                     OUT_UNKNOWN);
    assert_string_equal(W.seen, "k0");
    assert_string_equal(W.unread, "? ? ?");
    assert_int_equal(ask(ASK_LIST, "{\"machines\":[" GOOD("k0") "]}"), OUT_DONE);
    assert_int_equal(W.n_unread, 0);
}

static void test_it_counts_on_all_pages(void **state)
{
    (void)state;
    callout_world.more_machines = "{\"machines\":[" GOOD("k2") "]}";
    assert_int_equal(ask(ASK_LIST, "{\"machines\":[{\"key\":\"k1\"}],\"next\":\"more\"}"),
                     OUT_UNKNOWN);
    assert_string_equal(W.seen, "k2");
    assert_string_equal(W.unread, "k1");
    assert_int_equal(ask(ASK_LIST, "{\"machines\":[" GOOD("k1") "],\"next\":\"more\"}"), OUT_DONE);
    assert_string_equal(W.seen, "k1 k2");
}

static void test_lists_and_prices_that_are_none(void **state)
{
    static const char *const none[] = {"NaN", "7", "{\"machines\":7}", "{\"machines\":[NaN]}",
                                       "{\"machines\":[],\"next\":7}"};

    (void)state;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(ask(ASK_LIST, none[i]), OUT_UNKNOWN);
        assert_string_equal(W.unread, "?"); /* it is said, if not of which */
    }
    assert_int_equal(ask(ASK_PRICES, "{\"prices\":[{\"class\":\"h100\",\"price\":-1}]}"),
                     OUT_UNKNOWN);
    assert_string_equal(W.unread, "?");
    assert_int_equal(ask(ASK_PRICES, "{\"prices\":[{\"class\":\"h100\",\"price\":1}]}"), OUT_DONE);
    assert_string_equal(W.seen, "prices");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_answer_that_cannot_be_read, begin, end),
        cmocka_unit_test_setup_teardown(test_a_row_that_cannot_be_read_spoils_no_other, begin, end),
        cmocka_unit_test_setup_teardown(test_it_counts_on_all_pages, begin, end),
        cmocka_unit_test_setup_teardown(test_lists_and_prices_that_are_none, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
