/* The head of a queue that does not fit: room is kept for it, others use that only while they end
 * in time, and it starts, whatever comes after it. */
#include "api/base/failpoint.h"
#include "tests/support/policy/policy_world.h"

#define MINUTE 60000
#define HOUR (60 * MINUTE)
#define GPU(n) "  resources: {gpu: {count: " #n "}}\n"
#define GANG "  gang: {workers: 4}\n  resources: {gpu: {count: 8}}\n"
#define RUNS(d) "  expected: {duration: " d "}\n"

static int setup(void **state)
{
    (void)world_setup(state);
    world_target(*state, "hub", "tier: hub");
    world_nodes(*state, "hub", 4, 8, "h100", "");
    return 0;
}
static int teardown(void **state)
{
    failpoint_plant(NULL);
    return world_teardown(state);
}

static const char *time_of(int64_t ms)
{
    static char text[4][32];
    static unsigned i;

    time_print(ms, text[++i % 4]);
    return text[i % 4];
}

/* Waits since then. */
static const struct object *waits(struct world *w, const char *name, int64_t since,
                                  const char *spec)
{
    char text[1024];

    (void)snprintf(text, sizeof(text), "%sstatus: {phase: Queued, queuedAt: \"%s\"}\n", spec,
                   time_of(since));
    return world_workload(w, name, text);
}

/* Runs since then on `gpus` devices of hub-nNODE from `first` on. */
static void runs(struct world *w, const char *name, int node, int first, int gpus, int64_t since,
                 const char *spec)
{
    char text[1024], devices[64] = "";
    size_t n = 0;

    for (int i = 0; i < gpus; i++)
        n += (size_t)snprintf(devices + n, sizeof(devices) - n, "%s%d", i ? ", " : "", first + i);
    (void)snprintf(text, sizeof(text),
                   "  resources: {gpu: {count: %d}}\n%sstatus:\n  phase: Running\n  epoch: 1\n"
                   "  phaseSince: \"%s\"\n  placement: {target: hub, class: h100, since: \"%s\", "
                   "gpus: %d, assignments: [{node: hub-n%d, gpus: [%s], gpuMilli: 1000}]}\n",
                   gpus, spec, time_of(since), time_of(since), gpus * 1000, node, devices);
    pool_hold(w->p, world_workload(w, name, text));
}

struct asked {
    const char *name, *spec, *target; /* NULL: it waits */
};

static void cycle(struct world *w, const struct object *const *v, size_t n, int64_t now,
                  struct cycle_item *it)
{
    struct err err;

    for (size_t i = 0; i < n; i++)
        it[i] = (struct cycle_item){.workload = v[i]};
    assert_int_equal(policy_cycle(w->p, it, n, now, 1, 7, 0, w->a, &err), 0);
}

/* Two nodes are free until the gang can start, in an hour, when the other two are. */
static void test_who_comes_after_ends_in_time_or_stays_off(void **state)
{
    struct world *w = *state;
    const struct object *v[7];
    struct cycle_item it[7];
    int64_t changes;

    runs(w, "a", 1, 0, 8, NOW - HOUR, RUNS("2h"));
    runs(w, "b", 2, 0, 8, NOW - HOUR, RUNS("90m"));
    v[0] = waits(w, "gang", NOW - 10 * MINUTE, GANG);
    v[1] = waits(w, "short", NOW - 9 * MINUTE, GPU(8) RUNS("59m"));
    v[2] = waits(w, "long", NOW - 8 * MINUTE, GPU(1) RUNS("61m"));
    v[3] = waits(w, "untold", NOW - 7 * MINUTE, GPU(1));
    v[4] = waits(w, "small", NOW - 6 * MINUTE, GPU(2) RUNS("60m"));
    v[5] = waits(w, "wide", NOW - 5 * MINUTE, GPU(8) RUNS("1m"));
    v[6] = waits(w, "cpu", NOW - 4 * MINUTE, "  resources: {cpu: 4}\n");
    cycle(w, v, 7, NOW, it);
    assert_string_equal(it[0].workload->meta->name, "gang");
    assert_null(it[0].placement);
    assert_true(it[0].decision->startEstimate == NOW + HOUR);
    assert_string_equal(it[0].decision->startAfter, "a");
    assert_string_equal(it[0].decision->keptOn, "hub");
    assert_non_null(it[1].placement); /* ends a minute before */
    assert_null(it[2].placement);     /* a minute after */
    assert_non_null(strstr(it[2].decision->message, "room there is kept for dev/gang"));
    assert_null(it[3].placement);
    assert_non_null(it[4].placement);                        /* just in time, beside it */
    assert_null(it[5].placement);                            /* there is no such room at all */
    assert_null(it[6].placement == NULL ? (void *)1 : NULL); /* touches no device that is kept */
    changes = pool_free_gpu_milli(w->p, "h100");
    assert_true(changes == 6000); /* nothing of the shadow stays behind */
}

/* In the middle of a cycle: what has to leave its place goes where room is kept, too. */
static void test_who_must_move_does_not_wait_for_a_head(void **state)
{
    struct world *w = *state;
    struct turns *t = policy_turns_create(w->p);
    struct cycle_item it = {.workload = waits(w, "gang", NOW - 10 * MINUTE, GANG)};
    struct place_request rq = {.workload = it.workload, .now_ms = NOW};
    struct move_choice c;
    struct err err;

    runs(w, "a", 1, 0, 8, NOW - HOUR, RUNS("2h"));
    (void)policy_turns_lane(t, it.workload);
    assert_int_equal(policy_turns_next(t, &rq.queue_position), 0);
    assert_int_equal(policy_turn(w->p, t, 0, &it, NULL, &rq, w->a, &err), 0);
    assert_true(policy_turns_keep(t, w->p));
    assert_false(policy_turns_keep(t, w->p));
    assert_int_equal(pool_free_gpu_milli(w->p, "h100"), 0);
    rq.workload = world_workload(w, "a",
                                 GPU(8) "status:\n  phase: Running\n  epoch: 1\n  placement: "
                                        "{target: hub, class: h100, gpus: 8000, assignments: "
                                        "[{node: hub-n1, gpus: [0, 1, 2, 3, 4, 5, 6, 7], gpuMilli: "
                                        "1000}]}\n");
    assert_int_equal(policy_move(w->p, &rq, MOVE_SICK, w->a, &c, &err), 0);
    assert_non_null(c.placement);
    assert_int_equal(pool_free_gpu_milli(w->p, "h100"), 0); /* and it is kept on */
    policy_turns_over(t, w->p, true);
    assert_int_equal(pool_free_gpu_milli(w->p, "h100"), 24000);
    (void)policy_turns_destroy(t);
}

/* Beside what is kept there is room: who runs for long goes there. */
static void test_room_that_is_not_kept_is_used(void **state)
{
    struct world *w = *state;
    const struct object *v[2];
    struct cycle_item it[2];

    runs(w, "a", 1, 0, 8, NOW - HOUR, RUNS("2h"));
    v[0] = waits(w, "pair", NOW - 10 * MINUTE,
                 "  gang: {workers: 4}\n  resources: {gpu: {count: 6}}\n");
    v[1] = waits(w, "untold", NOW - 9 * MINUTE, GPU(2));
    cycle(w, v, 2, NOW, it);
    assert_null(it[0].placement);
    assert_non_null(it[1].placement); /* two devices of a node are nobody's */
}

/* What tells nothing is taken to end a day after it began, what is overdue after as long again. */
static void test_the_bound_of_what_tells_nothing(void **state)
{
    struct world *w = *state;
    const struct object *v[1];
    struct cycle_item it[1];

    runs(w, "a", 1, 0, 8, NOW - HOUR, "");
    v[0] = waits(w, "gang", NOW - 10 * MINUTE, GANG);
    cycle(w, v, 1, NOW, it);
    assert_true(it[0].decision->startEstimate == NOW + 23 * HOUR);
    assert_string_equal(it[0].decision->startAfter, ""); /* nobody expects it then */
    pool_drop(w->p, "uid-a");
    runs(w, "a", 1, 0, 8, NOW - 3 * HOUR, RUNS("1h"));
    cycle(w, v, 1, NOW, it);
    assert_true(it[0].decision->startEstimate == NOW + 3 * HOUR);
    pool_drop(w->p, "uid-a");
    runs(w, "a", 1, 0, 8, NOW - 40 * HOUR, "");
    cycle(w, v, 1, NOW, it);
    assert_true(it[0].decision->startEstimate == NOW + 40 * HOUR);
}

/* A stream of small jobs, three a minute, each of three minutes, whatever they tell; and a gang
 * that needs all there is, which came after the first of them. Minutes until it starts, -1: never
 * within `most`. */
struct stream {
    const char *name, *told;
    bool of_others; /* another queue than the gang's, which has used less */
};
static int64_t gang_starts(const struct stream *stream, int64_t most)
{
    static struct world w;
    struct {
        const struct object *o;
        int64_t ends;
        bool runs;
    } job[2000];
    size_t n = 0;
    int64_t started = -1;
    char spec[256];

    world_init(&w);
    world_target(&w, "hub", "tier: hub");
    world_nodes(&w, "hub", 4, 8, "h100", "");
    world_put(&w, "kind: Queue\nmetadata: {name: used}\nspec: {weight: 1}\n---\n"
                  "kind: Queue\nmetadata: {name: fresh}\nspec: {weight: 1}\n");
    pool_set_use(w.p, (struct queue_use[]){{"used", 1000}, {"fresh", 0}}, 2);
    (void)snprintf(spec, sizeof(spec), "%s%s  queue: %s\n", GPU(4), stream->told,
                   stream->of_others ? "fresh" : "used");
    for (int64_t minute = 0; minute < most && started < 0; minute++) {
        int64_t now = NOW + minute * MINUTE;
        const struct object *v[2001];
        struct cycle_item it[2001];
        size_t m = 0;
        char name[32];

        for (size_t i = 0; i < n; i++) {
            if (job[i].runs && job[i].ends == now) {
                (void)snprintf(name, sizeof(name), "uid-%s", job[i].o->meta->name);
                pool_drop(w.p, name);
                job[i].runs = false;
            }
        }
        for (int i = 0; i < 3; i++) {
            (void)snprintf(name, sizeof(name), "j%zu", n);
            job[n].o = waits(&w, name, now - 1000 + i, spec);
            job[n].ends = 0;
            job[n++].runs = false;
        }
        if (minute == 2)
            job[n] =
                (__typeof__(job[0])){.o = waits(&w, "gang", now - 2000, GANG "  queue: used\n")},
            n++;
        for (size_t i = 0; i < n; i++)
            if (!job[i].ends)
                v[m++] = job[i].o;
        cycle(&w, v, m, now, it);
        for (size_t k = 0; k < m; k++) {
            for (size_t i = 0; it[k].placement && i < n; i++) {
                if (job[i].o != it[k].workload)
                    continue;
                job[i].runs = true;
                job[i].ends = now + 3 * MINUTE;
                const struct assignment *at = &it[k].placement->assignments[0];
                if (it[k].placement->n_assignments == 1)
                    runs(&w, job[i].o->meta->name, at->node[5] - '0', (int)at->gpus[0], 4, now,
                         stream->told);
            }
            if (it[k].placement && !strcmp(it[k].workload->meta->name, "gang"))
                started = minute - 2;
        }
    }
    world_fini(&w);
    return started;
}

static void test_a_gang_starts_under_a_stream(void **state)
{
    static const struct stream streams[] = {
        {"told durations", RUNS("3m"), false},      {"untold ones", "", false},
        {"too short ones", RUNS("1m"), false},      {"told ones of others", RUNS("3m"), true},
        {"untold ones of others", "", true},        {"too short ones of others", RUNS("1m"), true},
        {"much too short ones", RUNS("1s"), false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        int64_t minutes = gang_starts(&streams[i], 60);
        if (minutes < 0 || minutes > 4) /* what ran when it came is over after three */
            fail_msg("under %s it started after %lld minutes", streams[i].name, (long long)minutes);
    }
    failpoint_plant("policy.no-shadow");
    assert_int_equal(gang_starts(&streams[0], 60), -1);
    assert_int_equal(gang_starts(&streams[1], 60), -1);
    failpoint_plant(NULL);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_who_comes_after_ends_in_time_or_stays_off),
        T(test_who_must_move_does_not_wait_for_a_head),
        T(test_room_that_is_not_kept_is_used),
        T(test_the_bound_of_what_tells_nothing),
        T(test_a_gang_starts_under_a_stream),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
