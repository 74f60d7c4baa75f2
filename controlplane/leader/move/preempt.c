/* Preemption: for workloads that wait for room and may take it, one plan over all targets at a
 * time. Its victims and the nominated room go into the log in one command; an ordinary cycle places
 * the preemptor once that room is free.
 *
 * It must never make a second plan for a workload that has one. A plan that cannot work any more is
 * dropped, and its nomination with it. */

#include "controlplane/leader/move/preempt.h"

#include "api/base/log.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/move/begin.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/queue/scheduler.h"
#include "controlplane/leader/queue/waiting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS_PER_CYCLE 2
#define IN_VAIN_MS 5000 /* so long nobody is looked at again, if nothing changes */
/* a nomination without victims that still move is dropped after this */
#define PLAN_IDLE_MS 10000

/* ---- who was looked at in vain ---- */
static bool in_vain(const struct preempts *p, const char *uid, uint64_t now)
{
    for (size_t i = 0; i < sizeof p->vain / sizeof p->vain[0]; i++)
        if (p->vain[i].until_ms > now && !strcmp(p->vain[i].uid, uid))
            return true;
    return false;
}
static void vain_add(struct preempts *p, const char *uid, uint64_t now)
{
    struct vain *v = &p->vain[p->next_vain++ % (sizeof p->vain / sizeof p->vain[0])];

    str_copy(v->uid, sizeof v->uid, uid);
    v->until_ms = now + IN_VAIN_MS;
}

/* ---- one plan ---- */
struct planned { /* for whom */
    struct brain *brain;
    char uid[64];
};

static void begun(void *arg, bool ok)
{
    struct planned *p = arg;
    struct brain *b = p->brain;
    const struct object *w = root_workload_by_uid(b->root, p->uid);

    b->preempts->planning = false;
    if (!ok && b->leads && b->pool && w) /* the root has moved on; looked at anew */
        pool_nominate(b->pool, w, object_as(w, workload)->status->nominated);
    scheduler_want(b);
    mem_free(p);
}

/* Where the victims go, beside each other and beside the room that is made: all of it is held in
 * the pool from now on. */
static void destinations(struct brain *b, const struct place_request *rq,
                         const struct preempt_plan *plan, struct arena *a,
                         struct move_begin *begins)
{
    struct err err;

    pool_nominate(b->pool, rq->workload, plan->placement);
    for (size_t i = 0; i < plan->n; i++) {
        const struct victim *v = &plan->victims[i];
        enum move_cause cause = v->reclaim ? MOVE_RECLAIM : MOVE_PREEMPTION;
        struct place_request to = *rq;
        struct move_choice c = {0};
        to.workload = v->workload;
        if (plan->requeue || policy_move(b->pool, &to, cause, a, &c, &err))
            c = (struct move_choice){0};
        c.lost_gpu_s = v->lost_gpu_s;
        begin_take(b, &begins[i], v->workload, cause, &c);
    }
}

/* The plan, and for people the decision that it is: it stands until the preemptor is placed. */
static void plan_propose(struct brain *b, const struct place_request *rq,
                         const struct preempt_plan *plan, struct arena *a)
{
    const struct object *w = rq->workload;
    struct migrate_cmd m = {.n = (uint32_t)plan->n, .nominated = plan->placement};
    struct cycle_item told = {
        .workload = w, .decision = plan->decision, .position = rq->queue_position};
    struct planned *p = mem_new(struct planned);

    m.begins = arena_array(a, struct move_begin, plan->n + 1);
    destinations(b, rq, plan, a, m.begins);
    str_copy(m.for_ns, sizeof m.for_ns, w->meta->namespace_);
    str_copy(m.for_name, sizeof m.for_name, w->meta->name);
    str_copy(m.for_uid, sizeof m.for_uid, w->meta->uid);
    m.for_epoch = object_as(w, workload)->status->epoch;
    (void)snprintf(m.reason, sizeof m.reason, "Preempted");
    (void)snprintf(m.message, sizeof m.message, "makes room for %s/%s", m.for_ns, m.for_name);
    p->brain = b;
    str_copy(p->uid, sizeof p->uid, w->meta->uid);
    b->preempts->planning = true;
    log_event(LOG_INFO, "preempt.plan",
              LOG_FIELDS({"for", log_str(w->meta->name)}, {"victims", log_u64(plan->n)},
                         {"lostGpuSeconds", log_u64((uint64_t)plan->lost_gpu_s)}));
    begin_propose(b, &m, begun, p);
    if (plan->decision)
        scheduler_tell(b, &told);
}

/* True when a plan was proposed. */
static bool look(struct brain *b, const struct object *w, int64_t position)
{
    AUTO_ARENA a = arena_create(1u << 28);
    struct place_request rq = {.workload = w,
                               .now_ms = core_time_ms(b->cfg.core),
                               .seed = loop_random_u64(b->loop) >> 12,
                               .log_index = (int64_t)root_index(b->root),
                               .queue_position = position};
    struct preempt_plan *plan = NULL;
    struct err err;

    if (policy_preempt(b->pool, &rq, a, &plan, &err)) {
        log_err(LOG_WARN, "preempt.plan", &err);
        return false;
    }
    if (!plan || !plan->n || !plan->placement)
        return false;
    for (size_t i = 0; i < plan->n; i++)
        if (!begin_possible(b, plan->victims[i].workload))
            return false; /* one that moves already: its room comes without us */
    plan_propose(b, &rq, plan, a);
    return true;
}

bool preempt_waits(const struct cycle_item *it)
{
    return it->decision && !it->placement &&
           !object_as(it->workload, workload)->status->nominated &&
           policy_waits_for(it->decision, CURE_ROOM | CURE_QUOTA | CURE_LIMIT, true);
}

bool preempt_cycle(struct brain *b, const struct cycle_item *waiting, size_t n,
                   struct preempt_walk *walk)
{
    struct preempts *p = b->preempts;
    uint64_t now = loop_now_ms(b->loop);

    p->waiting = false;
    if (b->frozen || !b->pool || root_feature_level(b->root) < FEATURE_MOVES)
        return false;
    p->waiting = n > 0;
    while (walk->at < n && !p->planning && walk->looks < LOOKS_PER_CYCLE) {
        const struct cycle_item *it = &waiting[walk->at++];
        const struct object *w = root_workload_by_uid(b->root, it->workload->meta->uid);
        if (!w || !workload_queued(w) || object_as(w, workload)->status->nominated ||
            in_vain(p, w->meta->uid, now))
            continue;
        walk->looks++;
        if (!look(b, w, it->position))
            vain_add(p, w->meta->uid, now);
        return true;
    }
    return false;
}

/* ---- nominations ---- */
struct nominee {
    struct list link;
    struct indexed by_uid;
    char uid[64];
    uint64_t moved_ms; /* when a victim of its was last seen moving */
};

static struct nominee *nominee_find(struct preempts *p, const char *uid)
{
    struct indexed *e = p->n_nominees ? index_find(&p->nominees_by_uid, uid) : NULL;

    return e ? container_of(e, struct nominee, by_uid) : NULL;
}

static void nominee_free(struct preempts *p, struct nominee *x)
{
    list_remove(&x->link);
    index_remove(&p->nominees_by_uid, &x->by_uid);
    p->n_nominees--;
    mem_free(x);
}

/* Follows the root: the pool keeps what is nominated. */
void preempt_nominee(struct brain *b, const struct object *w)
{
    struct preempts *p = b->preempts;
    const struct placement *room = object_as(w, workload)->status->nominated;
    struct nominee *x = nominee_find(p, w->meta->uid);

    if (!room && !x)
        return;
    pool_nominate(b->pool, w, room);
    if (room && !x) {
        x = mem_new(struct nominee);
        x->moved_ms = loop_now_ms(b->loop);
        str_copy(x->uid, sizeof x->uid, w->meta->uid);
        x->by_uid.key = x->uid;
        index_add(&p->nominees_by_uid, &x->by_uid);
        list_push(&p->nominees, &x->link);
        p->n_nominees++;
    } else if (!room) {
        nominee_free(p, x);
    }
}

/* The workloads for which Migrations make room, gathered once a look: a nominated workload finds
 * itself there. */
static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static size_t beneficiaries(const struct brain *b, const char **v)
{
    size_t n = movers_for(b, v);

    qsort(v, n, sizeof *v, by_text);
    return n;
}

static bool victims_move(const struct object *w, const char *const *v, size_t n)
{
    char who[330];
    const char *key = who;

    (void)snprintf(who, sizeof who, "%s/%s", w->meta->namespace_, w->meta->name);
    return bsearch(&key, v, n, sizeof *v, by_text) != NULL;
}

static void dropped(void *arg, const struct result *r, const struct err *err)
{
    struct brain *b = arg;

    (void)r;
    (void)err;
    b->preempts->dropping = false;
}

/* Its victims have all moved or stayed, and it was still not placed: the room is anybody's. A plan
 * of nothing nominates nothing. */
static void nomination_drop(struct brain *b, const struct object *w)
{
    union command c = {.migrate = {.head = {.type = CMD_MIGRATE, .user = "hanse:mover"},
                                   .step = MOVE_BEGIN,
                                   .for_epoch = object_as(w, workload)->status->epoch}};

    brain_request_id(b, c.head.request_id);
    str_copy(c.migrate.for_ns, sizeof c.migrate.for_ns, w->meta->namespace_);
    str_copy(c.migrate.for_name, sizeof c.migrate.for_name, w->meta->name);
    str_copy(c.migrate.for_uid, sizeof c.migrate.for_uid, w->meta->uid);
    b->preempts->dropping = true;
    brain_propose(b, &c, dropped, b);
}

static void nominees_look(struct brain *b, uint64_t now)
{
    struct preempts *p = b->preempts;
    const char **v = mem_alloc((movers_count(b) + 1) * sizeof *v);
    size_t n = beneficiaries(b, v);

    list_for_each_safe (it, tmp, &p->nominees) {
        struct nominee *x = container_of(it, struct nominee, link);
        const struct object *w = root_workload_by_uid(b->root, x->uid);
        if (!w)
            nominee_free(p, x);
        else if (victims_move(w, v, n))
            x->moved_ms = now;
        else if (now - x->moved_ms > PLAN_IDLE_MS && !p->dropping)
            nomination_drop(b, w);
    }
    mem_free(v);
}

void preempt_tick(struct brain *b)
{
    struct preempts *p = b->preempts;
    uint64_t now = loop_now_ms(b->loop);

    if (p->n_nominees && !p->dropping)
        nominees_look(b, now);
    if (p->waiting && !p->planning && now - p->cycled_ms >= IN_VAIN_MS) {
        p->cycled_ms = now; /* minimum runtimes pass, checkpoints are written */
        scheduler_want(b);
    }
}

size_t preempt_count(const struct brain *b)
{
    return b->preempts->n_nominees;
}

void preempt_init(struct brain *b)
{
    list_init(&b->preempts->nominees);
}

void preempt_reset(struct brain *b)
{
    preempt_drop(b);
    b->preempts->cycled_ms = loop_now_ms(b->loop);
}
void preempt_drop(struct brain *b)
{
    bool planning = b->preempts->planning, dropping = b->preempts->dropping;

    while (b->preempts->n_nominees)
        nominee_free(b->preempts, container_of(b->preempts->nominees.next, struct nominee, link));
    *b->preempts = (struct preempts){.planning = planning, .dropping = dropping};
    list_init(&b->preempts->nominees);
}
