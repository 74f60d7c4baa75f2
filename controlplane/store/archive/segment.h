/* A closed segment as the bytes of a file: compressed in blocks, with an index by namespace and
 * workload, so that one history is read without reading the rest.
 *
 *   48 bytes  "HNSSEGM1"  u32 version  u32 crc32 of the rest of the head and of all ahead of the
 *             blocks  u32 bytes of the description  u32 blocks  u32 index entries  u32 0
 *             u64 bytes of the file  u64 number
 *   description (archive_info_encode)
 *   blocks    u64 offset  u32 packed  u32 raw bytes  u32 crc32 of the packed bytes
 *   index     u64 hash of namespace and workload  u32 block: in order
 *   the blocks: zlib; raw: u32 length, record, again and again
 *
 * A reader believes nothing in the file: it checks offsets and lengths, and the chain of digests
 * decides about the records. These functions may be called on any thread. */
#ifndef HANSE_CONTROLPLANE_STORE_SEGMENT_H
#define HANSE_CONTROLPLANE_STORE_SEGMENT_H

#include "controlplane/store/archive/archive.h"

#define SEGMENT_HEAD_BYTES 48
#define SEGMENT_BLOCK_BYTES (128u << 10) /* uncompressed; a larger record has a block of its own */
#define SEGMENT_FILE_MAX_BYTES (48u << 20)

/* Holds a closed segment with its records, whatever the state lets go; NULL when the state no
 * longer has them. */
struct segment_box;
const struct segment_box *segment_hold(const struct root *r, uint64_t number);
void segment_release(const struct segment_box *s);
int segment_build(const struct segment_box *s, struct buf *out, struct err *err) MUST_CHECK;

/* ---- reading ---- */
struct segment_head {
    uint64_t number, file_bytes;
    uint32_t info_bytes, blocks, entries, crc;
    size_t meta_bytes; /* bytes between the head and the blocks */
};
int segment_head_read(struct slice in, struct segment_head *ret, struct err *err) MUST_CHECK;
struct segment_meta { /* borrows the bytes that it was read from */
    struct segment_head head;
    struct archive_info info;
    const unsigned char *blocks, *index;
};
/* head: the 48 bytes of the head; in: the meta_bytes that follow. */
int segment_meta_read(struct slice head, struct slice in, struct segment_meta *ret,
                      struct err *err) MUST_CHECK;
/* Finds the next block that may hold a record of this workload. *at begins at 0; false: no more. */
bool segment_block_next(const struct segment_meta *m, const char *ns, const char *workload,
                        uint32_t *at, uint32_t *ret_block);
void segment_block_place(const struct segment_meta *m, uint32_t block, uint64_t *ret_offset,
                         size_t *ret_bytes);
/* Checks a block, unpacks it, and appends it to raw. */
int segment_block_read(const struct segment_meta *m, uint32_t block, struct slice packed,
                       struct buf *raw, struct err *err) MUST_CHECK;
/* Returns 1 with a record, 0 at the end, or E_CORRUPT. *at begins at 0. */
int segment_record_next(struct slice raw, size_t *at, struct slice *ret, struct err *err);
/* Checks a whole file: every block, every record, the digest. want: the digest that it must have,
 * or NULL. */
int segment_verify(struct slice file, const unsigned char *want, struct archive_info *ret,
                   struct err *err) MUST_CHECK;

#endif
