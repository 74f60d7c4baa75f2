/* Gangs whose ranks are with several agents of one Target. Each agent has some of the ranks under
 * the one key, and knows nothing of the others'; here is who looks after the whole.
 *
 *   submit   the agent of rank 0 first: it picks the port at which all meet. What it refuses has
 *            had no effect. Then the others, at once. Where one of these does not take its part,
 *            all of it is stopped, and the outcome is unknown: find() tells what became of it. Of
 *            one that saves, all are asked first whether its store is one to all of them: else no
 *            checkpoint of the whole would ever come to be.
 *   news     of one part is none of the whole: all are asked, and what is true of all is told.
 *   the end  a part that failed, or that never was, takes the others with it.
 *
 * It must never ask about a key while its order is on the way to a part: that part would promise to
 * refuse it. And nothing in here says that a run has ended while one of its parts may live. */
#include "api/base/log.h"
#include "connectors/agent/fleet/fleet_internal.h"

#include <stdio.h>
#include <string.h>

#define STOP_ROOM_MS 20000 /* beside the grace, for the answer to a stop */
#define MEETS                                                                                      \
    "its ranks would meet at the machine of agent %.63s, and spec.agents of target %.200s has no " \
    "address of that: set it"
#define MEETING_MS 5000 /* for each round: the order has yet to be answered after it */

/* A run of which there is something to do. What is true of it, its agents know. */
struct fleet_gang {
    struct list link;
    struct fleet *fleet;
    struct run_key key;
    uint64_t grace_ms;
    bool submitting, looking, again, stopping;
    bool broken; /* some part was not taken: it is stopped, and looked at until all of it is over */
    char why[256];
    /* while the first part's answer is awaited: the order, and who gets some of it */
    struct arena *mem;
    struct run_order order;
    struct run_span span;
    uint32_t parts, first_part;
    struct observation first;
    char meeting[97]; /* name of the file by which they see that their store is one */
};

static void gang_look(struct fleet_gang *g);

static struct fleet_gang *gang_find(struct fleet *f, const struct run_key *k)
{
    list_for_each (it, &f->gangs) {
        struct fleet_gang *g = container_of(it, struct fleet_gang, link);
        if (run_key_same(&g->key, k))
            return g;
    }
    return NULL;
}

static struct fleet_gang *gang_of(struct fleet *f, const struct run_key *k, uint64_t grace_ms)
{
    struct fleet_gang *g = gang_find(f, k);

    if (g)
        return g;
    g = mem_new(struct fleet_gang);
    g->fleet = f;
    g->key = *k;
    g->grace_ms = grace_ms;
    list_push(&f->gangs, &g->link);
    return g;
}

static void order_drop(struct fleet_gang *g)
{
    if (g->mem)
        order_wipe(&g->order);
    g->mem = arena_destroy(g->mem);
}

static void gang_free(struct fleet_gang *g)
{
    order_drop(g);
    list_remove(&g->link);
    mem_free(g);
}

static void gang_settle(struct fleet_gang *g)
{
    if (!g->submitting && !g->looking && !g->stopping && !g->broken)
        gang_free(g);
}

/* ---- stopping ---- */
static void stop_end(struct joint *j)
{
    struct fleet_gang *g = j->gang;
    bool all = true;

    for_each_answer(v, j)
        all = all && v->out == OUT_DONE;
    joint_finish(j, OUT_DONE, NULL, NULL);
    g->stopping = false;
    if (all)
        gang_look(g);
    else /* looked at again with the next news of it, and by and by */
        gang_settle(g);
}

static void gang_stop(struct fleet_gang *g, uint32_t parts)
{
    struct fleet *f = g->fleet;

    if (g->stopping || f->closing || !parts)
        return;
    g->stopping = true;
    struct joint *j = joint_begin(f, parts, NULL, stop_end);
    j->gang = g;
    for_each_answer(v, j)
    {
        v->call.deadline_ms = loop_now_ms(f->base.env.loop) + g->grace_ms + STOP_ROOM_MS;
        v->part->driver->ops->stop(v->part->driver, &g->key, g->grace_ms, &v->call);
    }
}

static void gang_break(struct fleet_gang *g, const struct joint_answer *v)
{
    char key[RUN_KEY_MAX];

    g->broken = true;
    (void)snprintf(g->why, sizeof g->why, "agent %.63s did not take its part of the gang: %.170s",
                   v->part->name,
                   v->err.code             ? v->err.text
                   : v->has && *v->seen.message ? v->seen.message
                                           : "it has ended there already");
    run_key_print(&g->key, key);
    log_event(LOG_WARN, "agent.gang_broken",
              LOG_FIELDS({"target", log_str(g->fleet->base.target)}, {"key", log_str(key)},
                         {"why", log_str(g->why)}));
}

/* ---- what is true of it ---- */
void gang_judge(struct joint *j, struct observation *whole)
{
    uint32_t live = 0;
    bool fails = false;

    if (!j->sure || j->n < 2)
        return;
    struct fleet_gang *g = gang_find(j->fleet, &j->key);
    for_each_answer(v, j)
    {
        live |= joint_is_live(v) ? 1u << v->part->at : 0;
        fails = fails || joint_is_failure(v);
    }
    if (g && g->broken && whole->state == RUN_ENDED)
        str_copy(whole->message, sizeof whole->message, g->why);
    if (!fails || !live || (g && g->submitting))
        return;
    gang_stop(g ? g : gang_of(j->fleet, &j->key, j->grace_ms), live);
}

static void look_end(struct joint *j)
{
    struct fleet_gang *g = j->gang;
    struct fleet *f = g->fleet;
    const struct connector_env *e = &f->base.env;
    struct observation o = joint_whole(j);
    bool sure = j->sure, over = o.state == RUN_ENDED || o.state == RUN_ABSENT;
    if (!f->closing)
        gang_judge(j, &o);
    joint_finish(j, OUT_DONE, NULL, NULL);
    g->looking = false;
    if (over || !sure)
        g->broken = false;
    if (sure && !f->closing && o.state != RUN_UNKNOWN && e->events->observed)
        e->events->observed(e->arg, &o);
    if (g->again && !f->closing)
        gang_look(g);
    else
        gang_settle(g);
}

/* Asks all parts. One that knows nothing of it promises to refuse it from then on. */
static void gang_look(struct fleet_gang *g)
{
    struct fleet *f = g->fleet;
    struct fleet_where at;

    g->again = g->looking || g->submitting;
    if (g->again || f->closing)
        return;
    bool sure = fleet_where(f, &g->key, &at);
    g->looking = true;
    struct joint *j = joint_begin(f, at.parts, NULL, look_end);
    joint_about(j, &g->key, sure, &at);
    j->gang = g;
    for_each_answer(v, j)
        v->part->driver->ops->find(v->part->driver, &g->key, &v->call);
}

bool gang_observed(struct fleet *f, const struct run_key *k)
{
    struct fleet_where at;

    if (!fleet_where(f, k, &at) || __builtin_popcount(at.parts) < 2)
        return false;
    gang_look(gang_of(f, k, at.grace_ms));
    return true;
}

void gangs_look(struct fleet *f)
{
    list_for_each_safe (it, tmp, &f->gangs) {
        struct fleet_gang *g = container_of(it, struct fleet_gang, link);
        if (g->broken && !g->looking && !g->stopping)
            gang_look(g);
    }
}

void gangs_drop(struct fleet *f)
{
    while (!list_empty(&f->gangs))
        gang_free(container_of(f->gangs.next, struct fleet_gang, link));
}

/* ---- submitting ---- */
static void part_submit(struct fleet_gang *g, struct joint_answer *v)
{
    const struct placement *p = g->order.placement;
    struct run_order o = g->order;
    struct placement own = *p;
    AUTO_ARENA a = arena_create(0);

    own.assignments = arena_array(a, struct assignment, p->n_assignments);
    own.n_assignments = 0;
    for (uint32_t i = 0; i < p->n_assignments; i++)
        if (fleet_part_of(g->fleet, p->assignments[i].node) == v->part)
            own.assignments[own.n_assignments++] = p->assignments[i];
    o.placement = &own;
    v->part->driver->ops->submit(v->part->driver, &o, &v->call);
}

/* The answer to who asked. why: what made it other than done. */
static void submitted(struct joint *j, enum outcome out, const struct observation *seen,
                      const struct joint_answer *why)
{
    struct fleet_gang *g = j->gang;
    struct err err = why ? why->err : (struct err){0};

    order_drop(g);
    g->submitting = false;
    if (out == OUT_UNKNOWN && why && !g->fleet->closing) {
        gang_break(g, why);
        gang_stop(g, g->parts);
    }
    joint_finish(j, out, seen, err.code ? &err : NULL);
    if (g->again)
        gang_look(g); /* of what was told meanwhile */
    else
        gang_settle(g);
}

static void rest_end(struct joint *j)
{
    struct observation whole = j->gang->first;

    for_each_answer(v, j)
    {
        if (!joint_is_live(v)) {
            submitted(j, OUT_UNKNOWN, NULL, v);
            return;
        }
        joint_merge(&whole, &v->seen);
    }
    submitted(j, OUT_DONE, &whole, NULL);
}

static void first_end(struct joint *j)
{
    const struct joint_answer *v = j->v;
    struct fleet_gang *g = j->gang;

    if (v->out == OUT_REJECTED) {
        submitted(j, OUT_REJECTED, v->has ? &v->seen : NULL, v);
        return;
    }
    if (!joint_is_live(v) || !v->call.port || j->fleet->closing) {
        submitted(j, OUT_UNKNOWN, NULL, v);
        return;
    }
    g->first = v->seen;
    g->span.port = v->call.port;
    struct joint *rest = joint_begin(j->fleet, g->parts & ~(1u << v->part->at), j->call, rest_end);
    rest->gang = g;
    rest->key = g->key;
    j->call = NULL;
    joint_finish(j, OUT_DONE, NULL, NULL);
    for_each_answer(r, rest)
        part_submit(g, r);
    order_drop(g);
}

static void first_submit(struct fleet_gang *g, struct call *call)
{
    struct joint *j = joint_begin(g->fleet, g->first_part, call, first_end);

    j->gang = g;
    j->key = g->key;
    part_submit(g, j->v);
}

/* ---- is its store one to all of them? ---- */
static struct joint *meeting_ask(struct fleet_gang *g, uint32_t parts, bool leaves,
                                 struct call *call, joint_end end)
{
    struct joint *j = joint_begin(g->fleet, parts, call, end);
    struct run_order o = g->order;

    o.meeting = g->meeting;
    o.leaves = leaves;
    j->gang = g;
    for_each_answer(v, j)
    {
        uint64_t by_ms = loop_now_ms(g->fleet->base.env.loop) + MEETING_MS;
        v->call.deadline_ms = by_ms < v->call.deadline_ms ? by_ms : v->call.deadline_ms;
        v->part->driver->ops->stage(v->part->driver, &o, &v->call);
    }
    return j;
}

/* Nobody has been ordered anything: it is refused, whatever is not known. */
static bool meeting_fails(struct joint *j)
{
    struct joint_answer *bad = NULL;
    char why[300];

    for_each_answer(v, j)
        if (v->out != OUT_DONE && (!bad || v->out == OUT_REJECTED))
            bad = v;
    if (!bad && !j->fleet->closing)
        return false;
    if (bad && bad->out == OUT_UNKNOWN) {
        str_cut(why, sizeof why, bad->err.text);
        (void)err_field(&bad->err, E_BUSY, "spec.checkpoint.store",
                        "agent %.63s could not tell in time whether it has %.200s, where all of "
                        "its gang is to save: %.150s",
                        bad->part->name, j->gang->order.checkpoint_dir, why);
        bad->call.refused = refusal_of_code(E_BUSY);
    }
    submitted(j, j->fleet->closing ? OUT_UNKNOWN : OUT_REJECTED, NULL, bad);
    return true;
}

/* The order goes on with its call; NULL: it has failed, and who ordered was told. */
static struct call *meeting_over(struct joint *j)
{
    struct call *call = j->call;

    if (meeting_fails(j))
        return NULL;
    j->call = NULL;
    joint_finish(j, OUT_DONE, NULL, NULL);
    return call;
}

static void meeting_seen(struct joint *j)
{
    struct fleet_gang *g = j->gang;
    struct call *call = meeting_over(j);

    if (call)
        first_submit(g, call);
}

static void meeting_left(struct joint *j)
{
    struct fleet_gang *g = j->gang;
    struct call *call = meeting_over(j);

    if (call)
        (void)meeting_ask(g, g->parts & ~g->first_part, false, call, meeting_seen);
}

/* A name that no other order has had: what is found is what was left for this one. */
static void meeting_begin(struct fleet_gang *g, struct call *call)
{
    char key[RUN_KEY_MAX];

    run_key_print(&g->key, key);
    (void)snprintf(g->meeting, sizeof g->meeting, "%.70s.%llx", key,
                   (unsigned long long)g->span.asked_ms);
    (void)meeting_ask(g, g->first_part, true, call, meeting_left);
}

/* Who gets rank 0, or NULL: it cannot be asked for as it is, and the call was refused. */
static struct fleet_part *first_of(struct fleet *f, const struct run_order *o, uint32_t parts,
                                   struct call *call)
{
    const struct placement *p = o->placement;
    struct fleet_part *first = NULL;
    char why[512];

    for (uint32_t i = 0; i < p->n_assignments; i++)
        if (p->assignments[i].rank == 0)
            first = fleet_part_of(f, p->assignments[i].node);
    for (unsigned i = 0; i < f->n_parts; i++) {
        const struct fleet_part *x = f->parts[i];
        if (!(parts >> i & 1) || (x->reached && *x->state))
            continue;
        (void)snprintf(why, sizeof why, "agent %.63s of target %.200s is away: %.200s", x->name,
                       f->base.target, x->why);
        joint_refuse(f, call, E_UNAVAIL, "", why);
        return NULL;
    }
    if (*o->checkpoint_dir && !gang_may_save(f, o, call))
        return NULL;
    if (first && *first->address)
        return first;
    (void)snprintf(why, sizeof why, MEETS, first ? first->name : "?", f->base.target);
    joint_refuse(f, call, E_INVALID, "spec.agents[].address", why);
    return NULL;
}

static void span_make(struct fleet_gang *g, const struct fleet_part *first)
{
    struct fleet *f = g->fleet;
    const char **peers = arena_array(g->mem, const char *, f->n_parts);

    g->span = (struct run_span){.world = g->order.placement->n_assignments,
                                .address = arena_strdup(g->mem, first->address),
                                .peers = peers,
                                .asked_ms = loop_now_ms(f->base.env.loop)};
    for (unsigned i = 0; i < f->n_parts; i++)
        if (g->parts >> i & 1)
            peers[g->span.n_peers++] = arena_strdup(g->mem, f->parts[i]->state);
}

void gang_submit(struct fleet *f, const struct run_order *o, uint32_t parts, struct call *call)
{
    struct fleet_gang *g = gang_find(f, &o->key);
    struct fleet_part *first;

    if (g && (g->broken || g->submitting || g->stopping)) { /* it is being stopped */
        joint_tell(f, call, OUT_UNKNOWN, E_CONFLICT, "", "it is being stopped: a part is missing");
        return;
    }
    first = first_of(f, o, parts, call);
    if (!first)
        return;
    g = gang_of(f, &o->key, o->grace_ms);
    g->submitting = true;
    g->parts = parts;
    g->first_part = 1u << first->at;
    g->grace_ms = o->grace_ms;
    g->mem = arena_create(0);
    order_copy(g->mem, o, &g->order);
    g->order.span = &g->span;
    span_make(g, first);
    if (*g->order.checkpoint_dir)
        meeting_begin(g, call);
    else
        first_submit(g, call);
}
