/* Ways to choose victims for the same arrival: the product's plan, what others do, and two
 * yardsticks that tell how much is left to be won. Who may be a victim is the same for all: all
 * that is not production. Each returns where the job goes, its victims gone, or NULL. */
#ifndef HANSE_TESTS_BENCH_PREEMPT_WAYS_H
#define HANSE_TESTS_BENCH_PREEMPT_WAYS_H

#include "tests/bench/preempt/week.h"

#include <math.h>

/* ---- the plan ---- */
static inline struct placement *by_plan(struct trace *t, const struct object *w)
{
    struct place_request rq = {.workload = w, .now_ms = EPOCH_MS + t->now * 1000};
    struct preempt_plan *plan;

    tell_checkpoints(t);
    if (policy_preempt(t->p, &rq, t->a, &plan, NULL) != 0)
        die("policy_preempt failed");
    for (size_t k = 0; plan && k < plan->n; k++) {
        const char *name = plan->victims[k].workload->meta->name;

        evict(t, (uint32_t)strtoul(name + 1, NULL, 10));
    }
    return plan ? plan->placement : NULL;
}

/* ---- lowest priority, then newest ---- */
static const struct tjob *newest_jobs; /* for the comparison of one sort */

static inline int cmp_newest(const void *pa, const void *pb)
{
    uint32_t x = *(const uint32_t *)pa, y = *(const uint32_t *)pb;
    const struct tjob *a = &newest_jobs[x], *b = &newest_jobs[y];

    if (a->cls != b->cls)
        return a->cls < b->cls ? -1 : 1;
    if (a->begun != b->begun)
        return a->begun > b->begun ? -1 : 1;
    return x > y ? -1 : 1;
}

static inline struct placement *by_newest(struct trace *t, const struct object *w)
{
    uint32_t *v = mem_alloc(sizeof(*v) * (t->n_running + 1)), n = 0, k = 0, keep = 0;
    struct placement *at = NULL;

    for (uint32_t i = 0; i < t->n_running; i++) {
        if (t->jobs[t->running[i]].cls != PRODUCTION)
            v[n++] = t->running[i];
    }
    newest_jobs = t->jobs;
    qsort(v, n, sizeof(*v), cmp_newest);
    while (k < n && !at) {
        pool_drop(t->p, t->jobs[v[k++]].o->meta->uid);
        at = trace_place(t, w);
    }
    for (uint32_t i = k; i-- > 0;) { /* the last one was needed */
        if (at && i == k - 1) {
            v[n - 1 - keep++] = v[i];
            continue;
        }
        pool_hold(t->p, t->jobs[v[i]].o);
        if (at && !trace_place(t, w)) {
            uint32_t needed = v[i];

            pool_drop(t->p, t->jobs[needed].o->meta->uid);
            v[n - 1 - keep++] = needed;
        }
    }
    if (at) {
        for (uint32_t i = 0; i < keep; i++)
            evict(t, v[n - 1 - i]);
        at = trace_place(t, w);
    }
    mem_free(v);
    return at;
}

/* ---- nodes ---- */
static inline long node_index(const struct assignment *a)
{
    return strtol(a->node + 1, NULL, 10);
}

static inline const struct placement *place_of(const struct trace *t, uint32_t job)
{
    return object_as(t->jobs[job].o, workload)->status->placement;
}

/* GPUs of it on a node. */
static inline long gpus_on(const struct trace *t, uint32_t job, long node)
{
    const struct placement *p = place_of(t, job);
    long n = 0;

    for (uint32_t i = 0; i < p->n_assignments; i++)
        n += node_index(&p->assignments[i]) == node ? (long)p->assignments[i].n_gpus : 0;
    return n;
}

static inline bool on_nodes(const struct trace *t, uint32_t job, const struct placement *at)
{
    for (uint32_t i = 0; i < at->n_assignments; i++) {
        if (gpus_on(t, job, node_index(&at->assignments[i])))
            return true;
    }
    return false;
}

/* All that may be a victim. */
static inline uint32_t suspects(const struct trace *t, uint32_t *v)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < t->n_running; i++) {
        if (t->jobs[t->running[i]].cls != PRODUCTION)
            v[n++] = t->running[i];
    }
    return n;
}

/* ---- kube-scheduler ---- */
/* A pod at a time. On each node all of lower priority go, then they come back in the order of
 * importance (priority, then who started first) as long as the pod still fits. Of the nodes: no
 * budgets of disruption here; the lowest of the highest priorities, the smallest sum of priorities
 * (each raised by 2^31, so that fewer victims come first), fewest victims, latest start of the
 * most important victim. A gang is asked for pod by pod; where one finds nothing nobody goes (a
 * kindness: it knows no gangs). A victim that is a gang goes whole: its other pods cannot go on
 * alone. */
#define KUBE_OFFSET 2147483648.0

struct kube_node {
    uint32_t v[GPUS_OF_NODE], n; /* victims */
    int highest;
    double sum;
    int64_t start; /* earliest of those of the highest priority */
};

static inline int cmp_important(const void *pa, const void *pb)
{
    return -cmp_newest(pa, pb);
}

/* False when the worker does not fit even then. gone: those who go already. */
static inline bool kube_node_try(const struct trace *t, long node, long want, long taken,
                                 const uint32_t *v, uint32_t n, const bool *gone,
                                 struct kube_node *ret)
{
    uint32_t here[GPUS_OF_NODE], k = 0;
    long free_gpus = GPUS_OF_NODE - taken;

    *ret = (struct kube_node){.highest = -1, .start = INT64_MAX};
    for (uint32_t i = 0; i < t->n_running; i++) {
        if (t->jobs[t->running[i]].cls == PRODUCTION)
            free_gpus -= gpus_on(t, t->running[i], node);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!gone[v[i]] && gpus_on(t, v[i], node))
            here[k++] = v[i]; /* v is in order of importance */
    }
    if (free_gpus < want)
        return false;
    for (uint32_t i = 0; i < k; i++) {
        const struct tjob *j = &t->jobs[here[i]];
        long g = gpus_on(t, here[i], node);

        if (free_gpus - g >= want) {
            free_gpus -= g;
            continue;
        }
        ret->v[ret->n++] = here[i];
        ret->sum += KUBE_OFFSET + 10 * (j->cls + 1);
        if (j->cls > ret->highest) {
            ret->highest = j->cls;
            ret->start = INT64_MAX;
        }
        if (j->cls == ret->highest && j->begun < ret->start)
            ret->start = j->begun;
    }
    return true;
}

static inline bool kube_better(const struct kube_node *a, const struct kube_node *b)
{
    if (a->highest != b->highest)
        return a->highest < b->highest;
    if (a->sum != b->sum)
        return a->sum < b->sum;
    return a->n != b->n ? a->n < b->n : a->start > b->start;
}

static inline struct placement *by_kube(struct trace *t, const struct object *w)
{
    const struct tjob *job = &t->jobs[strtoul(w->meta->name + 1, NULL, 10)];
    uint32_t *v = mem_alloc(sizeof(*v) * (t->n_running + 1)), n = suspects(t, v);
    bool *gone = mem_zalloc(t->n), ok = true;
    long *taken = mem_zalloc(sizeof(*taken) * (size_t)t->r.nodes);
    struct placement *at = NULL;

    newest_jobs = t->jobs;
    qsort(v, n, sizeof(*v), cmp_important);
    for (long k = 0; ok && k < job->workers; k++) {
        struct kube_node best, x;
        long best_node = -1;

        for (long i = 0; i < t->r.nodes; i++) {
            if (!kube_node_try(t, i, job->gpus, taken[i], v, n, gone, &x) ||
                (best_node >= 0 && !kube_better(&x, &best)))
                continue;
            best = x;
            best_node = i;
        }
        ok = best_node >= 0;
        if (ok)
            taken[best_node] += job->gpus;
        for (uint32_t i = 0; ok && i < best.n; i++)
            gone[best.v[i]] = true;
    }
    for (uint32_t i = 0; ok && i < n; i++) {
        if (gone[v[i]])
            evict(t, v[i]);
    }
    if (ok)
        at = trace_place(t, w);
    mem_free(taken);
    mem_free(gone);
    mem_free(v);
    return at;
}

/* ---- Slurm ---- */
/* The youngest goes first until the job fits. Then they are put in the order of how many of the
 * chosen nodes they lie on, the last one first, and it is tried again (reorder_count). Of those
 * who were taken off, whoever lies on a node that is used goes. */
#define SLURM_PASSES 2

struct slurm_rank {
    uint32_t job;
    uint32_t usable, at; /* nodes; place before */
};

static inline int cmp_usable(const void *pa, const void *pb)
{
    const struct slurm_rank *a = pa, *b = pb;

    if (a->usable != b->usable)
        return a->usable > b->usable ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

static inline int cmp_youngest(const void *pa, const void *pb)
{
    uint32_t x = *(const uint32_t *)pa, y = *(const uint32_t *)pb;
    const struct tjob *a = &newest_jobs[x], *b = &newest_jobs[y];

    if (a->begun != b->begun)
        return a->begun > b->begun ? -1 : 1;
    return x > y ? -1 : 1;
}

static inline uint32_t nodes_of(const struct trace *t, uint32_t job, const struct placement *at)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < at->n_assignments; i++)
        n += gpus_on(t, job, node_index(&at->assignments[i])) > 0;
    return n;
}

static inline void slurm_reorder(const struct trace *t, uint32_t *v, uint32_t k,
                                 const struct placement *at)
{
    struct slurm_rank *r = mem_alloc(sizeof(*r) * (k + 1));

    for (uint32_t i = 0; i < k; i++)
        r[i] = (struct slurm_rank){v[i], i + 1 == k ? UINT32_MAX : nodes_of(t, v[i], at), i};
    qsort(r, k, sizeof(*r), cmp_usable);
    for (uint32_t i = 0; i < k; i++)
        v[i] = r[i].job;
    mem_free(r);
}

static inline struct placement *by_slurm(struct trace *t, const struct object *w)
{
    uint32_t *v = mem_alloc(sizeof(*v) * (t->n_running + 1)), n = suspects(t, v), k = 0;
    struct placement *at = NULL;

    newest_jobs = t->jobs;
    qsort(v, n, sizeof(*v), cmp_youngest);
    for (int pass = 0; pass <= SLURM_PASSES; pass++) {
        for (k = 0, at = NULL; k < n && !at;) {
            pool_drop(t->p, t->jobs[v[k++]].o->meta->uid);
            at = trace_place(t, w);
        }
        for (uint32_t i = 0; i < k; i++)
            pool_hold(t->p, t->jobs[v[i]].o);
        if (!at)
            break;
        n = k; /* the rest is never asked again */
        if (pass < SLURM_PASSES)
            slurm_reorder(t, v, k, at);
    }
    for (uint32_t i = 0; at && i < k; i++) {
        if (!on_nodes(t, v[i], at))
            v[i] = UINT32_MAX;
    }
    for (uint32_t i = 0; at && i < k; i++) {
        if (v[i] != UINT32_MAX)
            evict(t, v[i]);
    }
    if (at)
        at = trace_place(t, w);
    mem_free(v);
    return at;
}

/* ---- yardsticks ---- */
/* For one GPU, where any victim makes room, the choice needs no search: what the plan would take
 * if only this moment counted, or if it knew who is about to end. All else is planned. */
#define ENDS_SOON_S 120
#define SPARE_SHARE 0.1 /* as in policy/preempt */

static inline double index_of(const struct trace *t, const struct tjob *j)
{
    double gpus = (double)(j->workers * j->gpus);
    int64_t saved, at, done = work_done(t, j, &saved, &at);
    int64_t end = j->begun + j->duration - j->saved + (j->restarts ? RESTART_S : 0);
    double harm = (double)(done - saved) + RESTART_S;

    if (t->o->way == WAY_NOW)
        return harm * gpus;
    harm *= 1 + SPARE_SHARE * (gpus - 1);
    return end - t->now < ENDS_SOON_S ? harm + 1e9 : harm;
}

static inline struct placement *by_index(struct trace *t, const struct object *w)
{
    const struct tjob *job = &t->jobs[strtoul(w->meta->name + 1, NULL, 10)];
    uint32_t best = UINT32_MAX;
    double least = HUGE_VAL;

    if (job->workers * job->gpus > 1)
        return by_plan(t, w);
    for (uint32_t i = 0; i < t->n_running; i++) {
        uint32_t k = t->running[i];
        double is = t->jobs[k].cls == PRODUCTION ? HUGE_VAL : index_of(t, &t->jobs[k]);

        if (is < least || (is == least && is < HUGE_VAL && k < best)) {
            least = is;
            best = k;
        }
    }
    if (best == UINT32_MAX)
        return NULL;
    evict(t, best);
    return trace_place(t, w);
}

static inline struct placement *choose(struct trace *t, const struct object *w)
{
    switch (t->o->way) {
    case WAY_NEWEST:
        return by_newest(t, w);
    case WAY_KUBE:
        return by_kube(t, w);
    case WAY_SLURM:
        return by_slurm(t, w);
    case WAY_NOW:
    case WAY_ENDS:
        return by_index(t, w);
    default:
        return by_plan(t, w);
    }
}

#endif
