/* Logs stay where their workload may be: a compliance policy that covers them holds for the store
 * that a target's logs go to (spec.logs): in apply's check, a decision, and of what runs. */
#include "tests/support/policy/policy_world.h"

#define GPU(n) "  resources: {gpu: {count: " #n "}, cpu: 4, memory: 8Gi}\n"
#define LOCAL_STORES                                                                               \
    "kind: Target\nmetadata: {name: %s}\nspec: {type: agent, tier: hub, jurisdiction: %s, "        \
    "localStores: [\"%s\"]}\n"

static void test_covers_logs(void **state)
{
    static const struct {
        const char *covers, *store, *reason; /* NULL: may be there */
    } cases[] = {
        {"", "s3://us/logs", "ResidencyForbidden"},
        {"covers: [logs]", "s3://us/logs", "ResidencyForbidden"},
        {"covers: [logs]", "s3://nobody/logs", "LogStorePlaceUnknown"},
        {"covers: [logs]", "s3://de/logs", NULL},
        {"covers: [logs]", "/here/logs", NULL},
        {"covers: [logs]", "/us/logs", "ResidencyForbidden"}, /* mounted from there */
        {"covers: [run, checkpoint]", "s3://us/logs", NULL},
        {"covers: [logs], mode: audit", "s3://us/logs", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        static struct world w;
        const struct object *targets[3], *pol, *wl;
        char text[512];
        struct err err = {0};

        world_init(&w);
        world_target(&w, "other", "tier: hub, jurisdiction: DE");
        (void)snprintf(text, sizeof(text), "tier: hub, jurisdiction: DE, logs: {store: '%s'}",
                       cases[i].store);
        world_target(&w, "here", text);
        world_nodes(&w, "here", 1, 8, "h100", "");
        (void)snprintf(text, sizeof(text),
                       "kind: Target\nmetadata: {name: here}\nspec: {type: agent, tier: hub, "
                       "jurisdiction: DE, logs: {store: '%s'}}\n",
                       cases[i].store);
        targets[0] = world_docs(&w, text, false);
        (void)snprintf(text, sizeof(text), LOCAL_STORES, "de", "DE", "s3://de");
        targets[1] = world_docs(&w, text, true);
        (void)snprintf(text, sizeof(text), LOCAL_STORES, "us", "US", "s3://us\", \"/us");
        targets[2] = world_docs(&w, text, true);
        (void)snprintf(text, sizeof(text),
                       "kind: CompliancePolicy\nmetadata: {name: stays}\nspec: {selects: "
                       "{namespaces: [dev]}, allow: {jurisdictions: [DE]}%s%s}\n",
                       *cases[i].covers ? ", " : "", cases[i].covers);
        pol = world_docs(&w, text, false);
        wl = world_workload(&w, "a", GPU(1));
        int rc = policy_compliance_check(wl, targets[0], &pol, 1, NULL, 0, targets, 3, &err);
        if (rc != (cases[i].reason ? E_COMPLIANCE : 0) ||
            (cases[i].reason && !strstr(err.text, cases[i].reason)))
            fail_msg("case %zu: apply says %s", i, rc ? err.text : "yes");
        pool_put(w.p, pol);
        (void)snprintf(text, sizeof(text),
                       GPU(1) "status:\n  phase: Running\n  epoch: 1\n  placement: {target: here}\n"
                              "  intent: {op: submit, logs: {store: \"%s\"}}\n",
                       cases[i].store);
        wl = world_workload(&w, "a", text);
        if ((policy_must_leave(w.p, wl, NOW) == MOVE_COMPLIANCE) != (cases[i].reason != NULL))
            fail_msg("case %zu: what runs there %s", i, cases[i].reason ? "stays" : "must leave");
        world_run(&w, "b", GPU(1));
        if ((w.pl != NULL) != !cases[i].reason)
            fail_msg("case %zu: decided %s: %s", i, w.d->reason, w.d->message);
        const struct candidate *row = world_row(&w, "here");
        if (cases[i].reason && (strcmp(row->reason, cases[i].reason) != 0 ||
                                !strstr(row->message, cases[i].store)))
            fail_msg("case %zu: %s: %s", i, row->reason, row->message);
        world_fini(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_covers_logs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
