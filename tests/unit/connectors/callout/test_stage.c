/* Staging over a callout server that is asked for it: one question however often it is asked, an
 * end by the deadline, and nothing that a server itself says of a checkpoint is believed. With a
 * real server and the real tool: test_contract_runners.c. */
#include "connectors/callout/callout.h"
#include "connectors/report/report.h"
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
    bool reachable;
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
    static const struct connector_events events = {
        .reach = on_reach, .observed = on_observed, .nodes = on_nodes};
    struct connector_env env = {.events = &events,
                                .secret_get = secret_get,
                                .secret_put = secret_put,
                                .web = &script_web_ops};
    cJSON *j = cJSON_Parse(
        "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{\"name\":\"t1\"},"
        "\"spec\":{\"type\":\"callout\",\"tier\":\"hub\",\"connection\":{\"server\":"
        "\"https://rack.test\",\"credentialsFrom\":{\"secret\":\"rack\"},\"runners\":true}}}");
    struct err e;

    (void)state;
    W = (struct world){.loop = still_loop_create(11)};
    env.loop = W.loop;
    assert_int_equal(object_from_json(kind_by_id(KIND_TARGET), j, 0, &W.target, &e), 0);
    cJSON_Delete(j);
    callout_world_begin(W.loop);
    callout_world.runner = callout_world.stages = true;
    assert_int_equal(connector_callout_ops.create(&env, W.target, &W.c, &e), 0);
    still_loop_run(W.loop, 1000);
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

/* ---- calls ---- */
struct asked {
    struct call call; /* first */
    unsigned done;
    enum outcome out;
    bool has;
    struct observation seen;
    struct err err;
};
static void on_done(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    struct asked *a = (struct asked *)c;

    a->done++;
    a->out = out;
    a->has = seen != NULL;
    if (seen)
        a->seen = *seen;
    if (err)
        a->err = *err;
}

static void ask_begin(struct asked *a, int64_t epoch, int64_t look)
{
    static const char *const env[] = {"SECRET=of the program", "AWS_REGION=eu-1", NULL};
    static struct assignment at = {.node = "t1.n1", .mig = ""};
    static struct placement p = {
        .target = "t1", .class_ = "", .assignments = &at, .n_assignments = 1};
    const struct run_order o = {.key = {.uid = "u-1", .epoch = epoch},
                                .placement = &p,
                                .env = env,
                                .checkpoint_dir = "/ck/u-1",
                                .resume_path = look ? "" : "/ck/u-1/sealed/e1/cut-1.json",
                                .resume_digest = look ? "" : "sha256:00",
                                .resume_step = -1,
                                .look_epoch = look,
                                .look_workers = look ? 2 : 0};

    *a = (struct asked){.call = {.deadline_ms = loop_now_ms(W.loop) + 15000, .done = on_done}};
    connector_callout_ops.stage(W.c, &o, &a->call);
    assert_int_equal(a->done, 0);
}

static struct asked ask(const char *staged)
{
    struct asked a;

    callout_world.staged = staged;
    ask_begin(&a, 2, 0);
    still_loop_run(W.loop, 15001);
    assert_int_equal(a.done, 1);
    return a;
}

/* ---- questions ---- */
static void the_same_question_has_the_same_key(void **state)
{
    struct asked a, b;
    char skey[64];

    (void)state;
    callout_world.staged = "\"done\":false";
    ask_begin(&a, 2, 0);
    still_loop_run(W.loop, 10);
    str_copy(skey, sizeof skey, callout_world.skey);
    assert_int_equal(strlen(skey), 32);
    assert_non_null(strstr(callout_world.order, "[\"run\",\"--stage\",\"--workload\",\"u-1\","
                                                "\"--resume\",\"/ck/u-1/sealed/e1/cut-1.json\""));
    assert_non_null(strstr(callout_world.order, "\"env\":[\"AWS_REGION=eu-1\"]"));
    assert_null(strstr(callout_world.order, "SECRET"));
    ask_begin(&b, 3, 0); /* for the next epoch */
    still_loop_run(W.loop, 10);
    assert_string_equal(callout_world.skey, skey);
    still_loop_run(W.loop, 15001);
    assert_int_equal(a.out, OUT_UNKNOWN);
    ask_begin(&a, 2, 1); /* another one */
    still_loop_run(W.loop, 10);
    assert_string_not_equal(callout_world.skey, skey);
    assert_non_null(strstr(callout_world.order, "\"--checkpoint-dir\",\"/ck/u-1\",\"--look\",\"1\","
                                                "\"--workers\",\"2\""));
    still_loop_run(W.loop, 15001);
    assert_int_equal(a.done + b.done, 2);
}

static void it_is_asked_again_until_it_is_done(void **state)
{
    struct asked a;

    (void)state;
    callout_world.staged = "\"done\":false";
    ask_begin(&a, 2, 0);
    still_loop_run(W.loop, 6000);
    assert_int_equal(a.done, 0);
    assert_in_range(callout_world.n_staged, 3, 8); /* slower and slower */
    callout_world.staged = "\"done\":true,\"said\":\"{\\\"hanse\\\":1,\\\"said\\\":\\\"holds\\\","
                           "\\\"checkpoint\\\":{\\\"epoch\\\":1,\\\"step\\\":7,\\\"ranks\\\":2,"
                           "\\\"digest\\\":\\\"sha256:aa\\\",\\\"path\\\":\\\"/c.json\\\"}}\\n\"";
    still_loop_run(W.loop, 9001);
    assert_int_equal(a.done, 1);
    assert_int_equal(a.out, OUT_DONE);
    assert_true(a.seen.checkpoint.present);
    assert_int_equal(a.seen.checkpoint.step, 7);
    assert_int_equal(a.seen.checkpoint.epoch, 1);
    assert_string_equal(a.seen.checkpoint.path, "/c.json");
}

static void its_end_comes_by_the_deadline(void **state)
{
    struct asked a;

    (void)state;
    a = ask("\"done\":false");
    assert_int_equal(a.out, OUT_UNKNOWN);
    callout_world.silent = true;
    ask_begin(&a, 2, 0);
    still_loop_run(W.loop, 15001);
    assert_int_equal(a.out, OUT_UNKNOWN);
    callout_world.silent = false;
    callout_world.staged = "\"done\":false";
    ask_begin(&a, 2, 0);
    still_loop_run(W.loop, 1000);
    connector_callout_ops.update(W.c, W.target); /* and with the connector's session */
    assert_int_equal(a.done, 1);
    assert_int_equal(a.out, OUT_UNKNOWN);
}

/* ---- answers ---- */
static void what_the_tool_refuses_is_refused(void **state)
{
    struct asked a;

    (void)state;
    a = ask("\"done\":true,\"said\":\"{\\\"hanse\\\":1,\\\"said\\\":\\\"refused\\\",\\\"reason\\\":"
            "\\\"CheckpointAltered\\\",\\\"message\\\":\\\"it is not what was saved\\\"}\"");
    assert_int_equal(a.out, OUT_REJECTED);
    assert_int_equal(a.err.code, E_CHECKPOINT);
    assert_string_equal(a.seen.reason, "CheckpointAltered");
    assert_string_equal(a.err.text, "it is not what was saved");
    a = ask("\"done\":true,\"said\":\"{\\\"hanse\\\":1,\\\"said\\\":\\\"refused\\\",\\\"reason\\\":"
            "\\\"StoreUnreachable\\\",\\\"message\\\":\\\"no such mount\\\"}\"");
    assert_int_equal(a.out, OUT_REJECTED);
    assert_int_not_equal(a.err.code, E_CHECKPOINT);
    assert_string_equal(a.seen.reason, "StoreUnreachable");
    a = ask("\"done\":true,\"said\":\"{\\\"hanse\\\":1,\\\"said\\\":\\\"unknown\\\","
            "\\\"message\\\":\\\"it hangs\\\"}\"");
    assert_int_equal(a.out, OUT_UNKNOWN);
}

/* None of this may make a good checkpoint a bad one. */
static void nothing_else_says_anything(void **state)
{
    static const char *const said[] = {
        "\"done\":true",
        "\"done\":true,\"said\":\"sh: hanse: not found\",\"message\":\"it ended with 127\"",
        "\"done\":true,\"said\":\"{\\\"hanse\\\":2,\\\"said\\\":\\\"holds\\\"}\"",
        "\"done\":true,\"said\":\"{\\\"hanse\\\":1}\"",
        "\"done\":true,\"said\":\"{\\\"hanse\\\":1,\\\"said\\\":\\\"bad\\\"}\"",
        "\"done\":true,\"said\":\"{\\\"hanse\\\":1,\\\"said\\\":\\\"refused\\\"}\"",
        "\"done\":true,\"said\":\"{\\\"hanse\\\":1,\\\"said\\\":\\\"refused\\\",\\\"reason\\\":"
        "\\\"Error\\\"}\"",
        "\"done\":true,\"reason\":\"CheckpointAltered\",\"said\":\"\""};

    (void)state;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct asked a = ask(said[i]);
        if (a.out != OUT_REJECTED || a.err.code != E_UNAVAIL || a.has)
            fail_msg("%s ended as %d, %s", said[i], a.out, a.err.text);
    }
    for (int i = 0; i < 2; i++) {
        callout_world.staged_status = i ? 422 : 429;
        struct asked a = ask("\"done\":false");
        assert_int_equal(a.out, OUT_REJECTED);
        assert_int_equal(a.err.code, E_UNAVAIL); /* it is asked again later */
        assert_int_equal(a.call.refused.class_, 0);
    }
}

static void a_server_that_stages_none_is_not_asked(void **state)
{
    struct asked a;

    (void)state;
    assert_true(connector_callout_ops.stages(W.c));
    callout_world.silent = true; /* out of reach it is as it was */
    still_loop_run(W.loop, 100000);
    assert_false(W.reachable);
    assert_true(connector_callout_ops.stages(W.c));
    callout_world.silent = callout_world.stages = false;
    callout_world.instance++;
    still_loop_run(W.loop, 60000);
    assert_true(W.reachable);
    assert_false(connector_callout_ops.stages(W.c));
    unsigned before = callout_world.n_staged;
    a = ask("\"done\":false");
    assert_int_equal(a.out, OUT_REJECTED);
    assert_int_equal(a.err.code, E_NOTIMPL);
    assert_int_equal(callout_world.n_staged, before);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {T(the_same_question_has_the_same_key),
                                       T(it_is_asked_again_until_it_is_done),
                                       T(its_end_comes_by_the_deadline),
                                       T(what_the_tool_refuses_is_refused),
                                       T(nothing_else_says_anything),
                                       T(a_server_that_stages_none_is_not_asked)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
