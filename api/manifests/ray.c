/* The JobSet that does what a RayJob asks for: its head and workers as parts that all begin
 * together, the entrypoint submitted on the head once all workers have joined. What KubeRay's
 * operator puts into the pods of a RayCluster, and in which order it begins them, the commands here
 * do.
 * https://docs.ray.io/en/latest/cluster/kubernetes, `ray start --help`, `ray job submit --help` */
#include "api/manifests/manifests_internal.h"

#include <stdio.h>
#include <string.h>

#define HEAD "head"
#define GCS_PORT "6379"
#define DASHBOARD "http://127.0.0.1:8265"
#define SCRIPT_MAX ((size_t)60000)
#define ADDRESS "FQ_RAY_IP" /* as KubeRay calls it */
#define CLUSTER "spec.rayClusterSpec"
#define RULES(rules) rules, sizeof rules / sizeof *rules

bool manifest_is_ray(const cJSON *doc)
{
    return strncmp(manifest_text(doc, "apiVersion"), "ray.io/", 7) == 0 &&
           strcmp(manifest_text(doc, "kind"), "RayJob") == 0;
}

/* ---- what is not kept ---- */
#define NO_CLUSTER "left out: no RayCluster is made, and no Service"
static const struct manifest_rule job_rules[] = {
    {"clusterSelector", IS_THERE, true, "a run brings its own cluster: say rayClusterSpec"},
    {"activeDeadlineSeconds", IS_THERE, true,
     "who fails it by then is not the kubelet: say activeDeadlineSeconds in the templates of pods"},
    {"managedBy", IS_THERE, true, "a controller of its own promises nothing here: leave it out"},
    {"ttlSecondsAfterFinished", IS_THERE, false,
     "left out: its pods go once the log has their end"},
    {"jobId", IS_THERE, false, "left out: ray gives it a number of its own in each epoch"},
    {"deletionStrategy", IS_THERE, false, "left out: its pods go once the log has their end"},
    {"submitterPodTemplate", IS_THERE, false,
     "left out: the entrypoint is submitted on the head, once all workers have joined"},
    {"submitterConfig", IS_THERE, false, "left out: the entrypoint is submitted on the head, once"},
};
static const struct manifest_rule cluster_rules[] = {
    {"enableInTreeAutoscaling", IS_TRUE, true,
     "a run has the workers that it began with: say replicas"},
    {"gcsFaultToleranceOptions", IS_THERE, true, "an epoch ends as a whole: leave it out"},
    {"autoscalerOptions", IS_THERE, false, "left out: a run has the workers that it began with"},
    {"headServiceAnnotations", IS_THERE, false, NO_CLUSTER},
    {"headGroupSpec.serviceType", IS_THERE, false, NO_CLUSTER},
    {"headGroupSpec.headService", IS_THERE, false, NO_CLUSTER},
    {"headGroupSpec.enableIngress", IS_TRUE, false, NO_CLUSTER},
};
static const struct manifest_rule worker_rules[] = {
    {"suspend", IS_TRUE, true, "all workers of a run begin together: leave the group out"},
    {"scaleStrategy", IS_THERE, false, "left out: a run has the workers that it began with"},
    {"idleTimeoutSeconds", IS_THERE, false, "left out: a run has the workers that it began with"},
};

/* ---- commands ---- */
/* In the quotes of a shell. */
static void quoted(struct buf *b, const char *text)
{
    buf_char(b, '\'');
    for (; *text; text++)
        if (*text == '\'')
            buf_str(b, "'\\''");
        else
            buf_char(b, *text);
    buf_char(b, '\'');
}

static bool named(const cJSON *params, const char *key)
{
    return cJSON_IsObject(params) && cJSON_GetObjectItemCaseSensitive(params, key);
}

/* As the operator passes them on: values as they are, for the shell; words that are true alone. */
static void params_print(struct reading *r, const cJSON *params, const char *at, struct buf *b)
{
    char field[MANIFEST_FIELD_MAX];

    for (const cJSON *e = cJSON_IsObject(params) ? params->child : NULL; e; e = e->next) {
        const char *v = cJSON_IsString(e) ? e->valuestring : NULL;
        bool valued =
            strcmp(e->string, "log-color") == 0 || strcmp(e->string, "include-dashboard") == 0;
        manifest_field(field, at, e->string);
        if (!v || strspn(e->string, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(e->string))
            manifest_refuse(r, field, "expected a word of ray start and a text");
        else if (strcmp(e->string, "block") == 0 || strcmp(e->string, "head") == 0 ||
                 (!valued && strcmp(v, "false") == 0))
            continue;
        else if (!valued && strcmp(v, "true") == 0)
            buf_printf(b, " --%s", e->string);
        else
            buf_printf(b, " --%s=%s", e->string, v);
    }
}

static void start_print(struct reading *r, const cJSON *group, const char *at,
                        const cJSON *container, struct buf *b)
{
    const cJSON *params = manifest_at(group, "rayStartParams");
    char field[MANIFEST_FIELD_MAX];
    int64_t devices, n = made_processors(container, &devices);

    if (n && !named(params, "num-cpus"))
        buf_printf(b, " --num-cpus=%lld", (long long)n);
    if (devices && !named(params, "num-gpus"))
        buf_printf(b, " --num-gpus=%lld", (long long)devices);
    manifest_field(field, at, "rayStartParams");
    params_print(r, params, field, b);
}

static void runtime_env_print(struct reading *r, const cJSON *job, struct buf *b)
{
    const char *yaml = manifest_text(job, "spec.runtimeEnvYAML");
    struct yaml_doc *docs;
    struct err e;
    size_t n;
    char *json;

    if (!*yaml)
        return;
    if (yaml_parse_all(yaml, strlen(yaml), "spec.runtimeEnvYAML", &docs, &n, &e) < 0) {
        manifest_refuse(r, "spec.runtimeEnvYAML", "%.300s", e.text);
        return;
    }
    json = n == 1 ? cJSON_PrintUnformatted(docs[0].json) : NULL;
    if (!json)
        manifest_refuse(r, "spec.runtimeEnvYAML", "expected one document");
    buf_str(b, " --runtime-env-json=");
    quoted(b, json ? json : "");
    cJSON_free(json);
    yaml_docs_free(docs, n);
}

static void submit_print(struct reading *r, const cJSON *job, struct buf *b)
{
    static const struct {
        const char *field, *option;
    } numbers[] = {{"spec.entrypointNumCpus", "--entrypoint-num-cpus"},
                   {"spec.entrypointNumGpus", "--entrypoint-num-gpus"}};
    const cJSON *metadata = manifest_at(job, "spec.metadata");
    const char *resources = manifest_text(job, "spec.entrypointResources");

    runtime_env_print(r, job, b);
    if (cJSON_IsObject(metadata)) {
        char *json = cJSON_PrintUnformatted(metadata);
        buf_str(b, " --metadata-json=");
        quoted(b, json ? json : "");
        cJSON_free(json);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const cJSON *v = manifest_at(job, numbers[i].field);
        if (cJSON_IsNumber(v) && v->valuedouble > 0)
            buf_printf(b, " %s=%g", numbers[i].option, v->valuedouble);
    }
    if (*resources) {
        buf_str(b, " --entrypoint-resources=");
        quoted(b, resources);
    }
    buf_printf(b, " -- %s", manifest_text(job, "spec.entrypoint"));
}

/* Its end is that of the run: 0 where the entrypoint has succeeded, else 1. */
static void head_print(struct reading *r, const cJSON *job, const cJSON *group,
                       const cJSON *container, int64_t workers, struct buf *b)
{
    bool dashboard = named(manifest_at(group, "rayStartParams"), "dashboard-host");

    buf_printf(b, "ulimit -n 65536; ray start --head --port=" GCS_PORT "%s",
               dashboard ? "" : " --dashboard-host=0.0.0.0");
    start_print(r, group, CLUSTER ".headGroupSpec", container, b);
    buf_printf(
        b,
        " || exit\n"
        "until python -c 'import ray, sys; ray.init(address=\"auto\", log_to_driver=False); "
        "sys.exit(sum(n[\"Alive\"] for n in ray.nodes()) <= %lld)' >/dev/null 2>&1; do sleep "
        "1; done\n"
        "until ray job list --address=" DASHBOARD " >/dev/null 2>&1; do sleep 1; done\n"
        "exec ray job submit --address=" DASHBOARD,
        (long long)workers);
    submit_print(r, job, b);
}

static void worker_print(struct reading *r, const cJSON *group, const char *at,
                         const cJSON *container, struct buf *b)
{
    buf_str(b, "ulimit -n 65536; until ray health-check --address=$" ADDRESS ":" GCS_PORT
               " >/dev/null 2>&1; do sleep 1; done\n"
               "exec ray start --block --address=$" ADDRESS ":" GCS_PORT);
    start_print(r, group, at, container, b);
}

/* ---- parts ---- */
/* The first container is ray's; others stay as they are. NULL: there is none. */
static cJSON *container_of(struct reading *r, cJSON *template, const char *at)
{
    cJSON *list = made_at(template, "spec.containers");
    cJSON *first = cJSON_IsArray(list) ? list->child : NULL;
    char field[MANIFEST_FIELD_MAX];

    manifest_field(field, at, "template.spec.containers[0]");
    if (!first)
        manifest_refuse(r, field, "is missing");
    else if (manifest_at(first, "command") || manifest_at(first, "args"))
        manifest_refuse(r, field, "it begins ray: leave command and args out");
    return first;
}

static void command_put(struct reading *r, cJSON *container, const char *at, struct buf *b)
{
    static const char *const words[] = {"/bin/bash", "-c"};
    cJSON *list = cJSON_CreateArray();

    for (size_t i = 0; i < 2; i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(words[i]));
    if (b->failed)
        manifest_refuse(r, at, "what begins ray would be longer than %zu bytes", SCRIPT_MAX);
    cJSON_AddItemToArray(list, cJSON_CreateString(b->n && !b->failed ? b->p : ""));
    made_put(container, "command", list);
    made_env_first(container, ADDRESS, HEAD);
    made_env_text(container, "RAY_PORT", GCS_PORT);
}

/* pods of that template, under that name. Returns the template, which the caller completes. */
static cJSON *part_add(cJSON *jobs, const char *name, int64_t pods, const cJSON *template)
{
    cJSON *e = cJSON_CreateObject(), *spec;

    cJSON_AddItemToArray(jobs, e);
    cJSON_AddStringToObject(e, "name", name);
    cJSON_AddNumberToObject(e, "replicas", 1);
    spec = made_object(made_object(e, "template"), "spec");
    cJSON_AddNumberToObject(spec, "parallelism", (double)pods);
    cJSON_AddNumberToObject(spec, "completions", (double)pods);
    cJSON_AddNumberToObject(spec, "backoffLimit", 0);
    made_copy(spec, "template", template);
    made_put(made_object(made_object(spec, "template"), "spec"), "restartPolicy",
             cJSON_CreateString("Never"));
    return made_object(spec, "template");
}

static int64_t worker_add(struct reading *r, const cJSON *group, int i, cJSON *jobs)
{
    char at[MANIFEST_FIELD_MAX], field[MANIFEST_FIELD_MAX];
    const char *name = manifest_text(group, "groupName");
    AUTO_BUF b = {0};

    manifest_item(at, CLUSTER, "workerGroupSpecs", i);
    manifest_rules(r, group, at, RULES(worker_rules));
    manifest_members(r, group, at,
                     "groupName replicas minReplicas maxReplicas numOfHosts rayStartParams "
                     "template suspend scaleStrategy idleTimeoutSeconds");
    manifest_field(field, at, "groupName");
    if (!*name || strlen(name) > 40 || strcmp(name, HEAD) == 0)
        manifest_refuse(r, field, "expected a name of at most 40 characters, and not " HEAD);
    int64_t n = manifest_int(r, group, at, "replicas", 1, 0, LIMIT_GANG_MAX);
    int64_t hosts = manifest_int(r, group, at, "numOfHosts", 1, 1, LIMIT_GANG_MAX);
    int64_t most = manifest_int(r, group, at, "maxReplicas", n, 0, INT32_MAX);
    manifest_field(field, at, "maxReplicas");
    if (most > n)
        manifest_warn(r, field, "left out: it begins, and ends, with %lld", (long long)n);
    n = n * hosts < LIMIT_GANG_MAX ? n * hosts : LIMIT_GANG_MAX;
    if (!n)
        return 0;
    cJSON *template = part_add(jobs, name, n, manifest_at(group, "template"));
    cJSON *container = container_of(r, template, at);
    buf_init(&b, SCRIPT_MAX);
    if (container) {
        worker_print(r, group, at, container, &b);
        command_put(r, container, at, &b);
    }
    return n;
}

static void parts_make(struct reading *r, const cJSON *job, cJSON *spec)
{
    const cJSON *head = manifest_at(job, CLUSTER ".headGroupSpec"), *e;
    cJSON *jobs = cJSON_AddArrayToObject(spec, "replicatedJobs"), *names;
    int64_t workers = 0;
    int i = 0;
    AUTO_BUF b = {0};

    cJSON *template = part_add(jobs, HEAD, 1, manifest_at(head, "template"));
    cJSON *container = container_of(r, template, CLUSTER ".headGroupSpec");
    cJSON_ArrayForEach(e, manifest_at(job, CLUSTER ".workerGroupSpecs")) workers +=
        worker_add(r, e, i++, jobs);
    buf_init(&b, SCRIPT_MAX);
    if (container) {
        head_print(r, job, head, container, workers, &b);
        command_put(r, container, CLUSTER ".headGroupSpec", &b);
    }
    made_put(made_object(spec, "successPolicy"), "operator", cJSON_CreateString("All"));
    made_put(made_object(spec, "successPolicy"), "targetReplicatedJobs",
             names = cJSON_CreateArray());
    cJSON_AddItemToArray(names, cJSON_CreateString(HEAD));
}

int manifest_ray(const cJSON *job, manifest_note note, void *arg, cJSON **ret, struct err *err)
{
    struct reading r = {.note = note, .arg = arg};
    const char *mode = manifest_text(job, "spec.submissionMode");
    cJSON *o = made_jobset(job), *spec = made_object(o, "spec");

    manifest_rules(&r, manifest_at(job, "spec"), "spec", RULES(job_rules));
    manifest_rules(&r, manifest_at(job, CLUSTER), CLUSTER, RULES(cluster_rules));
    manifest_members(&r, manifest_at(job, "spec"), "spec",
                     "entrypoint runtimeEnvYAML metadata entrypointNumCpus entrypointNumGpus "
                     "entrypointResources rayClusterSpec clusterSelector submissionMode jobId "
                     "backoffLimit suspend activeDeadlineSeconds managedBy deletionStrategy "
                     "submitterPodTemplate submitterConfig ttlSecondsAfterFinished "
                     "shutdownAfterJobFinishes");
    manifest_members(&r, manifest_at(job, CLUSTER), CLUSTER,
                     "rayVersion headGroupSpec workerGroupSpecs enableInTreeAutoscaling "
                     "gcsFaultToleranceOptions autoscalerOptions headServiceAnnotations");
    manifest_members(&r, manifest_at(job, CLUSTER ".headGroupSpec"), CLUSTER ".headGroupSpec",
                     "rayStartParams template serviceType headService enableIngress");
    if (strcmp(mode, "InteractiveMode") == 0)
        manifest_refuse(&r, "spec.submissionMode",
                        "somebody else would submit to it, at some time: say entrypoint");
    if (!*manifest_text(job, "spec.entrypoint"))
        manifest_refuse(&r, "spec.entrypoint", "is missing");
    if (!manifest_at(job, CLUSTER ".headGroupSpec"))
        manifest_refuse(&r, CLUSTER ".headGroupSpec", "is missing");
    parts_make(&r, job, spec);
    int64_t again = manifest_int(&r, manifest_at(job, "spec"), "spec", "backoffLimit", 0, 0,
                                 MANIFEST_RETRIES_MAX);
    if (again)
        made_put(made_object(spec, "failurePolicy"), "maxRestarts",
                 cJSON_CreateNumber((double)again));
    made_copy(spec, "suspend", manifest_at(job, "spec.suspend"));
    if (!r.first.code) {
        *ret = o;
        return 0;
    }
    cJSON_Delete(o);
    if (err)
        *err = r.first;
    return r.first.code;
}
