/* The search for several workers: what its steps (gang.c) and the improvement of its plan
 * (refine.c) share. */
#ifndef HANSE_POLICY_PREEMPT_GANG_INTERNAL_H
#define HANSE_POLICY_PREEMPT_GANG_INTERNAL_H

#include "policy/preempt/preempt_internal.h"

#define GANG_LOOKS_MAX 8000 /* looks at members and sets, to improve the plans of one group */

struct step {         /* an entry of a heap, best rate first */
    double rate;      /* harm per worker gained; a lower bound until it is judged */
    uint32_t version; /* version of the node when the step was offered */
    uint32_t at;      /* place of the member in the run, or NONE */
    uint32_t suspect; /* a gang, or NONE */
};
struct gang_plan {
    struct planner *x;
    uint32_t m0, n; /* the run: members [m0, m0 + n) */
    uint32_t *slots, *version;
    double *bound;       /* lower bound of the harm of one more worker on each member */
    uint32_t *member_of; /* by node: place in the run, NONE: outside; shared by all runs */
    struct step *heap;
    uint32_t n_heap, cap_heap;
    uint32_t *taken, n_taken, *set;
    int64_t room, want;
    double harm;
};

static inline uint32_t node_of(const struct gang_plan *g, uint32_t at)
{
    return g->x->p->t.members[g->m0 + at].node;
}

/* gang.c */
/* Looks again at every member of the run on which the suspect has a worker; returns the total
 * gain. */
int64_t gang_look(struct gang_plan *g, uint32_t suspect, bool keep);
void gang_offer(struct gang_plan *g); /* puts all steps on the heap */
/* Takes steps until there is room; false when that needs more than about `bound` of harm. */
bool gang_gather(struct gang_plan *g, double bound);
void gang_prune(struct gang_plan *g); /* lets victims stay that are not needed, the dearest first */

/* refine.c: improves the plan; it never becomes worse. */
void gang_refine(struct gang_plan *g);

#endif
