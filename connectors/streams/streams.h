/* Logs, execs and forwarded ports: bytes on the session between a hub and what runs programs (an
 * agent, or a runner that calls home), beside its other frames and without drowning them. Both
 * sides are here, once for both kinds of sessions. The frames are SF_… of connectors/wire.
 *
 * Neither side trusts the other: a stream belongs to the session in which it was opened, each has
 * limits, and what the other side does not keep to ends the stream or the session, never more. */
#ifndef HANSE_CONNECTORS_STREAMS_H
#define HANSE_CONNECTORS_STREAMS_H

#include "api/base/list.h"
#include "connectors/connector.h"
#include "connectors/shim/runner_os.h"

#define STREAMS_MAX 64 /* of one agent, or of one runner that calls home */

/* What each session of connector_ops begins with, of a driver that has several kinds of them. */
struct exec_session_ops {
    void (*input)(struct exec_session *s, const void *p, size_t n, bool eof);
    size_t (*pending)(const struct exec_session *s);
    void (*resize)(struct exec_session *s, const struct exec_size *size);
    void (*close)(struct exec_session *s);
};
struct exec_session {
    const struct exec_session_ops *ops;
};

/* ---- the hub's side (asked.c): streams of one session ---- */
struct asked_streams { /* embedded by its owner, who sets these */
    struct loop *loop;
    struct stream *to; /* the session; NULL: there is none, and no streams */
    char who[300];     /* the other side, for sentences: "agent a" */
    bool opens;        /* it tells when a stream is open */
    bool places;       /* and where a log is */
    size_t input_max;  /* that may wait on the session before callers do */
    /* its own */
    struct list all;
    unsigned n;
    size_t over; /* bytes that came while it had been told to pause */
};
void asked_init(struct asked_streams *v, struct loop *l, const char *who, size_t input_max);
/* As those of connector_ops, for the key as it is. id: one that was never given on this session. */
int asked_logs(struct asked_streams *v, uint64_t id, const struct run_key *k,
               const struct log_request *rq, const struct log_sink *sink, struct exec_session **ret,
               struct err *err) MUST_CHECK;
int asked_exec(struct asked_streams *v, uint64_t id, const struct run_key *k,
               const struct exec_request *rq, const struct log_sink *sink,
               struct exec_session **ret, struct err *err) MUST_CHECK;
int asked_forward(struct asked_streams *v, uint64_t id, const struct run_key *k,
                  const struct forward_request *rq, const struct log_sink *sink,
                  struct exec_session **ret, struct err *err) MUST_CHECK;
/* Asks for the piece of the log that begins at that byte (SF_KEEP). The sink hears `opened` when it
 * is there; asked_go lets it come. kept: asks for none, and says that all of it is kept. */
int asked_keep(struct asked_streams *v, uint64_t id, const struct run_key *k, int64_t rank,
               uint64_t from, bool kept, const struct log_sink *sink, struct exec_session **ret,
               struct err *err) MUST_CHECK;
void asked_go(struct exec_session *s);
/* True for the frames that the other side sends. */
bool asked_is_frame(uint8_t type);
/* A sink may do anything in it, also end the session. */
void asked_frame(struct asked_streams *v, const struct frame *f);
void asked_lost(struct asked_streams *v, const char *why); /* the session is over: ends them all */
void asked_resize(struct exec_session *s, const struct exec_size *size);
void asked_input(struct exec_session *s, const void *p, size_t n, bool eof);
size_t asked_pending(const struct exec_session *s);
void asked_close(struct exec_session *s);

/* ---- the side of the programs (served.c, keeping.c, attached.c) ---- */
enum log_state {
    LOG_GROWS,
    LOG_WHOLE, /* its program has ended: what is there is all of it */
    LOG_GONE
};
struct stream_place { /* where a program is, for what is put beside it; in the caller's arena */
    const char *group, *will, *marker; /* "": none; will: of one in a PID namespace */
    enum run_processes held;
    uint32_t uid, gid; /* its user; uid 0: this process's */
    const char *const *env;
    const char *cwd; /* NULL: the present one */
};
struct streams_ops {
    /* Names the file with the output of that run and rank. */
    int (*logs)(void *arg, struct wire_open *q, char path[4096], struct err *err);
    enum log_state (*log_state)(void *arg, const struct run_key *k);
    /* All of the log is in a store, and whoever waits for that need not any more. NULL: nobody. */
    void (*kept)(void *arg);
    /* An error: its program does not run (any more), or never will here. */
    int (*place)(void *arg, const struct wire_open *q, struct arena *m, struct stream_place *ret,
                 struct err *err);
};
struct streams_config {
    struct loop *loop;
    struct runner_os *os;
    const char *at;      /* for sentences: "on one agent" */
    size_t pending_max;  /* on the session, before output waits */
    const struct streams_ops *ops;
    void *arg;
};
struct streams;
/* All below, but for streams_listen and streams_frame, accept NULL: none. */
struct streams *streams_create(const struct streams_config *cfg);
/* Where helpers dial in, a path of at most 107 bytes in a folder that is this user's alone; without
 * it there are logs alone. */
int streams_listen(struct streams *v, const char *path, struct err *err) MUST_CHECK;
/* The session on which frames come, and on which they are answered. NULL: it is over, and so are
 * all streams. */
void streams_session(struct streams *v, struct stream *to);
void streams_frame(struct streams *v, const struct frame *f);
/* A log is whole now: its readers need not wait to see that. */
void streams_look(struct streams *v);
/* The program that they are beside has ended: ends execs and ports. */
void streams_hang_up(struct streams *v);
/* Is it one of our helpers? The loop reaps it then. */
bool streams_own(const struct streams *v, int64_t pid);
/* None is left that anybody reads. Pieces for a store are none of these: who has the log knows by
 * streams_ops.kept, and by when he waits for that no longer. */
bool streams_quiet(const struct streams *v);
struct streams *streams_destroy(struct streams *v); /* returns NULL */

#endif
