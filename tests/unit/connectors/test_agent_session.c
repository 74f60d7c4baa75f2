/* One agent and its server: who is let in, what it tells of itself, and what is certain after an
 * answer was lost. */
#include "tests/support/agent_world.h"
#include "tests/support/run_kit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void inventory_is_told(void **state)
{
    struct asked a;

    (void)state;
    assert_int_equal(agent_inventory(0, &a), OUT_DONE);
    assert_int_equal(A.side[0].nodes, 2);
    assert_string_equal(A.side[0].node_name, "t1.n1");
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

static bool is_refused(void *arg)
{
    (void)arg;
    return A.refusal[0] != '\0';
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

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inventory_is_told),
        cmocka_unit_test(an_unknown_key_is_refused_for_ever),
        cmocka_unit_test(a_lost_answer_is_unknown_then_found),
        cmocka_unit_test(a_foreign_certificate_is_refused),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
