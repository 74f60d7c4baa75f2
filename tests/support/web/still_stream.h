/* Connections on a still loop (still_loop.h): what a test dials leads to the test itself, which
 * reads what was sent and says what comes back. One at a time; names and TLS are not looked at. */
#ifndef HANSE_TESTS_SUPPORT_WEB_STILL_STREAM_H
#define HANSE_TESTS_SUPPORT_WEB_STILL_STREAM_H

#include "api/base/loop/loop.h"

struct still_stream {
    struct stream base; /* first */
    struct loop_ops ops;
    const struct loop_ops *before;
    char address[300];
    bool dialed, open, paused, ended; /* ended: by our side, and the other hears of it */
    bool opens;                       /* it opens by itself */
    unsigned n_dialed;
    size_t pending; /* bytes that the other side has not taken */
    struct buf sent;
    struct timer opening, closing;
    struct err why;
};
extern struct still_stream still_stream;

void still_stream_begin(struct loop *l);
void still_stream_end(struct loop *l);
void still_stream_say(const void *p, size_t n); /* once it is open */
void still_stream_lose(const char *why);        /* NULL: the other side ends it rightly */

#endif
