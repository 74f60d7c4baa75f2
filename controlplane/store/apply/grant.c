/* What the log promises of a try: the lease, grace and kill time that its runner holds, those that
 * it may hold as well because they were offered to it, and its checkpoint store. A run that is out
 * of reach is judged by this, never by a document, which may have changed since. Who begins, and
 * that nobody ever does. And what its target told of its workers.
 *
 * An offer must never shorten what is held: only the runner's acknowledgement does. */
#include "api/base/failpoint.h"
#include "connectors/ends.h"
#include "controlplane/store/ledger/ledger.h"
#include "controlplane/store/store_internal.h"
#include "policy/policy.h"

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

static bool has_manifest(const struct workload *w)
{
    return w->spec->run && w->spec->run->manifest.n;
}

/* In whose log its runners claim, and when they start nothing any more. The order says so, too,
 * whatever its Target says by then (run_order.claims, start_by_ms). A manifest's programs have no
 * runner. */
static void claim_dispatch(struct txn *t, const struct workload *w, struct intent *in)
{
    const struct object *o = root_get(t->w, KIND_TARGET, "", w->status->placement->target);
    const struct target_spec *g = o ? object_as(o, target)->spec : NULL;

    in->home = "";
    if (root_feature_level(t->w) >= FEATURE_CLOSES && g && target_can(g->type, CAN_CALL_HOME) &&
        g->connection && g->connection->runners && !has_manifest(w))
        in->home = root_cluster_uid(t->w);
    if (root_feature_level(t->w) >= FEATURE_CLOSES && g && target_can(g->type, CAN_START_BY) &&
        g->limits && g->limits->startWithin > 0 && g->limits->clockError > 0) {
        in->startBy = t->now + g->limits->startWithin;
        in->clockError = g->limits->clockError;
    }
}

/* Where its logs go, as its Target says now; older members know no such field. */
static struct target_logs *logs_of(const struct txn *t, const struct workload *w)
{
    const struct object *o = root_get(t->w, KIND_TARGET, "", w->status->placement->target);
    const struct target_logs *is = o ? object_as(o, target)->spec->logs : NULL;

    if (!is || root_feature_level(t->w) < FEATURE_CLOSES)
        return NULL;
    struct target_logs *logs = arena_new(t->a, struct target_logs);
    *logs = (struct target_logs){
        .store = is->store, .credentialsFrom = is->credentialsFrom, .maxBytes = is->maxBytes};
    return logs;
}

int grant_dispatch(struct txn *t, const struct workload *w, struct intent *in,
                   const struct lease_grant *g)
{
    int r;

    claim_dispatch(t, w, in);
    if (root_feature_level(t->w) < FEATURE_GRANTS) /* members that know no grants apply it, too */
        return 0;
    in->logs = has_manifest(w) ? NULL : logs_of(t, w); /* nobody there could keep them */
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

    if (!g || (g->lease && g->held) || PLANTED("run.lease-unheld"))
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

/* ---- who begins ---- */
bool workload_has_run(const struct workload_status *s)
{
    for (uint32_t i = 0; i < s->n_conditions; i++)
        if (strcmp(s->conditions[i].type, "Running") == 0)
            return s->conditions[i].status == COND_TRUE ||
                   s->conditions[i].status == COND_UNKNOWN; /* it may run no more */
    return false;
}

#define CLOSED                                                                                     \
    "none of its runners has called home, and no process starts its program without a claim in "  \
    "the log: from now on each is refused"

#define TOO_LATE                                                                                   \
    "its target has it in no list, and what comes later is not started any more: its time to "    \
    "start is over, by whichever clock"

/* Those who have claimed have begun in time, or are about to. */
static bool time_is_over(const struct txn *t, const struct intent *in, const struct run_cmd *c)
{
    return in->startBy && c->unlisted_ms > in->startBy + in->clockError &&
           c->unlisted_ms <= t->now;
}

/* What an older state of this cluster had of claims may be lost (RECOVER BEGIN gives another uid):
 * then it proves nothing that there is none. */
static int nobody_claims(struct txn *t, const struct intent *in)
{
    if (!*in->home)
        return err_set(t->err, E_STALE,
                       "its runners need no claim to begin: that there is none proves nothing");
    if (strcmp(in->home, root_cluster_uid(t->w)) != 0 && !PLANTED("run.any-log"))
        return err_set(t->err, E_STALE,
                       "it was sent by a state that was lost or went back, and its claims with it: "
                       "that this log has none proves nothing");
    return 0;
}

int close_proves(struct txn *t, const struct workload_status *s, const struct run_cmd *c,
                 const char **ret_reason, const char **ret_message)
{
    const struct intent *in = s->intent;

    if (in->n_claims && !PLANTED("run.claims-ignored"))
        return err_set(t->err, E_STALE, "rank %lld was claimed: its program may have begun",
                       (long long)in->claims[0].rank);
    if (time_is_over(t, in, c)) {
        *ret_reason = end_text(END_NOT_STARTED);
        *ret_message = TOO_LATE;
        return 0;
    }
    int r = nobody_claims(t, in);
    if (r < 0)
        return r;
    *ret_reason = end_text(END_NEVER_CLAIMED);
    *ret_message = CLOSED;
    return 0;
}

/* E_CONFLICT: another process has claimed that rank. Claims are in the order of ranks, and may be
 * repeated. */
int claim_take(struct txn *t, struct workload_status *s, const struct run_cmd *c)
{
    struct intent *in = s->intent;
    int64_t ranks = s->pending     ? s->pending->asked->n_assignments
                    : s->placement ? s->placement->n_assignments
                                   : 0;
    uint32_t at = 0;

    if (!*c->instance || c->rank < 0 || c->rank >= ranks)
        return err_field(t->err, E_INVALID, "rank", "a process claims one of %lld ranks",
                         (long long)ranks);
    while (at < in->n_claims && in->claims[at].rank < c->rank)
        at++;
    if (at < in->n_claims && in->claims[at].rank == c->rank) {
        if (strcmp(in->claims[at].instance, c->instance) == 0)
            return 0;
        return err_set(t->err, E_CONFLICT,
                       "a run is started once, and another process has claimed rank %lld",
                       (long long)c->rank);
    }
    struct run_claim *all = arena_array(t->a, struct run_claim, in->n_claims + 1);
    if (at)
        memcpy(all, in->claims, at * sizeof *all);
    all[at] = (struct run_claim){.rank = c->rank, .instance = c->instance};
    if (in->n_claims > at)
        memcpy(all + at + 1, in->claims + at, (in->n_claims - at) * sizeof *all);
    in->claims = all;
    in->n_claims++;
    return 0;
}

/* ---- what was told of its workers ---- */
static bool worker_failed(const struct worker_status *w)
{
    return w->exitCode || w->signal || *w->reason;
}

/* Of the try's ranks, what is newest: told now, or before. */
static uint32_t workers_merge(struct txn *t, const struct workload_status *s,
                              const struct worker_status *told, uint32_t n,
                              struct worker_status *ret)
{
    uint32_t ranks = s->placement->n_assignments, all = 0;
    const struct worker_status **by = arena_array(t->a, const struct worker_status *, ranks + 1);

    for (uint32_t i = 0; i < s->n_workers; i++)
        if (s->workers[i].rank >= 0 && s->workers[i].rank < ranks)
            by[s->workers[i].rank] = &s->workers[i];
    for (uint32_t i = 0; i < n; i++)
        if (told[i].rank >= 0 && told[i].rank < ranks)
            by[told[i].rank] = &told[i];
    for (uint32_t r = 0; r < ranks; r++) {
        const struct assignment *at = &s->placement->assignments[r];
        if (!by[r])
            continue;
        ret[all] = *by[r];
        ret[all].node = at->node;
        if (!at->count) { /* else the log does not know which, and the target may tell */
            ret[all].gpus = at->gpus;
            ret[all].n_gpus = at->n_gpus;
        }
        all++;
    }
    return all;
}

static int64_t between(int64_t v, int64_t least, int64_t most)
{
    return v < least ? least : v > most ? most : v;
}

/* How busy its GPUs are is bounded by what it holds, and by when it began to: whoever tells
 * nonsense tells of no more than there is. */
static void use_take(struct txn *t, struct workload_status *s, const struct gpu_use *told)
{
    const struct placement *p = s->placement;
    const struct gpu_use *was = s->gpuUse;
    struct gpu_use *u;

    s->gpuUse = NULL;
    if (!told || told->measured <= 0 || !p || p->gpus <= 0)
        return;
    u = arena_memdup(t->a, told, sizeof *u);
    u->at = t->now;
    u->measured = between(told->measured, 0, p->gpus);
    u->idle = between(told->idle, 0, u->measured);
    u->percent = between(told->percent, 0, 100);
    u->memory = told->memory > 0 ? told->memory : 0;
    u->idleSince = u->idle ? between(told->idleSince, p->since, t->now) : 0;
    u->told = told->told && u->idle == u->measured;
    u->measuredFor = was ? between(told->measuredFor, 0, t->now - was->at) : 0;
    u->idleSum = u->measuredFor ? between(told->idleSum, 0, INT64_MAX) : 0;
    s->gpuUse = u;
}

void workers_take(struct txn *t, struct workload_status *s, const struct run_cmd *c)
{
    uint32_t ranks = s->placement ? s->placement->n_assignments : 0, failed = 0, kept = 0;

    if (c->step == STEP_USE)
        use_take(t, s, c->use);
    if (!c->n || !ranks)
        return;
    struct worker_status *all = arena_array(t->a, struct worker_status, ranks);
    struct worker_status *shown = arena_array(t->a, struct worker_status, WORKERS_SHOWN_MAX);
    uint32_t have = workers_merge(t, s, c->workers, c->n, all);
    for (uint32_t i = 0; i < have; i++)
        failed += worker_failed(&all[i]);
    failed = failed < WORKERS_SHOWN_MAX ? failed : WORKERS_SHOWN_MAX;
    uint32_t others = WORKERS_SHOWN_MAX - failed;
    for (uint32_t i = 0; i < have && kept < WORKERS_SHOWN_MAX; i++) {
        if (worker_failed(&all[i]) ? !failed : !others)
            continue;
        failed -= worker_failed(&all[i]);
        others -= !worker_failed(&all[i]);
        shown[kept++] = all[i];
    }
    s->workers = shown;
    s->n_workers = kept;
}

/* ---- what they used of what was held ---- */
/* What a target tells can neither be ahead of the entry that sent the run there, nor after the one
 * that has its end: its clock may be wrong, and it may lie. */
void workers_spend(struct txn *t, struct workload_status *s, const struct run_cmd *c)
{
    const struct placement *p = s->placement;
    ledger_amount used = 0, held = 0;

    if (!c->n || !p || !s->intent)
        return;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct worker_status *w = &c->workers[i];
        if (w->rank < 0 || w->rank >= p->n_assignments || !w->startedAt || !w->endedAt ||
            (i && w->rank <= c->workers[i - 1].rank))
            continue;
        const struct assignment *a = &p->assignments[w->rank];
        int64_t milli = assignment_milli(a);
        int64_t began = between(w->startedAt + c->behind_ms, s->intent->at, t->now);
        int64_t ended = between(w->endedAt + c->behind_ms, began, t->now);
        used += (ledger_amount)milli * (ended - began);
        held += (ledger_amount)milli * (t->now - p->since);
    }
    struct spent *spent =
        s->spent ? arena_memdup(t->a, s->spent, sizeof *spent) : arena_new(t->a, struct spent);
    volatile double hours = spent->usedGpuHours + (double)used / LEDGER_GPU_HOUR,
                    idle = spent->unusedGpuHours + (double)(held - used) / LEDGER_GPU_HOUR;
    spent->usedGpuHours = hours;
    spent->unusedGpuHours = idle;
    s->spent = spent;
}

/* ---- devices of a run that waited at its target ---- */
/* What the workers of lower rank were given of that device in this very step. */
static int64_t given_milli(const struct placement *p, uint32_t rank, int64_t index)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < rank; i++) {
        const struct assignment *a = &p->assignments[i];
        for (uint32_t k = 0; strcmp(a->node, p->assignments[rank].node) == 0 && k < a->n_gpus; k++)
            sum += a->gpus[k] == index ? a->gpuMilli : 0;
    }
    return sum;
}

/* What the workers of lower rank were given of the node's counted devices in this very step. */
static int64_t given_count(const struct placement *p, uint32_t rank)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < rank; i++)
        if (strcmp(p->assignments[i].node, p->assignments[rank].node) == 0)
            sum += p->assignments[i].count;
    return sum;
}

/* A node that counts its devices of this class gives a number of them, whichever the target names:
 * by the log no more than there are. */
static bool count_choose(struct txn *t, const struct placement *p, uint32_t rank,
                         const struct assignment *asked, const struct counted_gpus *c)
{
    struct assignment *a = &p->assignments[rank];

    a->mig = asked->mig;
    a->shares = asked->shares > 0 ? c->shares : 0;
    a->gpuMilli = a->shares > 0 ? policy_share_milli(a->shares) : asked->gpuMilli;
    a->count = assignment_devices(asked);
    a->gpus = NULL;
    a->n_gpus = 0;
    struct slice_kind kind = assignment_kind(a);
    return a->count + given_count(p, rank) +
               root_counted_held(t->w, a->node, p->class_, &kind) <=
           c->count;
}

/* Devices that the target did not name are any that are free by the log. */
bool seat_choose(struct txn *t, const struct placement *p, uint32_t rank,
                 const struct assignment *asked)
{
    struct node_usage u = {0};
    struct assignment *a = &p->assignments[rank];
    const struct object *o = root_get(t->w, KIND_NODE, "", a->node);
    const struct node_spec *n = o ? object_as(o, node)->spec : NULL;

    int64_t want = assignment_devices(asked);

    struct counted_gpus c =
        node_counted(o ? object_as(o, node) : NULL, p->class_, assignment_kind(asked));
    if (want && c.count)
        return count_choose(t, p, rank, asked, &c);
    a->count = a->shares = 0;
    if (a->n_gpus || !want)
        return true;
    a->gpuMilli = asked->gpuMilli;
    a->gpus = arena_array(t->a, int64_t, (size_t)want);
    (void)root_usage(t->w, a->node, &u);
    for (uint32_t i = 0; n && i < n->n_gpus && a->n_gpus < want; i++) {
        int64_t index = n->gpus[i].index;
        if (index >= 0 && index < LIMIT_NODE_GPUS &&
            u.device_milli[index] + given_milli(p, rank, index) + a->gpuMilli <= 1000)
            a->gpus[a->n_gpus++] = index;
    }
    return a->n_gpus == want;
}
