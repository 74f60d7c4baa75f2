/* Log bytes. Canonical: a body has exactly one encoding, on every machine and in every version,
 * since digests of objects and of the state are made over it. Never reads out of range, whatever it
 * is given.
 *
 *   body   = field*                     in ascending order of tags
 *   field  = varint(tag << 1)     varint(zigzag)         numbers, booleans, enums, times
 *          | varint(tag << 1 | 1) varint(length) bytes   all else
 *   STR    text and its NUL (so that a decoded object points into its log bytes)
 *   F64    8 bytes, little-endian
 *   OBJ    body                         LIST   (varint(length) body)*
 *   STRS   (varint(length) STR)*        MAP    STRS: key, value, key, value; ascending
 *   ENUMS, I64S  varint(zigzag)*
 *
 * Fields with a tag that we do not know are kept as they are, and encoded again in their place. */
#include "api/base/limits.h"
#include "api/schema/schema_internal.h"

#include <math.h>

/* ---- writing ---- */
static size_t varint_bytes(uint64_t v, unsigned char to[10])
{
    size_t n = 0;

    while (v >= 0x80) {
        to[n++] = (unsigned char)(v | 0x80);
        v >>= 7;
    }
    to[n++] = (unsigned char)v;
    return n;
}

static void put_varint(struct buf *out, uint64_t v)
{
    unsigned char b[10];

    if (v < 0x80 && !out->failed && out->n + 2 <= out->cap && out->n < out->max) {
        out->p[out->n++] = (char)v; /* most are: a sixth of a decision's time */
        out->p[out->n] = 0;
        return;
    }
    buf_add(out, b, varint_bytes(v, b));
}

static void put_int(struct buf *out, int64_t v)
{
    put_varint(out, ((uint64_t)v << 1) ^ (uint64_t)(v >> 63));
}

static void put_text(struct buf *out, const char *s)
{
    size_t n = s ? strlen(s) : 0;

    put_varint(out, n + 1);
    buf_add(out, s ? s : "", n + 1);
}

/* What is nested is written first, and its length put before it when it is known. */
static size_t nest_begin(struct buf *out)
{
    buf_char(out, 0);
    return out->n;
}

static void nest_end(struct buf *out, size_t start)
{
    unsigned char b[10];

    if (out->failed)
        return;
    size_t n = out->n - start, w = varint_bytes(n, b);
    if (w > 1) {
        if (!buf_reserve(out, w - 1))
            return;
        memmove(out->p + start + w - 1, out->p + start, n);
        out->n += w - 1;
    }
    memcpy(out->p + start - 1, b, w);
}

static void put_map(struct buf *out, const struct kv *kv, uint32_t n)
{
    bool sorted = true;

    for (uint32_t i = 1; i < n && sorted; i++)
        sorted = strcmp(kv[i - 1].key, kv[i].key) < 0;
    if (sorted) {
        for (uint32_t i = 0; i < n; i++) {
            put_text(out, kv[i].key);
            put_text(out, kv[i].value);
        }
        return;
    }
    /* Built by hand: sorted here, the last of equal keys wins. */
    const struct kv **order = mem_alloc(n * sizeof(*order));
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = m;
        while (at > 0 && strcmp(order[at - 1]->key, kv[i].key) > 0)
            at--;
        if (at > 0 && !strcmp(order[at - 1]->key, kv[i].key)) {
            order[at - 1] = &kv[i];
            continue;
        }
        memmove(order + at + 1, order + at, (m - at) * sizeof(*order));
        order[at] = &kv[i];
        m++;
    }
    for (uint32_t i = 0; i < m; i++) {
        put_text(out, order[i]->key);
        put_text(out, order[i]->value);
    }
    mem_free((void *)order);
}

static void put_f64(struct buf *out, double v)
{
    uint64_t bits;
    unsigned char b[8];

    memcpy(&bits, &v, sizeof bits);
    for (unsigned i = 0; i < 8; i++)
        b[i] = (unsigned char)(bits >> (8 * i));
    buf_add(out, b, sizeof b);
}

static void put_items(const struct field *f, const void *body, struct buf *out, char *path)
{
    const void *items = *(const void *const *)member(f, body);
    uint32_t n = member_count(f, body);

    for (uint32_t i = 0; i < n; i++) {
        if (f->type == T_LIST) {
            size_t start = nest_begin(out);
            tlv_put(f->sub, (const char *)items + i * f->sub->size, out, path);
            nest_end(out, start);
        } else if (f->type == T_STRS) {
            put_text(out, ((const char *const *)items)[i]);
        } else if (f->type == T_ENUMS) {
            put_int(out, ((const int *)items)[i]);
        } else {
            put_int(out, ((const int64_t *)items)[i]);
        }
        if (path_ended(path, out, NULL, i))
            return;
    }
}

static void put_value(const struct field *f, const void *body, struct buf *out, char *path)
{
    const struct slice *raw = member(f, body);

    switch (f->type) {
    case T_STR:
    case T_QTY:
        buf_add(out, member_str(f, body), strlen(member_str(f, body)) + 1);
        break;
    case T_F64:
    case T_PCT:
        put_f64(out, *(const double *)member(f, body));
        break;
    case T_OBJ:
        tlv_put(f->sub, *(const void *const *)member(f, body), out, path);
        break;
    case T_MAP:
        put_map(out, *(const struct kv *const *)member(f, body), member_count(f, body));
        break;
    case T_RAW:
    case T_B64:
        buf_add(out, raw->p, raw->n);
        break;
    default:
        put_items(f, body, out, path);
        break;
    }
}

static bool is_number(enum field_type t)
{
    return t == T_I64 || t == T_BOOL || t == T_ENUM || t == T_DUR || t == T_TIME || t == T_BYTES ||
           t == T_MILLI;
}

struct cursor {
    const unsigned char *p, *end;
};
static bool get_varint(struct cursor *c, uint64_t *ret);
static bool skip_field(struct cursor *c, uint64_t *ret_key);

/* Unknown fields whose tags come before `tag` go first. */
static void put_unknown(struct cursor *unknown, uint64_t tag, struct buf *out)
{
    while (unknown->p < unknown->end) {
        struct cursor c = *unknown;
        uint64_t key;
        bool ok = skip_field(&c, &key);
        INV(ok);
        if (key >> 1 >= tag)
            return;
        buf_add(out, unknown->p, (size_t)(c.p - unknown->p));
        *unknown = c;
    }
}

/* Without the fields that we do not know: for comparing single fields. */
void tlv_encode_field(const struct schema *one, const void *body, struct buf *out)
{
    const struct field *f = one->fields;

    PRE(one->n == 1);
    if (!member_present(f, body))
        return;
    if (is_number(f->type))
        put_int(out, member_int(f, body));
    else
        put_value(f, body, out, NULL);
}

void tlv_put(const struct schema *s, const void *body, struct buf *out, char *path)
{
    const struct slice *u = body_unknown_const(body);
    struct cursor unknown = {u->p, u->n ? (const unsigned char *)u->p + u->n : u->p};

    schema_for_each (f, s) {
        if (!member_present(f, body))
            continue;
        put_unknown(&unknown, f->tag, out);
        if (is_number(f->type)) {
            put_varint(out, (uint64_t)f->tag << 1);
            put_int(out, member_int(f, body));
        } else {
            put_varint(out, (uint64_t)f->tag << 1 | 1);
            size_t start = nest_begin(out);
            put_value(f, body, out, path);
            nest_end(out, start);
        }
        if (path_ended(path, out, *f->json ? f->json : f->name, 0))
            return;
    }
    put_unknown(&unknown, UINT64_MAX, out);
}

/* ---- reading ---- */
static bool get_varint(struct cursor *c, uint64_t *ret)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (c->p >= c->end)
            return false;
        unsigned char b = *c->p++;
        if (shift == 63 && b > 1)
            return false;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *ret = v;
            return shift == 0 || b != 0; /* the shortest form only */
        }
    }
    return false;
}

static bool get_int(struct cursor *c, int64_t *ret)
{
    uint64_t v;

    if (!get_varint(c, &v))
        return false;
    *ret = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
    return true;
}

static bool get_bytes(struct cursor *c, struct cursor *ret)
{
    uint64_t n;

    if (!get_varint(c, &n) || n > (uint64_t)(c->end - c->p))
        return false;
    ret->p = c->p;
    ret->end = c->p + n;
    c->p += n;
    return true;
}

static bool skip_field(struct cursor *c, uint64_t *ret_key)
{
    struct cursor inner;
    int64_t v;

    if (!get_varint(c, ret_key) || *ret_key >> 1 == 0 || *ret_key >> 1 > UINT16_MAX)
        return false;
    return *ret_key & 1 ? get_bytes(c, &inner) : get_int(c, &v);
}

/* The whole of c is one text with its NUL and no other. */
static bool text_of(struct cursor c, const char **ret)
{
    size_t n = (size_t)(c.end - c.p);

    if (n == 0 || c.end[-1] != 0 || memchr(c.p, 0, n) != c.end - 1)
        return false;
    *ret = (const char *)c.p;
    return true;
}

static bool get_text(struct cursor *c, const char **ret)
{
    struct cursor inner;

    return get_bytes(c, &inner) && text_of(inner, ret);
}

static int corrupt(const struct schema *s, const struct field *f, struct err *err)
{
    return err_set(err, E_CORRUPT, "log bytes of %s%s%s are damaged", s->name, f ? "." : "",
                   f ? f->name : "");
}

static int decode_body(const struct schema *s, struct cursor c, struct arena *a, void *body,
                       struct err *err);

static bool get_number(const struct field *f, struct cursor *c, void *body)
{
    int64_t v;

    if (!get_int(c, &v))
        return false;
    if (f->type == T_BOOL && (v < 0 || v > 1))
        return false;
    if (f->type == T_ENUM && (v == 0 || v < INT32_MIN || v > INT32_MAX))
        return false;
    if (f->type == T_TIME && v == 0)
        return false;
    member_set_int(f, body, v);
    return true;
}

static bool get_f64(struct cursor c, double *ret)
{
    uint64_t bits = 0;

    if (c.end - c.p != 8)
        return false;
    for (unsigned i = 0; i < 8; i++)
        bits |= (uint64_t)c.p[i] << (8 * i);
    memcpy(ret, &bits, sizeof bits);
    return isfinite(*ret);
}

/* Items of a container, counted first, so that no more is allocated than the bytes can fill. */
static bool count_items(const struct field *f, struct cursor c, uint32_t *ret_n)
{
    uint32_t n = 0;
    struct cursor inner;
    int64_t v;

    for (; c.p < c.end; n++) {
        bool ok = f->type == T_ENUMS || f->type == T_I64S ? get_int(&c, &v) : get_bytes(&c, &inner);
        if (!ok)
            return false;
    }
    *ret_n = n;
    return n > 0;
}

static bool get_map(struct cursor c, struct kv *kv, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!get_text(&c, &kv[i].key) || !get_text(&c, &kv[i].value))
            return false;
        if (i > 0 && strcmp(kv[i - 1].key, kv[i].key) >= 0)
            return false;
    }
    return true;
}

static bool field_is_container(const struct field *f)
{
    return f->type == T_LIST || f->type == T_STRS || f->type == T_ENUMS || f->type == T_I64S ||
           f->type == T_MAP;
}

static size_t item_size(const struct field *f)
{
    switch (f->type) {
    case T_LIST:
        return f->sub->size;
    case T_STRS:
        return sizeof(char *);
    case T_ENUMS:
        return sizeof(int);
    case T_MAP:
        return sizeof(struct kv);
    default:
        return sizeof(int64_t);
    }
}

static int get_items(const struct schema *s, const struct field *f, struct cursor c,
                     struct arena *a, void *body, struct err *err)
{
    uint32_t n;

    if (!count_items(f, c, &n) || (f->type == T_MAP && n % 2))
        return corrupt(s, f, err);
    if (f->type == T_MAP)
        n /= 2;
    char *items = arena_alloc(a, n * item_size(f));
    if (!items)
        return err_set(err, E_TOOLARGE, "%s.%s holds too many items", s->name, f->name);
    *(void **)member_mut(f, body) = items;
    member_set_count(f, body, n);
    if (f->type == T_MAP)
        return get_map(c, (struct kv *)(void *)items, n) ? 0 : corrupt(s, f, err);
    for (uint32_t i = 0; i < n; i++) {
        struct cursor inner;
        int64_t v = 0;
        bool ok = true;
        if (f->type == T_LIST) {
            ok = get_bytes(&c, &inner);
            int r = ok ? decode_body(f->sub, inner, a, items + i * f->sub->size, err) : 0;
            if (r < 0)
                return r;
        } else if (f->type == T_STRS) {
            ok = get_text(&c, (const char **)(void *)items + i);
        } else if (f->type == T_ENUMS) {
            ok = get_int(&c, &v) && v >= INT32_MIN && v <= INT32_MAX;
            ((int *)(void *)items)[i] = ok ? (int)v : 0;
        } else {
            ok = get_int(&c, (int64_t *)(void *)items + i);
        }
        if (!ok)
            return corrupt(s, f, err);
    }
    return 0;
}

static int get_value(const struct schema *s, const struct field *f, struct cursor c,
                     struct arena *a, void *body, struct err *err)
{
    bool ok = true;

    switch (f->type) {
    case T_STR:
    case T_QTY:
        ok = c.end - c.p > 1 && text_of(c, (const char **)member_mut(f, body));
        break;
    case T_F64:
    case T_PCT:
        ok = get_f64(c, member_mut(f, body));
        break;
    case T_OBJ: {
        void *sub = arena_alloc(a, f->sub->size);
        if (!sub)
            return err_set(err, E_TOOLARGE, "%s needs too much memory", s->name);
        *(void **)member_mut(f, body) = sub;
        return decode_body(f->sub, c, a, sub, err);
    }
    case T_RAW:
    case T_B64:
        ok = c.end > c.p;
        *(struct slice *)member_mut(f, body) = slice_make(c.p, (size_t)(c.end - c.p));
        break;
    default:
        return get_items(s, f, c, a, body, err);
    }
    return ok ? 0 : corrupt(s, f, err);
}

static int keep_unknown(const struct schema *s, struct cursor field, struct arena *a, void *body,
                        struct err *err)
{
    struct slice *u = body_unknown(body);
    size_t n = (size_t)(field.end - field.p);

    if (u->n == 0) {
        *u = slice_make(field.p, n);
    } else if ((const unsigned char *)u->p + u->n == field.p) {
        u->n += n;
    } else { /* a known field lies between: at most one such gap a known field */
        char *joined = arena_alloc(a, u->n + n);
        if (!joined)
            return err_set(err, E_TOOLARGE, "%s needs too much memory", s->name);
        memcpy(joined, u->p, u->n);
        memcpy(joined + u->n, field.p, n);
        *u = slice_make(joined, u->n + n);
    }
    return 0;
}

static int decode_body(const struct schema *s, struct cursor c, struct arena *a, void *body,
                       struct err *err)
{
    const struct field *f = s->fields, *end = s->fields + s->n;
    uint64_t last = 0, key;
    int r;

    body_init(s, body);
    while (c.p < c.end) {
        struct cursor start = c, value;
        if (!skip_field(&c, &key) || key >> 1 <= last)
            return corrupt(s, NULL, err);
        last = key >> 1;
        while (f < end && f->tag < last)
            f++;
        if (f == end || f->tag != last) {
            r = keep_unknown(s, (struct cursor){start.p, c.p}, a, body, err);
            if (r < 0)
                return r;
            continue;
        }
        (void)get_varint(&start, &key);
        if ((key & 1) == (uint64_t)is_number(f->type))
            return corrupt(s, f, err);
        if (is_number(f->type)) {
            if (!get_number(f, &start, body))
                return corrupt(s, f, err);
        } else {
            if (!get_bytes(&start, &value))
                return corrupt(s, f, err);
            r = get_value(s, f, value, a, body, err);
            if (r < 0)
                return r;
        }
        body_mark(body, f);
    }
    return 0;
}

static size_t padded(size_t n)
{
    return (n + 15) & ~(size_t)15; /* as an arena does it */
}

/* Damaged bytes end the walk (decoding says what is wrong); past `most` it ends, too: no
 * overflow. */
static size_t memory_below(const struct schema *s, struct cursor c, size_t most)
{
    const struct field *f = s->fields, *end = s->fields + s->n;
    size_t sum = 0;
    uint64_t key;

    while (c.p < c.end && sum < most) {
        struct cursor start = c, value;
        uint32_t n = 0;

        if (!skip_field(&c, &key))
            break;
        while (f < end && f->tag < key >> 1)
            f++;
        if (!(key & 1) || f == end || f->tag != key >> 1)
            continue;
        if (!get_varint(&start, &key) || !get_bytes(&start, &value))
            break;
        if (f->type == T_OBJ)
            sum += padded(f->sub->size) + memory_below(f->sub, value, most);
        else if (field_is_container(f) && count_items(f, value, &n))
            sum += padded((f->type == T_MAP ? n / 2 : n) * item_size(f));
        for (struct cursor inner; f->type == T_LIST && sum < most && get_bytes(&value, &inner);)
            sum += memory_below(f->sub, inner, most);
    }
    return sum;
}

size_t tlv_memory(const struct schema *s, struct slice in, size_t most)
{
    struct cursor c = {in.p, (const unsigned char *)in.p + in.n};
    size_t n = padded(s->size) + memory_below(s, c, most);

    return n < most ? n : most;
}

int tlv_decode_in_place(const struct schema *s, struct slice in, struct arena *a, void **ret_body,
                        struct err *err)
{
    void *body = arena_alloc(a, s->size);

    if (!body)
        return err_set(err, E_TOOLARGE, "%s needs too much memory", s->name);
    int r = decode_body(s, (struct cursor){in.p, (const unsigned char *)in.p + in.n}, a, body, err);
    if (r == 0)
        *ret_body = body;
    return r;
}

int tlv_decode(const struct schema *s, struct slice in, struct arena *a, void **ret_body,
               struct err *err)
{
    /* Texts of the body point into this copy. */
    const void *p = arena_memdup(a, in.n ? in.p : "", in.n ? in.n : 1);

    if (!p)
        return err_set(err, E_TOOLARGE, "%s needs too much memory", s->name);
    return tlv_decode_in_place(s, slice_make(p, in.n), a, ret_body, err);
}
