/* Segments as bytes (segment.h). These functions are slow: only the thread pool, or a command, may
 * call them, never the core loop. */
#include "controlplane/store/archive/segment.h"
#include "controlplane/store/store_internal.h"

#include <stdlib.h>
#include <zlib.h>

#define SEGMENT_VERSION 1
#define PLACE_BYTES 20
#define ENTRY_BYTES 12
#define BLOCKS_MAX 65536u
#define RAW_MAX (SEGMENT_BLOCK_BYTES + ARCHIVE_RECORD_MAX + 8)
static const char segment_magic[8] = "HNSSEGM1";
enum {
    H_VERSION = 8,
    H_CRC = 12,
    H_INFO = 16,
    H_BLOCKS = 20,
    H_ENTRIES = 24,
    H_FILE = 32,
    H_NUMBER = 40
};

static uint64_t workload_hash(const char *ns, const char *workload)
{
    return hash_bytes(hash_bytes(9, ns, strlen(ns)), workload, strlen(workload));
}

const struct segment_box *segment_hold(const struct root *r, uint64_t number)
{
    struct key k;

    key_u64(&k, number);
    const struct segment_box *s = tree_get(r->archive.segments, key_slice(&k));
    if (!s || !s->records)
        return NULL;
    box_ops.ref(s);
    return s;
}

void segment_release(const struct segment_box *s)
{
    box_unref(s);
}

/* ---- writing ---- */
struct entry {
    uint64_t hash;
    uint32_t block;
};
struct builder {
    struct buf raw, packed, places; /* the block under way, all blocks, where they are */
    struct entry *entries;
    uint32_t n, cap, blocks;
    int code;
};

static void block_end(struct builder *b)
{
    uLong room = compressBound((uLong)b->raw.n);
    unsigned char place[PLACE_BYTES];
    char *to = b->code || !b->raw.n ? NULL : buf_reserve(&b->packed, room);

    if (!to) {
        b->code = b->raw.n && !b->code ? E_TOOLARGE : b->code;
        return;
    }
    if (compress2((Bytef *)to, &room, (const Bytef *)b->raw.p, (uLong)b->raw.n, 6) != Z_OK) {
        b->code = E_NOMEM;
        return;
    }
    le_put_u64(place, b->packed.n);
    le_put_u32(place + 8, (uint32_t)room);
    le_put_u32(place + 12, (uint32_t)b->raw.n);
    le_put_u32(place + 16, (uint32_t)crc32(0, (const Bytef *)to, (uInt)room));
    b->packed.n += room;
    buf_add(&b->places, place, sizeof place);
    b->blocks++;
    buf_reset(&b->raw);
}

static void index_add(struct builder *b, const struct archive_record *r)
{
    if (b->n == b->cap) {
        b->cap = b->cap ? 2 * b->cap : 256;
        b->entries = mem_realloc(b->entries, b->cap * sizeof *b->entries);
    }
    b->entries[b->n++] = (struct entry){workload_hash(r->ns, r->workload), b->blocks};
}

static bool build_each(struct slice key, const void *value, void *arg)
{
    const struct bytes_box *v = value;
    struct builder *b = arg;
    struct archive_record r;
    unsigned char n[4];

    (void)key;
    if ((b->code = archive_record_read(slice_make(v->p, v->n), &r, NULL)) < 0)
        return false;
    if (b->raw.n + 4 + v->n > SEGMENT_BLOCK_BYTES)
        block_end(b);
    if (*r.workload)
        index_add(b, &r);
    le_put_u32(n, v->n);
    buf_add(&b->raw, n, sizeof n);
    buf_add(&b->raw, v->p, v->n);
    return b->code == 0;
}

static int entry_order(const void *pa, const void *pb)
{
    const struct entry *a = pa, *b = pb;

    return a->hash != b->hash     ? (a->hash < b->hash ? -1 : 1)
           : a->block != b->block ? (a->block < b->block ? -1 : 1)
                                  : 0;
}

/* One entry for each workload and block. */
static void index_write(struct builder *b, struct buf *out)
{
    uint32_t n = 0;

    if (b->n)
        qsort(b->entries, b->n, sizeof *b->entries, entry_order);
    for (uint32_t i = 0; i < b->n; i++) {
        unsigned char p[ENTRY_BYTES];

        if (i && entry_order(&b->entries[i - 1], &b->entries[i]) == 0)
            continue;
        le_put_u64(p, b->entries[i].hash);
        le_put_u32(p + 8, b->entries[i].block);
        buf_add(out, p, sizeof p);
        n++;
    }
    b->n = n;
}

static int assemble(struct builder *b, const struct archive_info *info, struct buf *out,
                    struct err *err)
{
    unsigned char head[SEGMENT_HEAD_BYTES] = {0};

    buf_add(out, head, sizeof head);
    archive_info_encode(info, out);
    size_t info_bytes = out->n - sizeof head, at = out->n;
    buf_add(out, b->places.p, b->places.n);
    index_write(b, out);
    size_t start = out->n;
    buf_add(out, b->packed.p, b->packed.n);
    if (out->failed || b->places.failed)
        return err_set(err, E_TOOLARGE, "a segment is larger than %u bytes",
                       SEGMENT_FILE_MAX_BYTES);
    unsigned char *p = (unsigned char *)out->p;
    for (uint32_t i = 0; i < b->blocks; i++, at += PLACE_BYTES)
        le_put_u64(p + at, le_get_u64(p + at) + start);
    memcpy(p, segment_magic, sizeof segment_magic);
    le_put_u32(p + H_VERSION, SEGMENT_VERSION);
    le_put_u32(p + H_INFO, (uint32_t)info_bytes);
    le_put_u32(p + H_BLOCKS, b->blocks);
    le_put_u32(p + H_ENTRIES, b->n);
    le_put_u64(p + H_FILE, out->n);
    le_put_u64(p + H_NUMBER, info->number);
    le_put_u32(p + H_CRC, (uint32_t)crc32(0, p + H_INFO, (uInt)(start - H_INFO)));
    return 0;
}

int segment_build(const struct segment_box *s, struct buf *out, struct err *err)
{
    struct builder b = {.code = 0};
    int r;

    PRE(s->records && out->n == 0);
    buf_init(&b.raw, RAW_MAX);
    buf_init(&b.packed, SEGMENT_FILE_MAX_BYTES);
    buf_init(&b.places, (size_t)BLOCKS_MAX * PLACE_BYTES);
    tree_scan(s->records, slice_make("", 0), build_each, &b);
    block_end(&b);
    r = b.code ? err_set(err, b.code, "segment %llu of the archive cannot be built",
                         (unsigned long long)s->info.number)
               : assemble(&b, &s->info, out, err);
    buf_fini(&b.raw);
    buf_fini(&b.packed);
    buf_fini(&b.places);
    mem_free(b.entries);
    return r;
}

/* ---- reading ---- */
int segment_head_read(struct slice in, struct segment_head *ret, struct err *err)
{
    const unsigned char *p = in.p;

    if (in.n < SEGMENT_HEAD_BYTES || memcmp(p, segment_magic, sizeof segment_magic) != 0)
        return err_set(err, E_CORRUPT, "this is no segment of an archive");
    if (le_get_u32(p + H_VERSION) != SEGMENT_VERSION)
        return err_set(err, E_CORRUPT, "a segment of version %u; this program reads version %d",
                       le_get_u32(p + H_VERSION), SEGMENT_VERSION);
    *ret = (struct segment_head){.number = le_get_u64(p + H_NUMBER),
                                 .file_bytes = le_get_u64(p + H_FILE),
                                 .info_bytes = le_get_u32(p + H_INFO),
                                 .blocks = le_get_u32(p + H_BLOCKS),
                                 .entries = le_get_u32(p + H_ENTRIES),
                                 .crc = le_get_u32(p + H_CRC)};
    ret->meta_bytes = (size_t)ret->info_bytes + (size_t)ret->blocks * PLACE_BYTES +
                      (size_t)ret->entries * ENTRY_BYTES;
    if (ret->file_bytes > SEGMENT_FILE_MAX_BYTES || ret->blocks > BLOCKS_MAX ||
        ret->info_bytes > 4096 || SEGMENT_HEAD_BYTES + ret->meta_bytes > ret->file_bytes)
        return err_set(err, E_CORRUPT, "the head of the segment says what cannot be");
    return 0;
}

static bool places_sound(const struct segment_meta *m)
{
    uint64_t at = SEGMENT_HEAD_BYTES + m->head.meta_bytes;

    for (uint32_t i = 0; i < m->head.blocks; i++) {
        const unsigned char *p = m->blocks + (size_t)i * PLACE_BYTES;

        if (le_get_u64(p) != at || le_get_u32(p + 12) > RAW_MAX)
            return false;
        at += le_get_u32(p + 8);
    }
    for (uint32_t i = 0; i < m->head.entries; i++)
        if (le_get_u32(m->index + (size_t)i * ENTRY_BYTES + 8) >= m->head.blocks)
            return false;
    return at == m->head.file_bytes;
}

int segment_meta_read(struct slice head, struct slice in, struct segment_meta *ret, struct err *err)
{
    int r = segment_head_read(head, &ret->head, err);

    if (r < 0)
        return r;
    const unsigned char *p = in.p, *h = head.p;
    if (in.n != ret->head.meta_bytes)
        return err_set(err, E_CORRUPT, "the segment is cut off");
    uLong crc = crc32(0, h + H_INFO, SEGMENT_HEAD_BYTES - H_INFO);
    if ((uint32_t)crc32(crc, p, (uInt)in.n) != ret->head.crc)
        return err_set(err, E_CORRUPT, "the segment's checksum does not match");
    ret->blocks = p + ret->head.info_bytes;
    ret->index = ret->blocks + (size_t)ret->head.blocks * PLACE_BYTES;
    if ((r = archive_info_decode(slice_make(p, ret->head.info_bytes), &ret->info, err)) < 0)
        return r;
    if (ret->info.number != ret->head.number || !places_sound(ret))
        return err_set(err, E_CORRUPT, "the segment's index says what cannot be");
    return 0;
}

bool segment_block_next(const struct segment_meta *m, const char *ns, const char *workload,
                        uint32_t *at, uint32_t *ret_block)
{
    uint64_t want = workload_hash(ns, workload);
    uint32_t low = *at, high = m->head.entries;

    while (low < high) { /* the first that is not below */
        uint32_t mid = low + (high - low) / 2;

        if (le_get_u64(m->index + (size_t)mid * ENTRY_BYTES) < want)
            low = mid + 1;
        else
            high = mid;
    }
    const unsigned char *p = m->index + (size_t)low * ENTRY_BYTES;
    if (low >= m->head.entries || le_get_u64(p) != want)
        return false;
    *ret_block = le_get_u32(p + 8);
    *at = low + 1;
    return true;
}

void segment_block_place(const struct segment_meta *m, uint32_t block, uint64_t *ret_offset,
                         size_t *ret_bytes)
{
    PRE(block < m->head.blocks);
    const unsigned char *p = m->blocks + (size_t)block * PLACE_BYTES;
    *ret_offset = le_get_u64(p);
    *ret_bytes = le_get_u32(p + 8);
}

int segment_block_read(const struct segment_meta *m, uint32_t block, struct slice packed,
                       struct buf *raw, struct err *err)
{
    PRE(block < m->head.blocks);
    const unsigned char *p = m->blocks + (size_t)block * PLACE_BYTES;
    uLong n = le_get_u32(p + 12), want = n;

    if (packed.n != le_get_u32(p + 8) ||
        (uint32_t)crc32(0, packed.p, (uInt)packed.n) != le_get_u32(p + 16))
        return err_set(err, E_CORRUPT, "block %u is torn or was changed", block);
    char *to = buf_reserve(raw, want);
    if (!to)
        return err_set(err, E_TOOLARGE, "block %u is larger than is allowed", block);
    if (uncompress((Bytef *)to, &n, packed.p, (uLong)packed.n) != Z_OK || n != want)
        return err_set(err, E_CORRUPT, "block %u cannot be unpacked", block);
    raw->n += n;
    return 0;
}

int segment_record_next(struct slice raw, size_t *at, struct slice *ret, struct err *err)
{
    const unsigned char *p = raw.p;

    if (*at == raw.n)
        return 0;
    if (raw.n - *at < 4 || le_get_u32(p + *at) > raw.n - *at - 4)
        return err_set(err, E_CORRUPT, "a record is cut off");
    *ret = slice_make(p + *at + 4, le_get_u32(p + *at));
    *at += 4 + ret->n;
    return 1;
}

/* ---- verifying ---- */
static int sum_block(struct slice raw, struct archive_info *sum, struct err *err)
{
    struct archive_record r;
    struct slice record;
    size_t at = 0;
    int rc;

    while ((rc = segment_record_next(raw, &at, &record, err)) > 0) {
        if ((rc = archive_record_read(record, &r, err)) < 0)
            return rc;
        archive_chain_add(sum, record);
        archive_count(sum, &r, record.n);
    }
    return rc;
}

static int sum_all(struct slice file, const struct segment_meta *m, struct archive_info *sum,
                   struct err *err)
{
    AUTO_BUF raw;
    int r = 0;

    buf_init(&raw, RAW_MAX);
    for (uint32_t i = 0; i < m->head.blocks && r == 0; i++) {
        uint64_t offset;
        size_t n;

        segment_block_place(m, i, &offset, &n);
        buf_reset(&raw);
        r = segment_block_read(m, i, slice_make((const char *)file.p + offset, n), &raw, err);
        if (r == 0)
            r = sum_block(slice_make(raw.p, raw.n), sum, err);
    }
    return r;
}

int segment_verify(struct slice file, const unsigned char *want, struct archive_info *ret,
                   struct err *err)
{
    struct segment_meta m;
    struct segment_head h;
    int r = segment_head_read(file, &h, err);

    if (r < 0)
        return r;
    if (h.file_bytes != file.n)
        return err_set(err, E_CORRUPT, "%zu bytes where the segment says %llu: it is torn", file.n,
                       (unsigned long long)h.file_bytes);
    r = segment_meta_read(slice_make(file.p, SEGMENT_HEAD_BYTES),
                          slice_make((const char *)file.p + SEGMENT_HEAD_BYTES, h.meta_bytes), &m,
                          err);
    if (r < 0)
        return r;
    struct archive_info sum = {.number = m.info.number};
    memcpy(sum.prev, m.info.prev, ARCHIVE_DIGEST);
    archive_chain_begin(&sum);
    if ((r = sum_all(file, &m, &sum, err)) < 0)
        return r;
    archive_chain_end(&sum);
    if (memcmp(&sum, &m.info, sizeof sum) != 0)
        return err_set(err, E_CORRUPT, "its records do not give its digest");
    if (want && memcmp(sum.digest, want, ARCHIVE_DIGEST) != 0)
        return err_set(err, E_CORRUPT, "its digest is not the one that the state holds");
    *ret = sum;
    return 0;
}
