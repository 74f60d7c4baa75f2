/* The catalogue of checkpoints: what is kept, what is current, what is never resumed from, and what
 * an end without one means where one is required. */
#include "tests/support/store/move_kit.h"

static void begin_retries(struct kit *k, int64_t keep, bool required, int64_t retries)
{
    kit_begin(k);
    kit_target(k, "fra", TIER_HUB, 1, 4);
    kit_running(k, "w", "", "fra.n0", 0, 2);
    struct workload *w = object_edit_as(kit_get(k, "w"), workload, k->a);
    w->spec->checkpoint = arena_new(k->a, struct checkpoint_spec);
    w->spec->checkpoint->store = "/store";
    w->spec->checkpoint->keep = keep;
    w->spec->checkpoint->required = required;
    w->spec->run = arena_new(k->a, struct run_spec);
    w->spec->run->script = "true";
    w->spec->run->retries = retries;
    assert_int_equal(kit_update(k, KIND_WORKLOAD, "default", "w", w, 0, false).code, 0);
    k->now += 1000;
}

static void begin(struct kit *k, int64_t keep, bool required)
{
    begin_retries(k, keep, required, 0);
}

/* All members know what this version knows. */
static void level_up(struct kit *k)
{
    union command c = {.member = {.head = {.type = CMD_MEMBER}}};

    c.member.member.id = 1;
    c.member.member.feature_level = FEATURE_LEVEL;
    assert_int_equal(kit_apply(k, &c).code, 0);
}

static const struct checkpoint *entry(struct kit *k, const char *name)
{
    const struct object *o = root_get(k->root, KIND_CHECKPOINT, "default", name);

    return o ? object_as(o, checkpoint) : NULL;
}

static struct result bad(struct kit *k, int64_t epoch, int64_t of_epoch, int64_t step,
                         const char *digest, const char *reason)
{
    struct run_checkpoint ck = {.epoch = of_epoch, .step = step, .digest = digest};
    union command c = {.head = {.type = CMD_RUN}};

    (void)snprintf(c.run.ns, sizeof c.run.ns, "default");
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    str_copy(c.run.reason, sizeof c.run.reason, reason);
    (void)snprintf(c.run.message, sizeof c.run.message, "rank-0.pt ends too early");
    c.run.epoch = epoch;
    c.run.try_ = 9; /* whoever found out */
    c.run.step = STEP_CHECKPOINT_BAD;
    c.run.checkpoint = &ck;
    return kit_apply(k, &c);
}

static void test_entries(void **state)
{
    struct kit k;

    (void)state;
    begin(&k, 3, false);
    assert_string_equal(kit_checkpoint(&k, "w", 1, 10, "sha256:a").text, "");
    const struct checkpoint *c = entry(&k, "w-e1-s10");
    assert_string_equal(c->spec->workload, "w");
    assert_string_equal(c->spec->workloadUid, kit_get(&k, "w")->meta->uid);
    assert_true(c->spec->epoch == 1 && c->spec->step == 10 && c->spec->bytes == 100);
    assert_string_equal(c->spec->digest, "sha256:a");
    assert_string_equal(c->spec->store, "/store");
    assert_string_equal(c->spec->locations[0].url, "/store/cut");
    assert_string_equal(c->spec->locations[0].target, "fra");
    assert_true(c->status->verifiedAt == k.now);
    assert_string_equal(c->metadata->ownerReferences[0].uid, kit_get(&k, "w")->meta->uid);
    assert_string_equal(kit_status(&k, "w")->checkpoint->name, "w-e1-s10");
    assert_string_equal(kit_status(&k, "w")->checkpoint->path, "/store/cut");
    assert_true(kit_checkpoint(&k, "w", 1, 10, "sha256:a").unchanged);
    assert_int_equal(kit_checkpoint(&k, "w", 1, 9, "sha256:z").code, E_STALE);
    assert_int_equal(kit_checkpoint(&k, "w", 1, -1, "sha256:z").code, E_INVALID);
    assert_int_equal(kit_checkpoint(&k, "w", 2, 11, "sha256:z").code, E_STALE);
    assert_string_equal(kit_checkpoint(&k, "w", 1, 10, "sha256:b").text, ""); /* written anew */
    assert_string_equal(entry(&k, "w-e1-s10")->spec->digest, "sha256:b");
    assert_int_equal(root_count(k.root, KIND_CHECKPOINT), 1);
    assert_int_equal(kit_delete(&k, KIND_WORKLOAD, "default", "w").code, 0);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(root_count(k.root, KIND_CHECKPOINT), 0);
    kit_end(&k);
}

static void test_the_newest_are_kept(void **state)
{
    struct kit k;

    (void)state;
    for (int64_t keep = 0; keep <= 4; keep++) {
        int64_t kept = keep < 2 ? 2 : keep;

        begin(&k, keep, false);
        for (int64_t s = 8; s <= 16; s++) { /* over 9 and 10: by number, not by name */
            k.now += 10;
            assert_int_equal(kit_checkpoint(&k, "w", 1, s, "sha256:a").code, 0);
            assert_int_equal(root_count(k.root, KIND_CHECKPOINT), s - 7 < kept ? s - 7 : kept);
        }
        for (int64_t s = 8; s <= 16; s++)
            assert_int_equal(entry(&k, arena_printf(k.a, "w-e1-s%lld", (long long)s)) != NULL,
                             s > 16 - kept);
        kit_end(&k);
    }
}

static void test_what_is_bad_is_never_current_again(void **state)
{
    struct kit k;

    (void)state;
    begin(&k, 3, false);
    for (int64_t s = 1; s <= 3; s++)
        assert_int_equal(kit_checkpoint(&k, "w", 1, s, arena_printf(k.a, "sha256:%d", (int)s)).code,
                         0);
    assert_int_equal(bad(&k, 1, 1, 3, "sha256:3", "").code, E_INVALID);
    assert_int_equal(bad(&k, 1, 1, 3, "sha256:9", "CheckpointTorn").code, E_STALE);
    assert_int_equal(bad(&k, 1, 1, 7, "sha256:3", "CheckpointTorn").code, E_STALE);
    assert_int_equal(bad(&k, 2, 1, 3, "sha256:3", "CheckpointTorn").code, E_STALE);
    assert_string_equal(bad(&k, 1, 1, 3, "sha256:3", "CheckpointTorn").text, "");
    assert_string_equal(entry(&k, "w-e1-s3")->status->reason, "CheckpointTorn");
    assert_string_equal(entry(&k, "w-e1-s3")->status->message, "rank-0.pt ends too early");
    assert_int_equal(kit_status(&k, "w")->checkpoint->step, 2);
    assert_string_equal(kit_status(&k, "w")->checkpoint->digest, "sha256:2");
    assert_string_equal(kit_status(&k, "w")->checkpoint->path, "/store/cut");
    assert_string_not_equal(kit_status(&k, "w")->reason, "CheckpointTorn"); /* it runs on */
    assert_true(bad(&k, 1, 1, 3, "sha256:3", "CheckpointTorn").unchanged);
    struct result r = kit_checkpoint(&k, "w", 1, 3, "sha256:3");
    assert_int_equal(r.code, E_STALE);
    assert_non_null(strstr(r.text, "was found bad: CheckpointTorn"));
    assert_string_equal(bad(&k, 1, 1, 1, "sha256:1", "CheckpointAltered").text, "");
    assert_int_equal(kit_status(&k, "w")->checkpoint->step, 2); /* not the current one */
    assert_string_equal(bad(&k, 1, 1, 2, "sha256:2", "CheckpointMissing").text, "");
    assert_null(kit_status(&k, "w")->checkpoint); /* none is left: from the start */
    assert_string_equal(kit_checkpoint(&k, "w", 1, 3, "sha256:new").text, ""); /* another writing */
    assert_string_equal(entry(&k, "w-e1-s3")->status->reason, "");
    assert_int_equal(kit_status(&k, "w")->checkpoint->step, 3);
    for (int64_t s = 4; s <= 9; s++) /* the bad ones go with the good ones of their age */
        assert_int_equal(kit_checkpoint(&k, "w", 1, s, "sha256:g").code, 0);
    assert_int_equal(root_count(k.root, KIND_CHECKPOINT), 3);
    kit_end(&k);
}

/* Epoch 2 finds that what it was to resume from is torn, falls back, and makes its own. */
static void test_over_epochs(void **state)
{
    union command c;
    struct kit k;

    (void)state;
    begin(&k, 2, false);
    assert_int_equal(kit_checkpoint(&k, "w", 1, 5, "sha256:5").code, 0);
    assert_int_equal(kit_checkpoint(&k, "w", 1, 6, "sha256:6").code, 0);
    k.requeue = true;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    k.requeue = false;
    kit_place_head(&k, &c, "w", "Placed", "Chosen");
    c.place.placement = kit_placement(&k, "fra.n0", 1, 2);
    assert_string_equal(kit_apply(&k, &c).text, "");
    assert_string_equal(kit_status(&k, "w")->resumedFrom, "");
    assert_int_equal(kit_checkpoint(&k, "w", 1, 7, "sha256:7").code, 0); /* verified late */
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_DISPATCH).code, 0);
    assert_string_equal(kit_status(&k, "w")->resumedFrom, "w-e1-s7");
    assert_int_equal(kit_status(&k, "w")->resumedStep, 7);
    assert_int_equal(kit_checkpoint(&k, "w", 1, 8, "sha256:8").code, E_STALE); /* an old writer */
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_ABSENT).code, 0);
    assert_string_equal(bad(&k, 2, 1, 7, "sha256:7", "CheckpointTorn").text, "");
    assert_int_equal(kit_run(&k, "w", 2, 2, STEP_DISPATCH).code, 0);
    assert_string_equal(kit_status(&k, "w")->resumedFrom, "w-e1-s6");
    assert_int_equal(kit_status(&k, "w")->resumedStep, 6);
    assert_int_equal(kit_run(&k, "w", 2, 2, STEP_RUNNING).code, 0);
    assert_int_equal(kit_checkpoint(&k, "w", 2, 6, "sha256:n").code, 0);
    assert_string_equal(kit_status(&k, "w")->checkpoint->name, "w-e2-s6");
    assert_string_equal(bad(&k, 2, 2, 6, "sha256:n", "CheckpointTorn").text, "");
    assert_string_equal(kit_status(&k, "w")->checkpoint->name, "w-e1-s6");
    kit_end(&k);
}

static struct result found(struct kit *k, int64_t epoch, int64_t try_, int64_t of_epoch,
                           int64_t step, const char *digest)
{
    struct run_checkpoint ck = {.epoch = of_epoch,
                                .step = step,
                                .digest = digest,
                                .path = "/store/late",
                                .bytes = 7,
                                .writtenAt = k->now + 99999};
    union command c = {.head = {.type = CMD_RUN}};

    (void)snprintf(c.run.ns, sizeof c.run.ns, "default");
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    c.run.epoch = epoch;
    c.run.try_ = try_;
    c.run.step = STEP_CHECKPOINT_FOUND;
    c.run.checkpoint = &ck;
    return kit_apply(k, &c);
}

static void cut_off_and_placed(struct kit *k)
{
    union command c;

    assert_int_equal(kit_run(k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    k->requeue = true;
    assert_int_equal(kit_run(k, "w", 1, 1, STEP_LEASE_OVER).code, 0);
    k->requeue = false;
    kit_place_head(k, &c, "w", "Placed", "Chosen");
    c.place.placement = kit_placement(k, "fra.n0", 1, 2);
    assert_string_equal(kit_apply(k, &c).text, "");
}

/* Who is about to start it finds more in the store than its runner could tell: only then, only of
 * what is proved ended, only newer, and never what was found bad. A writer that comes later than
 * that is refused, whoever asks for it. */
static void test_found_in_the_store(void **state)
{
    struct kit k;

    (void)state;
    begin(&k, 2, false);
    assert_int_equal(kit_checkpoint(&k, "w", 1, 5, "sha256:5").code, 0);
    assert_int_equal(found(&k, 1, 1, 1, 9, "sha256:9").code, E_STALE); /* it runs */
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_UNKNOWN).code, 0);
    assert_int_equal(found(&k, 1, 1, 1, 9, "sha256:9").code, E_STALE); /* no proof yet */
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_SEEN).code, 0);
    cut_off_and_placed(&k);
    assert_int_equal(kit_status(&k, "w")->epoch, 2);
    assert_int_equal(found(&k, 1, 0, 1, 9, "sha256:9").code, E_STALE); /* an old epoch asks */
    assert_int_equal(found(&k, 2, 1, 1, 9, "sha256:9").code, E_STALE); /* another try */
    assert_int_equal(found(&k, 2, 0, 2, 9, "sha256:9").code, E_STALE); /* nothing of it ran */
    assert_int_equal(found(&k, 2, 0, 1, 5, "sha256:x").code, E_STALE); /* as new as what is known */
    assert_int_equal(found(&k, 2, 0, 1, 4, "sha256:x").code, E_STALE);
    assert_int_equal(found(&k, 2, 0, 0, 9, "sha256:9").code, E_INVALID);
    assert_int_equal(found(&k, 2, 0, 1, 9, "").code, E_INVALID);
    int64_t ended = kit_status(&k, "w")->ends[0].at;
    k.now += 5000;
    assert_string_equal(found(&k, 2, 0, 1, 9, "sha256:9").text, "");
    const struct run_checkpoint *ck = kit_status(&k, "w")->checkpoint;
    assert_string_equal(ck->name, "w-e1-s9");
    assert_string_equal(ck->path, "/store/late");
    assert_true(ck->found && ck->epoch == 1 && ck->verifiedAt == k.now);
    assert_true(ck->writtenAt == ended); /* by its own clock later; it cannot have been */
    assert_true(entry(&k, "w-e1-s9")->spec->found);
    assert_false(entry(&k, "w-e1-s5")->spec->found);
    assert_int_equal(kit_status(&k, "w")->phase, PHASE_RESERVED);
    assert_string_equal(bad(&k, 2, 1, 9, "sha256:9", "CheckpointTorn").text, "");
    assert_string_equal(kit_status(&k, "w")->checkpoint->name, "w-e1-s5");
    assert_int_equal(found(&k, 2, 0, 1, 9, "sha256:9").code, E_STALE); /* found bad once */
    assert_string_equal(found(&k, 2, 0, 1, 8, "sha256:8").text, "");
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_DISPATCH).code, 0);
    assert_string_equal(kit_status(&k, "w")->resumedFrom, "w-e1-s8");
    assert_true(kit_status(&k, "w")->resumedFound);
    assert_int_equal(found(&k, 2, 1, 1, 20, "sha256:20").code, E_STALE); /* too late */
    assert_int_equal(kit_checkpoint(&k, "w", 1, 20, "sha256:20").code, E_STALE);
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_RUNNING).code, 0);
    assert_int_equal(kit_checkpoint(&k, "w", 1, 20, "sha256:20").code, E_STALE);
    assert_int_equal(kit_checkpoint(&k, "w", 2, 3, "sha256:n").code, 0);
    assert_false(kit_status(&k, "w")->checkpoint->found);
    kit_end(&k);
}

/* A try that was proved never to have started has saved nothing: the question is about the one
 * before. */
static void test_what_never_started_is_not_asked_about(void **state)
{
    struct kit k;

    (void)state;
    begin(&k, 2, false);
    cut_off_and_placed(&k);
    assert_int_equal(epoch_ended(kit_status(&k, "w")), 1);
    assert_int_equal(kit_run(&k, "w", 2, 1, STEP_DISPATCH).code, 0);
    k.requeue = true;
    union command c = {.head = {.type = CMD_RUN}};
    (void)snprintf(c.run.ns, sizeof c.run.ns, "default");
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(&k, "w")->meta->uid);
    c.run.epoch = 2;
    c.run.try_ = 1;
    c.run.step = STEP_ABSENT;
    c.run.proof = PROOF_NEVER_STARTED;
    c.run.requeue = true;
    assert_int_equal(kit_apply(&k, &c).code, 0);
    k.requeue = false;
    assert_int_equal(kit_status(&k, "w")->n_ends, 2);
    assert_int_equal(epoch_ended(kit_status(&k, "w")), 1);
    kit_end(&k);
}

/* Told to save and end: without a checkpoint of this epoch that is a failure, where it must. */
static void test_required(void **state)
{
    struct kit k;

    (void)state;
    for (int required = 0; required < 2; required++)
        for (int saved = 0; saved < 2; saved++)
            for (int told = 0; told < 2; told++) {
                bool fails = required && !saved && told;

                begin(&k, 2, required);
                if (told)
                    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_QUIESCE).code, 0);
                struct run_checkpoint ck = {.step = 4, .digest = "sha256:4"};
                k.checkpoint = saved ? &ck : NULL; /* ENDED carries the last one */
                k.requeue = true;
                assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
                k.checkpoint = NULL;
                k.requeue = false;
                const struct workload_status *s = kit_status(&k, "w");
                assert_int_equal(s->phase, fails ? PHASE_FAILED : PHASE_QUEUED);
                assert_int_equal(strcmp(s->reason, "CheckpointRequired") == 0, fails);
                assert_int_equal(strcmp(s->ends[0].reason, "CheckpointRequired") == 0, fails);
                assert_int_equal(entry(&k, "w-e1-s4") != NULL, saved);
                kit_end(&k);
            }
}

/* Exit 0 says nothing of what was saved: so it counts from the level on, and older logs as ever. */
static void test_required_and_exit_0(void **state)
{
    struct kit k;

    (void)state;
    for (int level = 0; level < 2; level++)
        for (int saved = 0; saved < 2; saved++)
            for (int told = 0; told < 2; told++)
                for (int retries = 0; retries < 2; retries++) {
                    bool fails = level && !saved && told;

                    begin_retries(&k, 2, true, retries);
                    if (level)
                        level_up(&k);
                    if (told)
                        assert_int_equal(kit_run(&k, "w", 1, 1, STEP_QUIESCE).code, 0);
                    struct run_checkpoint ck = {.step = 4, .digest = "sha256:4"};
                    k.checkpoint = saved ? &ck : NULL;
                    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
                    k.checkpoint = NULL;
                    const struct workload_status *s = kit_status(&k, "w");
                    assert_int_equal(s->phase, !fails    ? PHASE_SUCCEEDED
                                               : retries ? PHASE_QUEUED
                                                         : PHASE_FAILED);
                    assert_int_equal(strcmp(s->ends[0].reason, "CheckpointRequired") == 0, fails);
                    kit_end(&k);
                }
}

/* It is told with the end when its runner had been asked to stop: what was done since it was
 * written is lost all the same. By another clock it is never later than it was verified, and never
 * goes back. */
static void test_work_since_it_was_written_is_lost(void **state)
{
    struct kit k;

    (void)state;
    begin(&k, 2, false);
    k.now += 3600000;
    struct run_checkpoint ck = {.step = 4, .digest = "sha256:4", .writtenAt = k.now - 1800000};
    k.checkpoint = &ck;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CHECKPOINT).code, 0);
    assert_true(kit_status(&k, "w")->checkpoint->writtenAt == k.now - 1800000);
    ck = (struct run_checkpoint){.step = 5, .digest = "sha256:5", .writtenAt = k.now - 2800000};
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CHECKPOINT).code, 0);
    assert_true(kit_status(&k, "w")->checkpoint->writtenAt == k.now - 1800000);
    ck = (struct run_checkpoint){.step = 6, .digest = "sha256:6", .writtenAt = k.now + 5000};
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CHECKPOINT).code, 0);
    assert_true(kit_status(&k, "w")->checkpoint->writtenAt == k.now);
    kit_end(&k);
}

/* What is charged as wasted is what no checkpoint of the epoch saved. */
static void test_lost_work(void **state)
{
    struct kit k;

    (void)state;
    begin(&k, 2, false);
    k.now += 3599000; /* an hour with the second that is over */
    struct run_checkpoint ck = {.step = 4, .digest = "sha256:4", .verifiedAt = k.now + 999999};
    k.checkpoint = &ck; /* verified by a clock that is ahead: no more than all is saved */
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_CHECKPOINT).code, 0);
    k.checkpoint = NULL;
    assert_true(kit_status(&k, "w")->checkpoint->verifiedAt == k.now);
    k.now += 1800000;
    k.exit_code = 1;
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    k.exit_code = 0;
    assert_true(kit_status(&k, "w")->spent->gpuHours == 3.0);
    assert_true(kit_status(&k, "w")->spent->wasted == 1.0); /* two GPUs, half an hour */
    kit_end(&k);
}

/* Who was saved by two goes on with two: also where a decision was made before that was known. */
static void test_as_many_workers_as_saved_it(void **state)
{
    struct run_checkpoint ck = {
        .step = 4, .digest = "sha256:4", .path = "/store/cut", .bytes = 100, .ranks = 2};
    struct kit k;

    (void)state;
    for (int level = 0; level < 2; level++) { /* older members would not agree */
        begin(&k, 3, false);
        if (level)
            level_up(&k);
        assert_int_equal(kit_workload(&k, k.ns, "g", 2, 1).code, 0);
        struct workload *w = object_edit_as(kit_get(&k, "g"), workload, k.a);
        w->spec->gang->minWorkers = 1;
        w->spec->checkpoint = arena_new(k.a, struct checkpoint_spec);
        w->spec->checkpoint->store = "/store";
        assert_int_equal(kit_update(&k, KIND_WORKLOAD, k.ns, "g", w, 0, false).code, 0);
        assert_string_equal(kit_place(&k, "g", "fra.n0", 2, 2, 1).text, "");
        assert_int_equal(kit_run(&k, "g", 1, 1, STEP_DISPATCH).code, 0);
        assert_int_equal(kit_run(&k, "g", 1, 1, STEP_RUNNING).code, 0);
        k.checkpoint = &ck;
        assert_int_equal(kit_run(&k, "g", 1, 1, STEP_CHECKPOINT).code, 0);
        k.checkpoint = NULL;
        k.requeue = true;
        assert_int_equal(kit_run(&k, "g", 1, 1, STEP_ENDED).code, 0);
        k.requeue = false;
        assert_int_equal(kit_status(&k, "g")->ends[0].workers, level ? 2 : 0);
        struct result r = kit_place(&k, "g", "fra.n0", 2, 1, 1);
        assert_int_equal(r.code, level ? E_PLACE : 0);
        if (level) {
            assert_non_null(strstr(r.text, "its checkpoint was saved by 2"));
            w = object_edit_as(kit_get(&k, "g"), workload, k.a);
            w->spec->checkpoint->reshard = true;
            assert_int_equal(kit_update(&k, KIND_WORKLOAD, k.ns, "g", w, 0, false).code, 0);
            assert_string_equal(kit_place(&k, "g", "fra.n0", 2, 1, 1).text, "");
        }
        kit_end(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_the_newest_are_kept),
        cmocka_unit_test(test_what_is_bad_is_never_current_again),
        cmocka_unit_test(test_over_epochs),
        cmocka_unit_test(test_found_in_the_store),
        cmocka_unit_test(test_what_never_started_is_not_asked_about),
        cmocka_unit_test(test_required),
        cmocka_unit_test(test_required_and_exit_0),
        cmocka_unit_test(test_work_since_it_was_written_is_lost),
        cmocka_unit_test(test_lost_work),
        cmocka_unit_test(test_as_many_workers_as_saved_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
