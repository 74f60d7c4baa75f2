/* Figures of status that follow from other objects: how many workloads wait and run in a Queue, how
 * much of a Target or a Node is held. No log entry has them: each is computed when an object is
 * shown, from the root that is read, so members that have applied the same entries show the same
 * (what queues have used: at the same minute). A watch therefore never fires for them alone. */
#ifndef HANSE_CONTROLPLANE_SERVER_FIGURES_H
#define HANSE_CONTROLPLANE_SERVER_FIGURES_H

#include "controlplane/store/store.h"

struct figures; /* sums over the tree of queues, for the root that was shown last */
struct figures *figures_destroy(struct figures *f);
/* Returns a reference to o as it is to be shown, or NULL: as it is. *f is kept between calls (NULL
 * at first), on one thread. */
struct object *figures_shown(struct figures **f, const struct root *r, int64_t now_ms,
                             const struct object *o);
/* Adds {"targets": {NAME: {"gpus", "held"}}, "queues": {NAME: {"held"}}} in milli-GPU, for the
 * operation `status`. A queue's figure excludes its children; GPUs that are not ready are not
 * counted. */
struct cJSON;
void figures_print(const struct root *r, struct cJSON *pool);

#endif
