/* Whose turn it is, against a plain search over all who wait; refusals that are shared, against
 * each decision worked out; and what a thousand queues or targets cost. */
#include "tests/support/policy/policy_world.h"

#include <stdlib.h>
#include <time.h>

static uint32_t next(uint64_t *s, uint32_t n)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33) % n;
}

static void put_queue(struct world *w, const char *name, const char *spec)
{
    char text[512];

    (void)snprintf(text, sizeof(text), "kind: Queue\nmetadata: {name: %s}\nspec: {%s}\n", name,
                   spec);
    world_put(w, text);
}

static const struct object *put_workload(struct world *w, const char *name, const char *ns,
                                         int64_t queued_ms, const char *spec)
{
    char text[2048], at[32];

    time_print(queued_ms, at);
    (void)snprintf(text, sizeof(text),
                   "kind: Workload\nmetadata: {name: %s, namespace: %s, uid: uid-%s}\nspec:\n"
                   "  run: {command: [x, %s]}\n%sstatus: {phase: Queued, queuedAt: %s}\n",
                   name, ns, name, name, spec, at);
    return world_docs(w, text, false);
}

/* ---- the order ---- */
#define QUEUES 5
static const double weights[QUEUES] = {1, 2, 1, 4, 0.5};

/* Of those who still wait: priority, then the share of the queue, then deadline and submission. */
static bool plain_before(const struct cycle_item *a, const struct cycle_item *b,
                         const double had[QUEUES + 1])
{
    const struct workload_spec *x = object_as(a->workload, workload)->spec,
                               *y = object_as(b->workload, workload)->spec;
    int px = *x->priorityClassName ? 10 : 0, py = *y->priorityClassName ? 10 : 0;
    int qx = *x->queue ? x->queue[1] - '0' : QUEUES, qy = *y->queue ? y->queue[1] - '0' : QUEUES;
    double sx = qx == QUEUES ? 1e300 : had[qx] / weights[qx],
           sy = qy == QUEUES ? 1e300 : had[qy] / weights[qy];
    int64_t dx = x->deadline ? x->deadline : INT64_MAX, dy = y->deadline ? y->deadline : INT64_MAX;
    int64_t tx = object_as(a->workload, workload)->status->queuedAt,
            ty = object_as(b->workload, workload)->status->queuedAt;

    if (px != py)
        return px > py;
    if (sx != sy)
        return sx < sy;
    if (dx != dy)
        return dx < dy;
    if (tx != ty)
        return tx < ty;
    if (strcmp(a->workload->meta->namespace_, b->workload->meta->namespace_))
        return strcmp(a->workload->meta->namespace_, b->workload->meta->namespace_) < 0;
    return strcmp(a->workload->meta->name, b->workload->meta->name) < 0;
}

static void random_item(struct world *w, struct cycle_item *it, size_t i, uint64_t *s)
{
    char name[16], ns[8], spec[512], queue[32] = "", deadline[64] = "";
    uint32_t q = next(s, QUEUES + 1);

    (void)snprintf(name, sizeof(name), "w%zu", i);
    (void)snprintf(ns, sizeof(ns), "n%u", next(s, 3));
    if (q < QUEUES)
        (void)snprintf(queue, sizeof(queue), "  queue: q%u\n", q);
    if (next(s, 4) == 0)
        (void)snprintf(deadline, sizeof(deadline), "  deadline: 2026-01-0%uT00:00:00Z\n",
                       1 + next(s, 5));
    (void)snprintf(spec, sizeof(spec), "%s%s%s  resources: {gpu: {count: %u}}\n", queue, deadline,
                   next(s, 4) == 0 ? "  priorityClassName: high\n" : "", 1 + next(s, 3));
    it->workload = put_workload(w, name, ns, NOW - 1000 * next(s, 50), spec);
}

static void test_turns_are_those_of_a_plain_search(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct world w;
        struct cycle_item it[60];
        bool gone[60] = {false};
        double had[QUEUES + 1] = {0};
        struct queue_use use[2] = {{"q1", 3}, {"q3", 5.5}};
        uint64_t s = seed * 7919;
        struct err err;

        world_init(&w);
        world_target(&w, "hub", "tier: hub");
        world_nodes(&w, "hub", 3, 8, "h100", "");
        world_put(&w, "kind: PriorityClass\nmetadata: {name: high}\nspec: {value: 10}\n");
        for (int q = 0; q < QUEUES; q++) {
            char name[8], spec[32];
            (void)snprintf(name, sizeof(name), "q%d", q);
            (void)snprintf(spec, sizeof(spec), "weight: %g", weights[q]);
            put_queue(&w, name, spec);
        }
        pool_set_use(w.p, use, 2);
        had[1] = 3;
        had[3] = 5.5;
        for (size_t i = 0; i < 60; i++)
            random_item(&w, &it[i], i, &s);
        assert_int_equal(policy_cycle(w.p, it, 60, NOW, 1, 7, 0, w.a, &err), 0);
        for (size_t i = 0; i < 60; i++) {
            for (size_t k = i + 1; k < 60; k++)
                assert_false(plain_before(&it[k], &it[i], had));
            const struct workload_spec *x = object_as(it[i].workload, workload)->spec;
            if (it[i].placement)
                had[*x->queue ? x->queue[1] - '0' : QUEUES] += (double)it[i].placement->gpus / 1000;
            gone[i] = true;
        }
        assert_true(gone[59]);
        world_fini(&w);
    }
}

/* The bytes of a key compare as turns are taken. */
static void test_keys_are_the_order_of_a_lane(void **state)
{
    struct world *w = *state;
    uint64_t s = 17;
    struct cycle_item it[200];
    struct wait_key k[200];

    for (size_t i = 0; i < 200; i++) {
        random_item(w, &it[i], i, &s);
        policy_wait_key(it[i].workload, &k[i]);
    }
    for (size_t i = 0; i < 200; i++) {
        for (size_t j = 0; j < 200; j++) {
            bool lane = k[i].lane == k[j].lane && !memcmp(k[i].p, k[j].p, k[i].lane);
            size_t n = k[i].n < k[j].n ? k[i].n : k[j].n;
            double none[QUEUES + 1] = {0};

            if (lane && i != j)
                assert_int_equal(memcmp(k[i].p, k[j].p, n) < 0, plain_before(&it[i], &it[j], none));
        }
    }
}

/* ---- refusals that are shared ---- */
static const char *const shapes[] = {
    "  resources: {gpu: {count: 1}}\n",
    "  queue: q1\n  resources: {gpu: {count: 9}}\n",
    "  queue: q1\n  gang: {workers: 3}\n  resources: {gpu: {count: 4}}\n",
    "  queue: q2\n  resources: {gpu: {count: 2}}\n  maxGpuHourPrice: 0.5\n",
    "  queue: q2\n  resources: {gpu: {count: 1}}\n  targets: {tier: burst}\n",
    "  queue: q3\n  resources: {gpu: {count: 4}}\n  checkpoint: {store: /ck, interval: 10m}\n",
    "  queue: q4\n  gang: {workers: 4, minWorkers: 1}\n  resources: {gpu: {count: 8}}\n",
    "  queue: q4\n  resources: {cpu: 8}\n",
    "  queue: q3\n  priorityClassName: high\n  resources: {gpu: {count: 64}}\n",
    "  queue: q9\n  resources: {gpu: {count: 1}}\n",
    "  data: [{dataset: none}]\n  resources: {gpu: {count: 1}}\n",
    "  queue: q2\n  expected: {duration: 48h}\n  deadline: 2025-12-01T12:00:00Z\n"
    "  resources: {gpu: {count: 1}}\n"};

static void shared_world(struct world *w)
{
    world_target(w, "hub", "tier: hub, stores: [/ck]");
    world_nodes(w, "hub", 2, 8, "h100", "");
    world_target(w, "edge", "tier: spoke");
    world_nodes(w, "edge", 1, 4, "a100", "");
    world_target(w, "away", "tier: burst, unschedulable: true");
    world_put(w, "kind: PriorityClass\nmetadata: {name: high}\nspec: {value: 10}\n---\n"
                 "kind: PlacementPolicy\nmetadata: {name: spill}\nspec:\n  namespaces: [n1]\n"
                 "  order: [{targets: {names: [hub]}}, {targets: {names: [edge]}, after: 10m},\n"
                 "    {targets: {names: [away]}, when: {utilisation: 0.5}}]\n");
    put_queue(w, "q1", "gpus: [{class: h100, guaranteed: 8, burst: 12}]");
    put_queue(w, "q2", "gpus: [{class: h100, guaranteed: 2, borrowLimit: 2}], lend: true");
    put_queue(w, "q3", "weight: 3, gpus: [{guaranteed: 6}]");
    put_queue(w, "q4", "parent: q3, gpus: [{guaranteed: 3}]");
}

static void assert_same_body(const struct schema *schema, const void *a, const void *b)
{
    assert_int_equal(!a, !b);
    if (a && !body_equal(schema, a, b))
        fail_msg("a shared answer differs");
}

/* One turn after the other with a memory, each answer held against the one worked out. */
static void assert_cycle_is(struct pool *p, const struct cycle_item *v, size_t n, uint64_t seed,
                            struct memo *m)
{
    struct turns *t = policy_turns_create(p);
    AUTO_ARENA a = arena_create(0);
    struct err err;

    for (size_t i = 0; i < n; i++)
        (void)policy_turns_lane(t, v[i].workload); /* each in a lane of its own */
    for (size_t i = 0; i < n; i++) {
        struct place_request rq = {.now_ms = NOW, .seed = seed, .log_index = 7, .memo = m};
        size_t lane = policy_turns_next(t, &rq.queue_position);
        struct cycle_item it = {0};

        assert_int_equal(lane, i);
        rq.workload = it.workload = v[i].workload;
        assert_int_equal(policy_turn(p, t, lane, &it, NULL, &rq, a, &err), 0);
        assert_int_equal(rq.queue_position, v[i].position);
        assert_same_body(&schema_decision_spec, v[i].decision, it.decision);
        assert_same_body(&schema_placement, v[i].placement, it.placement);
        (void)policy_turns_keep(t, p);
        arena_reset(a);
    }
    policy_turns_over(t, p, true);
    (void)policy_turns_destroy(t);
}

static void test_shared_refusals_are_the_same_answers(void **state)
{
    uint64_t hits = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct world w;
        struct cycle_item a[120];
        struct memo *m = policy_memo_create();
        struct pool *fork;
        uint64_t s = seed * 104729;
        struct err err;

        world_init(&w);
        shared_world(&w);
        for (size_t i = 0; i < 120; i++) {
            char name[40], ns[8];
            (void)snprintf(name, sizeof(name), "w%zu%s", i, next(&s, 9) ? "" : "-with-a-long-name");
            (void)snprintf(ns, sizeof(ns), "n%u", next(&s, 2));
            a[i].workload = put_workload(&w, name, ns, NOW - 60000 * (int64_t)next(&s, 20),
                                         shapes[next(&s, sizeof(shapes) / sizeof(*shapes))]);
        }
        fork = pool_fork(w.p);
        assert_int_equal(policy_cycle(w.p, a, 120, NOW, seed, 7, 0, w.a, &err), 0);
        assert_cycle_is(fork, a, 120, seed, m);
        hits += policy_memo_hits(m);
        (void)policy_memo_destroy(m);
        (void)pool_destroy(fork);
        world_fini(&w);
    }
    assert_true(hits > 60 * 20);
}

/* ---- sizes ---- */
static void many_queues(struct world *w, int n)
{
    for (int i = 0; i < n; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "q%d", i);
        put_queue(w, name,
                  i % 3 ? "gpus: [{class: h100, guaranteed: 1}], lend: true"
                        : "gpus: [{guaranteed: 1}]");
    }
}

/* Asked of each queue by a walk over all, this took minutes. */
static void test_a_thousand_queues(void **state)
{
    struct world *w = *state;
    struct cycle_item *it = mem_zalloc(4000 * sizeof(*it));
    clock_t from;
    struct err err;

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 1, 8, "h100", "");
    many_queues(w, 1000);
    for (size_t i = 0; i < 4000; i++) {
        char name[16], spec[96];

        (void)snprintf(name, sizeof(name), "w%zu", i);
        (void)snprintf(spec, sizeof(spec), "  queue: q%zu\n  resources: {gpu: {count: 1}}\n",
                       i % 1000);
        it[i].workload = put_workload(w, name, "dev", NOW - 1000, spec);
    }
    from = clock();
    assert_int_equal(policy_cycle(w->p, it, 4000, NOW, 1, 7, 0, w->a, &err), 0);
    assert_true((clock() - from) / CLOCKS_PER_SEC < 20);
    assert_int_equal(pool_free_gpu_milli(w->p, NULL), 0);
    mem_free(it);
}

/* More than an arena holds is a refusal of this one, and no abort. */
static void test_too_large_is_a_refusal(void **state)
{
    struct world *w = *state;
    AUTO_ARENA small = arena_create((size_t)1 << 20);
    struct place_request rq = {.now_ms = NOW};
    struct err err;

    for (int i = 0; i < 1000; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "t%d", i);
        world_target(w, name, "tier: hub");
    }
    rq.workload = put_workload(w, "one", "dev", NOW, "  resources: {gpu: {count: 1}}\n");
    assert_int_equal(policy_place(w->p, &rq, small, &w->d, &w->pl, &err), 0);
    assert_null(w->pl);
    assert_string_equal(w->d->reason, "TooLargeToDecide");
    assert_int_equal(policy_place(w->p, &rq, w->a, &w->d, &w->pl, &err), 0);
    assert_string_not_equal(w->d->reason, "TooLargeToDecide");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns_are_those_of_a_plain_search),
        cmocka_unit_test_setup_teardown(test_keys_are_the_order_of_a_lane, world_setup,
                                        world_teardown),
        cmocka_unit_test(test_shared_refusals_are_the_same_answers),
        cmocka_unit_test_setup_teardown(test_a_thousand_queues, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_too_large_is_a_refusal, world_setup, world_teardown)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
