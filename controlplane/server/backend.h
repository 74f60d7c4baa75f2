/* The control plane behind the API's table of calls (api/server/backend.h): views are roots of the
 * state, writes are commands, operations go to core and brain. It lives on the outer loop. */
#ifndef HANSE_CONTROLPLANE_SERVER_BACKEND_H
#define HANSE_CONTROLPLANE_SERVER_BACKEND_H

#include "api/base/list.h"
#include "api/server/backend.h"
#include "controlplane/raft/core.h"
#include "controlplane/leader/brain.h"
#include "controlplane/server/figures.h"
#include "controlplane/keyring/keyring.h"

#define CONTROL_USERS 1024
struct control_user { /* writes that wait, of all users whose names hash to this slot */
    unsigned waiting;
    size_t bytes;
};
struct control {            /* the parts of the server; server.c owns it */
    struct backend backend; /* must be first: a struct backend* is a struct control* */
    struct loop *loop, *core_loop;
    struct core *core;
    struct brain *brain;
    struct keyring *keys;
    struct figures *figures;    /* figures of the root that was shown last */
    void (*on_view)(void *arg); /* the API subscribes with it */
    void *on_view_arg;
    uint64_t writes, reads;           /* counts for metrics */
    struct list waiting;              /* writes without an answer, oldest first (backend_write.c) */
    uint64_t member, session, number; /* the stamp of the last write */
    struct control_user users[CONTROL_USERS];
    struct api_backup *backup; /* the backup under way, or NULL */
    /* TLS configuration for a connection to another member; NULL in the simulator. */
    struct tls_config *(*tls_member)(void *arg, uint64_t id);
    void *tls_arg;
    struct list relayed; /* streams that other members relay (relay/) */
    void (*relays_closed)(void *arg);
    void *relays_closed_arg;
};
void backend_init(struct control *c); /* fills in backend.ops */
/* In backend_write.c. */
void backend_write(struct backend *b, const struct api_write *w,
                   void (*cb)(void *arg, const struct api_result *r, const struct err *err),
                   void *arg);
int backend_check(struct backend *b, const struct view *v, const struct api_write *w,
                  struct err *err);
/* Returns the object as it goes into the log, with a uid and with Secrets sealed; the caller owns
 * it. */
struct object *backend_op_object(struct control *c, const struct api_write_op *op,
                                 const struct root *r);
/* Returns the value of a key of a Secret as text, or NULL. The caller gives it back to
 * backend_secret_put, which wipes and frees it. */
const char *backend_secret_get(void *control, const char *ns, const char *name, const char *key);
void backend_secret_put(void *control, const char *text);
/* How tokens of runners are signed: by the key ring, for this purpose alone. */
struct home_keys backend_home_keys(struct control *c);
/* operate.c: operations by name. */
void backend_operate(struct backend *b, const struct api_identity *who, const char *op,
                     const char *json,
                     void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
/* cost.c: the ledger's report. `in` is borrowed for the call, here and below. */
struct cJSON;
void cost_operate(struct control *c, const struct cJSON *in,
                  void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
/* history.c: what left the state of a workload. */
void history_operate(struct control *c, const struct cJSON *in,
                     void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
/* token.c: token.create. */
void token_operate(struct control *c, const struct api_identity *who, const struct cJSON *in,
                   void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
/* recovery.c: orphans and recovery. False: no operation there has this name. */
bool recovery_operate(struct control *c, const struct api_identity *who, const char *op,
                      const struct cJSON *in,
                      void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
/* relay/: logs and exec, here or through the leader. */
int relay_exec(struct backend *b, const struct api_exec *e, const struct api_stream_sink *sink,
               struct api_exec_session **ret, struct err *err) MUST_CHECK;
void relay_exec_resize(struct api_exec_session *s, int64_t rows, int64_t columns);
void relay_exec_input(struct api_exec_session *s, const void *p, size_t n, bool eof);
size_t relay_exec_pending(const struct api_exec_session *s);
void relay_exec_close(struct api_exec_session *s);
void relay_accept(struct control *c, struct stream *st); /* ALPN_RELAY */
void relay_close(struct control *c, void (*closed)(void *arg), void *arg);
/* backup.c: backups. */
int backend_backup_open(struct backend *b, const struct api_identity *who, struct api_backup **ret,
                        struct err *err) MUST_CHECK;
void backend_backup_next(struct api_backup *x,
                         void (*cb)(void *arg, struct slice piece, bool last,
                                    const struct err *err),
                         void *arg);
void backend_backup_close(struct api_backup *x);
int backend_token(struct backend *b, const char *token, struct api_identity *ret,
                  struct err *err) MUST_CHECK;
void uuid_make(struct loop *l, char out[37]); /* RFC 4122 version 4 */

#endif
