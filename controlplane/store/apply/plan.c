/* How moves begin: which workload may move where, and plans of many moves at once (a preemption's
 * victims), all or nothing.
 *
 * A workload that policy protects must never become a victim, whatever the plan says: its author
 * may have seen an older state. A workload must never have two Migrations. */
#include "controlplane/store/store_internal.h"
#include "policy/policy.h"

#include <stdio.h>

#define NAMES_MAX 1000 /* moves of one epoch that are still remembered */
#define MOVE_STALE(t, ...) err_set((t)->err, E_STALE, __VA_ARGS__)

/* ---- what is moved ---- */
/* May it be moved at all? A sentence, or NULL. */
const char *move_refused(const struct object *wo)
{
    const struct workload *w = object_as(wo, workload);
    const struct workload_status *s = w->status;

    if (wo->meta->deletionTimestamp)
        return "is being deleted";
    if (phase_final(s->phase))
        return "has ended";
    if (workload_array(w) && !phase_final(s->phase))
        return "is an array: move its indexes (NAME-INDEX)";
    if (!phase_holds(s->phase) || !s->placement)
        return "is not placed anywhere: there is nothing to move";
    if (w->spec->suspend)
        return "is suspended: it stops anyway";
    if (s->intent && s->intent->op == INTENT_STOP)
        return "is being stopped";
    if (s->epochFloor > s->epoch)
        return "has not been found since the state was lost: hanse recover --from-targets";
    return NULL;
}

/* The workload tells of the migration under way, or of none any more. */
void move_tell(struct txn *t, const struct object *wo, const char *migration, bool moved)
{
    struct workload *w = object_edit_as(wo, workload, t->a);

    w->status->migration = migration;
    if (moved)
        w->status->movedAt = t->now;
    (void)txn_put(t, wo->kind, wo, w);
}

/* Its way is kept, each phase with the time at which it came to it. */
void move_enter(struct txn *t, struct migration_status *s, enum move_phase phase)
{
    struct move_phase_at *all = arena_array(t->a, struct move_phase_at, s->n_phases + 1);

    if (s->n_phases)
        memcpy(all, s->phases, s->n_phases * sizeof *all);
    all[s->n_phases].phase = phase;
    all[s->n_phases].at = t->now;
    s->phases = all;
    s->n_phases++;
    s->phase = phase;
    s->phaseSince = t->now;
}

static void owner_add(struct txn *t, struct meta *m, const struct object *wo)
{
    struct owner_ref *all = arena_array(t->a, struct owner_ref, m->n_ownerReferences + 1);
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n_ownerReferences; i++)
        if (strcmp(m->ownerReferences[i].uid, wo->meta->uid) != 0)
            all[n++] = m->ownerReferences[i];
    all[n++] = *workload_owner(t, wo);
    m->ownerReferences = all;
    m->n_ownerReferences = n;
}

int move_create(struct txn *t, struct migration *m)
{
    const char *ns = m->metadata->namespace_, *name = m->spec->workload;
    const struct object *wo = root_get(t->w, KIND_WORKLOAD, ns, name);
    struct migration_status *s = arena_new(t->a, struct migration_status);

    if (!wo)
        return err_field(t->err, E_CONFLICT, "spec.workload",
                         "there is no workload %.200s in namespace %s to move", name, ns);
    const struct workload_status *ws = object_as(wo, workload)->status;
    if (*ws->migration)
        return err_field(t->err, E_CONFLICT, "spec.workload",
                         "workload %.150s is moved already, by migration %.150s: wait for its end, "
                         "or cancel it",
                         name, ws->migration);
    const char *why = move_refused(wo);
    if (why)
        return err_field(t->err, E_CONFLICT, "spec.workload", "workload %.200s %s", name, why);
    if (*m->spec->to && !root_get(t->w, KIND_TARGET, "", m->spec->to))
        return err_field(
            t->err, E_CONFLICT, "spec.to",
            "there is no Target %.200s: see hanse get targets, or leave it out for the "
            "best place",
            m->spec->to);
    if (strcmp(m->spec->to, ws->placement->target) == 0)
        return err_field(t->err, E_CONFLICT, "spec.to", "workload %.150s is on %.150s already",
                         name, m->spec->to);
    m->spec->cause = MOVE_ASKED;
    owner_add(t, m->metadata, wo);
    s->startedAt = t->now;
    move_enter(t, s, MP_PENDING);
    s->workloadUid = arena_strdup(t->a, wo->meta->uid);
    s->fromEpoch = ws->epoch;
    s->from = arena_strdup(t->a, ws->placement->target);
    m->status = s;
    move_tell(t, wo, m->metadata->name, false);
    return 0;
}

/* ---- reserve ---- */
static int destination(struct txn *t, struct move *x, const struct move_begin *b)
{
    struct place at = {.o = x->wo,
                       .w = object_as(x->wo, workload),
                       .decision = b->decision,
                       .held = object_as(x->wo, workload)->status->placement};
    int r;

    if (!b->decision)
        return err_set(t->err, E_INVALID, "a destination without its decision");
    if (*x->m->spec->to && strcmp(x->m->spec->to, b->placement->target) != 0)
        return err_set(t->err, E_PLACE,
                       "the destination is on %.200s, the migration asks for %.200s",
                       b->placement->target, x->m->spec->to);
    at.p = arena_memdup(t->a, b->placement, sizeof *b->placement);
    if ((r = place_admit(t, &at)) < 0)
        return r;
    place_record(t, &at, epoch_following(object_as(x->wo, workload)->status));
    x->s->placement = at.p;
    x->s->to = at.p->target;
    x->s->toEpoch = epoch_following(object_as(x->wo, workload)->status);
    return 0;
}

/* From here on its destination is held. A workload that is out of reach is told nothing. */
int move_reserve(struct txn *t, struct move *x, const struct move_begin *b)
{
    const struct workload_status *ws = object_as(x->wo, workload)->status;
    const char *why = move_refused(x->wo);
    int r;

    if (b->epoch != ws->epoch || strcmp(b->uid, x->wo->meta->uid) != 0)
        return MOVE_STALE(t, "workload %s/%s is in epoch %lld, the move was decided for epoch %lld",
                          b->ns, b->workload, (long long)ws->epoch, (long long)b->epoch);
    if (why)
        return MOVE_STALE(t, "workload %s/%s %s", b->ns, b->workload, why);
    x->s->from = arena_strdup(t->a, ws->placement->target);
    x->s->fromEpoch = ws->epoch;
    x->s->lostGpuSeconds = b->lost_gpu_seconds;
    x->s->cost = b->cost;
    x->s->saving = b->saving;
    x->s->pause = 0;
    x->to = ws->phase == PHASE_UNKNOWN ? MP_FENCING : MP_QUIESCING;
    if (b->placement && (r = destination(t, x, b)) < 0)
        return r;
    return 0;
}

/* ---- victims ---- */
/* What is asked back by a plan. The smallest first, as it was planned: each of them is judged by
 * what its queue still borrows when those ahead of it are gone. */
struct asked_back {
    const char *queue, *class_;
    int64_t gpus;
    bool yes;
};
struct plan {
    const struct migrate_cmd *c;
    const struct root *w;
    struct asked_back *back; /* one a move */
    uint32_t at;             /* the one that is judged */
};

static struct plan plan_of(struct txn *t, struct arena *a, const struct migrate_cmd *c)
{
    struct plan p = {c, t->w, arena_array(a, struct asked_back, c->n + 1), 0};

    for (uint32_t i = 0; i < c->n; i++) {
        const struct object *o =
            root_get(t->w, KIND_WORKLOAD, c->begins[i].ns, c->begins[i].workload);
        const struct placement *held = object_hold(o);

        if (c->begins[i].cause != MOVE_RECLAIM || !held)
            continue;
        p.back[i] = (struct asked_back){arena_strdup(a, object_as(o, workload)->status->queue),
                                        arena_strdup(a, held->class_), held->gpus, true};
    }
    return p;
}

static int64_t plan_held(const char *queue, const char *class_, void *arg)
{
    const struct plan *p = arg;
    const struct asked_back *me = &p->back[p->at];
    int64_t sum = root_queue_held(p->w, queue, class_);

    for (uint32_t i = 0; me->yes && i < p->c->n; i++) {
        const struct asked_back *b = &p->back[i];

        if (b->yes && (b->gpus < me->gpus || (b->gpus == me->gpus && i < p->at)) &&
            strcmp(b->queue, queue) == 0 && (!class_ || !*class_ || strcmp(b->class_, class_) == 0))
            sum -= b->gpus;
    }
    return sum > 0 ? sum : 0;
}

static int check_victim(struct txn *t, const struct object *for_, const struct object *victim,
                        struct plan *p)
{
    size_t n_classes, n_queues;
    const struct object *const *classes = txn_all(t, KIND_PRIORITY_CLASS, &n_classes);
    const struct object *const *queues = txn_all(t, KIND_QUEUE, &n_queues);
    enum reason why = policy_victim_check(for_, victim, t->now, classes, n_classes, queues,
                                          n_queues, plan_held, p);

    if (why != REASON_NONE)
        return err_set(t->err, E_PLACE, "workload %s/%.150s may not be preempted (%s): %s",
                       victim->meta->namespace_, victim->meta->name, reason_text(why),
                       reason_sentence(why));
    return 0;
}

/* The workload for which room is made; it still waits. */
static int preemptor(struct txn *t, const struct migrate_cmd *c, const struct object **ret)
{
    const struct object *o = root_get(t->w, KIND_WORKLOAD, c->for_ns, c->for_name);

    if (!o || strcmp(o->meta->uid, c->for_uid) != 0)
        return MOVE_STALE(t, "workload %s/%s is not the one that room was to be made for",
                          c->for_ns, c->for_name);
    const struct workload *w = object_as(o, workload);
    if (w->status->phase != PHASE_QUEUED || w->status->epoch != c->for_epoch ||
        o->meta->deletionTimestamp || w->spec->suspend || *w->status->migration)
        return MOVE_STALE(t, "workload %s/%s is %s in epoch %lld%s: it waits for no room",
                          c->for_ns, c->for_name, phase_text(w->status->phase),
                          (long long)w->status->epoch, w->spec->suspend ? ", suspended" : "");
    *ret = o;
    return 0;
}

/* Keeps the room for it; without a placement, keeps none any longer. */
static int nominate(struct txn *t, const struct migrate_cmd *c, const struct object *o)
{
    struct workload *w = object_edit_as(o, workload, t->a);
    struct place at = {.o = o, .w = object_as(o, workload)};
    int r;

    if (c->nominated) {
        at.p = arena_memdup(t->a, c->nominated, sizeof *at.p);
        if ((r = place_shape(t, &at)) < 0)
            return r;
        at.p->since = t->now;
        at.p->gpus = at.gpus;
    }
    w->status->nominated = at.p;
    if (body_equal(&schema_workload, w, o->body))
        return 0;
    (void)txn_put(t, o->kind, o, w);
    return 0;
}

/* ---- a plan ---- */
static const char *move_name(struct txn *t, const struct object *wo, int64_t epoch)
{
    for (int n = 1; n <= NAMES_MAX; n++) {
        const char *suffix = n == 1 ? arena_printf(t->a, "-m%lld", (long long)epoch)
                                    : arena_printf(t->a, "-m%lld-%d", (long long)epoch, n);
        const char *name = workload_derived_name(t, wo->meta->name, suffix);

        if (!root_get(t->w, KIND_MIGRATION, wo->meta->namespace_, name))
            return name;
    }
    return NULL;
}

static int begin_one(struct txn *t, const struct migrate_cmd *c, const struct move_begin *b,
                     const struct object *for_, struct plan *p)
{
    struct move x = {.c = c, .wo = root_get(t->w, KIND_WORKLOAD, b->ns, b->workload)};
    struct migration_status *s = arena_new(t->a, struct migration_status);
    int r;

    if (!x.wo || strcmp(x.wo->meta->uid, b->uid) != 0)
        return MOVE_STALE(t, "workload %s/%s is not the one that was to be moved", b->ns,
                          b->workload);
    const struct workload_status *ws = object_as(x.wo, workload)->status;
    if (*ws->migration)
        return MOVE_STALE(t, "workload %s/%s is moved already, by migration %.200s", b->ns,
                          b->workload, ws->migration);
    if (!*move_cause_text(b->cause) ||
        (for_ != NULL) != (b->cause == MOVE_PREEMPTION || b->cause == MOVE_RECLAIM))
        return err_set(t->err, E_INVALID, "a move of %s/%s for cause %d %s", b->ns, b->workload,
                       (int)b->cause, for_ ? "makes no room" : "for nobody");
    const char *name = move_name(t, x.wo, ws->epoch);
    if (!name)
        return err_set(t->err, E_LIMIT, "workload %s/%s: %d moves of one epoch", b->ns, b->workload,
                       NAMES_MAX);
    x.m = arena_new(t->a, struct migration);
    x.m->spec = arena_new(t->a, struct migration_spec);
    *x.m->spec = (struct migration_spec){.workload = b->workload, .cause = b->cause, .to = ""};
    x.m->status = x.s = s;
    s->workloadUid = x.wo->meta->uid;
    s->startedAt = s->phaseSince = t->now;
    s->reason = c->reason;
    s->message = c->message;
    if (for_) {
        s->for_ = arena_printf(t->a, "%s/%s", c->for_ns, c->for_name);
        if ((r = check_victim(t, for_, x.wo, p)) < 0)
            return r;
    }
    struct object *kept = object_ref(x.wo);
    if ((r = move_reserve(t, &x, b)) == 0) {
        move_enter(t, s, x.to);
        x.m->metadata = txn_meta(t, kept->meta->namespace_, name);
        x.m->metadata->ownerReferences = workload_owner(t, kept);
        x.m->metadata->n_ownerReferences = 1;
        (void)txn_put(t, kind_by_id(KIND_MIGRATION), NULL, x.m);
        move_tell(t, kept, name, false);
    }
    (void)object_unref(kept);
    return r;
}

int move_begin_all(struct txn *t, const struct migrate_cmd *c)
{
    const struct object *for_ = NULL;
    int r = 0;

    if (!*c->for_uid && (c->n == 0 || c->nominated))
        return err_set(t->err, E_INVALID, "a plan that moves nothing, or makes room for nobody");
    if (*c->for_uid && (r = preemptor(t, c, &for_)) < 0)
        return r;
    struct object *kept = for_ ? object_ref(for_) : NULL;
    AUTO_ARENA a = arena_create(0);
    struct plan p = plan_of(t, a, c);
    for (; p.at < c->n && r == 0 && !t->failed.code; p.at++) {
        arena_reset(t->a);
        r = begin_one(t, c, &c->begins[p.at], kept, &p);
    }
    if (r == 0 && kept)
        r = nominate(t, c, kept);
    (void)object_unref(kept);
    return r;
}
