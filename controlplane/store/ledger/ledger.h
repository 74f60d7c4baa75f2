/* The ledger: which workload held which devices and CPUs, from when to when, at what price and with
 * what outcome; and what stood idle.
 *
 * Apply makes it from the changes of objects (ledger.c), so it needs no command of its own and no
 * command can forget it. All amounts are integers: 1/1000 GPU × ms; for the class LEDGER_CPU,
 * 1/1000 CPU × ms, which has no price of its own and never adds up with GPUs. For every set of
 * whole UTC days, targets and classes
 *
 *     sum of all causes = capacity × time + overhang × time            exactly
 *
 * where capacity is all that the nodes have, and what others than Hanse hold of it is a cause like
 * any other. How much of what ran was measured, and did nothing, are lines beside these
 * (ledger_cause_part). Overhang is what is held on devices that are not known (any more): a node
 * that vanished proves no end. A report computes money from the prices of its lines. */
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
    C(UNAVAILABLE, 9, "unavailable", "not ready or out of reach, held by nobody")                  \
    C(OTHERS, 12, "others", "held by others than Hanse, as its target tells")                      \
    C(MEASURED, 13, "measured", "of what ran: GPUs whose use its target measured")                 \
    C(HELD_IDLE, 14, "heldIdle", "of what was measured: GPUs that did nothing")
enum ledger_cause {
#define C(c, n, name, doc) LEDGER_##c = (n),
    LEDGER_CAUSES(C)
#undef C
    /* The sums that the causes add up to. */
    LEDGER_CAPACITY = 10,
    LEDGER_OVERHANG = 11,
    LEDGER_CAUSE_NR = 15
};
const char *ledger_cause_text(enum ledger_cause c); /* "?" for no cause */
/* True for those that are sums. */
static inline bool ledger_cause_sum(enum ledger_cause c)
{
    return c == LEDGER_CAPACITY || c == LEDGER_OVERHANG;
}
/* True for those that tell more of what another cause has in its sum: they are in no balance. */
static inline bool ledger_cause_part(enum ledger_cause c)
{
    return c == LEDGER_MEASURED || c == LEDGER_HELD_IDLE;
}
/* True for causes of work that was done and lost. */
static inline bool ledger_cause_lost(enum ledger_cause c)
{
    return c == LEDGER_PREEMPTED || c == LEDGER_RESTARTED || c == LEDGER_FAILED_NODE;
}

#define LEDGER_CPU "CPU" /* no GpuClass can have this name */

__extension__ typedef __int128 ledger_amount; /* 1/1000 GPU × ms */
#define LEDGER_GPU_HOUR 3600000000.0          /* amount of one GPU-hour */
#define LEDGER_DAY_MS 86400000ll

/* One line of one UTC day. A text is "" where nothing is known, or where old lines were folded. */
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
/* Passes every line of the state to each(); open allocations count up to now_ms. Lines with equal
 * keys may come more than once, in no particular order; texts are borrowed for the call. */
void ledger_scan(const struct root *r, int64_t now_ms,
                 void (*each)(const struct ledger_line *l, void *arg), void *arg);

/* ---- what queues have used, for fair share ---- */
/* Older use has less than a thousandth of its weight left, and is not counted. */
#define LEDGER_USE_WEEKS 10
/* Passes the GPU-hours of each queue itself (without its children) to each(), whatever became of
 * the work, but without destinations that moves hold beside the old place. They halve every 7 days
 * (the default of Slurm's PriorityDecayHalfLife), each UTC day's from its middle to the hour of
 * now_ms. A queue may come several times: the caller adds up. The cost is a few cells a queue, not
 * the ledger. The same root and now_ms give the same calls in the same order. */
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
    enum ledger_by by[LEDGER_BY_NR]; /* the columns, in this order */
    unsigned n_by;
    int64_t from_day, to_day;         /* whole UTC days, to_day excluded; 0 and INT64_MAX: all */
    const char *filter[LEDGER_BY_NR]; /* exactly this value; NULL: any */
    size_t rows_max;
};
struct ledger_sum {
    ledger_amount amount, lost, unpriced; /* amounts of GPUs */
    ledger_amount cpu;                    /* amount of CPUs, in 1/1000 CPU × ms */
    double money, money_lost;
    /* Of the amount of GPUs: those whose use was measured, and of these those that did nothing,
     * with what they cost. Whether such work was lost is known later than what it used: a row of
     * one cause tells neither. */
    ledger_amount measured, idle;
    double money_idle;
};
struct ledger_row {
    const char *key[LEDGER_BY_NR]; /* one for each of `by` */
    struct ledger_sum sum;
};
struct ledger_report {
    /* sorted by money, dearest first; by day: in the order of their keys */
    struct ledger_row *rows;
    size_t n, omitted; /* omitted: rows beyond rows_max, which the totals include */
    struct ledger_sum total;
    /* For the days, targets and classes asked for, whatever the other filters are: */
    ledger_amount intervals, capacity, overhang;
    ledger_amount cpu_intervals, cpu_capacity, cpu_overhang;
    int64_t folded[3]; /* newest days of which workloads; users and experiments; days, prices are
                          folded; -1 = none */
};
/* Makes a report in arena a. It reads only the root: any thread may call it. */
void ledger_report_make(const struct root *r, int64_t now_ms, const struct ledger_query *q,
                        struct arena *a, struct ledger_report *ret);
void ledger_amount_print(ledger_amount v, char out[48]);

#endif
