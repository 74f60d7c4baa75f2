/* Devices that a node has by count alone: their target picks which of them a worker gets, as the
 * kubelet does, and Slurm. They are whole GPUs, MIG instances (nvidia.com/mig-1g.10gb), or shares
 * of GPUs that several are given at once (nvidia.com/gpu.shared, Slurm's shards). The pool, apply,
 * the ledger and the leader ask here, so that no two of them count differently.
 *
 * Nothing may tell one of them from another of its kind. What is held of them is a number: what is
 * free is the healthy ones less that, less what others hold. */
#include "policy/policy.h"

#include <stdio.h>
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

bool slice_same(struct slice_kind a, struct slice_kind b)
{
    return a.shares == b.shares && strcmp(a.mig, b.mig) == 0;
}

void slice_print(const char *class_, struct slice_kind kind, char *out, size_t size)
{
    if (*kind.mig)
        (void)snprintf(out, size, "%.32s instances of %.63s", kind.mig, class_);
    else
        (void)snprintf(out, size, "%s%.63s", kind.shares ? "shares of " : "", class_);
}

/* ---- how much of a GPU one of them is ---- */
int32_t policy_mig_milli(const char *profile)
{
    int32_t slices = profile[0] >= '1' && profile[0] <= '7' ? profile[0] - '0' : 7;

    return (slices * 1000 + 6) / 7;
}

int32_t policy_share_milli(int64_t shares)
{
    return shares < 2 ? 1000 : shares > LIMIT_GPU_SHARES ? 1000 / LIMIT_GPU_SHARES
                                                         : (int32_t)(1000 / shares);
}

int64_t counted_milli(const struct counted_gpus *c, int64_t many)
{
    struct slice_kind k = counted_kind(c);

    return many * (*k.mig     ? policy_mig_milli(k.mig)
                   : k.shares ? policy_share_milli(c->shares)
                              : 1000);
}

/* ---- the rows of a node ---- */
struct counted_gpus node_counted(const struct node *n, const char *class_, struct slice_kind kind)
{
    struct counted_gpus sum = {.class_ = "", .model = "", .mig = ""};

    for (uint32_t i = 0; n && n->spec && i < n->spec->n_counted; i++) {
        const struct counted_gpus *c = &n->spec->counted[i];
        int64_t count = sum.count, unhealthy = sum.unhealthy;

        if (!means(c, class_) || !slice_same(counted_kind(c), kind))
            continue;
        if (!count)
            sum = *c;
        sum.count = count + counted_many(c);
        sum.unhealthy = unhealthy + counted_many(c) - counted_healthy(c);
    }
    return sum;
}

bool node_counts(const struct node *n, const char *class_)
{
    for (uint32_t i = 0; n && n->spec && i < n->spec->n_counted; i++)
        if (means(&n->spec->counted[i], class_))
            return true;
    return false;
}

static bool numbered(const struct node *n, const char *class_)
{
    for (uint32_t i = 0; i < n->spec->n_gpus; i++)
        if (strcmp(n->spec->gpus[i].class_, class_) == 0 ||
            strcmp(n->spec->gpus[i].model, class_) == 0)
            return true;
    return false;
}

/* "3g.40gb", "1c.2g.20gb", "1g.10gb+me": as vendors spell them, 1 to 7 slices of a GPU. */
static bool profile_is(const char *p)
{
    static const char digits[] = "0123456789";

    if (p[0] >= '1' && p[0] <= '7' && p[1] == 'c' && p[2] == '.')
        p += 3;
    if (p[0] < '1' || p[0] > '7' || p[1] != 'g' || p[2] != '.')
        return false;
    p += 3;
    size_t n = strspn(p, digits);
    if (!n || strncmp(p + n, "gb", 2) != 0)
        return false;
    p += n + 2;
    return !*p || (strchr("+.-", *p) && p[1]);
}

static int profiles_check(const struct node *n, struct err *err)
{
    for (uint32_t i = 0; n->spec && i < n->spec->n_gpus; i++) {
        const struct gpu *g = &n->spec->gpus[i];
        for (uint32_t k = 0; k < g->n_migProfiles; k++)
            if (!profile_is(g->migProfiles[k]))
                return err_set(err, E_INVALID, "\"%.32s\" of GPU %lld is no MIG profile",
                               g->migProfiles[k], (long long)g->index);
    }
    return 0;
}

int node_counted_check(const struct node *n, struct err *err)
{
    int64_t sum = 0;

    if (profiles_check(n, err) < 0)
        return E_INVALID;
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
        if (*counted_kind(c).mig && c->shares)
            return err_set(err, E_INVALID, "it counts shares of MIG instances, %.32s of %.63s",
                           c->mig, class_);
        if (*counted_kind(c).mig && !profile_is(c->mig))
            return err_set(err, E_INVALID, "\"%.32s\" of %.63s is no MIG profile", c->mig, class_);
        if (c->shares < 0 || c->shares == 1 || c->shares > LIMIT_GPU_SHARES)
            return err_set(err, E_INVALID,
                           "of %.63s it counts %lld shares of each GPU; 2 to %d can be", class_,
                           (long long)c->shares, LIMIT_GPU_SHARES);
        if (c->shares > 1 && c->count % c->shares)
            return err_set(err, E_INVALID,
                           "of %.63s it counts %lld shares, and each GPU has %lld of them", class_,
                           (long long)c->count, (long long)c->shares);
        if (node_counted(n, class_, counted_kind(c)).count != c->count || numbered(n, class_))
            return err_set(err, E_INVALID, "it tells %.63s twice: by numbers and counts, or in two",
                           class_);
    }
    return 0;
}
