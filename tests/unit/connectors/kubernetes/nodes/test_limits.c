/* More pods, kinds of devices and numbers than are kept of a cluster: what is not counted is told,
 * and only for as long. Whoever may make pods may bring all of it about. */
#include "connectors/kubernetes/nodes/records.h"
#include "tests/support/unit.h"
#include "tests/support/web/still_loop.h"

#include <stdio.h>
#include <string.h>

static struct world {
    struct loop *loop;
    struct kube_nodes *n;
    struct heard { /* of nodes "n.0" to "n.9" */
        bool not_ready;
        int64_t others_cpu, others_memory;
    } heard[10];
} W;

static void on_nodes(void *arg, const struct inventory_page *p)
{
    (void)arg;
    for (size_t i = 0; i < p->n; i++) {
        const struct node_status *s = p->nodes[i].status;
        const char *name = p->nodes[i].metadata->name;
        W.heard[name[strlen(name) - 1] - '0'] =
            (struct heard){.not_ready = s->health == HEALTH_NOT_READY,
                           .others_cpu = s->others ? s->others->cpu : 0,
                           .others_memory = s->others ? s->others->memory : 0};
    }
}
static void on_notices(void *arg, const struct notice *v, size_t n)
{
    (void)arg;
    (void)v;
    (void)n;
}
static const struct kube_nodes_events events = {.nodes = on_nodes, .notices = on_notices};

static void feed(bool pod, enum kube_change change, const char *text)
{
    cJSON *o = cJSON_Parse(text);

    assert_non_null(o);
    if (pod)
        kube_nodes_pod(W.n, change, o);
    else
        kube_nodes_node(W.n, change, o);
    cJSON_Delete(o);
}

static int begin(void **state)
{
    (void)state;
    W = (struct world){.loop = still_loop_create(1)};
    W.n = kube_nodes_create(W.loop, "k1", &events, NULL);
    kube_nodes_begins(W.n);
    feed(false, KUBE_IS,
         "{\"metadata\":{\"name\":\"n.1\"},\"status\":{\"capacity\":{\"cpu\":\"4\"},"
         "\"allocatable\":{"
         "\"cpu\":\"4\"},\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}");
    kube_nodes_listed(W.n);
    kube_nodes_pods_begin(W.n);
    kube_nodes_pods_listed(W.n);
    kube_nodes_ask(W.n);
    return 0;
}

static int end(void **state)
{
    (void)state;
    W.n = kube_nodes_destroy(W.n);
    still_loop_run(W.loop, 1000);
    W.loop = still_loop_destroy(W.loop);
    return 0;
}

/* Whoever may make pods may have each ask for more than any node has. */
static void sums_beyond_measure(void **state)
{
    enum { MANY = 8200 }; /* times the most that one counts: more than 63 bits of bytes */
    char text[512];

    (void)state;
    for (int gone = 0; gone < 2; gone++) {
        for (int i = 0; i < MANY; i++) {
            (void)snprintf(text, sizeof text,
                           "{\"metadata\":{\"uid\":\"u-%d\"},\"spec\":{\"nodeName\":\"n.1\","
                           "\"containers\":[{\"resources\":{\"requests\":{\"cpu\":\"9E\","
                           "\"memory\":\"9E\"}}}]}}",
                           i);
            feed(true, gone ? KUBE_GONE : KUBE_IS, text);
        }
        still_loop_run(W.loop, 1000);
        assert_int_equal(W.heard[1].others_memory, gone ? 0 : KUBE_MEMORY_MAX);
        assert_int_equal(W.heard[1].others_cpu, gone ? 0 : KUBE_CPU_MAX);
    }
}

/* A pod of n.NODE that asks for `count` devices of so many kinds (MIG profiles), from that on. */
static void many_kinds(enum kube_change change, int node, int pod, int from, int kinds, int count)
{
    char text[2048];
    int n = snprintf(text, sizeof text,
                     "{\"metadata\":{\"uid\":\"k-%d\"},\"spec\":{\"nodeName\":\"n.%d\","
                     "\"containers\":[{\"resources\":{\"requests\":{\"cpu\":\"1\"",
                     pod, node);

    for (int i = from; i < from + kinds; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, ",\"nvidia.com/mig-1g.%dgb\":\"%d\"", i,
                      count);
    (void)snprintf(text + n, sizeof text - (size_t)n, "}}}]}}");
    feed(true, change, text);
}

static bool not_ready(int node)
{
    still_loop_run(W.loop, 2000);
    return W.heard[node].not_ready;
}

static void kinds_beyond_measure(void **state)
{
    (void)state;
    assert_false(not_ready(1));
    many_kinds(KUBE_IS, 1, 0, 100, 9, 1);
    assert_true(not_ready(1));
    many_kinds(KUBE_GONE, 1, 0, 100, 9, 1);
    assert_false(not_ready(1));
    for (int i = 0; i < 100; i++) /* of none of a kind no name is kept */
        many_kinds(KUBE_IS, 1, i, i * 8, 8, 0);
    many_kinds(KUBE_IS, 1, 100, 1000, 8, 1);
    assert_false(not_ready(1));
    for (int i = 0; i < 30; i++)
        many_kinds(KUBE_IS, 1, i, i * 8, 8, 1);
    assert_true(not_ready(1));
    feed(
        false, KUBE_IS,
        "{\"metadata\":{\"name\":\"n.2\"},\"status\":{\"capacity\":{\"cpu\":\"4\",\"memory\":"
        "\"8Gi\",\"amd.com/gpu\":\"2\"},\"allocatable\":{\"cpu\":\"4\",\"memory\":\"8Gi\","
        "\"amd.com/gpu\":\"2\"},\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}");
    /* nodes have room all the same */
    assert_false(not_ready(2));
    assert_non_null(kube_nodes_resource(W.n, "k1.n.2", "", 0));
    for (int i = 0; i < 30; i++)
        many_kinds(KUBE_GONE, 1, i, i * 8, 8, 1);
    for (int i = 0; i < 20; i++)
        many_kinds(KUBE_IS, 1, i, 3000 + i * 8, 8, 1);
    assert_false(not_ready(1));
    for (int again = 0; again < 2; again++) { /* names that nobody has are let go */
        kube_nodes_pods_begin(W.n);
        for (int i = 0; again && i < 20; i++)
            many_kinds(KUBE_IS, 1, i, 2000 + i * 8, 8, 1);
        kube_nodes_pods_listed(W.n);
        assert_false(not_ready(1));
    }
    assert_string_equal(kube_nodes_resource(W.n, "k1.n.2", "", 0), "amd.com/gpu");
}

/* More kinds than what is told of a node has room for. */
static void classes_beyond_measure(void **state)
{
    char text[4096], list[1500];
    int n = 0;

    (void)state;
    for (int i = 1; i <= 17; i++)
        n += snprintf(list + n, sizeof list - (size_t)n, ",\"nvidia.com/mig-1g.%dgb\":\"2\"", i);
    (void)snprintf(text, sizeof text,
                   "{\"metadata\":{\"name\":\"n.2\"},\"status\":{\"capacity\":{\"cpu\":\"64\","
                   "\"memory\":\"8Gi\"%s},\"allocatable\":{\"cpu\":\"64\",\"memory\":\"8Gi\"%s},"
                   "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}",
                   list, list);
    feed(false, KUBE_IS, text);
    for (int i = 0; i < 2; i++)
        many_kinds(KUBE_IS, 2, i, 1 + i * 8, 8, 1);
    assert_false(not_ready(2));
    many_kinds(KUBE_IS, 2, 2, 17, 1, 1);
    assert_true(not_ready(2));
    many_kinds(KUBE_GONE, 2, 2, 17, 1, 1);
    assert_false(not_ready(2));
}

/* A pod for which there is no room: its node is not ready until a listing has counted all. */
static void pods_beyond_measure(void **state)
{
    (void)state;
    for (int i = 0; i < KUBE_PODS_MAX; i++)
        many_kinds(KUBE_IS, 5, i, 1, 0, 1);
    assert_false(not_ready(1));
    many_kinds(KUBE_IS, 1, KUBE_PODS_MAX, 1, 1, 1);
    assert_true(not_ready(1));
    kube_nodes_pods_begin(W.n);
    many_kinds(KUBE_IS, 1, KUBE_PODS_MAX, 1, 1, 1);
    assert_true(not_ready(1));
    kube_nodes_pods_listed(W.n);
    assert_true(not_ready(1)); /* the old ones were there until now */
    kube_nodes_pods_begin(W.n);
    many_kinds(KUBE_IS, 1, KUBE_PODS_MAX, 1, 1, 1);
    assert_true(not_ready(1));
    kube_nodes_pods_listed(W.n);
    assert_false(not_ready(1));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {T(sums_beyond_measure), T(kinds_beyond_measure),
                                       T(classes_beyond_measure), T(pods_beyond_measure)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
