/* What is told of a run to people: its pods, those in trouble first, and the newest Events of them,
 * read when somebody asks and told once, whatever becomes of the cluster meanwhile. */
#include "connectors/kubernetes/client/client.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <stdio.h>
#include <string.h>

#define PARTS 40

struct heard {
    unsigned done;
    int code;
    size_t n_parts, all_parts, n_events;
    struct {
        char name[128], node[32], phase[16], reason[64];
        int64_t rank;
    } parts[PARTS];
    struct {
        char reason[64], about[128], message[512];
        int64_t count, at_ms;
    } events[PARTS];
    char lacks[512];
};

static void on_details(void *arg, const struct run_details *d, const struct err *err)
{
    struct heard *h = arg;

    h->done++;
    h->code = err ? err->code : 0;
    if (!d)
        return;
    h->n_parts = d->n_parts;
    h->all_parts = d->all_parts;
    h->n_events = d->n_events;
    str_copy(h->lacks, sizeof h->lacks, d->lacks);
    assert_in_range(d->n_parts, 0, PARTS);
    assert_in_range(d->n_events, 0, PARTS);
    for (size_t i = 0; i < d->n_parts; i++) {
        str_copy(h->parts[i].name, sizeof h->parts[i].name, d->parts[i].name);
        str_copy(h->parts[i].node, sizeof h->parts[i].node, d->parts[i].node);
        str_copy(h->parts[i].phase, sizeof h->parts[i].phase, d->parts[i].phase);
        str_copy(h->parts[i].reason, sizeof h->parts[i].reason, d->parts[i].reason);
        h->parts[i].rank = d->parts[i].rank;
    }
    for (size_t i = 0; i < d->n_events; i++) {
        str_copy(h->events[i].reason, sizeof h->events[i].reason, d->events[i].reason);
        str_copy(h->events[i].about, sizeof h->events[i].about, d->events[i].about);
        str_copy(h->events[i].message, sizeof h->events[i].message, d->events[i].message);
        h->events[i].count = d->events[i].count;
        h->events[i].at_ms = d->events[i].at_ms;
    }
}

static bool was_told(void *arg)
{
    return ((const struct heard *)arg)->done > 0;
}

static void asked(struct connector_rig *r, const struct run_key *k, struct heard *h)
{
    *h = (struct heard){0};
    r->ops->details(r->connector, k, loop_now_ms(r->loop) + 5000, on_details, h);
    assert_int_equal(h->done, 0); /* never from inside the call */
    assert_true(connector_until(r, was_told, h, 10000));
    kube_rig_passes(r, 10000);
    assert_int_equal(h->done, 1);
}

static void event_put(const struct kube_object *of, unsigned i, int64_t at_ms, const char *message)
{
    char name[32], at[32];
    cJSON *e = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(e, "metadata"), *about;

    (void)snprintf(name, sizeof name, "e%u", i);
    time_print(at_ms, at);
    cJSON_AddStringToObject(meta, "name", name);
    cJSON_AddStringToObject(meta, "namespace", KUBE_WORLD_NS);
    about = cJSON_AddObjectToObject(e, "involvedObject");
    cJSON_AddStringToObject(about, "uid", kube_text(of->doc, "metadata.uid"));
    cJSON_AddStringToObject(e, "type", "Warning");
    cJSON_AddStringToObject(e, "reason", "FailedMount");
    cJSON_AddStringToObject(e, "message", message);
    cJSON_AddStringToObject(e, "lastTimestamp", at);
    cJSON_AddNumberToObject(e, "count", i + 1);
    (void)kube_world_put("events", e);
}

static void a_gang(struct connector_rig *r, struct run_key *k)
{
    struct asked a;

    *k = contract_fresh_key(r);
    kube_rig.ranks = 3;
    assert_int_equal(contract_submit(r, k, PROGRAM_STAYS, &a), OUT_DONE);
    (void)contract_await_run(r, k, RUN_RUNNING);
}

static void pods_by_rank_and_the_newest_events(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k, newest;
    struct heard h;

    a_gang(r, &k);
    for (unsigned i = 0; i < 30; i++) /* as they are listed: not by time */
        event_put(kube_world_pod(&k, i % 2), i, 1700000000000 + 1000 * (int64_t)(i * 7 % 30),
                  "a\x1b[2Jb\n");
    event_put(kube_world_job(&k), 30, 1800000000000, "of the Job");
    newest = k;
    newest.try_ = 0;
    asked(r, &newest, &h);
    assert_int_equal(h.code, 0);
    assert_int_equal(h.n_parts, 3);
    assert_int_equal(h.all_parts, 3);
    for (int64_t i = 0; i < 3; i++) {
        static const char *const nodes[] = {"n2", "n0", "n1"};
        char name[160];
        (void)snprintf(name, sizeof name, KUBE_WORLD_NS "/%s",
                       kube_text(kube_world_pod(&k, i)->doc, "metadata.name"));
        assert_int_equal(h.parts[i].rank, i);
        assert_string_equal(h.parts[i].name, name);
        assert_string_equal(h.parts[i].node, nodes[i]);
        assert_string_equal(h.parts[i].phase, "Running");
        assert_string_equal(h.parts[i].reason, "");
    }
    assert_int_equal(h.n_events, 24);
    assert_string_equal(h.events[0].message, "of the Job");
    assert_true(strncmp(h.events[0].about, "Job/hanse-", 10) == 0);
    for (size_t i = 1; i < h.n_events; i++) {
        assert_true(h.events[i].at_ms <= h.events[i - 1].at_ms);
        assert_string_equal(h.events[i].message, "a [2Jb ");
        assert_true(strncmp(h.events[i].about, "Pod/hanse-", 10) == 0);
    }
    assert_string_equal(h.lacks, "");
}

static void who_is_in_trouble_stands_first(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k;
    struct heard h;

    a_gang(r, &k);
    list_for_each (it, &kube_world.procs) {
        struct kube_proc *p = container_of(it, struct kube_proc, link);
        p->stubborn = true; /* the others live on for a while */
        if (p->rank == 2) {
            p->over_ms = loop_now_ms(r->loop);
            p->exit_code = 137;
            p->why = "OOMKilled";
        }
    }
    kube_rig_passes(r, 3000);
    asked(r, &k, &h);
    assert_int_equal(h.parts[0].rank, 2);
    assert_string_equal(h.parts[0].reason, "OOMKilled");
    assert_int_equal(h.parts[1].rank, 0);
}

static void what_is_without_pods_says_so(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;
    struct heard h;

    asked(r, &k, &h); /* nobody knows it */
    assert_int_equal(h.code, 0);
    assert_int_equal(h.n_parts + h.n_events, 0);
    kube_world.forbid_pods = "pods \"x\" is forbidden: exceeded quota: gpus";
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_PENDING);
    asked(r, &k, &h);
    assert_int_equal(h.n_parts, 0);
    assert_int_equal(h.n_events, 1);
    assert_string_equal(h.events[0].reason, "FailedCreate");
}

/* Of many Events of one object the newest may not be among those that were read. */
static void what_was_not_read_is_said(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);
    struct heard h;

    for (unsigned i = 0; i < 120; i++)
        event_put(kube_world_pod(&k, 0), i, 1700000000000, "x");
    asked(r, &k, &h);
    assert_int_equal(h.n_events, 24);
    assert_non_null(strstr(h.lacks, "more than 100 Events"));
}

/* A cluster that does not answer, and a driver that goes: one answer all the same. */
static void one_answer_whatever_happens(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);
    struct heard h;

    kube_world.silent = true;
    asked(r, &k, &h);
    assert_int_equal(h.code, 0);
    assert_int_equal(h.n_parts, 1);
    assert_non_null(strstr(h.lacks, "Events could not be read"));
    h = (struct heard){0};
    r->ops->details(r->connector, &k, loop_now_ms(r->loop) + 5000, on_details, &h);
    connector_rig_end(r);
    assert_int_equal(h.done, 1);
    assert_int_not_equal(h.code, 0);
    kube_world.silent = false;
    connector_rig_begin(r);
}

#define T(name) cmocka_unit_test_setup_teardown(name, kube_rig_setup, kube_rig_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(pods_by_rank_and_the_newest_events), T(who_is_in_trouble_stands_first),
        T(what_is_without_pods_says_so),       T(what_was_not_read_is_said),
        T(one_answer_whatever_happens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
