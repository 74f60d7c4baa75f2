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
#include "api/base/log.h"
#include "controlplane/leader/context/hide.h"
#include "controlplane/leader/context/refusals.h"
#include "controlplane/leader/doubt/back.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/recover/denials.h"
#include "controlplane/leader/recover/orphans.h"
#include "controlplane/leader/recover/promises.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define SWEEP_DEADLINE_MS 30000
#define CONFIRM_DEADLINE_MS 5000
#define DOUBTS_MAX 4096
#define SWEEP_EVERY_MS 600000
#define UNREAD_EVERY_MS 60000 /* while some of it could not be read */

struct sweep {
    struct brain_call call;
    struct brain *brain;
    char target[256];
};

/* ---- rows that cannot be read ---- */
/* Such a row is passed over alone, so that one bad row keeps nobody's work from the target; and it
 * proves nothing, so what the log has of its run stays so. It never passes unsaid: the Target has a
 * condition, RunsRefused, while there are any, and the Workload whose run it is has an Event.
 *
 * A row without a key may be the one of a moment ago, told again: only within a list is each of
 * them another one, so that no poll adds to what is counted. */
static struct unread_run *unread_find(struct site_unread *u, const char *key)
{
    for (size_t i = 0; i < u->n; i++)
        if (strcmp(u->v[i].key, key) == 0)
            return &u->v[i];
    return NULL;
}

static void workload_tell(struct site *t, const struct object *o, const char *why)
{
    char text[400];

    (void)snprintf(text, sizeof text,
                   "what target %.100s tells of its run cannot be read, and says nothing of it: "
                   "%.200s",
                   t->name, why);
    events_sometimes(t->brain, o, "RunNotRead", text);
}

void site_run_unread(struct site *t, const struct run_key *k, const char *why)
{
    struct site_unread *u = &t->unread;
    const struct object *o = k ? root_workload_by_uid(t->brain->root, k->uid) : NULL;
    char key[RUN_KEY_MAX] = "", text[200];

    if (k)
        run_key_print(k, key);
    str_cut(text, sizeof text, why);
    if (o)
        hide_text(t->brain, o, text);
    else
        hide_controls(text);
    struct unread_run *r = unread_find(u, key);
    bool fresh = !r;
    if (fresh && (u->n == UNREAD_RUNS_MAX || u->more)) { /* it may be one of those */
        u->more += u->open;
    } else if (fresh) {
        u->v = mem_realloc(u->v, (u->n + 1) * sizeof *u->v);
        r = &u->v[u->n++];
        *r = (struct unread_run){.list = u->list, .rows = 1};
        str_copy(r->key, sizeof r->key, key);
    } else if (!*key && u->open) {
        r->rows = r->list == u->list ? r->rows + 1 : 1;
    }
    if (r) {
        if (fresh || *key || r->list != u->list) /* of many, the first's */
            str_copy(r->why, sizeof r->why, text);
        r->list = u->list;
    }
    if (fresh && r)
        log_event(LOG_WARN, "target.run_unread",
                  LOG_FIELDS({"target", log_str(t->name)}, {"key", log_str(key)},
                             {"why", log_str(text)}));
    if (o)
        workload_tell(t, o, text);
    if (site_unread_due(t))
        site_facts_soon(t);
}

static void unread_over(struct site_unread *u, size_t i)
{
    memmove(&u->v[i], &u->v[i + 1], (u->n - i - 1) * sizeof *u->v);
    u->n--;
}

void site_run_read(struct site *t, const struct run_key *k)
{
    struct site_unread *u = &t->unread;
    char key[RUN_KEY_MAX];

    if (!u->n)
        return;
    run_key_print(k, key);
    struct unread_run *r = unread_find(u, key);
    if (!r)
        return;
    unread_over(u, (size_t)(r - u->v));
    if (site_unread_due(t))
        site_facts_soon(t);
}

void site_runs_begin(struct site *t)
{
    t->unread.list++;
    t->unread.more = 0;
    t->unread.open = true;
}

void site_runs_listed(struct site *t)
{
    struct site_unread *u = &t->unread;

    for (size_t i = u->n; i-- > 0;)
        if (u->v[i].list != u->list)
            unread_over(u, i);
    u->open = false;
    u->listed = true;
    if (site_unread_due(t))
        site_facts_soon(t);
}

/* False while it is not known whether there are any. */
static bool unread_text(const struct site_unread *u, char *out, size_t size)
{
    size_t n = u->more;

    for (size_t i = 0; i < u->n; i++)
        n += u->v[i].rows;
    *out = '\0';
    if (u->n)
        (void)snprintf(out, size, "what it tells of %zu run%s cannot be read and %s passed over: "
                       "%.111s%s%.199s",
                       n, n == 1 ? "" : "s", n == 1 ? "is" : "are", u->v[0].key,
                       *u->v[0].key ? ": " : "", u->v[0].why);
    return u->n || u->listed;
}

bool site_unread_due(const struct site *t)
{
    const struct site_unread *u = &t->unread;
    char now[sizeof u->told_text];

    return root_feature_level(t->brain->root) >= FEATURE_PODS &&
           unread_text(u, now, sizeof now) && (!u->told || strcmp(now, u->told_text) != 0);
}

void site_unread_fill(struct site *t, struct facts_cmd *c)
{
    struct site_unread *u = &t->unread;

    u->told = c->unread_told = unread_text(u, c->unread, sizeof c->unread);
    str_copy(u->told_text, sizeof u->told_text, c->unread);
}

void site_unread_drop(struct site *t)
{
    mem_free(t->unread.v);
    t->unread = (struct site_unread){0};
}

/* ---- runs that are not in the root ---- */
static bool doubted(const struct site *t, const struct run_key *k)
{
    for (size_t i = 0; i < t->n_doubts; i++)
        if (run_key_same(&t->doubts[i], k))
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
    if (t)
        t->unread.open = false;
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
            site_runs_listed(t);
            orphans_listed(t);
            site_promises(t);
        }
    }
    mem_free(w);
}

static void sweep_begin(struct site *t)
{
    struct sweep *w = mem_new(struct sweep);

    site_runs_begin(t);
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

bool site_sweep_due(const struct site *t)
{
    return t->sweep_due || loop_now_ms(t->brain->loop) - t->swept_ms >=
                               (t->unread.n ? UNREAD_EVERY_MS : SWEEP_EVERY_MS);
}

void sites_sweep(struct brain *b)
{
    for_each_site (t, b)
        site_sweep(t);
}
