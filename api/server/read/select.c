/* Label and field selectors of lists, watches and collections' deletion. A selector owns its
 * memory: a watch outlives the request's arena. Fields may be any scalar of the kind; a path that
 * the kind does not have is an error. */
#include "api/server/server_internal.h"

#include <ctype.h>

#define TERMS_MAX 64
#define VALUES_MAX 256

struct term {
    enum { EQ, NE, IN, NOT_IN, EXISTS, ABSENT } op;
    bool field;
    const char *key;
    struct column column; /* of a field */
    const char **values;
    unsigned n;
};
struct selector {
    struct arena *mem;
    struct term terms[TERMS_MAX];
    unsigned n;
};

struct reader {
    const char *p;
    struct selector *s;
    struct err *err;
};

static void blank(struct reader *r)
{
    while (*r->p == ' ' || *r->p == '\t')
        r->p++;
}

static const char *word(struct reader *r, const char *stop)
{
    blank(r);
    size_t n = strcspn(r->p, stop);
    const char *from = r->p;
    r->p += n;
    while (n && from[n - 1] == ' ')
        n--;
    return arena_strndup(r->s->mem, from, n);
}

static bool label_word_ok(const char *w)
{
    for (; *w; w++)
        if (!isalnum((unsigned char)*w) && !strchr("-_./", *w))
            return false;
    return true;
}

static int bad(struct reader *r, const char *what)
{
    return err_set(r->err, E_SYNTAX, "labelSelector: %s at \"%.40s\"", what, r->p);
}

static int read_set(struct reader *r, struct term *t)
{
    const char *values[VALUES_MAX];

    blank(r);
    if (*r->p++ != '(')
        return bad(r, "\"(\" is expected after in or notin");
    do {
        if (t->n == VALUES_MAX)
            return err_set(r->err, E_LIMIT, "labelSelector: more than %d values", VALUES_MAX);
        values[t->n++] = word(r, ",)");
        if (!label_word_ok(values[t->n - 1]))
            return bad(r, "a value is not a label value");
    } while (*r->p == ',' && r->p++);
    if (*r->p != ')')
        return bad(r, "\")\" is missing");
    r->p++;
    t->values = arena_memdup(r->s->mem, values, t->n * sizeof *values);
    return 0;
}

static void one_value(struct reader *r, struct term *t, const char *value)
{
    t->values = arena_memdup(r->s->mem, &value, sizeof value);
    t->n = 1;
}

static int read_label(struct reader *r, struct term *t)
{
    blank(r);
    if (*r->p == '!') {
        r->p++;
        t->op = ABSENT;
        t->key = word(r, ",");
        return *t->key && label_word_ok(t->key) ? 0 : bad(r, "a key is missing after \"!\"");
    }
    t->key = word(r, " ,=!()");
    if (!*t->key || !label_word_ok(t->key))
        return bad(r, "a label key is expected");
    blank(r);
    if (!*r->p || *r->p == ',') {
        t->op = EXISTS;
        return 0;
    }
    if (!strncmp(r->p, "!=", 2) || *r->p == '=') {
        t->op = *r->p == '!' ? NE : EQ;
        r->p += *r->p == '!' || r->p[1] == '=' ? 2 : 1;
        one_value(r, t, word(r, ","));
        return label_word_ok(t->values[0]) ? 0 : bad(r, "a value is not a label value");
    }
    bool in = !strncmp(r->p, "in", 2) && (r->p[2] == ' ' || r->p[2] == '(');
    bool notin = !strncmp(r->p, "notin", 5) && (r->p[5] == ' ' || r->p[5] == '(');
    if (!in && !notin)
        return bad(r, "=, !=, in or notin is expected");
    t->op = in ? IN : NOT_IN;
    r->p += in ? 2 : 5;
    return read_set(r, t);
}

static bool path_known(const struct kind *k, const char *path)
{
    const struct schema *s = k->schema;

    while (s) {
        size_t n = strcspn(path, ".");
        const struct field *f = NULL;
        for (unsigned i = 0; i < s->n && !f; i++)
            if (strlen(s->fields[i].json) == n && n && !memcmp(s->fields[i].json, path, n))
                f = &s->fields[i];
        if (!f)
            return false;
        if (!path[n])
            return f->type != T_OBJ && f->type != T_LIST && f->type != T_RAW &&
                   !(f->flags & FIELD_SECRET);
        if (f->type != T_OBJ)
            return false;
        s = f->sub;
        path += n + 1;
    }
    return false;
}

static int read_field(struct reader *r, const struct kind *k, struct term *t)
{
    t->field = true;
    t->key = word(r, "=!,");
    if (!*t->key || !*r->p || *r->p == ',')
        return err_set(r->err, E_SYNTAX, "fieldSelector: PATH=VALUE is expected at \"%.40s\"",
                       t->key);
    t->op = *r->p == '!' ? NE : EQ;
    r->p += *r->p == '!' || r->p[1] == '=' ? 2 : 1;
    one_value(r, t, word(r, ","));
    if (!path_known(k, t->key))
        return err_set(r->err, E_SYNTAX,
                       "field label not supported: %s has no scalar field \"%.100s\"", k->kind,
                       t->key);
    t->column = (struct column){
        .name = "", .type = "string", .doc = "", .path = arena_printf(r->s->mem, ".%s", t->key)};
    return 0;
}

static int read_all(struct reader *r, const char *text, const struct kind *fields_of)
{
    r->p = text;
    blank(r);
    while (*r->p) {
        if (r->s->n == TERMS_MAX)
            return err_set(r->err, E_LIMIT, "a selector has at most %d terms", TERMS_MAX);
        struct term *t = &r->s->terms[r->s->n++];
        int code = fields_of ? read_field(r, fields_of, t) : read_label(r, t);
        if (code)
            return code;
        blank(r);
        if (*r->p && *r->p != ',')
            return bad(r, "\",\" is expected");
        if (*r->p)
            r->p++;
        blank(r);
    }
    return 0;
}

int selector_parse(const char *labels, const char *fields, const struct kind *k,
                   struct selector **ret, struct err *err)
{
    if (!*labels && !*fields) {
        *ret = NULL;
        return 0;
    }
    struct selector *s = mem_new(struct selector);
    struct reader r = {.s = s, .err = err};
    s->mem = arena_create(1 << 20);
    int code = read_all(&r, labels, NULL);
    if (!code)
        code = read_all(&r, fields, k);
    if (code) {
        (void)selector_free(s);
        return code;
    }
    *ret = s;
    return 0;
}

struct selector *selector_free(struct selector *s)
{
    if (s) {
        s->mem = arena_destroy(s->mem);
        mem_free(s);
    }
    return NULL;
}

static bool among(const struct term *t, const char *value)
{
    for (unsigned i = 0; i < t->n; i++)
        if (!strcmp(t->values[i], value))
            return true;
    return false;
}

static bool field_holds(const struct term *t, const struct object *o)
{
    bool equal;

    if (!strcmp(t->key, "metadata.name"))
        equal = !strcmp(o->meta->name, t->values[0]);
    else if (!strcmp(t->key, "metadata.namespace"))
        equal = !strcmp(o->meta->namespace_, t->values[0]);
    else {
        AUTO_BUF b = {0};
        buf_init(&b, 1 << 16);
        column_cell(&t->column, o, 0, &b);
        equal = !strcmp(b.n ? b.p : "", t->values[0]);
    }
    return equal == (t->op == EQ);
}

static bool label_holds(const struct term *t, const struct object *o)
{
    const char *v = label_get(o->meta->labels, o->meta->n_labels, t->key);

    switch (t->op) {
    case EQ:
    case IN:
        return v && among(t, v);
    case NE:
    case NOT_IN:
        return !v || !among(t, v);
    case EXISTS:
        return v != NULL;
    default:
        return v == NULL;
    }
}

bool selector_holds(const struct selector *s, const struct object *o)
{
    for (unsigned i = 0; s && i < s->n; i++)
        if (!(s->terms[i].field ? field_holds(&s->terms[i], o) : label_holds(&s->terms[i], o)))
            return false;
    return true;
}

bool selector_trivial(const struct selector *s)
{
    return !s || !s->n;
}

const char *selector_name(const struct selector *s)
{
    for (unsigned i = 0; s && i < s->n; i++)
        if (s->terms[i].field && s->terms[i].op == EQ && !strcmp(s->terms[i].key, "metadata.name"))
            return s->terms[i].values[0];
    return NULL;
}
