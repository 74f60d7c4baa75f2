/* The driver of agent targets. It holds a session and nothing else: after a restart of the server
 * the agent's HELLO tells all again. One session a target; a newer one ends the older. */
#include "connectors/agent/hub/hub_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define HELLO_TIMEOUT_MS 10000
#define RENEW_OTHERWISE_MS 300000 /* of an order of old that gave no length */

static struct hub *hub_of(struct connector *c)
{
    PRE(c->ops == &connector_agent_ops);
    return container_of(c, struct hub, base);
}

/* ---- session
 * ---------------------------------------------------------------------------------------------- */
static void session_over(struct hub *h, const char *why)
{
    bool was = h->hello;

    h->stream = NULL;
    h->hello = false;
    timer_stop(&h->silence);
    frame_reader_fini(&h->reader);
    hub_pages_drop(h);
    hub_calls_lost(h, why);
    hub_streams_lost(h, why);
    if (was && h->base.env.events->reach)
        h->base.env.events->reach(h->base.env.arg, false, h->session, why);
}

static void session_beat(struct hub *h, uint64_t at_ms)
{
    memmove(h->beats + 1, h->beats, sizeof h->beats - sizeof *h->beats);
    h->beats[0] = (struct hub_beat){at_ms, loop_now_ms(h->base.env.loop)};
}

/* Older than the quorum round that allowed this grant, so that the holder's lease ends before ours.
 * In a session's first moments it is its HELLO. */
uint64_t hub_lease_from(const struct hub *h)
{
    uint64_t now = loop_now_ms(h->base.env.loop), oldest = 0;

    for (size_t i = 0; i < HUB_BEATS && h->beats[i].received_ms; i++) {
        oldest = h->beats[i].at_ms;
        if (now - h->beats[i].received_ms >= HUB_ROUND_MAX_MS)
            break;
    }
    return oldest;
}

static void session_told(struct hub *h, const cJSON *run)
{
    struct observation o;

    if (wire_observation_parse(run, &o, NULL) < 0)
        return;
    o.seen_ms = loop_now_ms(h->base.env.loop);
    if (h->base.env.events->observed)
        h->base.env.events->observed(h->base.env.arg, &o);
}

static void session_hello(struct hub *h, const cJSON *j)
{
    const cJSON *run;

    if (strcmp(wire_str(j, "target"), h->base.target) != 0) {
        stream_abort(h->stream, "the agent speaks for another target");
        return;
    }
    h->hello = true;
    memset(h->beats, 0, sizeof h->beats);
    session_beat(h, wire_u64(j, "at"));
    (void)snprintf(h->session, sizeof h->session, "%.40s", wire_str(j, "session"));
    cJSON *welcome = cJSON_CreateObject();
    cJSON_AddStringToObject(welcome, "cluster", hub_cluster(h));
    wire_tell(h->stream, AF_WELCOME, 0, welcome);
    if (h->base.env.events->reach)
        h->base.env.events->reach(h->base.env.arg, true, h->session, "the agent has dialed in");
    cJSON_ArrayForEach(run, cJSON_GetObjectItemCaseSensitive(j, "runs")) if (h->hello)
        session_told(h, run);
}

static void session_frame_nodes(struct hub *h, const struct frame *f, const cJSON *j)
{
    struct err err;
    cJSON *done;

    if (hub_pages_take(h, f->id, j, &err) < 0) {
        log_err(LOG_WARN, "agent.inventory_refused", &err);
        stream_abort(h->stream, err.text);
        return;
    }
    if (wire_bool(j, "more"))
        return;
    if (h->base.env.events->nodes)
        h->base.env.events->nodes(h->base.env.arg, h->pages.nodes, h->pages.n, !h->pages.refused);
    hub_pages_drop(h);
    if (!f->id)
        return;
    done = cJSON_CreateObject();
    cJSON_AddNumberToObject(done, "outcome", (double)OUT_DONE);
    hub_call_answer(h, f, done);
    cJSON_Delete(done);
}

static int session_frame(const struct frame *f, void *arg)
{
    struct hub *h = arg;
    struct err err;
    cJSON *j = NULL;

    h->heard_ms = loop_now_ms(h->base.env.loop);
    if (f->type == AF_DATA || f->type == AF_END) {
        hub_stream_frame(h, f);
        return h->stream ? 0 : 1;
    }
    if (wire_parse(f, &j, &err) < 0 || (!h->hello && f->type != AF_HELLO)) {
        cJSON_Delete(j);
        stream_abort(h->stream, "the agent does not keep to the protocol");
        return 1;
    }
    switch ((enum agent_frame)f->type) {
    case AF_HELLO:
        if (!h->hello)
            session_hello(h, j);
        break;
    case AF_BEAT:
        session_beat(h, wire_u64(j, "at"));
        frame_send(h->stream, AF_BEAT, 0, 0, NULL, 0);
        break;
    case AF_NODES:
        session_frame_nodes(h, f, j);
        break;
    case AF_RESULT:
        hub_call_answer(h, f, j);
        break;
    case AF_OBSERVED:
        session_told(h, j);
        break;
    default: /* of a newer agent: not for us */
        break;
    }
    cJSON_Delete(j);
    return h->stream ? 0 : 1;
}

static void session_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct hub *h = arg;
    struct err err;

    if (frame_feed(&h->reader, p, n, session_frame, h, &err) < 0)
        stream_abort(s, err.text);
}

static void session_closed(struct stream *s, const struct err *why, void *arg)
{
    (void)s;
    session_over(arg, why->code ? why->text : "the agent closed the connection");
}

static const struct stream_events session_events = {.data = session_data, .closed = session_closed};
static const struct stream_events nobody = {0};

static void session_silence(void *arg)
{
    struct hub *h = arg;
    uint64_t now = loop_now_ms(h->base.env.loop);
    uint64_t limit = h->hello ? HUB_SILENCE_MS : HELLO_TIMEOUT_MS;

    if (now - h->heard_ms >= limit)
        stream_abort(h->stream, h->hello ? "no heartbeat for 5 s" : "no greeting for 10 s");
    else
        timer_start(&h->silence, limit - (now - h->heard_ms));
}

void connector_agent_refuse(struct stream *s, const char *why)
{
    cJSON *j = cJSON_CreateObject();

    stream_set(s, &nobody, NULL);
    cJSON_AddStringToObject(j, "text", why);
    wire_tell(s, AF_REFUSED, 0, j);
    stream_close(s);
}

int connector_agent_attach(struct connector *c, struct stream *s, struct err *err)
{
    struct hub *h = hub_of(c);
    char expected[PEER_NAME_MAX + 8];

    (void)snprintf(expected, sizeof expected, "agent:%s", c->target);
    if (strcmp(stream_peer(s)->name, expected) != 0) {
        struct err why;
        int rc = err_set(&why, E_FORBIDDEN,
                         "the certificate's CN is \"%.100s\"; the agent of this target needs "
                         "\"%.100s\": issue one with that CN",
                         stream_peer(s)->name, expected);
        connector_agent_refuse(s, why.text);
        if (err)
            *err = why;
        return rc;
    }
    if (h->stream) {
        struct stream *old = h->stream;
        stream_set(old, &nobody, NULL);
        stream_abort(old, "a newer session of the same agent");
        session_over(h, "a newer session of the same agent");
    }
    h->stream = s;
    h->heard_ms = loop_now_ms(c->env.loop);
    frame_reader_init(&h->reader);
    timer_start(&h->silence, HELLO_TIMEOUT_MS);
    stream_set(s, &session_events, h);
    return 0;
}

void connector_agent_redirect(struct stream *s, const char *leader_address)
{
    cJSON *j = cJSON_CreateObject();

    stream_set(s, &nobody, NULL);
    cJSON_AddStringToObject(j, "address", leader_address);
    wire_tell(s, AF_REDIRECT, 0, j);
    stream_close(s);
}

/* ---- the calls
 * ------------------------------------------------------------------------------------------------
 */
static int hub_create(const struct connector_env *env, const struct object *target,
                      struct connector **ret, struct err *err)
{
    struct hub *h = mem_new(struct hub);

    (void)err;
    h->base.ops = &connector_agent_ops;
    h->base.env = *env;
    (void)snprintf(h->base.target, sizeof h->base.target, "%s", target->meta->name);
    list_init(&h->calls);
    list_init(&h->streams);
    timer_init(&h->silence, env->loop, session_silence, h);
    *ret = &h->base;
    return 0;
}

static void hub_destroy(struct connector *c)
{
    struct hub *h = hub_of(c);
    static const struct connector_events silent = {0};

    if (h->stream) {
        stream_set(h->stream, &nobody, NULL);
        stream_abort(h->stream, "the target was removed, or this member does not lead any more");
    }
    h->base.env.events = &silent;
    session_over(h, "the connector was ended");
    mem_free(h);
}

static void hub_update(struct connector *c, const struct object *target)
{
    (void)c;
    (void)target; /* agents dial in: nothing of the document matters here */
}

static void hub_inventory(struct connector *c, struct call *call)
{
    hub_call_begin(hub_of(c), call, AF_INVENTORY, NULL, NULL);
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
    call->done(call, OUT_REJECTED, NULL, &err);
}

static void hub_submit(struct connector *c, const struct run_order *o, struct call *call)
{
    struct hub *h = hub_of(c);
    struct err err;
    cJSON *j = hub_order(h, o, &err);

    if (!j) {
        struct refused *r = mem_new(struct refused);
        r->call = call;
        r->err = err;
        loop_post(c->env.loop, refused_done, r);
        return;
    }
    hub_call_begin(h, call, AF_SUBMIT, &o->key, j);
}

static void hub_find(struct connector *c, const struct run_key *k, struct call *call)
{
    hub_call_begin(hub_of(c), call, AF_FIND, k, NULL);
}

static void hub_stage(struct connector *c, const struct run_order *o, struct call *call)
{
    hub_call_begin(hub_of(c), call, AF_STAGE, &o->key, hub_stage_order(o));
}

static void hub_quiesce(struct connector *c, const struct run_key *k, int signo, uint64_t grace_ms,
                        struct call *call)
{
    cJSON *j = cJSON_CreateObject();

    cJSON_AddNumberToObject(j, "signal", signo);
    cJSON_AddNumberToObject(j, "graceMs", (double)grace_ms);
    hub_call_begin(hub_of(c), call, AF_SIGNAL, k, j);
}

static void hub_stop(struct connector *c, const struct run_key *k, uint64_t grace_ms,
                     struct call *call)
{
    cJSON *j = cJSON_CreateObject();

    cJSON_AddNumberToObject(j, "graceMs", (double)grace_ms);
    hub_call_begin(hub_of(c), call, AF_STOP, k, j);
}

static void hub_renew(struct connector *c, const struct run_offer *offers, size_t n)
{
    struct hub *h = hub_of(c);

    if (!h->hello)
        return;
    cJSON *j = cJSON_CreateObject();
    cJSON_AddNumberToObject(j, "from", (double)hub_lease_from(h));
    cJSON_AddNumberToObject(j, "leaseMs", RENEW_OTHERWISE_MS);
    if (n)
        cJSON_AddItemToObject(j, "offers", wire_offers(offers, n));
    wire_tell(h->stream, AF_RENEW, 0, j);
}

static void hub_sweep(struct connector *c, run_judge judge, void *arg, struct call *call)
{
    hub_call_sweep(hub_of(c), judge, arg, call);
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

const struct connector_ops connector_agent_ops = {
    .type = "agent",
    .can = CAN_LEASE | CAN_EXEC | CAN_SCRIPT | CAN_COMMAND,
    .create = hub_create,
    .destroy = hub_destroy,
    .update = hub_update,
    .probe = hub_inventory, /* it answers, so it is there */
    .inventory = hub_inventory,
    .submit = hub_submit,
    .find = hub_find,
    .stage = hub_stage,
    .quiesce = hub_quiesce,
    .stop = hub_stop,
    .renew = hub_renew,
    .logs = hub_logs,
    .exec = hub_exec,
    .exec_input = hub_exec_input,
    .exec_close = hub_exec_close,
    .sweep = hub_sweep,
    .document = hub_document};
