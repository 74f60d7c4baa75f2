/* What the files of the agent share. */
#ifndef HANSE_CONNECTORS_AGENT_AGENT_INTERNAL_H
#define HANSE_CONNECTORS_AGENT_AGENT_INTERNAL_H

#include "api/base/limits.h"
#include "api/base/list.h"
#include "api/base/log.h"
#include "connectors/agent/agent.h"
#include "connectors/shim/shim.h"
#include "connectors/wire/wire.h"

#include <cjson/cJSON.h>

#define AGENT_STATE_MAX 80 /* the state folder's path: unix sockets have 108 bytes for theirs */
#define AGENT_PATH_MAX 512
#define AGENT_RUNS_MAX 5000                            /* that live */
#define AGENT_ENDED_KEPT 256                           /* ended runs whose folder stays, for logs */
#define AGENT_ORDER_MAX (LIMIT_ORDER_MAX_BYTES + 4096) /* with what the agent adds */
#define AGENT_BOOK_MAX 100000                          /* uids that it remembers to refuse */
#define AGENT_BOOK_MAX_BYTES ((size_t)256 << 20)
/* of both, in ends: for what is found absent, when no run is taken */
#define AGENT_BOOK_RESERVE 1024
#define AGENT_BOOK_BUCKETS 8192
#define AGENT_BOOK_ENDS 8
#define AGENT_BOOK_PAGE_MAX (AGENT_BOOK_ENDS * WIRE_OBSERVATION_MAX + 1024)
#define AGENT_BOOK_FLOORS 8
#define AGENT_NODES_MAX 1024
#define AGENT_STREAMS_MAX 64
#define AGENT_STAGED_MAX 32
#define AGENT_PIDS 16384 /* processes and threads of a worker */

/* ---- users of namespaces (users.c) ---- */
#define AGENT_USERS_MAX 10000
#define AGENT_USERS_FIXED 256
struct user_range {
    uint32_t first, last; /* last 0: none */
};
struct user_fixed {
    char namespace_[64];
    uint32_t uid, gid;
};
struct users {
    struct user_range range;
    struct user_fixed fixed[AGENT_USERS_FIXED];
    unsigned n_fixed;
    cJSON *given; /* CLUSTER/NAMESPACE: number; as it is on disk */
};
struct agent;
int users_open(struct agent *a, struct err *err) MUST_CHECK;
void users_close(struct users *u);
/* 0 and 0: that of the agent. Durable on 0. */
int users_of(struct agent *a, const char *cluster, const char *namespace_, uint32_t *ret_uid,
             uint32_t *ret_gid, struct err *err) MUST_CHECK;

/* ---- inventory (inventory.c) ---- */
struct agent;
struct inventory {
    cJSON *nodes; /* Node objects, as the API has them */
    bool nvml;
    uint64_t hash;
};
/* file NULL: this machine. held: what holds its runs together. On an error *ret is untouched. */
int inventory_load(struct agent *a, struct inventory *ret, struct err *err) MUST_CHECK;
void inventory_fini(struct inventory *inv);
/* Is there a node called "TARGET.NODE"? */
bool inventory_has(const struct inventory *inv, const char *name);

/* ---- the book of keys that must never start (again) (book.c) ---- */
struct book_entry {
    struct book_entry *next;
    char uid[64];
    /* Of the hub that was told of it last, "" = it told none; the resourceVersion that its state
     * had then; and when that was, by the time of day. */
    char cluster[CLUSTER_UID_MAX];
    uint64_t rv;
    int64_t at_ms;
    int64_t epoch, try_; /* this key, and every older one of the uid, is refused */
    size_t bytes;        /* of its page */
};
struct book {
    struct loop *loop;
    char dir[AGENT_PATH_MAX];
    struct book_entry *buckets[AGENT_BOOK_BUCKETS];
    unsigned n;
    size_t bytes;                                /* of all pages */
    struct book_floor floors[AGENT_BOOK_FLOORS]; /* older orders are refused */
    unsigned n_floors;
};
/* Whose hub a promise is given to; no name or no rv: one that does not tell. */
struct book_hub {
    const char *cluster;
    uint64_t rv;
};
int book_open(struct book *b, struct loop *l, const char *dir, struct err *err) MUST_CHECK;
void book_close(struct book *b);
bool book_refuses(const struct book *b, const struct run_key *k);
/* Durable when it returns 0. ended: its last observation, or NULL. E_LIMIT when the book is
 * full. */
int book_write(struct book *b, const struct run_key *k, const struct observation *ended,
               struct book_hub to, struct err *err) MUST_CHECK;
/* The end of exactly this key, when the book has it. */
bool book_find(struct book *b, const struct run_key *k, struct observation *ret);
/* E_LIMIT: it could not hold the ends of so many runs and one more. */
int book_room(const struct book *b, unsigned runs, struct err *err) MUST_CHECK;
/* E_STALE: an order of a state that is older than the one which let uids go that are not in the
 * book any more: it may be about one of these. */
int book_admits(const struct book *b, struct book_hub from, struct err *err) MUST_CHECK;
/* What is older than older_ms, from that bucket on, into promises; next: where the next page
 * begins, 0: there is none. */
void book_list(const struct book *b, unsigned from, int64_t now_ms, int64_t older_ms,
               struct arena *a, struct wire_result *ret);
/* From now on orders of an older state of this cluster are refused; durable on 0. */
int book_floor_raise(struct book *b, struct book_hub by, struct err *err) MUST_CHECK;
/* What the hub's own log let go; the floor is raised by then. */
int book_forget(struct book *b, const char *uid, struct book_hub by, struct err *err) MUST_CHECK;

/* ---- runs (runs.c, worker.c) ---- */
enum worker_state {
    WS_NEW,     /* not spawned yet */
    WS_DIALING, /* its shim should be there: dialing its socket */
    WS_LINKED,  /* its shim answers */
    WS_SWEEP,   /* its shim is gone without a word: whatever it left is being ended */
    WS_ENDED    /* end.json says so */
};
struct run;
struct worker {
    struct run *run;
    int64_t rank;
    enum worker_state state;
    struct run_report report;
    struct process *shim; /* our child; NULL: adopted, or gone */
    bool spawned_here;    /* it is (or was) a child of this very process */
    struct stream *stream;
    struct frame_reader reader;
    struct timer tick, deadline;
    uint64_t until_ms;   /* its lease as we know it; 0 = none */
    uint64_t from_ms;    /* newest renewal that was sent to its shim; 0: this agent sent none */
    uint64_t give_up_ms; /* dialing an adopted shim */
    unsigned dials;
    bool given_up; /* end.json was written for it: one last look whether it is there after all */
};
struct waiter { /* a STOP that is answered at the end */
    struct list link;
    uint64_t id;
};
struct run {
    struct list link;
    struct agent *agent;
    struct run_key key;
    char dir[AGENT_PATH_MAX];
    struct wire_order *order; /* as it is on disk */
    struct arena *order_mem;
    struct worker *workers;
    unsigned n_workers;
    enum run_state told;        /* last state that was told */
    enum run_state hello_state; /* the one in this session's HELLO; RUN_UNKNOWN: it had no room */
    bool untold;                /* since the HELLO; told as the session has room */
    struct run_offer offer;     /* the newest lease that was offered; number 0: none was */
    int64_t told_grant;         /* number of the lease that was told last */
    int64_t hello_grant;        /* and in this session's HELLO */
    uint64_t ended_seq;         /* order of ends, for pruning */
    bool failed;                /* a worker failed: the others were asked to stop */
    int stop_signo;             /* 0 = not asked to stop; for a shim that is dialed later */
    uint64_t stop_at_ms;        /* when its grace is over */
    struct list waiters;
    struct run_cuts *cuts; /* NULL: no checkpoints */
};

/* ---- streams (streams.c) ---- */
struct agent_stream;

/* ---- work on checkpoint stores ---- */
/* On the thread pool, and never so much of it that a store which hangs takes the pool from the
 * agent, which resolves names on it (store_jobs.c). */
enum store_job_kind { STORE_JOB_CUT, STORE_JOB_STAGE, STORE_JOB_RETAIN, STORE_JOB_NR };
struct store_job { /* embedded in the caller's */
    struct list link, all;
    struct agent *agent; /* NULL in done(): the agent is gone, free everything */
    enum store_job_kind kind;
    bool begun;
    struct checkpoint_progress progress;
    void (*work)(struct store_job *j);
    void (*done)(struct store_job *j); /* on the loop; j is the caller's again */
};
void store_jobs_init(struct agent *a);
void store_jobs_fini(struct agent *a);
void store_job_begin(struct agent *a, struct store_job *j);

struct agent {
    struct loop *loop;
    struct agent_config cfg;
    struct inventory inventory;
    struct book book;
    struct list runs;
    unsigned n_alive, n_ended;
    struct timer orphans;
    uint64_t ended_seq;
    char boot_id[64], state_id[40];
    char cluster[CLUSTER_UID_MAX]; /* that it serves, as the last welcome told; "" = none yet */
    char instance[24];             /* of this process: two of one state folder are told apart */
    struct heard { /* how far the state of its hub had come, as that told; it never goes down */
        char cluster[CLUSTER_UID_MAX];
        uint64_t rv;
        int64_t time_ms; /* of that state */
        bool unsaved;
        struct timer save;
    } heard;
    enum run_processes held; /* what holds new runs together */
    struct users users;
    char lacks[128]; /* limits that cannot be set here, with ',' */
    /* the latest renewal: a shim that is dialed later gets it, too */
    uint64_t renew_from_ms, renew_lease_ms;
    /* session (session.c) */
    struct stream *stream; /* dialing or open */
    struct frame_reader reader;
    bool open, welcome;
    unsigned server, failures, redirects;
    char redirect[PEER_NAME_MAX];
    uint64_t heard_ms;
    struct timer dial, beat;
    struct timer next; /* frames that came in one read and wait for a turn of their own */
    /* logs and exec */
    struct list streams;
    unsigned n_streams;
    struct listener *attach;
    char attach_path[AGENT_PATH_MAX];
    bool loading; /* after a restart: ends were told before */
    struct store_jobs {
        struct list waiting[STORE_JOB_NR], all; /* all: also those on the thread pool */
        unsigned running[STORE_JOB_NR];
    } jobs;
    struct list stages;
    char staged[AGENT_STAGED_MAX][CHECKPOINT_DIGEST_MAX]; /* whose proofs are kept; a ring */
    unsigned next_staged;
};

/* ---- checkpoints of a run (checkpoints.c): seals of its ranks become cuts ---- */
void checkpoints_init(struct run *r);
void checkpoints_fini(struct run *r);
void checkpoints_load(struct run *r); /* after a restart: the last cut */
void checkpoints_reported(struct worker *w);
/* Is there a new cut to be made? It is told when it is written. */
void checkpoints_consider(struct run *r);
/* All ranks have ended: is what they sealed last part of a cut, or found not to be? */
bool checkpoints_settled(const struct run *r);
void checkpoints_observe(const struct run *r, struct run_checkpoint_report *ret);
void checkpoints_hello(struct run *r);   /* its newest is in the HELLO that leaves */
bool checkpoints_welcome(struct run *r); /* that has arrived; true: there is a newer one since */
void checkpoints_told(struct run *r);    /* an observation leaves for a server that knows us */
void checkpoints_renewed(struct run *r); /* the server has answered what it had heard by then */
/* Where stage leaves its proofs for this cut. */
void checkpoints_proofs_dir(const struct agent *a, const char *digest, char out[AGENT_PATH_MAX]);

/* ---- stores that are elsewhere (scratch.c) ---- */
/* How a store is reached, "NAME=value": as the workload's environment says, else as this agent's
 * own. NULL: base is a folder, nothing is needed. May hold secrets: to be wiped. */
const char *const *store_env(const struct agent *a, const char *base, const char *const *env,
                             uint32_t n_env, struct arena *m);
void store_env_wipe(const char *const *env); /* accepts NULL */
/* env, and for the shim alone how its store is reached. */
const char *const *store_shim_env(const struct worker *w, const char *const *env, struct arena *m);
void scratch_of_rank(const struct run *r, int64_t rank, char out[AGENT_PATH_MAX]);
void scratch_of_cut(const struct agent *a, const char *digest, char out[AGENT_PATH_MAX]);
void scratch_run_over(struct run *r); /* nobody needs what it had here any more */
void scratch_sweep(struct agent *a);  /* staged, and of no use (any more) to anybody */

/* ---- whose runs these are (cluster.c) ---- */
int cluster_open(struct agent *a, struct err *err) MUST_CHECK;
/* False: this hub's line has gone on without it; it is not to be followed. */
bool cluster_welcome(struct agent *a, const char *uid);
/* A hub told how far its state has come. heard_keep: onto the disk, now. */
void cluster_heard(struct agent *a, const char *cluster, uint64_t rv, int64_t time_ms);
void heard_keep(struct agent *a);
const char *run_cluster(const struct run *r); /* "" = not known */
bool run_renewable(const struct run *r);      /* by the hub that has welcomed us */
/* From now on it belongs to the cluster that is named, whose state had it as told; durable on 0. */
int run_claim(struct run *r, const struct wire_about *by, struct err *err) MUST_CHECK;
#define LISTED_WORKERS_MAX 8000
#define LISTED_MAX (WIRE_LISTED_MAX + CLUSTER_UID_MAX + 64 + 256 + 96) /* without its workers */
_Static_assert((AGENT_RUNS_MAX + AGENT_ENDED_KEPT) * LISTED_MAX +
                       LISTED_WORKERS_MAX * WIRE_WORKER_MAX <
                   FRAME_BODY_MAX,
               "a LIST fits");
/* As AF_LIST tells it. *room: workers that the frame still has room for; without it they are not
 * told. */
void run_listing(const struct run *r, size_t *room, struct wire_listed *ret);
/* Its state, as far as that was told with a request, or heard otherwise. */
struct book_hub book_hub_of(const struct agent *a, const char *cluster, uint64_t rv);
/* The Workload that came with an order, into the run's folder; "": it came without. */
int document_write(struct agent *a, const struct run_key *k, const char *document,
                   struct err *err) MUST_CHECK;
void document_answer(struct agent *a, uint64_t id, const struct run *r);

/* ---- stage (stage.c) ---- */
int stage_open(struct agent *a, struct err *err) MUST_CHECK;
void stage_request(struct agent *a, uint64_t id, const struct wire_stage *q);
void stage_forget_askers(struct agent *a);                  /* the session is over */
bool stage_is_read(const struct agent *a, const char *hex); /* now, the cut of that digest */

int runs_load(struct agent *a, struct err *err) MUST_CHECK;
/* Orphans below this process come to it, and are reaped. */
int runs_adopt(struct agent *a, struct err *err) MUST_CHECK;
void runs_free(struct agent *a);
struct run *run_by_key(struct agent *a, const struct run_key *k);
struct run *run_newest_try(struct agent *a, const struct run_key *k); /* of that uid and epoch */
/* Accepts an order, durably, and starts it. What it says of the agent itself is overwritten. */
int run_submit(struct agent *a, struct wire_order *order, struct run **ret,
               struct err *err) MUST_CHECK;
void run_observe(const struct run *r, struct observation *ret);
/* A worker's state changed: derives the run's, tells it. */
void run_changed(struct run *r);
void run_tell(struct run *r, const struct observation *o);
void run_go(struct run *r);
void run_stop(struct run *r, int signo, uint64_t grace_ms);
/* Its order as it is now, onto the disk. */
int order_rewrite(struct run *r, struct err *err) MUST_CHECK;
/* Removes an ended run's folder; the book keeps its end. */
int run_forget(struct run *r, struct err *err) MUST_CHECK;
bool run_has_processes(struct agent *a, const struct run_key *k);

void worker_init(struct worker *w, struct run *r, int64_t rank);
void worker_fini(struct worker *w);
/* After a restart: what became of it? */
void worker_recover(struct worker *w);
void worker_start(struct worker *w);
void worker_socket(const struct worker *w, char out[AGENT_PATH_MAX]);
/* Starts its shim; w->shim is set then. */
int worker_launch(struct worker *w, process_exit_cb exited, struct err *err) MUST_CHECK;
/* Can it be started here at all? */
int order_check(struct agent *a, const struct wire_order *o, struct err *err) MUST_CHECK;
bool worker_owns(const struct worker *w, int64_t pid);
bool run_pid_is_known(int64_t pid, void *agent); /* a child of ours: somebody's, not a stray */
void worker_renew(struct worker *w);
void worker_go(struct worker *w);
void worker_stop(struct worker *w, int signo, uint64_t grace_ms);
void worker_dir(const struct worker *w, char out[AGENT_PATH_MAX]);
void worker_log_path(const struct run *r, int64_t rank, char out[AGENT_PATH_MAX]);
void worker_marker(const struct worker *w, char out[RUN_MARKER_MAX]);
/* What holds its processes together: as it was started. */
enum run_processes worker_held(const struct worker *w);
void worker_will(const struct worker *w, char out[AGENT_PATH_MAX + 16]);
/* Whose its program is: uid 0 is the agent's own. */
void worker_user(const struct worker *w, uint32_t *ret_uid, uint32_t *ret_gid);
/* Its control group; "" when it has none. */
void worker_group(const struct worker *w, char out[RUN_GROUP_MAX]);
/* The program's environment, as the contract of deploy/examples says, in arena m. */
/* A port for the ranks of a gang to meet at: free now, and given to no other run that lives. 0: the
 * order has one rank. Negative: none is free. */
int64_t rendezvous_pick(struct agent *a, const struct wire_order *o, struct err *err) MUST_CHECK;
const char *const *worker_env(const struct worker *w, struct arena *m);
const char *worker_cwd(const struct worker *w, struct arena *m);
const char *worker_gpus(const struct worker *w, struct arena *m); /* "0,3" */

void session_start(struct agent *a);
void session_stop(struct agent *a);
/* A frame of the server's that is no matter of streams; requests.c. */
void request_frame(struct agent *a, const struct frame *f);
void session_observed(struct agent *a, const struct observation *o);
void session_answer(struct agent *a, uint64_t id, enum outcome out, const struct err *err,
                    const struct observation *seen);
void session_nodes(struct agent *a, uint64_t id);

/* A server's frame about a stream. */
void streams_frame(struct agent *a, const struct frame *f);
void streams_close_all(struct agent *a);              /* the session is over */
bool streams_own(const struct agent *a, int64_t pid); /* a helper of `hanse exec` */
int streams_open(struct agent *a, struct err *err) MUST_CHECK;

#endif
