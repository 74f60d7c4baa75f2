/* What a target tells of its machines is not always what was ordered, nor to be read: it is said
 * with the Machine, and machines that end early are not ordered again and again. */
#include "tests/support/machines/farm_hooks.h"

#define HOUR_MS 3600000
#define SOME_MS 1200000

static struct farm_world w;

static void begin(void)
{
    farm_world_init(&w, 11);
    farm_world_run(&w, 2000);
}

static const struct machine *first(void)
{
    assert_non_null(farm_first(&w));
    return object_as(farm_first(&w), machine);
}

static const struct condition *condition(const struct machine *m, const char *type)
{
    for (uint32_t i = 0; i < m->status->n_conditions; i++)
        if (!strcmp(m->status->conditions[i].type, type))
            return &m->status->conditions[i];
    fail();
    return NULL;
}

static struct machine_early early(const char *pool)
{
    const struct object *o = root_get(w.kit.root, KIND_TARGET, "", FARM_TARGET);
    const struct target_spec *s = object_as(o, target)->spec;
    struct machine_early e = {0};

    for (uint32_t i = 0; i < s->n_machines; i++)
        if (!strcmp(s->machines[i].name, pool))
            machine_early(w.kit.root, o, &s->machines[i], w.kit.now, &e);
    return e;
}

/* ---- machines that end early ---- */
static void end_early(uint64_t lives_ms, int64_t count)
{
    begin();
    w.lives_ms = lives_ms;
    farm_pools_set(&w, farm_pool(&w, "warm", count), 1);
    farm_world_run(&w, HOUR_MS);
    /* 5 s, 10 s, 20 s, … and then one each half an hour. */
    assert_in_range(w.orders, 8, 13 + (unsigned)count);
    assert_in_range(w.ended_early, 8, 13);
    assert_true(early("warm").rounds >= 8 && early("warm").until > w.kit.now);
    /* The next leader waits, too. */
    unsigned orders = w.orders;
    farm_lead(&w);
    farm_world_run(&w, 60000);
    assert_in_range(w.orders, orders, orders + 1);
}

static void test_machines_that_end_at_once(void **state)
{
    (void)state;
    end_early(1, 1);
    farm_world_fini(&w);
}

static void test_machines_that_end_soon(void **state)
{
    (void)state;
    end_early(500, 2);
    /* Another pool is not held back by it, nor this one once it is of others. */
    unsigned orders = w.orders;
    struct machine_pool both[2] = {*farm_pool(&w, "warm", 1), *farm_pool(&w, "other", 1)};
    w.lives_ms = 0;
    both[0].zone = "b";
    farm_pools_set(&w, both, 2);
    farm_world_run(&w, 5000);
    assert_int_equal(w.orders, orders + 2);
    farm_world_run(&w, 700000);
    assert_int_equal(farm_alive(&w), 2);
    farm_world_fini(&w);
}

static void test_machines_that_end_and_then_live(void **state)
{
    (void)state;
    begin();
    w.lives_ms = 500;
    farm_pools_set(&w, farm_pool(&w, "warm", 3), 1);
    farm_world_run(&w, 120000);
    assert_true(early("warm").rounds >= 4);
    w.lives_ms = 0;
    unsigned orders = w.orders;
    farm_world_run(&w, 160000); /* the next one comes, and once it has joined all others */
    assert_int_equal(farm_in_phase(&w, MACHINE_IS_JOINED), 3);
    assert_int_equal(w.orders, orders + 3);
    assert_true(early("warm").rounds > 0);
    farm_world_run(&w, MACHINE_EARLY_MS + 60000);
    assert_int_equal(early("warm").rounds, 0); /* they lived long enough */
    farm_world_fini(&w);
}

static void test_machines_that_are_never_listed(void **state)
{
    (void)state;
    begin();
    farm_pools_set(&w, farm_pool(&w, "warm", 1), 1);
    for (int i = 0; i < SOME_MS / 200; i++) {
        farm_world_run(&w, 200);
        for (size_t k = 0; k < w.n_rented; k++)
            w.rented[k].hidden = w.rented[k].state < MACHINE_ENDED && w.rented[k].made_ms;
    }
    assert_in_range(w.orders, 3, 14);
    assert_true(early("warm").rounds >= 3);
    farm_world_fini(&w);
}

/* Told of by the answer to its order, and listed a while later: it is left alone. */
static void test_one_that_is_listed_late_is_left_alone(void **state)
{
    (void)state;
    begin();
    farm_pools_set(&w, farm_pool(&w, "warm", 1), 1);
    while (!farm_in_phase(&w, MACHINE_IS_ASKED) && !farm_in_phase(&w, MACHINE_IS_BOOTING))
        farm_world_run(&w, 20);
    struct rented *m = &w.rented[0];
    m->hidden = true;
    farm_world_run(&w, 25000);
    m->hidden = false;
    farm_world_run(&w, 90000);
    assert_int_equal(w.releases, 0);
    assert_int_equal(w.orders, 1);
    assert_int_equal(farm_alive(&w), 1);
    farm_world_fini(&w);
}

static void test_those_that_nobody_wants_end_no_round(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < 5; i++) {
        farm_pools_set(&w, farm_pool(&w, "warm", 2), 1);
        farm_world_run(&w, 10000);
        assert_int_equal(farm_alive(&w), 2);
        farm_pools_set(&w, farm_pool(&w, "warm", 0), 1);
        farm_world_run(&w, 10000);
        assert_int_equal(farm_alive(&w), 0);
    }
    assert_int_equal(early("warm").rounds, 0);
    farm_world_fini(&w);
}

/* What retention may take now. */
static size_t due(int64_t now)
{
    struct archive_cursor c = {0};
    static struct write_op ops[400];
    size_t n = 0, machines = 0;

    assert_true(root_archive_due(w.kit.root, now, &c, 100000, ops, 400, &n));
    for (size_t i = 0; i < n; i++)
        machines += ops[i].kind == KIND_MACHINE;
    return machines;
}

static void test_few_that_have_ended_are_kept(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < 5; i++) {
        farm_pools_set(&w, farm_pool(&w, "warm", 30), 1);
        farm_world_run(&w, 40000);
        farm_pools_set(&w, farm_pool(&w, "warm", 0), 1);
        farm_world_run(&w, 40000);
    }
    assert_int_equal(farm_in_phase(&w, MACHINE_IS_ENDED), 150);
    assert_int_equal(due(w.kit.now), 150 - LIMIT_MACHINES_KEPT);
    farm_pools_set(&w, NULL, 0);
    assert_int_equal(kit_delete(&w.kit, KIND_TARGET, "", FARM_TARGET).code, 0);
    while (root_collect_due(w.kit.root)) {
        union command c = {
            .collect = {.head = {.type = CMD_COLLECT}, .objects = 100, .bytes = 1 << 20}};
        assert_int_equal(kit_apply(&w.kit, &c).code, 0);
    }
    assert_null(root_get(w.kit.root, KIND_TARGET, "", FARM_TARGET));
    assert_int_equal(due(w.kit.now), 150); /* and none of a Target that is gone */
    farm_world_fini(&w);
}

/* ---- what was not ordered ---- */
static void test_one_above_its_cap_is_let_go(void **state)
{
    struct machine_pool *p;

    (void)state;
    begin();
    p = farm_pool(&w, "warm", 1);
    p->maxPrice = 3;
    w.dearer = 998; /* than its price list says */
    farm_pools_set(&w, p, 1);
    for (int i = 0; i < 200 && (!farm_first(&w) || !first()->status->n_conditions); i++)
        farm_world_run(&w, 20);
    const struct condition *c = condition(first(), "AsOrdered");
    assert_int_equal(c->status, COND_FALSE);
    assert_string_equal(c->reason, "PriceAboveCap");
    assert_non_null(strstr(c->message, "1000 EUR"));
    farm_world_run(&w, SOME_MS);
    assert_in_range(w.orders, 4, 14);
    assert_int_equal(w.releases, w.n_rented);
    assert_int_equal(farm_alive(&w), 0);
    farm_world_fini(&w);
}

static void test_one_whose_price_is_not_comparable_is_let_go(void **state)
{
    struct machine_pool *p;

    (void)state;
    begin();
    p = farm_pool(&w, "warm", 1);
    p->maxPrice = 3;
    p->currency = "USD";
    farm_pools_set(&w, p, 1);
    farm_world_run(&w, 60000);
    assert_int_equal(w.orders, 0); /* where the price list is in another currency */
    assert_string_equal(w.reported, "PriceAboveCap");
    farm_world_fini(&w);
    begin();
    w.currency = "";
    p = farm_pool(&w, "warm", 1);
    p->maxPrice = 3;
    p->currency = "USD";
    farm_pools_set(&w, p, 1);
    farm_world_run(&w, 1000);
    w.currency = "EUR"; /* of what is given alone */
    farm_world_run(&w, 20000);
    assert_true(w.orders >= 1 && w.releases >= 1);
    farm_world_fini(&w);
}

static void test_one_of_another_kind_is_told_as_what_it_is(void **state)
{
    struct machine_pool *p;

    (void)state;
    begin();
    p = farm_pool(&w, "warm", 1);
    p->gpus = 4;
    w.gives_class = "a100";
    w.gives_gpus = 1;
    farm_pools_set(&w, p, 1);
    farm_world_run(&w, 120000);
    assert_string_equal(first()->status->class_, "a100");
    assert_int_equal(first()->status->gpus, 1);
    const struct condition *c = condition(first(), "AsOrdered");
    assert_int_equal(c->status, COND_FALSE);
    assert_string_equal(c->reason, "NotAsOrdered");
    assert_non_null(strstr(c->message, "class gpus"));
    assert_int_equal(w.orders, 1); /* it is paid for: it counts */
    assert_int_equal(w.releases, 0);
    farm_world_fini(&w);
}

/* ---- what cannot be read ---- */
static void test_what_cannot_be_read_is_said(void **state)
{
    (void)state;
    begin();
    farm_pools_set(&w, farm_pool(&w, "warm", 1), 1);
    w.faults.unread = 1000;
    farm_world_run(&w, 20000);
    const struct machine *m = first();
    assert_int_equal(m->status->phase, MACHINE_IS_ORDERED);
    assert_string_equal(m->status->reason, "Unreadable");
    assert_string_equal(condition(m, "Readable")->reason, "Unreadable");
    assert_int_equal(condition(m, "Readable")->status, COND_FALSE);
    assert_true(w.unreadable >= 1 && w.unreadable < 3);
    w.faults.unread = 0;
    farm_world_run(&w, 70000);
    m = first();
    assert_int_equal(m->status->phase, MACHINE_IS_JOINED);
    assert_string_equal(m->status->reason, "");
    assert_int_equal(condition(m, "Readable")->status, COND_TRUE);
    assert_int_equal(w.orders, 1);
    farm_world_fini(&w);
    begin();
    farm_pools_set(&w, farm_pool(&w, "warm", 1), 1);
    w.faults.unread = 1000;
    farm_world_run(&w, 40000);
    assert_int_equal(w.renewals, 0); /* of what nobody has told of */
    assert_int_equal(first()->status->until, first()->metadata->creationTimestamp + 60000);
    farm_world_fini(&w);
}

/* Of two, one cannot be read any more: the other one is renewed, and neither is taken for gone. */
static void test_one_bad_row_spoils_no_other(void **state)
{
    (void)state;
    begin();
    farm_pools_set(&w, farm_pool(&w, "warm", 2), 1);
    farm_world_run(&w, 10000);
    assert_int_equal(farm_in_phase(&w, MACHINE_IS_JOINED), 2);
    w.rented[0].unread = true;
    w.rented[1].hidden = true; /* a list that is not whole proves nothing */
    farm_world_run(&w, 300000);
    assert_int_equal(w.releases, 0);
    assert_int_equal(farm_alive(&w), 2);
    w.rented[1].hidden = false;
    w.rented[1].state = MACHINE_NOTICED;
    farm_world_run(&w, 70000);
    assert_int_equal(farm_in_phase(&w, MACHINE_IS_NOTICED), 1);
    assert_true(w.renewals < 60);
    farm_world_fini(&w);
}

/* ---- a Target out of reach ---- */
static void test_a_target_out_of_reach_is_left(void **state)
{
    const struct object *o;

    (void)state;
    begin();
    farm_pools_set(&w, farm_pool(&w, "warm", 2), 1);
    farm_world_run(&w, 10000);
    farm_leads(&w)->site.reachable = false;
    assert_int_equal(kit_delete(&w.kit, KIND_TARGET, "", FARM_TARGET).code, 0);
    farm_world_run(&w, 20000);
    assert_int_equal(farm_in_phase(&w, -1), 2); /* what they cost is not known to be over */
    o = root_get(w.kit.root, KIND_TARGET, "", FARM_TARGET);
    struct target *t = object_edit_as(o, target, w.kit.a);
    t->metadata->annotations = arena_new(w.kit.a, struct kv);
    t->metadata->annotations[0] = (struct kv){LEAVE_ANNOTATION, "true"};
    t->metadata->n_annotations = 1;
    assert_int_equal(kit_update(&w.kit, KIND_TARGET, "", FARM_TARGET, t, 0, false).code, 0);
    w.left = true;
    farm_world_run(&w, 5000);
    assert_int_equal(farm_in_phase(&w, MACHINE_IS_ENDED), 2);
    assert_int_equal(w.releases, 0);
    assert_int_equal(farm_alive(&w), 2); /* until nobody renews them */
    for (size_t i = 0; i < w.n_rented; i++) {
        o = root_get(w.kit.root, KIND_MACHINE, "", w.rented[i].key);
        assert_string_equal(object_as(o, machine)->status->reason, "Left");
        assert_non_null(strstr(object_as(o, machine)->status->message, "be there, and cost"));
        assert_int_equal(object_as(o, machine)->status->billedTo, 0);
    }
    assert_true(root_collect_due(w.kit.root));
    farm_world_run(&w, 60000);
    assert_int_equal(farm_alive(&w), 0);
    farm_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machines_that_end_at_once),
        cmocka_unit_test(test_machines_that_end_soon),
        cmocka_unit_test(test_machines_that_end_and_then_live),
        cmocka_unit_test(test_machines_that_are_never_listed),
        cmocka_unit_test(test_one_that_is_listed_late_is_left_alone),
        cmocka_unit_test(test_those_that_nobody_wants_end_no_round),
        cmocka_unit_test(test_few_that_have_ended_are_kept),
        cmocka_unit_test(test_one_above_its_cap_is_let_go),
        cmocka_unit_test(test_one_whose_price_is_not_comparable_is_let_go),
        cmocka_unit_test(test_one_of_another_kind_is_told_as_what_it_is),
        cmocka_unit_test(test_what_cannot_be_read_is_said),
        cmocka_unit_test(test_one_bad_row_spoils_no_other),
        cmocka_unit_test(test_a_target_out_of_reach_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
