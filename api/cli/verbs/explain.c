/* explain: the stored Decision of a workload, or what a field of a kind means. Nothing is computed
 * again: what is shown is what was recorded. */
#include "api/cli/cli_internal.h"

#include <time.h>

/* ---- fields ---- */
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

/* ---- decisions ---- */
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

/* ---- out of the archive ---- */
#define PAGES_MAX 100

/* Everything that was ever archived of a workload of this name, newest segment first; what could
 * not be looked into is told. */
static int history_get(struct cli *c, const char *name, cJSON **ret, struct err *err)
{
    cJSON *all = cJSON_CreateArray(), *page = NULL, *item;
    double before = 0;
    int rv = 0;

    for (int n = 0; n < PAGES_MAX && !rv; n++) {
        AUTO_BUF path = {0};

        buf_init(&path, 8192);
        buf_str(&path, HANSE_API "/namespaces/");
        client_encode(&path, c->ns);
        buf_str(&path, "/operations/history?workload=");
        client_encode(&path, name);
        if (before > 0)
            buf_printf(&path, "&before=%.0f", before);
        if ((rv = cli_json(c, "GET", path.p, NULL, &page, err)))
            break;
        while ((item = cJSON_DetachItemFromArray(cJSON_GetObjectItem(page, "items"), 0)))
            (void)cJSON_AddItemToArray(all, item);
        before = json_number_at(page, "next");
        if (*json_text_at(page, "message"))
            (void)fprintf(stderr, "hanse: %s\n", json_text_at(page, "message"));
        cJSON_Delete(page);
        page = NULL;
        if (before <= 0)
            break;
    }
    *ret = rv ? NULL : all;
    if (rv)
        cJSON_Delete(all);
    return rv;
}

/* The newest workload of that name; its last decisions in *ret_list. */
static const cJSON *history_choose(const cJSON *all, cJSON *ret_list)
{
    const cJSON *i, *best = NULL;

    cJSON_ArrayForEach(
        i, all) if (!strcmp(json_text_at(i, "object.kind"), "Workload") &&
                    (!best || json_number_at(i, "entry") > json_number_at(best, "entry"))) best = i;
    cJSON_ArrayForEach(i, all) if (best && !strcmp(json_text_at(i, "object.kind"), "Decision") &&
                                   !strcmp(json_text_at(i, "workloadUid"),
                                           json_text_at(best, "workloadUid")))(void)
        cJSON_AddItemReferenceToArray(ret_list, cJSON_GetObjectItem(i, "object"));
    return best;
}

static int decision_print(struct cli *c, const char *name, const cJSON *workload,
                          const cJSON *decisions, struct buf *out, struct err *err)
{
    const char *format = arg_text(&c->args, "output", "");
    const cJSON *d = decision_choose(workload, decisions);

    if (*format && !d)
        return err_set(err, E_NOTFOUND, "no decision on workload %s is recorded yet", name);
    if (!strcmp(format, "json"))
        tree_print_json(d, out);
    else if (!strcmp(format, "yaml"))
        yaml_print(d, out);
    else if (*format)
        return err_set(err, E_USAGE, "-o %s: expected json or yaml", format);
    else
        explain_render(workload, d, loop_wall_ms(c->loop), c->mem, out);
    return 0;
}

/* `why`: that it is not in the state (any more); what is told when the archive has it neither. */
static int explain_archived(struct cli *c, const char *name, const struct err *why, struct buf *b,
                            struct err *err)
{
    cJSON *all = NULL, *decisions = cJSON_CreateArray();
    struct err e = {0};
    int rv = history_get(c, name, &all, &e);
    const cJSON *w = rv ? NULL : history_choose(all, decisions);

    if (!w) {
        rv = why->code;
        *err = *why;
    } else {
        if (!*arg_text(&c->args, "output", ""))
            buf_printf(b, "Out of the archive: it left the state at %s, by %s\n",
                       json_text_at(w, "archivedAt"), json_text_at(w, "archivedBy"));
        rv = decision_print(c, name, cJSON_GetObjectItem(w, "object"), decisions, b, err);
    }
    cJSON_Delete(decisions);
    cJSON_Delete(all);
    return rv;
}

static int explain_workload(struct cli *c, const char *name, struct err *err)
{
    cJSON *workload = NULL, *list = NULL;
    AUTO_BUF path = {0};
    AUTO_BUF b = {0};
    struct err e = {0};
    int rv = cli_connect(c, err);

    buf_init(&path, 8192);
    buf_init(&b, 16u << 20);
    if (rv)
        return rv;
    rv = cli_json(c, "GET", cli_path(c, kind_by_id(KIND_WORKLOAD), c->ns, false, name), NULL,
                  &workload, &e);
    if (rv == E_NOTFOUND) {
        rv = explain_archived(c, name, &e, &b, err);
    } else if (rv) {
        *err = e;
    } else {
        buf_printf(&path, "%s?fieldSelector=spec.workload%%3D",
                   cli_path(c, kind_by_id(KIND_DECISION), c->ns, false, NULL));
        client_encode(&path, name);
        rv = cli_json(c, "GET", path.p, NULL, &list, err);
        if (!rv)
            rv = decision_print(c, name, workload, cJSON_GetObjectItemCaseSensitive(list, "items"),
                                &b, err);
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
        return cli_usage(c, err, "which workload, or KIND[.FIELD]?");
    const char *word = c->args.pos[0], *dot = strchr(word, '.');
    const char *kind = dot ? arena_strndup(c->mem, word, (size_t)(dot - word)) : word;
    if (!strncmp(word, "workload/", 9))
        return explain_workload(c, word + 9, err);
    if (!cli_kind(kind, &k, NULL) && (dot || arg_flag(&c->args, "fields")))
        return field_path(c, k, dot ? dot + 1 : "", err);
    int rv = explain_workload(c, word, err);
    if (rv == E_NOTFOUND && !cli_kind(word, &k, NULL)) /* as kubectl explain KIND */
        return field_path(c, k, "", err);
    return rv;
}
