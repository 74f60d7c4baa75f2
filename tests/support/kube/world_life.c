/* What happens in the cluster of kube_world.h by itself: the Job controller, garbage, the
 * scheduler; and how it begins and ends. */
#include "tests/support/kube/world_parts.h"

#include <stdio.h>
#include <stdlib.h>

#define TICK_MS 100
#define TRACKING "batch.kubernetes.io/job-tracking"
#define PODS_MAX 512

static bool finalizer_drop(struct kube_object *o, const char *name)
{
    cJSON *list = get(get(o->doc, "metadata"), "finalizers");

    for (int i = cJSON_GetArraySize(list) - 1; i >= 0; i--)
        if (!strcmp(cJSON_GetArrayItem(list, i)->valuestring, name)) {
            cJSON_DeleteItemFromArray(list, i);
            return true;
        }
    return false;
}

/* ---- the Job controller ---- */
static size_t pods_of(const char *owner, struct kube_object *v[PODS_MAX])
{
    size_t n = 0;

    list_for_each (it, &W.objects) {
        struct kube_object *o = container_of(it, struct kube_object, link);
        const cJSON *owners = kube_at(o->doc, "metadata.ownerReferences");
        if (!strcmp(o->kind, "pods") && n < PODS_MAX &&
            !strcmp(kube_text(cJSON_GetArrayItem(owners, 0), "uid"), owner))
            v[n++] = o;
    }
    return n;
}

static void forbidden(struct kube_object *job)
{
    cJSON *e;
    char name[160], at[32];

    (void)snprintf(name, sizeof name, "%s.1", kube_text(job->doc, "metadata.name"));
    if (kube_world_find("events", KUBE_WORLD_NS, name))
        return;
    e = cJSON_CreateObject();
    cJSON *meta = cJSON_AddObjectToObject(e, "metadata");
    cJSON_AddStringToObject(meta, "name", name);
    cJSON_AddStringToObject(meta, "namespace", KUBE_WORLD_NS);
    cJSON *of = cJSON_AddObjectToObject(e, "involvedObject");
    cJSON_AddStringToObject(of, "kind", "Job");
    cJSON_AddStringToObject(of, "name", kube_text(job->doc, "metadata.name"));
    cJSON_AddStringToObject(of, "uid", uid_of(job));
    cJSON_AddStringToObject(e, "reason", "FailedCreate");
    cJSON_AddStringToObject(e, "message", W.forbid_pods);
    cJSON_AddStringToObject(e, "lastTimestamp", time_text(at));
    (void)kube_world_put("events", e);
}

static void pod_make(struct kube_object *job, int index)
{
    const cJSON *from = kube_at(job->doc, "spec.template");
    cJSON *pod, *meta, *v, *owner;
    char text[160];

    if (W.forbid_pods) {
        forbidden(job);
        return;
    }
    pod = cJSON_Duplicate(from, true);
    meta = get(pod, "metadata") ? get(pod, "metadata") : cJSON_AddObjectToObject(pod, "metadata");
    (void)snprintf(text, sizeof text, "%s-%d-%05llu", kube_text(job->doc, "metadata.name"), index,
                   (unsigned long long)kube_world_below(100000));
    set(meta, "name", cJSON_CreateString(text));
    set(meta, "namespace", cJSON_CreateString(KUBE_WORLD_NS));
    v = get(meta, "finalizers");
    v = v ? v : cJSON_AddArrayToObject(meta, "finalizers");
    cJSON_AddItemToArray(v, cJSON_CreateString(TRACKING));
    (void)snprintf(text, sizeof text, "%d", index);
    v = get(meta, "labels") ? get(meta, "labels") : cJSON_AddObjectToObject(meta, "labels");
    set(v, KUBE_INDEX, cJSON_CreateString(text));
    owner = cJSON_CreateObject();
    cJSON_AddStringToObject(owner, "uid", uid_of(job));
    cJSON_AddStringToObject(owner, "kind", "Job");
    cJSON_AddStringToObject(owner, "name", kube_text(job->doc, "metadata.name"));
    cJSON_AddTrueToObject(owner, "controller");
    v = cJSON_AddArrayToObject(meta, "ownerReferences");
    cJSON_AddItemToArray(v, owner);
    cJSON_AddStringToObject(cJSON_AddObjectToObject(pod, "status"), "phase", "Pending");
    (void)kube_world_put("pods", pod);
}

/* Counts those that are over, once each. */
static bool job_count(struct kube_object *job, struct kube_object **v, size_t n)
{
    int failed = number(job->doc, "status.failed"), good = number(job->doc, "status.succeeded");
    bool news = false;

    for (size_t i = 0; i < n; i++) {
        if (kube_deleting(v[i]->doc) && !*kube_text(v[i]->doc, "spec.nodeName") && !is_over(v[i])) {
            set(status_of(v[i]), "phase", cJSON_CreateString("Failed"));
            kube_world_changed(v[i]);
        }
        if (!is_over(v[i]) || !finalizer_drop(v[i], TRACKING))
            continue;
        failed += phase_is(v[i], "Failed");
        good += phase_is(v[i], "Succeeded");
        kube_world_changed(v[i]);
        kube_world_collect(v[i]);
        news = true;
    }
    set(status_of(job), "failed", cJSON_CreateNumber(failed));
    set(status_of(job), "succeeded", cJSON_CreateNumber(good));
    return news;
}

/* A policy of failures that fails the Job by a status other than 0, as the controller words it. */
static bool job_failed(struct kube_object *job, struct kube_object **v, size_t n)
{
    char text[300];

    for (size_t i = 0; i < n && kube_at(job->doc, "spec.podFailurePolicy"); i++) {
        const cJSON *c = cJSON_GetArrayItem(kube_at(v[i]->doc, "status.containerStatuses"), 0);
        int code = number(c, "state.terminated.exitCode");
        if (!is_over(v[i]) || !code)
            continue;
        (void)snprintf(text, sizeof text,
                       "Container %s for pod %s/%s failed with exit code %d matching FailJob rule "
                       "at index 1",
                       kube_text(c, "name"), KUBE_WORLD_NS, kube_text(v[i]->doc, "metadata.name"),
                       code);
        return condition_set(job, "Failed", true, "PodFailurePolicy", text);
    }
    return condition_set(job, "Failed", true, "BackoffLimitExceeded",
                         "Job has reached the specified backoff limit");
}

static void job_sync(struct kube_object *job)
{
    struct kube_object *v[PODS_MAX];
    size_t n = pods_of(uid_of(job), v);
    int ranks = number(job->doc, "spec.parallelism"), active = 0, was;
    bool news = job_count(job, v, n), deleting = kube_deleting(job->doc);
    bool suspended = cJSON_IsTrue(kube_at(job->doc, "spec.suspend")), failed, all;

    n = pods_of(uid_of(job), v);
    failed = number(job->doc, "status.failed") > 0;
    all = number(job->doc, "status.succeeded") >= number(job->doc, "spec.completions");
    if (failed && !kube_condition_is(job->doc, "Failed"))
        news |= job_failed(job, v, n);
    else if (all)
        news |= condition_set(job, "Complete", true, "CompletionsReached", "");
    for (size_t i = 0; i < n; i++) {
        active += !is_over(v[i]);
        if ((failed || suspended) && !is_over(v[i]) && !kube_deleting(v[i]->doc) && !deleting)
            kube_world_delete(v[i], -1);
    }
    for (int i = 0; i < ranks && !failed && !all && !suspended && (!deleting || W.blind_controller);
         i++) {
        bool there = false;
        for (size_t k = 0; k < n; k++)
            there |= kube_world_number(kube_label(v[k]->doc, KUBE_INDEX)) == i;
        if (!there) {
            pod_make(job, i);
            active++;
        }
    }
    was = number(job->doc, "status.active");
    set(status_of(job), "active", cJSON_CreateNumber(active));
    if (news || was != active)
        kube_world_changed(job);
}

/* ---- PyTorchJobs: their controller makes pods that are missing, without asking why ---- */
static void replica_make(struct kube_object *job, const char *role, int i)
{
    const cJSON *roles = kube_at(job->doc, "spec.pytorchReplicaSpecs");
    cJSON *pod, *meta, *owner;
    char name[160];

    (void)snprintf(name, sizeof name, "%s-%s-%d", kube_text(job->doc, "metadata.name"), role, i);
    if (W.forbid_pods || kube_world_find("pods", KUBE_WORLD_NS, name))
        return;
    pod = cJSON_Duplicate(kube_at(kube_at(roles, role), "template"), true);
    meta = get(pod, "metadata");
    set(meta, "name", cJSON_CreateString(name));
    set(meta, "namespace", cJSON_CreateString(KUBE_WORLD_NS));
    if (kube_world_below(2)) /* not each such controller takes finalizers over */
        cJSON_DeleteItemFromObjectCaseSensitive(meta, "finalizers");
    owner = cJSON_CreateObject();
    cJSON_AddStringToObject(owner, "uid", uid_of(job));
    cJSON_AddStringToObject(owner, "kind", "PyTorchJob");
    cJSON_AddStringToObject(owner, "name", kube_text(job->doc, "metadata.name"));
    cJSON_AddTrueToObject(owner, "controller");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(meta, "ownerReferences"), owner);
    cJSON_AddStringToObject(cJSON_AddObjectToObject(pod, "status"), "phase", "Pending");
    (void)kube_world_put("pods", pod);
}

static void torch_sync(struct kube_object *job)
{
    const cJSON *role;
    int64_t made = kube_time_ms(kube_text(job->doc, "metadata.creationTimestamp"));

    if (kube_world_wall_ms() - made < (int64_t)W.controller_ms)
        return;
    cJSON_ArrayForEach(role, kube_at(job->doc, "spec.pytorchReplicaSpecs"))
    {
        int n = kube_at(role, "replicas") ? number(role, "replicas") : 1;
        for (int i = 0; i < n; i++)
            replica_make(job, role->string, i);
    }
}

/* Objects come and go while one is looked at: from the beginning again after each. */
static void each(const char *kind, void (*fn)(struct kube_object *o))
{
    char uids[PODS_MAX][40];
    size_t n = 0;

    list_for_each (it, &W.objects) {
        const struct kube_object *o = container_of(it, struct kube_object, link);
        if (!strcmp(o->kind, kind) && n < PODS_MAX)
            str_copy(uids[n++], sizeof uids[0], uid_of(o));
    }
    for (size_t i = 0; i < n; i++)
        list_for_each (it, &W.objects) {
            struct kube_object *o = container_of(it, struct kube_object, link);
            if (!strcmp(uid_of(o), uids[i])) {
                fn(o);
                break;
            }
        }
}

static void job_due(struct kube_object *job)
{
    int64_t made = kube_time_ms(kube_text(job->doc, "metadata.creationTimestamp"));

    if (kube_world_wall_ms() - made >= (int64_t)W.controller_ms)
        job_sync(job);
}

/* The Job controller counts no pod that nothing owns, and lets it go. */
static void orphan_forget(struct kube_object *pod)
{
    if (!finalizer_drop(pod, TRACKING))
        return;
    kube_world_changed(pod);
    kube_world_collect(pod);
}

/* What belongs to what is not there any more. */
static void orphan_collect(struct kube_object *pod)
{
    const cJSON *owners = kube_at(pod->doc, "metadata.ownerReferences");
    const char *owner = kube_text(cJSON_GetArrayItem(owners, 0), "uid");
    const char *kind = pod->kind;
    char ns[64], name[160];

    if (!owners) {
        orphan_forget(pod);
        return;
    }
    list_for_each (it, &W.objects)
        if (!strcmp(uid_of(container_of(it, struct kube_object, link)), owner))
            return;
    str_copy(ns, sizeof ns, kube_text(pod->doc, "metadata.namespace"));
    str_copy(name, sizeof name, kube_text(pod->doc, "metadata.name"));
    if (!kube_deleting(pod->doc))
        kube_world_delete(pod, -1);
    pod = kube_world_find(kind, ns, name);
    if (pod)
        orphan_forget(pod);
}

/* ---- the scheduler ---- */
static void pod_schedule(struct kube_object *pod)
{
    const cJSON *spec = get(pod->doc, "spec"), *term, *field;
    const char *node = "";

    if (*kube_text(spec, "nodeName") || kube_deleting(pod->doc))
        return;
    if (cJSON_GetArraySize(kube_at(spec, "schedulingGates"))) {
        if (condition_set(pod, "PodScheduled", false, "SchedulingGated", "it has gates"))
            kube_world_changed(pod);
        return;
    }
    if (now_ms() < W.queue_until_ms) {
        if (condition_set(pod, "PodScheduled", false, "Unschedulable",
                          "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."))
            kube_world_changed(pod);
        return;
    }
    term = cJSON_GetArrayItem(
        kube_at(spec, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
                      "nodeSelectorTerms"),
        0);
    field = cJSON_GetArrayItem(kube_at(term, "matchFields"), 0);
    if (!strcmp(kube_text(field, "key"), "metadata.name"))
        node = cJSON_GetArrayItem(kube_at(field, "values"), 0)->valuestring;
    if (!kube_world_find("nodes", "", node))
        return;
    set(get(pod->doc, "spec"), "nodeName", cJSON_CreateString(node));
    (void)condition_set(pod, "PodScheduled", true, "", "");
    kube_world_changed(pod);
}

void kube_world_life(void *arg)
{
    (void)arg;
    kube_world_procs();
    each("jobs", job_due);
    each("pytorchjobs", torch_sync);
    each("pytorchjobs", orphan_collect);
    each("pods", orphan_collect);
    each("pods", pod_schedule);
    each("pods", kube_world_silent);
    each("pods", kube_world_kubelet);
    kube_world_clean();
    timer_start(&W.tick, TICK_MS);
}

/* ---- its life ---- */
static void node_make(const char *name)
{
    char text[600];

    (void)snprintf(text, sizeof text,
                   "{\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\",\"labels\":{"
                   "\"nvidia.com/gpu.product\":\"NVIDIA-H100-80GB-HBM3\"}},\"spec\":{},\"status\":{"
                   "\"allocatable\":{\"cpu\":\"64\",\"memory\":\"512Gi\",\"nvidia.com/gpu\":\"8\"},"
                   "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}",
                   name);
    (void)kube_world_put("nodes", cJSON_Parse(text));
}

static void namespace_make(const char *name)
{
    char text[200];

    (void)snprintf(text, sizeof text,
                   "{\"kind\":\"Namespace\",\"metadata\":{\"name\":\"%s\",\"namespace\":\"\"}}",
                   name);
    (void)kube_world_put("namespaces", cJSON_Parse(text));
}

void kube_world_begin(struct loop *l, uint64_t seed)
{
    W = (struct kube_world){.loop = l, .rv = 100};
    W.random = seed * 2654435761u + 88172645463325252u;
    list_init(&W.objects);
    list_init(&W.procs);
    list_init(&W.exchanges);
    list_init(&W.events);
    for (unsigned i = 0; i < KUBE_WORLD_NODES; i++) {
        W.nodes[i] = (struct kube_node_state){.linked = true, .power = true};
        node_make(node_names[i]);
    }
    namespace_make("kube-system");
    namespace_make(KUBE_WORLD_NS);
    timer_init(&W.tick, l, kube_world_life, NULL);
    timer_start(&W.tick, TICK_MS);
}

void kube_world_web_end(void);

void kube_world_end(void)
{
    timer_stop(&W.tick);
    kube_world_web_end();
    while (!list_empty(&W.objects)) {
        struct kube_object *o = container_of(W.objects.next, struct kube_object, link);
        list_remove(&o->link);
        cJSON_Delete(o->doc);
        mem_free(o);
    }
    while (!list_empty(&W.procs)) {
        struct kube_proc *p = container_of(W.procs.next, struct kube_proc, link);
        list_remove(&p->link);
        mem_free(p);
    }
}

void kube_world_heal(void)
{
    for (unsigned i = 0; i < KUBE_WORLD_NODES; i++) {
        bool dark = !W.nodes[i].power;
        W.nodes[i] = (struct kube_node_state){.linked = true, .power = true};
        list_for_each (it, &W.procs) {
            struct kube_proc *p = container_of(it, struct kube_proc, link);
            if (dark && !strcmp(p->node, node_names[i]) && !p->exit_code)
                p->exit_code = 255;
        }
    }
    W.refuse = W.refuse_made = 0;
    W.queue_until_ms = 0;
    W.forbid_pods = W.turns_away = NULL;
}

/* ---- from outside ---- */
unsigned kube_world_starts(const struct run_key *k)
{
    unsigned n = 0;

    list_for_each (it, &W.procs) {
        const struct kube_proc *p = container_of(it, struct kube_proc, link);
        n += run_key_same(&p->key, k) && p->rank == 0;
    }
    return n;
}

bool kube_world_alive(const struct run_key *k)
{
    list_for_each (it, &W.procs) {
        const struct kube_proc *p = container_of(it, struct kube_proc, link);
        if (p->alive && !strcmp(p->key.uid, k->uid) && p->key.epoch == k->epoch &&
            p->key.try_ == k->try_)
            return true;
    }
    return false;
}

struct kube_object *kube_world_job(const struct run_key *k)
{
    char key[RUN_KEY_MAX];

    run_key_print(k, key);
    list_for_each (it, &W.objects) {
        struct kube_object *o = container_of(it, struct kube_object, link);
        if (!strcmp(o->kind, "jobs") && !strcmp(kube_label(o->doc, "hanse.dev/key"), key))
            return o;
    }
    return NULL;
}

struct kube_object *kube_world_pod(const struct run_key *k, int64_t rank)
{
    struct kube_object *found = NULL;
    char key[RUN_KEY_MAX];

    run_key_print(k, key);
    list_for_each (it, &W.objects) {
        struct kube_object *o = container_of(it, struct kube_object, link);
        if (!strcmp(o->kind, "pods") && !strcmp(kube_label(o->doc, "hanse.dev/key"), key) &&
            rank_of(o) == rank)
            found = o;
    }
    return found;
}
