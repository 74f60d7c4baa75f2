/* What the files of look/ share. Nobody outside of connectors/kubernetes/look includes this. */
#ifndef HANSE_CONNECTORS_KUBERNETES_LOOK_INTERNAL_H
#define HANSE_CONNECTORS_KUBERNETES_LOOK_INTERNAL_H

#include "connectors/kubernetes/look/look.h"

#define KUBE_STREAMS_MAX 32 /* logs, execs and ports; those of logs share lines with watches */
#define KUBE_ROOM_MS 20     /* a full sink is asked again so often */
#define KUBE_OPEN_MS 60000  /* where the caller has no deadline */

struct kube_look {
    struct kube_look_env env;
    struct list details; /* details.c: under way */
    struct list foreign; /* foreign.c: likewise */
    struct list streams; /* struct kube_seen_stream */
    unsigned n_streams;
};
struct kube_seen_stream {     /* a log, an exec or a forwarded port */
    struct exec_session base; /* first */
    struct list link;         /* kube_look.streams */
    struct kube_look *look;
    struct log_sink sink;
    bool opened, closed, inside; /* inside: a callback of it is under way, which frees it */
    void (*free)(struct kube_seen_stream *s); /* with kube_stream_forget */
};

/* look.c */
/* E_UNAVAIL, E_LIMIT: it is out of reach, or there are too many. */
int kube_look_ready(const struct kube_look *l, struct err *err) MUST_CHECK;
struct kube_looked {     /* in the arena */
    const char *path;    /* "/api/v1/namespaces/NS/pods/NAME" */
    const char *program; /* name of its program's container */
};
/* The pod of that rank. runs: its program must. */
int kube_look_pod(const struct kube_look *l, const struct run_key *k, int64_t rank, bool runs,
                  struct arena *a, struct kube_looked *ret, struct err *err) MUST_CHECK;
/* Is its program over, or its pod gone? */
bool kube_look_over(const struct kube_look *l, const struct run_key *k, int64_t rank);
void kube_right_name(struct err *err); /* it lacks a right: says where that is */
void kube_stream_begin(struct kube_seen_stream *s, struct kube_look *l,
                       const struct log_sink *sink);
void kube_stream_forget(struct kube_seen_stream *s);
void kube_stream_opened(struct kube_seen_stream *s); /* tells it, once */
/* Tells the end, unless it was closed. It is gone with that, or when leave() is called. */
void kube_stream_end(struct kube_seen_stream *s, int exit_code, const struct err *err);
/* Around a callback that tells its sink anything: it may close the stream. */
void kube_stream_enter(struct kube_seen_stream *s);
void kube_stream_leave(struct kube_seen_stream *s);
void kube_stream_close(struct kube_seen_stream *s); /* by its owner */

/* details.c */
void kube_details_end(struct kube_look *l, const struct err *why); /* all of them */

/* foreign.c */
void kube_foreign_end(struct kube_look *l, const struct err *why); /* likewise */

#endif
