/* A target hears that the log has the end of a run: each in turn, again after what was not heard,
 * and by nobody who does not lead. The connector is scripted, the clock is the test's. */
#include "controlplane/leader/site/sites.h"
#include "tests/support/unit.h"
#include "tests/support/web/still_loop.h"

#include <stdio.h>

struct world {
    struct brain brain;
    struct site site;
    struct connector connector;
    struct call *call;
    char asked[64]; /* of which run last */
    unsigned n;
};

static void finalize(struct connector *c, const struct run_key *k, struct call *call)
{
    struct world *x = container_of(c, struct world, connector);

    x->call = call;
    x->n++;
    str_copy(x->asked, sizeof x->asked, k->uid);
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
    (void)still_loop_destroy(x->brain.loop);
}

static void ended(struct world *x, const char *uid)
{
    struct run_key k = {.epoch = 1, .try_ = 1};

    (void)snprintf(k.uid, sizeof k.uid, "%s", uid);
    site_finalize(&x->site, &k);
}

static void answer(struct world *x, enum outcome out)
{
    x->call->done(x->call, out, NULL, NULL);
}

static void test_each_in_turn_and_once(void **state)
{
    struct world x;

    (void)state;
    world_init(&x);
    ended(&x, "a");
    ended(&x, "a");
    ended(&x, "b");
    assert_int_equal(x.n, 1);
    assert_string_equal(x.asked, "a");
    answer(&x, OUT_DONE);
    assert_string_equal(x.asked, "b");
    answer(&x, OUT_REJECTED); /* one that knows no such request */
    still_loop_run(x.brain.loop, 200000);
    assert_int_equal(x.n, 2);
    world_fini(&x);
}

static void test_what_was_not_heard_is_said_again(void **state)
{
    struct world x;

    (void)state;
    world_init(&x);
    ended(&x, "a");
    ended(&x, "b");
    answer(&x, OUT_UNKNOWN);
    assert_int_equal(x.n, 1);
    still_loop_run(x.brain.loop, 1100);
    assert_string_equal(x.asked, "b"); /* it does not hold up the others */
    answer(&x, OUT_DONE);
    assert_string_equal(x.asked, "a");
    answer(&x, OUT_UNKNOWN);
    still_loop_run(x.brain.loop, 1100);
    assert_int_equal(x.n, 4);
    answer(&x, OUT_UNKNOWN);
    still_loop_run(x.brain.loop, 1100); /* later each time */
    assert_int_equal(x.n, 4);
    still_loop_run(x.brain.loop, 1000);
    assert_int_equal(x.n, 5);
    answer(&x, OUT_DONE);
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
    answer(&x, OUT_DONE);
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
        cmocka_unit_test(test_each_in_turn_and_once),
        cmocka_unit_test(test_what_was_not_heard_is_said_again),
        cmocka_unit_test(test_out_of_reach_it_waits),
        cmocka_unit_test(test_who_does_not_lead_says_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
