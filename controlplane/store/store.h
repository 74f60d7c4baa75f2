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
#include "controlplane/store/machine.h"
#include "controlplane/store/tree.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- root ---- */
struct change { /* one step of resourceVersion */
    uint64_t rv;
    enum kind_id kind;
    /* before is NULL for a creation. after is NULL for a deletion; before then carries the
     * deletion's own resourceVersion. */
    const struct object *before, *after;
};
struct member_info {
    uint64_t id;
    char address[256];     /* of its listener for members */
    char api_address[256]; /* of its listener for users and agents */
    char name[64];
    uint32_t feature_level;
};
struct root;                    /* opaque; the functions below read it */
struct root *root_create(void); /* the empty state, rv 0 */
struct root *root_ref(const struct root *r);
struct root *root_unref(struct root *r);
uint64_t root_index(const struct root *r);  /* Raft index of the last entry applied */
uint64_t root_number(const struct root *r); /* number of the last entry; it rises by one */
uint64_t root_term(const struct root *r);
uint64_t root_rv(const struct root *r);
int64_t root_time(const struct root *r);            /* time of the last entry, UTC ms */
uint64_t root_digest(const struct root *r);         /* over all objects, in any order */
const char *root_cluster_uid(const struct root *r); /* api/base/cluster.h explains its parts */
/* Nonzero from RECOVER BEGIN to SETTLE, while it is not known what runs where: 1, or for a state
 * that went back the resourceVersion from which it went on. */
uint64_t root_recovering(const struct root *r);
/* true from RECOVER BEGIN of a state that went back until SETTLE */
bool root_went_back(const struct root *r);
/* True when everything that the state of `cluster` had at its resourceVersion rv lies in this
 * state's own past. Then a Workload that it had, and this state has not, was deleted here or
 * removed by retention. rv 0: not known. */
bool root_had(const struct root *r, const char *cluster, uint64_t rv);
/* Lists the strangers, in order: Targets that this state does not have, whose agents have dialed in
 * since, or that were deleted since. RECOVER SETTLE waits for them. Returns their number. */
size_t root_strangers(const struct root *r, char (*ret)[256], size_t max);
bool root_stranger(const struct root *r, const char *target);
/* Returns the Target for which an agent of that name speaks, or NULL: it is the Target's own, or
 * TARGET.PART with a part of spec.agents, which is put in ret_part (else ""; may be NULL). */
const struct object *root_agent_target(const struct root *r, const char *agent,
                                       const char **ret_part);
/* E_CONFLICT when an agent of this Target would have the name of another Target's. */
int root_agents_clash(const struct root *r, const struct object *t, struct err *err) MUST_CHECK;
/* True when the workload may be alive in an epoch, or at a place, that this state does not know; it
 * is not placed then. */
bool workload_unsettled(const struct root *r, const struct object *o,
                        const struct workload_status *s);
/* Returns NULL when it is absent; it is borrowed from the root. ns "": cluster scope. */
const struct object *root_get(const struct root *r, enum kind_id kind, const char *ns,
                              const char *name);
/* ns NULL: all namespaces. The scan begins after (after_ns, after_name); both NULL: at the
 * start. */
void root_scan(const struct root *r, enum kind_id kind, const char *ns, const char *after_ns,
               const char *after_name, bool (*each)(const struct object *o, void *arg), void *arg);
uint64_t root_count(const struct root *r, enum kind_id kind);
const struct object *root_workload_by_uid(const struct root *r, const char *uid);
void root_scan_moves(const struct root *r, bool (*each)(const struct object *o, void *arg),
                     void *arg); /* scans open Migrations */
/* Passes the changes with rv > since to each(), in order; E_GONE when they are no longer kept. */
int root_changes(const struct root *r, uint64_t since,
                 bool (*each)(const struct change *c, void *arg), void *arg,
                 struct err *err) MUST_CHECK;
uint64_t root_oldest_change(const struct root *r);
struct write_op;
/* Lists for retention what ended before that time, as the ops of a REMOVE, at most max; returns how
 * many. It walks over all Workloads, Migrations, Decisions and Events: call it rarely. */
size_t root_finished(const struct root *r, int64_t before_ms, struct write_op *ret, size_t max);
/* Returns why a Token is not valid (any more), as a clause; NULL: it is valid. */
const char *token_void(const struct root *r, const struct object *token, int64_t now_ms);
/* Lists Tokens that are not valid, as the ops of a REMOVE. Looks at `looks` Tokens from the cursor
 * on (zeroed: from the first); true when it came to the end, and the cursor begins anew. */
struct token_cursor {
    char ns[64], name[256];
};
bool root_tokens_void(const struct root *r, int64_t now_ms, struct token_cursor *at, size_t looks,
                      struct write_op *ret, size_t max, size_t *ret_n);
struct peer_identity;
bool root_certificate_revoked(const struct root *r, const struct peer_identity *who);
/* True when there is work for COLLECT. O(1). */
bool root_collect_due(const struct root *r);
/* Returns the next array after this name ("" and "": the first) that has work for ARRAY, or NULL.
 * O(log n). */
const struct object *root_array_due(const struct root *r, const char *ns, const char *name);
/* Reads what is held on a node, by its key "TARGET.NODE"; false when nothing is held there.
 * device_milli[d] is the milli-GPU held of device d. */
struct node_usage {
    int64_t cpu_milli, memory_bytes, gpu_milli;
    uint16_t device_milli[LIMIT_NODE_GPUS];
};
bool root_usage(const struct root *r, const char *node, struct node_usage *ret);
/* milli-GPU held by a queue itself */
int64_t root_queue_held(const struct root *r, const char *queue, const char *class_);
void root_scan_queue_held(const struct root *r, const char *queue,
                          void (*each)(const char *class_, int64_t milli, void *arg), void *arg);
/* milli-GPU held on a target, including destinations of Migrations */
int64_t root_target_held(const struct root *r, const char *target, const char *class_);
/* The workloads of a queue itself: how many wait for a place, and how many hold one. */
struct queue_load {
    int64_t waits, holds;
};
struct queue_load root_queue_load(const struct root *r, const char *queue);
/* Counts the objects of a namespaced kind in a namespace, including indexes that an array has not
 * begun yet. */
int64_t root_objects(const struct root *r, const char *ns, enum kind_id kind);
/* True when the namespace's quota (hanse.dev/writes-per-second) forbids this write at that time;
 * *ret is written then. Apply and the proposing member ask the same function. */
#define RETRY_MAX_S 3600u
struct request_cmd;
struct result;
bool root_rate_over(const struct root *r, int64_t now_ms, const struct request_cmd *c,
                    struct result *ret);
/* Of a quota with a rate: how many writes of its burst are used up at that time, and how many the
 * burst has. More than all: the bucket is in debt. False: it has no rate. */
bool root_rate_used(const struct root *r, const struct object *quota, int64_t now_ms,
                    int64_t *ret_used, int64_t *ret_burst);
/* Would this write of a user's go beyond a quota of objects (count/…)? Whoever is about to propose
 * it asks; apply asks again, and decides. 0 also for what apply would refuse for another reason. */
struct write_op;
int root_quota_over(const struct root *r, const struct write_op *op, struct err *err) MUST_CHECK;
/* True when there is room for another answer under a key of this user; else *ret_why says why
 * not. */
bool root_key_room(const struct root *r, const char *user, const char **ret_why);
/* session of its newest stamp; 0: none */
uint64_t root_session(const struct root *r, uint64_t member);
size_t root_members(const struct root *r, struct member_info *ret, size_t max);
/* Revision of the policies by the newest GitOps apply; "": none. */
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
    /* The proposer finds its result by it; while kept, a repeated WRITE or MEMBER gets that. */
    char request_id[REQUEST_ID_MAX];
    char user[256]; /* the user who asked, for the audit record and metadata */
};

/* A member stops at a command or step that it does not know. So a command goes into the log only
 * once every member has reported the feature level that introduced it (features.def). */
enum feature_level {
    FEATURE_FIRST = 1,   /* the level of members that report none */
    FEATURE_MOVES = 2,   /* Migrations, the catalogue of checkpoints */
    FEATURE_ARCHIVE = 3, /* ARCHIVE, and all removals from the first one on */
    FEATURE_FOUND = 4,   /* checkpoints that are looked for in their store */
    FEATURE_GRANTS = 5,  /* the log holds what is promised: leases, refusals under a key, slices */
    FEATURE_MACHINES = 6, /* machines that are ordered, kept and released */
    FEATURE_CLOSES = 7,   /* the log itself proves that a try never started */
    FEATURE_COUNTS = 8,   /* nodes count devices, and placements hold a number of them */
    FEATURE_GIVEN = 9,    /* of machines: what they are as given, conditions */
    FEATURE_PODS = 10,    /* Targets of type kubernetes are driven, by their spec.kubernetes */
    FEATURE_TELLS = 11    /* of what is Unknown: why it is so by now; manifests of others */
};
#define FEATURE_LEVEL FEATURE_TELLS /* of this version; MEMBER reports it */
uint32_t root_feature_level(const struct root *r); /* lowest of all members; 0: none recorded */
/* The level that introduced this command (step 0) or step of it; UINT32_MAX: it is not known. */
uint32_t command_feature_level(enum command_type type, int step);
uint32_t command_needs(struct slice encoded); /* the level that a whole command needs */
/* The level that introduced this kind; older members cannot read it. */
uint32_t kind_feature_level(enum kind_id kind);
/* Estimates the cost of applying it: its own bytes and those of the objects that it names. */
uint64_t command_cost(const struct root *r, struct slice encoded);

enum write_verb { WRITE_CREATE = 1, WRITE_UPDATE, WRITE_UPDATE_STATUS, WRITE_DELETE };
#define DELETION_GRACE_MAX_S 86400 /* as the longest grace of a checkpoint contract */
/* Returns how long a run of this Workload has to end once it is told to: by its deletion, or by its
 * checkpoint contract. */
int64_t workload_grace_ms(const struct object *workload);
/* What a DELETE does with the objects that name the deleted one as their owner, as Kubernetes'
 * DeleteOptions.propagationPolicy: BACKGROUND removes them after it, FOREGROUND removes it after
 * those that block its deletion, ORPHAN leaves them, relieved of the reference. The default is what
 * the object's finalizers foregroundDeletion and orphan ask for, or BACKGROUND. */
enum propagation {
    PROPAGATE_DEFAULT,
    PROPAGATE_BACKGROUND,
    PROPAGATE_FOREGROUND,
    PROPAGATE_ORPHAN
};
struct write_op {
    enum write_verb verb;
    enum kind_id kind;
    char ns[64], name[256];
    char uid[64]; /* precondition, or "" */
    uint64_t rv;  /* precondition, or 0 */
    bool graced;  /* DELETE: grace_seconds replaces the grace of the Workload's own contract */
    int64_t grace_seconds;
    enum propagation propagation; /* DELETE */
    /* CREATE, UPDATE: the whole new object; on CREATE the proposer fills in the uid */
    struct object *object;
};
struct write_cmd {
    struct command_head head;
    char revision[128]; /* git commit, for an atomic apply */
    char as[256];       /* the user whom head.user impersonated, for the audit record */
    bool apply;         /* a GitOps apply: sets the policies' revision */
    bool if_absent;     /* CREATE of an existing name is a no-op (bootstrap documents) */
    struct write_op *ops;
    uint32_t n;
};

/* A user's WRITE, carried out at most once.
 *
 * Under a client's key (Idempotency-Key) the first final answer is kept under (user, key) for 24 h
 * of the state's time, and answers every repetition, wherever that waited meanwhile. A final answer
 * is a success, a refusal by the state, or a refusal that the API found on its own view (`refusal`:
 * then nothing is written). Another fingerprint under the same key is refused. Without a key the
 * answer is kept under the stamp of the member that proposes it, until that member's floor has
 * passed it. */
#define FINGERPRINT_MAX 40
#define OLD_KEY_PREFIX "k-" /* prefix of request ids that stand for a client's key */
#define RESULT_TEXT_MAX 256
struct request_cmd {
    struct write_cmd write;            /* must be first: its head is the command's */
    char key[REQUEST_ID_MAX];          /* "": none */
    char fingerprint[FINGERPRINT_MAX]; /* hash of method, path and body */
    /* request id of the same request in an older version's WRITE, or "" */
    char old_id[REQUEST_ID_MAX];
    bool again; /* CONFLICT, NOTFOUND and EXISTS are not final: the API computes the write anew */
    bool part;  /* success is not final either: more of the same request follows */
    uint32_t refusal; /* -E_*, or 0 */
    char field[ERR_FIELD_MAX], text[RESULT_TEXT_MAX];
    uint64_t member, session, number; /* the stamp */
    uint64_t floor; /* nobody waits for the answers to lower numbers of this session */
};

struct place_cmd {
    struct command_head head;
    char ns[64], name[256], uid[64];
    int64_t epoch; /* present epoch of the workload; the reservation begins epoch + 1 */
    /* resourceVersion of the state that the decision read: newer policies and inventory are checked
     * again */
    uint64_t rv_read;
    struct decision_spec *decision;
    /* NULL: the workload waits; only reason, message and position are set */
    struct placement *placement;
    char queue[256];
};

/* Steps of the epoch machine; epoch.def says from which phase to which each leads. */
enum run_step {
    STEP_DISPATCH = 1, /* intent: the leader is about to submit (try + 1) */
    STEP_ACCEPTED,     /* the target has it */
    STEP_RUNNING,      /* all workers run */
    STEP_ENDED,        /* proved: the run ended; carries exit code, signal, proof */
    STEP_ABSENT,       /* proved: the run never started, and never will */
    STEP_UNKNOWN,      /* its target is out of reach */
    STEP_SEEN,         /* in reach again: back to the phase before, or as observed */
    STEP_QUIESCE,      /* intent: signal and grace, to move or requeue */
    STEP_STOP,         /* intent: end it for good (cancel, delete, deadline) */
    STEP_REQUEUE,      /* the epoch has stopped: place the workload again */
    STEP_LEASE_OVER, /* proof: the lease and all bounds have passed, and the runner stops itself */
    STEP_FENCED,     /* proof: an operator recorded that it is dead */
    /* a verified checkpoint was seen: it is catalogued, and resumed from if newest */
    STEP_CHECKPOINT,
    /* a catalogued checkpoint (epoch, step, digest) cannot be resumed from: reason says why; the
     * newest good one of the catalogue takes its place, or none */
    STEP_CHECKPOINT_BAD,
    /* Reserved only: its target has found a newer checkpoint in the store, of an epoch that is
     * proved ended, than was ever reported */
    STEP_CHECKPOINT_FOUND,
    /* intent: another lease is about to be offered to the runner, which may hold the old one or
     * this one from here on; one offer at a time */
    STEP_OFFER,
    STEP_GRANT, /* the runner has acknowledged the offered lease, and holds no other */
    /* the target has it in its own queue and has given it nothing: its place holds no node */
    STEP_PENDING,
    STEP_SEATED, /* the target has given it nodes; without `seats`: as it was decided */
    /* requests to save and go on: `save` has asked (intent), saved or failed (reason, message) */
    STEP_SAVE,
    STEP_CLAIM, /* a runner that calls home: `instance` alone may begin with the token of `rank` */
    STEP_CLOSE, /* proof by the log itself: nothing of this try has started, nor ever will */
    STEP_USE, STEP_LAST = STEP_USE /* how busy its GPUs are by now; no `use`: nobody knows */
};
struct run_cmd {
    struct command_head head;
    char ns[64], name[256], uid[64];
    int64_t epoch, try_; /* of the run concerned; another epoch is E_STALE */
    enum run_step step;
    int64_t exit_code, term_signal;
    enum proof proof;
    char reason[128], message[1024];
    struct run_checkpoint *checkpoint;
    /* DISPATCH: the lease that goes with the order, number 1; OFFER: the offered lease; GRANT: the
     * acknowledged one, or the granted one once its runner tells that it holds it. NULL before
     * FEATURE_GRANTS. */
    struct lease_grant *grant;
    bool lease_held;          /* ACCEPTED, RUNNING, SEEN: its runners tell that they hold a lease */
    bool requeue;             /* ENDED, ABSENT, CLOSE: the workload is placed again */
    struct save_status *save; /* SAVE */
    /* DISPATCH, from FEATURE_GRANTS on: state folder of the agent that gets the order, or "" */
    char agent[64];
    /* ABSENT, CLOSE, from FEATURE_GRANTS on: its target refused it. What was blamed, until when, is
     * written into the Target's status, or where the workload itself was blamed into its end. It
     * lasts from `since` to `until`, counted from the entry's time on. The message is the
     * command's. */
    struct target_pause *pause;
    struct run_pending *pending; /* PENDING: position and estimate; the rest is the command's */
    struct placement *seats;     /* SEATED: the assignments; NULL: those that were decided */
    /* RUNNING, ENDED, from FEATURE_GRANTS on: what the target told of workers, by rank, without
     * nodes, and without devices where the log has their numbers. */
    struct worker_status *workers;
    uint32_t n;
    int64_t behind_ms; /* what has to be added to their times to have the hub's */
    int64_t rank;      /* CLAIM: whose token */
    char instance[40]; /* CLAIM: which process */
    struct gpu_use *use; /* USE: all but the time, which is the entry's; idleSince by the log's */
    int64_t unlisted_ms; /* CLOSE: the log's time when its target was asked and had it nowhere */
};

/* Steps of a Migration; move.def says from which phase to which each leads, and enum move_phase
 * names what is to be done next (controlplane/DESIGN.md, Migration). */
enum move_step {
    /* a plan of one or more moves, all or nothing: creates the Migrations and holds their
     * destinations */
    MOVE_BEGIN = 1,
    /* for a user's Migration: holds its destination, or requeues the workload if there is none */
    MOVE_RESERVE,
    MOVE_WAIT,    /* nothing fits: records the reason, holds nothing */
    MOVE_QUIESCE, /* intent: the workload's QUIESCE, in the same command */
    /* settles the checkpoint to resume from: the workload's status.checkpoint as it is now, or
     * none */
    MOVE_VERIFY,
    MOVE_STAGE, /* the destination has read the checkpoint, and its digests match */
    /* the old epoch is proved ended: the destination becomes the workload's own place, in epoch
     * + 1 */
    MOVE_START,
    MOVE_COMMIT, /* the workload was seen running in the new epoch */
    MOVE_ABORT   /* releases the destination; the workload goes on, or is queued like any other */
};
struct move_begin { /* one workload of a plan */
    char ns[64], workload[256], uid[64];
    int64_t epoch;
    enum move_cause cause;
    /* destination; NULL: the workload is quiesced, and requeued with its place in the queue */
    struct placement *placement;
    struct decision_spec *decision;        /* with placement */
    double lost_gpu_seconds, cost, saving; /* expected GPU-seconds lost; expected money */
};
struct migrate_cmd {
    struct command_head head;
    enum move_step step;
    char ns[64], name[256], uid[64]; /* the Migration; BEGIN has none */
    struct move_begin *begins;       /* BEGIN; RESERVE: exactly one */
    uint32_t n;
    /* BEGIN of a preemption: the preemptor, for which room is nominated in the same command. Apply
     * checks the victims again: none protected, none below its minimum runtime, each of lower
     * priority or borrowed. */
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
    /* with reach_told, from FEATURE_GRANTS on. agent: the agent that speaks for it; rival: why
     * another was turned away; denies: what it told and took back; "": nothing. Where …_told, what
     * cannot be read, "": all can. refused: nodes, from FEATURE_COUNTS on; unread: runs, PODS. */
    char agent[64], rival[512], denies[512], refused[512], unread[512];
    /* Of a Target with spec.agents: the part whose agent that is, and why it is away; "": none. */
    char part[64], part_why[256];
    bool part_reached, refused_told, unread_told;
    bool complete; /* nodes that are not listed are gone */
    bool gone; /* from FEATURE_GRANTS on: the listed nodes are gone; they have only metadata.name */
    /* Likewise: they have only that and status.notice, whose deadline is a span in ms from the
     * entry's time on (0: none is told). Without a notice: it was withdrawn. */
    bool noticed;
    struct node *nodes; /* metadata.name "TARGET.NODE", spec, status.health */
    uint32_t n;
};
/* True when a notice (NULL: none) says what the state has, but for what it takes to be told. */
bool notice_repeats(const struct node_notice *had, const struct node_notice *told, int64_t now_ms);
struct member_cmd {
    struct command_head head;
    struct member_info member;
    bool remove;
    char cluster_uid[64]; /* with the first member */
};
struct remove_cmd { /* removes finished objects, named by kind, ns, name and uid */
    struct command_head head;
    struct write_op *ops; /* verb DELETE */
    uint32_t n;
};
/* Moves finished objects, with what they own, into the archive (archive/archive.h). An object that
 * is not finished, or has another uid, is passed over. From the first ARCHIVE on every removal is
 * archived. */
struct archive_cmd {
    struct command_head head;
    uint64_t close_bytes;   /* a segment closes when it has reached this size, */
    int64_t close_after_ms; /* or when an ARCHIVE finds its first record this old; 0: at once */
    struct write_op *ops;   /* verb DELETE */
    uint32_t n;
};
/* Steps of a recovery (apply/recover.c). */
enum recover_step {
    /* opens the recovery: it is not known what runs where. For a state that went back it also sets
     * the next generation of the cluster, and resourceVersion far ahead */
    RECOVER_BEGIN = 1,
    RECOVER_LOST,   /* marks one Workload of a state that went back: it may have gone on */
    RECOVER_ADOPT,  /* takes over a run that a target carries, with its Workload */
    RECOVER_SETTLE, /* ends the recovery: every Target was heard, or is named as dead */
    /* records that the agent of a Target that this state does not have has dialed in */
    RECOVER_STRANGER
};
#define STRANGERS_MAX 1024
#define EPOCH_STEP 1000000 /* more epochs than a lost state can have begun */
#define RECOVER_WAS_DELETED                                                                        \
    "its Workload was deleted, or removed by retention: this state had it, and let it go"
#define RECOVER_RV_JUMP 1000000000000ull /* more than a lost state can have written */
struct recover_cmd {
    struct command_head head;
    enum recover_step step;
    /* BEGIN: the new uid, or ""; ADOPT: of the cluster that started the run */
    char cluster_uid[64];
    uint64_t rv; /* BEGIN: the resourceVersion from which it goes on, or 0 */
    /* BEGIN in a new log: resourceVersion up to which the old log's past is certainly this state's.
     * ADOPT: resourceVersion of the state that ordered the run. 0: not known */
    uint64_t known;
    char ns[64], name[256], uid[64]; /* STRANGER: the Target's name */
    /* ADOPT: of the run. The fields from `ended` to `message`: as in run_cmd */
    int64_t epoch, try_;
    bool ended, requeue;
    int64_t exit_code, term_signal;
    enum proof proof;
    char reason[128], message[1024];
    struct run_checkpoint *checkpoint; /* ADOPT of an ended run: its newest checkpoint */
    struct write_op *ops;              /* ADOPT: its Workload; SETTLE: the Targets, by name */
    uint32_t n;
};
/* A slice of what follows from deletions and changed GpuClasses: it removes dependents and matches
 * nodes anew. The leader proposes slices while root_collect_due. */
#define COLLECT_MAX_OBJECTS 4096u
#define COLLECT_MAX_BYTES (16ull << 20)
struct collect_cmd {
    struct command_head head;
    uint32_t objects; /* objects that it may look at, 1 to COLLECT_MAX_OBJECTS */
    uint64_t bytes;   /* their bytes together, 1 to COLLECT_MAX_BYTES; the first may have more */
};
/* A slice of an array (apply/array.c). The leader proposes slices while root_array_due. */
#define ARRAY_MAX_OBJECTS 256u
struct array_cmd {
    struct command_head head;
    char ns[64], name[256], uid[64];
    uint32_t objects; /* indexes that it may begin, suspend or resume, 1 to ARRAY_MAX_OBJECTS */
};
/* One step of a machine (machine.h). */
struct machine_cmd {
    struct command_head head;
    enum machine_step step;
    char target[256], target_uid[64]; /* ORDER */
    char pool[64];                    /* ORDER */
    int64_t number;                   /* ORDER: one more than the Target's status.machinesOrdered */
    char name[64], uid[64];           /* all but ORDER and RENEW */
    char reason[64], message[1024];   /* REFUSED, RELEASE, ENDED */
    struct machine_status *told;      /* SEEN, ENDED; NULL: nothing but that it ended */
    struct target_pause *pause;       /* REFUSED: as in run_cmd; NULL: the target is not blamed */
    struct write_op *ops;             /* RENEW: machines, by kind, name and uid */
    uint32_t n;
};
union command {
    struct command_head head; /* the common first member */
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
    struct machine_cmd machine;
};
void command_encode(const union command *c, struct buf *out);
/* Decodes into arena a; command_release releases the objects. */
int command_decode(struct slice in, struct arena *a, union command **ret,
                   struct err *err) MUST_CHECK;
void command_release(union command *c);

/* ---- entries: one log entry = a header and a batch of commands ---- */
struct entry_head {
    /* rises by one; apply refuses any other (controlplane/DESIGN.md, State and log) */
    uint64_t number;
    uint64_t term;   /* term of the leader that proposed it */
    int64_t time_ms; /* the cluster's time, UTC ms; apply takes max(previous, this) */
};
/* Appends commands (already encoded) to an entry; the result is padded to 8 bytes. */
void entry_begin(struct buf *b, const struct entry_head *h);
void entry_add(struct buf *b, struct slice command);
void entry_end(struct buf *b);

#define RESULT_OBJECTS_MAX 1
struct result { /* result of one command */
    char request_id[REQUEST_ID_MAX];
    int code;         /* 0 or E_* */
    uint64_t rv;      /* resourceVersion after the command */
    uint32_t op;      /* write: index of the op at fault */
    bool unchanged;   /* the update changed nothing */
    bool final;       /* REQUEST: the answer is final, and kept under its key */
    bool repeated;    /* the answer was known already: nothing was done now */
    uint32_t retry_s; /* E_LIMIT: seconds until it may be tried again; 0: soon */
    char field[ERR_FIELD_MAX], text[RESULT_TEXT_MAX];
};
/* Applies one entry: replaces *root by the next version, and releases the old one. each() gets the
 * result of each command, in order. Returns E_CORRUPT when the entry cannot be what a leader
 * proposed (wrong number, torn), or E_NOTIMPL when it needs a newer version: the member must stop
 * there, and *root is unchanged. */
int store_apply(struct root **root, uint64_t index, uint64_t term, struct slice entry,
                void (*each)(const struct result *r, void *arg), void *arg,
                struct err *err) MUST_CHECK;
/* An operator's act: all members step over an entry that they cannot apply. The state records it as
 * an Event in hanse-system, and so does the digest. */
#define ENTRY_CHECKSUM_MAX 65 /* SHA-256 of its bytes, in hexadecimal */
struct entry_skip {
    uint64_t index;
    char checksum[ENTRY_CHECKSUM_MAX], by[128], reason[512], at[40];
};
void store_skip(struct root **root, const struct entry_skip *s); /* replaces *root */
/* Offline: a state that was restored, or that one member recovers alone, begins anew. It does so by
 * ordinary entries (RECOVER BEGIN and LOST, MEMBER), so that the same code decides. Its time is
 * that of its newest entry. Replaces *root. */
struct store_anew {
    char cluster_uid[64];      /* cluster_begin_anew */
    uint64_t known;            /* resourceVersion up to which a majority certainly had it */
    uint64_t term;             /* term of these entries; not below root_term */
    struct member_info member; /* the only member from now on */
};
struct store_anew_found {
    uint64_t members; /* members that the state had */
    uint64_t lost;    /* workloads that may have gone on */
    uint64_t kept;    /* workloads that had ended */
};
int store_begin_anew(struct root **root, const struct store_anew *how, struct store_anew_found *ret,
                     struct err *err) MUST_CHECK;
void entry_peek(struct slice entry, struct entry_head *ret); /* unchecked; zeroes: too short */
/* Applies one command to a fork, for dryRun=All; nothing is kept. */
void store_try(const struct root *root, int64_t now_ms, const union command *c, struct result *ret,
               struct root **ret_after);

/* ---- snapshots: the whole root, with changes and request ids ---- */
/* Writes the snapshot piece by piece, so that nothing holds all of it. piece() returns false when
 * it has no room. Any thread may call it. Members that do not know pieces get one piece. */
typedef bool (*snapshot_piece_cb)(void *arg, const void *p, size_t n);
int snapshot_write(const struct root *r, snapshot_piece_cb piece, void *arg,
                   struct err *err) MUST_CHECK;
int snapshot_encode(const struct root *r, struct buf *out, struct err *err) MUST_CHECK; /* all */
/* Returns E_NOTIMPL when a newer version wrote it. Any thread may call it. */
int snapshot_decode(struct slice in, struct root **ret, struct err *err) MUST_CHECK;

/* ---- the epoch machine ---- */
/* Returns the phase to which `step` leads, or 0 if it is not allowed there (epoch.def). */
enum phase epoch_next(enum phase from, enum run_step step);
const char *run_step_text(enum run_step s);
bool workload_has_run(const struct workload_status *s); /* all of it was seen so in this epoch */
bool phase_holds(enum phase p); /* it holds its reservation (Reserved … Quiescing, Unknown) */
bool phase_live(enum phase p);  /* something may run outside (Dispatching … Quiescing, Unknown) */
bool phase_final(enum phase p);
int64_t epoch_following(const struct workload_status *s); /* the epoch of its next place */
int64_t epoch_ended(const struct workload_status *s); /* the newest that may have saved; 0: none */

/* ---- migrations ---- */
/* Returns the phase to which `step` leads from this phase, or 0 if it is not allowed (move.def). */
enum move_phase move_next(enum move_phase from, enum move_step step);
const char *move_step_text(enum move_step s);
bool move_open(enum move_phase p);  /* it has not ended */
bool move_holds(enum move_phase p); /* its status.placement is held, besides the workload's own */

#endif
