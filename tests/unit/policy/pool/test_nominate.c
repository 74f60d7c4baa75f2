/* Room that is being made for a workload, and destinations of moves: kept against all others. */
#include "tests/support/policy/preempt_lab.h"

static void one_target(struct lab *k)
{
    lab_init(k, 1);
    lab_class(k, "low", 10, false, 0);
    lab_class(k, "prod", 100, true, 0);
    lab_target(k, "hub");
}

static const struct object *ask(struct lab *k, const char *name, uint32_t workers, uint32_t gpus)
{
    return lab_job(
        k, (struct lab_job){.name = name, .class_ = "prod", .workers = workers, .gpus = gpus},
        NULL);
}

static void what_falls_free_is_kept(void **state)
{
    struct lab k;
    const struct object *v, *p, *q;
    struct preempt_plan *plan;
    struct pool *fork;

    (void)state;
    one_target(&k);
    lab_node(&k, (struct lab_node){.name = "n1", .target = "hub", .gpus = 4});
    v = lab_run(&k, (struct lab_job){.name = "v", .class_ = "low", .gpus = 3, .placed_s = 1000});
    p = ask(&k, "p", 1, 4);
    q = ask(&k, "q", 1, 1);
    plan = lab_plan(&k, p);
    assert_non_null(lab_place(&k, q)); /* one is free still */
    pool_nominate(k.p, p, plan->placement);
    assert_null(lab_place(&k, q));
    assert_null(lab_place(&k, p)); /* its victim holds three */
    assert_null(lab_plan(&k, p));  /* and no second plan is made */
    assert_null(lab_plan(&k, q));  /* nor is the room taken by taking its victim twice */
    pool_drop(k.p, v->meta->uid);
    assert_null(lab_place(&k, q));
    assert_non_null(lab_place(&k, p));
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 0);
    fork = pool_fork(k.p);
    assert_int_equal(pool_free_gpu_milli(fork, NULL), 0);
    fork = pool_destroy(fork);
    /* A rebuild of the table keeps it. */
    lab_node(&k, (struct lab_node){.name = "n0", .target = "hub", .gpus = 1});
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 1000);
    pool_nominate(k.p, p, NULL);
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 5000);
    pool_nominate(k.p, p, NULL);
    lab_fini(&k);
}

static void it_rests_while_its_workload_holds(void **state)
{
    struct lab k;
    const struct object *p;
    struct placement *at;
    struct assignment last = {
        .node = "n1", .gpus = (int64_t[]){3}, .n_gpus = 1, .gpuMilli = 1000, .mig = ""};
    struct placement elsewhere = {
        .target = "hub", .class_ = "h100", .gpus = 1000, .assignments = &last, .n_assignments = 1};

    (void)state;
    one_target(&k);
    lab_node(&k, (struct lab_node){.name = "n1", .target = "hub", .gpus = 4});
    p = ask(&k, "p", 1, 3);
    at = lab_place(&k, p);
    pool_nominate(k.p, p, at);
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 1000);
    pool_hold_placement(k.p, p, &elsewhere); /* one, and the three are nobody's */
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 3000);
    pool_drop(k.p, p->meta->uid);
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 1000);
    pool_hold_placement(k.p, p, at); /* three, not six */
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 1000);
    /* Refused after all: the room is kept again. Also across a rebuild in between. */
    lab_node(&k, (struct lab_node){.name = "n0", .target = "hub", .gpus = 1});
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 2000);
    pool_drop(k.p, p->meta->uid);
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 2000);
    pool_nominate(k.p, p, at); /* again: replaces */
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 2000);
    pool_hold_placement(k.p, p, at);
    pool_nominate(k.p, p, at); /* told anew by the next version of its object */
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 2000);
    pool_drop(k.p, p->meta->uid);
    pool_nominate(k.p, p, NULL);
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 5000);
    lab_fini(&k);
}

static void gangs_see_it_as_held(void **state)
{
    struct lab k;
    const struct object *p, *q;

    (void)state;
    one_target(&k);
    lab_node(&k, (struct lab_node){.name = "n1", .target = "hub", .gpus = 2});
    lab_node(&k, (struct lab_node){.name = "n2", .target = "hub", .gpus = 2});
    p = ask(&k, "p", 2, 1);
    q = ask(&k, "q", 3, 1);
    assert_non_null(lab_place(&k, q));
    pool_nominate(k.p, p, lab_place(&k, p));
    assert_null(lab_place(&k, q));
    assert_non_null(lab_place(&k, ask(&k, "r", 2, 1)));
    lab_fini(&k);
}

static const struct object *small(struct lab *k, const char *name, double fraction, const char *mig)
{
    return lab_job(
        k, (struct lab_job){.name = name, .class_ = "prod", .fraction = fraction, .mig = mig},
        NULL);
}

static void fractions_and_mig_see_it_as_held(void **state)
{
    struct lab k;
    const struct object *p, *v;

    (void)state;
    one_target(&k);
    lab_node(&k, (struct lab_node){.name = "n1", .target = "hub", .gpus = 1});
    v = lab_run(&k, (struct lab_job){.name = "v", .class_ = "low", .fraction = 0.5});
    p = small(&k, "p", 0.4, NULL);
    pool_nominate(k.p, p, lab_place(&k, p));
    assert_null(lab_place(&k, small(&k, "q", 0.2, NULL)));
    assert_non_null(lab_place(&k, small(&k, "q", 0.1, NULL)));
    pool_drop(k.p, v->meta->uid);
    assert_non_null(lab_place(&k, small(&k, "q", 0.6, NULL)));
    assert_null(lab_place(&k, small(&k, "q", 0.7, NULL)));
    lab_fini(&k);

    one_target(&k);
    lab_node(&k, (struct lab_node){.name = "n1", .target = "hub", .gpus = 1, .mig = 2});
    p = small(&k, "p", 0, "3g.40gb");
    pool_nominate(k.p, p, lab_place(&k, p));
    assert_null(lab_place(&k, small(&k, "q", 0, "3g.40gb")));
    assert_non_null(lab_place(&k, small(&k, "q", 0, "1g.10gb")));
    assert_non_null(lab_place(&k, p));
    lab_fini(&k);
}

/* What is held of one profile beyond its instances says nothing of another: counted in one, the end
 * of a small instance gave a large one away twice. */
static void mig_profiles_are_counted_apart(void **state)
{
    struct lab k;
    const struct object *large, *p, *s;

    (void)state;
    one_target(&k);
    lab_node(&k, (struct lab_node){.name = "n1", .target = "hub", .gpus = 1, .mig = 2});
    large = lab_run(&k, (struct lab_job){.name = "l", .class_ = "low", .mig = "3g.40gb"});
    s = lab_run(&k, (struct lab_job){.name = "s", .class_ = "low", .mig = "1g.10gb"});
    p = small(&k, "p", 0, "3g.40gb");
    pool_nominate(k.p, p, lab_plan(&k, p)->placement);
    assert_non_null(lab_place(&k, small(&k, "q", 0, "1g.10gb")));
    pool_drop(k.p, s->meta->uid);
    pool_drop(k.p, large->meta->uid);
    assert_null(lab_place(&k, small(&k, "q", 0, "3g.40gb")));
    assert_non_null(lab_place(&k, p));
    lab_fini(&k);
}

static void cpu_and_memory_are_kept_too(void **state)
{
    struct lab k;
    const struct object *p;

    (void)state;
    one_target(&k);
    lab_node(&k, (struct lab_node){
                     .name = "n1", .target = "hub", .gpus = 2, .cpu = 8000, .memory = 8ll << 30});
    p = lab_job(&k,
                (struct lab_job){
                    .name = "p", .class_ = "prod", .gpus = 1, .cpu = 6000, .memory = 2ll << 30},
                NULL);
    pool_nominate(k.p, p, lab_place(&k, p));
    assert_null(
        lab_place(&k, lab_job(&k, (struct lab_job){.name = "q", .gpus = 1, .cpu = 3000}, NULL)));
    assert_null(lab_place(
        &k, lab_job(&k, (struct lab_job){.name = "q", .gpus = 1, .memory = 7ll << 30}, NULL)));
    assert_non_null(lab_place(
        &k, lab_job(&k, (struct lab_job){.name = "q", .gpus = 1, .cpu = 2000, .memory = 6ll << 30},
                    NULL)));
    lab_fini(&k);
}

/* Two holds for one workload: the old place counts in its queue, the new one on its nodes only. */
static void a_destination_is_held_beside_its_workload(void **state)
{
    struct lab k;
    const struct object *v, *w;
    struct placement to = {.target = "hub", .class_ = "h100", .gpus = 2000};
    struct assignment as = {.node = "n2", .gpus = (int64_t[]){0, 1}, .n_gpus = 2, .gpuMilli = 1000};
    struct pool *fork;

    (void)state;
    one_target(&k);
    lab_queue(&k, "team", 0, 4);
    lab_node(&k, (struct lab_node){.name = "n1", .target = "hub", .gpus = 2});
    lab_node(&k, (struct lab_node){.name = "n2", .target = "hub", .gpus = 4});
    v = lab_run(&k, (struct lab_job){.name = "v", .class_ = "low", .queue = "team", .gpus = 2});
    as.mig = "";
    to.assignments = &as;
    to.n_assignments = 1;
    pool_hold_as(k.p, "uid-of-the-move", v, &to);
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 2000);
    w = lab_job(&k, (struct lab_job){.name = "w", .queue = "team", .gpus = 2}, NULL);
    assert_non_null(lab_place(&k, w)); /* two of four are held in its queue, not four */
    fork = pool_fork(k.p);
    assert_int_equal(pool_free_gpu_milli(fork, NULL), 2000);
    pool_drop(fork, "uid-of-the-move");
    assert_int_equal(pool_free_gpu_milli(fork, NULL), 4000);
    fork = pool_destroy(fork);
    pool_drop(k.p, v->meta->uid); /* its old place, not its destination */
    assert_int_equal(pool_free_gpu_milli(k.p, NULL), 4000);
    lab_fini(&k);
}

static void only_one_target_when_told(void **state)
{
    struct lab k;
    struct place_request rq = {.now_ms = NOW, .only_target = "edge"};
    struct decision_spec *d;
    struct placement *pl;
    struct err err;

    (void)state;
    one_target(&k);
    lab_target(&k, "edge");
    lab_node(&k, (struct lab_node){.name = "n1", .target = "hub", .gpus = 2});
    lab_node(&k, (struct lab_node){.name = "n2", .target = "edge", .gpus = 1});
    rq.workload = ask(&k, "p", 1, 1);
    assert_int_equal(policy_place(k.p, &rq, k.a, &d, &pl, &err), 0);
    assert_string_equal(pl->target, "edge");
    rq.workload = ask(&k, "q", 1, 2);
    assert_int_equal(policy_place(k.p, &rq, k.a, &d, &pl, &err), 0);
    assert_null(pl);
    lab_fini(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_falls_free_is_kept),
        cmocka_unit_test(it_rests_while_its_workload_holds),
        cmocka_unit_test(gangs_see_it_as_held),
        cmocka_unit_test(fractions_and_mig_see_it_as_held),
        cmocka_unit_test(mig_profiles_are_counted_apart),
        cmocka_unit_test(cpu_and_memory_are_kept_too),
        cmocka_unit_test(a_destination_is_held_beside_its_workload),
        cmocka_unit_test(only_one_target_when_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
