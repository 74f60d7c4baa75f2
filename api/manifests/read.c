/* A manifest as parts: which templates make how many pods, and what beside them cannot be kept. A
 * run begins whole and once, so what makes pods one after another, or again, is refused. */
#include "api/manifests/manifests_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OWN_WORDS "hanse.dev/"
#define APPARMOR "container.apparmor.security.beta.kubernetes.io/"
#define QUEUE_WORD "hanse.dev/queue"
#define KUEUE_WORD "kueue.x-k8s.io/queue-name"
#define KUEUE_PRIORITY "kueue.x-k8s.io/priority-class"

static const struct manifest_kind kinds[] = {
#define K(id, group, version, kind, plural, decides)                                               \
    {MANIFEST_##id, group, version, kind, plural, decides},
#include "api/manifests/kinds.def"
};

static const struct {
    const char *group, *kind, *why;
} never[] = {
#define K(id, group, version, kind, plural, decides)
#define N(group, kind, why) {group, kind, why},
#include "api/manifests/kinds.def"
};

static const char *why_never(const char *api_version, const char *kind)
{
    size_t n = strcspn(api_version, "/");

    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (strlen(never[i].group) == n && strncmp(api_version, never[i].group, n) == 0 &&
            strcmp(kind, never[i].kind) == 0)
            return never[i].why;
    return NULL;
}

const struct manifest_kind *manifest_kind_find(const char *api_version, const char *kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i].group);
        if (strncmp(api_version, kinds[i].group, n) == 0 && api_version[n] == '/' &&
            strcmp(api_version + n + 1, kinds[i].version) == 0 && strcmp(kind, kinds[i].kind) == 0)
            return &kinds[i];
    }
    return NULL;
}

void manifest_kind_version(const struct manifest_kind *k, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/%s", k->group, k->version);
}

void manifest_kinds_print(char *out, size_t size)
{
    size_t used = 0;

    *out = '\0';
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s (%s/%s)", i ? ", " : "",
                                 kinds[i].kind, kinds[i].group, kinds[i].version);
}

/* ---- trees ---- */
const cJSON *manifest_at(const cJSON *o, const char *path)
{
    while (o && *path) {
        size_t n = strcspn(path, ".");
        const cJSON *m = cJSON_IsObject(o) ? o->child : NULL;

        while (m && (strncmp(m->string, path, n) != 0 || m->string[n]))
            m = m->next;
        o = m;
        path += n + (path[n] == '.');
    }
    return o;
}

const char *manifest_text(const cJSON *o, const char *path)
{
    const cJSON *v = manifest_at(o, path);

    return cJSON_IsString(v) ? v->valuestring : "";
}

void manifest_field(char out[MANIFEST_FIELD_MAX], const char *at, const char *name)
{
    (void)snprintf(out, MANIFEST_FIELD_MAX, "%.150s%s%.100s", at, *at ? "." : "", name);
}

void manifest_item(char out[MANIFEST_FIELD_MAX], const char *at, const char *name, int i)
{
    (void)snprintf(out, MANIFEST_FIELD_MAX, "%.150s%s%.80s[%d]", at, *at ? "." : "", name, i);
}

/* ---- notes ---- */
static void note(struct reading *r, bool refused, const char *field, const char *fmt, va_list ap)
{
    char text[ERR_TEXT_MAX];

    (void)vsnprintf(text, sizeof text, fmt, ap);
    if (refused && !r->first.code)
        (void)err_field(&r->first, E_NOTIMPL, field, "%s", text);
    if (r->note)
        r->note(r->arg, refused, field, text);
}

void manifest_refuse(struct reading *r, const char *field, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    note(r, true, field, fmt, ap);
    va_end(ap);
}

void manifest_warn(struct reading *r, const char *field, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    note(r, false, field, fmt, ap);
    va_end(ap);
}

void manifest_rules(struct reading *r, const cJSON *o, const char *at,
                    const struct manifest_rule *rules, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const cJSON *v = manifest_at(o, rules[i].path);
        char field[MANIFEST_FIELD_MAX];

        if (!v || cJSON_IsNull(v) || (rules[i].when == IS_TRUE && cJSON_IsFalse(v)))
            continue;
        manifest_field(field, at, rules[i].path);
        if (rules[i].refused)
            manifest_refuse(r, field, "%s", rules[i].why);
        else
            manifest_warn(r, field, "%s", rules[i].why);
    }
}

void manifest_members(struct reading *r, const cJSON *o, const char *at, const char *known)
{
    char field[MANIFEST_FIELD_MAX];

    for (const cJSON *e = cJSON_IsObject(o) ? o->child : NULL; e; e = e->next) {
        size_t n = strlen(e->string), len;
        bool is = cJSON_IsNull(e);
        for (const char *p = known; *p && !is; p += len + (p[len] == ' ')) {
            len = strcspn(p, " ");
            is = len == n && strncmp(p, e->string, n) == 0;
        }
        manifest_field(field, at, e->string);
        if (!is)
            manifest_refuse(r, field,
                            "what its controller does for it is not known here: leave it out, or "
                            "submit a JobSet");
    }
}

int64_t manifest_int(struct reading *r, const cJSON *o, const char *at, const char *name,
                     int64_t otherwise, int64_t min, int64_t max)
{
    const cJSON *v = manifest_at(o, name);
    char field[MANIFEST_FIELD_MAX];

    if (!v || cJSON_IsNull(v))
        return otherwise;
    if (cJSON_IsNumber(v) && v->valuedouble >= (double)min && v->valuedouble <= (double)max &&
        v->valuedouble == floor(v->valuedouble))
        return (int64_t)v->valuedouble;
    manifest_field(field, at, name);
    manifest_refuse(r, field, "expected a whole number from %lld to %lld", (long long)min,
                    (long long)max);
    return otherwise;
}

/* ---- labels and annotations ---- */
bool manifest_word_is_stored(const char *key)
{
    static const char *const begins[] = {"batch.kubernetes.io/",  "jobset.sigs.k8s.io/",
                                         "training.kubeflow.org/", "volcano.sh/job-",
                                         "volcano.sh/task-",       "volcano.sh/queue-name",
                                         "volcano.sh/template-uid"};

    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(key, begins[i], strlen(begins[i])) == 0)
            return true;
    return strcmp(key, "controller-uid") == 0 || strcmp(key, "job-name") == 0;
}

void manifest_words(struct reading *r, const cJSON *meta, const char *at, bool top)
{
    static const char *const maps[] = {"labels", "annotations"};
    static const struct manifest_rule links[] = {
        {"ownerReferences", IS_THERE, true,
         "it would go with that owner, and what is gone proves no end: leave it out"},
        {"finalizers", IS_THERE, true,
         "somebody who is not here would hold it after its end: leave it out"}};
    char where[MANIFEST_FIELD_MAX];

    for (int i = 0; i < 2; i++) {
        const cJSON *map = manifest_at(meta, maps[i]), *e;
        char field[MANIFEST_FIELD_MAX], name[MANIFEST_FIELD_MAX];

        (void)snprintf(name, sizeof name, "metadata.%s", maps[i]);
        manifest_field(field, at, name);
        if (map && !cJSON_IsObject(map) && !cJSON_IsNull(map)) {
            manifest_refuse(r, field, "expected names and texts");
            continue;
        }
        for (e = map && cJSON_IsObject(map) ? map->child : NULL; e; e = e->next) {
            char of[MANIFEST_FIELD_MAX];
            bool queue = top && strcmp(e->string, QUEUE_WORD) == 0;
            manifest_field(of, field, e->string);
            if (!cJSON_IsString(e))
                manifest_refuse(r, of, "expected a text");
            else if (strncmp(e->string, APPARMOR, strlen(APPARMOR)) == 0 &&
                     strcmp(e->valuestring, "unconfined") == 0)
                manifest_refuse(r, of, "no program of a run goes without confinement");
            else if (strncmp(e->string, OWN_WORDS, strlen(OWN_WORDS)) == 0 && !queue)
                manifest_refuse(r, of, "what begins with " OWN_WORDS " is the hub's: leave it out");
            else if (strcmp(e->string, KUEUE_WORD) == 0)
                manifest_warn(r, of,
                              "left out: which queue of its cluster a run goes through says the "
                              "Target (spec.kubernetes.queue), and " QUEUE_WORD " or --queue "
                              "which Queue of Hanse");
            else if (strcmp(e->string, KUEUE_PRIORITY) == 0)
                manifest_warn(r, of,
                              "left out: whose turn it is says spec.priorityClassName of the "
                              "Workload (--priority), and the Target what its cluster calls that "
                              "(spec.kubernetes.priorityClasses)");
            else if (manifest_word_is_stored(e->string))
                manifest_warn(r, of, "left out: a controller has written it");
        }
    }
    manifest_field(where, at, "metadata");
    manifest_rules(r, meta, where, links, sizeof links / sizeof *links);
}

/* ---- Jobs ---- */
static const struct manifest_rule job_rules[] = {
    {"backoffLimitPerIndex", IS_THERE, true,
     "an epoch ends as a whole, and so it is begun again: say backoffLimit"},
    {"maxFailedIndexes", IS_THERE, true, "an epoch ends as a whole: leave it out"},
    {"podFailurePolicy", IS_THERE, true,
     "pods that fail are never made again within an epoch: leave it out"},
    {"successPolicy", IS_THERE, true,
     "an epoch has succeeded when all of its workers have: leave it out"},
    {"managedBy", IS_THERE, true, "a controller of its own promises nothing here: leave it out"},
    {"manualSelector", IS_TRUE, true, "its pods are chosen by their Job alone: leave it out"},
    {"selector", IS_THERE, false, "left out: its pods are chosen by their Job alone"},
};

/* Its pods all begin together: of completions in waves there are none. Returns how many. */
int64_t manifest_job(struct reading *r, const cJSON *spec, const char *at, int64_t max)
{
    const cJSON *told = manifest_at(spec, "completions");
    int64_t parallel = manifest_int(r, spec, at, "parallelism", 1, 1, max);
    int64_t complete = manifest_int(r, spec, at, "completions", parallel, 1, INT32_MAX);
    const char *replace = manifest_text(spec, "podReplacementPolicy");
    char field[MANIFEST_FIELD_MAX];

    manifest_rules(r, spec, at, job_rules, sizeof job_rules / sizeof *job_rules);
    if (*replace && strcmp(replace, "Failed") != 0) {
        manifest_field(field, at, "podReplacementPolicy");
        manifest_warn(r, field, "becomes Failed: no pod is made while another may still run");
    }
    manifest_field(field, at, "completions");
    if (complete > parallel)
        manifest_refuse(
            r, field,
            "%lld completions of which %lld run at a time: all workers of a run begin "
            "together; say parallelism: %lld, or submit its command with --array %lld%%%lld",
            (long long)complete, (long long)parallel, (long long)complete, (long long)complete,
            (long long)parallel);
    if (complete < parallel)
        parallel = complete;
    if (parallel > 1 && (!told || cJSON_IsNull(told)))
        manifest_warn(r, field,
                      "not given: the run has succeeded when all %lld pods have, not the first of "
                      "them",
                      (long long)parallel);
    return parallel;
}

struct manifest_part *manifest_part_add(struct reading *r, struct manifest *m, const char *path,
                                        const cJSON *template, int64_t pods)
{
    struct manifest_part *p = &m->parts[m->n];

    if (m->n == MANIFEST_PARTS_MAX || strlen(path) >= sizeof p->path) {
        manifest_refuse(r, path, "more than %d templates of pods", MANIFEST_PARTS_MAX);
        return NULL;
    }
    m->n++;
    str_copy(p->path, sizeof p->path, path);
    p->template = template;
    p->pods = pods;
    manifest_pods(r, template, path, &p->asks);
    return p;
}

static void job_read(struct reading *r, const cJSON *doc, struct manifest *m)
{
    const cJSON *spec = manifest_at(doc, "spec");
    int64_t pods = manifest_job(r, spec, "spec", LIMIT_GANG_MAX);

    (void)manifest_part_add(r, m, "spec.template", manifest_at(spec, "template"), pods);
    m->retries = manifest_int(r, spec, "spec", "backoffLimit", 6, 0, MANIFEST_RETRIES_MAX);
    m->ttl_s = manifest_int(r, spec, "spec", "ttlSecondsAfterFinished", -1, 0,
                             MANIFEST_TTL_MAX);
    m->suspended = cJSON_IsTrue(manifest_at(spec, "suspend"));
    if (!manifest_at(spec, "backoffLimit"))
        manifest_warn(r, "spec.backoffLimit",
                      "not given: a Job is begun again after 6 failures, and so is the run");
    if (strcmp(manifest_text(spec, "completionMode"), "Indexed") != 0)
        manifest_warn(r, "spec.completionMode",
                      "becomes Indexed: each pod has its number in JOB_COMPLETION_INDEX and in its "
                      "name");
}

/* ---- a document ---- */
static void (*const readers[MANIFEST_NR])(struct reading *, const cJSON *, struct manifest *) = {
    [MANIFEST_JOB] = job_read,
    [MANIFEST_JOBSET] = manifest_jobset,
    [MANIFEST_PYTORCHJOB] = manifest_pytorchjob,
    [MANIFEST_MPIJOB] = manifest_mpijob,
    [MANIFEST_VOLCANO] = manifest_volcano,
};

static void totals(struct reading *r, struct manifest *m)
{
    for (unsigned i = 0; i < m->n; i++) {
        const struct manifest_part *p = &m->parts[i];
        m->workers += p->pods;
        if (p->asks.cpu_milli > m->asks.cpu_milli)
            m->asks.cpu_milli = p->asks.cpu_milli;
        if (p->asks.memory_bytes > m->asks.memory_bytes)
            m->asks.memory_bytes = p->asks.memory_bytes;
        if (*p->asks.resource && *m->asks.resource &&
            strcmp(p->asks.resource, m->asks.resource) != 0)
            manifest_refuse(r, p->path,
                            "asks for %.60s, and other pods for %.60s: all workers get "
                            "devices of one kind",
                            p->asks.resource, m->asks.resource);
        if (p->asks.devices > m->asks.devices) {
            m->asks.devices = p->asks.devices;
            str_copy(m->asks.resource, sizeof m->asks.resource, p->asks.resource);
        }
        if (p->asks.devices > 1 && strncmp(p->asks.resource, "nvidia.com/mig-", 15) == 0)
            manifest_refuse(r, p->path, "asks for %lld MIG instances: a worker gets one",
                            (long long)p->asks.devices);
    }
    if (m->workers > LIMIT_GANG_MAX)
        manifest_refuse(r, "spec", "it makes %lld pods; a run has at most %d",
                        (long long)m->workers, LIMIT_GANG_MAX);
}

static const struct manifest_rule stored_rules[] = {
    {"status", IS_THERE, false, "left out: it says how another run of it went"},
    {"metadata.uid", IS_THERE, false, "left out, with what else a cluster writes of an object"},
};

int manifest_read(const cJSON *doc, manifest_note note_, void *arg, struct manifest *ret,
                  struct err *err)
{
    struct reading r = {.note = note_, .arg = arg};
    const char *version = manifest_text(doc, "apiVersion"), *kind = manifest_text(doc, "kind");
    char all[512];

    *ret = (struct manifest){.kind = manifest_kind_find(version, kind), .retries = -1, .ttl_s = -1};
    if (!ret->kind) {
        const char *why = why_never(version, kind);
        manifest_kinds_print(all, sizeof all);
        if (why)
            return err_field(err, E_NOTIMPL, "kind", "\"%.60s\" (%.60s) cannot be carried: %s",
                             kind, version, why);
        return err_field(err, E_NOTIMPL, "kind",
                         "\"%.60s\" (%.60s) is none that can be carried: %s can", kind, version,
                         all);
    }
    manifest_words(&r, manifest_at(doc, "metadata"), "", true);
    manifest_rules(&r, doc, "", stored_rules, sizeof stored_rules / sizeof *stored_rules);
    readers[ret->kind->id](&r, doc, ret);
    totals(&r, ret);
    if (!r.first.code)
        return 0;
    if (err)
        *err = r.first;
    return r.first.code;
}
