/* How busy GPUs are, read out of what DCGM's exporter prints, by the pods that hold them. */
#include "connectors/kubernetes/dcgm/dcgm.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    unsigned pods;
    char ns[64], pod[256];
    struct kube_device_use v[256];
    size_t n;
} got;

static void on_pod(void *arg, const struct kube_pod_use *u)
{
    assert_ptr_equal(arg, &got);
    assert_true(u->n > 0 && u->n <= 256);
    got.pods++;
    str_copy(got.ns, sizeof got.ns, u->ns);
    str_copy(got.pod, sizeof got.pod, u->pod);
    memcpy(got.v, u->devices, u->n * sizeof *u->devices);
    got.n = u->n;
}

static void read_text(const char *text)
{
    size_t n = strlen(text);
    char *exact = malloc(n + 1); /* so that a read beyond it is seen */

    assert_non_null(exact);
    memcpy(exact, text, n);
    got.pods = 0;
    got.n = 0;
    kube_dcgm_use(exact, n, on_pod, &got);
    free(exact);
}

#define GPU(gpu, more)                                                                             \
    "{gpu=\"" gpu "\",UUID=\"GPU-" gpu                                                             \
    "0f3e\",pci_bus_id=\"00000000:00:02.0\",device=\"nvidia" gpu                                   \
    "\",modelName=\"NVIDIA H100 80GB HBM3\"" more "}"
#define LINE(name, gpu, more, value) "DCGM_FI_" name GPU(gpu, more) " " value "\n"
#define HELD(pod)                                                                                  \
    ",Hostname=\"n1\",DCGM_FI_DRIVER_VERSION=\"570.86.15\",container=\"main\",namespace=\"work\""  \
    ",pod=\"" pod "\""
#define UTIL(gpu, more, value) LINE("DEV_GPU_UTIL", gpu, more, value)
#define ENGINE(gpu, more, value) LINE("PROF_GR_ENGINE_ACTIVE", gpu, more, value)
#define MEMORY(gpu, more, value) LINE("DEV_FB_USED", gpu, more, value)
#define MIG(id) ",GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"" id "\""

/* As https://github.com/NVIDIA/dcgm-exporter prints it (render_metrics.go), with its defaults. */
static void what_a_pod_does(void **state)
{
    (void)state;
    read_text("# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n"
              "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n" /* and what nobody holds is nobody's */
              UTIL("0", HELD("p-0-abcde"), "79") UTIL("1", HELD("p-0-abcde"), "0")
                  UTIL("2", ",Hostname=\"n1\"", "100") MEMORY("0", HELD("p-0-abcde"), "40960")
                      MEMORY("1", HELD("p-0-abcde"), "3")
                          LINE("DEV_XID_ERRORS", "1", HELD("p-0-abcde"), "0"));
    assert_int_equal(got.pods, 1);
    assert_string_equal(got.ns, "work");
    assert_string_equal(got.pod, "p-0-abcde");
    assert_int_equal(got.n, 2);
    assert_int_equal(got.v[0].percent, 79);
    assert_false(got.v[0].rests);
    assert_true(got.v[0].bytes == (int64_t)40960 << 20);
    assert_int_equal(got.v[1].percent, 0);
    assert_true(got.v[1].rests && got.v[1].bytes == 3 << 20);
    assert_true(got.v[0].id != got.v[1].id);
    read_text(UTIL("0", ",container_name=\"m\",pod_name=\"old\",pod_namespace=\"older\"", "7"));
    assert_string_equal(got.pod, "old"); /* --use-old-namespace */
    assert_string_equal(got.ns, "older");
}

/* Labels of a pod may stand behind those of the exporter, and he who makes a pod writes them: none
 * of them names another one's pod. */
static void labels_that_a_pod_brings(void **state)
{
    (void)state;
    read_text(UTIL("0", HELD("mine") ",pod=\"x\"", "7"));
    assert_int_equal(got.pods, 0);
    read_text(UTIL("0", HELD("mine") ",pod=\"x\",pod_name=\"his\",pod_namespace=\"work\"", "7"));
    assert_int_equal(got.pods, 0);
    read_text(UTIL("0", HELD("mine") ",pod_name=\"his\",pod_namespace=\"work\"", "7"));
    assert_int_equal(got.pods, 0);
    read_text(UTIL("0",
                   ",container_name=\"m\",pod_name=\"mine\",pod_namespace=\"work\",pod=\"his\","
                   "namespace=\"work\"",
                   "7"));
    assert_int_equal(got.pods, 0);
}

/* The mean of the engine goes before the look at a moment, and both say whether it rests. */
static void means_and_moments(void **state)
{
    (void)state;
    read_text(UTIL("0", HELD("p"), "0") ENGINE("0", HELD("p"), "0.423999") UTIL("1", HELD("p"), "3")
                  ENGINE("1", HELD("p"), "0.000000") ENGINE("2", HELD("p"), "1.000000\r")
                      ENGINE("3", HELD("p"), "0.000000 1795234567"));
    assert_int_equal(got.n, 4);
    assert_int_equal(got.v[0].percent, 42);
    assert_false(got.v[0].rests || got.v[1].rests || got.v[2].rests);
    assert_int_equal(got.v[2].percent, 100);
    assert_true(got.v[3].rests && got.v[3].bytes == -1);
}

/* Utilisation is 0 of instances, whatever they do: their engine tells. */
static void instances(void **state)
{
    (void)state;
    read_text(UTIL("0", MIG("7") HELD("a"), "0"));
    assert_int_equal(got.pods, 0);
    read_text(UTIL("0", HELD("b"), "0") UTIL("0", MIG("7") HELD("a"), "0")
                  ENGINE("0", MIG("7") HELD("a"), "0.5") ENGINE("0", MIG("8") HELD("a"), "0")
                      ENGINE("0", MIG("9") ",Hostname=\"n1\"", "1"));
    assert_int_equal(got.pods, 1);
    assert_string_equal(got.pod, "a");
    assert_int_equal(got.n, 2);
    assert_int_equal(got.v[0].percent, 50);
    assert_true(got.v[1].rests);
}

/* What a GPU does for several pods is nobody's. */
static void shares(void **state)
{
    (void)state;
    read_text(UTIL("0", HELD("a"), "50") UTIL("0", HELD("b"), "50")
                  UTIL("1", HELD("c") ",vgpu=\"0\"", "50"));
    assert_int_equal(got.pods, 0);
}

static void values_that_are_none(void **state)
{
    static const char *const values[] = {"NaN",
                                         "nan",
                                         "+Inf",
                                         "-1",
                                         "101",
                                         "1e2",
                                         "0x10",
                                         "",
                                         "79.5.1",
                                         "79,5",
                                         "18446744073709551604",
                                         "9223372036854775792",
                                         "\xd9\xa7\xd9\xa9",
                                         "79999999999999999999999"};
    char text[1024];

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        (void)snprintf(text, sizeof text, UTIL("0", HELD("p"), "%s") ENGINE("0", HELD("p"), "%s"),
                       values[i], values[i]);
        read_text(text);
        assert_int_equal(got.pods, 0);
    }
    /* the same sample twice is one device, and the larger figure counts */
    read_text(UTIL("0", HELD("p"), "50") UTIL("0", HELD("p"), "0")
                  MEMORY("0", HELD("p"), "99999999999"));
    assert_int_equal(got.n, 1);
    assert_int_equal(got.v[0].percent, 50);
    assert_int_equal(got.v[0].bytes, -1);
}

/* They say two things, none, or too much. */
static void labels_that_are_none(void **state)
{
    (void)state;
    read_text(
        UTIL("0", HELD("p") ",pod=\"q\"", "5") UTIL("0",
                                                    ",namespace=\"a\",namespace=\"b\",pod=\"p\"",
                                                    "5") UTIL("0", ",namespace=\"\",pod=\"p\"", "5")
            UTIL("0", ",namespace=\"a\",pod=\"p\\\"\"", "5")
                UTIL("0", ",namespace=\"a\",xpod=\"p\"", "5") LINE(
                    "DEV_GPU_UTILS", "0", HELD("p"),
                    "5") "DCGM_FI_DEV_GPU_UTIL{UUID=\"a\",UUID=\"b\",namespace=\"a\",pod=\"p\"} 5\n"
                         "DCGM_FI_DEV_GPU_UTIL{namespace=\"a\",pod=\"p\"} 5\n"
                         "DCGM_FI_DEV_GPU_UTIL{namespace=\"a\",pod=\"p\",UUID=\"u} 5\n");
    assert_int_equal(got.pods, 0);
}

/* More devices and pods than any node has: what is too much is passed over. */
static void floods(void **state)
{
    size_t at = 0, room = 4u << 20;
    char *text = malloc(room);

    (void)state;
    assert_non_null(text);
    for (unsigned i = 0; at + 200 < room; i++)
        at += (size_t)snprintf(text + at, room - at,
                               "DCGM_FI_DEV_GPU_UTIL{UUID=\"u%u\",namespace=\"n\",pod=\"p%u\"} 5\n",
                               i, i % 3);
    got.pods = 0;
    kube_dcgm_use(text, at, on_pod, &got);
    assert_int_equal(got.pods, 3);
    free(text);
}

static void any_bytes(void **state)
{
    static const char letters[] = "{}\"\\ \n,=UUIDpodnamespace0123456789.DCGM_FI_DEV_GPU_UTIL";
    unsigned long long seed = 11;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        size_t n = (size_t)round % 131;
        char *p = malloc(n + 1);

        assert_non_null(p);
        for (size_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            p[i] = letters[(seed >> 33) % (sizeof letters - 1)];
        }
        kube_dcgm_use(p, n, on_pod, &got);
        free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_pod_does),
        cmocka_unit_test(means_and_moments),
        cmocka_unit_test(labels_that_a_pod_brings),
        cmocka_unit_test(instances),
        cmocka_unit_test(shares),
        cmocka_unit_test(values_that_are_none),
        cmocka_unit_test(labels_that_are_none),
        cmocka_unit_test(floods),
        cmocka_unit_test(any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
