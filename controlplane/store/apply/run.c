/* RUN: one step of the epoch machine of a Workload (epoch.def). Alive, dead and unknown are three
 * answers.
 *
 * A reservation must never be released without a proof that nothing of its epoch runs or will run,
 * and an old epoch or try must never speak for the present one. A step that does not fit is E_STALE
 * and changes nothing. */
#include "controlplane/store/store_internal.h"

#include "api/base/failpoint.h"
#include "connectors/ends.h"
#include "policy/policy.h"

#include <stdio.h>

#define ENDS_MAX 16
#define RUN_STALE(t, ...) err_set((t)->err, E_STALE, __VA_ARGS__)

struct run {
    const struct run_cmd *c;
    const struct object *o;
    struct workload *w; /* our copy */
    struct workload_status *s;
    enum phase from;
    enum phase to;
    const char *reason, *message; /* of the command, or what apply itself found */
    bool doubted; /* told to save and end ahead of being seen running: it waits again */
    uint64_t rv;  /* ahead of the command */
};

static int64_t run_try(const struct workload_status *s)
{
    return s->intent ? s->intent->try_ : 0;
}

static bool stop_asked(const struct workload_status *s)
{
    return s->intent && s->intent->op == INTENT_STOP;
}

/* Nothing of it is to be done again. */
static bool ended_well(enum phase p)
{
    return p == PHASE_SUCCEEDED || p == PHASE_CANCELLED;
}

/* ---- what it costs to end it, and the record of that ---- */
static double hours_of(int64_t gpu_milli, int64_t ms)
{
    if (ms > 10ll * 366 * 24 * 3600 * 1000)
        ms = 10ll * 366 * 24 * 3600 * 1000;
    if (ms <= 0)
        return 0;
    int64_t milli_s = gpu_milli * (ms / 1000) + gpu_milli * (ms % 1000) / 1000; /* whole ones */
    return (double)milli_s / 3600000.0;
}

/* Since when work would be done again: the newest verified checkpoint of this epoch, or its
 * start. */
static int64_t lost_from(const struct workload_status *s, const struct run_checkpoint *ck)
{
    int64_t from = s->placement ? s->placement->since : 0;

    return ck && ck->epoch == s->epoch && checkpoint_saved_at(ck) > from ? checkpoint_saved_at(ck)
                                                                         : from;
}

double workload_lost(const struct workload_status *s, const struct run_checkpoint *ck, int64_t now)
{
    return s->placement ? hours_of(s->placement->gpus, now - lost_from(s, ck)) * 3600 : 0;
}

static void end_add(struct txn *t, struct run *x)
{
    struct workload_status *s = x->s;
    uint32_t keep = s->n_ends < ENDS_MAX ? s->n_ends : ENDS_MAX - 1;
    struct run_end *ends = arena_array(t->a, struct run_end, keep + 1);

    if (keep)
        memcpy(ends, s->ends + (s->n_ends - keep), keep * sizeof *ends);
    ends[keep] = (struct run_end){.epoch = s->epoch,
                                  .exitCode = x->c->exit_code,
                                  .signal = x->c->term_signal,
                                  .proof = x->c->proof,
                                  .at = t->now,
                                  .reason = x->reason,
                                  .message = x->message,
                                  .target = s->placement ? s->placement->target : "",
                                  .store = s->intent ? s->intent->store : "",
                                  .logs = s->intent ? s->intent->logs : NULL};
    if (s->placement && root_feature_level(t->w) >= FEATURE_GRANTS)
        ends[keep].workers = s->placement->n_assignments;
    if (x->c->pause && x->c->pause->scope == BLAMES_WORKLOAD) {
        ends[keep].deniedUntil = t->now + policy_pause_length(x->c->pause);
        ends[keep].generation = x->o->meta->generation;
    }
    s->ends = ends;
    s->n_ends = keep + 1;
}

/* ---- where an end leads ---- */
static bool retries_left(const struct run *x)
{
    const struct run_spec *r = x->w->spec->run;

    return x->s->retries < (r ? r->retries : 0);
}

/* Told to save and end, it ended, and no checkpoint of this epoch was ever verified, though its
 * spec requires one. */
static bool saved_nothing(const struct run *x)
{
    const struct checkpoint_spec *contract = x->w->spec->checkpoint;
    const struct run_checkpoint *ck = x->s->checkpoint;

    return contract && contract->required && x->s->intent && x->s->intent->op == INTENT_QUIESCE &&
           !(ck && ck->epoch == x->s->epoch);
}

static bool exit_is_doubted(const struct txn *t)
{
    return root_feature_level(t->w) >= FEATURE_GRANTS && !PLANTED("run.saved-nothing");
}

/* What its target broke off has not done its work, whatever its program said of itself: many end
 * with 0 when they are told to go. */
static bool broken_off(const struct txn *t, const struct run *x)
{
    return exit_is_doubted(t) && end_row(x->c->reason)->again == AGAIN_FREE;
}

static enum phase after_end(const struct txn *t, struct run *x)
{
    bool failed = x->c->exit_code != 0 || x->c->term_signal != 0 || broken_off(t, x);

    if (stop_asked(x->s))
        return PHASE_CANCELLED;
    /* It may say that all is well (0): older logs believed it. Told to end ahead of being seen
     * running, it had nothing to save, and has not done its work either. */
    if (!failed && !x->c->requeue && exit_is_doubted(t) && saved_nothing(x) &&
        !workload_has_run(x->s)) {
        x->reason = end_text(END_CHECKPOINT_NEEDED);
        x->message = "it was told to save and end ahead of being seen running, and saved nothing";
        x->doubted = true;
        return PHASE_QUEUED;
    }
    if ((x->c->requeue || exit_is_doubted(t)) && workload_has_run(x->s) && saved_nothing(x)) {
        failed = true;
        x->reason = end_text(END_CHECKPOINT_NEEDED);
        x->message = "it was told to save and end, and left no checkpoint that could be verified";
    } else if (x->c->requeue) {
        return PHASE_QUEUED;
    }
    if (!failed)
        return PHASE_SUCCEEDED;
    bool again = retries_left(x);
    x->s->retries++;
    return again ? PHASE_QUEUED : PHASE_FAILED;
}

/* Requeued because a migration asked for it. */
static bool moved_on(const struct run *x)
{
    return *x->s->migration && (x->c->requeue || x->doubted || x->c->step == STEP_REQUEUE);
}

/* Proved: its processes are gone, or never were. */
static void let_go(struct txn *t, struct run *x)
{
    bool live = phase_live(x->from);

    if (live)
        end_add(t, x);
    txn_condition(t, &x->s->conditions, &x->s->n_conditions, "Running", COND_FALSE,
                  phase_text(x->to), x->reason);
    if (x->to == PHASE_QUEUED) {
        x->s->placement = NULL;
        /* a victim keeps its place in the queue */
        if (!moved_on(x) || PLANTED("run.victim-to-the-end"))
            x->s->queuedAt = t->now;
        txn_condition(t, &x->s->conditions, &x->s->n_conditions, "Placed", COND_FALSE, x->reason,
                      x->message);
    }
    if (phase_final(x->to)) {
        x->s->endedAt = t->now;
        x->s->nominated = NULL;
    }
    x->s->phaseBefore = (enum phase)0;
    x->s->intent = NULL;
    x->s->pending = NULL;
    checkpoint_save_ended(t, x->w, x->to);
}

static bool ends_with_proof(enum run_step step)
{
    return step == STEP_ENDED || step == STEP_ABSENT || step == STEP_CLOSE ||
           step == STEP_LEASE_OVER || step == STEP_FENCED;
}

/* The last copy is not let go by its lease alone before its replacement holds a place: the one that
 * was held may have been given up in this very entry. */
static bool replacement_missing(const struct txn *t, const struct run *x)
{
    const struct partition_spec *p = x->w->spec->partition;
    const struct object *o;

    if (x->c->step != STEP_LEASE_OVER || !x->c->requeue || !p || p->mode != PARTITION_REPLACE ||
        x->w->spec->suspend || x->o->meta->deletionTimestamp || stop_asked(x->s) ||
        (x->w->spec->deadline && t->now >= x->w->spec->deadline))
        return false;
    o = *x->s->migration ? root_get(t->w, KIND_MIGRATION, x->o->meta->namespace_, x->s->migration)
                         : NULL;
    return !o || !object_hold(o);
}

/* Its target refused it for a reason of its own: what is placed from this entry on goes
 * elsewhere. */
static void target_pauses(struct txn *t, const struct run *x)
{
    const struct object *o = root_get(t->w, KIND_TARGET, "", x->s->placement->target);
    struct target_pause pause = *x->c->pause;

    if (!o || pause.scope == BLAMES_WORKLOAD)
        return;
    struct target *b = object_edit_as(o, target, t->a);
    if (!b->status)
        b->status = arena_new(t->a, struct target_status);
    pause.until = t->now + policy_pause_length(&pause);
    pause.since = t->now;
    pause.message = x->message;
    pause.name = pause.name ? pause.name : "";
    b->status->n_pauses = policy_pause_add(b->status, &pause, t->a, &b->status->pauses);
    (void)txn_put(t, o->kind, o, b);
}

static int step_end(struct txn *t, struct run *x)
{
    if (!x->c->proof || (x->c->step == STEP_CLOSE && x->c->proof != PROOF_NEVER_STARTED))
        return err_field(t->err, E_INVALID, "proof", "%s needs its proof",
                         run_step_text(x->c->step));
    if ((x->c->step == STEP_ABSENT || x->c->step == STEP_CLOSE) && workload_has_run(x->s))
        return RUN_STALE(t, "workload %s/%s ran in epoch %lld: absent is no proof of its end",
                         x->c->ns, x->c->name, (long long)x->s->epoch);
    if (x->c->step == STEP_LEASE_OVER && grant_proves(t, x->s) < 0)
        return t->err->code;
    if (x->c->step == STEP_CLOSE && close_proves(t, x->s, x->c, &x->reason, &x->message) < 0)
        return t->err->code;
    if (x->c->step == STEP_ABSENT && x->c->pause && x->s->placement)
        target_pauses(t, x);
    if (replacement_missing(t, x) && !PLANTED("run.lease-first"))
        return RUN_STALE(t, "no replacement of workload %s/%s holds a place: its own stays",
                         x->c->ns, x->c->name);
    if (x->c->step == STEP_ENDED) {
        if (x->c->checkpoint) /* its last one; an older one than is known changes nothing */
            (void)!checkpoint_take(t, x->o, x->s, x->c->checkpoint, x->c->epoch);
        x->to = after_end(t, x);
    } else if (stop_asked(x->s)) {
        x->to = PHASE_CANCELLED;
    } else if (x->c->requeue || x->s->pending) { /* it has no place there to keep */
        x->to = PHASE_QUEUED;
    }
    if (x->to != PHASE_RESERVED) {
        let_go(t, x);
        return 0;
    }
    /* Absent: the place is kept, the next try gets a key of its own. */
    x->s->intent->op = INTENT_NONE;
    x->s->intent->done = true;
    return 0;
}

/* ---- steps on the way ---- */
/* Its spec may have changed since it was placed, and what a policy forbids may never begin. */
static int dispatch_allowed(struct txn *t, const struct run *x)
{
    const struct object *target = root_get(t->w, KIND_TARGET, "", x->s->placement->target);

    if (root_feature_level(t->w) < FEATURE_GRANTS || !target)
        return 0;
    return place_compliance(t, x->o, target);
}

static int step_dispatch(struct txn *t, struct run *x)
{
    struct intent *in = arena_new(t->a, struct intent);
    int r = dispatch_allowed(t, x);

    if (r < 0)
        return r;
    in->op = INTENT_SUBMIT;
    in->try_ = x->c->try_;
    in->at = t->now;
    in->key = arena_printf(t->a, "%s.%lld.%lld", x->o->meta->uid, (long long)x->s->epoch,
                           (long long)in->try_);
    in->reason = in->store = "";
    in->agent = root_feature_level(t->w) >= FEATURE_GRANTS ? x->c->agent : "";
    x->s->intent = in;
    x->s->workers = NULL;
    x->s->n_workers = 0;
    x->s->resumedFrom = x->s->checkpoint ? x->s->checkpoint->name : "";
    x->s->resumedStep = x->s->checkpoint ? x->s->checkpoint->step : 0;
    x->s->resumedFound = x->s->checkpoint && x->s->checkpoint->found;
    r = grant_dispatch(t, x->w, in, x->c->grant);
    if (r == 0 && in->logs)
        logs_hold(t, x->w->metadata);
    return r;
}

static void step_intent(struct txn *t, struct run *x)
{
    struct intent *in = x->s->intent; /* there is one in every live phase */
    enum intent_op op = x->c->step == STEP_STOP ? INTENT_STOP : INTENT_QUIESCE;

    if (x->from == PHASE_UNKNOWN)
        x->s->phaseBefore = PHASE_QUIESCING;
    if (in->op == INTENT_STOP || in->op == op)
        return;
    in->op = op;
    in->at = t->now;
    in->done = false;
    in->reason = x->c->reason;
}

/* ---- in the target's own queue ---- */
/* It holds what it asks for against its queue and on its target, and no node: which ones it gets
 * the target decides. */
static void step_pending(struct txn *t, struct run *x)
{
    struct run_pending *p = arena_new(t->a, struct run_pending);
    const struct run_pending *had = x->s->pending;

    if (x->c->pending)
        *p = *x->c->pending;
    p->reason = x->reason;
    p->message = x->message;
    p->since = had ? had->since : t->now;
    p->asked = had ? had->asked : arena_memdup(t->a, x->s->placement, sizeof *p->asked);
    x->s->pending = p;
    x->s->intent->done = true;
    if (PLANTED("run.pending-holds"))
        return;
    x->s->placement->assignments = NULL;
    x->s->placement->n_assignments = 0;
}

static int step_seated(struct txn *t, struct run *x)
{
    const struct run_pending *p = x->s->pending;
    struct placement now;

    if (!p) /* it has its nodes */
        return 0;
    now = *x->s->placement;
    const struct placement *seats = x->c->seats ? x->c->seats : p->asked;
    now.n_assignments = seats->n_assignments;
    now.assignments =
        arena_memdup(t->a, seats->assignments, seats->n_assignments * sizeof *now.assignments);
    now.since = t->now;
    now.gpus = 0;
    if (now.n_assignments != p->asked->n_assignments)
        return err_set(t->err, E_INVALID, "%u workers asked for nodes, and the target names %u",
                       p->asked->n_assignments, now.n_assignments);
    for (uint32_t i = 0; i < now.n_assignments; i++) {
        struct assignment *a = &now.assignments[i];
        const struct object *o = root_get(t->w, KIND_NODE, "", a->node);

        a->mig = a->mig ? a->mig : "";
        if (!o || strcmp(object_as(o, node)->spec->target, now.target) != 0)
            return err_set(t->err, E_PLACE, "%.253s is no node of target %s", a->node, now.target);
        if (!seat_choose(t, &now, i, &p->asked->assignments[i]))
            return err_set(t->err, E_PLACE, "by the log, node %.253s has not that many GPUs free",
                           a->node);
        now.gpus += assignment_milli(a);
    }
    if (!root_hold_fits(t->w, NULL, &now))
        return err_set(t->err, E_PLACE, "by the log, what the target gave is held by others");
    *x->s->placement = now;
    x->s->pending = NULL;
    return 0;
}

/* It may run: its condition does not say that it does. One that says Unknown was True before. */
static int step_unknown(struct txn *t, struct run *x)
{
    bool tells = root_feature_level(t->w) >= FEATURE_TELLS;

    if (x->from == PHASE_UNKNOWN && !tells)
        return RUN_STALE(t, "workload %s/%s is Unknown already", x->c->ns, x->c->name);
    if (x->from != PHASE_UNKNOWN)
        x->s->phaseBefore = x->from;
    if (tells && workload_has_run(x->s))
        txn_condition(t, &x->s->conditions, &x->s->n_conditions, "Running", COND_UNKNOWN, x->reason,
                      x->message);
    return 0;
}

static int step_seen(struct txn *t, struct run *x)
{
    if (!x->s->phaseBefore)
        return RUN_STALE(t, "nothing says what it was before");
    x->s->epochFloor = 0; /* it lives, so no newer epoch ever began */
    x->to = x->s->phaseBefore;
    x->s->phaseBefore = (enum phase)0;
    if (root_feature_level(t->w) >= FEATURE_TELLS && workload_has_run(x->s))
        txn_condition(t, &x->s->conditions, &x->s->n_conditions, "Running", COND_TRUE, "Running",
                      x->message);
    return 0;
}

static int step_take(struct txn *t, struct run *x)
{
    workers_take(t, x->s, x->c);
    if (x->c->step == STEP_ENDED)
        workers_spend(t, x->s, x->c);
    if (ends_with_proof(x->c->step))
        return step_end(t, x);
    if (x->c->lease_held)
        grant_told(t, x->s->intent);
    switch (x->c->step) {
    case STEP_DISPATCH:
        return step_dispatch(t, x);
    case STEP_ACCEPTED:
        x->s->intent->done = true;
        return 0;
    case STEP_PENDING:
        step_pending(t, x);
        return 0;
    case STEP_SEATED:
        return step_seated(t, x);
    case STEP_RUNNING:
        if (x->s->pending)
            return RUN_STALE(t, "which nodes workload %s/%s was given is not told", x->c->ns,
                             x->c->name);
        x->s->intent->done = true;
        if (!x->s->startedAt)
            x->s->startedAt = t->now;
        txn_condition(t, &x->s->conditions, &x->s->n_conditions, "Running", COND_TRUE, "Running",
                      x->c->message);
        return 0;
    case STEP_UNKNOWN:
        return step_unknown(t, x);
    case STEP_SEEN:
        return step_seen(t, x);
    case STEP_QUIESCE:
    case STEP_STOP:
        if (phase_live(x->from)) {
            step_intent(t, x);
            return 0;
        }
        let_go(t, x);
        return 0;
    case STEP_REQUEUE:
        let_go(t, x);
        return 0;
    case STEP_CHECKPOINT:
        return checkpoint_take(t, x->o, x->s, x->c->checkpoint, x->c->epoch);
    case STEP_CHECKPOINT_FOUND:
        return checkpoint_found(t, x->o, x->s, x->c->checkpoint);
    case STEP_CHECKPOINT_BAD:
        return checkpoint_bad(t, x->o, x->s, x->c->checkpoint, x->c->reason, x->c->message);
    case STEP_OFFER:
        return grant_offer(t, x->s->intent, x->c->grant);
    case STEP_GRANT:
        return grant_acknowledged(t, x->s->intent, x->c->grant);
    case STEP_SAVE:
        return checkpoint_save(t, x->w, x->from, x->c);
    case STEP_CLAIM:
        return claim_take(t, x->s, x->c);
    case STEP_USE: /* workers_take did it */
        return 0;
    default:
        return err_set(t->err, E_INVALID, "no such step: %d", (int)x->c->step);
    }
}

/* ---- the command ---- */
static int check_fence(struct txn *t, const struct run *x)
{
    const struct run_cmd *c = x->c;
    int64_t try_ = run_try(x->s) + (c->step == STEP_DISPATCH);

    if (c->step == STEP_CHECKPOINT)
        return 0; /* its own rule: checkpoint_take */
    /* That this very run ended is true whatever came after: its place is free. An end that follows
     * from what this state does not have any more (a longer lease, a later try) is not. */
    if (workload_unsettled(t->w, x->o, x->s) &&
        (c->step == STEP_ABSENT || c->step == STEP_CLOSE || c->step == STEP_LEASE_OVER ||
         c->step == STEP_DISPATCH))
        return err_set(t->err, E_BUSY,
                       "workload %s/%s may run in a newer epoch elsewhere: recovery is not settled",
                       c->ns, c->name);
    if (c->step == STEP_DISPATCH && x->s->epochFloor > x->s->epoch)
        return RUN_STALE(t, "epoch %lld of workload %s/%s may have been sent by a later state",
                         (long long)x->s->epoch, c->ns, c->name);
    if (c->step == STEP_CHECKPOINT_BAD)
        try_ = c->try_; /* whoever found out */
    if (c->epoch != x->s->epoch || c->try_ != try_)
        return RUN_STALE(t, "%s of epoch %lld try %lld; workload %s/%s is in epoch %lld try %lld",
                         run_step_text(c->step), (long long)c->epoch, (long long)c->try_, c->ns,
                         c->name, (long long)x->s->epoch, (long long)run_try(x->s));
    if (c->step == STEP_DISPATCH && x->o->meta->deletionTimestamp)
        return RUN_STALE(t, "workload %s/%s is being deleted", c->ns, c->name);
    return 0;
}

/* Facts about checkpoints and leases say nothing about the phase. */
static bool told_only(enum run_step step)
{
    return step == STEP_CHECKPOINT || step == STEP_CHECKPOINT_BAD ||
           step == STEP_CHECKPOINT_FOUND || step == STEP_OFFER || step == STEP_GRANT ||
           step == STEP_SEATED || step == STEP_SAVE || step == STEP_CLAIM ||
           step == STEP_USE;
}

/* Phase, reason and time; then the object, or its removal when that was only waiting for this
 * end. */
static void step_store(struct txn *t, struct run *x)
{
    const char *target = x->s->placement ? arena_strdup(t->a, x->s->placement->target) : NULL;
    const struct placement *held = object_hold(x->o);

    if (x->to != x->from) {
        x->s->phase = x->to;
        x->s->phaseSince = t->now;
        x->s->gpuUse = NULL; /* of what runs, and of no other time */
    }
    if (!told_only(x->c->step) && (x->to != x->from || *x->reason)) {
        x->s->reason = x->reason;
        x->s->message = x->message;
    }
    /* What holds it back from here on is the suspension; how its run ended stands in `ends`. */
    if (x->to != x->from && x->to == PHASE_QUEUED && x->w->spec->suspend) {
        x->s->reason = reason_text(REASON_SUSPENDED);
        x->s->message = reason_sentence(REASON_SUSPENDED);
    }
    if (x->o->meta->deletionTimestamp && x->to != x->from && !phase_live(x->to) &&
        workload_unsettled(t->w, x->o, x->s))
        recover_tell_deleted(x->s);
    if (held)
        target = arena_strdup(t->a, held->target);
    if (body_equal(&schema_workload, x->w, x->o->body)) {
        t->res->unchanged = t->w->rv == x->rv;
        return;
    }
    const struct object *o = txn_put(t, x->o->kind, x->o, x->w);
    if (*x->s->migration && phase_live(x->from) && !phase_holds(x->to))
        move_source_ended(t, x->o,
                          ended_well(x->to) ? 0
                                            : workload_lost(object_as(x->o, workload)->status,
                                                            x->s->checkpoint, t->now));
    if (phase_holds(x->from) && !phase_holds(x->to))
        txn_settle(t, x->c->ns, target);
    if (!o->meta->deletionTimestamp)
        return;
    if (txn_removable(t, o))
        txn_remove(t, o);
    else
        recover_await(t, o);
}

int apply_run(struct txn *t, const struct run_cmd *c)
{
    struct run x = {.c = c,
                    .o = root_get(t->w, KIND_WORKLOAD, c->ns, c->name),
                    .reason = c->reason,
                    .message = c->message,
                    .rv = t->w->rv};
    int r;

    if (!x.o || strcmp(x.o->meta->uid, c->uid) != 0)
        return RUN_STALE(t, "workload %s/%s is not the one that ran", c->ns, c->name);
    if (array_known(t->w, x.o))
        return RUN_STALE(t, "workload %s/%s is an array: its indexes run (%s-INDEX), never itself",
                         c->ns, c->name, c->name);
    x.w = object_edit_as(x.o, workload, t->a);
    x.s = x.w->status;
    x.from = x.s->phase;
    x.to = epoch_next(x.from, c->step);
    if (!x.to)
        return RUN_STALE(t, "%s does not follow on %s (workload %s/%s)", run_step_text(c->step),
                         phase_text(x.from), c->ns, c->name);
    if ((r = check_fence(t, &x)) < 0)
        return r;
    struct object *kept = object_ref(x.o);
    if ((r = step_take(t, &x)) == 0)
        step_store(t, &x);
    (void)object_unref(kept);
    return r;
}
