/* What is kept of nodes and of others' pods: compact records, found by name and by uid. Nothing
 * here tells anybody anything (inventory.c). */
#ifndef HANSE_CONNECTORS_KUBERNETES_NODES_RECORDS_H
#define HANSE_CONNECTORS_KUBERNETES_NODES_RECORDS_H

#include "api/base/list.h"
#include "connectors/kubernetes/nodes/nodes_internal.h"

/* Records, also of nodes that only pods name. */
#define KUBE_NODES_MAX ((size_t)2 * LIMIT_TARGET_NODES)
#define KUBE_PODS_MAX 200000
#define KUBE_RESOURCES_MAX 256  /* names of devices, over all nodes and pods */
#define KUBE_PODS_RESOURCES 192 /* of these, which pods alone may take: nodes have room then */

struct kube_entry { /* the first member of what is in a table */
    struct kube_entry *next;
    uint64_t hash;
};
struct kube_table {
    struct kube_entry **v;
    size_t cap, n;
};
struct kube_held {
    uint16_t resource;
    int64_t count;
};
struct kube_exporter { /* of DCGM, on one node */
    struct list link;
    struct kube_rec *node;
    uint64_t hash, more;    /* of its pod */
    uint64_t again_ms;      /* loop_now_ms: it is not asked before; 0: it never was */
    unsigned failures;      /* in a row */
    unsigned sick;          /* as kube_dcgm has them */
    char *reason, *message; /* or NULL */
    char path[];
};
struct kube_rec { /* a node */
    struct kube_entry entry;
    struct list link;   /* inventory.c: it waits to be told */
    uint32_t listing;   /* that named it last */
    uint32_t pods;      /* that stand on it */
    uint32_t uncounted; /* listing of pods in which one of its had no room last; 0: none */
    uint32_t partial;   /* of its pods: not all of their devices are counted */
    uint32_t n_bytes;   /* 0: it was never read */
    uint16_t n_held, n_rows;
    bool known;              /* the cluster has it; otherwise only pods name it */
    bool told;               /* the hub has heard of it, in this listing or ever */
    bool goes;               /* it will go away, as `going` says since going_ms */
    uint64_t told_hash;      /* of what it heard; 0: in this listing nothing yet */
    int64_t cpu, memory_kib; /* that its pods hold */
    unsigned char *bytes;    /* as schema_node has it, without what others hold */
    struct kube_held *held;
    uint16_t *rows;                 /* the resource of each of its counted rows */
    char *why;                      /* it cannot be read; NULL: it can */
    struct kube_exporter *exporter; /* or NULL */
    struct kube_goes going;
    uint64_t going_ms; /* loop_now_ms */
    char name[];       /* on the cluster */
};
struct kube_pod {
    struct kube_entry entry;
    uint64_t more; /* of its hash */
    struct kube_rec *node;
    uint32_t listing;
    uint16_t n_held;
    bool partial; /* it holds devices of which there was no room */
    int64_t cpu, memory_kib;
    struct kube_held held[];
};
struct kube_records {
    struct kube_table nodes, pods;
    char *resources[KUBE_RESOURCES_MAX]; /* NULL: that number is free */
    bool full, freed;                    /* a name had no room; and pods went that held some */
    struct list exporters;               /* who was asked longest ago is first */
    bool unasked;                        /* a new one is among them */
    uint32_t node_listing, pod_listing;  /* numbers of the newest */
    void (*changed)(void *arg, struct kube_rec *r); /* what pods hold of it is another */
    void *arg;
};

void kube_records_init(struct kube_records *t, void (*changed)(void *arg, struct kube_rec *r),
                       void *arg);
void kube_records_fini(struct kube_records *t);
size_t kube_records_bytes(const struct kube_records *t);
struct kube_rec *kube_rec_find(const struct kube_records *t, const char *name);
/* Finds or makes it; NULL: there is no room. */
struct kube_rec *kube_rec_get(struct kube_records *t, const char *name);
void kube_rec_each(struct kube_records *t, void (*each)(void *arg, struct kube_rec *r), void *arg);
/* The cluster has it no more: what was read of it goes, and the record where no pod needs it. It is
 * in no list. */
void kube_rec_forget(struct kube_records *t, struct kube_rec *r);
/* Its number, below `most` where it is a new one; below 0: no room. */
int kube_resource_id(struct kube_records *t, const char *resource, unsigned most);
void kube_records_pod(struct kube_records *t, enum kube_change change, const cJSON *pod);
/* What its exporter has told: whoever waits for news of the node hears of it. */
void kube_exporter_told(struct kube_records *t, struct kube_exporter *e, const struct kube_dcgm *d);
/* Pods that the newest listing did not name are gone, and so are names of devices that nobody has
 * and nobody holds. */
void kube_records_pods_listed(struct kube_records *t);

/* ---- told.c ---- */
/* A node that can be read, as it is told; false: it is as it was told last. */
bool kube_rec_tell(struct kube_rec *r, const struct kube_check_told *check, struct arena *a,
                   struct node *ret);
/* A node that was read, as it was, in the arena; NULL: there is none of that name. */
const struct kube_rec *kube_rec_read(const struct kube_records *t, const char *name,
                                     struct arena *a, const struct node **ret);
/* As kube_nodes_holds has it. */
void kube_rec_holds(const struct kube_records *t, const char *target, const cJSON *pod,
                    struct arena *a, struct foreign_item *ret);
/* As kube_nodes_idle has it, but for the names. */
size_t kube_rec_idle(const struct kube_records *t, const struct kube_rec *r,
                     struct kube_nodes_devices ret[KUBE_NODES_DEVICES_MAX]);

/* ---- exporters.c ---- */
struct kube_asker;
struct kube_asker *kube_asker_create(struct loop *l, struct kube_records *t,
                                     void (*used)(void *arg, const struct kube_pod_use *u),
                                     void *arg);
struct kube_asker *kube_asker_destroy(struct kube_asker *a); /* accepts NULL; returns NULL */
void kube_asker_client(struct kube_asker *a, struct kube_client *c);
void kube_asker_look(struct kube_asker *a); /* there may be an exporter that was never asked */

#endif
