/* What the files of diagnostics/ share. */
#ifndef HANSE_CONNECTORS_KUBERNETES_DIAGNOSTICS_INTERNAL_H
#define HANSE_CONNECTORS_KUBERNETES_DIAGNOSTICS_INTERNAL_H

#include "connectors/kubernetes/diagnostics/diagnostics.h"

#define KUBE_CHECK_LABEL "hanse.dev/diagnostics"    /* on the Job and its pod; any value */
#define KUBE_CHECK_NODE_ANNOTATION "hanse.dev/node" /* whose GPUs it looks at */
#define KUBE_CHECK_CONTAINER "diagnostics"
#define KUBE_CHECK_NAME_MAX 64
/* Beyond the timeout of its pod, which counts from the kubelet's start of it: until it has a node,
 * and its image. */
#define KUBE_CHECK_START_S 600

enum kube_check_is {
    CHECK_GOING,
    CHECK_PASSED,
    CHECK_FAILED, /* its program said so, or did not end in time */
    CHECK_VOID    /* it says nothing of the node: its program never began, or was taken away */
};
struct kube_check_verdict {
    enum kube_check_is is;
    int64_t over_ms; /* by the cluster's time; 0: not over */
    int exit_code;   /* of CHECK_FAILED; -1: not known */
};

/* ---- the Job (job.c) ---- */
/* The name of the diagnostics of that node in that period, after so many in a row that said
 * nothing: it is made once, however often it is asked for, and nobody can tell it ahead. false:
 * this hub has no keys. */
bool kube_check_name(const struct connector_env *e, const char *place, const char *node,
                     int64_t period, unsigned in_vain, char ret[KUBE_CHECK_NAME_MAX]);
unsigned kube_check_in_vain(const char *name); /* so many were before the one of that name */
/* By its mark one of this hub's. */
bool kube_check_is_ours(const struct connector_env *e, const cJSON *job);
struct kube_check_ask {
    const struct kubernetes_diagnostics *d;
    const struct target_kubernetes *k;
    const char *place, *name, *node;
    const struct kube_nodes_devices *devices;
    size_t n_devices;
};
/* NULL: err says why. The document is the caller's. */
cJSON *kube_check_job(const struct connector_env *e, const struct kube_check_ask *ask,
                      struct err *err);
void kube_check_read(const cJSON *job, struct kube_check_verdict *ret);
/* A sentence of why it failed; words: the last ones of its program, or "". */
void kube_check_why(const struct kube_check_verdict *v, const char *words, char ret[256]);

/* ---- what is known (records.c) ---- */
#define KUBE_CHECK_UID_MAX 40
struct kube_check {   /* a Job */
    struct list link; /* checked.checks, as they were told */
    struct kube_checked *node;
    char uid[KUBE_CHECK_UID_MAX], name[KUBE_CHECK_NAME_MAX], place[64];
    struct kube_check_verdict v;
    char *words; /* the last ones of its program; NULL: none were told */
    bool listed, deleting;
    bool let_go; /* its deletion was asked for: that takes its pod along */
    bool taken;  /* others had its pod deleted: it will say nothing */
    uint64_t again_ms;
};
struct kube_checked { /* a node */
    struct list link; /* kube_checks.nodes */
    struct list checks;
    uint64_t claimed_ms; /* since when it is told as taken; 0: it is not */
    uint64_t again_ms;   /* none begins before */
    uint64_t seen, held; /* the turn in which it was a node of the target, and held by a run */
    bool making;         /* the request for its Job is under way */
    bool yields;         /* an order for it has come */
    bool told;           /* that they say nothing, since they said something last */
    unsigned taken;      /* so many in a row have said nothing: the last one's pod was taken */
    char name[];
};
struct kube_checks {
    struct kube_checks_env env;
    const struct object *doc;
    struct list nodes;
    void *by_name, *by_uid; /* tsearch: checked, check */
    size_t n;               /* checks */
    bool listed;            /* all Jobs were, in this session */
    bool leaving;           /* the Target is let go */
    struct timer tick;
    uint64_t turn, refused_ms; /* refused_ms: none is made before */
    struct kube_request *rq;
    char asked[256];      /* node, or uid, that it is about */
    char complained[256]; /* what was logged last */
};

struct kube_newest { /* of a node; NULL: there is none */
    const struct kube_check *verdict, *nothing, *going;
};
struct kube_newest kube_newest_of(const struct kube_checked *x);
bool kube_check_later(const struct kube_check *a, const struct kube_check *b); /* b may be NULL */
struct kube_checked *kube_checked_find(const struct kube_checks *c, const char *name);
struct kube_checked *kube_checked_get(struct kube_checks *c, const char *name); /* makes it */
void kube_checked_drop(struct kube_checks *c, struct kube_checked *x);
struct kube_check *kube_check_find(const struct kube_checks *c, const char *uid);
void kube_check_drop(struct kube_checks *c, struct kube_check *x);

/* ---- when they begin (diagnostics.c) ---- */
/* Its pod was taken by others, and by now it has gone. */
void kube_checks_taken(struct kube_checks *c, const struct kube_check *x);
void kube_checks_soon(struct kube_checks *c); /* there may be something to do */

#endif
