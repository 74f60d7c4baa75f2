/* A scripted target as a host of the virtual world. Its API never loses its memory; what is between
 * it and the members does all that a network can. */
#include "tests/sim/scripted/sim_scripted.h"

#include "tests/sim/federation/sim_room_internal.h"

#include <stdio.h>
#include <string.h>

#define REDIAL_MS 300
#define CONNECT_MS 3000

_Static_assert(sizeof(struct record) <= SCRIPTED_LOAD, "an order fits");
_Static_assert(sizeof(struct scripted_ask) <= sizeof(struct scripted_tell), "and a request");

/* ---- records of one size over a stream ---- */
struct reader {
    size_t n;
    char p[sizeof(struct scripted_tell)];
};
static bool reader_take(struct reader *r, size_t size, const char **p, size_t *n)
{
    size_t k = size - r->n < *n ? size - r->n : *n;

    memcpy(r->p + r->n, *p, k);
    r->n += k;
    *p += k;
    *n -= k;
    if (r->n < size)
        return false;
    r->n = 0;
    return true;
}

/* ---- the API ---- */
struct session {
    struct list link;
    struct sim_scripted *s;
    struct stream *stream; /* NULL: closed */
    uint64_t id;
    struct reader in;
};
static void session_data(struct stream *stream, const void *data, size_t n, void *arg)
{
    struct session *x = arg;
    const char *p = data;
    struct scripted_ask q;

    (void)stream;
    while (n && reader_take(&x->in, sizeof q, &p, &n)) {
        memcpy(&q, x->in.p, sizeof q);
        peer_hear(&x->s->peer, x->id, &q);
    }
}
static void session_closed(struct stream *stream, const struct err *why, void *arg)
{
    struct session *x = arg;

    (void)stream;
    (void)why;
    list_remove(&x->link);
    mem_free(x);
}
static const struct stream_events session_events = {.data = session_data, .closed = session_closed};

static void accepted(struct listener *li, struct stream *stream, void *arg)
{
    struct session *x = mem_new(struct session);

    (void)li;
    x->s = arg;
    x->stream = stream;
    x->id = ++x->s->next_session;
    list_push(&x->s->sessions, &x->link);
    stream_set(stream, &session_events, x);
}
static void say(void *arg, uint64_t session, const struct scripted_tell *m)
{
    struct sim_scripted *s = arg;

    list_for_each (it, &s->sessions)
        if (container_of(it, struct session, link)->id == session)
            stream_write(container_of(it, struct session, link)->stream, m, sizeof *m);
}
static void peer_log(void *arg, const char *text)
{
    sim_log(((struct sim_scripted *)arg)->room.w, "%s", text);
}
static uint64_t below(void *arg, uint64_t n)
{
    return sim_random_below(((struct sim_scripted *)arg)->room.w, n);
}
static void stops(void *arg, const struct run_key *k)
{
    struct sim_scripted *s = arg;

    if (room_events.stops)
        room_events.stops(room_events.arg, &s->room, k);
}

/* ---- programs ---- */
static void *program_begin(struct scripted_peer *p, const struct thing *t)
{
    struct sim_scripted *s = p->arg;
    struct record m;

    memcpy(&m, t->load, sizeof m);
    m.devices = 0; /* its own scheduler has chosen them */
    struct sim_run *run = sim_run_begin(&s->room, &m);
    run->thing = (void *)(uintptr_t)t;
    return run->state == RUN_ABSENT ? NULL : run;
}
static void program_signal(void *program, int signo)
{
    (void)signo;
    sim_run_signal(program);
}
static void program_kill(void *program)
{
    sim_run_kill_in(program, 0);
}
static void program_report(const void *program, struct observation *o)
{
    const struct sim_run *run = program;

    if (run->reason)
        str_copy(o->reason, sizeof o->reason, run->reason);
}
static const struct scripted_programs programs = {.begin = program_begin,
                                                  .signal = program_signal,
                                                  .kill = program_kill,
                                                  .report = program_report};
static void told(struct sim_run *run)
{
    if (run->state != RUN_ENDED || !run->thing)
        return;
    run->untold = ((const struct thing *)run->thing)->gone;
    peer_program_over(run->thing, run->exit_code, run->term_signal);
}

static void api_main(struct loop *l, const char *const *argv, const char *const *env, void *arg)
{
    struct sim_scripted *s = arg;
    enum scripted_kind kind = scripted_kind_of(s->room.name);
    struct listener *li;
    struct err err;
    int port;

    (void)argv;
    (void)env;
    s->room.loop = l;
    peer_init(&s->peer, kind, s->room.name, l);
    s->peer.below = below;
    s->peer.say = say;
    s->peer.log = peer_log;
    s->peer.stops = stops;
    s->peer.arg = s;
    s->peer.programs = &programs;
    INV(listener_create(l, "0.0.0.0:" ROOM_PORT, NULL, accepted, s, &li, &port, &err) == 0);
}
struct sim_scripted *sim_scripted_create(struct fed *f, enum scripted_kind kind, const char *name)
{
    struct sim_scripted *s = mem_new(struct sim_scripted);
    struct sim_room *r = &s->room;

    INV(scripted_kind_of(name) == kind);
    str_copy(r->name, sizeof r->name, name);
    r->w = f->w;
    r->store = &f->store;
    r->nodes = PEER_NODES;
    r->gpus = PEER_GPUS;
    r->long_percent = 60; /* so that something happens to them */
    r->told = told;
    r->agent_up = true;
    list_init(&r->runs);
    list_init(&r->refused);
    list_init(&r->sessions);
    list_init(&s->sessions);
    r->host = sim_host_create(f->w, name);
    (void)sim_start(r->host, "api", &(struct sim_program){.main = api_main, .arg = s});
    return s;
}

/* ---- the members' side: what cannot be carried is lost ---- */
struct link {
    struct loop *loop;
    char address[300];
    struct stream *stream; /* NULL: none */
    bool open;
    scripted_heard heard;
    void *arg;
    struct timer redial;
    struct reader in;
};
static const struct stream_events nobody = {0};

static void link_opened(struct stream *stream, void *arg)
{
    (void)stream;
    ((struct link *)arg)->open = true;
}
static void link_data(struct stream *stream, const void *data, size_t n, void *arg)
{
    struct link *x = arg;
    const char *p = data;
    struct scripted_tell m;

    (void)stream;
    while (n && reader_take(&x->in, sizeof m, &p, &n)) {
        memcpy(&m, x->in.p, sizeof m);
        x->heard(x->arg, &m);
    }
}
static void link_closed(struct stream *stream, const struct err *why, void *arg)
{
    struct link *x = arg;

    (void)stream;
    (void)why;
    x->stream = NULL;
    x->open = false;
    x->in.n = 0;
    timer_start(&x->redial, REDIAL_MS);
}
static const struct stream_events link_events = {
    .open = link_opened, .data = link_data, .closed = link_closed};

static void dial(void *arg)
{
    struct link *x = arg;
    struct err err;

    if (stream_connect(x->loop, x->address, NULL, NULL, CONNECT_MS, &link_events, x, &x->stream,
                       &err)) {
        x->stream = NULL;
        timer_start(&x->redial, REDIAL_MS);
    }
}
static void *link_open(struct loop *l, const char *target, scripted_heard heard, void *arg)
{
    struct link *x = mem_new(struct link);

    x->loop = l;
    (void)snprintf(x->address, sizeof x->address, "%s:" ROOM_PORT, target);
    x->heard = heard;
    x->arg = arg;
    timer_init(&x->redial, l, dial, x);
    timer_start(&x->redial, 0);
    return x;
}
static void link_send(void *link, const struct scripted_ask *q)
{
    struct link *x = link;

    if (x->stream && x->open)
        stream_write(x->stream, q, sizeof *q);
}
static void link_close(void *link)
{
    struct link *x = link;

    timer_stop(&x->redial);
    if (x->stream) {
        stream_set(x->stream, &nobody, NULL);
        stream_abort(x->stream, "nobody listens any more");
    }
    mem_free(x);
}
const struct scripted_link_ops sim_scripted_link = {
    .open = link_open, .send = link_send, .close = link_close};

void sim_scripted_fill(const struct connector *c, const struct run_order *o,
                       unsigned char load[SCRIPTED_LOAD])
{
    struct record m = record_make(ROOM_SUBMIT);

    sim_order_fill(c->target, o, &m);
    m.lease_ms = 0; /* its runners hold none */
    memcpy(load, &m, sizeof m);
}
