/* The members' side of the room: a driver as connector.h wants it. One connection, dialled again
 * when it is lost; a call that is not answered in time is unknown; a lease counts from a beat of
 * the room that is older than the quorum round that allowed it. */
#include "api/base/limits.h"
#include "tests/sim/federation/sim_target_wire.h"
#include "tests/support/scripted/scripted.h"

#include "api/base/list.h"

#include <stdio.h>

#define SILENCE_MS 3000
#define REDIAL_MS 300
#define BEATS 8
#define ROUND_MAX_MS 500

bool sim_marks;

struct beat {
    uint64_t clock, received_ms;
};
struct driver_ {
    struct connector base; /* first */
    struct loop *loop;
    struct stream *s;
    bool hello, gone;
    uint64_t next_id, heard_ms;
    char session[64], memory[64]; /* memory: which state folder its agent has */
    struct record_reader in;
    struct timer silence, redial;
    struct beat beats[BEATS];
    struct list calls;
    struct list known; /* keys seen alive here: for a planted bug */
};
struct waiting {
    struct list link;
    struct driver_ *d;
    struct call *call;
    struct record m;
    bool sent;
    struct timer deadline;
    run_judge judge;
    void *judge_arg;
};

static const char *const plants[PLANT_NR] = {
    "none",          "forgets-refusal", "lost-is-absent", "new-key",   "no-lease", "no-guard",
    "lost-is-ended", "sweeps-all",      "old-cut",        "no-verify", "afresh",   "loses-cut"};
const char *sim_plant_text(enum sim_plant p)
{
    return plants[p];
}
void sim_target_plant(enum sim_plant p)
{
    sim_planted = p;
}

/* ---- calls ---- */
static void observation_of(struct driver_ *d, const struct record *m, struct observation *o)
{
    *o = (struct observation){.key = m->key,
                              .state = (enum run_state)m->state,
                              .exit_code = (int)m->exit_code,
                              .term_signal = (int)m->term_signal,
                              .lease_lost = m->lease_lost != 0,
                              .stopped = sim_marks && m->stopped != 0,
                              .grant = m->grant,
                              .seen_ms = loop_now_ms(d->loop)};
    if (o->state == RUN_ENDED)
        o->proof = PROOF_TREE_GONE;
    else if (o->state == RUN_ABSENT)
        o->proof = PROOF_NEVER_STARTED;
    str_copy(o->reason, sizeof o->reason, m->reason);
    if (*m->reason)
        (void)snprintf(o->message, sizeof o->message, "%s: %s", m->reason, m->path);
    if (!m->cut_bytes || (sim_planted == PLANT_LOSES_CUT && o->state == RUN_ENDED))
        return;
    o->checkpoint = (struct run_checkpoint_report){.present = true,
                                                   .epoch = m->cut_epoch,
                                                   .step = m->cut_step,
                                                   .bytes = m->cut_bytes,
                                                   .writeTime = m->cut_write_ms,
                                                   .ranks = m->cut_ranks};
    str_copy(o->checkpoint.digest, sizeof o->checkpoint.digest, m->digest);
    str_copy(o->checkpoint.path, sizeof o->checkpoint.path, m->path);
}
static void finish(struct waiting *x, enum outcome out, const struct observation *seen, int code)
{
    struct call *call = x->call;
    struct err err;

    timer_stop(&x->deadline);
    list_remove(&x->link);
    mem_free(x);
    (void)err_set(&err, code ? code : E_INTERNAL, "the room did not answer, or refused");
    call->done(call, out, seen, out == OUT_DONE ? NULL : &err);
}
void sim_target_marks(bool on)
{
    sim_marks = on;
}
static void state_fill(const struct driver_ *d, struct record *m)
{
    const struct connector_env *e = &d->base.env;

    if (!sim_marks)
        return;
    str_copy(m->cluster, sizeof m->cluster, e->cluster_uid(e->arg));
    m->rv = e->state_rv(e->arg, &m->time_ms);
}
static void send_record(struct driver_ *d, struct record *m)
{
    m->id = ++d->next_id;
    state_fill(d, m);
    stream_write(d->s, m, sizeof *m);
}
static void unanswered(struct waiting *x)
{
    struct driver_ *d = x->d;
    struct observation o = {.key = x->m.key, .state = RUN_ABSENT, .proof = PROOF_NEVER_STARTED};

    if (sim_planted == PLANT_LOST_IS_ABSENT && x->m.type == ROOM_FIND && !d->gone) {
        finish(x, OUT_DONE, &o, 0);
        return;
    }
    if (sim_planted == PLANT_NEW_KEY && x->m.type == ROOM_SUBMIT && d->hello) {
        struct record again = x->m;
        again.key.try_++;
        send_record(d, &again);
    }
    finish(x, OUT_UNKNOWN, NULL, E_UNKNOWN);
}
static void deadline(void *arg)
{
    struct waiting *x = arg;

    if (x->sent)
        unanswered(x);
    else
        finish(x, OUT_REJECTED, NULL, E_UNAVAIL);
}
static struct waiting *call_begin(struct driver_ *d, struct call *call, struct record *m)
{
    struct waiting *x = mem_new(struct waiting);
    uint64_t now = loop_now_ms(d->loop);

    x->d = d;
    x->call = call;
    timer_init(&x->deadline, d->loop, deadline, x);
    list_push(&d->calls, &x->link);
    x->sent = d->hello;
    if (x->sent)
        send_record(d, m);
    timer_start(&x->deadline, x->sent && call->deadline_ms > now ? call->deadline_ms - now : 0);
    x->m = *m;
    return x;
}

/* ---- what the room says ---- */
static uint64_t lease_from(const struct driver_ *d)
{
    uint64_t now = loop_now_ms(d->loop), oldest = 0;

    for (size_t i = 0; i < BEATS && d->beats[i].received_ms; i++) {
        oldest = d->beats[i].clock;
        if (now - d->beats[i].received_ms >= ROUND_MAX_MS)
            break;
    }
    return oldest;
}
static void beat(struct driver_ *d, uint64_t clock)
{
    memmove(d->beats + 1, d->beats, sizeof d->beats - sizeof d->beats[0]);
    d->beats[0] = (struct beat){clock, loop_now_ms(d->loop)};
}

static void tell_nodes(struct driver_ *d, const struct record *m)
{
    AUTO_ARENA a = arena_create(0);
    struct node *n = arena_array(a, struct node, m->nodes + 1);

    for (int64_t i = 0; i < m->nodes; i++) {
        n[i].metadata = arena_new(a, struct meta);
        n[i].metadata->name = arena_printf(a, "%s.n%lld", d->base.target, (long long)i);
        n[i].spec = arena_new(a, struct node_spec);
        n[i].spec->target = d->base.target;
        n[i].spec->cpu = 64000;
        n[i].spec->memory = (int64_t)1 << 40;
        n[i].spec->gpus = arena_array(a, struct gpu, m->gpus + 1);
        n[i].spec->n_gpus = (uint32_t)m->gpus;
        n[i].status = arena_new(a, struct node_status);
        n[i].status->health = m->devices >> i & 1 ? HEALTH_SICK : HEALTH_READY;
        for (int64_t g = 0; g < m->gpus; g++) {
            n[i].spec->gpus[g].index = g;
            n[i].spec->gpus[g].class_ = "h100";
        }
    }
    d->base.env.events->nodes(d->base.env.arg, INVENTORY_ALL(n, (size_t)m->nodes));
}
static void answered(struct driver_ *d, const struct record *m)
{
    struct observation o;

    list_for_each (it, &d->calls) {
        struct waiting *x = container_of(it, struct waiting, link);
        if (!x->sent || x->m.id != m->id)
            continue;
        if (x->m.type == ROOM_INVENTORY)
            tell_nodes(d, m);
        observation_of(d, m, &o);
        finish(x, (enum outcome)m->outcome,
               x->m.type == ROOM_STAGE || (m->outcome == OUT_DONE && x->m.type <= ROOM_STOP) ? &o
                                                                                             : NULL,
               x->m.type == ROOM_STAGE ? E_CHECKPOINT : E_BUSY);
        return;
    }
}
/* Rooms serve one cluster for ever: what they run is its own. */
static const char *cluster_of(const struct driver_ *d)
{
    return d->base.env.cluster_uid ? d->base.env.cluster_uid(d->base.env.arg) : "";
}
/* Of each node of the room four bits. */
static size_t holds_of(const struct driver_ *d, const struct record *m, struct run_hold holds[8])
{
    size_t n = 0;

    for (unsigned i = 0; i < 8; i++) {
        uint64_t devices = (uint64_t)m->devices >> (i * 4) & 15;
        if (!devices)
            continue;
        holds[n].devices = devices;
        (void)snprintf(holds[n++].node, sizeof holds->node, "%s.n%u", d->base.target, i);
    }
    return n;
}
static void listed(struct driver_ *d, const struct record *m)
{
    list_for_each (it, &d->calls) {
        struct waiting *x = container_of(it, struct waiting, link);
        if (!x->sent || x->m.id != m->id || !x->judge || (m->state == RUN_ENDED && !sim_marks))
            continue;
        struct run_listed l = {.since_ms = 0};
        struct run_hold holds[8];
        observation_of(d, m, &l.seen);
        str_copy(l.cluster, sizeof l.cluster, sim_marks ? m->cluster : cluster_of(d));
        l.state_rv = m->rv;
        l.holds = holds;
        l.n_holds = sim_marks ? holds_of(d, m, holds) : 0;
        enum run_verdict v = x->judge(&l, x->judge_arg);
        if (sim_marks && v == RUN_CLAIMED && strcmp(m->cluster, cluster_of(d)) != 0) {
            struct record claim = record_make(ROOM_CLAIM);
            claim.key = m->key;
            send_record(d, &claim);
        }
        if (v != RUN_LET_GO && sim_planted != PLANT_SWEEPS_ALL)
            continue;
        bool over = m->state == RUN_ENDED || m->state == RUN_ABSENT;
        struct record stop = record_make(over && sim_marks ? ROOM_FORGET : ROOM_STOP);
        stop.key = m->key;
        stop.grace_ms = 5000;
        send_record(d, &stop);
        return;
    }
}
struct known {
    struct list link;
    struct run_key key;
};
static void know(struct driver_ *d, const struct run_key *k)
{
    struct known *x = mem_new(struct known);

    x->key = *k;
    list_push(&d->known, &x->link);
}

/* Planted: the newest checkpoint of any epoch is told as that of the key which was told last. */
static void old_cut(struct driver_ *d, struct observation *o)
{
    list_for_each (it, &d->known) {
        struct known *x = container_of(it, struct known, link);
        if (strcmp(x->key.uid, o->key.uid) != 0)
            continue;
        if (o->checkpoint.present && o->key.epoch < x->key.epoch) {
            o->key = x->key;
            o->state = RUN_RUNNING;
            o->proof = (enum proof)0;
        } else if (o->key.epoch >= x->key.epoch) {
            x->key = o->key;
        }
        return;
    }
    know(d, &o->key);
}

static bool driver_record(const struct record *m, void *arg)
{
    struct driver_ *d = arg;
    struct observation o;

    d->heard_ms = loop_now_ms(d->loop);
    switch ((enum room_record)m->type) {
    case ROOM_HELLO:
        d->hello = true;
        memset(d->beats, 0, sizeof d->beats);
        beat(d, m->clock);
        (void)snprintf(d->session, sizeof d->session, "%s-%llu", d->base.target,
                       (unsigned long long)m->id);
        (void)snprintf(d->memory, sizeof d->memory, "%s-memory-%llu", d->base.target,
                       (unsigned long long)m->from);
        if (sim_marks)
            d->base.env.events->heard(d->base.env.arg, m->cluster, m->rv, m->time_ms);
        d->base.env.events->agent(d->base.env.arg, d->memory);
        d->base.env.events->reach(d->base.env.arg, true, d->session, "connected");
        break;
    case ROOM_BEAT:
        beat(d, m->clock);
        if (sim_marks && d->s) {
            struct record back = record_make(ROOM_BEAT);
            send_record(d, &back);
        }
        break;
    case ROOM_SEEN:
        observation_of(d, m, &o);
        if (sim_planted == PLANT_OLD_CUT)
            old_cut(d, &o);
        if (sim_planted == PLANT_LOST_IS_ENDED && o.state == RUN_RUNNING)
            know(d, &o.key);
        d->base.env.events->observed(d->base.env.arg, &o);
        break;
    case ROOM_ANSWER:
        answered(d, m);
        break;
    case ROOM_INVENTORY: /* as it is from now on */
        tell_nodes(d, m);
        break;
    case ROOM_LISTED:
        listed(d, m);
        break;
    default:
        break;
    }
    return d->s != NULL;
}

/* ---- the connection ---- */
static void dial(void *arg);

static void calls_lost(struct driver_ *d)
{
    struct list lost;

    list_init(&lost);
    for (struct list *e; (e = list_pop(&d->calls)) != NULL;)
        list_push(&lost, e);
    while (!list_empty(&lost))
        deadline(container_of(lost.next, struct waiting, link));
}
static void over(struct driver_ *d, const char *why)
{
    bool was = d->hello;

    d->s = NULL;
    d->hello = false;
    d->in.n = 0;
    timer_stop(&d->silence);
    calls_lost(d);
    if (d->gone)
        return;
    while (sim_planted == PLANT_LOST_IS_ENDED && !list_empty(&d->known)) {
        struct known *x = container_of(list_pop(&d->known), struct known, link);
        struct observation o = {
            .key = x->key, .state = RUN_ENDED, .exit_code = 1, .proof = PROOF_TREE_GONE};
        mem_free(x);
        d->base.env.events->observed(d->base.env.arg, &o);
    }
    if (was)
        d->base.env.events->reach(d->base.env.arg, false, d->session, why);
    timer_start(&d->redial, REDIAL_MS);
}
static void driver_opened(struct stream *s, void *arg)
{
    (void)s, (void)arg;
}
static void driver_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct driver_ *d = arg;

    (void)s;
    record_feed(&d->in, p, n, driver_record, d);
}
static void driver_closed(struct stream *s, const struct err *why, void *arg)
{
    (void)s;
    over(arg, why->text);
}
static const struct stream_events driver_events = {
    .open = driver_opened, .data = driver_data, .closed = driver_closed};
static const struct stream_events nobody = {0};

static void silence(void *arg)
{
    struct driver_ *d = arg;
    uint64_t now = loop_now_ms(d->loop);

    if (now - d->heard_ms >= SILENCE_MS)
        stream_abort(d->s, "the room is silent");
    else
        timer_start(&d->silence, SILENCE_MS - (now - d->heard_ms));
}
static void dial(void *arg)
{
    struct driver_ *d = arg;
    char address[300];
    struct err err;

    (void)snprintf(address, sizeof address, "%s:" ROOM_PORT, d->base.target);
    d->heard_ms = loop_now_ms(d->loop);
    if (stream_connect(d->loop, address, NULL, NULL, 3000, &driver_events, d, &d->s, &err)) {
        d->s = NULL;
        timer_start(&d->redial, REDIAL_MS);
        return;
    }
    timer_start(&d->silence, SILENCE_MS);
}

/* ---- the table ---- */
#define D(c) container_of((c), struct driver_, base)

static int op_create(const struct connector_env *env, const struct object *target,
                     struct connector **ret, struct err *err)
{
    struct driver_ *d = mem_new(struct driver_);

    (void)err;
    d->base.ops = sim_target_driver(TARGET_AGENT);
    d->base.env = *env;
    d->loop = env->loop;
    str_copy(d->base.target, sizeof d->base.target, target->meta->name);
    list_init(&d->calls);
    list_init(&d->known);
    timer_init(&d->silence, d->loop, silence, d);
    timer_init(&d->redial, d->loop, dial, d);
    timer_start(&d->redial, 0);
    *ret = &d->base;
    return 0;
}
static void op_destroy(struct connector *c)
{
    struct driver_ *d = D(c);

    d->gone = true;
    timer_stop(&d->redial);
    if (d->s) {
        stream_set(d->s, &nobody, NULL);
        stream_abort(d->s, "this member does not lead any more");
    }
    over(d, "");
    mem_free(d);
}
static void op_update(struct connector *c, const struct object *target)
{
    (void)c, (void)target;
}
static void op_simple(struct connector *c, struct call *call, struct record m)
{
    (void)call_begin(D(c), call, &m);
}
static void op_inventory(struct connector *c, struct call *call)
{
    op_simple(c, call, record_make(ROOM_INVENTORY));
}
static struct record order_record(struct connector *c, const struct run_order *o,
                                  enum room_record type)
{
    struct record m = record_make(type);

    m.from = lease_from(D(c));
    sim_order_fill(c->target, o, &m);
    if (sim_planted == PLANT_AFRESH && type == ROOM_SUBMIT)
        *m.path = '\0';
    return m;
}
/* The documents of runs, as rooms keep them: beside the wire, whose records have one size. */
struct document {
    struct list link;
    struct run_key key;
    char *json;
};
static struct list *documents(void)
{
    static struct list all;

    if (!all.next)
        list_init(&all);
    return &all;
}
static void document_keep(const struct run_order *o)
{
    struct document *x = mem_new(struct document);

    x->key = o->key;
    x->json = mem_strdup(o->document);
    list_push(documents(), &x->link);
}
struct document_answer {
    document_cb cb;
    void *arg;
    const struct document *doc;
};
static void document_told(void *arg)
{
    struct document_answer *x = arg;
    struct err err;

    (void)err_set(&err, E_NOTFOUND, "the room keeps nothing of it");
    x->cb(x->arg, x->doc ? OUT_DONE : OUT_REJECTED, x->doc ? x->doc->json : NULL,
          x->doc ? NULL : &err);
    mem_free(x);
}
static void op_document(struct connector *c, const struct run_key *k, uint64_t deadline_ms,
                        document_cb cb, void *arg)
{
    struct document_answer *x = mem_new(struct document_answer);

    (void)deadline_ms;
    x->cb = cb;
    x->arg = arg;
    list_for_each (it, documents()) {
        const struct document *d = container_of(it, struct document, link);
        if (D(c)->hello && d->key.epoch == k->epoch && d->key.try_ == k->try_ &&
            !strcmp(d->key.uid, k->uid))
            x->doc = d;
    }
    loop_post(D(c)->loop, document_told, x);
}
static void op_submit(struct connector *c, const struct run_order *o, struct call *call)
{
    if (sim_marks)
        document_keep(o);
    op_simple(c, call, order_record(c, o, ROOM_SUBMIT));
}
static void op_stage(struct connector *c, const struct run_order *o, struct call *call)
{
    op_simple(c, call, order_record(c, o, ROOM_STAGE));
}
/* One room of two (their names) says that an order sent again is the same run. */
static const char *op_repeats(const struct connector *c)
{
    const struct driver_ *d = container_of(c, struct driver_, base);

    return d->hello && *c->target & 1 ? d->memory : "";
}
static void about(struct connector *c, enum room_record type, const struct run_key *k,
                  uint64_t grace_ms, struct call *call)
{
    struct record m = record_make(type);

    m.key = *k;
    m.grace_ms = grace_ms;
    op_simple(c, call, m);
}
static void op_find(struct connector *c, const struct run_key *k, struct call *call)
{
    about(c, ROOM_FIND, k, 0, call);
}
static void op_quiesce(struct connector *c, const struct run_key *k, int signo, uint64_t grace_ms,
                       struct call *call)
{
    (void)signo;
    about(c, ROOM_SIGNAL, k, grace_ms, call);
}
static void op_stop(struct connector *c, const struct run_key *k, uint64_t grace_ms,
                    struct call *call)
{
    about(c, ROOM_STOP, k, grace_ms, call);
}
static void op_renew(struct connector *c, const struct run_offer *offers, size_t n)
{
    struct driver_ *d = D(c);
    struct record m = record_make(ROOM_RENEW);

    m.from = lease_from(d);
    if (d->hello)
        send_record(d, &m);
    for (size_t i = 0; d->hello && i < n; i++) {
        m.key = offers[i].key;
        m.grant = offers[i].number;
        m.lease_ms = offers[i].lease_ms;
        send_record(d, &m);
    }
}
static void op_sweep(struct connector *c, run_judge judge, void *arg, struct call *call)
{
    struct record m = record_make(ROOM_LIST);
    struct waiting *x = call_begin(D(c), call, &m);

    x->judge = judge;
    x->judge_arg = arg;
}
static int op_logs(struct connector *c, const struct run_key *k, const struct log_request *rq,
                   const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    (void)c, (void)k, (void)rq, (void)sink, (void)ret;
    return err_set(err, E_UNAVAIL, "the room keeps no logs");
}
static int op_exec(struct connector *c, const struct run_key *k, const struct exec_request *rq,
                   const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    (void)c, (void)k, (void)rq, (void)sink, (void)ret;
    return err_set(err, E_UNAVAIL, "the room runs no commands");
}

const struct connector_ops *sim_target_driver(enum target_type type)
{
    static const struct connector_ops ops = {.type = "room",
                                             .create = op_create,
                                             .destroy = op_destroy,
                                             .update = op_update,
                                             .probe = op_inventory,
                                             .inventory = op_inventory,
                                             .submit = op_submit,
                                             .repeats = op_repeats,
                                             .find = op_find,
                                             .stage = op_stage,
                                             .quiesce = op_quiesce,
                                             .stop = op_stop,
                                             .renew = op_renew,
                                             .logs = op_logs,
                                             .exec = op_exec,
                                             .sweep = op_sweep,
                                             .document = op_document};

    return type == TARGET_CALLOUT ? &scripted_ops : &ops;
}
