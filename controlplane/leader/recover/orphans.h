/* Orphans: runs that targets list and the state cannot answer for. */
#ifndef HANSE_CONTROLPLANE_LEADER_RECOVER_ORPHANS_H
#define HANSE_CONTROLPLANE_LEADER_RECOVER_ORPHANS_H

#include "controlplane/leader/context/context.h"

/* What a sweep finds of a run: what the state says of it. */
enum orphan_why {
    ORPHAN_OWNED = 0, /* the state has this very run, as live or ended */
    ORPHAN_LET_GO,    /* this cluster's own log let it go */
    ORPHAN_AHEAD,     /* of an epoch or try that the state has not come to: it is an older one */
    ORPHAN_BEFORE,    /* unknown, and begun before the state went back to an older one */
    ORPHAN_DELETED,   /* unknown, ended, and in this state's own past: it let its Workload go */
    ORPHAN_FOREIGN,   /* unknown, and of another cluster, or nobody can say of which */
    ORPHAN_WHY_NR
};
#define ORPHANS_MAX 4096 /* of one target; more are counted */
struct orphan {
    struct observation seen;
    enum orphan_why why;
    char cluster[CLUSTER_UID_MAX], ns[64], name[256];
    uint64_t state_rv;
    int64_t since_ms;
    struct run_hold *holds;
    size_t n_holds;
};
struct orphans {
    struct orphan *v;
    size_t n;
    uint64_t more;
};

struct site;
void orphans_begin(struct site *t); /* a list is being made */
void orphan_found(struct site *t, const struct run_listed *l, enum orphan_why why);
void orphans_listed(struct site *t); /* it is whole */
void orphans_drop(struct site *t);
const struct orphan *orphan_find(const struct site *t, const char *key);
bool orphan_on_node(const struct brain *b, const char *target, const char *node);
void orphans_metrics(const struct brain *b, struct buf *out);

/* ---- acts.c: what somebody says about one ---- */
bool orphan_condemned(const struct site *t, const struct run_key *k);
/* NULL and an error: this member does not lead, or there is no such Target. */
struct site *orphan_site(struct brain *b, const char *target, struct err *err);
/* As the last sweep listed it; NULL and an error: it did not. */
const struct orphan *orphan_listed(const struct site *t, const char *key, struct err *err);

#endif
