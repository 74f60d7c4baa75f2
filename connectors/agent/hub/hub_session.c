/* Sessions of agents that dial in. One is taken and speaks for the target; any other with its
 * certificate is a guest until this file knows what it is:
 *
 *   the same process             its older connection is ended, it is taken
 *   no other agent is there      it is taken; if another state folder spoke for the target last,
 *                                only after that one has had HUB_PATIENCE_MS to come
 *   another one is there, dead   it is taken when that one's connection is over
 *   another one is there, alive  there are two: the guest is turned away and reported
 *                                (events->rival), unless it is the one that spoke last
 *
 * Two agents must never be taken at once, and a second one never in silence: what one agent
 * promised, the other does not know. */
#include "connectors/agent/hub/hub_internal.h"
#include "connectors/pace.h"

#include <stdio.h>
#include <string.h>

#define HELLO_TIMEOUT_MS 10000

static const struct stream_events nobody = {0};

/* ---- one session ---- */
static void session_look(void *arg);

static struct hub_session *session_make(struct hub *h, struct stream *s)
{
    struct hub_session *x = mem_new(struct hub_session);

    x->hub = h;
    x->stream = s;
    x->heard_ms = loop_now_ms(h->base.env.loop);
    list_init(&x->link);
    frame_reader_init(&x->reader);
    timer_init(&x->look, h->base.env.loop, session_look, x);
    timer_start(&x->look, HELLO_TIMEOUT_MS);
    return x;
}

static void session_free(struct hub_session *x)
{
    timer_stop(&x->look);
    list_remove(&x->link);
    frame_reader_fini(&x->reader);
    (void)arena_destroy(x->mem);
    mem_free(x);
}

static void session_end(struct hub_session *x, const char *why)
{
    stream_set(x->stream, &nobody, NULL);
    stream_abort(x->stream, why);
    session_free(x);
}

static void session_beat(struct hub_session *x, uint64_t at_ms)
{
    x->beat_ms = at_ms;
    x->beat_came_ms = loop_now_ms(x->hub->base.env.loop);
}

static void session_beat_back(struct hub_session *x)
{
    const struct wire_hub us = hub_state(x->hub);

    if (x->hub->session == x)
        wire_tell(x->stream, AF_BEAT, 0, wire_hub, &us);
    else
        frame_send(x->stream, AF_BEAT, 0, 0, NULL, 0);
}

/* Before the quorum round that allowed this grant, so that the holder's lease ends before ours. */
uint64_t hub_lease_from(const struct hub *h)
{
    const struct hub_session *x = h->session;

    return x ? pace_lease_from(x->beat_ms, loop_now_ms(h->base.env.loop) - x->beat_came_ms) : 0;
}

/* ---- the one that is taken ---- */
static void session_told(struct hub *h, struct observation *o)
{
    observation_settle(o);
    o->seen_ms = loop_now_ms(h->base.env.loop);
    if (h->base.env.events->observed)
        h->base.env.events->observed(h->base.env.arg, o);
}

static void session_workers(struct hub *h, const struct run_workers *w)
{
    if (h->base.env.events->workers)
        h->base.env.events->workers(h->base.env.arg, w);
}

/* Frees nothing of it: who calls does. */
static void session_over(struct hub *h, const char *why)
{
    h->session = NULL;
    h->stream = NULL;
    h->hello = false;
    h->pages_open = false;
    hub_calls_lost(h, why);
    asked_lost(&h->streams, why);
    if (h->base.env.events->reach)
        h->base.env.events->reach(h->base.env.arg, false, h->id, why);
}

static void frame_notices(struct hub *h, const struct wire_notices *list)
{
    struct err err;

    if (hub_notices_take(h, list, &err) == 0)
        return;
    log_err(LOG_WARN, "agent.notices_refused", &err);
    stream_abort(h->stream, err.text);
}

static void session_take(struct hub_session *x)
{
    struct hub *h = x->hub;
    const struct connector_events *ev = h->base.env.events;
    const struct wire_hub us = hub_state(h);
    struct wire_hello *hello = x->hello;
    AUTO_ARENA mem = x->mem; /* the session may be over before all is told */

    x->hello = NULL;
    x->mem = NULL;
    list_remove(&x->link);
    list_init(&x->link);
    h->session = x;
    h->stream = h->streams.to = x->stream;
    h->streams.opens = x->opens;
    h->streams.places = x->places;
    h->hello = true;
    str_copy(h->expected, sizeof h->expected, x->state);
    (void)snprintf(h->id, sizeof h->id, "%.40s", hello->session);
    timer_start(&x->look, HUB_SILENCE_MS);
    wire_tell(x->stream, AF_WELCOME, 0, wire_hub, &us);
    if (ev->heard) { /* whom it serves now may be of a later N than what it has heard */
        ev->heard(h->base.env.arg, hello->heard_cluster, hello->heard_rv, hello->heard_time_ms);
        ev->heard(h->base.env.arg, hello->cluster, 0, 0);
    }
    if (ev->agent)
        ev->agent(h->base.env.arg, x->state);
    if (ev->reach)
        ev->reach(h->base.env.arg, true, h->id, "the agent has dialed in");
    for (uint32_t i = 0; i < hello->n_workers && h->hello; i++)
        session_workers(h, &hello->workers[i]);
    if (!x->notices) /* of an older version: what a newer one told there holds no more */
        frame_notices(h, NULL);
    for (uint32_t i = 0; i < hello->n_runs && h->hello; i++)
        session_told(h, &hello->runs[i]);
}

/* ---- guests ---- */
static bool session_is_same(const struct hub_session *a, const struct hub_session *b)
{
    return strcmp(a->state, b->state) == 0 && strcmp(a->boot, b->boot) == 0 &&
           strcmp(a->instance, b->instance) == 0;
}

static bool session_is_expected(const struct hub_session *x)
{
    return !*x->hub->expected || strcmp(x->state, x->hub->expected) == 0;
}

static void rival_refuse(struct hub_session *x)
{
    const struct hub_session *taken = x->hub->session;
    const struct connector_events *ev = x->hub->base.env.events;
    char why[400];

    (void)snprintf(why, sizeof why,
                   "two agents speak for this target with one certificate: the one of state folder "
                   "%.12s is taken, that of %.12s%s is turned away: stop one of them, or give it a "
                   "target and a certificate of its own",
                   taken->state, x->state,
                   strcmp(taken->state, x->state) ? ""
                                                  : " (a copy of it, or a clone of its machine)");
    if (ev->rival)
        ev->rival(x->hub->base.env.arg, why);
    connector_agent_refuse(x->stream, why);
    session_free(x);
}

/* Who may be taken, is. Called when anything of it may have changed. */
static void guests_look(struct hub *h)
{
    uint64_t now = loop_now_ms(h->base.env.loop);

    list_for_each_safe (it, tmp, &h->guests) {
        struct hub_session *x = container_of(it, struct hub_session, link), *old = h->session;
        if (!x->hello)
            continue;
        if (old &&
            (session_is_same(x, old) || (session_is_expected(x) && !session_is_expected(old)))) {
            session_over(h, "a newer session of the same agent");
            session_end(old, "a newer session of the same agent");
            old = NULL;
        }
        if (old && old->heard_ms >= x->asked_ms + HUB_ALIVE_MS)
            rival_refuse(x);
        else if (!old && (session_is_expected(x) || now >= x->asked_ms + HUB_PATIENCE_MS))
            session_take(x);
    }
}

/* It owns mem, where the HELLO is. */
static void guest_hello(struct hub_session *x, struct wire_hello *hello, struct arena *mem)
{
    uint64_t now = loop_now_ms(x->hub->base.env.loop);

    (void)snprintf(x->state, sizeof x->state, "%.40s", hello->state_id);
    (void)snprintf(x->boot, sizeof x->boot, "%.60s", hello->boot_id);
    (void)snprintf(x->instance, sizeof x->instance, "%.36s", hello->instance);
    x->reshards = hello->reshards;
    x->shares = hello->shares;
    x->opens = hello->opens;
    x->notices = hello->notices;
    x->times = hello->times;
    x->terminals = hello->terminals;
    x->forwards = hello->forwards;
    x->keeps = hello->keeps;
    x->spans = hello->spans;
    x->gathers = hello->gathers;
    x->places = hello->places;
    x->hello = hello;
    x->mem = mem;
    x->asked_ms = now;
    session_beat(x, hello->at_ms);
    timer_start(&x->look, HUB_PATIENCE_MS);
    guests_look(x->hub);
}

/* ---- frames ---- */
static void frame_nodes(struct hub *h, const struct frame *f, const struct wire_nodes *page)
{
    struct wire_result done = {.outcome = OUT_DONE, .text = ""};
    struct err err;

    if (hub_nodes_tell(h, f->id, page, &err) < 0) {
        log_err(LOG_WARN, "agent.inventory_refused", &err);
        stream_abort(h->stream, err.text);
        return;
    }
    if (f->id && !page->more)
        hub_call_answer(h, f->id, &done);
}

/* By what schema a frame is read; NULL: of a newer agent, or not a guest's to say: passed over. */
static const struct schema *frame_schema(const struct hub_session *x, uint8_t type)
{
    switch ((enum agent_frame)type) {
    case AF_HELLO:
        return &schema_wire_hello;
    case AF_BEAT:
        return &schema_wire_beat;
    case AF_NODES:
        return x->hub->session == x ? &schema_wire_nodes : NULL;
    case AF_NOTICES:
        return x->hub->session == x ? &schema_wire_notices : NULL;
    case AF_RESULT:
        return x->hub->session == x ? &schema_wire_result : NULL;
    case AF_OBSERVED:
        return x->hub->session == x ? &schema_observation : NULL;
    case AF_WORKERS:
        return x->hub->session == x ? &schema_run_workers : NULL;
    default:
        return NULL;
    }
}

static void frame_taken(struct hub_session *x, const struct frame *f, void *body)
{
    const struct wire_beat *beat = body;

    switch ((enum agent_frame)f->type) {
    case AF_BEAT:
        session_beat(x, beat->at_ms);
        session_beat_back(x);
        break;
    case AF_NODES:
        frame_nodes(x->hub, f, body);
        break;
    case AF_NOTICES:
        frame_notices(x->hub, body);
        break;
    case AF_RESULT:
        hub_call_answer(x->hub, f->id, body);
        break;
    case AF_OBSERVED:
        session_told(x->hub, body);
        break;
    case AF_WORKERS:
        session_workers(x->hub, body);
        break;
    default:
        break;
    }
}

/* The HELLO of a guest. */
static int frame_first(struct hub_session *x, struct wire_hello *hello, struct arena *mem)
{
    if (strcmp(hello->target, x->hub->base.target) != 0) {
        (void)arena_destroy(mem);
        stream_abort(x->stream, "the agent speaks for another target");
        return 1;
    }
    guest_hello(x, hello, mem); /* a guest stays, or is taken, for as long as this call */
    return 0;
}

/* Non-zero: no more of these bytes, the session is gone. */
static int session_frame(const struct frame *f, void *arg)
{
    struct hub_session *x = arg;
    struct hub *h = x->hub;
    const struct schema *schema = frame_schema(x, f->type);
    struct arena *mem;
    struct err err;
    void *body = NULL;

    x->heard_ms = loop_now_ms(h->base.env.loop);
    x->looks = 0;
    if (h->session == x && asked_is_frame(f->type)) {
        asked_frame(&h->streams, f);
        return h->session != x;
    }
    mem = arena_create(0);
    if ((!x->asked_ms && f->type != AF_HELLO) ||
        (schema && wire_read_body(schema, f->body, mem, &body, &err) < 0)) {
        (void)arena_destroy(mem);
        stream_abort(x->stream, "the agent does not keep to the protocol");
        return 1;
    }
    if (f->type == AF_HELLO && !x->asked_ms)
        return frame_first(x, body, mem);
    if (body)
        frame_taken(x, f, body);
    (void)arena_destroy(mem);
    if (h->session != x)
        return 0;
    guests_look(h); /* it lives: with a guest they are two */
    return h->session != x;
}

static void session_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct hub_session *x = arg;
    struct err err;

    if (frame_feed(&x->reader, p, n, session_frame, x, &err) < 0)
        stream_abort(s, err.text);
}

static void session_closed(struct stream *s, const struct err *why, void *arg)
{
    struct hub_session *x = arg;
    struct hub *h = x->hub;

    (void)s;
    if (h->session == x)
        session_over(h, why->code ? why->text : "the agent closed the connection");
    session_free(x);
    guests_look(h);
}

static const struct stream_events session_events = {.data = session_data, .closed = session_closed};

static void session_look(void *arg)
{
    struct hub_session *x = arg;
    struct hub *h = x->hub;
    uint64_t now = loop_now_ms(h->base.env.loop);
    uint64_t limit = x->asked_ms ? HUB_SILENCE_MS : HELLO_TIMEOUT_MS;

    if (now - x->heard_ms >= limit && x->looks++ < HUB_LAST_LOOKS) {
        timer_start(&x->look, 0); /* what came in while this loop stood still is read first */
        return;
    }
    if (now - x->heard_ms >= limit) {
        stream_abort(x->stream, x->asked_ms ? "no heartbeat for 5 s" : "no greeting for 10 s");
        return;
    }
    timer_start(&x->look, limit - (now - x->heard_ms));
    if (h->session != x)
        guests_look(h);
}

/* ---- who comes ---- */
void connector_agent_refuse(struct stream *s, const char *why)
{
    const struct wire_refused told = {.text = why};

    stream_set(s, &nobody, NULL);
    wire_tell(s, AF_REFUSED, 0, wire_refused, &told);
    stream_close(s);
}

int connector_agent_attach(struct connector *c, struct stream *s, struct err *err)
{
    struct hub *h = hub_of(c);
    struct hub_session *x;
    char expected[PEER_NAME_MAX + 8];
    unsigned n = 0;

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
    list_for_each (it, &h->guests)
        n++;
    if (n >= HUB_GUESTS_MAX) /* the oldest: it will come again */
        session_end(container_of(h->guests.next, struct hub_session, link),
                    "newer sessions of this target have come");
    x = session_make(h, s);
    list_push(&h->guests, &x->link);
    stream_set(s, &session_events, x);
    return 0;
}

void connector_agents_end(struct connector *c,
                          bool (*ends)(const struct peer_identity *who, void *arg), void *arg,
                          const char *why)
{
    struct hub *h = c->ops == &connector_agent_ops ? hub_of(c) : NULL;

    if (!h)
        return;
    if (h->stream && ends(stream_peer(h->stream), arg))
        stream_abort(h->stream, why);
    list_for_each (it, &h->guests) {
        struct hub_session *x = container_of(it, struct hub_session, link);
        if (ends(stream_peer(x->stream), arg))
            stream_abort(x->stream, why);
    }
}

void connector_agent_redirect(struct stream *s, const char *leader_address)
{
    const struct wire_redirect told = {.address = leader_address};

    stream_set(s, &nobody, NULL);
    wire_tell(s, AF_REDIRECT, 0, wire_redirect, &told);
    stream_close(s);
}

void hub_sessions_end(struct hub *h, const char *why)
{
    struct hub_session *x = h->session;

    if (x) {
        session_over(h, why);
        session_end(x, why);
    }
    while (!list_empty(&h->guests))
        session_end(container_of(h->guests.next, struct hub_session, link), why);
}
