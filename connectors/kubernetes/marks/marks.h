/* Names and signed marks: which objects of a cluster are ours, and of which run. Labels and
 * annotations can be written by anybody who may write in a namespace: an object is ours when its
 * mark is signed by this cluster's keys for that very place. */
#ifndef HANSE_CONNECTORS_KUBERNETES_MARKS_MARKS_H
#define HANSE_CONNECTORS_KUBERNETES_MARKS_MARKS_H

#include "connectors/home/home.h"
#include "connectors/kubernetes/client/client.h"

#define KUBE_NAME_MAX 64
#define KUBE_MARK_MAX 768
#define KUBE_UID_MAX 40
#define KUBE_RUN_LABEL "hanse.dev/key"                /* UID.EPOCH.TRY, on Job, pods and Secret */
#define KUBE_MARK_ANNOTATION "hanse.dev/mark"         /* signed: whose it is */
#define KUBE_ADMITTED_ANNOTATION "hanse.dev/admitted" /* uids of the pods that may start, by rank */
#define KUBE_NODES_ANNOTATION "hanse.dev/nodes"       /* names of nodes by rank: "a*8 b*8" */
#define KUBE_END_ANNOTATION "hanse.dev/end"           /* the log has its end: that, as JSON */
#define KUBE_END_MARK_ANNOTATION "hanse.dev/end-mark" /* signed: whose end that is */
#define KUBE_CONTAINERS_ANNOTATION "hanse.dev/containers" /* of a manifest's pod: its programs */
/* Of the pods of an object of another kind (anchor.c): which ranks they may be ("BASE/COUNT"), the
 * uid of the Job that stands for it, which rank a pod was let in as, that others decide the end. */
#define KUBE_PART_ANNOTATION "hanse.dev/part"
#define KUBE_ANCHOR_ANNOTATION "hanse.dev/anchor"
#define KUBE_RANK_ANNOTATION "hanse.dev/rank"
#define KUBE_FOLLOWS_ANNOTATION "hanse.dev/follows"
#define KUBE_FINALIZER "hanse.dev/run"
#define KUBE_GATE "hanse.dev/run"

struct kube_mark { /* what is signed with each Job and its pods */
    struct run_key key;
    char cluster[CLUSTER_UID_MAX]; /* whose it is */
    char place[64];                /* namespace of the Job */
    char ns[64], name[256];        /* of its workload; "": a tombstone need not know them */
    int64_t ranks;                 /* 0: a tombstone */
    uint64_t state_rv;
};
bool kube_key_newer(const struct run_key *a, const struct run_key *b); /* of one uid */
int kube_run_name(const struct run_key *k, int64_t ranks, char ret[KUBE_NAME_MAX],
                  struct err *err) MUST_CHECK;
bool kube_run_named(const char *name, struct run_key *ret); /* the key whose Job is named so */
/* E_UNAVAIL: this hub has no keys. */
int kube_mark_make(const struct kube_mark *m, const struct home_keys *keys, char ret[KUBE_MARK_MAX],
                   struct err *err) MUST_CHECK;
/* The name of what stands beside the Job of that key, its Secret and its Service: nobody else can
 * tell it ahead, so what has it is ours. Not by the cluster's uid, which is another one once the
 * state went back. By the i-th key of the ring, from 0 on; false: there are
 * no more. */
bool kube_beside_name(const struct connector_env *e, const struct run_key *k, const char *place,
                      unsigned i, char ret[KUBE_NAME_MAX]);
/* The name of the object that the Job of that key stands for, likewise; what its controllers make
 * begins with it. */
bool kube_made_name(const struct home_keys *keys, const struct kube_mark *m, unsigned i,
                    char ret[KUBE_NAME_MAX]);
/* A MAC of texts of ours, as hex digits. false: this hub has no keys. */
bool kube_sign(const char *text, const struct home_keys *keys, char ret[KUBE_MARK_MAX]);
bool kube_signed(const char *text, const char *mac, const struct home_keys *keys);
bool kube_mark_read(const char *text, const struct home_keys *keys, struct kube_mark *ret);
bool kube_mark_of(const cJSON *object, bool job, const struct home_keys *keys,
                  struct kube_mark *ret);
/* Of the end that is written to the Job with that uid. false: this hub has no keys. */
bool kube_end_mark_make(const char *uid, const char *end, const struct home_keys *keys,
                        char ret[KUBE_MARK_MAX]);
/* The end that the log has by that Job, borrowed; "": it says none, or not by one of ours. */
const char *kube_end_of(const cJSON *job, const struct home_keys *keys);
void kube_nodes_print(const char *const *nodes, uint32_t n, struct buf *out);
const char *kube_nodes_of_rank(const char *text, int64_t rank, struct arena *a);

/* Namespace of the cluster for workloads of that namespace. */
const char *kube_place_of(const struct target_spec *s, const char *ns);

#endif
