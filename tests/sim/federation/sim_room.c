/* The room's side: processes, keys, leases, and how it misbehaves. Must never do anything that a
 * real target could not: a key that was told absent stays refused, an end is an end. */
#include "tests/sim/federation/sim_target_wire.h"

#include <signal.h>
#include <stdio.h>

#define BEAT_MS 1000

enum sim_plant sim_planted;
static struct sim_room_events events;

struct refusal {
    struct list link;
    struct run_key key;
};
struct session {
    struct list link;
    struct sim_room *room;
    struct stream *s; /* NULL: closed; freed with the world */
    struct record_reader in;
    struct timer beat;
    uint64_t id;
};
struct request { /* what is carried out later */
    struct session *session;
    struct record m;
    struct timer at;
    bool mute;
};

static uint64_t below(struct sim_room *r, uint64_t n)
{
    return sim_random_below(r->w, n);
}
static bool chance(struct sim_room *r, unsigned percent)
{
    return r->chaos && below(r, 100) < percent;
}
static bool same(const struct run_key *a, const struct run_key *b)
{
    return a->epoch == b->epoch && a->try_ == b->try_ && !strcmp(a->uid, b->uid);
}
static struct sim_run *run_find(struct sim_room *r, const struct run_key *k)
{
    list_for_each (it, &r->runs)
        if (same(&container_of(it, struct sim_run, link)->key, k))
            return container_of(it, struct sim_run, link);
    return NULL;
}
static bool refused(struct sim_room *r, const struct run_key *k)
{
    list_for_each (it, &r->refused)
        if (same(&container_of(it, struct refusal, link)->key, k))
            return true;
    return false;
}
static void refuse(struct sim_room *r, const struct run_key *k)
{
    struct refusal *f;

    if (refused(r, k))
        return;
    f = mem_new(struct refusal);
    f->key = *k;
    list_push(&r->refused, &f->link);
}
unsigned sim_room_alive(const struct sim_room *r, const char *uid)
{
    unsigned n = 0;

    list_for_each (it, &r->runs) {
        const struct sim_run *x = container_of(it, struct sim_run, link);
        n += x->state != RUN_ENDED && (!uid || !strcmp(uid, x->key.uid));
    }
    return n;
}

/* ---- telling
 * ----------------------------------------------------------------------------------------------------
 */
static void session_send(struct session *x, const struct record *m)
{
    if (x->s)
        stream_write(x->s, m, sizeof *m);
}
static void seen_of(const struct sim_run *run, struct record *m)
{
    m->key = run->key;
    m->state = run->state;
    m->exit_code = run->exit_code;
    m->term_signal = run->term_signal;
    m->lease_lost = run->lease_lost;
}
static void tell_all(struct sim_run *run)
{
    struct record m = record_make(ROOM_SEEN);

    seen_of(run, &m);
    list_for_each (it, &run->room->sessions)
        session_send(container_of(it, struct session, link), &m);
}

/* ---- runs
 * -------------------------------------------------------------------------------------------------------
 */
static void run_end(struct sim_run *run, int exit_code, int signo)
{
    if (run->state == RUN_ENDED)
        return;
    run->state = RUN_ENDED;
    run->exit_code = exit_code;
    run->term_signal = signo;
    run->ended_ms = sim_now_ms(run->room->w);
    timer_stop(&run->next);
    sim_log(run->room->w, "%s: %s.%lld.%lld ended: exit %d signal %d%s", run->room->name,
            run->key.uid, (long long)run->key.epoch, (long long)run->key.try_, exit_code, signo,
            run->lease_lost ? ", lease lost" : "");
    tell_all(run);
}
static void run_next(void *arg)
{
    struct sim_run *run = arg;
    struct sim_room *r = run->room;

    if (run->state == RUN_STARTING) {
        run->state = RUN_RUNNING;
        timer_start(&run->next, below(r, 100) >= r->long_percent ? 500 + below(r, 9000)
                                                                 : 15000 + below(r, 40000));
        tell_all(run);
        return;
    }
    run_end(run, below(r, 100) < 15 ? 1 : 0, 0);
}
static void run_begin(struct sim_room *r, const struct record *m)
{
    struct sim_run *run = mem_new(struct sim_run);

    if (events.begins)
        events.begins(events.arg, r, &m->key);
    run->key = m->key;
    run->room = r;
    run->state = RUN_STARTING;
    run->lease_ms = m->lease_ms;
    run->until_ms = m->from + m->lease_ms;
    run->began_ms = sim_now_ms(r->w);
    timer_init(&run->next, r->loop, run_next, run);
    timer_start(&run->next, below(r, 1500));
    list_push(&r->runs, &run->link);
    sim_log(r->w, "%s: %s.%lld.%lld begins, lease %llu", r->name, run->key.uid,
            (long long)run->key.epoch, (long long)run->key.try_, (unsigned long long)run->lease_ms);
    tell_all(run);
}

static struct timer lease_timer[8];
static unsigned n_rooms;

static void leases_look(void *arg)
{
    struct sim_room *r = arg;
    uint64_t now = loop_now_ms(r->loop);

    for (unsigned i = 0; i < n_rooms; i++)
        if (lease_timer[i].arg == r)
            timer_start(&lease_timer[i], 50);
    if (sim_planted == PLANT_NO_LEASE)
        return;
    list_for_each (it, &r->runs) {
        struct sim_run *run = container_of(it, struct sim_run, link);
        if (run->state == RUN_ENDED || !run->lease_ms || now + 100 < run->until_ms)
            continue;
        run->lease_lost = true;
        r->leases_lost++;
        run_end(run, 0, SIGTERM);
    }
}

/* ---- requests
 * ---------------------------------------------------------------------------------------------------
 */
static void answer_run(struct sim_room *r, const struct record *m, struct record *a)
{
    const struct sim_run *run = run_find(r, &m->key);

    a->outcome = OUT_DONE;
    a->key = m->key;
    a->state = RUN_ABSENT;
    if (run)
        seen_of(run, a);
    else if (sim_planted != PLANT_FORGETS_REFUSAL)
        refuse(r, &m->key);
}
static void do_submit(struct sim_room *r, const struct record *m, struct record *a)
{
    a->outcome = OUT_REJECTED;
    r->submits++;
    if (!run_find(r, &m->key)) {
        if (refused(r, &m->key))
            return;
        if (chance(r, 8) || loop_now_ms(r->loop) + 200 >= m->from + m->lease_ms) {
            r->refusals++;
            refuse(r, &m->key);
            return;
        }
        run_begin(r, m);
    }
    answer_run(r, m, a);
}
static void do_end(struct sim_room *r, const struct record *m, struct record *a)
{
    struct sim_run *run = run_find(r, &m->key);

    if (run && run->state != RUN_ENDED && events.stops)
        events.stops(events.arg, r, &m->key);
    if (run && run->state != RUN_ENDED && m->type == ROOM_STOP && chance(r, 70))
        timer_start(&run->next, below(r, 2000)); /* takes its time; ends as it ends */
    else if (run && m->type == ROOM_STOP)
        run_end(run, 0, SIGKILL);
    else if (run && run->state == RUN_RUNNING && below(r, 100) < 70)
        run_end(run, below(r, 2) ? 75 : 0, 0);
    answer_run(r, m, a);
}
static void do_list(struct session *x, const struct record *m)
{
    list_for_each (it, &x->room->runs) {
        struct record l = record_make(ROOM_LISTED);
        l.id = m->id;
        seen_of(container_of(it, struct sim_run, link), &l);
        session_send(x, &l);
    }
}
static void do_renew(struct sim_room *r, const struct record *m)
{
    uint64_t now = loop_now_ms(r->loop), from = m->from < now ? m->from : now;

    list_for_each (it, &r->runs) {
        struct sim_run *run = container_of(it, struct sim_run, link);
        if (from + run->lease_ms > run->until_ms)
            run->until_ms = from + run->lease_ms;
    }
}
static void execute(struct session *x, const struct record *m, bool mute)
{
    struct sim_room *r = x->room;
    struct record a = record_make(ROOM_ANSWER);

    a.id = m->id;
    a.outcome = OUT_DONE;
    switch ((enum room_record)m->type) {
    case ROOM_SUBMIT:
        do_submit(r, m, &a);
        break;
    case ROOM_FIND:
        answer_run(r, m, &a);
        break;
    case ROOM_SIGNAL:
    case ROOM_STOP:
        do_end(r, m, &a);
        break;
    case ROOM_LIST:
        do_list(x, m);
        break;
    case ROOM_INVENTORY:
        a.nodes = r->nodes;
        a.gpus = r->gpus;
        break;
    case ROOM_RENEW:
        do_renew(r, m);
        return;
    default:
        return;
    }
    if (!mute)
        session_send(x, &a);
}
static void request_due(void *arg)
{
    struct request *q = arg;

    execute(q->session, &q->m, q->mute);
    mem_free(q);
}
static void request_later(struct session *x, const struct record *m, uint64_t ms, bool mute)
{
    struct request *q = mem_new(struct request);

    q->session = x;
    q->m = *m;
    q->mute = mute;
    timer_init(&q->at, x->room->loop, request_due, q);
    timer_start(&q->at, ms);
}

static bool session_record(const struct record *m, void *arg)
{
    struct session *x = arg;
    struct sim_room *r = x->room;
    unsigned dice = (unsigned)below(r, 100);

    if (!r->chaos || m->type == ROOM_RENEW) {
        execute(x, m, false);
        return x->s != NULL;
    }
    if (dice < 4) { /* done, and the answer is lost with the connection */
        r->answers_lost++;
        execute(x, m, true);
        stream_abort(x->s, "the room breaks the connection");
        return false;
    }
    if (dice < 7) {
        r->answers_lost++;
        stream_abort(x->s, "the room breaks the connection");
        return false;
    }
    if (dice < 13) {
        r->answers_lost++;
        execute(x, m, true);
    } else if (dice < 19) { /* also after its sender has given up */
        r->late++;
        request_later(x, m, below(r, 25000), below(r, 2));
    } else if (dice < 23) {
        r->twice++;
        execute(x, m, false);
        request_later(x, m, below(r, 25000), true);
    } else {
        execute(x, m, false);
    }
    return x->s != NULL;
}

/* ---- sessions
 * ---------------------------------------------------------------------------------------------------
 */
static void session_data(struct stream *s, const void *p, size_t n, void *arg)
{
    (void)s;
    record_feed(&((struct session *)arg)->in, p, n, session_record, arg);
}
static void session_closed(struct stream *s, const struct err *why, void *arg)
{
    struct session *x = arg;

    (void)s;
    (void)why;
    x->s = NULL;
    timer_stop(&x->beat);
    list_remove(&x->link);
}
static const struct stream_events session_events = {.data = session_data, .closed = session_closed};

static void session_beat(void *arg)
{
    struct session *x = arg;
    struct record m = record_make(ROOM_BEAT);

    m.clock = loop_now_ms(x->room->loop);
    session_send(x, &m);
    timer_start(&x->beat, BEAT_MS);
}
static void accepted(struct listener *li, struct stream *s, void *arg)
{
    struct sim_room *r = arg;
    struct session *x = mem_new(struct session);
    struct record m = record_make(ROOM_HELLO);

    (void)li;
    x->room = r;
    x->s = s;
    x->id = ++r->next_session;
    timer_init(&x->beat, r->loop, session_beat, x);
    timer_start(&x->beat, BEAT_MS);
    list_push(&r->sessions, &x->link);
    stream_set(s, &session_events, x);
    m.id = x->id;
    m.clock = loop_now_ms(r->loop);
    session_send(x, &m);
    list_for_each (it, &r->runs) {
        m = record_make(ROOM_SEEN);
        seen_of(container_of(it, struct sim_run, link), &m);
        session_send(x, &m);
    }
}

static void room_main(struct loop *l, const char *const *argv, const char *const *env, void *arg)
{
    struct sim_room *r = arg;
    struct listener *li;
    struct err err;
    int port;

    (void)argv;
    (void)env;
    r->loop = l;
    INV(listener_create(l, "0.0.0.0:" ROOM_PORT, NULL, accepted, r, &li, &port, &err) == 0);
    timer_init(&lease_timer[n_rooms++], l, leases_look, r);
    timer_start(&lease_timer[n_rooms - 1], 50);
}

struct sim_room *sim_room_create(struct sim_world *w, const char *name,
                                 const struct sim_room_events *ev)
{
    struct sim_room *r = mem_new(struct sim_room);

    events = *ev;
    (void)snprintf(r->name, sizeof r->name, "%s", name);
    r->w = w;
    r->nodes = 3;
    r->gpus = 4;
    list_init(&r->runs);
    list_init(&r->refused);
    list_init(&r->sessions);
    r->host = sim_host_create(w, name);
    (void)sim_start(r->host, "room", &(struct sim_program){.main = room_main, .arg = r});
    return r;
}
