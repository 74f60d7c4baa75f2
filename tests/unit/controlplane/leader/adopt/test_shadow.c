/* What Hanse would have done with what others run: what a Job would be, what of it would not be
 * kept, where it would run and at what cost, in which queue; what cannot be handed over, and why;
 * sums; bounds. Nothing that was there is changed. */
#include "controlplane/leader/adopt/shadow_internal.h"
#include "tests/support/policy/policy_world.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

#define H100 "NVIDIA-H100-80GB-HBM3"

static struct world w;

/* ---- a site: a cluster "k8s" of nodes with eight GPUs each, and a cheaper one beside it ---- */
static const struct object *on_get(void *arg, enum kind_id kind, const char *ns, const char *name)
{
    const struct object *found = NULL;

    (void)arg;
    for (size_t i = 0; i < w.n_made; i++)
        if (w.made[i]->kind->id == kind && !strcmp(w.made[i]->meta->name, name) &&
            !strcmp(w.made[i]->meta->namespace_, ns))
            found = w.made[i];
    return found;
}
static const struct shadow_docs docs = {on_get, NULL};

static bool on_busy(void *arg, const char *node)
{
    return arg && strcmp(arg, node) == 0;
}

static bool on_more(void *arg)
{
    (void)arg;
    return false; /* one at a time */
}

static void node_put(const char *name, const char *target, int held)
{
    char text[1024], others[256] = "";

    if (held)
        (void)snprintf(others, sizeof others,
                       "  others: {cpu: %d, memory: 8Gi, classes: [{class: h100, count: %d}]}\n",
                       held, held);
    (void)snprintf(text, sizeof text,
                   "kind: Node\nmetadata: {name: %s.%s}\nspec:\n  target: %s\n  cpu: 64\n"
                   "  memory: 512Gi\n  counted: [{class: h100, model: %s, count: 8}]\n"
                   "status:\n  health: Ready\n%s",
                   target, name, target, H100, others);
    world_put(&w, text);
}

static int setup(void **state)
{
    (void)state;
    world_init(&w);
    world_put(&w, "apiVersion: v1\nkind: Namespace\nmetadata: {name: vision}\n");
    world_put(&w, "kind: GpuClass\nmetadata: {name: h100}\nspec: {vendor: nvidia, memory: 80Gi, "
                  "aliases: [" H100 "]}\n");
    world_put(&w,
              "kind: PriceSheet\nmetadata: {name: own}\nspec: {currency: EUR, gpuHour: [{class: "
              "h100, amortised: 2.5}]}\n---\n"
              "kind: PriceSheet\nmetadata: {name: cheap}\nspec: {currency: EUR, gpuHour: "
              "[{class: h100, amortised: 1}]}\n");
    world_put(&w, "kind: Target\nmetadata: {name: k8s}\nspec: {type: kubernetes, tier: spoke, "
                  "priceSheet: own, observeOnly: true}\n---\n"
                  "kind: Target\nmetadata: {name: east}\nspec: {type: kubernetes, tier: hub, "
                  "priceSheet: cheap}\n");
    world_put(&w, "kind: Queue\nmetadata: {name: research}\nspec: {namespaces: [vision]}\n");
    pool_target_reachable(w.p, "k8s", REACH_YES);
    pool_target_reachable(w.p, "east", REACH_YES);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_fini(&w);
    return 0;
}

/* ---- what runs there ---- */
#define JOB                                                                                        \
    "{\"apiVersion\":\"batch/v1\",\"kind\":\"Job\",\"metadata\":{\"name\":\"%s\",\"namespace\":"   \
    "\"%s\"},\"spec\":{\"parallelism\":%d,\"completions\":%d,\"backoffLimit\":0,"                  \
    "\"completionMode\":\"Indexed\",\"template\":{\"spec\":{\"restartPolicy\":\"Never\"%s,"        \
    "\"containers\":[{\"name\":\"m\",\"image\":\"i\",\"resources\":{\"limits\":{\"cpu\":\"1\","    \
    "\"nvidia.com/gpu\":\"%d\"}}}]}}}}"

static void job_owned_by(struct shadow *s, const char *ns, const char *name, int workers, int gpus,
                         const char *more, const char *owner)
{
    char text[2048];

    (void)snprintf(text, sizeof text, JOB, name, ns, workers, workers, more, gpus);
    shadow_job(s, &docs,
               &(struct foreign_item){.kind = "Job",
                                      .ns = ns,
                                      .name = name,
                                      .uid = arena_printf(w.a, "uid-%s", name),
                                      .owner_kind = *owner ? "JobSet" : "",
                                      .owner_name = owner,
                                      .owner_uid = owner,
                                      .manifest = text,
                                      .hanse_ns = ns,
                                      .place = ns,
                                      .node = "",
                                      .since_ms = NOW - 3600000});
}

static void job(struct shadow *s, const char *ns, const char *name, int workers, int gpus)
{
    job_owned_by(s, ns, name, workers, gpus, "", "");
}

static void pod(struct shadow *s, const char *owner_kind, const char *owner, const char *node,
                int64_t gpus)
{
    struct foreign_item i = {.kind = "Pod",
                             .ns = "vision",
                             .name = arena_printf(w.a, "p-%s", owner),
                             .uid = "u",
                             .owner_kind = owner_kind,
                             .owner_name = owner,
                             .owner_uid = arena_printf(w.a, "uid-%s", owner),
                             .node = node,
                             .runs = *node != '\0',
                             .cpu_milli = gpus * 1000,
                             .memory_bytes = gpus << 30,
                             .since_ms = NOW - 1800000,
                             .n_devices = gpus > 0};

    i.devices[0] = (struct foreign_device){
        .resource = "nvidia.com/gpu", .model = H100, .mig = "", .count = gpus};
    shadow_pod(s, &docs, &i);
}

static cJSON *report(struct shadow *s, size_t limit, const char *busy)
{
    const struct shadow_place p = {
        .docs = &docs, .pool = w.p, .now_ms = NOW, .busy = on_busy, .arg = (void *)(uintptr_t)busy};
    unsigned steps = 0;
    AUTO_BUF b;
    cJSON *j;

    shadow_begin(s, &p);
    while (shadow_step(s, &p, on_more, NULL))
        assert_true(++steps < 100000);
    buf_init(&b, 16 << 20);
    shadow_tell(s, limit, NOW, &b);
    assert_false(b.failed);
    j = cJSON_Parse(b.p);
    assert_non_null(j);
    return j;
}

static const cJSON *at(const cJSON *j, const char *path)
{
    char part[64];

    while (*path && j) {
        size_t n = strcspn(path, ".");
        (void)snprintf(part, sizeof part, "%.*s", (int)n, path);
        j = part[0] >= '0' && part[0] <= '9' ? cJSON_GetArrayItem(j, (int)strtol(part, NULL, 10))
                                             : cJSON_GetObjectItemCaseSensitive(j, part);
        path += n + (path[n] == '.');
    }
    return j;
}
#define assert_text(j, path, text) assert_string_equal(cJSON_GetStringValue(at(j, path)), text)
#define assert_figure(j, path, n) assert_float_equal(cJSON_GetNumberValue(at(j, path)), n, 1e-9)

/* ---- tests ---- */
/* Their own devices are free for them; nobody else's are. */
static void a_job_is_placed_where_it_stands(void **state)
{
    struct shadow *s = shadow_create("k8s", "");
    cJSON *j;

    (void)state;
    node_put("n1", "k8s", 8);
    node_put("n2", "k8s", 8);
    job(s, "vision", "train", 2, 4);
    pod(s, "Job", "train", "k8s.n1", 4);
    pod(s, "Job", "train", "k8s.n1", 4);
    j = report(s, 100, NULL);
    assert_text(j, "target", "k8s");
    assert_true(cJSON_IsTrue(at(j, "observeOnly")));
    assert_text(j, "jobs.0.state", "Running");
    assert_text(j, "jobs.0.since", "2025-11-30T23:30:00Z");
    assert_figure(j, "jobs.0.gpus", 8);
    assert_text(j, "jobs.0.class", "h100");
    assert_text(j, "jobs.0.nodes.0.name", "n1");
    assert_figure(j, "jobs.0.costPerHour", 20);
    assert_true(cJSON_IsTrue(at(j, "jobs.0.adoptable")));
    assert_text(j, "jobs.0.hanse.outcome", "Placed");
    assert_text(j, "jobs.0.hanse.target", "k8s");
    assert_text(j, "jobs.0.hanse.queue", "research");
    assert_text(j, "jobs.0.hanse.nodes.0.name", "n1"); /* n2 is others' */
    assert_figure(j, "jobs.0.hanse.costPerHour", 20);
    assert_int_equal(cJSON_GetArraySize(at(j, "jobs.0.warnings")), 0);
    assert_figure(j, "totals.here.gpus", 8);
    assert_figure(j, "totals.cost.now", 20);
    assert_figure(j, "totals.cost.hanse", 20);
    assert_text(j, "lacks", "");
    cJSON_Delete(j);
    s = shadow_destroy(s);
    assert_int_equal(pool_free_gpu_milli(w.p, NULL), 0); /* the pool is as it was */
}

/* Where a cheaper place has room Hanse would have taken it; who finds none waits, and why. */
static void elsewhere_or_not_at_all(void **state)
{
    struct shadow *s = shadow_create("k8s", "");
    cJSON *j;

    (void)state;
    node_put("n1", "k8s", 8);
    node_put("e1", "east", 0);
    job(s, "vision", "first", 1, 8);
    pod(s, "Job", "first", "k8s.n1", 8);
    job(s, "vision", "wide", 4, 8);
    j = report(s, 100, NULL);
    assert_text(j, "jobs.0.name", "first");
    assert_text(j, "jobs.0.hanse.target", "east");
    assert_figure(j, "jobs.0.hanse.costPerHour", 8);
    assert_text(j, "jobs.1.name", "wide");
    assert_text(j, "jobs.1.state", "Waiting");
    assert_text(j, "jobs.1.hanse.outcome", "Pending");
    assert_figure(j, "jobs.1.gpusAsked", 32);
    assert_null(at(j, "jobs.1.costPerHour"));
    assert_true(*cJSON_GetStringValue(at(j, "jobs.1.hanse.message")) != '\0');
    assert_figure(j, "totals.elsewhere.jobs", 1);
    assert_figure(j, "totals.waiting.jobs", 1);
    assert_figure(j, "totals.cost.now", 20);
    assert_figure(j, "totals.cost.hanse", 8);
    cJSON_Delete(j);
    s = shadow_destroy(s);
}

/* One after the other: what the first was given the second does not get again. */
static void each_beside_those_before_it(void **state)
{
    struct shadow *s = shadow_create("k8s", "");
    cJSON *j;

    (void)state;
    node_put("n1", "k8s", 6);
    job(s, "vision", "a", 1, 6);
    job(s, "vision", "b", 1, 6);
    pod(s, "Job", "a", "k8s.n1", 6);
    j = report(s, 100, NULL);
    assert_figure(j, "totals.here.jobs", 1);
    assert_figure(j, "totals.waiting.jobs", 1);
    cJSON_Delete(j);
    s = shadow_destroy(s);
    s = shadow_create("k8s", ""); /* of a node on which something unknown runs nothing is freed */
    job(s, "vision", "a", 1, 6);
    pod(s, "Job", "a", "k8s.n1", 6);
    j = report(s, 100, "k8s.n1");
    assert_figure(j, "totals.waiting.jobs", 1);
    cJSON_Delete(j);
    s = shadow_destroy(s);
}

/* In submit's words. */
static void what_would_not_be_kept(void **state)
{
    struct shadow *s = shadow_create("k8s", "");
    cJSON *j;

    (void)state;
    node_put("n1", "k8s", 0);
    job_owned_by(s, "vision", "warned", 1, 1, ",\"nodeSelector\":{\"a\":\"b\"}", "");
    job_owned_by(s, "vision", "refused", 1, 1,
                 ",\"hostNetwork\":true,\"hostPID\":true,\"nodeName\":\"n\\u001b[2J\"", "");
    job_owned_by(s, "vision", "made", 1, 1, "", "set");
    job(s, "nowhere", "spaceless", 1, 1);
    pod(s, "Job", "refused", "k8s.n1", 1);
    j = report(s, 100, NULL);
    for (int i = 0; i < 4; i++) {
        const cJSON *row = cJSON_GetArrayItem(at(j, "jobs"), i);
        const char *name = cJSON_GetStringValue(at(row, "name"));
        if (!strcmp(name, "warned")) {
            assert_text(row, "warnings.0.field", "spec.template.spec.nodeSelector");
        } else if (!strcmp(name, "spaceless")) {
            assert_text(row, "warnings.0.field", "metadata.namespace");
            assert_text(row, "hanse.queue", "");
        } else if (!strcmp(name, "refused")) {
            assert_true(cJSON_IsFalse(at(row, "adoptable")));
            assert_non_null(strstr(cJSON_GetStringValue(at(row, "why")),
                                   "spec.template.spec.nodeName: Hanse chooses"));
            assert_non_null(strstr(cJSON_GetStringValue(at(row, "why")), "(and 2 more)"));
            assert_null(at(row, "hanse"));
        } else {
            assert_text(row, "name", "made");
            assert_true(cJSON_IsFalse(at(row, "adoptable")));
            assert_non_null(strstr(cJSON_GetStringValue(at(row, "why")), "JobSet set has made it"));
        }
    }
    assert_figure(j, "totals.notAdoptable.jobs", 2);
    assert_figure(j, "totals.notAdoptable.gpus", 1);
    assert_figure(j, "totals.ownedJobs", 1);
    assert_figure(j, "totals.refusedJobs", 1);
    cJSON_Delete(j);
    s = shadow_destroy(s);
}

static void pods_that_no_job_has_made(void **state)
{
    struct shadow *s = shadow_create("k8s", "");
    cJSON *j;

    (void)state;
    node_put("n1", "k8s", 8);
    pod(s, "ReplicaSet", "serve", "k8s.n1", 2);
    pod(s, "ReplicaSet", "serve", "k8s.n1", 1);
    pod(s, "", "hand", "k8s.n1", 4);
    pod(s, "Job", "gone", "k8s.n1", 1);
    pod(s, "DaemonSet", "logs", "k8s.n1", 0);
    pod(s, "ReplicaSet", "waits", "", 4);
    j = report(s, 2, NULL);
    assert_int_equal(cJSON_GetArraySize(at(j, "others")), 2);
    assert_figure(j, "omittedOthers", 1);
    assert_text(j, "others.0.kind", "Pod");
    assert_text(j, "others.0.reason", "Bare");
    assert_figure(j, "others.0.gpus", 4);
    assert_text(j, "others.1.name", "serve");
    assert_text(j, "others.1.reason", "Controller");
    assert_figure(j, "others.1.pods", 2);
    assert_figure(j, "others.1.gpus", 3);
    assert_figure(j, "totals.podsWithoutGpus", 1);
    assert_int_equal(cJSON_GetArraySize(at(j, "totals.others")), 3);
    cJSON_Delete(j);
    s = shadow_destroy(s);
}

/* Beyond the bounds nothing is kept, and it is said; sums hold what is not shown. */
static void bounds(void **state)
{
    struct shadow *s = shadow_create("k8s", "");
    char name[32];
    cJSON *j;

    (void)state;
    node_put("n1", "k8s", 0);
    for (int i = 0; i < SHADOW_PLAIN_MAX + 10; i++) {
        (void)snprintf(name, sizeof name, "j%d", i);
        job(s, "vision", name, 1, 0);
    }
    pod(s, "Job", name, "k8s.n1", 1); /* nobody knows whether its Job is over */
    j = report(s, 5, NULL);
    assert_int_equal(cJSON_GetArraySize(at(j, "jobs")), 5);
    assert_figure(j, "omittedJobs", SHADOW_PLAIN_MAX - 5);
    assert_figure(j, "totals.jobs", SHADOW_PLAIN_MAX);
    assert_non_null(strstr(cJSON_GetStringValue(at(j, "lacks")), "10 Jobs"));
    assert_non_null(strstr(cJSON_GetStringValue(at(j, "lacks")), "1 pods with 1 GPUs"));
    cJSON_Delete(j);
    s = shadow_destroy(s);
}

/* 50,000 pods of one Job, on as many nodes as a cluster may have. */
static void many_pods(void **state)
{
    struct shadow *s = shadow_create("k8s", "");
    char node[32];
    cJSON *j;

    (void)state;
    for (int i = 0; i < 12; i++) {
        (void)snprintf(node, sizeof node, "n%02d", i);
        node_put(node, "k8s", 8);
    }
    job(s, "vision", "wide", 12, 8);
    for (int i = 0; i < 50000; i++) {
        (void)snprintf(node, sizeof node, "k8s.m%d", i % 10000);
        pod(s, "Job", i < 40000 ? "gone" : "wide", node, 0);
    }
    for (int i = 0; i < 12; i++) {
        (void)snprintf(node, sizeof node, "k8s.n%02d", i);
        pod(s, "Job", "wide", node, 8);
    }
    j = report(s, 100, NULL);
    assert_figure(j, "jobs.0.pods", 10012);
    assert_figure(j, "jobs.0.gpus", 96);
    assert_int_equal(cJSON_GetArraySize(at(j, "jobs.0.nodes")), 8);
    assert_figure(j, "jobs.0.moreNodes", 10004);
    assert_text(j, "jobs.0.hanse.outcome", "Placed");
    assert_figure(j, "jobs.0.hanse.gpus", 96);
    assert_int_equal(cJSON_GetArraySize(at(j, "jobs.0.hanse.nodes")), 8);
    assert_figure(j, "jobs.0.hanse.moreNodes", 4);
    assert_figure(j, "totals.podsWithoutGpus", 40000);
    cJSON_Delete(j);
    s = shadow_destroy(s);
}

/* More than is kept apart counts as held. */
static void more_nodes_than_are_kept(void **state)
{
    struct shadow *s = shadow_create("k8s", "");
    char node[32];
    cJSON *j;

    (void)state;
    job(s, "vision", "wide", 1, 1);
    for (size_t i = 0; i < SHADOW_HOLDS_MAX + 5; i++) {
        (void)snprintf(node, sizeof node, "k8s.m%zu", i);
        pod(s, "Job", "wide", node, 0);
    }
    j = report(s, 100, NULL);
    assert_text(j, "lacks", "what 5 pods hold is taken for held");
    cJSON_Delete(j);
    s = shadow_destroy(s);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_job_is_placed_where_it_stands),
        T(elsewhere_or_not_at_all),
        T(each_beside_those_before_it),
        T(what_would_not_be_kept),
        T(many_pods),
        T(more_nodes_than_are_kept),
        T(pods_that_no_job_has_made),
        T(bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
