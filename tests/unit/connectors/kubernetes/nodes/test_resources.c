/* Which resource a pod asks for to get devices of a row, and whose tolerations count. */
#include "connectors/kubernetes/nodes/nodes.h"
#include "tests/support/unit.h"
#include "tests/support/web/still_loop.h"

#include <stdio.h>

static struct {
    struct loop *loop;
    struct kube_nodes *n;
} W;

static void begin(void)
{
    static const struct kube_nodes_events none = {0}; /* nobody asks, so nothing is told */

    W.loop = still_loop_create(1);
    W.n = kube_nodes_create(W.loop, "k1", &none, NULL);
}

static void end(void)
{
    W.n = kube_nodes_destroy(W.n);
    W.loop = still_loop_destroy(W.loop);
}

static void is(const char *text)
{
    cJSON *o = cJSON_Parse(text);

    assert_non_null(o);
    kube_nodes_node(W.n, KUBE_IS, o);
    cJSON_Delete(o);
}

static void resources_by_row(void **state)
{
    (void)state;
    begin();
    is("{\"metadata\":{\"name\":\"n.1\",\"labels\":{\"nvidia.com/gpu.replicas\":\"4\"}},"
       "\"status\":{\"capacity\":{\"nvidia.com/gpu.shared\":\"8\",\"nvidia.com/mig-1g.10gb\":"
       "\"2\",\"amd.com/gpu\":\"1\"}}}");
    assert_string_equal(kube_nodes_resource(W.n, "k1.n.1", "", 4), "nvidia.com/gpu.shared");
    assert_string_equal(kube_nodes_resource(W.n, "k1.n.1", "1g.10gb", 0),
                        "nvidia.com/mig-1g.10gb");
    assert_string_equal(kube_nodes_resource(W.n, "k1.n.1", "", 0), "amd.com/gpu");
    assert_null(kube_nodes_resource(W.n, "k1.n.1", "2g.20gb", 0));
    assert_null(kube_nodes_resource(W.n, "k1.n.2", "", 0));
    assert_null(kube_nodes_resource(W.n, "n.1", "", 0));
    assert_null(kube_nodes_resource(W.n, "k2.n.1", "", 0));
    end();
}

static void tolerations_are_of_the_target(void **state)
{
    static const char text[] = "[{\"operator\":\"Exists\"}]";
    static const char same[] = "[ {\"operator\":\"Exists\"}]";
    struct target_kubernetes k = {.tolerations = slice_make(text, sizeof text - 1)};
    struct target_spec spec = {.kubernetes = NULL};

    (void)state;
    begin();
    assert_false(kube_nodes_update(W.n, &spec));
    spec.kubernetes = &k;
    assert_true(kube_nodes_update(W.n, &spec));
    k.tolerations = slice_make(same, sizeof same - 1);
    assert_false(kube_nodes_update(W.n, &spec));
    spec.kubernetes = NULL;
    assert_true(kube_nodes_update(W.n, &spec));
    end();
}

static void is_as(const char *arch)
{
    char text[256];

    (void)snprintf(text, sizeof text,
                   "{\"metadata\":{\"name\":\"n.1\",\"labels\":{\"kubernetes.io/arch\":\"%s\","
                   "\"pool\":\"\"}},\"status\":{\"capacity\":{\"amd.com/gpu\":\"1\"}}}",
                   arch);
    is(text);
}

static void only_nodes_with_its_labels(void **state)
{
    struct kv labels[] = {{"kubernetes.io/arch", "amd64"}, {"pool", ""}};
    struct target_kubernetes k = {.nodeLabels = labels, .n_nodeLabels = 2};
    const struct target_spec spec = {.kubernetes = &k};

    (void)state;
    begin();
    assert_true(kube_nodes_update(W.n, &spec));
    assert_false(kube_nodes_update(W.n, &spec));
    is_as("arm64");
    assert_null(kube_nodes_resource(W.n, "k1.n.1", "", 0));
    is_as("amd64");
    assert_non_null(kube_nodes_resource(W.n, "k1.n.1", "", 0));
    is_as("arm64"); /* it was another one's label that was changed */
    assert_null(kube_nodes_resource(W.n, "k1.n.1", "", 0));
    is("{\"metadata\":{\"name\":\"n.1\",\"labels\":[]},\"status\":{\"capacity\":{"
       "\"amd.com/gpu\":\"1\"}}}");
    assert_null(kube_nodes_resource(W.n, "k1.n.1", "", 0));
    k.n_nodeLabels = 1;
    assert_true(kube_nodes_update(W.n, &spec));
    k.n_nodeLabels = 0;
    assert_true(kube_nodes_update(W.n, &spec));
    is_as("arm64");
    assert_non_null(kube_nodes_resource(W.n, "k1.n.1", "", 0));
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(resources_by_row),
                                       cmocka_unit_test(tolerations_are_of_the_target),
                                       cmocka_unit_test(only_nodes_with_its_labels)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
