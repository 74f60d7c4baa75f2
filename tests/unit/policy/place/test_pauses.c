/* What a target refused lately: a decision does not ask there again before the time is over, says
 * so with the target's own words, and goes elsewhere meanwhile. */
#include "tests/support/policy/policy_world.h"

#define MINUTE 60000
#define UNTIL "2025-12-01T00:10:00Z"

static void target_paused(struct world *w, const char *name, const char *pauses)
{
    char text[1024];

    (void)snprintf(
        text, sizeof text,
        "kind: Target\nmetadata: {name: %s}\nspec: {type: agent, tier: hub, region: eu}\n"
        "status: {pauses: [%s]}\n",
        name, pauses);
    world_put(w, text);
}

static void node(struct world *w, const char *name, const char *class_, const char *zone)
{
    char text[1024];

    (void)snprintf(text, sizeof text,
                   "kind: Node\nmetadata: {name: hub.%s}\nspec: {target: hub, cpu: 64, memory: "
                   "512Gi, topology: {region: eu, zone: %s}, gpus: [{index: 0, class: %s}]}\n",
                   name, zone, class_);
    world_put(w, text);
}

static const struct object *decide(struct world *w, const char *more, int64_t now)
{
    char spec[512];

    (void)snprintf(spec, sizeof spec, "  resources: {gpu: {count: 1}}\n%s", more);
    const struct object *o = world_workload(w, "x", spec);
    world_decide_at(w, o, now);
    return o;
}

static void classes(struct world *w)
{
    world_put(w, "kind: GpuClass\nmetadata: {name: h100}\nspec: {memory: 80Gi}\n---\n"
                 "kind: GpuClass\nmetadata: {name: a100}\nspec: {memory: 80Gi}\n");
    world_target(w, "hub", "tier: hub, region: eu");
}

static void a_target_is_asked_again_in_time(void **state)
{
    struct world *w = *state;

    classes(w);
    node(w, "n1", "h100", "a");
    decide(w, "", NOW);
    assert_placed(w, "hub");
    target_paused(w, "hub",
                  "{scope: target, refusal: quota, until: '" UNTIL "', message: 48 CPUs of 48}");
    decide(w, "", NOW);
    assert_pending(w, "TargetPaused");
    assert_non_null(strstr(w->d->message, "48 CPUs of 48"));
    assert_non_null(strstr(w->d->message, UNTIL));
    assert_non_null(strstr(w->d->message, "(quota)"));
    assert_true(policy_waits_for(w->d, CURE_TIME, true)); /* it is looked at again by time */
    decide(w, "", NOW + 10 * MINUTE - 1);
    assert_pending(w, "TargetPaused");
    decide(w, "", NOW + 10 * MINUTE);
    assert_placed(w, "hub");
}

static void it_goes_elsewhere_meanwhile(void **state)
{
    struct world *w = *state;

    classes(w);
    node(w, "n1", "h100", "a");
    world_target(w, "spoke", "tier: spoke, region: eu");
    world_nodes(w, "spoke", 1, 1, "h100", "");
    target_paused(w, "hub", "{scope: target, refusal: capacity, until: '" UNTIL "'}");
    decide(w, "", NOW);
    assert_placed(w, "spoke");
    assert_string_equal(world_row(w, "hub")->reason, "TargetPaused");
}

static void a_class_alone_is_paused(void **state)
{
    struct world *w = *state;

    classes(w);
    node(w, "n1", "h100", "a");
    node(w, "n2", "a100", "a");
    target_paused(w, "hub",
                  "{scope: class, name: h100, refusal: capacity, until: '" UNTIL
                  "', message: none left}");
    decide(w, "", NOW);
    assert_placed(w, "hub");
    assert_string_equal(w->pl->class_, "a100");
    decide(w, "  targets: {names: [hub]}\n", NOW);
    assert_string_equal(w->pl->class_, "a100");
    const struct object *o =
        world_workload(w, "y", "  resources: {gpu: {count: 1, classes: [h100]}}\n");
    world_decide_at(w, o, NOW);
    assert_pending(w, "TargetPaused");
    assert_non_null(strstr(w->d->message, "class h100"));
    assert_non_null(strstr(w->d->message, "none left"));
    world_decide_at(w, o, NOW + 10 * MINUTE);
    assert_placed(w, "hub");
}

static void a_zone_alone_is_paused(void **state)
{
    struct world *w = *state;

    classes(w);
    node(w, "n1", "h100", "a");
    node(w, "n2", "h100", "b");
    target_paused(w, "hub",
                  "{scope: zone, name: a, refusal: capacity, until: '" UNTIL
                  "', message: no such machine}");
    for (int i = 0; i < 2; i++) {
        world_run(w, i ? "second" : "first", "  resources: {gpu: {count: 1}}\n");
        if (!i)
            assert_string_equal(w->pl->assignments[0].node, "hub.n2");
    }
    assert_pending(w, "TargetPaused");
    assert_non_null(strstr(w->d->message, "zone a"));
    assert_non_null(strstr(w->d->message, "no such machine"));
    assert_int_equal(pool_free_gpu_milli(w->p, "h100"), 0); /* none that may be used */
    decide(w, "", NOW + 10 * MINUTE);
    assert_placed(w, "hub");
    assert_string_equal(w->pl->assignments[0].node, "hub.n1");
    decide(w, "", NOW); /* and shut again, if one looks at an earlier time */
    assert_pending(w, "TargetPaused");
    target_paused(w, "hub", ""); /* its document says nothing of it any more */
    decide(w, "", NOW);
    assert_placed(w, "hub");
}

/* It runs there: that its zone takes nothing new makes it leave nothing. */
static void who_runs_there_stays(void **state)
{
    struct world *w = *state;

    classes(w);
    node(w, "n1", "h100", "a");
    const struct object *o = decide(w, "", NOW);
    pool_hold_placement(w->p, o, w->pl);
    target_paused(w, "hub",
                  "{scope: zone, name: a, refusal: capacity, until: '" UNTIL "'}, {scope: target, "
                  "refusal: throttled, until: '" UNTIL "'}");
    (void)world_workload(w, "z", "");
    decide(w, "", NOW);
    assert_int_equal(policy_must_leave(w->p, o, NOW), 0);
}

static void who_was_denied_goes_elsewhere(void **state)
{
    static const char denied[] = "status: {ends: [{target: hub, reason: RunDenied, generation: 0, "
                                 "deniedUntil: '" UNTIL "', message: no such image}]}\n";
    struct memo *m = policy_memo_create();
    struct world *w = *state;
    struct place_request rq = {.now_ms = NOW, .memo = m};
    struct err err;

    classes(w);
    node(w, "n1", "h100", "a");
    decide(w, denied, NOW);
    assert_pending(w, "RunDenied");
    assert_non_null(strstr(w->d->message, "no such image"));
    assert_non_null(strstr(w->d->message, UNTIL));
    /* Who asks for the same and was not denied does not share its answer. */
    rq.workload = world_workload(w, "a", "  resources: {gpu: {count: 2}}\n");
    assert_int_equal(policy_place(w->p, &rq, w->a, &w->d, &w->pl, &err), 0);
    assert_string_equal(w->d->reason, "GpusInUse");
    char spec[512];
    (void)snprintf(spec, sizeof spec, "  resources: {gpu: {count: 2}}\n%s", denied);
    rq.workload = world_workload(w, "a", spec);
    assert_int_equal(policy_place(w->p, &rq, w->a, &w->d, &w->pl, &err), 0);
    assert_string_equal(w->d->reason, "RunDenied");
    assert_int_equal(policy_memo_hits(m), 0);
    decide(w, denied, NOW + 10 * MINUTE);
    assert_placed(w, "hub");
    world_target(w, "spoke", "tier: spoke, region: eu");
    world_nodes(w, "spoke", 1, 1, "h100", "");
    decide(w, denied, NOW);
    assert_placed(w, "spoke");
    (void)policy_memo_destroy(m);
}

/* Nobody denied it: its time to start was over, by this reason of its end. */
static void who_was_not_started_was_not_denied(void **state)
{
    struct world *w = *state;

    classes(w);
    node(w, "n1", "h100", "a");
    decide(w,
           "status: {ends: [{target: hub, reason: NotStartedInTime, generation: 0, deniedUntil: "
           "'" UNTIL "', message: 'its target has it in no list, and what comes later is not "
           "started any more: its time to start is over, by whichever clock'}]}\n",
           NOW);
    assert_pending(w, "RunNotBegun");
    assert_non_null(strstr(w->d->message, "it did not start this workload: its target has it"));
    assert_non_null(strstr(w->d->message, "by whichever clock"));
    assert_null(strstr(w->d->message, "denied"));
    assert_non_null(strstr(w->d->candidates[0].message, "by whichever clock"));
}

/* The remedy stands at the end of what a target says: there is room for it, and what is longer
 * still is cut at a word. */
#define SEVEN "remedy remedy remedy remedy remedy remedy remedy remedy remedy remedy "

static void what_it_said_is_told_whole(void **state)
{
    char spec[2048];
    struct world *w = *state;

    classes(w);
    node(w, "n1", "h100", "a");
    (void)snprintf(spec, sizeof spec,
                   "status: {ends: [{target: hub, reason: RunDenied, generation: 0, deniedUntil: "
                   "'" UNTIL "', message: '%s%s%s-- its end'}]}\n",
                   SEVEN, SEVEN, SEVEN);
    decide(w, spec, NOW);
    assert_non_null(strstr(w->d->message, "-- its end"));
    const char *cut = w->d->candidates[0].message;
    assert_string_equal(cut + strlen(cut) - strlen("remedy \xe2\x80\xa6"), "remedy \xe2\x80\xa6");
}

/* A spec that was changed since is another question. */
static void a_changed_spec_is_asked_at_once(void **state)
{
    struct world *w = *state;

    classes(w);
    node(w, "n1", "h100", "a");
    decide(w, "status: {ends: [{target: hub, generation: 7, deniedUntil: '" UNTIL "'}]}\n", NOW);
    assert_placed(w, "hub");
}

/* What waits in the target's own queue holds no node, but what is free is spoken for. */
static void who_waits_there_comes_first(void **state)
{
    struct placement at = {.target = "hub", .class_ = "h100", .gpus = 1000};
    struct world *w = *state;

    classes(w);
    node(w, "n1", "h100", "a");
    node(w, "n2", "h100", "a");
    const struct object *o = world_workload(w, "waits", "  resources: {gpu: {count: 1}}\n");
    pool_hold_placement(w->p, o, &at);
    decide(w, "", NOW);
    assert_placed(w, "hub"); /* one is left */
    pool_hold_placement(w->p, world_workload(w, "waits2", ""), &at);
    decide(w, "", NOW);
    assert_pending(w, "TargetQueue");
    assert_int_equal(pool_free_gpu_milli(w->p, "h100"), 2000); /* no node is held for them */
    node(w, "n3", "h100", "b");                                /* the table is made anew */
    decide(w, "", NOW);
    assert_placed(w, "hub");
    struct pool *fork = pool_fork(w->p), *own = w->p;
    pool_hold_placement(w->p, world_workload(w, "waits3", ""), &at);
    decide(w, "", NOW);
    assert_pending(w, "TargetQueue");
    w->p = fork;
    decide(w, "", NOW);
    assert_placed(w, "hub");
    w->p = own;
    (void)pool_destroy(fork);
    pool_drop(w->p, "uid-waits");
    decide(w, "", NOW);
    assert_placed(w, "hub");
}

/* ---- how long ---- */
static int64_t pause_of(const struct target_status *s, enum refusal_class why, int64_t at,
                        int64_t retry_ms)
{
    struct target_pause x = {
        .scope = BLAMES_TARGET, .name = "", .refusal = why, .message = "", .since = at};

    return policy_pause_until(s, &x, retry_ms) - at;
}

static void pauses_grow_and_shrink(void **state)
{
    struct target_pause had = {.scope = BLAMES_TARGET, .name = "", .since = 0, .until = 4000};
    struct target_status s = {.pauses = &had, .n_pauses = 1};

    (void)state;
    assert_int_equal(pause_of(NULL, REFUSED_CAPACITY, 100, 0), 1000);
    assert_int_equal(pause_of(NULL, REFUSED_THROTTLED, 100, 7000), 7000); /* as told */
    assert_int_equal(pause_of(NULL, REFUSED_THROTTLED, 100, 1), 250);
    assert_int_equal(pause_of(NULL, REFUSED_THROTTLED, 100, INT64_MAX), 3600000);
    assert_int_equal(pause_of(&s, REFUSED_CAPACITY, 5000, 0), 8000); /* soon after: twice */
    assert_int_equal(pause_of(&s, REFUSED_CAPACITY, 20000, 0), 1000);
    assert_int_equal(pause_of(&s, REFUSED_CAPACITY, 3000, 0), 1000); /* one that was on its way */
    had.until = 290000;
    assert_int_equal(pause_of(&s, REFUSED_CAPACITY, 300000, 0), 300000); /* never longer */
    had.scope = BLAMES_ZONE;
    assert_int_equal(pause_of(&s, REFUSED_CAPACITY, 300000, 0), 1000); /* of something else */
}

static void denials_last_half_a_minute_at_least(void **state)
{
    struct run_end ends[2] = {{.target = "hub", .at = 0, .deniedUntil = 30000},
                              {.target = "spoke", .at = 0, .deniedUntil = 900000}};
    struct workload_status s = {.ends = ends};

    (void)state;
    assert_int_equal(policy_denied_until(&s, "hub", REFUSED_INVALID, 50, 0), 30050);
    assert_int_equal(policy_denied_until(&s, "hub", REFUSED_INVALID, 50, 1000), 30050);
    assert_int_equal(policy_denied_until(&s, "hub", REFUSED_INVALID, 50, 90000), 90050);
    s.n_ends = 2;
    assert_int_equal(policy_denied_until(&s, "hub", REFUSED_INVALID, 40000, 0), 100000);
    assert_int_equal(policy_denied_until(&s, "fra", REFUSED_CONFLICT, 40000, 0), 41000);
}

static void the_list_stays_short(void **state)
{
    struct world *w = *state;
    struct target_status s = {0};
    char name[16];

    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof name, "z%d", i);
        struct target_pause x = {.scope = BLAMES_ZONE,
                                 .name = arena_strdup(w->a, name),
                                 .refusal = REFUSED_CAPACITY,
                                 .message = "",
                                 .since = i,
                                 .until = i + 60000};
        s.n_pauses = policy_pause_add(&s, &x, w->a, &s.pauses);
        assert_true(s.n_pauses <= PAUSES_MAX);
    }
    assert_int_equal(s.n_pauses, PAUSES_MAX);
    assert_string_equal(s.pauses[0].name, "z24"); /* those that are over first made room */
    struct target_pause again = s.pauses[3];
    again.since += 10;
    s.n_pauses = policy_pause_add(&s, &again, w->a, &s.pauses);
    assert_int_equal(s.n_pauses, PAUSES_MAX); /* it took its own place */
    again.since = again.until = 10 * MINUTE;
    s.n_pauses = policy_pause_add(&s, &again, w->a, &s.pauses);
    assert_int_equal(s.n_pauses, 1); /* all others are long over */
}

#define WORLD(test) cmocka_unit_test_setup_teardown(test, world_setup, world_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {WORLD(a_target_is_asked_again_in_time),
                                       WORLD(it_goes_elsewhere_meanwhile),
                                       WORLD(a_class_alone_is_paused),
                                       WORLD(a_zone_alone_is_paused),
                                       WORLD(who_runs_there_stays),
                                       WORLD(who_was_denied_goes_elsewhere),
                                       WORLD(who_was_not_started_was_not_denied),
                                       WORLD(what_it_said_is_told_whole),
                                       WORLD(a_changed_spec_is_asked_at_once),
                                       WORLD(who_waits_there_comes_first),
                                       WORLD(pauses_grow_and_shrink),
                                       WORLD(denials_last_half_a_minute_at_least),
                                       WORLD(the_list_stays_short)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
