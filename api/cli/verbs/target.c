/* drain, cordon, uncordon: a Target's own fields, patched; the schedulers do the rest. */
#include "api/cli/cli_internal.h"

static int target_patch(struct cli *c, const char *name, bool unschedulable, bool drain,
                        struct err *err)
{
    cJSON *body = cJSON_CreateObject(), *spec = cJSON_AddObjectToObject(body, "spec");

    (void)cJSON_AddBoolToObject(spec, "unschedulable", unschedulable);
    (void)cJSON_AddBoolToObject(spec, "drain", drain);
    int rv = cli_connect(c, err);
    if (!rv)
        rv = cli_json(c, "PATCH", cli_path(c, kind_by_id(KIND_TARGET), "", false, name), body, NULL,
                      err);
    cJSON_Delete(body);
    return rv;
}

/* ---- drain --wait: what is left, and why ---- */
#define ROWS_MAX 20

struct drain {
    struct cli *c;
    const char *target;
    cJSON *left, *moves, *seen; /* lists of workloads and Migrations; names "NS/NAME" */
    char told[16384];
};

static const char *full_name(struct cli *c, const cJSON *o)
{
    return arena_printf(c->mem, "%s/%s", json_text_at(o, "metadata.namespace"),
                        json_text_at(o, "metadata.name"));
}

static bool ended(const cJSON *w)
{
    return move_over(json_text_at(w, "status.phase"));
}

static int left_read(struct drain *d, struct err *err)
{
    struct cli *c = d->c;
    cJSON *workloads = NULL, *moves = NULL, *w, *next;
    AUTO_BUF path = {0};

    buf_init(&path, 8192);
    buf_printf(&path, "%s?fieldSelector=status.placement.target%%3D",
               cli_path(c, kind_by_id(KIND_WORKLOAD), "", true, NULL));
    client_encode(&path, d->target);
    int rv = cli_json(c, "GET", path.p, NULL, &workloads, err);
    if (!rv)
        rv = cli_json(c, "GET", cli_path(c, kind_by_id(KIND_MIGRATION), "", true, NULL), NULL,
                      &moves, err);
    if (rv) {
        cJSON_Delete(workloads);
        return rv;
    }
    cJSON_Delete(d->left);
    cJSON_Delete(d->moves);
    d->left = workloads;
    d->moves = moves;
    cJSON *items = cJSON_GetObjectItemCaseSensitive(workloads, "items");
    for (w = items ? items->child : NULL; w; w = next) {
        next = w->next;
        if (ended(w))
            cJSON_Delete(cJSON_DetachItemViaPointer(items, w));
        else if (!cJSON_GetObjectItemCaseSensitive(d->seen, full_name(c, w)))
            (void)cJSON_AddTrueToObject(d->seen, full_name(c, w));
    }
    return 0;
}

static const cJSON *move_of(const struct drain *d, const cJSON *w)
{
    const char *name = json_text_at(w, "status.migration");
    const cJSON *m;

    cJSON_ArrayForEach(
        m, cJSON_GetObjectItemCaseSensitive(
               d->moves, "items")) if (*name && !strcmp(json_text_at(m, "metadata.name"), name) &&
                                       !strcmp(json_text_at(m, "metadata.namespace"),
                                               json_text_at(w, "metadata.namespace"))) return m;
    return NULL;
}

static void why_print(struct drain *d, const cJSON *w, struct buf *out)
{
    const char *reason = json_text_at(w, "status.reason"),
               *message = json_text_at(w, "status.message");
    const cJSON *m = move_of(d, w);

    if (m) {
        buf_printf(out, "%s: ", json_text_at(m, "status.phase"));
        move_line(m, d->c->mem, out);
    } else if (*reason || *message) {
        buf_printf(out, "%s%s%s", reason, *reason && *message ? ": " : "", message);
    } else {
        buf_str(out, "not yet looked at");
    }
}

static void left_print(struct drain *d, struct buf *out)
{
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(d->left, "items"), *w;
    int n = cJSON_GetArraySize(items), row = 0;
    struct table t;

    table_init(&t, d->c->mem, 3);
    cJSON_ArrayForEach(w, items)
    {
        AUTO_BUF why = {0};
        if (row++ == ROWS_MAX)
            break;
        buf_init(&why, 8192);
        why_print(d, w, &why);
        table_cell(&t, arena_printf(d->c->mem, "  %s", full_name(d->c, w)));
        table_cell(&t, json_text_at(w, "status.phase"));
        table_cell(&t, why.n ? why.p : "");
    }
    buf_printf(out, "%d left on %s\n", n, d->target);
    if (t.n)
        table_print(&t, out);
    if (n > ROWS_MAX)
        buf_printf(out, "  and %d more\n", n - ROWS_MAX);
}

/* Where those that were on it are now. */
static int went_print(struct drain *d, struct err *err)
{
    struct cli *c = d->c;
    cJSON *all = NULL;
    const cJSON *w;
    struct table t;
    AUTO_BUF b = {0};

    if (!cJSON_GetArraySize(d->seen))
        return 0;
    int rv =
        cli_json(c, "GET", cli_path(c, kind_by_id(KIND_WORKLOAD), "", true, NULL), NULL, &all, err);
    table_init(&t, c->mem, 3);
    cJSON_ArrayForEach(w, cJSON_GetObjectItemCaseSensitive(all, "items"))
    {
        const char *target = json_text_at(w, "status.placement.target"),
                   *reason = json_text_at(w, "status.reason");
        if (!cJSON_GetObjectItemCaseSensitive(d->seen, full_name(c, w)))
            continue;
        table_cell(&t, arena_printf(c->mem, "  %s", full_name(c, w)));
        table_cell(&t, json_text_at(w, "status.phase"));
        table_cell(&t, ended(w) ? "" : *target ? arena_printf(c->mem, "on %s", target) : reason);
    }
    buf_init(&b, 16u << 20);
    if (!rv && t.n)
        table_print(&t, &b);
    out_flush(c, &b);
    cJSON_Delete(all);
    return rv;
}

static int drain_wait(struct cli *c, const char *name, struct err *err)
{
    struct drain d = {.c = c, .target = name, .seen = cJSON_CreateObject()};
    int64_t limit = 0;
    int rv = arg_duration(&c->args, "wait-timeout", 3600L * 1000, &limit, err), n = 1;
    uint64_t deadline = loop_now_ms(c->loop) + (uint64_t)limit;

    while (!rv && n) {
        AUTO_BUF b = {0};
        rv = left_read(&d, err);
        n = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(d.left, "items"));
        if (rv || !n)
            break;
        buf_init(&b, 1u << 20);
        left_print(&d, &b);
        if (b.n && strncmp(b.p, d.told, sizeof d.told - 1) != 0)
            (void)fputs(b.p, c->err);
        str_copy(d.told, sizeof d.told, b.n ? b.p : "");
        if (loop_now_ms(c->loop) > deadline)
            rv = err_set(err, E_UNKNOWN,
                         "%d left on %s; the drain goes on (hanse explain says why; hanse migrate "
                         "NAME --to TARGET, or hanse delete)",
                         n, name);
        else
            cli_pause(c, 500);
    }
    if (!rv) {
        (void)fprintf(c->out, "target/%s is empty\n", name);
        rv = went_print(&d, err);
    }
    cJSON_Delete(d.left);
    cJSON_Delete(d.moves);
    cJSON_Delete(d.seen);
    return rv;
}

static int targets_set(struct cli *c, bool unschedulable, bool drain, const char *done,
                       struct err *err)
{
    int rv = c->args.n_pos ? 0 : cli_usage(c, err, "which target?");

    for (unsigned i = 0; i < c->args.n_pos && !rv; i++) {
        rv = target_patch(c, c->args.pos[i], unschedulable, drain, err);
        if (!rv)
            (void)fprintf(c->out, "target/%s %s\n", c->args.pos[i], done);
    }
    for (unsigned i = 0; drain && i < c->args.n_pos && !rv && arg_flag(&c->args, "wait"); i++)
        rv = drain_wait(c, c->args.pos[i], err);
    return rv;
}

int verb_drain(struct cli *c, struct err *err)
{
    return targets_set(c, true, true, "drains", err);
}
int verb_cordon(struct cli *c, struct err *err)
{
    return targets_set(c, true, false, "cordoned", err);
}
int verb_uncordon(struct cli *c, struct err *err)
{
    return targets_set(c, false, false, "uncordoned", err);
}
