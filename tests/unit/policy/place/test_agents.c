/* Gangs on the nodes of several agents of one Target: they meet at the address of one of these. */
#include "tests/support/policy/policy_world.h"

#define GANG(n) "  gang: {workers: " #n "}\n  resources: {gpu: {count: 2}}\n"

static void yard(struct world *w, const char *agents)
{
    static const char *const names[] = {"yard.a.n", "yard.b.n", "yard.c.n"};
    char text[512];

    (void)snprintf(text, sizeof text, "tier: hub, agents: [%s]", agents);
    world_target(w, "yard", text);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(text, sizeof text,
                       "kind: Node\nmetadata: {name: %s}\nspec:\n  target: yard\n  cpu: 64\n"
                       "  memory: 512Gi\n  gpus:\n  - {index: 0, class: h100, memory: 80Gi}\n"
                       "  - {index: 1, class: h100, memory: 80Gi}\n",
                       names[i]);
        world_put(w, text);
    }
}

static bool is_on(const struct world *w, const char *node)
{
    for (uint32_t i = 0; i < w->pl->n_assignments; i++)
        if (strcmp(w->pl->assignments[i].node, node) == 0)
            return true;
    return false;
}

static void test_those_with_an_address_are_together(void **state)
{
    struct world *w = *state;

    yard(w, "{name: a}, {name: b, address: 10.0.0.2}, {name: c, address: 10.0.0.3}");
    world_run(w, "two", GANG(2));
    assert_placed(w, "yard");
    assert_false(is_on(w, "yard.a.n"));
    assert_true(is_on(w, "yard.b.n") && is_on(w, "yard.c.n"));
    world_run(w, "alone", "  resources: {gpu: {count: 2}}\n"); /* it has no peers */
    assert_placed(w, "yard");
    assert_true(is_on(w, "yard.a.n"));
}

static void test_without_one_a_gang_is_with_one_agent(void **state)
{
    struct world *w = *state;

    yard(w, "{name: a}, {name: b}, {name: c}");
    world_run(w, "two", GANG(2));
    assert_pending(w, "AgentsCannotMeet");
    assert_non_null(strstr(w->d->message, "has no address"));
    world_run(w, "small", "  gang: {workers: 2}\n  resources: {gpu: {count: 1}}\n");
    assert_placed(w, "yard");
    assert_string_equal(w->pl->assignments[0].node, w->pl->assignments[1].node);
    world_run(w, "four", GANG(4)); /* there is no room at all */
    assert_pending(w, "GangDoesNotFit");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_those_with_an_address_are_together, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_without_one_a_gang_is_with_one_agent, world_setup,
                                        world_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
