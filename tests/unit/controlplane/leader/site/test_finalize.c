/* A target hears that the log has the end of a run: a few at once, again after what was not heard,
 * and by nobody who does not lead. The connector is scripted, the clock is the test's. */
#include "controlplane/leader/site/sites.h"
#include "tests/support/unit.h"
#include "tests/support/web/still_loop.h"

#include <stdio.h>

struct world {
    struct brain brain;
    struct site site;
    struct connector connector;
    struct {
        struct call *call; /* NULL: answered */
        char uid[64];
    } asked[100];
    unsigned n;
};

static void finalize(struct connector *c, const struct run_key *k, struct call *call)
{
    struct world *x = container_of(c, struct world, connector);

    x->asked[x->n].call = call;
    str_copy(x->asked[x->n++].uid, sizeof x->asked[0].uid, k->uid);
}
static const struct connector_ops ops = {.finalize = finalize};

static void follow(struct brain *b)
{
    (void)b;
}

static void world_init(struct world *x)
{
    *x = (struct world){.connector = {.ops = &ops},
                        .brain = {.leads = true, .follow = follow, .loop = still_loop_create(5)}};
    x->site.brain = &x->brain;
    x->site.connector = &x->connector;
    x->site.reachable = true;
    site_finals_init(&x->site);
}

static void world_fini(struct world *x)
{
    site_finals_drop(&x->site);
    site_finals_free(&x->site);
    (void)still_loop_destroy(x->brain.loop);
}

static void ended(struct world *x, const char *uid)
{
    struct run_key k = {.epoch = 1, .try_ = 1};

    (void)snprintf(k.uid, sizeof k.uid, "%s", uid);
    site_finalize(&x->site, &k);
}

/* Of the run that was asked about as the i-th. */
static void answer(struct world *x, unsigned i, enum outcome out)
{
    struct call *call = x->asked[i].call;

    assert_non_null(call);
    x->asked[i].call = NULL;
    call->done(call, out, NULL, NULL);
}

static void test_each_is_told_once(void **state)
{
    struct world x;

    (void)state;
    world_init(&x);
    ended(&x, "a");
    ended(&x, "a");
    ended(&x, "b");
    assert_int_equal(x.n, 2);
    assert_string_equal(x.asked[0].uid, "a");
    assert_string_equal(x.asked[1].uid, "b");
    answer(&x, 0, OUT_DONE);
    answer(&x, 1, OUT_REJECTED); /* one that knows no such request */
    still_loop_run(x.brain.loop, 200000);
    assert_int_equal(x.n, 2);
    world_fini(&x);
}

static void test_a_few_are_told_at_once(void **state)
{
    struct world x;
    char uid[16];

    (void)state;
    world_init(&x);
    for (unsigned i = 0; i < 40; i++) {
        (void)snprintf(uid, sizeof uid, "r%u", i);
        ended(&x, uid);
    }
    assert_int_equal(x.n, 16);
    answer(&x, 5, OUT_DONE);
    answer(&x, 3, OUT_DONE);
    assert_int_equal(x.n, 18);
    for (unsigned i = 0; i < 40; i++)
        if (x.asked[i].call)
            answer(&x, i, OUT_DONE);
    assert_int_equal(x.n, 40);
    assert_string_equal(x.asked[39].uid, "r39");
    world_fini(&x);
}

static struct object *target_of(int64_t in_flight)
{
    AUTO_ARENA a = arena_create(0);
    struct target *t = arena_new(a, struct target);

    t->metadata = arena_new(a, struct meta);
    t->metadata->name = "t";
    t->spec = arena_new(a, struct target_spec);
    t->spec->type = TARGET_AGENT;
    t->spec->limits = arena_new(a, struct target_limits);
    t->spec->limits->inFlight = in_flight;
    return object_make(kind_by_id(KIND_TARGET), t);
}

static void test_few_calls_are_few_of_these(void **state)
{
    struct world x;

    (void)state;
    world_init(&x);
    x.site.doc = target_of(8);
    x.site.calls = 7; /* of drivers */
    for (char uid[] = "a"; *uid < 'f'; uid[0]++)
        ended(&x, uid);
    assert_int_equal(x.n, 2);
    (void)object_unref(x.site.doc);
    x.site.doc = target_of(1);
    x.site.calls = 1;
    answer(&x, 0, OUT_DONE);
    assert_int_equal(x.n, 2);
    for (unsigned i = 1; i < 5; i++) {
        answer(&x, i, OUT_DONE);
        assert_int_equal(x.n, i < 4 ? i + 2 : 5);
    }
    (void)object_unref(x.site.doc);
    x.site.doc = target_of(8); /* they take what drivers leave */
    x.site.calls = 2;
    for (char uid[] = "k"; *uid < 't'; uid[0]++)
        ended(&x, uid);
    assert_int_equal(x.n, 5 + 6);
    for (unsigned i = 5; i < 14; i++)
        answer(&x, i, OUT_DONE);
    (void)object_unref(x.site.doc);
    world_fini(&x);
}

static void test_what_was_not_heard_is_said_again(void **state)
{
    struct world x;

    (void)state;
    world_init(&x);
    ended(&x, "a");
    ended(&x, "b");
    answer(&x, 0, OUT_UNKNOWN);
    answer(&x, 1, OUT_UNKNOWN); /* that counts once: both were under way */
    ended(&x, "c");
    assert_int_equal(x.n, 2);
    still_loop_run(x.brain.loop, 1100);
    assert_int_equal(x.n, 5);
    assert_string_equal(x.asked[4].uid, "c");
    answer(&x, 3, OUT_DONE);
    answer(&x, 4, OUT_DONE);
    answer(&x, 2, OUT_UNKNOWN);
    still_loop_run(x.brain.loop, 1100);
    assert_int_equal(x.n, 6);
    answer(&x, 5, OUT_UNKNOWN);
    still_loop_run(x.brain.loop, 1100); /* later each time */
    assert_int_equal(x.n, 6);
    still_loop_run(x.brain.loop, 1000);
    assert_int_equal(x.n, 7);
    answer(&x, 6, OUT_DONE);
    world_fini(&x);
}

static void test_out_of_reach_it_waits(void **state)
{
    struct world x;

    (void)state;
    world_init(&x);
    x.site.reachable = false;
    ended(&x, "a");
    still_loop_run(x.brain.loop, 10000);
    assert_int_equal(x.n, 0);
    x.site.reachable = true;
    still_loop_run(x.brain.loop, 1100);
    assert_int_equal(x.n, 1);
    answer(&x, 0, OUT_DONE);
    world_fini(&x);
}

static void test_who_does_not_lead_says_nothing(void **state)
{
    struct world x;

    (void)state;
    world_init(&x);
    x.brain.leads = false;
    ended(&x, "a");
    still_loop_run(x.brain.loop, 10000);
    assert_int_equal(x.n, 0);
    world_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_is_told_once),
        cmocka_unit_test(test_a_few_are_told_at_once),
        cmocka_unit_test(test_few_calls_are_few_of_these),
        cmocka_unit_test(test_what_was_not_heard_is_said_again),
        cmocka_unit_test(test_out_of_reach_it_waits),
        cmocka_unit_test(test_who_does_not_lead_says_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
