/* Movers: one for each open Migration. Each tick reads the phases of the Migration and its
 * workload, and the state of its destination, and does the one next thing: it commits a step, has
 * the destination read the checkpoint, waits for the driver, or takes the way back (move.def).
 *
 * A mover must never start the new epoch itself, nor end the old one: that is the driver's, by its
 * own state machine. A mover that is lost with its leader takes nothing with it. */

#include "controlplane/leader/move/mover.h"

#include "api/base/failpoint.h"
#include "api/base/hash.h"
#include "api/base/log.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/move/causes.h"
#include "controlplane/leader/move/moves.h"
#include "controlplane/leader/move/steps.h"
#include "controlplane/leader/site/sites.h"

#include <stdio.h>
#include <string.h>

#define BACKOFF_MIN_MS 20
#define PLACE_EVERY_MS 200 /* that waits for room looks again no more often */
#define LOOK_EVERY_MS 1000 /* and no less */
#define MOVER_BUCKETS 1024

/* ---- the table of movers ---- */
const struct migration_status *mover_status(const struct mover *m)
{
    return object_as(m->o, migration)->status;
}

static uint64_t workload_hash(const char *ns, const char *name)
{
    return hash_more(hash_more(hash_text(ns), "/", 1), name, strlen(name));
}

static struct mover *mover_find(struct brain *b, const char *uid)
{
    struct indexed *e = index_find(&b->movers->by_uid, uid);

    return e ? container_of(e, struct mover, by_uid) : NULL;
}

static void again(void *arg)
{
    mover_tick(arg);
}

void mover_free(struct mover *m)
{
    timer_stop(&m->again);
    if (m->proposing || m->calling)
        return;
    list_remove(&m->link);
    list_remove(&m->of);
    index_remove(&m->brain->movers->by_uid, &m->by_uid);
    m->brain->movers->n--;
    (void)object_unref(m->o);
    mem_free(m);
}

static bool is_open(const struct object *o)
{
    const struct migration_status *s = o ? object_as(o, migration)->status : NULL;

    return s && move_open(s->phase);
}

static struct list *bucket(struct brain *b, uint64_t hash)
{
    if (!b->movers->of) {
        b->movers->of = mem_alloc(MOVER_BUCKETS * sizeof *b->movers->of);
        for (size_t i = 0; i < MOVER_BUCKETS; i++)
            list_init(&b->movers->of[i]);
    }
    return &b->movers->of[hash % MOVER_BUCKETS];
}

void movers_init(struct brain *b)
{
    list_init(&b->movers->all);
}

void movers_fini(struct brain *b)
{
    mem_free(b->movers->of);
}

unsigned movers_count(const struct brain *b)
{
    return b->movers->n;
}

static struct mover *mover_create(struct brain *b, const struct object *o)
{
    struct mover *m = mem_new(struct mover);

    m->brain = b;
    str_copy(m->uid, sizeof m->uid, o->meta->uid);
    str_copy(m->ns, sizeof m->ns, o->meta->namespace_);
    str_copy(m->name, sizeof m->name, o->meta->name);
    m->workload_hash = workload_hash(o->meta->namespace_, object_as(o, migration)->spec->workload);
    m->backoff_ms = BACKOFF_MIN_MS;
    m->room_seen = b->movers->room - 1;
    timer_init(&m->again, b->loop, again, m);
    list_push(&b->movers->all, &m->link);
    list_push(bucket(b, m->workload_hash), &m->of);
    m->by_uid.key = m->uid;
    index_add(&b->movers->by_uid, &m->by_uid);
    b->movers->n++;
    return m;
}

static void mover_take(struct mover *m, const struct object *o)
{
    const struct migration_status *was = m->o ? mover_status(m) : NULL;

    if (!was || was->phase != object_as(o, migration)->status->phase)
        m->backoff_ms = BACKOFF_MIN_MS;
    (void)object_unref(m->o);
    m->o = object_ref(o);
}

void mover_change(struct brain *b, const struct object *before, const struct object *after)
{
    const struct object *o = after ? after : before;
    struct mover *m = mover_find(b, o->meta->uid);

    moves_count(b, before, after);
    if (!m && !is_open(after))
        return;
    if (!m)
        m = mover_create(b, after);
    m->dead = !is_open(after);
    if (after)
        mover_take(m, after);
    mover_tick(m);
}

static bool reset_each(const struct object *o, void *arg)
{
    if (is_open(o))
        mover_change(arg, o, o);
    return true;
}
void movers_reset(struct brain *b)
{
    root_scan(b->root, KIND_MIGRATION, NULL, NULL, NULL, reset_each, b);
}

void movers_drop(struct brain *b)
{
    list_for_each_safe (it, tmp, &b->movers->all) {
        struct mover *m = container_of(it, struct mover, link);
        m->dead = true;
        mover_free(m);
    }
}

void movers_workload(struct brain *b, const struct object *workload)
{
    uint64_t h;

    if (list_empty(&b->movers->all))
        return;
    h = workload_hash(workload->meta->namespace_, workload->meta->name);
    list_for_each_safe (it, tmp, bucket(b, h)) {
        struct mover *m = container_of(it, struct mover, of);
        if (m->workload_hash == h)
            mover_tick(m);
    }
}

static void look(void *arg)
{
    struct brain *b = arg;

    b->movers->posted = false;
    brain_under_way(b, -1);
    list_for_each_safe (it, tmp, &b->movers->all)
        mover_tick(container_of(it, struct mover, link));
}

/* Room, reach or a Target changed: Migrations that wait look again, gathered to once a turn of the
 * loop. */
void movers_look(struct brain *b)
{
    b->movers->room++;
    if (b->movers->posted || list_empty(&b->movers->all) || !b->leads)
        return;
    b->movers->posted = true;
    brain_under_way(b, 1);
    loop_post(b->loop, look, b);
}

/* ---- what the root says ---- */
const struct object *mover_workload(const struct mover *m)
{
    const struct migration *g = object_as(m->o, migration);
    const struct object *w = root_get(m->brain->root, KIND_WORKLOAD, m->ns, g->spec->workload);

    if (w && *g->status->workloadUid && strcmp(g->status->workloadUid, w->meta->uid))
        return NULL;
    return w;
}

const struct object *migration_of(struct brain *b, const struct object *workload)
{
    const struct workload_status *s = object_as(workload, workload)->status;
    const struct object *o = s && *s->migration ? root_get(b->root, KIND_MIGRATION,
                                                           workload->meta->namespace_, s->migration)
                                                : NULL;

    return is_open(o) ? o : NULL;
}

bool mover_replacement_held(struct brain *b, const struct object *workload)
{
    const struct object *o = migration_of(b, workload);
    const struct migration_status *s = o ? object_as(o, migration)->status : NULL;

    return s && move_holds(s->phase) && s->placement;
}

/* Something of this migration is held, and its workload was told to stop or is lost. */
static bool on_its_way(enum move_phase p)
{
    return p >= MP_QUIESCING && p <= MP_FENCING;
}

/* Why the destination cannot be had any more; NULL = it can. */
static const char *destination_lost(const struct mover *m)
{
    const struct placement *p = mover_status(m)->placement;
    const struct site *t = p ? site_find(m->brain, p->target) : NULL;
    const struct target_spec *s = t ? object_as(t->doc, target)->spec : NULL;

    if (!p)
        return NULL;
    if (!s || t->suspect)
        return "DestinationLost";
    if (policy_notice(m->brain->pool, p, NULL))
        return "DestinationGoesAway";
    return s->drain || s->unschedulable || t->doc->meta->deletionTimestamp ? "DestinationCordoned"
                                                                           : NULL;
}

/* ---- the way back ---- */
struct back {
    enum move_phase outcome;
    const char *reason, *message;
};

/* Its workload needs no move any more, whatever phase this is in. */
static bool back_of_workload(const struct object *w, struct back *r)
{
    const struct workload *x = w ? object_as(w, workload) : NULL;

    *r = (struct back){MP_CANCELLED, "WorkloadGone", "the workload is not there any more"};
    if (!w)
        return true;
    *r = (struct back){MP_CANCELLED, "WorkloadEnded", "the workload ended by itself"};
    if (x->status->phase == PHASE_FAILED)
        *r = (struct back){MP_FAILED, x->status->reason, x->status->message};
    if (phase_final(x->status->phase))
        return true;
    *r = (struct back){MP_CANCELLED, "WorkloadDeleted", "the workload is being deleted"};
    if (w->meta->deletionTimestamp)
        return true;
    *r = (struct back){MP_CANCELLED, "WorkloadSuspended", "the workload is suspended"};
    return x->spec->suspend;
}

/* The target that was lost is in reach again, and the workload lives there. */
static bool came_back(const struct mover *m, const struct object *w)
{
    enum phase p = object_as(w, workload)->status->phase;

    return mover_status(m)->phase == MP_FENCING &&
           object_as(m->o, migration)->spec->cause == MOVE_LOST &&
           (p == PHASE_RUNNING || p == PHASE_STARTING || p == PHASE_DISPATCHING);
}

/* On its way: another epoch, a source that is back or cannot be proved stopped, a destination
 * lost. */
static bool back_on_its_way(const struct mover *m, const struct object *w, struct back *r)
{
    const struct migration *g = object_as(m->o, migration);
    const struct workload *x = object_as(w, workload);
    enum phase p = x->status->phase;
    const char *lost = destination_lost(m);
    const struct partition_spec *ps = x->spec->partition;

    *r = (struct back){MP_FAILED, "EpochMoved", "the workload is in another epoch already"};
    if (x->status->epoch != g->status->fromEpoch || p == PHASE_STOPPED ||
        strcmp(x->status->migration, m->name))
        return true;
    *r = (struct back){MP_FAILED, lost, "the destination cannot be used any more"};
    if (lost)
        return true;
    *r = (struct back){MP_CANCELLED, "TargetBack",
                       "the target that was lost is in reach again, and the workload runs there"};
    if (came_back(m, w) && !(ps && ps->keep == KEEP_NEW))
        return true;
    *r = (struct back){MP_FAILED, "SourceLost",
                       "its target fell silent on the way; nothing proves that it stopped, and its "
                       "partition policy waits"};
    return p == PHASE_UNKNOWN && (!ps || ps->mode != PARTITION_REPLACE);
}

static bool unsettled(const struct mover *m, const struct object *w)
{
    const struct workload_status *s = w ? object_as(w, workload)->status : NULL;

    return s && root_recovering(m->brain->root) && s->epochFloor > s->epoch &&
           !PLANTED("move.aborts-unsettled");
}

static bool way_back(struct mover *m, const struct object *w)
{
    const struct migration *g = object_as(m->o, migration);
    enum move_phase p = g->status->phase;
    struct back r;
    bool back;

    if (unsettled(m, w))
        return true;      /* how far it came is looked for: found further on, the log ends it */
    if (p == MP_STARTING) /* the workload's own machine goes on: tick_starting */
        return false;
    back = back_of_workload(w, &r) || (on_its_way(p) && back_on_its_way(m, w, &r));
    if (!back && (g->spec->cancel || m->o->meta->deletionTimestamp)) {
        r = (struct back){MP_CANCELLED, "Cancelled", "it was given up as asked"};
        back = true;
    }
    if (back)
        mover_abort(m, r.outcome, r.reason, r.message);
    return back;
}

/* ---- a destination ---- */
static bool must(enum move_cause c)
{
    return c == MOVE_SPOT || c == MOVE_DRAIN || c == MOVE_SICK || c == MOVE_LOST ||
           c == MOVE_COMPLIANCE;
}

/* A workload that has to leave does not stay for a wish: a user's Migration that finds no
 * destination must not keep work where compliance forbids it. */
static enum move_cause pressing(const struct mover *m, const struct object *w)
{
    const struct brain *b = m->brain;
    enum move_cause told = object_as(m->o, migration)->spec->cause, now = MOVE_ASKED;

    if (!b->frozen)
        now = policy_must_leave(b->pool, w, core_time_ms(b->cfg.core));
    return must(told) ? told : now ? now : MOVE_ASKED;
}

static void choose(struct mover *m, const struct object *w, enum move_cause cause)
{
    const struct migration *g = object_as(m->o, migration);
    const struct workload_status *s = object_as(w, workload)->status;
    struct brain *b = m->brain;
    AUTO_ARENA a = arena_create(0);
    bool named = *g->spec->to != '\0';
    struct place_request rq = {.workload = w,
                               .now_ms = core_time_ms(b->cfg.core),
                               .seed = loop_random_u64(b->loop) >> 12,
                               .only_target = named ? g->spec->to : NULL,
                               .log_index = (int64_t)root_index(b->root)};
    struct move_choice c = {0};
    struct err err;

    if (cause == MOVE_ASKED && !named)
        rq.avoid_target = s->placement->target;
    int r = policy_move(b->pool, &rq, cause, a, &c, &err);
    if (r == 0 && !c.placement && named && must(cause)) {
        rq.only_target = NULL;
        c = (struct move_choice){0};
        r = policy_move(b->pool, &rq, cause, a, &c, &err);
    }
    if (r) {
        mover_wait(m, "DecisionFailed", err.text);
        return;
    }
    /* Without a destination it is queued as any other. */
    if (c.placement || causes_goes_anyway(b, w, cause))
        mover_reserve(m, w, &c);
    else
        mover_wait(m, c.decision && *c.decision->reason ? c.decision->reason : "NothingFits",
                   *c.why ? c.why : "no other place has room for it");
}

static void tick_pending(struct mover *m, const struct object *w)
{
    const struct workload *x = object_as(w, workload);
    enum move_cause cause = object_as(m->o, migration)->spec->cause;
    const struct partition_spec *p = x->spec->partition;
    struct brain *b = m->brain;
    uint64_t now = loop_now_ms(b->loop);

    if (x->status->phase == PHASE_QUEUED || x->status->phase == PHASE_STOPPED) {
        mover_abort(m, MP_CANCELLED, "NotRunning", "it runs nowhere: there is nothing to move");
        return;
    }
    if (*x->status->migration && strcmp(x->status->migration, m->name)) {
        mover_wait(m, "AnotherMove", "another Migration of this workload is under way");
        return;
    }
    if (x->status->phase == PHASE_RESERVED || x->status->phase == PHASE_QUIESCING) {
        mover_wait(m, "NotRunning", "it is about to start or to stop");
        return;
    }
    if (x->status->phase == PHASE_UNKNOWN && (!p || p->mode != PARTITION_REPLACE)) {
        mover_wait(m, "TargetUnreachable",
                   "its target is out of reach: nothing would prove that it stopped");
        return;
    }
    if (b->frozen && must(cause)) {
        mover_wait(m, "Brake", "too many targets fell silent at once: nothing is moved");
        return;
    }
    /* Waits and windows open by time. */
    uint64_t due =
        m->looked_ms + (m->room_seen == b->movers->room ? LOOK_EVERY_MS : PLACE_EVERY_MS);
    if (m->looked_ms && now < due) {
        timer_start(&m->again, due - now);
        return;
    }
    m->room_seen = b->movers->room;
    m->looked_ms = now;
    timer_start(&m->again, LOOK_EVERY_MS);
    choose(m, w, pressing(m, w));
}

/* ---- ticks by phase ---- */
/* A checkpoint is required and there is none: it is not stopped for nothing. */
static bool checkpoint_missing(const struct object *w)
{
    const struct workload *x = object_as(w, workload);

    return x->spec->checkpoint && x->spec->checkpoint->required && !x->status->checkpoint;
}

static bool nothing_to_stage(const struct mover *m, const struct object *w)
{
    const struct run_checkpoint *ck = object_as(w, workload)->status->checkpoint;

    return !mover_status(m)->placement || !ck || !*ck->path;
}

/* The old epoch's end is in the log. What resumes where is known, and what needs no reading on the
 * destination follows in one entry. */
static void settle(struct mover *m, const struct object *w, bool ended)
{
    mover_step(m, MOVE_VERIFY);
    if (!ended || !nothing_to_stage(m, w))
        return;
    mover_step(m, MOVE_STAGE);
    mover_step(m, MOVE_START);
}

static void tick_verifying(struct mover *m, const struct object *w)
{
    if (object_as(w, workload)->status->phase != PHASE_QUEUED)
        return; /* its driver brings its end, and its last checkpoint ahead of it */
    if (checkpoint_missing(w))
        mover_abort(m, MP_FAILED, "CheckpointMissing",
                    "it stopped without a checkpoint, and spec.checkpoint.required is true");
    else
        settle(m, w, true);
}

static void tick_staging(struct mover *m, const struct object *w)
{
    const struct placement *p = mover_status(m)->placement;
    struct site *t = p ? site_find(m->brain, p->target) : NULL;

    if (checkpoint_missing(w)) {
        mover_abort(m, MP_FAILED, "CheckpointMissing",
                    "no checkpoint can be resumed from, and spec.checkpoint.required is true");
        return;
    }
    if (!nothing_to_stage(m, w) && t && t->connector && t->connector->ops->stage) {
        if (!t->reachable)
            return;
        if (site_stages(t)) {
            mover_stage(m, t, w);
            return;
        }
    }
    mover_step(m, MOVE_STAGE);
    if (object_as(w, workload)->status->phase == PHASE_QUEUED)
        mover_step(m, MOVE_START);
}

static void tick_starting(struct mover *m, const struct object *w)
{
    const struct workload_status *s = w ? object_as(w, workload)->status : NULL;
    int64_t to = mover_status(m)->toEpoch;

    if (!s) {
        mover_abort(m, MP_CANCELLED, "WorkloadGone", "the workload is not there any more");
    } else if (s->epoch == to && (s->phase == PHASE_RUNNING || s->phase == PHASE_SUCCEEDED)) {
        mover_step(m, MOVE_COMMIT);
    } else if (s->epoch != to || s->phase == PHASE_QUEUED || s->phase == PHASE_STOPPED ||
               phase_final(s->phase)) {
        const struct run_end *e = s->n_ends ? &s->ends[s->n_ends - 1] : NULL;
        bool here = e && e->epoch == to && *e->reason;
        mover_abort(m, MP_FAILED, here ? e->reason : "DestinationRefused",
                    here && *e->message ? e->message : "it did not come to run at its destination");
    }
}

/* The old epoch's end is proved: the destination is its own now. A lost target that came back after
 * its replacement was held, where that is the copy to keep: it is moved as any other. */
static void tick_fencing(struct mover *m, const struct object *w)
{
    if (object_as(w, workload)->status->phase == PHASE_QUEUED || PLANTED("move.start-unproved"))
        mover_step(m, MOVE_START);
    else if (came_back(m, w))
        mover_quiesce_source(m, w);
}

void mover_tick(struct mover *m)
{
    const struct object *w;
    struct brain *b = m->brain;

    if (m->dead || !b->leads) {
        if (m->dead)
            mover_free(m);
        return;
    }
    if (m->proposing || m->calling || !b->pool)
        return;
    w = mover_workload(m);
    if (way_back(m, w))
        return;
    switch (mover_status(m)->phase) {
    case MP_PENDING:
    case MP_RESERVING:
        tick_pending(m, w);
        break;
    case MP_QUIESCING:
        if (!b->frozen || object_as(m->o, migration)->spec->cause == MOVE_ASKED)
            mover_step(m, MOVE_QUIESCE);
        break;
    case MP_VERIFYING:
        tick_verifying(m, w);
        break;
    case MP_STAGING:
        tick_staging(m, w);
        break;
    case MP_FENCING:
        tick_fencing(m, w);
        break;
    case MP_STARTING:
        tick_starting(m, w);
        break;
    default:
        break;
    }
}

/* The driver has just proposed the end of the old epoch: what follows on it goes into the same
 * entry. Should the end not be taken, these are refused, and nothing is lost. */
void movers_ending(struct brain *b, const struct object *workload, bool with_checkpoint)
{
    const struct object *o = migration_of(b, workload);
    struct mover *m = o ? mover_find(b, o->meta->uid) : NULL;

    if (!m || m->dead || m->proposing || m->calling || !b->leads)
        return;
    m->foreseen = true;
    if (mover_status(m)->phase == MP_VERIFYING &&
        (with_checkpoint || !checkpoint_missing(workload)))
        settle(m, workload, !with_checkpoint);
    else if (mover_status(m)->phase == MP_FENCING)
        mover_step(m, MOVE_START);
    else
        m->foreseen = false;
}

size_t movers_for(const struct brain *b, const char **ret)
{
    size_t n = 0;

    list_for_each (it, &b->movers->all) {
        const struct mover *m = container_of(it, struct mover, link);
        if (!m->dead && *mover_status(m)->for_)
            ret[n++] = mover_status(m)->for_;
    }
    return n;
}
