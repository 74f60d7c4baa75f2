/* Jobs as they could be handed over: what submit would make of each, in submit's own words. */
#include "controlplane/leader/adopt/shadow_internal.h"

#include "api/manifests/manifests.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define KEPT_BYTES (256u << 20)
#define SCRATCH_BYTES ((size_t)1 << 30) /* as a cycle has */
#define WORKLOAD_BYTES (4u << 20)

/* ---- its life ---- */
struct shadow *shadow_create(const char *target, const char *ns)
{
    struct shadow *s = mem_new(struct shadow);

    s->a = arena_create(KEPT_BYTES);
    s->scratch = arena_create(SCRATCH_BYTES);
    s->target = arena_strdup(s->a, target);
    s->ns = arena_strdup(s->a, ns);
    s->jobs = arena_array(s->a, struct shadow_job *, SHADOW_JOBS_MAX + SHADOW_PLAIN_MAX);
    s->groups = arena_array(s->a, struct shadow_group, SHADOW_GROUPS_MAX);
    s->by_uid = arena_array(s->a, struct shadow_slot, SHADOW_TABLE);
    s->by_owner = arena_array(s->a, struct shadow_slot, SHADOW_TABLE);
    s->by_hold = arena_array(s->a, struct shadow_hold *, 2 * SHADOW_HOLDS_MAX);
    return s;
}

struct shadow *shadow_destroy(struct shadow *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < s->n_jobs; i++)
        (void)object_unref(s->jobs[i]->workload);
    s->pool = pool_destroy(s->pool);
    (void)arena_destroy(s->scratch);
    (void)arena_destroy(s->a);
    mem_free(s);
    return NULL;
}

/* ---- notes ---- */
/* What a cluster has may hold anything; people read it on terminals. */
static char *plain(struct shadow *s, const char *text)
{
    char *copy = arena_strdup(s->a, text);

    for (char *p = copy; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = ' ';
    return copy;
}

struct noting {
    struct shadow *s;
    struct shadow_job *j;
};

static void note_add(struct shadow *s, struct shadow_job *j, const char *field, const char *text)
{
    char cut[400], name[200];

    if (j->n_notes == SHADOW_NOTES_MAX) {
        j->more_notes++;
        return;
    }
    str_cut(cut, sizeof cut, text);
    str_cut(name, sizeof name, field);
    j->notes[j->n_notes++] = (struct shadow_note){plain(s, name), plain(s, cut)};
}

static void on_note(void *arg, bool refused, const char *field, const char *text)
{
    const struct noting *n = arg;

    if (!refused)
        note_add(n->s, n->j, field, text);
}

static void on_count(void *arg, bool refused, const char *field, const char *text)
{
    (void)field;
    (void)text;
    *(unsigned *)arg += refused;
}

static void refuse(struct shadow *s, struct shadow_job *j, const struct err *err, unsigned n)
{
    bool named = *err->field && strncmp(err->text, err->field, strlen(err->field)) != 0;

    j->why = arena_printf(s->a, "%s%s%s", named ? err->field : "", named ? ": " : "", err->text);
    j->why = plain(s, j->why);
    if (n > 1)
        j->why = arena_printf(s->a, "%s (and %u more)", j->why, n - 1);
}

/* ---- its Workload ---- */
/* As placement needs it: as long as it lives in memory it carries neither manifest, only that it
 * has one, nor annotations. */
static int workload_keep(struct shadow *s, struct shadow_job *j, const struct object *o,
                         struct err *err)
{
    static const char none[] = "{}";
    struct workload *w = object_edit_as(o, workload, s->scratch);

    w->spec->run->manifest = slice_make(none, sizeof none - 1);
    w->spec->suspend = false;
    w->metadata->uid = j->uid;
    w->metadata->n_annotations = 0; /* free notes of others, of any size */
    w->status = arena_new(s->scratch, struct workload_status);
    w->status->phase = PHASE_QUEUED;
    w->status->queuedAt = j->made_ms;
    return object_make_within(o->kind, w, WORKLOAD_BYTES, &j->workload, err);
}

static int workload_make(struct shadow *s, struct shadow_job *j, const cJSON *doc, struct err *err)
{
    struct object *o = NULL;
    cJSON *w = NULL, *meta;
    char unkept[UNKEPT_MAX];
    int rc = manifest_workload(doc, NULL, NULL, &w, err);

    if (rc < 0)
        return rc;
    meta = cJSON_GetObjectItemCaseSensitive(w, "metadata");
    cJSON_DeleteItemFromObjectCaseSensitive(meta, "namespace");
    cJSON_AddStringToObject(meta, "namespace", j->hanse_ns);
    rc = object_from_json(kind_by_id(KIND_WORKLOAD), w, DECODE_USER, &o, err);
    if (rc == 0)
        rc = object_validate(o, err);
    if (rc == 0)
        rc = object_admit(NULL, o, err);
    if (rc == 0)
        rc = manifest_admit(NULL, o, err);
    if (rc == 0 && promises_unkept(o, unkept, sizeof unkept))
        note_add(s, j, "spec", unkept);
    if (rc == 0)
        rc = workload_keep(s, j, o, err);
    (void)object_unref(o);
    cJSON_Delete(w);
    return rc;
}

/* ---- one of them ---- */
static struct shadow_job *job_new(struct shadow *s, const struct foreign_item *i, bool devices)
{
    size_t of_these = devices ? s->n_jobs - s->n_plain : s->n_plain;

    if (of_these >= (devices ? SHADOW_JOBS_MAX : SHADOW_PLAIN_MAX)) {
        s->jobs_omitted++;
        return NULL;
    }
    struct shadow_job *j = arena_new(s->a, struct shadow_job);
    *j = (struct shadow_job){.ns = arena_strdup(s->a, i->ns),
                             .name = arena_strdup(s->a, i->name),
                             .uid = arena_strdup(s->a, i->uid),
                             .hanse_ns = arena_strdup(s->a, i->hanse_ns),
                             .made_ms = i->since_ms,
                             .suspended = i->suspended,
                             .devices = devices,
                             .priced = true};
    s->jobs[s->n_jobs++] = j;
    s->n_plain += !devices;
    shadow_put(s->by_uid, j->uid, j);
    return j;
}

static void place_notes(struct shadow *s, struct shadow_job *j, const struct shadow_docs *docs,
                        const struct foreign_item *i)
{
    char text[400];

    if (!docs->get(docs->arg, KIND_NAMESPACE, "", j->hanse_ns)) {
        (void)snprintf(text, sizeof text,
                       "there is no namespace %.63s of Hanse yet: it has to be made first",
                       j->hanse_ns);
        note_add(s, j, "metadata.namespace", text);
    } else if (docs->get(docs->arg, KIND_WORKLOAD, j->hanse_ns, j->name)) {
        (void)snprintf(text, sizeof text,
                       "namespace %.63s has a Workload of this name: it would need another one",
                       j->hanse_ns);
        note_add(s, j, "metadata.name", text);
    }
    if (strcmp(i->place, i->ns) != 0) {
        (void)snprintf(text, sizeof text,
                       "on this target it would run in namespace %.63s, by "
                       "spec.kubernetes.namespaces or spec.connection.namespace: Secrets, "
                       "ConfigMaps and claims that it names would have to be there",
                       i->place);
        note_add(s, j, "metadata.namespace", text);
    }
}

/* Its Workload, with notes of what of it is not kept. */
static int job_read(struct shadow *s, struct shadow_job *j, const cJSON *doc, struct err *err)
{
    struct noting n = {.s = s, .j = j};
    struct manifest m;
    int rc = manifest_read(doc, on_note, &n, &m, err);

    return rc < 0 ? rc : workload_make(s, j, doc, err);
}

static void job_owned(struct shadow *s, struct shadow_job *j, const struct foreign_item *i)
{
    j->owned = true;
    j->why = arena_printf(s->a,
                          "%.60s %.200s has made it, and makes it again: only a Job that nothing "
                          "else has made can be handed over",
                          i->owner_kind, i->owner_name);
}

/* Of one pod. */
static int64_t milli_asked(const struct manifest_asks *m)
{
    static const char mig[] = "nvidia.com/mig-";
    bool part = strncmp(m->resource, mig, sizeof mig - 1) == 0;

    return m->devices * (part ? policy_mig_milli(m->resource + sizeof mig - 1) : 1000);
}

void shadow_job(struct shadow *s, const struct shadow_docs *docs, const struct foreign_item *i)
{
    struct manifest m = {.n = 0};
    unsigned refused = 0;
    cJSON *doc = NULL;
    struct err err = {0};
    int rc = json_parse(i->manifest, strlen(i->manifest), &doc, &err);

    if (rc == 0) /* whether it asks for devices, also where it is refused */
        rc = manifest_read(doc, on_count, &refused, &m, &err);
    struct shadow_job *j = job_new(s, i, m.asks.devices > 0);
    if (j) {
        j->workers = m.workers;
        j->asks_milli = m.workers * milli_asked(&m.asks);
        if (*i->owner_kind)
            job_owned(s, j, i);
        else if (rc < 0 || job_read(s, j, doc, &err) < 0)
            refuse(s, j, &err, refused);
        else
            place_notes(s, j, docs, i);
    }
    cJSON_Delete(doc);
    arena_reset(s->scratch);
}
