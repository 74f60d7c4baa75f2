/* A callout server in memory, beneath the HTTP client by the scripted transport: it keeps the
 * protocol of connectors/callout/README.md, checks what is asked of it, and misbehaves once where a
 * test wants it. */
#ifndef HANSE_TESTS_SUPPORT_WEB_CALLOUT_WORLD_H
#define HANSE_TESTS_SUPPORT_WEB_CALLOUT_WORLD_H

#include "connectors/connector.h"
#include "tests/support/web/script_web.h"

#define CALLOUT_WORLD_KEY "a-secret-of-thirty-two-letters-or-more"
#define CALLOUT_WORLD_RUNS 256

enum callout_fault {
    FAULT_NO,
    FAULT_HTML,     /* 200, and no JSON */
    FAULT_UNSIGNED, /* as it should be, without a signature */
    FAULT_FORGED,   /* with a signature for another request */
    FAULT_OTHER,    /* of another run, signed */
    FAULT_HALF,
    FAULT_LOST, /* done, and not answered */
    FAULT_REDIRECT,
    FAULT_FLOOD,
    FAULT_TRICKLE,
    FAULT_DEEP,     /* signed: a JSON of a million brackets */
    FAULT_NO_PROOF, /* signed: ended, without a proof */
    FAULT_LEASE,    /* signed: ended, because a lease ran out */
    FAULT_RANGE,    /* signed: an exit status beyond all numbers */
    FAULT_500,
    FAULT_BUSY, /* signed 503 with Retry-After */
    FAULT_FAULTS
};
struct callout_world_run {
    struct run_key key;
    enum run_state state;
    int exit_code, term_signal;
    bool stopped;
    unsigned starts;
    uint64_t changed;    /* number of its last change */
    const char *node;    /* where it was put, not as ordered; on device 3 */
    const char *reports; /* what its runners have left behind, as JSON, or NULL */
    const char *workers; /* once it has ended after that of rank 0; as JSON, or NULL */
    bool searched;       /* its end is proved by a search */
};
struct callout_world_node {
    char name[16];
    unsigned cpu;       /* 0: it is gone */
    uint64_t changed;   /* revision of its last change */
    const char *notice; /* as JSON, or NULL */
    const char *others; /* likewise, as the next is */
    const char *faults;
    const char *devices; /* further fields, "gpus" or "counted", or NULL */
};
struct callout_world {
    struct loop *loop;
    const char *key; /* that it knows */
    bool silent;
    bool repeats;        /* it says that orders may be sent again */
    bool principals;     /* it says that it starts runs in the names of principals */
    bool starts_by;      /* it says that it keeps to startBy */
    bool reports;        /* it says that it hands on what runners leave behind */
    bool runner, stages; /* and that it starts runners; that it stages checkpoints */
    const char *staged;  /* what it answers to that, beside the key, as JSON */
    int staged_status;   /* 0: 200 */
    char skey[64];       /* of the last one, and how many were asked */
    unsigned n_staged;
    char order[4096];         /* the last one that came */
    bool queues;              /* what is submitted is pending first */
    enum callout_fault fault; /* of the next answer about a run */
    unsigned find_ms;         /* that an answer of what became of a run takes, once it is written */
    struct callout_world_run runs[CALLOUT_WORLD_RUNS];
    size_t n_runs;
    const char *row; /* a further one of the runs, as JSON, or NULL */
    uint64_t changes, row_changed;
    unsigned instance, polls, unauthorised, orders;
    size_t page; /* runs, or nodes, on a page; 0: all */
    struct callout_world_node nodes[8];
    size_t n_nodes;
    uint64_t revision, forgotten; /* of the nodes; of what is older it answers 410 */
    bool no_deltas;               /* it knows no changes of nodes, and answers with all */
    bool small_deltas;            /* one revision in an answer */
    unsigned listings, deltas;    /* begun; answered */
    unsigned nodes_ms;            /* that a page of nodes takes */
    const char *nodes_page;       /* it answers so in place of them, or NULL */
    /* what it answers about machines, the first page of it (else the last), and about prices */
    const char *machines, *more_machines;
};
extern struct callout_world callout_world;

void callout_world_begin(struct loop *l); /* and the script of the transport */
struct callout_world_run *callout_world_run(const struct run_key *k); /* NULL: never seen */
void callout_world_row(const char *row); /* in lists, and once in the changes */
/* It leaves the queue. */
void callout_world_seat_run(struct callout_world_run *r, const char *node);
void callout_world_node(const char *name, unsigned cpu); /* is made, changed or (0) removed */
void callout_world_end_run(struct callout_world_run *r, int exit_code);

#endif
