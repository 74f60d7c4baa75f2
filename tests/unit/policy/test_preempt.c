/* Who makes room for whom: the least harm, and never those who are protected. */
#include "tests/unit/policy/preempt_kit.h"

#define JOBS_MAX 12

static void one_node(struct kit *k, uint32_t gpus)
{
    kit_init(k, 1);
    kit_class(k, "low", 10, false, 0);
    kit_class(k, "prod", 100, true, 0);
    kit_target(k, "hub");
    kit_node(k, (struct kit_node){.name = "n1", .target = "hub", .gpus = gpus});
}

static void least_lost_goes(void **state)
{
    struct kit k;
    struct preempt_plan *plan;
    const struct object *w;

    (void)state;
    one_node(&k, 2);
    kit_run(&k, (struct kit_job){.name = "a", .class_ = "low", .gpus = 1, .placed_s = 9000});
    kit_run(&k, (struct kit_job){
                    .name = "b", .class_ = "low", .gpus = 1, .saved_s = 60, .placed_s = 9000});
    w = kit_job(&k, (struct kit_job){.name = "p", .class_ = "prod", .gpus = 1}, NULL);
    plan = kit_plan(&k, w);
    assert_non_null(plan);
    assert_int_equal(plan->n, 1);
    assert_true(kit_victim(plan, "b"));
    assert_true(fabs(plan->lost_gpu_s - 60) < 1e-6);
    assert_true(fabs(plan->harm - 420) < 1e-6); /* and six minutes until it computes again */
    assert_non_null(strstr(plan->decision->message, "dev/b (60)"));
    assert_int_equal(plan->placement->assignments[0].gpus[0], 1);
    /* Nothing was changed by planning. */
    assert_null(kit_place(&k, w));
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 0);
    kit_fini(&k);
}

static void brute(struct kit *k, const struct object *w, const struct object *const *jobs,
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
        if (sum < *ret && kit_fits_without(k, w, gone, m))
            *ret = sum;
    }
}

/* Small random pools of whole GPUs, fractions and MIG, short of GPUs, CPU or memory. */
static struct kit_job random_job(struct kit *k, char *name, uint32_t i, uint32_t mode)
{
    struct kit_job j = {.name = name,
                        .class_ = "low",
                        .workers = kit_random(k, 5) == 0 ? 2 : 1,
                        .cpu = 1000 * (int64_t)kit_random(k, 8),
                        .memory = (int64_t)kit_random(k, 8) << 30,
                        .placed_s = 60 + kit_random(k, 20000)};

    (void)snprintf(name, 16, "j%u", i);
    j.saved_s = kit_random(k, 2) ? 1 + kit_random(k, (uint32_t)j.placed_s) : 0;
    if (mode == 1)
        j.fraction = 0.1 * (1 + kit_random(k, 9));
    else if (mode == 2)
        j.mig = kit_random(k, 3) ? "1g.10gb" : "3g.40gb";
    else if (kit_random(k, 8))
        j.gpus = 1 + kit_random(k, 3);
    return j;
}

static void exact_for_one_worker(void **state)
{
    uint32_t plans = 0;

    (void)state;
    for (uint32_t round = 0; round < 300; round++) {
        struct kit k;
        const struct object *jobs[JOBS_MAX], *w;
        double harm[JOBS_MAX], least;
        struct preempt_plan *plan;
        uint32_t n = 0, mode = round % 4;
        char name[16];

        kit_init(&k, round + 1);
        kit_class(&k, "low", 10, false, 0);
        kit_class(&k, "prod", 100, true, 0);
        kit_target(&k, "hub");
        kit_node(&k, (struct kit_node){.name = "n1",
                                       .target = "hub",
                                       .gpus = 4,
                                       .cpu = 16000,
                                       .memory = 20ll << 30,
                                       .mig = mode == 2 ? 4 : 0,
                                       .link = mode == 3 ? 2 : 0});
        kit_node(&k, (struct kit_node){.name = "n2", .target = "hub", .gpus = 2, .cpu = 12000});
        for (uint32_t i = 0; i < 30 && n < 9; i++) {
            struct kit_job j = random_job(&k, name, i, mode);

            jobs[n] = kit_run(&k, j);
            if (!jobs[n])
                continue;
            harm[n] = (double)object_as(jobs[n], workload)->status->placement->gpus / 1000 *
                      ((double)(j.saved_s ? j.saved_s : j.placed_s) + 360);
            n++;
        }
        struct kit_job j = random_job(&k, name, 99, mode);
        j.class_ = "prod";
        j.workers = 1;
        if (mode == 3 && j.gpus)
            j.interconnect = "nvlink";
        w = kit_job(&k, j, NULL);
        if (kit_place(&k, w)) {
            assert_null(kit_plan(&k, w));
            kit_fini(&k);
            continue;
        }
        brute(&k, w, jobs, harm, n, &least);
        plan = kit_plan(&k, w);
        if (least == HUGE_VAL) {
            assert_null(plan);
        } else {
            assert_non_null(plan);
            if (fabs(plan->harm - least) > 1e-6)
                fail_msg("round %u: %f, but %f would do", round, plan->harm, least);
            plans++;
        }
        kit_fini(&k);
    }
    assert_true(plans > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_lost_goes),
        cmocka_unit_test(exact_for_one_worker),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
