/* Golden files: texts in tests/golden that a later version still has to read, or to say. A test
 * goes through its file line by line. HANSE_GOLDEN_WRITE=1 writes them anew instead; the diff is
 * looked at before it is committed. */
#ifndef HANSE_TESTS_SUPPORT_GOLDEN_GOLDEN_H
#define HANSE_TESTS_SUPPORT_GOLDEN_GOLDEN_H

#include <stdbool.h>
#include <stdio.h>

#define GOLDEN_LINE_MAX 256
struct golden {
    FILE *f;
    const char *name; /* borrowed */
};
bool golden_writes(void); /* is HANSE_GOLDEN_WRITE set? */
/* tests/golden/NAME, seen from the top folder; a file that is not there fails the test. */
void golden_open(struct golden *g, const char *name);
/* The next line is `line`, which ends in \n. */
void golden_next(struct golden *g, const char *line);
/* Any line is. */
void golden_holds(struct golden *g, const char *line);
void golden_close(struct golden *g, bool all); /* all: nothing may be left in it */

#endif
