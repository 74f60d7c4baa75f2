/* What the log promises of a try (apply/grant.c): the lease that goes with its order, those that
 * are offered later, what its runner acknowledged; where its checkpoints go. */
#include "tests/support/store/store_kit.h"

static const struct lease_grant first = {.lease = 60000, .grace = 2000, .kill = 5000, .number = 1};

static void members_know(struct kit *k, uint32_t level)
{
    union command c = {.head = {.type = CMD_MEMBER}};

    c.member.member = (struct member_info){
        .id = 1, .address = "m1:1", .api_address = "m1:2", .name = "m1", .feature_level = level};
    (void)snprintf(c.member.cluster_uid, sizeof c.member.cluster_uid, "c");
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static const struct workload_status *status(struct kit *k)
{
    return object_as(kit_get(k, "w"), workload)->status;
}

static struct result lease(struct kit *k, enum run_step step, int64_t number, int64_t ms)
{
    struct lease_grant g = {.lease = ms, .grace = 1000, .kill = 5000, .number = number};
    union command c = {.head = {.type = CMD_RUN}};

    str_copy(c.run.ns, sizeof c.run.ns, k->ns);
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    c.run.epoch = status(k)->epoch;
    c.run.try_ = step == STEP_DISPATCH ? 1 : status(k)->intent->try_;
    c.run.step = step;
    c.run.grant = number ? &g : NULL;
    return kit_apply(k, &c);
}

static void placed(struct kit *k, uint32_t level)
{
    kit_begin(k);
    members_know(k, level);
    kit_pool(k, 1, 4);
    assert_int_equal(kit_workload(k, "default", "w", 1, 1).code, 0);
    const struct object *o = kit_get(k, "w");
    struct workload *w = object_edit_as(o, workload, k->a);
    w->spec->checkpoint = arena_new(k->a, struct checkpoint_spec);
    w->spec->checkpoint->store = "/shared";
    assert_int_equal(kit_update(k, KIND_WORKLOAD, "default", "w", w, 0, false).code, 0);
    assert_int_equal(kit_place(k, "w", "fra.n0", 0, 1, 1).code, 0);
}

static void dispatched(struct kit *k)
{
    placed(k, FEATURE_GRANTS);
    assert_int_equal(lease(k, STEP_DISPATCH, first.number, first.lease).code, 0);
    assert_int_equal(kit_run(k, "w", 1, 1, STEP_RUNNING).code, 0);
}

static void test_dispatch_says_what_is_granted(void **state)
{
    struct kit k;

    (void)state;
    placed(&k, FEATURE_GRANTS);
    assert_int_equal(lease(&k, STEP_DISPATCH, 1, -1).code, E_INVALID);
    assert_int_equal(lease(&k, STEP_DISPATCH, 1, 60000).code, 0);
    const struct intent *in = status(&k)->intent;
    assert_int_equal(in->granted->lease, 60000);
    assert_int_equal(in->granted->number, 1);
    assert_null(in->offered);
    assert_string_equal(in->store, "/shared");
    kit_end(&k);
}

/* Members of the version before apply it, too, and would know nothing of it. */
static void test_nothing_of_it_before_all_members_know(void **state)
{
    struct kit k;

    (void)state;
    placed(&k, FEATURE_GRANTS - 1);
    assert_int_equal(lease(&k, STEP_DISPATCH, 1, 60000).code, 0);
    assert_null(status(&k)->intent->granted);
    assert_string_equal(status(&k)->intent->store, "");
    kit_end(&k);
}

/* Where nothing stops itself there is no lease: the log says that, too. */
static void test_dispatch_may_grant_none(void **state)
{
    struct kit k;

    (void)state;
    placed(&k, FEATURE_GRANTS);
    assert_int_equal(lease(&k, STEP_DISPATCH, 1, 0).code, 0);
    assert_non_null(status(&k)->intent->granted);
    assert_int_equal(status(&k)->intent->granted->lease, 0);
    kit_end(&k);
}

static void test_only_what_was_offered_is_acknowledged(void **state)
{
    struct kit k;

    (void)state;
    dispatched(&k);
    assert_int_equal(lease(&k, STEP_GRANT, 2, 6000).code, E_STALE);
    assert_int_equal(lease(&k, STEP_OFFER, 3, 6000).code, E_STALE);
    assert_int_equal(lease(&k, STEP_OFFER, 0, 0).code, E_INVALID);
    assert_int_equal(lease(&k, STEP_OFFER, 2, 6000).code, 0);
    const struct intent *in = status(&k)->intent; /* it may hold either */
    assert_int_equal(in->granted->lease, 60000);
    assert_int_equal(in->offered->lease, 6000);
    assert_int_equal(lease(&k, STEP_OFFER, 3, 90000).code, E_STALE); /* one at a time */
    assert_int_equal(lease(&k, STEP_GRANT, 1, 60000).code, E_STALE);
    assert_int_equal(lease(&k, STEP_GRANT, 0, 0).code, E_STALE);
    /* What was offered counts, not what the acknowledgement says. */
    assert_int_equal(lease(&k, STEP_GRANT, 2, 1).code, 0);
    in = status(&k)->intent;
    assert_int_equal(in->granted->lease, 6000);
    assert_int_equal(in->granted->number, 2);
    assert_null(in->offered);
    assert_int_equal(lease(&k, STEP_GRANT, 2, 6000).code, E_STALE);
    assert_int_equal(kit_phase(&k, "default", "w"), PHASE_RUNNING);
    kit_end(&k);
}

/* Acknowledged just before it fell silent; and the offer outlives the phases. */
static void test_an_offer_outlives_phases(void **state)
{
    struct kit k;

    (void)state;
    dispatched(&k);
    assert_int_equal(lease(&k, STEP_OFFER, 2, 6000).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    assert_int_equal(status(&k)->intent->offered->lease, 6000);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_QUIESCE).code, 0);
    assert_int_equal(status(&k)->intent->granted->lease, 60000);
    assert_int_equal(lease(&k, STEP_GRANT, 2, 6000).code, 0);
    assert_int_equal(status(&k)->intent->granted->lease, 6000);
    assert_int_equal(kit_phase(&k, "default", "w"), PHASE_UNKNOWN);
    kit_end(&k);
}

/* Tries of older logs hold what their leader gave them, as number 1. */
static void test_offers_to_tries_of_older_logs(void **state)
{
    struct kit k;

    (void)state;
    placed(&k, FEATURE_GRANTS);
    assert_int_equal(lease(&k, STEP_DISPATCH, 0, 0).code, 0);
    assert_null(status(&k)->intent->granted);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_RUNNING).code, 0);
    assert_int_equal(lease(&k, STEP_OFFER, 1, 6000).code, E_STALE);
    assert_int_equal(lease(&k, STEP_OFFER, 7, 6000).code, 0); /* it has told that it holds 5 */
    assert_null(status(&k)->intent->granted);
    assert_int_equal(lease(&k, STEP_GRANT, 5, 6000).code, E_STALE);
    assert_int_equal(lease(&k, STEP_GRANT, 7, 6000).code, 0);
    assert_int_equal(status(&k)->intent->granted->lease, 6000);
    assert_int_equal(lease(&k, STEP_OFFER, 9, 6000).code, E_STALE);
    assert_int_equal(lease(&k, STEP_OFFER, 8, 6000).code, 0);
    kit_end(&k);
}

/* Its target knows of the run only; whether a lease ends it, its own runner says. */
static void on_a_callout_target(struct kit *k)
{
    struct target *t;

    placed(k, FEATURE_GRANTS);
    t = arena_new(k->a, struct target);
    t->spec = arena_new(k->a, struct target_spec);
    t->spec->type = TARGET_CALLOUT;
    t->spec->tier = TIER_HUB;
    assert_int_equal(kit_create(k, KIND_TARGET, "", "cal", t).code, 0);
    assert_int_equal(kit_facts(k, "cal", 1, 4, true).code, 0);
    assert_int_equal(kit_run(k, "w", 1, 0, STEP_REQUEUE).code, 0);
    assert_int_equal(kit_place(k, "w", "cal.n0", 0, 1, 1).code, 0);
    assert_int_equal(lease(k, STEP_DISPATCH, first.number, first.lease).code, 0);
    assert_false(status(k)->intent->granted->held);
}

static struct result told_held(struct kit *k, enum run_step step)
{
    struct lease_grant g = {.lease = 1, .number = 1, .held = true};
    union command c = {.run = {.head = {.type = CMD_RUN}, .epoch = 2, .try_ = 1, .step = step}};

    str_copy(c.run.ns, sizeof c.run.ns, k->ns);
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    c.run.lease_held = step != STEP_GRANT;
    c.run.grant = step == STEP_GRANT ? &g : NULL;
    return kit_apply(k, &c);
}

static void test_a_lease_proves_what_its_runner_told(void **state)
{
    struct kit k;

    (void)state;
    on_a_callout_target(&k);
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_RUNNING).code, 0);
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_UNKNOWN).code, 0);
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_LEASE_OVER).code, E_STALE);
    assert_int_equal(kit_phase(&k, "default", "w"), PHASE_UNKNOWN);
    assert_int_equal(told_held(&k, STEP_GRANT).code, 0);
    assert_true(status(&k)->intent->granted->held);
    assert_int_equal(status(&k)->intent->granted->lease, 60000);
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_LEASE_OVER).code, 0);
    kit_end(&k);
}

/* It goes with the steps that are due anyway. */
static void test_a_runner_tells_of_its_lease_with_its_start(void **state)
{
    struct kit k;

    (void)state;
    on_a_callout_target(&k);
    assert_int_equal(told_held(&k, STEP_RUNNING).code, 0);
    assert_true(status(&k)->intent->granted->held);
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_UNKNOWN).code, 0);
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_LEASE_OVER).code, 0);
    kit_end(&k);
}

/* Each runner of an agent holds one, from its order on, whether it could tell or not. */
static void test_an_agents_runs_hold_theirs(void **state)
{
    struct kit k;

    (void)state;
    placed(&k, FEATURE_GRANTS);
    assert_int_equal(lease(&k, STEP_DISPATCH, first.number, first.lease).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_LEASE_OVER).code, 0);
    kit_end(&k);
}

static struct result workers_told(struct kit *k, enum run_step step, struct worker_status *v,
                                  uint32_t n)
{
    union command c = {.run = {.head = {.type = CMD_RUN}, .epoch = 1, .try_ = 1, .step = step}};

    str_copy(c.run.ns, sizeof c.run.ns, k->ns);
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    c.run.workers = v;
    c.run.n = n;
    c.run.exit_code = step == STEP_ENDED;
    c.run.requeue = true;
    c.run.proof = PROOF_TREE_GONE;
    return kit_apply(k, &c);
}

#define RANKS (WORKERS_SHOWN_MAX + 16)
static void on_two_nodes(struct kit *k)
{
    struct placement *p = kit_workers(k, "fra.n0", 0, RANKS / 2, 1),
                     *q = kit_workers(k, "fra.n1", 0, RANKS / 2, 1);
    struct assignment *all = arena_array(k->a, struct assignment, RANKS);
    union command c;

    for (int i = 0; i < RANKS; i++) {
        all[i] = (i < RANKS / 2 ? p : q)->assignments[i % (RANKS / 2)];
        all[i].rank = i;
    }
    p->assignments = all;
    p->n_assignments = RANKS;
    kit_place_head(k, &c, "w", "Placed", "Chosen");
    c.place.placement = p;
    assert_int_equal(kit_apply(k, &c).code, 0);
    assert_int_equal(lease(k, STEP_DISPATCH, 1, 60000).code, 0);
}

/* As many as are shown, and more: those that failed, then the first; with the places of the log. */
static void test_workers_are_shown_within_bounds(void **state)
{
    struct worker_status v[RANKS + 2];
    struct kit k;

    (void)state;
    kit_begin(&k);
    members_know(&k, FEATURE_GRANTS);
    kit_pool(&k, 2, 64);
    assert_int_equal(kit_workload(&k, "default", "w", RANKS, 1).code, 0);
    on_two_nodes(&k);
    for (int i = 0; i < RANKS + 2; i++)
        v[i] = (struct worker_status){
            .rank = i, .node = "elsewhere", .reason = "", .id = "7@b", .startedAt = 1000 + i};
    v[RANKS + 1].rank = -1; /* what is no rank of it is passed over */
    assert_int_equal(workers_told(&k, STEP_RUNNING, v, RANKS + 2).code, 0);
    assert_int_equal(status(&k)->n_workers, WORKERS_SHOWN_MAX);
    assert_int_equal(status(&k)->workers[3].startedAt, 1003);
    assert_string_equal(status(&k)->workers[3].node, "fra.n0");
    assert_string_equal(status(&k)->workers[3].id, "7@b");
    v[0] = (struct worker_status){.rank = RANKS - 1,
                                  .node = "",
                                  .exitCode = 137,
                                  .reason = "OutOfMemory",
                                  .id = "",
                                  .endedAt = 9000};
    assert_int_equal(workers_told(&k, STEP_ENDED, v, 1).code, 0);
    assert_int_equal(status(&k)->n_workers, WORKERS_SHOWN_MAX);
    const struct worker_status *last = &status(&k)->workers[WORKERS_SHOWN_MAX - 1];
    assert_int_equal(last->rank, RANKS - 1);
    assert_string_equal(last->reason, "OutOfMemory");
    assert_int_equal(status(&k)->workers[WORKERS_SHOWN_MAX - 2].rank, WORKERS_SHOWN_MAX - 2);
    assert_int_equal(kit_phase(&k, "default", "w"), PHASE_QUEUED); /* they stay to be looked at */
    on_two_nodes(&k);
    assert_int_equal(status(&k)->n_workers, 0);
    kit_end(&k);
}

#define HOUR_MS 3600000
#define NEAR(a, b) assert_true((a) - (b) < 0.01 && (b) - (a) < 0.01)

/* Two workers of two GPUs each, for five hours between the entries. */
static struct result spends(struct kit *k, const struct worker_status told[2], int64_t behind_ms)
{
    union command c = {.run = {.head = {.type = CMD_RUN}, .try_ = 1, .step = STEP_ENDED}};
    struct worker_status v[2] = {told[0], told[1]};

    kit_begin(k);
    members_know(k, FEATURE_GRANTS);
    kit_pool(k, 1, 4);
    assert_int_equal(kit_workload(k, "default", "w", 2, 2).code, 0);
    assert_int_equal(kit_place(k, "w", "fra.n0", 0, 2, 2).code, 0);
    assert_int_equal(lease(k, STEP_DISPATCH, 1, 60000).code, 0);
    int64_t from = status(k)->intent->at;
    k->now += 5ll * HOUR_MS;
    str_copy(c.run.ns, sizeof c.run.ns, k->ns);
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    c.run.epoch = 1;
    c.run.proof = PROOF_TREE_GONE;
    c.run.workers = v;
    c.run.n = 2;
    c.run.behind_ms = behind_ms;
    for (int i = 0; i < 2; i++) {
        v[i].rank = i;
        v[i].node = v[i].reason = v[i].id = "";
        v[i].startedAt += v[i].startedAt ? from - behind_ms : 0;
        v[i].endedAt += v[i].endedAt ? from - behind_ms : 0;
    }
    return kit_apply(k, &c);
}

/* What is charged is what was held; what was used of it stands beside it. */
static void test_what_workers_used_is_told_beside_the_charge(void **state)
{
    const struct worker_status told[2] = {{.startedAt = HOUR_MS, .endedAt = 4 * HOUR_MS},
                                          {.startedAt = 2 * HOUR_MS, .endedAt = 4 * HOUR_MS}};
    struct kit k;

    (void)state;
    for (int64_t behind = -HOUR_MS; behind <= HOUR_MS; behind += HOUR_MS) { /* whatever its clock */
        assert_int_equal(spends(&k, told, behind).code, 0);
        NEAR(status(&k)->spent->gpuHours, 20);
        NEAR(status(&k)->spent->usedGpuHours, 2 * 3 + 2 * 2);
        NEAR(status(&k)->spent->unusedGpuHours, 20 - 10);
        kit_end(&k);
    }
}

/* It started before it was sent and ended after its end was known; or it ended before it began; or
 * nothing is told. */
static void test_a_target_can_neither_make_use_nor_hide_more(void **state)
{
    const struct worker_status before[2] = {{.startedAt = -9 * HOUR_MS, .endedAt = 99 * HOUR_MS},
                                            {.startedAt = 3 * HOUR_MS, .endedAt = HOUR_MS}};
    const struct worker_status silent[2] = {{.startedAt = 0, .endedAt = 0},
                                            {.startedAt = HOUR_MS, .endedAt = 0}};
    struct kit k;

    (void)state;
    assert_int_equal(spends(&k, before, 0).code, 0);
    NEAR(status(&k)->spent->gpuHours, 20);
    NEAR(status(&k)->spent->usedGpuHours, 10);
    NEAR(status(&k)->spent->unusedGpuHours, 10);
    kit_end(&k);
    assert_int_equal(spends(&k, silent, 0).code, 0);
    NEAR(status(&k)->spent->gpuHours, 20);
    NEAR(status(&k)->spent->usedGpuHours, 0);
    NEAR(status(&k)->spent->unusedGpuHours, 0);
    kit_end(&k);
}

/* A store that is edited while it runs is the next epoch's. */
static void test_its_store_is_what_it_was_told(void **state)
{
    struct kit k;
    struct run_checkpoint ck = {.step = 9, .digest = "sha256:x", .path = "/shared/c"};

    (void)state;
    dispatched(&k);
    struct workload *w = object_edit_as(kit_get(&k, "w"), workload, k.a);
    w->spec->checkpoint->store = "/elsewhere";
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, "default", "w", w, 0, false).code, 0);
    assert_string_equal(status(&k)->intent->store, "/shared");
    k.checkpoint = &ck;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CHECKPOINT).code, 0);
    const struct object *o =
        root_get(k.root, KIND_CHECKPOINT, "default", status(&k)->checkpoint->name);
    assert_string_equal(object_as(o, checkpoint)->spec->store, "/shared");
    k.checkpoint = NULL;
    k.requeue = true;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    assert_string_equal(status(&k)->ends[0].store, "/shared");
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(lease(&k, STEP_DISPATCH, 1, 60000).code, 0);
    assert_string_equal(status(&k)->intent->store, "/elsewhere");
    kit_end(&k);
}

static struct result connect_to(struct kit *k, const char *server, const char *secret)
{
    struct target *t = object_edit_as(root_get(k->root, KIND_TARGET, "", "fra"), target, k->a);

    t->spec->connection = arena_new(k->a, struct target_connection);
    t->spec->connection->server = server;
    t->spec->connection->credentialsFrom = arena_new(k->a, struct secret_ref);
    t->spec->connection->credentialsFrom->secret = secret;
    return kit_update(k, KIND_TARGET, "", "fra", t, 0, false);
}

static struct result context_of(struct kit *k, const char *context)
{
    struct target *t = object_edit_as(root_get(k->root, KIND_TARGET, "", "fra"), target, k->a);

    t->spec->kubernetes = arena_new(k->a, struct target_kubernetes);
    t->spec->kubernetes->context = context;
    return kit_update(k, KIND_TARGET, "", "fra", t, 0, false);
}

/* What runs on a Target would be looked for where it never was. */
static void test_a_target_leads_nowhere_else_under_work(void **state)
{
    struct kit k;

    (void)state;
    placed(&k, FEATURE_GRANTS);
    struct result r = connect_to(&k, "https://other", "s");
    assert_int_equal(r.code, E_CONFLICT);
    assert_string_equal(r.field, "spec.connection");
    assert_non_null(strstr(r.text, "drain"));
    assert_int_equal(connect_to(&k, "", "s").code, 0); /* credentials go their own way */
    r = context_of(&k, "another");                     /* of a kubeconfig: another cluster */
    assert_int_equal(r.code, E_CONFLICT);
    assert_non_null(strstr(r.text, "context"));
    assert_int_equal(kit_run(&k, "w", 1, 0, STEP_REQUEUE).code, 0);
    assert_int_equal(connect_to(&k, "https://other", "s").code, 0);
    /* Deleted, it is there until nothing is held on it: none of that name can be made meanwhile. */
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_delete(&k, KIND_TARGET, "", "fra").code, 0);
    struct target *again = arena_new(k.a, struct target);
    again->spec = arena_new(k.a, struct target_spec);
    again->spec->type = TARGET_AGENT;
    again->spec->tier = TIER_HUB;
    assert_int_equal(kit_create(&k, KIND_TARGET, "", "fra", again).code, E_EXISTS);
    assert_int_equal(kit_run(&k, "w", 2, 0, STEP_REQUEUE).code, 0);
    union command slice = {
        .collect = {.head = {.type = CMD_COLLECT}, .objects = 100, .bytes = 1 << 20}};
    while (root_collect_due(k.root))
        assert_int_equal(kit_apply(&k, &slice).code, 0);
    assert_int_equal(kit_create(&k, KIND_TARGET, "", "fra", again).code, 0);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dispatch_may_grant_none),
        cmocka_unit_test(test_dispatch_says_what_is_granted),
        cmocka_unit_test(test_nothing_of_it_before_all_members_know),
        cmocka_unit_test(test_only_what_was_offered_is_acknowledged),
        cmocka_unit_test(test_an_offer_outlives_phases),
        cmocka_unit_test(test_offers_to_tries_of_older_logs),
        cmocka_unit_test(test_a_lease_proves_what_its_runner_told),
        cmocka_unit_test(test_a_runner_tells_of_its_lease_with_its_start),
        cmocka_unit_test(test_an_agents_runs_hold_theirs),
        cmocka_unit_test(test_workers_are_shown_within_bounds),
        cmocka_unit_test(test_what_workers_used_is_told_beside_the_charge),
        cmocka_unit_test(test_a_target_can_neither_make_use_nor_hide_more),
        cmocka_unit_test(test_its_store_is_what_it_was_told),
        cmocka_unit_test(test_a_target_leads_nowhere_else_under_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
