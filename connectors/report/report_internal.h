/* What the files of this folder share, and what a writer of reports asks of its kernel. Private to
 * connectors/report. */
#ifndef HANSE_CONNECTORS_REPORT_REPORT_INTERNAL_H
#define HANSE_CONNECTORS_REPORT_REPORT_INTERNAL_H

#include "connectors/report/report.h"

#include <stddef.h>

/* Of last words that may be anything: makes them UTF-8 without control characters, in place
 * (line.c). */
void report_text_clean(char *s);

#define REPORT_TOOL_MAX 4096

/* These return 0 or errno. */
/* Writes a file that may be a mount point of its own, as a termination log is: in place, so that
 * whoever reads at any moment finds the one line whole or the other. Never through a link, nor into
 * anything that is no file: its program may have put that there. n 0: only looks whether it can,
 * and leaves what is there. */
int report_in_place(const char *path, const char *text, size_t n);
/* What a file begins with, never of a link nor of anything that is no file. */
int report_there(const char *path, char ret[REPORT_LINE_MAX], size_t *ret_n);
/* Writes anything that can be opened for writing: a pipe, too. It may block on one. */
int report_plainly(const char *path, const char *text, size_t n);
int report_folder_look(const char *path); /* can files be made beside that one? */
/* The first program of that name in PATH. */
int report_tool_find(const char *name, char ret[REPORT_TOOL_MAX]);

#endif
