/* Drivers: one for each workload that holds a place. Each tick reads the workload's phase and what
 * was last seen, and does the one next thing: it commits an intent, carries it out, asks the
 * target, or commits what was seen. Nothing is done twice because nothing is remembered: a new
 * leader's drivers begin with find(). A driver must never submit without an intent that this brain
 * committed in this term, and must never take for ended what is out of reach. */

#include "controlplane/leader/drive/driver.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/doubt/cold.h"
#include "controlplane/leader/drive/calls.h"
#include "controlplane/leader/drive/lease.h"
#include "controlplane/leader/drive/look.h"
#include "controlplane/leader/drive/observed.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/move/causes.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define LOOK_AGAIN_MS 1000
#define REPLACE_AHEAD_MS 600000 /* of a long lease: the replacement's place is held for no longer */

static const struct workload_status *status_of(const struct driver *d)
{
    return object_as(d->o, workload)->status;
}

/* ---- what is wanted ---- */
/* Returns why this run should end, or NULL. Drained targets are Migrations' matter (causes.c). */
static const char *end_wanted(struct driver *d, bool *ret_requeue)
{
    const struct workload_spec *s = object_as(d->o, workload)->spec;

    *ret_requeue = false;
    if (d->o->meta->deletionTimestamp)
        return "Deleted";
    if (s->deadline && core_time_ms(d->brain->cfg.core) >= s->deadline)
        return "DeadlineExceeded";
    *ret_requeue = true;
    return s->suspend ? "Suspended" : driver_pending_over(d);
}

/* ---- ticks by phase ---- */
static void tick_reserved(struct driver *d, struct site *t)
{
    bool requeue = false;
    const char *why = end_wanted(d, &requeue);

    if (!why && t && t->doc && object_as(t->doc, target)->spec->drain)
        why = "TargetDrained";
    /* A later state may have dispatched this epoch: recovery gives another one. */
    if (!why && t && status_of(d)->epochFloor > status_of(d)->epoch)
        why = "Recovering";
    if (why || !t)
        driver_step(d, requeue ? STEP_REQUEUE : STEP_STOP, why ? why : end_text(END_TARGET_REMOVED),
                    "ended before it was started");
    else if (t->suspect || (!t->reachable && !t->connector))
        driver_step(d, STEP_REQUEUE, "TargetUnreachable",
                    "its target fell silent before it was started");
    else if (t->reachable && !driver_paused(d, t) && !cold_holds(d->brain, d->o) &&
             !driver_copy_lives(d) && !driver_look(d, t) && !driver_place_differs(d))
        lease_dispatch(d, t);
}

#define BAD_CHECKPOINTS_MAX 16

/* True when the checkpoint of a run that never started was the cause: that is marked bad. */
static bool checkpoint_judged(struct driver *d)
{
    /* A misfit checkpoint may be good: the next place has its number of workers. */
    enum end_checkpoint said = end_row(d->seen.reason)->checkpoint;
    bool checkpoint = (said == CHECKPOINT_REFUSED ||
                       (said == CHECKPOINT_MISFIT && PLANTED("policy.any-ranks"))) &&
                      status_of(d)->checkpoint;

    if (!checkpoint || d->bad_checkpoints++ >= BAD_CHECKPOINTS_MAX)
        return false;
    driver_checkpoint_bad(d);
    return true;
}

/* The same of a run that is over, in whatever phase that is seen: of one whose runners started
 * nothing, and of no other. */
static bool start_judged(struct driver *d)
{
    bool never = d->seen.state == RUN_ABSENT || d->seen.left_proof;

    return never && checkpoint_judged(d);
}

static enum partition_mode partition_mode(const struct driver *d)
{
    const struct partition_spec *p = object_as(d->o, workload)->spec->partition;

    return p && p->mode ? p->mode : PARTITION_WAIT;
}

/* Cut off, its runner stopped itself under partition mode stop: the workload stays stopped, as if
 * its target had stayed away. */
static bool stopped_itself(struct driver *d)
{
    const struct intent *in = status_of(d)->intent;

    return partition_mode(d) == PARTITION_STOP && d->seen.lease_lost &&
           !(in && in->op == INTENT_QUIESCE);
}

/* Proposes a step for what was seen of a live run; true if it did. */
static bool report_seen(struct driver *d)
{
    enum phase phase = status_of(d)->phase;

    if (!d->has_seen || driver_pending(d))
        return d->has_seen;
    switch (d->seen.state) {
    case RUN_ENDED:
        if (stopped_itself(d)) /* UNKNOWN comes first, then tick_unknown goes on */
            driver_step(d, STEP_UNKNOWN, end_text(END_LEASE_LOST),
                        "its runner was cut off and stopped itself");
        else {
            (void)start_judged(d);
            driver_step_end(d, STEP_ENDED, driver_end_requeues(d));
        }
        return true;
    case RUN_ABSENT: /* the place is kept for a checkpoint before the bad one */
        driver_step_end(d, STEP_ABSENT, !start_judged(d));
        return true;
    case RUN_RUNNING:
        if (phase == PHASE_DISPATCHING || phase == PHASE_STARTING) {
            driver_step(d, STEP_RUNNING, "Running", "");
            return true;
        }
        break;
    case RUN_STARTING:
        if (phase == PHASE_DISPATCHING) {
            driver_step(d, STEP_ACCEPTED, d->seen.reason, d->seen.message);
            return true;
        }
        break;
    case RUN_PENDING:
    case RUN_UNKNOWN:
        break;
    }
    return false;
}

static void tick_live(struct driver *d, struct site *t)
{
    bool requeue = false, own = d->own_epoch == d->key.epoch && d->own_try == d->key.try_;
    const char *why;

    if (own && status_of(d)->phase == PHASE_DISPATCHING && driver_estranged(d, t)) {
        d->own_epoch = 0; /* the order never left this process: nothing can run */
        driver_seen_absent(d, end_text(END_AGENT_REPLACED), "");
    }
    if (report_seen(d) || lease_too_late(d))
        return;
    why = end_wanted(d, &requeue);
    if (why) {
        driver_step(d, requeue ? STEP_QUIESCE : STEP_STOP, why, "");
        return;
    }
    if (driver_lost(d, t))
        return;
    if (!t->reachable)
        return;
    bool submits = status_of(d)->phase == PHASE_DISPATCHING && own;
    if ((submits || d->found_session != t->session) && driver_held_back(d, t))
        return;
    if (submits) {
        d->own_epoch = 0; /* submitted once: whatever the outcome, find() comes next */
        driver_call(d, t, CALL_SUBMIT);
    } else if (d->found_session != t->session) {
        driver_call(d, t, CALL_FIND);
    } else if (lease_offer(d, t))
        return;
    const struct workload_spec *s = object_as(d->o, workload)->spec;
    int64_t left = s->deadline ? s->deadline - core_time_ms(d->brain->cfg.core) : 0;
    if (left > 0) /* also while a timer runs: the deadline may be earlier now */
        driver_later(d, (uint64_t)(left < 3600000 ? left + 1 : 3600000));
}

static void tick_quiescing(struct driver *d, struct site *t)
{
    const struct intent *in = status_of(d)->intent;
    bool stop = in && in->op == INTENT_STOP;

    if (d->has_seen && driver_pending(d))
        return;
    if (d->has_seen && (d->seen.state == RUN_ENDED || d->seen.state == RUN_ABSENT)) {
        (void)start_judged(d);
        if (d->seen.state == RUN_ENDED)
            driver_step_end(d, STEP_ENDED, driver_end_requeues(d));
        else
            driver_step_end(d, STEP_ABSENT, !stop);
        return;
    }
    if (lease_too_late(d))
        return;
    if (!stop && (d->o->meta->deletionTimestamp)) {
        driver_step(d, STEP_STOP, "Deleted", "");
        return;
    }
    if (driver_lost(d, t))
        return;
    if (!t->reachable)
        return;
    uint64_t now = loop_now_ms(d->brain->loop);
    bool waits = d->has_seen && d->seen.state == RUN_PENDING; /* there is nobody to tell to save */
    if (!stop && !waits && !d->quiesced && (!d->stop_after_ms || now < d->stop_after_ms))
        driver_call(d, t, CALL_QUIESCE);
    else if (stop || waits || now >= d->stop_after_ms)
        driver_call(d, t, CALL_STOP);
    else
        driver_later(d, d->stop_after_ms - now);
}

/* True when the lease may decide. The last copy is not let go before its replacement holds a place:
 * after replaceAfter a Migration looks for one. */
static bool replace_ready(struct driver *d)
{
    const struct partition_spec *p = object_as(d->o, workload)->spec->partition;
    uint64_t now = loop_now_ms(d->brain->loop);
    uint64_t from = d->unknown_since_ms + (p->replaceAfter > 0 ? (uint64_t)p->replaceAfter : 0);

    if (mover_replacement_held(d->brain, d->o) || PLANTED("run.lease-first"))
        return true;
    if (now < from)
        driver_later(d, from - now < LOOK_AGAIN_MS ? from - now : LOOK_AGAIN_MS);
    else if (!causes_replace(d->brain, d->o))
        driver_later(d, LOOK_AGAIN_MS);
    return false;
}

/* Deleted, suspended or past its deadline: it goes on nowhere, and needs no replacement. */
static bool unwanted(const struct driver *d)
{
    const struct workload_spec *s = object_as(d->o, workload)->spec;
    const struct intent *in = status_of(d)->intent;

    return d->o->meta->deletionTimestamp || s->suspend || (in && in->op == INTENT_STOP) ||
           (s->deadline && core_time_ms(d->brain->cfg.core) >= s->deadline);
}

/* Its target is out of reach, or cannot tell what became of it. Only a proof, or a lease that is
 * certainly over, ends the reservation. */
static void tick_unknown(struct driver *d, struct site *t)
{
    enum partition_mode mode = partition_mode(d);

    if (d->has_seen && d->seen.state == RUN_ENDED && stopped_itself(d)) {
        if (driver_checkpoint_news(d))
            driver_tell(d); /* its last checkpoint comes before its end */
        driver_step_end(d, STEP_LEASE_OVER, false);
        return;
    }
    if (d->has_seen && d->seen.state == RUN_ENDED) {
        (void)start_judged(d);
        driver_step_end(d, STEP_ENDED, driver_end_requeues(d));
        return;
    }
    if (d->has_seen && d->seen.state == RUN_ABSENT) {
        (void)start_judged(d);
        driver_step_end(d, STEP_ABSENT, true);
        return;
    }
    if (lease_too_late(d) || driver_lost_otherwise(d, t))
        return;
    if (t && t->reachable && !driver_estranged(d, t)) {
        bool seen = d->has_seen && d->found_session == t->session && d->seen.state != RUN_UNKNOWN;
        if (seen)
            driver_step(d, STEP_SEEN, "Running", "its target is in reach again");
        else if (!driver_untold(d, t) || driver_asks_again(d))
            driver_call(d, t, CALL_FIND);
        if (seen || d->proposing || d->calling || !driver_untold(d, t))
            return;
    }
    if (lease_closes(d, t, unwanted(d)) || mode == PARTITION_WAIT || d->brain->frozen ||
        lease_none(d))
        return;
    uint64_t left = lease_left_ms(d);
    if (left > REPLACE_AHEAD_MS) {
        events_lease_runs(d->brain, d->o, left);
        driver_later(d, LOOK_AGAIN_MS);
        return;
    }
    if (mode == PARTITION_REPLACE && !unwanted(d) && !replace_ready(d))
        return;
    if (left) {
        driver_later(d, left < LOOK_AGAIN_MS ? left : LOOK_AGAIN_MS);
        return;
    }
    d->seen.proof = PROOF_LEASE_EXPIRED;
    driver_step_end(d, STEP_LEASE_OVER, mode == PARTITION_REPLACE);
}

void driver_tick(struct driver *d)
{
    struct brain *b = d->brain;

    if (d->dead || !b->leads) {
        if (d->dead)
            driver_free(d);
        return;
    }
    driver_hurry(d, site_find(b, d->target));
    if (d->proposing || d->calling || b->in_doubt)
        return; /* in doubt: ticked again when that is settled */
    if (lease_acknowledged(d))
        return;
    if (!d->telling && driver_checkpoint_news(d) && d->seen.state != RUN_ENDED)
        driver_tell(d); /* the last checkpoint is proposed with the end */
    struct site *t = site_find(b, d->target);
    switch (status_of(d)->phase) {
    case PHASE_RESERVED:
        tick_reserved(d, t);
        break;
    case PHASE_DISPATCHING:
    case PHASE_STARTING:
    case PHASE_RUNNING:
        tick_live(d, t);
        break;
    case PHASE_QUIESCING:
        tick_quiescing(d, t);
        break;
    case PHASE_UNKNOWN:
        tick_unknown(d, t);
        break;
    default:
        break;
    }
}
