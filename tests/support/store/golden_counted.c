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
