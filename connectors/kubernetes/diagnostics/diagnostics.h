/* Scheduled diagnostics of GPUs (spec.kubernetes.diagnostics): a Job of the site's choice on each
 * idle node, which gets all of its devices. One that fails keeps work off the node until a later
 * one succeeds there. */
#ifndef HANSE_CONNECTORS_KUBERNETES_DIAGNOSTICS_H
#define HANSE_CONNECTORS_KUBERNETES_DIAGNOSTICS_H

#include "connectors/kubernetes/nodes/nodes.h"
#include "connectors/kubernetes/runs/runs.h"

struct kube_checks;
struct kube_checks_env {      /* borrowed until kube_checks_destroy */
    struct connector *base;   /* env of the driver */
    const struct object *doc; /* the Target */
    struct kube_nodes *nodes;
    struct kube_runs *runs;
    struct kube_client *(*client)(struct connector *base); /* NULL: out of reach */
};
struct kube_checks *kube_checks_create(const struct kube_checks_env *env);
struct kube_checks *kube_checks_destroy(struct kube_checks *c); /* accepts NULL; returns NULL */
void kube_checks_update(struct kube_checks *c, const struct object *doc);
void kube_checks_lost(struct kube_checks *c); /* a session is over */
void kube_checks_jobs_begin(struct kube_checks *c);
/* Each Job that the driver's watch tells. true: it is one of these by its mark, and nobody
 * else's. */
bool kube_checks_job(struct kube_checks *c, enum kube_change change, const cJSON *job);
void kube_checks_jobs_listed(struct kube_checks *c);
/* Each pod, whoever's it is. */
void kube_checks_pod(struct kube_checks *c, enum kube_change change, const cJSON *pod);
/* An order for some nodes comes: what is under way there makes room. */
void kube_checks_yield(struct kube_checks *c, const struct run_order *o);
/* The Target is let go: none begins any more. Returns how many are there. */
size_t kube_checks_leave(struct kube_checks *c);
/* A Job that is one of these by its mark, or the pod of one that was told. */
bool kube_checks_ours(const struct kube_checks *c, const cJSON *object, bool job);
/* As kube_nodes_events has it. */
void kube_checks_told(const struct kube_checks *c, const char *node, struct kube_check_told *ret);

#endif
