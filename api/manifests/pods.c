/* Templates of pods. What a pod may not say: where it runs, as whom, what it takes from its node or
 * from others; and what it asks for. Whatever is not named here the API server judges. */
#include "api/manifests/manifests_internal.h"

#include <stdio.h>
#include <string.h>

#define CONTAINERS_MAX 32
#define VOLUMES_MAX 256
#define DEVICES_MAX 256
#define OWN_SECRETS "hanse-"
#define GRACE_MAX_S 86400 /* as spec.checkpoint.grace: who is asked to stop stops by then */
#define REFUSED(path, why)                                                                         \
    {                                                                                              \
        path, IS_THERE, true, why                                                                  \
    }
#define REFUSED_TRUE(path, why)                                                                    \
    {                                                                                              \
        path, IS_TRUE, true, why                                                                   \
    }
#define WARNED(path, why)                                                                          \
    {                                                                                              \
        path, IS_THERE, false, why                                                                 \
    }

#define ACCOUNT                                                                                    \
    "whose account pods have says their Target (spec.kubernetes.serviceAccountName): leave it out"
#define PLACED                                                                                     \
    "kept, and nothing is placed by it: a pod that it keeps off the chosen node waits there; say " \
    "targets, topology or classes of GPUs in the Workload"
#define CONTEXT_OF_NODE "labels of SELinux are the cluster's to give: leave it out"
#define PROBED "kubelets ask the pod itself, and no other host: leave it out"
#define NAMES "becomes another one at each epoch, by which the ranks of a gang meet: leave it out"
#define PRIORITY                                                                                   \
    "left out: whose turn it is says spec.priorityClassName of the Workload (--priority)"

static const struct manifest_rule pod_rules[] = {
    REFUSED("nodeName", "Hanse chooses the nodes: leave it out, and say targets or topology in the "
                        "Workload"),
    REFUSED_TRUE("hostNetwork", "pods of runs have networks of their own: leave it out"),
    REFUSED_TRUE("hostPID", "pods of runs do not see other processes of their node: leave it out"),
    REFUSED_TRUE("hostIPC", "pods of runs share no memory with their node: leave it out"),
    REFUSED("serviceAccountName", ACCOUNT),
    REFUSED("serviceAccount", ACCOUNT),
    REFUSED_TRUE("automountServiceAccountToken",
                 "pods of runs get no token of their cluster: leave it out"),
    REFUSED("resourceClaims",
            "devices of a ResourceClaim are not counted, so nothing can be placed by them: ask for "
            "a resource such as nvidia.com/gpu"),
    REFUSED("securityContext.sysctls", "settings of the kernel are the cluster's: leave it out"),
    REFUSED("securityContext.windowsOptions", "pods of runs are of Linux: leave it out"),
    REFUSED("securityContext.seLinuxOptions", CONTEXT_OF_NODE),
    REFUSED("hostname", NAMES),
    REFUSED("subdomain", NAMES),
    WARNED("priorityClassName", PRIORITY),
    WARNED("priority", PRIORITY),
    WARNED("preemptionPolicy", PRIORITY),
    WARNED("nodeSelector", PLACED),
    WARNED("affinity", PLACED),
    WARNED("topologySpreadConstraints", PLACED),
};
static const struct manifest_rule container_rules[] = {
    REFUSED_TRUE("securityContext.privileged", "no program of a run is privileged: leave it out"),
    REFUSED("securityContext.procMount", "/proc is as every container has it: leave it out"),
    REFUSED("securityContext.windowsOptions", "pods of runs are of Linux: leave it out"),
    REFUSED("securityContext.seLinuxOptions", CONTEXT_OF_NODE),
    REFUSED("livenessProbe.httpGet.host", PROBED),
    REFUSED("livenessProbe.tcpSocket.host", PROBED),
    REFUSED("readinessProbe.httpGet.host", PROBED),
    REFUSED("readinessProbe.tcpSocket.host", PROBED),
    REFUSED("startupProbe.httpGet.host", PROBED),
    REFUSED("startupProbe.tcpSocket.host", PROBED),
    REFUSED("lifecycle.postStart.httpGet.host", PROBED),
    REFUSED("lifecycle.postStart.tcpSocket.host", PROBED),
    REFUSED("lifecycle.preStop.httpGet.host", PROBED),
    REFUSED("lifecycle.preStop.tcpSocket.host", PROBED),
    REFUSED("restartPolicyRules", "a program that ends is begun again in another epoch alone, with "
                                  "all workers (spec.run.retries): leave it out"),
    REFUSED("resources.claims", "devices of a ResourceClaim are not counted: ask for a resource "
                                "such as nvidia.com/gpu"),
};

/* ---- containers ---- */
/* What containers have anyway, or may have by the baseline of Pod Security. */
static bool capability_ok(const char *s)
{
    static const char *const good[] = {"AUDIT_WRITE",     "CHOWN",   "DAC_OVERRIDE", "FOWNER",
                                       "FSETID",          "KILL",    "MKNOD",        "SETFCAP",
                                       "SETGID",          "SETPCAP", "SETUID",       "SYS_CHROOT",
                                       "NET_BIND_SERVICE"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (strcmp(good[i], s) == 0)
            return true;
    return false;
}

/* Of a pod or a container. */
static void confined_check(struct reading *r, const cJSON *o, const char *at)
{
    static const char *const profiles[] = {"securityContext.seccompProfile.type",
                                           "securityContext.appArmorProfile.type"};
    char field[MANIFEST_FIELD_MAX];

    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
        manifest_field(field, at, profiles[i]);
        if (strcmp(manifest_text(o, profiles[i]), "Unconfined") == 0)
            manifest_refuse(r, field, "no program of a run goes without confinement: leave it out");
    }
}

static void container_check(struct reading *r, const cJSON *c, const char *at)
{
    char field[MANIFEST_FIELD_MAX];
    const cJSON *e;
    int i = 0;

    if (!cJSON_IsObject(c) || !*manifest_text(c, "name") || !*manifest_text(c, "image")) {
        manifest_refuse(r, at, "a container has a name and an image");
        return;
    }
    manifest_rules(r, c, at, container_rules, sizeof container_rules / sizeof *container_rules);
    confined_check(r, c, at);
    cJSON_ArrayForEach(e, manifest_at(c, "securityContext.capabilities.add"))
    {
        if (cJSON_IsString(e) && capability_ok(e->valuestring))
            continue;
        manifest_field(field, at, "securityContext.capabilities.add");
        manifest_refuse(r, field, "\"%.40s\" is more than pods of runs get: leave it out",
                        cJSON_IsString(e) ? e->valuestring : "?");
    }
    cJSON_ArrayForEach(e, manifest_at(c, "ports"))
    {
        char port[MANIFEST_FIELD_MAX];
        manifest_item(port, at, "ports", i++);
        manifest_field(field, port, "hostPort");
        if (manifest_at(e, "hostPort"))
            manifest_refuse(r, field, "ports of nodes are the cluster's: leave it out");
    }
}

/* Whoever begins a program again in its pod does so behind the log's back: only what serves the
 * others for as long as they live may (a sidecar). */
static void restart_check(struct reading *r, const cJSON *c, const char *at, bool ahead)
{
    const char *policy = manifest_text(c, "restartPolicy");
    char field[MANIFEST_FIELD_MAX];

    if (!*policy || strcmp(policy, "Never") == 0 || (ahead && strcmp(policy, "Always") == 0))
        return;
    manifest_field(field, at, "restartPolicy");
    manifest_refuse(r, field,
                    "a program that ends is begun again in another epoch alone, with all workers "
                    "(spec.run.retries): leave it out");
}

/* ---- volumes, and what is secret ---- */
static const char *const volume_types[] = {
    "name",      "emptyDir",    "configMap", "secret", "persistentVolumeClaim",
    "ephemeral", "downwardAPI", "projected", "csi",    "image"};

static void volume_check(struct reading *r, const cJSON *v, const char *at)
{
    char field[MANIFEST_FIELD_MAX];
    const cJSON *e;

    for (e = v && cJSON_IsObject(v) ? v->child : NULL; e; e = e->next) {
        bool good = false;
        for (size_t i = 0; i < sizeof volume_types / sizeof *volume_types; i++)
            good = good || strcmp(volume_types[i], e->string) == 0;
        manifest_field(field, at, e->string);
        if (!good)
            manifest_refuse(r, field,
                            "pods of runs mount nothing of their node or network by themselves: "
                            "say a persistentVolumeClaim");
    }
    cJSON_ArrayForEach(e, manifest_at(v, "projected.sources"))
    {
        manifest_field(field, at, "projected.sources");
        if (manifest_at(e, "serviceAccountToken") || manifest_at(e, "podCertificate"))
            manifest_refuse(r, field, "pods of runs get no token of their cluster: leave it out");
    }
}

/* Secrets of this hub's runs lie in the same namespace; their names are not for others. */
static bool names_secret(const cJSON *o, const char *under)
{
    static const char *const holders[] = {"secret", "secretRef", "secretKeyRef", "imagePullSecrets",
                                          "nodePublishSecretRef"};

    if (o->string && strcmp(o->string, "secretName") == 0)
        return true;
    for (size_t i = 0;
         o->string && strcmp(o->string, "name") == 0 && i < sizeof holders / sizeof *holders; i++)
        if (strcmp(under, holders[i]) == 0)
            return true;
    return false;
}

/* The depth of a document is bounded by its parser (LIMIT_JSON_MAX_DEPTH). */
static void secrets_check(struct reading *r, const cJSON *o, const char *under, const char *at,
                          unsigned depth)
{
    const cJSON *e;

    if (depth > LIMIT_JSON_MAX_DEPTH) {
        manifest_refuse(r, at, "it is nested deeper than %d", LIMIT_JSON_MAX_DEPTH);
        return;
    }
    for (e = o->child; e; e = e->next) {
        if (cJSON_IsString(e) && names_secret(e, under) &&
            strncmp(e->valuestring, OWN_SECRETS, strlen(OWN_SECRETS)) == 0)
            manifest_refuse(r, at,
                            "Secret \"%.80s\": those that begin with " OWN_SECRETS
                            " belong to other runs",
                            e->valuestring);
        secrets_check(r, e, e->string ? e->string : under, at, depth + 1);
    }
}

/* ---- what it asks for ---- */
static const char *const gpus[] = {"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915",
                                   "gpu.intel.com/xe"};

static bool is_device(const char *name)
{
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (strcmp(gpus[i], name) == 0)
            return true;
    return strncmp(name, "nvidia.com/mig-", 15) == 0;
}

/* As a number or a text; what cannot be read is refused. */
static int64_t quantity(struct reading *r, const cJSON *v, const char *at, int64_t scale)
{
    char text[64], field[MANIFEST_FIELD_MAX];
    int64_t n = 0;

    if (!v)
        return 0;
    text[0] = '\0';
    if (cJSON_IsString(v))
        str_copy(text, sizeof text, strlen(v->valuestring) < sizeof text ? v->valuestring : "?");
    else if (cJSON_IsNumber(v))
        (void)snprintf(text, sizeof text, "%.15g", v->valuedouble);
    if (*text && quantity_parse(text, scale, &n, NULL) == 0 && n >= 0)
        return n;
    manifest_field(field, at, v->string ? v->string : "");
    manifest_refuse(r, field, "\"%.40s\" is no quantity such as 4, 500m or 16Gi", text);
    return 0;
}

static const cJSON *member(const cJSON *o, const char *name)
{
    return cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, name) : NULL;
}

static void devices_add(struct reading *r, struct manifest_asks *to, const char *resource,
                        int64_t n, const char *at)
{
    if (n <= 0)
        return;
    if (*to->resource && strcmp(to->resource, resource) != 0)
        manifest_refuse(r, at, "one pod asks for %.60s and for %.60s: a worker gets one kind",
                        to->resource, resource);
    else if (strlen(resource) >= sizeof to->resource || n > DEVICES_MAX - to->devices)
        manifest_refuse(r, at, "a pod asks for at most %d devices", DEVICES_MAX);
    else {
        str_copy(to->resource, sizeof to->resource, resource);
        to->devices += n;
    }
}

/* Of resources that both name the request counts. */
static void list_read(struct reading *r, const cJSON *resources, const char *at,
                      struct manifest_asks *ret)
{
    const cJSON *lists[] = {member(resources, "requests"), member(resources, "limits")};

    *ret = (struct manifest_asks){.cpu_milli = 0};
    for (int i = 0; i < 2; i++) {
        char field[MANIFEST_FIELD_MAX];
        manifest_field(field, at, i ? "limits" : "requests");
        for (const cJSON *e = lists[i] && cJSON_IsObject(lists[i]) ? lists[i]->child : NULL; e;
             e = e->next) {
            bool again = i && member(lists[0], e->string);
            if (again)
                continue;
            if (strcmp(e->string, "cpu") == 0)
                ret->cpu_milli = quantity(r, e, field, 1000);
            else if (strcmp(e->string, "memory") == 0)
                ret->memory_bytes = quantity(r, e, field, 1);
            else if (is_device(e->string))
                devices_add(r, ret, e->string, quantity(r, e, field, 1), field);
            else if (strcmp(e->string, "nvidia.com/gpu.shared") == 0)
                manifest_refuse(r, field,
                                "shares of GPUs are given by fraction: write a Workload with "
                                "resources.gpu.fraction");
            else if (strchr(e->string, '/') || strncmp(e->string, "hugepages-", 10) == 0)
                manifest_warn(r, field,
                              "%.80s is kept, and nothing is placed by it: a pod waits on a node "
                              "that has none",
                              e->string);
        }
    }
}

static int64_t sum(int64_t a, int64_t b)
{
    return a > INT64_MAX / 4 - b ? INT64_MAX / 4 : a + b;
}

static void asks_add(struct reading *r, struct manifest_asks *to, const struct manifest_asks *v,
                     const char *at)
{
    to->cpu_milli = sum(to->cpu_milli, v->cpu_milli);
    to->memory_bytes = sum(to->memory_bytes, v->memory_bytes);
    devices_add(r, to, v->resource, v->devices, at);
}

static void asks_larger(struct reading *r, struct manifest_asks *to, const struct manifest_asks *v,
                        const char *at)
{
    if (v->cpu_milli > to->cpu_milli)
        to->cpu_milli = v->cpu_milli;
    if (v->memory_bytes > to->memory_bytes)
        to->memory_bytes = v->memory_bytes;
    if (v->devices > to->devices)
        devices_add(r, to, v->resource, v->devices - to->devices, at);
}

/* ---- a template ---- */
struct containers {
    struct manifest_asks sidecars, init; /* of those that run ahead: all of one kind; the largest */
    struct manifest_asks all;
};

static void containers_read(struct reading *r, const cJSON *pod, const char *at, const char *name,
                            struct containers *to)
{
    bool ahead = strcmp(name, "initContainers") == 0;
    const cJSON *list = member(pod, name), *c;
    int i = 0;

    if ((list && !cJSON_IsArray(list)) || cJSON_GetArraySize(list) > CONTAINERS_MAX ||
        (!ahead && cJSON_GetArraySize(list) == 0)) {
        char field[MANIFEST_FIELD_MAX];
        manifest_field(field, at, name);
        manifest_refuse(r, field, "it is a list of %d to %d containers", ahead ? 0 : 1,
                        CONTAINERS_MAX);
        return;
    }
    cJSON_ArrayForEach(c, list)
    {
        char item[MANIFEST_FIELD_MAX], field[MANIFEST_FIELD_MAX];
        struct manifest_asks one;

        manifest_item(item, at, name, i++);
        container_check(r, c, item);
        restart_check(r, c, item, ahead);
        manifest_field(field, item, "resources");
        list_read(r, member(c, "resources"), field, &one);
        if (!ahead) {
            asks_add(r, &to->all, &one, field);
        } else if (strcmp(manifest_text(c, "restartPolicy"), "Always") == 0) {
            asks_add(r, &to->sidecars, &one, field);
            asks_larger(r, &to->init, &to->sidecars, field);
        } else {
            asks_add(r, &one, &to->sidecars, field);
            asks_larger(r, &to->init, &one, field);
        }
    }
}

static void asks_read(struct reading *r, const cJSON *pod, const char *at,
                      struct manifest_asks *ret)
{
    const cJSON *own = member(pod, "resources");
    struct containers c = {.all = {.cpu_milli = 0}};
    struct manifest_asks told;
    char field[MANIFEST_FIELD_MAX];

    containers_read(r, pod, at, "initContainers", &c);
    containers_read(r, pod, at, "containers", &c);
    *ret = c.all;
    asks_add(r, ret, &c.sidecars, at);
    asks_larger(r, ret, &c.init, at);
    if (!own)
        return;
    manifest_field(field, at, "resources"); /* of the pod as a whole: it goes before the sum */
    list_read(r, own, field, &told);
    if (told.cpu_milli)
        ret->cpu_milli = told.cpu_milli;
    if (told.memory_bytes)
        ret->memory_bytes = told.memory_bytes;
}

void manifest_pods(struct reading *r, const cJSON *template, const char *at,
                   struct manifest_asks *ret)
{
    const cJSON *pod = member(template, "spec"), *v;
    const char *restart = manifest_text(pod, "restartPolicy");
    char spec[MANIFEST_FIELD_MAX], field[MANIFEST_FIELD_MAX];
    int i = 0;

    *ret = (struct manifest_asks){.cpu_milli = 0};
    manifest_field(spec, at, "spec");
    if (!cJSON_IsObject(pod)) {
        manifest_refuse(r, spec, "a template of pods says what they run");
        return;
    }
    manifest_words(r, member(template, "metadata"), at, false);
    manifest_rules(r, pod, spec, pod_rules, sizeof pod_rules / sizeof *pod_rules);
    confined_check(r, pod, spec);
    (void)manifest_int(r, pod, spec, "terminationGracePeriodSeconds", 0, 0, GRACE_MAX_S);
    if (*restart && strcmp(restart, "Never") != 0) {
        manifest_field(field, spec, "restartPolicy");
        manifest_warn(r, field,
                      "becomes Never: a program that fails is begun again in another "
                      "epoch, with all workers (spec.run.retries)");
    }
    cJSON_ArrayForEach(v, member(pod, "volumes"))
    {
        if (i >= VOLUMES_MAX)
            break;
        manifest_item(field, spec, "volumes", i++);
        volume_check(r, v, field);
    }
    if (i >= VOLUMES_MAX)
        manifest_refuse(r, spec, "more than %d volumes", VOLUMES_MAX);
    secrets_check(r, pod, "", spec, 0);
    asks_read(r, pod, spec, ret);
}
