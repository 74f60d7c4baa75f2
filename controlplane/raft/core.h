/* The core: one Raft member. It owns libraft, the log, apply and the newest root, and runs on the
 * core loop. No other folder includes <raft.h>.
 *
 * Proposals come in from any loop through core_propose, and always end in one of three ways. A
 * proposal is resolved by its request id when this member applies it, whichever member led then; so
 * a lost answer, a new leader or a forwarded write need no case of their own. A proposal that is
 * not applied by its deadline is unknown (E_UNKNOWN). */
#ifndef HANSE_CONTROLPLANE_RAFT_CORE_H
#define HANSE_CONTROLPLANE_RAFT_CORE_H

#include "api/base/err.h"
#include "api/base/loop/loop.h"
#include "controlplane/store/store.h"

struct core;
struct raft_io; /* opaque: libraft's */

struct core_peer {
    uint64_t id;
    char address[256]; /* host:port of its peer listener; host may be a name */
};
struct core_config {
    uint64_t id;           /* this member; > 0 */
    char name[64];         /* "m1" */
    char address[256];     /* host:port that other members dial (the peer port) */
    char api_address[256]; /* host:port for users and agents; the state stores it */
    /* host:port where the core listens for members: ALPN_RAFT and ALPN_PEER, mutual TLS 1.3 */
    const char *listen;
    const struct tls_config *tls_server; /* NULL in the simulator */
    char data_dir[1024];
    /* this data directory starts a new cluster of `peers`, which include this member */
    bool bootstrap;
    const struct core_peer *peers;
    unsigned n_peers;
    uint32_t election_ms, heartbeat_ms; /* 0: 300, 50 */
    /* Returns a TLS configuration that verifies CN "member:ID"; the core releases the reference.
     * NULL in the simulator. */
    struct tls_config *(*tls_client)(void *arg, uint64_t member_id);
    void *tls_arg;
    uint32_t snapshot_threshold, snapshot_trailing; /* in entries; 0: 8192, 4096 */
    uint64_t snapshot_bytes; /* bytes of log until the next snapshot; 0: 32 MiB */
    uint64_t snapshot_max;   /* largest snapshot, in bytes; 0: what libraft can write, 2044 MiB */
    uint32_t clock_bound_ms; /* how far clocks may differ; 0: 5000 (core_clock.c) */
    /* The simulator's Raft I/O; NULL: libraft's own, on disk and over this program's TLS
     * streams. */
    int (*raft_io_create)(void *arg, struct loop *l, const char *dir, struct raft_io **ret,
                          struct err *err);
    void (*raft_io_destroy)(void *arg, struct raft_io *io);
    void *raft_io_arg;
};
/* Called on the core loop unless the comment says otherwise. */
struct core_events {
    /* Leadership of this member began (after its barrier: the state is complete) or ended. */
    void (*leading)(void *arg, bool leads, uint64_t term);
    /* A new root; any loop may call core_root then. Called after each applied entry. */
    void (*root)(void *arg);
    /* This member must not serve any more (its digest differs, its log is corrupt, its disk is
     * stuck): the process must say so and exit. */
    void (*fatal)(void *arg, const struct err *why);
};
/* Starts the member on loop l (its own thread in production). Errors say what to do: an empty data
 * directory with known peers and no bootstrap; a data directory of another member or cluster;
 * locked by another process; disk full. */
int core_create(struct loop *l, const struct core_config *cfg, const struct core_events *ev,
                void *arg, struct core **ret, struct err *err) MUST_CHECK;
void core_close(struct core *c, void (*closed)(void *arg), void *arg);

/* ---- from any loop ---- */
struct root *core_root(struct core *c); /* a reference to the newest root of this member */
#define CORE_VOTERS_MAX 64
struct core_status {
    uint64_t id, term, index, commit, leader_id;
    char leader_address[256], leader_api_address[256];
    bool leads, ready; /* ready: has a leader and is caught up */
    unsigned voters;
    uint64_t voter_ids[CORE_VOTERS_MAX]; /* as far as this member knows; all others are standbys */
    uint64_t digest;
};
void core_status(struct core *c, struct core_status *ret); /* thread-safe copy */
/* Returns the cluster's time, UTC ms, which stamps entries. Every decision by time uses it, never a
 * machine's own clock. It may go back a little; the time in the state never does. */
int64_t core_time_ms(const struct core *c);
#define CORE_PEERS_MAX 16
struct core_clocks { /* as of the last second */
    bool known;      /* a majority's clocks are known */
    int64_t skew_ms; /* this member's clock minus the cluster's time */
    unsigned n;
    struct {
        uint64_t member;
        int64_t skew_ms; /* its clock minus this member's */
    } peers[CORE_PEERS_MAX];
};
void core_clocks(struct core *c, struct core_clocks *ret);

/* Alarms: what is wrong with this member while it goes on (alarms.def has a row for each cause,
 * with its remedy). The code that watches a cause raises the alarm, again and again with the newest
 * sentence, and clears it when the cause is over. Both cost nothing while nothing changes. */
enum alarm {
#define A(id, name, serves, remedy) ALARM_##id,
#include "controlplane/raft/alarms.def"
#undef A
    ALARM_NR
};
#define ALARM_TEXT_MAX 512
struct core_alarm {
    enum alarm id;
    const char *name, *remedy; /* static */
    bool serves;               /* false: /readyz answers 503 */
    uint64_t for_ms;           /* ms since it was raised */
    char text[ALARM_TEXT_MAX];
};
void core_alarm_raise(struct core *c, enum alarm a, const char *fmt, ...) PRINTF_LIKE(3, 4);
void core_alarm_clear(struct core *c, enum alarm a);
/* returns those that are raised */
size_t core_alarms(struct core *c, struct core_alarm ret[ALARM_NR]);
const char *core_alarm_name(enum alarm a);

/* Proposes one encoded command; its head carries the request id, and the core adds none. cb runs on
 * loop `from`. A member that is not the leader forwards it, and sends it again after a change of
 * leader. deadline_ms is relative. */
typedef void (*propose_cb)(void *arg, const struct result *r, const struct err *err);
void core_propose(struct core *c, struct loop *from, const char *request_id, struct slice command,
                  uint64_t deadline_ms, propose_cb cb, void *arg);
/* Proposes only if this member still leads in `term`, else E_STALE; for the leader's parts. */
void core_propose_in_term(struct core *c, struct loop *from, uint64_t term, const char *request_id,
                          struct slice command, uint64_t deadline_ms, propose_cb cb, void *arg);
/* Linearizable read: cb runs on loop `from` once this member's root contains everything
 * acknowledged before the call (by a ReadIndex round, which all waiting reads share). E_UNAVAIL
 * when there is no leader in time. */
typedef void (*read_cb)(void *arg, const struct err *err);
void core_read(struct core *c, struct loop *from, uint64_t deadline_ms, read_cb cb, void *arg);
/* Proves by a round to a majority that this member leads in `term`; called before leases are
 * renewed. */
void core_confirm(struct core *c, struct loop *from, uint64_t term, uint64_t deadline_ms,
                  read_cb cb, void *arg);
/* The archive of this member: the state of its files (controlplane/archive/archive_files.h), its
 * directory (the name lives as long as the core), and a report of a file that could not be read. */
struct archive_files_status;
void core_archive_status(struct core *c, struct archive_files_status *ret);
const char *core_archive_dir(const struct core *c);
const char *core_data_dir(const struct core *c); /* lives as long as the core */
void core_archive_suspect(struct core *c, uint64_t number);
/* Offline: an operator steps over the entry at which the member of this data directory has stopped
 * (core_skip.c). E_CONFLICT when it stopped at none, or at another one. */
int core_skip_entry(struct loop *l, const char *data_dir, const struct entry_skip *act,
                    struct err *err) MUST_CHECK;
/* Offline: the data directory of a member that does not run (core_offline.c); the loop must not run
 * otherwise. The directory stays locked until this process ends. */
struct core_taken {
    struct root *root; /* newest snapshot with the whole log after it; the caller owns it */
    uint64_t member, term, index, entries; /* entries: number of log entries after the snapshot */
    /* resourceVersion that a majority certainly had: that before the newest entry */
    uint64_t known;
    char cluster[64]; /* cluster uid of meta.json */
};
int core_offline_take(struct loop *l, const char *dir, struct core_taken *ret,
                      struct err *err) MUST_CHECK;
/* Makes a data directory with the state as its snapshot and this member alone. It leaves the rest
 * of dir alone, except the lock. The directory counts as one only with its meta.json, which is
 * written last. */
struct core_made {
    uint64_t member;
    const char *address; /* host:port, as --peer-advertise */
    const struct root *root;
};
int core_offline_make(struct loop *l, const char *dir, const struct core_made *how,
                      struct err *err) MUST_CHECK;
/* Changes the membership; any member takes the request, and the leader carries it out. */
enum member_op { MEMBER_JOIN, MEMBER_PROMOTE, MEMBER_REMOVE, MEMBER_TRANSFER };
void core_member(struct core *c, struct loop *from, enum member_op op, const struct core_peer *peer,
                 uint64_t deadline_ms, read_cb cb, void *arg);

#endif
