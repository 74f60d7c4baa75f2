/* Who makes room for whom: the least harm, and never those who are protected. */
#include "tests/support/policy/preempt_lab.h"

#include "api/base/failpoint.h"

#define JOBS_MAX 12

static void one_node(struct lab *k, uint32_t gpus)
{
    lab_init(k, 1);
    lab_class(k, "low", 10, false, 0);
    lab_class(k, "prod", 100, true, 0);
    lab_target(k, "hub");
    lab_node(k, (struct lab_node){.name = "n1", .target = "hub", .gpus = gpus});
}

static void least_lost_goes(void **state)
{
    struct lab k;
    struct preempt_plan *plan;
    const struct object *w;

    (void)state;
    one_node(&k, 2);
    lab_run(&k, (struct lab_job){.name = "a", .class_ = "low", .gpus = 1, .placed_s = 9000});
    lab_run(&k, (struct lab_job){
                    .name = "b", .class_ = "low", .gpus = 1, .saved_s = 60, .placed_s = 9000});
    w = lab_job(&k, (struct lab_job){.name = "p", .class_ = "prod", .gpus = 1}, NULL);
    plan = lab_plan(&k, w);
    assert_non_null(plan);
    assert_int_equal(plan->n, 1);
    assert_true(lab_victim(plan, "b"));
    assert_true(fabs(plan->lost_gpu_s - 60) < 1e-6);
    assert_true(fabs(plan->harm - 420) < 1e-6); /* and six minutes until it computes again */
    assert_non_null(strstr(plan->decision->message, "dev/b (60)"));
    assert_int_equal(plan->placement->assignments[0].gpus[0], 1);
    /* Nothing was changed by planning. */
    assert_null(lab_place(&k, w));
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 0);
    lab_fini(&k);
}

static double harm_of(const struct object *o, const struct lab_job *j)
{
    const struct placement *at = object_as(o, workload)->status->placement;
    double gpus = at->gpus ? (double)at->gpus / 1000 : 0.001 * at->n_assignments;

    return gpus * ((double)(j->saved_s ? j->saved_s : j->placed_s) + 360);
}

/* What the plan minimises: GPUs beyond those that are asked for count a tenth. */
static double charged_of(const struct object *o, const struct lab_job *j, const struct lab_job *by)
{
    double has = (double)object_as(o, workload)->status->placement->gpus, harm = harm_of(o, j);
    double asks = (by->fraction > 0 ? by->fraction : by->gpus) * (by->workers ? by->workers : 1);

    asks *= 1000;
    return by->mig || asks <= 0 || has <= asks ? harm : harm * (asks + 0.1 * (has - asks)) / has;
}

static void brute(struct lab *k, const struct object *w, const struct object *const *jobs,
                  const double *harm, uint32_t n, double *ret)
{
    *ret = HUGE_VAL;
    for (uint32_t set = 0; set < 1u << n; set++) {
        const struct object *gone[JOBS_MAX];
        double sum = 0;
        size_t m = 0;

        for (uint32_t i = 0; i < n; i++) {
            if (set >> i & 1) {
                gone[m++] = jobs[i];
                sum += harm[i];
            }
        }
        if (sum < *ret && lab_fits_without(k, w, gone, m))
            *ret = sum;
    }
}

/* Small random pools of whole GPUs, fractions and MIG, short of GPUs, CPU or memory. */
static struct lab_job random_job(struct lab *k, char *name, uint32_t i, uint32_t mode)
{
    struct lab_job j = {.name = name,
                        .class_ = "low",
                        .workers = lab_random(k, 5) == 0 ? 2 : 1,
                        .cpu = 1000 * (int64_t)lab_random(k, 8),
                        .memory = (int64_t)lab_random(k, 8) << 30,
                        .placed_s = 60 + lab_random(k, 20000)};

    (void)snprintf(name, 16, "j%u", i);
    j.saved_s = lab_random(k, 2) ? 1 + lab_random(k, (uint32_t)j.placed_s) : 0;
    if (mode == 1)
        j.fraction = 0.1 * (1 + lab_random(k, 9));
    else if (mode == 2)
        j.mig = lab_random(k, 3) ? "1g.10gb" : "3g.40gb";
    else if (lab_random(k, 8))
        j.gpus = 1 + lab_random(k, 3);
    return j;
}

static void exact_for_one_worker(void **state)
{
    uint32_t plans = 0;

    (void)state;
    for (uint32_t round = 0; round < 300; round++) {
        struct lab k;
        const struct object *jobs[JOBS_MAX], *w;
        double harm[JOBS_MAX], least;
        struct lab_job as[JOBS_MAX];
        struct preempt_plan *plan;
        uint32_t n = 0, mode = round % 4;
        char name[16];

        lab_init(&k, round + 1);
        lab_class(&k, "low", 10, false, 0);
        lab_class(&k, "prod", 100, true, 0);
        lab_target(&k, "hub");
        lab_node(&k, (struct lab_node){.target = "hub", .name = "n1", .gpus = 4, .cpu = 16000,
                                       .memory = 20ll << 30,
                                       .mig = mode == 2 ? 4 : 0,
                                       .link = mode == 3 ? 2 : 0,
                                       .counted = mode == 0 && round % 8 == 0});
        lab_node(&k, (struct lab_node){.name = "n2", .target = "hub", .gpus = 2, .cpu = 12000});
        for (uint32_t i = 0; i < 30 && n < 9; i++) {
            struct lab_job j = random_job(&k, name, i, mode);

            jobs[n] = lab_run(&k, j);
            if (!jobs[n])
                continue;
            as[n++] = j;
        }
        struct lab_job j = random_job(&k, name, 99, mode);
        j.class_ = "prod";
        j.workers = 1;
        if (mode == 3 && j.gpus)
            j.interconnect = "nvlink";
        w = lab_job(&k, j, NULL);
        if (lab_place(&k, w)) {
            assert_null(lab_plan(&k, w));
            lab_fini(&k);
            continue;
        }
        for (uint32_t i = 0; i < n; i++)
            harm[i] = charged_of(jobs[i], &as[i], &j);
        brute(&k, w, jobs, harm, n, &least);
        plan = lab_plan(&k, w);
        if (least == HUGE_VAL) {
            assert_null(plan);
        } else {
            assert_non_null(plan);
            if (fabs(plan->charged - least) > 1e-6)
                fail_msg("round %u: %f, but %f would do", round, plan->charged, least);
            plans++;
        }
        lab_fini(&k);
    }
    assert_true(plans > 100);
}

/* ---- who is spared ---- */
static void some_are_spared(void **state)
{
    static const struct {
        struct lab_job job;
        enum reason why;
    } cases[] = {
        {{.class_ = "prod", .placed_s = 9000}, REASON_VICTIM_PROTECTED},
        {{.class_ = "young", .placed_s = 599}, REASON_VICTIM_YOUNG},
        {{.class_ = "young", .placed_s = 600}, REASON_NONE},
        {{.class_ = "high", .placed_s = 9000}, REASON_VICTIM_NOT_LOWER},
        {{.class_ = "above", .placed_s = 9000}, REASON_VICTIM_NOT_LOWER},
        {{.class_ = "low", .placed_s = 9000, .phase = PHASE_STARTING}, REASON_VICTIM_NOT_RUNNING},
        {{.class_ = "low", .placed_s = 9000, .phase = PHASE_UNKNOWN}, REASON_VICTIM_NOT_RUNNING},
        {{.class_ = "low", .placed_s = 9000, .migration = "m"}, REASON_VICTIM_NOT_RUNNING},
        {{.class_ = "low", .placed_s = 9000}, REASON_NONE},
        {{.placed_s = 9000}, REASON_NONE}, /* no class: value 0 */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct lab k;
        struct lab_job j = cases[i].job;
        const struct object *v, *w;

        one_node(&k, 1);
        lab_class(&k, "young", 10, false, 600000);
        lab_class(&k, "high", 50, false, 0);
        lab_class(&k, "above", 60, false, 0);
        j.name = "v";
        j.gpus = 1;
        v = lab_run(&k, j);
        w = lab_job(&k, (struct lab_job){.name = "p", .class_ = "high", .gpus = 1}, NULL);
        assert_int_equal(lab_plan(&k, w) != NULL, cases[i].why == REASON_NONE);
        assert_int_equal(
            policy_victim_check(w, v, NOW, k.classes, k.n_classes, NULL, 0, lab_held, NULL),
            cases[i].why);
        lab_fini(&k);
    }
}

static void a_class_may_be_barred(void **state)
{
    struct meta meta = {.name = "meek"};
    struct priority_class_spec spec = {.value = 1000, .mayPreempt = false};
    struct priority_class c = {.metadata = &meta, .spec = &spec};
    struct lab k;
    const struct object *v, *w;

    (void)state;
    one_node(&k, 1);
    for (size_t i = 0; i < schema_priority_class_spec.n; i++) {
        if (strcmp(schema_priority_class_spec.fields[i].json, "mayPreempt") == 0)
            spec.has = 1ull << schema_priority_class_spec.fields[i].bit;
    }
    k.classes[k.n_classes] = lab_make(&k, KIND_PRIORITY_CLASS, &c);
    pool_put(k.p, k.classes[k.n_classes++]);
    v = lab_run(&k, (struct lab_job){.name = "v", .class_ = "low", .gpus = 1, .placed_s = 9000});
    w = lab_job(&k, (struct lab_job){.name = "p", .class_ = "meek", .gpus = 1}, NULL);
    assert_null(lab_plan(&k, w));
    assert_int_equal(
        policy_victim_check(w, v, NOW, k.classes, k.n_classes, NULL, 0, lab_held, NULL),
        REASON_VICTIM_NOT_LOWER);
    lab_fini(&k);
}

/* On a node short of CPU only: of two without a GPU, the one that has less to lose. */
static void work_without_gpus_counts(void **state)
{
    struct lab k;
    struct preempt_plan *plan;

    (void)state;
    one_node(&k, 1);
    lab_run(&k,
            (struct lab_job){.name = "days", .class_ = "low", .cpu = 32000, .placed_s = 900000});
    lab_run(&k, (struct lab_job){.name = "hours", .class_ = "low", .cpu = 32000, .placed_s = 9000});
    plan = lab_plan(
        &k, lab_job(&k, (struct lab_job){.name = "p", .class_ = "prod", .gpus = 1, .cpu = 20000},
                    NULL));
    assert_int_equal(plan->n, 1);
    assert_true(lab_victim(plan, "hours"));
    assert_true(plan->lost_gpu_s < 1e-9);
    pool_target_reachable(k.p, "hub", REACH_UNKNOWN);
    assert_null(lab_plan(
        &k, lab_job(&k, (struct lab_job){.name = "q", .class_ = "prod", .gpus = 1, .cpu = 20000},
                    NULL)));
    lab_fini(&k);
}

/* A checkpoint of another epoch saved nothing of this one. */
static void only_its_own_epoch_counts(void **state)
{
    struct lab k;
    struct preempt_plan *plan;

    (void)state;
    one_node(&k, 2);
    lab_run(&k, (struct lab_job){.name = "old",
                                 .class_ = "low",
                                 .gpus = 1,
                                 .saved_s = 10,
                                 .placed_s = 9000,
                                 .old_epoch = 1});
    lab_run(&k, (struct lab_job){.name = "own", .class_ = "low", .gpus = 1, .placed_s = 5000});
    plan =
        lab_plan(&k, lab_job(&k, (struct lab_job){.name = "p", .class_ = "prod", .gpus = 1}, NULL));
    assert_true(lab_victim(plan, "own"));
    lab_fini(&k);
}

/* ---- gangs ---- */
static void four_nodes(struct lab *k, uint32_t gpus)
{
    static const char *const racks[] = {"r1", "r1", "r2", "r2"};

    lab_init(k, 1);
    lab_class(k, "low", 10, false, 0);
    lab_class(k, "prod", 100, true, 0);
    lab_target(k, "hub");
    for (int i = 0; i < 4; i++) {
        char name[8];

        (void)snprintf(name, sizeof(name), "n%d", i + 1);
        lab_node(k,
                 (struct lab_node){.name = name, .target = "hub", .gpus = gpus, .rack = racks[i]});
    }
}

static void a_gang_victim_counts_once(void **state)
{
    struct lab k;
    struct preempt_plan *plan;
    char name[8];

    (void)state;
    four_nodes(&k, 2);
    lab_run(&k, (struct lab_job){
                    .name = "gang", .class_ = "low", .workers = 2, .gpus = 2, .placed_s = 1000});
    for (int i = 0; i < 4; i++) {
        (void)snprintf(name, sizeof(name), "s%d", i);
        lab_run(&k, (struct lab_job){.name = name, .class_ = "low", .gpus = 1, .placed_s = 1100});
    }
    /* The gang alone: 4 × 1360. Four single ones: 4 × 1460. */
    plan = lab_plan(
        &k, lab_job(&k, (struct lab_job){.name = "p", .class_ = "prod", .workers = 2, .gpus = 2},
                    NULL));
    assert_int_equal(plan->n, 1);
    assert_true(lab_victim(plan, "gang"));
    assert_true(fabs(plan->harm - 4 * 1360) < 1e-6);
    assert_int_equal(plan->placement->n_assignments, 2);
    /* For one worker it is dearer than two single ones: 2.2 × 1360, as two of its GPUs are left for
     * others who wait, against 2 × 1460. */
    plan =
        lab_plan(&k, lab_job(&k, (struct lab_job){.name = "q", .class_ = "prod", .gpus = 2}, NULL));
    assert_int_equal(plan->n, 2);
    assert_true(lab_victim(plan, "s0") && lab_victim(plan, "s1"));
    lab_fini(&k);
}

/* The cheapest step first, then a gang that would have done alone: the first victims stay. */
static void who_is_not_needed_stays(void **state)
{
    struct lab k;
    struct preempt_plan *plan;
    char name[8];

    (void)state;
    four_nodes(&k, 2);
    for (int i = 0; i < 4; i++) { /* two of 500 on one node, two of 1500 on the next */
        (void)snprintf(name, sizeof(name), "s%d", i);
        lab_run(&k, (struct lab_job){
                        .name = name, .class_ = "low", .gpus = 1, .placed_s = i < 2 ? 140 : 1140});
    }
    lab_run(&k, (struct lab_job){
                    .name = "gang", .class_ = "low", .workers = 2, .gpus = 2, .placed_s = 240});
    plan = lab_plan(
        &k, lab_job(&k, (struct lab_job){.name = "p", .class_ = "prod", .workers = 2, .gpus = 2},
                    NULL));
    assert_int_equal(plan->n, 1);
    assert_true(lab_victim(plan, "gang"));
    assert_true(fabs(plan->harm - 2400) < 1e-6);
    lab_fini(&k);
}

static void a_gang_stays_within_its_rack(void **state)
{
    struct lab k;
    struct preempt_plan *plan;
    char name[8];

    (void)state;
    four_nodes(&k, 1);
    for (int i = 0; i < 4; i++) { /* 100, 900, 300, 400 s: the cheapest two are in two racks */
        static const int64_t age[] = {100, 900, 300, 400};

        (void)snprintf(name, sizeof(name), "s%d", i);
        lab_run(&k, (struct lab_job){.name = name, .class_ = "low", .gpus = 1, .placed_s = age[i]});
    }
    plan = lab_plan(
        &k,
        lab_job(&k,
                (struct lab_job){
                    .name = "p", .class_ = "prod", .workers = 2, .gpus = 1, .within = LEVEL_RACK},
                NULL));
    assert_int_equal(plan->n, 2);
    assert_true(lab_victim(plan, "s2") && lab_victim(plan, "s3"));
    plan = lab_plan(
        &k, lab_job(&k, (struct lab_job){.name = "q", .class_ = "prod", .workers = 2, .gpus = 1},
                    NULL));
    assert_true(lab_victim(plan, "s0") && lab_victim(plan, "s2"));
    lab_fini(&k);
}

/* Few may be victims: every set is tried. */
static void gangs_are_exact_where_few_run(void **state)
{
    uint32_t plans = 0;

    (void)state;
    for (uint32_t round = 0; round < 150; round++) {
        struct lab k;
        const struct object *jobs[JOBS_MAX], *w;
        struct lab_job as[JOBS_MAX], by;
        double harm[JOBS_MAX], least;
        struct preempt_plan *plan;
        uint32_t n = 0;
        char name[16];

        four_nodes(&k, 4);
        k.s = round + 77;
        for (uint32_t i = 0; i < 30 && n < 9; i++) {
            struct lab_job j = random_job(&k, name, i, 0);

            j.workers = 1 + lab_random(&k, 3);
            j.gpus = 1 + lab_random(&k, 3);
            jobs[n] = lab_run(&k, j);
            if (jobs[n])
                as[n++] = j;
        }
        by = (struct lab_job){.name = "p",
                              .class_ = "prod",
                              .workers = 2 + lab_random(&k, 2),
                              .gpus = 1 + lab_random(&k, 4),
                              .within = lab_random(&k, 3) ? 0 : LEVEL_RACK};
        w = lab_job(&k, by, NULL);
        if (!lab_place(&k, w)) {
            for (uint32_t i = 0; i < n; i++)
                harm[i] = charged_of(jobs[i], &as[i], &by);
            brute(&k, w, jobs, harm, n, &least);
            plan = lab_plan(&k, w);
            assert_true((plan != NULL) == (least < HUGE_VAL));
            if (plan && fabs(plan->charged - least) > 1e-6)
                fail_msg("round %u: %f, but %f would do", round, plan->charged, least);
            plans += plan != NULL;
        }
        lab_fini(&k);
    }
    assert_true(plans > 60);
}

/* Too many for that: never worse than by steps alone, and better now and then. */
static void gangs_are_never_worse_than_by_steps(void **state)
{
    double ours = 0, steps = 0;
    uint32_t plans = 0, better = 0;

    (void)state;
    for (uint32_t round = 0; round < 120; round++) {
        struct lab k;
        struct preempt_plan *plan, *greedy;
        const struct object *w;
        char name[16];

        four_nodes(&k, 8);
        k.s = round + 7;
        for (uint32_t i = 0; i < 60; i++) {
            struct lab_job j = random_job(&k, name, i, 0);

            j.workers = lab_random(&k, 3) ? 1 : 2 + lab_random(&k, 2);
            j.gpus = 1 + lab_random(&k, 2);
            (void)lab_run(&k, j);
        }
        w = lab_job(&k,
                    (struct lab_job){.name = "p",
                                     .class_ = "prod",
                                     .workers = 2 + lab_random(&k, 3),
                                     .gpus = 2 + lab_random(&k, 5)},
                    NULL);
        if (!lab_place(&k, w)) {
            failpoint_plant("policy.greedy-gangs");
            greedy = lab_plan(&k, w);
            failpoint_plant(NULL);
            plan = lab_plan(&k, w);
            assert_true((plan != NULL) == (greedy != NULL));
            if (plan) {
                assert_true(plan->charged <= greedy->charged * (1 + 1e-6));
                better += plan->charged < greedy->charged * (1 - 1e-6);
                ours += plan->charged;
                steps += greedy->charged;
                plans++;
            }
        }
        lab_fini(&k);
    }
    print_message("%u plans, %u better than by steps, %.3f of their harm\n", plans, better,
                  ours / steps);
    assert_true(plans > 60);
#ifdef HANSE_FAILPOINTS
    assert_true(better > 0);
#endif
}

/* ---- the same bytes, whatever came first ---- */
static void order_does_not_matter(void **state)
{
    struct lab k;
    const struct object *jobs[16], *w;
    struct buf first;
    char name[16];

    (void)state;
    four_nodes(&k, 4);
    for (uint32_t i = 0; i < 16; i++) { /* eight alike, eight alike */
        (void)snprintf(name, sizeof(name), "j%u", i);
        jobs[i] = lab_run(
            &k, (struct lab_job){
                    .name = name, .class_ = "low", .gpus = 1, .placed_s = i % 2 ? 1000 : 2000});
    }
    buf_init(&first, 1 << 20);
    for (uint32_t round = 0; round < 20; round++) {
        static const struct lab_job asks[] = {
            {.name = "p", .class_ = "prod", .gpus = 3},
            {.name = "q", .class_ = "prod", .workers = 3, .gpus = 2},
            {.name = "r", .class_ = "prod", .workers = 2, .gpus = 2, .within = LEVEL_RACK}};
        AUTO_BUF b;

        buf_init(&b, 1 << 20);
        for (uint32_t i = 0; i < 16; i++) { /* in another order each time */
            const struct object *o = jobs[lab_random(&k, 16)];

            pool_drop(k.p, o->meta->uid);
            pool_hold(k.p, o);
        }
        for (size_t i = 0; i < 3; i++) {
            struct preempt_plan *plan;

            w = lab_job(&k, asks[i], NULL);
            plan = lab_plan(&k, w);
            tlv_add(&schema_decision_spec, plan->decision, &b);
            tlv_add(&schema_placement, plan->placement, &b);
            for (size_t v = 0; v < plan->n; v++)
                buf_add(&b, plan->victims[v].workload->meta->uid,
                        strlen(plan->victims[v].workload->meta->uid));
        }
        if (round == 0) {
            buf_add(&first, b.p, b.n);
            continue;
        }
        assert_int_equal(b.n, first.n);
        assert_memory_equal(b.p, first.p, b.n);
    }
    buf_fini(&first);
    lab_fini(&k);
}

/* Many victims: the record names some and counts the others, within its limit (lab_plan). */
static void the_record_is_bounded(void **state)
{
    struct lab k;
    struct preempt_plan *plan;
    char name[80];

    (void)state;
    four_nodes(&k, 16);
    for (uint32_t i = 0; i < 64; i++) {
        (void)snprintf(name, sizeof(name), "a-workload-with-quite-a-long-name-as-people-like-%u",
                       i);
        lab_run(&k, (struct lab_job){.name = name, .class_ = "low", .gpus = 1, .placed_s = 1000});
    }
    plan = lab_plan(
        &k, lab_job(&k, (struct lab_job){.name = "p", .class_ = "prod", .workers = 4, .gpus = 16},
                    NULL));
    assert_int_equal(plan->n, 64);
    assert_non_null(strstr(plan->decision->message, " more"));
    assert_true(strlen(plan->decision->message) < 512);
    assert_string_equal(plan->decision->outcome, "Pending");
    lab_fini(&k);
}

/* Memory that does not suffice is an answer, and no end of the process. */
static void what_is_too_large_is_refused(void **state)
{
    struct lab k;
    struct preempt_plan *plan;
    struct err err = {0};
    char name[32];

    (void)state;
    four_nodes(&k, 16);
    for (uint32_t i = 0; i < 64; i++) {
        (void)snprintf(name, sizeof(name), "low-%u", i);
        lab_run(&k, (struct lab_job){.name = name, .class_ = "low", .gpus = 1, .placed_s = 1000});
    }
    struct place_request rq = {
        .workload = lab_job(
            &k, (struct lab_job){.name = "p", .class_ = "prod", .workers = 4, .gpus = 16}, NULL),
        .now_ms = k.now_ms};
    for (size_t room = (size_t)64 << 10; room < (size_t)8 << 20; room += (size_t)96 << 10) {
        AUTO_ARENA a = arena_create(room);
        int r = policy_preempt(k.p, &rq, a, &plan, &err);

        assert_true(r == 0 || r == E_LIMIT);
        if (r)
            assert_non_null(strstr(err.text, "MiB"));
    }
    assert_non_null(plan); /* and with enough there is one */
    lab_fini(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_lost_goes),
        cmocka_unit_test(exact_for_one_worker),
        cmocka_unit_test(some_are_spared),
        cmocka_unit_test(a_class_may_be_barred),
        cmocka_unit_test(only_its_own_epoch_counts),
        cmocka_unit_test(work_without_gpus_counts),
        cmocka_unit_test(a_gang_victim_counts_once),
        cmocka_unit_test(who_is_not_needed_stays),
        cmocka_unit_test(a_gang_stays_within_its_rack),
        cmocka_unit_test(gangs_are_exact_where_few_run),
        cmocka_unit_test(gangs_are_never_worse_than_by_steps),
        cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(the_record_is_bounded),
        cmocka_unit_test(what_is_too_large_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
