/* Windows: times of a week at which a policy's workloads may hold less. */
#include "tests/support/policy/policy_world.h"

#define GPU(n) "  resources: {gpu: {count: " #n "}, cpu: 4, memory: 8Gi}\n"
#define MINUTE 60000

/* Berlin as in 2026: +2 from 29 March 01:00 UTC to 25 October 01:00 UTC; Kolkata: +5:30. */
#define SPRING 1774746000000
#define AUTUMN 1792890000000

static int zones(void *arg, const char *zone, int64_t utc_ms, int32_t *ret)
{
    (void)arg;
    if (strcmp(zone, "Asia/Kolkata") == 0) {
        *ret = 19800;
        return 0;
    }
    *ret = utc_ms >= SPRING && utc_ms < AUTUMN ? 7200 : 3600;
    return strcmp(zone, "Europe/Berlin") == 0 ? 0 : E_NOTFOUND;
}

static void site(struct world *w, const char *policy)
{
    char text[1024];

    world_target(w, "hub", "tier: hub");
    world_nodes(w, "hub", 3, 8, "h100", "");
    (void)snprintf(text, sizeof(text), "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {%s}\n",
                   policy);
    world_put(w, text);
    pool_set_zone_resolver(w->p, zones, NULL);
}

static int64_t utc(const char *text)
{
    int64_t ms;
    struct err err;

    if (time_parse(text, &ms, &err) != 0)
        fail_msg("%s", err.text);
    return ms;
}

/* Closed until `opens`, to the millisecond, and said so. */
static void closed(struct world *w, const struct object *o, const char *at, const char *opens,
                   const char *says)
{
    world_decide_at(w, o, utc(at));
    assert_pending(w, "WindowClosed");
    if (!strstr(w->d->message, says))
        fail_msg("at %s: %s", at, w->d->message);
    if (!opens)
        return;
    world_decide_at(w, o, utc(opens) - 1);
    assert_pending(w, "WindowClosed");
    world_decide_at(w, o, utc(opens));
    assert_non_null(w->pl);
}

static void open_at(struct world *w, const struct object *o, const char *at)
{
    world_decide_at(w, o, utc(at));
    if (!w->pl)
        fail_msg("at %s: %s", at, w->d->message);
}

static void test_windows_and_max_gpus(void **state)
{
    struct world *w = *state;
    const struct object *o;

    site(w, "maxGPUs: 12, windows: [{days: [mon], from: '08:00', to: '18:00', timezone: "
            "Europe/Berlin, maxGPUs: 4}]");
    pool_set_zone_resolver(w->p, NULL, NULL);
    world_run(w, "a", GPU(1));
    assert_pending(w, "WindowClosed"); /* the zone is not known */
    assert_non_null(strstr(w->d->message, "Europe/Berlin of a window is not known"));
    pool_set_zone_resolver(w->p, zones, NULL);
    o = world_workload(w, "b", GPU(5));
    closed(w, o, "2025-12-01T07:00:00Z", "2025-12-01T17:00:00Z",
           "policy p allows 4 GPUs now; 0 are held, this asks for 5; opens 2025-12-01 18:00 "
           "Europe/Berlin");
    open_at(w, o, "2025-12-01T06:59:59.999Z");
    open_at(w, o, "2025-12-02T12:00:00Z"); /* Tuesday */
    world_run(w, "c", GPU(8));
    assert_non_null(w->pl);
    world_run(w, "d", GPU(8));
    assert_pending(w, "PolicyLimitReached");
}

static void test_over_midnight(void **state)
{
    struct world *w = *state;
    const struct object *o;

    site(w, "windows: [{days: [fri], from: '22:00', to: '06:00', timezone: Asia/Kolkata}]");
    o = world_workload(w, "a", GPU(1));
    open_at(w, o, "2026-06-05T16:29:59Z"); /* Friday 21:59 */
    closed(w, o, "2026-06-05T16:30:00Z", "2026-06-06T00:30:00Z",
           "opens 2026-06-06 06:00 Asia/Kolkata");
    closed(w, o, "2026-06-05T20:00:00Z", "2026-06-06T00:30:00Z",
           "opens 2026-06-06 06:00 Asia/Kolkata"); /* Saturday 01:30 belongs to Friday */
    open_at(w, o, "2026-06-04T20:00:00Z");         /* Friday 01:30 to Thursday */
}

/* The night on which clocks go from 02:00 to 03:00. */
static void test_spring(void **state)
{
    struct world *w = *state;
    const struct object *o;

    site(w, "windows: [{from: '01:00', to: '02:30', timezone: Europe/Berlin}]");
    o = world_workload(w, "a", GPU(1));
    closed(w, o, "2026-03-28T00:10:00Z", "2026-03-28T01:30:00Z", "2026-03-28 02:30");
    /* 02:30 does not come: the window ends as the clocks are put on. */
    closed(w, o, "2026-03-29T00:10:00Z", "2026-03-29T01:00:00Z", "2026-03-29 03:00");
    closed(w, o, "2026-03-29T23:00:00Z", "2026-03-30T00:30:00Z", "2026-03-30 02:30");
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {windows: [{from: '20:00', to: "
                 "'08:00', timezone: Europe/Berlin}]}\n");
    closed(w, o, "2026-03-28T19:00:00Z", "2026-03-29T06:00:00Z", "2026-03-29 08:00");
}

/* The night on which 02:00 to 03:00 comes twice. */
static void test_autumn(void **state)
{
    struct world *w = *state;
    const struct object *o;

    site(w, "windows: [{from: '01:00', to: '02:30', timezone: Europe/Berlin}]");
    o = world_workload(w, "a", GPU(1));
    closed(w, o, "2026-10-24T23:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25 02:30");
    closed(w, o, "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25 02:30");
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {windows: [{from: '20:00', to: "
                 "'08:00', timezone: Europe/Berlin}]}\n");
    closed(w, o, "2026-10-24T18:00:00Z", "2026-10-25T07:00:00Z", "2026-10-25 08:00");
}

static void test_several_windows(void **state)
{
    struct world *w = *state;
    const struct object *o;

    /* One after the other, one inside another, one of another zone. */
    site(w, "windows: [{days: [mon], from: '08:00', to: '12:00', timezone: UTC, maxGPUs: 4}, "
            "{days: [mon], from: '12:00', to: '20:00', timezone: UTC, maxGPUs: 2}, {days: [mon], "
            "from: '18:00', to: '22:00', timezone: Europe/Berlin, maxGPUs: 3}]");
    o = world_workload(w, "a", GPU(5));
    closed(w, o, "2025-12-01T09:00:00Z", "2025-12-01T21:00:00Z", "allows 4 GPUs now");
    assert_int_equal(w->pl->gpus, 5000);
    closed(w, o, "2025-12-01T17:30:00Z", "2025-12-01T21:00:00Z", "opens 2025-12-01 21:00 UTC");
    o = world_workload(w, "b", GPU(3));
    open_at(w, o, "2025-12-01T09:00:00Z");
    closed(w, o, "2025-12-01T13:00:00Z", "2025-12-01T20:00:00Z", "allows 2 GPUs now");
    /* Never in a week. */
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {windows: [{from: '00:00', to: "
                 "'12:00', timezone: UTC, maxGPUs: 4}, {from: '12:00', to: '00:00', timezone: UTC, "
                 "maxGPUs: 4}]}\n");
    o = world_workload(w, "c", GPU(5));
    closed(w, o, "2025-12-01T09:00:00Z", NULL, "; no time of the coming week allows as many");
    /* from equal to to: round the clock, on its days. */
    world_put(w, "kind: PlacementPolicy\nmetadata: {name: p}\nspec: {windows: [{days: [sat, sun], "
                 "from: '06:00', to: '06:00', timezone: UTC}]}\n");
    closed(w, o, "2025-12-06T06:00:00Z", "2025-12-08T06:00:00Z", "opens 2025-12-08 06:00 UTC");
}

/* What runs goes on when a window begins, is not told to leave, and counts against what may
 * start. */
static void test_more_is_held(void **state)
{
    struct world *w = *state;
    const struct object *o;

    site(w, "windows: [{from: '08:00', to: '18:00', timezone: UTC, maxGPUs: 4}], migrate: {when: "
            "[drain, cheaper, repatriate, data]}");
    world_run(w, "a", GPU(8)); /* at midnight */
    assert_non_null(w->pl);
    o = world_docs(w,
                   "kind: Workload\nmetadata: {name: a, namespace: dev, uid: uid-a}\nspec: {run: "
                   "{command: [x]}, resources: {gpu: {count: 8}}}\nstatus: {phase: Running, "
                   "placement: {target: hub, class: h100, gpus: 8000}}\n",
                   false);
    assert_int_equal(policy_must_leave(w->p, o, NOW + 9 * 60 * MINUTE), 0);
    o = world_workload(w, "b", GPU(1));
    closed(w, o, "2025-12-01T09:00:00Z", "2025-12-01T18:00:00Z",
           "policy p allows 4 GPUs now; 8 are held, this asks for 1; opens 2025-12-01 18:00 UTC");
    pool_drop(w->p, "uid-a");
    open_at(w, o, "2025-12-01T09:00:00Z");
    /* An elastic gang takes what the window leaves. */
    o = world_workload(w, "g", GPU(1) "  gang: {workers: 6, minWorkers: 2}\n");
    open_at(w, o, "2025-12-01T09:00:00Z");
    assert_int_equal(w->pl->gpus, 4000);
    open_at(w, o, "2025-12-01T19:00:00Z");
    assert_int_equal(w->pl->gpus, 6000);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        T(test_windows_and_max_gpus), T(test_over_midnight), T(test_spring), T(test_autumn),
        T(test_several_windows),      T(test_more_is_held),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
