/* Connecting and listening in the virtual world: a SYN that is repeated until it gets through, the
 * identities that a handshake would show, then the accept and the open. */
#include "tests/sim/world/sim_net.h"
#include "api/base/net/tls_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- connecting ---- */

static void open_fire(struct sim_event *ev)
{
    struct conn *c = container_of(ev, struct conn, step);
    struct end *e = &c->end[0];

    if (e->state != END_CONNECTING || e->l->stopped)
        return;
    e->state = END_OPEN;
    sim_cancel(c->w, &e->deadline);
    if (e->early.n) {
        sim_enqueue(e, DATA, e->early.p, e->early.n);
        buf_fini(&e->early);
    }
    if (e->base.ev && e->base.ev->open)
        e->base.ev->open(&e->base, e->base.arg);
    if (e->was_pending && e->state == END_OPEN && !e->drained.fire && !sim_pending(&e->base)) {
        e->was_pending = false;
        sim_schedule(c->w, &e->drained, SIM_DRAINED, e->l, 0, sim_drained_fire, NULL);
    }
}

static void accept_fire(struct sim_event *ev)
{
    struct conn *c = container_of(ev, struct conn, step);
    struct end *e = &c->end[1];

    if (e->state != END_ACCEPTING)
        return;
    if (!c->li || e->l->stopped || c->end[0].state != END_CONNECTING) {
        sim_end_stream(&c->end[0], E_CONNECT, "connection reset by peer");
        sim_end_detach(e);
        sim_conn_reap(c);
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
        sim_end_stream(client, E_CONNECT, "the host name cannot be resolved");
        return;
    }
    if (!to->up || to->paused || !sim_reachable(c->host[0], to) || !sim_reachable(to, c->host[0])) {
        sim_schedule(c->w, &c->step, SIM_SYN, NULL, 2 * RETRY_US, syn_fire, NULL);
        return;
    }
    c->li = find_listener(to, c->is_unix ? 0 : port_of(c->address), c->address + 5);
    if (!c->li || c->li->l->stopped) {
        sim_end_stream(client, E_CONNECT, "connection refused (is the server running?)");
        return;
    }
    (void)snprintf(server->base.peer.address, sizeof server->base.peer.address, "%s:%u",
                   c->is_unix ? "unix" : c->host[0]->name, 30000 + (unsigned)(c->w->seq % 30000));
    if (tls_simulate(c->tls, c->li->tls, c->alpn[0] ? c->alpn : NULL, &client->base.peer,
                     &server->base.peer, &client->why)) {
        (void)err_prefix(&client->why, "%s", c->address);
        sim_end_stream(client, E_TLS, "");
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
        sim_enqueue(e, RST, NULL, 0);
    sim_end_stream(e, E_TIMEOUT, "connecting took longer than the deadline");
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
    str_copy(c->address, sizeof c->address, address);
    str_copy(c->alpn, sizeof c->alpn, alpn ? alpn : "");
    for (unsigned i = 0; i < 2; i++) {
        struct end *e = &c->end[i];

        e->base.ops = &sim_stream_ops;
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
    str_copy(e->base.peer.address, sizeof e->base.peer.address, address);
    list_push(&l->streams, &e->link);
    sim_schedule(w, &e->deadline, SIM_DEADLINE, l, deadline_ms * 1000, deadline_fire, NULL);
    sim_schedule(w, &c->step, SIM_SYN, NULL, c->host[1] ? sim_latency_us(w, self, c->host[1]) : 100,
                 syn_fire, NULL);
    *ret = &e->base;
    return 0;
}

/* ---- listening ---- */

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
    str_copy(li->path, sizeof li->path, is_unix ? address + 5 : "");
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
    sim_loop_end_datagrams(l);
}

void sim_proc_end_listeners(struct sim_proc *p)
{
    list_for_each (it, &p->loops)
        sim_loop_end_listeners(container_of(it, struct sim_loop, link));
}
