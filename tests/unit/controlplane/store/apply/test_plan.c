/* How moves begin: plans of many, all or nothing, whose victims are checked again; the room that is
 * kept for whom they make it; what users ask for; and what is deleted or suspended meanwhile. */
#include "tests/support/store/move_kit.h"

/* Four devices on the hub: two trainings of one, a batch of two; the production waits for three. */
static void begin(struct kit *k)
{
    kit_begin(k);
    kit_target(k, "fra", TIER_HUB, 1, 4);
    kit_target(k, "ber", TIER_SPOKE, 1, 4);
    kit_class(k, "production", 100, true, 0);
    kit_class(k, "training", 10, false, 60000);
    kit_class(k, "batch", 1, false, 0);
    kit_running(k, "t1", "training", "fra.n0", 0, 1);
    kit_running(k, "t2", "training", "fra.n0", 1, 1);
    kit_running(k, "b", "batch", "fra.n0", 2, 2);
    kit_running(k, "p", "production", "", 0, 3);
    k->now += 100000;
}

static void refused(struct kit *k, struct move_begin *b, uint32_t n, const char *for_, int code,
                    const char *says)
{
    uint64_t rv = root_rv(k->root), digest = k->root->digest;
    struct result r = kit_plan(k, b, n, for_, kit_placement(k, "fra.n0", 1, 3));

    if (r.code != code || !strstr(r.text, says))
        fail_msg("%d \"%s\", expected %d \"%s\"", r.code, r.text, code, says);
    assert_true(root_rv(k->root) == rv && k->root->digest == digest); /* nothing of the plan */
}

static void step_ok(struct kit *k, const char *name, enum move_step step)
{
    struct result r = kit_step(k, name, step);

    if (r.code)
        fail_msg("%s of %s: %s", move_step_text(step), name, r.text);
    root_check(k->root);
}

static void requeue(struct kit *k, const char *name, const char *workload)
{
    step_ok(k, name, MOVE_QUIESCE);
    k->requeue = true;
    assert_int_equal(kit_run(k, workload, 1, 1, STEP_ENDED).code, 0);
    k->requeue = false;
    for (enum move_step s = MOVE_VERIFY; s <= MOVE_START; s++)
        step_ok(k, name, s);
}

/* t2 is requeued, b goes to the spoke; then the production starts in their room. */
static void test_room_is_made(void **state)
{
    union command c;
    struct kit k;

    (void)state;
    begin(&k);
    int64_t queued = kit_status(&k, "t2")->queuedAt;
    struct move_begin b[2] = {
        kit_begin_of(&k, "t2", MOVE_PREEMPTION, NULL),
        kit_begin_of(&k, "b", MOVE_PREEMPTION, kit_placement(&k, "ber.n0", 0, 2))};
    struct result r = kit_plan(&k, b, 2, "p", kit_placement(&k, "fra.n0", 1, 3));
    assert_string_equal(r.text, "");
    root_check(k.root);
    assert_string_equal(kit_move_status(&k, "t2-m1")->for_, "default/p");
    assert_int_equal(kit_move_status(&k, "t2-m1")->phase, MP_QUIESCING);
    assert_null(kit_move_status(&k, "t2-m1")->placement);
    assert_int_equal(kit_move_status(&k, "t2-m1")->toEpoch, 0);
    assert_string_equal(kit_move_status(&k, "b-m1")->to, "ber");
    assert_int_equal(kit_status(&k, "p")->nominated->gpus, 3000);
    assert_true(kit_held(&k, "fra.n0") == 4 && kit_held(&k, "ber.n0") == 2);
    requeue(&k, "t2-m1", "t2");
    assert_int_equal(kit_move_status(&k, "t2-m1")->phase, MP_SUCCEEDED);
    assert_string_equal(kit_move_status(&k, "t2-m1")->reason, "Requeued");
    assert_string_equal(kit_move_status(&k, "t2-m1")->message, "why it moves");
    assert_int_equal(kit_status(&k, "t2")->phase, PHASE_QUEUED);
    assert_string_equal(kit_status(&k, "t2")->migration, "");
    assert_int_equal(kit_status(&k, "t2")->queuedAt, queued); /* its place in the queue */
    kit_place_head(&k, &c, "p", "Placed", "Chosen");
    c.place.placement = kit_placement(&k, "fra.n0", 1, 3);
    assert_int_equal(kit_apply(&k, &c).code, E_PLACE); /* b still holds its part */
    requeue(&k, "b-m1", "b");
    assert_int_equal(kit_move_status(&k, "b-m1")->phase, MP_STARTING);
    assert_string_equal(kit_apply(&k, &c).text, "");
    assert_null(kit_status(&k, "p")->nominated);
    assert_true(kit_held(&k, "fra.n0") == 4 && kit_held(&k, "ber.n0") == 2);
    kit_end(&k);
}

static void test_one_bad_victim_spoils_the_plan(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    struct move_begin b[3] = {
        kit_begin_of(&k, "t1", MOVE_PREEMPTION, NULL),
        kit_begin_of(&k, "b", MOVE_PREEMPTION, kit_placement(&k, "ber.n0", 0, 2)),
        kit_begin_of(&k, "t2", MOVE_PREEMPTION, NULL)};
    b[2].epoch = 7;
    refused(&k, b, 3, "p", E_STALE, "t2 is in epoch 1");
    b[2] = kit_begin_of(&k, "gone", MOVE_PREEMPTION, NULL);
    refused(&k, b, 3, "p", E_STALE, "gone is not the one");
    b[2] = b[0]; /* twice */
    refused(&k, b, 3, "p", E_STALE, "moved already");
    b[2] = kit_begin_of(&k, "t2", MOVE_PREEMPTION, kit_placement(&k, "ber.n0", 1, 1));
    refused(&k, b, 3, "p", E_PLACE, "GPU 1 has 1000/1000"); /* promised to b by the same plan */
    b[2] = kit_begin_of(&k, "t2", MOVE_DRAIN, NULL);
    refused(&k, b, 3, "p", E_INVALID, "makes no room");
    refused(&k, b, 3, NULL, E_INVALID, "for nobody");
    b[2] = kit_begin_of(&k, "t2", MOVE_PREEMPTION, NULL);
    refused(&k, b, 3, "gone", E_STALE, "was to be made for");
    assert_string_equal(kit_plan(&k, b, 3, "p", kit_placement(&k, "fra.n0", 1, 3)).text, "");
    kit_end(&k);
}

static void test_who_is_never_a_victim(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    kit_class(&k, "critical", 1000, false, 0);
    kit_running(&k, "high", "critical", "", 0, 3);
    kit_running(&k, "low", "batch", "", 0, 1);
    kit_running(&k, "prod", "production", "ber.n0", 0, 1);
    kit_running(&k, "young", "training", "ber.n0", 1, 1);
    struct move_begin b = kit_begin_of(&k, "prod", MOVE_PREEMPTION, NULL);
    refused(&k, &b, 1, "high", E_PLACE, "VictimProtected");
    b = kit_begin_of(&k, "young", MOVE_PREEMPTION, NULL);
    refused(&k, &b, 1, "p", E_PLACE, "VictimTooYoung");
    b = kit_begin_of(&k, "b", MOVE_PREEMPTION, NULL);
    refused(&k, &b, 1, "low", E_PLACE, "VictimNotLower"); /* an equal is no victim */
    b.cause = MOVE_RECLAIM;
    refused(&k, &b, 1, "low", E_PLACE, "VictimNotLower"); /* nothing was borrowed */
    k.now += 60000;
    b = kit_begin_of(&k, "young", MOVE_PREEMPTION, NULL);
    assert_string_equal(kit_plan(&k, &b, 1, "p", NULL).text, "");
    assert_null(kit_status(&k, "p")->nominated);
    kit_end(&k);
}

static void queue(struct kit *k, const char *name, int64_t guaranteed)
{
    struct queue *q = arena_new(k->a, struct queue);

    q->spec = arena_new(k->a, struct queue_spec);
    q->spec->lend = true;
    q->spec->gpus = arena_new(k->a, struct queue_gpus);
    q->spec->n_gpus = 1;
    *q->spec->gpus =
        (struct queue_gpus){.class_ = "h100", .guaranteed = guaranteed, .burst = 4, .has = 7};
    assert_string_equal(kit_create(k, KIND_QUEUE, "", name, q).text, "");
}

static void running_in(struct kit *k, const char *name, const char *queue, int64_t first,
                       int64_t gpus, bool place)
{
    union command c;

    assert_int_equal(kit_workload(k, k->ns, name, 1, gpus).code, 0);
    struct workload *w = object_edit_as(kit_get(k, name), workload, k->a);
    w->spec->queue = queue;
    assert_int_equal(kit_update(k, KIND_WORKLOAD, k->ns, name, w, 0, false).code, 0);
    if (!place)
        return;
    kit_place_head(k, &c, name, "Placed", "Chosen");
    str_copy(c.place.queue, sizeof c.place.queue, queue);
    c.place.placement = kit_placement(k, "fra.n0", first, gpus);
    assert_string_equal(kit_apply(k, &c).text, "");
    assert_int_equal(kit_run(k, name, 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_run(k, name, 1, 1, STEP_RUNNING).code, 0);
}

/* A queue gives back what it borrowed and not one GPU of its own, though each alone would do. */
static void test_no_more_than_borrowed_is_asked_back(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    kit_target(&k, "fra", TIER_HUB, 1, 4);
    queue(&k, "mine", 2);
    queue(&k, "theirs", 2);
    running_in(&k, "x1", "theirs", 0, 1, true);
    running_in(&k, "x2", "theirs", 1, 1, true);
    running_in(&k, "x3", "theirs", 2, 2, true);
    running_in(&k, "w", "mine", 0, 2, false);
    struct move_begin b[3] = {kit_begin_of(&k, "x1", MOVE_RECLAIM, NULL),
                              kit_begin_of(&k, "x2", MOVE_RECLAIM, NULL),
                              kit_begin_of(&k, "x3", MOVE_RECLAIM, NULL)};
    uint64_t rv = root_rv(k.root);
    struct result r = kit_plan(&k, b, 3, "w", kit_placement(&k, "fra.n0", 0, 2));
    assert_int_equal(r.code, E_PLACE);
    assert_non_null(strstr(r.text, "x3 may not be preempted"));
    assert_int_equal(root_rv(k.root), rv);
    assert_string_equal(kit_plan(&k, b, 2, "w", kit_placement(&k, "fra.n0", 0, 2)).text, "");
    kit_end(&k);
}

/* ---- the room that is kept ---- */
static void test_nominated_goes_with_its_reason(void **state)
{
    struct placement *bad;
    struct kit k;

    (void)state;
    begin(&k);
    struct placement *room = kit_placement(&k, "fra.n0", 1, 3);
    struct move_begin b[2] = {kit_begin_of(&k, "t2", MOVE_PREEMPTION, NULL),
                              kit_begin_of(&k, "b", MOVE_PREEMPTION, NULL)};
    assert_string_equal(kit_plan(&k, b, 2, "p", room).text, "");
    step_ok(&k, "b-m1", MOVE_ABORT); /* it stays: there will be no such room */
    assert_null(kit_status(&k, "p")->nominated);
    assert_string_equal(kit_plan(&k, NULL, 0, "p", room).text, ""); /* anew, without a victim */
    assert_non_null(kit_status(&k, "p")->nominated);
    assert_string_equal(kit_plan(&k, NULL, 0, "p", NULL).text, "");
    assert_null(kit_status(&k, "p")->nominated);
    bad = kit_placement(&k, "fra.n0", 62, 3); /* device 64 */
    assert_int_equal(kit_plan(&k, NULL, 0, "p", bad).code, E_PLACE);
    assert_string_equal(kit_plan(&k, NULL, 0, "p", room).text, "");
    assert_int_equal(kit_run(&k, "t2", 1, 1, STEP_ENDED).code, 0); /* its room falls free anyway */
    step_ok(&k, "t2-m1", MOVE_ABORT);
    assert_non_null(kit_status(&k, "p")->nominated);
    struct workload *w = object_edit_as(kit_get(&k, "p"), workload, k.a);
    w->spec->suspend = true;
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, "default", "p", w, 0, false).code, 0);
    assert_null(kit_status(&k, "p")->nominated);
    assert_int_equal(kit_plan(&k, NULL, 0, "p", room).code, E_STALE);
    w = object_edit_as(kit_get(&k, "p"), workload, k.a);
    w->spec->suspend = false;
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, "default", "p", w, 0, false).code, 0);
    assert_string_equal(kit_plan(&k, NULL, 0, "p", room).text, "");
    assert_int_equal(kit_run(&k, "p", 0, 0, STEP_STOP).code, 0);
    assert_null(kit_status(&k, "p")->nominated);
    kit_end(&k);
}

/* ---- what users ask for ---- */
static void ask_refused(struct kit *k, const char *workload, const char *says)
{
    uint64_t rv = root_rv(k->root);
    struct result r = kit_ask(k, "again", workload, "");

    if (r.code != E_CONFLICT || !strstr(r.text, says))
        fail_msg("%d \"%s\", expected \"%s\"", r.code, r.text, says);
    assert_string_equal(r.field, "spec.workload");
    assert_int_equal(root_rv(k->root), rv);
}

static void test_users_ask(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    ask_refused(&k, "nobody", "there is no workload nobody");
    ask_refused(&k, "p", "is not placed anywhere");
    assert_non_null(strstr(kit_ask(&k, "mv", "t1", "nowhere").text, "there is no Target nowhere"));
    assert_non_null(strstr(kit_ask(&k, "mv", "t1", "fra").text, "is on fra already"));
    assert_string_equal(kit_ask(&k, "mv", "t1", "ber").text, "");
    const struct migration *m = object_as(kit_move(&k, "mv"), migration);
    assert_int_equal(m->spec->cause, MOVE_ASKED);
    assert_int_equal(m->status->phase, MP_PENDING);
    assert_string_equal(m->status->from, "fra");
    assert_string_equal(kit_status(&k, "t1")->migration, "mv");
    ask_refused(&k, "t1", "moved already, by migration mv");
    struct migration *u = object_edit_as(kit_move(&k, "mv"), migration, k.a);
    u->status->phase = MP_SUCCEEDED; /* nobody but MIGRATE says so */
    assert_true(kit_update(&k, KIND_MIGRATION, "default", "mv", u, 0, true).unchanged);
    u->spec->cause = MOVE_PREEMPTION;
    assert_true(kit_update(&k, KIND_MIGRATION, "default", "mv", u, 0, false).unchanged);
    step_ok(&k, "mv", MOVE_WAIT);
    assert_int_equal(kit_move_status(&k, "mv")->phase, MP_RESERVING);
    assert_true(kit_step(&k, "mv", MOVE_WAIT).unchanged);
    struct result r = kit_reserve(&k, "mv", "t1", kit_placement(&k, "fra.n0", 0, 1));
    assert_int_equal(r.code, E_PLACE);
    assert_non_null(strstr(r.text, "the migration asks for ber"));
    assert_int_equal(kit_reserve(&k, "mv", "t2", kit_placement(&k, "ber.n0", 0, 1)).code, E_STALE);
    assert_string_equal(kit_reserve(&k, "mv", "t1", kit_placement(&k, "ber.n0", 0, 1)).text, "");
    u = object_edit_as(kit_move(&k, "mv"), migration, k.a);
    u->spec->cancel = true;
    assert_int_equal(kit_update(&k, KIND_MIGRATION, "default", "mv", u, 0, false).code, 0);
    r = kit_step(&k, "mv", MOVE_QUIESCE);
    assert_int_equal(r.code, E_STALE);
    assert_non_null(strstr(r.text, "was given up"));
    step_ok(&k, "mv", MOVE_ABORT);
    assert_int_equal(kit_run(&k, "t1", 1, 1, STEP_ENDED).code, 0);
    ask_refused(&k, "t1", "has ended");
    kit_end(&k);
}

/* Deleted while it holds something: it goes when that is let go. */
static void test_deletion_is_a_wish(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_string_equal(kit_ask(&k, "mv", "t1", "").text, "");
    assert_string_equal(kit_reserve(&k, "mv", "t1", kit_placement(&k, "ber.n0", 0, 1)).text, "");
    assert_int_equal(kit_delete(&k, KIND_MIGRATION, "default", "mv").code, 0);
    assert_true(kit_move(&k, "mv")->meta->deletionTimestamp != 0);
    assert_int_equal(kit_held(&k, "ber.n0"), 1);
    assert_int_equal(kit_step(&k, "mv", MOVE_QUIESCE).code, E_STALE);
    step_ok(&k, "mv", MOVE_ABORT);
    assert_null(kit_move(&k, "mv"));
    assert_string_equal(kit_status(&k, "t1")->migration, "");
    assert_int_equal(kit_held(&k, "ber.n0"), 0);
    assert_string_equal(kit_ask(&k, "mv", "t1", "").text, "");
    step_ok(&k, "mv", MOVE_ABORT);
    assert_int_equal(kit_delete(&k, KIND_MIGRATION, "default", "mv").code, 0); /* an ended one */
    assert_null(kit_move(&k, "mv"));
    kit_end(&k);
}

/* The workload goes: its Migration follows once it holds nothing; so does a whole namespace. */
static void test_workload_and_namespace_go(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    struct move_begin b = kit_begin_of(&k, "b", MOVE_DRAIN, kit_placement(&k, "ber.n0", 0, 2));
    assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
    step_ok(&k, "b-m1", MOVE_QUIESCE);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, "default", "b").code, 0);
    k.requeue = true;
    assert_int_equal(kit_run(&k, "b", 1, 1, STEP_ENDED).code, 0);
    k.requeue = false;
    assert_null(kit_get(&k, "b"));
    assert_true(kit_move(&k, "b-m1")->meta->deletionTimestamp != 0);
    assert_int_equal(kit_held(&k, "ber.n0"), 2);
    root_check(k.root);
    assert_int_equal(kit_step(&k, "b-m1", MOVE_VERIFY).code, E_STALE);
    assert_int_equal(kit_workload(&k, "default", "b", 1, 2).code, 0); /* another one, same name */
    assert_int_equal(kit_step(&k, "b-m1", MOVE_VERIFY).code, E_STALE);
    step_ok(&k, "b-m1", MOVE_ABORT);
    assert_null(kit_move(&k, "b-m1"));
    assert_int_equal(kit_held(&k, "ber.n0"), 0);
    assert_int_equal(kit_namespace(&k, "team").code, 0);
    k.ns = "team";
    kit_running(&k, "w", "", "ber.n0", 0, 1);
    b = kit_begin_of(&k, "w", MOVE_DRAIN, kit_placement(&k, "ber.n0", 2, 1));
    assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
    assert_int_equal(kit_delete(&k, KIND_NAMESPACE, "", "team").code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    assert_null(kit_get(&k, "w"));
    assert_non_null(kit_move(&k, "w-m1"));
    assert_non_null(root_get(k.root, KIND_NAMESPACE, "", "team"));
    step_ok(&k, "w-m1", MOVE_ABORT);
    assert_null(kit_move(&k, "w-m1"));
    assert_null(root_get(k.root, KIND_NAMESPACE, "", "team"));
    k.ns = "default";
    kit_end(&k);
}

static void test_names_of_many_moves(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    for (int i = 0; i < 3; i++) {
        struct move_begin b = kit_begin_of(&k, "t1", MOVE_DRAIN, NULL);

        assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
        assert_string_equal(kit_status(&k, "t1")->migration, i == 0   ? "t1-m1"
                                                             : i == 1 ? "t1-m1-2"
                                                                      : "t1-m1-3");
        step_ok(&k, kit_status(&k, "t1")->migration, MOVE_ABORT);
    }
    kit_end(&k);
}

static void member(struct kit *k, uint64_t id, uint32_t level, bool remove)
{
    union command c = {.member = {.head = {.type = CMD_MEMBER}, .remove = remove}};

    c.member.member.id = id;
    c.member.member.feature_level = level;
    assert_int_equal(kit_apply(k, &c).code, 0);
}

/* What not every member knows is not proposed. */
static void test_the_least_level_counts(void **state)
{
    struct kit k;

    (void)state;
    kit_begin(&k);
    assert_int_equal(root_feature_level(k.root), 0);
    member(&k, 1, FEATURE_LEVEL, false);
    assert_int_equal(root_feature_level(k.root), FEATURE_LEVEL);
    member(&k, 2, 0, false); /* an older one, that tells none */
    assert_int_equal(root_feature_level(k.root), FEATURE_FIRST);
    assert_true(command_feature_level(CMD_MIGRATE, 0) > root_feature_level(k.root));
    assert_true(command_feature_level(CMD_RUN, STEP_ENDED) <= root_feature_level(k.root));
    assert_true(command_feature_level((enum command_type)200, 0) == UINT32_MAX);
    member(&k, 2, FEATURE_LEVEL + 1, false); /* a newer one */
    assert_int_equal(root_feature_level(k.root), FEATURE_LEVEL);
    member(&k, 1, 0, true);
    assert_int_equal(root_feature_level(k.root), FEATURE_LEVEL + 1);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room_is_made),
        cmocka_unit_test(test_one_bad_victim_spoils_the_plan),
        cmocka_unit_test(test_who_is_never_a_victim),
        cmocka_unit_test(test_no_more_than_borrowed_is_asked_back),
        cmocka_unit_test(test_nominated_goes_with_its_reason),
        cmocka_unit_test(test_users_ask),
        cmocka_unit_test(test_deletion_is_a_wish),
        cmocka_unit_test(test_workload_and_namespace_go),
        cmocka_unit_test(test_names_of_many_moves),
        cmocka_unit_test(test_the_least_level_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
