/* What DCGM's exporter tells: read out of its text, asked for through the API server, and told of a
 * node only where the device plugin would still give a sick device away. */
#include "connectors/kubernetes/nodes/nodes_internal.h"
#include "tests/support/unit.h"
#include "tests/support/web/script_web.h"
#include "tests/support/web/still_loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct kube_dcgm read_text(const char *text)
{
    struct kube_dcgm d;

    kube_dcgm_read(text, strlen(text), &d);
    return d;
}

#define LABELS(gpu)                                                                                \
    "{gpu=\"" gpu "\",UUID=\"GPU-a8394b51\",pci_bus_id=\"00000000:00:02.0\",device=\"nvidia" gpu   \
    "\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"n1\"}"

/* As https://github.com/NVIDIA/dcgm-exporter prints it. */
static const char healthy[] = "# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error.\n"
                              "# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n"
                              "DCGM_FI_DEV_XID_ERRORS" LABELS("0") " 0\n"
                              "DCGM_FI_DEV_XID_ERRORS" LABELS("1") " 0\n"
                              "DCGM_FI_DEV_GPU_UTIL" LABELS("0") " 79\n"
                              "DCGM_FI_DEV_ROW_REMAP_FAILURE" LABELS("0") " 0\n";
static const char off_bus[] = "DCGM_FI_DEV_XID_ERRORS" LABELS("0") " 0\n"
                              "DCGM_FI_DEV_XID_ERRORS" LABELS("3") " 79\n"
                              "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" LABELS("3") " 2\n";

static void what_is_sick(void **state)
{
    struct kube_dcgm d = read_text(healthy);

    (void)state;
    assert_int_equal(d.sick, 0);
    d = read_text(off_bus);
    assert_int_equal(d.sick, 1);
    assert_string_equal(d.reason, "Xid79");
    assert_string_equal(d.message, "GPU 3: it has fallen off the bus");
    /* Errors of programs pass. */
    assert_int_equal(read_text("DCGM_FI_DEV_XID_ERRORS" LABELS("0") " 13\n"
                               "DCGM_FI_DEV_XID_ERRORS" LABELS("1") " 43\n")
                         .sick,
                     0);
    /* the second one is a label of its pod */
    d = read_text("DCGM_FI_DEV_XID_ERRORS{gpu=\"3\",UUID=\"x\",gpu=\"a100\"} 79\n");
    assert_int_equal(d.sick, 1);
    d = read_text("DCGM_EXP_XID_ERRORS_COUNT{gpu=\"2\",xid=\"48\",err_msg=\"a } \\\" b\"} 1\n"
                  "DCGM_EXP_XID_ERRORS_COUNT{gpu=\"1\",xid=\"95\"} 0\n"
                  "DCGM_FI_DEV_ROW_REMAP_FAILURE" LABELS("7") " 1");
    assert_int_equal(d.sick, 2);
    assert_string_equal(d.reason, "Xid48");
    d = read_text("DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu=\"0\",GPU_I_ID=\"1\"} 1\n"
                  "DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu=\"0\",GPU_I_ID=\"2\"} 1\n");
    assert_int_equal(d.sick, 1);
    assert_string_equal(d.reason, "RowRemapFailure");
}

static void texts_that_are_none(void **state)
{
    static const char *const texts[] = {"",
                                        "\n\n\n",
                                        "DCGM_FI_DEV_XID_ERRORS",
                                        "DCGM_FI_DEV_XID_ERRORS{",
                                        "DCGM_FI_DEV_XID_ERRORS{gpu=\"",
                                        "DCGM_FI_DEV_XID_ERRORS{gpu=\"1\\",
                                        "DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"}",
                                        "DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"} ",
                                        "DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"} x79",
                                        "DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"} -79",
                                        "DCGM_FI_DEV_XID_ERRORS{gpu=\"999\"} 79",
                                        "DCGM_FI_DEV_XID_ERRORS{gpu=\"\"} 79",
                                        "DCGM_FI_DEV_XID_ERRORS{xgpu=\"1\"} 79",
                                        "DCGM_FI_DEV_XID_ERRORS{gpu=\"1\"} 79999999999999999999999",
                                        "<html>{gpu=\"1\"} 79</html>",
                                        "{gpu=\"1\"} 79",
                                        "}{\"\"\"\"{}}} 79"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n = strlen(texts[i]);
        char *exact = malloc(n + 1); /* so that a read beyond it is seen */
        struct kube_dcgm d;

        memcpy(exact, texts[i], n);
        kube_dcgm_read(exact, n, &d);
        assert_int_equal(d.sick, 0);
        free(exact);
    }
}

static void any_bytes(void **state)
{
    static const char letters[] = "{}\"\\ \n,=gpuxid0123456789DCGM_FI_DEV_XID_ERRORS";
    unsigned long long seed = 7;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        size_t n = (size_t)round % 97;
        char *p = malloc(n + 1);
        struct kube_dcgm d;

        for (size_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            p[i] = letters[(seed >> 33) % (sizeof letters - 1)];
        }
        kube_dcgm_read(p, n, &d);
        free(p);
    }
}

/* ---- asked through the API server ---- */
static struct world {
    struct loop *l;
    struct kube_client *c;
    struct kube_nodes *n;
    struct script_reply reply;
    unsigned tries, told, forbids;
    const char *forbidden; /* exporters with that in their path are refused; "": none */
    char url[512];
    struct node_fault fault; /* of the node, as it was told last */
    bool faulty;
    char reason[64], message[256];
} W;
static struct kube_login login = {.server = (char[]){"https://api.test:6443"},
                                  .token = (char[]){"t"}};

static void serve(void *arg, const struct script_try *t, struct script_reply *ret)
{
    (void)arg;
    W.tries++;
    str_copy(W.url, sizeof W.url, t->url);
    *ret = W.reply;
    if (*W.forbidden && strstr(t->url, W.forbidden)) {
        W.forbids++;
        ret->status = 403;
        ret->body = "{\"kind\":\"Status\",\"status\":\"Failure\",\"reason\":\"Forbidden\"}";
    }
}

static void on_nodes(void *arg, const struct inventory_page *p)
{
    (void)arg;
    for (size_t i = 0; i < p->n; i++) {
        const struct node_status *s = p->nodes[i].status;
        W.told++;
        W.faulty = s->n_faults > 0;
        if (!W.faulty)
            continue;
        W.fault = s->faults[s->n_faults - 1];
        str_copy(W.reason, sizeof W.reason, W.fault.reason);
        str_copy(W.message, sizeof W.message, W.fault.message);
    }
}
static void on_notices(void *arg, const struct notice *v, size_t n)
{
    (void)arg;
    (void)v;
    (void)n;
}
static const struct kube_nodes_events events = {.nodes = on_nodes, .notices = on_notices};

static void give(bool pod, enum kube_change change, const char *text)
{
    cJSON *o = cJSON_Parse(text);

    assert_non_null(o);
    if (pod)
        kube_nodes_pod(W.n, change, o);
    else
        kube_nodes_node(W.n, change, o);
    cJSON_Delete(o);
}

static void node_with(int good)
{
    char text[512];

    (void)snprintf(text, sizeof text,
                   "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"capacity\":{\"nvidia.com/gpu\":"
                   "\"8\"},\"allocatable\":{\"nvidia.com/gpu\":\"%d\"},\"conditions\":[{"
                   "\"type\":\"Ready\",\"status\":\"True\"}]}}",
                   good);
    give(false, KUBE_IS, text);
}

#define EXPORTER_POD(ns)                                                                           \
    "{\"metadata\":{\"uid\":\"e1\",\"namespace\":\"" ns "\",\"name\":\"nvidia-dcgm-exporter-x\","  \
    "\"labels\":{\"app\":\"nvidia-dcgm-exporter\"}},\"spec\":{\"nodeName\":\"n1\"},"               \
    "\"status\":{\"phase\":\"Running\"}}"

static void begin(const char *ns_pod)
{
    struct err e;

    W = (struct world){.l = still_loop_create(3), .forbidden = ""};
    script_web = (struct script){.serve = serve};
    assert_int_equal(kube_client_create(W.l, "t1", &login, 4, &script_web_ops, &W.c, &e), 0);
    W.n = kube_nodes_create(W.l, "k1", &events, NULL);
    kube_nodes_begins(W.n);
    node_with(8);
    kube_nodes_listed(W.n);
    kube_nodes_pods_begin(W.n);
    give(true, KUBE_IS, ns_pod);
    kube_nodes_pods_listed(W.n);
    kube_nodes_ask(W.n);
    still_loop_run(W.l, 1000);
    assert_int_equal(W.tries, 0); /* there is no client yet */
    assert_int_equal(W.told, 1);
}

static void end(void)
{
    kube_nodes_client(W.n, NULL);
    W.c = kube_client_destroy(W.c);
    W.n = kube_nodes_destroy(W.n);
    still_loop_run(W.l, 1000);
    assert_int_equal(script_web.under_way, 0);
    W.l = still_loop_destroy(W.l);
}

static void sick_devices_make_a_node_not_ready(void **state)
{
    (void)state;
    begin(EXPORTER_POD("gpu-operator"));
    W.reply.body = healthy;
    kube_nodes_client(W.n, W.c);
    still_loop_run(W.l, 5000);
    assert_int_equal(W.tries, 1);
    assert_non_null(strstr(W.url, "/api/v1/namespaces/gpu-operator/pods/nvidia-dcgm-exporter-x:9400"
                                  "/proxy/metrics"));
    assert_int_equal(W.told, 1);
    W.reply.body = off_bus;
    still_loop_run(W.l, 61000);
    assert_int_equal(W.tries, 2); /* once in a minute */
    assert_int_equal(W.told, 2);
    assert_true(W.faulty && W.fault.source == SOURCE_XID && W.fault.health == HEALTH_NOT_READY);
    assert_string_equal(W.reason, "Xid79");
    assert_string_equal(W.message, "GPU 3: it has fallen off the bus");
    /* The device plugin has taken it out: the others are as good as ever. */
    node_with(7);
    still_loop_run(W.l, 2000);
    assert_int_equal(W.told, 3);
    assert_false(W.faulty);
    node_with(8);
    still_loop_run(W.l, 2000);
    assert_true(W.faulty);
    /* A reading that fails says nothing. */
    W.reply.how = SCRIPT_HALVES;
    still_loop_run(W.l, 200000);
    assert_true(W.tries > 3 && W.told == 4);
    W.reply.how = SCRIPT_FLOODS;
    still_loop_run(W.l, 200000);
    W.reply.how = SCRIPT_IS_SILENT;
    still_loop_run(W.l, 200000);
    assert_int_equal(W.told, 4);
    /* Whoever told it is gone. */
    give(true, KUBE_GONE, EXPORTER_POD("gpu-operator"));
    still_loop_run(W.l, 2000);
    assert_false(W.faulty);
    end();
}

static void refused_it_is_let_be(void **state)
{
    (void)state;
    begin(EXPORTER_POD("gpu-operator"));
    W.reply.status = 403;
    W.reply.body = "{\"kind\":\"Status\",\"status\":\"Failure\",\"reason\":\"Forbidden\"}";
    kube_nodes_client(W.n, W.c);
    still_loop_run(W.l, 500000);
    assert_int_equal(W.tries, 1);
    W.reply = (struct script_reply){.body = off_bus};
    still_loop_run(W.l, 200000);
    assert_true(W.faulty);
    end();
}

/* Rights are of one namespace: who is refused there is asked elsewhere all the same. */
static void who_is_refused_keeps_no_other_back(void **state)
{
    (void)state;
    begin(EXPORTER_POD("somebody"));
    W.forbidden = "/pods/nvidia-dcgm-exporter-x";
    W.reply.body = off_bus;
    give(true, KUBE_IS, EXPORTER_POD("gpu-operator")); /* in its place */
    give(true, KUBE_IS,
         "{\"metadata\":{\"uid\":\"e2\",\"namespace\":\"gpu-operator\",\"name\":"
         "\"nvidia-dcgm-exporter-z\",\"labels\":{\"app\":\"nvidia-dcgm-exporter\"}},"
         "\"spec\":{\"nodeName\":\"n2\"},\"status\":{\"phase\":\"Running\"}}");
    kube_nodes_client(W.n, W.c);
    still_loop_run(W.l, 250000);
    assert_int_equal(W.forbids, 1);
    assert_true(W.tries >= 4);
    assert_non_null(strstr(W.url, "nvidia-dcgm-exporter-z"));
    still_loop_run(W.l, 500000);
    assert_int_equal(W.forbids, 2);
    end();
}

/* What one has told is no word of the one that takes its place. */
static void a_new_exporter_has_told_nothing(void **state)
{
    (void)state;
    begin(EXPORTER_POD("gpu-operator"));
    W.reply.body = off_bus;
    kube_nodes_client(W.n, W.c);
    still_loop_run(W.l, 5000);
    assert_true(W.faulty);
    W.reply.how = SCRIPT_IS_SILENT;
    give(true, KUBE_IS,
         "{\"metadata\":{\"uid\":\"e2\",\"namespace\":\"gpu-operator\",\"name\":"
         "\"nvidia-dcgm-exporter-z\",\"labels\":{\"app\":\"nvidia-dcgm-exporter\"}},"
         "\"spec\":{\"nodeName\":\"n1\"},\"status\":{\"phase\":\"Running\"}}");
    still_loop_run(W.l, 5000);
    assert_false(W.faulty);
    end();
}

static void anybodys_pod_is_not_asked(void **state)
{
    (void)state;
    begin(EXPORTER_POD("somebody"));
    W.reply.body = off_bus;
    kube_nodes_client(W.n, W.c);
    still_loop_run(W.l, 200000);
    assert_int_equal(W.tries, 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sick),
        cmocka_unit_test(texts_that_are_none),
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(sick_devices_make_a_node_not_ready),
        cmocka_unit_test(refused_it_is_let_be),
        cmocka_unit_test(who_is_refused_keeps_no_other_back),
        cmocka_unit_test(a_new_exporter_has_told_nothing),
        cmocka_unit_test(anybodys_pod_is_not_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
