/* Devices without numbers in commands of the log: a number of them is told, and one is held. */
#include "tests/support/store/golden_commands.h"

void facts_counted_make(union command *c, struct arena *a)
{
    struct node *n = arena_new(a, struct node);

    *c = (union command){.head = {.type = CMD_FACTS, .request_id = "id-1", .user = "alice"}};
    (void)snprintf(c->facts.target, sizeof c->facts.target, "fra");
    c->facts.nodes = n;
    c->facts.n = 1;
    n->metadata = arena_new(a, struct meta);
    n->metadata->name = "fra.n0";
    n->spec = arena_new(a, struct node_spec);
    n->spec->target = "fra";
    n->spec->counted = arena_new(a, struct counted_gpus);
    n->spec->n_counted = 1;
    *n->spec->counted = (struct counted_gpus){.class_ = "a100",
                                              .model = "NVIDIA A100",
                                              .memory = (int64_t)40 << 30,
                                              .count = 8,
                                              .unhealthy = 1};
}

void facts_counted_check(const union command *c)
{
    const struct counted_gpus *v = c->facts.nodes->spec->counted;

    assert_int_equal(c->facts.nodes->spec->n_counted, 1);
    assert_string_equal(v->class_, "a100");
    assert_string_equal(v->model, "NVIDIA A100");
    assert_int_equal(v->memory, (int64_t)40 << 30);
    assert_int_equal(v->count, 8);
    assert_int_equal(v->unhealthy, 1);
}

void place_counted_make(union command *c, struct arena *a)
{
    struct placement *p = arena_new(a, struct placement);

    *c = (union command){.head = {.type = CMD_PLACE, .request_id = "id-1", .user = "alice"}};
    (void)snprintf(c->place.ns, sizeof c->place.ns, "golden");
    (void)snprintf(c->place.name, sizeof c->place.name, "w");
    (void)snprintf(c->place.uid, sizeof c->place.uid, "9a2b");
    c->place.decision = arena_new(a, struct decision_spec);
    c->place.decision->outcome = "Placed";
    c->place.placement = p;
    p->target = "fra";
    p->class_ = "a100";
    p->assignments = arena_new(a, struct assignment);
    p->n_assignments = 1;
    *p->assignments =
        (struct assignment){.node = "fra.n0", .mig = "", .gpuMilli = 1000, .count = 2};
}

void place_counted_check(const union command *c)
{
    assert_int_equal(c->place.placement->assignments[0].count, 2);
    assert_int_equal(c->place.placement->assignments[0].n_gpus, 0);
    assert_int_equal(c->place.placement->assignments[0].gpuMilli, 1000);
}

/* MIG instances and shares. */
void facts_slices_make(union command *c, struct arena *a)
{
    struct counted_gpus *v = arena_array(a, struct counted_gpus, 2);

    facts_counted_make(c, a);
    for (int i = 0; i < 2; i++)
        v[i] = *c->facts.nodes->spec->counted;
    v[0].mig = "1g.5gb";
    v[1].shares = 4;
    c->facts.nodes->spec->counted = v;
    c->facts.nodes->spec->n_counted = 2;
    c->facts.nodes->status = arena_new(a, struct node_status);
    c->facts.nodes->status->others = arena_new(a, struct node_others);
    c->facts.nodes->status->others->classes = arena_array(a, struct others_class, 2);
    c->facts.nodes->status->others->n_classes = 2;
    c->facts.nodes->status->others->classes[0] =
        (struct others_class){.class_ = "a100", .count = 1, .mig = "1g.5gb"};
    c->facts.nodes->status->others->classes[1] =
        (struct others_class){.class_ = "a100", .count = 2, .shares = true};
}

void facts_slices_check(const union command *c)
{
    const struct node *n = c->facts.nodes;

    assert_int_equal(n->spec->n_counted, 2);
    assert_string_equal(n->spec->counted[0].mig, "1g.5gb");
    assert_int_equal(n->spec->counted[0].shares, 0);
    assert_string_equal(n->spec->counted[1].mig, "");
    assert_int_equal(n->spec->counted[1].shares, 4);
    assert_string_equal(n->status->others->classes[0].mig, "1g.5gb");
    assert_false(n->status->others->classes[0].shares);
    assert_true(n->status->others->classes[1].shares);
}

void place_slices_make(union command *c, struct arena *a)
{
    struct placement *p;

    place_counted_make(c, a);
    p = c->place.placement;
    p->assignments = arena_array(a, struct assignment, 2);
    p->n_assignments = 2;
    p->assignments[0] =
        (struct assignment){.node = "fra.n0", .mig = "1g.5gb", .gpuMilli = 143, .count = 1};
    p->assignments[1] = (struct assignment){
        .rank = 1, .node = "fra.n0", .mig = "", .gpuMilli = 250, .count = 1, .shares = 4};
}

void place_slices_check(const union command *c)
{
    const struct assignment *a = c->place.placement->assignments;

    assert_string_equal(a[0].mig, "1g.5gb");
    assert_int_equal(a[0].shares, 0);
    assert_int_equal(a[1].shares, 4);
    assert_int_equal(a[1].gpuMilli, 250);
}
