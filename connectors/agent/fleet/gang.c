/* Gangs whose ranks are with several agents of one Target. Each agent has some of the ranks under
 * the one key, and knows nothing of the others'; here is who looks after the whole.
 *
 *   submit   the agent of rank 0 first: it picks the port at which all meet. What it refuses has
 *            had no effect. Then the others, at once. Where one of these does not take its part,
 *            all of it is stopped, and the outcome is unknown: find() tells what became of it.
 *   news     of one part is none of the whole: all are asked, and what is true of all is told.
 *   the end  a part that failed, or that never was, takes the others with it.
 *
 * It must never ask about a key while its order is on the way to a part: that part would promise to
 * refuse it. And nothing in here says that a run has ended while one of its parts may live. */
#include "api/base/log.h"
#include "connectors/agent/fleet/fleet_internal.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define STOP_ROOM_MS 20000 /* beside the grace, for the answer to a stop */
#define MEETS                                                                                      \
    "its ranks would meet at the machine of agent %.63s, and spec.agents of target %.200s has no " \
    "address of that: set it"
#define SAVES                                                                                      \
    "its workers would be on the machines of several agents, and a gang that saves checkpoints "   \
    "runs on one: ask for fewer workers, or for a target whose nodes have one agent"

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
    uint32_t parts;
    struct observation first;
};

static void gang_look(struct fleet_gang *g);

static bool key_is(const struct run_key *a, const struct run_key *b)
{
    return a->epoch == b->epoch && a->try_ == b->try_ && strcmp(a->uid, b->uid) == 0;
}

static struct fleet_gang *gang_find(struct fleet *f, const struct run_key *k)
{
    list_for_each (it, &f->gangs) {
        struct fleet_gang *g = container_of(it, struct fleet_gang, link);
        if (key_is(&g->key, k))
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
    for (size_t i = 0; g->mem && g->order.env && g->order.env[i]; i++)
        OPENSSL_cleanse((char *)(uintptr_t)g->order.env[i], strlen(g->order.env[i]));
    g->mem = arena_destroy(g->mem);
    g->order = (struct run_order){.argv = NULL};
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
static const char *const *texts_copy(struct arena *a, const char *const *v)
{
    size_t n = 0;

    while (v && v[n])
        n++;
    const char **ret = arena_array(a, const char *, n + 1);
    for (size_t i = 0; i < n; i++)
        ret[i] = arena_strdup(a, v[i]);
    return ret;
}

static const char *text_copy(struct arena *a, const char *s)
{
    return arena_strdup(a, s ? s : "");
}

static struct placement *placement_copy(struct arena *a, const struct placement *p)
{
    struct placement *ret = arena_memdup(a, p, sizeof *p);

    ret->assignments = arena_array(a, struct assignment, p->n_assignments);
    for (uint32_t i = 0; i < p->n_assignments; i++) {
        struct assignment *x = &ret->assignments[i];
        *x = p->assignments[i];
        x->node = arena_strdup(a, x->node);
        x->gpus = arena_memdup(a, x->gpus, x->n_gpus * sizeof *x->gpus);
    }
    return ret;
}

/* What drivers of agents read of it: it is needed again once the first part has answered. */
static void order_keep(struct fleet_gang *g, const struct run_order *o)
{
    struct arena *a = g->mem = arena_create(0);
    struct run_order *k = &g->order;

    *k = *o;
    k->ns = text_copy(a, o->ns);
    k->name = text_copy(a, o->name);
    k->principal = text_copy(a, o->principal);
    k->image = text_copy(a, o->image);
    k->script = text_copy(a, o->script);
    k->cwd = text_copy(a, o->cwd);
    k->signal = text_copy(a, o->signal);
    k->save_signal = text_copy(a, o->save_signal);
    k->document = text_copy(a, o->document);
    k->checkpoint_dir = text_copy(a, o->checkpoint_dir);
    k->resume_path = text_copy(a, o->resume_path);
    k->resume_digest = text_copy(a, o->resume_digest);
    k->argv = texts_copy(a, o->argv);
    k->env = texts_copy(a, o->env);
    k->placement = placement_copy(a, o->placement);
    k->span = &g->span;
}

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
    if (out == OUT_UNKNOWN && !g->fleet->closing) {
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

void gang_saves_refuse(struct fleet *f, struct call *call)
{
    joint_refuse(f, call, E_NOTIMPL, "spec.checkpoint", SAVES);
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
    if (*o->checkpoint_dir) {
        gang_saves_refuse(f, call);
        return NULL;
    }
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
                                .address = text_copy(g->mem, first->address),
                                .peers = peers,
                                .asked_ms = loop_now_ms(f->base.env.loop)};
    for (unsigned i = 0; i < f->n_parts; i++)
        if (g->parts >> i & 1)
            peers[g->span.n_peers++] = text_copy(g->mem, f->parts[i]->state);
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
    g->grace_ms = o->grace_ms;
    order_keep(g, o);
    span_make(g, first);
    struct joint *j = joint_begin(f, 1u << first->at, call, first_end);
    j->gang = g;
    j->key = g->key;
    part_submit(g, j->v);
}
