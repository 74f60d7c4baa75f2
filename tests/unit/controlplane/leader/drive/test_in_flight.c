/* spec.limits.inFlight of a Target: so many calls of drivers are under way to it at once, and who
 * was held back calls when one is answered. */
#include "controlplane/leader/context/context.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/drive/calls.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/drive/observed.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"

#define DRIVERS 5

static unsigned found;

static void find(struct connector *c, const struct run_key *key, struct call *call)
{
    (void)c;
    (void)key;
    (void)call;
    found++;
}

static const struct connector_ops ops = {.find = find};

static void answer(struct driver *d)
{
    struct call *c = &d->call.call;

    c->done(c, OUT_UNKNOWN, NULL, NULL);
}

static void follow(struct brain *b)
{
    (void)b;
}

static void test_calls_at_once(void **state)
{
    static struct sites sites;
    static struct brain b = {.sites = &sites, .follow = follow};
    static struct site t;
    static struct driver d[DRIVERS];
    struct connector c = {.ops = &ops};
    struct target_limits limits = {.inFlight = 2};
    struct target_spec spec = {.type = TARGET_AGENT, .limits = &limits};
    struct meta m = {.name = "fra"}, wm = {.name = "w", .namespace_ = "default"};
    struct target target = {.metadata = &m, .spec = &spec};
    struct workload_spec ws = {0};
    struct workload w = {.metadata = &wm, .spec = &ws};
    struct object *o = object_make(kind_by_id(KIND_WORKLOAD), &w);
    struct err err;

    (void)state;
    b.root = root_create();
    b.loop = loop_uv_create(&err);
    assert_non_null(b.loop);
    sites_init(&b);
    list_init(&t.drivers);
    t.brain = &b;
    t.number = 7;
    t.connector = &c;
    t.doc = object_make(kind_by_id(KIND_TARGET), &target);
    (void)snprintf(t.name, sizeof t.name, "fra");
    t.by_name.key = t.name;
    index_add(&sites.by_name, &t.by_name);
    for (int i = 0; i < DRIVERS; i++) {
        d[i].brain = &b;
        d[i].o = o;
        d[i].backoff_ms = 50;
        (void)snprintf(d[i].target, sizeof d[i].target, "fra");
        timer_init(&d[i].again, b.loop, (void (*)(void *))driver_tick, &d[i]);
        list_push(&t.drivers, &d[i].seat);
        driver_call(&d[i], &t, CALL_FIND);
    }
    assert_int_equal(found, 2);
    assert_int_equal(t.calls, 2);
    for (int i = 0; i < DRIVERS; i++)
        assert_int_equal(d[i].held_back, i >= 2);
    answer(&d[1]);
    assert_int_equal(t.calls, 1);
    assert_false(d[2].held_back); /* the first of them is let in */
    assert_true(d[3].held_back);
    driver_call(&d[2], &t, CALL_FIND);
    driver_call(&d[3], &t, CALL_FIND);
    assert_int_equal(found, 3);
    limits.inFlight = 0; /* no limit is told: all that wait may */
    (void)object_unref(t.doc);
    t.doc = object_make(kind_by_id(KIND_TARGET), &target);
    driver_call(&d[3], &t, CALL_FIND);
    driver_call(&d[4], &t, CALL_FIND);
    assert_int_equal(found, 5);
    t.number = 8; /* removed and made anew meanwhile: what was called before is not counted on it */
    t.calls = 0;
    answer(&d[0]);
    assert_int_equal(t.calls, 0);
    for (int i = 0; i < DRIVERS; i++)
        timer_stop(&d[i].again);
    index_remove(&sites.by_name, &t.by_name);
    (void)object_unref(t.doc);
    (void)object_unref(o);
    loop_uv_destroy(b.loop);
    (void)root_unref(b.root);
}

/* The answer to an order lay about while the news of its start came by. */
static void test_an_answer_may_be_older_than_the_news(void **state)
{
    static struct sites sites;
    static struct brain b = {.sites = &sites, .follow = follow};
    struct workload_status ws = {0};
    struct workload w = {.status = &ws};
    struct driver d = {.brain = &b, .o = object_make(kind_by_id(KIND_WORKLOAD), &w)};
    struct observation o = {.key = {.uid = "u", .epoch = 2, .try_ = 1}, .state = RUN_RUNNING};
    struct err err;

    (void)state;
    d.key = o.key;
    b.loop = loop_uv_create(&err);
    assert_non_null(b.loop);
    sites_init(&b);
    driver_take_seen(&d, &o);
    o.state = RUN_STARTING;
    driver_take_seen(&d, &o);
    assert_int_equal(d.seen.state, RUN_RUNNING);
    o.state = RUN_UNKNOWN;
    driver_take_seen(&d, &o);
    assert_int_equal(d.seen.state, RUN_UNKNOWN);
    o.state = RUN_STARTING; /* nobody knew better */
    driver_take_seen(&d, &o);
    assert_int_equal(d.seen.state, RUN_STARTING);
    o.state = RUN_RUNNING;
    driver_take_seen(&d, &o);
    o.key.try_ = 2; /* another one */
    o.state = RUN_STARTING;
    driver_take_seen(&d, &o);
    assert_int_equal(d.seen.state, RUN_STARTING);
    (void)object_unref(d.o);
    loop_uv_destroy(b.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_at_once),
        cmocka_unit_test(test_an_answer_may_be_older_than_the_news)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
