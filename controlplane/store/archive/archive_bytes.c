/* The archive as bytes: records, descriptions of segments, the chain of digests, and what a
 * snapshot carries.
 *
 * This file must never take bytes for true: a snapshot's chain is computed again over all that it
 * carries. */
#include "controlplane/store/store_internal.h"

#include <openssl/sha.h>
#include <stdio.h>

_Static_assert(SHA256_DIGEST_LENGTH == ARCHIVE_DIGEST, "one digest");
enum { A_KIND = 1, A_NS, A_NAME, A_WORKLOAD, A_UID, A_ENTRY, A_AT, A_BY, A_OBJECT };
enum {
    I_NUMBER = 1,
    I_FIRST_ENTRY,
    I_LAST_ENTRY,
    I_FIRST_MS,
    I_LAST_MS,
    I_RECORDS,
    I_BYTES,
    I_COUNT, /* + place of the kind */
    I_PREV = I_COUNT + 16,
    I_DIGEST
};
enum { W_HEAD = 1, W_SEGMENT, W_RECORD }; /* W_RECORD: number, bytes; in order, after its segment */
enum { S_WHAT = 1, S_CLOSE_BYTES, S_KEPT_FROM, S_CLOSED_ENTRY, S_INFO, S_NUMBER, S_BYTES };
#define ARCHIVE_BAD(err, what) err_set((err), E_CORRUPT, "snapshot: the archive: %s", (what))

/* ---- records ---- */
void archive_record_write(const struct archive_record *r, struct buf *out)
{
    record_u64(out, A_KIND, (uint64_t)r->kind);
    record_str(out, A_NS, r->ns);
    record_str(out, A_NAME, r->name);
    record_str(out, A_WORKLOAD, r->workload);
    record_str(out, A_UID, r->uid);
    record_u64(out, A_ENTRY, r->entry);
    record_i64(out, A_AT, r->at);
    record_str(out, A_BY, r->by);
    record_bytes(out, A_OBJECT, r->object.p, r->object.n);
}

int archive_record_read(struct slice in, struct archive_record *ret, struct err *err)
{
    struct wire w = {in.p, in.n};
    struct slice v;
    uint16_t tag;
    bool ok = true;
    int r;

    *ret = (struct archive_record){.kind = KIND_NONE};
    while ((r = record_next(&w, &tag, &v)) > 0) {
        if (tag == A_KIND)
            ret->kind = (enum kind_id)record_get_u64(v);
        else if (tag == A_NS)
            ok = ok && record_get_str(v, ret->ns, sizeof ret->ns);
        else if (tag == A_NAME)
            ok = ok && record_get_str(v, ret->name, sizeof ret->name);
        else if (tag == A_WORKLOAD)
            ok = ok && record_get_str(v, ret->workload, sizeof ret->workload);
        else if (tag == A_UID)
            ok = ok && record_get_str(v, ret->uid, sizeof ret->uid);
        else if (tag == A_ENTRY)
            ret->entry = record_get_u64(v);
        else if (tag == A_AT)
            ret->at = record_get_i64(v);
        else if (tag == A_BY)
            ok = ok && record_get_str(v, ret->by, sizeof ret->by);
        else if (tag == A_OBJECT)
            ret->object = v;
    }
    for (int i = 0; ok && i < ARCHIVE_KINDS; i++)
        if (r == 0 && archive_kinds[i] == ret->kind && ret->object.p)
            return 0;
    return err_set(err, E_CORRUPT, "archive: a record cannot be read");
}

/* ---- descriptions ---- */
static void info_fields(const struct archive_info *i, struct buf *out)
{
    record_u64(out, I_NUMBER, i->number);
    record_u64(out, I_FIRST_ENTRY, i->first_entry);
    record_u64(out, I_LAST_ENTRY, i->last_entry);
    record_i64(out, I_FIRST_MS, i->first_ms);
    record_i64(out, I_LAST_MS, i->last_ms);
    record_u64(out, I_RECORDS, i->records);
    record_u64(out, I_BYTES, i->bytes);
    for (uint16_t k = 0; k < ARCHIVE_KINDS; k++)
        record_u64(out, (uint16_t)(I_COUNT + k), i->counts[k]);
    record_bytes(out, I_PREV, i->prev, ARCHIVE_DIGEST);
}

void archive_info_encode(const struct archive_info *i, struct buf *out)
{
    info_fields(i, out);
    record_bytes(out, I_DIGEST, i->digest, ARCHIVE_DIGEST);
}

int archive_info_decode(struct slice in, struct archive_info *ret, struct err *err)
{
    struct wire w = {in.p, in.n};
    bool prev = false, digest = false;
    uint64_t f[I_COUNT + ARCHIVE_KINDS] = {0};
    struct slice v;
    uint16_t tag;
    int r;

    *ret = (struct archive_info){0};
    while ((r = record_next(&w, &tag, &v)) > 0) {
        if (tag < I_COUNT + ARCHIVE_KINDS) {
            f[tag] = record_get_u64(v);
        } else if (tag == I_PREV && v.n == ARCHIVE_DIGEST) {
            memcpy(ret->prev, v.p, ARCHIVE_DIGEST);
            prev = true;
        } else if (tag == I_DIGEST && v.n == ARCHIVE_DIGEST) {
            memcpy(ret->digest, v.p, ARCHIVE_DIGEST);
            digest = true;
        }
    }
    ret->number = f[I_NUMBER];
    ret->first_entry = f[I_FIRST_ENTRY];
    ret->last_entry = f[I_LAST_ENTRY];
    ret->first_ms = (int64_t)f[I_FIRST_MS];
    ret->last_ms = (int64_t)f[I_LAST_MS];
    ret->records = f[I_RECORDS];
    ret->bytes = f[I_BYTES];
    memcpy(ret->counts, f + I_COUNT, sizeof ret->counts);
    if (r < 0 || !prev || !digest || !ret->number)
        return err_set(err, E_CORRUPT, "archive: the description of a segment cannot be read");
    return 0;
}

void archive_digest_text(const unsigned char d[ARCHIVE_DIGEST], char ret[2 * ARCHIVE_DIGEST + 8])
{
    (void)snprintf(ret, 8, "sha256:");
    for (size_t i = 0; i < ARCHIVE_DIGEST; i++)
        (void)snprintf(ret + 7 + 2 * i, 3, "%02x", d[i]);
}

/* ---- the chain ---- */
static void chain(unsigned char d[ARCHIVE_DIGEST], const void *p, size_t n)
{
    unsigned char both[ARCHIVE_DIGEST + ARCHIVE_DIGEST], inner[ARCHIVE_DIGEST];

    INV(SHA256(p, n, inner)); /* of what is long first, so that nothing is copied */
    memcpy(both, d, ARCHIVE_DIGEST);
    memcpy(both + ARCHIVE_DIGEST, inner, ARCHIVE_DIGEST);
    INV(SHA256(both, sizeof both, d));
}

void archive_chain_first(const char *cluster_uid, unsigned char ret[ARCHIVE_DIGEST])
{
    char text[128];
    /* Of the line: its generations go on with one archive. */
    int n = snprintf(text, sizeof text, "hanse archive of %.*s", (int)cluster_line(cluster_uid),
                     cluster_uid);

    INV(n > 0 && n < (int)sizeof text && SHA256((unsigned char *)text, (size_t)n, ret));
}

void archive_chain_begin(struct archive_info *i)
{
    unsigned char head[16 + ARCHIVE_DIGEST + 8] = "hanse archive 1";

    memcpy(head + 16, i->prev, ARCHIVE_DIGEST);
    le_put_u64(head + 16 + ARCHIVE_DIGEST, i->number);
    INV(SHA256(head, sizeof head, i->digest));
}

void archive_chain_add(struct archive_info *i, struct slice record)
{
    chain(i->digest, record.p, record.n);
}

void archive_chain_end(struct archive_info *i)
{
    AUTO_BUF b;

    buf_init(&b, 4096);
    info_fields(i, &b);
    INV(!b.failed);
    chain(i->digest, b.p, b.n);
}

/* ---- in a snapshot ---- */
struct records_writer {
    const struct fields_out *to;
    struct buf *out;
    uint16_t tag;
    uint64_t number;
};

static bool write_record(struct slice key, const void *value, void *arg)
{
    const struct records_writer *x = arg;
    const struct bytes_box *b = value;
    size_t at = record_open(x->out, x->tag);

    (void)key;
    record_u64(x->out, S_WHAT, W_RECORD);
    record_u64(x->out, S_NUMBER, x->number);
    record_bytes(x->out, S_BYTES, b->p, b->n);
    record_close(x->out, at);
    field_whole(x->to);
    return true;
}

static void write_records(const struct tree *t, uint16_t tag, uint64_t number,
                          const struct fields_out *out)
{
    struct records_writer x = {out, out->buf, tag, number};

    tree_scan(t, slice_make("", 0), write_record, &x);
}

static bool write_segment(struct slice key, const void *value, void *arg)
{
    const struct segment_box *s = value;
    const struct records_writer *x = arg;
    size_t at = record_open(x->out, x->tag);

    (void)key;
    record_u64(x->out, S_WHAT, W_SEGMENT);
    size_t in = record_open(x->out, S_INFO);
    archive_info_encode(&s->info, x->out);
    record_close(x->out, in);
    record_close(x->out, at);
    field_whole(x->to);
    if (s->records)
        write_records(s->records, x->tag, s->info.number, x->to);
    return true;
}

void archive_write(const struct root *r, uint16_t tag, const struct fields_out *to)
{
    const struct archive *a = &r->archive;
    struct buf *out = to->buf;
    struct records_writer x = {to, out, tag, 0};

    if (!a->begun)
        return;
    size_t at = record_open(out, tag);
    record_u64(out, S_WHAT, W_HEAD);
    record_u64(out, S_CLOSE_BYTES, a->close_bytes);
    record_u64(out, S_KEPT_FROM, a->kept_from);
    record_u64(out, S_CLOSED_ENTRY, a->closed_entry);
    record_close(out, at);
    tree_scan(a->segments, slice_make("", 0), write_segment, &x);
    write_records(a->open_records, tag, a->open.number, to);
}

static int read_segment(struct archive *a, struct slice in, struct err *err)
{
    struct archive_info i;
    int r = archive_info_decode(in, &i, err);

    if (r < 0)
        return r;
    if (!a->begun || i.number != a->newest + 1 || i.records == 0 || a->open.records > 0 ||
        memcmp(i.prev, a->open.prev, ARCHIVE_DIGEST) != 0)
        return ARCHIVE_BAD(err, "a segment is out of order");
    archive_segment_put(a, &i, NULL);
    a->newest = i.number;
    a->records += i.records;
    a->bytes += i.bytes;
    for (int k = 0; k < ARCHIVE_KINDS; k++)
        a->counts[k] += i.counts[k];
    archive_open_next(a, i.prev); /* its records may follow: they are gathered as the open one's */
    a->open.number = i.number;
    archive_chain_begin(&a->open);
    return 0;
}

/* The records gathered are those of the closed segment that came last: they must be all of it. */
static int gathered(struct archive *a, struct err *err)
{
    struct archive_info i;
    struct key k;

    if (a->newest == 0 || a->open.number > a->newest)
        return 0;
    key_u64(&k, a->newest);
    const struct segment_box *s = tree_get(a->segments, key_slice(&k));
    i = s->info;
    bool kept = a->newest >= a->kept_from;
    if (kept) {
        archive_chain_end(&a->open);
        if (memcmp(&a->open, &i, sizeof i) != 0)
            return ARCHIVE_BAD(err, "the records of a segment do not give its digest");
        archive_segment_put(a, &i, tree_ref(a->open_records));
    } else if (a->open.records > 0) {
        return ARCHIVE_BAD(err, "records of a segment that has none here");
    }
    archive_open_next(a, i.digest);
    return 0;
}

static int read_record(struct archive *a, uint64_t number, struct slice in, struct err *err)
{
    struct archive_record x;
    int r;

    if (number == a->newest + 1 && (r = gathered(a, err)) < 0)
        return r;
    if (!a->begun || number != a->open.number || in.n > ARCHIVE_RECORD_MAX)
        return ARCHIVE_BAD(err, "a record is out of order");
    if ((r = archive_record_read(in, &x, err)) < 0)
        return r;
    archive_append(a, &x, in);
    return 0;
}

static int read_head(struct root *w, const uint64_t *f, struct err *err)
{
    struct archive *a = &w->archive;
    unsigned char first[ARCHIVE_DIGEST];

    if (a->begun || !*w->cluster_uid || f[S_KEPT_FROM] == 0 ||
        f[S_CLOSE_BYTES] < ARCHIVE_CLOSE_MIN_BYTES || f[S_CLOSE_BYTES] > ARCHIVE_CLOSE_MAX_BYTES)
        return ARCHIVE_BAD(err, "its head");
    a->begun = true;
    a->close_bytes = f[S_CLOSE_BYTES];
    a->kept_from = f[S_KEPT_FROM];
    a->closed_entry = f[S_CLOSED_ENTRY];
    archive_chain_first(w->cluster_uid, first);
    archive_open_next(a, first);
    return 0;
}

int archive_read(struct root *w, struct slice in, struct err *err)
{
    struct archive *a = &w->archive;
    struct wire x = {in.p, in.n};
    struct slice v, bytes = {NULL, 0}, info = {NULL, 0};
    uint64_t f[S_BYTES + 1] = {0};
    uint16_t tag;
    int r;

    while ((r = record_next(&x, &tag, &v)) > 0) {
        if (tag == S_BYTES)
            bytes = v;
        else if (tag == S_INFO)
            info = v;
        else if (tag < S_BYTES)
            f[tag] = record_get_u64(v);
    }
    if (r < 0)
        return ARCHIVE_BAD(err, "it is cut off");
    switch (f[S_WHAT]) {
    case W_HEAD:
        return read_head(w, f, err);
    case W_SEGMENT:
        return (r = gathered(a, err)) < 0 ? r : read_segment(a, info, err);
    case W_RECORD:
        return read_record(a, f[S_NUMBER], bytes, err);
    default:
        return 0;
    }
}

int archive_loaded(struct root *w, struct err *err)
{
    struct archive *a = &w->archive;

    if (!a->begun)
        return 0;
    int r = gathered(a, err);
    if (r < 0)
        return r;
    return a->kept_from > a->newest + 1 ? ARCHIVE_BAD(err, "its head") : 0;
}

/* ---- what must hold ---- */
struct recount {
    struct archive_info info;
};

static bool recount_each(struct slice record, void *arg)
{
    struct recount *x = arg;
    struct archive_record r;

    INV(archive_record_read(record, &r, NULL) == 0);
    archive_chain_add(&x->info, record);
    archive_count(&x->info, &r, record.n);
    return true;
}

void archive_check(const struct root *r)
{
    const struct archive *a = &r->archive;
    struct archive_info i;

    INV(tree_count(a->segments) == a->newest && a->open.number == a->newest + 1);
    INV(tree_count(a->open_records) == a->open.records);
    for (uint64_t n = a->kept_from; a->begun && n <= a->newest + 1; n++) {
        struct recount x = {{.number = n}};

        INV(root_archive_info(r, n, &i));
        memcpy(x.info.prev, i.prev, ARCHIVE_DIGEST);
        archive_chain_begin(&x.info);
        INV(root_archive_records(r, n, recount_each, &x));
        if (n <= a->newest)
            archive_chain_end(&x.info);
        INV(memcmp(&x.info, &i, sizeof i) == 0);
    }
}
