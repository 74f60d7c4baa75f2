/* The room's sessions: keys, requests, and how it misbehaves. Must never do anything that a real
 * target could not: a key that was told absent stays refused, an end is an end. What runs there is
 * in sim_runs.c. */
#include "tests/sim/federation/sim_room_internal.h"

#include <signal.h>
#include <stdio.h>

#define BEAT_MS 1000

enum sim_plant sim_planted;
struct sim_room_events room_events;

struct room_refusal {
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

void record_feed(struct record_reader *r, const void *p, size_t n,
                 bool (*each)(const struct record *m, void *arg), void *arg)
{
    const char *c = p;

    while (n) {
        size_t k = sizeof r->p - r->n < n ? sizeof r->p - r->n : n;
        memcpy(r->p + r->n, c, k);
        r->n += k;
        c += k;
        n -= k;
        if (r->n == sizeof r->p) {
            struct record m;
            memcpy(&m, r->p, sizeof m);
            r->n = 0;
            if (!each(&m, arg))
                return;
        }
    }
}

struct record record_make(enum room_record type)
{
    struct record m;

    memset(&m, 0, sizeof m);
    m.type = type;
    return m;
}

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
        if (same(&container_of(it, struct sim_run, link)->key, k) &&
            container_of(it, struct sim_run, link)->memory == r->memory)
            return container_of(it, struct sim_run, link);
    return NULL;
}
static bool refused(struct sim_room *r, const struct run_key *k)
{
    list_for_each (it, &r->refused)
        if (same(&container_of(it, struct room_refusal, link)->key, k))
            return true;
    return false;
}
static void refuse(struct sim_room *r, const struct run_key *k)
{
    struct room_refusal *f;

    if (refused(r, k))
        return;
    f = mem_new(struct room_refusal);
    f->key = *k;
    list_push(&r->refused, &f->link);
}
static bool over(const struct sim_run *run)
{
    return run->state == RUN_ENDED || run->state == RUN_ABSENT;
}
unsigned sim_room_alive(const struct sim_room *r, const char *uid)
{
    unsigned n = 0;

    list_for_each (it, &r->runs) {
        const struct sim_run *x = container_of(it, struct sim_run, link);
        n += !over(x) && (!uid || !strcmp(uid, x->key.uid));
    }
    return n;
}
struct sim_run *sim_room_run(const struct sim_room *r, const char *uid)
{
    list_for_each (it, &r->runs) {
        struct sim_run *x = container_of(it, struct sim_run, link);
        if (!over(x) && (!uid || !strcmp(uid, x->key.uid)))
            return x;
    }
    return NULL;
}

/* ---- telling ---- */
static void session_send(struct session *x, const struct record *m)
{
    if (x->s)
        stream_write(x->s, m, sizeof *m);
}
void room_tell_all(struct sim_run *run)
{
    struct record m = record_make(ROOM_SEEN);

    if (run->room->told) {
        run->room->told(run);
        return;
    }
    sim_run_seen(run, &m);
    if (run->memory != run->room->memory)
        return; /* nobody hears its shim */
    list_for_each (it, &run->room->sessions)
        session_send(container_of(it, struct session, link), &m);
}

static void leases_look(void *arg)
{
    struct sim_room *r = arg;

    timer_start(&r->leases, 50);
    if (sim_planted == PLANT_NO_LEASE)
        return;
    list_for_each (it, &r->runs)
        sim_run_lease(container_of(it, struct sim_run, link), loop_now_ms(r->loop));
}

/* ---- requests ---- */
static void answer_run(struct sim_room *r, const struct record *m, struct record *a)
{
    const struct sim_run *run = run_find(r, &m->key);

    a->outcome = OUT_DONE;
    a->key = m->key;
    a->state = RUN_ABSENT;
    if (run)
        sim_run_seen(run, a);
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
        (void)sim_run_begin(r, m);
    } else {
        r->again++;
        if (chance(r, 20))
            return; /* busy: that says nothing of the run which is there */
    }
    answer_run(r, m, a);
}
static void do_end(struct sim_room *r, const struct record *m, struct record *a)
{
    struct sim_run *run = run_find(r, &m->key);

    if (run && !over(run) && room_events.stops)
        room_events.stops(room_events.arg, r, &m->key);
    if (run && m->type == ROOM_SIGNAL) {
        sim_run_signal(run);
    } else if (run && chance(r, 70)) { /* takes its time, and saves if it can */
        sim_run_signal(run);
        sim_run_kill_in(run, 1 + below(r, 2000));
    } else if (run) {
        sim_run_kill_in(run, 0);
    }
    answer_run(r, m, a);
}
/* Ahead of a run: what is newest in the store? */
static void do_look(struct sim_room *r, const struct record *m, struct record *a)
{
    const struct sim_cut *c = sim_store_look(r->store, r->name, m->key.uid, 0, m->look_epoch,
                                             m->known_epoch, m->known_step);

    a->key = m->key;
    a->state = RUN_UNKNOWN;
    a->outcome = chance(r, 10) ? OUT_UNKNOWN : OUT_DONE; /* no verdict: asked again */
    if (!c || a->outcome != OUT_DONE)
        return;
    a->cut_epoch = c->epoch;
    a->cut_step = c->step;
    a->cut_bytes = c->bytes;
    a->cut_ranks = c->ranks;
    str_copy(a->path, sizeof a->path, c->path);
    str_copy(a->digest, sizeof a->digest, c->digest);
}
/* Ahead of a run: is what it is to resume from whole? */
static void do_stage(struct sim_room *r, const struct record *m, struct record *a)
{
    const struct sim_cut *c;
    const char *why = sim_store_verify(r->store, r->name, m->key.uid, m->any_ranks ? 0 : m->ranks,
                                       m->path, m->digest, &c);

    a->key = m->key;
    a->state = RUN_UNKNOWN;
    if (sim_planted == PLANT_NO_VERIFY)
        why = NULL;
    a->outcome = why ? OUT_REJECTED : OUT_DONE;
    if (why)
        str_copy(a->reason, sizeof a->reason, why);
}
static void do_list(struct session *x, const struct record *m)
{
    list_for_each (it, &x->room->runs) {
        const struct sim_run *run = container_of(it, struct sim_run, link);
        struct record l = record_make(ROOM_LISTED);
        if (run->memory != x->room->memory || run->forgotten)
            continue;
        l.id = m->id;
        sim_run_seen(run, &l);
        str_copy(l.cluster, sizeof l.cluster, run->cluster);
        l.rv = run->state_rv;
        l.devices = run->devices;
        session_send(x, &l);
    }
}
static void do_renew(struct sim_room *r, const struct record *m)
{
    uint64_t now = loop_now_ms(r->loop), from = m->from < now ? m->from : now;
    struct sim_run *one = *m->key.uid ? run_find(r, &m->key) : NULL;

    if (one && !over(one) && one->grant && m->grant > one->grant && !sim_run_still(one) &&
        !chance(r, 20)) {
        sim_log(r->w, "%s: %s takes lease %lld of %llu ms", r->name, one->key.uid,
                (long long)m->grant, (unsigned long long)m->lease_ms);
        one->grant = m->grant;
        one->lease_ms = m->lease_ms;
        one->until_ms = one->from_ms + one->lease_ms;
        r->taken++;
        room_tell_all(one);
    }
    list_for_each (it, &r->runs) {
        struct sim_run *run = container_of(it, struct sim_run, link);
        if (sim_run_still(run) || run->memory != r->memory || strcmp(run->cluster, m->cluster) != 0)
            continue;
        run->from_ms = from > run->from_ms ? from : run->from_ms;
        run->until_ms = run->from_ms + run->lease_ms;
    }
}
static void inventory_fill(const struct sim_room *r, struct record *m)
{
    m->nodes = r->nodes;
    m->gpus = r->gpus;
    m->devices = r->sick;
}
void sim_room_sick(struct sim_room *r, unsigned nodes)
{
    struct record m = record_make(ROOM_INVENTORY);

    sim_log(r->w, "cause: nodes %x of %s are sick", nodes, r->name);
    r->sick = nodes;
    inventory_fill(r, &m);
    list_for_each (it, &r->sessions)
        session_send(container_of(it, struct session, link), &m);
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
    case ROOM_STAGE:
        if (m->look_epoch)
            do_look(r, m, &a);
        else
            do_stage(r, m, &a);
        break;
    case ROOM_LIST:
        do_list(x, m);
        break;
    case ROOM_INVENTORY:
        inventory_fill(r, &a);
        break;
    case ROOM_RENEW:
        do_renew(r, m);
        return;
    case ROOM_FORGET:
    case ROOM_CLAIM: {
        struct sim_run *run = run_find(r, &m->key);
        if (run && m->type == ROOM_FORGET)
            run->forgotten = true;
        else if (run)
            str_copy(run->cluster, sizeof run->cluster, m->cluster);
        if (run)
            run->state_rv = m->type == ROOM_CLAIM ? m->rv : 0;
        return;
    }
    default:
        return;
    }
    if (!mute)
        session_send(x, &a);
}
static void request_due(void *arg)
{
    struct request *q = arg;

    if (q->session->room->agent)
        execute(q->session, &q->m, q->mute);
    mem_free(q);
}
static void request_later(struct session *x, const struct record *m, uint64_t ms, bool mute)
{
    struct request *q = mem_new(struct request);

    q->session = x;
    q->m = *m;
    q->mute = mute;
    timer_init(&q->at, x->room->agent, request_due, q);
    timer_start(&q->at, ms);
}

/* False: its line went on without this hub. */
static bool heard(struct sim_room *r, const struct record *m)
{
    bool same_uid = strcmp(m->cluster, r->heard.cluster) == 0;

    if (cluster_left_behind(m->cluster, r->heard.cluster))
        return false;
    if (!*m->cluster || (same_uid && m->rv <= r->heard.rv))
        return true;
    str_copy(r->heard.cluster, sizeof r->heard.cluster, m->cluster);
    r->heard.rv = m->rv;
    r->heard.time_ms = m->time_ms;
    return true;
}

static bool session_record(const struct record *m, void *arg)
{
    struct session *x = arg;
    struct sim_room *r = x->room;
    unsigned dice = (unsigned)below(r, 100);

    if (sim_marks && !heard(r, m)) {
        stream_abort(x->s, "this hub was left behind");
        return false;
    }
    if (!r->chaos || m->type == ROOM_RENEW || m->type >= ROOM_CLAIM || m->type == ROOM_BEAT) {
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

/* ---- sessions ---- */
static void session_data(struct stream *s, const void *p, size_t n, void *arg)
{
    (void)s;
    if (((struct session *)arg)->room->agent)
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

    if (!x->room->agent)
        return;
    m.clock = loop_now_ms(x->room->agent);
    session_send(x, &m);
    timer_start(&x->beat, BEAT_MS);
}
static void accepted(struct listener *li, struct stream *s, void *arg)
{
    struct sim_room *r = arg;
    struct session *x = mem_new(struct session);
    struct record m = record_make(ROOM_HELLO);

    (void)li;
    if (!r->agent) { /* it is being killed */
        stream_abort(s, "the agent is down");
        mem_free(x);
        return;
    }
    x->room = r;
    x->s = s;
    x->id = ++r->next_session;
    timer_init(&x->beat, r->agent, session_beat, x);
    timer_start(&x->beat, BEAT_MS);
    if (list_empty(&r->sessions))
        r->session_since_ms = sim_now_ms(r->w);
    list_push(&r->sessions, &x->link);
    stream_set(s, &session_events, x);
    m.id = x->id;
    m.clock = loop_now_ms(r->loop);
    m.from = r->memory;
    str_copy(m.cluster, sizeof m.cluster, r->heard.cluster);
    m.rv = r->heard.rv;
    m.time_ms = r->heard.time_ms;
    session_send(x, &m);
    list_for_each (it, &r->runs) {
        const struct sim_run *run = container_of(it, struct sim_run, link);
        if (run->memory != r->memory)
            continue;
        m = record_make(ROOM_SEEN);
        sim_run_seen(run, &m);
        session_send(x, &m);
    }
}

/* ---- its two processes ---- */
static void agent_main(struct loop *l, const char *const *argv, const char *const *env, void *arg)
{
    struct sim_room *r = arg;
    struct listener *li;
    struct err err;
    int port;

    (void)argv;
    (void)env;
    r->agent = l;
    INV(listener_create(l, "0.0.0.0:" ROOM_PORT, NULL, accepted, r, &li, &port, &err) == 0);
}
static void runs_main(struct loop *l, const char *const *argv, const char *const *env, void *arg)
{
    struct sim_room *r = arg;

    (void)argv;
    (void)env;
    r->loop = l;
    timer_init(&r->leases, l, leases_look, r);
    timer_start(&r->leases, 50);
}
static void agent_start(struct sim_room *r)
{
    r->agent_up = true;
    (void)sim_start(r->host, "agent", &(struct sim_program){.main = agent_main, .arg = r});
}
void sim_room_agent(struct sim_room *r, bool up)
{
    if (!sim_up(r->host) || up == r->agent_up || (!up && !r->agent))
        return;
    if (up) {
        agent_start(r);
        return;
    }
    sim_kill(r->host, sim_pid_of(r->agent), SIGKILL);
    r->agent = NULL;
    r->agent_up = false;
    list_init(&r->sessions); /* nobody hears of it from here: the streams are reset */
}
void sim_room_forget(struct sim_room *r)
{
    if (!sim_up(r->host) || !r->agent)
        return;
    sim_log(r->w, "fault: the agent of %s has lost its state folder", r->name);
    sim_room_agent(r, false);
    r->memory++;
    r->forgot = true;
    while (!list_empty(&r->refused))
        mem_free(container_of(list_pop(&r->refused), struct room_refusal, link));
}
void sim_room_power(struct sim_room *r, bool on)
{
    if (on == sim_up(r->host))
        return;
    if (on) {
        sim_boot(r->host);
        (void)sim_start(r->host, "runs", &(struct sim_program){.main = runs_main, .arg = r});
        agent_start(r);
        return;
    }
    r->agent = NULL;
    r->agent_up = false;
    list_init(&r->sessions);
    list_for_each (it, &r->runs)
        sim_room_kill_run(r, container_of(it, struct sim_run, link));
    sim_crash(r->host);
}
/* The ways in which a machine fails what runs on it, in turn. */
void sim_room_kill_run(struct sim_room *r, struct sim_run *run)
{
    static const char *const reasons[] = {"RunnerKilled", "MachineRestarted", "StartFailed"};

    (void)r;
    if (over(run))
        return;
    run->reason = reasons[run->key.epoch % 3];
    sim_run_end(run, 0, SIGKILL);
}

struct sim_room *sim_room_create(struct sim_world *w, const char *name, struct sim_store *store,
                                 const struct sim_room_events *ev)
{
    struct sim_room *r = mem_new(struct sim_room);

    room_events = *ev;
    str_copy(r->name, sizeof r->name, name);
    r->w = w;
    r->store = store;
    r->nodes = 3;
    r->gpus = 4;
    list_init(&r->runs);
    list_init(&r->refused);
    list_init(&r->sessions);
    r->host = sim_host_create(w, name);
    (void)sim_start(r->host, "runs", &(struct sim_program){.main = runs_main, .arg = r});
    agent_start(r);
    return r;
}
