/* Quota: a tree of queues. Guaranteed GPUs are always there for their queue; burst is the most that
 * a queue and those below it may hold, borrowed ones included; what others are guaranteed and do
 * not use counts as taken unless they lend. The state machine asks the same code again before it
 * takes a decision (design.md §6). */
#include "policy/place_internal.h"

#include <string.h>

/* A limit may be given as 0, which its bit tells; objects made in the process may carry a value
 * without it. */
#define PLACE_OF(type, c, ...) PLACE_##c,
enum { SCHEMA_queue_gpus(PLACE_OF) };
#undef PLACE_OF
#define GIVEN(g, c) ((g)->c != 0 || ((g)->has >> PLACE_##c & 1))

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

static struct quota_answer check_limits(const struct quota_view *v, uint32_t queue, int64_t milli,
                                        bool all)
{
    for (; queue != NONE; queue = v->parent[queue]) {
        const struct queue_gpus *g = quota_line(v->queues[queue], all ? "" : v->class_name);
        const char *name = v->queues[queue]->meta->name;
        int64_t held;

        if (!g)
            continue;
        held = v->held(v, queue, all);
        if (GIVEN(g, burst) && held + milli > g->burst * 1000)
            return (struct quota_answer){REASON_QUOTA_BURST, name, held,
                                         g->burst * 1000,    all,  false};
        if (GIVEN(g, borrowLimit) && held + milli > (g->guaranteed + g->borrowLimit) * 1000)
            return (struct quota_answer){
                REASON_QUOTA_BURST, name, held, (g->guaranteed + g->borrowLimit) * 1000, all, true};
    }
    return (struct quota_answer){0};
}

/* What a queue and those below it are guaranteed, do not use and do not lend. A queue that lends
 * may have one below that does not: the larger of its own rest and the sum of theirs is kept. */
static int64_t kept_by(const struct quota_view *v, uint32_t queue, bool all)
{
    const struct queue_spec *s = object_as(v->queues[queue], queue)->spec;
    const struct queue_gpus *g = quota_line(v->queues[queue], all ? "" : v->class_name);
    int64_t own = 0, below = 0;

    if (g && g->guaranteed && (!s->lend || GIVEN(g, lendLimit))) {
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

static struct quota_answer check_guarantees(const struct quota_view *v, uint32_t queue,
                                            int64_t milli, bool all)
{
    int64_t capacity = all ? v->capacity_all : v->capacity, held, kept;

    if (capacity < 0)
        return (struct quota_answer){0};
    if (queue != NONE) {
        const struct queue_gpus *g = quota_line(v->queues[queue], all ? "" : v->class_name);

        if (g && v->held(v, queue, all) + milli <= g->guaranteed * 1000)
            return (struct quota_answer){0};
    }
    kept = kept_for_others(v, queue, all);
    held = v->held(v, NONE, all);
    if (kept > 0 && held + milli > capacity - kept)
        return (struct quota_answer){REASON_QUOTA_GUARANTEED, "",  kept,
                                     capacity - held,         all, false};
    return (struct quota_answer){0};
}

struct quota_answer quota_check(const struct quota_view *v, uint32_t queue, int64_t milli)
{
    struct quota_answer r = check_limits(v, queue, milli, false);

    if (r.reason == REASON_NONE)
        r = check_limits(v, queue, milli, true);
    if (r.reason == REASON_NONE)
        r = check_guarantees(v, queue, milli, false);
    if (r.reason == REASON_NONE)
        r = check_guarantees(v, queue, milli, true);
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
    const char *class_ = all ? "" : v->class_name;
    int64_t sum = queue == NONE ? c->held("", class_, c->arg) : 0;

    for (uint32_t i = 0; i < v->n; i++) {
        if (queue == NONE || is_above(v, queue, i))
            sum += c->held(v->queues[i]->meta->name, class_, c->arg);
    }
    return sum;
}

uint32_t quota_place(const struct object *const *queues, size_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(queues[i]->meta->name, name) == 0)
            return i;
    }
    return NONE;
}

/* The queues passed policy_queues_check: no cycle. */
void quota_view_callback(struct quota_view *ret, const struct quota_callback *c, const char *class_,
                         const struct object *const *queues, size_t n, uint32_t *parent)
{
    for (size_t i = 0; i < n; i++)
        parent[i] = quota_place(queues, n, object_as(queues[i], queue)->spec->parent);
    *ret = (struct quota_view){.queues = queues,
                               .parent = parent,
                               .n = (uint32_t)n,
                               .held = held_by_callback,
                               .capacity = -1,
                               .capacity_all = -1,
                               .arg = c,
                               .class_name = class_};
}

int policy_quota_check(const char *queue, const char *class_, int64_t gpu_milli,
                       const struct object *const *queues, size_t n_queues,
                       int64_t (*held)(const char *queue, const char *class_, void *arg), void *arg,
                       int64_t capacity_milli, struct err *err)
{
    struct quota_callback c = {held, arg};
    struct quota_view v;
    uint32_t *parent = mem_zalloc(sizeof(*parent) * (n_queues + 1));
    uint32_t at = quota_place(queues, n_queues, queue);
    struct quota_answer r = {0};

    quota_view_callback(&v, &c, class_, queues, n_queues, parent);
    v.capacity = capacity_milli;
    if (at != NONE || !queue[0])
        r = quota_check(&v, at, gpu_milli);
    mem_free(parent);
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

/* ---- do queues hold together?
 * -------------------------------------------------------------------------------- */
static int check_parents(const struct object *const *queues, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = queues[i]->meta->name, *at = object_as(queues[i], queue)->spec->parent;

        for (size_t steps = 0; at[0]; steps++) {
            uint32_t up = quota_place(queues, n, at);

            if (up == NONE)
                return err_field(
                    err, E_INVALID, "spec.parent",
                    "queue %s: its parent %s does not exist; create it or name another", name, at);
            if (steps >= n || strcmp(at, name) == 0)
                return err_field(err, E_INVALID, "spec.parent",
                                 "queue %s: its parents form a cycle; make one of them a root",
                                 name);
            at = object_as(queues[up], queue)->spec->parent;
        }
    }
    return 0;
}

static int check_guaranteed(const struct object *const *queues, size_t n, const struct object *q,
                            const struct queue_gpus *g, struct err *err)
{
    int64_t below = 0;

    if (GIVEN(g, burst) && g->burst < g->guaranteed)
        return err_field(err, E_INVALID, "spec.gpus",
                         "queue %s: burst %lld of class %s is below its guaranteed %lld",
                         q->meta->name, (long long)g->burst, g->class_[0] ? g->class_ : "any",
                         (long long)g->guaranteed);
    for (size_t i = 0; i < n; i++) {
        const struct queue_gpus *child;

        if (strcmp(object_as(queues[i], queue)->spec->parent, q->meta->name) != 0)
            continue;
        child = quota_line(queues[i], g->class_);
        below += child ? child->guaranteed : 0;
    }
    if (below > g->guaranteed)
        return err_field(
            err, E_INVALID, "spec.gpus",
            "queue %s guarantees %lld of class %s, but the queues below it %lld; raise it "
            "or lower theirs",
            q->meta->name, (long long)g->guaranteed, g->class_[0] ? g->class_ : "any",
            (long long)below);
    return 0;
}

static int check_child_classes(const struct object *const *queues, size_t n, const struct object *q,
                               struct err *err)
{
    const struct queue_spec *s = object_as(q, queue)->spec;
    uint32_t up = s->parent[0] ? quota_place(queues, n, s->parent) : NONE;

    for (uint32_t i = 0; up != NONE && i < s->n_gpus; i++) {
        if (s->gpus[i].guaranteed && !quota_line(queues[up], s->gpus[i].class_))
            return err_field(err, E_INVALID, "spec.gpus",
                             "queue %s guarantees class %s, of which its parent %s guarantees none",
                             q->meta->name, s->gpus[i].class_[0] ? s->gpus[i].class_ : "any",
                             s->parent);
    }
    return 0;
}

static int check_namespaces(const struct object *const *queues, size_t n, size_t at,
                            struct err *err)
{
    const struct queue_spec *s = object_as(queues[at], queue)->spec;

    for (uint32_t k = 0; k < s->n_namespaces; k++) {
        for (size_t i = at + 1; i < n; i++) {
            const struct queue_spec *o = object_as(queues[i], queue)->spec;

            if (text_in(s->namespaces[k], (const char *const *)o->namespaces, o->n_namespaces))
                return err_field(
                    err, E_INVALID, "spec.namespaces",
                    "namespace %s is in queue %s and in queue %s; it can be in one only",
                    s->namespaces[k], queues[at]->meta->name, queues[i]->meta->name);
        }
    }
    return 0;
}

int policy_queues_check(const struct object *const *queues, size_t n, struct err *err)
{
    int r = check_parents(queues, n, err);

    for (size_t i = 0; r == 0 && i < n; i++) {
        const struct queue_spec *s = object_as(queues[i], queue)->spec;

        for (uint32_t k = 0; r == 0 && k < s->n_gpus; k++)
            r = check_guaranteed(queues, n, queues[i], &s->gpus[k], err);
        if (r == 0)
            r = check_child_classes(queues, n, queues[i], err);
        if (r == 0)
            r = check_namespaces(queues, n, i, err);
    }
    return r;
}
