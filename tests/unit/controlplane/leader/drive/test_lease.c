/* Leases of what runs, as the leader judges them: by what the log says was granted, whatever the
 * documents say by then. */
#include "controlplane/leader/context/context.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/drive/lease.h"
#include "controlplane/leader/drive/order.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"

#define DAY_MS (24ll * 3600 * 1000)
#define NEAR_MS 2000

struct world {
    struct arena *a;
    struct brain brain;
    struct sites sites;
    struct driver d;
    struct workload *w;
};

static void world_init(struct world *x)
{
    struct err err;

    *x = (struct world){.a = arena_create(0)};
    x->brain.root = root_create();
    x->brain.loop = loop_uv_create(&err);
    assert_non_null(x->brain.loop);
    x->brain.sites = &x->sites;
    sites_init(&x->brain);
    x->d.brain = &x->brain;
    x->d.renewed_ms = loop_now_ms(x->brain.loop);
    x->w = arena_new(x->a, struct workload);
    x->w->metadata = arena_new(x->a, struct meta);
    x->w->metadata->name = "w";
    x->w->spec = arena_new(x->a, struct workload_spec);
    x->w->spec->partition = arena_new(x->a, struct partition_spec);
    x->w->spec->checkpoint = arena_new(x->a, struct checkpoint_spec);
    x->w->spec->checkpoint->grace = 1000;
    x->w->status = arena_new(x->a, struct workload_status);
    x->w->status->phase = PHASE_UNKNOWN;
    x->w->status->intent = arena_new(x->a, struct intent);
}
static void world_fini(struct world *x)
{
    loop_uv_destroy(x->brain.loop);
    (void)root_unref(x->brain.root);
    (void)arena_destroy(x->a);
}
/* Waits about so long: never less, and not much more. */
static void waits(struct world *x, int64_t ms)
{
    struct object *o = object_make(kind_by_id(KIND_WORKLOAD), x->w);

    x->d.o = o;
    int64_t left = (int64_t)lease_left_ms(&x->d),
            gone = (int64_t)loop_now_ms(x->brain.loop) - (int64_t)x->d.renewed_ms;
    (void)object_unref(o);
    if (left + gone < ms || left + gone > ms + NEAR_MS)
        fail_msg("it waits %lld ms, expected %lld", (long long)(left + gone), (long long)ms);
}

/* Granted as a run that waits; its owner makes it one that is replaced while it is cut off. */
static void test_what_was_granted_is_waited_for(void **state)
{
    struct lease_grant granted = {.lease = DAY_MS, .grace = 2000, .kill = 5000, .number = 1};
    struct world x;

    (void)state;
    world_init(&x);
    x.w->status->intent->granted = &granted;
    x.w->spec->partition->mode = PARTITION_REPLACE;
    waits(&x, DAY_MS + DAY_MS / 100 + 7000);
    granted.lease = 60000; /* and its Target would grant 5 minutes, or 6 s, today */
    waits(&x, 67600);
    x.w->spec->partition->mode = PARTITION_STOP;
    x.w->spec->partition->stopAfter = 1000;
    x.w->spec->checkpoint->grace = 90000;
    waits(&x, 67600);
    world_fini(&x);
}

static void test_what_was_offered_may_be_held_as_well(void **state)
{
    struct lease_grant granted = {.lease = 60000, .grace = 2000, .kill = 5000, .number = 3};
    struct lease_grant offered = {.lease = 6000, .grace = 4000, .kill = 5000, .number = 4};
    struct world x;

    (void)state;
    world_init(&x);
    x.w->status->intent->granted = &granted;
    x.w->status->intent->offered = &offered;
    waits(&x, 60600 + 4000 + 5000);
    offered.lease = 90000;
    waits(&x, 90900 + 4000 + 5000);
    world_fini(&x);
}

/* On a target where nothing stops itself no lease is granted, and the log says so whatever its
 * Target or the workload says since: its silence never ends the run. */
static void test_none_is_granted_where_nothing_stops_itself(void **state)
{
    struct lease_grant granted = {.lease = 0, .grace = 2000, .kill = 5000, .number = 1};
    struct target_spec spec = {.type = TARGET_CALLOUT};
    struct meta meta = {.name = "t1"};
    struct target target = {.metadata = &meta, .spec = &spec};
    struct site site = {0};
    struct world x;

    (void)state;
    world_init(&x);
    x.w->spec->partition->mode = PARTITION_REPLACE;
    site.doc = object_make(kind_by_id(KIND_TARGET), &target);
    x.d.o = object_make(kind_by_id(KIND_WORKLOAD), x.w);
    assert_int_equal(lease_wanted(x.d.o, &site).lease, 0);
    assert_false(lease_none(&x.d)); /* an older intent, on a target that is not known any more */
    (void)object_unref(x.d.o);
    (void)object_unref(site.doc);
    x.w->status->intent->granted = &granted;
    x.d.o = object_make(kind_by_id(KIND_WORKLOAD), x.w);
    assert_true(lease_none(&x.d));
    (void)object_unref(x.d.o);
    granted.lease = 60000;
    x.d.o = object_make(kind_by_id(KIND_WORKLOAD), x.w);
    assert_false(lease_none(&x.d));
    (void)object_unref(x.d.o);
    world_fini(&x);
}

/* What a driver is told, who has not heard the runners themselves. */
static void test_what_all_runners_may_hold(void **state)
{
    struct lease_grant granted = {.lease = 60000, .number = 3};
    struct lease_grant offered = {.lease = 90000, .number = 4};
    struct intent in = {.op = INTENT_SUBMIT};

    (void)state;
    assert_int_equal(lease_held_ms(&in), 0);
    in.granted = &granted;
    assert_int_equal(lease_held_ms(&in), 0); /* nobody has said that it holds it */
    granted.held = true;
    assert_int_equal(lease_held_ms(&in), 60000);
    in.offered = &offered;
    assert_int_equal(lease_held_ms(&in), 90000);
    offered.lease = 6000;
    assert_int_equal(lease_held_ms(&in), 60000);
    granted.lease = 0;
    assert_int_equal(lease_held_ms(&in), 0);
}

static bool none_is_held(struct world *x)
{
    struct object *o = object_make(kind_by_id(KIND_WORKLOAD), x->w);

    x->d.o = o;
    bool none = lease_none(&x->d);
    (void)object_unref(o);
    return none;
}

/* Granted is not held: on a target whose runs may have no runner of ours, only what the run's own
 * runners told, and the log has, proves an end. */
static void test_a_lease_that_nobody_told_of_proves_nothing(void **state)
{
    struct lease_grant granted = {.lease = 60000, .grace = 2000, .kill = 5000, .number = 1};
    struct target_spec spec = {.type = TARGET_CALLOUT};
    struct meta meta = {.name = "t1"};
    struct target target = {.metadata = &meta, .spec = &spec};
    struct site site = {.name = "t1", .by_name = {"t1"}};
    struct world x;

    (void)state;
    world_init(&x);
    site.doc = object_make(kind_by_id(KIND_TARGET), &target);
    index_add(&x.sites.by_name, &site.by_name);
    str_copy(x.d.target, sizeof x.d.target, "t1");
    x.w->status->intent->granted = &granted;
    assert_true(none_is_held(&x));
    granted.held = true;
    assert_false(none_is_held(&x));
    granted.lease = 0;
    assert_true(none_is_held(&x));
    granted = (struct lease_grant){.lease = 60000, .number = 1};
    spec.type = TARGET_AGENT;
    (void)object_unref(site.doc);
    site.doc = object_make(kind_by_id(KIND_TARGET), &target);
    assert_false(none_is_held(&x));
    (void)object_unref(site.doc);
    index_remove(&x.sites.by_name, &site.by_name);
    world_fini(&x);
}

/* Of a log that does not say: a day, or what its document says when that is more. */
static void test_older_logs_are_taken_for_the_longest(void **state)
{
    struct world x;

    (void)state;
    world_init(&x);
    x.w->spec->partition->mode = PARTITION_REPLACE;
    waits(&x, DAY_MS + DAY_MS / 100 + 30000 + 5000);
    x.w->spec->partition->mode = PARTITION_STOP;
    x.w->spec->partition->stopAfter = 3 * DAY_MS;
    waits(&x, 3 * DAY_MS + 3 * DAY_MS / 100 + 30000 + 5000);
    world_fini(&x);
}

/* A hub that was lost and rebuilt knows no number; its runners do, and one of a gang may have taken
 * the next one. What they hold is not taken for what is offered now. */
static void test_numbers_are_above_what_runners_hold(void **state)
{
    struct lease_grant granted = {.lease = 60000, .kill = 5000, .number = 3};
    struct lease_grant offered = {.lease = 6000, .kill = 5000, .number = 4};
    struct world x;

    (void)state;
    world_init(&x);
    x.w->status->phase = PHASE_RUNNING;
    x.d.has_seen = true;
    x.d.seen.grant = 5;
    struct object *o = object_make(kind_by_id(KIND_WORKLOAD), x.w);
    x.d.o = o;
    assert_int_equal(lease_next_number(&x.d), 7);
    (void)object_unref(o);
    x.w->status->intent->granted = &granted;
    x.w->status->intent->offered = &offered;
    o = object_make(kind_by_id(KIND_WORKLOAD), x.w);
    x.d.o = o;
    assert_int_equal(lease_next_number(&x.d), 4);
    assert_false(lease_acknowledged(&x.d)); /* it holds 5, not 4 */
    (void)object_unref(o);
    world_fini(&x);
}

static void test_orders_carry_what_the_log_grants(void **state)
{
    struct lease_grant granted = {.lease = 60000, .grace = 2000, .kill = 5000, .number = 1};
    struct run_key key = {.uid = "u", .epoch = 1, .try_ = 1};
    struct run_spec run = {.script = "true"};
    struct placement at = {.target = "fra"};
    struct run_order o;
    struct err err;
    struct world x;

    (void)state;
    world_init(&x);
    x.w->spec->run = &run;
    x.w->status->intent->granted = &granted;
    x.w->status->intent->store = "/told";
    x.w->spec->checkpoint->store = "/edited";
    x.w->spec->partition->mode = PARTITION_WAIT;
    struct site t = {.brain = &x.brain};
    struct object *w = object_make(kind_by_id(KIND_WORKLOAD), x.w);
    assert_int_equal(order_make(&t, w, &at, &key, x.a, &o, &err), 0);
    assert_int_equal(o.lease_ms, 60000);
    assert_int_equal(o.grace_ms, 2000);
    assert_true(strncmp(o.checkpoint_dir, "/told/", 6) == 0);
    (void)object_unref(w);
    world_fini(&x);
}

/* What documents leave out is what the table of the kinds fills in where they say a part. */
static void test_defaults_are_those_of_the_kinds(void **state)
{
    struct world x;

    (void)state;
    assert_int_equal(schema_default_ms(&schema_target_partition, "suspectAfter"), 30000);
    assert_int_equal(schema_default_ms(&schema_target_partition, "lease"), 300000);
    assert_int_equal(schema_default_ms(&schema_checkpoint_spec, "grace"), 30000);
    world_init(&x);
    x.w->spec->partition->mode = PARTITION_REPLACE;
    x.w->spec->checkpoint = NULL;
    struct object *w = object_make(kind_by_id(KIND_WORKLOAD), x.w);
    struct lease_grant g = lease_wanted(w, NULL);
    assert_int_equal(g.lease, schema_default_ms(&schema_target_partition, "lease"));
    assert_int_equal(g.grace, schema_default_ms(&schema_checkpoint_spec, "grace"));
    (void)object_unref(w);
    world_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_granted_is_waited_for),
        cmocka_unit_test(test_what_was_offered_may_be_held_as_well),
        cmocka_unit_test(test_what_all_runners_may_hold),
        cmocka_unit_test(test_none_is_granted_where_nothing_stops_itself),
        cmocka_unit_test(test_a_lease_that_nobody_told_of_proves_nothing),
        cmocka_unit_test(test_older_logs_are_taken_for_the_longest),
        cmocka_unit_test(test_numbers_are_above_what_runners_hold),
        cmocka_unit_test(test_orders_carry_what_the_log_grants),
        cmocka_unit_test(test_defaults_are_those_of_the_kinds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
