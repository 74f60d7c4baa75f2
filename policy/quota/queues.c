/* Do queues hold together? Asked when documents are applied: parents exist, no cycle, guarantees
 * within the parent's and within the queue's own limits, a namespace in one queue only. What passes
 * here quota can keep. */
#include "policy/place/place_internal.h"

#include <string.h>

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

    if (QUOTA_GIVEN(g, burst) && g->burst < g->guaranteed)
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

/* A limit on GPUs of any class must leave room for what is guaranteed by class. */
static int check_any(const struct object *q, struct err *err)
{
    const struct queue_spec *s = object_as(q, queue)->spec;
    const struct queue_gpus *any = quota_line(q, "");
    int64_t sum = 0, most = INT64_MAX;

    for (uint32_t i = 0; i < s->n_gpus; i++)
        sum += s->gpus[i].class_[0] ? s->gpus[i].guaranteed : 0;
    if (any && QUOTA_GIVEN(any, burst))
        most = any->burst;
    if (any && QUOTA_GIVEN(any, borrowLimit) && any->guaranteed + any->borrowLimit < most)
        most = any->guaranteed + any->borrowLimit;
    if (sum > most)
        return err_field(err, E_INVALID, "spec.gpus",
                         "queue %s guarantees %lld GPUs by class, but may hold %lld of any class; "
                         "raise that burst or borrowLimit",
                         q->meta->name, (long long)sum, (long long)most);
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
            r = check_any(queues[i], err);
        if (r == 0)
            r = check_child_classes(queues, n, queues[i], err);
        if (r == 0)
            r = check_namespaces(queues, n, i, err);
    }
    return r;
}
