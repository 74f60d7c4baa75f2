/* The frames that a server speaks after it has switched protocols, for exec and for a forwarded
 * port: u8 type, u32 big-endian length, bytes. */
#ifndef HANSE_API_CLI_FRAMES_H
#define HANSE_API_CLI_FRAMES_H

#include "api/base/loop/loop.h"

enum frame_type {
    FRAME_IN = 0, /* to the program; an empty one is the end of its input */
    FRAME_OUT = 1, /* from it; of a port, an empty one says that nothing more comes */
    FRAME_ERR = 2,
    FRAME_STATUS = 3, /* how it ended, as JSON: the last one */
    FRAME_SIZE = 4,   /* u16 rows, u16 columns of its terminal */
    FRAME_PLACE = 5   /* of a log: where it is behind all that came, as JSON */
};
#define FRAME_MAX_BYTES (1u << 20)

/* in: what has come and is not read yet, of twice FRAME_MAX_BYTES at least. Calls each() for every
 * whole frame; false: the server sent one that is too large. */
bool frames_take(struct buf *in, const void *p, size_t n,
                 void (*each)(void *arg, enum frame_type type, const char *p, size_t n), void *arg);
void frames_send(struct stream *st, enum frame_type type, const void *p, size_t n);

/* What a FRAME_STATUS says: the exit code, and an error when the program did not run or its end is
 * not known. */
struct frames_end {
    bool told; /* there was an exit code */
    int exit_code;
};
void frames_end_read(const char *json, size_t n, struct frames_end *ret, struct err *ret_why);

#endif
