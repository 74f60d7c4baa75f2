/* What follows on a refused order, and for whom: a scripted connector refuses, the driver proposes,
 * and the state has it. Only what blames the target slows the target; a new leader reads it all
 * from the state. */
#include "controlplane/leader/context/context.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/drive/calls.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"

/* The way into the log is the test's: straight to the kit. */
static struct kit *log_kit;
static struct result last;

void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    (void)cb;
    last = kit_apply(log_kit, c);
    b->root = log_kit->root;
    mem_free(arg);
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
    (void)snprintf(out, REQUEST_ID_MAX, "r-%llu", (unsigned long long)log_kit->number);
}

struct world {
    struct kit kit;
    struct brain brain;
    struct sites sites;
    struct movers movers;
    struct site site;
    struct driver d;
    struct connector connector;
    unsigned submits;
};

static void submit(struct connector *c, const struct run_order *o, struct call *call)
{
    struct world *x = container_of(c, struct world, connector);

    (void)o;
    (void)call;
    x->submits++;
}
static const struct connector_ops ops = {.submit = submit};

static void follow(struct brain *b)
{
    (void)b;
}

static void world_init(struct world *x, uint32_t level)
{
    union command c = {.member = {.head = {.type = CMD_MEMBER},
                                  .member = {.id = 1, .feature_level = level},
                                  .cluster_uid = "c"}};
    struct err err;

    *x = (struct world){.connector = {.ops = &ops}};
    kit_begin(&x->kit);
    (void)snprintf(c.member.member.name, sizeof c.member.member.name, "m1");
    assert_int_equal(kit_apply(&x->kit, &c).code, 0);
    kit_pool(&x->kit, 1, 4);
    assert_int_equal(kit_workload(&x->kit, x->kit.ns, "w", 1, 1).code, 0);
    log_kit = &x->kit;
    x->brain = (struct brain){.sites = &x->sites,
                              .movers = &x->movers,
                              .leads = true,
                              .follow = follow,
                              .loop = loop_uv_create(&err)};
    assert_non_null(x->brain.loop);
    sites_init(&x->brain);
    movers_init(&x->brain);
    list_init(&x->site.drivers);
    x->site.brain = &x->brain;
    x->site.connector = &x->connector;
    x->site.reachable = true;
    x->site.doc = object_ref(root_get(x->kit.root, KIND_TARGET, "", "fra"));
    (void)snprintf(x->site.name, sizeof x->site.name, "fra");
    x->site.by_name.key = x->site.name;
    index_add(&x->sites.by_name, &x->site.by_name);
}

static void world_fini(struct world *x)
{
    timer_stop(&x->d.again);
    index_remove(&x->sites.by_name, &x->site.by_name);
    (void)object_unref(x->d.o);
    (void)object_unref(x->site.doc);
    loop_uv_destroy(x->brain.loop);
    kit_end(&x->kit);
}

/* Placed and dispatched as the next epoch, and submitted. */
static struct call *ordered(struct world *x)
{
    int64_t epoch = kit_status(&x->kit, "w")->epoch + 1;

    assert_int_equal(kit_place(&x->kit, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&x->kit, "w", epoch, 1, STEP_DISPATCH).code, 0);
    timer_stop(&x->d.again);
    (void)object_unref(x->d.o);
    x->d = (struct driver){.brain = &x->brain, .backoff_ms = 50, .told_step = -1};
    x->brain.root = x->kit.root;
    x->d.o = object_ref(kit_get(&x->kit, "w"));
    str_copy(x->d.uid, sizeof x->d.uid, x->d.o->meta->uid);
    str_copy(x->d.ns, sizeof x->d.ns, x->kit.ns);
    str_copy(x->d.name, sizeof x->d.name, "w");
    str_copy(x->d.target, sizeof x->d.target, "fra");
    str_copy(x->d.key.uid, sizeof x->d.key.uid, x->d.uid);
    x->d.key.epoch = epoch;
    x->d.key.try_ = 1;
    list_init(&x->d.seat);
    timer_init(&x->d.again, x->brain.loop, (void (*)(void *))driver_tick, &x->d);
    driver_call(&x->d, &x->site, CALL_SUBMIT);
    return &x->d.call.call;
}

static void refuse(struct world *x, struct refusal why, const char *words)
{
    struct call *c = ordered(x);
    struct err err;

    (void)err_set(&err, E_LIMIT, "%s", words);
    assert_int_equal(c->refused.class_, 0); /* nothing of an earlier call */
    c->refused = why;
    c->done(c, OUT_REJECTED, NULL, &err);
    assert_int_equal(last.code, 0);
    assert_int_equal(kit_phase(&x->kit, x->kit.ns, "w"), PHASE_QUEUED);
    assert_string_equal(kit_status(&x->kit, "w")->message, words);
}

static const struct target_status *target(struct world *x)
{
    return object_as(root_get(x->kit.root, KIND_TARGET, "", "fra"), target)->status;
}

static const struct run_end *end(struct world *x)
{
    const struct workload_status *s = kit_status(&x->kit, "w");

    return &s->ends[s->n_ends - 1];
}

static void test_what_blames_the_target_pauses_it(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL);
    refuse(&x, (struct refusal){.class_ = REFUSED_CAPACITY, .scope = BLAMES_TARGET}, "it is full");
    assert_string_equal(kit_status(&x.kit, "w")->reason, "TargetRefused");
    assert_int_equal(target(&x)->n_pauses, 1);
    struct target_pause p = target(&x)->pauses[0];
    assert_int_equal(p.scope, BLAMES_TARGET);
    assert_int_equal(p.refusal, REFUSED_CAPACITY);
    assert_string_equal(p.message, "it is full");
    assert_int_equal(p.since, root_time(x.kit.root)); /* by the log's time */
    assert_int_equal(p.until - p.since, 1000);
    assert_int_equal(end(&x)->deniedUntil, 0);
    x.kit.now = p.until + 100; /* and again, as soon as it is over: longer */
    refuse(&x, (struct refusal){.class_ = REFUSED_CAPACITY, .scope = BLAMES_TARGET}, "still full");
    assert_int_equal(target(&x)->n_pauses, 1);
    assert_int_equal(target(&x)->pauses[0].until - target(&x)->pauses[0].since, 2000);
    kit_reload(&x.kit); /* another member leads, from a snapshot */
    x.brain.root = x.kit.root;
    assert_string_equal(target(&x)->pauses[0].message, "still full");
    world_fini(&x);
}

static void test_times_that_are_told_count(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL);
    refuse(&x,
           (struct refusal){.class_ = REFUSED_THROTTLED, .scope = BLAMES_TARGET, .retry_ms = 17000},
           "slow down");
    assert_int_equal(target(&x)->pauses[0].until - target(&x)->pauses[0].since, 17000);
    world_fini(&x);
}

static void test_what_blames_a_zone_or_a_class_pauses_that(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL);
    refuse(&x, (struct refusal){.class_ = REFUSED_CAPACITY, .scope = BLAMES_ZONE, .name = "eu-1a"},
           "none left in eu-1a");
    refuse(&x, (struct refusal){.class_ = REFUSED_QUOTA, .scope = BLAMES_CLASS, .name = "h100"},
           "0 of 8 left");
    assert_int_equal(target(&x)->n_pauses, 2);
    assert_string_equal(target(&x)->pauses[0].name, "eu-1a");
    assert_string_equal(target(&x)->pauses[1].name, "h100");
    assert_int_equal(target(&x)->pauses[1].scope, BLAMES_CLASS);
    assert_int_equal(x.site.refused_until_ms, 0); /* the target itself is not slower for it */
    world_fini(&x);
}

static void test_what_blames_the_workload_is_its_own(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL);
    refuse(&x, (struct refusal){.class_ = REFUSED_INVALID, .scope = BLAMES_WORKLOAD},
           "no such image");
    assert_string_equal(kit_status(&x.kit, "w")->reason, "RunDenied"); /* it waits: held.c */
    assert_int_equal(target(&x)->n_pauses, 0);
    assert_int_equal(x.site.refused_until_ms, 0);
    assert_int_equal(end(&x)->deniedUntil - end(&x)->at, 30000); /* and goes elsewhere */
    assert_int_equal(end(&x)->generation, kit_get(&x.kit, "w")->meta->generation);
    assert_string_equal(end(&x)->message, "no such image");
    world_fini(&x);
}

/* An agent that cannot be reached, a driver that knows no classes. */
static void test_who_says_nothing_slows_his_target_for_a_while(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_LEVEL);
    refuse(&x, (struct refusal){0}, "it is not connected");
    assert_string_equal(kit_status(&x.kit, "w")->reason, "TargetRefused");
    assert_int_equal(target(&x)->n_pauses, 0);
    assert_true(x.site.refused_until_ms > 0);
    world_fini(&x);
}

/* Members of the version before would not know the field, and part from those that do. */
static void test_nothing_of_it_before_all_members_know(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, FEATURE_GRANTS - 1);
    refuse(&x, (struct refusal){.class_ = REFUSED_CAPACITY, .scope = BLAMES_TARGET}, "it is full");
    assert_true(!target(&x) || !target(&x)->n_pauses);
    world_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_blames_the_target_pauses_it),
        cmocka_unit_test(test_times_that_are_told_count),
        cmocka_unit_test(test_what_blames_a_zone_or_a_class_pauses_that),
        cmocka_unit_test(test_what_blames_the_workload_is_its_own),
        cmocka_unit_test(test_who_says_nothing_slows_his_target_for_a_while),
        cmocka_unit_test(test_nothing_of_it_before_all_members_know),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
