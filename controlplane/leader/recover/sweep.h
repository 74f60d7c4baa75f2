/* Sweeps: each run that a target lists is owned, let go (and then ended), or an orphan. */
#ifndef HANSE_CONTROLPLANE_LEADER_RECOVER_SWEEP_H
#define HANSE_CONTROLPLANE_LEADER_RECOVER_SWEEP_H

#include "controlplane/leader/recover/orphans.h"

void site_sweep(struct site *t);
void sites_sweep(struct brain *b);
enum orphan_why sweep_why(const struct root *r, const struct run_listed *l);
bool sweep_from_our_future(const struct root *r, const struct run_listed *l);
/* True when the log has the end of a listed run and its target has not heard so: a leader before
 * this one may not have told it. */
bool sweep_unfinished(const struct root *r, const struct run_listed *l);

#endif
