/* The peer channel: this program's own calls between members, on streams apart from libraft's.
 * Every member dials every other. Questions go out on the stream that a member dialled, and answers
 * come back on it. A lost stream loses questions and answers alike, and the asking member asks
 * again. Nothing here may be trusted further than the certificate's CN. */
#include "controlplane/raft/core_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define REDIAL_MS 200
#define DIAL_DEADLINE_MS 2000
#define HELLO_MAX 128

void le64_put(unsigned char *p, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}
uint64_t le64_get(const void *p)
{
    const unsigned char *b = p;
    uint64_t v = 0;

    for (unsigned i = 0; i < 8; i++)
        v |= (uint64_t)b[i] << (8 * i);
    return v;
}
void le32_put(unsigned char *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}
uint32_t le32_get(const void *p)
{
    const unsigned char *b = p;

    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

void peers_init(struct core *c)
{
    list_init(&c->peers);
    list_init(&c->inbounds);
}

struct peer *peer_find(struct core *c, uint64_t id)
{
    list_for_each (it, &c->peers) {
        struct peer *p = container_of(it, struct peer, link);

        if (p->id == id && !p->gone)
            return p;
    }
    return NULL;
}

bool peer_send(struct core *c, uint64_t id, enum peer_frame type, uint64_t question, const void *p,
               size_t n)
{
    struct peer *peer = peer_find(c, id);

    if (!peer || !peer->open || stream_pending(peer->s) > PEER_PENDING_MAX)
        return false;
    frame_send(peer->s, (uint8_t)type, 0, question, p, n);
    return true;
}

bool inbound_send(struct core *c, uint64_t id, enum peer_frame type, uint64_t question,
                  const void *p, size_t n)
{
    for (struct list *it = c->inbounds.prev; it != &c->inbounds;
         it = it->prev) { /* the newest of that member */
        struct inbound *in = container_of(it, struct inbound, link);

        if (in->id == id && stream_pending(in->s) <= PEER_PENDING_MAX) {
            frame_send(in->s, (uint8_t)type, 0, question, p, n);
            return true;
        }
    }
    return false;
}

static bool configured_id(const struct core *c, uint64_t id)
{
    for (unsigned i = 0; i < c->raft.configuration.n; i++)
        if (c->raft.configuration.servers[i].id == id)
            return true;
    return false;
}

bool peer_removed(const struct core *c, uint64_t id)
{
    for (unsigned i = 0; i < MEMBERS_MAX; i++)
        if (c->removed[i] == id)
            return !configured_id(c, id);
    return false;
}

static void removed_note(struct core *c, uint64_t id)
{
    unsigned at = 0;

    for (unsigned i = 0; i < MEMBERS_MAX; i++)
        if (!c->removed[i] || c->removed[i] == id)
            at = i;
    c->removed[at] = id;
}

/* ---- streams that we dialled ---- */
static void peer_drop(struct peer *p)
{
    list_remove(&p->link);
    timer_stop(&p->retry);
    frame_reader_fini(&p->in);
    mem_free(p);
}

/* A peer that has committed the configuration which this member knows, and is in a later one
 * without it. One that is behind says nothing. */
static void removed_here(struct core *c, uint64_t by, uint64_t commit)
{
    struct err why;

    if (commit < c->raft.configuration_committed_index ||
        commit < c->raft.configuration_uncommitted_index || !configured_id(c, c->cfg.id))
        return;
    err_set(
        &why, E_GONE,
        "member %" PRIu64 " was removed from its cluster (member %" PRIu64
        " says so): it is no longer needed; to take it in again empty %.200s, run `hanse members "
        "add`, and start it without --peer",
        c->cfg.id, by, c->cfg.data_dir);
    log_err(LOG_ERROR, "member.removed", &why);
    core_alarm_raise(c, ALARM_REMOVED, "%.400s", why.text);
    core_fatal(c, &why);
}

/* The cluster's state was restored, or taken on by one member, without this one: what it holds is
 * of a log that nobody goes on with, and its own majority would decide for work that others answer
 * for. A member says so, and its certificate who it is. */
static void left_behind(struct core *c, uint64_t by, const char *uid)
{
    struct err why;

    if (!cluster_left_behind(c->meta.cluster, uid) || cluster_same_log(c->meta.cluster, uid))
        return;
    err_set(&why, E_GONE,
            "member %" PRIu64 " was left behind: its cluster began anew without it, as %s (member "
            "%" PRIu64
            " says so); what it holds of %s is of no more use: keep %.200s elsewhere, and "
            "take it in again empty (hanse members add)",
            c->cfg.id, uid, by, c->meta.cluster, c->cfg.data_dir);
    log_err(LOG_ERROR, "member.left_behind", &why);
    core_alarm_raise(c, ALARM_REMOVED, "%.400s", why.text);
    core_fatal(c, &why);
}

static void uid_of(char ret[CLUSTER_UID_MAX], const unsigned char *b, size_t n)
{
    (void)snprintf(ret, CLUSTER_UID_MAX, "%.*s", (int)(n < CLUSTER_UID_MAX ? n : 0),
                   (const char *)b);
}

static int peer_frame(const struct frame *f, void *arg)
{
    struct peer *p = arg;
    struct core *c = p->c;
    const unsigned char *b = f->body.p;
    size_t n = f->body.n;

    if (c->closing)
        return 1;
    if (f->type == FRAME_TERM_IS && n == 8) {
        reads_term_is(c, p, f->id, le64_get(b));
    } else if (f->type == FRAME_INDEX_IS && n == 12) {
        reads_index_is(c, f->id, -(int)le32_get(b), le64_get(b + 4));
    } else if (f->type == FRAME_REFUSED && n >= 4 && n < 4 + REQUEST_ID_MAX) {
        char id[REQUEST_ID_MAX] = "";

        memcpy(id, b + 4, n - 4);
        proposal_refused(c, id, -(int)le32_get(b));
    } else if (f->type == FRAME_MEMBER_IS && n >= 4) {
        members_answer(c, f->id, -(int)le32_get(b), slice_make(b + 4, n - 4));
    } else if (f->type == FRAME_DIGEST_IS && n == 16) {
        digest_is(c, p, le64_get(b), le64_get(b + 8));
    } else if (f->type == FRAME_ARCHIVE_IS) {
        archive_is(c, p, f->id, b, n);
    } else if (f->type == FRAME_CLOCK_IS) {
        clock_is(c, p, f->id, b, n);
    } else if (f->type == FRAME_REMOVED && n == 8) {
        removed_here(c, p->id, le64_get(b));
    } else if (f->type == FRAME_LEFT_BEHIND && n < CLUSTER_UID_MAX) {
        char uid[CLUSTER_UID_MAX];

        uid_of(uid, b, n);
        left_behind(c, p->id, uid);
    }
    return 0; /* what a newer version says and we do not know is passed over */
}

static void peer_open(struct stream *s, void *arg)
{
    struct peer *p = arg;
    struct core *c = p->c;
    unsigned char body[8 + 64];
    size_t n = strlen(c->meta.cluster);
    const struct peer_identity *who = stream_peer(s);
    char want[64];

    (void)snprintf(want, sizeof want, "member:%" PRIu64, p->id);
    if (c->cfg.tls_client && (!who->certified || strcmp(who->name, want) != 0)) {
        stream_abort(s, "the certificate is not that member's");
        return;
    }
    p->open = true;
    le64_put(body, c->cfg.id);
    memcpy(body + 8, c->meta.cluster, n);
    frame_send(s, FRAME_HELLO, 0, 0, body, 8 + n);
    p->clock_question = 0; /* what was asked on an older stream is not answered */
    clock_ask(c, p);
    core_kick(c);
}

static void peer_data(struct stream *s, const void *d, size_t n, void *arg)
{
    struct peer *p = arg;
    struct err e = {0};

    if (frame_feed(&p->in, d, n, peer_frame, p, &e) < 0)
        stream_abort(s, e.text);
}

static void peer_closed(struct stream *s, const struct err *why, void *arg)
{
    struct peer *p = arg;
    struct core *c = p->c;

    (void)s;
    (void)why;
    c->streams--;
    p->s = NULL;
    p->open = false;
    frame_reader_fini(&p->in);
    frame_reader_init(&p->in);
    if (p->gone || c->closing) {
        peer_drop(p);
        core_maybe_closed(c);
        return;
    }
    timer_start(&p->retry, REDIAL_MS);
}

static const struct stream_events peer_events = {
    .open = peer_open, .data = peer_data, .closed = peer_closed};

static void peer_dial(void *arg)
{
    struct peer *p = arg;
    struct core *c = p->c;
    struct tls_config *tls;
    struct err e = {0};
    int rv;

    if (c->closing || p->s)
        return;
    tls = c->cfg.tls_client ? c->cfg.tls_client(c->cfg.tls_arg, p->id) : NULL;
    rv = stream_connect(c->loop, p->address, tls, ALPN_PEER, DIAL_DEADLINE_MS, &peer_events, p,
                        &p->s, &e);
    (void)tls_config_unref(tls);
    if (rv) {
        p->s = NULL;
        timer_start(&p->retry, REDIAL_MS);
        return;
    }
    c->streams++;
}

static void peer_remove(struct peer *p)
{
    p->gone = true;
    timer_stop(&p->retry);
    if (p->s)
        stream_abort(p->s, "no longer a member");
    else
        peer_drop(p);
}

static void peer_add(struct core *c, const struct raft_server *server)
{
    struct peer *p = mem_new(struct peer);

    p->c = c;
    p->id = server->id;
    p->voter = server->role == RAFT_VOTER;
    str_copy(p->address, sizeof p->address, server->address);
    frame_reader_init(&p->in);
    timer_init(&p->retry, c->loop, peer_dial, p);
    list_push(&c->peers, &p->link);
    peer_dial(p);
}

static const struct raft_server *configured(const struct raft_configuration *conf,
                                            const struct peer *p)
{
    for (unsigned i = 0; i < conf->n; i++)
        if (conf->servers[i].id == p->id && !strcmp(conf->servers[i].address, p->address))
            return &conf->servers[i];
    return NULL;
}

void peers_reconcile(struct core *c)
{
    const struct raft_configuration *conf = &c->raft.configuration;

    list_for_each_safe (it, tmp, &c->peers) {
        struct peer *p = container_of(it, struct peer, link);
        const struct raft_server *server = configured(conf, p);

        if (p->gone)
            continue;
        if (server)
            p->voter = server->role == RAFT_VOTER;
        else {
            if (!configured_id(c, p->id)) /* else only its address is another */
                removed_note(c, p->id);
            peer_remove(p);
        }
    }
    for (unsigned i = 0; i < conf->n; i++)
        if (conf->servers[i].id != c->cfg.id && !peer_find(c, conf->servers[i].id))
            peer_add(c, &conf->servers[i]);
}

/* ---- streams that others dialled ---- */
static bool hello(struct inbound *in, const struct frame *f)
{
    struct core *c = in->c;
    const struct peer_identity *who = stream_peer(in->s);
    const unsigned char *b = f->body.p;
    char want[64], cluster[64] = "";

    if (f->type != FRAME_HELLO || f->body.n < 8 || f->body.n > 8 + 63)
        return false;
    memcpy(cluster, b + 8, f->body.n - 8);
    (void)snprintf(want, sizeof want, "member:%" PRIu64, le64_get(b));
    if (c->cfg.tls_server && (!who->certified || strcmp(who->name, want) != 0))
        return false;
    in->id = le64_get(b);
    /* Generations follow on each other in the log that all members share; another log is another
     * cluster, also where it began with the state of this one. */
    if (cluster_same_log(cluster, c->meta.cluster))
        return in->id != 0;
    frame_send(in->s, FRAME_LEFT_BEHIND, 0, 0, c->meta.cluster, strlen(c->meta.cluster));
    left_behind(c, in->id, cluster);
    in->id = 0;
    return false;
}

/* It asks and forwards as any member does; that it is none is told to it, with what lets it judge
 * by itself whether we know enough to say so. */
static void removed_tell(const struct inbound *in)
{
    struct core *c = in->c;
    unsigned char b[8];

    if (!configured_id(c, c->cfg.id) || configured_id(c, in->id))
        return;
    le64_put(b, raft_commit_index(&c->raft));
    frame_send(in->s, FRAME_REMOVED, 0, 0, b, sizeof b);
    if (peer_removed(c, in->id))
        stream_close(in->s);
}

static void forwarded(struct inbound *in, const unsigned char *b, size_t n)
{
    struct core *c = in->c;
    char id[REQUEST_ID_MAX] = "";
    struct proposal *p;
    size_t id_n = n ? b[0] : 0;

    if (!id_n || id_n >= REQUEST_ID_MAX || n < 1 + id_n || n - 1 - id_n > LIMIT_COMMAND_MAX_BYTES ||
        raft_state(&c->raft) != RAFT_LEADER)
        return; /* its member sends it to the leader in a second */
    memcpy(id, b + 1, id_n);
    if (c->queue_n >= LIMIT_PROPOSALS_MAX || c->queue_bytes + n > QUEUE_MAX_BYTES) {
        unsigned char body[4 + REQUEST_ID_MAX];

        le32_put(body, (uint32_t)-E_LIMIT);
        memcpy(body + 4, id, id_n);
        frame_send(in->s, FRAME_REFUSED, 0, 0, body, 4 + id_n);
        return;
    }
    p = proposal_create(c, id, slice_make(b + 1 + id_n, n - 1 - id_n));
    p->origin = in->id;
    commit_awaited(c, in->id);
    log_enqueue(c, p);
}

static int inbound_frame(const struct frame *f, void *arg)
{
    struct inbound *in = arg;
    struct core *c = in->c;
    const unsigned char *b = f->body.p;
    size_t n = f->body.n;

    if (c->closing)
        return 1;
    if (!in->id) {
        if (hello(in, f)) {
            removed_tell(in);
            return 0;
        }
        stream_close(in->s); /* with what it was told */
        return 1;
    }
    if (f->type == FRAME_FORWARD) {
        forwarded(in, b, n);
    } else if (f->type == FRAME_TERM_ASK && n == 8) {
        unsigned char body[8];

        le64_put(body,
                 raft_current_term(&c->raft)); /* durable: libraft writes it before it acts on it */
        frame_send(in->s, FRAME_TERM_IS, 0, f->id, body, sizeof body);
    } else if (f->type == FRAME_INDEX_ASK) {
        commit_awaited(c, in->id);
        reads_index_ask(c, in->id, f->id);
    } else if (f->type == FRAME_MEMBER_ASK) {
        members_ask(c, in->id, f->id, f->body);
    } else if (f->type == FRAME_DIGEST_ASK && n == 8) {
        digest_asked(c, in, le64_get(b));
    } else if (f->type == FRAME_DIGEST_OF && n == 16) {
        digest_of(c, le64_get(b), le64_get(b + 8));
    } else if (f->type == FRAME_ARCHIVE_ASK && n == 16) {
        archive_ask(c, in, f->id, le64_get(b), le64_get(b + 8));
    } else if (f->type == FRAME_CLOCK_ASK) {
        clock_asked(c, in, f->id);
    }
    return 0;
}

static void inbound_data(struct stream *s, const void *d, size_t n, void *arg)
{
    struct inbound *in = arg;
    struct err e = {0};

    if (frame_feed(&in->in, d, n, inbound_frame, in, &e) < 0)
        stream_abort(s, e.text);
}

static void inbound_closed(struct stream *s, const struct err *why, void *arg)
{
    struct inbound *in = arg;
    struct core *c = in->c;

    (void)s;
    (void)why;
    c->streams--;
    list_remove(&in->link);
    frame_reader_fini(&in->in);
    mem_free(in);
    core_maybe_closed(c);
}

static const struct stream_events inbound_events = {.data = inbound_data, .closed = inbound_closed};

void peer_accept(struct core *c, struct stream *s)
{
    struct inbound *in = mem_new(struct inbound);

    in->c = c;
    in->s = s;
    frame_reader_init(&in->in);
    list_push(&c->inbounds, &in->link);
    c->streams++;
    stream_set(s, &inbound_events, in);
    if (c->closing)
        stream_abort(s, "this member is stopping");
}

void peers_close(struct core *c)
{
    list_for_each_safe (it, tmp, &c->peers)
        peer_remove(container_of(it, struct peer, link));
    list_for_each_safe (it, tmp, &c->inbounds)
        stream_abort(container_of(it, struct inbound, link)->s, "this member is stopping");
}
