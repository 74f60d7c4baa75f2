/* All workers at once or none: finds the tightest domain that holds them, of those the one that has
 * least room to spare, and packs it into as few domains below as possible. Members lie in topology
 * order, so every domain is a run of neighbours and a gang costs a few walks over the group. */
#include "policy/place/place_internal.h"

#include <stdlib.h>
#include <string.h>

struct run {
    uint32_t lo, hi; /* members [lo, hi) of the group */
    int64_t room;
};
struct packing {
    const struct table *t;
    const struct group *g;
    struct arena *a;
    uint32_t *slots, *take;
};

static uint32_t domain_at(const struct packing *x, uint32_t i, enum domain_level level)
{
    return x->t->nodes[x->t->members[x->g->m0 + i].node].domain[level];
}

static uint32_t runs_of(const struct packing *x, uint32_t lo, uint32_t hi, enum domain_level level,
                        struct run *out)
{
    uint32_t n = 0;

    for (uint32_t i = lo; i < hi; i++) {
        if (i == lo || domain_at(x, i, level) != domain_at(x, i - 1, level))
            out[n++] = (struct run){i, i, 0};
        out[n - 1].hi = i + 1;
        out[n - 1].room += x->slots[i];
    }
    return n;
}

static int cmp_run(const void *pa, const void *pb) /* most room first, then in order */
{
    const struct run *a = pa, *b = pb;

    if (a->room != b->room)
        return a->room < b->room ? 1 : -1;
    return (a->lo > b->lo) - (a->lo < b->lo);
}

static void fill(const struct packing *x, uint32_t lo, uint32_t hi, int level, int64_t want)
{
    struct run *runs;
    uint32_t n, at = 0;

    if (level == 0) {
        INV(hi - lo == 1 && want <= x->slots[lo]);
        x->take[lo] = (uint32_t)want;
        return;
    }
    runs = arena_array(x->a, struct run, hi - lo);
    n = runs_of(x, lo, hi, (enum domain_level)level, runs);
    if (n > 1)
        qsort(runs, n, sizeof(*runs), cmp_run);
    while (want > 0 && at < n) {
        int64_t part = runs[at].room < want ? runs[at].room : want;

        if (runs[at].room >= want) {
            /* The last one: the least that is enough, the first of those. */
            while (at + 1 < n && runs[at + 1].room >= want)
                at++;
            while (at > 0 && runs[at - 1].room == runs[at].room && runs[at - 1].hi != 0)
                at--;
        }
        fill(x, runs[at].lo, runs[at].hi, level - 1, part);
        want -= part;
        runs[at].hi = 0; /* used up */
        at++;
    }
    POST(want == 0);
}

static bool best_run(const struct packing *x, enum domain_level level, int64_t want,
                     struct run *buf, struct run *ret, int64_t *ret_most, struct run *ret_largest)
{
    uint32_t n = runs_of(x, 0, x->g->n, level, buf);
    bool found = false;

    *ret_most = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (buf[i].room >= want && (!found || buf[i].room < ret->room)) {
            *ret = buf[i];
            found = true;
        }
        if (buf[i].room > *ret_most) {
            *ret_most = buf[i].room;
            *ret_largest = buf[i];
        }
    }
    return found;
}

static void count_packs(const struct packing *x, enum domain_level pack, struct gang_answer *r)
{
    uint32_t last = NONE;

    r->first = NONE;
    for (uint32_t i = 0; i < x->g->n; i++) {
        if (!x->take[i])
            continue;
        if (r->first == NONE)
            r->first = x->g->m0 + i;
        if (domain_at(x, i, pack) != last)
            r->packs++;
        last = domain_at(x, i, pack);
    }
}

/* Among the members with slots. */
static void fit_members(struct packing *x, const struct need *n, enum domain_level pack,
                        struct run *buf, struct gang_answer *ret)
{
    enum domain_level widest = n->within ? n->within : LEVEL_TARGET;
    struct run run = {0}, largest = {0};
    bool found = false;
    int level;

    *ret = (struct gang_answer){.take = x->take};
    for (uint32_t i = 0; i < x->g->n; i++)
        ret->room += x->slots[i];
    if (ret->room < n->min_workers)
        return;
    for (level = LEVEL_NODE; level <= (int)widest && !found; level++)
        found = best_run(x, (enum domain_level)level, n->workers, buf, &run, &ret->room_within,
                         &largest);
    ret->workers = n->workers;
    if (!found) {
        if (ret->room_within < n->min_workers || n->min_workers >= n->workers) {
            ret->workers = 0;
            return;
        }
        run = largest; /* elastic: as many as the largest domain holds */
        ret->workers = (uint32_t)largest.room;
    }
    ret->level = (enum domain_level)(level - 1);
    fill(x, run.lo, run.hi, ret->level, ret->workers);
    count_packs(x, pack, ret);
}

/* Workers on the machines of several agents meet at the address of one of these (spec.agents): an
 * agent without one has a gang alone, or none of it. Returns 0 for all that have one. */
static uint32_t company_of(const struct packing *x, uint32_t i)
{
    const struct target_rec *r = &x->t->targets[x->g->target];
    const char *name = x->t->nodes[x->t->members[x->g->m0 + i].node].doc->metadata->name;
    size_t n = strlen(r->name);

    if (strncmp(name, r->name, n) != 0 || name[n] != '.')
        return 0;
    for (uint32_t k = 0; k < r->spec->n_agents; k++) {
        const struct target_agent *a = &r->spec->agents[k];
        size_t len = strlen(a->name);
        if (strncmp(name + n + 1, a->name, len) == 0 && name[n + 1 + len] == '.')
            return a->address && *a->address ? 0 : k + 1;
    }
    return 0;
}

static uint32_t companies(const struct packing *x)
{
    const struct target_rec *r = &x->t->targets[x->g->target];
    uint32_t most = 0;

    for (uint32_t k = 0; r->obj && k < r->spec->n_agents; k++)
        most = r->spec->agents[k].address && *r->spec->agents[k].address ? most : k + 1;
    return most + 1;
}

void gang_fit(const struct table *t, uint32_t group, const struct need *n, enum domain_level pack,
              struct arena *a, struct gang_answer *ret)
{
    const struct group *g = &t->groups[group];
    struct packing x = {t, g, a, arena_array(a, uint32_t, g->n), arena_array(a, uint32_t, g->n)};
    struct run *buf = arena_array(a, struct run, g->n);
    uint32_t *all = x.slots, n_companies = companies(&x);
    int64_t room = 0;

    for (uint32_t i = 0; i < g->n; i++) {
        all[i] = member_slots(t, g->m0 + i, n);
        room += all[i];
    }
    if (n_companies == 1) {
        fit_members(&x, n, pack, buf, ret);
        return;
    }
    *ret = (struct gang_answer){.take = x.take};
    x.slots = arena_array(a, uint32_t, g->n);
    for (uint32_t c = 0; c < n_companies; c++) {
        struct gang_answer one;
        x.take = arena_array(a, uint32_t, g->n);
        for (uint32_t i = 0; i < g->n; i++)
            x.slots[i] = company_of(&x, i) == c ? all[i] : 0;
        fit_members(&x, n, pack, buf, &one);
        bool tighter = one.workers ? one.level < ret->level : one.room > ret->room;
        if (one.workers > ret->workers || (one.workers == ret->workers && tighter))
            *ret = one;
    }
    ret->apart = !ret->workers && room >= n->min_workers;
}
