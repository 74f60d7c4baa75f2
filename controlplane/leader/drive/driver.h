/* One driver for each workload that holds a place. It is level-triggered: driver_tick looks at the
 * root and at what was seen, and does at most one thing; every callback stores its result and ticks
 * again. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_DRIVER_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_DRIVER_H

#include "controlplane/leader/context/context.h"
#include "controlplane/leader/drive/order.h"

struct site;
struct drivers {
    struct list adrift; /* drivers whose Target is not in the root */
    void *by_uid;       /* tsearch tree of struct driver by uid */
    unsigned n;
};

struct worker_seen { /* what the target told of one worker of this try */
    bool told;
    int exit_code, term_signal;
    char reason[64], id[129];
    uint64_t devices;             /* a bit each; told on where the log counts devices */
    int64_t started_ms, ended_ms; /* UTC ms by the target's clock; 0: not told */
};

struct driver {
    struct brain *brain;
    struct list seat; /* link in site.drivers of its target, or in drivers.adrift */
    char uid[64], ns[64], name[256], target[256];
    struct run_key key;     /* uid, epoch and try as the root has them */
    const struct object *o; /* its Workload as the newest root has it; holds a reference */
    bool dead;              /* it holds no place any more; freed when no call is under way */
    /* try and epoch of the intent that this brain committed in this term and has not submitted
     * yet */
    int64_t own_try, own_epoch;
    bool quiesced;           /* the target has taken the quiesce of this intent */
    uint64_t stop_after_ms;  /* loop time at which a quiesce becomes a stop; 0: none yet */
    struct observation seen; /* the newest observation of `key` */
    bool has_seen;
    struct refusal refused; /* of the submit that was answered so; class_ 0: none */
    uint64_t found_session; /* site.session in which find() or submit last answered; 0: none */
    uint64_t unknown_since_ms;
    uint64_t untold_since_ms; /* loop time since which its target cannot tell of it; 0: it can */
    uint64_t untold_asked_ms; /* loop time at which it was asked then */
    /* The log's time at which the target was asked last, and at which it was when it had the run
     * nowhere (observation.unlisted); 0: not */
    int64_t find_ms, unlisted_ms;
    uint32_t backoff_ms;
    struct timer again;

    /* calls.c */
    bool proposing, calling;  /* a step, or a call, is awaited: one thing at a time */
    unsigned telling;         /* number of checkpoints that were proposed and not answered */
    int64_t told_step;        /* step of the newest checkpoint proposed in this epoch; -1: none */
    unsigned bad_checkpoints; /* number of checkpoints refused in this epoch */
    struct brain_call call;
    int call_kind;
    /* the run that the call concerns; the answer says nothing of another */
    struct run_key call_key;
    struct order_sent sent;
    uint64_t send_again_ms; /* loop time before which it is not sent again */
    unsigned silent;        /* calls in a row that were not answered */
    bool held_back;         /* waits under limits.inFlight for another driver's answer */
    uint64_t call_site;
    char call_target[256];   /* site.number and name of the site whose calls count this one */
    struct brain_call hurry; /* repeats the stop under way with a shorter grace */
    bool hurrying;           /* hurry is awaited */
    uint64_t stop_grace_ms;  /* grace of the last stop of this try; 0: at once, or none */

    /* observed.c */
    struct buf seats;   /* placement as bytes: the nodes that the target gave; .n 0: not told */
    bool seats_refused; /* the log did not take them: by it, others hold what the target gave */
    struct worker_seen *workers; /* by rank; NULL: nothing was told of any */
    uint32_t n_workers;
    bool clocked;            /* clock_behind_ms is known, of this session */
    int64_t clock_behind_ms; /* what to add to the target's times to have the hub's */
    uint64_t clock_session;
    uint64_t pending_told_ms; /* loop time at which the log was last told of its waiting */
    int64_t foreign_epoch;    /* epoch in which a foreign checkpoint was refused, with one Event */

    /* look.c */
    int64_t looked_epoch;   /* epoch before whose dispatch the store was searched, or given up */
    int64_t look_epoch;     /* epoch before whose dispatch the search began */
    uint64_t look_until_ms; /* loop time at which that search is given up */

    /* lease.c */
    uint64_t renewed_ms; /* loop time of the last renewal that may have left */
};

void driver_change(struct brain *b, const struct object *before, const struct object *after);
/* Its spec was changed while it runs, in what counts only from its next epoch on. */
bool driver_spec_waits(const struct object *before, const struct object *after);
void drivers_init(struct brain *b);
void drivers_reset(struct brain *b);
unsigned drivers_count(const struct brain *b);
/* ticks the drivers of t; called when its reach changed */
void drivers_tick_target(struct site *t);
void drivers_seat(struct site *t);   /* moves adrift drivers of a new site to it */
void drivers_unseat(struct site *t); /* makes the drivers of a site that goes adrift */
void drivers_drop(struct brain *b);
/* True when another agent speaks for the target than the one that was given this run: one with
 * another state folder. It knows nothing of the run, so what it says of it proves nothing. */
bool driver_estranged(const struct driver *d, const struct site *t);
struct driver *driver_find(struct brain *b, const char *uid);
void driver_free(struct driver *d); /* once no answer is awaited; each answer calls this again */
void driver_tick(struct driver *d);
void driver_later(struct driver *d, uint64_t ms);

#endif
