/* Nodes that nobody would write by hand: what is missing, of another type, or beyond all measure is
 * refused with a sentence, or is as if it were not there. And which taints keep work off. */
#include "connectors/kubernetes/nodes/nodes_internal.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static char why[ERR_TEXT_MAX];

static int read_as(const char *json, const char *tolerations, struct arena *a, struct node *ret)
{
    cJSON *doc = cJSON_Parse(json), *list = tolerations ? cJSON_Parse(tolerations) : NULL;
    struct err err = {.text = ""};
    AUTO_BUF b;

    assert_non_null(doc);
    assert_true(!tolerations || list);
    const char *resources[KUBE_ROWS_MAX];
    int rc = kube_node_rows(doc, "k1", list, a, ret, resources, &err);
    str_copy(why, sizeof why, err.text);
    cJSON_Delete(doc);
    cJSON_Delete(list);
    buf_init(&b, 1 << 20);
    if (rc == 0) /* what is read outlives its document, and can be encoded */
        assert_int_equal(tlv_encode(&schema_node, ret, &b, NULL), 0);
    return rc;
}

static void refused(const char *json, const char *part)
{
    AUTO_ARENA a = arena_create(0);
    struct node n;

    assert_int_equal(read_as(json, NULL, a, &n), E_INVALID);
    if (!strstr(why, part))
        fail_msg("\"%s\" says nothing of \"%s\"", why, part);
}

#define NAMED(labels, status)                                                                      \
    "{\"metadata\":{\"name\":\"n1\",\"labels\":{" labels "}},\"status\":{" status "}}"

static void what_cannot_be_read(void **state)
{
    char text[1024], name[400];

    (void)state;
    refused("{}", "without a name");
    refused("[]", "without a name");
    refused("\"x\"", "without a name");
    refused("{\"metadata\":{\"name\":7}}", "without a name");
    refused("{\"metadata\":{\"name\":\"Up_per\"}}", "Up_per");
    refused("{\"metadata\":{\"name\":\"a/../b\"}}", "a/../b");
    memset(name, 'n', 300);
    name[300] = '\0';
    (void)snprintf(text, sizeof text, "{\"metadata\":{\"name\":\"%s\"}}", name);
    refused(text, "at most 253");
    refused(NAMED("", "\"allocatable\":{\"cpu\":\"many\"}"), "many");
    refused(NAMED("", "\"allocatable\":{\"cpu\":{}}"), "cpu");
    refused(NAMED("", "\"allocatable\":{\"cpu\":-4}"), "cpu");
    refused(NAMED("", "\"allocatable\":{\"memory\":\"-1Gi\"}"), "negative");
    refused(NAMED("", "\"allocatable\":{\"memory\":\"4Ei\"}"), "memory");
    refused(NAMED("", "\"allocatable\":{\"memory\":\"99999999999999999999999\"}"), "9999");
    refused(NAMED("", "\"capacity\":{\"nvidia.com/gpu\":\"9000000000\"}"), "too large");
    refused(NAMED("", "\"capacity\":{\"nvidia.com/gpu\":\"1\"},"
                      "\"allocatable\":{\"nvidia.com/gpu\":[]}"),
            "nvidia.com/gpu");
    refused(NAMED("", "\"capacity\":{\"nvidia.com/gpu.shared\":\"4\"}"),
            "(nvidia.com/gpu.replicas)");
    refused(NAMED("\"nvidia.com/gpu.product\":\"A100-MIG-INVALID\"",
                  "\"capacity\":{\"nvidia.com/gpu\":\"4\"}"),
            "MIG profile");
}

static void what_is_as_if_it_were_not_there(void **state)
{
    AUTO_ARENA a = arena_create(0);
    char text[1024], value[101];
    struct node n;

    (void)state;
    assert_int_equal(read_as(NAMED("", ""), NULL, a, &n), 0);
    assert_string_equal(n.metadata->name, "k1.n1");
    assert_string_equal(n.spec->hostname, "n1");
    assert_int_equal(n.status->health, HEALTH_UNKNOWN);
    assert_int_equal(n.spec->cpu, 0);
    assert_int_equal(n.spec->n_counted, 0);
    assert_null(n.spec->topology);
    assert_int_equal(read_as("{\"metadata\":{\"name\":\"a.b.c\",\"labels\":[1]},\"spec\":7,"
                             "\"status\":{\"conditions\":{\"x\":[]},\"capacity\":[3],"
                             "\"allocatable\":\"x\"}}",
                             "{\"key\":\"x\"}", a, &n),
                     0);
    assert_string_equal(n.metadata->name, "k1.a.b.c");
    memset(value, 'v', 100);
    value[100] = '\0';
    (void)snprintf(text, sizeof text,
                   "{\"metadata\":{\"name\":\"n1\",\"labels\":{"
                   "\"topology.kubernetes.io/zone\":\"%s\","
                   "\"topology.kubernetes.io/region\":\"a b\","
                   "\"nvidia.com/gpu.product\":\"\xff\",\"nvidia.com/gpu.memory\":\"-3\","
                   "\"nvidia.com/gpu.replicas\":\"99999999999999999999\"}},\"status\":{"
                   "\"capacity\":{\"nvidia.com/gpu\":8,\"nvidia.com/mig-\":\"1\","
                   "\"nvidia.com/mig-xg\":\"1\",\"example.com/gpu\":\"1\"}}}",
                   value);
    assert_int_equal(read_as(text, NULL, a, &n), 0);
    assert_null(n.spec->topology);
    assert_int_equal(n.spec->n_counted, 1);
    assert_string_equal(n.spec->counted[0].model, "nvidia.com/gpu");
    assert_int_equal(n.spec->counted[0].count, 8);
    assert_int_equal(n.spec->counted[0].unhealthy, 8);
    assert_int_equal(n.spec->counted[0].memory, 0);
    assert_int_equal(n.spec->counted[0].shares, 0);
}

static void long_lists_are_cut(void **state)
{
    AUTO_ARENA a = arena_create(0);
    struct node n;
    AUTO_BUF b;

    (void)state;
    buf_init(&b, 1 << 20);
    buf_str(&b, "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"capacity\":{");
    for (int i = 0; i < 40; i++)
        buf_printf(&b, "%s\"nvidia.com/mig-%dg.10gb\":\"1\"", i ? "," : "", 10 + i);
    buf_str(&b, "}}}");
    refused(b.p, "kinds of GPUs");
    buf_reset(&b);
    buf_str(&b, "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"conditions\":[");
    for (int i = 0; i < 1000; i++)
        buf_str(&b, "{\"type\":\"GPUMissing\",\"status\":\"True\"},");
    buf_str(&b, "{\"type\":\"Ready\",\"status\":\"True\"}]}}");
    assert_int_equal(read_as(b.p, NULL, a, &n), 0);
    assert_int_equal(n.status->n_faults, 1);
    assert_int_equal(n.status->health, HEALTH_UNKNOWN);
}

static bool kept_off(const char *taint, const char *tolerations)
{
    AUTO_ARENA a = arena_create(0);
    char text[512];
    struct node n;

    (void)snprintf(text, sizeof text, "{\"metadata\":{\"name\":\"n1\"},\"spec\":{\"taints\":[%s]}}",
                   taint);
    assert_int_equal(read_as(text, tolerations, a, &n), 0);
    return n.spec->unschedulable;
}

static void taints_and_tolerations(void **state)
{
    static const char t[] = "{\"key\":\"team\",\"value\":\"a\",\"effect\":\"NoSchedule\"}";
    AUTO_ARENA a = arena_create(0);
    struct node n;

    (void)state;
    assert_true(kept_off(t, NULL));
    assert_true(kept_off(t, "[]"));
    assert_false(kept_off(t, "[{\"key\":\"team\",\"operator\":\"Exists\"}]"));
    assert_false(kept_off(t, "[{\"operator\":\"Exists\"}]"));
    assert_false(kept_off(t, "[{\"key\":\"team\",\"value\":\"a\"}]"));
    assert_true(kept_off(t, "[{\"key\":\"team\",\"value\":\"b\"}]"));
    assert_true(kept_off(t, "[{\"key\":\"team\",\"value\":\"a\",\"effect\":\"NoExecute\"}]"));
    assert_false(kept_off(t, "[7,{\"key\":\"team\",\"operator\":\"Equal\",\"value\":\"a\","
                             "\"effect\":\"NoSchedule\"}]"));
    assert_true(kept_off(t, "[{\"key\":\"team\",\"operator\":\"Gt\",\"value\":\"a\"}]"));
    assert_true(kept_off("{\"key\":\"x\",\"effect\":\"NoExecute\"}", NULL));
    assert_false(kept_off("{\"key\":\"x\",\"effect\":\"PreferNoSchedule\"}", NULL));
    assert_false(kept_off("{\"key\":\"nvidia.com/gpu\",\"effect\":\"NoSchedule\"}", NULL));
    assert_false(
        kept_off("{\"key\":\"node.kubernetes.io/not-ready\",\"effect\":\"NoExecute\"}", NULL));
    assert_true(
        kept_off("{\"key\":\"node.kubernetes.io/out-of-service\",\"effect\":\"NoExecute\"}", NULL));
    assert_int_equal(read_as("{\"metadata\":{\"name\":\"n1\"},\"spec\":{\"unschedulable\":true}}",
                             "[{\"operator\":\"Exists\"}]", a, &n),
                     0);
    assert_true(n.spec->unschedulable);
    assert_int_equal(read_as(NAMED("\"kubernetes.io/os\":\"windows\"",
                                   "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]"),
                             NULL, a, &n),
                     0);
    assert_true(n.spec->unschedulable);
    assert_string_equal(n.status->reason, "its system is not Linux");
}

static void a_time_is_told_ahead(void **state)
{
    cJSON *doc = cJSON_Parse("{\"metadata\":{\"name\":\"n1\",\"labels\":{"
                             "\"cloud.google.com/scheduled-maintenance-time\":\"10000\"}}}");
    struct kube_goes g;
    struct notice v;

    (void)state;
    assert_true(kube_goes_read(doc, &g));
    assert_false(kube_goes_notice(&g, 10000000 - KUBE_NOTICE_AHEAD_MS - 1, 0, &v));
    assert_true(kube_goes_notice(&g, 10000000 - KUBE_NOTICE_AHEAD_MS, 0, &v));
    assert_int_equal(v.in_ms, KUBE_NOTICE_AHEAD_MS);
    assert_true(kube_goes_notice(&g, 10000001, 0, &v));
    assert_true(v.ends);
    assert_int_equal(v.in_ms, 0);
    cJSON_Delete(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_read),
        cmocka_unit_test(what_is_as_if_it_were_not_there),
        cmocka_unit_test(long_lists_are_cut),
        cmocka_unit_test(taints_and_tolerations),
        cmocka_unit_test(a_time_is_told_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
