/* Placement: documents and a pool in, decisions and reasons out. Pure: no I/O, no clock, no
 * globals, no randomness but the seed that is given, so that explain, plan, the simulator, replay
 * and production are the same code. The same inputs give the same bytes on every machine.
 *
 * A pool holds (references to) the documents that matter (Target, Node, GpuClass, PriceSheet,
 * Queue, PriorityClass, PlacementPolicy, CompliancePolicy, Dataset) and what is held by placed
 * workloads. Only one thread uses a pool at a time; pool_fork gives another to plan on. */
#ifndef HANSE_POLICY_POLICY_H
#define HANSE_POLICY_POLICY_H

#include "api/base/err.h"
#include "api/base/mem.h"
#include "api/schema/schema.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stable reason codes, and what follows from each: policy/reasons.def has the columns. */
enum reason {
    REASON_NONE = 0,
#define R(c, text, stage, cure, whole, sentence) REASON_##c,
#include "policy/reasons.def"
#undef R
    REASON_NR
};
const char *reason_text(enum reason r); /* "GangDoesNotFit" */
const char *reason_sentence(enum reason r);
int reason_stage(enum reason r);
enum reason_cure { CURE_NONE = 0, CURE_ROOM = 1, CURE_QUOTA = 2, CURE_LIMIT = 4, CURE_TIME = 8 };
enum reason_cure reason_cure(enum reason r);
/* No single change of those that hints know answers it, where a whole workload fails for it. */
bool reason_is_hopeless(enum reason r);
/* Is one of these cures enough for what a decision tells: in all, or of a candidate? */
bool policy_waits_for(const struct decision_spec *d, unsigned cures, bool candidates);

/* ---- what targets refused lately ---- */
#define PAUSES_MAX 16 /* in a Target's status */
static inline bool pause_holds(const struct target_pause *x, int64_t now_ms)
{
    return x->until > now_ms;
}
int64_t policy_pause_length(const struct target_pause *x); /* in ms, at most an hour */
/* Until when a target that refuses at x->since is not asked again for what it blamed: as it told
 * (retry_ms), else longer each time that it refuses soon after a pause is over. */
int64_t policy_pause_until(const struct target_status *s_or_null, const struct target_pause *x,
                           int64_t retry_ms);
/* likewise until when it is not asked again for a workload that it denied */
int64_t policy_denied_until(const struct workload_status *s, const char *target,
                            enum refusal_class why, int64_t now_ms, int64_t retry_ms);
/* Sets *ret (in arena a) to the pauses of s with x among them, which replaces one of the same scope
 * and name; returns their number. Those that are long over are left out. */
uint32_t policy_pause_add(const struct target_status *s_or_null, const struct target_pause *x,
                          struct arena *a, struct target_pause **ret);

/* ---- devices that a node has by count alone (spec.counted) ---- */
/* Whole GPUs of a class, instances of a MIG profile, or shares of GPUs: of each kind a node has one
 * row. mig "" and shares false: whole ones. */
struct slice_kind {
    const char *mig;
    bool shares;
};
static inline struct slice_kind assignment_kind(const struct assignment *a)
{
    return (struct slice_kind){a->mig ? a->mig : "", a->shares > 0};
}
static inline struct slice_kind counted_kind(const struct counted_gpus *c)
{
    return (struct slice_kind){c->mig ? c->mig : "", c->shares > 0};
}
bool slice_same(struct slice_kind a, struct slice_kind b);
/* Its row of that class and kind; count 0: none. Its texts are the node's. n: NULL ok. */
struct counted_gpus node_counted(const struct node *n, const char *class_, struct slice_kind kind);
bool node_counts(const struct node *n, const char *class_); /* of any kind */
/* How many there are, and can be given away: between 0 and LIMIT_NODE_COUNTED, whatever it says. */
int64_t counted_many(const struct counted_gpus *c);
int64_t counted_healthy(const struct counted_gpus *c);
/* So many of them in 1/1000 GPU. A MIG instance is as many sevenths of a GPU as its profile has
 * compute slices, rounded up ("3g.40gb": 429); a share is what its GPU gives each. */
int64_t counted_milli(const struct counted_gpus *c, int64_t many);
int32_t policy_mig_milli(const char *profile);
int32_t policy_share_milli(int64_t shares);
/* "h100", "1g.10gb instances of h100", "shares of h100" */
void slice_print(const char *class_, struct slice_kind kind, char *out, size_t size);
/* E_INVALID with a sentence: it counts what cannot be, or tells a class in two ways. */
int node_counted_check(const struct node *n, struct err *err) MUST_CHECK;
static inline int64_t assignment_devices(const struct assignment *a)
{
    return (int64_t)a->n_gpus + a->count;
}
static inline int64_t assignment_milli(const struct assignment *a)
{
    return a->gpuMilli * assignment_devices(a);
}

/* ---- what others than Hanse hold of a node (status.others) ---- */
int64_t node_others_cpu(const struct node *n); /* NULL ok: 0 */
int64_t node_others_memory(const struct node *n);
bool node_others_device(const struct node *n, int64_t index); /* do they hold that device? */
/* How many devices of the kind of g they hold of which no number is known: so many of those that
 * Hanse does not hold are theirs, whichever they are. */
int64_t node_others_alike(const struct node *n, const struct gpu *g);
int64_t node_others_counted(const struct node *n, const struct counted_gpus *c); /* of those */
/* Of all classes: whole ones, numbered or not; instances of a profile; shares. */
int64_t node_others_of(const struct node *n, struct slice_kind kind);
/* E_INVALID with a sentence: they hold devices that the node does not tell. */
int node_others_check(const struct node *n, struct err *err) MUST_CHECK;

/* ---- what is wrong with a node, or a device of it (status.faults) ---- */
int64_t fault_device(const struct node_fault *f); /* -1: the node as a whole */
enum health fault_health(const struct node_fault *f);
/* The first one of that device (-1: of the node itself), or NULL. */
const struct node_fault *node_fault(const struct node *n, int64_t device);
/* "GPU 3 of node N is sick: Xid79, by dcgmXid, since 2026-11-21T03:33:22Z: fallen off the bus" */
void node_fault_print(const char *node, const struct node_fault *f, char *out, size_t size);
/* E_INVALID with a sentence: of a device that the node does not tell, or no fault at all. */
int node_faults_check(const struct node *n, struct err *err) MUST_CHECK;

/* ---- the pool ---- */
struct pool;
struct pool *pool_create(void);
struct pool *pool_destroy(struct pool *p);
struct pool *pool_fork(const struct pool *p); /* an independent copy */
/* Does a decision read documents of this kind? */
bool pool_reads(enum kind_id kind);
/* Takes a reference to o; replaces the document of the same kind, namespace and name. Kinds that it
 * does not read are ignored. A Target that is not reachable is told by pool_target_reachable. */
void pool_put(struct pool *p, const struct object *o);
void pool_remove(struct pool *p, enum kind_id kind, const char *ns, const char *name);
enum reach { REACH_UNKNOWN, REACH_YES, REACH_NO }; /* UNKNOWN counts as NO for new placements */
void pool_target_reachable(struct pool *p, const char *target, enum reach reach);
/* What a placed workload holds. The workload object carries its placement in status; holding a uid
 * again replaces what it held. Nodes that are not known (yet) are kept in mind. */
void pool_hold(struct pool *p, const struct object *workload);
void pool_drop(struct pool *p, const char *uid);
/* The same for what policy_place returned, before any object carries it; the texts are copied. */
void pool_hold_placement(struct pool *p, const struct object *workload,
                         const struct placement *placement);
/* A hold under a name of its own: the destination of a Migration (by the Migration's uid), while
 * its workload still holds its old place. One whose status has no placement any more is between
 * the two: what it will take counts for its queue. pool_drop(hold_uid) lets go. */
void pool_hold_as(struct pool *p, const char *hold_uid, const struct object *workload,
                  const struct placement *placement);
/* Room that is being made for a workload (status.nominated): what of it is free, or falls free
 * later, is kept for that workload alone; others hold it until then. NULL placement: no more.
 * Nominating again replaces. */
void pool_nominate(struct pool *p, const struct object *workload,
                   const struct placement *placement);
/* How windows learn the offset of an IANA zone: 0 and the seconds east of UTC at utc_ms, or a
 * negative E_* for a zone that is not known. Must give the same answer everywhere. Without it only
 * UTC is known, and a policy whose window names another zone admits nothing while it has that
 * window. Forks share it. */
typedef int (*policy_zone_fn)(void *arg, const char *zone, int64_t utc_ms, int32_t *ret_offset_s);
void pool_set_zone_resolver(struct pool *p, policy_zone_fn fn, void *arg);
/* What each queue itself has had (GPU-hours, decayed as the caller sees fit), in place of what
 * was told before; a queue may come several times. Fair share compares it with those below each
 * queue, and with what they hold now. Copied; forks take it along. Never told: only what is held
 * counts. */
struct queue_use {
    const char *queue;
    double gpu_hours;
};
void pool_set_use(struct pool *p, const struct queue_use *v, size_t n);
uint64_t pool_nodes(const struct pool *p);
/* What one decision looks at: targets, and groups of equal nodes on them. */
size_t policy_rows(const struct pool *p);
/* Whole GPUs × 1000 that are free and usable, over all targets (for tests and status). */
int64_t pool_free_gpu_milli(const struct pool *p, const char *class_or_null);

/* What an hour of a GPU of that class costs on that node, by its Target's price sheet. false: it is
 * not known. currency is the sheet's. */
struct gpu_hour {
    double price;
    const char *currency;
};
bool policy_gpu_hour(const struct pool *p, const char *node, const char *class_, int64_t now_ms,
                     struct gpu_hour *ret);
/* status.reason of a Workload that is Unknown: its target is in reach, and cannot tell. */
#define RUN_NOT_TOLD "RunNotTold"

/* ---- one decision ---- */
struct place_request {
    const struct object *workload; /* Workload; its status.queuedAt says how long it waits */
    int64_t now_ms; /* UTC of the decision; waits, windows and validity are judged by it */
    /* breaks ties: equal scores go to the lowest hash(seed, node) … of a fixed order */
    uint64_t seed;
    const char *avoid_target; /* not there (a migration leaves it), or NULL */
    const char *only_target;  /* there or nowhere (a migration's wish), or NULL */
    int64_t log_index;        /* for the record */
    int64_t queue_position;   /* for the record */
    /* It has to leave where it is: what its policy's order asks to wait for (times, thresholds)
     * does not hold it up. What is earlier in the order is still preferred. */
    bool at_once;
    bool unsettled;    /* it may run already, where the state does not know: it goes nowhere */
    struct memo *memo; /* shares refusals with those that ask for the same; NULL: none */
};
/* Refusals of one cycle, remembered while the pool stays as it is: the answers are the same as
 * without, and cost less. At most 64 MB. What a decision from it points to lives until the next one
 * is asked for after the pool has changed: it is told at once, or copied. */
struct memo *policy_memo_create(void);
struct memo *policy_memo_destroy(struct memo *m);
uint64_t policy_memo_hits(const struct memo *m);
/* Decides and records; does not change the pool. *ret_decision (in arena a, at most
 * LIMIT_DECISION_MAX_BYTES encoded) is a full `struct decision_spec`; when it is placed,
 * *ret_placement is what pool_hold would hold (else NULL). Returns 0 also when nothing fits: that
 * is a decision, too. */
int policy_place(const struct pool *p, const struct place_request *rq, struct arena *a,
                 struct decision_spec **ret_decision, struct placement **ret_placement,
                 struct err *err) MUST_CHECK;

/* ---- a whole cycle over the queue ---- */
struct cycle_item {
    const struct object *workload;  /* in: phase Queued */
    struct decision_spec *decision; /* out, in the arena */
    struct placement *placement;    /* out, or NULL */
    int64_t position;               /* out: 1 = next, within its queue */
};
/* Orders items (priority, fair share with decayed usage, deadline, submission), admits by quota,
 * places one after the other, holding each placement in *p as it goes (so p ends as if all were
 * applied; callers that only want to look fork first). Stops after max_placed placements (0 =
 * all): the rest keep decision == NULL. Items are reordered into the order in which they were
 * looked at. */
int policy_cycle(struct pool *p, struct cycle_item *items, size_t n, int64_t now_ms, uint64_t seed,
                 int64_t log_index, size_t max_placed, struct arena *a, struct err *err) MUST_CHECK;

/* The same a turn at a time, for more than can be done at once. Workloads wait in lanes: the first
 * `lane` bytes of their key are their lane's, the others their place in it. What each lane begins
 * with is given to the turns; whose turn it is follows from those heads and the pool, which may
 * change in between. */
struct wait_key {
    unsigned char p[1024];
    size_t n, lane;
};
void policy_wait_key(const struct object *workload, struct wait_key *ret);
struct turns;
struct turns *policy_turns_create(struct pool *p); /* p must outlive it */
struct turns *policy_turns_destroy(struct turns *t);
/* A further lane; returns its number, from 0. Heads are borrowed until they are replaced. */
size_t policy_turns_lane(struct turns *t, const struct object *head);
/* The lane whose head is next, SIZE_MAX when all are empty; its position within its queue. */
size_t policy_turns_next(struct turns *t, int64_t *ret_position);
/* Its head has had its turn: it waits on, holds a place now (and nothing else has changed), or was
 * passed over. Then comes head, or nobody (NULL). */
enum turn_end { TURN_WAITS, TURN_PLACED, TURN_GONE };
void policy_turns_took(struct turns *t, size_t lane, enum turn_end end, const struct object *head);
/* Decides on the head of that lane and holds its placement; then comes `next`. rq as for
 * policy_place; `it` gets what was decided. Who is first in his queue and finds no room gets a
 * shadow reservation; those who come after it use that place only when they will have ended by
 * then. It holds against them once policy_turns_keep was called (true: one was looked for, which
 * costs as much as many turns), until policy_turns_over, which comes ahead of anything else that
 * is decided on this pool, and ahead of policy_turns_destroy. */
int policy_turn(struct pool *p, struct turns *t, size_t lane, struct cycle_item *it,
                const struct object *next, const struct place_request *rq, struct arena *a,
                struct err *err) MUST_CHECK;
bool policy_turns_keep(struct turns *t, struct pool *p);
/* whole: everybody had a turn. What comes after the first call does nothing. */
void policy_turns_over(struct turns *t, struct pool *p, bool whole);

/* ---- preemption: planned once over all targets ---- */
struct victim {
    const struct object *workload; /* borrowed from the pool */
    double lost_gpu_s; /* GPU-seconds since its last verified checkpoint, or since it was placed */
    double restart_gpu_s; /* GPU-seconds until it makes progress again */
    double egress;        /* money, of its checkpoint where it must leave */
    double harm; /* all of it in GPU-seconds. A worker without GPUs counts as a thousandth of one */
    double charged; /* of that: what the plan minimises the sum of. GPUs that it holds beyond what
                     * the preemptor asks for count a tenth: others who wait use them */
    bool reclaim;   /* its queue has borrowed what the preemptor's queue is guaranteed */
};
struct preempt_plan {
    struct victim *victims; /* in order of what is charged, the least first */
    size_t n;
    double harm, charged, lost_gpu_s; /* sums */
    bool requeue; /* they free quota or the policy's maxGPUs, too: to run on elsewhere would take
                   * that again */
    /* of the preemptor, in the room that they leave together with what is free */
    struct placement *placement;
    struct decision_spec *decision;
};
/* The set of running workloads for which least is charged and whose end makes room for
 * rq->workload, in all that policy, compliance and quota let it use. Victims have a lower priority
 * value (and the preemptor's class mayPreempt), or hold what their queue borrowed from the
 * guarantee of the preemptor's queue; never a neverVictim class, never below minimumRuntime, never
 * one that moves already. *ret NULL: no set of victims helps, or it needs none (policy_place finds
 * room), or room is nominated for it. Exact for one worker where only room is missing, and for
 * gangs in domains where at most 16 may be victims; for other gangs the best that a bounded search
 * finds; where victims must also free quota, the policy's maxGPUs or the target's limit of
 * workloads, a greedy set that is then pruned of every member that is not needed. Victims are
 * judged by the object that was last given to pool_hold. */
int policy_preempt(const struct pool *p, const struct place_request *rq, struct arena *a,
                   struct preempt_plan **ret, struct err *err) MUST_CHECK;
/* May v be a victim of w at now? REASON_NONE, or why not. apply asks again. held as in
 * policy_quota_check; of a plan with several victims: without those that were asked before, the
 * smallest first (of what is reclaimed, nothing goes once its queue borrows no more). */
enum reason policy_victim_check(const struct object *w, const struct object *v, int64_t now_ms,
                                const struct object *const *classes, size_t n_classes,
                                const struct object *const *queues, size_t n_queues,
                                int64_t (*held)(const char *queue, const char *class_, void *arg),
                                void *arg);

/* ---- moves of running work ---- */
struct move_choice {
    bool move;
    enum move_cause cause;
    struct placement *placement;    /* destination; NULL: no room elsewhere, though it has to go */
    struct decision_spec *decision; /* with placement */
    double lost_gpu_s, cost,
        saving;    /* expected; cost: egress and restart in money; saving: after all of it */
    char why[256]; /* a sentence; also when it stays */
};
/* Should a running workload move now? With `must` it has to (drain, sick node, compliance, lost,
 * asked, spot notice), and only where to is asked: not its own target, but for a sick node or a
 * notice (other nodes will do), and unless rq says which to avoid or to take; at once, whatever its
 * policy's order would have new work wait for, unless it was merely asked for. With must 0, for the
 * causes that its PlacementPolicy names in migrate.when, the first that holds in that order:
 * repatriate when an earlier step of the policy's order has room again; cheaper when what is left
 * of its expected duration costs less there by more than minSaving, after egress, restart and the
 * work since its last checkpoint; data when all its data is local there and not here. A duration
 * that is not told counts as long again as it has run; one that is over saves nothing. Never to a
 * later step of the order, never so that a cause which is named earlier would move it back, never
 * without a verified checkpoint, never before minStay (10m unless told), never twice within
 * atMostEvery (1h); minSaving is 10%. Its own hold counts against no quota or limit meanwhile, but
 * keeps its room. */
int policy_move(const struct pool *p, const struct place_request *rq, enum move_cause must,
                struct arena *a, struct move_choice *ret, struct err *err) MUST_CHECK;
/* Must it leave where it is? MOVE_COMPLIANCE, MOVE_SICK, MOVE_SPOT for a notice with a deadline,
 * MOVE_DRAIN, MOVE_SPOT for one without (in this order; the last not within ten minutes of its last
 * move, so that advice which comes and goes does not chase it), or 0. A PlacementPolicy, its order
 * and its windows say where and when new work starts: they make nobody leave. */
enum move_cause policy_must_leave(const struct pool *p, const struct object *workload,
                                  int64_t now_ms);

/* The notice of a placement's nodes that presses most: the earliest deadline, or one without. NULL:
 * none of them goes away. *ret_node, its name, may be NULL. Both are the pool's. */
const struct node_notice *policy_notice(const struct pool *p, const struct placement *at,
                                        const char **ret_node);
/* "node N was announced to go away (spot, at 2026-11-21T03:33:22Z)" */
void policy_notice_print(const char *node, const struct node_notice *n, char *out, size_t size);

/* ---- hints: the smallest single changes that would admit a workload that waits ---- */
/* Each was tried and admits it now (waits: then), and no number is larger than it must be. Where no
 * single change does: "two changes: A, and B", neither of which is enough alone. Texts
 * for decision_spec.hints, at most `max`, changes of its own before those of others. Bounded: at
 * most 256 decisions, 96 of them for single changes; nothing is left changed. */
int policy_hints(const struct pool *p, const struct place_request *rq,
                 const struct decision_spec *d, size_t max, struct arena *a, const char ***ret,
                 uint32_t *ret_n, struct err *err) MUST_CHECK;
/* For who is next in its queue: sets d->startEstimate and startAfter when it fits once running work
 * has ended as expected, which was tried. d, of the same request, is left as it is when nothing can
 * be said. */
int policy_start_estimate(const struct pool *p, const struct place_request *rq, struct arena *a,
                          struct decision_spec *d, struct err *err) MUST_CHECK;
/* Puts hints into the record, which stays within LIMIT_DECISION_MAX_BYTES: the last candidates make
 * room. */
void policy_decision_hint(struct decision_spec *d, const char **hints, uint32_t n);

/* How many workers it must be placed with, to go on from its checkpoint: as many as saved it, or as
 * run now and will save; 0: any number that its spec allows, for want of a checkpoint, or since its
 * program can resume with another number (spec.checkpoint.reshard). */
int64_t policy_resume_ranks(const struct workload *w);
/* Up to when work is in a checkpoint: what came later would be lost. */
static inline int64_t checkpoint_saved_at(const struct run_checkpoint *c)
{
    return c->writtenAt ? c->writtenAt : c->verifiedAt;
}
/* Young 1974 / Daly 2006 (doi 10.1016/j.future.2004.11.016, eq. 37): how long to work between two
 * checkpoints that take write_ms each, when failures come every mtbf_ms. 0 when either is not
 * known. */
int64_t policy_checkpoint_interval(int64_t write_ms, int64_t mtbf_ms);

/* ---- checks that the state machine repeats before it takes a decision ---- */
/* 0, or E_COMPLIANCE naming the policy. policies: the CompliancePolicies; datasets: those of the
 * workload's namespace that spec.data names (NULL entries for missing ones); targets: all Targets,
 * which tell where checkpoint stores lie. targets NULL: of what policies cover only `run` is asked,
 * as older logs did. */
int policy_compliance_check(const struct object *workload, const struct object *target,
                            const struct object *const *policies, size_t n_policies,
                            const struct object *const *datasets, size_t n_datasets,
                            const struct object *const *targets, size_t n_targets,
                            struct err *err) MUST_CHECK;
/* Does a set of queues hold together: parents exist, no cycle, guaranteed of children within the
 * parent's, a namespace in one queue only. The error names the queue and field. For `apply` of
 * documents. */
int policy_queues_check(const struct object *const *queues, size_t n, struct err *err) MUST_CHECK;
/* Queue of a workload: spec.queue, else the queue whose namespaces hold it, else "" (no quota). */
const char *policy_queue_of(const struct object *workload, const struct object *const *queues,
                            size_t n);
/* Quota: may `queue` have `gpus` more of class? Always within its guarantee, or that of a queue
 * above as far as others below it do not keep theirs; else within burst and borrowLimit of its own
 * and each ancestor's, and not of what others are guaranteed and do not lend. held(queue, class,
 * arg) = whole GPUs × 1000 that the queue's own workloads hold; queue "" = those in none, class ""
 * = of all. */
int policy_quota_check(const char *queue, const char *class_, int64_t gpu_milli,
                       const struct object *const *queues, size_t n_queues,
                       int64_t (*held)(const char *queue, const char *class_, void *arg), void *arg,
                       int64_t capacity_milli, struct err *err) MUST_CHECK;
/* How many GPUs × 1000 of a class does the work in `queue` ("" = in no queue) hold above what it is
 * guaranteed, that `claimant` may take back? Seen where the two meet in the tree: at most what
 * every branch from `queue` up to there holds above its own guarantee, and at most *ret_unfilled,
 * what the branch of `claimant` is guaranteed there and does not hold. Several lenders' victims are
 * summed by the caller: their sum is bounded by *ret_unfilled (may be NULL), too. claimant NULL:
 * from anybody, *ret_unfilled is 0. 0 for a queue and itself. held as in policy_quota_check. */
int64_t policy_quota_borrowed(const char *queue, const char *claimant_or_null, const char *class_,
                              const struct object *const *queues, size_t n_queues,
                              int64_t (*held)(const char *queue, const char *class_, void *arg),
                              void *arg, int64_t *ret_unfilled);
/* Policies of the same scope: the winner for a workload by precedence, narrower selector, name;
 * NULL when none. ret_losers (or NULL) has room for n; the losers are in order, the nearest to
 * winning first. */
const struct object *policy_winner(const struct object *workload,
                                   const struct object *const *policies, size_t n,
                                   const struct object **ret_losers, size_t *ret_n_losers);
/* GpuClass for a model as some vendor spells it; NULL when none of the classes knows it. */
const char *policy_class_of(const char *model, int64_t memory_bytes,
                            const struct object *const *classes, size_t n);
/* Is country c in `groups` (ISO codes, or EU, EEA, …)? The groups' members are in
 * policy/jurisdictions.def. */
bool policy_jurisdiction_in(const char *country, const char *const *groups, uint32_t n);

#endif
