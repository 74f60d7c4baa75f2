/* Devices that are counted, and what counts against devices without naming them: others' share, and
 * holds of ours that know a number of devices, or numbers that their node tells no more.
 *
 * Of devices without numbers the table has as many as are healthy, each like any other. What is
 * held of them is taken from the freest, and given back to the fullest: so their sum alone says how
 * full they are, whatever came and went in which order, and it may be more than there is. */
#include "policy/pool/pool_internal.h"

#include <string.h>

#define SLICES_MAX 64 /* places in the sets of one device */

struct gpu counted_device(const struct counted_gpus *c)
{
    return (struct gpu){.index = -1, .class_ = c->class_, .model = c->model, .memory = c->memory};
}

static bool is_sliced(const struct counted_gpus *c)
{
    return *counted_kind(c).mig || c->shares > 0;
}

uint32_t counted_devices(const struct node_spec *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_counted; i++) {
        uint32_t many = (uint32_t)counted_healthy(&s->counted[i]);
        n += is_sliced(&s->counted[i]) ? (many + SLICES_MAX - 1) / SLICES_MAX : many;
    }
    return n;
}

bool same_counted(const struct node_spec *a, const struct node_spec *b)
{
    bool same = a->n_counted == b->n_counted;

    for (uint32_t i = 0; same && i < a->n_counted; i++)
        same = body_equal(&schema_counted_gpus, &a->counted[i], &b->counted[i]);
    return same;
}

static const char *slice_text(struct table *t, const struct counted_gpus *c)
{
    return c->shares > 0 ? arena_printf(t->mem, "1/%lld", (long long)c->shares)
                         : arena_strdup(t->mem, c->mig);
}

/* One device that is cut into so many. */
static struct device sliced(struct table *t, uint32_t node, const struct counted_gpus *c,
                            const struct gpu *like, const char *slice, uint32_t many)
{
    struct gpu *g = arena_memdup(t->mem, like, sizeof *like);

    g->migProfiles = arena_array(t->mem, const char *, many);
    g->n_migProfiles = many;
    for (uint32_t i = 0; i < many; i++)
        g->migProfiles[i] = slice;
    return (struct device){.spec = g,
                           .node = node,
                           .member = NONE,
                           .free_milli = 1000,
                           .counted = true,
                           .mig = true,
                           .mig_over = arena_array(t->mem, uint16_t, many),
                           .shares = c->shares > 0 ? (uint32_t)c->shares : 0,
                           .slice_milli = (int32_t)counted_milli(c, 1)};
}

void table_counted(struct table *t, uint32_t node)
{
    const struct node_rec *n = &t->nodes[node];
    const struct node_spec *s = n->doc->spec;
    struct device *d = &t->devices[n->dev0 + s->n_gpus];

    for (uint32_t i = 0; i < s->n_counted; i++) {
        const struct counted_gpus *c = &s->counted[i];
        const char *slice = is_sliced(c) ? slice_text(t, c) : NULL;
        struct gpu *g = arena_new(t->mem, struct gpu);

        *g = counted_device(c);
        g->class_ = arena_strdup(t->mem, g->class_);
        g->model = arena_strdup(t->mem, g->model);
        t->sick |= c->unhealthy > 0;
        for (int64_t left = counted_healthy(c), k; left > 0; left -= k, d++) {
            k = !slice ? 1 : left < SLICES_MAX ? left : SLICES_MAX;
            if (slice)
                *d = sliced(t, node, c, g, slice, (uint32_t)k);
            else
                *d = (struct device){
                    .spec = g, .node = node, .member = NONE, .free_milli = 1000, .counted = true};
        }
    }
}

/* ---- what is held without a number ---- */
bool device_kind_is(const struct device *d, struct slice_kind kind)
{
    if (!d->counted)
        return false;
    if (!d->mig || d->shares)
        return kind.shares == (d->shares > 0) && !*kind.mig;
    return !kind.shares && strcmp(d->spec->migProfiles[0], kind.mig) == 0;
}

/* What is free of it; below 0 when more is held than there is. */
static int64_t device_free(const struct device *d)
{
    uint64_t all = d->spec->n_migProfiles < 64 ? (1ull << d->spec->n_migProfiles) - 1 : ~0ull;

    return d->mig ? __builtin_popcountll(all & ~d->mig_used) - d->mig_over[0] : d->free_milli;
}

static const char *class_name(const struct table *t, const struct device *d)
{
    return t->classes[t->groups[t->members[d->member].group].class_].name;
}

struct device *counted_take(const struct table *t, const struct node_rec *n, const char *class_,
                            struct slice_kind kind, int sign)
{
    struct device *best = NULL;

    for (uint32_t i = n->dev0; i < n->dev0 + n->n_dev; i++) {
        struct device *d = &t->devices[i];

        if (d->member == NONE || !device_kind_is(d, kind) ||
            strcmp(class_name(t, d), class_) != 0)
            continue;
        if (!best || (sign > 0 ? device_free(d) > device_free(best)
                               : device_free(d) < device_free(best)))
            best = d;
    }
    return best;
}

static int64_t lost_numbers(const struct table *t, const struct node_rec *n,
                            const struct hold_at *at)
{
    int64_t lost = 0;

    for (uint32_t k = 0; k < at->n_gpus; k++)
        lost += !node_device(t, n, at->gpus[k]); /* its node counts its devices now */
    return lost;
}

int64_t counted_held(const struct table *t, const struct node_rec *n, const struct hold *h,
                     const struct hold_at *at)
{
    return counted_take(t, n, h->class_, hold_at_kind(at), 1) ? at->count + lost_numbers(t, n, at)
                                                              : 0;
}

int64_t counted_strayed(const struct table *t, const struct node_rec *n, const struct hold *h,
                        const struct hold_at *at, const struct group *g)
{
    int64_t count = at->count;

    if (strcmp(t->classes[g->class_].name, h->class_) != 0 ||
        node_counted(n->doc, h->class_, hold_at_kind(at)).count)
        return 0;
    if (node_counts(n->doc, h->class_))
        count += lost_numbers(t, n, at);
    return g->shares ? count * g->shares : count;
}

static void stray_apply(struct table *t, const struct node_rec *n, const struct hold *h,
                        const struct hold_at *at, int sign)
{
    for (uint32_t m = n->member; m != NONE; m = t->members[m].next) {
        struct member *mb = &t->members[m];
        int64_t count = counted_strayed(t, n, h, at, &t->groups[mb->group]);

        if (!count)
            continue;
        if (n->ok)
            table_member_bucket(t, m, false);
        mb->strayed += (uint32_t)(sign * count);
        if (n->ok)
            table_member_bucket(t, m, true);
    }
}

void counted_apply(struct table *t, const struct hold *h, const struct hold_at *at, int sign)
{
    const struct node_rec *n = &t->nodes[at->slot];
    int64_t count = counted_held(t, n, h, at);

    if (!count)
        stray_apply(t, n, h, at, sign);
    for (; count > 0; count--) {
        struct device *d = counted_take(t, n, h->class_, hold_at_kind(at), sign);

        if (d->mig)
            device_mig_take(d, d->spec->migProfiles[0], sign);
        else
            table_device_move(t, d, d->free_milli - sign * at->milli);
    }
}

/* ---- what others hold ---- */
static int64_t others_alike(const struct node *n, const struct device *d)
{
    const struct counted_gpus c = {
        .class_ = d->spec->class_, .model = d->spec->model, .mig = "", .shares = 0};

    return d->counted ? node_others_counted(n, &c) : node_others_alike(n, d->spec);
}

/* Of instances and shares of a row, as if it were held here. */
static void others_slices(struct table *t, const struct node_rec *n, const struct counted_gpus *c,
                          const struct node *was)
{
    int64_t more = node_others_counted(n->doc, c) - (was ? node_others_counted(was, c) : 0);
    const char *class_ = NULL;

    for (uint32_t i = n->dev0; i < n->dev0 + n->n_dev && !class_; i++) {
        const struct device *d = &t->devices[i];
        if (device_kind_is(d, counted_kind(c)) && !strcmp(d->spec->class_, c->class_) &&
            !strcmp(d->spec->model, c->model))
            class_ = class_name(t, d);
    }
    for (int sign = more < 0 ? -1 : 1; more && class_; more -= sign) {
        struct device *d = counted_take(t, n, class_, counted_kind(c), sign);
        device_mig_take(d, d->spec->migProfiles[0], sign);
    }
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
    for (uint32_t i = 0; i < n->doc->spec->n_counted && t->others; i++)
        if (is_sliced(&n->doc->spec->counted[i]))
            others_slices(t, n, &n->doc->spec->counted[i], was);
}
