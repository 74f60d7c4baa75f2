/* YAML → the same tree as JSON, by libyaml's events. Only the plain part of YAML: no anchors,
 * aliases, tags, merge keys or duplicate keys, since readers disagree about them and a policy must
 * mean one thing. Unquoted words are typed by the YAML 1.2 core schema: `no` and `Norway` are
 * texts. */
#include "api/base/limits.h"
#include "api/schema/schema_internal.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdarg.h>
#include <yaml.h>

struct position {
    const cJSON *node;
    int line, column;
};
struct positions {
    struct position *at;
    size_t n, cap;
};

struct load {
    yaml_parser_t parser;
    const char *file;
    struct err *err;
    struct positions *positions; /* of the document under way */
    struct keyset keys;
    uint64_t maps;
    unsigned depth;
};

static int bad(struct load *l, const yaml_mark_t *m, const char *fmt, ...) PRINTF_LIKE(3, 4);
static int bad(struct load *l, const yaml_mark_t *m, const char *fmt, ...)
{
    char text[ERR_TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(l->err, E_SYNTAX, "%s:%zu:%zu: %s", l->file, m->line + 1, m->column + 1, text);
}

static void remember(struct load *l, const cJSON *node, const yaml_mark_t *m)
{
    struct positions *p = l->positions;

    if (p->n == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 32;
        p->at = mem_realloc(p->at, p->cap * sizeof *p->at);
    }
    p->at[p->n++] = (struct position){node, (int)m->line + 1, (int)m->column + 1};
}

static int next(struct load *l, yaml_event_t *e)
{
    if (yaml_parser_parse(&l->parser, e))
        return 0;
    return bad(l, &l->parser.problem_mark, "%s%s%s",
               l->parser.problem ? l->parser.problem : "not YAML", l->parser.context ? " " : "",
               l->parser.context ? l->parser.context : "");
}

/* ---- scalars ---- */
static bool one_of(const char *s, const char *a, const char *b, const char *c)
{
    return !strcmp(s, a) || !strcmp(s, b) || !strcmp(s, c);
}

/* "0x1f", "+5", "010", ".5", ".inf": numbers to one reader and texts, or other numbers, to the
 * next. */
static bool ambiguous_number(const char *s)
{
    const char *p = s + (*s == '-' || *s == '+');
    size_t n = strspn(p, "0123456789");

    if (one_of(p, ".inf", ".Inf", ".INF") || one_of(p, ".nan", ".NaN", ".NAN"))
        return true;
    if (*p == '0' && (p[1] == 'x' || p[1] == 'o'))
        return p[2] && !p[2 + strspn(p + 2, "0123456789abcdefABCDEF")];
    if (n > 1 && *p == '0' && !p[n])
        return true;
    if (*s == '+' || *p == '.' || (n > 0 && p[n] == '.' && !p[n + 1])) {
        char *end;
        (void)strtod(p, &end);
        return end != p && !*end && strspn(p, "0123456789.eE+-") == strlen(p);
    }
    return false;
}

static int plain_scalar(struct load *l, const yaml_event_t *e, cJSON **ret)
{
    const char *s = (const char *)e->data.scalar.value;
    size_t n = e->data.scalar.length;

    if (n == 0 || !strcmp(s, "~") || one_of(s, "null", "Null", "NULL")) {
        *ret = cJSON_CreateNull();
    } else if (one_of(s, "true", "True", "TRUE")) {
        *ret = cJSON_CreateTrue();
    } else if (one_of(s, "false", "False", "FALSE")) {
        *ret = cJSON_CreateFalse();
    } else if (json_number_ok(s, n)) {
        if (json_parse(s, n, ret, NULL) < 0)
            return bad(l, &e->start_mark,
                       "the number %.40s is too large to be exact; put it in quotes", s);
    } else if (ambiguous_number(s)) {
        return bad(
            l, &e->start_mark,
            "%.40s may be read as different values; write a plain number, or put it in quotes", s);
    } else {
        *ret = cJSON_CreateString(s);
    }
    return 0;
}

static int scalar(struct load *l, const yaml_event_t *e, cJSON **ret)
{
    if (memchr(e->data.scalar.value, 0, e->data.scalar.length))
        return bad(l, &e->start_mark, "\\0 is not accepted in texts");
    if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return plain_scalar(l, e, ret);
    *ret = cJSON_CreateString((const char *)e->data.scalar.value);
    return 0;
}

/* ---- nodes ---- */
static int refuse(struct load *l, const yaml_event_t *e)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;

    if (e->type == YAML_ALIAS_EVENT)
        return bad(l, &e->start_mark, "aliases (*%s) are not accepted; write the value out",
                   e->data.alias.anchor);
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
    }
    if (anchor)
        return bad(l, &e->start_mark, "anchors (&%s) are not accepted; write the value out",
                   anchor);
    if (tag)
        return bad(l, &e->start_mark,
                   "tags (%s) are not accepted; quote texts that look like numbers", tag);
    return 0;
}

static int node(struct load *l, const yaml_event_t *e, cJSON **ret);

static int key(struct load *l, const yaml_event_t *e, uint64_t owner, char **ret)
{
    int r = refuse(l, e);

    if (r < 0)
        return r;
    if (e->type != YAML_SCALAR_EVENT)
        return bad(l, &e->start_mark, "keys must be plain words");
    const char *s = (const char *)e->data.scalar.value;
    size_t n = e->data.scalar.length;
    if (memchr(s, 0, n))
        return bad(l, &e->start_mark, "\\0 is not accepted in keys");
    if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !strcmp(s, "<<"))
        return bad(l, &e->start_mark, "merge keys (<<) are not accepted; write the fields out");
    if (!keyset_add(&l->keys, owner, s, n))
        return bad(l, &e->start_mark, "the key \"%.100s\" stands here twice", s);
    *ret = mem_strdup(s);
    return 0;
}

static int children(struct load *l, cJSON *parent, bool map)
{
    uint64_t owner = ++l->maps;

    for (;;) {
        yaml_event_t e;
        cJSON *value = NULL;
        char *name = NULL;
        int r = next(l, &e);
        if (r < 0)
            return r;
        if (e.type == (map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT)) {
            yaml_event_delete(&e);
            return 0;
        }
        if (map) {
            r = key(l, &e, owner, &name);
            yaml_event_delete(&e);
            if (r < 0)
                return r;
            r = next(l, &e);
            if (r < 0) {
                mem_free(name);
                return r;
            }
        }
        r = node(l, &e, &value);
        yaml_event_delete(&e);
        if (r == 0 && map)
            (void)cJSON_AddItemToObject(parent, name, value);
        else if (r == 0)
            (void)cJSON_AddItemToArray(parent, value);
        mem_free(name);
        if (r < 0)
            return r;
    }
}

static int node(struct load *l, const yaml_event_t *e, cJSON **ret)
{
    cJSON *made = NULL;
    int r = refuse(l, e);

    if (r < 0)
        return r;
    if (e->type == YAML_SCALAR_EVENT) {
        r = scalar(l, e, ret);
        if (r == 0)
            remember(l, *ret, &e->start_mark);
        return r;
    }
    if (l->depth >= LIMIT_JSON_MAX_DEPTH)
        return bad(l, &e->start_mark, "the document is nested too deeply");
    bool map = e->type == YAML_MAPPING_START_EVENT;
    made = map ? cJSON_CreateObject() : cJSON_CreateArray();
    remember(l, made, &e->start_mark);
    l->depth++;
    r = children(l, made, map);
    l->depth--;
    if (r < 0) {
        cJSON_Delete(made);
        return r;
    }
    *ret = made;
    return 0;
}

/* ---- documents ---- */
struct docs {
    struct yaml_doc *v;
    size_t n;
};

static int document(struct load *l, const yaml_event_t *start, struct docs *d)
{
    yaml_event_t e = {0};
    struct positions *p = mem_new(struct positions);
    struct yaml_doc doc = {NULL, (int)start->start_mark.line + 1, p};

    l->positions = p;
    int r = start->data.document_start.tag_directives.start !=
                    start->data.document_start.tag_directives.end
                ? bad(l, &start->start_mark, "%%TAG directives are not accepted")
                : next(l, &e);
    if (r == 0) {
        doc.line = (int)e.start_mark.line + 1;
        r = node(l, &e, &doc.json);
        yaml_event_delete(&e);
    }
    if (r == 0 && (r = next(l, &e)) == 0) /* the end of the document */
        yaml_event_delete(&e);
    if (r < 0 || cJSON_IsNull(doc.json)) {
        cJSON_Delete(doc.json);
        mem_free(p->at);
        mem_free(p);
        return r;
    }
    d->v = mem_realloc(d->v, (d->n + 1) * sizeof *d->v);
    d->v[d->n++] = doc;
    return 0;
}

int yaml_parse_all(const char *text, size_t n, const char *file, struct yaml_doc **ret_docs,
                   size_t *ret_n, struct err *err)
{
    struct load l = {.file = file ? file : "-", .err = err};
    struct docs d = {0};
    bool end = false;
    int r = 0;

    if (n > LIMIT_BODY_MAX_BYTES)
        return err_set(err, E_TOOLARGE, "%s: larger than %d bytes", l.file, LIMIT_BODY_MAX_BYTES);
    if (!yaml_parser_initialize(&l.parser))
        return err_set(err, E_NOMEM, "no memory for a YAML parser");
    yaml_parser_set_encoding(&l.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&l.parser, (const unsigned char *)text, n);
    while (r == 0 && !end) {
        yaml_event_t e;
        r = next(&l, &e);
        if (r < 0)
            break;
        if (e.type == YAML_DOCUMENT_START_EVENT)
            r = d.n < LIMIT_APPLY_MAX_OBJECTS
                    ? document(&l, &e, &d)
                    : err_set(err, E_TOOLARGE, "%s: too many documents", l.file);
        end = e.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&l.parser);
    keyset_fini(&l.keys);
    if (r < 0) {
        yaml_docs_free(d.v, d.n);
        return r;
    }
    *ret_docs = d.v;
    *ret_n = d.n;
    return 0;
}

void yaml_docs_free(struct yaml_doc *docs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct positions *p = docs[i].positions;
        cJSON_Delete(docs[i].json);
        mem_free(p->at);
        mem_free(p);
    }
    mem_free(docs);
}

static const cJSON *child_of(const cJSON *j, const char *name, size_t n)
{
    for (const cJSON *c = cJSON_IsObject(j) ? j->child : NULL; c; c = c->next)
        if (!strncmp(c->string, name, n) && !c->string[n])
            return c;
    return NULL;
}

int yaml_line_of(const struct yaml_doc *d, const char *path)
{
    const struct positions *p = d->positions;
    const cJSON *j = d->json;

    for (const char *s = path; s && *s;) {
        const cJSON *c;
        size_t n = strcspn(s, ".[");
        if (*s == '[') {
            char *close;
            long i = strtol(s + 1, &close, 10);
            c = i >= 0 && i < INT32_MAX && cJSON_IsArray(j) ? cJSON_GetArrayItem(j, (int)i) : NULL;
            n = (size_t)(close - s) + (*close == ']');
        } else {
            c = child_of(j, s, n);
            if (!c) { /* a key may hold dots (labels) */
                n = strlen(s);
                c = child_of(j, s, n);
            }
        }
        if (!c)
            break;
        j = c;
        s += n;
        s += *s == '.';
    }
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].node == j)
            return p->at[i].line;
    return d->line;
}
