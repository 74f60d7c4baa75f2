/* Work comes, runs, saves, ends and is preempted at random: whoever goes was allowed to go, and
 * production never is. Argument or HANSE_EVENTS: how many events (1,000,000 take ten seconds
 * without sanitizers). */
#include "tests/support/policy/preempt_lab.h"

#include <stdlib.h>

#define LIVE_MAX 96
#ifdef __SANITIZE_ADDRESS__
#define EVENTS 100000
#else
#define EVENTS 1000000
#endif

static long events = EVENTS;

struct live {
    struct object *o;
    struct lab_job job;
    char name[24];
};
struct town {
    struct lab k;
    struct live *live[LIVE_MAX];
    uint32_t n;
    uint64_t serial;
    long plans, victims, gangs, reclaimed, by_class[4];
};

static const char *const classes[] = {"low", "mid", "high", "prod"};
static const char *const queues[] = {"", "a", "b"};

static int64_t held(const char *queue, const char *class_, void *arg)
{
    const struct town *t = arg;
    int64_t sum = 0;

    (void)class_;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct workload *w = object_as(t->live[i]->o, workload);

        if (strcmp(w->spec->queue, queue) == 0)
            sum += w->status->placement->gpus;
    }
    return sum;
}

/* The kit keeps no reference: millions are made. */
static struct object *job_object(struct lab *k, struct lab_job j, const struct placement *at)
{
    (void)lab_job(k, j, at);
    return k->made[--k->n_made];
}

static int64_t age(const struct town *t) /* of what happens now, at NOW */
{
    return (NOW - t->k.now_ms) / 1000;
}

static void live_end(struct town *t, uint32_t i)
{
    struct live *l = t->live[i];

    pool_drop(t->k.p, l->o->meta->uid);
    (void)object_unref(l->o);
    mem_free(l);
    t->live[i] = t->live[--t->n];
}

static void live_begin(struct town *t, const struct lab_job *j, const struct placement *at)
{
    struct live *l = mem_new(struct live);

    l->job = *j;
    str_copy(l->name, sizeof l->name, j->name);
    l->job.name = l->name;
    l->job.placed_s = age(t);
    l->o = job_object(&t->k, l->job, at);
    pool_hold(t->k.p, l->o);
    t->live[t->n++] = l;
}

static void live_saves(struct town *t, struct live *l)
{
    struct object *old = l->o;
    struct placement at = *object_as(old, workload)->status->placement;

    l->job.saved_s = age(t);
    l->job.phase = lab_random(&t->k, 20) ? PHASE_RUNNING : PHASE_UNKNOWN;
    l->job.migration = lab_random(&t->k, 20) ? "" : "m";
    l->o = job_object(&t->k, l->job, &at);
    pool_hold(t->k.p, l->o);
    (void)object_unref(old);
}

static void check_victim(struct town *t, const struct object *w, const struct victim *v)
{
    const struct workload *x = object_as(v->workload, workload);
    enum reason why = policy_victim_check(w, v->workload, t->k.now_ms, t->k.classes, t->k.n_classes,
                                          t->k.queues, t->k.n_queues, held, t);

    if (strcmp(x->spec->priorityClassName, "prod") == 0)
        fail_msg("production was a victim");
    if (why != REASON_NONE)
        fail_msg("%s is a victim, but %s", v->workload->meta->name, reason_text(why));
    assert_int_equal(x->status->phase, PHASE_RUNNING);
    assert_string_equal(x->status->migration, "");
    if (strcmp(x->spec->priorityClassName, "mid") == 0)
        assert_true(t->k.now_ms - x->status->phaseSince >= 600000);
    t->victims++;
    t->reclaimed += v->reclaim;
    for (size_t i = 0; i < 4; i++)
        t->by_class[i] += strcmp(x->spec->priorityClassName, classes[i]) == 0;
}

static void preempt(struct town *t, const struct object *w, const struct lab_job *j)
{
    struct preempt_plan *plan = lab_plan(&t->k, w);
    struct placement *at;

    if (!plan)
        return;
    t->plans++;
    t->gangs += j->workers > 1;
    for (size_t i = 0; i < plan->n; i++)
        check_victim(t, w, &plan->victims[i]);
    pool_nominate(t->k.p, w, plan->placement);
    for (size_t i = 0; i < plan->n; i++) {
        for (uint32_t k = t->n; k-- > 0;) {
            if (t->live[k]->o == plan->victims[i].workload) {
                live_end(t, k);
                break;
            }
        }
    }
    at = lab_place(&t->k, w);
    assert_non_null(at);
    live_begin(t, j, at);
    pool_nominate(t->k.p, w, NULL);
}

static void arrive(struct town *t)
{
    struct lab *k = &t->k;
    char name[24];
    struct lab_job j = {.name = name,
                        .class_ = classes[lab_random(k, 4)],
                        .queue = queues[lab_random(k, 3)],
                        .workers = lab_random(k, 4) ? 1 : 2 + lab_random(k, 2),
                        .gpus = lab_random(k, 6) ? 1 + lab_random(k, 4) : 0,
                        .cpu = 1000 * (int64_t)lab_random(k, 6),
                        .within = lab_random(k, 4) ? 0 : LEVEL_RACK};
    struct object *w;
    struct placement *at;

    (void)snprintf(name, sizeof(name), "w%llu", (unsigned long long)t->serial++);
    if (lab_random(k, 5) == 0) {
        j.gpus = 0;
        j.fraction = 0.25 * (1 + lab_random(k, 3));
    }
    if (t->n == LIVE_MAX)
        live_end(t, lab_random(k, t->n));
    w = job_object(k, j, NULL);
    at = lab_place(k, w);
    if (at)
        live_begin(t, &j, at);
    else
        preempt(t, w, &j);
    (void)object_unref(w);
}

static void production_never_goes(void **state)
{
    struct town *t = mem_new(struct town);

    (void)state;
    lab_init(&t->k, 42);
    lab_class(&t->k, "low", 10, false, 0);
    lab_class(&t->k, "mid", 50, false, 600000);
    lab_class(&t->k, "high", 80, false, 0);
    lab_class(&t->k, "prod", 100, true, 0);
    lab_queue(&t->k, "a", 10, 0);
    lab_queue(&t->k, "b", 8, 20);
    lab_target(&t->k, "hub");
    for (int i = 0; i < 6; i++) {
        char name[8];

        (void)snprintf(name, sizeof(name), "n%d", i);
        lab_node(&t->k, (struct lab_node){.name = name,
                                          .target = "hub",
                                          .gpus = 4,
                                          .cpu = 24000,
                                          .rack = i < 3 ? "r1" : "r2",
                                          .counted = i == 2 || i == 3});
    }
    for (long i = 0; i < events; i++) {
        uint32_t what = lab_random(&t->k, 10);

        arena_reset(t->k.a);
        if (what < 5)
            arrive(t);
        else if (what < 7 && t->n)
            live_end(t, lab_random(&t->k, t->n));
        else if (what < 9 && t->n)
            live_saves(t, t->live[lab_random(&t->k, t->n)]);
        else
            t->k.now_ms += 1000 * (int64_t)lab_random(&t->k, 600);
    }
    print_message("%ld events: %ld plans (%ld of gangs), %ld victims (%ld reclaimed): %ld low, "
                  "%ld mid, %ld high, %ld production\n",
                  events, t->plans, t->gangs, t->victims, t->reclaimed, t->by_class[0],
                  t->by_class[1], t->by_class[2], t->by_class[3]);
    assert_int_equal(t->by_class[3], 0);
    assert_true(t->by_class[0] && t->by_class[1] && t->by_class[2]);
    assert_true(t->gangs > 0 && t->reclaimed > 0);
    while (t->n)
        live_end(t, 0);
    assert_int_equal(pool_free_gpu_milli(t->k.p, NULL), 24000);
    lab_fini(&t->k);
    mem_free(t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(production_never_goes)};
    const char *n = argc > 1 ? argv[1] : getenv("HANSE_EVENTS");

    if (n)
        events = strtol(n, NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
