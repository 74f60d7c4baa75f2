/* describe: one object as readable text, with the events about it. */
#include "api/cli/cli_internal.h"

static void events_print(struct cli *c, const struct kind *k, const cJSON *o, struct buf *out)
{
    const char *ns = json_text_at(o, "metadata.namespace");
    cJSON *list = NULL;
    const cJSON *e;
    AUTO_BUF path = {0};
    struct table t;
    struct err why = {0};

    buf_init(&path, 8192);
    buf_printf(&path, "%s?fieldSelector=involvedObject.name%%3D",
               cli_path(c, kind_by_id(KIND_EVENT), ns, !k->namespaced, NULL));
    client_encode(&path, json_text_at(o, "metadata.name"));
    if (cli_json(c, "GET", path.p, NULL, &list, &why)) {
        buf_printf(out, "\nEvents: %s\n", why.text);
        return;
    }
    table_init(&t, c->mem, 4);
    table_cell(&t, "AGE");
    table_cell(&t, "TYPE");
    table_cell(&t, "REASON");
    table_cell(&t, "MESSAGE");
    cJSON_ArrayForEach(e, cJSON_GetObjectItemCaseSensitive(list, "items"))
    {
        char age[16] = "-";
        int64_t at;
        const char *last = json_text_of(e, "lastTimestamp");
        if (strcmp(json_text_at(e, "involvedObject.kind"), k->kind) != 0)
            continue;
        if (*last && !time_parse(last, &at, NULL))
            age_print(loop_wall_ms(c->loop) - at, age);
        table_cell(&t, age);
        table_cell(&t, json_text_of(e, "type"));
        table_cell(&t, json_text_of(e, "reason"));
        table_cell(&t, json_text_of(e, "message"));
    }
    buf_str(out, t.n > 4 ? "\nEvents:\n" : "\nEvents: none\n");
    if (t.n > 4)
        table_print(&t, out);
    cJSON_Delete(list);
}

/* Items of a list by one field; the caller deletes *list. */
static const cJSON *items_by(struct cli *c, enum kind_id kind, const char *ns, const char *field,
                             const char *value, cJSON **list)
{
    AUTO_BUF path = {0};
    struct err unused = {0};

    buf_init(&path, 8192);
    buf_printf(&path, "%s?fieldSelector=%s%%3D", cli_path(c, kind_by_id(kind), ns, false, NULL),
               field);
    client_encode(&path, value);
    if (cli_json(c, "GET", path.p, NULL, list, &unused))
        return NULL; /* without the right to list them the object itself is still told */
    return cJSON_GetObjectItemCaseSensitive(*list, "items");
}

static void moves_describe(struct cli *c, const struct kind *k, const cJSON *o, struct buf *out)
{
    cJSON *checkpoints = NULL, *moves = NULL;
    const char *ns = json_text_at(o, "metadata.namespace"), *uid = json_text_at(o, "metadata.uid"),
               *name = json_text_at(o, "metadata.name");

    if (k->id == KIND_MIGRATION)
        move_render(o, c->mem, out);
    if (k->id == KIND_WORKLOAD)
        workload_moves_render(
            o, items_by(c, KIND_CHECKPOINT, ns, "spec.workloadUid", uid, &checkpoints),
            items_by(c, KIND_MIGRATION, ns, "spec.workload", name, &moves), loop_wall_ms(c->loop),
            c->mem, out);
    cJSON_Delete(checkpoints);
    cJSON_Delete(moves);
}

/* "0", "137 OutOfMemory", "signal 9"; "-": it has not ended. */
static const char *worker_end(struct cli *c, const cJSON *w)
{
    const char *why = json_text_of(w, "reason");
    double signo = json_number_at(w, "signal");

    if (!*json_text_of(w, "endedAt") && !*why && signo == 0 && json_number_at(w, "exitCode") == 0)
        return "-";
    return arena_printf(c->mem, "%s%.0f%s%s", signo > 0 ? "signal " : "",
                        signo > 0 ? signo : json_number_at(w, "exitCode"), *why ? " " : "", why);
}

/* "2 of its node's", where it holds a number of devices and nobody told which. */
static const char *worker_count(struct cli *c, const cJSON *o, const cJSON *w)
{
    const cJSON *a, *list = json_at(o, "status.placement.assignments");

    cJSON_ArrayForEach(a, list)
    {
        double count = json_number_at(a, "count");
        if (count < 1 || (int64_t)json_number_at(a, "rank") != (int64_t)json_number_at(w, "rank"))
            continue;
        if (*json_text_of(a, "mig"))
            return arena_printf(c->mem, "any %s", json_text_of(a, "mig"));
        if (json_number_at(a, "shares") > 0)
            return arena_printf(c->mem, "any 1/%.0f", json_number_at(a, "shares"));
        return arena_printf(c->mem, "any %.0f", count);
    }
    return "-";
}

static void workers_describe(struct cli *c, const cJSON *o, struct buf *out)
{
    static const char *const head[] = {"RANK", "NODE", "GPUS", "STARTED", "ENDED", "EXIT", "ID"};
    const cJSON *w, *g, *list = json_at(o, "status.workers");
    struct table t;

    if (!cJSON_GetArraySize(list))
        return;
    table_init(&t, c->mem, sizeof head / sizeof *head);
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        table_cell(&t, head[i]);
    cJSON_ArrayForEach(w, list)
    {
        AUTO_BUF gpus = {0};
        const char *began = json_text_of(w, "startedAt"), *ended = json_text_of(w, "endedAt");
        buf_init(&gpus, 4096);
        cJSON_ArrayForEach(g, cJSON_GetObjectItemCaseSensitive(w, "gpus"))
            buf_printf(&gpus, "%s%.0f", gpus.n ? "," : "", g->valuedouble);
        table_cell(&t, arena_printf(c->mem, "%.0f", json_number_at(w, "rank")));
        table_cell(&t, json_text_of(w, "node"));
        table_cell(&t, gpus.n ? gpus.p : worker_count(c, o, w));
        table_cell(&t, *began ? began : "-");
        table_cell(&t, *ended ? ended : "-");
        table_cell(&t, worker_end(c, w));
        table_cell(&t, json_text_of(w, "id"));
    }
    buf_str(out, "Workers:\n");
    table_print(&t, out);
    buf_char(out, '\n');
}

static void pods_rows(struct cli *c, const cJSON *list, struct buf *out)
{
    static const char *const head[] = {"POD", "RANK", "NODE", "PHASE", "REASON", "MESSAGE"};
    const cJSON *p;
    struct table t;

    table_init(&t, c->mem, sizeof head / sizeof *head);
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        table_cell(&t, head[i]);
    cJSON_ArrayForEach(p, list)
    {
        const char *node = json_text_of(p, "node"), *why = json_text_of(p, "reason");
        table_cell(&t, json_text_of(p, "name"));
        table_cell(&t, json_at(p, "rank") ? arena_printf(c->mem, "%.0f", json_number_at(p, "rank"))
                                          : "-");
        table_cell(&t, *node ? node : "-");
        table_cell(&t, json_text_of(p, "phase"));
        table_cell(&t, *why ? why : "-");
        table_cell(&t, json_text_of(p, "message"));
    }
    table_print(&t, out);
}

static void pod_events_rows(struct cli *c, const cJSON *list, struct buf *out)
{
    static const char *const head[] = {"AGE", "TIMES", "TYPE", "REASON", "ABOUT", "MESSAGE"};
    const cJSON *e;
    struct table t;

    table_init(&t, c->mem, sizeof head / sizeof *head);
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        table_cell(&t, head[i]);
    cJSON_ArrayForEach(e, list)
    {
        char age[16] = "-";
        int64_t at;
        if (!time_parse(json_text_of(e, "lastTimestamp"), &at, NULL))
            age_print(loop_wall_ms(c->loop) - at, age);
        table_cell(&t, age);
        table_cell(&t, arena_printf(c->mem, "%.0f", json_number_at(e, "count")));
        table_cell(&t, json_text_of(e, "type"));
        table_cell(&t, json_text_of(e, "reason"));
        table_cell(&t, json_text_of(e, "about"));
        table_cell(&t, json_text_of(e, "message"));
    }
    table_print(&t, out);
}

/* What its target shows of its run: pods, and what the cluster says of them. Servers that do not
 * know of it have nothing to tell; who may not ask hears that. */
static void pods_describe(struct cli *c, const cJSON *o, struct buf *out)
{
    cJSON *told = NULL;
    struct err why = {0};
    AUTO_BUF path = {0};

    if (!*json_text_at(o, "status.placement.target") &&
        !cJSON_GetArraySize(json_at(o, "status.ends")))
        return; /* it has not run anywhere */
    buf_init(&path, 8192);
    buf_str(&path, HANSE_API "/namespaces/");
    client_encode(&path, json_text_at(o, "metadata.namespace"));
    buf_str(&path, "/operations/pods?workload=");
    client_encode(&path, json_text_at(o, "metadata.name"));
    int rv = cli_json(c, "GET", path.p, NULL, &told, &why);
    if (rv && rv != E_NOTIMPL && rv != E_NOTFOUND && rv != E_CONFLICT)
        buf_printf(out, "Pods: %s\n\n", why.text);
    const cJSON *pods = json_at(told, "pods"), *events = json_at(told, "events");
    if (cJSON_GetArraySize(pods)) {
        buf_str(out, "Pods:\n");
        pods_rows(c, pods, out);
        buf_char(out, '\n');
    }
    if (cJSON_GetArraySize(events)) {
        buf_str(out, "Events of its pods:\n");
        pod_events_rows(c, events, out);
        buf_char(out, '\n');
    }
    if (*json_text_of(told, "lacks"))
        buf_printf(out, "Of its pods: %s\n\n", json_text_of(told, "lacks"));
    cJSON_Delete(told);
}

static void part_print(const cJSON *o, const char *key, const char *title, struct buf *out)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    AUTO_BUF b = {0};

    if (!v || !cJSON_GetArraySize(v))
        return;
    buf_init(&b, 16u << 20);
    yaml_print(v, &b);
    buf_printf(out, "%s:\n", title);
    for (const char *p = b.n ? b.p : ""; *p;) {
        size_t n = strcspn(p, "\n");
        buf_printf(out, "  %.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
}

static void describe(struct cli *c, const struct kind *k, const cJSON *o, struct buf *out)
{
    static const char *const meta[][2] = {{"name", "Name"},
                                          {"namespace", "Namespace"},
                                          {"uid", "UID"},
                                          {"creationTimestamp", "Created"},
                                          {"deletionTimestamp", "Deleting since"},
                                          {"revision", "Git commit"}};
    const cJSON *m = cJSON_GetObjectItemCaseSensitive(o, "metadata"), *v;

    buf_printf(out, "%-16s%s (%s)\n", "Kind:", k->kind, kind_api_version(k));
    for (size_t i = 0; i < sizeof meta / sizeof *meta; i++)
        if (*json_text_of(m, meta[i][0])) {
            char label[32];
            (void)snprintf(label, sizeof label, "%s:", meta[i][1]);
            buf_printf(out, "%-16s%s\n", label, json_text_of(m, meta[i][0]));
        }
    part_print(m, "labels", "Labels", out);
    part_print(m, "annotations", "Annotations", out);
    if (*json_text_of(m, "deletionTimestamp")) /* it stays until nobody holds it */
        part_print(m, "finalizers", "Held by", out);
    if (k->id == KIND_WORKLOAD)
        workers_describe(c, o, out);
    if (k->id == KIND_WORKLOAD)
        pods_describe(c, o, out);
    moves_describe(c, k, o, out);
    cJSON_ArrayForEach(v, o)
    {
        static const char *const done[] = {"apiVersion", "kind", "metadata"};
        char title[64];
        bool skip = false;
        for (size_t i = 0; i < 3; i++)
            skip = skip || !strcmp(v->string, done[i]);
        if (skip)
            continue;
        (void)snprintf(title, sizeof title, "%c%s",
                       v->string[0] >= 'a' && v->string[0] <= 'z' ? v->string[0] - 32
                                                                  : v->string[0],
                       v->string + 1);
        if (cJSON_IsString(v))
            buf_printf(out, "%s: %s\n", title, v->valuestring);
        else if (k->id == KIND_SECRET) /* names of the keys, never their values */
            buf_printf(out, "%s: %d keys\n", title, cJSON_GetArraySize(v));
        else
            part_print(o, v->string, title, out);
    }
}

int verb_describe(struct cli *c, struct err *err)
{
    const struct kind *k;
    AUTO_BUF b = {0};

    if (c->args.n_pos < 1)
        return cli_usage(c, err, "describe what?");
    const char *word = c->args.pos[0], *slash = strchr(word, '/');
    if (!slash && c->args.n_pos < 2)
        return cli_usage(c, err, "which one?");
    int rv = cli_kind(slash ? arena_strndup(c->mem, word, (size_t)(slash - word)) : word, &k, err);
    if (!rv)
        rv = cli_connect(c, err);
    buf_init(&b, 16u << 20);
    for (unsigned i = slash ? 0 : 1; i < c->args.n_pos && !rv; i++) {
        cJSON *o = NULL;
        rv = cli_json(c, "GET", cli_path(c, k, c->ns, false, i ? c->args.pos[i] : slash + 1), NULL,
                      &o, err);
        if (!rv) {
            describe(c, k, o, &b);
            events_print(c, k, o, &b);
            out_flush(c, &b);
        }
        cJSON_Delete(o);
    }
    return rv;
}
