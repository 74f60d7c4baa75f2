/* explain: the stored Decision of a workload, or what a field of a kind means. Nothing is computed
 * again: what is shown is what was recorded. */
#include "api/cli/cli_internal.h"

#include <time.h>

/* ---- fields
 * ----------------------------------------------------------------------------------------------------
 */
static const char *type_text(const struct field *f)
{
    static const char *const names[] = {
        [T_STR] = "string",    [T_I64] = "integer",  [T_F64] = "number",     [T_BOOL] = "boolean",
        [T_ENUM] = "word",     [T_DUR] = "duration", [T_TIME] = "time",      [T_BYTES] = "bytes",
        [T_MILLI] = "CPU",     [T_PCT] = "share",    [T_OBJ] = "object",     [T_LIST] = "[]object",
        [T_STRS] = "[]string", [T_ENUMS] = "[]word", [T_I64S] = "[]integer", [T_MAP] = "map",
        [T_RAW] = "any",       [T_QTY] = "quantity", [T_B64] = "base64"};
    return f->type < sizeof names / sizeof *names && names[f->type] ? names[f->type] : "any";
}

static void field_print(struct cli *c, const struct field *f, struct table *t)
{
    AUTO_BUF doc = {0};

    buf_init(&doc, 8192);
    buf_str(&doc, f->doc);
    if (f->en) {
        buf_str(&doc, " (");
        for (unsigned i = 0; i < f->en->n; i++)
            buf_printf(&doc, "%s%s", i ? ", " : "", f->en->values[i].text);
        buf_char(&doc, ')');
    }
    if (f->def)
        buf_printf(&doc, "; default %s", f->def);
    table_cell(t, f->json);
    table_cell(
        t, arena_printf(c->mem, "%s%s", type_text(f), f->flags & FIELD_REQ ? ", required" : ""));
    table_cell(t, doc.p);
}

static int field_path(struct cli *c, const struct kind *k, const char *path, struct err *err)
{
    const struct schema *s = k->schema;
    const struct field *f = NULL;
    char key[64];
    AUTO_BUF b = {0};
    struct table t;

    buf_init(&b, 1u << 20);
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, ".");
        const char *names[256];
        (void)snprintf(key, sizeof key, "%.*s", (int)n, p);
        f = NULL;
        for (unsigned i = 0; s && i < s->n && i < 256; i++) {
            names[i] = s->fields[i].json;
            if (!strcmp(s->fields[i].json, key))
                f = &s->fields[i];
        }
        if (!f) {
            const char *near = s ? nearest_word(key, names, s->n < 256 ? s->n : 256) : NULL;
            return err_set(err, E_USAGE, "%s has no field \"%s\"%s%s%s", s ? s->name : path, key,
                           near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
        }
        s = f->sub;
        p += n + (p[n] == '.');
    }
    buf_printf(&b, "%s (%s)%s%s\n", k->kind, kind_api_version(k), *path ? " " : "", path);
    if (f) {
        buf_printf(&b, "%s: %s\n", type_text(f), f->doc);
        for (unsigned i = 0; f->en && i < f->en->n; i++)
            buf_printf(&b, "%s%s%s", i ? ", " : "one of: ", f->en->values[i].text,
                       i + 1 == f->en->n ? "\n" : "");
        if (f->def)
            buf_printf(&b, "default: %s\n", f->def);
    }
    if (s) {
        table_init(&t, c->mem, 3);
        for (unsigned i = 0; i < s->n; i++)
            if (*s->fields[i].json)
                field_print(c, &s->fields[i], &t);
        buf_char(&b, '\n');
        table_print(&t, &b);
    }
    out_flush(c, &b);
    return 0;
}

/* ---- decisions
 * --------------------------------------------------------------------------------------------------
 */
/* The one that holds: what the placement names while there is one, else the newest Pending, else
 * the newest. */
static const cJSON *decision_choose(const cJSON *workload, const cJSON *list)
{
    const char *named = json_text_at(workload, "status.placement.decision"),
               *phase = json_text_at(workload, "status.phase");
    const cJSON *d, *best = NULL, *pending = NULL;
    bool waits = !strcmp(phase, "Queued") || !*phase;

    cJSON_ArrayForEach(d, list)
    {
        if (!waits && *named && !strcmp(json_text_at(d, "metadata.name"), named))
            return d;
        if (!best || json_number_at(d, "spec.logIndex") > json_number_at(best, "spec.logIndex"))
            best = d;
        if (!strcmp(json_text_at(d, "spec.outcome"), "Pending") &&
            (!pending ||
             json_number_at(d, "spec.logIndex") > json_number_at(pending, "spec.logIndex")))
            pending = d;
    }
    return waits ? pending : best;
}

static int explain_workload(struct cli *c, const char *name, struct err *err)
{
    cJSON *workload = NULL, *list = NULL;
    const char *format = arg_text(&c->args, "output", "");
    AUTO_BUF path = {0};
    AUTO_BUF b = {0};
    int rv = cli_connect(c, err);

    buf_init(&path, 8192);
    buf_init(&b, 16u << 20);
    if (!rv)
        rv = cli_json(c, "GET", cli_path(c, kind_by_id(KIND_WORKLOAD), c->ns, false, name), NULL,
                      &workload, err);
    if (!rv) {
        buf_printf(&path, "%s?fieldSelector=spec.workload%%3D",
                   cli_path(c, kind_by_id(KIND_DECISION), c->ns, false, NULL));
        client_encode(&path, name);
        rv = cli_json(c, "GET", path.p, NULL, &list, err);
    }
    if (!rv) {
        const cJSON *d = decision_choose(workload, cJSON_GetObjectItemCaseSensitive(list, "items"));
        if (*format && !d) {
            rv = err_set(err, E_NOTFOUND, "no decision on workload %s is recorded yet", name);
        } else if (!strcmp(format, "json")) {
            tree_print_json(d, &b);
        } else if (!strcmp(format, "yaml")) {
            yaml_print(d, &b);
        } else if (*format) {
            rv = err_set(err, E_USAGE, "-o %s: expected json or yaml", format);
        } else {
            explain_render(workload, d, loop_wall_ms(c->loop), c->mem, &b);
        }
    }
    out_flush(c, &b);
    cJSON_Delete(workload);
    cJSON_Delete(list);
    return rv;
}

int verb_explain(struct cli *c, struct err *err)
{
    const struct kind *k;

    if (c->args.n_pos != 1)
        return cli_usage(c, err, "which workload, or KIND.FIELD?");
    const char *word = c->args.pos[0], *dot = strchr(word, '.');
    const char *kind = dot ? arena_strndup(c->mem, word, (size_t)(dot - word)) : word;
    if (!strncmp(word, "workload/", 9))
        return explain_workload(c, word + 9, err);
    if (!cli_kind(kind, &k, NULL) && (dot || arg_flag(&c->args, "fields")))
        return field_path(c, k, dot ? dot + 1 : "", err);
    return explain_workload(c, word, err);
}
