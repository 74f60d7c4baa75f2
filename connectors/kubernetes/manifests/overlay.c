/* See overlay.h. Nothing of a template is read here that manifest_read has not judged. */
#include "connectors/kubernetes/manifests/overlay.h"
#include "connectors/kubernetes/manifests/safety.h"

#include "api/base/mem.h"

#include <stdio.h>
#include <string.h>

#define NAMES_MAX 4096
#define KUEUE_QUEUE "kueue.x-k8s.io/queue-name"
#define KUEUE_PRIORITY "kueue.x-k8s.io/priority-class"

static cJSON *object_in(cJSON *o, const char *name)
{
    cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);

    if (cJSON_IsObject(v))
        return v;
    cJSON_DeleteItemFromObjectCaseSensitive(o, name);
    return cJSON_AddObjectToObject(o, name);
}

static cJSON *list_in(cJSON *o, const char *name)
{
    cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);

    if (cJSON_IsArray(v))
        return v;
    cJSON_DeleteItemFromObjectCaseSensitive(o, name);
    return cJSON_AddArrayToObject(o, name);
}

static void item_in(cJSON *o, const char *name, cJSON *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(o, name);
    cJSON_AddItemToObject(o, name, value);
}

static void text_in(cJSON *o, const char *name, const char *value)
{
    item_in(o, name, cJSON_CreateString(value));
}

static cJSON *add_to(cJSON *list)
{
    cJSON *e = cJSON_CreateObject();

    cJSON_AddItemToArray(list, e);
    return e;
}

/* ---- for any template ---- */
cJSON *kube_finalizers(void)
{
    cJSON *v = cJSON_CreateArray();

    cJSON_AddItemToArray(v, cJSON_CreateString(KUBE_FINALIZER));
    return v;
}

void kube_labels_in(const struct kube_overlay *o, cJSON *meta, bool pod)
{
    cJSON *l = object_in(meta, "labels");

    for (uint32_t i = 0; pod && i < o->k->n_podLabels; i++)
        if (strncmp(o->k->podLabels[i].key, "hanse.dev/", 10) != 0)
            text_in(l, o->k->podLabels[i].key, o->k->podLabels[i].value);
    text_in(l, KUBE_RUN_LABEL, o->key);
    text_in(l, "app.kubernetes.io/managed-by", "hanse");
}

/* What its cluster calls its priority. Kueue goes by that of its pods. */
static void priority_in(const struct kube_overlay *o, cJSON *spec)
{
    const struct target_kubernetes *k = o->k;

    for (uint32_t i = 0; o->priority_class && i < k->n_priorityClasses; i++)
        if (strcmp(k->priorityClasses[i].priorityClassName, o->priority_class) == 0)
            text_in(spec, "priorityClassName", k->priorityClasses[i].as);
}

void kube_names_in(const struct kube_overlay *o, cJSON *pod)
{
    const struct target_kubernetes *k = o->k;

    if (*k->serviceAccountName)
        text_in(pod, "serviceAccountName", k->serviceAccountName);
    if (*k->schedulerName && !*kube_text(pod, "schedulerName"))
        text_in(pod, "schedulerName", k->schedulerName);
    priority_in(o, pod);
    if (k->n_imagePullSecrets) {
        cJSON *list = list_in(pod, "imagePullSecrets");
        for (uint32_t i = 0; i < k->n_imagePullSecrets; i++)
            text_in(add_to(list), "name", k->imagePullSecrets[i]);
    }
}

/* Nodes with devices are often tainted with the name of the resource. The inventory takes that for
 * tolerated (kube_device_taint), so whoever was placed there goes there, also without devices. */
int kube_tolerations_in(const struct kube_overlay *o, cJSON *pod, struct err *err)
{
    static const char *const taints[] = {"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915",
                                         "gpu.intel.com/xe"};
    const struct slice *told = &o->k->tolerations;
    cJSON *site = told->n ? cJSON_ParseWithLength(told->p, told->n) : cJSON_CreateArray();
    cJSON *list = list_in(pod, "tolerations"), *e;

    if (!cJSON_IsArray(site)) {
        cJSON_Delete(site);
        return err_field(err, E_INVALID, "spec.kubernetes.tolerations", "it is no list");
    }
    while ((e = cJSON_DetachItemFromArray(site, 0)))
        cJSON_AddItemToArray(list, e);
    cJSON_Delete(site);
    for (size_t i = 0; i < sizeof taints / sizeof *taints; i++) {
        e = add_to(list);
        text_in(e, "key", taints[i]);
        text_in(e, "operator", "Exists");
    }
    return 0;
}

/* ---- for those of others ---- */
/* What a controller, a queue or this hub says of an object, and no template of another one. */
static bool is_not_its_own(const char *key)
{
    return strncmp(key, "hanse.dev/", 10) == 0 || manifest_word_is_stored(key) ||
           strcmp(key, KUEUE_QUEUE) == 0 || strcmp(key, KUEUE_PRIORITY) == 0 ||
           strcmp(key, "kubectl.kubernetes.io/last-applied-configuration") == 0;
}

static void words_copy(const cJSON *from, cJSON *meta, const char *name)
{
    const cJSON *map = kube_at(from, name), *e;

    cJSON_ArrayForEach(e, map)
    {
        if (cJSON_IsString(e) && !is_not_its_own(e->string) &&
            !cJSON_GetObjectItemCaseSensitive(object_in(meta, name), e->string))
            text_in(object_in(meta, name), e->string, e->valuestring);
    }
}

void kube_overlay_words(const cJSON *doc, cJSON *meta)
{
    words_copy(kube_at(doc, "metadata"), meta, "labels");
    words_copy(kube_at(doc, "metadata"), meta, "annotations");
}

static const cJSON *named(const cJSON *list, const char *name)
{
    const cJSON *e;

    cJSON_ArrayForEach(e, list)
    {
        if (strcmp(kube_text(e, "name"), name) == 0)
            return e;
    }
    return NULL;
}

/* The hub's go over the container's own, but where that says itself where rank 0 is. */
static void env_in(const struct kube_overlay *o, cJSON *container)
{
    const cJSON *e;
    cJSON *list = list_in(container, "env");

    cJSON_ArrayForEach(e, o->env)
    {
        const char *name = kube_text(e, "name");
        bool meeting = strcmp(name, "MASTER_ADDR") == 0 || strcmp(name, "MASTER_PORT") == 0;
        const cJSON *had = named(list, name);
        if (had && meeting)
            continue;
        if (had)
            cJSON_Delete(cJSON_DetachItemViaPointer(list, (cJSON *)had));
        cJSON_AddItemToArray(list, cJSON_Duplicate(e, true));
    }
}

/* Of its containers, as the manifest has them: what others add beside them is no program of it. */
static void containers_in(const struct kube_overlay *o, cJSON *annotations, cJSON *pod)
{
    cJSON *c;
    AUTO_BUF names;

    buf_init(&names, NAMES_MAX);
    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(pod, "containers"))
    {
        buf_printf(&names, "%s%s", names.n ? "," : "", kube_text(c, "name"));
        env_in(o, c);
    }
    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(pod, "initContainers")) env_in(o, c);
    text_in(annotations, KUBE_CONTAINERS_ANNOTATION, names.n && !names.failed ? names.p : "");
}

static void bare(cJSON *pod, const char *name)
{
    cJSON *c;

    cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(pod, name))
        cJSON_DeleteItemFromObjectCaseSensitive(c, "securityContext");
}

/* Where the Target says whose user pods are, or which standard they keep to, it alone does. */
static void security_in(const struct target_kubernetes *k, cJSON *pod)
{
    if (!k->runAsUser && !k->runAsGroup && !k->fsGroup && k->podSecurity != POD_SECURITY_RESTRICTED)
        return;
    cJSON_DeleteItemFromObjectCaseSensitive(pod, "securityContext");
    bare(pod, "initContainers");
    bare(pod, "containers");
}

int kube_overlay_template(const struct kube_overlay *o, cJSON *template, struct err *err)
{
    static const char *const dropped[] = {"priorityClassName", "priority", "preemptionPolicy"};
    cJSON *had = cJSON_DetachItemFromObjectCaseSensitive(template, "metadata"), *gate;
    cJSON *meta = object_in(template, "metadata"), *pod = object_in(template, "spec");

    words_copy(had, meta, "labels");
    words_copy(had, meta, "annotations");
    cJSON_Delete(had);
    kube_labels_in(o, meta, true);
    text_in(object_in(meta, "annotations"), KUBE_MARK_ANNOTATION, o->mark);
    item_in(meta, "finalizers", kube_finalizers());
    containers_in(o, object_in(meta, "annotations"), pod);
    gate = cJSON_CreateObject();
    text_in(gate, "name", KUBE_GATE);
    (void)cJSON_InsertItemInArray(list_in(pod, "schedulingGates"), 0, gate);
    text_in(pod, "restartPolicy", "Never");
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(pod, dropped[i]);
    security_in(o->k, pod);
    item_in(pod, "automountServiceAccountToken", cJSON_CreateFalse());
    if (o->service && !*kube_text(pod, "subdomain"))
        text_in(pod, "subdomain", o->service);
    kube_names_in(o, pod);
    return kube_tolerations_in(o, pod, err);
}

/* A Job that makes so many pods, each once. */
static void once_in(cJSON *spec, int64_t ranks)
{
    static const char *const dropped[] = {"selector", "manualSelector", "suspend",
                                          "ttlSecondsAfterFinished"};

    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(spec, dropped[i]);
    text_in(spec, "completionMode", "Indexed");
    item_in(spec, "completions", cJSON_CreateNumber((double)ranks));
    item_in(spec, "parallelism", cJSON_CreateNumber((double)ranks));
    item_in(spec, "backoffLimit", cJSON_CreateNumber(0));
    text_in(spec, "podReplacementPolicy", "Failed");
}

int kube_overlay_job(const struct kube_overlay *o, const cJSON *doc, uint32_t ranks, cJSON *spec,
                     struct err *err)
{
    const cJSON *e;

    cJSON_ArrayForEach(e, kube_at(doc, "spec")) item_in(spec, e->string, cJSON_Duplicate(e, true));
    once_in(spec, ranks);
    return kube_overlay_template(o, object_in(spec, "template"), err);
}

/* ---- objects of other kinds ---- */
static void drop(cJSON *o, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(o, names[i]);
}

/* Labels and annotations of a template that is none of pods. */
static void words_only(cJSON *template)
{
    cJSON *had = cJSON_DetachItemFromObjectCaseSensitive(template, "metadata");

    words_copy(had, object_in(template, "metadata"), "labels");
    words_copy(had, object_in(template, "metadata"), "annotations");
    cJSON_Delete(had);
}

static void jobset_once(cJSON *spec, const struct manifest *m)
{
    static const char *const dropped[] = {"suspend", "ttlSecondsAfterFinished", "failurePolicy"};
    cJSON *e;
    unsigned i = 0;

    drop(spec, dropped, sizeof dropped / sizeof *dropped);
    cJSON_ArrayForEach(e, cJSON_GetObjectItemCaseSensitive(spec, "replicatedJobs"))
    {
        const cJSON *n = kube_at(e, "replicas");
        int64_t replicas = cJSON_IsNumber(n) ? (int64_t)n->valuedouble : 1;
        INV(i < m->n && replicas > 0);
        words_only(cJSON_GetObjectItemCaseSensitive(e, "template"));
        once_in(object_in(object_in(e, "template"), "spec"), m->parts[i++].pods / replicas);
    }
}

static void replicas_once(cJSON *spec, const char *roles)
{
    static const char *const dropped[] = {"suspend", "ttlSecondsAfterFinished", "schedulingPolicy"};
    cJSON *policy = object_in(spec, "runPolicy"), *e;

    drop(policy, dropped, sizeof dropped / sizeof *dropped);
    item_in(policy, "backoffLimit", cJSON_CreateNumber(0));
    text_in(policy, "cleanPodPolicy", "None");
    cJSON_ArrayForEach(e, cJSON_GetObjectItemCaseSensitive(spec, roles))
    {
        if (cJSON_IsObject(e))
            text_in(e, "restartPolicy", "Never");
    }
}

static void volcano_once(const struct kube_overlay *o, cJSON *spec)
{
    static const char *const dropped[] = {"policies",          "maxRetry",
                                          "minAvailable",      "ttlSecondsAfterFinished",
                                          "priorityClassName", "queue"};
    cJSON *e;

    drop(spec, dropped, sizeof dropped / sizeof *dropped);
    if (*o->k->queue)
        text_in(spec, "queue", o->k->queue);
    priority_in(o, spec); /* of its PodGroup */
    cJSON_ArrayForEach(e, cJSON_GetObjectItemCaseSensitive(spec, "tasks")) drop(e, dropped, 3);
}

static void once_of_kind(const struct kube_overlay *o, cJSON *spec, const struct manifest *m)
{
    if (m->kind->id == MANIFEST_JOBSET)
        jobset_once(spec, m);
    else if (m->kind->id == MANIFEST_VOLCANO)
        volcano_once(o, spec);
    else
        replicas_once(spec,
                      m->kind->id == MANIFEST_MPIJOB ? "mpiReplicaSpecs" : "pytorchReplicaSpecs");
}

/* Which of the run's ranks its pods are: any of these. */
static void part_in(cJSON *template, int64_t base, const struct manifest_part *p)
{
    cJSON *said = object_in(object_in(template, "metadata"), "annotations");
    char text[64];

    (void)snprintf(text, sizeof text, "%lld/%lld", (long long)base, (long long)p->pods);
    text_in(said, KUBE_PART_ANNOTATION, text);
    text_in(said, KUBE_ANCHOR_ANNOTATION, "");
    if (p->follows)
        text_in(said, KUBE_FOLLOWS_ANNOTATION, "true");
}

int kube_overlay_object(const struct kube_overlay *o, const cJSON *doc, cJSON **ret,
                        struct err *err)
{
    static const char *const dropped[] = {"metadata", "status"};
    cJSON *made = cJSON_Duplicate(doc, true), *meta;
    struct manifest m;
    int64_t base = 0;
    int rc = manifest_read(made, NULL, NULL, &m, err);

    for (unsigned i = 0; rc == 0 && i < m.n; i++) {
        cJSON *template = (cJSON *)(uintptr_t)m.parts[i].template; /* of `made` */
        rc = kube_overlay_template(o, template, err);
        part_in(template, base, &m.parts[i]);
        kube_security_in(o->k, object_in(template, "spec"));
        base += m.parts[i].pods;
    }
    if (rc < 0) {
        cJSON_Delete(made);
        return rc;
    }
    once_of_kind(o, object_in(made, "spec"), &m);
    drop(made, dropped, sizeof dropped / sizeof *dropped);
    meta = object_in(made, "metadata");
    kube_labels_in(o, meta, false);
    text_in(object_in(meta, "annotations"), KUBE_MARK_ANNOTATION, o->mark);
    kube_overlay_words(doc, meta);
    if (*o->k->queue && m.kind->id != MANIFEST_VOLCANO)
        text_in(object_in(meta, "labels"), KUEUE_QUEUE, o->k->queue);
    *ret = made;
    return 0;
}

/* ---- orders ---- */
static int matches(const struct manifest *m, const struct run_order *o, const char *resource,
                   int64_t count, struct err *err)
{
    if (m->workers != o->placement->n_assignments)
        return err_field(err, E_INVALID, "spec.run.manifest",
                         "it makes %lld pods, and %u are placed", (long long)m->workers,
                         o->placement->n_assignments);
    if (m->asks.devices == count && (!resource || strcmp(m->asks.resource, resource) == 0))
        return 0;
    return err_field(err, E_NOTIMPL, "spec.run.manifest",
                     "its pods ask for %lld %s, and the nodes that were chosen give %lld %s: say "
                     "which by spec.resources.gpu.classes",
                     (long long)m->asks.devices, *m->asks.resource ? m->asks.resource : "devices",
                     (long long)count, resource ? resource : "devices");
}

int kube_overlay_read(const struct run_order *o, const char *resource, int64_t count, cJSON **ret,
                      const struct manifest_kind **ret_kind, struct err *err)
{
    struct manifest m;
    struct err e = {0};
    cJSON *doc;

    if (o->claims || o->saves)
        return err_field(err, E_NOTIMPL, "spec.run.manifest",
                         "its programs are started without a runner, which would claim and save");
    if (json_parse(o->manifest, strlen(o->manifest), &doc, &e) < 0)
        return err_field(err, E_NOTIMPL, "spec.run.manifest", "%.400s", e.text);
    int rc = manifest_read(doc, NULL, NULL, &m, &e);
    if (rc < 0)
        rc = err_field(err, E_NOTIMPL, "spec.run.manifest", "%.100s: %.350s", e.field, e.text);
    else
        rc = matches(&m, o, resource, count, err);
    if (rc < 0) {
        cJSON_Delete(doc);
        return rc;
    }
    *ret = doc;
    *ret_kind = m.kind->id == MANIFEST_JOB ? NULL : m.kind;
    return 0;
}
