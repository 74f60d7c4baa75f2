/* Reading what an API server sent: nothing of it can be relied on to be there, or to be of its
 * type. What is not is as if it were absent. */
#include "connectors/kubernetes/client/client.h"

#include <string.h>

static const cJSON *member(const cJSON *o, const char *name, size_t n)
{
    const cJSON *m;

    if (!cJSON_IsObject(o))
        return NULL;
    cJSON_ArrayForEach(m, o)
    {
        if (m->string && strncmp(m->string, name, n) == 0 && !m->string[n])
            return m;
    }
    return NULL;
}

static const char *text_of(const cJSON *v)
{
    return cJSON_IsString(v) && v->valuestring ? v->valuestring : "";
}

const cJSON *kube_at(const cJSON *o, const char *path)
{
    while (o && *path) {
        size_t n = strcspn(path, ".");

        o = member(o, path, n);
        path += n + (path[n] == '.');
    }
    return o;
}

const char *kube_text(const cJSON *o, const char *path)
{
    return text_of(kube_at(o, path));
}

const char *kube_label(const cJSON *o, const char *name)
{
    return text_of(member(kube_at(o, "metadata.labels"), name, strlen(name)));
}

const char *kube_annotation(const cJSON *o, const char *name)
{
    return text_of(member(kube_at(o, "metadata.annotations"), name, strlen(name)));
}

bool kube_deleting(const cJSON *o)
{
    return *kube_text(o, "metadata.deletionTimestamp") != '\0';
}

static const cJSON *condition(const cJSON *o, const char *type)
{
    const cJSON *c;

    cJSON_ArrayForEach(c, kube_at(o, "status.conditions"))
    {
        if (strcmp(kube_text(c, "type"), type) == 0)
            return c;
    }
    return NULL;
}

bool kube_condition_is(const cJSON *o, const char *type)
{
    return strcmp(kube_text(condition(o, type), "status"), "True") == 0;
}

const char *kube_condition_message(const cJSON *o, const char *type)
{
    return kube_text(condition(o, type), "message");
}

int64_t kube_time_ms(const char *rfc3339)
{
    int64_t ms = 0;

    return time_parse(rfc3339, &ms, NULL) == 0 ? ms : 0;
}
