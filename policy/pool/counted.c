/* Devices that are counted, and what counts against devices without naming them: others' share, and
 * holds of ours that know a number of devices, or numbers that their node tells no more.
 *
 * Of devices without numbers the table has as many as are healthy, each like any other. What is
 * held of them is taken from the freest, and given back to the fullest: so their sum alone says how
 * full they are, whatever came and went in which order, and it may be more than there is. */
#include "policy/pool/pool_internal.h"

#include <string.h>

struct gpu counted_device(const struct counted_gpus *c)
{
    return (struct gpu){.index = -1, .class_ = c->class_, .model = c->model, .memory = c->memory};
}

uint32_t counted_devices(const struct node_spec *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_counted; i++)
        n += (uint32_t)counted_healthy(&s->counted[i]);
    return n;
}

bool same_counted(const struct node_spec *a, const struct node_spec *b)
{
    bool same = a->n_counted == b->n_counted;

    for (uint32_t i = 0; same && i < a->n_counted; i++)
        same = body_equal(&schema_counted_gpus, &a->counted[i], &b->counted[i]);
    return same;
}

void table_counted(struct table *t, uint32_t node)
{
    const struct node_rec *n = &t->nodes[node];
    const struct node_spec *s = n->doc->spec;
    struct device *d = &t->devices[n->dev0 + s->n_gpus];

    for (uint32_t i = 0; i < s->n_counted; i++) {
        struct gpu *g = arena_new(t->mem, struct gpu);

        *g = counted_device(&s->counted[i]);
        g->class_ = arena_strdup(t->mem, g->class_);
        g->model = arena_strdup(t->mem, g->model);
        t->sick |= s->counted[i].unhealthy > 0;
        for (int64_t k = counted_healthy(&s->counted[i]); k > 0; k--)
            *d++ = (struct device){
                .spec = g, .node = node, .member = NONE, .free_milli = 1000, .counted = true};
    }
}

/* ---- what is held without a number ---- */
struct device *counted_take(const struct table *t, const struct node_rec *n, const char *class_,
                            int sign)
{
    struct device *best = NULL;

    for (uint32_t i = n->dev0; i < n->dev0 + n->n_dev; i++) {
        struct device *d = &t->devices[i];

        if (!d->counted || d->member == NONE ||
            strcmp(t->classes[t->groups[t->members[d->member].group].class_].name, class_) != 0)
            continue;
        if (!best || (sign > 0 ? d->free_milli > best->free_milli
                               : d->free_milli < best->free_milli))
            best = d;
    }
    return best;
}

/* Its node numbers its devices now: as many of them are left alone. */
static void stray_apply(struct table *t, const struct node_rec *n, const char *class_,
                        int64_t count, int sign)
{
    for (uint32_t m = n->member; m != NONE; m = t->members[m].next) {
        struct member *mb = &t->members[m];

        if (strcmp(t->classes[t->groups[mb->group].class_].name, class_) != 0)
            continue;
        if (n->ok)
            table_member_bucket(t, m, false);
        mb->strayed += (uint32_t)(sign * (int32_t)count);
        if (n->ok)
            table_member_bucket(t, m, true);
        return;
    }
}

int64_t counted_held(const struct table *t, const struct node_rec *n, const struct hold *h,
                     const struct hold_at *at)
{
    int64_t count = at->count;

    if (!counted_take(t, n, h->class_, 1))
        return 0;
    for (uint32_t k = 0; k < at->n_gpus; k++)
        count += !node_device(t, n, at->gpus[k]); /* its node counts its devices now */
    return count;
}

void counted_apply(struct table *t, const struct hold *h, const struct hold_at *at, int sign)
{
    const struct node_rec *n = &t->nodes[at->slot];
    int64_t count = counted_held(t, n, h, at);

    if (!count && at->count)
        stray_apply(t, n, h->class_, at->count, sign);
    for (; count > 0; count--) {
        struct device *d = counted_take(t, n, h->class_, sign);

        table_device_move(t, d, d->free_milli - sign * at->milli);
    }
}

/* ---- what others hold ---- */
static int64_t others_alike(const struct node *n, const struct device *d)
{
    const struct counted_gpus c = {.class_ = d->spec->class_, .model = d->spec->model};

    return d->counted ? node_others_counted(n, &c) : node_others_alike(n, d->spec);
}

/* What others hold of its devices: a whole one each, as if it were held here. `was`: the document
 * by which it was counted before, or NULL. */
void table_others(struct table *t, uint32_t node, const struct node *was)
{
    const struct node_rec *n = &t->nodes[node];

    t->others |= n->doc->status && n->doc->status->others;
    for (uint32_t m = n->member; m != NONE && t->others; m = t->members[m].next) {
        uint32_t others = 0;

        for (uint32_t i = n->dev0; i < n->dev0 + n->n_dev && !others; i++)
            if (t->devices[i].member == m && !t->devices[i].mig)
                others = (uint32_t)others_alike(n->doc, &t->devices[i]);
        if (n->ok)
            table_member_bucket(t, m, false);
        t->members[m].others = others;
        if (n->ok)
            table_member_bucket(t, m, true);
    }
    for (uint32_t i = n->dev0; i < n->dev0 + n->n_dev && t->others; i++) {
        struct device *d = &t->devices[i];
        if (d->counted)
            break; /* the last of the node: they have no numbers */
        int32_t had = was && node_others_device(was, d->spec->index) ? 1000 : 0;
        int32_t has = node_others_device(n->doc, d->spec->index) ? 1000 : 0;

        if (d->mig)
            d->mig_used |= has && !had ? ~0ull : 0;
        else if (had != has)
            table_device_move(t, d, d->free_milli + had - has);
    }
}
