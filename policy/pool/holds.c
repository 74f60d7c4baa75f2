/* What is held, and by whom: allocations of placed workloads, destinations of those that move, and
 * room that is being made for one that waits. A nomination is a hold that may lie over others: a
 * device counts below zero until its victims drop, so that what falls free is never up for grabs.
 * It never holds against its own workload, and is off while that workload holds a place. */
#include "policy/pool/pool_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- on the table ---- */
struct device *node_device(const struct table *t, const struct node_rec *n, int64_t index)
{
    if (index >= 0 && index < n->n_dev && t->devices[n->dev0 + index].spec->index == index)
        return &t->devices[n->dev0 + index];
    for (uint32_t i = n->dev0; i < n->dev0 + n->n_dev; i++) {
        if (t->devices[i].spec->index == index)
            return &t->devices[i];
    }
    return NULL;
}

/* What is held of a profile beyond its instances is counted at the profile's first place. */
void device_mig_take(struct device *d, const char *profile, int sign)
{
    uint32_t first = NONE;

    for (uint32_t i = 0; i < d->spec->n_migProfiles && i < 64; i++) {
        uint64_t bit = 1ull << i;

        if (strcmp(d->spec->migProfiles[i], profile) != 0)
            continue;
        first = first == NONE ? i : first;
        if (sign < 0 && d->mig_over[first] > 0)
            break;
        if (!(d->mig_used & bit) == (sign < 0))
            continue;
        d->mig_used ^= bit;
        return;
    }
    if (first == NONE)
        return;
    if (sign > 0)
        d->mig_over[first]++;
    else if (d->mig_over[first] > 0)
        d->mig_over[first]--;
}

/* It waits in the target's own queue: of the devices that are free there so many are spoken for,
 * and nobody knows which. */
static void waits_apply(struct table *t, const struct hold *h, int sign)
{
    uint32_t k = strmap_get(&t->target_by_name, h->target);

    if (k == NONE)
        return;
    for (uint32_t g = t->targets[k].g0; g < t->targets[k].g0 + t->targets[k].n_groups; g++)
        if (strcmp(t->classes[t->groups[g].class_].name, h->class_) == 0)
            t->groups[g].waits += sign * h->milli;
}

void table_apply(struct pool *p, struct hold *h, int sign)
{
    struct table *t = &p->t;
    bool fresh = h->generation == t->generation;

    if (sign < 0 && !fresh)
        return;
    for (uint32_t i = 0; i < h->n; i++) {
        struct hold_at *at = &h->at[i];
        const struct node_rec *n;

        if (!fresh && h->found != t->generation)
            at->slot = strmap_get(&t->node_by_name, at->node);
        if (at->slot == NONE)
            continue;
        n = &t->nodes[at->slot];
        t->cpu_free[at->slot] -= sign * h->cpu;
        t->memory_free[at->slot] -= sign * h->memory;
        for (uint32_t k = 0; k < at->n_gpus; k++) {
            struct device *d = node_device(t, n, at->gpus[k]);

            if (!d)
                continue;
            if (at->mig[0] && d->mig)
                device_mig_take(d, at->mig, sign);
            else
                table_device_move(t, d, d->free_milli - sign * at->milli);
        }
        counted_apply(t, h, at, sign);
    }
    if (!h->n)
        waits_apply(t, h, sign);
    h->found = t->generation;
    h->generation = sign > 0 ? t->generation : 0;
}

/* ---- making ---- */
static const char *pack_text(char **at, const char *s)
{
    size_t n = strlen(s) + 1;
    char *to = *at;

    memcpy(to, s, n);
    *at += n;
    return to;
}

/* Work is lost since the newest checkpoint of this very epoch, or since its placement: the phase's
 * own time begins anew when a target was out of reach. */
static void hold_facts(struct hold *h)
{
    const struct workload_status *s = object_as(h->workload, workload)->status;

    if (!s || !s->placement || h->kind != HOLD_PLACED)
        return;
    h->runs =
        s->phase == PHASE_RUNNING && !s->migration[0] && !h->workload->meta->deletionTimestamp;
    h->runs_since = s->phaseSince;
    h->price = s->placement->gpuHourPrice;
    h->unsaved_since = s->placement->since ? s->placement->since : s->phaseSince;
    if (!s->checkpoint)
        return;
    h->state_bytes = s->checkpoint->bytes;
    if (s->checkpoint->verifiedAt && s->checkpoint->epoch == s->epoch)
        h->unsaved_since = checkpoint_saved_at(s->checkpoint);
}

static struct hold *hold_make(enum hold_kind kind, const char *key, const struct object *w,
                              const struct placement *pl)
{
    size_t bytes = sizeof(struct hold) + sizeof(struct hold_at) * pl->n_assignments + strlen(key) +
                   strlen(pl->target) + strlen(pl->class_) + 3;
    struct hold *h;
    int64_t *gpus;
    char *text;

    for (uint32_t i = 0; i < pl->n_assignments; i++)
        bytes += strlen(pl->assignments[i].node) + strlen(pl->assignments[i].mig) + 2 +
                 sizeof(int64_t) * pl->assignments[i].n_gpus;
    h = mem_zalloc(bytes);
    gpus = (int64_t *)(void *)&h->at[pl->n_assignments];
    for (uint32_t i = 0; i < pl->n_assignments; i++) {
        const struct assignment *a = &pl->assignments[i];

        h->at[i] = (struct hold_at){
            .gpus = gpus, .n_gpus = a->n_gpus, .slot = NONE, .milli = (int32_t)a->gpuMilli};
        h->at[i].count = a->count;
        h->at[i].shares = a->shares;
        if (a->n_gpus)
            memcpy(gpus, a->gpus, sizeof(*gpus) * a->n_gpus);
        gpus += a->n_gpus;
    }
    text = (char *)gpus;
    for (uint32_t i = 0; i < pl->n_assignments; i++) {
        h->at[i].node = pack_text(&text, pl->assignments[i].node);
        h->at[i].mig = pack_text(&text, pl->assignments[i].mig);
    }
    h->key = pack_text(&text, key);
    h->target = pack_text(&text, pl->target);
    h->class_ = pack_text(&text, pl->class_);
    h->kind = kind;
    h->n = pl->n_assignments;
    h->milli = pl->gpus;
    h->cpu = pl->cpu;
    h->memory = pl->memory;
    h->workload = object_ref(w);
    hold_facts(h);
    return h;
}

struct hold *hold_copy(const struct hold *h)
{
    struct placement pl = {.target = h->target,
                           .class_ = h->class_,
                           .gpus = h->milli,
                           .cpu = h->cpu,
                           .memory = h->memory,
                           .n_assignments = h->n};
    struct hold *c;

    pl.assignments = mem_zalloc(sizeof(*pl.assignments) * (h->n + 1));
    for (uint32_t i = 0; i < h->n; i++) {
        pl.assignments[i].node = h->at[i].node;
        pl.assignments[i].mig = h->at[i].mig;
        pl.assignments[i].gpus = (int64_t *)h->at[i].gpus;
        pl.assignments[i].n_gpus = h->at[i].n_gpus;
        pl.assignments[i].count = h->at[i].count;
        pl.assignments[i].shares = h->at[i].shares;
        pl.assignments[i].gpuMilli = h->at[i].milli;
    }
    c = hold_make(h->kind, h->key, h->workload, &pl);
    c->off = h->off;
    mem_free(pl.assignments);
    return c;
}

void hold_free(struct hold *h)
{
    (void)object_unref(h->workload);
    mem_free(h);
}

void hold_switch(struct pool *p, struct hold *h, bool on)
{
    if (h->off == !on)
        return;
    h->off = !on;
    p->changes++;
    if (!p->dirty)
        table_apply(p, h, on ? 1 : -1);
    if (!p->dirty && !p->accounts_dirty)
        accounts_add(p, h, on ? 1 : -1);
}

/* ---- in the pool ---- */
/* A nomination's key: no uid and no Migration's uid holds a space. */
static void nominated_key(const char *uid, char out[320])
{
    (void)snprintf(out, 320, "for %s", uid);
}

struct hold *pool_nominated(const struct pool *p, const char *uid)
{
    char key[320];
    uint32_t i;

    if (!p->n_nominated)
        return NULL;
    nominated_key(uid, key);
    i = strmap_get(&p->hold_by_uid, key);
    return i == NONE ? NULL : p->holds[i];
}

static void hold_remove(struct pool *p, uint32_t i)
{
    struct hold *h = p->holds[i];

    strmap_unset(&p->hold_by_uid, h->key);
    hold_switch(p, h, false);
    p->n_nominated -= h->kind == HOLD_NOMINATED;
    p->holds[i] = p->holds[--p->n_holds];
    if (i < p->n_holds)
        strmap_set(&p->hold_by_uid, p->holds[i]->key, i);
    hold_free(h);
}

static void hold_insert(struct pool *p, struct hold *h)
{
    uint32_t old = strmap_get(&p->hold_by_uid, h->key);

    if (old != NONE)
        hold_remove(p, old);
    if (p->n_holds == p->cap_holds) {
        p->cap_holds = p->cap_holds ? p->cap_holds * 2 : 64;
        p->holds = mem_realloc(p->holds, sizeof(struct hold *) * p->cap_holds);
    }
    p->holds[p->n_holds] = h;
    p->n_nominated += h->kind == HOLD_NOMINATED;
    strmap_set(&p->hold_by_uid, h->key, p->n_holds++);
    h->off = true;
}

struct hold *pool_keep(struct pool *p, const struct object *workload,
                       const struct placement *placement)
{
    struct hold *h;
    char key[320];
    uint32_t i;

    (void)snprintf(key, sizeof(key), "kept for %s", workload->meta->uid);
    i = strmap_get(&p->hold_by_uid, key);
    if (i != NONE) {
        for (uint32_t k = 0; k < p->n_reserved; k++)
            if (p->reserved[k] == p->holds[i])
                p->reserved[k--] = p->reserved[--p->n_reserved];
        hold_remove(p, i);
    }
    if (!placement || p->n_reserved == RESERVED_MAX)
        return NULL;
    h = hold_make(HOLD_KEPT, key, workload, placement);
    h->i_target = strmap_get(&p->t.target_by_name, h->target);
    hold_insert(p, h);
    return p->reserved[p->n_reserved++] = h;
}

unsigned pool_kept_lift(struct pool *p)
{
    unsigned lifted = 0;

    for (uint32_t i = 0; i < p->n_reserved; i++) {
        if (p->reserved[i]->off)
            continue;
        lifted |= 1u << i;
        hold_switch(p, p->reserved[i], false);
    }
    return lifted;
}

void pool_kept_lay(struct pool *p, unsigned lifted)
{
    for (uint32_t i = 0; i < p->n_reserved; i++)
        if (lifted >> i & 1)
            hold_switch(p, p->reserved[i], true);
}

uint32_t pool_kept_rank(const struct pool *p, const struct object *workload)
{
    for (uint32_t i = 0; workload && i < p->n_was_kept; i++)
        if (!strcmp(p->was_kept[i], workload->meta->uid))
            return i;
    return NONE;
}

void pool_drop(struct pool *p, const char *uid)
{
    uint32_t i = strmap_get(&p->hold_by_uid, uid);
    struct hold *room = i == NONE ? NULL : pool_nominated(p, uid);

    if (i == NONE)
        return;
    hold_remove(p, i);
    if (room)
        hold_switch(p, room, true);
}

void pool_hold_placement(struct pool *p, const struct object *workload,
                         const struct placement *placement)
{
    struct hold *h = hold_make(HOLD_PLACED, workload->meta->uid, workload, placement);
    struct hold *room = pool_nominated(p, h->key);

    hold_insert(p, h);
    if (room)
        hold_switch(p, room, false);
    hold_switch(p, h, true);
}

void pool_hold(struct pool *p, const struct object *workload)
{
    const struct workload_status *s = object_as(workload, workload)->status;

    if (s && s->placement)
        pool_hold_placement(p, workload, s->placement);
    else
        pool_drop(p, workload->meta->uid);
}

void pool_hold_as(struct pool *p, const char *hold_uid, const struct object *workload,
                  const struct placement *placement)
{
    const struct workload_status *s = object_as(workload, workload)->status;
    struct hold *h = hold_make(s && s->placement ? HOLD_DESTINATION : HOLD_BETWEEN, hold_uid,
                               workload, placement);

    hold_insert(p, h);
    hold_switch(p, h, true);
}

void pool_nominate(struct pool *p, const struct object *workload, const struct placement *placement)
{
    const char *uid = workload->meta->uid;
    char key[320];
    uint32_t i;

    nominated_key(uid, key);
    if (placement) {
        struct hold *h = hold_make(HOLD_NOMINATED, key, workload, placement);

        hold_insert(p, h);
        hold_switch(p, h, strmap_get(&p->hold_by_uid, uid) == NONE);
    } else if ((i = strmap_get(&p->hold_by_uid, key)) != NONE) {
        hold_remove(p, i);
    }
}
