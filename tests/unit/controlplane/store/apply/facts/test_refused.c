/* Nodes of a target, and runs, that cannot be read: a condition of it, while there are any. */
#include "controlplane/store/store_internal.h"
#include "tests/support/store/store_kit.h"

static bool runs; /* it is told of these */

static void tell(struct kit *k, bool known, const char *refused)
{
    union command c = {.head = {.type = CMD_FACTS}};

    k->now += 1000;
    str_copy(c.facts.target, sizeof c.facts.target, "fra");
    str_copy(c.facts.session, sizeof c.facts.session, "s1");
    c.facts.reach_told = c.facts.reachable = true;
    if (runs) {
        c.facts.unread_told = known;
        str_copy(c.facts.unread, sizeof c.facts.unread, refused);
    } else {
        c.facts.refused_told = known;
        str_copy(c.facts.refused, sizeof c.facts.refused, refused);
    }
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static const struct condition *condition(struct kit *k, uint32_t *ret_n)
{
    const struct object *o = root_get(k->root, KIND_TARGET, "", "fra");
    const struct target_status *s = object_as(o, target)->status;

    *ret_n = s->n_conditions;
    for (uint32_t i = 0; i < s->n_conditions; i++)
        if (strcmp(s->conditions[i].type, runs ? "RunsRefused" : "NodesRefused") == 0)
            return &s->conditions[i];
    return NULL;
}

static void while_there_are_any(unsigned level)
{
    const struct condition *c;
    struct kit k;
    uint32_t n, before;

    kit_begin(&k);
    kit_level_set(&k, level - 1);
    kit_pool(&k, 0, 0);
    tell(&k, true, "1 node cannot be read");
    assert_null(condition(&k, &before)); /* not before all members know it */
    kit_level_set(&k, level);
    tell(&k, true, "1 node cannot be read");
    c = condition(&k, &n);
    assert_int_equal(c->status, COND_TRUE);
    assert_string_equal(c->reason, "Unreadable");
    assert_string_equal(c->message, "1 node cannot be read");
    int64_t since = c->lastTransitionTime;
    tell(&k, false, ""); /* a leader that has not heard yet */
    assert_non_null(condition(&k, &n));
    tell(&k, true, "2 nodes cannot be read");
    assert_string_equal(condition(&k, &n)->message, "2 nodes cannot be read");
    assert_int_equal(condition(&k, &n)->lastTransitionTime, since);
    tell(&k, true, "");
    assert_null(condition(&k, &n));
    assert_int_equal(n, before);
    kit_end(&k);
}

static void test_a_condition_while_there_are_any(void **state)
{
    (void)state;
    runs = false;
    while_there_are_any(FEATURE_COUNTS);
    runs = true;
    while_there_are_any(FEATURE_PODS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_condition_while_there_are_any)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
