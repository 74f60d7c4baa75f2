/* What the API asks of the control plane: one table, filled in by controlplane (and by a small
 * in-memory one in tests). The API knows nothing of Raft. All calls and callbacks are on the API's
 * loop. */
#ifndef HANSE_API_SERVER_BACKEND_H
#define HANSE_API_SERVER_BACKEND_H

#include "api/base/err.h"
#include "api/base/loop/loop.h"
#include "api/schema/schema.h"

#include <stdbool.h>
#include <stdint.h>

/* A version of the whole state. Immutable, counted; cheap to take. */
struct view;

enum api_write_verb { API_CREATE = 1, API_UPDATE, API_UPDATE_STATUS, API_DELETE };
enum api_propagation { API_DEFAULT, API_BACKGROUND, API_FOREGROUND, API_ORPHAN };
struct api_write_op {
    enum api_write_verb verb;
    const struct kind *kind;
    const char *ns, *name;
    const char *uid;                  /* precondition, or NULL */
    uint64_t rv;                      /* precondition, or 0 */
    const int64_t *grace_seconds;     /* DELETE: DeleteOptions.gracePeriodSeconds, or NULL */
    enum api_propagation propagation; /* DELETE: DeleteOptions.propagationPolicy */
    const struct object *object;      /* the whole new object; the backend takes a reference */
};
/* Under a key (a client's Idempotency-Key) the first final answer is kept for 24 h and is the
 * answer to all that comes under it, at whatever member and however late: a success, or a
 * refusal. */
struct api_write {
    const char *key;         /* the user's own; NULL = none */
    const char *fingerprint; /* of the request; another one under the same key is refused */
    const char *old_key;     /* as members of older versions name the request; NULL = key */
    unsigned attempt;        /* of the same request, from 0 on */
    bool again; /* E_CONFLICT, E_NOTFOUND and E_EXISTS are no answers: it is computed anew then */
    bool part;  /* nor is success: more of the same request follows */
    const struct err *refusal; /* nothing is to be written (n = 0): this is the answer under the
                                  key, unless it has one; NULL = none */
    const char *user;          /* who asks */
    const char *as;            /* whom he impersonates; NULL = nobody */
    const char *revision;      /* git commit of an atomic apply, or NULL */
    const struct api_write_op *ops; /* all or nothing; borrowed for the call */
    size_t n;
    bool dry_run;
    uint64_t deadline_ms; /* relative */
};
struct api_result {
    uint64_t rv;
    size_t op; /* the op at fault, on error */
    bool unchanged;
    bool final;        /* with a key: this is the answer for good */
    bool repeated;     /* and was so before: nothing was done now */
    unsigned retry_s;  /* of what may be done later: when; 0: soon */
    struct view *view; /* a state that contains the write (dry run: that would); borrowed */
};

struct api_identity { /* who asks; filled in by authentication */
    char user[256];
    char by[256]; /* who really asks, where he impersonates `user` */
    char groups[16][256];
    unsigned n_groups;
    char uid[64];
    struct api_extra { /* what else is known of him, as authentication.k8s.io has it */
        char key[128], value[256];
    } extra[8];
    unsigned n_extra;
    char audiences[8][256]; /* of a token: who may take it; none = this API */
    unsigned n_audiences;
    bool anonymous;
};
#define API_AUDIENCE "hanse" /* of tokens that this API takes */

struct api_log_at { /* where in what a program printed a log is */
    bool known;     /* else only that it will be told: whoever resumes waits for it */
    int64_t epoch, try_; /* try_ 0: the newest of that epoch */
    uint64_t from;  /* the byte that comes next, counted from the first ever: all data is ahead */
    bool mid;       /* it is amid a line */
};
struct api_stream_sink { /* logs, exec output */
    /* It is open, at the target, ahead of all data; may be NULL. A member of an older version does
     * not tell: there, the first data says it. */
    void (*opened)(void *arg);
    void (*data)(int fd, const void *p, size_t n, void *arg);
    void (*end)(int exit_code, const struct err *err, void *arg);
    bool (*full)(void *arg);
    void *arg;
    void (*eof)(void *arg); /* of a port: no more data comes, input is still taken; may be NULL */
    /* Of a log, behind data: all of it up to there; may be NULL. Ahead of the first data it says
     * that it will be told; else it never is, as of a target that does not know. */
    void (*at)(const struct api_log_at *at, void *arg);
};
struct api_exec { /* also logs: argv NULL, port 0; and a forwarded port */
    const struct api_identity *who;
    const char *ns, *workload;
    int64_t rank;
    const char *const *argv; /* NULL-terminated */
    bool with_stdin, tty, follow;
    int64_t tail_lines;    /* -1 = all */
    /* A log: each line with its time; what came in the time up to now, or since (UTC ms), 0: all */
    bool timestamps;
    int64_t since_span_ms, since_ms;
    int64_t epoch; /* whose log; 0: the newest, -1: the one before it */
    /* A log goes on from that byte of that try of `epoch`; mid: which is amid a line. The sink
     * hears of that place first. */
    bool resumes, mid;
    int64_t try_;
    uint64_t from;
    int64_t rows, columns; /* of a tty, at the start; 0: not known */
    int64_t port;          /* to which bytes go, and from which they come; 0: none */
};
#define API_TERMINAL_MAX 4096 /* rows or columns; what is told above counts as this */
struct api_exec_session;
struct api_backup;

struct backend;
struct backend_ops {
    /* ---- reading ---- */
    struct view *(*view)(struct backend *b); /* newest here; caller releases */
    struct view *(*view_ref)(struct view *v);
    void (*view_release)(struct view *v);
    uint64_t (*view_rv)(const struct view *v);
    /* Linearizable: cb once view() contains all that was acknowledged before. min_rv: waits for
     * that rv, too. */
    void (*fresh)(struct backend *b, uint64_t min_rv, uint64_t deadline_ms,
                  void (*cb)(void *arg, const struct err *err), void *arg);
    const struct object *(*get)(const struct view *v, const struct kind *k, const char *ns,
                                const char *name);
    void (*scan)(const struct view *v, const struct kind *k, const char *ns, const char *after_ns,
                 const char *after_name, bool (*each)(const struct object *o, void *arg),
                 void *arg);
    uint64_t (*count)(const struct view *v, const struct kind *k);
    /* The object with the figures of its status that are not stored but follow from the rest of v;
     * the caller lets go of it. NULL: it is shown as it is. The whole op may be NULL. */
    struct object *(*shown)(struct backend *b, const struct view *v, const struct object *o);
    /* Changes after `since`. before NULL = created, after NULL = deleted (then `before` carries the
     * deletion's rv in rv). */
    int (*changes)(const struct view *v, uint64_t since,
                   bool (*each)(uint64_t rv, const struct kind *k, const struct object *before,
                                const struct object *after, void *arg),
                   void *arg, struct err *err);
    /* on_view(arg) on the API's loop after new versions (coalesced). One listener. */
    void (*subscribe)(struct backend *b, void (*on_view)(void *arg), void *arg);

    /* ---- writing ---- */
    void (*write)(struct backend *b, const struct api_write *w,
                  void (*cb)(void *arg, const struct api_result *r, const struct err *err),
                  void *arg);
    /* Secret values of a stored object as the JSON text of `data` ({"k":"base64"}), into buf; wiped
     * by the caller. */
    int (*secret_open)(struct backend *b, const struct object *secret, struct buf *ret_data,
                       struct err *err);
    /* Checks that need other objects (cyclic queues, …) on the state as it would be; called before
     * a write is proposed. */
    int (*check)(struct backend *b, const struct view *v, const struct api_write *w,
                 struct err *err);
    /* Can windows be computed in this time zone here? NULL: in any. */
    bool (*zone_known)(struct backend *b, const char *zone);

    /* ---- who ---- */
    /* A bearer token → identity, whoever may take it (audiences). E_UNAUTH. Certificates are judged
     * by the API itself (CN, O). */
    int (*token)(struct backend *b, const char *token, struct api_identity *ret, struct err *err);

    /* ---- running work ---- */
    int (*exec)(struct backend *b, const struct api_exec *e, const struct api_stream_sink *sink,
                struct api_exec_session **ret, struct err *err);
    void (*exec_input)(struct api_exec_session *s, const void *p, size_t n, bool eof);
    /* Input that waits on its way: who adds more regardless has no bound. May be NULL: none
     * does. */
    size_t (*exec_pending)(const struct api_exec_session *s);
    /* The terminal of an exec has another size now. May be NULL. */
    void (*exec_resize)(struct api_exec_session *s, int64_t rows, int64_t columns);
    void (*exec_close)(struct api_exec_session *s);

    /* Where the leader serves users ("host:port"), for operations that only it can do: the API
     * answers 307. NULL when this member leads; "" when nobody is known to. Borrowed for the
     * call. */
    const char *(*leader)(struct backend *b);

    /* ---- operations: JSON in, JSON out; the bodies are documented in api/server/README.md ---- */
    /* op: "status", "members.list", "members.add", "members.promote", "members.remove",
     * "members.transfer", "workload.fence", "token.create", "plan", … cb's body is borrowed.
     * E_NOTIMPL for an unknown op. */
    void (*operate)(struct backend *b, const struct api_identity *who, const char *op,
                    const char *json,
                    void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
    /* ---- a backup ---- */
    /* The state as it is once all that was acknowledged before is in it, and the archive, in
     * pieces as they are asked for. All NULL: there are none. */
    int (*backup_open)(struct backend *b, const struct api_identity *who, struct api_backup **ret,
                       struct err *err);
    /* One at a time. The piece is borrowed for the call of cb. */
    void (*backup_next)(struct api_backup *x,
                        void (*cb)(void *arg, struct slice piece, bool last, const struct err *err),
                        void *arg);
    void (*backup_close)(struct api_backup *x); /* cb does not come any more */
    /* Prometheus text appended to out. */
    void (*metrics)(struct backend *b, struct buf *out);
    bool (*ready)(struct backend *b, struct buf *why); /* /readyz; why: lines, also when ready */
    int64_t (*now)(struct backend *b);                 /* UTC ms, for ages in tables */
};
struct backend { /* the implementation's struct begins with this */
    const struct backend_ops *ops;
};

#endif
