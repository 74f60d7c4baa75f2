/* Denials: a target lists a run as alive that it had called ended. */
#ifndef HANSE_CONTROLPLANE_LEADER_RECOVER_DENIALS_H
#define HANSE_CONTROLPLANE_LEADER_RECOVER_DENIALS_H

#include "controlplane/leader/context/context.h"

struct site;
/* Does the log have the end of that run, by the target's own word, since a while before the sweep
 * that lists it as alive began (by the state's time)? */
bool denial_is(const struct root *r, const char *target, int64_t swept_at_ms,
               const struct run_listed *l);
/* The sweep has made sure of it, and ends the run. */
void denial_found(struct site *t, const struct run_listed *l);
/* The condition of its Target is lifted, some time after the last one. */
void denials_look(struct site *t);
/* Does a target list a run of that workload as alive whose end is in the log? Then no other one of
 * it starts. */
bool denial_lives(const struct brain *b, const char *uid);

#endif
