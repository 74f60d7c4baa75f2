/* The nodes and the reach of a Target, on their way into the log as FACTS. */
#ifndef HANSE_CONTROLPLANE_LEADER_SITE_FACTS_H
#define HANSE_CONTROLPLANE_LEADER_SITE_FACTS_H

#include "controlplane/leader/context/context.h"

struct site;
struct site_facts { /* what its connector reported of nodes, and is not in the log yet */
    /* nodes to propose; names that the listing under way has had */
    struct list due, named;
    void *due_by_name, *named_by_name; /* tsearch trees of the entries of both */
    size_t n_due, due_bytes, n_named;
    /* the listing is complete: once due is in the log, nodes not in `named` are gone */
    bool listing;
    bool proposing; /* a FACTS command is awaited */
    bool again;     /* a page was lost: ask for the inventory anew */
    /* hash of the last report of nodes: the same one is passed over */
    uint64_t committed_hash;
};

void site_facts_init(struct site *t);
void site_facts_drop(struct site *t);
/* True when reach, agent or rival differ from what the state was last told. */
bool site_facts_differ(const struct site *t);
void site_facts_soon(struct site *t); /* proposes its reach soon */
void site_inventory_ask(struct site *t);
/* Takes in nodes from its connector; complete: the listing ends with these. */
void site_nodes(struct site *t, const struct node *nodes, size_t n, bool complete);

#endif
