/* An S3 for one test: s3/server.py as a process of its own, and kit_at (checkpoint_kit.h) told to
 * use it. What it can be told is in that file. */
#ifndef HANSE_TESTS_SUPPORT_S3_KIT_H
#define HANSE_TESTS_SUPPORT_S3_KIT_H

#include "tests/support/checkpoint_kit.h"

#define S3_KIT_PREFIX                                                                              \
    "pre fix/j\xc3\xb6"                                                                            \
    "b+1"
#define S3_KIT_SECRET "a secret/with+odd=characters"

int s3_kit_setup(void **state);
int s3_kit_teardown(void **state);
/* Says a line to the server; what it answers, lines as they came, until the next call. */
const char *s3_kit_say(const char *fmt, ...) PRINTF_LIKE(1, 2);
void s3_kit_machine(const char *name); /* from now on, kit_at is of another machine */
/* "NAME=value" instead of what the server's own environment says; NULL: back to that. */
void s3_kit_env(const char *text);
unsigned s3_kit_count(const char *lines, const char *text); /* lines that contain the text */

#define S3T(f) cmocka_unit_test_setup_teardown(f, s3_kit_setup, s3_kit_teardown)

#endif
