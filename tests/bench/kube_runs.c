/* kube_runs: what is kept of runs on a Kubernetes cluster, and what it computes: --runs runs of one
 * pod, listed while they run; then a change of each pod; then all of them over, and only their
 * names left. Thread CPU, so that the machine's other work does not count; documents are made and
 * parsed outside of the time. Nothing is asked of a server. */
#include "connectors/kubernetes/runs/runs_internal.h"
#include "tests/support/web/still_loop.h"

#include <malloc.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static size_t told, running;
static int64_t spent_ns;

static int64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static size_t in_use(void)
{
    return mallinfo2().uordblks;
}

static long asked(int argc, char **argv, const char *option, long usual)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], option) == 0)
            return strtol(argv[i + 1], NULL, 10);
    return usual;
}

/* ---- what the leader and the driver bring ---- */
static void sign(void *arg, const char *text, unsigned char ret[HOME_MAC_BYTES])
{
    unsigned n = HOME_MAC_BYTES;

    (void)arg;
    (void)HMAC(EVP_sha256(), "key", 3, (const unsigned char *)text, strlen(text), ret, &n);
}

static bool holds(void *arg, const char *text, const unsigned char mac[HOME_MAC_BYTES])
{
    unsigned char own[HOME_MAC_BYTES];

    sign(arg, text, own);
    return !memcmp(own, mac, sizeof own);
}

static const struct home_keys keys = {.sign = sign, .holds = holds};

static void on_observed(void *arg, const struct observation *o)
{
    (void)arg;
    told++;
    running += o->state == RUN_RUNNING;
}

static struct kube_client *client(struct connector *base)
{
    return (struct kube_client *)(void *)base; /* it is there, and nobody asks it */
}

static const char *why(struct connector *base)
{
    (void)base;
    return "";
}

static const char *cluster(struct connector *base)
{
    (void)base;
    return "0c4be2d6-6237-454f-8541-a59680ddd400";
}

/* ---- documents ---- */
static void key_of(long i, struct run_key *ret)
{
    *ret = (struct run_key){.epoch = 1, .try_ = 1};
    (void)snprintf(ret->uid, sizeof ret->uid, "%08lx-f22b-4763-98a4-9f371fdc1ea7", i);
}

static const char *mark_of(const struct run_key *k, char mark[KUBE_MARK_MAX])
{
    struct kube_mark m = {.key = *k, .ranks = 1, .state_rv = 1000};
    struct err err;

    str_copy(m.cluster, sizeof m.cluster, "6bec414f5bf1ef85853eaa71117d76d7");
    str_copy(m.place, sizeof m.place, "hanse-runs");
    str_copy(m.ns, sizeof m.ns, "default");
    str_copy(m.name, sizeof m.name, "sweep-of-parameters-0001");
    return kube_mark_make(&m, &keys, mark, &err) == 0 ? mark : "";
}

static cJSON *meta_of(cJSON *o, const struct run_key *k, const char *name, const char *uid, long rv)
{
    cJSON *meta = cJSON_AddObjectToObject(o, "metadata"), *list;
    char key[RUN_KEY_MAX], mark[KUBE_MARK_MAX], text[32];

    run_key_print(k, key);
    (void)snprintf(text, sizeof text, "%ld", rv);
    cJSON_AddStringToObject(meta, "name", name);
    cJSON_AddStringToObject(meta, "namespace", "hanse-runs");
    cJSON_AddStringToObject(meta, "uid", uid);
    cJSON_AddStringToObject(meta, "resourceVersion", text);
    cJSON_AddStringToObject(cJSON_AddObjectToObject(meta, "labels"), KUBE_RUN_LABEL, key);
    cJSON_AddStringToObject(cJSON_AddObjectToObject(meta, "annotations"), KUBE_MARK_ANNOTATION,
                            mark_of(k, mark));
    list = cJSON_AddArrayToObject(meta, "finalizers");
    cJSON_AddItemToArray(list, cJSON_CreateString(KUBE_FINALIZER));
    return meta;
}

static void names_of(long i, struct run_key *k, char job[KUBE_NAME_MAX], char uid[40], char pod[40])
{
    key_of(i, k);
    if (kube_run_name(k, 1, job, NULL) < 0)
        abort();
    (void)snprintf(uid, 40, "%08lx-0000-4000-8000-00000000000a", i);
    (void)snprintf(pod, 40, "%08lx-0000-4000-8000-00000000000b", i);
}

static cJSON *job_made(long i, long rv, bool over)
{
    struct run_key k;
    char name[KUBE_NAME_MAX], uid[40], pod[40], mark[KUBE_MARK_MAX], key[RUN_KEY_MAX], end[256];
    cJSON *o = cJSON_CreateObject(), *meta, *said;

    names_of(i, &k, name, uid, pod);
    meta = meta_of(o, &k, name, uid, rv);
    cJSON_AddStringToObject(meta, "creationTimestamp", "2026-11-28T07:50:59Z");
    said = cJSON_GetObjectItemCaseSensitive(meta, "annotations");
    cJSON_AddStringToObject(said, KUBE_ADMITTED_ANNOTATION, pod);
    cJSON_AddStringToObject(said, KUBE_NODES_ANNOTATION, "ip-10-1-2-3.internal");
    if (!over)
        return o;
    cJSON_AddStringToObject(meta, "deletionTimestamp", "2026-11-28T07:51:59Z");
    run_key_print(&k, key);
    (void)snprintf(end, sizeof end,
                   "{\"key\":\"%s\",\"state\":\"ended\",\"proof\":\"ContainersTerminated\"}", key);
    (void)kube_end_mark_make(uid, end, &keys, mark);
    cJSON_AddStringToObject(said, KUBE_END_ANNOTATION, end);
    cJSON_AddStringToObject(said, KUBE_END_MARK_ANNOTATION, mark);
    return o;
}

static cJSON *pod_made(long i, long rv)
{
    static const char status[] =
        "{\"phase\":\"Running\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"},"
        "{\"type\":\"ContainersReady\",\"status\":\"True\"}],\"containerStatuses\":[{\"name\":"
        "\"main\",\"ready\":true,\"started\":true,\"state\":{\"running\":{\"startedAt\":"
        "\"2026-11-28T07:51:01Z\"}}}]}";
    struct run_key k;
    char job[KUBE_NAME_MAX], name[80], owner[40], uid[40];
    cJSON *o = cJSON_CreateObject(), *meta, *of = cJSON_CreateObject();

    names_of(i, &k, job, owner, uid);
    (void)snprintf(name, sizeof name, "%s-0-x7k2p", job);
    meta = meta_of(o, &k, name, uid, rv);
    cJSON_AddStringToObject(cJSON_GetObjectItemCaseSensitive(meta, "labels"), KUBE_INDEX_LABEL,
                            "0");
    cJSON_AddStringToObject(of, "kind", "Job");
    cJSON_AddStringToObject(of, "name", job);
    cJSON_AddStringToObject(of, "uid", owner);
    cJSON_AddTrueToObject(of, "controller");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(meta, "ownerReferences"), of);
    cJSON_AddStringToObject(cJSON_AddObjectToObject(o, "spec"), "nodeName", "ip-10-1-2-3.internal");
    cJSON_AddItemToObject(o, "status", cJSON_Parse(status));
    return o;
}

/* ---- measuring ---- */
static void give(struct kube_runs *r, bool pod, enum kube_change change, cJSON *o)
{
    int64_t from = cpu_ns();

    if (pod)
        (void)kube_runs_pod(r, change, o);
    else
        kube_runs_job(r, change, o);
    spent_ns += cpu_ns() - from;
    cJSON_Delete(o);
}

static double settle(struct loop *l)
{
    int64_t from = cpu_ns();
    double ms;

    still_loop_run(l, 500);
    ms = (double)(spent_ns + cpu_ns() - from) / 1e6;
    spent_ns = 0;
    return ms;
}

static void row(const char *name, double value, const char *unit, bool last)
{
    printf("    {\"name\": \"%s\", \"value\": %.1f, \"unit\": \"%s\"}%s\n", name, value, unit,
           last ? "" : ",");
}

static struct object *target_made(void)
{
    AUTO_ARENA a = arena_create(0);
    struct target *t = arena_new(a, struct target);

    t->metadata = arena_new(a, struct meta);
    t->metadata->name = "eks";
    t->spec = arena_new(a, struct target_spec);
    t->spec->type = TARGET_KUBERNETES;
    return object_make(kind_by_id(KIND_TARGET), t);
}

int main(int argc, char **argv)
{
    static const struct connector_events events = {.observed = on_observed};
    long runs = asked(argc, argv, "--runs", 10000);
    struct loop *l = still_loop_create(1);
    struct object *doc = target_made();
    struct connector base = {.target = "eks", .env = {.loop = l, .events = &events, .keys = &keys}};
    const struct kube_runs_env env = {
        .base = &base, .doc = doc, .client = client, .why = why, .cluster = cluster};
    struct kube_runs *r = kube_runs_create(&env);
    size_t before = in_use(), live, husks;
    double list_ms, change_ms, over_ms;
    bool good;

    kube_runs_jobs_begin(r);
    for (long i = 0; i < runs; i++)
        give(r, false, KUBE_IS, job_made(i, i + 1, false));
    kube_runs_jobs_listed(r, "1");
    kube_runs_pods_begin(r);
    for (long i = 0; i < runs; i++)
        give(r, true, KUBE_IS, pod_made(i, i + 1));
    kube_runs_pods_listed(r, "1");
    list_ms = settle(l);
    live = in_use();
    good = running == (size_t)runs;
    for (long i = 0; i < runs; i++)
        give(r, true, KUBE_IS, pod_made(i, runs + i + 1));
    change_ms = settle(l);
    for (long i = 0; i < runs; i++) {
        give(r, false, KUBE_IS, job_made(i, 3 * runs + i, true));
        give(r, true, KUBE_GONE, pod_made(i, 2 * runs + i + 1));
    }
    over_ms = settle(l);
    husks = in_use();
    printf("{\n  \"bench\": \"kube_runs\", \"runs\": %ld,\n  \"rows\": [\n", runs);
    row("memory of a run in flight", (double)(live - before) / (double)runs, "bytes", false);
    row("memory of a name that is kept", (double)(husks - before) / (double)runs, "bytes", false);
    row("read and told", list_ms * 1000 / (double)runs, "us a run", false);
    row("a change of its pod", change_ms * 1000 / (double)runs, "us a run", false);
    row("its end", over_ms * 1000 / (double)runs, "us a run", false);
    row("told", (double)told, "observations", true);
    printf("  ]\n}\n");
    (void)kube_runs_destroy(r);
    (void)object_unref(doc);
    still_loop_destroy(l);
    return good ? 0 : 1;
}
