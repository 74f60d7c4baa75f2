/* Requests to save and go on (apply/checkpoint.c, STEP_SAVE): each is asked for once, answered by a
 * checkpoint of the epoch that was asked, or failed with a reason, also when its run ends first. */
#include "tests/support/store/store_kit.h"

static const struct workload_status *status(struct kit *k)
{
    return object_as(kit_get(k, "w"), workload)->status;
}

static struct result save(struct kit *k, struct save_status told)
{
    union command c = {.head = {.type = CMD_RUN}};

    told.checkpoint = told.reason = told.message = "";
    str_copy(c.run.ns, sizeof c.run.ns, k->ns);
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    c.run.epoch = status(k)->epoch;
    c.run.try_ = status(k)->intent ? status(k)->intent->try_ : 0;
    c.run.step = STEP_SAVE;
    c.run.save = &told;
    (void)snprintf(c.run.reason, sizeof c.run.reason, "NotSaved");
    (void)snprintf(c.run.message, sizeof c.run.message, "it did not");
    return kit_apply(k, &c);
}

static void want(struct kit *k, int64_t number)
{
    struct workload *w = object_edit_as(kit_get(k, "w"), workload, k->a);

    w->spec->saveRequest = number;
    assert_int_equal(kit_update(k, KIND_WORKLOAD, "default", "w", w, 0, false).code, 0);
}

static void begin(struct kit *k)
{
    union command c = {.head = {.type = CMD_MEMBER}};

    kit_begin(k);
    c.member.member = (struct member_info){.id = 1,
                                           .address = "m1:1",
                                           .api_address = "m1:2",
                                           .name = "m1",
                                           .feature_level = FEATURE_LEVEL};
    (void)snprintf(c.member.cluster_uid, sizeof c.member.cluster_uid, "c");
    assert_int_equal(kit_apply(k, &c).code, 0);
    kit_pool(k, 1, 4);
    assert_int_equal(kit_workload(k, "default", "w", 1, 1).code, 0);
    assert_int_equal(kit_place(k, "w", "fra.n0", 0, 1, 1).code, 0);
    assert_int_equal(kit_run(k, "w", 1, 1, STEP_DISPATCH).code, 0);
}

static struct result saved_step(struct kit *k, int64_t step)
{
    struct run_checkpoint ck = {.step = step,
                                .epoch = status(k)->epoch,
                                .digest = "sha256:0",
                                .path = "/s/cut-1.json",
                                .name = ""};
    union command c = {.head = {.type = CMD_RUN}};

    str_copy(c.run.ns, sizeof c.run.ns, k->ns);
    (void)snprintf(c.run.name, sizeof c.run.name, "w");
    str_copy(c.run.uid, sizeof c.run.uid, kit_get(k, "w")->meta->uid);
    c.run.epoch = status(k)->epoch;
    c.run.step = STEP_CHECKPOINT;
    c.run.checkpoint = &ck;
    return kit_apply(k, &c);
}

#define ASKED(n)                                                                                   \
    (struct save_status)                                                                           \
    {                                                                                              \
        .asked = (n)                                                                               \
    }
#define SAVED(n)                                                                                   \
    (struct save_status)                                                                           \
    {                                                                                              \
        .saved = (n)                                                                               \
    }
#define FAILED_(n)                                                                                 \
    (struct save_status)                                                                           \
    {                                                                                              \
        .failed = (n)                                                                              \
    }

static void test_one_after_the_other(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    want(&k, 2);
    assert_int_equal(save(&k, ASKED(2)).code, E_STALE); /* it does not run yet */
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_RUNNING).code, 0);
    assert_int_equal(save(&k, ASKED(3)).code, E_STALE); /* nobody wants it */
    assert_int_equal(save(&k, SAVED(2)).code, E_STALE);
    assert_int_equal(save(&k, ASKED(2)).code, 0);
    assert_int_equal(status(&k)->save->asked, 2);
    assert_int_equal(save(&k, ASKED(2)).code, E_STALE);
    want(&k, 9);
    assert_int_equal(save(&k, ASKED(9)).code, E_STALE); /* one is under way */
    assert_int_equal(save(&k, SAVED(2)).code, E_STALE); /* and the log has no checkpoint */
    assert_int_equal(saved_step(&k, 7).code, 0);
    assert_int_equal(save(&k, SAVED(2)).code, 0);
    assert_int_equal(status(&k)->save->saved, 2);
    assert_int_equal(status(&k)->save->step, 7);
    assert_string_equal(status(&k)->save->checkpoint, status(&k)->checkpoint->name);
    assert_int_equal(save(&k, ASKED(9)).code, 0); /* the newest stands for all between */
    assert_int_equal(save(&k, FAILED_(9)).code, 0);
    assert_int_equal(status(&k)->save->failed, 9);
    assert_string_equal(status(&k)->save->reason, "NotSaved");
    assert_int_equal(status(&k)->phase, PHASE_RUNNING); /* it goes on, whatever came of it */
    assert_string_not_equal(status(&k)->reason, "NotSaved");
    want(&k, 10);
    assert_int_equal(save(&k, FAILED_(10)).code, 0); /* its target cannot even be asked */
    assert_int_equal(status(&k)->save->asked, 10);
    kit_end(&k);
}

static void test_its_run_ends_first(void **state)
{
    struct kit k;

    (void)state;
    begin(&k);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_RUNNING).code, 0);
    want(&k, 1);
    assert_int_equal(save(&k, ASKED(1)).code, 0);
    want(&k, 2);
    assert_int_equal(kit_run(&k, "w", 1, 1, STEP_ENDED).code, 0);
    assert_int_equal(status(&k)->phase, PHASE_SUCCEEDED);
    assert_int_equal(status(&k)->save->failed, 2); /* nothing runs again that could be asked */
    assert_string_equal(status(&k)->save->reason, "RunEnded");
    kit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_after_the_other),
                                       cmocka_unit_test(test_its_run_ends_first)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
