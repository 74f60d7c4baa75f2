/* The core: one Raft member. Owns libraft, the log, apply and the newest root; runs on the core
 * loop. The only folder that includes <raft.h>.
 *
 * Proposals come in from any loop through core_propose, and always end in one of three ways. A
 * proposal is resolved by its request id when this member applies it, whoever led then: so a lost
 * answer, a new leader or a forwarded write need no case of their own. What is not applied by its
 * deadline is unknown (E_UNKNOWN). */
#ifndef HANSE_CONTROLPLANE_RAFT_CORE_H
#define HANSE_CONTROLPLANE_RAFT_CORE_H

#include "api/base/err.h"
#include "api/base/loop/loop.h"
#include "controlplane/store/store.h"

struct core;
struct raft_io; /* libraft's */

struct core_peer {
    uint64_t id;
    char address[256]; /* host:port of its peer listener; host may be a name */
};
struct core_config {
    uint64_t id;           /* this member; > 0 */
    char name[64];         /* "m1" */
    char address[256];     /* for other members: host:port that they dial (the peer port) */
    char api_address[256]; /* for users and agents; stored in the members' list */
    const char *listen;    /* where the core itself listens for members: ALPN_RAFT and ALPN_PEER,
                              mutual TLS 1.3 */
    const struct tls_config *tls_server; /* NULL in the simulator */
    char data_dir[1024];
    bool bootstrap; /* this data directory starts a new cluster of `peers` (which include this
                       member) */
    const struct core_peer *peers;
    unsigned n_peers;
    uint32_t election_ms, heartbeat_ms; /* 0 = 300, 50 */
    /* Verifies CN "member:ID"; a reference, which the core lets go. NULL in the simulator. */
    struct tls_config *(*tls_client)(void *arg, uint64_t member_id);
    void *tls_arg;
    uint32_t snapshot_threshold, snapshot_trailing; /* 0 = 8192, 4096 entries */
    uint64_t snapshot_bytes;                        /* of the log until the next one; 0 = 32 MiB */
    uint64_t snapshot_max;   /* bytes of one, at most; 0 = what libraft can write, 2044 MiB */
    uint32_t clock_bound_ms; /* how far clocks may be apart; 0 = 5000 (core_clock.c) */
    /* The simulator's Raft I/O; NULL = libraft's own on disk, over our TLS streams. */
    int (*raft_io_create)(void *arg, struct loop *l, const char *dir, struct raft_io **ret,
                          struct err *err);
    void (*raft_io_destroy)(void *arg, struct raft_io *io);
    void *raft_io_arg;
};
/* Told on the core loop unless said otherwise. */
struct core_events {
    /* Leadership of this member began (after its barrier: the state is complete) or ended. */
    void (*leading)(void *arg, bool leads, uint64_t term);
    /* A new root; any loop may call core_root then. Called after each applied entry. */
    void (*root)(void *arg);
    /* This member must not serve any more (digest differs, log corrupt, disk stuck): say so and
     * exit. */
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
    uint64_t voter_ids[CORE_VOTERS_MAX]; /* as far as this member knows; others are standbys */
    uint64_t digest;
};
void core_status(struct core *c, struct core_status *ret); /* thread-safe copy */
/* UTC ms as the cluster has it: what entries are stamped with. All that is decided by time is
 * decided by this, never by a machine's own clock. It may go back a little; what is in the state
 * never does. */
int64_t core_time_ms(const struct core *c);
#define CORE_PEERS_MAX 16
struct core_clocks { /* as of the last second */
    bool known;      /* a majority's clocks have been */
    int64_t skew_ms; /* this member's clock, less the cluster's time */
    unsigned n;
    struct {
        uint64_t member;
        int64_t skew_ms; /* its clock, less this member's */
    } peers[CORE_PEERS_MAX];
};
void core_clocks(struct core *c, struct core_clocks *ret);

/* Alarms: what is wrong with this member while it goes on (alarms.def has a row for each cause,
 * with its remedy). Whoever looks after a cause raises it, again and again with the newest
 * sentence, and clears it when it is over; both cost nothing when nothing changes. */
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
    bool serves;               /* else /readyz answers 503 */
    uint64_t for_ms;           /* since it was raised */
    char text[ALARM_TEXT_MAX];
};
void core_alarm_raise(struct core *c, enum alarm a, const char *fmt, ...) PRINTF_LIKE(3, 4);
void core_alarm_clear(struct core *c, enum alarm a);
size_t core_alarms(struct core *c, struct core_alarm ret[ALARM_NR]); /* those that are raised */
const char *core_alarm_name(enum alarm a);

/* Proposes one encoded command (its head carries the request id; core adds none). cb runs on loop
 * `from`. Not leader: passed on to the leader; sent again after a change of leader; deadline_ms is
 * relative. */
typedef void (*propose_cb)(void *arg, const struct result *r, const struct err *err);
void core_propose(struct core *c, struct loop *from, const char *request_id, struct slice command,
                  uint64_t deadline_ms, propose_cb cb, void *arg);
/* Only if this member still leads in `term`, else E_STALE: for the reconcilers. */
void core_propose_in_term(struct core *c, struct loop *from, uint64_t term, const char *request_id,
                          struct slice command, uint64_t deadline_ms, propose_cb cb, void *arg);
/* Linearizable read: cb on loop `from` once this member's root contains everything acknowledged
 * before the call (a ReadIndex round, shared by all that wait). E_UNAVAIL when there is no leader
 * in time. */
typedef void (*read_cb)(void *arg, const struct err *err);
void core_read(struct core *c, struct loop *from, uint64_t deadline_ms, read_cb cb, void *arg);
/* Proves now, by a round to a majority, that this member leads in `term`: before leases are
 * renewed. */
void core_confirm(struct core *c, struct loop *from, uint64_t term, uint64_t deadline_ms,
                  read_cb cb, void *arg);
/* The archive of this member: its files (controlplane/archive/archive_files.h; the directory's name
 * lives as long as the core), how far they are, and one that somebody could not read. */
struct archive_files_status;
void core_archive_status(struct core *c, struct archive_files_status *ret);
const char *core_archive_dir(const struct core *c);
const char *core_data_dir(const struct core *c); /* likewise */
void core_archive_suspect(struct core *c, uint64_t number);
/* Offline: an operator steps over the entry at which the member of this data directory has stopped
 * (core_skip.c). E_CONFLICT when it stopped at none, or at another one. */
int core_skip_entry(struct loop *l, const char *data_dir, const struct entry_skip *act,
                    struct err *err) MUST_CHECK;
/* Offline: the data directory of a member that does not run (core_offline.c); the loop must not run
 * otherwise. The directory stays locked until this process ends. */
struct core_taken {
    struct root *root; /* newest snapshot and all of the log behind it; the caller's */
    uint64_t member, term, index, entries; /* entries: of the log, behind the snapshot */
    uint64_t known;   /* resourceVersion that a majority certainly had: before the newest entry */
    char cluster[64]; /* as meta.json has it */
};
int core_offline_take(struct loop *l, const char *dir, struct core_taken *ret,
                      struct err *err) MUST_CHECK;
/* Makes a data directory, with the state as its snapshot and this member alone. What there is in
 * dir is left alone but for lock; it counts as one only once its meta.json is there, which comes
 * last. */
struct core_made {
    uint64_t member;
    const char *address; /* as --peer-advertise */
    const struct root *root;
};
int core_offline_make(struct loop *l, const char *dir, const struct core_made *how,
                      struct err *err) MUST_CHECK;
/* Membership; asked of any member, done by the leader. */
enum member_op { MEMBER_JOIN, MEMBER_PROMOTE, MEMBER_REMOVE, MEMBER_TRANSFER };
void core_member(struct core *c, struct loop *from, enum member_op op, const struct core_peer *peer,
                 uint64_t deadline_ms, read_cb cb, void *arg);

#endif
