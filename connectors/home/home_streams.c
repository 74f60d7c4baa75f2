/* The hub's side of what streams through the sessions of runners that call home
 * (connectors/streams): whose it is, and why it cannot be had. A stream belongs to the session in
 * which it was opened: what a runner says of others is not heard.
 *
 * And what their programs print is kept (connectors/kept): piece by piece it comes through the
 * session, few at a time, and goes into the store from here, since whoever is beside a tenant's
 * program must hold no key to a store with the logs of all tenants. */
#include "connectors/home/home_internal.h"

#include "api/base/log.h"

#include <stdio.h>
#include <string.h>

#define INPUT_MAX 65536 /* on the session, before who types waits: renewals go by it */
#define TARGET_MAX 1024 /* streams of one target */
#define PIECE_MS 30000  /* for a runner to send a piece: others wait for its place */

/* ---- what is kept ---- */
static void places_fill(struct home_runs *h)
{
    for (struct list *e; h->places < HOME_PLACES && (e = list_pop(&h->waiting)) != NULL;) {
        struct home_keeping *k = container_of(e, struct home_keeping, waits);
        k->placed = true;
        h->places++;
        timer_start(&k->patience, PIECE_MS);
        asked_go(k->stream);
    }
}

/* What had come of a piece is let go, and so is its place. */
static void place_leave(struct home_session *x)
{
    struct home_keeping *k = &x->keeping;
    struct home_runs *h = x->run->home;

    list_remove(&k->waits);
    timer_stop(&k->patience);
    buf_fini(&k->piece);
    buf_init(&k->piece, KEPT_PACKED_MAX + 1);
    if (!k->placed)
        return;
    k->placed = false;
    h->places--;
    places_fill(h);
}

/* Nobody is there whose log it could be, and what was is kept or lost. */
static void keep_look(void *arg)
{
    struct home_session *x = arg;
    struct home_keeping *k = &x->keeping;

    if (k->writer && !x->stream && !kept_writer_holds(k->writer))
        k->writer = kept_writer_destroy(k->writer);
}

/* It keeps its place and sends nothing: to the end of the queue with it. */
static void piece_late(void *arg)
{
    struct home_session *x = arg;
    struct home_keeping *k = &x->keeping;

    if (k->stream)
        asked_close(k->stream);
    k->stream = NULL;
    place_leave(x);
    if (k->writer)
        kept_writer_again(k->writer);
}

static void piece_opened(void *arg)
{
    struct home_session *x = arg;

    if (x->keeping.all)
        return;
    list_push(&x->run->home->waiting, &x->keeping.waits);
    places_fill(x->run->home);
}

static void keep_stop(struct home_session *x, const char *why)
{
    char key[RUN_KEY_MAX];

    run_key_print(&x->run->key, key);
    log_event(LOG_WARN, "logs.not_kept",
              LOG_FIELDS({"key", log_str(key)}, {"rank", log_i64(x->rank)}, {"why", log_str(why)}));
    if (x->keeping.stream)
        asked_close(x->keeping.stream);
    x->keeping.stream = NULL;
    place_leave(x);
    x->keeping.writer = kept_writer_destroy(x->keeping.writer);
}

static void piece_data(int fd, const void *p, size_t n, void *arg)
{
    struct home_session *x = arg;
    struct home_keeping *k = &x->keeping;

    (void)fd;
    if (k->placed && k->piece.n + n <= KEPT_PACKED_MAX)
        buf_add(&k->piece, p, n);
    else
        keep_stop(x, "its runner sends what it was not asked for");
}

static void piece_end(int exit_code, const struct err *why, void *arg)
{
    struct home_session *x = arg;
    struct home_keeping *k = &x->keeping;
    bool done = k->all && exit_code == 0 && !why;
    struct err err = {0};

    k->stream = NULL;
    timer_stop(&k->patience);
    if (!k->writer)
        return;
    if (done) {
        k->writer = kept_writer_destroy(k->writer);
    } else if (!k->placed || why) { /* it broke off, or has nothing to give */
        place_leave(x);
        kept_writer_again(k->writer);
    } else if (kept_writer_piece(k->writer, slice_make(k->piece.p, k->piece.n), &err) < 0) {
        keep_stop(x, err.text);
    } else { /* the place is kept until the store has it */
        buf_fini(&k->piece);
        buf_init(&k->piece, KEPT_PACKED_MAX + 1);
    }
}

static void keep_ask(uint64_t from, bool all, void *arg)
{
    static const struct log_sink sink = {
        .opened = piece_opened, .data = piece_data, .end = piece_end};
    struct home_session *x = arg;
    struct home_keeping *k = &x->keeping;
    struct log_sink mine = sink;
    struct err err;

    if (!x->stream || k->stream)
        return; /* it comes again, and is asked then */
    mine.arg = x;
    k->all = all;
    if (asked_keep(&x->streams, ++x->run->home->next_stream, &x->run->key, x->rank, from, all,
                   &mine, &k->stream, &err) < 0)
        kept_writer_again(k->writer);
}

static void keep_empty(void *arg)
{
    struct home_session *x = arg;

    place_leave(x);
    if (!x->stream)
        timer_start(&x->keeping.look, 0);
}

static void keep_work(struct kept_job *j, void *arg)
{
    const struct home_session *x = arg;

    kept_queue_add(x->keeping.queue, j, x->run->home);
}

void home_keep_begin(struct home_session *x, const struct home_keep *keep)
{
    struct home_keeping *k = &x->keeping;

    if (k->writer) {
        kept_writer_again(k->writer);
        return;
    }
    if (!keep || !x->keeps) {
        if (keep)
            log_event(LOG_WARN, "logs.not_kept",
                      LOG_FIELDS({"store", log_str(keep->base)}, {"rank", log_i64(x->rank)},
                                 {"why", log_str("its runner is of an older version, or has no "
                                                 "folder for a log")}));
        return;
    }
    const struct kept_config cfg = {.loop = x->run->home->loop,
                                    .base = keep->base,
                                    .env = keep->env,
                                    .roots = keep->roots,
                                    .rank = x->rank,
                                    .max_bytes = keep->max_bytes,
                                    .begin = keep_work,
                                    .ask = keep_ask,
                                    .empty = keep_empty,
                                    .arg = x};
    k->queue = keep->queue;
    k->writer = kept_writer_create(&cfg);
}

void home_keep_lost(struct home_session *x)
{
    keep_look(x);
}

void home_keep_end(struct home_session *x)
{
    x->keeping.writer = kept_writer_destroy(x->keeping.writer);
    timer_stop(&x->keeping.look);
    place_leave(x);
    buf_fini(&x->keeping.piece);
}

void home_streams_init(struct home_session *x)
{
    char who[sizeof x->streams.who];

    (void)snprintf(who, sizeof who, "the runner of rank %lld", (long long)x->rank);
    asked_init(&x->streams, x->run->home->loop, who, INPUT_MAX);
    list_init(&x->keeping.waits);
    buf_init(&x->keeping.piece, KEPT_PACKED_MAX + 1);
    timer_init(&x->keeping.look, x->run->home->loop, keep_look, x);
    timer_init(&x->keeping.patience, x->run->home->loop, piece_late, x);
}

int home_stream_frame(struct home_session *x, const struct frame *f, struct err *err)
{
    if (f->id == 0 || f->id > x->run->home->next_stream)
        return err_set(err, E_INVALID, "nobody ever opened stream %llu",
                       (unsigned long long)f->id);
    asked_frame(&x->streams, f);
    return 0;
}

/* ---- asking ---- */
static unsigned streams_of_users(const struct home_session *x)
{
    return x->streams.n - (x->keeping.stream != NULL);
}

static unsigned streams_count(const struct home_runs *h)
{
    unsigned n = 0;

    list_for_each (it, &h->all)
        list_for_each (jt, &container_of(it, struct home_run, link)->sessions)
            n += streams_of_users(container_of(jt, struct home_session, link));
    return n;
}

/* The session with the runner of that rank, which is here. */
static int session_here(const struct home_runs *h, const struct run_key *k, int64_t rank,
                        bool of_logs, struct home_session **ret, struct err *err)
{
    const struct home_run *r = home_run_newest(h, k);
    struct home_session *x = r ? home_session_find(r, rank) : NULL;
    const char *log = of_logs ? ", and its log went with it: there is what its target keeps of its "
                                "output"
                              : "";

    if (r && (rank < 0 || rank >= r->ranks))
        return err_set(err, E_NOTFOUND, "there is no rank %lld: the run has %lld workers",
                       (long long)rank, (long long)r->ranks);
    if (x && !x->stream && x->report.step == RUN_STEP_ENDED)
        return err_set(err, of_logs ? E_NOTFOUND : E_CONFLICT,
                       "the runner of rank %lld has ended%s", (long long)rank, log);
    if (!x || !x->stream)
        return err_set(err, E_UNAVAIL,
                       "the runner of rank %lld is not here: it has ended, or does not reach this "
                       "hub%s",
                       (long long)rank, of_logs ? "; its target may keep what it prints" : "");
    if (streams_count(h) >= TARGET_MAX)
        return err_set(err, E_LIMIT,
                       "more than %d logs, execs and forwarded ports at a time of one target",
                       TARGET_MAX);
    *ret = x;
    return 0;
}

int home_runs_logs(struct home_runs *h, const struct run_key *k, const struct log_request *rq,
                   const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    struct home_session *x = NULL;
    int rc = session_here(h, k, rq->rank, true, &x, err);

    if (rc < 0)
        return rc;
    if (!x->logs)
        return err_set(err, E_NOTIMPL,
                       "the runner of rank %lld keeps no log: it is of an older version, or had no "
                       "folder for one",
                       (long long)rq->rank);
    return asked_logs(&x->streams, ++h->next_stream, &x->run->key, rq, sink, ret, err);
}

/* Of a program that runs: also its runner asks that again. */
static int session_beside(const struct home_runs *h, const struct run_key *k, int64_t rank,
                          struct home_session **ret, struct err *err)
{
    int rc = session_here(h, k, rank, false, ret, err);

    if (rc < 0)
        return rc;
    if (!(*ret)->execs)
        return err_set(err, E_NOTIMPL,
                       "the runner of rank %lld puts no command beside its program and forwards no "
                       "port: it is of an older version, or had no folder for the socket that this "
                       "needs",
                       (long long)rank);
    if ((*ret)->report.step != RUN_STEP_RUNNING)
        return err_set(err, E_CONFLICT, "worker %lld does not run at the moment", (long long)rank);
    return 0;
}

int home_runs_exec(struct home_runs *h, const struct run_key *k, const struct exec_request *rq,
                   const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    struct home_session *x = NULL;
    int rc = session_beside(h, k, rq->rank, &x, err);

    return rc < 0 ? rc
                  : asked_exec(&x->streams, ++h->next_stream, &x->run->key, rq, sink, ret, err);
}

int home_runs_forward(struct home_runs *h, const struct run_key *k,
                      const struct forward_request *rq, const struct log_sink *sink,
                      struct exec_session **ret, struct err *err)
{
    struct home_session *x = NULL;
    int rc = session_beside(h, k, rq->rank, &x, err);

    return rc < 0 ? rc
                  : asked_forward(&x->streams, ++h->next_stream, &x->run->key, rq, sink, ret, err);
}
