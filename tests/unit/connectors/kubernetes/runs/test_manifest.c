/* An order as a Job with its Secret and Service: what is carried over, and what is refused. */
#include "connectors/kubernetes/nodes/nodes_internal.h"
#include "connectors/kubernetes/runs/runs_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <openssl/evp.h>
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
    const char *resource;
    bool home;
} W;

static const char *resource(struct connector *base, const char *node, const char *mig,
                            int64_t shares)
{
    (void)base;
    assert_string_equal(node, "kube.n1");
    return *mig ? "nvidia.com/mig-1g.10gb" : shares ? "nvidia.com/gpu.shared" : W.resource;
}

static bool home(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
                 struct home_order *ret)
{
    static const char *addresses[] = {"h1:7443", "h2:7443"};

    (void)arg;
    (void)k;
    ret->addresses = addresses;
    ret->n_addresses = 2;
    ret->ca = "CA";
    ret->tokens = arena_array(a, const char *, ranks);
    for (uint32_t i = 0; i < ranks; i++)
        ret->tokens[i] = arena_printf(a, "token of %u", i);
    ret->n_tokens = ranks;
    ret->proxy = "http://p:1";
    ret->proxy_login = "u:p";
    return W.home;
}

static void target(const char *connection, const char *kubernetes)
{
    char text[4000];
    struct err e;

    (void)snprintf(text, sizeof text,
                   "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{"
                   "\"name\":\"kube\"},\"spec\":{\"type\":\"kubernetes\",\"tier\":\"hub\","
                   "\"connection\":{%s\"server\":\"https://k:1\",\"credentialsFrom\":{\"secret\":"
                   "\"s\"}},\"kubernetes\":{%s}}}",
                   connection, kubernetes);
    cJSON *j = cJSON_Parse(text);
    assert_non_null(j);
    W.target = object_unref(W.target);
    if (object_from_json(kind_by_id(KIND_TARGET), j, 0, &W.target, &e))
        fail_msg("%s: %s", e.field, e.text);
    cJSON_Delete(j);
    W.env.doc = W.target;
}

#define RUNNER "\"runner\":{\"image\":\"runner:1\"}"

static int begin(void **state)
{
    static const char *const argv[] = {"train", "$HOME", "$(HOME)", "a b", NULL};
    static const char *const env[] = {"A=1", "B=x=y", "A=2", NULL};

    (void)state;
    W = (struct world){.resource = "nvidia.com/gpu", .home = true};
    W.arena = arena_create(0);
    str_copy(W.base.target, sizeof W.base.target, "kube");
    kube_rig_env(NULL, &W.base.env);
    W.base.env.home = home;
    W.env = (struct kube_runs_env){.base = &W.base, .resource = resource};
    target("", RUNNER);
    W.at[0] = (struct assignment){.rank = 0, .node = "kube.n1", .mig = "", .count = 2};
    W.at[1] = (struct assignment){.rank = 1, .node = "kube.n1", .mig = "", .count = 2};
    W.placement = (struct placement){
        .target = "kube", .class_ = "h100", .assignments = W.at, .n_assignments = 1};
    W.order = (struct run_order){.key = {.uid = "u", .epoch = 3, .try_ = 2},
                                 .ns = "team",
                                 .name = "job",
                                 .priority_class = "high",
                                 .principal = "",
                                 .placement = &W.placement,
                                 .image = "img:1",
                                 .argv = argv,
                                 .script = "",
                                 .cwd = "/work",
                                 .env = env,
                                 .cpu_milli = 1500,
                                 .memory_bytes = 1 << 30,
                                 .gpus = 2,
                                 .signal = "",
                                 .save_signal = "",
                                 .document = "",
                                 .grace_ms = 30000,
                                 .checkpoint_dir = "",
                                 .resume_path = "",
                                 .resume_digest = "",
                                 .log_base = ""};
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

static void make(void)
{
    struct err e;

    kube_manifest_clear(&W.m);
    if (kube_manifest_make(&W.env, &W.order, W.arena, &W.m, &e) < 0)
        fail_msg("%s: %s", e.field, e.text);
}

static const cJSON *pod(const char *path)
{
    return kube_at(kube_at(W.m.job, "spec.template.spec"), path);
}

static const cJSON *first(const char *list)
{
    return cJSON_GetArrayItem(pod(list), 0);
}

/* As JSON, so that all of it is compared. */
static void is(const cJSON *o, const char *wanted)
{
    char *text = cJSON_PrintUnformatted(o);

    assert_string_equal(text ? text : "nothing", wanted);
    cJSON_free(text);
}

static const char *secret_of(const char *key)
{
    static char ret[2000];
    const char *text = kube_text(cJSON_GetObjectItemCaseSensitive(W.m.secret, "data"), key);
    int n = EVP_DecodeBlock((unsigned char *)ret, (const unsigned char *)text, (int)strlen(text));

    assert_true(n >= 0);
    ret[n] = '\0';
    return ret;
}

static void refused(int code, const char *field, const char *word)
{
    struct err e;

    assert_int_equal(kube_manifest_make(&W.env, &W.order, W.arena, &W.m, &e), code);
    assert_string_equal(e.field, field);
    assert_non_null(strstr(e.text, word));
    assert_null(W.m.job);
    assert_null(W.m.secret);
}

/* ---- what is carried over ---- */
static void an_order_is_a_job_that_runs_once(void **state)
{
    (void)state;
    make();
    assert_string_equal(W.m.ns, "team");
    assert_string_equal(W.m.name, "hanse-u-3-2");
    assert_null(W.m.service);
    is(kube_at(W.m.job, "metadata.finalizers"), "[\"hanse.dev/run\"]");
    is(kube_at(W.m.job, "spec.backoffLimit"), "0");
    is(kube_at(W.m.job, "spec.completionMode"), "\"Indexed\"");
    is(kube_at(W.m.job, "spec.podReplacementPolicy"), "\"Failed\"");
    is(kube_at(W.m.job, "spec.completions"), "1");
    is(kube_at(W.m.job, "spec.template.metadata.finalizers"), "[\"hanse.dev/run\"]");
    assert_string_equal(kube_label(kube_at(W.m.job, "spec.template"), KUBE_RUN_LABEL), "u.3.2");
    assert_string_equal(kube_annotation(W.m.job, KUBE_NODES_ANNOTATION), "n1");
    is(pod("schedulingGates"), "[{\"name\":\"hanse.dev/run\"}]");
    is(pod("restartPolicy"), "\"Never\"");
    is(pod("automountServiceAccountToken"), "false");
    is(pod("terminationGracePeriodSeconds"), "40");
    is(kube_at(first("containers"), "resources"),
       "{\"limits\":{\"memory\":\"1073741824\",\"nvidia.com/gpu\":\"2\"},\"requests\":{\"cpu\":"
       "\"1500m\",\"memory\":\"1073741824\",\"nvidia.com/gpu\":\"2\"}}");
    is(kube_at(first("initContainers"), "resources"),
       "{\"limits\":{\"memory\":\"1073741824\"},\"requests\":{\"cpu\":\"1500m\",\"memory\":"
       "\"1073741824\"}}");
    is(kube_at(first("containers"), "workingDir"), "\"/work\"");
    is(kube_at(first("containers"), "image"), "\"img:1\"");
    is(kube_at(first("initContainers"), "image"), "\"runner:1\"");
    is(first("tolerations"), "{\"key\":\"nvidia.com/gpu\",\"operator\":\"Exists\"}");
}

/* Where a run without devices was placed its pods may go: the inventory takes taints of devices
 * for tolerated, and its pods tolerate all of those. */
static void no_taint_of_devices_keeps_it_off(void **state)
{
    static const char *const taints[] = {"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915",
                                         "gpu.intel.com/xe"};

    (void)state;
    for (int devices = 2; devices >= 0; devices -= 2) {
        W.at[0].count = W.order.gpus = devices;
        make();
        assert_int_equal(cJSON_GetArraySize(pod("tolerations")), 4);
        for (int i = 0; i < 4; i++) {
            const cJSON *t = cJSON_GetArrayItem(pod("tolerations"), i);
            assert_true(kube_device_taint(taints[i]));
            assert_string_equal(kube_text(t, "key"), taints[i]);
            assert_string_equal(kube_text(t, "operator"), "Exists");
        }
    }
}

/* Kubernetes puts nothing in place of what looks like a variable. */
static void a_command_stays_as_it_is(void **state)
{
    (void)state;
    make();
    is(kube_at(first("containers"), "command"),
       "[\"/.hanse/bin/hanse-run\",\"--installed\",\"/.hanse\",\"--report\","
       "\"termination-message\",\"--grace\",\"30000\",\"--\",\"train\",\"$$HOME\",\"$$(HOME)\","
       "\"a b\"]");
    W.order.script = "#!/usr/bin/python3 -u\nprint(1)\n";
    W.order.start_from_ms = 5;
    W.order.start_by_ms = 9;
    make();
    is(kube_at(first("containers"), "command"),
       "[\"/.hanse/bin/hanse-run\",\"--installed\",\"/.hanse\",\"--report\","
       "\"termination-message\",\"--grace\",\"30000\",\"--start-from\",\"5\",\"--start-by\",\"9\","
       "\"--\",\"/usr/bin/python3\",\"-u\",\"/.hanse/bin/script\",\"train\",\"$$HOME\","
       "\"$$(HOME)\",\"a b\"]");
    assert_string_equal(secret_of("script"), W.order.script);
}

/* What is secret is in the Secret alone; of a name that comes twice the last one counts. */
static void an_environment_is_by_reference(void **state)
{
    char *text;

    (void)state;
    make();
    const cJSON *env = cJSON_GetArrayItem(kube_at(first("containers"), "env"), 0);
    assert_string_equal(kube_text(env, "name"), "B");
    assert_string_equal(kube_text(env, "valueFrom.secretKeyRef.name"), W.m.beside);
    assert_string_equal(kube_text(env, "valueFrom.secretKeyRef.key"), "env-1");
    assert_string_equal(kube_text(W.m.secret, "metadata.name"), W.m.beside);
    assert_string_equal(secret_of("env-1"), "x=y");
    assert_string_equal(secret_of("env-2"), "2");
    assert_string_equal(secret_of("env-0"), "");
    text = cJSON_PrintUnformatted(W.m.job);
    assert_null(strstr(text, "x=y"));
    assert_null(strstr(text, secret_of("token-0")));
    cJSON_free(text);
    is(kube_at(W.m.secret, "immutable"), "true");
    is(kube_at(first("containers"), "volumeMounts"), "[{\"name\":\"hanse\",\"mountPath\":"
                                                     "\"/.hanse\"}]");
}

static void a_gang_finds_its_first_rank(void **state)
{
    (void)state;
    W.placement.n_assignments = 2;
    make();
    is(kube_at(W.m.service, "spec"), "{\"clusterIP\":\"None\",\"publishNotReadyAddresses\":true,"
                                     "\"selector\":{\"hanse.dev/key\":\"u.3.2\"}}");
    char address[160];
    (void)snprintf(address, sizeof address, "hanse-u-3-2-0.%s.team.svc", W.m.beside);
    assert_string_equal(pod("subdomain")->valuestring, W.m.beside);
    assert_string_equal(kube_text(W.m.service, "metadata.name"), W.m.beside);
    is(kube_at(W.m.job, "spec.parallelism"), "2");
    const cJSON *meet = cJSON_GetArrayItem(kube_at(first("containers"), "env"), 0);
    assert_string_equal(kube_text(meet, "name"), "MASTER_ADDR");
    assert_string_equal(kube_text(meet, "value"), address);
    assert_string_equal(kube_annotation(W.m.job, KUBE_NODES_ANNOTATION), "n1*2");
    assert_true(*secret_of("token-1") != '\0');
}

static void runners_that_call_home_are_told_the_way(void **state)
{
    (void)state;
    target("\"runners\":true,", RUNNER);
    make();
    is(kube_at(first("containers"), "command"),
       "[\"/.hanse/bin/hanse-run\",\"--installed\",\"/.hanse\",\"--home\",\"h1:7443,h2:7443\","
       "\"--home-proxy\",\"http://p:1\",\"--report\",\"termination-message\",\"--grace\","
       "\"30000\",\"--\",\"train\",\"$$HOME\",\"$$(HOME)\",\"a b\"]");
    assert_string_equal(secret_of("token-0"), "token of 0");
    assert_string_equal(secret_of("ca"), "CA");
    assert_string_equal(secret_of("proxy"), "u:p");
    W.home = false;
    kube_manifest_clear(&W.m);
    refused(E_UNAVAIL, "spec.connection.runners", "call home");
}

static void a_target_says_how_pods_are(void **state)
{
    (void)state;
    target("\"namespace\":\"all\",",
           RUNNER ",\"namespaces\":[{\"namespace\":\"team\",\"as\":\"ml-team\"}],"
                  "\"serviceAccountName\":\"sa\",\"imagePullSecrets\":[\"pull\"],"
                  "\"priorityClasses\":[{\"priorityClassName\":\"high\",\"as\":\"p1\"}],"
                  "\"queue\":\"lq\",\"schedulerName\":\"sched\","
                  "\"tolerations\":[{\"key\":\"team\",\"operator\":\"Exists\"}],"
                  "\"podLabels\":{\"a\":\"b\",\"hanse.dev/key\":\"mine\"},"
                  "\"volumes\":[{\"path\":\"/ck\",\"claim\":\"c1\"}]");
    make();
    assert_string_equal(W.m.ns, "ml-team");
    is(pod("serviceAccountName"), "\"sa\"");
    is(pod("imagePullSecrets"), "[{\"name\":\"pull\"}]");
    is(pod("priorityClassName"), "\"p1\"");
    is(pod("schedulerName"), "\"sched\"");
    is(first("tolerations"), "{\"key\":\"team\",\"operator\":\"Exists\"}");
    is(kube_at(W.m.job, "spec.template.metadata.labels"),
       "{\"a\":\"b\",\"hanse.dev/key\":\"u.3.2\",\"app.kubernetes.io/managed-by\":\"hanse\"}");
    assert_string_equal(kube_label(W.m.job, "kueue.x-k8s.io/queue-name"), "lq");
    is(cJSON_GetArrayItem(pod("volumes"), 2),
       "{\"name\":\"volume-0\",\"persistentVolumeClaim\":{\"claimName\":\"c1\"}}");
    is(cJSON_GetArrayItem(kube_at(first("containers"), "volumeMounts"), 1),
       "{\"name\":\"volume-0\",\"mountPath\":\"/ck\"}");
    W.order.ns = "other";
    make();
    assert_string_equal(W.m.ns, "all");
}

static void pods_are_as_restricted_as_the_target_asks(void **state)
{
    (void)state;
    target("", RUNNER ",\"podSecurity\":\"restricted\"");
    make();
    is(pod("securityContext"),
       "{\"runAsNonRoot\":true,\"seccompProfile\":{\"type\":\"RuntimeDefault\"}}");
    is(kube_at(first("containers"), "securityContext"),
       "{\"capabilities\":{\"drop\":[\"ALL\"]},\"allowPrivilegeEscalation\":false}");
    is(kube_at(first("initContainers"), "securityContext"),
       "{\"capabilities\":{\"drop\":[\"ALL\"]},\"allowPrivilegeEscalation\":false,"
       "\"runAsUser\":65532}");
    target("", RUNNER ",\"podSecurity\":\"restricted\",\"runAsUser\":1000,\"runAsGroup\":100,"
                      "\"fsGroup\":200");
    make();
    is(pod("securityContext"),
       "{\"runAsUser\":1000,\"runAsGroup\":100,\"fsGroup\":200,\"runAsNonRoot\":true,"
       "\"seccompProfile\":{\"type\":\"RuntimeDefault\"}}");
    assert_null(kube_at(first("initContainers"), "securityContext.runAsUser"));
    target("", RUNNER ",\"podSecurity\":\"baseline\",\"runAsUser\":1000");
    make();
    is(pod("securityContext"), "{\"runAsUser\":1000}");
    assert_null(kube_at(first("containers"), "securityContext"));
    target("", RUNNER ",\"podSecurity\":\"privileged\"");
    make();
    assert_null(pod("securityContext"));
}

static void a_runner_on_nodes_needs_no_image(void **state)
{
    (void)state;
    target("", "\"image\":\"base\",\"runner\":{\"hostPath\":\"/opt/hanse\"}");
    W.order.image = "";
    make();
    is(kube_at(first("containers"), "image"), "\"base\"");
    is(kube_at(first("initContainers"), "image"), "\"base\"");
    is(kube_at(first("initContainers"), "command"),
       "[\"/.hanse-node/hanse-run\",\"install\",\"--from\",\"/.hanse-secret\",\"--to\","
       "\"/.hanse\"]");
}

static void instances_and_shares_have_resources_of_their_own(void **state)
{
    (void)state;
    W.at[0].mig = "1g.10gb";
    W.at[0].count = 1;
    make();
    is(kube_at(first("containers"), "resources.limits"),
       "{\"memory\":\"1073741824\",\"nvidia.com/mig-1g.10gb\":\"1\"}");
    W.at[0].mig = "";
    W.at[0].shares = 4;
    make();
    is(kube_at(first("containers"), "resources.limits"),
       "{\"memory\":\"1073741824\",\"nvidia.com/gpu.shared\":\"1\"}");
}

/* ---- what is not ---- */
static void what_cannot_be_carried_over_is_refused(void **state)
{
    static const char *const none[] = {NULL}, *const bad[] = {"1A=b", NULL};
    const struct run_order good = W.order;

    (void)state;
    W.order.image = "";
    refused(E_NOTIMPL, "spec.run.image", "image");
    W.order = good;
    W.order.argv = none;
    refused(E_NOTIMPL, "spec.run.command", "without a command");
    W.order = good;
    W.order.env = bad;
    refused(E_INVALID, "spec.run.env", "1A");
    W.order = good;
    W.order.script = "#!\n";
    refused(E_INVALID, "spec.run.script", "#!");
    W.order = good;
    W.order.tenants = TENANTS_NEED_SEPARATE;
    refused(E_NOTIMPL, "spec.isolation.tenants", "separate");
    W.order = good;
    W.order.saves = true;
    W.order.checkpoint_dir = "/ck/u";
    refused(E_NOTIMPL, "spec.kubernetes.volumes", "/ck/u");
    target("", RUNNER ",\"volumes\":[{\"path\":\"/ck\",\"claim\":\"c1\"}]");
    refused(E_NOTIMPL, "spec.checkpoint", "call home");
    W.order = good;
    W.order.claims = true;
    refused(E_UNAVAIL, "spec.connection.runners", "call home");
    W.order = good;
    W.resource = NULL;
    refused(E_UNAVAIL, "", "n1");
    W.resource = "nvidia.com/gpu";
    W.placement.n_assignments = 2;
    W.at[1].count = 3;
    refused(E_NOTIMPL, "", "same devices");
    W.placement.n_assignments = 1;
    target("", "");
    refused(E_NOTIMPL, "spec.kubernetes.runner", "hanse-run");
    W.base.env.keys = NULL;
    target("", RUNNER);
    refused(E_UNAVAIL, "", "keys");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {T(an_order_is_a_job_that_runs_once),
                                       T(no_taint_of_devices_keeps_it_off),
                                       T(a_command_stays_as_it_is),
                                       T(an_environment_is_by_reference),
                                       T(a_gang_finds_its_first_rank),
                                       T(runners_that_call_home_are_told_the_way),
                                       T(a_target_says_how_pods_are),
                                       T(pods_are_as_restricted_as_the_target_asks),
                                       T(a_runner_on_nodes_needs_no_image),
                                       T(instances_and_shares_have_resources_of_their_own),
                                       T(what_cannot_be_carried_over_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
