/* What the files of a fleet share: the connector of a Target that lists several agents. */
#ifndef HANSE_CONNECTORS_AGENT_FLEET_INTERNAL_H
#define HANSE_CONNECTORS_AGENT_FLEET_INTERNAL_H

#include "api/base/list.h"
#include "connectors/agent/agent.h"

#define FLEET_LOOK_MS 5000 /* between two looks at parts that are away, or have not listed */

struct fleet_part { /* one of spec.agents */
    struct fleet *fleet;
    unsigned at; /* in fleet.parts */
    char name[64];
    char prefix[256 + 66]; /* of its nodes: "TARGET.PART." */
    struct connector *driver;
    bool reached, came; /* came: it was in reach since this connector was made */
    char why[256], state[64];
    char address[256]; /* where the others' machines reach its own; "": not known */
    /* nodes.c: the listing under way, or the last one */
    bool asked, open, lacks, listed;
    char revision[64];
    char **names; /* that it named; owned */
    size_t n_names;
    char **refused; /* that could not be read, since a listing of which all could be; owned */
    size_t n_refused;
    struct notice *notices; /* that it told last; owned */
    size_t n_notices;
    bool notices_told;
    uint64_t notices_ms; /* loop time when they were told */
};
struct fleet {
    struct connector base;           /* must be first */
    const struct connector_ops *ops; /* of the parts */
    struct fleet_part *parts[LIMIT_TARGET_AGENTS];
    unsigned n_parts;
    struct list joints, gangs;
    bool closing; /* its drivers end: nothing is asked any more */
    char memory[64]; /* repeats() */
    uint64_t sessions; /* counts them */
    char id[96];       /* of the present one */
    uint64_t revision; /* of what was told of nodes */
    bool based;        /* the caller has it, in this session: deltas may follow */
    struct timer look;
    uint64_t made_ms;
};

/* One call of ours that is several calls, one a part. */
struct joint;
typedef void (*joint_end)(struct joint *j);
struct joint_answer {
    struct call call;
    struct joint *joint;
    struct fleet_part *part;
    enum outcome out;
    bool has;
    struct observation seen;
    struct err err;
};
struct joint {
    struct list link;
    struct fleet *fleet;
    struct call *call; /* NULL: nobody waits */
    joint_end end;
    struct run_key key;
    struct timer none; /* ends one without parts */
    bool sure;         /* the parts are those that have it by the log; else all that there are */
    bool mixed;        /* done where some parts are and others refused */
    bool lists, stale; /* lists: a sweep; stale: a part came meanwhile */
    bool about, ran;   /* about: it is of that key; ran: it was seen running, by the log */
    uint64_t grace_ms; /* that its runners were given */
    struct fleet_gang *gang; /* of gang.c's own calls */
    struct staging *staging; /* of stage.c's */
    enum outcome out;  /* of one without parts */
    struct err err;
    document_cb document;
    void *document_arg;
    unsigned n, waiting;
    struct joint_answer v[];
};

struct fleet *fleet_of(struct connector *c);
int fleet_make(const struct connector_env *env, const struct object *target,
               const struct connector_ops *ops, struct connector **ret, struct err *err) MUST_CHECK;
/* Returns the part whose node that is, or NULL. */
struct fleet_part *fleet_part_of(const struct fleet *f, const char *node);
struct fleet_where {
    uint32_t parts; /* that have it, a bit each */
    uint64_t grace_ms;
    bool ran;
};
/* Where the log has that run. false: it does not say; all parts. */
bool fleet_where(const struct fleet *f, const struct run_key *k, struct fleet_where *ret);
uint32_t fleet_all(const struct fleet *f);
uint32_t fleet_reached(const struct fleet *f);
/* Parts of a placement; 0: some node is of none. */
uint32_t fleet_placed(const struct fleet *f, const struct placement *p);

/* joint.c. Each part's call is joint_call(), in the order of the parts of the mask. */
struct joint *joint_begin(struct fleet *f, uint32_t parts, struct call *call, joint_end end);
#define for_each_answer(v_, j) for (struct joint_answer *v_ = (j)->v; v_ < (j)->v + (j)->n; v_++)
void joint_tell(struct fleet *f, struct call *call, enum outcome out, int code, const char *field,
                const char *why);
void joint_refuse(struct fleet *f, struct call *call, int code, const char *field, const char *why);
void joint_about(struct joint *j, const struct run_key *k, bool sure, const struct fleet_where *at);
bool joint_is_live(const struct joint_answer *v);
/* It never was, or did not end well: no gang goes on without it. */
bool joint_is_failure(const struct joint_answer *v);
/* Takes what another part says into what is true of all parts that live. */
void joint_merge(struct observation *all, const struct observation *one);
/* What is true of the run, by the answers of all parts that have it. */
struct observation joint_whole(struct joint *j);
void joint_finish(struct joint *j, enum outcome out, const struct observation *seen,
                  const struct err *err);
void joint_about_end(struct joint *j);  /* find, stop: done, with what is true of the whole run */
void joint_asked_end(struct joint *j);  /* done when all parts are */
void joint_answered(struct joint_answer *v); /* one part has; for calls without struct call */
void joints_stale(struct fleet *f);     /* a part came: sweeps under way have not listed it */
void joints_flush(struct fleet *f);

/* gang.c: runs of several parts */
void gang_submit(struct fleet *f, const struct run_order *o, uint32_t parts, struct call *call);
/* A part has told something of this run. false: it has all of it, or the log does not say. */
bool gang_observed(struct fleet *f, const struct run_key *k);
/* All parts have been asked: has those stopped that nobody would go on with. */
void gang_judge(struct joint *j, struct observation *whole);
void gangs_look(struct fleet *f); /* by and by: at those that are being stopped */
void gangs_drop(struct fleet *f);

/* stage.c: what is asked of a gang's store ahead of its order */
/* Copies what drivers of agents read of an order. */
void order_copy(struct arena *a, const struct run_order *o, struct run_order *ret);
void order_wipe(struct run_order *o); /* its environment; accepts one that was never copied */
void gang_stage(struct fleet *f, const struct run_order *o, uint32_t parts, struct call *call);
/* Can such a gang save into that store at all? false: the call was refused. */
bool gang_may_save(struct fleet *f, const struct run_order *o, struct call *call);

/* nodes.c */
void fleet_inventory(struct connector *c, struct call *call);
void fleet_part_nodes(void *arg, const struct inventory_page *p);
void fleet_part_notices(void *arg, const struct notice *v, size_t n);
void fleet_nodes_came(struct fleet_part *p); /* it is in reach again */
void fleet_nodes_look(struct fleet *f);
void fleet_nodes_drop(struct fleet_part *p);

/* calls.c: the operations */
void fleet_submit(struct connector *c, const struct run_order *o, struct call *call);
const char *fleet_repeats(const struct connector *c);
void fleet_find(struct connector *c, const struct run_key *k, struct call *call);
void fleet_stage(struct connector *c, const struct run_order *o, struct call *call);
void fleet_quiesce(struct connector *c, const struct run_key *k, int signo, uint64_t grace_ms,
                   struct call *call);
void fleet_checkpoint(struct connector *c, const struct run_key *k, int64_t number,
                      uint64_t grace_ms, struct call *call);
void fleet_stop(struct connector *c, const struct run_key *k, uint64_t grace_ms, struct call *call);
void fleet_finalize(struct connector *c, const struct run_key *k, struct call *call);
void fleet_renew(struct connector *c, const struct run_offer *offers, size_t n);
bool fleet_reaches(const struct connector *c, const struct run_key *k);
void fleet_sweep(struct connector *c, run_judge judge, void *arg, struct call *call);
void fleet_promises(struct connector *c, uint64_t rv, uint64_t older_ms, promise_judge judge,
                    void *arg, struct call *call);
void fleet_document(struct connector *c, const struct run_key *k, uint64_t deadline_ms,
                    document_cb cb, void *arg);
int fleet_logs(struct connector *c, const struct run_key *k, const struct log_request *rq,
               const struct log_sink *sink, struct exec_session **ret, struct err *err);
int fleet_exec(struct connector *c, const struct run_key *k, const struct exec_request *rq,
               const struct log_sink *sink, struct exec_session **ret, struct err *err);
int fleet_forward(struct connector *c, const struct run_key *k, const struct forward_request *rq,
                  const struct log_sink *sink, struct exec_session **ret, struct err *err);

#endif
