/* The effects of a mover: steps into the log, and the one external call of a move, stage(). Steps
 * that follow on each other are proposed at once and land in one entry. Apply checks each for
 * itself, so a refused step only takes the ones after it along. */

#include "controlplane/leader/move/steps.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/drive/order.h"
#include "controlplane/leader/move/begin.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define BACKOFF_MAX_MS 2000
#define STAGE_DEADLINE_MS 15000
#define STAGE_BYTES_PER_MS 20000 /* it reads the whole checkpoint: no slower than this */
#define STAGE_MAX_MS (2L * 3600 * 1000)
#define BAD_CHECKPOINTS_MAX 16
#define TOLD_EVERY_MS 5000

void mover_backoff(struct mover *m)
{
    timer_start(&m->again,
                m->backoff_ms + loop_random_u64(m->brain->loop) % (m->backoff_ms / 2 + 1));
    m->backoff_ms = m->backoff_ms * 2 < BACKOFF_MAX_MS ? m->backoff_ms * 2 : BACKOFF_MAX_MS;
}

/* ---- steps ---- */
static const char *const before[] = {
    [MOVE_RESERVE] = "move.reserve.before", [MOVE_WAIT] = "move.wait.before",
    [MOVE_QUIESCE] = "move.quiesce.before", [MOVE_VERIFY] = "move.verify.before",
    [MOVE_STAGE] = "move.stage.before",     [MOVE_START] = "move.start.before",
    [MOVE_COMMIT] = "move.commit.before",   [MOVE_ABORT] = "move.abort.before"};
static const char *const after[] = {
    [MOVE_RESERVE] = "move.reserve.after", [MOVE_WAIT] = "move.wait.after",
    [MOVE_QUIESCE] = "move.quiesce.after", [MOVE_VERIFY] = "move.verify.after",
    [MOVE_STAGE] = "move.stage.after",     [MOVE_START] = "move.start.after",
    [MOVE_COMMIT] = "move.commit.after",   [MOVE_ABORT] = "move.abort.after"};

struct step {
    struct mover *m;
    enum move_step step; /* 0: a step of the workload's own machine */
    bool foreseen;
};

/* What was held ahead of the root is let go. */
static void reserve_refused(struct mover *m)
{
    m->room_seen = m->brain->movers->room - 1;
    if (m->brain->pool && !m->dead)
        move_hold(m->brain, m->o);
}

/* The destination does not hold any more: the move takes its way back; not while recovery looks for
 * how far it came. */
static void start_refused(struct mover *m, const char *why)
{
    if (!m->dead && m->brain->leads && !root_recovering(m->brain->root))
        mover_abort(m, MP_FAILED, "DestinationRefused", why);
}

static void answered(void *arg, const struct result *r, const struct err *err)
{
    struct step *s = arg;
    struct mover *m = s->m;
    bool refused = err || r->code, expected = s->foreseen || (!err && r->code == E_STALE);

    if (!refused && s->step)
        FAILPOINT(after[s->step]);
    m->proposing--;
    if (refused && !expected)
        log_event(LOG_WARN, "move.step",
                  LOG_FIELDS({"migration", log_str(m->name)},
                             {"step", log_str(s->step ? move_step_text(s->step) : "Run")},
                             {"why", log_str(err ? err->text : r->text)}));
    if (refused && s->step == MOVE_RESERVE)
        reserve_refused(m);
    if (!err && !s->foreseen && s->step == MOVE_START &&
        (r->code == E_PLACE || r->code == E_COMPLIANCE))
        start_refused(m, r->text);
    bool foreseen = s->foreseen;
    mem_free(s);
    if (m->proposing)
        return;
    m->foreseen = false;
    if (refused && !foreseen && !m->dead)
        mover_backoff(m);
    else
        mover_tick(m);
}

static void propose(struct mover *m, union command *c, enum move_step step)
{
    struct step *s = mem_new(struct step);

    *s = (struct step){m, step, m->foreseen};
    brain_request_id(m->brain, c->head.request_id);
    (void)snprintf(c->head.user, sizeof c->head.user, "hanse:mover");
    m->proposing++;
    if (step)
        FAILPOINT(before[step]);
    brain_propose(m->brain, c, answered, s);
}

static void step_propose(struct mover *m, union command *c)
{
    c->head.type = CMD_MIGRATE;
    str_copy(c->migrate.ns, sizeof c->migrate.ns, m->ns);
    str_copy(c->migrate.name, sizeof c->migrate.name, m->name);
    str_copy(c->migrate.uid, sizeof c->migrate.uid, m->uid);
    propose(m, c, c->migrate.step);
}

void mover_step(struct mover *m, enum move_step step)
{
    union command c = {.migrate = {.step = step}};

    step_propose(m, &c);
}

static void reasoned(struct mover *m, enum move_step step, enum move_phase outcome,
                     const char *reason, const char *message)
{
    union command c = {.migrate = {.step = step, .outcome = outcome}};

    str_copy(c.migrate.reason, sizeof c.migrate.reason, reason);
    str_copy(c.migrate.message, sizeof c.migrate.message, message);
    step_propose(m, &c);
}

void mover_wait(struct mover *m, const char *reason, const char *message)
{
    const struct migration_status *s = mover_status(m);
    uint64_t now = loop_now_ms(m->brain->loop);

    if (s->phase == MP_RESERVING && !strcmp(s->reason, reason) &&
        (!strcmp(s->message, message) || now - m->told_ms < TOLD_EVERY_MS))
        return; /* seconds that are left change all the time */
    m->told_ms = now;
    reasoned(m, MOVE_WAIT, (enum move_phase)0, reason, message);
}

void mover_abort(struct mover *m, enum move_phase outcome, const char *reason, const char *message)
{
    reasoned(m, MOVE_ABORT, outcome, reason, message);
}

/* Its destination is held, and the workload told to stop, in one entry. The pool holds it from now
 * on: the scheduler shall not promise it meanwhile. */
void mover_reserve(struct mover *m, const struct object *workload, const struct move_choice *c)
{
    struct move_begin begin;
    union command cmd = {.migrate = {.step = MOVE_RESERVE, .begins = &begin, .n = 1}};
    bool lost = object_as(workload, workload)->status->phase == PHASE_UNKNOWN;

    begin_fill(&begin, workload, object_as(m->o, migration)->spec->cause, c);
    if (!begin.cause)
        begin.cause = MOVE_ASKED;
    str_copy(cmd.migrate.message, sizeof cmd.migrate.message, c->why);
    if (c->placement)
        move_hold_ahead(m->brain, m->o, workload, c->placement);
    step_propose(m, &cmd);
    if (!lost)
        mover_step(m, MOVE_QUIESCE);
}

/* ---- steps of the workload's own machine ---- */
static union command source_step(const struct object *w, enum run_step step)
{
    const struct workload_status *s = object_as(w, workload)->status;
    union command c = {.run = {.head = {.type = CMD_RUN},
                               .step = step,
                               .epoch = s->epoch,
                               .try_ = s->intent ? s->intent->try_ : 0}};

    str_copy(c.run.ns, sizeof c.run.ns, w->meta->namespace_);
    str_copy(c.run.name, sizeof c.run.name, w->meta->name);
    str_copy(c.run.uid, sizeof c.run.uid, w->meta->uid);
    return c;
}

void mover_quiesce_source(struct mover *m, const struct object *workload)
{
    union command c = source_step(workload, STEP_QUIESCE);

    (void)snprintf(c.run.reason, sizeof c.run.reason, "Moving");
    (void)snprintf(c.run.message, sizeof c.run.message,
                   "its target is back; by spec.partition.keep its replacement stays");
    propose(m, &c, (enum move_step)0);
}

/* ---- stage: the destination reads the checkpoint before anything depends on it ---- */
static void checkpoint_bad(struct mover *m, const struct object *w, const struct observation *seen,
                           const struct err *err)
{
    union command c = source_step(w, STEP_CHECKPOINT_BAD);
    bool told = seen && end_row(seen->reason)->checkpoint == CHECKPOINT_REFUSED;

    c.run.checkpoint =
        (struct run_checkpoint *)(uintptr_t)object_as(w, workload)->status->checkpoint;
    str_copy(c.run.reason, sizeof c.run.reason,
             told ? seen->reason : end_text(END_CHECKPOINT_MISSING));
    str_copy(c.run.message, sizeof c.run.message,
             err && *err->text ? err->text
             : told            ? seen->message
                               : "");
    propose(m, &c, (enum move_step)0);
}

static void staged(struct call *c, enum outcome out, const struct observation *seen,
                   const struct err *err)
{
    struct mover *m = container_of(c, struct mover, call.call);
    struct brain *b = m->brain;
    const struct object *w;

    FAILPOINT("move.read.answered");
    m->calling = false;
    if (m->dead || !b->leads || mover_status(m)->phase != MP_STAGING || !(w = mover_workload(m))) {
        mover_tick(m);
        return;
    }
    const struct workload_status *s = object_as(w, workload)->status;
    bool same = s->checkpoint && !strcmp(s->checkpoint->digest, m->staging);
    enum end_checkpoint said = seen ? end_row(seen->reason)->checkpoint : CHECKPOINT_KEPT;
    bool bad = out == OUT_REJECTED && said != CHECKPOINT_MISFIT &&
               ((err && err->code == E_CHECKPOINT) || said == CHECKPOINT_REFUSED);
    if (out == OUT_DONE && same) {
        mover_step(m, MOVE_STAGE);
        if (s->phase == PHASE_QUEUED)
            mover_step(m, MOVE_START);
    } else if (bad && same && m->bad++ < BAD_CHECKPOINTS_MAX) {
        checkpoint_bad(m, w, seen, err);
    } else if (out == OUT_REJECTED && same && (!err || err->code != E_UNAVAIL)) {
        mover_abort(m, MP_FAILED, "DestinationRefused",
                    err && *err->text ? err->text : "the destination refused it");
    } else {
        mover_backoff(m);
    }
}

void mover_stage(struct mover *m, struct site *t, const struct object *workload)
{
    const struct workload_status *s = object_as(workload, workload)->status;
    struct run_key key = {.epoch = s->epoch + 1};
    int64_t reads_ms = s->checkpoint->bytes / STAGE_BYTES_PER_MS;
    AUTO_ARENA a = arena_create(0);
    struct run_order o;

    str_copy(key.uid, sizeof key.uid, workload->meta->uid);
    order_stage(t, workload, mover_status(m)->placement, &key, a, &o);
    str_copy(m->staging, sizeof m->staging, s->checkpoint->digest);
    m->calling = true;
    if (reads_ms > STAGE_MAX_MS)
        reads_ms = STAGE_MAX_MS;
    t->connector->ops->stage(t->connector, &o,
                             brain_call_about(m->brain, &m->call, key.uid,
                                              STAGE_DEADLINE_MS + (uint64_t)reads_ms, staged));
    FAILPOINT("move.read.sent");
}
