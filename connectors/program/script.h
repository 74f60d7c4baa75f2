/* How a run's script is started: as its first line says. */
#ifndef HANSE_CONNECTORS_PROGRAM_SCRIPT_H
#define HANSE_CONNECTORS_PROGRAM_SCRIPT_H

#include "api/base/mem.h"

/* "" is none. E_INVALID: its first line is #! and names no program. */
int script_check(const char *script, struct err *err) MUST_CHECK;
#define SCRIPT_ARGS 3
/* Fills in the command of a script that lies at `path`: the interpreter, its one argument if it has
 * one, the path. Returns how many. They are in the arena, or borrowed. */
size_t script_argv(const char *script, const char *path, struct arena *a, const char **ret);

#endif
