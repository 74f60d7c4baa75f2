/* What only Kubernetes can do to a run, over a cluster in memory (tests/support/kube): gangs, gates
 * and who opens them, quotas, queues, hands that take objects away, what is left behind. */
#include "api/base/failpoint.h"
#include "connectors/kubernetes/client/client.h"
#include "connectors/report/report.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static enum run_state found(struct connector_rig *r, const struct run_key *k, struct asked *a)
{
    assert_int_equal(contract_find(r, k, CALL_MS, a), OUT_DONE);
    return a->seen.state;
}

static cJSON *spec_of(struct kube_object *o)
{
    return cJSON_GetObjectItemCaseSensitive(o->doc, "spec");
}

static bool is_final(void *arg)
{
    struct asked *a = arg;

    return a->done > 0;
}

static enum outcome finalize(struct connector_rig *r, const struct run_key *k, struct asked *a)
{
    contract_ask_begin(r, a, CALL_MS);
    r->ops->finalize(r->connector, k, &a->call);
    assert_true(connector_until(r, is_final, a, CALL_MS));
    return a->out;
}

/* ---- gangs ---- */
static void a_gang_begins_whole_where_it_was_ordered(void **state)
{
    static const char *const nodes[] = {"n2", "n0", "n1"};
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_rig.ranks = 3;
    kube_world.controller_ms = 1000;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    assert_int_equal(r->starts(r, &k), 0);
    (void)contract_await_run(r, &k, RUN_RUNNING);
    for (int64_t i = 0; i < 3; i++)
        assert_string_equal(kube_text(kube_world_pod(&k, i)->doc, "spec.nodeName"), nodes[i]);
    assert_int_equal(r->n_seated, 1);
    assert_string_equal(r->seat, "kube.n2");
    assert_int_equal(kube_world_count("services"), 1);
    assert_int_equal(contract_stop(r, &k, &a), OUT_DONE);
    assert_int_equal(finalize(r, &k, &a), OUT_DONE);
    assert_int_equal(kube_world_count("services") + kube_world_count("secrets"), 0);
}

/* The first that fails is why, and takes the others along; the end is told once all have. */
static void a_gang_ends_by_the_first_that_fails(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_rig.ranks = 3;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_RUNNING);
    list_for_each (it, &kube_world.procs) {
        struct kube_proc *p = container_of(it, struct kube_proc, link);
        if (p->rank == 1) {
            p->over_ms = loop_now_ms(r->loop);
            p->exit_code = 137;
            p->why = "OOMKilled";
        }
    }
    const struct observation *o = contract_await_run(r, &k, RUN_ENDED);
    assert_int_equal(o->exit_code, 137);
    assert_string_equal(o->reason, "OutOfMemory");
    assert_int_equal(o->proof, PROOF_CONTAINERS_ENDED);
    assert_false(r->alive(r, &k));
}

/* A pod of it is out of reach: nobody says that the gang has ended. */
static void a_gang_is_as_unknown_as_its_worst(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_rig.ranks = 3;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_RUNNING);
    kube_world.nodes[0].linked = false; /* of rank 1 */
    kube_world.unlinked_ms[0] = loop_now_ms(r->loop);
    (void)contract_await_run(r, &k, RUN_UNKNOWN); /* it was alive: that is news */
    contract_ask_begin(r, &a, 20000);
    r->ops->stop(r->connector, &k, 100, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_UNKNOWN);
    assert_true(r->alive(r, &k));
    r->heal(r);
    kube_world.chaos = (struct kube_chaos){0};
    assert_int_equal(contract_stop(r, &k, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
}

/* ---- gates ---- */
/* What is there and was not asked for stays as it is, until the leader asks. */
static void only_what_the_leader_wants_is_admitted(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_world.controller_ms = 2000;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    connector_rig_end(r);
    connector_rig_begin(r);
    kube_rig_passes(r, 20000);
    assert_non_null(kube_world_pod(&k, 0));
    assert_int_equal(r->starts(r, &k), 0);
    assert_int_equal(found(r, &k, &a), RUN_STARTING);
    (void)contract_await_run(r, &k, RUN_RUNNING);
    assert_int_equal(r->starts(r, &k), 1);
}

/* A controller that makes pods of a Job which is being deleted: they have a gate. */
static void pods_that_come_late_never_start(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_world.controller_ms = 4000;
    kube_world.blind_controller = true;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    assert_int_equal(contract_stop(r, &k, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ABSENT);
    kube_rig_passes(r, 30000);
    assert_int_equal(r->starts(r, &k), 0);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_REJECTED);
}

/* Whoever takes one away that was admitted: another one of its Job is none that may start. */
static void another_pod_of_the_job_never_starts(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    kube_world_remove(kube_world_pod(&k, 0)); /* finalizers and all */
    kube_rig_passes(r, 30000);
    assert_int_equal(r->starts(r, &k), 1);
    assert_false(r->alive(r, &k)); /* its kubelet has ended it; who could say so is gone */
    assert_int_equal(found(r, &k, &a), RUN_UNKNOWN);
    assert_string_equal(a.seen.reason, "PodGone");
}

/* A queue that takes its place away, or somebody's hand: no failure of its own. */
static void who_is_deleted_by_others_has_not_failed(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);

    list_for_each (it, &kube_world.procs)
        container_of(it, struct kube_proc, link)->stubborn = true;
    cJSON_AddTrueToObject(spec_of(kube_world_job(&k)), "suspend");
    kube_world_changed(kube_world_job(&k));
    const struct observation *o = contract_await_run(r, &k, RUN_ENDED);
    assert_int_equal(o->exit_code, 137);
    assert_string_equal(o->reason, "RunnerKilled");
    assert_false(o->stopped);
    cJSON_DeleteItemFromObjectCaseSensitive(spec_of(kube_world_job(&k)), "suspend");
    kube_world_changed(kube_world_job(&k));
    kube_rig_passes(r, 20000); /* its queue lets it in again: no other pod of it starts */
    assert_int_equal(r->starts(r, &k), 1);
}

static void said_at_the_end(struct kube_object *pod, const struct run_key *k, int code, int signal)
{
    const struct run_report end = {.step = RUN_STEP_ENDED,
                                   .exit_code = code,
                                   .term_signal = signal,
                                   .reason = "",
                                   .message = ""};
    struct connector_env e;
    const char **tokens;
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF line;

    buf_init(&line, REPORT_LINE_MAX);
    kube_rig_env(&kube_rig.rig, &e);
    assert_true(e.tokens(e.arg, k, 1, a, &tokens));
    report_line_print(tokens[0], &end, 1, 1900000000000, &line);
    cJSON *status = cJSON_GetArrayItem(kube_at(pod->doc, "status.containerStatuses"), 0);
    cJSON *t = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(status, "state"),
                                                "terminated");
    assert_non_null(t);
    cJSON_AddStringToObject(t, "message", line.p);
    kube_world_changed(pod);
}

/* Its runner saw it end of a signal, and cannot know who had it deleted. */
static void a_drained_pod_is_no_failure_of_its_program(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);
    struct kube_object *pod = kube_world_pod(&k, 0);

    kube_world_delete(pod, 30);
    kube_rig_passes(r, 5000);
    (void)contract_await_run(r, &k, RUN_ENDED);
    said_at_the_end(pod, &k, 0, 15);
    kube_rig_passes(r, 1000);
    assert_int_equal(found(r, &k, &a), RUN_ENDED);
    assert_string_equal(a.seen.reason, "RunnerKilled");
    assert_int_equal(a.seen.term_signal, 15);
}

static void what_failed_by_itself_is_not_excused_by_a_later_deletion(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_ENDED);
    kube_rig_passes(r, 60000);
    kube_world_delete(kube_world_pod(&k, 0), 0);
    kube_rig_passes(r, 1000);
    assert_int_equal(found(r, &k, &a), RUN_ENDED);
    assert_int_equal(a.seen.exit_code, PROGRAM_ENDS_EXIT);
    assert_string_equal(a.seen.reason, "");
}

/* ---- what keeps it waiting ---- */
static void pods_that_a_quota_forbids_are_waited_for(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_world.forbid_pods = "pods \"x\" is forbidden: exceeded quota: gpus";
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    const struct observation *o = contract_await_run(r, &k, RUN_PENDING);
    assert_string_equal(o->reason, "FailedCreate");
    assert_non_null(strstr(o->message, "exceeded quota"));
    kube_world.forbid_pods = NULL;
    (void)contract_await_run(r, &k, RUN_RUNNING);
}

static void a_suspended_job_waits_in_a_queue(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_world.controller_ms = 1000;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    cJSON_AddTrueToObject(spec_of(kube_world_job(&k)), "suspend");
    kube_world_changed(kube_world_job(&k));
    assert_string_equal(contract_await_run(r, &k, RUN_PENDING)->reason, "Suspended");
    kube_rig_passes(r, 20000);
    assert_int_equal(r->starts(r, &k), 0);
    cJSON_DeleteItemFromObjectCaseSensitive(spec_of(kube_world_job(&k)), "suspend");
    kube_world_changed(kube_world_job(&k));
    (void)contract_await_run(r, &k, RUN_RUNNING);
}

static void what_a_kubelet_turns_away_never_started(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_world.turns_away = "UnexpectedAdmissionError";
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    const struct observation *o = contract_await_run(r, &k, RUN_ABSENT);
    assert_string_equal(o->reason, "TargetRefused");
    assert_int_equal(o->proof, PROOF_NEVER_STARTED);
    kube_world.turns_away = NULL;
    kube_rig_passes(r, 20000); /* nobody else finalizes what is absent */
    assert_int_equal(kube_world_count("pods") + kube_world_count("secrets"), 0);
    assert_int_equal(found(r, &k, &a), RUN_ABSENT);
    assert_string_equal(a.seen.reason, "TargetRefused");
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_REJECTED);
    assert_int_equal(r->starts(r, &k), 0);
}

static void a_namespace_that_is_not_there_is_named(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_world_remove(kube_world_find("namespaces", "", KUBE_WORLD_NS));
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_REJECTED);
    assert_non_null(strstr(a.err.text, "namespace"));
    assert_int_equal(contract_find(r, &k, 20000, &a), OUT_UNKNOWN); /* nothing can promise it */
}

/* ---- what is left behind ---- */
static void half_an_order_is_cleared_away(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_world.refuse = 429; /* the Secret comes through, the Job does not */
    assert_int_equal(contract_submit_by(r, &k, PROGRAM_STAYS, 1500, &a), OUT_UNKNOWN);
    assert_int_equal(kube_world_count("secrets"), 1);
    kube_world.refuse = 0;
    assert_int_equal(found(r, &k, &a), RUN_ABSENT);
    kube_rig_passes(r, 5000);
    assert_int_equal(kube_world_count("secrets"), 0);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_REJECTED);
    kube_rig_passes(r, 5000);
    assert_int_equal(kube_world_count("secrets"), 0);
    k = contract_fresh_key(r);
    kube_world.refuse = 403;
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_REJECTED);
    kube_rig_passes(r, 5000);
    assert_int_equal(kube_world_count("secrets"), 0);
}

static bool none(const struct run_promise *p, void *arg)
{
    (void)p;
    (void)arg;
    return false;
}

static bool all(const struct run_promise *p, void *arg)
{
    unsigned *n = arg;

    assert_string_equal(p->cluster, "c1");
    assert_int_equal(p->rv, 7);
    ++*n;
    return true;
}

static void promises(struct connector_rig *r, uint64_t older_ms, promise_judge judge, unsigned *n)
{
    struct asked a;

    contract_ask_begin(r, &a, CALL_MS);
    r->ops->promises(r->connector, 9, older_ms, judge, n, &a.call);
    assert_int_equal(a.done, 0);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    kube_rig_passes(r, 3000);
}

/* A name stays taken until nobody needs it: a run that has ended, and one that never was. */
static void a_husk_stays_until_it_is_let_go(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r), no = contract_fresh_key(r);
    struct asked a;
    unsigned n = 0;

    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_ENDED);
    assert_int_equal(finalize(r, &k, &a), OUT_DONE);
    assert_int_equal(found(r, &no, &a), RUN_ABSENT);
    kube_rig_passes(r, 10000);
    assert_int_equal(kube_world_count("pods") + kube_world_count("secrets"), 0);
    assert_int_equal(kube_world_count("jobs"), 2);
    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
    kube_rig_passes(r, 5000);
    assert_int_equal(kube_world_count("secrets"), 0);
    promises(r, 3600000, all, &n);
    promises(r, 1000, none, NULL);
    assert_int_equal(n, 0);
    assert_int_equal(kube_world_count("jobs"), 2);
    assert_int_equal(found(r, &k, &a), RUN_ENDED);
    assert_int_equal(a.seen.exit_code, PROGRAM_ENDS_EXIT);
    promises(r, 1000, all, &n);
    assert_int_equal(n, 2);
    assert_int_equal(kube_world_count("jobs"), 0);
}

static enum run_verdict counted(const struct run_listed *l, void *arg)
{
    unsigned *n = arg;

    assert_string_equal(l->cluster, "c1");
    assert_string_equal(l->name, "w");
    assert_string_equal(l->ns, "work");
    assert_int_equal(l->state_rv, 7);
    n[0]++;
    n[1] += l->final;
    return RUN_LET_GO;
}

static enum run_verdict kept(const struct run_listed *l, void *arg)
{
    (void)counted(l, arg);
    return RUN_KEPT;
}

static unsigned swept(struct connector_rig *r, unsigned *ret_final, enum run_verdict v)
{
    unsigned n[2] = {0};
    struct asked a;

    contract_ask_begin(r, &a, CALL_MS);
    r->ops->sweep(r->connector, v == RUN_KEPT ? kept : counted, n, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    *ret_final = n[1];
    return n[0];
}

/* The leader goes in the middle of it: the next one hears that it is not done. */
static void a_finalize_that_was_cut_off_is_told(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;
    unsigned final = 1;

    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_ENDED);
    for (unsigned i = 0; i < 12; i++) { /* each time a little further */
        contract_ask_begin(r, &a, CALL_MS);
        r->ops->finalize(r->connector, &k, &a.call);
        kube_rig_passes(r, 10 + 6 * i);
        connector_rig_end(r);
        connector_rig_begin(r);
        bool left = kube_world_count("pods") + kube_world_count("secrets") > 0;
        assert_int_equal(swept(r, &final, RUN_KEPT), 1);
        assert_true(!left || !final);
        assert_int_equal(found(r, &k, &a), RUN_ENDED);
    }
    assert_int_equal(finalize(r, &k, &a), OUT_DONE);
    assert_int_equal(swept(r, &final, RUN_KEPT), 1);
    assert_int_equal(final, 1);
    assert_int_equal(kube_world_count("pods") + kube_world_count("secrets"), 0);
}

/* Its Job was taken away by hand, once it had ended: its name is taken all the same. */
static void an_end_without_its_job_is_kept(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_ENDED);
    kube_world_remove(kube_world_job(&k));
    kube_rig_passes(r, 3000);
    assert_int_equal(finalize(r, &k, &a), OUT_DONE);
    assert_int_equal(kube_world_count("pods") + kube_world_count("secrets"), 0);
    connector_rig_end(r);
    connector_rig_begin(r);
    assert_int_equal(found(r, &k, &a), RUN_ENDED);
    assert_int_equal(a.seen.exit_code, PROGRAM_ENDS_EXIT);
    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    kube_rig_passes(r, 10000);
    assert_int_equal(r->starts(r, &k), 1);
}

/* What never started nobody finalizes but the driver, whichever of them. */
static void what_never_started_is_cleared_away_by_whoever_comes(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_world.turns_away = "OutOfcpu";
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_ABSENT);
    for (unsigned i = 0; i < 6; i++) {
        connector_rig_end(r);
        connector_rig_begin(r);
        kube_rig_passes(r, 8 + 5 * i);
    }
    kube_rig_passes(r, 60000);
    assert_int_equal(kube_world_count("pods") + kube_world_count("secrets"), 0);
    assert_int_equal(found(r, &k, &a), RUN_ABSENT);
}

static void a_sweep_ends_what_was_let_go(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key lives = contract_running(r, &a), over = contract_fresh_key(r);
    unsigned final;

    assert_int_equal(contract_submit(r, &over, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &over, RUN_ENDED);
    kube_world_remove(kube_world_job(&lives)); /* its pods are there still */
    kube_rig_passes(r, 50);
    assert_int_equal(swept(r, &final, RUN_LET_GO), 2);
    assert_int_equal(final, 0);
    kube_rig_passes(r, 60000);
    assert_false(r->alive(r, &lives));
    (void)swept(r, &final, RUN_LET_GO);
    kube_rig_passes(r, 60000);
    assert_int_equal(kube_world_count("pods") + kube_world_count("secrets"), 0);
}

/* ---- each rule broken on purpose, and which of the tests must notice ---- */
#define T(name) cmocka_unit_test_setup_teardown(name, kube_rig_setup, kube_rig_teardown)
static int all_tests(void)
{
    const struct CMUnitTest tests[] = {T(a_gang_begins_whole_where_it_was_ordered),
                                       T(a_gang_ends_by_the_first_that_fails),
                                       T(a_gang_is_as_unknown_as_its_worst),
                                       T(only_what_the_leader_wants_is_admitted),
                                       T(pods_that_come_late_never_start),
                                       T(another_pod_of_the_job_never_starts),
                                       T(who_is_deleted_by_others_has_not_failed),
                                       T(a_drained_pod_is_no_failure_of_its_program),
                                       T(what_failed_by_itself_is_not_excused_by_a_later_deletion),
                                       T(pods_that_a_quota_forbids_are_waited_for),
                                       T(a_suspended_job_waits_in_a_queue),
                                       T(what_a_kubelet_turns_away_never_started),
                                       T(a_namespace_that_is_not_there_is_named),
                                       T(half_an_order_is_cleared_away),
                                       T(a_husk_stays_until_it_is_let_go),
                                       T(a_finalize_that_was_cut_off_is_told),
                                       T(what_never_started_is_cleared_away_by_whoever_comes),
                                       T(an_end_without_its_job_is_kept),
                                       T(a_sweep_ends_what_was_let_go),
                                       T(connector_believes_no_appearance),
                                       T(connector_touches_nothing_of_others),
                                       T(connector_refuses_what_it_called_absent),
                                       T(connector_finalizes_what_has_ended)};

    return cmocka_run_group_tests_name("runs", tests, NULL, NULL);
}

static const struct {
    const char *plant, *by;
} noticed[] = {{"kube.no-tombstone", "connector_refuses_what_it_called_absent"},
               {"kube.any-mark", "connector_touches_nothing_of_others"},
               {"kube.collected-is-over", "connector_believes_no_appearance"},
               {"kube.gone-is-ended", "another_pod_of_the_job_never_starts"},
               {"kube.lost-is-absent", "connector_believes_no_appearance"},
               {"kube.admits-unasked", "only_what_the_leader_wants_is_admitted"},
               {"kube.any-pod", "another_pod_of_the_job_never_starts"},
               {"kube.final-ends", "connector_finalizes_what_has_ended"}};

static void each_broken_rule_is_noticed(void **state)
{
    unsigned unseen = 0;

    (void)state;
    for (size_t i = 0; i < sizeof noticed / sizeof *noticed; i++) {
        int status = 0;
        (void)fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
                _exit(0);
            (void)alarm(60); /* a rule may be broken so that it never ends */
            failpoint_plant(noticed[i].plant);
            cmocka_set_test_filter(noticed[i].by);
            _exit(all_tests());
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!status)
            print_error("planted %s: not seen by %s\n", noticed[i].plant, noticed[i].by);
        unseen += !status;
    }
    assert_int_equal(unseen, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_broken_rule_is_noticed)};
    const char *plant = getenv("HANSE_KUBE_PLANT"); /* with that rule broken, and its messages */

    if (plant)
        failpoint_plant(plant);
    int failed = all_tests();

    if (plant)
        return failed;
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
