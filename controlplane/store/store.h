/* The replicated state: persistent (path-copying) ordered trees of immutable objects, and apply().
 *
 * apply() is a pure function of (state, entry): no clock, no randomness, no allocation order, no
 * locale. It never fails: rejections are results. Time and random names come inside the entry. A
 * `struct root` is one immutable version of everything: taking one is O(1), any thread may read it
 * while it holds a reference. The core loop owns the newest and publishes it after each entry. */
#ifndef HANSE_CONTROLPLANE_STORE_STORE_H
#define HANSE_CONTROLPLANE_STORE_STORE_H

#include "api/base/err.h"
#include "api/base/limits.h"
#include "api/base/mem.h"
#include "api/schema/schema.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- tree: bytes → reference-counted value ---- */
/* A persistent B+tree or treap. All functions are O(log n); old versions stay valid. */
struct tree;
struct tree_value_ops { /* values are counted by their owner's functions */
    void (*ref)(const void *v);
    void (*unref)(const void *v);
};
struct tree *tree_create(const struct tree_value_ops *ops); /* empty */
struct tree *tree_ref(const struct tree *t);
struct tree *tree_unref(struct tree *t); /* NULL ok; frees in bounded slices through tree_reap */
const void *tree_get(const struct tree *t, struct slice key);
/* new version; takes its own ref of value */
struct tree *tree_put(const struct tree *t, struct slice key, const void *value);
struct tree *tree_del(const struct tree *t, struct slice key); /* new version, also when absent */
/* The same, but the caller's reference is handed over, so that nodes that nobody else sees are
 * changed in place. */
struct tree *tree_put_own(struct tree *t, struct slice key, const void *value) MUST_CHECK;
struct tree *tree_del_own(struct tree *t, struct slice key) MUST_CHECK;
uint64_t tree_count(const struct tree *t);
/* In key order from the first key >= start; each() returns false to stop. */
void tree_scan(const struct tree *t, struct slice start,
               bool (*each)(struct slice key, const void *value, void *arg), void *arg);
/* Lets go of about n items of trees let go, one node's more at most, which may free as many
 * objects; returns how many nodes are left. Called on the core loop between entries. */
size_t tree_reap(size_t n);

/* ---- root ---- */
struct change { /* one step of resourceVersion */
    uint64_t rv;
    enum kind_id kind;
    const struct object *before, *after; /* NULL = created / deleted; `after` of a deletion carries
                                            the final rv in `before`'s copy */
};
struct member_info {
    uint64_t id;
    char address[256];     /* of its peer listener */
    char api_address[256]; /* for users and agents */
    char name[64];
    uint32_t feature_level;
};
struct root;                    /* opaque; read by the functions below */
struct root *root_create(void); /* the empty state, rv 0 */
struct root *root_ref(const struct root *r);
struct root *root_unref(struct root *r);
uint64_t root_index(const struct root *r);  /* Raft index of the last entry in it */
uint64_t root_number(const struct root *r); /* our own strictly increasing entry number */
uint64_t root_term(const struct root *r);
uint64_t root_rv(const struct root *r);
int64_t root_time(const struct root *r);    /* UTC ms of the last entry */
uint64_t root_digest(const struct root *r); /* over all objects, independent of order of arrival */
const char *root_cluster_uid(const struct root *r); /* api/base/cluster.h says what is in it */
/* Number of the entry since which it is open what runs where (RECOVER); 0: it is not. */
uint64_t root_recovering(const struct root *r);
bool root_went_back(const struct root *r); /* that is not settled yet */
/* Is all that the state of `cluster` had at its resourceVersion rv in this state's own past? Then a
 * Workload that it had, and this one has not, was let go by this one: deleted, or retention removed
 * it. rv 0: not known. */
bool root_had(const struct root *r, const char *cluster, uint64_t rv);
/* Names of Targets that this state does not have, and whose agents have dialed in since, or that
 * were deleted since: RECOVER SETTLE waits for them. In order; returns how many there are. */
size_t root_strangers(const struct root *r, char (*ret)[256], size_t max);
bool root_stranger(const struct root *r, const char *target);
/* It may be alive in an epoch, or at a place, that this state does not know: it is not placed. */
bool workload_unsettled(const struct root *r, const struct object *o,
                        const struct workload_status *s);
/* NULL when absent; borrowed from the root. ns "" for cluster scope. */
const struct object *root_get(const struct root *r, enum kind_id kind, const char *ns,
                              const char *name);
/* ns NULL = all namespaces; from (ns, name) exclusive, both NULL = from the start. */
void root_scan(const struct root *r, enum kind_id kind, const char *ns, const char *after_ns,
               const char *after_name, bool (*each)(const struct object *o, void *arg), void *arg);
uint64_t root_count(const struct root *r, enum kind_id kind);
const struct object *root_workload_by_uid(const struct root *r, const char *uid);
void root_scan_moves(const struct root *r, bool (*each)(const struct object *o, void *arg),
                     void *arg); /* open Migrations */
/* Changes with rv > since, in order. E_GONE when they are no longer kept. */
int root_changes(const struct root *r, uint64_t since,
                 bool (*each)(const struct change *c, void *arg), void *arg,
                 struct err *err) MUST_CHECK;
uint64_t root_oldest_change(const struct root *r);
struct write_op;
/* Retention: what ended before that time, as the ops of a REMOVE; at most max, returns how many.
 * Walks over all Workloads, Migrations, Decisions and Events: now and then, not often. */
size_t root_finished(const struct root *r, int64_t before_ms, struct write_op *ret, size_t max);
/* Why a Token does not hold (any more), as a clause; NULL: it holds. */
const char *token_void(const struct root *r, const struct object *token, int64_t now_ms);
/* Those that do not, as the ops of a REMOVE: looks at so many from the cursor on (zeroed: from the
 * first); true when it came to the end, and begins anew. */
struct token_cursor {
    char ns[64], name[256];
};
bool root_tokens_void(const struct root *r, int64_t now_ms, struct token_cursor *at, size_t looks,
                      struct write_op *ret, size_t max, size_t *ret_n);
struct peer_identity;
bool root_certificate_revoked(const struct root *r, const struct peer_identity *who);
/* Is there a slice of work for COLLECT? O(1). */
bool root_collect_due(const struct root *r);
/* The next array behind this name ("" and "": the first) for which there is a slice of work for
 * ARRAY, or NULL. O(log n). */
const struct object *root_array_due(const struct root *r, const char *ns, const char *name);
/* What is held on a node: by its key "TARGET.NODE"; false when nothing is. Bits of device d: milli
 * held. */
struct node_usage {
    int64_t cpu_milli, memory_bytes, gpu_milli;
    uint16_t device_milli[LIMIT_NODE_GPUS];
};
bool root_usage(const struct root *r, const char *node, struct node_usage *ret);
/* GPUs × 1000 */
int64_t root_queue_held(const struct root *r, const char *queue, const char *class_);
void root_scan_queue_held(const struct root *r, const char *queue,
                          void (*each)(const char *class_, int64_t milli, void *arg), void *arg);
/* GPUs × 1000 held on a target, destinations of moves included. */
int64_t root_target_held(const struct root *r, const char *target, const char *class_);
/* Workloads of a queue itself: that wait for a place, and that hold one. */
struct queue_load {
    int64_t waits, holds;
};
struct queue_load root_queue_load(const struct root *r, const char *queue);
/* Objects of a namespaced kind in a namespace; an array counts its indexes that are still to begin,
 * too. */
int64_t root_objects(const struct root *r, const char *ns, enum kind_id kind);
/* Does a namespace's quota (hanse.dev/writes-per-second) forbid this write at that time? Apply and
 * whoever is about to propose it ask the same; *ret is written then. */
#define RETRY_MAX_S 3600u
struct request_cmd;
struct result;
bool root_rate_over(const struct root *r, int64_t now_ms, const struct request_cmd *c,
                    struct result *ret);
/* Is there room for another answer under a key of this user? Else a sentence that says why not. */
bool root_key_room(const struct root *r, const char *user, const char **ret_why);
uint64_t root_session(const struct root *r, uint64_t member); /* newest of its stamps; 0 = none */
size_t root_members(const struct root *r, struct member_info *ret, size_t max);
/* Policies' revision of the newest GitOps apply ("" = none). */
const char *root_revision(const struct root *r);

/* ---- commands ---- */
enum command_type {
    CMD_NONE = 0,
#define C(c, n, name, doc) CMD_##c = (n),
#include "controlplane/store/commands.def"
#undef C
};
#define REQUEST_ID_MAX 128
struct command_head {
    enum command_type type;
    char request_id[REQUEST_ID_MAX]; /* by which its proposer knows the result; WRITE and MEMBER are
                                        answered by it as the first time, while it is kept */
    char user[256];                  /* for the audit record and metadata */
};

/* A member stops at a command or step that it does not know: what came with a level goes into the
 * log only once every member has told that it has come to that level. features.def says which. */
enum feature_level {
    FEATURE_FIRST = 1,   /* what members know that tell no level */
    FEATURE_MOVES = 2,   /* Migrations, the catalogue of checkpoints */
    FEATURE_ARCHIVE = 3, /* ARCHIVE, and all removals from the first one on */
    FEATURE_FOUND = 4,   /* checkpoints that are looked for in their store */
    FEATURE_GRANTS = 5   /* what is promised is in the log: leases, refusals under a key, slices */
};
#define FEATURE_LEVEL FEATURE_GRANTS /* of this version: members tell it by MEMBER */
uint32_t root_feature_level(
    const struct root *r); /* that all members have come to; 0: none is recorded yet */
/* That brought this command (step 0) or this step of it; UINT32_MAX for what is not known. */
uint32_t command_feature_level(enum command_type type, int step);
uint32_t command_needs(struct slice encoded); /* the same of a whole command */
/* That brought this kind, where it came after the first version: older members cannot read it. */
uint32_t kind_feature_level(enum kind_id kind);
/* What applying it costs, about: its own bytes and those of the objects that it names. */
uint64_t command_cost(const struct root *r, struct slice encoded);

enum write_verb { WRITE_CREATE = 1, WRITE_UPDATE, WRITE_UPDATE_STATUS, WRITE_DELETE };
#define DELETION_GRACE_MAX_S 86400 /* as the longest of a checkpoint contract */
/* How long what runs of this Workload has to end once it is told to: as its deletion says, or its
 * contract. */
int64_t workload_grace_ms(const struct object *workload);
struct write_op {
    enum write_verb verb;
    enum kind_id kind;
    char ns[64], name[256];
    char uid[64]; /* precondition, or "" */
    uint64_t rv;  /* precondition, or 0 */
    bool graced;  /* DELETE: what runs has so long to end; else its own contract says it */
    int64_t grace_seconds;
    /* CREATE, UPDATE: the whole new object (uid filled in by the proposer on CREATE) */
    struct object *object;
};
struct write_cmd {
    struct command_head head;
    char revision[128]; /* git commit, for an atomic apply */
    char as[256];       /* whom head.user impersonated; for the audit record */
    bool apply;         /* a GitOps apply: sets the policies' revision */
    bool if_absent;     /* CREATE of an existing name is a no-op (bootstrap documents) */
    struct write_op *ops;
    uint32_t n;
};

/* A WRITE as somebody asked for it, carried out at most once.
 *
 * Under a client's key (Idempotency-Key) the first final answer is kept under (user, key) for 24
 * h of the state's time and is the answer to all that comes under it, wherever it waited
 * meanwhile: a success; a refusal of the state's; or one that the API found on its own view
 * (`refusal`: then nothing is written). Another fingerprint under the same key is refused.
 * Without a key the answer is kept under the stamp of the member that proposes it, until that
 * member's floor has passed it. */
#define FINGERPRINT_MAX 40
#define OLD_KEY_PREFIX "k-" /* of request ids that stand for a client's key */
#define RESULT_TEXT_MAX 256
struct request_cmd {
    struct write_cmd write;            /* first: its head is the command's */
    char key[REQUEST_ID_MAX];          /* "" = none */
    char fingerprint[FINGERPRINT_MAX]; /* of method, path and body */
    char old_id[REQUEST_ID_MAX]; /* of the same request in a WRITE of an older version, or "" */
    bool again; /* CONFLICT, NOTFOUND and EXISTS are no answers: the API computes it anew then */
    bool part;  /* nor is success: more of the same request follows */
    uint32_t refusal; /* -E_*, or 0 */
    char field[ERR_FIELD_MAX], text[RESULT_TEXT_MAX];
    uint64_t member, session, number; /* the stamp */
    uint64_t floor; /* of what has lower numbers in this session nobody waits for the answer */
};

struct place_cmd {
    struct command_head head;
    char ns[64], name[256], uid[64];
    int64_t epoch;    /* the workload's present epoch; the reservation begins epoch + 1 */
    uint64_t rv_read; /* resourceVersion of the state that was read: policies and inventory newer
                         than it are checked again */
    struct decision_spec *decision;
    struct placement *placement; /* NULL: it waits; only reason, message and position are set */
    char queue[256];
};

/* Steps of the epoch machine (controlplane/store/epoch.def says from where to where each may
 * go). */
enum run_step {
    STEP_DISPATCH = 1, /* intent: about to submit (try + 1) */
    STEP_ACCEPTED,     /* the target has it */
    STEP_RUNNING,      /* all workers run */
    STEP_ENDED,        /* proved: carries exit code, signal, proof */
    STEP_ABSENT,       /* proved: never started, and will not */
    STEP_UNKNOWN,      /* out of reach */
    STEP_SEEN,         /* in reach again: back to the phase before, or as observed */
    STEP_QUIESCE,      /* intent: signal and grace, to move or requeue */
    STEP_STOP,         /* intent: end it for good (cancel, delete, deadline) */
    STEP_REQUEUE,      /* stopped epoch: place again */
    STEP_LEASE_OVER, /* the lease and all bounds have passed on a runner that stops itself: proof */
    STEP_FENCED,     /* an operator recorded that it is dead: proof */
    STEP_CHECKPOINT, /* a verified checkpoint was seen: catalogued, and the newest to resume from */
    /* a catalogued checkpoint (epoch, step, digest) cannot be resumed from: reason says why; the
     * newest good one of the catalogue takes its place, or none */
    STEP_CHECKPOINT_BAD,
    STEP_CHECKPOINT_FOUND, /* Reserved only: who is to start it has found a newer checkpoint in the
                              store, of an epoch that is proved ended, than anybody was told of */
    STEP_OFFER, /* a lease of another length is about to be offered to its runner: from here on it
                   may hold the old one or this one. One at a time */
    STEP_GRANT, /* its runner has acknowledged what was offered: it holds that, and no other */
    STEP_LAST = STEP_GRANT
};
struct run_cmd {
    struct command_head head;
    char ns[64], name[256], uid[64];
    int64_t epoch, try_; /* of the run that this is about; another epoch is E_STALE */
    enum run_step step;
    int64_t exit_code, term_signal;
    enum proof proof;
    char reason[128], message[1024];
    struct run_checkpoint *checkpoint;
    /* DISPATCH: the lease that goes with the order, number 1; OFFER: what is offered; GRANT: what
     * was acknowledged. From FEATURE_GRANTS on, before that NULL. */
    struct lease_grant *grant;
    bool requeue;   /* with ENDED / ABSENT: the run was stopped to be placed again */
    char agent[64]; /* DISPATCH: state folder of the agent that it is given to; "" = not known.
                       From FEATURE_GRANTS on */
};

/* Steps of a migration (move.def says from which phase to which each may go; enum move_phase names
 * what is to be done next). controlplane/DESIGN.md, Migration: reserve, quiesce, verify, stage,
 * prove stopped, start, commit. */
enum move_step {
    MOVE_BEGIN = 1, /* a plan of one or more moves, all or nothing: the Migrations are made,
                       destinations held */
    /* of a Migration that a user made: its destination is held (none: it is requeued) */
    MOVE_RESERVE,
    MOVE_WAIT,    /* nothing fits: the reason is told, nothing is held */
    MOVE_QUIESCE, /* intent: the workload's QUIESCE, in the same command */
    MOVE_VERIFY, /* what it resumes from is settled: status.checkpoint of the workload as it is now,
                    or nothing */
    MOVE_STAGE,  /* the destination has read it and its digests hold */
    MOVE_START,  /* the old epoch is proved ended: the destination becomes the workload's own place,
                    epoch + 1 */
    MOVE_COMMIT, /* seen running in the new epoch */
    MOVE_ABORT   /* the way back: what is held is let go; the workload goes on, or is queued as any
                    other */
};
struct move_begin { /* one workload of a plan */
    char ns[64], workload[256], uid[64];
    int64_t epoch;
    enum move_cause cause;
    /* destination; NULL: quiesced and requeued with its place in the queue */
    struct placement *placement;
    struct decision_spec *decision;        /* with placement */
    double lost_gpu_seconds, cost, saving; /* as expected */
};
struct migrate_cmd {
    struct command_head head;
    enum move_step step;
    char ns[64], name[256], uid[64]; /* the Migration; BEGIN has none */
    struct move_begin *begins;       /* BEGIN; RESERVE: exactly one */
    uint32_t n;
    /* BEGIN of a preemption: for whom; its room is nominated in the same command. Victims are
     * checked again: never a protected class, never below the minimum runtime, lower priority or
     * borrowed. */
    char for_ns[64], for_name[256], for_uid[64];
    int64_t for_epoch;
    struct placement *nominated;
    enum move_phase outcome; /* ABORT: MP_FAILED or MP_CANCELLED */
    char reason[128], message[1024];
};

struct facts_cmd {
    struct command_head head;
    char target[256], session[64];
    bool reach_told, reachable;
    char why[256];
    char agent[64], rival[512]; /* with reach_told, from FEATURE_GRANTS on: who speaks for it; why
                                   another one was turned away, "" = nobody was */
    bool complete;              /* nodes that are not listed are gone */
    bool gone; /* those that are listed are gone, told by metadata.name alone; FEATURE_GRANTS */
    struct node *nodes; /* metadata.name "TARGET.NODE", spec, status.health */
    uint32_t n;
};
struct member_cmd {
    struct command_head head;
    struct member_info member;
    bool remove;
    char cluster_uid[64]; /* with the first one */
};
struct remove_cmd { /* by kind, ns, name, uid; only finished things */
    struct command_head head;
    struct write_op *ops; /* verb DELETE */
    uint32_t n;
};
/* What is finished moves into the archive (archive/archive.h), with what it owns; what is not,
 * or is not the one that was meant, is passed over. From the first one on every removal is
 * archived. */
struct archive_cmd {
    struct command_head head;
    uint64_t close_bytes;   /* a segment closes when it has come to that size, */
    int64_t close_after_ms; /* or when an ARCHIVE finds its first record that old; 0: at once */
    struct write_op *ops;   /* verb DELETE */
    uint32_t n;
};
/* Steps of a recovery (apply/recover.c). */
enum recover_step {
    RECOVER_BEGIN = 1, /* from here on it is open what runs where; of a state that went back also:
                          the next generation of the cluster, resourceVersion far ahead */
    RECOVER_LOST,      /* of one Workload of such a state: it may have gone on */
    RECOVER_ADOPT,     /* a run that a target carries, with its Workload, is taken over */
    RECOVER_SETTLE,    /* every Target was heard, or said to be dead */
    RECOVER_STRANGER   /* the agent of a Target that this state does not have has dialed in */
};
#define STRANGERS_MAX 1024
#define EPOCH_STEP 1000000 /* more than a workload can have gone on by in a state that was lost */
#define RECOVER_WAS_DELETED                                                                        \
    "its Workload was deleted, or removed by retention: this state had it, and let it go"
#define RECOVER_RV_JUMP 1000000000000ull /* more than such a state can have written */
struct recover_cmd {
    struct command_head head;
    enum recover_step step;
    char cluster_uid[64]; /* BEGIN: the new one, or ""; ADOPT: that had started the run */
    uint64_t rv;          /* BEGIN: where it goes on, or 0 */
    uint64_t known; /* BEGIN in a log of its own: up to here the cluster's past is certainly this
                  state's; ADOPT: resourceVersion of the state that ordered the run; 0: not known */
    char ns[64], name[256], uid[64]; /* STRANGER: the Target's name */
    int64_t epoch, try_;             /* ADOPT: of the run; ended: with these */
    bool ended, requeue;
    int64_t exit_code, term_signal;
    enum proof proof;
    char reason[128], message[1024];
    struct run_checkpoint *checkpoint; /* ADOPT of one that has ended: its newest */
    struct write_op *ops;              /* ADOPT: its Workload; SETTLE: the Targets, by name */
    uint32_t n;
};
/* A slice of what follows from deletions and from changed GpuClasses: dependents are removed, nodes
 * matched anew. The leader proposes slices while root_collect_due. */
#define COLLECT_MAX_OBJECTS 4096u
#define COLLECT_MAX_BYTES (16ull << 20)
struct collect_cmd {
    struct command_head head;
    uint32_t objects; /* that may be looked at, 1 to COLLECT_MAX_OBJECTS */
    uint64_t bytes;   /* of them together, 1 to COLLECT_MAX_BYTES; the first may have more */
};
/* A slice of an array (apply/array.c). The leader proposes slices while root_array_due. */
#define ARRAY_MAX_OBJECTS 256u
struct array_cmd {
    struct command_head head;
    char ns[64], name[256], uid[64];
    uint32_t objects; /* indexes that may be begun or told, 1 to ARRAY_MAX_OBJECTS */
};
union command {
    struct command_head head; /* common first member */
    struct write_cmd write;
    struct request_cmd request;
    struct place_cmd place;
    struct run_cmd run;
    struct facts_cmd facts;
    struct member_cmd member;
    struct remove_cmd remove;
    struct migrate_cmd migrate;
    struct archive_cmd archive;
    struct recover_cmd recover;
    struct collect_cmd collect;
    struct array_cmd array;
};
void command_encode(const union command *c, struct buf *out);
/* Everything in arena a; objects are released by command_release. */
int command_decode(struct slice in, struct arena *a, union command **ret,
                   struct err *err) MUST_CHECK;
void command_release(union command *c);

/* ---- entries: one log entry = a header and a batch of commands ---- */
struct entry_head {
    /* strictly increasing; apply refuses anything else (controlplane/DESIGN.md, State and log) */
    uint64_t number;
    uint64_t term;   /* of the leader that proposed it */
    int64_t time_ms; /* UTC by the leader; apply never goes backwards: max(previous, this) */
};
/* Appends commands (already encoded) to an entry; the result is padded to 8 bytes. */
void entry_begin(struct buf *b, const struct entry_head *h);
void entry_add(struct buf *b, struct slice command);
void entry_end(struct buf *b);

#define RESULT_OBJECTS_MAX 1
struct result { /* of one command */
    char request_id[REQUEST_ID_MAX];
    int code;         /* 0 or E_* */
    uint64_t rv;      /* resourceVersion after it */
    uint32_t op;      /* of a write: the op at fault */
    bool unchanged;   /* an update that changed nothing */
    bool final;       /* of a REQUEST: it is the answer for good, kept under its key */
    bool repeated;    /* it was so already: nothing was done now */
    uint32_t retry_s; /* with E_LIMIT: when it can be done; 0: soon */
    char field[ERR_FIELD_MAX], text[RESULT_TEXT_MAX];
};
/* Applies one entry: *root is replaced by the next version (the old one unref'ed). each() is called
 * per command, in order. Returns 0, or E_CORRUPT when the entry cannot be what a leader proposed
 * (wrong number, torn), or E_NOTIMPL when it needs a newer version: the member must stop there, and
 * *root is unchanged. */
int store_apply(struct root **root, uint64_t index, uint64_t term, struct slice entry,
                void (*each)(const struct result *r, void *arg), void *arg,
                struct err *err) MUST_CHECK;
/* An operator's act: an entry that members cannot apply is stepped over by all of them. It is in
 * the state as an Event of hanse-system, and so in the digest. */
#define ENTRY_CHECKSUM_MAX 65 /* SHA-256 of its bytes, hexadecimal */
struct entry_skip {
    uint64_t index;
    char checksum[ENTRY_CHECKSUM_MAX], by[128], reason[512], at[40];
};
void store_skip(struct root **root, const struct entry_skip *s); /* *root is replaced */
/* Offline: a state that was restored, or is taken on by one member alone, begins anew: by entries
 * like any others (RECOVER BEGIN and LOST, MEMBER), so that the same code decides. Its time is that
 * of its newest entry. *root is replaced. */
struct store_anew {
    char cluster_uid[64];      /* cluster_begin_anew */
    uint64_t known;            /* resourceVersion up to which a majority certainly had it */
    uint64_t term;             /* of these entries; not below root_term */
    struct member_info member; /* the only one from now on */
};
struct store_anew_found {
    uint64_t members; /* that it had, and has no more */
    uint64_t lost;    /* workloads that may have gone on */
    uint64_t kept;    /* that had ended */
};
int store_begin_anew(struct root **root, const struct store_anew *how, struct store_anew_found *ret,
                     struct err *err) MUST_CHECK;
void entry_peek(struct slice entry, struct entry_head *ret); /* as it says, unchecked; zeroes */
/* A single command against a fork, for dryRun=All: nothing is kept. */
void store_try(const struct root *root, int64_t now_ms, const union command *c, struct result *ret,
               struct root **ret_after);

/* ---- snapshots: the whole root, changes and request ids included ---- */
/* In pieces, in order, as they are made: nothing holds all of them. piece() says false when it has
 * no room. Any thread. Members that do not know of pieces yet get all in one. */
typedef bool (*snapshot_piece_cb)(void *arg, const void *p, size_t n);
int snapshot_write(const struct root *r, snapshot_piece_cb piece, void *arg,
                   struct err *err) MUST_CHECK;
/* the same */
int snapshot_encode(const struct root *r, struct buf *out, struct err *err) MUST_CHECK;
/* E_NOTIMPL: a newer version wrote it. Any thread. */
int snapshot_decode(struct slice in, struct root **ret, struct err *err) MUST_CHECK;

/* ---- the epoch machine ---- */
/* May `step` be taken in this phase? The next phase, or 0. The table is epoch.def; `hanse` prints
 * it as docs. */
enum phase epoch_next(enum phase from, enum run_step step);
const char *run_step_text(enum run_step s);
bool phase_holds(enum phase p); /* holds its reservation (Reserved … Quiescing, Unknown) */
bool phase_live(
    enum phase p); /* something may be running outside (Dispatching … Quiescing, Unknown) */
bool phase_final(enum phase p);
int64_t epoch_following(const struct workload_status *s); /* of its next place */
/* The newest epoch that may have saved something and is proved ended; 0 = none. */
int64_t epoch_ended(const struct workload_status *s);

/* ---- migrations ---- */
/* May `step` be taken in this phase? The next phase, or 0. The table is move.def. */
enum move_phase move_next(enum move_phase from, enum move_step step);
const char *move_step_text(enum move_step s);
bool move_open(enum move_phase p); /* not ended */
bool move_holds(
    enum move_phase p); /* its status.placement is held, beside what the workload itself holds */

#endif
