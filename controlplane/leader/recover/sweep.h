/* Sweeps: each run that a target lists is owned, let go (and then ended), or an orphan. */
#ifndef HANSE_CONTROLPLANE_LEADER_RECOVER_SWEEP_H
#define HANSE_CONTROLPLANE_LEADER_RECOVER_SWEEP_H

#include "controlplane/leader/recover/orphans.h"

void site_sweep(struct site *t);
void sites_sweep(struct brain *b);
enum orphan_why sweep_why(const struct root *r, const struct run_listed *l);
bool sweep_from_our_future(const struct root *r, const struct run_listed *l);

#endif
