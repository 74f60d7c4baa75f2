/* libraft's connections over TLS streams. libraft wants a uv_stream_t: each connection gets a
 * socket pair, one end for libraft, the other pumped to and from the stream. libraft allocates
 * whatever length a peer names and has its assertions compiled out, so this file follows what comes
 * in message by message, and caps it before libraft sees it. Both sides check that the
 * certificate's CN is the member's. Buffers are bounded: the full side pauses the other.
 *
 *   dialler: u64 member id, u16 length, address, "\0", cluster uid
 *            then libraft's messages, one way only
 *
 * Members of another log (api/base/cluster.h) are refused: their terms and entries mean something
 * else. A member that names no cluster has not learnt one yet. */
#include "controlplane/raft/core_internal.h"

#include "api/base/failpoint.h"

#include <inttypes.h>
#include <raft/uv.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_MAX (1u << 20)
#define CHUNK (64u << 10)
#define HELLO_HEAD 10
#define ADDRESS_MAX sizeof(((struct core_config *)0)->address)
#define HEADER_MAX (4u << 20)
#define PAYLOAD_MAX ((uint64_t)1 << 30)
#define PREAMBLE 16
#define DIAL_DEADLINE_MS 2000

struct transport {
    struct raft_uv_transport uv;
    struct core *c;
    uv_loop_t *loop;
    raft_uv_accept_cb accept;
    struct list links;
    bool closed;
};
enum part { PART_HELLO, PART_PREAMBLE, PART_HEADER, PART_PAYLOAD };
struct link { /* one connection */
    struct list link;
    struct transport *t;
    struct stream *s;
    uv_pipe_t inner; /* our end of the socket pair */
    bool has_inner, inner_closed, stream_closed, paused_inner, paused_stream, dead, inbound;
    struct raft_uv_connect *req; /* a dial that libraft waits for */
    uint64_t id;
    size_t queued; /* bytes on their way to libraft */
    /* what is being received */
    enum part part;
    struct buf head;
    uint64_t type, need;
    char chunk[CHUNK];
};

static void link_maybe_free(struct link *k)
{
    struct core *c = k->t->c;

    if (!k->stream_closed || (k->has_inner && !k->inner_closed))
        return;
    list_remove(&k->link);
    buf_fini(&k->head);
    mem_free(k);
    core_maybe_closed(c);
}

static void inner_closed(uv_handle_t *h)
{
    struct link *k = h->data;

    k->inner_closed = true;
    link_maybe_free(k);
}

static void link_kill(struct link *k, const char *why)
{
    if (k->dead)
        return;
    k->dead = true;
    if (k->has_inner)
        uv_close((uv_handle_t *)&k->inner, inner_closed);
    if (!k->stream_closed)
        stream_abort(k->s, why);
    else
        link_maybe_free(k);
}

/* ---- libraft → stream ---- */
static void inner_alloc(uv_handle_t *h, size_t n, uv_buf_t *b)
{
    struct link *k = h->data;

    (void)n;
    *b = uv_buf_init(k->chunk, sizeof k->chunk);
}

static void inner_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct link *k = s->data;

    if (k->dead || !n)
        return;
    if (n < 0) {
        link_kill(k, "libraft closed the connection");
        return;
    }
    stream_write(k->s, b->base, (size_t)n);
    if (stream_pending(k->s) > BUFFER_MAX) {
        k->paused_inner = true;
        uv_read_stop(s);
    }
}

static void link_drained(struct stream *s, void *arg)
{
    struct link *k = arg;

    (void)s;
    if (k->dead || !k->paused_inner)
        return;
    k->paused_inner = false;
    uv_read_start((uv_stream_t *)&k->inner, inner_alloc, inner_read);
}

/* Makes the pair; libraft's end is its to free. */
static uv_stream_t *link_bridge(struct link *k)
{
    uv_pipe_t *outer;
    int fd[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd))
        return NULL;
    outer = raft_malloc(sizeof *outer);
    INV(outer);
    uv_pipe_init(k->t->loop, outer, 0);
    uv_pipe_init(k->t->loop, &k->inner, 0);
    k->inner.data = k;
    k->has_inner = true;
    INV(!uv_pipe_open(outer, fd[0]) && !uv_pipe_open(&k->inner, fd[1]));
    uv_read_start((uv_stream_t *)&k->inner, inner_alloc, inner_read);
    return (uv_stream_t *)outer;
}

/* ---- stream → libraft ---- */
struct write {
    uv_write_t req;
    size_t n;
    char bytes[];
};

static void written(uv_write_t *req, int status)
{
    struct write *w = container_of(req, struct write, req);
    struct link *k = req->handle->data;

    k->queued -= w->n;
    mem_free(w);
    if (k->dead)
        return;
    if (status) {
        link_kill(k, "libraft closed the connection");
    } else if (k->paused_stream && k->queued < BUFFER_MAX / 2) {
        k->paused_stream = false;
        stream_pause(k->s, false);
    }
}

static void to_libraft(struct link *k, const void *p, size_t n)
{
    struct write *w = mem_alloc(sizeof *w + n);
    uv_buf_t b = uv_buf_init(w->bytes, (unsigned)n);

    memcpy(w->bytes, p, n);
    w->n = n;
    k->queued += n;
    if (uv_write(&w->req, (uv_stream_t *)&k->inner, &b, 1, written)) {
        k->queued -= n;
        mem_free(w);
        link_kill(k, "no memory for the connection");
    } else if (k->queued > BUFFER_MAX && !k->paused_stream) {
        k->paused_stream = true;
        stream_pause(k->s, true);
    }
}

/* Bytes of payload that follow this header, or false when it is malformed. The layout is
 * uv_encoding.c's. */
static bool payload_of(const struct link *k, uint64_t *ret)
{
    const unsigned char *h = (const unsigned char *)k->head.p + PREAMBLE;
    size_t n = k->head.n - PREAMBLE;
    uint64_t sum = 0, count;

    *ret = 0;
    if (k->type == RAFT_APPEND_ENTRIES) {
        if (n < 40 || (count = le64_get(h + 32)) > (n - 40) / 16)
            return false;
        for (uint64_t i = 0; i < count; i++)
            sum += ((uint64_t)le32_get(h + 40 + 16 * i + 12) + 7) / 8 * 8;
        *ret = sum;
    } else if (k->type == RAFT_INSTALL_SNAPSHOT) {
        if (n < 48 || (count = le64_get(h + 32)) > n - 48)
            return false;
        *ret = le64_get(h + 40 + count);
    }
    return *ret <= (k->type == RAFT_INSTALL_SNAPSHOT ? SNAPSHOT_FILE_MAX : PAYLOAD_MAX);
}

static bool link_hello(struct link *k)
{
    const struct peer_identity *who = stream_peer(k->s);
    struct core *c = k->t->c;
    char want[64], address[ADDRESS_MAX + CLUSTER_UID_MAX];
    size_t n = k->head.n - HELLO_HEAD;
    uv_stream_t *s;

    k->id = le64_get(k->head.p);
    (void)snprintf(want, sizeof want, "member:%" PRIu64, k->id);
    if (!who->certified || strcmp(who->name, want) != 0 || !n || n >= sizeof address ||
        k->t->closed || c->closing || peer_removed(c, k->id))
        return false;
    memcpy(address, k->head.p + HELLO_HEAD, n);
    address[n] = 0;
    if (strlen(address) < n && !cluster_same_log(address + strlen(address) + 1, c->meta.cluster))
        return false;
    if (!(s = link_bridge(k)))
        return false;
    k->t->accept(&k->t->uv, k->id, address, s);
    return true;
}

/* The head of a part is whole: what comes next? false = malformed. */
static bool part_next(struct link *k)
{
    uint64_t header;

    if (k->part == PART_HELLO) {
        size_t want = HELLO_HEAD + ((size_t)(unsigned char)k->head.p[8] |
                                    (size_t)(unsigned char)k->head.p[9] << 8);

        if (k->head.n < want) {
            k->need = want - k->head.n;
            return want < HELLO_HEAD + ADDRESS_MAX + CLUSTER_UID_MAX;
        }
        if (!link_hello(k))
            return false;
        k->part = PART_PREAMBLE;
        k->need = PREAMBLE;
        buf_reset(&k->head);
        return true;
    }
    if (k->part == PART_PREAMBLE) {
        k->type = le64_get(k->head.p) & 0xff;
        header = le64_get(k->head.p + 8);
        if (!header || header > HEADER_MAX || k->type < RAFT_APPEND_ENTRIES ||
            k->type > RAFT_TIMEOUT_NOW)
            return false;
        k->part = PART_HEADER;
        k->need = header;
        return true;
    }
    if (!payload_of(k, &k->need))
        return false;
    to_libraft(k, k->head.p, k->head.n);
    buf_reset(&k->head);
    k->part = k->need ? PART_PAYLOAD : PART_PREAMBLE;
    if (!k->need)
        k->need = PREAMBLE;
    return true;
}

static void link_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct link *k = arg;
    const char *at = p;

    (void)s;
    while (n && !k->dead) {
        size_t take = n < k->need ? n : (size_t)k->need;

        k->need -= take;
        if (k->part == PART_PAYLOAD) {
            to_libraft(k, at, take);
            if (k->type == RAFT_INSTALL_SNAPSHOT)
                FAILPOINT("snapshot.receive"); /* some of it has come */
            if (!k->need) {
                k->part = PART_PREAMBLE;
                k->need = PREAMBLE;
            }
        } else {
            buf_add(&k->head, at, take);
            if (!k->need && (k->head.failed || !part_next(k))) {
                link_kill(k, "not a member's connection, or a malformed message");
                return;
            }
        }
        at += take;
        n -= take;
    }
}

/* ---- both ways ---- */
static void dial_failed(struct link *k, int status)
{
    struct raft_uv_connect *req = k->req;

    k->req = NULL;
    if (req)
        req->cb(req, NULL, status);
}

static void link_closed(struct stream *s, const struct err *why, void *arg)
{
    struct link *k = arg;

    (void)s;
    k->stream_closed = true;
    if (k->req && why && why->code == E_TLS)
        log_err(LOG_WARN, "raft.peer_refused", why);
    dial_failed(k, RAFT_NOCONNECTION);
    if (k->dead)
        link_maybe_free(k);
    else
        link_kill(k, "closed");
}

static void link_open(struct stream *s, void *arg)
{
    struct link *k = arg;
    struct core *c = k->t->c;
    const struct peer_identity *who = stream_peer(s);
    struct raft_uv_connect *req = k->req;
    unsigned char hello[HELLO_HEAD + ADDRESS_MAX + CLUSTER_UID_MAX];
    size_t address = strlen(c->cfg.address), n = address + 1 + strlen(c->meta.cluster);
    char want[64];
    uv_stream_t *outer;

    (void)snprintf(want, sizeof want, "member:%" PRIu64, k->id);
    if (!req || k->dead)
        return;
    if (!who->certified || strcmp(who->name, want) != 0) {
        link_kill(k, "the certificate is not that member's");
        return;
    }
    le64_put(hello, c->cfg.id);
    hello[8] = (unsigned char)n;
    hello[9] = (unsigned char)(n >> 8);
    memcpy(hello + HELLO_HEAD, c->cfg.address, address + 1);
    memcpy(hello + HELLO_HEAD + address + 1, c->meta.cluster, n - address - 1);
    stream_write(s, hello, HELLO_HEAD + n);
    if (!(outer = link_bridge(k))) {
        link_kill(k, "no socket pair");
        return;
    }
    k->req = NULL;
    req->cb(req, outer, 0);
}

static const struct stream_events link_events = {
    .open = link_open, .data = link_data, .drained = link_drained, .closed = link_closed};

static struct link *link_create(struct transport *t)
{
    struct link *k = mem_new(struct link);

    k->t = t;
    k->need = HELLO_HEAD;
    buf_init(&k->head, HEADER_MAX + PREAMBLE);
    list_push(&t->links, &k->link);
    return k;
}

void transport_accept(struct core *c, struct stream *s)
{
    struct link *k = link_create(c->transport);

    k->s = s;
    k->inbound = true;
    stream_set(s, &link_events, k);
}

void transport_deaf(struct core *c)
{
    if (!c->transport)
        return;
    list_for_each_safe (it, tmp, &c->transport->links) {
        struct link *k = container_of(it, struct link, link);

        if (k->inbound)
            link_kill(k, "this member has stopped at an entry of the log");
    }
}

/* ---- raft_uv_transport ---- */
static int t_init(struct raft_uv_transport *uv, raft_id id, const char *address)
{
    (void)uv;
    (void)id;
    (void)address;
    return 0;
}

static int t_listen(struct raft_uv_transport *uv, raft_uv_accept_cb cb)
{
    struct transport *t = uv->impl;

    t->accept = cb;
    return 0;
}

static int t_connect(struct raft_uv_transport *uv, struct raft_uv_connect *req, raft_id id,
                     const char *address, raft_uv_connect_cb cb)
{
    struct transport *t = uv->impl;
    struct core *c = t->c;
    struct tls_config *tls = c->cfg.tls_client ? c->cfg.tls_client(c->cfg.tls_arg, id) : NULL;
    struct link *k = link_create(t);
    int rv;

    req->cb = cb;
    k->req = req;
    k->id = id;
    rv = stream_connect(c->loop, address, tls, ALPN_RAFT, DIAL_DEADLINE_MS, &link_events, k, &k->s,
                        NULL);
    (void)tls_config_unref(tls);
    if (rv) {
        list_remove(&k->link);
        buf_fini(&k->head);
        mem_free(k);
        return RAFT_NOCONNECTION;
    }
    return 0;
}

static void t_close(struct raft_uv_transport *uv, raft_uv_transport_close_cb cb)
{
    struct transport *t = uv->impl;

    t->closed = true;
    list_for_each_safe (it, tmp, &t->links) {
        struct link *k = container_of(it, struct link, link);

        if (!k->has_inner) /* dials under way, and accepted ones without a hello; libraft closes the
                              others itself */
            link_kill(k, "this member is stopping");
    }
    cb(uv);
}

int transport_create(struct core *c, struct raft_io *io, struct err *err)
{
    struct transport *t = mem_new(struct transport);
    int rv;

    t->c = c;
    t->loop = loop_uv_handle(c->loop);
    list_init(&t->links);
    t->uv = (struct raft_uv_transport){.version = 1,
                                       .impl = t,
                                       .init = t_init,
                                       .listen = t_listen,
                                       .connect = t_connect,
                                       .close = t_close};
    c->transport = t;
    rv = raft_uv_init(io, t->loop, c->log_dir, &t->uv);
    return rv ? err_set(err, E_IO, "%.300s: %s", c->log_dir, io->errmsg) : 0;
}

bool transport_busy(const struct core *c)
{
    return c->transport && !list_empty(&c->transport->links);
}

void transport_destroy(struct core *c)
{
    mem_free(c->transport);
    c->transport = NULL;
}
