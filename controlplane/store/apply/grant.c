/* What the log promises of a try: the lease, grace and kill time that its runner holds, those that
 * it may hold as well because they were offered to it, and its checkpoint store. A run that is out
 * of reach is judged by this, never by a document, which may have changed since.
 *
 * An offer must never shorten what is held: only the runner's acknowledgement does. */
#include "controlplane/store/store_internal.h"

#define GRANT_MAX_MS (10ll * 366 * 24 * 3600 * 1000)

static int grant_check(struct txn *t, const struct lease_grant *g, int64_t least)
{
    if (!g)
        return err_field(t->err, E_INVALID, "grant", "the lease that is granted was to be told");
    if (g->lease < least || g->lease > GRANT_MAX_MS || g->grace < 0 || g->grace > GRANT_MAX_MS ||
        g->kill < 0 || g->kill > GRANT_MAX_MS)
        return err_field(t->err, E_INVALID, "grant",
                         "lease, grace and kill time are milliseconds; what is offered is above 0");
    return 0;
}

/* Intents of older logs say nothing: what went with the order was number 1 all the same. */
static int64_t number_held(const struct intent *in)
{
    return in->granted ? in->granted->number : 1;
}

int grant_dispatch(struct txn *t, const struct workload *w, struct intent *in,
                   const struct lease_grant *g)
{
    int r;

    if (root_feature_level(t->w) < FEATURE_GRANTS) /* members that know no grants apply it, too */
        return 0;
    if (w->spec->checkpoint)
        in->store = w->spec->checkpoint->store;
    if (!g) /* by a leader that did not know yet that all members had come to that level */
        return 0;
    if ((r = grant_check(t, g, 0)) < 0) /* 0: nothing there stops itself */
        return r;
    in->granted = arena_memdup(t->a, g, sizeof *g);
    in->granted->number = 1;
    in->granted->held = false;
    return 0;
}

int grant_offer(struct txn *t, struct intent *in, const struct lease_grant *g)
{
    int r = grant_check(t, g, 1);

    if (r < 0)
        return r;
    /* What the log does not know is told by the runner: it may hold a higher one. */
    bool next = in->granted ? g->number == number_held(in) + 1 : g->number > number_held(in);
    if (in->offered || !next)
        return err_set(t->err, E_STALE,
                       "lease %lld is offered, the try holds %lld%s: one is offered at a time",
                       (long long)g->number, (long long)number_held(in),
                       in->offered ? " and has not acknowledged the next" : "");
    in->offered = arena_memdup(t->a, g, sizeof *g);
    return 0;
}

void grant_told(struct txn *t, struct intent *in)
{
    if (!in || !in->granted || !in->granted->lease)
        return;
    in->granted = arena_memdup(t->a, in->granted, sizeof *in->granted);
    in->granted->held = true;
}

int grant_proves(struct txn *t, const struct workload_status *s)
{
    const struct lease_grant *g = s->intent ? s->intent->granted : NULL;
    const struct object *o = g ? root_get(t->w, KIND_TARGET, "", s->placement->target) : NULL;

    if (!g || (g->lease && g->held))
        return 0;
    if (g->lease && o && target_can(object_as(o, target)->spec->type, CAN_LEASE))
        return 0;
    return err_set(t->err, E_STALE,
                   "no runner has told that it holds a lease: that time went by proves no end");
}

int grant_acknowledged(struct txn *t, struct intent *in, const struct lease_grant *g)
{
    if (g && g->held && in->granted && in->granted->number == g->number) {
        grant_told(t, in);
        return 0;
    }
    if (!g || !in->offered || in->offered->number != g->number)
        return err_set(t->err, E_STALE, "lease %lld is acknowledged; offered is %lld",
                       g ? (long long)g->number : 0,
                       in->offered ? (long long)in->offered->number : 0);
    in->granted = in->offered;
    in->offered = NULL;
    grant_told(t, in);
    return 0;
}
