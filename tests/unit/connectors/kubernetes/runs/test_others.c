/* Whose a pod is: a run's by its mark, and otherwise another's, over a cluster in memory. */
#include "connectors/kubernetes/runs/runs.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <stdio.h>
#include <string.h>

/* GPUs that others hold of a node, as the leader was told last; it asks first. */
static int64_t of_others(struct connector_rig *r, const char *node)
{
    AUTO_ARENA a = arena_create(0);
    int64_t n = 0;
    struct asked asked;

    contract_ask_begin(r, &asked, CALL_MS);
    r->ops->inventory(r->connector, &asked.call);
    assert_int_equal(contract_ask_end(r, &asked), OUT_DONE);
    kube_rig_passes(r, 2000);
    list_for_each (it, &r->nodes.told) {
        const struct node_told *d = container_of(it, struct node_told, link);
        const struct node *v;
        void *body;
        if (strcmp(d->name, node) != 0)
            continue;
        assert_int_equal(tlv_decode(&schema_node, slice_make(d->bytes, d->n), a, &body, NULL), 0);
        v = body;
        for (uint32_t i = 0; v->status->others && i < v->status->others->n_classes; i++)
            n += v->status->others->classes[i].count;
    }
    return n;
}

static void mark_set(struct kube_object *pod, const char *mark)
{
    cJSON *list = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(pod->doc, "metadata"), "annotations");

    cJSON_DeleteItemFromObjectCaseSensitive(list, KUBE_MARK_ANNOTATION);
    if (mark)
        cJSON_AddStringToObject(list, KUBE_MARK_ANNOTATION, mark);
    kube_world_changed(pod);
}

/* By its mark a pod is of a run, or else it is another's: never neither, also in mid-life. */
static void a_pod_without_its_mark_is_anothers(void **state)
{
    static const char label[] =
        "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"x\",\"namespace\":\"work\",\"labels\":{"
        "\"hanse.dev/key\":\"a.1.1\"},\"ownerReferences\":[{\"uid\":\"%s\"}]},\"spec\":{"
        "\"nodeName\":\"n2\",\"containers\":[{\"name\":\"c\",\"resources\":{\"requests\":{"
        "\"nvidia.com/gpu\":\"3\"}}}]},\"status\":{\"phase\":\"Running\"}}";
    char text[600];
    struct connector_rig *r = *state;
    struct asked a;
    struct run_key k = contract_running(r, &a);
    struct kube_object *pod = kube_world_pod(&k, 0);
    char *mark = mem_strdup(kube_annotation(pod->doc, KUBE_MARK_ANNOTATION));

    assert_int_equal(of_others(r, "kube.n1"), 0);
    mark_set(pod, NULL);
    (void)contract_await_run(r, &k, RUN_UNKNOWN);
    assert_int_equal(of_others(r, "kube.n1"), 1);
    mark_set(pod, mark);
    (void)contract_await_run(r, &k, RUN_RUNNING);
    assert_int_equal(of_others(r, "kube.n1"), 0);
    (void)snprintf(text, sizeof text, label,
                   kube_text(kube_world_find("nodes", "", "n2")->doc, "metadata.uid"));
    (void)kube_world_put("pods", cJSON_Parse(text)); /* a label is anybody's */
    assert_int_equal(of_others(r, "kube.n2"), 3);
    mark_set(pod, NULL);
    assert_int_equal(of_others(r, "kube.n1"), 1);
    kube_world_remove(pod);
    assert_int_equal(of_others(r, "kube.n1"), 0);
    mem_free(mark);
}

/* A Job that says no more that it is ours is left alone. Its pod, which says so, is told of, and
 * goes with the Secret once the log has its end. */
static void a_job_without_its_mark_is_left_alone(void **state)
{
    struct connector_rig *r = *state;

    for (unsigned later = 0; later < 2; later++) {
        struct asked a;
        struct run_key k = contract_fresh_key(r);
        assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
        (void)contract_await_run(r, &k, RUN_RUNNING);
        kube_rig.ran = k;
        struct kube_object *job = kube_world_job(&k);
        mark_set(job, NULL);
        if (later) { /* and another driver never saw it as ours */
            connector_rig_end(r);
            connector_rig_begin(r);
        }
        kube_rig_passes(r, 2000);
        contract_ask_begin(r, &a, CALL_MS);
        r->ops->stop(r->connector, &k, 1000, &a.call);
        (void)contract_ask_end(r, &a);
        kube_world_delete(kube_world_pod(&k, 0), 1);
        (void)contract_await_run(r, &k, RUN_ENDED);
        contract_ask_begin(r, &a, CALL_MS);
        r->ops->finalize(r->connector, &k, &a.call);
        assert_int_equal(contract_ask_end(r, &a), OUT_DONE);
        kube_rig_passes(r, 5000);
        assert_null(kube_world_pod(&k, 0));
        assert_int_equal(kube_world_count("secrets"), 0);
        assert_ptr_equal(kube_world_job(&k), job);
        assert_false(kube_deleting(job->doc));
        assert_int_equal(r->starts(r, &k), 1);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, kube_rig_setup, kube_rig_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {T(a_pod_without_its_mark_is_anothers),
                                       T(a_job_without_its_mark_is_left_alone)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
