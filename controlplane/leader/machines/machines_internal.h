/* What the files of this folder share. */
#ifndef HANSE_CONTROLPLANE_LEADER_MACHINES_INTERNAL_H
#define HANSE_CONTROLPLANE_LEADER_MACHINES_INTERNAL_H

#include "controlplane/leader/context/index.h"
#include "controlplane/leader/context/refusals.h"
#include "controlplane/leader/machines/machines.h"
#include "controlplane/leader/site/sites.h"

#define FARM_CALLS_MAX 16    /* of one Target at once */
#define FARM_STRANGERS_MAX 64 /* that are reported of one Target */
#define WAIT_MIN_MS 1000
#define WAIT_MAX_MS 60000

struct told { /* what a target said of a machine last, in memory of its own */
    bool any;
    enum machine_phase phase;
    char id[129], class_[64], zone[64], currency[4], reason[64], message[513];
    int64_t gpus, billed_from, billed_to;
    enum capacity market;
    double price;
};

struct farm;
struct unit { /* one Machine of the log that has not ended */
    struct list link;
    struct indexed by_key;
    struct farm *farm;
    char key[MACHINE_NAME_MAX], uid[64];
    bool calling, proposing, wanted; /* wanted: the root has it, of the look under way */
    struct brain_call call;
    struct told told;
    char unread[400]; /* why what was told last cannot be read; "": it can */
    uint64_t listed_in;   /* number of the listing in which, or after which, it was told of */
    uint64_t asked_ms;    /* loop time of the last order that this leader sent; 0: none */
    bool unknown;         /* what became of that order is not known */
    uint64_t retry_ms;    /* loop time before which nothing is asked again */
    uint64_t wait_ms;     /* the pause before that */
    uint64_t released_ms; /* loop time at which the target promised its end; 0: it did not */
    bool renew_due;       /* a renewal is in the log that the target may not have heard */
};

struct farm { /* the machines of one Target */
    struct brain *brain;
    struct list link;
    struct indexed by_target;
    char target[256];
    bool gone;          /* waits for its last answers, then is freed */
    unsigned awaited;   /* answers to calls and commands */
    unsigned calls;     /* calls about single machines under way */
    uint64_t since_ms;  /* loop time from which on it exists: earlier leaders asked before it */
    struct list units;
    void *by_key;

    /* listing: numbered from 1 */
    struct brain_call list_call;
    bool listing, list_due;
    uint64_t list_number, list_began_ms, list_after_ms, list_wait_ms;
    uint64_t complete_number, complete_began_ms; /* of the last one that came to its end */

    /* prices */
    struct brain_call price_call;
    bool pricing, prices_known;
    uint64_t prices_after_ms;
    struct farm_price {
        char class_[64], zone[64];
        int64_t gpus;
        enum capacity market;
        double price;
    } *prices; /* owned */
    size_t n_prices;
    char currency[4];

    /* renewals, one at a time */
    struct brain_call renew_call;
    bool renewing;
    uint64_t renew_after_ms, renew_wait_ms;
    char renewed[MACHINES_AT_ONCE][MACHINE_NAME_MAX];
    size_t n_renewed;
    uint64_t renew_ttl_ms;

    /* pools.c: one order at a time on its way into the log */
    bool ordering;
    uint64_t order_after_ms, order_wait_ms;
    char capped[64]; /* the pool of which it was told that its price is above the cap; "": none */
    int64_t early_told; /* since when the latest pause was that was told of */
    char unread[400];   /* what was told last of what cannot be read of no known machine */

    char strangers[FARM_STRANGERS_MAX][MACHINE_NAME_MAX];
    size_t n_strangers;
};

/* What is known of a Target in one look: all is borrowed for its length. */
struct farm_look {
    struct farm *farm;
    struct site *site;
    const struct root *root;
    const struct target *target;
    bool deleted; /* the Target is about to go: none is wanted */
    uint64_t now; /* loop time */
    int64_t time; /* the cluster's */
    const struct object **machines; /* of it, that have not ended; by name */
    size_t n;
};

/* ---- machines.c ---- */
struct unit *unit_find(struct farm *f, const char *key);
void farm_answered(struct farm *f); /* an answer has come: looks again soon */
void wait_longer(uint64_t *wait_ms, uint64_t now, uint64_t *ret_until_ms);
/* Proposes a step of one machine; told and pause may be NULL. */
void unit_propose(struct unit *u, enum machine_step step, const char *reason, const char *message,
                  struct machine_status *told, struct target_pause *pause);

/* ---- unit.c ---- */
void unit_look(const struct farm_look *l, struct unit *u, const struct object *o);
/* Its Target is deleted, and cannot be asked: it is given up, and it is said what may be left. */
void unit_leave(const struct farm_look *l, struct unit *u, const struct object *o);
void unit_told(struct unit *u, const struct machine_seen *m);
/* A listing that proves it shows none under that key; `since` is when it was last asked for. */
bool unit_unlisted(const struct farm_look *l, const struct unit *u, uint64_t since);

/* ---- ask.c: listings, prices, renewals ---- */
void farm_list(const struct farm_look *l);
void farm_ask_prices(const struct farm_look *l);
void farm_renew(const struct farm_look *l);

/* ---- pools.c ---- */
void farm_pools(const struct farm_look *l);
/* Something that it refused to such an order is not over yet. */
bool machine_paused(const struct farm_look *l, const char *pool, const char *class_,
                    const char *zone);

#endif
