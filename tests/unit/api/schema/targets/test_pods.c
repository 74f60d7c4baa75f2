/* What a Target of type kubernetes may say of its pods: what cannot be acted upon is refused with
 * its field, and what is there already stays. */
#include "api/schema/schema.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

/* A Target of type kubernetes with that in connection, and in kubernetes. */
#define POD_OF(connection, kubernetes)                                                             \
    "{type: kubernetes, tier: hub, connection: {" connection "}, kubernetes: {" kubernetes "}}"
#define POD_SECRET "credentialsFrom: {secret: a}"
#define POD_RUNNER "runner: {image: hanse-run}"
#define POD(kubernetes) POD_OF(POD_SECRET, POD_RUNNER ", " kubernetes)
#define NAME_64 "q234567890123456789012345678901234567890123456789012345678901234"
#define PEM                                                                                        \
    "\"-----BEGIN CERTIFICATE-----\\nMIIBszCCAVmgAwIBAgIUQmFkQmFkQmFkQmFkQmFkQmFkQmFk\\n"          \
    "FkQmFkQmFkQmFkQmFkQmE=\\n-----END CERTIFICATE-----\\n\""

static const struct {
    const char *field, *spec;
} refused[] = {
    {"spec.connection", "{type: kubernetes, tier: hub, kubernetes: {" POD_RUNNER "}}"},
    {"spec.connection",
     POD_OF(POD_SECRET ", server: 'http://kube.example:6443'", POD_RUNNER)},
    {"spec.connection.user", POD_OF(POD_SECRET ", user: me", POD_RUNNER)},
    {"spec.connection.user", POD_OF(POD_SECRET ", region: eu", POD_RUNNER)},
    {"spec.connection.namespace", POD_OF(POD_SECRET ", namespace: gpu/pods", POD_RUNNER)},
    {"spec.connection.namespace", POD_OF(POD_SECRET ", namespace: 'a?b'", POD_RUNNER)},
    {"spec.connection.namespace", POD_OF(POD_SECRET ", namespace: ..", POD_RUNNER)},
    {"spec.connection.namespace", POD_OF(POD_SECRET ", namespace: a.b", POD_RUNNER)},
    {"spec.connection.namespace", POD_OF(POD_SECRET ", namespace: Gpu", POD_RUNNER)},
    {"spec.connection.caBundle", POD_OF(POD_SECRET ", caBundle: garbage", POD_RUNNER)},
    {"spec.kubernetes.runner",
     "{type: kubernetes, tier: hub, connection: {" POD_SECRET "}}"},
    {"spec.kubernetes.runner",
     POD_OF(POD_SECRET, "runner: {image: hanse-run, hostPath: /opt/hanse}")},
    {"spec.kubernetes.runner", POD_OF(POD_SECRET, "runner: {hostPath: opt/hanse}")},
    {"spec.kubernetes.runner", POD_OF(POD_SECRET, "runner: {hostPath: /opt/../etc}")},
    {"spec.kubernetes.volumes",
     POD("volumes: [{path: /ckpt, hostPath: /srv/ckpt, claim: ckpt}]")},
    {"spec.kubernetes.volumes", POD("volumes: [{path: ckpt, hostPath: /srv/ckpt}]")},
    {"spec.kubernetes.volumes", POD("volumes: [{path: /a/, hostPath: /srv/ckpt}]")},
    {"spec.kubernetes.volumes", POD("volumes: [{path: /a, hostPath: /srv//ckpt}]")},
    {"spec.kubernetes.volumes", POD("volumes: [{path: /a/./b, claim: ckpt}]")},
    {"spec.kubernetes.volumes", POD("volumes: [{path: /proc/ckpt, claim: ckpt}]")},
    {"spec.kubernetes.volumes", POD("volumes: [{path: /dev, claim: ckpt}]")},
    {"spec.kubernetes.volumes", POD("volumes: [{path: /.hanse/tmp, claim: ckpt}]")},
    {"spec.kubernetes.volumes", POD("volumes: [{path: /a, claim: Not_A_Name}]")},
    {"spec.kubernetes.podSecurity",
     POD("podSecurity: restricted, volumes: [{path: /a, hostPath: /srv/a}]")},
    {"spec.kubernetes.podSecurity",
     POD_OF(POD_SECRET, "podSecurity: baseline, runner: {hostPath: /opt/hanse}")},
    {"spec.kubernetes.podLabels", POD("podLabels: {queue.hanse.dev/key: a}")},
    {"spec.kubernetes.podLabels", POD("podLabels: {'a b': c}")},
    {"spec.kubernetes.podLabels", POD("podLabels: {team: 'a b'}")},
    {"spec.kubernetes.nodeLabels", POD("nodeLabels: {'a b': c}")},
    {"spec.kubernetes.nodeLabels", POD("nodeLabels: {kubernetes.io/arch: 'a,b'}")},
    {"spec.kubernetes.tolerations", POD("tolerations: [gpu]")},
    {"spec.kubernetes.tolerations", POD("tolerations: [{key: gpu, operator: In}]")},
    {"spec.kubernetes.tolerations", POD("tolerations: [{operator: Equal}]")},
    {"spec.kubernetes.tolerations", POD("tolerations: [{key: a, effect: Never}]")},
    {"spec.kubernetes.tolerations", POD("tolerations: [{key: a, values: [b]}]")},
    {"spec.kubernetes.tolerations",
     POD("tolerations: [{key: a, operator: Exists, value: b}]")},
    {"spec.kubernetes.tolerations",
     POD("tolerations: [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 5}]")},
    {"spec.kubernetes.namespaces", POD("namespaces: [{namespace: a, as: a, managed: true}]")},
    {"spec.kubernetes.namespaces",
     POD("namespaces: [{namespace: a, as: x, network: isolated}, {namespace: b, as: x}]")},
    {"spec.kubernetes.diagnostics", POD("diagnostics: {image: dcgm, every: 1h, timeout: 10m}")},
    {"spec.kubernetes.diagnostics",
     POD("diagnostics: {image: dcgm, every: 1h, timeout: 10m, namespace: a/b}")},
    {"spec.kubernetes", POD("namespaces: [{namespace: vision, as: a.b}]")},
    {"spec.kubernetes", POD("priorityClasses: [{priorityClassName: p, as: 'a b'}]")},
    {"spec.kubernetes", POD("serviceAccountName: A")},
    {"spec.kubernetes", POD("queue: a_b")},
    {"spec.kubernetes", POD("queue: " NAME_64)},
    {"spec.kubernetes", POD("schedulerName: '-a'")},
    {"spec.stores",
     "{type: kubernetes, tier: hub, connection: {" POD_SECRET "}, stores: [/ckpt2, s3://b], "
     "kubernetes: {" POD_RUNNER ", volumes: [{path: /ckpt, claim: c}]}}"},
};
static const struct {
    const char *spec;
} taken[] = {
    {POD_OF(POD_SECRET, POD_RUNNER)},
    {POD_OF(POD_SECRET ", namespace: gpu",
            POD_RUNNER ", diagnostics: {image: dcgm, every: 1h, timeout: 1h}")},
    {POD("diagnostics: {image: dcgm, command: [dcgmi, diag, -r, '3'], every: 30d, timeout: 1h, "
         "atOnce: 256, namespace: gpus}")},
    {POD_OF(POD_SECRET ", namespace: gpu, server: 'https://10.0.0.1:6443', caBundle: " PEM,
                      "runner: {hostPath: /opt/hanse-run.d}")},
    {"{type: kubernetes, tier: hub, connection: {" POD_SECRET "}, stores: [/ckpt/a, s3://b, c], "
     "kubernetes: {" POD_RUNNER ", context: anna@fra, image: 'localhost/box:1', volumes: [{path: "
     "/ckpt, hostPath: /srv/ckpt}, {path: /data.v1, claim: data}], serviceAccountName: runs, "
     "imagePullSecrets: [reg], namespaces: [{namespace: vision, as: vision-gpu, managed: true, "
     "network: isolated}], "
     "priorityClasses: [{priorityClassName: batch, as: low}], queue: gpus, "
     "podSecurity: privileged, runAsUser: 1000, runAsGroup: 1, fsGroup: 2147483647, "
     "schedulerName: volcano, podLabels: {team: vision, example.com/a: ''}, tolerations: "
     "[{key: nvidia.com/gpu, operator: Exists}, {operator: Exists, effect: NoExecute, "
     "tolerationSeconds: 5}, {key: pool, value: gpu, effect: NoSchedule}]}}"},
};

static struct object *target_of(const char *spec)
{
    char text[2048];
    struct yaml_doc *docs;
    size_t n;
    struct object *o = NULL;
    struct err e = {0};

    (void)snprintf(text, sizeof text,
                   "apiVersion: hanse.dev/v1alpha1\nkind: Target\nmetadata: {name: a}\nspec: %s\n",
                   spec);
    assert_int_equal(yaml_parse_all(text, strlen(text), "t", &docs, &n, &e), 0);
    if (object_from_json(kind_by_id(KIND_TARGET), docs[0].json, DECODE_USER, &o, &e) < 0 ||
        object_validate(o, &e) < 0)
        fail_msg("%s: %s", spec, e.text);
    yaml_docs_free(docs, n);
    return o;
}

static void test_what_no_pod_could_be_made_by_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct object *o = target_of(refused[i].spec);
        struct err e = {0};

        if (object_admit(NULL, o, &e) != E_INVALID || strcmp(e.field, refused[i].field) != 0)
            fail_msg("%s: \"%s\" %s", refused[i].spec, e.field, e.text);
        assert_int_equal(object_admit(o, o, &e), 0); /* it was there before */
        (void)object_unref(o);
    }
}

static void test_the_rest_is_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        struct object *o = target_of(taken[i].spec);
        struct err e = {0};

        if (object_admit(NULL, o, &e) < 0)
            fail_msg("%s: %s %s", taken[i].spec, e.field, e.text);
        (void)object_unref(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_no_pod_could_be_made_by_is_refused),
        cmocka_unit_test(test_the_rest_is_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
