/* What the driver puts into templates of pods, whoever wrote them: by which key and mark they are
 * known, the gate and the finalizer by which a run begins once and ends provably, what the Target
 * says of its pods. Must never leave one of these out of a pod that its controller will make. */
#ifndef HANSE_CONNECTORS_KUBERNETES_MANIFESTS_OVERLAY_H
#define HANSE_CONNECTORS_KUBERNETES_MANIFESTS_OVERLAY_H

#include "api/manifests/manifests.h"
#include "connectors/kubernetes/marks/marks.h"

struct kube_overlay {
    const char *key, *mark;            /* of the run */
    const struct target_kubernetes *k; /* never NULL */
    const char *priority_class;        /* of its workload, or "" */
    const char *service;               /* by which its ranks find each other; NULL: none */
    const cJSON *env;                  /* of its programs, by reference; NULL: none */
};

/* ---- for any template ---- */
cJSON *kube_finalizers(void);
/* pod: with the labels that the Target gives its pods. */
void kube_labels_in(const struct kube_overlay *o, cJSON *meta, bool pod);
/* Account, scheduler, priority, Secrets by which images are pulled. */
void kube_names_in(const struct kube_overlay *o, cJSON *pod);
int kube_tolerations_in(const struct kube_overlay *o, cJSON *pod, struct err *err) MUST_CHECK;

/* ---- for those of others ---- */
/* Its pods are known, held and gated as those of an order are, and their programs stay as they
 * are. */
int kube_overlay_template(const struct kube_overlay *o, cJSON *template,
                          struct err *err) MUST_CHECK;
/* Labels and annotations of the whole, but for what is the hub's or the cluster's to say. */
void kube_overlay_words(const cJSON *doc, cJSON *meta);
/* Into `spec`: that of a Job which runs once, with so many pods. */
int kube_overlay_job(const struct kube_overlay *o, const cJSON *doc, uint32_t ranks, cJSON *spec,
                     struct err *err) MUST_CHECK;
/* An object of another kind, whose controller makes the pods: without its name, its owner and the
 * uid of the Job that stands for it (KUBE_ANCHOR_ANNOTATION), which its maker puts in. The tree
 * is the caller's. */
int kube_overlay_object(const struct kube_overlay *o, const cJSON *doc, cJSON **ret,
                        struct err *err) MUST_CHECK;
/* The manifest of an order, which was judged when its workload was written, is judged again, and
 * held against what it is given: so many devices that its nodes count by that name (NULL: none).
 * The tree is the caller's; the kind is NULL for a Job, which is the run's own. */
int kube_overlay_read(const struct run_order *o, const char *resource, int64_t count, cJSON **ret,
                      const struct manifest_kind **ret_kind, struct err *err) MUST_CHECK;

#endif
