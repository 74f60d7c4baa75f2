/* Logs, exec and ports of a workload, asked of any member. The leader has the connectors that reach
 * the targets; another member relays to it over a stream of its own (ALPN_RELAY, mutual TLS). This
 * is the side of the member that was asked; leads.c is the other one.
 *
 * As with writes, the member that was asked finds out which user asks and what that user may do.
 * The leader takes a member's word for it because the certificate proves that it is a member; it
 * must never take anybody else's. Neither side holds more than RELAY_PENDING_MAX for a slow
 * reader. */
#include "controlplane/server/relay/relay.h"

#include "api/base/net/tls.h"

#include <stdio.h>
#include <string.h>

#define CONNECT_MS 5000
#define EARLY_MAX (4u << 20) /* input ahead of the stream: what may wait, and what was on its way */
/* The leadership is looked at again: two looks must agree that another member leads. */
#define LEADER_EVERY_MS 1000

struct api_exec_session {
    struct control *c;
    struct brain_session *local; /* this member leads: nothing else here is used */
    struct stream *st;           /* NULL once it is gone */
    struct api_stream_sink sink;
    struct frame_reader in;
    struct timer room, watch;
    uint64_t leader_id;
    unsigned looks;   /* in a row, that found another leader */
    cJSON *ask;       /* until the stream is open, */
    struct buf early; /* with the input that came by then */
    bool early_end, newer;
    int64_t rows, columns; /* told before the stream was open */
    bool open, ended, closed;
    char leader[256]; /* its API address */
};

static void session_free(void *arg)
{
    struct api_exec_session *s = arg;

    timer_stop(&s->room);
    timer_stop(&s->watch);
    frame_reader_fini(&s->in);
    buf_fini(&s->early);
    cJSON_Delete(s->ask);
    mem_free(s);
}

static void session_end(struct api_exec_session *s, int exit_code, const struct err *err)
{
    if (s->ended || s->closed)
        return;
    s->ended = true;
    timer_stop(&s->room);
    timer_stop(&s->watch);
    s->sink.end(exit_code, err, s->sink.arg); /* which may close the session */
}

/* A leader that lost its office ends what it relays. One that hangs, or that is cut off, cannot:
 * its connection stays open for as long as the kernel takes it for alive, and nothing comes any
 * more. */
static void session_watch(void *arg)
{
    struct api_exec_session *s = arg;
    struct core_status st;

    if (!s->st || s->closed || s->ended)
        return;
    core_status(s->c->core, &st);
    s->looks = st.leader_id && st.leader_id != s->leader_id ? s->looks + 1 : 0;
    if (s->looks > 1)
        stream_abort(s->st, "another member leads now");
    else
        timer_start(&s->watch, LEADER_EVERY_MS);
}

static void session_room(void *arg)
{
    struct api_exec_session *s = arg;

    if (!s->st || s->closed)
        return;
    if (s->sink.full && s->sink.full(s->sink.arg))
        timer_start(&s->room, RELAY_ROOM_POLL_MS);
    else
        stream_pause(s->st, false);
}

static int session_frame(const struct frame *f, void *arg)
{
    struct api_exec_session *s = arg;

    if (s->closed || s->ended)
        return 1;
    if (f->type == RELAY_OPENED && s->sink.opened) {
        s->sink.opened(s->sink.arg);
    } else if (f->type == RELAY_EOF && s->sink.eof) {
        s->sink.eof(s->sink.arg);
    } else if (f->type == RELAY_AT && s->sink.at) {
        cJSON *j = cJSON_ParseWithLength(f->body.p, f->body.n);
        const struct api_log_at at = relay_at_read(j);
        cJSON_Delete(j);
        s->sink.at(&at, s->sink.arg);
    } else if (f->type == RELAY_DATA) {
        s->sink.data(f->flags == 2 ? 2 : 1, f->body.p, f->body.n, s->sink.arg);
    } else if (f->type == RELAY_END) {
        cJSON *j = cJSON_ParseWithLength(f->body.p, f->body.n);
        int64_t code = relay_number(j, "code"), status = relay_number(j, "exitCode");
        struct err e = {0};

        if (code)
            (void)err_set(&e, code < 0 && code > -1000 ? (int)code : E_INTERNAL, "%s",
                          relay_text(j, "text"));
        cJSON_Delete(j);
        session_end(s, status >= 0 && status < 256 ? (int)status : 1, code ? &e : NULL);
        return 1;
    }
    return s->closed;
}

static void session_data(struct stream *st, const void *p, size_t n, void *arg)
{
    struct api_exec_session *s = arg;
    struct err e = {0};

    if (frame_feed(&s->in, p, n, session_frame, s, &e) < 0) {
        stream_abort(st, e.text);
        return;
    }
    if (s->ended && !s->closed)
        stream_close(st);
    else if (!s->closed && s->sink.full && s->sink.full(s->sink.arg)) {
        stream_pause(st, true);
        timer_start(&s->room, RELAY_ROOM_POLL_MS);
    }
}

static void session_open(struct stream *st, void *arg)
{
    struct api_exec_session *s = arg;
    cJSON *ask = s->ask;

    if (s->closed)
        return;
    if (strcmp(stream_peer(st)->alpn, ALPN_RELAY) != 0) {
        stream_abort(st, "it is of an older version, and relays nothing yet");
        return;
    }
    s->ask = NULL;
    if (!relay_json_send(st, s->newer ? RELAY_ASK : RELAY_OPEN, ask)) {
        stream_abort(st, "the command is too long");
        return;
    }
    s->open = true;
    if (s->rows || s->columns)
        relay_exec_resize(s, s->rows, s->columns);
    if (s->early.n || s->early_end)
        relay_pieces_send(st, RELAY_DATA, 0, s->early_end, s->early.n ? s->early.p : "",
                          s->early.n);
    buf_fini(&s->early);
}

static void session_closed(struct stream *st, const struct err *why, void *arg)
{
    struct api_exec_session *s = arg;
    struct err e = {0};

    (void)st;
    s->st = NULL;
    if (s->closed) {
        session_free(s);
        return;
    }
    (void)err_set(&e, s->open ? E_CONNECT : E_UNAVAIL,
                  s->open ? "the leader, which this came from, was lost (%.200s: %.200s)"
                          : "only the leader reaches the targets, and it cannot be reached at "
                            "%.200s: %.200s",
                  s->leader, why->text);
    session_end(s, 1, &e);
}

static const struct stream_events session_events = {
    .open = session_open, .data = session_data, .closed = session_closed};

static cJSON *ask_make(struct control *c, const struct api_exec *e, bool places)
{
    cJSON *j = cJSON_CreateObject();
    struct root *r = core_root(c->core);

    (void)cJSON_AddStringToObject(j, "cluster", root_cluster_uid(r));
    (void)root_unref(r);
    (void)cJSON_AddStringToObject(j, "user", e->who ? e->who->user : "");
    (void)cJSON_AddStringToObject(j, "by", e->who ? e->who->by : "");
    (void)cJSON_AddStringToObject(j, "namespace", e->ns);
    (void)cJSON_AddStringToObject(j, "workload", e->workload);
    (void)cJSON_AddNumberToObject(j, "rank", (double)e->rank);
    (void)cJSON_AddNumberToObject(j, "tail", (double)e->tail_lines);
    (void)cJSON_AddBoolToObject(j, "timestamps", e->timestamps);
    (void)cJSON_AddNumberToObject(j, "sinceSpan", (double)e->since_span_ms);
    (void)cJSON_AddNumberToObject(j, "since", (double)e->since_ms);
    (void)cJSON_AddNumberToObject(j, "epoch", (double)e->epoch);
    (void)cJSON_AddBoolToObject(j, "places", places);
    (void)cJSON_AddBoolToObject(j, "resumes", e->resumes);
    (void)cJSON_AddBoolToObject(j, "mid", e->mid);
    (void)cJSON_AddNumberToObject(j, "try", (double)e->try_);
    (void)cJSON_AddNumberToObject(j, "from", (double)e->from);
    (void)cJSON_AddBoolToObject(j, "follow", e->follow);
    (void)cJSON_AddBoolToObject(j, "stdin", e->with_stdin);
    (void)cJSON_AddBoolToObject(j, "tty", e->tty);
    (void)cJSON_AddNumberToObject(j, "rows", (double)e->rows);
    (void)cJSON_AddNumberToObject(j, "columns", (double)e->columns);
    (void)cJSON_AddNumberToObject(j, "port", (double)e->port);
    if (e->argv) {
        cJSON *argv = cJSON_AddArrayToObject(j, "argv");
        for (const char *const *a = e->argv; *a; a++)
            (void)cJSON_AddItemToArray(argv, cJSON_CreateString(*a));
    }
    return j;
}

static bool all_know_epochs(struct control *c)
{
    struct root *r = core_root(c->core);
    bool know = root_feature_level(r) >= FEATURE_TELLS;

    root_unref(r);
    return know;
}

static int relay_begin(struct control *c, const struct api_exec *e,
                       const struct api_stream_sink *sink, const struct core_status *st,
                       struct api_exec_session **ret, struct err *err)
{
    if (!st->leader_id)
        return err_set(err, E_UNAVAIL,
                       "no leader is known at the moment: only it can reach the targets");
    if (e->epoch && !all_know_epochs(c)) /* an older leader would tell the newest one's */
        return err_set(err, E_UNAVAIL,
                       "members of an older version know no --epoch: go on with the upgrade, and "
                       "ask again");
    struct api_exec_session *s = mem_new(struct api_exec_session);
    struct tls_config *tls = c->tls_member ? c->tls_member(c->tls_arg, st->leader_id) : NULL;
    *s = (struct api_exec_session){.c = c, .sink = *sink};
    str_copy(s->leader, sizeof s->leader, st->leader_api_address);
    frame_reader_init(&s->in);
    buf_init(&s->early, EARLY_MAX);
    timer_init(&s->room, c->loop, session_room, s);
    timer_init(&s->watch, c->loop, session_watch, s);
    s->leader_id = st->leader_id;
    int rv = stream_connect(c->loop, s->leader, tls, ALPN_RELAY, CONNECT_MS, &session_events, s,
                            &s->st, err);
    (void)tls_config_unref(tls);
    if (rv) {
        s->st = NULL;
        session_free(s);
        return err_set(err, E_UNAVAIL,
                       "only the leader reaches the targets, and it cannot be "
                       "reached at %.200s",
                       st->leader_api_address);
    }
    s->ask = ask_make(c, e, sink->at != NULL);
    s->newer = e->port || e->tty;
    timer_start(&s->watch, LEADER_EVERY_MS);
    *ret = s;
    return 0;
}

int relay_exec(struct backend *b, const struct api_exec *e, const struct api_stream_sink *sink,
               struct api_exec_session **ret, struct err *err)
{
    struct control *c = (struct control *)b;
    struct brain_session *local = NULL;
    struct core_status st;

    core_status(c->core, &st);
    if (!st.leads)
        return relay_begin(c, e, sink, &st, ret, err);
    int rv = brain_exec(c->brain, e, sink, &local, err);
    if (rv)
        return rv;
    *ret = mem_new(struct api_exec_session);
    (*ret)->c = c;
    (*ret)->local = local;
    return 0;
}

void relay_exec_resize(struct api_exec_session *s, int64_t rows, int64_t columns)
{
    const unsigned char b[4] = {(unsigned char)rows, (unsigned char)(rows >> 8),
                                (unsigned char)columns, (unsigned char)(columns >> 8)};

    if (s->local)
        brain_exec_resize(s->local, rows, columns);
    else if (s->open && s->st && !s->ended)
        frame_send(s->st, RELAY_SIZE, 0, 0, b, sizeof b);
    s->rows = rows;
    s->columns = columns;
}

void relay_exec_input(struct api_exec_session *s, const void *p, size_t n, bool eof)
{
    if (s->local) {
        brain_exec_input(s->local, p, n, eof);
    } else if (s->open && s->st && !s->ended) {
        relay_pieces_send(s->st, RELAY_DATA, 0, eof, p, n);
    } else if (s->st && !s->ended) {
        buf_add(&s->early, p, n);
        s->early_end = s->early_end || eof;
        if (s->early.failed)
            stream_abort(s->st, "too much input came ahead of it");
    }
}

size_t relay_exec_pending(const struct api_exec_session *s)
{
    if (s->local)
        return brain_exec_pending(s->local);
    return s->st && s->open ? stream_pending(s->st) : s->early.n;
}

void relay_exec_close(struct api_exec_session *s)
{
    if (s->closed)
        return;
    s->closed = true;
    timer_stop(&s->room);
    timer_stop(&s->watch);
    if (s->local)
        brain_exec_close(s->local);
    if (s->st)
        stream_abort(s->st, "its client has gone");
    else
        loop_post(s->c->loop, session_free, s);
}
