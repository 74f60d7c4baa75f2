/* Frames over a stream. Whole frames are handed out straight from the bytes that came; only a cut
 * one is kept. This file must never allocate for a length before it is known to be within the
 * limit. */
#include "api/base/net/frame.h"
#include "api/base/limits.h"

#include <string.h>

#define HEAD 16    /* with the length */
#define FOLLOWS 12 /* type, flags, reserved, id */
_Static_assert(FRAME_BODY_MAX + FOLLOWS == LIMIT_FRAME_MAX_BYTES, "a body and its header");
#define SEND_TOGETHER 16384

static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void put32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

void frame_reader_init(struct frame_reader *r)
{
    buf_init(&r->in, (size_t)LIMIT_FRAME_MAX_BYTES + 4);
    r->waits = false;
}

void frame_reader_fini(struct frame_reader *r)
{
    buf_fini(&r->in);
}

/* Bytes of the frame at p, 0 when that is not known yet, negative E_* when it can never be one. */
static int64_t frame_size(const unsigned char *p, size_t n, struct err *err)
{
    if (n < 4)
        return 0;
    uint32_t follows = get32(p);
    if (follows > LIMIT_FRAME_MAX_BYTES)
        return err_set(err, E_TOOLARGE, "a frame of %u bytes is over the limit of %d", follows,
                       LIMIT_FRAME_MAX_BYTES);
    if (follows < FOLLOWS)
        return err_set(err, E_SYNTAX, "a frame of %u bytes is too short for its header", follows);
    if (n >= 8 && (p[6] || p[7]))
        return err_set(err, E_SYNTAX, "a frame's reserved bytes are not zero");
    return (int64_t)follows + 4;
}

static int hand_out(const unsigned char *p, size_t size,
                    int (*each)(const struct frame *f, void *arg), void *arg)
{
    struct frame f = {.type = p[4],
                      .flags = p[5],
                      .id = (uint64_t)get32(p + 8) | (uint64_t)get32(p + 12) << 32,
                      .body = slice_make(p + HEAD, size - HEAD)};

    return each(&f, arg);
}

static int keep(struct frame_reader *r, const unsigned char *p, size_t n, struct err *err)
{
    if (n)
        buf_add(&r->in, p, n);
    return r->in.failed ? err_set(err, E_TOOLARGE, "more frames came than may wait") : 0;
}

/* Completes the frame of which a part is kept in r->in. *used: what was taken of p; *stop: what
 * each() said. */
static int feed_kept(struct frame_reader *r, const unsigned char *p, size_t n, size_t *used,
                     int (*each)(const struct frame *f, void *arg), void *arg, int *stop,
                     struct err *err)
{
    *used = 0;
    while (r->in.n) {
        size_t want = HEAD;
        int64_t size = frame_size((const unsigned char *)r->in.p, r->in.n, err);

        if (size < 0)
            return (int)size;
        if (r->in.n >= HEAD && size > 0)
            want = (size_t)size;
        if (r->in.n >= want) { /* the whole frame is here */
            struct buf whole = r->in;

            buf_init(&r->in, whole.max); /* each() may end the reader: it is not touched after */
            *stop = hand_out((const unsigned char *)whole.p, want, each, arg);
            buf_fini(&whole);
            return 0;
        }
        size_t take = want - r->in.n < n - *used ? want - r->in.n : n - *used;
        if (!take)
            return 0;
        buf_add(&r->in, p + *used, take);
        INV(!r->in.failed);
        *used += take;
    }
    return 0;
}

/* Hands out whole frames from where they are, and keeps what is left. */
static int feed_whole(struct frame_reader *r, const unsigned char *p, size_t n,
                      int (*each)(const struct frame *f, void *arg), void *arg, struct err *err)
{
    while (n) {
        int64_t size = frame_size(p, n, err);

        if (size < 0)
            return (int)size;
        if (size == 0 || (size_t)size > n)
            break;
        int stop = hand_out(p, (size_t)size, each, arg);
        if (stop && stop != FRAME_ENOUGH)
            return 0;
        p += size;
        n -= (size_t)size;
        if (stop) {
            r->waits = n > 0;
            break;
        }
    }
    return keep(r, p, n, err);
}

/* What waits goes first: whole frames, and perhaps a part of one. */
static int feed_waiting(struct frame_reader *r, const unsigned char *p, size_t n,
                        int (*each)(const struct frame *f, void *arg), void *arg, struct err *err)
{
    int rc = keep(r, p, n, err);
    struct buf kept = r->in;

    buf_init(&r->in, kept.max);
    r->waits = false;
    if (rc == 0)
        rc = feed_whole(r, (const unsigned char *)kept.p, kept.n, each, arg, err);
    buf_fini(&kept);
    return rc;
}

int frame_feed(struct frame_reader *r, const void *bytes, size_t n,
               int (*each)(const struct frame *f, void *arg), void *arg, struct err *err)
{
    const unsigned char *p = bytes;
    int stop = 0;
    size_t used;

    if (r->waits)
        return feed_waiting(r, p, n, each, arg, err);
    int rc = feed_kept(r, p, n, &used, each, arg, &stop, err);
    if (rc || (stop && stop != FRAME_ENOUGH))
        return rc;
    if (stop) {
        r->waits = n > used;
        return keep(r, p + used, n - used, err);
    }
    return feed_whole(r, p + used, n - used, each, arg, err);
}

void frame_send(struct stream *s, uint8_t type, uint8_t flags, uint64_t id, const void *body,
                size_t n)
{
    unsigned char out[SEND_TOGETHER];
    size_t first = n < sizeof out - HEAD ? n : sizeof out - HEAD;

    PRE(n <= FRAME_BODY_MAX);
    put32(out, (uint32_t)(n + FOLLOWS));
    out[4] = type;
    out[5] = flags;
    out[6] = out[7] = 0;
    put32(out + 8, (uint32_t)id);
    put32(out + 12, (uint32_t)(id >> 32));
    if (first)
        memcpy(out + HEAD, body, first);
    stream_write(s, out, HEAD + first);
    if (n > first)
        stream_write(s, (const char *)body + first, n - first);
}
