/* Typed bodies → JSON text, straight from the descriptor: the hot path of GET, LIST and WATCH.
 * Allocates nothing but the buffer's own growth. This file must never print a field whose JSON name
 * is empty (Secret's sealed). */
#include "api/base/limits.h"
#include "api/schema/schema_internal.h"

#include <cjson/cJSON.h>
#include <stdio.h>

void json_print_string(struct buf *out, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t run = 0;

    buf_char(out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_add(out, s + run, i - run);
        run = i + 1;
        char e[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        bool known = true;
        if (c == '"' || c == '\\')
            e[1] = (char)c;
        else if (c == '\n' || c == '\r' || c == '\t')
            e[1] = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
        else
            known = false;
        buf_add(out, e, known ? 2 : 6);
    }
    buf_add(out, s + run, n - run);
    buf_char(out, '"');
}

void json_print_i64(struct buf *out, int64_t v)
{
    char text[24], *p = text + sizeof text;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;

    do
        *--p = (char)('0' + u % 10);
    while ((u /= 10) != 0);
    if (v < 0)
        *--p = '-';
    buf_add(out, p, (size_t)(text + sizeof text - p));
}

void json_print_f64(struct buf *out, double v)
{
    char text[32];

    f64_text(v, text);
    buf_str(out, text);
}

static void print_text(struct buf *out, const char *s)
{
    json_print_string(out, s, strlen(s));
}

void scalar_print(const struct field *f, const void *body, struct buf *out)
{
    char text[32];

    switch (f->type) {
    case T_STR:
    case T_QTY:
        print_text(out, member_str(f, body));
        return;
    case T_TEXT:
        print_text(out, member(f, body));
        return;
    case T_I64:
    case T_INT:
    case T_U64:
        (void)snprintf(text, sizeof text, "%lld", (long long)member_int(f, body));
        if (f->flags & FIELD_I64_TEXT)
            print_text(out, text);
        else
            buf_str(out, text);
        return;
    case T_BOOL:
        buf_str(out, member_int(f, body) ? "true" : "false");
        return;
    case T_F64:
        json_print_f64(out, *(const double *)member(f, body));
        return;
    case T_PCT:
        pct_text(*(const double *)member(f, body), text);
        if (strchr(text, '%'))
            print_text(out, text);
        else
            buf_str(out, text);
        return;
    case T_ENUM:
        print_text(out, enum_text(f->en, (int)member_int(f, body)));
        return;
    case T_DUR:
        duration_print(member_int(f, body), text);
        break;
    case T_TIME:
        time_print_as(member_int(f, body), f->flags, text);
        break;
    case T_BYTES:
        quantity_print_bytes(member_int(f, body), text);
        break;
    default:
        quantity_print_milli(member_int(f, body), text);
        break;
    }
    print_text(out, text);
}

static void print_items(const struct field *f, const void *body, struct buf *out, char *path)
{
    const void *items = *(const void *const *)member(f, body);

    buf_char(out, '[');
    for (uint32_t i = 0; i < member_count(f, body); i++) {
        if (i)
            buf_char(out, ',');
        if (f->type == T_LIST)
            body_add_json(f->sub, (const char *)items + i * f->sub->size, out, path);
        else if (f->type == T_STRS)
            print_text(out, ((const char *const *)items)[i]);
        else if (f->type == T_ENUMS)
            print_text(out, enum_text(f->en, ((const int *)items)[i]));
        else
            json_print_i64(out, ((const int64_t *)items)[i]);
        if (path_ended(path, out, NULL, i))
            return;
    }
    buf_char(out, ']');
}

static void print_value(const struct field *f, const void *body, struct buf *out, char *path)
{
    const struct slice *raw = member(f, body);

    switch (f->type) {
    case T_PART:
        body_add_json(f->sub, member(f, body), out, path);
        return;
    case T_OWN: {
        char own[SPELLING_MAX];
        f->own->print(member(f, body), own);
        print_text(out, own);
        return;
    }
    case T_OBJ:
        body_add_json(f->sub, *(const void *const *)member(f, body), out, path);
        return;
    case T_LIST:
    case T_STRS:
    case T_ENUMS:
    case T_I64S:
        print_items(f, body, out, path);
        return;
    case T_MAP: {
        const struct kv *kv = *(const struct kv *const *)member(f, body);
        buf_char(out, '{');
        for (uint32_t i = 0; i < member_count(f, body); i++) {
            if (i)
                buf_char(out, ',');
            print_text(out, kv[i].key);
            buf_char(out, ':');
            print_text(out, kv[i].value);
        }
        buf_char(out, '}');
        return;
    }
    case T_RAW:
        buf_add(out, raw->p, raw->n);
        return;
    case T_B64:
        buf_char(out, '"');
        base64_print(out, raw->p, raw->n);
        buf_char(out, '"');
        return;
    default:
        scalar_print(f, body, out);
    }
}

static void print_fields(const struct schema *s, const void *body, bool comma, struct buf *out,
                         char *path)
{
    schema_for_each (f, s) {
        if (!*f->json || !member_present(f, body))
            continue;
        if (f->type == T_ENUM && !*enum_text(f->en, (int)member_int(f, body)))
            continue; /* a word of a newer version: kept in the log, unknown to this API */
        if (comma)
            buf_char(out, ',');
        comma = true;
        buf_char(out, '"');
        buf_str(out, f->json);
        buf_add(out, "\":", 2);
        print_value(f, body, out, path);
        if (path_ended(path, out, f->json, 0))
            return;
    }
}

void body_add_json(const struct schema *s, const void *body, struct buf *out, char *path)
{
    buf_char(out, '{');
    print_fields(s, body, false, out, path);
    buf_char(out, '}');
}

int body_print_json(const struct schema *s, const void *body, struct buf *out, struct err *err)
{
    char path[ERR_FIELD_MAX] = "";

    body_add_json(s, body, out, path);
    return out->failed ? path_too_large(err, schema_title(s), path, out->max) : 0;
}

static void object_add_json(const struct object *o, struct buf *out, char *path)
{
    buf_str(out, "{\"apiVersion\":\"");
    buf_str(out, kind_api_version(o->kind));
    buf_str(out, "\",\"kind\":\"");
    buf_str(out, o->kind->kind);
    buf_char(out, '"');
    print_fields(o->kind->schema, o->body, true, out, path);
    buf_char(out, '}');
}

void object_print_json(const struct object *o, struct buf *out)
{
    object_add_json(o, out, NULL);
}

/* The largest object there can be, all of it control characters, of six bytes each in JSON. */
#define JSON_OF_OBJECT_MAX (8 * (size_t)LIMIT_COMMAND_MAX_BYTES)

static int tree_of(const struct buf *text, const char *what, struct cJSON **ret, struct err *err)
{
    cJSON *j = json_parse_own(text->p, text->n);

    if (!j)
        return err_set(err, E_CORRUPT, "a %s is no JSON when it is printed", what);
    *ret = j;
    return 0;
}

int body_to_json(const struct schema *s, const void *body, struct cJSON **ret, struct err *err)
{
    AUTO_BUF out = {0};

    buf_init(&out, JSON_OF_OBJECT_MAX);
    int r = body_print_json(s, body, &out, err);
    return r < 0 ? r : tree_of(&out, schema_title(s), ret, err);
}

int object_to_json(const struct object *o, struct cJSON **ret, struct err *err)
{
    char path[ERR_FIELD_MAX] = "";
    AUTO_BUF out = {0};

    buf_init(&out, JSON_OF_OBJECT_MAX);
    object_add_json(o, &out, path);
    if (out.failed)
        return path_too_large(err, o->kind->kind, path, out.max);
    return tree_of(&out, o->kind->kind, ret, err);
}

void json_print_tree(const struct cJSON *j, struct buf *out)
{
    if (cJSON_IsString(j)) {
        print_text(out, j->valuestring);
    } else if (cJSON_IsNumber(j)) {
        if (j->valuestring && json_number_ok(j->valuestring, strlen(j->valuestring)))
            buf_str(out, j->valuestring);
        else
            json_print_f64(out, j->valuedouble);
    } else if (cJSON_IsBool(j)) {
        buf_str(out, cJSON_IsTrue(j) ? "true" : "false");
    } else if (cJSON_IsArray(j) || cJSON_IsObject(j)) {
        bool object = cJSON_IsObject(j);
        buf_char(out, object ? '{' : '[');
        for (const cJSON *i = j->child; i; i = i->next) {
            if (i != j->child)
                buf_char(out, ',');
            if (object) {
                print_text(out, i->string);
                buf_char(out, ':');
            }
            json_print_tree(i, out);
        }
        buf_char(out, object ? '}' : ']');
    } else {
        buf_str(out, "null");
    }
}
