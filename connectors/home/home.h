/* A runner that calls home: where no agent is (a pod, a script of another scheduler, a rented
 * machine), `hanse run --home` itself speaks to a member of the hub, over TLS, with a token that
 * the hub's order brought. It reports, is given its lease, and is told to stop or to save.
 * README.md has the protocol; its bodies are in connectors/wire.
 *
 * Whoever holds a token (connectors/report) speaks of its runner and of nothing else, and only
 * while the log says that this epoch lives. */
#ifndef HANSE_CONNECTORS_HOME_H
#define HANSE_CONNECTORS_HOME_H

#include "api/base/cluster.h"
#include "api/base/net/proxy.h"
#include "connectors/connector.h"
#include "connectors/kept/kept.h"
#include "connectors/report/report.h"
#include "connectors/wire/wire.h"

/* ---- the hub's door (home_door.c): streams of ALPN_RUNNER, until they have shown a token ---- */
struct home_arrival {      /* borrowed for the call */
    struct stream *stream; /* the callee takes it, refuses it or sends it on */
    const struct home_token *token;
    const struct home_hello *hello;
    const struct home_welcome *welcome; /* what it is told once it is taken; NULL: nothing */
    struct arena **mem; /* where token and hello are; who keeps them takes it, and leaves NULL */
    const struct home_keep *keep; /* where what its program prints is kept; NULL: nowhere */
};
struct home_keep { /* connectors/kept; who calls home is given none of it, and cannot be */
    struct kept_queue *queue;
    const char *base, *roots;
    const char *const *env;
    uint64_t max_bytes; /* of its log */
};
struct home_door;
struct home_door *home_door_create(struct loop *l, const struct home_keys *keys,
                                   void (*arrived)(void *arg, const struct home_arrival *a),
                                   void *arg);
/* Cuts off who stands in it. Accepts NULL; returns NULL. */
struct home_door *home_door_destroy(struct home_door *d);
void home_door_enter(struct home_door *d, struct stream *s);
enum home_refusal {
    HOME_NOT_NOW,    /* here, or at the moment */
    HOME_OVER,       /* by the log its run is over: the runner ends what it runs */
    HOME_TOKEN_SPENT /* it is over for this process: another one may have begun with its token */
};
/* Says why, and closes. */
void home_refuse(struct stream *s, enum home_refusal r, const char *why);
void home_redirect(struct stream *s, const char *leader_address);

/* ---- the hub's side of runs (home_runs.c): a part of the driver whose runners call home ---- */
struct home_runs_events {
    /* A runner of that run has told something new. */
    void (*told)(void *arg, const struct run_key *k);
};
struct home_runs;
/* env: borrowed until home_runs_destroy; it has at least a loop. */
struct home_runs *home_runs_create(const struct connector_env *env,
                                   const struct home_runs_events *ev, void *arg);
/* Its streams are cut: the runners dial again. Accepts NULL; returns NULL. */
struct home_runs *home_runs_destroy(struct home_runs *h, const char *why);
/* Takes a stream whose token holds, and whose run lives by the log. An error: it was refused, and
 * the stream is gone: another runner lives with this token, or there are too many. */
int home_runs_take(struct home_runs *h, const struct home_arrival *a, struct err *err) MUST_CHECK;
/* HOST:PORT of all members: whoever is here, or comes, is told of them when they change. */
void home_runs_members(struct home_runs *h, const char *const *addresses, size_t n);
/* As connector_ops.renew, for those runs that home_runs_reach. */
void home_runs_renew(struct home_runs *h, const struct run_offer *offers, size_t n);
/* The run's target says that this rank has ended: it is waited for no more, also where no end of it
 * was ever heard. Told ahead of home_runs_fill, each time. */
void home_runs_over(struct home_runs *h, const struct run_key *k, int64_t rank);
/* Is every runner of that run here, but for those that have ended? NULL: is any here? */
bool home_runs_reach(const struct home_runs *h, const struct run_key *k);
/* To all runners of the run that are here; returns how many. signo 0: SIGTERM. */
unsigned home_runs_stop(struct home_runs *h, const struct run_key *k, int signo, uint64_t grace_ms);
/* By the signal that they were started with. A runner that dials again is told again, until it has
 * told of that request. */
unsigned home_runs_save(struct home_runs *h, const struct run_key *k, int64_t number,
                        uint64_t grace_ms);
/* Adds to what the target's server says of a run what its runners say: whether their programs have
 * begun, which no server sees (RUN_STARTING until all have), the lease that all of them
 * hold, that it ran out, how the first that failed ended, the newest checkpoint, how far a request
 * to save is. Where it runs by the server's word, and one of them is silent for longer than the
 * lease that it held, it becomes RUN_UNKNOWN. Remembers what the server said. */
void home_runs_fill(struct home_runs *h, struct observation *o);
/* What the server said of it last, filled in anew; false: nothing since this member leads. */
bool home_runs_seen(struct home_runs *h, const struct run_key *k, struct observation *ret);
/* As connector_ops.logs, exec and forward; the runner must be here. Their sessions are those of
 * connectors/streams (asked_input and so on). */
int home_runs_logs(struct home_runs *h, const struct run_key *k, const struct log_request *rq,
                   const struct log_sink *sink, struct exec_session **ret,
                   struct err *err) MUST_CHECK;
int home_runs_exec(struct home_runs *h, const struct run_key *k, const struct exec_request *rq,
                   const struct log_sink *sink, struct exec_session **ret,
                   struct err *err) MUST_CHECK;
int home_runs_forward(struct home_runs *h, const struct run_key *k,
                      const struct forward_request *rq, const struct log_sink *sink,
                      struct exec_session **ret, struct err *err) MUST_CHECK;
void home_runs_unsee(struct home_runs *h); /* what the server said counts no more */

/* ---- what an order brings its runners (home_driver.c) ---- */
#define HOME_OPTIONS_MAX 16
struct home_brought { /* in the arena */
    struct home_order way; /* connector.h; addresses, CA, a token for each rank, the proxy */
    /* Of hanse run, ahead of --, beside those of the way home: what it saves to and resumes from.
     * The same for all ranks, whose numbers are in their tokens. */
    const char **options;
    uint32_t n_options;
};
/* calls: by its Target (spec.connection.runners) its runners call home. Returns 1 when they do, and
 * ret is set; 0 when they do not, and nothing in the order needs it. E_NOTIMPL, E_UNAVAIL: the
 * order needs it and they do not, or they could not. */
int home_order_make(const struct connector_env *e, const char *target, bool calls,
                    const struct run_order *o, struct arena *a, struct home_brought *ret,
                    struct err *err) MUST_CHECK;

/* ---- the runner's side (home_caller.c) ---- */
struct home_caller_events { /* none of them destroys the caller */
    /* A hub has taken it; again after each session that was lost. w: borrowed; NULL: that hub does
     * not tell where it is. */
    void (*welcome)(void *arg, const struct home_welcome *w);
    void (*refused)(void *arg, const struct home_refused *r); /* borrowed */
    void (*renew)(void *arg, const struct shim_renew *q);
    void (*stop)(void *arg, const struct shim_stop *q);
    void (*save)(void *arg, const struct shim_save *q);
    void (*go)(void *arg);    /* all ranks are ready */
    void (*heard)(void *arg); /* the hub has taken in all that was told */
    /* A frame of a stream, which goes out by home_caller_stream(). */
    void (*frame)(void *arg, const struct frame *f);
    void (*lost)(void *arg); /* the session is over, and its streams are */
};
struct home_caller_config {       /* borrowed until home_caller_destroy */
    const char *const *addresses; /* of members, "HOST:PORT"; all are dialed, in rounds. The hub
                                     tells of others later */
    unsigned n_addresses;
    const struct tls_config *tls;
    const struct proxy *proxy; /* api/base/net/proxy.h; NULL: it dials straight */
    const char *token;
    bool logs, execs; /* what it can be asked for; logs: also to be kept */
    const struct home_caller_events *events;
    void *arg;
};
/* "HOST:PORT,HOST:PORT"; the list is cut into its addresses. E_USAGE. */
int home_addresses_read(char *list, const char *ret[HOME_ADDRESSES_MAX], unsigned *ret_n,
                        struct err *err) MUST_CHECK;
/* What --home-proxy and --home-proxy-auth say, NULL where they are not given. It comes ahead of all
 * processes of ours, which must not read what it may hold. */
int home_proxy_read(const char *home, const char *url, const char *login, struct proxy *ret,
                    bool *ret_has, struct err *err) MUST_CHECK;
struct home_caller;
struct home_caller *home_caller_create(struct loop *l, const struct home_caller_config *cfg);
void home_caller_tell(struct home_caller *h, const struct run_report *r); /* the newest counts */
/* Where frames of streams go; NULL: no hub has taken it at the moment. */
struct stream *home_caller_stream(const struct home_caller *h);
bool home_caller_heard(const struct home_caller *h);            /* the newest was taken in */
bool home_caller_keeps(const struct home_caller *h); /* a hub that took it keeps its log */
const char *home_caller_why(const struct home_caller *h);       /* no hub has taken it: why; "" */
struct home_caller *home_caller_destroy(struct home_caller *h); /* accepts NULL; returns NULL */

#endif
