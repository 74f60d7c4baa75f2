/* What others than Hanse hold of a node: nothing is placed on it, whether its number is told or
 * its class alone; the decision says so, and by how much. */
#include "tests/support/policy/hints_done.h"

static void node_put(struct world *w, const char *name, const char *more, const char *others)
{
    char text[2048];

    (void)snprintf(text, sizeof text,
                   "kind: Node\nmetadata: {name: hub.%s}\nspec: {target: hub, cpu: 64, memory: "
                   "512Gi, gpus: [{index: 0, class: h100%s}, {index: 1, class: h100%s}, {index: 2, "
                   "class: h100%s}, {index: 3, class: h100%s}]}\nstatus: {health: Ready%s%s}\n",
                   name, more, more, more, more, *others ? ", others: " : "", others);
    world_put(w, text);
}

static void begin(struct world *w)
{
    world_put(w, "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi}\n");
    world_target(w, "hub", "tier: hub, region: eu");
}

static void decide(struct world *w, const char *spec)
{
    world_decide_at(w, world_workload(w, "x", spec), NOW);
}

#define GPUS(n) "  resources: {gpu: {count: " #n "}}\n"

static void devices_with_a_number(void **state)
{
    struct world *w = *state;

    begin(w);
    node_put(w, "n1", "", "{gpus: [0, 2]}");
    decide(w, GPUS(2));
    assert_placed(w, "hub");
    assert_int_equal(w->pl->assignments[0].gpus[0], 1);
    assert_int_equal(w->pl->assignments[0].gpus[1], 3);
    decide(w, GPUS(3));
    assert_pending(w, "HeldByOthers");
    assert_non_null(strstr(w->d->message, "others than Hanse hold 2 h100 on 1 node"));
    node_put(w, "n1", "", "{gpus: [0]}"); /* they give one back, and take another */
    decide(w, GPUS(3));
    assert_placed(w, "hub");
    node_put(w, "n1", "", "{gpus: [3, 1]}");
    decide(w, GPUS(2));
    assert_int_equal(w->pl->assignments[0].gpus[0], 0);
    assert_int_equal(w->pl->assignments[0].gpus[1], 2);
    node_put(w, "n1", "", "");
    decide(w, GPUS(4));
    assert_placed(w, "hub");
}

static void devices_without_one(void **state)
{
    struct world *w = *state;

    begin(w);
    node_put(w, "n1", "", "{classes: [{class: h100, count: 1}]}");
    decide(w, GPUS(4));
    assert_pending(w, "HeldByOthers");
    world_run(w, "a", GPUS(1));
    world_run(w, "b", GPUS(2));
    assert_placed(w, "hub");
    decide(w, GPUS(1)); /* one is free, and theirs */
    assert_pending(w, "HeldByOthers");
    decide(w, GPUS(4)); /* it would not fit without them either */
    assert_pending(w, "GpusInUse");
    pool_drop(w->p, "uid-a");
    decide(w, GPUS(2));
    assert_pending(w, "HeldByOthers");
    decide(w, GPUS(1));
    assert_placed(w, "hub");
}

/* More than there is, by both ways of telling it: nothing falls below nothing. */
static void more_than_is_free(void **state)
{
    struct world *w = *state;

    begin(w);
    node_put(w, "n1", "", "");
    world_run(w, "a", GPUS(3));
    assert_placed(w, "hub");
    node_put(w, "n1", "", "{gpus: [0], classes: [{class: h100, count: 3}]}");
    decide(w, GPUS(1));
    assert_pending(w, "HeldByOthers");
    pool_drop(w->p, "uid-a"); /* 1 to 3 are free, and theirs */
    decide(w, GPUS(1));
    assert_pending(w, "HeldByOthers");
    struct pool *fork = pool_fork(w->p);
    assert_int_equal(pool_free_gpu_milli(fork, "h100"), 0);
    (void)pool_destroy(fork);
    node_put(w, "n1", "", "{gpus: [0], classes: [{class: h100, count: 2}]}");
    decide(w, GPUS(1));
    assert_placed(w, "hub");
}

/* A share may lie beside others' shares of ours, and opens no device that may be theirs. */
static void fractions(void **state)
{
    struct world *w = *state;

    begin(w);
    node_put(w, "n1", ", shared: true", "{gpus: [0, 1], classes: [{class: h100, count: 1}]}");
    world_run(w, "a", "  resources: {gpu: {fraction: 0.5}}\n");
    assert_placed(w, "hub");
    world_run(w, "b", "  resources: {gpu: {fraction: 0.5}}\n");
    assert_placed(w, "hub");
    decide(w, "  resources: {gpu: {fraction: 0.5}}\n");
    assert_pending(w, "HeldByOthers");
}

static void cpu_and_memory(void **state)
{
    struct world *w = *state;

    begin(w);
    node_put(w, "n1", "", "{cpu: 60, memory: 500Gi}");
    decide(w, "  resources: {cpu: 4, memory: 12Gi}\n");
    assert_placed(w, "hub");
    decide(w, "  resources: {cpu: 5}\n");
    assert_pending(w, "HeldByOthers");
    assert_non_null(strstr(w->d->message, "hold 60 CPU, 500Gi of memory on 1 node"));
    decide(w, "  resources: {gpu: {count: 1}, memory: 13Gi}\n");
    assert_pending(w, "HeldByOthers");
    decide(w, "  resources: {cpu: 65}\n"); /* nor without them */
    assert_pending(w, "NotEnoughCpu");
    node_put(w, "n1", "", "{cpu: 59, memory: 499Gi}");
    decide(w, "  resources: {cpu: 5, memory: 13Gi}\n");
    assert_placed(w, "hub");
}

static void gangs(void **state)
{
    struct world *w = *state;

    begin(w);
    node_put(w, "n1", "", "{gpus: [1, 2, 3]}");
    node_put(w, "n2", "", "{classes: [{class: h100, count: 3}]}");
    decide(w, GPUS(1) "  gang: {workers: 3}\n");
    assert_pending(w, "HeldByOthers");
    assert_non_null(strstr(w->d->message, "hold 6 h100 on 2 nodes"));
    decide(w, GPUS(1) "  gang: {workers: 9}\n");
    assert_pending(w, "GangDoesNotFit");
    decide(w, GPUS(1) "  gang: {workers: 2}\n");
    assert_placed(w, "hub");
    assert_int_equal(w->pl->assignments[0].gpus[0] + w->pl->assignments[1].gpus[0], 0);
}

/* Devices that others hold are no victim's: what ours give up is planned with them in sight. */
static void preemption(void **state)
{
    struct world *w = *state;
    struct preempt_plan *plan;
    struct err err;

    begin(w);
    world_put(w, "kind: PriorityClass\nmetadata: {name: low}\nspec: {value: 1}\n---\n"
                 "kind: PriorityClass\nmetadata: {name: high}\nspec: {value: 9}\n");
    node_put(w, "n1", "", "{classes: [{class: h100, count: 1}]}");
    for (int i = 0; i < 2; i++) {
        const struct object *low = world_workload(w, i ? "a" : "b",
                                                  GPUS(1) "  priorityClassName: low\n");
        world_decide_at(w, low, NOW);
        hints_run(w, low);
    }
    const struct object *o = world_workload(w, "x", GPUS(2) "  priorityClassName: high\n");
    struct place_request rq = {.workload = o, .now_ms = NOW};
    assert_int_equal(policy_preempt(w->p, &rq, w->a, &plan, &err), 0);
    assert_non_null(plan);
    assert_int_equal(plan->n, 1); /* two are free, and one of them is theirs */
    rq.workload = world_workload(w, "y", GPUS(4) "  priorityClassName: high\n");
    assert_int_equal(policy_preempt(w->p, &rq, w->a, &plan, &err), 0);
    assert_null(plan); /* and all of ours are not enough */
}

static void what_cannot_be_is_said(void **state)
{
    struct world *w = *state;
    struct err err;
    const char *const head = "kind: Node\nmetadata: {name: hub.n1}\nspec: {target: hub, gpus: "
                             "[{index: 0, class: h100, model: H100 SXM}]}\nstatus: {others: ";
    const struct {
        const char *others, *why;
    } told[] = {
        {"{gpus: [0]}", NULL},
        {"{classes: [{class: H100 SXM, count: 1}]}", NULL}, /* as its vendor spells it */
        {"{gpus: [1]}", "others hold GPU 1 of it, which it does not tell"},
        {"{classes: [{class: a100, count: 1}]}", "others hold GPUs of class a100"},
    };

    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        char text[512];

        (void)snprintf(text, sizeof text, "%s%s}\n", head, told[i].others);
        const struct node *n = object_as(world_docs(w, text, false), node);
        assert_int_equal(node_others_check(n, &err), told[i].why ? E_INVALID : 0);
        if (told[i].why)
            assert_non_null(strstr(err.text, told[i].why));
        assert_int_equal(node_others_of(n, (struct slice_kind){"", false}), 1);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(devices_with_a_number), T(devices_without_one), T(more_than_is_free),
        T(fractions),             T(cpu_and_memory),      T(gangs),
        T(preemption),            T(what_cannot_be_is_said)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
