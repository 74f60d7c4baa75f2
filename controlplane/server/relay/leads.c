/* The leader's side of the relay: what other members were asked, with the connectors that this one
 * has (asked.c is the other side). */
#include "controlplane/server/relay/relay.h"

#include "api/base/limits.h"
#include "api/base/log.h"
#include "api/base/net/tls.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ASK_EVERY 50 /* looks for room: then a frame that says nothing */
#define ARGS_MAX LIMIT_URL_PARAMS_MAX

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
        relay_pieces_send(r->st, RELAY_DATA, (uint8_t)fd, (uint8_t)fd, p, n);
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
    (void)relay_json_send(r->st, RELAY_END, j);
    stream_close(r->st);
}

static void relayed_eof(void *arg)
{
    struct relayed *r = arg;

    if (!r->ended)
        frame_send(r->st, RELAY_EOF, 0, 0, NULL, 0);
}

static void relayed_at(const struct api_log_at *at, void *arg)
{
    struct relayed *r = arg;

    if (!r->ended)
        (void)relay_json_send(r->st, RELAY_AT, relay_at_make(at));
}

static bool relayed_full(void *arg)
{
    const struct relayed *r = arg;

    return !r->ended && stream_pending(r->st) > RELAY_PENDING_MAX;
}

static void relayed_room(void *arg)
{
    struct relayed *r = arg;

    if (r->ended)
        return;
    if (!r->session || brain_exec_pending(r->session) <= RELAY_PENDING_MAX) {
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
    timer_start(&r->room, RELAY_ROOM_POLL_MS);
}

static int relayed_begin(struct relayed *r, const cJSON *j, struct err *err)
{
    const cJSON *argv = cJSON_GetObjectItemCaseSensitive(j, "argv"), *a;
    struct root *root = core_root(r->c->core);
    bool same = !strcmp(relay_text(j, "cluster"), root_cluster_uid(root));
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
    const int64_t from = relay_number(j, "from");
    struct api_exec e = {.ns = relay_text(j, "namespace"),
                         .workload = relay_text(j, "workload"),
                         .rank = relay_number(j, "rank"),
                         .tail_lines = relay_number(j, "tail"),
                         .timestamps = relay_flag(j, "timestamps"),
                         .since_span_ms = relay_number(j, "sinceSpan"),
                         .since_ms = relay_number(j, "since"),
                         .epoch = relay_number(j, "epoch"),
                         .resumes = relay_flag(j, "resumes"),
                         .mid = relay_flag(j, "mid"),
                         .try_ = relay_number(j, "try"),
                         .from = from > 0 ? (uint64_t)from : 0,
                         .follow = relay_flag(j, "follow"),
                         .with_stdin = relay_flag(j, "stdin"),
                         .tty = relay_flag(j, "tty"),
                         .rows = relay_number(j, "rows"), .columns = relay_number(j, "columns"),
                         .port = relay_number(j, "port"),
                         .argv = argv ? args : NULL};
    struct api_stream_sink sink = {.opened = relayed_opened,
                                   .data = relayed_data,
                                   .end = relayed_end,
                                   .full = relayed_full,
                                   .eof = relayed_eof,
                                   .at = relay_flag(j, "places") ? relayed_at : NULL,
                                   .arg = r};
    log_event(LOG_INFO, "relay.opened",
              LOG_FIELDS({"from", log_str(stream_peer(r->st)->name)},
                         {"user", log_str(relay_text(j, "user"))},
                         {"by", log_str(relay_text(j, "by"))},
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
    } else if (!r->ended && r->session && brain_exec_pending(r->session) > RELAY_PENDING_MAX) {
        stream_pause(st, true);
        timer_start(&r->room, RELAY_ROOM_POLL_MS);
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
