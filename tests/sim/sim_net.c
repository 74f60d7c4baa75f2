/* The virtual network: ordered streams with latency and partitions, and datagrams.
 *
 * A stream is a conn with two ends and two directions. What an end writes becomes packets of its
 * direction, which arrive in order. A direction that is cut holds its packets, as TCP's
 * retransmission does, and gives the connection up after 30 s. An end belongs to a loop until its
 * `closed` was called; a conn goes when nobody and no packet needs it. */
#include "tests/sim/sim_internal.h"
#include "api/base/tls_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL_BYTES 262144 /* taken by the kernel; what is more is pending */
#define GIVE_UP_US 30000000 /* without an answer */
#define RETRY_US 100000
#define KEEPALIVE_US 75000000
#define CLOSE_US 5000000

struct conn;

enum end_state { END_NONE, END_CONNECTING, END_ACCEPTING, END_OPEN, END_CLOSING, END_GONE };
enum packet_kind { DATA, FIN, RST };

struct packet {
    struct list link;
    enum packet_kind kind;
    uint64_t at_us;
    size_t n;
    char p[];
};
struct dir {
    struct conn *conn;
    unsigned side; /* whose packets these are */
    struct list packets;
    size_t bytes;
    uint64_t last_us, stalled_us;
    struct sim_event ev;
};
struct end {
    struct stream base;
    struct conn *conn;
    unsigned side;
    struct sim_loop *l; /* NULL: never was, or `closed` was called */
    struct list link;   /* in l->streams */
    enum end_state state;
    bool paused, was_pending;
    struct err why;
    struct buf early;
    struct sim_event closed, deadline, drained;
};
struct listener_ {
    struct listener base;
    struct list link; /* in the process's listeners */
    struct sim_loop *l;
    unsigned port; /* 0: a unix socket */
    char path[256];
    struct tls_config *tls;
    accept_cb cb;
    void *arg;
};
struct conn {
    struct sim_world *w;
    struct list link;
    struct sim_host *host[2];
    struct end end[2]; /* 0: who connected */
    struct dir dir[2]; /* dir[i]: from end i */
    struct sim_event step, keepalive;
    struct listener_ *li;
    struct tls_config *tls;
    char address[256], alpn[32];
    bool is_unix;
};
struct bound {
    struct list link;
    struct sim_loop *l;
    unsigned port;
    sim_datagram_cb cb;
    void *arg;
};

#define END_OF(s) container_of((s), struct end, base)

bool sim_reachable(const struct sim_host *from, const struct sim_host *to)
{
    return from == to || !from->w->blocked[from->id * SIM_HOSTS_MAX + to->id];
}

uint64_t sim_latency_us(struct sim_world *w, const struct sim_host *a, const struct sim_host *b)
{
    if (a == b)
        return 15 + sim_random_below(w, 10);
    return w->latency_us + sim_random_below(w, w->jitter_us);
}

/* ---- the end of things
 * ------------------------------------------------------------------------------------------ */

static void drop_packets(struct conn *c, unsigned i)
{
    struct list *it;

    while ((it = list_pop(&c->dir[i].packets)))
        mem_free(container_of(it, struct packet, link));
    c->dir[i].bytes = 0;
    sim_cancel(c->w, &c->dir[i].ev);
}

static void conn_free(struct conn *c)
{
    for (unsigned i = 0; i < 2; i++) {
        drop_packets(c, i);
        buf_fini(&c->end[i].early);
        sim_cancel(c->w, &c->end[i].deadline);
        sim_cancel(c->w, &c->end[i].drained);
        sim_cancel(c->w, &c->end[i].closed);
    }
    sim_cancel(c->w, &c->step);
    sim_cancel(c->w, &c->keepalive);
    list_remove(&c->link);
    (void)tls_config_unref(c->tls);
    mem_free(c);
}

static bool done(const struct end *e)
{
    return !e->l && (e->state == END_GONE || e->state == END_NONE);
}

static void reap(struct conn *c)
{
    if (done(&c->end[0]) && done(&c->end[1]))
        conn_free(c);
}

static void detach(struct end *e)
{
    struct conn *c = e->conn;

    list_remove(&e->link);
    sim_cancel(c->w, &e->deadline);
    sim_cancel(c->w, &e->drained);
    e->state = END_GONE;
    e->l = NULL;
}

static void closed_fire(struct sim_event *ev)
{
    struct end *e = container_of(ev, struct end, closed);
    bool tell = !e->l->stopped;

    detach(e);
    if (tell && e->base.ev && e->base.ev->closed)
        e->base.ev->closed(&e->base, &e->why, e->base.arg);
    reap(e->conn);
}

/* `closed` will follow. The other end is not told here. */
static void end_stream(struct end *e, int code, const char *text)
{
    struct conn *c = e->conn;

    if (e->state == END_GONE || e->state == END_NONE)
        return;
    if (!e->why.text[0])
        (void)err_set(&e->why, code, "%s: %s", e->base.peer.address, text);
    e->state = END_GONE;
    sim_cancel(c->w, &e->deadline);
    sim_cancel(c->w, &e->drained);
    if (e->l && !e->closed.fire)
        sim_schedule(c->w, &e->closed, SIM_CLOSED, e->l, 0, closed_fire, NULL);
}

/* ---- packets
 * ----------------------------------------------------------------------------------------------------
 */

static void deliver_fire(struct sim_event *ev);

static void arm(struct conn *c, unsigned i)
{
    struct dir *d = &c->dir[i];

    if (d->ev.fire || list_empty(&d->packets))
        return;
    const struct packet *p = container_of(d->packets.next, struct packet, link);
    uint64_t delay = p->at_us > c->w->now_us ? p->at_us - c->w->now_us : 0;
    d->ev.about = (uint64_t)p->kind << 32 | p->n;
    sim_schedule(c->w, &d->ev, SIM_PACKET, NULL, delay, deliver_fire, NULL);
}

static void arm_later(struct conn *c, unsigned i, uint64_t delay_us)
{
    sim_schedule(c->w, &c->dir[i].ev, SIM_PACKET, NULL, delay_us, deliver_fire, NULL);
}

static void enqueue(struct end *e, enum packet_kind kind, const void *bytes, size_t n)
{
    struct conn *c = e->conn;
    struct dir *d = &c->dir[e->side];
    struct packet *p = mem_alloc(sizeof *p + n);
    uint64_t at = c->w->now_us + sim_latency_us(c->w, c->host[e->side], c->host[1 - e->side]);

    *p = (struct packet){.kind = kind, .at_us = at > d->last_us ? at : d->last_us, .n = n};
    if (n)
        memcpy(p->p, bytes, n);
    d->last_us = p->at_us;
    d->bytes += n;
    list_push(&d->packets, &p->link);
    arm(c, e->side);
}

static void drained_fire(struct sim_event *ev)
{
    struct end *e = container_of(ev, struct end, drained);

    if (e->state == END_OPEN && !e->l->stopped && e->base.ev && e->base.ev->drained)
        e->base.ev->drained(&e->base, e->base.arg);
}

/* The cut of a direction: true when the packet cannot arrive now. */
static bool held_up(struct conn *c, unsigned i)
{
    struct dir *d = &c->dir[i];
    struct sim_host *to = c->host[1 - i];

    if (sim_reachable(c->host[i], to) && to->up && !to->paused) {
        d->stalled_us = 0;
        return false;
    }
    if (!d->stalled_us)
        d->stalled_us = c->w->now_us;
    if (c->w->now_us - d->stalled_us > GIVE_UP_US) {
        end_stream(&c->end[i], E_CONNECT, "the connection was lost: connection timed out");
        drop_packets(c, i);
        reap(c);
    } else {
        arm_later(c, i, RETRY_US);
    }
    return true;
}

static void receive(struct conn *c, unsigned i, struct packet *p)
{
    struct end *from = &c->end[i], *to = &c->end[1 - i];
    bool alive = (to->state == END_OPEN || to->state == END_CLOSING) && to->l && !to->l->stopped;

    if (!alive && p->kind == DATA) { /* nobody there any more: a reset comes back */
        end_stream(from, E_CONNECT, "the connection was lost: connection reset by peer");
        drop_packets(c, i);
    } else if (p->kind == DATA) {
        sim_hash(c->w, p->p, p->n);
        if (to->state == END_OPEN && to->base.ev && to->base.ev->data)
            to->base.ev->data(&to->base, p->p, p->n, to->base.arg);
    } else if (p->kind == FIN) {
        end_stream(to, E_OK, "the peer ended the connection");
        end_stream(from, E_OK, "closed");
    } else {
        end_stream(to, E_CONNECT, "the connection was lost: connection reset by peer");
    }
}

static void deliver_fire(struct sim_event *ev)
{
    struct dir *d = container_of(ev, struct dir, ev);
    struct conn *c = d->conn;
    unsigned i = d->side;
    struct list *first = d->packets.next;
    struct packet *p = container_of(first, struct packet, link);
    struct end *from = &c->end[i], *to = &c->end[1 - i];
    if (held_up(c, i))
        return;
    if (to->state == END_CONNECTING || to->state == END_ACCEPTING) {
        arm_later(c, i, 1000);
        return;
    }
    if (to->state == END_OPEN && to->paused && p->kind == DATA)
        return; /* pause(false) arms it again */
    if (c->w->reset_ppm && sim_random_below(c->w, 1000000) < c->w->reset_ppm) {
        end_stream(from, E_CONNECT, "the connection was lost: connection reset by peer");
        end_stream(to, E_CONNECT, "the connection was lost: connection reset by peer");
        drop_packets(c, 0);
        drop_packets(c, 1);
        reap(c);
        return;
    }
    list_remove(first);
    d->bytes -= p->n;
    receive(c, i, p);
    mem_free(p);
    if (from->was_pending && d->bytes <= KERNEL_BYTES && from->state == END_OPEN &&
        !from->drained.fire) {
        from->was_pending = false;
        sim_schedule(c->w, &from->drained, SIM_DRAINED, from->l, 0, drained_fire, NULL);
    }
    arm(c, i);
    reap(c);
}

/* ---- a stream's operations
 * ----------------------------------------------------------------------------------------- */

static void write_op(struct stream *s, const void *p, size_t n)
{
    struct end *e = END_OF(s);

    if (e->state == END_CONNECTING) {
        buf_add(&e->early, p, n);
        e->was_pending = true;
    } else if (e->state == END_OPEN && n) {
        enqueue(e, DATA, p, n);
        if (e->conn->dir[e->side].bytes > KERNEL_BYTES)
            e->was_pending = true;
    }
}

static size_t pending_op(const struct stream *s)
{
    const struct end *e = END_OF(s);
    size_t n = e->state == END_OPEN || e->state == END_CLOSING ? e->conn->dir[e->side].bytes : 0;

    return e->early.n + (n > KERNEL_BYTES ? n - KERNEL_BYTES : 0);
}

static void pause_op(struct stream *s, bool paused)
{
    struct end *e = END_OF(s);

    e->paused = paused;
    if (!paused && e->state == END_OPEN)
        arm(e->conn, 1 - e->side);
}

static void close_late(struct sim_event *ev)
{
    struct end *e = container_of(ev, struct end, deadline);

    end_stream(e, E_OK, "closed");
}

static void close_op(struct stream *s)
{
    struct end *e = END_OF(s);

    if (e->state == END_CONNECTING) {
        end_stream(e, E_OK, "closed");
    } else if (e->state == END_OPEN) {
        e->state = END_CLOSING;
        enqueue(e, FIN, NULL, 0);
        arm(e->conn, 1 - e->side);
        sim_schedule(e->conn->w, &e->deadline, SIM_DEADLINE, e->l, CLOSE_US, close_late, NULL);
    }
}

static void abort_op(struct stream *s, const char *why)
{
    struct end *e = END_OF(s);

    if (e->state == END_GONE)
        return;
    if (e->state == END_OPEN || e->state == END_CLOSING) {
        drop_packets(e->conn, e->side);
        enqueue(e, RST, NULL, 0);
    }
    if (!e->why.text[0])
        (void)err_set(&e->why, E_CANCELLED, "%s", why ? why : "aborted");
    end_stream(e, E_CANCELLED, "aborted");
}

static const struct stream_ops ops = {write_op, pending_op, pause_op, close_op, abort_op};

/* ---- connecting
 * ----------------------------------------------------------------------------------------------------
 */

static void open_fire(struct sim_event *ev)
{
    struct conn *c = container_of(ev, struct conn, step);
    struct end *e = &c->end[0];

    if (e->state != END_CONNECTING || e->l->stopped)
        return;
    e->state = END_OPEN;
    sim_cancel(c->w, &e->deadline);
    if (e->early.n) {
        enqueue(e, DATA, e->early.p, e->early.n);
        buf_fini(&e->early);
    }
    if (e->base.ev && e->base.ev->open)
        e->base.ev->open(&e->base, e->base.arg);
    if (e->was_pending && e->state == END_OPEN && !e->drained.fire && !pending_op(&e->base)) {
        e->was_pending = false;
        sim_schedule(c->w, &e->drained, SIM_DRAINED, e->l, 0, drained_fire, NULL);
    }
}

static void accept_fire(struct sim_event *ev)
{
    struct conn *c = container_of(ev, struct conn, step);
    struct end *e = &c->end[1];

    if (e->state != END_ACCEPTING)
        return;
    if (!c->li || e->l->stopped || c->end[0].state != END_CONNECTING) {
        end_stream(&c->end[0], E_CONNECT, "connection reset by peer");
        detach(e);
        reap(c);
        return;
    }
    e->state = END_OPEN;
    uint64_t back = sim_latency_us(c->w, c->host[1], c->host[0]);
    c->dir[1].last_us = c->w->now_us + back + 1;
    sim_schedule(c->w, &c->step, SIM_OPEN, c->end[0].l, back, open_fire, NULL);
    c->li->cb(&c->li->base, &e->base, c->li->arg);
}

static struct listener_ *find_listener(const struct sim_host *h, unsigned port, const char *path)
{
    list_for_each (p, &h->procs)
        list_for_each (it, &container_of(p, struct sim_proc, link)->listeners) {
            struct listener_ *li = container_of(it, struct listener_, link);

            if (port ? li->port == port : !li->port && strcmp(li->path, path) == 0)
                return li;
        }
    return NULL;
}

static unsigned port_of(const char *address)
{
    const char *colon = strrchr(address, ':');

    return colon ? (unsigned)strtoul(colon + 1, NULL, 10) : 0;
}

static struct sim_host *host_named(struct sim_host *self, const char *address)
{
    char name[256];
    const char *colon = strrchr(address, ':');

    (void)snprintf(name, sizeof name, "%.*s", (int)(colon - address), address);
    if (strcmp(name, "localhost") == 0 || strncmp(name, "127.", 4) == 0 ||
        strcmp(name, "[::1]") == 0)
        return self;
    return sim_host_find(self->w, name);
}

static void syn_fire(struct sim_event *ev)
{
    struct conn *c = container_of(ev, struct conn, step);
    struct end *client = &c->end[0], *server = &c->end[1];
    struct sim_host *to = c->host[1];

    if (client->state != END_CONNECTING)
        return;
    if (!to) {
        end_stream(client, E_CONNECT, "the host name cannot be resolved");
        return;
    }
    if (!to->up || to->paused || !sim_reachable(c->host[0], to) || !sim_reachable(to, c->host[0])) {
        sim_schedule(c->w, &c->step, SIM_SYN, NULL, 2 * RETRY_US, syn_fire, NULL);
        return;
    }
    c->li = find_listener(to, c->is_unix ? 0 : port_of(c->address), c->address + 5);
    if (!c->li || c->li->l->stopped) {
        end_stream(client, E_CONNECT, "connection refused (is the server running?)");
        return;
    }
    (void)snprintf(server->base.peer.address, sizeof server->base.peer.address, "%s:%u",
                   c->is_unix ? "unix" : c->host[0]->name, 30000 + (unsigned)(c->w->seq % 30000));
    if (tls_simulate(c->tls, c->li->tls, c->alpn[0] ? c->alpn : NULL, &client->base.peer,
                     &server->base.peer, &client->why)) {
        (void)err_prefix(&client->why, "%s", c->address);
        end_stream(client, E_TLS, "");
        return;
    }
    server->l = c->li->l;
    server->base.loop = &server->l->base;
    server->state = END_ACCEPTING;
    list_push(&server->l->streams, &server->link);
    sim_schedule(c->w, &c->step, SIM_OPEN, server->l,
                 2 * sim_latency_us(c->w, c->host[0], to) + 200, accept_fire, NULL);
}

static void deadline_fire(struct sim_event *ev)
{
    struct end *e = container_of(ev, struct end, deadline);

    if (e->state == END_CONNECTING && e->conn->end[1].state == END_OPEN)
        enqueue(e, RST, NULL, 0);
    end_stream(e, E_TIMEOUT, "connecting took longer than the deadline");
}

int sim_connect_op(struct loop *base, const char *address, const struct tls_config *tls,
                   const char *alpn, uint64_t deadline_ms, const struct stream_events *ev,
                   void *arg, struct stream **ret, struct err *err)
{
    struct sim_loop *l = sim_loop_of(base);
    struct sim_host *self = l->proc->host;
    struct sim_world *w = self->w;
    bool is_unix = strncmp(address, "unix:", 5) == 0;

    if (!is_unix && (!port_of(address) || address[0] == ':'))
        return err_set(err, E_INVALID,
                       "\"%s\" is no address: expected HOST:PORT, [IPV6]:PORT or unix:/PATH",
                       address);
    struct conn *c = mem_new(struct conn);
    union {
        const struct tls_config *c;
        struct tls_config *m;
    } u = {tls};
    c->w = w;
    c->is_unix = is_unix;
    c->host[0] = self;
    c->host[1] = is_unix ? self : host_named(self, address);
    c->tls = tls ? tls_config_ref(u.m) : NULL;
    (void)snprintf(c->address, sizeof c->address, "%s", address);
    (void)snprintf(c->alpn, sizeof c->alpn, "%s", alpn ? alpn : "");
    for (unsigned i = 0; i < 2; i++) {
        struct end *e = &c->end[i];

        e->base.ops = &ops;
        e->conn = c;
        e->side = i;
        list_init(&e->link);
        buf_init(&e->early, SIZE_MAX / 2);
        c->dir[i].conn = c;
        c->dir[i].side = i;
        list_init(&c->dir[i].packets);
    }
    list_push(&w->conns, &c->link);
    struct end *e = &c->end[0];
    e->base.loop = base;
    e->base.ev = ev;
    e->base.arg = arg;
    e->l = l;
    e->state = END_CONNECTING;
    (void)snprintf(e->base.peer.address, sizeof e->base.peer.address, "%s", address);
    list_push(&l->streams, &e->link);
    sim_schedule(w, &e->deadline, SIM_DEADLINE, l, deadline_ms * 1000, deadline_fire, NULL);
    sim_schedule(w, &c->step, SIM_SYN, NULL, c->host[1] ? sim_latency_us(w, self, c->host[1]) : 100,
                 syn_fire, NULL);
    *ret = &e->base;
    return 0;
}

/* ---- listening
 * ------------------------------------------------------------------------------------------------------
 */

int sim_listen_op(struct loop *base, const char *address, const struct tls_config *tls,
                  accept_cb cb, void *arg, struct listener **ret, int *ret_port, struct err *err)
{
    struct sim_loop *l = sim_loop_of(base);
    struct sim_host *h = l->proc->host;
    bool is_unix = strncmp(address, "unix:", 5) == 0;
    unsigned port = is_unix ? 0 : port_of(address);
    union {
        const struct tls_config *c;
        struct tls_config *m;
    } u = {tls};

    if (!is_unix && (!strrchr(address, ':') || port > 65535))
        return err_set(err, E_INVALID, "\"%s\" is no address: expected HOST:PORT", address);
    if (!is_unix && !port)
        for (port = 20000; find_listener(h, port, NULL); port++)
            INV(port < 65535);
    else if (find_listener(h, port, address + 5))
        return err_set(err, E_BUSY,
                       "%s is in use by another program: stop it, or listen on another address",
                       address);
    struct listener_ *li = mem_new(struct listener_);
    li->base.loop = base;
    li->l = l;
    li->port = port;
    (void)snprintf(li->path, sizeof li->path, "%s", is_unix ? address + 5 : "");
    li->tls = tls ? tls_config_ref(u.m) : NULL;
    li->cb = cb;
    li->arg = arg;
    list_push(&l->proc->listeners, &li->link);
    *ret = &li->base;
    if (ret_port)
        *ret_port = (int)port;
    return 0;
}

void sim_listener_close_op(struct listener *base)
{
    struct listener_ *li = container_of(base, struct listener_, base);

    list_for_each (it, &world_of(li->l)->conns) {
        struct conn *c = container_of(it, struct conn, link);

        if (c->li == li)
            c->li = NULL; /* a connection on its way finds nobody */
    }
    list_remove(&li->link);
    (void)tls_config_unref(li->tls);
    mem_free(li);
}

void sim_loop_end_listeners(struct sim_loop *l)
{
    list_for_each_safe (it, tmp, &l->proc->listeners)
        if (container_of(it, struct listener_, link)->l == l)
            sim_listener_close_op(&container_of(it, struct listener_, link)->base);
    list_for_each_safe (it, tmp, &l->proc->datagrams)
        if (container_of(it, struct bound, link)->l == l) {
            list_remove(it);
            mem_free(container_of(it, struct bound, link));
        }
}

void sim_proc_end_listeners(struct sim_proc *p)
{
    list_for_each (it, &p->loops)
        sim_loop_end_listeners(container_of(it, struct sim_loop, link));
}

/* ---- the end of a loop, a process, a world
 * -------------------------------------------------------------------------- */

static void keepalive_fire(struct sim_event *ev)
{
    struct conn *c = container_of(ev, struct conn, keepalive);

    for (unsigned i = 0; i < 2; i++)
        end_stream(&c->end[i], E_CONNECT, "the connection was lost: no answer to keep-alive");
    reap(c);
}

/* silent: the machine lost its power, and the peer learns nothing. tell: `closed` is called. */
void sim_loop_end_streams(struct sim_loop *l, bool silent, bool tell)
{
    struct list *it;

    while ((it = list_pop(&l->streams))) {
        struct end *e = container_of(it, struct end, link);
        struct conn *c = e->conn;
        struct end *peer = &c->end[1 - e->side];
        bool was_open = e->state == END_OPEN || e->state == END_CLOSING;
        bool connecting = e->state == END_CONNECTING || e->state == END_ACCEPTING;

        if (e->state != END_GONE)
            (void)err_set(&e->why, E_CANCELLED, "the loop has ended");
        sim_cancel(c->w, &e->closed);
        detach(e);
        if (silent)
            drop_packets(c, e->side);
        else if ((was_open || (connecting && peer->state == END_OPEN)) && c->host[1])
            enqueue(e, RST, NULL, 0);
        else if (connecting && e->side == 1)
            end_stream(peer, E_CONNECT, "connection reset by peer");
        if (silent && (peer->state == END_OPEN || peer->state == END_CLOSING) && !c->keepalive.fire)
            sim_schedule(c->w, &c->keepalive, SIM_DEADLINE, NULL, KEEPALIVE_US, keepalive_fire,
                         NULL);
        if (tell && e->base.ev && e->base.ev->closed)
            e->base.ev->closed(&e->base, &e->why, e->base.arg);
        reap(c);
    }
}

void sim_conns_free(struct sim_world *w)
{
    while (!list_empty(&w->conns))
        conn_free(container_of(w->conns.next, struct conn, link));
}

/* ---- datagrams
 * ----------------------------------------------------------------------------------------------------------
 */

struct datagram {
    struct sim_event e;
    struct sim_host *from, *to;
    unsigned port;
    size_t n;
    char p[];
};

static void datagram_drop(struct sim_event *e)
{
    mem_free(container_of(e, struct datagram, e));
}

static struct bound *find_bound(const struct sim_host *h, unsigned port)
{
    list_for_each (p, &h->procs)
        list_for_each (it, &container_of(p, struct sim_proc, link)->datagrams)
            if (container_of(it, struct bound, link)->port == port)
                return container_of(it, struct bound, link);
    return NULL;
}

static void datagram_fire(struct sim_event *e)
{
    struct datagram *d = container_of(e, struct datagram, e);
    struct sim_world *w = d->from->w;

    if (d->to->up && d->to->paused) { /* waits in the kernel's buffer */
        sim_schedule(w, e, SIM_DATAGRAM, NULL, RETRY_US, datagram_fire, datagram_drop);
        return;
    }
    struct bound *b =
        d->to->up && sim_reachable(d->from, d->to) ? find_bound(d->to, d->port) : NULL;
    if (b && !b->l->stopped &&
        (!w->datagram_ppm || sim_random_below(w, 1000000) >= w->datagram_ppm)) {
        sim_hash(w, d->p, d->n);
        b->cb(d->from->name, d->p, d->n, b->arg);
    }
    mem_free(d);
}

void sim_datagram_bind(struct loop *base, unsigned port, sim_datagram_cb cb, void *arg)
{
    struct sim_loop *l = sim_loop_of(base);
    struct bound *b = mem_new(struct bound);

    PRE(!find_bound(l->proc->host, port));
    *b = (struct bound){.l = l, .port = port, .cb = cb, .arg = arg};
    list_push(&l->proc->datagrams, &b->link);
}

void sim_datagram_send(struct loop *base, const char *to_host, unsigned port, const void *p,
                       size_t n)
{
    struct sim_host *from = sim_host_of(base), *to = sim_host_find(from->w, to_host);

    if (!to)
        return;
    struct datagram *d = mem_alloc(sizeof *d + n);
    memset(d, 0, sizeof *d);
    d->from = from;
    d->to = to;
    d->port = port;
    d->n = n;
    if (n)
        memcpy(d->p, p, n);
    d->e.about = (uint64_t)port << 32 | n;
    sim_schedule(from->w, &d->e, SIM_DATAGRAM, NULL, sim_latency_us(from->w, from, to),
                 datagram_fire, datagram_drop);
}

struct tls_config *sim_tls(const char *name, const char *const *groups, bool server,
                           const char *const *alpn_mutual, const char *server_name)
{
    struct tls_config_spec spec = {.alpn_mutual = alpn_mutual, .server_name = server_name};
    struct peer_identity self = {0};

    (void)snprintf(self.name, sizeof self.name, "%s", name);
    for (; groups && *groups; groups++) {
        PRE(self.n_groups < 8);
        (void)snprintf(self.groups[self.n_groups++], PEER_NAME_MAX, "%s", *groups);
    }
    (void)snprintf(self.fingerprint, sizeof self.fingerprint, "sim:%s", name);
    return tls_config_simulated(&spec, server, &self);
}
