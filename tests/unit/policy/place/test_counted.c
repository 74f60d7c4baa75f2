/* Devices that a node has by count alone: a placement holds a number of them, and what is free is
 * the healthy ones less what is held, whoever holds it and whatever the node says next. */
#include "tests/support/policy/hints_done.h"

#define GPUS(n) "  resources: {gpu: {count: " #n "}}\n"

static void node_put(struct world *w, const char *name, const char *devices, const char *status)
{
    char text[2048];

    (void)snprintf(text, sizeof text,
                   "kind: Node\nmetadata: {name: hub.%s}\nspec: {target: hub, cpu: 64, memory: "
                   "512Gi, %s}\nstatus: {health: Ready%s%s}\n",
                   name, devices, *status ? ", " : "", status);
    world_put(w, text);
}

static void counts(struct world *w, const char *name, int count, int unhealthy)
{
    char text[128];

    (void)snprintf(text, sizeof text, "counted: [{class: h100, count: %d, unhealthy: %d}]", count,
                   unhealthy);
    node_put(w, name, text, "");
}

static void begin(struct world *w)
{
    world_put(w, "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi}\n---\n"
                 "kind: GpuClass\nmetadata: {name: a100}\nspec: {memory: 40Gi}\n---\n"
                 "kind: GpuClass\nmetadata: {name: b200}\nspec: {memory: 180Gi, interconnect: "
                 "nvlink}\n");
    world_target(w, "hub", "tier: hub, region: eu");
}

static void decide(struct world *w, const char *spec)
{
    world_decide_at(w, world_workload(w, "x", spec), NOW);
}

static int64_t is_free(const struct world *w, const char *class_)
{
    return pool_free_gpu_milli(w->p, class_) / 1000;
}

static void a_number_of_them(void **state)
{
    struct world *w = *state;

    begin(w);
    counts(w, "n1", 8, 0);
    world_run(w, "a", GPUS(3));
    assert_placed(w, "hub");
    assert_int_equal(w->pl->assignments[0].count, 3);
    assert_int_equal(w->pl->assignments[0].n_gpus, 0);
    assert_int_equal(w->pl->assignments[0].gpuMilli, 1000);
    assert_int_equal(w->pl->gpus, 3000);
    assert_int_equal(is_free(w, "h100"), 5);
    decide(w, GPUS(6));
    assert_pending(w, "GpusInUse");
    world_run(w, "b", GPUS(5));
    assert_placed(w, "hub");
    decide(w, GPUS(1));
    assert_pending(w, "GpusInUse");
    pool_drop(w->p, "uid-a");
    assert_int_equal(is_free(w, "h100"), 3);
    struct pool *fork = pool_fork(w->p);
    assert_int_equal(pool_free_gpu_milli(fork, NULL), 3000);
    (void)pool_destroy(fork);
}

/* What is held stays held when there are fewer of them, and when they come back. */
static void fewer_than_are_held(void **state)
{
    struct world *w = *state;

    begin(w);
    counts(w, "n1", 8, 0);
    world_run(w, "a", GPUS(4));
    world_run(w, "b", GPUS(2));
    counts(w, "n1", 8, 1);
    assert_int_equal(is_free(w, "h100"), 1);
    decide(w, GPUS(2));
    assert_pending(w, "GpusUnhealthy");
    assert_non_null(strstr(w->d->message, "1 of 8 h100 of node hub.n1 are unhealthy"));
    counts(w, "n1", 8, 5); /* 3 are left, and 6 are held */
    assert_int_equal(is_free(w, "h100"), 0);
    decide(w, GPUS(3)); /* were all healthy there would be two */
    assert_pending(w, "GpusInUse");
    pool_drop(w->p, "uid-b");
    assert_int_equal(is_free(w, "h100"), 0);
    counts(w, "n1", 6, 0);
    assert_int_equal(is_free(w, "h100"), 2);
    pool_drop(w->p, "uid-a");
    assert_int_equal(is_free(w, "h100"), 6);
    counts(w, "n1", 6, 6);
    assert_int_equal(is_free(w, "h100"), 0);
}

static void beside_others(void **state)
{
    struct world *w = *state;

    begin(w);
    node_put(w, "n1", "counted: [{class: h100, count: 8}]",
             "others: {classes: [{class: h100, count: 3}]}");
    assert_int_equal(is_free(w, "h100"), 5);
    decide(w, GPUS(6));
    assert_pending(w, "HeldByOthers");
    assert_non_null(strstr(w->d->message, "others than Hanse hold 3 h100 on 1 node"));
    world_run(w, "a", GPUS(5));
    assert_placed(w, "hub");
    node_put(w, "n1", "counted: [{class: h100, count: 8}]",
             "others: {classes: [{class: h100, count: 1}]}");
    assert_int_equal(is_free(w, "h100"), 2);
    counts(w, "n1", 8, 0);
    assert_int_equal(is_free(w, "h100"), 3);
}

/* A node may number some of its devices and count others; gangs may lie on both kinds of nodes. */
static void mixed(void **state)
{
    struct world *w = *state;
    int64_t numbered = 0, counted = 0;

    begin(w);
    node_put(w, "n1",
             "gpus: [{index: 0, class: a100}, {index: 5, class: a100}], counted: [{class: h100, "
             "count: 2}]",
             "");
    decide(w, "  resources: {gpu: {count: 2, classes: [a100]}}\n");
    assert_placed(w, "hub");
    assert_int_equal(w->pl->assignments[0].gpus[1], 5);
    assert_int_equal(w->pl->assignments[0].count, 0);
    decide(w, "  resources: {gpu: {count: 2, classes: [h100]}}\n");
    assert_placed(w, "hub");
    assert_int_equal(w->pl->assignments[0].count, 2);
    node_put(w, "n2", "gpus: [{index: 0, class: h100}, {index: 1, class: h100}]", "");
    decide(w, "  gang: {workers: 2}\n  resources: {gpu: {count: 2, classes: [h100]}}\n");
    assert_placed(w, "hub");
    for (uint32_t i = 0; i < 2; i++) {
        numbered += w->pl->assignments[i].n_gpus;
        counted += w->pl->assignments[i].count;
    }
    assert_int_equal(numbered, 2);
    assert_int_equal(counted, 2);
    decide(w, "  gang: {workers: 5}\n  resources: {gpu: {count: 1, classes: [h100]}}\n");
    assert_pending(w, "GangDoesNotFit");
}

/* Nobody knows which device a fraction would lie on, so none does; and all of a class that NVLink
 * joins are joined, whichever they are. */
static void no_fractions(void **state)
{
    struct world *w = *state;

    begin(w);
    counts(w, "n1", 4, 0);
    decide(w, "  resources: {gpu: {fraction: 0.5}}\n");
    assert_null(w->pl);
    decide(w, "  resources: {gpu: {mig: 1g.10gb}}\n");
    assert_null(w->pl);
    decide(w, "  resources: {gpu: {count: 2, interconnect: nvlink}}\n");
    assert_null(w->pl);
    node_put(w, "n2", "counted: [{class: b200, count: 4}]", "");
    decide(w, "  resources: {gpu: {count: 4, interconnect: nvlink}}\n");
    assert_placed(w, "hub");
    assert_string_equal(w->pl->class_, "b200");
}

/* The node tells numbers where it counted, or counts where it told numbers, while work runs. */
static void told_the_other_way(void **state)
{
    struct world *w = *state;
    const char *const four = "gpus: [{index: 0, class: h100}, {index: 1, class: h100}, {index: 2, "
                             "class: h100}, {index: 3, class: h100}]";

    begin(w);
    counts(w, "n1", 4, 0);
    world_run(w, "a", GPUS(3));
    node_put(w, "n1", four, "");
    assert_int_equal(is_free(w, "h100"), 1);
    decide(w, GPUS(2));
    assert_pending(w, "GpusInUse");
    world_run(w, "b", GPUS(1));
    assert_placed(w, "hub");
    assert_int_equal(w->pl->assignments[0].n_gpus, 1);
    assert_int_equal(is_free(w, "h100"), 0);
    counts(w, "n1", 4, 0); /* and back: now b's number means nothing */
    assert_int_equal(is_free(w, "h100"), 0);
    pool_drop(w->p, "uid-a");
    assert_int_equal(is_free(w, "h100"), 3);
    node_put(w, "n1", four, "");
    assert_int_equal(is_free(w, "h100"), 3);
    pool_drop(w->p, "uid-b");
    assert_int_equal(is_free(w, "h100"), 4);
}

/* By whichever way work came and went, what is free is what is not held. */
static void comes_and_goes(void **state)
{
    struct world *w = *state;
    uint64_t s = 7;
    int64_t held[6] = {0}, most = 8;

    begin(w);
    counts(w, "n1", 8, 0);
    for (int i = 0; i < 600; i++) {
        uint32_t which;
        char name[8], uid[16];
        int64_t sum = 0;

        s = s * 6364136223846793005u + 1442695040888963407u;
        which = (uint32_t)(s >> 40) % 6;
        (void)snprintf(name, sizeof name, "w%u", which);
        (void)snprintf(uid, sizeof uid, "uid-w%u", which);
        if ((s >> 33) % 11 == 0) {
            most = 2 + (int64_t)((s >> 50) % 7);
            counts(w, "n1", 8, 8 - (int)most);
        } else if (held[which]) {
            pool_drop(w->p, uid);
            held[which] = 0;
        } else {
            char spec[64];
            int64_t ask = 1 + (int64_t)((s >> 45) % 4);

            for (int k = 0; k < 6; k++)
                sum += held[k];
            (void)snprintf(spec, sizeof spec, "  resources: {gpu: {count: %d}}\n", (int)ask);
            world_run(w, name, spec);
            assert_int_equal(w->pl != NULL, sum + ask <= most);
            held[which] = w->pl ? ask : 0;
        }
        sum = 0;
        for (int k = 0; k < 6; k++)
            sum += held[k];
        assert_int_equal(is_free(w, "h100"), most > sum ? most - sum : 0);
    }
}

static void what_cannot_be_is_said(void **state)
{
    struct world *w = *state;
    struct err err;
    const struct {
        const char *devices, *why;
    } told[] = {
        {"counted: [{class: h100, count: 8, unhealthy: 8}, {model: A100, count: 1}]", NULL},
        {"counted: [{count: 8}]", "tells no class nor model"},
        {"counted: [{class: h100, count: 8, unhealthy: 9}]", "it counts 8, 9 of them unhealthy"},
        {"counted: [{class: h100, count: 1}, {class: h100, count: 2}]", "it tells h100 twice"},
        {"gpus: [{index: 0, class: h100}], counted: [{class: h100, count: 1}]",
         "it tells h100 twice"},
        {"counted: [{class: h100, count: 192}, {class: a100, count: 1}]", "more than 192"},
    };

    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        char text[512];

        (void)snprintf(text, sizeof text,
                       "kind: Node\nmetadata: {name: hub.n1}\nspec: {target: hub, %s}\n",
                       told[i].devices);
        const struct node *n = object_as(world_docs(w, text, false), node);
        assert_int_equal(node_counted_check(n, &err), told[i].why ? E_INVALID : 0);
        if (told[i].why && !strstr(err.text, told[i].why))
            fail_msg("%s", err.text);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {T(a_number_of_them),   T(fewer_than_are_held),
                                       T(beside_others),      T(mixed),
                                       T(no_fractions),       T(told_the_other_way),
                                       T(comes_and_goes),     T(what_cannot_be_is_said)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
