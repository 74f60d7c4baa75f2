/* What targets report without being asked: news of runs that drivers hold, and runs that the state
 * has left behind, which are ended. A run of an epoch that the state has not left must never be
 * ended. */

#include "controlplane/leader/drive/observed.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/leader/context/hide.h"
#include "controlplane/leader/context/refusals.h"
#include "controlplane/leader/drive/calls.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/drive/lease.h"
#include "controlplane/leader/drive/order.h"
#include "controlplane/leader/keep/events.h"
#include "controlplane/leader/recover/denials.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define ORPHAN_GRACE_MS 5000
#define ORPHAN_STOP_MS 60000
#define PENDING_TOLD_EVERY_MS 30000
#define SILENT_TOLD 2 /* so many calls in a row that are not answered are told to people */
#define WITHDRAWN_LEAST_MS 30000
#define COPY_LOOK_MS 1000
#define NEVER_STARTED_EXIT 126 /* as of a runner that starts nothing */

/* ---- what targets tell on their own ---- */
struct orphan_stop {
    struct brain_call call;
};
static void orphan_stopped(struct call *c, enum outcome out, const struct observation *seen,
                           const struct err *err)
{
    struct orphan_stop *s = container_of(c, struct orphan_stop, call.call);

    (void)out;
    (void)seen;
    (void)err;
    mem_free(s);
}

/* Ends a run of this cluster that the state has left behind: of an older epoch or try, or of a
 * workload that is gone. */
static void orphan_end(struct site *t, const struct observation *o)
{
    struct orphan_stop *s;
    char key[RUN_KEY_MAX];

    if (o->state == RUN_ENDED && t->connector->ops->finalize)
        t->sweep_due = true; /* what is kept of it for us may go: nobody else says so */
    if (o->state != RUN_RUNNING && o->state != RUN_STARTING && o->state != RUN_PENDING)
        return;
    t->sweep_due = true; /* whether its end was told before */
    s = mem_new(struct orphan_stop);
    run_key_print(&o->key, key);
    log_event(LOG_WARN, "run.orphan",
              LOG_FIELDS({"target", log_str(t->name)}, {"key", log_str(key)}));
    t->connector->ops->stop(t->connector, &o->key, ORPHAN_GRACE_MS,
                            brain_call(t->brain, &s->call, ORPHAN_STOP_MS, orphan_stopped));
}

/* A workload never resumes from a checkpoint that is not its own, whatever an agent reports. */
static void checkpoint_foreign(struct driver *d, const struct err *err)
{
    d->seen.checkpoint.present = false;
    if (d->foreign_epoch == d->key.epoch)
        return;
    d->foreign_epoch = d->key.epoch; /* told once */
    events_of_checkpoint(d->brain, d->o, "CheckpointRefused", "what %s told was not taken: %.300s",
                         d->target, err->text);
}

#define FORGOTTEN                                                                                  \
    "its target says that nothing of it was ever started there, and it was seen running: it may "  \
    "still run. Once it is known to have ended: hanse fence"

const struct observation *driver_doubt(const struct driver *d, const struct observation *o,
                                       struct observation *room)
{
    if (o->state != RUN_ABSENT || !workload_has_run(object_as(d->o, workload)->status))
        return o;
    *room = *o;
    if (o->left_proof) { /* what was seen was a runner that started nothing */
        room->state = RUN_ENDED;
        room->proof = o->left_proof;
        room->exit_code = NEVER_STARTED_EXIT;
        return room;
    }
    room->state = RUN_UNKNOWN;
    room->proof = (enum proof)0;
    str_copy(room->message, sizeof room->message, FORGOTTEN);
    return room;
}

/* An answer comes by its own way, and may have been given ahead of news that came sooner: what runs
 * has not begun to start since. */
static bool is_old_news(const struct driver *d, const struct observation *o)
{
    return d->has_seen && run_key_same(&d->seen.key, &o->key) && d->seen.state == RUN_RUNNING &&
           (o->state == RUN_STARTING || o->state == RUN_PENDING);
}

/* Takes in news of this run. A reported checkpoint stays known, for not every answer repeats it. */
void driver_take_seen(struct driver *d, const struct observation *o)
{
    struct run_checkpoint_report had = d->seen.checkpoint;
    bool same = d->seen.key.epoch == o->key.epoch;
    struct err err;

    if (driver_estranged(d, site_find(d->brain, d->target)) || is_old_news(d, o))
        return;
    d->seen = *o;
    d->has_seen = true;
    if (o->state != RUN_UNKNOWN)
        d->untold_since_ms = 0;
    else if (!d->untold_since_ms)
        d->untold_since_ms = loop_now_ms(d->brain->loop);
    if (o->checkpoint.present &&
        order_checkpoint_told(d->o, o->key.epoch, &o->checkpoint, &err) < 0)
        checkpoint_foreign(d, &err);
    if (same && had.present && (!d->seen.checkpoint.present || d->seen.checkpoint.step < had.step))
        d->seen.checkpoint = had;
    brain_observed(d->brain, d->uid, &d->seen);
}

void driver_saved(struct site *t, const struct run_key *k, const struct run_checkpoint_report *c)
{
    struct driver *d = driver_find(t->brain, k->uid);

    if (!t->brain->leads || !d || d->dead || strcmp(d->target, t->name) != 0 ||
        k->epoch != d->key.epoch || k->try_ != d->key.try_ || driver_estranged(d, t) ||
        (d->has_seen && d->seen.state == RUN_ENDED))
        return;
    bool same = d->seen.key.epoch == k->epoch, present = same && d->seen.checkpoint.present;
    if ((present && d->seen.checkpoint.step >= c->step) ||
        order_checkpoint_told(d->o, k->epoch, c, NULL) < 0)
        return; /* of one that is not its own, its observation tells */
    d->seen = same ? d->seen : (struct observation){.key = *k};
    d->seen.checkpoint = *c;
    driver_tick(d);
}

void driver_observed(struct site *t, const struct observation *o)
{
    struct brain *b = t->brain;
    struct driver *d = driver_find(b, o->key.uid);

    if (!b->leads)
        return;
    if (!d || d->dead || strcmp(d->target, t->name)) {
        /* The root may be behind what was just committed elsewhere: only an epoch that it has left
         * is an orphan. */
        const struct object *w = root_workload_by_uid(b->root, o->key.uid);
        const struct workload_status *s = w ? object_as(w, workload)->status : NULL;
        if (!s || s->epoch < o->key.epoch || (s->epoch == o->key.epoch && !phase_holds(s->phase)))
            t->sweep_due = true; /* what it is, the sweep says */
        else if (s->epoch > o->key.epoch)
            orphan_end(t, o);
        return;
    }
    if (o->key.epoch < d->key.epoch ||
        (o->key.epoch == d->key.epoch && o->key.try_ < d->key.try_)) {
        orphan_end(t, o);
        return;
    }
    if (o->key.epoch != d->key.epoch || o->key.try_ != d->key.try_)
        return;
    if (d->has_seen && d->seen.state == RUN_ENDED)
        return; /* an end is an end: what comes later, late */
    struct observation room, told = *driver_doubt(d, o, &room);
    hide_observation(b, d->o, &told);
    driver_take_seen(d, &told);
    d->found_session = told.state == RUN_UNKNOWN ? 0 : t->session; /* then find() says more */
    driver_tick(d);
}

void driver_over(struct driver *d)
{
    if (!d->dead && d->has_seen && d->seen.state == RUN_ENDED)
        site_finalize(site_find(d->brain, d->target), &d->key);
    d->dead = true;
}

bool driver_copy_lives(struct driver *d)
{
    if (!denial_lives(d->brain, d->uid))
        return false;
    driver_later(d, COPY_LOOK_MS);
    return true;
}

/* ---- what never started ---- */
void driver_never_starts(struct driver *d, const struct err *err)
{
    d->seen = (struct observation){
        .key = d->key, .state = RUN_ENDED, .exit_code = 1, .proof = PROOF_NEVER_STARTED};
    str_copy(d->seen.reason, sizeof d->seen.reason, end_text(END_ORDER_TOO_LARGE));
    (void)snprintf(d->seen.message, sizeof d->seen.message, "%s%s%s", err->field,
                   *err->field ? ": " : "", err->text);
    d->has_seen = true;
}

void driver_seen_absent(struct driver *d, const char *reason, const char *message)
{
    d->seen =
        (struct observation){.key = d->key, .state = RUN_ABSENT, .proof = PROOF_NEVER_STARTED};
    str_copy(d->seen.reason, sizeof d->seen.reason, reason);
    str_cut(d->seen.message, sizeof d->seen.message, message);
    d->has_seen = true;
}

void driver_withdrawn(struct driver *d)
{
    const struct object *o = root_get(d->brain->root, KIND_TARGET, "", d->target);
    const struct target_limits *l = o ? object_as(o, target)->spec->limits : NULL;
    uint64_t ms = l && l->pendingFor > 0 ? (uint64_t)l->pendingFor : 0;

    d->refused = (struct refusal){.class_ = REFUSED_CAPACITY,
                                  .scope = BLAMES_WORKLOAD,
                                  .retry_ms = ms > WITHDRAWN_LEAST_MS ? ms : WITHDRAWN_LEAST_MS};
    str_copy(d->seen.reason, sizeof d->seen.reason, end_text(END_PENDING_TOO_LONG));
    str_copy(d->seen.message, sizeof d->seen.message,
             "it waited in the target's own queue for longer than limits.pendingFor of the Target");
}

void driver_rejected(struct driver *d, const struct refusal *why, const struct observation *seen,
                     const struct err *err)
{
    enum end_checkpoint said = seen ? end_row(seen->reason)->checkpoint : CHECKPOINT_KEPT;
    bool checkpoint = said == CHECKPOINT_REFUSED || said == CHECKPOINT_MISFIT;

    if (err && err->code == E_TOOLARGE) {
        driver_never_starts(d, err);
        return;
    }
    bool own = why->class_ && why->scope == BLAMES_WORKLOAD;
    driver_seen_absent(d,
                       checkpoint ? seen->reason
                       : own      ? end_text(END_RUN_DENIED)
                                  : end_text(END_TARGET_REFUSED),
                       err ? err->text : "");
    if (checkpoint)
        return;
    d->refused = *why;
    struct site *t = site_find(d->brain, d->target);
    if (t && !why->class_) /* nobody said why: it is asked for nothing for a while */
        site_refused(t);
}

/* ---- its workers ---- */
#define TIME_MAX_MS 253402300799000 /* the end of the year 9999 */

static void workers_forget(struct driver *d)
{
    mem_free(d->workers);
    d->workers = NULL;
    d->n_workers = 0;
    d->clocked = false;
}

void driver_told_forget(struct driver *d)
{
    d->seen = (struct observation){0};
    buf_fini(&d->seats);
    d->seats_refused = false;
    workers_forget(d);
}

static uint32_t ranks_of(const struct driver *d)
{
    const struct workload_status *s = object_as(d->o, workload)->status;
    const struct placement *p = s->pending && s->pending->asked ? s->pending->asked : s->placement;

    return p && p->n_assignments <= LIMIT_GANG_MAX ? p->n_assignments : 0;
}

/* What is told takes time to come: the least difference is nearest to that of the clocks. */
static void clock_told(struct driver *d, const struct site *t, int64_t clock_ms)
{
    int64_t behind = brain_time_ms(d->brain) - clock_ms;

    if (clock_ms <= 0)
        return;
    if (d->clocked && d->clock_session == t->session && d->clock_behind_ms <= behind)
        return;
    d->clocked = true;
    d->clock_session = t->session;
    d->clock_behind_ms = behind;
}

static void worker_take(struct driver *d, const struct run_worker *w)
{
    struct worker_seen *s = &d->workers[w->rank];

    s->told = true;
    s->exit_code = w->exit_code;
    s->term_signal = w->term_signal;
    s->started_ms = w->started_ms <= TIME_MAX_MS ? w->started_ms : 0;
    s->ended_ms = w->ended_ms <= TIME_MAX_MS ? w->ended_ms : 0;
    s->devices = 0;
    for (uint32_t i = 0; i < w->n_gpus; i++)
        if (w->gpus[i] >= 0 && w->gpus[i] < LIMIT_NODE_GPUS)
            s->devices |= 1ull << w->gpus[i];
    str_cut(s->reason, sizeof s->reason, w->reason);
    str_cut(s->id, sizeof s->id, w->id);
    hide_word(d->brain, d->o, s->reason, sizeof s->reason);
    hide_word(d->brain, d->o, s->id, sizeof s->id);
}

void driver_workers(struct site *t, const struct run_workers *w)
{
    struct driver *d = driver_find(t->brain, w->key.uid);

    if (!t->brain->leads || !d || d->dead || strcmp(d->target, t->name) != 0 ||
        w->key.epoch != d->key.epoch || w->key.try_ != d->key.try_ || driver_estranged(d, t) ||
        (d->has_seen && d->seen.state == RUN_ENDED))
        return;
    if (!d->workers || d->n_workers != ranks_of(d)) {
        workers_forget(d);
        d->n_workers = ranks_of(d);
        d->workers = mem_zalloc((d->n_workers + 1) * sizeof *d->workers);
    }
    clock_told(d, t, w->clock_ms);
    for (uint32_t i = 0; i < w->n_workers; i++)
        if (w->workers[i].rank < d->n_workers)
            worker_take(d, &w->workers[i]);
}

/* Of a worker that holds a number of devices: which ones, if the target told. */
static void devices_tell(const struct driver *d, struct arena *a, struct worker_status *w)
{
    const struct placement *p = object_as(d->o, workload)->status->placement;
    uint64_t devices = d->workers[w->rank].devices;

    if (!devices || !p || w->rank >= p->n_assignments || !p->assignments[w->rank].count)
        return;
    w->gpus = arena_array(a, int64_t, LIMIT_NODE_GPUS);
    for (int64_t i = 0; i < LIMIT_NODE_GPUS; i++)
        if (devices >> i & 1)
            w->gpus[w->n_gpus++] = i;
}

uint32_t driver_workers_told(const struct driver *d, struct arena *a, struct worker_status **ret)
{
    struct worker_status *v = arena_array(a, struct worker_status, d->n_workers + 1);
    uint32_t n = 0;

    for (uint32_t i = 0; i < d->n_workers; i++) {
        const struct worker_seen *s = &d->workers[i];
        if (!s->told)
            continue;
        v[n] = (struct worker_status){.rank = i,
                                      .node = "",
                                      .exitCode = s->exit_code,
                                      .signal = s->term_signal,
                                      .reason = s->reason,
                                      .startedAt = s->started_ms,
                                      .endedAt = s->ended_ms,
                                      .id = s->id};
        devices_tell(d, a, &v[n++]);
    }
    *ret = v;
    return n;
}

/* The first that failed: the others were stopped for it. */
static const struct worker_seen *first_failed(const struct driver *d)
{
    const struct worker_seen *first = NULL;

    for (uint32_t i = 0; i < d->n_workers; i++) {
        const struct worker_seen *s = &d->workers[i];
        if (!s->told || !(s->exit_code || s->term_signal || *s->reason))
            continue;
        if (!first || (s->ended_ms && (!first->ended_ms || s->ended_ms < first->ended_ms)))
            first = s;
    }
    return first;
}

void driver_workers_blame(const struct driver *d, const char *message, char *out, size_t n)
{
    const struct workload_status *s = object_as(d->o, workload)->status;
    const struct worker_seen *w = first_failed(d);
    int64_t rank = w ? w - d->workers : 0;
    char how[32];

    str_cut(out, n, message);
    if (!w || d->n_workers < 2 || !s->placement || rank >= s->placement->n_assignments)
        return;
    if (w->term_signal)
        (void)snprintf(how, sizeof how, "signal %d", w->term_signal);
    else
        (void)snprintf(how, sizeof how, "exit %d", w->exit_code);
    (void)snprintf(out, n, "rank %lld on node %.253s: %s%s%s%s%.500s", (long long)rank,
                   s->placement->assignments[rank].node, how, *w->reason ? ", " : "", w->reason,
                   *message ? "; " : "", message);
}

/* ---- in the target's own queue ---- */
void driver_seated(struct site *t, const struct run_key *k, const struct placement *at)
{
    struct driver *d = driver_find(t->brain, k->uid);

    if (!t->brain->leads || !d || d->dead || strcmp(d->target, t->name) != 0 ||
        k->epoch != d->key.epoch || k->try_ != d->key.try_ || driver_estranged(d, t) ||
        PLANTED("run.seats-ignored"))
        return;
    buf_fini(&d->seats);
    buf_init(&d->seats, LIMIT_OBJECT_MAX_BYTES);
    if (tlv_encode(&schema_placement, at, &d->seats, NULL) < 0)
        buf_fini(&d->seats); /* as it was decided, then */
}

static void tell_pending(struct driver *d)
{
    struct run_pending p = {.reason = "", .message = ""};
    union command c = {.run = {.step = STEP_PENDING, .pending = &p}};

    p.position = d->seen.position;
    p.estimate = d->seen.estimate_ms;
    str_copy(c.run.reason, sizeof c.run.reason,
             *d->seen.reason ? d->seen.reason : "PendingAtTarget");
    str_copy(c.run.message, sizeof c.run.message, d->seen.message);
    d->pending_told_ms = loop_now_ms(d->brain->loop);
    driver_propose(d, &c);
}

/* In arena a; NULL: the target told of none. */
static struct placement *seats_of(const struct driver *d, struct arena *a)
{
    struct err err;
    void *at;

    return d->seats.n && tlv_decode(&schema_placement, slice_make(d->seats.p, d->seats.n), a, &at,
                                    &err) == 0
               ? at
               : NULL;
}

static void tell_seated(struct driver *d)
{
    union command c = {.run = {.step = STEP_SEATED}};
    AUTO_ARENA a = arena_create(0);

    c.run.seats = seats_of(d, a);
    driver_propose(d, &c);
}

/* It waited, and nobody saw it wait: it runs on other nodes than it was ordered for. */
static bool seated_elsewhere(const struct driver *d, const struct placement *log)
{
    AUTO_ARENA a = arena_create(0);
    const struct placement *p = log ? seats_of(d, a) : NULL;
    bool differs = false;

    for (uint32_t i = 0; p && p->n_assignments == log->n_assignments && i < p->n_assignments; i++)
        differs |= strcmp(p->assignments[i].node, log->assignments[i].node) != 0;
    return differs;
}

/* Why it waits is told at once; that it moves up, now and then. */
static bool pending_news(const struct driver *d, const struct run_pending *p)
{
    const struct observation *o = &d->seen;

    if (!p || strcmp(p->reason, *o->reason ? o->reason : "PendingAtTarget") != 0)
        return true;
    bool moved = p->position != o->position || p->estimate != o->estimate_ms ||
                 strcmp(p->message, o->message) != 0;
    return moved && loop_now_ms(d->brain->loop) - d->pending_told_ms >= PENDING_TOLD_EVERY_MS;
}

bool driver_pending(struct driver *d)
{
    const struct workload_status *s = object_as(d->o, workload)->status;
    bool waits = d->seen.state == RUN_PENDING;

    if (root_feature_level(d->brain->root) < FEATURE_GRANTS)
        return false;
    if (waits && (s->phase == PHASE_DISPATCHING || s->phase == PHASE_STARTING) &&
        pending_news(d, s->pending)) {
        tell_pending(d);
        return true;
    }
    bool ended = d->seen.state == RUN_ENDED && d->seen.proof != PROOF_NEVER_STARTED;
    bool given = d->seen.state == RUN_STARTING || d->seen.state == RUN_RUNNING || ended;
    if (given && !s->pending && (s->phase == PHASE_DISPATCHING || s->phase == PHASE_STARTING) &&
        seated_elsewhere(d, s->placement)) {
        tell_pending(d); /* its nodes are let go in the log, and others taken */
        return true;
    }
    /* What has ended needs no nodes any more: by the log others hold those that it had. */
    if (given && s->pending && !(ended && d->seats_refused) &&
        (s->phase == PHASE_STARTING || s->phase == PHASE_QUIESCING)) {
        tell_seated(d);
        return true;
    }
    return false;
}

const char *driver_pending_over(struct driver *d)
{
    const struct run_pending *p = object_as(d->o, workload)->status->pending;
    const struct object *o = p ? root_get(d->brain->root, KIND_TARGET, "", d->target) : NULL;
    const struct target_limits *l = o ? object_as(o, target)->spec->limits : NULL;

    if (!l || l->pendingFor <= 0)
        return NULL;
    int64_t left = p->since + l->pendingFor - brain_time_ms(d->brain);
    if (left <= 0)
        return end_text(END_PENDING_TOO_LONG);
    driver_later(d, (uint64_t)left + 1);
    return NULL;
}

/* ---- what is not answered ---- */
/* It holds its place and comes no further: whoever waits for it is to know for what. */
void driver_silence(struct driver *d, enum outcome out, const struct err *err)
{
    char text[400];

    d->silent = out == OUT_UNKNOWN ? d->silent + 1 : 0;
    if (d->silent < SILENT_TOLD || object_as(d->o, workload)->status->phase != PHASE_DISPATCHING)
        return;
    (void)snprintf(text, sizeof text,
                   "what became of its order is not known, its target is asked again: %.250s",
                   err && *err->text ? err->text : "it cannot tell");
    events_sometimes(d->brain, d->o, "NotAnswered", text);
}
