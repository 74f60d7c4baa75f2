/* Machines in the state: what is ordered at a Target under a key, costs until it has ended, and
 * carries nodes (connectors/machines.h): the steps by which the log has it, what readers ask. */
#ifndef HANSE_CONTROLPLANE_STORE_MACHINE_H
#define HANSE_CONTROLPLANE_STORE_MACHINE_H

#include "api/base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct machine_cmd;
struct machine_pool;
struct machine_spec;
struct object;
struct root;
struct target_status;
struct txn;

/* apply/machine.c carries them out. A machine's key is its name. */
enum machine_step {
    /* intent: one more machine of a pool is about to be ordered. Apply makes the order and its key,
     * by the Target as it is then */
    MACHINE_STEP_ORDER = 1,
    MACHINE_STEP_SEEN,    /* what its target tells of it, but its end */
    MACHINE_STEP_REFUSED, /* its order has no effect, and is sent again after the pause, if any */
    MACHINE_STEP_RENEW,   /* intent: all in `ops` are about to be renewed */
    /* intent, for good: it is about to be ended. Not while a run is held on it */
    MACHINE_STEP_RELEASE,
    MACHINE_STEP_ENDED, /* it is gone, and costs nothing any more */
    MACHINE_STEP_LAST = MACHINE_STEP_ENDED
};
#define MACHINES_AT_ONCE 100 /* in one RENEW */
const char *machine_step_text(enum machine_step s);

/* The key of the machine with that number: no two of all states and Targets have the same. */
#define MACHINE_NAME_MAX 64
void machine_key(const struct root *r, const struct object *target, const char *pool,
                 int64_t number, char out[MACHINE_NAME_MAX]);
bool machine_open(const struct object *o); /* a Machine that has not ended */
/* It was ordered as the pool says: but for time to live, tags and cap, which are its order's. */
bool machine_is_as(const struct machine_spec *s, const struct machine_pool *p);
/* It is let go, or has ended: nothing is placed on its nodes any more. */
bool machine_closing(const struct object *o);
/* Its price is above the cap of its order, or is not to be compared with it; "": neither. */
const char *machine_above_cap(const struct machine_spec *s, double price, const char *currency);
/* A leader places nothing on its nodes: it is closing, or is let go once nothing runs there. */
bool machine_shut(const struct object *o);
/* True when a run is held on a node of it. Walks the nodes of its Target. */
bool machine_held(const struct root *r, const struct object *o);
int64_t machines_live(const struct target_status *s); /* of a Target; s may be NULL */

/* Machines that end early (machines/): a pool whose machines do waits longer and longer. */
#define MACHINE_EARLY_MS 600000 /* one that lived so long did not */
struct machine_early {
    int64_t rounds;       /* in a row in which machines of it ended early; 0: all is well */
    int64_t since, until; /* of its pause, by the cluster's time */
    bool coming;          /* one that was ordered after that is on its way, and none has come */
    const struct object *last; /* the latest that ended so; borrowed from r */
};
/* Of machines that were ordered as p says now. */
void machine_early(const struct root *r, const struct object *target, const struct machine_pool *p,
                   int64_t now_ms, struct machine_early *ret);
void machine_early_print(const struct machine_pool *p, const struct machine_early *e, char *text,
                         size_t size);

/* ---- for this folder ---- */
int apply_machine(struct txn *t, const struct machine_cmd *c) MUST_CHECK;
/* What `had` counts nobody writes by hand: it replaces what *status says of it. */
void machines_keep(struct txn *t, const struct target_status *had, void **status);
void machines_check(const struct root *r); /* part of root_check */

#endif
