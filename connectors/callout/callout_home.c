/* Runners of a callout target that call home. The target's server says what state a run is in, and
 * proves its end; its runners add what they alone know: the lease that they hold, and how they
 * ended. */
#include "connectors/callout/callout_internal.h"

#include "api/base/failpoint.h"

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

    c->home = home_runs_create(c->base.env.loop, &events, c);
}

void callout_home_end(struct callout *c, const char *why)
{
    c->home = home_runs_destroy(c->home, why);
}

/* ---- checkpoints ---- */
static int checkpoints_check(const struct callout *c, const struct run_order *o, struct err *err)
{
    if (!o->saves && !*o->resume_path)
        return 0;
    if (!callout_has_runners(c))
        return err_field(err, E_NOTIMPL, "spec.checkpoint",
                         "target %.100s has no runners that call home "
                         "(spec.connection.runners), and keeps no checkpoints",
                         c->base.target);
    if (!c->checkpoints)
        return err_field(err, E_NOTIMPL, "spec.checkpoint",
                         "the server of target %.100s does not say that it hands home.options "
                         "on to its runners, so they would keep no checkpoints",
                         c->base.target);
    return 0;
}

struct options {
    const char **v;
    uint32_t n;
};
#define OPTIONS_MAX 16

static void option(struct options *x, const char *name, const char *value)
{
    INV(x->n + 2 <= OPTIONS_MAX);
    x->v[x->n++] = name;
    if (value)
        x->v[x->n++] = value;
}

/* Of hanse run: the same for all ranks, whose numbers are in their tokens. */
static void options_make(const struct run_order *o, struct arena *a, struct callout_home *ret)
{
    struct options x = {.v = arena_array(a, const char *, OPTIONS_MAX)};

    if (o->saves && *o->checkpoint_dir) {
        option(&x, "--checkpoint-dir", o->checkpoint_dir);
        option(&x, "--checkpoint-keep", arena_printf(a, "%lld", (long long)o->checkpoint_keep));
        if (*o->resume_path) {
            option(&x, "--resume", o->resume_path);
            option(&x, "--resume-digest", o->resume_digest);
        }
        if (o->reshard)
            option(&x, "--reshard", NULL);
        if (o->shared)
            option(&x, "--shared", NULL);
        if (*o->save_signal)
            option(&x, "--save-signal", o->save_signal);
    }
    ret->options = x.v;
    ret->n_options = x.n;
}

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
int callout_home_order(const struct callout *c, const struct run_order *o, struct arena *a,
                       struct callout_order *ret, struct err *err)
{
    const struct connector_env *e = &c->base.env;
    struct home_order h;
    int rc = checkpoints_check(c, o, err);

    if (rc == 0 && o->claims && !callout_has_runners(c) && !PLANTED("run.claims-dropped"))
        rc = err_field(err, E_UNAVAIL, "spec.connection.runners",
                       "it was decided to start it by runners that call home, and target %.100s "
                       "has none any more",
                       c->base.target);
    if (rc < 0 || !callout_has_runners(c))
        return rc;
    if (!e->home || !e->home(e->arg, &o->key, o->placement->n_assignments, a, &h))
        return err_field(err, E_UNAVAIL, "spec.connection.runners",
                         "runners of target %.100s cannot call home: this hub has no CA to tell "
                         "them, or no address",
                         c->base.target);
    ret->home = arena_new(a, struct callout_home);
    *ret->home = (struct callout_home){.addresses = h.addresses,
                                       .n_addresses = h.n_addresses,
                                       .ca = h.ca,
                                       .tokens = h.tokens,
                                       .n_tokens = h.n_tokens,
                                       .proxy = h.proxy,
                                       .proxy_auth = h.proxy_login};
    options_make(o, a, ret->home);
    return 0;
}

int callout_runner(struct connector *base, const struct home_arrival *a, struct err *err)
{
    struct callout *c = callout_of(base);

    if (!callout_has_runners(c)) {
        home_refuse(a->stream, false, "runners of its target do not call home");
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
