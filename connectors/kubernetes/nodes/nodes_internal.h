/* What the parts of nodes/ know of each other. */
#ifndef HANSE_CONNECTORS_KUBERNETES_NODES_INTERNAL_H
#define HANSE_CONNECTORS_KUBERNETES_NODES_INTERNAL_H

#include "connectors/kubernetes/nodes/nodes.h"

#define KUBE_ROWS_MAX 32           /* counted rows of a node */
#define KUBE_DEVICES_MAX 8         /* kinds of devices that a pod asks for */
#define KUBE_RESOURCE_MAX 96       /* bytes of the name of an extended resource that is a GPU */
#define KUBE_CPU_MAX 1099511627776 /* as the schema has them of others */
#define KUBE_MEMORY_MAX 1125899906842624

/* ---- dialects.c: the table asked ---- */
/* The value of a label as the API server lets them be; "" where it is another text, or none. */
const char *kube_label_value(const cJSON *node, const char *label);
struct kube_device { /* what one of an extended resource is */
    const char *vendor;
    char mig[33]; /* by the resource's own name */
    bool shared;  /* likewise */
};
bool kube_device_of(const char *resource, struct kube_device *ret); /* false: no GPU */
/* The resource itself as a taint's key: clusters keep off its nodes whoever asks for none. */
bool kube_device_taint(const char *key);
void kube_topology_of(const cJSON *node, struct topology *ret); /* "" where nothing tells */
enum capacity kube_capacity_of(const cJSON *node);
const char *kube_fabric_of(const cJSON *node); /* or "" */
/* Fills class_, model, memory, mig and shares of the row of that resource; texts are in the
 * arena. */
int kube_device_row(const cJSON *node, const char *resource, const struct kube_device *d,
                    struct arena *a, struct counted_gpus *ret, struct err *err) MUST_CHECK;

/* ---- health.c ---- */
void kube_health_read(const cJSON *node, struct arena *a, struct node_status *ret);
bool kube_other_system(const cJSON *node); /* its label kubernetes.io/os says another than linux */
/* Cordoned, deleted, of another system, or a taint that is not tolerated, which *ret_taint then is
 * (or NULL). */
bool kube_unschedulable(const cJSON *node, const cJSON *tolerations, const cJSON **ret_taint);
struct kube_goes {
    enum notice_kind kind;
    int64_t at_ms;      /* UTC; 0: no time was told */
    uint64_t within_ms; /* of when this was seen first; 0: likewise */
};
bool kube_goes_read(const cJSON *node, struct kube_goes *ret); /* false: it stays */
/* As a notice, but for the node's name. now_ms is UTC, seen_ms how long ago it was seen first.
 * false: it is too early for one (KUBE_NOTICE_AHEAD_MS). */
bool kube_goes_notice(const struct kube_goes *g, int64_t now_ms, uint64_t seen_ms,
                      struct notice *ret);

/* ---- node.c ---- */
/* Reads a Node by the table of label dialects (dialects.def): name "TARGET.NODE", cpu and memory
 * that are allocatable, GPUs counted by class, MIG profile or share, topology, capacity type,
 * health and faults by its conditions and taints. It is unschedulable where it is cordoned, is
 * deleted, runs another system than Linux, or has a taint that none of the tolerations (a list as
 * in a pod's spec, or NULL) tolerates. resources: the
 * name of each row of ret->spec->counted, in the arena. E_INVALID: it cannot be read, why. */
int kube_node_rows(const cJSON *node, const char *target, const cJSON *tolerations, struct arena *a,
                   struct node *ret, const char *resources[KUBE_ROWS_MAX],
                   struct err *err) MUST_CHECK;
/* A quantity of `list` (allocatable, requests, …) in units of 1/scale: 0 where it is not there.
 * E_INVALID: it is no quantity, or is above max. */
int kube_quantity(const cJSON *list, const char *name, int64_t scale, int64_t max, int64_t *ret,
                  struct err *err) MUST_CHECK;

/* ---- pod.c ---- */
struct kube_asks { /* what a pod asks for, as the scheduler counts it */
    int64_t cpu_milli, memory_bytes;
    bool more; /* kinds of devices than are named here */
    unsigned n;
    struct kube_asked {
        char resource[KUBE_RESOURCE_MAX];
        int64_t count;
    } devices[KUBE_DEVICES_MAX];
};
/* false: it holds nothing: it is on no node, or has ended. A quantity that cannot be read counts as
 * more than any node has. */
bool kube_pod_asks(const cJSON *pod, struct kube_asks *ret);

#endif
