/* The order of a run that a connector gets, and what it may report of the run. */
#ifndef HANSE_CONTROLPLANE_LEADER_DRIVE_ORDER_H
#define HANSE_CONTROLPLANE_LEADER_DRIVE_ORDER_H

#include "controlplane/leader/context/context.h"

struct site;
int order_make(struct site *t, const struct object *workload, const struct placement *p,
               const struct run_key *k, struct arena *a, struct run_order *ret,
               struct err *err) MUST_CHECK;
/* Fills in what the Workload itself says, for the place and key that the caller names; texts are
 * the Workload's or in the arena. */
void order_resolve(const struct object *workload, struct arena *a, struct run_order *ret);
/* Makes the order without environment and lease, for reading the checkpoint to resume from. */
void order_stage(struct site *t, const struct object *workload, const struct placement *p,
                 const struct run_key *k, struct arena *a, struct run_order *ret);
/* What was sent under one key: by it the same order made anew is known, and nothing of it can be
 * read. */
struct order_sent {
    unsigned n;    /* how often */
    bool settled;  /* its target was asked about the key, or to end it: no order comes after that */
    uint64_t term; /* in which the leader sent it first */
    char memory[64]; /* whose the order was then (connector_ops.repeats); "": it is not repeated */
    unsigned char digest[32];
};
/* Notes that o is sent to t now. */
void order_note(struct order_sent *s, const struct run_order *o, const struct site *t);
/* True when the order may be sent to t once more, if it is the same. */
bool order_repeats(const struct order_sent *s, const struct site *t);
bool order_same(const struct order_sent *s, const struct run_order *o);
/* Checks a checkpoint that a target reported of a run of that epoch, or found. Neither a path
 * outside the workload's own store and epoch nor a number out of range may reach the log. */
int order_checkpoint_told(const struct object *workload, int64_t epoch,
                          const struct run_checkpoint_report *r, struct err *err) MUST_CHECK;
/* Returns the advised time in ms between two checkpoints that take write_ms each; 0: no advice. t
 * and p may be NULL. */
int64_t order_interval_ms(const struct site *t, const struct object *workload,
                          const struct placement *p, int64_t write_ms);

#endif
