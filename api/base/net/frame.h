/* Frames: how members and agents talk over a stream. u32 length (of what follows), u8 type, u8
 * flags, u16 reserved 0, u64 id, then the body; all little-endian. Answers carry the id of the
 * question. A frame longer than LIMIT_FRAME_MAX_BYTES ends the connection before it is read. */
#ifndef HANSE_API_BASE_FRAME_H
#define HANSE_API_BASE_FRAME_H

#include "api/base/limits.h"
#include "api/base/loop/loop.h"

#define FRAME_BODY_MAX (LIMIT_FRAME_MAX_BYTES - 12) /* the limit counts type, flags and id, too */
struct frame {
    uint8_t type, flags;
    uint64_t id;
    struct slice body; /* borrowed for the call */
};
struct frame_reader {
    struct buf in; /* a cut frame; while `waits` whole ones, too */
    bool waits;    /* each() had enough, and more has come already */
};
#define FRAME_ENOUGH 2 /* of each(): the frames behind it wait for the next call */
void frame_reader_init(struct frame_reader *r);
void frame_reader_fini(struct frame_reader *r);
/* Feeds bytes; calls each() for each whole frame. each() returns 0 to go on, FRAME_ENOUGH, or
 * another number to stop for good: the stream was closed, and the reader is not looked at. When
 * r->waits afterwards the caller pauses the stream and feeds nothing (n = 0) in its next turn.
 * Negative E_* on a malformed or over-long frame: the caller aborts the stream. */
int frame_feed(struct frame_reader *r, const void *p, size_t n,
               int (*each)(const struct frame *f, void *arg), void *arg,
               struct err *err) MUST_CHECK;
/* n is at most FRAME_BODY_MAX: who sends what others have made looks first. */
void frame_send(struct stream *s, uint8_t type, uint8_t flags, uint64_t id, const void *body,
                size_t n);

#endif
