/* Faults of nodes and devices: in sentences, with who found them; what cannot be is refused; and
 * who finds no room for them is told why. */
#include "tests/support/policy/hints_done.h"

static const struct node *node_of(struct world *w, const char *gpus, const char *status, bool put)
{
    char text[1024];

    (void)snprintf(text, sizeof text,
                   "kind: Node\nmetadata: {name: hub.n1}\nspec: {target: hub, cpu: 64, memory: "
                   "512Gi, gpus: [%s]}\nstatus: %s\n",
                   gpus, status);
    return object_as(world_docs(w, text, put), node);
}

#define TWO "{index: 0, class: h100}, {index: 1, class: h100, health: Sick}"
#define XID                                                                                        \
    "{faults: [{gpu: 1, reason: Xid79, source: dcgmXid, since: 2025-11-30T23:00:00Z, message: "    \
    "fallen off the bus}]}"

static void sentences(void **state)
{
    struct world *w = *state;
    char text[400];
    const struct node *n = node_of(w, TWO, XID, false);

    assert_null(node_fault(n, -1));
    assert_null(node_fault(n, 0));
    node_fault_print("hub.n1", node_fault(n, 1), text, sizeof text);
    assert_string_equal(text, "GPU 1 of node hub.n1 is sick: Xid79, by dcgmXid, since "
                              "2025-11-30T23:00:00Z: fallen off the bus");
    n = node_of(w, TWO, "{faults: [{gpu: 0, reason: A, source: agentProbe}]}", false);
    assert_int_equal(fault_device(node_fault(n, 0)), 0); /* 0 is a number */
    n = node_of(w, TWO, "{faults: [{health: NotReady, reason: B, source: nodeCondition}]}", false);
    assert_null(node_fault(n, 0));
    node_fault_print("hub.n1", node_fault(n, -1), text, sizeof text);
    assert_string_equal(text, "node hub.n1 is not ready: B, by nodeCondition");
}

static void what_cannot_be_is_said(void **state)
{
    struct world *w = *state;
    struct err err;

    assert_int_equal(node_faults_check(node_of(w, TWO, XID, false), &err), 0);
    assert_int_equal(
        node_faults_check(
            node_of(w, TWO, "{faults: [{gpu: 2, reason: A, source: agentProbe}]}", false), &err),
        E_INVALID);
    assert_non_null(strstr(err.text, "a fault of GPU 2 of it, which it does not tell"));
    assert_int_equal(node_faults_check(
                         node_of(w, TWO,
                                 "{faults: [{health: Ready, reason: A, source: agentProbe}]}",
                                 false),
                         &err),
                     E_INVALID);
}

static void what_waits_for_another_name_is_told(void **state)
{
    struct world *w = *state;

    world_target(w, "hub", "tier: hub");
    (void)node_of(w, "{index: 0, class: h100}", "{formerly: hub.n0}", true);
    for (int i = 0; i < 2; i++) {
        world_decide_at(w, world_workload(w, "x", "  resources: {gpu: {count: 1}}\n"), NOW);
        assert_pending(w, "NodeRenamed");
        assert_non_null(strstr(w->d->message, "node hub.n1 may be hub.n0 by another name"));
        world_put(w, "kind: Node\nmetadata: {name: hub.n2}\nspec: {target: hub, cpu: 1, memory: "
                     "1Gi, gpus: [{index: 0, class: h100, health: Sick}]}\n");
    }
    (void)node_of(w, "{index: 0, class: h100}", "{health: Ready}", true);
    world_decide_at(w, world_workload(w, "x", "  resources: {gpu: {count: 1}}\n"), NOW);
    assert_placed(w, "hub");
}

static void who_finds_no_room_is_told(void **state)
{
    struct world *w = *state;

    world_put(w, "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi}\n");
    world_target(w, "hub", "tier: hub, region: eu");
    (void)node_of(w, TWO, XID, true);
    world_decide_at(w, world_workload(w, "x", "  resources: {gpu: {count: 2}}\n"), NOW);
    assert_pending(w, "GpusUnhealthy");
    assert_non_null(strstr(w->d->message, "GPU 1 of node hub.n1 is sick: Xid79, by dcgmXid"));
    world_decide_at(w, world_workload(w, "x", "  resources: {gpu: {count: 3}}\n"), NOW);
    assert_pending(w, "GpusInUse"); /* nor with it */
    world_decide_at(w, world_workload(w, "x", "  resources: {gpu: {count: 1}}\n"), NOW);
    assert_placed(w, "hub");
    (void)node_of(w, TWO, "{health: NotReady, faults: [{health: NotReady, reason: DiskPressure, "
                          "source: nodeCondition}]}",
                  true);
    world_decide_at(w, world_workload(w, "x", "  resources: {gpu: {count: 1}}\n"), NOW);
    assert_pending(w, "NodeNotReady");
    assert_non_null(strstr(w->d->message, "is not ready: DiskPressure, by nodeCondition"));
    /* What its target says of it where nothing is wrong: why nothing new may come. */
    world_put(w, "kind: Node\nmetadata: {name: hub.n1}\nspec: {target: hub, cpu: 64, memory: "
                 "512Gi, unschedulable: true, gpus: [{index: 0, class: h100}]}\n"
                 "status: {health: Ready, reason: \"tainted: team=a:NoSchedule\"}\n");
    world_decide_at(w, world_workload(w, "x", "  resources: {gpu: {count: 1}}\n"), NOW);
    assert_pending(w, "NodeNotReady");
    assert_non_null(strstr(w->d->message, "node hub.n1: tainted: team=a:NoSchedule"));
}

/* What runs on a sick device must leave it, and is told whose word that is. */
static void what_runs_there_is_told(void **state)
{
    struct world *w = *state;
    struct move_choice c = {0};
    struct err err;

    world_put(w, "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi}\n");
    world_target(w, "hub", "tier: hub, region: eu");
    (void)node_of(w, "{index: 0, class: h100}, {index: 1, class: h100}", "{health: Ready}", true);
    const struct object *o = world_workload(w, "x", "  resources: {gpu: {count: 2}}\n");
    world_decide_at(w, o, NOW);
    assert_placed(w, "hub");
    struct workload *b = object_edit_as(o, workload, w->a);
    b->status = arena_new(w->a, struct workload_status);
    b->status->phase = PHASE_RUNNING;
    b->status->epoch = 1;
    b->status->placement = w->pl;
    struct object *running = object_make(o->kind, b);
    pool_hold(w->p, running);
    (void)node_of(w, TWO, XID, true);
    assert_int_equal(policy_must_leave(w->p, running, NOW), MOVE_SICK);
    struct place_request rq = {.workload = running, .now_ms = NOW};
    assert_int_equal(policy_move(w->p, &rq, MOVE_SICK, w->a, &c, &err), 0);
    assert_non_null(strstr(c.why, "Xid79, by dcgmXid"));
    (void)object_unref(running);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {T(sentences), T(what_cannot_be_is_said),
                                       T(what_waits_for_another_name_is_told),
                                       T(who_finds_no_room_is_told), T(what_runs_there_is_told)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
