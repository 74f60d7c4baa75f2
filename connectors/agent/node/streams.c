/* Logs, exec and forwarded ports: bytes on the session, beside its other frames, without drowning
 * them. Logs are read from the file in pieces, on a timer while followed; the helper of the other
 * two brings its bytes over a unix socket. */
#include "connectors/agent/node/agent_internal.h"
#include "connectors/output/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define EARLY_INPUT_MAX (32u << 20)
#define PENDING_MAX (1u << 20) /* on the session, before logs wait */
#define FOLLOW_MS 200
#define LOG_ROOM ((size_t)2 * OUTPUT_PIECE)

struct agent_stream {
    struct list link;
    struct agent *agent;
    uint64_t id;
    bool paused, opens; /* opens: the hub waits to hear that it is open */
    struct timer tick;
    /* logs */
    struct run_key key;
    int64_t rank;
    bool follow;
    struct output output;
    /* exec */
    bool exec, input_ended, tty, told; /* told: its exit status has come, exit_code */
    int exit_code;
    bool paces, choked;    /* the hub heeds that input has no room; it was told so */
    int64_t port;          /* forwarded; 0: none */
    int64_t rows, columns; /* of its terminal */
    struct process *helper;
    struct stream *pipe;
    struct frame_reader reader;
    struct buf input; /* before the helper has dialed */
};

static void stream_end(struct agent_stream *s, int code, const struct err *err);

static void stream_free(struct agent_stream *s)
{
    static const struct stream_events nobody = {0};

    timer_stop(&s->tick);
    list_remove(&s->link);
    s->agent->n_streams--;
    if (s->helper)
        process_unref(s->helper);
    if (s->pipe) {
        stream_set(s->pipe, &nobody, NULL);
        stream_abort(s->pipe, "not wanted any more"); /* the helper ends its command then */
        frame_reader_fini(&s->reader);
    }
    buf_fini(&s->input);
    mem_free(s);
}

static void stream_end(struct agent_stream *s, int code, const struct err *err)
{
    struct agent *a = s->agent;
    const struct wire_end end = {
        .exit_code = code, .code = err ? err->code : 0, .text = err ? err->text : ""};

    if (a->welcome)
        wire_tell(a->stream, AF_END, s->id, wire_end, &end);
    stream_free(s);
}

static struct agent_stream *stream_by_id(struct agent *a, uint64_t id)
{
    list_for_each (it, &a->streams) {
        struct agent_stream *s = container_of(it, struct agent_stream, link);
        if (s->id == id)
            return s;
    }
    return NULL;
}

static void stream_opened(struct agent_stream *s)
{
    if (s->opens && s->agent->welcome)
        frame_send(s->agent->stream, AF_OPENED, 0, s->id, NULL, 0);
    s->opens = false;
}

/* ---- logs ---- */
static void logs_tick(void *arg)
{
    struct agent_stream *s = arg;
    struct agent *a = s->agent;
    const struct run *r = run_by_key(a, &s->key);
    bool again = false;
    struct err err;
    AUTO_BUF b;

    buf_init(&b, LOG_ROOM);
    if (!r) {
        stream_end(s, 0, NULL);
        return;
    }
    if (s->paused || stream_pending(a->stream) > PENDING_MAX) {
        timer_start(&s->tick, 20);
        return;
    }
    bool over = r->told == RUN_ENDED; /* before reading: what came last is read once more */
    if (output_next(&s->output, loop_wall_ms(a->loop), &b, &again, &err) < 0) {
        stream_end(s, 0, &err);
        return;
    }
    if (b.n > 0)
        frame_send(a->stream, AF_DATA, 1, s->id, b.p, b.n);
    if (again)
        timer_start(&s->tick, b.n > 0 ? 0 : 20);
    else if (!s->follow || over)
        stream_end(s, 0, NULL);
    else
        timer_start(&s->tick, FOLLOW_MS);
}

/* ---- exec ---- */
static int pipe_frame(const struct frame *f, void *arg)
{
    struct agent_stream *s = arg;

    if (f->type == ATTACH_DATA && s->agent->welcome) {
        frame_send(s->agent->stream, AF_DATA, f->flags, s->id, f->body.p, f->body.n);
        if (stream_pending(s->agent->stream) > PENDING_MAX) {
            stream_pause(s->pipe, true);
            timer_start(&s->tick, 20);
        }
    } else if (f->type == ATTACH_EOF && s->port && s->agent->welcome) {
        frame_send(s->agent->stream, AF_EOF, 0, s->id, NULL, 0);
    } else if (f->type == ATTACH_END && f->body.n == 1) {
        s->input_ended = true;
        s->exit_code = *(const unsigned char *)f->body.p;
        s->told = true; /* when the pipe closes: not from in here */
        timer_start(&s->tick, 0);
    }
    return 0;
}

static void pipe_data(struct stream *p, const void *data, size_t n, void *arg)
{
    struct agent_stream *s = arg;
    struct err err;

    if (frame_feed(&s->reader, data, n, pipe_frame, s, &err) < 0)
        stream_abort(p, err.text);
}

static void pipe_closed(struct stream *p, const struct err *why, void *arg)
{
    struct agent_stream *s = arg;

    (void)p;
    (void)why;
    s->pipe = NULL;
    frame_reader_fini(&s->reader);
    timer_start(&s->tick, 0);
}

/* Input that the helper does not take: the hub keeps it, if it can. */
static void pipe_room(struct agent_stream *s)
{
    bool choked = s->pipe && stream_pending(s->pipe) > PENDING_MAX;

    if (s->paces && s->choked != choked && s->agent->welcome)
        frame_send(s->agent->stream, AF_PAUSE, choked, s->id, NULL, 0);
    s->choked = choked;
}

static void pipe_drained(struct stream *p, void *arg)
{
    (void)p;
    pipe_room(arg);
}

static const struct stream_events pipe_events = {
    .data = pipe_data, .drained = pipe_drained, .closed = pipe_closed};

/* Level-triggered: over, helper lost, or room again on the session? */
static void exec_tick(void *arg)
{
    struct agent_stream *s = arg;
    struct err err;

    if (s->told) {
        stream_end(s, s->exit_code, NULL);
    } else if (!s->pipe && !s->helper) {
        (void)err_set(&err, E_IO,
                      s->port ? "the connection ended with the run"
                              : "the command could not be started on the target, or was ended with "
                                "the run");
        stream_end(s, 1, &err);
    } else if (s->pipe) {
        bool wait = s->paused || stream_pending(s->agent->stream) > PENDING_MAX;
        stream_pause(s->pipe, wait);
        if (wait)
            timer_start(&s->tick, 20);
    }
}

static void helper_exited(struct process *p, int exit_code, int term_signal, void *arg)
{
    struct agent_stream *s = arg;

    (void)p;
    (void)exit_code;
    (void)term_signal;
    s->helper = NULL;
    timer_start(&s->tick, s->port ? 1000 : s->pipe ? 200 : 0); /* its words may be in the socket */
}

static void exec_input(struct agent_stream *s, const void *p, size_t n, bool eof)
{
    if (s->input_ended)
        return;
    s->input_ended = eof;
    if (!s->pipe) {
        buf_add(&s->input, p, n);
        return;
    }
    if (n > 0)
        for (size_t at = 0; at < n; at += 16384)
            frame_send(s->pipe, ATTACH_DATA, 0, s->id, (const char *)p + at,
                       n - at < 16384 ? n - at : 16384);
    if (eof)
        frame_send(s->pipe, ATTACH_EOF, 0, s->id, NULL, 0);
    pipe_room(s);
}

static void exec_size(struct agent_stream *s, const struct frame *f)
{
    struct wire_size *q = NULL;
    struct err err;
    AUTO_ARENA m = arena_create(0);

    if (!s->tty || wire_read(wire_size, f->body, m, &q, &err) < 0)
        return;
    s->rows = q->rows; /* for a helper that has not dialed yet */
    s->columns = q->columns;
    const unsigned char body[4] = {(unsigned char)q->rows, (unsigned char)(q->rows >> 8),
                                   (unsigned char)q->columns, (unsigned char)(q->columns >> 8)};
    if (s->pipe)
        frame_send(s->pipe, ATTACH_SIZE, 0, s->id, body, sizeof body);
}

static void exec_size_early(struct agent_stream *s)
{
    const unsigned char body[4] = {(unsigned char)s->rows, (unsigned char)(s->rows >> 8),
                                   (unsigned char)s->columns, (unsigned char)(s->columns >> 8)};

    if (s->tty)
        frame_send(s->pipe, ATTACH_SIZE, 0, s->id, body, sizeof body);
}

static void port_refused(struct agent_stream *s, int why)
{
    struct err err;

    (void)err_set(&err, why == ATTACH_NOBODY ? E_NOTFOUND : E_FORBIDDEN,
                  why == ATTACH_NOBODY ? "no process listens on port %lld of 127.0.0.1"
                                       : "on port %lld listens a process that is not of this run",
                  (long long)s->port);
    stream_end(s, 1, &err);
}

/* The helper dials in and says which stream it is for, in its first 16 bytes. */
struct caller {
    struct agent *agent;
    struct stream *stream;
    struct frame_reader reader;
    struct agent_stream *found;
};

static int caller_frame(const struct frame *f, void *arg)
{
    struct caller *c = arg;
    struct agent_stream *s = f->type == ATTACH_HELLO ? stream_by_id(c->agent, f->id) : NULL;

    if (c->found) /* its first words came along with its name */
        return pipe_frame(f, c->found);
    if (s && s->exec && !s->pipe && f->flags) {
        port_refused(s, f->flags);
    } else if (s && s->exec && !s->pipe) {
        s->pipe = c->stream;
        c->found = s;
        stream_opened(s); /* its first bytes may have come along with its name */
    }
    return 0;
}

static void caller_data(struct stream *p, const void *data, size_t n, void *arg)
{
    struct caller *c = arg;
    struct err err;

    if (frame_feed(&c->reader, data, n, caller_frame, c, &err) < 0 || !c->found) {
        if (n >= 16)
            stream_abort(p, "not one of our helpers");
        return;
    }
    struct agent_stream *s = c->found;
    s->reader = c->reader;
    mem_free(c);
    stream_set(p, &pipe_events, s);
    bool eof = s->input_ended;
    s->input_ended = false;
    exec_size_early(s);
    exec_input(s, s->input.p, s->input.n, eof);
    buf_reset(&s->input);
}

static void caller_closed(struct stream *p, const struct err *why, void *arg)
{
    struct caller *c = arg;

    (void)p;
    (void)why;
    frame_reader_fini(&c->reader);
    mem_free(c);
}

static const struct stream_events caller_events = {.data = caller_data, .closed = caller_closed};

static void attach_accept(struct listener *li, struct stream *p, void *arg)
{
    struct caller *c = mem_new(struct caller);

    (void)li;
    c->agent = arg;
    c->stream = p;
    frame_reader_init(&c->reader);
    stream_set(p, &caller_events, c);
}

static int exec_start(struct agent_stream *s, const struct worker *w, const struct wire_open *q,
                      struct err *err)
{
    struct agent *a = s->agent;
    char group[RUN_GROUP_MAX], will[AGENT_PATH_MAX + 16] = "";
    AUTO_ARENA m = arena_create(0);
    const char *args[256];
    uint32_t uid, gid;
    size_t n = 0;

    worker_group(w, group);
    if (worker_held(w) == RUN_NAMESPACE)
        worker_will(w, will);
    const char *const head[] = {
        a->cfg.os->ops->program(a->cfg.os), "run",     "--attach", a->attach_path, "--id",
        arena_printf(m, "%" PRIu64, s->id), "--group", group,      "--will",       will};
    for (; n < sizeof head / sizeof *head; n++)
        args[n] = head[n];
    if (q->tty) {
        args[n++] = "--tty";
        args[n++] = arena_printf(m, "%" PRId64 "x%" PRId64, q->rows, q->columns);
    }
    worker_user(w, &uid, &gid);
    if (uid) {
        args[n++] = "--user";
        args[n++] = arena_printf(m, "%" PRIu32 ":%" PRIu32, uid, gid);
    }
    args[n++] = "--";
    if (n + q->n_argv >= sizeof args / sizeof *args)
        return err_set(err, E_INVALID, "the command is no list of at most %zu texts",
                       sizeof args / sizeof *args);
    for (uint32_t i = 0; i < q->n_argv; i++)
        args[n++] = q->argv[i];
    args[n] = NULL;
    struct process_spec spec = {
        .argv = args, .env = worker_env(w, m), .cwd = worker_cwd(w, m), .session = true};
    return process_spawn(a->loop, &spec, helper_exited, s, &s->helper, err);
}

static int port_start(struct agent_stream *s, const struct worker *w, struct err *err)
{
    struct agent *a = s->agent;
    char group[RUN_GROUP_MAX], marker[RUN_MARKER_MAX];
    AUTO_ARENA m = arena_create(0);

    worker_group(w, group);
    worker_marker(w, marker);
    const char *const args[] = {a->cfg.os->ops->program(a->cfg.os),
                                "run",
                                "--attach",
                                a->attach_path,
                                "--id",
                                arena_printf(m, "%" PRIu64, s->id),
                                "--group",
                                group,
                                "--processes",
                                run_processes_text(worker_held(w)),
                                "--port",
                                arena_printf(m, "%" PRId64, s->port),
                                NULL};
    const char *const env[] = {arena_printf(m, RUN_MARKER_ENV "=%s", marker), NULL};
    const struct process_spec spec = {.argv = args, .env = env, .session = true};
    return process_spawn(a->loop, &spec, helper_exited, s, &s->helper, err);
}

/* ---- requests ---- */
static int open_logs(struct agent_stream *s, const struct wire_open *q, struct err *err)
{
    char path[AGENT_PATH_MAX];
    const struct run *r = run_by_key(s->agent, &s->key);
    const struct output_request wanted = {.tail_lines = q->tail,
                                          .timestamps = q->timestamps,
                                          .since_span_ms = q->since_span_ms,
                                          .since_ms = q->since_ms};

    s->follow = q->follow;
    worker_log_path(r, s->rank, path);
    int rc = output_open(&s->output, s->agent->loop, path, &wanted, err);
    if (rc < 0)
        return rc;
    stream_opened(s);
    timer_init(&s->tick, s->agent->loop, logs_tick, s);
    timer_start(&s->tick, 0);
    return 0;
}

static int open_exec(struct agent_stream *s, const struct wire_open *q, bool forward,
                     struct err *err)
{
    const struct run *r = run_by_key(s->agent, &s->key);
    const struct worker *w = &r->workers[s->rank];

    s->exec = true;
    s->tty = q->tty;
    s->rows = q->rows;
    s->columns = q->columns;
    s->paces = q->paces;
    s->port = forward ? q->port : 0;
    s->input_ended = !q->with_stdin && !forward;
    timer_init(&s->tick, s->agent->loop, exec_tick, s);
    if (forward && !s->port)
        return err_set(err, E_INVALID, "a port is a number from 1 to 65535");
    if (w->state != WS_LINKED || w->report.step != RUN_STEP_RUNNING)
        return err_set(err, E_CONFLICT, "worker %lld does not run at the moment",
                       (long long)s->rank);
    return forward ? port_start(s, w, err) : exec_start(s, w, q, err);
}

static void streams_new(struct agent *a, const struct frame *f)
{
    struct agent_stream *s = mem_new(struct agent_stream);
    struct err err;
    struct wire_open *q = NULL;
    AUTO_ARENA m = arena_create(0);

    s->agent = a;
    s->id = f->id;
    buf_init(&s->input, EARLY_INPUT_MAX);
    timer_init(&s->tick, a->loop, exec_tick, s);
    list_push(&a->streams, &s->link);
    a->n_streams++;
    int rc = wire_read(wire_open, f->body, m, &q, &err);
    if (rc == 0) {
        s->key = q->key;
        s->opens = q->opens;
        const struct run *r = s->key.try_ ? run_by_key(a, &s->key) : run_newest_try(a, &s->key);
        if (r)
            s->key = r->key;
        s->rank = q->rank;
        if (!r)
            rc = err_set(&err, E_NOTFOUND, "this run is not on the target any more");
        else if (s->rank < 0 || s->rank >= (int64_t)r->n_workers)
            rc = err_set(&err, E_NOTFOUND, "there is no rank %lld: the run has %u workers",
                         (long long)s->rank, r->n_workers);
        else if (a->n_streams > AGENT_STREAMS_MAX)
            rc = err_set(&err, E_LIMIT,
                         "more than %d logs, execs and forwarded ports at a time on one agent",
                         AGENT_STREAMS_MAX);
    }
    if (rc == 0 && f->type == AF_LOGS)
        rc = open_logs(s, q, &err);
    else if (rc == 0)
        rc = open_exec(s, q, f->type == AF_FORWARD, &err);
    if (rc < 0)
        stream_end(s, 1, &err);
}

void streams_frame(struct agent *a, const struct frame *f)
{
    struct agent_stream *s = stream_by_id(a, f->id);

    if (f->type == AF_LOGS || f->type == AF_EXEC || f->type == AF_FORWARD) {
        if (!s)
            streams_new(a, f);
    } else if (!s) {
        return; /* it ended meanwhile */
    } else if (f->type == AF_PAUSE) {
        s->paused = f->flags != 0;
        timer_start(&s->tick, 0);
    } else if (f->type == AF_SIZE && s->exec) {
        exec_size(s, f);
    } else if (f->type == AF_INPUT && s->exec) {
        exec_input(s, f->body.p, f->body.n, f->flags != 0);
        if (s->input.failed) { /* a part of it is lost: the command must not run on the rest */
            struct err err;
            (void)err_set(&err, E_LIMIT,
                          "more than %u bytes of input came before the command began",
                          EARLY_INPUT_MAX);
            stream_end(s, 1, &err);
        }
    } else if (f->type == AF_CLOSE) {
        stream_free(s);
    }
}

bool streams_own(const struct agent *a, int64_t pid)
{
    list_for_each (it, &a->streams) {
        const struct agent_stream *s = container_of(it, struct agent_stream, link);
        if (s->helper && process_pid(s->helper) == pid)
            return true;
    }
    return false;
}

void streams_close_all(struct agent *a)
{
    while (!list_empty(&a->streams))
        stream_free(container_of(a->streams.next, struct agent_stream, link));
}

int streams_open(struct agent *a, struct err *err)
{
    char address[AGENT_PATH_MAX + 8];
    int port;

    (void)snprintf(a->attach_path, sizeof a->attach_path, "%s/s/attach", a->cfg.state_dir);
    (void)snprintf(address, sizeof address, "unix:%s", a->attach_path);
    int rc = file_remove(a->loop, a->attach_path, err);
    return rc < 0
               ? rc
               : listener_create(a->loop, address, NULL, attach_accept, a, &a->attach, &port, err);
}
