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
static void runtime_check(struct reading *r, const cJSON *runtime, const char *at)
{
    const cJSON *spec = manifest_at(runtime, "spec");
    char field[MANIFEST_FIELD_MAX];

    manifest_rules(r, spec, at, RULES(runtime_rules));
    manifest_members(r, spec, at, "mlPolicy podGroupPolicy template");
    manifest_field(field, at, "mlPolicy");
    manifest_members(r, manifest_at(spec, "mlPolicy"), field, "numNodes torch mpi");
    manifest_field(field, at, "mlPolicy.torch");
    manifest_members(r, manifest_at(spec, "mlPolicy.torch"), field, "numProcPerNode elasticPolicy");
}

static void job_check(struct reading *r, const cJSON *job)
{
    const char *by = manifest_text(job, "spec.managedBy");
    const cJSON *command = manifest_at(job, "spec.trainer.command");
    const char *first = cJSON_GetStringValue(cJSON_GetArrayItem(command, 0));

    manifest_rules(r, manifest_at(job, "spec"), "spec", RULES(job_rules));
    manifest_members(r, manifest_at(job, "spec"), "spec",
                     "runtimeRef trainer suspend labels annotations managedBy "
                     "podTemplateOverrides runtimePatches initializer");
    manifest_members(r, manifest_at(job, "spec.trainer"), "spec.trainer",
                     "image command args env numNodes resourcesPerNode numProcPerNode");
    if (*by && strcmp(by, CONTROLLER) != 0)
        manifest_refuse(r, "spec.managedBy",
                        "a controller of its own promises nothing here: leave it out");
    if (first && strcmp(first, "tune") == 0)
        manifest_refuse(
            r, "spec.trainer.command",
            "torchtune's arguments its controller makes: submit the JobSet that it makes there");
}

/* ---- torchrun ---- */
/* "auto" counts the devices of a node; without any, its processors as the manifest has them:
 * torchrun would count those of the whole machine. */
static void processes(const cJSON *job, const cJSON *runtime, const cJSON *container, char out[32])
{
    const cJSON *told = manifest_at(job, "spec.trainer.numProcPerNode");
    int64_t devices, n = made_processors(container, &devices);

    if (!told || cJSON_IsNull(told))
        told = manifest_at(runtime, "spec.mlPolicy.torch.numProcPerNode");
    const char *text = cJSON_IsString(told) ? told->valuestring : "auto";
    if (cJSON_IsNumber(told))
        (void)snprintf(out, 32, "%.0f", told->valuedouble);
    else if (strcmp(text, "cpu") == 0 || (strcmp(text, "auto") == 0 && !devices))
        (void)snprintf(out, 32, "%lld", (long long)(n ? n : 1));
    else
        (void)snprintf(out, 32, "%.30s", text);
}

static void torch_over(const cJSON *job, const cJSON *runtime, const char *name, int64_t nodes,
                       cJSON *container)
{
    char text[192];

    (void)snprintf(text, sizeof text, "%lld", (long long)nodes);
    made_env_text(container, "PET_NNODES", text);
    processes(job, runtime, container, text);
    made_env_text(container, "PET_NPROC_PER_NODE", text);
    made_env_field(container, "PET_NODE_RANK", INDEX_FIELD);
    made_env_first(container, "PET_MASTER_ADDR", name);
    made_env_text(container, "PET_MASTER_PORT", PORT);
}

/* ---- the trainer ---- */
static void container_over(const cJSON *trainer, cJSON *container)
{
    const cJSON *e, *r = manifest_at(trainer, "resourcesPerNode");

    made_copy(container, "image", manifest_at(trainer, "image"));
    made_copy(container, "command", manifest_at(trainer, "command"));
    made_copy(container, "args", manifest_at(trainer, "args"));
    if (manifest_at(r, "limits") || manifest_at(r, "requests"))
        made_copy(container, "resources", r);
    cJSON_ArrayForEach(e, manifest_at(trainer, "env"))
        made_env(container, cJSON_Duplicate(e, true));
}

static void replicated_over(struct reading *r, const cJSON *job, const cJSON *runtime,
                            const char *at, cJSON *e, bool *ret_found)
{
    const cJSON *trainer = manifest_at(job, "spec.trainer"),
                *labels = manifest_at(e, "template.metadata.labels");
    const char *step = cJSON_IsObject(labels)
                           ? cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(labels, STEP))
                           : NULL;
    bool trains = step && strcmp(step, "trainer") == 0;
    cJSON *spec = made_at(e, "template.spec"), *container;
    int64_t nodes = manifest_int(r, spec, at, "parallelism", 1, 1, LIMIT_GANG_MAX);

    nodes = manifest_int(r, manifest_at(runtime, "spec.mlPolicy"), at, "numNodes", nodes, 1,
                         LIMIT_GANG_MAX);
    nodes = manifest_int(r, trainer, "spec.trainer", "numNodes", nodes, 1, LIMIT_GANG_MAX);
    if (trains && spec) {
        *ret_found = true;
        made_put(e, "replicas", cJSON_CreateNumber(1));
        made_put(spec, "parallelism", cJSON_CreateNumber((double)nodes));
        made_put(spec, "completions", cJSON_CreateNumber((double)nodes));
    }
    cJSON_ArrayForEach(container, made_at(spec, "template.spec.containers"))
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
    const cJSON *template = manifest_at(runtime, "spec.template"),
                *words = manifest_at(template, "metadata");
    cJSON *o = made_jobset(job), *meta = made_object(o, "metadata"), *e;
    char field[MANIFEST_FIELD_MAX];
    bool found = false;

    made_words(meta, "labels", manifest_at(words, "labels"));
    made_words(meta, "annotations", manifest_at(words, "annotations"));
    made_words(meta, "labels", manifest_at(job, "spec.labels"));
    made_words(meta, "annotations", manifest_at(job, "spec.annotations"));
    if (cJSON_IsObject(manifest_at(template, "spec")))
        made_copy(o, "spec", manifest_at(template, "spec"));
    made_copy(made_object(o, "spec"), "suspend", manifest_at(job, "spec.suspend"));
    cJSON_ArrayForEach(e, made_at(o, "spec.replicatedJobs"))
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
    runtime_check(&r, runtime, at);
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
