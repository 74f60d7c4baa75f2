/* Diagnostics of idle nodes over a cluster in memory: who is kept off, until when, and who goes
 * first where an order comes. */
#include "connectors/kubernetes/runs/runs.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <stdio.h>
#include <string.h>

#define SAYS(more)                                                                                 \
    "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{\"name\":\"kube\"}," \
    "\"spec\":{\"type\":\"kubernetes\",\"tier\":\"hub\",\"connection\":{\"server\":"               \
    "\"https://kube.test:6443\",\"credentialsFrom\":{\"secret\":\"login\"}},\"kubernetes\":{"      \
    "\"runner\":{\"image\":\"runner\"}" more "}}}"
#define DIAGNOSTICS_EVERY(every, command, more)                                                    \
    ",\"diagnostics\":{\"image\":\"dcgm\",\"command\":[\"" command "\",\"$HOME\"],\"namespace\":"  \
    "\"work\",\"every\":\"" every "\",\"timeout\":\"5m\"" more "}"
#define DIAGNOSTICS(command, more) DIAGNOSTICS_EVERY("1h", command, more)

static void says(struct connector_rig *r, const char *text)
{
    cJSON *j = cJSON_Parse(text);
    struct object *o = NULL;
    struct err e;

    assert_non_null(j);
    if (object_from_json(kind_by_id(KIND_TARGET), j, 0, &o, &e))
        fail_msg("%s: %s", e.field, e.text);
    cJSON_Delete(j);
    (void)object_unref(kube_rig.target);
    kube_rig.target = o;
    r->target = o;
    r->ops->update(r->connector, o);
}

static bool is_check(const struct kube_object *o)
{
    return *kube_label(o->doc, "hanse.dev/diagnostics") != '\0';
}

/* How many there are of that kind; on that node, unless NULL; going alone. */
static unsigned checks(const char *kind, const char *node, bool going)
{
    unsigned n = 0;

    list_for_each (it, &kube_world.objects) {
        const struct kube_object *o = container_of(it, struct kube_object, link);
        bool over = kube_condition_is(o->doc, "Failed") || kube_condition_is(o->doc, "Complete") ||
                    !strcmp(kube_text(o->doc, "status.phase"), "Failed") ||
                    !strcmp(kube_text(o->doc, "status.phase"), "Succeeded");
        if (strcmp(o->kind, kind) != 0 || !is_check(o) || (going && over))
            continue;
        n += !node || !strcmp(kube_annotation(o->doc, "hanse.dev/node"), node) ||
             !strcmp(kube_text(o->doc, "spec.nodeName"), node);
    }
    return n;
}

static struct kube_object *check_job(const char *node)
{
    list_for_each (it, &kube_world.objects) {
        struct kube_object *o = container_of(it, struct kube_object, link);
        if (!strcmp(o->kind, "jobs") && is_check(o) &&
            !strcmp(kube_annotation(o->doc, "hanse.dev/node"), node))
            return o;
    }
    return NULL;
}

static struct told {
    bool open, faulty;
    enum health_source source;
    enum health health;
    char reason[128], message[256];
} told[KUBE_WORLD_NODES];
static const struct connector_events *rigs;
static unsigned complaints[KUBE_WORLD_NODES];

static void on_not_given(void *arg, const char *reason, const char *why)
{
    (void)arg;
    assert_string_equal(reason, "NotDiagnosed");
    complaints[kube_world_number(why + strlen("node n"))]++;
}

static void on_nodes(void *arg, const struct inventory_page *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct node *v = &p->nodes[i];
        struct told *t = &told[kube_world_number(v->metadata->name + strlen("kube.n"))];

        *t = (struct told){.open = !v->spec->unschedulable, .faulty = v->status->n_faults > 0};
        str_copy(t->reason, sizeof t->reason, v->status->reason);
        if (!t->faulty)
            continue;
        t->source = v->status->faults[0].source;
        t->health = v->status->faults[0].health;
        str_copy(t->reason, sizeof t->reason, v->status->faults[0].reason);
        str_copy(t->message, sizeof t->message, v->status->faults[0].message);
    }
    rigs->nodes(arg, p);
}

/* Hears what the rig's leader is told of nodes. */
static void env(struct connector_rig *r, struct connector_env *ret)
{
    static struct connector_events events;

    kube_rig_env(r, ret);
    rigs = ret->events;
    events = *rigs;
    events.nodes = on_nodes;
    events.not_given = on_not_given;
    ret->events = &events;
}

static int setup(void **state)
{
    int rc = kube_rig_setup(state);
    struct connector_rig *r = *state;

    memset(told, 0, sizeof told);
    memset(complaints, 0, sizeof complaints);
    r->env = env;
    connector_rig_end(r);
    connector_rig_begin(r);
    return rc;
}

/* As the leader was told last; it asks first. */
static struct told node_told(struct connector_rig *r, unsigned node)
{
    struct asked asked;

    contract_ask_begin(r, &asked, CALL_MS);
    r->ops->inventory(r->connector, &asked.call);
    assert_int_equal(contract_ask_end(r, &asked), OUT_DONE);
    kube_rig_passes(r, 700);
    return told[node];
}

static bool until_over(void *arg)
{
    (void)arg;
    assert_true(checks("pods", NULL, true) <= 1);
    return checks("jobs", NULL, false) == 3 && checks("jobs", NULL, true) == 0;
}

static bool one_goes(void *arg)
{
    return checks("pods", arg, true) == 1;
}

static bool none_is(void *arg)
{
    return checks("jobs", arg, false) == 0;
}

struct foreign_told {
    unsigned done;
    size_t n;
};

static void on_foreign(void *arg, const struct foreign_page *p, const struct err *err)
{
    struct foreign_told *x = arg;

    assert_null(err);
    x->done++;
    x->n = p->n;
}

static bool foreign_is_told(void *arg)
{
    return ((const struct foreign_told *)arg)->done > 0;
}

/* Nor is it counted among what others run there. */
static size_t foreign(struct connector_rig *r, enum foreign_list what)
{
    struct foreign_told x = {0};
    const struct foreign_ask ask = {
        .what = what, .ns = "", .after = "", .deadline_ms = loop_now_ms(r->loop) + 5000};

    r->ops->foreign(r->connector, &ask, on_foreign, &x);
    assert_true(connector_until(r, foreign_is_told, &x, 20000));
    return x.n;
}

static void the_job_is_the_sites_on_all_gpus_of_one_node(void **state)
{
    struct connector_rig *r = *state;
    const cJSON *pod, *c, *list;

    says(r, SAYS(DIAGNOSTICS("stays", "")));
    assert_true(connector_until(r, one_goes, NULL, 60000));
    const struct kube_object *job = NULL;
    for (unsigned i = 0; i < 3 && !job; i++)
        job = check_job((const char *const[]){"n0", "n1", "n2"}[i]);
    assert_non_null(job);
    pod = kube_at(job->doc, "spec.template.spec");
    c = cJSON_GetArrayItem(kube_at(pod, "containers"), 0);
    list = kube_at(c, "command");
    assert_string_equal(cJSON_GetArrayItem(list, 1)->valuestring, "$$HOME");
    assert_string_equal(kube_text(c, "image"), "dcgm");
    assert_string_equal(
        cJSON_GetObjectItem(kube_at(c, "resources.limits"), "nvidia.com/gpu")->valuestring, "8");
    assert_int_equal(kube_at(pod, "activeDeadlineSeconds")->valueint, 300);
    assert_string_equal(kube_text(pod, "restartPolicy"), "Never");
    assert_string_equal(
        kube_annotation(job->doc, "hanse.dev/node"),
        cJSON_GetArrayItem(
            kube_at(cJSON_GetArrayItem(
                        kube_at(cJSON_GetArrayItem(kube_at(pod, "affinity.nodeAffinity."
                                                                "requiredDuringSchedulingIgnored"
                                                                "DuringExecution."
                                                                "nodeSelectorTerms"),
                                                   0),
                                "matchFields"),
                        0),
                    "values"),
            0)
            ->valuestring);
    /* Nothing is given there meanwhile; and one at a time. */
    const struct told t = node_told(r, 0);
    const struct told u = node_told(r, 1);
    const struct told v = node_told(r, 2);
    assert_int_equal(t.open + u.open + v.open, 2);
    assert_string_equal((!t.open ? &t : !u.open ? &u : &v)->reason, "its GPUs are being diagnosed");
    kube_rig_passes(r, 60000);
    assert_int_equal(checks("jobs", NULL, false), 1);
    assert_int_equal(checks("pods", NULL, true), 1);
    assert_int_equal(foreign(r, FOREIGN_JOBS) + foreign(r, FOREIGN_PODS), 0);
    /* What is not asked for any more goes. */
    says(r, SAYS(""));
    assert_true(connector_until(r, none_is, NULL, 60000));
    assert_true(node_told(r, 0).open && node_told(r, 1).open);
}

static void a_node_that_fails_is_kept_off_until_it_passes(void **state)
{
    struct connector_rig *r = *state;

    says(r, SAYS(DIAGNOSTICS("ends", "")));
    assert_true(connector_until(r, until_over, NULL, 180000));
    kube_rig_passes(r, 3000);
    for (int again = 0; again < 2; again++) { /* by the next leader, too */
        struct told t = node_told(r, 1);
        assert_true(t.open && t.faulty);
        assert_int_equal(t.source, SOURCE_DIAGNOSTICS);
        assert_int_equal(t.health, HEALTH_NOT_READY);
        assert_string_equal(t.reason, "DiagnosticsFailed");
        assert_string_equal(t.message, "its diagnostics ended with exit code 3");
        if (!again) {
            connector_rig_end(r);
            connector_rig_begin(r);
        }
    }
    assert_int_equal(checks("jobs", NULL, false), 3); /* it did not begin anew for that */
    says(r, SAYS(DIAGNOSTICS("passes", "")));
    kube_rig_passes(r, 1800000);
    assert_true(node_told(r, 1).faulty); /* it is not due yet */
    kube_rig_passes(r, 2400000);
    assert_int_equal(checks("jobs", NULL, false), 3); /* the newest of each alone is kept */
    assert_int_equal(checks("pods", NULL, false), 3);
    for (unsigned i = 0; i < 3; i++) {
        const struct told t = node_told(r, i);
        assert_true(t.open && !t.faulty);
    }
}

static void an_order_goes_first(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;

    says(r, SAYS(DIAGNOSTICS("stays", ",\"atOnce\":3")));
    assert_true(connector_until(r, one_goes, (void *)(uintptr_t) "n1", 60000));
    struct run_key k = contract_running(r, &a); /* on n1 */
    assert_true(connector_until(r, none_is, (void *)(uintptr_t) "n1", 60000));
    kube_rig_passes(r, 60000);
    assert_int_equal(checks("jobs", "n1", false), 0);
    assert_int_equal(checks("jobs", NULL, false), 2);
    assert_true(node_told(r, 1).open);
    assert_int_equal(complaints[1], 0); /* others took nothing away */
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->stop(r->connector, &k, 1000, &a.call);
    (void)contract_ask_end(r, &a);
    contract_ask_begin(r, &a, CALL_MS);
    r->ops->finalize(r->connector, &k, &a.call);
    assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
    assert_true(connector_until(r, one_goes, (void *)(uintptr_t) "n1", 60000));
}

/* Nor is a node that others use diagnosed, and a pod that others take away says nothing of it. */
static void what_others_do_is_no_verdict(void **state)
{
    static const char other[] =
        "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"x\",\"namespace\":\"work\"},\"spec\":{"
        "\"nodeName\":\"n2\",\"containers\":[{\"name\":\"c\",\"resources\":{\"requests\":{"
        "\"nvidia.com/gpu\":\"1\"}}}]},\"status\":{\"phase\":\"Running\"}}";
    struct connector_rig *r = *state;

    (void)kube_world_put("pods", cJSON_Parse(other));
    kube_rig_passes(r, 2000);
    says(r, SAYS(DIAGNOSTICS("stays", ",\"atOnce\":3")));
    kube_rig_passes(r, 60000);
    assert_int_equal(checks("jobs", "n2", false), 0);
    assert_int_equal(checks("pods", "n0", true), 1);
    list_for_each (it, &kube_world.objects) {
        struct kube_object *o = container_of(it, struct kube_object, link);
        if (!strcmp(o->kind, "pods") && is_check(o) &&
            !strcmp(kube_text(o->doc, "spec.nodeName"), "n0")) {
            kube_world_delete(o, -1);
            break;
        }
    }
    assert_true(connector_until(r, none_is, (void *)(uintptr_t) "n0", 60000));
    kube_rig_passes(r, 240000);
    assert_false(node_told(r, 0).faulty);
    assert_int_equal(checks("jobs", "n0", false), 0); /* not at once */
    kube_rig_passes(r, 120000);
    assert_int_equal(checks("jobs", "n0", false), 1);
    assert_int_equal(complaints[0], 1);
    /* A copy of its labels on somebody's Job is not ours. */
    cJSON *copy = cJSON_Duplicate(check_job("n0")->doc, true);
    cJSON *meta = cJSON_GetObjectItem(copy, "metadata");
    cJSON_ReplaceItemInObject(meta, "name", cJSON_CreateString("theirs"));
    cJSON_DeleteItemFromObject(meta, "uid");
    cJSON_ReplaceItemInObject(cJSON_GetObjectItem(copy, "spec"), "parallelism",
                              cJSON_CreateNumber(0));
    (void)kube_world_put("jobs", copy);
    says(r, SAYS(""));
    kube_rig_passes(r, 60000);
    assert_int_equal(checks("jobs", NULL, false), 1);
    assert_non_null(kube_world_find("jobs", "work", "theirs"));
}

/* Passes until another Job than `uid` is the newest on n0, which takes its place; returns how long
 * it took. */
static uint64_t next_try(struct connector_rig *r, char uid[64])
{
    uint64_t from = loop_now_ms(r->loop);

    for (;;) {
        const struct kube_object *newest = NULL;
        list_for_each (it, &kube_world.objects) {
            const struct kube_object *o = container_of(it, struct kube_object, link);
            if (!strcmp(o->kind, "jobs") && is_check(o) &&
                !strcmp(kube_annotation(o->doc, "hanse.dev/node"), "n0"))
                newest = o;
        }
        if (newest && strcmp(kube_text(newest->doc, "metadata.uid"), uid) != 0) {
            str_copy(uid, 64, kube_text(newest->doc, "metadata.uid"));
            return loop_now_ms(r->loop) - from;
        }
        assert_true(loop_now_ms(r->loop) - from < 7200000);
        kube_rig_passes(r, 5000);
    }
}

static void took_minutes(uint64_t ms, unsigned minutes)
{
    assert_true(ms + 10000 >= minutes * 60000u && ms <= minutes * 60000u + 40000);
}

/* Their pods do not even begin: each is tried again, after pauses that grow up to its period. That
 * is told once; and once one has said something, all of it begins anew. */
static void what_never_began_is_tried_again_soon(void **state)
{
    static const unsigned minutes[] = {5, 10, 20, 20};
    struct connector_rig *r = *state;
    char uid[64] = "";

    kube_world.turns_away = "UnexpectedAdmissionError";
    says(r, SAYS(DIAGNOSTICS_EVERY("20m", "passes", ",\"atOnce\":3")));
    (void)next_try(r, uid);
    for (size_t i = 0; i < sizeof minutes / sizeof *minutes; i++) {
        took_minutes(next_try(r, uid), minutes[i]);
        kube_rig_passes(r, 10000);
        assert_int_equal(checks("jobs", "n0", false), 1); /* the newest alone is kept */
        assert_true(node_told(r, 0).open && !node_told(r, 0).faulty);
        assert_int_equal(complaints[0], 1);
    }
    kube_world.turns_away = NULL;
    took_minutes(next_try(r, uid), 20);
    kube_rig_passes(r, 10000);
    kube_world.turns_away = "UnexpectedAdmissionError";
    assert_int_equal(complaints[0], 1);
    took_minutes(next_try(r, uid), 20); /* it has passed, and is due with its period */
    took_minutes(next_try(r, uid), 5);
    assert_int_equal(complaints[0], 2);
    took_minutes(next_try(r, uid), 10);
    /* Whoever leads next reads the pause that is due from the Job, too. */
    connector_rig_end(r);
    connector_rig_begin(r);
    took_minutes(next_try(r, uid), 20);
    assert_int_equal(complaints[0], 3); /* each that leads tells it once */
}

/* Others delete its pods again and again: so are these pauses. */
static void what_is_taken_away_again_is_tried_later(void **state)
{
    static const unsigned minutes[] = {5, 10, 20};
    struct connector_rig *r = *state;
    char uid[64] = "";

    says(r, SAYS(DIAGNOSTICS("stays", ",\"atOnce\":3")));
    (void)next_try(r, uid);
    for (size_t i = 0; i < sizeof minutes / sizeof *minutes; i++) {
        struct kube_object *pod = NULL;
        assert_true(connector_until(r, one_goes, (void *)(uintptr_t) "n0", 60000));
        list_for_each (it, &kube_world.objects) {
            struct kube_object *o = container_of(it, struct kube_object, link);
            if (!strcmp(o->kind, "pods") && is_check(o) &&
                !strcmp(kube_text(o->doc, "spec.nodeName"), "n0"))
                pod = o;
        }
        assert_non_null(pod);
        kube_world_delete(pod, -1);
        took_minutes(next_try(r, uid), minutes[i]);
        assert_int_equal(complaints[0], 1);
    }
}

/* Requests are lost, doubled and late; still none is there twice, nor is one left. */
static void none_is_left_by_a_bad_line(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct connector_rig *r = kube_rig_begin(seed, true);
        says(r, SAYS(DIAGNOSTICS("ends", "")));
        assert_true(connector_until(r, until_over, NULL, 1800000));
        connector_rig_end(r);
        connector_rig_begin(r);
        kube_rig_passes(r, 30000);
        assert_int_equal(checks("jobs", NULL, false), 3);
        says(r, SAYS(""));
        assert_true(connector_until(r, none_is, NULL, 600000));
        kube_world.chaos = (struct kube_chaos){.lost = 0};
        kube_rig_passes(r, 60000);
        assert_int_equal(checks("jobs", NULL, false), 0);
        assert_int_equal(checks("pods", NULL, false), 0);
        kube_rig_end();
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, kube_rig_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {T(the_job_is_the_sites_on_all_gpus_of_one_node),
                                       T(a_node_that_fails_is_kept_off_until_it_passes),
                                       T(an_order_goes_first),
                                       T(what_others_do_is_no_verdict),
                                       T(what_never_began_is_tried_again_soon),
                                       T(what_is_taken_away_again_is_tried_later),
                                       cmocka_unit_test(none_is_left_by_a_bad_line)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
