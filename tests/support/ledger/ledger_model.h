/* What the ledger should say, worked out anew from the stream of changes: device by device, moment
 * by moment, with no bounds and no cleverness. Shares no code with controlplane/store/ledger*.c but
 * the names of the causes. */
#ifndef HANSE_TESTS_SUPPORT_LEDGER_MODEL_H
#define HANSE_TESTS_SUPPORT_LEDGER_MODEL_H

#include "controlplane/store/ledger/ledger.h"

struct ledger_model;
struct ledger_model *ledger_model_create(int64_t now);
void ledger_model_destroy(struct ledger_model *m);
/* Ahead of an entry of that time; then every change that it made, in order. */
void ledger_model_time(struct ledger_model *m, int64_t now);
void ledger_model_change(struct ledger_model *m, const struct change *c);

struct ledger_difference {
    unsigned level;      /* of folding that it was compared at: 0 = every field of every line */
    uint64_t lines;      /* compared */
    uint64_t wrong;      /* lines whose amounts differ, or that only one of both has */
    bool others;         /* others than Hanse hold something in them */
    bool measured;       /* of something that ran it was measured how much it did */
    double money;        /* largest relative difference of a cause's money */
    char example[400];   /* one that is wrong */
    ledger_amount error; /* all causes - capacity × time - overhang × time */
};
/* Compares all lines of the root, open ones counted up to the last time told. */
void ledger_model_compare(struct ledger_model *m, const struct root *r,
                          struct ledger_difference *ret);
/* status.spent that differed from what the model booked for that workload. */
uint64_t ledger_model_spent_wrong(const struct ledger_model *m);

#endif
