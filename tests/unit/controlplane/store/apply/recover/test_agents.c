/* A Target with several agents, in the state: what is told of each, and who is no stranger. */
#include "tests/support/store/recover_kit.h"

static void target(struct kit *k, const char *name)
{
    static struct target_agent two[] = {{.name = "a"}, {.name = "b"}};
    struct target *t = arena_new(k->a, struct target);

    t->spec = arena_new(k->a, struct target_spec);
    t->spec->type = TARGET_AGENT;
    t->spec->agents = two;
    t->spec->n_agents = 2;
    assert_int_equal(kit_create(k, KIND_TARGET, "", name, t).code, 0);
}

static const struct target_status *tell(struct kit *k, const char *part, const char *agent,
                                        bool reached, const char *why)
{
    union command c = {.facts = {.head = {.type = CMD_FACTS},
                                 .target = "yard",
                                 .session = "s",
                                 .reach_told = true}};

    c.facts.reachable = true;
    str_copy(c.facts.part, sizeof c.facts.part, part);
    str_copy(c.facts.agent, sizeof c.facts.agent, agent);
    str_copy(c.facts.part_why, sizeof c.facts.part_why, why);
    c.facts.part_reached = reached;
    assert_int_equal(kit_apply(k, &c).code, 0);
    return object_as(root_get(k->root, KIND_TARGET, "", "yard"), target)->status;
}

static void test_each_agent_is_told_of(void **state)
{
    const struct target_status *s;
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_level_set(&k, FEATURE_GRANTS);
    target(&k, "yard");
    s = tell(&k, "b", "folder-b", true, "");
    assert_int_equal(s->n_agents, 1);
    assert_true(s->agents[0].connected && s->agents[0].lastContact > 0);
    s = tell(&k, "a", "folder-a", true, "");
    assert_int_equal(s->n_agents, 2);
    assert_string_equal(s->agents[0].name, "a"); /* in the order of the list */
    assert_string_equal(s->agents[0].agent, "folder-a");
    assert_string_equal(s->agents[1].agent, "folder-b");
    s = tell(&k, "b", "", false, "no heartbeat");
    assert_false(s->agents[1].connected);
    assert_string_equal(s->agents[1].message, "no heartbeat");
    assert_string_equal(s->agents[1].agent, "folder-b"); /* who spoke last stays known */
    assert_true(s->agents[0].connected);
    assert_string_equal(s->agent, ""); /* nobody speaks for all of it */
    s = tell(&k, "c", "folder-c", true, "");
    assert_int_equal(s->n_agents, 2);
    kit_end(&k);
}

/* "yard.b" is the name of an agent of Target yard, and of the agent of Target yard.b. */
static void test_no_two_agents_have_one_name(void **state)
{
    struct target_agent c = {.name = "c"};
    struct meta m = {.name = "yard.b"};
    struct target_spec s = {.type = TARGET_AGENT};
    struct target t = {.metadata = &m, .spec = &s};
    struct object *o = object_make(kind_by_id(KIND_TARGET), &t);
    struct err err;
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_level_set(&k, FEATURE_GRANTS);
    assert_int_equal(root_agents_clash(k.root, o, &err), 0);
    target(&k, "yard");
    assert_int_equal(root_agents_clash(k.root, o, &err), E_CONFLICT);
    assert_non_null(strstr(err.text, "agent b of Target yard"));
    (void)object_unref(o);
    m.name = "yard";
    s.agents = &c;
    s.n_agents = 1;
    o = object_make(kind_by_id(KIND_TARGET), &t);
    assert_int_equal(root_agents_clash(k.root, o, &err), 0);
    target(&k, "yard.c");
    assert_int_equal(root_agents_clash(k.root, o, &err), E_CONFLICT);
    assert_string_equal(err.field, "spec.agents[].name");
    (void)object_unref(o);
    kit_end(&k);
}

static struct result stranger(struct kit *k, const char *name)
{
    union command c = kit_recover_step(RECOVER_STRANGER);

    str_copy(c.recover.name, sizeof c.recover.name, name);
    return kit_apply(k, &c);
}

static void test_its_agents_are_no_strangers(void **state)
{
    const char *part;
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_level_set(&k, FEATURE_GRANTS);
    assert_int_equal(kit_recover_begin(&k, "", 0).code, 0);
    assert_int_equal(stranger(&k, "yard.b").code, 0);
    assert_int_equal(stranger(&k, "yard.x").code, 0);
    assert_true(root_stranger(k.root, "yard.b"));
    target(&k, "yard");
    assert_false(root_stranger(k.root, "yard.b"));
    assert_true(root_stranger(k.root, "yard.x"));
    assert_true(stranger(&k, "yard.a").unchanged);
    assert_string_equal(root_agent_target(k.root, "yard.a", &part)->meta->name, "yard");
    assert_string_equal(part, "a");
    assert_string_equal(root_agent_target(k.root, "yard", &part)->meta->name, "yard");
    assert_string_equal(part, "");
    assert_null(root_agent_target(k.root, "yard.x", &part));
    assert_null(root_agent_target(k.root, "nowhere", NULL));
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_two_agents_have_one_name),
        cmocka_unit_test(test_each_agent_is_told_of),
        cmocka_unit_test(test_its_agents_are_no_strangers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
