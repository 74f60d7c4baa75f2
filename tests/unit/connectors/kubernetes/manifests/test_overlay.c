/* A Job of others as the Job of a run: what of it stays, what the driver puts in so that it runs
 * once and its end is proved, and what is not started. */
#include "connectors/kubernetes/runs/runs_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <stdio.h>
#include <string.h>

static struct world {
    struct connector base;
    struct kube_runs_env env;
    struct arena *arena;
    struct object *target;
    struct assignment at[2];
    struct placement placement;
    struct run_order order;
    struct kube_manifest m;
    char manifest[4096];
} W;

static const char *resource(struct connector *base, const char *node, const char *mig,
                            int64_t shares)
{
    (void)base;
    (void)node;
    (void)mig;
    (void)shares;
    return "nvidia.com/gpu";
}

static void manifest(const char *spec, const char *pod)
{
    (void)snprintf(
        W.manifest, sizeof W.manifest,
        "{\"apiVersion\":\"batch/v1\",\"kind\":\"Job\",\"metadata\":{\"name\":\"theirs\","
        "\"labels\":{\"a\":\"b\",\"kueue.x-k8s.io/queue-name\":\"q\"},\"annotations\":{"
        "\"c\":\"d\"}},\"spec\":{%s\"parallelism\":2,\"completions\":2,\"backoffLimit\":6,"
        "\"ttlSecondsAfterFinished\":1,\"selector\":{},\"template\":{\"metadata\":{"
        "\"labels\":{\"e\":\"f\",\"controller-uid\":\"u\"}},\"spec\":{%s"
        "\"restartPolicy\":\"OnFailure\",\"priorityClassName\":\"theirs\",\"tolerations\":["
        "{\"key\":\"own\"}],\"containers\":[{\"name\":\"train\",\"image\":\"i\",\"command\":["
        "\"python\",\"$(HOME)\"],\"env\":[{\"name\":\"A\",\"value\":\"theirs\"},{\"name\":"
        "\"B\",\"value\":\"theirs\"},{\"name\":\"MASTER_PORT\",\"value\":\"1\"}],\"resources\":{"
        "\"limits\":{\"nvidia.com/gpu\":2}}},{\"name\":\"log\",\"image\":\"j\"}]}}}}",
        spec, pod);
    W.order.manifest = W.manifest;
}

static int begin(void **state)
{
    static const char *const env[] = {"A=1", NULL};
    static const char text[] =
        "{\"apiVersion\":\"hanse.dev/"
        "v1alpha1\",\"kind\":\"Target\",\"metadata\":{\"name\":\"kube\"},"
        "\"spec\":{\"type\":\"kubernetes\",\"tier\":\"hub\",\"connection\":{\"server\":\"https://"
        "k:1\","
        "\"credentialsFrom\":{\"secret\":\"s\"},\"runners\":true},\"kubernetes\":{\"runner\":{"
        "\"image\":"
        "\"r\"},\"serviceAccountName\":\"runs\",\"queue\":\"lq\",\"podLabels\":{\"site\":\"x\"},"
        "\"priorityClasses\":[{\"priorityClassName\":\"high\",\"as\":\"site-high\"}],"
        "\"imagePullSecrets\":[\"pull\"],\"tolerations\":[{\"key\":\"site\"}]}}}";
    cJSON *j = cJSON_Parse(text);
    struct err e;

    (void)state;
    W = (struct world){.arena = arena_create(0)};
    str_copy(W.base.target, sizeof W.base.target, "kube");
    kube_rig_env(NULL, &W.base.env);
    if (object_from_json(kind_by_id(KIND_TARGET), j, 0, &W.target, &e))
        fail_msg("%s: %s", e.field, e.text);
    cJSON_Delete(j);
    W.env = (struct kube_runs_env){.base = &W.base, .resource = resource, .doc = W.target};
    W.at[0] = (struct assignment){.rank = 0, .node = "kube.n1", .mig = "", .count = 2};
    W.at[1] = (struct assignment){.rank = 1, .node = "kube.n2", .mig = "", .count = 2};
    W.placement = (struct placement){
        .target = "kube", .class_ = "h100", .assignments = W.at, .n_assignments = 2};
    W.order = (struct run_order){.key = {.uid = "u", .epoch = 3, .try_ = 2},
                                 .ns = "team",
                                 .name = "job",
                                 .priority_class = "high",
                                 .principal = "",
                                 .placement = &W.placement,
                                 .image = "",
                                 .script = "",
                                 .cwd = "",
                                 .env = env,
                                 .signal = "",
                                 .save_signal = "",
                                 .document = "",
                                 .grace_ms = 30000,
                                 .checkpoint_dir = "",
                                 .resume_path = "",
                                 .resume_digest = "",
                                 .log_base = ""};
    manifest("", "");
    return 0;
}

static int end(void **state)
{
    (void)state;
    kube_manifest_clear(&W.m);
    (void)object_unref(W.target);
    (void)arena_destroy(W.arena);
    return 0;
}

static const cJSON *at(const char *path)
{
    return kube_at(W.m.job, path);
}

static void is(const cJSON *o, const char *wanted)
{
    char *text = cJSON_PrintUnformatted(o);

    assert_string_equal(text ? text : "nothing", wanted);
    cJSON_free(text);
}

static void make(void)
{
    struct err e;

    kube_manifest_clear(&W.m);
    if (kube_manifest_make(&W.env, &W.order, W.arena, &W.m, &e) < 0)
        fail_msg("%s: %s", e.field, e.text);
}

static void a_job_of_others_runs_once(void **state)
{
    (void)state;
    make();
    assert_string_equal(W.m.name, "hanse-u-3-2");
    is(at("metadata.labels"), "{\"hanse.dev/key\":\"u.3.2\","
                              "\"app.kubernetes.io/managed-by\":\"hanse\",\"a\":\"b\","
                              "\"kueue.x-k8s.io/queue-name\":\"lq\"}");
    assert_string_equal(kube_annotation(W.m.job, "c"), "d");
    assert_string_equal(kube_annotation(W.m.job, KUBE_NODES_ANNOTATION), "n1 n2");
    is(at("metadata.finalizers"), "[\"hanse.dev/run\"]");
    is(at("spec.backoffLimit"), "0");
    is(at("spec.podReplacementPolicy"), "\"Failed\"");
    is(at("spec.completionMode"), "\"Indexed\"");
    is(at("spec.completions"), "2");
    assert_null(at("spec.ttlSecondsAfterFinished"));
    assert_null(at("spec.selector"));
    assert_non_null(W.m.service);
    assert_non_null(W.m.secret);
    assert_null(kube_at(kube_at(W.m.secret, "data"), "token-0"));
}

static void its_pods_are_held_and_gated(void **state)
{
    const cJSON *template, *pod;

    (void)state;
    manifest("\"suspend\":false,",
             "\"schedulingGates\":[{\"name\":\"x/y\"}],\"imagePullSecrets\":[{\"name\":\"own\"}],");
    make();
    template = at("spec.template");
    pod = kube_at(template, "spec");
    is(kube_at(template, "metadata.labels"),
       "{\"e\":\"f\",\"site\":\"x\",\"hanse.dev/key\":\"u.3.2\","
       "\"app.kubernetes.io/managed-by\":\"hanse\"}");
    is(kube_at(template, "metadata.finalizers"), "[\"hanse.dev/run\"]");
    assert_string_equal(kube_annotation(template, KUBE_CONTAINERS_ANNOTATION), "train,log");
    assert_string_equal(kube_annotation(template, KUBE_MARK_ANNOTATION),
                        kube_annotation(W.m.job, KUBE_MARK_ANNOTATION));
    is(kube_at(pod, "schedulingGates"), "[{\"name\":\"hanse.dev/run\"},{\"name\":\"x/y\"}]");
    is(kube_at(pod, "restartPolicy"), "\"Never\"");
    is(kube_at(pod, "automountServiceAccountToken"), "false");
    is(kube_at(pod, "serviceAccountName"), "\"runs\"");
    is(kube_at(pod, "priorityClassName"), "\"site-high\"");
    is(kube_at(pod, "imagePullSecrets"), "[{\"name\":\"own\"},{\"name\":\"pull\"}]");
    assert_string_equal(kube_text(pod, "subdomain"), W.m.beside);
    assert_string_equal(kube_text(W.m.service, "metadata.name"), W.m.beside);
    assert_int_equal(cJSON_GetArraySize(kube_at(pod, "tolerations")), 6);
    is(cJSON_GetArrayItem(kube_at(pod, "tolerations"), 1), "{\"key\":\"site\"}");
}

/* Programs stay as they are: neither a runner nor anybody's words come between. */
static void its_programs_stay_as_they_are(void **state)
{
    const cJSON *c;

    (void)state;
    make();
    c = cJSON_GetArrayItem(at("spec.template.spec.containers"), 0);
    is(kube_at(c, "command"), "[\"python\",\"$(HOME)\"]");
    is(kube_at(c, "resources"), "{\"limits\":{\"nvidia.com/gpu\":2}}");
    is(cJSON_GetArrayItem(kube_at(c, "env"), 0), "{\"name\":\"B\",\"value\":\"theirs\"}");
    is(cJSON_GetArrayItem(kube_at(c, "env"), 1), "{\"name\":\"MASTER_PORT\",\"value\":\"1\"}");
    assert_string_equal(kube_text(cJSON_GetArrayItem(kube_at(c, "env"), 2), "value"),
                        arena_printf(W.arena, "hanse-u-3-2-0.%s.team.svc", W.m.beside));
    c = cJSON_GetArrayItem(kube_at(c, "env"), 3);
    assert_string_equal(kube_text(c, "name"), "A");
    assert_string_equal(kube_text(c, "valueFrom.secretKeyRef.name"), W.m.beside);
    assert_null(at("spec.template.spec.initContainers"));
    assert_null(at("spec.template.spec.volumes"));
}

static void refused(int code, const char *word)
{
    struct err e = {0};

    kube_manifest_clear(&W.m);
    assert_int_equal(kube_manifest_make(&W.env, &W.order, W.arena, &W.m, &e), code);
    assert_string_equal(e.field, "spec.run.manifest");
    if (!strstr(e.text, word))
        fail_msg("%s", e.text);
    assert_null(W.m.job);
    assert_null(W.m.secret);
}

static void what_does_not_fit_is_not_started(void **state)
{
    (void)state;
    W.placement.n_assignments = 1;
    refused(E_INVALID, "2 pods, and 1 are placed");
    W.placement.n_assignments = 2;
    W.at[0].count = W.at[1].count = 1;
    refused(E_NOTIMPL, "ask for 2 nvidia.com/gpu, and the nodes that were chosen give 1");
    W.at[0].count = W.at[1].count = 2;
    W.order.claims = true;
    refused(E_NOTIMPL, "without a runner");
    W.order.claims = false;
    manifest("", "\"hostNetwork\":true,");
    refused(E_NOTIMPL, "spec.template.spec.hostNetwork");
    W.order.manifest = "{";
    refused(E_NOTIMPL, "");
    W.order.manifest = "[1]";
    refused(E_NOTIMPL, "kind");
}

/* ---- what its pods prove ---- */
#define SEEN(conditions, statuses)                                                                 \
    "{\"metadata\":{\"labels\":{\"" KUBE_INDEX_LABEL "\":\"1\"},\"annotations\":{"                 \
    "\"" KUBE_CONTAINERS_ANNOTATION "\":\"train,log\"}},\"spec\":{\"nodeName\":\"n1\","            \
    "\"terminationGracePeriodSeconds\":600,\"containers\":[{\"name\":\"train\"},{\"name\":"        \
    "\"log\"},"                                                                                    \
    "{\"name\":\"mesh\"}]},\"status\":{" conditions "\"containerStatuses\":[" statuses "]}}"
#define CONTAINER(name, state) "{\"name\":\"" name "\",\"state\":{" state "}}"
#define RUNS "\"running\":{\"startedAt\":\"2026-11-28T02:00:01Z\"}"
#define WAITS "\"waiting\":{\"reason\":\"PodInitializing\"}"
#define OVER(code)                                                                                 \
    "\"terminated\":{\"exitCode\":" #code ",\"message\":\"last words\",\"finishedAt\":"            \
    "\"2026-11-28T02:00:09Z\"}"
#define FAILED                                                                                     \
    "\"phase\":\"Failed\",\"conditions\":[{\"type\":\"ContainersReady\",\"status\":\"False\","     \
    "\"reason\":\"PodFailed\"}],"
#define LIVES "\"phase\":\"Running\","

static void what_its_pods_prove(void **state)
{
    static const struct {
        const char *json;
        enum kube_pod_is is;
        int exit_code;
        bool over_alone;
        const char *message;
    } rows[] = {
        {SEEN(LIVES, CONTAINER("train", RUNS) "," CONTAINER("log", RUNS)), POD_RUNS, 0, false, ""},
        {SEEN(LIVES, CONTAINER("train", OVER(0)) "," CONTAINER("log", RUNS)), POD_RUNS, 0, false,
         ""},
        {SEEN(LIVES, CONTAINER("train", WAITS) "," CONTAINER("log", RUNS)), POD_RUNS, 0, false, ""},
        {SEEN(LIVES, CONTAINER("train", OVER(0)) "," CONTAINER("log", OVER(0)) "," CONTAINER("mesh",
                                                                                             RUNS)),
         POD_RUNS, 0, true, ""},
        {SEEN(LIVES,
              CONTAINER("mesh", RUNS) "," CONTAINER("train", WAITS) "," CONTAINER("log", WAITS)),
         POD_STARTS, 0, false, ""},
        {SEEN(FAILED, CONTAINER("train", OVER(0)) "," CONTAINER("log", OVER(3)) "," CONTAINER(
                          "mesh", OVER(0))),
         POD_ENDED, 3, false, "last words"},
        {SEEN(FAILED, CONTAINER("log", OVER(0)) "," CONTAINER("train", OVER(9)) "," CONTAINER(
                          "mesh", OVER(0))),
         POD_ENDED, 9, false, "last words"},
        /* one ran, and the other never began: that is an end, and no word that nothing ran */
        {SEEN(FAILED, CONTAINER("train", WAITS) "," CONTAINER("log", OVER(0)) "," CONTAINER(
                          "mesh", OVER(0))),
         POD_ENDED, 1, false, "a container of it never began"},
        {SEEN(FAILED, CONTAINER("train", WAITS) "," CONTAINER("log", WAITS)), POD_NEVER, 0, false,
         ""},
        {SEEN("\"phase\":\"Failed\",", CONTAINER("train", RUNS) "," CONTAINER("log", OVER(0))),
         POD_LOST, 0, false,
         "its object is over, and its kubelet has not said that its containers "
         "are"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *pod = cJSON_Parse(rows[i].json);
        struct kube_pod_seen s;
        assert_non_null(pod);
        kube_pod_read(pod, &s);
        if (s.is != rows[i].is || s.exit_code != rows[i].exit_code ||
            s.over_alone != rows[i].over_alone || strcmp(s.message, rows[i].message) != 0)
            fail_msg("row %zu: %d, exit %d, %s", i, s.is, s.exit_code, s.message);
        assert_int_equal(s.grace_s, 600);
        assert_string_equal(kube_pod_left(pod), "");
        cJSON_Delete(pod);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void)
{
    const struct CMUnitTest tests[] = {T(a_job_of_others_runs_once), T(its_pods_are_held_and_gated),
                                       T(its_programs_stay_as_they_are),
                                       T(what_does_not_fit_is_not_started), T(what_its_pods_prove)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
