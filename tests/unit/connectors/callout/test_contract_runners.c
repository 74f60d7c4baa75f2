/* The callout driver under the contract of connector.h as it is met outside: a server that somebody
 * else wrote, in another language, and `hanse run --home` as real processes, over real TLS. Then
 * what runners add to the contract: leases, saves, logs and commands, and that their server may
 * die. */
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/home/rack_world.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* ---- what is waited for ---- */
struct wanted {
    struct connector_rig *r;
    struct run_key key;
    int64_t grant, save, step;
};
static bool is_leased(void *arg)
{
    const struct wanted *x = arg;
    const struct observation *o = contract_seen_of(x->r, &x->key);

    return o && o->grant == x->grant && o->lease_held;
}
static bool is_here(void *arg)
{
    const struct wanted *x = arg;

    return x->r->ops->reaches(x->r->connector, &x->key);
}
static bool has_saved(void *arg)
{
    const struct wanted *x = arg;
    const struct observation *o = contract_seen_of(x->r, &x->key);

    return o && o->save.number == x->save && o->save.state == SAVE_DONE &&
           o->checkpoint.step == x->step;
}
static bool has_step(void *arg)
{
    const struct wanted *x = arg;
    const struct observation *o = contract_seen_of(x->r, &x->key);

    return o && o->checkpoint.present && o->checkpoint.step == x->step;
}
static bool is_reachable(void *arg)
{
    return ((struct connector_rig *)arg)->reachable;
}
static bool is_lost(void *arg)
{
    return !((struct connector_rig *)arg)->reachable;
}

/* ---- leases ---- */
/* An order brings none. Once it is taken, a runner that nobody renews ends its program itself, and
 * its server says so. */
static void a_lease_is_taken_and_runs_out(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct wanted x = {.r = r, .key = contract_running(r, &a), .grant = 2};
    const struct run_offer o = {.key = x.key, .number = 2, .lease_ms = 8000, .grace_ms = 500};

    assert_true(connector_until(r, is_here, &x, PATIENCE_MS));
    assert_false(contract_seen_of(r, &x.key)->lease_held);
    r->ops->renew(r->connector, &o, 1);
    assert_true(connector_until(r, is_leased, &x, PATIENCE_MS));
    const struct observation *end = contract_await_run(r, &x.key, RUN_ENDED);
    assert_true(end->lease_lost);
    assert_string_equal(end->reason, "LeaseLost");
    assert_int_equal(end->proof == PROOF_TREE_GONE || end->proof == PROOF_TREE_SEARCHED, 1);
    assert_int_equal(r->starts(r, &x.key), 1);
}

/* ---- saves ---- */
static void it_saves_and_goes_on(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct wanted x = {.r = r, .key = k, .save = 1, .step = 10};
    struct asked a;

    rack_world.signal = "SIGUSR2";
    assert_int_equal(contract_submit(r, &k, PROGRAM_SAVES, &a), OUT_DONE);
    rack_world.signal = NULL;
    assert_true(connector_until(r, has_step, &x, PATIENCE_MS));
    x.step = 20;
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->checkpoint(r->connector, &k, 1, 10000, &a.call);
    assert_int_equal(a.done, 0);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    assert_true(connector_until(r, has_saved, &x, PATIENCE_MS));
    assert_int_equal(contract_seen_of(r, &k)->state, RUN_RUNNING);
    assert_int_equal(contract_stop(r, &k, &a), OUT_DONE);
    assert_int_equal(a.seen.checkpoint.step, 20); /* with the end, too */
}

/* ---- the store ---- */
static enum outcome look(struct connector_rig *r, const struct run_key *k, int64_t epoch,
                         int64_t step, struct asked *a)
{
    struct run_order o = {.checkpoint_dir = "", .resume_path = "", .resume_digest = ""};

    r->order(r, k, PROGRAM_SAVES, &o);
    o.key = *k;
    o.key.epoch++;
    o.look_epoch = k->epoch;
    o.look_workers = 1;
    o.resume_epoch = epoch;
    o.resume_step = step;
    contract_ask_begin(r, a, CALL_MS);
    r->ops->stage(r->connector, &o, &a->call);
    return contract_ask_end(r, a);
}

/* What its runner has told nobody is there all the same; what does not hold is passed over. */
static void its_store_is_searched(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct wanted x = {.r = r, .key = k, .step = 10};
    struct asked a;

    assert_true(r->ops->stages(r->connector));
    assert_int_equal(contract_submit(r, &k, PROGRAM_SAVES, &a), OUT_DONE);
    assert_true(connector_until(r, has_step, &x, PATIENCE_MS));
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->quiesce(r->connector, &k, SIGUSR1, 5000, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    assert_int_equal(contract_await_run(r, &k, RUN_ENDED)->checkpoint.step, 20);
    assert_int_equal(look(r, &k, 1, 10, &a), OUT_DONE); /* as if the last one were not known */
    assert_true(a.seen.checkpoint.present);
    assert_int_equal(a.seen.checkpoint.step, 20);
    assert_int_equal(a.seen.checkpoint.epoch, 1);
    assert_int_equal(look(r, &k, 1, 20, &a), OUT_DONE);
    assert_false(a.seen.checkpoint.present); /* nothing newer */
    assert_int_equal(truncate(contract_seen_of(r, &k)->checkpoint.path, 10), 0);
    assert_int_equal(look(r, &k, 0, -1, &a), OUT_DONE);
    assert_int_equal(a.seen.checkpoint.step, 20); /* what was sealed becomes a cut anew */
    assert_string_not_equal(a.seen.checkpoint.path, contract_seen_of(r, &k)->checkpoint.path);
    assert_int_equal(r->starts(r, &k), 1);
}

/* ---- logs and commands ---- */
static struct heard {
    char text[4096];
    size_t n;
    unsigned ends;
    int exit_code;
} H;
static void on_data(int fd, const void *p, size_t n, void *arg)
{
    (void)fd;
    (void)arg;
    assert_int_equal(H.ends, 0);
    if (H.n + n >= sizeof H.text)
        return;
    memcpy(H.text + H.n, p, n);
    H.n += n;
    H.text[H.n] = '\0';
}
static void on_end(int exit_code, const struct err *err, void *arg)
{
    (void)arg;
    if (err && err->code)
        print_message("a stream has ended: %s\n", err->text);
    H.ends++;
    H.exit_code = exit_code;
}
static bool has_ended(void *arg)
{
    (void)arg;
    return H.ends > 0;
}

static void its_logs_and_commands_go_home(void **state)
{
    static const char *const argv[] = {"sh", "-c", "echo \"$K on $HANSE_TARGET\"; exit 5", NULL};
    static const struct log_sink sink = {.data = on_data, .end = on_end};
    struct connector_rig *r = *state;
    const struct exec_request exec = {.argv = argv};
    const struct log_request logs = {.tail_lines = -1};
    struct exec_session *s = NULL;
    struct asked a;
    struct wanted x = {.r = r, .key = contract_running(r, &a)};
    char key[RUN_KEY_MAX];
    struct err e;

    assert_true(connector_until(r, is_here, &x, PATIENCE_MS));
    run_key_print(&x.key, key);
    H = (struct heard){.n = 0};
    assert_int_equal(r->ops->exec(r->connector, &x.key, &exec, &sink, &s, &e), 0);
    assert_true(connector_until(r, has_ended, NULL, PATIENCE_MS));
    assert_int_equal(H.exit_code, 5);
    assert_non_null(strstr(H.text, key)); /* its program's environment */
    assert_non_null(strstr(H.text, " on t1"));
    H = (struct heard){.n = 0};
    assert_int_equal(r->ops->logs(r->connector, &x.key, &logs, &sink, &s, &e), 0);
    assert_true(connector_until(r, has_ended, NULL, PATIENCE_MS));
    assert_int_equal(contract_stop(r, &x.key, &a), OUT_DONE);
    assert_int_not_equal(r->ops->exec(r->connector, &x.key, &exec, &sink, &s, &e), 0);
}

/* ---- notices ---- */
static bool is_noticed(void *arg)
{
    return ((struct connector_rig *)arg)->n_notices > 0;
}
static void a_node_that_goes_away_is_told(void **state)
{
    struct connector_rig *r = *state;

    rack_nodes("[{\"name\":\"n1\",\"cpu\":\"8\",\"memory\":\"16Gi\","
               "\"notice\":{\"kind\":\"spot\",\"in\":\"2m\"}}]");
    assert_true(connector_until(r, is_noticed, r, PATIENCE_MS));
    assert_string_equal(r->notices[0].node, "t1.n1");
    assert_int_equal(r->notices[0].kind, NOTICE_SPOT);
    rack_nodes("[{\"name\":\"n1\",\"cpu\":\"8\",\"memory\":\"16Gi\"}]");
}

/* ---- times ---- */
static void it_is_started_in_time_or_never(void **state)
{
    struct connector_rig *r = *state;
    struct run_key late = contract_fresh_key(r), wrong = contract_fresh_key(r),
                   good = contract_fresh_key(r);
    int64_t now = loop_wall_ms(r->loop);
    struct asked a;

    r->start_from_ms = now - 60000;
    r->start_by_ms = now - 1000;
    assert_int_equal(contract_submit(r, &late, PROGRAM_ENDS, &a), OUT_DONE);
    assert_string_equal(contract_await_run(r, &late, RUN_ABSENT)->reason, "StartedTooLate");
    r->start_from_ms = now + 600000;
    r->start_by_ms = now + 1200000;
    assert_int_equal(contract_submit(r, &wrong, PROGRAM_ENDS, &a), OUT_DONE);
    assert_string_equal(contract_await_run(r, &wrong, RUN_ABSENT)->reason, "ClockWrong");
    r->start_from_ms = now - 60000;
    assert_int_equal(contract_submit(r, &good, PROGRAM_ENDS, &a), OUT_DONE);
    assert_int_equal(contract_await_run(r, &good, RUN_ENDED)->exit_code, PROGRAM_ENDS_EXIT);
    r->start_from_ms = r->start_by_ms = 0;
    assert_int_equal(r->starts(r, &late) + r->starts(r, &wrong), 0);
}

/* ---- its server dies ---- */
/* What its runners do meanwhile is none of its business: how they end it learns from what they have
 * left behind. */
static void its_server_dies_and_comes_back(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct wanted x = {.r = r, .key = contract_running(r, &a)};

    assert_true(connector_until(r, is_here, &x, PATIENCE_MS));
    rack_server_kill();
    assert_true(connector_until(r, is_lost, r, PATIENCE_MS));
    assert_true(r->alive(r, &x.key));
    contract_ask_begin(r, &a, CALL_MS); /* through its runner alone */
    r->ops->quiesce(r->connector, &x.key, SIGUSR1, 5000, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    rack_server_start();
    assert_true(connector_until(r, is_reachable, r, PATIENCE_MS));
    assert_int_equal(contract_find(r, &x.key, CALL_MS, &a), OUT_DONE);
    if (a.seen.state != RUN_ENDED)
        a.seen = *contract_await_run(r, &x.key, RUN_ENDED);
    assert_int_equal(a.seen.exit_code, PROGRAM_STAYS_EXIT);
    assert_int_equal(r->starts(r, &x.key), 1);
    connector_rig_end(r); /* who never heard its runner has it from what that left behind */
    r->n_seen = 0;
    connector_rig_begin(r);
    assert_int_equal(contract_find(r, &x.key, CALL_MS, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
    assert_int_equal(a.seen.exit_code, PROGRAM_STAYS_EXIT);
    assert_int_equal(r->told.exit_code, PROGRAM_STAYS_EXIT); /* its server does not know it */
    assert_int_equal(r->told.term_signal, 0);
}

int main(int argc, char **argv)
{
    int rc = rack_main(argc, argv);
    const struct CMUnitTest tests[] = {CONNECTOR_CONTRACT_TESTS,
                                       cmocka_unit_test(a_lease_is_taken_and_runs_out),
                                       cmocka_unit_test(it_saves_and_goes_on),
                                       cmocka_unit_test(its_store_is_searched),
                                       cmocka_unit_test(its_logs_and_commands_go_home),
                                       cmocka_unit_test(a_node_that_goes_away_is_told),
                                       cmocka_unit_test(it_is_started_in_time_or_never),
                                       cmocka_unit_test(its_server_dies_and_comes_back)};

    return rc >= 0 ? rc : cmocka_run_group_tests(tests, rack_setup, rack_teardown);
}
