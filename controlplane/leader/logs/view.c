/* Logs whose machine is gone, or that it has no more: read from the store to which they went
 * (connectors/kept), piece by piece, on the thread pool. The loop never waits for a store, and no
 * more than VIEWS_AT_ONCE threads do. A store that hangs holds up no other one, and whoever asked
 * hears of it in time.
 *
 *   OPEN ──► NEXT ──► NEXT … ──► (followed: AGAIN ──► NEXT …) ──► over */
#include "controlplane/leader/logs/logs.h"

#include "api/base/failpoint.h"
#include "controlplane/leader/site/sites.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define VIEWS_MAX 64
#define VIEWS_OF_A_STORE 32
#define VIEWS_AT_ONCE 4 /* on threads; of one store, which may hang, fewer */
#define AT_ONCE_OF_A_STORE 2
#define OPEN_BY_MS 8000 /* hanse(1) asks the next member after 10 s */
#define ROOM_POLL_MS 50
#define AGAIN_MS 2000

enum step { OPEN, NEXT, AGAIN };
struct kept_view {
    struct list link; /* sites.views */
    struct brain *brain; /* NULL: the leadership is over */
    struct arena *a;
    struct kept_request q;
    char ns[64], workload[256], target[256], store[256]; /* store: as its Target names it */
    int64_t epoch;
    bool follow;
    struct log_sink sink;
    struct kept_join join;
    struct timer tick, by; /* by: until when it is open */
    enum step step;
    bool running, busy, closed; /* running: on a thread; busy: that, or its sink is told */
    /* of the thread while there is one */
    struct kept_reader *reader;
    struct checkpoint_progress progress;
    struct buf text;
    bool more;
    int rc;
    struct err err;
};

/* ---- how a store is reached ---- */
static const char *const names[] = {
    "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL",  "AWS_REGION",
    "AWS_DEFAULT_REGION",  "AWS_CA_BUNDLE",     "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"};
#define N_NAMES (sizeof names / sizeof *names)
#define ENV_BYTES_MAX 8192

int logs_env(struct brain *b, const struct target_logs *logs, struct arena *a,
             const char *const **ret, struct err *err)
{
    const char *secret = logs->credentialsFrom ? logs->credentialsFrom->secret : NULL;
    const char **env = arena_array(a, const char *, N_NAMES + 1);
    size_t n = 0, bytes = 0;

    *ret = NULL;
    if (!secret)
        return 0;
    for (size_t i = 0; b->cfg.secret_get && i < N_NAMES; i++) {
        const char *text = b->cfg.secret_get(b->cfg.arg, "hanse-system", secret, names[i]);
        if (!text)
            continue;
        bytes += strlen(text);
        if (bytes <= ENV_BYTES_MAX)
            env[n++] = arena_printf(a, "%s=%s", names[i], text);
        b->cfg.secret_put(b->cfg.arg, text);
    }
    *ret = env;
    if (n > 0 && bytes <= ENV_BYTES_MAX)
        return 0;
    /* Whoever reads a log hears of it: the names of the hub's Secrets are none of his. */
    return err_set(err, n ? E_TOOLARGE : E_NOTFOUND,
                   "the store of its logs cannot be reached: the Secret that spec.logs of its "
                   "target names %s",
                   n ? "has keys that are too long" : "has no AWS_ACCESS_KEY_ID");
}

void logs_env_wipe(const char *const *env)
{
    for (; env && *env; env++)
        OPENSSL_cleanse((char *)(uintptr_t)*env, strlen(*env));
}

int logs_place(struct brain *b, const struct object *workload, const struct run_key *k,
               struct arena *a, struct logs_place *ret, struct err *err)
{
    const struct intent *in = object_as(workload, workload)->status->intent;
    char base[KEPT_PATH_MAX], name[64];

    *ret = (struct logs_place){.base = ""};
    if (!in || !in->logs)
        return 0;
    int rc = kept_base(in->logs->store, root_cluster_uid(b->root), workload->meta->namespace_,
                       workload->meta->name, workload->meta->uid, base, err);
    if (rc == 0)
        rc = logs_env(b, in->logs, a, &ret->env, err);
    if (rc < 0)
        return rc;
    kept_try_name(k->epoch, k->try_, name);
    ret->base = arena_printf(a, "%s/%s", base, name);
    ret->max_bytes = in->logs->maxBytes;
    size_t n = strlen(in->logs->store);
    while (n > 1 && in->logs->store[n - 1] == '/')
        n--;
    if (in->logs->store[0] == '/')
        ret->roots = arena_printf(a, "%.*s", (int)n, in->logs->store);
    return 0;
}

/* ---- which ---- */
/* NULL: its logs went nowhere. */
static const struct target_logs *logs_of(const struct workload_status *s, int64_t epoch)
{
    if (s->intent && phase_live(s->phase) && epoch == s->epoch)
        return s->intent->logs;
    for (uint32_t i = s->n_ends; i > 0; i--)
        if (s->ends[i - 1].epoch == epoch)
            return s->ends[i - 1].logs;
    return NULL;
}

/* 0: not known. */
static int64_t ranks_of(const struct workload_status *s, int64_t epoch)
{
    if (phase_live(s->phase) && s->placement && epoch == s->epoch)
        return s->placement->n_assignments;
    for (uint32_t i = s->n_ends; i > 0; i--)
        if (s->ends[i - 1].epoch == epoch)
            return s->ends[i - 1].workers;
    return 0;
}

bool kept_view_possible(const struct object *workload, int64_t epoch)
{
    const struct workload_status *s = object_as(workload, workload)->status;

    return s && logs_of(s, epoch);
}

static bool lives(const struct kept_view *v)
{
    const struct object *o = root_get(v->brain->root, KIND_WORKLOAD, v->ns, v->workload);
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;

    return s && s->epoch == v->epoch && phase_live(s->phase);
}

/* ---- its life ---- */
static void detach(struct kept_view *v)
{
    timer_stop(&v->tick);
    timer_stop(&v->by);
    if (!v->brain)
        return;
    list_remove(&v->link);
    v->brain->sites->n_views--;
    v->brain->sites->viewing -= v->running;
    v->brain = NULL;
}

static void view_free(struct kept_view *v)
{
    detach(v);
    (void)kept_close(v->reader);
    logs_env_wipe(v->q.env);
    buf_fini(&v->text);
    (void)arena_destroy(v->a);
    mem_free(v);
}

static void view_end(struct kept_view *v, const struct err *why)
{
    struct log_sink sink = v->sink;
    struct err err = why ? *why : (struct err){0};

    v->closed = true;
    atomic_store(&v->progress.cancel, true);
    if (!v->busy)
        view_free(v);
    sink.end(why ? 1 : 0, why ? &err : NULL, sink.arg);
}

void kept_view_close(struct kept_view *v)
{
    v->closed = true;
    atomic_store(&v->progress.cancel, true);
    if (!v->busy)
        view_free(v);
}

void kept_views_drop(struct brain *b)
{
    struct err err;

    /* Nobody waits for a store that hangs: what is on a thread ends by itself. */
    list_for_each_safe (it, tmp, &b->sites->views) {
        struct kept_view *v = container_of(it, struct kept_view, link);
        (void)err_set(&err, E_UNAVAIL, "this member does not lead any more: ask again");
        atomic_store(&v->progress.cancel, true);
        if (v->busy)
            detach(v);
        if (!v->closed)
            view_end(v, &err);
    }
}

/* ---- step by step ---- */
static void view_work(void *arg)
{
    struct kept_view *v = arg;

    FAILPOINT("logs.store.read");
    if (v->step == OPEN)
        v->rc = kept_open(&v->q, &v->reader, &v->err);
    else if (v->step == NEXT)
        v->rc = kept_next(v->reader, &v->text, &v->more, &v->err);
    else
        v->rc = kept_again(v->reader, &v->err);
}

/* All that there is now has gone out. */
static void view_rest(struct kept_view *v)
{
    const bool live = lives(v);
    char why[400];

    if (kept_complete(v->reader)) {
        view_end(v, NULL);
        return;
    }
    if (v->join.rest(kept_try(v->reader), v->join.arg)) {
        v->closed = true;
        return;
    }
    if (kept_go_on(v->reader)) {
        v->step = NEXT;
        timer_start(&v->tick, 0);
        return;
    }
    if (v->follow && live) {
        v->step = AGAIN;
        timer_start(&v->tick, AGAIN_MS);
        return;
    }
    (void)snprintf(why, sizeof why, "%s%.200s%s",
                   live ? "it runs, and target " : "before it was kept, its machine was gone or "
                                                   "its store out of reach",
                   live ? v->target : "", live ? " does not tell what it prints" : "");
    buf_reset(&v->text);
    kept_missing(v->reader, why, &v->text);
    v->sink.data(1, v->text.p, v->text.n, v->sink.arg);
    if (!v->closed)
        view_end(v, NULL);
}

static void view_news(struct kept_view *v)
{
    if (v->rc < 0) {
        /* Of the store, not of this member: nobody is to try the next one. */
        if (v->rc == E_CONNECT || v->rc == E_TLS || v->rc == E_UNAVAIL || v->rc == E_TIMEOUT)
            v->err.code = E_IO;
        view_end(v, &v->err);
        return;
    }
    timer_stop(&v->by);
    if (v->step == OPEN && v->sink.opened)
        v->sink.opened(v->sink.arg);
    if (!v->closed && v->text.n > 0)
        v->sink.data(1, v->text.p, v->text.n, v->sink.arg);
    if (v->closed)
        return;
    buf_reset(&v->text);
    bool mid = false;
    uint64_t at = kept_at(v->reader, &mid);
    if (v->step == NEXT)
        v->join.told(kept_try(v->reader), at, mid, v->join.arg);
    if (v->step == NEXT && !v->more) {
        view_rest(v);
        return;
    }
    v->step = NEXT;
    timer_start(&v->tick, 0);
}

static void view_done(void *arg)
{
    struct kept_view *v = arg;

    if (v->brain)
        v->brain->sites->viewing--;
    v->running = false;
    if (!v->closed)
        view_news(v);
    v->busy = false;
    if (v->closed) /* meanwhile, or by its sink */
        view_free(v);
}

static void view_late(void *arg)
{
    struct kept_view *v = arg;
    struct err err;

    (void)err_set(&err, E_IO, "the store of its logs, %.200s, did not answer in time",
                  v->store);
    if (!v->closed)
        view_end(v, &err);
}

static unsigned of_its_store(const struct brain *b, const char *store, bool running)
{
    unsigned n = 0;

    list_for_each (it, &b->sites->views) {
        const struct kept_view *o = container_of(it, struct kept_view, link);
        n += (o->running || !running) && !strcmp(o->store, store);
    }
    return n;
}

static void view_tick(void *arg)
{
    struct kept_view *v = arg;
    struct sites *sites = v->brain->sites;

    if ((v->sink.full && v->sink.full(v->sink.arg)) || sites->viewing >= VIEWS_AT_ONCE ||
        of_its_store(v->brain, v->store, true) >= AT_ONCE_OF_A_STORE) {
        timer_start(&v->tick, ROOM_POLL_MS);
        return;
    }
    v->busy = v->running = true;
    sites->viewing++;
    if (v->step != OPEN) /* whose time began when it was asked for */
        timer_start(&v->by, OPEN_BY_MS);
    loop_work(v->brain->loop, view_work, view_done, v);
}

int kept_view_open(struct brain *b, const struct object *workload, const struct api_exec *e,
                   const struct kept_join *join, const struct log_sink *sink,
                   struct kept_view **ret, struct err *err)
{
    const struct workload_status *s = object_as(workload, workload)->status;
    const struct target_logs *logs = logs_of(s, e->epoch);
    char base[KEPT_PATH_MAX];

    if (b->sites->n_views >= VIEWS_MAX || of_its_store(b, logs->store, false) >= VIEWS_OF_A_STORE)
        return err_set(err, E_LIMIT, "more than %d logs are read from stores, %d from one",
                       VIEWS_MAX, VIEWS_OF_A_STORE);
    int64_t ranks = ranks_of(s, e->epoch);
    if (ranks && (e->rank < 0 || e->rank >= ranks))
        return err_set(err, E_NOTFOUND, "there is no rank %lld: the run had %lld workers",
                       (long long)e->rank, (long long)ranks);
    struct kept_view *v = mem_new(struct kept_view);
    v->a = arena_create(0);
    int rc = kept_base(logs->store, root_cluster_uid(b->root), workload->meta->namespace_,
                       workload->meta->name, workload->meta->uid, base, err);
    if (rc == 0)
        rc = logs_env(b, logs, v->a, &v->q.env, err);
    if (rc < 0) {
        (void)arena_destroy(v->a);
        mem_free(v);
        return rc;
    }
    v->brain = b;
    str_copy(v->ns, sizeof v->ns, workload->meta->namespace_);
    str_copy(v->workload, sizeof v->workload, workload->meta->name);
    str_copy(v->store, sizeof v->store, logs->store);
    str_copy(v->target, sizeof v->target, s->placement ? s->placement->target : "");
    v->epoch = e->epoch;
    v->follow = e->follow;
    v->sink = *sink;
    v->join = *join;
    v->q.base = arena_strdup(v->a, base);
    v->q.epoch = e->epoch;
    v->q.rank = e->rank;
    v->q.try_ = join->try_;
    v->q.tail_lines = join->tail_lines;
    v->q.before = join->before;
    v->q.resumes = join->resumes;
    v->q.mid = join->mid;
    v->q.from = join->from;
    v->q.stop = join->stop;
    v->q.timestamps = e->timestamps;
    v->q.since_ms = join->resumes     ? 0
                    : e->since_span_ms ? core_time_ms(b->cfg.core) - e->since_span_ms : e->since_ms;
    v->q.progress = &v->progress;
    buf_init(&v->text, KEPT_ROOM);
    timer_init(&v->tick, b->loop, view_tick, v);
    list_push(&b->sites->views, &v->link);
    b->sites->n_views++;
    timer_init(&v->by, b->loop, view_late, v);
    timer_start(&v->by, OPEN_BY_MS);
    timer_start(&v->tick, 0);
    *ret = v;
    return 0;
}
