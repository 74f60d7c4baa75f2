/* Fuzz target: bytes as a snapshot. Length and checksum are made right first, so that what lies
 * behind them is met. In version 3 byte 12 says how: 0, as they are; 1, what follows the head is
 * fields, and is packed into a piece; 2, into two, cut anywhere; 3, packed, and one byte of it is
 * then another. */
#include "controlplane/store/store_internal.h"

#include <zlib.h>

int fuzz_snapshot(const uint8_t *data, size_t size);

static bool piece_taken(void *arg, const void *p, size_t n)
{
    buf_add(arg, p, n);
    return true;
}

static void packed(const uint8_t *data, size_t size, struct buf *b)
{
    size_t n = size - 24, cut = (data[12] & 3) == 2 ? le_get_u32(data + 16) % (n + 1) : n;
    struct pieces_out out;
    struct err e;

    pieces_begin(&out, piece_taken, b, data, 24);
    if (cut)
        pieces_put(&out, data + 24, cut);
    if (cut < n)
        pieces_put(&out, data + 24 + cut, n - cut);
    (void)!pieces_end(&out, &e);
    if ((data[12] & 3) == 3)
        b->p[24 + le_get_u32(data + 16) % (b->n - 24)] ^= (char)(data[13] | 1);
}

int fuzz_snapshot(const uint8_t *data, size_t size)
{
    struct root *root = NULL;
    struct err e = {0};
    AUTO_BUF b;

    buf_init(&b, 2 * size + 4096);
    if (size >= 24 && le_get_u32(data + 8) == 3 && (data[12] & 3)) {
        packed(data, size, &b);
    } else {
        buf_add(&b, data, size);
    }
    if (size >= 24 && le_get_u32(data + 8) < 3) {
        le_put_u64((unsigned char *)b.p + 16, size - 24);
        le_put_u32((unsigned char *)b.p + 12,
                   (uint32_t)crc32_z(0, (unsigned char *)b.p + 24, size - 24));
    }
    INV(!b.failed);
    if (snapshot_decode(slice_make(b.p, b.n), &root, &e) == 0)
        root_check(root);
    else
        INV(e.code < 0);
    (void)root_unref(root);
    (void)tree_reap(SIZE_MAX);
    return 0;
}

#ifndef FUZZ_IN_TEST
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_snapshot(data, size);
}
#endif
