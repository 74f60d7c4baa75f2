/* Lets targets forget promises to refuse a key that this cluster's own log has let go. */
#ifndef HANSE_CONTROLPLANE_LEADER_RECOVER_PROMISES_H
#define HANSE_CONTROLPLANE_LEADER_RECOVER_PROMISES_H

#include "controlplane/leader/context/context.h"

struct site;
void site_promises(struct site *t);
bool promise_let_go(const struct root *r, const struct run_promise *p);

#endif
