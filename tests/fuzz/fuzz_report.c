/* Fuzz target: bytes as what a runner has left behind. Its program may have written them: none of
 * them may be taken for a report but one that was printed with the token. */
#include "tests/support/report/report_kit.h"

#include <string.h>

int fuzz_report(const uint8_t *data, size_t size);

/* Set by who tries a text that holds: it may be believed, and nothing else. */
static struct slice fuzz_report_good;

int fuzz_report(const uint8_t *data, size_t size)
{
    struct report_line line = {.number = -1};
    int rc = report_kit_read((const char *)data, size, &line);

    INV(rc == 0 || line.number == -1);
    INV(rc == 0 || rc == E_SYNTAX || rc == E_TOOLARGE || rc == E_NOTIMPL || rc == E_CONFLICT ||
        rc == E_UNAUTH);
    if (rc == 0) /* what is behind its end is nobody's */
        INV(fuzz_report_good.n && size >= fuzz_report_good.n - 1 &&
            memcmp(data, fuzz_report_good.p, fuzz_report_good.n - 1) == 0);
    return rc;
}

#ifndef FUZZ_IN_TEST
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)fuzz_report(data, size);
    return 0;
}
#endif
