/* Pools of machines are kept: what is missing is ordered under a key that the log has first, what
 * is there is renewed, what is too much is released, and what is not known is found out. */
#include "tests/support/machines/farm_hooks.h"

static struct farm_world w;

static const struct target_status *target_status(void)
{
    return object_as(root_get(w.kit.root, KIND_TARGET, "", FARM_TARGET), target)->status;
}

static void begin(int64_t count)
{
    farm_world_init(&w, 7);
    if (count >= 0)
        farm_pools_set(&w, farm_pool(&w, "warm", count), 1);
}

static void test_a_pool_is_filled_and_kept(void **state)
{
    (void)state;
    begin(3);
    farm_world_run(&w, 10000);
    assert_int_equal(farm_alive(&w), 3);
    assert_int_equal(farm_in_phase(&w, MACHINE_IS_JOINED), 3);
    assert_int_equal(w.orders, 3);
    assert_int_equal(target_status()->machines[0].live, 3);
    const struct machine *m = object_as(farm_first(&w), machine);
    assert_string_equal(m->spec->pool, "warm");
    assert_string_equal(m->spec->cluster, "cluster-1");
    assert_true(m->status->price > 1.9 && m->status->billedFrom > 0);
    /* Long after its time to live it is there, and nothing else was ordered. */
    farm_world_run(&w, 600000);
    assert_int_equal(farm_alive(&w), 3);
    assert_int_equal(w.orders, 3);
    assert_true(w.renewals >= 600 / 60 && w.renewals < 60);
    farm_world_fini(&w);
}

/* Every field of the pool goes into the order: name, count, class, gpus, zone, market, timeToLive,
 * image, maxPrice, currency, tags. */
static void test_the_order_says_what_its_pool_does(void **state)
{
    static struct kv tags[] = {{"team", "vision"}};
    struct machine_pool *p;

    (void)state;
    begin(-1);
    p = farm_pool(&w, "warm", 1);
    p->gpus = 8;
    p->image = "img-1";
    p->maxPrice = 9;
    p->currency = "EUR";
    p->tags = tags;
    p->n_tags = 1;
    p->timeToLive = 40000;
    farm_pools_set(&w, p, 1);
    farm_world_run(&w, 10000);
    const struct object *o = farm_first(&w);
    assert_string_equal(farm_rented(&w, o->meta->name)->order,
                        "h100 8 a 3 40000 img-1 9.000000 EUR 1 cluster-1 warm");
    /* What it is asked for later is the order as it was, also when the pool says otherwise. */
    p->timeToLive = 50000;
    p->n_tags = 0;
    farm_pools_set(&w, p, 1);
    farm_lead(&w);
    farm_world_run(&w, 10000);
    assert_int_equal(farm_alive(&w), 1);
    assert_int_equal(object_as(farm_first(&w), machine)->spec->timeToLive, 40000);
    farm_world_fini(&w);
}

static void test_what_is_too_much_is_released(void **state)
{
    (void)state;
    begin(3);
    farm_world_run(&w, 10000);
    farm_pools_set(&w, farm_pool(&w, "warm", 1), 1);
    farm_world_run(&w, 10000);
    assert_int_equal(farm_alive(&w), 1);
    assert_int_equal(farm_in_phase(&w, MACHINE_IS_ENDED), 2);
    assert_int_equal(object_as(farm_first(&w), machine)->spec->number, 1); /* the oldest stays */
    farm_pools_set(&w, NULL, 0);
    farm_world_run(&w, 10000);
    assert_int_equal(farm_alive(&w), 0);
    assert_int_equal(target_status()->n_machines, 0);
    assert_int_equal(target_status()->machinesOrdered, 3);
    farm_world_fini(&w);
}

static void test_none_on_which_a_run_is_held_is_released(void **state)
{
    char key[MACHINE_NAME_MAX];

    (void)state;
    begin(1);
    farm_world_run(&w, 10000);
    str_copy(key, sizeof key, farm_first(&w)->meta->name);
    farm_node(&w, FARM_TARGET ".n0", key);
    assert_int_equal(kit_workload(&w.kit, w.kit.ns, "w", 1, 1).code, 0);
    w.kit.gpu_class = "h100";
    assert_int_equal(kit_place(&w.kit, "w", FARM_TARGET ".n0", 0, 1, 1).code, 0);
    farm_pools_set(&w, farm_pool(&w, "warm", 0), 1);
    farm_world_run(&w, 30000);
    assert_int_equal(farm_alive(&w), 1);
    assert_int_equal(w.releases, 0);
    /* Nor when a user deletes it; but nothing more is placed there. */
    assert_int_equal(kit_delete(&w.kit, KIND_MACHINE, "", key).code, 0);
    assert_int_equal(kit_workload(&w.kit, w.kit.ns, "v", 1, 0).code, 0);
    assert_int_not_equal(kit_place(&w.kit, "v", FARM_TARGET ".n0", 0, 1, 0).code, 0);
    farm_world_run(&w, 30000);
    assert_int_equal(farm_alive(&w), 1);
    assert_int_equal(kit_run(&w.kit, "w", 1, 0, STEP_STOP).code, 0);
    farm_world_run(&w, 10000);
    assert_int_equal(farm_alive(&w), 0);
    assert_null(root_get(w.kit.root, KIND_MACHINE, "", key)); /* its deletion is done */
    farm_world_fini(&w);
}

static void test_a_pool_of_other_machines_is_replaced(void **state)
{
    struct machine_pool *p;

    (void)state;
    begin(2);
    farm_world_run(&w, 10000);
    p = farm_pool(&w, "warm", 2);
    p->zone = "b";
    farm_pools_set(&w, p, 1);
    farm_world_run(&w, 15000);
    assert_int_equal(farm_alive(&w), 2);
    assert_int_equal(w.orders, 4);
    assert_string_equal(object_as(farm_first(&w), machine)->spec->zone, "b");
    farm_world_fini(&w);
}

static void test_an_order_whose_answer_was_lost_is_listed_first(void **state)
{
    (void)state;
    begin(-1);
    w.faults.reply_lost = 1000;
    farm_pools_set(&w, farm_pool(&w, "warm", 1), 1);
    farm_world_run(&w, 3000); /* the first listing is lost, too: nothing is ordered */
    assert_int_equal(w.orders, 0);
    w.faults.reply_lost = 0;
    while (!w.orders)
        farm_world_run(&w, 20);
    w.faults.reply_lost = 1000; /* of the order */
    farm_world_run(&w, 200);
    w.faults.reply_lost = 0;
    farm_world_run(&w, 20000);
    assert_int_equal(w.orders, 1); /* the listing showed it */
    assert_int_equal(farm_alive(&w), 1);
    farm_world_fini(&w);
}

static void test_an_order_that_was_lost_is_sent_again(void **state)
{
    (void)state;
    begin(-1);
    farm_world_run(&w, 2000);
    farm_pools_set(&w, farm_pool(&w, "warm", 1), 1);
    while (farm_in_phase(&w, MACHINE_IS_ORDERED) == 0)
        farm_world_run(&w, 1);
    w.faults.lost = 1000;
    farm_world_run(&w, 100);
    w.faults.lost = 0;
    assert_int_equal(w.orders, 1);
    farm_world_run(&w, 30000);
    assert_int_equal(w.orders, 2);
    assert_int_equal(farm_alive(&w), 1);
    assert_int_equal(target_status()->machinesOrdered, 1); /* under the same key */
    farm_world_fini(&w);
}

static void test_the_next_leader_goes_on(void **state)
{
    (void)state;
    begin(3);
    while (w.orders < 2)
        farm_world_run(&w, 20);
    farm_lead(&w);
    farm_world_run(&w, 100);
    farm_lead(&w);
    farm_world_run(&w, 20000);
    assert_int_equal(farm_alive(&w), 3);
    assert_int_equal(target_status()->machinesOrdered, 3);
    assert_int_equal(w.n_rented, 3);
    farm_world_fini(&w);
}

static void test_what_is_not_listed_is_released_before_it_is_gone(void **state)
{
    char key[MACHINE_NAME_MAX];

    (void)state;
    begin(1);
    farm_world_run(&w, 10000);
    str_copy(key, sizeof key, farm_first(&w)->meta->name);
    farm_rented(&w, key)->hidden = true;
    farm_world_run(&w, 90000);
    assert_int_equal(farm_rented(&w, key)->state, MACHINE_ENDED);
    const struct object *o = root_get(w.kit.root, KIND_MACHINE, "", key);
    assert_string_equal(object_as(o, machine)->status->release, "NotListed");
    assert_int_equal(farm_alive(&w), 1); /* another one */
    farm_world_fini(&w);
}

static void test_a_release_that_was_lost_is_sent_again(void **state)
{
    (void)state;
    begin(1);
    farm_world_run(&w, 10000);
    w.faults.lost = 1000;
    farm_pools_set(&w, farm_pool(&w, "warm", 0), 1);
    farm_world_run(&w, 1000);
    assert_int_equal(w.releases, 1);
    w.faults.lost = 0;
    farm_world_run(&w, 15000); /* well within its time to live */
    assert_true(w.releases > 1);
    assert_int_equal(farm_alive(&w), 0);
    assert_int_equal(farm_in_phase(&w, -1), 0);
    farm_world_fini(&w);
}

static void test_a_listing_that_broke_off_proves_nothing(void **state)
{
    (void)state;
    begin(2);
    farm_world_run(&w, 10000);
    w.faults.list_cut = 1000; /* it shows every second one */
    farm_world_run(&w, 600000);
    assert_int_equal(w.releases, 0);
    assert_int_equal(farm_alive(&w), 2);
    farm_world_fini(&w);
}

static void test_one_that_is_taken_back_is_replaced(void **state)
{
    char key[MACHINE_NAME_MAX];

    (void)state;
    begin(1);
    farm_world_run(&w, 10000);
    str_copy(key, sizeof key, farm_first(&w)->meta->name);
    farm_rented(&w, key)->state = MACHINE_NOTICED;
    farm_world_run(&w, 70000);
    assert_int_equal(farm_alive(&w), 2); /* it goes by itself; its place is taken ahead */
    assert_int_equal(w.releases, 0);
    farm_rented(&w, key)->until_ms = 0;
    farm_world_run(&w, 70000);
    const struct object *o = root_get(w.kit.root, KIND_MACHINE, "", key);
    assert_int_equal(object_as(o, machine)->status->phase, MACHINE_IS_ENDED);
    assert_true(object_as(o, machine)->status->billedTo > 0);
    assert_int_equal(farm_alive(&w), 1);
    farm_world_fini(&w);
}

/* Not its zone, though the target names that: runs on machines that are there are not meant. */
static void test_a_refusal_pauses_its_pool(void **state)
{
    (void)state;
    begin(-1);
    w.most = 1;
    farm_pools_set(&w, farm_pool(&w, "warm", 3), 1);
    farm_world_run(&w, 20000);
    assert_int_equal(farm_alive(&w), 1);
    assert_int_equal(target_status()->n_pauses, 1);
    assert_int_equal(target_status()->pauses[0].scope, BLAMES_POOL);
    assert_string_equal(target_status()->pauses[0].name, "warm");
    assert_int_equal(target_status()->pauses[0].refusal, REFUSED_CAPACITY);
    assert_true(w.orders < 14); /* further and further apart */
    assert_true(target_status()->machinesOrdered <= 3);
    unsigned orders = w.orders;
    struct machine_pool both[2] = {*farm_pool(&w, "warm", 3), *farm_pool(&w, "other", 1)};
    w.most = 0;
    farm_pools_set(&w, both, 2);
    farm_world_run(&w, 5000);
    assert_true(w.orders > orders);
    farm_world_run(&w, 120000);
    assert_int_equal(farm_alive(&w), 4);
    farm_world_fini(&w);
}

static void test_a_key_that_is_refused_for_good_is_let_go(void **state)
{
    (void)state;
    begin(-1);
    w.conflicts_at = 1;
    farm_pools_set(&w, farm_pool(&w, "warm", 1), 1);
    farm_world_run(&w, 90000);
    assert_int_equal(farm_alive(&w), 1);
    assert_int_equal(target_status()->machinesOrdered, 2);
    assert_int_equal(farm_in_phase(&w, MACHINE_IS_ENDED), 1);
    farm_world_fini(&w);
}

static void test_none_is_ordered_above_the_cap(void **state)
{
    struct machine_pool *p;

    (void)state;
    begin(-1);
    w.price = 5;
    p = farm_pool(&w, "warm", 1);
    p->maxPrice = 3;
    farm_pools_set(&w, p, 0);
    farm_pools_set(&w, p, 1);
    farm_world_run(&w, 20000);
    assert_int_equal(w.orders, 0);
    assert_int_equal(w.reports, 1);
    assert_string_equal(w.reported, "PriceAboveCap");
    w.price = 2;
    farm_world_run(&w, 320000); /* prices are asked for regularly */
    assert_int_equal(farm_alive(&w), 1);
    farm_world_fini(&w);
}

static void test_a_machine_of_no_log_is_reported_and_left_alone(void **state)
{
    struct rented *m;

    (void)state;
    begin(1);
    m = &w.rented[w.n_rented++];
    *m = (struct rented){.key = "lost-1", .state = MACHINE_JOINED, .until_ms = 400000};
    farm_world_run(&w, 130000);
    assert_int_equal(w.reports, 1); /* once */
    assert_string_equal(w.reported, "MachineUnknown");
    assert_int_equal(m->state, MACHINE_JOINED);
    assert_int_equal(w.releases, 0);
    farm_world_run(&w, 300000);
    assert_int_equal(m->state, MACHINE_ENDED); /* by its time to live */
    farm_world_fini(&w);
}

static void test_a_target_goes_after_its_machines(void **state)
{
    (void)state;
    begin(2);
    farm_world_run(&w, 10000);
    assert_int_equal(kit_delete(&w.kit, KIND_TARGET, "", FARM_TARGET).code, 0);
    assert_non_null(root_get(w.kit.root, KIND_TARGET, "", FARM_TARGET));
    farm_world_run(&w, 20000);
    assert_int_equal(farm_alive(&w), 0);
    assert_int_equal(farm_in_phase(&w, MACHINE_IS_ENDED), 2);
    assert_true(root_collect_due(w.kit.root));
    farm_world_fini(&w);
}

static void test_limits_hold(void **state)
{
    const struct object *o;
    struct target *t;

    (void)state;
    begin(-1);
    o = root_get(w.kit.root, KIND_TARGET, "", FARM_TARGET);
    t = object_edit_as(o, target, w.kit.a);
    t->spec->limits = arena_new(w.kit.a, struct target_limits);
    t->spec->limits->machines = 2;
    assert_int_equal(kit_update(&w.kit, KIND_TARGET, "", FARM_TARGET, t, 0, false).code, 0);
    farm_pools_set(&w, farm_pool(&w, "warm", 5), 1);
    farm_world_run(&w, 20000);
    assert_int_equal(farm_alive(&w), 2);
    farm_world_fini(&w);
}

static void test_a_dead_hub_costs_no_more_than_a_time_to_live(void **state)
{
    (void)state;
    begin(3);
    farm_world_run(&w, 10000);
    farm_leads(&w)->site.reachable = false;
    farm_world_run(&w, 61000);
    assert_int_equal(farm_alive(&w), 0);
    farm_leads(&w)->site.reachable = true;
    farm_world_run(&w, 70000);
    assert_int_equal(farm_alive(&w), 3);
    farm_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pool_is_filled_and_kept),
        cmocka_unit_test(test_the_order_says_what_its_pool_does),
        cmocka_unit_test(test_what_is_too_much_is_released),
        cmocka_unit_test(test_none_on_which_a_run_is_held_is_released),
        cmocka_unit_test(test_a_pool_of_other_machines_is_replaced),
        cmocka_unit_test(test_an_order_whose_answer_was_lost_is_listed_first),
        cmocka_unit_test(test_an_order_that_was_lost_is_sent_again),
        cmocka_unit_test(test_the_next_leader_goes_on),
        cmocka_unit_test(test_what_is_not_listed_is_released_before_it_is_gone),
        cmocka_unit_test(test_a_release_that_was_lost_is_sent_again),
        cmocka_unit_test(test_a_listing_that_broke_off_proves_nothing),
        cmocka_unit_test(test_one_that_is_taken_back_is_replaced),
        cmocka_unit_test(test_a_refusal_pauses_its_pool),
        cmocka_unit_test(test_a_key_that_is_refused_for_good_is_let_go),
        cmocka_unit_test(test_none_is_ordered_above_the_cap),
        cmocka_unit_test(test_a_machine_of_no_log_is_reported_and_left_alone),
        cmocka_unit_test(test_a_target_goes_after_its_machines),
        cmocka_unit_test(test_limits_hold),
        cmocka_unit_test(test_a_dead_hub_costs_no_more_than_a_time_to_live),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
