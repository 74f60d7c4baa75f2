/* Notices: what a Target says of nodes that will go away, on its way into the log. */
#ifndef HANSE_CONTROLPLANE_LEADER_SITE_NOTICES_H
#define HANSE_CONTROLPLANE_LEADER_SITE_NOTICES_H

#include "connectors/connector.h"

#include <stddef.h>

struct site;
struct root;
struct site_notices { /* all that its connector told last, sorted by node; not known before that */
    struct notice_told *v;
    size_t n;
    bool known;
    bool due; /* the state may say something else */
};

/* Takes in all notices that a connector holds of its target. */
void site_notices(struct site *t, const struct notice *v, size_t n);
/* Fills nodes (max of them, in arena a) with those whose notice the state has otherwise, as
 * facts_cmd.noticed wants them. Returns their number; 0: the state says the same. */
size_t site_notices_due(struct site *t, struct arena *a, struct node *nodes, size_t max);
void site_notices_drop(struct site *t);

#endif
