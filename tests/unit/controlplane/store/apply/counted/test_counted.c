/* Nodes that count devices, in the state: what a placement holds of them is a number, apply asks
 * again for it, and every figure that is derived counts it. */
#include "controlplane/store/ledger/ledger.h"
#include "tests/support/store/store_kit.h"

#include "policy/policy.h"

static struct node node_counted_of(struct kit *k, const char *name, const char *class_,
                                   int64_t count, int64_t unhealthy)
{
    struct node n = {.metadata = arena_new(k->a, struct meta)};
    struct counted_gpus *c = arena_new(k->a, struct counted_gpus);

    *c = (struct counted_gpus){
        .class_ = class_, .model = "", .count = count, .unhealthy = unhealthy};
    n.metadata->name = name;
    n.spec = arena_new(k->a, struct node_spec);
    n.spec->target = "fra";
    n.spec->cpu = 64000;
    n.spec->memory = (int64_t)1 << 40;
    n.spec->counted = c;
    n.spec->n_counted = count > 0;
    return n;
}

static void tell(struct kit *k, struct node *n, struct node_others *others)
{
    struct node_status status = {.health = HEALTH_READY, .others = others, .reason = ""};
    union command c = {.facts = {.head = {.type = CMD_FACTS},
                                 .target = "fra",
                                 .session = "s1",
                                 .reach_told = true,
                                 .reachable = true,
                                 .nodes = n,
                                 .n = 1}};

    n->status = &status;
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static void counts(struct kit *k, int64_t count, int64_t unhealthy)
{
    struct node n = node_counted_of(k, "fra.n0", "h100", count, unhealthy);

    tell(k, &n, NULL);
}

static void begin(struct kit *k)
{
    kit_begin(k);
    kit_pool(k, 1, 2);
    kit_level_set(k, FEATURE_LEVEL);
    counts(k, 8, 0);
}

static struct result place(struct kit *k, const char *name, int64_t count)
{
    struct placement *p = kit_workers(k, "fra.n0", 0, 1, 0);
    union command c;

    p->assignments[0].count = count;
    p->assignments[0].gpuMilli = 1000;
    p->class_ = "h100";
    p->gpus = count * 1000;
    kit_place_head(k, &c, name, "placed", "Chosen");
    c.place.placement = p;
    return kit_apply(k, &c);
}

static int64_t held(struct kit *k)
{
    struct node_usage u = {0};

    const struct slice_kind whole = {"", false};

    (void)root_usage(k->root, "fra.n0", &u);
    assert_int_equal(u.gpu_milli, 1000 * root_counted_held(k->root, "fra.n0", "h100", &whole));
    return u.gpu_milli / 1000;
}

static void refused(struct result r, const char *why)
{
    assert_int_equal(r.code, E_PLACE);
    if (!strstr(r.text, why))
        fail_msg("%s", r.text);
}

static void a_number_is_held(void **state)
{
    struct others_class two = {.class_ = "h100", .count = 2};
    struct node_others others = {.classes = &two, .n_classes = 1};
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(kit_workload(&k, k.ns, "a", 1, 5).code, 0);
    assert_int_equal(kit_workload(&k, k.ns, "b", 1, 3).code, 0);
    refused(place(&k, "a", 4), "gets 4 GPUs, the workload now asks for 5");
    assert_int_equal(place(&k, "a", 5).code, 0);
    assert_int_equal(held(&k), 5);
    assert_int_equal(kit_status(&k, "a")->placement->gpus, 5000);
    assert_int_equal(kit_status(&k, "a")->placement->assignments[0].count, 5);
    counts(&k, 8, 1);
    refused(place(&k, "b", 3), "2 of its 8 h100 are free");
    struct node n = node_counted_of(&k, "fra.n0", "h100", 8, 0);
    tell(&k, &n, &others);
    refused(place(&k, "b", 3), "1 of its 8 h100 are free");
    counts(&k, 8, 8); /* fewer than are held: what runs stays */
    refused(place(&k, "b", 3), "0 of its 8 h100 are free");
    assert_int_equal(held(&k), 5);
    kit_reload(&k);
    counts(&k, 8, 0);
    assert_int_equal(place(&k, "b", 3).code, 0);
    assert_int_equal(held(&k), 8);
    assert_int_equal(kit_run(&k, "a", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(&k, "a", 1, 1, STEP_RUNNING).code, 0);
    assert_int_equal(kit_run(&k, "a", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(held(&k), 3);
    kit_end(&k);
}

static void what_cannot_be_held(void **state)
{
    struct kit k;
    union command c;

    (void)state;
    begin(&k);
    assert_int_equal(kit_workload(&k, k.ns, "a", 1, 2).code, 0);
    struct placement *p = kit_workers(&k, "fra.n0", 0, 1, 2);
    kit_place_head(&k, &c, "a", "placed", "Chosen");
    c.place.placement = p;
    refused(kit_apply(&k, &c), "GPU 0 is not there");
    p->assignments[0].count = 2; /* both ways at once */
    refused(kit_apply(&k, &c), "gets 2 GPUs by count");
    p->assignments[0].n_gpus = 0;
    p->assignments[0].count = -2;
    refused(kit_apply(&k, &c), "gets -2 GPUs by count");
    p->assignments[0].count = LIMIT_NODE_COUNTED + 1;
    refused(kit_apply(&k, &c), "by count");
    struct node n = node_counted_of(&k, "fra.n0", "a100", 8, 0);
    tell(&k, &n, NULL);
    refused(place(&k, "a", 2), "node fra.n0 counts no h100");
    kit_end(&k);
}

/* What is held by count is not given away by numbers once the node tells them, and the reverse. */
static void told_the_other_way(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(kit_workload(&k, k.ns, "a", 1, 7).code, 0);
    assert_int_equal(kit_workload(&k, k.ns, "b", 1, 2).code, 0);
    assert_int_equal(kit_workload(&k, k.ns, "c", 1, 1).code, 0);
    assert_int_equal(place(&k, "a", 7).code, 0);
    assert_int_equal(kit_facts(&k, "fra", 1, 8, true).code, 0); /* numbered from now on */
    refused(kit_place(&k, "b", "fra.n0", 0, 1, 2), "7 of its h100 are held, nobody knows which");
    assert_int_equal(kit_place(&k, "c", "fra.n0", 3, 1, 1).code, 0);
    counts(&k, 10, 0);
    refused(place(&k, "b", 3), "gets 3 GPUs");
    assert_int_equal(place(&k, "b", 2).code, 0);
    assert_int_equal(kit_workload(&k, k.ns, "d", 1, 1).code, 0);
    refused(place(&k, "d", 1), "0 of its 10 h100 are free"); /* 7 + 2, and c's number 3 */
    kit_end(&k);
}

/* A target that queues names nodes, perhaps devices: the log holds a number. */
static void seats(struct kit *k, int64_t first, int64_t gpus, int code)
{
    struct placement *p = kit_workers(k, "fra.n0", first, 1, gpus);

    k->seats = p;
    assert_int_equal(kit_run(k, "w", 1, 1, STEP_SEATED).code, code);
    k->seats = NULL;
}

static void waits(struct kit *k, int64_t gpus)
{
    begin(k);
    assert_int_equal(kit_workload(k, k->ns, "w", 1, gpus).code, 0);
    assert_int_equal(place(k, "w", gpus).code, 0);
    assert_int_equal(kit_run(k, "w", 1, 1, STEP_DISPATCH).code, 0);
    k->reason = "Resources";
    assert_int_equal(kit_run(k, "w", 1, 1, STEP_PENDING).code, 0);
    k->reason = NULL;
    assert_int_equal(held(k), 0);
}

static void seated_by_count(void **state)
{
    struct kit k;

    (void)state;
    waits(&k, 2);
    assert_int_equal(kit_workload(&k, k.ns, "v", 1, 7).code, 0);
    assert_int_equal(place(&k, "v", 7).code, 0);
    seats(&k, 4, 2, E_PLACE); /* by the log one is left */
    counts(&k, 9, 0);
    seats(&k, 4, 2, 0);
    const struct assignment *a = &kit_status(&k, "w")->placement->assignments[0];
    assert_int_equal(a->count, 2);
    assert_int_equal(a->n_gpus, 0);
    assert_int_equal(kit_status(&k, "w")->placement->gpus, 2000);
    assert_int_equal(held(&k), 9);
    kit_end(&k);
    waits(&k, 2);
    seats(&k, 0, 0, 0); /* no devices named */
    assert_int_equal(held(&k), 2);
    kit_end(&k);
}

/* The Target's figures, quota's capacity, the class by its model. */
static void figures(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    struct node n = node_counted_of(&k, "fra.n1", "", 4, 1);
    struct gpu_class *g = arena_new(k.a, struct gpu_class);
    const char *alias[] = {"NVIDIA A100"};

    g->spec = arena_new(k.a, struct gpu_class_spec);
    g->spec->aliases = alias;
    g->spec->n_aliases = 1;
    assert_int_equal(kit_create(&k, KIND_GPU_CLASS, "", "a100", g).code, 0);
    n.spec->counted->model = "NVIDIA A100";
    tell(&k, &n, NULL);
    const struct object *o = root_get(k.root, KIND_NODE, "", "fra.n1");
    assert_string_equal(object_as(o, node)->spec->counted[0].class_, "a100");
    o = root_get(k.root, KIND_TARGET, "", "fra");
    const struct target_status *s = object_as(o, target)->status;
    assert_int_equal(s->n_gpus, 2);
    assert_string_equal(s->gpus[0].class_, "a100");
    assert_int_equal(s->gpus[0].total, 3); /* the healthy ones */
    assert_int_equal(s->gpus[1].total, 8);
    assert_int_equal(root_count_of(k.root->class_gpus, key_str("a100")), 4000);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_is_held),   cmocka_unit_test(what_cannot_be_held),
        cmocka_unit_test(told_the_other_way), cmocka_unit_test(seated_by_count),
        cmocka_unit_test(figures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
