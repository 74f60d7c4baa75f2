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

#include <search.h>
#include <stdio.h>
#include <string.h>

#define BACKOFF_MIN_MS 50
#define LOOK_AGAIN_MS 1000
#define REPLACE_AHEAD_MS 600000 /* of a long lease: the replacement's place is held for no longer */

static void driver_free(struct driver *d);

/* ---- the table of drivers ---- */
static int by_uid(const void *a, const void *b)
{
    return strcmp(((const struct driver *)a)->uid, ((const struct driver *)b)->uid);
}
struct driver *driver_find(struct brain *b, const char *uid)
{
    struct driver key;

    str_copy(key.uid, sizeof key.uid, uid);
    struct driver **found = tfind(&key, &b->drivers->by_uid, by_uid);
    return found ? *found : NULL;
}

void drivers_init(struct brain *b)
{
    list_init(&b->drivers->adrift);
}

unsigned drivers_count(const struct brain *b)
{
    return b->drivers->n;
}

static void again(void *arg)
{
    driver_tick(arg);
}
void driver_later(struct driver *d, uint64_t ms)
{
    timer_start(&d->again, ms);
}

static const struct workload_status *status_of(const struct driver *d)
{
    return object_as(d->o, workload)->status;
}

static struct driver *driver_create(struct brain *b, const struct object *o)
{
    struct driver *d = mem_new(struct driver);

    d->brain = b;
    str_copy(d->uid, sizeof d->uid, o->meta->uid);
    str_copy(d->ns, sizeof d->ns, o->meta->namespace_);
    str_copy(d->name, sizeof d->name, o->meta->name);
    str_copy(d->key.uid, sizeof d->key.uid, o->meta->uid);
    d->backoff_ms = BACKOFF_MIN_MS;
    timer_init(&d->again, b->loop, again, d);
    list_init(&d->seat);
    INV(tsearch(d, &b->drivers->by_uid, by_uid));
    b->drivers->n++;
    return d;
}

/* A driver is linked to its Target, so that a change of reach, or a renewal, visits no others. */
static void driver_seat(struct driver *d)
{
    struct site *t = site_find(d->brain, d->target);

    list_remove(&d->seat);
    list_push(t ? &t->drivers : &d->brain->drivers->adrift, &d->seat);
}

void drivers_seat(struct site *t)
{
    list_for_each_safe (it, tmp, &t->brain->drivers->adrift) {
        struct driver *d = container_of(it, struct driver, seat);
        if (strcmp(d->target, t->name))
            continue;
        list_remove(&d->seat);
        list_push(&t->drivers, &d->seat);
    }
}

void drivers_unseat(struct site *t)
{
    struct list *it;

    while ((it = list_pop(&t->drivers)) != NULL)
        list_push(&t->brain->drivers->adrift, it);
}

/* Takes in the workload as the newest root has it. */
static void driver_take(struct driver *d, const struct object *o)
{
    const struct workload_status *s = object_as(o, workload)->status;
    int64_t try_ = s->intent ? s->intent->try_ : 0;
    bool first = !d->o, moved = d->key.epoch != s->epoch;

    (void)object_unref(d->o);
    d->o = object_ref(o);
    if (s->placement && (first || strcmp(d->target, s->placement->target))) {
        str_copy(d->target, sizeof d->target, s->placement->target);
        driver_seat(d);
    }
    if (moved || d->key.try_ != try_) {
        d->key.epoch = s->epoch;
        d->key.try_ = try_;
        d->has_seen = d->quiesced = false;
        d->untold_since_ms = 0;
        d->unlisted_ms = 0;
        d->refused.class_ = (enum refusal_class)0;
        driver_told_forget(d);
        d->found_session = 0;
        d->stop_after_ms = d->stop_grace_ms = 0;
        d->sent = (struct order_sent){0};
        if (moved) {
            d->told_step = -1;
            d->bad_checkpoints = 0;
        }
        d->backoff_ms = BACKOFF_MIN_MS;
    }
    if (s->phase != PHASE_UNKNOWN)
        d->unknown_since_ms = 0;
    else if (!d->unknown_since_ms)
        d->unknown_since_ms = loop_now_ms(d->brain->loop);
    if (first) /* an earlier leader sent its last renewal before this one's election */
        lease_renewed(d, loop_now_ms(d->brain->loop));
    lease_pace(d);
}

/* The driver was dropped while a call was under way, and its workload holds a place again, in a new
 * epoch or a new term. Nothing that the driver knew counts any more. */
static void driver_revive(struct driver *d)
{
    d->dead = false;
    (void)object_unref(d->o);
    d->o = NULL;
    d->key.epoch = d->key.try_ = -1;
    d->own_epoch = d->own_try = 0;
    d->looked_epoch = d->look_epoch = 0;
    d->renewed_ms = 0;
}

static bool holds(const struct object *o)
{
    const struct workload_status *s = o ? object_as(o, workload)->status : NULL;

    return s && phase_holds(s->phase) && !workload_array(object_as(o, workload));
}

void driver_change(struct brain *b, const struct object *before, const struct object *after)
{
    const struct object *o = after ? after : before;
    struct driver *d = driver_find(b, o->meta->uid);

    if (!d && !holds(after))
        return;
    if (!d)
        d = driver_create(b, after);
    else if (d->dead && holds(after))
        driver_revive(d);
    if (holds(after))
        driver_take(d, after);
    else
        driver_over(d);
    driver_tick(d);
}

static bool reset_each(const struct object *o, void *arg)
{
    if (holds(o))
        driver_change(arg, NULL, o);
    return true;
}
void drivers_reset(struct brain *b)
{
    root_scan(b->root, KIND_WORKLOAD, NULL, NULL, NULL, reset_each, b);
}

struct gather {
    struct driver **v;
    unsigned n;
};
static void gather_each(const void *node, VISIT v, void *arg)
{
    struct gather *g = arg;

    if (v == postorder || v == leaf)
        g->v[g->n++] = *(struct driver *const *)node;
}
static struct gather gather(struct brain *b)
{
    struct gather g = {mem_alloc((b->drivers->n + 1) * sizeof(struct driver *)), 0};

    twalk_r(b->drivers->by_uid, gather_each, &g);
    return g;
}
/* A tick may free a driver, and a connector may answer at once: this walks a copy of the list. */
void drivers_tick_target(struct site *t)
{
    struct gather g = {NULL, 0};
    unsigned n = 0;

    list_for_each (it, &t->drivers)
        n++;
    g.v = mem_alloc((n + 1) * sizeof(struct driver *));
    list_for_each (it, &t->drivers)
        g.v[g.n++] = container_of(it, struct driver, seat);
    for (unsigned i = 0; i < g.n; i++)
        driver_tick(g.v[i]);
    mem_free(g.v);
}
void drivers_drop(struct brain *b)
{
    struct gather g = gather(b);

    for (unsigned i = 0; i < g.n; i++) {
        g.v[i]->dead = true;
        driver_free(g.v[i]);
    }
    mem_free(g.v);
}

/* Frees the driver when no answer is awaited; each answer calls this again. */
static void driver_free(struct driver *d)
{
    timer_stop(&d->again);
    if (d->proposing || d->calling || d->hurrying || d->telling)
        return;
    list_remove(&d->seat);
    (void)tdelete(d, &d->brain->drivers->by_uid, by_uid);
    d->brain->drivers->n--;
    (void)object_unref(d->o);
    driver_told_forget(d);
    mem_free(d);
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

#define TARGET_ENDS_MAX 5
#define BAD_CHECKPOINTS_MAX 16

/* By its target's failure: it has not done its work, whatever its program ended with. */
static bool broken_off(const struct driver *d)
{
    return d->seen.lease_lost || end_row(d->seen.reason)->again == AGAIN_FREE;
}

/* The target failed the run, not the program, and it is placed again without counting as a failure;
 * but not for ever: a program that kills its own runner must fail some day. */
static bool target_failed_it(const struct driver *d)
{
    const struct workload_status *s = status_of(d);
    unsigned before = 0;

    if (!broken_off(d))
        return false;
    for (uint32_t i = 0; i < s->n_ends; i++)
        before += end_row(s->ends[i].reason)->again == AGAIN_FREE;
    return before < TARGET_ENDS_MAX;
}

/* Exit status 75 means: saved, start me again. A program that says so unasked, and has saved
 * nothing in this epoch, would go round for ever: that is a failure like any other. */
static bool saved_and_stopped(const struct driver *d)
{
    const struct workload_status *s = status_of(d);
    const struct observation *o = &d->seen;

    return end_says_saved(o->exit_code, o->term_signal, o->reason) &&
           (d->telling || driver_checkpoint_news(d) ||
            (s->checkpoint && s->checkpoint->epoch == s->epoch));
}

/* True when the end that was seen leads back to the queue: the run was stopped for that, lost its
 * lease, or saved and asks for it. */
static bool end_requeues(const struct driver *d)
{
    const struct intent *in = status_of(d)->intent;
    const struct observation *o = &d->seen;

    if (in && in->op == INTENT_STOP)
        return false;
    if (in && in->op == INTENT_QUIESCE)
        return o->exit_code != 0 || o->term_signal != 0 || broken_off(d);
    return target_failed_it(d) || saved_and_stopped(d);
}

/* The run never started. If its checkpoint was the cause, that is marked bad, and the place is
 * kept. */
static void driver_absent(struct driver *d)
{
    /* A misfit checkpoint may be good: the next place has its number of workers. */
    enum end_checkpoint said = end_row(d->seen.reason)->checkpoint;
    bool checkpoint = (said == CHECKPOINT_REFUSED ||
                       (said == CHECKPOINT_MISFIT && PLANTED("policy.any-ranks"))) &&
                      status_of(d)->checkpoint;

    if (checkpoint && d->bad_checkpoints++ < BAD_CHECKPOINTS_MAX) {
        driver_checkpoint_bad(d);
        driver_step_end(d, STEP_ABSENT, false);
        return;
    }
    driver_step_end(d, STEP_ABSENT, true);
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
        else
            driver_step_end(d, STEP_ENDED, end_requeues(d));
        return true;
    case RUN_ABSENT:
        driver_absent(d);
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
        if (d->seen.state == RUN_ENDED)
            driver_step_end(d, STEP_ENDED, end_requeues(d));
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
        driver_step_end(d, STEP_ENDED, end_requeues(d));
        return;
    }
    if (d->has_seen && d->seen.state == RUN_ABSENT) {
        driver_step_end(d, STEP_ABSENT, true);
        return;
    }
    if (lease_too_late(d))
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
