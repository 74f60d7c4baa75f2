/* What the connector of a Target has told of its nodes: pages of listings and deltas come in, nodes
 * that the log does not have yet go out. Of a node that is in the log only its name and a hash are
 * kept. */
#ifndef HANSE_CONTROLPLANE_LEADER_SITE_LISTING_H
#define HANSE_CONTROLPLANE_LEADER_SITE_LISTING_H

#include "api/base/list.h"
#include "connectors/connector.h"
#include "controlplane/leader/context/index.h"

#define LISTING_DUE_MAX_BYTES ((size_t)64 << 20) /* of one Target, not yet in the log */

enum listing_stage {
    LISTING_NONE,
    LISTING_OPEN, /* its pages come */
    LISTING_ENDED /* it is complete; once all that is due is in the log, other nodes are gone */
};
enum node_word { NODE_TOLD, NODE_DUE, NODE_LEAVES };
struct node_told {           /* the newest word of a node */
    struct list link, waits; /* listing.told; listing.due or listing.leaves, as `word` says */
    struct indexed by_name;
    uint64_t hash;    /* of what was told last; 0: it is told again, whatever it says */
    uint64_t listing; /* number of the listing that named it last */
    enum node_word word;
    unsigned char *bytes; /* NODE_DUE: n encoded bytes; owned */
    size_t n;
    char name[];
};
struct unreadable { /* a node that could not be read when it was told last */
    struct list link;
    struct indexed by_name;
    uint64_t listing; /* number of the listing that, or a delta since, refused it last */
    char *why;        /* owned */
    char name[];
};
struct listing {
    struct list told, due, leaves, refused;
    void *by_name, *refused_by_name; /* indexes of told, of refused */
    size_t n_refused;
    bool listed; /* a listing has come to its end: nodes that are not refused can be read */
    size_t n_told, n_due, n_leaves, due_bytes;
    uint64_t number; /* of the newest listing */
    size_t n_named;  /* nodes that it has named, and deltas since */
    enum listing_stage stage;
    bool lacks; /* it could not name all: it removes none */
    bool empty; /* the log has heard that there is no node at all */
    bool counts;    /* nodes may count devices: all members know that */
    bool uncounted; /* one did before that */
    char revision[INVENTORY_REVISION_MAX + 1];
};

void listing_init(struct listing *l);
void listing_fini(struct listing *l);
/* Takes in a page; told_again: also nodes that say what they said before. On an error the rest of
 * the page is taken in, but for E_CONFLICT: a delta that builds on another revision, of which
 * nothing is. E_TOOLARGE: nodes were left out, and the listing removes none. */
int listing_take(struct listing *l, const struct inventory_page *p, bool told_again,
                 struct err *err) MUST_CHECK;
/* The session is another one: what is not complete ends, and no delta fits. */
void listing_cut(struct listing *l);
/* What went to the log is lost: nothing is taken to be in it, and no delta fits. */
void listing_forget(struct listing *l);
/* All of it is in the log. */
void listing_done(struct listing *l);
/* What is due first, or NULL; listing_pop takes it off. Its bytes go with the next call. */
const struct node_told *listing_due(const struct listing *l);
const struct node_told *listing_leaves(const struct listing *l);
void listing_pop(struct listing *l, const struct node_told *d);
/* What people are to be told of nodes that cannot be read; "": there are none. False: it cannot be
 * told yet, since no listing has come to its end. */
bool listing_refused(const struct listing *l, char *out, size_t size);
/* True when the newest listing, or a delta since, has named that node. */
bool listing_names(const struct listing *l, const char *name);

#endif
