/* What pods ask for, as the scheduler counts it. */
#include "connectors/kubernetes/nodes/nodes_internal.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static bool asks(const char *spec, const char *status, struct kube_asks *ret)
{
    char text[4096];

    (void)snprintf(text, sizeof text, "{\"spec\":{\"nodeName\":\"n1\",%s},\"status\":{%s}}", spec,
                   status);
    cJSON *doc = cJSON_Parse(text);
    assert_non_null(doc);
    bool holds = kube_pod_asks(doc, ret);
    cJSON_Delete(doc);
    return holds;
}

#define C(name, cpu, memory)                                                                       \
    "{\"name\":\"" name "\",\"resources\":{\"requests\":{"                                         \
    "\"cpu\":\"" cpu "\",\"memory\":\"" memory "\"}}}"
#define SIDECAR(cpu)                                                                               \
    "{\"name\":\"s\",\"restartPolicy\":\"Always\","                                                \
    "\"resources\":{\"requests\":{\"cpu\":\"" cpu "\"}}}"

static void sums_and_maxima(void **state)
{
    struct kube_asks v;

    (void)state;
    assert_true(
        asks("\"containers\":[" C("a", "500m", "1Gi") "," C("b", "1", "512Mi") "]", "", &v));
    assert_int_equal(v.cpu_milli, 1500);
    assert_int_equal(v.memory_bytes, (int64_t)1536 << 20);
    /* The largest init container, by each resource of its own. */
    assert_true(asks("\"containers\":[" C("a", "500m", "1Gi") "],\"initContainers\":[" C(
                         "i", "2", "1Mi") "," C("j", "100m", "3Gi") "]",
                     "", &v));
    assert_int_equal(v.cpu_milli, 2000);
    assert_int_equal(v.memory_bytes, (int64_t)3 << 30);
    /* Sidecars run on beside all that comes after them. */
    assert_true(asks("\"containers\":[" C("a", "1", "1Mi") "],\"initContainers\":[" C(
                         "i", "2", "1Mi") "," SIDECAR("1500m") "," C("j", "1", "1Mi") "]",
                     "", &v));
    assert_int_equal(v.cpu_milli, 2500);
    assert_true(asks("\"containers\":[" C("a", "1", "1Mi") "],\"initContainers\":[" SIDECAR(
                         "300m") "," C("j", "4", "1Mi") "],\"overhead\":{\"cpu\":\"250m\"}",
                     "", &v));
    assert_int_equal(v.cpu_milli, 4550);
    /* Numbers of the pod itself, for cpu and memory. */
    assert_true(asks("\"containers\":[" C("a", "1", "1Gi") "],\"resources\":{\"requests\":{"
                                                           "\"cpu\":\"3\"}}",
                     "", &v));
    assert_int_equal(v.cpu_milli, 3000);
    assert_int_equal(v.memory_bytes, (int64_t)1 << 30);
    /* A resize that has not come down yet holds what it had. */
    assert_true(asks("\"containers\":[" C("a", "1", "1Gi") "]",
                     "\"containerStatuses\":[{\"name\":\"a\",\"allocatedResources\":{"
                     "\"cpu\":\"2\"},\"resources\":{\"requests\":{\"memory\":\"2Gi\"}}}]",
                     &v));
    assert_int_equal(v.cpu_milli, 2000);
    assert_int_equal(v.memory_bytes, (int64_t)2 << 30);
}

static void devices(void **state)
{
    struct kube_asks v;

    (void)state;
    assert_true(asks("\"containers\":[{\"resources\":{\"requests\":{\"nvidia.com/gpu\":\"2\","
                     "\"example.com/x\":\"1\"}}},{\"resources\":{\"requests\":{"
                     "\"nvidia.com/gpu\":1,\"nvidia.com/mig-1g.10gb\":\"1\"}}}],"
                     "\"initContainers\":[{\"resources\":{\"requests\":{"
                     "\"nvidia.com/gpu\":\"1\"}}}]",
                     "", &v));
    assert_int_equal(v.n, 2);
    assert_string_equal(v.devices[0].resource, "nvidia.com/gpu");
    assert_int_equal(v.devices[0].count, 3);
    assert_string_equal(v.devices[1].resource, "nvidia.com/mig-1g.10gb");
    assert_int_equal(v.devices[1].count, 1);
    assert_false(v.more);
    assert_true(asks("\"containers\":[{\"resources\":{\"requests\":{\"nvidia.com/gpu\":\"0\","
                     "\"amd.com/gpu\":0}}}]",
                     "", &v));
    assert_int_equal(v.n, 0);
}

static void what_holds_nothing(void **state)
{
    struct kube_asks v;

    (void)state;
    assert_false(asks("\"containers\":[" C("a", "1", "1Gi") "]", "\"phase\":\"Succeeded\"", &v));
    assert_false(asks("\"containers\":[" C("a", "1", "1Gi") "]", "\"phase\":\"Failed\"", &v));
    assert_true(asks("\"containers\":[]", "\"phase\":\"Pending\"", &v));
    assert_int_equal(v.cpu_milli, 0);
    cJSON *doc = cJSON_Parse("{\"spec\":{\"containers\":[" C("a", "1", "1Gi") "]}}");
    assert_false(kube_pod_asks(doc, &v));
    assert_int_equal(v.cpu_milli, 0);
    cJSON_Delete(doc);
}

static void hostile(void **state)
{
    struct kube_asks v;

    (void)state;
    assert_true(asks("\"containers\":7,\"initContainers\":{\"a\":1},\"overhead\":[]", "", &v));
    assert_int_equal(v.cpu_milli, 0);
    assert_true(asks("\"containers\":[1,null,{\"resources\":[]},{\"resources\":{\"requests\":"
                     "{\"cpu\":{},\"memory\":\"1e30\",\"amd.com/gpu\":\"x\"}}}]",
                     "", &v));
    assert_int_equal(v.cpu_milli, KUBE_CPU_MAX);
    assert_int_equal(v.memory_bytes, KUBE_MEMORY_MAX);
    assert_int_equal(v.n, 1);
    assert_true(v.devices[0].count > 256);
    /* Sums stay where they are at the largest number. */
    assert_true(asks("\"containers\":[" C("a", "x", "x") "," C("b", "x", "x") "]", "", &v));
    assert_int_equal(v.cpu_milli, KUBE_CPU_MAX);
    assert_int_equal(v.memory_bytes, KUBE_MEMORY_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_maxima),
        cmocka_unit_test(devices),
        cmocka_unit_test(what_holds_nothing),
        cmocka_unit_test(hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
