/* A run of which nobody can tell, whose runners begin by a claim, or within some time alone: when
 * the leader closes its try, and when it waits. The log is a real one; a scripted connector answers
 * when the test says so. */
#include "controlplane/leader/context/context.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/drive/calls.h"
#include "controlplane/leader/drive/driver.h"
#include "controlplane/leader/drive/observed.h"
#include "controlplane/leader/move/mover.h"
#include "controlplane/leader/site/sites.h"
#include "tests/support/store/move_kit.h"

static struct kit *log_kit;
static int64_t start_within_ms; /* of the next Target; 0: at any time */

void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg)
{
    (void)cb;
    (void)kit_apply(log_kit, c);
    b->root = log_kit->root;
    if (c->run.step != STEP_CHECKPOINT_BAD) /* told beside, with the driver itself */
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

static void follow(struct brain *b)
{
    (void)b;
}
static void find(struct connector *c, const struct run_key *k, struct call *call)
{
    (void)c;
    (void)k;
    (void)call;
}
static const struct connector_ops ops = {.find = find};

struct world {
    struct kit kit;
    struct brain brain;
    struct sites sites;
    struct movers movers;
    struct site site;
    struct driver d;
    struct connector connector;
};

static void target_make(struct kit *k, bool runners, int64_t pending_for)
{
    struct target *t = arena_new(k->a, struct target);

    t->spec = arena_new(k->a, struct target_spec);
    t->spec->type = TARGET_CALLOUT;
    t->spec->tier = TIER_HUB;
    t->spec->connection = arena_new(k->a, struct target_connection);
    t->spec->connection->server = "https://fra.test";
    t->spec->connection->runners = runners;
    t->spec->partition = arena_new(k->a, struct target_partition);
    t->spec->partition->suspectAfter = 5000;
    t->spec->limits = arena_new(k->a, struct target_limits);
    t->spec->limits->pendingFor = pending_for;
    t->spec->limits->startWithin = start_within_ms;
    t->spec->limits->clockError = start_within_ms ? 5000 : 0;
    assert_int_equal(kit_create(k, KIND_TARGET, "", "fra", t).code, 0);
    assert_int_equal(kit_facts(k, "fra", 1, 4, true).code, 0);
}

/* Dispatched, pending there where that is asked for, and then nobody can tell. */
static void unknown(struct world *x, bool runners, bool pending, int64_t pending_for)
{
    struct err err;

    *x = (struct world){.connector = {.ops = &ops}};
    kit_begin(&x->kit);
    kit_level_set(&x->kit, FEATURE_LEVEL);
    target_make(&x->kit, runners, pending_for);
    assert_int_equal(kit_workload(&x->kit, x->kit.ns, "w", 1, 1).code, 0);
    assert_int_equal(kit_place(&x->kit, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(&x->kit, "w", 1, 1, STEP_DISPATCH).code, 0);
    if (pending)
        assert_int_equal(kit_run(&x->kit, "w", 1, 1, STEP_PENDING).code, 0);
    assert_int_equal(kit_run(&x->kit, "w", 1, 1, STEP_UNKNOWN).code, 0);
    log_kit = &x->kit;
    x->brain = (struct brain){.sites = &x->sites,
                              .movers = &x->movers,
                              .leads = true,
                              .term = 3,
                              .follow = follow,
                              .root = x->kit.root,
                              .loop = loop_uv_create(&err)};
    assert_non_null(x->brain.loop);
    sites_init(&x->brain);
    movers_init(&x->brain);
    list_init(&x->site.drivers);
    x->site.brain = &x->brain;
    x->site.connector = &x->connector;
    x->site.suspect = true;
    x->site.doc = object_ref(root_get(x->kit.root, KIND_TARGET, "", "fra"));
    (void)snprintf(x->site.name, sizeof x->site.name, "fra");
    x->site.by_name.key = x->site.name;
    index_add(&x->sites.by_name, &x->site.by_name);
    x->d = (struct driver){.brain = &x->brain, .backoff_ms = 50, .told_step = -1};
    x->d.o = object_ref(kit_get(&x->kit, "w"));
    str_copy(x->d.uid, sizeof x->d.uid, x->d.o->meta->uid);
    str_copy(x->d.ns, sizeof x->d.ns, x->kit.ns);
    str_copy(x->d.name, sizeof x->d.name, "w");
    str_copy(x->d.target, sizeof x->d.target, "fra");
    str_copy(x->d.key.uid, sizeof x->d.key.uid, x->d.uid);
    x->d.key.epoch = x->d.key.try_ = 1;
    list_init(&x->d.seat);
    timer_init(&x->d.again, x->brain.loop, (void (*)(void *))driver_tick, &x->d);
    x->d.unknown_since_ms = loop_now_ms(x->brain.loop);
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

static void taken_in(struct world *x)
{
    (void)object_unref(x->d.o);
    x->d.o = object_ref(kit_get(&x->kit, "w"));
}

/* As if it had been so since this machine was started. */
static enum phase much_later(struct world *x)
{
    x->d.unknown_since_ms = 0;
    driver_tick(&x->d);
    return kit_status(&x->kit, "w")->phase;
}

static void claim(struct world *x)
{
    union command c = {.run = {.head = {.type = CMD_RUN},
                               .step = STEP_CLAIM,
                               .epoch = 1,
                               .try_ = 1,
                               .name = "w",
                               .instance = "a"}};

    str_copy(c.run.ns, sizeof c.run.ns, x->kit.ns);
    str_copy(c.run.uid, sizeof c.run.uid, x->d.uid);
    assert_int_equal(kit_apply(&x->kit, &c).code, 0);
    x->brain.root = x->kit.root;
    taken_in(x);
}

static void test_it_is_closed_after_a_while(void **state)
{
    struct world x;

    (void)state;
    unknown(&x, true, false, 0);
    driver_tick(&x.d);
    assert_int_equal(kit_status(&x.kit, "w")->phase, PHASE_UNKNOWN); /* one may be on its way */
    assert_true(timer_active(&x.d.again));
    assert_int_equal(much_later(&x), PHASE_QUEUED);
    const struct run_end *e = &kit_status(&x.kit, "w")->ends[0];
    assert_string_equal(e->reason, "NeverClaimed");
    assert_true(e->deniedUntil > x.kit.now); /* and not tried there again at once */
    world_fini(&x);
}

static void test_whoever_claims_keeps_it(void **state)
{
    struct world x;

    (void)state;
    unknown(&x, true, false, 0);
    claim(&x);
    assert_int_equal(much_later(&x), PHASE_UNKNOWN);
    world_fini(&x);
    unknown(&x, false, false, 0); /* and where none need claim, that nobody has proves nothing */
    assert_int_equal(much_later(&x), PHASE_UNKNOWN);
    world_fini(&x);
}

/* The leader asks the log's own time, which has not moved since. */
static void test_what_waits_there_goes_on_waiting(void **state)
{
    struct world x;

    (void)state;
    unknown(&x, true, true, 0); /* for ever, by its Target */
    assert_int_equal(much_later(&x), PHASE_UNKNOWN);
    world_fini(&x);
    unknown(&x, true, true, 3600000);
    assert_int_equal(much_later(&x), PHASE_UNKNOWN);
    x.kit.now += 3600001;
    kit_level_set(&x.kit, FEATURE_LEVEL);
    x.brain.root = x.kit.root;
    assert_int_equal(much_later(&x), PHASE_QUEUED);
    world_fini(&x);
}

static void test_the_brake_holds_it(void **state)
{
    struct world x;

    (void)state;
    unknown(&x, true, false, 0);
    x.brain.frozen = true; /* it may be us who are cut off */
    assert_int_equal(much_later(&x), PHASE_UNKNOWN);
    x.brain.frozen = false;
    assert_int_equal(much_later(&x), PHASE_QUEUED);
    world_fini(&x);
}

static void test_what_nobody_wants_is_closed_at_once(void **state)
{
    struct world x;

    (void)state;
    unknown(&x, true, true, 0);
    x.brain.frozen = true;
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_STOP).code, 0);
    x.brain.root = x.kit.root;
    taken_in(&x);
    driver_tick(&x.d);
    assert_int_equal(kit_status(&x.kit, "w")->phase, PHASE_CANCELLED);
    world_fini(&x);
}

/* Its target is in reach, and was asked just now. */
static void nowhere(struct world *x, bool unlisted)
{
    struct observation seen = {.key = x->d.key, .state = RUN_UNKNOWN, .unlisted = unlisted};

    x->brain.root = x->kit.root;
    driver_call(&x->d, &x->site, CALL_FIND);
    x->d.call.call.done(&x->d.call.call, OUT_DONE, &seen, NULL);
    driver_tick(&x->d);
}

static void later(struct world *x, int64_t now)
{
    x->kit.now = now;
    kit_level_set(&x->kit, FEATURE_LEVEL);
}

static void test_what_may_not_start_any_more_is_closed(void **state)
{
    struct world x;

    (void)state;
    start_within_ms = 60000;
    unknown(&x, false, false, 0);
    start_within_ms = 0;
    x.site.suspect = false;
    x.site.reachable = true;
    const struct intent *in = kit_status(&x.kit, "w")->intent;
    int64_t until = in->startBy + in->clockError;
    nowhere(&x, true);
    assert_int_equal(kit_status(&x.kit, "w")->phase, PHASE_UNKNOWN);
    later(&x, until - 1);
    nowhere(&x, true);
    assert_int_equal(kit_status(&x.kit, "w")->phase, PHASE_UNKNOWN);
    later(&x, until + 1000);
    nowhere(&x, false); /* it cannot tell, and has not listed all */
    assert_int_equal(kit_status(&x.kit, "w")->phase, PHASE_UNKNOWN);
    nowhere(&x, true);
    assert_int_equal(kit_status(&x.kit, "w")->phase, PHASE_QUEUED);
    assert_string_equal(kit_status(&x.kit, "w")->ends[0].reason, "NotStartedInTime");
    world_fini(&x);
}

/* Until then the workload's status says for what it waits. */
static void test_until_when_it_may_start_is_told(void **state)
{
    struct world x;

    (void)state;
    start_within_ms = 60000;
    unknown(&x, false, false, 0);
    start_within_ms = 0;
    x.site.suspect = false;
    x.site.reachable = true;
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_SEEN).code, 0);
    x.brain.root = x.kit.root;
    taken_in(&x);
    nowhere(&x, true);
    x.d.untold_since_ms = 1; /* for a long time */
    driver_tick(&x.d);
    const struct workload_status *s = kit_status(&x.kit, "w");
    assert_int_equal(s->phase, PHASE_UNKNOWN);
    assert_string_equal(s->reason, "MayStillStart");
    assert_non_null(strstr(s->message, "may still start it until 20"));
    world_fini(&x);
}

static const struct condition *running(struct world *x)
{
    const struct workload_status *s = kit_status(&x->kit, "w");

    for (uint32_t i = 0; i < s->n_conditions; i++)
        if (strcmp(s->conditions[i].type, "Running") == 0)
            return &s->conditions[i];
    fail();
    return NULL;
}

/* Out of reach first, then in reach and unable to tell: people read what holds now. */
static void test_why_it_is_unknown_is_told_anew(void **state)
{
    struct world x;

    (void)state;
    start_within_ms = 60000;
    unknown(&x, false, false, 0);
    start_within_ms = 0;
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_SEEN).code, 0);
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_RUNNING).code, 0);
    assert_int_equal(running(&x)->status, COND_TRUE);
    x.brain.root = x.kit.root;
    taken_in(&x);
    driver_tick(&x.d);
    assert_string_equal(kit_status(&x.kit, "w")->reason, "TargetUnreachable");
    assert_int_equal(running(&x)->status, COND_UNKNOWN);
    assert_true(workload_has_run(kit_status(&x.kit, "w"))); /* all the same */
    taken_in(&x);
    x.d.proposing = false; /* its answer would be this */
    x.site.suspect = false;
    x.site.reachable = true;
    x.d.untold_since_ms = 1; /* for a long time */
    nowhere(&x, false);
    assert_string_equal(kit_status(&x.kit, "w")->reason, "RunNotTold");
    assert_string_equal(running(&x)->reason, "RunNotTold");
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_SEEN).code, 0);
    assert_int_equal(running(&x)->status, COND_TRUE);
    world_fini(&x);
    unknown(&x, false, false, 0); /* members of before would not follow */
    kit_level_set(&x.kit, FEATURE_GIVEN);
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_UNKNOWN).code, E_STALE);
    world_fini(&x);
}

/* A server saw the runner live, and proves that it is gone; the runner has signed that it started
 * nothing. */
static void test_a_runner_that_began_nothing_has_ended(void **state)
{
    struct world x;
    struct observation room, o = {.state = RUN_ABSENT,
                                  .proof = PROOF_NEVER_STARTED,
                                  .left_proof = PROOF_TREE_GONE,
                                  .reason = "StartedTooLate"};

    (void)state;
    unknown(&x, false, false, 0);
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_SEEN).code, 0);
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_RUNNING).code, 0);
    x.brain.root = x.kit.root;
    taken_in(&x);
    o.key = x.d.key;
    const struct observation *told = driver_doubt(&x.d, &o, &room);
    assert_int_equal(told->state, RUN_ENDED);
    assert_int_equal(told->proof, PROOF_TREE_GONE);
    driver_take_seen(&x.d, told);
    driver_tick(&x.d);
    const struct workload_status *s = kit_status(&x.kit, "w");
    assert_int_equal(s->phase, PHASE_QUEUED); /* and that counts as no retry */
    assert_int_equal(s->retries, 0);
    assert_string_equal(s->ends[0].reason, "StartedTooLate");
    o.left_proof = 0; /* it has only forgotten */
    assert_int_equal(driver_doubt(&x.d, &o, &room)->state, RUN_UNKNOWN);
    world_fini(&x);
}

/* Its runners refused what they were to resume from: that is judged in whatever phase their end is
 * seen, or the next place would be given the same one. */
static void checkpoint_refused_in(enum phase phase, enum run_state seen, const char *reason,
                                  bool judged)
{
    struct world x;
    struct observation room, o = {.state = RUN_ABSENT, .proof = PROOF_NEVER_STARTED};

    str_copy(o.reason, sizeof o.reason, reason);
    unknown(&x, false, false, 0);
    if (seen == RUN_ENDED || phase != PHASE_UNKNOWN)
        assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_SEEN).code, 0);
    assert_int_equal(kit_checkpoint(&x.kit, "w", 1, 10, "sha256:a").code, 0);
    assert_non_null(kit_status(&x.kit, "w")->checkpoint);
    if (seen == RUN_ENDED) { /* its server saw the runner live */
        o.left_proof = PROOF_TREE_GONE;
        assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_RUNNING).code, 0);
    }
    if (phase == PHASE_QUIESCING)
        assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_QUIESCE).code, 0);
    else if (seen == RUN_ENDED)
        assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_UNKNOWN).code, 0);
    assert_int_equal(kit_status(&x.kit, "w")->phase, phase);
    x.brain.root = x.kit.root;
    taken_in(&x);
    o.key = x.d.key;
    driver_take_seen(&x.d, driver_doubt(&x.d, &o, &room));
    assert_int_equal(x.d.seen.state, seen);
    driver_tick(&x.d);
    assert_int_equal(kit_status(&x.kit, "w")->phase, PHASE_QUEUED);
    assert_true(!kit_status(&x.kit, "w")->checkpoint == judged);
    world_fini(&x);
}

static void test_a_refused_checkpoint_is_judged(void **state)
{
    (void)state;
    checkpoint_refused_in(PHASE_QUIESCING, RUN_ENDED, "CheckpointTorn", true);
    checkpoint_refused_in(PHASE_QUIESCING, RUN_ABSENT, "CheckpointTorn", true);
    checkpoint_refused_in(PHASE_UNKNOWN, RUN_ENDED, "CheckpointTorn", true);
    checkpoint_refused_in(PHASE_UNKNOWN, RUN_ABSENT, "CheckpointTorn", true);
    checkpoint_refused_in(PHASE_QUIESCING, RUN_ENDED, "StartedTooLate", false);
    checkpoint_refused_in(PHASE_UNKNOWN, RUN_ENDED, "StartedTooLate", false);
}

static void lease_step(struct world *x, enum run_step step, int64_t ms, int64_t number)
{
    struct lease_grant g = {.lease = ms, .grace = 1000, .kill = 5000, .number = number};
    union command c = {.run = {.head = {.type = CMD_RUN},
                               .step = step,
                               .epoch = 1,
                               .try_ = 1,
                               .name = "w",
                               .grant = &g}};

    g.held = step == STEP_GRANT;
    str_copy(c.run.ns, sizeof c.run.ns, x->kit.ns);
    str_copy(c.run.uid, sizeof c.run.uid, x->d.uid);
    assert_int_equal(kit_apply(&x->kit, &c).code, 0);
    x->brain.root = x->kit.root;
}

/* What a connector learns of it: whether that very try lives, and which lease all its runners have
 * said that they hold. */
static void test_connectors_are_told_of_what_the_log_has(void **state)
{
    struct run_where at = {.lives = false};
    struct world x;
    AUTO_ARENA a = arena_create(0);

    (void)state;
    unknown(&x, true, false, 0);
    struct run_key k = x.d.key, other = k, later = k;
    other.try_ = 2;
    later.epoch = 2;
    assert_true(site_where(&x.site, &k, a, &at));
    assert_true(at.lives);
    assert_int_equal(at.lease_ms, 0);
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_SEEN).code, 0);
    assert_int_equal(kit_run(&x.kit, "w", 1, 1, STEP_RUNNING).code, 0);
    lease_step(&x, STEP_OFFER, 60000, 2);
    assert_true(site_where(&x.site, &k, a, &at));
    assert_int_equal(at.lease_ms, 0);
    lease_step(&x, STEP_GRANT, 60000, 2);
    assert_true(site_where(&x.site, &k, a, &at));
    assert_true(at.lives);
    assert_int_equal(at.lease_ms, 60000);
    assert_int_equal(at.n, 1);
    assert_true(site_where(&x.site, &other, a, &at));
    assert_false(at.lives);
    assert_int_equal(at.lease_ms, 0);
    assert_false(site_where(&x.site, &later, a, &at));
    world_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_closed_after_a_while),
        cmocka_unit_test(test_whoever_claims_keeps_it),
        cmocka_unit_test(test_what_waits_there_goes_on_waiting),
        cmocka_unit_test(test_the_brake_holds_it),
        cmocka_unit_test(test_what_nobody_wants_is_closed_at_once),
        cmocka_unit_test(test_what_may_not_start_any_more_is_closed),
        cmocka_unit_test(test_until_when_it_may_start_is_told),
        cmocka_unit_test(test_why_it_is_unknown_is_told_anew),
        cmocka_unit_test(test_a_runner_that_began_nothing_has_ended),
        cmocka_unit_test(test_a_refused_checkpoint_is_judged),
        cmocka_unit_test(test_connectors_are_told_of_what_the_log_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
