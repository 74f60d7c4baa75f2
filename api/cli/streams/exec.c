/* exec: a program beside those of a workload. */
#include "api/cli/cli_internal.h"
#include "api/cli/streams/frames.h"
#include "api/cli/streams/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#define SEND_MAX_BYTES (1u << 20)

struct session {
    struct cli *c;
    struct stream *stream;
    struct buf in;
    bool over, stopping;
    struct frames_end end;
    struct err err;
    bool reading; /* a read of standard input is under way on the thread pool */
    bool unread;  /* it goes on when the server has taken what waits */
    unsigned char input[65536];
    ssize_t got;
    int input_error;
};

static void session_over(struct session *s)
{
    s->over = true;
    loop_stop(s->c->loop);
}

static void session_frame(void *arg, enum frame_type type, const char *p, size_t n)
{
    struct session *s = arg;
    FILE *to = type == FRAME_OUT ? s->c->out : s->c->err;

    if (type == FRAME_STATUS) {
        frames_end_read(p, n, &s->end, &s->err);
    } else if (type == FRAME_OUT || type == FRAME_ERR) {
        if ((fwrite(p, 1, n, to) == n && fflush(to) == 0) || to == s->c->err)
            return;
        terminal_restore(); /* who read it is gone */
        (void)out_now(s->c);
    }
}

static void session_data(struct stream *st, const void *p, size_t n, void *arg)
{
    struct session *s = arg;

    if (frames_take(&s->in, p, n, session_frame, s))
        return;
    (void)err_set(&s->err, E_CONNECT, "the server sent a frame that is too large");
    stream_abort(st, "frame too large");
}

static void session_closed(struct stream *st, const struct err *why, void *arg)
{
    struct session *s = arg;

    (void)st;
    s->stream = NULL;
    if (!s->end.told && !s->err.code)
        (void)err_set(&s->err, E_CONNECT,
                      "the member was lost before the program's exit status came (%s): whether the "
                      "program still runs is not known; try again, others may answer",
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
    if (s->got > 0) {
        frames_send(s->stream, FRAME_IN, s->input, (size_t)s->got);
    } else if (s->got == 0 || (s->input_error != EAGAIN && s->input_error != EINTR)) {
        frames_send(s->stream, FRAME_IN, NULL, 0);
        return;
    }
    s->unread = stream_pending(s->stream) > SEND_MAX_BYTES;
    if (s->unread)
        return; /* session_drained */
    s->reading = true;
    loop_work(s->c->loop, input_read, input_done, s);
}

static void session_drained(struct stream *st, void *arg)
{
    struct session *s = arg;

    (void)st;
    if (!s->unread || s->reading)
        return;
    s->unread = false;
    s->reading = true;
    loop_work(s->c->loop, input_read, input_done, s);
}

/* The window has another size now. */
static void session_size(void *arg)
{
    struct session *s = arg;
    unsigned rows, columns;

    if (!s->stream || !terminal_size(&rows, &columns))
        return;
    const unsigned char size[4] = {(unsigned char)(rows >> 8), (unsigned char)rows,
                                   (unsigned char)(columns >> 8), (unsigned char)columns};
    frames_send(s->stream, FRAME_SIZE, size, sizeof size);
}

static const struct stream_events session_events = {
    .data = session_data, .drained = session_drained, .closed = session_closed};

static void session_run(struct session *s, bool with_input)
{
    AUTO_BUF early = {0};

    buf_init(&early, 4u << 20);
    buf_init(&s->in, (size_t)4 * FRAME_MAX_BYTES);
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

/* Returns 0 once the server has switched protocols. */
static int exec_ask(struct cli *c, const char *path, struct err *err)
{
    struct client_answer a;
    struct client_request rq = {.method = "POST", .path = path, .upgrade = "hanse-exec/1"};

    client_answer_init(&a);
    int rv = client_perform(c->lane, &rq, &a, err);
    if (!rv && a.status != 101)
        rv = a.status < 400 ? err_set(err, E_INTERNAL, "the server does not switch to hanse-exec/1")
                            : client_status(&a, err);
    client_answer_fini(&a);
    return rv;
}

/* As kubectl: a terminal there without one here is none that keys are typed into. */
static int exec_terminal(struct session *s, bool input, struct err *err)
{
    int rv = loop_signal(s->c->loop, SIGWINCH, session_size, s, err);

    if (rv || !input)
        return rv;
    if (terminal_is(STDIN_FILENO))
        return terminal_raw(err);
    (void)fputs("standard input is no terminal: what comes on it is passed on line by line\n",
                s->c->err);
    return 0;
}

int verb_exec(struct cli *c, struct err *err)
{
    bool input = arg_flag(&c->args, "stdin"), tty = arg_flag(&c->args, "tty");
    unsigned rows, columns;
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
    buf_printf(&path, "%s/exec?rank=%ld%s%s",
               cli_path(c, kind_by_id(KIND_WORKLOAD), c->ns, false, c->args.pos[0]), rank,
               input ? "&stdin=true" : "", tty ? "&tty=true" : "");
    if (tty && terminal_size(&rows, &columns))
        buf_printf(&path, "&rows=%u&columns=%u", rows, columns);
    for (unsigned i = 0; i < c->args.n_rest; i++) {
        buf_str(&path, "&command=");
        client_encode(&path, c->args.rest[i]);
    }
    if (path.failed)
        return err_set(err, E_TOOLARGE, "the command is longer than 16 KiB: put it into a script");
    struct session s = {.c = c};
    rv = exec_ask(c, path.p, err);
    if (!rv && tty)
        rv = exec_terminal(&s, input, err);
    if (rv)
        return rv;
    session_run(&s, input);
    terminal_restore();
    if (s.err.code && err)
        *err = s.err;
    c->exit = s.end.told ? s.end.exit_code : 1;
    return s.err.code; /* with a message the program did not run, or its end is not known */
}
