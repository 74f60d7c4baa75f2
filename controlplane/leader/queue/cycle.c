/* A cycle over the waiting workloads, in slices, so that a fleet of any size never holds the loop.
 * It walks one version of the queue to its end, whatever changes meanwhile: it judges each workload
 * as the newest root has it, against the newest pool, and apply checks again. One scratch arena
 * serves all decisions; a decision that does not fit in it is a refusal of that one workload.
 *
 * Above CYCLE_LOOKS (or CYCLE_ROWS of work) a cycle looks at the first workloads in the order of
 * the queue, and spends half of its looks from where the cycle before it ended: no workload behind
 * a blocked head is forgotten. */

#include "controlplane/leader/queue/cycle.h"

#include "api/base/log.h"
#include "controlplane/leader/move/preempt.h"
#include "controlplane/leader/queue/scheduler.h"
#include "controlplane/leader/queue/waiting.h"
#include "controlplane/store/ledger/ledger.h"

#include <stdio.h>
#include <string.h>

#define CYCLE_MAX_PLACED 256
#define CYCLE_LOOKS 100000    /* workloads looked at in one cycle */
#define CYCLE_ROWS 20000000ul /* targets and groups looked at, for all of them */
#define CYCLE_TOLD 1024       /* of those who go on waiting; the others in the cycles that follow */
#define CYCLE_PROPOSED 1024   /* past their deadline, or stopped and held */
#define SLICE_MS 8            /* a slice ends with the turn that passes it, */
#define SLICE_LOOKS 2000      /* or where no clock runs, after so many looks, */
#define SLICE_ROWS 30000ul    /* or so much work */
#define SCRATCH_MAX_BYTES ((size_t)1 << 30)
#define PENDING_TOLD_EVERY_MS 5000
#define CYCLE_POSITIONS 64 /* workloads that one cycle tells nothing but a new position */
#define CYCLE_FIRST 16     /* of them the first in the queue; the others by turns */
#define CYCLE_HINTS 4      /* workloads whose hints are looked for in one cycle */
#define CYCLE_DUE 256      /* workloads looked at in one search for those that still lack hints */
#define HINTS_MAX 6
#define HINT_WITHIN_MS 60000 /* time from the decision within which a workload gets its hints */

struct positions {
    size_t n, told, due;
    bool put_off;
};

struct cycle {
    struct brain *brain;
    struct tree *queued; /* as they were when it began */
    struct turns *turns;
    struct memo *memo;
    struct arena *scratch;
    const struct object **heads; /* of the lanes, in `queued` */
    size_t n_lanes, cap_lanes;
    int64_t now_ms, log_index, deadline_ms; /* deadline: the first of those that wait; 0 = none */
    uint64_t seed, began_ms;
    size_t n, looks, placed, proposed, told, hinted, asked;
    unsigned long rows, rows_each;
    bool tail;    /* in the second half: behind where the last cycle ended */
    bool by_time; /* something waits for time to pass */
    struct positions positions;
    struct cycle_item room[CYCLE_ROOM]; /* workloads that wait for room, in order; references */
    size_t n_room;
    bool over; /* all had their turn; plans of preemption are made, each in a slice of its own */
    struct preempt_walk plans;
};

static void slice(void *arg);

/* ---- what is worth telling ---- */
/* What only changed its place in the queue. Whenever somebody at the front starts, all behind move
 * up: told at once, a queue of n would cost n commands for each start. */
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
    if (strcmp(s->message, d->message) == 0)
        return false;
    int64_t told = 0;
    for (uint32_t i = 0; i < s->n_conditions; i++)
        if (s->conditions[i].lastTransitionTime > told)
            told = s->conditions[i].lastTransitionTime;
    if (now_ms - told > PENDING_TOLD_EVERY_MS && now_ms % PENDING_TOLD_EVERY_MS < 600)
        return true;
    p->put_off = true; /* not for ever: its spec may be what has changed, and nothing after that */
    return false;
}

/* ---- hints: what would admit those that wait ---- */
static bool unsettled(const struct cycle *c, const struct object *o)
{
    return workload_unsettled(c->brain->root, o, object_as(o, workload)->status);
}

static bool hints_find(struct cycle *c, const struct cycle_item *it)
{
    struct brain *b = c->brain;
    struct place_request rq = {.workload = it->workload,
                               .now_ms = c->now_ms,
                               .queue_position = it->position,
                               .unsettled = unsettled(c, it->workload)};
    const char **hints;
    uint32_t n;
    struct err err;

    c->rows += SLICE_ROWS; /* the slice ends with it */
    if (policy_start_estimate(b->pool, &rq, c->scratch, it->decision, &err) ||
        policy_hints(b->pool, &rq, it->decision, HINTS_MAX, c->scratch, &hints, &n, &err)) {
        log_err(LOG_WARN, "scheduler.hints", &err);
        return false;
    }
    policy_decision_hint(it->decision, hints, n);
    return n > 0;
}

/* Many may begin to wait in one cycle: the others get theirs in those that follow. */
static bool hints_due(struct cycle *c, const struct cycle_item *it)
{
    const struct meta *m = it->workload->meta;
    char name[300];
    const struct object *o;

    if (c->looks < c->brain->cycles->begun * CYCLE_HINTS % c->n || c->asked++ >= CYCLE_DUE)
        return false;
    (void)snprintf(name, sizeof name, "%s-pending", m->name);
    o = root_get(c->brain->root, KIND_DECISION, m->namespace_, name);
    return o && !object_as(it->workload, workload)->status->nominated &&
           !object_as(o, decision)->spec->n_hints &&
           c->now_ms - object_as(o, decision)->spec->at < HINT_WITHIN_MS;
}

static void room_note(struct cycle *c, const struct cycle_item *it)
{
    if (c->n_room < CYCLE_ROOM && preempt_waits(it))
        c->room[c->n_room++] =
            (struct cycle_item){.workload = object_ref(it->workload), .position = it->position};
}

static void decided(struct cycle *c, const struct cycle_item *it)
{
    struct brain *b = c->brain;
    bool tell = it->placement != NULL;

    b->cycles->decided++;
    if (it->placement) {
        c->placed++;
    } else {
        c->by_time |= policy_waits_for(it->decision, CURE_TIME, true);
        room_note(c, it);
        tell = pending_news(it, c->now_ms, &c->positions);
        if (tell && c->told++ >= CYCLE_TOLD) {
            c->by_time = true; /* there will be a next cycle */
            return;
        }
        if (c->hinted < CYCLE_HINTS && (tell || hints_due(c, it))) {
            c->hinted++;
            tell |= hints_find(c, it);
        }
    }
    if (tell)
        scheduler_tell(b, it);
}

/* ---- one turn ---- */
/* As the root has it now; NULL: it does not wait any more. */
static const struct object *still_waits(struct cycle *c, const struct object *o)
{
    const struct object *w =
        root_get(c->brain->root, KIND_WORKLOAD, o->meta->namespace_, o->meta->name);

    if (!w || strcmp(w->meta->uid, o->meta->uid) || !workload_queued(w))
        return NULL;
    int64_t deadline = object_as(w, workload)->spec->deadline;
    if (!deadline)
        return w;
    if (deadline >= c->now_ms) {
        if (!c->deadline_ms || deadline < c->deadline_ms)
            c->deadline_ms = deadline;
        return w;
    }
    if (c->proposed++ < CYCLE_PROPOSED)
        scheduler_step(c->brain, w, STEP_STOP, "DeadlineExceeded",
                       "its deadline passed while it waited");
    else
        c->brain->cycles->wanted = true;
    return NULL;
}

/* False: nobody is left, or the pool is not what it should be. */
static bool turn(struct cycle *c)
{
    struct brain *b = c->brain;
    struct place_request rq = {
        .now_ms = c->now_ms, .seed = c->seed, .log_index = c->log_index, .memo = c->memo};
    size_t lane = policy_turns_next(c->turns, &rq.queue_position);
    struct cycle_item it = {.position = rq.queue_position};
    struct err err;

    if (lane == SIZE_MAX || !c->heads)
        return false;
    const struct object *o = c->heads[lane], *next = waiting_next(c->queued, o);
    c->looks++;
    c->heads[lane] = next;
    rq.workload = still_waits(c, o);
    if (!rq.workload) {
        policy_turns_took(c->turns, lane, TURN_GONE, next);
        return true;
    }
    uint64_t hits = policy_memo_hits(c->memo);
    rq.unsettled = unsettled(c, rq.workload);
    it.workload = rq.workload;
    if (policy_turn(b->pool, c->turns, lane, &it, next, &rq, c->scratch, &err)) {
        log_err(LOG_ERROR, "scheduler.cycle", &err);
        scheduler_reset(b); /* and this cycle is over: b->cycles->now is NULL */
        return false;
    }
    c->rows += policy_memo_hits(c->memo) == hits ? c->rows_each : 1;
    decided(c, &it);
    if (policy_turns_keep(c->turns, b->pool))
        c->rows += SLICE_ROWS; /* the slice ends with it */
    arena_reset(c->scratch);
    return true;
}

/* ---- where it goes on next time ---- */
static bool used_up(const struct cycle *c, bool half)
{
    size_t by = half ? 2 : 1;

    return c->looks >= CYCLE_LOOKS / by || c->rows >= CYCLE_ROWS / by;
}

/* Returns the first workload of the lane that the cycle before did not look at, if that one was cut
 * short. */
static const struct object *resumed(const struct cycle *c, const struct object *head)
{
    struct wait_key k;
    const struct object *last;

    policy_wait_key(head, &k);
    last = tree_get(c->brain->waiting->resume, slice_make(k.p, k.lane));
    return last ? waiting_next(c->queued, last) : NULL;
}

/* Begins the second half: each lane continues where the last cycle left it, if that is further
 * on. */
static void tail_begin(struct cycle *c)
{
    c->tail = true;
    for (size_t i = 0; i < c->n_lanes; i++) {
        const struct object *at = c->heads[i] ? resumed(c, c->heads[i]) : NULL;
        struct wait_key x, y;

        if (!at)
            continue;
        policy_wait_key(at, &x);
        policy_wait_key(c->heads[i], &y);
        if (x.n && memcmp(x.p, y.p, x.n < y.n ? x.n : y.n) <= 0)
            continue;
        c->heads[i] = at;
        policy_turns_took(c->turns, i, TURN_GONE, at);
    }
}

/* Notes where the next cycle continues: if this one was cut short, at the next workload of each
 * lane. Lanes that came to their end begin anew. */
static void resume_note(struct cycle *c, bool on_the_way)
{
    struct tree **t = &c->brain->waiting->resume;

    (void)tree_unref(*t);
    *t = waiting_tree();
    for (size_t i = 0; on_the_way && i < c->n_lanes; i++) {
        struct wait_key k;

        if (!c->heads[i])
            continue;
        policy_wait_key(c->heads[i], &k);
        *t = tree_put_own(*t, slice_make(k.p, k.lane), c->heads[i]);
    }
}

/* ---- its life ---- */
void cycle_drop(struct brain *b)
{
    struct cycle *c = b->cycles->now;

    if (!c)
        return;
    b->cycles->now = NULL;
    if (b->pool)
        policy_turns_over(c->turns, b->pool, false);
    for (size_t i = 0; i < c->n_room; i++)
        (void)object_unref(c->room[i].workload);
    (void)policy_turns_destroy(c->turns);
    (void)policy_memo_destroy(c->memo);
    (void)arena_destroy(c->scratch);
    (void)tree_unref(c->queued);
    mem_free(c->heads);
    mem_free(c);
}

static void cycle_end(struct cycle *c)
{
    struct brain *b = c->brain;
    int64_t deadline = c->deadline_ms;
    bool by_time = c->by_time || c->positions.put_off;

    b->cycles->last_ms = loop_now_ms(b->loop) - c->began_ms;
    cycle_drop(b);
    /* Waits, windows and prices open by time: looked at again while something waits for them. */
    if (by_time || (b->cycles->wanted && b->cycles->in_flight == 0)) {
        timer_start(&b->cycles->timer, b->cycles->wanted ? 0 : b->cfg.cycle_ms);
    } else if (deadline && !timer_active(&b->cycles->timer)) {
        int64_t left = deadline - core_time_ms(b->cfg.core) + 1;
        timer_start(&b->cycles->timer, left < 1 ? 1 : left < 3600000 ? (uint64_t)left : 3600000);
    }
}

/* False: there is nothing left to do in it. */
static bool plans_make(struct cycle *c)
{
    if (preempt_cycle(c->brain, c->room, c->n_room, &c->plans))
        return true;
    cycle_end(c);
    return false;
}

static bool cycle_over(struct cycle *c, bool whole)
{
    if (c->placed >= CYCLE_MAX_PLACED) {
        c->brain->cycles->wanted = true;
        cycle_end(c);
        return false;
    }
    resume_note(c, !whole);
    c->by_time |= !whole;
    policy_turns_over(c->turns, c->brain->pool, whole);
    c->over = true;
    return c->n_room || plans_make(c);
}

static void slice_post(struct brain *b)
{
    b->cycles->posted = true;
    brain_under_way(b, 1);
    loop_post(b->loop, slice, b);
}

/* False: it is over. */
static bool turns_take(struct cycle *c, uint64_t until_ms)
{
    struct brain *b = c->brain;
    size_t looks = c->looks + SLICE_LOOKS;
    unsigned long rows = c->rows + SLICE_ROWS;

    do {
        if (c->placed >= CYCLE_MAX_PLACED || used_up(c, false))
            return cycle_over(c, false);
        if (!c->tail && used_up(c, true))
            tail_begin(c);
        if (!turn(c))
            return b->cycles->now && cycle_over(c, true);
    } while (c->looks < looks && c->rows < rows && loop_now_ms(b->loop) < until_ms);
    return true;
}

static void slice_run(struct brain *b)
{
    uint64_t from = loop_now_ms(b->loop), cpu_ns = loop_computed_ns(b->loop);

    if (b->cycles->now->over ? plans_make(b->cycles->now)
                             : turns_take(b->cycles->now, from + SLICE_MS))
        slice_post(b);
    durations_add(&b->cycles->slices, (loop_now_ms(b->loop) - from) * 1000000);
    durations_add(&b->cycles->slices_cpu, loop_computed_ns(b->loop) - cpu_ns);
}

static void slice(void *arg)
{
    struct brain *b = arg;

    b->cycles->posted = false;
    brain_under_way(b, -1);
    if (b->leads && b->pool && b->cycles->now)
        slice_run(b);
}

/* ---- its beginning ---- */
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

/* What queues have used up to now, from the root that the cycle begins with: the sums are kept by
 * the ledger, so this costs a few cells a queue. */
static void used_tell(struct brain *b, int64_t now, struct arena *a)
{
    struct used u = {.a = a};

    ledger_use(b->root, now, used_add, &u);
    pool_set_use(b->pool, u.v, u.n);
}

static void lanes_open(struct cycle *c)
{
    const struct object *o = waiting_lane(c->queued, NULL);

    for (; o; o = waiting_lane(c->queued, o)) {
        if (c->n_lanes == c->cap_lanes) {
            c->cap_lanes = c->cap_lanes ? c->cap_lanes * 2 : 64;
            c->heads = mem_realloc(c->heads, c->cap_lanes * sizeof *c->heads);
        }
        c->heads[c->n_lanes++] = o;
        (void)policy_turns_lane(c->turns, o);
    }
}

struct held {
    struct brain *b;
    size_t n;
};
static bool held_each(struct slice key, const void *value, void *arg)
{
    struct held *h = arg;

    (void)key;
    scheduler_step(h->b, value, STEP_REQUEUE, "Suspended", "queued again; held by spec.suspend");
    return ++h->n < CYCLE_PROPOSED;
}

static void cycle_begin(struct brain *b)
{
    struct cycle *c = mem_new(struct cycle);

    b->cycles->now = c;
    *c = (struct cycle){.brain = b,
                        .queued = tree_ref(b->waiting->queued),
                        .turns = policy_turns_create(b->pool),
                        .memo = policy_memo_create(),
                        .scratch = arena_create(SCRATCH_MAX_BYTES),
                        .now_ms = core_time_ms(b->cfg.core),
                        .log_index = (int64_t)root_index(b->root),
                        .seed = loop_random_u64(b->loop) >> 12,
                        .began_ms = loop_now_ms(b->loop),
                        .n = tree_count(b->waiting->queued),
                        .rows_each = 1 + policy_rows(b->pool)};
    b->cycles->begun++;
    c->positions.n = c->n;
    c->positions.due = (size_t)(b->cycles->begun * (CYCLE_POSITIONS - CYCLE_FIRST) % c->n);
    used_tell(b, c->now_ms, c->scratch);
    arena_reset(c->scratch);
    lanes_open(c);
}

static void begin(void *arg)
{
    struct brain *b = arg;
    struct held held = {b, 0};

    b->cycles->posted = false;
    brain_under_way(b, -1);
    if (!b->leads || !b->pool || b->cycles->in_flight || b->cycles->now)
        return;
    b->cycles->wanted = false;
    tree_scan(b->waiting->stopped, slice_make("", 0), held_each, &held);
    if (!tree_count(b->waiting->queued))
        return;
    cycle_begin(b);
    slice_run(b);
}

static void cycle_post(struct brain *b)
{
    if (!b->leads || b->cycles->posted || b->cycles->now || b->cycles->in_flight || b->in_doubt)
        return;
    b->cycles->posted = true;
    brain_under_way(b, 1);
    loop_post(b->loop, begin, b);
}

void cycle_want(struct brain *b)
{
    b->cycles->wanted = true;
    cycle_post(b);
}

void cycle_proposed(struct brain *b)
{
    b->cycles->in_flight++;
}

void cycle_answered(struct brain *b, bool refused)
{
    struct cycles *c = b->cycles;

    c->in_flight--;
    if (c->in_flight == 0 && c->wanted && b->leads && !c->now) {
        /* A refusal means that the root has moved: it is on its way to us; a pause keeps two views
         * from spinning. */
        timer_start(&c->timer, refused ? 20 : 0);
    }
}

static void cycle_due(void *arg)
{
    cycle_want(arg);
}

void cycle_init(struct brain *b)
{
    timer_init(&b->cycles->timer, b->loop, cycle_due, b);
}

void cycle_stop(struct brain *b)
{
    timer_stop(&b->cycles->timer);
    cycle_drop(b);
}
