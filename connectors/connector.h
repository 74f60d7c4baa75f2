/* Connectors: effects on other people's systems. There is one interface for all drivers, and
 * drivers never see each other.
 *
 * The contract (controlplane/DESIGN.md, One run, never two):
 *
 *   - A connector holds no truth of its own. It can be destroyed and created again at any moment;
 *     what it knows it finds again from the target.
 *   - All calls are asynchronous, idempotent, keyed by (uid, epoch, try), and end by their deadline
 *     in one of three ways: OUT_DONE, OUT_REJECTED (provably no effect; call.refused says what the
 *     target blames), OUT_UNKNOWN. After OUT_UNKNOWN the caller asks find(), or sends the very same
 *     order again where the driver says that this is the same run (repeats).
 *   - The caller submits nothing before its intent is in the log. `submit` writes the key on what
 *     it makes. A connector never adopts or touches an object without Hanse's mark and the key.
 *   - Alive, dead and unknown are three answers. "Not there" is RUN_ABSENT only when the target was
 *     reached, listed completely, and would have shown the run in this session; anything else is
 *     RUN_UNKNOWN.
 *   - Callbacks run on the connector's loop, never from inside the call that asked. */
#ifndef HANSE_CONNECTORS_CONNECTOR_H
#define HANSE_CONNECTORS_CONNECTOR_H

#include "api/base/cluster.h"
#include "api/base/err.h"
#include "api/base/loop/loop.h"
#include "api/schema/schema.h"
#include "connectors/ends.h"
#include "connectors/foreign.h"
#include "connectors/machines.h"
#include "connectors/wire/wire.h"

#include <stdbool.h>
#include <stdint.h>

/* connectors/wire/wire.def defines keys, states, checkpoints and observations of runs, offers of
 * leases and promises, because they go over the wire, too. A checkpoint is one of all ranks, sealed
 * and verified by digest (connectors/checkpoint/README.md). The grant of an observation is the
 * number of the lease that all runners of the run hold; it never goes back. Its lease_held is told
 * by the runners, each for its own worker, and passed on by the driver when all of them hold one: a
 * target that only knows of its runs never says it. */

/* Of an order to one agent that gets part of a gang, whose other ranks are with other agents of the
 * Target. */
struct run_span {
    uint32_t world;      /* ranks of all of it; the order's placement has this agent's alone */
    const char *address; /* where the machine of rank 0 is reached by the others */
    int64_t port;        /* at which they meet; 0: who gets rank 0 picks it, and tells it (call) */
    /* State folders of all agents that get a part. It is renewed while all of these are reached. */
    const char *const *peers;
    uint32_t n_peers;
    uint64_t asked_ms; /* loop_now_ms of submit(): its lease counts from before that */
};
/* A run to submit, resolved by the leader: a driver reads these fields, and no document. Texts are
 * never NULL; everything is borrowed for the call. */
struct run_order {
    struct run_key key;
    const char *ns, *name; /* of its workload */
    const char *priority_class; /* or "" */
    /* Whose name it goes by at the target: a user, an account, a role. "": the target's own. It is
     * started by what belongs to that principal (connector_env.principal_secret), or not at all. */
    const char *principal;
    const struct placement *placement;
    const char *image;                /* or "" */
    const char *const *argv;          /* the command with its arguments; NULL-terminated */
    const char *script, *cwd;         /* or "" */
    const char *manifest;             /* of others, as JSON; NULL or "": none */
    const char *const *env;           /* "NAME=value", secrets resolved; NULL-terminated */
    int64_t cpu_milli, memory_bytes;  /* of each worker; 0: no limit */
    int64_t gpus;                     /* whole ones of each worker */
    /* Its processes begin by a claim (connector_ops.runner) or not at all: that there is none is
     * taken for a proof. An order that cannot bring its runners their way home is refused. */
    bool claims;
    enum processes_need processes;    /* what must hold them together; 0: anything */
    enum tenants_need tenants;        /* whose user it must be; 0: anybody's */
    bool saves;                       /* it keeps the checkpoint contract */
    const char *signal, *save_signal; /* to save and end, to save and go on; "": none is named */
    /* What the target keeps of it for a hub that has lost its memory (document()): bytes of the
     * leader's, opaque to drivers. Secrets are named in it, never told. "": it is too large. */
    const char *document;
    /* Runners stop themselves after this long without renewal, counted from before submit() was
     * called, however late it arrives; 0: no lease. */
    uint64_t lease_ms;
    /* UTC ms: its runners start nothing later than start_by by their machine's clock, and nothing
     * while that says a time before start_from: then it is wrong. 0: no such bound. What cannot be
     * kept to it is refused (E_NOTIMPL). */
    int64_t start_from_ms, start_by_ms;
    /* time that the program has to save: within the lease, and when it is stopped */
    uint64_t grace_ms;
    /* Absolute directory of this workload in its store, or ""; connectors/checkpoint describes its
     * layout. The program of rank R gets its own HANSE_CHECKPOINT_DIR in it, for this epoch. */
    const char *checkpoint_dir;
    int64_t checkpoint_keep; /* number of cuts to keep; the runner removes older ones */
    /* advice for the program (HANSE_CHECKPOINT_INTERVAL, in seconds); 0: none */
    int64_t checkpoint_interval_ms;
    /* The cut file to resume from and its digest, or "". It is verified before the program starts;
     * if it does not hold, nothing starts and the run is RUN_ABSENT with a Checkpoint… reason. */
    const char *resume_path, *resume_digest;
    int64_t resume_epoch, resume_step; /* epoch and step of that cut; 0 and -1: none */
    int64_t resume_ranks;              /* number of workers that saved it; 0: not known */
    /* The program can resume with another number of workers than saved: each gets what all of them
     * saved. Otherwise the cut must have as many ranks as placement has workers. */
    bool reshard;
    /* All workers save in one folder, and the first of them commits: a cut of it has one part. */
    bool shared;
    int64_t look_workers; /* number of workers of look_epoch; 0: not known */
    /* Folder of this try in the store that keeps what its programs print (connectors/kept): a path
     * or s3://…; "": none does. "NAME=value", by which it is reached, NULL-terminated; NULL: as the
     * target's own environment says. Bytes of text that are kept; 0: as is usual. */
    const char *log_base;
    const char *const *log_env;
    int64_t log_max_bytes;
    /* For stage() only. Nonzero: it searches checkpoint_dir for a cut of this epoch or an earlier
     * one that is newer than the above. All runs of these epochs are proved ended. */
    int64_t look_epoch;
    /* For stage() of one agent of several only. Not NULL: it reads nothing, and leaves a file of
     * that name in checkpoint_dir, or looks for it. REJECTED (E_INVALID): it is not there. */
    const char *meeting;
    bool leaves;
    const struct run_span *span; /* NULL: all of it goes to one */
};

struct run_hold { /* devices that a run holds on one node, a bit each */
    char node[256];
    uint64_t devices;
};
/* A run as its target lists it; borrowed. */
struct run_listed {
    struct observation seen;
    /* The cluster that started it or took it over; "": an older hub named none. */
    char cluster[CLUSTER_UID_MAX];
    char ns[64], name[256]; /* of its workload, by its order */
    uint64_t state_rv;      /* resourceVersion of the state that started it; 0: not known */
    int64_t since_ms;       /* UTC ms by the target's clock when it was accepted; 0: not known */
    bool final;             /* it has heard that the log has its end (finalize) */
    const struct run_hold *holds;
    size_t n_holds;
};
enum run_verdict {
    RUN_KEPT,    /* leave it alone */
    RUN_CLAIMED, /* it is this cluster's; the target writes that down */
    RUN_LET_GO   /* this cluster's own log let it go: end it; its records may go */
};
typedef enum run_verdict (*run_judge)(const struct run_listed *r, void *arg);

/* What a target shows of a run to people, in its own words: its pods, and what was told of them.
 * All is borrowed. */
struct run_part {
    const char *name, *node; /* "NAMESPACE/NAME"; node: "" while it has none */
    int64_t rank;            /* -1: not known */
    const char *phase, *reason, *message; /* "Pending", "ImagePullBackOff", a sentence or "" */
};
struct run_event {
    int64_t at_ms; /* when it was seen last, UTC; 0: not known */
    int64_t count; /* how often */
    const char *type, *reason, *message;
    const char *about; /* "Pod/NAME" */
};
struct run_details {
    const struct run_part *parts; /* those in trouble first */
    size_t n_parts, all_parts;    /* told here; there are */
    const struct run_event *events; /* newest first */
    size_t n_events;
    const char *lacks; /* what this is without, a sentence; "": it is whole */
};
/* d is NULL with an error. */
typedef void (*details_cb)(void *arg, const struct run_details *d, const struct err *err);
/* Passes the document that a target keeps of a run: its Workload, with the placement, as it was
 * sent. */
typedef void (*document_cb)(void *arg, enum outcome out, const char *json, const struct err *err);
/* true: the target may forget it */
typedef bool (*promise_judge)(const struct run_promise *p, void *arg);

/* What a target blames when it refuses. Its sentence is the err that done() gets. */
struct refusal {
    /* 0: nobody said. The call never left, or the driver does not know: as if the target were
     * slow. */
    enum refusal_class class_;
    enum refusal_scope scope; /* only BLAMES_TARGET slows the whole target */
    char name[64];            /* zone or GpuClass that is blamed, as Hanse calls it */
    uint64_t retry_ms;        /* from now on, as the target told (Retry-After); 0: it did not */
};
/* Returns what an error of that code blames, where a target says no more: its row in refusals.def.
 * class_ 0: nothing. */
struct refusal refusal_of_code(int code);

struct call;
typedef void (*call_cb)(struct call *c, enum outcome out, const struct observation *seen,
                        const struct err *err);
struct call {             /* the caller owns it and keeps it until done() */
    uint64_t deadline_ms; /* loop_now_ms by which done() is called */
    call_cb done;
    void *arg;
    /* The driver sets it ahead of done() with OUT_REJECTED; the caller zeroes it. */
    struct refusal refused;
    int64_t port; /* the driver sets it with OUT_DONE of a run_span without a port */
};

/* A node that will go away, as its target announced it. */
struct notice {
    char node[256]; /* "TARGET.NODE" */
    enum notice_kind kind;
    bool ends;      /* a deadline was told */
    uint64_t in_ms; /* the deadline, from now on; 0 with `ends`: it is over */
};

/* Takes what logs(), exec() and forward() bring. They ask the target and return at once; what is
 * known to fail by then is returned, and the sink hears nothing. Otherwise it hears of the opening
 * once, ahead of all data, and of the end exactly once, last. A stream that is not open by its
 * deadline ends with E_TIMEOUT. exec_close() ends it at any time, before it is open, too; the sink
 * hears no more. */
struct log_at { /* where in the output of its program a log is; bytes count from the first ever */
    uint64_t from;  /* the byte that comes next: all data up to here stands before it */
    bool gap;       /* what stands between the last one and this went before it could be read */
    bool front;     /* the first one: more was wanted, and it had gone from the front of the log */
    int64_t lines;  /* likewise: that are there, of those that were asked for from the end */
    int64_t try_;   /* of the run */
};
struct log_sink {
    void (*opened)(void *arg);                                /* the target has it; may be NULL */
    void (*data)(int fd, const void *p, size_t n, void *arg); /* fd 1 or 2 */
    void (*end)(int exit_code, const struct err *err, void *arg); /* exit_code of exec */
    bool (*full)(void *arg); /* backpressure; true: the driver pauses; may be NULL */
    void *arg;
    /* forward(): no more data comes, and input is still taken; may be NULL */
    void (*eof)(void *arg);
    /* logs(): once it is open, and again behind data; may be NULL. Never called: it is of an older
     * version, which cannot tell. */
    void (*at)(const struct log_at *at, void *arg);
};
/* They take a key with try 0 for the newest try of that epoch. deadline_ms: the loop_now_ms by
 * which it is open; 0: any time. What a target cannot do it refuses (E_NOTIMPL). */
struct log_request {
    int64_t rank;
    bool follow;
    /* Each line begins with the time by which its first byte had come, by the target's clock. */
    bool timestamps;
    int64_t tail_lines; /* -1: all */
    /* Only what came since then: a span up to now, whoever's clock is wrong, or a time by the
     * target's clock (UTC ms). 0: no such limit; only one of them is set. */
    int64_t since_span_ms, since_ms;
    uint64_t deadline_ms;
    /* It goes on from that byte, instead of those three; mid: that is amid a line. */
    bool resumes, mid;
    uint64_t from;
};
#define EXEC_SIZE_MAX 4096 /* rows or columns; more counts as this (wire.def refuses it) */
struct exec_size {         /* of a terminal; 0: not known */
    int64_t rows, columns;
};
struct exec_request {
    int64_t rank;
    const char *const *argv;
    bool tty, with_stdin;
    struct exec_size size; /* with tty: at the start; exec_resize() tells later ones */
    uint64_t deadline_ms;
};
/* Bytes to and from a TCP port of 127.0.0.1 on which the worker's own program listens: what
 * another program listens on is refused (E_FORBIDDEN). exec_input() sends; both sides may end
 * theirs first. The stream ends once both have, or with the run. */
struct forward_request {
    int64_t rank, port;
    uint64_t deadline_ms;
};
struct exec_session; /* the driver owns it; sink.end and exec_close end it */

/* Part of what a target has: a page of a listing, or a delta. All is borrowed.
 *
 * What others than Hanse hold of a node is told with it, in status.others: pods and jobs that
 * Hanse did not start, whoever owns them. Runs with Hanse's mark are never in it, not even those of
 * another cluster's hub or those that are just ending: the caller counts its own runs by their
 * placements, and would count them twice. A device by its number where that is known; else its
 * class with a count, and then Hanse leaves as many of the node's devices free. CPU and memory are
 * what others asked for, or what they use where nothing was asked for, rounded, so that a node does
 * not change with every breath. Others that come or go are a change of the node like any other.
 *
 * Where the target picks devices itself and nobody knows which, the node says how many it has, by
 * class (spec.counted), and an order's assignment says how many of them (count) instead of numbers.
 * Instances of a MIG profile and shares of GPUs are rows of their own, and of the one of them that
 * an assignment gets it says the profile (mig), or of how many it is one (shares).
 * All of them are in its count, with how many of these are unhealthy. What a run was given may be
 * told with its workers; the log keeps the number.
 *
 * Health comes with its source: status.faults names what is wrong with the node or a device of it,
 * and who found it. By it the caller takes the device or node for Sick or NotReady; since when, the
 * state's time says.
 *
 * A listing begins with the page that says `first` and ends with the one that says `last`; one page
 * may be both. Once its last page is here, nodes that no page named are gone. A listing that
 * another one or another session cuts off removes nothing. `revision` is that of the whole listing.
 *
 * A delta says in `since` on which revision it builds: that of the listing or delta that came last
 * in this session. It is one page, and neither first nor last. Where it builds on another one, the
 * caller takes nothing of it and asks for inventory(). */
struct node_refused {
#define NODES_ALL "*"
    /* "TARGET.NODE"; "": it cannot be read either; NODES_ALL: the page as a whole cannot be */
    const char *name;
    const char *why;  /* a sentence, which need not name the node */
};
struct inventory_page {
    const struct node *nodes; /* named "TARGET.NODE"; each as it is now, whole */
    size_t n;
    const char *const *removed; /* of a delta: names of nodes that are gone */
    size_t n_removed;
    const char *revision; /* ""; no delta can follow */
    const char *since;    /* "": this is a page of a listing */
    bool first, last;
    bool lacks; /* some nodes of this page could not be read: its listing removes none */
    /* Those of them of which it is known why, once each; people are told. */
    const struct node_refused *refused;
    size_t n_refused;
};
/* A whole listing of so many nodes on one page, after which no delta can follow. */
#define INVENTORY_ALL(v, count)                                                                    \
    (&(const struct inventory_page){                                                               \
        .nodes = (v), .n = (count), .revision = "", .since = "", .first = true, .last = true})
/* How busy the devices of a run are, as its target has measured them. What it does not measure is
 * in none of these counts: a device that several runs share, and all of them where nothing measures
 * any. */
#define RUN_IDLE_MS 300000 /* what has done nothing for so long is idle: less is a pause */
/* What was measured longer ago says nothing any more, nor what was between two so far apart. */
#define RUN_USE_FRESH_MS 300000
struct run_use {
    struct run_key key;
    uint32_t devices;     /* that are measured, of all its workers */
    uint32_t resting;     /* of these: that did nothing in the newest reading */
    uint32_t idle;        /* of these: that have done nothing for RUN_IDLE_MS */
    uint64_t idle_ms;     /* so long all of these have done nothing; 0: there are none */
    uint64_t resting_ms;  /* where all that are measured rest: for so long they have */
    uint32_t percent;     /* how busy those that are measured are, on average */
    int64_t memory_bytes; /* of their memory in use */
};
/* What the connector reports on its own, on its loop. */
struct connector_events {
    void (*nodes)(void *arg, const struct inventory_page *p);
    /* session: id of the session; a new session has a new id */
    void (*reach)(void *arg, bool reachable, const char *session, const char *why);
    /* Reports all notices that the target holds, at most one a node, borrowed: in each new session,
     * after reach() and before or after the nodes that they are about, and when they change. A node
     * that is not named has none any more. A target that was never asked to tell any does not call
     * it, and nothing is changed then. Nothing new is placed on a node with a notice, and what runs
     * there is moved, saved before the deadline. */
    void (*notices)(void *arg, const struct notice *v, size_t n);
    void (*observed)(void *arg, const struct observation *o);
    /* Names a checkpoint of all of a run that is in its store, ahead of what is known of the run:
     * of one that several agents have, any of them may tell it while another one is away. What
     * observations tell need not be told so. Optional. */
    void (*saved)(void *arg, const struct run_key *k, const struct run_checkpoint_report *c);
    /* Names the nodes, and the devices where they are known, that a run was given which was
     * RUN_PENDING: assignments by rank, of nodes "TARGET.NODE"; borrowed. Called ahead of the first
     * observation of it in another state, also ahead of find()'s answer. A target whose runs are
     * never pending does not call it. */
    void (*seated)(void *arg, const struct run_key *k, const struct placement *at);
    /* Tells of a run's workers, of those alone of which there is news, ahead of the observation
     * that rests on it, and of find()'s answer; borrowed. What the target says it is told of:
     * ranks may be missing, or no ranks of that run. Nodes are "TARGET.NODE", or "". Optional. */
    void (*workers)(void *arg, const struct run_workers *w);
    /* Told of a run while its target measures it, now and then; a run of which it is not told is
     * not measured. Optional. */
    void (*used)(void *arg, const struct run_use *u);
    /* Names the state folder of the agent, or the server, that speaks from the next reach() on. It
     * knows nothing of runs that were given to another one, so what it says of those proves
     * nothing, and it speaks for one Target alone. Optional; "": not known. */
    void (*agent)(void *arg, const char *state_id);
    /* The same of a Target with spec.agents, whose parts each have an agent: that of the part, and
     * whether it is in reach; else why. Optional. */
    void (*part)(void *arg, const char *part, bool reached, const char *state_id, const char *why);
    /* Called before reach(): the resourceVersion of that cluster's state of which the target has
     * heard, and that state's time then (0: not known). A state that had not come so far by that
     * time is an older one. Optional; "": nothing. */
    void (*heard)(void *arg, const char *cluster, uint64_t rv, int64_t time_ms);
    /* A second agent came with the certificate of the present one, and was turned away; why is a
     * sentence. Called each time that it comes. Optional. */
    void (*rival)(void *arg, const char *why);
    /* What is known of a machine, ahead of the end of the call that it answers, or unasked;
     * borrowed. Optional, and so is the next. */
    void (*machine)(void *arg, const struct machine_seen *m);
    /* What was said of a machine cannot be read: `key`, or "" where that cannot be read. What was
     * known of it stays so, and the call that asked ends OUT_UNKNOWN. Optional; borrowed. */
    void (*machine_unread)(void *arg, const char *key, const char *why);
    /* What was said of a run, in a list or unasked, cannot be read: k, or NULL where that cannot be
     * read either. It proves nothing: what was known of the run stays so. Optional; borrowed. */
    void (*run_unread)(void *arg, const struct run_key *k, const char *why);
    /* Something that the Target asks for beside its runs cannot be done at the moment; reason is
     * static, a word for people, why a sentence. Told when it is news. Optional. */
    void (*not_given)(void *arg, const char *reason, const char *why);
    /* What machines cost at the target: all of it, in one currency ("": the Target's); borrowed. */
    void (*prices)(void *arg, const struct machine_price *v, size_t n, const char *currency);
};

struct connector;
struct web_transport_ops;
struct home_keys;    /* connectors/report/report.h */
struct home_arrival; /* connectors/home/home.h */
/* What an order tells the runners of a run that calls home; everything is in the caller's arena. */
struct home_order {
    const char **addresses; /* of members, "HOST:PORT" */
    uint32_t n_addresses;
    const char *ca;      /* PEM: whom they trust */
    const char **tokens; /* one a rank */
    uint32_t n_tokens;
    /* The HTTP proxy between them and the members, as URL; "": none. What it wants to know,
     * USER:PASSWORD, or "". */
    const char *proxy, *proxy_login;
};
#define PRINCIPAL_TOKEN "token"
struct run_where {
    const char **nodes; /* "TARGET.NODE" by rank */
    uint32_t n;
    uint64_t grace_ms; /* that its runners were given; 0: not known */
    bool ran;          /* it was seen running */
    bool lives;        /* this try of it has not ended, as far as the log knows */
    uint64_t lease_ms; /* the longest that its runners may hold; 0: not all have told of one */
    const char *ns;    /* of its workload */
};
struct connector_env {
    struct loop *loop;
    const struct connector_events *events;
    void *arg;
    /* Returns a Secret of hanse-system by name, or NULL. The caller holds the text until
     * secret_put, which wipes it. */
    const char *(*secret_get)(void *arg, const char *name, const char *key);
    void (*secret_put)(void *arg, const char *text);
    /* Sets *ret to what the Secret of that principal of the Target has under PRINCIPAL_TOKEN, until
     * secret_put; to NULL where the Target names none for it. An error: it names one, and that is
     * not there. No other principal's, and never the target's. NULL: nobody has any. */
    int (*principal_secret)(void *arg, const char *principal, const char **ret, struct err *err);
    /* Returns this cluster's uid, borrowed until the next call; "" while it has none. NULL:
     * none. */
    const char *(*cluster_uid)(void *arg);
    /* Optional (NULL): is there an older Target at the server that events->agent has named last?
     * What there is would count twice, and this one stays out of reach: why. */
    bool (*is_twin)(void *arg, char why[256]);
    /* Returns the resourceVersion of its state, and the time of its newest entry; NULL: not
     * reported. */
    uint64_t (*state_rv)(void *arg, int64_t *ret_time_ms);
    /* Makes what the runners of a run need to call home; false: they cannot. NULL: likewise. */
    bool (*home)(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
                 struct home_order *ret);
    /* Makes the tokens of a run's ranks, by rank, in the arena: its runners sign by them what they
     * leave behind. false: this hub signs none. NULL: likewise. */
    bool (*tokens)(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
                   const char ***ret);
    /* By which that is verified; borrowed. NULL: it is not believed. */
    const struct home_keys *keys;
    /* Finds by the log where a run is; everything is in the arena. false: the log does not have
     * it. NULL: likewise. */
    bool (*where)(void *arg, const struct run_key *k, struct arena *a, struct run_where *ret);
    /* Passes the Target's nodes in the state whose names begin so, borrowed until the loop's next
     * turn. NULL: there are none. */
    void (*nodes)(void *arg, const char *prefix,
                  void (*each)(void *each_arg, const struct node *n), void *each_arg);
    /* Lists the state folders of the Target's agents that are in reach, in the arena, where it has
     * several. NULL: it has one. */
    uint32_t (*peers)(void *arg, struct arena *a, const char ***ret);
    const struct web_transport_ops *web; /* of the HTTP client (connectors/web); NULL: libcurl */
};

struct connector_ops {
    const char *type;
    bool acts_for; /* it starts runs in the name of a principal; others refuse such an order */
    int (*create)(const struct connector_env *env, const struct object *target,
                  struct connector **ret, struct err *err);
    void (*destroy)(struct connector *c); /* ends outstanding calls with OUT_UNKNOWN first */
    void (*update)(struct connector *c, const struct object *target); /* the document changed */
    /* DONE: the target is there, and accepts this cluster. */
    void (*probe)(struct connector *c, struct call *call);
    /* Asks for a listing, which events->nodes reports page by page; then the connector goes on
     * watching or polling, and reports deltas or listings. A driver holds one page at a time. */
    void (*inventory)(struct connector *c, struct call *call);
    void (*submit)(struct connector *c, const struct run_order *o, struct call *call);
    /* Optional (NULL): names the memory by which a key that is submitted again is the same run.
     * While it returns the same text as when an order was sent, that very order may be sent again
     * after OUT_UNKNOWN: it starts nothing when its key has run, has ended, was asked to stop, or
     * was called absent. OUT_REJECTED of a later one says nothing of those before it: find() does.
     * "": not so. */
    const char *(*repeats)(const struct connector *c);
    /* Asks what became of this key; `seen` is set with DONE. By RUN_ABSENT the target promises to
     * refuse the key later. One that cannot promise says RUN_UNKNOWN, `unlisted` where it has
     * listed all that it has since it was asked and would have shown the run: what the caller makes
     * of that is by the order's start_by. So does stop(). */
    void (*find)(struct connector *c, const struct run_key *k, struct call *call);
    /* Reads all of o's resume_path on the target's side before submit, and checks every digest.
     * DONE: it can be resumed from there. REJECTED (err E_CHECKPOINT, seen->reason Checkpoint…): it
     * cannot. Starts nothing.
     *
     * With look_epoch, DONE: the store was searched. seen->checkpoint is the newest one there that
     * verifies as a whole and is newer than resume_…, or not present; seen->message names those
     * passed over, and why. REJECTED or UNKNOWN: it could not be searched. */
    void (*stage)(struct connector *c, const struct run_order *o, struct call *call);
    /* Optional (NULL: it can): whether the target can be asked to stage. Where it cannot, runners
     * find out ahead of their start, and nobody looks for what the log does not know. */
    bool (*stages)(const struct connector *c);
    /* Sends the signal, then waits for the end up to grace_ms; observed() reports the end. DONE:
     * the signal was delivered. */
    void (*quiesce)(struct connector *c, const struct run_key *k, int signo, uint64_t grace_ms,
                    struct call *call);
    /* Optional (NULL): has the program save and go on; what it saved is reported like any
     * checkpoint, and observations tell how far the request with this number is (`save`). A number
     * that is not above one that the target has heard is the same request. DONE: it is on its way.
     * REJECTED: it cannot be; err says why. */
    void (*checkpoint)(struct connector *c, const struct run_key *k, int64_t number,
                       uint64_t grace_ms, struct call *call);
    /* Ends the run for good: TERM, then KILL after the grace. DONE with seen->state RUN_ENDED or
     * RUN_ABSENT only when that is proved. */
    void (*stop)(struct connector *c, const struct run_key *k, uint64_t grace_ms,
                 struct call *call);
    /* Optional (NULL): the end of this run is in the log. What the target keeps of it only to be
     * asked about it (a pod's finalizer, a job's record) may go; its key stays refused. A run that
     * has not ended stays as it is. DONE also where nothing is kept of it (any more). */
    void (*finalize)(struct connector *c, const struct run_key *k, struct call *call);
    /* Renews the leases of all runs on the target, each for the length that it holds; runs with an
     * offer for the offered length, if their runners take it. It has no answer: observations show
     * what runners hold. Called only after a quorum round proved the leadership. */
    void (*renew)(struct connector *c, const struct run_offer *offers, size_t n);
    /* Optional (NULL): whether a renewal reaches the runners of that run, or with k NULL of any; it
     * then renews these alone. NULL: of all runs, while the target is in reach. */
    bool (*reaches)(const struct connector *c, const struct run_key *k);
    /* Optional (NULL): takes a runner that calls home, whose run lives by the log. An error: it was
     * refused, and the stream is gone. */
    int (*runner)(struct connector *c, const struct home_arrival *a, struct err *err);
    /* Optional (NULL): HOST:PORT of all members, often the same, for runners that call home. */
    void (*members)(struct connector *c, const char *const *addresses, size_t n);
    int (*logs)(struct connector *c, const struct run_key *k, const struct log_request *rq,
                const struct log_sink *sink, struct exec_session **ret, struct err *err);
    int (*exec)(struct connector *c, const struct run_key *k, const struct exec_request *rq,
                const struct log_sink *sink, struct exec_session **ret, struct err *err);
    /* Optional (NULL). */
    int (*forward)(struct connector *c, const struct run_key *k, const struct forward_request *rq,
                   const struct log_sink *sink, struct exec_session **ret, struct err *err);
    void (*exec_input)(struct exec_session *s, const void *p, size_t n, bool eof);
    /* Returns the bytes of input that have not left yet; a caller must wait rather than add without
     * bound. NULL: none ever wait. */
    size_t (*exec_pending)(const struct exec_session *s);
    /* Optional (NULL): the terminal of an exec has another size now. */
    void (*exec_resize)(struct exec_session *s, const struct exec_size *size);
    void (*exec_close)(struct exec_session *s);
    /* Lists the runs that carry Hanse's mark, asks `judge` about each, and does what it says. It
     * does not call judge after the call is done. DONE: that was all; seen->message says what the
     * list lacks, if anything. */
    void (*sweep)(struct connector *c, run_judge judge, void *arg, struct call *call);
    /* Optional (NULL): goes through the keys that the target promised to refuse more than older_ms
     * ago, and has it forget those that `judge` lets go, in the name of the state with
     * resourceVersion rv, which a majority has confirmed in this session. From then on the target
     * refuses orders of an older state. DONE: all were asked; seen->message says why it takes no
     * runs; "": it does. */
    void (*promises)(struct connector *c, uint64_t rv, uint64_t older_ms, promise_judge judge,
                     void *arg, struct call *call);
    /* Optional (NULL): the Target is deleted, and no work is held there. Takes away what the driver
     * keeps at the target for itself. DONE: nothing of it is left. REJECTED: something is; err says
     * what, and what to do where that does not go by itself. It is asked again until it is DONE. */
    void (*leave)(struct connector *c, struct call *call);
    /* Optional (NULL): reads the document that the target keeps of a run. */
    void (*document)(struct connector *c, const struct run_key *k, uint64_t deadline_ms,
                     document_cb cb, void *arg);
    /* Optional (NULL): tells what there is of a run, and what happened to it lately, for people; of
     * a key with try 0 of the newest try of that epoch. Nothing follows from it. */
    void (*details)(struct connector *c, const struct run_key *k, uint64_t deadline_ms,
                    details_cb cb, void *arg);
    /* Optional (NULL): lists a page of what others than Hanse run there (foreign.h). It changes
     * nothing. */
    void (*foreign)(struct connector *c, const struct foreign_ask *ask, foreign_cb cb, void *arg);
    /* Optional (NULL): names the state folders of the agents that speak for those nodes; "": they
     * are not all known. NULL: events->agent tells it. */
    void (*agents)(const struct connector *c, const struct placement *p, char ret[64]);
    const struct machine_ops *machines; /* NULL: it has none to offer (machines.h) */
};
struct connector { /* the first member of a driver's struct */
    const struct connector_ops *ops;
    struct connector_env env;
    char target[256];
};
/* Agents dial in. The server hands over each accepted ALPN_AGENT stream, whose certificate names
 * the target. */
int connector_agent_attach(struct connector *c, struct stream *s, struct err *err) MUST_CHECK;
/* Returns the connector that takes the agent of that part of spec.agents (borrowed from c; of other
 * Targets "" is the only part, and c its connector), or NULL: there is no such part. */
struct connector *connector_agent_part(struct connector *c, const char *part);
/* Ends the sessions of agents for which ends() is true; a connector of another type has none. */
void connector_agents_end(struct connector *c,
                          bool (*ends)(const struct peer_identity *who, void *arg), void *arg,
                          const char *why);
/* Called on a member that does not lead: tells the agent the leader's address, and closes. */
void connector_agent_redirect(struct stream *s, const char *leader_address);
/* Longest time in which an agent without a session dials every member that it knows (up to five
 * that do not answer at all), and the leader to which it is sent: an agent that has not come by
 * then is not there. */
#define AGENT_REDIAL_MAX_MS 20000
/* The lobby: it hears agents that are turned away first, for how far the state had come that they
 * served, like connector_events.heard. */
struct connector_lobby;
typedef void (*lobby_heard)(void *arg, const char *target, const char *cluster, uint64_t rv,
                            int64_t time_ms);
struct connector_lobby *connector_lobby_create(struct loop *l, lobby_heard heard, void *arg);
/* Turns the agents in it away unheard. Accepts NULL; returns NULL. */
struct connector_lobby *connector_lobby_destroy(struct connector_lobby *y);
void connector_lobby_enter(struct connector_lobby *y, struct stream *s, const char *target,
                           const char *why);
/* Tells an agent why it is refused, which it writes into its own log, and closes. */
void connector_agent_refuse(struct stream *s, const char *why);

#endif
