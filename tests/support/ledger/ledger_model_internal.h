/* What the two files of the plain replay share. */
#ifndef HANSE_TESTS_SUPPORT_LEDGER_MODEL_INTERNAL_H
#define HANSE_TESTS_SUPPORT_LEDGER_MODEL_INTERNAL_H

#include "tests/support/ledger/ledger_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts as numbers ---- */
struct texts {
    char **v;
    int n, cap;
    int *table;
    int size;
};

/* ---- lines → amounts ---- */
struct line_key {
    int64_t day;
    double price;
    int cause, basis, priced, target, class_, queue, project, user, workload, experiment;
};
_Static_assert(sizeof(struct line_key) == 56, "compared as bytes: no padding");
struct cell {
    struct line_key key;
    ledger_amount amount;
    double money;
    bool used;
};
struct book {
    struct cell *v;
    size_t n, cap;
};

/* ---- the model ---- */
struct device {
    int target, class_, node;
    int64_t index;
    int kind;
    int slice;    /* a text: what it is an instance of, "shares", or "" */
    int64_t size; /* in 1/1000 GPU */
    bool ready;
    bool named;   /* others hold this one */
    int64_t more; /* and of its node and class so many that have no number */
    int64_t held, others;
};
struct span {
    int64_t from, to;
    int state; /* enum ledger_cause */
    bool kept;
};
struct share {
    int node, slice;
    int64_t index, milli;
};
struct alloc {
    int id; /* uid */
    bool move;
    int64_t epoch, since;
    struct line_key line;
    int64_t milli, begun;
    struct share *shares;
    int n_shares;
    struct span *spans; /* closed */
    int n_spans;
    int state;
    bool ran;
    int owner;                           /* of a Workload: NS/NAME */
    int64_t measured, idle, measured_at; /* of its GPUs, from then on; while it runs */
};
struct owner { /* a Workload as it is now */
    int queue, user, experiment;
    double hours, cost, wasted;
    bool there;
};
struct move {
    enum move_cause cause;
};
struct ledger_model {
    int64_t now;
    struct texts texts;
    struct device *devices;
    int n_devices;
    struct alloc *allocs;
    int n_allocs;
    const struct object **targets, **sheets; /* by text number; references */
    struct owner *owners;                    /* by text number of NS/NAME */
    struct move *moves;
    int by_text; /* room in the four */
    struct book book;
    uint64_t spent_wrong;
    bool stale; /* devices' held is to be counted anew */
};

/* a text's number; the four have room for it */
int model_id(struct ledger_model *m, const char *s);
int model_name(struct ledger_model *m, const char *ns, const char *name);
struct cell *book_at(struct book *b, const struct line_key *k);
/* milli × [from, to), one line per day */
void book_days(struct book *b, struct line_key k, int64_t milli, int64_t from, int64_t to);
/* What an allocation did, as lines: runs that are not safe are lost as told. */
void alloc_write(const struct alloc *a, struct book *b, struct line_key k, int64_t safe, int lost,
                 ledger_amount *ret_lost);
void alloc_owner(struct ledger_model *m, struct line_key *k, int owner);
/* ledger_use.c: of what it holds, what was measured, and did nothing. */
void model_use_book(struct ledger_model *m, const struct alloc *a, int64_t measured, int64_t idle,
                    int64_t from, int64_t to);
void model_use_change(struct ledger_model *m, struct alloc *a, const struct workload_status *s);

#endif
