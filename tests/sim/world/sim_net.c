/* The virtual network: ordered streams with latency and partitions, and datagrams.
 *
 * A stream is a conn with two ends and two directions. What an end writes becomes packets of its
 * direction, which arrive in order. A direction that is cut holds its packets, as TCP's
 * retransmission does, and gives the connection up after 30 s. An end belongs to a loop until its
 * `closed` was called; a conn goes when nobody and no packet needs it. */
#include "tests/sim/world/sim_net.h"
#include "api/base/net/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end of things ---- */

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

void sim_conn_reap(struct conn *c)
{
    if (done(&c->end[0]) && done(&c->end[1]))
        conn_free(c);
}

void sim_end_detach(struct end *e)
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

    sim_end_detach(e);
    if (tell && e->base.ev && e->base.ev->closed)
        e->base.ev->closed(&e->base, &e->why, e->base.arg);
    sim_conn_reap(e->conn);
}

/* `closed` will follow. The other end is not told here. */
void sim_end_stream(struct end *e, int code, const char *text)
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

/* ---- packets ---- */

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

void sim_enqueue(struct end *e, enum packet_kind kind, const void *bytes, size_t n)
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

void sim_drained_fire(struct sim_event *ev)
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
        sim_end_stream(&c->end[i], E_CONNECT, "the connection was lost: connection timed out");
        drop_packets(c, i);
        sim_conn_reap(c);
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
        sim_end_stream(from, E_CONNECT, "the connection was lost: connection reset by peer");
        drop_packets(c, i);
    } else if (p->kind == DATA) {
        sim_hash(c->w, p->p, p->n);
        if (to->state == END_OPEN && to->base.ev && to->base.ev->data)
            to->base.ev->data(&to->base, p->p, p->n, to->base.arg);
    } else if (p->kind == FIN) {
        sim_end_stream(to, E_OK, "the peer ended the connection");
        sim_end_stream(from, E_OK, "closed");
    } else {
        sim_end_stream(to, E_CONNECT, "the connection was lost: connection reset by peer");
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
        sim_end_stream(from, E_CONNECT, "the connection was lost: connection reset by peer");
        sim_end_stream(to, E_CONNECT, "the connection was lost: connection reset by peer");
        drop_packets(c, 0);
        drop_packets(c, 1);
        sim_conn_reap(c);
        return;
    }
    list_remove(first);
    d->bytes -= p->n;
    receive(c, i, p);
    mem_free(p);
    if (from->was_pending && d->bytes <= KERNEL_BYTES && from->state == END_OPEN &&
        !from->drained.fire) {
        from->was_pending = false;
        sim_schedule(c->w, &from->drained, SIM_DRAINED, from->l, 0, sim_drained_fire, NULL);
    }
    arm(c, i);
    sim_conn_reap(c);
}

/* ---- a stream's operations ---- */

static void write_op(struct stream *s, const void *p, size_t n)
{
    struct end *e = END_OF(s);

    if (e->state == END_CONNECTING) {
        buf_add(&e->early, p, n);
        e->was_pending = true;
    } else if (e->state == END_OPEN && n) {
        sim_enqueue(e, DATA, p, n);
        if (e->conn->dir[e->side].bytes > KERNEL_BYTES)
            e->was_pending = true;
    }
}

size_t sim_pending(const struct stream *s)
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

    sim_end_stream(e, E_OK, "closed");
}

static void close_op(struct stream *s)
{
    struct end *e = END_OF(s);

    if (e->state == END_CONNECTING) {
        sim_end_stream(e, E_OK, "closed");
    } else if (e->state == END_OPEN) {
        e->state = END_CLOSING;
        sim_enqueue(e, FIN, NULL, 0);
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
        sim_enqueue(e, RST, NULL, 0);
    }
    if (!e->why.text[0])
        (void)err_set(&e->why, E_CANCELLED, "%s", why ? why : "aborted");
    sim_end_stream(e, E_CANCELLED, "aborted");
}

const struct stream_ops sim_stream_ops = {.write = write_op,
                                           .pending = sim_pending,
                                           .pause = pause_op,
                                           .close = close_op,
                                           .abort = abort_op};

/* ---- the end of a loop, a process, a world ---- */

static void keepalive_fire(struct sim_event *ev)
{
    struct conn *c = container_of(ev, struct conn, keepalive);

    for (unsigned i = 0; i < 2; i++)
        sim_end_stream(&c->end[i], E_CONNECT, "the connection was lost: no answer to keep-alive");
    sim_conn_reap(c);
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
        sim_end_detach(e);
        if (silent)
            drop_packets(c, e->side);
        else if ((was_open || (connecting && peer->state == END_OPEN)) && c->host[1])
            sim_enqueue(e, RST, NULL, 0);
        else if (connecting && e->side == 1)
            sim_end_stream(peer, E_CONNECT, "connection reset by peer");
        if (silent && (peer->state == END_OPEN || peer->state == END_CLOSING) && !c->keepalive.fire)
            sim_schedule(c->w, &c->keepalive, SIM_DEADLINE, NULL, KEEPALIVE_US, keepalive_fire,
                         NULL);
        if (tell && e->base.ev && e->base.ev->closed)
            e->base.ev->closed(&e->base, &e->why, e->base.arg);
        sim_conn_reap(c);
    }
}

void sim_conns_free(struct sim_world *w)
{
    while (!list_empty(&w->conns))
        conn_free(container_of(w->conns.next, struct conn, link));
}
