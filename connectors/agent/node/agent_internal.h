/* What the files of the agent share. */
#ifndef HANSE_CONNECTORS_AGENT_AGENT_INTERNAL_H
#define HANSE_CONNECTORS_AGENT_AGENT_INTERNAL_H

#include "api/base/limits.h"
#include "api/base/list.h"
#include "api/base/log.h"
#include "connectors/agent/agent.h"
#include "connectors/agent/notice/notice.h"
#include "connectors/shim/shim.h"
#include "connectors/streams/streams.h"
#include "connectors/wire/wire.h"

#include <cjson/cJSON.h>

#define AGENT_STATE_MAX 80 /* the state folder's path: unix sockets have 108 bytes for theirs */
#define AGENT_PATH_MAX 512
#define AGENT_RUNS_MAX 5000  /* live runs */
#define AGENT_ENDED_KEPT 256 /* ended runs whose folder is kept, for logs */
/* with the agent's own fields, and how the store of its logs is reached */
#define AGENT_ORDER_MAX (LIMIT_ORDER_MAX_BYTES + 4096 + 16384)
#define AGENT_BOOK_MAX 100000 /* uids that it remembers in order to refuse them */
#define AGENT_BOOK_MAX_BYTES ((size_t)256 << 20)
/* kept free, in ends: for keys found absent while no run is accepted */
#define AGENT_BOOK_RESERVE 1024
#define AGENT_BOOK_BUCKETS 8192
#define AGENT_BOOK_ENDS 8
#define AGENT_BOOK_PAGE_MAX (AGENT_BOOK_ENDS * WIRE_OBSERVATION_MAX + 1024)
#define AGENT_BOOK_FLOORS 8
#define AGENT_NODES_MAX 1024
#define AGENT_STAGED_MAX 32
#define AGENT_PIDS 16384 /* processes and threads of a worker */

/* ---- users of namespaces (users.c) ---- */
#define AGENT_USERS_MAX 10000
#define AGENT_USERS_FIXED 256
struct user_range {
    uint32_t first, last; /* uids for namespaces; last 0: none */
};
struct user_fixed {
    char namespace_[64];
    uint32_t uid, gid;
};
struct users {
    struct user_range range;
    struct user_fixed fixed[AGENT_USERS_FIXED];
    unsigned n_fixed;
    cJSON *given; /* CLUSTER/NAMESPACE: number, as on disk */
};
struct agent;
int users_open(struct agent *a, struct err *err) MUST_CHECK;
void users_close(struct users *u);
/* Returns the user of a namespace; 0 and 0: the agent's own. Durable when it returns 0. */
int users_of(struct agent *a, const char *cluster, const char *namespace_, uint32_t *ret_uid,
             uint32_t *ret_gid, struct err *err) MUST_CHECK;

/* ---- inventory (inventory.c) ---- */
struct agent;
struct inventory {
    cJSON *nodes; /* Node objects, in the API's form */
    bool nvml;
    uint64_t hash;
};
/* Loads the inventory of cfg.inventory_file, or of this machine. On an error *ret is untouched. */
int inventory_load(struct agent *a, struct inventory *ret, struct err *err) MUST_CHECK;
void inventory_fini(struct inventory *inv);
/* Returns the node called "TARGET.NODE", borrowed, or NULL. */
const cJSON *inventory_find(const struct inventory *inv, const char *name);
const char *inventory_name(const cJSON *node); /* "TARGET.NODE" */

/* ---- the book of keys that must never start (again) (book.c) ---- */
struct book_entry {
    struct book_entry *next;
    char uid[64];
    /* The cluster of the hub that was last told of it ("": it named none), the resourceVersion of
     * that hub's state then, and the time of day, UTC ms. */
    char cluster[CLUSTER_UID_MAX];
    uint64_t rv;
    int64_t at_ms;
    int64_t epoch, try_; /* this key and every older one of the uid are refused */
    size_t bytes;        /* bytes of its page */
};
struct book {
    struct loop *loop;
    char dir[AGENT_PATH_MAX];
    struct book_entry *buckets[AGENT_BOOK_BUCKETS];
    unsigned n;
    size_t bytes;                                /* bytes of all pages */
    struct book_floor floors[AGENT_BOOK_FLOORS]; /* orders of older states are refused */
    unsigned n_floors;
};
/* The hub to which a promise is given; cluster NULL or rv 0: an older hub that names none. */
struct book_hub {
    const char *cluster;
    uint64_t rv;
};
int book_open(struct book *b, struct loop *l, const char *dir, struct err *err) MUST_CHECK;
void book_close(struct book *b);
bool book_refuses(const struct book *b, const struct run_key *k);
/* Writes a promise; durable when it returns 0. ended: the last observation of the run, or NULL.
 * E_LIMIT when the book is full. */
int book_write(struct book *b, const struct run_key *k, const struct observation *ended,
               struct book_hub to, struct err *err) MUST_CHECK;
/* Reads the end of exactly this key; false when the book has none. */
bool book_find(struct book *b, const struct run_key *k, struct observation *ret);
/* E_LIMIT when it could not hold the ends of so many runs and one more. */
int book_room(const struct book *b, unsigned runs, struct err *err) MUST_CHECK;
/* E_STALE when the order's state is older than one that let uids go which are not in the book any
 * more: the order may concern one of these. */
int book_admits(const struct book *b, struct book_hub from, struct err *err) MUST_CHECK;
/* Lists promises older than older_ms into ret->promises, beginning at bucket `from`; ret->next:
 * where the next page begins, 0: there is none. */
void book_list(const struct book *b, unsigned from, int64_t now_ms, int64_t older_ms,
               struct arena *a, struct wire_result *ret);
/* From now on refuses orders of an older state of this cluster; durable when it returns 0. */
int book_floor_raise(struct book *b, struct book_hub by, struct err *err) MUST_CHECK;
/* Forgets a uid that the hub's own log let go; the floor is raised before that. */
int book_forget(struct book *b, const char *uid, struct book_hub by, struct err *err) MUST_CHECK;

/* ---- runs (runs.c, worker.c) ---- */
enum worker_state {
    WS_NEW,     /* not spawned yet */
    WS_DIALING, /* its shim should run: dialing its socket */
    WS_LINKED,  /* its shim answers */
    WS_SWEEP,   /* its shim is gone without a report: ending whatever it left */
    WS_ENDED    /* end.json is there */
};
struct run;
struct worker {
    struct run *run;
    int64_t rank;
    enum worker_state state;
    struct run_report report;
    struct process *shim; /* a child of this process; NULL: adopted, or gone */
    bool spawned_here;    /* it is or was a child of this process */
    struct stream *stream;
    struct frame_reader reader;
    struct timer tick, deadline;
    uint64_t until_ms;   /* its lease as the agent knows it, loop time; 0: none */
    uint64_t from_ms;    /* start of the newest renewal that was sent to its shim; 0: none */
    uint64_t give_up_ms; /* loop time at which dialing an adopted shim ends */
    unsigned dials;
    bool given_up; /* end.json was written for it; one last look for its shim follows */
    uint64_t told; /* hash of what this session was told of it; 0: nothing */
    struct kept_writer *kept; /* what it prints goes to a store; NULL: it does not */
};
struct waiter { /* a STOP request, answered when the run has ended */
    struct list link;
    uint64_t id;
};
struct run {
    struct list link;
    struct agent *agent;
    struct run_key key;
    char dir[AGENT_PATH_MAX];
    struct wire_order *order; /* the order as on disk */
    struct arena *order_mem;
    struct worker *workers;
    unsigned n_workers;
    enum run_state told;        /* last state that was reported */
    enum run_state hello_state; /* state in this session's HELLO; RUN_UNKNOWN: it had no room */
    bool untold;                /* a change since the HELLO, reported when the session has room */
    struct run_offer offer;     /* the newest offered lease; number 0: none */
    int64_t told_grant;         /* number of the lease that was reported last */
    int64_t hello_grant;        /* and of the one in this session's HELLO */
    /* the newest request to save and go on, kept for a shim that is dialed later; 0: none */
    int64_t save_number;
    uint64_t save_grace_ms;
    int64_t told_save, hello_save; /* save_mark() of what was reported last, and in HELLO */
    uint64_t ended_seq;            /* place in the order of ends, for pruning; 0: it is not over */
    bool final;                    /* the hub's log has its end: pruned ahead of others */
    bool failed;                   /* a worker failed, and the others were asked to stop */
    uint64_t renew_from_ms;        /* of the newest renewal that was one of its; 0: none */
    int stop_signo;                /* 0: not asked to stop; kept for a shim that is dialed later */
    uint64_t stop_at_ms;           /* loop time at which the grace is over */
    struct list waiters;
    struct run_cuts *cuts; /* NULL: no checkpoints */
};

/* ---- work on checkpoint stores ---- */
/* Jobs on the thread pool, bounded so that a store which hangs cannot take the pool from the agent,
 * which resolves names on it (store_jobs.c). */
enum store_job_kind {
    STORE_JOB_CUT,
    STORE_JOB_STAGE,
    STORE_JOB_RETAIN,
    STORE_JOB_LOGS,
    STORE_JOB_NR
};
struct store_job { /* embedded in the caller's struct */
    struct list link, all;
    struct agent *agent; /* NULL in done(): the agent is gone, free everything */
    enum store_job_kind kind;
    bool begun;
    struct checkpoint_progress progress;
    void (*work)(struct store_job *j);
    void (*done)(struct store_job *j); /* on the loop; the caller owns j again */
};
void store_jobs_init(struct agent *a);
void store_jobs_fini(struct agent *a);
void store_job_begin(struct agent *a, struct store_job *j);
int store_roots_open(struct agent *a, struct err *err) MUST_CHECK;
/* May this folder, by its name, be a store here (spec.checkpoint.store)? Whoever opens it looks at
 * what is there. */
int store_allowed(const struct agent *a, const char *path, struct err *err);
/* Below what it has to lie, borrowed; NULL: it was accepted when other folders were allowed. */
const char *store_roots_of(const struct agent *a, const char *base);
/* Seals what its first n workers left whose runners were killed, and tells checkpoints.c. */
void rescue_begin(struct run *r, const bool *killed, unsigned n);
/* What its programs print is kept in the store that its order names (connectors/kept). */
void logs_init(struct run *r);
void logs_fini(struct run *r);
void logs_consider(struct run *r);        /* workers may have ended */
bool logs_settled(const struct run *r);   /* an end need not wait for them any longer */
bool logs_scrub(struct wire_order *o);    /* as environments are; false: nothing is left to do */

struct agent {
    struct loop *loop;
    struct agent_config cfg;
    struct inventory inventory;
    bool deltas;             /* the hub of this session takes in what changed of an inventory */
    uint64_t told_inventory; /* hash of the inventory that it was told last; 0: none */
    struct notices notices;
    struct book book;
    struct list runs;
    struct timer orphans;
    uint64_t ended_seq;
    char boot_id[64], state_id[40];
    /* the cluster that it serves, by the last welcome; "": none yet */
    char cluster[CLUSTER_UID_MAX];
    /* id of this process, which tells two agents with one state folder apart */
    char instance[24];
    struct heard { /* how far the state of its hub had come, by the hub's word; never goes down */
        char cluster[CLUSTER_UID_MAX];
        uint64_t rv;
        int64_t time_ms; /* that state's time, UTC ms */
        bool unsaved;
        struct timer save;
    } heard;
    enum run_processes held; /* how new runs are held together */
    struct users users;
    char lacks[128]; /* limits that cannot be set here, separated by ',' */
    /* the latest renewal, which a shim that is dialed later gets, too */
    uint64_t renew_from_ms, renew_lease_ms;
    /* session (session.c) */
    struct stream *stream; /* dialing or open */
    struct frame_reader reader;
    bool open, welcome;
    unsigned server, failures, redirects;
    char redirect[PEER_NAME_MAX];
    uint64_t heard_ms;
    struct timer dial, beat;
    struct timer next; /* active: an order was taken in this turn, and requests wait in `later` */
    struct list later; /* struct later */
    size_t later_bytes;
    /* logs and exec */
    struct streams *streams;
    bool loading; /* true while it loads its state after a restart: ends were reported before */
    struct store_jobs {
        struct list waiting[STORE_JOB_NR], all; /* all: including jobs on the thread pool */
        unsigned running[STORE_JOB_NR];
    } jobs;
    struct list stages;
    char store_roots[CHECKPOINT_ROOTS_MAX]; /* of the folders that may be stores */
    /* digests whose proofs are kept; a ring */
    char staged[AGENT_STAGED_MAX][CHECKPOINT_DIGEST_MAX];
    unsigned next_staged;
};

/* ---- checkpoints of a run (checkpoints.c): seals of its ranks become cuts ---- */
void checkpoints_init(struct run *r);
void checkpoints_fini(struct run *r);
void checkpoints_load(struct run *r); /* loads the last cut after a restart */
void checkpoints_reported(struct worker *w);
void checkpoints_rescued(struct run *r, const struct checkpoint_sealed *sealed);
/* Makes a new cut if there is a better one; it is reported once it is written. */
void checkpoints_consider(struct run *r);
/* True when all ranks have ended, and it is settled whether their last seals are part of a cut. */
bool checkpoints_settled(const struct run *r);
void checkpoints_observe(const struct run *r, struct run_checkpoint_report *ret);
/* How far the newest request to save is: done once a cut holds what every rank saved for it. */
void checkpoints_save(const struct run *r, struct run_save *ret);
int64_t save_mark(const struct run_save *s); /* differs when anything in it that matters does */
void checkpoints_hello(struct run *r);       /* the HELLO that leaves has its newest */
/* that HELLO has arrived; true: there is a newer one since */
bool checkpoints_welcome(struct run *r);
/* an observation leaves for a server that has welcomed this agent */
void checkpoints_told(struct run *r);
void checkpoints_renewed(struct run *r); /* the server has answered everything sent by then */
/* Path where stage leaves its proofs for this cut. */
void checkpoints_proofs_dir(const struct agent *a, const char *digest, char out[AGENT_PATH_MAX]);

/* ---- stores that are elsewhere (scratch.c) ---- */
/* Environment ("NAME=value") to reach a store: the workload's, else this agent's own. NULL: base is
 * a folder, which needs none. It may hold secrets: the caller wipes it. */
const char *const *store_env(const struct agent *a, const char *base, const char *const *env,
                             uint32_t n_env, struct arena *m);
void store_env_wipe(const char *const *env); /* accepts NULL */
/* Returns env, plus the shim's own names for reaching its store. */
const char *const *store_shim_env(const struct worker *w, const char *const *env, struct arena *m);
void scratch_of_rank(const struct run *r, int64_t rank, char out[AGENT_PATH_MAX]);
void scratch_of_cut(const struct agent *a, const char *digest, char out[AGENT_PATH_MAX]);
void scratch_run_over(struct run *r); /* removes its scratch folders, which nobody needs any more */
void scratch_sweep(struct agent *a);  /* removes staged folders that nobody needs any more */

/* ---- the cluster that runs belong to (cluster.c) ---- */
int cluster_open(struct agent *a, struct err *err) MUST_CHECK;
/* False: another state of this hub's line has gone on; the agent must not follow it. */
bool cluster_welcome(struct agent *a, const char *uid);
/* Notes how far a hub's state has come. heard_keep writes it to disk now. */
void cluster_heard(struct agent *a, const char *cluster, uint64_t rv, int64_t time_ms);
void heard_keep(struct agent *a);
const char *run_cluster(const struct run *r); /* "": not known */
/* The shortest lease that anything here may hold (0: none), and the pace that it sets: how long a
 * server may be silent, and how often it is told that we are here. */
uint64_t agent_lease_ms(const struct agent *a);
uint64_t agent_silence_ms(const struct agent *a);
uint64_t agent_beat_ms(const struct agent *a);
/* A server sent us there; the one after it is dialed when it is lost. */
void agent_redirected(struct agent *a, const char *address);
/* true when the hub that has welcomed this agent may renew it */
bool run_renewable(const struct run *r);
/* True when this renewal is one of the run's: of a gang that spans agents where all of these are in
 * reach, since its hub counts it for the whole or not at all. */
bool run_renewed_by(const struct run *r, const struct wire_renew *q);
/* True when every runner of it holds a lease. */
bool run_lease_held(const struct run *r);
/* Makes the run belong to the named cluster; durable when it returns 0. */
int run_claim(struct run *r, const struct wire_about *by, struct err *err) MUST_CHECK;
#define LISTED_WORKERS_MAX 8000
#define LISTED_MAX (WIRE_LISTED_MAX + CLUSTER_UID_MAX + 64 + 256 + 96) /* without workers */
_Static_assert((AGENT_RUNS_MAX + AGENT_ENDED_KEPT) * LISTED_MAX +
                       LISTED_WORKERS_MAX * WIRE_WORKER_MAX <
                   FRAME_BODY_MAX,
               "a LIST fits");
/* Describes the run for AF_LIST. *room: number of workers for which the frame still has room;
 * beyond that they are left out. */
void run_listing(const struct run *r, size_t *room, struct wire_listed *ret);
/* Returns the hub's cluster and resourceVersion, by a request or by what was heard otherwise. */
struct book_hub book_hub_of(const struct agent *a, const char *cluster, uint64_t rv);
/* Writes the Workload that came with an order into the run's folder; "": it came without one. */
int document_write(struct agent *a, const struct run_key *k, const char *document,
                   struct err *err) MUST_CHECK;
void document_answer(struct agent *a, uint64_t id, const struct run *r);

/* ---- stage (stage.c) ---- */
int stage_open(struct agent *a, struct err *err) MUST_CHECK;
void stage_request(struct agent *a, uint64_t id, const struct wire_stage *q);
void stage_forget_askers(struct agent *a); /* the session is over */
/* true while the cut of that digest is being read */
bool stage_is_read(const struct agent *a, const char *hex);

int runs_load(struct agent *a, struct err *err) MUST_CHECK;
/* Makes orphans below this process come to it, and reaps them. */
int runs_adopt(struct agent *a, struct err *err) MUST_CHECK;
void runs_free(struct agent *a);
/* How many are here, and how many of these are over (ret_ended may be NULL). */
unsigned runs_count(const struct agent *a, unsigned *ret_ended);
struct run *run_by_key(struct agent *a, const struct run_key *k);
/* the newest try of that uid and epoch */
struct run *run_newest_try(struct agent *a, const struct run_key *k);
/* Accepts an order, durably, and starts it. The agent overwrites the order's fields about
 * itself. */
int run_submit(struct agent *a, struct wire_order *order, struct run **ret,
               struct err *err) MUST_CHECK;
void run_observe(const struct run *r, struct observation *ret);
/* Called when a worker's state changed: derives the run's state, and reports it. */
void run_changed(struct run *r);
void run_tell(struct run *r, const struct observation *o);
/* Tells a server that has welcomed this agent of the run's workers of which there is news, ahead of
 * the observation that rests on it. */
void workers_tell(struct run *r);
void run_go(struct run *r);
void run_stop(struct run *r, int signo, uint64_t grace_ms);
/* Has its program save and go on, once for each number. */
int run_save(struct run *r, int64_t number, uint64_t grace_ms, struct err *err) MUST_CHECK;
/* Writes its present order to disk. */
int order_rewrite(struct run *r, struct err *err) MUST_CHECK;
/* Removes an ended run's folder; the book keeps its end. */
int run_forget(struct run *r, struct err *err) MUST_CHECK;

void worker_init(struct worker *w, struct run *r, int64_t rank);
void worker_fini(struct worker *w);
/* Finds out after a restart what became of the worker. */
void worker_recover(struct worker *w);
void worker_start(struct worker *w);
void worker_socket(const struct worker *w, char out[AGENT_PATH_MAX]);
/* Starts its shim; w->shim is set then. */
int worker_launch(struct worker *w, process_exit_cb exited, struct err *err) MUST_CHECK;
/* Adds what only the agent can say; whose its programs are is settled once: a later agent goes by
 * it. user and groups are the caller's, and the order points to them. */
int order_complete(struct agent *a, struct wire_order *o, struct wire_user *user,
                   char groups[RUN_GROUP_MAX], struct err *err) MUST_CHECK;
/* Checks whether the order can be started here at all. */
int order_check(struct agent *a, const struct wire_order *o, struct err *err) MUST_CHECK;
bool worker_owns(const struct worker *w, int64_t pid);
/* true for a known child of the agent, false for a stray orphan */
bool run_pid_is_known(int64_t pid, void *agent);
void worker_renew(struct worker *w);
void worker_go(struct worker *w);
void worker_stop(struct worker *w, int signo, uint64_t grace_ms);
void worker_save(struct worker *w); /* passes its run's request on, unless its shim has it */
void worker_dir(const struct worker *w, char out[AGENT_PATH_MAX]);
void worker_log_path(const struct run *r, int64_t rank, char out[AGENT_PATH_MAX]);
void worker_marker(const struct worker *w, char out[RUN_MARKER_MAX]);
/* How its processes are held together, since its start. */
enum run_processes worker_held(const struct worker *w);
void worker_will(const struct worker *w, char out[AGENT_PATH_MAX + 16]);
/* The user of its program; uid 0: the agent's own. */
void worker_user(const struct worker *w, uint32_t *ret_uid, uint32_t *ret_gid);
/* The name of its control group; "": it has none. */
void worker_group(const struct worker *w, char out[RUN_GROUP_MAX]);
/* Ranks of the whole gang; this agent may have some of them. */
uint32_t order_world(const struct wire_order *o);
bool order_spans(const struct wire_order *o); /* other agents have the others */
unsigned worker_at(const struct worker *w);   /* its place in the run's and the order's workers */
/* Returns the worker of that rank, or NULL: it is none of this agent's. */
struct worker *run_worker(const struct run *r, int64_t rank);
/* Picks a port at which the ranks of a gang meet: free now, and given to no other live run. Returns
 * 0 when the gang has one rank, what the order says when the first of several is elsewhere, or a
 * negative code when none is free. */
int64_t rendezvous_pick(struct agent *a, const struct wire_order *o, struct err *err) MUST_CHECK;
/* Makes the program's environment in arena m (deploy/examples/README.md has the contract). */
const char *const *worker_env(const struct worker *w, struct arena *m);
const char *worker_cwd(const struct worker *w, struct arena *m);
const char *worker_gpus(const struct worker *w, struct arena *m); /* "0,3" */

/* What agents of this version tell of themselves, as members of a wire_hello. */
#define AGENT_KNOWS                                                                                \
    .reshards = true, .shares = true, .opens = true, .notices = true, .terminals = true,           \
    .forwards = true, .times = true, .keeps = true, .spans = true, .gathers = true,              \
    .places = true
void session_start(struct agent *a);
void session_stop(struct agent *a);
/* requests.c: handles a frame of the server that concerns no stream. */
void request_frame(struct agent *a, const struct frame *f);
void session_observed(struct agent *a, const struct observation *o);
void session_answer(struct agent *a, uint64_t id, enum outcome out, const struct err *err,
                    const struct observation *seen);
void session_nodes(struct agent *a, uint64_t id);
/* The inventory is another one than `was`: tells what changed, or all of it to a hub that has not
 * heard of that, or takes no deltas. */
void session_nodes_changed(struct agent *a, const struct inventory *was);
void session_notices(struct agent *a); /* tells which of its nodes go away */

/* streams.c */
int agent_streams_open(struct agent *a, struct err *err) MUST_CHECK;

#endif
