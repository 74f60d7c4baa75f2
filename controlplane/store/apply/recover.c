/* RECOVER: the way back of a state that was lost, or went back to an older one. ADOPT takes in what
 * targets carry: their runs go on, in epochs that this state did not give.
 *
 * From BEGIN to SETTLE a workload that may be alive somewhere else gets no place, and is not taken
 * for ended: its status.epochFloor is above its epoch. An epoch must never become lower, and a run
 * must never be taken over while the state holds an older epoch of it as live elsewhere: a newer
 * epoch began only with the proof of the older one's end. */
#include "controlplane/store/store_internal.h"

#include "api/base/failpoint.h"
#include "policy/policy.h"

#include <stdio.h>

/* What a target tells may be anything. */
#define EPOCH_MAX ((int64_t)1 << 53)
#define PRICE_MAX 1e9            /* as in every place */
#define ENDS_MAX 16              /* of a Workload's history */
#define RV_STEP_MAX (1ull << 53) /* that one BEGIN goes on by, at most */

/* Of a state that went back: `recovering` is the resourceVersion from which it went on, so who has
 * an older one was not marked yet. */
static bool unmarked(const struct root *r, const struct object *o)
{
    return root_went_back(r) && (uint64_t)o->meta->resourceVersion < r->recovering;
}

bool workload_unsettled(const struct root *r, const struct object *o,
                        const struct workload_status *s)
{
    return r->recovering && (s->epochFloor > s->epoch || unmarked(r, o));
}

/* May it live where this state does not know? Then it stays until that is settled, deleted or not.
 * What its own target told as ended may have gone on elsewhere since, too. */
bool recover_holds(const struct root *r, const struct object *o)
{
    const struct workload_status *s =
        o->kind->id == KIND_WORKLOAD ? object_as(o, workload)->status : NULL;

    if (!s || !r->recovering || PLANTED("recover.deletes-at-once"))
        return false;
    return s->epochFloor > s->epoch || (!phase_final(s->phase) && unmarked(r, o));
}

void recover_tell_deleted(struct workload_status *s)
{
    s->reason = "Recovering";
    s->message = "it is deleted, and goes once recovery is settled (hanse recover --from-targets): "
                 "it may run where this state does not know";
}

/* Being deleted, and held by nothing else: SETTLE lets it go. */
void recover_await(struct txn *t, const struct object *o)
{
    struct key k = {.n = 0};

    if (!o->meta->deletionTimestamp || object_live(o) || !recover_holds(t->w, o))
        return;
    k.p[k.n++] = DEAD_UNSETTLED;
    key_add(&k, o->meta->uid, false);
    dead_set(t, key_slice(&k), 0, true, slice_make("", 0));
}

/* Above all that the workload can have gone on to in a state that was lost. Above the time in ms,
 * too, at which this one began: another that came back from the same older one gave its epochs from
 * its own time on, and none begins a thousand in a second, so the two never begin the same one. */
static int64_t floor_above(const struct txn *t, int64_t epoch)
{
    uint64_t n = cluster_generation(t->w->cluster_uid);
    int64_t began = n < (uint64_t)EPOCH_MAX / 1000 ? (int64_t)n * 1000 : 0;
    int64_t floor = epoch + EPOCH_STEP, from = began > t->now ? began : t->now;

    if (PLANTED("recover.same-epochs"))
        return floor;
    return from > floor ? from : floor + from % EPOCH_STEP;
}

static void mark(struct txn *t, struct workload *w)
{
    struct workload_status *s = w->status;
    int64_t floor = floor_above(t, s->epoch);

    if (s->epochFloor < floor && !PLANTED("recover.no-floor"))
        s->epochFloor = floor;
    s->reason = "Recovering";
    s->message =
        "the state went back to an older one, and what became of it is open: hanse recover "
        "--from-targets looks for it";
    if (phase_live(s->phase) && s->phase != PHASE_UNKNOWN && !workload_array(w)) {
        s->phaseBefore = s->phase;
        s->phase = PHASE_UNKNOWN;
        s->phaseSince = t->now;
    }
}

/* Whatever changes it first marks it, as LOST would. */
void recover_touch(struct txn *t, const struct object *before, struct workload *after)
{
    if (!after->status || phase_final(after->status->phase) || !unmarked(t->w, before))
        return;
    after->status = arena_memdup(t->a, after->status, sizeof *after->status);
    mark(t, after);
    if (after->metadata->deletionTimestamp)
        recover_tell_deleted(after->status);
}

/* ---- BEGIN ---- */
struct oldest {
    uint64_t generation;
    char uid[CLUSTER_UID_MAX];
    size_t n;
};

static bool oldest_each(struct slice key, const void *value, void *arg)
{
    struct oldest *x = arg;
    char uid[CLUSTER_UID_MAX] = "";

    (void)value;
    memcpy(uid, key.p, key.n);
    if (x->n && cluster_generation(uid) >= x->generation)
        return true;
    x->generation = cluster_generation(uid);
    x->n = key.n;
    memcpy(x->uid, uid, sizeof uid);
    return true;
}

/* The state begins a log of its own. What the old one had up to `known` is in this one's past; what
 * a copy that was put back shares with its original nobody can tell, so that is none. */
static void ancestor_add(struct root *w, uint64_t known)
{
    struct slice uid = key_str(w->cluster_uid);

    if (known > w->rv)
        known = w->rv;
    if (!uid.n || !known || root_count_of(w->ancestors, uid))
        return;
    root_count_add(&w->ancestors, uid, (int64_t)known);
    while (tree_count(w->ancestors) > ANCESTORS_MAX) {
        struct oldest x = {0};

        tree_scan(w->ancestors, slice_make("", 0), oldest_each, &x);
        w->ancestors = tree_del_own(w->ancestors, slice_make(x.uid, x.n));
    }
}

static int recover_begin(struct txn *t, const struct recover_cmd *c)
{
    struct root *w = t->w;

    if (*c->cluster_uid && !cluster_left_behind(w->cluster_uid, c->cluster_uid) && *w->cluster_uid)
        return err_set(t->err, E_CONFLICT, "this is cluster %s: %s does not follow on it",
                       w->cluster_uid, c->cluster_uid);
    if (c->rv && c->rv <= w->rv)
        return err_set(t->err, E_STALE, "resourceVersion %llu has been given already",
                       (unsigned long long)c->rv);
    if (c->rv > w->rv && c->rv - w->rv > RV_STEP_MAX)
        return err_set(t->err, E_INVALID, "resourceVersion %llu is out of reach",
                       (unsigned long long)c->rv);
    t->res->unchanged = w->recovering && !*c->cluster_uid && !c->rv;
    if (*c->cluster_uid) {
        if (!cluster_same_log(w->cluster_uid, c->cluster_uid))
            ancestor_add(w, c->known);
        str_copy(w->cluster_uid, sizeof w->cluster_uid, c->cluster_uid);
    }
    if (c->rv) {
        root_jump(w, c->rv);
        w->recovering = c->rv;
    } else if (!w->recovering) {
        w->recovering = 1;
    }
    return 0;
}

/* ---- LOST: of a state that went back ---- */
/* What it has become since cannot be known here. What it held is kept. */
static int recover_lost(struct txn *t, const struct recover_cmd *c)
{
    const struct object *o = root_get(t->w, KIND_WORKLOAD, c->ns, c->name);

    if (!o || strcmp(o->meta->uid, c->uid) != 0)
        return err_set(t->err, E_STALE, "workload %s/%s is not the one that was meant", c->ns,
                       c->name);
    struct workload *w = object_edit_as(o, workload, t->a);
    if (!w->status || phase_final(w->status->phase) || !unmarked(t->w, o)) {
        t->res->unchanged = true;
        return 0;
    }
    mark(t, w);
    (void)txn_put(t, o->kind, o, w);
    return 0;
}

/* ---- ADOPT ---- */
struct adoption {
    const struct recover_cmd *c;
    const struct object *o; /* as the state has it, or NULL */
    const struct object *told;
    struct workload *w; /* our copy: of the state's, else of what was told */
    struct workload_status *s;
    const struct workload_status *ts;
};

static int adopt_check(struct txn *t, struct adoption *x)
{
    const struct recover_cmd *c = x->c;
    const struct meta *m = x->told->meta;

    if (!object_as(x->told, workload)->spec || !*m->name || strlen(m->name) > 253 ||
        strlen(m->namespace_) > 63 || strlen(m->uid) > 64 ||
        strlen(object_as(x->told, workload)->spec->queue) > 253)
        return err_set(t->err, E_INVALID, "what is kept of the run is not a whole Workload");
    const struct object *named = root_get(t->w, KIND_WORKLOAD, m->namespace_, m->name);

    if (!x->o && c->ended && root_had(t->w, c->cluster_uid, c->known) &&
        !PLANTED("recover.undeletes"))
        return err_set(t->err, E_STALE, RECOVER_WAS_DELETED);
    if (!x->o && array_ended(t, m))
        return err_set(t->err, E_STALE, RECOVER_WAS_DELETED);
    const struct object *ns = root_get(t->w, KIND_NAMESPACE, "", m->namespace_);

    if (c->epoch < 1 || c->epoch > EPOCH_MAX || c->try_ < 1 || c->try_ > EPOCH_MAX || !x->ts ||
        !x->ts->placement)
        return err_set(t->err, E_INVALID, "what is kept of the run says not where it is");
    if (!x->o && named)
        return err_set(t->err, E_EXISTS,
                       "workload %s/%s exists, and is another one: delete it, or end the run",
                       m->namespace_, m->name);
    if (!ns || ns->meta->deletionTimestamp)
        return err_set(t->err, E_NOTFOUND, "namespaces \"%s\" not found: create it", m->namespace_);
    if (!(x->ts->placement->gpuHourPrice >= 0 && x->ts->placement->gpuHourPrice < PRICE_MAX))
        return err_set(t->err, E_INVALID, "what is kept of the run says a price that cannot be");
    if (!root_get(t->w, KIND_TARGET, "", x->ts->placement->target))
        return err_set(t->err, E_NOTFOUND, "targets \"%.200s\" not found: apply it",
                       x->ts->placement->target);
    if (!x->o)
        return 0;
    const struct workload_status *s = object_as(x->o, workload)->status;
    int64_t try_ = s->intent ? s->intent->try_ : 0;
    bool deleted = x->o->meta->deletionTimestamp && recover_holds(t->w, x->o);
    if ((phase_final(s->phase) && !deleted) || c->epoch < s->epoch ||
        (c->epoch == s->epoch && c->try_ <= try_))
        return err_set(t->err, E_STALE, "workload %s/%s is %s in epoch %lld try %lld",
                       m->namespace_, m->name, phase_text(s->phase), (long long)s->epoch,
                       (long long)try_);
    return 0;
}

static int64_t counts(const struct placement *p, const char *node, struct slice_kind kind)
{
    int64_t sum = 0;

    for (uint32_t i = 0; p && i < p->n_assignments; i++)
        if (strcmp(p->assignments[i].node, node) == 0 &&
            slice_same(assignment_kind(&p->assignments[i]), kind))
            sum += p->assignments[i].count;
    return sum;
}

/* Of devices without numbers no more are held than there are; of a node that is not here yet,
 * nobody knows. */
static int adopt_counted(struct txn *t, const struct placement *p, const struct placement *own)
{
    for (uint32_t i = 0; i < p->n_assignments; i++) {
        const struct assignment *a = &p->assignments[i];
        const struct object *o = a->count ? root_get(t->w, KIND_NODE, "", a->node) : NULL;
        struct slice_kind kind = assignment_kind(a);
        struct counted_gpus c = node_counted(o ? object_as(o, node) : NULL, p->class_, kind);
        int64_t held = a->count ? root_counted_held(t->w, a->node, p->class_, &kind) : 0;

        if (own && strcmp(own->class_, p->class_) == 0)
            held -= counts(own, a->node, kind);
        if (c.count && held + counts(p, a->node, kind) > c.count)
            return err_set(t->err, E_PLACE,
                           "node %s: %lld of its %lld %s are held by workloads of this state",
                           a->node, (long long)held, (long long)c.count, p->class_);
    }
    return 0;
}

/* Nothing is promised twice, not even to what runs already: somebody has to say which one goes. */
static int adopt_room(struct txn *t, const struct adoption *x)
{
    const struct placement *p = x->ts->placement, *own = x->o ? object_hold(x->o) : NULL;

    if (root_hold_fits(t->w, own, p))
        return adopt_counted(t, p, own);
    for (uint32_t i = 0; i < p->n_assignments; i++) {
        const struct assignment *a = &p->assignments[i];
        struct node_usage now = {0};

        if (strlen(a->node) > 253 || !root_usage(t->w, a->node, &now))
            continue;
        for (uint32_t g = 0; g < a->n_gpus; g++)
            if (a->gpus[g] >= 0 && a->gpus[g] < LIMIT_NODE_GPUS &&
                a->gpuMilli > 1000 - now.device_milli[a->gpus[g]])
                return err_set(t->err, E_PLACE,
                               "node %s: GPU %lld is held by a workload of this state", a->node,
                               (long long)a->gpus[g]);
    }
    return err_set(t->err, E_PLACE,
                   "what is kept of the run says that it holds what cannot be held: end it");
}

/* The document as it was sent becomes the Workload: what it names that is not here any more
 * goes. */
static void adopt_new(struct txn *t, struct adoption *x)
{
    struct meta *m;

    x->w = object_edit_as(x->told, workload, t->a);
    x->s = x->w->status;
    m = x->w->metadata;
    m->generation = 1;
    m->deletionTimestamp = 0;
    m->ownerReferences = NULL;
    m->n_ownerReferences = 0;
    array_adopt(t, m);
    m->n_finalizers = 0;
    m->revision = "";
    if (!m->creationTimestamp || m->creationTimestamp > t->now)
        m->creationTimestamp = t->now;
    x->s->migration = "";
    x->s->nominated = NULL;
    x->s->spent = NULL;
    x->s->n_conditions = 0;
    if (x->s->n_ends > ENDS_MAX) {
        x->s->ends += x->s->n_ends - ENDS_MAX;
        x->s->n_ends = ENDS_MAX;
    }
    if (x->s->retries < 0 || x->s->retries > EPOCH_MAX)
        x->s->retries = 0;
    x->s->checkpoint = NULL; /* it is catalogued once the Workload is there */
}

static void adopt_live(struct txn *t, struct adoption *x)
{
    struct workload_status *s = x->s;

    if (root_feature_level(t->w) >= FEATURE_TELLS)
        s->nominated = NULL; /* room that it waited for, while it was thought to wait */
    /* Without a lease: what its runner was granted since is not known here, so that it is taken for
     * the longest that was ever given. */
    s->intent = arena_new(t->a, struct intent);
    s->intent->store = x->ts->intent ? x->ts->intent->store : "";
    s->intent->logs = x->ts->intent ? x->ts->intent->logs : NULL;
    if (s->intent->logs)
        logs_hold(t, x->w->metadata);
    s->intent->op = INTENT_SUBMIT;
    s->intent->try_ = x->c->try_;
    s->intent->done = true;
    s->intent->at = t->now;
    s->intent->key = arena_printf(t->a, "%s.%lld.%lld", x->w->metadata->uid, (long long)x->c->epoch,
                                  (long long)x->c->try_);
    s->intent->reason = "";
    s->phase = PHASE_UNKNOWN;
    s->phaseBefore = PHASE_DISPATCHING; /* what it is, its target says next */
    s->placement = arena_memdup(t->a, x->ts->placement, sizeof *s->placement);
    s->endedAt = 0;
    txn_condition(t, &s->conditions, &s->n_conditions, "Placed", COND_TRUE, "Adopted",
                  "it was found on its target");
}

/* It had ended already, in an epoch that this state did not give. */
static void adopt_ended(struct txn *t, struct adoption *x)
{
    const struct recover_cmd *c = x->c;
    struct workload_status *s = x->s;
    const struct run_spec *run = x->w->spec->run;
    bool failed = c->exit_code || c->term_signal;
    struct run_end *e = arena_array(t->a, struct run_end, ENDS_MAX + 1);
    uint32_t keep = s->n_ends < ENDS_MAX ? s->n_ends : ENDS_MAX - 1;

    if (keep)
        memcpy(e, s->ends + (s->n_ends - keep), keep * sizeof *e);
    e[keep] = (struct run_end){.epoch = c->epoch,
                               .exitCode = c->exit_code,
                               .signal = c->term_signal,
                               .proof = c->proof,
                               .at = t->now,
                               .reason = c->reason,
                               .message = c->message,
                               .target = x->ts->placement->target,
                               .workers = x->ts->placement->n_assignments};
    if (x->ts->intent && x->ts->intent->logs && root_feature_level(t->w) >= FEATURE_GIVEN) {
        e[keep].logs = x->ts->intent->logs;
        logs_hold(t, x->w->metadata);
    }
    s->ends = e;
    s->n_ends = keep + 1;
    s->placement = NULL;
    s->intent = NULL;
    s->phaseBefore = (enum phase)0;
    if (failed && !c->requeue && s->retries++ >= (run ? run->retries : 0))
        s->phase = PHASE_FAILED;
    else
        s->phase = failed || c->requeue ? PHASE_QUEUED : PHASE_SUCCEEDED;
    if (phase_final(s->phase))
        s->endedAt = t->now;
    else
        s->queuedAt = t->now;
}

static void adopt_decision(struct txn *t, const struct adoption *x)
{
    struct decision_spec *d = arena_new(t->a, struct decision_spec);
    struct place p = {.o = x->o ? x->o : x->told, .decision = d, .p = x->s->placement};

    d->reason = "Adopted";
    d->message = arena_printf(t->a,
                              "%.100s took the run over that was found on %.200s; cluster %.64s "
                              "had started it",
                              t->user, p.p->target, *x->c->cluster_uid ? x->c->cluster_uid : "-");
    p.gpus = 0;
    for (uint32_t i = 0; i < p.p->n_assignments; i++)
        p.gpus += assignment_milli(&p.p->assignments[i]);
    place_record(t, &p, x->c->epoch);
}

static int recover_adopt(struct txn *t, const struct recover_cmd *c)
{
    struct adoption x = {.c = c};
    size_t n;
    int r;

    if (c->n != 1 || c->ops[0].kind != KIND_WORKLOAD || !c->ops[0].object ||
        !*c->ops[0].object->meta->uid || strcmp(c->ops[0].object->meta->uid, c->uid) != 0)
        return err_set(t->err, E_INVALID, "a run is adopted with its Workload");
    x.told = c->ops[0].object;
    x.ts = object_as(x.told, workload)->status;
    x.o = root_workload_by_uid(t->w, c->uid);
    if ((r = adopt_check(t, &x)) < 0)
        return r;
    if (x.o && c->epoch > object_as(x.o, workload)->status->epoch) {
        move_overtaken(t, x.o, x.ts->placement->target, c->epoch);
        x.o = root_workload_by_uid(t->w, c->uid);
    }
    if (!c->ended && (r = adopt_room(t, &x)) < 0)
        return r;
    const struct run_checkpoint *from = x.ts->checkpoint;
    struct object *kept = x.o ? object_ref(x.o) : NULL;
    if (x.o) {
        x.w = object_edit_as(x.o, workload, t->a);
        x.s = x.w->status;
    } else {
        adopt_new(t, &x);
    }
    const struct object *const *queues = txn_all(t, KIND_QUEUE, &n);
    x.s->queue = arena_strdup(t->a, policy_queue_of(x.told, queues, n));
    if (c->ended)
        adopt_ended(t, &x);
    else
        adopt_live(t, &x);
    x.s->epoch = c->epoch;
    bool deleted = x.w->metadata->deletionTimestamp; /* newer ones may be elsewhere still */
    x.s->epochFloor = phase_holds(x.s->phase) || (phase_final(x.s->phase) && !deleted)
                          ? 0
                          : floor_above(t, c->epoch);
    x.s->phaseSince = t->now;
    x.s->reason = "Adopted";
    x.s->message = "taken over from what its target carries";
    if (deleted && c->ended)
        recover_tell_deleted(x.s);
    if (!c->ended)
        adopt_decision(t, &x);
    const struct object *o = txn_put(t, kind_by_id(KIND_WORKLOAD), x.o, x.w);
    checkpoint_adopt(t, o, c->ended && c->checkpoint ? c->checkpoint : from);
    recover_await(t, root_workload_by_uid(t->w, c->uid));
    if (kept)
        (void)object_unref(kept);
    return 0;
}

int apply_recover(struct txn *t, const struct recover_cmd *c)
{
    switch (c->step) {
    case RECOVER_BEGIN:
        return recover_begin(t, c);
    case RECOVER_LOST:
        return recover_lost(t, c);
    case RECOVER_ADOPT:
        return recover_adopt(t, c);
    case RECOVER_SETTLE:
        return recover_settle(t, c);
    case RECOVER_STRANGER:
        return recover_stranger(t, c);
    default:
        return err_set(t->err, E_INVALID, "no such step: %d", (int)c->step);
    }
}
