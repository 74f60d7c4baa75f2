/* A ring of two keys, tokens that it makes, and what is expected of a report's reader. */
#ifndef HANSE_TESTS_SUPPORT_REPORT_KIT_H
#define HANSE_TESTS_SUPPORT_REPORT_KIT_H

#include "connectors/report/report.h"

/* Key 0 is the newest, which signs; the other one was the newest before. `ring_new`: another ring,
 * of which none was. */
extern const struct home_keys report_kit_keys, report_kit_others;
struct home_token report_kit_token(void); /* uid-1.3.2, rank 1 of 4 */
/* by: of the key that signs it, as in home_keys.again */
void report_kit_token_text(const struct home_token *t, unsigned by, char ret[HOME_TOKEN_MAX]);
/* As report_line_read, for the runner of report_kit_token(). */
int report_kit_read(const char *text, size_t n, struct report_line *ret);

#endif
