/* A document as its author may have written it: without what only a cluster writes of what it
 * stores. What is left means the same, so that nothing is noted of it that nobody has said. */
#include "api/manifests/manifests_internal.h"

#include <string.h>

#define APPLIED "kubectl.kubernetes.io/last-applied-configuration"

static cJSON *at(cJSON *o, const char *name)
{
    return cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, name) : NULL;
}

/* By the controller of Jobs. */
static bool is_written(const char *key)
{
    return strncmp(key, "batch.kubernetes.io/", 20) == 0 || strcmp(key, "controller-uid") == 0 ||
           strcmp(key, "job-name") == 0 || strcmp(key, APPLIED) == 0;
}

static void words_bare(cJSON *meta, const char *name)
{
    cJSON *map = at(meta, name);

    for (cJSON *e = cJSON_IsObject(map) ? map->child : NULL, *next; e; e = next) {
        next = e->next;
        if (is_written(e->string))
            cJSON_Delete(cJSON_DetachItemViaPointer(map, e));
    }
    if (map && !map->child)
        cJSON_DeleteItemFromObjectCaseSensitive(meta, name);
}

static void metadata_bare(cJSON *o)
{
    static const char *const written[] = {"uid",        "resourceVersion", "creationTimestamp",
                                          "generation", "managedFields",   "selfLink"};
    cJSON *meta = at(o, "metadata");

    for (size_t i = 0; meta && i < sizeof written / sizeof *written; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(meta, written[i]);
    words_bare(meta, "labels");
    words_bare(meta, "annotations");
}

cJSON *manifest_bare(const cJSON *doc)
{
    cJSON *o = cJSON_Duplicate(doc, true), *spec = at(o, "spec");

    cJSON_DeleteItemFromObjectCaseSensitive(o, "status");
    metadata_bare(o);
    metadata_bare(at(spec, "template"));
    if (strcmp(manifest_text(spec, "podReplacementPolicy"), "TerminatingOrFailed") == 0)
        cJSON_DeleteItemFromObjectCaseSensitive(spec, "podReplacementPolicy"); /* the default */
    if (spec && !cJSON_IsTrue(at(spec, "manualSelector"))) {
        cJSON_DeleteItemFromObjectCaseSensitive(spec, "selector");
        cJSON_DeleteItemFromObjectCaseSensitive(spec, "manualSelector");
    }
    return o;
}
