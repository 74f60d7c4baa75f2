/* get and watch: objects as the server prints them (its Table), or as JSON, YAML, names, paths. */
#include "api/cli/cli_internal.h"

#define TABLE_ACCEPT "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

struct getting {
    const struct kind *kind;
    const char *format; /* table, wide, json, yaml, name, or jsonpath's template */
    bool all, headings, path;
    const char *ns;
    bool many;        /* kinds: names with theirs, an empty line between tables */
    bool shown;       /* a table */
    struct buf *list; /* where objects go that are told at the end as one List, or NULL */
};

static int format_read(struct cli *c, struct getting *g, struct err *err)
{
    static const char *const formats[] = {"table", "wide", "json", "yaml", "name"};
    const char *o = arg_text(&c->args, "output", "table");

    g->headings = !arg_flag(&c->args, "no-headers");
    if (!strncmp(o, "jsonpath=", 9)) {
        g->path = true;
        g->format = o + 9;
        return 0;
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(o, formats[i])) {
            g->format = formats[i];
            return 0;
        }
    return err_set(err, E_USAGE,
                   "-o %s: expected table, wide, json, yaml, name or jsonpath=TEMPLATE", o);
}

static bool as_table(const struct getting *g)
{
    return !g->path && (!strcmp(g->format, "table") || !strcmp(g->format, "wide"));
}

static const char *query(struct cli *c, const char *path, bool watch, const char *since)
{
    static const char *const names[][2] = {{"selector", "labelSelector"},
                                           {"field-selector", "fieldSelector"}};
    AUTO_BUF b = {0};
    char sep = '?';

    buf_init(&b, 65536);
    buf_str(&b, path);
    for (size_t i = 0; i < 2; i++) {
        const char *v = arg_text(&c->args, names[i][0], NULL);
        if (!v)
            continue;
        buf_printf(&b, "%c%s=", sep, names[i][1]);
        client_encode(&b, v);
        sep = '&';
    }
    if (watch) {
        buf_printf(&b, "%cwatch=1&allowWatchBookmarks=true", sep);
        if (since) {
            buf_str(&b, "&resourceVersion=");
            client_encode(&b, since);
        }
    }
    return arena_strdup(c->mem, b.p);
}

/* ---- tables ---- */
static const char *cell_text(struct cli *c, const cJSON *cell)
{
    if (cJSON_IsString(cell))
        return *cell->valuestring ? cell->valuestring : "-";
    if (cJSON_IsNumber(cell))
        return arena_printf(c->mem, "%.15g", cell->valuedouble);
    if (cJSON_IsBool(cell))
        return cJSON_IsTrue(cell) ? "true" : "false";
    return "-";
}

static unsigned columns_add(struct cli *c, const struct getting *g, const cJSON *definitions,
                            struct table *t)
{
    const cJSON *d;
    unsigned n = 0;

    if (g->all && g->kind->namespaced)
        n++;
    cJSON_ArrayForEach(d, definitions) n +=
        !strcmp(g->format, "wide") || json_number_at(d, "priority") < 1;
    if (!n || n > 64)
        return 0;
    table_init(t, c->mem, n);
    if (!g->headings)
        return n;
    if (g->all && g->kind->namespaced)
        table_cell(t, "NAMESPACE");
    cJSON_ArrayForEach(d, definitions)
    {
        char up[128];
        if (strcmp(g->format, "wide") != 0 && json_number_at(d, "priority") >= 1)
            continue;
        str_copy(up, sizeof up, json_text_of(d, "name"));
        for (char *p = up; *p; p++)
            *p = (char)(*p >= 'a' && *p <= 'z' ? *p - 32 : *p);
        table_cell(t, up);
    }
    return n;
}

static void row_add(struct cli *c, const struct getting *g, const cJSON *definitions,
                    const cJSON *row, struct table *t)
{
    const cJSON *d = definitions ? definitions->child : NULL, *cell;

    if (g->all && g->kind->namespaced)
        table_cell(t, json_text_at(row, "object.metadata.namespace"));
    cJSON_ArrayForEach(cell, cJSON_GetObjectItemCaseSensitive(row, "cells"))
    {
        if (!d)
            return;
        bool name = g->many && !strcmp(json_text_of(d, "format"), "name");
        if (name)
            table_cell(t, arena_printf(c->mem, "%s/%s", g->kind->singular, cell_text(c, cell)));
        else if (!strcmp(g->format, "wide") || json_number_at(d, "priority") < 1)
            table_cell(t, cell_text(c, cell));
        d = d->next;
    }
}

/* Tables of one kind: rows of all of them in one. */
static int tables_print(struct cli *c, struct getting *g, cJSON *const *tables, unsigned n,
                        struct err *err)
{
    const cJSON *definitions =
                    n ? cJSON_GetObjectItemCaseSensitive(tables[0], "columnDefinitions") : NULL,
                *row;
    struct table t;
    unsigned rows = 0;
    AUTO_BUF b = {0};

    buf_init(&b, OUT_MAX_BYTES);
    if (!columns_add(c, g, definitions, &t))
        return err_set(err, E_INTERNAL, "the server's answer is no Table");
    for (unsigned i = 0; i < n; i++)
        cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(tables[i], "rows"))
        {
            row_add(c, g, definitions, row, &t);
            rows++;
        }
    if (!rows) {
        (void)fprintf(c->err, "No %s found%s%s.\n", g->kind->plural,
                      g->kind->namespaced && !g->all ? " in namespace " : "",
                      g->kind->namespaced && !g->all ? g->ns : "");
        return 0;
    }
    if (g->shown)
        buf_char(&b, '\n');
    g->shown = true;
    table_print(&t, &b);
    out_flush(c, &b);
    return 0;
}

/* ---- objects ---- */
/* One object, or the items of a list, behind those that are there. */
static int list_add(struct buf *list, const char *text, size_t n, struct err *err)
{
    cJSON *j = NULL;
    const cJSON *items, *item;
    int rv = json_parse(text, n, &j, err);

    if (rv)
        return rv;
    items = cJSON_GetObjectItemCaseSensitive(j, "items");
    for (item = cJSON_IsArray(items) ? items->child : j; item; item = item->next) {
        if (list->p[list->n - 1] != '[')
            buf_char(list, ',');
        json_print_tree(item, list);
    }
    cJSON_Delete(j);
    return 0;
}

static void list_begin(struct buf *list)
{
    buf_init(list, OUT_MAX_BYTES);
    buf_str(list, "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"metadata\":{},\"items\":[");
}

static void name_print(const struct getting *g, const cJSON *o, struct buf *out)
{
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(o, "items"), *item;

    if (cJSON_IsArray(items))
        cJSON_ArrayForEach(item, items)
            buf_printf(out, "%s/%s\n", g->kind->singular, json_text_at(item, "metadata.name"));
    else
        buf_printf(out, "%s/%s\n", g->kind->singular, json_text_at(o, "metadata.name"));
}

static int object_print(struct cli *c, const struct getting *g, const char *text, size_t n,
                        struct err *err)
{
    cJSON *j = NULL;
    AUTO_BUF b = {0};
    int rv = 0;

    buf_init(&b, OUT_MAX_BYTES);
    if (!g->path && !strcmp(g->format, "json")) {
        json_indent(text, n, &b);
    } else {
        rv = json_parse(text, n, &j, err);
        if (rv)
            return rv;
        if (g->path)
            rv = jsonpath_print(j, g->format, &b, err);
        else if (!strcmp(g->format, "yaml"))
            yaml_print(j, &b);
        else
            name_print(g, j, &b);
        if (g->path && b.n && b.p[b.n - 1] != '\n')
            buf_char(&b, '\n');
        cJSON_Delete(j);
    }
    if (!rv && b.failed)
        rv = err_set(err, E_TOOLARGE, "the output is larger than %zu MiB", OUT_MAX_BYTES >> 20);
    if (!rv)
        out_flush(c, &b);
    return rv;
}

/* What is missing, or may not be seen, is told at the end; the others are shown. */
static bool told_later(int rv, struct err *err, struct err *later)
{
    if ((rv != E_NOTFOUND && rv != E_FORBIDDEN) || !err)
        return false;
    *later = later->code ? *later : *err;
    return true;
}

static int get_named(struct cli *c, struct getting *g, const char *const *names, unsigned n,
                     struct err *err)
{
    cJSON **tables = arena_array(c->mem, cJSON *, n + 1);
    struct client_answer a;
    AUTO_BUF own = {0};
    struct buf *list = g->list ? g->list : &own;
    unsigned got = 0;
    struct err missing = {0};
    int rv = 0;

    client_answer_init(&a);
    if (!g->list)
        list_begin(list);
    size_t empty = list->n;
    for (unsigned i = 0; i < n && !rv; i++) {
        rv = cli_request(c, "GET", cli_path(c, g->kind, g->ns, false, names[i]),
                         as_table(g) ? TABLE_ACCEPT : NULL, NULL, slice_make(NULL, 0), &a, err);
        if (n > 1 && told_later(rv, err, &missing)) {
            rv = 0;
            continue;
        }
        if (!rv && as_table(g))
            rv = json_parse(a.body.n ? a.body.p : "", a.body.n, &tables[got++], err);
        else if (!rv && (g->list || n > 1))
            rv = list_add(list, a.body.n ? a.body.p : "", a.body.n, err);
    }
    if (!rv && as_table(g)) {
        rv = got ? tables_print(c, g, tables, got, err) : 0;
    } else if (!rv && !g->list && n > 1) {
        bool any = list->n > empty;
        buf_str(list, "]}");
        rv = any ? object_print(c, g, list->p, list->n, err) : 0;
    } else if (!rv && !g->list) {
        rv = object_print(c, g, a.body.n ? a.body.p : "", a.body.n, err);
    }
    if (!rv && missing.code) {
        *err = missing;
        rv = missing.code;
    }
    for (unsigned i = 0; i < got; i++)
        cJSON_Delete(tables[i]);
    client_answer_fini(&a);
    return rv;
}

static int get_list(struct cli *c, struct getting *g, struct err *err)
{
    struct client_answer a;

    client_answer_init(&a);
    int rv = cli_request(c, "GET", query(c, cli_path(c, g->kind, g->ns, g->all, NULL), false, NULL),
                         as_table(g) ? TABLE_ACCEPT : NULL, NULL, slice_make(NULL, 0), &a, err);
    if (!rv && as_table(g)) {
        cJSON *j = NULL;
        rv = json_parse(a.body.n ? a.body.p : "", a.body.n, &j, err);
        if (!rv)
            rv = tables_print(c, g, &j, 1, err);
        cJSON_Delete(j);
    } else if (!rv && g->list) {
        rv = list_add(g->list, a.body.n ? a.body.p : "", a.body.n, err);
    } else if (!rv) {
        rv = object_print(c, g, a.body.n ? a.body.p : "", a.body.n, err);
    }
    client_answer_fini(&a);
    return rv;
}

/* ---- watching ---- */
struct watching {
    struct cli *c;
    const struct getting *g;
    struct buf line;
    struct err err;
    char since[32]; /* where to go on */
    bool expired;
};

static void version_note(struct watching *w, const cJSON *object)
{
    const char *rv = json_text_at(object, "metadata.resourceVersion");

    if (*rv)
        str_copy(w->since, sizeof w->since, rv);
}

static void event_print(struct watching *w, const char *type, const cJSON *o, const char *text,
                        size_t n)
{
    struct cli *c = w->c;
    AUTO_BUF b = {0};

    buf_init(&b, OUT_MAX_BYTES);
    if (w->g->path || strcmp(w->g->format, "table") != 0) {
        if (w->g->path)
            (void)!jsonpath_print(o, w->g->format, &b, NULL);
        else if (!strcmp(w->g->format, "json"))
            buf_add(&b, text, n);
        else if (!strcmp(w->g->format, "yaml")) {
            buf_str(&b, "---\n");
            yaml_print(o, &b);
        } else
            name_print(w->g, o, &b);
        if (b.n && b.p[b.n - 1] != '\n')
            buf_char(&b, '\n');
    } else {
        const struct kind *k = w->g->kind;
        const char *ns = json_text_at(o, "metadata.namespace"),
                   *phase = json_text_at(o, "status.phase");
        buf_printf(&b, "%-8s %s %s%s%s", type, k->singular, ns, *ns ? "/" : "",
                   json_text_at(o, "metadata.name"));
        if (*phase)
            buf_printf(&b, "  %s", phase);
        if (*json_text_at(o, "status.reason"))
            buf_printf(&b, "  %s", json_text_at(o, "status.reason"));
        if (*json_text_at(o, "status.placement.target"))
            buf_printf(&b, "  on %s", json_text_at(o, "status.placement.target"));
        buf_char(&b, '\n');
    }
    out_flush(c, &b);
    (void)out_now(c);
}

static int event_line(struct watching *w, const char *text, size_t n)
{
    cJSON *j = NULL;

    if (!n)
        return 0;
    int rv = json_parse(text, n, &j, &w->err);
    if (rv)
        return rv;
    const char *type = json_text_of(j, "type");
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(j, "object");
    if (!strcmp(type, "ERROR")) {
        w->expired = json_number_at(o, "code") == 410;
        rv = err_set(&w->err, w->expired ? E_GONE : E_INTERNAL, "%s", json_text_of(o, "message"));
    } else {
        version_note(w, o);
        if (strcmp(type, "BOOKMARK") != 0)
            event_print(w, type, o, text, n);
    }
    cJSON_Delete(j);
    return rv;
}

static int watch_data(const void *p, size_t n, void *arg)
{
    struct watching *w = arg;
    char *end;

    buf_add(&w->line, p, n);
    if (w->line.failed)
        return err_set(&w->err, E_TOOLARGE, "an event is too large");
    while (w->line.n && (end = memchr(w->line.p, '\n', w->line.n))) {
        size_t len = (size_t)(end - w->line.p);
        int rv = event_line(w, w->line.p, len);
        buf_consume(&w->line, len + 1);
        if (rv)
            return rv;
    }
    return 0;
}

/* Goes on from where it was when the connection ends: at a member's death, or at the server's own
 * time limit. */
static int watch_run(struct cli *c, const struct getting *g, const char *since, struct err *err)
{
    struct watching w = {.c = c, .g = g};
    struct client_answer a;
    int rv;

    buf_init(&w.line, 16u << 20);
    client_answer_init(&a);
    str_copy(w.since, sizeof w.since, since ? since : "");
    for (;;) {
        struct client_request rq = {.method = "GET", .data = watch_data, .arg = &w};
        rq.path =
            query(c, cli_path(c, g->kind, g->ns, g->all, NULL), true, *w.since ? w.since : NULL);
        buf_reset(&w.line);
        uint64_t begun_ms = loop_now_ms(c->loop);
        rv = client_perform(c->lane, &rq, &a, err);
        if (!rv && a.status != 200)
            rv = client_status(&a, err);
        if (w.err.code) {
            rv = w.err.code;
            if (err)
                *err = w.err;
            break;
        }
        if (rv && (a.status != 200 || (rv != E_CONNECT && rv != E_UNAVAIL)))
            break;
        if (loop_now_ms(c->loop) - begun_ms < 1000)
            cli_pause(c, 200);
    }
    if (rv == E_GONE)
        (void)err_prefix(err, "the changes since resourceVersion %s are no longer kept; list again",
                         w.since);
    buf_fini(&w.line);
    client_answer_fini(&a);
    return rv;
}

/* ---- the verbs ---- */
struct part { /* of what was asked for */
    const struct kind *kind;
    const char **names; /* none: all of them */
    unsigned n;
};
#define PARTS_MAX 64

/* The part of this kind, which may be a new one; NULL: no such kind, or too many. */
static struct part *part_of(struct cli *c, const char *word, size_t n, struct part *all,
                            unsigned *count, struct err *err)
{
    const struct kind *k = NULL;

    if (cli_kind(arena_strndup(c->mem, word, n), &k, err))
        return NULL;
    for (unsigned i = 0; i < *count; i++)
        if (all[i].kind == k)
            return &all[i];
    if (*count == PARTS_MAX) {
        (void)err_set(err, E_USAGE, "more than %d kinds", PARTS_MAX);
        return NULL;
    }
    all[*count] =
        (struct part){.kind = k, .names = arena_array(c->mem, const char *, c->args.n_pos + 1)};
    return &all[(*count)++];
}

/* KIND[,KIND…] [NAME…] */
static int parts_by_kind(struct cli *c, struct part *all, unsigned *count, struct err *err)
{
    for (const char *word = c->args.pos[0];; word++) {
        size_t n = strcspn(word, ",");
        struct part *p = part_of(c, word, n, all, count, err);

        if (!p)
            return E_USAGE;
        p->n = c->args.n_pos - 1;
        if (p->n)
            memcpy(p->names, c->args.pos + 1, p->n * sizeof *p->names);
        word += n;
        if (!*word)
            return 0;
    }
}

/* KIND/NAME … */
static int parts_by_name(struct cli *c, struct part *all, unsigned *count, struct err *err)
{
    for (unsigned i = 0; i < c->args.n_pos; i++) {
        const char *word = c->args.pos[i], *slash = strchr(word, '/');

        if (!slash)
            return cli_usage(c, err, "KIND/NAME and other words exclude each other");
        struct part *p = part_of(c, word, (size_t)(slash - word), all, count, err);
        if (!p)
            return E_USAGE;
        p->names[p->n++] = slash + 1;
    }
    return 0;
}

static int getting_read(struct cli *c, struct getting *g, struct err *err)
{
    int rv = format_read(c, g, err);

    if (!rv)
        rv = cli_connect(c, err);
    g->all = arg_flag(&c->args, "all-namespaces");
    g->ns = c->ns;
    return rv;
}

static int get_part(struct cli *c, struct getting *g, const struct part *p, struct err *err)
{
    g->kind = p->kind;
    return p->n ? get_named(c, g, p->names, p->n, err) : get_list(c, g, err);
}

static int get_many(struct cli *c, struct getting *g, const struct part *all, unsigned n,
                    struct err *err)
{
    AUTO_BUF list = {0};
    struct err missing = {0};
    int rv = 0;

    list_begin(&list);
    size_t empty = list.n;
    g->many = true;
    if (!as_table(g) && (g->path || strcmp(g->format, "name") != 0))
        g->list = &list;
    for (unsigned i = 0; i < n && !rv; i++) {
        rv = get_part(c, g, &all[i], err);
        if (told_later(rv, err, &missing))
            rv = 0;
    }
    bool prints = !rv && g->list && (list.n > empty || !missing.code);
    g->list = NULL;
    if (prints) {
        buf_str(&list, "]}");
        rv = list.failed ? err_set(err, E_TOOLARGE, "the output is larger than %zu MiB",
                                   OUT_MAX_BYTES >> 20)
                         : object_print(c, g, list.p, list.n, err);
    }
    if (!rv && missing.code)
        *err = missing;
    return rv ? rv : missing.code;
}

int verb_get(struct cli *c, struct err *err)
{
    struct getting g = {0};
    struct part *all = arena_array(c->mem, struct part, PARTS_MAX);
    const char *word = c->args.n_pos ? c->args.pos[0] : NULL;
    bool watch = arg_flag(&c->args, "watch");
    unsigned n = 0;

    if (!word)
        return cli_usage(c, err, "which kind?");
    if ((!strcmp(word, "orphans") || !strcmp(word, "orphan")) &&
        c->args.n_pos == 1) /* no objects: of nobody */
        return orphans_get(c, err);
    int rv = strchr(word, '/') ? parts_by_name(c, all, &n, err) : parts_by_kind(c, all, &n, err);
    if (!rv)
        rv = getting_read(c, &g, err);
    if (rv)
        return rv;
    if (all[0].n && g.all)
        return cli_usage(c, err, "names and --all-namespaces exclude each other");
    if (n > 1)
        return watch ? cli_usage(c, err, "--watch takes one kind") : get_many(c, &g, all, n, err);
    rv = watch && !all[0].n ? 0 : get_part(c, &g, &all[0], err);
    g.kind = all[0].kind;
    return rv || !watch ? rv : watch_run(c, &g, NULL, err);
}

int verb_watch(struct cli *c, struct err *err)
{
    struct getting g = {0};

    if (c->args.n_pos != 1)
        return cli_usage(c, err, "which kind?");
    int rv = cli_kind(c->args.pos[0], &g.kind, err);
    if (!rv)
        rv = getting_read(c, &g, err);
    return rv ? rv : watch_run(c, &g, arg_text(&c->args, "since", NULL), err);
}
