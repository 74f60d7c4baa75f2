/* Calls that wait for the agent. Each ends once: by its answer, by its deadline, or with the
 * session. What was sent and not answered is unknown, whatever it was; only what never left is
 * rejected. */
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

/* What cannot be sent has had no effect: rejected, with the reason. */
static void call_send(struct hub_call *c, enum agent_frame type, cJSON *body)
{
    if (wire_send(c->hub->stream, type, c->id, body, &c->why) == 0)
        return;
    c->id = 0;
    timer_start(&c->deadline, 0);
}

void hub_call_begin(struct hub *h, struct call *call, enum agent_frame type,
                    const struct run_key *k, cJSON *body)
{
    struct hub_call *c = call_make(h, call, type, k);
    int64_t time_ms;

    if (c->id == 0) {
        cJSON_Delete(body);
        return;
    }
    if (!body)
        body = cJSON_CreateObject();
    if (k && !cJSON_GetObjectItemCaseSensitive(body, "key"))
        wire_add_key(body, k);
    if (h->base.env.state_rv && !cJSON_GetObjectItemCaseSensitive(body, "stateRv"))
        cJSON_AddNumberToObject(body, "stateRv",
                                (double)h->base.env.state_rv(h->base.env.arg, &time_ms));
    call_send(c, type, body);
}

void hub_call_sweep(struct hub *h, run_judge judge, void *arg, struct call *call)
{
    struct hub_call *c = call_make(h, call, AF_LIST, NULL);

    c->judge = judge;
    c->judge_arg = arg;
    if (c->id)
        call_send(c, AF_LIST, cJSON_CreateObject());
}

void hub_call_document(struct hub *h, const struct run_key *k, uint64_t deadline_ms, document_cb cb,
                       void *arg)
{
    struct hub_call *c = call_make(h, NULL, AF_DOCUMENT, k);
    uint64_t now = loop_now_ms(h->base.env.loop);
    cJSON *j;

    c->document = cb;
    c->document_arg = arg;
    if (!c->id)
        return; /* its timer says so */
    timer_start(&c->deadline, deadline_ms > now ? deadline_ms - now : 0);
    j = cJSON_CreateObject();
    wire_add_key(j, k);
    call_send(c, AF_DOCUMENT, j);
}

/* A stop, a forgetting or a claim that nobody waits for: sweep's own. */
static void call_nobody(struct hub *h, enum agent_frame type, const struct run_key *k)
{
    cJSON *j = cJSON_CreateObject();

    wire_add_key(j, k);
    cJSON_AddNumberToObject(j, "graceMs", SWEEP_GRACE_MS);
    if (type == AF_CLAIM)
        hub_tell_state(h, j); /* that has it: whose past has this one, knows of it */
    wire_tell(h->stream, type, ++h->next_id, j);
}

static int listed_read(const cJSON *run, struct arena *a, struct run_listed *ret)
{
    const cJSON *workers = cJSON_GetObjectItemCaseSensitive(run, "workers"), *w, *g;
    struct run_hold *h = arena_array(a, struct run_hold, (size_t)cJSON_GetArraySize(workers) + 1);

    memset(ret, 0, sizeof *ret);
    int rc = wire_observation_parse(run, &ret->seen, NULL);
    (void)snprintf(ret->cluster, sizeof ret->cluster, "%.63s", wire_str(run, "cluster"));
    (void)snprintf(ret->ns, sizeof ret->ns, "%.63s", wire_str(run, "namespace"));
    (void)snprintf(ret->name, sizeof ret->name, "%.255s", wire_str(run, "workload"));
    ret->since_ms = (int64_t)wire_u64(run, "since");
    ret->state_rv = wire_u64(run, "stateRv");
    ret->holds = h;
    cJSON_ArrayForEach(w, workers)
    {
        (void)snprintf(h[ret->n_holds].node, sizeof h->node, "%.255s", wire_str(w, "node"));
        h[ret->n_holds].devices = 0;
        cJSON_ArrayForEach(g, cJSON_GetObjectItemCaseSensitive(
                                  w, "gpus")) if (cJSON_IsNumber(g) && g->valueint >= 0 &&
                                                  g->valueint < LIMIT_NODE_GPUS) h[ret->n_holds]
            .devices |= 1ull << g->valueint;
        ret->n_holds++;
    }
    return rc;
}

static void sweep_listed(struct hub_call *c, const cJSON *j)
{
    const cJSON *run;
    AUTO_ARENA a = arena_create(0);

    cJSON_ArrayForEach(run, cJSON_GetObjectItemCaseSensitive(j, "runs"))
    {
        struct run_listed r;
        arena_reset(a);
        if (listed_read(run, a, &r) < 0)
            continue;
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
static void promises_ask(struct hub_call *c, int64_t from)
{
    cJSON *j = cJSON_CreateObject();

    cJSON_AddNumberToObject(j, "from", (double)from);
    cJSON_AddNumberToObject(j, "olderMs", (double)c->older_ms);
    call_send(c, AF_BOOK, j);
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
static void promises_let_go(struct hub_call *c, cJSON *uids)
{
    cJSON *j = cJSON_CreateObject();

    cJSON_AddStringToObject(j, "cluster", hub_cluster(c->hub));
    cJSON_AddNumberToObject(j, "rv", (double)c->rv);
    cJSON_AddItemToObject(j, "uids", uids);
    wire_tell(c->hub->stream, AF_LET_GO, ++c->hub->next_id, j);
}

static void promises_told(struct hub_call *c, const cJSON *j)
{
    struct observation seen = {.state = RUN_UNKNOWN};
    int64_t next = wire_i64(j, "next");
    cJSON *uids = cJSON_CreateArray();
    const cJSON *i;

    cJSON_ArrayForEach(i, cJSON_GetObjectItemCaseSensitive(j, "promises"))
    {
        const struct run_promise p = {.uid = wire_str(i, "uid"),
                                      .cluster = wire_str(i, "cluster"),
                                      .epoch = wire_i64(i, "epoch"),
                                      .rv = wire_u64(i, "rv")};
        if (p.rv <= c->rv && c->promised(&p, c->promised_arg))
            cJSON_AddItemToArray(uids, cJSON_CreateString(p.uid));
    }
    if (cJSON_GetArraySize(uids))
        promises_let_go(c, uids);
    else
        cJSON_Delete(uids);
    if (next > 0) {
        c->id = ++c->hub->next_id;
        promises_ask(c, next);
        return;
    }
    str_copy(seen.message, sizeof seen.message, wire_str(j, "full"));
    call_finish(c, OUT_DONE, &seen, NULL);
}

void hub_call_answer(struct hub *h, const struct frame *f, const cJSON *j)
{
    struct hub_call *c = NULL;
    struct observation o;
    struct err err = {0};
    const cJSON *seen = cJSON_GetObjectItemCaseSensitive(j, "seen");
    int64_t out = wire_i64(j, "outcome");

    list_for_each (it, &h->calls) {
        struct hub_call *k = container_of(it, struct hub_call, link);
        if (k->id == f->id)
            c = k;
    }
    if (!c) /* after its deadline */
        return;
    if (c->judge) {
        sweep_listed(c, j);
        return;
    }
    if (c->promised && out == OUT_DONE) {
        promises_told(c, j);
        return;
    }
    if (c->document && out == OUT_DONE) {
        document_finish(c, OUT_DONE, wire_str(j, "document"), NULL);
        return;
    }
    bool has = seen && wire_observation_parse(seen, &o, NULL) == 0;
    if (has) {
        o.key = c->key;
        o.seen_ms = loop_now_ms(h->base.env.loop);
    }
    bool told = *wire_str(j, "text") != '\0';
    if (told) {
        int64_t code = wire_i64(j, "code");
        (void)err_field(&err, code < 0 && code >= -E_ROW_NR ? (int)code : E_INTERNAL,
                        wire_str(j, "field"), "%s", wire_str(j, "text"));
    }
    if (out != OUT_DONE && out != OUT_REJECTED)
        out = OUT_UNKNOWN;
    if (out == OUT_DONE && !has &&
        c->type != AF_INVENTORY) /* it answers, and we do not understand */
        out = OUT_UNKNOWN;
    call_finish(c, (enum outcome)out, has ? &o : NULL, told ? &err : NULL);
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
