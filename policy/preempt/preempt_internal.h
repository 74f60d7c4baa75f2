/* The inside of preemption: which workloads may be victims, and at what cost (suspects); a copy of
 * one node from which they can be removed and put back (view); and the searches over nodes and
 * domains. A plan works on the pool itself: it removes victims, places the preemptor, and puts all
 * back. */
#ifndef HANSE_POLICY_PREEMPT_INTERNAL_H
#define HANSE_POLICY_PREEMPT_INTERNAL_H

#include "policy/place/place_internal.h"

#define DEVICES_MAX 256
/* Sums of the same harm in another order differ in their last bits: smaller differences count as
 * equal, so that a fleet of equals is not searched to its end. */
#define HARM_EQUAL 2e-9
#define MIG_MAX 64

struct suspect { /* a running workload that may be a victim */
    struct hold *hold;
    double harm;                /* charged GPU-seconds */
    bool reclaim, gone, banned; /* banned: it must stay while a plan without it is sought */
    uint32_t slot;              /* its node if it has one worker; else NONE */
    int32_t milli;              /* milli-GPU of that worker */
};
struct seat { /* one worker of a suspect on a node; seats of one suspect are neighbours */
    uint32_t suspect, at;
    int32_t milli; /* milli-GPU of all its devices */
};
struct rate { /* harm per unit, and the number of units */
    double rate, amount;
};
struct offer { /* a group that only room keeps the workload from using */
    uint32_t group, rank;
    double useful;
    bool limited;  /* a limit admits the workload only once victims have left */
    bool kept;     /* the limit counts victims wherever they run: quota, the policy's maxGPUs */
    bool excluded; /* a plan for it failed when it was tried */
};
struct solution {
    uint32_t *v; /* indexes of suspects; with room for all */
    uint32_t n;
    double harm;
    const struct offer *offer; /* NULL: there is none */
};
struct view { /* a copy of one member, alone in a table of its own */
    struct table t;
    struct node_rec node;
    struct member member;
    int64_t cpu, memory;
    struct device dev[DEVICES_MAX];
    uint16_t over[DEVICES_MAX][MIG_MAX];
};
struct planner {
    struct pool *p;
    struct place *pl;
    struct arena *a, *fits; /* fits: scratch of one look whether a gang has room */
    int64_t now_ms, milli;  /* milli: the least milli-GPU that the preemptor asks for */
    int64_t value;          /* value of its priority class */
    bool may_preempt;
    /* [queue + 1][class]: milli-GPU that may be reclaimed; below 0: not computed yet */
    int64_t *borrowed;
    double *egress; /* [target]: price of a GiB of egress */
    /* [store][target]: 1 if another target reaches the store; below 0: not computed yet */
    signed char *reach;
    const struct hold *own; /* the preemptor's own hold, or NULL */
    struct suspect *s;
    uint32_t n;
    uint32_t *first; /* [nodes + 1]: index of the first seat of each node */
    struct seat *seats;
    struct offer *offers;
    uint32_t n_offers;
    struct rate *rates; /* scratch for the seats of one node */
    struct view *view;
    uint32_t looks;    /* looks left to improve the plan of a gang, in one group */
    uint32_t *scratch; /* scratch for all suspects, twice */
    struct solution best;
    uint32_t *spare; /* scratch for a second solution */
};

/* victims.c */
void suspects_find(struct planner *x);
struct victim victim_of(struct planner *x, uint32_t suspect);
/* Compares by harm, then by uid; never by address. */
int suspect_cmp(const struct planner *x, uint32_t a, uint32_t b);
/* True when all of these may be taken together: each queue still borrows when its turn comes. */
bool reclaim_bounds(struct planner *x, const uint32_t *v, uint32_t n);

/* view.c */
void view_load(struct planner *x, uint32_t member);
/* sign -1: it leaves */
void view_take(struct planner *x, uint32_t node, uint32_t suspect, int sign);
uint32_t view_slots(const struct planner *x);
/* Finds the suspects on the member whose end makes room for `slots` workers there with the least
 * harm, below `bound`; those that are gone already cost nothing. Returns the harm, or HUGE_VAL;
 * *ret_n suspects in ret. */
double node_solve(struct planner *x, uint32_t member, uint32_t slots, double bound, uint32_t *ret,
                  uint32_t *ret_n);

/* bound.c: returns a lower bound of that harm, by GPUs (or CPU) alone: cheap, to skip a node.
 * shared: a gang's harm is divided by the GPUs that it holds anywhere. */
double node_bound(struct planner *x, uint32_t member, uint32_t slots, bool shared);

/* Each finds the best plan of an offer, and replaces x->best when that is better. */
void plan_single(struct planner *x, const struct offer *o); /* single.c */
void plan_gang(struct planner *x, const struct offer *o);   /* gang.c */
/* calls the one or the other: room only */
void plan_offer(struct planner *x, const struct offer *o);
void plan_limited(struct planner *x, const struct offer *o);      /* limits.c: room and limits */
void plan_sort(const struct planner *x, uint32_t *v, uint32_t n); /* by harm, least first */
void plan_keep(struct planner *x, const struct offer *o, const uint32_t *v, uint32_t n,
               double harm);

#endif
