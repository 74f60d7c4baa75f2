/* The Workload that carries a manifest, made for whoever submits one, and checked against it: what
 * placement counts is what its pods will ask for. */
#include "api/manifests/manifests_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- the Workload of a manifest ---- */
static void metadata_make(const cJSON *doc, cJSON *meta, cJSON *spec)
{
    static const char *const texts[] = {"name", "generateName", "namespace"};
    const cJSON *from = manifest_at(doc, "metadata"), *e;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*manifest_text(from, texts[i]))
            cJSON_AddStringToObject(meta, texts[i], manifest_text(from, texts[i]));
    cJSON_ArrayForEach(e, manifest_at(from, "labels"))
    {
        if (cJSON_IsString(e) && !strchr(e->string, '/'))
            cJSON_AddStringToObject(made_object(meta, "labels"), e->string, e->valuestring);
    }
    for (int i = 0; i < 2; i++) {
        const cJSON *map = manifest_at(from, i ? "annotations" : "labels");
        const cJSON *queue =
            cJSON_IsObject(map) ? cJSON_GetObjectItemCaseSensitive(map, "hanse.dev/queue") : NULL;
        if (queue && cJSON_IsString(queue)) {
            cJSON_DeleteItemFromObjectCaseSensitive(spec, "queue");
            cJSON_AddStringToObject(spec, "queue", queue->valuestring);
        }
    }
}

static void resources_make(const struct manifest *m, cJSON *spec)
{
    static const char mig[] = "nvidia.com/mig-";
    char text[32];

    if (m->asks.devices) {
        cJSON *gpu = made_object(made_object(spec, "resources"), "gpu");
        if (strncmp(m->asks.resource, mig, sizeof mig - 1) == 0)
            cJSON_AddStringToObject(gpu, "mig", m->asks.resource + sizeof mig - 1);
        else
            cJSON_AddNumberToObject(gpu, "count", (double)m->asks.devices);
    }
    if (m->asks.cpu_milli) {
        quantity_print_milli(m->asks.cpu_milli, text);
        cJSON_AddStringToObject(made_object(spec, "resources"), "cpu", text);
    }
    if (m->asks.memory_bytes) {
        quantity_print_bytes(m->asks.memory_bytes, text);
        cJSON_AddStringToObject(made_object(spec, "resources"), "memory", text);
    }
}

/* As it came, but for what the Workload says in its place. */
static cJSON *carried(const cJSON *doc)
{
    cJSON *o = cJSON_Duplicate(doc, true), *spec;

    cJSON_DeleteItemFromObjectCaseSensitive(o, "status");
    spec = cJSON_GetObjectItemCaseSensitive(o, "spec");
    cJSON_DeleteItemFromObjectCaseSensitive(spec, "suspend");
    cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(spec, "runPolicy"),
                                            "suspend");
    return o;
}

int manifest_workload(const cJSON *doc, manifest_note note, void *arg, cJSON **ret, struct err *err)
{
    struct manifest m;
    int rc = manifest_read(doc, note, arg, &m, err);

    if (rc < 0)
        return rc;
    if (!*manifest_text(doc, "metadata.name") && !*manifest_text(doc, "metadata.generateName"))
        return err_field(err, E_INVALID, "metadata.name", "is missing");
    cJSON *o = cJSON_CreateObject(), *meta, *spec;
    cJSON_AddStringToObject(o, "apiVersion", "hanse.dev/v1alpha1");
    cJSON_AddStringToObject(o, "kind", "Workload");
    meta = cJSON_AddObjectToObject(o, "metadata");
    spec = cJSON_AddObjectToObject(o, "spec");
    metadata_make(doc, meta, spec);
    if (m.workers > 1)
        cJSON_AddNumberToObject(made_object(spec, "gang"), "workers", (double)m.workers);
    resources_make(&m, spec);
    cJSON_AddItemToObject(made_object(spec, "run"), "manifest", carried(doc));
    if (m.retries >= 0)
        cJSON_AddNumberToObject(made_object(spec, "run"), "retries", (double)m.retries);
    if (m.ttl_s >= 0)
        cJSON_AddNumberToObject(spec, "ttlSecondsAfterFinished", (double)m.ttl_s);
    if (m.suspended)
        cJSON_AddTrueToObject(spec, "suspend");
    *ret = o;
    return 0;
}

/* ---- a Workload with a manifest ---- */
static int combination(const struct workload_spec *s, struct err *err)
{
    const struct run_spec *r = s->run;

    if (s->checkpoint)
        return err_field(
            err, E_INVALID, "spec.checkpoint",
            "the programs of a manifest are started as they are, without the runner "
            "that keeps checkpoints: leave it out, or say command instead of manifest");
    if (s->partition && s->partition->mode > PARTITION_WAIT)
        return err_field(err, E_INVALID, "spec.partition",
                         "the programs of a manifest are started as they are, without the runner "
                         "that stops itself: the mode is wait");
    if (r->n_args || (r->workingDir && *r->workingDir))
        return err_field(err, E_INVALID, r->n_args ? "spec.run.args" : "spec.run.workingDir",
                         "is said by the manifest's containers: leave it out");
    if (s->gang && s->gang->minWorkers && s->gang->minWorkers != s->gang->workers)
        return err_field(err, E_INVALID, "spec.gang.minWorkers",
                         "a manifest makes the pods that it says, and no fewer: leave it out");
    return 0;
}

static int devices_match(const struct manifest *m, const struct gpu_request *g, struct err *err)
{
    char wanted[MANIFEST_RESOURCE_MAX] = "";
    int64_t count = g ? g->count : 0;

    if (g && *g->mig) {
        (void)snprintf(wanted, sizeof wanted, "nvidia.com/mig-%.32s", g->mig);
        count = 1;
    }
    if ((g && g->fraction > 0) || count != m->asks.devices ||
        (*wanted != 0) != (strncmp(m->asks.resource, "nvidia.com/mig-", 15) == 0) ||
        (*wanted && strcmp(wanted, m->asks.resource) != 0))
        return err_field(err, E_INVALID, "spec.resources.gpu",
                         "a pod of the manifest asks for %lld %s: say as many here",
                         (long long)m->asks.devices,
                         *m->asks.resource ? m->asks.resource : "devices");
    return 0;
}

static int matches(const struct manifest *m, const struct workload_spec *s, struct err *err)
{
    const struct resources *r = s->resources;
    int64_t workers = s->gang && s->gang->workers ? s->gang->workers : 1;
    char text[32];

    if (workers != m->workers)
        return err_field(err, E_INVALID, "spec.gang.workers",
                         "the manifest makes %lld pods: say as many here", (long long)m->workers);
    if ((r ? r->cpu : 0) < m->asks.cpu_milli) {
        quantity_print_milli(m->asks.cpu_milli, text);
        return err_field(err, E_INVALID, "spec.resources.cpu",
                         "a pod of the manifest asks for %s: say no less here", text);
    }
    if ((r ? r->memory : 0) < m->asks.memory_bytes) {
        quantity_print_bytes(m->asks.memory_bytes, text);
        return err_field(err, E_INVALID, "spec.resources.memory",
                         "a pod of the manifest asks for %s: say no less here", text);
    }
    return devices_match(m, r ? r->gpu : NULL, err);
}

static bool same(const struct object *old, const struct object *now)
{
    const struct workload_spec *a = old ? object_as(old, workload)->spec : NULL;

    return a && body_equal(&schema_workload_spec, a, object_as(now, workload)->spec);
}

int manifest_admit(const struct object *old, const struct object *now, struct err *err)
{
    const struct workload_spec *s =
        now->kind->id == KIND_WORKLOAD ? object_as(now, workload)->spec : NULL;
    struct manifest m;
    struct err e = {0};
    cJSON *doc;
    int rc;

    if (!s || !s->run || !s->run->manifest.n || same(old, now))
        return 0;
    if (json_parse(s->run->manifest.p, s->run->manifest.n, &doc, &e) < 0)
        return err_field(err, E_INVALID, "spec.run.manifest", "%.300s", e.text);
    rc = manifest_read(doc, NULL, NULL, &m, &e);
    if (rc < 0)
        rc = err_field(err, E_INVALID, "spec.run.manifest", "%.100s%s%.350s", e.field,
                       *e.field ? ": " : "", e.text);
    else if (m.suspended)
        rc = err_field(err, E_INVALID, "spec.run.manifest",
                       "spec.suspend: say spec.suspend of the Workload instead");
    if (rc == 0)
        rc = combination(s, err);
    if (rc == 0)
        rc = matches(&m, s, err);
    cJSON_Delete(doc);
    return rc;
}
