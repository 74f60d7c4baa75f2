/* Objects: one arena each, immutable, counted. An object keeps its log bytes and points into them,
 * so that encoding it again is one copy. Never changes an object once it is made; never takes
 * memory from outside. */
#include "api/base/limits.h"
#include "api/schema/schema_internal.h"

#include <stdatomic.h>

/* Decoded, of an object that is made from one that was read: that may have ARENA_LIMIT_DEFAULT, and
 * what is made of it some more. */
#define MADE_MEMORY_MAX (2 * ARENA_LIMIT_DEFAULT)

/* ---- members ---- */
int64_t member_int(const struct field *f, const void *body)
{
    const void *p = member(f, body);

    if (f->type == T_BOOL)
        return *(const bool *)p;
    if (f->type == T_ENUM || f->type == T_INT) {
        int v;
        memcpy(&v, p, sizeof v);
        return v;
    }
    return *(const int64_t *)p;
}

void member_set_int(const struct field *f, void *body, int64_t v)
{
    void *p = member_mut(f, body);

    if (f->type == T_BOOL) {
        *(bool *)p = v != 0;
    } else if (f->type == T_ENUM || f->type == T_INT) {
        int e = (int)v;
        memcpy(p, &e, sizeof e);
    } else {
        *(int64_t *)p = v;
    }
}

bool member_present(const struct field *f, const void *body)
{
    bool has = body_has(body) >> f->bit & 1;

    switch (f->type) {
    case T_STR:
    case T_QTY:
        return *member_str(f, body) != 0;
    case T_TEXT:
        return *(const char *)member(f, body) != 0;
    case T_PART:
        return *(const bool *)member(f->sub->fields, member(f, body));
    case T_OWN:
        return f->own->present(member(f, body));
    case T_OBJ:
        return *(const void *const *)member(f, body) != NULL;
    case T_LIST:
    case T_STRS:
    case T_ENUMS:
    case T_I64S:
    case T_MAP:
        return member_count(f, body) > 0;
    case T_RAW:
    case T_B64:
        return ((const struct slice *)member(f, body))->n > 0;
    case T_F64:
    case T_PCT:
        return has || *(const double *)member(f, body) != 0.0;
    case T_ENUM:
    case T_TIME:
        return member_int(f, body) != 0;
    default:
        if (f->flags & FIELD_I64_TEXT) /* resourceVersion: 0 is none */
            has = false;
        return has || member_int(f, body) != 0;
    }
}

void body_init(const struct schema *s, void *body)
{
    schema_for_each (f, s)
        if (f->type == T_STR || f->type == T_QTY)
            *(const char **)member_mut(f, body) = "";
        else if (f->type == T_PART)
            body_init(f->sub, member_mut(f, body));
}

void *body_new(const struct schema *s, struct arena *a)
{
    void *body = arena_alloc(a, s->size);

    if (body)
        body_init(s, body);
    return body;
}

/* ---- log bytes, as a part and as a whole ---- */
void tlv_add(const struct schema *s, const void *body, struct buf *out)
{
    tlv_put(s, body, out, NULL);
}

int tlv_encode(const struct schema *s, const void *body, struct buf *out, struct err *err)
{
    char path[ERR_FIELD_MAX] = "";

    tlv_put(s, body, out, path);
    return out->failed ? path_too_large(err, schema_title(s), path, out->max) : 0;
}

bool body_equal(const struct schema *s, const void *a, const void *b)
{
    AUTO_BUF x = {0}, y = {0};

    buf_init(&x, LIMIT_COMMAND_MAX_BYTES);
    buf_init(&y, LIMIT_COMMAND_MAX_BYTES);
    tlv_add(s, a, &x);
    tlv_add(s, b, &y);
    if (x.failed || y.failed) /* what is too large to be stored is told apart by who stores it */
        return false;
    return x.n == y.n && (x.n == 0 || !memcmp(x.p, y.p, x.n));
}

/* ---- digest ---- */
static uint64_t load64(const unsigned char *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static uint64_t mix(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 29;
    h *= 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

/* Not keyed and not for secrets: it finds members that differ, not forgers. Equal on all
 * machines. */
uint64_t bytes_digest(const void *p, size_t n)
{
    const unsigned char *c = p;
    uint64_t h = 0x68616e7365u ^ (uint64_t)n * 0x9e3779b97f4a7c15u;

    for (; n >= 8; c += 8, n -= 8)
        h = mix(h ^ load64(c, 8)) + 0x2545f4914f6cdd1du;
    if (n)
        h = mix(h ^ load64(c, n)) + n;
    return mix(h);
}

/* ---- life ---- */
static const struct object *object_check(const struct object *o)
{
    INV(o && o->magic == OBJECT_MAGIC);
    return o;
}

struct object *object_ref(const struct object *o)
{
    struct object *m = (struct object *)(uintptr_t)object_check(o); /* only the count is written */

    uint32_t before = atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    INV(before > 0 && before < UINT32_MAX / 2);
    return m;
}

struct object *object_unref(const struct object *v)
{
    struct object *o = (struct object *)(uintptr_t)v; /* counted by whoever may only look, too */

    if (!o)
        return NULL;
    (void)object_check(o);
    uint32_t before = atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel);
    INV(before > 0);
    if (before == 1) {
        o->magic = 0;
        (void)arena_destroy(o->mem);
    }
    return NULL;
}

const void *object_body(const struct object *o, const struct schema *s)
{
    INV(object_check(o)->kind->schema == s);
    return o->body;
}

/* The memory an object needs is counted first: a member holds millions, so that what an arena keeps
 * in reserve would be most of them. */
static int object_decode_within(const struct kind *k, struct slice in, size_t max_bytes,
                                size_t max_memory, struct object **ret, struct err *err)
{
    if (in.n > max_bytes)
        return err_set(err, E_TOOLARGE, "%s: %zu bytes are more than an object may have", k->kind,
                       in.n);
    size_t need =
        sizeof(struct object) + in.n + 32 + tlv_memory(k->schema, in, ARENA_LIMIT_DEFAULT / 2);
    struct arena *a = arena_create_sized(need, max_memory);
    arena_set_soft(a, true);
    struct object *o = arena_new(a, struct object);
    const unsigned char *log = arena_memdup(a, in.n ? in.p : "", in.n ? in.n : 1);
    void *body = NULL;
    int r = o && log ? tlv_decode_in_place(k->schema, slice_make(log, in.n), a, &body, err)
                     : err_set(err, E_TOOLARGE, "%s needs too much memory", k->kind);
    if (r < 0) {
        (void)arena_destroy(a);
        return r;
    }
    struct meta **meta = (struct meta **)member_mut(&k->schema->fields[0], body);
    if (!*meta)
        *meta = body_new(&schema_meta, a);
    if (!*meta) {
        (void)arena_destroy(a);
        return err_set(err, E_TOOLARGE, "%s needs too much memory", k->kind);
    }
    o->magic = OBJECT_MAGIC;
    atomic_init(&o->refs, 1);
    o->kind = k;
    o->meta = *meta;
    o->body = body;
    o->log = log;
    o->bytes = (uint32_t)in.n;
    o->digest = bytes_digest(log, in.n);
    o->mem = a;
    *ret = o;
    return 0;
}

int object_decode(const struct kind *k, struct slice in, struct object **ret, struct err *err)
{
    return object_decode_within(k, in, LIMIT_COMMAND_MAX_BYTES, ARENA_LIMIT_DEFAULT, ret, err);
}

int object_make_within(const struct kind *k, const void *body, size_t max_bytes,
                       struct object **ret, struct err *err)
{
    AUTO_BUF log = {0};

    buf_init(&log, max_bytes);
    int r = tlv_encode(k->schema, body, &log, err);
    if (r < 0)
        return r;
    return object_decode_within(k, slice_make(log.p, log.n), max_bytes, MADE_MEMORY_MAX, ret, err);
}

struct object *object_make(const struct kind *k, const void *body)
{
    struct object *o = NULL;
    int r = object_make_within(k, body, OBJECT_MADE_MAX_BYTES, &o, NULL);

    INV(r == 0);
    return o;
}

void object_encode(const struct object *o, struct buf *out)
{
    (void)object_check(o);
    buf_add(out, o->log, o->bytes);
}

void *object_edit(const struct object *o, struct arena *a)
{
    void *body = NULL;

    (void)object_check(o);
    int r = tlv_decode(o->kind->schema, slice_make(o->log, o->bytes), a, &body, NULL);
    INV(r == 0);
    struct meta **meta = (struct meta **)member_mut(&o->kind->schema->fields[0], body);
    if (!*meta)
        *meta = body_new(&schema_meta, a);
    return body;
}

/* ---- labels ---- */
const char *label_get(const struct kv *labels, uint32_t n, const char *key)
{
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(labels[i].key, key))
            return labels[i].value;
    return NULL;
}

static bool term_matches(const struct selector_term *t, const struct kv *labels, uint32_t n)
{
    const char *value = label_get(labels, n, t->key);
    bool in = false;

    for (uint32_t i = 0; value && i < t->n_values && !in; i++)
        in = !strcmp(t->values[i], value);
    switch (t->operator_) {
    case SEL_IN:
        return in;
    case SEL_NOT_IN: /* as in Kubernetes, an absent label is not in the set */
        return !in;
    case SEL_EXISTS:
        return value != NULL;
    case SEL_NOT_EXISTS:
        return value == NULL;
    default:
        return false;
    }
}

bool selector_matches(const struct label_selector *s, const struct kv *labels, uint32_t n)
{
    if (!s)
        return true;
    for (uint32_t i = 0; i < s->n_matchLabels; i++) {
        const char *value = label_get(labels, n, s->matchLabels[i].key);
        if (!value || strcmp(value, s->matchLabels[i].value))
            return false;
    }
    for (uint32_t i = 0; i < s->n_matchExpressions; i++)
        if (!term_matches(&s->matchExpressions[i], labels, n))
            return false;
    return true;
}

/* ---- the grace of a deletion ---- */
static uint64_t grace_bit(void)
{
    static const char name[] = "deletionGracePeriodSeconds";

    return (uint64_t)1 << schema_field(&schema_meta, name, sizeof name - 1)->bit;
}

bool meta_grace(const struct meta *m, int64_t *ret_seconds)
{
    if (!(m->has & grace_bit()))
        return false;
    *ret_seconds = m->deletionGracePeriodSeconds;
    return true;
}

void meta_grace_set(struct meta *m, int64_t seconds)
{
    m->has |= grace_bit();
    m->deletionGracePeriodSeconds = seconds;
}

void meta_grace_keep(struct meta *m, const struct meta *old)
{
    int64_t seconds;

    m->has &= ~grace_bit();
    m->deletionGracePeriodSeconds = 0;
    if (old && meta_grace(old, &seconds))
        meta_grace_set(m, seconds);
}
