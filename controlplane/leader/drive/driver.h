/* One driver for each workload that holds a place. Level-triggered: driver_tick looks at the root
 * and at what was seen, and does at most one thing; every callback stores its result and ticks
 * again. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_DRIVER_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_DRIVER_H

#include "controlplane/leader/context/context.h"

struct site;
struct drivers {
    struct list adrift; /* whose Target is not there */
    void *by_uid;       /* tsearch tree */
    unsigned n;
};

struct driver {
    struct brain *brain;
    struct list seat; /* among those of its target, or with those that are adrift */
    char uid[64], ns[64], name[256], target[256];
    struct run_key key;     /* epoch and try by the root */
    const struct object *o; /* the workload as the newest root has it; a reference */
    bool dead;              /* gone from the root; freed once nothing is under way */
    bool begun;             /* move/begin.c: a Migration of it is on its way into the log */
    /* intent that this brain committed in this term and has not submitted yet */
    int64_t own_try, own_epoch;
    bool quiesced;           /* the signal of this intent was delivered */
    uint64_t stop_after_ms;  /* quiesce: stop for good then */
    struct observation seen; /* newest for `key` */
    bool has_seen;
    uint64_t found_session; /* session in which find() last answered */
    uint64_t unknown_since_ms;
    uint32_t backoff_ms;
    struct timer again;

    /* calls.c */
    bool proposing, calling;  /* one thing at a time */
    unsigned telling;         /* checkpoints on their way into the log */
    int64_t told_step;        /* of the newest that was proposed in this epoch; -1 = none */
    unsigned bad_checkpoints; /* refused in this epoch */
    struct call call;
    int call_kind;
    struct run_key call_key; /* what the call is about: its answer says nothing of another run */
    bool held_back; /* limits.inFlight of its target: it calls when another's call is answered */
    uint64_t call_site;
    char call_target[256];  /* the site that its call is counted on */
    struct call hurry;      /* a shorter grace than that of the stop under way, */
    bool hurrying;          /* which goes on meanwhile */
    uint64_t stop_grace_ms; /* that this try was last told to stop within; 0: at once, or untold */

    /* observed.c */
    int64_t foreign_epoch; /* in which its target told one that is not its own */

    /* look.c */
    int64_t looked_epoch;   /* ahead of it the store was looked through, or given up */
    int64_t look_epoch;     /* ahead of it that began, */
    uint64_t look_until_ms; /* and then it is given up */

    /* lease.c */
    uint64_t renewed_ms; /* no runner of it counts its lease from later than this */
};

void driver_change(struct brain *b, const struct object *before, const struct object *after);
void drivers_init(struct brain *b);
void drivers_reset(struct brain *b);
unsigned drivers_count(const struct brain *b);
void drivers_tick_target(struct site *t); /* its reach changed */
void drivers_seat(struct site *t);        /* a new one: those that were adrift come to it */
void drivers_unseat(struct site *t);      /* it goes: its drivers are adrift */
void drivers_drop(struct brain *b);
/* Who speaks for the target now is not who was given this run: another state folder. It knows
 * nothing of it, so whatever it says of it proves nothing. */
bool driver_estranged(const struct driver *d, const struct site *t);
struct driver *driver_find(struct brain *b, const char *uid);
void driver_tick(struct driver *d);
void driver_later(struct driver *d, uint64_t ms);

#endif
