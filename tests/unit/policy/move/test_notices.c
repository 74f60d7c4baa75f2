/* Nodes that were announced to go away: nothing new is placed there, who runs there must leave, by
 * how much the notice presses, and advice that comes and goes chases nobody. */
#include "tests/support/policy/policy_world.h"

#define MINUTE 60000
#define GPU1 "  resources: {gpu: {count: 1}}\n"
#define SPOT "kind: spot, deadline: 2025-12-01T00:02:00Z, since: 2025-12-01T00:00:00Z"
#define LATER "kind: maintenance, deadline: 2025-12-01T06:00:00Z, since: 2025-12-01T00:00:00Z"
#define ADVICE "kind: rebalance, since: 2025-12-01T00:00:00Z"

/* A node of 8 h100 of target `hub`; notice "": it stays. */
static void node(struct world *w, const char *name, const char *notice)
{
    char text[700], gpus[300] = "";

    for (int i = 0; i < 8; i++)
        (void)snprintf(gpus + strlen(gpus), sizeof gpus - strlen(gpus),
                       "%s{index: %d, class: h100}", i ? ", " : "", i);
    (void)snprintf(text, sizeof text,
                   "kind: Node\nmetadata: {name: %s}\nspec: {target: hub, cpu: 64, memory: 64Gi, "
                   "gpus: [%s]}\nstatus: {health: Ready%s%s%s}\n",
                   name, gpus, *notice ? ", notice: {" : "", notice, *notice ? "}" : "");
    world_put(w, text);
}

/* A workload that runs on these two nodes since an hour. */
static const struct object *runs(struct world *w, const char *a, const char *b, const char *status)
{
    char text[1200];

    (void)snprintf(text, sizeof text,
                   "kind: Workload\nmetadata: {name: a, namespace: dev, uid: uid-a}\nspec:\n"
                   "  run: {command: [x]}\n  resources: {gpu: {count: 1}}\n  gang: {workers: 2}\n"
                   "status: {phase: Running, epoch: 1, phaseSince: 2025-11-30T23:00:00Z%s,\n"
                   "  placement: {target: hub, capacity: owned, class: h100, gpus: 2000, since: "
                   "2025-11-30T23:00:00Z, assignments: [{rank: 0, node: %s, gpus: [0], gpuMilli: "
                   "1000}, {rank: 1, node: %s, gpus: [1], gpuMilli: 1000}]}}\n",
                   status, a, b);
    const struct object *o = world_docs(w, text, false);
    pool_hold(w->p, o);
    return o;
}

static struct move_choice asks(struct world *w, const struct object *o)
{
    struct place_request rq = {.workload = o, .now_ms = NOW};
    struct move_choice c;
    struct err err = {0};

    assert_int_equal(policy_move(w->p, &rq, MOVE_SPOT, w->a, &c, &err), 0);
    return c;
}

static void test_nothing_new_is_placed_there(void **state)
{
    static const char *const notices[] = {SPOT, LATER, ADVICE,
                                          "kind: timeLimit, deadline: 2025-12-01T01:00:00Z"};
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    for (size_t i = 0; i < sizeof notices / sizeof *notices; i++) {
        node(w, "hub.n1", notices[i]);
        world_run(w, "b", GPU1);
        assert_pending(w, "NodeGoesAway");
    }
    node(w, "hub.n1", SPOT);
    world_run(w, "b", GPU1);
    assert_pending(w, "NodeGoesAway");
    if (!strstr(world_row(w, "hub")->message,
                "node hub.n1 was announced to go away (spot, at 2025-12-01T00:02:00Z)"))
        fail_msg("%s", world_row(w, "hub")->message);
    node(w, "hub.n2", "");
    world_run(w, "b", GPU1);
    assert_placed(w, "hub");
    assert_string_equal(w->pl->assignments[0].node, "hub.n2");
    pool_drop(w->p, "uid-b");
    node(w, "hub.n2", SPOT);
    world_run(w, "b", GPU1);
    assert_pending(w, "NodeGoesAway");
    node(w, "hub.n2", ""); /* withdrawn */
    world_run(w, "b", GPU1);
    assert_placed(w, "hub");
}

/* A refusal that is remembered does not outlive the notice. */
static void test_the_memo_sees_it(void **state)
{
    struct world *w = *state;
    struct memo *m = policy_memo_create();
    const struct object *o = world_workload(w, "b", GPU1);
    struct place_request rq = {.workload = o, .now_ms = NOW, .memo = m};
    struct err err;

    world_target(w, "hub", "tier: hub");
    node(w, "hub.n1", ADVICE);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(policy_place(w->p, &rq, w->a, &w->d, &w->pl, &err), 0);
        assert_pending(w, "NodeGoesAway");
    }
    assert_int_equal(policy_memo_hits(m), 1);
    node(w, "hub.n1", "");
    assert_int_equal(policy_place(w->p, &rq, w->a, &w->d, &w->pl, &err), 0);
    assert_placed(w, "hub");
    (void)policy_memo_destroy(m);
}

static void test_who_must_leave(void **state)
{
    struct world *w = *state;
    const struct object *o;
    const char *name = "";

    world_target(w, "hub", "tier: hub");
    node(w, "hub.n1", "");
    node(w, "hub.n2", "");
    o = runs(w, "hub.n1", "hub.n2", "");
    assert_int_equal(policy_must_leave(w->p, o, NOW), 0);
    node(w, "hub.n2", ADVICE);
    assert_int_equal(policy_must_leave(w->p, o, NOW), MOVE_SPOT);
    world_target(w, "hub", "tier: hub, drain: true"); /* goes even without room: it comes first */
    assert_int_equal(policy_must_leave(w->p, o, NOW), MOVE_DRAIN);
    node(w, "hub.n1", LATER);
    assert_int_equal(policy_must_leave(w->p, o, NOW), MOVE_SPOT);
    world_target(w, "hub", "tier: hub");
    /* The earliest deadline presses most, and advice least. */
    const struct placement *at = object_as(o, workload)->status->placement;
    assert_int_equal(policy_notice(w->p, at, &name)->kind, NOTICE_MAINTENANCE);
    assert_string_equal(name, "hub.n1");
    node(w, "hub.n2", SPOT);
    assert_int_equal(policy_notice(w->p, at, &name)->kind, NOTICE_SPOT);
    assert_string_equal(name, "hub.n2");
    struct move_choice c = asks(w, o);
    assert_null(c.placement);
    assert_non_null(strstr(c.why, "node hub.n2 was announced to go away (spot, at"));
    node(w, "hub.n1", "");
    node(w, "hub.n2", "");
    assert_int_equal(policy_must_leave(w->p, o, NOW), 0);
    assert_null(policy_notice(w->p, at, &name));
}

/* Who moved a moment ago is not chased by advice; a deadline waits for nobody. */
static void test_advice_chases_nobody(void **state)
{
    struct world *w = *state;
    const struct object *o;

    world_target(w, "hub", "tier: hub");
    node(w, "hub.n1", ADVICE);
    node(w, "hub.n2", "");
    o = runs(w, "hub.n1", "hub.n2", ", movedAt: 2025-11-30T23:55:00Z");
    assert_int_equal(policy_must_leave(w->p, o, NOW), 0);
    assert_int_equal(policy_must_leave(w->p, o, NOW + 4 * MINUTE), 0);
    assert_int_equal(policy_must_leave(w->p, o, NOW + 5 * MINUTE), MOVE_SPOT);
    node(w, "hub.n1", SPOT);
    assert_int_equal(policy_must_leave(w->p, o, NOW), MOVE_SPOT);
}

/* Only the node that goes is left: its other one, and what is free there, may serve again. */
static void test_the_other_nodes_stay(void **state)
{
    struct world *w = *state;
    const struct object *o;

    world_target(w, "hub", "tier: hub");
    node(w, "hub.n1", SPOT);
    node(w, "hub.n2", "");
    o = runs(w, "hub.n1", "hub.n2", "");
    struct move_choice c = asks(w, o);
    assert_non_null(c.placement);
    assert_int_equal(c.cause, MOVE_SPOT);
    for (uint32_t i = 0; i < c.placement->n_assignments; i++)
        assert_string_equal(c.placement->assignments[i].node, "hub.n2");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {T(test_nothing_new_is_placed_there),
                                       T(test_the_memo_sees_it), T(test_who_must_leave),
                                       T(test_advice_chases_nobody), T(test_the_other_nodes_stay)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
