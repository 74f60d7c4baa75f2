/* The effects of a driver: steps into the log, calls to the connector, and what their answers mean.
 * After a call whose outcome is unknown the driver calls find(), never the same call again; but the
 * very same order, where the target says that this gives the same run. */

#include "controlplane/leader/drive/calls.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/context/refusals.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/drive/lease.h"
#include "controlplane/leader/drive/look.h"
#include "controlplane/leader/drive/observed.h"
#include "controlplane/leader/drive/order.h"
#include "controlplane/leader/move/mover.h"
#include "connectors/signals.h"
#include "controlplane/leader/site/sites.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define CALL_DEADLINE_MS 15000
#define BACKOFF_MAX_MS 5000
#define HELD_LOOK_MS 1000
#define NOTICE_MARGIN_MS 5000 /* between the end of a program and that of its machine */
#define NOTICE_GRACE_MIN_MS 1000
#define PAUSE_AWAITED_MS 5000 /* a longer one is not awaited by who holds a place already */

void driver_backoff(struct driver *d)
{
    uint64_t jitter = loop_random_u64(d->brain->loop) % (d->backoff_ms / 2 + 1);

    driver_later(d, d->backoff_ms + jitter);
    d->backoff_ms = d->backoff_ms * 2 < BACKOFF_MAX_MS ? d->backoff_ms * 2 : BACKOFF_MAX_MS;
}

/* ---- steps ---- */
/* Where a test makes the leader die: on both sides of each step, and of each call. */
static const char *const steps_before[] = {[STEP_DISPATCH] = "driver.dispatch.before",
                                           [STEP_ACCEPTED] = "driver.accepted.before",
                                           [STEP_RUNNING] = "driver.running.before",
                                           [STEP_ENDED] = "driver.ended.before",
                                           [STEP_ABSENT] = "driver.absent.before",
                                           [STEP_UNKNOWN] = "driver.unknown.before",
                                           [STEP_SEEN] = "driver.seen.before",
                                           [STEP_QUIESCE] = "driver.quiesce.before",
                                           [STEP_STOP] = "driver.stop.before",
                                           [STEP_REQUEUE] = "driver.requeue.before",
                                           [STEP_LEASE_OVER] = "driver.lease_over.before",
                                           [STEP_CHECKPOINT_FOUND] = "driver.found.before",
                                           [STEP_OFFER] = "driver.offer.before",
                                           [STEP_GRANT] = "driver.grant.before",
                                           [STEP_PENDING] = "driver.pending.before",
                                           [STEP_SEATED] = "driver.seated.before",
                                           [STEP_CLOSE] = "driver.close.before"};
static const char *const steps_after[] = {[STEP_DISPATCH] = "driver.dispatch.after",
                                          [STEP_ACCEPTED] = "driver.accepted.after",
                                          [STEP_RUNNING] = "driver.running.after",
                                          [STEP_ENDED] = "driver.ended.after",
                                          [STEP_ABSENT] = "driver.absent.after",
                                          [STEP_UNKNOWN] = "driver.unknown.after",
                                          [STEP_SEEN] = "driver.seen.after",
                                          [STEP_QUIESCE] = "driver.quiesce.after",
                                          [STEP_STOP] = "driver.stop.after",
                                          [STEP_REQUEUE] = "driver.requeue.after",
                                          [STEP_LEASE_OVER] = "driver.lease_over.after",
                                          [STEP_CHECKPOINT_FOUND] = "driver.found.after",
                                          [STEP_OFFER] = "driver.offer.after",
                                          [STEP_GRANT] = "driver.grant.after",
                                          [STEP_PENDING] = "driver.pending.after",
                                          [STEP_SEATED] = "driver.seated.after",
                                          [STEP_CLOSE] = "driver.close.after"};
static const char *const calls_sent[] = {[CALL_SUBMIT] = "driver.call_submit.sent",
                                         [CALL_FIND] = "driver.call_find.sent",
                                         [CALL_QUIESCE] = "driver.call_quiesce.sent",
                                         [CALL_STOP] = "driver.call_stop.sent"};
static const char *const calls_answered[] = {[CALL_SUBMIT] = "driver.call_submit.answered",
                                             [CALL_FIND] = "driver.call_find.answered",
                                             [CALL_QUIESCE] = "driver.call_quiesce.answered",
                                             [CALL_STOP] = "driver.call_stop.answered"};

struct step {
    struct driver *d;
    enum run_step step;
    int64_t epoch, try_;
    uint64_t term;
};

static void step_answered(void *arg, const struct result *r, const struct err *err)
{
    struct step *s = arg;
    struct driver *d = s->d;
    bool forbidden = !err && r->code == E_COMPLIANCE && s->step == STEP_DISPATCH;
    char why[256] = "";

    if (forbidden)
        str_copy(why, sizeof why, r->text);
    d->seats_refused |= !err && r->code == E_PLACE && s->step == STEP_SEATED;
    if (!err && r->code == 0)
        FAILPOINT(steps_after[s->step]);
    d->proposing = false;
    if (!err && r->code == 0) {
        /* The intent is ours, in this term: it may be carried out, once. */
        if (s->step == STEP_DISPATCH && s->term == d->brain->term) {
            d->own_epoch = s->epoch;
            d->own_try = s->try_;
        }
        mem_free(s);
        driver_tick(d);
        return;
    }
    if (!err && r->code != E_STALE)
        log_event(LOG_WARN, "run.step",
                  LOG_FIELDS({"workload", log_str(d->name)},
                             {"step", log_str(run_step_text(s->step))}, {"why", log_str(r->text)}));
    mem_free(s);
    if (err) /* its fate is not known: looked for again */
        d->looked_epoch = 0;
    if (d->dead)
        driver_tick(d);
    else if (forbidden && d->brain->leads) /* decided on anew, where it may be now */
        driver_step(d, STEP_REQUEUE, reason_text(REASON_COMPLIANCE), why);
    else
        driver_backoff(d);
}

static void run_fill(struct driver *d, union command *c)
{
    struct run_cmd *r = &c->run;

    c->head.type = CMD_RUN;
    brain_request_id(d->brain, c->head.request_id);
    (void)snprintf(c->head.user, sizeof c->head.user, "hanse:driver");
    str_copy(r->ns, sizeof r->ns, d->ns);
    str_copy(r->name, sizeof r->name, d->name);
    str_copy(r->uid, sizeof r->uid, d->uid);
    r->epoch = d->key.epoch;
    r->try_ = d->key.try_ + (r->step == STEP_DISPATCH);
    r->lease_held = (r->step == STEP_ACCEPTED || r->step == STEP_RUNNING || r->step == STEP_SEEN) &&
                    d->has_seen && d->seen.lease_held;
    if (r->step == STEP_DISPATCH && root_feature_level(d->brain->root) >= FEATURE_GRANTS) {
        site_agent_of(site_find(d->brain, d->target),
                      object_as(d->o, workload)->status->placement, r->agent);
    }
}

void driver_propose(struct driver *d, union command *c)
{
    struct run_cmd *r = &c->run;
    struct step *s = mem_new(struct step);
    AUTO_ARENA a = arena_create(0);

    run_fill(d, c);
    if ((r->step == STEP_RUNNING || r->step == STEP_ENDED) &&
        root_feature_level(d->brain->root) >= FEATURE_GRANTS) {
        r->n = driver_workers_told(d, a, &r->workers);
        r->behind_ms = d->clocked ? d->clock_behind_ms : 0;
    }
    *s = (struct step){d, r->step, r->epoch, r->try_, d->brain->term};
    d->proposing = true;
    FAILPOINT(steps_before[r->step]);
    brain_propose(d->brain, c, step_answered, s);
}

void driver_step(struct driver *d, enum run_step step, const char *reason, const char *message)
{
    union command c = {.run = {.step = step}};

    str_copy(c.run.reason, sizeof c.run.reason, reason);
    str_copy(c.run.message, sizeof c.run.message, message);
    driver_propose(d, &c);
}

/* ---- checkpoints ---- */
/* A whole checkpoint of this epoch that the log does not have, and has not been asked to take. */
bool driver_checkpoint_news(const struct driver *d)
{
    const struct run_checkpoint *had = object_as(d->o, workload)->status->checkpoint;
    const struct run_checkpoint_report *r = &d->seen.checkpoint;

    const struct intent *in = object_as(d->o, workload)->status->intent;
    /* Told to save somewhere, or asked to since. */
    bool saves = object_as(d->o, workload)->spec->checkpoint || (in && *in->store);

    if (d->seen.key.epoch != d->key.epoch || !r->present || !saves)
        return false;
    if (had && had->epoch == d->key.epoch && had->step >= r->step)
        return false;
    return r->step > d->told_step;
}

static void told(void *arg, const struct result *r, const struct err *err)
{
    struct driver *d = arg;

    if (!err && r->code == 0)
        FAILPOINT("driver.checkpoint.after");
    if (!err && r->code && r->code != E_STALE)
        log_event(LOG_WARN, "run.checkpoint",
                  LOG_FIELDS({"workload", log_str(d->name)}, {"why", log_str(r->text)}));
    d->telling--;
    if (err && !d->dead)
        d->told_step = -1; /* its fate is not known: told again unless the root has it */
    driver_tick(d);
}

static void checkpoint_fill(const struct driver *d, struct run_checkpoint *ck)
{
    const struct run_checkpoint_report *r = &d->seen.checkpoint;
    const struct placement *p = object_as(d->o, workload)->status->placement;

    *ck = (struct run_checkpoint){.step = r->step,
                                  .digest = r->digest,
                                  .epoch = d->key.epoch,
                                  .bytes = r->bytes,
                                  .path = r->path,
                                  .writeTime = r->writeTime,
                                  .writtenAt = r->writtenAt,
                                  .ranks = r->ranks,
                                  .name = ""};
    ck->interval = order_interval_ms(site_find(d->brain, d->target), d->o, p, r->writeTime);
}

/* STEP_CHECKPOINT, beside whatever else is under way: it follows on every phase of its epoch. */
void driver_tell(struct driver *d)
{
    struct run_checkpoint ck;
    union command c = {.run = {.step = STEP_CHECKPOINT, .checkpoint = &ck}};

    checkpoint_fill(d, &ck);
    run_fill(d, &c);
    d->told_step = ck.step;
    d->telling++;
    FAILPOINT("driver.checkpoint.before");
    brain_propose(d->brain, &c, told, d);
}

void driver_step_found(struct driver *d, const struct run_checkpoint_report *r)
{
    const struct workload_status *s = object_as(d->o, workload)->status;
    struct run_checkpoint ck = {.step = r->step,
                                .digest = r->digest,
                                .epoch = r->epoch,
                                .bytes = r->bytes,
                                .path = r->path,
                                .writeTime = s->checkpoint ? s->checkpoint->writeTime : 0,
                                .writtenAt = r->writtenAt,
                                .ranks = r->ranks,
                                .found = true,
                                .name = ""};
    union command c = {.run = {.step = STEP_CHECKPOINT_FOUND, .checkpoint = &ck}};

    ck.interval =
        order_interval_ms(site_find(d->brain, d->target), d->o, s->placement, ck.writeTime);
    driver_propose(d, &c);
}

/* What it was to resume from does not hold: marked, with the reason; an older one takes its
 * place. */
void driver_checkpoint_bad(struct driver *d)
{
    union command c = {.run = {.step = STEP_CHECKPOINT_BAD}};

    c.run.checkpoint =
        (struct run_checkpoint *)(uintptr_t)object_as(d->o, workload)->status->checkpoint;
    run_fill(d, &c);
    str_copy(c.run.reason, sizeof c.run.reason, d->seen.reason);
    str_copy(c.run.message, sizeof c.run.message, d->seen.message);
    d->telling++;
    brain_propose(d->brain, &c, told, d);
}

/* ---- refusals ---- */
bool driver_paused(struct driver *d, struct site *t)
{
    uint64_t now = loop_now_ms(d->brain->loop);
    int64_t left = refusal_lasts(d->brain, d->o, d->target);

    if (left > PAUSE_AWAITED_MS) {
        driver_step(d, STEP_REQUEUE, reason_text(REASON_TARGET_PAUSED),
                    reason_sentence(REASON_TARGET_PAUSED));
        return true;
    }
    if (now < t->refused_until_ms && (int64_t)(t->refused_until_ms - now) > left)
        left = (int64_t)(t->refused_until_ms - now);
    if (left)
        driver_later(d, (uint64_t)left);
    return left != 0;
}

/* ---- ends ---- */
void driver_step_end(struct driver *d, enum run_step step, bool requeue)
{
    union command c = {.run = {.step = step, .requeue = requeue}};
    const struct observation *o = &d->seen;
    const struct intent *in = object_as(d->o, workload)->status->intent;
    bool unasked = in && in->op == INTENT_SUBMIT;
    struct target_pause pause;
    struct run_checkpoint ck;

    if (step == STEP_ENDED && driver_checkpoint_news(d)) {
        checkpoint_fill(d, &ck); /* in one command: no work is lost that was saved */
        c.run.checkpoint = &ck;
    }
    if (step == STEP_ABSENT && in && !strcmp(in->reason, end_text(END_PENDING_TOO_LONG)))
        driver_withdrawn(d);
    if (step == STEP_ABSENT && refusal_pause(d->brain->root, d->o, d->target, &d->refused, &pause))
        c.run.pause = &pause;
    c.run.exit_code = o->exit_code;
    c.run.term_signal = o->term_signal;
    c.run.proof = o->proof ? o->proof : step == STEP_ABSENT ? PROOF_NEVER_STARTED : PROOF_TREE_GONE;
    if (c.run.proof == PROOF_TREE_SEARCHED &&
        root_feature_level(d->brain->root) < FEATURE_GRANTS) /* members that have no word for it */
        c.run.proof = PROOF_TREE_GONE;
    bool told = *o->reason && end_row(o->reason) != end_row(end_text(END_SAVED));
    enum end e = step != STEP_ENDED || told                                 ? END_OTHER
                 : o->lease_lost                                            ? END_LEASE_LOST
                 : o->exit_code == 0 && !o->term_signal                     ? END_COMPLETED
                 : !end_says_saved(o->exit_code, o->term_signal, o->reason) ? END_ERROR
                 : requeue || !unasked                                      ? END_SAVED
                                                                            : END_NOTHING_SAVED;
    str_copy(c.run.reason, sizeof c.run.reason,
             e            ? end_text(e)
             : *o->reason ? o->reason
                          : run_step_text(step));
    if (step == STEP_ENDED)
        driver_workers_blame(d, o->message, c.run.message, sizeof c.run.message);
    else
        str_copy(c.run.message, sizeof c.run.message, o->message);
    if (step == STEP_ENDED && !requeue && unasked)
        driver_end_counts(d, c.run.message, sizeof c.run.message);
    if (e == END_ERROR && !*c.run.message) /* its target said no word of it */
        (void)snprintf(c.run.message, sizeof c.run.message,
                       o->term_signal ? "killed by signal %d" : "exit status %d",
                       o->term_signal ? o->term_signal : o->exit_code);
    if (e == END_NOTHING_SAVED)
        (void)snprintf(c.run.message, sizeof c.run.message,
                       "it ended with 75 (saved, start me again) unasked, and saved no checkpoint "
                       "in this epoch: that counts as a failure");
    if (step == STEP_LEASE_OVER)
        (void)snprintf(c.run.message, sizeof c.run.message,
                       "its target was out of reach for longer than its runner's lease%s",
                       requeue ? "" : "; spec.suspend true, then false, queues it again");
    driver_propose(d, &c);
    if (requeue && step != STEP_ABSENT)
        movers_ending(d->brain, d->o,
                      c.run.checkpoint != NULL ||
                          d->telling); /* what follows on the end goes into the same entry */
}

static struct call *call_begin(struct driver *d, struct site *t, enum driver_call kind,
                               uint64_t deadline_ms);

static void send(struct driver *d, struct site *t, const struct run_order *o)
{
    order_note(&d->sent, o, t);
    /* Whenever it arrives and is answered: its lease counts from before now (connector.h). */
    lease_renewed(d, loop_now_ms(d->brain->loop));
    t->connector->ops->submit(t->connector, o, call_begin(d, t, CALL_SUBMIT, CALL_DEADLINE_MS));
    FAILPOINT(calls_sent[CALL_SUBMIT]);
}

static void submit(struct driver *d, struct site *t)
{
    AUTO_ARENA a = arena_create(0);
    struct run_order o;
    struct err err;

    if (order_make(t, d->o, object_as(d->o, workload)->status->placement, &d->key, a, &o, &err)) {
        if (err.code == E_TOOLARGE) {
            driver_never_starts(d, &err);
            driver_later(d, 0);
            return;
        }
        /* provably without effect: the place is given back, with the reason */
        driver_seen_absent(
            d, end_text(err.code == E_FORBIDDEN ? END_TARGET_REFUSED : END_SECRET_MISSING),
            err.text);
        driver_backoff(d);
        return;
    }
    send(d, t, &o);
}

/* In place of find(), of an order whose outcome is unknown: where its target promises that it is
 * still the same run then, the very same order is sent again, or waits for that. False: find(). */
static bool submit_again(struct driver *d, struct site *t)
{
    uint64_t now = loop_now_ms(d->brain->loop);
    AUTO_ARENA a = arena_create(0);
    struct run_order o;
    struct err err;

    if (!order_repeats(&d->sent, t) || d->has_seen ||
        object_as(d->o, workload)->status->phase != PHASE_DISPATCHING)
        return false;
    if (now < d->send_again_ms) {
        driver_later(d, d->send_again_ms - now);
        return true;
    }
    if (order_make(t, d->o, object_as(d->o, workload)->status->placement, &d->key, a, &o, &err) ||
        !order_same(&d->sent, &o)) {
        d->sent.settled = true;
        return false;
    }
    send(d, t, &o);
    return true;
}

/* ---- limits.inFlight ---- */
static bool calls_full(const struct site *t)
{
    const struct target_limits *l = object_as(t->doc, target)->spec->limits;

    return l && l->inFlight > 0 && t->calls >= (unsigned)l->inFlight;
}

bool driver_held_back(struct driver *d, struct site *t)
{
    d->held_back = calls_full(t);
    if (!d->held_back)
        return false;
    t->held_back = true;
    driver_later(d, HELD_LOOK_MS); /* should who was let in before it make no call */
    return true;
}

static void call_counted_off(struct driver *d)
{
    struct site *t = site_find(d->brain, d->call_target);

    if (!t || t->number != d->call_site)
        return; /* it was removed meanwhile, and its count with it */
    INV(t->calls > 0);
    t->calls--;
    if (!t->held_back || calls_full(t))
        return;
    t->held_back = false;
    list_for_each (it, &t->drivers) {
        struct driver *next = container_of(it, struct driver, seat);
        if (!next->held_back)
            continue;
        t->held_back = true; /* others may, too: looked for when the next is answered */
        next->held_back = false;
        driver_later(next, 0);
        return;
    }
}

/* ---- answers ---- */
static void answered(struct call *c, enum outcome out, const struct observation *seen,
                     const struct err *err)
{
    struct driver *d = container_of(c, struct driver, call.call);
    struct brain *b = d->brain;
    struct site *t = site_find(b, d->target);
    enum driver_call kind = (enum driver_call)d->call_kind;
    bool same = seen && seen->key.epoch == d->key.epoch && seen->key.try_ == d->key.try_;
    struct observation room;

    FAILPOINT(calls_answered[kind]);
    d->calling = false;
    seen = same ? driver_doubt(d, seen, &room) : seen;
    call_counted_off(d);
    if (d->dead || !b->leads || d->call_key.epoch != d->key.epoch ||
        d->call_key.try_ != d->key.try_) {
        driver_tick(d);
        return;
    }
    if (driver_estranged(d, t)) { /* whatever it answers, it is not who was asked to run it */
        out = OUT_UNKNOWN;
        seen = NULL;
    }
    if (out == OUT_DONE && same && !(d->has_seen && d->seen.state == RUN_ENDED))
        driver_take_seen(d, seen);
    if (out == OUT_UNKNOWN && kind == CALL_SUBMIT && PLANTED("run.unknown-is-refused"))
        out = OUT_REJECTED;
    if (out == OUT_REJECTED && kind == CALL_SUBMIT && d->sent.n > 1 &&
        !PLANTED("run.resent-is-refused")) { /* it says nothing of the order before it */
        d->sent.settled = true;
        out = OUT_UNKNOWN;
    }
    if (out == OUT_REJECTED && kind == CALL_SUBMIT) {
        driver_rejected(d, &c->refused, seen, err);
        driver_tick(d);
        return;
    }
    if (out == OUT_DONE && kind == CALL_SUBMIT && t)
        t->refused_ms = 0;
    driver_silence(d, out, err);
    bool told = kind == CALL_FIND && seen && seen->state != RUN_UNKNOWN;
    if (out == OUT_DONE && t && (told || kind == CALL_SUBMIT))
        d->found_session = t->session;
    if (kind == CALL_QUIESCE && out == OUT_DONE)
        d->quiesced = true;
    if ((kind == CALL_FIND || kind == CALL_STOP) && seen)
        d->unlisted_ms = seen->state == RUN_UNKNOWN && seen->unlisted ? d->find_ms : 0;
    if (out != OUT_DONE || (kind == CALL_FIND && (!seen || seen->state == RUN_UNKNOWN)) ||
        (kind == CALL_STOP && (!seen || (seen->state != RUN_ENDED && seen->state != RUN_ABSENT)))) {
        if (kind == CALL_SUBMIT)
            d->found_session = 0;
        d->send_again_ms = loop_now_ms(b->loop) + d->backoff_ms;
        if (kind != CALL_FIND || !driver_still_untold(d, t))
            driver_backoff(d);
        return;
    }
    d->backoff_ms = 50;
    driver_tick(d);
}

static struct call *call_begin(struct driver *d, struct site *t, enum driver_call kind,
                               uint64_t deadline_ms)
{
    t->calls++;
    d->call_site = t->number;
    str_copy(d->call_target, sizeof d->call_target, t->name);
    d->calling = true;
    d->call_kind = (int)kind;
    d->call_key = d->key;
    return brain_call_about(d->brain, &d->call, d->uid, deadline_ms, answered);
}

static void hurried(struct call *c, enum outcome out, const struct observation *seen,
                    const struct err *err)
{
    struct driver *d = container_of(c, struct driver, hurry.call);

    (void)out; /* the stop under way is answered by the end, and asked again if it is not */
    (void)seen;
    (void)err;
    d->hurrying = false;
    driver_tick(d);
}

/* A program that is stopped on a node that goes away has ended, and its last checkpoint is sealed
 * and told, before the deadline. One that has passed bounds nothing: the node is still there. */
static uint64_t grace_now(const struct driver *d)
{
    const struct brain *b = d->brain;
    const struct workload_status *s = object_as(d->o, workload)->status;
    const struct node_notice *n = b->pool ? policy_notice(b->pool, s->placement, NULL) : NULL;
    int64_t grace = workload_grace_ms(d->o);

    if (!n || !n->deadline)
        return (uint64_t)grace;
    int64_t left = n->deadline - core_time_ms(b->cfg.core);
    int64_t most = left > NOTICE_MARGIN_MS + NOTICE_GRACE_MIN_MS ? left - NOTICE_MARGIN_MS
                                                                 : NOTICE_GRACE_MIN_MS;
    return (uint64_t)(left > 0 && most < grace ? most : grace);
}

void driver_hurry(struct driver *d, struct site *t)
{
    uint64_t grace = grace_now(d);

    if (!d->calling || d->call_kind != CALL_STOP || d->hurrying || grace >= d->stop_grace_ms ||
        !t || !t->connector || !t->reachable)
        return;
    d->stop_grace_ms = grace;
    d->hurrying = true;
    t->connector->ops->stop(t->connector, &d->key, grace,
                            brain_call(d->brain, &d->hurry, grace + CALL_DEADLINE_MS, hurried));
}

void driver_call(struct driver *d, struct site *t, enum driver_call kind)
{
    const struct checkpoint_spec *ck = object_as(d->o, workload)->spec->checkpoint;
    uint64_t grace = grace_now(d);
    const struct connector_ops *ops = t->connector->ops;
    struct call *call;

    if (driver_held_back(d, t))
        return;
    if (kind == CALL_SUBMIT) {
        submit(d, t);
        return;
    }
    if (kind == CALL_FIND && submit_again(d, t))
        return;
    d->sent.settled = true; /* what is asked of this key now counts: no order comes after it */
    d->own_epoch = 0;       /* not the first one either */
    call = call_begin(d, t, kind, kind == CALL_STOP ? grace + CALL_DEADLINE_MS : CALL_DEADLINE_MS);
    d->find_ms = brain_time_ms(d->brain);
    if (kind == CALL_FIND) {
        ops->find(t->connector, &d->key, call);
    } else if (kind == CALL_QUIESCE) {
        if (!d->stop_after_ms) /* from the first attempt on, whether it is answered or not */
            d->stop_after_ms = loop_now_ms(d->brain->loop) + grace + 1000;
        int signo = signal_number(ck ? ck->signal : "");
        ops->quiesce(t->connector, &d->key, signo ? signo : SIGTERM, grace, call);
    } else {
        d->stop_grace_ms = grace;
        ops->stop(t->connector, &d->key, grace, call);
    }
    FAILPOINT(calls_sent[kind]);
}
