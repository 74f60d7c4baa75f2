/* The connector of a Target that lists several agents: one driver of agents for each of them, and
 * what makes one target of them. Two things must never happen here: that an agent which is away
 * counts as one that knows of nothing, and that one agent's word is taken for what another one
 * runs.
 *
 * A part is known to its driver, its agent and its certificate as "TARGET.PART", and its nodes are
 * "TARGET.PART.NODE": where a worker is, and so who speaks for it, follows from the placement in
 * the log alone. */
#include "connectors/agent/fleet/fleet_internal.h"

#include "api/base/hash.h"
#include "api/base/log.h"

#include <stdio.h>
#include <string.h>

struct fleet *fleet_of(struct connector *c)
{
    PRE(c->ops == &connector_fleet_ops);
    return container_of(c, struct fleet, base);
}

/* ---- who has what ---- */
struct fleet_part *fleet_part_of(const struct fleet *f, const char *node)
{
    for (unsigned i = 0; i < f->n_parts; i++)
        if (strncmp(node, f->parts[i]->prefix, strlen(f->parts[i]->prefix)) == 0)
            return f->parts[i];
    return NULL;
}

uint32_t fleet_all(const struct fleet *f)
{
    return (uint32_t)((1ull << f->n_parts) - 1);
}

uint32_t fleet_reached(const struct fleet *f)
{
    uint32_t mask = 0;

    for (unsigned i = 0; i < f->n_parts; i++)
        mask |= (uint32_t)f->parts[i]->reached << i;
    return mask;
}

uint32_t fleet_placed(const struct fleet *f, const struct placement *p)
{
    uint32_t mask = 0;

    for (uint32_t i = 0; i < p->n_assignments; i++) {
        const struct fleet_part *part = fleet_part_of(f, p->assignments[i].node);
        if (!part)
            return 0;
        mask |= 1u << part->at;
    }
    return mask;
}

bool fleet_where(const struct fleet *f, const struct run_key *k, struct fleet_where *ret)
{
    const struct connector_env *e = &f->base.env;
    struct run_where at;
    uint32_t mask = 0;
    AUTO_ARENA a = arena_create(0);

    *ret = (struct fleet_where){.parts = fleet_all(f)};
    if (!e->where || !e->where(e->arg, k, a, &at))
        return false;
    for (uint32_t i = 0; i < at.n; i++) {
        const struct fleet_part *part = fleet_part_of(f, at.nodes[i]);
        if (!part)
            return false;
        mask |= 1u << part->at;
    }
    if (!mask)
        return false;
    *ret = (struct fleet_where){.parts = mask, .grace_ms = at.grace_ms, .ran = at.ran};
    return true;
}

/* One: its state folder. Several: a digest of theirs, in the order of the list. */
static void fleet_agents(const struct connector *c, const struct placement *p, char ret[64])
{
    const struct fleet *f = fleet_of((struct connector *)(uintptr_t)c);
    uint32_t mask = fleet_placed(f, p);
    uint64_t hash = HASH_START, more = HASH_START;

    ret[0] = '\0';
    for (unsigned i = 0; i < f->n_parts; i++) {
        const struct fleet_part *part = f->parts[i];
        if (!(mask >> i & 1))
            continue;
        if (!*part->state) {
            ret[0] = '\0';
            return;
        }
        hash = hash_more(hash, part->state, strlen(part->state) + 1);
        more = hash_more(more ^ hash, part->name, strlen(part->name) + 1);
        str_copy(ret, 64, part->state);
    }
    if (mask & (mask - 1))
        (void)snprintf(ret, 64, "several-%016llx%016llx", (unsigned long long)hash,
                       (unsigned long long)more);
}

/* ---- what parts tell ---- */
static void part_observed(void *arg, const struct observation *o)
{
    struct fleet *f = ((struct fleet_part *)arg)->fleet;
    const struct connector_env *e = &f->base.env;

    if (!gang_observed(f, &o->key)) {
        if (e->events->observed)
            e->events->observed(e->arg, o);
    } else if (o->checkpoint.present && e->events->saved) {
        e->events->saved(e->arg, &o->key, &o->checkpoint); /* of all of it, whoever is away */
    }
}

static void part_workers(void *arg, const struct run_workers *w)
{
    const struct connector_env *e = &((struct fleet_part *)arg)->fleet->base.env;

    if (e->events->workers)
        e->events->workers(e->arg, w);
}

static void part_heard(void *arg, const char *cluster, uint64_t rv, int64_t time_ms)
{
    const struct connector_env *e = &((struct fleet_part *)arg)->fleet->base.env;

    if (e->events->heard)
        e->events->heard(e->arg, cluster, rv, time_ms);
}

static void part_agent(void *arg, const char *state_id)
{
    struct fleet_part *p = arg;

    str_copy(p->state, sizeof p->state, state_id);
}

static void part_rival(void *arg, const char *why)
{
    struct fleet_part *p = arg;
    const struct connector_env *e = &p->fleet->base.env;
    char text[512];

    (void)snprintf(text, sizeof text, "%.63s: %.400s", p->name, why);
    if (e->events->rival)
        e->events->rival(e->arg, text);
}

/* "2 of 3 agents are in reach, not b" */
static void reach_print(const struct fleet *f, char *out, size_t n)
{
    uint32_t mask = fleet_reached(f);
    const char *before = ", not ";
    AUTO_BUF b;

    buf_init(&b, 256);
    buf_printf(&b, "%d of %u agents are in reach", __builtin_popcount(mask), f->n_parts);
    for (unsigned i = 0; i < f->n_parts && b.n < 150; i++) {
        if (mask >> i & 1)
            continue;
        buf_printf(&b, "%s%s", before, f->parts[i]->name);
        before = ", ";
    }
    buf_char(&b, '\0');
    str_cut(out, n, b.p);
}

/* Whatever changes of them is a new session of the whole: all runs are looked for again, so that
 * those of an agent which is away become unknown, and those of one that is back are found. */
static void part_reach(void *arg, bool reachable, const char *session, const char *why)
{
    struct fleet_part *p = arg;
    struct fleet *f = p->fleet;
    const struct connector_env *e = &f->base.env;
    char text[256];

    p->reached = reachable;
    p->came |= reachable;
    p->asked = false;
    str_cut(p->why, sizeof p->why, why ? why : "");
    f->based = false;
    if (reachable)
        joints_stale(f);
    if (e->events->part)
        e->events->part(e->arg, p->name, reachable, p->state, p->why);
    (void)snprintf(f->id, sizeof f->id, "%llu.%.40s", (unsigned long long)++f->sessions,
                   session ? session : "");
    bool any = fleet_reached(f) != 0;
    reach_print(f, text, sizeof text);
    if (e->events->reach)
        e->events->reach(e->arg, any, f->id, any ? text : p->why);
    if (reachable && p->reached)
        fleet_nodes_came(p);
    timer_start(&f->look, reachable ? FLEET_LOOK_MS : 0);
}

static const struct connector_events part_events = {.nodes = fleet_part_nodes,
                                                    .reach = part_reach,
                                                    .notices = fleet_part_notices,
                                                    .observed = part_observed,
                                                    .workers = part_workers,
                                                    .agent = part_agent,
                                                    .heard = part_heard,
                                                    .rival = part_rival};

static void fleet_look(void *arg)
{
    struct fleet *f = arg;

    timer_start(&f->look, FLEET_LOOK_MS);
    fleet_nodes_look(f);
    gangs_look(f);
    if (loop_now_ms(f->base.env.loop) - f->made_ms < FLEET_LOOK_MS || !f->base.env.events->part)
        return;
    for (unsigned i = 0; i < f->n_parts; i++) {
        struct fleet_part *p = f->parts[i];
        if (p->reached || p->came)
            continue;
        f->base.env.events->part(f->base.env.arg, p->name, false, p->state,
                                 "not yet in contact with this leader");
    }
}

/* ---- what parts ask ---- */
static const char *part_secret_get(void *arg, const char *name, const char *key)
{
    const struct connector_env *e = &((struct fleet_part *)arg)->fleet->base.env;

    return e->secret_get ? e->secret_get(e->arg, name, key) : NULL;
}

static void part_secret_put(void *arg, const char *text)
{
    const struct connector_env *e = &((struct fleet_part *)arg)->fleet->base.env;

    if (e->secret_put)
        e->secret_put(e->arg, text);
}

static const char *part_cluster_uid(void *arg)
{
    const struct connector_env *e = &((struct fleet_part *)arg)->fleet->base.env;

    return e->cluster_uid ? e->cluster_uid(e->arg) : "";
}

static uint64_t part_state_rv(void *arg, int64_t *ret_time_ms)
{
    const struct connector_env *e = &((struct fleet_part *)arg)->fleet->base.env;

    return e->state_rv ? e->state_rv(e->arg, ret_time_ms) : 0;
}

/* Of those in reach: what they have of a gang is renewed where all who have some of it are. */
static uint32_t part_peers(void *arg, struct arena *a, const char ***ret)
{
    const struct fleet *f = ((struct fleet_part *)arg)->fleet;
    uint32_t n = 0;

    *ret = arena_array(a, const char *, f->n_parts);
    for (unsigned i = 0; i < f->n_parts; i++)
        if (f->parts[i]->reached && *f->parts[i]->state)
            (*ret)[n++] = f->parts[i]->state;
    return n;
}

/* ---- parts ---- */
static const char *state_known(const struct target *doc, const char *part)
{
    const struct target_status *s = doc->status;

    for (uint32_t i = 0; s && i < s->n_agents; i++)
        if (strcmp(s->agents[i].name, part) == 0)
            return s->agents[i].agent;
    return "";
}

/* The driver of a part takes it for a Target with one agent. */
static int part_make(struct fleet *f, const struct object *target, const char *name,
                     struct err *err)
{
    const struct target *doc = object_as(target, target);
    struct fleet_part *p = mem_new(struct fleet_part);
    struct connector_env env = {.loop = f->base.env.loop,
                                .events = &part_events,
                                .arg = p,
                                .secret_get = part_secret_get,
                                .secret_put = part_secret_put,
                                .cluster_uid = part_cluster_uid,
                                .peers = part_peers,
                                .state_rv = part_state_rv};
    char whole[256 + 65];

    p->fleet = f;
    p->at = f->n_parts;
    str_copy(p->name, sizeof p->name, name);
    str_copy(p->why, sizeof p->why, "not yet in contact with this leader");
    str_copy(p->state, sizeof p->state, state_known(doc, name));
    (void)snprintf(whole, sizeof whole, "%s.%s", f->base.target, name);
    (void)snprintf(p->prefix, sizeof p->prefix, "%s.", whole);
    struct meta meta = *doc->metadata;
    struct target_status status = {.agent = p->state};
    struct target one = *doc;
    meta.name = whole;
    one.metadata = &meta;
    one.status = &status;
    struct object *o = NULL;
    int rc = strlen(whole) < sizeof f->base.target
                 ? object_make_within(target->kind, &one, OBJECT_MADE_MAX_BYTES, &o, err)
                 : err_set(err, E_TOOLARGE, "the name of agent %.63s is too long for a target's",
                           name);
    if (rc == 0)
        rc = f->ops->create(&env, o, &p->driver, err);
    (void)object_unref(o);
    if (rc < 0) {
        mem_free(p);
        return rc;
    }
    f->parts[f->n_parts++] = p;
    return 0;
}

static int parts_make(struct fleet *f, const struct object *target, struct err *err)
{
    const struct target_spec *s = object_as(target, target)->spec;
    int rc = 0;

    for (uint32_t i = 0; i < s->n_agents && rc == 0; i++) {
        bool there = false;
        for (unsigned k = 0; k < f->n_parts; k++)
            there |= strcmp(f->parts[k]->name, s->agents[i].name) == 0;
        if (!there && f->n_parts < LIMIT_TARGET_AGENTS)
            rc = part_make(f, target, s->agents[i].name, err);
    }
    for (unsigned k = 0; k < f->n_parts; k++) {
        const struct target_agent *a = target_agent_find(s, f->parts[k]->name);
        const char *address = a && a->address ? a->address : "";
        str_copy(f->parts[k]->address, sizeof f->parts[k]->address, address);
    }
    return rc;
}

static void fleet_destroy(struct connector *c)
{
    struct fleet *f = fleet_of(c);
    static const struct connector_events silent = {0};

    f->base.env.events = &silent;
    f->closing = true;
    timer_stop(&f->look);
    for (unsigned i = 0; i < f->n_parts; i++)
        f->parts[i]->driver->ops->destroy(f->parts[i]->driver);
    timer_stop(&f->look); /* a part that went started it again */
    joints_flush(f);
    gangs_drop(f);
    for (unsigned i = 0; i < f->n_parts; i++) {
        fleet_nodes_drop(f->parts[i]);
        mem_free(f->parts[i]);
    }
    mem_free(f);
}

int fleet_make(const struct connector_env *env, const struct object *target,
               const struct connector_ops *ops, struct connector **ret, struct err *err)
{
    struct fleet *f = mem_new(struct fleet);

    f->base.ops = &connector_fleet_ops;
    f->base.env = *env;
    str_copy(f->base.target, sizeof f->base.target, target->meta->name);
    f->ops = ops;
    f->made_ms = loop_now_ms(env->loop);
    list_init(&f->joints);
    list_init(&f->gangs);
    timer_init(&f->look, env->loop, fleet_look, f);
    timer_start(&f->look, FLEET_LOOK_MS);
    int rc = parts_make(f, target, err);
    if (rc < 0) {
        fleet_destroy(&f->base);
        return rc;
    }
    *ret = &f->base;
    return 0;
}

static int fleet_create(const struct connector_env *env, const struct object *target,
                        struct connector **ret, struct err *err)
{
    return fleet_make(env, target, &connector_agent_ops, ret, err);
}

/* Parts are added, and none is taken away (api/schema/agents.c). */
static void fleet_update(struct connector *c, const struct object *target)
{
    struct fleet *f = fleet_of(c);
    struct err err;

    for (unsigned i = 0; i < f->n_parts; i++)
        f->parts[i]->driver->ops->update(f->parts[i]->driver, target);
    if (parts_make(f, target, &err) < 0)
        log_err(LOG_WARN, "agent.part", &err);
}

struct connector *connector_agent_part(struct connector *c, const char *part)
{
    if (c->ops != &connector_fleet_ops)
        return *part ? NULL : c;
    const struct fleet *f = fleet_of(c);
    for (unsigned i = 0; i < f->n_parts; i++)
        if (strcmp(f->parts[i]->name, part) == 0)
            return f->parts[i]->driver;
    return NULL;
}

/* ---- streams: the sessions are those of the parts' driver ---- */
static void input(struct exec_session *s, const void *p, size_t n, bool eof)
{
    connector_agent_ops.exec_input(s, p, n, eof);
}

static size_t pending(const struct exec_session *s)
{
    return connector_agent_ops.exec_pending(s);
}

static void resize(struct exec_session *s, const struct exec_size *size)
{
    connector_agent_ops.exec_resize(s, size);
}

static void close_session(struct exec_session *s)
{
    connector_agent_ops.exec_close(s);
}

const struct connector_ops connector_fleet_ops = {.type = "agent",
                                                  .create = fleet_create,
                                                  .destroy = fleet_destroy,
                                                  .update = fleet_update,
                                                  .probe = fleet_inventory,
                                                  .inventory = fleet_inventory,
                                                  .submit = fleet_submit,
                                                  .repeats = fleet_repeats,
                                                  .find = fleet_find,
                                                  .stage = fleet_stage,
                                                  .quiesce = fleet_quiesce,
                                                  .checkpoint = fleet_checkpoint,
                                                  .stop = fleet_stop,
                                                  .finalize = fleet_finalize,
                                                  .renew = fleet_renew,
                                                  .reaches = fleet_reaches,
                                                  .logs = fleet_logs,
                                                  .exec = fleet_exec,
                                                  .exec_resize = resize,
                                                  .forward = fleet_forward,
                                                  .exec_input = input,
                                                  .exec_pending = pending,
                                                  .exec_close = close_session,
                                                  .sweep = fleet_sweep,
                                                  .promises = fleet_promises,
                                                  .document = fleet_document,
                                                  .agents = fleet_agents};
