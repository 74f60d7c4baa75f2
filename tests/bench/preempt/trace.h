/* A recorded trace, replayed: production work arrives, preempts and is never preempted; all else is
 * requeued with its place and resumes from its last checkpoint. The same arrivals, the same rules
 * of who may be a victim, several ways to choose (ways.h). README.md tells the assumptions. */
#ifndef HANSE_TESTS_BENCH_PREEMPT_TRACE_H
#define HANSE_TESTS_BENCH_PREEMPT_TRACE_H

#include "tests/bench/preempt/ways.h"

/* ---- the replay ---- */
/* A shape that did not fit need not be asked again until something ends: nor one that is larger. */
static inline bool known_misfit(const long *failed, const struct tjob *j)
{
    return (failed[0] && j->workers * j->gpus >= failed[0] && j->workers == 1) ||
           (failed[1] && j->workers >= failed[1]);
}

static inline void try_queue(struct trace *t, int cls)
{
    uint32_t *q = t->queue[cls], n = t->n_queue[cls], *old = mem_alloc(sizeof(*q) * (n + 1));
    long failed[2] = {0, 0}; /* GPUs of one worker; workers of a gang */

    memcpy(old, q, sizeof(*q) * n);
    for (uint32_t i = 0; i < n; i++) {
        struct tjob *j = &t->jobs[old[i]];
        struct job as = job_of(j, -1);
        struct placement *at = NULL;
        struct object *w;
        bool planned = false;

        if (known_misfit(failed, j))
            continue;
        arena_reset(t->a);
        w = make_job(&as, NULL);
        at = trace_place(t, w);
        if (!at && cls == PRODUCTION) {
            at = choose(t, w);
            planned = at != NULL;
            t->r.plans += planned;
            t->r.unplanned += at == NULL;
        }
        (void)object_unref(w);
        if (!at) {
            if (j->workers > 1)
                failed[1] = failed[1] && failed[1] < j->workers ? failed[1] : j->workers;
            else
                failed[0] = failed[0] && failed[0] < j->gpus ? failed[0] : j->gpus;
            continue;
        }
        for (uint32_t k = 0; k < t->n_queue[cls]; k++) {
            if (q[k] != old[i])
                continue;
            memmove(&q[k], &q[k + 1], sizeof(*q) * (t->n_queue[cls] - k - 1));
            t->n_queue[cls]--;
        }
        job_start(t, old[i], at, planned ? STOP_S : 0);
    }
    mem_free(old);
}

static inline void trace_run(struct trace *t)
{
    uint32_t next_job = 0;

    while (next_job < t->n || t->n_heap) {
        bool changed = false;

        t->now = t->n_heap ? t->heap[0].at : INT64_MAX;
        if (next_job < t->n && t->jobs[next_job].submit < t->now)
            t->now = t->jobs[next_job].submit;
        while (next_job < t->n && t->jobs[next_job].submit == t->now) {
            queue_add(t, next_job++);
            changed = true;
        }
        while (t->n_heap && t->heap[0].at == t->now) {
            struct tevent e = heap_take(t);
            struct tjob *j = &t->jobs[e.job];

            if (!j->running || j->epoch != e.epoch)
                continue;
            job_leave(t, e.job);
            j->done = true;
            t->r.others_hours += j->cls == PRODUCTION ? 0 : (double)(t->now - j->submit) / 3600;
            changed = true;
        }
        for (int c = CLASS_NR; changed && c-- > 0;)
            try_queue(t, c);
    }
}

static inline int cmp_wait(const void *pa, const void *pb)
{
    int64_t a = *(const int64_t *)pa, b = *(const int64_t *)pb;

    return (a > b) - (a < b);
}

static inline void trace_waits(struct trace *t)
{
    int64_t *w = mem_alloc(sizeof(*w) * (t->n + 1));
    double sum = 0;
    long n = 0;

    for (uint32_t i = 0; i < t->n; i++) {
        const struct tjob *j = &t->jobs[i];

        if (!j->done)
            die("a job of the trace never ended");
        if (j->cls != PRODUCTION)
            continue;
        w[n] = j->first_start - j->submit;
        sum += (double)w[n++];
    }
    qsort(w, (size_t)n, sizeof(*w), cmp_wait);
    t->r.jobs = t->n;
    t->r.production = n;
    t->r.wait_mean_s = n ? sum / (double)n : 0;
    t->r.wait_p99_s = n ? (double)w[n * 99 / 100] : 0;
    t->r.wait_max_s = n ? (double)w[n - 1] : 0;
    t->r.others_hours /= (double)(t->n - n);
    mem_free(w);
}

/* Sums and maxima over several draws; means and percentiles are averaged. */
static inline void trace_add(struct trace_result *sum, const struct trace_result *r, long draws)
{
    double share = 1 / (double)draws;

    sum->jobs = r->jobs;
    sum->nodes = r->nodes;
    sum->production += r->production;
    sum->victims += r->victims;
    sum->plans += r->plans;
    sum->unplanned += r->unplanned;
    sum->lost_gpu_s += r->lost_gpu_s;
    sum->restart_gpu_s += r->restart_gpu_s;
    sum->wait_mean_s += r->wait_mean_s * share;
    sum->wait_p99_s += r->wait_p99_s * share;
    sum->wait_max_s = r->wait_max_s > sum->wait_max_s ? r->wait_max_s : sum->wait_max_s;
    sum->others_hours += r->others_hours * share;
}

static inline struct trace_result trace_replay(const struct trace_options *o)
{
    struct trace t = {.o = o, .p = pool_create(), .a = arena_create((size_t)1 << 30)};
    char name[32];

    trace_load(&t);
    t.r.nodes = trace_nodes(&t);
    put_prices(t.p);
    put_target(t.p, "philly");
    for (int c = 0; c < CLASS_NR; c++)
        put_class(t.p, trace_classes[c], 10 * (c + 1), c == PRODUCTION, 0);
    for (long i = 0; i < t.r.nodes; i++) {
        (void)snprintf(name, sizeof(name), "n%04ld", i);
        put_node(t.p, name, "philly", i);
    }
    t.heap = mem_alloc(sizeof(*t.heap) * 64 * t.n); /* a job is a victim a few times */
    t.running = mem_alloc(sizeof(*t.running) * t.n);
    for (int c = 0; c < CLASS_NR; c++)
        t.queue[c] = mem_alloc(sizeof(*t.queue[c]) * t.n);
    trace_run(&t);
    trace_waits(&t);
    for (int c = 0; c < CLASS_NR; c++)
        mem_free(t.queue[c]);
    mem_free(t.running);
    mem_free(t.heap);
    mem_free(t.jobs);
    t.a = arena_destroy(t.a);
    t.p = pool_destroy(t.p);
    return t.r;
}

#endif
