/* What every part of the brain may see: the root that it goes by, the pool, the loop, the term, and
 * how it proposes. What a part keeps is told by the part's own header; here is only where it
 * lies, for the functions of the part itself. */
#ifndef HANSE_CONTROLPLANE_LEADER_CONTEXT_CONTEXT_H
#define HANSE_CONTROLPLANE_LEADER_CONTEXT_CONTEXT_H

#include "api/base/limits.h"
#include "api/base/list.h"
#include "controlplane/leader/brain.h"
#include "policy/policy.h"

/* One of the parts that the brain drives (brain.c has the table); NULL where it has nothing to do.
 * All are gone through in the order of the table. */
struct part {
    const char *name;
    void (*init)(struct brain *b);  /* the brain is made; it does not lead */
    void (*begin)(struct brain *b); /* a leadership begins */
    void (*reset)(
        struct brain *b);          /* goes by the whole root: after begin, or where it lost track */
    void (*look)(struct brain *b); /* there may be a newer root; of any member, ahead of change */
    void (*change)(struct brain *b, const struct change *c);
    void (*tick)(struct brain *b); /* what was refused may be allowed by now: looks again */
    void (*drop)(struct brain *b); /* the leadership is over; b->leads is false */
    void (*fini)(struct brain *b); /* nothing is under way any more */
};

struct brain {
    const struct part *parts;        /* up to one without a name */
    void (*follow)(struct brain *b); /* brain_root, for brain_answered */
    struct brain_config cfg;
    struct loop *loop;   /* the outer loop */
    bool leads, closing; /* closing: it leads no more, and ends once nothing is under way */
    uint64_t term;       /* that it leads in */
    struct root *root;   /* newest seen; a reference of brain.c */
    struct pool *pool;   /* of scheduler.c: follows the root; NULL while it does not lead */
    bool frozen;         /* sites.c, the brake: too many targets fell silent at once */
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

/* ---- parts.c ---- */
void brain_allowed(struct brain *b); /* what was refused may be allowed by now: all tick */
/* Counts callbacks to come. */
void brain_under_way(struct brain *b, int delta);
/* Ahead of an answer: it has come, and the root is looked at, so that whoever gets it goes by the
 * state that has what it tells. brain_propose and brain_confirm call it. */
void brain_answered(struct brain *b);
/* Starts it, if it is not under way and this member leads: else the next leader begins anew. */
void brain_later(struct brain *b, struct timer *t, uint64_t ms);
/* Has a majority confirm that we lead. An error: it did not in time, or the leadership in this
 * term is over. */
void brain_confirm(struct brain *b, uint64_t deadline_ms,
                   void (*cb)(void *arg, const struct err *err), void *arg);

/* ---- propose.c: commands in this term; the callback is on the outer loop ---- */
void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg);
void brain_propose_bytes(struct brain *b, const char *request_id, struct slice bytes, propose_cb cb,
                         void *arg);
void brain_request_id(struct brain *b, char out[REQUEST_ID_MAX]);

struct cursor { /* of a walk over all Workloads; name "" = at the start */
    char ns[64], name[256];
};

#endif
