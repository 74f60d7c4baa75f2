/* Runners of a callout target that call home. The target's server says what state a run is in, and
 * proves its end; its runners add what they alone know: the lease that they hold, and how they
 * ended. */
#include "connectors/callout/callout_internal.h"

bool callout_has_runners(const struct callout *c)
{
    const struct target_connection *g = object_as(c->doc, target)->spec->connection;

    return g && g->runners;
}

/* What the server said last, with what the runner says now; where it has said nothing in this term
 * it is asked. */
static void runner_told(void *arg, const struct run_key *k)
{
    struct callout *c = arg;
    struct observation o;

    if (home_runs_seen(c->home, k, &o))
        c->base.env.events->observed(c->base.env.arg, &o);
    else if (c->reachable)
        callout_look(c, k);
}

void callout_home_begin(struct callout *c)
{
    static const struct home_runs_events events = {.told = runner_told};

    c->home = home_runs_create(&c->base.env, &events, c);
}

void callout_home_end(struct callout *c, const char *why)
{
    c->home = home_runs_destroy(c->home, why);
}

/* ---- checkpoints ---- */
void callout_checkpoint(struct connector *base, const struct run_key *key, int64_t number,
                        uint64_t grace_ms, struct call *call)
{
    struct callout *c = callout_of(base);
    struct callout_call *k = callout_call_make(c, call, CALLOUT_TOLD, key);
    struct err err;

    if (!callout_has_runners(c))
        (void)err_set(&err, E_NOTIMPL,
                      "target %.100s has no runners that call home (spec.connection.runners): "
                      "nobody can ask its program",
                      base->target);
    else if (!home_runs_reach(c->home, key))
        (void)err_set(&err, E_UNKNOWN, "not all runners of it have called home at the moment");
    else
        err.code = 0;
    if (err.code) {
        callout_call_reject(k, &err);
        return;
    }
    (void)home_runs_save(c->home, key, number, grace_ms);
    timer_start(&k->deadline, 0);
}

/* ---- its order ---- */
static int checkpoints_check(const struct callout *c, const struct run_order *o, struct err *err)
{
    if ((!o->saves && !*o->resume_path) || !callout_has_runners(c) || c->checkpoints)
        return 0;
    return err_field(err, E_NOTIMPL, "spec.checkpoint",
                     "the server of target %.100s does not say that it hands home.options "
                     "on to its runners, so they would keep no checkpoints",
                     c->base.target);
}

int callout_home_order(const struct callout *c, const struct run_order *o, struct arena *a,
                       struct callout_order *ret, struct err *err)
{
    struct home_brought h;
    int rc = checkpoints_check(c, o, err);

    if (rc == 0)
        rc = home_order_make(&c->base.env, c->base.target, callout_has_runners(c), o, a, &h, err);
    if (rc <= 0)
        return rc;
    ret->home = arena_new(a, struct callout_home);
    *ret->home = (struct callout_home){.addresses = h.way.addresses,
                                       .n_addresses = h.way.n_addresses,
                                       .ca = h.way.ca,
                                       .tokens = h.way.tokens,
                                       .n_tokens = h.way.n_tokens,
                                       .options = h.options,
                                       .n_options = h.n_options,
                                       .proxy = h.way.proxy,
                                       .proxy_auth = h.way.proxy_login};
    return 0;
}

int callout_runner(struct connector *base, const struct home_arrival *a, struct err *err)
{
    struct callout *c = callout_of(base);

    if (!callout_has_runners(c)) {
        home_refuse(a->stream, HOME_NOT_NOW, "runners of its target do not call home");
        return err_set(err, E_CONFLICT, "spec.connection.runners of target %.100s is not set",
                       base->target);
    }
    return home_runs_take(c->home, a, err);
}

bool callout_runners_stop(struct callout *c, const struct run_key *k, int signo, uint64_t grace_ms)
{
    bool all = home_runs_reach(c->home, k);

    return home_runs_stop(c->home, k, signo, grace_ms) > 0 && all;
}

bool callout_reaches(const struct connector *base, const struct run_key *k)
{
    const struct callout *c = container_of(base, struct callout, base);

    return home_runs_reach(c->home, k);
}

void callout_renew(struct connector *base, const struct run_offer *offers, size_t n)
{
    home_runs_renew(callout_of(base)->home, offers, n);
}

void callout_members(struct connector *base, const char *const *addresses, size_t n)
{
    home_runs_members(callout_of(base)->home, addresses, n);
}

/* ---- what is beside its programs ---- */
static int streams_check(const struct callout *c, const char *what, struct err *err)
{
    return callout_has_runners(c)
               ? 0
               : err_set(err, E_NOTIMPL,
                         "target %.100s has no %s: it has no runners that call home "
                         "(spec.connection.runners), through whom alone they would come",
                         c->base.target, what);
}

int callout_logs(struct connector *base, const struct run_key *k, const struct log_request *rq,
                 const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    const struct callout *c = callout_of(base);
    int rc = streams_check(c, "logs", err);

    return rc < 0 ? rc : home_runs_logs(c->home, k, rq, sink, ret, err);
}

int callout_exec(struct connector *base, const struct run_key *k, const struct exec_request *rq,
                 const struct log_sink *sink, struct exec_session **ret, struct err *err)
{
    const struct callout *c = callout_of(base);
    int rc = streams_check(c, "exec", err);

    return rc < 0 ? rc : home_runs_exec(c->home, k, rq, sink, ret, err);
}

int callout_forward(struct connector *base, const struct run_key *k,
                    const struct forward_request *rq, const struct log_sink *sink,
                    struct exec_session **ret, struct err *err)
{
    const struct callout *c = callout_of(base);
    int rc = streams_check(c, "forwarded ports", err);

    return rc < 0 ? rc : home_runs_forward(c->home, k, rq, sink, ret, err);
}
