/* What an inventory file may say, and how it is refused: with file, line and remedy. */
#include "connectors/agent/node/agent_internal.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct loop *loop;
static char dir[64], file[96];

static int load_from(const char *path, struct inventory *inv, struct err *err)
{
    struct agent a = {.loop = loop,
                      .held = RUN_SEARCHED,
                      .cfg = {.os = runner_os_linux(), .target = "t1", .inventory_file = path}};

    return inventory_load(&a, inv, err);
}

static int load(const char *text, struct inventory *inv, struct err *err)
{
    assert_int_equal(file_write(loop, file, text, strlen(text), 0600, err), 0);
    return load_from(file, inv, err);
}

static void refused(const char *text, int line, const char *what)
{
    struct inventory inv;
    struct err err = {0};
    char at[128];

    assert_true(load(text, &inv, &err) < 0);
    (void)snprintf(at, sizeof at, "%s:%d:", file, line);
    if (line && !strstr(err.text, at))
        fail_msg("\"%s\" does not name %s", err.text, at);
    if (!strstr(err.text, what))
        fail_msg("\"%s\" does not say \"%s\"", err.text, what);
}

static void takes_what_the_contract_shows(void **state)
{
    struct inventory inv;
    struct err err = {0};

    (void)state;
    if (load("target: t1\ngpus: declared\nnodes:\n- name: n1\n  cpu: 96\n  memory: 1Ti\n"
             "  topology: {region: eu, zone: a, block: b1, rack: r1, leaf: l1, nvlinkDomain: n1}\n "
             " gpus:\n"
             "  - {index: 0, class: h100-sxm-80gb, model: NVIDIA H100 80GB HBM3, memory: 80Gi}\n- "
             "name: n2\n  health: Sick\n",
             &inv, &err) < 0)
        fail_msg("%s", err.text);
    assert_non_null(inventory_find(&inv, "t1.n1"));
    assert_non_null(inventory_find(&inv, "t1.n2"));
    assert_null(inventory_find(&inv, "n1"));
    static const char *const health[] = {"Ready", "Sick"};
    for (int i = 0; i < 2; i++) {
        const cJSON *status =
            cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(inv.nodes, i), "status");
        assert_string_equal(cJSON_GetObjectItemCaseSensitive(status, "health")->valuestring,
                            health[i]);
    }
    inventory_fini(&inv);
}

static void takes_what_others_hold(void **state)
{
    struct inventory inv;
    struct err err = {0};
    struct node_others *o;
    AUTO_ARENA a = arena_create(0);
    void *body;

    (void)state;
    if (load("target: t1\nnodes:\n- name: n1\n  cpu: 8\n  gpus: [{index: 3, class: a, memory: "
             "80Gi}]\n  others: {cpu: 2500m, memory: 1Gi, gpus: [3]}\n",
             &inv, &err) < 0)
        fail_msg("%s", err.text);
    const cJSON *status =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(inv.nodes, 0), "status");
    assert_int_equal(body_from_json(&schema_node_others,
                                    cJSON_GetObjectItemCaseSensitive(status, "others"), 0, a, &body,
                                    &err),
                     0);
    o = body;
    assert_int_equal(o->cpu, 2500);
    assert_int_equal(o->gpus[0], 3);
    inventory_fini(&inv);
    refused("target: t1\nnodes:\n- name: n1\n  others: {gpus: [0]}\n", 3, "has no GPU 0");
    refused("target: t1\nnodes:\n- name: n1\n  faults: {}\n", 3, "expected a list");
    refused("target: t1\nnodes:\n- name: n1\n  faults: [{reason: A, source: rumour}]\n", 4,
            "rumour");
    refused("target: t1\nnodes:\n- name: n1\n  others: {cpu: -1}\n", 4, "cpu");
    refused("target: t1\nnodes:\n- name: n1\n  others: {disks: 1}\n", 4, "disks");
    refused("target: t1\nnodes:\n- name: n1\n  gpus: [{index: 0, class: a, memory: 1Gi}]\n"
            "  others: {classes: [{class: a, count: 1}]}\n",
            3, "name them in others.gpus");
}

static void refuses_what_it_does_not_know(void **state)
{
    (void)state;
    refused("target: t2\nnodes: [{name: n1}]\n", 1, "--target says \"t1\"");
    refused("target: t1\nnodes:\n- name: n1\n- name: n1\n", 0, "given twice");
    refused("target: t1\nnodes:\n- name: n1\n- name: n2\n  color: red\n", 4,
            "unknown key \"color\"");
    refused("target: t1\nnodes:\n- name: N1\n", 3, "lower-case");
    refused("target: t1\nnodes:\n- name: n1\n  health: poorly\n", 3, "Ready, NotReady or Sick");
    refused("target: t1\nnodes: []\n", 0, "1 to 1024");
    refused("target: t1\nnodes:\n- name: n1\n  memory: 12 parsecs\n", 4, "memory");
    refused("target: t1\nnodes:\n- name: n1\n  gpus:\n  - {index: 0, class: a}\n", 5,
            "memory is needed");
    refused("target: t1\nnodes:\n- name: n1\n  gpus:\n  - {index: 64, class: a, memory: 1Gi}\n", 5,
            "0 to 63");
    refused("target: t1\nnodes:\n- name: n1\n  gpus:\n  - {index: 1, class: a, memory: 1Gi}\n"
            "  - {index: 1, class: a, memory: 1Gi}\n",
            0, "given twice");
    refused("target: t1\ngpus: nvml\nnodes:\n- name: n1\n- name: n2\n", 0, "one node");
    refused("target: [t1\n", 0, file);
}

static void without_a_file_it_is_this_machine(void **state)
{
    struct inventory inv;
    struct err err = {0};

    (void)state;
    assert_int_equal(load_from(NULL, &inv, &err), 0);
    assert_int_equal(cJSON_GetArraySize(inv.nodes), 1);
    inventory_fini(&inv);
}

static void keys_are_read_strictly(void **state)
{
    static const char *const bad[] = {
        "",     "a",     "a.1",    "a.1.",       "a..1",
        ".1.1", "a.1.x", "a.-1.1", "a/../b.1.1", "a.1.99999999999999999999"};
    struct run_key k;
    char text[RUN_KEY_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(run_key_parse(bad[i], &k, NULL), E_SYNTAX);
    assert_int_equal(run_key_parse("3f-a_B.12.7", &k, NULL), 0);
    run_key_print(&k, text);
    assert_string_equal(text, "3f-a_B.12.7");
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/hanse-inv-XXXXXX");
    loop = loop_uv_create(NULL);
    if (!loop || !mkdtemp(dir))
        return -1;
    (void)snprintf(file, sizeof file, "%s/inventory.yaml", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    int rc = file_remove(loop, dir, NULL);
    loop_uv_destroy(loop);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_what_the_contract_shows),
        cmocka_unit_test(takes_what_others_hold),
        cmocka_unit_test(refuses_what_it_does_not_know),
        cmocka_unit_test(without_a_file_it_is_this_machine),
        cmocka_unit_test(keys_are_read_strictly),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
