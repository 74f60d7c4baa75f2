/* The ledger: who held which devices and CPUs, from when to when, at what price and to what end;
 * and what stood idle.
 *
 * It is made by apply from what changes (ledger.c), so it needs no command and cannot be forgotten
 * by one. All of it is integers: 1/1000 GPU × ms; for the class LEDGER_CPU, 1/1000 CPU × ms, which
 * has no price of its own and never adds up with GPUs. For every set of whole UTC days, targets and
 * classes
 *
 *     sum of all causes = capacity × time + overhang × time            exactly
 *
 * where overhang is what is held on devices that are not known (any more): a node that vanished
 * proves no end. Money is made at the time of the report, by its lines' prices. */
#ifndef HANSE_CONTROLPLANE_STORE_LEDGER_H
#define HANSE_CONTROLPLANE_STORE_LEDGER_H

#include "controlplane/store/store.h"

/* C(NAME, number, "name", "what it means"); numbers are in the state and never reused. */
#define LEDGER_CAUSES(C)                                                                           \
    C(USEFUL, 1, "useful", "ran, and its work was kept (or still may be)")                         \
    C(STARTING, 2, "starting", "reserved, not yet seen running")                                   \
    C(UNKNOWN, 3, "unknown", "out of reach")                                                       \
    C(PREEMPTED, 4, "preempted", "work lost to a preemption: since the last verified checkpoint")  \
    C(RESTARTED, 5, "restarted", "work lost to an own failure or another move")                    \
    C(FAILED_NODE, 6, "failedNode", "work lost with its node, its runner or its lease")            \
    C(MIGRATING, 7, "migrating", "a destination that was held while work moved there")             \
    C(IDLE, 8, "idle", "ready, held by nobody")                                                    \
    C(UNAVAILABLE, 9, "unavailable", "not ready or out of reach, held by nobody")
enum ledger_cause {
#define C(c, n, name, doc) LEDGER_##c = (n),
    LEDGER_CAUSES(C)
#undef C
    /* What the causes add up to. */
    LEDGER_CAPACITY = 10,
    LEDGER_OVERHANG = 11,
    LEDGER_CAUSE_NR
};
const char *ledger_cause_text(enum ledger_cause c); /* "?" for what is none */
/* Work that was done and lost. */
static inline bool ledger_cause_lost(enum ledger_cause c)
{
    return c == LEDGER_PREEMPTED || c == LEDGER_RESTARTED || c == LEDGER_FAILED_NODE;
}

#define LEDGER_CPU "CPU" /* no GpuClass can have this name */

__extension__ typedef __int128 ledger_amount; /* 1/1000 GPU × ms */
#define LEDGER_GPU_HOUR 3600000000.0          /* of them in one GPU-hour */
#define LEDGER_DAY_MS 86400000ll

/* One line of one UTC day. Texts are "" where nothing is known, or where old lines were folded. */
struct ledger_line {
    int64_t day; /* days since 1970-01-01 */
    enum ledger_cause cause;
    enum capacity basis; /* owned, reserved, spot, onDemand */
    bool priced;         /* false: its price is not known, its money is 0 */
    double price;        /* per GPU-hour; 0 in lines that were folded over prices */
    const char *target, *class_, *queue, *project, *user, *workload, *experiment;
    ledger_amount amount;
    double money;
};
/* Every line of the state, what is still open counted up to now_ms. Lines with equal keys may come
 * more than once, in no particular order; texts are borrowed for the call. */
void ledger_scan(const struct root *r, int64_t now_ms,
                 void (*each)(const struct ledger_line *l, void *arg), void *arg);

/* ---- what queues have used, for fair share ---- */
/* What is older has less than a thousandth left, and counts no more. */
#define LEDGER_USE_WEEKS 10
/* GPU-hours of each queue itself (without those below it), whatever came of them, but not the
 * destinations that moves hold beside what they leave. They halve every 7 days (the default of
 * Slurm's PriorityDecayHalfLife), each UTC day's from its middle to the hour of now_ms. A queue
 * comes several times: add up. Costs a few cells a queue, not the ledger. The same root and now
 * give the same calls in the same order. */
void ledger_use(const struct root *r, int64_t now_ms,
                void (*each)(const char *queue, double gpu_hours, void *arg), void *arg);

/* ---- reports ---- */
#define LEDGER_BY(B)                                                                               \
    B(QUEUE, "queue")                                                                              \
    B(PROJECT, "project")                                                                          \
    B(WORKLOAD, "workload")                                                                        \
    B(CAUSE, "cause")                                                                              \
    B(CLASS, "class")                                                                              \
    B(TARGET, "target")                                                                            \
    B(USER, "user") B(EXPERIMENT, "experiment") B(CAPACITY, "capacity") B(DAY, "day")
enum ledger_by {
#define B(b, name) LEDGER_BY_##b,
    LEDGER_BY(B)
#undef B
        LEDGER_BY_NR
};
const char *ledger_by_text(enum ledger_by b);
bool ledger_by_named(const char *name, size_t n, enum ledger_by *ret);

struct ledger_query {
    enum ledger_by by[LEDGER_BY_NR]; /* in this order */
    unsigned n_by;
    int64_t from_day, to_day;         /* whole UTC days, to_day is not in it; 0, INT64_MAX = all */
    const char *filter[LEDGER_BY_NR]; /* exactly this value; NULL = any */
    size_t rows_max;
};
struct ledger_sum {
    ledger_amount amount, lost, unpriced; /* of GPUs */
    ledger_amount cpu;
    double money, money_lost;
};
struct ledger_row {
    const char *key[LEDGER_BY_NR]; /* one per `by` */
    struct ledger_sum sum;
};
struct ledger_report {
    struct ledger_row *rows; /* dearest first; by day: in the order of their keys */
    size_t n, omitted;       /* rows that rows_max left out; they are in the totals */
    struct ledger_sum total;
    /* Of the days, targets and classes asked for, whatever else is filtered: */
    ledger_amount intervals, capacity, overhang;
    ledger_amount cpu_intervals, cpu_capacity, cpu_overhang;
    int64_t folded[3]; /* newest days of which workloads; users and experiments; days, prices are
                          folded; -1 = none */
};
/* Everything in arena a. Reads the root only: any thread. */
void ledger_report_make(const struct root *r, int64_t now_ms, const struct ledger_query *q,
                        struct arena *a, struct ledger_report *ret);
void ledger_amount_print(ledger_amount v, char out[48]);

#endif
