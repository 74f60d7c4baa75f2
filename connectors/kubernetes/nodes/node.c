/* A Node of Kubernetes as one of Hanse. */
#include "connectors/kubernetes/nodes/nodes_internal.h"

#include <stdio.h>
#include <string.h>

#define COUNT_MAX 1000000 /* what the leader refuses in a sentence is told as it is, below this */

int kube_quantity(const cJSON *list, const char *name, int64_t scale, int64_t max, int64_t *ret,
                  struct err *err)
{
    const cJSON *v = cJSON_IsObject(list) ? cJSON_GetObjectItemCaseSensitive(list, name) : NULL;
    char text[64];
    int rc = 0;

    *ret = 0;
    if (!v || cJSON_IsNull(v))
        return 0;
    if (cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble < 1e15)
        (void)snprintf(text, sizeof text, "%.3f", v->valuedouble);
    else if (!cJSON_IsString(v) || strlen(v->valuestring) >= sizeof text)
        return err_set(err, E_INVALID, "its %.80s is no quantity", name);
    rc = quantity_parse(cJSON_IsString(v) ? v->valuestring : text, scale, ret, err);
    if (rc == 0 && *ret > max) {
        *ret = 0;
        return err_set(err, E_INVALID, "its %.80s is \"%.40s\", which is too large", name,
                       cJSON_IsString(v) ? v->valuestring : text);
    }
    return rc;
}

/* ---- GPUs ---- */
static int row_add(const cJSON *node, const char *resource, struct arena *a, struct node_spec *s,
                   const char *resources[KUBE_ROWS_MAX], struct err *err)
{
    const cJSON *status = kube_at(node, "status");
    struct counted_gpus *row = &s->counted[s->n_counted];
    struct kube_device d;
    int64_t all, good;

    if (!kube_device_of(resource, &d))
        return 0;
    if (kube_quantity(kube_at(status, "capacity"), resource, 1, COUNT_MAX, &all, err) < 0 ||
        kube_quantity(kube_at(status, "allocatable"), resource, 1, COUNT_MAX, &good, err) < 0)
        return E_INVALID;
    all = all > good ? all : good;
    if (all == 0)
        return 0;
    if (s->n_counted == KUBE_ROWS_MAX)
        return err_set(err, E_INVALID, "it has more than %d kinds of GPUs", KUBE_ROWS_MAX);
    *row = (struct counted_gpus){.count = all, .unhealthy = all - good};
    if (kube_device_row(node, resource, &d, a, row, err) < 0)
        return E_INVALID;
    resources[s->n_counted++] = arena_strdup(a, resource);
    return 0;
}

static int rows_read(const cJSON *node, struct arena *a, struct node_spec *s,
                     const char *resources[KUBE_ROWS_MAX], struct err *err)
{
    const cJSON *capacity = kube_at(node, "status.capacity"), *r;
    const cJSON *allocatable = kube_at(node, "status.allocatable");
    int rc = 0;

    s->counted = arena_array(a, struct counted_gpus, KUBE_ROWS_MAX + 1);
    for (r = cJSON_IsObject(capacity) ? capacity->child : NULL; rc == 0 && r; r = r->next)
        rc = row_add(node, r->string, a, s, resources, err);
    for (r = cJSON_IsObject(allocatable) ? allocatable->child : NULL; rc == 0 && r; r = r->next)
        if (!cJSON_IsObject(capacity) || !cJSON_GetObjectItemCaseSensitive(capacity, r->string))
            rc = row_add(node, r->string, a, s, resources, err);
    return rc;
}

/* ---- all of it ---- */
static int name_take(const cJSON *node, const char *target, struct arena *a, struct meta *ret,
                     const char **ret_host, struct err *err)
{
    const char *name = kube_text(node, "metadata.name");
    const char *full = arena_printf(a, "%s.%.300s", target, name);

    *ret = (struct meta){
        .name = full, .generateName = "", .namespace_ = "", .uid = "", .revision = ""};
    *ret_host = arena_strdup(a, name);
    if (!*name)
        return err_set(err, E_INVALID, "a node without a name");
    if (strlen(full) > 253 || !object_name_valid(full))
        return err_set(err, E_INVALID,
                       "a node called %.80s%s, which with the target's name before "
                       "it is no name of at most 253 characters",
                       name, strlen(name) > 80 ? "…" : "");
    return 0;
}

static int room_read(const cJSON *node, struct node_spec *s, struct err *err)
{
    const cJSON *list = kube_at(node, "status.allocatable");

    if (!cJSON_IsObject(list))
        list = kube_at(node, "status.capacity");
    if (kube_quantity(list, "cpu", 1000, KUBE_CPU_MAX, &s->cpu, err) < 0)
        return E_INVALID;
    return kube_quantity(list, "memory", 1, KUBE_MEMORY_MAX, &s->memory, err);
}

static struct topology *topology_read(const cJSON *node, struct arena *a)
{
    struct topology t, *ret = arena_new(a, struct topology);
    const char **from[] = {&t.region, &t.zone, &t.block, &t.rack, &t.leaf, &t.nvlinkDomain};
    bool any = false;

    kube_topology_of(node, &t);
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        any |= **from[i] != '\0';
        *from[i] = arena_strdup(a, *from[i]);
    }
    *ret = t;
    return any ? ret : NULL;
}

static const char *why_not(const cJSON *node, const cJSON *taint, struct arena *a)
{
    if (!taint)
        return kube_other_system(node) ? "its system is not Linux"
               : kube_deleting(node)   ? "it is being deleted"
                                       : "it is cordoned";

    const char *value = kube_text(taint, "value");
    const char *text = arena_printf(a, "tainted: %.60s%s%.30s:%.12s", kube_text(taint, "key"),
                                    *value ? "=" : "", value, kube_text(taint, "effect"));

    return utf8_valid(text, strlen(text)) ? text : "tainted";
}

int kube_node_rows(const cJSON *node, const char *target, const cJSON *tolerations, struct arena *a,
                   struct node *ret, const char *resources[KUBE_ROWS_MAX], struct err *err)
{
    struct meta *m = arena_new(a, struct meta);
    struct node_spec *s = arena_new(a, struct node_spec);
    struct node_status *status = arena_new(a, struct node_status);
    const cJSON *taint = NULL;
    const char *host;

    if (name_take(node, target, a, m, &host, err) < 0)
        return E_INVALID;
    *s = (struct node_spec){.target = arena_strdup(a, target),
                            .hostname = host,
                            .machine = "",
                            .capacity = kube_capacity_of(node),
                            .interconnect = kube_fabric_of(node),
                            .topology = topology_read(node, a),
                            .unschedulable = kube_unschedulable(node, tolerations, &taint)};
    if (room_read(node, s, err) < 0 || rows_read(node, a, s, resources, err) < 0)
        return E_INVALID;
    *status = (struct node_status){.reason = "", .successor = "", .formerly = ""};
    kube_health_read(node, a, status);
    if (s->unschedulable && status->health == HEALTH_READY)
        status->reason = why_not(node, taint, a);
    *ret = (struct node){.metadata = m, .spec = s, .status = status};
    return 0;
}
