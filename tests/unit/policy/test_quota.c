/* Quota: guaranteed, burst, lend and borrow in trees of queues; what may be taken back from whom.
 */
#include "tests/unit/policy/policy_world.h"

#define GPU(n) "  resources: {gpu: {count: " #n "}, cpu: 4, memory: 8Gi}\n"

static int setup(void **state)
{
    static struct world w;

    world_init(&w);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    return 0;
}

static const struct candidate *row_of(const struct world *w, const char *target)
{
    for (uint32_t i = 0; i < w->d->n_candidates; i++) {
        if (strcmp(w->d->candidates[i].target, target) == 0)
            return &w->d->candidates[i];
    }
    fail_msg("no row of %s", target);
    return NULL;
}

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
    assert_string_equal(row_of(w, "hub")->message, "8 of 8 h100 in use by queue a");
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

/* ---- who has borrowed from whom
 * ---------------------------------------------------------------------------------------------- */
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

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_quota),
        T(test_quota_and_queue_checks),
        T(test_borrowed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
