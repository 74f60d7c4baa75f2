/* Shared by the verbs that write: sets of fields (FieldsV1), patches, building the object that is
 * written, and the one place where a write is sent and tried again. */
#ifndef HANSE_API_SERVER_WRITE_WRITE_INTERNAL_H
#define HANSE_API_SERVER_WRITE_WRITE_INTERNAL_H

#include "api/server/server_internal.h"

/* All kinds begin alike: the walkers and kinds.def see to it. */
struct any_kind {
    uint64_t has;
    struct slice unknown;
    struct meta *metadata;
};

/* ---- sets of fields: cJSON trees as FieldsV1 has them ("f:spec", "k:{…}"); a leaf is {} ---- */
cJSON *set_of(const struct schema *s, const cJSON *object, bool status); /* of a whole object */
cJSON *set_minus(cJSON *a, const cJSON *b);  /* changes and returns a (NULL when nothing is left) */
cJSON *set_common(cJSON *a, const cJSON *b); /* the same */
cJSON *set_union(cJSON *a, const cJSON *b);  /* a may be NULL */
/* Calls each(path) for the leaves whose values in x and y differ; false stops. */
typedef bool (*set_each)(const char *path, void *arg);
bool set_differing(const cJSON *set, const cJSON *x, const cJSON *y, set_each each, void *arg);
cJSON *set_keep_differing(cJSON *set, const cJSON *x,
                          const cJSON *y); /* drops the leaves that are equal */
void set_copy(const cJSON *set, const cJSON *from, cJSON *to);
void set_remove(const cJSON *set, cJSON *from);

/* ---- who owns which field ---- */
#define OWNERS_MAX 60
struct owner {
    const char *manager, *operation, *sub, *api_version;
    int64_t time;
    cJSON *set;
};
struct owners {
    struct owner v[OWNERS_MAX + 4];
    unsigned n;
};
void owners_load(struct owners *w, const struct object *old); /* NULL = none */
/* From managedFields as JSON: a client may hand ownership over (kubectl does, from client-side
 * apply). */
void owners_read(struct owners *w, const cJSON *list, struct arena *a);
void owners_free(struct owners *w);
/* An update by `manager`: what it changed is its own now. */
void owners_update(struct owners *w, const struct kind *k, const cJSON *old, const cJSON *now,
                   const char *manager, const char *sub, int64_t time);
void owners_store(const struct owners *w, struct meta *m, struct arena *a);
struct owner *owners_find(struct owners *w, const char *manager, const char *operation,
                          const char *sub);
struct owner *owners_add(struct owners *w, struct arena *a, const struct kind *k,
                         const char *manager, const char *operation, const char *sub);

/* ---- patches ---- */
void merge_patch(cJSON *target, const cJSON *patch); /* RFC 7386, on objects */
int json_patch(cJSON **target, const cJSON *ops, struct err *err) MUST_CHECK; /* RFC 6902 */
int strategic_patch(const struct schema *s, cJSON *target, const cJSON *patch,
                    struct err *err) MUST_CHECK;
/* Server-side apply of `applied` on `live` (changed in place); owners are brought up to date. On
 * E_CONFLICT *ret, in the arena, names all fields and whose they are. */
int ssa_merge(const struct kind *k, cJSON *live, cJSON *applied, struct owners *owners,
              const char *manager, const char *sub, bool force, int64_t time, struct arena *a,
              struct conflicts **ret, struct err *err) MUST_CHECK;

/* ---- building ---- */
struct build {
    const struct kind *kind;
    const struct object *old; /* NULL = create */
    bool status;              /* the status subresource: everything else stays */
    unsigned decode;          /* further DECODE_* flags */
    const char *revision;     /* or NULL = as it was */
    const char *user;         /* who acts: a new Workload is his */
    struct owners *owners;    /* to be stored */
};
/* The object to write from the wanted tree (changed: secrets are folded). Validated. */
int object_build(struct api *a, const struct build *b, cJSON *tree, struct object **ret,
                 struct err *err) MUST_CHECK;
int secret_fold(cJSON *tree, struct err *err) MUST_CHECK; /* stringData into data; checks base64 */
int namespace_ready(struct call *c, const char *ns, struct err *err) MUST_CHECK;

/* ---- sending ---- */
struct writing { /* state of a call that writes one object */
    cJSON *body;
    const char *manager;
    bool dry_run, retry, status, fresh;
    unsigned decode;
    bool warn;
    const char *uid; /* precondition */
    uint64_t rv;     /* precondition; 0 = none */
    int patch;       /* enum patch_type */
    bool force;
    /* fills in op, now */
    int (*compute)(struct call *c, const struct object *old, struct err *err);
    struct api_write_op op;
    struct object *now;
    struct owners owners;
    int created_status;
};
int writing_begin(struct call *c, struct writing **ret, struct err *err) MUST_CHECK;
const char *write_meta(const cJSON *body, const char *key); /* metadata.KEY as text, "" = none */
/* A version or uid in the body is a condition on the object that it replaces. */
int write_preconditions(struct writing *w, const cJSON *body, struct err *err) MUST_CHECK;
/* The names in the body must be those of the path; what is not given is filled in (body is
 * changed), apiVersion and kind too. name: NULL where the path names none. */
int write_names_match(struct call *c, cJSON *body, const char *name, struct err *err) MUST_CHECK;
void writing_attempt(struct call *c);
/* The answer to a request that was done before: its object as it left it, where that is known. */
void write_tell_before(struct call *c, const struct api_result *r);
int write_build(struct call *c, const struct object *old, cJSON *tree, struct err *err) MUST_CHECK;

#endif
