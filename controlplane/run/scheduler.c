/* The scheduler: a pool that follows the root, and cycles over what waits. It decides and proposes;
 * apply checks again and may refuse (the state moved on), then the next cycle looks anew. One
 * cycle's answers are awaited before the next, so that a pool never holds two guesses for one
 * workload. */
#include "controlplane/run/brain_internal.h"

#include "api/base/failpoint.h"
#include "api/base/log.h"
#include "controlplane/store/ledger/ledger.h"

#include <stdio.h>
#include <string.h>

#define CYCLE_MAX_PLACED 256
#define PENDING_MAX 100000
#define PENDING_TOLD_EVERY_MS 5000
#define CYCLE_POSITIONS 64 /* who is told in one cycle of nothing but a new position */
#define CYCLE_FIRST 16     /* of them the first in the queue; the others by turns */
#define CYCLE_HINTS 4      /* workloads whose hints are looked for in one cycle */
#define HINTS_MAX 6
#define HINT_WITHIN_MS 60000 /* of its decision: who has none by then, has none */

static void cycle(void *arg);

static int zone(void *arg, const char *name, int64_t utc_ms, int32_t *ret_s)
{
    struct brain *b = arg;
    int s = 0;

    if (!b->cfg.zone_offset || !b->cfg.zone_offset(name, utc_ms, &s))
        return E_NOTFOUND;
    *ret_s = s;
    return 0;
}

/* ---- the pool follows the root
 * ------------------------------------------------------------------------------------- */
/* The destination of a Migration under way, beside what its workload holds. */
static void migration_hold(struct brain *b, const struct object *o)
{
    const struct migration *g = object_as(o, migration);
    const struct object *w =
        root_get(b->root, KIND_WORKLOAD, o->meta->namespace_, g->spec->workload);

    if (w)
        begin_drop(b, w->meta->uid);
    if (w && g->status && move_holds(g->status->phase) && g->status->placement &&
        !PLANTED("move.destination-unheld"))
        pool_hold_as(b->pool, o->meta->uid, w, g->status->placement);
    else
        pool_drop(b->pool, o->meta->uid);
}

static void moving_hold(struct brain *b, const char *ns, const char *migration)
{
    const struct object *o = root_get(b->root, KIND_MIGRATION, ns, migration);

    if (o)
        migration_hold(b, o);
}

static void workload_hold(struct brain *b, const struct object *o)
{
    const struct workload_status *s = object_as(o, workload)->status;

    if (s && s->placement && phase_holds(s->phase))
        pool_hold(b->pool, o);
    else
        pool_drop(b->pool, o->meta->uid);
    if (s && *s->migration && !phase_holds(s->phase)) /* its destination counts for its queue now */
        moving_hold(b, o->meta->namespace_, s->migration);
    preempt_nominee(b, o);
}

/* A node on which something runs that the state cannot answer for takes nothing new: what its
 * devices are used for is not known. */
void scheduler_node(struct brain *b, const struct object *o)
{
    AUTO_ARENA a = arena_create(0);

    if (!b->pool)
        return;
    if (!orphan_on_node(b, object_as(o, node)->spec->target, o->meta->name)) {
        pool_put(b->pool, o);
        scheduler_want(b);
        return;
    }
    struct node *n = object_edit_as(o, node, a);
    n->spec->unschedulable = true;
    struct object *closed = object_make(o->kind, n);
    pool_put(b->pool, closed);
    (void)object_unref(closed);
}

static bool pool_take(const struct object *o, void *arg)
{
    struct brain *b = arg;

    if (o->kind->id == KIND_WORKLOAD)
        workload_hold(b, o);
    else if (o->kind->id == KIND_MIGRATION)
        migration_hold(b, o);
    else if (o->kind->id == KIND_NODE)
        scheduler_node(b, o);
    else
        pool_put(b->pool, o);
    return true;
}

void scheduler_reset(struct brain *b)
{
    static const enum kind_id kinds[] = {
        KIND_GPU_CLASS, KIND_PRICE_SHEET,    KIND_TARGET,           KIND_NODE,
        KIND_QUEUE,     KIND_PRIORITY_CLASS, KIND_PLACEMENT_POLICY, KIND_COMPLIANCE_POLICY,
        KIND_DATASET,   KIND_WORKLOAD,       KIND_MIGRATION};

    b->pool = pool_destroy(b->pool);
    preempt_reset(b);
    b->pool = pool_create();
    pool_set_zone_resolver(b->pool, zone, b);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        root_scan(b->root, kinds[i], NULL, NULL, NULL, pool_take, b);
    list_for_each (it, &b->sites) {
        struct site *t = container_of(it, struct site, link);
        pool_target_reachable(b->pool, t->name,
                              t->reachable && t->listed ? REACH_YES : REACH_NO);
    }
    scheduler_want(b);
}

static bool matters(enum kind_id kind)
{
    switch (kind) {
    case KIND_GPU_CLASS:
    case KIND_PRICE_SHEET:
    case KIND_TARGET:
    case KIND_NODE:
    case KIND_QUEUE:
    case KIND_PRIORITY_CLASS:
    case KIND_PLACEMENT_POLICY:
    case KIND_COMPLIANCE_POLICY:
    case KIND_DATASET:
        return true;
    default:
        return false;
    }
}

static bool spec_changed(const struct object *before, const struct object *after)
{
    return !before || !after || before->meta->generation != after->meta->generation ||
           before->meta->deletionTimestamp != after->meta->deletionTimestamp;
}

/* It waits for the scheduler. Who is on its way from one place to another waits for its mover. */
/* Stopped by its partition policy, and its owner holds it: queued, so that letting go starts it. */
static bool stopped_held(const struct object *o)
{
    const struct workload *w = object_as(o, workload);

    return w->status && w->status->phase == PHASE_STOPPED && w->spec->suspend &&
           !o->meta->deletionTimestamp;
}

static bool queued(const struct object *o)
{
    const struct workload *w = object_as(o, workload);

    return w->status && w->status->phase == PHASE_QUEUED && !w->spec->suspend &&
           !o->meta->deletionTimestamp && !*w->status->migration;
}

void scheduler_change(struct brain *b, enum kind_id kind, const struct object *before,
                      const struct object *after)
{
    if (!b->pool)
        return;
    if (kind == KIND_WORKLOAD) {
        if (after)
            workload_hold(b, after);
        else
            pool_drop(b->pool, before->meta->uid);
        if (!after && object_as(before, workload)->status &&
            object_as(before, workload)->status->nominated)
            pool_nominate(b->pool, before, NULL);
        const struct workload_status *was = before ? object_as(before, workload)->status : NULL;
        bool freed = was && phase_holds(was->phase) &&
                     (!after || !phase_holds(object_as(after, workload)->status->phase));
        if (freed || (after && stopped_held(after)) ||
            (after && queued(after) && (!before || !queued(before) || spec_changed(before, after))))
            scheduler_want(b);
        if (freed)
            movers_look(b);
    } else if (kind == KIND_MIGRATION) {
        if (after)
            migration_hold(b, after);
        else
            pool_drop(b->pool, before->meta->uid);
        const struct migration_status *was = before ? object_as(before, migration)->status : NULL;
        const struct migration_status *is = after ? object_as(after, migration)->status : NULL;
        if (was && move_holds(was->phase) && (!is || !move_holds(is->phase)))
            scheduler_want(b); /* its destination may be free */
    } else if (matters(kind)) {
        if (after && kind == KIND_NODE)
            scheduler_node(b, after);
        else if (after)
            pool_put(b->pool, after);
        else
            pool_remove(b->pool, kind, before->meta->namespace_, before->meta->name);
        /* A Target's or Queue's own status says nothing new about room. */
        if (spec_changed(before, after) || kind == KIND_NODE) {
            scheduler_want(b);
            movers_look(b);
        }
        causes_change(b, kind, before, after);
    }
}

void scheduler_reach(struct brain *b, const char *target, bool reachable)
{
    if (b->pool) {
        pool_target_reachable(b->pool, target, reachable ? REACH_YES : REACH_NO);
        scheduler_want(b);
        movers_look(b);
    }
}

void scheduler_want(struct brain *b)
{
    b->cycle_wanted = true;
    if (b->leads && !b->closing && !b->cycle_posted && b->cycle_in_flight == 0) {
        b->cycle_posted = true;
        brain_under_way(b, 1);
        loop_post(b->loop, cycle, b);
    }
}

/* ---- a cycle
 * ----------------------------------------------------------------------------------------------------------
 */
struct pending {
    struct brain *brain;
    struct cycle_item *v;
    size_t n, cap;
    bool by_time;        /* something waits for time to pass */
    int64_t deadline_ms; /* the first of those that wait; 0 = none */
};
struct placing {
    struct brain *brain;
    char uid[64];
    bool placed;
};
static void place_answered(void *arg, const struct result *r, const struct err *err);

/* A step of the machine of a workload that holds nothing. */
static void run_propose(struct brain *b, const struct object *o, enum run_step step,
                        const char *reason, const char *message)
{
    const struct workload_status *s = object_as(o, workload)->status;
    union command c = {.run = {.head = {.type = CMD_RUN, .user = "hanse:scheduler"},
                               .step = step,
                               .epoch = s->epoch,
                               .try_ = s->intent ? s->intent->try_ : 0}};
    struct placing *pl = mem_new(struct placing);

    brain_request_id(b, c.run.head.request_id);
    (void)snprintf(c.run.ns, sizeof c.run.ns, "%s", o->meta->namespace_);
    (void)snprintf(c.run.name, sizeof c.run.name, "%s", o->meta->name);
    (void)snprintf(c.run.uid, sizeof c.run.uid, "%s", o->meta->uid);
    (void)snprintf(c.run.reason, sizeof c.run.reason, "%s", reason);
    (void)snprintf(c.run.message, sizeof c.run.message, "%s", message);
    pl->brain = b;
    (void)snprintf(pl->uid, sizeof pl->uid, "%s", o->meta->uid);
    b->cycle_in_flight++;
    brain_propose(b, &c, place_answered, pl);
}

static bool pending_add(const struct object *o, void *arg)
{
    struct pending *p = arg;

    if (stopped_held(o))
        run_propose(p->brain, o, STEP_REQUEUE, "Suspended", "queued again; held by spec.suspend");
    if (!queued(o))
        return true;
    if (p->n == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 64;
        p->v = mem_realloc(p->v, p->cap * sizeof *p->v);
    }
    p->v[p->n++] = (struct cycle_item){.workload = object_ref(o)};
    return p->n < PENDING_MAX;
}

static void place_answered(void *arg, const struct result *r, const struct err *err)
{
    struct placing *p = arg;
    struct brain *b = p->brain;
    bool refused = err || r->code;

    b->cycle_in_flight--;
    if (p->placed && refused) {
        b->refused++;
        if (b->pool)
            pool_drop(b->pool, p->uid);
        if (!err && r->code != E_PLACE && r->code != E_STALE && r->code != E_CONFLICT)
            log_event(LOG_WARN, "place.refused",
                      LOG_FIELDS({"uid", log_str(p->uid)}, {"why", log_str(r->text)}));
    }
    if (p->placed && !refused)
        b->placed++;
    mem_free(p);
    if (b->cycle_in_flight == 0 && b->cycle_wanted && b->leads) {
        /* A refusal means that the root has moved: it is on its way to us; a pause keeps two views
         * from spinning. */
        timer_start(&b->cycle_timer, refused ? 20 : 0);
    }
}

/* What only changed its place in the queue. Whenever somebody at the front starts, all behind move
 * up: told at once, a queue of n would cost n commands for each start. */
struct positions {
    size_t n, told, due;
    bool put_off;
};
static bool position_news(struct positions *p, const struct cycle_item *it)
{
    size_t at = (size_t)it->position;

    if (p->told < CYCLE_POSITIONS &&
        (at <= CYCLE_FIRST || (at + p->n - p->due) % p->n < CYCLE_POSITIONS - CYCLE_FIRST)) {
        p->told++;
        return true;
    }
    p->put_off = true; /* there will be a next cycle */
    return false;
}

/* Is there anything new to tell about a workload that goes on waiting? Its figures (seconds left,
 * free GPUs) may change all the time: told at most every few seconds. */
static bool pending_news(const struct cycle_item *it, int64_t now_ms, struct positions *p)
{
    const struct workload_status *s = object_as(it->workload, workload)->status;
    const struct decision_spec *d = it->decision;

    if (s->nominated) /* that room is made for it has been told, and is what it waits for */
        return false;
    if (strcmp(s->reason, d->reason))
        return true;
    if (s->queuePosition != it->position && (!s->queuePosition || position_news(p, it)))
        return true;
    int64_t told = 0;
    for (uint32_t i = 0; i < s->n_conditions; i++)
        if (s->conditions[i].lastTransitionTime > told)
            told = s->conditions[i].lastTransitionTime;
    return strcmp(s->message, d->message) != 0 && now_ms - told > PENDING_TOLD_EVERY_MS &&
           now_ms % PENDING_TOLD_EVERY_MS < 600;
}

/* ---- hints: what would admit those that wait
 * ----------------------------------------------------------------------------------------------------
 */
static bool hints_find(struct brain *b, const struct cycle_item *it, int64_t now_ms,
                       struct arena *a)
{
    struct place_request rq = {
        .workload = it->workload, .now_ms = now_ms, .queue_position = it->position};
    const char **hints;
    uint32_t n;
    struct err err;

    if (policy_start_estimate(b->pool, &rq, a, it->decision, &err) ||
        policy_hints(b->pool, &rq, it->decision, HINTS_MAX, a, &hints, &n, &err)) {
        log_err(LOG_WARN, "scheduler.hints", &err);
        return false;
    }
    policy_decision_hint(it->decision, hints, n);
    return n > 0;
}

/* Many may begin to wait in one cycle: the others get theirs in those that follow. */
static bool hints_due(const struct brain *b, const struct cycle_item *it, int64_t now_ms)
{
    const struct meta *m = it->workload->meta;
    char name[300];
    const struct object *o;

    (void)snprintf(name, sizeof name, "%s-pending", m->name);
    o = root_get(b->root, KIND_DECISION, m->namespace_, name);
    return o && !object_as(it->workload, workload)->status->nominated &&
           !object_as(o, decision)->spec->n_hints &&
           now_ms - object_as(o, decision)->spec->at < HINT_WITHIN_MS;
}

static bool waits_for_time(const struct decision_spec *d)
{
    static const enum reason timed[] = {REASON_SPILL_WAIT, REASON_WINDOW, REASON_PRICE_UNKNOWN};

    for (size_t i = 0; i < sizeof timed / sizeof *timed; i++) {
        if (!strcmp(d->reason, reason_text(timed[i])))
            return true;
        for (uint32_t c = 0; c < d->n_candidates; c++)
            if (!strcmp(d->candidates[c].reason, reason_text(timed[i])))
                return true;
    }
    return false;
}

void scheduler_tell(struct brain *b, const struct cycle_item *it)
{
    const struct object *o = it->workload;
    const struct workload *w = object_as(o, workload);
    union command c = {.place = {.head = {.type = CMD_PLACE, .user = "hanse:scheduler"}}};
    struct place_cmd *p = &c.place;
    struct placing *pl = mem_new(struct placing);

    brain_request_id(b, p->head.request_id);
    (void)snprintf(p->ns, sizeof p->ns, "%s", o->meta->namespace_);
    (void)snprintf(p->name, sizeof p->name, "%s", o->meta->name);
    (void)snprintf(p->uid, sizeof p->uid, "%s", o->meta->uid);
    p->epoch = w->status->epoch;
    p->rv_read = root_rv(b->root);
    p->decision = it->decision;
    p->decision->queuePosition = it->position;
    p->placement = it->placement;
    (void)snprintf(p->queue, sizeof p->queue, "%s", it->decision->queue ? it->decision->queue : "");
    pl->brain = b;
    pl->placed = it->placement != NULL;
    (void)snprintf(pl->uid, sizeof pl->uid, "%s", o->meta->uid);
    b->cycle_in_flight++;
    brain_propose(b, &c, place_answered, pl);
}

/* Takes out those whose deadline has passed, and notes the next one. */
static void pending_expire(struct brain *b, struct pending *p)
{
    int64_t now = loop_wall_ms(b->loop);
    size_t kept = 0;

    for (size_t i = 0; i < p->n; i++) {
        const struct object *o = p->v[i].workload;
        int64_t deadline = object_as(o, workload)->spec->deadline;
        if (deadline && deadline < now) {
            run_propose(b, o, STEP_STOP, "DeadlineExceeded", "its deadline passed while it waited");
            (void)object_unref((struct object *)(uintptr_t)o);
            continue;
        }
        if (deadline && (!p->deadline_ms || deadline < p->deadline_ms))
            p->deadline_ms = deadline;
        p->v[kept++] = p->v[i];
    }
    p->n = kept;
}

struct used {
    struct queue_use *v;
    size_t n, cap;
    struct arena *a;
};

static void used_add(const char *queue, double gpu_hours, void *arg)
{
    struct used *u = arg;

    if (u->n == u->cap) {
        struct queue_use *more = arena_array(u->a, struct queue_use, u->cap = 2 * u->cap + 256);
        if (u->n)
            memcpy(more, u->v, u->n * sizeof *more);
        u->v = more;
    }
    u->v[u->n++] = (struct queue_use){arena_strdup(u->a, queue), gpu_hours};
}

/* What queues have used up to now, from the root that the cycle works on: the sums are kept by the
 * ledger, so this costs a few cells a queue. */
static void used_tell(struct brain *b, int64_t now, struct arena *a)
{
    struct used u = {.a = a};

    ledger_use(b->root, now, used_add, &u);
    pool_set_use(b->pool, u.v, u.n);
}

static void cycle_run(struct brain *b, struct pending *p)
{
    AUTO_ARENA a = arena_create(1u << 30);
    struct err err;
    int64_t now = loop_wall_ms(b->loop);

    b->cycles++;
    used_tell(b, now, a);
    int rv = policy_cycle(b->pool, p->v, p->n, now, loop_random_u64(b->loop) >> 12,
                          (int64_t)root_index(b->root), root_revision(b->root), CYCLE_MAX_PLACED, a,
                          &err);
    if (rv) {
        log_err(LOG_ERROR, "scheduler.cycle", &err);
        scheduler_reset(b);
        return;
    }
    size_t placed = 0, hinted = 0, due = (size_t)(b->cycles * CYCLE_HINTS % p->n);
    struct positions positions = {
        .n = p->n, .due = (size_t)(b->cycles * (CYCLE_POSITIONS - CYCLE_FIRST) % p->n)};
    for (size_t i = 0; i < p->n; i++) {
        const struct cycle_item *it = &p->v[i];
        if (!it->decision)
            continue;
        b->decided++;
        placed += it->placement != NULL;
        p->by_time |= !it->placement && waits_for_time(it->decision);
        bool tell = it->placement || pending_news(it, now, &positions);
        if (!it->placement && hinted < CYCLE_HINTS && (tell || i >= due) &&
            (tell || hints_due(b, it, now))) {
            hinted++;
            tell |= hints_find(b, it, now, a);
        }
        if (tell)
            scheduler_tell(b, it);
    }
    p->by_time |= positions.put_off;
    if (placed >= CYCLE_MAX_PLACED)
        b->cycle_wanted = true;
    else
        preempt_cycle(b, p->v, p->n);
}

static void cycle(void *arg)
{
    struct brain *b = arg;
    struct pending p = {.brain = b};

    b->cycle_posted = false;
    brain_under_way(b, -1);
    if (!b->leads || b->closing || !b->pool || b->cycle_in_flight)
        return;
    b->cycle_wanted = false;
    root_scan(b->root, KIND_WORKLOAD, NULL, NULL, NULL, pending_add, &p);
    pending_expire(b, &p);
    if (p.n)
        cycle_run(b, &p);
    for (size_t i = 0; i < p.n; i++)
        (void)object_unref((struct object *)(uintptr_t)p.v[i].workload);
    mem_free(p.v);
    /* Waits, windows and prices open by time: looked at again while something waits for them. */
    if (p.by_time || (b->cycle_wanted && b->cycle_in_flight == 0))
        timer_start(&b->cycle_timer, b->cycle_wanted ? 0 : b->cfg.cycle_ms);
    else if (p.deadline_ms && !timer_active(&b->cycle_timer)) {
        int64_t left = p.deadline_ms - loop_wall_ms(b->loop) + 1;
        timer_start(&b->cycle_timer, left < 1 ? 1 : left < 3600000 ? (uint64_t)left : 3600000);
    }
}
