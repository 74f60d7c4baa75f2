/* The runner's side of logs: its program's output, in a file that is bounded, is copied to the
 * runner's own output, as it was where the program had that itself. Who does not take it holds up
 * neither the program nor the runner: what he is too slow for goes with the front of the file. The
 * hub reads the file by connectors/streams. Private to connectors/home. */
#ifndef HANSE_CONNECTORS_HOME_HOME_OUTPUT_H
#define HANSE_CONNECTORS_HOME_HOME_OUTPUT_H

#include "connectors/home/home.h"

struct home_output;
/* In that folder, which is this user's alone. */
struct home_output *home_output_create(struct loop *l, const char *dir);
/* All accept NULL: the program has the runner's own output. */
const char *home_output_path(const struct home_output *o); /* NULL of NULL */
void home_output_over(struct home_output *o); /* the program has ended: what is there is copied */
bool home_output_is_over(const struct home_output *o);
bool home_output_quiet(const struct home_output *o); /* all is copied */
/* What is being copied is left to the end of the process. */
struct home_output *home_output_destroy(struct home_output *o);

#endif
