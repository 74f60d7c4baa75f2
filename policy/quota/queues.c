/* Checks that a set of queues is consistent, when documents are applied: parents exist, there is no
 * cycle, guarantees are within the parent's and within the queue's own limits, and a namespace is
 * in one queue only. Quota can keep what passes here. */
#include "policy/quota/quota_internal.h"

#include <string.h>

struct check {
    const struct object *const *queues;
    uint32_t n;
    struct queue_tree tree;
    struct strmap by_name, first, second; /* first, second: to hold a namespace */
};

#define MISSING (NONE - 1) /* it names a parent that is not there */

/* The first whose way up does not come to a root; an answer that has been given stays the same. */
static int way_up(const struct check *c, uint32_t i, struct err *err)
{
    const char *name = c->queues[i]->meta->name;
    uint32_t at = i;

    for (uint32_t steps = 0; c->tree.parent[at] != NONE; steps++, at = c->tree.parent[at]) {
        if (c->tree.parent[at] == MISSING)
            return err_field(err, E_INVALID, "spec.parent",
                             "queue %s: its parent %s does not exist; create it or name another",
                             name, object_as(c->queues[at], queue)->spec->parent);
        if (steps >= c->n || c->tree.parent[at] == i)
            return err_field(err, E_INVALID, "spec.parent",
                             "queue %s: its parents form a cycle; make one of them a root", name);
    }
    return 0;
}

static int check_parents(struct check *c, struct err *err)
{
    bool missing = false;
    int r = 0;

    for (uint32_t i = 0; i < c->n; i++)
        strmap_set(&c->by_name, c->queues[i]->meta->name, i);
    for (uint32_t i = 0; i < c->n; i++) {
        const char *up = object_as(c->queues[i], queue)->spec->parent;

        c->tree.parent[i] = *up ? strmap_get(&c->by_name, up) : NONE;
        if (!*up || c->tree.parent[i] != NONE)
            continue;
        c->tree.parent[i] = MISSING;
        missing = true;
    }
    if (!missing)
        queue_tree_children(&c->tree, c->n);
    /* Who is in a cycle, or below one, comes in no order from the root down. */
    if (missing || (c->n && c->tree.order[c->n - 1] == NONE))
        for (uint32_t i = 0; r == 0 && i < c->n; i++)
            r = way_up(c, i, err);
    return r;
}

/* The schema bounds what users write; what is in the state may be of before it. */
static int64_t sum_of(int64_t a, int64_t b)
{
    int64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? (a < 0 ? INT64_MIN : INT64_MAX) : sum;
}

static int check_guaranteed(const struct check *c, uint32_t at, const struct queue_gpus *g,
                            struct err *err)
{
    const struct object *q = c->queues[at];
    int64_t below = 0;

    if (QUOTA_GIVEN(g, burst) && g->burst < g->guaranteed)
        return err_field(err, E_INVALID, "spec.gpus",
                         "queue %s: burst %lld of class %s is below its guaranteed %lld",
                         q->meta->name, (long long)g->burst, g->class_[0] ? g->class_ : "any",
                         (long long)g->guaranteed);
    for (uint32_t i = c->tree.child[at]; i != NONE; i = c->tree.sibling[i]) {
        const struct queue_gpus *child = quota_line(c->queues[i], g->class_);

        below = sum_of(below, child ? child->guaranteed : 0);
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

/* A limit on GPUs of any class must leave room for what is guaranteed by class. */
static int check_any(const struct object *q, struct err *err)
{
    const struct queue_spec *s = object_as(q, queue)->spec;
    const struct queue_gpus *any = quota_line(q, "");
    int64_t sum = 0, most = INT64_MAX;

    for (uint32_t i = 0; i < s->n_gpus; i++)
        sum = sum_of(sum, s->gpus[i].class_[0] ? s->gpus[i].guaranteed : 0);
    if (any && QUOTA_GIVEN(any, burst))
        most = any->burst;
    if (any && QUOTA_GIVEN(any, borrowLimit) && sum_of(any->guaranteed, any->borrowLimit) < most)
        most = sum_of(any->guaranteed, any->borrowLimit);
    if (sum > most)
        return err_field(err, E_INVALID, "spec.gpus",
                         "queue %s guarantees %lld GPUs by class, but may hold %lld of any class; "
                         "raise that burst or borrowLimit",
                         q->meta->name, (long long)sum, (long long)most);
    return 0;
}

static int check_child_classes(const struct check *c, uint32_t at, struct err *err)
{
    const struct queue_spec *s = object_as(c->queues[at], queue)->spec;
    uint32_t up = c->tree.parent[at];

    for (uint32_t i = 0; up != NONE && i < s->n_gpus; i++) {
        if (s->gpus[i].guaranteed && !quota_line(c->queues[up], s->gpus[i].class_))
            return err_field(err, E_INVALID, "spec.gpus",
                             "queue %s guarantees class %s, of which its parent %s guarantees none",
                             c->queues[at]->meta->name,
                             s->gpus[i].class_[0] ? s->gpus[i].class_ : "any", s->parent);
    }
    return 0;
}

static void namespaces_read(struct check *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const struct queue_spec *s = object_as(c->queues[i], queue)->spec;

        for (uint32_t k = 0; k < s->n_namespaces; k++) {
            uint32_t first = strmap_get(&c->first, s->namespaces[k]);

            if (first == NONE)
                strmap_set(&c->first, s->namespaces[k], i);
            else if (first != i && strmap_get(&c->second, s->namespaces[k]) == NONE)
                strmap_set(&c->second, s->namespaces[k], i);
        }
    }
}

static int check_namespaces(const struct check *c, uint32_t at, struct err *err)
{
    const struct queue_spec *s = object_as(c->queues[at], queue)->spec;

    for (uint32_t k = 0; k < s->n_namespaces; k++) {
        uint32_t other = strmap_get(&c->second, s->namespaces[k]);

        if (other != NONE && other != at)
            return err_field(err, E_INVALID, "spec.namespaces",
                             "namespace %s is in queue %s and in queue %s; it can be in one only",
                             s->namespaces[k], c->queues[at]->meta->name,
                             c->queues[other]->meta->name);
    }
    return 0;
}

static int check_all(struct check *c, struct err *err)
{
    int r = check_parents(c, err);

    namespaces_read(c);
    for (uint32_t i = 0; r == 0 && i < c->n; i++) {
        const struct queue_spec *s = object_as(c->queues[i], queue)->spec;

        for (uint32_t k = 0; r == 0 && k < s->n_gpus; k++)
            r = check_guaranteed(c, i, &s->gpus[k], err);
        if (r == 0)
            r = check_any(c->queues[i], err);
        if (r == 0)
            r = check_child_classes(c, i, err);
        if (r == 0)
            r = check_namespaces(c, i, err);
    }
    return r;
}

int policy_queues_check(const struct object *const *queues, size_t n, struct err *err)
{
    struct check c = {.queues = queues, .n = (uint32_t)n};
    uint32_t *words = mem_zalloc(sizeof(*words) * QUEUE_TREE_WORDS(n));
    int r;

    queue_tree_init(&c.tree, words, c.n);
    r = check_all(&c, err);
    strmap_fini(&c.by_name);
    strmap_fini(&c.first);
    strmap_fini(&c.second);
    mem_free(words);
    return r;
}
