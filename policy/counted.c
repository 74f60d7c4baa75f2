/* Devices that a node has by count alone: their target picks which of them a worker gets, as the
 * kubelet does, and Slurm. The pool, apply, the ledger and the leader ask here, so that no two of
 * them count differently.
 *
 * Nothing may tell one of them from another. What is held of them is a number: what is free is the
 * healthy ones less that, less what others hold. */
#include "policy/policy.h"

#include <string.h>

static bool means(const struct counted_gpus *c, const char *class_)
{
    return strcmp(*c->class_ ? c->class_ : c->model, class_) == 0;
}

int64_t counted_many(const struct counted_gpus *c)
{
    return c->count < 0 ? 0 : c->count < LIMIT_NODE_COUNTED ? c->count : LIMIT_NODE_COUNTED;
}

int64_t counted_healthy(const struct counted_gpus *c)
{
    int64_t many = counted_many(c), away = c->unhealthy > 0 ? c->unhealthy : 0;

    return many > away ? many - away : 0;
}

struct counted_gpus node_counted(const struct node *n, const char *class_)
{
    struct counted_gpus sum = {.class_ = "", .model = ""};

    for (uint32_t i = 0; n && n->spec && i < n->spec->n_counted; i++) {
        const struct counted_gpus *c = &n->spec->counted[i];
        int64_t count = sum.count, unhealthy = sum.unhealthy;

        if (!means(c, class_))
            continue;
        if (!count)
            sum = *c;
        sum.count = count + counted_many(c);
        sum.unhealthy = unhealthy + counted_many(c) - counted_healthy(c);
    }
    return sum;
}

static bool numbered(const struct node *n, const char *class_)
{
    for (uint32_t i = 0; i < n->spec->n_gpus; i++)
        if (strcmp(n->spec->gpus[i].class_, class_) == 0 ||
            strcmp(n->spec->gpus[i].model, class_) == 0)
            return true;
    return false;
}

int node_counted_check(const struct node *n, struct err *err)
{
    int64_t sum = 0;

    for (uint32_t i = 0; n->spec && i < n->spec->n_counted; i++) {
        const struct counted_gpus *c = &n->spec->counted[i];
        const char *class_ = *c->class_ ? c->class_ : c->model;

        if (!*class_)
            return err_set(err, E_INVALID, "it counts GPUs of which it tells no class nor model");
        if (c->count < 1 || c->count > LIMIT_NODE_COUNTED || c->unhealthy < 0 ||
            c->unhealthy > c->count)
            return err_set(err, E_INVALID, "of %.63s it counts %lld, %lld of them unhealthy",
                           class_, (long long)c->count, (long long)c->unhealthy);
        sum += c->count;
        if (sum > LIMIT_NODE_COUNTED)
            return err_set(err, E_INVALID, "it counts more than %d GPUs", LIMIT_NODE_COUNTED);
        if (node_counted(n, class_).count != c->count || numbered(n, class_))
            return err_set(err, E_INVALID, "it tells %.63s twice: by numbers and counts, or in two",
                           class_);
    }
    return 0;
}
