/* MIGRATE: a move as a transaction (move.def): reserve, quiesce, verify, stage, prove stopped,
 * start, commit; each is a step with its way back (controlplane/DESIGN.md, Migration).
 *
 * An epoch must never start before the one before it is proved ended: START takes a Queued workload
 * only, and only RUN leads there, with its proof. A destination must be held from RESERVE until the
 * epoch that starts there, and not for a move that has ended. A plan holds as a whole or not at
 * all. */
#include "controlplane/store/store_internal.h"

#include "api/base/failpoint.h"
#include "policy/policy.h"

#include <stdio.h>

#define MOVE_STALE(t, ...) err_set((t)->err, E_STALE, __VA_ARGS__)

static const struct workload_status *source(const struct move *x)
{
    return object_as(x->wo, workload)->status;
}

/* An epoch was proved ended (RUN): the Migration that waits for it learns what was lost. */
void move_source_ended(struct txn *t, const struct object *before, double lost)
{
    const struct workload_status *ws = object_as(before, workload)->status;
    const struct object *o =
        root_get(t->w, KIND_MIGRATION, before->meta->namespace_, ws->migration);

    if (!object_open_move(o))
        return;
    const struct migration_status *s = object_as(o, migration)->status;
    if (s->fromEpoch != ws->epoch || s->phase < MP_VERIFYING || s->phase == MP_STARTING)
        return; /* it did not end for the move's sake */
    struct migration *m = object_edit_as(o, migration, t->a);
    m->status->lostGpuSeconds = lost;
    (void)txn_put(t, o->kind, o, m);
}

/* ---- the steps ---- */
static int step_reserve(struct txn *t, struct move *x)
{
    const struct migrate_cmd *c = x->c;

    if (c->n != 1)
        return err_set(t->err, E_INVALID, "RESERVE takes one destination, not %u", c->n);
    if (strcmp(c->begins[0].ns, c->ns) != 0 ||
        strcmp(c->begins[0].workload, x->m->spec->workload) != 0)
        return MOVE_STALE(t, "migration %s/%s moves workload %.200s, not %s", c->ns, c->name,
                          x->m->spec->workload, c->begins[0].workload);
    return move_reserve(t, x, &c->begins[0]);
}

static bool makes_room(const struct move *x)
{
    return x->m->spec->cause == MOVE_PREEMPTION || x->m->spec->cause == MOVE_RECLAIM;
}

/* The workload's own step in the same command: it is told to save and end; or, where nothing was
 * started, its place is given back. What has ended already needs no telling. */
static int step_quiesce(struct txn *t, struct move *x)
{
    const struct workload_status *ws = source(x);
    struct run_cmd run = {.step = STEP_QUIESCE, .epoch = ws->epoch};
    const char *why = move_refused(x->wo);

    if (ws->phase == PHASE_QUEUED || ws->phase == PHASE_STOPPED)
        return 0;
    if (why)
        return MOVE_STALE(t, "workload %s/%s %s", x->c->ns, x->m->spec->workload, why);
    if (ws->phase == PHASE_RESERVED)
        run.step = STEP_REQUEUE;
    run.try_ = ws->intent ? ws->intent->try_ : 0;
    str_copy(run.ns, sizeof run.ns, x->c->ns);
    str_copy(run.name, sizeof run.name, x->m->spec->workload);
    str_copy(run.uid, sizeof run.uid, x->wo->meta->uid);
    str_copy(run.reason, sizeof run.reason, makes_room(x) ? "Preempted" : "Moving");
    if (*x->c->message)
        memcpy(run.message, x->c->message, sizeof run.message);
    else
        (void)snprintf(run.message, sizeof run.message, "migration %.250s (%s): %.250s%.250s",
                       x->c->name, move_cause_text(x->m->spec->cause),
                       *x->s->to ? "goes to " : "makes room, is queued again", x->s->to);
    int r = apply_run(t, &run);
    t->res->unchanged = false;
    return r;
}

/* What it resumes from, as the workload knows now; and what is lost by that. */
static void settle_checkpoint(struct txn *t, struct move *x)
{
    const struct workload_status *ws = source(x);
    const struct run_checkpoint *ck = ws->checkpoint;

    x->s->checkpoint = ck ? arena_strdup(t->a, ck->name) : "";
    x->s->step = ck ? ck->step : 0;
    if (phase_live(ws->phase)) /* else it was told when its end was proved */
        x->s->lostGpuSeconds = workload_lost(ws, ck, t->now);
}

static int step_start(struct txn *t, struct move *x)
{
    const struct workload *w = object_as(x->wo, workload);

    if (w->status->phase != PHASE_QUEUED && !PLANTED("move.start-unproved"))
        return MOVE_STALE(t, "workload %s/%s is %s: its end is not proved", x->c->ns,
                          x->m->spec->workload, phase_text(w->status->phase));
    if (workload_unsettled(t->w, x->wo, w->status))
        return err_set(t->err, E_BUSY,
                       "workload %s/%s may run in a newer epoch elsewhere: recovery is not settled",
                       x->c->ns, x->m->spec->workload);
    if (x->wo->meta->deletionTimestamp || w->spec->suspend)
        return MOVE_STALE(t, "workload %s/%s is %s", x->c->ns, x->m->spec->workload,
                          w->spec->suspend ? "suspended" : "being deleted");
    settle_checkpoint(t, x);
    if (!x->s->placement)
        x->to = MP_SUCCEEDED;
    return 0;
}

/* The destination is let go by the Migration and taken by the Workload, in one command. */
static int start_there(struct txn *t, struct move *x)
{
    INV(x->wo); /* step_take: without it a move can only be aborted */
    const struct object *d =
        root_get(t->w, KIND_DECISION, x->wo->meta->namespace_, x->s->placement->decision);
    struct decision_spec none = {.reason = "Moved", .message = "", .revision = ""};
    struct place at = {.o = x->wo,
                       .w = object_as(x->wo, workload),
                       .decision = d ? object_as(d, decision)->spec : &none,
                       .settled = true};

    at.p = arena_memdup(t->a, x->s->placement, sizeof *at.p);
    int r = place_admit(t, &at);
    if (r == 0)
        place_take(t, &at, object_edit_as(x->wo, workload, t->a));
    return r;
}

static int step_commit(struct txn *t, struct move *x)
{
    const struct workload_status *ws = source(x);
    bool ran = ws->phase == PHASE_SUCCEEDED || workload_has_run(ws);

    if (ws->epoch != x->s->toEpoch || !ran)
        return MOVE_STALE(t, "workload %s/%s is %s in epoch %lld: not seen running in epoch %lld",
                          x->c->ns, x->m->spec->workload, phase_text(ws->phase),
                          (long long)ws->epoch, (long long)x->s->toEpoch);
    return 0;
}

/* A victim that stays where it is spoils the plan: the room is not kept any longer. */
static void forget_nominated(struct txn *t, const struct move *x)
{
    const char *slash = strchr(x->s->for_, '/');

    if (!slash || !x->wo || !phase_holds(source(x)->phase))
        return;
    const struct object *o =
        root_get(t->w, KIND_WORKLOAD, arena_strndup(t->a, x->s->for_, (size_t)(slash - x->s->for_)),
                 slash + 1);
    if (!o || !object_as(o, workload)->status->nominated)
        return;
    struct workload *w = object_edit_as(o, workload, t->a);
    w->status->nominated = NULL;
    (void)txn_put(t, o->kind, o, w);
}

static void step_abort(struct txn *t, struct move *x)
{
    if (x->c->outcome == MP_FAILED || x->c->outcome == MP_CANCELLED)
        x->to = x->c->outcome;
    forget_nominated(t, x);
    x->s->placement = NULL;
    if (x->from <= MP_QUIESCING) /* it was not disturbed */
        x->s->lostGpuSeconds = 0;
}

static int step_take(struct txn *t, struct move *x)
{
    bool given_up = x->o->meta->deletionTimestamp || x->m->spec->cancel;
    enum move_step step = x->c->step;

    if (step == MOVE_ABORT) {
        step_abort(t, x);
        return 0;
    }
    if (!x->wo)
        return MOVE_STALE(t, "workload %s/%.200s is gone: its migration can only be aborted",
                          x->c->ns, x->m->spec->workload);
    if (given_up && step != MOVE_COMMIT)
        return MOVE_STALE(t, "migration %s/%s was given up: it can only be aborted", x->c->ns,
                          x->c->name);
    if (phase_final(source(x)->phase) && step != MOVE_COMMIT)
        return MOVE_STALE(t, "workload %s/%s has ended: its migration can only be aborted",
                          x->c->ns, x->m->spec->workload);
    if (step > MOVE_WAIT && step < MOVE_COMMIT && source(x)->epoch != x->s->fromEpoch)
        return MOVE_STALE(t, "workload %s/%s is in epoch %lld, the migration leaves epoch %lld",
                          x->c->ns, x->m->spec->workload, (long long)source(x)->epoch,
                          (long long)x->s->fromEpoch);
    switch (step) {
    case MOVE_RESERVE:
        return step_reserve(t, x);
    case MOVE_QUIESCE:
        return step_quiesce(t, x);
    case MOVE_VERIFY:
        settle_checkpoint(t, x);
        return 0;
    case MOVE_WAIT:
    case MOVE_STAGE:
        return 0;
    case MOVE_START:
        return step_start(t, x);
    case MOVE_COMMIT:
        return step_commit(t, x);
    default:
        return err_set(t->err, E_INVALID, "no such step: %d", (int)step);
    }
}

void move_overtaken(struct txn *t, const struct object *wo, const char *target, int64_t epoch)
{
    const char *name = object_as(wo, workload)->status->migration;
    const struct object *o =
        *name ? root_get(t->w, KIND_MIGRATION, wo->meta->namespace_, name) : NULL;

    if (!o || !object_open_move(o))
        return;
    const struct placement *held = object_hold(o);
    const char *let_go = held ? arena_strdup(t->a, held->target) : NULL;
    struct migration *m = object_edit_as(o, migration, t->a);
    struct migration_status *s = m->status;
    s->placement = NULL;
    s->reason = "FoundElsewhere";
    s->message = arena_printf(t->a,
                              "the state went back to before the end of this move: its workload "
                              "was found on %.200s in epoch %lld, and goes on from there",
                              target, (long long)epoch);
    move_enter(t, s, MP_CANCELLED);
    s->endedAt = t->now;
    o = txn_put(t, o->kind, o, m);
    move_tell(t, wo, "", false);
    txn_settle(t, o->meta->namespace_, let_go);
    if (o->meta->deletionTimestamp && o->meta->n_finalizers == 0)
        txn_remove(t, o);
}

/* ---- the command ---- */
static void status_step(struct txn *t, struct move *x)
{
    struct migration_status *s = x->s;

    if (x->from >= MP_VERIFYING) /* since it was told to stop, or was lost */
        s->pause += t->now - s->phaseSince;
    if (*x->c->reason || x->c->step <= MOVE_WAIT || x->to == MP_SUCCEEDED) {
        s->reason = *x->c->reason              ? x->c->reason
                    : x->to != MP_SUCCEEDED    ? ""
                    : x->c->step == MOVE_START ? "Requeued"
                                               : "Moved";
        /* The reason of the move stays after its success, for later readers. */
        if (*x->c->message || x->to != MP_SUCCEEDED)
            s->message = x->c->message;
    }
    if (x->to != x->from)
        move_enter(t, s, x->to);
    if (!move_open(x->to))
        s->endedAt = t->now;
}

/* The Migration first: what it held is free for its Workload before that takes it. */
static int step_store(struct txn *t, struct move *x)
{
    const struct placement *held = object_hold(x->o);
    const char *target = held ? arena_strdup(t->a, held->target) : NULL;

    status_step(t, x);
    if (body_equal(&schema_migration, x->m, x->o->body)) {
        t->res->unchanged = true;
        return 0;
    }
    const struct object *o = txn_put(t, x->o->kind, x->o, x->m);
    if (x->to == MP_STARTING && x->from == MP_FENCING) {
        int r = start_there(t, x);
        if (r < 0)
            return r;
    }
    if (move_open(x->to))
        return 0;
    const struct object *wo = root_get(t->w, KIND_WORKLOAD, x->c->ns, x->m->spec->workload);
    INV(!x->wo || wo);
    if (x->wo && strcmp(object_as(wo, workload)->status->migration, x->c->name) == 0)
        move_tell(t, wo, "", x->to == MP_SUCCEEDED);
    txn_settle(t, x->c->ns, target);
    if (o->meta->deletionTimestamp && o->meta->n_finalizers == 0)
        txn_remove(t, o);
    return 0;
}

static int apply_step(struct txn *t, const struct migrate_cmd *c)
{
    struct move x = {.c = c, .o = root_get(t->w, KIND_MIGRATION, c->ns, c->name)};
    int r;

    if (!x.o || strcmp(x.o->meta->uid, c->uid) != 0 || !object_as(x.o, migration)->status)
        return MOVE_STALE(t, "migration %s/%s is not the one that was meant", c->ns, c->name);
    x.m = object_edit_as(x.o, migration, t->a);
    x.s = x.m->status;
    x.from = x.s->phase;
    x.to = move_next(x.from, c->step);
    if (!x.to)
        return MOVE_STALE(t, "%s does not follow on %s (migration %s/%s)", move_step_text(c->step),
                          move_phase_text(x.from), c->ns, c->name);
    x.wo = root_get(t->w, KIND_WORKLOAD, c->ns, x.m->spec->workload);
    if (x.wo && strcmp(x.wo->meta->uid, x.s->workloadUid) != 0)
        x.wo = NULL;
    struct object *kept = object_ref(x.o), *kept_w = x.wo ? object_ref(x.wo) : NULL;
    if ((r = step_take(t, &x)) == 0)
        r = step_store(t, &x);
    (void)object_unref(kept_w);
    (void)object_unref(kept);
    return r;
}

int apply_migrate(struct txn *t, const struct migrate_cmd *c)
{
    return c->step == MOVE_BEGIN ? move_begin_all(t, c) : apply_step(t, c);
}
