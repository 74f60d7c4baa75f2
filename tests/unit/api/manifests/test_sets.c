/* Manifests that make pods of several templates: which parts they have, which of these decide the
 * end, what of them is refused; and documents of all kinds that nobody would write. */
#include "api/manifests/manifests.h"
#include "tests/support/unit.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define GPU(n) "resources: {limits: {cpu: 4, nvidia.com/gpu: " #n "}}"

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

static void note(void *arg, bool is_refused, const char *field, const char *text)
{
    unsigned *refused = arg;

    assert_true(*field && *text);
    *refused += is_refused;
}

static int reads(cJSON *doc, struct manifest *ret, struct err *e)
{
    unsigned refused = 0;
    int rc = manifest_read(doc, note, &refused, ret, e);

    assert_int_equal(rc != 0, refused > 0 || !ret->kind);
    return rc;
}

#define JOB                                                                                        \
    "{apiVersion: batch/v1, kind: Job, metadata: {name: train, namespace: team, labels: {a: b, "   \
    "hanse.dev/queue: vision}}, spec: {parallelism: 2, completions: 2, backoffLimit: 3, suspend: " \
    "true, ttlSecondsAfterFinished: 60, template: " PODS "}}"
#define PODS "{spec: {containers: [{name: a, image: i, " GPU(2) "}]}}"
#define SET(spec, more)                                                                            \
    "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: s}, spec: {" spec       \
    "replicatedJobs: [{name: driver, template: {spec: {backoffLimit: 0, template: " PODS           \
    "}}}, {name: workers, replicas: 2, " more "template: {spec: {parallelism: 3, completions: 3, " \
    "backoffLimit: 2, template: " PODS "}}}]}}"
#define TORCH(spec, master)                                                                        \
    "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: p}, spec: {" spec            \
    "pytorchReplicaSpecs: {" master "Worker: {replicas: 4, restartPolicy: OnFailure, template: "   \
    PODS "}}}}"
#define MASTER "Master: {template: " PODS "}, "
#define LAUNCH(spec)                                                                               \
    "{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: m}, spec: {" spec           \
    "mpiReplicaSpecs: {Worker: {replicas: 4, template: " PODS "}, Launcher: {template: {spec: "    \
    "{containers: [{name: a, image: i}]}}}}}}"

static void parts_are(const char *yaml, const char *wanted, int64_t retries)
{
    cJSON *doc = doc_of(yaml);
    char text[512] = "";
    struct manifest m;
    struct err e;

    if (reads(doc, &m, &e))
        fail_msg("%s: %s", e.field, e.text);
    for (unsigned i = 0; i < m.n; i++) {
        size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n, "%s %lld%s; ", m.parts[i].path,
                       (long long)m.parts[i].pods, m.parts[i].follows ? " follow" : "");
    }
    assert_string_equal(text, wanted);
    assert_int_equal(m.retries, retries);
    assert_int_equal(m.asks.devices, 2);
    cJSON_Delete(doc);
}

#define SETS_AT "spec.replicatedJobs"
#define TORCH_AT "spec.pytorchReplicaSpecs."
static void each_template_is_a_part(void **state)
{
    (void)state;
    parts_are(SET("", ""),
              SETS_AT "[0].template.spec.template 1; " SETS_AT "[1].template.spec.template 6; ", 2);
    parts_are(SET("successPolicy: {operator: All, targetReplicatedJobs: [driver]}, failurePolicy: "
                  "{maxRestarts: 7}, ",
                  ""),
              SETS_AT "[0].template.spec.template 1; " SETS_AT
                      "[1].template.spec.template 6 follow; ",
              7);
    parts_are(TORCH("runPolicy: {backoffLimit: 3}, ", MASTER),
              TORCH_AT "Master.template 1; " TORCH_AT "Worker.template 4 follow; ", 3);
    parts_are(TORCH("", ""), TORCH_AT "Worker.template 4; ", -1);
    parts_are(LAUNCH(""),
              "spec.mpiReplicaSpecs.Launcher.template 1; spec.mpiReplicaSpecs.Worker.template 4 "
              "follow; ",
              -1);
}

#define VOLCANO(spec, task)                                                                        \
    "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: v}, spec: {" spec         \
    "tasks: [{name: ps, " task "template: " PODS "}, {name: w, replicas: 3, template: " PODS "}]}}"
#define COMPLETES "policies: [{event: TaskCompleted, action: CompleteJob}], "

static void tasks_of_volcano_are_parts(void **state)
{
    (void)state;
    parts_are(VOLCANO("maxRetry: 4, policies: [{event: PodEvicted, action: RestartJob}], ", ""),
              "spec.tasks[0].template 1; spec.tasks[1].template 3; ", 4);
    parts_are(VOLCANO("", COMPLETES),
              "spec.tasks[0].template 1; spec.tasks[1].template 3 follow; ", -1);
}

static void one_refused(const char *yaml, const char *field)
{
    cJSON *doc = doc_of(yaml);
    struct manifest m;
    struct err e = {0};

    assert_int_equal(reads(doc, &m, &e), E_NOTIMPL);
    if (strcmp(e.field, field) != 0)
        fail_msg("%s, and %s was expected: %s", e.field, field, e.text);
    cJSON_Delete(doc);
}

static void what_begins_one_by_another_is_refused(void **state)
{
    (void)state;
    one_refused(SET("startupPolicy: {startupPolicyOrder: InOrder}, ", ""), "spec.startupPolicy");
    one_refused(SET("", "dependsOn: [{name: driver, status: Ready}], "),
                SETS_AT "[1].dependsOn");
    one_refused(SET("successPolicy: {operator: Any}, ", ""), "spec.successPolicy.operator");
    one_refused(SET("successPolicy: {operator: All, targetReplicatedJobs: [x]}, ", ""),
                "spec.successPolicy.targetReplicatedJobs");
    one_refused(SET("failurePolicy: {rules: []}, ", ""), "spec.failurePolicy.rules");
    one_refused(SET("network: {subdomain: others}, ", ""), "spec.network.subdomain");
    one_refused(SET("managedBy: a/b, ", ""), "spec.managedBy");
    one_refused(SET("volumeClaimPolicies: [], ", ""), "spec.volumeClaimPolicies");
    one_refused("{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: s, "
                "annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}}, spec: "
                "{replicatedJobs: [{name: a, template: {spec: {template: " PODS "}}}]}}",
                "metadata.annotations.alpha.jobset.sigs.k8s.io/exclusive-topology");
    one_refused("{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: s}, spec: "
                "{replicatedJobs: []}}",
                "spec.replicatedJobs");
    one_refused("{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: s}, spec: "
                "{replicatedJobs: [{name: a, replicas: 4096, template: {spec: {parallelism: 4096, "
                "completions: 4096, template: " PODS "}}}]}}",
                "spec");
    one_refused("{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: s}, spec: "
                "{replicatedJobs: [{name: a, template: {metadata: {labels: {hanse.dev/key: x}}, "
                "spec: {template: " PODS "}}}]}}",
                SETS_AT "[0].template.metadata.labels.hanse.dev/key");
    one_refused(TORCH("elasticPolicy: {}, ", MASTER), "spec.elasticPolicy");
    one_refused(TORCH("runPolicy: {activeDeadlineSeconds: 9}, ", MASTER),
                "spec.runPolicy.activeDeadlineSeconds");
    one_refused(TORCH("", "Chief: {template: " PODS "}, "), TORCH_AT "Chief");
    one_refused(LAUNCH("launcherCreationPolicy: WaitForWorkersReady, "),
                "spec.launcherCreationPolicy");
    one_refused(VOLCANO(COMPLETES, ""), "spec.policies");
    one_refused(VOLCANO("volumes: [], ", ""), "spec.volumes");
    one_refused(VOLCANO("minSuccess: 1, ", ""), "spec.minSuccess");
    one_refused(VOLCANO("", "dependsOn: {name: [w]}, "), "spec.tasks[0].dependsOn");
    one_refused("{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {}}",
                "spec.mpiReplicaSpecs.Launcher");
}

/* ---- what nobody would write ---- */
/* Members of a good one are taken away, doubled, or become something else: whatever comes of it is
 * refused, or counts no less than is there. */
static uint64_t dice;
static uint64_t below(uint64_t n)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (dice >> 33) % n;
}

static cJSON *somewhere(cJSON *j)
{
    for (;;) {
        int n = j->child ? cJSON_GetArraySize(j) : 0;
        if (!n || below(8) == 0)
            return j;
        j = cJSON_GetArrayItem(j, (int)below((uint64_t)n));
    }
}

static cJSON *other(void)
{
    static const char *const texts[] = {"null",
                                        "[]",
                                        "{}",
                                        "-1",
                                        "1e300",
                                        "\"x\"",
                                        "true",
                                        "[[[[]]]]",
                                        "{\"name\":\"hanse-x\"}",
                                        "0.5",
                                        "9007199254740992",
                                        "\"9999999999999999999Ei\""};

    return cJSON_Parse(texts[below(sizeof texts / sizeof *texts)]);
}

static void hostile_ones_harm_nobody(void **state)
{
    static const char *const bases[] = {JOB, SET("", ""), TORCH("", MASTER), LAUNCH(""),
                                        VOLCANO("", COMPLETES)};
    unsigned good = 0;

    (void)state;
    for (dice = 1; dice < 4000; dice++) {
        uint64_t seed = dice;
        cJSON *doc = doc_of(bases[below(sizeof bases / sizeof *bases)]), *j = NULL;
        struct manifest m;
        struct err e = {0};
        for (uint64_t n = 1 + below(4); n; n--) {
            cJSON *at = somewhere(doc), *v = other();
            if (at != doc && below(3) && at->string) {
                cJSON copy = *v;
                cJSON_Delete(at->child);
                at->child = copy.child;
                if (at->valuestring)
                    cJSON_free(at->valuestring);
                at->valuestring = copy.valuestring;
                at->valuedouble = copy.valuedouble;
                at->type = copy.type;
                v->child = NULL;
                v->valuestring = NULL;
                cJSON_Delete(v);
            } else if (cJSON_IsArray(at)) {
                cJSON_AddItemToArray(at, v);
            } else {
                cJSON_Delete(v);
            }
        }
        if (reads(doc, &m, &e) == 0) {
            assert_in_range(m.workers, 1, LIMIT_GANG_MAX);
            assert_in_range(m.asks.devices, 0, 256);
            assert_true(m.asks.cpu_milli >= 0 && m.asks.memory_bytes >= 0);
        }
        good += manifest_workload(doc, NULL, NULL, &j, &e) == 0;
        cJSON_Delete(j);
        cJSON_Delete(doc);
        dice = seed;
    }
    assert_in_range(good, 100, 3900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_template_is_a_part),
                                       cmocka_unit_test(tasks_of_volcano_are_parts),
                                       cmocka_unit_test(what_begins_one_by_another_is_refused),
                                       cmocka_unit_test(hostile_ones_harm_nobody)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
