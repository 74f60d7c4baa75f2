/* An agent that has some ranks of a gang, and other agents the others: real agents and processes.
 * Who is on the other side of it is for connectors/agent/fleet to know; here are the ranks, where
 * they meet, and the lease, which is one for all of them. */
#include "tests/support/agent_world.h"
#include "tests/support/run_kit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *peers[2];

static struct run_span span(int64_t port)
{
    peers[0] = A.side[0].memory;
    peers[1] = "another";
    return (struct run_span){.world = 4,
                             .address = "127.0.0.9",
                             .port = port,
                             .peers = peers,
                             .n_peers = 2,
                             .asked_ms = loop_now_ms(A.loop)};
}

#define TELLS                                                                                      \
    "echo $RANK $HANSE_RANK $WORLD_SIZE $NODE_RANK $PET_NNODES $MASTER_ADDR $MASTER_PORT "         \
    "$JAX_COORDINATOR_ADDRESS $JAX_NUM_PROCESSES >$D/span.$U.$RANK; sleep 60"

static void ranks_are_those_of_the_whole(void **state)
{
    struct run_span s = span(15123);
    struct agent_order o = {.key = agent_key(),
                            .script = TELLS,
                            .workers = 2,
                            .first_rank = 2,
                            .base = "",
                            .span = &s};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(a.call.port, 15123);
    (void)agent_await(&o.key, RUN_RUNNING);
    assert_true(agent_await_file(agent_name("span.%s.3", o.key.uid)));
    agent_pass(200);
    assert_string_equal(agent_file_text("span.%s.3", o.key.uid),
                        "3 3 4 3 4 127.0.0.9 15123 127.0.0.9:15123 4\n");
    assert_false(agent_file_exists("span.%s.0", o.key.uid));
    agent_end(0, SIGKILL);
    agent_begin(0); /* it finds both by their ranks */
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(a.call.port, 15123);
    (void)agent_await(&o.key, RUN_RUNNING);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
    assert_int_equal(a.seen.term_signal, SIGTERM);
}

static void the_first_picks_where_they_meet(void **state)
{
    struct run_span s = span(0);
    struct agent_order o = {
        .key = agent_key(), .script = TELLS, .workers = 1, .base = "", .span = &s};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    int64_t port = a.call.port;
    assert_true(port >= 15000 && port < 20000);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE); /* the same again */
    assert_int_equal(a.call.port, port);
    assert_int_equal(agent_stop(0, &o.key, &a), OUT_DONE);
}

static void what_makes_no_sense_is_refused(void **state)
{
    struct run_span s = span(0);
    struct agent_order o = {.key = agent_key(),
                            .script = "true",
                            .workers = 2,
                            .first_rank = 2,
                            .base = "",
                            .span = &s};
    struct asked a;

    (void)state;
    assert_int_equal(agent_submit(&o, &a), OUT_REJECTED); /* nobody says where they meet */
    assert_non_null(strstr(a.err.text, "where its gang meets"));
    s = span(15123);
    s.address = "";
    assert_int_equal(agent_submit(&o, &a), OUT_REJECTED);
    s = span(15123);
    s.n_peers = 1;
    assert_int_equal(agent_submit(&o, &a), OUT_REJECTED);
    s = span(15123);
    o.first_rank = 3;
    assert_int_equal(agent_submit(&o, &a), OUT_REJECTED); /* rank 4 of 4 */
    assert_non_null(strstr(a.err.text, "ranks"));
}

/* The hub counts a renewal for the whole gang, or for none of it: this part must not outlive what
 * the hub believes while it cannot reach the other one. */
static void it_is_renewed_where_all_are_reached(void **state)
{
    struct run_span s = span(15200);
    struct agent_order o = {.key = agent_key(),
                            .script = "echo $$ >$D/renewed.pid; exec sleep 60",
                            .workers = 1,
                            .first_rank = 1,
                            .lease_ms = 2500,
                            .grace = "300ms",
                            .base = "",
                            .span = &s};
    struct agent_order alone = {.key = agent_key(), .script = "exec sleep 60", .lease_ms = 2500};
    struct asked a;

    (void)state;
    A.peers[0] = peers[1];
    A.peers[1] = peers[0];
    timer_start(&A.renewals, 0);
    agent_pass(1600); /* a lease counts from a beat that has been heard */
    s.asked_ms = loop_now_ms(A.loop);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE);
    assert_int_equal(agent_submit(&alone, &a), OUT_DONE);
    (void)agent_await(&o.key, RUN_RUNNING);
    agent_pass(3500);
    assert_int_equal(agent_seen(&o.key)->state, RUN_RUNNING);
    A.peers[0] = peers[0]; /* the other one is away */
    A.peers[1] = NULL;
    uint64_t from = loop_now_ms(A.loop);
    (void)agent_await(&o.key, RUN_ENDED);
    assert_true(loop_now_ms(A.loop) - from < 2500 + 300 + 2500);
    assert_true(agent_seen(&o.key)->lease_lost);
    assert_int_equal(agent_seen(&alone.key)->state, RUN_RUNNING); /* it is none of a gang */
    timer_stop(&A.renewals);
    assert_int_equal(agent_stop(0, &alone.key, &a), OUT_DONE);
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_those_of_the_whole),
        cmocka_unit_test(the_first_picks_where_they_meet),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(it_is_renewed_where_all_are_reached),
    };

    if (rc >= 0)
        return rc;
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
