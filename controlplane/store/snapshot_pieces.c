/* The pieces of a snapshot: zlib-compressed runs of whole fields, each with its length, its
 * checksum and its place, so that neither writing nor reading ever holds more than one of them
 * unpacked.
 *
 *   u32 bytes unpacked  u32 bytes packed  u32 crc32 of the packed bytes  u32 place, from 1   bytes
 *   the last one:  0  0  crc32 of all checksums before it, in order  place
 *
 * This file must never believe a length: a piece that says more than it is is refused before it is
 * unpacked. */
#include "controlplane/store/store_internal.h"

#include <zlib.h>

#define PIECE_HEAD 16
#define PIECE_MAX ((size_t)64 << 20) /* one field of the largest kind, and a piece */
#define LEVEL 1                      /* the rest costs more time than it saves */

void pieces_begin(struct pieces_out *s, snapshot_piece_cb piece, void *arg, const void *head,
                  size_t n)
{
    *s = (struct pieces_out){.piece = piece, .arg = arg};
    buf_init(&s->packed, PIECE_HEAD + 2 * PIECE_MAX);
    s->failed = !piece(arg, head, n);
}

static void emit(struct pieces_out *s, unsigned char *head, size_t n)
{
    unsigned char sum[4];

    le_put_u32(head + 12, ++s->place);
    memcpy(sum, head + 8, sizeof sum);
    s->sums = (uint32_t)crc32(s->sums, sum, sizeof sum);
    s->failed |= !s->piece(s->arg, head, n);
}

void pieces_put(struct pieces_out *s, const void *p, size_t n)
{
    uLongf packed = compressBound((uLong)n);
    unsigned char *out;

    if (s->failed)
        return;
    buf_reset(&s->packed);
    out = n <= PIECE_MAX ? (unsigned char *)buf_reserve(&s->packed, PIECE_HEAD + packed) : NULL;
    if (!out || compress2(out + PIECE_HEAD, &packed, p, (uLong)n, LEVEL) != Z_OK) {
        s->too_large = s->failed = true;
        return;
    }
    le_put_u32(out, (uint32_t)n);
    le_put_u32(out + 4, (uint32_t)packed);
    le_put_u32(out + 8, (uint32_t)crc32(0, out + PIECE_HEAD, (uInt)packed));
    emit(s, out, PIECE_HEAD + packed);
}

int pieces_end(struct pieces_out *s, struct err *err)
{
    unsigned char head[PIECE_HEAD] = {0};

    le_put_u32(head + 8, s->sums);
    if (!s->failed)
        emit(s, head, sizeof head);
    buf_fini(&s->packed);
    if (s->too_large)
        return err_set(err, E_TOOLARGE, "one field of the state is larger than %zu MiB",
                       PIECE_MAX >> 20);
    return s->failed ? err_set(err, E_NOMEM, "there is no room for the snapshot") : 0;
}

/* ---- reading ---- */
#define BAD(err, what) err_set((err), E_CORRUPT, "snapshot: %s", (what))

static int piece_unpack(struct buf *out, const unsigned char *p, size_t packed, size_t unpacked)
{
    uLongf n = (uLongf)unpacked;

    buf_reset(out);
    char *to = buf_reserve(out, unpacked);
    if (!to || uncompress((unsigned char *)to, &n, p, (uLong)packed) != Z_OK || n != unpacked)
        return E_CORRUPT;
    out->n = unpacked;
    return 0;
}

int pieces_read(struct slice in, int (*fields)(void *arg, struct slice piece), void *arg,
                struct err *err)
{
    const unsigned char *p = in.p;
    uint32_t place = 0, sums = 0;
    AUTO_BUF out;
    int r;

    buf_init(&out, PIECE_MAX + 1);
    for (size_t left = in.n;;) {
        if (left < PIECE_HEAD)
            return BAD(err, "its end is missing");
        uint32_t unpacked = le_get_u32(p), packed = le_get_u32(p + 4), crc = le_get_u32(p + 8);
        if (le_get_u32(p + 12) != ++place)
            return BAD(err, "a piece is missing");
        if (!unpacked) {
            if (packed || left != PIECE_HEAD || crc != sums)
                return BAD(err, "what follows its end, or came before, is not its own");
            return 0;
        }
        if (unpacked > PIECE_MAX || packed > left - PIECE_HEAD ||
            crc != (uint32_t)crc32(0, p + PIECE_HEAD, packed))
            return BAD(err, "a piece is torn: its checksum does not match");
        sums = (uint32_t)crc32(sums, p + 8, 4);
        if (piece_unpack(&out, p + PIECE_HEAD, packed, unpacked))
            return BAD(err, "a piece cannot be unpacked");
        if ((r = fields(arg, slice_make(out.p, out.n))) < 0)
            return r;
        p += PIECE_HEAD + packed;
        left -= PIECE_HEAD + packed;
    }
}
