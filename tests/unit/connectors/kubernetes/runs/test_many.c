/* Many runs at once, over a cluster in memory (tests/support/kube): what they ask of its API
 * server, and that none of them is forgotten where it has to wait. */
#include "connectors/kubernetes/runs/runs_internal.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <string.h>

#define MANY 70 /* more than ask at once (steps.c) */
#define SOME 30

static struct asked asked[MANY];
static struct run_key keys[MANY];

static bool answered(void *arg)
{
    const unsigned *n = arg;

    for (unsigned i = 0; i < *n; i++)
        if (!asked[i].done)
            return false;
    return true;
}

/* All are asked for before one of them is answered. */
static void submit_many(struct connector_rig *r, unsigned n, enum contract_program what)
{
    for (unsigned i = 0; i < n; i++) {
        struct run_order o;
        keys[i] = contract_fresh_key(r);
        r->order(r, &keys[i], what, &o);
        o.key = keys[i];
        contract_ask_begin(r, &asked[i], CALL_MS);
        r->ops->submit(r->connector, &o, &asked[i].call);
    }
    assert_true(connector_until(r, answered, &n, 60000));
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(asked[i].out, OUT_DONE);
}

static void finalize_many(struct connector_rig *r, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        contract_ask_begin(r, &asked[i], CALL_MS);
        r->ops->finalize(r->connector, &keys[i], &asked[i].call);
    }
    assert_true(connector_until(r, answered, &n, 60000));
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(asked[i].out, OUT_DONE);
}

static void all_of_many_begin_and_end(void **state)
{
    struct connector_rig *r = *state;

    kube_world.controller_ms = 3000; /* the pods of all are there at once */
    submit_many(r, MANY, PROGRAM_ENDS);
    for (unsigned i = 0; i < MANY; i++) {
        (void)contract_await_run(r, &keys[i], RUN_ENDED);
        assert_int_equal(r->starts(r, &keys[i]), 1);
    }
    finalize_many(r, MANY);
    kube_rig_passes(r, 5000);
    assert_int_equal(kube_world_count("pods") + kube_world_count("secrets"), 0);
}

/* An API server reads all Events of a namespace for each such question. */
static void what_has_no_pods_is_one_question_for_all(void **state)
{
    struct connector_rig *r = *state;
    unsigned before;

    kube_world.forbid_pods = "pods \"x\" is forbidden: exceeded quota: gpus";
    submit_many(r, SOME, PROGRAM_STAYS);
    for (unsigned i = 0; i < SOME; i++)
        assert_non_null(strstr(contract_await_run(r, &keys[i], RUN_PENDING)->message, "quota"));
    before = kube_world.events_asked;
    assert_true(before >= 1 && before <= 3);
    kube_rig_passes(r, 60000);
    assert_true(kube_world.events_asked > before && kube_world.events_asked <= before + 7);
    kube_world.forbid_pods = NULL;
    for (unsigned i = 0; i < SOME; i++)
        (void)contract_await_run(r, &keys[i], RUN_RUNNING);
}

/* The Event of an earlier Job of that name says nothing of this one. */
static void an_event_is_of_one_job(void **state)
{
    struct connector_rig *r = *state;
    struct kube_object *e = NULL;

    kube_world.forbid_pods = "no room";
    submit_many(r, 2, PROGRAM_STAYS);
    kube_rig_passes(r, 1000);
    list_for_each (it, &kube_world.objects) {
        struct kube_object *o = container_of(it, struct kube_object, link);
        if (!strcmp(o->kind, "events") &&
            strstr(kube_text(o->doc, "metadata.name"), keys[1].uid))
            e = o;
    }
    INV(e);
    cJSON_ReplaceItemInObjectCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(e->doc, "involvedObject"), "uid",
        cJSON_CreateString("another"));
    (void)contract_await_run(r, &keys[0], RUN_PENDING);
    kube_rig_passes(r, 15000);
    const struct observation *o = contract_seen_of(r, &keys[1]);
    assert_true(!o || o->state == RUN_STARTING);
}

/* By what the watches tell, each request names the uid of the Job that is meant. */
static void an_end_that_is_known_is_not_read_again(void **state)
{
    struct connector_rig *r = *state;
    unsigned before;

    submit_many(r, 20, PROGRAM_ENDS);
    for (unsigned i = 0; i < 20; i++)
        (void)contract_await_run(r, &keys[i], RUN_ENDED);
    before = kube_world.jobs_read;
    finalize_many(r, 20);
    assert_int_equal(kube_world.jobs_read, before);
    assert_int_equal(kube_world_count("secrets"), 0);
}

/* A busy server answers, and its watches tell of it seconds later. */
static void what_was_answered_is_not_asked_again(void **state)
{
    struct connector_rig *r = *state;

    kube_world.watch_ms = 4000;
    submit_many(r, 5, PROGRAM_ENDS);
    for (unsigned i = 0; i < 5; i++)
        (void)contract_await_run(r, &keys[i], RUN_ENDED);
    assert_int_equal(kube_world.pods_written, 5);
    finalize_many(r, 5);
    kube_rig_passes(r, 15000);
    assert_int_equal(kube_world_count("pods"), 0);
    assert_int_equal(kube_world.pods_written, 5 * 3); /* gate, deletion, finalizer */
}

static bool any(const struct run_promise *p, void *arg)
{
    (void)p;
    ++*(unsigned *)arg;
    return true;
}

static void all_names_are_let_go_in_one_call(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    unsigned n = 0;

    submit_many(r, SOME, PROGRAM_ENDS);
    for (unsigned i = 0; i < SOME; i++)
        (void)contract_await_run(r, &keys[i], RUN_ENDED);
    finalize_many(r, SOME);
    kube_rig_passes(r, 60000);
    assert_int_equal(kube_world_count("jobs"), SOME);
    contract_ask_begin(r, &a, 60000);
    r->ops->promises(r->connector, 9, 1000, any, &n, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    kube_rig_passes(r, 1000);
    assert_int_equal(n, SOME);
    assert_int_equal(kube_world_count("jobs"), 0);
}

/* One stands for its uid, and goes first: the others are found. */
static void a_later_run_is_known_by_its_uid(void **state)
{
    struct connector_rig *r = *state;
    struct run_key first = contract_fresh_key(r), later = first, third = first;
    struct asked a;

    later.epoch++;
    third.epoch += 2;
    assert_int_equal(contract_find(r, &first, CALL_MS, &a), OUT_DONE);
    assert_int_equal(contract_submit(r, &third, PROGRAM_STAYS, &a), OUT_DONE);
    assert_int_equal(contract_submit(r, &later, PROGRAM_STAYS, &a), OUT_REJECTED);
    kube_world_remove(kube_world_job(&first));
    kube_rig_passes(r, 5000);
    assert_int_equal(contract_submit(r, &later, PROGRAM_STAYS, &a), OUT_REJECTED);
    assert_int_equal(r->starts(r, &later), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, kube_rig_setup, kube_rig_teardown)
    const struct CMUnitTest tests[] = {T(all_of_many_begin_and_end),
                                       T(what_has_no_pods_is_one_question_for_all),
                                       T(an_event_is_of_one_job),
                                       T(an_end_that_is_known_is_not_read_again),
                                       T(what_was_answered_is_not_asked_again),
                                       T(all_names_are_let_go_in_one_call),
                                       T(a_later_run_is_known_by_its_uid)};

    return cmocka_run_group_tests_name("many", tests, NULL, NULL);
}
