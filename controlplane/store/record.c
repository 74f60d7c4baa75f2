/* The bytes of commands and snapshots: u16 tag, u32 length, value; little-endian. A reader passes
 * over tags that it does not know, so a newer version may add fields. It must never read beyond its
 * input. */
#include "controlplane/store/store_internal.h"

void le_put_u16(unsigned char *p, uint16_t v)
{
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}

void le_put_u32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

void le_put_u64(unsigned char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

uint32_t le_get_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t le_get_u64(const unsigned char *p)
{
    return (uint64_t)le_get_u32(p) | (uint64_t)le_get_u32(p + 4) << 32;
}

void record_bytes(struct buf *b, uint16_t tag, const void *p, size_t n)
{
    unsigned char head[6];

    le_put_u16(head, tag);
    le_put_u32(head + 2, (uint32_t)n);
    buf_add(b, head, sizeof head);
    if (n)
        buf_add(b, p, n);
}

void record_u64(struct buf *b, uint16_t tag, uint64_t v)
{
    unsigned char p[8];

    if (!v)
        return;
    le_put_u64(p, v);
    record_bytes(b, tag, p, sizeof p);
}

void record_i64(struct buf *b, uint16_t tag, int64_t v)
{
    record_u64(b, tag, (uint64_t)v);
}

void record_str(struct buf *b, uint16_t tag, const char *s)
{
    if (*s)
        record_bytes(b, tag, s, strlen(s));
}

size_t record_open(struct buf *b, uint16_t tag)
{
    record_bytes(b, tag, NULL, 0);
    return b->n;
}

void record_close(struct buf *b, size_t at)
{
    if (!b->failed && b->n >= at && at >= 4)
        le_put_u32((unsigned char *)b->p + at - 4, (uint32_t)(b->n - at));
}

int record_next(struct wire *w, uint16_t *ret_tag, struct slice *ret)
{
    if (w->n == 0)
        return 0;
    if (w->n < 6)
        return E_CORRUPT;
    uint32_t n = le_get_u32(w->p + 2);
    if (n > w->n - 6)
        return E_CORRUPT;
    *ret_tag = (uint16_t)(w->p[0] | w->p[1] << 8);
    *ret = slice_make(w->p + 6, n);
    w->p += 6 + n;
    w->n -= 6 + n;
    return 1;
}

uint64_t record_get_u64(struct slice s)
{
    return s.n == 8 ? le_get_u64(s.p) : 0;
}

int64_t record_get_i64(struct slice s)
{
    return (int64_t)record_get_u64(s);
}

bool record_get_str(struct slice s, char *out, size_t n)
{
    if (s.n >= n || memchr(s.p, 0, s.n))
        return false;
    memcpy(out, s.p, s.n);
    out[s.n] = 0;
    return true;
}
