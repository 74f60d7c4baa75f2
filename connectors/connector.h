/* Connectors: effects on other people's systems. One interface for all; drivers never see each
 * other.
 *
 * The contract (controlplane/DESIGN.md, One run, never two):
 * - A connector holds no truth of its own. It can be destroyed and created again at any moment;
 * what it knows it finds again from the target.
 * - All calls are asynchronous, idempotent, keyed by (uid, epoch, try), and end by their deadline
 * in one of three ways: OUT_DONE, OUT_REJECTED (provably no effect), OUT_UNKNOWN. After OUT_UNKNOWN
 * the caller asks find().
 * - Nothing is submitted before its intent is in the log; the caller sees to that. `submit` writes
 * the key on what it makes. It never adopts or touches an object that does not carry our owner mark
 * and key.
 * - Alive, dead and unknown are three answers. "Not there" is RUN_ABSENT only when the target was
 * reached, listed completely, and the session is one in which it would have been seen; anything
 * else is RUN_UNKNOWN.
 * - Callbacks run on the connector's loop, never from inside the call that asked. */
#ifndef HANSE_CONNECTORS_CONNECTOR_H
#define HANSE_CONNECTORS_CONNECTOR_H

#include "api/base/cluster.h"
#include "api/base/err.h"
#include "api/base/loop/loop.h"
#include "api/schema/schema.h"
#include "connectors/ends.h"
#include "connectors/wire/wire.h"

#include <stdbool.h>
#include <stdint.h>

/* A program's way to say: I have saved what I did, start me again (EX_TEMPFAIL of sysexits.h). */
#define RUN_EXIT_SAVED 75

/* Keys, states, checkpoints and observations of runs, offers of leases and promises are what is
 * said on the wire, too: connectors/wire/wire.def. A checkpoint is one of all ranks, sealed and
 * verified by digest (connectors/checkpoint/README.md); the grant of an observation is that of the
 * lease which all its runners hold, and never goes back. */

/* What is to run; all borrowed for the call. */
struct run_order {
    struct run_key key;
    const struct object *workload; /* Workload with status.placement */
    const struct placement *placement;
    const char *const *env; /* "NAME=value", secrets resolved; NULL-terminated */
    /* Runners stop themselves after this long without renewal, counted from before submit() was
     * called, however late it arrives; 0 = none. */
    uint64_t lease_ms;
    uint64_t grace_ms; /* that its program has to save, within the lease and when it is stopped */
    /* Absolute directory of this workload in its store, or "": connectors/checkpoint says what lies
     * below it. The program of rank R gets its own HANSE_CHECKPOINT_DIR in it, for this epoch. */
    const char *checkpoint_dir;
    int64_t checkpoint_keep;        /* cuts that stay; older ones are removed by the runner */
    int64_t checkpoint_interval_ms; /* advice for the program, HANSE_CHECKPOINT_INTERVAL in seconds;
                                       0 = none */
    /* What it resumes from: cut file and its digest, or "". Verified before the program starts;
     * when it does not hold nothing is started and the run is RUN_ABSENT with a Checkpoint…
     * reason. */
    const char *resume_path, *resume_digest;
    int64_t resume_epoch, resume_step; /* of it; 0 and -1: there is none */
    int64_t resume_ranks;              /* workers that saved it; 0 = not known */
    /* Its program can resume with another number of workers than saved: each gets what all of them
     * saved. Else what it resumes from must have as many ranks as placement has workers. */
    bool reshard;
    int64_t look_workers; /* of look_epoch; 0 = not known */
    /* Of stage() alone: 0, or it looks into checkpoint_dir instead, for what is newer than the
     * above, of this epoch or an earlier one. All runs of these are proved ended. */
    int64_t look_epoch;
};

struct run_hold { /* of a run: devices of one node, a bit each */
    char node[256];
    uint64_t devices;
};
/* A run as its target lists it; borrowed. */
struct run_listed {
    struct observation seen;
    /* That started it or took it over; "": a hub older than this told none. */
    char cluster[CLUSTER_UID_MAX];
    char ns[64], name[256]; /* of its workload, as its order told */
    uint64_t state_rv;      /* resourceVersion of the state that started it had; 0: not known */
    int64_t since_ms;       /* UTC by the target's clock when it was accepted; 0: not known */
    const struct run_hold *holds;
    size_t n_holds;
};
enum run_verdict {
    RUN_KEPT,    /* nothing is done to it */
    RUN_CLAIMED, /* this cluster's; the target is to write that down */
    RUN_LET_GO   /* this cluster's own log let it go: it is ended, its records may go */
};
typedef enum run_verdict (*run_judge)(const struct run_listed *r, void *arg);

/* What a target keeps of a run: its Workload, with the placement, as it was when it was sent. */
typedef void (*document_cb)(void *arg, enum outcome out, const char *json, const struct err *err);
typedef bool (*promise_judge)(const struct run_promise *p, void *arg); /* true: it is let go */

struct call;
typedef void (*call_cb)(struct call *c, enum outcome out, const struct observation *seen,
                        const struct err *err);
struct call {             /* the caller's memory, valid until done */
    uint64_t deadline_ms; /* loop_now_ms by which done() is called */
    call_cb done;
    void *arg;
};

struct log_sink { /* of logs() and exec(): bytes as they come */
    void (*data)(int fd, const void *p, size_t n, void *arg);     /* fd 1 or 2 */
    void (*end)(int exit_code, const struct err *err, void *arg); /* last call; exit_code of exec */
    bool (*full)(void *arg); /* backpressure: true = please pause */
    void *arg;
};
/* logs() and exec() take a key with try 0 for the newest try of that epoch. */
struct log_request {
    int64_t rank;
    bool follow;
    int64_t tail_lines; /* -1 = all */
};
struct exec_request {
    int64_t rank;
    const char *const *argv;
    bool tty, with_stdin;
};
struct exec_session; /* the driver's; ended by sink.end */

/* What the connector tells on its own. All on its loop. */
struct connector_events {
    /* The whole inventory (complete) or the changed nodes; objects borrowed. Names:
     * "TARGET.NODE". */
    void (*nodes)(void *arg, const struct node *nodes, size_t n, bool complete);
    /* session: new one = new id */
    void (*reach)(void *arg, bool reachable, const char *session, const char *why);
    void (*observed)(void *arg, const struct observation *o);
    /* Whose memory speaks from the reach() on that follows: an agent's state folder. What was given
     * to another one it does not know: nothing that it says of those runs proves anything.
     * Optional;
     * "" = not known. */
    void (*agent)(void *arg, const char *state_id);
    /* Told ahead of reach(): of the state of which cluster, and up to which resourceVersion, the
     * target has heard, and that state's time then (0 = not known). A state that had not come so
     * far by that time is an older one. Optional; "" = nothing. */
    void (*heard)(void *arg, const char *cluster, uint64_t rv, int64_t time_ms);
    /* A second agent came with the certificate of the one that is taken, and was turned away: as a
     * sentence. Told again as often as it comes. Optional. */
    void (*rival)(void *arg, const char *why);
};

struct connector;
struct connector_env {
    struct loop *loop;
    const struct connector_events *events;
    void *arg;
    /* Secret by name in hanse-system; the text belongs to the caller of get and is wiped by put.
     * NULL = none. */
    const char *(*secret_get)(void *arg, const char *name, const char *key);
    void (*secret_put)(void *arg, const char *text);
    /* This cluster's uid, borrowed until the next call; "" while it has none. NULL: likewise. */
    const char *(*cluster_uid)(void *arg);
    /* resourceVersion of its state, and its time, that of its newest entry; NULL: not told */
    uint64_t (*state_rv)(void *arg, int64_t *ret_time_ms);
};

struct connector_ops {
    const char *type;
    int (*create)(const struct connector_env *env, const struct object *target,
                  struct connector **ret, struct err *err);
    void (*destroy)(struct connector *c); /* outstanding calls end OUT_UNKNOWN first */
    void (*update)(struct connector *c, const struct object *target); /* the document changed */
    /* Is it there, may we? DONE = yes. */
    void (*probe)(struct connector *c, struct call *call);
    /* Asks for a full inventory, told by events->nodes; then the connector goes on watching or
     * polling. */
    void (*inventory)(struct connector *c, struct call *call);
    void (*submit)(struct connector *c, const struct run_order *o, struct call *call);
    /* What became of this key? `seen` is set when DONE. With RUN_ABSENT the target promises to
     * refuse the key later. */
    void (*find)(struct connector *c, const struct run_key *k, struct call *call);
    /* Reads all of o's resume_path on the target's side and checks every digest, ahead of submit:
     * DONE = it can be resumed from there; REJECTED (err E_CHECKPOINT, seen->reason Checkpoint…) =
     * it cannot. Starts nothing.
     * With look_epoch: DONE = the store was looked through; seen->checkpoint is the newest one
     * there that verifies as a whole and is newer than resume_…, or not present; seen->message says
     * what was passed over, and why. REJECTED or UNKNOWN = it could not be looked through. */
    void (*stage)(struct connector *c, const struct run_order *o, struct call *call);
    /* Sends the signal, then waits for its end up to grace_ms; the end itself comes by observed().
     * DONE = signal delivered. */
    void (*quiesce)(struct connector *c, const struct run_key *k, int signo, uint64_t grace_ms,
                    struct call *call);
    /* Ends it for good: TERM, KILL after grace. DONE with seen->state RUN_ENDED or RUN_ABSENT only
     * when proved. */
    void (*stop)(struct connector *c, const struct run_key *k, uint64_t grace_ms,
                 struct call *call);
    /* Renews the leases of all runs on the target, each for the length that it holds; those of the
     * offers for what is offered, if their runners take it. No answer: what they hold is observed.
     * Called only after a quorum round proved the leadership. */
    void (*renew)(struct connector *c, const struct run_offer *offers, size_t n);
    int (*logs)(struct connector *c, const struct run_key *k, const struct log_request *rq,
                const struct log_sink *sink, struct exec_session **ret, struct err *err);
    int (*exec)(struct connector *c, const struct run_key *k, const struct exec_request *rq,
                const struct log_sink *sink, struct exec_session **ret, struct err *err);
    void (*exec_input)(struct exec_session *s, const void *p, size_t n, bool eof);
    /* Bytes that wait on their way there; who adds more regardless has no bound. NULL: nothing
     * does. */
    size_t (*exec_pending)(const struct exec_session *s);
    void (*exec_close)(struct exec_session *s);
    /* Lists what carries our mark, asks `judge` about each, does what it says. Judge is not called
     * any more once the call is done. */
    void (*sweep)(struct connector *c, run_judge judge, void *arg, struct call *call);
    /* Optional (NULL): goes through what the target promised to refuse and is older than older_ms,
     * and has it forget what `judge` lets go, by the word of the state of resourceVersion rv, which
     * a majority has confirmed in this session: orders of an older state it refuses from then on.
     * DONE: all of it; seen->message says why it takes no runs, "" = it does. */
    void (*promises)(struct connector *c, uint64_t rv, uint64_t older_ms, promise_judge judge,
                     void *arg, struct call *call);
    /* Optional (NULL): what is kept of a run. */
    void (*document)(struct connector *c, const struct run_key *k, uint64_t deadline_ms,
                     document_cb cb, void *arg);
    /* Optional (NULL): prices, provision and release of machines. */
    void (*prices)(struct connector *c, struct call *call);
    void (*provision)(struct connector *c, const struct run_order *o, struct call *call);
    void (*release)(struct connector *c, const struct run_key *k, struct call *call);
};
struct connector { /* a driver's struct begins with this */
    const struct connector_ops *ops;
    struct connector_env env;
    char target[256];
};
/* Agents dial in: the server hands over each accepted ALPN_AGENT stream, whose certificate names
 * the target. */
int connector_agent_attach(struct connector *c, struct stream *s, struct err *err) MUST_CHECK;
/* Ends the sessions of agents whose certificates are not taken any more; of another type's
 * connector there are none. */
void connector_agents_end(struct connector *c,
                          bool (*ends)(const struct peer_identity *who, void *arg), void *arg,
                          const char *why);
/* A member that does not lead tells the agent where to go, and closes. */
void connector_agent_redirect(struct stream *s, const char *leader_address);
/* So often an agent that has no session dials every member that it knows (up to five that do not
 * answer at all), the leader that it is sent to included: who has not come by then is not there. */
#define AGENT_REDIAL_MAX_MS 20000
/* Agents that are turned away are heard first: how far the state had come that they served, as
 * connector_events.heard has it. */
struct connector_lobby;
typedef void (*lobby_heard)(void *arg, const char *target, const char *cluster, uint64_t rv,
                            int64_t time_ms);
struct connector_lobby *connector_lobby_create(struct loop *l, lobby_heard heard, void *arg);
/* Those who are in it are turned away unheard. NULL ok; returns NULL. */
struct connector_lobby *connector_lobby_destroy(struct connector_lobby *y);
void connector_lobby_enter(struct connector_lobby *y, struct stream *s, const char *target,
                           const char *why);
/* Tells an agent why it is not taken, in its own log, and closes. */
void connector_agent_refuse(struct stream *s, const char *why);

#endif
