/* The pool's inside: documents, the node table with its groups and buckets, what is held, and the
 * accounts.
 *
 *   Target ──< group (target, class, capacity, fabric, memory, shares)
 *          ──< member (node, class) ──< device
 *
 * A member sits in bucket b of its group while its node is usable and b of its devices are entirely
 * free and not others', so that "the node with the least room that is enough" is a walk over few
 * bitmaps and never over all nodes. Nodes lie in the order of their topology path: the first bit of
 * a bucket is also the one that keeps racks whole.
 *
 * Documents may change at any time; tables are rebuilt (`dirty`) only when a shape changes. Who
 * reads calls pool_settle first. Nothing here may depend on the order in which documents
 * arrived. */
#ifndef HANSE_POLICY_POOL_INTERNAL_H
#define HANSE_POLICY_POOL_INTERNAL_H

#include "policy/policy.h"

#define NONE UINT32_MAX
#define FRAC_STEP 50 /* 1/1000 GPU in one bucket of partly used devices */
#define FRAC_BUCKETS (1000 / FRAC_STEP)
#define LEVEL_NR (LEVEL_TARGET + 1)

/* ---- text → number; keys belong to the caller ---- */
struct strmap_slot {
    const char *key;
    uint32_t hash, value;
};
struct strmap {
    struct strmap_slot *slots;
    uint32_t cap, n;
};
uint64_t strmap_hash(const char *s);
/* policy/strmap.c */
uint32_t strmap_get(const struct strmap *m, const char *key); /* NONE when absent */
void strmap_set(struct strmap *m, const char *key, uint32_t value);
bool strmap_change(struct strmap *m, const char *key, uint32_t value); /* false when absent */
void strmap_unset(struct strmap *m, const char *key);
void strmap_fini(struct strmap *m);

/* ---- documents of one kind, sorted by namespace and name ---- */
struct docs {
    const struct object **v;
    uint32_t n, cap;
};
uint32_t docs_find(const struct docs *d, const char *ns, const char *name, bool *ret_found);
const struct object *docs_get(const struct docs *d, const char *ns, const char *name); /* or NULL */

/* ---- the node table ---- */
struct device {
    const struct gpu *spec;
    uint32_t node, member; /* member NONE: sick, never given away */
    uint32_t pos;          /* in its group's bitmaps of partly used devices */
    int32_t free_milli;    /* 1000 = entirely free; below 0 when more is held than there is */
    uint16_t *mig_over;    /* instances held beyond those there are, by the profile's first place */
    uint64_t mig_used;     /* bit = place in spec->migProfiles */
    uint32_t link;         /* NVLink joins those of a node with equal numbers; 0 = none told */
    bool shared, mig;
    /* One of those without a number, which stand last on their node. MIG instances that are
     * counted, and shares, are up to 64 to a device that is cut into them (mig). */
    bool counted;
    uint32_t shares; /* of a GPU; 0: they are none */
    int32_t slice_milli; /* each of them is so much of a GPU */
};
/* In 1/1000 GPU. */
static inline int64_t device_capacity(const struct device *d)
{
    return d->counted && d->mig ? (int64_t)d->spec->n_migProfiles * d->slice_milli : 1000;
}
struct member {
    uint32_t node, group;
    uint32_t n_dev, n_free; /* devices, entirely free ones (those cut by MIG are in neither) */
    uint32_t others;        /* of the free ones so many are others', nobody knows which */
    uint32_t strayed;       /* and so many held of another kind than the node has now */
    bool counted;
    uint32_t next;          /* further member of the same node */
};
/* Entirely free devices that may be given away. */
static inline uint32_t member_free(const struct member *m)
{
    return m->n_free > m->others + m->strayed ? m->n_free - m->others - m->strayed : 0;
}
struct node_rec {
    const struct object *obj;
    const struct node *doc;
    uint32_t target, member; /* its first member */
    uint32_t dev0, n_dev;
    uint32_t domain[LEVEL_NR]; /* equal numbers = same domain; neighbours in the table */
    bool ok;
};
struct group {
    uint32_t target, class_;
    enum capacity capacity;
    const char *fabric;
    int64_t memory;
    bool has_shared, has_mig, has_counted;
    uint32_t shares; /* its devices are shares of GPUs, so many of each; 0: they are not */
    const char *slice; /* "1/4", as which those are known; or NULL */
    uint32_t m0, n; /* members [m0, m0 + n) */
    uint32_t n_ok;  /* of usable nodes */
    uint32_t max_dev, words, dev_words;
    uint32_t max_linked; /* most devices of one node that NVLink joins */
    int64_t gpus, free;  /* whole devices of usable nodes: all, entirely free */
    int64_t waits;   /* GPUs × 1000 of its target and class that work in its own queue waits for */
    uint64_t *bits;  /* (max_dev + 1) bitmaps of `words` */
    uint32_t *count; /* members in each */
    uint64_t *frac;  /* FRAC_BUCKETS bitmaps of `dev_words` */
    uint32_t *frac_count;
    uint32_t *dev_at; /* device by pos */
    uint32_t n_at;
    const struct gpu_price *price; /* of the target's sheet, or NULL */
    const struct price_sheet_spec *sheet;
};
struct target_rec {
    const char *name;
    const struct object *obj; /* NULL: nodes name it, but there is no such Target */
    const struct target_spec *spec;
    enum reach reach;
    uint32_t g0, n_groups; /* groups [g0, g0 + n_groups) */
    uint32_t n_nodes;
    int64_t workloads; /* held */
    uint32_t shut;     /* zones that are paused: bit = place in status.pauses */
    bool shut_due;     /* its document is another one since `shut` was set */
};
struct class_rec {
    const char *name;                  /* "" = nodes without GPUs */
    const struct gpu_class_spec *spec; /* NULL: no such document */
};
struct table {
    struct arena *mem; /* everything below, built anew as a whole */
    struct target_rec *targets;
    struct node_rec *nodes;
    struct member *members;
    struct device *devices;
    struct group *groups;
    struct class_rec *classes;
    int64_t *cpu_free, *memory_free; /* by node */
    uint32_t n_targets, n_nodes, n_members, n_devices, n_groups, n_classes;
    struct strmap target_by_name, node_by_name, class_by_name;
    uint64_t generation; /* counts rebuilds: places kept elsewhere are valid within one */
    bool others;         /* a node tells that others than Hanse hold some of it, or told so */
    bool sick;           /* a device is not healthy */
    bool renamed;        /* a node may be another one by a new name */
};

/* ---- what is held ---- */
struct hold_at {
    const char *node, *mig;
    const int64_t *gpus;
    uint32_t n_gpus, slot;
    int64_t count, shares; /* devices without numbers; shares of so many */
    int32_t milli;
};
static inline int32_t hold_at_milli(const struct hold_at *a)
{
    return a->milli * ((int32_t)a->n_gpus + (int32_t)a->count);
}
#define RESERVED_MAX 4
enum hold_kind {
    HOLD_PLACED,      /* key: uid of the workload */
    HOLD_DESTINATION, /* of a move; its workload is in the queues' accounts with its old place, */
    HOLD_BETWEEN,     /* or has let go of that: what it will take counts in them */
    HOLD_NOMINATED,   /* may lie over holds of victims; never against its own workload */
    HOLD_KEPT         /* as nominated, for the head of a queue (queue/shadow.c); in no account */
};
struct hold { /* one allocation with all its texts */
    const struct object *workload;
    const char *key, *target, *class_;
    uint64_t generation; /* of the table to which it is applied; 0 = not */
    uint64_t found;      /* of the table in which `slot` counts */
    bool counted;
    uint32_t i_policy;
    enum hold_kind kind;
    /* From here on: what a plan of preemption asks of everything that runs, so that it reads no
     * document of those that stay. */
    uint32_t i_target, i_class, i_queue, i_priority, i_store; /* NONE = no such */
    bool off;  /* neither on the table nor in the accounts */
    bool runs; /* placed, Running, not moving, not being deleted */
    int64_t milli, cpu, memory;
    int64_t unsaved_since; /* work since then would have to be done again */
    int64_t runs_since;
    int64_t state_bytes; /* of its newest checkpoint */
    double price;        /* of a GPU-hour; 0 = not known */
    uint32_t n;
    struct hold_at at[];
};

/* ---- queues: accounts.c, quota/quota.c ---- */
/* Who is above whom; n queues. Of child and order, the last (of child: [n]) is the root's. */
struct queue_tree {
    uint32_t *parent;  /* place of the queue above, NONE = the root */
    uint32_t *child;   /* [n + 1]: the first of those below, NONE = nobody */
    uint32_t *sibling; /* the next below the same */
    uint32_t *order;   /* all of them, those below ahead of those above */
};
#define QUEUE_TREE_WORDS(n) (4 * (size_t)(n) + 1)
/* words: QUEUE_TREE_WORDS(n) of them; parents are filled in by the caller, then children. */
void queue_tree_init(struct queue_tree *t, uint32_t *words, uint32_t n);
void queue_tree_children(struct queue_tree *t, uint32_t n);
/* What is guaranteed, not used and not lent: of each queue, and summed up over those right below
 * each ([n]: the root). Made anew when `at` is not the view's. */
struct quota_kept {
    uint64_t at;
    int64_t *kept, *below;
};
struct pool {
    uint32_t magic;
    /* counts what may change a decision: what was concluded before may not hold */
    uint64_t changes;
    struct docs docs[KIND_LIMIT];
    struct table t;
    bool dirty; /* the table must be built anew */
    bool prices_dirty, accounts_dirty;
    bool zones; /* a Target has told of a paused zone at some time */
    struct hold **holds;
    uint32_t n_holds, cap_holds, n_nominated;
    struct hold *reserved[RESERVED_MAX]; /* of the holds: those of kind HOLD_KEPT */
    uint32_t n_reserved;
    char was_kept[RESERVED_MAX][64]; /* uids, of the cycle before: they go first */
    uint32_t n_was_kept;
    struct strmap hold_by_uid;
    struct strmap reach; /* keys owned */
    /* accounts, by place in docs[KIND_QUEUE] and docs[KIND_PLACEMENT_POLICY] */
    struct arena *accounts;
    struct queue_tree queue_tree;
    struct quota_kept *kept; /* [class + 1] */
    int64_t *queue_held;     /* [queue][class + 1]: with the queues below; last = all classes */
    int64_t *queue_root;     /* [class + 1]: everything held */
    int64_t *policy_held;
    int64_t *capacity; /* [class + 1]: GPUs × 1000 that exist on registered targets */
    uint32_t n_queues, n_policies, n_account_classes;
    struct strmap queue_by_name, queue_by_namespace;
    struct strmap store_by_name; /* checkpoint stores of what is held */
    uint32_t n_stores;
    struct arena *use_texts;
    struct queue_use *use; /* by the arena */
    size_t n_use;
    policy_zone_fn zone_fn;
    void *zone_arg;
};

/* Brings tables, prices and accounts up to date. Only caches change: logically the pool is
 * const. */
struct pool *pool_settle(const struct pool *p);
void table_build(struct pool *p);
void table_fini(struct table *t);
void link_build(struct table *t);                     /* link.c */
void table_node_open(struct table *t, uint32_t node); /* or shuts it, as it is usable or not */
/* pauses.c. Shuts and opens the nodes of zones as their pauses begin and end. */
void pool_zones(struct pool *p, int64_t now_ms);
void pool_zones_told(struct pool *p, const struct object *target);
const char *node_zone(const struct table *t, uint32_t node);
const struct target_pause *pool_zone_pause(const struct table *t, uint32_t node); /* or NULL */
/* prices.c. price_of: in the currency of its sheet, an hour; false: nothing is told for now. */
void table_prices(struct pool *p);
bool price_of(const struct group *g, int64_t now_ms, double *ret_price);
/* holds.c. Takes (sign 1) or gives back (sign -1) what h holds on the table's nodes. */
void table_apply(struct pool *p, struct hold *h, int sign);
void table_device_move(struct table *t, struct device *d, int32_t free_milli);
struct device *node_device(const struct table *t, const struct node_rec *n, int64_t index);
void device_mig_take(struct device *d, const char *profile, int sign);
/* counted.c. Those that the node counts and that are healthy stand behind its numbered ones. */
struct gpu counted_device(const struct counted_gpus *c); /* as any of them; its texts are c's */
uint32_t counted_devices(const struct node_spec *s);
bool same_counted(const struct node_spec *a, const struct node_spec *b);
void table_counted(struct table *t, uint32_t node); /* makes them */
static inline struct slice_kind hold_at_kind(const struct hold_at *at)
{
    return (struct slice_kind){at->mig, at->shares > 0};
}
/* Is it one of those that are counted, and of that kind? */
bool device_kind_is(const struct device *d, struct slice_kind kind);
/* Of those of that class and kind: which is taken next (sign 1), or given back (-1); NULL: none. */
struct device *counted_take(const struct table *t, const struct node_rec *n, const char *class_,
                            struct slice_kind kind, int sign);
/* How many of them it holds there, by count or by numbers that the node tells no more; 0 also where
 * the node has none of that kind. */
int64_t counted_held(const struct table *t, const struct node_rec *n, const struct hold *h,
                     const struct hold_at *at);
/* So many devices of a member are held by it, nobody knows which: the node tells that class
 * otherwise now. Each of another kind may be all of a GPU. */
int64_t counted_strayed(const struct table *t, const struct node_rec *n, const struct hold *h,
                        const struct hold_at *at, const struct group *g);
void counted_apply(struct table *t, const struct hold *h, const struct hold_at *at, int sign);
void table_member_bucket(struct table *t, uint32_t m, bool in); /* takes it out, or in again */
/* What others hold; `was`: the document by which it was counted before, or NULL. */
void table_others(struct table *t, uint32_t node, const struct node *was);
struct hold *hold_copy(const struct hold *h);
void hold_free(struct hold *h);
/* As if it were dropped, and back again. */
void hold_switch(struct pool *p, struct hold *h, bool on);
struct hold *pool_nominated(const struct pool *p, const char *uid); /* or NULL */
/* The place that is kept for it, off until it is switched on; NULL placement: no more. */
struct hold *pool_keep(struct pool *p, const struct object *workload,
                       const struct placement *placement);
/* For the time of one decision: lifts what is kept for heads of queues, and lays it back. */
unsigned pool_kept_lift(struct pool *p);
void pool_kept_lay(struct pool *p, unsigned lifted);
/* Among those whose room was kept in the cycle before, from 0 on by how long; or NONE. NULL ok. */
uint32_t pool_kept_rank(const struct pool *p, const struct object *workload);
void table_node_refresh(struct pool *p, const struct object *o); /* same shape, new figures */
bool node_same_shape(const struct object *a, const struct object *b);
void accounts_build(struct pool *p);
void accounts_fini(struct pool *p);
void accounts_add(struct pool *p, struct hold *h, int sign);
/* For the time of one decision (sign -1, then 1) a workload's own hold does not count against its
 * queues and policy: it would give it back. What it holds on nodes stays. NULL h: nothing. */
void accounts_lay_aside(struct pool *p, const struct hold *h, int sign);
struct hold *pool_hold_of(const struct pool *p, const char *uid); /* or NULL */
int64_t pool_priority(const struct pool *p, const struct workload_spec *s);
uint32_t pool_priority_index(const struct pool *p, const struct workload_spec *s); /* or NONE */
uint32_t pool_queue_index(const struct pool *p, const struct workload *w); /* NONE: no queue */

static inline const struct target_spec *target_spec_of(const struct object *o)
{
    return object_as(o, target)->spec;
}
static inline int64_t *queue_cell(const struct pool *p, uint32_t queue, uint32_t class_)
{
    return &p->queue_held[(size_t)queue * (p->n_account_classes + 1) + class_];
}

/* ---- match.c ---- */
bool text_in(const char *s, const char *const *v, uint32_t n);
/* Is the store, or a folder or prefix that it lies in, among the stores that the target lists? */
bool store_among(const char *store, const char *const *listed, uint32_t n);
bool store_listed(const char *store, const struct target_spec *t);
static inline const char *store_asked(const struct workload_spec *s) /* or "" */
{
    return s->checkpoint ? s->checkpoint->store : "";
}
bool texts_all_in(const char *const *want, uint32_t n_want, const char *const *have,
                  uint32_t n_have);
void texts_join(const char *const *v, uint32_t n, char *out, size_t size);
bool target_matches(const struct target_selector *s, const struct object *target); /* NULL = all */

#endif
