/* The JobSet that a TrainJob makes with its runtime, as the controller of Kubeflow's Trainer makes
 * it: the runtime's template, with what the TrainJob says of the trainer put in, and what torchrun
 * reads from the environment. https://www.kubeflow.org/docs/components/trainer */
#include "api/manifests/manifests_internal.h"

#include <stdio.h>
#include <string.h>

#define GROUP "trainer.kubeflow.org/"
#define STEP GROUP "trainjob-ancestor-step"
#define NODE "node"
#define CONTROLLER GROUP "trainjob-controller"
#define PORT "29400"
/* An epoch's object gets its name when it is ordered: its pods are asked for it. */
#define SET "HANSE_JOBSET"
#define SET_FIELD "metadata.labels['jobset.sigs.k8s.io/jobset-name']"
#define INDEX_FIELD "metadata.annotations['batch.kubernetes.io/job-completion-index']"
#define RULES(rules) rules, sizeof rules / sizeof *rules

bool manifest_is_train(const cJSON *doc)
{
    return strncmp(manifest_text(doc, "apiVersion"), GROUP, strlen(GROUP)) == 0 &&
           strcmp(manifest_text(doc, "kind"), "TrainJob") == 0;
}

static const char *runtime_kind(const cJSON *job)
{
    const char *kind = manifest_text(job, "spec.runtimeRef.kind");

    return *kind ? kind : "ClusterTrainingRuntime";
}

bool manifest_is_runtime(const cJSON *job, const cJSON *doc)
{
    return strncmp(manifest_text(doc, "apiVersion"), GROUP, strlen(GROUP)) == 0 &&
           strcmp(manifest_text(doc, "kind"), runtime_kind(job)) == 0 &&
           strcmp(manifest_text(doc, "metadata.name"),
                  manifest_text(job, "spec.runtimeRef.name")) == 0;
}

/* ---- what is not kept ---- */
static const struct manifest_rule job_rules[] = {
    {"podTemplateOverrides", IS_THERE, true,
     "how it changes the runtime's templates only their controller knows: write it into the "
     "runtime"},
    {"runtimePatches", IS_THERE, true,
     "how it changes the runtime's templates only their controller knows: write it into the "
     "runtime"},
    {"initializer", IS_THERE, true,
     "it would begin ahead of the trainer, and all workers of a run begin together: submit it as a "
     "Workload of its own, or have the trainer fetch what it needs"},
};
static const struct manifest_rule runtime_rules[] = {
    {"mlPolicy.mpi", IS_THERE, true,
     "the files of its launcher its controller makes: submit an MPIJob, or the JobSet that it "
     "makes"},
    {"mlPolicy.torch.elasticPolicy", IS_THERE, true,
     "a run has the workers that it began with: leave it out"},
    {"podGroupPolicy", IS_THERE, false,
     "left out: a run begins whole, and its Target says queue and scheduler"},
};

/* Policies of other frameworks put into the pods what this reader does not know. */
static void policy_check(struct reading *r, const cJSON *runtime, const char *of_runtime)
{
    static const char *const known[] = {"numNodes", "torch", "mpi"};
    const cJSON *policy = manifest_at(runtime, "spec.mlPolicy"), *e;
    char field[MANIFEST_FIELD_MAX], at[MANIFEST_FIELD_MAX];

    manifest_field(at, of_runtime, "mlPolicy");
    for (e = cJSON_IsObject(policy) ? policy->child : NULL; e; e = e->next) {
        bool is = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is = is || strcmp(e->string, known[i]) == 0;
        manifest_field(field, at, e->string);
        if (!is && !cJSON_IsNull(e))
            manifest_refuse(r, field,
                            "what its controller puts into pods for it is not known here: submit "
                            "the JobSet that it makes there");
    }
}

static void job_check(struct reading *r, const cJSON *job)
{
    const char *by = manifest_text(job, "spec.managedBy");
    const cJSON *command = manifest_at(job, "spec.trainer.command");
    const cJSON *first = cJSON_IsArray(command) ? command->child : NULL;

    manifest_rules(r, manifest_at(job, "spec"), "spec", RULES(job_rules));
    if (*by && strcmp(by, CONTROLLER) != 0)
        manifest_refuse(r, "spec.managedBy",
                        "a controller of its own promises nothing here: leave it out");
    if (cJSON_IsString(first) && strcmp(first->valuestring, "tune") == 0)
        manifest_refuse(
            r, "spec.trainer.command",
            "torchtune's arguments its controller makes: submit the JobSet that it makes there");
}

/* ---- trees ---- */
static cJSON *object_of(cJSON *o, const char *key)
{
    cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

    return v ? v : cJSON_AddObjectToObject(o, key);
}

static void put(cJSON *o, const char *key, cJSON *v)
{
    cJSON_DeleteItemFromObjectCaseSensitive(o, key);
    cJSON_AddItemToObject(o, key, v);
}

static void copy_over(cJSON *to, const char *key, const cJSON *v)
{
    if (v && !cJSON_IsNull(v))
        put(to, key, cJSON_Duplicate(v, true));
}

static void words_over(cJSON *meta, const char *key, const cJSON *from)
{
    for (const cJSON *e = cJSON_IsObject(from) ? from->child : NULL; e; e = e->next)
        copy_over(object_of(meta, key), e->string, e);
}

/* In the place of one of that name. */
static void env_over(cJSON *container, cJSON *e)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(container, "env"), *was;
    int i = 0;

    if (!list)
        list = cJSON_AddArrayToObject(container, "env");
    cJSON_ArrayForEach(was, list)
    {
        if (strcmp(manifest_text(was, "name"), manifest_text(e, "name")) == 0)
            break;
        i++;
    }
    if (was)
        (void)cJSON_ReplaceItemInArray(list, i, e);
    else
        cJSON_AddItemToArray(list, e);
}

static void env_text(cJSON *container, const char *name, const char *value)
{
    cJSON *e = cJSON_CreateObject();

    cJSON_AddStringToObject(e, "name", name);
    cJSON_AddStringToObject(e, "value", value);
    env_over(container, e);
}

static void env_field(cJSON *container, const char *name, const char *path)
{
    cJSON *e = cJSON_CreateObject();

    cJSON_AddStringToObject(e, "name", name);
    cJSON_AddStringToObject(object_of(object_of(e, "valueFrom"), "fieldRef"), "fieldPath", path);
    env_over(container, e);
}

/* ---- torchrun ---- */
/* Whether it names a device, and the processors that it names. */
static bool devices_in(const cJSON *list, const cJSON **cpu)
{
    bool devices = false;

    for (const cJSON *e = cJSON_IsObject(list) ? list->child : NULL; e; e = e->next) {
        if (strcmp(e->string, "cpu") == 0)
            *cpu = *cpu ? *cpu : e;
        else
            devices = devices || strchr(e->string, '/');
    }
    return devices;
}

/* "auto" counts the devices of a node; without any, its processors as the manifest has them:
 * torchrun would count those of the whole machine. */
static void processes(const cJSON *job, const cJSON *runtime, const cJSON *container, char out[32])
{
    const cJSON *told = manifest_at(job, "spec.trainer.numProcPerNode"), *cpu = NULL;
    int64_t milli;

    if (!told || cJSON_IsNull(told))
        told = manifest_at(runtime, "spec.mlPolicy.torch.numProcPerNode");
    const char *text = cJSON_IsString(told) ? told->valuestring : "auto";
    bool devices = devices_in(manifest_at(container, "resources.limits"), &cpu);
    devices |= devices_in(manifest_at(container, "resources.requests"), &cpu);
    (void)snprintf(out, 32, "%.30s", text);
    if (cJSON_IsNumber(told))
        (void)snprintf(out, 32, "%.0f", told->valuedouble);
    else if ((strcmp(text, "auto") != 0 || devices) && strcmp(text, "cpu") != 0)
        return;
    else if (cJSON_IsNumber(cpu))
        (void)snprintf(out, 32, "%.0f", cpu->valuedouble < 1 ? 1 : cpu->valuedouble);
    else if (cJSON_IsString(cpu) && quantity_parse(cpu->valuestring, 1000, &milli, NULL) == 0)
        (void)snprintf(out, 32, "%lld", (long long)(milli < 1000 ? 1 : milli / 1000));
    else
        (void)snprintf(out, 32, "1");
}

static void torch_over(const cJSON *job, const cJSON *runtime, const char *name, int64_t nodes,
                       cJSON *container)
{
    char text[192];

    (void)snprintf(text, sizeof text, "%lld", (long long)nodes);
    env_text(container, "PET_NNODES", text);
    processes(job, runtime, container, text);
    env_text(container, "PET_NPROC_PER_NODE", text);
    env_field(container, "PET_NODE_RANK", INDEX_FIELD);
    env_field(container, SET, SET_FIELD);
    (void)snprintf(text, sizeof text, "$(" SET ")-%.63s-0-0.$(" SET ")", name);
    env_text(container, "PET_MASTER_ADDR", text);
    env_text(container, "PET_MASTER_PORT", PORT);
}

/* ---- the trainer ---- */
static void container_over(const cJSON *trainer, cJSON *container)
{
    const cJSON *e, *r = manifest_at(trainer, "resourcesPerNode");

    copy_over(container, "image", manifest_at(trainer, "image"));
    copy_over(container, "command", manifest_at(trainer, "command"));
    copy_over(container, "args", manifest_at(trainer, "args"));
    if (manifest_at(r, "limits") || manifest_at(r, "requests"))
        copy_over(container, "resources", r);
    cJSON_ArrayForEach(e, manifest_at(trainer, "env"))
        env_over(container, cJSON_Duplicate(e, true));
}

/* manifest_at of what may be changed. */
static cJSON *member(cJSON *o, const char *path)
{
    while (o && *path) {
        size_t n = strcspn(path, ".");
        cJSON *m = cJSON_IsObject(o) ? o->child : NULL;

        while (m && (strncmp(m->string, path, n) != 0 || m->string[n]))
            m = m->next;
        o = m;
        path += n + (path[n] == '.');
    }
    return o;
}

static void replicated_over(struct reading *r, const cJSON *job, const cJSON *runtime,
                            const char *at, cJSON *e, bool *ret_found)
{
    const cJSON *trainer = manifest_at(job, "spec.trainer"),
                *labels = manifest_at(e, "template.metadata.labels");
    const cJSON *step =
        cJSON_IsObject(labels) ? cJSON_GetObjectItemCaseSensitive(labels, STEP) : NULL;
    bool trains = cJSON_IsString(step) && strcmp(step->valuestring, "trainer") == 0;
    cJSON *spec = member(e, "template.spec"), *container;
    int64_t nodes = manifest_int(r, spec, at, "parallelism", 1, 1, LIMIT_GANG_MAX);

    nodes = manifest_int(r, manifest_at(runtime, "spec.mlPolicy"), at, "numNodes", nodes, 1,
                         LIMIT_GANG_MAX);
    nodes = manifest_int(r, trainer, "spec.trainer", "numNodes", nodes, 1, LIMIT_GANG_MAX);
    if (trains && spec) {
        *ret_found = true;
        put(e, "replicas", cJSON_CreateNumber(1));
        put(spec, "parallelism", cJSON_CreateNumber((double)nodes));
        put(spec, "completions", cJSON_CreateNumber((double)nodes));
    }
    cJSON_ArrayForEach(container, member(spec, "template.spec.containers"))
    {
        if (strcmp(manifest_text(container, "name"), NODE) != 0)
            continue;
        container_over(trainer, container);
        if (trains && manifest_at(runtime, "spec.mlPolicy.torch"))
            torch_over(job, runtime, manifest_text(e, "name"), nodes, container);
    }
}

static cJSON *jobset_make(struct reading *r, const cJSON *job, const cJSON *runtime, const char *at)
{
    static const char *const texts[] = {"name", "generateName", "namespace"};
    const cJSON *template = manifest_at(runtime, "spec.template");
    cJSON *o = cJSON_CreateObject(), *meta, *e;
    char field[MANIFEST_FIELD_MAX];
    bool found = false;

    cJSON_AddStringToObject(o, "apiVersion", "jobset.x-k8s.io/v1alpha2");
    cJSON_AddStringToObject(o, "kind", "JobSet");
    meta = cJSON_AddObjectToObject(o, "metadata");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        copy_over(meta, texts[i], manifest_at(manifest_at(job, "metadata"), texts[i]));
    for (int i = 0; i < 2; i++) {
        const char *words = i ? "annotations" : "labels";
        words_over(meta, words, manifest_at(manifest_at(template, "metadata"), words));
        words_over(meta, words, manifest_at(manifest_at(job, "metadata"), words));
        words_over(meta, words, manifest_at(manifest_at(job, "spec"), words));
    }
    if (cJSON_IsObject(manifest_at(template, "spec")))
        copy_over(o, "spec", manifest_at(template, "spec"));
    copy_over(object_of(o, "spec"), "suspend", manifest_at(job, "spec.suspend"));
    cJSON_ArrayForEach(e, member(o, "spec.replicatedJobs"))
        replicated_over(r, job, runtime, at, e, &found);
    manifest_field(field, at, "template.spec.replicatedJobs");
    if (!found)
        manifest_refuse(r, field, "none of the runtime's is its trainer (label " STEP ": trainer)");
    return o;
}

int manifest_train(const cJSON *job, const cJSON *runtime, manifest_note note, void *arg,
                   cJSON **ret, struct err *err)
{
    struct reading r = {.note = note, .arg = arg};
    char at[MANIFEST_FIELD_MAX];

    if (!runtime)
        return err_field(
            err, E_NOTIMPL, "spec.runtimeRef",
            "which pods it makes says %.60s %.100s: put that into the same file (kubectl "
            "get %s %.100s -o yaml)",
            runtime_kind(job), manifest_text(job, "spec.runtimeRef.name"),
            strcmp(runtime_kind(job), "TrainingRuntime") == 0 ? "trainingruntime"
                                                              : "clustertrainingruntime",
            manifest_text(job, "spec.runtimeRef.name"));
    job_check(&r, job);
    manifest_field(at, runtime_kind(job), "spec"); /* what it says is of another document */
    manifest_rules(&r, manifest_at(runtime, "spec"), at, RULES(runtime_rules));
    policy_check(&r, runtime, at);
    cJSON *o = jobset_make(&r, job, runtime, at);
    if (!r.first.code) {
        *ret = o;
        return 0;
    }
    cJSON_Delete(o);
    if (err)
        *err = r.first;
    return r.first.code;
}
