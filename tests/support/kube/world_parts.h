/* What the files of the cluster in memory share. */
#ifndef HANSE_TESTS_SUPPORT_KUBE_WORLD_PARTS_H
#define HANSE_TESTS_SUPPORT_KUBE_WORLD_PARTS_H

#include "connectors/kubernetes/client/client.h"
#include "tests/support/kube/kube_world.h"

#include <string.h>

#define W kube_world
#define KUBE_INDEX "batch.kubernetes.io/job-completion-index"

static const char *const node_names[KUBE_WORLD_NODES] = {"n0", "n1", "n2"};

static inline uint64_t now_ms(void)
{
    return loop_now_ms(W.loop);
}

static inline cJSON *get(cJSON *o, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(o, name);
}

static inline void set(cJSON *o, const char *name, cJSON *v)
{
    cJSON_DeleteItemFromObjectCaseSensitive(o, name);
    cJSON_AddItemToObject(o, name, v);
}

static inline cJSON *status_of(struct kube_object *o)
{
    if (!get(o->doc, "status"))
        cJSON_AddObjectToObject(o->doc, "status");
    return get(o->doc, "status");
}

static inline const char *uid_of(const struct kube_object *o)
{
    return kube_text(o->doc, "metadata.uid");
}

static inline const char *time_text(char ret[32])
{
    time_print(kube_world_wall_ms() / 1000 * 1000, ret);
    return ret;
}

static inline int number(const cJSON *o, const char *path)
{
    const cJSON *n = kube_at(o, path);

    return cJSON_IsNumber(n) ? n->valueint : 0;
}

/* -1: it has none yet. */
static inline int rank_of(const struct kube_object *pod)
{
    const char *text = kube_label(pod->doc, KUBE_INDEX);

    if (*kube_annotation(pod->doc, "hanse.dev/part"))
        text = kube_annotation(pod->doc, "hanse.dev/rank");
    return *text ? kube_world_number(text) : -1;
}

static inline bool phase_is(const struct kube_object *o, const char *phase)
{
    return !strcmp(kube_text(o->doc, "status.phase"), phase);
}

static inline bool is_over(const struct kube_object *o)
{
    return phase_is(o, "Failed") || phase_is(o, "Succeeded");
}

/* True when that changed something. */
static inline bool condition_set(struct kube_object *o, const char *type, bool is,
                                 const char *reason, const char *message)
{
    cJSON *list = get(status_of(o), "conditions"), *c = NULL, *e;
    const char *text = is ? "True" : "False";

    if (!list)
        list = cJSON_AddArrayToObject(status_of(o), "conditions");
    cJSON_ArrayForEach(e, list)
    {
        if (!strcmp(kube_text(e, "type"), type))
            c = e;
    }
    if (c && !strcmp(kube_text(c, "status"), text) && !strcmp(kube_text(c, "reason"), reason))
        return false;
    if (!c) {
        c = cJSON_CreateObject();
        cJSON_AddStringToObject(c, "type", type);
        cJSON_AddItemToArray(list, c);
    }
    set(c, "status", cJSON_CreateString(text));
    set(c, "reason", cJSON_CreateString(reason));
    set(c, "message", cJSON_CreateString(message));
    set(c, "lastTransitionTime", cJSON_CreateString(time_text((char[32]){0})));
    return true;
}

/* world_kubelet.c: what is done of pods in one turn */
void kube_world_procs(void);
void kube_world_kubelet(struct kube_object *pod);
void kube_world_silent(struct kube_object *pod);
void kube_world_clean(void);

#endif
