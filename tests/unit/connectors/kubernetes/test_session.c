/* The session of the Kubernetes driver over a scripted API server, in virtual time: when it is in
 * reach, what it loses it by, and what begins a new one. */
#include "connectors/kubernetes/kubernetes.h"
#include "tests/support/unit.h"
#include "tests/support/web/script_web.h"
#include "tests/support/web/still_loop.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static struct world {
    struct loop *l;
    struct connector *c;
    struct object *target;
    /* its Secret */
    const char *token, *server;
    /* the server */
    const char *uid, *minor;
    unsigned rv;
    bool cuts, away, no_pods, no_token, no_secret, twin;
    unsigned watches, lists, of_second_token;
    /* what the caller hears */
    bool reached;
    unsigned reaches, losses, nodes;
    char session[96], agent[96], why[512];
} W;

static void serve(void *arg, const struct script_try *t, struct script_reply *ret)
{
    const char *path = strstr(t->url, "/a/") ? strstr(t->url, "/a/") + 2 : strchr(t->url + 8, '/');
    bool watch = strstr(path, "watch=1") != NULL;

    (void)arg;
    if (W.away) {
        ret->how = SCRIPT_REFUSES;
        return;
    }
    W.of_second_token += strstr(script_header(t, "Authorization"), "two") != NULL;
    if (W.no_token || (W.no_pods && strstr(path, "/pods"))) {
        ret->status = W.no_token ? 401 : 403;
        (void)snprintf(ret->room, sizeof ret->room,
                       "{\"kind\":\"Status\",\"code\":%d,\"message\":\"pods is forbidden\"}",
                       ret->status);
    } else if (!strcmp(path, "/version")) {
        (void)snprintf(ret->room, sizeof ret->room, "{\"major\":\"1\",\"minor\":\"%s\"}", W.minor);
    } else if (!strcmp(path, "/api/v1/namespaces/kube-system")) {
        (void)snprintf(ret->room, sizeof ret->room, "{\"metadata\":{\"uid\":\"%s\"}}", W.uid);
    } else if (!strncmp(path, "/api/v1/namespaces?", 19)) { /* those that were labelled */
        (void)snprintf(ret->room, sizeof ret->room, "{\"items\":[]}");
    } else if (watch) {
        W.watches++;
        ret->how = W.cuts ? SCRIPT_ANSWERS : SCRIPT_LASTS;
        (void)snprintf(ret->room, sizeof ret->room,
                       "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":"
                       "\"%u\"}}}\n",
                       W.rv);
    } else {
        W.lists += strcmp(strstr(path, "limit="), "limit=1") != 0; /* that one only looks */
        (void)snprintf(ret->room, sizeof ret->room,
                       "{\"items\":[],\"metadata\":{\"resourceVersion\":\"%u\"}}", W.rv);
    }
    ret->body = ret->room;
}

static void on_reach(void *arg, bool reachable, const char *session, const char *why)
{
    (void)arg;
    W.reached = reachable;
    W.reaches += reachable;
    W.losses += !reachable;
    if (reachable)
        str_copy(W.session, sizeof W.session, session);
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
    W.nodes += p->last;
}
static void on_agent(void *arg, const char *agent)
{
    (void)arg;
    assert_false(W.reached);
    str_copy(W.agent, sizeof W.agent, agent);
}
static const char *secret_get(void *arg, const char *name, const char *key)
{
    (void)arg;
    assert_string_equal(name, "creds");
    return !strcmp(key, "token") && !W.no_secret ? W.token : NULL;
}
static void secret_put(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}
static const char *cluster_uid(void *arg)
{
    (void)arg;
    return "hanse-1";
}

static bool is_twin(void *arg, char why[256])
{
    (void)arg;
    assert_true(*W.agent);
    str_copy(why, 256, "another Target is there");
    return W.twin;
}

static struct object *target_of(const char *server)
{
    char text[512];
    struct object *o = NULL;
    struct err e;

    (void)snprintf(text, sizeof text,
                   "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{"
                   "\"name\":\"t1\"},\"spec\":{\"type\":\"kubernetes\",\"tier\":\"hub\","
                   "\"connection\":{\"server\":\"%s\",\"credentialsFrom\":{\"secret\":"
                   "\"creds\"}}}}",
                   server);
    cJSON *j = cJSON_Parse(text);
    assert_int_equal(object_from_json(kind_by_id(KIND_TARGET), j, 0, &o, &e), 0);
    cJSON_Delete(j);
    return o;
}

static void begin_with(const struct world *with)
{
    static const struct connector_events events = {
        .reach = on_reach, .observed = on_observed, .nodes = on_nodes, .agent = on_agent};
    struct connector_env env = {.events = &events,
                                .secret_get = secret_get,
                                .secret_put = secret_put,
                                .cluster_uid = cluster_uid,
                                .is_twin = is_twin,
                                .web = &script_web_ops};
    struct err e;

    W = *with;
    W.l = env.loop = still_loop_create(9);
    W.token = W.token ? W.token : "one";
    W.uid = W.uid ? W.uid : "c1-uid";
    W.minor = W.minor ? W.minor : "33+";
    W.rv = 10;
    W.target = target_of("https://api.test/a");
    script_web = (struct script){.serve = serve};
    assert_int_equal(connector_kubernetes_ops.create(&env, W.target, &W.c, &e), 0);
    assert_int_equal(W.reaches + W.losses, 0); /* never from inside the call */
}
#define BEGIN(...) begin_with(&(const struct world){__VA_ARGS__})

static void run(uint64_t ms)
{
    still_loop_run(W.l, ms);
}
static void end(void)
{
    connector_kubernetes_ops.destroy(W.c);
    assert_int_equal(script_web.under_way, 0);
    (void)object_unref(W.target);
    W.l = still_loop_destroy(W.l);
}

struct asked {
    struct call call; /* first */
    enum outcome out;
    unsigned times;
};
static void on_done(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    struct asked *a = (struct asked *)c;

    (void)seen;
    assert_true((out == OUT_DONE) == (err == NULL));
    a->out = out;
    a->times++;
}
static struct asked asked_now(void)
{
    return (struct asked){.call = {.deadline_ms = loop_now_ms(W.l) + 15000, .done = on_done}};
}

static void is_reached_once_all_is_listed(void **state)
{
    struct asked a;

    (void)state;
    BEGIN(.cuts = false);
    run(2000);
    assert_true(W.reached);
    assert_int_equal(W.reaches, 1);
    assert_int_equal(W.losses, 0);
    assert_string_equal(W.agent, "kubernetes:c1-uid");
    assert_int_equal(W.lists, 3);
    assert_int_equal(W.watches, 3);
    a = asked_now();
    connector_kubernetes_ops.inventory(W.c, &a.call);
    assert_int_equal(a.times, 0);
    run(5000);
    assert_int_equal(a.out, OUT_DONE);
    assert_int_equal(W.nodes, 1);
    a = asked_now();
    connector_kubernetes_ops.probe(W.c, &a.call);
    run(100);
    assert_int_equal(a.times, 1);
    assert_int_equal(a.out, OUT_DONE);
    end();
}

static void old_servers_are_refused(void **state)
{
    struct asked a;

    (void)state;
    BEGIN(.minor = "29");
    run(20000);
    assert_int_equal(W.reaches, 0);
    assert_non_null(strstr(W.why, "1.30 is needed"));
    a = asked_now();
    connector_kubernetes_ops.probe(W.c, &a.call);
    run(100);
    assert_int_equal(a.out, OUT_REJECTED);
    W.minor = "30";
    run(20000);
    assert_true(W.reached);
    end();
}

static void what_may_not_be_listed_is_out_of_reach(void **state)
{
    (void)state;
    BEGIN(.no_pods = true);
    run(20000);
    assert_int_equal(W.reaches, 0);
    assert_non_null(strstr(W.why, "pods is forbidden"));
    W.no_pods = false;
    run(40000);
    assert_true(W.reached);
    W.no_pods = true; /* its watch goes on until it is cut */
    W.cuts = true;
    run(8000);
    end();
}

static void cut_watches_lose_nothing(void **state)
{
    (void)state;
    BEGIN(.cuts = true);
    run(120000);
    assert_true(W.watches > 100);
    assert_int_equal(W.lists, 3);
    assert_int_equal(W.losses, 0);
    assert_int_equal(W.reaches, 1);
    end();
}

static void one_failure_loses_nothing(void **state)
{
    (void)state;
    BEGIN(.cuts = false);
    run(2000);
    W.away = true;
    run(6000);
    W.away = false;
    run(60000);
    assert_int_equal(W.losses, 0);
    end();
}

static void who_stays_away_is_lost_and_comes_back(void **state)
{
    char session[96];

    (void)state;
    BEGIN(.cuts = false);
    run(2000);
    str_copy(session, sizeof session, W.session);
    W.away = true;
    run(120000);
    assert_false(W.reached);
    W.away = false;
    run(120000);
    assert_true(W.reached);
    assert_string_equal(W.session, session);
    end();
}

/* One that is on its way is waited for; whoever takes it away wants nothing done by it any more. */
static void a_secret_that_is_gone_ends_its_session(void **state)
{
    (void)state;
    BEGIN(.cuts = false);
    run(2000);
    W.no_secret = true;
    run(15000);
    assert_true(W.reached);
    W.no_secret = false;
    run(60000);
    assert_int_equal(W.losses, 0);
    W.no_secret = true;
    run(60000);
    assert_false(W.reached);
    assert_non_null(strstr(W.why, "creds"));
    W.no_secret = false;
    run(60000);
    assert_true(W.reached);
    end();
}

static void a_login_that_is_no_better_is_told(void **state)
{
    (void)state;
    BEGIN(.no_token = true);
    run(20000);
    assert_non_null(strstr(W.why, "forbidden"));
    W.no_secret = true;
    run(20000);
    assert_non_null(strstr(W.why, "creds"));
    end();
}

static void who_is_second_at_a_cluster_lists_nothing(void **state)
{
    (void)state;
    BEGIN(.twin = true);
    run(300000);
    assert_int_equal(W.lists + W.watches + W.reaches, 0);
    assert_string_equal(W.why, "another Target is there");
    W.twin = false;
    run(60000);
    assert_true(W.reached);
    end();
}

static void a_watch_that_may_not_go_on_is_lost(void **state)
{
    (void)state;
    BEGIN(.cuts = true);
    run(2000);
    W.no_pods = true;
    run(60000);
    assert_false(W.reached);
    assert_non_null(strstr(W.why, "pods is forbidden"));
    W.no_pods = false;
    run(60000);
    assert_true(W.reached);
    end();
}

static void another_cluster_is_another_session(void **state)
{
    char session[96];

    (void)state;
    BEGIN(.cuts = false);
    run(2000);
    str_copy(session, sizeof session, W.session);
    W.uid = "c2-uid";
    run(20000);
    assert_true(W.reached);
    assert_string_not_equal(W.session, session);
    assert_string_equal(W.agent, "kubernetes:c2-uid");
    assert_int_equal(W.losses, 1);
    end();
}

static void a_restored_state_is_another_session(void **state)
{
    char session[96];

    (void)state;
    BEGIN(.cuts = true);
    W.rv = 500;
    run(5000);
    str_copy(session, sizeof session, W.session);
    W.rv = 400;
    run(60000);
    assert_true(W.reached);
    assert_string_not_equal(W.session, session);
    assert_int_equal(W.losses, 1);
    assert_string_equal(W.agent, "kubernetes:c1-uid");
    end();
}

static void a_new_token_is_taken_up(void **state)
{
    (void)state;
    BEGIN(.cuts = true);
    run(5000);
    assert_int_equal(W.of_second_token, 0);
    W.token = "two";
    run(10000);
    assert_true(W.of_second_token > 3);
    W.token = NULL; /* it is on its way */
    run(20000);
    assert_int_equal(W.losses, 0);
    assert_int_equal(W.reaches, 1);
    W.token = "three";
    W.no_token = true;
    run(60000);
    assert_false(W.reached);
    W.no_token = false;
    run(60000);
    assert_true(W.reached);
    end();
}

static void its_document_changes(void **state)
{
    char session[96];
    struct object *other = target_of("https://other.test/a");

    (void)state;
    BEGIN(.cuts = false);
    run(2000);
    str_copy(session, sizeof session, W.session);
    connector_kubernetes_ops.update(W.c, W.target);
    run(20000);
    assert_int_equal(W.losses, 0);
    connector_kubernetes_ops.update(W.c, other);
    run(20000);
    assert_int_equal(W.losses, 1);
    assert_true(W.reached);
    assert_string_not_equal(W.session, session);
    end();
    (void)object_unref(other);
}

static void calls_end_with_it(void **state)
{
    struct asked a, b;

    (void)state;
    BEGIN(.cuts = false);
    run(2000);
    a = asked_now();
    b = asked_now();
    connector_kubernetes_ops.probe(W.c, &a.call);
    connector_kubernetes_ops.stage(W.c, NULL, &b.call);
    end();
    assert_int_equal(a.times, 1);
    assert_int_equal(a.out, OUT_UNKNOWN);
    assert_int_equal(b.times, 1);
    assert_int_equal(b.out, OUT_REJECTED);
}

static void what_is_missing_is_said(void **state)
{
    (void)state;
    BEGIN(.token = " ");
    run(20000);
    assert_int_equal(W.reaches, 0);
    assert_non_null(strstr(W.why, "no token"));
    assert_int_equal(script_web.tries, 0);
    W.token = "one";
    run(20000);
    assert_true(W.reached);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_reached_once_all_is_listed),
        cmocka_unit_test(old_servers_are_refused),
        cmocka_unit_test(what_may_not_be_listed_is_out_of_reach),
        cmocka_unit_test(cut_watches_lose_nothing),
        cmocka_unit_test(one_failure_loses_nothing),
        cmocka_unit_test(who_stays_away_is_lost_and_comes_back),
        cmocka_unit_test(a_watch_that_may_not_go_on_is_lost),
        cmocka_unit_test(a_secret_that_is_gone_ends_its_session),
        cmocka_unit_test(a_login_that_is_no_better_is_told),
        cmocka_unit_test(who_is_second_at_a_cluster_lists_nothing),
        cmocka_unit_test(another_cluster_is_another_session),
        cmocka_unit_test(a_restored_state_is_another_session),
        cmocka_unit_test(a_new_token_is_taken_up),
        cmocka_unit_test(its_document_changes),
        cmocka_unit_test(calls_end_with_it),
        cmocka_unit_test(what_is_missing_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
