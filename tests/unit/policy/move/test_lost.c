/* Where work may go on whose machine was lost: on other nodes of its target, where the target has
 * several machines and is in reach itself, and never on the node that is silent. */
#include "tests/support/policy/policy_world.h"

static void target(struct world *w, const char *type)
{
    char text[400];

    (void)snprintf(
        text, sizeof text, "kind: Target\nmetadata: {name: site}\nspec: {type: %s, tier: hub%s}\n",
        type,
        strcmp(type, "kubernetes") == 0
            ? ", connection: {credentialsFrom: {secret: s}, runners: true}, kubernetes: {image: x}"
            : "");
    world_put(w, text);
    pool_target_reachable(w->p, "site", REACH_YES);
    for (int i = 1; i <= 2; i++) {
        (void)snprintf(text, sizeof text,
                       "kind: Node\nmetadata: {name: site.n%d}\nspec: {target: site, cpu: 64, "
                       "memory: 64Gi, gpus: [{index: 0, class: h100}]}\nstatus: {health: Ready}\n",
                       i);
        world_put(w, text);
    }
}

/* On site.n1, which does not answer, though nobody has called it NotReady yet. */
static struct move_choice lost(struct world *w)
{
    const struct object *o = world_docs(
        w,
        "kind: Workload\nmetadata: {name: a, namespace: dev, uid: uid-a}\nspec:\n"
        "  run: {command: [x]}\n  resources: {gpu: {count: 1}}\n  partition: {mode: replace}\n"
        "status: {phase: Unknown, reason: RunNotTold, epoch: 1, phaseSince: "
        "2025-11-30T23:00:00Z,\n  placement: {target: site, capacity: owned, class: h100, gpus: "
        "1000, since: 2025-11-30T23:00:00Z, assignments: [{rank: 0, node: site.n1, gpus: [0], "
        "gpuMilli: 1000}]}}\n",
        false);
    struct place_request rq = {.workload = o, .now_ms = NOW};
    struct move_choice c;
    struct err err = {0};

    pool_hold(w->p, o);
    assert_int_equal(policy_move(w->p, &rq, MOVE_LOST, w->a, &c, &err), 0);
    return c;
}

static void test_another_node_of_a_cluster_will_do(void **state)
{
    struct world *w = *state;
    struct move_choice c;

    target(w, "kubernetes");
    c = lost(w);
    if (!c.placement)
        fail_msg("%s", c.why);
    assert_string_equal(c.placement->target, "site");
    assert_string_equal(c.placement->assignments[0].node, "site.n2");
    assert_non_null(strstr(c.why, "on target site nobody can tell what became of it"));
}

static void test_but_not_while_it_is_out_of_reach(void **state)
{
    struct world *w = *state;

    target(w, "kubernetes");
    pool_target_reachable(w->p, "site", REACH_NO);
    assert_null(lost(w).placement);
}

static void test_nor_the_node_that_is_silent(void **state)
{
    struct world *w = *state;

    target(w, "kubernetes");
    pool_remove(w->p, KIND_NODE, "", "site.n2");
    assert_null(lost(w).placement);
}

static void test_an_agent_is_all_of_its_target(void **state)
{
    struct world *w = *state;

    target(w, "agent");
    assert_null(lost(w).placement);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_another_node_of_a_cluster_will_do),
        T(test_but_not_while_it_is_out_of_reach),
        T(test_nor_the_node_that_is_silent),
        T(test_an_agent_is_all_of_its_target),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
