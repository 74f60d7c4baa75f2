/* Execs and forwarded ports through the API server: channels in a WebSocket, as the API server has
 * them (k8s.io/streaming, httpstream/wsstream): the first byte of each message says which. An exec
 * ends by the Status in channel 3, which comes behind all output; without it nobody knows whether
 * its command still runs. */
#include "connectors/kubernetes/look/look_internal.h"
#include "connectors/websocket/websocket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXEC_WITH_INPUT "v5.channel.k8s.io" /* by it alone the end of input can be told */
#define EXEC_WITHOUT EXEC_WITH_INPUT ", v4.channel.k8s.io"
#define FORWARD "v4.channel.k8s.io"
#define PATH_MAX_BYTES ((size_t)64 << 10)
#define EARLY_MAX ((size_t)8 << 20) /* input ahead of the opening */
#define STATUS_MAX 65536
#define PIECE 16384

enum channel { /* of exec */
               CHANNEL_IN,
               CHANNEL_OUT,
               CHANNEL_ERR,
               CHANNEL_STATUS,
               CHANNEL_SIZE,
               CHANNEL_CLOSE = 255
};
#define PORT_DATA 0 /* of a port, whose channels begin with its number in two bytes */
#define PORT_ERROR 1

struct kube_attached {
    struct kube_seen_stream stream; /* first */
    bool forward, with_stdin, tty, input_over;
    struct websocket *ws;   /* NULL: it is gone */
    int channel;            /* of the message under way; -1: it is not known yet */
    unsigned skip[2];       /* bytes of these channels that say the port */
    struct buf early, said; /* said: Status of an exec, or error of a port */
    struct exec_size size;
    struct timer room;
    struct arena *a;
};

static struct kube_attached *attached_of(struct kube_seen_stream *s)
{
    return container_of(s, struct kube_attached, stream);
}

static void attached_free(struct kube_seen_stream *s)
{
    struct kube_attached *x = attached_of(s);

    kube_stream_forget(s);
    timer_stop(&x->room);
    if (x->ws)
        websocket_close(x->ws);
    buf_fini(&x->early);
    buf_fini(&x->said);
    (void)arena_destroy(x->a);
    mem_free(x);
}

/* ---- how it ended ---- */
static const char *target_of(const struct kube_attached *x)
{
    return x->stream.look->env.base->target;
}

/* Status of the API's: success, an exit status, or why it could not be. */
static int status_read(struct kube_attached *x, struct err *err)
{
    cJSON *status = json_parse_bytes(x->said.n ? x->said.p : "", x->said.n);
    const cJSON *cause;
    int code = -1;

    if (strcmp(kube_text(status, "status"), "Success") == 0)
        code = 0;
    if (code < 0 && strcmp(kube_text(status, "reason"), "NonZeroExitCode") == 0) {
        cJSON_ArrayForEach(cause, kube_at(status, "details.causes"))
        {
            if (strcmp(kube_text(cause, "reason"), "ExitCode") == 0)
                code = (int)strtol(kube_text(cause, "message"), NULL, 10);
        }
    }
    if (code < 0 || code > 255) {
        code = 1;
        kube_refusal_read(target_of(x), 0, slice_make(x->said.n ? x->said.p : "", x->said.n), err);
    }
    cJSON_Delete(status);
    return code;
}

static void exec_over(struct kube_attached *x)
{
    struct err err = {0};
    int code = status_read(x, &err);

    kube_stream_end(&x->stream, code, err.code ? &err : NULL);
}

static void text_plain(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || (unsigned char)*s > '~')
            *s = ' ';
}

static void port_over(struct kube_attached *x, const struct err *why)
{
    struct err err = *why;

    if (x->said.n) {
        (void)err_set(&err, E_CONNECT, "target %.100s: %.*s", target_of(x),
                      x->said.n < 300 ? (int)x->said.n : 300, x->said.p);
        text_plain(err.text);
    }
    kube_stream_end(&x->stream, err.code ? 1 : 0, err.code ? &err : NULL);
}

static void on_closed(void *arg, const struct websocket_end *end)
{
    struct kube_attached *x = arg;
    struct err err = end->err;

    x->ws = NULL;
    if (end->status)
        kube_refusal_read(target_of(x), end->status, end->body, &err);
    if (err.code == E_FORBIDDEN)
        kube_right_name(&err);
    if (x->stream.opened && x->forward) {
        port_over(x, &err);
    } else if (x->stream.opened) {
        (void)err_set(&err, E_CONNECT,
                      "target %.100s ended it before the exit status came (%.150s): whether the "
                      "command still runs is not known",
                      target_of(x), end->err.code ? end->err.text : "closed");
        kube_stream_end(&x->stream, 1, &err);
    } else {
        if (!err.code)
            (void)err_set(&err, E_CONNECT, "target %.100s closed it at once", target_of(x));
        kube_stream_end(&x->stream, 1, &err);
    }
}

/* ---- what comes ---- */
static void on_room(void *arg)
{
    struct kube_attached *x = arg;
    struct err err;

    if (x->early.failed) {
        (void)err_set(&err, E_LIMIT, "more than %zu bytes of input before target %.100s opened it",
                      EARLY_MAX, target_of(x));
        kube_stream_end(&x->stream, 1, &err);
    } else if (x->stream.sink.full && x->stream.sink.full(x->stream.sink.arg)) {
        timer_start(&x->room, KUBE_ROOM_MS);
    } else if (x->ws) {
        websocket_pause(x->ws, false);
    }
}

static void output(struct kube_attached *x, int fd, const void *p, size_t n)
{
    const struct log_sink *sink = &x->stream.sink;

    if (!n)
        return;
    sink->data(fd, p, n, sink->arg);
    if (x->stream.closed || timer_active(&x->room) || !sink->full || !sink->full(sink->arg))
        return;
    websocket_pause(x->ws, true);
    timer_start(&x->room, KUBE_ROOM_MS);
}

static void said(struct kube_attached *x, const void *p, size_t n)
{
    size_t room = STATUS_MAX - x->said.n;

    if (n)
        buf_add(&x->said, p, n < room ? n : room);
}

static void exec_part(struct kube_attached *x, const void *p, size_t n, bool last)
{
    if (x->channel == CHANNEL_OUT || x->channel == CHANNEL_ERR) {
        output(x, x->channel, p, n);
    } else if (x->channel == CHANNEL_STATUS) {
        said(x, p, n);
        if (last && x->said.n)
            exec_over(x);
    }
}

static void port_part(struct kube_attached *x, const char *p, size_t n)
{
    if (x->channel != PORT_DATA && x->channel != PORT_ERROR)
        return;
    unsigned *skip = &x->skip[x->channel];
    size_t ahead = n < *skip ? n : *skip;

    *skip -= (unsigned)ahead;
    if (x->channel == PORT_DATA)
        output(x, 1, p + ahead, n - ahead);
    else
        said(x, p + ahead, n - ahead);
}

static void on_data(void *arg, const void *p, size_t n, bool first, bool last)
{
    struct kube_attached *x = arg;
    const unsigned char *b = p;

    if (first)
        x->channel = -1;
    if (x->channel < 0 && n) {
        x->channel = *b++;
        n--;
    }
    if (x->channel < 0)
        return;
    kube_stream_enter(&x->stream);
    if (x->forward)
        port_part(x, (const char *)b, n);
    else
        exec_part(x, b, n, last);
    kube_stream_leave(&x->stream);
}

/* ---- what goes ---- */
static void send(struct kube_attached *x, unsigned char channel, const void *p, size_t n)
{
    const char *b = p;

    for (size_t take; n > 0; b += take, n -= take) {
        take = n < PIECE ? n : PIECE;
        websocket_send(x->ws, &channel, 1, b, take);
    }
}

/* Of a port the end of input cannot be told: it stays open until the other side ends. */
static void input_end(struct kube_attached *x)
{
    static const unsigned char which = CHANNEL_IN, close = CHANNEL_CLOSE;

    if (!x->forward)
        websocket_send(x->ws, &close, 1, &which, 1);
}

static void size_send(struct kube_attached *x)
{
    char text[64];
    int n;

    if (!x->tty || !x->size.rows || !x->size.columns)
        return;
    n = snprintf(text, sizeof text, "{\"Width\":%lld,\"Height\":%lld}", (long long)x->size.columns,
                 (long long)x->size.rows);
    send(x, CHANNEL_SIZE, text, (size_t)n);
}

static void on_open(void *arg, const char *protocol)
{
    struct kube_attached *x = arg;

    (void)protocol; /* one of those that were offered */
    kube_stream_enter(&x->stream);
    kube_stream_opened(&x->stream);
    if (!x->stream.closed && x->ws) {
        size_send(x);
        send(x, CHANNEL_IN, x->early.n ? x->early.p : "", x->early.n);
        buf_fini(&x->early);
        buf_init(&x->early, EARLY_MAX);
        if (x->input_over)
            input_end(x);
    }
    kube_stream_leave(&x->stream);
}

static struct kube_attached *session_of(const struct exec_session *s)
{
    const struct kube_seen_stream *stream = container_of(s, struct kube_seen_stream, base);

    return attached_of((struct kube_seen_stream *)(uintptr_t)stream);
}

static void attached_input(struct exec_session *s, const void *p, size_t n, bool eof)
{
    struct kube_attached *x = session_of(s);

    if (x->input_over || (!x->with_stdin && !x->forward))
        return;
    x->input_over = eof;
    if (!x->stream.opened) {
        if (n)
            buf_add(&x->early, p, n);
        if (x->early.failed) /* who adds more, whatever waits */
            timer_start(&x->room, 0);
    } else if (x->ws) {
        send(x, CHANNEL_IN, p, n);
        if (eof)
            input_end(x);
    }
}

static size_t attached_pending(const struct exec_session *s)
{
    const struct kube_attached *x = session_of(s);

    return x->early.n + (x->ws && x->stream.opened ? websocket_pending(x->ws) : 0);
}

static void attached_resize(struct exec_session *s, const struct exec_size *size)
{
    struct kube_attached *x = session_of(s);

    x->size = *size;
    if (x->stream.opened && x->ws)
        size_send(x);
}

static void attached_close(struct exec_session *s)
{
    kube_stream_close(&session_of(s)->stream);
}

/* ---- asking ---- */
static void encode(struct buf *out, const char *s)
{
    for (; *s; s++)
        if (strchr("-_.~", *s) || (*s >= '0' && *s <= '9') || (*s >= 'a' && *s <= 'z') ||
            (*s >= 'A' && *s <= 'Z'))
            buf_char(out, *s);
        else
            buf_printf(out, "%%%02X", (unsigned char)*s);
}

static int dial(struct kube_attached *x, const char *path, const char *protocols,
                uint64_t deadline_ms, struct err *err)
{
    static const struct websocket_events events = {
        .open = on_open, .data = on_data, .closed = on_closed};
    const struct kube_look_env *e = &x->stream.look->env;
    struct loop *loop = e->base->env.loop;
    const struct kube_login *login = e->login(e->base);
    const struct websocket_config g = {
        .who = arena_printf(x->a, "target %.100s", e->base->target),
        .url = login->server,
        .path = path,
        .ca_pem = login->ca_pem,
        .cert_pem = login->cert_pem,
        .key_pem = login->key_pem,
        .token = login->token,
        .protocols = protocols,
        .deadline_ms = deadline_ms ? deadline_ms : loop_now_ms(loop) + KUBE_OPEN_MS};

    return websocket_create(loop, &g, &events, x, &x->ws, err);
}

static int begin(struct kube_look *l, const struct kube_attached *from, const struct buf *path,
                 const char *protocols, uint64_t deadline_ms, const struct log_sink *sink,
                 struct exec_session **ret, struct err *err)
{
    static const struct exec_session_ops ops = {.input = attached_input,
                                                .pending = attached_pending,
                                                .resize = attached_resize,
                                                .close = attached_close};
    struct kube_attached *x;

    if (path->failed)
        return err_set(err, E_TOOLARGE, "a command of more than %zu bytes", PATH_MAX_BYTES);
    x = mem_new(struct kube_attached);
    *x = *from;
    x->stream.base.ops = &ops;
    x->stream.free = attached_free;
    x->channel = -1;
    x->skip[0] = x->skip[1] = 2;
    x->a = arena_create(0);
    buf_init(&x->early, EARLY_MAX);
    buf_init(&x->said, STATUS_MAX);
    timer_init(&x->room, l->env.base->env.loop, on_room, x);
    kube_stream_begin(&x->stream, l, sink);
    int rc = dial(x, path->p, protocols, deadline_ms, err);
    if (rc < 0) {
        attached_free(&x->stream);
        return rc;
    }
    *ret = &x->stream.base;
    return 0;
}

int kube_look_exec(struct kube_look *l, const struct run_key *k, const struct exec_request *rq,
                   const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    const struct kube_attached from = {
        .with_stdin = rq->with_stdin, .tty = rq->tty, .size = rq->size};
    struct kube_looked pod = {.path = ""};
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF path = {0};
    int rc = kube_look_ready(l, err);

    if (rc == 0)
        rc = kube_look_pod(l, k, rq->rank, true, a, &pod, err);
    if (rc < 0)
        return rc;
    buf_init(&path, PATH_MAX_BYTES);
    buf_printf(&path, "%s/exec?container=%s&stdout=true%s", pod.path, pod.program,
               rq->tty ? "&tty=true" : "&stderr=true");
    if (rq->with_stdin)
        buf_str(&path, "&stdin=true");
    for (const char *const *arg = rq->argv; arg && *arg; arg++) {
        buf_str(&path, "&command=");
        encode(&path, *arg);
    }
    return begin(l, &from, &path, rq->with_stdin ? EXEC_WITH_INPUT : EXEC_WITHOUT, rq->deadline_ms,
                 sink, ret, err);
}

int kube_look_forward(struct kube_look *l, const struct run_key *k,
                      const struct forward_request *rq, const struct log_sink *sink,
                      struct exec_session **ret, struct err *err)
{
    const struct kube_attached from = {.forward = true};
    struct kube_looked pod = {.path = ""};
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF path = {0};
    int rc = kube_look_ready(l, err);

    if (rc == 0)
        rc = kube_look_pod(l, k, rq->rank, true, a, &pod, err);
    if (rc < 0)
        return rc;
    buf_init(&path, PATH_MAX_BYTES);
    buf_printf(&path, "%s/portforward?ports=%lld", pod.path, (long long)rq->port);
    return begin(l, &from, &path, FORWARD, rq->deadline_ms, sink, ret, err);
}
