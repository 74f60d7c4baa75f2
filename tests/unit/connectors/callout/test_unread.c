/* What a server tells of its runs is read row by row: what cannot be read is told as that, spoils
 * no other row, and keeps neither the list nor the session from going on. */
#include "connectors/callout/callout.h"
#include "tests/support/unit.h"
#include "tests/support/web/callout_world.h"
#include "tests/support/web/still_loop.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static struct world {
    struct loop *loop;
    struct object *target;
    struct connector *c;
    unsigned reached, lost;
    enum run_state state; /* the last that was seen */
    char seen[256], unread[256], judged[256], lacks[256], message[1024], why[1024];
} W;

static void add(char *to, size_t size, const char *uid)
{
    size_t n = strlen(to);

    (void)snprintf(to + n, size - n, "%s%s", n ? " " : "", uid);
}
static void on_reach(void *arg, bool reachable, const char *session, const char *why)
{
    (void)arg;
    (void)session;
    (void)why;
    W.reached += reachable;
    W.lost += !reachable;
}
static void on_observed(void *arg, const struct observation *o)
{
    (void)arg;
    add(W.seen, sizeof W.seen, o->key.uid);
    W.state = o->state;
    str_copy(W.message, sizeof W.message, o->message);
}
static void on_nodes(void *arg, const struct inventory_page *p)
{
    (void)arg;
    (void)p;
}
static void on_unread(void *arg, const struct run_key *k, const char *why)
{
    (void)arg;
    assert_true(*why);
    str_copy(W.why, sizeof W.why, why);
    add(W.unread, sizeof W.unread, k ? k->uid : "?");
}
static const char *secret_get(void *arg, const char *name, const char *key)
{
    (void)arg;
    (void)name;
    return !strcmp(key, "key")     ? CALLOUT_WORLD_KEY
           : !strcmp(key, "token") ? "a-bearer-token"
           : !strcmp(key, "proxy") ? "user:a-password"
                                   : NULL;
}
static void secret_put(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

static void run_add(const char *uid)
{
    struct callout_world_run *r = &callout_world.runs[callout_world.n_runs++];

    *r = (struct callout_world_run){.key = {.epoch = 1, .try_ = 1}, .state = RUN_RUNNING};
    str_copy(r->key.uid, sizeof r->key.uid, uid);
}

static int begin(void **state)
{
    static const struct connector_events events = {
        .reach = on_reach, .observed = on_observed, .nodes = on_nodes, .run_unread = on_unread};
    struct connector_env env = {.events = &events,
                                .secret_get = secret_get,
                                .secret_put = secret_put,
                                .web = &script_web_ops};
    cJSON *j = cJSON_Parse(
        "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{\"name\":\"t1\"},"
        "\"spec\":{\"type\":\"callout\",\"tier\":\"hub\",\"connection\":{\"server\":"
        "\"https://rack.test\",\"credentialsFrom\":{\"secret\":\"rack\"}}}}");
    struct err e;

    (void)state;
    W = (struct world){.loop = still_loop_create(11)};
    env.loop = W.loop;
    assert_int_equal(object_from_json(kind_by_id(KIND_TARGET), j, 0, &W.target, &e), 0);
    cJSON_Delete(j);
    callout_world_begin(W.loop);
    run_add("a");
    run_add("b");
    assert_int_equal(connector_callout_ops.create(&env, W.target, &W.c, &e), 0);
    still_loop_run(W.loop, 5000);
    assert_int_equal(W.reached, 1);
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

    (void)err;
    a->done++;
    a->out = out;
    str_copy(W.lacks, sizeof W.lacks, seen ? seen->message : "");
}
static enum run_verdict judge(const struct run_listed *r, void *arg)
{
    (void)arg;
    add(W.judged, sizeof W.judged, r->seen.key.uid);
    return RUN_KEPT;
}

static void sweep(void)
{
    struct asked a = {.call = {.deadline_ms = loop_now_ms(W.loop) + 15000, .done = on_done}};

    W.judged[0] = W.unread[0] = '\0';
    connector_callout_ops.sweep(W.c, judge, NULL, &a.call);
    still_loop_run(W.loop, 1000);
    assert_int_equal(a.done, 1);
    assert_int_equal(a.out, OUT_DONE);
}

#define ROW "{\"key\":\"x.1.1\",\"state\":"
/* Both in lists and in changes. */
static const char *const bad[] = {
    ROW "\"ended\",\"proof\":\"TrustMe\"}",
    ROW "\"zombie\"}",
    ROW "\"running\",\"workers\":[{\"rank\":-1}]}",
    ROW "\"running\",\"workers\":7}",
    ROW "7}",
};
static const char *const nameless[] = {
    "7",
    "null",
    "{}",
    "{\"key\":7}",
    "{\"key\":\"x\",\"state\":\"running\"}",
    "{\"state\":\"running\"}",
};

static void test_a_row_of_a_list(void **state)
{
    (void)state;
    sweep();
    assert_string_equal(W.judged, "a b");
    assert_string_equal(W.lacks, "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        callout_world.row = bad[i];
        sweep();
        assert_string_equal(W.judged, "a b");
        assert_string_equal(W.unread, "x");
        assert_string_equal(W.lacks, "1 of its runs cannot be read");
    }
    for (size_t i = 0; i < sizeof nameless / sizeof *nameless; i++) {
        callout_world.row = nameless[i];
        sweep();
        assert_string_equal(W.judged, "a b");
        assert_string_equal(W.unread, "?");
    }
    callout_world.page = 1; /* on a page of several */
    sweep();
    assert_string_equal(W.judged, "a b");
    assert_string_equal(W.lacks, "1 of its runs cannot be read");
    callout_world.row = NULL;
    sweep();
    assert_string_equal(W.lacks, "");
    assert_string_equal(W.unread, "");
}

/* The session goes on, and the others are heard. Of the run that has a key, its server is asked. */
static void test_a_row_of_the_changes(void **state)
{
    (void)state;
    run_add("x");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        callout_world_row(bad[i]);
        callout_world.runs[0].changed = ++callout_world.changes;
        W.seen[0] = W.unread[0] = '\0';
        still_loop_run(W.loop, 12000);
        assert_string_equal(W.seen, "a x");
        assert_string_equal(W.unread, "x");
    }
    for (size_t i = 0; i < sizeof nameless / sizeof *nameless; i++) {
        callout_world_row(nameless[i]);
        callout_world.runs[0].changed = ++callout_world.changes;
        W.seen[0] = W.unread[0] = '\0';
        still_loop_run(W.loop, 12000);
        assert_string_equal(W.seen, "a");
        assert_string_equal(W.unread, "?");
    }
    assert_int_equal(W.reached, 1);
    assert_int_equal(W.lost, 0);
}

/* It is asked about one that still runs; the end comes with the changes ahead of that answer, which
 * is of before and is not told. */
static void test_an_answer_of_before_the_end(void **state)
{
    (void)state;
    run_add("x");
    callout_world.find_ms = 4000; /* an attempt ends after 5 s */
    callout_world_row(bad[0]);
    still_loop_run(W.loop, 6000);
    assert_string_equal(W.unread, "x");
    assert_string_equal(W.seen, "");
    callout_world.row = NULL;
    callout_world_end_run(&callout_world.runs[2], 0);
    still_loop_run(W.loop, 6000);
    assert_string_equal(W.seen, "x");
    assert_int_equal(W.state, RUN_ENDED);
    still_loop_run(W.loop, 30000);
    assert_string_equal(W.seen, "x");
}

/* One text of a row with half of a surrogate pair, which a program may have printed. */
static void test_half_of_a_pair(void **state)
{
    (void)state;
    callout_world_row(ROW "\"running\",\"message\":\"\\ud800\",\"reports\":[\"\\udfff\"]}");
    callout_world.runs[0].changed = ++callout_world.changes;
    still_loop_run(W.loop, 12000);
    assert_string_equal(W.seen, "a x");
    sweep();
    assert_string_equal(W.judged, "a b x");
    assert_string_equal(W.unread, "");
    assert_int_equal(W.lost, 0);
}

/* A server that quotes what it was sent gives away neither its Target's Secret nor tokens. */
static void test_what_it_was_sent(void **state)
{
    (void)state;
    callout_world_row(ROW "\"running\",\"message\":\"PUT " CALLOUT_WORLD_KEY
                          " Bearer a-bearer-token {\\\"proxyAuth\\\":\\\"user:a-password\\\"} "
                          "hanse-run-1\\/c\\/x.1.1\\/0\\/1\\/7\\/00112233\"}");
    still_loop_run(W.loop, 12000);
    assert_string_equal(W.message, "PUT *** Bearer *** {\"proxyAuth\":\"***\"} "
                                   "hanse-run-1/c/x.1.1/0/1/7/***");
    callout_world_row(ROW "\"" CALLOUT_WORLD_KEY "\"}");
    still_loop_run(W.loop, 12000);
    assert_null(strstr(W.why, "secret"));
    assert_non_null(strstr(W.why, "***"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_row_of_a_list, begin, end),
        cmocka_unit_test_setup_teardown(test_a_row_of_the_changes, begin, end),
        cmocka_unit_test_setup_teardown(test_an_answer_of_before_the_end, begin, end),
        cmocka_unit_test_setup_teardown(test_half_of_a_pair, begin, end),
        cmocka_unit_test_setup_teardown(test_what_it_was_sent, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
