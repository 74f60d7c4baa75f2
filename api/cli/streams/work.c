/* Work over its epochs: how it fares, and the logs of them one after the other, up to its end. An
 * epoch that ends is none: the work may be moved, or be tried again. */
#include "api/cli/cli_internal.h"

#include <string.h>

struct waiting {
    struct cli *c;
    const char *until; /* "Running" or "" = the end */
    bool quiet;
    char phase[32], note[2048];
    int64_t epoch, after; /* it is to run in an epoch after that one */
    bool gone;
};

static bool runs(const char *phase)
{
    return !strcmp(phase, "Running") || !strcmp(phase, "Quiescing");
}

static int phase_tell(void *arg, const cJSON *o, bool deleted)
{
    struct waiting *w = arg;
    const char *phase = json_text_at(o, "status.phase"),
               *target = json_text_at(o, "status.placement.target");
    char note[2048];

    w->gone = deleted;
    if (deleted)
        return 1;
    str_copy(w->phase, sizeof w->phase, phase);
    (void)snprintf(note, sizeof note, "%s%s%s%s%s", *phase ? phase : "Queued",
                   *target ? " on " : "", target, *json_text_at(o, "status.message") ? ": " : "",
                   json_text_at(o, "status.message"));
    w->epoch = (int64_t)json_number_at(o, "status.epoch");
    bool enough = move_over(phase) || (*w->until && w->epoch > w->after && runs(phase));
    if (strcmp(note, w->note) != 0 && !(w->quiet && enough))
        (void)fprintf(w->c->err, "%s\n", note);
    str_copy(w->note, sizeof w->note, note);
    return enough;
}

int work_wait(struct cli *c, const char *ns, const char *name, const char *until, bool quiet,
              int64_t *epoch, char phase[32], struct err *err)
{
    struct waiting w = {.c = c, .until = until, .quiet = quiet, .after = *epoch};
    int rv = cli_follow(c, cli_watch_path(c, kind_by_id(KIND_WORKLOAD), ns, name), 0, phase_tell,
                        &w, err);

    if (!rv && w.gone)
        rv = err_set(err, E_NOTFOUND, "workload %s was deleted", name);
    (void)snprintf(phase, 32, "%s", w.phase);
    *epoch = w.epoch;
    return rv;
}

/* ---- its logs ---- */
struct work {
    struct cli *c;
    const char *ns, *name;
    const struct logs_wish *w;
    int64_t last;          /* the epoch that was told last; 0: none */
    struct logs_told told; /* of that one */
    bool heard;            /* the log of any was had */
    char uid[64];          /* of this one, and none that comes later under its name */
};

static int work_get(struct work *x, cJSON **ret, struct err *err)
{
    int rv = cli_json(x->c, "GET",
                      cli_path(x->c, kind_by_id(KIND_WORKLOAD), x->ns, false, x->name), NULL, ret,
                      err);
    const char *uid = rv ? "" : json_text_at(*ret, "metadata.uid");

    if (!*x->uid)
        str_copy(x->uid, sizeof x->uid, uid);
    if (!rv && strcmp(uid, x->uid) != 0)
        rv = err_set(err, E_NOTFOUND, "workload %s was deleted, and there is another one now",
                     x->name);
    return rv;
}

/* The first epoch after the last one that is over, or runs; 0: there is none yet. */
static int64_t epoch_next(const cJSON *o, int64_t last)
{
    const char *phase = json_text_at(o, "status.phase");
    int64_t newest = (int64_t)json_number_at(o, "status.epoch"),
            found = newest > last && runs(phase) ? newest : 0;
    const cJSON *e;

    cJSON_ArrayForEach(e, json_at(o, "status.ends"))
    {
        int64_t epoch = (int64_t)json_number_at(e, "epoch");
        if (epoch > last && (!found || epoch < found))
            found = epoch;
    }
    return found;
}

/* The newest of them. */
static int64_t epoch_newest(const cJSON *o)
{
    int64_t last = 0, next;

    while ((next = epoch_next(o, last)) != 0)
        last = next;
    return last;
}

/* Those of this Workload; NULL: there is none, or they are not to be had. */
static cJSON *moves_get(struct work *x)
{
    struct err e = {0};
    cJSON *j = NULL;
    AUTO_BUF path = {0};

    buf_init(&path, 8192);
    buf_printf(&path, "%s?fieldSelector=spec.workload%%3D",
               cli_path(x->c, kind_by_id(KIND_MIGRATION), x->ns, false, NULL));
    client_encode(&path, x->name);
    return cli_json(x->c, "GET", path.p, NULL, &j, &e) ? NULL : j;
}

static int epoch_tell(struct work *x, const cJSON *o, int64_t epoch, struct err *err)
{
    struct logs_wish w = *x->w;
    AUTO_BUF line = {0};

    if (x->last) { /* of an epoch that came later all is wanted */
        buf_init(&line, 4096);
        buf_str(&line, x->told.mid ? "\n" : "");
        cJSON *moves = moves_get(x);
        epoch_line(o, moves, x->last, epoch, &line);
        cJSON_Delete(moves);
        out_flush(x->c, &line);
        w.tail = -1;
        w.since_ms = 0;
        w.since_time = NULL;
    }
    w.patient = x->last || w.all_epochs;
    /* The newest is what is told unasked, by servers of older versions, too. */
    bool unasked = !x->last && epoch == (int64_t)json_number_at(o, "status.epoch");
    w.epoch = unasked ? 0 : (long)epoch;
    int rv = logs_print(x->c, x->ns, x->name, &w, &x->told, err);
    x->last = x->told.epoch > epoch ? x->told.epoch : epoch;
    if (!rv) {
        x->heard = true;
        return 0;
    }
    if (!x->heard && !x->told.any && !x->w->all_epochs) /* whoever asked for it hears why */
        return rv;
    if (rv == E_FORBIDDEN || rv == E_UNAUTH)
        return rv;
    (void)fprintf(x->c->err, "the log of epoch %lld %s: %s\n", (long long)epoch,
                  x->told.any ? "is cut off here" : "cannot be had", err->text);
    *err = (struct err){0};
    return 0;
}

/* Tells all that there is by this state of it. */
static int epochs_tell(struct work *x, struct err *err)
{
    int rv = 0;

    for (;;) {
        cJSON *o = NULL;
        rv = work_get(x, &o, err);
        int64_t epoch = rv ? 0
                        : x->last || x->w->all_epochs ? epoch_next(o, x->last)
                                                      : epoch_newest(o);
        if (epoch)
            rv = epoch_tell(x, o, epoch, err);
        cJSON_Delete(o);
        if (rv || !epoch)
            return rv;
    }
}

int work_logs(struct cli *c, const char *ns, const char *name, const struct logs_wish *w,
              char phase[32], struct err *err)
{
    struct work x = {.c = c, .ns = ns, .name = name, .w = w};
    cJSON *o = NULL;
    int64_t epoch = 0;
    int rv = work_get(&x, &o, err);

    bool array = o && json_at(o, "spec.array");
    cJSON_Delete(o);
    *phase = '\0';
    if (rv == E_FORBIDDEN && !w->all_epochs) {
        (void)fprintf(c->err, "only this epoch is followed: %s\n", err->text);
        *err = (struct err){0};
    }
    if (array || (rv == E_FORBIDDEN && !w->all_epochs))
        return logs_print(c, ns, name, w, NULL, err);
    while (!rv) {
        rv = epochs_tell(&x, err);
        if (rv || move_over(phase)) /* by a state that is older than what was told */
            break;
        epoch = x.last;
        rv = work_wait(c, ns, name, "Running", !w->all_epochs && !x.last, &epoch, phase, err);
    }
    return rv;
}

/* ---- attach ---- */
int verb_attach(struct cli *c, struct err *err)
{
    const struct args *a = &c->args;
    struct logs_wish w = {.follow = true};
    char phase[32] = "";
    cJSON *o = NULL;

    if (a->n_pos != 1)
        return cli_usage(c, err, "which workload?");
    const char *name = a->pos[0];
    if (arg_flag(a, "stdin") || arg_flag(a, "tty"))
        return err_set(err, E_USAGE,
                       "a workload's program has neither input nor a terminal, since it may go on "
                       "elsewhere: hanse exec -it %s -- sh starts one that has, beside it",
                       name);
    int rv = arg_number(a, "rank", 0, 4095, 0, &w.rank, err);
    if (!rv)
        rv = cli_connect(c, err);
    if (!rv)
        rv = cli_json(c, "GET", cli_path(c, kind_by_id(KIND_WORKLOAD), c->ns, false, name), NULL,
                      &o, err);
    if (!rv && json_at(o, "spec.array"))
        rv = err_set(err, E_INVALID, "%s is an array: attach to one of its indexes, such as %s-0",
                     name, name);
    else if (!rv && move_over(json_text_at(o, "status.phase")))
        rv = err_set(err, E_INVALID, "%s has ended (%s): hanse logs %s prints what it said", name,
                     json_text_at(o, "status.phase"), name);
    w.tail = o && runs(json_text_at(o, "status.phase")) ? 0 : -1; /* of what is to come, all */
    cJSON_Delete(o);
    if (!rv)
        rv = work_logs(c, c->ns, name, &w, phase, err);
    if (!rv && *phase && strcmp(phase, "Succeeded") != 0)
        c->exit = 1;
    return rv;
}
