/* What a Target asks for of namespaces, over a cluster in memory: it is applied, put right, and
 * goes; nothing of others does. */
#include "connectors/kubernetes/spaces/spaces.h"
#include "tests/support/contract/connector_contract_internal.h"
#include "tests/support/kube/kube_rig.h"

#include <stdio.h>
#include <string.h>

#define ENFORCE "pod-security.kubernetes.io/enforce"
#define SAYS(rows)                                                                                 \
    "{\"apiVersion\":\"hanse.dev/v1alpha1\",\"kind\":\"Target\",\"metadata\":{\"name\":\"kube\"}," \
    "\"spec\":{\"type\":\"kubernetes\",\"tier\":\"hub\",\"connection\":{\"server\":"               \
    "\"https://kube.test:6443\",\"credentialsFrom\":{\"secret\":\"login\"}},\"kubernetes\":{"      \
    "\"runner\":{\"image\":\"runner\"},\"podSecurity\":\"restricted\",\"namespaces\":[" rows       \
    "]}}}"
#define ROW(more) "{\"namespace\":\"work\",\"as\":\"work\"" more "}"
#define BOTH ROW(",\"managed\":true,\"network\":\"isolated\"")

static void says(struct connector_rig *r, const char *text)
{
    cJSON *j = cJSON_Parse(text);
    struct object *o = NULL;
    struct err e;

    assert_non_null(j);
    if (object_from_json(kind_by_id(KIND_TARGET), j, 0, &o, &e))
        fail_msg("%s: %s", e.field, e.text);
    cJSON_Delete(j);
    if (r->connector)
        r->ops->update(r->connector, o);
    (void)object_unref(kube_rig.target);
    kube_rig.target = o;
    r->target = o;
}

static const char *label(const char *name)
{
    return kube_label(kube_world_find("namespaces", "", "work")->doc, name);
}

static void label_set(const char *name, const char *value)
{
    struct kube_object *o = kube_world_find("namespaces", "", "work");
    cJSON *meta = cJSON_GetObjectItem(o->doc, "metadata"),
          *all = cJSON_GetObjectItem(meta, "labels");

    all = all ? all : cJSON_AddObjectToObject(meta, "labels");
    cJSON_DeleteItemFromObject(all, name);
    if (value)
        cJSON_AddStringToObject(all, name, value);
    kube_world_changed(o);
}

static struct kube_object *policy(void)
{
    return kube_world_find("networkpolicies", "work", KUBE_SPACE_POLICY);
}

static bool is_whole(void *arg)
{
    (void)arg;
    return policy() && !strcmp(label(ENFORCE), "restricted") && *label(KUBE_SPACE_LABEL);
}

static bool is_bare(void *arg)
{
    (void)arg;
    return !policy() && !*label(ENFORCE) && !*label(KUBE_SPACE_LABEL);
}

static void what_is_asked_for_comes_and_goes(void **state)
{
    struct connector_rig *r = *state;

    label_set("team", "vision");
    says(r, SAYS(BOTH));
    assert_true(connector_until(r, is_whole, NULL, 60000));
    assert_string_equal(label(KUBE_SPACE_LABEL), "c1.kube");
    const cJSON *e =
        cJSON_GetArrayItem(kube_at(policy()->doc, "spec.podSelector.matchExpressions"), 0);
    assert_string_equal(kube_text(e, "key"), "hanse.dev/key"); /* pods of runs alone */
    says(r, SAYS(ROW(",\"managed\":true")));
    kube_rig_passes(r, 5000);
    assert_null(policy());
    assert_string_equal(label(ENFORCE), "restricted");
    says(r, SAYS(ROW(",\"network\":\"isolated\"")));
    kube_rig_passes(r, 5000);
    assert_non_null(policy());
    assert_string_equal(label(ENFORCE), "");
    /* What others take away comes again. */
    kube_world_remove(policy());
    kube_rig_passes(r, 700000);
    assert_non_null(policy());
    /* A driver that never saw it finds it by its label. */
    r->ops->destroy(r->connector);
    r->connector = NULL;
    says(r, SAYS(ROW("")));
    connector_rig_end(r);
    connector_rig_begin(r);
    assert_true(connector_until(r, is_bare, NULL, 60000));
    assert_string_equal(label("team"), "vision");
}

static void nothing_of_others_is_touched(void **state)
{
    static const char theirs[] =
        "{\"kind\":\"NetworkPolicy\",\"metadata\":{\"name\":\"hanse-isolated\",\"namespace\":"
        "\"work\"},\"spec\":{}}";
    struct connector_rig *r = *state;

    label_set(ENFORCE, "privileged");
    (void)kube_world_put("networkpolicies", cJSON_Parse(theirs));
    says(r, SAYS(ROW(",\"managed\":true")));
    kube_rig_passes(r, 60000);
    assert_string_equal(label(ENFORCE), "privileged");
    assert_non_null(policy());
    label_set(ENFORCE, NULL);
    kube_rig_passes(r, 60000);
    assert_string_equal(label(ENFORCE), "restricted");
    says(r, SAYS(BOTH)); /* of that name there is one, which is left as it is */
    kube_rig_passes(r, 60000);
    assert_null(kube_at(policy()->doc, "spec.podSelector"));
    says(r, SAYS(ROW("")));
    kube_rig_passes(r, 60000);
    assert_string_equal(label(ENFORCE), "");
    assert_non_null(policy());
}

/* What another hub keeps has its label, under the same field manager. */
static void a_namespace_of_another_hub_is_its(void **state)
{
    static const char his[] = "11111111-2222-4333-8444-555555555555.east";
    struct connector_rig *r = *state;

    label_set(KUBE_SPACE_LABEL, his);
    label_set(ENFORCE, "baseline");
    says(r, SAYS(BOTH));
    kube_rig_passes(r, 120000);
    assert_string_equal(label(KUBE_SPACE_LABEL), his);
    assert_string_equal(label(ENFORCE), "baseline");
    assert_null(policy());
    label_set(KUBE_SPACE_LABEL, NULL);
    label_set(ENFORCE, NULL);
    kube_rig_passes(r, 700000);
    assert_string_equal(label(ENFORCE), "restricted");
    assert_non_null(policy());
}

static void a_target_that_is_let_go_takes_it_along(void **state)
{
    struct connector_rig *r = *state;
    struct asked a;

    says(r, SAYS(BOTH));
    assert_true(connector_until(r, is_whole, NULL, 60000));
    enum outcome out = OUT_REJECTED;
    for (unsigned i = 0; i < 10 && out != OUT_DONE; i++) {
        contract_ask_begin(r, &a, CALL_MS);
        r->ops->leave(r->connector, &a.call);
        out = contract_ask_end(r, &a);
        assert_true(i || out == OUT_REJECTED);
        kube_rig_passes(r, 2000);
    }
    assert_int_equal(out, OUT_DONE);
    assert_true(is_bare(NULL));
}

static void a_bad_line_leaves_nothing_half(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct connector_rig *r = kube_rig_begin(seed, true);
        says(r, SAYS(BOTH));
        assert_true(connector_until(r, is_whole, NULL, 1800000));
        says(r, SAYS(ROW("")));
        assert_true(connector_until(r, is_bare, NULL, 1800000));
        kube_world.chaos = (struct kube_chaos){.lost = 0};
        kube_rig_passes(r, 60000); /* what was late comes now, and is taken away again */
        kube_rig_passes(r, 700000);
        assert_true(is_bare(NULL));
        kube_rig_end();
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, kube_rig_setup, kube_rig_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_is_asked_for_comes_and_goes), T(nothing_of_others_is_touched),
        T(a_namespace_of_another_hub_is_its), T(a_target_that_is_let_go_takes_it_along),
        cmocka_unit_test(a_bad_line_leaves_nothing_half)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
