/* Descriptors of the kinds and the walkers over them: JSON and YAML in and out, defaults,
 * validation, log bytes (TLV), comparison, OpenAPI, tables. Generic: a new field is a line in
 * kinds.def, nothing here changes. */
#ifndef HANSE_API_SCHEMA_SCHEMA_H
#define HANSE_API_SCHEMA_SCHEMA_H

#include "api/base/err.h"
#include "api/base/limits.h"
#include "api/base/mem.h"
#include "api/schema/kinds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;

enum field_type {
    T_STR,
    T_I64,
    T_F64,
    T_BOOL,
    T_ENUM,
    T_DUR,
    T_TIME,
    T_BYTES,
    T_MILLI,
    T_PCT,
    T_OBJ,
    T_LIST,
    T_STRS,
    T_ENUMS,
    T_I64S,
    T_MAP,
    T_RAW,
    T_QTY,
    T_B64,
    T_TEXT, /* from here on: as JSON alone (kinds.h) */
    T_INT,
    T_U64,
    T_PART,
    T_OWN
};
enum field_flag {
    FIELD_REQ = 1,
    FIELD_IMMUT = 2,
    FIELD_SHORT = 4,
    FIELD_STATUS = 8,
    FIELD_SECRET = 16,
    FIELD_KEY = 32,
    FIELD_LONG = 64 /* STRS: each may be as long as a frame */
};
struct enum_value {
    int value;
    const char *text;
};
struct enum_desc {
    const char *name;
    const struct enum_value *values;
    unsigned n;
};
/* OWN: a value that is one text in JSON, and a struct of its own. */
#define SPELLING_MAX 128
struct spelling {
    bool (*present)(const void *value);
    void (*print)(const void *value, char out[SPELLING_MAX]);
    int (*parse)(const char *text, void *ret, struct err *err);
};
struct schema;
struct field {
    const char *json; /* "" = never in the API */
    const char *name; /* C name */
    enum field_type type;
    uint16_t tag;
    uint8_t flags;
    uint8_t bit;                /* place in `has` */
    uint32_t off, off_n;        /* of the member, and of its count; of a TEXT: its size */
    const struct schema *sub;   /* OBJ, LIST, PART */
    const struct enum_desc *en; /* ENUM, ENUMS */
    const struct spelling *own; /* OWN */
    double lo, hi;
    const char *def; /* default as it would be written, or NULL */
    const char *doc;
};
struct schema {
    const char *name; /* "workload_spec" */
    size_t size;
    const struct field *fields;
    unsigned n;
};
struct column {
    const char *name, *type, *path, *doc;
    int priority;
};
enum kind_flag { KINDF_RO = 1, KINDF_STATUSSUB = 2, KINDF_REVOKED = 4 };
struct kind {
    enum kind_id id;
    const char *kind;     /* "Workload" */
    const char *plural;   /* "workloads" */
    const char *singular; /* "workload" */
    const char *shorts;   /* "wl" or "" */
    const char *group;    /* "" = core */
    const char *version;
    bool namespaced;
    unsigned flags;
    const struct schema *schema;
    const struct column *columns;
    unsigned n_columns;
};

/* The default of a duration, in ms, as DEFAULTS_ALL of kinds.def has it: for documents that leave
 * out what it stands in. A field that is no duration, or has no default, is our own error. */
int64_t schema_default_ms(const struct schema *s, const char *json);

/* What a type of Target can do (targets.def); of one that this version does not know: nothing. */
enum target_can {
    CAN_BE_DRIVEN = 1,
    CAN_DIAL_IN = 2,
    CAN_RUN_IMAGE = 4,
    CAN_RUN_MANIFEST = 8,
    CAN_RUN_COMMAND = 16,
    CAN_RUN_SCRIPT = 32,
    CAN_SHARE = 64,
    CAN_LEASE = 128,
    CAN_EXEC = 256,
    CAN_SAVE = 512,
    CAN_ASK = 1024,
    CAN_CALL_HOME = 2048,
    CAN_ACT_FOR = 4096,
    CAN_ORDER_MACHINES = 8192,
    CAN_START_BY = 16384,
    CAN_NEED_IMAGE = 32768
};
bool target_can(enum target_type type, enum target_can what);
/* The same of one Target: where its runners call home (spec.connection.runners), they hold leases,
 * keep checkpoints and can be asked to save. */
bool target_has(const struct target_spec *s, enum target_can what);
/* Whose name a run of that namespace and Queue goes by there (spec.principals): of the rows that
 * name its namespace the first that also names its Queue, else the first that names no Queues, else
 * the first that names no namespaces. NULL: nobody stands for it. */
const struct target_principal *target_principal_of(const struct target_spec *s, const char *ns,
                                                   const char *queue);
/* Returns the part of spec.agents of that name, or NULL. */
const struct target_agent *target_agent_find(const struct target_spec *s, const char *name);

const struct kind *kind_by_id(enum kind_id id);    /* NULL when there is none */
const struct kind *kind_by_name(const char *kind); /* "Workload" */
const struct kind *
kind_by_plural(const char *group,
               const char *plural); /* group NULL = any; plural, singular or short name */
/* "hanse.dev/v1alpha1", "Workload" */
const struct kind *kind_by_api(const char *api_version, const char *kind);
size_t kind_all(const struct kind **ret_array, size_t max);  /* in the order of their numbers */
const char *kind_api_version(const struct kind *k);          /* "hanse.dev/v1alpha1" or "v1" */
const char *enum_text(const struct enum_desc *e, int value); /* "" for 0 and unknown values */
const struct enum_desc *enum_by_name(const char *name);
#define X(e) extern const struct enum_desc enum_desc_##e;
ENUMS_ALL(X)
#undef X
#define X(e) const char *e##_text(enum e v); /* phase_text(PHASE_RUNNING) is "Running" */
ENUMS_ALL(X)
#undef X

/* ---- objects: immutable, reference-counted (atomic: any thread may hold one) ---- */
struct object {
    uint32_t magic;
    _Atomic uint32_t refs;
    const struct kind *kind;
    const struct meta *meta; /* never NULL */
    const void *body;        /* struct workload *, … by kind */
    const void *log;         /* its log bytes; the body's texts point into them */
    uint64_t digest;         /* of its log bytes */
    uint32_t bytes;          /* length of its log bytes */
    struct arena *mem;
};
struct object *object_ref(const struct object *o);
struct object *object_unref(const struct object *v); /* accepts NULL, returns NULL */
/* object_as(o, workload): the typed body; checks the kind. */
const void *object_body(const struct object *o, const struct schema *s);
extern const struct schema
#define X(s) schema_##s,
    SCHEMAS_ALL(X)
#undef X
        schema_none_;
#define object_as(o, type) ((const struct type *)object_body((o), &schema_##type))
/* Builds an object from a typed body: encodes and decodes it, so that it owns its memory. Fields
 * are copied. E_TOOLARGE of a body that has come to more than max_bytes; OBJECT_MADE_MAX_BYTES has
 * room for any object of the state and a MiB more, for who changes a copy. */
#define OBJECT_MADE_MAX_BYTES ((size_t)LIMIT_COMMAND_MAX_BYTES + (1u << 20))
int object_make_within(const struct kind *k, const void *body, size_t max_bytes,
                       struct object **ret, struct err *err) MUST_CHECK;
/* The same for who writes the whole body himself, all of it bounded by constants; aborts where it
 * is larger than OBJECT_MADE_MAX_BYTES. Never for a body with anything in it from outside. */
struct object *object_make(const struct kind *k, const void *body);
/* A mutable deep copy in `a`, for changing a few fields before object_make_within. */
void *object_edit(const struct object *o, struct arena *a);
/* metadata.deletionGracePeriodSeconds, whose 0 is another thing than its absence: false. */
bool meta_grace(const struct meta *m, int64_t *ret_seconds);
void meta_grace_set(struct meta *m, int64_t seconds);
void meta_grace_keep(struct meta *m, const struct meta *old); /* as old has it; NULL: absent */
#define object_edit_as(o, type, a) ((void)object_as(o, type), (struct type *)object_edit((o), (a)))
/* Of a Target that is deleted and out of reach: "true" gives up what it may still have of its
 * machines (hanse delete --leave-machines). */
#define LEAVE_ANNOTATION "hanse.dev/leave-machines"
/* Of a Target at which its connector keeps something for itself; it goes once nothing of that is
 * left. The annotation, "true", of one that is deleted gives up what does not go, or is out of
 * reach (hanse delete --leave-behind). */
#define TARGET_FINALIZER "hanse.dev/target"
#define LEAVE_BEHIND_ANNOTATION "hanse.dev/leave-behind"
#define SET_ANNOTATION "hanse.dev/set" /* the set that it was applied with (hanse apply --set) */
const char *label_get(const struct kv *labels, uint32_t n, const char *key); /* NULL when absent */
/* NULL = all */
bool selector_matches(const struct label_selector *s, const struct kv *labels, uint32_t n);

/* Does it stand for its indexes, NAME-0 to NAME-(count-1), and never run itself? One that was
 * placed before arrays were known is an ordinary run to its end. */
#define LABEL_ARRAY "hanse.dev/array"
#define LABEL_ARRAY_INDEX "hanse.dev/array-index"
#define ENV_ARRAY_INDEX "HANSE_ARRAY_INDEX"
#define ENV_ARRAY_COUNT "HANSE_ARRAY_COUNT"
bool workload_array(const struct workload *w);

/* ---- log bytes: tag-length-value; unknown tags are kept ---- */
/* E_TOOLARGE: it has no room in `out`; the error names the field where that ended. */
int tlv_encode(const struct schema *s, const void *body, struct buf *out,
               struct err *err) MUST_CHECK;
/* As a part of something larger, as with buf_add: its owner looks at out->failed at the end. */
void tlv_add(const struct schema *s, const void *body, struct buf *out);
int tlv_decode(const struct schema *s, struct slice in, struct arena *a, void **ret_body,
               struct err *err) MUST_CHECK;
int object_decode(const struct kind *k, struct slice in, struct object **ret,
                  struct err *err) MUST_CHECK;
void object_encode(const struct object *o, struct buf *out);
bool body_equal(const struct schema *s, const void *a, const void *b); /* by their log bytes */

/* ---- JSON ---- */
enum decode_flag {
    DECODE_USER = 1,       /* from a user: unknown fields are errors; STATUS fields are dropped */
    DECODE_STATUS = 2,     /* with DECODE_USER: STATUS fields are taken (status subresource) */
    DECODE_LOOSE = 4,      /* unknown fields are dropped, for fieldValidation=Ignore; names them in
                            *err->text as a warning */
    DECODE_NO_REQUIRED = 8 /* required fields may be absent (a patch) */
};
/* Scans text before cJSON sees it: refuses duplicate keys, \u0000, integers beyond 2^53, depth and
 * trailing bytes; the error names line and column. */
int json_scan(const char *text, size_t n, struct err *err) MUST_CHECK;
/* Scanned, parsed. The caller frees with cJSON_Delete. */
int json_parse(const char *text, size_t n, struct cJSON **ret, struct err *err) MUST_CHECK;
/* What our own writers printed, of texts that need be no UTF-8 (last words of programs): integers
 * may be beyond 2^53, and of equal keys the first counts. NULL when it is no JSON. The caller frees
 * with cJSON_Delete. */
struct cJSON *json_parse_bytes(const char *text, size_t n);
/* The tree as text again, numbers as they were written (see json_scan.c). */
void json_print_tree(const struct cJSON *j, struct buf *out);
/* One YAML document → the same tree as JSON. YAML 1.2 core booleans only (no "yes", no "no" →
 * string); refuses anchors, aliases, tags, merge keys, duplicate keys. Errors say
 * FILE:LINE:COLUMN. */
struct yaml_doc {
    struct cJSON *json;
    int line;        /* first line of the document */
    void *positions; /* private: where each node stood */
};
int yaml_parse_all(const char *text, size_t n, const char *file, struct yaml_doc **ret_docs,
                   size_t *ret_n, struct err *err) MUST_CHECK;
void yaml_docs_free(struct yaml_doc *docs, size_t n);
/* Line of the node at a field path ("spec.gang.workers"), or of its nearest parent. */
int yaml_line_of(const struct yaml_doc *d, const char *path);
/* JSON → YAML text, block style, in the order given. */
void yaml_print(const struct cJSON *j, struct buf *out);

/* Decodes and validates; fills in defaults. The error names the field path, what was found and what
 * is expected, with the nearest known name for an unknown one ("spec.gang.worker: unknown field;
 * did you mean workers?"). */
int body_from_json(const struct schema *s, const struct cJSON *j, unsigned flags, struct arena *a,
                   void **ret_body, struct err *err) MUST_CHECK;
/* All of them may fail with E_TOOLARGE, and name the field where the room ended. SECRET fields are
 * included. */
int body_print_json(const struct schema *s, const void *body, struct buf *out,
                    struct err *err) MUST_CHECK;
int body_to_json(const struct schema *s, const void *body, struct cJSON **ret,
                 struct err *err) MUST_CHECK;
/* With apiVersion and kind. Refuses a wrong apiVersion or kind. Kind-specific checks: names
 * DNS-1123, label syntax. */
int object_from_json(const struct kind *k, const struct cJSON *j, unsigned flags,
                     struct object **ret, struct err *err) MUST_CHECK;
int object_to_json(const struct object *o, struct cJSON **ret, struct err *err) MUST_CHECK;
/* Canonical JSON text of an object, straight from the descriptor (no tree): the hot path of GET,
 * LIST, WATCH. Added to `out`, whose owner looks at out->failed. */
void object_print_json(const struct object *o, struct buf *out);
/* Checks that need more than a field: selector syntax, windows, HH:MM, known time zones, quota
 * sums, SHORT forms. Pure: looks at this object only. */
int object_validate(const struct object *o, struct err *err) MUST_CHECK;
/* What a document must keep to as it is written, beyond what the state may hold already: the API
 * asks, apply never does, so it may become stricter. What was there before stays (`old`, or
 * NULL). */
int object_admit(const struct object *old, const struct object *now, struct err *err) MUST_CHECK;
/* What this build takes no action upon (promises.c). */
struct promise {
    enum kind_id kind;
    enum { PROMISE_REFUSED, PROMISE_UNENFORCED } how;
    const char *field; /* as errors name it */
    bool (*said)(const struct object *o);
    const char *sentence; /* why, and what to do instead */
};
const struct promise *promises_all(size_t *ret_n);
/* Refuses what `now` says, `old` (or NULL) does not, and nobody would act upon. */
int promises_admit(const struct object *old, const struct object *now, struct err *err) MUST_CHECK;
/* "FIELD: sentence; …" of all that o says and nobody acts upon; false: there is none. */
#define UNKEPT_MAX 1024
bool promises_unkept(const struct object *o, char *out, size_t size);
/* A CertificateRevocation: is it one; does it take back this peer's certificate? (revocation.c) */
struct peer_identity;
int revocation_admit(const struct object *o, struct err *err) MUST_CHECK;
bool revocation_takes(const struct object *o, const struct peer_identity *who);
/* A ResourceQuota: what its keys and values say (quota.c). */
int quota_admit(const struct object *o, struct err *err) MUST_CHECK;
/* The kind whose objects a key of `hard` counts; NULL: none. */
const struct kind *quota_counts(const char *key);
bool quota_whole(const char *value, int64_t *ret); /* false: it is no whole number from 0 on */
bool utf8_valid(const char *p, size_t n);
size_t utf8_length(const char *p, size_t n); /* bytes of the character; 0: it is none */
/* May an object be named so? A DNS-1123 subdomain. */
bool object_name_valid(const char *name);
/* Bytes of the text in JSON, with its escapes and quotes. */
size_t json_text_bytes(const char *s);
struct workload_spec;
/* What the order of a workload may come to for its runner, in JSON and wherever it is placed;
 * without what Secrets will add. `field`: the largest part of it. */
size_t workload_order_bytes(const struct workload_spec *s, const char **ret_field);
/* Of Workloads: once an index of an array was begun its template stays, since indexes are alike. */
int array_validate_update(const struct object *old, const struct object *now,
                          struct err *err) MUST_CHECK;
/* IMMUT fields equal, STATUS kept as told. */
int object_validate_update(const struct object *old, const struct object *now,
                           struct err *err) MUST_CHECK;

/* ---- scalars, as users write them ---- */
/* "1h30m", "90s", "250ms", "2d" */
int duration_parse(const char *s, int64_t *ret_ms, struct err *err) MUST_CHECK;
void duration_print(int64_t ms, char out[32]);
int quantity_parse(const char *s, int64_t scale, int64_t *ret, struct err *err)
    MUST_CHECK; /* scale 1 bytes, 1000 milli; "40Gi", "500m", "1.5" */
void quantity_print_bytes(int64_t bytes, char out[32]);
void quantity_print_milli(int64_t milli, char out[32]);
int time_parse(const char *s, int64_t *ret_ms, struct err *err) MUST_CHECK; /* RFC 3339 */
void time_print(int64_t ms, char out[32]); /* "2026-11-21T03:33:22Z"; with ms when not 0 */

/* ---- discovery documents ---- */
void openapi_v2_json(struct buf *out);  /* all kinds, swagger 2.0 */
void openapi_v2_proto(struct buf *out); /* the same as gnostic protobuf
                                           (com.github.proto-openapi.spec.v2@v1.0+protobuf) */
void openapi_v3_index(struct buf *out); /* /openapi/v3 */
int openapi_v3_group(const char *group, const char *version, struct buf *out,
                     struct err *err) MUST_CHECK;
void reference_markdown(struct buf *out); /* the reference page of all kinds */
/* Rows of a Table (meta.k8s.io/v1) or of `hanse get`: one cell per column, as text. */
void column_cell(const struct column *c, const struct object *o, int64_t now_ms, struct buf *out);

#endif
