/* The search for several workers, shared by its steps (gang.c) and what makes their plan better
 * (refine.c). */
#ifndef HANSE_POLICY_PREEMPT_GANG_INTERNAL_H
#define HANSE_POLICY_PREEMPT_GANG_INTERNAL_H

#include "policy/preempt/preempt_internal.h"

#define GANG_LOOKS_MAX 8000 /* at members and sets, to make the plans of one group better */

struct step {         /* on a heap, the best rate first */
    double rate;      /* harm for each worker gained; until it is judged, at most that */
    uint32_t version; /* of the node when it was offered */
    uint32_t at;      /* member of the run, or NONE */
    uint32_t suspect; /* a gang, or NONE */
};
struct gang_plan {
    struct planner *x;
    uint32_t m0, n; /* members of the run */
    uint32_t *slots, *version;
    double *bound;       /* of one more worker on each */
    uint32_t *member_of; /* by node: place in the run, NONE = elsewhere; shared by all runs */
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
/* Looks again at every member of the run on which the suspect has a worker; the sum of the gain. */
int64_t gang_look(struct gang_plan *g, uint32_t suspect, bool keep);
void gang_offer(struct gang_plan *g); /* all steps that there are */
/* Takes steps until there is room; false when there is none below about `bound` of harm. */
bool gang_gather(struct gang_plan *g, double bound);
void gang_prune(struct gang_plan *g); /* whoever is not needed stays, the dearest first */

/* refine.c: never worse than it was. */
void gang_refine(struct gang_plan *g);

#endif
