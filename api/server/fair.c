/* See fair.h. Start-time fair queueing: a user's next may go at `start`, a virtual time that all he
 * is served moves on by its cost; of those who wait the earliest goes, and that is what time it is.
 * Who asks for less than his share is never behind, and goes at once. This file must never let one
 * turn of the loop grow with what is asked: other connections are read in between. */
#include "api/server/fair.h"

#include "api/base/hash.h"

#include "api/base/limits.h"

#define FLOWS 2048
#define WIDTH_NS 100000ull      /* of the loop's computing: what one seat costs at least */
#define TURN_NS (2 * WIDTH_NS)  /* what is served in one turn of the loop of those who wait */
#define ONCE_NS (16 * WIDTH_NS) /* what is in it of those who did not have to */
#define PART_WIDTH 8            /* what one slice of something long counts for, at least */
#define COST_MAX_NS (256 * WIDTH_NS)
#define SMALL_MAX 8    /* of one user under way */
#define ACTIVE_MS 1000 /* a user counts for so long after his last request */
#define LOOK_MS 250    /* at what has waited too long, while nothing moves */

struct flow {
    struct list ready;  /* while something waits */
    struct list active; /* by when it was last asked */
    struct list waiting, parts;
    unsigned seats, small, n_waiting, lasting;
    size_t bytes;
    uint64_t start, seen_ms;
    bool is_ready, is_active;
};
enum refused { REFUSED_QUEUE, REFUSED_WAITED, REFUSED_LASTING, REFUSED_NR };
static const char *const refused_text[] = {"queue-full", "waited-too-long", "long-running"};

struct fair {
    struct loop *loop;
    struct timer turn, look;
    struct list ready, active;
    unsigned n_ready, n_active, seats, small, in_flight, waiting, lasting;
    size_t bytes;
    uint64_t now;    /* virtual */
    uint64_t served; /* at once, since the last turn */
    uint64_t refused[REFUSED_NR];
    struct durations waited;
    bool stopped;
    struct flow flows[FLOWS];
};

static void turn(void *arg);
static void look(void *arg);

struct fair *fair_create(struct loop *l)
{
    struct fair *f = mem_new(struct fair);

    f->loop = l;
    timer_init(&f->turn, l, turn, f);
    timer_init(&f->look, l, look, f);
    list_init(&f->ready);
    list_init(&f->active);
    for (unsigned i = 0; i < FLOWS; i++) {
        struct flow *w = &f->flows[i];
        list_init(&w->ready);
        list_init(&w->active);
        list_init(&w->waiting);
        list_init(&w->parts);
    }
    return f;
}

struct fair *fair_destroy(struct fair *f)
{
    if (!f)
        return NULL;
    INV(!f->in_flight && !f->waiting && list_empty(&f->ready));
    timer_stop(&f->turn);
    timer_stop(&f->look);
    mem_free(f);
    return NULL;
}

/* ---- users ---- */
static struct flow *flow_of(struct fair *f, const char *user)
{
    return &f->flows[hash_slot(user, FLOWS)];
}

static void flow_seen(struct fair *f, struct flow *w)
{
    uint64_t now = loop_now_ms(f->loop);

    w->seen_ms = now;
    list_remove(&w->active);
    list_push(&f->active, &w->active);
    f->n_active += !w->is_active;
    w->is_active = true;
    while (!list_empty(&f->active)) {
        struct flow *old = container_of(f->active.next, struct flow, active);
        if (old->seen_ms + ACTIVE_MS > now)
            break;
        list_remove(&old->active);
        if (old->seats || old->n_waiting) {
            old->seen_ms = now;
            list_push(&f->active, &old->active);
        } else {
            old->is_active = false;
            f->n_active--;
        }
    }
}

static void flow_start(const struct fair *f, struct flow *w)
{
    if (w->start < f->now)
        w->start = f->now; /* what he did not ask for is not owed to him */
}

static void flow_ready(struct fair *f, struct flow *w)
{
    if (w->is_ready)
        return;
    flow_start(f, w);
    w->is_ready = true;
    list_push(&f->ready, &w->ready);
    f->n_ready++;
}

static void flow_rest(struct fair *f, struct flow *w)
{
    if (!w->is_ready || !list_empty(&w->waiting) || !list_empty(&w->parts))
        return;
    w->is_ready = false;
    list_remove(&w->ready);
    f->n_ready--;
}

/* ---- seats ---- */
static bool has_room(const struct fair *f, const struct flow *w, unsigned width)
{
    unsigned share = LIMIT_REQUEST_SEATS / (f->n_active + 1);

    return (!f->seats || f->seats + width <= LIMIT_REQUEST_SEATS) &&
           (!w->seats || w->seats + width <= share);
}

static void unlink_waiting(struct fair *f, struct fair_item *it)
{
    list_remove(&it->link);
    if (!it->waits)
        return;
    it->waits = false;
    it->flow->n_waiting--;
    it->flow->bytes -= it->bytes;
    f->waiting--;
    f->bytes -= it->bytes;
}

static void begin(struct fair *f, struct fair_item *it)
{
    unlink_waiting(f, it);
    it->holds = true;
    f->in_flight++;
    if (it->small) {
        it->flow->small++;
        f->small++;
    } else {
        it->flow->seats += it->width;
        f->seats += it->width;
        durations_add(&f->waited, (loop_now_ms(f->loop) - it->since_ms) * 1000000);
    }
    it->run(it, NULL);
}

static void refuse(struct fair *f, struct fair_item *it, enum refused why)
{
    struct err e;

    unlink_waiting(f, it);
    flow_rest(f, it->flow);
    it->flow = NULL;
    f->refused[why]++;
    if (f->stopped)
        (void)err_set(&e, E_UNAVAIL, "this member is shutting down: ask another one");
    else
        (void)err_set(&e, E_LIMIT,
                      why == REFUSED_QUEUE
                          ? "too many requests of this user wait for their turn, please try again "
                            "later"
                          : "the request waited too long for its turn, please try again later");
    it->run(it, &e);
}

/* ---- turns ---- */
/* Runs it, and moves its user's start on by what that cost: by its width, or by what the loop
 * computed for it if that is more. It may be gone then. */
static uint64_t run(struct fair *f, struct fair_item *it)
{
    struct flow *w = it->flow;
    uint64_t least = (it->part ? PART_WIDTH : it->width) * WIDTH_NS;
    uint64_t before = loop_computed_ns(f->loop), cost;

    if (it->part) {
        list_remove(&it->link);
        it->run(it, NULL);
    } else {
        begin(f, it);
    }
    cost = loop_computed_ns(f->loop) - before;
    cost = cost > COST_MAX_NS ? COST_MAX_NS : cost;
    cost = cost > least ? cost : least;
    w->start += cost;
    return cost;
}

/* The next of this user, if it may go now. */
static struct fair_item *next_of(const struct fair *f, const struct flow *w)
{
    bool part = !list_empty(&w->parts);
    struct fair_item *it =
        container_of(part ? w->parts.next : w->waiting.next, struct fair_item, link);

    return part || has_room(f, w, it->width) ? it : NULL;
}

static struct fair_item *earliest(const struct fair *f)
{
    struct fair_item *first = NULL, *it;

    list_for_each (e, &f->ready) {
        struct flow *w = container_of(e, struct flow, ready);
        if ((!first || w->start < first->flow->start) && (it = next_of(f, w)))
            first = it;
    }
    return first;
}

static void turn(void *arg)
{
    struct fair *f = arg;
    struct fair_item *it;
    uint64_t served = 0;

    f->served = 0;
    while (served < TURN_NS && (it = earliest(f))) {
        struct flow *w = it->flow;
        f->now = w->start > f->now ? w->start : f->now;
        list_remove(&w->ready); /* of those who are as early, he is the last now */
        list_push(&f->ready, &w->ready);
        served += run(f, it);
        flow_rest(f, w);
    }
    if (served)
        timer_start(&f->turn, 0);
    else if (f->waiting && !timer_active(&f->look))
        timer_start(&f->look, LOOK_MS);
}

/* Nothing of his waits, and he would be the next, or nobody waits at all. */
static bool at_once(const struct fair *f, const struct flow *w, unsigned width)
{
    if (w->is_ready || !has_room(f, w, width))
        return false;
    return w->start <= f->now ? f->served < ONCE_NS : !f->n_ready && f->served < TURN_NS;
}

/* Each user's first has waited longest. */
static void look(void *arg)
{
    struct fair *f = arg;
    uint64_t now = loop_now_ms(f->loop);

    for (unsigned i = 0; i < FLOWS && f->waiting; i++)
        while (!list_empty(&f->flows[i].waiting)) {
            struct fair_item *it = container_of(f->flows[i].waiting.next, struct fair_item, link);
            if (!f->stopped && now - it->since_ms < LIMIT_REQUEST_WAIT_MS)
                break;
            refuse(f, it, REFUSED_WAITED);
        }
    if (f->waiting)
        timer_start(&f->look, LOOK_MS);
}

static void soon(struct fair *f)
{
    if (!timer_active(&f->turn))
        timer_start(&f->turn, 0);
}

void fair_enter(struct fair *f, const char *user, struct fair_item *it, bool small)
{
    struct flow *w = flow_of(f, user);

    PRE(!it->flow && it->width >= 1 && it->width <= FAIR_WIDTH_MAX);
    list_init(&it->link);
    it->flow = w;
    it->since_ms = loop_now_ms(f->loop);
    it->small = small && w->small < SMALL_MAX;
    flow_seen(f, w);
    if (f->stopped) {
        refuse(f, it, REFUSED_WAITED);
    } else if (it->small) {
        begin(f, it);
    } else if (at_once(f, w, it->width)) {
        soon(f); /* where `served` is counted anew */
        flow_start(f, w);
        if (!f->n_ready)
            f->now = w->start; /* what he was served while nobody waited is not held against him */
        f->served += run(f, it);
    } else if (w->n_waiting >= LIMIT_USER_WAITING_MAX || f->waiting >= LIMIT_WAITING_MAX ||
               (w->n_waiting && w->bytes + it->bytes > LIMIT_USER_WAITING_BYTES)) {
        refuse(f, it, REFUSED_QUEUE);
    } else {
        it->waits = true;
        w->n_waiting++;
        w->bytes += it->bytes;
        f->waiting++;
        f->bytes += it->bytes;
        list_push(&w->waiting, &it->link);
        flow_ready(f, w);
        soon(f);
    }
}

void fair_again(struct fair *f, struct flow *flow, struct fair_item *it)
{
    PRE(!it->flow || it->flow == flow);
    if (!it->flow)
        list_init(&it->link);
    it->flow = flow;
    it->part = true;
    list_remove(&it->link);
    list_push(&flow->parts, &it->link);
    flow_ready(f, flow);
    soon(f);
}

void fair_leave(struct fair *f, struct fair_item *it)
{
    struct flow *w = it->flow;

    if (!w)
        return;
    unlink_waiting(f, it);
    flow_rest(f, w);
    if (it->holds) {
        f->in_flight--;
        if (it->small) {
            w->small--;
            f->small--;
        } else {
            w->seats -= it->width;
            f->seats -= it->width;
        }
        it->holds = false;
        if (f->n_ready)
            soon(f);
    }
    it->flow = NULL;
}

int fair_last(struct fair *f, const char *user, struct flow **ret, struct err *err)
{
    struct flow *w = flow_of(f, user);

    PRE(!*ret);
    if (f->stopped)
        return err_set(err, E_UNAVAIL, "this member is shutting down: ask another one");
    if (w->lasting >= LIMIT_USER_LASTING_MAX) {
        f->refused[REFUSED_LASTING]++;
        return err_set(err, E_LIMIT,
                       "this user has %u watches, logs and the like open here: end some, and try "
                       "again later",
                       w->lasting);
    }
    w->lasting++;
    f->lasting++;
    *ret = w;
    return 0;
}

void fair_lasted(struct fair *f, struct flow **held)
{
    struct flow *w = *held;

    if (!w)
        return;
    INV(w->lasting && f->lasting);
    *held = NULL;
    w->lasting--;
    f->lasting--;
}

void fair_stop(struct fair *f)
{
    f->stopped = true;
    look(f);
    timer_stop(&f->look);
}

static void gauge(struct buf *out, const char *name, const char *help, uint64_t v)
{
    buf_printf(out, "# HELP hanse_api_%s %s\n# TYPE hanse_api_%s gauge\nhanse_api_%s %llu\n", name,
               help, name, name, (unsigned long long)v);
}

void fair_metrics(const struct fair *f, struct buf *out)
{
    const struct durations *waited = &f->waited;
    const char *none = "";

    gauge(out, "requests_in_flight", "requests under way that do not last", f->in_flight);
    gauge(out, "seats_in_use", "what they cost, of REQUEST_SEATS", f->seats);
    gauge(out, "requests_waiting", "requests that wait for their turn", f->waiting);
    gauge(out, "requests_waiting_bytes", "bodies of those", f->bytes);
    gauge(out, "requests_lasting", "watches, logs, exec and backups", f->lasting);
    gauge(out, "users_active", "users that asked in the last second", f->n_active);
    buf_str(out, "# HELP hanse_api_requests_refused_total requests answered 429 for fairness\n"
                 "# TYPE hanse_api_requests_refused_total counter\n");
    for (unsigned i = 0; i < REFUSED_NR; i++)
        buf_printf(out, "hanse_api_requests_refused_total{why=\"%s\"} %llu\n", refused_text[i],
                   (unsigned long long)f->refused[i]);
    durations_tell(&waited, &none, 1, "hanse_api_request_wait", "from coming in to its turn", out);
}
