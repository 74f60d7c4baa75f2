/* Pauses: what a target refused lately for reasons of its own (status.pauses), and until when that
 * is not asked for again. The state machine keeps them; decisions read them here.
 *
 * A zone that is paused is shut by its nodes: they count as not usable while the pause lasts.
 * Nothing here may make anybody leave a node. */
#include "policy/pool/pool_internal.h"

#include <string.h>

#define TOLD_LEAST_MS 250
#define TOLD_MOST_MS 3600000
#define GROWS_WITHIN 2 /* refused again before so many times the last pause has passed: it grows */

static const struct {
    int64_t least_ms, most_ms;
} lengths[] = {
    [0] = {1000, 60000},
    [REFUSED_CAPACITY] = {1000, 300000},
    [REFUSED_QUOTA] = {10000, 600000},
    [REFUSED_INVALID] = {30000, 1800000},
    [REFUSED_AUTHORISATION] = {10000, 600000},
    [REFUSED_THROTTLED] = {1000, 60000},
    [REFUSED_CONFLICT] = {1000, 60000},
};

static int64_t bounded(int64_t v, int64_t least, int64_t most)
{
    return v < least ? least : v > most ? most : v;
}

/* ---- how long ---- */
static int64_t longer(enum refusal_class why, int64_t last_ms, int64_t over_for_ms)
{
    size_t i = (size_t)why < sizeof lengths / sizeof *lengths ? (size_t)why : 0;
    bool again = last_ms > 0 && over_for_ms <= GROWS_WITHIN * last_ms;

    return bounded(again ? last_ms * 2 : 0, lengths[i].least_ms, lengths[i].most_ms);
}

static const struct target_pause *pause_of(const struct target_status *s, enum refusal_scope scope,
                                           const char *name)
{
    for (uint32_t i = 0; s && i < s->n_pauses; i++)
        if (s->pauses[i].scope == scope && strcmp(s->pauses[i].name, name) == 0)
            return &s->pauses[i];
    return NULL;
}

int64_t policy_pause_length(const struct target_pause *x)
{
    return x->until > x->since && x->since >= 0 ? bounded(x->until - x->since, 0, TOLD_MOST_MS) : 0;
}

int64_t policy_pause_until(const struct target_status *s, const struct target_pause *x,
                           int64_t retry_ms)
{
    const struct target_pause *had = pause_of(s, x->scope, x->name);
    int64_t last = had ? policy_pause_length(had) : 0;

    if (retry_ms > 0)
        return x->since + bounded(retry_ms, TOLD_LEAST_MS, TOLD_MOST_MS);
    if (had && had->until > x->since) /* asked before that was known: it is one refusal */
        return had->until;
    return x->since + longer(x->refusal, last, had ? x->since - had->until : 0);
}

int64_t policy_denied_until(const struct workload_status *s, const char *target,
                            enum refusal_class why, int64_t now_ms, int64_t retry_ms)
{
    const struct run_end *last = NULL;

    for (uint32_t i = 0; i < s->n_ends; i++)
        if (s->ends[i].deniedUntil && strcmp(s->ends[i].target, target) == 0)
            last = &s->ends[i];
    int64_t told = bounded(retry_ms, 0, TOLD_MOST_MS);
    int64_t own =
        longer(why, last ? last->deniedUntil - last->at : 0, last ? now_ms - last->deniedUntil : 0);
    return now_ms + (told > own ? told : own);
}

/* ---- the list ---- */
uint32_t policy_pause_add(const struct target_status *s, const struct target_pause *x,
                          struct arena *a, struct target_pause **ret)
{
    struct target_pause *v = arena_array(a, struct target_pause, PAUSES_MAX + 1);
    uint32_t n = 0, first = 0;

    for (uint32_t i = 0; s && i < s->n_pauses && i < PAUSES_MAX; i++) {
        const struct target_pause *had = &s->pauses[i];
        if ((had->scope == x->scope && strcmp(had->name, x->name) == 0) ||
            x->since > had->until + GROWS_WITHIN * policy_pause_length(had))
            continue;
        v[n++] = *had;
    }
    v[n++] = *x;
    for (uint32_t i = 1; n > PAUSES_MAX && i < n; i++) /* the one that is over first makes room */
        if (v[i].until < v[first].until)
            first = i;
    if (n > PAUSES_MAX)
        memmove(&v[first], &v[first + 1], (--n - first) * sizeof *v);
    *ret = v;
    return n;
}

/* ---- zones ---- */
const char *node_zone(const struct table *t, uint32_t node)
{
    const struct node_rec *n = &t->nodes[node];
    const struct topology *w = n->doc->spec->topology;
    const struct target_spec *s = t->targets[n->target].spec;

    return w && *w->zone ? w->zone : s ? s->site : "";
}

const struct target_pause *pool_zone_pause(const struct table *t, uint32_t node)
{
    const struct target_rec *r = &t->targets[t->nodes[node].target];
    const struct target_status *s = r->obj ? object_as(r->obj, target)->status : NULL;

    for (uint32_t i = 0; s && r->shut && i < s->n_pauses; i++)
        if ((r->shut & 1u << i) && strcmp(s->pauses[i].name, node_zone(t, node)) == 0)
            return &s->pauses[i];
    return NULL;
}

static uint32_t zones_shut(const struct target_rec *r, int64_t now_ms)
{
    const struct target_status *s = r->obj ? object_as(r->obj, target)->status : NULL;
    uint32_t shut = 0;

    for (uint32_t i = 0; s && i < s->n_pauses && i < PAUSES_MAX; i++)
        if (s->pauses[i].scope == BLAMES_ZONE && pause_holds(&s->pauses[i], now_ms))
            shut |= 1u << i;
    return shut;
}

void pool_zones(struct pool *p, int64_t now_ms)
{
    struct table *t = &p->t;

    for (uint32_t k = 0; p->zones && k < t->n_targets; k++) {
        struct target_rec *r = &t->targets[k];
        uint32_t shut = zones_shut(r, now_ms);

        if (shut == r->shut && !r->shut_due)
            continue;
        r->shut = shut;
        r->shut_due = false;
        for (uint32_t g = r->g0; g < r->g0 + r->n_groups; g++)
            for (uint32_t m = t->groups[g].m0; m < t->groups[g].m0 + t->groups[g].n; m++)
                table_node_open(t, t->members[m].node);
    }
}

void pool_zones_told(struct pool *p, const struct object *target)
{
    const struct target_status *s = object_as(target, target)->status;

    for (uint32_t i = 0; s && i < s->n_pauses; i++)
        p->zones |= s->pauses[i].scope == BLAMES_ZONE;
}
