/* The inventory: from a file, or of this machine. It becomes Node objects at once, so that the
 * kinds' descriptors check every value and no field is defined twice. */
#include "connectors/agent/node/agent_internal.h"

#include "api/base/hash.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define INVENTORY_FILE_MAX (4u << 20)

static const char *const file_keys[] = {"target", "gpus", "nodes", NULL};
static const char *const node_keys[] = {"name",         "cpu",  "memory", "topology", "capacity",
                                        "interconnect", "gpus", "health", "others", "faults", NULL};
static const char *const gpu_keys[] = {"index",  "class",        "model",  "memory",
                                       "shared", "nvlinkDomain", "health", NULL};

static const char *text_of(const cJSON *j, const char *name)
{
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, name));

    return s ? s : "";
}

static int keys_check(const cJSON *j, const char *const *known, const char *path, struct err *err)
{
    const cJSON *v;

    if (!cJSON_IsObject(j))
        return err_field(err, E_INVALID, path, "expected keys and values");
    cJSON_ArrayForEach(v, j)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], v->string) != 0)
            i++;
        if (!known[i])
            return err_field(err, E_INVALID, path, "unknown key \"%.60s\"", v->string);
    }
    return 0;
}

static bool label_ok(const char *s)
{
    size_t n = strlen(s);

    return n >= 1 && n <= 63 && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n &&
           s[0] != '-' && s[n - 1] != '-';
}

/* "TARGET.NODE", and what the machine has where nothing is said. */
static cJSON *node_make(struct runner_os *os, const char *target, const char *name)
{
    cJSON *node = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(node, "metadata");
    cJSON *spec = cJSON_AddObjectToObject(node, "spec"),
          *status = cJSON_AddObjectToObject(node, "status");
    char full[512], host[256], text[32];
    int64_t cpu, memory;

    os->ops->machine(os, &cpu, &memory, host);
    (void)snprintf(full, sizeof full, "%s.%s", target, name);
    cJSON_AddStringToObject(meta, "name", full);
    cJSON_AddStringToObject(spec, "target", target);
    cJSON_AddStringToObject(spec, "hostname", name);
    (void)snprintf(text, sizeof text, "%lldm", (long long)cpu);
    cJSON_AddStringToObject(spec, "cpu", text);
    (void)snprintf(text, sizeof text, "%lld", (long long)memory);
    cJSON_AddStringToObject(spec, "memory", text);
    cJSON_AddStringToObject(status, "health", "Ready");
    return node;
}

static int gpus_check(const cJSON *gpus, const char *path, struct err *err)
{
    bool seen[RUN_GPUS_MAX] = {false};
    char at[ERR_FIELD_MAX];
    const cJSON *g;
    int i = 0, rc;

    if (cJSON_GetArraySize(gpus) > RUN_GPUS_MAX)
        return err_field(err, E_LIMIT, path, "more than %d GPUs", RUN_GPUS_MAX);
    cJSON_ArrayForEach(g, gpus)
    {
        (void)snprintf(at, sizeof at, "%.100s[%d]", path, i++);
        rc = keys_check(g, gpu_keys, at, err);
        if (rc < 0)
            return rc;
        const cJSON *index = cJSON_GetObjectItemCaseSensitive(g, "index");
        if (!cJSON_IsNumber(index) || index->valuedouble != index->valueint ||
            index->valueint < 0 || index->valueint >= RUN_GPUS_MAX)
            return err_field(err, E_INVALID, at, "index: expected a number from 0 to %d",
                             RUN_GPUS_MAX - 1);
        if (seen[index->valueint])
            return err_field(err, E_INVALID, at, "index %d is given twice", index->valueint);
        seen[index->valueint] = true;
        if (!*text_of(g, "class") && !*text_of(g, "model"))
            return err_field(err, E_INVALID, at, "class or model is needed");
        if (!cJSON_GetObjectItemCaseSensitive(g, "memory"))
            return err_field(err, E_INVALID, at, "memory is needed, such as 80Gi");
    }
    return 0;
}

static int gpus_from_driver(struct runner_os *os, cJSON *spec, struct err *err)
{
    struct runner_gpu *v = mem_zalloc(sizeof *v * RUN_GPUS_MAX);
    int n = os->ops->gpus(os, v, err);
    cJSON *gpus = n > 0 ? cJSON_AddArrayToObject(spec, "gpus") : NULL;

    for (int i = 0; i < n; i++) {
        cJSON *g = cJSON_CreateObject();
        char text[32];
        cJSON_AddNumberToObject(g, "index", i);
        cJSON_AddStringToObject(g, "model", v[i].model);
        cJSON_AddStringToObject(g, "uuid", v[i].uuid);
        (void)snprintf(text, sizeof text, "%lld", (long long)v[i].memory_bytes);
        cJSON_AddStringToObject(g, "memory", text);
        cJSON_AddItemToArray(gpus, g);
    }
    mem_free(v);
    return n < 0 ? n : 0;
}

/* What a health check on the machine found (it writes the file and sends SIGHUP): work leaves a
 * node that is Sick, and nothing new comes to one that is NotReady. */
static int health_take(const cJSON *from, cJSON *status, const char *path, struct err *err)
{
    const char *health = text_of(from, "health");

    if (strcmp(health, "Ready") != 0 && strcmp(health, "NotReady") != 0 &&
        strcmp(health, "Sick") != 0)
        return err_field(err, E_INVALID, path, "health: expected Ready, NotReady or Sick");
    cJSON_DeleteItemFromObjectCaseSensitive(status, "health");
    cJSON_AddStringToObject(status, "health", health);
    return 0;
}

/* What others than Hanse hold of the machine, as who writes the file knows it (and SIGHUP has it
 * read again). This agent's own runs are not to be in it: the hub counts those itself. */
static int others_take(const cJSON *from, cJSON *node, const char *path, struct err *err)
{
    const cJSON *others = cJSON_GetObjectItemCaseSensitive(from, "others");
    const cJSON *gpus =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(node, "spec"), "gpus");
    AUTO_ARENA m = arena_create(0);
    struct node_others *o;
    void *body;
    int rc = body_from_json(&schema_node_others, others, DECODE_USER, m, &body, err);

    if (rc < 0) {
        char inner[ERR_FIELD_MAX];
        str_copy(inner, sizeof inner, err->field);
        (void)snprintf(err->field, sizeof err->field, "%.60s.others.%.50s", path, inner);
        return rc;
    }
    o = body;
    for (uint32_t i = 0; i < o->n_gpus; i++) {
        const cJSON *g;
        bool known = false;

        cJSON_ArrayForEach(g, gpus)
        {
            const cJSON *index = cJSON_GetObjectItemCaseSensitive(g, "index");
            known |= cJSON_IsNumber(index) && index->valueint == o->gpus[i];
        }
        if (!known)
            return err_field(err, E_INVALID, path, "others: the node has no GPU %lld",
                             (long long)o->gpus[i]);
    }
    if (o->n_classes)
        return err_field(err, E_INVALID, path,
                         "others.classes: the GPUs of an agent's node have numbers; name them in "
                         "others.gpus");
    cJSON_AddItemToObject(cJSON_GetObjectItemCaseSensitive(node, "status"), "others",
                          cJSON_Duplicate(others, true));
    return 0;
}

/* What a health check found, and who told it so. What it means for the node and its GPUs the hub
 * makes of it. */
static int faults_take(const cJSON *from, cJSON *node, const char *path, struct err *err)
{
    const cJSON *faults = cJSON_GetObjectItemCaseSensitive(from, "faults"), *f;
    AUTO_ARENA m = arena_create(0);
    void *body;
    int i = 0;

    if (!cJSON_IsArray(faults) || cJSON_GetArraySize(faults) > 64)
        return err_field(err, E_INVALID, path, "faults: expected a list of at most 64");
    cJSON_ArrayForEach(f, faults)
    {
        char inner[ERR_FIELD_MAX];
        int rc = body_from_json(&schema_node_fault, f, DECODE_USER, m, &body, err);

        if (rc < 0) {
            str_copy(inner, sizeof inner, err->field);
            (void)snprintf(err->field, sizeof err->field, "%.50s.faults[%d].%.40s", path, i, inner);
            return rc;
        }
        i++;
    }
    cJSON_AddItemToObject(cJSON_GetObjectItemCaseSensitive(node, "status"), "faults",
                          cJSON_Duplicate(faults, true));
    return 0;
}

static int node_load(struct runner_os *os, const char *target, const cJSON *from, int place,
                     bool nvml, cJSON **ret, struct err *err)
{
    static const char *const taken[] = {"cpu",      "memory",       "topology",
                                        "capacity", "interconnect", "gpus"};
    char path[ERR_FIELD_MAX], gpus_path[ERR_FIELD_MAX];
    const cJSON *gpus = cJSON_GetObjectItemCaseSensitive(from, "gpus");
    AUTO_ARENA m = arena_create(0);
    void *body;

    (void)snprintf(path, sizeof path, "nodes[%d]", place);
    (void)snprintf(gpus_path, sizeof gpus_path, "nodes[%d].gpus", place);
    int rc = keys_check(from, node_keys, path, err);
    if (rc == 0 && !label_ok(text_of(from, "name")))
        rc = err_field(err, E_INVALID, path,
                       "name: expected lower-case letters, digits and -, at most 63");
    if (rc == 0 && nvml && gpus)
        rc = err_field(err, E_INVALID, gpus_path,
                       "GPUs are listed although \"gpus: nvml\" asks the driver: leave one out");
    if (rc == 0)
        rc = gpus_check(gpus, gpus_path, err);
    if (rc < 0)
        return rc;
    cJSON *node = node_make(os, target, text_of(from, "name"));
    cJSON *spec = cJSON_GetObjectItemCaseSensitive(node, "spec");
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(from, taken[i]);
        if (!v)
            continue;
        cJSON_DeleteItemFromObjectCaseSensitive(spec, taken[i]);
        cJSON_AddItemToObject(spec, taken[i], cJSON_Duplicate(v, true));
    }
    if (cJSON_GetObjectItemCaseSensitive(from, "health"))
        rc = health_take(from, cJSON_GetObjectItemCaseSensitive(node, "status"), path, err);
    if (rc == 0 && nvml)
        rc = gpus_from_driver(os, spec, err);
    if (rc == 0 && cJSON_GetObjectItemCaseSensitive(from, "others"))
        rc = others_take(from, node, path, err);
    if (rc == 0 && cJSON_GetObjectItemCaseSensitive(from, "faults"))
        rc = faults_take(from, node, path, err);
    if (rc == 0) {
        rc = body_from_json(&schema_node_spec, spec, DECODE_USER, m, &body, err);
        if (rc < 0 && err) {
            char inner[ERR_FIELD_MAX];
            str_copy(inner, sizeof inner, err->field);
            (void)snprintf(err->field, sizeof err->field, "%.60s.%.60s", path, inner);
        }
    }
    if (rc < 0)
        cJSON_Delete(node);
    else
        *ret = node;
    return rc;
}

static int nodes_load(struct runner_os *os, const char *target, const cJSON *doc,
                      struct inventory *inv, struct err *err)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(doc, "nodes"), *n;
    const char *gpus = text_of(doc, "gpus");
    int rc = keys_check(doc, file_keys, "", err), i = 0;

    if (rc == 0 && strcmp(text_of(doc, "target"), target) != 0)
        rc = err_field(err, E_INVALID, "target",
                       "\"%.100s\" is not this agent's target; --target says \"%s\"",
                       text_of(doc, "target"), target);
    if (rc == 0 && *gpus && strcmp(gpus, "declared") != 0 && strcmp(gpus, "nvml") != 0)
        rc = err_field(err, E_INVALID, "gpus", "\"%.60s\": expected declared or nvml", gpus);
    inv->nvml = strcmp(gpus, "nvml") == 0;
    int count = cJSON_GetArraySize(list);
    if (rc == 0 && (count < 1 || count > AGENT_NODES_MAX))
        rc = err_field(err, E_INVALID, "nodes", "expected 1 to %d nodes", AGENT_NODES_MAX);
    if (rc == 0 && inv->nvml && count != 1)
        rc = err_field(err, E_INVALID, "nodes",
                       "\"gpus: nvml\" is about this machine: expected one node");
    inv->nodes = cJSON_CreateArray();
    cJSON_ArrayForEach(n, list)
    {
        cJSON *node = NULL;
        if (rc == 0)
            rc = node_load(os, target, n, i++, inv->nvml, &node, err);
        if (rc < 0)
            break;
        if (inventory_find(inv, inventory_name(node)))
            rc = err_field(err, E_INVALID, "nodes", "node \"%s\" is given twice",
                           text_of(n, "name"));
        cJSON_AddItemToArray(inv->nodes, node);
    }
    return rc;
}

static int file_load(struct loop *l, struct runner_os *os, const char *target, const char *file,
                     struct inventory *inv, struct err *err)
{
    struct yaml_doc *docs = NULL;
    size_t n = 0;
    AUTO_BUF b;

    buf_init(&b, INVENTORY_FILE_MAX);
    int rc = file_read(l, file, INVENTORY_FILE_MAX, &b, err);
    if (rc == 0)
        rc = yaml_parse_all(b.p ? b.p : "", b.n, file, &docs, &n, err);
    if (rc < 0)
        return rc;
    if (n != 1) {
        rc = err_set(err, E_INVALID, "%s: expected one document, found %zu", file, n);
    } else {
        rc = nodes_load(os, target, docs[0].json, inv, err);
        if (rc < 0) {
            struct err why = *err;
            (void)err_prefix(err, "%s:%d: %s%s", file, yaml_line_of(&docs[0], why.field), why.field,
                             why.field[0] ? ": " : "");
        }
    }
    yaml_docs_free(docs, n);
    return rc;
}

/* This machine: its name as far as it makes a DNS label. */
static int machine_load(struct runner_os *os, const char *target, struct inventory *inv,
                        struct err *err)
{
    char host[256];
    int64_t cpu, memory;
    struct err none;
    size_t n = 0;

    os->ops->machine(os, &cpu, &memory, host);
    for (const char *p = host; *p && *p != '.' && n < 63; p++)
        host[n++] = (char)(isalnum((unsigned char)*p) ? tolower((unsigned char)*p) : '-');
    host[n] = '\0';
    cJSON *node = node_make(os, target, label_ok(host) ? host : "node");
    inv->nodes = cJSON_CreateArray();
    cJSON_AddItemToArray(inv->nodes, node);
    int rc = gpus_from_driver(os, cJSON_GetObjectItemCaseSensitive(node, "spec"), &none);
    inv->nvml = rc == 0;
    if (rc < 0 && rc != E_NOTFOUND) /* a driver that is sick is no machine without GPUs */
        return err_set(err, rc, "%s", none.text);
    return 0;
}

/* All nodes are this machine's, whatever the file calls them: that is where the shims run. */
static void isolation_add(struct inventory *inv, const struct agent *a)
{
    /* Without a user of its own a program goes where it likes. */
    const char *const shared[] = {"users", "view", "systemCalls", "memory",
                                  "pids",  "cpu",  "devices"};
    const cJSON *n;

    cJSON_ArrayForEach(n, inv->nodes)
    {
        cJSON *status = cJSON_GetObjectItemCaseSensitive(n, "status");
        cJSON *isolation = cJSON_AddObjectToObject(status, "isolation");
        cJSON_AddStringToObject(isolation, "processes", run_processes_text(a->held));
        cJSON_AddStringToObject(isolation, "tenants", a->cfg.users ? "separate" : "shared");
        cJSON *lacks = cJSON_AddArrayToObject(isolation, "lacks");
        for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
            if ((!a->cfg.users && (i < 3 || strcmp(shared[i], "devices") == 0)) ||
                strstr(a->lacks, shared[i]))
                cJSON_AddItemToArray(lacks, cJSON_CreateString(shared[i]));
    }
}

int inventory_load(struct agent *a, struct inventory *ret, struct err *err)
{
    const char *file = a->cfg.inventory_file, *target = a->cfg.target;
    struct runner_os *os = a->cfg.os;
    struct inventory inv = {0};
    struct err why;
    int rc = file ? file_load(a->loop, os, target, file, &inv, &why)
                  : machine_load(os, target, &inv, &why);

    if (rc < 0) {
        cJSON_Delete(inv.nodes);
        if (err)
            *err = why;
        return rc;
    }
    isolation_add(&inv, a);
    char *text = cJSON_PrintUnformatted(inv.nodes);
    inv.hash = hash_text(text);
    cJSON_free(text);
    *ret = inv;
    return 0;
}

void inventory_fini(struct inventory *inv)
{
    cJSON_Delete(inv->nodes);
    inv->nodes = NULL;
}

const char *inventory_name(const cJSON *node)
{
    return text_of(cJSON_GetObjectItemCaseSensitive(node, "metadata"), "name");
}

const cJSON *inventory_find(const struct inventory *inv, const char *name)
{
    const cJSON *n;

    cJSON_ArrayForEach(n, inv->nodes)
    {
        if (strcmp(inventory_name(n), name) == 0)
            return n;
    }
    return NULL;
}
