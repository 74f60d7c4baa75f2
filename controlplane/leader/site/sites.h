/* Targets as the brain sees them: one connector each, reach, leases, the brake. */
#ifndef HANSE_CONTROLPLANE_LEADER_SITE_SITES_H
#define HANSE_CONTROLPLANE_LEADER_SITE_SITES_H

#include "controlplane/leader/context/context.h"
#include "controlplane/leader/context/index.h"
#include "controlplane/leader/recover/orphans.h"
#include "controlplane/leader/site/facts.h"

struct sites {
    struct list all;
    void *by_name;
    uint64_t made; /* numbers given */
};

struct site { /* one Target document, and the connector that drives it */
    struct brain *brain;
    char name[256];
    uint64_t number;             /* no other site has it, one of the same name made anew neither */
    struct connector *connector; /* NULL: no driver for this type, or it could not be made */
    struct object *doc;

    /* sites.c: reach */
    struct list link;
    struct indexed by_name;
    bool reachable, suspect; /* suspect: silent for longer than partition.suspectAfter */
    uint64_t session;        /* counts sessions in this process; 0 = never reached in this term */
    char session_id[64], why[256], error[256];
    /* Whose memory speaks for it, "" = not known; why another one was turned away, "" = nobody
     * was. */
    char agent[64], rival[512];
    uint64_t rival_ms; /* when that one came last */
    uint64_t last_contact_ms, lost_at_ms;
    struct timer silence;
    bool gone; /* the answers on their way are awaited, then it is freed */

    /* sites.c: leases */
    struct timer renew;
    bool confirming;
    uint64_t renewals, confirm_from_ms;
    uint64_t shortest_ms; /* lease that something on it may hold */
    uint64_t renew_at_ms;
    uint64_t refused_ms, refused_until_ms; /* after a refused submit: a pause that grows */

    /* facts.c, and what it told the state last in this term */
    struct site_facts facts;
    struct timer facts_timer;
    struct call inventory;
    bool inventory_calling;
    bool told, told_reachable;
    char told_agent[64], told_rival[512];

    /* drive/ */
    struct list drivers; /* of the workloads that hold a place here */
    unsigned calls;      /* of drivers, under way */
    bool held_back;      /* some driver waits for one of them */

    /* sweep.c */
    bool sweeping, sweep_due; /* due: it was not answered, or something unknown was seen */
    bool listed;              /* in this session: all that runs there is known, or an orphan */
    uint64_t swept_ms;
    struct run_key *doubts; /* listed, and not in the root */
    size_t n_doubts;
    bool doubts_proved; /* what is doubted and not in the root now has no owner */

    /* promises.c */
    bool letting; /* it is asked what it promised to refuse */
    uint64_t letting_session;

    /* cold.c */
    bool awaited; /* by a hub that has just begun: the state has it as connected */

    /* orphans.c, acts.c */
    struct orphans orphans, found; /* as the last sweep found them; as one under way does */
    struct run_key *condemned;     /* orphans that somebody said are to be ended */
    size_t n_condemned;
};

void sites_init(struct brain *b);
void sites_reset(struct brain *b); /* a connector per Target of the root */
void site_change(struct brain *b, const struct object *before, const struct object *after);
struct site *site_find(struct brain *b, const char *name);
/* The one after t, the first one for NULL; NULL: that was the last. */
struct site *site_next(const struct brain *b, const struct site *t);
#define for_each_site(t, b) for (struct site *t = site_next(b, NULL); t; t = site_next(b, t))
/* Sessions that were let in before; new ones are judged where they come in. */
void sites_revoke(struct brain *b, const struct object *revocation);
void sites_drop(struct brain *b); /* leadership is over: all connectors are destroyed */
void site_refused(struct site *t);
void site_pace(struct site *t, uint64_t lease_ms); /* renewals come in time for that lease */

#endif
