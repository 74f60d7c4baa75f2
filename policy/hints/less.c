/* Hints about what the workload asks for: a higher price cap, a later deadline, fewer workers, GPUs
 * or CPUs, less memory; each time the smallest reduction that is enough. */
#include "policy/hints/hints_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PRICES_TRIED 4
#define PROFILES_MAX 16

/* ---- money and time ---- */
static void set_gpu_hour(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    s->maxGpuHourPrice = e->x;
}
static void set_cost(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    s->maxCost = e->x;
}
static void set_deadline(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    s->deadline = e->n;
}

static int cmp_rising(const void *pa, const void *pb)
{
    const double *a = pa, *b = pb;

    return (*a > *b) - (*a < *b);
}

/* What the rows that are too dear ask for, the least first. */
static uint32_t caps(const struct hints *h, bool in_all, struct arena *a, double **ret)
{
    const struct place *pl = h->pl;
    double gpus = (double)need_milli(&pl->need, pl->need.workers) / 1000, *v;
    uint32_t n = 0;

    v = *ret = arena_array(a, double, pl->n_rows + 1);
    for (uint32_t i = 0; i < pl->n_rows; i++) {
        const struct row *r = &pl->rows[i];

        if (r->reason != REASON_PRICE_CAP || (strcmp(r->text, "in all") == 0) != in_all)
            continue;
        v[n++] = in_all ? pl->spent + r->useful * gpus * pl->left_h : r->price;
    }
    if (n > 1)
        qsort(v, n, sizeof(*v), cmp_rising);
    return n;
}

static double cents_up(double v)
{
    double cents = floor(v * 100 + 0.5);

    return (money_above(v, cents / 100) ? cents + 1 : cents) / 100;
}

static void raise_cap(struct hints *h, bool in_all)
{
    AUTO_ARENA a = arena_create(0);
    double *v = NULL;
    uint32_t n = caps(h, in_all, a, &v);

    for (uint32_t i = 0; i < n && i < PRICES_TRIED; i++) {
        struct edit e = {
            .apply = in_all ? set_cost : set_gpu_hour, .x = cents_up(v[i]), .step_x = 0.01};

        if (hint_tell(h, &e,
                      arena_printf(h->a, "%s raised to %.2f",
                                   in_all ? "maxCost" : "maxGpuHourPrice", e.x)))
            return;
    }
}

static void move_deadline(struct hints *h)
{
    double best = 0;
    struct edit e = {.apply = set_deadline, .step = 60000};
    char at[32];

    for (uint32_t i = 0; i < h->pl->n_rows; i++) {
        const struct row *r = &h->pl->rows[i];
        double speed;

        if (r->reason != REASON_DEADLINE || r->group == NONE)
            continue;
        speed = class_speed(&h->p->t, h->p->t.groups[r->group].class_);
        best = speed > best ? speed : best;
    }
    if (best <= 0)
        return;
    e.n = h->rq->now_ms + (int64_t)(h->pl->left_h / best * 3600000);
    e.n = (e.n + 59999) / 60000 * 60000;
    time_print(e.n, at);
    (void)hint_tell(h, &e, arena_printf(h->a, "deadline moved to %s", at));
}

void hint_prices(struct hints *h)
{
    raise_cap(h, false);
    raise_cap(h, true);
    if (hint_any(h, REASON_PRICE_UNKNOWN)) {
        struct edit hour = {.apply = set_gpu_hour}, all = {.apply = set_cost};

        if (h->spec->maxGpuHourPrice > 0)
            (void)hint_tell(h, &hour, "without maxGpuHourPrice");
        if (h->spec->maxCost > 0)
            (void)hint_tell(h, &all, "without maxCost");
    }
    move_deadline(h);
}

/* ---- workers ---- */
static void set_workers(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    if (s->gang->minWorkers > 0 && s->gang->minWorkers < s->gang->workers)
        s->gang->minWorkers = e->n; /* elastic: it takes more where there is room */
    else
        s->gang->workers = e->n;
}

static bool elastic(const struct gang *g)
{
    return g->minWorkers > 0 && g->minWorkers < g->workers;
}

static void set_ranks(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    if (elastic(s->gang) && e->n < s->gang->minWorkers)
        s->gang->minWorkers = e->n;
    else
        s->gang->workers = e->n;
}

static void set_reshard(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    struct checkpoint_spec *c = arena_memdup(a, s->checkpoint, sizeof(*c));

    (void)e;
    c->reshard = true;
    s->checkpoint = c;
}

/* Its checkpoint says how many: to ask for as many, or to say that its program needs no such
 * number. */
void hint_ranks(struct hints *h)
{
    int64_t n = policy_resume_ranks(object_as(h->rq->workload, workload));
    const struct gang *g = h->spec->gang;
    struct edit e = {.apply = set_ranks, .n = n}, reshard = {.apply = set_reshard};
    struct tried t;

    if (!n)
        return;
    if (!h->pl->ranks && g && hint_try_edit(h, &e, &t)) {
        bool least = elastic(g) && n < g->minWorkers;

        hint_add(h, "%s%lld%s instead of %lld, as its checkpoint has %s",
                 least ? "minWorkers " : "", (long long)n,
                 least    ? ""
                 : n == 1 ? " worker"
                          : " workers",
                 (long long)(least ? g->minWorkers : g->workers), hint_where(h, &t));
    }
    (void)hint_tell(h, &reshard,
                    "checkpoint.reshard, if its program can resume with another number of workers");
}

/* The most workers that any row had room for: a good first guess. */
static int64_t room_told(const struct hints *h)
{
    int64_t most = 0;

    for (uint32_t i = 0; i < h->pl->n_rows; i++) {
        const struct row *r = &h->pl->rows[i];

        if ((r->reason == REASON_GANG || r->reason == REASON_TOPOLOGY ||
             r->reason == REASON_OTHERS) &&
            r->x > most)
            most = r->x;
    }
    return most;
}

void hint_workers(struct hints *h)
{
    const struct need *n = &h->pl->need;
    struct edit e = {.apply = set_workers};
    int64_t room = room_told(h), high = (int64_t)n->min_workers - 1, workers;
    struct tried t;

    if (n->min_workers < 2 || policy_resume_ranks(object_as(h->rq->workload, workload)))
        return; /* its checkpoint says how many */
    workers = hint_most(h, &e, 1, high, room ? room : high, &t);
    if (workers < 1)
        return;
    if (h->spec->gang->minWorkers > 0 && h->spec->gang->minWorkers < h->spec->gang->workers)
        hint_add(h, "minWorkers %lld instead of %lld %s", (long long)workers,
                 (long long)h->spec->gang->minWorkers, hint_where(h, &t));
    else
        hint_add(h, "%lld worker%s instead of %lld %s", (long long)workers, workers == 1 ? "" : "s",
                 (long long)h->spec->gang->workers, hint_where(h, &t));
}

/* ---- GPUs of a worker ---- */
static void set_count(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    s->resources->gpu->count = e->n;
}
static void set_fraction(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    s->resources->gpu->fraction = (double)e->n / 100;
}

/* ---- MIG ---- */
static void set_mig(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    s->resources->gpu->mig = e->s;
}

static int cmp_profile(const void *pa, const void *pb) /* the largest first: "3g.40gb" */
{
    const char *const *a = pa, *const *b = pb;

    return strtol(*a, NULL, 10) != strtol(*b, NULL, 10)
               ? (strtol(*a, NULL, 10) < strtol(*b, NULL, 10) ? 1 : -1)
               : -strcmp(*a, *b);
}

/* Smaller profiles that devices are cut into, each once. */
static uint32_t profiles_below(const struct hints *h, const char *v[PROFILES_MAX])
{
    const struct table *t = &h->p->t;
    uint32_t n = 0;

    for (uint32_t i = 0; i < t->n_devices; i++) {
        const struct gpu *g = t->devices[i].spec;

        for (uint32_t k = 0; t->devices[i].mig && k < g->n_migProfiles && n < PROFILES_MAX; k++) {
            bool known = false;

            for (uint32_t j = 0; j < n && !known; j++)
                known = strcmp(v[j], g->migProfiles[k]) == 0;
            if (!known && cmp_profile(&g->migProfiles[k], &h->pl->need.mig) > 0)
                v[n++] = g->migProfiles[k];
        }
    }
    if (n > 1)
        qsort(v, n, sizeof(*v), cmp_profile);
    return n;
}

static void hint_mig(struct hints *h)
{
    const char *v[PROFILES_MAX];
    uint32_t n = profiles_below(h, v);
    struct tried t;

    for (uint32_t i = 0; i < n; i++) {
        struct edit e = {.apply = set_mig, .s = v[i]};

        if (!hint_try_edit(h, &e, &t))
            continue;
        hint_add(h, "mig %s instead of %s %s", v[i], h->pl->need.mig, hint_where(h, &t));
        return;
    }
}

void hint_gpus(struct hints *h)
{
    const struct need *n = &h->pl->need;
    int64_t most, best = 0, room;
    struct tried t;

    if (n->mode == NEED_MIG)
        hint_mig(h);
    if (n->mode == NEED_FRACTION) {
        struct edit e = {.apply = set_fraction};
        int64_t high = (n->milli + 9) / 10 - 1;

        most = hint_most(h, &e, 1, high, high, &t);
        if (most >= 1)
            hint_add(h, "fraction %.2f instead of %.4g %s", (double)most / 100,
                     h->pl->gpu->fraction, hint_where(h, &t));
    } else if (n->mode != NEED_CPU && n->count > 1) {
        struct edit e = {.apply = set_count};

        for (uint32_t i = 0; i < h->pl->n_rows; i++) {
            const struct row *r = &h->pl->rows[i];

            /* "6 of 8 free on one node" */
            room = (r->reason == REASON_GPU_BUSY && r->text) ||
                           (r->reason == REASON_OTHERS && n->workers == 1) ||
                           r->reason == REASON_UNHEALTHY
                       ? r->x
                       : 0;
            best = room > best ? room : best;
        }
        most = hint_most(h, &e, 1, (int64_t)n->count - 1, best ? best : (int64_t)n->count - 1, &t);
        if (most >= 1)
            hint_add(h, "%lld %s%s per worker instead of %u %s", (long long)most,
                     n->mode == NEED_MIG ? "instance" : "GPU", most == 1 ? "" : "s", n->count,
                     hint_where(h, &t));
    }
}

/* ---- CPU and memory ---- */
#define MIB (1024ll * 1024)

static void set_cpu(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    s->resources->cpu = e->n * (int64_t)e->x;
}
static void set_host_memory(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    s->resources->memory = e->n * (int64_t)e->x;
}

/* The most that any usable node of the groups asked for has free. */
static int64_t free_host(const struct hints *h, bool memory)
{
    const struct table *t = &h->p->t;
    int64_t best = 0;

    for (uint32_t i = 0; i < h->pl->n_rows; i++) {
        const struct row *r = &h->pl->rows[i];

        if (r->reason != REASON_CPU && r->reason != REASON_MEMORY && r->reason != REASON_OTHERS)
            continue;
        for (uint32_t m = t->groups[r->group].m0;
             m < t->groups[r->group].m0 + t->groups[r->group].n; m++) {
            uint32_t node = t->members[m].node;
            int64_t is = memory ? t->memory_free[node] : t->cpu_free[node];

            if (t->nodes[node].ok && is > best)
                best = is;
        }
    }
    return best;
}

static void lower_host(struct hints *h, bool memory)
{
    const struct need *n = &h->pl->need;
    int64_t is = memory ? n->memory : n->cpu;
    int64_t unit = memory ? (is >= 2ll * 1024 * MIB ? 1024ll * MIB : MIB) : is >= 2000 ? 1000 : 100;
    struct edit e = {.apply = memory ? set_host_memory : set_cpu, .x = (double)unit};
    int64_t high = (is + unit - 1) / unit - 1, most;
    char now[32], then[32];
    struct tried t;

    if (high < 1)
        return;
    most = hint_most(h, &e, 1, high, free_host(h, memory) / unit, &t);
    if (most < 1)
        return;
    if (memory) {
        quantity_print_bytes(most * unit, now);
        quantity_print_bytes(is, then);
    } else {
        quantity_print_milli(most * unit, now);
        quantity_print_milli(is, then);
    }
    hint_add(h, "%s %s per worker instead of %s %s", memory ? "memory" : "cpu", now, then,
             hint_where(h, &t));
}

void hint_host(struct hints *h)
{
    if (hint_any(h, REASON_CPU) || hint_any(h, REASON_MEMORY) || hint_any(h, REASON_OTHERS)) {
        lower_host(h, false);
        lower_host(h, true);
    }
}
