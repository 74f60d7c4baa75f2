/* Takes the Secrets of an order out of what targets say. */
#ifndef HANSE_CONTROLPLANE_LEADER_CONTEXT_HIDE_H
#define HANSE_CONTROLPLANE_LEADER_CONTEXT_HIDE_H

#include "controlplane/leader/context/context.h"

/* Replaces by *** each value of at least HIDE_LEAST bytes that spec.run.env of the workload takes
 * from a Secret, and what a value begins with where the text ends in the midst of it. */
#define HIDE_LEAST 4
void hide_text(struct brain *b, const struct object *workload, char *text);
/* the same in the texts of an observation */
void hide_observation(struct brain *b, const struct object *workload, struct observation *o);
void hide_controls(char *text); /* control codes alone, of what knows no Secret */

#endif
