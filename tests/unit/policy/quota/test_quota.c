/* Quota: guaranteed, burst, lend and borrow in trees of queues; what may be taken back from
 * whom. */
#include "tests/support/policy/policy_world.h"

#include <stdlib.h>

#define GPU(n) "  resources: {gpu: {count: " #n "}, cpu: 4, memory: 8Gi}\n"

#define QUEUES                                                                                     \
    "kind: Queue\nmetadata: {name: root}\nspec: {gpus: [{class: h100, guaranteed: 16, burst: "     \
    "20}]}\n---\n"                                                                                 \
    "kind: Queue\nmetadata: {name: a}\nspec: {parent: root, namespaces: [dev], gpus: [{class: "    \
    "h100, "                                                                                       \
    "guaranteed: 4, burst: 8}]}\n---\n"                                                            \
    "kind: Queue\nmetadata: {name: b}\nspec: {parent: root, namespaces: [ops], lend: false, "      \
    "gpus: "                                                                                       \
    "[{class: h100, guaranteed: 12}]}\n"

static void test_quota(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 3, 8, "h100", ""); /* 24 GPUs */
    world_put(w, QUEUES);
    world_run(w, "w1", GPU(8));
    assert_non_null(w->pl);
    assert_string_equal(w->d->queue, "a");
    world_run(w, "w2", GPU(1));
    assert_pending(w, "QuotaBurstExhausted");
    assert_string_equal(world_row(w, "hub")->message, "8 of 8 h100 in use by queue a");
    world_run(w, "w3", GPU(8) "  queue: b\n");
    assert_non_null(w->pl);
    world_run(w, "w4", GPU(5) "  queue: b\n"); /* 8 + 8 + 5 > 20 of the root */
    assert_pending(w, "QuotaBurstExhausted");
    assert_non_null(strstr(w->d->message, "queue root"));
    world_run(w, "w5", GPU(1) "  queue: c\n");
    assert_pending(w, "QueueMissing");
    pool_drop(w->p, "uid-w3");
    world_put(w, "kind: Queue\nmetadata: {name: c}\nspec: {}\n");
    world_run(w, "w6", GPU(8) "  queue: c\n"); /* 24 - 8 - 12 kept = 4 for others */
    assert_pending(w, "QuotaGuaranteeOfOthers");
    world_run(w, "w7", GPU(4) "  queue: c\n");
    assert_non_null(w->pl);
    pool_drop(w->p, "uid-w7");
    world_put(
        w,
        "kind: Queue\nmetadata: {name: root}\nspec: {lend: true, gpus: [{class: h100, guaranteed: "
        "16}]}\n---\nkind: Queue\nmetadata: {name: b}\nspec: {parent: root, lend: true, gpus: "
        "[{class: h100, guaranteed: 12}]}\n");
    world_run(w, "w6", GPU(8) "  queue: c\n");
    assert_non_null(w->pl);
}

static int64_t held(const char *queue, const char *class_, void *arg)
{
    (void)arg;
    (void)class_;
    return strcmp(queue, "a") == 0 ? 6000 : 0;
}

static void test_quota_and_queue_checks(void **state)
{
    struct world *w = *state;
    const struct object *q[3];
    struct err err = {0};

    world_put(w, QUEUES);
    q[0] = w->made[0];
    q[1] = w->made[1];
    q[2] = w->made[2];
    assert_int_equal(policy_queues_check(q, 3, &err), 0);
    assert_int_equal(policy_quota_check("a", "h100", 2000, q, 3, held, NULL, 24000, &err), 0);
    assert_int_equal(policy_quota_check("a", "h100", 3000, q, 3, held, NULL, 24000, &err), E_PLACE);
    assert_non_null(strstr(err.text, "queue a holds 6.0 of 8.0"));
    assert_int_equal(policy_quota_check("a", "h100", 1000, q, 3, held, NULL, 18000, &err), E_PLACE);
    assert_non_null(strstr(err.text, "guaranteed to other queues"));
    assert_int_equal(policy_quota_check("x", "h100", 1000, q, 3, held, NULL, 24000, &err), E_PLACE);
    assert_string_equal(policy_queue_of(world_workload(w, "w", ""), q, 3), "a");
    assert_int_equal(policy_queues_check(q + 1, 2, &err), E_INVALID);
    assert_string_equal(err.field, "spec.parent");
    q[0] = world_docs(w, "kind: Queue\nmetadata: {name: root}\nspec: {parent: a}\n", false);
    assert_int_equal(policy_queues_check(q, 3, &err), E_INVALID);
    assert_non_null(strstr(err.text, "cycle"));
    q[0] =
        world_docs(w,
                   "kind: Queue\nmetadata: {name: root}\nspec: {gpus: [{class: h100, guaranteed: "
                   "15}]}\n",
                   false);
    assert_int_equal(policy_queues_check(q, 3, &err), E_INVALID);
    assert_string_equal(err.field, "spec.gpus");
    q[0] = world_docs(
        w,
        "kind: Queue\nmetadata: {name: root}\nspec: {namespaces: [ops], gpus: [{class: h100,"
        " guaranteed: 16}]}\n",
        false);
    assert_int_equal(policy_queues_check(q, 3, &err), E_INVALID);
    assert_string_equal(err.field, "spec.namespaces");
}

static const struct object *of_any_size(const char *name, const char *parent, int64_t guaranteed)
{
    struct meta m = {.name = name};
    struct queue_gpus g = {
        .class_ = "h100", .guaranteed = guaranteed, .burst = guaranteed, .borrowLimit = guaranteed};
    struct queue_spec s = {.parent = parent, .gpus = &g, .n_gpus = 1};
    struct queue q = {.metadata = &m, .spec = &s};

    return object_make(kind_by_id(KIND_QUEUE), &q);
}

/* More than the schema lets through, as a state of before that may hold: never added up past what a
 * number can be. */
static void test_figures_beyond_all_bounds(void **state)
{
    const struct object *q[3] = {of_any_size("root", "", INT64_MAX),
                                 of_any_size("a", "root", INT64_MAX),
                                 of_any_size("b", "root", INT64_MAX)};
    struct err err = {0};
    int64_t unfilled;

    (void)state;
    assert_int_equal(policy_queues_check(q, 2, &err), 0);
    assert_int_equal(policy_queues_check(q, 3, &err), 0); /* as much as can be told */
    assert_int_equal(policy_quota_check("a", "h100", 2000, q, 3, held, NULL, 24000, &err), 0);
    assert_true(policy_quota_borrowed("a", "b", "h100", q, 3, held, NULL, &unfilled) >= 0);
    assert_true(unfilled >= 0);
    for (int i = 0; i < 3; i++)
        (void)object_unref(q[i]);
}

/* ---- who has borrowed from whom ---- */
/* root r1 (20) ── a (8), b (8), and work of its own; r2 (8) ── c (none); r3: nothing guaranteed. */
#define TREE                                                                                       \
    "kind: Queue\nmetadata: {name: r1}\nspec: {gpus: [{class: h100, guaranteed: 20}]}\n---\n"      \
    "kind: Queue\nmetadata: {name: a}\nspec: {parent: r1, gpus: [{class: h100, guaranteed: "       \
    "8}]}\n---\n"                                                                                  \
    "kind: Queue\nmetadata: {name: b}\nspec: {parent: r1, gpus: [{class: h100, guaranteed: "       \
    "8}]}\n---\n"                                                                                  \
    "kind: Queue\nmetadata: {name: r2}\nspec: {gpus: [{class: h100, guaranteed: 8}]}\n---\n"       \
    "kind: Queue\nmetadata: {name: c}\nspec: {parent: r2}\n---\n"                                  \
    "kind: Queue\nmetadata: {name: r3}\nspec: {}\n"

struct holds {
    const char *queue[8];
    int64_t gpus[8];
};

static int64_t held_of(const char *queue, const char *class_, void *arg)
{
    const struct holds *h = arg;

    assert_true(!strcmp(class_, "h100") || !class_[0]);
    for (int i = 0; i < 8; i++) {
        if (h->queue[i] && strcmp(h->queue[i], queue) == 0)
            return h->gpus[i] * 1000;
    }
    return 0;
}

static void borrowed(struct world *w, const struct holds *h, const char *queue,
                     const char *claimant, int64_t want, int64_t unfilled)
{
    const struct object *q[6];
    int64_t got, rest = -1;

    for (int i = 0; i < 6; i++)
        q[i] = w->made[i];
    got = policy_quota_borrowed(queue, claimant, "h100", q, 6, held_of, (void *)h, &rest) / 1000;
    if (got != want || rest != unfilled * 1000)
        fail_msg("%s from %s: %lld of %lld, not %lld of %lld", queue, claimant ? claimant : "any",
                 (long long)got, (long long)rest / 1000, (long long)want, (long long)unfilled);
}

static void test_borrowed(void **state)
{
    struct world *w = *state;
    struct holds h = {{"a", "b", "c", "r3", "", "r1"}, {4, 11, 10, 6, 3, 1}};

    world_put(w, TREE);
    /* Brothers: b holds 3 above its 8, a misses 4 of its 8. */
    borrowed(w, &h, "b", "a", 3, 4);
    borrowed(w, &h, "a", "b", 0, 0);
    borrowed(w, &h, "a", "a", 0, 0);
    /* Across roots the branches count: r1 holds 16 of 20, though b is above its own. */
    borrowed(w, &h, "b", "c", 0, 0);
    borrowed(w, &h, "c", "a", 2, 4);
    borrowed(w, &h, "r3", "a", 4, 4);
    borrowed(w, &h, "", "a", 3, 4);
    borrowed(w, &h, "", "r3", 0, 0);
    /* r1 has 4 for work of its own, and holds 1. */
    borrowed(w, &h, "b", "r1", 3, 3);
    borrowed(w, &h, "r1", "a", 0, 4);
    h.gpus[5] = 7;
    borrowed(w, &h, "r1", "a", 3, 4);
    borrowed(w, &h, "b", NULL, 2, 0); /* 3 above its own, but r1 holds 22 of 20 */
    borrowed(w, &h, "", NULL, 3, 0);
    borrowed(w, &h, "none", "a", 0, 0);
    borrowed(w, &h, "b", "none", 0, 0);
}

/* Work that is directly in a queue with others below: taken back only where it is above its own
 * share. */
static void test_borrowed_direct(void **state)
{
    struct world *w = *state;
    struct holds h = {{"r1", "a", "b", "c"}, {3, 19, 0, 2}};

    world_put(w, TREE);
    borrowed(w, &h, "a", "c", 2, 6);  /* r1 holds 22 of 20 */
    borrowed(w, &h, "r1", "c", 0, 6); /* 3 of the 4 that are left to it */
    borrowed(w, &h, "a", "b", 8, 8);
}

/* ---- rules of admission ---- */
static int admits(struct world *w, size_t n, const struct holds *h, const char *queue, int64_t gpus,
                  int64_t capacity)
{
    const struct object *q[16];
    struct err err;

    for (size_t i = 0; i < n; i++)
        q[i] = w->made[i];
    return policy_quota_check(queue, "h100", gpus * 1000, q, n, held_of, (void *)h, capacity * 1000,
                              &err);
}

/* A parent's burst that a brother has used up by borrowing stands in nobody's way to a
 * guarantee. */
static void test_guarantee_beats_burst_above(void **state)
{
    struct world *w = *state;
    struct holds h = {{"a", "b"}, {0, 20}};

    world_put(w, QUEUES);
    assert_int_equal(admits(w, 3, &h, "a", 4, 100), 0);
    assert_int_equal(admits(w, 3, &h, "a", 5, 100), E_PLACE);
    assert_int_equal(admits(w, 3, &h, "b", 1, 100), E_PLACE);
    h.gpus[0] = 4;
    assert_int_equal(admits(w, 3, &h, "a", 1, 100), E_PLACE);
}

/* A queue without a guarantee of its own lives on that of its parent, but not of its brothers'. */
static void test_guarantee_of_the_parent(void **state)
{
    struct world *w = *state;
    struct holds h = {{"x", "b", "o"}, {0, 0, 16}};

    world_put(w,
              "kind: Queue\nmetadata: {name: r}\nspec: {gpus: [{class: h100, guaranteed: 12}]}\n"
              "---\nkind: Queue\nmetadata: {name: x}\nspec: {parent: r}\n---\n"
              "kind: Queue\nmetadata: {name: b}\nspec: {parent: r, lend: false, gpus: [{class: "
              "h100, guaranteed: 8}]}\n---\n"
              "kind: Queue\nmetadata: {name: o}\nspec: {gpus: [{class: h100, guaranteed: 4}]}\n");
    assert_int_equal(admits(w, 4, &h, "x", 4, 24), 0); /* though b keeps 8 and only 8 are free */
    assert_int_equal(admits(w, 4, &h, "x", 5, 24), E_PLACE);
    h.gpus[1] = 8;
    assert_int_equal(admits(w, 4, &h, "x", 4, 24), 0);
    assert_int_equal(admits(w, 4, &h, "r", 4, 24), 0);
    h.gpus[1] = 0;
    assert_int_equal(admits(w, 4, &h, "r", 4, 24), 0);
    assert_int_equal(admits(w, 4, &h, "r", 5, 24), E_PLACE);
}

static void test_limits_of_lending(void **state)
{
    struct world *w = *state;
    struct holds h = {{"l", "b", "c"}, {4, 0, 0}};

    world_put(w, "kind: Queue\nmetadata: {name: l}\nspec: {gpus: [{class: h100, guaranteed: 8, "
                 "lendLimit: 2}]}\n---\n"
                 "kind: Queue\nmetadata: {name: b}\nspec: {gpus: [{class: h100, guaranteed: 4, "
                 "borrowLimit: 5}]}\n---\n"
                 "kind: Queue\nmetadata: {name: c}\nspec: {gpus: [{class: '', burst: 3}]}\n");
    /* 16: l keeps 2 of its 4 free ones, so 10 are for others. */
    assert_int_equal(admits(w, 3, &h, "c", 4, 16), E_PLACE); /* its burst of any class */
    assert_int_equal(admits(w, 3, &h, "c", 3, 16), 0);
    assert_int_equal(admits(w, 3, &h, "b", 10, 16), E_PLACE); /* 4 and 5 borrowed */
    assert_int_equal(admits(w, 3, &h, "b", 9, 16), 0);
    assert_int_equal(admits(w, 3, &h, "b", 9, 14), E_PLACE);
    assert_int_equal(admits(w, 3, &h, "b", 8, 14), 0);
    assert_int_equal(admits(w, 3, &h, "l", 4, 14), 0);
    h.gpus[0] = 8;
    assert_int_equal(admits(w, 3, &h, "", 8, 16), 0);
    assert_int_equal(admits(w, 3, &h, "", 9, 16), 0); /* quota knows no room: nothing is kept */
}

static void test_contradictions_are_refused(void **state)
{
    struct world *w = *state;
    const struct object *q;
    struct err err;

    q = world_docs(w,
                   "kind: Queue\nmetadata: {name: q}\nspec: {gpus: [{class: h100, guaranteed: 6}, "
                   "{class: a100, guaranteed: 3}, {class: '', burst: 8}]}\n",
                   false);
    assert_int_equal(policy_queues_check(&q, 1, &err), E_INVALID);
    assert_non_null(strstr(err.text, "guarantees 9 GPUs by class, but may hold 8 of any class"));
    q = world_docs(w,
                   "kind: Queue\nmetadata: {name: q}\nspec: {gpus: [{class: h100, guaranteed: 6}, "
                   "{class: '', guaranteed: 4, borrowLimit: 1}]}\n",
                   false);
    assert_int_equal(policy_queues_check(&q, 1, &err), E_INVALID);
}

/* An elastic gang starts with as many workers as quota admits, not with as many as there is room
 * for. */
static void test_elastic_within_quota(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 3, 8, "h100", "");
    world_put(w, QUEUES);
    world_run(w, "g", "  gang: {workers: 6, minWorkers: 1}\n" GPU(2));
    assert_placed(w, "hub");
    assert_int_equal(w->pl->gpus, 8000);
    assert_int_equal(w->pl->n_assignments, 4);
}

/* ---- properties of random trees ---- */
#define TREE_MAX 10
struct forest {
    struct world *w;
    const struct object *q[TREE_MAX];
    int parent[TREE_MAX]; /* -1: root */
    int64_t guaranteed[TREE_MAX], lend[TREE_MAX];
    int64_t own[TREE_MAX + 1]; /* held by its own work; last: of no queue */
    int n;
    int64_t capacity;
    uint64_t rng;
};

static int64_t draw(struct forest *f, int64_t below)
{
    f->rng = f->rng * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(f->rng >> 33) % below;
}

static int64_t held_in_forest(const char *queue, const char *class_, void *arg)
{
    const struct forest *f = arg;

    (void)class_;
    return (queue[0] ? f->own[strtol(queue + 1, NULL, 10)] : f->own[f->n]) * 1000;
}

static int64_t branch(const struct forest *f, int q)
{
    int64_t sum = f->own[q];

    for (int i = q + 1; i < f->n; i++)
        sum += f->parent[i] == q ? branch(f, i) : 0;
    return sum;
}

static int64_t all_held(const struct forest *f)
{
    int64_t sum = 0;

    for (int i = 0; i <= f->n; i++)
        sum += f->own[i];
    return sum;
}

/* Children are made after their parents; what is guaranteed below fits into the parent's. */
static void grow(struct forest *f)
{
    int64_t left[TREE_MAX];

    f->n = 2 + (int)draw(f, TREE_MAX - 1);
    f->capacity = draw(f, 20);
    for (int i = 0; i < f->n; i++) {
        char text[512], limits[128] = "", up[32] = "";
        bool lends = draw(f, 3) > 0, limited = draw(f, 2);

        f->parent[i] = i && draw(f, 3) ? (int)draw(f, i) : -1;
        f->guaranteed[i] = f->parent[i] < 0 ? draw(f, 12) : draw(f, left[f->parent[i]] + 1);
        if (f->parent[i] < 0)
            f->capacity += f->guaranteed[i];
        else
            left[f->parent[i]] -= f->guaranteed[i];
        left[i] = f->guaranteed[i];
        f->lend[i] = lends ? limited ? draw(f, 6) : f->guaranteed[i] : 0;
        f->lend[i] = f->lend[i] < f->guaranteed[i] ? f->lend[i] : f->guaranteed[i];
        if (draw(f, 3) == 0)
            (void)snprintf(limits, sizeof(limits), ", burst: %d",
                           (int)(f->guaranteed[i] + draw(f, 8)));
        else if (draw(f, 3) == 0)
            (void)snprintf(limits, sizeof(limits), ", borrowLimit: %d", (int)draw(f, 8));
        if (f->parent[i] >= 0)
            (void)snprintf(up, sizeof(up), "parent: q%d, ", f->parent[i]);
        (void)snprintf(text, sizeof(text),
                       "kind: Queue\nmetadata: {name: q%d}\nspec: {%slend: %s, gpus: [{class: "
                       "h100, guaranteed: %d%s%s}]}\n",
                       i, up, lends ? "true" : "false", (int)f->guaranteed[i], limits, "");
        if (lends && limited)
            (void)snprintf(strrchr(text, '}') - 2, 64, ", lendLimit: %d}]}\n", (int)f->lend[i]);
        f->q[i] = world_docs(f->w, text, false);
    }
}

static bool asks(struct forest *f, int q, int64_t gpus)
{
    char name[16] = "";
    struct err err;

    if (q < f->n)
        (void)snprintf(name, sizeof(name), "q%d", q);
    return policy_quota_check(name, "h100", gpus * 1000, f->q, (size_t)f->n, held_in_forest, f,
                              f->capacity * 1000, &err) == 0;
}

/* What is its own and not there is taken back, one GPU at a time: somebody has always borrowed. */
static void reclaim(struct forest *f, int claimant, int64_t gpus)
{
    char name[16], of[16];

    (void)snprintf(name, sizeof(name), "q%d", claimant);
    while (f->capacity - all_held(f) < gpus) {
        int lender = -1;

        for (int i = 0; i <= f->n && lender < 0; i++) {
            of[0] = '\0';
            if (i < f->n)
                (void)snprintf(of, sizeof(of), "q%d", i);
            if (f->own[i] > 0 && policy_quota_borrowed(of, name, "h100", f->q, (size_t)f->n,
                                                       held_in_forest, f, NULL) >= 1000)
                lender = i;
        }
        if (lender < 0)
            fail_msg("q%d is starved of %lld of its guarantee", claimant, (long long)gpus);
        /* Reclaim takes nobody's own: every branch that the lender is in, and the claimant is not,
         * was above. */
        for (int at = lender < f->n ? lender : -1; at >= 0; at = f->parent[at]) {
            bool both = false;

            for (int c = claimant; c >= 0; c = f->parent[c])
                both |= c == at;
            if (both)
                break;
            assert_true(branch(f, at) > f->guaranteed[at]);
        }
        f->own[lender]--;
    }
}

static void check_lending(const struct forest *f)
{
    int64_t borrowed = f->own[f->n], lendable = f->capacity;

    for (int i = 0; i < f->n; i++) {
        int64_t above = branch(f, i) - f->guaranteed[i];

        if (f->parent[i] >= 0)
            continue;
        borrowed += above > 0 ? above : 0;
        lendable += f->lend[i] - f->guaranteed[i];
    }
    if (borrowed > lendable)
        fail_msg("%lld are borrowed, %lld may be", (long long)borrowed, (long long)lendable);
}

static void test_random_trees(void **state)
{
    struct world *w = *state;
    struct forest f = {.w = w, .rng = 42};
    long admitted = 0, refused = 0, own = 0, reclaimed = 0, lent = 0;

    for (int round = 0; round < 300; round++) {
        struct err err = {0};

        grow(&f);
        assert_int_equal(policy_queues_check(f.q, (size_t)f.n, &err), 0);
        for (int step = 0; step < 200; step++) {
            int q = (int)draw(&f, f.n + 1);
            int64_t gpus = 1 + draw(&f, 4), free = f.capacity - all_held(&f);
            bool leaf = q < f.n, borrows = true, ok;

            for (int i = 0; i < f.n; i++)
                leaf &= f.parent[i] != q;
            for (int at = q < f.n ? q : -1; at >= 0; at = f.parent[at])
                borrows &= branch(&f, at) + gpus > f.guaranteed[at];
            if (draw(&f, 4) == 0 && f.own[q] > 0) {
                f.own[q]--;
                continue;
            }
            ok = asks(&f, q, gpus);
            admitted += ok;
            refused += !ok;
            if (leaf && f.own[q] + gpus <= f.guaranteed[q]) {
                if (!ok)
                    fail_msg("round %d: q%d is refused what it is guaranteed", round, q);
                own++;
                reclaimed += free < gpus;
                reclaim(&f, q, gpus);
            }
            if (!ok || f.capacity - all_held(&f) < gpus)
                continue;
            f.own[q] += gpus;
            if (borrows) /* from others: never more than they lend */
                check_lending(&f);
            lent += borrows;
        }
        memset(f.own, 0, sizeof(f.own));
        for (size_t i = 0; i < w->n_made; i++)
            (void)object_unref(w->made[i]);
        w->n_made = 0;
    }
    /* The test saw what it is about. */
    assert_true(admitted > 1000 && refused > 1000 && own > 1000 && reclaimed > 100 && lent > 1000);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_quota),
        T(test_quota_and_queue_checks),
        T(test_figures_beyond_all_bounds),
        T(test_borrowed),
        T(test_borrowed_direct),
        T(test_guarantee_beats_burst_above),
        T(test_guarantee_of_the_parent),
        T(test_limits_of_lending),
        T(test_contradictions_are_refused),
        T(test_elastic_within_quota),
        T(test_random_trees),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
