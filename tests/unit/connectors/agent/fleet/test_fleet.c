/* A Target with two agents, whose drivers are fakes that answer when and what the test says: what
 * is true of the whole, when one of them is away, silent, or lost an answer. */
#include "tests/support/agent/fleet_world.h"

/* ---- tests ---- */
static void test_each_part_is_a_target_to_its_driver(void **state)
{
    struct object *more;
    static const char *const three[] = {"c", "a", "b", NULL};

    (void)state;
    world_init();
    assert_string_equal(fakes[0]->base.target, "t.a");
    assert_string_equal(fakes[1]->base.target, "t.b");
    assert_ptr_equal(connector_agent_part(w.c, "b"), &fakes[1]->base);
    assert_null(connector_agent_part(w.c, ""));
    assert_null(connector_agent_part(w.c, "c"));
    more = document(three, "first");
    w.c->ops->update(w.c, more);
    (void)object_unref(more);
    assert_int_equal(n_fakes, 3);
    assert_ptr_equal(connector_agent_part(w.c, "c"), &fakes[2]->base);
    assert_ptr_equal(connector_agent_part(w.c, "a"), &fakes[0]->base);
    world_fini();
}

static void test_a_run_is_asked_for_where_the_log_has_it(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    comes(1, "sb");
    w.at[0] = "t.b.n";
    w.c->ops->find(w.c, &key, call());
    assert_int_equal(fakes[0]->asked[FIND], 0);
    says(1, FIND, RUN_RUNNING);
    assert_int_equal(w.done, 1);
    assert_int_equal(w.seen.state, RUN_RUNNING);
    w.c->ops->stop(w.c, &key, 1000, call());
    assert_int_equal(fakes[0]->asked[STOP], 0);
    says(1, STOP, RUN_ENDED);
    assert_int_equal(w.seen.state, RUN_ENDED);
    world_fini();
}

/* Rejected would mean "had no effect", and absent "never started": of one that is away, neither is
 * known. */
static void test_what_is_away_or_silent_is_unknown(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    comes(1, "sb");
    goes(1);
    assert_true(w.reachable);
    w.at[0] = "t.b.n";
    w.c->ops->find(w.c, &key, call());
    answer(1, FIND, OUT_REJECTED, NULL); /* as a driver does whose agent is not connected */
    assert_int_equal(w.out, OUT_DONE);
    assert_int_equal(w.seen.state, RUN_UNKNOWN);
    assert_non_null(strstr(w.seen.message, "agent b of target t is away"));
    w.c->ops->stop(w.c, &key, 1000, call());
    answer(1, STOP, OUT_UNKNOWN, NULL);
    assert_int_equal(w.seen.state, RUN_UNKNOWN);
    w.c->ops->quiesce(w.c, &key, 15, 1000, call());
    answer(1, QUIESCE, OUT_UNKNOWN, NULL);
    assert_int_equal(w.out, OUT_UNKNOWN);
    assert_false(w.c->ops->reaches(w.c, &key)); /* no renewal may be counted */
    assert_true(w.c->ops->reaches(w.c, NULL));
    w.at[0] = "t.a.n";
    assert_true(w.c->ops->reaches(w.c, &key));
    world_fini();
}

/* Of a run that the log does not have any agent may have it. */
static void test_a_run_that_no_log_has_is_asked_of_all(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    comes(1, "sb");
    w.c->ops->stop(w.c, &key, 1000, call());
    says(0, STOP, RUN_ABSENT);
    assert_int_equal(w.done, 0);
    answer(1, STOP, OUT_UNKNOWN, NULL); /* its answer was lost */
    assert_int_equal(w.seen.state, RUN_UNKNOWN);
    w.c->ops->stop(w.c, &key, 1000, call());
    says(0, STOP, RUN_ABSENT);
    says(1, STOP, RUN_ABSENT);
    assert_int_equal(w.seen.state, RUN_ABSENT);
    w.c->ops->find(w.c, &key, call());
    answer(0, FIND, OUT_UNKNOWN, NULL);
    says(1, FIND, RUN_RUNNING);
    assert_int_equal(w.seen.state, RUN_RUNNING);
    w.c->ops->finalize(w.c, &key, call());
    answer(0, FINALIZE, OUT_REJECTED, NULL);
    says(1, FINALIZE, RUN_ENDED);
    assert_int_equal(w.out, OUT_DONE);
    world_fini();
}

static void test_an_order_goes_to_the_agent_of_its_nodes(void **state)
{
    struct assignment v[1] = {{.node = "t.b.n", .rank = 0}};
    struct placement p = {.target = "t", .assignments = v, .n_assignments = 1};
    struct run_order o = {.key = key, .placement = &p};

    (void)state;
    world_init();
    comes(0, "sa");
    comes(1, "sb");
    w.c->ops->submit(w.c, &o, call());
    assert_int_equal(fakes[0]->asked[SUBMIT], 0);
    says(1, SUBMIT, RUN_STARTING);
    assert_int_equal(w.out, OUT_DONE);
    v[0].node = "t.c.n";
    w.c->ops->submit(w.c, &o, call());
    assert_int_equal(w.done, 0); /* never from inside the call */
    pass(20);
    assert_int_equal(w.out, OUT_REJECTED);
    world_fini();
}

/* The same order again is the same run while those that are in reach have what they had of it. */
static void test_orders_may_be_repeated_while_all_remember(void **state)
{
    char before[64];

    (void)state;
    world_init();
    assert_string_equal(w.c->ops->repeats(w.c), "");
    comes(0, "sa");
    str_copy(before, sizeof before, w.c->ops->repeats(w.c));
    assert_string_not_equal(before, "");
    comes(1, "sb");
    assert_string_not_equal(w.c->ops->repeats(w.c), before);
    goes(1);
    assert_string_equal(w.c->ops->repeats(w.c), before);
    comes(1, ""); /* it names none */
    assert_string_equal(w.c->ops->repeats(w.c), "");
    world_fini();
}

/* What was swept before an agent came has not listed what runs there. */
static void test_a_sweep_that_an_agent_came_into_is_none(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    w.c->ops->sweep(w.c, NULL, NULL, call());
    comes(1, "sb");
    answer(0, SWEEP, OUT_DONE, NULL);
    assert_int_equal(w.out, OUT_UNKNOWN);
    w.c->ops->sweep(w.c, NULL, NULL, call());
    answer(0, SWEEP, OUT_DONE, NULL);
    assert_int_equal(w.done, 0);
    answer(1, SWEEP, OUT_DONE, NULL);
    assert_int_equal(w.out, OUT_DONE);
    assert_string_equal(w.seen.message, "");
    goes(1);
    w.c->ops->sweep(w.c, NULL, NULL, call());
    answer(0, SWEEP, OUT_DONE, NULL);
    assert_int_equal(w.out, OUT_DONE);
    assert_string_equal(w.seen.message, "agent b is away"); /* it is told that it lacks some */
    goes(0);
    w.c->ops->sweep(w.c, NULL, NULL, call());
    pass(20);
    assert_int_equal(w.out, OUT_UNKNOWN);
    world_fini();
}

static void test_reach_of_the_whole_is_that_of_any(void **state)
{
    (void)state;
    world_init();
    comes(1, "sb");
    assert_true(w.reachable);
    assert_string_equal(w.why, "1 of 2 agents are in reach, not a");
    assert_string_equal(w.part[1], "b 1 sb");
    comes(0, "sa");
    assert_string_equal(w.part[0], "a 1 sa");
    goes(1);
    assert_int_equal(w.reaches, 3);
    assert_true(w.reachable); /* in a new session: its runs are looked for */
    goes(0);
    assert_false(w.reachable);
    world_fini();
}

static void test_nodes_of_one_that_is_away_stay_and_take_nothing(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    lists(0, "t.a.n");
    comes(1, "sb");
    lists(1, "t.b.n");
    assert_int_equal(w.n_nodes, 2);
    assert_string_equal(w.nodes[1].target, "t"); /* not as its agent knows it */
    goes(1);
    pass(50);
    assert_int_equal(w.nodes[0].health, HEALTH_READY);
    assert_int_equal(w.nodes[1].health, HEALTH_UNKNOWN);
    assert_false(w.nodes[1].gone);
    comes(1, "sb");
    lists(1, "t.b.n");
    assert_int_equal(w.nodes[1].health, HEALTH_READY);
    w.c->ops->inventory(w.c, call());
    lists(0, "t.a.m"); /* one went, another came; the other agent's stay */
    lists(1, "t.b.n");
    assert_true(w.nodes[0].gone);
    assert_false(w.nodes[1].gone);
    assert_string_equal(w.nodes[2].name, "t.a.m");
    answer(0, INVENTORY, OUT_DONE, NULL);
    answer(1, INVENTORY, OUT_DONE, NULL);
    assert_int_equal(w.out, OUT_DONE);
    world_fini();
}

/* Told on, until its agent lists all of its nodes, or is rid of it. */
static void test_nodes_that_cannot_be_read(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    lists(0, "t.a.n");
    lists_unreadable(0, "t.a.m");
    lists_unreadable(0, "t.a.m");
    assert_string_equal(w.unreadable, "t.a.m");
    assert_false(w.nodes[0].gone);
    lists(0, "t.a.n");
    assert_string_equal(w.unreadable, "");
    assert_false(w.nodes[0].gone);
    assert_false(w.broken);
    world_fini();
}

static void test_notices_of_an_agent_that_has_not_come_stay(void **state)
{
    const struct notice one = {.node = "t.a.n", .kind = NOTICE_MAINTENANCE};

    (void)state;
    world_init();
    comes(0, "sa");
    lists(0, "t.a.n");
    comes(1, "sb");
    lists(1, "t.b.n"); /* the state has a notice of it */
    fakes[0]->base.env.events->notices(fakes[0]->base.env.arg, &one, 1);
    assert_int_equal(w.n_notices, 2);
    assert_string_equal(w.notices[1].node, "t.b.n");
    fakes[1]->base.env.events->notices(fakes[1]->base.env.arg, NULL, 0);
    assert_int_equal(w.n_notices, 1);
    assert_string_equal(w.notices[0].node, "t.a.n");
    world_fini();
}

/* The log names the state folder of that agent alone to which a run goes. */
static void test_who_speaks_for_a_place(void **state)
{
    struct assignment v[2] = {{.node = "t.a.n"}, {.node = "t.b.n"}};
    struct placement p = {.target = "t", .assignments = v, .n_assignments = 1};
    char who[64], before[64];

    (void)state;
    world_init();
    w.c->ops->agents(w.c, &p, who);
    assert_string_equal(who, "first"); /* as the state has it */
    comes(0, "sa");
    w.c->ops->agents(w.c, &p, who);
    assert_string_equal(who, "sa");
    p.n_assignments = 2;
    w.c->ops->agents(w.c, &p, who);
    assert_string_equal(who, ""); /* b was never heard of */
    comes(1, "sb");
    w.c->ops->agents(w.c, &p, before);
    assert_string_not_equal(before, "");
    comes(1, "other");
    w.c->ops->agents(w.c, &p, who);
    assert_string_not_equal(who, before);
    world_fini();
}

static void test_a_fleet_that_goes_ends_what_is_open(void **state)
{
    (void)state;
    world_init();
    comes(0, "sa");
    comes(1, "sb");
    w.c->ops->find(w.c, &key, call());
    says(0, FIND, RUN_RUNNING);
    world_fini();
    assert_int_equal(w.done, 1);
    assert_int_equal(w.seen.state, RUN_RUNNING); /* it lives somewhere; nobody asks any more */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_part_is_a_target_to_its_driver),
        cmocka_unit_test(test_a_run_is_asked_for_where_the_log_has_it),
        cmocka_unit_test(test_what_is_away_or_silent_is_unknown),
        cmocka_unit_test(test_a_run_that_no_log_has_is_asked_of_all),
        cmocka_unit_test(test_an_order_goes_to_the_agent_of_its_nodes),
        cmocka_unit_test(test_orders_may_be_repeated_while_all_remember),
        cmocka_unit_test(test_a_sweep_that_an_agent_came_into_is_none),
        cmocka_unit_test(test_reach_of_the_whole_is_that_of_any),
        cmocka_unit_test(test_nodes_of_one_that_is_away_stay_and_take_nothing),
        cmocka_unit_test(test_nodes_that_cannot_be_read),
        cmocka_unit_test(test_notices_of_an_agent_that_has_not_come_stay),
        cmocka_unit_test(test_who_speaks_for_a_place),
        cmocka_unit_test(test_a_fleet_that_goes_ends_what_is_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
