/* One worker on one node: whether there is room, where it is best taken, and which devices. Best
 * fit: the node with the fewest free devices that are enough, first in topology order, so that
 * large holes stay whole. */
#include "policy/place/place_internal.h"

#include <string.h>

static bool device_whole(const struct device *d, const struct need *n)
{
    return d->free_milli == 1000 && !d->mig && !(n->hard && d->shared);
}

static bool device_linked(const struct device *d, const struct need *n)
{
    return d->link || !n->nvlink;
}

static bool device_fraction(const struct device *d, const struct need *n)
{
    return !d->mig && !d->counted && device_linked(d, n) && d->free_milli >= n->milli &&
           (d->shared || n->shares);
}

static uint32_t mig_free(const struct device *d, const char *profile)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < d->spec->n_migProfiles && i < 64; i++)
        n += !(d->mig_used >> i & 1) && strcmp(d->spec->migProfiles[i], profile) == 0;
    return n;
}

/* Workers whose devices NVLink joins; *ret_room = the most free devices that it joins. */
static uint32_t linked_slots(const struct table *t, uint32_t member, const struct need *n,
                             uint32_t *ret_room)
{
    const struct node_rec *r = &t->nodes[t->members[member].node];
    uint16_t room[257] = {0};
    uint32_t sum = 0;

    *ret_room = 0;
    for (uint32_t i = 0; i < r->n_dev && i < 256; i++) {
        const struct device *d = &t->devices[r->dev0 + i];

        if (d->member != member || !d->link || !device_whole(d, n))
            continue;
        room[d->link]++;
        sum += room[d->link] % n->count == 0;
        *ret_room = room[d->link] > *ret_room ? room[d->link] : *ret_room;
    }
    return sum;
}

static uint32_t device_slots(const struct table *t, uint32_t member, const struct need *n)
{
    const struct member *m = &t->members[member];
    const struct node_rec *r = &t->nodes[m->node];
    uint32_t sum = 0, room, whole = 0;

    if (n->mode == NEED_WHOLE && n->nvlink) {
        sum = linked_slots(t, member, n, &room);
        whole = m->others + m->strayed; /* each of them may lie in another domain */
        return sum > whole ? sum - whole : 0;
    }
    if (n->mode == NEED_WHOLE && !(n->hard && t->groups[m->group].has_shared))
        return member_free(m) / n->count;
    for (uint32_t i = r->dev0; i < r->dev0 + r->n_dev; i++) {
        const struct device *d = &t->devices[i];

        if (d->member != member || !device_linked(d, n))
            continue;
        if (n->mode == NEED_WHOLE)
            sum += device_whole(d, n);
        else if (n->mode == NEED_MIG)
            sum += mig_free(d, n->mig);
        else if (device_fraction(d, n) && (d->free_milli < 1000 || whole++ < member_free(m)))
            sum += (uint32_t)(d->free_milli / n->milli);
    }
    if (n->mode == NEED_WHOLE)
        whole = m->others + m->strayed;
    else
        whole = n->mode == NEED_MIG ? m->strayed : 0;
    return sum > whole ? (sum - whole) / n->count : 0;
}

uint32_t member_slots(const struct table *t, uint32_t member, const struct need *n)
{
    uint32_t node = t->members[member].node, slots = n->workers;
    int64_t by_cpu, by_memory;

    if (!t->nodes[node].ok)
        return 0;
    by_cpu = n->cpu > 0 ? t->cpu_free[node] / n->cpu : slots;
    by_memory = n->memory > 0 ? t->memory_free[node] / n->memory : slots;
    if (by_cpu <= 0 || by_memory <= 0)
        return 0;
    slots = by_cpu < slots ? (uint32_t)by_cpu : slots;
    slots = by_memory < slots ? (uint32_t)by_memory : slots;
    if (n->mode != NEED_CPU) {
        uint32_t by_device = device_slots(t, member, n);

        slots = by_device < slots ? by_device : slots;
    }
    return slots;
}

static bool node_has(const struct table *t, uint32_t node, const struct need *n)
{
    return t->cpu_free[node] >= n->cpu && t->memory_free[node] >= n->memory;
}

static uint32_t walk_members(const struct table *t, const struct group *g, uint32_t bucket,
                             const struct need *n, bool exact)
{
    const uint64_t *bits = &g->bits[(size_t)bucket * g->words];

    for (uint32_t w = 0; w < g->words; w++) {
        for (uint64_t b = bits[w]; b; b &= b - 1) {
            uint32_t m = g->m0 + w * 64 + (uint32_t)__builtin_ctzll(b);

            if (node_has(t, t->members[m].node, n) && (!exact || device_slots(t, m, n)))
                return m;
        }
    }
    return NONE;
}

/* A device that is partly used already, the fullest that is enough. */
static uint32_t walk_partial(const struct table *t, const struct group *g, const struct need *n)
{
    for (uint32_t q = (uint32_t)n->milli / FRAC_STEP; q < FRAC_BUCKETS; q++) {
        const uint64_t *bits = &g->frac[(size_t)q * g->dev_words];

        for (uint32_t w = 0; g->frac_count[q] && w < g->dev_words; w++) {
            for (uint64_t b = bits[w]; b; b &= b - 1) {
                const struct device *d =
                    &t->devices[g->dev_at[w * 64 + (uint32_t)__builtin_ctzll(b)]];

                if (device_fraction(d, n) && node_has(t, d->node, n))
                    return d->member;
            }
        }
    }
    return NONE;
}

uint32_t fit_single(const struct table *t, uint32_t group, const struct need *n)
{
    const struct group *g = &t->groups[group];
    uint32_t from = n->mode == NEED_WHOLE ? n->count : n->mode == NEED_FRACTION ? 1 : 0, m;
    bool exact = (n->mode == NEED_WHOLE && n->hard && g->has_shared) || n->mode == NEED_MIG ||
                 n->nvlink || (n->mode == NEED_FRACTION && (!n->shares || g->has_counted));

    if (n->mode == NEED_MIG && !g->has_mig)
        return NONE;
    if (n->mode == NEED_FRACTION && (m = walk_partial(t, g, n)) != NONE)
        return m;
    for (uint32_t b = from; b <= g->max_dev; b++) {
        if (g->count[b] && (m = walk_members(t, g, b, n, exact)) != NONE)
            return m;
    }
    return NONE;
}

void fit_explain(const struct table *t, uint32_t group, const struct need *n, struct fit_count *ret)
{
    const struct group *g = &t->groups[group];

    *ret = (struct fit_count){0};
    for (uint32_t m = g->m0; m < g->m0 + g->n; m++) {
        uint32_t node = t->members[m].node, slots, room = 0;

        if (!t->nodes[node].ok)
            continue;
        if (n->mode == NEED_WHOLE && n->nvlink)
            (void)linked_slots(t, m, n, &room);
        ret->linked = room > ret->linked ? room : ret->linked;
        if (n->mode != NEED_CPU &&
            (node_has(t, node, n) ||
             (n->mode == NEED_WHOLE && member_free(&t->members[m]) < n->count)))
            slots = 0; /* with room for it there would have been a fit */
        else if (n->mode == NEED_CPU ||
                 (n->mode == NEED_FRACTION && n->shares && !t->members[m].counted &&
                  member_free(&t->members[m])))
            slots = 1;
        else
            slots = device_slots(t, m, n);
        if (member_free(&t->members[m]) > ret->best)
            ret->best = member_free(&t->members[m]);
        if (slots && t->cpu_free[node] < n->cpu)
            ret->cpu++;
        else if (slots && t->memory_free[node] < n->memory)
            ret->memory++;
        else if (n->mode == NEED_WHOLE && n->hard && member_free(&t->members[m]) >= n->count)
            ret->hard++;
        else
            ret->gpus++;
    }
}

/* ---- what others hold ---- */
/* What others hold of instances and shares is taken from their sets: first what is beyond them. */
static void slices_without_others(const struct node *doc, struct device *dev, uint32_t n)
{
    for (uint32_t k = 0; k < doc->spec->n_counted; k++) {
        const struct counted_gpus *c = &doc->spec->counted[k];
        int64_t others = node_others_counted(doc, c);

        for (uint32_t i = 0; i < n; i++)
            if (dev[i].mig && device_kind_is(&dev[i], counted_kind(c)))
                others -= dev[i].mig_over[0];
        for (uint32_t i = 0; i < n; i++) {
            if (!dev[i].mig || !device_kind_is(&dev[i], counted_kind(c)))
                continue;
            for (; others > 0 && dev[i].mig_used; others--)
                dev[i].mig_used &= dev[i].mig_used - 1;
        }
    }
}

/* Workers that one member had room for, had others given back what they hold. */
static uint32_t slots_without_others(const struct table *t, uint32_t member, const struct need *n)
{
    const struct node_rec *r = &t->nodes[t->members[member].node];
    struct device dev[256];
    struct member m = t->members[member];
    struct node_rec node = *r;
    int64_t cpu = t->cpu_free[m.node] + node_others_cpu(r->doc);
    int64_t memory = t->memory_free[m.node] + node_others_memory(r->doc);
    struct table v = {.nodes = &node,
                      .members = &m,
                      .devices = dev,
                      .groups = t->groups,
                      .cpu_free = &cpu,
                      .memory_free = &memory};

    m.node = m.others = 0;
    node.dev0 = 0;
    node.n_dev = r->n_dev < 256 ? r->n_dev : 256;
    for (uint32_t i = 0; i < node.n_dev; i++) {
        dev[i] = t->devices[r->dev0 + i];
        bool mine = dev[i].member == member;

        dev[i].member = mine ? 0 : NONE;
        if (!node_others_device(r->doc, dev[i].spec->index) || dev[i].mig)
            continue;
        dev[i].free_milli += 1000;
        m.n_free += mine && dev[i].free_milli == 1000;
    }
    slices_without_others(r->doc, dev, node.n_dev);
    return member_slots(&v, 0, n);
}

void fit_others(const struct table *t, uint32_t group, const struct need *n, struct fit_others *ret)
{
    const struct group *g = &t->groups[group];

    *ret = (struct fit_others){0};
    for (uint32_t m = g->m0; m < g->m0 + g->n; m++) {
        const struct node *doc = t->nodes[t->members[m].node].doc;
        uint32_t now = member_slots(t, m, n), then = now;

        if (t->nodes[t->members[m].node].ok && doc->status && doc->status->others)
            then = slots_without_others(t, m, n);
        ret->room += then;
        if (then == now)
            continue;
        ret->nodes++;
        ret->gpus += node_others_of(doc, need_kind(n));
        ret->cpu += node_others_cpu(doc);
        ret->memory += node_others_memory(doc);
    }
}

/* ---- devices ---- */
static bool is_taken(const uint64_t *taken, uint32_t i)
{
    return taken && (taken[i / 64] >> (i & 63) & 1);
}

/* The NVLink domain to take from: the smallest that is enough. NONE: from any, as none is. */
static uint32_t choose_link(const struct device *dev, const uint32_t *can, uint32_t n_can,
                            const struct need *n)
{
    uint32_t best = NONE, best_room = NONE;

    for (uint32_t k = 0; k < n_can; k++) {
        uint32_t link = dev[can[k]].link, room = 0;

        if (n->nvlink && !link)
            continue;
        for (uint32_t j = 0; j < n_can; j++)
            room += dev[can[j]].link == link;
        if (room >= n->count && room < best_room) {
            best = link;
            best_room = room;
        }
    }
    return best;
}

/* Devices of one NVLink domain; from all domains when none is enough, unless it must be one. */
static uint32_t pick_whole(const struct table *t, uint32_t member, const struct need *n,
                           uint64_t *taken, uint32_t *ret)
{
    const struct node_rec *r = &t->nodes[t->members[member].node];
    const struct device *dev = &t->devices[r->dev0];
    uint32_t can[256], n_can = 0, link = NONE, out = 0;

    /* Devices that could be shared are kept for fractions as long as others are free. */
    for (int shared = 0; shared < 2 && link == NONE; shared++) {
        for (uint32_t i = 0; i < r->n_dev && n_can < 256; i++) {
            const struct device *d = &dev[i];

            if (d->member == member && d->shared == (shared == 1) && device_whole(d, n) &&
                !is_taken(taken, i))
                can[n_can++] = i;
        }
        link = choose_link(dev, can, n_can, n);
        if (n_can >= n->count && !n->nvlink)
            break;
    }
    if (n->nvlink && link == NONE)
        return 0;
    for (uint32_t k = 0; k < n_can && out < n->count; k++) {
        if (link != NONE && dev[can[k]].link != link)
            continue;
        ret[out++] = can[k];
        if (taken)
            taken[can[k] / 64] |= 1ull << (can[k] & 63);
    }
    return out;
}

static uint32_t pick_fraction(const struct table *t, uint32_t member, const struct need *n,
                              int32_t *used, uint32_t *ret)
{
    const struct node_rec *r = &t->nodes[t->members[member].node];
    uint32_t best = NONE;
    int32_t best_free = INT32_MAX;

    for (uint32_t i = 0; i < r->n_dev; i++) {
        const struct device *d = &t->devices[r->dev0 + i];
        int32_t left = d->free_milli - (used ? used[i] : 0);

        if (d->member == member && device_fraction(d, n) && left >= n->milli && left < best_free) {
            best = i;
            best_free = left;
        }
    }
    if (best == NONE)
        return 0;
    ret[0] = best;
    if (used)
        used[best] += n->milli;
    return 1;
}

static uint32_t pick_mig(const struct table *t, uint32_t member, const struct need *n,
                         int32_t *used, uint32_t *ret)
{
    const struct node_rec *r = &t->nodes[t->members[member].node];
    uint32_t out = 0;

    for (uint32_t i = 0; i < r->n_dev && out < n->count; i++) {
        const struct device *d = &t->devices[r->dev0 + i];
        uint32_t have = d->member == member && device_linked(d, n) ? mig_free(d, n->mig) : 0;
        uint32_t gone = used ? (uint32_t)used[i] : 0;

        for (; gone < have && out < n->count; gone++) {
            ret[out++] = i;
            if (used)
                used[i]++;
        }
    }
    return out;
}

uint32_t fit_devices(const struct table *t, uint32_t member, const struct need *n,
                     struct fit_taken *taken, uint32_t *ret_dev)
{
    if (n->mode == NEED_WHOLE)
        return pick_whole(t, member, n, taken ? taken->whole : NULL, ret_dev);
    if (n->mode == NEED_FRACTION)
        return pick_fraction(t, member, n, taken ? taken->share : NULL, ret_dev);
    if (n->mode == NEED_MIG)
        return pick_mig(t, member, n, taken ? taken->share : NULL, ret_dev);
    return 0;
}

void fit_seat(const struct place *pl, uint32_t member, struct fit_taken *taken,
              struct assignment *as, int64_t rank)
{
    const struct table *t = &pl->p->t;
    const struct node_rec *n = &t->nodes[t->members[member].node];
    uint32_t dev[256];

    as->rank = rank;
    as->node = arena_strdup(pl->a, n->obj->meta->name);
    as->mig = arena_strdup(pl->a, need_kind(&pl->need).mig);
    if (pl->need.mode == NEED_CPU)
        return;
    as->n_gpus = fit_devices(t, member, &pl->need, taken, dev);
    POST(as->n_gpus == pl->need.count);
    as->gpuMilli = pl->need.milli;
    if (t->members[member].counted) {
        as->count = as->n_gpus;
        as->n_gpus = 0;
        as->shares = need_kind(&pl->need).shares ? t->groups[t->members[member].group].shares : 0;
        return;
    }
    as->gpus = arena_array(pl->a, int64_t, as->n_gpus);
    for (uint32_t i = 0; i < as->n_gpus; i++)
        as->gpus[i] = t->devices[n->dev0 + dev[i]].spec->index;
}
