/* The kinds as C structs, generated from kinds.def. Plain data; strings and arrays belong to the
 * object's memory and are immutable once the object is published. An absent OBJ is NULL; an absent
 * scalar is 0 or its default, and `has` (bit = place of the field in kinds.def) tells whether it
 * was given. */
#ifndef HANSE_API_SCHEMA_KINDS_H
#define HANSE_API_SCHEMA_KINDS_H

#include "api/base/mem.h"
#include "api/schema/kinds.def"

#include <stdbool.h>
#include <stdint.h>

struct kv {
    const char *key, *value;
};

#define KE(name, value, text) name = (value),
#define X(e) enum e { ENUM_##e(KE) ENUM_##e##_end_ };
ENUMS_ALL(X)
#undef X

#define CT_STR(c, sub) const char *c; /* never NULL in a decoded object: "" when absent */
#define CT_QTY(c, sub) const char *c;
#define CT_I64(c, sub) int64_t c;
#define CT_F64(c, sub) double c;
#define CT_PCT(c, sub) double c;
#define CT_BOOL(c, sub) bool c;
#define CT_ENUM(c, sub) enum sub c;
#define CT_DUR(c, sub) int64_t c;
#define CT_TIME(c, sub) int64_t c;
#define CT_BYTES(c, sub) int64_t c;
#define CT_MILLI(c, sub) int64_t c;
#define CT_OBJ(c, sub) struct sub *c;
#define CT_LIST(c, sub)                                                                            \
    struct sub *c;                                                                                 \
    uint32_t n_##c;
#define CT_STRS(c, sub)                                                                            \
    const char **c;                                                                                \
    uint32_t n_##c;
#define CT_ENUMS(c, sub)                                                                           \
    enum sub *c;                                                                                   \
    uint32_t n_##c;
#define CT_I64S(c, sub)                                                                            \
    int64_t *c;                                                                                    \
    uint32_t n_##c;
#define CT_MAP(c, sub)                                                                             \
    struct kv *c; /* sorted by key */                                                              \
    uint32_t n_##c;
#define CT_RAW(c, sub) struct slice c;
#define CT_B64(c, sub) struct slice c;
/* Of what travels as JSON alone (connectors/wire): these lie in the struct itself, and have no log
 * bytes. TEXT has `sub` bytes, PART begins with a BOOL `present`, OWN spells itself. */
#define CT_TEXT(c, sub) char c[sub];
#define CT_INT(c, sub) int c;
#define CT_U64(c, sub) uint64_t c;
#define CT_PART(c, sub) struct sub c;
#define CT_OWN(c, sub) struct sub c;

#define KM(type, c, tag, json, flags, sub, lo, hi, doc) CT_##type(c, sub)
#define SCHEMA_STRUCT(s)                                                                           \
    struct s {                                                                                     \
        uint64_t has;                                                                              \
        struct slice unknown; /* fields of a newer version, kept from the log */                   \
        SCHEMA_##s(KM)                                                                             \
    };
SCHEMAS_ALL(SCHEMA_STRUCT)

enum kind_id {
    KIND_NONE = 0,
#define K(c, number, ...) KIND_##c = (number),
    KINDS_ALL(K)
#undef K
        KIND_LIMIT = 32 /* kind numbers are below this */
};

#endif
