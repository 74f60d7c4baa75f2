/* The side of the programs: the streams of one session, and logs, which are read from the file in
 * pieces, on a timer while followed. Execs and ports are in attached.c. */
#include "connectors/streams/streams_internal.h"

#define FOLLOW_MS 200
#define LOG_ROOM ((size_t)2 * OUTPUT_PIECE)

struct served *served_by_id(const struct streams *v, uint64_t id)
{
    list_for_each (it, &v->all) {
        struct served *s = container_of(it, struct served, link);
        if (s->id == id)
            return s;
    }
    return NULL;
}

void served_free(struct served *s)
{
    timer_stop(&s->tick);
    list_remove(&s->link);
    s->streams->n--;
    attached_free(s);
    buf_fini(&s->piece);
    mem_free(s);
}

void served_end(struct served *s, int code, const struct err *err)
{
    const struct wire_end end = {
        .exit_code = code, .code = err ? err->code : 0, .text = err ? err->text : ""};

    if (s->streams->to)
        wire_tell(s->streams->to, SF_END, s->id, wire_end, &end);
    served_free(s);
}

void served_opened(struct served *s)
{
    if (s->opens && s->streams->to)
        frame_send(s->streams->to, SF_OPENED, 0, s->id, NULL, 0);
    s->opens = false;
}

bool served_crowded(const struct served *s)
{
    const struct streams *v = s->streams;

    return s->paused || !v->to || stream_pending(v->to) > v->cfg.pending_max;
}

/* ---- logs ---- */
static void logs_at(struct served *s, struct wire_at at)
{
    if (s->streams->to)
        wire_tell(s->streams->to, SF_AT, s->id, wire_at, &at);
    s->told_at = at.from;
}

static void logs_tick(void *arg)
{
    struct served *s = arg;
    const struct streams_config *cfg = &s->streams->cfg;
    /* before reading: what came last is read once more */
    enum log_state state = cfg->ops->log_state(cfg->arg, &s->key);
    bool again = false;
    struct err err;
    AUTO_BUF b;

    buf_init(&b, LOG_ROOM);
    if (state == LOG_GONE) {
        served_end(s, 0, NULL);
        return;
    }
    if (served_crowded(s)) {
        timer_start(&s->tick, SERVED_AGAIN_MS);
        return;
    }
    if (output_next(&s->output, loop_wall_ms(cfg->loop), &b, &again, &err) < 0) {
        served_end(s, 1, &err);
        return;
    }
    if (s->places && s->output.missed)
        logs_at(s, (struct wire_at){.from = s->output.came, .gap = true});
    s->output.missed = 0;
    for (size_t at = 0; at < b.n; at += SERVED_FRAME)
        frame_send(s->streams->to, SF_DATA, 1, s->id, b.p + at,
                   b.n - at < SERVED_FRAME ? b.n - at : SERVED_FRAME);
    if (s->places && s->output.base + s->output.offset != s->told_at)
        logs_at(s, (struct wire_at){.from = s->output.base + s->output.offset});
    if (again)
        timer_start(&s->tick, b.n > 0 ? 0 : SERVED_AGAIN_MS);
    else if (!s->follow || state == LOG_WHOLE)
        served_end(s, 0, NULL);
    else
        timer_start(&s->tick, FOLLOW_MS);
}

static int logs_open(struct served *s, struct wire_open *q, struct err *err)
{
    const struct streams_config *cfg = &s->streams->cfg;
    const struct output_request wanted = {.tail_lines = q->tail,
                                          .timestamps = q->timestamps,
                                          .since_span_ms = q->since_span_ms,
                                          .since_ms = q->since_ms,
                                          .resumes = q->resumes,
                                          .mid = q->mid,
                                          .from = q->from};
    char path[4096];
    int rc = cfg->ops->logs(cfg->arg, q, path, err);

    if (rc == 0)
        rc = output_open(&s->output, cfg->loop, path, &wanted, err);
    if (rc < 0)
        return rc;
    s->key = q->key;
    s->follow = q->follow;
    timer_init(&s->tick, cfg->loop, logs_tick, s);
    timer_start(&s->tick, 0);
    served_opened(s);
    s->places = q->places;
    if (q->places)
        logs_at(s, (struct wire_at){.from = s->output.base + s->output.offset,
                                    .front = s->output.front,
                                    .lines = s->output.lines,
                                    .try_ = s->key.try_});
    return 0;
}

/* ---- requests ---- */
static void served_new(struct streams *v, const struct frame *f)
{
    struct served *s = mem_new(struct served);
    struct wire_open *q = NULL;
    struct err err;
    AUTO_ARENA m = arena_create(0);

    s->streams = v;
    s->id = f->id;
    timer_init(&s->tick, v->cfg.loop, logs_tick, s);
    list_push(&v->all, &s->link);
    v->n++;
    int rc = wire_read(wire_open, f->body, m, &q, &err);
    /* Those whose streams have ended are still ending: who opens and closes without a pause waits
     * for them. */
    if (rc == 0 && (v->n > STREAMS_MAX || v->n_helpers >= HELPERS_MAX))
        rc = err_set(&err, E_LIMIT, "more than %d logs, execs and forwarded ports at a time %s",
                     STREAMS_MAX, v->cfg.at);
    if (rc == 0)
        s->opens = q->opens;
    if (rc == 0 && f->type == SF_LOGS)
        rc = logs_open(s, q, &err);
    else if (rc == 0 && f->type == SF_KEEP)
        rc = keeping_open(s, q, &err);
    else if (rc == 0)
        rc = attached_open(s, q, f->type == SF_FORWARD, &err);
    if (rc < 0)
        served_end(s, 1, &err);
}

void streams_frame(struct streams *v, const struct frame *f)
{
    struct served *s = served_by_id(v, f->id);

    if (!v->to)
        return;
    if (f->type == SF_LOGS || f->type == SF_EXEC || f->type == SF_FORWARD ||
        f->type == SF_KEEP) {
        if (!s)
            served_new(v, f);
    } else if (!s) {
        return; /* it ended meanwhile */
    } else if (f->type == SF_PAUSE) {
        s->paused = f->flags != 0;
        timer_start(&s->tick, 0);
    } else if (f->type == SF_SIZE && s->attached) {
        attached_size(s, f);
    } else if (f->type == SF_INPUT && s->attached) {
        attached_input(s, f);
    } else if (f->type == SF_CLOSE) {
        served_free(s);
    }
}

void streams_look(struct streams *v)
{
    if (!v)
        return;
    list_for_each (it, &v->all) {
        struct served *s = container_of(it, struct served, link);
        if (!s->attached)
            timer_start(&s->tick, 0);
    }
}

void streams_hang_up(struct streams *v)
{
    if (!v)
        return;
    list_for_each_safe (it, tmp, &v->all) {
        struct served *s = container_of(it, struct served, link);
        if (s->attached)
            attached_hang_up(s);
    }
}

/* ---- its life ---- */
void streams_session(struct streams *v, struct stream *to)
{
    if (!v || v->to == to)
        return;
    v->to = NULL; /* what ends now was of another session, which is not told */
    while (!list_empty(&v->all))
        served_free(container_of(v->all.next, struct served, link));
    v->to = to;
}

bool streams_own(const struct streams *v, int64_t pid)
{
    if (!v)
        return false;
    list_for_each (it, &v->helpers)
        if (process_pid(container_of(it, struct helper, link)->process) == pid)
            return true;
    return false;
}

bool streams_quiet(const struct streams *v)
{
    if (!v)
        return true;
    list_for_each (it, &v->all)
        if (!container_of(it, struct served, link)->keeps)
            return false;
    return true;
}

struct streams *streams_create(const struct streams_config *cfg)
{
    struct streams *v = mem_new(struct streams);

    v->cfg = *cfg;
    list_init(&v->all);
    list_init(&v->helpers);
    list_init(&v->callers);
    return v;
}

struct streams *streams_destroy(struct streams *v)
{
    if (!v)
        return NULL;
    streams_session(v, NULL);
    if (v->listener)
        listener_close(v->listener);
    callers_close(v);
    for (struct list *e; (e = list_pop(&v->helpers)) != NULL;) {
        struct helper *h = container_of(e, struct helper, link);
        process_unref(h->process);
        mem_free(h);
    }
    mem_free(v);
    return NULL;
}
