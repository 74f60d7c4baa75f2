/* What every part of the brain may see: the root that it decides by, the pool, the loop, the term,
 * and how it proposes. The header of each part describes the part's own state; struct brain only
 * holds the pointers to it. */
#ifndef HANSE_CONTROLPLANE_LEADER_CONTEXT_CONTEXT_H
#define HANSE_CONTROLPLANE_LEADER_CONTEXT_CONTEXT_H

#include "api/base/limits.h"
#include "api/base/list.h"
#include "controlplane/leader/brain.h"
#include "policy/policy.h"

/* One of the parts that the brain drives; brain.c has the table. A function is NULL where the part
 * has nothing to do. The brain calls the parts in the order of the table. */
struct part {
    const char *name;
    void (*init)(struct brain *b);  /* the brain was created and does not lead yet */
    void (*begin)(struct brain *b); /* a leadership begins */
    void (*reset)(
        struct brain *b); /* read the whole root: after begin, or when changes were missed */
    void (*look)(struct brain *b); /* the root may be newer; called on any member, before change */
    void (*change)(struct brain *b, const struct change *c);
    /* a driver has taken in what its target told of the run of this workload */
    void (*observed)(struct brain *b, const char *workload_uid, const struct observation *o);
    /* a target has told of a machine, or of its prices; borrowed, as in connector_events */
    void (*machine)(struct brain *b, const char *target, const struct machine_seen *m);
    void (*machine_unread)(struct brain *b, const char *target, const char *key, const char *why);
    void (*prices)(struct brain *b, const char *target, const struct machine_price *v, size_t n,
                   const char *currency);
    /* a target has told how busy the devices of a run are; borrowed */
    void (*used)(struct brain *b, const char *target, const struct run_use *u);
    void (*tick)(struct brain *b); /* something that was refused may be allowed now */
    void (*drop)(struct brain *b); /* the leadership is over, and b->leads is false */
    void (*fini)(struct brain *b); /* nothing is under way any more */
};

struct brain {
    const struct part *parts;        /* ends with an entry without a name */
    void (*follow)(struct brain *b); /* brain_root, which brain_answered calls */
    struct brain_config cfg;
    struct loop *loop;   /* the outer loop */
    bool leads, closing; /* closing: it no longer leads, and ends when under_way is 0 */
    uint64_t term;       /* the term in which it leads */
    struct root *root;   /* the newest root seen; brain.c holds the reference */
    struct pool *pool;   /* scheduler.c owns it; it follows the root; NULL while not leading */
    bool frozen;         /* sites.c sets the brake: too many targets fell silent at once */
    bool in_doubt; /* back.c sets it while the state may be an older copy: every effect waits */
    unsigned under_way; /* callbacks still to come; closing waits for 0 */

    /* State of the parts: each part alone uses its own. All live as long as the brain. */
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
    struct unkeep *unkeep;
    struct retention *retention;
    struct went_back *back;
    struct cold *cold;
    struct strangers *strangers;
    struct saves *saves;
    struct machines *machines;
    struct adopts *adopts;
    struct uses *uses;
};

/* ---- parts.c ---- */
void brain_allowed(struct brain *b); /* calls tick of every part */
/* Calls observed of every part. */
void brain_observed(struct brain *b, const char *workload_uid, const struct observation *o);
/* Calls used of every part. */
void brain_used(struct brain *b, const char *target, const struct run_use *u);
/* Calls machine, machine_unread or prices of every part. */
void brain_machine(struct brain *b, const char *target, const struct machine_seen *m);
void brain_machine_unread(struct brain *b, const char *target, const char *key, const char *why);
void brain_prices(struct brain *b, const char *target, const struct machine_price *v, size_t n,
                  const char *currency);
/* Adds delta to the number of callbacks that are still to come. */
void brain_under_way(struct brain *b, int delta);
/* Called when an answer has come, before its part gets it: looks at the newest root, so that the
 * part decides by a state that contains what the answer tells. brain_propose, brain_confirm and
 * brain_call call it. */
void brain_answered(struct brain *b);
/* A call to a connector, counted as under way; `done` gets its answer after brain_answered, as the
 * answer to a command comes. The memory is the caller's until then. brain_call returns the call
 * that the connector is given. */
struct brain_call {
    struct call call;
    struct brain *brain;
    call_cb done;
    char about[64]; /* uid of the workload that it concerns; "": none */
};
struct call *brain_call(struct brain *b, struct brain_call *c, uint64_t ms, call_cb done);
/* The same about a workload: its Secrets are taken out of what the answer says (hide.c). */
struct call *brain_call_about(struct brain *b, struct brain_call *c, const char *uid, uint64_t ms,
                              call_cb done);
/* Starts the timer, unless it runs already or this member does not lead: the next leader's parts
 * start their own. */
void brain_later(struct brain *b, struct timer *t, uint64_t ms);
/* Has a majority confirm that this member leads. An error means that none did before the deadline,
 * or that the leadership in this term is over. */
void brain_confirm(struct brain *b, uint64_t deadline_ms,
                   void (*cb)(void *arg, const struct err *err), void *arg);

/* ---- propose.c: commands in this term; the callback is on the outer loop ---- */
void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg);
void brain_propose_bytes(struct brain *b, const char *request_id, struct slice bytes, propose_cb cb,
                         void *arg);
void brain_request_id(struct brain *b, char out[REQUEST_ID_MAX]);

struct cursor { /* position of a walk over all Workloads; name "": at the start */
    char ns[64], name[256];
};

#endif
