/* Fair share with decayed use: the ledger's sums against a naive one over random histories, the
 * order that a cycle makes of them, and what asking costs. */
#include "controlplane/store/ledger/ledger.h"
#include "controlplane/store/ledger/ledger_internal.h"
#include "policy/policy.h"
#include "tests/support/ledger/ledger_world.h"
#include "tests/support/store/store_kit.h"

#include <math.h>
#include <time.h>

#define HOUR 3600000ll
#define DAY LEDGER_DAY_MS
#define QUEUES 64

/* ---- sums by queue ---- */
struct uses {
    struct {
        char queue[64];
        double hours;
    } v[QUEUES];
    int n;
    int64_t now;
};

static void uses_add(const char *queue, double hours, void *arg)
{
    struct uses *u = arg;
    int i = 0;

    while (i < u->n && strcmp(u->v[i].queue, queue) != 0)
        i++;
    assert_true(i < QUEUES);
    if (i == u->n)
        (void)snprintf(u->v[u->n++].queue, sizeof u->v[0].queue, "%s", queue);
    u->v[i].hours += hours;
}

static double uses_of(const struct uses *u, const char *queue)
{
    for (int i = 0; i < u->n; i++)
        if (strcmp(u->v[i].queue, queue) == 0)
            return u->v[i].hours;
    return 0;
}

/* Every line of the ledger, with exp2. */
static void naive_line(const struct ledger_line *l, void *arg)
{
    struct uses *u = arg;
    double now = (double)(u->now / HOUR) / 24;

    if (!ledger_cause_sum(l->cause) && !ledger_cause_part(l->cause) &&
        l->cause != LEDGER_MIGRATING && *l->queue)
        uses_add(l->queue,
                 (double)l->amount / LEDGER_GPU_HOUR * exp2(-(now - (double)l->day - 0.5) / 7), u);
}

static double compare(const struct root *r, int64_t now)
{
    struct uses got = {.now = now}, want = {.now = now};
    double sum = 0;

    ledger_use(r, now, uses_add, &got);
    ledger_scan(r, now, naive_line, &want);
    for (int i = 0; i < want.n; i++) {
        double is = uses_of(&got, want.v[i].queue), should = want.v[i].hours;

        if (fabs(is - should) > 1e-6 * should) /* the weights of days have 20 bits */
            fail_msg("%s at %lld: %.12g, not %.12g", want.v[i].queue, (long long)now, is, should);
        sum += should;
    }
    for (int i = 0; i < got.n; i++)
        assert_true(got.v[i].hours == 0 || uses_of(&want, got.v[i].queue) > 0);
    return sum;
}

static void test_random_histories(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct ledger_world *w = ledger_world_create(seed);
        double some = 0;

        for (int i = 0; i < 8; i++) {
            ledger_world_run(w, 1500);
            const struct root *r = ledger_world_root(w);
            some += compare(r, r->time);
            some += compare(r, r->time + 5 * HOUR);
            some += compare(r, r->time + 9 * DAY + 1);
            root_check(r); /* also: made anew from what is kept, the sums are the same */
        }
        assert_true(some > 1);
        ledger_world_destroy(w);
    }
}

/* ---- two queues ---- */
static void begin(struct kit *k, uint32_t gpus)
{
    struct write_op ops[3];

    kit_begin(k);
    kit_pool(k, 1, gpus);
    kit_op_queue(k, &ops[0], "all", "");
    kit_op_queue(k, &ops[1], "heavy", "all");
    kit_op_queue(k, &ops[2], "light", "all");
    assert_int_equal(kit_write(k, ops, 3, "", "").code, 0);
}

static void wait_in(struct kit *k, const char *name, const char *queue)
{
    assert_int_equal(kit_workload(k, "default", name, 1, 4).code, 0);
    struct workload *w = object_edit_as(kit_get(k, name), workload, k->a);
    w->spec->queue = queue;
    assert_int_equal(kit_update(k, KIND_WORKLOAD, "default", name, w, 0, false).code, 0);
}

static void place_in(struct kit *k, const char *name, const char *queue)
{
    union command c;

    kit_place_head(k, &c, name, "Placed", "Chosen");
    c.place.placement = kit_workers(k, "fra.n0", 0, 1, 4);
    str_copy(c.place.queue, sizeof c.place.queue, queue);
    struct result r = kit_apply(k, &c);
    if (r.code)
        fail_msg("%s: %s", name, r.text);
    assert_int_equal(kit_run(k, name, 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(k, name, 1, 1, STEP_RUNNING).code, 0);
}

static bool to_pool(const struct object *o, void *arg)
{
    pool_put(arg, o);
    return true;
}

struct telling {
    struct queue_use v[64];
    size_t n;
    struct arena *a;
};

static void tell(const char *queue, double hours, void *arg)
{
    struct telling *t = arg;

    assert_true(t->n < 64);
    t->v[t->n++] = (struct queue_use){arena_strdup(t->a, queue), hours};
}

/* The queue whose workload a cycle looks at first. */
static const char *first(struct kit *k, const char *a, const char *b)
{
    static const enum kind_id kinds[] = {KIND_TARGET, KIND_NODE, KIND_QUEUE};
    struct cycle_item it[2] = {{.workload = kit_get(k, a)}, {.workload = kit_get(k, b)}};
    struct pool *p = pool_create();
    struct telling t = {.a = k->a};
    struct err err;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        root_scan(k->root, kinds[i], NULL, NULL, NULL, to_pool, p);
    pool_target_reachable(p, "fra", REACH_YES);
    ledger_use(k->root, k->now, tell, &t);
    pool_set_use(p, t.v, t.n);
    struct pool *fork = pool_fork(p); /* takes it along */
    p = pool_destroy(p);
    assert_int_equal(policy_cycle(fork, it, 2, k->now, 1, 7, 0, k->a, &err), 0);
    fork = pool_destroy(fork);
    return object_as(it[0].workload, workload)->spec->queue;
}

static void test_the_queue_that_used_less_goes_first(void **state)
{
    struct kit k;
    int turns = 0;

    (void)state;
    begin(&k, 4);
    wait_in(&k, "week", "heavy");
    place_in(&k, "week", "heavy");
    k.now += 7 * DAY;
    assert_int_equal(kit_run(&k, "week", 1, 1, STEP_ENDED).code, 0);
    wait_in(&k, "h", "heavy"); /* waits longer than any of light's */
    for (int day = 0; day < 30; day++) {
        char name[16];

        k.now += HOUR;
        (void)snprintf(name, sizeof name, "l%d", day);
        wait_in(&k, name, "light");
        const char *next = first(&k, "h", name);
        for (int again = 0; again < 3; again++)
            assert_string_equal(first(&k, "h", name), next);
        struct uses u = {0};
        ledger_use(k.root, k.now, uses_add, &u);
        double heavy = uses_of(&u, "heavy"), light = uses_of(&u, "light");
        assert_string_equal(next, heavy > light ? "light" : "heavy");
        if (heavy <= light)
            break;
        turns++;
        place_in(&k, name, "light");
        k.now += 12 * HOUR;
        assert_int_equal(kit_run(&k, name, 1, 1, STEP_ENDED).code, 0);
    }
    /* It had 4 GPUs x 168 h, halved by the day: even after less than a week's work of the other. */
    assert_true(turns >= 5 && turns <= 14);
    kit_end(&k);
}

/* ---- what it costs: 1,000 queues x 30 days ---- */
static void count(const char *queue, double hours, void *arg)
{
    (void)queue;
    *(double *)arg += hours;
}

static void test_cost(void **state)
{
    struct root *r = root_create();
    const int64_t begin = 20000 * DAY;
    double sum = 0, want = 0;
    struct timespec from, to;

    (void)state;
    for (int day = 0; day < 30; day++)
        for (int q = 0; q < 1000; q++) {
            char name[16];
            struct ledger_line l = {.cause = LEDGER_USEFUL, .queue = name, .target = "t"};
            int64_t at = begin + day * DAY;

            (void)snprintf(name, sizeof name, "q%d", q);
            ledger_interval_add(r, &l, 1, 1000, at, at + DAY);
            want += 24 * exp2(-(30 - day - 0.5) / 7);
        }
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < 20; i++) {
        sum = 0;
        ledger_use(r, begin + 30 * DAY, count, &sum);
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    print_message(
        "1,000 queues x 30 days: %.0f us\n",
        ((double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3) / 20);
    assert_true(fabs(sum - want) < 1e-6 * want);
    assert_true(tree_count(r->ledger.use) <= 6000); /* not 30,000 lines: what is walked */
    (void)root_unref(r);
    while (tree_reap(100000))
        ;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_histories),
        cmocka_unit_test(test_the_queue_that_used_less_goes_first), cmocka_unit_test(test_cost)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
