/* `hanse agent notice`: what is announced of a machine reaches its hub, as a span, in each session;
 * it outlives the agent, and what is withdrawn is withdrawn in the next session, too. */
#include "connectors/agent/hub/hub_internal.h"
#include "tests/support/agent_world.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MINUTE 60000u
#define NOTICE(...)                                                                                \
    agent_notice_end(agent_notice_begin(0, (const char *const[]){__VA_ARGS__, NULL}))

struct want {
    const char *node; /* NULL: none has one */
    enum notice_kind kind;
    size_t n;
};

static bool is_told(void *arg)
{
    const struct want *w = arg;
    const struct agent_side *x = &A.side[0];

    return x->n_notices == w->n &&
           (!w->n || (x->notices[0].kind == w->kind && !strcmp(x->notices[0].node, w->node)));
}

/* Of the first one. */
static const struct notice *await(const char *node, enum notice_kind kind, size_t n)
{
    struct want w = {node, kind, n};

    assert_true(agent_until(is_told, &w, PATIENCE_MS));
    return A.side[0].notices;
}

static void none(void)
{
    (void)await(NULL, NOTICE_SPOT, 0);
}

static void test_the_whole_machine(void **state)
{
    const struct notice *v;

    (void)state;
    assert_int_equal(NOTICE("--kind", "spot", "--in", "2m"), 0);
    v = await("t1.n1", NOTICE_SPOT, 2);
    assert_true(v->ends && v->in_ms > MINUTE && v->in_ms <= 2 * MINUTE);
    assert_string_equal(v[1].node, "t1.n2");
    /* A node's own goes before that of all. */
    assert_int_equal(NOTICE("--kind", "rebalance", "--node", "n1"), 0);
    v = await("t1.n1", NOTICE_REBALANCE, 2);
    assert_false(v->ends);
    assert_int_equal(v[1].kind, NOTICE_SPOT);
    assert_int_equal(NOTICE("--clear"), 0);
    none();
    assert_int_equal(NOTICE("--clear"), 0); /* again: nothing to do */
}

static void test_one_node(void **state)
{
    (void)state;
    assert_int_equal(NOTICE("--kind", "maintenance", "--in", "1h", "--node", "n2"), 0);
    (void)await("t1.n2", NOTICE_MAINTENANCE, 1);
    assert_int_equal(NOTICE("--clear", "--node", "n1"), 0); /* has none */
    assert_int_equal(NOTICE("--clear", "--node", "n2"), 0);
    none();
}

static bool reached(void *arg)
{
    return A.side[0].reachable && A.side[0].noticed > *(unsigned *)arg;
}

/* Each session tells them all, with what is left by then. */
static void test_sessions_and_restarts(void **state)
{
    uint64_t before;
    unsigned told;

    (void)state;
    assert_int_equal(NOTICE("--kind", "timeLimit", "--in", "10m"), 0);
    before = await("t1.n1", NOTICE_TIME_LIMIT, 2)->in_ms;
    told = A.side[0].noticed;
    agent_cut_off(0, true);
    agent_pass(300);
    agent_cut_off(0, false);
    assert_true(agent_until(reached, &told, PATIENCE_MS));
    assert_int_equal(A.side[0].n_notices, 2);
    assert_true(A.side[0].notices[0].in_ms < before && A.side[0].notices[0].in_ms > 5 * MINUTE);
    agent_end(0, SIGKILL);
    told = A.side[0].noticed;
    agent_begin(0);
    assert_true(agent_until(reached, &told, PATIENCE_MS));
    assert_int_equal(A.side[0].notices[0].kind, NOTICE_TIME_LIMIT);
    assert_true(A.side[0].notices[0].in_ms < before && A.side[0].notices[0].in_ms > 5 * MINUTE);
    /* Withdrawn while nobody hears it. */
    agent_cut_off(0, true);
    assert_int_equal(NOTICE("--clear"), 0);
    agent_cut_off(0, false);
    none();
}

/* A hook calls it when it likes: also while the agent is being restarted. */
static void test_it_waits_for_its_agent(void **state)
{
    (void)state;
    agent_end(0, SIGKILL);
    pid_t pid = agent_notice_begin(0, (const char *const[]){"--kind", "spot", "--in", "90s", NULL});
    agent_pass(500);
    agent_begin(0);
    assert_int_equal(agent_notice_end(pid), 0);
    (void)await("t1.n1", NOTICE_SPOT, 2);
    assert_int_equal(NOTICE("--clear"), 0);
    none();
}

static void test_what_is_refused(void **state)
{
    static const struct {
        const char *words[6], *says;
    } bad[] = {
        {{"--kind", "spot"}, "--in SPAN"},
        {{"--kind", "fire", "--in", "2m"}, "expected spot, rebalance, maintenance or timeLimit"},
        {{"--kind", "spot", "--in", "soon"}, "expected a span"},
        {{"--kind", "spot", "--in", "-5m"}, "expected a span"},
        {{"--kind", "spot", "--in", "2m", "--node"}, "--node needs a value"},
        {{"--clear", "--kind", "spot"}, "or --clear without it"},
        {{"--node", "n1"}, "expected --kind KIND"},
        {{"--kind", "rebalance", "--node", "n9"}, "has no node \"n9\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_not_equal(agent_notice_end(agent_notice_begin(0, bad[i].words)), 0);
        if (!strstr(agent_file_text("notice.log"), bad[i].says))
            fail_msg("%s: %s", bad[i].says, agent_file_text("notice.log"));
    }
    assert_int_equal(A.side[0].n_notices, 0);
}

/* What an agent says of nodes that are not its own is refused as a whole; one of an older version
 * tells none. */
static void test_the_hub_believes_no_stranger(void **state)
{
    struct hub *h = hub_of(A.side[0].connector);
    struct wire_notice v[] = {{.node = "t1.n1", .kind = NOTICE_SPOT, .ends = true, .in_ms = 5},
                              {.node = "t11.n1", .kind = NOTICE_SPOT}};
    struct wire_notices list = {.notices = v, .n_notices = 2};
    unsigned told = A.side[0].noticed;
    struct err err;

    (void)state;
    assert_int_equal(hub_notices_take(h, &list, &err), E_INVALID);
    assert_int_equal(A.side[0].noticed, told);
    list.n_notices = 1;
    assert_int_equal(hub_notices_take(h, &list, &err), 0);
    assert_int_equal(A.side[0].n_notices, 1);
    assert_int_equal(hub_notices_take(h, NULL, &err), 0);
    assert_int_equal(A.side[0].n_notices, 0);
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_whole_machine),
                                       cmocka_unit_test(test_one_node),
                                       cmocka_unit_test(test_sessions_and_restarts),
                                       cmocka_unit_test(test_it_waits_for_its_agent),
                                       cmocka_unit_test(test_what_is_refused),
                                       cmocka_unit_test(test_the_hub_believes_no_stranger)};
    agent_events.notices = agent_on_notices;
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
