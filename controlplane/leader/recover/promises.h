/* What targets promised to refuse, and this cluster's own log let go, they may forget. */
#ifndef HANSE_CONTROLPLANE_LEADER_RECOVER_PROMISES_H
#define HANSE_CONTROLPLANE_LEADER_RECOVER_PROMISES_H

#include "controlplane/leader/context/context.h"

struct site;
void site_promises(struct site *t);
bool promise_let_go(const struct root *r, const struct run_promise *p);

#endif
