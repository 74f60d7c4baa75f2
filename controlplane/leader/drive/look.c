/* Before a second start: does the store hold a newer checkpoint than the log knows of? A run that
 * was cut off saves until its lease is over; one that was killed may have saved without reporting
 * it; and a store that hung hides what was sealed. So the target that is to start the run again
 * searches the store first.
 *
 * The search must not begin while an epoch that may have saved is not proved ended; for a Reserved
 * workload all are. It must not hold a place for long because a store is silent. */

#include "controlplane/leader/drive/look.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/drive/calls.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/drive/order.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define LOOK_CALL_MS 15000      /* for the call itself, */
#define LOOK_WAIT_MS 60000      /* for a store that gives no verdict, */
#define LOOK_BYTES_PER_MS 20000 /* and added to both: the target reads the whole checkpoint */
#define LOOK_MAX_MS (2L * 3600 * 1000)

/* True when the runner reported its last checkpoint with its end, and the destination of its
 * Migration has read it. */
static bool read_already(const struct driver *d)
{
    const struct workload_status *s = object_as(d->o, workload)->status;
    const struct object *o = migration_of(d->brain, d->o);
    const struct migration_status *m = o ? object_as(o, migration)->status : NULL;
    bool staged = false;

    for (uint32_t i = 0; m && i < m->n_phases; i++)
        staged |= m->phases[i].phase == MP_STAGING;
    const struct run_end *last = s->n_ends ? &s->ends[s->n_ends - 1] : NULL;

    return staged && last &&
           (last->proof == PROOF_TREE_GONE || last->proof == PROOF_TREE_SEARCHED) &&
           !end_by_target(last);
}

static bool due(const struct driver *d, const struct site *t)
{
    return d->looked_epoch != d->key.epoch && site_stages(t) &&
           epoch_ended(object_as(d->o, workload)->status) > 0 &&
           root_feature_level(d->brain->root) >= FEATURE_FOUND && !read_already(d);
}

static uint64_t reading_ms(const struct driver *d)
{
    const struct run_checkpoint *ck = object_as(d->o, workload)->status->checkpoint;
    int64_t ms = ck ? ck->bytes / LOOK_BYTES_PER_MS : 0;

    return (uint64_t)(ms < LOOK_MAX_MS ? ms : LOOK_MAX_MS);
}

/* The store gave no verdict. The driver waits within bounds; then the run starts from the known
 * checkpoint, and an Event says so. */
static void no_verdict(struct driver *d, const char *why)
{
    uint64_t now = loop_now_ms(d->brain->loop);

    if (now < d->look_until_ms) {
        driver_backoff(d);
        return;
    }
    d->looked_epoch = d->key.epoch;
    events_of_checkpoint(d->brain, d->o, "StoreNotSearched",
                         "%s could not look for newer checkpoints, it starts from what is known: "
                         "%.300s",
                         d->target, why);
    driver_tick(d);
}

static void answered(struct call *c, enum outcome out, const struct observation *seen,
                     const struct err *err)
{
    struct driver *d = container_of(c, struct driver, call.call);
    struct brain *b = d->brain;
    const char *why = err && *err->text ? err->text : "its store gave no answer";

    FAILPOINT("driver.call_look.answered");
    d->calling = false;
    if (d->dead || !b->leads || d->call_key.epoch != d->key.epoch ||
        d->call_key.try_ != d->key.try_ ||
        object_as(d->o, workload)->status->phase != PHASE_RESERVED) {
        driver_tick(d);
        return;
    }
    const struct workload_status *s = object_as(d->o, workload)->status;
    bool not_here =
        out == OUT_REJECTED && seen && end_row(seen->reason)->checkpoint == CHECKPOINT_UNREACHED;
    if (out == OUT_UNKNOWN || (not_here && (s->startedAt || s->checkpoint)) ||
        (out == OUT_REJECTED && err && err->code == E_UNAVAIL)) {
        no_verdict(d, why);
        return;
    }
    d->looked_epoch = d->key.epoch;
    if (out == OUT_DONE && seen && *seen->message)
        events_of_checkpoint(b, d->o, "CheckpointRefused", "passed over on %s: %.400s", d->target,
                             seen->message);
    struct err foreign;
    bool found = out == OUT_DONE && seen && seen->checkpoint.present && seen->checkpoint.epoch > 0;
    if (found && order_checkpoint_told(d->o, seen->checkpoint.epoch, &seen->checkpoint, &foreign)) {
        events_of_checkpoint(b, d->o, "CheckpointRefused", "what %s found was not taken: %.300s",
                             d->target, foreign.text);
        found = false;
    }
    if (found)
        driver_step_found(d, &seen->checkpoint);
    else
        driver_tick(d); /* an agent of an older version cannot look, and says so */
}

/* 0: the end in the log is from before workers were recorded. */
static int64_t workers_of(const struct workload_status *s, int64_t epoch)
{
    for (uint32_t i = s->n_ends; i > 0; i--)
        if (s->ends[i - 1].epoch == epoch)
            return s->ends[i - 1].workers;
    return 0;
}

bool driver_look(struct driver *d, struct site *t)
{
    struct brain *b = d->brain;
    uint64_t now = loop_now_ms(b->loop);
    AUTO_ARENA a = arena_create(0);
    struct run_order o;

    if (!due(d, t))
        return false;
    order_stage(t, d->o, object_as(d->o, workload)->status->placement, &d->key, a, &o);
    if (!*o.checkpoint_dir)
        return false;
    o.look_epoch = epoch_ended(object_as(d->o, workload)->status);
    o.look_workers = workers_of(object_as(d->o, workload)->status, o.look_epoch);
    if (d->look_epoch != d->key.epoch) {
        d->look_epoch = d->key.epoch;
        d->look_until_ms = now + LOOK_WAIT_MS + reading_ms(d);
    }
    d->calling = true;
    d->call_key = d->key;
    t->connector->ops->stage(
        t->connector, &o,
        brain_call_about(b, &d->call, d->uid, LOOK_CALL_MS + reading_ms(d), answered));
    FAILPOINT("driver.call_look.sent");
    return true;
}

/* What it resumes from turned out to be another one while it held its place: found in its store,
 * or an older one since the newest does not hold. Saved by more workers, or fewer, than its
 * place has. */
bool driver_place_differs(struct driver *d)
{
    const struct workload_status *s = object_as(d->o, workload)->status;
    int64_t ranks = policy_resume_ranks(object_as(d->o, workload));

    if (!ranks || ranks == s->placement->n_assignments)
        return false;
    char why[512];
    (void)snprintf(why, sizeof why,
                   "checkpoint %.250s was saved by %lld workers, its place was for %u",
                   s->checkpoint->name, (long long)ranks, s->placement->n_assignments);
    driver_step(d, STEP_REQUEUE, reason_text(REASON_CHECKPOINT_RANKS), why);
    return true;
}

/* ---- is there a second start? ---- */
#define BROKEN_OFF_MAX 5
#define BROKEN_OFF_MS (24LL * 3600 * 1000)

/* By its target's failure: it has not done its work, whatever its program ended with. */
static bool broken_off(const struct driver *d)
{
    return d->seen.lease_lost || end_row(d->seen.reason)->again == AGAIN_FREE;
}

/* A program that kills its own runner must fail some day; one that has saved since, or lives
 * through many failures of its target because it runs for months, does not kill its runner. */
static bool too_often(const struct driver *d)
{
    const struct workload_status *s = object_as(d->o, workload)->status;
    int64_t saved = s->checkpoint ? s->checkpoint->epoch : 0, now = root_time(d->brain->root);
    unsigned before = 0;

    for (uint32_t i = 0; i < s->n_ends; i++)
        before += end_row(s->ends[i].reason)->again == AGAIN_FREE && s->ends[i].epoch > saved &&
                  now - s->ends[i].at < BROKEN_OFF_MS;
    return before >= BROKEN_OFF_MAX && !driver_checkpoint_news(d);
}

/* Exit status 75 means: saved, start me again. A program that says so unasked, and has saved
 * nothing in this epoch, would go round for ever: that is a failure like any other. */
static bool saved_and_stopped(const struct driver *d)
{
    const struct workload_status *s = object_as(d->o, workload)->status;
    const struct observation *o = &d->seen;

    return end_says_saved(o->exit_code, o->term_signal, o->reason) &&
           (d->telling || driver_checkpoint_news(d) ||
            (s->checkpoint && s->checkpoint->epoch == s->epoch));
}

bool driver_end_requeues(const struct driver *d)
{
    const struct intent *in = object_as(d->o, workload)->status->intent;
    const struct observation *o = &d->seen;

    if (in && in->op == INTENT_STOP)
        return false;
    if (o->left_proof) /* its runners started nothing */
        return true;
    if (in && in->op == INTENT_QUIESCE)
        return o->exit_code != 0 || o->term_signal != 0 || broken_off(d);
    return (broken_off(d) && !too_often(d)) || saved_and_stopped(d);
}

void driver_end_counts(const struct driver *d, char *out, size_t size)
{
    size_t n = strlen(out);

    if (broken_off(d) && too_often(d))
        (void)snprintf(out + n, size - n,
                       "%sits target failed it more than %d times in a day, and it saved no "
                       "checkpoint meanwhile: that counts as a failure (spec.run.retries)",
                       n ? "; " : "", BROKEN_OFF_MAX);
}
