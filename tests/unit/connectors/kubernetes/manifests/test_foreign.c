/* Jobs of others as runs, over a cluster in memory (tests/support/kube): where runners call home
 * nobody waits for theirs; a gang of them. */
#include "connectors/kubernetes/client/client.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <stdio.h>
#include <string.h>

static int begin(void **state)
{
    int rc = kube_rig_setup(state);

    kube_rig.manifest = CARRIES_JOB;
    return rc;
}

/* Its Target says that runners call home, and those of its other runs do. */
static void runners_are_expected(struct connector_rig *r)
{
    struct object *o = NULL;
    struct err e;
    cJSON *j, *connection;

    assert_int_equal(object_to_json(kube_rig.target, &j, &e), 0);
    connection =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(j, "spec"), "connection");
    cJSON_AddTrueToObject(connection, "runners");
    if (object_from_json(kind_by_id(KIND_TARGET), j, 0, &o, &e))
        fail_msg("%s: %s", e.field, e.text);
    cJSON_Delete(j);
    (void)object_unref(kube_rig.target);
    kube_rig.target = o;
    r->target = o;
    r->ops->update(r->connector, o);
}

static void nobody_waits_for_its_runners(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    runners_are_expected(r);
    assert_int_equal(contract_submit(r, &k, PROGRAM_STAYS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_RUNNING);
    assert_int_equal(r->starts(r, &k), 1);
    assert_int_equal(contract_stop(r, &k, &a), OUT_DONE);
    assert_int_equal(a.seen.state, RUN_ENDED);
}

static void a_gang_of_them_begins_whole(void **state)
{
    struct connector_rig *r = *state;
    struct run_key k = contract_fresh_key(r);
    struct asked a;

    kube_rig.ranks = 3;
    assert_int_equal(contract_submit(r, &k, PROGRAM_ENDS, &a), OUT_DONE);
    (void)contract_await_run(r, &k, RUN_ENDED);
    for (int64_t i = 0; i < 3; i++)
        assert_true(*kube_text(kube_world_pod(&k, i)->doc, "spec.nodeName"));
    assert_int_equal(contract_find(r, &k, CALL_MS, &a), OUT_DONE);
    assert_int_equal(a.seen.exit_code, PROGRAM_ENDS_EXIT);
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, kube_rig_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {T(nobody_waits_for_its_runners),
                                       T(a_gang_of_them_begins_whole)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
