/* kube_inventory: what the inventory of a Kubernetes cluster keeps, and what it computes: --nodes
 * nodes with 60 labels and --pods pods of others on them, listed; then a sign of life of every
 * node, and half of the pods replaced. Thread CPU, so that the machine's other work does not
 * count; documents are made and parsed outside of the time. */
#include "connectors/kubernetes/nodes/nodes.h"
#include "tests/support/web/still_loop.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
    size_t pages, nodes;
} told;
static int64_t spent_ns;

static int64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void on_nodes(void *arg, const struct inventory_page *p)
{
    (void)arg;
    told.pages++;
    told.nodes += p->n;
}

static void on_notices(void *arg, const struct notice *v, size_t n)
{
    (void)arg;
    (void)v;
    (void)n;
}

static cJSON *node_made(long i, long beat)
{
    cJSON *o = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(o, "metadata");
    cJSON *labels = cJSON_AddObjectToObject(meta, "labels");
    cJSON *status = cJSON_AddObjectToObject(o, "status"), *list;
    char text[64];

    (void)snprintf(text, sizeof text, "ip-10-1-%ld-%ld.eu-central-1.compute.internal", i / 256,
                   i % 256);
    cJSON_AddStringToObject(meta, "name", text);
    for (int k = 0; k < 52; k++) {
        (void)snprintf(text, sizeof text, "feature.node.kubernetes.io/cpu-cpuid.F%d", k);
        cJSON_AddStringToObject(labels, text, "true");
    }
    cJSON_AddStringToObject(labels, "topology.kubernetes.io/region", "eu-central-1");
    cJSON_AddStringToObject(labels, "topology.kubernetes.io/zone", "eu-central-1a");
    (void)snprintf(text, sizeof text, "nn-%ld", i / 16);
    cJSON_AddStringToObject(labels, "topology.k8s.aws/network-node-layer-3", text);
    cJSON_AddStringToObject(labels, "nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3");
    cJSON_AddStringToObject(labels, "nvidia.com/gpu.memory", "81559");
    cJSON_AddStringToObject(labels, "nvidia.com/gpu.replicas", "1");
    cJSON_AddStringToObject(labels, "eks.amazonaws.com/capacityType", "ON_DEMAND");
    for (int k = 0; k < 2; k++) {
        list = cJSON_AddObjectToObject(status, k ? "allocatable" : "capacity");
        cJSON_AddStringToObject(list, "cpu", "191450m");
        cJSON_AddStringToObject(list, "memory", "2060000000Ki");
        cJSON_AddStringToObject(list, "nvidia.com/gpu", "8");
        cJSON_AddStringToObject(list, "vpc.amazonaws.com/efa", "32");
    }
    list = cJSON_AddArrayToObject(status, "conditions");
    cJSON *ready = cJSON_CreateObject();
    cJSON_AddStringToObject(ready, "type", "Ready");
    cJSON_AddStringToObject(ready, "status", "True");
    (void)snprintf(text, sizeof text, "2026-11-28T02:%02ld:00Z", beat % 60);
    cJSON_AddStringToObject(ready, "lastHeartbeatTime", text);
    cJSON_AddItemToArray(list, ready);
    return o;
}

static cJSON *pod_made(long i, long life, long nodes)
{
    cJSON *o = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(o, "metadata");
    cJSON *spec = cJSON_AddObjectToObject(o, "spec");
    cJSON *list = cJSON_AddArrayToObject(spec, "containers"), *c = cJSON_CreateObject(), *r;
    char text[64];

    (void)snprintf(text, sizeof text, "%08lx-0000-4000-8000-%012lx", life, i);
    cJSON_AddStringToObject(meta, "uid", text);
    (void)snprintf(text, sizeof text, "ip-10-1-%ld-%ld.eu-central-1.compute.internal",
                   i % nodes / 256, i % nodes % 256);
    cJSON_AddStringToObject(spec, "nodeName", text);
    r = cJSON_AddObjectToObject(cJSON_AddObjectToObject(c, "resources"), "requests");
    cJSON_AddStringToObject(r, "cpu", i % 3 ? "250m" : "1");
    cJSON_AddStringToObject(r, "memory", "512Mi");
    if (i % 4 == 0)
        cJSON_AddStringToObject(r, "nvidia.com/gpu", "1");
    cJSON_AddItemToArray(list, c);
    return o;
}

static void give(struct kube_nodes *n, bool pod, enum kube_change change, cJSON *o)
{
    int64_t from = cpu_ns();

    if (pod)
        kube_nodes_pod(n, change, o);
    else
        kube_nodes_node(n, change, o);
    spent_ns += cpu_ns() - from;
    cJSON_Delete(o);
}

static void run(struct loop *l, uint64_t ms)
{
    int64_t from = cpu_ns();

    still_loop_run(l, ms);
    spent_ns += cpu_ns() - from;
}

static void row(const char *name, double value, const char *unit, bool last)
{
    printf("    {\"name\": \"%s\", \"value\": %.1f, \"unit\": \"%s\"}%s\n", name, value, unit,
           last ? "" : ",");
}

static size_t in_use(void)
{
    return mallinfo2().uordblks;
}

static long asked(int argc, char **argv, const char *option, long usual)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], option) == 0)
            return strtol(argv[i + 1], NULL, 10);
    return usual;
}

int main(int argc, char **argv)
{
    static const struct kube_nodes_events ev = {.nodes = on_nodes, .notices = on_notices};
    long nodes = asked(argc, argv, "--nodes", 5000), pods = asked(argc, argv, "--pods", 50000);
    struct loop *l = still_loop_create(1);
    struct kube_nodes *n = kube_nodes_create(l, "eks", &ev, NULL);
    struct kube_nodes_figures f;
    size_t before = in_use(), with_nodes, all;
    double list_ms, beat_ms, churn_ms;
    size_t listed, beats;

    kube_nodes_begins(n);
    for (long i = 0; i < nodes; i++)
        give(n, false, KUBE_IS, node_made(i, 0));
    kube_nodes_listed(n);
    with_nodes = in_use();
    kube_nodes_pods_begin(n);
    for (long i = 0; i < pods; i++)
        give(n, true, KUBE_IS, pod_made(i, 0, nodes));
    kube_nodes_pods_listed(n);
    all = in_use();
    kube_nodes_ask(n);
    run(l, 1000);
    list_ms = (double)spent_ns / 1e6;
    listed = told.nodes;
    spent_ns = 0;
    for (long i = 0; i < nodes; i++)
        give(n, false, KUBE_IS, node_made(i, 1));
    run(l, 1000);
    beat_ms = (double)spent_ns / 1e6;
    beats = told.nodes - listed;
    spent_ns = 0;
    for (long i = 0; i < pods; i += 2) {
        give(n, true, KUBE_GONE, pod_made(i, 0, nodes));
        give(n, true, KUBE_IS, pod_made(i, 1, nodes));
    }
    run(l, 1000);
    churn_ms = (double)spent_ns / 1e6;
    kube_nodes_figures(n, &f);
    printf("{\n  \"bench\": \"kube_inventory\", \"nodes\": %ld, \"pods\": %ld,\n  \"rows\": [\n",
           nodes, pods);
    row("memory of a node", (double)(with_nodes - before) / (double)nodes, "bytes", false);
    row("memory of a pod", (double)(all - with_nodes) / (double)pods, "bytes", false);
    row("memory of all records", (double)f.bytes / 1048576, "MiB", false);
    row("read and told", list_ms, "ms", false);
    row("a sign of life of every node", beat_ms, "ms", false);
    row("nodes told by that", (double)beats, "nodes", false);
    row("half of the pods replaced", churn_ms, "ms", true);
    printf("  ]\n}\n");
    n = kube_nodes_destroy(n);
    still_loop_destroy(l);
    return listed == (size_t)nodes && beats == 0 ? 0 : 1;
}
