/* managedFields: who set which field, so that server-side apply can tell a conflict from a change.
 * An Update takes what it changed from whoever had it; only Apply asks. */
#include "api/server/write/write_internal.h"

void owners_load(struct owners *w, const struct object *old)
{
    w->n = 0;
    for (uint32_t i = 0; old && i < old->meta->n_managedFields && w->n < OWNERS_MAX; i++) {
        const struct managed_fields *m = &old->meta->managedFields[i];
        cJSON *set = cJSON_ParseWithLength(m->fieldsV1.p, m->fieldsV1.n);
        if (!set)
            continue;
        w->v[w->n++] =
            (struct owner){m->manager, m->operation, m->subresource, m->apiVersion, m->time, set};
    }
}

void owners_read(struct owners *w, const cJSON *list, struct arena *a)
{
    const cJSON *m;

    owners_free(w);
    cJSON_ArrayForEach(m, list)
    {
        const cJSON *set = cJSON_GetObjectItemCaseSensitive(m, "fieldsV1");
        const char *keys[] = {"manager", "operation", "subresource", "apiVersion", "time"}, *v[5];
        struct err e;
        int64_t time = 0;
        if (!cJSON_IsObject(set) || w->n >= OWNERS_MAX)
            continue;
        for (int i = 0; i < 5; i++) {
            const cJSON *t = cJSON_GetObjectItemCaseSensitive(m, keys[i]);
            v[i] = cJSON_IsString(t) ? arena_strdup(a, t->valuestring) : "";
        }
        if (*v[4] && time_parse(v[4], &time, &e))
            time = 0;
        w->v[w->n++] = (struct owner){v[0], v[1], v[2], v[3], time, cJSON_Duplicate(set, true)};
    }
}

void owners_free(struct owners *w)
{
    while (w->n)
        cJSON_Delete(w->v[--w->n].set);
}

static void owner_drop(struct owners *w, unsigned i)
{
    cJSON_Delete(w->v[i].set);
    memmove(&w->v[i], &w->v[i + 1], (w->n - i - 1) * sizeof *w->v);
    w->n--;
}

static void owners_prune(struct owners *w)
{
    for (unsigned i = w->n; i-- > 0;)
        if (!w->v[i].set)
            owner_drop(w, i);
}

struct owner *owners_find(struct owners *w, const char *manager, const char *operation,
                          const char *sub)
{
    for (unsigned i = 0; i < w->n; i++)
        if (!strcmp(w->v[i].manager, manager) && !strcmp(w->v[i].operation, operation) &&
            !strcmp(w->v[i].sub, sub))
            return &w->v[i];
    return NULL;
}

struct owner *owners_add(struct owners *w, struct arena *a, const struct kind *k,
                         const char *manager, const char *operation, const char *sub)
{
    unsigned oldest = 0;

    if (w->n >= OWNERS_MAX) {
        for (unsigned i = 1; i < w->n; i++)
            if (w->v[i].time < w->v[oldest].time)
                oldest = i;
        owner_drop(w, oldest);
    }
    struct owner *o = &w->v[w->n++];
    *o = (struct owner){.manager = a ? arena_strdup(a, manager) : manager,
                        .operation = operation,
                        .sub = sub,
                        .api_version = kind_api_version(k)};
    return o;
}

void owners_update(struct owners *w, const struct kind *k, const cJSON *old, const cJSON *now,
                   const char *manager, const char *sub, int64_t time)
{
    bool status = *sub != 0;
    cJSON *all = set_of(k->schema, now, status);
    cJSON *changed = set_keep_differing(cJSON_Duplicate(all, true), old, now);

    for (unsigned i = 0; i < w->n; i++) {
        struct owner *o = &w->v[i];
        bool mine =
            !strcmp(o->manager, manager) && !strcmp(o->operation, "Update") && !strcmp(o->sub, sub);
        if ((*o->sub != 0) != status)
            continue;
        o->set = set_common(o->set, all); /* what is gone is nobody's */
        if (!mine)
            o->set = set_minus(o->set, changed);
    }
    owners_prune(w);
    if (changed) {
        struct owner *o = owners_find(w, manager, "Update", sub);
        if (!o)
            o = owners_add(w, NULL, k, manager, "Update", sub);
        o->set = set_union(o->set, changed);
        o->time = time / 1000 * 1000;
    }
    cJSON_Delete(changed);
    cJSON_Delete(all);
}

void owners_store(const struct owners *w, struct meta *m, struct arena *a)
{
    m->managedFields = arena_array(a, struct managed_fields, w->n + 1);
    m->n_managedFields = 0;
    for (unsigned i = 0; i < w->n; i++) {
        const struct owner *o = &w->v[i];
        if (!o->set)
            continue;
        char *text = cJSON_PrintUnformatted(o->set);
        struct managed_fields *f = &m->managedFields[m->n_managedFields++];
        memset(f, 0, sizeof *f);
        f->manager = arena_strdup(a, o->manager);
        f->operation = arena_strdup(a, o->operation);
        f->subresource = arena_strdup(a, o->sub);
        f->apiVersion = arena_strdup(a, o->api_version);
        f->time = o->time;
        f->fieldsType = "FieldsV1";
        f->fieldsV1 = slice_make(arena_memdup(a, text, strlen(text) + 1), strlen(text));
        cJSON_free(text);
    }
}
