/* The terminal of this process while a program elsewhere has it: what is typed goes there as it is,
 * Ctrl-C too. Whatever ends this process, or stops it, puts the terminal back first; only SIGKILL
 * and SIGSTOP cannot be heard. */
#ifndef HANSE_API_CLI_TERMINAL_H
#define HANSE_API_CLI_TERMINAL_H

#include "api/base/err.h"

#include <stdbool.h>

bool terminal_is(int fd);
/* Of standard input. Once in a process; terminal_restore, or the end of the process, takes it
 * back. */
int terminal_raw(struct err *err) MUST_CHECK;
void terminal_restore(void); /* harmless when it is not raw */
/* Of the terminal that standard input or output is; false: neither is one, or it has none.
 * At most 4096 each, which is what a server takes (api/server/README.md). */
bool terminal_size(unsigned *ret_rows, unsigned *ret_columns);

#endif
