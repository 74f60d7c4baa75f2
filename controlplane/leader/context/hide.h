/* Takes the Secrets of an order out of what targets say. */
#ifndef HANSE_CONTROLPLANE_LEADER_CONTEXT_HIDE_H
#define HANSE_CONTROLPLANE_LEADER_CONTEXT_HIDE_H

#include "connectors/report/hide.h"
#include "controlplane/leader/context/context.h"

/* Replaces by *** each value of at least HIDE_LEAST bytes that spec.run.env of the workload takes
 * from a Secret, what its target's own Secret has of the kind, what its principal's has, and tokens
 * of runners; also what a value begins with where the text ends in the midst of it. */
void hide_text(struct brain *b, const struct object *workload, char *text);
/* The same of many texts, for which the Secrets are opened once. */
struct hidden;
struct hidden *hide_open(struct brain *b, const struct object *workload);
void hide_with(const struct hidden *h, char *text); /* NULL: as hide_controls */
struct hidden *hide_close(struct hidden *h);        /* accepts NULL; returns NULL */
/* The same of a reason or an id. What it ends with is its own, unless it fills its room of `size`
 * bytes, and may have been cut. */
void hide_word(struct brain *b, const struct object *workload, char *word, size_t size);
/* the same in the texts of an observation */
void hide_observation(struct brain *b, const struct object *workload, struct observation *o);
void hide_controls(char *text); /* tokens and control codes alone, of what knows no Secret */

#endif
