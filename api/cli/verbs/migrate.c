/* migrate: asks for a move of one workload, follows it, or gives it up. The move itself is the
 * control plane's; what is refused here would be refused there, later and with fewer words. */
#include "api/cli/cli_internal.h"

#define WAIT_MS ((int64_t)3600 * 1000)

static int json_print(struct cli *c, const cJSON *j, struct err *err)
{
    const char *format = arg_text(&c->args, "output", "");
    AUTO_BUF b = {0};

    buf_init(&b, OUT_MAX_BYTES);
    if (!strcmp(format, "json"))
        tree_print_json(j, &b);
    else if (!strcmp(format, "yaml"))
        yaml_print(j, &b);
    else if (!strcmp(format, "name"))
        buf_printf(&b, "migration/%s\n", json_text_at(j, "metadata.name"));
    else if (!*format)
        buf_printf(&b, "%s\n", json_text_at(j, "metadata.name"));
    else
        return err_set(err, E_USAGE, "-o %s: expected json, yaml or name", format);
    out_flush(c, &b);
    (void)out_now(c);
    return 0;
}

/* ---- following ---- */
struct watched {
    struct cli *c;
    char note[2048], phase[32];
    int64_t began_ms;
    bool gone;
    cJSON *last;
};

static int move_tell(void *arg, const cJSON *m, bool deleted)
{
    struct watched *w = arg;
    const char *phase = json_text_at(m, "status.phase"),
               *since = json_text_at(m, "status.phaseSince");
    int64_t at = 0;
    AUTO_BUF line = {0};

    w->gone = deleted;
    if (deleted)
        return 1;
    buf_init(&line, sizeof w->note - 64);
    move_line(m, w->c->mem, &line);
    str_copy(w->phase, sizeof w->phase, phase);
    if (!*since)
        since = json_text_at(m, "metadata.creationTimestamp");
    if (*since && !time_parse(since, &at, NULL) && !w->began_ms)
        w->began_ms = at;
    char note[2048];
    (void)snprintf(note, sizeof note, "%-10s  %s", *phase ? phase : "Pending",
                   line.n ? line.p : "");
    if (strcmp(note, w->note) != 0)
        (void)fprintf(w->c->err, "%s  +%.1fs  %s\n", since, (double)(at - w->began_ms) / 1000,
                      note);
    str_copy(w->note, sizeof w->note, note);
    if (!move_over(phase))
        return 0;
    cJSON_Delete(w->last);
    w->last = cJSON_Duplicate(m, true);
    return 1;
}

static int migrate_wait(struct cli *c, const char *name, struct err *err)
{
    struct watched w = {.c = c};
    int64_t limit;
    int rv = arg_duration(&c->args, "wait-timeout", WAIT_MS, &limit, err);

    if (!rv)
        rv = cli_follow(c, cli_watch_path(c, kind_by_id(KIND_MIGRATION), c->ns, name),
                        (uint64_t)limit, move_tell, &w, err);
    if (rv == E_TIMEOUT)
        rv = err_set(err, E_UNKNOWN,
                     "%s is still %s; the move goes on (hanse describe migration %s), or "
                     "hanse migrate --cancel %s",
                     name, *w.phase ? w.phase : "Pending", name, name);
    else if (!rv && w.gone)
        rv = err_set(err, E_NOTFOUND, "migration %s was deleted", name);
    else if (!rv && !strcmp(w.phase, "Cancelled"))
        rv = err_set(err, E_CANCELLED, "%s was cancelled: %s", name,
                     json_text_at(w.last, "status.message"));
    else if (!rv && strcmp(w.phase, "Succeeded") != 0)
        rv = err_set(err, E_PLACE, "%s failed: %s: %s (hanse describe migration %s)", name,
                     json_text_at(w.last, "status.reason"), json_text_at(w.last, "status.message"),
                     name);
    if (!rv && arg_flag(&c->args, "output"))
        rv = json_print(c, w.last, err);
    cJSON_Delete(w.last);
    return rv;
}

/* ---- asking ---- */
/* What could only end in a refusal is said at once. */
static int movable(struct cli *c, const cJSON *w, const char *name, const char *to, struct err *err)
{
    const char *phase = json_text_at(w, "status.phase"),
               *move = json_text_at(w, "status.migration"),
               *target = json_text_at(w, "status.placement.target");

    if (!strcmp(phase, "Succeeded") || !strcmp(phase, "Failed") || !strcmp(phase, "Cancelled"))
        return err_set(err, E_CONFLICT, "workload %s has ended (%s): nothing is left to move", name,
                       phase);
    if (*move)
        return err_set(err, E_CONFLICT,
                       "workload %s is moving already: hanse describe migration %s, or "
                       "hanse migrate --cancel %s -n %s",
                       name, move, move, c->ns);
    if (cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(w, "spec"), "array"))
        return err_set(
            err, E_CONFLICT,
            "workload %s is an array: its indexes move one by one, such as hanse migrate "
            "%s-0",
            name, name);
    if (!*target)
        return err_set(err, E_CONFLICT,
                       "workload %s has no place yet (%s): hanse explain %s -n %s says why", name,
                       *phase ? phase : "Queued", name, c->ns);
    if (to && !strcmp(to, target))
        return err_set(err, E_CONFLICT, "workload %s is on %s already", name, to);
    return 0;
}

static cJSON *migration_document(const char *workload, const char *to)
{
    cJSON *j = cJSON_CreateObject(), *meta, *spec;

    (void)cJSON_AddStringToObject(j, "apiVersion", "hanse.dev/v1alpha1");
    (void)cJSON_AddStringToObject(j, "kind", "Migration");
    meta = cJSON_AddObjectToObject(j, "metadata");
    char prefix[200];
    (void)snprintf(prefix, sizeof prefix, "%.190s-move-", workload);
    (void)cJSON_AddStringToObject(meta, "generateName", prefix);
    spec = cJSON_AddObjectToObject(j, "spec");
    (void)cJSON_AddStringToObject(spec, "workload", workload);
    if (to)
        (void)cJSON_AddStringToObject(spec, "to", to);
    return j;
}

static int migrate_ask(struct cli *c, const char *workload, struct err *err)
{
    const char *to = arg_text(&c->args, "to", NULL);
    cJSON *w = NULL, *made = NULL, *j;
    int rv = cli_json(c, "GET", cli_path(c, kind_by_id(KIND_WORKLOAD), c->ns, false, workload),
                      NULL, &w, err);

    if (!rv && to) { /* a target that is not there would be waited for */
        rv = cli_json(c, "GET", cli_path(c, kind_by_id(KIND_TARGET), "", false, to), NULL, NULL,
                      err);
        if (rv == E_NOTFOUND)
            rv = err_set(err, E_NOTFOUND, "no target \"%s\"; hanse get targets lists them", to);
    }
    if (!rv)
        rv = movable(c, w, workload, to, err);
    cJSON_Delete(w);
    if (rv)
        return rv;
    j = migration_document(workload, to);
    rv = cli_json(c, "POST", cli_path(c, kind_by_id(KIND_MIGRATION), c->ns, false, NULL), j, &made,
                  err);
    cJSON_Delete(j);
    if (!rv) {
        const char *name = arena_strdup(c->mem, json_text_at(made, "metadata.name"));
        bool wait = arg_flag(&c->args, "wait");
        if (!wait || !arg_flag(&c->args, "output"))
            rv = json_print(c, made, err);
        if (!rv && wait)
            rv = migrate_wait(c, name, err);
    }
    cJSON_Delete(made);
    return rv;
}

static int migrate_cancel(struct cli *c, const char *name, struct err *err)
{
    const char *path = cli_path(c, kind_by_id(KIND_MIGRATION), c->ns, false, name);
    cJSON *m = NULL, *body = cJSON_CreateObject();
    int rv = cli_json(c, "GET", path, NULL, &m, err);
    const char *phase = json_text_at(m, "status.phase");

    if (rv == E_NOTFOUND)
        rv = err_set(err, E_NOTFOUND,
                     "no migration \"%s\" in namespace %s; hanse get migrations -A lists them",
                     name, c->ns);
    if (!rv && move_over(phase))
        rv = err_set(err, E_CONFLICT, "%s is over (%s): nothing is left to cancel%s", name, phase,
                     strcmp(phase, "Succeeded") ? "" : "; move it back with hanse migrate --to");
    if (!rv) {
        (void)cJSON_AddTrueToObject(cJSON_AddObjectToObject(body, "spec"), "cancel");
        rv = cli_json(c, "PATCH", path, body, NULL, err);
    }
    cJSON_Delete(m);
    cJSON_Delete(body);
    if (rv)
        return rv;
    if (!arg_flag(&c->args, "wait")) {
        (void)fprintf(c->out, "migration/%s is being cancelled\n", name);
        return 0;
    }
    rv = migrate_wait(c, name, err);
    if (rv == E_CANCELLED) { /* as wished */
        (void)fprintf(c->out, "migration/%s is cancelled\n", name);
        return 0;
    }
    return rv ? rv
              : err_set(err, E_CONFLICT, "%s could no longer be cancelled: it succeeded", name);
}

int verb_migrate(struct cli *c, struct err *err)
{
    const char *cancel = arg_text(&c->args, "cancel", NULL), *word;

    if (cancel ? c->args.n_pos != 0 : c->args.n_pos != 1)
        return cli_usage(c, err, cancel ? "--cancel stands alone" : "which workload?");
    if (cancel && (arg_flag(&c->args, "to") || arg_flag(&c->args, "output")))
        return cli_usage(c, err, "--cancel takes neither --to nor -o");
    int rv = cli_connect(c, err);
    if (rv)
        return rv;
    if (cancel)
        return migrate_cancel(c, !strncmp(cancel, "migration/", 10) ? cancel + 10 : cancel, err);
    word = c->args.pos[0];
    return migrate_ask(c, !strncmp(word, "workload/", 9) ? word + 9 : word, err);
}
