/* A recorded trace, replayed: production work arrives, preempts and is never preempted; all else is
 * requeued with its place and resumes from its last checkpoint. The same arrivals, the same rules
 * of who may be a victim, two ways to choose: the product's plan, and what others do: the lowest
 * priority first, of those the newest first, until there is room; then whoever turns out not to be
 * needed comes back, in the opposite order. README.md tells the assumptions. */
#ifndef HANSE_TESTS_BENCH_PREEMPT_TRACE_H
#define HANSE_TESTS_BENCH_PREEMPT_TRACE_H

#include "tests/bench/preempt/fleet.h"

#define EPOCH_MS 1508112000000 /* 2017-10-16T00:00:00Z */
#define JOBS_MAX 20000
#define RESTART_S 360 /* policy's own assumption: until a stopped run computes again */
#define STOP_S 30     /* a victim's grace, the schema's default: its room is free after it */
#define GPUS_OF_NODE 8

enum { BATCH, TEAM, PRODUCTION, CLASS_NR };
static const char *const trace_classes[CLASS_NR] = {"batch", "team", "production"};

struct tjob { /* times in seconds since the week began */
    char name[16];
    int64_t submit, duration;
    long workers, gpus;
    int cls;
    int64_t interval; /* between checkpoints; 0 = none */
    int64_t saved;    /* work that a checkpoint holds */
    int64_t begun, first_start;
    int64_t told; /* checkpoint that the pool knows of; -1 = none of this epoch */
    uint32_t epoch;
    bool running, restarts, done;
    struct object *o; /* as it runs */
};
struct tevent {
    int64_t at;
    uint32_t job, epoch;
};
struct trace_options {
    const char *path;
    long production_percent;
    double load;
    int64_t interval; /* 0 = mixed */
    uint64_t draw;    /* which jobs are production */
    bool newest;
};
struct trace_result {
    long jobs, production, victims, plans, unplanned, nodes;
    double lost_gpu_s, restart_gpu_s, wait_mean_s, wait_p99_s, wait_max_s, others_hours;
};
struct trace {
    const struct trace_options *o;
    struct pool *p;
    struct arena *a;
    struct tjob *jobs;
    uint32_t n;
    struct tevent *heap; /* ends */
    uint32_t n_heap;
    uint32_t *queue[CLASS_NR], n_queue[CLASS_NR];
    uint32_t *running, n_running;
    int64_t now;
    struct trace_result r;
};

/* ---- the trace
 * -------------------------------------------------------------------------------------------------
 */
static inline int64_t trace_time(const char *s) /* 2017-10-16T…Z, in one month */
{
    int d, h, m, sec;

    if (sscanf(s, "2017-10-%dT%d:%d:%dZ", &d, &h, &m, &sec) != 4)
        return -1;
    return (((int64_t)(d - 16) * 24 + h) * 60 + m) * 60 + sec;
}

static inline void trace_load(struct trace *t)
{
    static const int64_t mixed[] = {600, 1800, 3600, 7200, 0};
    FILE *f = fopen(t->o->path, "re");
    char line[128], when[32], vc[32];
    long gpus;
    double duration;

    if (!f)
        die("cannot open the trace");
    t->jobs = mem_zalloc(sizeof(*t->jobs) * JOBS_MAX);
    while (t->n < JOBS_MAX && fgets(line, sizeof(line), f)) {
        struct tjob *j = &t->jobs[t->n];
        uint64_t s;

        if (sscanf(line, "%31[^,],%lf,%ld,%31[0-9a-f]", when, &duration, &gpus, vc) != 4 ||
            trace_time(when) < 0)
            continue;
        (void)snprintf(j->name, sizeof(j->name), "j%05u", t->n);
        j->submit = trace_time(when);
        j->duration = (int64_t)duration + 1;
        j->workers = (gpus + GPUS_OF_NODE - 1) / GPUS_OF_NODE;
        j->gpus = gpus / j->workers;
        s = t->n + 1 + t->o->draw * JOBS_MAX; /* the same in both ways and on every machine */
        (void)next(&s, 2);
        j->cls = next(&s, 100) < (uint32_t)t->o->production_percent ? PRODUCTION
                 : (vc[0] & 1)                                      ? TEAM
                                                                    : BATCH;
        j->interval = t->o->interval ? t->o->interval : mixed[next(&s, 5)];
        j->first_start = -1;
        t->n++;
    }
    (void)fclose(f);
    if (t->n == 0)
        die("the trace holds no job");
}

/* Nodes for the load that is asked for: work that falls into the week, over what they have. */
static inline long trace_nodes(const struct trace *t)
{
    const int64_t end = 7 * 86400;
    double gpu_s = 0;

    for (uint32_t i = 0; i < t->n; i++) {
        const struct tjob *j = &t->jobs[i];
        int64_t s = end - j->submit < j->duration ? end - j->submit : j->duration;

        gpu_s += (double)s * (double)(j->workers * j->gpus);
    }
    return (long)(gpu_s / (double)end / t->o->load / GPUS_OF_NODE) + 1;
}

/* ---- ends
 * ------------------------------------------------------------------------------------------------------
 */
static inline bool tevent_before(const struct tevent *a, const struct tevent *b)
{
    return a->at != b->at ? a->at < b->at : a->job < b->job;
}

static inline void heap_add(struct trace *t, struct tevent e)
{
    uint32_t i = t->n_heap++;

    for (; i > 0 && tevent_before(&e, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = e;
}

static inline struct tevent heap_take(struct trace *t)
{
    struct tevent top = t->heap[0], last = t->heap[--t->n_heap];
    uint32_t i = 0;

    for (uint32_t c; (c = 2 * i + 1) < t->n_heap; i = c) {
        c += c + 1 < t->n_heap && tevent_before(&t->heap[c + 1], &t->heap[c]);
        if (!tevent_before(&t->heap[c], &last))
            break;
        t->heap[i] = t->heap[c];
    }
    t->heap[i] = last;
    return top;
}

/* ---- running and queued
 * -------------------------------------------------------------------------------- */
static inline struct job job_of(const struct tjob *j, int64_t saved_at)
{
    return (struct job){.name = j->name,
                        .class_ = trace_classes[j->cls],
                        .workers = j->workers,
                        .gpus = j->gpus,
                        .placed_at = EPOCH_MS + j->begun * 1000,
                        .saved_at = saved_at < 0 ? 0 : EPOCH_MS + saved_at * 1000};
}

/* Work done in this epoch, and when its last checkpoint was whole (-1: none). */
static inline int64_t work_done(const struct trace *t, const struct tjob *j, int64_t *ret_saved,
                                int64_t *ret_saved_at)
{
    int64_t from = j->begun + (j->restarts ? RESTART_S : 0);
    int64_t done = t->now > from ? t->now - from : 0, saved = 0;

    if (j->interval)
        saved = done / j->interval * j->interval;
    *ret_saved = saved;
    *ret_saved_at = saved ? from + saved : -1;
    return done;
}

/* The pool learns of checkpoints when somebody plans: nobody else asks. */
static inline void tell_checkpoints(struct trace *t)
{
    for (uint32_t i = 0; i < t->n_running; i++) {
        struct tjob *j = &t->jobs[t->running[i]];
        int64_t saved, at;
        struct object *old;
        struct job as;

        (void)work_done(t, j, &saved, &at);
        if (j->cls == PRODUCTION || at == j->told)
            continue;
        j->told = at;
        old = j->o;
        as = job_of(j, at);
        j->o = make_job(&as, object_as(old, workload)->status->placement);
        pool_hold(t->p, j->o);
        (void)object_unref(old);
    }
}

static inline void job_start(struct trace *t, uint32_t i, const struct placement *at, int64_t after)
{
    struct tjob *j = &t->jobs[i];
    struct job as;

    j->begun = t->now + after;
    j->restarts = j->epoch > 0;
    if (j->first_start < 0)
        j->first_start = j->begun;
    j->epoch++;
    j->told = -1;
    j->running = true;
    as = job_of(j, -1);
    j->o = make_job(&as, at);
    pool_hold(t->p, j->o);
    t->running[t->n_running++] = i;
    heap_add(t, (struct tevent){j->begun + j->duration - j->saved + (j->restarts ? RESTART_S : 0),
                                i, j->epoch});
    if (j->restarts)
        t->r.restart_gpu_s += RESTART_S * (double)(j->workers * j->gpus);
}

static inline void job_leave(struct trace *t, uint32_t i)
{
    struct tjob *j = &t->jobs[i];
    uint32_t k = 0;

    while (t->running[k] != i)
        k++;
    t->running[k] = t->running[--t->n_running];
    pool_drop(t->p, j->o->meta->uid);
    (void)object_unref(j->o);
    j->o = NULL;
    j->running = false;
}

static inline void queue_add(struct trace *t, uint32_t i) /* in the order of submission */
{
    uint32_t *q = t->queue[t->jobs[i].cls], *n = &t->n_queue[t->jobs[i].cls], k = (*n)++;

    for (; k > 0 && q[k - 1] > i; k--)
        q[k] = q[k - 1];
    q[k] = i;
}

static inline struct placement *trace_place(struct trace *t, const struct object *w)
{
    struct place_request rq = {.workload = w, .now_ms = EPOCH_MS + t->now * 1000};
    struct decision_spec *d;
    struct placement *at;

    if (policy_place(t->p, &rq, t->a, &d, &at, NULL) != 0)
        die("policy_place failed");
    return at;
}

static inline void evict(struct trace *t, uint32_t i)
{
    struct tjob *j = &t->jobs[i];
    int64_t saved, at, done = work_done(t, j, &saved, &at);

    t->r.lost_gpu_s += (double)(done - saved) * (double)(j->workers * j->gpus);
    t->r.victims++;
    j->saved += saved;
    job_leave(t, i);
    queue_add(t, i);
}

/* ---- the two ways
 * -----------------------------------------------------------------------------------------------
 */
static inline struct placement *by_least_harm(struct trace *t, const struct object *w)
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

/* ---- the replay
 * -----------------------------------------------------------------------------------------------
 */
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
            at = t->o->newest ? by_newest(t, w) : by_least_harm(t, w);
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
