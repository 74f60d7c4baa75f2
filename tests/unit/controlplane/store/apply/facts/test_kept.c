/* Nodes that are listed no more while something is held on them, and new ones that may be them by
 * another name: their devices must not be given out twice. */
#include "controlplane/store/store_internal.h"
#include "tests/support/store/store_kit.h"

static const char *IDS[2]; /* of the devices of each next node; NULL: none is told */
static const char *MACHINE;

/* A listing of all nodes of fra, each with two devices. */
static void listed(struct kit *k, const char *const *names)
{
    union command c = {.head = {.type = CMD_FACTS}};
    struct node *n = arena_array(k->a, struct node, 8);

    k->now += 1000;
    str_copy(c.facts.target, sizeof c.facts.target, "fra");
    (void)snprintf(c.facts.session, sizeof c.facts.session, "s1");
    c.facts.reach_told = c.facts.complete = c.facts.reachable = true;
    c.facts.nodes = n;
    for (uint32_t i = 0; names[i]; i++, c.facts.n++) {
        n[i].metadata = arena_new(k->a, struct meta);
        n[i].metadata->name = names[i];
        n[i].spec = arena_new(k->a, struct node_spec);
        n[i].spec->target = "fra";
        n[i].spec->cpu = 64000;
        n[i].spec->memory = (int64_t)1 << 40;
        n[i].spec->machine = MACHINE;
        n[i].spec->gpus = arena_array(k->a, struct gpu, 2);
        n[i].spec->n_gpus = 2;
        for (uint32_t g = 0; g < 2; g++)
            n[i].spec->gpus[g] =
                (struct gpu){.index = g, .class_ = "h100", .uuid = IDS[g] ? IDS[g] : ""};
    }
    assert_int_equal(kit_apply(k, &c).code, 0);
}
#define LISTED(k, ...) listed(k, (const char *const[]){__VA_ARGS__, NULL})
#define LISTED0(k) listed(k, (const char *const[]){NULL})

static const struct node_status *status_of(struct kit *k, const char *name)
{
    const struct object *o = root_get(k->root, KIND_NODE, "", name);

    return o ? object_as(o, node)->status : NULL;
}

/* A run on the first device of fra.a. */
static void begin(struct kit *k)
{
    IDS[0] = IDS[1] = MACHINE = NULL;
    kit_begin(k);
    kit_level_set(k, FEATURE_LEVEL);
    kit_pool(k, 0, 0);
    LISTED(k, "fra.a");
    assert_int_equal(kit_workload(k, "default", "w", 1, 1).code, 0);
    assert_int_equal(kit_workload(k, "default", "v", 1, 1).code, 0);
    assert_int_equal(kit_place(k, "w", "fra.a", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(k, "w", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(k, "w", 1, 1, STEP_RUNNING).code, 0);
}

static void ends(struct kit *k)
{
    k->exit_code = 0;
    assert_int_equal(kit_run(k, "w", 1, 1, STEP_ENDED).code, 0);
}

static bool placed(struct kit *k, const char *node)
{
    return kit_place(k, "v", node, 0, 1, 1).code == 0;
}

static void test_it_stays_while_something_is_held(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    LISTED0(&k);
    assert_non_null(status_of(&k, "fra.a"));
    assert_true(status_of(&k, "fra.a")->unlisted);
    assert_int_equal(status_of(&k, "fra.a")->health, HEALTH_NOT_READY);
    assert_false(placed(&k, "fra.a"));
    ends(&k);
    LISTED0(&k);
    assert_null(status_of(&k, "fra.a"));
    kit_end(&k);
}

static void test_what_is_renamed_is_not_given_out_twice(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    LISTED(&k, "fra.b");
    assert_string_equal(status_of(&k, "fra.a")->successor, "fra.b");
    assert_string_equal(status_of(&k, "fra.b")->formerly, "fra.a");
    assert_false(placed(&k, "fra.b"));
    LISTED(&k, "fra.b"); /* and nothing that is told of it changes that */
    assert_false(placed(&k, "fra.b"));
    ends(&k);
    LISTED(&k, "fra.b");
    assert_null(status_of(&k, "fra.a"));
    assert_true(placed(&k, "fra.b"));
    kit_end(&k);
}

/* Also where the new name is told first, and the old one goes later; or renamed twice. */
static void test_by_whatever_way_it_is_renamed(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    LISTED(&k, "fra.a", "fra.b");
    LISTED(&k, "fra.b");
    assert_false(placed(&k, "fra.b"));
    LISTED(&k, "fra.c");
    assert_null(status_of(&k, "fra.b"));
    assert_false(placed(&k, "fra.c"));
    LISTED0(&k);
    LISTED(&k, "fra.d");
    assert_false(placed(&k, "fra.d"));
    LISTED(&k, "fra.a", "fra.d"); /* it was another one */
    assert_int_equal(status_of(&k, "fra.a")->health, HEALTH_READY);
    assert_true(placed(&k, "fra.d"));
    kit_end(&k);
}

static void test_one_new_node_waits_for_one(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    LISTED(&k, "fra.b", "fra.c");
    assert_false(placed(&k, "fra.b"));
    assert_true(placed(&k, "fra.c"));
    kit_end(&k);
}

/* Nodes that stood beside it are none of its names, however lately they came. */
static void test_a_neighbour_is_no_successor(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    ends(&k);
    LISTED(&k, "fra.c", "fra.d");
    assert_true(placed(&k, "fra.c"));
    LISTED(&k, "fra.d");
    assert_true(status_of(&k, "fra.c")->unlisted);
    assert_false(*status_of(&k, "fra.c")->successor);
    assert_false(*status_of(&k, "fra.d")->formerly);
    IDS[0] = "GPU-1"; /* unless it has the same device */
    LISTED(&k, "fra.c", "fra.d");
    LISTED(&k, "fra.d");
    assert_string_equal(status_of(&k, "fra.d")->formerly, "fra.c");
    kit_end(&k);
}

static void test_another_machine_does_not_wait(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    MACHINE = "m1";
    IDS[0] = "GPU-1";
    LISTED(&k, "fra.a");
    IDS[0] = "GPU-2";
    LISTED(&k, "fra.b"); /* other devices */
    assert_true(placed(&k, "fra.b"));
    kit_end(&k);

    begin(&k);
    MACHINE = "m1";
    LISTED(&k, "fra.a");
    MACHINE = "m2";
    LISTED(&k, "fra.b");
    assert_true(placed(&k, "fra.b"));
    kit_end(&k);
}

/* The same devices by their ids, whatever else is said of it. */
static void test_devices_are_known_by_their_ids(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    MACHINE = "m1";
    IDS[0] = "GPU-1";
    LISTED(&k, "fra.a");
    MACHINE = "m2";
    IDS[1] = "GPU-7";
    LISTED(&k, "fra.b");
    assert_false(placed(&k, "fra.b"));
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_stays_while_something_is_held),
        cmocka_unit_test(test_what_is_renamed_is_not_given_out_twice),
        cmocka_unit_test(test_by_whatever_way_it_is_renamed),
        cmocka_unit_test(test_one_new_node_waits_for_one),
        cmocka_unit_test(test_a_neighbour_is_no_successor),
        cmocka_unit_test(test_another_machine_does_not_wait),
        cmocka_unit_test(test_devices_are_known_by_their_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
