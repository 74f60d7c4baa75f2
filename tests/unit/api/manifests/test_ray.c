/* A RayJob as a JobSet: its head and workers as parts, the commands that begin ray in them, and
 * what of it cannot be kept. */
#include "api/manifests/manifests.h"
#include "tests/support/unit.h"

#include <cjson/cJSON.h>
#include <string.h>

#define POD(more) "template: {spec: {containers: [{name: ray, image: r" more "}]}}"
#define HEAD_                                                                                      \
    "headGroupSpec: {rayStartParams: {block: 'true'}, " POD(", resources: {limits: {cpu: 4}}") "}"
#define GROUP(more)                                                                                \
    "{groupName: big, replicas: 2, rayStartParams: {num-cpus: '3', log-color: 'true', "            \
    "disable-usage-stats: 'true', no-monitor: 'false'}, " more POD(                                \
        ", resources: {limits: {nvidia.com/gpu: 2}}") "}"
#define RAY(more, groups)                                                                          \
    "{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: r, labels: {a: b}}, spec: {" more      \
    "rayClusterSpec: {" HEAD_ ", workerGroupSpecs: [" groups "]}}}"
#define RUN "entrypoint: 'python it.py', "

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

static int jobset(const char *yaml, cJSON **ret, struct err *e)
{
    cJSON *j = doc_of(yaml);

    assert_true(manifest_is_ray(j));
    *ret = NULL;
    int rc = manifest_ray(j, NULL, NULL, ret, e);
    assert_int_equal(rc != 0, *ret == NULL);
    cJSON_Delete(j);
    return rc;
}

static const cJSON *part(const cJSON *set, int i)
{
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(set, "spec");

    return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(spec, "replicatedJobs"), i);
}

static const cJSON *container(const cJSON *set, int i)
{
    static const char *const path[] = {"template", "spec", "template", "spec", "containers"};
    const cJSON *o = part(set, i);

    for (size_t k = 0; k < sizeof path / sizeof *path; k++)
        o = cJSON_GetObjectItemCaseSensitive(o, path[k]);
    return cJSON_GetArrayItem(o, 0);
}

static const char *script(const cJSON *set, int i)
{
    const cJSON *command = cJSON_GetObjectItemCaseSensitive(container(set, i), "command");

    assert_string_equal(cJSON_GetStringValue(cJSON_GetArrayItem(command, 0)), "/bin/bash");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetArrayItem(command, 1)), "-c");
    return cJSON_GetStringValue(cJSON_GetArrayItem(command, 2));
}

static void has(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("\"%s\" is not in: %s", what, text);
}

static void a_head_and_its_workers(void **state)
{
    struct manifest m;
    struct err e;
    cJSON *set;

    (void)state;
    assert_int_equal(jobset(RAY(RUN "backoffLimit: 2, suspend: true, ", GROUP("")), &set, &e), 0);
    has(script(set, 0),
        "ray start --head --port=6379 --dashboard-host=0.0.0.0 --num-cpus=4 || exit\n");
    has(script(set, 0), "<= 2)"); /* until all of them are there */
    has(script(set, 0), "\nexec ray job submit --address=http://127.0.0.1:8265 -- python it.py");
    has(script(set, 1),
        "exec ray start --block --address=$FQ_RAY_IP:6379 --num-gpus=2 --num-cpus=3 "
        "--log-color=true --disable-usage-stats");
    assert_null(strstr(script(set, 1), "no-monitor"));
    assert_null(strstr(script(set, 0), "--block"));
    assert_int_equal(manifest_read(set, NULL, NULL, &m, &e), 0);
    assert_int_equal(m.workers, 3);
    assert_int_equal(m.n, 2);
    assert_false(m.parts[0].follows);
    assert_true(m.parts[1].follows);
    assert_int_equal(m.asks.devices, 2);
    assert_int_equal(m.retries, 2);
    assert_true(m.suspended);
    cJSON_Delete(set);
}

/* What goes through a shell stays one word. */
static void what_is_submitted(void **state)
{
    struct err e;
    cJSON *set;

    (void)state;
    assert_int_equal(jobset(RAY(RUN "runtimeEnvYAML: \"env_vars: {A: it's, B: '$(x)'}\", "
                                    "entrypointNumCpus: 1, entrypointNumGpus: 0.5, "
                                    "entrypointResources: '{\"x\": 1}', metadata: {u: v}, ",
                                ""),
                            &set, &e),
                     0);
    has(script(set, 0), " --runtime-env-json='{\"env_vars\":{\"A\":\"it'\\''s\",\"B\":\"$(x)\"}}'");
    has(script(set, 0),
        " --metadata-json='{\"u\":\"v\"}' --entrypoint-num-cpus=1 "
        "--entrypoint-num-gpus=0.5 --entrypoint-resources='{\"x\": 1}' -- python it.py");
    cJSON_Delete(set);
}

static void groups(void **state)
{
    struct manifest m;
    struct err e;
    cJSON *set;

    (void)state;
    assert_int_equal(jobset(RAY(RUN, GROUP("numOfHosts: 4, ")), &set, &e), 0);
    assert_int_equal(manifest_read(set, NULL, NULL, &m, &e), 0);
    assert_int_equal(m.workers, 9);
    cJSON_Delete(set);
    assert_int_equal(jobset(RAY(RUN, ""), &set, &e), 0);
    assert_int_equal(manifest_read(set, NULL, NULL, &m, &e), 0);
    assert_int_equal(m.workers, 1);
    cJSON_Delete(set);
}

static void what_cannot_be_kept(void **state)
{
    static const struct {
        const char *yaml, *field, *says;
    } tries[] = {
        {RAY("", GROUP("")), "spec.entrypoint", "is missing"},
        {RAY(RUN "clusterSelector: {a: b}, ", ""), "spec.clusterSelector", "own cluster"},
        {RAY(RUN "submissionMode: InteractiveMode, ", ""), "spec.submissionMode", "say entrypoint"},
        {RAY(RUN "activeDeadlineSeconds: 9, ", ""), "spec.activeDeadlineSeconds", "kubelet"},
        {RAY(RUN "runtimeEnvYAML: '{', ", ""), "spec.runtimeEnvYAML", ""},
        {RAY(RUN "backoffLimit: -1, ", ""), "spec.backoffLimit", "whole number"},
        {RAY(RUN "newField: 1, ", ""), "spec.newField", "not known here"},
        {RAY(RUN, GROUP("newField: 1, ")), "spec.rayClusterSpec.workerGroupSpecs[0].newField",
         "not known here"},
        {RAY(RUN, GROUP("suspend: true, ")), "spec.rayClusterSpec.workerGroupSpecs[0].suspend",
         "together"},
        {RAY(RUN, "{groupName: head, " POD("") "}"),
         "spec.rayClusterSpec.workerGroupSpecs[0].groupName", "a name"},
        {RAY(RUN, "{groupName: a, rayStartParams: {'x; rm': '1'}, " POD("") "}"),
         "spec.rayClusterSpec.workerGroupSpecs[0].rayStartParams.x; rm", "a word of ray start"},
        {RAY(RUN, "{groupName: a, " POD(", args: [x]") "}"),
         "spec.rayClusterSpec.workerGroupSpecs[0].template.spec.containers[0]", "leave command"},
        {RAY(RUN, "{groupName: a, template: {spec: {}}}"),
         "spec.rayClusterSpec.workerGroupSpecs[0].template.spec.containers[0]", "is missing"},
        {"{apiVersion: ray.io/v1, kind: RayJob, spec: {" RUN "rayClusterSpec: 7}}",
         "spec.rayClusterSpec.headGroupSpec", "is missing"},
        {"{apiVersion: ray.io/v1, kind: RayJob, spec: {" RUN
         "rayClusterSpec: {enableInTreeAutoscaling: true, " HEAD_ "}}}",
         "spec.rayClusterSpec.enableInTreeAutoscaling", "say replicas"},
    };
    cJSON *set;

    (void)state;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        struct err e = {0};
        assert_int_not_equal(jobset(tries[i].yaml, &set, &e), 0);
        assert_string_equal(e.field, tries[i].field);
        has(e.text, tries[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_and_its_workers),
        cmocka_unit_test(what_is_submitted),
        cmocka_unit_test(groups),
        cmocka_unit_test(what_cannot_be_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
