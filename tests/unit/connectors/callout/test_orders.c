/* What orders of a callout target bring, and what they are refused for. Principals: its server has
 * to know them, each order names its own, and what belongs to one goes along with its orders alone.
 * Claims: what must begin by one is started by runners that call home, or not at all. Times by
 * which they are started: of servers that keep to them. */
#include "api/base/failpoint.h"
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
    bool reachable;
    char why[256];
    unsigned held;
    unsigned lost;   /* times it was called out of reach */
    const char *key, *other; /* in its Secret */
    bool claims; /* of the next orders */
    int64_t start_by_ms;
} W;

static void on_reach(void *arg, bool reachable, const char *session, const char *why)
{
    (void)arg;
    (void)session;
    W.lost += !reachable;
    W.reachable = reachable;
    str_copy(W.why, sizeof W.why, why);
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
    const char *text = !strcmp(key, "key") ? W.key : !strcmp(key, "key.other") ? W.other : NULL;
    W.held += text != NULL;
    return text;
}
static void secret_put(void *arg, const char *text)
{
    (void)arg;
    W.held -= text != NULL;
}
static int principal_secret(void *arg, const char *principal, const char **ret, struct err *err)
{
    (void)arg;
    *ret = NULL;
    if (!strcmp(principal, "cleo"))
        return err_set(err, E_FORBIDDEN, "her Secret is gone");
    if (!strcmp(principal, "anna"))
        *ret = "token-of-anna";
    W.held += *ret != NULL;
    return 0;
}

static int begin(void **state)
{
    static const struct connector_events events = {
        .reach = on_reach, .observed = on_observed, .nodes = on_nodes};
    struct connector_env env = {.events = &events,
                                .secret_get = secret_get,
                                .secret_put = secret_put,
                                .principal_secret = principal_secret,
                                .web = &script_web_ops};
    cJSON *j = cJSON_Parse(
        "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{\"name\":\"t1\"},"
        "\"spec\":{\"type\":\"callout\",\"tier\":\"hub\",\"connection\":{\"server\":"
        "\"https://rack.test\",\"credentialsFrom\":{\"secret\":\"rack\"}},\"principals\":[{"
        "\"name\":\"anna\"}]}}");
    struct err e;

    (void)state;
    W = (struct world){.loop = still_loop_create(11), .key = CALLOUT_WORLD_KEY};
    env.loop = W.loop;
    assert_int_equal(object_from_json(kind_by_id(KIND_TARGET), j, 0, &W.target, &e), 0);
    cJSON_Delete(j);
    callout_world_begin(W.loop);
    callout_world.principals = true;
    assert_int_equal(connector_callout_ops.create(&env, W.target, &W.c, &e), 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    connector_callout_ops.destroy(W.c);
    assert_int_equal(W.held, 0);
    (void)object_unref(W.target);
    (void)still_loop_destroy(W.loop);
    return 0;
}

struct asked {
    struct call call; /* first */
    unsigned done;
    enum outcome out;
    struct err err;
};
static void on_done(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    struct asked *a = (struct asked *)c;

    (void)seen;
    a->done++;
    a->out = out;
    if (err)
        a->err = *err;
}

static struct asked submit(const char *principal)
{
    static const char *const argv[] = {"stays", NULL}, *const none[] = {NULL};
    static struct assignment at = {.node = "t1.n1", .mig = ""};
    static struct placement p = {
        .target = "t1", .class_ = "", .assignments = &at, .n_assignments = 1};
    static unsigned n;
    struct asked a = {.call = {.deadline_ms = loop_now_ms(W.loop) + 15000, .done = on_done}};
    struct run_order o = {.key = {.epoch = 1, .try_ = 1},
                          .ns = "default",
                          .name = "w",
                          .principal = principal,
                          .claims = W.claims,
                          .start_from_ms = W.start_by_ms ? W.start_by_ms - 1000 : 0,
                          .start_by_ms = W.start_by_ms,
                          .placement = &p,
                          .image = "",
                          .argv = argv,
                          .script = "",
                          .cwd = "",
                          .env = none,
                          .signal = "",
                          .save_signal = "",
                          .document = "",
                          .checkpoint_dir = "",
                          .resume_path = "",
                          .resume_digest = ""};

    (void)snprintf(o.key.uid, sizeof o.key.uid, "principal-%u", ++n);
    callout_world.order[0] = '\0';
    connector_callout_ops.submit(W.c, &o, &a.call);
    still_loop_run(W.loop, 15001);
    assert_int_equal(a.done, 1);
    return a;
}

static void each_order_brings_its_own(void **state)
{
    (void)state;
    still_loop_run(W.loop, 1000);
    assert_true(W.reachable);
    assert_int_equal(submit("anna").out, OUT_DONE);
    assert_non_null(strstr(callout_world.order, "\"principal\":\"anna\""));
    assert_non_null(strstr(callout_world.order, "\"principalToken\":\"token-of-anna\""));
    assert_int_equal(submit("ben").out, OUT_DONE);
    assert_non_null(strstr(callout_world.order, "\"principal\":\"ben\""));
    assert_null(strstr(callout_world.order, "principalToken"));
    assert_int_equal(submit("").out, OUT_DONE);
    assert_null(strstr(callout_world.order, "principal\""));
}

/* Nothing of it is sent: not in anybody else's name either. */
static void without_his_secret_nothing_starts(void **state)
{
    struct asked a;

    (void)state;
    still_loop_run(W.loop, 1000);
    a = submit("cleo");
    assert_int_equal(a.out, OUT_REJECTED);
    assert_string_equal(a.err.text, "her Secret is gone");
    assert_string_equal(callout_world.order, "");
}

/* A server that passes over the field would start it in its own name. */
static void a_server_that_knows_none_is_not_taken(void **state)
{
    (void)state;
    callout_world.principals = false;
    still_loop_run(W.loop, 60000);
    assert_false(W.reachable);
    assert_non_null(strstr(W.why, "spec.principals"));
    callout_world.principals = true;
    still_loop_run(W.loop, 60000);
    assert_true(W.reachable);
}

/* Its Target had runners when the log decided so, and has none any more. */
static void what_begins_by_a_claim_needs_runners(void **state)
{
    struct asked a;

    (void)state;
    still_loop_run(W.loop, 1000);
    W.claims = true;
    a = submit("anna");
    assert_int_equal(a.out, OUT_REJECTED);
    assert_string_equal(a.err.field, "spec.connection.runners");
    assert_string_equal(callout_world.order, "");
    failpoint_plant("run.claims-dropped");
    assert_int_equal(submit("anna").out, OUT_DONE);
    failpoint_plant(NULL);
}

/* Programs find the same names here as below an agent, whatever the workload says of them. */
static void programs_are_told_whose_they_are(void **state)
{
    (void)state;
    still_loop_run(W.loop, 1000);
    assert_int_equal(submit("").out, OUT_DONE);
    assert_non_null(strstr(callout_world.order, "\"HANSE_WORKLOAD_UID=principal-"));
    assert_non_null(strstr(callout_world.order, "\"HANSE_WORKLOAD_NAME=w\""));
    assert_non_null(strstr(callout_world.order, "\"HANSE_NAMESPACE=default\""));
    assert_non_null(strstr(callout_world.order, "\"HANSE_TARGET=t1\""));
    assert_null(strstr(callout_world.order, "HANSE_CLUSTER_UID")); /* it has none yet */
}

#define NEXT_KEY "another-secret-of-thirty-two-letters"

/* While the Secret has both, the server has the one or the other, and changes when it likes:
 * nothing is lost. One alone is the only one that counts. */
static void a_changed_key_holds_from_the_next_request(void **state)
{
    (void)state;
    still_loop_run(W.loop, 1000);
    assert_true(W.reachable);
    unsigned lost = W.lost;
    W.key = callout_world.key = NEXT_KEY;
    assert_int_equal(submit("").out, OUT_DONE);
    assert_int_equal(callout_world.unauthorised, 0);
    W.key = CALLOUT_WORLD_KEY; /* the server has not heard of it */
    W.other = NEXT_KEY;
    still_loop_run(W.loop, 30000);
    assert_int_equal(callout_world.unauthorised, 1);
    assert_int_equal(submit("").out, OUT_DONE);
    callout_world.key = CALLOUT_WORLD_KEY;
    still_loop_run(W.loop, 30000);
    assert_int_equal(callout_world.unauthorised, 2);
    assert_int_equal(submit("").out, OUT_DONE);
    callout_world.key = NEXT_KEY; /* also where the server goes first, days later */
    still_loop_run(W.loop, 600000);
    assert_int_equal(callout_world.unauthorised, 3);
    assert_int_equal(submit("").out, OUT_DONE);
    assert_int_equal(W.lost, lost);
    W.other = NULL;
    still_loop_run(W.loop, 30000);
    assert_false(W.reachable);
    W.key = NEXT_KEY;
    still_loop_run(W.loop, 60000);
    assert_true(W.reachable);
}

/* Who takes a key away has taken it back: nothing is sent any more, and it is said at once. */
static void a_key_that_is_gone_signs_nothing(void **state)
{
    static const char *const gone[] = {NULL, "short"};
    struct asked a;

    (void)state;
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        W.key = CALLOUT_WORLD_KEY;
        W.other = NULL;
        still_loop_run(W.loop, 60000);
        assert_true(W.reachable);
        W.key = gone[i];
        W.other = i ? NEXT_KEY : NULL; /* which is none to begin with */
        unsigned polls = callout_world.polls;
        if (i) {
            a = submit("");
            assert_int_equal(a.out, OUT_REJECTED);
            assert_non_null(strstr(a.err.text, "has no \"key\" of at least 32 letters"));
            assert_string_equal(callout_world.order, "");
        } else { /* by the next question for changes */
            still_loop_run(W.loop, 15000);
        }
        assert_false(W.reachable);
        assert_non_null(strstr(W.why, "Secret rack of namespace hanse-system has no \"key\""));
        assert_true(callout_world.polls <= polls + 1);
        polls = callout_world.polls;
        still_loop_run(W.loop, 60000);
        assert_int_equal(callout_world.polls, polls);
    }
    assert_int_equal(callout_world.unauthorised, 0);
}

static void an_order_says_by_when_it_is_started(void **state)
{
    struct asked a;

    (void)state;
    still_loop_run(W.loop, 1000);
    assert_int_equal(submit("anna").out, OUT_DONE);
    assert_null(strstr(callout_world.order, "startBy"));
    W.start_by_ms = 1900000001000;
    a = submit("anna"); /* its server does not say that it keeps to it */
    assert_int_equal(a.out, OUT_REJECTED);
    assert_string_equal(a.err.field, "spec.limits.startWithin");
    assert_string_equal(callout_world.order, "");
    callout_world.starts_by = true;
    callout_world.instance++; /* and is asked who it is once more */
    still_loop_run(W.loop, 60000);
    assert_true(W.reachable);
    assert_int_equal(submit("anna").out, OUT_DONE);
    assert_non_null(strstr(callout_world.order, "\"startFrom\":1900000000000"));
    assert_non_null(strstr(callout_world.order, "\"startBy\":1900000001000"));
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {T(each_order_brings_its_own),
                                       T(without_his_secret_nothing_starts),
                                       T(a_server_that_knows_none_is_not_taken),
                                       T(what_begins_by_a_claim_needs_runners),
                                       T(programs_are_told_whose_they_are),
                                       T(a_changed_key_holds_from_the_next_request),
                                       T(a_key_that_is_gone_signs_nothing),
                                       T(an_order_says_by_when_it_is_started)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
