/* The callout driver under the contract of connector.h, in virtual time, over a server in memory;
 * then the same server with each of its faults: whatever it answers, a call ends once, nothing is
 * believed that is not proved, and nothing runs twice. */
#include "connectors/callout/callout.h"
#include "controlplane/leader/drive/order.h"
#include "tests/support/contract/connector_contract.h"
#include "tests/support/web/callout_world.h"
#include "tests/support/web/still_loop.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static struct world {
    struct connector_rig rig;
    struct arena *arena; /* of orders */
    struct object *target, *workload[2];
    unsigned secrets;
} W;

/* ---- the rig ---- */
static void order(struct connector_rig *r, const struct run_key *k, enum contract_program what,
                  struct run_order *ret)
{
    static struct assignment at = {.node = "t1.n1", .mig = ""};
    static struct placement p = {
        .target = "t1", .class_ = "", .assignments = &at, .n_assignments = 1};
    static const char *const env[] = {"A=b", NULL};

    (void)r;
    (void)k;
    order_resolve(W.workload[what], W.arena, ret);
    ret->placement = &p;
    ret->env = env;
}

static void silence(struct connector_rig *r, bool on)
{
    (void)r;
    callout_world.silent = on;
}

static unsigned starts(struct connector_rig *r, const struct run_key *k)
{
    const struct callout_world_run *run = callout_world_run(k);

    (void)r;
    return run ? run->starts : 0;
}

static bool alive(struct connector_rig *r, const struct run_key *k)
{
    const struct callout_world_run *run = callout_world_run(k);

    (void)r;
    return run && run->state == RUN_RUNNING;
}

static const char *secret(void *arg, const char *name, const char *key)
{
    (void)arg;
    assert_string_equal(name, "rack");
    W.secrets++;
    return !strcmp(key, "key") ? CALLOUT_WORLD_KEY : NULL;
}

static struct object *made(enum kind_id kind, const char *text)
{
    cJSON *j = cJSON_Parse(text);
    struct object *o = NULL;
    struct err e;

    assert_non_null(j);
    if (object_from_json(kind_by_id(kind), j, 0, &o, &e))
        fail_msg("%s: %s", e.field, e.text);
    cJSON_Delete(j);
    return o;
}

static struct object *workload_made(const char *command)
{
    char text[400];

    (void)snprintf(text, sizeof text,
                   "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Workload\",\"metadata\":{"
                   "\"name\":\"w\",\"namespace\":\"default\"},\"spec\":{\"run\":{\"command\":["
                   "\"%s\"]}}}",
                   command);
    return made(KIND_WORKLOAD, text);
}

static int group_begin(void **state)
{
    W.rig = (struct connector_rig){.loop = still_loop_create(11),
                                   .run = still_loop_go,
                                   .ops = &connector_callout_ops,
                                   .order = order,
                                   .silence = silence,
                                   .starts = starts,
                                   .alive = alive,
                                   .secret = secret,
                                   .web = &script_web_ops};
    W.arena = arena_create(0);
    W.target =
        made(KIND_TARGET,
             "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{"
             "\"name\":\"t1\"},\"spec\":{\"type\":\"callout\",\"tier\":\"hub\",\"connection\":{"
             "\"server\":\"https://rack.test/base\",\"credentialsFrom\":{\"secret\":\"rack\"}}}}");
    W.rig.target = W.target;
    W.workload[PROGRAM_STAYS] = workload_made("stays");
    W.workload[PROGRAM_ENDS] = workload_made("ends-at-once");
    *state = &W.rig;
    return 0;
}

static int group_end(void **state)
{
    (void)state;
    (void)object_unref(W.target);
    (void)arena_destroy(W.arena);
    (void)object_unref(W.workload[0]);
    (void)object_unref(W.workload[1]);
    (void)still_loop_destroy(W.rig.loop);
    return 0;
}

static int begin(void **state)
{
    callout_world_begin(W.rig.loop);
    callout_world.repeats = true;
    W.rig.n_seen = 0;
    connector_rig_begin(*state);
    return 0;
}

static int end(void **state)
{
    connector_rig_end(*state);
    assert_int_equal(callout_world.unauthorised, 0);
    assert_int_equal(script_web.under_way, 0);
    return 0;
}

/* ---- one call, whatever becomes of it ---- */
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

static struct asked ask(struct connector_rig *r, const char *what, const struct run_key *k)
{
    struct asked a = {.call = {.deadline_ms = loop_now_ms(r->loop) + 15000, .done = on_done}};
    struct run_order o = {.checkpoint_dir = "", .resume_path = "", .resume_digest = ""};

    order(r, k, PROGRAM_STAYS, &o);
    o.key = *k;
    if (!strcmp(what, "submit"))
        r->ops->submit(r->connector, &o, &a.call);
    else if (!strcmp(what, "find"))
        r->ops->find(r->connector, k, &a.call);
    else
        r->ops->stop(r->connector, k, 100, &a.call);
    still_loop_run(r->loop, 15001);
    assert_int_equal(a.done, 1);
    return a;
}

static struct run_key fresh(void)
{
    static unsigned n;
    struct run_key k = {.epoch = 1, .try_ = 1};

    (void)snprintf(k.uid, sizeof k.uid, "fault-%u", ++n);
    return k;
}

static void no_bad_answer_is_believed(void **state)
{
    struct connector_rig *r = *state;

    for (int f = FAULT_HTML; f < FAULT_FAULTS; f++) {
        struct run_key k = fresh();
        struct asked a;
        if (f == FAULT_BUSY)
            continue;
        callout_world.fault = (enum callout_fault)f;
        a = ask(r, "submit", &k);
        if (a.out == OUT_REJECTED || (a.out == OUT_DONE && a.seen.state != RUN_RUNNING))
            fail_msg("submit under fault %d ended as %d, state %d", f, a.out, a.seen.state);
        assert_int_equal(starts(r, &k), f == FAULT_500 ? 1 : 1);
        callout_world.fault = (enum callout_fault)f;
        a = ask(r, "find", &k);
        if (a.out != OUT_UNKNOWN && a.seen.state != RUN_RUNNING)
            fail_msg("find under fault %d ended as %d, state %d", f, a.out, a.seen.state);
        a = ask(r, "find", &k);
        assert_int_equal(a.out, OUT_DONE);
        assert_int_equal(a.seen.state, RUN_RUNNING);
        assert_false(a.seen.checkpoint.present);
        a = ask(r, "submit", &k); /* again, under the same key */
        assert_int_equal(a.out, OUT_DONE);
        callout_world.fault = (enum callout_fault)f;
        a = ask(r, "stop", &k);
        if (a.out == OUT_DONE)
            assert_int_equal(a.seen.proof, PROOF_ACCOUNTING);
        a = ask(r, "stop", &k);
        assert_int_equal(a.out, OUT_DONE);
        assert_int_equal(a.seen.state, RUN_ENDED);
        assert_int_equal(starts(r, &k), 1);
    }
}

static void a_refusal_says_what_it_blames(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = fresh();
    struct asked a;

    callout_world.fault = FAULT_BUSY;
    a = ask(r, "submit", &k);
    assert_int_equal(a.out, OUT_REJECTED);
    assert_int_equal(a.err.code, E_UNAVAIL);
    assert_int_equal(a.call.refused.retry_ms, 7000);
    assert_int_equal(starts(r, &k), 0);
    (void)ask(r, "find", &k);
    a = ask(r, "submit", &k); /* it promised to refuse it */
    assert_int_equal(a.out, OUT_REJECTED);
    assert_int_equal(a.call.refused.class_, REFUSED_CONFLICT);
    assert_int_equal(a.call.refused.scope, BLAMES_WORKLOAD);
}

/* What became of an order that was not answered is found out by who asked for it. */
static void an_order_leaves_once(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = fresh();
    struct asked a = {.call = {.deadline_ms = loop_now_ms(r->loop) + 15000, .done = on_done}};
    struct run_order o = {.checkpoint_dir = "", .resume_path = "", .resume_digest = ""};

    order(r, &k, PROGRAM_STAYS, &o);
    o.key = k;
    callout_world.fault = FAULT_LOST;
    unsigned orders = callout_world.orders;
    r->ops->submit(r->connector, &o, &a.call);
    still_loop_run(r->loop, 20000);
    assert_int_equal(a.done, 1);
    assert_int_equal(a.out, OUT_UNKNOWN);
    assert_int_equal(callout_world.orders, orders + 1);
}

/* Its server has to say so, and in the session that it says it in. */
static void orders_are_repeated_where_its_server_says_so(void **state)
{
    struct connector_rig *r = *state;

    assert_string_equal(r->ops->repeats(r->connector), "i1");
    callout_world.silent = true;
    still_loop_run(r->loop, 100000);
    assert_string_equal(r->ops->repeats(r->connector), "");
    callout_world.silent = false;
    callout_world.instance++; /* it has forgotten what it knew */
    still_loop_run(r->loop, 60000);
    assert_string_equal(r->ops->repeats(r->connector), "i2");
    callout_world.repeats = false;
    callout_world.instance++;
    still_loop_run(r->loop, 60000);
    assert_true(r->reachable);
    assert_string_equal(r->ops->repeats(r->connector), "");
}

/* It waits in the server's own queue, and is put elsewhere than it was ordered. */
static void a_pending_run_is_seated_ahead_of_its_start(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = fresh();
    struct asked a;

    callout_world.queues = true;
    a = ask(r, "submit", &k);
    callout_world.queues = false;
    assert_int_equal(a.out, OUT_DONE);
    assert_int_equal(a.seen.state, RUN_PENDING);
    r->n_seated = 0;
    callout_world_seat_run(callout_world_run(&k), "n2");
    still_loop_run(r->loop, 10000);
    assert_int_equal(r->n_seated, 1); /* with the changes */
    assert_string_equal(r->seated.uid, k.uid);
    assert_string_equal(r->seat, "t1.n2");
    assert_int_equal(r->seat_gpu, 3);
    a = ask(r, "find", &k);
    assert_int_equal(a.seen.state, RUN_RUNNING);
    assert_int_equal(r->n_seated, 2); /* and ahead of an answer */
    callout_world_end_run(callout_world_run(&k), 0);
    still_loop_run(r->loop, 10000);
}

/* A server that lost what it knew is another session, in which all is looked for again. */
static void another_instance_is_another_session(void **state)
{
    struct connector_rig *r = *state;
    unsigned polls;

    still_loop_run(r->loop, 1000);
    assert_true(r->reachable);
    r->reachable = false;
    callout_world.instance++;
    still_loop_run(r->loop, 10000);
    assert_true(r->reachable); /* told anew */
    polls = callout_world.polls;
    still_loop_run(r->loop, 60000);
    assert_in_range(callout_world.polls - polls, 5, 40); /* what never waits is asked less often */
}

static void silence_is_told_and_passes(void **state)
{
    struct connector_rig *r = *state;

    callout_world.silent = true;
    still_loop_run(r->loop, 100000);
    assert_false(r->reachable);
    callout_world.silent = false;
    still_loop_run(r->loop, 60000);
    assert_true(r->reachable);
}

struct judged {
    size_t n;
};
static enum run_verdict keep(const struct run_listed *l, void *arg)
{
    (void)l;
    ((struct judged *)arg)->n++;
    return RUN_KEPT;
}
static void lists_come_in_pages(void **state)
{
    struct connector_rig *r = *state;
    struct judged j = {0};
    struct asked a = {.call = {.deadline_ms = loop_now_ms(r->loop) + 15000, .done = on_done}};

    for (unsigned i = 0; i < 25; i++) {
        struct run_key k = fresh();
        struct asked s = ask(r, "submit", &k);
        assert_int_equal(s.out, OUT_DONE);
    }
    callout_world.page = 7;
    a.call.deadline_ms = loop_now_ms(r->loop) + 15000;
    r->ops->sweep(r->connector, keep, &j, &a.call);
    still_loop_run(r->loop, 5000);
    assert_int_equal(a.out, OUT_DONE);
    assert_int_equal(j.n, callout_world.n_runs);
}

/* ---- nodes ---- */
static uint64_t node_hash(struct connector_rig *r, const char *name)
{
    struct indexed *e = index_find(&r->nodes.by_name, name);

    assert_non_null(e);
    return container_of(e, struct node_told, by_name)->hash;
}
/* n nodes, and that one is not what it was. */
static void nodes_are(struct connector_rig *r, size_t n, const char *name, uint64_t hash_not)
{
    still_loop_run(r->loop, 12000);
    assert_int_equal(r->nodes.n_told - r->nodes.n_leaves, n);
    assert_true(node_hash(r, name) != hash_not);
    assert_int_equal(r->unfit, 0);
}
/* What changes is told as what changed, and none of it in between is left out. */
static void changes_of_nodes_come_as_deltas(void **state)
{
    struct connector_rig *r = *state;

    callout_world_node("n2", 8);
    nodes_are(r, 2, "t1.n2", 0);
    unsigned listings = callout_world.listings;
    uint64_t was = node_hash(r, "t1.n1");
    callout_world_node("n1", 4);
    nodes_are(r, 2, "t1.n1", was);
    callout_world_node("n2", 0);
    callout_world_node("n3", 2);
    nodes_are(r, 2, "t1.n3", 0);
    callout_world.small_deltas = true;
    was = node_hash(r, "t1.n1");
    for (unsigned i = 0; i < 4; i++)
        callout_world_node("n4", i + 1);
    callout_world_node("n1", 1);
    nodes_are(r, 3, "t1.n1", was);
    assert_true(r->deltas >= 6); /* the last one step by step */
    assert_int_equal(callout_world.listings, listings);
    assert_string_equal(r->nodes.revision, "r10");
}

/* Who does not know that revision any more, or no changes at all, is asked for all. */
static void a_server_without_deltas_is_asked_for_all(void **state)
{
    struct connector_rig *r = *state;

    nodes_are(r, 1, "t1.n1", 0);
    callout_world_node("n2", 8);
    callout_world_node("n1", 0);
    callout_world.forgotten = callout_world.revision;
    unsigned listings = callout_world.listings;
    nodes_are(r, 1, "t1.n2", 0);
    assert_int_equal(callout_world.listings, listings + 1);
    assert_null(index_find(&r->nodes.by_name, "t1.n1"));
    callout_world.no_deltas = true;
    callout_world_node("n3", 8);
    callout_world_node("n2", 0);
    nodes_are(r, 1, "t1.n3", 0);
    assert_int_equal(callout_world.listings, listings + 2);
    assert_null(index_find(&r->nodes.by_name, "t1.n2"));
    assert_int_equal(r->deltas, 0);
}

/* A listing that somebody asks for while another one is read: pages of one alone are told. */
static void listings_do_not_mix(void **state)
{
    struct connector_rig *r = *state;
    struct asked a = {.call = {.deadline_ms = loop_now_ms(r->loop) + 15000, .done = on_done}};

    callout_world_node("n2", 8);
    callout_world_node("n3", 8);
    callout_world_node("n4", 8);
    nodes_are(r, 4, "t1.n4", 0);
    callout_world.page = 1;
    callout_world.no_deltas = true;
    callout_world.nodes_ms = 400;
    unsigned pages = r->pages;
    callout_world_node("n1", 4);
    while (r->pages - pages < 2)
        still_loop_run(r->loop, 100);
    a.call.deadline_ms = loop_now_ms(r->loop) + 15000;
    r->ops->inventory(r->connector, &a.call);
    still_loop_run(r->loop, 15000);
    assert_int_equal(a.out, OUT_DONE);
    assert_int_equal(r->nodes.stage, LISTING_ENDED);
    assert_int_equal(r->nodes.n_named, 4);
    assert_int_equal(r->pages - pages, 2 + 4);
    assert_int_equal(r->unfit, 0);
}

/* ---- what is told beside ---- */
static const struct node *node_told(struct connector_rig *r, const char *name, struct arena *a)
{
    struct indexed *e = index_find(&r->nodes.by_name, name);
    const struct node_told *t = e ? container_of(e, struct node_told, by_name) : NULL;
    struct err err;
    void *body;

    assert_non_null(t);
    assert_int_equal(tlv_decode(&schema_node, slice_make(t->bytes, t->n), a, &body, &err), 0);
    return body;
}

static void node_is(struct connector_rig *r, const char *others, const char *faults)
{
    callout_world.nodes[0].others = others;
    callout_world.nodes[0].faults = faults;
    callout_world_node("n1", 8);
    still_loop_run(r->loop, 12000);
}

static void what_others_hold_and_what_is_wrong(void **state)
{
    struct connector_rig *r = *state;
    AUTO_ARENA a = arena_create(0);

    node_is(r, "{\"cpu\":\"1500m\"}",
            "[{\"reason\":\"DOWN\",\"source\":\"targetDrain\",\"health\":\"NotReady\"}]");
    const struct node_status *s = node_told(r, "t1.n1", a)->status;
    assert_int_equal(s->others->cpu, 1500);
    assert_int_equal(s->faults[0].source, SOURCE_DRAIN);
    assert_int_equal(s->health, HEALTH_NOT_READY);
    assert_string_equal(s->reason, "DOWN");
    uint64_t was = node_hash(r, "t1.n1");
    node_is(r, "{\"cpu\":\"-1\"}", NULL); /* no node at all: what was told stays */
    node_is(r, "[3]", NULL);
    node_is(r, NULL, "[{\"reason\":\"DOWN\",\"source\":\"rumour\"}]");
    assert_int_equal(node_hash(r, "t1.n1"), was);
    node_is(r, NULL, NULL);
    s = node_told(r, "t1.n1", a)->status;
    assert_true(!s->others && !s->n_faults && s->health == HEALTH_READY);
}

/* ---- nodes that go away ---- */
static void announced(struct connector_rig *r, const char *notice)
{
    callout_world.nodes[0].notice = notice;
    callout_world_node("n1", 8);
    still_loop_run(r->loop, 12000);
}

static void a_node_that_goes_away_is_told(void **state)
{
    struct connector_rig *r = *state;
    still_loop_run(r->loop, 12000);
    assert_true(r->noticed > 0);
    assert_int_equal(r->n_notices, 0);
    announced(r, "{\"kind\":\"spot\",\"in\":\"2m\"}");
    assert_int_equal(r->n_notices, 1);
    assert_string_equal(r->notices[0].node, "t1.n1");
    assert_int_equal(r->notices[0].kind, NOTICE_SPOT);
    assert_true(r->notices[0].ends);
    assert_int_equal(r->notices[0].in_ms, 120000);
    /* A delta of another node leaves it, and its span goes on. */
    callout_world_node("n2", 4);
    still_loop_run(r->loop, 12000);
    assert_int_equal(r->n_notices, 1);
    assert_in_range(r->notices[0].in_ms, 90000, 119000);
    announced(r, "{\"kind\":\"rebalance\"}");
    assert_int_equal(r->notices[0].kind, NOTICE_REBALANCE);
    assert_false(r->notices[0].ends);
    announced(r, "{\"kind\":\"maintenance\",\"in\":\"0s\"}"); /* it is over, and it says so */
    assert_true(r->notices[0].ends);
    assert_int_equal(r->notices[0].in_ms, 0);
    /* Half a notice is none, and takes none away. */
    announced(r, "{\"kind\":\"spot\"}");
    announced(r, "{\"in\":\"2m\"}");
    announced(r, "{\"kind\":\"fire\",\"in\":\"2m\"}");
    announced(r, "{\"kind\":\"spot\",\"in\":\"-2m\"}");
    announced(r, "[]");
    assert_int_equal(r->n_notices, 1);
    assert_int_equal(r->notices[0].kind, NOTICE_MAINTENANCE);
    announced(r, NULL);
    assert_int_equal(r->n_notices, 0);
    /* A node that is gone has none; nor has one that a server with another memory does not name. */
    announced(r, "{\"kind\":\"spot\",\"in\":\"2m\"}");
    assert_int_equal(r->n_notices, 1);
    callout_world_node("n1", 0);
    still_loop_run(r->loop, 12000);
    assert_int_equal(r->n_notices, 0);
    callout_world.no_deltas = true;
    announced(r, "{\"kind\":\"spot\",\"in\":\"2m\"}");
    assert_int_equal(r->n_notices, 1);
    announced(r, NULL);
    assert_int_equal(r->n_notices, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void)
{
    const struct CMUnitTest tests[] = {T(connector_runs_and_tells_the_end),
                                       T(connector_adopts_a_second_submit),
                                       T(connector_refuses_what_it_called_absent),
                                       T(connector_refuses_older_epochs),
                                       T(connector_stops_with_proof_and_again),
                                       T(connector_stops_what_never_was),
                                       T(connector_quiesces_by_signal),
                                       T(connector_ends_calls_by_their_deadline),
                                       T(connector_ends_calls_when_destroyed),
                                       T(connector_holds_no_truth),
                                       T(connector_sweeps_what_nobody_owns),
                                       T(connector_finalizes_what_has_ended),
                                       T(no_bad_answer_is_believed),
                                       T(a_refusal_says_what_it_blames),
                                       T(an_order_leaves_once),
                                       T(orders_are_repeated_where_its_server_says_so),
                                       T(a_pending_run_is_seated_ahead_of_its_start),
                                       T(another_instance_is_another_session),
                                       T(silence_is_told_and_passes),
                                       T(lists_come_in_pages),
                                       T(changes_of_nodes_come_as_deltas),
                                       T(what_others_hold_and_what_is_wrong),
                                       T(a_server_without_deltas_is_asked_for_all),
                                       T(listings_do_not_mix),
                                       T(a_node_that_goes_away_is_told)};

    return cmocka_run_group_tests(tests, group_begin, group_end);
}
