/* Execs and forwarded ports: a helper (connectors/shim/attach_linux.c) is started for each, dials
 * back over a unix socket, and carries its bytes. It ends its command when that socket does. Nobody
 * but the very process that was started for a stream may speak for it: beside a runner its program
 * runs as the same user, and can dial, too. */
#include "api/base/limits.h"
#include "connectors/shim/shim.h"
#include "connectors/streams/streams_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define EARLY_INPUT_MAX (32u << 20)
#define INPUT_MAX (1u << 20) /* that waits for the helper, before the hub is told to keep it */
#define INPUT_PIECE 16384
#define CALLER_MS 5000  /* for who has dialed to say for which stream */
#define ARGS_MAX (LIMIT_URL_PARAMS_MAX + 32) /* a command of exec, and our own options */
#define HELPER_LAST_MS 200 /* for what a helper that ended has said to be read */

static const struct stream_events nobody = {0};

/* ---- the helper ---- */
void attached_free(struct served *s)
{
    if (s->helper)
        s->helper->of = NULL;
    if (s->pipe) {
        stream_set(s->pipe, &nobody, NULL);
        stream_abort(s->pipe, "not wanted any more"); /* the helper ends its command then */
        frame_reader_fini(&s->reader);
    }
    buf_fini(&s->input);
}

static void lost(struct served *s)
{
    struct err err;

    (void)err_set(&err, E_IO,
                  s->port ? "the connection ended with the run"
                          : "the command could not be started on the target, or was ended with the "
                            "run");
    served_end(s, 1, &err);
}

void attached_hang_up(struct served *s)
{
    if (s->told)
        served_end(s, s->exit_code, NULL);
    else
        lost(s);
}

/* Level-triggered: over, helper lost, or room again on the session? */
static void attached_tick(void *arg)
{
    struct served *s = arg;

    if (s->told) {
        served_end(s, s->exit_code, NULL);
    } else if (!s->pipe && !s->helper) {
        lost(s);
    } else if (s->pipe) {
        bool wait = served_crowded(s);
        stream_pause(s->pipe, wait);
        if (wait)
            timer_start(&s->tick, SERVED_AGAIN_MS);
    }
}

static void helper_exited(struct process *p, int exit_code, int term_signal, void *arg)
{
    struct helper *h = arg;
    struct served *s = h->of;

    (void)p;
    (void)exit_code;
    (void)term_signal;
    list_remove(&h->link);
    h->streams->n_helpers--;
    mem_free(h);
    if (!s)
        return;
    s->helper = NULL;
    /* Its words may be in the socket, and what it dialed may not be accepted yet. */
    timer_start(&s->tick, s->port ? 1000 : HELPER_LAST_MS);
}

static int helper_start(struct served *s, const struct process_spec *spec, struct err *err)
{
    struct streams *v = s->streams;
    struct helper *h = mem_new(struct helper);

    h->streams = v;
    h->of = s;
    int rc = process_spawn(v->cfg.loop, spec, helper_exited, h, &h->process, err);
    if (rc < 0) {
        mem_free(h);
        return rc;
    }
    list_push(&v->helpers, &h->link);
    v->n_helpers++;
    s->helper = h;
    s->helper_pid = process_pid(h->process);
    return 0;
}

static const char *program(const struct streams *v)
{
    return v->cfg.os->ops->program(v->cfg.os);
}

static int exec_start(struct served *s, const struct stream_place *at, const struct wire_open *q,
                      struct err *err)
{
    AUTO_ARENA m = arena_create(0);
    const char *args[ARGS_MAX];
    size_t n = 0;
    const char *const head[] = {program(s->streams), "run", "--attach", s->streams->socket, "--id",
                                arena_printf(m, "%" PRIu64, s->id), "--group", at->group, "--will",
                                at->will};

    for (; n < sizeof head / sizeof *head; n++)
        args[n] = head[n];
    if (q->tty) {
        args[n++] = "--tty";
        args[n++] = arena_printf(m, "%" PRId64 "x%" PRId64, q->rows, q->columns);
    }
    if (at->uid) {
        args[n++] = "--user";
        args[n++] = arena_printf(m, "%" PRIu32 ":%" PRIu32, at->uid, at->gid);
    }
    args[n++] = "--";
    if (q->n_argv == 0 || n + q->n_argv >= ARGS_MAX)
        return err_set(err, E_INVALID, "the command is no list of 1 to %zu texts",
                       ARGS_MAX - n - 1);
    for (uint32_t i = 0; i < q->n_argv; i++)
        args[n++] = q->argv[i];
    args[n] = NULL;
    const struct process_spec spec = {
        .argv = args, .env = at->env, .cwd = at->cwd, .session = true};
    return helper_start(s, &spec, err);
}

/* It needs no more of the program's environment than what it looks for. */
static int port_start(struct served *s, const struct stream_place *at, struct err *err)
{
    AUTO_ARENA m = arena_create(0);
    const char *const args[] = {program(s->streams),
                                "run",
                                "--attach",
                                s->streams->socket,
                                "--id",
                                arena_printf(m, "%" PRIu64, s->id),
                                "--group",
                                at->group,
                                "--processes",
                                run_processes_text(at->held),
                                "--port",
                                arena_printf(m, "%" PRId64, s->port),
                                NULL};
    const char *const env[] = {arena_printf(m, RUN_MARKER_ENV "=%s", at->marker), NULL};
    const struct process_spec spec = {.argv = args, .env = env, .session = true};
    return helper_start(s, &spec, err);
}

int attached_open(struct served *s, struct wire_open *q, bool forward, struct err *err)
{
    const struct streams_config *cfg = &s->streams->cfg;
    struct stream_place at = {0};
    AUTO_ARENA m = arena_create(0);

    s->attached = true;
    buf_init(&s->input, EARLY_INPUT_MAX);
    s->tty = q->tty;
    s->rows = q->rows;
    s->columns = q->columns;
    s->paces = q->paces;
    s->port = forward ? q->port : 0;
    s->input_ended = !q->with_stdin && !forward;
    timer_init(&s->tick, cfg->loop, attached_tick, s);
    if (forward && !s->port)
        return err_set(err, E_INVALID, "a port is a number from 1 to 65535");
    int rc = cfg->ops->place(cfg->arg, q, m, &at, err);
    if (rc == 0 && !s->streams->socket[0])
        rc = err_set(err, E_NOTIMPL,
                     "nothing can be put beside its program: there is no folder for the socket "
                     "that this needs");
    if (rc < 0)
        return rc;
    return forward ? port_start(s, &at, err) : exec_start(s, &at, q, err);
}

/* ---- what it says ---- */
static int pipe_frame(const struct frame *f, void *arg)
{
    struct served *s = arg;
    struct stream *to = s->streams->to;

    if (f->type == ATTACH_DATA && to) {
        frame_send(to, SF_DATA, f->flags, s->id, f->body.p, f->body.n);
        if (served_crowded(s)) {
            stream_pause(s->pipe, true);
            timer_start(&s->tick, SERVED_AGAIN_MS);
        }
    } else if (f->type == ATTACH_EOF && s->port && to) {
        frame_send(to, SF_EOF, 0, s->id, NULL, 0);
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
    struct served *s = arg;
    struct err err;

    if (frame_feed(&s->reader, data, n, pipe_frame, s, &err) < 0)
        stream_abort(p, err.text);
}

static void pipe_closed(struct stream *p, const struct err *why, void *arg)
{
    struct served *s = arg;

    (void)p;
    (void)why;
    s->pipe = NULL;
    frame_reader_fini(&s->reader);
    timer_start(&s->tick, 0);
}

/* Input that the helper does not take: the hub keeps it, if it can. */
static void pipe_room(struct served *s)
{
    bool choked = (s->pipe ? stream_pending(s->pipe) : s->input.n) > INPUT_MAX;

    if (s->paces && s->choked != choked && s->streams->to)
        frame_send(s->streams->to, SF_PAUSE, choked, s->id, NULL, 0);
    s->choked = choked;
}

static void pipe_drained(struct stream *p, void *arg)
{
    (void)p;
    pipe_room(arg);
}

static const struct stream_events pipe_events = {
    .data = pipe_data, .drained = pipe_drained, .closed = pipe_closed};

/* ---- what it is told ---- */
static void input(struct served *s, const char *p, size_t n, bool eof)
{
    if (s->input_ended)
        return;
    s->input_ended = eof;
    if (!s->pipe) {
        buf_add(&s->input, p, n);
        pipe_room(s);
        return;
    }
    for (size_t at = 0; at < n; at += INPUT_PIECE)
        frame_send(s->pipe, ATTACH_DATA, 0, s->id, p + at,
                   n - at < INPUT_PIECE ? n - at : INPUT_PIECE);
    if (eof)
        frame_send(s->pipe, ATTACH_EOF, 0, s->id, NULL, 0);
    pipe_room(s);
}

void attached_input(struct served *s, const struct frame *f)
{
    struct err err;

    input(s, f->body.p, f->body.n, f->flags != 0);
    if (!s->input.failed)
        return;
    /* a part of it is lost: the command must not run on the rest */
    (void)err_set(&err, E_LIMIT, "more than %u bytes of input came before the command began",
                  EARLY_INPUT_MAX);
    served_end(s, 1, &err);
}

static void size_tell(const struct served *s)
{
    const unsigned char body[4] = {(unsigned char)s->rows, (unsigned char)(s->rows >> 8),
                                   (unsigned char)s->columns, (unsigned char)(s->columns >> 8)};

    if (s->tty && s->pipe)
        frame_send(s->pipe, ATTACH_SIZE, 0, s->id, body, sizeof body);
}

void attached_size(struct served *s, const struct frame *f)
{
    struct wire_size *q = NULL;
    struct err err;
    AUTO_ARENA m = arena_create(0);

    if (wire_read(wire_size, f->body, m, &q, &err) < 0)
        return;
    s->rows = q->rows; /* for a helper that has not dialed yet */
    s->columns = q->columns;
    size_tell(s);
}

static void port_refused(struct served *s, int why)
{
    struct err err;

    (void)err_set(&err, why == ATTACH_NOBODY ? E_NOTFOUND : E_FORBIDDEN,
                  why == ATTACH_NOBODY ? "no process listens on port %lld of 127.0.0.1"
                                       : "on port %lld listens a process that is not of this run",
                  (long long)s->port);
    served_end(s, 1, &err);
}

/* ---- who dials: it says which stream it is for, in its first 16 bytes ---- */
struct caller {
    struct list link;
    struct streams *streams;
    struct stream *stream;
    struct frame_reader reader;
    struct timer patience;
    struct served *found;
    bool refused;
};

static void caller_forget(struct caller *c)
{
    timer_stop(&c->patience);
    list_remove(&c->link);
    c->streams->n_callers--;
    mem_free(c);
}

static void caller_cut(struct caller *c)
{
    struct stream *p = c->stream;

    frame_reader_fini(&c->reader);
    caller_forget(c);
    stream_set(p, &nobody, NULL);
    stream_abort(p, "not one of our helpers");
}

static void caller_patience(void *arg)
{
    caller_cut(arg);
}

/* A loop that does not know who dials (the simulator's) names no process. */
static bool is_helper_of(const struct stream *caller, const struct served *s)
{
    int64_t pid = stream_peer(caller)->unix_pid;

    return s && s->attached && !s->pipe && (!pid || pid == s->helper_pid);
}

static bool is_helper_of_any(const struct stream *caller, const struct streams *v)
{
    list_for_each (it, &v->all)
        if (is_helper_of(caller, container_of(it, struct served, link)))
            return true;
    return false;
}

static int caller_frame(const struct frame *f, void *arg)
{
    struct caller *c = arg;
    struct served *s = f->type == ATTACH_HELLO ? served_by_id(c->streams, f->id) : NULL;

    if (c->found) /* its first words came along with its name */
        return pipe_frame(f, c->found);
    c->refused = !is_helper_of(c->stream, s) || f->flags;
    if (!c->refused) {
        s->pipe = c->stream;
        c->found = s;
        served_opened(s); /* its first bytes may have come along with its name */
    } else if (f->flags && is_helper_of(c->stream, s)) {
        port_refused(s, f->flags);
    }
    return c->refused;
}

static void caller_data(struct stream *p, const void *data, size_t n, void *arg)
{
    struct caller *c = arg;
    struct err err;

    if (frame_feed(&c->reader, data, n, caller_frame, c, &err) < 0 || c->refused) {
        if (c->found) { /* what it said after its name cannot be read */
            c->found->pipe = NULL;
            timer_start(&c->found->tick, 0);
        }
        caller_cut(c);
        return;
    }
    struct served *s = c->found;
    if (!s)
        return;
    s->reader = c->reader;
    caller_forget(c);
    stream_set(p, &pipe_events, s);
    size_tell(s);
    bool eof = s->input_ended;
    s->input_ended = false;
    input(s, s->input.p, s->input.n, eof);
    buf_reset(&s->input);
}

static void caller_closed(struct stream *p, const struct err *why, void *arg)
{
    struct caller *c = arg;

    (void)p;
    (void)why;
    frame_reader_fini(&c->reader);
    caller_forget(c);
}

static const struct stream_events caller_events = {.data = caller_data, .closed = caller_closed};

static void attach_accept(struct listener *li, struct stream *p, void *arg)
{
    struct streams *v = arg;

    (void)li;
    if (v->n_callers >= HELPERS_MAX || !is_helper_of_any(p, v)) {
        stream_set(p, &nobody, NULL);
        stream_abort(p, "not one of our helpers");
        return;
    }
    struct caller *c = mem_new(struct caller);
    c->streams = v;
    c->stream = p;
    frame_reader_init(&c->reader);
    timer_init(&c->patience, v->cfg.loop, caller_patience, c);
    timer_start(&c->patience, CALLER_MS);
    list_push(&v->callers, &c->link);
    v->n_callers++;
    stream_set(p, &caller_events, c);
}

void callers_close(struct streams *v)
{
    while (!list_empty(&v->callers))
        caller_cut(container_of(v->callers.next, struct caller, link));
}

int streams_listen(struct streams *v, const char *path, struct err *err)
{
    char address[sizeof v->socket + 8];
    int port;

    if (strlen(path) >= sizeof v->socket)
        return err_set(err, E_TOOLARGE, "the path of a socket has at most %zu bytes: %.200s",
                       sizeof v->socket - 1, path);
    (void)snprintf(address, sizeof address, "unix:%s", path);
    int rc = file_remove(v->cfg.loop, path, err);
    if (rc == 0)
        rc = listener_create(v->cfg.loop, address, NULL, attach_accept, v, &v->listener, &port,
                             err);
    if (rc == 0)
        str_copy(v->socket, sizeof v->socket, path);
    return rc;
}
