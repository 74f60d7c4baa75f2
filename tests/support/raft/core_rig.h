/* Members of a cluster inside one test: all on one production loop, real disk, real TLS. A write
 * creates a Namespace, so that a second application of the same command would show as E_EXISTS. */
#ifndef HANSE_TESTS_SUPPORT_RAFT_CORE_RIG_H
#define HANSE_TESTS_SUPPORT_RAFT_CORE_RIG_H

#include "api/base/loop/loop.h"
#include "tests/support/unit.h"
#include "api/base/net/tls.h"
#include "api/schema/kinds.h"
#include "api/schema/schema.h"
#include "controlplane/raft/core_internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RIG_MAX 5
#define RIG_DEADLINE_MS 10000

struct rig;
struct rig_member {
    struct rig *rig;
    struct core_config cfg;
    struct core *core;
    struct tls_config *server, *client[RIG_MAX + 1];
    bool closed, fatal;
    unsigned certificate; /* of which member it shows: its own unless a test says otherwise */
    char listen[64];
};
struct rig {
    struct loop *loop;
    char dir[128];
    struct core_peer peers[RIG_MAX];
    struct rig_member m[RIG_MAX + 1]; /* by id */
    unsigned n;
    bool pki;
};

const char *rig_path(struct rig *r, const char *fmt, unsigned id, char *buf, size_t n);
int rig_free_port(void);

/* ---- running the loop until something holds ---- */
struct rig_wait {
    struct rig *rig;
    bool (*cond)(void *arg);
    void *arg;
    struct timer poll;
    uint64_t until_ms;
    bool held;
};
bool rig_until(struct rig *r, uint64_t ms, bool (*cond)(void *), void *arg);

#define rig_wait_for(r, cond, arg) assert_true(rig_until((r), RIG_DEADLINE_MS, (cond), (arg)))

void rig_tls(struct rig *r, unsigned id);
void rig_create(struct rig *r, unsigned n);
int rig_try_start(struct rig *r, unsigned id, struct err *err);
void rig_start(struct rig *r, unsigned id);
void rig_closed(void *arg);
bool rig_is_closed(void *arg);
void rig_stop(struct rig *r, unsigned id);
void rig_destroy(struct rig *r);

/* ---- who leads ---- */
unsigned rig_leader(struct rig *r);
bool rig_has_leader(void *arg);

/* ---- commands ---- */
void rig_command(const char *name, const char *request_id, struct buf *out);

struct rig_call {
    bool done;
    int code; /* err's, or the result's */
    bool applied;
};
void rig_proposed(void *arg, const struct result *res, const struct err *err);
void rig_read(void *arg, const struct err *err);
bool rig_done(void *arg);
void rig_propose(struct rig *r, unsigned id, const char *name, uint64_t deadline_ms,
                 struct rig_call *call);
int rig_write(struct rig *r, unsigned id, const char *name);
bool rig_has(struct rig *r, unsigned id, const char *name);
int rig_read_at(struct rig *r, unsigned id);
int rig_member_op(struct rig *r, unsigned via, enum member_op op, unsigned id);

#endif
