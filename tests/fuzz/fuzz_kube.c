/* Fuzz target: bytes as a Node or a pod that an API server sent, and as the text of an exporter of
 * DCGM. What is read of a Node is one of ours: its JSON is taken back, unless it counts more GPUs
 * than a node may have, which the leader says in a sentence. */
#include "connectors/kubernetes/nodes/nodes_internal.h"

#include <stdint.h>
#include <string.h>

int fuzz_kube(const uint8_t *data, size_t size);

static bool countable(const struct node_spec *s)
{
    for (uint32_t i = 0; i < s->n_counted; i++)
        if (s->counted[i].count > LIMIT_NODE_COUNTED || s->counted[i].shares > LIMIT_GPU_SHARES)
            return false;
    return true;
}

static void node_try(const cJSON *doc)
{
    const char *resources[KUBE_ROWS_MAX];
    AUTO_ARENA a = arena_create(0);
    cJSON *json = NULL;
    void *body = NULL;
    struct node n;
    struct err err;

    if (kube_node_rows(doc, "k1", kube_at(doc, "spec.tolerations"), a, &n, resources, &err) < 0) {
        INV(err.code == E_INVALID && *err.text);
        return;
    }
    INV(body_to_json(&schema_node, &n, &json, &err) == 0);
    INV(body_from_json(&schema_node, json, 0, a, &body, &err) == 0 || !countable(n.spec));
    INV(!body || body_equal(&schema_node, &n, body));
    cJSON_Delete(json);
}

static void pod_try(const cJSON *doc)
{
    struct kube_asks v;

    (void)kube_pod_asks(doc, &v);
    INV(v.cpu_milli >= 0 && v.cpu_milli <= KUBE_CPU_MAX && v.memory_bytes >= 0 &&
        v.memory_bytes <= KUBE_MEMORY_MAX && v.n <= KUBE_DEVICES_MAX);
    for (unsigned i = 0; i < v.n; i++)
        INV(v.devices[i].count >= 0);
}

int fuzz_kube(const uint8_t *data, size_t size)
{
    cJSON *doc = json_parse_bytes((const char *)data, size);
    struct kube_dcgm d;
    struct kube_goes g;
    struct notice v;

    kube_dcgm_read((const char *)data, size, &d);
    INV(d.sick <= 256 && (d.sick == 0) == (*d.reason == '\0'));
    if (!doc)
        return -1;
    node_try(doc);
    pod_try(doc);
    INV(!kube_goes_read(doc, &g) || !kube_goes_notice(&g, 1795840000000, 0, &v) || v.kind);
    cJSON_Delete(doc);
    return 0;
}

#ifndef FUZZ_IN_TEST
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)fuzz_kube(data, size);
    return 0;
}
#endif
