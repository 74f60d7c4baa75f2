/* Nodes and reach of a Target, on their way into the log. */
#ifndef HANSE_CONTROLPLANE_LEADER_SITE_FACTS_H
#define HANSE_CONTROLPLANE_LEADER_SITE_FACTS_H

#include "controlplane/leader/context/context.h"

struct site;
struct site_facts { /* what is told of nodes, and not in the log yet */
    struct list due, named;
    void *due_by_name, *named_by_name;
    size_t n_due, due_bytes, n_named;
    bool listing;   /* `named` are all there are: once due is told, others are gone */
    bool proposing; /* one FACTS is on its way into the log */
    bool again;     /* something was lost on its way: the inventory is asked for anew */
    uint64_t committed_hash;
};

void site_facts_init(struct site *t);
void site_facts_drop(struct site *t);
/* Reach, agent or rival are not as the state was told last. */
bool site_facts_differ(const struct site *t);
void site_facts_soon(struct site *t); /* its reach is told */
void site_inventory_ask(struct site *t);
/* Told by its connector: all there are, or some. */
void site_nodes(struct site *t, const struct node *nodes, size_t n, bool complete);

#endif
