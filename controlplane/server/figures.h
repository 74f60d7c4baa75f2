/* Figures of status that follow from what others hold: how many workloads wait and run in a Queue,
 * how much of a Target or a Node is held. They are in no log entry: each is made when an object is
 * shown, from the very root that is read, so members that have applied the same say the same (what
 * queues have used: at the same minute). A
 * watch therefore never fires for them alone. */
#ifndef HANSE_CONTROLPLANE_SERVER_FIGURES_H
#define HANSE_CONTROLPLANE_SERVER_FIGURES_H

#include "controlplane/store/store.h"

struct figures; /* sums over the tree of queues of the root that was shown last */
struct figures *figures_destroy(struct figures *f);
/* o as it is to be shown; NULL: as it is. The caller lets go of it. *f is kept between calls (NULL
 * at first); one thread. */
struct object *figures_shown(struct figures **f, const struct root *r, int64_t now_ms,
                             const struct object *o);
/* {"targets": {NAME: {"gpus", "held"}}, "queues": {NAME: {"held"}}} in 1/1000 GPU, for the
 * operation `status`; a queue's own, without those below it. GPUs that are not ready are not
 * counted. */
struct cJSON;
void figures_print(const struct root *r, struct cJSON *pool);

#endif
