/* The connector driver of agent targets. It holds a session and nothing else: after a restart of
 * the server the agent's HELLO tells everything again. */
#include "connectors/agent/hub/hub_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

struct hub *hub_of(struct connector *c)
{
    PRE(c->ops == &connector_agent_ops);
    return container_of(c, struct hub, base);
}

/* ---- the calls ---- */
static int hub_create(const struct connector_env *env, const struct object *target,
                      struct connector **ret, struct err *err)
{
    struct hub *h = mem_new(struct hub);
    char who[sizeof h->streams.who];
    const struct target_status *st = object_as(target, target)->status;

    (void)err;
    h->base.ops = &connector_agent_ops;
    h->base.env = *env;
    str_copy(h->base.target, sizeof h->base.target, target->meta->name);
    if (st)
        str_copy(h->expected, sizeof h->expected, st->agent);
    list_init(&h->calls);
    (void)snprintf(who, sizeof who, "agent %s", h->base.target);
    asked_init(&h->streams, env->loop, who, SIZE_MAX);
    list_init(&h->guests);
    *ret = &h->base;
    return 0;
}

static void hub_destroy(struct connector *c)
{
    struct hub *h = hub_of(c);
    static const struct connector_events silent = {0};

    h->base.env.events = &silent;
    hub_sessions_end(h, "the target was removed, or this member does not lead any more");
    mem_free(h);
}

static void hub_update(struct connector *c, const struct object *target)
{
    (void)c;
    (void)target; /* agents dial in: nothing of the document matters here */
}

static void hub_inventory(struct connector *c, struct call *call)
{
    hub_call_begin(hub_of(c), call, AF_INVENTORY, NULL, NULL, NULL);
}

struct refused {
    struct call *call;
    struct err err;
};

static void refused_done(void *arg)
{
    struct refused *r = arg;
    struct err err = r->err;
    struct call *call = r->call;

    mem_free(r);
    call->refused = refusal_of_code(err.code);
    call->done(call, OUT_REJECTED, NULL, &err);
}

static void hub_refuse(struct hub *h, struct call *call, const struct err *why)
{
    struct refused *r = mem_new(struct refused);

    r->call = call;
    r->err = *why;
    loop_post(h->base.env.loop, refused_done, r);
}

static void hub_submit(struct connector *c, const struct run_order *o, struct call *call)
{
    struct hub *h = hub_of(c);
    struct err err;
    struct wire_order order;
    AUTO_ARENA a = arena_create(0);

    if (hub_order(h, o, a, &order, &err) < 0)
        hub_refuse(h, call, &err);
    else
        hub_call_begin(h, call, AF_SUBMIT, &o->key, &schema_wire_order, &order);
}

/* What is asked about a run says how far our state has come: what is promised is promised to it. */
static void hub_about(struct connector *c, enum agent_frame type, const struct run_key *k,
                      int signo, uint64_t grace_ms, struct call *call)
{
    struct hub *h = hub_of(c);
    const struct wire_hub us = hub_state(h);
    const struct wire_about q = {
        .key = *k, .signo = signo, .grace_ms = grace_ms, .state_rv = us.state_rv};

    hub_call_begin(h, call, type, k, &schema_wire_about, &q);
}

static void hub_find(struct connector *c, const struct run_key *k, struct call *call)
{
    hub_about(c, AF_FIND, k, 0, 0, call);
}

static void hub_stage(struct connector *c, const struct run_order *o, struct call *call)
{
    struct hub *h = hub_of(c);
    struct wire_stage q;
    struct err err;
    AUTO_ARENA a = arena_create(0);

    hub_stage_order(o, a, &q);
    if (o->meeting && hub_meeting_check(h, &err) < 0)
        hub_refuse(h, call, &err);
    else
        hub_call_begin(h, call, AF_STAGE, &o->key, &schema_wire_stage, &q);
}

static void hub_quiesce(struct connector *c, const struct run_key *k, int signo, uint64_t grace_ms,
                        struct call *call)
{
    hub_about(c, AF_SIGNAL, k, signo, grace_ms, call);
}

static void hub_checkpoint(struct connector *c, const struct run_key *k, int64_t number,
                           uint64_t grace_ms, struct call *call)
{
    const struct wire_save q = {.key = *k, .number = number, .grace_ms = grace_ms};

    hub_call_begin(hub_of(c), call, AF_SAVE, k, &schema_wire_save, &q);
}

static void hub_stop(struct connector *c, const struct run_key *k, uint64_t grace_ms,
                     struct call *call)
{
    hub_about(c, AF_STOP, k, 0, grace_ms, call);
}

static void hub_finalize(struct connector *c, const struct run_key *k, struct call *call)
{
    hub_about(c, AF_FINALIZE, k, 0, 0, call);
}

static void hub_renew(struct connector *c, const struct run_offer *offers, size_t n)
{
    struct hub *h = hub_of(c);

    if (!h->hello)
        return;
    AUTO_ARENA a = arena_create(0);
    const struct connector_env *e = &h->base.env;
    const char **peers = NULL;
    uint32_t n_peers = e->peers ? e->peers(e->arg, a, &peers) : 0;
    const struct wire_renew q = {.from_ms = hub_lease_from(h),
                                 /* of an order of old that gave no length */
                                 .lease_ms =
                                     (uint64_t)schema_default_ms(&schema_target_partition, "lease"),
                                 .offers = (struct run_offer *)(uintptr_t)offers, /* read only */
                                 .n_offers = (uint32_t)n,
                                 .peers = peers,
                                 .n_peers = n_peers};
    wire_tell(h->stream, AF_RENEW, 0, wire_renew, &q);
}

static void hub_sweep(struct connector *c, run_judge judge, void *arg, struct call *call)
{
    hub_call_sweep(hub_of(c), judge, arg, call);
}

static void hub_promises(struct connector *c, uint64_t rv, uint64_t older_ms, promise_judge judge,
                         void *arg, struct call *call)
{
    hub_call_promises(hub_of(c), rv, older_ms, judge, arg, call);
}

static void hub_document(struct connector *c, const struct run_key *k, uint64_t deadline_ms,
                         document_cb cb, void *arg)
{
    hub_call_document(hub_of(c), k, deadline_ms, cb, arg);
}

const char *hub_cluster(const struct hub *h)
{
    const struct connector_env *e = &h->base.env;

    return e->cluster_uid ? e->cluster_uid(e->arg) : "";
}

struct wire_hub hub_state(const struct hub *h)
{
    const struct connector_env *e = &h->base.env;
    struct wire_hub us = {.cluster = hub_cluster(h), .deltas = true};

    if (e->state_rv)
        us.state_rv = e->state_rv(e->arg, &us.state_time_ms);
    return us;
}

/* An agent that knows a key answers with its run, its book refuses the others, and both are in its
 * state folder. */
static const char *hub_repeats(const struct connector *c)
{
    const struct hub *h = container_of(c, struct hub, base);

    return h->hello ? h->session->state : "";
}

const struct connector_ops connector_agent_ops = {
    .type = "agent",
    .create = hub_create,
    .destroy = hub_destroy,
    .update = hub_update,
    .probe = hub_inventory, /* it answers, so it is there */
    .inventory = hub_inventory,
    .submit = hub_submit,
    .repeats = hub_repeats,
    .find = hub_find,
    .stage = hub_stage,
    .quiesce = hub_quiesce,
    .checkpoint = hub_checkpoint,
    .stop = hub_stop,
    .finalize = hub_finalize,
    .renew = hub_renew,
    .logs = hub_logs,
    .exec = hub_exec,
    .exec_resize = asked_resize,
    .forward = hub_forward,
    .exec_input = asked_input,
    .exec_pending = asked_pending,
    .exec_close = asked_close,
    .sweep = hub_sweep,
    .promises = hub_promises,
    .document = hub_document};
