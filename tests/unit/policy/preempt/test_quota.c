/* Preemption where queues and money come in: what is taken back, and only as much; limits that
 * victims use up; a checkpoint that is dear to move. */
#include "tests/support/policy/preempt_lab.h"

struct books { /* what queues hold, as the state machine would tell it */
    struct lab *k;
    const char *queue[64];
    int64_t milli[64];
    uint32_t n;
};

static int64_t booked(const char *queue, const char *class_, void *arg)
{
    const struct books *b = arg;
    int64_t sum = 0;

    (void)class_;
    for (uint32_t i = 0; i < b->n; i++)
        sum += strcmp(b->queue[i], queue) == 0 ? b->milli[i] : 0;
    return sum;
}

static const struct object *run(struct lab *k, struct books *b, const char *name, const char *queue,
                                uint32_t gpus, int64_t placed_s)
{
    const struct object *o = lab_run(
        k, (struct lab_job){
               .name = name, .class_ = "low", .queue = queue, .gpus = gpus, .placed_s = placed_s});

    assert_non_null(o);
    b->queue[b->n] = queue;
    b->milli[b->n++] = 1000 * gpus;
    return o;
}

/* Nodes of 4 GPUs; queue a is guaranteed `a` GPUs, b is `b`. */
static void two_queues(struct lab *k, struct books *books, int nodes, int64_t a, int64_t b)
{
    lab_init(k, 1);
    lab_class(k, "low", 10, false, 0);
    lab_class(k, "prod", 100, true, 0);
    lab_target(k, "hub");
    lab_queue(k, "a", a, 0);
    lab_queue(k, "b", b, 0);
    for (int i = 0; i < nodes; i++) {
        char name[8];

        (void)snprintf(name, sizeof(name), "n%d", i + 1);
        lab_node(k, (struct lab_node){.name = name, .target = "hub", .gpus = 4});
    }
    *books = (struct books){.k = k};
}

static enum reason check(struct lab *k, struct books *b, const struct object *w,
                         const struct object *v)
{
    return policy_victim_check(w, v, NOW, k->classes, k->n_classes, k->queues, k->n_queues, booked,
                               b);
}

static const struct object *ask(struct lab *k, const char *queue, uint32_t workers, uint32_t gpus)
{
    return lab_job(k,
                   (struct lab_job){.name = "w",
                                    .class_ = "low", /* equal priority: only reclaim helps */
                                    .queue = queue,
                                    .workers = workers,
                                    .gpus = gpus},
                   NULL);
}

static void a_guarantee_is_taken_back(void **state)
{
    struct lab k;
    struct books b;
    const struct object *own, *cheap, *dear, *w;
    struct preempt_plan *plan;

    (void)state;
    two_queues(&k, &b, 2, 4, 4);
    own = run(&k, &b, "own", "a", 2, 100);
    dear = run(&k, &b, "dear", "b", 2, 9000);
    cheap = run(&k, &b, "cheap", "b", 2, 5000);
    (void)run(&k, &b, "third", "b", 2, 7000);
    w = ask(&k, "a", 1, 2);
    plan = lab_plan(&k, w);
    assert_non_null(plan);
    assert_int_equal(plan->n, 1);
    assert_true(lab_victim(plan, "cheap") && plan->victims[0].reclaim);
    assert_int_equal(check(&k, &b, w, cheap), REASON_NONE);
    assert_int_equal(check(&k, &b, w, dear), REASON_NONE);
    assert_int_equal(check(&k, &b, w, own), REASON_VICTIM_NOT_LOWER);
    /* Three are more than a is owed; b borrows and is owed nothing; nobody else has a guarantee. */
    assert_null(lab_plan(&k, ask(&k, "a", 1, 3)));
    assert_null(lab_plan(&k, ask(&k, "b", 1, 1)));
    assert_null(lab_plan(&k, ask(&k, "", 1, 1)));
    assert_int_equal(check(&k, &b, ask(&k, "a", 1, 3), cheap), REASON_VICTIM_NOT_LOWER);
    lab_fini(&k);
}

/* Three workers are owed to a; b borrows six in jobs of 1, 2 and 3, and what is cheapest to make
 * room is more than that: a queue that borrows no more is left alone. */
static void no_more_than_is_borrowed(void **state)
{
    struct lab k;
    struct books b;
    struct preempt_plan *plan;

    (void)state;
    two_queues(&k, &b, 2, 4, 4);
    for (int i = 0; i < 8; i++) { /* b holds all: four of them borrowed */
        char name[8];

        (void)snprintf(name, sizeof(name), "j%d", i);
        (void)run(&k, &b, name, "b", 1, 1000 + 100 * i);
    }
    plan = lab_plan(&k, ask(&k, "a", 4, 1));
    assert_non_null(plan);
    assert_int_equal(plan->n, 4);
    assert_true(lab_victim(plan, "j0") && lab_victim(plan, "j3"));
    assert_null(lab_plan(&k, ask(&k, "a", 5, 1)));
    lab_fini(&k);

    /* On one node are victims of two borrowers; each gives what it borrowed. */
    two_queues(&k, &b, 1, 3, 0);
    lab_queue(&k, "c", 1, 0);
    (void)run(&k, &b, "c1", "c", 1, 100);
    (void)run(&k, &b, "c2", "c", 1, 200);
    (void)run(&k, &b, "b1", "b", 1, 300);
    (void)run(&k, &b, "b2", "b", 1, 400);
    plan = lab_plan(&k, ask(&k, "a", 1, 3));
    assert_int_equal(plan->n, 3);
    /* One of c: then it borrows no more, and the other is its own. */
    assert_true(lab_victim(plan, "c1") && lab_victim(plan, "b1") && lab_victim(plan, "b2"));
    lab_fini(&k);
}

/* Work cannot be cut: one that is partly borrowed may go, as its queue's guarantee stays free. */
static void work_that_straddles_may_go(void **state)
{
    struct lab k;
    struct books b;
    const struct object *v, *w;
    struct preempt_plan *plan;

    (void)state;
    two_queues(&k, &b, 1, 2, 2);
    v = run(&k, &b, "wide", "b", 4, 1000);
    w = ask(&k, "a", 1, 1);
    plan = lab_plan(&k, w);
    assert_true(plan && lab_victim(plan, "wide"));
    assert_int_equal(check(&k, &b, w, v), REASON_NONE);
    lab_fini(&k);
}

static void protected_work_is_not_reclaimed(void **state)
{
    struct lab k;
    struct books b;
    const struct object *v, *w;

    (void)state;
    two_queues(&k, &b, 1, 4, 0);
    v = lab_run(&k, (struct lab_job){
                        .name = "v", .class_ = "prod", .queue = "b", .gpus = 4, .placed_s = 9});
    b.queue[0] = "b";
    b.milli[0] = 4000;
    b.n = 1;
    w = ask(&k, "a", 1, 4);
    assert_null(lab_plan(&k, w));
    assert_int_equal(check(&k, &b, w, v), REASON_VICTIM_PROTECTED);
    lab_fini(&k);
}

/* There is room, but the queue holds its burst: only its own lower work helps. */
static void quota_is_made_free(void **state)
{
    struct lab k;
    struct books b;
    struct preempt_plan *plan;
    const struct object *w;

    (void)state;
    two_queues(&k, &b, 3, 0, 0);
    lab_queue(&k, "tight", 0, 4);
    (void)run(&k, &b, "other", "a", 2, 10);
    (void)run(&k, &b, "t1", "tight", 1, 500);
    (void)run(&k, &b, "t2", "tight", 2, 900);
    (void)run(&k, &b, "t3", "tight", 1, 700);
    w = lab_job(&k, (struct lab_job){.name = "w", .class_ = "prod", .queue = "tight", .gpus = 2},
                NULL);
    assert_null(lab_place(&k, w));
    plan = lab_plan(&k, w);
    assert_non_null(plan);
    /* Two of one GPU each: 860 + 1060; the one of two: 2 × 1260. */
    assert_int_equal(plan->n, 2);
    assert_true(lab_victim(plan, "t1") && lab_victim(plan, "t3"));
    lab_fini(&k);
}

static void a_full_target_is_made_free(void **state)
{
    struct meta meta = {.name = "small"};
    struct target_limits limits = {.workloads = 2};
    struct target_spec spec = {.type = TARGET_AGENT, .tier = TIER_HUB, .limits = &limits};
    struct target t = {.metadata = &meta, .spec = &spec};
    struct lab k;
    struct preempt_plan *plan;
    const struct object *w;

    (void)state;
    lab_init(&k, 1);
    lab_class(&k, "low", 10, false, 0);
    lab_class(&k, "prod", 100, true, 0);
    pool_put(k.p, lab_make(&k, KIND_TARGET, &t));
    pool_target_reachable(k.p, "small", REACH_YES);
    lab_node(&k, (struct lab_node){.name = "n1", .target = "small", .gpus = 4});
    lab_run(&k, (struct lab_job){.name = "v1", .class_ = "low", .gpus = 1, .placed_s = 800});
    lab_run(&k, (struct lab_job){.name = "v2", .class_ = "low", .gpus = 1, .placed_s = 600});
    w = lab_job(&k, (struct lab_job){.name = "w", .class_ = "prod", .gpus = 1}, NULL);
    assert_null(lab_place(&k, w));
    plan = lab_plan(&k, w);
    assert_true(plan && plan->n == 1 && lab_victim(plan, "v2"));
    lab_fini(&k);
}

/* A checkpoint that no other target can reach costs its way out; money in GPU-seconds at the price
 * of the place. */
static void egress_counts(void **state)
{
    static const char *const docs[] = {"own", "dear"};
    struct lab k;
    struct preempt_plan *plan;

    (void)state;
    lab_init(&k, 1);
    lab_class(&k, "low", 10, false, 0);
    lab_class(&k, "prod", 100, true, 0);
    for (int i = 0; i < 2; i++) {
        struct meta meta = {.name = docs[i]};
        struct gpu_price line = {.class_ = "h100", .amortised = 2};
        struct price_sheet_spec sheet = {
            .currency = "USD", .gpuHour = &line, .n_gpuHour = 1, .egressPerGiB = i ? 0.1 : 0};
        struct price_sheet ps = {.metadata = &meta, .spec = &sheet};
        struct meta tm = {.name = i ? "t-dear" : "t-own"};
        struct target_spec spec = {.type = TARGET_AGENT, .tier = TIER_HUB, .priceSheet = docs[i]};
        struct target t = {.metadata = &tm, .spec = &spec};
        char name[8];

        (void)snprintf(name, sizeof(name), "n%d", i);
        pool_put(k.p, lab_make(&k, KIND_PRICE_SHEET, &ps));
        pool_put(k.p, lab_make(&k, KIND_TARGET, &t));
        pool_target_reachable(k.p, tm.name, REACH_YES);
        lab_node(&k, (struct lab_node){.name = name, .target = tm.name, .gpus = 1});
        lab_run(&k, (struct lab_job){.name = i ? "cheap" : "plain",
                                     .class_ = "low",
                                     .gpus = 1,
                                     .saved_s = i ? 100 : 600,
                                     .saved_bytes = 100ll << 30,
                                     .placed_s = 9000});
    }
    plan =
        lab_plan(&k, lab_job(&k, (struct lab_job){.name = "w", .class_ = "prod", .gpus = 1}, NULL));
    /* 100 s are lost, but 100 GiB × 0.1 leave: 10 in money, five GPU-hours. */
    assert_true(lab_victim(plan, "plain"));
    lab_fini(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guarantee_is_taken_back),
        cmocka_unit_test(no_more_than_is_borrowed),
        cmocka_unit_test(work_that_straddles_may_go),
        cmocka_unit_test(protected_work_is_not_reclaimed),
        cmocka_unit_test(quota_is_made_free),
        cmocka_unit_test(a_full_target_is_made_free),
        cmocka_unit_test(egress_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
