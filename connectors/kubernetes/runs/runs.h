/* Runs as Jobs: manifests, what pods prove, and the calls of connector.h about runs. */
#ifndef HANSE_CONNECTORS_KUBERNETES_RUNS_H
#define HANSE_CONNECTORS_KUBERNETES_RUNS_H

#include "connectors/home/home.h"
#include "connectors/kubernetes/marks/marks.h"

#define KUBE_CONTAINER "main"

struct kube_runs;
struct kube_runs_env {        /* borrowed until kube_runs_destroy */
    struct connector *base;   /* events and env of the driver */
    const struct object *doc; /* the Target */
    struct home_runs *home;   /* runners that call home; NULL: they do not */
    struct kube_client *(*client)(struct connector *base); /* NULL: out of reach */
    const char *(*why)(struct connector *base);            /* out of reach: why */
    const char *(*cluster)(struct connector *base); /* uid of its kube-system namespace, or "" */
    /* Extended resource of what that node ("TARGET.NODE") counts of this MIG profile ("": whole
     * GPUs), or of shares (0: none): "nvidia.com/gpu"; NULL: it counts none. */
    const char *(*resource)(struct connector *base, const char *node, const char *mig,
                            int64_t shares);
};
struct kube_runs *kube_runs_create(const struct kube_runs_env *env);
struct kube_runs *kube_runs_destroy(struct kube_runs *r); /* calls end OUT_UNKNOWN first */
void kube_runs_update(struct kube_runs *r, const struct object *doc);
void kube_runs_lost(struct kube_runs *r, const char *why); /* a session is over: so are its calls */
void kube_runs_jobs_begin(struct kube_runs *r);
void kube_runs_job(struct kube_runs *r, enum kube_change change, const cJSON *job);
void kube_runs_jobs_listed(struct kube_runs *r, const char *rv);
void kube_runs_pods_begin(struct kube_runs *r);
/* false: it is gone, or is none of ours by its mark as it is now: then it is the inventory's,
 * whatever it was before and whatever its labels say. Each pod is told, also others'. */
bool kube_runs_pod(struct kube_runs *r, enum kube_change change, const cJSON *pod);
void kube_runs_pods_listed(struct kube_runs *r, const char *rv);
/* A runner that calls home has told something of that run. */
void kube_runs_told(struct kube_runs *r, const struct run_key *k);

/* What is known of a run and its pods, for whoever looks at it; a copy. */
enum kube_pod_life { POD_IS_TO_COME, POD_IS_THERE, POD_IS_OVER }; /* of its program */
struct kube_pod_shown {
    const char *name, *uid, *node;      /* node: "" while it has none */
    const char *program;                /* name of its program's container */
    int64_t rank;                       /* -1: not known */
    const char *phase, *word, *message; /* in the cluster's words */
    enum kube_pod_life life;
    int trouble; /* the smaller, the more it is worth a look */
};
struct kube_run_shown {
    const char *place;                 /* namespace of the cluster */
    const char *job, *uid;             /* its Job; uid: "" where none was seen */
    const struct kube_pod_shown *pods; /* of ranks that count twice, those that may start last */
    size_t n;
};
/* Of a key with try 0 the newest try of that epoch. false: it is not known here. */
bool kube_runs_show(const struct kube_runs *r, const struct run_key *k, struct arena *a,
                    struct kube_run_shown *ret);
bool kube_runs_ready(const struct kube_runs *r); /* all was listed */
/* By its mark, as it is now: a Job, or a pod, of a run. */
bool kube_runs_ours(const struct kube_runs *r, const cJSON *object, bool job);
/* In which namespace of the cluster pods of that one of Hanse run; of which one of Hanse those are
 * that run in that one of the cluster, as far as its Target says so: else the same. */
const char *kube_runs_place(const struct kube_runs *r, const char *ns);
const char *kube_runs_home(const struct kube_runs *r, const char *place);
/* Its programs are a manifest's: no runner speaks for them. */
bool kube_runs_foreign(const struct kube_runs *r, const struct run_key *k);

/* Names the nodes, as the cluster calls them, on which a run is that has not ended by the log, or
 * for which one is on its way; some of them more than once. */
void kube_runs_each_node(const struct kube_runs *r, void (*each)(void *arg, const char *node),
                         void *arg);
/* The Target is let go: has the names of ended runs let go that nothing can need any more, a few in
 * each call. Tells of which runs something is there still: their Jobs, or pods whose Job somebody
 * has taken away. */
struct kube_left {
    size_t n, live;   /* of all, those that are no such names: they may run */
    const char *kind; /* of one of them, one that may run if there is one: "job" or "pod" */
    char place[64], name[256];
};
void kube_runs_leave(struct kube_runs *r, struct kube_left *ret);

/* As connector_ops has them. */
const char *kube_runs_repeats(const struct kube_runs *r);
void kube_runs_submit(struct kube_runs *r, const struct run_order *o, struct call *call);
void kube_runs_find(struct kube_runs *r, const struct run_key *k, struct call *call);
void kube_runs_quiesce(struct kube_runs *r, const struct run_key *k, int signo, uint64_t grace_ms,
                       struct call *call);
void kube_runs_stop(struct kube_runs *r, const struct run_key *k, uint64_t grace_ms,
                    struct call *call);
void kube_runs_finalize(struct kube_runs *r, const struct run_key *k, struct call *call);
void kube_runs_sweep(struct kube_runs *r, run_judge judge, void *arg, struct call *call);
void kube_runs_promises(struct kube_runs *r, uint64_t rv, uint64_t older_ms, promise_judge judge,
                        void *arg, struct call *call);

#endif
