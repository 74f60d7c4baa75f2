/* Takes what nobody else may know out of a text that a target said: those who are refused an order
 * quote it. */
#ifndef HANSE_CONNECTORS_REPORT_HIDE_H
#define HANSE_CONNECTORS_REPORT_HIDE_H

#include <stddef.h>

/* Shorter values are not looked for: they are in many words. */
#define HIDE_LEAST 4
/* Replaces by *** each of those values (NULL: none), as it is and in base64, and of each token of a
 * runner its MAC, so that what is left names a run and proves nothing. */
void hide_values(char *text, const char *const *values, size_t n_values);
/* The same of a sentence, which may have been cut: also where it ends in the midst of a value. For
 * no key, name or cursor: these are whole, and an end of a few letters is their own. */
void hide_values_cut(char *text, const char *const *values, size_t n_values);

#endif
