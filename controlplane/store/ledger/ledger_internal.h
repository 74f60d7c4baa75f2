/* What the files of the ledger share; only they and the tests include it.
 *
 *   tree       key               value
 *   cells      node, class, kind which devices are there, which are sick, how much of each is held
 *   accounts   target, class     rates of capacity, idle …, and their integrals since the window
 *                                began
 *   open       'w' or 'm', uid   an allocation that is held now: a Workload's epoch, or the
 *                                destination of a Migration
 *   intervals  number            the newest closed allocations
 *   totals     line              sums by levels: each level keeps fewer columns */
#ifndef HANSE_CONTROLPLANE_STORE_LEDGER_INTERNAL_H
#define HANSE_CONTROLPLANE_STORE_LEDGER_INTERNAL_H

#include "controlplane/store/ledger/ledger.h"
#include "controlplane/store/store_internal.h"

#define LEDGER_DEVICES 256 /* devices of a node; only the first LEDGER_HELD_DEVICES can be placed */
#define LEDGER_HELD_DEVICES 64
#define LEDGER_KINDS 5 /* values of enum capacity; 0: the node does not say */
/* of one epoch: runs cut by times out of reach, not yet in a checkpoint */
#define LEDGER_SEGMENTS 16
#define LEDGER_TEXT_MAX 255  /* bytes of one text of a line */
#define LEDGER_LINE_MAX 2048 /* bytes of an encoded line */
#define LEDGER_YEARLY 3      /* from this level on lines are by year, and prices are folded */

struct device_set {
    uint64_t bits[LEDGER_DEVICES / 64];
};
struct cell_box {
    struct box box;
    /* devices that exist; those of them that are not usable */
    struct device_set there, sick;
    uint32_t held[LEDGER_HELD_DEVICES]; /* milli-GPU held of each device */
    uint64_t kind;                      /* enum capacity of its node */
    int64_t cpus, cpus_held;            /* milli-CPU of the class LEDGER_CPU */
    uint64_t cpus_sick;
    /* Held by others than Hanse: devices, further ones without a number, milli-CPU. */
    struct device_set others;
    int64_t others_more, cpus_others;
    /* Devices without numbers, instances and shares, in milli-GPU: how much there is, of this the
     * unhealthy ones', what others hold, and what is held. Of a node that is down none is
     * healthy. */
    int64_t counted, counted_sick, counted_others, counted_held;
};
/* Rates in 1/1000 GPU; integrals in 1/1000 GPU × ms. ok + sick + others + held = capacity + over.
 * What a run of ours holds is never others': they have what is left of it. */
struct rates {
    int64_t capacity, over, held;
    int64_t ok[LEDGER_KINDS], sick[LEDGER_KINDS]; /* held by nobody, by kind */
    int64_t others[LEDGER_KINDS];
};
struct account_box {
    struct box box;
    /* UTC ms. [from, until): the window, within one day and one set of prices; sum is up to
     * `since` */
    int64_t from, since, until;
    struct rates now, sum;
    double price[LEDGER_KINDS];
    uint64_t priced; /* bit for each kind whose price is known */
    uint64_t kind;   /* the kind that kind 0 stands for */
    uint64_t reach;  /* 1 while the target is in reach */
};
struct segment {
    int64_t from, to; /* UTC ms */
    enum ledger_cause cause;
};
struct open_box {
    struct box box;
    int64_t from, since; /* UTC ms: begin of the allocation, and of its present state */
    uint64_t state;      /* enum ledger_cause: STARTING, USEFUL, UNKNOWN or MIGRATING */
    uint64_t ran;        /* 1 once it has run */
    /* run: times of running that ended out of reach and have no verified checkpoint after them */
    uint32_t n;
    struct segment run[];
};
struct interval_box {
    struct box box;
    /* from, to: UTC ms; milli: milli-GPU or milli-CPU held */
    int64_t from, to, milli, epoch;
    uint32_t n;
    char line[]; /* the encoded line, with day 0 */
};
struct total_box {
    struct box box;
    ledger_amount amount;
    double money; /* kept at yearly levels only */
};

struct use_box {
    struct box box;
    ledger_amount weighted;
    int64_t milli;
};

typedef void (*ledger_sink)(void *arg, const struct ledger_line *l);

/* ---- ledger_line.c: a line as bytes, in the order of days ---- */
size_t line_encode(const struct ledger_line *l, char out[LEDGER_LINE_MAX]);
/* The texts of *ret point into the bytes. False when the bytes are not a line. */
bool line_decode(struct slice in, struct ledger_line *ret);
void line_fold(unsigned level, struct ledger_line *l);
double line_money(ledger_amount amount, double price); /* gives the same bits on every machine */

/* ---- ledger_book.c: closed intervals and totals ---- */
void ledger_total_add(struct root *w, unsigned level, const struct ledger_line *l);
void ledger_interval_add(struct root *w, const struct ledger_line *l, int64_t epoch, int64_t milli,
                         int64_t from, int64_t to);
/* Passes one line for each day of milli × [from, to) to the sink. */
void ledger_days(const struct ledger_line *l, int64_t milli, int64_t from, int64_t to,
                 ledger_sink sink, void *arg);
/* takes b over */
void ledger_put_interval(struct root *w, struct slice key, struct interval_box *b);
void ledger_put_total(struct root *w, unsigned level, struct slice key, struct total_box *b);

/* ---- ledger_account.c ---- */
/* `since` of an account made from objects while a snapshot is read: the digest has it not yet. */
#define LEDGER_NOT_BEGUN INT64_MIN
void account_key(struct key *k, const char *target, const char *class_);
void account_change(struct root *w, const char *target, const char *class_,
                    const struct rates *delta, bool load);
/* Advances the account to t; the sums of each window that ends on the way go to the sink. */
void account_advance(const struct root *r, struct slice key, struct account_box *a, int64_t t,
                     ledger_sink sink, void *arg);
void account_flush(const char *target, const char *class_, const struct account_box *a,
                   ledger_sink sink, void *arg);
void account_begin(const struct root *r, struct slice key, struct account_box *a, int64_t t);
/* Called around a change of a Target or PriceSheet. Before it (begin false) it closes all windows
 * at the old prices; after it, it begins new ones. */
void accounts_reprice(struct root *w, const struct object *before, const struct object *after,
                      bool begin);
void account_store(struct root *w, struct slice key, struct account_box *b); /* takes b over */
/* True when a placement of price 0 has a known price. */
bool account_free(const struct root *r, const char *target, const char *class_, enum capacity kind);

/* ---- ledger_hold.c: open allocations ---- */
/* The placement that a Workload or a Migration holds, when it can be booked; else NULL. */
const struct placement *ledger_hold(const struct root *r, const struct object *o);
int64_t hold_milli(const struct placement *p); /* milli-GPU */
int64_t hold_cpu(const struct placement *p);
static inline bool class_cpu(const char *class_)
{
    return strcmp(class_, LEDGER_CPU) == 0;
}
static inline bool node_booked(const struct assignment *a)
{
    return *a->node && strlen(a->node) <= 253;
}
static inline bool assignment_booked(const struct assignment *a)
{
    return node_booked(a) && a->gpuMilli > 0 && a->gpuMilli <= 1000;
}
static inline int64_t counted_booked(const struct assignment *a) /* milli-GPU */
{
    return a->count > 0 && a->count <= LIMIT_NODE_COUNTED ? a->count * a->gpuMilli : 0;
}
/* Larger numbers are no real CPUs. */
static inline bool cpu_booked(int64_t milli)
{
    return milli > 0 && milli < (int64_t)1 << 40;
}
static inline bool device_booked(int64_t device)
{
    return device >= 0 && device < LEDGER_HELD_DEVICES;
}
void hold_begin(struct root *w, const struct object *o, int64_t at);
void hold_step(struct root *w, const struct object *before, const struct object *after);
void hold_end(struct root *w, const struct object *before, const struct object *after);
/* True when the new body goes on with the same allocation. */
bool hold_goes_on(const struct root *r, const struct object *before, const void *body);
void hold_scan(const struct root *r, int64_t now, ledger_sink sink, void *arg);
void open_key(struct key *k, const struct object *o);
/* takes b over; NULL removes */
void open_store(struct root *w, struct slice key, struct open_box *b);

/* ---- ledger_use.c ---- */
/* Decayed use of queues. t: the tree `use`; sign -1 subtracts what was added. */
void use_interval(struct tree **t, const struct interval_box *b, int sign);
/* l: of a level that keeps days */
void use_day(struct tree **t, const struct ledger_line *l, int sign);
void use_open(struct tree **t, const struct object *o, const struct open_box *b, int sign);
void use_check(const struct root *r);

/* ---- ledger.c: cells ---- */
void ledger_hold_cells(struct root *w, const struct placement *p, int sign, bool load);
#endif
