/* Decides whether a run should move, and where to. It holds its place while the destination is
 * looked for (a move holds both), but its own quota and its policy's limits count once. A move for
 * gain is one that the policy names, of work that has a verified checkpoint, has stayed for a while
 * and has not moved lately. */
#include "policy/move/move_internal.h"

#include "api/base/failpoint.h"

#include <stdio.h>
#include <string.h>

/* What a policy that names causes, but no figures, gets. */
#define MIN_SAVING 0.10
#define AT_MOST_EVERY_MS (60L * 60 * 1000)

#define PLACE_OF(type, c, ...) PLACE_##c,
enum { SCHEMA_migrate_policy(PLACE_OF) };
#undef PLACE_OF
#define GIVEN(s, c) ((s)->c != 0 || ((s)->has >> PLACE_##c & 1))

double move_min_saving(const struct migrate_policy *s)
{
    return GIVEN(s, minSaving) ? s->minSaving : MIN_SAVING;
}

static int stays(struct move_choice *ret, const char *why)
{
    (void)snprintf(ret->why, sizeof(ret->why), "stays: %s", why);
    return 0;
}

/* ---- what it would leave ---- */
static int64_t runs_since(const struct workload_status *s)
{
    int64_t since = s->placement->since;

    return s->phase == PHASE_RUNNING && s->phaseSince > since ? s->phaseSince : since;
}

static double hours_lost_now(const struct place *pl)
{
    const struct workload_status *s = pl->status;
    int64_t since = runs_since(s);

    if (s->checkpoint && s->checkpoint->epoch == s->epoch &&
        checkpoint_saved_at(s->checkpoint) - s->checkpoint->writeTime > since)
        since = checkpoint_saved_at(s->checkpoint) - s->checkpoint->writeTime;
    return pl->rq->now_ms > since ? (double)(pl->rq->now_ms - since) / 3600000 : 0;
}

static void moving_begin(struct moving *m, struct place *pl)
{
    const struct table *t = &pl->p->t;
    uint32_t target, class_;
    double done;

    *m = (struct moving){.pl = pl, .at = pl->status->placement, .step = NONE, .speed = 1};
    m->here = (struct row){.target = NONE, .group = NONE};
    m->gpus = (double)m->at->gpus / 1000;
    m->lost_h = hours_lost_now(pl);
    target = strmap_get(&t->target_by_name, m->at->target);
    class_ = strmap_get(&t->class_by_name, m->at->class_);
    if (target != NONE && t->targets[target].obj) {
        m->here.target = target;
        m->step = order_step_of(pl->order, t->targets[target].obj, m->at->capacity);
        for (uint32_t g = t->targets[target].g0;
             g < t->targets[target].g0 + t->targets[target].n_groups; g++) {
            if (t->groups[g].class_ == class_ && t->groups[g].capacity == m->at->capacity)
                m->here.group = g;
        }
    }
    if (class_ != NONE)
        m->speed = class_speed(t, class_);
    if (m->here.group != NONE && pl->pending == REASON_NONE)
        price_row(pl, &m->here);
    done = pl->done_h + m->lost_h * m->speed;
    m->left_guessed = pl->duration_h <= 0;
    m->left_h = m->left_guessed ? done : pl->duration_h - done;
    m->left_h = m->left_h > 0 ? m->left_h : 0;
}

static void take(struct moving *m, struct row *r, struct move_choice *ret)
{
    m->pl->chosen = r;
    decision_record(m->pl, &ret->decision, &ret->placement);
}

/* ---- it has to ---- */
static bool leaves_target(enum move_cause cause)
{
    return cause == MOVE_DRAIN || cause == MOVE_COMPLIANCE || cause == MOVE_LOST ||
           cause == MOVE_ASKED;
}

/* A notice is about its machines: they count as cordoned where the pool does not say which. */
static struct pool *without_its_nodes(const struct pool *p, const struct placement *at,
                                      struct arena *a)
{
    struct pool *f = pool_fork(p);

    for (uint32_t i = 0; i < at->n_assignments; i++) {
        const struct object *o = docs_get(&p->docs[KIND_NODE], "", at->assignments[i].node);
        struct object *cordoned = NULL;
        struct node *n;

        if (!o || object_as(o, node)->spec->unschedulable)
            continue;
        n = object_edit_as(o, node, a);
        n->spec->unschedulable = true;
        if (object_make_within(o->kind, n, OBJECT_MADE_MAX_BYTES, &cordoned, NULL) == 0)
            pool_put(f, cordoned);
        else
            pool_remove(f, KIND_NODE, "", o->meta->name);
        (void)object_unref(cordoned);
    }
    return f;
}

static void must_why(const struct pool *p, const struct object *w, enum move_cause must, char *why,
                     size_t size)
{
    const char *target = object_as(w, workload)->status->placement->target;

    if (must_leave(p, w, why, size) == must)
        return;
    switch (must) {
    case MOVE_DRAIN:
        (void)snprintf(why, size, "target %s is drained", target);
        return;
    case MOVE_SICK:
        (void)snprintf(why, size, "a node of it on %s is sick", target);
        return;
    case MOVE_SPOT:
        (void)snprintf(why, size, "target %s takes its machines back", target);
        return;
    case MOVE_COMPLIANCE:
        (void)snprintf(why, size, "a compliance policy forbids target %s", target);
        return;
    case MOVE_LOST:
        if (strcmp(object_as(w, workload)->status->reason, RUN_NOT_TOLD) == 0)
            (void)snprintf(why, size, "on target %s nobody can tell what became of it", target);
        else
            (void)snprintf(why, size, "target %s is out of reach", target);
        return;
    case MOVE_ASKED:
        (void)snprintf(why, size, "asked for");
        return;
    default:
        (void)snprintf(why, size, "%s", move_cause_text(must));
    }
}

/* A machine of a target that has several was lost: its other nodes will do, as long as it is in
 * reach, which filters look at. One agent alone stands for all nodes of its target. */
static bool lost_a_part(const struct pool *p, const struct object *workload, enum move_cause must)
{
    const struct object *o = docs_get(&p->docs[KIND_TARGET], "",
                                      object_as(workload, workload)->status->placement->target);
    const struct target_spec *s = o ? object_as(o, target)->spec : NULL;

    return must == MOVE_LOST && s && (s->type != TARGET_AGENT || s->n_agents > 0);
}

static int move_must(const struct pool *p, const struct place_request *rq, enum move_cause must,
                     struct arena *a, struct move_choice *ret, struct err *err)
{
    struct place_request q = *rq;
    struct place *pl = arena_new(a, struct place);
    struct pool *fork = NULL;
    struct moving m;
    size_t n;
    int r;

    bool part = lost_a_part(p, rq->workload, must);

    q.workload = rq->workload;
    if (!q.avoid_target && !q.only_target && leaves_target(must) && !part)
        q.avoid_target = object_as(rq->workload, workload)->status->placement->target;
    if (part || (must == MOVE_SPOT &&
                 !policy_notice(p, object_as(rq->workload, workload)->status->placement, NULL)))
        fork = without_its_nodes(p, object_as(rq->workload, workload)->status->placement, a);
    q.at_once = must != MOVE_ASKED;
    ret->move = true;
    ret->cause = must;
    must_why(p, rq->workload, must, ret->why, sizeof(ret->why));
    r = place_look(pl, fork ? fork : p, &q, a, err);
    if (r == 0) {
        moving_begin(&m, pl);
        if (pl->chosen)
            move_figures(&m, pl->chosen, ret);
        if (pl->chosen && pl->chosen->early)
            pl->chosen_because = "it has to leave: what its policy's order waits for does not hold";
        ret->lost_gpu_s = m.gpus * m.lost_h * 3600;
        take(&m, pl->chosen, ret);
        n = strlen(ret->why);
        if (!ret->placement) {
            (void)snprintf(ret->why + n, sizeof(ret->why) - n, "; no room elsewhere: %s",
                           ret->decision->message);
            ret->decision = NULL;
        }
    }
    fork = pool_destroy(fork);
    return r;
}

/* ---- it may ---- */
static const struct migrate_policy *migrate_of(const struct pool *p, const struct object *w)
{
    const struct docs *d = &p->docs[KIND_PLACEMENT_POLICY];
    const struct object *policy = policy_winner(w, d->v, d->n, NULL, NULL);

    return policy ? object_as(policy, placement_policy)->spec->migrate : NULL;
}

static bool for_gain(enum move_cause c)
{
    return c == MOVE_REPATRIATE || c == MOVE_DATA || c == MOVE_CHEAPER;
}

/* NULL, or why it does not even look. */
static const char *rests(const struct workload_status *s, const struct migrate_policy *m,
                         int64_t now_ms)
{
    int64_t stay = MOVE_MIN_STAY_MS, every = AT_MOST_EVERY_MS;
    bool any = false;

    for (uint32_t i = 0; m && i < m->n_when; i++)
        any |= for_gain(m->when[i]);
    if (!any)
        return "its policy names no cause to move for gain";
    if (s->phase != PHASE_RUNNING)
        return "it does not run";
    if (s->migration[0])
        return "it moves already";
    if (!s->checkpoint)
        return "it has no verified checkpoint yet";
    if (GIVEN(m, minStay))
        stay = m->minStay;
    if (GIVEN(m, atMostEvery))
        every = m->atMostEvery;
    if (PLANTED("policy.restless"))
        return NULL;
    if (now_ms - runs_since(s) < stay)
        return "minStay is not over";
    if (s->movedAt && now_ms - s->movedAt < every)
        return "it moved less than atMostEvery ago";
    return NULL;
}

int policy_move(const struct pool *p, const struct place_request *rq, enum move_cause must,
                struct arena *a, struct move_choice *ret, struct err *err)
{
    const struct workload_status *s = object_as(rq->workload, workload)->status;
    const struct migrate_policy *policy;
    struct place *pl;
    struct moving m;
    const char *rest;
    int r;

    *ret = (struct move_choice){0};
    if (!s || !s->placement)
        return stays(ret, "it is not placed");
    if (must) { /* it runs, and goes ahead of who waits */
        unsigned kept = pool_kept_lift(pool_settle(p));

        r = move_must(p, rq, must, a, ret, err);
        pool_kept_lay(pool_settle(p), kept);
        return r;
    }
    policy = migrate_of(p, rq->workload);
    if ((rest = rests(s, policy, rq->now_ms)))
        return stays(ret, rest);
    pl = arena_new(a, struct place);
    r = place_look(pl, p, rq, a, err);
    if (r < 0)
        return r;
    moving_begin(&m, pl);
    for (uint32_t i = 0; i < policy->n_when; i++) {
        struct row *to = move_gain(&m, policy->when[i], ret);

        if (!to)
            continue;
        ret->move = true;
        ret->cause = policy->when[i];
        take(&m, to, ret);
        return 0;
    }
    return stays(ret, "nothing better has room");
}
