/* migrate: asks for a move of one workload, follows it, or gives it up. save: asks running
 * workloads to save and go on, and waits for their checkpoints. Move and save are the control
 * plane's; what is refused here would be refused there, later and with fewer words. */
#include "api/cli/cli_internal.h"

#include <stdlib.h>

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

/* ---- save ---- */
#define SAVE_WAIT_MS ((int64_t)600 * 1000)
#define SAVE_REQUEST_MAX 9007199254740991ll
#define SAVE_TRIES 20 /* others change the workload meanwhile */

struct saving { /* one workload */
    struct cli *c;
    const char *name;
    int64_t number; /* of our request; 0: it was not taken */
    int64_t asked, saved, failed;
    char note[512];
    bool gone;
    cJSON *last; /* its status.save as it was seen last */
    int rv;      /* of asking, then of waiting */
    struct err err;
};

static int64_t number_at(const cJSON *j, const char *path)
{
    const cJSON *v = json_at(j, path);

    return !cJSON_IsNumber(v) ? 0
           : v->valuestring   ? strtoll(v->valuestring, NULL, 10)
                              : (int64_t)v->valuedouble;
}

/* What could only end in a refusal is said at once. */
static int savable(const cJSON *w, const char *name, struct err *err)
{
    const char *phase = json_text_at(w, "status.phase");

    if (json_at(w, "spec.array"))
        return err_set(err, E_CONFLICT,
                       "workload %s is an array and runs nothing itself: ask its indexes, such as "
                       "hanse save %s-0",
                       name, name);
    if (!*json_text_at(w, "spec.checkpoint.saveSignal"))
        return err_set(err, E_CONFLICT,
                       "workload %s does not say by which signal its program is asked to save and "
                       "go on: set spec.checkpoint.saveSignal (hanse submit --save-signal), and "
                       "start it anew",
                       name);
    if (strcmp(phase, "Running") != 0)
        return err_set(err, E_CONFLICT,
                       "workload %s is %s: only what is Running can be asked to save", name,
                       *phase ? phase : "Queued");
    if (number_at(w, "spec.saveRequest") >= SAVE_REQUEST_MAX)
        return err_set(err, E_CONFLICT,
                       "workload %s was asked %lld times, and its counter ends there: it cannot be "
                       "asked again",
                       name, SAVE_REQUEST_MAX);
    return 0;
}

/* One more than what was read, of that very version: two who ask at once ask twice. */
static int save_ask(struct saving *v)
{
    struct cli *c = v->c;
    const char *path = cli_path(c, kind_by_id(KIND_WORKLOAD), c->ns, false, v->name);
    int rv = E_CONFLICT;

    for (int i = 0; i < SAVE_TRIES && rv == E_CONFLICT; i++) {
        cJSON *w = NULL, *body = cJSON_CreateObject();
        rv = cli_json(c, "GET", path, NULL, &w, &v->err);
        if (!rv && (rv = savable(w, v->name, &v->err)) != 0)
            i = SAVE_TRIES;
        int64_t number = number_at(w, "spec.saveRequest") + 1;
        (void)cJSON_AddStringToObject(cJSON_AddObjectToObject(body, "metadata"), "resourceVersion",
                                      json_text_at(w, "metadata.resourceVersion"));
        (void)cJSON_AddNumberToObject(cJSON_AddObjectToObject(body, "spec"), "saveRequest",
                                      (double)number);
        if (!rv)
            rv = cli_json(c, "PATCH", path, body, NULL, &v->err);
        if (!rv)
            v->number = number;
        cJSON_Delete(w);
        cJSON_Delete(body);
    }
    return rv;
}

static int save_seen(void *arg, const cJSON *w, bool deleted)
{
    struct saving *v = arg;
    const char *phase = json_text_at(w, "status.phase");
    char note[sizeof v->note];

    v->gone = deleted;
    if (deleted)
        return 1;
    v->asked = number_at(w, "status.save.asked");
    v->saved = number_at(w, "status.save.saved");
    v->failed = number_at(w, "status.save.failed");
    cJSON_Delete(v->last);
    v->last = cJSON_Duplicate(json_at(w, "status.save"), true);
    if (v->saved >= v->number || v->failed >= v->number)
        return 1;
    (void)snprintf(note, sizeof note, "%s: %s, %s", v->name, phase,
                   v->asked >= v->number ? "its program was asked to save"
                   : v->asked > v->saved && v->asked > v->failed
                       ? "an earlier request is being saved"
                       : "waits to be asked");
    if (strcmp(note, v->note) != 0)
        (void)fprintf(v->c->err, "%s\n", note);
    str_copy(v->note, sizeof v->note, note);
    return 0;
}

static int save_wait(struct saving *v, int64_t until_ms)
{
    struct cli *c = v->c;
    int64_t left = until_ms - (int64_t)loop_now_ms(c->loop);
    int rv = cli_follow(c, cli_watch_path(c, kind_by_id(KIND_WORKLOAD), c->ns, v->name),
                        (uint64_t)(left > 1 ? left : 1), save_seen, v, &v->err);

    if (rv == E_TIMEOUT)
        return err_set(&v->err, E_UNKNOWN,
                       "%s has not saved yet; it goes on: hanse describe workload %s -n %s",
                       v->name, v->name, c->ns);
    if (!rv && v->gone)
        return err_set(&v->err, E_NOTFOUND, "workload %s was deleted", v->name);
    if (!rv && v->saved < v->number)
        return err_set(&v->err, E_PLACE, "%s has not saved: %s: %s", v->name,
                       json_text_of(v->last, "reason"), json_text_of(v->last, "message"));
    return rv;
}

static void save_print(struct saving *all, unsigned n, bool json)
{
    struct cli *c = all->c;
    cJSON *list = cJSON_CreateArray();

    for (unsigned i = 0; i < n; i++) {
        struct saving *v = &all[i];
        bool done = v->number && v->saved >= v->number;
        cJSON *j = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(j, "workload", v->name);
        (void)cJSON_AddNumberToObject(j, "request", (double)v->number);
        (void)cJSON_AddStringToObject(j, "state",
                                      v->rv  ? (v->rv == E_UNKNOWN ? "Unknown" : "Failed")
                                      : done ? "Saved"
                                             : "Asked");
        (void)cJSON_AddStringToObject(j, "message", v->rv ? v->err.text : "");
        if (done) {
            (void)cJSON_AddStringToObject(j, "checkpoint", json_text_of(v->last, "checkpoint"));
            (void)cJSON_AddNumberToObject(j, "step", (double)number_at(v->last, "step"));
        }
        (void)cJSON_AddItemToArray(list, j);
        if (!json && done)
            (void)fprintf(c->out, "workload/%s saved step %lld: checkpoint/%s\n", v->name,
                          (long long)number_at(v->last, "step"),
                          json_text_of(v->last, "checkpoint"));
        else if (!json && !v->rv)
            (void)fprintf(c->out, "workload/%s is asked to save (request %lld)\n", v->name,
                          (long long)v->number);
    }
    if (json)
        json_out(c, list, "json");
    cJSON_Delete(list);
}

int verb_save(struct cli *c, struct err *err)
{
    const char *format = arg_text(&c->args, "output", "");
    unsigned n = (unsigned)c->args.n_pos;
    struct saving *all = arena_array(c->mem, struct saving, n + 1);
    int64_t limit;
    int rv = n ? 0 : cli_usage(c, err, "which workload?");

    if (!rv && *format && strcmp(format, "json") != 0)
        rv = cli_usage(c, err, "-o: expected json");
    if (!rv)
        rv = arg_duration(&c->args, "wait-timeout", SAVE_WAIT_MS, &limit, err);
    if (!rv)
        rv = cli_connect(c, err);
    if (rv)
        return rv;
    for (unsigned i = 0; i < n; i++) { /* all are asked before any is waited for */
        const char *word = c->args.pos[i];
        all[i] = (struct saving){.c = c, .name = !strncmp(word, "workload/", 9) ? word + 9 : word};
        all[i].rv = save_ask(&all[i]);
    }
    int64_t until = (int64_t)loop_now_ms(c->loop) + limit;
    for (unsigned i = 0; i < n && !arg_flag(&c->args, "no-wait"); i++)
        if (!all[i].rv)
            all[i].rv = save_wait(&all[i], until);
    save_print(all, n, *format != '\0');
    for (unsigned i = 0; i < n; i++) {
        cJSON_Delete(all[i].last);
        if (all[i].rv && rv)
            (void)fprintf(c->err, "error: %s\n", all[i].err.text);
        else if (all[i].rv) {
            rv = all[i].rv;
            *err = all[i].err;
        }
    }
    return rv;
}
