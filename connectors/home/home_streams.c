/* The hub's side of what streams through the sessions of runners that call home: logs. A stream
 * belongs to the session in which it was opened: what a runner says of others is not heard. Bytes
 * go into sinks with backpressure, and never wait here. */
#include "connectors/home/home_internal.h"

#include <string.h>

#define ROOM_POLL_MS 50
#define STREAMS_MAX 1024 /* of one target */
#define STREAMS_EACH 16  /* of one runner */

struct exec_session { /* an open log */
    struct list link;
    struct home_session *of;
    uint64_t id;
    struct log_sink sink;
    struct timer tick; /* looks again whether a full sink has room */
    struct timer open; /* its deadline */
    bool opened, paused;
};

static struct exec_session *stream_by_id(const struct home_session *x, uint64_t id)
{
    list_for_each (it, &x->streams) {
        struct exec_session *s = container_of(it, struct exec_session, link);
        if (s->id == id)
            return s;
    }
    return NULL;
}

static void stream_free(struct exec_session *s)
{
    timer_stop(&s->tick);
    timer_stop(&s->open);
    list_remove(&s->link);
    s->of->run->home->n_streams--;
    mem_free(s);
}

static void stream_end(struct exec_session *s, const struct err *why)
{
    const struct log_sink sink = s->sink;

    stream_free(s);
    sink.end(why ? 1 : 0, why, sink.arg);
}

static void stream_open_by(void *arg)
{
    struct exec_session *s = arg;
    struct err err;

    if (s->of->stream)
        frame_send(s->of->stream, HOME_CLOSE, 0, s->id, NULL, 0);
    (void)err_set(&err, E_TIMEOUT, "the runner of rank %lld did not open it in time",
                  (long long)s->of->rank);
    stream_end(s, &err);
}

static void stream_room(void *arg)
{
    struct exec_session *s = arg;

    if (s->sink.full(s->sink.arg)) {
        timer_start(&s->tick, ROOM_POLL_MS);
        return;
    }
    s->paused = false;
    frame_send(s->of->stream, HOME_PAUSE, 0, s->id, NULL, 0);
}

static void stream_data(struct home_session *x, struct exec_session *s, const struct frame *f)
{
    s->sink.data(f->flags == 2 ? 2 : 1, f->body.p, f->body.n, s->sink.arg);
    s = stream_by_id(x, f->id); /* the sink may have closed it */
    if (!s || s->paused || !s->sink.full || !s->sink.full(s->sink.arg))
        return;
    s->paused = true;
    frame_send(x->stream, HOME_PAUSE, 1, s->id, NULL, 0);
    timer_start(&s->tick, ROOM_POLL_MS);
}

static void stream_ended(struct exec_session *s, const struct frame *f)
{
    struct wire_end *end = NULL;
    struct err err = {0};
    AUTO_ARENA m = arena_create(0);

    if (wire_read(wire_end, f->body, m, &end, &err) == 0 && *end->text)
        (void)err_set(&err, end->code < 0 && end->code >= -E_ROW_NR ? end->code : E_INTERNAL,
                      "%.400s", end->text);
    stream_end(s, err.code ? &err : NULL);
}

void home_stream_frame(struct home_session *x, const struct frame *f)
{
    struct exec_session *s = stream_by_id(x, f->id);

    if (!s)
        return; /* it ended meanwhile */
    if ((f->type == HOME_OPENED || f->type == HOME_DATA) && !s->opened) {
        s->opened = true;
        timer_stop(&s->open);
        if (s->sink.opened)
            s->sink.opened(s->sink.arg);
        s = stream_by_id(x, f->id); /* it may have closed it */
    }
    if (s && f->type == HOME_DATA)
        stream_data(x, s, f);
    else if (s && f->type == HOME_END)
        stream_ended(s, f);
}

void home_streams_lost(struct home_session *x)
{
    struct err err;

    while (!list_empty(&x->streams)) {
        (void)err_set(&err, E_CONNECT, "the session with the runner of rank %lld ended",
                      (long long)x->rank);
        stream_end(container_of(x->streams.next, struct exec_session, link), &err);
    }
}

/* ---- asking ---- */
static int room_for(const struct home_runs *h, const struct home_session *x, struct err *err)
{
    unsigned n = 0;

    list_for_each (it, &x->streams)
        n++;
    return n < STREAMS_EACH && h->n_streams < STREAMS_MAX
               ? 0
               : err_set(err, E_LIMIT,
                         "more than %d logs at a time of one runner, or %d of a target",
                         STREAMS_EACH, STREAMS_MAX);
}

int home_runs_logs(struct home_runs *h, const struct run_key *k, const struct log_request *rq,
                   const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    const struct home_run *r = home_run_newest(h, k);
    struct home_session *x = r ? home_session_find(r, rq->rank) : NULL;
    uint64_t now_ms = loop_now_ms(h->loop);

    if (r && (rq->rank < 0 || rq->rank >= r->ranks))
        return err_set(err, E_NOTFOUND, "there is no rank %lld: the run has %lld workers",
                       (long long)rq->rank, (long long)r->ranks);
    if (x && !x->stream && x->report.step == RUN_STEP_ENDED)
        return err_set(err, E_NOTFOUND,
                       "the runner of rank %lld has ended, and its log went with it: there is what "
                       "its target keeps of its output",
                       (long long)rq->rank);
    if (!x || !x->stream)
        return err_set(err, E_UNAVAIL,
                       "the runner of rank %lld is not here: it has ended, or does not reach this "
                       "hub; its target may keep what it prints",
                       (long long)rq->rank);
    if (!x->logs)
        return err_set(err, E_NOTIMPL,
                       "the runner of rank %lld keeps no log: it is of an older version, or had no "
                       "folder for one",
                       (long long)rq->rank);
    int rc = room_for(h, x, err);
    if (rc < 0)
        return rc;
    struct exec_session *s = mem_new(struct exec_session);
    s->of = x;
    s->id = ++h->next_stream;
    s->sink = *sink;
    timer_init(&s->tick, h->loop, stream_room, s);
    timer_init(&s->open, h->loop, stream_open_by, s);
    if (rq->deadline_ms)
        timer_start(&s->open, rq->deadline_ms > now_ms ? rq->deadline_ms - now_ms : 0);
    list_push(&x->streams, &s->link);
    h->n_streams++;
    const struct wire_open q = {.key = r->key,
                                .rank = rq->rank,
                                .follow = rq->follow,
                                .tail = rq->tail_lines,
                                .opens = true,
                                .timestamps = rq->timestamps,
                                .since_span_ms = rq->since_span_ms,
                                .since_ms = rq->since_ms};
    wire_tell(x->stream, HOME_LOGS, s->id, wire_open, &q);
    *ret = s;
    return 0;
}

void home_runs_stream_close(struct exec_session *s)
{
    if (s->of->stream)
        frame_send(s->of->stream, HOME_CLOSE, 0, s->id, NULL, 0);
    stream_free(s);
}
