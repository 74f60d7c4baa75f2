/* What the files of this folder share. Nobody outside includes it but the tests. */
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

/* ---- boxes: counted values of trees other than objects ---- */
struct box {
    _Atomic uint32_t refs;
    void (*fini)(struct box *b); /* or NULL */
};
extern const struct tree_value_ops box_ops, object_ops;
/* zeroed, one reference; begins with a struct box */
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
    char *field, *text, *print; /* in the same piece of memory; print: of the request, or "" */
};
struct session_box { /* of a member: what it stamps now, and what it has let go of */
    struct box box;
    uint64_t session, floor;
};
struct rate_box { /* of a quota: writes that may come now, in 1/1,000,000 (rate.c) */
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
/* Something whose dependents are still to be removed or changed (apply/collect.c). */
struct dead_box {
    struct box box;
    bool waiting;   /* looked through; goes on when something in it goes away */
    uint32_t stage; /* of a namespace: kinds that are done; of classes: enum in facts.c */
    uint32_t n;     /* cursor: key of the last one looked at */
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
void key_u64(struct key *k, uint64_t v);                          /* big-endian: in order */

/* The ledger of a root (ledger_internal.h says what is in its trees). */
#define LEDGER_LEVELS 5
struct ledger {
    struct tree *cells, *use; /* derived */
    struct tree *accounts, *open, *intervals, *totals[LEDGER_LEVELS];
    uint64_t seq;                  /* of the newest interval */
    int64_t folded[LEDGER_LEVELS]; /* newest day of which lines came to that level; -1 = none */
    bool cpus;                     /* CPUs are booked, since (UTC ms): earlier versions knew none */
    int64_t cpus_since;
};
/* The archive of a root (archive/archive.c). */
struct segment_box {
    struct box box;
    struct archive_info info;
    struct tree *records; /* place from 0 → bytes_box; NULL: they are in files only */
};
struct archive {
    bool begun;
    uint64_t close_bytes;       /* as the newest ARCHIVE told */
    uint64_t newest, kept_from; /* closed segments; those from there on have their records */
    uint64_t closed_entry;      /* number of the entry that closed the newest */
    uint64_t records, bytes, counts[ARCHIVE_KINDS]; /* of closed ones */
    struct archive_info open;
    struct tree *open_records; /* place from 0 → bytes_box */
    struct tree *segments;     /* number → segment_box */
};
#define ROOT_MAGIC 0x726f6f74u
struct root {
    uint32_t magic;
    _Atomic uint32_t refs;
    uint64_t index, number, term, rv;
    int64_t time;
    uint64_t request_seq;
    /* sum over objects, changes, requests, members and dead: order does not matter */
    uint64_t digest;
    char cluster_uid[64];
    char revision[128];
    uint64_t recovering; /* 0 = no; 1 = yes; of a state that went back: the rv where it went on */
    /* stored */
    struct tree *kinds[KIND_LIMIT]; /* ns \0 name → object */
    struct tree *changes;           /* rv → change_box */
    uint64_t changes_bytes;         /* of them all, by change_bytes; derived */
    struct tree *requests;          /* user \0 request id → request_box */
    struct tree *keys;              /* user \0 key → request_box (request.c) */
    struct tree *sessions;          /* member → session_box */
    struct tree *recents;           /* member, session, number → request_box */
    uint64_t keys_bytes;            /* of all keys; derived */
    struct tree *members;           /* id → member_box */
    struct tree *dead;      /* 'o' uid, 'n' namespace, 't' target, 'c', 's', 'w' uid → dead_box */
    struct tree *ancestors; /* uid of a cluster → count_box: the resourceVersion up to which its
                               past is this state's (apply/recover.c) */
    struct tree *strangers; /* name → box: of Targets that are not here, and are awaited */
    struct tree *rates;     /* ns \0 name of a quota → rate_box; absent: full */
    struct ledger ledger;
    struct archive archive;
    /* derived: made again from the objects when a snapshot is read */
    struct tree *request_order; /* seq → bytes_box (key in requests) */
    struct tree *key_order;     /* seq → bytes_box (key in keys) */
    struct tree *key_use;       /* user → count_box: bytes of his keys */
    struct tree *uids;          /* uid of a Workload → object */
    struct tree *owners;        /* owner uid \0 kind ns \0 name → object */
    struct tree *usage;         /* node → usage_box */
    struct tree *mig;           /* node \0 device/profile → count_box */
    struct tree *held;          /* queue \0 class → count_box */
    struct tree *target_held;   /* target → count_box: workloads that hold something there */
    struct tree *target_class;  /* target \0 class → count_box: GPUs × 1000 held there */
    struct tree *load;          /* queue \0 "waits" or "holds" → count_box: workloads */
    struct tree *class_gpus;    /* class → count_box: devices on all nodes */
    struct tree *target_nodes; /* target \0 → count_box: nodes; target \0 class → ready devices */
#define TARGET_CLASS_MAX 200   /* longer names are counted under TARGET_CLASS_ODD */
#define TARGET_CLASS_ODD "\1"
    uint64_t dead_due;       /* entries of `dead` that do not wait */
    struct tree *ns_live;    /* namespace → count_box: workloads that may run outside */
    struct tree *moves;      /* ns \0 name → object: Migrations that have not ended */
    struct tree *arrays;     /* ns \0 name → object: arrays for which there is something to do */
    struct tree *ns_objects; /* namespace \0 kind → count_box: objects (quota.c) */
    struct tree *quotas_due; /* namespace → box: counts have changed; empty between commands */
};
#define ROOT_TREES_FIXED 29
#define ANCESTORS_MAX 16 /* the newest */

struct root *root_fork(const struct root *r);
/* Stores an object whose metadata.resourceVersion is root_rv + 1, or removes one; keeps every
 * index, the changes and the digest. `after` NULL removes; both take their own references. */
void root_commit(struct root *w, const struct kind *k, const struct object *before,
                 const struct object *after);
/* index.c: before or after NULL: there is none. */
void root_index_object(struct root *w, const struct object *before, const struct object *after);
/* from a snapshot: no change is recorded */
void root_load_object(struct root *w, struct object *o);
void root_load_change(struct root *w, const struct change *c);
uint64_t change_bytes(const struct change *c); /* what it counts for in the window */
void root_put_request(struct root *w, struct slice key, struct request_box *b); /* takes b over */
void root_put_member(struct root *w, const struct member_info *m, bool remove);
void root_put_stranger(struct root *w, const char *name, bool remove);
/* takes b over; NULL removes */
void root_put_dead(struct root *w, struct slice key, struct dead_box *b);
void root_jump(struct root *w, uint64_t rv); /* the next change is beyond it; none is kept */
void root_bound(struct root *w);             /* lets go of old changes and request ids */
/* on a scratch fork */
void root_usage_add(struct root *w, const struct placement *p, const struct assignment *a);
/* likewise: no longer held */
void root_usage_take(struct root *w, const struct placement *p, const struct assignment *a);
/* Can `p` be held, once `own` (or NULL) is let go? Whatever somebody tells may be asked. */
bool root_hold_fits(const struct root *r, const struct placement *own, const struct placement *p);
int64_t root_count_of(const struct tree *t, struct slice key);
void root_count_add(struct tree **t, struct slice key, int64_t n); /* a sum of 0 is removed */
int64_t root_mig_held(const struct root *r, const char *node, int64_t device, const char *profile);

/* ---- requests: request.c ---- */
struct request_box *request_box_make(int64_t at, uint64_t seq, const struct result *res,
                                     const char *print);
uint64_t request_hash(uint64_t seed, struct slice key, const struct request_box *b);
/* Before a command is carried out: true when it is answered already, or refused, as *res says. */
bool request_known(struct root *w, const union command *c, struct result *res);
/* Is it there under its key? */
bool request_answered(const struct root *r, const struct request_cmd *c);
/* After it: its answer is kept, when it is one to be kept. */
void request_keep(struct root *w, const union command *c, struct result *res);
/* Where fields of a snapshot go. `whole` is called behind each, and may take what is in the buffer
 * out of it: whoever writes many never gathers them. NULL: they stay. */
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

/* Records of a snapshot. request_read: NULL when it cannot be; the key points into `in`. */
void request_write(uint16_t tag, struct slice key, const struct request_box *b, struct buf *out);
struct request_box *request_read(struct slice in, struct slice *ret_key);
void requests_write(const struct root *r, const struct fields_out *out);
int requests_read(struct root *w, uint16_t tag, struct slice in, struct err *err) MUST_CHECK;
void requests_check(const struct root *r); /* part of root_check */
void rates_write(const struct root *r, uint16_t tag, const struct fields_out *out);
int rates_read(struct root *w, struct slice in, struct err *err) MUST_CHECK;

/* What an object owns, of one kind, by name. */
void root_owned(const struct root *r, const char *uid, enum kind_id kind,
                bool (*each)(const struct object *o, void *arg), void *arg);
/* What an object holds: placement of a Workload in a phase that holds, destination of a Migration
 * under way; else NULL. */
const struct placement *object_hold(const struct object *o);
bool object_live(const struct object *o); /* a Workload that may run outside */
/* Test and simulation: every index equals what the objects say. Aborts when not. */
void root_check(const struct root *r);
/* may it be loaded beside what is there? */
bool root_object_sound(const struct root *r, const struct object *o);

/* ---- quotas of namespaces: quota.c ---- */
void objects_key(struct key *k, const char *ns, enum kind_id kind);
/* What a Workload counts for: 1, and of an array its indexes that are still to begin. */
int64_t workload_objects(const struct workload *w, bool deleted);
/* Part of root_commit: status.used is to be made anew where a count has changed. */
void quotas_note(struct root *w, const struct object *before, const struct object *after);
struct txn;
/* The status of a ResourceQuota that is about to be put: part of txn_put. */
void quotas_fill(struct txn *t, void *body);
/* At the end of a command: of the namespaces whose counts it has changed. */
void quotas_settle(struct txn *t);
/* May a user have `body` in the place of `old` (or NULL)? E_FORBIDDEN, as Kubernetes says it. */
int quotas_take(struct txn *t, const struct kind *k, const struct object *old,
                const void *body) MUST_CHECK;
void quotas_check(const struct root *r); /* part of root_check */
/* ---- rates of writes: rate.c ---- */
/* Part of apply: takes what the write costs, or refuses it. */
bool rates_refuse(struct root *w, const struct request_cmd *c, struct result *res);
void rates_follow(struct root *w, const struct object *before, const struct object *after);
void rates_check(const struct root *r); /* part of root_check */

/* ---- the ledger: ledger.c ---- */
void ledger_init(struct ledger *l);
void ledger_fork(struct ledger *l); /* a copied struct becomes one of its own */
void ledger_fini(struct ledger *l);
/* Around every change of an object: ahead of it, and when the root holds `after`. */
void ledger_change_begin(struct root *w, const struct object *before, const struct object *after);
void ledger_change(struct root *w, const struct object *before, const struct object *after);
void ledger_load(struct root *w, const struct object *o); /* from a snapshot */
void ledger_cpus_begin(struct root *w); /* once; until then CPUs are not counted */
/* Records of a snapshot. ledger_loaded: all were read, or (had false) the snapshot is older than
 * the ledger, which then begins now. */
void ledger_write(const struct root *r, uint16_t tag, const struct fields_out *out);
int ledger_read(struct root *w, struct slice in, struct err *err) MUST_CHECK;
int ledger_loaded(struct root *w, bool had, struct err *err) MUST_CHECK;
void ledger_check(const struct root *r, const struct root *fresh); /* part of root_check */

/* ---- the archive: archive/archive.c ---- */
void archive_init(struct archive *a);
void archive_fork(struct archive *a); /* a copied struct becomes one of its own */
void archive_fini(struct archive *a);
/* What is about to be removed is taken in, if it is of a kind that is kept. */
struct txn;
void archive_take(struct txn *t, const struct object *o);
void archive_begin(struct root *w, uint64_t close_bytes); /* or goes on, closing at another size */
void archive_close(struct root *w);                       /* the open segment, which is not empty */
void archive_open_next(struct archive *a, const unsigned char prev[ARCHIVE_DIGEST]);
/* takes records over */
void archive_segment_put(struct archive *a, const struct archive_info *i, struct tree *records);
void archive_append(struct archive *a, const struct archive_record *r, struct slice bytes);
void archive_count(struct archive_info *i, const struct archive_record *r, size_t bytes);
void archive_record_write(const struct archive_record *r, struct buf *out);
uint64_t archive_hash(const struct archive *a, uint64_t h); /* into the digest of the root */
/* Records of a snapshot; archive_loaded: all were read. */
void archive_write(const struct root *r, uint16_t tag, const struct fields_out *out);
int archive_read(struct root *w, struct slice in, struct err *err) MUST_CHECK;
int archive_loaded(struct root *w, struct err *err) MUST_CHECK;
void archive_check(const struct root *r); /* part of root_check */

/* ---- the pieces of a snapshot: snapshot_pieces.c ---- */
#define PIECE_BYTES ((size_t)1 << 20) /* unpacked, and what its last field has more */
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
int pieces_end(struct pieces_out *s, struct err *err) MUST_CHECK; /* in any case */
int pieces_read(struct slice in, int (*fields)(void *arg, struct slice piece), void *arg,
                struct err *err) MUST_CHECK;

/* ---- apply ---- */
/* The first members of every kind's struct (kinds.def: metadata comes first everywhere). */
struct any_body {
    uint64_t has;
    struct slice unknown;
    struct meta *metadata;
};
struct txn { /* one command on a fork of the state */
    struct root *w;
    int64_t now;
    struct arena *a;
    struct result *res;
    struct err *err;
    const char *user;  /* who asked */
    struct err failed; /* of txn_put: an object became too large; the command fails by it */
    bool beginning;    /* of an ARRAY: it counts its indexes itself */
    bool by_user;      /* a user's write, in the log or in a dry run: held to quotas */
    bool sliced;       /* FEATURE_GRANTS: what follows from a command is left to COLLECT */
    uint32_t objects;  /* of what follows, how many may still be looked at, */
    uint64_t bytes;    /* and how many bytes of them */
};
/* Encoded bytes of one object in the state: what a snapshot's reader takes, less a resourceVersion
 * that grows. */
#define STORE_SCRATCH_MAX_BYTES ((size_t)1 << 30) /* several times the largest object, decoded */
#define STORE_OBJECT_MAX_BYTES (4 * (size_t)LIMIT_OBJECT_MAX_BYTES - 64)
/* `body` is a mutable copy (object_edit) or a new body; stores it as the next version. Borrowed
 * until the next commit. Too large: `before`, and the command fails as a whole (t->failed).
 *
 * t->a is scratch. Who works on several objects resets it between them (txn_next_object), so that a
 * command needs the memory of its largest object, not of all. */
const struct object *txn_put(struct txn *t, const struct kind *k, const struct object *before,
                             void *body);
/* Into the archive, and begins to collect what it owned. */
void txn_remove(struct txn *t, const struct object *o);
/* The same for what nothing has to be explained by later: a catalogue's older entries. */
void txn_forget(struct txn *t, const struct object *o);
/* A deletion as a user asks for it: by finalizers, live work and contents it may come later. grace:
 * the seconds that what runs of a Workload has to end; NULL: as long as its contract says. */
int txn_delete(struct txn *t, const struct object *o, const int64_t *grace,
               bool *ret_unchanged) MUST_CHECK;
/* something was released there: go on waiting deletions */
void txn_settle(struct txn *t, const char *ns, const char *target);
/* ---- what follows from a deletion ---- */
/* And from a changed GpuClass: apply/collect.c What is to be done is in root.dead. Members before
 * FEATURE_GRANTS did it at the end of each command (txn_collect_all); since then COLLECT does a
 * slice. */
void txn_collect_all(struct txn *t);
int apply_collect(struct txn *t, const struct collect_cmd *c) MUST_CHECK;
void dead_begin(struct txn *t, char what, const char *name); /* if it has not begun */
void dead_set(struct txn *t, struct slice key, uint32_t stage, bool waiting, struct slice cursor);
#define DEAD_CLASSES 'c' /* nodes are to be matched with GpuClasses anew; its name: */
#define DEAD_CLASSES_NAME "classes"
#define DEAD_UNSETTLED 'w' /* a Workload that waits for SETTLE to go; its uid. It always waits */
#define DEAD_SETTLED 's'   /* those are to go; its name: */
#define DEAD_SETTLED_NAME "settled"
void collect_classes(struct txn *t, struct slice key, const struct dead_box *d); /* facts.c */
/* Takes one object of so many bytes from what may be looked at. False: there is none left. */
bool txn_charge(struct txn *t, size_t bytes);
bool txn_removable(const struct txn *t, const struct object *o);
/* The next entry of a tree below a prefix and after a cursor; NULL at its end. */
const struct object *txn_next(const struct tree *tree, struct slice prefix, struct slice after,
                              struct key *ret);
const char *txn_uid(struct txn *t, const char *of); /* deterministic, unique over time */
struct meta *txn_meta(struct txn *t, const char *ns, const char *name);
/* All objects of a kind that people write a few hundreds of, in t->a, or in an arena. */
const struct object *const *txn_all(struct txn *t, enum kind_id kind, size_t *ret_n);
const struct object *const *root_all(const struct root *w, enum kind_id kind, struct arena *a,
                                     size_t *ret_n);
void txn_condition(struct txn *t, struct condition **list, uint32_t *n, const char *type,
                   enum cond_status status, const char *reason, const char *message);
void *txn_status(const struct kind *k, void *body); /* the status pointer's place, or NULL */

int apply_write(struct txn *t, const struct write_cmd *c) MUST_CHECK;
int apply_request(struct txn *t, const struct request_cmd *c) MUST_CHECK;
int apply_place(struct txn *t, const struct place_cmd *c) MUST_CHECK;
int apply_run(struct txn *t, const struct run_cmd *c) MUST_CHECK;
int apply_facts(struct txn *t, const struct facts_cmd *c) MUST_CHECK;
int apply_member(struct txn *t, const struct member_cmd *c) MUST_CHECK;
int apply_remove(struct txn *t, const struct remove_cmd *c) MUST_CHECK;
int apply_archive(struct txn *t, const struct archive_cmd *c) MUST_CHECK;
int apply_recover(struct txn *t, const struct recover_cmd *c) MUST_CHECK;
/* Deleted, it stays until recovery is settled. recover_tell_deleted: says so in its status.
 * recover_await: SETTLE is to let it go, if that is all it waits for. */
bool recover_holds(const struct root *r, const struct object *o);
void recover_tell_deleted(struct workload_status *s);
void recover_await(struct txn *t, const struct object *o);
void recover_collect(struct txn *t, struct slice key); /* a slice of what SETTLE lets go */
/* settle.c: of a recovery, whose Targets this state does not know, and its end. */
int recover_stranger(struct txn *t, const struct recover_cmd *c) MUST_CHECK;
int recover_settle(struct txn *t, const struct recover_cmd *c) MUST_CHECK;
/* `after` is about to be put in the place of a Workload that is not marked yet: it is. */
void recover_touch(struct txn *t, const struct object *before, struct workload *after);
/* A Token that is to be created: does it hold now? (token.c) */
int token_admit(struct txn *t, const struct object *token) MUST_CHECK;
bool object_finished(const struct root *w, const struct object *o); /* may retention remove it? */
/* ---- arrays: apply/array.c; their sets of indexes, "0-41,43", as struct: indexes.c ---- */
struct index_range {
    int64_t from, to; /* both of them are in it */
};
struct indexes {
    struct index_range *v; /* ascending, never touching */
    uint32_t n, room;
    int64_t count;
};
/* False: it is no such text. */
bool indexes_read(const char *text, struct arena *a, struct indexes *ret);
const char *indexes_text(const struct indexes *x, struct arena *a);
/* The last index of the range that it is in, or -1. */
int64_t indexes_end(const struct indexes *x, int64_t index);
void indexes_add(struct indexes *x, int64_t from, int64_t to, struct arena *a);
void indexes_remove(struct indexes *x, int64_t index, struct arena *a);
struct index_sets {
    struct indexes active, completed, failed; /* no index is in two of them */
};
bool index_sets_read(const struct workload_status *s, struct arena *a, struct index_sets *ret);

/* An array, in a state whose members know of them. */
bool array_known(const struct root *r, const struct object *o);
bool array_due(const struct object *o);          /* there is something to do for ARRAY */
int64_t array_bound(const struct array_spec *s); /* indexes that may be there without an end */
/* The array whose index this Workload is, as its name and uid say, and which; or NULL. */
const struct object *array_of(const struct root *r, const struct meta *m, int64_t *ret_index);
/* An index has come, ended or gone (before or after NULL): its array counts it. */
void array_follow(struct txn *t, const struct object *before, const struct object *after);
/* A run of a Workload that is not here was found: of an index that has ended? Whose it is. */
bool array_ended(struct txn *t, const struct meta *m);
void array_adopt(struct txn *t, struct meta *m);
/* It waits still, and follows its spec (write.c). */
void workload_follow_spec(struct txn *t, const struct kind *k, const struct object *now,
                          void *body);
const char *workload_queue(struct txn *t, const struct object *o);
int apply_array(struct txn *t, const struct array_cmd *c) MUST_CHECK;
int apply_migrate(struct txn *t, const struct migrate_cmd *c) MUST_CHECK;
/* status.spent of a Workload whose placement ends with this version (ledger_hold.c); part of
 * txn_put. */
void ledger_spend(struct txn *t, const struct object *before, void *body);
void facts_reclass(struct txn *t); /* GpuClasses changed: nodes get their classes anew, in slices */
/* workloads.hanse.dev "x" */
const char *sentence_named(struct txn *t, const struct kind *k, const char *name);

/* A place for a workload, checked and taken (apply/place.c): by PLACE, and by migrations for their
 * destinations. */
struct place {
    const struct object *o; /* the Workload */
    const struct workload *w;
    const struct decision_spec *decision;
    struct placement *p;          /* our copy */
    const struct placement *held; /* what it gives up in exchange, or NULL */
    bool settled;      /* its quota was admitted when the place was reserved, and kept since */
    const char *queue; /* in: where it was decided, or NULL; out: where it is */
    const struct object *target;
    int64_t gpus; /* × 1000, all workers */
};
int place_shape(struct txn *t, struct place *x) MUST_CHECK; /* does it give what the spec asks? */
/* All that the decision rests on, against the state as it is now. */
int place_admit(struct txn *t, struct place *x) MUST_CHECK;
/* May what o runs, its logs and its checkpoints lie where `target` would have them? */
int place_compliance(struct txn *t, const struct object *o, const struct object *target) MUST_CHECK;
/* Stores the Decision of `epoch`; completes x->p. */
void place_record(struct txn *t, struct place *x, int64_t epoch);
/* w, a copy of the workload, is Reserved there, in its next epoch. */
void place_take(struct txn *t, const struct place *x, struct workload *w);

/* WORKLOAD + suffix, shortened where it would be no name any more. */
const char *workload_derived_name(struct txn *t, const char *workload, const char *suffix);

/* The one owner reference of what is made for a workload. */
struct owner_ref *workload_owner(struct txn *t, const struct object *wo);

/* ---- checkpoints (apply/checkpoint.c); s is a copy of wo's status, stored by the caller ---- */
int checkpoint_take(struct txn *t, const struct object *wo, struct workload_status *s,
                    const struct run_checkpoint *now, int64_t by_epoch) MUST_CHECK;
/* apply/grant.c: what is promised of a try. */
int grant_dispatch(struct txn *t, const struct workload *w, struct intent *in,
                   const struct lease_grant *g) MUST_CHECK;
int grant_offer(struct txn *t, struct intent *in, const struct lease_grant *g) MUST_CHECK;
int grant_acknowledged(struct txn *t, struct intent *in, const struct lease_grant *g) MUST_CHECK;
int checkpoint_found(struct txn *t, const struct object *wo, struct workload_status *s,
                     const struct run_checkpoint *now) MUST_CHECK;
/* What an adopted workload (just stored) resumes from, NULL = nothing, into catalogue and
 * status. */
void checkpoint_adopt(struct txn *t, const struct object *wo, const struct run_checkpoint *ck);
int checkpoint_bad(struct txn *t, const struct object *wo, struct workload_status *s,
                   const struct run_checkpoint *bad, const char *reason,
                   const char *message) MUST_CHECK;

/* ---- moves: how they begin (apply/plan.c), how they go on (apply/migrate.c) ---- */
struct move {
    const struct migrate_cmd *c;
    const struct object *o;  /* the Migration, or NULL: it is made */
    const struct object *wo; /* its Workload: the very one, or NULL when it is gone */
    struct migration *m;     /* our copy */
    struct migration_status *s;
    enum move_phase from, to;
};
const char *move_refused(const struct object *wo); /* why it cannot be moved now, or NULL */
void move_enter(struct txn *t, struct migration_status *s, enum move_phase phase);
/* The workload tells of the migration under way, or of none ("") any more. */
void move_tell(struct txn *t, const struct object *wo, const char *migration, bool moved);
/* The workload was found on `target` in an epoch that this state did not come to: its open move is
 * over, and what that held is let go. */
void move_overtaken(struct txn *t, const struct object *wo, const char *target, int64_t epoch);
/* Checks b against the state as it is now; x->s and x->to as they are once its destination is
 * held. */
int move_reserve(struct txn *t, struct move *x, const struct move_begin *b) MUST_CHECK;
int move_begin_all(struct txn *t, const struct migrate_cmd *c) MUST_CHECK; /* BEGIN */
/* A Migration that a user makes: checked, its first status filled in, its Workload told. */
int move_create(struct txn *t, struct migration *m) MUST_CHECK;
/* `before`: the Workload ahead of the end. */
void move_source_ended(struct txn *t, const struct object *before, double lost);
/* GPU-seconds that would be done again if it ended now: since the newest verified checkpoint of its
 * epoch, or since it was placed. */
double workload_lost(const struct workload_status *s, const struct run_checkpoint *ck, int64_t now);
bool object_open_move(const struct object *o); /* a Migration that has not ended */

/* ---- wire: u16 tag, u32 length, bytes; unknown tags are passed over ---- */
void record_u64(struct buf *b, uint16_t tag, uint64_t v); /* nothing for 0 */
void record_i64(struct buf *b, uint16_t tag, int64_t v);
void record_str(struct buf *b, uint16_t tag, const char *s); /* nothing for "" */
void record_bytes(struct buf *b, uint16_t tag, const void *p, size_t n);
/* a nested field: its length is filled in by record_close */
size_t record_open(struct buf *b, uint16_t tag);
void record_close(struct buf *b, size_t at);
struct wire {
    const unsigned char *p;
    size_t n;
};
/* 1, 0 at the end, E_CORRUPT */
int record_next(struct wire *w, uint16_t *ret_tag, struct slice *ret);
uint64_t record_get_u64(struct slice s);
int64_t record_get_i64(struct slice s);
/* false when it does not fit or holds a NUL */
bool record_get_str(struct slice s, char *out, size_t n);
void le_put_u16(unsigned char *p, uint16_t v);
void le_put_u32(unsigned char *p, uint32_t v);
void le_put_u64(unsigned char *p, uint64_t v);
uint32_t le_get_u32(const unsigned char *p);
uint64_t le_get_u64(const unsigned char *p);

#endif
