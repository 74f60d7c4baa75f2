/* What is wrong with a node or a device of it, as its target told: in sentences, and whether it can
 * be. That nothing is placed there follows from `health`, which the leader sets by it before the
 * log hears of the node (controlplane/leader/site/listing.c). */
#include "policy/policy.h"

#include <stdio.h>

/* 0 is a number like any other when it was given, which the field's bit tells. */
#define PLACE_OF(type, c, ...) PLACE_##c,
enum { SCHEMA_node_fault(PLACE_OF) };
#undef PLACE_OF

int64_t fault_device(const struct node_fault *f)
{
    return f->gpu > 0 || (f->has >> PLACE_gpu & 1) ? f->gpu : -1;
}

enum health fault_health(const struct node_fault *f)
{
    return f->health ? f->health : HEALTH_SICK;
}

const struct node_fault *node_fault(const struct node *n, int64_t device)
{
    const struct node_status *s = n->status;

    for (uint32_t i = 0; s && i < s->n_faults; i++)
        if (fault_device(&s->faults[i]) == device)
            return &s->faults[i];
    return NULL;
}

void node_fault_print(const char *node, const struct node_fault *f, char *out, size_t size)
{
    char since[32] = "", device[40] = "";

    if (f->since)
        time_print(f->since, since);
    if (fault_device(f) >= 0)
        (void)snprintf(device, sizeof(device), "GPU %lld of ", (long long)fault_device(f));
    (void)snprintf(out, size, "%snode %.80s is %s: %.63s, by %s%s%s%s%.120s", device, node,
                   fault_health(f) == HEALTH_SICK ? "sick" : "not ready", f->reason,
                   health_source_text(f->source), *since ? ", since " : "", since,
                   *f->message ? ": " : "", f->message);
}

int node_faults_check(const struct node *n, struct err *err)
{
    const struct node_status *s = n->status;

    for (uint32_t i = 0; s && n->spec && i < s->n_faults; i++) {
        const struct node_fault *f = &s->faults[i];
        bool known = fault_device(f) < 0;

        for (uint32_t k = 0; k < n->spec->n_gpus; k++)
            known |= n->spec->gpus[k].index == fault_device(f);
        if (!known)
            return err_set(err, E_INVALID, "a fault of GPU %lld of it, which it does not tell",
                           (long long)fault_device(f));
        if (fault_health(f) != HEALTH_SICK && fault_health(f) != HEALTH_NOT_READY)
            return err_set(err, E_INVALID, "a fault (%.63s) by which it would be healthy",
                           f->reason);
    }
    return 0;
}
