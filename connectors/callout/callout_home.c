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

    c->home = home_runs_create(c->base.env.loop, &events, c);
}

void callout_home_end(struct callout *c, const char *why)
{
    c->home = home_runs_destroy(c->home, why);
}

int callout_home_order(const struct callout *c, const struct run_order *o, struct arena *a,
                       struct callout_order *ret, struct err *err)
{
    const struct connector_env *e = &c->base.env;
    struct home_order h;

    if (!callout_has_runners(c))
        return 0;
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
                                       .n_tokens = h.n_tokens};
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
