/* A root as bytes. Each object is written once, however many changes name it, so that the window of
 * changes costs little; what is derived is computed again on reading.
 *
 *   version 3:    8 bytes "HNSESNAP"  u32 version  12 bytes 0, then pieces of whole fields
 *                 (snapshot_pieces.c, record.c); one piece at a time is in memory
 *   1 and 2:      8 bytes "HNSESNAP"  u32 version  u32 crc32  u64 bytes  fields
 *
 * Version 3 is written once every member reads it (FEATURE_GRANTS). A reader never takes bytes for
 * true: it checks lengths, references between fields, and the digest. */
#include "controlplane/store/store_internal.h"

#include <zlib.h>

#define SNAPSHOT_VERSION 3
#define SNAPSHOT_IN_ONE 2        /* the newest that is not in pieces */
#define SNAPSHOT_BEFORE_LEDGER 1 /* is read, too: the ledger begins with it */
#define SNAPSHOT_HEAD 24
static const char snapshot_magic[8] = "HNSESNAP";

enum {
    S_INDEX = 1,
    S_NUMBER,
    S_TERM,
    S_RV,
    S_TIME,
    S_REQUEST_SEQ,
    S_CLUSTER_UID,
    S_REVISION,
    S_DIGEST,
    S_OBJECT = 20, /* kind, live, bytes */
    S_CHANGE = 21, /* rv, kind, before, after: places in the list of objects, from 1 */
    S_REQUEST = 22,
    S_MEMBER = 23,
    S_DEAD = 24,
    S_LEDGER = 25,  /* ledger_bytes.c */
    S_ARCHIVE = 26, /* archive/archive_bytes.c; a reader before it finds that the digest differs */
    S_RECOVERING = 27, /* only while it is; likewise */
    S_ANCESTOR = 28,   /* of a state that began anew; likewise */
    S_STRANGER = 29,   /* a name */
    /* 30 to 32: request.c */
    S_CPUS_SINCE = 33, /* ahead of all objects; absent: the ledger knows no CPUs */
    S_RATE = 34        /* rate.c; behind all objects */
};
enum { O_KIND = 1, O_LIVE, O_BYTES };
enum { C_RV = 1, C_KIND, C_BEFORE, C_AFTER };
enum { M_ID = 1, M_ADDRESS, M_API, M_NAME, M_LEVEL };
enum { D_KEY = 1, D_STAGE, D_WAITING, D_CURSOR };
enum { A_UID = 1, A_RV };

/* ---- writing ---- */
struct slot {
    const struct object *o;
    uint64_t at;
};
struct writer {
    struct buf *out;         /* fields that are not in a piece yet */
    struct pieces_out *sink; /* NULL: all in one */
    struct slot *map; /* what changes name; open addressing by address: for finding only, never for
                         order */
    size_t cap;
    uint64_t n;
};

/* Fields go out as pieces once there are enough for one; `all`: what there is. */
static void flush(struct writer *w, bool all)
{
    struct wire left = {(const unsigned char *)w->out->p, w->out->n};
    const unsigned char *from = left.p;
    struct slice v;
    uint16_t tag;

    if (!w->sink || w->out->failed || (!all && w->out->n < PIECE_BYTES))
        return;
    while (record_next(&left, &tag, &v) > 0)
        if ((size_t)(left.p - from) >= PIECE_BYTES) {
            pieces_put(w->sink, from, (size_t)(left.p - from));
            from = left.p;
        }
    if (left.p > from)
        pieces_put(w->sink, from, (size_t)(left.p - from));
    buf_reset(w->out);
}

static struct slot *map_find(struct writer *w, const struct object *o)
{
    size_t at = (size_t)hash_u64(7, (uint64_t)(uintptr_t)o) & (w->cap - 1);

    while (w->map[at].o && w->map[at].o != o)
        at = (at + 1) & (w->cap - 1);
    return &w->map[at];
}

static uint64_t write_object(struct writer *w, const struct object *o, bool live)
{
    if (!o)
        return 0;
    struct slot *p = map_find(w, o);
    if (p->o && p->at)
        return p->at;
    uint64_t place = ++w->n;
    if (p->o)
        p->at = place;
    size_t at = record_open(w->out, S_OBJECT);
    record_u64(w->out, O_KIND, (uint64_t)o->kind->id);
    record_u64(w->out, O_LIVE, live);
    size_t in = record_open(w->out, O_BYTES);
    object_encode(o, w->out);
    record_close(w->out, in);
    record_close(w->out, at);
    flush(w, false);
    return place;
}

static bool note_change(struct slice key, const void *value, void *arg)
{
    const struct change *c = &((const struct change_box *)value)->change;

    (void)key;
    if (c->before)
        map_find(arg, c->before)->o = c->before;
    if (c->after)
        map_find(arg, c->after)->o = c->after;
    return true;
}

static bool write_live(struct slice key, const void *value, void *arg)
{
    (void)key;
    (void)write_object(arg, value, true);
    return true;
}

static bool write_change(struct slice key, const void *value, void *arg)
{
    const struct change *c = &((const struct change_box *)value)->change;
    struct writer *w = arg;
    uint64_t before = write_object(w, c->before, false), after = write_object(w, c->after, false);

    (void)key;
    size_t at = record_open(w->out, S_CHANGE);
    record_u64(w->out, C_RV, c->rv);
    record_u64(w->out, C_KIND, (uint64_t)c->kind);
    record_u64(w->out, C_BEFORE, before);
    record_u64(w->out, C_AFTER, after);
    record_close(w->out, at);
    flush(w, false);
    return true;
}

static bool write_request(struct slice key, const void *value, void *arg)
{
    request_write(S_REQUEST, key, value, ((struct writer *)arg)->out);
    flush(arg, false);
    return true;
}

static bool write_member(struct slice key, const void *value, void *arg)
{
    const struct member_info *m = &((const struct member_box *)value)->info;
    struct buf *out = ((struct writer *)arg)->out;
    size_t at = record_open(out, S_MEMBER);

    (void)key;
    record_u64(out, M_ID, m->id);
    record_str(out, M_ADDRESS, m->address);
    record_str(out, M_API, m->api_address);
    record_str(out, M_NAME, m->name);
    record_u64(out, M_LEVEL, m->feature_level);
    record_close(out, at);
    return true;
}

static bool write_dead(struct slice key, const void *value, void *arg)
{
    const struct dead_box *d = value;
    struct buf *out = ((struct writer *)arg)->out;
    size_t at = record_open(out, S_DEAD);

    record_bytes(out, D_KEY, key.p, key.n);
    record_u64(out, D_STAGE, d->stage);
    record_u64(out, D_WAITING, d->waiting);
    record_bytes(out, D_CURSOR, d->cursor, d->n);
    record_close(out, at);
    flush(arg, false);
    return true;
}

static bool write_ancestor(struct slice key, const void *value, void *arg)
{
    struct buf *out = ((struct writer *)arg)->out;
    size_t at = record_open(out, S_ANCESTOR);

    record_bytes(out, A_UID, key.p, key.n);
    record_u64(out, A_RV, (uint64_t)((const struct count_box *)value)->n);
    record_close(out, at);
    return true;
}

static bool write_stranger(struct slice key, const void *value, void *arg)
{
    (void)value;
    record_bytes(((struct writer *)arg)->out, S_STRANGER, key.p, key.n);
    flush(arg, false);
    return true;
}

static void field_written(void *arg)
{
    flush(arg, false);
}

static void write_all(struct writer *w, const struct root *r)
{
    const struct slice start = slice_make("", 0);
    const struct fields_out out = {w->out, field_written, w};

    record_u64(w->out, S_INDEX, r->index);
    record_u64(w->out, S_NUMBER, r->number);
    record_u64(w->out, S_TERM, r->term);
    record_u64(w->out, S_RV, r->rv);
    record_i64(w->out, S_TIME, r->time);
    record_u64(w->out, S_REQUEST_SEQ, r->request_seq);
    record_str(w->out, S_CLUSTER_UID, r->cluster_uid);
    record_str(w->out, S_REVISION, r->revision);
    if (r->recovering)
        record_u64(w->out, S_RECOVERING, r->recovering);
    if (r->ledger.cpus)
        record_i64(w->out, S_CPUS_SINCE, r->ledger.cpus_since);
    tree_scan(r->ancestors, start, write_ancestor, w);
    for (int k = 1; k < KIND_LIMIT; k++)
        if (r->kinds[k])
            tree_scan(r->kinds[k], start, write_live, w);
    tree_scan(r->changes, start, write_change, w);
    tree_scan(r->requests, start, write_request, w);
    requests_write(r, &out);
    rates_write(r, S_RATE, &out);
    tree_scan(r->members, start, write_member, w);
    tree_scan(r->dead, start, write_dead, w);
    tree_scan(r->strangers, start, write_stranger, w);
    flush(w, true);
    ledger_write(r, S_LEDGER, &out);
    archive_write(r, S_ARCHIVE, &out);
    record_u64(w->out, S_DIGEST, root_digest(r));
    flush(w, true);
}

static void map_make(struct writer *w, const struct root *r)
{
    uint64_t named = 2 * tree_count(r->changes) + 16;

    for (w->cap = 64; w->cap < 2 * named; w->cap *= 2)
        ;
    w->map = mem_zalloc(w->cap * sizeof *w->map);
    tree_scan(r->changes, slice_make("", 0), note_change, w);
}

#define FIELDS_MAX ((size_t)1 << 30) /* in one: of all */
/* In pieces: what waits for its piece, and the largest field. */
#define WAITING_MAX (PIECE_BYTES + 4 * (size_t)LIMIT_OBJECT_MAX_BYTES + ((size_t)1 << 20))

static int too_large(const struct writer *w, struct err *err)
{
    return err_set(err, E_TOOLARGE, "%s is larger than %zu MiB",
                   w->sink ? "a field of the state" : "the state", w->out->max >> 20);
}

static int write_pieces(const struct root *r, struct writer *w, snapshot_piece_cb piece, void *arg,
                        struct err *err)
{
    unsigned char head[SNAPSHOT_HEAD] = {0};
    struct pieces_out sink;
    int rv;

    memcpy(head, snapshot_magic, sizeof snapshot_magic);
    le_put_u32(head + 8, SNAPSHOT_VERSION);
    pieces_begin(&sink, piece, arg, head, sizeof head);
    w->sink = &sink;
    write_all(w, r);
    rv = pieces_end(&sink, err);
    return rv ? rv : w->out->failed ? too_large(w, err) : 0;
}

static int write_in_one(const struct root *r, struct writer *w, snapshot_piece_cb piece, void *arg,
                        struct err *err)
{
    unsigned char head[SNAPSHOT_HEAD] = {0};

    memcpy(head, snapshot_magic, sizeof snapshot_magic);
    le_put_u32(head + 8, SNAPSHOT_IN_ONE);
    buf_add(w->out, head, sizeof head);
    write_all(w, r);
    if (w->out->failed)
        return too_large(w, err);
    unsigned char *p = (unsigned char *)w->out->p;
    size_t n = w->out->n - SNAPSHOT_HEAD;
    le_put_u32(p + 12, (uint32_t)crc32_z(0, p + SNAPSHOT_HEAD, n));
    le_put_u64(p + 16, n);
    if (!piece(arg, p, w->out->n))
        return err_set(err, E_NOMEM, "there is no room for a snapshot of %zu bytes", w->out->n);
    return 0;
}

int snapshot_write(const struct root *r, snapshot_piece_cb piece, void *arg, struct err *err)
{
    AUTO_BUF fields;
    struct writer w = {.out = &fields};
    int rv;

    bool pieces = root_feature_level(r) >= FEATURE_GRANTS;

    buf_init(&fields, pieces ? WAITING_MAX : FIELDS_MAX);
    map_make(&w, r);
    rv = (pieces ? write_pieces : write_in_one)(r, &w, piece, arg, err);
    mem_free(w.map);
    return rv;
}

static bool into_buf(void *arg, const void *p, size_t n)
{
    buf_add(arg, p, n);
    return !((struct buf *)arg)->failed;
}

int snapshot_encode(const struct root *r, struct buf *out, struct err *err)
{
    return snapshot_write(r, into_buf, out, err);
}

/* ---- reading ---- */
struct reader {
    struct root *r;
    struct object **objects; /* by place, from 0; references held until the end */
    uint64_t n, cap;
    uint64_t digest;
    bool has_digest;
    struct err *err;
};

#define SNAP_BAD(x, what) err_set((x)->err, E_CORRUPT, "snapshot: %s", (what))

static int read_object(struct reader *x, struct slice in)
{
    struct wire w = {in.p, in.n};
    struct slice v, bytes = {NULL, 0};
    uint16_t tag;
    uint64_t kind = 0, live = 0;
    int r;

    while ((r = record_next(&w, &tag, &v)) > 0) {
        if (tag == O_KIND)
            kind = record_get_u64(v);
        else if (tag == O_LIVE)
            live = record_get_u64(v);
        else if (tag == O_BYTES)
            bytes = v;
    }
    const struct kind *k = kind < KIND_LIMIT ? kind_by_id((enum kind_id)kind) : NULL;
    if (r < 0 || !k || !bytes.p || bytes.n > 4 * (size_t)LIMIT_OBJECT_MAX_BYTES)
        return SNAP_BAD(x, "an object cannot be read");
    struct object *o = NULL;
    if ((r = object_decode(k, bytes, &o, x->err)) < 0)
        return r;
    if (x->n == x->cap) {
        x->cap = x->cap ? 2 * x->cap : 1024;
        x->objects = mem_realloc(x->objects, x->cap * sizeof *x->objects);
    }
    x->objects[x->n++] = o;
    const struct meta *m = o->meta;
    if (strlen(m->name) > 253 || strlen(m->namespace_) > 63 || strlen(m->uid) > 64)
        return SNAP_BAD(x, "a name is too long");
    for (uint32_t i = 0; i < m->n_ownerReferences; i++)
        if (strlen(m->ownerReferences[i].uid) > 64)
            return SNAP_BAD(x, "a uid is too long");
    if (!live)
        return 0;
    if (root_get(x->r, k->id, m->namespace_, m->name) || !root_object_sound(x->r, o))
        return SNAP_BAD(x, "an object is there twice or holds what cannot be");
    root_load_object(x->r, o);
    return 0;
}

static int read_change(struct reader *x, struct slice in)
{
    struct wire w = {in.p, in.n};
    struct slice v;
    uint16_t tag;
    uint64_t f[5] = {0};
    struct key k;
    int r;

    while ((r = record_next(&w, &tag, &v)) > 0)
        if (tag <= C_AFTER)
            f[tag] = record_get_u64(v);
    key_u64(&k, f[C_RV]);
    if (r < 0 || f[C_BEFORE] > x->n || f[C_AFTER] > x->n || (!f[C_BEFORE] && !f[C_AFTER]) ||
        f[C_KIND] >= KIND_LIMIT || tree_get(x->r->changes, key_slice(&k)))
        return SNAP_BAD(x, "a change cannot be read");
    struct change c = {f[C_RV], (enum kind_id)f[C_KIND],
                       f[C_BEFORE] ? x->objects[f[C_BEFORE] - 1] : NULL,
                       f[C_AFTER] ? x->objects[f[C_AFTER] - 1] : NULL};
    root_load_change(x->r, &c);
    return 0;
}

static int read_request(struct reader *x, struct slice in)
{
    struct slice key;
    struct key seq;
    struct request_box *b = request_read(in, &key);

    if (!b)
        return SNAP_BAD(x, "a request id cannot be read");
    key_u64(&seq, b->seq);
    if (tree_get(x->r->requests, key) || tree_get(x->r->request_order, key_slice(&seq))) {
        box_unref(b);
        return SNAP_BAD(x, "a request id is there twice");
    }
    root_put_request(x->r, key, b);
    return 0;
}

static int read_member(struct reader *x, struct slice in)
{
    struct wire w = {in.p, in.n};
    struct member_info m = {0};
    struct slice v;
    uint16_t tag;
    bool ok = true;
    int r;

    while ((r = record_next(&w, &tag, &v)) > 0) {
        if (tag == M_ID)
            m.id = record_get_u64(v);
        else if (tag == M_ADDRESS)
            ok = ok && record_get_str(v, m.address, sizeof m.address);
        else if (tag == M_API)
            ok = ok && record_get_str(v, m.api_address, sizeof m.api_address);
        else if (tag == M_NAME)
            ok = ok && record_get_str(v, m.name, sizeof m.name);
        else if (tag == M_LEVEL)
            m.feature_level = (uint32_t)record_get_u64(v);
    }
    if (r < 0 || !ok || !m.id)
        return SNAP_BAD(x, "a member cannot be read");
    root_put_member(x->r, &m, false);
    return 0;
}

static int read_dead(struct reader *x, struct slice in)
{
    struct wire w = {in.p, in.n};
    struct slice v, key = {NULL, 0}, cursor = {"", 0};
    uint64_t stage = 0, waiting = 0;
    uint16_t tag;
    int r;

    while ((r = record_next(&w, &tag, &v)) > 0) {
        if (tag == D_KEY)
            key = v;
        else if (tag == D_CURSOR)
            cursor = v;
        else if (tag == D_STAGE)
            stage = record_get_u64(v);
        else if (tag == D_WAITING)
            waiting = record_get_u64(v);
    }
    if (r < 0 || key.n < 2 || key.n > STORE_KEY_MAX || memchr(key.p, 0, key.n) ||
        cursor.n > STORE_KEY_MAX || stage > KIND_LIMIT)
        return SNAP_BAD(x, "what waits for removal cannot be read");
    struct dead_box *d = box_new(sizeof *d + cursor.n, NULL);
    d->stage = (uint32_t)stage;
    d->waiting = waiting != 0;
    d->n = (uint32_t)cursor.n;
    if (cursor.n)
        memcpy(d->cursor, cursor.p, cursor.n);
    root_put_dead(x->r, key, d);
    return 0;
}

static int read_ancestor(struct reader *x, struct slice in)
{
    struct wire w = {in.p, in.n};
    struct slice v, uid = {NULL, 0};
    uint64_t rv = 0;
    uint16_t tag;
    int r;

    while ((r = record_next(&w, &tag, &v)) > 0) {
        if (tag == A_UID)
            uid = v;
        else if (tag == A_RV)
            rv = record_get_u64(v);
    }
    if (r < 0 || !uid.n || uid.n >= CLUSTER_UID_MAX || !rv || rv > INT64_MAX ||
        tree_get(x->r->ancestors, uid) || tree_count(x->r->ancestors) == ANCESTORS_MAX)
        return SNAP_BAD(x, "an ancestor cannot be read");
    root_count_add(&x->r->ancestors, uid, (int64_t)rv);
    return 0;
}

static int read_stranger(struct reader *x, struct slice v)
{
    char name[254];

    if (!record_get_str(v, name, sizeof name) || !object_name_valid(name) || !x->r->recovering ||
        root_get(x->r, KIND_TARGET, "", name))
        return SNAP_BAD(x, "a Target that is awaited cannot be read");
    root_put_stranger(x->r, name, false);
    return 0;
}

static int read_field(struct reader *x, uint16_t tag, struct slice v)
{
    uint64_t *const numbers[] = {[S_INDEX] = &x->r->index, [S_NUMBER] = &x->r->number,
                                 [S_TERM] = &x->r->term,   [S_RV] = &x->r->rv,
                                 [S_TIME] = NULL,          [S_REQUEST_SEQ] = &x->r->request_seq};

    switch (tag) {
    case S_TIME:
        x->r->time = record_get_i64(v);
        return 0;
    case S_CLUSTER_UID:
        return record_get_str(v, x->r->cluster_uid, sizeof x->r->cluster_uid)
                   ? 0
                   : SNAP_BAD(x, "the cluster's uid");
    case S_REVISION:
        return record_get_str(v, x->r->revision, sizeof x->r->revision)
                   ? 0
                   : SNAP_BAD(x, "the revision");
    case S_DIGEST:
        x->digest = record_get_u64(v);
        x->has_digest = true;
        return 0;
    case S_RECOVERING:
        x->r->recovering = record_get_u64(v);
        return 0;
    case S_CPUS_SINCE:
        x->r->ledger.cpus = true;
        x->r->ledger.cpus_since = record_get_i64(v);
        return x->r->ledger.cpus_since <= x->r->time ? 0 : SNAP_BAD(x, "since when CPUs count");
    case S_ANCESTOR:
        return read_ancestor(x, v);
    case S_OBJECT:
        return read_object(x, v);
    case S_CHANGE:
        return read_change(x, v);
    case S_REQUEST:
        return read_request(x, v);
    case S_MEMBER:
        return read_member(x, v);
    case S_DEAD:
        return read_dead(x, v);
    case S_STRANGER:
        return read_stranger(x, v);
    case S_RATE:
        return rates_read(x->r, v, x->err);
    case S_LEDGER:
        return ledger_read(x->r, v, x->err);
    case S_ARCHIVE:
        return archive_read(x->r, v, x->err);
    default:
        if (tag >= S_INDEX && tag <= S_REQUEST_SEQ)
            *numbers[tag] = record_get_u64(v);
        return requests_read(x->r, tag, v, x->err);
    }
}

static int read_fields(void *arg, struct slice in)
{
    struct wire w = {in.p, in.n};
    struct reader *x = arg;
    struct slice v;
    uint16_t tag;
    int r;

    while ((r = record_next(&w, &tag, &v)) > 0)
        if ((r = read_field(x, tag, v)) < 0)
            return r;
    return r < 0 ? SNAP_BAD(x, "it is cut off") : 0;
}

static int read_end(struct reader *x, uint32_t version)
{
    int r;

    if ((r = archive_loaded(x->r, x->err)) < 0)
        return r;
    bool ledger = version != SNAPSHOT_BEFORE_LEDGER;
    if (ledger && (r = ledger_loaded(x->r, true, x->err)) < 0)
        return r;
    if (!x->has_digest || x->digest != root_digest(x->r))
        return SNAP_BAD(x, "its digest is not that of its contents");
    return ledger ? 0 : ledger_loaded(x->r, false, x->err);
}

int snapshot_decode(struct slice in, struct root **ret, struct err *err)
{
    const unsigned char *p = in.p;
    struct reader x = {.err = err};

    *ret = NULL;
    if (in.n < SNAPSHOT_HEAD || memcmp(p, snapshot_magic, sizeof snapshot_magic) != 0)
        return err_set(err, E_CORRUPT, "this is no snapshot of Hanse");
    uint32_t version = le_get_u32(p + 8);
    struct slice body = slice_make(p + SNAPSHOT_HEAD, in.n - SNAPSHOT_HEAD);
    if (version > SNAPSHOT_VERSION)
        return err_set(err, E_NOTIMPL,
                       "it is of version %u and this program reads up to %d: a newer version of "
                       "hanse is needed; the data is kept as it is",
                       version, SNAPSHOT_VERSION);
    if (version < SNAPSHOT_BEFORE_LEDGER)
        return err_set(err, E_CORRUPT, "there is no version %u", version);
    if (version <= SNAPSHOT_IN_ONE && (le_get_u64(p + 16) != body.n ||
                                       le_get_u32(p + 12) != (uint32_t)crc32_z(0, body.p, body.n)))
        return err_set(err, E_CORRUPT, "the snapshot is torn: its checksum does not match");
    x.r = root_create();
    int r = version <= SNAPSHOT_IN_ONE ? read_fields(&x, body)
                                       : pieces_read(body, read_fields, &x, err);
    if (r == 0)
        r = read_end(&x, version);
    for (uint64_t i = 0; i < x.n; i++)
        (void)object_unref(x.objects[i]);
    mem_free(x.objects);
    if (r < 0) {
        (void)root_unref(x.r);
        return r;
    }
    *ret = x.r;
    return 0;
}
