/* Refusals: what the state is told of one, and whom a pause concerns. Only what blames the target
 * slows all of it. */
#include "controlplane/leader/context/refusals.h"

#include <string.h>

int64_t brain_time_ms(const struct brain *b)
{
    return b->cfg.core ? core_time_ms(b->cfg.core) : root_time(b->root);
}

bool refusal_pause(const struct root *r, const struct object *workload, const char *target,
                   const struct refusal *why, struct target_pause *ret)
{
    const struct object *o = root_get(r, KIND_TARGET, "", target);

    if (!why->class_ || !o || root_feature_level(r) < FEATURE_GRANTS)
        return false;
    *ret = (struct target_pause){.scope = why->scope ? why->scope : BLAMES_TARGET,
                                 .name = why->name,
                                 .refusal = why->class_,
                                 .message = "",
                                 .since = root_time(r)};
    int64_t told = why->retry_ms < INT64_MAX ? (int64_t)why->retry_ms : INT64_MAX;
    ret->until = ret->scope == BLAMES_WORKLOAD
                     ? policy_denied_until(object_as(workload, workload)->status, target,
                                           ret->refusal, ret->since, told)
                     : policy_pause_until(object_as(o, target)->status, ret, told);
    return true;
}

static bool in_zone(const struct root *r, const struct placement *p, const struct object *target,
                    const char *zone)
{
    for (uint32_t i = 0; i < p->n_assignments; i++) {
        const struct object *o = root_get(r, KIND_NODE, "", p->assignments[i].node);
        const struct topology *w = o ? object_as(o, node)->spec->topology : NULL;
        const char *is = w && *w->zone ? w->zone : object_as(target, target)->spec->site;
        if (strcmp(is, zone) == 0)
            return true;
    }
    return false;
}

int64_t refusal_lasts(const struct brain *b, const struct object *workload, const char *target)
{
    const struct object *o = root_get(b->root, KIND_TARGET, "", target);
    const struct target_status *s = o ? object_as(o, target)->status : NULL;
    const struct placement *p = object_as(workload, workload)->status->placement;
    int64_t now = s && s->n_pauses ? brain_time_ms(b) : 0, most = 0;

    for (uint32_t i = 0; p && s && i < s->n_pauses; i++) {
        const struct target_pause *x = &s->pauses[i];
        bool hit = x->scope == BLAMES_TARGET ||
                   (x->scope == BLAMES_CLASS && strcmp(x->name, p->class_) == 0) ||
                   (x->scope == BLAMES_ZONE && in_zone(b->root, p, o, x->name));
        if (hit && x->until - now > most)
            most = x->until - now;
    }
    return most;
}
