/* Quota: a tree of queues. Guaranteed GPUs are always there for their queue and those below it,
 * whatever others hold: quota never refuses them, and where there is no room, reclaim makes it
 * (borrow.c). burst is the most that a queue and those below it may hold, borrowed ones included;
 * borrowLimit the most above its guarantee. What others are guaranteed and do not use counts as
 * taken unless they lend, and then beyond lendLimit. The state machine asks the same code again
 * before it takes a decision. */
#include "policy/quota/quota_internal.h"

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

static struct quota_answer check_limit(const struct quota_view *v, uint32_t queue, int64_t milli,
                                       bool all)
{
    const struct queue_gpus *g = quota_line(v->queues[queue], all ? "" : v->class_name);
    const char *name = v->queues[queue]->meta->name;
    int64_t held;

    if (!g)
        return (struct quota_answer){0};
    held = v->held(v, queue, all);
    if (QUOTA_GIVEN(g, burst) && held + milli > quota_milli(g->burst))
        return (struct quota_answer){REASON_QUOTA_BURST,    name, held,
                                     quota_milli(g->burst), all,  false};
    if (QUOTA_GIVEN(g, borrowLimit) &&
        held + milli > quota_milli(g->guaranteed) + quota_milli(g->borrowLimit))
        return (struct quota_answer){REASON_QUOTA_BURST,
                                     name,
                                     held,
                                     quota_milli(g->guaranteed) + quota_milli(g->borrowLimit),
                                     all,
                                     true};
    return (struct quota_answer){0};
}

/* ---- what is kept ---- */
void queue_tree_init(struct queue_tree *t, uint32_t *words, uint32_t n)
{
    t->parent = words;
    t->child = words + n;
    t->sibling = t->child + n + 1;
    t->order = t->sibling + n;
}

void queue_tree_children(struct queue_tree *t, uint32_t n)
{
    uint32_t first = n, last = n;

    for (uint32_t i = 0; i <= n; i++)
        t->child[i] = NONE;
    for (uint32_t i = n; i-- > 0;) {
        uint32_t *head = &t->child[t->parent[i] == NONE ? n : t->parent[i]];

        t->sibling[i] = *head;
        *head = i;
    }
    /* From the root down, written from the end. Who is in a cycle is in no order. */
    for (uint32_t i = t->child[n]; i != NONE; i = t->sibling[i])
        t->order[--first] = i;
    while (last > first)
        for (uint32_t i = t->child[t->order[--last]]; i != NONE; i = t->sibling[i])
            t->order[--first] = i;
    for (uint32_t i = 0; first > 0 && i < n - first; i++)
        t->order[i] = t->order[first + i];
    for (uint32_t i = n - first; i < n; i++)
        t->order[i] = NONE;
}

/* What a queue is guaranteed, does not use and does not lend. */
static int64_t kept_own(const struct quota_view *v, uint32_t queue, bool all)
{
    const struct queue_spec *s = object_as(v->queues[queue], queue)->spec;
    const struct queue_gpus *g = quota_line(v->queues[queue], all ? "" : v->class_name);
    int64_t own;

    if (!g || !g->guaranteed || (s->lend && !QUOTA_GIVEN(g, lendLimit)))
        return 0;
    own = quota_milli(g->guaranteed) - v->held(v, queue, all);
    if (s->lend)
        own -= quota_milli(g->lendLimit);
    return own > 0 ? own : 0;
}

/* A queue that lends may have one below that does not: the larger of its own rest and the sum of
 * theirs is kept. One pass for all queues: asked for each, a thousand queues cost seconds. */
static const struct quota_kept *kept(const struct quota_view *v, bool all)
{
    struct quota_kept *k = v->kept[all];

    if (k->at == v->at)
        return k;
    memset(k->below, 0, sizeof(*k->below) * (v->n + 1));
    for (uint32_t i = 0; i < v->n && v->tree.order[i] != NONE; i++) {
        uint32_t q = v->tree.order[i];
        int64_t own = kept_own(v, q, all);

        k->kept[q] = own > k->below[q] ? own : k->below[q];
        k->below[v->tree.parent[q] == NONE ? v->n : v->tree.parent[q]] += k->kept[q];
    }
    k->at = v->at;
    return k;
}

/* The same of all others, seen from `queue`: of those below it, and of those that branch off the
 * path from it to the root. */
static int64_t kept_for_others(const struct quota_view *v, uint32_t queue, bool all)
{
    const struct quota_kept *k = kept(v, all);
    int64_t sum = k->below[queue == NONE ? v->n : queue];

    for (; queue != NONE; queue = v->tree.parent[queue])
        sum +=
            k->below[v->tree.parent[queue] == NONE ? v->n : v->tree.parent[queue]] - k->kept[queue];
    return sum;
}

/* One step up: is it within what `queue` is guaranteed, besides what branches off the way up to it
 * keep? via: the branch that asks, or NONE; *sum adds up what was kept below. */
static bool covers(const struct quota_view *v, uint32_t queue, uint32_t via, int64_t milli,
                   bool all, int64_t *sum)
{
    const struct queue_gpus *g = quota_line(v->queues[queue], all ? "" : v->class_name);
    const struct quota_kept *k = kept(v, all);

    *sum += k->below[queue] - (via == NONE ? 0 : k->kept[via]);
    return g && v->held(v, queue, all) + milli + *sum <= quota_milli(g->guaranteed);
}

/* Nobody's guarantee: of what is free, others may keep a part. */
static struct quota_answer check_rest(const struct quota_view *v, uint32_t queue, int64_t milli,
                                      bool all)
{
    int64_t capacity = all ? v->capacity_all : v->capacity, held, others;

    if (capacity < 0)
        return (struct quota_answer){0};
    others = kept_for_others(v, queue, all);
    held = v->held(v, NONE, all);
    if (others > 0 && held + milli > capacity - others)
        return (struct quota_answer){REASON_QUOTA_GUARANTEED, "",  others,
                                     capacity - held,         all, false};
    return (struct quota_answer){0};
}

/* Up to the root: as far as a guarantee covers it, limits above do not count, for whoever used them
 * up has borrowed (and may have to give back). A guarantee of the class is one of any class, too;
 * not the other way round. */
struct quota_answer quota_check(const struct quota_view *v, uint32_t queue, int64_t milli)
{
    bool ask_class = true, ask_all = true;
    int64_t sum = 0, sum_all = 0;
    struct quota_answer r = {0};

    for (uint32_t q = queue, via = NONE; q != NONE && ask_class; via = q, q = v->tree.parent[q]) {
        r = check_limit(v, q, milli, false);
        if (r.reason == REASON_NONE && ask_all)
            r = check_limit(v, q, milli, true);
        if (r.reason != REASON_NONE)
            return r;
        if (covers(v, q, via, milli, false, &sum))
            ask_class = ask_all = false;
        else if (ask_all && covers(v, q, via, milli, true, &sum_all))
            ask_all = false;
    }
    if (ask_class)
        r = check_rest(v, queue, milli, false);
    if (r.reason == REASON_NONE && ask_all)
        r = check_rest(v, queue, milli, true);
    return r;
}

/* ---- the pool's form: its accounts ---- */
static int64_t held_by_accounts(const struct quota_view *v, uint32_t queue, bool all)
{
    const struct pool *p = v->arg;
    uint32_t class_ = all ? p->n_account_classes : v->class_;

    return queue == NONE ? p->queue_root[class_] : *queue_cell(p, queue, class_);
}

struct quota_view quota_view_pool(const struct pool *p, uint32_t class_)
{
    return (struct quota_view){.queues = p->docs[KIND_QUEUE].v,
                               .tree = p->queue_tree,
                               .n = p->n_queues,
                               .at = p->changes,
                               .kept = {&p->kept[class_], &p->kept[p->n_account_classes]},
                               .held = held_by_accounts,
                               .capacity = p->capacity[class_],
                               .capacity_all = p->capacity[p->n_account_classes],
                               .arg = p,
                               .class_name = p->t.classes[class_].name,
                               .class_ = class_};
}

/* ---- the state machine's form: queues as documents, held by callback ---- */
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
    for (; queue != NONE; queue = v->tree.parent[queue])
        c->sum[queue * 2 + all] += held;
}

/* The queues passed policy_queues_check: no cycle. */
void quota_callback_init(struct quota_callback *c, struct quota_view *ret, const char *class_,
                         const struct object *const *queues, size_t n,
                         int64_t (*held)(const char *queue, const char *class_, void *arg),
                         void *arg)
{
    bool any = false; /* does a line ask for GPUs of any class? */
    struct strmap by_name = {0};

    c->words = mem_zalloc(sizeof(*c->words) * QUEUE_TREE_WORDS(n));
    c->sum = mem_zalloc(sizeof(*c->sum) * ((n + 1) * 2 + (2 * n + 1) * 2));
    *ret = (struct quota_view){.queues = queues,
                               .n = (uint32_t)n,
                               .at = 1,
                               .kept = {&c->kept[0], &c->kept[1]},
                               .held = held_by_callback,
                               .capacity = -1,
                               .capacity_all = -1,
                               .arg = c,
                               .class_name = class_};
    for (size_t i = 0; i < 2; i++) {
        c->kept[i] = (struct quota_kept){.kept = c->sum + (n + 1) * 2 + (2 * n + 1) * i};
        c->kept[i].below = c->kept[i].kept + n;
    }
    queue_tree_init(&ret->tree, c->words, (uint32_t)n);
    for (uint32_t i = 0; i < n; i++)
        strmap_set(&by_name, queues[i]->meta->name, i);
    for (size_t i = 0; i < n; i++) {
        const char *parent = object_as(queues[i], queue)->spec->parent;

        ret->tree.parent[i] = *parent ? strmap_get(&by_name, parent) : NONE;
        any |= quota_line(queues[i], "") != NULL;
    }
    strmap_fini(&by_name);
    queue_tree_children(&ret->tree, (uint32_t)n);
    for (uint32_t i = 0; i <= n; i++) {
        const char *name = i < n ? queues[i]->meta->name : "";

        sum_up(c, ret, i < n ? i : NONE, false, held(name, class_, arg));
        if (any)
            sum_up(c, ret, i < n ? i : NONE, true, held(name, "", arg));
    }
}

void quota_callback_fini(struct quota_callback *c)
{
    mem_free(c->words);
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
