/* A TrainJob and its runtime: the JobSet that Kubeflow's controller would make of them, and what of
 * them cannot be kept. */
#include "api/manifests/manifests.h"
#include "tests/support/unit.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define JOB(more)                                                                                  \
    "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: t, namespace: "  \
    "team, labels: {a: b, hanse.dev/queue: vision}}, spec: {runtimeRef: {name: torch}, " more "}}"
#define STEP "metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, "
#define RUNTIME(policy, step, more)                                                                \
    "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: ClusterTrainingRuntime, metadata: {name: "  \
    "torch}, spec: {mlPolicy: " policy ", template: {metadata: {annotations: {x: y}}, spec: {"     \
    "replicatedJobs: [{name: node, template: {" step "spec: {template: {spec: {containers: [{"     \
    "name: node, image: old, env: [{name: A, value: '1'}, {name: B, value: '2'}]}, {name: log, "   \
    "image: other}]}}}}}]}}" more "}}"
#define TORCH RUNTIME("{numNodes: 3, torch: {numProcPerNode: auto}}", STEP, "")
#define TRAINER                                                                                    \
    "trainer: {image: new, command: [torchrun, t.py], numNodes: 4, env: [{name: B, value: '3'}], " \
    "resourcesPerNode: {limits: {cpu: 4, nvidia.com/gpu: 2}}}"

static cJSON *doc_of(const char *yaml)
{
    struct yaml_doc *docs;
    size_t n;
    struct err e;
    cJSON *j;

    if (yaml_parse_all(yaml, strlen(yaml), "t", &docs, &n, &e))
        fail_msg("%s", e.text);
    assert_int_equal(n, 1);
    j = cJSON_Duplicate(docs[0].json, true);
    yaml_docs_free(docs, n);
    return j;
}

static int jobset(const char *job, const char *runtime, cJSON **ret, struct err *e)
{
    cJSON *j = doc_of(job), *r = runtime ? doc_of(runtime) : NULL;

    assert_true(manifest_is_train(j));
    if (r)
        assert_true(manifest_is_runtime(j, r));
    *ret = NULL;
    int rc = manifest_train(j, r, NULL, NULL, ret, e);
    assert_int_equal(rc != 0, *ret == NULL);
    cJSON_Delete(j);
    cJSON_Delete(r);
    return rc;
}

static const cJSON *at(const cJSON *o, const char *const *path)
{
    for (; *path; path++)
        o = **path >= '0' && **path <= '9' ? cJSON_GetArrayItem(o, **path - '0')
                                           : cJSON_GetObjectItemCaseSensitive(o, *path);
    return o;
}
#define AT(o, ...) at(o, (const char *const[]){__VA_ARGS__, NULL})
#define TEXT(o, ...) cJSON_GetStringValue(AT(o, __VA_ARGS__))
#define CONTAINER                                                                                  \
    "spec", "replicatedJobs", "0", "template", "spec", "template", "spec", "containers", "0"

/* Of its trainer's container; "" where the value comes from a field. */
static const char *env_of(const cJSON *set, const char *name)
{
    const cJSON *e, *value;

    cJSON_ArrayForEach(e, AT(set, CONTAINER, "env"))
    {
        if (strcmp(TEXT(e, "name"), name) != 0)
            continue;
        value = AT(e, "value");
        return value ? cJSON_GetStringValue(value) : "";
    }
    return NULL;
}

static void the_runtimes_template_with_its_trainer(void **state)
{
    cJSON *set;
    struct err e;
    struct manifest m;

    (void)state;
    assert_int_equal(jobset(JOB(TRAINER ", suspend: true, labels: {c: d}"), TORCH, &set, &e), 0);
    assert_string_equal(TEXT(set, "kind"), "JobSet");
    assert_string_equal(TEXT(set, "metadata", "name"), "t");
    assert_string_equal(TEXT(set, "metadata", "namespace"), "team");
    assert_string_equal(TEXT(set, "metadata", "labels", "a"), "b");
    assert_string_equal(TEXT(set, "metadata", "labels", "c"), "d");
    assert_string_equal(TEXT(set, "metadata", "annotations", "x"), "y");
    assert_string_equal(TEXT(set, CONTAINER, "image"), "new");
    assert_string_equal(TEXT(set, CONTAINER, "command", "1"), "t.py");
    assert_string_equal(env_of(set, "A"), "1");
    assert_string_equal(env_of(set, "B"), "3");
    assert_string_equal(env_of(set, "PET_NNODES"), "4");
    assert_string_equal(env_of(set, "PET_NPROC_PER_NODE"), "auto");
    assert_string_equal(env_of(set, "PET_NODE_RANK"), "");
    assert_string_equal(env_of(set, "HANSE_JOBSET"), "");
    assert_string_equal(env_of(set, "PET_MASTER_ADDR"), "$(HANSE_JOBSET)-node-0-0.$(HANSE_JOBSET)");
    assert_string_equal(env_of(set, "PET_MASTER_PORT"), "29400");
    /* It is one that can be carried, with as many pods and devices. */
    assert_int_equal(manifest_read(set, NULL, NULL, &m, &e), 0);
    assert_int_equal(m.kind->id, MANIFEST_JOBSET);
    assert_int_equal(m.workers, 4);
    assert_int_equal(m.asks.devices, 2);
    assert_true(m.suspended);
    cJSON_Delete(set);
}

/* The variable is expanded where it stands behind the one that it names. */
static void the_address_stands_behind_the_name(void **state)
{
    const cJSON *e;
    cJSON *set;
    struct err err;
    int i = 0, name = -1, address = -1;

    (void)state;
    assert_int_equal(jobset(JOB(TRAINER), TORCH, &set, &err), 0);
    cJSON_ArrayForEach(e, AT(set, CONTAINER, "env"))
    {
        if (strcmp(TEXT(e, "name"), "HANSE_JOBSET") == 0)
            name = i;
        if (strcmp(TEXT(e, "name"), "PET_MASTER_ADDR") == 0)
            address = i;
        i++;
    }
    assert_true(name >= 0 && name < address);
    cJSON_Delete(set);
}

static void nodes_and_processes(void **state)
{
    static const struct {
        const char *trainer, *nodes, *processes;
    } tries[] = {
        {"trainer: {}", "3", "1"},
        {"suspend: false", "3", "1"},
        {"trainer: {numNodes: 2, resourcesPerNode: {limits: {cpu: 4}}}", "2", "4"},
        {"trainer: {resourcesPerNode: {requests: {cpu: 2500m}}}", "3", "2"},
        {"trainer: {resourcesPerNode: {requests: {cpu: 500m}}}", "3", "1"},
        {"trainer: {numProcPerNode: 8}", "3", "8"},
        {"trainer: {numProcPerNode: gpu}", "3", "gpu"},
        {"trainer: {numProcPerNode: cpu, resourcesPerNode: {limits: {cpu: 6, nvidia.com/gpu: 1}}}",
         "3", "6"},
        {"trainer: {resourcesPerNode: {limits: {amd.com/gpu: 1}}}", "3", "auto"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        cJSON *job = doc_of(JOB("labels: {}")), *runtime = doc_of(TORCH), *more, *set = NULL;
        struct err e;
        char text[512];
        (void)snprintf(text, sizeof text, "{%s}", tries[i].trainer);
        more = doc_of(text);
        cJSON_AddItemToObject(cJSON_GetObjectItemCaseSensitive(job, "spec"), more->child->string,
                              cJSON_Duplicate(more->child, true));
        assert_int_equal(manifest_train(job, runtime, NULL, NULL, &set, &e), 0);
        assert_string_equal(env_of(set, "PET_NNODES"), tries[i].nodes);
        assert_string_equal(env_of(set, "PET_NPROC_PER_NODE"), tries[i].processes);
        cJSON_Delete(set);
        cJSON_Delete(more);
        cJSON_Delete(job);
        cJSON_Delete(runtime);
    }
}

/* One without a framework gets nothing that it has not said. */
static void a_plain_one(void **state)
{
    cJSON *set;
    struct err e;

    (void)state;
    assert_int_equal(jobset(JOB(TRAINER), RUNTIME("{numNodes: 2}", STEP, ""), &set, &e), 0);
    assert_null(env_of(set, "PET_NNODES"));
    assert_string_equal(TEXT(set, CONTAINER, "image"), "new");
    assert_int_equal(
        AT(set, "spec", "replicatedJobs", "0", "template", "spec", "completions")->valueint, 4);
    cJSON_Delete(set);
}

static void what_cannot_be_kept(void **state)
{
    static const struct {
        const char *job, *runtime, *field, *says;
    } tries[] = {
        {JOB(TRAINER), NULL, "spec.runtimeRef", "kubectl get clustertrainingruntime torch -o yaml"},
        {JOB("podTemplateOverrides: [{}]"), TORCH, "spec.podTemplateOverrides", "into the runtime"},
        {JOB("initializer: {}"), TORCH, "spec.initializer", "ahead of the trainer"},
        {JOB("managedBy: kueue.x-k8s.io/multikueue"), TORCH, "spec.managedBy", "promises nothing"},
        {JOB("trainer: {command: [tune, run]}"), TORCH, "spec.trainer.command", "torchtune"},
        {JOB("newField: 1"), TORCH, "spec.newField", "not known here"},
        {JOB("trainer: {newField: 1}"), TORCH, "spec.trainer.newField", "not known here"},
        {JOB(TRAINER), RUNTIME("{}", STEP, ", newField: 1"), "ClusterTrainingRuntime.spec.newField",
         "not known here"},
        {JOB("trainer: {numNodes: 0}"), TORCH, "spec.trainer.numNodes", "whole number"},
        {JOB("trainer: {numNodes: 1.5}"), TORCH, "spec.trainer.numNodes", "whole number"},
        {JOB(TRAINER), RUNTIME("{mpi: {}}", STEP, ""), "ClusterTrainingRuntime.spec.mlPolicy.mpi",
         "MPIJob"},
        {JOB(TRAINER), RUNTIME("{jax: {}}", STEP, ""), "ClusterTrainingRuntime.spec.mlPolicy.jax",
         "not known here"},
        {JOB(TRAINER), RUNTIME("{torch: {elasticPolicy: {}}}", STEP, ""),
         "ClusterTrainingRuntime.spec.mlPolicy.torch.elasticPolicy", "workers"},
        {JOB(TRAINER), RUNTIME("{torch: {}}", "", ""),
         "ClusterTrainingRuntime.spec.template.spec.replicatedJobs", "trainer"},
        {JOB(TRAINER),
         "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: ClusterTrainingRuntime, metadata: "
         "{name: torch}, spec: 7}",
         "ClusterTrainingRuntime.spec.template.spec.replicatedJobs", "trainer"},
    };
    cJSON *set;

    (void)state;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        struct err e = {0};
        assert_int_not_equal(jobset(tries[i].job, tries[i].runtime, &set, &e), 0);
        assert_string_equal(e.field, tries[i].field);
        if (!strstr(e.text, tries[i].says))
            fail_msg("%zu: %s", i, e.text);
    }
}

/* The runtime that it names, of the kind that it names. */
static void its_runtime(void **state)
{
    static const char *const others[] = {
        "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: ClusterTrainingRuntime, metadata: "
        "{name: x}}",
        "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainingRuntime, metadata: {name: "
        "torch}}",
        "{apiVersion: v1, kind: ClusterTrainingRuntime, metadata: {name: torch}}",
    };
    cJSON *job = doc_of(JOB(TRAINER));

    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        cJSON *o = doc_of(others[i]);
        assert_false(manifest_is_runtime(job, o));
        cJSON_Delete(o);
    }
    cJSON_Delete(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_runtimes_template_with_its_trainer),
        cmocka_unit_test(the_address_stands_behind_the_name),
        cmocka_unit_test(nodes_and_processes),
        cmocka_unit_test(a_plain_one),
        cmocka_unit_test(what_cannot_be_kept),
        cmocka_unit_test(its_runtime),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
