/* The version 2 document as protobuf, message openapi.v2.Document (google/gnostic,
 * OpenAPIv2.proto): old kubectl and Argo CD ask for nothing else. Made from the JSON text, so that
 * the two cannot disagree; what has no field of its own (x-…) travels as text, which may be JSON
 * since JSON is YAML. */
#include "api/schema/docs/openapi_internal.h"

#include <cjson/cJSON.h>

static void varint(struct buf *out, uint64_t v)
{
    do
        buf_char(out, (char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0)));
    while ((v >>= 7) != 0);
}

static void text(struct buf *out, unsigned field, const char *s)
{
    varint(out, field << 3 | 2);
    varint(out, strlen(s));
    buf_str(out, s);
}

static void flag(struct buf *out, unsigned field, const cJSON *j)
{
    varint(out, field << 3);
    varint(out, cJSON_IsTrue(j) ? 1 : 0);
}

/* A message within a message: its length comes first, and is known last. */
static size_t open_message(struct buf *out, unsigned field)
{
    varint(out, field << 3 | 2);
    buf_char(out, 0);
    return out->n;
}

static void close_message(struct buf *out, size_t start)
{
    if (out->failed)
        return;
    size_t n = out->n - start, width = 1;
    for (size_t v = n; v > 0x7f; v >>= 7)
        width++;
    if (width > 1) {
        if (!buf_reserve(out, width - 1))
            return;
        memmove(out->p + start + width - 1, out->p + start, n);
        out->n += width - 1;
    }
    for (size_t i = 0; i < width; i++, n >>= 7)
        out->p[start - 1 + i] = (char)((n & 0x7f) | (i + 1 < width ? 0x80 : 0));
}

static void any(struct buf *out, unsigned field, const cJSON *j)
{
    AUTO_BUF yaml = {0};
    size_t at = open_message(out, field);

    buf_init(&yaml, 1u << 20);
    json_print_tree(j, &yaml);
    buf_char(&yaml, '\n');
    text(out, 2, yaml.p);
    close_message(out, at);
}

static void named_any(struct buf *out, unsigned field, const cJSON *j)
{
    size_t at = open_message(out, field);

    text(out, 1, j->string);
    any(out, 2, j);
    close_message(out, at);
}

static void texts(struct buf *out, unsigned field, const cJSON *list)
{
    for (const cJSON *c = list->child; c; c = c->next)
        text(out, field, c->valuestring);
}

static void schema(struct buf *out, const cJSON *j);

static void schema_at(struct buf *out, unsigned field, const cJSON *j)
{
    size_t at = open_message(out, field);

    schema(out, j);
    close_message(out, at);
}

/* A message whose only field, 1, holds a schema. */
static void wrapped_schema(struct buf *out, unsigned field, const cJSON *j)
{
    size_t at = open_message(out, field);

    schema_at(out, 1, j);
    close_message(out, at);
}

static void named_schemas(struct buf *out, unsigned field, const cJSON *j)
{
    size_t all = open_message(out, field);

    for (const cJSON *c = j->child; c; c = c->next) {
        size_t at = open_message(out, 1);
        text(out, 1, c->string);
        schema_at(out, 2, c);
        close_message(out, at);
    }
    close_message(out, all);
}

static void schema(struct buf *out, const cJSON *j)
{
    for (const cJSON *c = j->child; c; c = c->next) {
        const char *k = c->string;
        if (!strcmp(k, "$ref"))
            text(out, 1, c->valuestring);
        else if (!strcmp(k, "format"))
            text(out, 2, c->valuestring);
        else if (!strcmp(k, "description"))
            text(out, 4, c->valuestring);
        else if (!strcmp(k, "default"))
            any(out, 5, c);
        else if (!strcmp(k, "required"))
            texts(out, 19, c);
        else if (!strcmp(k, "enum"))
            for (const cJSON *v = c->child; v; v = v->next)
                any(out, 20, v);
        else if (!strcmp(k, "additionalProperties"))
            wrapped_schema(out, 21, c);
        else if (!strcmp(k, "type")) {
            size_t at = open_message(out, 22);
            text(out, 1, c->valuestring);
            close_message(out, at);
        } else if (!strcmp(k, "items"))
            wrapped_schema(out, 23, c);
        else if (!strcmp(k, "allOf"))
            for (const cJSON *v = c->child; v; v = v->next)
                schema_at(out, 24, v);
        else if (!strcmp(k, "properties"))
            named_schemas(out, 25, c);
        else if (!strncmp(k, "x-", 2))
            named_any(out, 31, c);
        else
            INV(!"a word of OpenAPI that gnostic.c does not know");
    }
}

static void parameter(struct buf *out, unsigned field, const cJSON *j)
{
    const cJSON *body = cJSON_GetObjectItemCaseSensitive(j, "schema");
    const char *name = cJSON_GetObjectItemCaseSensitive(j, "name")->valuestring;
    const char *in = cJSON_GetObjectItemCaseSensitive(j, "in")->valuestring;
    const cJSON *required = cJSON_GetObjectItemCaseSensitive(j, "required");
    size_t item = open_message(out, field), param = open_message(out, 1);

    if (body) { /* BodyParameter */
        size_t at = open_message(out, 1);
        text(out, 2, name);
        text(out, 3, in);
        if (required)
            flag(out, 4, required);
        schema_at(out, 5, body);
        close_message(out, at);
    } else { /* NonBodyParameter: 3 query, 4 path; the latter has one field less */
        bool path = !strcmp(in, "path");
        size_t non_body = open_message(out, 2), at = open_message(out, path ? 4 : 3);
        if (required)
            flag(out, 1, required);
        text(out, 2, in);
        text(out, 4, name);
        text(out, path ? 5 : 6, cJSON_GetObjectItemCaseSensitive(j, "type")->valuestring);
        flag(out, path ? 19 : 20, cJSON_GetObjectItemCaseSensitive(j, "uniqueItems"));
        close_message(out, at);
        close_message(out, non_body);
    }
    close_message(out, param);
    close_message(out, item);
}

static void responses(struct buf *out, const cJSON *j)
{
    size_t all = open_message(out, 9);

    for (const cJSON *c = j->child; c; c = c->next) {
        size_t named = open_message(out, 1);
        text(out, 1, c->string);
        size_t value = open_message(out, 2), response = open_message(out, 1);
        text(out, 1, cJSON_GetObjectItemCaseSensitive(c, "description")->valuestring);
        wrapped_schema(out, 2, cJSON_GetObjectItemCaseSensitive(c, "schema"));
        close_message(out, response);
        close_message(out, value);
        close_message(out, named);
    }
    close_message(out, all);
}

static void operation(struct buf *out, unsigned field, const cJSON *j)
{
    size_t at = open_message(out, field);

    text(out, 5, cJSON_GetObjectItemCaseSensitive(j, "operationId")->valuestring);
    texts(out, 6, cJSON_GetObjectItemCaseSensitive(j, "produces"));
    texts(out, 7, cJSON_GetObjectItemCaseSensitive(j, "consumes"));
    for (const cJSON *p = cJSON_GetObjectItemCaseSensitive(j, "parameters")->child; p; p = p->next)
        parameter(out, 8, p);
    responses(out, cJSON_GetObjectItemCaseSensitive(j, "responses"));
    for (const cJSON *c = j->child; c; c = c->next)
        if (!strncmp(c->string, "x-", 2))
            named_any(out, 13, c);
    close_message(out, at);
}

static void path_item(struct buf *out, const cJSON *j)
{
    static const char *const methods[] = {"get",     "put",  "post", "delete",
                                          "options", "head", "patch"};
    size_t named = open_message(out, 2);

    text(out, 1, j->string);
    size_t at = open_message(out, 2);
    for (unsigned i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        const cJSON *o = cJSON_GetObjectItemCaseSensitive(j, methods[i]);
        if (o)
            operation(out, i + 2, o);
    }
    for (const cJSON *p = cJSON_GetObjectItemCaseSensitive(j, "parameters")->child; p; p = p->next)
        parameter(out, 9, p);
    close_message(out, at);
    close_message(out, named);
}

void openapi_v2_proto(struct buf *out)
{
    AUTO_BUF json = {0};

    buf_init(&json, 16u << 20);
    openapi_v2_json(&json);
    INV(!json.failed);
    cJSON *j = json_parse_own(json.p, json.n);
    INV(j);
    const cJSON *info = cJSON_GetObjectItemCaseSensitive(j, "info");
    text(out, 1, "2.0");
    size_t at = open_message(out, 2);
    text(out, 1, cJSON_GetObjectItemCaseSensitive(info, "title")->valuestring);
    text(out, 2, cJSON_GetObjectItemCaseSensitive(info, "version")->valuestring);
    close_message(out, at);
    at = open_message(out, 8);
    for (const cJSON *p = cJSON_GetObjectItemCaseSensitive(j, "paths")->child; p; p = p->next)
        path_item(out, p);
    close_message(out, at);
    named_schemas(out, 9, cJSON_GetObjectItemCaseSensitive(j, "definitions"));
    cJSON_Delete(j);
}
