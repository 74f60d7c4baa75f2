/* What the files of this folder share; only they and the tests include it. */
#ifndef HANSE_CONTROLPLANE_STORE_INTERNAL_H
#define HANSE_CONTROLPLANE_STORE_INTERNAL_H

#include "api/base/cluster.h"
#include "api/base/limits.h"
#include "controlplane/store/archive/archive.h"
#include "controlplane/store/store.h"

#include <stdatomic.h>
#include <string.h>

static inline struct slice key_str(const char *s)
{
    return slice_make(s, strlen(s));
}

/* ---- hashing: equal on all machines, not keyed ---- */
uint64_t hash_bytes(uint64_t seed, const void *p, size_t n);
uint64_t hash_u64(uint64_t seed, uint64_t v);

/* ---- boxes: reference-counted values of trees, other than objects ---- */
struct box {
    _Atomic uint32_t refs;
    void (*fini)(struct box *b); /* called before the box is freed, or NULL */
};
extern const struct tree_value_ops box_ops, object_ops;
/* returns n zeroed bytes that begin with a struct box, with one reference */
void *box_new(size_t n, void (*fini)(struct box *b));
void box_unref(const void *b);

struct change_box {
    struct box box;
    struct change change; /* owns references to before and after */
};
struct request_box {
    struct box box;
    int64_t at;
    uint64_t seq;
    int code;
    uint64_t rv;
    uint32_t op;
    bool unchanged;
    /* in the box's own memory; print: fingerprint of the request, or "" */
    char *field, *text, *print;
};
struct session_box { /* a member's present session; answers below floor are dropped */
    struct box box;
    uint64_t session, floor;
};
struct rate_box { /* a quota's token bucket (rate.c): level in 1/1,000,000 writes, at: UTC ms */
    struct box box;
    int64_t level, at;
};
struct usage_box {
    struct box box;
    struct node_usage usage;
};
struct count_box {
    struct box box;
    int64_t n;
};
struct member_box {
    struct box box;
    struct member_info info;
};
struct bytes_box {
    struct box box;
    uint32_t n;
    char p[];
};
/* An object whose dependents are still to be removed or changed (apply/collect.c). */
struct dead_box {
    struct box box;
    bool waiting;   /* looked through; collecting continues when something in it goes away */
    uint32_t stage; /* of a namespace: number of kinds done; of classes: enum in facts.c */
    uint32_t n;     /* bytes of cursor, the key of the last entry looked at */
    char cursor[];
};

#define STORE_KEY_MAX 512
struct key {
    size_t n;
    char p[STORE_KEY_MAX];
};
static inline struct slice key_slice(const struct key *k)
{
    return slice_make(k->p, k->n);
}
void key_add(struct key *k, const char *s, bool end);
void key_object(struct key *k, const char *ns, const char *name); /* ns \0 name */
void key_pair(struct key *k, const char *a, const char *b);       /* a \0 b */
void key_u64(struct key *k, uint64_t v); /* big-endian, so that keys sort by number */

/* The ledger of a root; ledger_internal.h describes its trees. */
#define LEDGER_LEVELS 5
struct ledger {
    struct tree *cells, *use; /* derived */
    struct tree *accounts, *open, *intervals, *totals[LEDGER_LEVELS];
    uint64_t seq;                  /* number of the newest interval */
    int64_t folded[LEDGER_LEVELS]; /* newest day of the lines at each level; -1: none */
    bool cpus; /* CPUs are booked since cpus_since (UTC ms); earlier versions booked none */
    int64_t cpus_since;
};
/* The archive of a root (archive/archive.c). */
struct segment_box {
    struct box box;
    struct archive_info info;
    struct tree *records; /* place from 0 → bytes_box; NULL: only files hold the records */
};
struct archive {
    bool begun;
    uint64_t close_bytes; /* size at which a segment closes, by the newest ARCHIVE */
    /* number of the newest closed segment; those from kept_from on have records */
    uint64_t newest, kept_from;
    uint64_t closed_entry; /* number of the entry that closed the newest segment */
    uint64_t records, bytes, counts[ARCHIVE_KINDS]; /* of closed segments */
    struct archive_info open;
    struct tree *open_records; /* place from 0 → bytes_box */
    struct tree *segments;     /* number → segment_box */
};
#define ROOT_MAGIC 0x726f6f74u
struct root {
    uint32_t magic;
    _Atomic uint32_t refs;
    uint64_t index, number, term, rv;
    int64_t time; /* UTC ms of the last entry */
    uint64_t request_seq;
    /* sum over objects, changes, requests, members and dead, in any order */
    uint64_t digest;
    char cluster_uid[64];
    char revision[128];
    /* 0: no recovery; 1: open; of a state that went back: the rv from which it went on */
    uint64_t recovering;
    /* stored */
    struct tree *kinds[KIND_LIMIT]; /* ns \0 name → object */
    struct tree *changes;           /* rv → change_box */
    uint64_t changes_bytes;         /* sum of change_bytes; derived */
    struct tree *requests;          /* user \0 request id → request_box */
    struct tree *keys;              /* user \0 key → request_box (request.c) */
    struct tree *sessions;          /* member → session_box */
    struct tree *recents;           /* member, session, number → request_box */
    uint64_t keys_bytes;            /* bytes of all keys; derived */
    struct tree *members;           /* id → member_box */
    struct tree *dead; /* what is left to do (DEAD_…): 'o' uid, 'n' namespace, … → dead_box */
    /* uid of a cluster → count_box: resourceVersion up to which its past is this state's
     * (apply/recover.c) */
    struct tree *ancestors;
    struct tree *strangers; /* name → box: strangers, Targets that are awaited and not here */
    struct tree *rates;     /* ns \0 name of a quota → rate_box; absent: the bucket is full */
    struct ledger ledger;
    struct archive archive;
    /* derived: computed from the objects when a snapshot is read */
    struct tree *request_order; /* seq → bytes_box (key in requests) */
    struct tree *key_order;     /* seq → bytes_box (key in keys) */
    struct tree *key_use;       /* user → count_box: bytes of the user's keys */
    struct tree *uids;          /* uid of a Workload → object */
    struct tree *owners;        /* owner uid \0 kind ns \0 name → object */
    struct tree *usage;         /* node → usage_box */
    struct tree *mig;           /* node \0 device/profile → count_box */
    struct tree *held;          /* queue \0 class → count_box: milli-GPU held */
    struct tree *target_held;   /* target → count_box: workloads that hold a place there */
    struct tree *target_class;  /* target \0 class → count_box: milli-GPU held there */
    struct tree *load;          /* queue \0 "waits" or "holds" → count_box: workloads */
    struct tree *class_gpus;    /* class → count_box: milli-GPU on all nodes */
    struct tree *target_nodes; /* target \0 → count_box: nodes; target \0 class → ready milli-GPU */
    uint64_t dead_due;       /* entries of `dead` that do not wait */
    struct tree *ns_live;    /* namespace → count_box: workloads that may run outside */
    struct tree *moves;      /* ns \0 name → object: Migrations that have not ended */
    struct tree *arrays;     /* ns \0 name → object: arrays that have work for ARRAY */
    struct tree *ns_objects; /* namespace \0 kind → count_box: objects (quota.c) */
    struct tree *quotas_due; /* namespace → box: its counts have changed; empty between commands */
};
#define ROOT_TREES_FIXED 29
#define ANCESTORS_MAX 16 /* the newest are kept */

struct root *root_fork(const struct root *r);
/* Stores an object whose metadata.resourceVersion is root_rv + 1, or removes one; keeps every
 * index, the changes and the digest. `after` NULL removes; both take their own references. */
void root_commit(struct root *w, const struct kind *k, const struct object *before,
                 const struct object *after);
/* index.c. before NULL: a new object; after NULL: a removed one. */
void root_index_object(struct root *w, const struct object *before, const struct object *after);
void root_load_object(struct root *w, struct object *o); /* of a snapshot, without a change */
void root_load_change(struct root *w, const struct change *c);
uint64_t change_bytes(const struct change *c); /* its share of changes_bytes */
void root_put_request(struct root *w, struct slice key, struct request_box *b); /* takes b over */
void root_put_member(struct root *w, const struct member_info *m, bool remove);
void root_put_stranger(struct root *w, const char *name, bool remove);
/* takes b over; NULL removes */
void root_put_dead(struct root *w, struct slice key, struct dead_box *b);
void root_jump(struct root *w, uint64_t rv); /* sets resourceVersion, and drops all changes */
void root_bound(struct root *w); /* drops old changes and request ids */
/* An assignment of p and the usage of its node. */
void root_usage_add(struct root *w, const struct placement *p, const struct assignment *a);
void root_usage_take(struct root *w, const struct placement *p, const struct assignment *a);
/* Can p, which may hold anything from outside, be held once `own` (or NULL) is released? */
bool root_hold_fits(const struct root *r, const struct placement *own, const struct placement *p);
int64_t root_count_of(const struct tree *t, struct slice key);
void root_count_add(struct tree **t, struct slice key, int64_t n); /* a sum of 0 is removed */
int64_t root_mig_held(const struct root *r, const char *node, int64_t device, const char *profile);
void root_target_count(const struct root *r, const char *target, struct arena *a,
                       struct target_status *s);
struct slice_kind; /* policy/policy.h */
int64_t root_counted_held(const struct root *r, const char *node, const char *class_,
                          const struct slice_kind *kind);
/* Of another kind than the node (NULL ok) has now, or by numbers that it tells no more. */
int64_t root_counted_strayed(const struct root *r, const struct node *n, const char *node,
                             const char *class_, const struct slice_kind *kind);

/* ---- requests: request.c ---- */
struct request_box *request_box_make(int64_t at, uint64_t seq, const struct result *res,
                                     const char *print);
uint64_t request_hash(uint64_t seed, struct slice key, const struct request_box *b);
/* Before a command is carried out: true when *res answers it already, or refuses it. */
bool request_known(struct root *w, const union command *c, struct result *res);
/* True when its key has an answer. */
bool request_answered(const struct root *r, const struct request_cmd *c);
/* After a command: keeps its answer, if that is final. */
void request_keep(struct root *w, const union command *c, struct result *res);
/* Where the fields of a snapshot go. whole() is called after each field and may take the buffer's
 * content, so that a writer of many fields never gathers them. NULL: they stay in the buffer. */
struct fields_out {
    struct buf *buf;
    void (*whole)(void *arg);
    void *arg;
};
static inline void field_whole(const struct fields_out *out)
{
    if (out->whole)
        out->whole(out->arg);
}

/* Records of a snapshot. request_read: NULL when `in`, into which the key points, is invalid. */
void request_write(uint16_t tag, struct slice key, const struct request_box *b, struct buf *out);
struct request_box *request_read(struct slice in, struct slice *ret_key);
void requests_write(const struct root *r, const struct fields_out *out);
int requests_read(struct root *w, uint16_t tag, struct slice in, struct err *err) MUST_CHECK;
void requests_check(const struct root *r); /* part of root_check */
void rates_write(const struct root *r, uint16_t tag, const struct fields_out *out);
int rates_read(struct root *w, struct slice in, struct err *err) MUST_CHECK;

/* Passes the objects of one kind that `uid` owns to each(), by name. */
void root_owned(const struct root *r, const char *uid, enum kind_id kind,
                bool (*each)(const struct object *o, void *arg), void *arg);
/* Returns the placement that an object holds: of a Workload in a phase that holds one, or the
 * destination of an open Migration; else NULL. */
const struct placement *object_hold(const struct object *o);
bool object_live(const struct object *o); /* a Workload that may run outside */
/* For tests and the simulator: aborts unless every index equals what the objects say. */
void root_check(const struct root *r);
/* true when it may be loaded beside the objects that are there */
bool root_object_sound(const struct root *r, const struct object *o);

/* ---- quotas of namespaces: quota.c ---- */
void objects_key(struct key *k, const char *ns, enum kind_id kind);
/* Counts a Workload for a quota: 1, and for an array the indexes that it has not begun. */
int64_t workload_objects(const struct workload *w, bool deleted);
/* Part of root_commit: notes the namespaces whose status.used must be computed again. */
void quotas_note(struct root *w, const struct object *before, const struct object *after);
struct txn;
/* Part of txn_put: fills in the status of a ResourceQuota. */
void quotas_fill(struct txn *t, void *body);
/* At the end of a command: updates the quotas of the namespaces whose counts it changed. */
void quotas_settle(struct txn *t);
/* Checks whether a user may put `body` in the place of `old` (or NULL); E_FORBIDDEN, in Kubernetes'
 * words. */
int quotas_take(struct txn *t, const struct kind *k, const struct object *old,
                const void *body) MUST_CHECK;
void quotas_check(const struct root *r); /* part of root_check */
/* ---- rates of writes: rate.c ---- */
/* Part of apply: charges the write to the bucket, or refuses it. */
bool rates_refuse(struct root *w, const struct request_cmd *c, struct result *res);
void rates_follow(struct root *w, const struct object *before, const struct object *after);
void rates_check(const struct root *r); /* part of root_check */

/* ---- the ledger: ledger.c ---- */
void ledger_init(struct ledger *l);
void ledger_fork(struct ledger *l); /* a copied struct becomes one of its own */
void ledger_fini(struct ledger *l);
/* Called around every change of an object: before it, and when the root holds `after`. */
void ledger_change_begin(struct root *w, const struct object *before, const struct object *after);
void ledger_change(struct root *w, const struct object *before, const struct object *after);
void ledger_load(struct root *w, const struct object *o); /* loads an object from a snapshot */
void ledger_cpus_begin(struct root *w);                   /* begins to book CPUs */
/* Records of a snapshot. ledger_loaded: all records were read; had false: the snapshot is older
 * than the ledger, which begins now. */
void ledger_write(const struct root *r, uint16_t tag, const struct fields_out *out);
int ledger_read(struct root *w, struct slice in, struct err *err) MUST_CHECK;
int ledger_loaded(struct root *w, bool had, struct err *err) MUST_CHECK;
void ledger_check(const struct root *r, const struct root *fresh); /* part of root_check */

/* ---- the archive: archive/archive.c ---- */
void archive_init(struct archive *a);
void archive_fork(struct archive *a); /* a copied struct becomes one of its own */
void archive_fini(struct archive *a);
/* Takes in an object that is about to be removed, if its kind is archived. */
struct txn;
void archive_take(struct txn *t, const struct object *o);
/* or changes the size at which segments close */
void archive_begin(struct root *w, uint64_t close_bytes);
void archive_close(struct root *w); /* closes the open segment, which must not be empty */
void archive_open_next(struct archive *a, const unsigned char prev[ARCHIVE_DIGEST]);
/* takes records over */
void archive_segment_put(struct archive *a, const struct archive_info *i, struct tree *records);
void archive_append(struct archive *a, const struct archive_record *r, struct slice bytes);
void archive_count(struct archive_info *i, const struct archive_record *r, size_t bytes);
void archive_record_write(const struct archive_record *r, struct buf *out);
uint64_t archive_hash(const struct archive *a, uint64_t h); /* into the digest of the root */
/* Records of a snapshot; archive_loaded: all records were read. */
void archive_write(const struct root *r, uint16_t tag, const struct fields_out *out);
int archive_read(struct root *w, struct slice in, struct err *err) MUST_CHECK;
int archive_loaded(struct root *w, struct err *err) MUST_CHECK;
void archive_check(const struct root *r); /* part of root_check */

/* ---- the pieces of a snapshot: snapshot_pieces.c ---- */
#define PIECE_BYTES ((size_t)1 << 20) /* uncompressed; the last field may exceed it */
struct pieces_out {
    snapshot_piece_cb piece;
    void *arg;
    struct buf packed;
    uint32_t place, sums;
    bool failed, too_large;
};
void pieces_begin(struct pieces_out *s, snapshot_piece_cb piece, void *arg, const void *head,
                  size_t n);
void pieces_put(struct pieces_out *s, const void *p, size_t n);
int pieces_end(struct pieces_out *s, struct err *err) MUST_CHECK; /* must be called in any case */
int pieces_read(struct slice in, int (*fields)(void *arg, struct slice piece), void *arg,
                struct err *err) MUST_CHECK;

/* ---- apply ---- */
/* The first members of every kind's struct (in kinds.def metadata always comes first). */
struct any_body {
    uint64_t has;
    struct slice unknown;
    struct meta *metadata;
};
struct txn { /* one command on a fork of the state; borrows its pointers */
    struct root *w;
    int64_t now;
    struct arena *a;
    struct result *res;
    struct err *err;
    const char *user;  /* the user who asked */
    struct err failed; /* set by txn_put when an object became too large: the command fails */
    bool beginning;    /* an ARRAY, which counts its indexes itself */
    bool by_user;      /* a user's write, in the log or in a dry run: quotas apply */
    bool sliced;       /* FEATURE_GRANTS: COLLECT does what follows from the command */
    uint32_t objects;  /* COLLECT: objects that may still be looked at */
    uint64_t bytes;    /* COLLECT: bytes of them */
};
/* Largest encoded object in the state: what a snapshot's reader takes, less a resourceVersion that
 * grows. */
#define STORE_SCRATCH_MAX_BYTES ((size_t)1 << 30) /* several times the largest object, decoded */
#define STORE_OBJECT_MAX_BYTES (4 * (size_t)LIMIT_OBJECT_MAX_BYTES - 64)
/* Stores `body`, a mutable copy (object_edit) or a new body, as the next version. The result is
 * borrowed until the next commit. If it is too large, returns `before`, and the command fails as a
 * whole (t->failed).
 *
 * t->a is scratch. A caller that works on several objects resets it between them (txn_next_object),
 * so that a command needs the memory of its largest object, not of all. */
const struct object *txn_put(struct txn *t, const struct kind *k, const struct object *before,
                             void *body);
/* Moves an object into the archive, and begins to collect what it owned. */
void txn_remove(struct txn *t, const struct object *o);
/* The same without the archive, for objects that explain nothing later: a catalogue's older
 * entries. */
void txn_forget(struct txn *t, const struct object *o);
/* Deletes as a user asks: finalizers, live work, dependents and contents may delay the deletion.
 * grace: seconds that a run of the Workload has to end; NULL: as its contract says. */
int txn_delete(struct txn *t, const struct object *o, const int64_t *grace, enum propagation how,
               bool *ret_unchanged) MUST_CHECK;
bool namespace_protected(const struct object *o); /* it is never deleted */
/* continues waiting deletions there after something was released */
void txn_settle(struct txn *t, const char *ns, const char *target);
/* ---- what follows from a deletion, and from a changed GpuClass (apply/collect.c) ---- */
/* root.dead holds what is left to do. Members before FEATURE_GRANTS did it at the end of each
 * command (txn_collect_all); since then COLLECT does a slice at a time. */
void txn_collect_all(struct txn *t);
int apply_collect(struct txn *t, const struct collect_cmd *c) MUST_CHECK;
void dead_begin(struct txn *t, char what, const char *name); /* unless it has begun */
void dead_again(struct txn *t, char what, const char *name); /* where it waits: it goes on */
void dead_set(struct txn *t, struct slice key, uint32_t stage, bool waiting, struct slice cursor);
/* An owner that goes after its dependents, or without them (finalizers foregroundDeletion and
 * orphan). owner_waits() says whether it is one; owner_follow() takes down what a deletion asks
 * for, and returns the object as it is stored then; owner_begin() begins to collect; owner_look()
 * looks again at one that may wait no longer, and owners_look() at those of a dependent that
 * went. */
bool owner_waits(const struct meta *m);
bool meta_finalizer(const struct meta *m, const char *name);
const struct object *owner_follow(struct txn *t, const struct object *o, enum propagation how);
void owner_begin(struct txn *t, const struct object *o);
void owner_look(struct txn *t, const struct object *o);
void owners_look(struct txn *t, const struct meta *dependent);
#define DEAD_OWNER 'f'   /* one of these: its kind in three digits, NAMESPACE/NAME */
#define DEAD_CLASSES 'c' /* nodes to match with GpuClasses anew; its name: */
#define DEAD_CLASSES_NAME "classes"
#define DEAD_UNSETTLED 'w' /* uid of a deleted Workload that waits for SETTLE */
#define DEAD_SETTLED 's'   /* SETTLE releases them; its name: */
#define DEAD_SETTLED_NAME "settled"
void collect_classes(struct txn *t, struct slice key, const struct dead_box *d); /* facts.c */
/* Charges one object of so many bytes to the slice; false when the slice is used up. */
bool txn_charge(struct txn *t, size_t bytes);
bool txn_removable(const struct txn *t, const struct object *o);
/* Returns the next entry of a tree with this prefix and after a cursor; NULL at the end. */
const struct object *txn_next(const struct tree *tree, struct slice prefix, struct slice after,
                              struct key *ret);
const char *txn_uid(struct txn *t, const char *of); /* deterministic, unique over time */
struct meta *txn_meta(struct txn *t, const char *ns, const char *name);
/* Lists all objects of a kind of which people write a few hundred, in t->a or in an arena. */
const struct object *const *txn_all(struct txn *t, enum kind_id kind, size_t *ret_n);
const struct object *const *root_all(const struct root *w, enum kind_id kind, struct arena *a,
                                     size_t *ret_n);
void txn_condition(struct txn *t, struct condition **list, uint32_t *n, const char *type,
                   enum cond_status status, const char *reason, const char *message);
void *txn_status(const struct kind *k, void *body); /* the address of the status pointer, or NULL */

int apply_write(struct txn *t, const struct write_cmd *c) MUST_CHECK;
int apply_request(struct txn *t, const struct request_cmd *c) MUST_CHECK;
int apply_place(struct txn *t, const struct place_cmd *c) MUST_CHECK;
int apply_run(struct txn *t, const struct run_cmd *c) MUST_CHECK;
int apply_facts(struct txn *t, const struct facts_cmd *c) MUST_CHECK;
/* Its next node after `at`. remove.c: one that is not listed; is listed (again); new ones. */
const struct object *node_next(struct txn *t, const char *target, struct key *at);
bool node_unlist(struct txn *t, const struct object *o); /* did anything change? */
void node_relist(struct txn *t, const struct object *o);
void nodes_pair(struct txn *t, const char *target);
int apply_member(struct txn *t, const struct member_cmd *c) MUST_CHECK;
int apply_remove(struct txn *t, const struct remove_cmd *c) MUST_CHECK;
int apply_archive(struct txn *t, const struct archive_cmd *c) MUST_CHECK;
int apply_recover(struct txn *t, const struct recover_cmd *c) MUST_CHECK;
/* recover_holds: the object, if deleted, stays until recovery is settled. recover_tell_deleted:
 * says so in its status. recover_await: SETTLE removes it, if it waits for nothing else. */
bool recover_holds(const struct root *r, const struct object *o);
void recover_tell_deleted(struct workload_status *s);
void recover_await(struct txn *t, const struct object *o);
void recover_collect(struct txn *t, struct slice key); /* removes a slice of what SETTLE released */
int recover_stranger(struct txn *t, const struct recover_cmd *c) MUST_CHECK;
int recover_settle(struct txn *t, const struct recover_cmd *c) MUST_CHECK;
/* Marks `after`, which is about to replace a Workload that is not marked yet. */
void recover_touch(struct txn *t, const struct object *before, struct workload *after);
int token_admit(struct txn *t, const struct object *token) MUST_CHECK; /* is it valid now? */
bool object_finished(const struct root *w, const struct object *o); /* retention may remove it */
/* ---- arrays: apply/array.c; their sets of indexes, "0-41,43", as struct: indexes.c ---- */
struct index_range {
    int64_t from, to; /* both included */
};
struct indexes {
    struct index_range *v; /* ascending; no two touch */
    uint32_t n, room;
    int64_t count; /* number of indexes in all ranges */
};
bool indexes_read(const char *text, struct arena *a, struct indexes *ret); /* false: it is none */
const char *indexes_text(const struct indexes *x, struct arena *a);
int64_t indexes_end(const struct indexes *x, int64_t index); /* the last of its range, or -1 */
void indexes_add(struct indexes *x, int64_t from, int64_t to, struct arena *a);
void indexes_remove(struct indexes *x, int64_t index, struct arena *a);
struct index_sets {
    struct indexes active, completed, failed; /* no index is in two of them */
};
bool index_sets_read(const struct workload_status *s, struct arena *a, struct index_sets *ret);

/* True for an array in a state whose members all know arrays. */
bool array_known(const struct root *r, const struct object *o);
bool array_due(const struct object *o);          /* true when it has work for ARRAY */
int64_t array_bound(const struct array_spec *s); /* how many indexes may be unfinished at once */
/* Returns the array whose index this Workload is, by its name and uid, and the index; or NULL. */
const struct object *array_of(const struct root *r, const struct meta *m, int64_t *ret_index);
/* Called when an index begins, ends or is removed (before or after NULL): its array counts it. */
void array_follow(struct txn *t, const struct object *before, const struct object *after);
/* A run of a Workload that is not here was found. array_ended: true if it is an index that has
 * ended. array_adopt: makes its array the owner. */
bool array_ended(struct txn *t, const struct meta *m);
void array_adopt(struct txn *t, struct meta *m);
/* A workload that waits follows a change of its spec (write.c). */
void workload_follow_spec(struct txn *t, const struct kind *k, const struct object *now,
                          void *body);
const char *workload_queue(struct txn *t, const struct object *o);
int apply_array(struct txn *t, const struct array_cmd *c) MUST_CHECK;
int apply_migrate(struct txn *t, const struct migrate_cmd *c) MUST_CHECK;
/* of txn_put: status.spent of a Workload whose placement ends with that version (ledger_hold.c) */
void ledger_spend(struct txn *t, const struct object *before, void *body);
void facts_reclass(struct txn *t); /* GpuClasses changed: matches nodes anew, in slices */
const char *sentence_named(struct txn *t, const struct kind *k, const char *name); /* x.y "z" */

/* A place for a workload, checked and taken (apply/place.c) by PLACE and by Migrations. */
struct place {
    const struct object *o; /* the Workload */
    const struct workload *w;
    const struct decision_spec *decision;
    struct placement *p;          /* our copy */
    const struct placement *held; /* the place that it gives up in exchange, or NULL */
    bool settled;      /* its quota was admitted when the place was reserved, and is held since */
    const char *queue; /* in: the queue of the decision, or NULL; out: its queue */
    const struct object *target;
    int64_t gpus; /* milli-GPU of all workers */
};
/* checks that the place gives what the spec asks for */
int place_shape(struct txn *t, struct place *x) MUST_CHECK;
/* Checks everything that the decision rests on against the state as it is now. */
int place_admit(struct txn *t, struct place *x) MUST_CHECK;
/* Checks whether the run, logs and checkpoints of o may lie where `target` keeps them. */
int place_compliance(struct txn *t, const struct object *o, const struct object *target) MUST_CHECK;
/* Stores the Decision of `epoch`; completes x->p. */
void place_record(struct txn *t, struct place *x, int64_t epoch);
/* Makes w, a copy of the workload, Reserved there in its next epoch. */
void place_take(struct txn *t, const struct place *x, struct workload *w);

/* Returns WORKLOAD + suffix, shortened where it would be too long for a name. */
const char *workload_derived_name(struct txn *t, const char *workload, const char *suffix);

/* Returns the owner reference of objects made for a workload. */
struct owner_ref *workload_owner(struct txn *t, const struct object *wo);

/* ---- checkpoints (apply/checkpoint.c); s is a copy of wo's status, stored by the caller ---- */
int checkpoint_take(struct txn *t, const struct object *wo, struct workload_status *s,
                    const struct run_checkpoint *now, int64_t by_epoch) MUST_CHECK;
/* apply/grant.c: what is promised of a try. */
int grant_dispatch(struct txn *t, const struct workload *w, struct intent *in,
                   const struct lease_grant *g) MUST_CHECK;
int grant_offer(struct txn *t, struct intent *in, const struct lease_grant *g) MUST_CHECK;
int grant_acknowledged(struct txn *t, struct intent *in, const struct lease_grant *g) MUST_CHECK;
int claim_take(struct txn *t, struct workload_status *s, const struct run_cmd *c) MUST_CHECK;
/* E_STALE: the log does not prove that nothing of its try ever starts; else it says how. */
int close_proves(struct txn *t, const struct workload_status *s, const struct run_cmd *c,
                 const char **ret_reason, const char **ret_message) MUST_CHECK;
/* The runners of that try have told that they hold the granted lease; in may be NULL. */
void grant_told(struct txn *t, struct intent *in);
/* E_STALE: that a lease is over proves nothing of this run. Intents without leases pass. */
int grant_proves(struct txn *t, const struct workload_status *s) MUST_CHECK;
/* What was told of its workers (and USE), at its end what they used; unknown ranks count not. */
void workers_take(struct txn *t, struct workload_status *s, const struct run_cmd *c);
void workers_spend(struct txn *t, struct workload_status *s, const struct run_cmd *c);
/* Sets the devices of p's worker that the target did not name; false: not so many are free. */
bool seat_choose(struct txn *t, const struct placement *p, uint32_t rank,
                 const struct assignment *asked);
int checkpoint_found(struct txn *t, const struct object *wo, struct workload_status *s,
                     const struct run_checkpoint *now) MUST_CHECK;
/* Puts the checkpoint of an adopted workload (NULL: none) into catalogue and status. */
void checkpoint_adopt(struct txn *t, const struct object *wo, const struct run_checkpoint *ck);
/* SAVE; `from` is the phase. */
int checkpoint_save(struct txn *t, struct workload *w, enum phase from, const struct run_cmd *c);
/* Its run has ended: what was asked for and not saved has failed, and when nothing runs again, what
 * was not asked for yet, too. */
void checkpoint_save_ended(struct txn *t, struct workload *w, enum phase to);
int checkpoint_bad(struct txn *t, const struct object *wo, struct workload_status *s,
                   const struct run_checkpoint *bad, const char *reason,
                   const char *message) MUST_CHECK;

/* ---- moves: their begin (apply/plan.c), their steps (apply/migrate.c) ---- */
struct move {
    const struct migrate_cmd *c;
    const struct object *o;  /* the Migration; NULL: it is about to be created */
    const struct object *wo; /* its Workload by uid; NULL: it is gone */
    struct migration *m;     /* our copy */
    struct migration_status *s;
    enum move_phase from, to;
};
const char *move_refused(const struct object *wo); /* why it cannot be moved now, or NULL */
void move_enter(struct txn *t, struct migration_status *s, enum move_phase phase);
/* Sets the workload's status.migration; "": none. */
void move_tell(struct txn *t, const struct object *wo, const char *migration, bool moved);
/* The workload was found on `target` in an epoch that this state has not reached: ends its open
 * move, and releases what that held. */
void move_overtaken(struct txn *t, const struct object *wo, const char *target, int64_t epoch);
/* Checks b against the state as it is now, and sets x->s and x->to as they are once its destination
 * is held. */
int move_reserve(struct txn *t, struct move *x, const struct move_begin *b) MUST_CHECK;
int move_begin_all(struct txn *t, const struct migrate_cmd *c) MUST_CHECK; /* BEGIN */
/* Checks a user's Migration, fills in its first status, and marks its Workload. */
int move_create(struct txn *t, struct migration *m) MUST_CHECK;
void move_source_ended(struct txn *t, const struct object *before_end, double lost);
/* Returns the GPU-seconds that would be lost if it ended now: since the newest verified checkpoint
 * of its epoch, or since it was placed. */
double workload_lost(const struct workload_status *s, const struct run_checkpoint *ck, int64_t now);
bool object_open_move(const struct object *o); /* a Migration that has not ended */

/* ---- fields: u16 tag, u32 length, bytes; readers pass over unknown tags ---- */
void record_u64(struct buf *b, uint16_t tag, uint64_t v); /* writes nothing for 0 */
void record_i64(struct buf *b, uint16_t tag, int64_t v);
void record_str(struct buf *b, uint16_t tag, const char *s); /* writes nothing for "" */
void record_bytes(struct buf *b, uint16_t tag, const void *p, size_t n);
size_t record_open(struct buf *b, uint16_t tag); /* nested; record_close fills in its length */
void record_close(struct buf *b, size_t at);
struct wire {
    const unsigned char *p;
    size_t n;
};
int record_next(struct wire *w, uint16_t *ret_tag, struct slice *ret); /* 1, 0: end, E_CORRUPT */
uint64_t record_get_u64(struct slice s);
int64_t record_get_i64(struct slice s);
bool record_get_str(struct slice s, char *out, size_t n); /* false: no room, or it has a NUL */
void le_put_u16(unsigned char *p, uint16_t v);
void le_put_u32(unsigned char *p, uint32_t v);
void le_put_u64(unsigned char *p, uint64_t v);
uint32_t le_get_u32(const unsigned char *p);
uint64_t le_get_u64(const unsigned char *p);

#endif
