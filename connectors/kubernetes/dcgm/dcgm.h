/* What DCGM's exporters print for Prometheus, read: which GPUs are sick, how busy they are, and by
 * that how busy the devices of runs are. Who asks them is nodes/exporters.c. */
#ifndef HANSE_CONNECTORS_KUBERNETES_DCGM_H
#define HANSE_CONNECTORS_KUBERNETES_DCGM_H

#include "connectors/kubernetes/runs/runs.h"

/* ---- its text ---- */
/* What the text of an exporter tells of the GPUs of its node: how many must be reset or replaced,
 * by the XIDs and metrics of dialects.def, and why the first of them (dcgm.c). */
struct kube_dcgm {
    unsigned sick;
    char reason[64];   /* "Xid79", "RowRemapFailure" */
    char message[160]; /* a sentence */
};
void kube_dcgm_read(const char *text, size_t n, struct kube_dcgm *ret);
struct kube_device_use {
    uint64_t id; /* of the GPU, or of the instance of one */
    unsigned percent;
    bool rests;    /* it did nothing at all */
    int64_t bytes; /* of its memory in use; -1: not told */
};
struct kube_pod_use { /* of a pod, as its node's exporter has them; all is borrowed */
    const char *node; /* on the cluster */
    const char *ns, *pod;
    const struct kube_device_use *devices;
    size_t n;
};
/* Passes the devices of each pod that it names to each(), which has no node yet: devices of which
 * it tells how busy they are, and that this pod alone holds. What one device does for several pods
 * is nobody's (use.c). */
void kube_dcgm_use(const char *text, size_t n,
                   void (*each)(void *arg, const struct kube_pod_use *u), void *arg);

/* ---- runs (runs.c) ---- */
struct kube_uses;
struct kube_uses *kube_uses_create(struct connector *base, const struct kube_runs *runs);
struct kube_uses *kube_uses_destroy(struct kube_uses *u); /* accepts NULL; returns NULL */
/* Takes in what is told of a pod, whosever that is. */
void kube_uses_take(struct kube_uses *u, const struct kube_pod_use *p);

#endif
