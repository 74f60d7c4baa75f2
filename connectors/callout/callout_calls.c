/* The calls, and those about runs. Each ends once: by its answer, by its deadline, or with the
 * connector. An answer counts when it is signed for this request and speaks of this run; anything
 * else leaves the outcome unknown, whatever its status says. */
#include "connectors/callout/callout_internal.h"

#include "api/base/log.h"

#include <stdio.h>
#include <string.h>

/* ---- making and ending ---- */
static void call_expired(void *arg)
{
    struct callout_call *k = arg;
    struct err err;

    if (k->op == CALLOUT_STAGE && !k->why.code) {
        callout_stage_ask(k);
        return;
    }
    if (k->why.code || k->op == CALLOUT_TOLD) {
        enum outcome out = !k->why.code               ? OUT_DONE
                           : k->why.code == E_UNKNOWN ? OUT_UNKNOWN
                                                      : OUT_REJECTED;
        callout_call_end(k, out, NULL, k->why.code ? &k->why : NULL);
        return;
    }
    (void)err_set(&err, E_UNKNOWN, "target %.100s has not told of its end in time",
                  k->c->base.target);
    callout_call_end(k, OUT_UNKNOWN, NULL, &err);
}

struct callout_call *callout_call_make(struct callout *c, struct call *call, enum callout_op op,
                                       const struct run_key *key)
{
    struct callout_call *k = mem_new(struct callout_call);

    k->c = c;
    k->op = op;
    k->call = call;
    if (key)
        k->key = *key;
    timer_init(&k->deadline, c->base.env.loop, call_expired, k);
    list_push(&c->calls, &k->link);
    return k;
}

void callout_call_end(struct callout_call *k, enum outcome out, const struct observation *seen,
                      const struct err *err)
{
    struct call *call = k->call;
    struct err why = err ? *err : (struct err){0};
    struct observation o = seen ? *seen : (struct observation){0};

    timer_stop(&k->deadline);
    list_remove(&k->link);
    (void)arena_destroy(k->mem);
    mem_free(k);
    if (call)
        call->done(call, out, seen ? &o : NULL, err ? &why : NULL);
}

void callout_call_reject(struct callout_call *k, const struct err *err)
{
    k->why = *err;
    timer_start(&k->deadline, 0);
}

void callout_calls_lost(struct callout *c, const char *why)
{
    struct err err;

    (void)err_set(&err, E_UNKNOWN, "target %.100s: %.200s", c->base.target, why);
    while (!list_empty(&c->calls)) {
        struct callout_call *k = container_of(c->calls.next, struct callout_call, link);
        if (k->rq)
            web_cancel(k->rq);
        callout_call_end(k, k->why.code ? OUT_REJECTED : OUT_UNKNOWN, NULL,
                         k->why.code ? &k->why : &err);
    }
}

/* ---- answers ---- */
/* What a signed answer of these says was not done. */
static int code_of(int status)
{
    switch (status) {
    case 400:
    case 422:
        return E_INVALID;
    case 401:
        return E_UNAUTH;
    case 403:
        return E_FORBIDDEN;
    case 404:
    case 405:
    case 501:
        return E_NOTIMPL;
    case 409:
        return E_STALE;
    case 413:
        return E_TOOLARGE;
    case 429:
        return E_LIMIT;
    case 503:
        return E_UNAVAIL;
    case 507:
        return E_NOSPACE;
    default:
        return 0;
    }
}

/* What it blames: as it says, else as its status does. */
static struct refusal blamed(int code, const struct callout_refusal *r, const struct web_answer *a)
{
    struct refusal f = refusal_of_code(code);

    if (a->status == 429)
        f.class_ = REFUSED_THROTTLED;
    if (r && r->class_)
        f.class_ = r->class_;
    if (r && r->scope && r->scope != BLAMES_POOL) /* which is Hanse's own word */
        f.scope = r->scope;
    str_copy(f.name, sizeof f.name, r ? r->name : "");
    f.retry_ms = a->retry_after_ms;
    return f;
}

static void call_refused(struct callout_call *k, const struct web_answer *a)
{
    struct callout_refusal *r = NULL;
    struct err err;
    int code = code_of(a->status);
    AUTO_ARENA mem = arena_create(CALLOUT_ANSWER_MAX * 4);

    if (callout_read(k->c, &schema_callout_refusal, a, mem, (void **)&r, &err) < 0)
        r = NULL;
    const char *said = r && *r->message ? r->message : "it does not say why";
    if (code && !a->doubt)
        (void)err_set(&err, code, "target %.100s: %.300s", k->c->base.target, said);
    else
        (void)err_set(&err, E_UNKNOWN, "target %.100s answered %d%s: %.200s", k->c->base.target,
                      a->status, a->doubt ? " to a later attempt" : "", said);
    if (code && k->call)
        k->call->refused = blamed(code, r, a);
    callout_call_end(k, code && !a->doubt ? OUT_REJECTED : OUT_UNKNOWN, NULL, &err);
}

/* What was asked on our own before a run's end was seen may be answered after it, with what was
 * true then: an end is final. */
static void looks_end(struct callout *c, const struct run_key *key)
{
    list_for_each_safe (it, tmp, &c->calls) {
        struct callout_call *k = container_of(it, struct callout_call, link);
        if (k->op != CALLOUT_LOOK || !k->rq || !run_key_same(&k->key, key))
            continue;
        web_cancel(k->rq);
        callout_call_end(k, OUT_UNKNOWN, NULL, NULL);
    }
}

static bool over(const struct observation *o)
{
    return o->state == RUN_ENDED || o->state == RUN_ABSENT;
}

static void call_seen(struct callout_call *k, const struct web_answer *a)
{
    struct observation *o = NULL;
    struct run_workers *workers = NULL;
    struct callout_reported *left = NULL;
    struct err err;
    uint64_t now = loop_now_ms(k->c->base.env.loop);
    AUTO_ARENA mem = arena_create(CALLOUT_ANSWER_MAX * 8);
    int rc = callout_read(k->c, &schema_observation, a, mem, (void **)&o, &err);

    if (rc == 0 && !run_key_same(&o->key, &k->key))
        rc = err_set(&err, E_UNKNOWN,
                     "target %.100s answers for another run than it was asked about",
                     k->c->base.target);
    if (rc == 0)
        rc = callout_read(k->c, &schema_callout_reported, a, mem, (void **)&left, &err);
    if (rc == 0)
        rc = callout_read(k->c, &schema_run_workers, a, mem, (void **)&workers, &err);
    if (rc == 0)
        rc = callout_seen(k->c, o, left, workers, mem, &err);
    if (rc == 0)
        callout_workers(k->c, o, workers);
    if (rc < 0) {
        callout_call_end(k, OUT_UNKNOWN, NULL, &err);
    } else if (k->op == CALLOUT_STOP && !over(o) && !o->unlisted) {
        timer_start(&k->deadline, k->call->deadline_ms > now ? k->call->deadline_ms - now : 0);
    } else {
        struct callout *c = k->c;
        struct observation seen = *o;
        bool unasked = k->op == CALLOUT_LOOK && o->state != RUN_UNKNOWN;
        if (over(o))
            looks_end(c, &seen.key);
        callout_call_end(k, OUT_DONE, o, NULL);
        if (unasked)
            c->base.env.events->observed(c->base.env.arg, &seen);
    }
}

/* It does not know that revision any more, or knows no changes of nodes at all. */
static bool since_unknown(int status)
{
    int code = code_of(status);

    return status == 410 || code == E_INVALID || code == E_NOTIMPL;
}

static void answered(void *arg, enum outcome out, const struct web_answer *a, const struct err *err)
{
    struct callout_call *k = arg;
    struct err why;

    k->rq = NULL;
    if (out != OUT_DONE)
        callout_call_end(k, out, NULL, err);
    else if (callout_verify(k->c, a, &why) < 0)
        callout_call_end(k, OUT_UNKNOWN, NULL, &why);
    else if (*k->since && since_unknown(a->status))
        callout_nodes_forgotten(k);
    else if (k->op == CALLOUT_STAGE)
        callout_stage_came(k, a);
    else if (a->status != 200)
        call_refused(k, a);
    else if (k->op == CALLOUT_NODES || k->op == CALLOUT_LIST)
        callout_page_came(k, a);
    else if (k->op >= CALLOUT_MACHINE)
        callout_machine_came(k, a);
    else if (k->op == CALLOUT_PROBE || k->op == CALLOUT_ORDER)
        callout_call_end(k, OUT_DONE, NULL, NULL);
    else
        call_seen(k, a);
}

void callout_observed(struct callout *c, struct observation *o)
{
    if (!over(o))
        return;
    looks_end(c, &o->key);
    list_for_each_safe (it, tmp, &c->calls) {
        struct callout_call *k = container_of(it, struct callout_call, link);
        if (k->op != CALLOUT_STOP || !run_key_same(&k->key, &o->key) || k->why.code)
            continue;
        if (k->rq)
            web_cancel(k->rq);
        callout_call_end(k, OUT_DONE, o, NULL);
        return; /* the callee may have made others: those end by their own answer */
    }
}

/* ---- asking ---- */
/* An order and a signal leave once: what became of one that was not answered is found out by who
 * asked for it, who knows whether this server may be sent the same order again. */
void callout_call_send(struct callout_call *k, const char *method, const char *path,
                       const struct schema *schema, const void *body)
{
    struct callout *c = k->c;
    uint64_t now = loop_now_ms(c->base.env.loop);
    char full[RUN_KEY_MAX + 700];
    struct err err;
    AUTO_BUF text;

    buf_init(&text, WIRE_TEXT_MAX);
    if (!c->web)
        (void)err_set(&err, E_UNAVAIL, "target %.100s: %.200s", c->base.target, c->why);
    if (!c->web || callout_key_check(c, &err) < 0 ||
        (schema && body_print_json(schema, body, &text, &err) < 0)) {
        callout_call_reject(k, &err);
        return;
    }
    (void)snprintf(full, sizeof full, "/v1%s", path);
    const struct web_ask ask = {.method = method,
                                .path = full,
                                .body = slice_make(text.n ? text.p : "", text.n),
                                .idempotent = k->op != CALLOUT_SUBMIT && k->op != CALLOUT_SIGNAL,
                                .answers_final = true,
                                .answer_max = CALLOUT_ANSWER_MAX,
                                .attempt_ms = CALLOUT_ATTEMPT_MS,
                                .deadline_ms =
                                    k->call ? k->call->deadline_ms : now + 2 * CALLOUT_ATTEMPT_MS,
                                .done = answered,
                                .arg = k};
    k->rq = web_ask(c->web, &ask);
}

static void about(struct connector *base, enum callout_op op, const char *verb,
                  const struct run_key *key, int signo, uint64_t grace_ms, struct call *call)
{
    struct callout *c = callout_of(base);
    const struct connector_env *e = &base->env;
    int64_t time_ms = 0;
    const struct callout_about q = {.cluster = e->cluster_uid ? e->cluster_uid(e->arg) : "",
                                    .state_rv = e->state_rv ? e->state_rv(e->arg, &time_ms) : 0,
                                    .signo = signo,
                                    .grace_ms = grace_ms,
                                    .told = op == CALLOUT_STOP &&
                                            callout_runners_stop(c, key, signo, grace_ms)};
    char name[RUN_KEY_MAX], path[RUN_KEY_MAX + 32];

    run_key_print(key, name);
    (void)snprintf(path, sizeof path, "/runs/%s/%s", name, verb);
    callout_call_send(callout_call_make(c, call, op, key), "POST", path, &schema_callout_about, &q);
}

void callout_submit(struct connector *base, const struct run_order *o, struct call *call)
{
    struct callout *c = callout_of(base);
    struct callout_call *k = callout_call_make(c, call, CALLOUT_SUBMIT, &o->key);
    struct callout_order order;
    char name[RUN_KEY_MAX], path[RUN_KEY_MAX + 32];
    struct err err;
    AUTO_ARENA a = arena_create(0);

    if (callout_order_make(c, o, a, &order, &err) < 0) {
        callout_call_reject(k, &err);
        return;
    }
    run_key_print(&o->key, name);
    (void)snprintf(path, sizeof path, "/runs/%s", name);
    callout_call_send(k, "PUT", path, &schema_callout_order, &order);
}

void callout_find(struct connector *base, const struct run_key *key, struct call *call)
{
    about(base, CALLOUT_FIND, "find", key, 0, 0, call);
}

void callout_look(struct callout *c, const struct run_key *key)
{
    about(&c->base, CALLOUT_LOOK, "find", key, 0, 0, NULL);
}

void callout_quiesce(struct connector *base, const struct run_key *key, int signo,
                     uint64_t grace_ms, struct call *call)
{
    struct callout *c = callout_of(base);

    if (callout_runners_stop(c, key, signo, grace_ms))
        timer_start(&callout_call_make(c, call, CALLOUT_TOLD, key)->deadline, 0);
    else
        about(base, CALLOUT_SIGNAL, "signal", key, signo, grace_ms, call);
}

void callout_stop(struct connector *base, const struct run_key *key, uint64_t grace_ms,
                  struct call *call)
{
    about(base, CALLOUT_STOP, "stop", key, 0, grace_ms, call);
}

void callout_probe(struct connector *base, struct call *call)
{
    callout_call_send(callout_call_make(callout_of(base), call, CALLOUT_PROBE, NULL), "GET",
                      "/hello", NULL, NULL);
}
