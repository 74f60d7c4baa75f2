/* What the files of dcgm/ share. */
#ifndef HANSE_CONNECTORS_KUBERNETES_DCGM_INTERNAL_H
#define HANSE_CONNECTORS_KUBERNETES_DCGM_INTERNAL_H

#include "connectors/kubernetes/dcgm/dcgm.h"

/* ---- its text, line by line (read.c) ---- */
struct kube_sample { /* of one line; texts are borrowed, and end where their length says */
    const char *name;
    size_t n_name;
    const char *labels;
    size_t n_labels;
    long long value; /* what stands before the point */
    int milli;       /* and after it, in 1/1000; -1: something else than a fraction does */
};
/* Takes the next line off the text; false: it is no sample. */
bool kube_sample_next(const char **text, const char *end, struct kube_sample *ret);
bool kube_sample_named(const struct kube_sample *s, const char *name);
bool kube_sample_has(const struct kube_sample *s, const char *name);
/* "": it has no such label, or one that does not fit, or more than one of that name. */
void kube_sample_label(const struct kube_sample *s, const char *name, char *ret, size_t n);

#endif
