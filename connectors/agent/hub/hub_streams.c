/* Logs, exec and forwarded ports on the server's side: bytes from the session into sinks, with
 * backpressure. */
#include "connectors/agent/hub/hub_internal.h"

#include <stdio.h>
#include <string.h>

#define ROOM_POLL_MS 50
#define INPUT_PIECE 16384
#define CHOKED ((size_t)1 << 30) /* pending, as callers see it, while the agent wants no input */

static struct exec_session *stream_by_id(struct hub *h, uint64_t id)
{
    list_for_each (it, &h->streams) {
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
    mem_free(s);
}

static void stream_opened(struct exec_session *s)
{
    if (s->opened)
        return;
    s->opened = true;
    timer_stop(&s->open);
    if (s->sink.opened)
        s->sink.opened(s->sink.arg); /* which may close it */
}

static void stream_open_by(void *arg)
{
    struct exec_session *s = arg;
    struct hub *h = s->hub;
    struct err err;

    if (!h->session->opens) {
        stream_opened(s);
        return;
    }
    const struct log_sink sink = s->sink;
    (void)err_set(&err, E_TIMEOUT, "agent %s did not open it in time", h->base.target);
    hub_exec_close(s);
    sink.end(1, &err, sink.arg);
}

static void stream_room(void *arg)
{
    struct exec_session *s = arg;

    if (s->sink.full(s->sink.arg)) {
        timer_start(&s->tick, ROOM_POLL_MS);
        return;
    }
    s->paused = false;
    frame_send(s->hub->stream, AF_PAUSE, 0, s->id, NULL, 0);
}

void hub_stream_frame(struct hub *h, const struct frame *f)
{
    struct exec_session *s = stream_by_id(h, f->id);

    if (s && (f->type == AF_OPENED || f->type == AF_DATA)) {
        stream_opened(s);
        s = stream_by_id(h, f->id);
    }
    if (!s || f->type == AF_OPENED)
        return;
    if (f->type == AF_PAUSE) {
        s->choked = f->flags != 0;
        return;
    }
    if (f->type == AF_EOF) {
        if (s->sink.eof)
            s->sink.eof(s->sink.arg);
        return;
    }
    if (f->type == AF_DATA) {
        s->sink.data(f->flags == 2 ? 2 : 1, f->body.p, f->body.n, s->sink.arg);
        s = stream_by_id(h, f->id); /* the sink may have closed it */
        if (s && !s->paused && s->sink.full && s->sink.full(s->sink.arg)) {
            s->paused = true;
            frame_send(h->stream, AF_PAUSE, 1, s->id, NULL, 0);
            timer_start(&s->tick, ROOM_POLL_MS);
        }
        return;
    }
    struct log_sink sink = s->sink;
    struct err err = {0};
    struct wire_end *end = NULL;
    AUTO_ARENA m = arena_create(0);
    int rc = wire_read(wire_end, f->body, m, &end, &err);
    stream_free(s);
    if (rc == 0 && *end->text)
        (void)err_set(&err, end->code < 0 && end->code >= -E_ROW_NR ? end->code : E_INTERNAL, "%s",
                      end->text);
    sink.end(rc == 0 ? end->exit_code : 0, err.code ? &err : NULL, sink.arg);
}

void hub_streams_lost(struct hub *h, const char *why)
{
    while (!list_empty(&h->streams)) {
        struct exec_session *s = container_of(h->streams.next, struct exec_session, link);
        struct log_sink sink = s->sink;
        struct err err;
        (void)err_set(&err, E_CONNECT, "the session with agent %s ended: %.200s", h->base.target,
                      why);
        stream_free(s);
        sink.end(1, &err, sink.arg);
    }
}

static int stream_open(struct connector *c, enum agent_frame type, struct wire_open *q,
                       uint64_t deadline_ms, const struct log_sink *sink, struct exec_session **ret,
                       struct err *err)
{
    struct hub *h = container_of(c, struct hub, base);
    uint64_t now_ms = loop_now_ms(c->env.loop);
    struct exec_session *s;

    if (!h->hello)
        return err_set(err, E_UNAVAIL, "agent %s is not connected", c->target);
    s = mem_new(struct exec_session);
    s->hub = h;
    s->id = ++h->next_id;
    s->sink = *sink;
    timer_init(&s->tick, c->env.loop, stream_room, s);
    timer_init(&s->open, c->env.loop, stream_open_by, s);
    q->opens = h->session->opens;
    q->paces = true;
    if (!q->opens)
        timer_start(&s->open, 0);
    else if (deadline_ms)
        timer_start(&s->open, deadline_ms > now_ms ? deadline_ms - now_ms : 0);
    list_push(&h->streams, &s->link);
    int rc = wire_send(h->stream, type, s->id, wire_open, q, err);
    if (rc < 0)
        stream_free(s);
    else
        *ret = s;
    return rc;
}

/* An agent that is older than what is asked for must not do something else instead. */
static int stream_known(struct connector *c, bool asked, bool (*knows)(const struct hub_session *x),
                        const char *what, struct err *err)
{
    struct hub *h = container_of(c, struct hub, base);

    if (asked && h->hello && !knows(h->session))
        return err_set(err, E_NOTIMPL, "the agent of target %s is of a version without %s",
                       c->target, what);
    return 0;
}

static bool knows_times(const struct hub_session *x)
{
    return x->times;
}
static bool knows_terminals(const struct hub_session *x)
{
    return x->terminals;
}
static bool knows_forward(const struct hub_session *x)
{
    return x->forwards;
}

int hub_logs(struct connector *c, const struct run_key *k, const struct log_request *rq,
             const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    struct wire_open q = {.key = *k,
                          .rank = rq->rank,
                          .follow = rq->follow,
                          .tail = rq->tail_lines,
                          .timestamps = rq->timestamps,
                          .since_span_ms = rq->since_span_ms,
                          .since_ms = rq->since_ms};
    bool times = rq->timestamps || rq->since_span_ms || rq->since_ms;
    int rc = stream_known(c, times, knows_times, "times of what programs print", err);

    return rc ? rc : stream_open(c, AF_LOGS, &q, rq->deadline_ms, sink, ret, err);
}

int hub_exec(struct connector *c, const struct run_key *k, const struct exec_request *rq,
             const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    AUTO_ARENA m = arena_create(0);
    struct wire_open q = {.key = *k,
                          .rank = rq->rank,
                          .tty = rq->tty,
                          .with_stdin = rq->with_stdin,
                          .rows = rq->size.rows,
                          .columns = rq->size.columns};
    uint32_t n = 0;
    int rc = stream_known(c, rq->tty, knows_terminals, "terminals for exec", err);

    if (rc)
        return rc;
    while (rq->argv && rq->argv[n])
        n++;
    q.argv = arena_array(m, const char *, n + 1);
    for (; q.n_argv < n; q.n_argv++)
        q.argv[q.n_argv] = rq->argv[q.n_argv];
    return stream_open(c, AF_EXEC, &q, rq->deadline_ms, sink, ret, err);
}

int hub_forward(struct connector *c, const struct run_key *k, const struct forward_request *rq,
                const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    struct wire_open q = {.key = *k, .rank = rq->rank, .port = rq->port};
    int rc = stream_known(c, true, knows_forward, "forwarded ports", err);

    return rc ? rc : stream_open(c, AF_FORWARD, &q, rq->deadline_ms, sink, ret, err);
}

void hub_exec_resize(struct exec_session *s, const struct exec_size *size)
{
    const struct wire_size q = {.rows = size->rows, .columns = size->columns};

    if (s->hub->stream)
        wire_tell(s->hub->stream, AF_SIZE, s->id, wire_size, &q);
}

void hub_exec_input(struct exec_session *s, const void *p, size_t n, bool eof)
{
    const char *b = p;

    while (n > INPUT_PIECE) {
        frame_send(s->hub->stream, AF_INPUT, 0, s->id, b, INPUT_PIECE);
        b += INPUT_PIECE;
        n -= INPUT_PIECE;
    }
    frame_send(s->hub->stream, AF_INPUT, eof ? 1 : 0, s->id, b, n);
}

size_t hub_exec_pending(const struct exec_session *s)
{
    return s->hub->stream ? stream_pending(s->hub->stream) + (s->choked ? CHOKED : 0) : 0;
}

void hub_exec_close(struct exec_session *s)
{
    if (s->hub->stream)
        frame_send(s->hub->stream, AF_CLOSE, 0, s->id, NULL, 0);
    stream_free(s);
}
