/* The control plane behind the API's table of calls (api/server/backend.h): views are roots of
 * the state, writes are commands, operations are spread over core and brain. Lives on the outer
 * loop. */
#ifndef HANSE_CONTROLPLANE_SERVER_BACKEND_H
#define HANSE_CONTROLPLANE_SERVER_BACKEND_H

#include "api/base/list.h"
#include "api/server/backend.h"
#include "controlplane/raft/core.h"
#include "controlplane/leader/brain.h"
#include "controlplane/server/figures.h"
#include "controlplane/keyring/keyring.h"

#define CONTROL_USERS 1024
struct control_user { /* writes that wait; a slot for all users whose names fall into it */
    unsigned waiting;
    size_t bytes;
};
struct control {            /* what the server is made of; owned by server.c, borrowed here */
    struct backend backend; /* first: a struct backend* is a struct control* */
    struct loop *loop, *core_loop;
    struct core *core;
    struct brain *brain;
    struct keyring *keys;
    struct figures *figures;    /* of the root that was shown last */
    void (*on_view)(void *arg); /* the API's subscription */
    void *on_view_arg;
    uint64_t writes, reads; /* for metrics */
    struct list waiting;    /* writes that are not answered, oldest first (backend_write.c) */
    uint64_t member, session, number; /* what they are stamped with */
    struct control_user users[CONTROL_USERS];
    struct api_backup *backup; /* under way, or NULL */
    /* Towards another member; NULL in the simulator. */
    struct tls_config *(*tls_member)(void *arg, uint64_t id);
    void *tls_arg;
    struct list relayed; /* streams of other members (relay.c) */
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
/* The object as it goes into the log: with a uid, and sealed. Owned by the caller. */
struct object *backend_op_object(struct control *c, const struct api_write_op *op,
                                 const struct root *r);
/* Value of a key of a Secret, as text; NULL when absent. The caller wipes and frees it with
 * backend_secret_put. */
const char *backend_secret_get(void *control, const char *ns, const char *name, const char *key);
void backend_secret_put(void *control, const char *text);
/* Operations by name; in operate.c. */
void backend_operate(struct backend *b, const struct api_identity *who, const char *op,
                     const char *json,
                     void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
/* The ledger's report; in cost.c. `in` is borrowed for the call. */
struct cJSON;
void cost_operate(struct control *c, const struct cJSON *in,
                  void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
/* What left the state of a workload; in history.c. Likewise. */
void history_operate(struct control *c, const struct cJSON *in,
                     void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
/* token.create; in token.c. Likewise. */
void token_operate(struct control *c, const struct api_identity *who, const struct cJSON *in,
                   void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
/* Orphans and recovery; in recovery.c. Likewise; false: no operation of this name is one of
 * them. */
bool recovery_operate(struct control *c, const struct api_identity *who, const char *op,
                      const struct cJSON *in,
                      void (*cb)(void *arg, const char *json, const struct err *err), void *arg);
/* Logs and exec, here or by way of the leader; in relay.c. */
int relay_exec(struct backend *b, const struct api_exec *e, const struct api_stream_sink *sink,
               struct api_exec_session **ret, struct err *err) MUST_CHECK;
void relay_exec_input(struct api_exec_session *s, const void *p, size_t n, bool eof);
size_t relay_exec_pending(const struct api_exec_session *s);
void relay_exec_close(struct api_exec_session *s);
void relay_accept(struct control *c, struct stream *st); /* ALPN_RELAY */
void relay_close(struct control *c, void (*closed)(void *arg), void *arg);
/* Backups; in backup.c. */
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
