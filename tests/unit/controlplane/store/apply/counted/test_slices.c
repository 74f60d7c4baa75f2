/* MIG instances and shares that a node counts, in the state: each kind has a number of its own,
 * apply asks again for it, and figures count the part of a GPU that they are. */
#include "controlplane/store/ledger/ledger.h"
#include "tests/support/store/store_kit.h"

#include "policy/policy.h"

static const struct slice_kind WHOLE = {"", false}, SEVENTH = {"1g.10gb", false},
                               SHARE = {"", true};

/* Of h100; rows without a count are left out. */
static void tell(struct kit *k, int64_t whole, int64_t mig, int64_t shared, int64_t of,
                 struct node_others *others)
{
    struct node_status status = {.health = HEALTH_READY, .others = others, .reason = ""};
    struct counted_gpus rows[3] = {{.count = whole, .mig = ""},
                                   {.count = mig, .mig = "1g.10gb"},
                                   {.count = shared, .mig = "", .shares = of}};
    struct node_spec spec = {
        .target = "fra", .cpu = 64000, .memory = (int64_t)1 << 40, .counted = rows};
    struct meta meta = {.name = "fra.n0"};
    struct node n = {.metadata = &meta, .spec = &spec, .status = &status};
    union command c = {.facts = {.head = {.type = CMD_FACTS},
                                 .target = "fra",
                                 .session = "s1",
                                 .reach_told = true,
                                 .reachable = true,
                                 .nodes = &n,
                                 .n = 1}};

    for (int i = 0; i < 3; i++) {
        rows[i].class_ = "h100";
        rows[i].model = "";
        if (rows[i].count)
            rows[spec.n_counted++] = rows[i];
    }
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static void work(struct kit *k, const char *name, const char *mig, double fraction)
{
    struct workload *w = arena_new(k->a, struct workload);

    w->spec = arena_new(k->a, struct workload_spec);
    w->spec->run = arena_new(k->a, struct run_spec);
    w->spec->run->script = "true";
    w->spec->resources = arena_new(k->a, struct resources);
    w->spec->resources->gpu = arena_new(k->a, struct gpu_request);
    w->spec->resources->gpu->mig = mig;
    w->spec->resources->gpu->fraction = fraction;
    assert_int_equal(kit_create(k, KIND_WORKLOAD, k->ns, name, w).code, 0);
}

static struct result place(struct kit *k, const char *name, struct assignment a)
{
    struct placement *p = kit_workers(k, "fra.n0", 0, 1, 0);
    union command c;

    a.node = "fra.n0";
    a.mig = a.mig ? a.mig : "";
    p->assignments[0] = a;
    p->gpus = assignment_milli(&a);
    kit_place_head(k, &c, name, "placed", "Chosen");
    c.place.placement = p;
    return kit_apply(k, &c);
}
#define MIG                                                                                        \
    (struct assignment)                                                                            \
    {                                                                                              \
        .mig = "1g.10gb", .count = 1, .gpuMilli = 143                                              \
    }
#define PART(of)                                                                                   \
    (struct assignment)                                                                            \
    {                                                                                              \
        .count = 1, .shares = (of), .gpuMilli = 1000 / (of)                                        \
    }

static void refused(struct result r, const char *why)
{
    assert_int_equal(r.code, E_PLACE);
    if (!strstr(r.text, why))
        fail_msg("%s", r.text);
}

static int64_t held(struct kit *k, struct slice_kind kind)
{
    return root_counted_held(k->root, "fra.n0", "h100", &kind);
}

static void begin(struct kit *k)
{
    kit_begin(k);
    kit_level_set(k, FEATURE_LEVEL);
    kit_pool(k, 0, 0);
    for (int i = 0; i < 3; i++) {
        work(k, arena_printf(k->a, "m%d", i), "1g.10gb", 0);
        work(k, arena_printf(k->a, "s%d", i), "", 0.25);
        assert_int_equal(kit_workload(k, k->ns, arena_printf(k->a, "w%d", i), 1, 1).code, 0);
    }
}

static struct result place_whole(struct kit *k, const char *name)
{
    return place(k, name, (struct assignment){.count = 1, .gpuMilli = 1000});
}

static void each_kind_is_counted(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    tell(&k, 1, 2, 2, 4, NULL);
    assert_int_equal(place(&k, "m0", MIG).code, 0);
    assert_int_equal(place(&k, "m1", MIG).code, 0);
    refused(place(&k, "m2", MIG), "0 of its 2 1g.10gb instances of h100 are free");
    assert_int_equal(place(&k, "s0", PART(4)).code, 0);
    assert_int_equal(place(&k, "s1", PART(4)).code, 0);
    refused(place(&k, "s2", PART(4)), "0 of its 2 shares of h100 are free");
    assert_int_equal(place_whole(&k, "w0").code, 0);
    refused(place_whole(&k, "w1"), "0 of its 1 h100 are free");
    assert_int_equal(held(&k, SEVENTH), 2);
    assert_int_equal(held(&k, SHARE), 2);
    assert_int_equal(held(&k, WHOLE), 1);
    struct node_usage u = {0};
    assert_true(root_usage(k.root, "fra.n0", &u));
    assert_int_equal(u.gpu_milli, 1000 + 2 * 143 + 2 * 250);
    assert_int_equal(root_count_of(k.root->class_gpus, key_str("h100")), 1000 + 2 * 143 + 2 * 250);
    const struct object *o = root_get(k.root, KIND_TARGET, "", "fra");
    assert_int_equal(object_as(o, target)->status->gpus[0].total, 1); /* 1.786, rounded down */
    kit_reload(&k);
    root_check(k.root);
    assert_int_equal(held(&k, SEVENTH), 2);
    assert_int_equal(kit_run(&k, "m0", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "m0", 1, 1, STEP_RUNNING).code, 0);
    assert_int_equal(kit_run(&k, "m0", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(place(&k, "m2", MIG).code, 0);
    kit_end(&k);
}

static void others_hold_of_a_kind(void **state)
{
    struct others_class v[] = {{.class_ = "h100", .count = 1, .mig = "1g.10gb"},
                               {.class_ = "h100", .count = 1, .mig = "", .shares = true}};
    struct node_others others = {.classes = v, .n_classes = 2};
    struct kit k;

    (void)state;
    begin(&k);
    tell(&k, 1, 2, 1, 4, &others);
    assert_int_equal(place(&k, "m0", MIG).code, 0);
    refused(place(&k, "m1", MIG), "0 of its 2 1g.10gb");
    refused(place(&k, "s0", PART(4)), "0 of its 1 shares");
    assert_int_equal(place_whole(&k, "w0").code, 0);
    kit_end(&k);
}

static void what_cannot_be_held(void **state)
{
    struct assignment a = MIG;
    struct kit k;

    (void)state;
    begin(&k);
    tell(&k, 1, 2, 2, 4, NULL);
    a.gpuMilli = 100; /* not what an instance of it is */
    refused(place(&k, "m0", a), "by count");
    a.gpuMilli = 143;
    a.shares = 4;
    refused(place(&k, "m0", a), "by count");
    a.shares = 0;
    a.mig = "3g.40gb";
    a.gpuMilli = 429;
    refused(place(&k, "m0", a), "the workload now asks for");
    refused(place(&k, "s0", PART(2)), "a share is 1/4 of its h100 now");
    refused(place(&k, "s0", PART(8)), "gets 125/1000 of each GPU"); /* less than was asked for */
    refused(place(&k, "s0", (struct assignment){.count = 1, .gpuMilli = 1000}), "by count");
    refused(place(&k, "w0", PART(4)), "by count");
    refused(place(&k, "w0", (struct assignment){.gpuMilli = 1000, .shares = 4}), "by count");
    tell(&k, 1, 0, 0, 0, NULL);
    refused(place(&k, "m0", MIG), "node fra.n0 counts no 1g.10gb instances of h100");
    kit_end(&k);
}

/* Of a kind that the node has no more each that is held may lie on any of its GPUs. */
static void told_the_other_way(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    tell(&k, 0, 2, 0, 0, NULL);
    assert_int_equal(place(&k, "m0", MIG).code, 0);
    tell(&k, 1, 0, 8, 4, NULL);
    refused(place_whole(&k, "w0"), "0 of its 1 h100 are free");
    assert_int_equal(place(&k, "s0", PART(4)).code, 0);
    assert_int_equal(place(&k, "s1", PART(4)).code, 0);
    tell(&k, 0, 0, 7, 4, NULL); /* 7 - 2 - 4 */
    assert_int_equal(place(&k, "s2", PART(4)).code, 0);
    work(&k, "s3", "", 0.25);
    refused(place(&k, "s3", PART(4)), "0 of its 7 shares of h100 are free");
    tell(&k, 5, 0, 0, 0, NULL); /* one instance, three shares */
    assert_int_equal(place_whole(&k, "w0").code, 0);
    refused(place_whole(&k, "w1"), "0 of its 5 h100 are free");
    kit_end(&k);
}

/* One that waited in the target's own queue for a share gets what a share is there. */
static void seated(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    tell(&k, 0, 2, 2, 4, NULL);
    assert_int_equal(place(&k, "s0", PART(4)).code, 0);
    assert_int_equal(place(&k, "m0", MIG).code, 0);
    k.reason = "Resources";
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "m0" : "s0";
        assert_int_equal(kit_run(&k, name, 1, 1, STEP_DISPATCH).code, 0);
        assert_int_equal(kit_run(&k, name, 1, 1, STEP_PENDING).code, 0);
    }
    k.reason = NULL;
    assert_int_equal(held(&k, SHARE) + held(&k, SEVENTH), 0);
    tell(&k, 0, 2, 2, 2, NULL);
    for (int i = 0; i < 2; i++) {
        k.seats = kit_workers(&k, "fra.n0", 0, 1, 0);
        assert_int_equal(kit_run(&k, i ? "m0" : "s0", 1, 1, STEP_SEATED).code, 0);
    }
    k.seats = NULL;
    const struct assignment *a = &kit_status(&k, "s0")->placement->assignments[0];
    assert_int_equal(a->shares, 2);
    assert_int_equal(a->gpuMilli, 500);
    a = &kit_status(&k, "m0")->placement->assignments[0];
    assert_string_equal(a->mig, "1g.10gb");
    assert_int_equal(a->gpuMilli, 143);
    assert_int_equal(held(&k, SHARE), 1);
    assert_int_equal(held(&k, SEVENTH), 1);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_counted), cmocka_unit_test(others_hold_of_a_kind),
        cmocka_unit_test(what_cannot_be_held), cmocka_unit_test(told_the_other_way),
        cmocka_unit_test(seated)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
