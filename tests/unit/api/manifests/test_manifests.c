/* Manifests of others: what is counted of them, what is refused by which field, the Workload that
 * fits, and what a Workload that carries one must keep to. */
#include "api/manifests/manifests.h"
#include "tests/support/unit.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static char notes[8192];
static unsigned refused, warned;

static void note(void *arg, bool is_refused, const char *field, const char *text)
{
    size_t n = strlen(notes);

    assert_ptr_equal(arg, notes);
    assert_true(*field && *text);
    refused += is_refused;
    warned += !is_refused;
    (void)snprintf(notes + n, sizeof notes - n, "%s%s: %s\n", is_refused ? "!" : "", field, text);
}

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

/* A Job of that spec, template and pod, in flow style. */
static cJSON *job(const char *spec, const char *template, const char *pod, const char *container)
{
    char text[4096];

    (void)snprintf(text, sizeof text,
                   "{apiVersion: batch/v1, kind: Job, metadata: {name: train}, spec: {%s template: "
                   "{%s spec: {%s containers: [{name: a, image: i, %s}]}}}}",
                   spec, template, pod, container);
    return doc_of(text);
}

static int reads(cJSON *doc, struct manifest *ret, struct err *e)
{
    int rc;

    *notes = '\0';
    refused = warned = 0;
    rc = manifest_read(doc, note, notes, ret, e);
    assert_int_equal(rc != 0, refused > 0 || !ret->kind);
    return rc;
}

static void job_asks(const char *spec, const char *pod, const char *container, int64_t workers,
                     const struct manifest_asks *wanted)
{
    cJSON *doc = job(spec, "", pod, container);
    struct manifest m;
    struct err e;

    if (reads(doc, &m, &e))
        fail_msg("%s: %s", e.field, e.text);
    assert_int_equal(m.workers, workers);
    assert_int_equal(m.asks.cpu_milli, wanted->cpu_milli);
    assert_int_equal(m.asks.memory_bytes, wanted->memory_bytes);
    assert_int_equal(m.asks.devices, wanted->devices);
    assert_string_equal(m.asks.resource, wanted->resource);
    cJSON_Delete(doc);
}

#define GPU(n) "resources: {limits: {cpu: 4, memory: 16Gi, nvidia.com/gpu: " #n "}}"

static void what_pods_ask_for_is_counted(void **state)
{
    const struct manifest_asks one = {4000, 16ll << 30, 2, "nvidia.com/gpu"}, none = {0};
    const struct manifest_asks sum = {5500, 17ll << 30, 2, "nvidia.com/gpu"};
    const struct manifest_asks ahead = {9000, 16ll << 30, 3, "nvidia.com/gpu"};
    const struct manifest_asks mig = {0, 0, 1, "nvidia.com/mig-1g.10gb"};

    (void)state;
    job_asks("", "", "", 1, &none);
    job_asks("", "", GPU(2), 1, &one);
    job_asks("parallelism: 4, completions: 4,", "", GPU(2), 4, &one);
    job_asks("parallelism: 8, completions: 3,", "", GPU(2), 3, &one);
    job_asks("parallelism: 3,", "", GPU(2), 3, &one);
    job_asks("", "",
             GPU(2) "}, {name: b, image: i, resources: {requests: {cpu: 1500m, memory: 1Gi}}", 1,
             &sum);
    job_asks("",
             "initContainers: [{name: c, image: i, resources: {requests: {cpu: 9, "
             "nvidia.com/gpu: 3}}}],",
             GPU(2), 1, &ahead);
    job_asks("",
             "initContainers: [{name: c, image: i, restartPolicy: Always, resources: {requests: "
             "{cpu: 1500m, memory: 1Gi}}}],",
             GPU(2), 1, &sum);
    job_asks("", "", "resources: {limits: {nvidia.com/mig-1g.10gb: 1}}", 1, &mig);
}

static void refuses(const char *spec, const char *template, const char *pod, const char *container,
                    const char *field)
{
    cJSON *doc = job(spec, template, pod, container);
    struct manifest m;
    struct err e = {0};

    assert_int_equal(reads(doc, &m, &e), E_NOTIMPL);
    if (strcmp(e.field, field) != 0)
        fail_msg("%s, and %s was expected", e.field, field);
    cJSON_Delete(doc);
}

#define POD "spec.template.spec."
#define AT POD "containers[0]."

static void what_would_mean_something_else_is_refused(void **state)
{
    (void)state;
    refuses("completions: 10, parallelism: 2,", "", "", "", "spec.completions");
    refuses("parallelism: 0,", "", "", "", "spec.parallelism");
    refuses("parallelism: 1.5,", "", "", "", "spec.parallelism");
    refuses("parallelism: 4097,", "", "", "", "spec.parallelism");
    refuses("completions: x,", "", "", "", "spec.completions");
    refuses("podFailurePolicy: {rules: []},", "", "", "", "spec.podFailurePolicy");
    refuses("successPolicy: {rules: []},", "", "", "", "spec.successPolicy");
    refuses("backoffLimitPerIndex: 1,", "", "", "", "spec.backoffLimitPerIndex");
    refuses("backoffLimit: -1,", "", "", "", "spec.backoffLimit");
    refuses("managedBy: a/b,", "", "", "", "spec.managedBy");
    refuses("manualSelector: true,", "", "", "", "spec.manualSelector");
    refuses("", "metadata: {labels: {hanse.dev/key: x}},", "", "",
            "spec.template.metadata.labels.hanse.dev/key");
    refuses("", "metadata: {annotations: {hanse.dev/mark: x}},", "", "",
            "spec.template.metadata.annotations.hanse.dev/mark");
    refuses("", "metadata: {labels: [a]},", "", "", "spec.template.metadata.labels");
    refuses("", "metadata: {labels: {a: 1}},", "", "", "spec.template.metadata.labels.a");
    refuses("", "metadata: {finalizers: [a/b]},", "", "", "spec.template.metadata.finalizers");
    refuses("",
            "metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/a: "
            "unconfined}},",
            "", "",
            "spec.template.metadata.annotations.container.apparmor.security.beta.kubernetes.io/a");
    refuses("", "", "subdomain: a,", "", POD "subdomain");
    refuses("", "", "terminationGracePeriodSeconds: 86401,", "",
            POD "terminationGracePeriodSeconds");
    refuses("", "", "securityContext: {seccompProfile: {type: Unconfined}},", "",
            POD "securityContext.seccompProfile.type");
    refuses("", "", "initContainers: [{name: c, image: i, restartPolicy: OnFailure}],", "",
            POD "initContainers[0].restartPolicy");
    refuses("", "", "", "restartPolicy: OnFailure", AT "restartPolicy");
    refuses("", "", "", "restartPolicyRules: [{action: Restart}]", AT "restartPolicyRules");
    refuses("", "", "", "securityContext: {appArmorProfile: {type: Unconfined}}",
            AT "securityContext.appArmorProfile.type");
    refuses("", "", "", "securityContext: {seLinuxOptions: {type: spc_t}}",
            AT "securityContext.seLinuxOptions");
    refuses("", "", "", "livenessProbe: {httpGet: {port: 1, host: 10.0.0.1}}",
            AT "livenessProbe.httpGet.host");
    refuses("", "", "nodeName: n1,", "", POD "nodeName");
    refuses("", "", "hostNetwork: true,", "", POD "hostNetwork");
    refuses("", "", "hostPID: true,", "", POD "hostPID");
    refuses("", "", "hostIPC: true,", "", POD "hostIPC");
    refuses("", "", "serviceAccountName: admin,", "", POD "serviceAccountName");
    refuses("", "", "automountServiceAccountToken: true,", "", POD "automountServiceAccountToken");
    refuses("", "", "volumes: [{name: a, hostPath: {path: /}}],", "", POD "volumes[0].hostPath");
    refuses("", "", "volumes: [{name: a, emptyDir: {}}, {name: b, nfs: {server: s}}],", "",
            POD "volumes[1].nfs");
    refuses("", "", "volumes: [{name: a, secret: {secretName: hanse-u-1-1}}],", "",
            "spec.template.spec");
    refuses("", "", "volumes: [{name: a, projected: {sources: [{secret: {name: hanse-u-1-1}}]}}],",
            "", "spec.template.spec");
    refuses("", "", "volumes: [{name: a, projected: {sources: [{serviceAccountToken: {}}]}}],", "",
            POD "volumes[0].projected.sources");
    refuses("", "", "imagePullSecrets: [{name: hanse-u-1-1}],", "", "spec.template.spec");
    refuses("", "", "", "envFrom: [{secretRef: {name: hanse-u-1-1}}]", "spec.template.spec");
    refuses("", "", "", "env: [{name: A, valueFrom: {secretKeyRef: {name: hanse-u-1-1, key: a}}}]",
            "spec.template.spec");
    refuses("", "", "", "securityContext: {privileged: true}", AT "securityContext.privileged");
    refuses("", "", "", "securityContext: {capabilities: {add: [CHOWN, SYS_ADMIN]}}",
            AT "securityContext.capabilities.add");
    refuses("", "", "", "ports: [{containerPort: 1, hostPort: 1}]", AT "ports[0].hostPort");
    refuses("", "", "", "resources: {limits: {cpu: lots}}", AT "resources.limits.cpu");
    refuses("", "", "", "resources: {requests: {memory: -1}}", AT "resources.requests.memory");
    refuses("", "", "", "resources: {limits: {nvidia.com/gpu: 300}}", AT "resources.limits");
    refuses("", "", "", "resources: {limits: {nvidia.com/gpu: 1, amd.com/gpu: 1}}",
            AT "resources.limits");
    refuses("", "", "", "resources: {limits: {nvidia.com/gpu.shared: 1}}", AT "resources.limits");
    refuses("", "", "", "resources: {limits: {nvidia.com/mig-1g.10gb: 2}}", "spec.template");
}

static void count_notes(void *arg, bool is_refused, const char *field, const char *text)
{
    (void)is_refused;
    (void)text;
    if (strcmp(field, "spec.backoffLimit") != 0 && strcmp(field, "spec.completionMode") != 0)
        ++*(unsigned *)arg;
}

/* And what somebody has said stays. */
static void what_a_cluster_has_written_goes(void **state)
{
    cJSON *doc = doc_of(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, uid: u, resourceVersion: '1', "
        "generation: 2, creationTimestamp: x, managedFields: [], labels: {a: b, job-name: j, "
        "batch.kubernetes.io/job-name: j}, annotations: "
        "{kubectl.kubernetes.io/last-applied-configuration: '{}', hanse.dev/queue: q}}\n"
        "status: {active: 1}\nspec: {selector: {}, podReplacementPolicy: TerminatingOrFailed, "
        "suspend: true, template: {metadata: {labels: {controller-uid: u}}, spec: {restartPolicy: "
        "Never, containers: [{name: a, image: i}]}}}\n");
    cJSON *bare = manifest_bare(doc), *again = manifest_bare(bare);
    struct manifest m;
    unsigned n = 0;

    (void)state;
    assert_int_equal(manifest_read(bare, count_notes, &n, &m, NULL), 0);
    assert_int_equal(n, 0);
    assert_true(m.suspended);
    assert_non_null(cJSON_GetObjectItem(doc, "status")); /* what was read is as it was */
    assert_true(cJSON_Compare(bare, again, true));
    char *text = cJSON_PrintUnformatted(bare);
    assert_non_null(strstr(text, "\"labels\":{\"a\":\"b\"},\"annotations\":{\"hanse.dev/queue\""));
    assert_null(strstr(text, "uid"));
    assert_null(strstr(text, "applied"));
    cJSON_free(text);
    cJSON_Delete(again);
    cJSON_Delete(bare);
    cJSON_Delete(doc);
    doc = cJSON_Parse("{\"spec\":{\"manualSelector\":true,\"selector\":{}}}");
    bare = manifest_bare(doc);
    assert_non_null(cJSON_GetObjectItem(cJSON_GetObjectItem(bare, "spec"), "selector"));
    cJSON_Delete(bare);
    cJSON_Delete(doc);
    doc = cJSON_Parse("[{\"metadata\":1}]"); /* it need be no document */
    bare = manifest_bare(doc);
    assert_true(cJSON_Compare(doc, bare, true));
    cJSON_Delete(bare);
    cJSON_Delete(doc);
}

/* What another cluster has printed of a Job goes in as it is. */
static void what_is_left_out_is_told(void **state)
{
    cJSON *doc = doc_of(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j, uid: u, resourceVersion: '1', "
        "labels: "
        "{kueue.x-k8s.io/queue-name: q, batch.kubernetes.io/job-name: j}}\nstatus: {active: 1}\n"
        "spec: {selector: {}, podReplacementPolicy: TerminatingOrFailed, completionMode: Indexed, "
        "backoffLimit: 0, template: {metadata: {labels: {controller-uid: u}}, spec: "
        "{restartPolicy: "
        "OnFailure, priorityClassName: high, nodeSelector: {a: b}, affinity: {}, containers: "
        "[{name: "
        "a, image: i, resources: {limits: {rdma/ib: 1}}}]}}}\n");
    static const char *const fields[] = {"metadata.labels.kueue.x-k8s.io/queue-name",
                                         "metadata.labels.batch.kubernetes.io/job-name",
                                         "status",
                                         "metadata.uid",
                                         "spec.selector",
                                         "spec.podReplacementPolicy",
                                         "spec.template.metadata.labels.controller-uid",
                                         "spec.template.spec.priorityClassName",
                                         "spec.template.spec.nodeSelector",
                                         "spec.template.spec.affinity",
                                         "spec.template.spec.restartPolicy",
                                         "spec.template.spec.containers[0].resources.limits"};
    struct manifest m;
    struct err e;

    (void)state;
    assert_int_equal(reads(doc, &m, &e), 0);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strstr(notes, fields[i]))
            fail_msg("%s is not told: %s", fields[i], notes);
    assert_int_equal(warned, sizeof fields / sizeof *fields);
    assert_int_equal(m.retries, 0);
    cJSON_Delete(doc);
}

static void all_that_is_refused_is_told_at_once(void **state)
{
    cJSON *doc = job("completions: 3,", "", "hostNetwork: true, hostPID: true,", "");
    struct manifest m;
    struct err e;

    (void)state;
    assert_int_equal(reads(doc, &m, &e), E_NOTIMPL);
    assert_int_equal(refused, 3);
    assert_string_equal(e.field, "spec.completions");
    cJSON_Delete(doc);
}

static void what_is_not_known_is_named(void **state)
{
    static const char *const docs[] = {"{apiVersion: batch/v1beta1, kind: Job}",
                                       "{apiVersion: apps/v1, kind: Deployment}", "{}", "[]",
                                       "{apiVersion: [], kind: 1}"};
    struct manifest m;
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof docs / sizeof *docs; i++) {
        cJSON *doc = doc_of(docs[i]);
        assert_int_equal(manifest_read(doc, NULL, NULL, &m, &e), E_NOTIMPL);
        assert_string_equal(e.field, "kind");
        assert_non_null(strstr(e.text, "Job (batch/v1)"));
        cJSON_Delete(doc);
    }
}

/* What cannot be carried for good says why, and what can instead. */
static void why_some_never_can_is_told(void **state)
{
    static const char *const docs[][2] = {
        {"{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob}", "both in one file"},
        {"{apiVersion: ray.io/v1, kind: RayJob}", "submitter"},
        {"{apiVersion: ray.io/v1, kind: RayCluster}", "does not end"},
        {"{apiVersion: kubeflow.org/v1, kind: MPIJob}", "only v2beta1"}};
    struct manifest m;
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof docs / sizeof *docs; i++) {
        cJSON *doc = doc_of(docs[i][0]);
        assert_int_equal(manifest_read(doc, NULL, NULL, &m, &e), E_NOTIMPL);
        assert_string_equal(e.field, "kind");
        if (!strstr(e.text, docs[i][1]))
            fail_msg("%s", e.text);
        cJSON_Delete(doc);
    }
}

/* ---- its Workload ---- */
static struct object *made_of(cJSON *j, struct err *e)
{
    struct object *o = NULL;

    if (object_from_json(kind_by_id(KIND_WORKLOAD), j, DECODE_USER, &o, e))
        fail_msg("%s: %s", e->field, e->text);
    return o;
}

static cJSON *workload_of(const char *yaml)
{
    cJSON *doc = doc_of(yaml), *j = NULL;
    struct err e;

    if (manifest_workload(doc, NULL, NULL, &j, &e))
        fail_msg("%s: %s", e.field, e.text);
    cJSON_Delete(doc);
    return j;
}

static void is(const cJSON *j, const char *wanted)
{
    AUTO_BUF b;

    buf_init(&b, 65536);
    json_print_tree(j, &b);
    assert_string_equal(b.p, wanted);
}

#define CARRIED                                                                                    \
    "{apiVersion: batch/v1, kind: Job, metadata: {name: train, namespace: team, labels: {a: b, "   \
    "hanse.dev/queue: vision}}, spec: {parallelism: 2, completions: 2, backoffLimit: 3, suspend: " \
    "true, ttlSecondsAfterFinished: 60, template: {spec: {containers: [{name: a, image: i, "       \
    "resources: {limits: {cpu: 4, memory: 16Gi, nvidia.com/gpu: 8}}}]}}}}"

static void a_workload_carries_it_whole(void **state)
{
    cJSON *j = workload_of(CARRIED);
    struct object *o;
    struct err e;

    (void)state;
    is(j,
       "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Workload\",\"metadata\":{\"name\":"
       "\"train\",\"namespace\":\"team\",\"labels\":{\"a\":\"b\"}},\"spec\":{\"queue\":"
       "\"vision\",\"gang\":{\"workers\":2},\"resources\":{\"gpu\":{\"count\":8},\"cpu\":\"4\","
       "\"memory\":\"16Gi\"},\"run\":{\"manifest\":{\"apiVersion\":\"batch/v1\",\"kind\":\"Job\","
       "\"metadata\":{\"name\":\"train\",\"namespace\":\"team\",\"labels\":{\"a\":\"b\","
       "\"hanse.dev/queue\":\"vision\"}},\"spec\":{\"parallelism\":2,\"completions\":2,"
       "\"backoffLimit\":3,\"ttlSecondsAfterFinished\":60,\"template\":{\"spec\":{\"containers\":[{"
       "\"name\":\"a\",\"image\":\"i\",\"resources\":{\"limits\":{\"cpu\":4,\"memory\":\"16Gi\","
       "\"nvidia.com/"
       "gpu\":8}}}]}}}},\"retries\":3},\"ttlSecondsAfterFinished\":60,\"suspend\":true}"
       "}");
    o = made_of(j, &e);
    assert_int_equal(object_validate(o, &e), 0);
    assert_int_equal(object_admit(NULL, o, &e), 0);
    assert_int_equal(manifest_admit(NULL, o, &e), 0);
    (void)object_unref(o);
    cJSON_Delete(j);
}

static void admits(const char *path, const char *value, const char *field)
{
    cJSON *j = workload_of(CARRIED), *at = j, *v = cJSON_Parse(value);
    char name[128];
    struct object *o;
    struct err e = {0};

    assert_non_null(v);
    for (const char *s = path; *s;) {
        size_t n = strcspn(s, ".");
        (void)snprintf(name, sizeof name, "%.*s", (int)n, s);
        s += n + (s[n] == '.');
        if (*s && !cJSON_GetObjectItemCaseSensitive(at, name))
            cJSON_AddObjectToObject(at, name);
        if (*s)
            at = cJSON_GetObjectItemCaseSensitive(at, name);
    }
    cJSON_DeleteItemFromObjectCaseSensitive(at, name);
    cJSON_AddItemToObject(at, name, v);
    o = made_of(j, &e);
    assert_int_equal(manifest_admit(NULL, o, &e), field ? E_INVALID : 0);
    if (field && strcmp(e.field, field) != 0)
        fail_msg("%s: %s", e.field, e.text);
    assert_int_equal(manifest_admit(o, o, &e), 0); /* what is there stays */
    (void)object_unref(o);
    cJSON_Delete(j);
}

static void what_is_placed_is_what_its_pods_ask_for(void **state)
{
    (void)state;
    admits("spec.resources.cpu", "\"4\"", NULL);
    admits("spec.resources.cpu", "\"8\"", NULL);
    admits("spec.resources.cpu", "\"3900m\"", "spec.resources.cpu");
    admits("spec.resources.memory", "\"15Gi\"", "spec.resources.memory");
    admits("spec.resources.gpu.count", "4", "spec.resources.gpu");
    admits("spec.resources.gpu.count", "16", "spec.resources.gpu");
    admits("spec.resources.gpu", "{\"mig\":\"1g.10gb\"}", "spec.resources.gpu");
    admits("spec.resources.gpu", "{\"fraction\":0.5}", "spec.resources.gpu");
    admits("spec.resources.gpu.classes", "[\"h100\"]", NULL);
    admits("spec.gang.workers", "1", "spec.gang.workers");
    admits("spec.gang.minWorkers", "1", "spec.gang.minWorkers");
    admits("spec.gang.minWorkers", "2", NULL);
    admits("spec.checkpoint", "{\"store\":\"/c\"}", "spec.checkpoint");
    admits("spec.partition", "{\"mode\":\"replace\"}", "spec.partition");
    admits("spec.partition", "{\"mode\":\"wait\"}", NULL);
    admits("spec.run.args", "[\"a\"]", "spec.run.args");
    admits("spec.run.workingDir", "\"/w\"", "spec.run.workingDir");
    admits("spec.run.env", "[{\"name\":\"A\",\"value\":\"b\"}]", NULL);
    admits("spec.run.manifest.spec.suspend", "true", "spec.run.manifest");
    admits("spec.run.manifest.kind", "\"Pod\"", "spec.run.manifest");
    admits("spec.run.manifest.spec.template.spec.hostPID", "true", "spec.run.manifest");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_pods_ask_for_is_counted),
                                       cmocka_unit_test(what_a_cluster_has_written_goes),
                                       cmocka_unit_test(what_would_mean_something_else_is_refused),
                                       cmocka_unit_test(what_is_left_out_is_told),
                                       cmocka_unit_test(all_that_is_refused_is_told_at_once),
                                       cmocka_unit_test(what_is_not_known_is_named),
                                       cmocka_unit_test(why_some_never_can_is_told),
                                       cmocka_unit_test(a_workload_carries_it_whole),
                                       cmocka_unit_test(what_is_placed_is_what_its_pods_ask_for)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
