/* Which objects are meant: target selectors, winning policies, queues of workloads, classes of
 * models. Comparisons of text only. */
#include "policy/pool/pool_internal.h"

#include <string.h>
#include <strings.h>

bool text_in(const char *s, const char *const *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(s, v[i]) == 0)
            return true;
    }
    return false;
}

#define STORE_MAX 1024 /* kinds.def */

/* The folder that a path names, whichever way it is spelled. The path is without a final '/'. */
static const char *folder_plain(const char *path, char out[STORE_MAX + 2])
{
    size_t used = 0, n;

    for (const char *p = path; *p; p += n) {
        p += strspn(p, "/");
        n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.') {
            while (used && out[--used] != '/')
                ;
        } else if (n && !(n == 1 && p[0] == '.') && used + n < STORE_MAX) {
            out[used++] = '/';
            memcpy(out + used, p, n);
            used += n;
        }
    }
    out[used] = '\0';
    return out;
}

static bool climbs(const char *url)
{
    const char *p = url;

    while ((p = strstr(p, "/..")) != NULL) {
        p += 3;
        if (*p == '/' || *p == '\0')
            return true;
    }
    return false;
}

/* What lies below a folder or a bucket's prefix is reached with it; of a bare name there is no
 * below. What ".." means in a URL is its reader's to say: such a store is in no other. */
static bool store_within(const char *store, const char *listed)
{
    char a[STORE_MAX + 2], b[STORE_MAX + 2];
    size_t n;

    if (strcmp(store, listed) == 0)
        return true;
    if (listed[0] == '/' && store[0] == '/') {
        store = folder_plain(store, a);
        listed = folder_plain(listed, b);
        n = strlen(listed);
        return strncmp(store, listed, n) == 0 && (store[n] == '/' || store[n] == '\0');
    }
    if (strncmp(listed, "s3://", 5) != 0 || climbs(store))
        return false;
    n = strlen(listed);
    while (listed[n - 1] == '/')
        n--;
    return strncmp(store, listed, n) == 0 && (store[n] == '/' || store[n] == '\0');
}

bool store_among(const char *store, const char *const *listed, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (store_within(store, listed[i]))
            return true;
    }
    return false;
}

bool store_listed(const char *store, const struct target_spec *t)
{
    return store_among(store, (const char *const *)t->stores, t->n_stores);
}

bool texts_all_in(const char *const *want, uint32_t n_want, const char *const *have,
                  uint32_t n_have)
{
    for (uint32_t i = 0; i < n_want; i++) {
        if (!text_in(want[i], have, n_have))
            return false;
    }
    return true;
}

static bool type_and_tier_match(const struct target_selector *s, const struct target_spec *t)
{
    bool ok = s->n_tier == 0;

    for (uint32_t i = 0; i < s->n_tier; i++)
        ok |= s->tier[i] == t->tier;
    if (!ok)
        return false;
    ok = s->n_type == 0;
    for (uint32_t i = 0; i < s->n_type; i++)
        ok |= s->type[i] == t->type;
    return ok;
}

bool target_matches(const struct target_selector *s, const struct object *target)
{
    const struct target_spec *t = target_spec_of(target);

    if (!s)
        return true;
    if (!type_and_tier_match(s, t))
        return false;
    if (s->n_region && !text_in(t->region, (const char *const *)s->region, s->n_region))
        return false;
    if (s->n_site && !text_in(t->site, (const char *const *)s->site, s->n_site))
        return false;
    if (s->n_names && !text_in(target->meta->name, (const char *const *)s->names, s->n_names))
        return false;
    if (s->n_jurisdiction &&
        !policy_jurisdiction_in(t->jurisdiction, (const char *const *)s->jurisdiction,
                                s->n_jurisdiction))
        return false;
    if (!texts_all_in((const char *const *)s->certifications, s->n_certifications,
                      (const char *const *)t->certifications, t->n_certifications))
        return false;
    for (uint32_t i = 0; i < s->n_matchLabels; i++) {
        const char *v =
            label_get(target->meta->labels, target->meta->n_labels, s->matchLabels[i].key);

        if (!v || strcmp(v, s->matchLabels[i].value) != 0)
            return false;
    }
    return true;
}

/* ---- PlacementPolicy: precedence, then the narrower selector, then the name ---- */
static bool policy_matches(const struct placement_policy_spec *s, const struct object *w)
{
    if (s->n_namespaces &&
        !text_in(w->meta->namespace_, (const char *const *)s->namespaces, s->n_namespaces))
        return false;
    return selector_matches(s->workloads, w->meta->labels, w->meta->n_labels);
}

static uint32_t policy_terms(const struct placement_policy_spec *s)
{
    uint32_t n = s->n_namespaces ? 1 : 0;

    return s->workloads ? n + s->workloads->n_matchLabels + s->workloads->n_matchExpressions : n;
}

static bool policy_beats(const struct object *a, const struct object *b)
{
    const struct placement_policy_spec *x = object_as(a, placement_policy)->spec;
    const struct placement_policy_spec *y = object_as(b, placement_policy)->spec;

    if (x->precedence != y->precedence)
        return x->precedence > y->precedence;
    if (policy_terms(x) != policy_terms(y))
        return policy_terms(x) > policy_terms(y);
    return strcmp(a->meta->name, b->meta->name) < 0;
}

const struct object *policy_winner(const struct object *workload,
                                   const struct object *const *policies, size_t n,
                                   const struct object **ret_losers, size_t *ret_n_losers)
{
    const struct object *best = NULL;
    size_t losers = 0;

    for (size_t i = 0; i < n; i++) {
        const struct object *lost = policies[i];
        size_t at;

        if (!policy_matches(object_as(policies[i], placement_policy)->spec, workload))
            continue;
        if (!best || policy_beats(policies[i], best)) {
            lost = best;
            best = policies[i];
        }
        if (!lost)
            continue;
        if (ret_losers) {
            for (at = losers; at > 0 && policy_beats(lost, ret_losers[at - 1]); at--)
                ret_losers[at] = ret_losers[at - 1];
            ret_losers[at] = lost;
        }
        losers++;
    }
    if (ret_n_losers)
        *ret_n_losers = losers;
    return best;
}

const char *policy_queue_of(const struct object *workload, const struct object *const *queues,
                            size_t n)
{
    const struct workload_spec *s = object_as(workload, workload)->spec;

    if (s->queue[0])
        return s->queue;
    for (size_t i = 0; i < n; i++) {
        const struct queue_spec *q = object_as(queues[i], queue)->spec;

        if (text_in(workload->meta->namespace_, (const char *const *)q->namespaces,
                    q->n_namespaces))
            return queues[i]->meta->name;
    }
    return "";
}

/* ---- GpuClass of a model: the name, an alias, else an alias that is part of the model ---- */
static bool same_text(const char *a, const char *b)
{
    return strcasecmp(a, b) == 0;
}

static bool memory_fits(const struct gpu_class_spec *s, int64_t memory_bytes)
{
    /* Drivers keep a part for themselves: an 80 GiB device tells 79.6. */
    return !memory_bytes || !s->memory ||
           (memory_bytes <= s->memory + s->memory / 16 &&
            memory_bytes >= s->memory - s->memory / 8);
}

const char *policy_class_of(const char *model, int64_t memory_bytes,
                            const struct object *const *classes, size_t n)
{
    const char *found = NULL;

    if (!model[0])
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (same_text(model, classes[i]->meta->name))
            return classes[i]->meta->name;
    }
    /* One spelling may stand for devices of different memory: the one whose memory fits goes
     * first. */
    for (size_t i = 0; i < n; i++) {
        const struct gpu_class_spec *s = object_as(classes[i], gpu_class)->spec;

        for (uint32_t j = 0; j < s->n_aliases; j++) {
            if (!same_text(model, s->aliases[j]))
                continue;
            if (memory_fits(s, memory_bytes))
                return classes[i]->meta->name;
            if (!found)
                found = classes[i]->meta->name;
        }
    }
    return found;
}
