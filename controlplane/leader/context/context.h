/* What every part of the brain may see: the root that it goes by, the pool, the loop, the term, and
 * how it proposes. What a part keeps is told by the part's own header; here is only where it
 * lies, for the functions of the part itself. */
#ifndef HANSE_CONTROLPLANE_LEADER_CONTEXT_CONTEXT_H
#define HANSE_CONTROLPLANE_LEADER_CONTEXT_CONTEXT_H

#include "api/base/limits.h"
#include "api/base/list.h"
#include "controlplane/leader/brain.h"
#include "policy/policy.h"

struct brain {
    struct brain_config cfg;
    struct loop *loop; /* the outer loop */
    bool leads, closing;
    uint64_t term;     /* that it leads in */
    struct root *root; /* newest seen; a reference of brain.c */
    struct pool *pool; /* of scheduler.c: follows the root; NULL while it does not lead */
    bool frozen;       /* sites.c, the brake: too many targets fell silent at once */
    bool in_doubt; /* back.c: the state may be an older copy; nothing is done before it is known */
    unsigned under_way; /* callbacks to come; closing waits for zero */

    /* Each is its part's own, and lives as long as the brain. */
    struct sites *sites;
    struct scheduler *scheduler;
    struct cycles *cycles;
    struct waiting *waiting;
    struct held_back *held;
    struct drivers *drivers;
    struct plans *plans;
    struct movers *movers;
    struct causes *causes;
    struct preempts *preempts;
    struct moves *moves;
    struct events *events;
    struct collect *collect;
    struct arrays *arrays;
    struct tokens *tokens;
    struct retention *retention;
    struct went_back *back;
    struct cold *cold;
    struct strangers *strangers;
};

/* What was refused may be allowed by now: all look again (brain.c). */
void brain_allowed(struct brain *b);

/* ---- propose.c: commands in this term; the callback is on the outer loop ---- */
void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg);
void brain_propose_bytes(struct brain *b, const char *request_id, struct slice bytes, propose_cb cb,
                         void *arg);
void brain_request_id(struct brain *b, char out[REQUEST_ID_MAX]);
/* Counts callbacks to come. */
void brain_under_way(struct brain *b, int delta);

struct cursor { /* of a walk over all Workloads; name "" = at the start */
    char ns[64], name[256];
};

#endif
