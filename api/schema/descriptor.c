/* Descriptors: kinds.def as data (describe.def). Everything else in this folder walks these
 * tables. */
#include "api/base/limits.h"
#include "api/schema/schema_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define DESCRIBED_SCHEMAS SCHEMAS_ALL
#define DESCRIBED_ENUMS ENUMS_ALL
#include "api/schema/describe.def"

const struct schema schema_none_ = {"none", 0, NULL, 0};

static const struct enum_desc *const enums_all[] = {
#define X(e) &enum_desc_##e,
    ENUMS_ALL(X)
#undef X
};

static const struct schema *const schemas_all[] = {
#define X(s) &schema_##s,
    SCHEMAS_ALL(X)
#undef X
};

static const struct {
    const struct schema *s;
    const char *field, *text;
} defaults[] = {
#define D(s, f, text) {&schema_##s, #f, text},
    DEFAULTS_ALL(D)
#undef D
};

/* ---- kinds and columns ---- */
#define NS true
#define CL false
#define RO KINDF_RO
#define STATUSSUB KINDF_STATUSSUB
#define REVOKED KINDF_REVOKED
static struct kind kinds[] = {
#define K(c, number, s, kind_, plural, shorts, group, version, scope, flags)                       \
    {KIND_##c, kind_, plural, #s, shorts, group, version, scope, flags, &schema_##s, NULL, 0},
    KINDS_ALL(K)
#undef K
};
enum { KINDS_NR = sizeof kinds / sizeof kinds[0] };
static const struct kind *kinds_by_id[KIND_LIMIT];
static char kind_words[KINDS_NR][2][64]; /* apiVersion, singular */

static const struct {
    const struct schema *s;
    struct column c;
} column_rows[] = {
#define C(s, name, type, priority, path, doc) {&schema_##s, {name, type, path, doc, priority}},
    COLUMNS_ALL(C)
#undef C
};
enum { COLUMNS_NR = sizeof column_rows / sizeof column_rows[0] };
static struct column columns[COLUMNS_NR + 2 * KINDS_NR];

static void columns_join(struct kind *k, struct column **next)
{
    k->columns = *next;
    *(*next)++ = (struct column){"NAME", "string", ".metadata.name", "name", 0};
    for (unsigned i = 0; i < COLUMNS_NR; i++)
        if (column_rows[i].s == k->schema)
            *(*next)++ = column_rows[i].c;
    *(*next)++ = (struct column){"AGE", "date", ".metadata.creationTimestamp", "since creation", 0};
    k->n_columns = (unsigned)(*next - k->columns);
}

static struct field *field_of(const struct schema *s, const char *name)
{
    /* Only descriptor_init writes through this. */
    for (unsigned i = 0; i < s->n; i++)
        if (!strcmp(s->fields[i].name, name))
            return (struct field *)(uintptr_t)&s->fields[i];
    INV(!"no such field");
    return NULL;
}

static void spell(const struct schema *s, const char *name, uint8_t flag)
{
    struct field *f = field_of(s, name);
    f->flags = (uint8_t)(f->flags | flag);
}

static void kinds_init(void)
{
    struct column *next = columns;

    for (unsigned i = 0; i < KINDS_NR; i++) {
        struct kind *k = &kinds[i];
        INV(k->id > 0 && k->id < KIND_LIMIT && !kinds_by_id[k->id]);
        kinds_by_id[k->id] = k;
        (void)snprintf(kind_words[i][0], sizeof kind_words[i][0], "%s%s%s", k->group,
                       *k->group ? "/" : "", k->version);
        for (unsigned j = 0; k->kind[j] && j + 1 < sizeof kind_words[i][1]; j++)
            kind_words[i][1][j] = (char)(k->kind[j] | 0x20);
        k->singular = kind_words[i][1];
        columns_join(k, &next);
    }
}

__attribute__((constructor)) static void descriptor_init(void)
{
    describe();
    for (unsigned i = 0; i < sizeof schemas_all / sizeof schemas_all[0]; i++)
        schema_for_each (f, schemas_all[i])
            INV(f->type <= T_B64); /* the others have no log bytes */
    for (unsigned i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
        field_of(defaults[i].s, defaults[i].field)->def = defaults[i].text;
    spell(&schema_meta, "resourceVersion", FIELD_I64_TEXT);
    spell(&schema_meta, "creationTimestamp", FIELD_TIME_SECONDS);
    spell(&schema_meta, "deletionTimestamp", FIELD_TIME_SECONDS);
    spell(&schema_managed_fields, "time", FIELD_TIME_SECONDS);
    spell(&schema_lease_spec, "acquireTime", FIELD_TIME_MICRO);
    spell(&schema_lease_spec, "renewTime", FIELD_TIME_MICRO);
    spell(&schema_event, "eventTime", FIELD_TIME_MICRO);
    spell(&schema_resource_quota_spec, "hard", FIELD_MAP_QTY);
    spell(&schema_resource_quota_status, "hard", FIELD_MAP_QTY);
    spell(&schema_resource_quota_status, "used", FIELD_MAP_QTY);
    kinds_init();
}

/* ---- look-ups ---- */
bool target_can(enum target_type type, enum target_can what)
{
    static const unsigned cans[] = {
#define T(type, can) [TARGET_##type] = (can),
#include "api/schema/targets.def"
#undef T
    };

    return (unsigned)type < sizeof cans / sizeof *cans && (cans[type] & (unsigned)what);
}

bool target_has(const struct target_spec *s, enum target_can what)
{
    bool by_runners = what == CAN_LEASE || what == CAN_SAVE || what == CAN_ASK;

    return target_can(s->type, what) || (by_runners && target_can(s->type, CAN_CALL_HOME) &&
                                         s->connection && s->connection->runners);
}

const struct kind *kind_by_id(enum kind_id id)
{
    return (unsigned)id < KIND_LIMIT ? kinds_by_id[id] : NULL;
}

const struct kind *kind_by_name(const char *kind)
{
    for (unsigned i = 0; i < KINDS_NR; i++)
        if (!strcmp(kinds[i].kind, kind))
            return &kinds[i];
    return NULL;
}

static bool word_in(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = words; *p; p += *p == ',') {
        size_t m = strcspn(p, ",");
        if (m == n && !strncasecmp(p, word, n))
            return true;
        p += m;
    }
    return false;
}

const struct kind *kind_by_plural(const char *group, const char *plural)
{
    for (unsigned i = 0; i < KINDS_NR; i++) {
        const struct kind *k = &kinds[i];
        if (group && strcmp(group, k->group))
            continue;
        if (!strcasecmp(plural, k->plural) || !strcasecmp(plural, k->singular) ||
            word_in(k->shorts, plural))
            return k;
    }
    return NULL;
}

const struct kind *kind_by_api(const char *api_version, const char *kind)
{
    const struct kind *k = kind_by_name(kind);

    return k && !strcmp(kind_api_version(k), api_version) ? k : NULL;
}

size_t kind_all(const struct kind **ret_array, size_t max)
{
    size_t n = 0;

    for (unsigned i = 0; i < KIND_LIMIT; i++)
        if (kinds_by_id[i] && n < max)
            ret_array[n++] = kinds_by_id[i];
    return n;
}

const char *kind_api_version(const struct kind *k)
{
    return kind_words[k - kinds][0];
}

const struct kind *kind_of_schema(const struct schema *s)
{
    for (unsigned i = 0; i < KINDS_NR; i++)
        if (kinds[i].schema == s)
            return &kinds[i];
    return NULL;
}

const char *schema_title(const struct schema *s)
{
    const struct kind *k = kind_of_schema(s);

    return k ? k->kind : s->name;
}

bool schema_is_kind(const struct schema *s)
{
    return s->n > 0 && s->fields[0].sub == &schema_meta;
}

size_t schema_all(const struct schema **ret_array, size_t max)
{
    size_t n = 0;

    for (; n < sizeof schemas_all / sizeof schemas_all[0] && n < max; n++)
        ret_array[n] = schemas_all[n];
    return n;
}

const struct field *schema_field(const struct schema *s, const char *json, size_t n)
{
    if (n == 0)
        return NULL;
    schema_for_each (f, s)
        if (!strncmp(f->json, json, n) && !f->json[n])
            return f;
    return NULL;
}

int64_t schema_default_ms(const struct schema *s, const char *json)
{
    const struct field *f = schema_field(s, json, strlen(json));
    int64_t ms = 0;

    PRE(f && f->type == T_DUR && f->def);
    int r = duration_parse(f->def, &ms, NULL);
    INV(r == 0);
    return ms;
}

const char *enum_text(const struct enum_desc *e, int value)
{
    for (unsigned i = 0; i < e->n; i++)
        if (e->values[i].value == value)
            return e->values[i].text;
    return "";
}

int enum_value_of(const struct enum_desc *e, const char *text)
{
    for (unsigned i = 0; i < e->n; i++)
        if (!strcmp(e->values[i].text, text))
            return e->values[i].value;
    return 0;
}

const struct enum_desc *enum_by_name(const char *name)
{
    for (unsigned i = 0; i < sizeof enums_all / sizeof enums_all[0]; i++)
        if (!strcmp(enums_all[i]->name, name))
            return enums_all[i];
    return NULL;
}

void enum_words(const struct enum_desc *e, char *out, size_t n)
{
    size_t at = 0;

    for (unsigned i = 0; i < e->n && at < n; i++) {
        int w = snprintf(out + at, n - at, "%s%s",
                         i == 0          ? ""
                         : i + 1 == e->n ? " or "
                                         : ", ",
                         e->values[i].text);
        at += w > 0 ? (size_t)w : 0;
    }
}

/* ---- the nearest word, for "did you mean" ---- */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[65], n = (unsigned)strlen(a), m = (unsigned)strlen(b);

    if (n > 64 || m > 64)
        return 99;
    for (unsigned j = 0; j <= m; j++)
        row[j] = j;
    for (unsigned i = 1; i <= n; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= m; j++) {
            unsigned best = diagonal + ((a[i - 1] | 0x20) != (b[j - 1] | 0x20));
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

static bool nearer(const char *candidate, const char *text, unsigned *best)
{
    unsigned d = distance(candidate, text);

    if (d >= *best || d > 1 + strlen(text) / 4)
        return false;
    *best = d;
    return true;
}

const char *nearest_enum(const struct enum_desc *e, const char *text)
{
    const char *found = NULL;
    unsigned best = 99;

    for (unsigned i = 0; i < e->n; i++)
        if (nearer(e->values[i].text, text, &best))
            found = e->values[i].text;
    return found;
}

const char *nearest_field(const struct schema *s, const char *text)
{
    const char *found = NULL;
    unsigned best = 99;

    schema_for_each (f, s)
        if (*f->json && nearer(f->json, text, &best))
            found = f->json;
    return found;
}

/* ---- where a value stands in a document, as error texts name it: "spec.workers[2].cpu" ---- */
void path_text(const struct path *p, char *out, size_t n)
{
    if (!p) {
        if (n)
            *out = 0;
        return;
    }
    path_text(p->up, out, n);
    size_t at = strlen(out);
    if (p->name)
        (void)snprintf(out + at, n - at, "%s%s", at ? "." : "", p->name);
    else
        (void)snprintf(out + at, n - at, "[%u]", p->index);
}

/* Put before what stands there already: an encoder that has run out of room finds out on its way
 * back where that was. */
void path_prepend(char path[ERR_FIELD_MAX], const char *name, unsigned index)
{
    char rest[ERR_FIELD_MAX];

    str_copy(rest, sizeof rest, path);
    if (name)
        (void)snprintf(path, ERR_FIELD_MAX, "%.60s%s%.60s", name, *rest && *rest != '[' ? "." : "",
                       rest);
    else
        (void)snprintf(path, ERR_FIELD_MAX, "[%u]%s%.100s", index, *rest && *rest != '[' ? "." : "",
                       rest);
}

int path_too_large(struct err *err, const char *what, const char *path, size_t max)
{
    return err_field(err, E_TOOLARGE, path,
                     "a %s would be larger than %zu bytes%s%s: make it smaller", what, max,
                     *path ? ", at " : "", path);
}

int path_error(struct err *err, const struct path *p, const char *fmt, ...)
{
    char path[ERR_FIELD_MAX], text[ERR_TEXT_MAX];
    va_list ap;

    path_text(p, path, sizeof path);
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_field(err, E_INVALID, path, "%s%s%s", path, *path ? ": " : "", text);
}
