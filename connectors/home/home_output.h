/* The runner's side of logs: its program's output, in a file that is bounded, is copied to the
 * runner's own output, as it was where the program had that itself, and told to the hub, as far as
 * it asks. Who takes neither holds up neither the program nor the runner: what he is too slow for
 * goes with the front of the file. Private to connectors/home. */
#ifndef HANSE_CONNECTORS_HOME_HOME_OUTPUT_H
#define HANSE_CONNECTORS_HOME_HOME_OUTPUT_H

#include "connectors/home/home.h"

struct home_output;
/* In a folder of its own below TMPDIR or /tmp; NULL: none can be made there, and the program has
 * the runner's own output. */
struct home_output *home_output_create(struct loop *l);
const char *home_output_path(const struct home_output *o); /* NULL of NULL */
/* A frame of a stream; it is answered on `to`. */
void home_output_frame(struct home_output *o, struct stream *to, const struct frame *f);
void home_output_lost(struct home_output *o); /* the session is over: all streams are */
/* The program has ended: what is there is copied and told, then streams end. */
void home_output_over(struct home_output *o);
/* Is all copied and told? */
bool home_output_quiet(const struct home_output *o);
/* Removes the folder. What is being copied is left to the end of the process. */
struct home_output *home_output_destroy(struct home_output *o); /* accepts NULL */

#endif
