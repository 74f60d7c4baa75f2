/* Quota: a tree of queues. Guaranteed GPUs are always there for their queue and those below it,
 * whatever others hold: quota never refuses them, and where there is no room, reclaim makes it
 * (borrow.c). burst is the most that a queue and those below it may hold, borrowed ones included;
 * borrowLimit the most above its guarantee. What others are guaranteed and do not use counts as
 * taken unless they lend, and then beyond lendLimit. The state machine asks the same code again
 * before it takes a decision. */
#include "policy/place/place_internal.h"

#include <string.h>

const struct queue_gpus *quota_line(const struct object *q, const char *class_)
{
    const struct queue_spec *s = object_as(q, queue)->spec;

    for (uint32_t i = 0; i < s->n_gpus; i++) {
        if (strcmp(s->gpus[i].class_, class_) == 0)
            return &s->gpus[i];
    }
    return NULL;
}

static bool is_above(const struct quota_view *v, uint32_t above, uint32_t queue)
{
    for (; queue != NONE; queue = v->parent[queue]) {
        if (queue == above)
            return true;
    }
    return false;
}

static struct quota_answer check_limit(const struct quota_view *v, uint32_t queue, int64_t milli,
                                       bool all)
{
    const struct queue_gpus *g = quota_line(v->queues[queue], all ? "" : v->class_name);
    const char *name = v->queues[queue]->meta->name;
    int64_t held;

    if (!g)
        return (struct quota_answer){0};
    held = v->held(v, queue, all);
    if (QUOTA_GIVEN(g, burst) && held + milli > g->burst * 1000)
        return (struct quota_answer){REASON_QUOTA_BURST, name, held, g->burst * 1000, all, false};
    if (QUOTA_GIVEN(g, borrowLimit) && held + milli > (g->guaranteed + g->borrowLimit) * 1000)
        return (struct quota_answer){
            REASON_QUOTA_BURST, name, held, (g->guaranteed + g->borrowLimit) * 1000, all, true};
    return (struct quota_answer){0};
}

/* What a queue and those below it are guaranteed, do not use and do not lend. A queue that lends
 * may have one below that does not: the larger of its own rest and the sum of theirs is kept. */
static int64_t kept_by(const struct quota_view *v, uint32_t queue, bool all)
{
    const struct queue_spec *s = object_as(v->queues[queue], queue)->spec;
    const struct queue_gpus *g = quota_line(v->queues[queue], all ? "" : v->class_name);
    int64_t own = 0, below = 0;

    if (g && g->guaranteed && (!s->lend || QUOTA_GIVEN(g, lendLimit))) {
        own = g->guaranteed * 1000 - v->held(v, queue, all);
        if (s->lend)
            own -= g->lendLimit * 1000;
    }
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->parent[i] == queue)
            below += kept_by(v, i, all);
    }
    own = own > 0 ? own : 0;
    return own > below ? own : below;
}

/* The same of all others, seen from `queue`: of those that branch off the path from it to the root.
 */
static int64_t kept_for_others(const struct quota_view *v, uint32_t queue, bool all)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < v->n; i++) {
        if (!is_above(v, i, queue) && (v->parent[i] == NONE || is_above(v, v->parent[i], queue)))
            sum += kept_by(v, i, all);
    }
    return sum;
}

/* One step up: is it within what `queue` is guaranteed, besides what branches off the way up to it
 * keep? via: the branch that asks, or NONE; *kept sums up what was kept below. */
static bool covers(const struct quota_view *v, uint32_t queue, uint32_t via, int64_t milli,
                   bool all, int64_t *kept)
{
    const struct queue_gpus *g = quota_line(v->queues[queue], all ? "" : v->class_name);

    for (uint32_t i = 0; i < v->n; i++) {
        if (v->parent[i] == queue && i != via)
            *kept += kept_by(v, i, all);
    }
    return g && v->held(v, queue, all) + milli + *kept <= g->guaranteed * 1000;
}

/* Nobody's guarantee: of what is free, others may keep a part. */
static struct quota_answer check_rest(const struct quota_view *v, uint32_t queue, int64_t milli,
                                      bool all)
{
    int64_t capacity = all ? v->capacity_all : v->capacity, held, kept;

    if (capacity < 0)
        return (struct quota_answer){0};
    kept = kept_for_others(v, queue, all);
    held = v->held(v, NONE, all);
    if (kept > 0 && held + milli > capacity - kept)
        return (struct quota_answer){REASON_QUOTA_GUARANTEED, "",  kept,
                                     capacity - held,         all, false};
    return (struct quota_answer){0};
}

/* Up to the root: as far as a guarantee covers it, limits above do not count, for whoever used them
 * up has borrowed (and may have to give back). A guarantee of the class is one of any class, too;
 * not the other way round. */
struct quota_answer quota_check(const struct quota_view *v, uint32_t queue, int64_t milli)
{
    bool ask_class = true, ask_all = true;
    int64_t kept = 0, kept_all = 0;
    struct quota_answer r = {0};

    for (uint32_t q = queue, via = NONE; q != NONE && ask_class; via = q, q = v->parent[q]) {
        r = check_limit(v, q, milli, false);
        if (r.reason == REASON_NONE && ask_all)
            r = check_limit(v, q, milli, true);
        if (r.reason != REASON_NONE)
            return r;
        if (covers(v, q, via, milli, false, &kept))
            ask_class = ask_all = false;
        else if (ask_all && covers(v, q, via, milli, true, &kept_all))
            ask_all = false;
    }
    if (ask_class)
        r = check_rest(v, queue, milli, false);
    if (r.reason == REASON_NONE && ask_all)
        r = check_rest(v, queue, milli, true);
    return r;
}

/* ---- the pool's form: its accounts
 * --------------------------------------- */
static int64_t held_by_accounts(const struct quota_view *v, uint32_t queue, bool all)
{
    const struct pool *p = v->arg;
    uint32_t class_ = all ? p->n_account_classes : v->class_;

    return queue == NONE ? p->queue_root[class_] : *queue_cell(p, queue, class_);
}

struct quota_view quota_view_pool(const struct pool *p, uint32_t class_)
{
    return (struct quota_view){.queues = p->docs[KIND_QUEUE].v,
                               .parent = p->queue_parent,
                               .n = p->n_queues,
                               .held = held_by_accounts,
                               .capacity = p->capacity[class_],
                               .capacity_all = p->capacity[p->n_account_classes],
                               .arg = p,
                               .class_name = p->t.classes[class_].name,
                               .class_ = class_};
}

/* ---- the state machine's form: queues as documents, held by callback
 * --------------------------------------- */
static int64_t held_by_callback(const struct quota_view *v, uint32_t queue, bool all)
{
    const struct quota_callback *c = v->arg;

    return c->sum[(queue == NONE ? v->n : queue) * 2 + all];
}

uint32_t quota_place(const struct object *const *queues, size_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(queues[i]->meta->name, name) == 0)
            return i;
    }
    return NONE;
}

/* Adds what is held by the own work of one queue to it and all above it. */
static void sum_up(struct quota_callback *c, const struct quota_view *v, uint32_t queue, bool all,
                   int64_t held)
{
    c->sum[v->n * 2 + all] += held;
    for (; queue != NONE; queue = v->parent[queue])
        c->sum[queue * 2 + all] += held;
}

/* The queues passed policy_queues_check: no cycle. */
void quota_callback_init(struct quota_callback *c, struct quota_view *ret, const char *class_,
                         const struct object *const *queues, size_t n,
                         int64_t (*held)(const char *queue, const char *class_, void *arg),
                         void *arg)
{
    bool any = false; /* does a line ask for GPUs of any class? */

    c->parent = mem_zalloc(sizeof(*c->parent) * (n + 1));
    c->sum = mem_zalloc(sizeof(*c->sum) * (n + 1) * 2);
    *ret = (struct quota_view){.queues = queues,
                               .parent = c->parent,
                               .n = (uint32_t)n,
                               .held = held_by_callback,
                               .capacity = -1,
                               .capacity_all = -1,
                               .arg = c,
                               .class_name = class_};
    for (size_t i = 0; i < n; i++) {
        c->parent[i] = quota_place(queues, n, object_as(queues[i], queue)->spec->parent);
        any |= quota_line(queues[i], "") != NULL;
    }
    for (uint32_t i = 0; i <= n; i++) {
        const char *name = i < n ? queues[i]->meta->name : "";

        sum_up(c, ret, i < n ? i : NONE, false, held(name, class_, arg));
        if (any)
            sum_up(c, ret, i < n ? i : NONE, true, held(name, "", arg));
    }
}

void quota_callback_fini(struct quota_callback *c)
{
    mem_free(c->parent);
    mem_free(c->sum);
}

int policy_quota_check(const char *queue, const char *class_, int64_t gpu_milli,
                       const struct object *const *queues, size_t n_queues,
                       int64_t (*held)(const char *queue, const char *class_, void *arg), void *arg,
                       int64_t capacity_milli, struct err *err)
{
    struct quota_callback c;
    struct quota_view v;
    uint32_t at = quota_place(queues, n_queues, queue);
    struct quota_answer r = {0};

    quota_callback_init(&c, &v, class_, queues, n_queues, held, arg);
    v.capacity = capacity_milli;
    if (at != NONE || !queue[0])
        r = quota_check(&v, at, gpu_milli);
    quota_callback_fini(&c);
    if (at == NONE && queue[0])
        return err_set(err, E_PLACE, "queue %s does not exist; create it or name another", queue);
    if (r.reason == REASON_QUOTA_BURST)
        return err_set(
            err, E_PLACE, "%s: queue %s holds %.1f of %.1f GPUs%s%s; wait, or raise its %s",
            reason_text(r.reason), r.queue, (double)r.held / 1000, (double)r.limit / 1000,
            r.all ? "" : " of class ", r.all ? "" : class_, r.borrow ? "borrowLimit" : "burst");
    if (r.reason != REASON_NONE)
        return err_set(err, E_PLACE,
                       "%s: %.1f of the %.1f free GPUs are guaranteed to other queues",
                       reason_text(r.reason), (double)r.held / 1000, (double)r.limit / 1000);
    return 0;
}
