/* One agent and its server: who is let in, what it tells of itself, and what is certain after an
 * answer was lost. */
#include "tests/support/agent_world.h"
#include "tests/support/run_kit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void inventory_is_told(void **state)
{
    struct asked a;

    (void)state;
    assert_int_equal(agent_inventory(0, &a), OUT_DONE);
    assert_int_equal(A.side[0].nodes, 2);
    assert_string_equal(A.side[0].node_name, "t1.n1");
}

static bool delta_came(void *arg)
{
    return strncmp(A.side[0].told, arg, strlen(arg)) == 0;
}
static void nodes_write(const char *nodes)
{
    char file[128], text[256];

    (void)snprintf(file, sizeof file, "%s/t1.yaml", A.dir);
    (void)snprintf(text, sizeof text, "target: t1\nnodes:\n%s", nodes);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
    assert_int_equal(kill(A.side[0].agent, SIGHUP), 0);
}

/* What its file says otherwise after a SIGHUP is told alone, with the revision it builds on. */
static void changes_of_its_nodes_are_told_alone(void **state)
{
    static const struct {
        const char *nodes, *first;
        size_t changed, removed;
    } steps[] = {
        {"- {name: n1, cpu: 8, memory: 16Gi}\n- {name: n3, cpu: 8, memory: 8Gi}\n", "t1.n3", 1, 1},
        {"- {name: n1, cpu: 8, memory: 16Gi}\n- {name: n3, cpu: 9, memory: 8Gi}\n", "t1.n3", 1, 0},
        {"- {name: n3, cpu: 8, memory: 8Gi}\n", "t1.n3", 1, 1},
        {"- {name: n1, cpu: 8, memory: 16Gi}\n- {name: n2, cpu: 8, memory: 16Gi}\n", "t1.n1", 2,
         1}};
    struct asked a;

    (void)state;
    assert_int_equal(agent_inventory(0, &a), OUT_DONE);
    for (unsigned i = 0; i < 4; i++) {
        char since[64], before[64], after[64];
        size_t removed = 9;
        assert_int_equal(sscanf(A.side[0].told + (i ? 0 : 1), i ? "%*s %63s" : "%63s", before), 1);
        (void)snprintf(since, sizeof since, "%.60s ", before);
        nodes_write(steps[i].nodes);
        assert_true(agent_until(delta_came, since, PATIENCE_MS));
        assert_int_equal(sscanf(A.side[0].told, "%*s %63s %zu", after, &removed), 2);
        assert_string_not_equal(after, before);
        assert_int_equal(A.side[0].nodes, steps[i].changed);
        assert_int_equal(removed, steps[i].removed);
        assert_string_equal(A.side[0].node_name, steps[i].first);
    }
    assert_int_equal(agent_inventory(0, &a), OUT_DONE); /* and all of it, where it is asked for */
    assert_int_equal(A.side[0].nodes, 2);
    assert_int_equal(A.side[0].told[0], ' ');
}

static void an_unknown_key_is_refused_for_ever(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "true"};
    struct asked a;

    (void)state;
    (void)agent_find(0, &o.key, &a);
    assert_int_equal(a.out, OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ABSENT);
    (void)agent_submit(&o, &a);
    assert_int_equal(a.out, OUT_REJECTED);
    assert_int_equal(a.err.code, E_STALE);
    agent_end(0, SIGKILL); /* the promise outlives the agent */
    agent_begin(0);
    (void)agent_submit(&o, &a);
    assert_int_equal(a.out, OUT_REJECTED);
    o.key.try_ = 2; /* a later try is another matter */
    (void)agent_submit(&o, &a);
    assert_int_equal(a.out, OUT_DONE);
    (void)agent_await(&o.key, RUN_ENDED);
    o.key.epoch = 3;
    (void)agent_submit(&o, &a);
    assert_int_equal(a.out, OUT_DONE);
    o.key.epoch = 2;
    (void)agent_submit(&o, &a);
    assert_int_equal(a.out, OUT_REJECTED); /* older than what has been here */
}

/* Seen: of an array that was deleted on a busy machine, 91 of 101 indexes ran to their end, because
 * their stops waited behind the orders of others. */
#define BURST 40
static void a_stop_goes_ahead_of_orders(void **state)
{
    struct agent_order o[BURST];
    struct asked a[BURST], stop;

    (void)state;
    for (int i = 0; i < BURST; i++) {
        o[i] = (struct agent_order){.key = agent_key(), .script = "echo >>$D/burst.$U"};
        agent_order_begin(&o[i], false, &a[i], PATIENCE_MS);
    }
    (void)agent_stop(0, &o[BURST - 1].key, &stop);
    assert_int_equal(stop.out, OUT_DONE);
    assert_int_equal(stop.seen.state, RUN_ABSENT);
    assert_false(a[BURST - 1].done);
    for (int i = 0; i < BURST; i++)
        assert_true(agent_until(agent_call_done, &a[i], PATIENCE_MS));
    assert_int_equal(a[BURST - 1].out, OUT_REJECTED);
    for (int i = 0; i < BURST - 1; i++) {
        assert_int_equal(a[i].out, OUT_DONE);
        (void)agent_await(&o[i].key, RUN_ENDED);
    }
    assert_false(agent_file_exists("burst.%s", o[BURST - 1].key.uid));
    assert_true(agent_file_exists("burst.%s", o[0].key.uid));
}

static void a_lost_answer_is_unknown_then_found(void **state)
{
    struct agent_order o = {
        .key = agent_key(), .script = "echo $$ >$D/lost.pid; exec sleep 600", .deadline_ms = 700};
    struct asked a;

    (void)state;
    assert_int_equal(kill(A.side[0].agent, SIGSTOP), 0);
    (void)agent_submit(&o, &a);
    assert_int_equal(a.out, OUT_UNKNOWN);
    assert_int_equal(kill(A.side[0].agent, SIGCONT), 0);
    long pid = agent_await_pid("lost.pid");
    (void)agent_find(0, &o.key, &a);
    assert_int_equal(a.out, OUT_DONE);
    assert_true(a.seen.state == RUN_STARTING || a.seen.state == RUN_RUNNING);
    (void)agent_stop(0, &o.key, &a);
    assert_int_equal(a.seen.state, RUN_ENDED);
    assert_false(pid_alive(pid));
}

static bool is_connected(void *arg)
{
    (void)arg;
    return A.side[0].reachable;
}

/* On a busy machine making megabytes of JSON may take longer than a silent session lives. */
static enum outcome submit_answered(const struct agent_order *o, struct asked *a)
{
    for (int i = 0; i < 5; i++) {
        assert_true(agent_until(is_connected, NULL, PATIENCE_MS));
        (void)agent_submit(o, a);
        if (a->out != OUT_UNKNOWN && a->err.code != E_UNAVAIL)
            break;
    }
    return a->out;
}

/* In JSON a control character takes six bytes: 8.4 MB of them are more than a frame may hold. */
static void an_order_too_large_is_refused(void **state)
{
    char arg[1401];
    struct agent_order o = {.key = agent_key(), .script = "true", .arg = arg, .n_args = 1000};
    struct asked a;

    (void)state;
    memset(arg, 1, sizeof arg - 1);
    arg[sizeof arg - 1] = '\0';
    assert_int_equal(submit_answered(&o, &a), OUT_REJECTED);
    assert_int_equal(a.err.code, E_TOOLARGE);
    o.n_args = 520; /* a frame holds it, an agent does not take it */
    assert_int_equal(submit_answered(&o, &a), OUT_REJECTED);
    assert_int_equal(a.err.code, E_TOOLARGE);
    o.n_args = 100;
    assert_int_equal(submit_answered(&o, &a), OUT_DONE);
    assert_int_equal(agent_await(&o.key, RUN_ENDED)->exit_code, 0);
}

static void the_longest_key_is_one(void **state)
{
    struct agent_order o = {.script = "true"};
    struct run_key back;
    char text[RUN_KEY_MAX];
    struct asked a;

    (void)state;
    memset(o.key.uid, 'u', sizeof o.key.uid - 1);
    o.key.epoch = o.key.try_ = INT64_MIN;
    run_key_print(&o.key, text);
    assert_int_equal(strlen(text), 63 + 2 * 21);
    o.key.epoch = o.key.try_ = RUN_KEY_NUMBER_MAX;
    run_key_print(&o.key, text);
    assert_int_equal(run_key_parse(text, &back, NULL), 0);
    assert_memory_equal(&back, &o.key, sizeof back);
    assert_int_not_equal(run_key_parse("u.01.1", &back, NULL), 0);
    assert_int_not_equal(run_key_parse("u.1.9007199254740993", &back, NULL), 0);
    (void)submit_answered(&o, &a);
    assert_int_equal(a.out, OUT_DONE);
    (void)agent_await(&o.key, RUN_ENDED);
    agent_end(0, SIGKILL); /* also as a folder's and a page's name */
    agent_begin(0);
    assert_int_equal(agent_find(0, &o.key, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
}

/* A folder of a run that ended, as an agent leaves it. */
static void ended_run_put(unsigned i)
{
    char key[64], text[128];

    (void)snprintf(key, sizeof key, "old%u.1.1", i);
    assert_int_equal(mkdir(agent_name("%s/state-t1/runs/%s", A.dir, key), 0700), 0);
    assert_int_equal(mkdir(agent_name("%s/state-t1/runs/%s/0", A.dir, key), 0700), 0);
    (void)snprintf(text, sizeof text,
                   "{\"key\":\"%s\",\"workers\":[{\"rank\":0,\"node\":\"t1.n1\"}]}", key);
    agent_file_put(agent_name("state-t1/runs/%s/order.json", key), text);
    agent_file_put(agent_name("state-t1/runs/%s/0/end.json", key),
                   "{\"state\":\"ended\",\"exitCode\":7}");
}

/* A HELLO has room for some; the others are told as soon as the session is there. */
static void more_runs_than_a_hello_holds_are_all_told(void **state)
{
    struct run_key k = {.epoch = 1, .try_ = 1};

    (void)state;
    agent_end(0, SIGTERM);
    for (unsigned i = 0; i < 200; i++)
        ended_run_put(i);
    agent_begin(0);
    for (unsigned i = 0; i < 200; i++) {
        (void)snprintf(k.uid, sizeof k.uid, "old%u", i);
        assert_int_equal(agent_await(&k, RUN_ENDED)->exit_code, 7);
    }
}

static bool is_refused(void *arg)
{
    (void)arg;
    return A.refusal[0] != '\0';
}

#define LINE "0123456789abcdef0123456789abcdef"

static bool heard_is(void *arg)
{
    const uint64_t *rv = arg;

    return A.side[0].reachable && A.side[0].heard_rv == *rv;
}

static void heard_again(uint64_t rv, const char *cluster)
{
    agent_end(0, SIGKILL);
    agent_begin(0);
    assert_true(agent_until(heard_is, &rv, PATIENCE_MS));
    assert_string_equal(A.side[0].heard, cluster);
    assert_int_equal(A.side[0].heard_ms, (int64_t)rv * 1000);
}

static bool heard_saved(void *arg)
{
    return strstr(agent_file_text("state-t1/heard"), arg) != NULL;
}

/* How far the hub's state had come, it remembers, and says so to whoever it is told by next. */
static void what_it_heard_is_kept(void **state)
{
    struct agent_side *x = &A.side[0];
    struct run_key k = agent_key();
    struct asked a;

    (void)state;
    (void)snprintf(x->cluster, sizeof x->cluster, LINE);
    x->rv = 100;
    heard_again(0, "");
    assert_true(
        agent_until(heard_saved, " 100 100000\n", PATIENCE_MS)); /* by a beat, in its own time */
    heard_again(100, LINE);
    x->rv = 200;
    agent_pass(2500); /* a beat; then with its book, at once */
    (void)agent_find(0, &k, &a);
    assert_int_equal(a.seen.state, RUN_ABSENT);
    x->rv = 50; /* somebody put an older copy back: it goes down for nobody */
    heard_again(200, LINE);
    agent_pass(1500);
    (void)snprintf(x->cluster, sizeof x->cluster, LINE ".2"); /* and goes on from there */
    assert_true(agent_until(heard_saved, LINE ".2 50 50000\n", PATIENCE_MS));
    heard_again(50, LINE ".2");
    str_copy(x->cluster, sizeof x->cluster, "");
}

static bool lobby_heard_is(void *arg)
{
    const uint64_t *rv = arg;

    return A.side[0].heard_rv == *rv && strcmp(A.side[0].heard, LINE ".3") == 0;
}

static bool back_again(void *arg)
{
    return ((struct agent_side *)arg)->reachable;
}

static bool turned_away(void *arg)
{
    return A.turned_away >= *(const unsigned *)arg;
}

/* A hub that has no Target for it, since it is an older copy, hears it before it turns it away; and
 * it comes again within the time that hubs count on. */
static void a_hub_without_its_target_hears_it(void **state)
{
    struct agent_side *x = &A.side[0];
    uint64_t rv = 300;
    unsigned many = 4;

    (void)state;
    (void)snprintf(x->cluster, sizeof x->cluster, LINE ".3");
    x->rv = rv;
    agent_cut_off(0, true);
    agent_cut_off(0, false); /* it is told in the welcome */
    A.no_targets = true;
    A.turned_away = 0;
    x->heard[0] = '\0';
    x->heard_rv = 0;
    agent_end(0, SIGTERM); /* what it has heard is on its disk */
    agent_begin_as(0, x->target);
    assert_true(agent_until(lobby_heard_is, &rv, PATIENCE_MS));
    assert_int_equal(x->heard_ms, (int64_t)rv * 1000);
    assert_true(agent_until(turned_away, &many, 2 * PATIENCE_MS));
    many++;
    assert_true(agent_until(turned_away, &many, AGENT_REDIAL_MAX_MS));
    assert_false(x->reachable);
    A.no_targets = false;
    agent_lobby_close();
    assert_true(agent_until(back_again, x, AGENT_REDIAL_MAX_MS));
    str_copy(x->cluster, sizeof x->cluster, "");
}

static enum run_verdict claims_all(const struct run_listed *r, void *arg)
{
    (void)r;
    (void)arg;
    return RUN_CLAIMED;
}

/* A claim tells when its state had come so far: an agent that was started again must not say of it
 * that it was when the order was given, by another state. */
static void what_a_claim_told_is_of_its_own_time(void **state)
{
    struct agent_side *x = &A.side[0];
    struct agent_order o = {.key = agent_key(), .script = "while :; do sleep 0.05; done"};
    struct asked a;

    (void)state;
    (void)snprintf(x->cluster, sizeof x->cluster, LINE ".3");
    x->rv = 390;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    (void)snprintf(x->cluster, sizeof x->cluster, LINE ".4");
    x->rv = 60;
    assert_int_equal(agent_sweep(0, claims_all, &a), OUT_DONE);
    (void)agent_find(0, &o.key, &a); /* frames come in order: it is claimed */
    x->rv = 40;                      /* what the next welcome tells goes down for nobody */
    heard_again(60, LINE ".4");
    (void)agent_stop(0, &o.key, &a);
    str_copy(x->cluster, sizeof x->cluster, "");
}

static void a_foreign_certificate_is_refused(void **state)
{
    struct agent_order o = {.key = agent_key(), .script = "true"};
    struct asked a;

    (void)state;
    agent_end(0, SIGTERM);
    (void)agent_submit(&o, &a);
    assert_int_equal(a.out, OUT_REJECTED); /* nothing left this process */
    assert_int_equal(a.err.code, E_UNAVAIL);
    A.all_to_first = true;
    agent_begin_as(0, "t2");
    assert_true(agent_until(is_refused, NULL, PATIENCE_MS));
    assert_non_null(strstr(A.refusal, "\"agent:t1\""));
    assert_false(A.side[0].reachable);
    agent_end(0, SIGKILL);
    A.all_to_first = false;
    agent_begin(0);
}

static bool is_open(void *arg)
{
    return ((struct agent_side *)arg)->reachable;
}

static bool is_silent(void *arg)
{
    return ((struct agent_side *)arg)->silences > 0;
}

static void stands_still(void *arg)
{
    uint64_t until = loop_now_ms(A.loop) + 6000;

    (void)arg;
    while (loop_now_ms(A.loop) < until) {
    }
}

static void was_due(void *arg)
{
    (void)arg;
}

/* The server's own loop stands still for longer than an agent may be silent, and a timer was due
 * before the first beat came: the beats are heard before the agent is judged. */
static void our_own_standstill_is_not_its_silence(void **state)
{
    struct timer due;

    (void)state;
    timer_init(&due, A.loop, was_due, NULL);
    A.side[0].silences = 0;
    timer_start(&due, 50);
    loop_post(A.loop, stands_still, NULL);
    agent_pass(500);
    assert_true(agent_until(is_open, &A.side[0], PATIENCE_MS));
    assert_int_equal(A.side[0].silences, 0);
    assert_int_equal(kill(A.side[0].agent, SIGSTOP), 0); /* and what is silent is told */
    assert_true(agent_until(is_silent, &A.side[0], PATIENCE_MS));
    assert_int_equal(kill(A.side[0].agent, SIGCONT), 0);
    assert_true(agent_until(is_open, &A.side[0], PATIENCE_MS));
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inventory_is_told),
        cmocka_unit_test(changes_of_its_nodes_are_told_alone),
        cmocka_unit_test(an_unknown_key_is_refused_for_ever),
        cmocka_unit_test(a_stop_goes_ahead_of_orders),
        cmocka_unit_test(a_lost_answer_is_unknown_then_found),
        cmocka_unit_test(an_order_too_large_is_refused),
        cmocka_unit_test(the_longest_key_is_one),
        cmocka_unit_test(more_runs_than_a_hello_holds_are_all_told),
        cmocka_unit_test(what_it_heard_is_kept),
        cmocka_unit_test(a_hub_without_its_target_hears_it),
        cmocka_unit_test(what_a_claim_told_is_of_its_own_time),
        cmocka_unit_test(a_foreign_certificate_is_refused),
        cmocka_unit_test(our_own_standstill_is_not_its_silence),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
