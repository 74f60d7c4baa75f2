/* The same with a target as bad as it can be, from a seed: requests and answers are lost, come late
 * or twice, or cannot be read, listings lag or break off, orders are refused, commands or their
 * answers are lost, and leaders change in the midst of all of it. The world checks at every step
 * that what the log has as ended is gone for good, and that nothing was ordered that was in no log
 * (farm_check). In the end there is what was asked for, each key gave one machine at most, and
 * without a leader none outlives its time to live. */
#include "tests/support/machines/farm_hooks.h"

#define SEEDS 24
#define TTL_MS 60000

static struct farm_world w;

static uint32_t rnd(uint32_t n)
{
    w.chance = w.chance * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w.chance >> 33) % n;
}

static void pools_rnd(bool none)
{
    struct machine_pool v[2] = {*farm_pool(&w, "warm", none ? 0 : 1 + rnd(2)),
                                *farm_pool(&w, "other", none ? 0 : rnd(2))};

    v[1].zone = rnd(2) ? "b" : "a";
    farm_pools_set(&w, v, 2);
}

static void bad_times(void)
{
    w.faults = (struct faults){.lost = 60,
                               .late = 80,
                               .twice = 120,
                               .reply_lost = 100,
                               .propose_lost = 60,
                               .propose_unheard = 60,
                               .list_cut = 200,
                               .refuse = 200,
                               .unread = 60,
                               .lag_ms = 3000};
    for (int i = 0; i < 30; i++) {
        farm_world_run(&w, 200 + rnd(12000));
        if (rnd(3) == 0)
            farm_lead(&w); /* whatever is under way */
        if (rnd(4) == 0)
            pools_rnd(false);
        if (rnd(5) == 0 && farm_first(&w)) /* a user lets one go, sometimes one that is let go */
            (void)kit_delete(&w.kit, KIND_MACHINE, "", farm_first(&w)->meta->name);
        if (rnd(6) == 0 && w.n_rented)
            w.rented[rnd((uint32_t)w.n_rented)].until_ms = 0; /* taken back */
    }
}

static int64_t wanted(void)
{
    const struct target_spec *s =
        object_as(root_get(w.kit.root, KIND_TARGET, "", FARM_TARGET), target)->spec;

    return s->machines[0].count + s->machines[1].count;
}

static void one_world(uint64_t seed)
{
    farm_world_init(&w, seed * 2654435761u + 1);
    pools_rnd(false);
    bad_times();
    root_check(w.kit.root);
    w.faults = (struct faults){.lag_ms = 3000};
    farm_world_run(&w, 400000);
    if ((int64_t)farm_alive(&w) != wanted() || (int64_t)farm_in_phase(&w, -1) != wanted() ||
        (int64_t)farm_in_phase(&w, MACHINE_IS_JOINED) != wanted())
        fail_msg("seed %llu: %zu live, %zu are in the log, %zu joined, and %lld are wanted",
                 (unsigned long long)seed, farm_alive(&w), farm_in_phase(&w, -1),
                 farm_in_phase(&w, MACHINE_IS_JOINED), (long long)wanted());
    if (seed % 2) {
        pools_rnd(true);
        farm_world_run(&w, 60000);
        assert_int_equal(farm_in_phase(&w, -1), 0);
    } else {
        farm_leads(&w)->site.reachable = false; /* the hub is dead */
        farm_world_run(&w, TTL_MS + 1000);
    }
    assert_int_equal(farm_alive(&w), 0);
    root_check(w.kit.root);
    farm_world_fini(&w);
}

static void test_whatever_is_lost(void **state)
{
    const char *one = getenv("HANSE_SEED");

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        if (!one || strtoull(one, NULL, 10) == seed)
            one_world(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whatever_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
