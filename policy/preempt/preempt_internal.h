/* The inside of preemption: who may be a victim and what that would cost (suspects), a copy of one
 * node on which they can be taken away and put back (view), and the searches over nodes and
 * domains. A plan works on the pool itself: it takes victims off, places, and puts them back. */
#ifndef HANSE_POLICY_PREEMPT_INTERNAL_H
#define HANSE_POLICY_PREEMPT_INTERNAL_H

#include "policy/place/place_internal.h"

#define DEVICES_MAX 256
/* Sums of the same harm in another order differ in their last bits: what is closer counts as equal,
 * so that a fleet of equals is not searched to its end. */
#define HARM_EQUAL 2e-9
#define MIG_MAX 64

struct suspect { /* a running workload that may be a victim */
    struct hold *hold;
    double harm;                /* GPU-seconds, as charged */
    bool reclaim, gone, banned; /* banned: must stay while a plan without it is sought */
    uint32_t slot;              /* its node, when it has just one worker; else NONE */
    int32_t milli;              /* of that worker's devices */
};
struct seat { /* one worker of a suspect on a node; those of one suspect are neighbours */
    uint32_t suspect, at;
    int32_t milli; /* of all its devices */
};
struct rate { /* harm for a unit, and how many there are */
    double rate, amount;
};
struct offer { /* a group that everything but room lets the workload use */
    uint32_t group, rank;
    double useful;
    bool limited;  /* a limit lets it in only once victims have left */
    bool kept;     /* one that its victims hold wherever they are: quota, the policy's maxGPUs */
    bool excluded; /* a plan for it did not hold when it was tried */
};
struct solution {
    uint32_t *v; /* suspects; has room for all */
    uint32_t n;
    double harm;
    const struct offer *offer; /* NULL: none found */
};
struct view { /* one member, alone in a table of its own */
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
    struct arena *a, *fits; /* fits: of one look whether a gang has room */
    int64_t now_ms, milli;  /* that the preemptor asks for at least */
    int64_t value;          /* of its priority class */
    bool may_preempt;
    int64_t *borrowed;  /* [queue + 1][class]: what may be reclaimed, below 0 = not asked yet */
    double *egress;     /* [target]: price of a GiB that leaves */
    signed char *reach; /* [store][target]: does another target reach it; below 0 = not asked yet */
    const struct hold *own; /* the preemptor's, or NULL */
    struct suspect *s;
    uint32_t n;
    uint32_t *first; /* [nodes + 1]: seats of a node */
    struct seat *seats;
    struct offer *offers;
    uint32_t n_offers;
    struct rate *rates; /* room for the seats of one node */
    struct view *view;
    uint32_t looks;    /* left, to make a plan for a gang better (of one group) */
    uint32_t *scratch; /* room for all suspects, twice */
    struct solution best;
    uint32_t *spare; /* room for a second solution */
};

/* victims.c */
void suspects_find(struct planner *x);
struct victim victim_of(struct planner *x, uint32_t suspect);
/* In order of harm, then of the uid: never by where they happen to lie in memory. */
int suspect_cmp(const struct planner *x, uint32_t a, uint32_t b);
/* May all of these be taken together: does each queue still borrow when its turn comes? */
bool reclaim_bounds(struct planner *x, const uint32_t *v, uint32_t n);

/* view.c */
void view_load(struct planner *x, uint32_t member);
void view_take(struct planner *x, uint32_t node, uint32_t suspect, int sign); /* -1: it leaves */
uint32_t view_slots(const struct planner *x);
/* The suspects on the member whose end makes room for `slots` workers there with the least harm,
 * below `bound`; those gone already are free. Returns the harm, or HUGE_VAL; *ret_n suspects in
 * ret. */
double node_solve(struct planner *x, uint32_t member, uint32_t slots, double bound, uint32_t *ret,
                  uint32_t *ret_n);

/* bound.c: at most the least harm of that, by GPUs (or CPU) alone: cheap, to leave a node aside.
 * shared: a gang's harm is split over the GPUs that it holds anywhere. */
double node_bound(struct planner *x, uint32_t member, uint32_t slots, bool shared);

/* The best of an offer; replaces x->best when it is better. */
void plan_single(struct planner *x, const struct offer *o);  /* single.c */
void plan_gang(struct planner *x, const struct offer *o);    /* gang.c */
void plan_offer(struct planner *x, const struct offer *o);   /* the one or the other: room alone */
void plan_limited(struct planner *x, const struct offer *o); /* limits.c: limits, too */
void plan_sort(const struct planner *x, uint32_t *v, uint32_t n); /* by harm, the least first */
void plan_keep(struct planner *x, const struct offer *o, const uint32_t *v, uint32_t n,
               double harm);

#endif
