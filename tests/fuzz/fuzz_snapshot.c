/* Fuzz target: bytes as a snapshot. Length and checksum are made right first, so that what lies
 * behind them is met. */
#include "controlplane/store/store_internal.h"

#include <zlib.h>

int fuzz_snapshot(const uint8_t *data, size_t size);

int fuzz_snapshot(const uint8_t *data, size_t size)
{
    struct root *root = NULL;
    struct err e = {0};
    AUTO_BUF b;

    buf_init(&b, size + 1);
    buf_add(&b, data, size);
    if (size >= 24) {
        le_put_u64((unsigned char *)b.p + 16, size - 24);
        le_put_u32((unsigned char *)b.p + 12,
                   (uint32_t)crc32_z(0, (unsigned char *)b.p + 24, size - 24));
    }
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
