/* Datagrams, links and simulated identities: what the network has besides streams. */
#include "tests/sim/world/sim_internal.h"
#include "api/base/net/tls_internal.h"

#include <stdio.h>
#include <string.h>

#define PAUSED_RETRY_US 100000

struct bound {
    struct list link;
    struct sim_loop *l;
    unsigned port;
    sim_datagram_cb cb;
    void *arg;
};

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

/* ---- datagrams ---- */

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
        sim_schedule(w, e, SIM_DATAGRAM, NULL, PAUSED_RETRY_US, datagram_fire, datagram_drop);
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

void sim_loop_end_datagrams(struct sim_loop *l)
{
    list_for_each_safe (it, tmp, &l->proc->datagrams)
        if (container_of(it, struct bound, link)->l == l) {
            list_remove(it);
            mem_free(container_of(it, struct bound, link));
        }
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

    str_copy(self.name, sizeof self.name, name);
    for (; groups && *groups; groups++) {
        PRE(self.n_groups < 8);
        (void)snprintf(self.groups[self.n_groups++], PEER_NAME_MAX, "%s", *groups);
    }
    (void)snprintf(self.fingerprint, sizeof self.fingerprint, "sim:%s", name);
    return tls_config_simulated(&spec, server, &self);
}
