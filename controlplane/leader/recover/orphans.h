/* Orphans: runs that targets list and that the state cannot answer for. */
#ifndef HANSE_CONTROLPLANE_LEADER_RECOVER_ORPHANS_H
#define HANSE_CONTROLPLANE_LEADER_RECOVER_ORPHANS_H

#include "controlplane/leader/context/context.h"

/* What the state says of a run that a sweep lists. */
enum orphan_why {
    ORPHAN_OWNED = 0, /* the state has this run, live or ended */
    ORPHAN_LET_GO,    /* this cluster's own log let the run go */
    ORPHAN_AHEAD,     /* its epoch or try is ahead of the state, which is an older one */
    ORPHAN_BEFORE,    /* its uid is unknown, and it began before the state went back */
    ORPHAN_DELETED,   /* its uid is unknown, it has ended, and this state once let it go */
    ORPHAN_FOREIGN,   /* its uid is unknown, and its cluster is another or unknown */
    ORPHAN_DENIED,    /* its target had told its end, and lists it as alive: denials.c */
    ORPHAN_WHY_NR
};
#define ORPHANS_MAX 4096 /* entries for one target; orphans.more counts the rest */
struct orphan {
    struct observation seen;
    enum orphan_why why;
    char cluster[CLUSTER_UID_MAX], ns[64], name[256];
    uint64_t state_rv; /* resourceVersion of the state that ordered it */
    int64_t since_ms;
    struct run_hold *holds; /* devices that it holds; owned */
    size_t n_holds;
};
struct orphans {
    struct orphan *v; /* owned */
    size_t n;
    uint64_t more; /* orphans beyond ORPHANS_MAX */
};

struct site;
void orphans_begin(struct site *t); /* a sweep begins a new list */
void orphan_found(struct site *t, const struct run_listed *l, enum orphan_why why);
void orphans_listed(struct site *t); /* the list is complete */
void orphans_drop(struct site *t);
const struct orphan *orphan_find(const struct site *t, const char *key);
bool orphan_on_node(const struct brain *b, const char *target, const char *node);
void orphans_metrics(const struct brain *b, struct buf *out);

/* ---- acts.c: what somebody said about an orphan ---- */
bool orphan_condemned(const struct site *t, const struct run_key *k);
/* Returns NULL and an error when this member does not lead, or there is no such Target. */
struct site *orphan_site(struct brain *b, const char *target, struct err *err);
/* Returns the orphan that the last sweep listed under key, or NULL and an error. */
const struct orphan *orphan_listed(const struct site *t, const char *key, struct err *err);

#endif
