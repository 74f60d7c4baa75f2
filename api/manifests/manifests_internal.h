/* What the files of api/manifests share. */
#ifndef HANSE_API_MANIFESTS_INTERNAL_H
#define HANSE_API_MANIFESTS_INTERNAL_H

#include "api/manifests/manifests.h"

#include <cjson/cJSON.h>

struct reading {
    manifest_note note;
    void *arg;
    struct err first; /* that is refused */
};
/* Members by a path of names without dots; NULL: it is not there. */
const cJSON *manifest_at(const cJSON *o, const char *path);
const char *manifest_text(const cJSON *o, const char *path); /* or "" */
void manifest_refuse(struct reading *r, const char *field, const char *fmt, ...) PRINTF_LIKE(3, 4);
void manifest_warn(struct reading *r, const char *field, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* A whole number of that member; what is none, or not from min to max, is refused. */
int64_t manifest_int(struct reading *r, const cJSON *o, const char *at, const char *name,
                     int64_t otherwise, int64_t min, int64_t max);
#define MANIFEST_FIELD_MAX 256
/* "at.name" */
void manifest_field(char out[MANIFEST_FIELD_MAX], const char *at, const char *name);
void manifest_item(char out[MANIFEST_FIELD_MAX], const char *at, const char *name, int i);

/* A rule about a member that is there. */
struct manifest_rule {
    const char *path;
    enum { IS_THERE, IS_TRUE } when;
    bool refused;
    const char *why;
};
void manifest_rules(struct reading *r, const cJSON *o, const char *at,
                    const struct manifest_rule *rules, size_t n);

/* Refuses members of what is made anew that nothing here would read; known: "a b c". */
void manifest_members(struct reading *r, const cJSON *o, const char *at, const char *known);
/* Metadata of the whole (top), or of a template. */
void manifest_words(struct reading *r, const cJSON *meta, const char *at, bool top);
/* One pod template: what it may not say, and what it asks for. */
void manifest_pods(struct reading *r, const cJSON *template, const char *at,
                   struct manifest_asks *ret);
/* The spec of a Job: how many pods it makes at once. */
int64_t manifest_job(struct reading *r, const cJSON *spec, const char *at, int64_t max);
#define MANIFEST_RETRIES_MAX 1000
#define MANIFEST_TTL_MAX 315360000
/* NULL: there are too many, which is refused. */
struct manifest_part *manifest_part_add(struct reading *r, struct manifest *m, const char *path,
                                        const cJSON *template, int64_t pods);
/* What makes pods of several templates (sets.c). */
void manifest_jobset(struct reading *r, const cJSON *doc, struct manifest *m);
void manifest_pytorchjob(struct reading *r, const cJSON *doc, struct manifest *m);
void manifest_volcano(struct reading *r, const cJSON *doc, struct manifest *m);
void manifest_mpijob(struct reading *r, const cJSON *doc, struct manifest *m);

/* Trees that are made (made.c). What is put is owned by the tree from then on. */
cJSON *made_at(cJSON *o, const char *path); /* manifest_at of what may be changed */
/* The object that is this member, made where there is none. */
cJSON *made_object(cJSON *o, const char *key);
void made_put(cJSON *o, const char *key, cJSON *v); /* in the place of what is there */
void made_copy(cJSON *to, const char *key, const cJSON *v); /* NULL and null: what is there stays */
void made_words(cJSON *meta, const char *key, const cJSON *from); /* labels, annotations */
void made_env(cJSON *container, cJSON *e); /* in the place of one of that name */
void made_env_text(cJSON *container, const char *name, const char *value);
void made_env_field(cJSON *container, const char *name, const char *path);
/* A JobSet with name, namespace and words of doc. */
cJSON *made_jobset(const cJSON *doc);
/* An epoch's object gets its name when it is ordered, so its pods are asked for it: into
 * $HANSE_JOBSET, and a variable with the address of the first pod of that part. */
void made_env_first(cJSON *container, const char *name, const char *part);
/* Processors of a container as its limits, or else its requests, have them, at least 1; 0: none are
 * named. Sets ret_devices to how many devices (example.com/…) it names. */
int64_t made_processors(const cJSON *container, int64_t *ret_devices);

#endif
