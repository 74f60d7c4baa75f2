/* The documents that every cluster begins with. They are ordinary objects: who may, can change
 * them. */
#include "api/server/server_internal.h"

#define RBAC "apiVersion: rbac.authorization.k8s.io/v1\n"
#define HANSE "apiVersion: hanse.dev/v1alpha1\n"
#define READ "verbs: [get, list, watch]"
#define WRITE "verbs: [get, list, watch, create, update, patch, delete, deletecollection]"

static const char documents[] =
    "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\nstatus: {phase: Active}\n---\n"
    "apiVersion: v1\nkind: Namespace\nmetadata: {name: hanse-system}\nstatus: {phase: "
    "Active}\n---\n" HANSE "kind: PriorityClass\nmetadata: {name: production}\n"
    "spec: {value: 1000000, neverVictim: true, description: is never preempted}\n---\n" HANSE
    "kind: PriorityClass\nmetadata: {name: training}\n"
    "spec: {value: 10000, globalDefault: true, description: for workloads that name "
    "none}\n---\n" HANSE "kind: PriorityClass\nmetadata: {name: development}\nspec: {value: 1000, "
    "description: interactive work}\n---\n" HANSE
    "kind: PriorityClass\nmetadata: {name: batch}\nspec: {value: 100, description: fills what is "
    "left}\n---\n" RBAC "kind: ClusterRole\nmetadata: {name: cluster-admin}\n"
    "rules:\n"
    "- {apiGroups: ['*'], resources: ['*'], verbs: ['*']}\n"
    "- {nonResourceURLs: ['*'], verbs: ['*']}\n---\n"
    /* everything but the cluster itself (members, tokens of others, status by hand) */
    RBAC "kind: ClusterRole\nmetadata: {name: admin}\n"
    "rules:\n"
    "- {apiGroups: [hanse.dev], resources: [targets, gpuclasses, pricesheets, queues, budgets, "
    "priorityclasses, "
    "placementpolicies, compliancepolicies, gitsources, workloads, datasets, migrations, "
    "reservations], " WRITE "}\n"
    "- {apiGroups: [hanse.dev], resources: [nodes, checkpoints, decisions, targets/status, "
    "queues/status, budgets/status, "
    "gitsources/status, workloads/status, migrations/status, reservations/status, "
    "workloads/log], " READ "}\n"
    "- {apiGroups: [hanse.dev], resources: [workloads/exec, workloads/portforward], "
    "verbs: [create]}\n"
    "- {apiGroups: [hanse.dev], resources: [operations], verbs: [get]}\n"
    "- {apiGroups: [hanse.dev], resources: [operations], resourceNames: [plan, explain, "
    "workload.cancel, workload.fence, adopt.shadow], "
    "verbs: [create]}\n"
    "- {apiGroups: [''], resources: [namespaces, secrets, events, serviceaccounts], " WRITE "}\n"
    "- {apiGroups: [''], resources: [namespaces/status], verbs: [get]}\n"
    /* as in Kubernetes: who is limited does not write his limits */
    "- {apiGroups: [''], resources: [resourcequotas, resourcequotas/status], " READ "}\n"
    "- {apiGroups: [''], resources: [serviceaccounts/token], verbs: [create]}\n"
    "- {apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings, clusterroles, "
    "clusterrolebindings], " WRITE "}\n"
    "- {apiGroups: [coordination.k8s.io], resources: [leases], " WRITE "}\n"
    "- {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}\n"
    "- {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}\n"
    "- {apiGroups: [hanse.dev], resources: [tokens, machines], verbs: [get, list, watch, delete, "
    "deletecollection]}\n"
    "- {nonResourceURLs: [/metrics], verbs: [get]}\n---\n" RBAC
    "kind: ClusterRole\nmetadata: {name: edit}\n"
    "rules:\n"
    "- {apiGroups: [hanse.dev], resources: [workloads, datasets, migrations, reservations], " WRITE
    "}\n"
    "- {apiGroups: [hanse.dev], resources: [checkpoints, decisions, workloads/status, "
    "migrations/status, "
    "reservations/status, workloads/log], " READ "}\n"
    "- {apiGroups: [hanse.dev], resources: [workloads/exec, workloads/portforward], "
    "verbs: [create]}\n"
    "- {apiGroups: [hanse.dev], resources: [operations], resourceNames: [cost, history, pods], "
    "verbs: [get]}\n"
    "- {apiGroups: [''], resources: [secrets, events, serviceaccounts], " WRITE "}\n"
    "- {apiGroups: [''], resources: [namespaces, namespaces/status], verbs: [get]}\n"
    "- {apiGroups: [''], resources: [resourcequotas, resourcequotas/status], " READ "}\n"
    "- {apiGroups: [''], resources: [serviceaccounts/token], verbs: [create]}\n"
    "- {apiGroups: [coordination.k8s.io], resources: [leases], " WRITE "}\n---\n"
    /* reads all but secrets and rights */
    RBAC "kind: ClusterRole\nmetadata: {name: view}\n"
    "rules:\n"
    "- {apiGroups: [hanse.dev], resources: ['*'], " READ "}\n"
    "- {apiGroups: [''], resources: [namespaces, namespaces/status, events, serviceaccounts, "
    "resourcequotas, resourcequotas/status], " READ "}\n"
    "- {apiGroups: [coordination.k8s.io], resources: [leases], " READ "}\n---\n" RBAC
    "kind: ClusterRoleBinding\nmetadata: {name: cluster-admin}\n"
    "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n"
    "subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:masters'}]\n";

void api_bootstrap_objects(void (*each)(struct object *o, void *arg), void *arg)
{
    struct yaml_doc *docs;
    struct err e = {0};
    size_t n;

    INV(!yaml_parse_all(documents, sizeof documents - 1, "bootstrap", &docs, &n, &e));
    for (size_t i = 0; i < n; i++) {
        const cJSON *kind = cJSON_GetObjectItemCaseSensitive(docs[i].json, "kind");
        struct object *o = NULL;
        INV(!object_from_json(kind_by_name(kind->valuestring), docs[i].json,
                              DECODE_USER | DECODE_STATUS, &o, &e));
        each(o, arg);
        (void)object_unref(o);
    }
    yaml_docs_free(docs, n);
}
