/* What the core's files share. Everything here belongs to the core loop, except what `lock` guards
 * and `waiting`.
 *
 * It is level-triggered: code that changes something calls core_kick; core_tick then derives what
 * to do from the state. A callback of libraft, of a stream or of a caller only stores its result
 * and kicks. */
#ifndef HANSE_CONTROLPLANE_RAFT_CORE_INTERNAL_H
#define HANSE_CONTROLPLANE_RAFT_CORE_INTERNAL_H

#include "api/base/cluster.h"
#include "api/base/net/frame.h"
#include "api/base/limits.h"
#include "api/base/list.h"
#include "api/base/log.h"
#include "api/base/loop/loop.h"
#include "api/base/net/tls.h"
#include "controlplane/archive/archive_files.h"
#include "controlplane/raft/core.h"
#include "controlplane/store/archive/segment.h"

#include <pthread.h>
#include <raft.h>
#include <stdatomic.h>

/* libraft writes and reads a file by one call, which the kernel ends below 2 GiB. */
#define SNAPSHOT_FILE_MAX ((uint64_t)2044 << 20)

#define PROPOSAL_BUCKETS 4096
#define DIGESTS_KEPT 256
#define MEMBERS_MAX 16
#define RESEND_MS 1000ul
#define SWEEP_MS 100ul
#define ROUND_MS 250
#define SECOND_MS 1000ul
#define APPEND_STUCK_MS 10000
#define QUEUE_MAX_BYTES ((size_t)64 << 20)
#define PEER_PENDING_MAX (64u << 20)
#define SEGMENT_BYTES (16u << 20) /* libraft 0.22.1 leads no more at 32 MiB */
#define LOG_SIZES 4096

/* ---- proposals ---- */
enum proposal_place { PLACE_NONE, PLACE_UNSENT, PLACE_QUEUED, PLACE_SENT };
struct proposal {
    struct list link;   /* c->unsent, c->queue or c->sent, as `place` says */
    struct list bucket; /* this member's own: in the table by request id until resolved */
    struct core *c;
    struct loop *from;
    propose_cb cb;
    void *arg;
    enum proposal_place place;
    uint64_t origin; /* the member that forwarded it; 0: this member */
    uint64_t term;   /* proposed only in this term; 0: in any */
    /* deadline_ms: relative; due_ms, sent_ms: loop times */
    uint64_t deadline_ms, due_ms, sent_ms;
    unsigned attempts; /* times handed to a log or a leader; 0: provably no effect */
    bool resolved;
    struct result result;
    struct err err;
    char id[REQUEST_ID_MAX];
    size_t n;
    char command[];
};

/* ---- linearizable reads ---- */
enum reader_kind { READER_READ, READER_CONFIRM, READER_REMOTE };
struct reader {
    struct list link;
    struct core *c;
    enum reader_kind kind;
    struct loop *from;
    read_cb cb;
    void *arg;
    /* deadline_ms: relative; due_ms: loop time */
    uint64_t deadline_ms, due_ms, term, index;
    uint64_t origin, question; /* REMOTE: the member that asked, and the id of its question */
    struct err err;
};
struct round { /* the ReadIndex round under way; later readers wait for the next */
    bool active, remote;
    uint64_t id, term, index, started_ms;
    unsigned agreed;
};

/* ---- peers ---- */
enum peer_frame {
    /* u64 member, text cluster uid: the first frame of the member that dialled */
    FRAME_HELLO = 1,
    FRAME_FORWARD,     /* u8 n, request id, command */
    FRAME_REFUSED,     /* u32 -code, request id: the leader did not take it */
    FRAME_TERM_ASK,    /* id = round; "what is your durable term?" */
    FRAME_TERM_IS,     /* u64 term */
    FRAME_INDEX_ASK,   /* id = round; "up to where must I have applied to read?" */
    FRAME_INDEX_IS,    /* u32 -code, u64 index */
    FRAME_MEMBER_ASK,  /* u8 op, u64 id, address */
    FRAME_MEMBER_IS,   /* u32 -code, text */
    FRAME_DIGEST_ASK,  /* u64 number */
    FRAME_DIGEST_IS,   /* u64 number, u64 digest */
    FRAME_DIGEST_OF,   /* u64 number, u64 digest: the majority's */
    FRAME_ARCHIVE_ASK, /* u64 segment, u64 offset: a piece of its file */
    FRAME_ARCHIVE_IS,  /* u64 segment, u64 offset, u64 bytes of the file (0: not here), bytes */
    FRAME_CLOCK_ASK,   /* "what is your time?" */
    /* u64 its clock, u64 the cluster's time (both ms), u8 whether it knows that */
    FRAME_CLOCK_IS,
    FRAME_REMOVED,    /* u64 commit index as of which the member that dialled is none any more */
    FRAME_LEFT_BEHIND /* text cluster uid, to a dialling member of a log that was left behind */
};
/* another member, with the outgoing stream to it, which reconnects while the member is
 * configured */
struct peer {
    struct list link;
    struct core *c;
    uint64_t id;
    char address[256];
    bool voter, open, gone; /* gone: no longer a member; freed once its stream is closed */
    struct stream *s;
    struct frame_reader in;
    struct timer retry;
    uint64_t round_agreed; /* id of the newest round that it agreed to */
    uint64_t digest_number, digest;
    /* acked: newest index on its disk in acked_term; told: newest commit index sent to it; it waits
     * for the commit index until awaits_until_ms (loop time) */
    uint64_t acked_term, acked, told, awaits_until_ms;
    bool sent_this_tick; /* an AppendEntries was sent to it since libraft's tick began */
    /* its clock; offsets are relative to this member's CLOCK_BOOTTIME */
    uint64_t clock_question, clock_asked_ms, clock_ms;
    int64_t clock_offset_ms, clock_trusted_ms;
    bool clock_known, clock_anchored, clock_far, clock_answered;
};
struct core_clock {
    _Atomic int64_t offset_ms; /* the cluster's time minus CLOCK_BOOTTIME; any thread reads it */
    bool anchored; /* the offset came from a majority's clocks, or from a peer that knew it */
    bool cold;     /* the offset came from clocks alone: no running member knew the time */
    bool ahead;    /* this member's clock is ahead by more than the bound */
    bool aiming;   /* the majority has another time, since aim_since_ms */
    /* aim_ms: the offset by the majority; room_ms: how far the offset may still step forward */
    int64_t aim_ms, room_ms;
    /* loop times */
    uint64_t aim_since_ms, anchored_ms, followed_ms, leads_ms, handed_ms, began_ms;
};
struct inbound { /* a stream from another member that dialled */
    struct list link;
    struct core *c;
    struct stream *s;
    struct frame_reader in;
    uint64_t id; /* 0: HELLO has not come */
};

struct archive_fetch { /* fetches a segment that is missing here from a peer */
    uint64_t number;   /* number of the segment that is asked for; 0: none */
    uint64_t giving;   /* number of the segment that is being checked and written; 0: none */
    /* total: bytes of the file; …_ms: loop times */
    uint64_t peer, question, total, asked_ms, said_ms;
    uint64_t below; /* no peer has the missing segments from this number on, for now */
    unsigned turn;  /* index of the open peer that is asked */
    struct buf in;
};

/* ---- membership ---- */
struct member_work {
    struct list link;
    struct core *c;
    enum member_op op;
    struct core_peer peer;
    struct loop *from;
    read_cb cb;
    void *arg;
    /* asked_epoch: core.epoch at asked_ms */
    uint64_t deadline_ms, due_ms, asked_ms, asked_epoch, question, origin;
    bool busy;     /* libraft or a proposal holds it */
    bool answered; /* its caller has the answer; freed when no longer busy */
    struct err err;
    union {
        struct raft_change change;
        struct raft_transfer transfer;
    };
};

struct core_meta { /* meta.json of the data directory */
    uint64_t member;
    bool ready; /* the bootstrap, or the first start, was completed */
    char cluster[64];
};
struct transport;

struct snapshot_job;
struct alarm_state {
    bool on;
    uint64_t since_ms;
    char text[ALARM_TEXT_MAX];
};

struct core {
    struct loop *loop;
    struct core_config cfg;
    struct core_peer *peers_configured;
    struct core_events ev;
    void *arg;
    struct core_meta meta;
    char log_dir[1100];
    struct archive_files *keep; /* the files of the archive; owned */
    char archive_dir[ARCHIVE_PATH_MAX];
    struct archive_fetch fetch;
    unsigned archive_serving;
    struct archive_files_status archive_status; /* guarded by lock */

    struct raft raft;
    struct raft_io own_io, *io;
    struct raft_fsm fsm;
    struct transport *transport;
    struct listener *listener;
    struct entry_skip *skips; /* core_skip.c */
    size_t n_skips;
    bool stopped; /* stopped at an entry that it cannot apply; the process goes on */
    bool raft_initialised, raft_open, closing, closed_raft, dead, fatal_told, root_changed;
    struct err why_dead;
    void (*closed)(void *arg);
    void *closed_arg;
    unsigned streams; /* open streams of the peer channel; closing waits for 0 */
    unsigned jobs;    /* jobs on the thread pool; closing waits for 0 */

    pthread_mutex_t lock; /* guards root, status, alarms and clocks, which other threads read */
    struct root *root;
    struct core_status status;
    struct alarm_state alarms[ALARM_NR];
    struct core_clocks clocks;
    atomic_uint waiting; /* this member's own proposals that are not resolved */
    atomic_size_t waiting_bytes;

    struct core_clock clock;
    struct timer tick, sweep, second;
    bool leads;
    uint64_t lead_term, barrier_term, passed_term; /* passed_term: its barrier was applied */
    uint64_t seen_leader, seen_term;
    uint64_t epoch; /* counts changes of (leader, term) that this member has seen */
    bool second_started;

    struct list queue, unsent, sent;
    size_t queue_n, queue_bytes;
    bool appending;
    struct list buckets[PROPOSAL_BUCKETS];
    struct list resolved;
    uint64_t stored_seen, stored_ms;

    struct list readers, in_round, applying;
    struct round round;

    struct list peers, inbounds;
    uint64_t removed[MEMBERS_MAX]; /* ids of members that this member has seen leave; 0: free */
    struct list members;
    uint64_t questions;
    bool own_record_proposed;

    struct {
        uint64_t number, digest;
    } digests[DIGESTS_KEPT];
    uint64_t digest_asked, digest_verdict;

    struct { /* the log since the newest snapshot, and the next snapshot */
        struct {
            uint64_t index;
            size_t bytes;
        } sizes[LOG_SIZES]; /* sizes of the newest entries */
        uint64_t bytes, snapshot_bytes, retry_ms, pause_ms;
        struct snapshot_job *job;
    } log;
    struct { /* a snapshot that came is being read; entries after it wait */
        bool active, read;
        unsigned number;
        struct list waiting;
        size_t bytes;
    } restore;
    struct { /* a snapshot that came while this member was making one */
        bool full;
        struct raft_message m;
        char address[256];
    } held;
    int (*io_snapshot_put)(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                           const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb);
    struct root *snapshot_root;
    int (*io_start)(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv);
    raft_io_recv_cb io_recv;
    raft_io_tick_cb io_tick;
    int (*io_send)(struct raft_io *io, struct raft_io_send *req, const struct raft_message *m,
                   raft_io_send_cb cb);
};

/* core.c */
void core_kick(struct core *c); /* makes core_tick run soon, on the core loop */
void core_fatal(struct core *c, const struct err *why);
/* translates libraft's code */
int core_raft_err(struct core *c, int rv, const char *doing, struct err *err);
void core_maybe_closed(struct core *c);
void core_publish_root(struct core *c, struct root *next); /* takes the reference to next */
uint64_t core_leader(struct core *c);
struct core *core_new(struct loop *l, const struct core_config *cfg, const struct core_events *ev,
                      void *arg);
int core_io_open(struct core *c, struct err *err) MUST_CHECK;
void core_free(struct core *c);

/* core_fsm.c */
void fsm_take(struct core *c, uint64_t index, uint64_t term, struct slice entry);
void fsm_init(struct core *c);
void fsm_hook_io(struct core *c);
/* Passes messages of other members on to libraft. */
void fsm_recv(struct raft_io *io, struct raft_message *m);
/* Returns the term of the entry at index. */
uint64_t core_term_of(const struct raft *r, uint64_t index);
/* core_commit.c */
void commit_keep(const struct raft *r, struct raft_message *m);
/* Member `by` has a reason to wait for the commit index. */
void commit_awaited(struct core *c, uint64_t by);
void commit_acked(struct core *c, uint64_t id, const struct raft_append_entries_result *r);
void commit_tick(struct core *c);
/* Called when the raft_io starts; returns the function to call instead of libraft's tick. */
raft_io_tick_cb commit_hook_io(struct core *c, raft_io_tick_cb tick);
void restore_tick(struct core *c);
void restore_fini(struct core *c);
uint64_t core_applied(struct core *c); /* returns the index up to which the root is */
void install_held(struct core *c);     /* hands the held snapshot to libraft */

/* core_snapshot.c */
#define CHUNK_BYTES ((size_t)4 << 20)
#define CHUNKS_MAX ((unsigned)(SNAPSHOT_FILE_MAX / CHUNK_BYTES))
struct chunks { /* a snapshot in the form that libraft takes */
    struct raft_buffer *v;
    unsigned n;
    uint64_t bytes, max; /* max 0: SNAPSHOT_FILE_MAX */
    bool too_large;
};
/* any thread */
int chunks_encode(struct chunks *k, const struct root *r, struct err *err) MUST_CHECK;
bool chunks_give(struct chunks *k, struct raft_snapshot *s);
void chunks_fini(struct chunks *k);
void snapshots_init(struct core *c);
void snapshot_second(struct core *c);
void log_grew(struct core *c, uint64_t index, size_t bytes);
/* the log begins anew after a snapshot of so many bytes */
void log_restored(struct core *c, size_t bytes);

/* core_skip.c */
int skips_open(struct core *c, struct err *err) MUST_CHECK;
/* Steps over the entry, and returns true, if an operator recorded that for this very entry. */
bool skip_taken(struct core *c, uint64_t index, struct slice entry);
void skip_stop(struct core *c, uint64_t index, struct slice entry, const struct err *why);

/* core_archive.c */
int archive_open(struct core *c, struct err *err);
void archive_close_files(struct core *c);
void archive_second(struct core *c);
void archive_ask(struct core *c, const struct inbound *in, uint64_t question, uint64_t number,
                 uint64_t offset);
void archive_is(struct core *c, const struct peer *p, uint64_t question, const unsigned char *b,
                size_t n);

/* core_clock.c */
void clock_init(struct core *c);
void clock_second(struct core *c);
void clock_look(struct core *c);
bool clock_anchored(const struct core *c); /* false: nothing can be stamped */
void clock_leads(struct core *c);          /* called when its barrier has passed */
void clock_ask(struct core *c, struct peer *p);
void clock_asked(struct core *c, const struct inbound *in, uint64_t question);
void clock_is(struct core *c, struct peer *p, uint64_t question, const unsigned char *b, size_t n);

/* core_log.c */
void log_enqueue(struct core *c, struct proposal *p);
void log_flush(struct core *c);
void log_lost(struct core *c); /* leadership ended: returns queued proposals to their owners */
void log_watch(struct core *c);

/* core_propose.c */
void proposals_init(struct core *c);
void proposals_route(struct core *c);
void proposals_sweep(struct core *c, bool leader_changed);
void proposals_applied(const struct result *r, void *core); /* store_apply's each() */
void proposals_deliver(struct core *c, bool applied);
void proposals_fini(struct core *c);
void proposal_fail(struct proposal *p, int code, const char *text);
#define PROPOSAL_NOT_ALL_KNOW                                                                      \
    "not every member of this cluster knows this command yet: upgrade them all"
void proposal_refused(struct core *c, const char *id, int code);
void proposal_place(struct proposal *p, enum proposal_place place);
void proposal_free(struct proposal *p);
struct proposal *proposal_create(struct core *c, const char *id, struct slice command);

/* core_read.c */
void reads_init(struct core *c);
void reads_tick(struct core *c);
void reads_leader_changed(struct core *c);
void reads_term_is(struct core *c, struct peer *p, uint64_t round, uint64_t term);
void reads_index_is(struct core *c, uint64_t round, int code, uint64_t index);
void reads_index_ask(struct core *c, uint64_t origin, uint64_t question);
bool reads_waiting(const struct core *c);
void reads_fini(struct core *c);

/* core_peer.c */
void peers_init(struct core *c);
void peers_reconcile(struct core *c); /* makes the peers follow libraft's configuration */
void peer_accept(struct core *c, struct stream *s);
void peers_close(struct core *c);
/* true if it was seen to leave, and has not come again */
bool peer_removed(const struct core *c, uint64_t id);
struct peer *peer_find(struct core *c, uint64_t id);
bool peer_send(struct core *c, uint64_t id, enum peer_frame type, uint64_t question, const void *p,
               size_t n);
bool inbound_send(struct core *c, uint64_t id, enum peer_frame type, uint64_t question,
                  const void *p, size_t n);
void le64_put(unsigned char *p, uint64_t v);
uint64_t le64_get(const void *p);
void le32_put(unsigned char *p, uint32_t v);
uint32_t le32_get(const void *p);

/* core_member.c */
void members_init(struct core *c);
void members_tick(struct core *c);
void members_ask(struct core *c, uint64_t origin, uint64_t question, struct slice body);
void members_answer(struct core *c, uint64_t question, int code, struct slice text);
void members_second(struct core *c); /* keeps this member's own record in the state */
void members_fini(struct core *c);
bool members_busy(const struct core *c);

/* core_digest.c */
void digest_applied(struct core *c);
void digest_second(struct core *c);
void digest_asked(struct core *c, struct inbound *in, uint64_t number);
void digest_is(struct core *c, struct peer *p, uint64_t number, uint64_t digest);
void digest_of(struct core *c, uint64_t number, uint64_t digest);

/* core_transport.c */
int transport_create(struct core *c, struct raft_io *io, struct err *err) MUST_CHECK;
void transport_accept(struct core *c, struct stream *s);
void transport_deaf(
    struct core *c); /* from now on libraft gets no message, so that it neither votes nor follows */
bool transport_busy(const struct core *c);
void transport_destroy(struct core *c);

/* raft_files.c */
int files_meta(struct loop *l, const char *dir, struct core_meta *ret, struct err *err) MUST_CHECK;
void files_second(struct core *c); /* raises or clears the alarm of the disk */
int files_open(struct core *c, struct err *err) MUST_CHECK;
int files_save(struct core *c, struct err *err) MUST_CHECK;
bool files_disk_full(const struct core *c);

#endif
