/* The table of what types of Target can do: each type has a row, and each place that once asked for
 * a type gets the answer that it had. What its pools of machines ask for and could not be kept is
 * refused at once, with a sentence and its place. */
#include "api/schema/schema.h"
#include "connectors/agent/agent.h"
#include "connectors/callout/callout.h"
#include "connectors/kubernetes/kubernetes.h"
#include "tests/support/unit.h"

#include <cJSON.h>
#include <stdio.h>
#include <string.h>

#define TYPE(name, value, text) name,
static const enum target_type types[] = {ENUM_target_type(TYPE)};

static void test_answers(void **state)
{
    unsigned driven = 0;

    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        enum target_type t = types[i];
        bool agent = t == TARGET_AGENT, kubernetes = t == TARGET_KUBERNETES;
        bool callout = t == TARGET_CALLOUT;
        assert_true(target_can(t, CAN_RUN_COMMAND));
        assert_true(target_can(t, CAN_RUN_SCRIPT));
        assert_int_equal(target_can(t, CAN_RUN_IMAGE), !agent && t != TARGET_SLURM);
        assert_int_equal(target_can(t, CAN_RUN_MANIFEST), kubernetes);
        assert_int_equal(target_can(t, CAN_SHARE), agent);
        assert_int_equal(target_can(t, CAN_BE_DRIVEN), agent || callout || kubernetes);
        assert_int_equal(target_can(t, CAN_SAVE), agent);
        assert_int_equal(target_can(t, CAN_DIAL_IN), agent);
        driven += target_can(t, CAN_BE_DRIVEN);
        if (!target_can(t, CAN_BE_DRIVEN)) { /* nobody could keep such a word */
            assert_false(target_can(t, CAN_LEASE));
            assert_false(target_can(t, CAN_EXEC));
            assert_false(target_can(t, CAN_SAVE));
            assert_false(target_can(t, CAN_ASK));
            assert_false(target_can(t, CAN_CALL_HOME));
            assert_false(target_can(t, CAN_ACT_FOR));
            assert_false(target_can(t, CAN_ORDER_MACHINES));
            assert_false(target_can(t, CAN_START_BY));
        }
    }
    assert_int_equal(driven, 3);
}

static void test_the_driver_keeps_its_row(void **state)
{
    (void)state;
    assert_int_equal(target_can(TARGET_AGENT, CAN_LEASE), connector_agent_ops.renew != NULL);
    assert_int_equal(target_can(TARGET_AGENT, CAN_EXEC), connector_agent_ops.exec != NULL);
    assert_int_equal(target_can(TARGET_AGENT, CAN_SAVE), connector_agent_ops.stage != NULL);
    assert_int_equal(target_can(TARGET_AGENT, CAN_ASK), connector_agent_ops.checkpoint != NULL);
    assert_false(target_can(TARGET_CALLOUT, CAN_ASK));
    assert_false(target_can(TARGET_CALLOUT, CAN_LEASE));
    assert_int_equal(target_can(TARGET_CALLOUT, CAN_CALL_HOME),
                     connector_callout_ops.renew && connector_callout_ops.runner &&
                         connector_callout_ops.checkpoint);
    assert_int_equal(target_can(TARGET_AGENT, CAN_CALL_HOME), connector_agent_ops.runner != NULL);
    assert_int_equal(target_can(TARGET_AGENT, CAN_ACT_FOR), connector_agent_ops.acts_for);
    assert_int_equal(target_can(TARGET_CALLOUT, CAN_ACT_FOR), connector_callout_ops.acts_for);
    assert_false(target_can(TARGET_CALLOUT, CAN_EXEC));
    assert_int_equal(target_can(TARGET_CALLOUT, CAN_CALL_HOME),
                     connector_callout_ops.exec != NULL);
    assert_false(target_can(TARGET_CALLOUT, CAN_SAVE)); /* its runners can, once they call home */
    assert_int_equal(target_can(TARGET_CALLOUT, CAN_CALL_HOME),
                     connector_callout_ops.stage != NULL);
    assert_int_equal(target_can(TARGET_KUBERNETES, CAN_CALL_HOME),
                     connector_kubernetes_ops.renew && connector_kubernetes_ops.runner &&
                         connector_kubernetes_ops.checkpoint && connector_kubernetes_ops.exec &&
                         connector_kubernetes_ops.stage);
    assert_int_equal(target_can(TARGET_KUBERNETES, CAN_ACT_FOR), connector_kubernetes_ops.acts_for);
    assert_int_equal(target_can(TARGET_KUBERNETES, CAN_ORDER_MACHINES),
                     connector_kubernetes_ops.machines != NULL);
    assert_int_equal(target_can(TARGET_AGENT, CAN_ORDER_MACHINES),
                     connector_agent_ops.machines != NULL);
    assert_int_equal(target_can(TARGET_CALLOUT, CAN_ORDER_MACHINES),
                     connector_callout_ops.machines != NULL);
}

/* Runners that call home bring what the type has not. */
static void test_one_target_has_what_its_runners_bring(void **state)
{
    static const enum target_can brought[] = {CAN_LEASE, CAN_SAVE, CAN_ASK};
    struct target_connection c = {.runners = true};
    struct target_spec s = {.type = TARGET_CALLOUT};

    (void)state;
    for (size_t i = 0; i < sizeof brought / sizeof *brought; i++) {
        s.type = TARGET_CALLOUT;
        s.connection = NULL;
        assert_false(target_has(&s, brought[i]));
        s.connection = &c;
        assert_true(target_has(&s, brought[i]));
        s.type = TARGET_SLURM; /* which this build does not drive */
        assert_false(target_has(&s, brought[i]));
        s.type = TARGET_AGENT;
        assert_true(target_has(&s, brought[i]));
    }
    s.type = TARGET_CALLOUT;
    assert_false(target_has(&s, CAN_SHARE));
}

static void test_unknown(void **state)
{
    static const int unknown[] = {0, -1, 8, 1 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        for (int can = CAN_BE_DRIVEN; can <= CAN_ACT_FOR; can *= 2)
            assert_false(target_can((enum target_type)unknown[i], (enum target_can)can));
}

/* ---- pools of machines ---- */
static int admit(const char *pools, struct err *e)
{
    char text[1024];
    struct yaml_doc *docs;
    size_t n;
    struct object *o = NULL;

    *e = (struct err){0};
    (void)snprintf(text, sizeof text,
                   "apiVersion: hanse.dev/v1alpha1\nkind: Target\nmetadata: {name: t}\nspec: {"
                   "type: callout, tier: burst, connection: {server: 'https://a.example', "
                   "credentialsFrom: {secret: a}}, machines: [%s]}\n",
                   pools);
    assert_int_equal(yaml_parse_all(text, strlen(text), "t", &docs, &n, e), 0);
    int r = object_from_json(kind_by_name("Target"), docs[0].json, DECODE_USER, &o, e);
    yaml_docs_free(docs, n);
    if (r == 0)
        r = object_admit(NULL, o, e);
    (void)object_unref(o);
    return r;
}

static void test_what_could_not_be_kept_is_refused(void **state)
{
    static const struct {
        const char *pools, *field;
    } rows[] = {
        {"{name: a, count: 1, maxPrice: 0}", "spec.machines[0].maxPrice"},
        {"{name: a, count: 1, maxPrice: 1}, {name: b, count: 0, maxPrice: 0.0}",
         "spec.machines[1].maxPrice"},
        {"{name: a, count: 1, market: owned}", "spec.machines[0].market"},
        {"{name: A, count: 1}", "spec.machines[0].name"},
    };
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_not_equal(admit(rows[i].pools, &e), 0);
        assert_string_equal(e.field, rows[i].field);
        assert_true(*e.text);
    }
    assert_int_equal(admit("{name: a, count: 0}, {name: b, count: 2, maxPrice: 0.01}", &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers),
                                       cmocka_unit_test(test_the_driver_keeps_its_row),
                                       cmocka_unit_test(test_one_target_has_what_its_runners_bring),
                                       cmocka_unit_test(test_what_could_not_be_kept_is_refused),
                                       cmocka_unit_test(test_unknown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
