/* Moves as transactions: each step, each way back, and what may never be: a destination that is not
 * held, or held for nobody; an epoch that starts ahead of the last one's proved end; half a plan; a
 * victim that policy protects. */
#include "tests/support/store/move_kit.h"

static void begin(struct kit *k)
{
    kit_begin(k);
    kit_target(k, "fra", TIER_HUB, 1, 4);
    kit_target(k, "ber", TIER_SPOKE, 1, 4);
}

static void step_ok(struct kit *k, const char *name, enum move_step step)
{
    struct result r = kit_step(k, name, step);

    if (r.code)
        fail_msg("%s: %s", move_step_text(step), r.text);
    root_check(k->root);
}

static void step_stale(struct kit *k, const char *name, enum move_step step, const char *says)
{
    uint64_t rv = root_rv(k->root), digest = k->root->digest;
    struct result r = kit_step(k, name, step);

    if (r.code != E_STALE || !strstr(r.text, says))
        fail_msg("%s: %d \"%s\", expected stale \"%s\"", move_step_text(step), r.code, r.text,
                 says);
    assert_true(root_rv(k->root) == rv && k->root->digest == digest);
}

static void held(struct kit *k, int64_t fra, int64_t ber)
{
    assert_int_equal(kit_held(k, "fra.n0"), fra);
    assert_int_equal(kit_held(k, "ber.n0"), ber);
    root_check(k->root);
}

static void end_source(struct kit *k, const char *name, int64_t epoch)
{
    k->requeue = true;
    assert_int_equal(kit_run(k, name, epoch, 1, STEP_ENDED).code, 0);
    k->requeue = false;
    assert_int_equal(kit_status(k, name)->phase, PHASE_QUEUED);
}

/* sim_causes, seed 1042: told to move ahead of being seen running, it ended with 0, and saved
 * nothing. It waits again, where it stood. */
static void test_ended_ahead_of_running_keeps_its_place(void **state)
{
    union command c = {.member = {.head = {.type = CMD_MEMBER}}};
    struct kit k;

    (void)state;
    begin(&k);
    c.member.member.id = 1;
    c.member.member.feature_level = FEATURE_LEVEL;
    assert_int_equal(kit_apply(&k, &c).code, 0);
    assert_int_equal(kit_workload(&k, k.ns, "w", 1, 2).code, 0);
    struct workload *w = object_edit_as(kit_get(&k, "w"), workload, k.a);
    w->spec->checkpoint = arena_new(k.a, struct checkpoint_spec);
    w->spec->checkpoint->store = w->spec->checkpoint->signal = "";
    w->spec->checkpoint->required = true;
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, k.ns, "w", w, 0, false).code, 0);
    assert_string_equal(kit_place(&k, "w", "fra.n0", 0, 1, 2).text, "");
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    int64_t queued = kit_status(&k, "w")->queuedAt;
    k.now += 1000;
    struct move_begin b = kit_begin_of(&k, "w", MOVE_DRAIN, kit_placement(&k, "ber.n0", 1, 2));
    assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
    step_ok(&k, "w-m1", MOVE_QUIESCE);
    k.now += 1000;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_QUEUED);
    assert_string_equal(kit_status(&k, "w")->reason, "CheckpointRequired");
    assert_int_equal(kit_status(&k, "w")->queuedAt, queued);
    assert_int_equal(kit_status(&k, "w")->retries, 0);
    kit_end(&k);
}

/* The state went back to the middle of a move that came to its end: the run at the destination is
 * taken over, on the very devices that the move holds, and the move says what became of it. */
static void test_found_at_its_destination(void **state)
{
    union command c = {
        .recover = {.head = {.type = CMD_RECOVER, .user = "alice"}, .step = RECOVER_BEGIN}};
    struct write_op op = {.verb = WRITE_CREATE, .kind = KIND_WORKLOAD};
    struct kit k;

    (void)state;
    begin(&k);
    kit_running(&k, "w", "", "fra.n0", 0, 2);
    struct move_begin b = kit_begin_of(&k, "w", MOVE_DRAIN, kit_placement(&k, "ber.n0", 1, 2));
    assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
    step_ok(&k, "w-m1", MOVE_QUIESCE);
    held(&k, 2, 2);
    struct workload *w = object_edit_as(kit_get(&k, "w"), workload, k.a);
    w->status->placement = arena_memdup(k.a, b.placement, sizeof *b.placement);
    w->status->placement->decision = "w-e2";
    op.object = object_make(kind_by_id(KIND_WORKLOAD), w);
    assert_int_equal(kit_apply(&k, &c).code, 0);
    c.recover = (struct recover_cmd){
        .head = c.head, .step = RECOVER_ADOPT, .epoch = 2, .try_ = 1, .ops = &op, .n = 1};
    str_copy(c.recover.uid, sizeof c.recover.uid, op.object->meta->uid);
    str_copy(op.ns, sizeof op.ns, k.ns);
    (void)snprintf(op.name, sizeof op.name, "w");
    assert_string_equal(kit_apply(&k, &c).text, "");
    root_check(k.root);
    const struct migration_status *s = kit_move_status(&k, "w-m1");
    assert_int_equal(s->phase, MP_CANCELLED);
    assert_string_equal(s->reason, "FoundElsewhere");
    assert_non_null(strstr(s->message, "was found on ber in epoch 2"));
    assert_true(!s->placement && s->endedAt == k.now);
    assert_string_equal(kit_status(&k, "w")->migration, "");
    assert_string_equal(kit_status(&k, "w")->placement->target, "ber");
    held(&k, 0, 2);
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_SEEN).code, 0);
    (void)object_unref(op.object);
    kit_end(&k);
}

/* ---- the whole way ---- */
static void test_from_target_to_target(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    kit_running(&k, "w", "", "fra.n0", 0, 2);
    int64_t queued = kit_status(&k, "w")->queuedAt;
    k.now += 100000;
    assert_int_equal(kit_checkpoint(&k, "w", 1, 40, "sha256:a").code, 0);
    k.now += 10000;
    struct move_begin b = kit_begin_of(&k, "w", MOVE_DRAIN, kit_placement(&k, "ber.n0", 1, 2));
    assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
    assert_string_equal(kit_status(&k, "w")->migration, "w-m1");
    const struct migration_status *s = kit_move_status(&k, "w-m1");
    assert_int_equal(s->phase, MP_QUIESCING);
    assert_string_equal(s->from, "fra");
    assert_string_equal(s->to, "ber");
    assert_true(s->fromEpoch == 1 && s->toEpoch == 2 && s->lostGpuSeconds == 60 && s->saving == 7);
    const struct object *d = root_get(k.root, KIND_DECISION, "default", "w-e2");
    assert_int_equal(object_as(d, decision)->spec->epoch, 2);
    assert_int_equal(kit_move(&k, "w-m1")->meta->n_ownerReferences, 1);
    assert_int_equal(root_queue_held(k.root, "", "h100"), 2000); /* once, not twice */
    held(&k, 2, 2);
    step_ok(&k, "w-m1", MOVE_QUIESCE);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_QUIESCING);
    assert_int_equal(kit_status(&k, "w")->intent->op, INTENT_QUIESCE);
    k.now += 2000;
    assert_int_equal(kit_checkpoint(&k, "w", 1, 42, "sha256:b").code, 0);
    k.now += 500;
    end_source(&k, "w", 1);
    assert_int_equal(kit_status(&k, "w")->queuedAt, queued);         /* it keeps its place */
    assert_true(kit_move_status(&k, "w-m1")->lostGpuSeconds == 1.0); /* 2 GPUs, half a second */
    held(&k, 0, 2);
    step_ok(&k, "w-m1", MOVE_VERIFY);
    assert_int_equal(kit_move_status(&k, "w-m1")->step, 42);
    assert_true(kit_move_status(&k, "w-m1")->lostGpuSeconds == 1.0);
    k.now += 100;
    step_ok(&k, "w-m1", MOVE_STAGE);
    k.now += 100;
    step_ok(&k, "w-m1", MOVE_START);
    held(&k, 0, 2);
    const struct workload_status *ws = kit_status(&k, "w");
    assert_int_equal(ws->phase, PHASE_RESERVED);
    assert_int_equal(ws->epoch, 2);
    assert_string_equal(ws->placement->target, "ber");
    assert_string_equal(ws->placement->decision, "w-e2");
    assert_string_equal(ws->migration, "w-m1");
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_DISPATCH).code, 0);
    step_stale(&k, "w-m1", MOVE_COMMIT, "not seen running");
    k.now += 300;
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_RUNNING).code, 0);
    step_ok(&k, "w-m1", MOVE_COMMIT);
    s = kit_move_status(&k, "w-m1");
    assert_int_equal(s->phase, MP_SUCCEEDED);
    assert_string_equal(s->reason, "Moved");
    assert_string_equal(s->message, "why it moves"); /* it is told afterwards, too */
    assert_int_equal(s->pause, 3000);                /* from the signal to running again */
    assert_true(s->endedAt == k.now);
    static const enum move_phase way[] = {MP_QUIESCING, MP_VERIFYING, MP_STAGING,
                                          MP_FENCING,   MP_STARTING,  MP_SUCCEEDED};
    assert_int_equal(s->n_phases, sizeof way / sizeof *way);
    for (uint32_t i = 0; i < s->n_phases; i++) {
        assert_int_equal(s->phases[i].phase, way[i]);
        assert_true(s->phases[i].at >= (i ? s->phases[i - 1].at : s->startedAt));
    }
    assert_true(s->phases[5].at == k.now);
    assert_string_equal(kit_status(&k, "w")->migration, "");
    assert_true(kit_status(&k, "w")->movedAt == k.now);
    kit_end(&k);
}

/* A move of "w" (2 GPUs, fra to ber) that has come to `phase`; its workload ended on the way where
 * it was told to. */
static void arrive(struct kit *k, enum move_phase phase)
{
    begin(k);
    kit_running(k, "w", "", "fra.n0", 0, 2);
    k->now += 60000;
    assert_string_equal(kit_ask(k, "m", "w", "").text, "");
    if (phase == MP_RESERVING)
        step_ok(k, "m", MOVE_WAIT);
    if (phase <= MP_RESERVING)
        return;
    assert_string_equal(kit_reserve(k, "m", "w", kit_placement(k, "ber.n0", 0, 2)).text, "");
    for (enum move_step s = MOVE_QUIESCE; s <= MOVE_COMMIT; s++) {
        if (kit_move_status(k, "m")->phase == phase)
            break;
        if (s == MOVE_START)
            end_source(k, "w", 1);
        if (s == MOVE_COMMIT) {
            assert_int_equal(kit_run(k, "w", 2, 1, STEP_DISPATCH).code, 0);
            assert_int_equal(kit_run(k, "w", 2, 1, STEP_RUNNING).code, 0);
        }
        step_ok(k, "m", s);
    }
    assert_int_equal(kit_move_status(k, "m")->phase, phase);
}

/* ---- no step out of its turn ---- */
static void test_steps_that_the_table_does_not_have(void **state)
{
    struct kit k;

    (void)state;
    for (enum move_phase p = MP_PENDING; p <= MP_SUCCEEDED; p++) {
        arrive(&k, p);
        for (enum move_step s = MOVE_RESERVE; s <= MOVE_ABORT; s++) {
            if (move_next(p, s))
                continue;
            if (s == MOVE_RESERVE)
                assert_int_equal(kit_reserve(&k, "m", "w", kit_placement(&k, "ber.n0", 2, 2)).code,
                                 E_STALE);
            else
                step_stale(&k, "m", s, "does not follow");
        }
        held(&k, p <= MP_FENCING ? 2 : 0, p > MP_RESERVING ? 2 : 0);
        kit_end(&k);
    }
}

/* ---- each way back ---- */
static void test_ways_back(void **state)
{
    struct kit k;

    (void)state;
    for (enum move_phase p = MP_PENDING; p <= MP_STARTING; p++) {
        arrive(&k, p);
        bool told = p >= MP_VERIFYING && p <= MP_FENCING;

        step_ok(&k, "m", MOVE_ABORT);
        const struct migration_status *s = kit_move_status(&k, "m");
        assert_int_equal(s->phase, p <= MP_QUIESCING ? MP_CANCELLED : MP_FAILED);
        assert_string_equal(s->reason, "GivenUp");
        assert_true(s->endedAt == k.now && !s->placement);
        const struct workload_status *ws = kit_status(&k, "w");
        assert_string_equal(ws->migration, "");
        assert_true(ws->movedAt == 0);
        held(&k, p <= MP_FENCING ? 2 : 0, p == MP_STARTING ? 2 : 0);
        if (p == MP_STARTING) { /* it goes on by itself */
            assert_int_equal(ws->phase, PHASE_RESERVED);
            assert_string_equal(ws->placement->target, "ber");
        } else {
            assert_int_equal(ws->phase, told ? PHASE_QUIESCING : PHASE_RUNNING);
        }
        if (told) { /* and is placed like any other */
            end_source(&k, "w", 1);
            assert_string_equal(kit_place(&k, "w", "fra.n0", 1, 1, 2).text, "");
            held(&k, 2, 0);
        }
        kit_end(&k);
    }
}

/* The outcome is the proposer's; and what has ended in between is let go all the same. */
static void test_abort_of_what_has_ended(void **state)
{
    union command c;
    struct kit k;

    (void)state;
    arrive(&k, MP_VERIFYING);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0); /* by itself, with success */
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_SUCCEEDED);
    held(&k, 0, 2);
    step_stale(&k, "m", MOVE_VERIFY, "has ended");
    kit_step_of(&k, &c, "m", MOVE_ABORT);
    c.migrate.outcome = MP_CANCELLED;
    assert_int_equal(kit_apply(&k, &c).code, 0);
    assert_int_equal(kit_move_status(&k, "m")->phase, MP_CANCELLED);
    assert_string_equal(kit_status(&k, "w")->migration, "");
    held(&k, 0, 0);
    kit_end(&k);
}

/* ---- proof before start ---- */
static void test_no_start_before_the_end_is_proved(void **state)
{
    struct kit k;

    (void)state;
    arrive(&k, MP_FENCING);
    step_stale(&k, "m", MOVE_START, "its end is not proved");
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    step_stale(&k, "m", MOVE_START, "its end is not proved");
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_LEASE_OVER).code, 0);
    step_stale(&k, "m", MOVE_START, "its end is not proved"); /* Stopped: not said what for */
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 2).code, E_STALE);
    assert_int_equal(kit_run(&k, "w", 1, 0, STEP_REQUEUE).code, 0);
    struct result r = kit_place(&k, "w", "fra.n0", 0, 1, 2);
    assert_int_equal(r.code, E_STALE); /* the scheduler leaves it alone */
    assert_non_null(strstr(r.text, "is being moved by migration m"));
    assert_int_equal(kit_pending(&k, "w", "NothingFits", 1).code, E_STALE);
    step_ok(&k, "m", MOVE_START);
    assert_int_equal(kit_status(&k, "w")->epoch, 2);
    kit_end(&k);
}

/* Its target is lost: it is told nothing; the destination is held before its lease is over. */
static void test_target_lost(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    kit_running(&k, "w", "", "fra.n0", 0, 2);
    k.now += 50000;
    assert_int_equal(kit_checkpoint(&k, "w", 1, 9, "sha256:a").code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    struct move_begin b = kit_begin_of(&k, "w", MOVE_LOST, kit_placement(&k, "ber.n0", 0, 2));
    assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
    assert_int_equal(kit_move_status(&k, "w-m1")->phase, MP_FENCING);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_UNKNOWN);
    held(&k, 2, 2);
    k.now += 20000;
    k.requeue = true;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_LEASE_OVER).code, 0);
    k.requeue = false;
    assert_true(kit_move_status(&k, "w-m1")->lostGpuSeconds == 40);
    step_ok(&k, "w-m1", MOVE_START);
    assert_string_equal(kit_move_status(&k, "w-m1")->checkpoint, "w-e1-s9");
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_DISPATCH).code, 0);
    assert_string_equal(kit_status(&k, "w")->resumedFrom, "w-e1-s9");
    assert_int_equal(kit_status(&k, "w")->resumedStep, 9);
    held(&k, 0, 2);
    kit_end(&k);
}

/* It came back before its lease was over: the copy that runs stays, the destination is let go. */
static void test_target_lost_and_seen_again(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    kit_running(&k, "w", "", "fra.n0", 0, 2);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    struct move_begin b = kit_begin_of(&k, "w", MOVE_LOST, kit_placement(&k, "ber.n0", 0, 2));
    assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_SEEN).code, 0);
    step_stale(&k, "w-m1", MOVE_START, "its end is not proved");
    step_ok(&k, "w-m1", MOVE_ABORT);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_RUNNING);
    held(&k, 2, 0);
    kit_end(&k);
}

/* What was reserved and never came up is given back; there is nothing to quiesce. */
static void test_nothing_was_started(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(kit_workload(&k, "default", "w", 1, 2).code, 0);
    assert_int_equal(kit_place(&k, "w", "fra.n0", 0, 1, 2).code, 0);
    struct move_begin b = kit_begin_of(&k, "w", MOVE_SICK, kit_placement(&k, "ber.n0", 0, 2));
    assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
    step_ok(&k, "w-m1", MOVE_QUIESCE);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_QUEUED);
    held(&k, 0, 2);
    step_ok(&k, "w-m1", MOVE_VERIFY);
    assert_string_equal(kit_move_status(&k, "w-m1")->checkpoint, "");
    step_ok(&k, "w-m1", MOVE_STAGE);
    step_ok(&k, "w-m1", MOVE_START);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_RESERVED);
    kit_end(&k);
}

/* ---- what is checked again ---- */
static struct result begin_to(struct kit *k, struct placement *p)
{
    struct move_begin b = kit_begin_of(k, "w", MOVE_DRAIN, p);

    return kit_plan(k, &b, 1, NULL, NULL);
}

static void refused(struct kit *k, struct placement *p, int code, const char *says)
{
    uint64_t rv = root_rv(k->root), digest = k->root->digest;
    struct result r = begin_to(k, p);

    if (r.code != code || !strstr(r.text, says))
        fail_msg("%d \"%s\", expected %d \"%s\"", r.code, r.text, code, says);
    assert_true(root_rv(k->root) == rv && k->root->digest == digest);
    assert_string_equal(kit_status(k, "w")->migration, "");
}

static void test_destinations_are_checked(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    kit_running(&k, "w", "", "fra.n0", 0, 2);
    kit_running(&k, "other", "", "ber.n0", 0, 1);
    refused(&k, kit_placement(&k, "ber.n0", 0, 2), E_PLACE, "GPU 0 has 1000/1000 in use");
    refused(&k, kit_placement(&k, "ber.n0", 1, 1), E_PLACE, "gets 1 GPUs");
    refused(&k, kit_placement(&k, "ber.n9", 1, 2), E_PLACE, "is not known on ber");
    refused(&k, kit_placement(&k, "fra.n0", 1, 2), E_PLACE, "GPU 1 has 1000/1000"); /* its own */
    struct target *t = object_edit_as(root_get(k.root, KIND_TARGET, "", "ber"), target, k.a);
    t->spec->drain = true;
    assert_int_equal(kit_update(&k, KIND_TARGET, "", "ber", t, 0, false).code, 0);
    refused(&k, kit_placement(&k, "ber.n0", 1, 2), E_PLACE, "takes nothing new");
    t->spec->drain = false;
    assert_int_equal(kit_update(&k, KIND_TARGET, "", "ber", t, 0, false).code, 0);
    struct placement *p = kit_placement(&k, "ber.n0", 1, 2);
    assert_string_equal(begin_to(&k, p).text, "");
    assert_int_equal(kit_workload(&k, "default", "late", 1, 2).code, 0);
    struct result r = kit_place(&k, "late", "ber.n0", 1, 1, 2);
    assert_int_equal(r.code, E_PLACE); /* held: nobody else gets it */
    r = kit_delete(&k, KIND_TARGET, "", "ber");
    assert_int_equal(r.code, 0);
    assert_non_null(root_get(k.root, KIND_TARGET, "", "ber")); /* waits for what is held there */
    step_ok(&k, "w-m1", MOVE_QUIESCE);
    step_ok(&k, "w-m1", MOVE_VERIFY);
    step_ok(&k, "w-m1", MOVE_STAGE);
    end_source(&k, "w", 1);
    r = kit_step(&k, "w-m1", MOVE_START);
    assert_int_equal(r.code, E_PLACE); /* about to go: nothing starts there */
    assert_int_equal(kit_move_status(&k, "w-m1")->phase, MP_FENCING);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_QUEUED);
    step_ok(&k, "w-m1", MOVE_ABORT);
    assert_string_equal(kit_place(&k, "w", "fra.n0", 0, 1, 2).text, "");
    assert_int_equal(kit_run(&k, "other", 1, 1, STEP_ENDED).code, 0);
    assert_null(root_get(k.root, KIND_TARGET, "", "ber")); /* the last hold was the last reason */
    kit_end(&k);
}

static void quota(struct kit *k, const char *class_, int64_t burst)
{
    struct queue *q = arena_new(k->a, struct queue);

    q->spec = arena_new(k->a, struct queue_spec);
    q->spec->namespaces = arena_array(k->a, const char *, 1);
    q->spec->namespaces[0] = "default";
    q->spec->n_namespaces = 1;
    q->spec->gpus = arena_new(k->a, struct queue_gpus);
    q->spec->n_gpus = 1;
    *q->spec->gpus =
        (struct queue_gpus){.class_ = class_, .guaranteed = burst, .burst = burst, .has = 7};
    assert_string_equal(kit_create(k, KIND_QUEUE, "", "team", q).text, "");
}

/* A move needs no quota beyond its own, and loses none on the way to a newcomer. */
static void test_quota_goes_with_it(void **state)
{
    union command c;
    struct kit k;

    (void)state;
    begin(&k);
    quota(&k, "h100", 2);
    assert_int_equal(kit_workload(&k, "default", "w", 1, 2).code, 0);
    kit_place_head(&k, &c, "w", "Placed", "Chosen");
    c.place.placement = kit_placement(&k, "fra.n0", 0, 2);
    (void)snprintf(c.place.queue, sizeof c.place.queue, "team");
    assert_string_equal(kit_apply(&k, &c).text, "");
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    assert_int_equal(kit_workload(&k, "default", "late", 1, 1).code, 0);
    kit_place_head(&k, &c, "late", "Placed", "Chosen");
    c.place.placement = kit_placement(&k, "fra.n0", 3, 1);
    (void)snprintf(c.place.queue, sizeof c.place.queue, "team");
    assert_int_equal(kit_apply(&k, &c).code, E_PLACE);
    assert_string_equal(begin_to(&k, kit_placement(&k, "ber.n0", 0, 2)).text, "");
    step_ok(&k, "w-m1", MOVE_QUIESCE);
    step_ok(&k, "w-m1", MOVE_VERIFY);
    step_ok(&k, "w-m1", MOVE_STAGE);
    end_source(&k, "w", 1);
    assert_int_equal(root_queue_held(k.root, "team", "h100"), 0);
    struct result r = kit_apply(&k, &c);
    assert_int_equal(r.code, E_PLACE);
    assert_non_null(strstr(r.text, "quota"));
    step_ok(&k, "w-m1", MOVE_START);
    assert_int_equal(root_queue_held(k.root, "team", "h100"), 2000);
    kit_end(&k);
}

/* Of GPUs of any class it holds no more on the way to another one: what it gives up counts once. */
static void test_quota_of_any_class(void **state)
{
    struct placement *p;
    union command c;
    struct kit k;

    (void)state;
    begin(&k);
    k.gpu_class = "a100";
    assert_int_equal(kit_facts(&k, "ber", 1, 4, true).code, 0);
    quota(&k, "", 2);
    assert_int_equal(kit_workload(&k, "default", "w", 1, 2).code, 0);
    kit_place_head(&k, &c, "w", "Placed", "Chosen");
    c.place.placement = kit_placement(&k, "fra.n0", 0, 2);
    (void)snprintf(c.place.queue, sizeof c.place.queue, "team");
    assert_string_equal(kit_apply(&k, &c).text, "");
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_DISPATCH).code, 0);
    p = kit_placement(&k, "ber.n0", 0, 2);
    p->class_ = "a100";
    assert_string_equal(begin_to(&k, p).text, "");
    assert_int_equal(kit_workload(&k, "default", "late", 1, 1).code, 0);
    kit_place_head(&k, &c, "late", "Placed", "Chosen");
    c.place.placement = kit_placement(&k, "ber.n0", 3, 1);
    c.place.placement->class_ = "a100";
    (void)snprintf(c.place.queue, sizeof c.place.queue, "team");
    assert_int_equal(kit_apply(&k, &c).code, E_PLACE); /* a newcomer gets none of it */
    kit_end(&k);
}

static void test_strangers(void **state)
{
    union command c;
    struct kit k;

    (void)state;
    arrive(&k, MP_QUIESCING);
    kit_step_of(&k, &c, "m", MOVE_QUIESCE);
    (void)snprintf(c.migrate.uid, sizeof c.migrate.uid, "another");
    assert_int_equal(kit_apply(&k, &c).code, E_STALE);
    assert_int_equal(kit_step(&k, "nobody", MOVE_QUIESCE).code, E_STALE);
    struct move_begin b = kit_begin_of(&k, "w", MOVE_DRAIN, NULL);
    struct result r = kit_plan(&k, &b, 1, NULL, NULL);
    assert_int_equal(r.code, E_STALE);
    assert_non_null(strstr(r.text, "moved already, by migration m"));
    step_ok(&k, "m", MOVE_ABORT);
    b.epoch = 2;
    assert_int_equal(kit_plan(&k, &b, 1, NULL, NULL).code, E_STALE);
    b = kit_begin_of(&k, "w", MOVE_DRAIN, NULL);
    (void)snprintf(b.uid, sizeof b.uid, "another");
    assert_int_equal(kit_plan(&k, &b, 1, NULL, NULL).code, E_STALE);
    b = kit_begin_of(&k, "w", (enum move_cause)99, NULL);
    assert_int_equal(kit_plan(&k, &b, 1, NULL, NULL).code, E_INVALID);
    assert_int_equal(kit_plan(&k, NULL, 0, NULL, NULL).code, E_INVALID);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_STOP).code, 0);
    b = kit_begin_of(&k, "w", MOVE_DRAIN, NULL);
    r = kit_plan(&k, &b, 1, NULL, NULL);
    assert_int_equal(r.code, E_STALE);
    assert_non_null(strstr(r.text, "is being stopped"));
    kit_end(&k);
}

/* The simulator's seed 2195: the destination was lost, too, and its move given up, just ahead of
 * the lease's end. */
static void test_no_lease_over_without_a_replacement(void **state)
{
    struct kit k;
    union command c;

    (void)state;
    begin(&k);
    kit_running(&k, "w", "", "fra.n0", 0, 2);
    struct workload *w = object_edit_as(kit_get(&k, "w"), workload, k.a);
    w->spec->partition = arena_new(k.a, struct partition_spec);
    w->spec->partition->mode = PARTITION_REPLACE;
    assert_int_equal(kit_update(&k, KIND_WORKLOAD, k.ns, "w", w, 0, false).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    k.requeue = true;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_LEASE_OVER).code, E_STALE);
    struct move_begin b = kit_begin_of(&k, "w", MOVE_LOST, kit_placement(&k, "ber.n0", 0, 2));
    assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
    kit_step_of(&k, &c, "w-m1", MOVE_ABORT);
    c.migrate.outcome = MP_FAILED;
    assert_int_equal(kit_apply(&k, &c).code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_LEASE_OVER).code, E_STALE);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_UNKNOWN);
    held(&k, 2, 0);
    b = kit_begin_of(&k, "w", MOVE_LOST, kit_placement(&k, "ber.n0", 0, 2));
    assert_string_equal(kit_plan(&k, &b, 1, NULL, NULL).text, "");
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_LEASE_OVER).code, 0);
    held(&k, 0, 2);
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found_at_its_destination),
        cmocka_unit_test(test_from_target_to_target),
        cmocka_unit_test(test_ended_ahead_of_running_keeps_its_place),
        cmocka_unit_test(test_steps_that_the_table_does_not_have),
        cmocka_unit_test(test_ways_back),
        cmocka_unit_test(test_abort_of_what_has_ended),
        cmocka_unit_test(test_no_start_before_the_end_is_proved),
        cmocka_unit_test(test_target_lost),
        cmocka_unit_test(test_no_lease_over_without_a_replacement),
        cmocka_unit_test(test_target_lost_and_seen_again),
        cmocka_unit_test(test_nothing_was_started),
        cmocka_unit_test(test_destinations_are_checked),
        cmocka_unit_test(test_quota_goes_with_it),
        cmocka_unit_test(test_quota_of_any_class),
        cmocka_unit_test(test_strangers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
