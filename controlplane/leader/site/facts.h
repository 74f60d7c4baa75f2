/* The nodes and the reach of a Target, on their way into the log as FACTS. */
#ifndef HANSE_CONTROLPLANE_LEADER_SITE_FACTS_H
#define HANSE_CONTROLPLANE_LEADER_SITE_FACTS_H

#include "controlplane/leader/context/context.h"
#include "controlplane/leader/site/listing.h"
#include "controlplane/leader/site/notices.h"

struct site;
struct site_facts {
    struct listing nodes; /* what its connector reported of nodes */
    bool proposing;       /* a FACTS command is awaited */
    bool again;           /* something was lost: ask for the inventory anew */
    bool keeps;           /* the state may have nodes that are kept for what is held on them */
    struct site_notices notices;
    char said[256]; /* what the log was last told of its inventory, and when, by the loop */
    uint64_t said_ms;
    bool refused_told; /* of nodes that cannot be read the state was told: told_refused */
    char told_refused[512];
};

void site_facts_init(struct site *t);
void site_facts_drop(struct site *t);
/* True when reach, agent or rival differ from what the state was last told. */
bool site_facts_differ(const struct site *t);
void site_facts_look(struct site *t); /* now and then: what has become old, or others */
void site_facts_soon(struct site *t); /* proposes its reach soon */
void site_kept_look(struct site *t);  /* those on which nothing is held any more go */
void site_inventory_ask(struct site *t);
/* Takes in what its connector tells of its nodes. */
void site_nodes(struct site *t, const struct inventory_page *p);
void site_nodes_cut(struct site *t); /* its session is another one */

#endif
