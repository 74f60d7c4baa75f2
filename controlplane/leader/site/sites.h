/* Targets as the brain sees them: for each one connector, its reach and its leases; and the
 * brake. */
#ifndef HANSE_CONTROLPLANE_LEADER_SITE_SITES_H
#define HANSE_CONTROLPLANE_LEADER_SITE_SITES_H

#include "controlplane/leader/context/context.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/recover/sweep.h"
#include "controlplane/leader/site/facts.h"

#define REFUSALS_TOLD 1024 /* runs and reasons that are remembered */
struct refusal_told {
    uint64_t hash, at_ms, count; /* since then; 0: none */
};
struct sites {
    struct list all;
    void *by_name;
    uint64_t made;          /* the last site.number that was given */
    struct home_door *door; /* runners.c: NULL until the first runner comes */
    struct refusal_told refused[REFUSALS_TOLD]; /* runners.c: of whom the log has heard */
    unsigned claiming;      /* runners whose claims are on their way into the log */
    struct list views;      /* logs/: logs that are read from stores; viewing: on threads */
    unsigned n_views, viewing;
    unsigned n_details;     /* details.c: targets that are asked what there is of a run */
    struct kept_queue *keeping; /* runners.c: what runners print, on its way into stores; or NULL */
};

struct site_agent { /* a part of spec.agents, as its connector told it last */
    char name[64], state[64], why[256];
    bool reached;
    /* what it last told the state in this term */
    bool told, told_reached;
    char told_state[64];
};

struct site { /* one Target, and the connector that drives it */
    struct brain *brain;
    char name[256];
    uint64_t number; /* unique, also among sites of the same name */
    /* owned; NULL: this build has no driver for the type, or it failed */
    struct connector *connector;
    struct object *doc; /* the Target as the root has it; holds a reference */

    /* sites.c: reach */
    struct list link;
    struct indexed by_name;
    bool reachable, suspect; /* suspect: silent for partition.suspectAfter */
    uint64_t session;        /* counts sessions of this site; 0: never reached in this term */
    char session_id[64], why[256], error[256];
    /* agent: the state folder of the agent that speaks for it; "": not known. rival: why another
     * agent was turned away; "": none was. */
    char agent[64], rival[512];
    bool answers;        /* its connector says that it is in reach, */
    char answers_id[64]; /* in that session; speakers.c may have it otherwise */
    uint64_t rival_ms; /* loop time at which the rival last came */
    uint64_t last_contact_ms, lost_at_ms;
    struct timer silence;
    bool gone; /* waits for its last answers, then is freed */

    /* sites.c: leases */
    struct timer renew;
    bool confirming, renew_again; /* renew_again: who came meanwhile is not among those renewed */
    /* renewals: number sent; confirm_from_ms: loop time of the question to the majority */
    uint64_t renewals, confirm_from_ms;
    uint64_t shortest_ms; /* the shortest lease that a run on it may hold */
    uint64_t renew_at_ms; /* loop time of the next renewal */
    /* pause after a refused submit, which grows, and its end */
    uint64_t refused_ms, refused_until_ms;

    /* facts.c; told…: what it last told the state in this term */
    struct site_facts facts;
    struct timer facts_timer;
    struct brain_call inventory;
    bool inventory_calling;
    bool told, told_reachable;
    char told_agent[64], told_rival[512], told_why[256];
    uint64_t why_told_ms;
    bool why_due; /* it stays out of reach, for another reason than was told */

    /* speakers.c */
    struct site_agent *agents; /* of a Target with spec.agents; owned */
    size_t n_agents;

    /* drive/ */
    struct list drivers; /* drivers of the workloads that hold a place here */
    unsigned calls;      /* calls of its drivers under way */
    bool held_back;      /* a driver waits until one of them is answered */

    /* sweep.c */
    bool sweeping, sweep_due; /* due: the last was not answered, or an unknown run was seen */
    bool listed;       /* a sweep of this session is complete: each run is known or an orphan */
    bool lacks;        /* but for those of agents that were away: speakers.c */
    uint64_t lacks_since_ms;
    uint64_t swept_ms; /* loop time at which the last sweep began, */
    int64_t swept_at_ms; /* and the state's */
    struct run_key *doubts; /* keys that were listed and are not in the root; owned */
    size_t n_doubts;
    bool doubts_proved; /* a majority has confirmed since: doubts not in the root have no owner */

    struct site_unread unread; /* sweep.c */

    /* denials.c; denies: what it took back, "": nothing of late; told_denies: what it last told the
     * state */
    char denies[512], told_denies[512];
    uint64_t denies_ms; /* loop time at which it last did */

    /* finalize.c */
    struct run_key *finals; /* ended runs that it is to be told of; owned */
    size_t n_finals;
    struct site_final *final_calls; /* as many as may be at once (finalize.c); owned */
    unsigned finalizing;            /* of which are under way */
    struct timer final_again;
    uint64_t final_again_ms; /* pause after the last failure; 0: it did not fail */

    /* promises.c */
    bool letting;             /* the target is asked which keys it has promised to refuse */
    uint64_t letting_session; /* site.session in which it is asked */

    /* leave/leave.c */
    bool leave_proposing, leave_calling;
    struct brain_call leaving;
    uint64_t leave_again_ms;            /* loop time of the next look */
    uint64_t leave_since_ms;            /* loop time since which only that holds it; 0: not yet */
    uint64_t leave_told, leave_told_ms; /* hash of what people were told last, and when */

    /* cold.c */
    bool awaited; /* cold.c waits for it: the state has it as connected */

    /* orphans.c, acts.c */
    struct orphans orphans, found; /* of the last complete sweep; of the sweep under way */
    struct run_key *condemned;     /* keys of orphans that are to be ended; owned */
    size_t n_condemned;
};

void sites_init(struct brain *b);
void sites_reset(struct brain *b); /* makes a connector for each Target of the root */
void site_change(struct brain *b, const struct object *before, const struct object *after);
struct site *site_find(struct brain *b, const char *name);
/* Returns the site after t, or the first for NULL; NULL after the last. */
struct site *site_next(const struct brain *b, const struct site *t);
#define for_each_site(t, b) for (struct site *t = site_next(b, NULL); t; t = site_next(b, t))
/* Ends open sessions whose certificate is revoked; new sessions are checked when they come in. */
void sites_revoke(struct brain *b, const struct object *revocation);
void sites_drop(struct brain *b); /* the leadership is over: destroys all connectors */
void site_refused(struct site *t);
/* As connector_events.not_given, for people (leave/leave.c). */
void site_not_given(void *arg, const char *reason, const char *why);
void site_leave_look(struct site *t); /* leave/leave.c: the end of a Target */
bool site_stages(const struct site *t); /* it can be asked to, as connector_ops.stage */
uint64_t site_suspect_after(const struct site *t); /* ms of silence */
/* runners.c: of connector_env; arg: the site */
bool site_home(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
               struct home_order *ret);
bool site_tokens(void *arg, const struct run_key *k, uint32_t ranks, struct arena *a,
                 const char ***ret);
/* Of connector_env: the Secret of the row that names that principal, and no other. */
int site_principal_secret(void *arg, const char *principal, const char **ret,
                          struct err *err) MUST_CHECK;
void runners_fini(struct brain *b);
/* As its connector says; one that has an older twin stays out of reach. */
void site_reached(struct site *t, bool reachable, const char *session, const char *why);
/* Has an older Target the same server? Of connector_env; arg: the site. */
bool site_twin(void *arg, char why[256]);
void twins_look(struct brain *b); /* who speaks for a Target, or a Target, has changed */
void site_renew_soon(struct site *t); /* somebody has come whose lease may be nearly over */
/* Whom its runners that call home can dial by now (runners.c). */
void site_members_tell(struct site *t);
void site_pace(struct site *t, uint64_t lease_ms); /* makes renewals come in time for that lease */

/* Tells the target, a few at once and until it has heard, that the log has the end of that run; t
 * may be NULL. It must be so. */
void site_finalize(struct site *t, const struct run_key *k);
void site_finals_init(struct site *t);
void site_finals_drop(struct site *t);
void site_finals_free(struct site *t); /* no answer is awaited any more */

/* speakers.c */
void site_agent_told(struct site *t, const char *part, bool reached, const char *state_id,
                     const char *why);
/* Returns a part of which the state is not told, or NULL. */
struct site_agent *site_agent_due(const struct site *t);
/* From then on it counts as told. */
void site_agent_fill(struct site_agent *p, struct facts_cmd *c);
void site_agents_again(struct site *t);                          /* tells all of them again */
void site_agents_drop(struct site *t);
/* A sweep is complete; lacks: but for the runs of agents that were away. */
void site_lacks(struct site *t, bool lacks);
/* Names the state folders of the agents that speak for that place (NULL: none does); "": they are
 * not known. t may be NULL. */
void site_agent_of(const struct site *t, const struct placement *p, char ret[64]);

/* exec.c: what ran last of that workload, and where. */
int run_last(struct brain *b, const char *ns, const char *name, const struct object **ret,
             struct run_key *ret_key, const char **ret_target, struct err *err) MUST_CHECK;

/* Of connector_env; arg: the site. */
bool site_where(void *arg, const struct run_key *k, struct arena *a, struct run_where *ret);
void site_nodes_known(void *arg, const char *prefix,
                      void (*each)(void *each_arg, const struct node *n), void *each_arg);

#endif
