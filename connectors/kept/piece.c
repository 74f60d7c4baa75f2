/* Names of pieces, and their form (kept.h). What is read comes from a store that others may write
 * to: nothing in it is believed before it is checked. */
#include "connectors/kept/kept.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define VERSION 1
#define BEGINS 1
#define LAST 2
#define HEAD 14 /* version, flags, from, bytes */
#define MARK 12
#define FIELD 4 /* 'H', 'L', length */
#define GZIP (15 + 16)
#define SUFFIX ".log.gz"
#define DIGITS 16
#define NAME_FITS 200 /* with a uid in one part of a path */
#define FROM_MAX 9999999999999999ull
#define GZIP_EXTRA 4 /* the only flag that ours have: a name, say, is none of ours */

/* ---- names ---- */
int kept_base(const char *store, const char *cluster, const char *ns, const char *name,
              const char *uid, char ret[KEPT_PATH_MAX], struct err *err)
{
    const bool fits = strlen(name) <= NAME_FITS;
    size_t n = strlen(store);

    while (n > 1 && store[n - 1] == '/')
        n--;
    if (snprintf(ret, KEPT_PATH_MAX, "%.*s/_logs/%s/%s/%s%s%s", (int)n, store,
                 *cluster ? cluster : "_", ns, fits ? name : "", fits ? "-" : "",
                 uid) >= KEPT_PATH_MAX - 128)
        return err_set(err, E_TOOLARGE, "the path of the log store %.100s is too long", store);
    return 0;
}

void kept_try_name(int64_t epoch, int64_t try_, char ret[64])
{
    (void)snprintf(ret, 64, "e%" PRId64 ".%" PRId64, epoch, try_);
}

/* Digits without zeros ahead, below 2^53. */
static const char *number(const char *p, int64_t *ret)
{
    size_t n = strspn(p, "0123456789");

    if (n == 0 || n > 15 || (p[0] == '0' && n > 1))
        return NULL;
    *ret = strtoll(p, NULL, 10);
    return p + n;
}

bool kept_try_parse(const char *name, int64_t *ret_epoch, int64_t *ret_try)
{
    const char *p = name[0] == 'e' ? number(name + 1, ret_epoch) : NULL;

    p = p && *p == '.' ? number(p + 1, ret_try) : NULL;
    return p && !*p;
}

void kept_piece_name(uint64_t from, char ret[40])
{
    (void)snprintf(ret, 40, "%016" PRIu64 SUFFIX, from);
}

bool kept_piece_parse(const char *name, uint64_t *ret_from)
{
    if (strspn(name, "0123456789") != DIGITS || strcmp(name + DIGITS, SUFFIX) != 0)
        return false;
    *ret_from = strtoull(name, NULL, 10);
    return true;
}

/* ---- the extra field ---- */
static size_t extra_put(const struct kept_piece *p, unsigned char *out)
{
    unsigned char *at = out + FIELD;
    size_t n = HEAD + p->at.n_marks * MARK;

    out[0] = 'H';
    out[1] = 'L';
    le_put(out + 2, n, 2);
    at[0] = VERSION;
    at[1] = (unsigned char)((p->at.begins ? BEGINS : 0) | (p->last ? LAST : 0));
    le_put(at + 2, p->at.from, 8);
    le_put(at + 10, p->bytes, 4);
    for (size_t i = 0; i < p->at.n_marks; i++) {
        le_put(at + HEAD + i * MARK, p->at.marks[i].end - p->at.from, 4);
        le_put(at + HEAD + i * MARK + 4, (uint64_t)p->at.marks[i].ms, 8);
    }
    return FIELD + n;
}

static bool extra_get(const unsigned char *p, size_t n, struct kept_piece *ret)
{
    uint64_t before = 0;

    if (n < FIELD + HEAD || p[0] != 'H' || p[1] != 'L' || le_get(p + 2, 2) != n - FIELD ||
        p[FIELD] != VERSION || (n - FIELD - HEAD) % MARK != 0)
        return false;
    p += FIELD;
    ret->at.begins = (p[1] & BEGINS) != 0;
    ret->last = (p[1] & LAST) != 0;
    ret->at.from = le_get(p + 2, 8);
    ret->bytes = (uint32_t)le_get(p + 10, 4);
    ret->at.n_marks = (n - FIELD - HEAD) / MARK;
    if (ret->bytes > KEPT_PIECE_MAX || ret->at.from > FROM_MAX - ret->bytes ||
        ret->at.n_marks > OUTPUT_CUT_MARKS)
        return false;
    for (size_t i = 0; i < ret->at.n_marks; i++) {
        uint64_t end = le_get(p + HEAD + i * MARK, 4);
        int64_t ms = (int64_t)le_get(p + HEAD + i * MARK + 4, 8);
        if (end <= before || end > ret->bytes || ms < 0 || ms > (1ll << 53))
            return false;
        ret->at.marks[i] = (struct output_mark){ret->at.from + end, ms};
        before = end;
    }
    return true;
}

/* ---- the file ---- */
int kept_pack(const struct kept_piece *p, const char *text, struct buf *out, struct err *err)
{
    unsigned char *extra = mem_alloc(FIELD + HEAD + OUTPUT_CUT_MARKS * MARK);
    gz_header head = {.extra = extra, .os = 255};
    z_stream z = {0};
    int rc = 0;

    INV(p->bytes <= KEPT_PIECE_MAX && p->at.n_marks <= OUTPUT_CUT_MARKS);
    head.extra_len = (uInt)extra_put(p, extra);
    char *room = buf_reserve(out, KEPT_PACKED_MAX);
    if (!room || deflateInit2(&z, 6, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        mem_free(extra);
        return err_set(err, E_INTERNAL, "a piece of a log cannot be compressed");
    }
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = p->bytes;
    z.next_out = (Bytef *)room;
    z.avail_out = KEPT_PACKED_MAX;
    if (deflateSetHeader(&z, &head) != Z_OK || deflate(&z, Z_FINISH) != Z_STREAM_END)
        rc = err_set(err, E_INTERNAL, "a piece of a log cannot be compressed");
    else
        out->n += z.total_out;
    (void)deflateEnd(&z);
    mem_free(extra);
    return rc;
}

int kept_unpack(struct slice file, uint64_t from, struct kept_piece *ret, struct buf *text,
                struct err *err)
{
    unsigned char *extra = mem_alloc(65536);
    gz_header head = {.extra = extra, .extra_max = 65536};
    z_stream z = {0};
    bool whole = false;

    memset(ret, 0, sizeof *ret);
    char *room = buf_reserve(text, KEPT_PIECE_MAX);
    if (room && file.n > 3 && file.n <= KEPT_PACKED_MAX &&
        ((const char *)file.p)[3] == GZIP_EXTRA && inflateInit2(&z, GZIP) == Z_OK) {
        z.next_in = (Bytef *)(uintptr_t)file.p;
        z.avail_in = (uInt)file.n;
        z.next_out = (Bytef *)room;
        z.avail_out = KEPT_PIECE_MAX;
        whole = inflateGetHeader(&z, &head) == Z_OK && inflate(&z, Z_FINISH) == Z_STREAM_END &&
                head.done == 1 && head.extra_len <= 65536 &&
                extra_get(extra, head.extra_len, ret) && ret->bytes == z.total_out &&
                z.avail_in == 0 && (from == KEPT_ANYWHERE || ret->at.from == from);
        (void)inflateEnd(&z);
    }
    mem_free(extra);
    if (!whole)
        return err_set(err, E_CORRUPT, "it is no piece of a log, or damaged");
    text->n += ret->bytes;
    return 0;
}
