/* The effects of a driver: steps into the log, calls to the connector, and what their answers mean.
 * A call that ends unknown is followed by find(), never by the same call again. */
#include "controlplane/run/brain_internal.h"

#include "api/base/log.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define CALL_DEADLINE_MS 15000
#define BACKOFF_MAX_MS 5000
#define ENV_MAX 600

static void backoff(struct driver *d)
{
    uint64_t jitter = loop_random_u64(d->brain->loop) % (d->backoff_ms / 2 + 1);

    driver_later(d, d->backoff_ms + jitter);
    d->backoff_ms = d->backoff_ms * 2 < BACKOFF_MAX_MS ? d->backoff_ms * 2 : BACKOFF_MAX_MS;
}

/* ---- steps
 * --------------------------------------------------------------------------------------------------------------
 */
struct step {
    struct driver *d;
    enum run_step step;
    int64_t epoch, try_;
    uint64_t term;
};

static void step_answered(void *arg, const struct result *r, const struct err *err)
{
    struct step *s = arg;
    struct driver *d = s->d;

    brain_root(d->brain); /* the state with this step in it; d stays, since it is still proposing */
    d->proposing = false;
    if (!err && r->code == 0) {
        /* The intent is ours, in this term: it may be carried out, once. */
        if (s->step == STEP_DISPATCH && s->term == d->brain->term) {
            d->own_epoch = s->epoch;
            d->own_try = s->try_;
        }
        mem_free(s);
        driver_tick(d);
        return;
    }
    if (!err && r->code != E_STALE)
        log_event(LOG_WARN, "run.step",
                  LOG_FIELDS({"workload", log_str(d->name)},
                             {"step", log_str(run_step_text(s->step))}, {"why", log_str(r->text)}));
    mem_free(s);
    if (d->dead)
        driver_tick(d);
    else
        backoff(d);
}

static void step_propose(struct driver *d, union command *c)
{
    struct run_cmd *r = &c->run;
    struct step *s = mem_new(struct step);

    c->head.type = CMD_RUN;
    brain_request_id(d->brain, c->head.request_id);
    (void)snprintf(c->head.user, sizeof c->head.user, "hanse:driver");
    (void)snprintf(r->ns, sizeof r->ns, "%s", d->ns);
    (void)snprintf(r->name, sizeof r->name, "%s", d->name);
    (void)snprintf(r->uid, sizeof r->uid, "%s", d->uid);
    r->epoch = d->key.epoch;
    r->try_ = d->key.try_ + (r->step == STEP_DISPATCH);
    *s = (struct step){d, r->step, r->epoch, r->try_, d->brain->term};
    d->proposing = true;
    brain_propose(d->brain, c, step_answered, s);
}

void driver_step(struct driver *d, enum run_step step, const char *reason, const char *message)
{
    union command c = {.run = {.step = step}};

    (void)snprintf(c.run.reason, sizeof c.run.reason, "%s", reason);
    (void)snprintf(c.run.message, sizeof c.run.message, "%s", message);
    step_propose(d, &c);
}

void driver_step_end(struct driver *d, enum run_step step, bool requeue)
{
    union command c = {.run = {.step = step, .requeue = requeue}};
    const struct observation *o = &d->seen;

    c.run.exit_code = o->exit_code;
    c.run.term_signal = o->term_signal;
    c.run.proof = o->proof ? o->proof : step == STEP_ABSENT ? PROOF_NEVER_STARTED : PROOF_TREE_GONE;
    if (step == STEP_ENDED && !*o->reason)
        (void)snprintf(c.run.reason, sizeof c.run.reason, "%s",
                       o->lease_lost                          ? "LeaseLost"
                       : o->exit_code == 0 && !o->term_signal ? "Completed"
                       : o->exit_code == 75                   ? "SavedAndStopped"
                                                              : "Error");
    else
        (void)snprintf(c.run.reason, sizeof c.run.reason, "%s",
                       *o->reason ? o->reason : run_step_text(step));
    (void)snprintf(c.run.message, sizeof c.run.message, "%s", o->message);
    if (step == STEP_LEASE_OVER)
        (void)snprintf(c.run.message, sizeof c.run.message,
                       "its target was out of reach for longer than its runner's lease");
    step_propose(d, &c);
}

/* ---- the order
 * -------------------------------------------------------------------------------------------------------------
 */
struct order_env {
    const char *v[ENV_MAX];
    unsigned n;
};

/* Resolves spec.run.env; NULL and an error when a Secret is missing. */
static const char *const *env_make(struct driver *d, struct arena *a, struct err *err)
{
    const struct run_spec *run = object_as(d->o, workload)->spec->run;
    struct order_env *e = arena_new(a, struct order_env);
    struct brain *b = d->brain;

    for (uint32_t i = 0; i < run->n_env && e->n < ENV_MAX - 1; i++) {
        const struct env_var *v = &run->env[i];
        if (!v->valueFrom) {
            e->v[e->n++] = arena_printf(a, "%s=%s", v->name, v->value);
            continue;
        }
        const char *text =
            b->cfg.secret_get
                ? b->cfg.secret_get(b->cfg.arg, d->ns, v->valueFrom->secret, v->valueFrom->key)
                : NULL;
        if (!text) {
            (void)err_set(err, E_NOTFOUND, "env %s: Secret %s has no key %s in namespace %s",
                          v->name, v->valueFrom->secret, v->valueFrom->key, d->ns);
            return NULL;
        }
        e->v[e->n++] = arena_printf(a, "%s=%s", v->name, text);
        b->cfg.secret_put(b->cfg.arg, text);
    }
    return e->v;
}

static void call_begin(struct driver *d, enum driver_call kind, uint64_t deadline_ms);

static void submit(struct driver *d, struct site *t)
{
    const struct workload_spec *s = object_as(d->o, workload)->spec;
    AUTO_ARENA a = arena_create(0);
    struct err err;
    const char *const *env = env_make(d, a, &err);

    if (!env) { /* provably without effect: the place is given back, with the reason */
        d->seen =
            (struct observation){.key = d->key, .state = RUN_ABSENT, .proof = PROOF_NEVER_STARTED};
        (void)snprintf(d->seen.reason, sizeof d->seen.reason, "SecretMissing");
        (void)snprintf(d->seen.message, sizeof d->seen.message, "%s", err.text);
        d->has_seen = true;
        backoff(d);
        return;
    }
    struct run_order o = {.key = d->key,
                          .workload = d->o,
                          .placement = object_as(d->o, workload)->status->placement,
                          .env = env,
                          .lease_ms = driver_lease_ms(d->o, t),
                          .checkpoint_dir = "",
                          .resume_path = "",
                          .resume_digest = ""};
    if (s->checkpoint && s->checkpoint->store && *s->checkpoint->store == '/')
        o.checkpoint_dir = arena_printf(a, "%s/%s/%s-%s/e%lld", s->checkpoint->store, d->ns,
                                        d->name, d->uid, (long long)d->key.epoch);
    uint64_t until = loop_now_ms(d->brain->loop) + o.lease_ms + CALL_DEADLINE_MS;
    if (until > d->granted_until_ms)
        d->granted_until_ms = until;
    call_begin(d, CALL_SUBMIT, CALL_DEADLINE_MS);
    t->connector->ops->submit(t->connector, &o, &d->call);
}

/* ---- answers
 * -----------------------------------------------------------------------------------------------------------------
 */
static void rejected(struct driver *d, const struct err *err)
{
    d->seen =
        (struct observation){.key = d->key, .state = RUN_ABSENT, .proof = PROOF_NEVER_STARTED};
    (void)snprintf(d->seen.reason, sizeof d->seen.reason, "%s", "TargetRefused");
    (void)snprintf(d->seen.message, sizeof d->seen.message, "%s", err ? err->text : "");
    d->has_seen = true;
}

static void answered(struct call *c, enum outcome out, const struct observation *seen,
                     const struct err *err)
{
    struct driver *d = container_of(c, struct driver, call);
    struct brain *b = d->brain;
    struct site *t = site_find(b, d->target);
    enum driver_call kind = (enum driver_call)d->call_kind;
    bool same = seen && seen->key.epoch == d->key.epoch && seen->key.try_ == d->key.try_;

    d->calling = false;
    brain_under_way(b, -1);
    if (d->dead || !b->leads || b->closing || d->call_key.epoch != d->key.epoch ||
        d->call_key.try_ != d->key.try_) {
        driver_tick(d);
        return;
    }
    if (out == OUT_DONE && same && !(d->has_seen && d->seen.state == RUN_ENDED)) {
        d->seen = *seen;
        d->has_seen = true;
    }
    if (out == OUT_REJECTED && kind == CALL_SUBMIT) {
        rejected(d, err);
        if (t)
            site_refused(t);
        driver_tick(d);
        return;
    }
    if (out == OUT_DONE && kind == CALL_SUBMIT && t)
        t->refused_ms = 0;
    if (out == OUT_DONE && kind == CALL_FIND && t && seen && seen->state != RUN_UNKNOWN)
        d->found_session = t->session;
    if (out == OUT_DONE && kind == CALL_SUBMIT && t)
        d->found_session = t->session;
    if (kind == CALL_QUIESCE && out == OUT_DONE)
        d->quiesced = true;
    if (out != OUT_DONE || (kind == CALL_FIND && (!seen || seen->state == RUN_UNKNOWN)) ||
        (kind == CALL_STOP && (!seen || (seen->state != RUN_ENDED && seen->state != RUN_ABSENT)))) {
        if (kind == CALL_SUBMIT)
            d->found_session = 0;
        backoff(d);
        return;
    }
    d->backoff_ms = 50;
    driver_tick(d);
}

static void call_begin(struct driver *d, enum driver_call kind, uint64_t deadline_ms)
{
    d->calling = true;
    d->call_kind = (int)kind;
    d->call_key = d->key;
    d->call =
        (struct call){.deadline_ms = loop_now_ms(d->brain->loop) + deadline_ms, .done = answered};
    brain_under_way(d->brain, 1);
}

static int signal_number(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } t[] = {{"SIGTERM", SIGTERM}, {"SIGINT", SIGINT},  {"SIGUSR1", SIGUSR1},
             {"SIGUSR2", SIGUSR2}, {"SIGHUP", SIGHUP},  {"SIGQUIT", SIGQUIT},
             {"SIGKILL", SIGKILL}, {"SIGXCPU", SIGXCPU}};

    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        if (!strcmp(t[i].name, name) || !strcmp(t[i].name + 3, name))
            return t[i].number;
    return SIGTERM;
}

void driver_call(struct driver *d, struct site *t, enum driver_call kind)
{
    const struct checkpoint_spec *ck = object_as(d->o, workload)->spec->checkpoint;
    uint64_t grace = ck && ck->grace > 0 ? (uint64_t)ck->grace : 5000;
    const struct connector_ops *ops = t->connector->ops;

    if (kind == CALL_SUBMIT) {
        submit(d, t);
        return;
    }
    call_begin(d, kind, kind == CALL_STOP ? grace + CALL_DEADLINE_MS : CALL_DEADLINE_MS);
    if (kind == CALL_FIND) {
        ops->find(t->connector, &d->key, &d->call);
    } else if (kind == CALL_QUIESCE) {
        if (!d->stop_after_ms) /* from the first attempt on, whether it is answered or not */
            d->stop_after_ms = loop_now_ms(d->brain->loop) + grace + 1000;
        ops->quiesce(t->connector, &d->key, signal_number(ck ? ck->signal : "SIGTERM"), grace,
                     &d->call);
    } else {
        ops->stop(t->connector, &d->key, grace, &d->call);
    }
}
