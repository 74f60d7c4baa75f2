/* What runners leave behind with a callout server, which hands it on as it is: the driver takes
 * nothing from it but what the run's tokens have signed, and no end without the server's proof. */
#include "connectors/callout/callout.h"
#include "connectors/ends.h"
#include "tests/support/home/guest.h"
#include "tests/support/report/report_kit.h"
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
    struct observation seen; /* unasked, the last one */
    unsigned told;
    bool reachable;
    struct run_worker worker; /* the last that was told of */
    struct buf reports;       /* what the server hands on */
    uint64_t lease_ms;        /* that runners hold by the log */
} W;

/* ---- the hub ---- */
static void on_reach(void *arg, bool reachable, const char *session, const char *why)
{
    (void)arg;
    W.reachable = reachable;
    (void)session;
    (void)why;
}
static void on_observed(void *arg, const struct observation *o)
{
    (void)arg;
    W.seen = *o;
    W.told++;
}
static void on_workers(void *arg, const struct run_workers *w)
{
    (void)arg;
    W.worker = w->workers[w->n_workers - 1];
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

static void token_text(const struct run_key *k, int64_t rank, int64_t ranks,
                       char ret[HOME_TOKEN_MAX])
{
    struct home_token t = report_kit_token();

    t.key = *k;
    t.rank = rank;
    t.ranks = ranks;
    report_kit_token_text(&t, 0, ret);
}

static bool tokens(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
                   const char ***ret)
{
    char text[HOME_TOKEN_MAX];

    (void)arg;
    *ret = arena_array(a, const char *, ranks);
    for (uint32_t i = 0; i < ranks; i++) {
        token_text(k, i, ranks, text);
        (*ret)[i] = arena_strdup(a, text);
    }
    return true;
}

static bool where(void *arg, const struct run_key *k, struct arena *a, struct run_where *ret)
{
    (void)arg;
    (void)k;
    (void)a;
    *ret = (struct run_where){.ns = "default", .n = 2, .lives = true, .lease_ms = W.lease_ms};
    return true;
}

static int begin(void **state)
{
    static const struct connector_events events = {
        .reach = on_reach, .observed = on_observed, .workers = on_workers, .nodes = on_nodes};
    struct connector_env env = {.events = &events,
                                .secret_get = secret_get,
                                .secret_put = secret_put,
                                .tokens = tokens,
                                .keys = &report_kit_keys,
                                .where = where,
                                .web = &script_web_ops};
    cJSON *j = cJSON_Parse(
        "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{\"name\":\"t1\"},"
        "\"spec\":{\"type\":\"callout\",\"tier\":\"hub\",\"connection\":{\"server\":"
        "\"https://rack.test\",\"credentialsFrom\":{\"secret\":\"rack\"}}}}");
    struct err e;

    (void)state;
    W = (struct world){.loop = still_loop_create(11)};
    buf_init(&W.reports, 65536);
    env.loop = W.loop;
    assert_int_equal(object_from_json(kind_by_id(KIND_TARGET), j, 0, &W.target, &e), 0);
    cJSON_Delete(j);
    callout_world_begin(W.loop);
    callout_world.reports = true;
    assert_int_equal(connector_callout_ops.create(&env, W.target, &W.c, &e), 0);
    still_loop_run(W.loop, 1000);
    return 0;
}

static int end(void **state)
{
    (void)state;
    connector_callout_ops.destroy(W.c);
    buf_fini(&W.reports);
    (void)object_unref(W.target);
    (void)still_loop_destroy(W.loop);
    return 0;
}

/* ---- calls ---- */
struct asked {
    struct call call; /* first */
    unsigned done;
    enum outcome out;
    struct observation seen;
    struct err err;
};
static void on_done(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    struct asked *a = (struct asked *)c;

    a->done++;
    a->out = out;
    if (seen)
        a->seen = *seen;
    if (err)
        a->err = *err;
}

static struct run_key fresh(void)
{
    static unsigned n;
    struct run_key k = {.epoch = 3, .try_ = 1};

    (void)snprintf(k.uid, sizeof k.uid, "left-%u", ++n);
    return k;
}

static void submit(const struct run_key *k)
{
    static const char *const argv[] = {"stays", NULL}, *const none[] = {NULL};
    static struct assignment at[2] = {{.node = "t1.n1", .mig = ""},
                                      {.rank = 1, .node = "t1.n1", .mig = ""}};
    static struct placement p = {
        .target = "t1", .class_ = "", .assignments = at, .n_assignments = 2};
    struct asked a = {.call = {.deadline_ms = loop_now_ms(W.loop) + 15000, .done = on_done}};
    struct run_order o = {.key = *k,
                          .ns = "default",
                          .name = "w",
                          .principal = "",
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

    connector_callout_ops.submit(W.c, &o, &a.call);
    still_loop_run(W.loop, 15001);
    assert_int_equal(a.done, 1);
    assert_int_equal(a.out, OUT_DONE);
}

static struct asked find(const struct run_key *k)
{
    struct asked a = {.call = {.deadline_ms = loop_now_ms(W.loop) + 15000, .done = on_done}};

    connector_callout_ops.find(W.c, k, &a.call);
    still_loop_run(W.loop, 15001);
    assert_int_equal(a.done, 1);
    return a;
}

/* ---- what is left behind ---- */
static void left_begin(void)
{
    buf_reset(&W.reports);
    buf_str(&W.reports, "[");
}

static void left_text(const char *text)
{
    cJSON *j = cJSON_CreateString(text);
    char *printed = cJSON_PrintUnformatted(j);

    buf_printf(&W.reports, "%s%s", W.reports.n > 1 ? "," : "", printed);
    cJSON_free(printed);
    cJSON_Delete(j);
}

static void left(const struct run_key *k, int64_t rank, const struct run_report *r)
{
    char token[HOME_TOKEN_MAX];
    AUTO_BUF line;

    buf_init(&line, REPORT_LINE_MAX);
    token_text(k, rank, 2, token);
    report_line_print(token, r, 1, 1900000000000, &line);
    left_text(line.p);
}

static struct callout_world_run *ends(const struct run_key *k, bool searched, int exit_code)
{
    struct callout_world_run *r = callout_world_run(k);

    buf_str(&W.reports, "]");
    r->reports = W.reports.p;
    r->searched = searched;
    callout_world_end_run(r, exit_code);
    return r;
}

static struct run_report report(int exit_code, const char *reason)
{
    struct run_report r = {.step = RUN_STEP_ENDED, .exit_code = exit_code, .started_ms = 5};

    str_copy(r.reason, sizeof r.reason, reason);
    str_copy(r.message, sizeof r.message, exit_code ? "last words" : "");
    return r;
}

/* ---- orders ---- */
static void an_order_brings_tokens_where_they_are_understood(void **state)
{
    struct run_key k = fresh();
    char token[HOME_TOKEN_MAX];

    (void)state;
    submit(&k);
    assert_non_null(strstr(callout_world.order, "\"report\":{\"version\":1,\"tokens\":[\""));
    for (int64_t rank = 0; rank < 2; rank++) {
        token_text(&k, rank, 2, token);
        assert_non_null(strstr(callout_world.order, token));
    }
    assert_null(strstr(callout_world.order, "\"home\""));
    callout_world.reports = false;
    callout_world.instance++;
    still_loop_run(W.loop, 60000);
    k = fresh();
    submit(&k);
    assert_null(strstr(callout_world.order, "\"report\""));
}

/* ---- ends ---- */
static void the_first_rank_that_failed_says_how_it_ended(void **state)
{
    const struct run_report good = report(0, ""), bad = report(75, "SavedAndStopped");
    struct run_key k = fresh();

    (void)state;
    submit(&k);
    left_begin();
    left(&k, 0, &good); /* of which its server says 1, too */
    left(&k, 1, &bad);
    (void)ends(&k, true, 1); /* as its server has it */
    W.told = 0;
    still_loop_run(W.loop, 10000);
    assert_int_equal(W.told, 1); /* with the changes */
    assert_int_equal(W.seen.state, RUN_ENDED);
    assert_int_equal(W.seen.proof, PROOF_TREE_GONE); /* all runners have proved it themselves */
    assert_int_equal(W.seen.exit_code, 75);
    assert_string_equal(W.seen.reason, "SavedAndStopped");
    assert_string_equal(W.seen.message, "last words");
    assert_int_equal(W.worker.rank, 0);
    assert_int_equal(W.worker.exit_code, 0);
    struct asked a = find(&k); /* and with an answer */
    assert_int_equal(a.out, OUT_DONE);
    assert_int_equal(a.seen.exit_code, 75);
}

static void all_ended_well(void **state)
{
    const struct run_report good = report(0, "");
    struct run_report found = good;
    struct run_key k = fresh();

    (void)state;
    submit(&k);
    found.searched = true;
    left_begin();
    left(&k, 0, &good);
    left(&k, 1, &found);
    (void)ends(&k, true, 1); /* its server knows no better */
    struct asked a = find(&k);
    assert_int_equal(a.seen.exit_code, 0);
    assert_int_equal(a.seen.proof, PROOF_TREE_SEARCHED); /* one of them has only searched */
}

/* One rank has ended well, and the other one left nothing and has no start: its server has started
 * half of the gang, and that has not done its work. Where the server told of its start, it is
 * believed; also where it says nothing of that worker now, as it may have before. */
static void half_of_a_gang_is_no_success(void **state)
{
    const struct run_report good = report(0, "");
    struct run_key k = fresh(), told = fresh(), earlier = fresh();

    (void)state;
    submit(&k);
    left_begin();
    left(&k, 0, &good);
    left_text("");
    ends(&k, false, 0)->workers = "{\"rank\":1,\"node\":\"n2\"}";
    struct asked a = find(&k);
    assert_int_equal(a.seen.state, RUN_ENDED);
    assert_string_equal(a.seen.reason, "StartFailed");
    assert_non_null(strstr(a.seen.message, "rank 1 of 2 left no report"));
    submit(&told);
    left_begin();
    left_text("");
    left(&told, 1, &good);
    (void)ends(&told, false, 0);
    a = find(&told);
    assert_string_equal(a.seen.reason, "");
    assert_int_equal(a.seen.exit_code, 0);
    submit(&earlier);
    left_begin();
    left(&earlier, 0, &good);
    left_text("");
    (void)ends(&earlier, false, 0);
    a = find(&earlier);
    assert_string_equal(a.seen.reason, "");
    assert_int_equal(a.seen.exit_code, 0);
}

/* Where all say that they never started anything, nothing was: the end becomes an absence. */
static void all_never_started(void **state)
{
    struct run_report late = report(126, "StartedTooLate"), other = report(126, "");
    struct run_key k = fresh(), half = fresh();

    (void)state;
    late.started_ms = other.started_ms = 0;
    late.never_started = other.never_started = true;
    submit(&k);
    left_begin();
    left(&k, 0, &other);
    left(&k, 1, &late);
    (void)ends(&k, false, 126);
    struct asked a = find(&k);
    assert_int_equal(a.seen.state, RUN_ABSENT);
    assert_int_equal(a.seen.proof, PROOF_NEVER_STARTED);
    assert_true(a.seen.left_proof != 0 && a.seen.left_proof != PROOF_NEVER_STARTED);
    assert_string_equal(a.seen.message, "last words");
    submit(&half);
    left_begin();
    left_text("");
    left(&half, 1, &late);
    (void)ends(&half, false, 126);
    a = find(&half);
    assert_int_equal(a.seen.state, RUN_ENDED); /* of the first rank nobody knows */
    assert_int_equal(a.seen.exit_code, 126);
}

/* What the target was late with is no failure of the workload's, whatever the other ranks did. */
static void one_rank_that_was_never_started(void **state)
{
    static const char *const whys[] = {"StartedTooLate", "ClockWrong"};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct run_report late = report(126, whys[i % 2]), other = report(i < 2 ? 0 : 1, "");
        struct run_key k = fresh();

        late.started_ms = 0;
        late.never_started = true;
        submit(&k);
        left_begin();
        left(&k, 0, &other);
        left(&k, 1, &late);
        (void)ends(&k, false, i < 2 ? 0 : 1);
        struct asked a = find(&k);
        assert_int_equal(a.seen.state, RUN_ENDED);
        assert_string_equal(a.seen.reason, "StartFailed");
        assert_int_equal(end_row(a.seen.reason)->again, AGAIN_FREE);
        assert_int_equal(end_row(a.seen.reason)->fault, FAULT_TARGET);
        assert_non_null(strstr(a.seen.message, whys[i % 2]));
    }
}

/* ---- what is not believed ---- */
/* A program can write whatever it likes where its runner writes; it may know what other runs have
 * left behind, and what this one said earlier. */
static void a_forgery_says_nothing(void **state)
{
    const struct run_report good = report(0, "");
    struct run_report running = {.step = RUN_STEP_RUNNING, .started_ms = 5};
    struct run_key k = fresh(), other = fresh();
    struct asked a;

    (void)state;
    submit(&k);
    left_begin();
    left(&other, 0, &good); /* another run's */
    left(&k, 0, &good);     /* another rank's */
    (void)ends(&k, false, 9);
    a = find(&k);
    assert_int_equal(a.seen.state, RUN_ENDED);
    assert_int_equal(a.seen.exit_code, 9); /* as its server says */
    assert_int_equal(a.seen.proof, PROOF_ACCOUNTING);
    k = fresh();
    submit(&k);
    left_begin();
    left_text("{\"hanse\":1,\"state\":\"ended\",\"exitCode\":0}");
    left_text("\xf0\x9f\x92\xa9 {{{");
    (void)ends(&k, false, 9);
    a = find(&k);
    assert_int_equal(a.seen.exit_code, 9);
    /* What holds a NUL spoils nothing of what comes with it, here or in the changes. */
    k = fresh();
    submit(&k);
    left_begin();
    buf_str(&W.reports, "\"a\\u0000b\",\"\\u0000\"");
    (void)ends(&k, false, 9);
    still_loop_run(W.loop, 30000);
    a = find(&k);
    assert_int_equal(a.out, OUT_DONE);
    assert_int_equal(a.seen.exit_code, 9);
    assert_true(W.reachable);
    /* An old line of its own, put back: true, and no end. */
    k = fresh();
    submit(&k);
    left_begin();
    left(&k, 0, &running);
    left(&k, 1, &running);
    (void)ends(&k, false, 9);
    a = find(&k);
    assert_int_equal(a.seen.exit_code, 9);
}

/* However well it is signed: whether a run has ended its server says. */
static void a_report_ends_nothing(void **state)
{
    const struct run_report good = report(0, "");
    struct run_key k = fresh();

    (void)state;
    submit(&k);
    left_begin();
    left(&k, 0, &good);
    left(&k, 1, &good);
    buf_str(&W.reports, "]");
    callout_world_run(&k)->reports = W.reports.p;
    struct asked a = find(&k);
    assert_int_equal(a.out, OUT_DONE);
    assert_int_equal(a.seen.state, RUN_RUNNING);
}

/* What has begun by its own word cannot be called absent: it may begin elsewhere then. */
static void what_has_begun_is_not_absent(void **state)
{
    const struct run_report good = report(0, "");
    struct run_key k = fresh();

    (void)state;
    submit(&k);
    left_begin();
    left(&k, 0, &good);
    callout_world_run(&k)->state = RUN_ABSENT;
    buf_str(&W.reports, "]");
    callout_world_run(&k)->reports = W.reports.p;
    struct asked a = find(&k);
    assert_int_equal(a.out, OUT_UNKNOWN);
    assert_non_null(strstr(a.err.text, "signed that it began"));
}

/* ---- the end of one of several that call home ---- */
static int take(void *connector, const struct home_arrival *a, struct err *err)
{
    return connector_callout_ops.runner(connector, a, err);
}

/* Who leads now never heard of it; the server tells of its end, once it is asked for the other. */
static void the_end_of_one_rank_holds_up_no_lease(void **state)
{
    const struct run_report runs = {.step = RUN_STEP_RUNNING, .grant = 2, .lease_ms = 60000};
    static struct guest other, again;
    struct run_key k = fresh();
    struct home_token t = report_kit_token();

    (void)state;
    submit(&k);
    object_as(W.target, target)->spec->connection->runners = true; /* from now on */
    callout_world_run(&k)->workers = "{\"rank\":0,\"startedAt\":1000},"
                                     "{\"rank\":1,\"startedAt\":1000}";
    t.key = k;
    t.rank = 0;
    t.ranks = 2;
    assert_int_equal(guest_comes(&other, W.loop, &t, &runs, take, W.c), 0);
    still_loop_run(W.loop, 2000);
    assert_int_equal(W.seen.state, RUN_STARTING);
    assert_false(connector_callout_ops.reaches(W.c, &k));
    callout_world_run(&k)->workers = "{\"rank\":1,\"startedAt\":1000,\"endedAt\":2000}";
    guest_beats(&other);
    struct asked a = find(&k);
    assert_int_equal(a.seen.state, RUN_RUNNING);
    assert_int_equal(guest_comes(&again, W.loop, &t, &runs, take, W.c), 0);
    assert_true(connector_callout_ops.reaches(W.c, &k));
    connector_callout_ops.renew(W.c, NULL, 0);
    assert_int_equal(again.renewals, 1);
}

/* They were silent before this leader came, and the server goes on to call their run running. */
static void who_does_not_call_for_a_lease_is_unknown(void **state)
{
    struct run_key k = fresh();

    (void)state;
    submit(&k);
    object_as(W.target, target)->spec->connection->runners = true;
    W.lease_ms = 60000;
    struct asked a = find(&k); /* 15 s pass */
    assert_int_equal(a.seen.state, RUN_STARTING);
    W.told = 0;
    still_loop_run(W.loop, 45000);
    assert_int_equal(W.told, 0);
    still_loop_run(W.loop, 1000);
    assert_int_equal(W.told, 1);
    assert_int_equal(W.seen.state, RUN_UNKNOWN);
    assert_non_null(strstr(W.seen.message, "longer than the lease"));
    a = find(&k);
    assert_int_equal(a.seen.state, RUN_UNKNOWN);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {T(an_order_brings_tokens_where_they_are_understood),
                                       T(the_first_rank_that_failed_says_how_it_ended),
                                       T(all_ended_well),
                                       T(half_of_a_gang_is_no_success),
                                       T(all_never_started),
                                       T(one_rank_that_was_never_started),
                                       T(a_forgery_says_nothing),
                                       T(a_report_ends_nothing),
                                       T(what_has_begun_is_not_absent),
                                       T(the_end_of_one_rank_holds_up_no_lease),
                                       T(who_does_not_call_for_a_lease_is_unknown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
