/* Manifests of others (a Job of Kubernetes, …) that a Workload carries whole in spec.run.manifest:
 * what of them is understood, what cannot be kept, and the Workload that fits. Pure; a tree that is
 * read is not changed. Must never count fewer pods or devices than a manifest makes, nor let one
 * pass whose pods would run as somebody, or reach what is of somebody else. */
#ifndef HANSE_API_MANIFESTS_MANIFESTS_H
#define HANSE_API_MANIFESTS_MANIFESTS_H

#include "api/schema/schema.h"

struct cJSON;

enum manifest_id {
#define K(id, group, version, kind, plural, decides) MANIFEST_##id,
#include "api/manifests/kinds.def"
    MANIFEST_NR
};
struct manifest_kind {
    enum manifest_id id;
    const char *group, *version, *kind, *plural;
    const char *decides; /* part whose end is that of the run; "": all of them */
};
/* By apiVersion ("batch/v1") and kind; NULL: it is none that is understood. */
const struct manifest_kind *manifest_kind_find(const char *api_version, const char *kind);
/* Of those that are found: "jobset.x-k8s.io/v1alpha2". */
void manifest_kind_version(const struct manifest_kind *k, char *out, size_t size);
/* "Job (batch/v1), …": those that are. */
void manifest_kinds_print(char *out, size_t size);

/* A label or an annotation that a controller writes on what it makes: what `kubectl get -o yaml`
 * prints has it. */
bool manifest_word_is_stored(const char *key);

#define MANIFEST_PARTS_MAX 16
#define MANIFEST_RESOURCE_MAX 128
struct manifest_asks { /* of one pod, as a scheduler counts it */
    int64_t cpu_milli, memory_bytes, devices;
    char resource[MANIFEST_RESOURCE_MAX]; /* "nvidia.com/gpu"; "": it asks for no device */
};
struct manifest_part { /* pods of one template */
    char path[128];    /* of the template: "spec.template" */
    const struct cJSON *template;
    int64_t pods;
    bool follows; /* others decide when the run has ended: it is ended then */
    struct manifest_asks asks;
};
struct manifest { /* borrowed from the tree that was read */
    const struct manifest_kind *kind;
    struct manifest_part parts[MANIFEST_PARTS_MAX];
    unsigned n;
    int64_t workers;           /* pods of all parts */
    struct manifest_asks asks; /* the most that one of them asks for */
    int64_t retries;           /* after how many failures it is begun again; -1: it does not say */
    int64_t ttl_s;             /* kept so long after its end; -1: it does not say */
    bool suspended;
};
/* What of a manifest cannot be kept: refused, since it would mean something else, or left out or
 * kept without being acted upon. The field is a path in the manifest. */
typedef void (*manifest_note)(void *arg, bool refused, const char *field, const char *text);
/* note may be NULL. An error (err->field in the manifest) says the first that is refused. */
int manifest_read(const struct cJSON *doc, manifest_note note, void *arg, struct manifest *ret,
                  struct err *err) MUST_CHECK;

/* What a cluster stores of it, without what only the cluster writes there; the caller frees it with
 * cJSON_Delete. */
struct cJSON *manifest_bare(const struct cJSON *doc);
/* The Workload that carries it, as JSON; the caller frees it with cJSON_Delete. */
int manifest_workload(const struct cJSON *doc, manifest_note note, void *arg, struct cJSON **ret,
                      struct err *err) MUST_CHECK;
/* A TrainJob says only with its runtime which pods it makes. manifest_train gives the JobSet that
 * it makes with that (NULL: it is not there, which is an error that says how to get it); the caller
 * frees it with cJSON_Delete, and carries it like one that was written. */
bool manifest_is_train(const struct cJSON *doc);
bool manifest_is_runtime(const struct cJSON *job, const struct cJSON *doc); /* the one it names */
int manifest_train(const struct cJSON *job, const struct cJSON *runtime, manifest_note note,
                   void *arg, struct cJSON **ret, struct err *err) MUST_CHECK;
/* A RayJob's cluster and its entrypoint are not made by their operator but by the commands of a
 * JobSet's pods, which all begin together; the caller frees it with cJSON_Delete. */
bool manifest_is_ray(const struct cJSON *doc);
int manifest_ray(const struct cJSON *job, manifest_note note, void *arg, struct cJSON **ret,
                 struct err *err) MUST_CHECK;
/* What a Workload with a manifest must keep to beyond object_admit; nothing is asked of one
 * without, nor of one whose manifest and resources `old` (or NULL) had already. */
int manifest_admit(const struct object *old, const struct object *now, struct err *err) MUST_CHECK;

#endif
