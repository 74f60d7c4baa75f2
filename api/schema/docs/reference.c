/* The reference page: every kind with its fields, from the same table as the code. */
#include "api/schema/schema_internal.h"

#include <stdio.h>

static const char *type_word(const struct field *f)
{
    static const char *const words[] = {
        [T_STR] = "text",           [T_I64] = "integer",         [T_F64] = "number",
        [T_BOOL] = "true or false", [T_ENUM] = "word",           [T_DUR] = "duration",
        [T_TIME] = "time",          [T_BYTES] = "quantity",      [T_MILLI] = "quantity",
        [T_PCT] = "share",          [T_OBJ] = "object",          [T_LIST] = "list",
        [T_STRS] = "list of texts", [T_ENUMS] = "list of words", [T_I64S] = "list of integers",
        [T_MAP] = "texts by name",  [T_RAW] = "any object",      [T_QTY] = "quantity",
        [T_B64] = "base64"};

    return words[f->type];
}

static void cell(struct buf *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '|')
            buf_char(out, '\\');
        buf_char(out, *s);
    }
}

static void rows(const struct schema *s, const char *prefix, struct buf *out)
{
    char words[320], path[256];

    schema_for_each (f, s) {
        if (!*f->json || f->sub == &schema_meta)
            continue;
        (void)snprintf(path, sizeof path, "%s%s%s", prefix, f->json, f->type == T_LIST ? "[]" : "");
        buf_printf(out, "| `%s` | %s%s | ", path, type_word(f),
                   f->flags & FIELD_REQ ? ", required" : "");
        cell(out, f->doc);
        if (f->en) {
            enum_words(f->en, words, sizeof words);
            buf_printf(out, ": %s", words);
        }
        if (f->def)
            buf_printf(out, "; default %s", f->def);
        if (f->flags & FIELD_IMMUT)
            buf_str(out, "; never changes");
        if (f->flags & FIELD_SHORT)
            buf_str(out, "; a plain word will do");
        buf_str(out, " |\n");
        if (f->sub && f->sub != &schema_condition && f->sub != &schema_label_selector) {
            char deeper[260];
            (void)snprintf(deeper, sizeof deeper, "%s.", path);
            rows(f->sub, deeper, out);
        }
    }
}

void reference_markdown(struct buf *out)
{
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT);

    buf_str(out, "# Reference of the kinds\n\nMade from api/schema/kinds.def; do not edit.\n");
    for (size_t i = 0; i < n; i++) {
        const struct kind *k = kinds[i];
        buf_printf(out,
                   "\n## %s\n\n`%s`, %s%s%s%s%s\n\n| field | type | what |\n| --- | --- | --- |\n",
                   k->kind, kind_api_version(k), k->namespaced ? "in a namespace" : "cluster-wide",
                   *k->shorts ? "; short name " : "", k->shorts,
                   k->flags & KINDF_RO ? "; written by Hanse only" : "",
                   k->flags & KINDF_STATUSSUB ? "; status subresource" : "");
        rows(k->schema, "", out);
    }
}
