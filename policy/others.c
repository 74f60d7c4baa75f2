/* What others than Hanse hold of a node: pods and jobs that Hanse did not start. The pool, apply
 * and the ledger ask here, so that no two of them count differently.
 *
 * A device of which only the class is known is any of those that Hanse does not hold: whoever
 * places must leave as many of them entirely free. */
#include "policy/policy.h"

#include <string.h>

static const struct node_others *others_of(const struct node *n)
{
    return n && n->status ? n->status->others : NULL;
}

int64_t node_others_cpu(const struct node *n)
{
    const struct node_others *o = others_of(n);

    return o && o->cpu > 0 ? o->cpu : 0;
}

int64_t node_others_memory(const struct node *n)
{
    const struct node_others *o = others_of(n);

    return o && o->memory > 0 ? o->memory : 0;
}

bool node_others_device(const struct node *n, int64_t index)
{
    const struct node_others *o = others_of(n);

    for (uint32_t i = 0; o && i < o->n_gpus; i++)
        if (o->gpus[i] == index)
            return true;
    return false;
}

static bool class_means(const struct others_class *c, const char *class_, const char *model)
{
    return strcmp(c->class_, class_) == 0 || strcmp(c->class_, model) == 0;
}

static struct slice_kind kind_of(const struct others_class *c)
{
    return (struct slice_kind){c->mig ? c->mig : "", c->shares};
}

static int64_t alike(const struct node *n, const char *class_, const char *model,
                     struct slice_kind kind, int64_t most)
{
    const struct node_others *o = others_of(n);
    int64_t sum = 0;

    for (uint32_t i = 0; o && i < o->n_classes; i++) {
        int64_t count = o->classes[i].count;

        if (class_means(&o->classes[i], class_, model) && count > 0 &&
            slice_same(kind_of(&o->classes[i]), kind))
            sum += count < most ? count : most;
    }
    return sum;
}

int64_t node_others_alike(const struct node *n, const struct gpu *g)
{
    return alike(n, g->class_, g->model, (struct slice_kind){"", false}, LIMIT_NODE_GPUS);
}

int64_t node_others_counted(const struct node *n, const struct counted_gpus *c)
{
    return alike(n, c->class_, c->model, counted_kind(c), LIMIT_NODE_COUNTED);
}

static bool has_device(const struct node *n, int64_t index)
{
    for (uint32_t i = 0; i < n->spec->n_gpus; i++)
        if (n->spec->gpus[i].index == index)
            return true;
    return false;
}

static bool has_class(const struct node *n, const struct others_class *c)
{
    struct slice_kind kind = kind_of(c);

    for (uint32_t i = 0; !*kind.mig && !kind.shares && i < n->spec->n_gpus; i++)
        if (class_means(c, n->spec->gpus[i].class_, n->spec->gpus[i].model) &&
            !n->spec->gpus[i].n_migProfiles)
            return true;
    for (uint32_t i = 0; i < n->spec->n_counted; i++)
        if (class_means(c, n->spec->counted[i].class_, n->spec->counted[i].model) &&
            slice_same(counted_kind(&n->spec->counted[i]), kind))
            return true;
    return false;
}

static int not_told(const struct others_class *c, struct err *err)
{
    char what[128];

    if (!*kind_of(c).mig && !c->shares)
        return err_set(err, E_INVALID,
                       "others hold GPUs of class %.63s of it, of which it tells no whole one",
                       c->class_);
    slice_print(c->class_, kind_of(c), what, sizeof what);
    return err_set(err, E_INVALID, "others hold %s of it, which it does not count", what);
}

int node_others_check(const struct node *n, struct err *err)
{
    const struct node_others *o = others_of(n);

    if (!o || !n->spec)
        return 0;
    for (uint32_t i = 0; i < o->n_gpus; i++)
        if (!has_device(n, o->gpus[i]))
            return err_set(err, E_INVALID, "others hold GPU %lld of it, which it does not tell",
                           (long long)o->gpus[i]);
    for (uint32_t i = 0; i < o->n_classes; i++)
        if (!has_class(n, &o->classes[i]))
            return not_told(&o->classes[i], err);
    return 0;
}

int64_t node_others_of(const struct node *n, struct slice_kind kind)
{
    const struct node_others *o = others_of(n);
    int64_t sum = o && !*kind.mig && !kind.shares ? o->n_gpus : 0;

    for (uint32_t i = 0; o && i < o->n_classes; i++)
        sum += slice_same(kind_of(&o->classes[i]), kind) ? o->classes[i].count : 0;
    return sum;
}
