/* Sweeps: the runs that a target lists are compared with the state. A run that this cluster's own
 * log let go is ended; a run that the state does not know is an orphan: it is listed (orphans.c),
 * and never ended without a user's word.
 *
 * A member whose root lags must not take a run that it does not know yet for one that was let go.
 * So a run that is not in the root is doubted first. Only a run that was listed before a majority
 * confirmed this leadership, and is still not in the root after that, is judged, by a second
 * sweep. */

#include "controlplane/leader/recover/sweep.h"

#include "api/base/failpoint.h"
#include "controlplane/leader/context/refusals.h"
#include "controlplane/leader/doubt/back.h"
#include "controlplane/leader/recover/denials.h"
#include "controlplane/leader/recover/orphans.h"
#include "controlplane/leader/recover/promises.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define SWEEP_DEADLINE_MS 30000
#define CONFIRM_DEADLINE_MS 5000
#define DOUBTS_MAX 4096

struct sweep {
    struct brain_call call;
    struct brain *brain;
    char target[256];
};

static bool doubted(const struct site *t, const struct run_key *k)
{
    for (size_t i = 0; i < t->n_doubts; i++)
        if (t->doubts[i].epoch == k->epoch && t->doubts[i].try_ == k->try_ &&
            !strcmp(t->doubts[i].uid, k->uid))
            return true;
    return false;
}
static void doubt(struct site *t, const struct run_key *k)
{
    if (t->n_doubts == DOUBTS_MAX)
        return; /* the next sweep takes the rest */
    t->doubts = mem_realloc(t->doubts, (t->n_doubts + 1) * sizeof *t->doubts);
    t->doubts[t->n_doubts++] = *k;
}
static void sweep_over(struct site *t, bool again)
{
    t->sweeping = t->doubts_proved = false;
    t->n_doubts = 0;
    t->sweep_due |= again; /* with the next renewal */
}

/* True when its history has an end of that epoch. */
static bool end_known(const struct workload_status *s, int64_t epoch)
{
    for (uint32_t i = 0; i < s->n_ends; i++)
        if (s->ends[i].epoch == epoch)
            return true;
    return false;
}

/* Judges a run whose uid the state has: the state has this very run, has gone beyond it, or has not
 * reached it. */
static enum orphan_why known(const struct workload_status *s, const struct run_key *k)
{
    int64_t try_ = s->intent ? s->intent->try_ : 0;

    if (k->epoch > s->epoch || (k->epoch == s->epoch && s->intent && k->try_ > try_))
        return ORPHAN_AHEAD;
    /* The state has given this epoch its place, or marked the workload as one that may have gone
     * on. It has not dispatched this run itself, so a later state did. */
    if (k->epoch == s->epoch && !s->intent &&
        (s->phase == PHASE_RESERVED || (s->epochFloor > s->epoch && !end_known(s, k->epoch))))
        return ORPHAN_AHEAD;
    if (k->epoch < s->epoch)
        return ORPHAN_LET_GO; /* a newer epoch began only with the proof of this one's end */
    return phase_holds(s->phase) || s->phase == PHASE_SUCCEEDED || s->phase == PHASE_FAILED
               ? ORPHAN_OWNED
               : ORPHAN_LET_GO;
}

/* Judges a run whose uid the state does not have. A state that never went back since the run began
 * once had it and let it go with its Workload: nothing is submitted before its intent, and no
 * Workload is removed before the end of its runs is proved. Of other runs the state knows nothing
 * of the kind, except those from the past of the state that it began anew from. */
static enum orphan_why unknown(const struct root *r, const struct run_listed *l)
{
    const char *own = root_cluster_uid(r);

    if (PLANTED("sweep.ends-unknown"))
        return ORPHAN_LET_GO;
    if (*own && strcmp(l->cluster, own) == 0)
        return ORPHAN_LET_GO;
    /* The run began in a state from which this one began anew, in the past that both share. During
     * recovery it is listed as deleted, so that recover reports it. */
    if (l->seen.state == RUN_ENDED && root_had(r, l->cluster, l->state_rv))
        return root_recovering(r) ? ORPHAN_DELETED : ORPHAN_LET_GO;
    return cluster_same_line(l->cluster, own) ? ORPHAN_BEFORE : ORPHAN_FOREIGN;
}

/* True when a state of this very uid that had come further than this one started the run: this
 * state is an older copy that somebody put back. */
bool sweep_from_our_future(const struct root *r, const struct run_listed *l)
{
    return *root_cluster_uid(r) && l->state_rv > root_rv(r) &&
           strcmp(l->cluster, root_cluster_uid(r)) == 0;
}

enum orphan_why sweep_why(const struct root *r, const struct run_listed *l)
{
    const struct object *o = root_workload_by_uid(r, l->seen.key.uid);
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;

    if (sweep_from_our_future(r, l))
        return ORPHAN_AHEAD;
    return s ? known(s, &l->seen.key) : unknown(r, l);
}

bool sweep_unfinished(const struct root *r, const struct run_listed *l)
{
    const struct object *o = root_workload_by_uid(r, l->seen.key.uid);
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;

    return s && l->seen.state == RUN_ENDED && !l->final && l->seen.key.epoch == s->epoch &&
           !phase_holds(s->phase) && end_known(s, s->epoch);
}

/* Made sure of like what is not in the root: by a second list, after a majority has confirmed. */
static enum run_verdict judge_denied(struct site *t, const struct run_listed *l)
{
    if (!t->doubts_proved)
        doubt(t, &l->seen.key);
    if (!t->doubts_proved || !doubted(t, &l->seen.key))
        return RUN_KEPT;
    denial_found(t, l);
    orphan_found(t, l, ORPHAN_DENIED);
    return RUN_LET_GO;
}

static enum run_verdict judge(const struct run_listed *l, void *arg)
{
    struct site *t = arg;
    enum orphan_why why = sweep_why(t->brain->root, l);

    if (t->brain->in_doubt)
        return RUN_KEPT; /* the next sweep judges it, once the doubt is settled */
    if (denial_is(t->brain->root, t->name, t->swept_at_ms, l))
        return judge_denied(t, l);
    if (why > ORPHAN_LET_GO && orphan_condemned(t, &l->seen.key))
        return RUN_LET_GO;
    if (why == ORPHAN_OWNED && sweep_unfinished(t->brain->root, l))
        site_finalize(t, &l->seen.key);
    if (why == ORPHAN_OWNED)
        return RUN_CLAIMED;
    if (!t->doubts_proved) {
        const struct object *o = root_workload_by_uid(t->brain->root, l->seen.key.uid);
        if (o && why == ORPHAN_LET_GO)
            return RUN_LET_GO;
        doubt(t, &l->seen.key);
        return RUN_KEPT;
    }
    if (!doubted(t, &l->seen.key))
        return RUN_KEPT; /* it came later: the next sweep judges it */
    if (why == ORPHAN_LET_GO)
        return RUN_LET_GO;
    if (sweep_from_our_future(t->brain->root, l))
        brain_went_back(t->brain, l->cluster, l->state_rv);
    orphan_found(t, l, why);
    return RUN_KEPT;
}

static void sweep_begin(struct site *t);

static void sweep_confirmed(void *arg, const struct err *err)
{
    struct sweep *w = arg;
    struct brain *b = w->brain;
    struct site *t = site_find(b, w->target);

    mem_free(w);
    if (!t || !t->sweeping)
        return;
    if (err || !t->reachable) {
        sweep_over(t, true);
        return;
    }
    t->doubts_proved = true;
    orphans_begin(t);
    sweep_begin(t);
}
static void sweep_done(struct call *c, enum outcome out, const struct observation *seen,
                       const struct err *err)
{
    struct sweep *w = container_of(c, struct sweep, call.call);
    struct brain *b = w->brain;
    struct site *t = site_find(b, w->target);

    (void)err;
    if (t && t->sweeping && b->leads && out == OUT_DONE && t->n_doubts && !t->doubts_proved) {
        brain_confirm(b, CONFIRM_DEADLINE_MS, sweep_confirmed, w);
        return;
    }
    if (t) {
        bool whole = t->sweeping && out == OUT_DONE && b->leads && !b->in_doubt;
        if (whole && !t->doubts_proved)
            orphans_begin(t); /* no run is doubted: the list of orphans is empty */
        sweep_over(t, !whole);
        if (whole) {
            site_lacks(t, seen && *seen->message);
            orphans_listed(t);
            site_promises(t);
        }
    }
    mem_free(w);
}

static void sweep_begin(struct site *t)
{
    struct sweep *w = mem_new(struct sweep);

    w->brain = t->brain;
    str_copy(w->target, sizeof w->target, t->name);
    t->connector->ops->sweep(t->connector, judge, t,
                             brain_call(t->brain, &w->call, SWEEP_DEADLINE_MS, sweep_done));
}

void site_sweep(struct site *t)
{
    if (!t->connector || !t->reachable)
        return;
    if (!t->connector->ops->sweep) {
        orphans_listed(t);
        return;
    }
    if (t->sweeping || t->brain->in_doubt) {
        t->sweep_due = true;
        return;
    }
    t->sweeping = true;
    t->sweep_due = false;
    t->swept_ms = loop_now_ms(t->brain->loop);
    t->swept_at_ms = brain_time_ms(t->brain);
    sweep_begin(t);
}

void sites_sweep(struct brain *b)
{
    for_each_site (t, b)
        site_sweep(t);
}
