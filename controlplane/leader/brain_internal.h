/* Private to controlplane/leader: what a brain is made of. */
#ifndef HANSE_CONTROLPLANE_LEADER_BRAIN_INTERNAL_H
#define HANSE_CONTROLPLANE_LEADER_BRAIN_INTERNAL_H

#include "api/base/limits.h"
#include "api/base/list.h"
#include "controlplane/leader/brain.h"
#include "controlplane/store/archive/archive.h"
#include "policy/policy.h"

struct site;

/* recover/curve.c: how far the state had come at which of its times, as this process has seen
 * it. */
#define RV_CURVE_MAX 4096
struct rv_curve {
    struct rv_point {
        int64_t time_ms;
        uint64_t rv;
    } * v; /* rising; NULL until the first */
    size_t n;
};
void rv_curve_add(struct rv_curve *c, int64_t time_ms, uint64_t rv);
/* No less than it had come to at that time; UINT64_MAX: that time is newer than all that was
 * seen. */
uint64_t rv_curve_most(const struct rv_curve *c, int64_t time_ms);
void rv_curve_fini(struct rv_curve *c);

/* index.c: an entry of an index by text. The key is its owner's, and stays while it is in there. */
struct indexed {
    const char *key;
};
struct indexed *index_find(void *const *index, const char *key); /* or NULL */
void index_add(void **index, struct indexed *e);                 /* no other has its key */
void index_remove(void **index, struct indexed *e);

/* One workload that holds a place. Level-triggered: driver_tick looks at the root and at what was
 * seen, and does at most one thing; every callback stores its result and ticks again. */
struct driver {
    struct brain *brain;
    struct list seat; /* among those of its target, or with b->adrift */
    char uid[64], ns[64], name[256], target[256];
    struct run_key key;      /* epoch and try by the root */
    const struct object *o;  /* the workload as the newest root has it; a reference */
    bool proposing, calling; /* one thing at a time */
    bool dead;               /* gone from the root; freed once nothing is under way */
    /* intent that this brain committed in this term and has not submitted yet */
    int64_t own_try, own_epoch;
    bool quiesced;           /* the signal of this intent was delivered */
    uint64_t stop_after_ms;  /* quiesce: stop for good then */
    struct observation seen; /* newest for `key` */
    bool has_seen;
    bool begun;               /* a Migration of it is on its way into the log */
    unsigned telling;         /* checkpoints on their way into the log */
    int64_t told_step;        /* of the newest that was proposed in this epoch; -1 = none */
    unsigned bad_checkpoints; /* refused in this epoch */
    int64_t foreign_epoch;    /* in which its target told one that is not its own */
    int64_t looked_epoch;     /* ahead of it the store was looked through, or given up */
    int64_t look_epoch;       /* ahead of it that began, */
    uint64_t look_until_ms;   /* and then it is given up */
    uint64_t found_session;   /* session in which find() last answered */
    uint64_t renewed_ms;      /* no runner of it counts its lease from later than this */
    uint64_t unknown_since_ms;
    uint32_t backoff_ms;
    struct call call;
    bool held_back; /* limits.inFlight of its target: it calls when another's call is answered */
    uint64_t call_site;
    char call_target[256];  /* the site that its call is counted on */
    struct call hurry;      /* a shorter grace than that of the stop under way, */
    bool hurrying;          /* which goes on meanwhile */
    uint64_t stop_grace_ms; /* that this try was last told to stop within; 0: at once, or untold */
    int call_kind;
    struct run_key call_key; /* what the call is about: its answer says nothing of another run */
    struct timer again;
};

/* What a sweep finds of a run: what the state says of it. */
enum orphan_why {
    ORPHAN_OWNED = 0, /* the state has this very run, as live or ended */
    ORPHAN_LET_GO,    /* this cluster's own log let it go */
    ORPHAN_AHEAD,     /* of an epoch or try that the state has not come to: it is an older one */
    ORPHAN_BEFORE,    /* unknown, and begun before the state went back to an older one */
    ORPHAN_DELETED,   /* unknown, ended, and in this state's own past: it let its Workload go */
    ORPHAN_FOREIGN,   /* unknown, and of another cluster, or nobody can say of which */
    ORPHAN_WHY_NR
};
#define ORPHANS_MAX 4096 /* of one target; more are counted */
struct orphan {
    struct observation seen;
    enum orphan_why why;
    char cluster[CLUSTER_UID_MAX], ns[64], name[256];
    uint64_t state_rv;
    int64_t since_ms;
    struct run_hold *holds;
    size_t n_holds;
};
struct orphans {
    struct orphan *v;
    size_t n;
    uint64_t more;
};

struct site { /* one Target document, and the connector that drives it */
    struct list link;
    struct indexed by_name;
    struct list drivers; /* of the workloads that hold a place here */
    struct brain *brain;
    char name[256];
    struct connector *connector; /* NULL: no driver for this type, or it could not be made */
    struct object *doc;
    bool reachable, suspect;   /* suspect: silent for longer than partition.suspectAfter */
    bool told, told_reachable; /* what the state was told last in this term */
    uint64_t session;          /* counts sessions in this process; 0 = never reached in this term */
    char session_id[64], why[256], error[256];
    /* Whose memory speaks for it, "" = not known; why another one was turned away, "" = nobody was;
     * and of both, what the state was told last. */
    char agent[64], rival[512], told_agent[64], told_rival[512];
    uint64_t rival_ms; /* when that one came last */
    uint64_t last_contact_ms, lost_at_ms;
    struct timer silence, renew, facts_timer;
    struct site_facts { /* facts.c: what is told of nodes, and not in the log yet */
        struct list due, named;
        void *due_by_name, *named_by_name;
        size_t n_due, due_bytes, n_named;
        bool listing;   /* `named` are all there are: once due is told, others are gone */
        bool proposing; /* one FACTS is on its way into the log */
        bool again;     /* something was lost on its way: the inventory is asked for anew */
        uint64_t committed_hash;
    } facts;
    bool inventory_calling, confirming;
    bool gone;    /* the answers on their way are awaited, then it is freed */
    bool letting; /* promises.c: it is asked what it promised to refuse */
    uint64_t letting_session;
    bool sweeping, sweep_due; /* due: it was not answered, or something unknown was seen */
    uint64_t swept_ms;
    struct run_key *doubts; /* listed, and not in the root: sweep.c */
    size_t n_doubts;
    bool doubts_proved; /* what is doubted and not in the root now has no owner */
    bool awaited;       /* by a hub that has just begun: the state has it as connected */
    bool listed;        /* in this session: all that runs there is known, or told as an orphan */
    struct orphans orphans, found; /* as the last sweep found them; as one under way does */
    struct run_key *condemned;     /* orphans that somebody said are to be ended */
    size_t n_condemned;
    struct call inventory;
    uint64_t renewals, confirm_from_ms;
    uint64_t shortest_ms; /* lease that something on it may hold */
    uint64_t renew_at_ms;
    uint64_t refused_ms, refused_until_ms; /* after a refused submit: a pause that grows */
    uint64_t number; /* no other site has it, one of the same name made anew neither */
    unsigned calls;  /* of drivers, under way */
    bool held_back;  /* some driver waits for one of them */
};

struct cursor { /* of a walk over all Workloads; name "" = at the start */
    char ns[64], name[256];
};
struct causes { /* move/causes.c */
    struct timer timer;
    bool due;
    struct cursor must, better;
    uint64_t must_ms, better_ms, second_ms;
    unsigned looks;
};
struct preempts {            /* move/preempt.c */
    bool waiting;            /* somebody waits for room */
    bool planning, dropping; /* a command is on its way into the log */
    uint64_t cycled_ms;
    struct vain { /* looked at, and nothing helped */
        char uid[64];
        uint64_t until_ms;
    } vain[64];
    unsigned next_vain;
    struct list nominees; /* workloads for which room is being made, */
    void *nominees_by_uid;
    size_t n_nominees;
};
#define EVENTS_MAX 256
struct events { /* events.c */
    struct list waiting;
    unsigned n;
    struct timer timer;
};
#define MOVE_CAUSES 12
#define PAUSE_BUCKETS 10

struct cJSON;
struct strangers { /* recover/strangers.c */
    struct connector_lobby *lobby;
    struct {
        char name[256];
        uint64_t at_ms;
    } * v; /* who has dialed in this leadership, at most STRANGERS_MAX */
    size_t n;
    uint64_t since_ms; /* it began, or somebody could not be counted */
};

struct brain {
    struct brain_config cfg;
    struct loop *loop;
    bool leads, closing, frozen; /* frozen: too many targets fell silent at once */
    struct went_back { /* recover/back.c: is the state an older copy, that somebody put back? */
        bool doubt;    /* somebody says so: nothing is done before it is known, and in the log */
        bool left;     /* another log went on: it stays in doubt */
        bool asking, beginning, marking; /* answers on their way */
        char cluster[CLUSTER_UID_MAX];   /* how far it had come, as somebody heard */
        uint64_t rv;
        int64_t time_ms;
        struct timer again;
        struct rv_curve curve;
    } back;
    struct strangers strangers;
    struct {     /* recover/cold.c */
        bool on; /* Targets are awaited */
        struct timer look;
        uint64_t known_ms; /* since then this process has had a leader; 0 = never yet */
        int64_t before_ms; /* work of before then is held */
    } cold;
    uint64_t term;
    struct root *root; /* newest seen; reference */
    uint64_t seen_rv;
    struct pool *pool;
    struct list sites;
    void *sites_by_name;
    uint64_t sites_made;
    struct list adrift; /* drivers whose Target is not there */
    void *drivers;      /* tsearch tree by uid */
    unsigned n_drivers, under_way;
    struct waiting {
        struct tree *queued, *stopped; /* Workloads by policy_wait_key */
        struct tree *resume;           /* by lane: whom the last cycle would have looked at next */
    } waiting;
    struct cycle *cycle; /* under way, or NULL */
    bool cycle_wanted, cycle_posted;
    unsigned cycle_in_flight;
    struct timer cycle_timer;
    uint64_t cycles, placed, refused, decided, cycle_last_ms;
    struct durations slices, slices_cpu; /* of cycles */
    struct list movers;                  /* move/mover.c */
    void *movers_by_uid;
    struct list *movers_of; /* by hash of their workload: MOVER_BUCKETS lists, made when needed */
    unsigned n_movers, plans;
    uint64_t room; /* counts what may have made room somewhere */
    bool movers_posted;
    struct causes causes;
    struct preempts preempts;
    struct events events;
    struct timer retention;
    struct { /* collect.c */
        struct timer rest;
        bool under_way; /* a slice is on its way into the log */
        uint64_t asked_ms, slices;
    } collect;
    struct { /* arrays.c */
        struct timer rest;
        bool under_way, moved; /* moved: a slice of this round began or told something */
        struct cursor at;      /* the array that had the last slice */
        uint64_t asked_ms;
    } arrays;
    struct { /* held.c */
        void *by_uid;
        struct list all;
        struct timer wake;
    } held;
    struct { /* tokens.c */
        struct timer look;
        struct token_cursor at;
        bool more;
    } tokens;
    struct archive_cursor archive_at; /* where retention looks next, and whether soon */
    bool archive_more;
    struct {                            /* of Migrations that ended while this brain led */
        uint64_t ended[MOVE_CAUSES][3]; /* Succeeded, Failed, Cancelled */
        uint64_t pause[PAUSE_BUCKETS + 1], pause_sum_ms, pauses;
    } moves;
    void (*closed)(void *arg);
    void *closed_arg;
};

/* What was refused may be allowed by now: all look again (brain.c). */
void brain_allowed(struct brain *b);

/* ---- propose.c: commands in this term; the callback is on the outer loop ---- */
void brain_propose(struct brain *b, const union command *c, propose_cb cb, void *arg);
void brain_propose_bytes(struct brain *b, const char *request_id, struct slice bytes, propose_cb cb,
                         void *arg);
void brain_request_id(struct brain *b, char out[REQUEST_ID_MAX]);
/* counts callbacks to come; closing waits for zero */
void brain_under_way(struct brain *b, int delta);

/* ---- scheduler.c ---- */
void scheduler_reset(struct brain *b); /* a pool from the whole root */
void scheduler_change(struct brain *b, enum kind_id kind, const struct object *before,
                      const struct object *after);
void scheduler_reach(struct brain *b, const char *target, bool reachable);
void scheduler_node(struct brain *b, const struct object *node); /* as it is to be used now */
void scheduler_want(struct brain *b);
/* A step of the machine of a workload that holds nothing. */
void scheduler_step(struct brain *b, const struct object *o, enum run_step step, const char *reason,
                    const char *message);
/* Proposes what was decided about one workload: its place, or why it waits. */
void scheduler_tell(struct brain *b, const struct cycle_item *it);

/* ---- cycle.c: over those who wait, in slices ---- */
void cycle_post(struct brain *b); /* one begins soon, unless one is under way */
void cycle_drop(struct brain *b); /* ends the one under way */

/* ---- waiting.c: who waits for a place ---- */
/* It waits for the scheduler. Who is on its way from one place to another waits for its mover. */
bool workload_queued(const struct object *o);
/* Stopped by its partition policy, and its owner holds it: queued, so that letting go starts it. */
bool workload_stopped_held(const struct object *o);
struct tree *waiting_tree(void); /* empty; of Workloads */
void waiting_reset(struct brain *b);
void waiting_change(struct brain *b, const struct object *before, const struct object *after);
void waiting_drop(struct brain *b);
/* After o in its lane; the first of the lane after that of o (NULL: of all). NULL: nobody. */
const struct object *waiting_next(const struct tree *queued, const struct object *o);
const struct object *waiting_lane(const struct tree *queued, const struct object *o);

/* ---- sites.c ---- */
void sites_reset(struct brain *b); /* a connector per Target of the root */
void site_change(struct brain *b, const struct object *before, const struct object *after);
struct site *site_find(struct brain *b, const char *name);
void sites_drop(struct brain *b); /* leadership is over: all connectors are destroyed */
void site_refused(struct site *t);
void site_pace(struct site *t, uint64_t lease_ms); /* renewals come in time for that lease */

/* ---- facts.c: nodes and reach, into the log ---- */
void site_facts_init(struct site *t);
void site_facts_drop(struct site *t);
/* Reach, agent or rival are not as the state was told last. */
bool site_facts_differ(const struct site *t);
void site_facts_soon(struct site *t); /* its reach is told */
void site_inventory_ask(struct site *t);
/* Told by its connector: all there are, or some. */
void site_nodes(struct site *t, const struct node *nodes, size_t n, bool complete);

/* ---- sweep.c: what was let go is ended, what is not known is told ---- */
void site_sweep(struct site *t);
/* promises.c: what it promised to refuse, and this cluster's own log let go, it may forget. */
void site_promises(struct site *t);
bool promise_let_go(const struct root *r, const struct run_promise *p);
enum orphan_why sweep_why(const struct root *r, const struct run_listed *l);
bool sweep_from_our_future(const struct root *r, const struct run_listed *l);

/* ---- recover/: what the state cannot answer for ---- */
void orphans_begin(struct site *t); /* a list is being made */
void orphan_found(struct site *t, const struct run_listed *l, enum orphan_why why);
void orphans_listed(struct site *t); /* it is whole */
void orphans_drop(struct site *t);
const struct orphan *orphan_find(const struct site *t, const char *key);
bool orphan_on_node(const struct brain *b, const char *target, const char *node);
/* back.c. A target has heard so much of the state of that cluster: is ours an older one? */
bool root_is_behind(const struct root *r, const char *cluster, uint64_t rv, uint64_t most);
bool root_left_behind(const struct root *r, const char *cluster);
void brain_heard(struct brain *b, const char *target, const char *cluster, uint64_t rv,
                 int64_t time_ms);
/* It is, and a majority confirmed that we lead: into the log; what has not ended is open then. */
void brain_went_back(struct brain *b, const char *cluster, uint64_t rv);
/* cold.c: a hub that has just begun */
void cold_known(struct brain *b);
void cold_begin(struct brain *b);
void cold_mark(struct brain *b); /* who is awaited, by the root */
void cold_look(struct brain *b); /* a Target has listed, is silent, or is gone */
void cold_init(struct brain *b);
void cold_drop(struct brain *b);
bool cold_awaits(const struct site *t);
bool cold_holds(const struct brain *b, const struct object *workload);
/* strangers.c: agents of Targets that the state does not have; of any member */
void stranger_came(struct brain *b, const char *target);
void stranger_turn_away(struct brain *b, struct stream *s, const char *target, const char *why);
void strangers_begin(struct brain *b);
void strangers_look(struct brain *b); /* recovery may have begun */
/* Until everybody who can come has dialed; 0: they have. */
uint64_t strangers_wait_ms(const struct brain *b);
/* Some have dialed, and the log does not know of them yet. */
bool strangers_uncounted(const struct brain *b);
/* One is said to be dead that is neither a Target nor a stranger: an error that names those. */
bool stranger_unnamed(const struct brain *b, const struct recover_ask *ask, struct err *err);
void strangers_status(const struct brain *b, struct cJSON *j);
void strangers_drop(struct brain *b);
void back_look(struct brain *b); /* the log says so: are all workloads marked? */
void back_init(struct brain *b);
void back_drop(struct brain *b);
bool orphan_condemned(const struct site *t, const struct run_key *k);
/* NULL and an error: this member does not lead, or there is no such Target. */
struct site *orphan_site(struct brain *b, const char *target, struct err *err);
/* As the last sweep listed it; NULL and an error: it did not. */
const struct orphan *orphan_listed(const struct site *t, const char *key, struct err *err);
void orphans_metrics(const struct brain *b, struct buf *out);

/* ---- driver.c ---- */
void driver_change(struct brain *b, const struct object *before, const struct object *after);
void drivers_reset(struct brain *b);
void drivers_tick_target(struct site *t); /* its reach changed */
void drivers_seat(struct site *t);        /* a new one: those that were adrift come to it */
void drivers_unseat(struct site *t);      /* it goes: its drivers are adrift */
void drivers_drop(struct brain *b);
void driver_observed(struct site *t, const struct observation *o);
/* All of that target are renewed from now on; returns those to which another lease is offered. */
size_t drivers_renewed(struct site *t, uint64_t sent_ms, struct run_offer *ret, size_t max);
/* Who speaks for the target now is not who was given this run: another state folder. It knows
 * nothing of it, so whatever it says of it proves nothing. */
bool driver_estranged(const struct driver *d, const struct site *t);
struct driver *driver_find(struct brain *b, const char *uid);
void driver_tick(struct driver *d);
/* ---- observed.c ---- */
void driver_take_seen(struct driver *d, const struct observation *o);

/* ---- driver_calls.c: the effects of a driver ---- */
enum driver_call { CALL_SUBMIT = 1, CALL_FIND, CALL_QUIESCE, CALL_STOP };
void driver_call(struct driver *d, struct site *t, enum driver_call kind);
/* limits.inFlight calls are under way to its target: it is ticked again. */
bool driver_held_back(struct driver *d, struct site *t);
void driver_hurry(struct driver *d, struct site *t); /* a deletion's grace was made shorter */
void driver_step(struct driver *d, enum run_step step, const char *reason, const char *message);
/* Proved: nothing ever started under its key. */
void driver_seen_absent(struct driver *d, const char *reason, const char *message);
/* ENDED or ABSENT with what was seen. */
void driver_step_end(struct driver *d, enum run_step step, bool requeue);
void driver_propose(struct driver *d, union command *c); /* a step; fills in whose it is */
void driver_later(struct driver *d, uint64_t ms);
bool driver_checkpoint_news(const struct driver *d);
void driver_tell(struct driver *d);
/* A newer one than the log knows lies in the store; of an older epoch. */
void driver_step_found(struct driver *d, const struct run_checkpoint_report *r);
void driver_backoff(struct driver *d);        /* ticks again later, and later each time */
void driver_checkpoint_bad(struct driver *d); /* what it was to resume from, for the reason seen */

/* ---- lease.c: what runners hold by the log, and what documents would give them ---- */
struct lease_grant lease_wanted(const struct object *workload, const struct site *t); /* today */
void lease_dispatch(struct driver *d, const struct site *t); /* the intent, with its grant */
/* True: a step is on its way. Its runner holds what was offered; the documents say another one. */
bool lease_acknowledged(struct driver *d);
bool lease_offer(struct driver *d, const struct site *t);
int64_t lease_next_number(const struct driver *d);
bool lease_offered(const struct driver *d, struct run_offer *ret);
void lease_renewed(struct driver *d, uint64_t sent_ms);
void lease_pace(const struct driver *d); /* tells its site how often renewals must come */
/* 0: no runner of it can be alive any more, unless somebody renews it. */
uint64_t lease_left_ms(const struct driver *d);

/* ---- look.c: what the store holds, ahead of a second life ---- */
/* True: it is being asked; ticked again. False: it may be dispatched. */
bool driver_look(struct driver *d, struct site *t);
/* Its place is for another number of workers than saved what it resumes from: the step back was
 * proposed (look.c). */
bool driver_place_differs(struct driver *d);

/* ---- order.c: what a connector is told ---- */
int order_make(struct site *t, const struct object *workload, const struct placement *p,
               const struct run_key *k, struct arena *a, struct run_order *ret,
               struct err *err) MUST_CHECK;
/* The same without environment and lease: to read what it resumes from. */
void order_stage(struct site *t, const struct object *workload, const struct placement *p,
                 const struct run_key *k, struct arena *a, struct run_order *ret);
/* A target tells this of a run of that epoch, or found it: may it be believed where it says it
 * is? Neither a path beside the workload's own store and epoch nor numbers out of range reach
 * the log. */
int order_checkpoint_told(const struct object *workload, int64_t epoch,
                          const struct run_checkpoint_report *r, struct err *err) MUST_CHECK;
/* Advised time between two checkpoints that take write_ms each; 0 = none. t and p may be NULL. */
int64_t order_interval_ms(const struct site *t, const struct object *workload,
                          const struct placement *p, int64_t write_ms);

/* ---- events.c, retention.c, collect.c, tokens.c ---- */
void events_init(struct brain *b);
void events_change(struct brain *b, const struct change *c);
/* A lost workload whose place is kept, since nothing else has room; may be called at any rate. */
void events_not_replaced(struct brain *b, const struct object *workload, const char *why);
void events_stays_sick(struct brain *b, const struct object *workload, const char *why);
/* A lost workload whose runner may live so much longer by the lease that it was granted. */
void events_lease_runs(struct brain *b, const struct object *workload, uint64_t left_ms);
void events_book_full(struct brain *b, const struct object *target, const char *why);
void PRINTF_LIKE(4, 5) events_of_checkpoint(struct brain *b, const struct object *workload,
                                            const char *reason, const char *fmt, ...);
void events_drop(struct brain *b);
const char *events_uid(struct brain *b, struct arena *a); /* a new one, for an object */
/* What somebody says about a Target, in hanse-system: in the log, under his name, once cb is called
 * without an error. */
void PRINTF_LIKE(7, 8)
    events_act(struct brain *b, const char *who, const char *target, const char *reason,
               propose_cb cb, void *arg, const char *fmt, ...);
/* What follows from deletions and changed GpuClasses, slice by slice; called at every new root. */
void collect_look(struct brain *b);
void collect_reset(struct brain *b);
void collect_drop(struct brain *b);
/* What arrays have to begin or to tell, slice by slice; called at every new root. */
void arrays_look(struct brain *b);
void arrays_reset(struct brain *b);
void arrays_drop(struct brain *b);
void retention_reset(struct brain *b);
void retention_drop(struct brain *b);
/* held.c: refused for its own fault, it is not to be placed yet. Told every change of a
 * Workload. */
bool held_back(struct brain *b, const struct object *before, const struct object *after);
void held_secret(struct brain *b, const char *ns); /* one of that namespace changed */
void held_reset(struct brain *b);
void held_drop(struct brain *b);
void waiting_enter(struct brain *b, const struct object *o); /* it does not wait any more */
void tokens_reset(struct brain *b);
void tokens_drop(struct brain *b);

/* ---- move/: Migrations ---- */
void mover_change(struct brain *b, const struct object *before, const struct object *after);
void movers_reset(struct brain *b);
void movers_drop(struct brain *b);
void movers_workload(struct brain *b, const struct object *workload); /* it changed */
void movers_look(struct brain *b);                                    /* room or reach changed */
/* The driver has just proposed the end of its epoch: what follows on that is proposed, too. */
void movers_ending(struct brain *b, const struct object *workload, bool with_checkpoint);
/* A Migration of it holds a destination: its old place may be let go once the lease allows. */
bool mover_replacement_held(struct brain *b, const struct object *workload);
/* open, or NULL */
const struct object *migration_of(struct brain *b, const struct object *workload);

void begin_drop(struct brain *b, const char *workload_uid);
bool begin_possible(const struct brain *b, const struct object *workload);
void begin_propose(struct brain *b, struct migrate_cmd *m, void (*done)(void *arg, bool begun),
                   void *arg);

void causes_reset(struct brain *b);
void causes_drop(struct brain *b);
void causes_look(struct brain *b);
void causes_change(struct brain *b, enum kind_id kind, const struct object *before,
                   const struct object *after);
/* Its target is lost for longer than it accepts: begins a Migration when something has room. */
bool causes_replace(struct brain *b, const struct object *workload);

/* After a cycle over the queue: room for those who may preempt, the first CYCLE_ROOM that wait for
 * it, in queue order. */
#define CYCLE_ROOM 96 /* of those who wait for room: more than may have been looked at in vain */
bool preempt_waits(const struct cycle_item *it); /* for room that others hold */
struct preempt_walk {                            /* zeroed: from the first on */
    size_t at;
    unsigned looks;
};
/* At most one plan each time, for a plan is as much as a slice may take. False: it is over. */
bool preempt_cycle(struct brain *b, const struct cycle_item *waiting, size_t n,
                   struct preempt_walk *walk);
void preempt_nominee(struct brain *b, const struct object *workload); /* as the root now has it */
void preempt_tick(struct brain *b);
void preempt_reset(struct brain *b);
void preempt_drop(struct brain *b);

void moves_count(struct brain *b, const struct object *before, const struct object *after);
void moves_metrics(const struct brain *b, struct buf *out);

#endif
