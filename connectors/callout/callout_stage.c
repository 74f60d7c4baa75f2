/* Looks at a checkpoint where runners would resume from it: the server runs our own tool there, and
 * hands on what that says. The same question has the same key, so however often it is asked, by
 * whichever leader, one tool reads; the call ends by its deadline, and the tool goes on. Nothing is
 * taken from a server's own words: what is wrong with a checkpoint our tool says. */
#include "connectors/callout/callout_internal.h"

#include "connectors/report/report.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define PACE_MIN_MS 250
#define PACE_MAX_MS 5000
#define OPTIONS_MAX 24

bool callout_stages(const struct connector *base)
{
    const struct callout *c = container_of(base, struct callout, base);

    return c->stages && callout_has_runners(c);
}

/* ---- what is asked ---- */
struct words {
    const char **v;
    uint32_t n;
};

static void word(struct words *x, const char *name, const char *value)
{
    INV(x->n + 2 <= OPTIONS_MAX);
    x->v[x->n++] = name;
    if (value)
        x->v[x->n++] = value;
}

static const char *number(struct arena *a, int64_t v)
{
    return arena_printf(a, "%lld", (long long)v);
}

static void argv_make(const struct run_order *o, struct arena *a, struct words *x)
{
    x->v = arena_array(a, const char *, OPTIONS_MAX);
    word(x, "run", NULL);
    word(x, "--stage", NULL);
    word(x, "--workload", arena_strdup(a, o->key.uid));
    if (!o->look_epoch) {
        int64_t world = o->placement && !o->reshard ? o->placement->n_assignments : 0;
        word(x, "--resume", arena_strdup(a, o->resume_path));
        word(x, "--resume-digest", arena_strdup(a, o->resume_digest));
        word(x, "--world", number(a, world));
        return;
    }
    word(x, "--checkpoint-dir", arena_strdup(a, o->checkpoint_dir));
    word(x, "--look", number(a, o->look_epoch));
    if (o->look_workers)
        word(x, "--workers", number(a, o->look_workers));
    if (o->shared)
        word(x, "--shared", NULL);
    if (o->resume_step >= 0) {
        word(x, "--known-epoch", number(a, o->resume_epoch));
        word(x, "--known-step", number(a, o->resume_step));
    }
}

/* How its store is reached, and nothing else of the workload's environment. */
static uint32_t store_env(const struct run_order *o, struct arena *a, const char ***ret)
{
    uint32_t n = 0, all = 0;

    while (o->env && o->env[all])
        all++;
    *ret = arena_array(a, const char *, all + 1);
    for (uint32_t i = 0; i < all; i++)
        if (strncmp(o->env[i], "AWS_", 4) == 0)
            (*ret)[n++] = arena_strdup(a, o->env[i]);
    return n;
}

/* By what is asked alone: not by who asks, nor for which try. */
static void skey_make(const struct words *x, char ret[CALLOUT_SKEY_MAX])
{
    unsigned char digest[32];
    AUTO_BUF text;

    buf_init(&text, WIRE_TEXT_MAX);
    for (uint32_t i = 0; i < x->n; i++)
        buf_add(&text, x->v[i], strlen(x->v[i]) + 1);
    INV(!text.failed && EVP_Digest(text.p, text.n, digest, NULL, EVP_sha256(), NULL) == 1);
    for (unsigned i = 0; i < (CALLOUT_SKEY_MAX - 1) / 2; i++)
        (void)snprintf(ret + (size_t)2 * i, 3, "%02x", digest[i]);
}

void callout_stage_ask(struct callout_call *k)
{
    char path[sizeof k->skey + 16];

    (void)snprintf(path, sizeof path, "/stages/%s", k->skey);
    callout_call_send(k, "PUT", path, &schema_callout_stage, k->stage);
}

void callout_stage(struct connector *base, const struct run_order *o, struct call *call)
{
    struct callout *c = callout_of(base);
    struct callout_call *k = callout_call_make(c, call, CALLOUT_STAGE, &o->key);
    const struct connector_env *e = &base->env;
    int64_t time_ms = 0;
    char key[RUN_KEY_MAX];
    struct words x = {.n = 0};
    struct err err;

    if (!callout_stages(base)) {
        (void)err_set(&err, E_NOTIMPL,
                      "the server of target %.100s does not say that it stages checkpoints",
                      base->target);
        callout_call_reject(k, &err);
        return;
    }
    run_key_print(&o->key, key);
    k->mem = arena_create(0);
    argv_make(o, k->mem, &x);
    skey_make(&x, k->skey);
    struct callout_stage *s = arena_new(k->mem, struct callout_stage);
    *s = (struct callout_stage){.key = arena_strdup(k->mem, key),
                                .cluster = arena_strdup(k->mem, e->cluster_uid
                                                                    ? e->cluster_uid(e->arg)
                                                                    : ""),
                                .state_rv = e->state_rv ? e->state_rv(e->arg, &time_ms) : 0,
                                .argv = x.v,
                                .n_argv = x.n};
    s->n_env = store_env(o, k->mem, &s->env);
    k->stage = s;
    k->pace_ms = PACE_MIN_MS;
    callout_stage_ask(k);
}

/* ---- what is said ---- */
static void ask_later(struct callout_call *k)
{
    uint64_t now = loop_now_ms(k->c->base.env.loop), pace = k->pace_ms;
    struct err err;

    if (now + pace >= k->call->deadline_ms) {
        (void)err_set(&err, E_UNKNOWN, "target %.100s has not read it in time, and goes on",
                      k->c->base.target);
        callout_call_end(k, OUT_UNKNOWN, NULL, &err);
        return;
    }
    k->pace_ms = pace * 2 < PACE_MAX_MS ? pace * 2 : PACE_MAX_MS;
    timer_start(&k->deadline, pace);
}

static void said(struct callout_call *k, const struct stage_said *s)
{
    struct observation o = {.key = k->key, .state = RUN_UNKNOWN, .checkpoint = s->checkpoint};
    struct err err;

    str_copy(o.message, sizeof o.message, s->message);
    if (s->said == STAGE_HOLDS) {
        callout_call_end(k, OUT_DONE, &o, NULL);
        return;
    }
    if (s->said == STAGE_REFUSED) {
        str_copy(o.reason, sizeof o.reason, s->reason);
        bool unreached = end_row(s->reason)->checkpoint == CHECKPOINT_UNREACHED;
        (void)err_field(&err, unreached ? E_IO : E_CHECKPOINT, s->reason, "%.500s", s->message);
        callout_call_end(k, OUT_REJECTED, &o, &err);
        return;
    }
    (void)err_set(&err, E_UNKNOWN, "target %.100s: %.400s", k->c->base.target, s->message);
    callout_call_end(k, OUT_UNKNOWN, NULL, &err);
}

/* It has read nothing: it is asked again later. No refusal of a server's says anything about the
 * checkpoint, nor that the target refuses the run. */
static void not_now(struct callout_call *k, const char *why)
{
    struct err err;

    (void)err_set(&err, E_UNAVAIL, "target %.100s has not staged it: %.300s", k->c->base.target,
                  why);
    callout_call_end(k, OUT_REJECTED, NULL, &err);
}

void callout_stage_came(struct callout_call *k, const struct web_answer *a)
{
    struct callout_staged *s = NULL;
    struct stage_said line;
    char why[64];
    struct err err;
    AUTO_ARENA mem = arena_create(CALLOUT_ANSWER_MAX * 4);

    if (a->status != 200) {
        (void)snprintf(why, sizeof why, "it answered %d", a->status);
        not_now(k, why);
        return;
    }
    int rc = callout_read(k->c, &schema_callout_staged, a, mem, (void **)&s, &err);
    if (rc < 0 || strcmp(s->key, k->skey) != 0) {
        (void)err_set(&err, E_UNKNOWN, "target %.100s answers about another checkpoint",
                      k->c->base.target);
        callout_call_end(k, OUT_UNKNOWN, NULL, &err);
    } else if (!s->done) {
        ask_later(k);
    } else if (report_stage_read(s->said, strlen(s->said), &line, &err) < 0) {
        not_now(k, *s->message ? s->message : err.text);
    } else {
        said(k, &line);
    }
}
