/* What the files of this folder share. Nobody outside includes it. */
#ifndef HANSE_API_SCHEMA_INTERNAL_H
#define HANSE_API_SCHEMA_INTERNAL_H

#include "api/schema/schema.h"

#include <string.h>

/* Private flags of a field, set by descriptor.c: how this one value is spelled in JSON. */
enum {
    FIELD_MAP_QTY = 64,      /* MAP: of quantities, which may be written as numbers */
    FIELD_I64_TEXT = 64,     /* I64: a string in JSON (resourceVersion) */
    FIELD_TIME_SECONDS = 64, /* TIME: never with a fraction (creationTimestamp) */
    FIELD_TIME_MICRO = 128   /* TIME: always with six digits (MicroTime of Lease and Event) */
};

#define OBJECT_MAGIC 0x6f626a31u

/* ---- members of a typed body ---- */
/* By descriptor. One cast each, so that no other file does pointer arithmetic. */
static inline const void *member(const struct field *f, const void *body)
{
    return (const char *)body + f->off;
}
static inline void *member_mut(const struct field *f, void *body)
{
    return (char *)body + f->off;
}
static inline uint32_t member_count(const struct field *f, const void *body)
{
    return *(const uint32_t *)(const void *)((const char *)body + f->off_n);
}
static inline void member_set_count(const struct field *f, void *body, uint32_t n)
{
    *(uint32_t *)(void *)((char *)body + f->off_n) = n;
}
static inline uint64_t body_has(const void *body)
{
    return *(const uint64_t *)body;
}
static inline void body_mark(void *body, const struct field *f)
{
    *(uint64_t *)body |= (uint64_t)1 << f->bit;
}
static inline struct slice *body_unknown(void *body)
{
    return (struct slice *)(void *)((char *)body + sizeof(uint64_t));
}
static inline const struct slice *body_unknown_const(const void *body)
{
    return (const struct slice *)(const void *)((const char *)body + sizeof(uint64_t));
}
static inline const char *member_str(const struct field *f, const void *body)
{
    const char *s = *(const char *const *)member(f, body);
    return s ? s : "";
}
/* I64, DUR, TIME, BYTES, MILLI, BOOL and ENUM as one number. */
int64_t member_int(const struct field *f, const void *body);
void member_set_int(const struct field *f, void *body, int64_t v);
/* Is there something to encode or print? Empty texts and containers and the time 0 count as
 * absent. */
bool member_present(const struct field *f, const void *body);
/* One field of two bodies of schema s, by its log bytes. */
bool field_equal(const struct field *f, const struct schema *s, const void *a, const void *b);
/* part of object_admit: Workloads */
int array_admit(const struct object *old, const struct object *now, struct err *err) MUST_CHECK;
/* part of object_admit: Targets */
int agents_admit(const struct object *old, const struct object *now, struct err *err) MUST_CHECK;
int principals_admit(const struct object *old, const struct object *now,
                     struct err *err) MUST_CHECK;
/* part of object_admit: no list names a key twice */
int keys_admit(const struct object *old, const struct object *now, struct err *err) MUST_CHECK;
/* part of object_admit: PriceSheets */
int rows_admit(const struct object *old, const struct object *now, struct err *err) MUST_CHECK;
/* part of object_admit: names of checkpoint stores, requests to save */
int stores_admit(const struct object *old, const struct object *now, struct err *err) MUST_CHECK;
/* Fresh body: zeroed, texts "". NULL when the arena is full. */
void *body_new(const struct schema *s, struct arena *a);
void body_init(const struct schema *s, void *body);
const struct field *schema_field(const struct schema *s, const char *json, size_t n);
const struct kind *kind_of_schema(const struct schema *s);
bool schema_is_kind(
    const struct schema *s); /* has metadata: apiVersion and kind belong to it in JSON */
int enum_value_of(const struct enum_desc *e, const char *text); /* 0 when there is none */
void enum_words(const struct enum_desc *e, char *out, size_t n);
/* "hub" for "hubb"; NULL when nothing is near. */
const char *nearest_enum(const struct enum_desc *e, const char *text);
const char *nearest_field(const struct schema *s, const char *text);
const char *schema_title(const struct schema *s); /* "Workload"; of what is no kind its own name */
/* As tlv_decode; `in` belongs to the arena already and is pointed into. */
int tlv_decode_in_place(const struct schema *s, struct slice in, struct arena *a, void **ret_body,
                        struct err *err) MUST_CHECK;
/* What tlv_decode_in_place will take from its arena, for bytes that are sound; at most `most`. */
size_t tlv_memory(const struct schema *s, struct slice in, size_t most);
/* As tlv_add; path as of body_add_json. */
void tlv_put(const struct schema *s, const void *body, struct buf *out, char *path);
void tlv_encode_field(const struct schema *one, const void *body, struct buf *out);
size_t schema_all(const struct schema **ret_array, size_t max);
uint64_t bytes_digest(const void *p, size_t n);

/* ---- JSON ---- */
/* A set of (object, key) seen, for refusing duplicate keys in one pass. */
struct keyset {
    uint64_t *slots;
    size_t cap, n;
};
/* false: seen before */
bool keyset_add(struct keyset *k, uint64_t owner, const char *key, size_t n);
void keyset_fini(struct keyset *k);
/* Our own output back to a tree: integers may be beyond 2^53, and of equal keys the first counts
 * (what is stored must always be shown). NULL when it is no JSON. */
struct cJSON *json_parse_own(const char *text, size_t n);
/* Does the text spell a JSON number? */
bool json_number_ok(const char *p, size_t n);
void json_print_string(struct buf *out, const char *s, size_t n);
void json_print_f64(struct buf *out, double v);
void json_print_i64(struct buf *out, int64_t v);
/* Puts it behind what is in `out`; where it has no room out->failed is set, and `path` (NULL: not
 * wanted) says at which field. */
void body_add_json(const struct schema *s, const void *body, struct buf *out, char *path);
/* JSON value of a scalar */
void scalar_print(const struct field *f, const void *body, struct buf *out);
void base64_print(struct buf *out, const void *p, size_t n);
int base64_parse(const char *s, struct arena *a, struct slice *ret, struct err *err) MUST_CHECK;
void f64_text(double v, char out[32]);
void pct_text(double v, char out[32]); /* "15%", or a plain number where that would not be exact */
void time_print_as(int64_t ms, unsigned flags, char out[32]);
/* A default, or any scalar as YAML would spell it, into its member. */
int scalar_from_text(const struct field *f, const char *text, void *body, struct arena *a,
                     struct err *err) MUST_CHECK;

/* ---- where a value stands, for error texts ---- */
struct path {
    const struct path *up;
    const char *name; /* NULL: an index */
    unsigned index;
};
void path_text(const struct path *p, char *out, size_t n);
/* name NULL: an index */
void path_prepend(char path[ERR_FIELD_MAX], const char *name, unsigned index);
/* In an encoder, which says where the room ended on its way back; path NULL: nobody asks. */
static inline bool path_ended(char *path, const struct buf *out, const char *name, unsigned index)
{
    if (!out->failed || !path)
        return false;
    path_prepend(path, name, index);
    return true;
}
/* E_TOOLARGE of what was encoded; path: where the room ended. */
int path_too_large(struct err *err, const char *what, const char *path, size_t max);
int path_error(struct err *err, const struct path *p, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* ---- checks that validate.c and json_in.c share ---- */
int meta_validate(const struct kind *k, const struct meta *m, unsigned decode_flags,
                  struct err *err) MUST_CHECK;
void body_normalise(const struct schema *s, void *body); /* replaceAfter implies mode: replace, … */

#define schema_for_each(f, s)                                                                      \
    for (const struct field *f = (s)->fields; f < (s)->fields + (s)->n; f++)

/* ---- pods of a Target of type kubernetes: true where that cannot be acted upon (pods.c) ---- */
bool pods_target(const struct object *o); /* of type kubernetes */
bool pods_connection_unclear(const struct object *o);
bool pods_namespace_unclear(const struct object *o);
bool pods_elsewhere(const struct object *o);
bool pods_runner_unclear(const struct object *o);
bool pods_volumes_unclear(const struct object *o);
bool pods_security_unclear(const struct object *o);
bool pods_stores_unmounted(const struct object *o);
bool pods_labels_unclear(const struct object *o);
bool pods_nodes_unclear(const struct object *o);
bool pods_names_unclear(const struct object *o);
bool pods_tolerations_unclear(const struct object *o);
bool pods_diagnostics_unclear(const struct object *o);
bool pods_spaces_unclear(const struct object *o);

/* Of a label, as Kubernetes has them (validate.c). */
bool label_word(const char *s, size_t n, size_t max);
bool label_key_ok(const char *s);

#endif
