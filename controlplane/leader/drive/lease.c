/* Leases of runs: what documents would grant today, what a runner holds by the log, and when no
 * runner can be alive any more, or none ever was. A changed document reaches a run by an offer: the
 * offer goes into the log first, then to the runner with the next renewal, and its acknowledgement
 * into the log.
 *
 * A run must never be judged by a document: its owner may have changed it since the run began. */

#include "controlplane/leader/drive/lease.h"

#include "api/base/failpoint.h"
#include "controlplane/leader/context/refusals.h"
#include "controlplane/leader/drive/calls.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/drive/observed.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define WAIT_LEASE_MS (24ll * 3600 * 1000) /* hard expiry of runs that wait out a partition */
#define CLOSE_LOOK_MS 1000
#define KILL_MS 5000                       /* from SIGKILL to a tree that is gone, and scheduling */

static const struct intent *intent_of(const struct driver *d)
{
    return object_as(d->o, workload)->status->intent;
}

/* ---- what documents say today ---- */
static int64_t target_lease(const struct site *t)
{
    const struct target_partition *p =
        t && t->doc ? object_as(t->doc, target)->spec->partition : NULL;

    return p && p->lease > 0 ? p->lease : schema_default_ms(&schema_target_partition, "lease");
}

/* Not every run there stops itself when nobody renews: a lease proves the end of those alone whose
 * runners have told that they hold one. Elsewhere each does, whether it could tell or not. */
static bool nothing_stops(const struct site *t)
{
    return t && t->doc && !target_can(object_as(t->doc, target)->spec->type, CAN_LEASE);
}

/* The default grace; it also holds for a Workload without a checkpoint contract. */
static int64_t grace_otherwise(void)
{
    return schema_default_ms(&schema_checkpoint_spec, "grace");
}

/* What documents give a runner that can hold it. */
static struct lease_grant documents(const struct object *workload, const struct site *t)
{
    const struct workload_spec *s = object_as(workload, workload)->spec;
    const struct partition_spec *p = s->partition;
    struct lease_grant g = {.lease = target_lease(t), .grace = grace_otherwise(), .kill = KILL_MS};

    if (!p || !p->mode || p->mode == PARTITION_WAIT)
        g.lease = WAIT_LEASE_MS;
    else if (p->mode == PARTITION_STOP && p->stopAfter > 0)
        g.lease = p->stopAfter;
    if (s->checkpoint && s->checkpoint->grace > 0)
        g.grace = s->checkpoint->grace;
    return g;
}

struct lease_grant lease_wanted(const struct object *workload, const struct site *t)
{
    struct lease_grant g = documents(workload, t);

    if (nothing_stops(t))
        g.lease = 0;
    return g;
}

/* ---- what its runner may hold, by the log ---- */
static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* For an intent from before grants were logged: the longest lease that its leader can have
 * given. */
static struct lease_grant assumed(const struct driver *d)
{
    struct lease_grant g = lease_wanted(d->o, site_find(d->brain, d->target));

    g.lease = larger(g.lease, WAIT_LEASE_MS);
    g.grace = larger(g.grace, grace_otherwise());
    return g;
}

static struct lease_grant most(const struct driver *d)
{
    const struct intent *in = intent_of(d);
    struct lease_grant g = in && in->granted ? *in->granted : assumed(d);

    if (PLANTED("run.lease-of-today"))
        return lease_wanted(d->o, site_find(d->brain, d->target));
    if (in && in->offered) {
        g.lease = larger(g.lease, in->offered->lease);
        g.grace = larger(g.grace, in->offered->grace);
        g.kill = larger(g.kill, in->offered->kill);
    }
    return g;
}

bool lease_none(const struct driver *d)
{
    const struct intent *in = intent_of(d);

    const struct site *t = site_find(d->brain, d->target);

    if (PLANTED("run.lease-unheld"))
        return false;
    if (!in || !in->granted)
        return nothing_stops(t);
    return !in->granted->lease || (!in->granted->held && nothing_stops(t));
}

uint64_t lease_held_ms(const struct intent *in)
{
    const struct lease_grant *g = in->granted, *o = in->offered;

    if (!g || !g->held || g->lease <= 0)
        return 0;
    return (uint64_t)(o ? larger(g->lease, o->lease) : g->lease);
}

/* Lease, drift of both clocks (1 %), grace and kill time after the last renewal that may have
 * left. */
uint64_t lease_left_ms(const struct driver *d)
{
    struct lease_grant g = most(d);
    uint64_t over = d->renewed_ms + (uint64_t)(g.lease + g.lease / 100 + g.grace + g.kill);
    uint64_t now = loop_now_ms(d->brain->loop);

    return over >= now ? over - now + 1 : 0;
}

/* ---- renewals ---- */
/* Renewals must come in time for the shortest lease that a runner may hold. */
void lease_pace(const struct driver *d)
{
    const struct intent *in = intent_of(d);
    struct site *t = site_find(d->brain, d->target);

    if (!t || !in || !phase_live(object_as(d->o, workload)->status->phase))
        return;
    if (lease_none(d) && !in->offered)
        return;
    int64_t ms = in->granted ? in->granted->lease : lease_wanted(d->o, t).lease;
    if (in->offered && (in->offered->lease < ms || lease_none(d)))
        ms = in->offered->lease;
    site_pace(t, (uint64_t)ms);
}

void lease_renewed(struct driver *d, uint64_t sent_ms)
{
    if (sent_ms > d->renewed_ms)
        d->renewed_ms = sent_ms;
}

bool lease_offered(const struct driver *d, struct run_offer *ret)
{
    const struct intent *in = d->o && !d->dead ? intent_of(d) : NULL;

    if (!in || !in->offered || !phase_live(object_as(d->o, workload)->status->phase))
        return false;
    *ret = (struct run_offer){.key = d->key,
                              .number = in->offered->number,
                              .lease_ms = (uint64_t)in->offered->lease,
                              .grace_ms = (uint64_t)in->offered->grace};
    return true;
}

/* A renewal reaches its runner: else none is sent to it, and none may be counted. */
static bool reached(const struct driver *d, const struct site *t)
{
    const struct connector_ops *ops = t->connector->ops;

    return d->o && !driver_estranged(d, t) &&
           (!ops->reaches || ops->reaches(t->connector, &d->key));
}

size_t drivers_renewed(struct site *t, uint64_t sent_ms, struct run_offer *ret, size_t max)
{
    size_t n = 0, all = 0, i = 0;
    struct run_offer o;

    list_for_each (it, &t->drivers) {
        struct driver *d = container_of(it, struct driver, seat);
        if (!reached(d, t)) /* the others' renewal is none of it */
            continue;
        lease_renewed(d, sent_ms);
        lease_pace(d);
        all += lease_offered(d, &o);
    }
    size_t first = all > max ? t->renewals * max % all : 0; /* all come in turn */
    list_for_each (it, &t->drivers) {
        const struct driver *d = container_of(it, struct driver, seat);
        if (!reached(d, t) || !lease_offered(d, &o))
            continue;
        size_t at = i >= first ? i - first : i + all - first; /* after those before it */
        if (at < max)
            ret[n++] = o;
        i++;
    }
    return n;
}

/* ---- into the log ---- */
static bool granting(const struct driver *d)
{
    return root_feature_level(d->brain->root) >= FEATURE_GRANTS;
}

void lease_dispatch(struct driver *d, const struct site *t)
{
    struct lease_grant g = lease_wanted(d->o, t);
    union command c = {.run = {.step = STEP_DISPATCH, .reason = "Dispatching"}};

    g.number = 1;
    if (granting(d))
        c.run.grant = &g;
    driver_propose(d, &c);
}

/* Not in the log yet, which alone counts once it is out of reach. */
static bool held_is_news(const struct driver *d, const struct intent *in)
{
    return d->has_seen && d->seen.lease_held && in->granted && in->granted->lease &&
           !in->granted->held;
}

bool lease_acknowledged(struct driver *d)
{
    const struct intent *in = intent_of(d);
    struct lease_grant g;
    union command c = {.run = {.step = STEP_GRANT, .grant = &g}};

    if (!in || !epoch_next(object_as(d->o, workload)->status->phase, STEP_GRANT))
        return false;
    if (in->offered && d->has_seen && d->seen.grant == in->offered->number)
        g = *in->offered;
    else if (held_is_news(d, in))
        g = *in->granted;
    else
        return false;
    g.held = true;
    driver_propose(d, &c);
    return true;
}

/* Returns a number above that of any lease that a rank can hold. Where the log does not know it (an
 * older intent, or a hub that was lost), one rank may have taken one more than all have
 * reported. */
int64_t lease_next_number(const struct driver *d)
{
    const struct intent *in = intent_of(d);

    return in->granted ? in->granted->number + 1 : d->seen.grant + 2;
}

bool lease_offer(struct driver *d, const struct site *t)
{
    const struct intent *in = intent_of(d);
    struct lease_grant g = documents(d->o, t);
    union command c = {.run = {.step = STEP_OFFER, .grant = &g}};

    if (!t || !t->doc || !target_has(object_as(t->doc, target)->spec, CAN_LEASE))
        return false;
    /* A runner that reports no number is of a version that takes no other lease, or has not called
     * home yet. */
    if (!granting(d) || !in || in->op != INTENT_SUBMIT || in->offered || !d->has_seen ||
        d->seen.grant < 1 || !epoch_next(object_as(d->o, workload)->status->phase, STEP_OFFER))
        return false;
    if (in->granted && in->granted->lease == g.lease && in->granted->grace == g.grace)
        return false;
    g.number = lease_next_number(d);
    driver_propose(d, &c);
    return true;
}

/* ---- what never started, by the log alone ---- */
static uint64_t patience(const struct driver *d, const struct site *t)
{
    const struct partition_spec *p = object_as(d->o, workload)->spec->partition;

    return p && p->replaceAfter > 0 ? (uint64_t)p->replaceAfter : site_suspect_after(t);
}

/* Its target has taken it into its own queue: there it waits, as long as it may (pendingFor). */
static bool waits(struct driver *d)
{
    return object_as(d->o, workload)->status->pending && !driver_pending_over(d);
}

static void close(struct driver *d)
{
    static const struct refusal elsewhere = {.class_ = REFUSED_CAPACITY, .scope = BLAMES_WORKLOAD};
    union command c = {.run = {.step = STEP_CLOSE,
                               .requeue = true,
                               .proof = PROOF_NEVER_STARTED,
                               .unlisted_ms = d->unlisted_ms}};
    struct target_pause pause;

    if (refusal_pause(d->brain->root, d->o, d->target, &elsewhere, &pause))
        c.run.pause = &pause;
    driver_propose(d, &c);
}

/* Nobody has claimed any of it, and none of it was seen. */
static bool untouched(const struct driver *d, const struct intent *in)
{
    const struct root *r = d->brain->root;

    return root_feature_level(r) >= FEATURE_CLOSES && in &&
           (!in->n_claims || PLANTED("run.claims-ignored")) &&
           !workload_has_run(object_as(d->o, workload)->status);
}

bool lease_closes(struct driver *d, struct site *t, bool unwanted)
{
    const struct intent *in = intent_of(d);
    const struct brain *b = d->brain;
    uint64_t now = loop_now_ms(b->loop), from;

    if (!untouched(d, in) || !t || !*in->home || strcmp(in->home, root_cluster_uid(b->root)) != 0)
        return false;
    from = d->unknown_since_ms + patience(d, t);
    if (!unwanted && (b->frozen || waits(d)))
        return false;
    if (!unwanted && now < from) {
        driver_later(d, from - now < CLOSE_LOOK_MS ? from - now : CLOSE_LOOK_MS);
        return false;
    }
    close(d);
    return true;
}

/* ---- what its target cannot find, and may not start any more ---- */
int64_t lease_starts_until(const struct driver *d)
{
    const struct intent *in = intent_of(d);

    return in && in->startBy ? in->startBy + in->clockError : 0;
}

bool lease_too_late(struct driver *d)
{
    int64_t until = lease_starts_until(d);

    if (!until || !untouched(d, intent_of(d)) || d->unlisted_ms <= until)
        return false;
    close(d);
    return true;
}
