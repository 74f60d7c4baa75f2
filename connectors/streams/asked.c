/* The hub's side: what comes on a session goes into sinks, with backpressure, and never waits here.
 * Who does not heed that is cut off: a stream of which more comes after a pause than can have been
 * on its way ends. */
#include "connectors/streams/streams.h"

#include <string.h>

#define ROOM_POLL_MS 50
#define INPUT_PIECE 16384
#define CHOKED ((size_t)1 << 30)    /* pending, as callers see it, while no input is wanted */
#define OVER_MAX ((size_t)32 << 20) /* of one session, on its way when it was told to pause */

struct asked {
    struct exec_session base; /* first */
    struct list link;
    struct asked_streams *of;
    uint64_t id;
    struct log_sink sink;
    struct timer tick; /* looks again whether a full sink has room */
    struct timer open; /* its deadline; of an agent that does not tell: opens it */
    bool forward, opened, paused, eof;
    bool choked; /* the other side wants no input for now */
    size_t over; /* its part of asked_streams.over */
};

void asked_init(struct asked_streams *v, struct loop *l, const char *who, size_t input_max)
{
    *v = (struct asked_streams){.loop = l, .opens = true, .input_max = input_max};
    str_copy(v->who, sizeof v->who, who);
    list_init(&v->all);
}

static struct asked *by_id(const struct asked_streams *v, uint64_t id)
{
    list_for_each (it, &v->all) {
        struct asked *s = container_of(it, struct asked, link);
        if (s->id == id)
            return s;
    }
    return NULL;
}

static void session_free(struct asked *s)
{
    timer_stop(&s->tick);
    timer_stop(&s->open);
    list_remove(&s->link);
    s->of->n--;
    s->of->over -= s->over;
    mem_free(s);
}

static void session_end(struct asked *s, int exit_code, const struct err *why)
{
    const struct log_sink sink = s->sink;

    session_free(s);
    sink.end(exit_code, why, sink.arg);
}

static struct asked *asked_of(const struct exec_session *s)
{
    return (struct asked *)(uintptr_t)container_of(s, struct asked, base);
}

void asked_close(struct exec_session *base)
{
    struct asked *s = asked_of(base);

    if (s->of->to)
        frame_send(s->of->to, SF_CLOSE, 0, s->id, NULL, 0);
    session_free(s);
}

/* The other side hears that it is not wanted any more. */
static void session_cut(struct asked *s, const struct err *why)
{
    const struct log_sink sink = s->sink;

    asked_close(&s->base);
    sink.end(1, why, sink.arg);
}

static void session_opened(struct asked *s)
{
    if (s->opened)
        return;
    s->opened = true;
    timer_stop(&s->open);
    if (s->sink.opened)
        s->sink.opened(s->sink.arg); /* which may close it */
}

static void session_open_by(void *arg)
{
    struct asked *s = arg;
    struct err err;

    if (!s->of->opens) {
        session_opened(s);
        return;
    }
    (void)err_set(&err, E_TIMEOUT, "%s did not open it in time", s->of->who);
    session_cut(s, &err);
}

static void session_room(void *arg)
{
    struct asked *s = arg;

    if (s->sink.full(s->sink.arg)) {
        timer_start(&s->tick, ROOM_POLL_MS);
        return;
    }
    s->paused = false;
    s->of->over -= s->over;
    s->over = 0;
    frame_send(s->of->to, SF_PAUSE, 0, s->id, NULL, 0);
}

/* ---- what the other side says ---- */
static void data_came(struct asked_streams *v, struct asked *s, const struct frame *f)
{
    struct err err;
    uint64_t id = s->id;

    if (s->eof) /* it had said that nothing more comes */
        return;
    if (s->paused) {
        s->over += f->body.n;
        v->over += f->body.n;
    }
    if (v->over > OVER_MAX) {
        (void)err_set(&err, E_LIMIT, "%s goes on sending while nobody takes it", v->who);
        session_cut(s, &err);
        return;
    }
    s->sink.data(f->flags == 2 ? 2 : 1, f->body.p, f->body.n, s->sink.arg);
    s = by_id(v, id); /* the sink may have closed it */
    if (!s || s->paused || !s->sink.full || !s->sink.full(s->sink.arg))
        return;
    s->paused = true;
    frame_send(v->to, SF_PAUSE, 1, s->id, NULL, 0);
    timer_start(&s->tick, ROOM_POLL_MS);
}

static void end_came(struct asked *s, const struct frame *f)
{
    struct wire_end *end = NULL;
    struct err err = {0};
    AUTO_ARENA m = arena_create(0);
    int code = 1;

    if (wire_read(wire_end, f->body, m, &end, &err) == 0) {
        code = end->exit_code >= 0 && end->exit_code < 256 ? end->exit_code : 1;
        if (*end->text)
            (void)err_set(&err, end->code < 0 && end->code >= -E_ROW_NR ? end->code : E_INTERNAL,
                          "%.400s", end->text);
    }
    session_end(s, code, err.code ? &err : NULL);
}

static void at_came(struct asked *s, const struct frame *f)
{
    struct wire_at *at = NULL;
    AUTO_ARENA m = arena_create(0);

    if (!s->opened || !s->sink.at || wire_read(wire_at, f->body, m, &at, NULL) < 0)
        return;
    const struct log_at told = {at->from, at->gap, at->front, at->lines, at->try_};
    s->sink.at(&told, s->sink.arg); /* which may close it */
}

bool asked_is_frame(uint8_t type)
{
    return type == SF_DATA || type == SF_END || type == SF_PAUSE || type == SF_OPENED ||
           type == SF_EOF || type == SF_AT;
}

void asked_frame(struct asked_streams *v, const struct frame *f)
{
    struct asked *s = by_id(v, f->id);

    if (s && (f->type == SF_OPENED || f->type == SF_DATA)) {
        session_opened(s);
        s = by_id(v, f->id); /* it may have closed it */
    }
    if (!s) /* it ended meanwhile */
        return;
    if (f->type == SF_DATA) {
        data_came(v, s, f);
    } else if (f->type == SF_PAUSE) {
        s->choked = f->flags != 0;
    } else if (f->type == SF_EOF && s->forward && s->opened && !s->eof) {
        s->eof = true;
        if (s->sink.eof)
            s->sink.eof(s->sink.arg);
    } else if (f->type == SF_AT) {
        at_came(s, f);
    } else if (f->type == SF_END) {
        end_came(s, f);
    }
}

void asked_lost(struct asked_streams *v, const char *why)
{
    struct err err;

    v->to = NULL;
    while (!list_empty(&v->all)) {
        (void)err_set(&err, E_CONNECT, "the session with %s ended%s%.200s", v->who,
                      *why ? ": " : "", why);
        session_end(container_of(v->all.next, struct asked, link), 1, &err);
    }
}

/* ---- asking ---- */
static int asked_open(struct asked_streams *v, enum stream_frame type, uint64_t id,
                      struct wire_open *q, uint64_t deadline_ms, const struct log_sink *sink,
                      struct exec_session **ret, struct err *err)
{
    static const struct exec_session_ops ops = {.input = asked_input,
                                                .pending = asked_pending,
                                                .resize = asked_resize,
                                                .close = asked_close};
    uint64_t now_ms = loop_now_ms(v->loop);

    PRE(v->to);
    if (v->n >= STREAMS_MAX)
        return err_set(err, E_LIMIT,
                       "more than %d logs, execs and forwarded ports at a time of %s", STREAMS_MAX,
                       v->who);
    q->opens = v->opens;
    q->paces = true;
    int rc = wire_send(v->to, (int)type, id, wire_open, q, err);
    if (rc < 0)
        return rc;
    struct asked *s = mem_new(struct asked);
    *s = (struct asked){
        .base = {&ops}, .of = v, .id = id, .sink = *sink, .forward = type == SF_FORWARD};
    timer_init(&s->tick, v->loop, session_room, s);
    timer_init(&s->open, v->loop, session_open_by, s);
    if (!q->opens)
        timer_start(&s->open, 0);
    else if (deadline_ms)
        timer_start(&s->open, deadline_ms > now_ms ? deadline_ms - now_ms : 0);
    list_push(&v->all, &s->link);
    v->n++;
    *ret = &s->base;
    return 0;
}

int asked_logs(struct asked_streams *v, uint64_t id, const struct run_key *k,
               const struct log_request *rq, const struct log_sink *sink, struct exec_session **ret,
               struct err *err)
{
    struct wire_open q = {.key = *k,
                          .rank = rq->rank,
                          .follow = rq->follow,
                          .tail = rq->tail_lines,
                          .timestamps = rq->timestamps,
                          .since_span_ms = rq->since_span_ms,
                          .since_ms = rq->since_ms,
                          .places = v->places && sink->at,
                          .resumes = rq->resumes,
                          .from = rq->from,
                          .mid = rq->mid};

    if (rq->resumes && !v->places)
        return err_set(err, E_NOTIMPL, "%s is of a version that does not tell where a log is",
                       v->who);
    return asked_open(v, SF_LOGS, id, &q, rq->deadline_ms, sink, ret, err);
}

int asked_keep(struct asked_streams *v, uint64_t id, const struct run_key *k, int64_t rank,
               uint64_t from, bool kept, const struct log_sink *sink, struct exec_session **ret,
               struct err *err)
{
    struct wire_open q = {.key = *k, .rank = rank, .from = from, .kept = kept};

    return asked_open(v, SF_KEEP, id, &q, 0, sink, ret, err);
}

void asked_go(struct exec_session *base)
{
    const struct asked *s = asked_of(base);

    if (s->of->to)
        frame_send(s->of->to, SF_PAUSE, 0, s->id, NULL, 0);
}

static int64_t sized(int64_t told)
{
    return told < 0 ? 0 : told > EXEC_SIZE_MAX ? EXEC_SIZE_MAX : told;
}

int asked_exec(struct asked_streams *v, uint64_t id, const struct run_key *k,
               const struct exec_request *rq, const struct log_sink *sink,
               struct exec_session **ret, struct err *err)
{
    AUTO_ARENA m = arena_create(0);
    struct wire_open q = {.key = *k,
                          .rank = rq->rank,
                          .tty = rq->tty,
                          .with_stdin = rq->with_stdin,
                          .rows = sized(rq->size.rows),
                          .columns = sized(rq->size.columns)};
    uint32_t n = 0;

    while (rq->argv && rq->argv[n])
        n++;
    q.argv = arena_array(m, const char *, n + 1);
    for (; q.n_argv < n; q.n_argv++)
        q.argv[q.n_argv] = rq->argv[q.n_argv];
    return asked_open(v, SF_EXEC, id, &q, rq->deadline_ms, sink, ret, err);
}

int asked_forward(struct asked_streams *v, uint64_t id, const struct run_key *k,
                  const struct forward_request *rq, const struct log_sink *sink,
                  struct exec_session **ret, struct err *err)
{
    struct wire_open q = {.key = *k, .rank = rq->rank, .port = rq->port};

    return asked_open(v, SF_FORWARD, id, &q, rq->deadline_ms, sink, ret, err);
}

void asked_resize(struct exec_session *base, const struct exec_size *size)
{
    const struct asked *s = asked_of(base);
    const struct wire_size q = {.rows = sized(size->rows), .columns = sized(size->columns)};

    if (s->of->to)
        wire_tell(s->of->to, SF_SIZE, s->id, wire_size, &q);
}

void asked_input(struct exec_session *base, const void *p, size_t n, bool eof)
{
    const struct asked *s = asked_of(base);
    const char *b = p;

    for (; s->of->to && n > INPUT_PIECE; b += INPUT_PIECE, n -= INPUT_PIECE)
        frame_send(s->of->to, SF_INPUT, 0, s->id, b, INPUT_PIECE);
    if (s->of->to)
        frame_send(s->of->to, SF_INPUT, eof ? 1 : 0, s->id, b, n);
}

size_t asked_pending(const struct exec_session *base)
{
    const struct asked *s = asked_of(base);
    size_t n = s->of->to ? stream_pending(s->of->to) : 0;

    return s->choked || n > s->of->input_max ? n + CHOKED : n;
}
