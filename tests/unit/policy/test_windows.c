/* Windows: times of a week at which a policy's workloads may hold less. */
#include "tests/unit/policy/policy_world.h"

#define GPU(n) "  resources: {gpu: {count: " #n "}, cpu: 4, memory: 8Gi}\n"
#define MINUTE 60000

static int setup(void **state)
{
    static struct world w;

    world_init(&w);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    return 0;
}

static int berlin(void *arg, const char *zone, int64_t utc_ms, int32_t *ret)
{
    (void)arg;
    (void)utc_ms;
    *ret = 3600;
    return strcmp(zone, "Europe/Berlin") == 0 ? 0 : E_NOTFOUND;
}

static void test_windows_and_max_gpus(void **state)
{
    struct world *w = *state;
    const struct object *o;

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 3, 8, "h100", "");
    world_put(
        w,
        "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {maxGPUs: 12, windows: [{days: [mon], "
        "from: '08:00', to: '18:00', timezone: Europe/Berlin, maxGPUs: 4}]}\n");
    world_run(w, "a", GPU(1));
    assert_pending(w, "WindowClosed"); /* the zone is not known */
    pool_set_zone_resolver(w->p, berlin, NULL);
    o = world_workload(w, "b", GPU(5));
    world_decide_at(w, o, NOW + 7 * 60 * MINUTE); /* 08:00 in Berlin */
    assert_pending(w, "WindowClosed");
    world_decide_at(w, o, NOW + 7 * 60 * MINUTE - 1);
    assert_non_null(w->pl);
    world_decide_at(w, o, NOW + 17 * 60 * MINUTE);
    assert_non_null(w->pl);
    world_decide_at(w, o, NOW + 31 * 60 * MINUTE); /* Tuesday */
    assert_non_null(w->pl);
    world_run(w, "c", GPU(8));
    assert_non_null(w->pl);
    world_run(w, "d", GPU(8));
    assert_pending(w, "PolicyLimitReached");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_windows_and_max_gpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
