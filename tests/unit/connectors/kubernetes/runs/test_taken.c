/* What hands do that take away objects of a run, or what stands at them, and what the next driver
 * makes of that: it knows nothing but what is there and what the log has. */
#include "connectors/kubernetes/runs/runs_internal.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <stdio.h>
#include <string.h>

static enum run_state found(struct connector_rig *r, const struct run_key *k, struct asked *a)
{
    assert_int_equal(contract_find(r, k, CALL_MS, a), OUT_DONE);
    return a->seen.state;
}

static void next_driver(struct connector_rig *r)
{
    connector_rig_end(r);
    connector_rig_begin(r);
}

static void annotation_drop(struct kube_object *o, const char *name)
{
    cJSON *meta = cJSON_GetObjectItemCaseSensitive(o->doc, "metadata");

    cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(meta, "annotations"),
                                            name);
    kube_world_changed(o);
}

/* ---- what has run by the log, and is nowhere ---- */
static void taken_whole(struct connector_rig *r, struct run_key *k, struct asked *a)
{
    *k = contract_running(r, a);
    connector_rig_end(r);
    kube_world_remove(kube_world_job(k));
    kube_world_remove(kube_world_pod(k, 0));
    connector_rig_begin(r);
}

static void what_is_gone_is_unknown_and_no_run(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k;
    struct asked a;

    taken_whole(r, &k, &a);
    assert_int_equal(found(r, &k, &a), RUN_UNKNOWN);
    assert_string_equal(a.seen.reason, "PodGone");
}

/* The one that came first has said so at the name that it took. */
static void what_is_gone_stays_unknown_to_whoever_comes(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k;
    struct asked a;

    taken_whole(r, &k, &a);
    assert_int_equal(found(r, &k, &a), RUN_UNKNOWN);
    next_driver(r);
    kube_rig_passes(r, 5000);
    assert_int_equal(found(r, &k, &a), RUN_UNKNOWN);
    annotation_drop(kube_world_job(&k), KUBE_LOST_ANNOTATION); /* as an older one left it */
    next_driver(r);
    assert_int_equal(found(r, &k, &a), RUN_UNKNOWN);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_UNKNOWN);
    assert_int_equal(r->starts(r, &k), 1);
}

/* The store is as it was before the admission, and the uid is the same. */
static void an_admission_that_vanishes_is_none_that_never_was(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    annotation_drop(kube_world_job(&k), KUBE_ADMITTED_ANNOTATION);
    kube_world_remove(kube_world_pod(&k, 0));
    kube_rig_passes(r, 30000); /* its controller has made another one, which stays gated */
    assert_non_null(kube_world_pod(&k, 0));
    assert_int_equal(r->starts(r, &k), 1);
    assert_int_equal(found(r, &k, &a), RUN_UNKNOWN);
    kube_rig.ran = k;
    next_driver(r);
    assert_int_equal(found(r, &k, &a), RUN_UNKNOWN);
    kube_rig_passes(r, 30000);
    assert_int_equal(r->starts(r, &k), 1);
}

static cJSON *meta_of(cJSON *doc)
{
    return cJSON_GetObjectItemCaseSensitive(doc, "metadata");
}

/* The same Job anew, under its copied mark, that says nothing of an admission; its pod is left
 * behind, alive and nobody's. The log has not heard yet that it runs. */
static void a_copy_of_its_job_admits_nothing_beside_it(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);
    struct kube_object *pod = kube_world_pod(&k, 0);
    cJSON *copy = cJSON_Duplicate(kube_world_job(&k)->doc, true);

    connector_rig_end(r);
    cJSON_DeleteItemFromObjectCaseSensitive(meta_of(pod->doc), "ownerReferences");
    kube_world_changed(pod);
    kube_world_remove(kube_world_job(&k));
    cJSON_DeleteItemFromObjectCaseSensitive(meta_of(copy), "uid");
    cJSON_DeleteItemFromObjectCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(meta_of(copy), "annotations"), KUBE_ADMITTED_ANNOTATION);
    (void)kube_world_put("jobs", copy);
    r->n_seen = 0;
    connector_rig_begin(r);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    kube_rig_passes(r, 30000);
    assert_int_equal(r->starts(r, &k), 1);
    assert_int_equal(found(r, &k, &a), RUN_RUNNING); /* the one that lives */
    assert_true(*kube_annotation(kube_world_job(&k)->doc, KUBE_LOST_ANNOTATION));
    kube_world_remove(pod); /* nobody can tell any more what had run */
    next_driver(r);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    kube_rig_passes(r, 30000);
    assert_int_equal(found(r, &k, &a), RUN_UNKNOWN);
    assert_int_equal(r->starts(r, &k), 1);
}

/* Of a gang, ahead of its admission: nothing else of it begins, and people are told whose hand. */
static void a_gate_that_others_take_away_admits_nothing(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_rig.ranks = 3;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    connector_rig_end(r); /* its pods come, and nobody admits them */
    kube_rig_passes(r, 5000);
    struct kube_object *pod = kube_world_pod(&k, 0);
    assert_non_null(pod);
    cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(pod->doc, "spec"),
                                            "schedulingGates");
    kube_world_changed(pod);
    kube_rig_passes(r, 5000);
    connector_rig_begin(r);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    kube_rig_passes(r, 30000);
    assert_int_equal(found(r, &k, &a), RUN_UNKNOWN);
    assert_string_equal(a.seen.reason, "NotAdmitted");
    assert_non_null(strstr(a.seen.message, "gate"));
    assert_false(*kube_annotation(kube_world_job(&k)->doc, KUBE_ADMITTED_ANNOTATION));
}

/* Its kubelet has begun anew, and takes it no more: it says nothing of what it had started. */
static void what_had_run_and_is_turned_away_is_unknown(void **state)
{
    static const char rejected[] = "{\"phase\":\"Failed\",\"reason\":\"OutOfcpu\","
                                   "\"message\":\"Pod was rejected: x\"}";
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);
    struct kube_object *pod = kube_world_pod(&k, 0);

    kube_rig.ran = k;
    cJSON_ReplaceItemInObjectCaseSensitive(pod->doc, "status", cJSON_Parse(rejected));
    kube_world_changed(pod);
    kube_rig_passes(r, 2000);
    assert_int_equal(found(r, &k, &a), RUN_UNKNOWN);
    next_driver(r);
    kube_rig_passes(r, 5000);
    assert_int_equal(found(r, &k, &a), RUN_UNKNOWN);
    assert_non_null(kube_world_pod(&k, 0));
    assert_int_equal(kube_world_count("secrets"), 1);
}

/* Its Job is gone, and two pods of one rank have ended: nobody has said so of another rank. */
static void an_end_is_one_of_each_rank(void **state)
{
    static const char over[] = "{\"phase\":\"Failed\",\"containerStatuses\":[{\"name\":\"main\","
                               "\"state\":{\"terminated\":{\"exitCode\":1}}}]}";
    struct connector_rig *r = *state;
    struct run_key k;
    struct asked a;

    kube_rig.ranks = 3;
    k = contract_running(r, &a);
    connector_rig_end(r);
    cJSON *copy = cJSON_Duplicate(kube_world_pod(&k, 1)->doc, true);
    cJSON_ReplaceItemInObjectCaseSensitive(copy, "status", cJSON_Parse(over));
    cJSON *meta = cJSON_GetObjectItemCaseSensitive(copy, "metadata");
    cJSON_ReplaceItemInObjectCaseSensitive(meta, "name", cJSON_CreateString("another"));
    (void)kube_world_put("pods", copy);
    kube_world_remove(kube_world_pod(&k, 2));
    kube_world_remove(kube_world_job(&k));
    kube_rig_passes(r, 60000); /* the others end, since their Job is gone */
    connector_rig_begin(r);
    assert_int_equal(found(r, &k, &a), RUN_UNKNOWN);
    assert_string_equal(a.seen.reason, "PodGone");
}

/* The end of another run, by somebody who may write to Jobs: with its mark and that run's name. */
static void an_end_that_was_not_ours_to_write_is_none(void **state)
{
    static const char *const names[] = {KUBE_END_ANNOTATION, KUBE_END_MARK_ANNOTATION};
    struct connector_rig *r = *state;
    struct run_key over = contract_fresh_key(r), k;
    struct asked a;

    assert_int_equal(contract_submit(r, &over, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &over, RUN_ENDED);
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->finalize(r->connector, &over, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    k = contract_running(r, &a);
    cJSON *meta = cJSON_GetObjectItemCaseSensitive(kube_world_job(&k)->doc, "metadata");
    for (unsigned i = 0; i < 2; i++) {
        char text[8192];
        str_copy(text, sizeof text, kube_annotation(kube_world_job(&over)->doc, names[i]));
        char *at = strstr(text, over.uid);
        assert_true(i || at);
        assert_int_equal(strlen(over.uid), strlen(k.uid));
        for (size_t n = 0; at && k.uid[n]; n++)
            at[n] = k.uid[n];
        cJSON_AddStringToObject(cJSON_GetObjectItemCaseSensitive(meta, "annotations"), names[i],
                                text);
    }
    kube_world_changed(kube_world_job(&k));
    kube_rig_passes(r, 2000);
    assert_int_equal(found(r, &k, &a), RUN_RUNNING);
    next_driver(r);
    assert_int_equal(found(r, &k, &a), RUN_RUNNING);
    assert_int_equal(found(r, &over, &a), RUN_ENDED);
    assert_int_equal(a.seen.exit_code, PROGRAM_ENDS_EXIT);
}

static void what_nobody_could_be_told_is_not_done(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    kube_world.controller_ms = 1000000;
    kube_world_remove(kube_world_pod(&k, 0));
    kube_rig_passes(r, 1000);
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->quiesce(r->connector, &k, 15, 1000, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_UNKNOWN);
}

/* ---- what is secret of it ---- */
/* The leader goes just when a name is taken: whoever comes next finds that it is not done. */
static void half_an_order_is_cleared_away_by_whoever_comes(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;

    for (unsigned i = 0; i < 16; i++) { /* each time a little further */
        struct run_key k = contract_fresh_key(r);
        kube_world.refuse = 429; /* the Secret comes through, the Job does not */
        assert_int_equal(contract_submit_by(r, &k, PROGRAM_STAYS, 1500, &a), OUT_UNKNOWN);
        kube_world.refuse = 0;
        contract_ask_begin(r, &a, CALL_MS);
        r->ops->find(r->connector, &k, &a.call);
        kube_rig_passes(r, 1 + 4 * i);
        next_driver(r);
        if (!kube_world_job(&k))
            assert_int_equal(found(r, &k, &a), RUN_ABSENT);
        kube_rig_passes(r, 10000);
        assert_int_equal(kube_world_count("secrets"), 0);
    }
}

/* Its Job is nowhere, and so is every pod of it. */
static void a_finalize_of_nothing_takes_what_is_left(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k;
    struct asked a;

    kube_rig.ranks = 3;
    k = contract_running(r, &a);
    connector_rig_end(r);
    kube_world_remove(kube_world_job(&k));
    for (int64_t i = 0; i < 3; i++)
        kube_world_remove(kube_world_pod(&k, i));
    connector_rig_begin(r);
    assert_int_equal(kube_world_count("secrets") + kube_world_count("services"), 2);
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->finalize(r->connector, &k, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    assert_int_equal(kube_world_count("secrets") + kube_world_count("services"), 0);
}

/* Names of the next run can be told by who sees this one; those of what stands beside it cannot. */
static void what_others_have_put_beside_it_stays_theirs(void **state)
{
    static const char *const kinds[] = {"secrets", "services"};
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    char name[KUBE_NAME_MAX], text[400];
    struct asked a;

    assert_int_equal(kube_run_name(&k, 3, name, NULL), 0);
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(text, sizeof text, "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"work\"}}",
                       name);
        (void)kube_world_put(kinds[i], cJSON_Parse(text));
    }
    kube_rig.ranks = 3;
    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_ENDED);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(kube_world_count(kinds[i]), 2);
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->finalize(r->connector, &k, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    for (unsigned i = 0; i < 2; i++)
        assert_non_null(kube_world_find(kinds[i], "work", name));
    assert_int_equal(kube_world_count("secrets") + kube_world_count("services"), 2);
}

static bool lies_there(const struct run_key *k)
{
    struct connector_env e;
    char name[KUBE_NAME_MAX];

    kube_rig_env(&kube_rig.rig, &e);
    assert_true(kube_beside_name(&e, k, KUBE_WORLD_NS, 0, name));
    return kube_world_find("secrets", KUBE_WORLD_NS, name) ||
           kube_world_find("services", KUBE_WORLD_NS, name);
}

/* Answers are lost and cut, orders refused: what was made for them goes all the same. A refusal is
 * told once it has; of what is in doubt, whoever looks for it clears it up. */
static void nothing_secret_is_left_of_orders_that_fail(void **state)
{
    struct connector_rig *r = *state;
    struct run_key keys[24];
    enum outcome out[24];
    unsigned rejected = 0;
    struct asked a;

    kube_rig.ranks = 3;
    for (unsigned i = 0; i < 24; i++) {
        keys[i] = contract_fresh_key(r);
        kube_world.chaos = (struct kube_chaos){.lost = 10, .mute = 10, .half = 5, .fails = 5};
        kube_world.refuse = i % 2 ? 403 : 429;
        out[i] = contract_submit_by(r, &keys[i], PROGRAM_STAYS, 20000, &a);
        assert_true(out[i] != OUT_REJECTED || !lies_there(&keys[i]));
        rejected += out[i] == OUT_REJECTED;
    }
    assert_true(rejected > 0);
    kube_world.chaos = (struct kube_chaos){0};
    kube_world.refuse = 0;
    next_driver(r);
    for (unsigned i = 0; i < 24; i++)
        if (out[i] != OUT_REJECTED)
            assert_int_equal(found(r, &keys[i], &a), RUN_ABSENT);
    kube_rig_passes(r, 20000);
    assert_int_equal(kube_world_count("secrets") + kube_world_count("services"), 0);
}

/* The target falls silent once the Secret is there, for so long that nothing is sent to it: that is
 * no refusal. */
static void an_order_that_got_half_way_is_no_refusal(void **state)
{
    struct connector_rig *r = *state;
    struct asked a, others[8];
    struct run_order o = {.checkpoint_dir = "", .resume_path = "", .resume_digest = ""};

    for (unsigned i = 0; i < 2; i++) {
        struct run_key k = contract_fresh_key(r), away;
        contract_ask_begin(r, &a, CALL_MS);
        r->order(r, &k, PROGRAM_STAYS, &o);
        o.key = k;
        r->ops->submit(r->connector, &o, &a.call);
        for (unsigned n = 0; n < 1000 && !kube_world_count("secrets"); n++)
            kube_rig_passes(r, 1);
        assert_int_equal(kube_world_count("secrets"), 1);
        assert_null(kube_world_job(&k));
        kube_world.silent = true;
        for (unsigned n = 0; n < 8; n++) {
            away = contract_fresh_key(r);
            contract_ask_begin(r, &others[n], CALL_MS);
            r->ops->find(r->connector, &away, &others[n].call);
        }
        if (i) /* it is back in time: the order goes on */
            kube_rig_passes(r, 6000);
        kube_world.silent = !i;
        enum outcome out = contract_ask_end(r, &a);
        kube_world.silent = false;
        for (unsigned n = 0; n < 8; n++)
            (void)contract_ask_end(r, &others[n]);
        kube_rig_passes(r, 60000);
        assert_int_equal(out, i ? OUT_DONE : OUT_UNKNOWN);
        assert_int_equal(found(r, &k, &a), i ? RUN_RUNNING : RUN_ABSENT);
        kube_rig_passes(r, 20000);
        assert_int_equal(kube_world_count("secrets"), i);
    }
}

/* ---- a name that is let go ---- */
static bool any(const struct run_promise *p, void *arg)
{
    unsigned *n = arg;

    (void)p;
    ++*n;
    return true;
}

static unsigned let_go(struct connector_rig *r, uint64_t older_ms)
{
    struct asked a;
    unsigned n = 0;

    contract_ask_begin(r, &a, CALL_MS);
    r->ops->promises(r->connector, 9, older_ms, any, &n, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    kube_rig_passes(r, 3000);
    return n;
}

/* Others that hold its Job, or a tombstone, hold it still; and the promise counts from its end. */
static void what_others_hold_stays_theirs(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r), no = contract_fresh_key(r);
    struct asked a;

    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_ENDED);
    kube_rig_passes(r, 60000);
    assert_int_equal(found(r, &no, &a), RUN_ABSENT);
    const struct run_key *each[] = {&k, &no};
    for (unsigned i = 0; i < 2; i++) {
        struct kube_object *job = kube_world_job(each[i]);
        cJSON *meta = cJSON_GetObjectItemCaseSensitive(job->doc, "metadata");
        cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(meta, "finalizers"),
                             cJSON_CreateString("a/b"));
        kube_world_changed(job);
    }
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->finalize(r->connector, &k, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    kube_rig_passes(r, 5000);
    assert_int_equal(let_go(r, 30000), 0);
    assert_int_equal(let_go(r, 1000), 2);
    for (unsigned i = 0; i < 2; i++) {
        const cJSON *held = kube_at(kube_world_job(each[i])->doc, "metadata.finalizers");
        assert_true(kube_deleting(kube_world_job(each[i])->doc));
        assert_int_equal(cJSON_GetArraySize(held), 1);
        assert_string_equal(cJSON_GetArrayItem(held, 0)->valuestring, "a/b");
    }
}

/* ---- what comes late, and what is kept back ---- */
/* A request that comes late would take away what an order of that key has made by then. */
static void what_never_was_is_finalized_without_a_request(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    contract_ask_begin(r, &a, CALL_MS);
    r->ops->finalize(r->connector, &k, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    assert_int_equal(kube_world.secrets_deleted, 0);
}

/* A server that fails is left alone for a while: what was kept back is no answer of it. */
static void what_was_never_sent_is_asked_again(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    kube_world.jobs_fail = true;
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->stop(r->connector, &k, 100, &a.call);
    kube_rig_passes(r, 4000);
    kube_world.jobs_fail = false;
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
}

/* News of a pod has it asked to end while a refusal is waited out; what is refused then, too, is
 * asked once more. */
static void a_second_refusal_in_a_pause_is_not_forgotten(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    kube_world.pods_busy = 2;
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->stop(r->connector, &k, 100, &a.call);
    kube_rig_passes(r, 500);
    assert_int_equal(kube_world.pods_busy, 1);
    kube_world_changed(kube_world_pod(&k, 0));
    kube_rig_passes(r, 500);
    assert_int_equal(kube_world.pods_busy, 0);
    kube_rig_passes(r, 12000);
    assert_int_equal(a.done, 1);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
}

#define T(name) cmocka_unit_test_setup_teardown(name, kube_rig_setup, kube_rig_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_is_gone_is_unknown_and_no_run),
        T(what_is_gone_stays_unknown_to_whoever_comes),
        T(an_admission_that_vanishes_is_none_that_never_was),
        T(a_copy_of_its_job_admits_nothing_beside_it),
        T(a_gate_that_others_take_away_admits_nothing),
        T(what_had_run_and_is_turned_away_is_unknown),
        T(an_end_is_one_of_each_rank),
        T(an_end_that_was_not_ours_to_write_is_none),
        T(what_nobody_could_be_told_is_not_done),
        T(half_an_order_is_cleared_away_by_whoever_comes),
        T(a_finalize_of_nothing_takes_what_is_left),
        T(what_others_have_put_beside_it_stays_theirs),
        T(nothing_secret_is_left_of_orders_that_fail),
        T(an_order_that_got_half_way_is_no_refusal),
        T(what_others_hold_stays_theirs),
        T(what_never_was_is_finalized_without_a_request),
        T(what_was_never_sent_is_asked_again),
        T(a_second_refusal_in_a_pause_is_not_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
