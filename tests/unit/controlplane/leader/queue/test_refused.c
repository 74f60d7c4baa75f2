/* A place that apply refuses, because the state has moved on: the pool holds what the state has by
 * then, neither the guess nor nothing. */
#include "api/base/loop/loop.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/move/preempt.h"
#include "controlplane/leader/queue/cycle.h"
#include "controlplane/leader/queue/held.h"
#include "controlplane/leader/queue/scheduler.h"
#include "controlplane/leader/queue/waiting.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"

/* The way into the log is the test's. */
static struct {
    propose_cb cb;
    void *arg;
} asked;

void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    (void)b;
    (void)c;
    asked.cb = cb;
    asked.arg = arg;
}
void brain_propose_bytes(struct brain *b, const char *id, struct slice s, propose_cb cb, void *arg)
{
    (void)b;
    (void)id;
    (void)s;
    (void)cb;
    (void)arg;
    fail();
}
void brain_request_id(struct brain *b, char out[REQUEST_ID_MAX])
{
    (void)b;
    (void)snprintf(out, REQUEST_ID_MAX, "place");
}

static void test_what_the_state_has_stays_held(void **state)
{
    struct sites sites = {0};
    struct scheduler scheduler = {0};
    struct cycles cycles = {0};
    struct waiting waiting = {0};
    struct held_back held = {0};
    struct movers movers = {0};
    struct preempts preempts = {0};
    struct brain b = {.sites = &sites,
                      .scheduler = &scheduler,
                      .cycles = &cycles,
                      .waiting = &waiting,
                      .held = &held,
                      .movers = &movers,
                      .preempts = &preempts};
    const struct result stale = {.code = E_STALE, .text = "it moved on"};
    struct decision_spec decision = {.queue = "default"};
    struct kit k;
    struct err err;

    (void)state;
    kit_begin(&k);
    kit_pool(&k, 1, 8);
    assert_int_equal(kit_workload(&k, k.ns, "w", 1, 2).code, 0);
    b.loop = loop_uv_create(&err);
    assert_non_null(b.loop);
    b.root = k.root;
    sites_init(&b);
    movers_init(&b);
    preempt_init(&b);
    scheduler_reset(&b);
    scheduler_reach(&b, "fra", true);
    assert_int_equal(pool_free_gpu_milli(b.pool, NULL), 8000);

    const struct object *before = object_ref(kit_get(&k, "w"));
    const struct cycle_item it = {
        .workload = before, .decision = &decision, .placement = kit_workers(&k, "fra.n0", 4, 1, 2)};
    scheduler_tell(&b, &it);
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 2).code, 0); /* somebody was faster */
    b.root = k.root;
    scheduler_change(
        &b, &(struct change){.kind = KIND_WORKLOAD, .before = before, .after = kit_get(&k, "w")});
    assert_int_equal(pool_free_gpu_milli(b.pool, NULL), 6000);
    asked.cb(asked.arg, &stale, NULL);
    assert_int_equal(pool_free_gpu_milli(b.pool, NULL), 6000);
    assert_int_equal(scheduler.refused, 1);

    (void)object_unref(before);
    cycle_stop(&b);
    waiting_drop(&b);
    held_drop(&b);
    preempt_drop(&b);
    b.pool = pool_destroy(b.pool);
    loop_uv_destroy(b.loop);
    kit_end(&k);
}

/* ---- what never runs ---- */
struct trier {
    struct kit kit;
    struct brain brain;
    struct held_back held;
};

/* Placed, dispatched, and taken back for that reason, or seen running and then so. True: it is not
 * to be placed yet. */
static bool tried(struct trier *x, const char *reason, bool ran)
{
    const struct object *before = object_ref(kit_get(&x->kit, "w"));
    int64_t epoch = kit_status(&x->kit, "w")->epoch + 1;
    struct kit *k = &x->kit;

    assert_int_equal(kit_place(k, "w", "fra.n0", 0, 1, 1).code, 0);
    (void)held_back(&x->brain, before, kit_get(k, "w"));
    assert_int_equal(kit_run(k, "w", epoch, 1, STEP_DISPATCH).code, 0);
    if (ran) {
        assert_int_equal(kit_run(k, "w", epoch, 1, STEP_RUNNING).code, 0);
        (void)held_back(&x->brain, NULL, kit_get(k, "w"));
    }
    (void)object_unref(before);
    before = object_ref(kit_get(k, "w"));
    k->reason = reason;
    k->requeue = true;
    assert_int_equal(kit_run(k, "w", epoch, 1, ran ? STEP_ENDED : STEP_ABSENT).code, 0);
    k->reason = NULL;
    bool held = held_back(&x->brain, before, kit_get(k, "w"));
    (void)object_unref(before);
    return held;
}

/* A store that cannot be reached, a zone that is full and that nobody named: each is nobody's fault
 * for once, and must not go round as fast as the log does. */
static void test_who_never_runs_waits_longer_each_time(void **state)
{
    static const char *const reasons[] = {"StoreUnreachable", "TargetRefused", "Absent",
                                          "PendingTooLong"};
    struct trier x;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        x = (struct trier){0};
        x.brain.held = &x.held;
        x.brain.loop = loop_uv_create(&err);
        assert_non_null(x.brain.loop);
        held_reset(&x.brain);
        kit_begin(&x.kit);
        kit_pool(&x.kit, 1, 1);
        assert_int_equal(kit_workload(&x.kit, x.kit.ns, "w", 1, 1).code, 0);
        for (int n = 0; n < 3; n++)
            assert_false(tried(&x, reasons[i], false)); /* another place may do better */
        for (int n = 0; n < 3; n++)
            assert_true(tried(&x, reasons[i], false));
        assert_false(tried(&x, "LeaseLost", true)); /* it ran: all that is forgotten */
        assert_false(tried(&x, reasons[i], false));
        assert_true(tried(&x, "SecretMissing", false)); /* its own fault: at once */
        held_drop(&x.brain);
        loop_uv_destroy(x.brain.loop);
        kit_end(&x.kit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_state_has_stays_held),
        cmocka_unit_test(test_who_never_runs_waits_longer_each_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
