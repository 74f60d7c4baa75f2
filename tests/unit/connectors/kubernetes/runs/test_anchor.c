/* Objects of other kinds as runs, over a cluster in memory: a Job that makes nothing holds what any
 * run's Job holds, and what it stands for is made once that is there, again where it is missing,
 * and by nobody else's words. */
#include "connectors/kubernetes/runs/runs_internal.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <stdio.h>
#include <string.h>

#define W kube_world

static int begin(void **state)
{
    int rc = kube_rig_setup(state);

    kube_rig.manifest = CARRIES_PYTORCHJOB;
    kube_rig.ranks = 3;
    return rc;
}

static struct kube_object *object_made(void)
{
    list_for_each (it, &W.objects) {
        struct kube_object *o = container_of(it, struct kube_object, link);
        if (strcmp(o->kind, "pytorchjobs") == 0)
            return o;
    }
    return NULL;
}

static struct run_key runs(struct connector_rig *r)
{
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_RUNNING);
    return k;
}

static void ends(struct connector_rig *r, int64_t rank, int exit_code)
{
    list_for_each (it, &W.procs) {
        struct kube_proc *p = container_of(it, struct kube_proc, link);
        if (p->rank != rank || !p->alive)
            continue;
        p->over_ms = loop_now_ms(r->loop);
        p->exit_code = exit_code;
    }
}

static void its_job_makes_nothing(void **state)
{
    struct run_key k = runs(*state);
    const cJSON *job = kube_world_job(&k)->doc, *o = object_made()->doc;
    const cJSON *template = kube_at(o, "spec.pytorchReplicaSpecs.Worker.template");
    const cJSON *owner = cJSON_GetArrayItem(kube_at(o, "metadata.ownerReferences"), 0);
    const char *name = kube_text(o, "metadata.name"), *pod;

    assert_int_equal(kube_at(job, "spec.parallelism")->valueint, 0);
    assert_null(kube_world_find("services", "work", name));
    assert_string_equal(kube_text(owner, "uid"), kube_text(job, "metadata.uid"));
    assert_null(kube_at(owner, "controller"));
    assert_string_equal(kube_annotation(template, KUBE_PART_ANNOTATION), "1/2");
    assert_string_equal(kube_annotation(template, KUBE_FOLLOWS_ANNOTATION), "true");
    assert_string_equal(kube_annotation(template, KUBE_ANCHOR_ANNOTATION),
                        kube_text(job, "metadata.uid"));
    assert_string_equal(kube_annotation(template, KUBE_MARK_ANNOTATION),
                        kube_annotation(job, KUBE_MARK_ANNOTATION));
    assert_string_equal(kube_text(o, "spec.runPolicy.cleanPodPolicy"), "None");
    assert_string_equal(kube_text(o, "spec.pytorchReplicaSpecs.Worker.restartPolicy"), "Never");
    for (int64_t i = 0; i < 3; i++) {
        static const char *const nodes[] = {"n2", "n0", "n1"};
        assert_string_equal(kube_text(kube_world_pod(&k, i)->doc, "spec.nodeName"), nodes[i]);
    }
    pod = kube_text(kube_world_pod(&k, 0)->doc, "metadata.name");
    assert_int_equal(strncmp(pod, name, strlen(name)), 0);
}

static void those_that_decide_end_the_others(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = runs(r);
    const struct observation *o;
    struct asked a;

    ends(r, 0, 0);
    o = contract_await_run(r, &k, RUN_ENDED);
    assert_int_equal(o->exit_code, 0);
    assert_string_equal(o->reason, "");
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->finalize(r->connector, &k, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    assert_null(object_made());
    kube_rig_passes(r, 10000);
    assert_int_equal(kube_world_count("pods"), 0);
}

static void one_that_fails_ends_all(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = runs(r);

    ends(r, 2, 5);
    assert_int_equal(contract_await_run(r, &k, RUN_ENDED)->exit_code, 5);
}

/* Those that decide are asked to end by that, and end well: it is a failure all the same. */
static void one_that_fails_is_not_forgotten(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = runs(r);

    list_for_each (it, &W.procs) {
        struct kube_proc *p = container_of(it, struct kube_proc, link);
        p->traps = p->rank == 0;
    }
    ends(r, 2, 5);
    assert_int_equal(contract_await_run(r, &k, RUN_ENDED)->exit_code, 5);
}

static void what_is_refused_undoes_its_job(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    const struct observation *o;
    struct asked a;

    W.refuse_made = 422;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    o = contract_await_run(r, &k, RUN_ABSENT);
    assert_non_null(strstr(o->message, "its webhook says no"));
    kube_rig_passes(r, 10000);
    assert_int_equal(r->starts(r, &k), 0);
    assert_non_null(kube_at(kube_world_job(&k)->doc, "metadata.deletionTimestamp"));
    assert_int_equal(kube_world_count("secrets"), 0);
}

/* Whoever leads next makes it by what the Job says. */
static void the_next_driver_makes_it(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    W.refuse_made = 500;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    kube_rig_passes(r, 3000);
    assert_null(object_made());
    connector_rig_end(r);
    connector_rig_begin(r);
    W.refuse_made = 0;
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_RUNNING);
    assert_int_equal(r->starts(r, &k), 1);
}

static void what_is_taken_away_ahead_is_made_again(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    W.controller_ms = 20000;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    kube_rig_passes(r, 2000);
    kube_world_remove(object_made());
    kube_rig_passes(r, 10000);
    assert_non_null(object_made());
    W.controller_ms = 0;
    (void)contract_await_run(r, &k, RUN_RUNNING);
    assert_int_equal(r->starts(r, &k), 1);
}

static void set_annotation(struct kube_object *o, const char *name, const char *text)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(o->doc, "metadata"), "annotations");

    cJSON_DeleteItemFromObjectCaseSensitive(list, name);
    cJSON_AddStringToObject(list, name, text);
    kube_world_changed(o);
}

/* Who may write Jobs gets nothing made by this hub's right. */
static void what_others_write_is_not_made(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    const struct observation *o;
    struct asked a;

    W.refuse_made = 500;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    kube_rig_passes(r, 1000);
    set_annotation(kube_world_job(&k), "hanse.dev/makes",
                   "{\"as\":\"\",\"object\":{\"metadata\":{\"name\":\"x\"}}}");
    kube_rig_passes(r, 12000); /* what was on its way is of what stood there before */
    W.refuse_made = 0;
    o = contract_await_run(r, &k, RUN_ABSENT);
    assert_non_null(strstr(o->message, "was not written by this hub"));
    assert_null(object_made());
}

static bool is_ours(const cJSON *pod)
{
    struct connector_env e = {.keys = NULL};
    struct kube_mark m;

    kube_rig_env(NULL, &e);
    return kube_mark_of(pod, false, e.keys, &m);
}

/* A queue of the cluster holds it back: that is told. */
static void it_waits_while_it_is_suspended(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct kube_object *o;
    cJSON *policy;
    struct asked a;

    W.controller_ms = 60000;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    kube_rig_passes(r, 1000);
    o = object_made();
    policy = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(o->doc, "spec"),
                                              "runPolicy");
    cJSON_AddTrueToObject(policy, "suspend");
    kube_world_changed(o);
    const struct observation *seen = contract_await_run(r, &k, RUN_PENDING);
    assert_string_equal(seen->reason, "Suspended");
    assert_non_null(strstr(seen->message, "its PyTorchJob is suspended"));
    W.controller_ms = 0;
    (void)contract_await_run(r, &k, RUN_RUNNING);
}

/* By the name of what made it, which nobody else can give to his own: a copy of its mark does
 * nothing. */
static void a_copied_mark_makes_no_pod_ours(void **state)
{
    struct run_key k = runs(*state);
    cJSON *pod = cJSON_Duplicate(kube_world_pod(&k, 0)->doc, true), *meta, *owner;

    meta = cJSON_GetObjectItemCaseSensitive(pod, "metadata");
    owner = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(meta, "ownerReferences"), 0);
    assert_true(is_ours(pod));
    cJSON_ReplaceItemInObjectCaseSensitive(owner, "name", cJSON_CreateString("theirs"));
    assert_false(is_ours(pod));
    cJSON_DeleteItemFromObjectCaseSensitive(meta, "ownerReferences");
    assert_true(is_ours(pod)); /* its owner is gone, and its name is of it */
    cJSON_ReplaceItemInObjectCaseSensitive(meta, "name", cJSON_CreateString("hanse-x-master-0"));
    assert_false(is_ours(pod));
    cJSON_Delete(pod);
}

/* ---- a kind that its cluster has no more ---- */
static enum outcome finalized(struct connector_rig *r, const struct run_key *k, struct asked *a)
{
    contract_ask_begin(r, a, CALL_MS);
    r->ops->finalize(r->connector, k, &a->call);
    return contract_ask_end(r, a);
}

/* By its pods, which go with what owned them. */
static struct run_key ended_by_removal(struct connector_rig *r, enum kube_torch is)
{
    struct run_key k = runs(r);

    kube_world_torch(is);
    (void)contract_await_run(r, &k, RUN_ENDED);
    return k;
}

static void nothing_is_left(struct connector_rig *r, const struct run_key *k)
{
    kube_rig_passes(r, 10000);
    assert_null(object_made());
    assert_int_equal(kube_world_count("pods"), 0);
    assert_int_equal(kube_world_count("secrets"), 0);
    assert_true(kube_deleting(kube_world_job(k)->doc));
}

/* Its definition was taken away, and all of its kind with it: there is nothing to wait for. */
static void a_kind_that_is_gone_holds_no_end(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = ended_by_removal(r, TORCH_GONE);
    struct asked a;

    assert_int_equal(finalized(r, &k, &a), OUT_DONE);
    assert_int_equal(W.groups_asked, 2);
    nothing_is_left(r, &k);
}

static void a_kind_that_is_gone_from_its_group_holds_no_end(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = ended_by_removal(r, TORCH_ALONE);
    struct asked a;

    assert_int_equal(finalized(r, &k, &a), OUT_DONE);
    nothing_is_left(r, &k);
}

static void ends_well(struct connector_rig *r, const struct run_key *k)
{
    ends(r, 0, 0);
    (void)contract_await_run(r, k, RUN_ENDED);
}

/* It is there by another version: it goes by that one. */
static void a_version_that_is_gone_takes_nothing_away(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = runs(r);
    struct asked a;

    ends_well(r, &k);
    kube_world_torch(TORCH_NEXT);
    assert_int_equal(finalized(r, &k, &a), OUT_DONE);
    nothing_is_left(r, &k);
}

/* 503: nobody says that it is gone. */
static void what_does_not_answer_is_not_gone(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = runs(r);
    struct asked a;

    ends_well(r, &k);
    kube_world_torch(TORCH_DOWN);
    assert_int_equal(finalized(r, &k, &a), OUT_UNKNOWN);
    assert_non_null(object_made());
    kube_world_torch(TORCH_IS);
    assert_int_equal(finalized(r, &k, &a), OUT_DONE);
    nothing_is_left(r, &k);
}

static bool was_asked(void *arg)
{
    (void)arg;
    return W.groups_asked == 1;
}

/* A server that has just begun may not know of it yet. */
static void one_look_takes_nothing_away(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = runs(r);
    struct asked a;

    ends_well(r, &k);
    W.torch = TORCH_GONE;
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->finalize(r->connector, &k, &a.call);
    assert_true(connector_until(r, was_asked, NULL, CALL_MS));
    W.torch = TORCH_IS;
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    nothing_is_left(r, &k);
}

/* Ahead of its admission nothing of it can begin any more; the next order is refused at once. */
static void what_cannot_be_made_any_more_is_refused(struct connector_rig *r, enum kube_torch is,
                                                    const char *why)
{
    struct run_key k = contract_fresh_key(r);
    const struct observation *o;
    struct asked a;

    W.controller_ms = 60000;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    kube_rig_passes(r, 2000);
    assert_non_null(object_made());
    kube_world_torch(is);
    o = contract_await_run(r, &k, RUN_ABSENT);
    assert_string_equal(o->reason, "TargetRefused");
    assert_non_null(strstr(o->message, why));
    kube_rig_passes(r, 20000);
    nothing_is_left(r, &k);
    assert_int_equal(r->starts(r, &k), 0);
    k = contract_fresh_key(r);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_REJECTED);
    assert_non_null(strstr(a.err.text, "serves no PyTorchJob of kubeflow.org/v1"));
}

static void an_order_of_a_kind_that_goes_is_refused(void **state)
{
    what_cannot_be_made_any_more_is_refused(*state, TORCH_GONE,
                                            "serves no PyTorchJob of kubeflow.org/v1 any more");
}

static void an_order_of_a_version_that_goes_is_refused(void **state)
{
    what_cannot_be_made_any_more_is_refused(*state, TORCH_NEXT, "by v2, and no more by v1");
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, kube_rig_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {T(its_job_makes_nothing),
                                       T(those_that_decide_end_the_others),
                                       T(one_that_fails_ends_all),
                                       T(one_that_fails_is_not_forgotten),
                                       T(what_is_refused_undoes_its_job),
                                       T(the_next_driver_makes_it),
                                       T(what_is_taken_away_ahead_is_made_again),
                                       T(what_others_write_is_not_made),
                                       T(it_waits_while_it_is_suspended),
                                       T(a_copied_mark_makes_no_pod_ours),
                                       T(a_kind_that_is_gone_holds_no_end),
                                       T(a_kind_that_is_gone_from_its_group_holds_no_end),
                                       T(a_version_that_is_gone_takes_nothing_away),
                                       T(what_does_not_answer_is_not_gone),
                                       T(one_look_takes_nothing_away),
                                       T(an_order_of_a_kind_that_goes_is_refused),
                                       T(an_order_of_a_version_that_goes_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
