/* Inventory of a Kubernetes cluster: nodes as struct node, by their labels, allocatable and
 * conditions, less what pods of others hold. Compact records are kept of nodes and of others' pods;
 * documents are not. */
#ifndef HANSE_CONNECTORS_KUBERNETES_NODES_H
#define HANSE_CONNECTORS_KUBERNETES_NODES_H

#include "connectors/kubernetes/client/client.h"
#include "connectors/kubernetes/dcgm/dcgm.h"

/* A time that a node tells is a notice from so long ahead of it on: until then the node takes
 * work. */
#define KUBE_NOTICE_AHEAD_MS 3600000

/* ---- keeping them (inventory.c) ---- */
struct kube_check_told {
    bool going;       /* its GPUs are being diagnosed: nothing is given there meanwhile */
    char failed[256]; /* why work is kept off it; "": it is not */
};
struct kube_nodes_events {
    void (*nodes)(void *arg, const struct inventory_page *p);
    void (*notices)(void *arg, const struct notice *v, size_t n);
    /* What diagnostics say of the node of that name on the cluster. Optional (NULL). */
    void (*checked)(void *arg, const char *node, struct kube_check_told *ret);
    /* UTC ms by the clock that the times in its objects are of; NULL: this machine's. */
    int64_t (*wall_ms)(void *arg);
    /* Whosever pod it is. Optional (NULL). */
    void (*used)(void *arg, const struct kube_pod_use *u);
};
struct kube_nodes;
struct kube_nodes *kube_nodes_create(struct loop *l, const char *target,
                                     const struct kube_nodes_events *ev, void *arg);
struct kube_nodes *kube_nodes_destroy(struct kube_nodes *n); /* accepts NULL; returns NULL */
/* Takes spec.kubernetes.tolerations and nodeLabels. true: they are others than before, so that all
 * nodes must be read anew (kube_watch_relist of the nodes). */
bool kube_nodes_update(struct kube_nodes *n, const struct target_spec *spec);
void kube_nodes_begins(struct kube_nodes *n); /* a listing of nodes */
void kube_nodes_node(struct kube_nodes *n, enum kube_change change, const cJSON *node);
void kube_nodes_listed(struct kube_nodes *n);
/* Pods that are not of Hanse's runs, also unbound ones, which hold nothing; one that is of a run
 * (now) is KUBE_GONE. */
void kube_nodes_pods_begin(struct kube_nodes *n);
void kube_nodes_pod(struct kube_nodes *n, enum kube_change change, const cJSON *pod);
void kube_nodes_pods_listed(struct kube_nodes *n);
/* Tells a listing once nodes and pods are both whole, in the loop's next turns if they are; deltas
 * follow, gathered for half a second. */
void kube_nodes_ask(struct kube_nodes *n);
/* The session is over: nothing is told until both were listed anew, and asked for. */
void kube_nodes_lost(struct kube_nodes *n);
/* The extended resource that a pod asks for to get devices of the row of that node ("TARGET.NODE")
 * which has this MIG profile ("": none) and shares (0: whole ones): "nvidia.com/gpu",
 * "nvidia.com/mig-1g.10gb", "amd.com/gpu", … NULL: it has no such row. Borrowed until nodes
 * change. */
const char *kube_nodes_resource(const struct kube_nodes *n, const char *node, const char *mig,
                                int64_t shares);
/* What a pod of others holds, and of which node: fills in node, cpu_milli, memory_bytes and
 * devices, in the arena. One that is on no node, or has ended, holds nothing. */
void kube_nodes_holds(const struct kube_nodes *n, const cJSON *pod, struct arena *a,
                      struct foreign_item *ret);
/* What checked() says of that node is another than it was. */
void kube_nodes_checked(struct kube_nodes *n, const char *node);
/* Names the target's nodes, as the cluster calls them. */
void kube_nodes_each(struct kube_nodes *n, void (*each)(void *arg, const char *node), void *arg);
struct kube_nodes_devices { /* all that a node gives away of one extended resource */
    const char *resource;   /* borrowed until nodes change */
    int64_t count;
};
#define KUBE_NODES_DEVICES_MAX 32
/* All devices of a node that is ready, takes pods, and of which pods of others hold none; returns
 * how many kinds, 0: there are none, or it is not so. */
size_t kube_nodes_idle(const struct kube_nodes *n, const char *node,
                       struct kube_nodes_devices ret[KUBE_NODES_DEVICES_MAX]);
struct kube_nodes_figures {
    size_t nodes, pods; /* that are kept */
    size_t bytes;       /* of their records and of the tables by which they are found */
};
void kube_nodes_figures(const struct kube_nodes *n, struct kube_nodes_figures *ret);

/* ---- DCGM ---- */
/* Exporters are asked through the API server (GET pods/proxy), one at a time, each once in a minute
 * at most, while there is a client: NULL takes it away, which must be done before it is destroyed.
 * Who has no right to that is not told of faults by DCGM. Nobody knows which device a pod will get:
 * where the device plugin gives fewer away than are healthy by DCGM that is enough, and otherwise
 * the node is NotReady, by dcgmXid (exporters.c). */
void kube_nodes_client(struct kube_nodes *n, struct kube_client *c);

#endif
