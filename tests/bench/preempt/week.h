/* The jobs of a recorded week, where they run and what they have done: what every way to choose
 * victims (ways.h) starts from, and what it costs when one of them goes. */
#ifndef HANSE_TESTS_BENCH_PREEMPT_WEEK_H
#define HANSE_TESTS_BENCH_PREEMPT_WEEK_H

#include "tests/bench/preempt/fleet.h"

#define EPOCH_MS 1508112000000 /* 2017-10-16T00:00:00Z */
#define JOBS_MAX 20000
#define RESTART_S 360 /* policy's own assumption: until a stopped run computes again */
#define STOP_S 30     /* a victim's grace, the schema's default: its room is free after it */
#define GPUS_OF_NODE 8

enum { BATCH, TEAM, PRODUCTION, CLASS_NR };
static const char *const trace_classes[CLASS_NR] = {"batch", "team", "production"};

/* How victims are chosen. NOW and ENDS are no rivals but yardsticks. */
enum way {
    WAY_PLAN,   /* the product */
    WAY_NEWEST, /* lowest priority, then newest; who is not needed stays (as Kueue) */
    WAY_KUBE,   /* kube-scheduler's order of nodes and of victims on them */
    WAY_SLURM,  /* preempt/partition_prio with youngest_first, reorder_count 1 */
    WAY_NOW,    /* the plan, but a single GPU from whoever loses least at this moment */
    WAY_ENDS,   /* the same as the plan, but it knows when each would end by itself */
    WAY_NR
};

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
    enum way way;
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

/* ---- the trace ---- */
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

/* ---- ends ---- */
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

/* ---- running and queued ---- */
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

#endif
