/* What a workload's programs say, what is run beside them, and ports of theirs: streams. */
#include "api/server/server_internal.h"

#define FULL ((size_t)1 << 20) /* bytes that wait for who reads them: no more is taken in */
#define ROOM_POLL_MS 20
#define BYTE_MAX 1000000000000000u /* of a log: a place beyond is none */

static int64_t number(struct call *c, const char *name, int64_t otherwise)
{
    uint64_t v;

    return call_u64(call_param(c, name), &v) || v > INT64_MAX ? otherwise : (int64_t)v;
}

/* What a stream of a workload takes; a name ends with '#' for a number, '+' for a place in a text,
 * '@' for a time, '*' for texts, of which there may be several, and with nothing for yes or no. */
static bool param_known(const char *known, const char *name, char *ret_kind)
{
    size_t n = strlen(name);

    for (const char *p = known; *p; p += strcspn(p, " "), p += strspn(p, " "))
        if (n && !strncmp(p, name, n) && strchr(" #+@*", p[n])) {
            *ret_kind = p[n];
            return true;
        }
    return false;
}

static int param_value(char kind, const char *name, const char *value, struct err *err)
{
    static const char *const flags[] = {"", "0", "1", "true", "false", "True", "False"};
    uint64_t v;
    int64_t ms;

    if (kind == '@')
        return time_parse(value, &ms, err) ? err_field(err, E_SYNTAX, name, "%s", err->text) : 0;
    if (kind == '*' || (kind == '#' && !call_u64(value, &v) && v <= INT32_MAX) ||
        (kind == '+' && !call_u64(value, &v) && v <= BYTE_MAX))
        return 0;
    if (kind == '+')
        return err_field(err, E_SYNTAX, name, "\"%.60s\" is not a whole number from 0 to 10^15",
                         value);
    for (size_t i = 0; kind != '#' && i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(value, flags[i]))
            return 0;
    return err_field(err, E_SYNTAX, name, "\"%.60s\" is not %s", value,
                     kind == '#' ? "a whole number from 0 to 2147483647" : "true or false");
}

/* What is asked for is done, or refused: a rank that cannot be read is not rank 0. */
static bool params_fit(struct call *c, const char *known)
{
    struct err e = {0};
    char names[160];
    size_t n_names = 0;
    int r = 0;

    for (const char *p = known; *p && n_names < sizeof names - 1; p++) /* without their kinds */
        n_names += strchr("#+@*", names[n_names] = *p) == NULL;
    names[n_names] = '\0';
    for (unsigned i = 0; r == 0 && i < c->m->n_params; i++) {
        const char *name = c->m->params[i].name, *value = c->m->params[i].value;
        char kind = ' ';

        if (!param_known(known, name, &kind))
            r = err_field(&e, E_SYNTAX, "parameters",
                          "\"%.60s\" is not known here; there are %s", name, names);
        else
            r = param_value(kind, name, value, &e);
        for (unsigned k = 0; r == 0 && kind != '*' && k < i; k++)
            if (!strcmp(c->m->params[k].name, name))
                r = err_field(&e, E_SYNTAX, name, "is given twice: leave one out");
    }
    if (r)
        call_fail(c, &e);
    return r == 0;
}

static bool workload_there(struct call *c)
{
    struct err e = {0};

    if (call_get(c, c->kind ? c->kind : kind_by_id(KIND_WORKLOAD), c->ns, c->name))
        return true;
    (void)call_not_found(kind_by_id(KIND_WORKLOAD), c->name, &e);
    call_fail_at(c, &e, kind_by_id(KIND_WORKLOAD), c->name);
    return false;
}

/* A log whose places are told comes in frames like those of exec (below): u8 type (1 text, 5 the
 * place behind all text so far, 3 how it ended), u32 big-endian length, bytes. */
#define FRAMES_TYPE "application/x-hanse-frames"
#define FRAME_PIECE_MAX (1u << 16)
/* A frame without text says that this member lives: else who reads a silent log could not tell it
 * from a member that hangs, or is cut off. */
#define LIVES_EVERY_MS 10000

struct log_stream {
    struct api *a;
    struct flow *flow;
    struct http_request *rq;
    struct api_exec_session *session;
    bool begun, ended;
    bool places; /* they are told */
    struct timer lives;
    char name[256];
};

static void log_closed(void *arg)
{
    struct log_stream *s = arg;

    timer_stop(&s->lives);
    if (s->session)
        s->a->ops->exec_close(s->session);
    fair_lasted(s->a->fair, &s->flow);
    mem_free(s);
}

static void log_begin(struct log_stream *s)
{
    if (!s->begun) {
        s->begun = true;
        if (s->places)
            timer_start(&s->lives, LIVES_EVERY_MS);
        http_chunk_begin(s->rq, 200, s->places ? FRAMES_TYPE : "text/plain; charset=utf-8", NULL,
                         log_closed, s);
    }
}

static void log_frame(struct log_stream *s, int type, const void *p, size_t n)
{
    const unsigned char head[5] = {(unsigned char)type, (unsigned char)(n >> 24),
                                   (unsigned char)(n >> 16), (unsigned char)(n >> 8),
                                   (unsigned char)n};

    http_chunk(s->rq, head, sizeof head);
    if (n > 0)
        http_chunk(s->rq, p, n);
}

static void log_lives(void *arg)
{
    struct log_stream *s = arg;

    if (s->ended)
        return;
    if (http_pending(s->rq) == 0)
        log_frame(s, 1, NULL, 0);
    timer_start(&s->lives, LIVES_EVERY_MS);
}

static void log_opened(void *arg)
{
    log_begin(arg); /* from now on its client's leaving is noticed */
}

static void log_data(int fd, const void *p, size_t n, void *arg)
{
    struct log_stream *s = arg;

    const char *b = p;

    (void)fd;
    log_begin(s);
    if (!s->places && n > 0)
        http_chunk(s->rq, p, n);
    for (; s->places && n > 0; n -= n < FRAME_PIECE_MAX ? n : FRAME_PIECE_MAX, b += FRAME_PIECE_MAX)
        log_frame(s, 1, b, n < FRAME_PIECE_MAX ? n : FRAME_PIECE_MAX);
}

static void log_at(const struct api_log_at *at, void *arg)
{
    struct log_stream *s = arg;
    char text[160] = "{}";

    if (at->known)
        (void)snprintf(text, sizeof text,
                       "{\"epoch\":%lld,\"try\":%lld,\"byte\":%llu,\"midLine\":%s}",
                       (long long)at->epoch, (long long)at->try_, (unsigned long long)at->from,
                       at->mid ? "true" : "false");
    log_begin(s);
    log_frame(s, 5, text, strlen(text));
}

/* {"exitCode"}, and what went wrong. */
static void status_text(struct buf *b, int exit_code, const struct err *err)
{
    buf_printf(b, "{\"exitCode\":%d", exit_code);
    if (err && err->code) {
        buf_char(b, ',');
        json_pair(b, "reason", err_info(err->code)->reason, true);
        json_pair(b, "message", err->text, false);
    }
    buf_char(b, '}');
}

static void log_end(int exit_code, const struct err *err, void *arg)
{
    struct log_stream *s = arg;

    if (s->ended)
        return;
    s->ended = true;
    if (!s->begun && err && err->code) {
        AUTO_BUF b = {0};
        struct http_request *rq = s->rq;
        buf_init(&b, 1 << 16);
        status_json(&b, err, NULL, kind_by_id(KIND_WORKLOAD), NULL, NULL, s->name,
                    err_info(err->code)->http, 0);
        int http = err_info(err->code)->http;
        log_closed(s);
        http_reply(rq, http, "application/json", slice_make(b.p, b.n), NULL);
        return;
    }
    log_begin(s);
    if (s->places) {
        AUTO_BUF b = {0};
        buf_init(&b, 1 << 16);
        status_text(&b, exit_code, err);
        log_frame(s, 3, b.p, b.n);
    }
    if (err && err->code && !s->places) /* cut off: who reads it must not take it for the whole */
        http_abort(s->rq);
    else
        http_chunk_end(s->rq);
}

static bool log_full(void *arg)
{
    const struct log_stream *s = arg;
    return s->begun && http_pending(s->rq) > FULL;
}

/* As kubectl: one of them, and what would mean nothing is refused. */
static bool since_fits(struct call *c, struct api_exec *x)
{
    const char *at = call_param(c, "sinceTime"), *span = call_param(c, "sinceSeconds");
    bool good = !*at || (!*span && !time_parse(at, &x->since_ms, NULL) && x->since_ms > 0);

    x->since_span_ms = number(c, "sinceSeconds", 0) * 1000;
    good = good && (!*span || x->since_span_ms > 0);
    bool whose = !*call_param(c, "epoch") || x->epoch > 0;
    if (!good || !whose)
        call_fail_code(c, E_SYNTAX,
                       good ? "epoch, 1 or more, or previous: not both"
                            : "sinceSeconds, 1 or more, or sinceTime, after 1970: not both");
    return good && whose;
}

/* From a byte on: of one epoch, of which nothing else is said, and to who hears of places. */
static bool resume_fits(struct call *c, struct api_exec *x)
{
    const char *byte = call_param(c, "byte");
    bool alone = !*call_param(c, "tailLines") && !x->since_ms && !x->since_span_ms,
         good = *byte ? x->epoch > 0 && alone && call_flag(c, "places")
                      : !*call_param(c, "try") && !*call_param(c, "midLine");
    uint64_t from = 0;

    x->resumes = *byte && !call_u64(byte, &from);
    x->from = from;
    x->try_ = number(c, "try", 0);
    x->mid = call_flag(c, "midLine");
    if (!good)
        call_fail_code(c, E_SYNTAX,
                       "byte goes with epoch and places, and try and midLine with byte; "
                       "with byte there is no tailLines, sinceSeconds or sinceTime");
    return good;
}

void workload_log(struct call *c)
{
    struct err e = {0};
    if (!workload_there(c) ||
        !params_fit(c, "follow tailLines# rank# timestamps sinceSeconds# sinceTime@ epoch# "
                       "previous places byte+ try# midLine"))
        return;
    struct api_exec x = {.who = &c->who, .ns = c->ns, .workload = c->name,
                         .rank = number(c, "rank", 0), .follow = call_flag(c, "follow"),
                         .tail_lines = number(c, "tailLines", -1),
                         .timestamps = call_flag(c, "timestamps"),
                         .epoch = call_flag(c, "previous") ? -1 : number(c, "epoch", 0)};
    struct flow *flow = since_fits(c, &x) && resume_fits(c, &x) ? call_lasts(c) : NULL;
    if (!flow)
        return;
    struct log_stream *s = mem_new(struct log_stream);
    struct api_stream_sink sink = {
        .opened = log_opened, .data = log_data, .end = log_end, .full = log_full, .arg = s};
    s->places = call_flag(c, "places");
    sink.at = s->places ? log_at : NULL;
    timer_init(&s->lives, c->api->cfg.loop, log_lives, s);
    s->a = c->api;
    s->flow = flow;
    s->rq = c->rq;
    str_copy(s->name, sizeof s->name, c->name);
    if (c->api->ops->exec(c->api->b, &x, &sink, &s->session, &e) == 0) {
        call_release(c);
        return;
    }
    log_closed(s);
    call_fail(c, &e);
}

/* exec: after 101 both sides speak frames: u8 type (0 stdin, 1 stdout, 2 stderr, 3 status as JSON,
 * 4 size of the terminal: u16 rows, u16 columns), u32 big-endian length, bytes. An empty frame of
 * type 0 is the end of stdin. A port is forwarded likewise, one connection a stream: type 0 to it,
 * 1 from it, and an empty frame of type 1 says that nothing more comes. */
#define EXEC_FRAME_MAX (1u << 20)
/* The end of a client that is killed waits in its kernel behind input that nobody takes. A frame
 * that says nothing, after so many looks for room, is answered with a reset then. */
#define ASK_EVERY 50

struct exec_stream {
    struct api *a;
    struct flow *flow;
    struct stream *st;
    struct api_exec_session *session;
    struct buf in;
    struct timer room;
    unsigned looks; /* for room */
    bool ended, closed, tty;
};

static void exec_free(struct exec_stream *s)
{
    timer_stop(&s->room);
    if (s->session)
        s->a->ops->exec_close(s->session);
    fair_lasted(s->a->fair, &s->flow);
    buf_fini(&s->in);
    mem_free(s);
}

static void frame_send(struct exec_stream *s, int type, const void *p, size_t n)
{
    unsigned char head[5] = {(unsigned char)type, (unsigned char)(n >> 24),
                             (unsigned char)(n >> 16), (unsigned char)(n >> 8), (unsigned char)n};

    stream_write(s->st, head, sizeof head);
    stream_write(s->st, p, n);
}

static void exec_data(int fd, const void *p, size_t n, void *arg)
{
    struct exec_stream *s = arg;

    if (s->st && !s->closed)
        frame_send(s, fd == 2 ? 2 : 1, p, n);
}

static void exec_eof(void *arg)
{
    struct exec_stream *s = arg;

    if (s->st && !s->closed && !s->ended)
        frame_send(s, 1, NULL, 0);
}

static void exec_end(int exit_code, const struct err *err, void *arg)
{
    struct exec_stream *s = arg;
    AUTO_BUF b = {0};

    if (s->ended || s->closed || !s->st)
        return;
    s->ended = true;
    buf_init(&b, 1 << 16);
    status_text(&b, exit_code, err);
    frame_send(s, 3, b.p, b.n);
    stream_close(s->st);
}

static bool exec_full(void *arg)
{
    const struct exec_stream *s = arg;
    return s->st && !s->closed && stream_pending(s->st) > FULL;
}

/* What a program on a terminal is told is cut, not refused: no screen is larger. */
static int64_t terminal_size(int64_t told)
{
    return told > API_TERMINAL_MAX ? API_TERMINAL_MAX : told;
}

static bool exec_resized(struct exec_stream *s, const unsigned char *p, size_t n)
{
    if (!s->tty || n != 4)
        return false;
    int64_t rows = terminal_size(p[0] << 8 | p[1]), columns = terminal_size(p[2] << 8 | p[3]);
    if (!s->ended && s->a->ops->exec_resize)
        s->a->ops->exec_resize(s->session, rows, columns);
    return true;
}

static void exec_frames(struct exec_stream *s)
{
    while (s->in.n >= 5) {
        const unsigned char *h = (const unsigned char *)s->in.p;
        size_t n = (size_t)h[1] << 24 | (size_t)h[2] << 16 | (size_t)h[3] << 8 | h[4];
        if (n > EXEC_FRAME_MAX || (h[0] != 0 && h[0] != 4)) {
            stream_abort(s->st, "a frame that is not allowed");
            return;
        }
        if (s->in.n < 5 + n)
            return;
        if (h[0] == 4 && !exec_resized(s, h + 5, n)) {
            stream_abort(s->st, "a size that no terminal has");
            return;
        }
        if (h[0] == 0 && !s->ended)
            s->a->ops->exec_input(s->session, s->in.p + 5, n, n == 0);
        buf_consume(&s->in, 5 + n);
    }
}

static bool exec_crowded(const struct exec_stream *s)
{
    return !s->ended && s->a->ops->exec_pending && s->a->ops->exec_pending(s->session) > FULL;
}

static void exec_room(void *arg)
{
    struct exec_stream *s = arg;

    if (s->closed)
        return;
    if (!exec_crowded(s)) {
        stream_pause(s->st, false);
    } else if (stream_hung_up(s->st)) { /* else what he began would outlive him */
        stream_abort(s->st, "who asked is gone");
    } else {
        if (++s->looks % ASK_EVERY == 0)
            frame_send(s, 2, NULL, 0);
        timer_start(&s->room, ROOM_POLL_MS);
    }
}

static void exec_read(struct stream *st, const void *p, size_t n, void *arg)
{
    struct exec_stream *s = arg;

    buf_add(&s->in, p, n);
    if (s->in.failed) {
        stream_abort(st, "too much input at once");
        return;
    }
    exec_frames(s);
    if (exec_crowded(s)) {
        stream_pause(st, true);
        timer_start(&s->room, ROOM_POLL_MS);
    }
}

static void exec_gone(struct stream *st, const struct err *why, void *arg)
{
    struct exec_stream *s = arg;

    (void)st;
    (void)why;
    s->closed = true;
    exec_free(s);
}

static const struct stream_events exec_events = {.data = exec_read, .closed = exec_gone};

static const char *const *exec_argv(struct call *c, unsigned *ret_n)
{
    const char **argv = arena_array(c->mem, const char *, c->m->n_params + 1);
    unsigned n = 0;

    for (unsigned i = 0; i < c->m->n_params; i++)
        if (!strcmp(c->m->params[i].name, "command"))
            argv[n++] = c->m->params[i].value;
    *ret_n = n;
    return argv;
}

static void exec_begin(struct call *c, const char *protocol, const struct api_exec *x)
{
    struct err e = {0};
    struct slice early = {0};
    struct flow *flow = call_lasts(c);

    if (!flow)
        return;
    struct exec_stream *s = mem_new(struct exec_stream);
    struct api_stream_sink sink = {
        .data = exec_data, .end = exec_end, .full = exec_full, .eof = exec_eof, .arg = s};
    s->a = c->api;
    s->flow = flow;
    s->tty = x->tty;
    buf_init(&s->in, (size_t)2 * EXEC_FRAME_MAX);
    timer_init(&s->room, c->api->cfg.loop, exec_room, s);
    if (c->api->ops->exec(c->api->b, x, &sink, &s->session, &e)) {
        exec_free(s);
        call_fail(c, &e);
        return;
    }
    struct http_request *rq = c->rq;
    call_release(c);
    s->st = http_upgrade(rq, protocol, &early);
    stream_set(s->st, &exec_events, s);
    if (early.n)
        exec_read(s->st, early.p, early.n, s);
}

void workload_exec(struct call *c)
{
    unsigned argc;

    if (!workload_there(c) || !params_fit(c, "command* stdin tty rank# rows# columns#"))
        return;
    const char *const *argv = exec_argv(c, &argc);
    struct api_exec x = {.who = &c->who,
                         .ns = c->ns,
                         .workload = c->name,
                         .rank = number(c, "rank", 0),
                         .argv = argv,
                         .tail_lines = -1,
                         .with_stdin = call_flag(c, "stdin"),
                         .tty = call_flag(c, "tty"),
                         .rows = terminal_size(number(c, "rows", 0)),
                         .columns = terminal_size(number(c, "columns", 0))};

    if (!call_upgrades(c, "hanse-exec/1", "exec"))
        return;
    if (!argc)
        call_fail_code(c, E_SYNTAX,
                       "command is missing: give it as command=PROGRAM&command=ARGUMENT");
    else if ((x.rows || x.columns) && !x.tty)
        call_fail_code(c, E_SYNTAX, "rows and columns are those of a tty");
    else
        exec_begin(c, "hanse-exec/1", &x);
}

void workload_port_forward(struct call *c)
{
    if (!workload_there(c) || !params_fit(c, "port# rank#"))
        return;
    struct api_exec x = {.who = &c->who,
                         .ns = c->ns,
                         .workload = c->name,
                         .rank = number(c, "rank", 0),
                         .tail_lines = -1,
                         .port = number(c, "port", 0)};
    if (!call_upgrades(c, "hanse-forward/1", "port-forward"))
        return;
    if (x.port < 1 || x.port > UINT16_MAX)
        call_fail_code(c, E_SYNTAX, "port is missing, or no number from 1 to 65535");
    else
        exec_begin(c, "hanse-forward/1", &x);
}
