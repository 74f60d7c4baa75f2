/* MACHINE: what is ordered is in the log with its key first; a machine leaves the state only once
 * it has ended; one that is let go is never renewed, and nothing is placed on it. */
#include "tests/support/store/store_kit.h"

#define TARGET "cloud"

static struct kit k;

static const struct object *target(void)
{
    return root_get(k.root, KIND_TARGET, "", TARGET);
}

static const struct target_status *status(void)
{
    return object_as(target(), target)->status;
}

static struct machine_pool pool(const char *name, int64_t count)
{
    return (struct machine_pool){.name = name,
                                 .count = count,
                                 .class_ = "h100",
                                 .zone = "a",
                                 .market = CAPACITY_SPOT,
                                 .timeToLive = 60000,
                                 .image = "",
                                 .currency = ""};
}

static void begin(uint32_t level)
{
    struct target *t;

    kit_begin(&k);
    kit_level_set(&k, level);
    t = arena_new(k.a, struct target);
    t->spec = arena_new(k.a, struct target_spec);
    t->spec->type = TARGET_CALLOUT;
    t->spec->tier = TIER_BURST;
    t->spec->machines = arena_array(k.a, struct machine_pool, 2);
    t->spec->n_machines = 2;
    t->spec->machines[0] = pool("warm", 2);
    t->spec->machines[1] = pool("other", 1);
    t->spec->limits = arena_new(k.a, struct target_limits);
    t->spec->limits->machines = 4;
    assert_int_equal(kit_create(&k, KIND_TARGET, "", TARGET, t).code, 0);
}

static struct result order(const char *name, int64_t number)
{
    union command c = {.machine = {.head = {.type = CMD_MACHINE},
                                   .step = MACHINE_STEP_ORDER,
                                   .target = TARGET,
                                   .number = number}};

    str_copy(c.machine.target_uid, sizeof c.machine.target_uid, target()->meta->uid);
    str_copy(c.machine.pool, sizeof c.machine.pool, name);
    return kit_apply(&k, &c);
}

static const char *key_of(const char *name, int64_t number)
{
    static char key[MACHINE_NAME_MAX];

    machine_key(k.root, target(), name, number, key);
    return key;
}

static const struct object *machine(int64_t number)
{
    const struct object *o = root_get(k.root, KIND_MACHINE, "", key_of("warm", number));

    return o ? o : root_get(k.root, KIND_MACHINE, "", key_of("other", number));
}

static struct result step(const struct object *o, enum machine_step s, const char *reason,
                          enum machine_phase told)
{
    struct machine_status t = {.phase = told,
                               .id = "i-1",
                               .zone = "a",
                               .billedFrom = 5,
                               .billedTo = told == MACHINE_IS_ENDED ? 9 : 0,
                               .price = 2.5,
                               .currency = "EUR",
                               .reason = "",
                               .message = "",
                               .release = ""};
    struct write_op op = {.verb = WRITE_UPDATE, .kind = KIND_MACHINE};
    union command c = {.machine = {.head = {.type = CMD_MACHINE},
                                   .step = s,
                                   .told = told ? &t : NULL,
                                   .ops = &op,
                                   .n = s == MACHINE_STEP_RENEW}};

    str_copy(op.name, sizeof op.name, o->meta->name);
    str_copy(op.uid, sizeof op.uid, o->meta->uid);
    str_copy(c.machine.name, sizeof c.machine.name, o->meta->name);
    str_copy(c.machine.uid, sizeof c.machine.uid, o->meta->uid);
    str_copy(c.machine.reason, sizeof c.machine.reason, reason);
    return kit_apply(&k, &c);
}

static void test_an_order_is_made_of_the_target_as_it_is(void **state)
{
    (void)state;
    begin(FEATURE_LEVEL);
    assert_int_equal(order("warm", 2).code, E_STALE); /* it counts */
    assert_int_equal(order("none", 1).code, E_STALE);
    assert_int_equal(order("warm", 1).code, 0);
    assert_int_equal(order("warm", 1).code, E_STALE); /* a repeated one orders none */
    const struct machine *m = object_as(machine(1), machine);
    assert_string_equal(m->spec->target, TARGET);
    assert_string_equal(m->spec->zone, "a");
    assert_int_equal(m->status->phase, MACHINE_IS_ORDERED);
    assert_int_equal(m->status->until, k.now + 60000);
    assert_int_equal(status()->machinesOrdered, 1);
    assert_int_equal(status()->machines[0].live, 1);
    kit_reload(&k);
    assert_int_equal(order("other", 2).code, 0);
    assert_int_equal(order("other", 3).code, 0); /* one more while another one is replaced */
    assert_int_equal(order("other", 4).code, E_LIMIT);
    assert_int_equal(order("warm", 4).code, 0);
    assert_int_equal(order("warm", 5).code, E_LIMIT); /* of the Target */
    assert_int_equal(machines_live(status()), 4);
    kit_end(&k);
}

static void test_steps(void **state)
{
    (void)state;
    begin(FEATURE_LEVEL);
    assert_int_equal(order("warm", 1).code, 0);
    assert_int_equal(step(machine(1), MACHINE_STEP_SEEN, "", MACHINE_IS_ORDERED).code, E_INVALID);
    assert_int_equal(step(machine(1), MACHINE_STEP_SEEN, "", MACHINE_IS_ENDED).code, E_INVALID);
    assert_int_equal(step(machine(1), MACHINE_STEP_SEEN, "", MACHINE_IS_BOOTING).code, 0);
    assert_true(step(machine(1), MACHINE_STEP_SEEN, "", MACHINE_IS_BOOTING).unchanged);
    assert_int_equal(step(machine(1), MACHINE_STEP_REFUSED, "capacity", 0).code, E_STALE);
    assert_int_equal(step(machine(1), MACHINE_STEP_SEEN, "", MACHINE_IS_JOINED).code, 0);
    const struct machine_status *s = object_as(machine(1), machine)->status;
    assert_int_equal(s->phase, MACHINE_IS_JOINED);
    assert_int_equal(s->billedFrom, 5);
    assert_string_equal(s->currency, "EUR");
    k.now += 30000;
    assert_int_equal(step(machine(1), MACHINE_STEP_RENEW, "", 0).code, 0);
    assert_int_equal(object_as(machine(1), machine)->status->until, k.now + 60000);
    assert_int_equal(step(machine(1), MACHINE_STEP_RELEASE, "", 0).code, E_INVALID);
    assert_int_equal(step(machine(1), MACHINE_STEP_RELEASE, "Surplus", 0).code, 0);
    k.now += 30000;
    assert_true(step(machine(1), MACHINE_STEP_RENEW, "", 0).unchanged);
    assert_true(step(machine(1), MACHINE_STEP_RELEASE, "Again", 0).unchanged);
    assert_int_equal(step(machine(1), MACHINE_STEP_ENDED, "Surplus", MACHINE_IS_ENDED).code, 0);
    s = object_as(machine(1), machine)->status;
    assert_int_equal(s->phase, MACHINE_IS_ENDED);
    assert_int_equal(s->billedTo, 9);
    assert_string_equal(s->release, "Surplus");
    assert_int_equal(status()->n_machines, 0);
    for (int x = MACHINE_STEP_SEEN; x <= MACHINE_STEP_LAST; x++)
        if (x != MACHINE_STEP_RENEW)
            assert_int_equal(step(machine(1), (enum machine_step)x, "x", MACHINE_IS_JOINED).code,
                             E_STALE);
    kit_end(&k);
}

/* ---- users ---- */
static void test_a_user_releases_and_no_more(void **state)
{
    (void)state;
    begin(FEATURE_LEVEL);
    assert_int_equal(order("warm", 1).code, 0);
    assert_int_equal(kit_delete(&k, KIND_MACHINE, "", key_of("warm", 1)).code, 0);
    assert_non_null(machine(1)); /* it costs until it has ended */
    assert_true(machine_closing(machine(1)));
    assert_int_equal(step(machine(1), MACHINE_STEP_ENDED, "Deleted", 0).code, 0);
    assert_null(machine(1));
    assert_int_equal(order("warm", 1).code, E_STALE); /* its key never comes back */
    assert_int_equal(order("warm", 2).code, 0);
    assert_int_equal(step(machine(2), MACHINE_STEP_ENDED, "Ended", 0).code, 0);
    assert_int_equal(kit_delete(&k, KIND_MACHINE, "", key_of("warm", 2)).code, 0);
    assert_null(machine(2));
    /* What counts them is nobody's to write. */
    assert_int_equal(order("warm", 3).code, 0);
    struct target *t = object_edit_as(target(), target, k.a);
    t->status->n_machines = 0;
    t->status->machinesOrdered = 77;
    t->status->nodes = 5;
    assert_int_equal(kit_update(&k, KIND_TARGET, "", TARGET, t, 0, true).code, 0);
    assert_int_equal(status()->machinesOrdered, 3);
    assert_int_equal(machines_live(status()), 1);
    assert_int_equal(status()->nodes, 5);
    kit_end(&k);
}

static void collect_all(void)
{
    union command c = {
        .collect = {.head = {.type = CMD_COLLECT}, .objects = 256, .bytes = 1 << 20}};

    while (root_collect_due(k.root))
        assert_int_equal(kit_apply(&k, &c).code, 0);
}

static void test_a_target_waits_for_its_machines(void **state)
{
    const struct object *o;

    (void)state;
    begin(FEATURE_LEVEL);
    assert_int_equal(order("warm", 1).code, 0);
    o = object_ref(machine(1));
    assert_int_equal(kit_delete(&k, KIND_TARGET, "", TARGET).code, 0);
    collect_all();
    assert_non_null(target());
    assert_int_equal(order("warm", 2).code, E_STALE);
    kit_reload(&k);
    assert_int_equal(step(o, MACHINE_STEP_RELEASE, "TargetDeleted", 0).code, 0);
    assert_int_equal(step(o, MACHINE_STEP_ENDED, "TargetDeleted", 0).code, 0);
    collect_all();
    assert_null(target());
    (void)object_unref((struct object *)(uintptr_t)o);
    kit_end(&k);
}

/* ---- runs on it ---- */
static void node_of(const char *key)
{
    union command c = {.facts = {.head = {.type = CMD_FACTS}, .target = TARGET, .n = 1}};
    struct node *n = arena_new(k.a, struct node);

    n->metadata = arena_new(k.a, struct meta);
    n->metadata->name = TARGET ".n0";
    n->spec = arena_new(k.a, struct node_spec);
    n->spec->target = TARGET;
    n->spec->machine = key;
    n->spec->cpu = 64000;
    n->spec->memory = (int64_t)1 << 40;
    n->spec->gpus = arena_array(k.a, struct gpu, 1);
    n->spec->gpus[0].class_ = "h100";
    n->spec->n_gpus = 1;
    c.facts.nodes = n;
    assert_int_equal(kit_apply(&k, &c).code, 0);
}

static void test_none_on_which_a_run_is_held_is_let_go(void **state)
{
    (void)state;
    begin(FEATURE_LEVEL);
    assert_int_equal(order("warm", 1).code, 0);
    node_of(key_of("warm", 1));
    assert_int_equal(kit_workload(&k, k.ns, "w", 1, 1).code, 0);
    assert_int_equal(kit_place(&k, "w", TARGET ".n0", 0, 1, 1).code, 0);
    assert_true(machine_held(k.root, machine(1)));
    assert_int_equal(step(machine(1), MACHINE_STEP_RELEASE, "Surplus", 0).code, E_BUSY);
    assert_int_equal(kit_run(&k, "w", 1, 0, STEP_STOP).code, 0);
    assert_false(machine_held(k.root, machine(1)));
    assert_int_equal(step(machine(1), MACHINE_STEP_RELEASE, "Surplus", 0).code, 0);
    assert_int_equal(kit_workload(&k, k.ns, "v", 1, 1).code, 0);
    struct result r = kit_place(&k, "v", TARGET ".n0", 0, 1, 1);
    assert_int_equal(r.code, E_PLACE);
    assert_non_null(strstr(r.text, "let go"));
    kit_end(&k);
}

/* ---- retention ---- */
static void test_what_has_ended_goes_after_a_while(void **state)
{
    struct write_op ops[4];

    (void)state;
    begin(FEATURE_LEVEL);
    assert_int_equal(order("warm", 1).code, 0);
    assert_int_equal(order("warm", 2).code, 0);
    assert_int_equal(step(machine(1), MACHINE_STEP_ENDED, "Ended", 0).code, 0);
    k.now += 1000000;
    assert_int_equal(root_finished(k.root, k.now, ops, 4), 1);
    assert_string_equal(ops[0].name, key_of("warm", 1));
    union command c = {.remove = {.head = {.type = CMD_REMOVE}, .ops = ops, .n = 1}};
    assert_int_equal(kit_apply(&k, &c).code, 0);
    assert_null(machine(1));
    str_copy(ops[0].name, sizeof ops[0].name, key_of("warm", 2));
    str_copy(ops[0].uid, sizeof ops[0].uid, machine(2)->meta->uid);
    assert_int_equal(kit_apply(&k, &c).code, 0);
    assert_non_null(machine(2)); /* it may cost */
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_order_is_made_of_the_target_as_it_is),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_a_user_releases_and_no_more),
        cmocka_unit_test(test_a_target_waits_for_its_machines),
        cmocka_unit_test(test_none_on_which_a_run_is_held_is_let_go),
        cmocka_unit_test(test_what_has_ended_goes_after_a_while),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
