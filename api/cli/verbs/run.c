/* logs and exec: what a workload's programs say, and a program beside them. */
#include "api/cli/cli_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

static int log_data(const void *p, size_t n, void *arg)
{
    FILE *out = arg;

    if (fwrite(p, 1, n, out) != n || fflush(out) != 0)
        return 1;
    return 0;
}

int logs_print(struct cli *c, const char *ns, const char *name, long rank, long tail, bool follow,
               struct err *err)
{
    struct client_request rq = {.method = "GET",
                                .accept = "text/plain, application/json",
                                .data = log_data,
                                .arg = c->out,
                                .patient = follow};
    struct client_answer a;
    AUTO_BUF path = {0};

    buf_init(&path, 8192);
    client_answer_init(&a);
    buf_printf(&path, "%s/log?rank=%ld", cli_path(c, kind_by_id(KIND_WORKLOAD), ns, false, name),
               rank);
    if (tail >= 0)
        buf_printf(&path, "&tailLines=%ld", tail);
    if (follow)
        buf_str(&path, "&follow=true");
    rq.path = path.p;
    int rv = client_perform(c->lane, &rq, &a, err);
    if (!rv)
        rv = client_status(&a, err);
    client_answer_fini(&a);
    return rv;
}

int verb_logs(struct cli *c, struct err *err)
{
    long rank, tail;

    if (c->args.n_pos != 1)
        return cli_usage(c, err, "which workload?");
    int rv = arg_number(&c->args, "rank", 0, 4095, 0, &rank, err);
    if (!rv)
        rv = arg_number(&c->args, "tail", 0, 1000000000, -1, &tail, err);
    if (!rv)
        rv = cli_connect(c, err);
    return rv ? rv
              : logs_print(c, c->ns, c->args.pos[0], rank, tail, arg_flag(&c->args, "follow"), err);
}

/* ---- exec ---- */
#define FRAME_MAX_BYTES (1u << 20)
#define SEND_MAX_BYTES (1u << 20)

struct session {
    struct cli *c;
    struct stream *stream;
    struct buf in;
    bool over, stopping;
    int exit;
    bool ended; /* a status came */
    struct err err;
    bool reading; /* a read of standard input is under way on the thread pool */
    unsigned char input[65536];
    ssize_t got;
    int input_error;
};

static void session_over(struct session *s)
{
    s->over = true;
    loop_stop(s->c->loop);
}

static void frame_send(struct session *s, const void *p, size_t n)
{
    unsigned char head[5] = {0, (unsigned char)(n >> 24), (unsigned char)(n >> 16),
                             (unsigned char)(n >> 8), (unsigned char)n};

    stream_write(s->stream, head, sizeof head);
    if (n)
        stream_write(s->stream, p, n);
}

static void status_read(struct session *s, const char *p, size_t n)
{
    cJSON *j = cJSON_ParseWithLength(p, n);
    const cJSON *code = cJSON_GetObjectItemCaseSensitive(j, "exitCode");

    s->ended = cJSON_IsNumber(code);
    s->exit = s->ended ? (int)code->valuedouble : 1;
    if (*json_text_of(j, "message"))
        (void)err_set(&s->err, E_INTERNAL, "%s", json_text_of(j, "message"));
    cJSON_Delete(j);
}

static void frames_read(struct session *s)
{
    while (s->in.n >= 5) {
        const unsigned char *h = (const unsigned char *)s->in.p;
        size_t n = (size_t)h[1] << 24 | (size_t)h[2] << 16 | (size_t)h[3] << 8 | h[4];
        if (n > FRAME_MAX_BYTES) {
            (void)err_set(&s->err, E_CONNECT, "the server sent a frame that is too large");
            stream_abort(s->stream, "frame too large");
            return;
        }
        if (s->in.n < 5 + n)
            return;
        if (h[0] == 1 || h[0] == 2) {
            FILE *to = h[0] == 1 ? s->c->out : s->c->err;
            (void)fwrite(s->in.p + 5, 1, n, to);
            (void)fflush(to);
        } else if (h[0] == 3) {
            status_read(s, s->in.p + 5, n);
        }
        buf_consume(&s->in, 5 + n);
    }
}

static void session_data(struct stream *st, const void *p, size_t n, void *arg)
{
    struct session *s = arg;

    buf_add(&s->in, p, n);
    if (s->in.failed)
        stream_abort(st, "too much at once");
    else
        frames_read(s);
}

static void session_closed(struct stream *st, const struct err *why, void *arg)
{
    struct session *s = arg;

    (void)st;
    s->stream = NULL;
    if (!s->ended && !s->err.code)
        (void)err_set(&s->err, E_UNKNOWN,
                      "the connection ended before the program's exit status came (%s)",
                      why->code ? why->text : "closed");
    if (s->reading)
        s->stopping = true; /* the read ends by itself, within its poll */
    else
        session_over(s);
}

/* On the thread pool: waits for input a little, so that the end of the session is not held up by a
 * terminal. */
static void input_read(void *arg)
{
    struct session *s = arg;
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};

    s->got = -1;
    s->input_error = EAGAIN;
    int rv = poll(&p, 1, 200);
    if (rv > 0) {
        s->got = read(STDIN_FILENO, s->input, sizeof s->input);
        s->input_error = s->got < 0 ? errno : 0;
    } else if (rv < 0) {
        s->input_error = errno;
    }
}

static void input_done(void *arg)
{
    struct session *s = arg;

    s->reading = false;
    if (s->stopping || !s->stream) {
        session_over(s);
        return;
    }
    if (s->got > 0)
        frame_send(s, s->input, (size_t)s->got);
    else if (s->got == 0 || (s->input_error != EAGAIN && s->input_error != EINTR)) {
        frame_send(s, NULL, 0); /* the end of stdin */
        return;
    }
    if (stream_pending(s->stream) > SEND_MAX_BYTES)
        return; /* goes on when the server has taken it: session_drained */
    s->reading = true;
    loop_work(s->c->loop, input_read, input_done, s);
}

static void session_drained(struct stream *st, void *arg)
{
    struct session *s = arg;

    (void)st;
    if (!s->reading && s->got > 0 && s->stream) {
        s->reading = true;
        loop_work(s->c->loop, input_read, input_done, s);
    }
}

static const struct stream_events session_events = {
    .data = session_data, .drained = session_drained, .closed = session_closed};

static void session_run(struct session *s, bool with_input)
{
    AUTO_BUF early = {0};

    buf_init(&early, 4u << 20);
    buf_init(&s->in, (size_t)2 * FRAME_MAX_BYTES);
    s->stream = client_take_stream(s->c->lane, &early);
    stream_set(s->stream, &session_events, s);
    if (early.n)
        session_data(s->stream, early.p, early.n, s);
    if (with_input && s->stream) {
        s->reading = true;
        loop_work(s->c->loop, input_read, input_done, s);
    }
    client_run_until(s->c->loop, &s->over);
    buf_fini(&s->in);
}

int verb_exec(struct cli *c, struct err *err)
{
    bool input = arg_flag(&c->args, "stdin");
    struct client_answer a;
    AUTO_BUF path = {0};
    long rank;

    if (c->args.n_pos != 1 || !c->args.n_rest)
        return cli_usage(c, err, "which workload, and -- which command?");
    int rv = arg_number(&c->args, "rank", 0, 4095, 0, &rank, err);
    if (!rv)
        rv = cli_connect(c, err);
    if (rv)
        return rv;
    buf_init(&path, 16u << 10);
    buf_printf(&path, "%s/exec?rank=%ld%s",
               cli_path(c, kind_by_id(KIND_WORKLOAD), c->ns, false, c->args.pos[0]), rank,
               input ? "&stdin=true" : "");
    for (unsigned i = 0; i < c->args.n_rest; i++) {
        buf_str(&path, "&command=");
        client_encode(&path, c->args.rest[i]);
    }
    if (path.failed)
        return err_set(err, E_TOOLARGE, "the command is longer than 16 KiB: put it into a script");
    client_answer_init(&a);
    struct client_request rq = {.method = "POST", .path = path.p, .upgrade = "hanse-exec/1"};
    rv = client_perform(c->lane, &rq, &a, err);
    if (!rv && a.status != 101)
        rv = a.status < 400 ? err_set(err, E_INTERNAL, "the server does not switch to hanse-exec/1")
                            : client_status(&a, err);
    client_answer_fini(&a);
    if (rv)
        return rv;
    struct session s = {.c = c};
    session_run(&s, input);
    if (s.err.code && err)
        *err = s.err;
    c->exit = s.exit;
    return s.err.code; /* with a message the program did not run, or its end is not known */
}
