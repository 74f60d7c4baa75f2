/* Logs, exec and forwarded ports: from the API's backend table to the connector of the run. Only
 * the leader has connectors.
 *
 * Logs that go to a store (logs/) are one text out of two places: the target has the newest, the
 * store what the target has no more, or all of it when the machine is gone. Which byte comes next
 * is known at any time, so that either goes on where the other one ends:
 *
 *   LIVE ──(it began behind what was wanted; text went before it was read; it is lost)──► STORE
 *   STORE ──(all that is kept was told, and there is more)──► LIVE
 *
 * Where neither has the next byte a line says how much is missing. Whoever asked hears of the place
 * behind what was told up to it, and may ask another member to go on from there. */
#include "controlplane/leader/logs/logs.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define OPEN_MS 20000 /* for a target to open a stream */
#define BATCH_MAX ((size_t)4 << 20) /* bytes of a log between two tellings of where it is */
#define LOOKS_MAX 2   /* into the store for the same byte, before it is missing */
#define LIVE_AGAIN_MS 5000

struct brain_session {
    struct connector *connector; /* NULL: `view` has it */
    struct exec_session *session;
    struct kept_view *view;
    struct api_stream_sink sink;
    bool opened, ended, closed;
    bool is_log; /* else an exec or a forwarded port, which has no place in a text */
    struct loop *loop;
    struct brain *brain;
    bool kept;        /* it asks for logs that go to a store, */
    struct api_exec asked; /* in these words; texts are below */
    char ns[64], workload[256], target[256];
    /* of logs whose place is told */
    struct run_key key;
    bool placed, mid;  /* placed: the next byte is known; mid: it is amid a line */
    uint64_t at;       /* the next byte */
    struct buf batch;  /* of the target, before it is told up to where it goes */
    uint64_t ahead; /* where the target's part begins, while the store is asked for the rest */
    uint64_t looked_at; /* byte for which the store was asked last, so often */
    unsigned looks;
    uint64_t failed_ms; /* loop time at which the target could not go on; 0: never */
};

static void on_end(int exit_code, const struct err *err, void *arg);

static void on_at(const struct log_at *at, void *arg);

static void batch_pass(struct brain_session *s);

static void session_free(void *arg)
{
    struct brain_session *s = arg;

    buf_fini(&s->batch);
    mem_free(s);
}

/* known false: that it will be told. */
static void place_tell(struct brain_session *s, bool known)
{
    const struct api_log_at at = {.known = known,
                                  .epoch = s->key.epoch,
                                  .try_ = s->key.try_,
                                  .from = s->at,
                                  .mid = s->mid};

    if (!s->closed && s->sink.at)
        s->sink.at(&at, s->sink.arg);
}

static void on_opened(void *arg)
{
    struct brain_session *s = arg;

    if (s->opened) /* by the one place, and now by the other */
        return;
    s->opened = true;
    if (!s->closed && s->sink.opened)
        s->sink.opened(s->sink.arg);
    if (s->placed || s->view)
        place_tell(s, s->placed);
}
static void on_data(int fd, const void *p, size_t n, void *arg)
{
    struct brain_session *s = arg;

    if (s->closed)
        return;
    if (s->placed && s->connector && s->batch.n + n <= BATCH_MAX) {
        buf_add(&s->batch, p, n);
        return;
    }
    if (s->connector) { /* what is held stands ahead of it */
        batch_pass(s);
        s->mid = n > 0 && ((const char *)p)[n - 1] != '\n';
    }
    if (!s->closed)
        s->sink.data(fd, p, n, s->sink.arg);
}
static void on_eof(void *arg)
{
    struct brain_session *s = arg;

    if (!s->closed && s->sink.eof)
        s->sink.eof(s->sink.arg);
}
static bool on_full(void *arg)
{
    const struct brain_session *s = arg;

    return !s->closed && s->sink.full && s->sink.full(s->sink.arg);
}
static struct log_sink sink_of(struct brain_session *s)
{
    return (struct log_sink){.opened = on_opened,
                             .data = on_data,
                             .end = on_end,
                             .full = on_full,
                             .eof = on_eof,
                             .at = s->is_log ? on_at : NULL,
                             .arg = s};
}

/* ---- logs out of two places ---- */
static void note(struct brain_session *s, uint64_t missing, const char *why)
{
    char text[320];
    int n = snprintf(text, sizeof text,
                     "%s[hanse: %llu bytes are missing here: %.200s]\n", s->mid ? "\n" : "",
                     (unsigned long long)missing, why);

    s->mid = false;
    s->sink.data(1, text, (size_t)n, s->sink.arg);
}

static void batch_pass(struct brain_session *s)
{
    if (s->batch.n == 0)
        return;
    s->mid = s->batch.p[s->batch.n - 1] != '\n';
    s->sink.data(1, s->batch.p, s->batch.n, s->sink.arg);
    buf_reset(&s->batch);
}

static bool on_rest(int64_t try_, void *arg);
static void on_told(int64_t try_, uint64_t at, bool mid, void *arg);

/* Reads on in the store; false: it cannot be asked. The session that there was is over. */
static bool store_open(struct brain_session *s, struct kept_join join, struct err *err)
{
    const struct log_sink ls = sink_of(s);
    const struct object *o = NULL;

    buf_reset(&s->batch);
    s->connector = NULL;
    join.stop = s->ahead;
    join.told = on_told;
    join.rest = on_rest;
    join.arg = s;
    if (s->brain->leads)
        o = root_get(s->brain->root, KIND_WORKLOAD, s->ns, s->workload);
    return o && !strcmp(o->meta->uid, s->key.uid) && kept_view_possible(o, s->key.epoch) &&
           kept_view_open(s->brain, o, &s->asked, &join, &ls, &s->view, err) == 0;
}

static bool store_resume(struct brain_session *s)
{
    const struct kept_join join = {
        .try_ = s->key.try_, .tail_lines = -1, .resumes = true, .from = s->at, .mid = s->mid};

    s->looks = s->looks && s->looked_at == s->at ? s->looks + 1 : 1;
    s->looked_at = s->at;
    return store_open(s, join, NULL);
}

/* Goes on at the target from the byte that comes next; false: it cannot be asked now. */
static bool live_resume(struct brain_session *s)
{
    const struct log_sink ls = sink_of(s);
    const struct site *t = site_find(s->brain, s->target);
    struct log_request rq = {.rank = s->asked.rank,
                             .follow = s->asked.follow,
                             .tail_lines = -1,
                             .timestamps = s->asked.timestamps,
                             .deadline_ms = loop_now_ms(s->loop) + OPEN_MS,
                             .resumes = true,
                             .mid = s->mid,
                             .from = s->at};
    uint64_t now = loop_now_ms(s->loop);

    if (!s->brain->leads || !t || !t->connector || !t->reachable || !t->connector->ops->logs ||
        (s->failed_ms && now - s->failed_ms < LIVE_AGAIN_MS))
        return false;
    struct connector *c = t->connector;
    if (c->ops->logs(c, &s->key, &rq, &ls, &s->session, NULL) < 0)
        return false;
    s->connector = c;
    s->placed = true;
    s->failed_ms = now; /* until it has told where it is */
    return true;
}

static void on_told(int64_t try_, uint64_t at, bool mid, void *arg)
{
    struct brain_session *s = arg;

    s->key.try_ = try_;
    s->at = at;
    s->mid = mid;
    place_tell(s, true);
}

static bool on_rest(int64_t try_, void *arg)
{
    struct brain_session *s = arg;

    s->key.try_ = try_;
    if (s->closed || !live_resume(s))
        return false;
    s->view = NULL;
    return true;
}

/* The session that there was has been closed: without one this is the end. */
static void begin_or_end(struct brain_session *s, bool begun)
{
    struct err err;

    if (begun || s->closed)
        return;
    s->ended = true;
    (void)err_set(&err, E_UNAVAIL, "neither target %s nor the store of its logs tells more now",
                  s->target);
    s->sink.end(1, &err, s->sink.arg);
}

/* The target's part begins behind the byte that comes next. */
static void gap(struct brain_session *s, uint64_t from)
{
    if (s->kept && (s->looked_at != s->at || s->looks < LOOKS_MAX)) {
        s->ahead = from;
        s->connector->ops->exec_close(s->session);
        begin_or_end(s, store_resume(s));
        return;
    }
    note(s, from - s->at, s->kept ? "neither its target nor its store has them"
                                  : "they went from the front of its log before they were read");
    s->at = from;
    place_tell(s, true);
}

static void on_at(const struct log_at *at, void *arg)
{
    struct brain_session *s = arg;
    const struct kept_join front = {.try_ = at->try_,
                                    .before = at->from,
                                    .tail_lines = s->asked.tail_lines > at->lines
                                                      ? s->asked.tail_lines - at->lines
                                                  : s->asked.tail_lines < 0 ? -1
                                                                            : 0};

    if (s->closed)
        return;
    batch_pass(s);
    s->failed_ms = s->ahead = 0;
    if (s->closed)
        return;
    if (!s->placed && at->front && s->kept) {
        s->placed = true;
        s->key.try_ = at->try_ ? at->try_ : s->key.try_;
        s->ahead = at->from;
        s->at = 0;
        s->connector->ops->exec_close(s->session);
        place_tell(s, false);
        if (!s->closed)
            begin_or_end(s, store_open(s, front, NULL));
        return;
    }
    if (s->placed && at->from > s->at && (at->gap || at->try_)) {
        gap(s, at->from);
        return;
    }
    s->placed = true;
    s->key.try_ = at->try_ ? at->try_ : s->key.try_;
    s->at = at->from;
    place_tell(s, true);
}

/* The target has nothing to show, or cannot be asked (any more): its store may have it. */
static bool kept_instead(struct brain_session *s, int code, struct err *err)
{
    const struct kept_join all = {.tail_lines = s->asked.tail_lines};

    if (!s->kept || s->view || (code != E_NOTFOUND && code != E_UNAVAIL && code != E_CONNECT &&
                     code != E_TIMEOUT && code != E_NOTIMPL))
        return false;
    if (s->placed)
        return store_resume(s);
    return !s->opened && store_open(s, all, err);
}

/* The store cannot tell what precedes: then only the target's part is told, and that. */
static bool live_instead(struct brain_session *s, const struct err *why)
{
    s->view = NULL;
    if (!s->placed)
        return false;
    if (s->ahead > s->at) {
        note(s, s->ahead - s->at, why->text);
        s->at = s->ahead;
        place_tell(s, true);
    }
    s->ahead = 0;
    return !s->closed && live_resume(s);
}

static void on_end(int exit_code, const struct err *err, void *arg)
{
    struct brain_session *s = arg;
    bool of_store = s->view != NULL;

    if (s->closed)
        return;
    if (!of_store && (!err || !s->kept)) /* else it is read again */
        batch_pass(s);
    if (!s->closed && err &&
        (of_store ? live_instead(s, err) : kept_instead(s, err->code, NULL)))
        return;
    s->ended = true;
    s->sink.end(exit_code, err, s->sink.arg);
}
int run_last(struct brain *b, const char *ns, const char *name, const struct object **ret,
             struct run_key *ret_key, const char **ret_target, struct err *err)
{
    if (!b->leads)
        return err_set(err, E_UNAVAIL, "this member does not lead; ask the leader");
    const struct object *o = root_get(b->root, KIND_WORKLOAD, ns, name);
    if (!o)
        return err_set(err, E_NOTFOUND, "workload %s/%s does not exist", ns, name);
    const struct workload_status *s = object_as(o, workload)->status;
    if (workload_array(object_as(o, workload)))
        return err_set(err, E_CONFLICT,
                       "workload %s/%s is an array: ask one of its indexes, such as %s-0", ns, name,
                       name);
    const char *target = s && s->placement ? s->placement->target
                         : s && s->n_ends  ? s->ends[s->n_ends - 1].target
                                           : "";
    if (!*target)
        return err_set(err, E_CONFLICT, "workload %s/%s has not run yet (%s: %s)", ns, name,
                       s ? phase_text(s->phase) : "new", s ? s->message : "");
    str_copy(ret_key->uid, sizeof ret_key->uid, o->meta->uid);
    ret_key->epoch = s->epoch;
    ret_key->try_ = s->intent ? s->intent->try_ : 0; /* 0 = whichever try ran last in this epoch */
    *ret = o;
    *ret_target = target;
    return 0;
}

/* The epoch that is asked for instead, which is over, and where it ran. */
static int epoch_find(const struct object *o, const struct api_exec *e, struct run_key *key,
                      const char **ret_target, struct err *err)
{
    const struct workload_status *s = object_as(o, workload)->status;
    int64_t epoch = e->epoch < 0 ? s->epoch - 1 : e->epoch;

    if (!e->epoch || epoch == s->epoch)
        return 0;
    for (uint32_t i = s->n_ends; i > 0; i--)
        if (s->ends[i - 1].epoch == epoch) {
            key->epoch = epoch;
            key->try_ = 0;
            *ret_target = s->ends[i - 1].target;
            return 0;
        }
    return err_set(err, E_NOTFOUND,
                   "workload %s/%s has no epoch %lld of which an end is known: it is in epoch %lld",
                   e->ns, e->workload, (long long)epoch, (long long)s->epoch);
}

static int site_asked(struct brain *b, const char *target, const struct api_exec *e,
                      struct connector **ret, struct err *err)
{
    struct site *t = site_find(b, target);

    if (!t || !t->connector || !t->reachable)
        return err_set(err, E_UNAVAIL, "target %s is out of reach: %s", target,
                       t ? t->why : "it was removed");
    const struct connector_ops *ops = t->connector->ops;
    if (e->port ? !ops->forward : e->argv ? !ops->exec : !ops->logs)
        return err_set(err, E_NOTIMPL,
                       "target %s is of type %s, which has no %s: where its programs run, they can "
                       "be looked at",
                       target, ops->type,
                       e->port   ? "forwarded ports"
                       : e->argv ? "exec"
                                 : "logs");
    *ret = t->connector;
    return 0;
}

static int stream_open(struct brain_session *s, const struct run_key *key,
                       const struct api_exec *e, struct err *err)
{
    const struct log_sink ls = sink_of(s);
    const uint64_t by_ms = loop_now_ms(s->loop) + OPEN_MS;
    struct connector *c = s->connector;

    if (e->port) {
        struct forward_request rq = {.rank = e->rank, .port = e->port, .deadline_ms = by_ms};
        return c->ops->forward(c, key, &rq, &ls, &s->session, err);
    }
    if (e->argv) {
        struct exec_request rq = {.rank = e->rank,
                                  .argv = e->argv,
                                  .tty = e->tty,
                                  .with_stdin = e->with_stdin,
                                  .size = {.rows = e->rows, .columns = e->columns},
                                  .deadline_ms = by_ms};
        return c->ops->exec(c, key, &rq, &ls, &s->session, err);
    }
    struct log_request rq = {.rank = e->rank,
                             .follow = e->follow,
                             .tail_lines = e->tail_lines,
                             .timestamps = e->timestamps,
                             .since_span_ms = e->since_span_ms,
                             .since_ms = e->since_ms,
                             .resumes = e->resumes,
                             .mid = e->mid,
                             .from = e->from,
                             .deadline_ms = by_ms};
    return c->ops->logs(c, key, &rq, &ls, &s->session, err);
}

int brain_exec(struct brain *b, const struct api_exec *e, const struct api_stream_sink *sink,
               struct brain_session **ret, struct err *err)
{
    struct run_key key = {0};
    const struct object *o = NULL;
    const char *target = "";
    int rv = run_last(b, e->ns, e->workload, &o, &key, &target, err);

    if (rv == 0)
        rv = epoch_find(o, e, &key, &target, err);
    if (rv)
        return rv;
    if (e->resumes)
        key.try_ = e->try_;
    struct brain_session *s = mem_new(struct brain_session);
    *s = (struct brain_session){.sink = *sink, .loop = b->loop, .brain = b, .asked = *e};
    s->is_log = !e->argv && !e->port;
    str_copy(s->ns, sizeof s->ns, e->ns);
    str_copy(s->workload, sizeof s->workload, e->workload);
    str_copy(s->target, sizeof s->target, target);
    s->key = key;
    buf_init(&s->batch, BATCH_MAX + 1);
    s->asked.ns = s->ns;
    s->asked.workload = s->workload;
    s->asked.epoch = key.epoch;
    s->asked.who = NULL;
    s->asked.argv = NULL;
    s->kept = s->is_log && kept_view_possible(o, key.epoch);
    s->placed = s->is_log && e->resumes;
    s->at = e->from;
    s->mid = e->mid;
    rv = site_asked(b, target, e, &s->connector, err);
    if (rv == 0)
        rv = stream_open(s, &key, e, err);
    struct err no = {0};
    if (rv && !kept_instead(s, rv, &no)) {
        session_free(s);
        if (no.code && err)
            *err = no;
        return no.code ? no.code : rv;
    }
    *ret = s;
    return 0;
}

void brain_exec_resize(struct brain_session *s, int64_t rows, int64_t columns)
{
    const struct exec_size size = {.rows = rows, .columns = columns};

    if (!s->ended && s->connector && s->connector->ops->exec_resize)
        s->connector->ops->exec_resize(s->session, &size);
}

void brain_exec_input(struct brain_session *s, const void *p, size_t n, bool eof)
{
    const struct connector_ops *ops = s->connector ? s->connector->ops : NULL;

    if (!s->ended && ops && ops->exec_input) /* a driver may have logs alone */
        ops->exec_input(s->session, p, n, eof);
}

size_t brain_exec_pending(const struct brain_session *s)
{
    const struct connector_ops *ops = s->connector ? s->connector->ops : NULL;

    return s->ended || !ops || !ops->exec_pending ? 0 : ops->exec_pending(s->session);
}

void brain_exec_close(struct brain_session *s)
{
    if (s->closed)
        return;
    s->closed = true;
    if (!s->ended && s->view)
        kept_view_close(s->view);
    else if (!s->ended)
        s->connector->ops->exec_close(s->session); /* no end comes after this */
    loop_post(s->loop, session_free, s);
}
