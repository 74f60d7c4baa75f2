/* What a stream of a run (logs, exec, a forwarded port) says: the sink of tests, for one stream at
 * a time. It fails the test when the order is not that of struct log_sink. */
#ifndef HANSE_TESTS_HOME_HEARD_H
#define HANSE_TESTS_HOME_HEARD_H

#include "connectors/connector.h"

struct heard { /* of the last stream */
    char text[65536]; /* as much of it as there is room for */
    size_t n, bytes;  /* in text; of all */
    unsigned opened, ends, eofs;
    int exit_code;
    struct err err;
    bool full; /* said to who asks whether there is room */
    struct log_at first, last; /* where it was said to be, */
    unsigned told;             /* so often */
};
extern struct heard heard;
extern const struct log_sink heard_sink;

#endif
