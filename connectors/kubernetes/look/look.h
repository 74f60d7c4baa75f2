/* What people look at of a run in a cluster: its pods and the Events about them, and, of runners
 * that have no way home, logs, execs and forwarded ports through the API server; and what others
 * run there. Asked for when somebody looks; nothing that decides rests on it. */
#ifndef HANSE_CONNECTORS_KUBERNETES_LOOK_H
#define HANSE_CONNECTORS_KUBERNETES_LOOK_H

#include "connectors/kubernetes/diagnostics/diagnostics.h"
#include "connectors/kubernetes/nodes/nodes.h"
#include "connectors/kubernetes/runs/runs.h"
#include "connectors/streams/streams.h"

struct kube_look;
struct kube_look_env { /* borrowed until kube_look_destroy */
    struct connector *base;
    const struct kube_runs *runs;
    const struct kube_nodes *nodes;
    const struct kube_checks *checks;
    struct kube_client *(*client)(struct connector *base); /* NULL: out of reach */
    const char *(*why)(struct connector *base);            /* out of reach: why */
    /* By which what is not asked by that client is opened; never NULL while that is not. */
    const struct kube_login *(*login)(struct connector *base);
};
struct kube_look *kube_look_create(const struct kube_look_env *env);
struct kube_look *kube_look_destroy(struct kube_look *l); /* accepts NULL; returns NULL */
/* The session is over: so is all that was under way. */
void kube_look_lost(struct kube_look *l, const char *why);
/* As connector_ops.details. */
void kube_look_details(struct kube_look *l, const struct run_key *k, uint64_t deadline_ms,
                       details_cb cb, void *arg);
/* As connector_ops.foreign. */
void kube_look_foreign(struct kube_look *l, const struct foreign_ask *ask, foreign_cb cb,
                       void *arg);
/* As those of connector_ops. */
int kube_look_logs(struct kube_look *l, const struct run_key *k, const struct log_request *rq,
                   const struct log_sink *sink, struct exec_session **ret,
                   struct err *err) MUST_CHECK;
int kube_look_exec(struct kube_look *l, const struct run_key *k, const struct exec_request *rq,
                   const struct log_sink *sink, struct exec_session **ret,
                   struct err *err) MUST_CHECK;
int kube_look_forward(struct kube_look *l, const struct run_key *k,
                      const struct forward_request *rq, const struct log_sink *sink,
                      struct exec_session **ret, struct err *err) MUST_CHECK;

#endif
