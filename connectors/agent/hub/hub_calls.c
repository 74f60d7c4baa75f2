/* Calls that wait for the agent. Each ends once: by its answer, by its deadline, or with the
 * session. A call that was sent and not answered is unknown, whatever it was; only a call that
 * never left is rejected. */
#include "connectors/agent/hub/hub_internal.h"

#include <stdio.h>
#include <string.h>

#define SWEEP_GRACE_MS 5000

static void document_finish(struct hub_call *c, enum outcome out, const char *json,
                            const struct err *err)
{
    document_cb cb = c->document;
    void *arg = c->document_arg;

    timer_stop(&c->deadline);
    list_remove(&c->link);
    mem_free(c);
    cb(arg, out, json, err);
}

/* Told from a fresh callback: never from inside the call that asked. */
static void call_finish(struct hub_call *c, enum outcome out, const struct observation *seen,
                        const struct err *err)
{
    struct call *call = c->call;

    if (c->document) {
        document_finish(c, out, NULL, err);
        return;
    }
    timer_stop(&c->deadline);
    list_remove(&c->link);
    mem_free(c);
    if (call)
        call->done(call, out, seen, err);
}

static void call_expired(void *arg)
{
    struct hub_call *c = arg;
    struct err err;

    if (c->id == 0) { /* never sent */
        if (c->why.code)
            err = c->why;
        else
            (void)err_set(&err, E_UNAVAIL, "agent %s is not connected", c->hub->base.target);
        call_finish(c, OUT_REJECTED, NULL, &err);
        return;
    }
    (void)err_set(&err, E_UNKNOWN, "agent %s did not answer in time", c->hub->base.target);
    call_finish(c, OUT_UNKNOWN, NULL, &err);
}

static struct hub_call *call_make(struct hub *h, struct call *call, enum agent_frame type,
                                  const struct run_key *k)
{
    struct hub_call *c = mem_new(struct hub_call);
    uint64_t now = loop_now_ms(h->base.env.loop);

    c->hub = h;
    c->type = type;
    c->call = call;
    if (k)
        c->key = *k;
    list_push(&h->calls, &c->link);
    timer_init(&c->deadline, h->base.env.loop, call_expired, c);
    if (!h->hello) {
        timer_start(&c->deadline, 0);
        return c;
    }
    c->id = ++h->next_id;
    timer_start(&c->deadline, call && call->deadline_ms > now ? call->deadline_ms - now : 0);
    return c;
}

/* What cannot be sent has had no effect: rejected, with the reason. No body where there is none. */
static void call_send(struct hub_call *c, enum agent_frame type, const struct schema *schema,
                      const void *body)
{
    if (!body)
        frame_send(c->hub->stream, (uint8_t)type, 0, c->id, NULL, 0);
    if (!body || wire_send_body(c->hub->stream, type, c->id, schema, body, &c->why) == 0)
        return;
    c->id = 0;
    timer_start(&c->deadline, 0);
}

void hub_call_begin(struct hub *h, struct call *call, enum agent_frame type,
                    const struct run_key *k, const struct schema *schema, const void *body)
{
    struct hub_call *c = call_make(h, call, type, k);

    if (c->id)
        call_send(c, type, schema, body);
}

void hub_call_sweep(struct hub *h, run_judge judge, void *arg, struct call *call)
{
    struct hub_call *c = call_make(h, call, AF_LIST, NULL);

    c->judge = judge;
    c->judge_arg = arg;
    if (c->id)
        call_send(c, AF_LIST, NULL, NULL);
}

void hub_call_document(struct hub *h, const struct run_key *k, uint64_t deadline_ms, document_cb cb,
                       void *arg)
{
    struct hub_call *c = call_make(h, NULL, AF_DOCUMENT, k);
    const struct wire_about q = {.key = *k};
    uint64_t now = loop_now_ms(h->base.env.loop);

    c->document = cb;
    c->document_arg = arg;
    if (!c->id)
        return; /* its timer says so */
    timer_start(&c->deadline, deadline_ms > now ? deadline_ms - now : 0);
    call_send(c, AF_DOCUMENT, &schema_wire_about, &q);
}

/* A stop, a forgetting or a claim that nobody waits for: sweep's own. */
static void call_nobody(struct hub *h, enum agent_frame type, const struct run_key *k)
{
    struct wire_about q = {.key = *k, .grace_ms = SWEEP_GRACE_MS};

    if (type == AF_CLAIM) { /* that has it: whose past has this one, knows of it */
        const struct wire_hub us = hub_state(h);
        q.cluster = us.cluster;
        q.state_rv = us.state_rv;
        q.state_time_ms = us.state_time_ms;
    }
    wire_tell(h->stream, type, ++h->next_id, wire_about, &q);
}

static void listed_of(const struct wire_listed *from, struct arena *a, struct run_listed *ret)
{
    struct run_hold *h = arena_array(a, struct run_hold, from->n_workers + 1);

    *ret =
        (struct run_listed){.seen = {.key = from->key, .state = from->state, .proof = from->proof},
                            .since_ms = from->since_ms,
                            .state_rv = from->state_rv,
                            .holds = h,
                            .n_holds = from->n_workers};
    str_copy(ret->cluster, sizeof ret->cluster, from->cluster);
    ret->final = from->final;
    str_copy(ret->ns, sizeof ret->ns, from->namespace_);
    str_copy(ret->name, sizeof ret->name, from->workload);
    for (uint32_t i = 0; i < from->n_workers; i++) {
        const struct wire_worker *w = &from->workers[i];
        str_copy(h[i].node, sizeof h[i].node, w->node);
        for (uint32_t g = 0; g < w->n_gpus; g++)
            if (w->gpus[g] >= 0 && w->gpus[g] < LIMIT_NODE_GPUS)
                h[i].devices |= 1ull << w->gpus[g];
    }
}

static void sweep_listed(struct hub_call *c, const struct wire_result *all)
{
    AUTO_ARENA a = arena_create(0);

    for (uint32_t i = 0; i < all->n_runs; i++) {
        struct run_listed r;
        arena_reset(a);
        listed_of(&all->runs[i], a, &r);
        bool over = r.seen.state == RUN_ENDED || r.seen.state == RUN_ABSENT;
        enum run_verdict v = c->judge(&r, c->judge_arg);
        if (v == RUN_LET_GO)
            call_nobody(c->hub, over ? AF_FORGET : AF_STOP, &r.seen.key);
        else if (v == RUN_CLAIMED && *hub_cluster(c->hub) &&
                 strcmp(r.cluster, hub_cluster(c->hub)) != 0)
            call_nobody(c->hub, AF_CLAIM, &r.seen.key);
    }
    call_finish(c, OUT_DONE, NULL, NULL);
}

/* ---- what it promised to refuse, page by page ---- */
static void promises_ask(struct hub_call *c, int from)
{
    const struct wire_book_ask q = {.from = from, .older_ms = (int64_t)c->older_ms};

    call_send(c, AF_BOOK, &schema_wire_book_ask, &q);
}

void hub_call_promises(struct hub *h, uint64_t rv, uint64_t older_ms, promise_judge judge,
                       void *arg, struct call *call)
{
    struct hub_call *c = call_make(h, call, AF_BOOK, NULL);

    c->promised = judge;
    c->promised_arg = arg;
    c->rv = rv;
    c->older_ms = older_ms;
    if (c->id)
        promises_ask(c, 0);
}

/* Nobody waits for the answer: what was not forgotten is asked about again. */
static void promises_let_go(struct hub_call *c, const char **uids, uint32_t n)
{
    const struct wire_let_go q = {
        .cluster = hub_cluster(c->hub), .rv = c->rv, .uids = uids, .n_uids = n};

    wire_tell(c->hub->stream, AF_LET_GO, ++c->hub->next_id, wire_let_go, &q);
}

static void promises_told(struct hub_call *c, const struct wire_result *page)
{
    struct observation seen = {.state = RUN_UNKNOWN};
    AUTO_ARENA a = arena_create(0);
    const char **uids = arena_array(a, const char *, page->n_promises + 1);
    uint32_t n = 0;

    for (uint32_t i = 0; i < page->n_promises; i++) {
        const struct run_promise *p = &page->promises[i];
        if (p->rv <= c->rv && c->promised(p, c->promised_arg))
            uids[n++] = p->uid;
    }
    if (n)
        promises_let_go(c, uids, n);
    if (page->next > 0) {
        c->id = ++c->hub->next_id;
        promises_ask(c, page->next);
        return;
    }
    str_copy(seen.message, sizeof seen.message, page->full);
    call_finish(c, OUT_DONE, &seen, NULL);
}

void hub_call_answer(struct hub *h, uint64_t id, struct wire_result *r)
{
    struct hub_call *c = NULL;
    struct observation *o = r->seen;
    struct err err = {0};
    enum outcome out = (enum outcome)r->outcome;

    list_for_each (it, &h->calls) {
        struct hub_call *k = container_of(it, struct hub_call, link);
        if (k->id == id)
            c = k;
    }
    if (!c) /* after its deadline */
        return;
    if (c->judge) {
        sweep_listed(c, r);
        return;
    }
    if (c->promised && out == OUT_DONE) {
        promises_told(c, r);
        return;
    }
    if (c->document && out == OUT_DONE) {
        document_finish(c, OUT_DONE, r->document, NULL);
        return;
    }
    if (o) {
        observation_settle(o);
        o->key = c->key;
        o->seen_ms = loop_now_ms(h->base.env.loop);
    }
    bool told = *r->text != '\0';
    if (told)
        (void)err_field(&err, r->code < 0 && r->code >= -E_ROW_NR ? r->code : E_INTERNAL, r->field,
                        "%s", r->text);
    if (out == OUT_DONE && !o && c->type != AF_INVENTORY) /* it answers, and says nothing */
        out = OUT_UNKNOWN;
    if (c->call)
        c->call->port = r->port;
    if (out == OUT_REJECTED && c->call)
        c->call->refused = refusal_of_code(told ? err.code : 0);
    call_finish(c, out, o, told ? &err : NULL);
}

void hub_calls_lost(struct hub *h, const char *why)
{
    struct list lost;
    struct err err;

    /* Those that come meanwhile belong to what follows. */
    list_init(&lost);
    for (struct list *e; (e = list_pop(&h->calls)) != NULL;)
        list_push(&lost, e);
    while (!list_empty(&lost)) {
        struct hub_call *c = container_of(lost.next, struct hub_call, link);
        if (c->id == 0) {
            call_expired(c);
            continue;
        }
        (void)err_set(&err, E_UNKNOWN, "the session with agent %s ended: %.200s", h->base.target,
                      why);
        call_finish(c, OUT_UNKNOWN, NULL, &err);
    }
}
