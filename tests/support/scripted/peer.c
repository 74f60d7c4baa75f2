/* The API of a scripted peer: what it does when it is asked, and what becomes of its answers. */
#include "tests/support/scripted/peer.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LATE_MS 9000
#define SLOW_MS 4000
#define GONE_AFTER 400 /* a watch that is so many changes behind has to begin again */

struct pending { /* what is carried out, or said, later */
    struct list link;
    struct scripted_peer *peer;
    struct timer at;
    uint64_t session;
    bool mute;
    struct scripted_ask q;
};
struct answer { /* of one request */
    struct scripted_peer *p;
    uint64_t session;
    const struct scripted_ask *q;
    bool mute, half, wrong;
    struct scripted_tell end;
};

static bool same(const struct run_key *a, const struct run_key *b)
{
    return a->epoch == b->epoch && a->try_ == b->try_ && !strcmp(a->uid, b->uid);
}
static uint64_t below(struct scripted_peer *p, uint64_t n)
{
    return p->below ? p->below(p->arg, n) : 0;
}
static void tell(struct answer *a, struct scripted_tell *m)
{
    m->id = a->q->id;
    m->clock_ms = loop_wall_ms(a->p->loop);
    if (!a->mute && !a->p->silent)
        a->p->say(a->p->arg, a->session, m);
}
static void refuse(struct answer *a, int status, int error, enum refusal_class c,
                   enum refusal_scope s)
{
    a->end.status = status;
    a->end.error = error;
    a->end.class_ = c;
    a->end.scope = s;
}

/* ---- things ---- */
void peer_view(const struct thing *t, struct scripted_view *v)
{
    struct scripted_peer *p = t->peer;
    const struct peer_record *x =
        p->kind == LIKE_KUBERNETES ? peer_record(p, t->v.key.uid, false) : NULL;

    *v = t->v;
    v->removed = t->gone;
    v->disowned = p->kind == LIKE_KUBERNETES && !t->starts &&
                  !(x && x->r.state == RECORD_OPEN && same(&x->r.key, &t->v.key));
    if (!v->proved) { /* it knows nothing of an end yet */
        v->exit_code = v->signo = 0;
        v->ended_ms = 0;
    }
}
static void tell_thing(struct answer *a, const struct thing *t)
{
    struct scripted_tell m = {.what = TELL_THING, .status = 200};

    if (a->half && below(a->p, 2)) /* it is cut off */
        return;
    peer_view(t, &m.thing);
    if (a->wrong) { /* it is about something else */
        m.thing.key.uid[0] = '~';
        m.thing.phase = THING_OVER;
        m.thing.started = m.thing.proved = true;
    }
    tell(a, &m);
}
static bool shown(const struct thing *t)
{
    return !t->gone && loop_now_ms(t->peer->loop) >= t->visible_ms;
}
static struct thing *by_id(struct scripted_peer *p, uint64_t id)
{
    list_for_each (it, &p->things)
        if (container_of(it, struct thing, link)->v.id == id)
            return container_of(it, struct thing, link);
    return NULL;
}
static void record_fill(struct scripted_peer *p, const char *uid, struct scripted_record *r)
{
    const struct peer_record *x = peer_record(p, uid, false);
    const struct thing *t;

    if (!x)
        return;
    *r = x->r;
    if (x->r.state != RECORD_CLAIMED || !(t = by_id(p, x->thing)) || !p->nodes[t->v.node].linked)
        return;
    r->lives = t->program != NULL;
    r->gone = !r->lives;
}
static void do_look(struct answer *a)
{
    struct scripted_peer *p = a->p;

    list_for_each (it, &p->things) {
        const struct thing *t = container_of(it, struct thing, link);
        if (shown(t) && !strcmp(t->v.key.uid, a->q->key.uid))
            tell_thing(a, t);
    }
    if (p->kind == LIKE_KUBERNETES)
        record_fill(p, a->q->key.uid, &a->end.record);
}
static void do_list(struct answer *a)
{
    struct scripted_peer *p = a->p;

    bool forgot = a->q->since && p->chaos.lost && !below(p, 20);

    if (forgot || (a->q->since && p->revision - a->q->since > GONE_AFTER)) {
        refuse(a, 410, E_STALE, (enum refusal_class)0, (enum refusal_scope)0);
        return;
    }
    list_for_each (it, &p->things) {
        const struct thing *t = container_of(it, struct thing, link);
        if (a->q->since ? t->changed > a->q->since : shown(t))
            tell_thing(a, t);
    }
}
/* All that ever was, as the accounting has it: by starts and ends that nodes have confirmed. */
static void do_account(struct answer *a)
{
    struct scripted_peer *p = a->p;

    if (loop_now_ms(p->loop) < p->accounting_ms) {
        a->end.error = E_UNAVAIL; /* and 200 */
        return;
    }
    list_for_each (it, &p->things) {
        struct thing copy = *container_of(it, struct thing, link);
        if ((*a->q->key.uid && strcmp(copy.v.key.uid, a->q->key.uid) != 0) ||
            copy.changed <= a->q->since)
            continue;
        copy.gone = false;
        copy.v.started |= copy.starts > 0;
        tell_thing(a, &copy);
    }
}
static void do_record(struct answer *a)
{
    const struct scripted_ask *q = a->q;
    struct peer_record *x = peer_record(a->p, q->key.uid, true);

    if (x->r.revision != q->revision) {
        refuse(a, 409, E_CONFLICT, REFUSED_CONFLICT, BLAMES_WORKLOAD);
    } else {
        x->r.key = q->key;
        x->r.state = q->record;
        x->r.revision = ++a->p->revision;
    }
    record_fill(a->p, q->key.uid, &a->end.record);
}

/* ---- orders ---- */
struct thing *peer_make(struct scripted_peer *p, const struct scripted_ask *q, bool ours)
{
    struct thing *t = mem_new(struct thing);
    uint64_t now = loop_now_ms(p->loop);

    t->peer = p;
    t->v.id = ++p->serial;
    t->v.key = q->key;
    t->v.made_ms = loop_wall_ms(p->loop);
    t->v.ranks = q->ranks;
    t->v.gpus = q->gpus;
    t->v.tombstone = q->tombstone;
    t->v.phase = q->tombstone ? THING_OVER : THING_WAITS;
    t->v.proved = q->tombstone;
    t->v.waited = p->queue_ms > 0;
    t->start_from_ms = q->start_from_ms;
    t->start_by_ms = q->start_by_ms;
    t->holds = q->holds && !q->tombstone;
    t->requeues = !q->holds;
    t->visible_ms = p->lag_ms ? now + below(p, p->lag_ms) : 0;
    t->next_ms = now + p->queue_ms + 50 + below(p, 900);
    memcpy(t->load, q->load, sizeof t->load);
    if (ours)
        str_copy(t->v.cluster, sizeof t->v.cluster, *q->cluster ? q->cluster : "-");
    list_push(&p->things, &t->link);
    peer_changed(t);
    peer_say(p, t, t->v.tombstone ? "is sealed" : "is ordered");
    return t;
}
void peer_stranger(struct scripted_peer *p, const struct run_key *k)
{
    struct scripted_ask q = {.key = *k};

    (void)peer_make(p, &q, false);
}
static bool refused(struct answer *a)
{
    struct scripted_peer *p = a->p;

    if (!p->refusals || a->q->tombstone)
        return false;
    p->refusals--;
    switch (p->refuse) {
    case E_LIMIT: /* this zone has no such machine, and no such GPU is free */
        refuse(a, 500, E_LIMIT, REFUSED_CAPACITY,
               p->kind == LIKE_CLOUD ? BLAMES_ZONE : BLAMES_CLASS);
        break;
    case E_BUSY: /* too much haste */
        refuse(a, p->kind == LIKE_SLURM ? 500 : 429, E_UNAVAIL, REFUSED_THROTTLED, BLAMES_TARGET);
        a->end.retry_ms = 7000;
        break;
    default:
        refuse(a, p->kind == LIKE_SLURM ? 500 : 403, E_FORBIDDEN, REFUSED_AUTHORISATION,
               BLAMES_WORKLOAD);
    }
    return true;
}
/* Who has that name, or that token; Slurm knows neither. */
static struct thing *known(struct answer *a)
{
    struct scripted_peer *p = a->p;

    if (p->kind == LIKE_SLURM || a->q->blind)
        return NULL;
    list_for_each (it, &p->things) {
        struct thing *t = container_of(it, struct thing, link);
        bool named = p->kind == LIKE_KUBERNETES ? !t->gone : *t->v.cluster != '\0';
        if (named && same(&t->v.key, &a->q->key))
            return t;
    }
    return NULL;
}
static void do_make(struct answer *a)
{
    struct scripted_peer *p = a->p;
    struct thing *t = known(a);

    p->submits += !a->q->tombstone;
    if (t && p->kind == LIKE_CLOUD && t->v.tombstone == a->q->tombstone) {
        tell_thing(a, t); /* the same token, the same machine */
        return;
    }
    if (t) {
        refuse(a, p->kind == LIKE_CLOUD ? 400 : 409, E_EXISTS, REFUSED_CONFLICT, BLAMES_WORKLOAD);
        return;
    }
    if (!refused(a))
        tell_thing(a, peer_make(p, a->q, true));
}
static void do_thing(struct answer *a)
{
    struct scripted_peer *p = a->p;
    struct thing *t = by_id(p, a->q->thing);

    if (!t || t->gone) {
        a->end.status = p->kind == LIKE_SLURM ? 200 : 404;
        return;
    }
    if (!*t->v.cluster)
        peer_break(p, "somebody else's %llu was touched", (unsigned long long)t->v.id);
    switch (a->q->verb) {
    case ASK_SIGNAL:
        if (t->program && p->nodes[t->v.node].linked)
            p->programs->signal(t->program, a->q->signo);
        else
            a->end.status = 500;
        break;
    case ASK_DELETE:
        if (p->stops && t->program)
            p->stops(p->arg, &t->v.key);
        if (!t->v.going && (t->v.phase != THING_OVER || !t->v.proved)) {
            t->v.going = true;
            t->grace_ms = a->q->grace_ms;
        }
        break;
    case ASK_RELEASE:
        t->holds = false;
        break;
    default:
        str_copy(t->v.cluster, sizeof t->v.cluster, a->q->cluster);
    }
    peer_changed(t);
}
static void do_nodes(struct answer *a)
{
    uint64_t now = loop_now_ms(a->p->loop);

    for (unsigned i = 0; i < PEER_NODES && !(a->half && i); i++) {
        const struct peer_node *n = &a->p->nodes[i];
        struct scripted_tell m = {.what = TELL_NODE,
                                  .status = 200,
                                  .node = i,
                                  .gpus = PEER_GPUS,
                                  .linked = n->linked};
        if (n->notice_until_ms)
            m.notice_ms = n->notice_until_ms > now ? n->notice_until_ms - now : 1;
        tell(a, &m);
    }
}
static void do_renew(struct scripted_peer *p, const struct scripted_ask *q)
{
    list_for_each (it, &p->things) {
        struct thing *t = container_of(it, struct thing, link);
        if (t->program && p->programs->renew)
            p->programs->renew(t->program, q->since, q->lease_ms);
    }
}
/* False: it was refused. */
static bool execute(struct scripted_peer *p, uint64_t session, const struct scripted_ask *q,
                    bool mute)
{
    struct answer a = {.p = p, .session = session, .q = q, .mute = mute};

    a.end = (struct scripted_tell){.what = TELL_END, .status = 200, .whole = true};
    a.end.revision = p->revision;
    a.half = p->chaos.half && below(p, 100) < p->chaos.half;
    a.wrong = p->chaos.wrong && below(p, 100) < p->chaos.wrong && *q->key.uid;
    if (q->verb == ASK_RENEW) {
        do_renew(p, q);
        return true;
    }
    if (p->chaos.busy && below(p, 100) < p->chaos.busy) {
        a.end.status = below(p, 2) ? 500 : 503; /* a page of HTML */
        a.end.garbled = true;
        tell(&a, &a.end);
        return true;
    }
    switch (q->verb) {
    case ASK_NODES:
        do_nodes(&a);
        break;
    case ASK_LOOK:
        do_look(&a);
        break;
    case ASK_ACCOUNT:
        do_account(&a);
        break;
    case ASK_LIST:
        do_list(&a);
        break;
    case ASK_RECORD:
        do_record(&a);
        break;
    case ASK_MAKE:
        do_make(&a);
        break;
    default:
        do_thing(&a);
    }
    a.end.whole = !a.half;
    tell(&a, &a.end);
    return a.end.error == 0;
}

/* ---- what becomes of a request ---- */
static void due(void *arg)
{
    struct pending *x = arg;

    list_remove(&x->link);
    if (!x->peer->silent)
        (void)execute(x->peer, x->session, &x->q, x->mute);
    mem_free(x);
}
static void later(struct scripted_peer *p, uint64_t session, const struct scripted_ask *q,
                  uint64_t ms, bool mute)
{
    struct pending *x = mem_new(struct pending);

    x->peer = p;
    x->session = session;
    x->q = *q;
    x->mute = mute;
    timer_init(&x->at, p->loop, due, x);
    timer_start(&x->at, ms);
    list_push(&p->pending, &x->link);
}
void peer_hear(struct scripted_peer *p, uint64_t session, const struct scripted_ask *q)
{
    const struct peer_chaos *c = &p->chaos;
    unsigned dice = (unsigned)below(p, 100), mark = 0;

    p->asked++;
    if (p->silent)
        return;
    if (q->verb == ASK_MAKE && p->order_ms) {
        p->lost++;
        later(p, session, q, p->order_ms, true);
        return;
    }
    if (dice < (mark += c->lost)) {
        p->lost++;
    } else if (dice < (mark += c->mute)) { /* done, and nobody is told */
        p->lost++;
        (void)execute(p, session, q, true);
    } else if (dice < (mark += c->late)) { /* also after its sender has given up */
        later(p, session, q, below(p, LATE_MS), below(p, 2));
    } else if (dice < (mark += c->twice) && !(p->in_time && q->verb == ASK_MAKE)) {
        /* Nobody sends again what was refused, and told so. */
        if (execute(p, session, q, false))
            later(p, session, q, below(p, LATE_MS), true);
    } else if (dice < (mark += c->slow)) {
        later(p, session, q, below(p, SLOW_MS), false);
    } else {
        (void)execute(p, session, q, false);
    }
}
void peer_fini(struct scripted_peer *p)
{
    timer_stop(&p->tick);
    for (struct list *e; (e = list_pop(&p->pending)) != NULL;) {
        timer_stop(&container_of(e, struct pending, link)->at);
        mem_free(container_of(e, struct pending, link));
    }
    list_for_each (it, &p->things)
        if (container_of(it, struct thing, link)->program)
            p->programs->kill(container_of(it, struct thing, link)->program);
    for (struct list *e; (e = list_pop(&p->things)) != NULL;)
        mem_free(container_of(e, struct thing, link));
    for (struct list *e; (e = list_pop(&p->records)) != NULL;)
        mem_free(container_of(e, struct peer_record, link));
}

/* ---- programs of the contract test ---- */
struct plain {
    struct thing *t;
    struct timer end;
};
static void plain_over(struct plain *x, int exit_code, int signo)
{
    timer_stop(&x->end);
    peer_program_over(x->t, exit_code, signo);
    mem_free(x);
}
static void plain_ends(void *arg)
{
    plain_over(arg, 3, 0);
}
static void *plain_begin(struct scripted_peer *p, const struct thing *t)
{
    struct plain *x = mem_new(struct plain);

    x->t = (struct thing *)(uintptr_t)t;
    timer_init(&x->end, p->loop, plain_ends, x);
    if (t->load[0])
        timer_start(&x->end, 50 + below(p, 300));
    return x;
}
static void plain_signal(void *program, int signo)
{
    struct plain *x = program;

    if (signo == SIGUSR1)
        plain_over(x, 75, 0);
    else if (below(x->t->peer, 2))
        plain_over(x, 0, signo);
}
static void plain_kill(void *program)
{
    plain_over(program, 0, SIGKILL);
}
static void plain_report(const void *program, struct observation *o)
{
    (void)program;
    (void)o;
}
const struct scripted_programs scripted_plain_programs = {.begin = plain_begin,
                                                          .signal = plain_signal,
                                                          .kill = plain_kill,
                                                          .report = plain_report};
