/* Cells of Table (meta.k8s.io/v1) and of `hanse get`, by the paths of COLUMNS_ALL:
 *   .a.b   .a[*].b (equal values counted: "4×h100"; in a column of integers: their sum)
 *   .status.conditions[?Connected] (that condition's status)
 *   .a/.b (numbers: "3/10"; empty where b is not given; of maps by key: "x: 3/10, y: 0/2")
 * An absent value is an empty cell. */
#include "api/schema/schema_internal.h"

#include <ctype.h>
#include <stdio.h>

static void age(int64_t ms, struct buf *out)
{
    int64_t s = (ms < 0 ? -ms : ms) / 1000, m = s / 60, h = m / 60, d = h / 24;

    if (ms < -999)
        buf_str(out, "in ");
    if (s < 120)
        buf_printf(out, "%llds", (long long)s);
    else if (m < 10 && s % 60)
        buf_printf(out, "%lldm%llds", (long long)m, (long long)(s % 60));
    else if (m < 180)
        buf_printf(out, "%lldm", (long long)m);
    else if (h < 8 && m % 60)
        buf_printf(out, "%lldh%lldm", (long long)h, (long long)(m % 60));
    else if (h < 48)
        buf_printf(out, "%lldh", (long long)h);
    else if (d < 8 && h % 24)
        buf_printf(out, "%lldd%lldh", (long long)d, (long long)(h % 24));
    else
        buf_printf(out, "%lldd", (long long)d);
}

struct cell {
    const struct column *column;
    int64_t now_ms;
    struct buf *out;
};

static void scalar_cell(const struct cell *c, const struct field *f, const void *body,
                        struct buf *out)
{
    char text[32];

    switch (f->type) {
    case T_STR:
    case T_QTY:
        buf_str(out, member_str(f, body));
        return;
    case T_ENUM:
        buf_str(out, enum_text(f->en, (int)member_int(f, body)));
        return;
    case T_TIME:
        if (!strcmp(c->column->type, "date"))
            age(c->now_ms - member_int(f, body), out);
        if (!strcmp(c->column->type, "date") || !member_int(f, body))
            return;
        time_print(member_int(f, body), text);
        break;
    case T_DUR:
        duration_print(member_int(f, body), text);
        break;
    case T_BYTES:
        quantity_print_bytes(member_int(f, body), text);
        break;
    case T_MILLI:
        quantity_print_milli(member_int(f, body), text);
        break;
    case T_I64:
        (void)snprintf(text, sizeof text, "%lld", (long long)member_int(f, body));
        break;
    case T_PCT:
        pct_text(*(const double *)member(f, body), text);
        break;
    case T_F64:
        (void)snprintf(text, sizeof text, "%.6g", *(const double *)member(f, body));
        break;
    case T_BOOL:
        str_copy(text, sizeof text, member_int(f, body) ? "true" : "false");
        break;
    default:
        return; /* objects have no cell */
    }
    buf_str(out, text);
}

static void list_cell(const struct field *f, const void *body, struct buf *out)
{
    const void *items = *(const void *const *)member(f, body);

    for (uint32_t i = 0; i < member_count(f, body); i++) {
        if (i)
            buf_char(out, ',');
        if (f->type == T_STRS)
            buf_str(out, ((const char *const *)items)[i]);
        else if (f->type == T_ENUMS)
            buf_str(out, enum_text(f->en, ((const int *)items)[i]));
        else if (f->type == T_I64S)
            json_print_i64(out, ((const int64_t *)items)[i]);
    }
}

static void walk(const struct cell *c, const struct schema *s, const void *body, const char *path,
                 struct buf *out);

/* Distinct values in the order in which they come, with their counts. */
static void each_cell(const struct cell *c, const struct field *f, const void *body,
                      const char *path, struct buf *out)
{
    const char *items = *(const char *const *)member(f, body);
    uint32_t n = member_count(f, body);
    struct {
        char text[64];
        unsigned count;
    } seen[16];
    unsigned kinds = 0;

    for (uint32_t i = 0; i < n; i++) {
        AUTO_BUF one = {0};
        unsigned at = 0;
        buf_init(&one, 63);
        walk(c, f->sub, items + i * f->sub->size, path, &one);
        if (one.n == 0)
            continue;
        while (at < kinds && strcmp(seen[at].text, one.p))
            at++;
        if (at == kinds) {
            if (kinds == sizeof seen / sizeof seen[0])
                break;
            (void)snprintf(seen[kinds].text, sizeof seen[0].text, "%s", one.p);
            seen[kinds++].count = 0;
        }
        seen[at].count++;
    }
    for (unsigned i = 0; i < kinds; i++) {
        buf_str(out, i ? "," : "");
        if (seen[i].count > 1)
            buf_printf(out, "%u×", seen[i].count);
        buf_str(out, seen[i].text);
    }
}

static void sum_cell(const struct field *f, const void *body, const char *path, struct buf *out)
{
    const char *items = *(const char *const *)member(f, body);
    const struct field *of = schema_field(f->sub, path + 1, strlen(path + 1));
    int64_t sum = 0;

    INV(*path == '.' && of && of->type == T_I64);
    for (uint32_t i = 0; i < member_count(f, body); i++)
        sum += member_int(of, items + i * f->sub->size);
    json_print_i64(out, sum);
}

static void condition_cell(const struct field *f, const void *body, const char *type, size_t n,
                           struct buf *out)
{
    const struct condition *all = *(const struct condition *const *)member(f, body);

    INV(f->sub == &schema_condition);
    for (uint32_t i = 0; i < member_count(f, body); i++)
        if (!strncmp(all[i].type, type, n) && !all[i].type[n])
            buf_str(out, cond_status_text(all[i].status));
}

static void walk(const struct cell *c, const struct schema *s, const void *body, const char *path,
                 struct buf *out)
{
    path += *path == '.';
    size_t n = strcspn(path, ".[");
    const struct field *f = schema_field(s, path, n);

    INV(f); /* COLUMNS_ALL names a field that is not there */
    if (!member_present(f, body))
        return;
    path += n;
    if (!strncmp(path, "[*]", 3) && !strcmp(c->column->type, "integer"))
        sum_cell(f, body, path + 3, out);
    else if (!strncmp(path, "[*]", 3))
        each_cell(c, f, body, path + 3, out);
    else if (!strncmp(path, "[?", 2))
        condition_cell(f, body, path + 2, strcspn(path + 2, "]"), out);
    else if (f->type == T_OBJ && *path)
        walk(c, f->sub, *(const void *const *)member(f, body), path, out);
    else if (f->type == T_STRS || f->type == T_ENUMS || f->type == T_I64S)
        list_cell(f, body, out);
    else
        scalar_cell(c, f, body, out);
}

static const struct field *map_at(const struct schema *s, const void **body, const char *path)
{
    const struct field *f = NULL;

    for (;; body[0] = *(const void *const *)member(f, *body), s = f->sub) {
        path += *path == '.';
        size_t n = strcspn(path, "./");
        f = schema_field(s, path, n);
        INV(f);
        path += n;
        if (f->type == T_MAP && (!*path || *path == '/'))
            return f;
        if (f->type != T_OBJ || !member_present(f, *body))
            return NULL;
    }
}

/* By the keys of b; "y: 2" where a says nothing. */
static bool shares_cell(const struct cell *c, const struct object *o, const char *slash)
{
    const void *some = o->body, *all = o->body;
    const struct field *used = map_at(o->kind->schema, &some, c->column->path);
    const struct field *hard = map_at(o->kind->schema, &all, slash + 1);

    if (!used || !hard)
        return false;
    const struct kv *of = *(const struct kv *const *)member(hard, all);
    const struct kv *n = *(const struct kv *const *)member(used, some);
    for (uint32_t i = 0; i < member_count(hard, all); i++) {
        const char *value = label_get(n, member_count(used, some), of[i].key);

        buf_printf(c->out, "%s%s: %s%s%s", i ? ", " : "", of[i].key, value ? value : "",
                   value ? "/" : "", of[i].value);
    }
    return true;
}

static void share_cell(const struct cell *c, const struct object *o, const char *slash)
{
    AUTO_BUF of = {0};
    AUTO_BUF n = {0};
    char path[64];

    if (shares_cell(c, o, slash))
        return;
    (void)snprintf(path, sizeof path, "%.*s", (int)(slash - c->column->path), c->column->path);
    buf_init(&of, 32);
    buf_init(&n, 32);
    walk(c, o->kind->schema, o->body, slash + 1, &of);
    walk(c, o->kind->schema, o->body, path, &n);
    if (of.n)
        buf_printf(c->out, "%s/%s", n.n ? n.p : "0", of.p);
}

void column_cell(const struct column *c, const struct object *o, int64_t now_ms, struct buf *out)
{
    struct cell cell = {c, now_ms, out};
    const char *slash = strchr(c->path, '/');

    if (slash) {
        share_cell(&cell, o, slash);
        return;
    }
    if (!strncmp(c->path, ".metadata.", 10)) /* present even where the body has none */
        walk(&cell, &schema_meta, o->meta, c->path + 9, out);
    else
        walk(&cell, o->kind->schema, o->body, c->path, out);
}
