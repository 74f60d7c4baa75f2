/* Trees that are made of others: members that are put, copied over and found. */
#include "api/manifests/manifests_internal.h"

#include <stdio.h>
#include <string.h>

#define SET "HANSE_JOBSET"
#define SET_FIELD "metadata.labels['jobset.sigs.k8s.io/jobset-name']"

cJSON *made_object(cJSON *o, const char *key)
{
    cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);

    if (cJSON_IsObject(v))
        return v;
    made_put(o, key, v = cJSON_CreateObject());
    return v;
}

void made_put(cJSON *o, const char *key, cJSON *v)
{
    cJSON_DeleteItemFromObjectCaseSensitive(o, key);
    cJSON_AddItemToObject(o, key, v);
}

void made_copy(cJSON *to, const char *key, const cJSON *v)
{
    if (v && !cJSON_IsNull(v))
        made_put(to, key, cJSON_Duplicate(v, true));
}

void made_words(cJSON *meta, const char *key, const cJSON *from)
{
    for (const cJSON *e = cJSON_IsObject(from) ? from->child : NULL; e; e = e->next)
        made_copy(made_object(meta, key), e->string, e);
}

void made_env(cJSON *container, cJSON *e)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(container, "env"), *was;
    int i = 0;

    if (!cJSON_IsArray(list))
        made_put(container, "env", list = cJSON_CreateArray());
    cJSON_ArrayForEach(was, list)
    {
        if (strcmp(manifest_text(was, "name"), manifest_text(e, "name")) == 0)
            break;
        i++;
    }
    if (was)
        (void)cJSON_ReplaceItemInArray(list, i, e);
    else
        cJSON_AddItemToArray(list, e);
}

void made_env_text(cJSON *container, const char *name, const char *value)
{
    cJSON *e = cJSON_CreateObject();

    cJSON_AddStringToObject(e, "name", name);
    cJSON_AddStringToObject(e, "value", value);
    made_env(container, e);
}

void made_env_field(cJSON *container, const char *name, const char *path)
{
    cJSON *e = cJSON_CreateObject();

    cJSON_AddStringToObject(e, "name", name);
    cJSON_AddStringToObject(made_object(made_object(e, "valueFrom"), "fieldRef"), "fieldPath",
                            path);
    made_env(container, e);
}

cJSON *made_at(cJSON *o, const char *path)
{
    while (o && *path) {
        size_t n = strcspn(path, ".");
        cJSON *m = cJSON_IsObject(o) ? o->child : NULL;

        while (m && (strncmp(m->string, path, n) != 0 || m->string[n]))
            m = m->next;
        o = m;
        path += n + (path[n] == '.');
    }
    return o;
}

cJSON *made_jobset(const cJSON *doc)
{
    static const char *const members[] = {"name", "generateName", "namespace"};
    const cJSON *from = manifest_at(doc, "metadata");
    cJSON *o = cJSON_CreateObject(), *meta;

    cJSON_AddStringToObject(o, "apiVersion", "jobset.x-k8s.io/v1alpha2");
    cJSON_AddStringToObject(o, "kind", "JobSet");
    meta = cJSON_AddObjectToObject(o, "metadata");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        made_copy(meta, members[i], manifest_at(from, members[i]));
    made_words(meta, "labels", manifest_at(from, "labels"));
    made_words(meta, "annotations", manifest_at(from, "annotations"));
    return o;
}

void made_env_first(cJSON *container, const char *name, const char *part)
{
    char text[192];

    made_env_field(container, SET, SET_FIELD);
    (void)snprintf(text, sizeof text, "$(" SET ")-%.63s-0-0.$(" SET ")", part);
    made_env_text(container, name, text);
}

static int64_t whole(const cJSON *v)
{
    int64_t milli;

    if (cJSON_IsNumber(v))
        milli = v->valuedouble >= 0 && v->valuedouble < 1e9 ? (int64_t)(v->valuedouble * 1000) : 0;
    else if (!cJSON_IsString(v) || quantity_parse(v->valuestring, 1000, &milli, NULL) != 0)
        return 0;
    return milli < 1000 ? 1 : milli / 1000;
}

int64_t made_processors(const cJSON *container, int64_t *ret_devices)
{
    static const char *const lists[] = {"limits", "requests"};
    int64_t n = 0, devices = 0;

    for (int i = 0; i < 2; i++) {
        const cJSON *list = manifest_at(manifest_at(container, "resources"), lists[i]);
        for (const cJSON *e = cJSON_IsObject(list) ? list->child : NULL; e; e = e->next) {
            if (strcmp(e->string, "cpu") == 0)
                n = n ? n : whole(e);
            else if (strchr(e->string, '/'))
                devices = devices ? devices : whole(e);
        }
    }
    *ret_devices = devices;
    return n;
}
