/* Trees (JSON or YAML) → typed bodies: types, ranges, required fields, defaults, short forms.
 * Errors name the field, what was found and what is expected. This file must never keep a pointer
 * into the tree. */
#include "api/base/limits.h"
#include "api/schema/schema_internal.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct in {
    unsigned flags;
    struct arena *a;
    struct err *err;
};

static const char *found(const cJSON *j, char out[96])
{
    if (cJSON_IsString(j))
        (void)snprintf(out, 96, "the string \"%.60s\"", j->valuestring);
    else if (cJSON_IsNumber(j) && j->valuestring)
        (void)snprintf(out, 96, "the number %.60s", j->valuestring);
    else if (cJSON_IsNumber(j))
        (void)snprintf(out, 96, "the number %.17g", j->valuedouble);
    else
        (void)snprintf(out, 96, "%s",
                       cJSON_IsBool(j)
                           ? (cJSON_IsTrue(j) ? "the boolean true" : "the boolean false")
                       : cJSON_IsArray(j)  ? "a list"
                       : cJSON_IsObject(j) ? "an object"
                                           : "null");
    return out;
}

static int mismatch(struct in *in, const struct path *p, const cJSON *j, const char *expected)
{
    char what[96];

    if (!strcmp(expected, "a string") && (cJSON_IsNumber(j) || cJSON_IsBool(j)))
        return path_error(in->err, p, "expected a string, found %s; put it in quotes",
                          found(j, what));
    return path_error(in->err, p, "expected %s, found %s", expected, found(j, what));
}

static int full(struct in *in, const struct path *p)
{
    return path_error(in->err, p, "the document needs too much memory");
}

/* The texts of scalar.c's parsers get the path put before them. */
static int at_path(struct in *in, const struct path *p, int r, const struct err *e)
{
    return r < 0 ? path_error(in->err, p, "%s", e->text) : 0;
}

static int check_range(struct in *in, const struct path *p, const struct field *f, double v)
{
    char a[32], b[32];

    if (f->type == T_ENUM || f->type == T_TIME || f->type == T_BOOL || (f->lo == 0 && f->hi == 0))
        return 0;
    if (v >= f->lo && v <= f->hi)
        return 0;
    if (f->type == T_DUR) {
        duration_print((int64_t)f->lo, a);
        duration_print((int64_t)f->hi, b);
    } else {
        f64_text(f->lo, a);
        f64_text(f->hi, b);
    }
    return path_error(in->err, p, "out of range; expected %s to %s", a, b);
}

static int in_text(struct in *in, const struct path *p, double lo, double hi, const cJSON *j,
                   const char **ret)
{
    if (!cJSON_IsString(j))
        return mismatch(in, p, j, "a string");
    size_t n = strlen(j->valuestring);
    if (hi > 0 && (double)n > hi)
        return path_error(in->err, p, "%zu bytes are too long; at most %.0f", n, hi);
    if ((double)n < lo)
        return path_error(in->err, p, n ? "\"%s\" is too short" : "must not be empty%s",
                          n ? j->valuestring : "");
    char *copy = arena_strdup(in->a, j->valuestring);
    if (!copy)
        return full(in, p);
    *ret = copy;
    return 0;
}

/* TEXT: lies in the body itself. */
static int in_place(struct in *in, const struct path *p, const struct field *f, const cJSON *j,
                    char *to)
{
    if (!cJSON_IsString(j))
        return mismatch(in, p, j, "a string");
    size_t n = strlen(j->valuestring);
    if (n >= f->off_n)
        return path_error(in->err, p, "%zu bytes are too long; at most %u", n, f->off_n - 1);
    if ((double)n < f->lo)
        return path_error(in->err, p, "\"%.64s\" is too short", j->valuestring);
    memcpy(to, j->valuestring, n + 1);
    return 0;
}

static int in_integer(struct in *in, const struct path *p, const cJSON *j, int64_t *ret)
{
    if (!cJSON_IsNumber(j))
        return mismatch(in, p, j, "an integer");
    if (j->valuedouble != floor(j->valuedouble) || fabs(j->valuedouble) > 9007199254740992.0)
        return mismatch(in, p, j, "an integer");
    *ret = (int64_t)j->valuedouble;
    return 0;
}

static int in_enum(struct in *in, const struct path *p, const struct enum_desc *en, const cJSON *j,
                   int *ret)
{
    char words[320];

    if (!cJSON_IsString(j))
        return mismatch(in, p, j, "a string");
    *ret = enum_value_of(en, j->valuestring);
    if (*ret)
        return 0;
    const char *near = nearest_enum(en, j->valuestring);
    enum_words(en, words, sizeof words);
    return path_error(in->err, p, "\"%.64s\" is not known%s%s%s; expected %s", j->valuestring,
                      near ? "; did you mean " : "", near ? near : "", near ? "?" : "", words);
}

static int in_float(struct in *in, const struct path *p, const struct field *f, const cJSON *j,
                    double *ret)
{
    if (cJSON_IsNumber(j)) {
        *ret = j->valuedouble;
        return 0;
    }
    if (f->type == T_PCT && cJSON_IsString(j)) {
        char *end;
        *ret = strtod(j->valuestring, &end) / 100;
        if (end != j->valuestring && !strcmp(end, "%") && isfinite(*ret))
            return 0;
    }
    return mismatch(in, p, j, f->type == T_PCT ? "a share such as 15% or 0.15" : "a number");
}

/* DUR, TIME, BYTES, MILLI: a text with a unit; quantities may be bare numbers. */
static int in_measure(struct in *in, const struct path *p, const struct field *f, const cJSON *j,
                      int64_t *ret)
{
    struct err e = {0};
    char number[32];
    const char *text = cJSON_IsString(j) ? j->valuestring : NULL;

    if (cJSON_IsNumber(j)) {
        f64_text(j->valuedouble, number);
        text = j->valuestring ? j->valuestring : number;
    }
    if (!text || (f->type == T_TIME && cJSON_IsNumber(j)))
        return mismatch(in, p, j,
                        f->type == T_DUR    ? "a duration such as 90s"
                        : f->type == T_TIME ? "a time such as 2026-11-21T03:33:22Z"
                                            : "a quantity such as 40Gi");
    int r = f->type == T_DUR    ? duration_parse(text, ret, &e)
            : f->type == T_TIME ? time_parse(text, ret, &e)
                                : quantity_parse(text, f->type == T_MILLI ? 1000 : 1, ret, &e);
    return at_path(in, p, r, &e);
}

static int in_number(struct in *in, const struct path *p, const struct field *f, const cJSON *j,
                     void *body)
{
    int64_t v = 0;
    int e = 0, r;

    if (f->type == T_BOOL) {
        if (!cJSON_IsBool(j))
            return mismatch(in, p, j, "true or false");
        v = cJSON_IsTrue(j);
        r = 0;
    } else if (f->type == T_ENUM) {
        r = in_enum(in, p, f->en, j, &e);
        v = e;
    } else if (f->type == T_I64 && f->flags & FIELD_I64_TEXT) {
        char *end = NULL;
        if (cJSON_IsString(j))
            v = *j->valuestring ? strtoll(j->valuestring, &end, 10) : 0;
        if (!cJSON_IsString(j) || (end && *end) || v < 0)
            return mismatch(in, p, j, "a resource version as a string");
        r = 0;
    } else if (f->type == T_I64 || f->type == T_INT || f->type == T_U64) {
        r = in_integer(in, p, j, &v);
        if (r == 0 &&
            ((f->type == T_INT && (v < INT32_MIN || v > INT32_MAX)) || (f->type == T_U64 && v < 0)))
            r = path_error(in->err, p, "out of range");
    } else {
        r = in_measure(in, p, f, j, &v);
    }
    if (r == 0)
        r = check_range(in, p, f, (double)v);
    if (r == 0)
        member_set_int(f, body, v);
    return r;
}

static int in_body(struct in *in, const struct path *p, const struct schema *s, const cJSON *j,
                   void *body);

static int in_item(struct in *in, const struct path *p, const struct field *f, const cJSON *j,
                   char *items, unsigned i)
{
    switch (f->type) {
    case T_LIST:
        return in_body(in, p, f->sub, j, items + i * f->sub->size);
    case T_STRS:
        return in_text(in, p, 0, f->flags & FIELD_LONG ? LIMIT_FRAME_MAX_BYTES : 65536, j,
                       (const char **)(void *)items + i);
    case T_ENUMS:
        return in_enum(in, p, f->en, j, (int *)(void *)items + i);
    default:
        return in_integer(in, p, j, (int64_t *)(void *)items + i);
    }
}

static int in_items(struct in *in, const struct path *p, const struct field *f, const cJSON *j,
                    void *body)
{
    bool single = f->flags & FIELD_SHORT && cJSON_IsString(j);
    size_t size = f->type == T_LIST    ? f->sub->size
                  : f->type == T_ENUMS ? sizeof(int)
                                       : sizeof(int64_t);
    uint32_t n = single ? 1 : 0, i = 0;

    if (!single && !cJSON_IsArray(j))
        return mismatch(in, p, j, "a list");
    if (!single)
        for (const cJSON *c = j->child; c; c = c->next)
            n++;
    if (f->hi > 0 && (double)n > f->hi)
        return path_error(in->err, p, "%u items are too many; at most %.0f", n, f->hi);
    if ((double)n < f->lo)
        return path_error(in->err, p, "at least %.0f item must be given", f->lo);
    char *items = arena_alloc(in->a, n * size);
    if (!items)
        return full(in, p);
    for (const cJSON *c = single ? j : j->child; i < n; c = c->next, i++) {
        struct path at = {p, NULL, i};
        int r = in_item(in, single ? p : &at, f, c, items, i);
        if (r < 0)
            return r;
    }
    *(void **)member_mut(f, body) = items;
    member_set_count(f, body, n);
    return 0;
}

/* A quantity may be a bare number, whose text is kept. */
static int in_map_value(struct in *in, const struct path *p, const struct field *f, const cJSON *j,
                        const char **ret)
{
    char number[32];

    if (!(f->flags & FIELD_MAP_QTY) || !cJSON_IsNumber(j))
        return in_text(in, p, 0, 262144, j, ret);
    f64_text(j->valuedouble, number);
    *ret = arena_strdup(in->a, j->valuestring ? j->valuestring : number);
    return *ret ? 0 : full(in, p);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct kv *)a)->key, ((const struct kv *)b)->key);
}

static int in_map(struct in *in, const struct path *p, const struct field *f, const cJSON *j,
                  void *body)
{
    uint32_t n = 0, i = 0;

    if (!cJSON_IsObject(j))
        return mismatch(in, p, j, "an object of strings");
    for (const cJSON *c = j->child; c; c = c->next)
        n++;
    if (f->hi > 0 && (double)n > f->hi)
        return path_error(in->err, p, "%u entries are too many; at most %.0f", n, f->hi);
    struct kv *kv = arena_array(in->a, struct kv, n ? n : 1);
    if (!kv)
        return full(in, p);
    for (const cJSON *c = j->child; c; c = c->next, i++) {
        struct path at = {p, c->string, 0};
        int r = in_map_value(in, &at, f, c, &kv[i].value);
        if (r < 0)
            return r;
        kv[i].key = arena_strdup(in->a, c->string);
        if (!kv[i].key)
            return full(in, p);
    }
    if (n > 1)
        qsort(kv, n, sizeof *kv, by_key);
    for (i = 1; i < n; i++)
        if (!strcmp(kv[i - 1].key, kv[i].key))
            return path_error(in->err, p, "the key \"%.64s\" stands here twice", kv[i].key);
    *(struct kv **)member_mut(f, body) = kv;
    member_set_count(f, body, n);
    return 0;
}

static int in_raw(struct in *in, const struct path *p, const struct field *f, const cJSON *j,
                  void *body)
{
    AUTO_BUF text = {0};

    buf_init(&text, f->hi > 0 ? (size_t)f->hi : LIMIT_OBJECT_MAX_BYTES);
    json_print_tree(j, &text);
    if (text.failed)
        return path_error(in->err, p, "is larger than it may be");
    void *copy = arena_memdup(in->a, text.p, text.n);
    if (!copy)
        return full(in, p);
    *(struct slice *)member_mut(f, body) = slice_make(copy, text.n);
    return 0;
}

static int in_object(struct in *in, const struct path *p, const struct field *f, const cJSON *j,
                     void *body)
{
    void *sub = body_new(f->sub, in->a);
    int r;

    if (!sub)
        return full(in, p);
    if (f->flags & FIELD_SHORT && cJSON_IsString(j)) {
        cJSON object = {.type = cJSON_Object}, word = *j;
        word.next = word.prev = NULL;
        word.string = (char *)(uintptr_t)f->sub->fields[0].json; /* read only */
        object.child = &word;
        r = in_body(in, p, f->sub, &object, sub);
    } else {
        r = in_body(in, p, f->sub, j, sub);
    }
    if (r == 0)
        *(void **)member_mut(f, body) = sub;
    return r;
}

static int in_value(struct in *in, const struct path *p, const struct field *f, const cJSON *j,
                    void *body)
{
    struct err e = {0};
    int r;

    switch (f->type) {
    case T_STR:
    case T_QTY:
        return in_text(in, p, f->lo, f->hi, j, member_mut(f, body));
    case T_F64:
    case T_PCT:
        r = in_float(in, p, f, j, member_mut(f, body));
        return r < 0 ? r : check_range(in, p, f, *(const double *)member(f, body));
    case T_TEXT:
        return in_place(in, p, f, j, member_mut(f, body));
    case T_PART:
        r = in_body(in, p, f->sub, j, member_mut(f, body));
        if (r == 0)
            *(bool *)member_mut(f->sub->fields, member_mut(f, body)) = true;
        return r;
    case T_OWN:
        if (!cJSON_IsString(j))
            return mismatch(in, p, j, "a string");
        return at_path(in, p, f->own->parse(j->valuestring, member_mut(f, body), &e), &e);
    case T_OBJ:
        return in_object(in, p, f, j, body);
    case T_LIST:
    case T_STRS:
    case T_ENUMS:
    case T_I64S:
        return in_items(in, p, f, j, body);
    case T_MAP:
        return in_map(in, p, f, j, body);
    case T_RAW:
        return in_raw(in, p, f, j, body);
    case T_B64:
        if (!cJSON_IsString(j))
            return mismatch(in, p, j, "base64 in a string");
        r = base64_parse(j->valuestring, in->a, member_mut(f, body), &e);
        return at_path(in, p, r, &e);
    default:
        return in_number(in, p, f, j, body);
    }
}

static int unknown_field(struct in *in, const struct path *p, const struct schema *s,
                         const cJSON *j)
{
    char path[ERR_FIELD_MAX];
    struct path at = {p, j->string, 0};
    const char *near = nearest_field(s, j->string);

    if (in->flags & DECODE_LOOSE) {
        size_t n = in->err ? strlen(in->err->text) : 0;
        path_text(&at, path, sizeof path);
        if (in->err)
            (void)snprintf(in->err->text + n, sizeof in->err->text - n, "%sunknown field \"%s\"",
                           n ? ", " : "", path);
        return 0;
    }
    if (!(in->flags & DECODE_USER))
        return 0;
    if (near)
        return path_error(in->err, &at, "unknown field; did you mean %s?", near);
    schema_for_each (f, s)
        if (f->type == T_OBJ && f->sub && schema_field(f->sub, j->string, strlen(j->string)))
            return path_error(in->err, &at, "unknown field; did you mean %s.%s?", f->json,
                              j->string);
    return path_error(in->err, &at, "unknown field");
}

/* From users, what Hanse sets itself is dropped; uid and resourceVersion stay, as preconditions. */
static bool dropped(const struct in *in, const struct schema *s, const struct field *f)
{
    if (!(in->flags & DECODE_USER) || !(f->flags & FIELD_STATUS))
        return false;
    if (s == &schema_meta)
        return strcmp(f->json, "uid") && strcmp(f->json, "resourceVersion");
    return !(in->flags & DECODE_STATUS);
}

static int fill_defaults(struct in *in, const struct path *p, const struct schema *s, void *body)
{
    struct err e = {0};

    if (in->flags & DECODE_NO_REQUIRED)
        return 0;
    schema_for_each (f, s) {
        struct path at = {p, f->json, 0};
        bool here = body_has(body) >> f->bit & 1;
        if (!here && f->def) {
            int r = scalar_from_text(f, f->def, body, in->a, &e);
            INV(r == 0);
            body_mark(body, f);
        } else if (f->flags & FIELD_REQ && !member_present(f, body)) {
            return path_error(in->err, &at, "is required: %s", f->doc);
        }
    }
    return 0;
}

static int in_body(struct in *in, const struct path *p, const struct schema *s, const cJSON *j,
                   void *body)
{
    if (!cJSON_IsObject(j))
        return mismatch(in, p, j, "an object");
    body_init(s, body);
    for (const cJSON *c = j->child; c; c = c->next) {
        const struct field *f = schema_field(s, c->string, strlen(c->string));
        struct path at = {p, c->string, 0};
        if (!f) {
            bool top = !p && schema_is_kind(s);
            if (top && (!strcmp(c->string, "apiVersion") || !strcmp(c->string, "kind")))
                continue;
            int u = unknown_field(in, p, s, c);
            if (u < 0)
                return u;
            continue;
        }
        if (cJSON_IsNull(c) || dropped(in, s, f))
            continue;
        if (body_has(body) >> f->bit & 1)
            return path_error(in->err, &at, "stands here twice");
        int r = in_value(in, &at, f, c, body);
        if (r < 0)
            return r;
        body_mark(body, f);
    }
    if (in->flags & DECODE_USER)
        body_normalise(s, body);
    return fill_defaults(in, p, s, body);
}

int scalar_from_text(const struct field *f, const char *text, void *body, struct arena *a,
                     struct err *err)
{
    struct in in = {DECODE_USER, a, err};
    cJSON j = {.type = cJSON_String, .valuestring = (char *)(uintptr_t)text};

    if (f->type == T_BOOL)
        j.type = !strcmp(text, "true") ? cJSON_True : cJSON_False;
    else if ((f->type == T_I64 && !(f->flags & FIELD_I64_TEXT)) || f->type == T_F64)
        j.type = cJSON_Number;
    if (j.type == cJSON_Number)
        j.valuedouble = strtod(text, NULL);
    return in_value(&in, NULL, f, &j, body);
}

int body_from_json(const struct schema *s, const struct cJSON *j, unsigned flags, struct arena *a,
                   void **ret_body, struct err *err)
{
    struct in in = {flags, a, err};
    void *body = body_new(s, a);

    if (flags & DECODE_LOOSE && err)
        err->text[0] = 0;
    if (!body)
        return full(&in, NULL);
    int r = in_body(&in, NULL, s, j, body);
    if (r == 0)
        *ret_body = body;
    return r;
}

static int check_header(const struct kind *k, const cJSON *j, const char *key, const char *want,
                        struct err *err)
{
    struct path at = {NULL, key, 0};
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

    (void)k;
    if (!cJSON_IsString(v))
        return path_error(err, &at, "is required: %s", want);
    if (strcmp(v->valuestring, want))
        return path_error(err, &at, "\"%.64s\" found, \"%s\" expected", v->valuestring, want);
    return 0;
}

int object_from_json(const struct kind *k, const struct cJSON *j, unsigned flags,
                     struct object **ret, struct err *err)
{
    void *body = NULL;

    if (!cJSON_IsObject(j))
        return err_set(err, E_INVALID, "expected an object with apiVersion and kind");
    int r = check_header(k, j, "apiVersion", kind_api_version(k), err);
    if (r == 0)
        r = check_header(k, j, "kind", k->kind, err);
    if (r < 0)
        return r;
    struct arena *a = arena_create(0);
    arena_set_soft(a, true);
    AUTO_BUF log = {0};
    buf_init(&log, LIMIT_OBJECT_MAX_BYTES);
    r = body_from_json(k->schema, j, flags, a, &body, err);
    if (r == 0) {
        const struct meta *m = *(const struct meta *const *)member(&k->schema->fields[0], body);
        r = meta_validate(k, m, flags, err);
    }
    if (r == 0) {
        r = tlv_encode(k->schema, body, &log, err);
    }
    if (r == 0)
        r = object_decode(k, slice_make(log.p, log.n), ret, err);
    (void)arena_destroy(a);
    return r;
}
