/* What lives in a scripted peer: its scheduler, its nodes, its programs, and what goes wrong with
 * them. Must never end a program, or tell of its end, in a way that the real ones cannot. */
#include "tests/support/scripted/peer.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TICK_MS 100
#define DOUBT_MS 20000 /* a node that says nothing so long is doubted, */
#define EVICT_MS 25000 /* and what is on it is to go */
#define BACK_MS 12000  /* until a node tells the controller again what runs on it */

void peer_break(struct scripted_peer *p, const char *fmt, ...)
{
    va_list ap;

    if (*p->broken)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(p->broken, sizeof p->broken, fmt, ap);
    va_end(ap);
    if (p->log)
        p->log(p->arg, p->broken);
}
const char *peer_broken(const struct scripted_peer *p)
{
    return p->broken;
}
static bool same(const struct run_key *a, const struct run_key *b)
{
    return a->epoch == b->epoch && a->try_ == b->try_ && !strcmp(a->uid, b->uid);
}
static bool newer(const struct run_key *a, const struct run_key *b)
{
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->try_ > b->try_;
}
void peer_say(struct scripted_peer *p, const struct thing *t, const char *what)
{
    char text[200];

    (void)snprintf(text, sizeof text, "%s: %.63s.%lld.%lld (%llu) %s", p->name, t->v.key.uid,
                   (long long)t->v.key.epoch, (long long)t->v.key.try_,
                   (unsigned long long)t->v.id, what);
    if (p->log)
        p->log(p->arg, text);
}
void peer_changed(struct thing *t)
{
    t->changed = ++t->peer->revision;
}
struct peer_record *peer_record(struct scripted_peer *p, const char *uid, bool make)
{
    struct peer_record *x;

    list_for_each (it, &p->records)
        if (!strcmp(container_of(it, struct peer_record, link)->r.key.uid, uid))
            return container_of(it, struct peer_record, link);
    if (!make)
        return NULL;
    x = mem_new(struct peer_record);
    str_copy(x->r.key.uid, sizeof x->r.key.uid, uid);
    list_push(&p->records, &x->link);
    return x;
}

/* ---- a runner begins, if it is the one ---- */
static bool is_the_one(const struct thing *t)
{
    struct scripted_peer *p = t->peer;
    struct peer_record *x = peer_record(p, t->v.key.uid, false);

    if (p->no_check || p->in_time)
        return true;
    if (p->kind == LIKE_KUBERNETES) { /* it claims the record, by its revision */
        if (!x || x->r.state != RECORD_OPEN || !same(&x->r.key, &t->v.key))
            return false;
        x->r.state = RECORD_CLAIMED;
        x->r.revision = ++p->revision;
        x->thing = t->v.id;
        return true;
    }
    list_for_each (it, &p->things) { /* all that has its name, also what is over */
        const struct thing *o = container_of(it, struct thing, link);
        if (o == t || strcmp(o->v.key.uid, t->v.key.uid) != 0 || !*o->v.cluster)
            continue;
        if (newer(&o->v.key, &t->v.key) || (same(&o->v.key, &t->v.key) && o->v.id < t->v.id))
            return false;
    }
    return true;
}
static void over(struct thing *t, const char *why)
{
    t->v.phase = THING_OVER;
    t->v.proved = true;
    t->over_ms = loop_now_ms(t->peer->loop);
    if (why)
        str_copy(t->v.why, sizeof t->v.why, why);
    for (unsigned i = 0; i < PEER_NODES; i++)
        t->peer->nodes[i].used &= ~(t->v.devices >> (i * PEER_GPUS) & 15);
    peer_changed(t);
    peer_say(t->peer, t, *t->v.why ? t->v.why : "is over");
}
static void check_begin(struct thing *t)
{
    struct scripted_peer *p = t->peer;

    list_for_each (it, &p->things) {
        const struct thing *o = container_of(it, struct thing, link);
        if (o == t || strcmp(o->v.key.uid, t->v.key.uid) != 0)
            continue;
        if (o->program)
            peer_break(p, "two copies: %.63s begins in epoch %lld, and lives in epoch %lld",
                       t->v.key.uid, (long long)t->v.key.epoch, (long long)o->v.key.epoch);
        else if (o->starts && same(&o->v.key, &t->v.key))
            peer_break(p, "%.63s begins for the second time under one key", t->v.key.uid);
    }
    if (t->starts)
        peer_break(p, "%.63s begins again, in the same job", t->v.key.uid);
}
static bool in_time(const struct thing *t)
{
    const struct scripted_peer *p = t->peer;
    int64_t now = loop_wall_ms(p->loop) + p->nodes[t->v.node].clock_ms;

    return p->starts_late || ((!t->start_from_ms || now >= t->start_from_ms) &&
                              (!t->start_by_ms || now <= t->start_by_ms));
}
static void begin(struct thing *t)
{
    struct scripted_peer *p = t->peer;

    if (!in_time(t) || !is_the_one(t)) {
        over(t, in_time(t) ? "NotTheOne" : "StartedTooLate");
        return;
    }
    check_begin(t);
    t->starts++;
    t->v.started = true;
    t->v.started_ms = loop_wall_ms(p->loop);
    t->v.phase = THING_RUNS;
    peer_say(p, t, "begins");
    if (p->begins)
        p->begins(p->arg, t);
    t->program = p->programs->begin(p, t);
    if (!t->program && !t->ended_ms)
        t->ended_ms = loop_now_ms(p->loop);
    peer_changed(t);
}
void peer_program_over(struct thing *t, int exit_code, int signo)
{
    if (!t->program)
        return;
    t->peer->programs->report(t->program, &t->v.report);
    t->program = NULL;
    t->v.exit_code = exit_code;
    t->v.signo = signo;
    t->v.ended_ms = loop_wall_ms(t->peer->loop);
    t->ended_ms = loop_now_ms(t->peer->loop);
    peer_say(t->peer, t, "has ended");
}

/* ---- the scheduler ---- */
static unsigned bits(uint32_t v)
{
    unsigned n = 0;

    for (; v; v &= v - 1)
        n++;
    return n;
}
/* First fit, of so many devices for each rank; those of one rank on one node. */
static bool place(struct thing *t)
{
    struct scripted_peer *p = t->peer;
    uint32_t taken[PEER_NODES] = {0}, all = 0;
    unsigned first = PEER_NODES;

    for (int64_t rank = 0; rank < t->v.ranks; rank++) {
        unsigned n = 0, left = (unsigned)t->v.gpus;
        while (n < PEER_NODES && (!p->nodes[n].linked || p->nodes[n].notice_until_ms ||
                                  PEER_GPUS - bits(p->nodes[n].used | taken[n]) < t->v.gpus))
            n++;
        if (n == PEER_NODES)
            return false;
        for (unsigned g = 0; g < PEER_GPUS && left; g++)
            if (!((p->nodes[n].used | taken[n]) >> g & 1)) {
                taken[n] |= 1u << g;
                left--;
            }
        first = first == PEER_NODES ? n : first;
    }
    for (unsigned n = 0; n < PEER_NODES; n++) {
        p->nodes[n].used |= taken[n];
        all |= taken[n] << (n * PEER_GPUS);
    }
    t->v.devices = all;
    t->v.node = first;
    return true;
}
static struct peer_node *node_of(const struct thing *t)
{
    return &t->peer->nodes[t->v.node];
}
static void go_away(struct thing *t, uint64_t now)
{
    if (t->v.phase == THING_WAITS || (t->v.phase == THING_STARTS && node_of(t)->linked)) {
        over(t, "Cancelled");
    } else if (t->program && node_of(t)->linked) {
        if (!t->kill_ms) {
            t->kill_ms = now + t->grace_ms;
            t->peer->programs->signal(t->program, SIGTERM);
        } else if (now >= t->kill_ms) {
            t->peer->programs->kill(t->program);
        }
    }
}
/* What its node tells the API, which is late, and nothing while they do not hear each other. */
static void node_tells(struct thing *t, uint64_t now)
{
    const struct peer_node *n = node_of(t);

    if (!n->linked) {
        if (now - n->unlinked_ms >= DOUBT_MS && t->v.phase != THING_DOUBT) {
            t->v.phase = THING_DOUBT;
            str_copy(t->v.why, sizeof t->v.why, "NodeLost");
            peer_changed(t);
        }
        if (now - n->unlinked_ms >= EVICT_MS && t->peer->kind == LIKE_KUBERNETES && !t->v.going) {
            t->v.going = true;
            t->grace_ms = 1000;
        }
        return;
    }
    if (t->v.phase == THING_DOUBT) {
        t->v.phase = THING_RUNS;
        peer_changed(t);
    }
    if (!t->program && t->starts && now >= t->ended_ms + 300)
        over(t, NULL);
}
static void waiting(struct thing *t, uint64_t now, unsigned *place_no)
{
    t->v.position = ++*place_no;
    t->v.estimate_ms = loop_wall_ms(t->peer->loop) + 5000;
    if (now < t->next_ms || !place(t)) {
        t->v.waited |= now >= t->next_ms || t->peer->queue_ms;
        str_copy(t->v.why, sizeof t->v.why,
                 t->peer->kind == LIKE_SLURM ? "Resources" : "Unschedulable");
        return;
    }
    *t->v.why = '\0';
    t->v.phase = THING_STARTS;
    t->next_ms = now + 100 + t->peer->below(t->peer->arg, 1200);
    peer_changed(t);
}
static void tick_thing(struct thing *t, uint64_t now, unsigned *place_no)
{
    if (t->gone && !t->program)
        return;
    if (t->gone) { /* nobody but its kubelet knows that it lives, and ends it */
        if (node_of(t)->linked && now >= t->over_ms + 2000)
            t->peer->programs->kill(t->program);
        return;
    }
    if (t->back_ms) {
        if (now < t->back_ms)
            return;
        t->back_ms = 0;
        t->v.phase = THING_RUNS;
        t->v.started = true;
        peer_changed(t);
    }
    if (t->v.phase == THING_OVER && t->v.proved)
        return;
    if (t->v.going)
        go_away(t, now);
    if (t->v.phase == THING_WAITS)
        waiting(t, now, place_no);
    else if (t->v.phase == THING_STARTS && now >= t->next_ms && node_of(t)->linked)
        begin(t);
    else if (t->starts && t->v.phase != THING_STARTS)
        node_tells(t, now);
    if (t->program)
        t->peer->programs->report(t->program, &t->v.report);
}
/* What nobody holds goes, and its end with it. */
static void forget(struct thing *t, uint64_t now)
{
    struct scripted_peer *p = t->peer;

    if (t->gone || t->forgotten || t->v.phase != THING_OVER || !t->v.proved || t->v.tombstone)
        return;
    if (p->kind == LIKE_KUBERNETES ? !t->holds && now >= t->over_ms + 200
                                   : now >= t->over_ms + p->forget_ms) {
        t->gone = t->forgotten = true;
        peer_changed(t);
    }
}
static void tick(void *arg)
{
    struct scripted_peer *p = arg;
    uint64_t now = loop_now_ms(p->loop);
    unsigned place_no = 0;

    timer_start(&p->tick, TICK_MS);
    for (unsigned i = 0; i < PEER_NODES; i++)
        if (p->nodes[i].notice_until_ms && p->nodes[i].linked &&
            now >= p->nodes[i].notice_until_ms)
            peer_node_power(p, i);
    list_for_each (it, &p->things) {
        struct thing *t = container_of(it, struct thing, link);
        if (!*t->v.cluster)
            continue;
        tick_thing(t, now, &place_no);
        forget(t, now);
    }
}

/* ---- troubles ---- */
void peer_node_link(struct scripted_peer *p, unsigned node, bool linked)
{
    if (p->nodes[node].linked == linked)
        return;
    p->nodes[node].linked = linked;
    p->nodes[node].unlinked_ms = loop_now_ms(p->loop);
    if (linked)
        p->nodes[node].notice_until_ms = 0;
}
void peer_node_power(struct scripted_peer *p, unsigned node)
{
    list_for_each (it, &p->things) {
        struct thing *t = container_of(it, struct thing, link);
        if (t->program && t->v.node == node)
            p->programs->kill(t->program);
    }
    peer_node_link(p, node, false);
}
void peer_notice(struct scripted_peer *p, unsigned node, uint64_t in_ms)
{
    if (p->nodes[node].linked && !p->nodes[node].notice_until_ms)
        p->nodes[node].notice_until_ms = loop_now_ms(p->loop) + in_ms;
}
void peer_heal(struct scripted_peer *p)
{
    for (unsigned i = 0; i < PEER_NODES; i++)
        peer_node_link(p, i, true);
    p->chaos = (struct peer_chaos){0};
    p->silent = false;
    p->accounting_ms = 0;
    p->refusals = 0;
    p->queue_ms = 0;
    p->order_ms = 0;
}
static const char *const troubles[] = {
#define T(name, text) text,
    PEER_TROUBLES(T)
#undef T
};
const char *peer_trouble_text(enum peer_trouble w)
{
    return troubles[w];
}
static void object_gone(struct thing *t)
{
    t->gone = true;
    t->over_ms = loop_now_ms(t->peer->loop);
    over(t, "Deleted");
}
static bool requeue(struct thing *t)
{
    t->peer->programs->kill(t->program);
    if (t->requeues) {
        over(t, "Requeued");
        t->v.phase = THING_WAITS;
        t->v.proved = false;
        t->ended_ms = 0;
        t->next_ms = 0;
    }
    return true;
}
bool peer_trouble(struct scripted_peer *p, const struct run_key *k, enum peer_trouble what)
{
    struct thing *t = peer_thing(p, k);
    uint64_t now = loop_now_ms(p->loop);
    bool kube = p->kind == LIKE_KUBERNETES, slurm = p->kind == LIKE_SLURM;

    if (!t || !t->program || t->gone)
        return false;
    switch (what) {
    case TROUBLE_NODE_LOST:
    case TROUBLE_POWER:
        if (what == TROUBLE_POWER)
            peer_node_power(p, t->v.node);
        else
            peer_node_link(p, t->v.node, false);
        return true;
    case TROUBLE_FORCED:
    case TROUBLE_FORCED_LOST:
        if (!kube)
            return false;
        if (what == TROUBLE_FORCED_LOST)
            peer_node_link(p, t->v.node, false);
        object_gone(t);
        return true;
    case TROUBLE_EVICTED:
        t->v.going = true;
        t->grace_ms = 1000;
        str_copy(t->v.why, sizeof t->v.why, "Evicted");
        return true;
    case TROUBLE_BACKWARDS:
        if (!slurm)
            return false;
        t->v.phase = THING_WAITS;
        t->v.started = false;
        t->back_ms = now + BACK_MS;
        peer_changed(t);
        return true;
    case TROUBLE_REQUEUED:
        return slurm && requeue(t);
    case TROUBLE_FORGOTTEN:
        if (kube)
            return false;
        p->programs->kill(t->program);
        over(t, NULL);
        t->gone = t->forgotten = true;
        return true;
    default:
        p->accounting_ms = slurm ? now + 8000 : 0;
        return slurm;
    }
}

/* ---- from outside ---- */
struct thing *peer_thing(struct scripted_peer *p, const struct run_key *k)
{
    struct thing *found = NULL;

    list_for_each (it, &p->things) {
        struct thing *t = container_of(it, struct thing, link);
        if (same(&t->v.key, k) && *t->v.cluster && !t->v.tombstone && (!found || t->starts))
            found = t;
    }
    return found;
}
unsigned peer_starts(const struct scripted_peer *p, const struct run_key *k)
{
    unsigned n = 0;

    list_for_each (it, &p->things)
        if (same(&container_of(it, struct thing, link)->v.key, k))
            n += container_of(it, struct thing, link)->starts;
    return n;
}
bool peer_alive(const struct scripted_peer *p, const struct run_key *k)
{
    list_for_each (it, &p->things)
        if (same(&container_of(it, struct thing, link)->v.key, k) &&
            container_of(it, struct thing, link)->program)
            return true;
    return false;
}
unsigned peer_strangers(const struct scripted_peer *p)
{
    unsigned n = 0;

    list_for_each (it, &p->things) {
        const struct thing *t = container_of(it, struct thing, link);
        n += !*t->v.cluster && !t->gone && !t->v.going;
    }
    return n;
}
unsigned peer_left(const struct scripted_peer *p, const char *cluster)
{
    unsigned n = 0;

    list_for_each (it, &p->things) {
        const struct thing *t = container_of(it, struct thing, link);
        n += *t->v.cluster && (!cluster || !strcmp(cluster, t->v.cluster)) &&
             (t->program || (!t->gone && (t->v.phase != THING_OVER || t->holds)));
    }
    return n;
}

void peer_init(struct scripted_peer *p, enum scripted_kind kind, const char *name, struct loop *l)
{
    *p = (struct scripted_peer){.kind = kind, .loop = l, .programs = &scripted_plain_programs};
    str_copy(p->name, sizeof p->name, name);
    list_init(&p->things);
    list_init(&p->records);
    list_init(&p->pending);
    p->forget_ms = 60000;
    p->lag_ms = kind == LIKE_CLOUD ? 3000 : 0;
    for (unsigned i = 0; i < PEER_NODES; i++)
        p->nodes[i].linked = true;
    timer_init(&p->tick, l, tick, p);
    timer_start(&p->tick, TICK_MS);
}
