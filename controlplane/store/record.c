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

/* ---- what a command costs to apply ---- */
/* It is found from its bytes without decoding its objects: a DELETE of few
 * bytes may touch a large object. The log uses it to decide whether the command may enter, so it
 * may be wrong by a factor, but never by what a client sends: unreadable bytes cost their own
 * length. */
/* Where the names of objects stand in a command: in it, or in records of it (command.c). */
static const struct named {
    enum command_type type;
    uint16_t nested; /* tag of the records, or 0 */
    uint16_t kind, ns, name;
} rows[] = {{CMD_WRITE, 50, 2, 3, 4},    {CMD_REQUEST, 50, 2, 3, 4}, {CMD_REMOVE, 50, 2, 3, 4},
            {CMD_ARCHIVE, 50, 2, 3, 4},  {CMD_MIGRATE, 56, 0, 1, 2}, {CMD_MIGRATE, 0, 0, 14, 15},
            {CMD_PLACE, 0, 0, 10, 11},   {CMD_RUN, 0, 0, 10, 11},    {CMD_RECOVER, 50, 2, 3, 4},
            {CMD_RECOVER, 0, 0, 13, 14}, {CMD_ARRAY, 0, 0, 10, 11},   {CMD_MACHINE, 50, 2, 3, 4}};

/* Kind 0: a Workload. */
static uint64_t object_cost(const struct root *r, const struct named *row, struct slice record)
{
    char ns[64] = "", name[256] = "";
    uint64_t kind = KIND_WORKLOAD;
    struct slice v;
    uint16_t tag;

    for (struct wire w = {record.p, record.n}; record_next(&w, &tag, &v) > 0;) {
        if (row->kind && tag == row->kind)
            kind = record_get_u64(v);
        else if (tag == row->ns)
            (void)record_get_str(v, ns, sizeof ns);
        else if (tag == row->name)
            (void)record_get_str(v, name, sizeof name);
    }
    const struct object *o = kind < KIND_LIMIT ? root_get(r, (enum kind_id)kind, ns, name) : NULL;
    return o ? o->bytes : 0;
}

uint64_t command_cost(const struct root *r, struct slice in)
{
    uint64_t cost = in.n;

    if (in.n < 2)
        return cost;
    const unsigned char *p = in.p;
    const struct slice fields = slice_make(p + 2, in.n - 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct named *row = &rows[i];
        struct slice v;
        uint16_t tag;

        if ((int)row->type != p[0])
            continue;
        if (!row->nested) {
            cost += object_cost(r, row, fields);
            continue;
        }
        for (struct wire w = {fields.p, fields.n}; record_next(&w, &tag, &v) > 0;)
            if (tag == row->nested)
                cost += object_cost(r, row, v);
    }
    return cost;
}
