/* Logs, exec and ports of a workload, asked of any member. The leader has the connectors that reach
 * the targets; another member relays to it over a stream of its own (ALPN_RELAY, mutual TLS).
 *
 * As with writes, the member that was asked finds out which user asks and what that user may do.
 * The leader takes a member's word for it because the certificate proves that it is a member; it
 * must never take anybody else's. Neither side holds more than PENDING_MAX for a slow reader. */
#include "controlplane/server/backend.h"

#include "api/base/limits.h"
#include "api/base/log.h"
#include "api/base/net/frame.h"
#include "api/base/net/tls.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CONNECT_MS 5000
#define PENDING_MAX (1u << 20)
#define EARLY_MAX (4u << 20) /* input ahead of the stream: PENDING_MAX, and what was on its way */
#define ROOM_POLL_MS 20
/* The leadership is looked at again: two looks must agree that another member leads. */
#define LEADER_EVERY_MS 1000
#define ASK_EVERY 50 /* looks for room: then a frame that says nothing */
#define PIECE 65536u
#define ARGS_MAX 4096

enum relay_frame {
    RELAY_OPEN = 1, /* first, from who was asked: JSON */
    RELAY_DATA,     /* output, flags = 1 or 2 as its descriptor; input, flags 1 = its end */
    RELAY_END,      /* last, from the leader: {"exitCode","code","text"} */
    RELAY_OPENED,   /* from the leader, no body: it is open; older members tell and heed it not */
    RELAY_ASK,      /* as OPEN, for what older leaders do not know: they refuse a frame like this */
    RELAY_SIZE,     /* from who was asked: rows and columns, two bytes each, little-endian */
    RELAY_EOF       /* from the leader, no body: no more output comes, input is still taken */
};

static void pieces_send(struct stream *st, enum relay_frame type, uint8_t flags, uint8_t last,
                        const void *p, size_t n)
{
    const char *b = p;

    for (; n > PIECE; b += PIECE, n -= PIECE)
        frame_send(st, type, flags, 0, b, PIECE);
    frame_send(st, type, last, 0, b, n);
}

static bool json_send(struct stream *st, enum relay_frame type, cJSON *j)
{
    char *text = cJSON_PrintUnformatted(j);
    size_t n = text ? strlen(text) : 0;
    bool fits = text && n <= FRAME_BODY_MAX;

    if (fits)
        frame_send(st, (uint8_t)type, 0, 0, text, n);
    cJSON_free(text);
    cJSON_Delete(j);
    return fits;
}

static const char *text_of(const cJSON *j, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

    return cJSON_IsString(v) ? v->valuestring : "";
}

static int64_t number_of(const cJSON *j, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);
    bool fits = cJSON_IsNumber(v) && v->valuedouble >= -1e15 && v->valuedouble <= 1e15;

    return fits ? (int64_t)v->valuedouble : 0;
}

/* ---- at the member that was asked ---- */
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
        timer_start(&s->room, ROOM_POLL_MS);
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
    } else if (f->type == RELAY_DATA) {
        s->sink.data(f->flags == 2 ? 2 : 1, f->body.p, f->body.n, s->sink.arg);
    } else if (f->type == RELAY_END) {
        cJSON *j = cJSON_ParseWithLength(f->body.p, f->body.n);
        int64_t code = number_of(j, "code"), status = number_of(j, "exitCode");
        struct err e = {0};

        if (code)
            (void)err_set(&e, code < 0 && code > -1000 ? (int)code : E_INTERNAL, "%s",
                          text_of(j, "text"));
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
        timer_start(&s->room, ROOM_POLL_MS);
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
    if (!json_send(st, s->newer ? RELAY_ASK : RELAY_OPEN, ask)) {
        stream_abort(st, "the command is too long");
        return;
    }
    s->open = true;
    if (s->rows || s->columns)
        relay_exec_resize(s, s->rows, s->columns);
    if (s->early.n || s->early_end)
        pieces_send(st, RELAY_DATA, 0, s->early_end, s->early.n ? s->early.p : "", s->early.n);
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

static cJSON *ask_make(struct control *c, const struct api_exec *e)
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

static int relay_begin(struct control *c, const struct api_exec *e,
                       const struct api_stream_sink *sink, const struct core_status *st,
                       struct api_exec_session **ret, struct err *err)
{
    if (!st->leader_id)
        return err_set(err, E_UNAVAIL,
                       "no leader is known at the moment: only it can reach the targets");
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
    s->ask = ask_make(c, e);
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
        pieces_send(s->st, RELAY_DATA, 0, eof, p, n);
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

/* ---- at the leader ---- */
struct relayed {
    struct list link; /* of control.relayed */
    struct control *c;
    struct stream *st;
    struct frame_reader in;
    struct brain_session *session;
    struct timer room;
    unsigned looks; /* for room, in a row, that found none */
    bool opened, ended;
};

static void relayed_opened(void *arg)
{
    struct relayed *r = arg;

    if (!r->ended)
        frame_send(r->st, RELAY_OPENED, 0, 0, NULL, 0);
}

static void relayed_data(int fd, const void *p, size_t n, void *arg)
{
    struct relayed *r = arg;

    if (!r->ended)
        pieces_send(r->st, RELAY_DATA, (uint8_t)fd, (uint8_t)fd, p, n);
}

static void relayed_end(int exit_code, const struct err *err, void *arg)
{
    struct relayed *r = arg;
    cJSON *j = cJSON_CreateObject();

    (void)cJSON_AddNumberToObject(j, "exitCode", exit_code);
    (void)cJSON_AddNumberToObject(j, "code", err ? err->code : 0);
    (void)cJSON_AddStringToObject(j, "text", err ? err->text : "");
    if (r->ended) {
        cJSON_Delete(j);
        return;
    }
    r->ended = true;
    (void)json_send(r->st, RELAY_END, j);
    stream_close(r->st);
}

static void relayed_eof(void *arg)
{
    struct relayed *r = arg;

    if (!r->ended)
        frame_send(r->st, RELAY_EOF, 0, 0, NULL, 0);
}

static bool relayed_full(void *arg)
{
    const struct relayed *r = arg;

    return !r->ended && stream_pending(r->st) > PENDING_MAX;
}

static void relayed_room(void *arg)
{
    struct relayed *r = arg;

    if (r->ended)
        return;
    if (!r->session || brain_exec_pending(r->session) <= PENDING_MAX) {
        r->looks = 0;
        stream_pause(r->st, false);
        return;
    }
    if (stream_hung_up(r->st)) { /* else what was begun would outlive who asked */
        stream_abort(r->st, "who asked is gone");
        return;
    }
    if (++r->looks % ASK_EVERY == 0) /* as api/server/verbs.c asks a client */
        frame_send(r->st, RELAY_DATA, 2, 0, NULL, 0);
    timer_start(&r->room, ROOM_POLL_MS);
}

static int relayed_begin(struct relayed *r, const cJSON *j, struct err *err)
{
    const cJSON *argv = cJSON_GetObjectItemCaseSensitive(j, "argv"), *a;
    struct root *root = core_root(r->c->core);
    bool same = !strcmp(text_of(j, "cluster"), root_cluster_uid(root));
    const char *args[ARGS_MAX + 1];
    size_t n = 0;

    (void)root_unref(root);
    if (!same)
        return err_set(err, E_CONFLICT, "the member that was asked is of another cluster");
    cJSON_ArrayForEach(a, argv)
    {
        if (!cJSON_IsString(a) || n == ARGS_MAX)
            return err_set(err, E_SYNTAX, "a command has at most %d arguments, all of them texts",
                           ARGS_MAX);
        args[n++] = a->valuestring;
    }
    args[n] = NULL;
    struct api_exec e = {.ns = text_of(j, "namespace"),
                         .workload = text_of(j, "workload"),
                         .rank = number_of(j, "rank"),
                         .tail_lines = number_of(j, "tail"),
                         .timestamps =
                             cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "timestamps")),
                         .since_span_ms = number_of(j, "sinceSpan"),
                         .since_ms = number_of(j, "since"),
                         .follow = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "follow")),
                         .with_stdin = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "stdin")),
                         .tty = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "tty")),
                         .rows = number_of(j, "rows"),
                         .columns = number_of(j, "columns"),
                         .port = number_of(j, "port"),
                         .argv = argv ? args : NULL};
    struct api_stream_sink sink = {.opened = relayed_opened,
                                   .data = relayed_data,
                                   .end = relayed_end,
                                   .full = relayed_full,
                                   .eof = relayed_eof,
                                   .arg = r};
    log_event(LOG_INFO, "relay.opened",
              LOG_FIELDS({"from", log_str(stream_peer(r->st)->name)},
                         {"user", log_str(text_of(j, "user"))}, {"by", log_str(text_of(j, "by"))},
                         {"what", log_str(e.port ? "port"
                                          : argv ? "exec"
                                                 : "log")},
                         {"namespace", log_str(e.ns)}, {"workload", log_str(e.workload)}));
    return brain_exec(r->c->brain, &e, &sink, &r->session, err);
}

static int relayed_frame(const struct frame *f, void *arg)
{
    struct relayed *r = arg;
    struct err e = {0};

    if (r->ended)
        return 1;
    const unsigned char *b = (const unsigned char *)f->body.p;
    if ((f->type == RELAY_OPEN || f->type == RELAY_ASK) && !r->opened) {
        cJSON *j = cJSON_ParseWithLength(f->body.p, f->body.n);
        r->opened = true;
        if (relayed_begin(r, j, &e))
            relayed_end(1, &e, r);
        cJSON_Delete(j);
    } else if (f->type == RELAY_SIZE && f->body.n == 4 && r->session) {
        brain_exec_resize(r->session, b[0] | b[1] << 8, b[2] | b[3] << 8);
    } else if (f->type == RELAY_DATA && r->session) {
        brain_exec_input(r->session, f->body.p, f->body.n, f->flags == 1);
    } else {
        stream_abort(r->st, "a frame that is not expected");
        return 1;
    }
    return r->ended;
}

static void relayed_read(struct stream *st, const void *p, size_t n, void *arg)
{
    struct relayed *r = arg;
    struct err e = {0};

    if (frame_feed(&r->in, p, n, relayed_frame, r, &e) < 0) {
        stream_abort(st, e.text);
    } else if (!r->ended && r->session && brain_exec_pending(r->session) > PENDING_MAX) {
        stream_pause(st, true);
        timer_start(&r->room, ROOM_POLL_MS);
    }
}

static void relayed_gone(struct stream *st, const struct err *why, void *arg)
{
    struct relayed *r = arg;
    struct control *c = r->c;

    (void)st;
    (void)why;
    r->ended = true;
    if (r->session)
        brain_exec_close(r->session);
    timer_stop(&r->room);
    frame_reader_fini(&r->in);
    list_remove(&r->link);
    mem_free(r);
    if (c->relays_closed && list_empty(&c->relayed))
        loop_post(c->loop, c->relays_closed, c->relays_closed_arg);
}

static const struct stream_events relayed_events = {.data = relayed_read, .closed = relayed_gone};

/* By the state, or by raft's own list, which has the first members ahead of what they tell. */
static bool of_a_member(struct control *c, const struct peer_identity *who)
{
    struct member_info m[64];
    struct core_status st;
    char name[64];
    struct root *r = core_root(c->core);
    size_t n = root_members(r, m, sizeof m / sizeof *m);
    bool found = false;

    (void)root_unref(r);
    core_status(c->core, &st);
    for (size_t i = 0; i < n + st.voters && !found; i++) {
        (void)snprintf(name, sizeof name, "member:%" PRIu64,
                       i < n ? m[i].id : st.voter_ids[i - n]);
        found = !strcmp(name, who->name);
    }
    return found && (who->certified || !c->tls_member);
}

void relay_accept(struct control *c, struct stream *st)
{
    if (!of_a_member(c, stream_peer(st))) {
        stream_abort(st, "only members relay, by their certificates");
        return;
    }
    struct relayed *r = mem_new(struct relayed);
    r->c = c;
    r->st = st;
    frame_reader_init(&r->in);
    timer_init(&r->room, c->loop, relayed_room, r);
    list_push(&c->relayed, &r->link);
    stream_set(st, &relayed_events, r);
}

void relay_close(struct control *c, void (*closed)(void *arg), void *arg)
{
    c->relays_closed = closed;
    c->relays_closed_arg = arg;
    if (list_empty(&c->relayed))
        loop_post(c->loop, closed, arg);
    list_for_each_safe (it, tmp, &c->relayed)
        stream_abort(container_of(it, struct relayed, link)->st, "this member is shutting down");
}
