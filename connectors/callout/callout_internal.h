/* What the files of the callout driver share. Nobody outside connectors/callout includes this. */
#ifndef HANSE_CONNECTORS_CALLOUT_INTERNAL_H
#define HANSE_CONNECTORS_CALLOUT_INTERNAL_H

#include "connectors/callout/callout.h"
#include "connectors/callout/callout.def"
#include "connectors/home/home.h"
#include "connectors/web/web.h"

CALLOUT_SCHEMAS(SCHEMA_STRUCT)
#define X(s) extern const struct schema schema_##s;
CALLOUT_SCHEMAS(X)
#undef X

#define CALLOUT_ANSWER_MAX ((size_t)4 << 20)
#define CALLOUT_PAGES_MAX 1000
#define CALLOUT_ROWS_MAX 10000 /* of one page */
/* An attempt of a call; it is asked again under the same key until its deadline. */
#define CALLOUT_ATTEMPT_MS 5000ull

struct callout {
    struct connector base;  /* first */
    struct object *doc;     /* the Target; holds a reference */
    struct web_client *web; /* NULL: `why` says what is missing */
    /* That requests and answers are signed with; wiped. other_key: NULL where the Secret has one
     * key; use_other: the server has told that it does not take the first. */
    char *key, *other_key;
    bool use_other;
    char why[256];

    /* the session: what one instance of the server tells, without a gap */
    bool reachable;
    bool checkpoints; /* its server hands home.options on */
    bool repeats;     /* an order sent again is the same run */
    bool starts_by;   /* it keeps to startBy and startFrom of an order */
    bool reports;     /* it hands on what runners leave behind */
    bool stages;      /* and what is found of checkpoints; as it said last, also out of reach */
    char instance[CALLOUT_ID_MAX + 1];
    /* of the nodes: as the changes say; as they were read last, "": not yet in this session */
    char told_revision[CALLOUT_ID_MAX + 1], revision[CALLOUT_ID_MAX + 1];
    int64_t next;
    uint64_t sessions;
    unsigned failures; /* polls in a row */
    uint64_t pace_ms;  /* between two polls that told nothing */
    uint64_t asked_ms; /* when the poll under way began */
    struct timer poll;
    struct web_request *polling;

    /* of this session, of the listing and the deltas so far; owned */
    struct callout_noticed *noticed;
    size_t n_noticed;

    struct list calls;
    struct home_runs *home; /* its runners that call home */
};

#define CALLOUT_SKEY_MAX 33
enum callout_op {
    CALLOUT_PROBE,
    CALLOUT_NODES,
    CALLOUT_SUBMIT,
    CALLOUT_FIND,
    CALLOUT_SIGNAL,
    CALLOUT_STOP, /* waits for the proof of the end, after the answer too */
    CALLOUT_LIST,
    CALLOUT_TOLD,  /* its runners have been told; only the answer waits */
    CALLOUT_LOOK,  /* a find that nobody waits for */
    CALLOUT_STAGE, /* asked again until it is done */
    CALLOUT_ORDER, /* a stop, a claim or a forgetting that nobody waits for */
    /* from here on callout_machines.c */
    CALLOUT_MACHINE, /* an order or a release of one */
    CALLOUT_MACHINES,
    CALLOUT_RENEWAL,
    CALLOUT_PRICES
};
struct callout_call {
    struct callout *c;
    struct list link; /* callout.calls */
    enum callout_op op;
    struct call *call; /* NULL: nobody waits */
    struct run_key key;
    char machine[MACHINE_KEY_MAX]; /* that it is about */
    /* of CALLOUT_STAGE: what is asked, in an arena; its key; the pause until it is asked again */
    struct arena *mem;
    const struct callout_stage *stage;
    char skey[CALLOUT_SKEY_MAX];
    uint64_t pace_ms;
    struct web_request *rq;
    struct timer deadline; /* while no request is under way */
    struct err why;        /* rejected, before anything was sent */
    run_judge judge;
    void *judge_arg;
    unsigned n_pages;
    size_t n_unread; /* of a list: rows of it so far that could not be read */
    char revision[CALLOUT_ID_MAX + 1]; /* of the listing of nodes that it reads */
    char since[CALLOUT_ID_MAX + 1];    /* it asks for what changed since then; "": for all */
};

struct cJSON;
struct callout *callout_of(struct connector *c);

/* callout_wire.c: bodies and signatures */
web_sign callout_signer(void);
/* Returns 0 when the answer is signed for this very request. */
int callout_verify(struct callout *c, const struct web_answer *a, struct err *err) MUST_CHECK;
/* An answer's JSON, or NULL, without what its Target's Secret has and without tokens of runners: a
 * server that quotes what it was sent gives away neither. The caller frees it. */
struct cJSON *callout_body(const struct callout *c, const struct web_answer *a);
int callout_read(const struct callout *c, const struct schema *schema, const struct web_answer *a,
                 struct arena *arena, void **ret, struct err *err) MUST_CHECK;
/* The same of a body that has a list, whose rows are read one by one: what cannot be read in one of
 * them spoils no other. *ret_rows: NULL or an array of at most CALLOUT_ROWS_MAX, which the caller
 * frees. */
int callout_read_rows(const struct callout *c, const struct schema *schema, const char *rows,
                      const struct web_answer *a, struct arena *arena, void **ret,
                      struct cJSON **ret_rows, struct err *err) MUST_CHECK;
int callout_row_read(const struct schema *schema, const struct cJSON *row, struct arena *arena,
                     void **ret, struct err *err) MUST_CHECK;
/* A row of runs that cannot be read is told of, by its key where that can be read; *ret_key, which
 * may be NULL, is set then. Returns whether it can. */
bool callout_row_unread(const struct callout *c, const struct cJSON *row, const struct err *why,
                        struct run_key *ret_key);
/* Takes in what a server says of a run and of its workers, and what its runners have left behind,
 * or refuses what it cannot say. What is added to `workers` is in the arena. */
int callout_seen(const struct callout *c, struct observation *o,
                 const struct callout_reported *left, struct run_workers *workers, struct arena *a,
                 struct err *err) MUST_CHECK;
/* Tells what the server says of a run's workers, ahead of what is seen of it. Where a run was put
 * that has left the server's own queue is told, too; where the answer does not say so, it was put
 * where it was ordered. */
void callout_workers(const struct callout *c, const struct observation *o,
                     const struct run_workers *told);
int callout_order_make(const struct callout *c, const struct run_order *o, struct arena *a,
                       struct callout_order *ret, struct err *err) MUST_CHECK;
/* "TARGET.node" → "node" */
const char *callout_node(const struct callout *c, const char *name);

/* callout_calls.c */
void callout_calls_lost(struct callout *c, const char *why);
void callout_observed(struct callout *c,
                      struct observation *o); /* ends the stops that it answers */
struct callout_call *callout_call_make(struct callout *c, struct call *call, enum callout_op op,
                                       const struct run_key *k);
void callout_call_end(struct callout_call *k, enum outcome out, const struct observation *seen,
                      const struct err *err);
/* Ends it by a fresh callback: never from inside the call that asked. */
void callout_call_reject(struct callout_call *k, const struct err *err);
/* path: after "/v1", borrowed; schema NULL: no body. */
void callout_call_send(struct callout_call *k, const char *method, const char *path,
                       const struct schema *schema, const void *body);
/* Told by a fresh callback: never from inside the call that asked. */
void callout_call_reject(struct callout_call *k, const struct err *err);
void callout_submit(struct connector *base, const struct run_order *o, struct call *call);
void callout_find(struct connector *base, const struct run_key *key, struct call *call);
void callout_quiesce(struct connector *base, const struct run_key *key, int signo,
                     uint64_t grace_ms, struct call *call);
void callout_stop(struct connector *base, const struct run_key *key, uint64_t grace_ms,
                  struct call *call);
void callout_probe(struct connector *base, struct call *call);

void callout_look(struct callout *c, const struct run_key *key);

/* callout_home.c: runners that call home */
bool callout_has_runners(const struct callout *c); /* by its Target */
void callout_home_begin(struct callout *c);
void callout_home_end(struct callout *c, const char *why);
/* Fills in what the order of a run brings its runners. An error: they could not call home. */
int callout_home_order(const struct callout *c, const struct run_order *o, struct arena *a,
                       struct callout_order *ret, struct err *err) MUST_CHECK;
void callout_members(struct connector *base, const char *const *addresses, size_t n);
int callout_runner(struct connector *base, const struct home_arrival *a, struct err *err);
/* True when all its runners are here, and were told. */
bool callout_runners_stop(struct callout *c, const struct run_key *k, int signo, uint64_t grace_ms);
bool callout_reaches(const struct connector *base, const struct run_key *k);
void callout_checkpoint(struct connector *base, const struct run_key *key, int64_t number,
                        uint64_t grace_ms, struct call *call);
int callout_logs(struct connector *base, const struct run_key *k, const struct log_request *rq,
                 const struct log_sink *sink, struct exec_session **ret, struct err *err);
int callout_exec(struct connector *base, const struct run_key *k, const struct exec_request *rq,
                 const struct log_sink *sink, struct exec_session **ret, struct err *err);
int callout_forward(struct connector *base, const struct run_key *k,
                    const struct forward_request *rq, const struct log_sink *sink,
                    struct exec_session **ret, struct err *err);
void callout_renew(struct connector *base, const struct run_offer *offers, size_t n);

/* callout_reports.c: what runners leave behind */
/* Fills in what the order of a run brings them, once callout_home_order has. */
void callout_report_order(const struct callout *c, const struct run_order *o, struct arena *a,
                          struct callout_order *ret);
/* Adds to what the server says of a run, and of those workers of which it tells at all, what its
 * runners have signed: how it ended, and its newest
 * checkpoint. That it has ended is the server's word alone. An error: they contradict each
 * other. */
int callout_reports_take(const struct callout *c, struct observation *o,
                         const struct callout_reported *left, struct run_workers *workers,
                         struct arena *a, struct err *err) MUST_CHECK;

/* callout_stage.c */
bool callout_stages(const struct connector *base);
void callout_stage(struct connector *base, const struct run_order *o, struct call *call);
void callout_stage_ask(struct callout_call *k); /* once more */
void callout_stage_came(struct callout_call *k, const struct web_answer *a);

/* callout_pages.c */
void callout_inventory(struct connector *base, struct call *call);
void callout_finalize(struct connector *base, const struct run_key *key, struct call *call);
void callout_sweep(struct connector *base, run_judge judge, void *arg, struct call *call);
void callout_page_came(struct callout_call *k, const struct web_answer *a);
/* Asks for what has changed since the nodes were read, if the changes say so. */
void callout_nodes_look(struct callout *c);
/* The server does not know the revision any more that it was asked about: asks for all nodes. */
void callout_nodes_forgotten(struct callout_call *k);

/* Asks for the page after that one. Returns 1 when it was asked for, 0 when there is none. */
int callout_page_next(struct callout_call *k, const char *next, struct err *err) MUST_CHECK;

/* callout_machines.c */
extern const struct machine_ops callout_machine_ops;
void callout_machine_came(struct callout_call *k, const struct web_answer *a);

/* callout_notices.c */
void callout_notices_clear(struct callout *c); /* the session is over */
void callout_notices_begin(struct callout *c); /* a listing begins */
void callout_notices_end(struct callout *c); /* it is complete: those that it did not name go */
void callout_notice_stay(struct callout *c, const char *node); /* it cannot be read: as it was */
void callout_notice_drop(struct callout *c, const char *node); /* it is gone, or told anew */
/* A node as a page tells it; from NULL: it stays. An error changes nothing. */
int callout_notice_take(struct callout *c, const char *node, const struct cJSON *from,
                        struct err *err) MUST_CHECK;
void callout_notices_tell(struct callout *c); /* all of them, to the caller */

/* callout_session.c */
/* What the Target's Secret has under that name, until secret_put of connector_env; or NULL. */
const char *callout_secret(const struct callout *c, const char *entry);
/* The key to sign with now: the Secret may have changed since the last request. NULL: it has none
 * any more, and nothing is signed. */
const char *callout_key(struct callout *c);
/* E_UNAVAIL: the Secret has no key any more; then the session is over soon, with that reason. */
int callout_key_check(struct callout *c, struct err *err) MUST_CHECK;
void callout_session_begin(struct callout *c);
void callout_session_end(struct callout *c, const char *why);

#endif
