/* Objects of other kinds as what runs once: what of them stays, what each template of pods gets,
 * and what of their controllers' own ways is taken out. */
#include "connectors/kubernetes/manifests/overlay.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static struct world {
    struct target_kubernetes k;
    struct kubernetes_priority classes[1];
    struct kube_overlay o;
    cJSON *made;
} W;

static int begin(void **state)
{
    (void)state;
    W = (struct world){
        .k = {.queue = "lq",
              .schedulerName = "volcano",
              .serviceAccountName = "runs",
              .priorityClasses = W.classes,
              .n_priorityClasses = 1},
        .classes = {{.priorityClassName = "high", .as = "site-high"}},
        .o = {.key = "u.3.2", .mark = "signed", .k = &W.k, .priority_class = "high"}};
    return 0;
}

static int end(void **state)
{
    (void)state;
    cJSON_Delete(W.made);
    return 0;
}

static void make(const char *yaml)
{
    struct yaml_doc *docs;
    size_t n;
    struct err e;

    if (yaml_parse_all(yaml, strlen(yaml), "t", &docs, &n, &e))
        fail_msg("%s", e.text);
    if (kube_overlay_object(&W.o, docs[0].json, &W.made, &e) < 0)
        fail_msg("%s: %s", e.field, e.text);
    yaml_docs_free(docs, n);
}

static void is(const char *path, const char *wanted)
{
    char *text = cJSON_PrintUnformatted(kube_at(W.made, path));

    if (strcmp(text ? text : "nothing", wanted) != 0)
        fail_msg("%s: %s, and %s was expected", path, text ? text : "nothing", wanted);
    cJSON_free(text);
}

static const cJSON *item(const char *list, int i, const char *path)
{
    return kube_at(cJSON_GetArrayItem(kube_at(W.made, list), i), path);
}

static void is_text(const cJSON *o, const char *path, const char *wanted)
{
    assert_string_equal(kube_text(o, path), wanted);
}

/* Each template: gated, held, known, bare of what would begin it again. */
static void pods_are_held(const cJSON *template, const char *part, bool follows)
{
    const cJSON *gate = cJSON_GetArrayItem(kube_at(template, "spec.schedulingGates"), 0);

    assert_non_null(template);
    is_text(gate, "name", KUBE_GATE);
    is_text(template, "spec.restartPolicy", "Never");
    is_text(template, "spec.schedulerName", "volcano");
    is_text(template, "spec.serviceAccountName", "runs");
    is_text(template, "spec.priorityClassName", "site-high");
    assert_string_equal(kube_label(template, KUBE_RUN_LABEL), "u.3.2");
    assert_string_equal(kube_annotation(template, KUBE_MARK_ANNOTATION), "signed");
    assert_string_equal(kube_annotation(template, KUBE_PART_ANNOTATION), part);
    assert_string_equal(kube_annotation(template, KUBE_CONTAINERS_ANNOTATION), "a");
    assert_string_equal(kube_annotation(template, KUBE_FOLLOWS_ANNOTATION), follows ? "true" : "");
    assert_int_equal(cJSON_GetArraySize(kube_at(template, "metadata.finalizers")), 1);
    assert_string_equal(
        cJSON_GetArrayItem(kube_at(template, "metadata.finalizers"), 0)->valuestring,
        KUBE_FINALIZER);
    assert_null(kube_at(template, "metadata.name"));
}

#define PODS                                                                                       \
    "{metadata: {labels: {e: f, volcano.sh/job-name: x, kueue.x-k8s.io/priority-class: top}}, "    \
    "spec: {priorityClassName: theirs, restartPolicy: OnFailure, containers: [{name: a, image: "   \
    "i}]}}"
#define META                                                                                       \
    "metadata: {name: theirs, uid: u, labels: {a: b, kueue.x-k8s.io/queue-name: q, "               \
    "kueue.x-k8s.io/priority-class: top}, annotations: {c: d}}, status: {x: y}"

static void a_jobset_makes_each_pod_once(void **state)
{
    (void)state;
    make("{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, " META ", spec: {suspend: false, "
         "ttlSecondsAfterFinished: 9, failurePolicy: {maxRestarts: 3}, successPolicy: {operator: "
         "All, targetReplicatedJobs: [driver]}, network: {enableDNSHostnames: true}, "
         "replicatedJobs: [{name: driver, template: {spec: {template: " PODS "}}}, {name: workers, "
         "replicas: 2, template: {metadata: {name: gone, labels: {g: h, jobset.sigs.k8s.io/x: y}}, "
         "spec: {suspend: true, backoffLimit: 5, ttlSecondsAfterFinished: 1, parallelism: 3, "
         "completions: 3, template: " PODS "}}}]}}");
    is("metadata.labels", "{\"hanse.dev/key\":\"u.3.2\",\"app.kubernetes.io/managed-by\":\"hanse\","
                          "\"a\":\"b\",\"kueue.x-k8s.io/queue-name\":\"lq\"}");
    is("metadata.annotations", "{\"hanse.dev/mark\":\"signed\",\"c\":\"d\"}");
    is("metadata.name", "nothing");
    is("metadata.uid", "nothing");
    is("metadata.finalizers", "nothing"); /* it goes with its anchor */
    is("status", "nothing");
    is("spec.suspend", "nothing");
    is("spec.ttlSecondsAfterFinished", "nothing");
    is("spec.failurePolicy", "nothing");
    is("spec.network", "{\"enableDNSHostnames\":true}");
    is("spec.successPolicy", "{\"operator\":\"All\",\"targetReplicatedJobs\":[\"driver\"]}");
    for (int i = 0; i < 2; i++) {
        const cJSON *job = item("spec.replicatedJobs", i, "template");
        assert_int_equal(kube_at(job, "spec.backoffLimit")->valueint, 0);
        assert_int_equal(kube_at(job, "spec.completions")->valueint, i ? 3 : 1);
        assert_int_equal(kube_at(job, "spec.parallelism")->valueint, i ? 3 : 1);
        is_text(job, "spec.completionMode", "Indexed");
        is_text(job, "spec.podReplacementPolicy", "Failed");
        assert_null(kube_at(job, "spec.suspend"));
        assert_null(kube_at(job, "spec.ttlSecondsAfterFinished"));
        assert_null(kube_at(job, "metadata.name"));
    }
    is_text(item("spec.replicatedJobs", 1, "template"), "metadata.labels.g", "h");
    assert_int_equal(cJSON_GetArraySize(item("spec.replicatedJobs", 1, "template.metadata.labels")),
                     1);
    pods_are_held(item("spec.replicatedJobs", 0, "template.spec.template"), "0/1", false);
    pods_are_held(item("spec.replicatedJobs", 1, "template.spec.template"), "1/6", true);
}

static void a_job_of_volcano_makes_each_pod_once(void **state)
{
    const cJSON *tasks;

    (void)state;
    make("{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, " META ", spec: {schedulerName: "
         "volcano, queue: theirs, priorityClassName: theirs, minAvailable: 1, maxRetry: 5, "
         "ttlSecondsAfterFinished: 9, plugins: {svc: [], ssh: []}, policies: [{event: PodEvicted, "
         "action: RestartJob}], tasks: [{name: ps, policies: [{event: TaskCompleted, action: "
         "CompleteJob}], template: " PODS "}, {name: w, replicas: 4, minAvailable: 2, maxRetry: 2, "
         "template: " PODS "}]}}");
    tasks = kube_at(W.made, "spec.tasks");
    is("metadata.labels", "{\"hanse.dev/key\":\"u.3.2\",\"app.kubernetes.io/managed-by\":\"hanse\","
                          "\"a\":\"b\"}"); /* its queue is Volcano's, and Kueue's is none */
    is("spec.queue", "\"lq\"");
    is("spec.priorityClassName", "\"site-high\"");
    is("spec.schedulerName", "\"volcano\"");
    is("spec.plugins", "{\"svc\":[],\"ssh\":[]}");
    is("spec.minAvailable", "nothing");
    is("spec.maxRetry", "nothing");
    is("spec.policies", "nothing");
    is("spec.ttlSecondsAfterFinished", "nothing");
    for (int i = 0; i < 2; i++) {
        const cJSON *t = cJSON_GetArrayItem(tasks, i);
        assert_null(kube_at(t, "policies"));
        assert_null(kube_at(t, "minAvailable"));
        assert_null(kube_at(t, "maxRetry"));
    }
    pods_are_held(item("spec.tasks", 0, "template"), "0/1", false);
    pods_are_held(item("spec.tasks", 1, "template"), "1/4", true);
}

/* A Target that says nothing of queue and priority leaves none of the manifest's in its place. */
static void without_a_queue_there_is_none(void **state)
{
    (void)state;
    W.k.queue = "";
    W.k.n_priorityClasses = 0;
    make("{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, " META ", spec: {queue: theirs, "
         "priorityClassName: theirs, tasks: [{name: w, template: " PODS "}]}}");
    is("spec.queue", "nothing");
    is("spec.priorityClassName", "nothing");
    assert_null(item("spec.tasks", 0, "template.spec.priorityClassName"));
}

static void an_mpijob_cleans_nothing_up(void **state)
{
    (void)state;
    make("{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, " META ", spec: {runPolicy: "
         "{cleanPodPolicy: Running, backoffLimit: 4, ttlSecondsAfterFinished: 9, suspend: true, "
         "schedulingPolicy: {queue: theirs}}, mpiReplicaSpecs: {Launcher: {restartPolicy: "
         "OnFailure, template: " PODS "}, Worker: {replicas: 2, template: " PODS "}}}}");
    is("spec.runPolicy", "{\"backoffLimit\":0,\"cleanPodPolicy\":\"None\"}");
    is("spec.mpiReplicaSpecs.Launcher.restartPolicy", "\"Never\"");
    assert_string_equal(kube_label(W.made, "kueue.x-k8s.io/queue-name"), "lq");
    assert_string_equal(kube_label(W.made, "kueue.x-k8s.io/priority-class"), "");
    pods_are_held(kube_at(W.made, "spec.mpiReplicaSpecs.Launcher.template"), "0/1", false);
    pods_are_held(kube_at(W.made, "spec.mpiReplicaSpecs.Worker.template"), "1/2", true);
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_jobset_makes_each_pod_once), T(a_job_of_volcano_makes_each_pod_once),
        T(without_a_queue_there_is_none), T(an_mpijob_cleans_nothing_up)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
