/* A run that is pending at its target: what the log is told of it and how often, where it is once
 * it starts, and that it is withdrawn and not told to save. The connector is scripted. */
#include "controlplane/leader/context/context.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/drive/calls.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/drive/observed.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/store_kit.h"

#include <signal.h>

/* The way into the log is the test's: straight to the kit. */
static struct kit *log_kit;
static struct result last;

void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    last = kit_apply(log_kit, c);
    b->root = log_kit->root;
    if (last.code == E_PLACE) /* its driver hears of that */
        cb(arg, &last, NULL);
    else
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
    struct drivers drivers;
    struct site site;
    struct connector connector;
    unsigned stops, quiesces, finds;
    struct call *call;
};

static void stop(struct connector *c, const struct run_key *k, uint64_t grace_ms, struct call *call)
{
    struct world *x = container_of(c, struct world, connector);

    (void)k;
    (void)grace_ms;
    x->stops++;
    x->call = call;
}
static void quiesce(struct connector *c, const struct run_key *k, int signo, uint64_t grace_ms,
                    struct call *call)
{
    struct world *x = container_of(c, struct world, connector);

    (void)k;
    (void)signo;
    (void)grace_ms;
    x->quiesces++;
    x->call = call;
}
static void find(struct connector *c, const struct run_key *k, struct call *call)
{
    struct world *x = container_of(c, struct world, connector);

    (void)k;
    x->finds++;
    x->call = call;
}
static const struct connector_ops ops = {.stop = stop, .quiesce = quiesce, .find = find};

static void follow(struct brain *b)
{
    (void)b;
}

static struct driver *driver(struct world *x)
{
    struct driver *d = driver_find(&x->brain, kit_get(&x->kit, "w")->meta->uid);

    assert_non_null(d);
    return d;
}

/* What was proposed is in the state: the driver takes it in, as it would from the brain. */
static void settle(struct world *x)
{
    struct driver *d = driver(x);

    d->proposing = false;
    driver_change(&x->brain, d->o, kit_get(&x->kit, "w"));
}

static void world_init(struct world *x, int64_t pending_for)
{
    struct err err;

    *x = (struct world){.connector = {.ops = &ops}};
    kit_begin(&x->kit);
    kit_level_set(&x->kit, FEATURE_LEVEL);
    kit_pool(&x->kit, 2, 4);
    struct target *t =
        object_edit_as(root_get(x->kit.root, KIND_TARGET, "", "fra"), target, x->kit.a);
    t->spec->limits = arena_new(x->kit.a, struct target_limits);
    t->spec->limits->pendingFor = pending_for;
    assert_int_equal(kit_update(&x->kit, KIND_TARGET, "", "fra", t, 0, false).code, 0);
    assert_int_equal(kit_workload(&x->kit, x->kit.ns, "w", 1, 2).code, 0);
    assert_int_equal(kit_place(&x->kit, "w", "fra.n0", 0, 1, 2).code, 0);
    assert_int_equal(kit_run(&x->kit, "w", 1, 1, STEP_DISPATCH).code, 0);
    log_kit = &x->kit;
    x->brain = (struct brain){.sites = &x->sites,
                              .movers = &x->movers,
                              .drivers = &x->drivers,
                              .leads = true,
                              .follow = follow,
                              .root = x->kit.root,
                              .loop = loop_uv_create(&err)};
    assert_non_null(x->brain.loop);
    sites_init(&x->brain);
    movers_init(&x->brain);
    drivers_init(&x->brain);
    list_init(&x->site.drivers);
    x->site.brain = &x->brain;
    x->site.connector = &x->connector;
    x->site.session = 1;
    x->site.doc = object_ref(root_get(x->kit.root, KIND_TARGET, "", "fra"));
    (void)snprintf(x->site.name, sizeof x->site.name, "fra");
    x->site.by_name.key = x->site.name;
    index_add(&x->sites.by_name, &x->site.by_name);
    driver_change(&x->brain, NULL, kit_get(&x->kit, "w")); /* its target is out of reach yet */
    x->site.reachable = true;
}

static void world_fini(struct world *x)
{
    struct driver *d = driver_find(&x->brain, kit_get(&x->kit, "w")->meta->uid);

    if (d)
        d->proposing = d->calling = false;
    drivers_drop(&x->brain);
    index_remove(&x->sites.by_name, &x->site.by_name);
    (void)object_unref(x->site.doc);
    loop_uv_destroy(x->brain.loop);
    kit_end(&x->kit);
}

static void see(struct world *x, enum run_state state, const char *reason, int64_t position)
{
    struct observation o = {.state = state, .position = position, .estimate_ms = 7000};

    str_copy(o.key.uid, sizeof o.key.uid, kit_get(&x->kit, "w")->meta->uid);
    o.key.epoch = o.key.try_ = 1;
    str_copy(o.reason, sizeof o.reason, reason);
    if (state == RUN_ABSENT)
        o.proof = PROOF_NEVER_STARTED;
    if (state == RUN_ENDED)
        o.proof = PROOF_ACCOUNTING;
    driver_observed(&x->site, &o);
}

static const struct workload_status *status(struct world *x)
{
    return kit_status(&x->kit, "w");
}

static void test_it_is_told_and_seated(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, 0);
    see(&x, RUN_PENDING, "Priority", 4);
    assert_int_equal(status(&x)->phase, PHASE_STARTING);
    assert_string_equal(status(&x)->pending->reason, "Priority");
    assert_int_equal(status(&x)->pending->position, 4);
    assert_int_equal(status(&x)->pending->estimate, 7000);
    settle(&x);
    uint64_t entries = x.kit.number;
    see(&x, RUN_PENDING, "Priority", 3); /* it moves up: told now and then only */
    see(&x, RUN_PENDING, "Priority", 2);
    assert_int_equal(x.kit.number, entries);
    see(&x, RUN_PENDING, "Resources", 1); /* another reason is told at once */
    assert_string_equal(status(&x)->pending->reason, "Resources");
    settle(&x);

    struct run_key key = {.epoch = 1, .try_ = 2};
    str_copy(key.uid, sizeof key.uid, kit_get(&x.kit, "w")->meta->uid);
    driver_seated(&x.site, &key, kit_workers(&x.kit, "fra.n0", 0, 1, 2)); /* of another try */
    key.try_ = 1;
    driver_seated(&x.site, &key, kit_workers(&x.kit, "fra.n1", 1, 1, 2));
    see(&x, RUN_RUNNING, "", 0);
    assert_null(status(&x)->pending); /* its nodes come first */
    assert_string_equal(status(&x)->placement->assignments[0].node, "fra.n1");
    assert_int_equal(status(&x)->phase, PHASE_STARTING);
    settle(&x);
    assert_int_equal(status(&x)->phase, PHASE_RUNNING);
    assert_int_equal(x.quiesces + x.stops, 0);
    world_fini(&x);
}

/* It waited, and this leader never saw it wait. */
static void test_it_is_seated_where_nobody_saw_it_wait(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, 0);
    driver_seated(&x.site, &driver(&x)->key, kit_workers(&x.kit, "fra.n1", 1, 1, 2));
    see(&x, RUN_RUNNING, "", 0);
    assert_non_null(status(&x)->pending); /* its nodes are let go, */
    settle(&x);
    assert_null(status(&x)->pending); /* others are taken, */
    assert_string_equal(status(&x)->placement->assignments[0].node, "fra.n1");
    settle(&x);
    assert_int_equal(status(&x)->phase, PHASE_RUNNING); /* and then it runs */
    world_fini(&x);
}

/* By the log others hold what its target gave it: that does not keep its end out of the log. */
static void test_it_ends_where_it_could_not_be_seated(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, 0);
    assert_int_equal(kit_workload(&x.kit, x.kit.ns, "v", 1, 4).code, 0);
    assert_int_equal(kit_place(&x.kit, "v", "fra.n1", 0, 1, 4).code, 0);
    x.brain.root = x.kit.root;
    see(&x, RUN_PENDING, "Priority", 4);
    settle(&x);
    driver_seated(&x.site, &driver(&x)->key, kit_workers(&x.kit, "fra.n1", 0, 1, 0));
    see(&x, RUN_RUNNING, "", 0);
    assert_int_equal(last.code, E_PLACE);
    assert_int_equal(status(&x)->phase, PHASE_STARTING); /* asked again */
    see(&x, RUN_ENDED, "", 0);
    assert_int_equal(last.code, 0);
    assert_int_equal(status(&x)->phase, PHASE_SUCCEEDED);
    world_fini(&x);
}

/* Its target is in reach and cannot tell what became of it: as if it were out of reach. */
static void test_what_cannot_be_told_is_unknown(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, 0);
    see(&x, RUN_RUNNING, "", 0);
    settle(&x);
    assert_int_equal(status(&x)->phase, PHASE_RUNNING);
    assert_int_equal(x.finds, 0);
    see(&x, RUN_UNKNOWN, "", 0);
    assert_int_equal(x.finds, 1); /* asked; not believed at once */
    assert_int_equal(status(&x)->phase, PHASE_RUNNING);
    struct observation o = {.key = driver(&x)->key, .state = RUN_UNKNOWN};
    driver(&x)->untold_since_ms -= site_suspect_after(&x.site);
    x.call->done(x.call, OUT_DONE, &o, NULL);
    driver_tick(driver(&x));
    assert_int_equal(status(&x)->phase, PHASE_UNKNOWN);
    assert_string_equal(status(&x)->reason, "RunNotTold");
    settle(&x);
    assert_int_equal(x.finds, 2); /* asked on and on, */
    x.call->done(x.call, OUT_DONE, &o, NULL);
    driver_tick(driver(&x));
    assert_int_equal(x.finds, 2); /* with pauses */
    see(&x, RUN_RUNNING, "", 0);
    assert_int_equal(status(&x)->phase, PHASE_RUNNING);
    world_fini(&x);
}

/* Its target was seen to run it, and says then that it never did: it has lost what it knew. */
static void test_who_forgot_what_he_ran_cannot_tell(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, 0);
    see(&x, RUN_RUNNING, "", 0);
    settle(&x);
    assert_int_equal(status(&x)->phase, PHASE_RUNNING);
    uint64_t entries = x.kit.number;
    see(&x, RUN_ABSENT, "", 0);
    assert_int_equal(x.finds, 1);
    assert_int_equal(x.kit.number, entries); /* nothing follows from it */
    struct observation o = {.state = RUN_ABSENT, .proof = PROOF_NEVER_STARTED};
    o.key = driver(&x)->key;
    driver(&x)->untold_since_ms -= site_suspect_after(&x.site);
    x.call->done(x.call, OUT_DONE, &o, NULL);
    driver_tick(driver(&x));
    assert_int_equal(status(&x)->phase, PHASE_UNKNOWN);
    assert_non_null(status(&x)->placement);
    assert_string_equal(status(&x)->reason, "RunNotTold");
    assert_non_null(strstr(status(&x)->message, "hanse fence"));
    world_fini(&x);
}

static void ends(struct world *x, bool lease_lost, const char *reason)
{
    struct observation o = {.state = RUN_ENDED, .proof = PROOF_TREE_GONE, .lease_lost = lease_lost};

    o.key = driver(x)->key;
    str_copy(o.reason, sizeof o.reason, reason);
    driver_observed(&x->site, &o);
    assert_int_equal(last.code, 0);
}

/* Cut off, it was told to go by its own runner, and says 0: under mode stop it stays stopped. */
static void test_a_lost_lease_stops_also_what_ends_with_0(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, 0);
    struct workload *w = object_edit_as(kit_get(&x.kit, "w"), workload, x.kit.a);
    w->spec->partition = arena_new(x.kit.a, struct partition_spec);
    w->spec->partition->mode = PARTITION_STOP;
    assert_int_equal(kit_update(&x.kit, KIND_WORKLOAD, x.kit.ns, "w", w, 0, false).code, 0);
    x.brain.root = x.kit.root;
    see(&x, RUN_RUNNING, "", 0);
    settle(&x);
    ends(&x, true, "LeaseLost");
    assert_int_equal(status(&x)->phase,
                     PHASE_UNKNOWN); /* on the way to Stopped, not to the queue */
    world_fini(&x);
}

/* Its runner is killed while it saves for a move: it goes on elsewhere, and has not ended well. */
static void test_what_is_broken_off_while_it_saves_is_queued(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, 0);
    see(&x, RUN_RUNNING, "", 0);
    settle(&x);
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_QUIESCE).code, 0);
    x.brain.root = x.kit.root;
    settle(&x);
    assert_int_equal(x.quiesces, 1);
    x.call->done(x.call, OUT_DONE, NULL, NULL);
    ends(&x, false, "RunnerKilled");
    assert_int_equal(status(&x)->phase, PHASE_QUEUED);
    world_fini(&x);
}

/* It is placed and runs once more, by `saved` with a checkpoint of its own, and its lease is lost:
 * true when it is queued again. */
static bool goes_on(struct world *x, bool saved)
{
    if (status(x)->phase == PHASE_QUEUED) {
        settle(x);
        assert_null(driver_find(&x->brain, kit_get(&x->kit, "w")->meta->uid));
        assert_int_equal(kit_place(&x->kit, "w", "fra.n0", 0, 1, 2).code, 0);
        assert_int_equal(kit_run(&x->kit, "w", status(x)->epoch, 1, STEP_DISPATCH).code, 0);
        x->brain.root = x->kit.root;
        x->site.reachable = false; /* as in world_init */
        driver_change(&x->brain, NULL, kit_get(&x->kit, "w"));
        x->site.reachable = true;
    }
    struct observation begun = {.key = driver(x)->key, .state = RUN_RUNNING};
    driver_observed(&x->site, &begun);
    settle(x);
    assert_int_equal(status(x)->phase, PHASE_RUNNING);
    x->kit.now += 60000;
    struct observation o = {.key = driver(x)->key,
                            .state = RUN_ENDED,
                            .proof = PROOF_TREE_GONE,
                            .lease_lost = true,
                            .term_signal = SIGKILL};
    str_copy(o.reason, sizeof o.reason, "LeaseLost");
    if (saved) {
        o.checkpoint = (struct run_checkpoint_report){.present = true,
                                                      .step = 10 * o.key.epoch,
                                                      .ranks = 1,
                                                      .bytes = 1,
                                                      .writtenAt = x->kit.now};
        (void)snprintf(o.checkpoint.path, sizeof o.checkpoint.path,
                       "/s/%s/w-%s/sealed/e%lld/cut-1.json", x->kit.ns, o.key.uid,
                       (long long)o.key.epoch);
        (void)snprintf(o.checkpoint.digest, sizeof o.checkpoint.digest, "sha256:%064lld",
                       (long long)o.key.epoch);
    }
    driver_observed(&x->site, &o);
    assert_int_equal(last.code, 0);
    return status(x)->phase == PHASE_QUEUED;
}

/* Targets fail it again and again, and it saves in between or takes months: it goes on. One that
 * gets nowhere on a single day fails in the end, and its message says why. */
static void test_a_lease_that_is_lost_often_is_no_failure(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, 0);
    struct workload *w = object_edit_as(kit_get(&x.kit, "w"), workload, x.kit.a);
    w->spec->checkpoint = arena_new(x.kit.a, struct checkpoint_spec);
    w->spec->checkpoint->store = "/s";
    assert_int_equal(kit_update(&x.kit, KIND_WORKLOAD, x.kit.ns, "w", w, 0, false).code, 0);
    x.brain.root = x.kit.root;
    for (int i = 0; i < 12; i++)
        assert_true(goes_on(&x, true)); /* each time with something new */
    for (int i = 0; i < 12; i++) {
        x.kit.now += 8LL * 3600 * 1000;
        assert_true(goes_on(&x, false)); /* three times a day */
    }
    x.kit.now += 48LL * 3600 * 1000;
    for (int i = 0; i < 5; i++)
        assert_true(goes_on(&x, false));
    assert_false(goes_on(&x, false));
    assert_int_equal(status(&x)->phase, PHASE_FAILED);
    assert_non_null(strstr(status(&x)->message, "more than 5 times in a day"));
    world_fini(&x);
}

/* There is no program that could save: it is stopped, which proves that it never started. */
static void withdrawn(struct world *x)
{
    assert_int_equal(status(x)->phase, PHASE_QUIESCING);
    settle(x);
    assert_int_equal(x->quiesces, 0);
    assert_int_equal(x->stops, 1);
    struct observation gone = {.state = RUN_ABSENT, .proof = PROOF_NEVER_STARTED};
    gone.key = driver(x)->key;
    x->call->done(x->call, OUT_DONE, &gone, NULL);
    assert_int_equal(status(x)->phase, PHASE_QUEUED);
    assert_null(status(x)->pending);
}

static void test_it_is_withdrawn_when_suspended(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, 0);
    see(&x, RUN_PENDING, "Priority", 4);
    settle(&x);
    struct workload *w = object_edit_as(kit_get(&x.kit, "w"), workload, x.kit.a);
    w->spec->suspend = true;
    assert_int_equal(kit_update(&x.kit, KIND_WORKLOAD, x.kit.ns, "w", w, 0, false).code, 0);
    x.brain.root = x.kit.root;
    settle(&x);
    withdrawn(&x);
    assert_int_equal(status(&x)->ends[0].deniedUntil, 0);
    world_fini(&x);
}

static void test_it_does_not_wait_for_ever(void **state)
{
    struct world x;

    (void)state;
    world_init(&x, 60000);
    see(&x, RUN_PENDING, "Priority", 4);
    settle(&x);
    assert_int_equal(status(&x)->phase, PHASE_STARTING);
    x.kit.now += 60001;
    see(&x, RUN_PENDING, "Resources", 4); /* an entry, by which the state's time moves on */
    settle(&x);
    withdrawn(&x);
    assert_string_equal(status(&x)->reason, "PendingTooLong");
    const struct run_end *e = &status(&x)->ends[status(&x)->n_ends - 1];
    assert_int_equal(e->deniedUntil - e->at, 60000); /* it goes elsewhere */
    world_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_told_and_seated),
        cmocka_unit_test(test_it_is_seated_where_nobody_saw_it_wait),
        cmocka_unit_test(test_it_ends_where_it_could_not_be_seated),
        cmocka_unit_test(test_what_cannot_be_told_is_unknown),
        cmocka_unit_test(test_who_forgot_what_he_ran_cannot_tell),
        cmocka_unit_test(test_a_lost_lease_stops_also_what_ends_with_0),
        cmocka_unit_test(test_what_is_broken_off_while_it_saves_is_queued),
        cmocka_unit_test(test_a_lease_that_is_lost_often_is_no_failure),
        cmocka_unit_test(test_it_is_withdrawn_when_suspended),
        cmocka_unit_test(test_it_does_not_wait_for_ever),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
