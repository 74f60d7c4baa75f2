/* All workers at once or none: finds the tightest domain that holds them, of those the one that has
 * least room to spare, and packs it into as few domains below as possible. Members lie in topology
 * order, so every domain is a run of neighbours and a gang costs a few walks over the group. */
#include "policy/place/place_internal.h"

#include <stdlib.h>

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

void gang_fit(const struct table *t, uint32_t group, const struct need *n, enum domain_level pack,
              struct arena *a, struct gang_answer *ret)
{
    const struct group *g = &t->groups[group];
    enum domain_level widest = n->within ? n->within : LEVEL_TARGET;
    struct packing x = {t, g, a, arena_array(a, uint32_t, g->n), arena_array(a, uint32_t, g->n)};
    struct run *buf = arena_array(a, struct run, g->n), run = {0}, largest = {0};
    bool found = false;
    int level;

    *ret = (struct gang_answer){.take = x.take};
    for (uint32_t i = 0; i < g->n; i++) {
        x.slots[i] = member_slots(t, g->m0 + i, n);
        ret->room += x.slots[i];
    }
    if (ret->room < n->min_workers)
        return;
    for (level = LEVEL_NODE; level <= (int)widest && !found; level++)
        found = best_run(&x, (enum domain_level)level, n->workers, buf, &run, &ret->room_within,
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
    fill(&x, run.lo, run.hi, ret->level, ret->workers);
    count_packs(&x, pack, ret);
}
