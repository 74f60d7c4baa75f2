/* One decision's inside: what is asked for, the verdict on each target, the rows that become
 * candidates. */
#ifndef HANSE_POLICY_PLACE_INTERNAL_H
#define HANSE_POLICY_PLACE_INTERNAL_H

#include "api/base/limits.h"
#include "policy/quota/quota_internal.h"

/* ---- compliance.c ---- */
#define COVERS_BIT(what) (1u << (what))
#define COVERS_BITS_ALL                                                                            \
    (COVERS_BIT(COVERS_RUN) | COVERS_BIT(COVERS_CHECKPOINT) | COVERS_BIT(COVERS_LOGS))
/* What of the workload the policy holds for; 0: nothing. store: of its checkpoints, "" = none.
 * Whatever it is, it lies at the target of the run; checkpoints lie in their store, too, and logs
 * in that of their target (spec.logs). */
unsigned compliance_covers(const struct object *policy, const struct object *workload,
                           const struct object *const *datasets, size_t n_datasets,
                           const char *store);
/* *ret_keeper: the target that keeps the store and is not allowed; NULL: none keeps it. */
enum reason compliance_allows_store(const struct compliance_allow *allow, const char *store,
                                    const struct object *const *targets, size_t n_targets,
                                    const struct object **ret_keeper);
void compliance_store_sentence(enum reason why, const struct object *policy, const char *store,
                               const struct object *keeper, char *out, size_t size);
/* The same of the store that logs go to; "": they stay at the target. */
enum reason compliance_allows_logs(const struct compliance_allow *allow, const char *store,
                                   const struct object *const *targets, size_t n_targets,
                                   const struct object **ret_keeper);
void compliance_logs_sentence(enum reason why, const struct object *policy, const char *store,
                              const struct object *keeper, char *out, size_t size);
const char *logs_store(const struct object *target); /* that logs of its runs go to, or "" */
enum reason compliance_allows(const struct compliance_allow *allow, const struct object *target);
/* Anything of what is covered. */
bool compliance_forbids(const struct compliance_allow *allow, unsigned covers,
                        const struct object *target, const char *store,
                        const struct object *const *targets, size_t n_targets);
void compliance_sentence(enum reason why, const struct object *policy, const struct object *target,
                         char *out, size_t size);

/* ---- queue/ ---- */
#define TURNS_MAX_BYTES ((size_t)4 << 30)
struct shadows *turns_shadows(struct turns *t);
int wait_cmp(const void *a, const void *b); /* of cycle_items, as their keys compare */
bool wait_same_lane(const struct object *a, const struct object *b);
struct place;
struct memo;
/* shadow.c: the places that those who are first in their queues wait for; nobody else's but for
 * those who will have ended by then. */
#define SHADOWS_MAX RESERVED_MAX
struct shadow {
    struct hold *hold;
    int64_t start_ms;
    const struct object *after; /* the work whose end makes room then */
    bool bound;                 /* some of what must end tells no duration, or is overdue */
    bool closed;                /* some of it is overdue by little, and may end at any moment */
};
struct shadows {
    struct shadow v[SHADOWS_MAX];
    uint32_t n, looks, tries;
    bool looked; /* since it was last asked */
    bool over;   /* shadows_end was here */
};
/* d refuses the first of a queue for want of room: sets startEstimate, startAfter and keptOn. It
 * holds against nobody before shadows_begin. */
int shadows_add(struct shadows *v, struct pool *p, const struct place_request *rq,
                struct decision_spec *d, struct arena *a, struct err *err) MUST_CHECK;
void shadows_begin(struct shadows *v, struct pool *p);
/* The pool remembers whose they were; whole: it forgets whose it remembered before. */
void shadows_end(struct shadows *v, struct pool *p, bool whole);
/* it was refused: does it fit, and end, before those come whose room is kept? */
int shadows_pass(struct shadows *v, struct pool *p, const struct place_request *rq,
                 struct cycle_item *it, struct arena *a, struct err *err) MUST_CHECK;
/* memo.c: what was kept of one that asks for the same, made this one's own; NULL: to be worked
 * out. */
struct decision_spec *memo_find(struct memo *m, const struct pool *p,
                                const struct place_request *rq, struct arena *a);
void memo_keep(struct memo *m, const struct place *pl, const struct decision_spec *d);
/* What a record reserves for a name, so that those who differ by it alone get the same record. */
#define RECORD_NAME_BYTES(n) (((n) / 64 + 1) * 64)

/* ---- window.c ---- */
struct window_answer {
    bool unknown_zone, limited;
    int64_t max_gpus; /* the least of all windows that are open now */
    const struct window *window;
};
struct window_answer window_limit(const struct pool *p, const struct placement_policy_spec *s,
                                  int64_t now_ms);
/* The first moment from now_ms on at which the windows allow `milli` in all; 0: none within 8
 * days. */
int64_t window_opens(const struct pool *p, const struct placement_policy_spec *s, int64_t now_ms,
                     int64_t milli);
/* "2025-12-01 18:00" as clocks in the zone show it; false: zone not known. */
bool window_time(const struct pool *p, const char *zone, int64_t ms, char *out, size_t size);

/* ---- the request ---- */
enum need_mode { NEED_CPU, NEED_WHOLE, NEED_FRACTION, NEED_MIG };
struct need {
    enum need_mode mode; /* NEED_MIG: also of shares, whose profile is "1/4" */
    uint32_t workers, min_workers;
    uint32_t count; /* devices, or MIG instances, of one worker */
    int32_t milli;  /* share of each device */
    int32_t part;   /* a fraction: what of it is asked for, whichever way it is given; 0: none */
    const char *mig;
    bool nvlink;         /* the devices of one worker must be joined by it */
    bool hard, shares;   /* shares: CAN_SHARE of the target looked at */
    int64_t cpu, memory; /* of one worker */
    enum domain_level within, prefer;
};
/* Of what it takes one or more, where that is counted. */
static inline struct slice_kind need_kind(const struct need *n)
{
    return (struct slice_kind){n->mode == NEED_MIG && !n->part ? n->mig : "",
                               n->mode == NEED_MIG && n->part > 0};
}
struct fit_count {                   /* why nodes of a group were passed over */
    int64_t cpu, memory, gpus, hard; /* gpus: no device as asked for */
    int64_t best;                    /* most devices free on one node */
    int64_t linked;                  /* most that NVLink joins */
};

/* fit.c: one worker on one node. */
uint32_t member_slots(const struct table *t, uint32_t member, const struct need *n);
/* member or NONE */
uint32_t fit_single(const struct table *t, uint32_t group, const struct need *n);
void fit_explain(const struct table *t, uint32_t group, const struct need *n,
                 struct fit_count *ret);
/* Had others given back what they hold: room for so many workers, and what they hold of the nodes
 * that had more room then. */
struct fit_others {
    int64_t room, nodes, gpus, cpu, memory;
};
void fit_others(const struct table *t, uint32_t group, const struct need *n,
                struct fit_others *ret);
/* What other workers of the same decision took on the node, by device of the node. */
struct fit_taken {
    uint64_t whole[4];
    int32_t share[256]; /* 1/1000, or MIG instances */
};
/* Chooses the devices of one worker, as places in the node's list; returns how many. taken may be
 * NULL. */
uint32_t fit_devices(const struct table *t, uint32_t member, const struct need *n,
                     struct fit_taken *taken, uint32_t *ret_dev);

/* gang.c: all workers at once. take[i] = workers on member m0 + i of the group. */
struct gang_answer {
    uint32_t workers;        /* placed; 0 = does not fit */
    enum domain_level level; /* of the domain that holds them */
    /* workers: over the whole group, in the best domain of the level asked for */
    int64_t room, room_within;
    uint32_t *take;
    uint32_t packs; /* domains of the level `pack` in use */
    uint32_t first; /* first member in use */
    bool apart;     /* there would be room, on machines of agents that have no address */
};
void gang_fit(const struct table *t, uint32_t group, const struct need *n, enum domain_level pack,
              struct arena *a, struct gang_answer *ret);

/* ---- rows ---- */
enum { TERM_COST, TERM_LOCALITY, TERM_TOPOLOGY, TERM_ENERGY, TERM_TARGETS, TERM_NR };
struct row {
    uint32_t target, group; /* group NONE: the whole target */
    enum reason reason;
    bool fits;
    bool early;          /* its step of the order is not open yet */
    int64_t nodes, x, y; /* figures of the sentence */
    const char *text;    /* name in the sentence, or NULL */
    uint32_t rank;       /* of its step of the order and kind of capacity: lower is tried first */
    double price, useful, score;
    double rate; /* as useful, without what is paid once */
    bool priced;
    int64_t move_bytes; /* data and checkpoint that must be moved */
    int64_t move_state; /* the checkpoint's part of it */
    double move_cost, hours;
    uint32_t member, packs;
    enum domain_level pack;
    struct gang_answer gang;
    double term[TERM_NR];
    uint64_t tie;
};
struct target_verdict {
    enum reason reason;
    const char *text; /* policy name or sentence */
    int64_t x;
};
struct place {
    const struct pool *p;
    const struct place_request *rq;
    struct arena *a;
    const struct object *obj;
    const struct workload_spec *spec;
    const struct workload_status *status; /* or NULL */
    const struct hold *own;        /* what it holds while it looks for another place, or NULL */
    const struct gpu_request *gpu; /* or NULL */
    struct need need;
    uint32_t ranks;    /* exactly so many workers, for its checkpoint's sake; 0 = as need says */
    uint32_t least;    /* workers that its spec would do with */
    uint32_t *classes; /* asked for */
    uint32_t n_classes;
    int64_t waited_ms;
    uint32_t queue; /* place in docs[KIND_QUEUE], NONE = none */
    const char *queue_name;
    const struct object *policy; /* or NULL */
    uint32_t i_policy;
    const struct placement_policy_spec *order;
    const struct object **losers;
    size_t n_losers;
    const struct object **compliance; /* that apply, audit ones too */
    unsigned *covers;                 /* what each of them holds for */
    uint32_t n_compliance;
    const struct object **datasets;
    double duration_h;          /* expected, at speed 1; 0 = not told */
    double done_h;              /* of it, as far as its newest verified checkpoint; at speed 1 */
    double left_h;              /* the rest; 0 = not known, or overdue */
    double spent;               /* money, with what it holds now */
    struct quota_answer *quota; /* by class */
    bool *quota_known;
    double weight[TERM_NR], cost_reference, watts_reference;
    const struct target_selector *near[16];
    double near_weight[16];
    uint32_t n_near;
    bool locality_data, locality_checkpoint;
    enum domain_level pack;
    struct row *rows;
    uint32_t n_rows, cap_rows;
    struct row *chosen;
    const char *chosen_because; /* or NULL: best score */
    enum reason pending;
    int64_t opens_ms; /* when its window opens; 0 = not known */
    char message[512]; /* cut to what decision.message takes */
};

#define PLACE_TEXT_MAX 1200    /* a sentence with all that a target said (run_end.message) */
#define CANDIDATE_TEXT_MAX 257 /* candidate.message */

/* fit.c: the worker's node and devices, by number or by count. taken: as for fit_devices. */
void fit_seat(const struct place *pl, uint32_t member, struct fit_taken *taken,
              struct assignment *as, int64_t rank);
/* place.c: reads, looks at every target and chooses; decision_record makes the answer. */
int place_look(struct place *pl, const struct pool *p, const struct place_request *rq,
               struct arena *a, struct err *err) MUST_CHECK;
/* request.c */
void place_begin(struct place *pl); /* reads the workload and the policies */
/* What of the expected run is done, at speed 1: all that was not lost, as far as its newest
 * checkpoint; without one it begins anew elsewhere. gpus: of all its workers. */
double done_hours(const struct table *t, const struct workload *w, double gpus);
/* When what runs ends as its owner expects, also when that is over; 0: not told. */
int64_t hold_ends_at(const struct pool *p, const struct hold *h);
/* by what the workload itself says: sets pending and message */
bool place_refused(struct place *pl);
void need_read(const struct workload_spec *s, struct need *n);
/* What it is in that group (NULL: as asked for): a fraction is one share, where GPUs are given in
 * shares that are large enough. */
void need_at(const struct place *pl, struct need *n, const struct group *g);
int64_t need_milli(const struct need *n, uint32_t workers); /* GPUs × 1000 */
/* filter.c */
double class_speed(const struct table *t, uint32_t class_);
bool group_asked_for(const struct place *pl, uint32_t group);
const struct quota_answer *place_quota(struct place *pl, uint32_t class_);
uint32_t place_workers(struct place *pl, uint32_t class_); /* once place_quota admits the least */
struct target_verdict filter_target(struct place *pl, uint32_t target);
void filter_order(struct place *pl, struct row *r); /* sets rank, or a reason */
/* class, price, quota, policy limits; false = r->reason */
bool filter_group(struct place *pl, struct row *r);
/* Does the denial (status.ends) hold still: neither over, nor of another spec? */
bool denial_holds(const struct object *workload, const struct run_end *e, int64_t now_ms);
void pause_zone(struct place *pl, struct row *r); /* of a misfit: for want of a zone? */
/* price.c */
#define RESTART_HOURS 0.1 /* until a stopped run computes again */
void price_row(struct place *pl, struct row *r);
/* What the chosen place costs, to go on with in a sentence: by the GPU-hour, and by the machines
 * that were ordered for it. */
const char *price_text(struct place *pl, const struct placement *p);
bool money_above(double price, double cap); /* a cap that is met to the cent is met */
/* score.c */
void score_begin(struct place *pl);
void score_rows(struct place *pl);
bool row_better(const struct place *pl, const struct row *a, const struct row *b);
/* decision.c */
void decision_record(struct place *pl, struct decision_spec **ret_decision,
                     struct placement **ret_placement);
void gpus_text(char *out, size_t size, int64_t milli); /* "48" or "2.5" */

#endif
