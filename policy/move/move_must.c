/* Decides whether a run must leave its place. Only what makes the place itself unfit counts: a
 * compliance policy that forbids it now, a sick node or device, a node that was announced to go
 * away, a drained target. A node that is NotReady or gone proves nothing; an unreachable target is
 * a matter of the partition policy; and a PlacementPolicy or a window that would choose otherwise
 * today moves nothing: they choose the place of new work. */
#include "policy/move/move_internal.h"

#include <stdio.h>
#include <string.h>

/* What runs saves where its order told it to, whatever its spec says since. */
static const char *store_told(const struct workload *w)
{
    const struct intent *in = w->status ? w->status->intent : NULL;

    return in && in->granted ? in->store : store_asked(w->spec);
}

static const char *logs_told(const struct workload *w)
{
    const struct intent *in = w->status ? w->status->intent : NULL;

    return in && in->logs ? in->logs->store : "";
}

static bool breaks_compliance(const struct pool *p, const struct object *w,
                              const struct object *target, char *why, size_t size)
{
    const struct docs *d = &p->docs[KIND_COMPLIANCE_POLICY], *targets = &p->docs[KIND_TARGET];
    const char *store = store_told(object_as(w, workload));
    const char *logs = logs_told(object_as(w, workload));
    const struct object *keeper;
    const struct workload_spec *s = object_as(w, workload)->spec;
    const struct object *datasets[64];
    uint32_t n = s->n_data < 64 ? s->n_data : 64;

    for (uint32_t i = 0; i < n; i++)
        datasets[i] = docs_get(&p->docs[KIND_DATASET], w->meta->namespace_, s->data[i].dataset);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct compliance_policy_spec *c = object_as(d->v[i], compliance_policy)->spec;
        unsigned covers =
            c->mode == MODE_AUDIT ? 0 : compliance_covers(d->v[i], w, datasets, n, store);
        enum reason r = covers ? compliance_allows(c->allow, target) : REASON_NONE;

        if (r != REASON_NONE) {
            compliance_sentence(r, d->v[i], target, why, size);
            return true;
        }
        if (covers & COVERS_BIT(COVERS_LOGS))
            r = compliance_allows_logs(c->allow, logs, targets->v, targets->n, &keeper);
        if (r != REASON_NONE) {
            compliance_logs_sentence(r, d->v[i], logs, keeper, why, size);
            return true;
        }
        if (!(covers & COVERS_BIT(COVERS_CHECKPOINT)))
            continue;
        r = compliance_allows_store(c->allow, store, targets->v, targets->n, &keeper);
        if (r == REASON_NONE)
            continue;
        compliance_store_sentence(r, d->v[i], store, keeper, why, size);
        return true;
    }
    return false;
}

/* The device of the assignment that is sick, or -1. */
static int64_t device_sick(const struct node_spec *s, const struct assignment *a)
{
    for (uint32_t i = 0; i < a->n_gpus; i++) {
        for (uint32_t k = 0; k < s->n_gpus; k++) {
            if (s->gpus[k].index == a->gpus[i] && s->gpus[k].health == HEALTH_SICK)
                return a->gpus[i];
        }
    }
    return -1;
}

static bool on_sick_node(const struct pool *p, const struct placement *at, char *why, size_t size)
{
    for (uint32_t i = 0; i < at->n_assignments; i++) {
        const struct assignment *a = &at->assignments[i];
        const struct object *o = docs_get(&p->docs[KIND_NODE], "", a->node);
        const struct node *n = o ? object_as(o, node) : NULL;

        if (!n)
            continue;
        int64_t device = device_sick(n->spec, a);
        bool sick = n->status && n->status->health == HEALTH_SICK;
        const struct node_fault *f = sick || device >= 0 ? node_fault(n, sick ? -1 : device) : NULL;

        if (f) {
            node_fault_print(a->node, f, why, size);
            return true;
        }
        if (sick) {
            (void)snprintf(why, size, "node %s is sick%s%s", a->node,
                           n->status->reason[0] ? ": " : "", n->status->reason);
            return true;
        }
        if (device >= 0) {
            (void)snprintf(why, size, "a GPU of node %s is sick", a->node);
            return true;
        }
    }
    return false;
}

const struct node_notice *policy_notice(const struct pool *p, const struct placement *at,
                                        const char **ret_node)
{
    const struct node_notice *first = NULL;

    for (uint32_t i = 0; at && i < at->n_assignments; i++) {
        const struct object *o = docs_get(&p->docs[KIND_NODE], "", at->assignments[i].node);
        const struct node_status *s = o ? object_as(o, node)->status : NULL;
        const struct node_notice *n = s ? s->notice : NULL;

        if (!n || (first && (!n->deadline || (first->deadline && first->deadline <= n->deadline))))
            continue;
        first = n;
        if (ret_node)
            *ret_node = o->meta->name;
    }
    return first;
}

enum move_cause must_leave(const struct pool *p, const struct object *workload, char *why,
                           size_t size)
{
    const struct workload_status *s = object_as(workload, workload)->status;
    const struct placement *at = s ? s->placement : NULL;
    const struct object *target = at ? docs_get(&p->docs[KIND_TARGET], "", at->target) : NULL;
    const struct node_notice *notice;
    const char *node = "";

    if (!at)
        return (enum move_cause)0;
    if (target && breaks_compliance(p, workload, target, why, size))
        return MOVE_COMPLIANCE;
    if (on_sick_node(p, at, why, size))
        return MOVE_SICK;
    notice = policy_notice(p, at, &node);
    if (target && target_spec_of(target)->drain && !(notice && notice->deadline)) {
        (void)snprintf(why, size, "target %s is drained", at->target);
        return MOVE_DRAIN;
    }
    if (!notice)
        return (enum move_cause)0;
    policy_notice_print(node, notice, why, size);
    return MOVE_SPOT;
}

enum move_cause policy_must_leave(const struct pool *p, const struct object *workload,
                                  int64_t now_ms)
{
    const struct workload_status *s = object_as(workload, workload)->status;
    char why[256];
    enum move_cause cause = must_leave(p, workload, why, sizeof(why));

    if (cause == MOVE_SPOT && s->movedAt && now_ms - s->movedAt < MOVE_MIN_STAY_MS &&
        !policy_notice(p, s->placement, NULL)->deadline)
        return (enum move_cause)0;
    return cause;
}
