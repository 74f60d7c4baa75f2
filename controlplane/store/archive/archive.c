/* The archive in the state: records that wait in the open segment, descriptions of closed segments,
 * and the chain of digests over both.
 *
 * A record that no file can have yet must never be lost: the records of the segments that the
 * newest closing entry closed stay in the state until another entry closes one. */
#include "controlplane/store/store_internal.h"

#include <stdio.h>

const enum kind_id archive_kinds[ARCHIVE_KINDS] = {KIND_WORKLOAD, KIND_DECISION, KIND_MIGRATION,
                                                   KIND_CHECKPOINT, KIND_EVENT};

static int kind_place(enum kind_id kind)
{
    for (int i = 0; i < ARCHIVE_KINDS; i++)
        if (archive_kinds[i] == kind)
            return i;
    return -1;
}

/* ---- life ---- */
void archive_init(struct archive *a)
{
    a->open_records = tree_create(&box_ops);
    a->segments = tree_create(&box_ops);
    a->kept_from = 1;
    a->open.number = 1;
}

void archive_fork(struct archive *a)
{
    a->open_records = tree_ref(a->open_records);
    a->segments = tree_ref(a->segments);
}

void archive_fini(struct archive *a)
{
    a->open_records = tree_unref(a->open_records);
    a->segments = tree_unref(a->segments);
}

static void segment_fini(struct box *b)
{
    struct segment_box *s = (struct segment_box *)(void *)b;

    s->records = tree_unref(s->records);
}

void archive_segment_put(struct archive *a, const struct archive_info *i, struct tree *records)
{
    struct segment_box *s = box_new(sizeof *s, segment_fini);
    struct key k;

    s->info = *i;
    s->records = records;
    key_u64(&k, i->number);
    a->segments = tree_put_own(a->segments, key_slice(&k), s);
    box_unref(s);
}

static const struct segment_box *segment_of(const struct archive *a, uint64_t number)
{
    struct key k;

    key_u64(&k, number);
    return tree_get(a->segments, key_slice(&k));
}

/* ---- taking in ---- */
void archive_open_next(struct archive *a, const unsigned char prev[ARCHIVE_DIGEST])
{
    a->open = (struct archive_info){.number = a->newest + 1};
    memcpy(a->open.prev, prev, ARCHIVE_DIGEST);
    archive_chain_begin(&a->open);
    a->open_records = tree_unref(a->open_records);
    a->open_records = tree_create(&box_ops);
}

void archive_begin(struct root *w, uint64_t close_bytes)
{
    struct archive *a = &w->archive;
    unsigned char first[ARCHIVE_DIGEST];

    a->close_bytes = close_bytes;
    if (a->begun)
        return;
    a->begun = true;
    archive_chain_first(w->cluster_uid, first);
    archive_open_next(a, first);
}

void archive_count(struct archive_info *i, const struct archive_record *r, size_t bytes)
{
    int k = kind_place(r->kind);

    INV(k >= 0);
    if (i->records == 0) {
        i->first_entry = r->entry;
        i->first_ms = r->at;
    }
    i->last_entry = r->entry;
    i->last_ms = r->at;
    i->records++;
    i->bytes += bytes;
    i->counts[k]++;
}

void archive_append(struct archive *a, const struct archive_record *r, struct slice bytes)
{
    struct bytes_box *b = box_new(sizeof *b + bytes.n, NULL);
    struct key k;

    b->n = (uint32_t)bytes.n;
    memcpy(b->p, bytes.p, bytes.n);
    key_u64(&k, a->open.records);
    a->open_records = tree_put_own(a->open_records, key_slice(&k), b);
    box_unref(b);
    archive_chain_add(&a->open, bytes);
    archive_count(&a->open, r, bytes.n);
}

void archive_close(struct root *w)
{
    struct archive *a = &w->archive;

    PRE(a->begun && a->open.records > 0);
    if (a->closed_entry != w->number) { /* older ones have had time to come into files */
        for (uint64_t n = a->kept_from; n <= a->newest; n++)
            archive_segment_put(a, &segment_of(a, n)->info, NULL);
        a->kept_from = a->newest + 1;
    }
    archive_chain_end(&a->open);
    archive_segment_put(a, &a->open, tree_ref(a->open_records));
    a->newest = a->open.number;
    a->closed_entry = w->number;
    a->records += a->open.records;
    a->bytes += a->open.bytes;
    for (int i = 0; i < ARCHIVE_KINDS; i++)
        a->counts[i] += a->open.counts[i];
    const struct archive_info closed = a->open;
    archive_open_next(a, closed.digest);
}

/* The workload that an object tells of: its history is found by it. */
static void belongs_to(const struct object *o, const char **ret_name, const char **ret_uid)
{
    const struct migration_status *s;
    const struct object_ref *about;

    *ret_name = *ret_uid = "";
    switch (o->kind->id) {
    case KIND_WORKLOAD:
        *ret_name = o->meta->name;
        *ret_uid = o->meta->uid;
        return;
    case KIND_DECISION:
        *ret_name = object_as(o, decision)->spec->workload;
        *ret_uid = object_as(o, decision)->spec->workloadUid;
        return;
    case KIND_MIGRATION:
        s = object_as(o, migration)->status;
        *ret_name = object_as(o, migration)->spec->workload;
        *ret_uid = s ? s->workloadUid : "";
        return;
    case KIND_CHECKPOINT:
        *ret_name = object_as(o, checkpoint)->spec->workload;
        *ret_uid = object_as(o, checkpoint)->spec->workloadUid;
        return;
    default:
        about = object_as(o, event)->involvedObject;
        if (about && strcmp(about->kind, "Workload") == 0) {
            *ret_name = about->name;
            *ret_uid = about->uid;
        }
    }
}

static void take(struct txn *t, const struct object *o)
{
    struct archive *a = &t->w->archive;
    struct archive_record r = {.kind = o->kind->id, .entry = t->w->number, .at = t->now};
    const char *name, *uid;
    AUTO_BUF b;

    belongs_to(o, &name, &uid);
    str_copy(r.ns, sizeof r.ns, o->meta->namespace_);
    str_copy(r.name, sizeof r.name, o->meta->name);
    str_copy(r.workload, sizeof r.workload, name);
    str_copy(r.uid, sizeof r.uid, uid);
    str_copy(r.by, sizeof r.by, t->user);
    r.object = slice_make(o->log, o->bytes);
    buf_init(&b, ARCHIVE_RECORD_MAX);
    archive_record_write(&r, &b);
    INV(!b.failed); /* an object is never that large */
    archive_append(a, &r, slice_make(b.p, b.n));
    if (a->open.bytes >= a->close_bytes)
        archive_close(t->w);
}

void archive_take(struct txn *t, const struct object *o)
{
    if (t->w->archive.begun && kind_place(o->kind->id) >= 0)
        take(t, o);
}

uint64_t archive_hash(const struct archive *a, uint64_t h)
{
    if (!a->begun)
        return h;
    h = hash_u64(h, a->open.number);
    h = hash_bytes(h, a->open.digest, ARCHIVE_DIGEST);
    h = hash_u64(h, a->open.records);
    h = hash_u64(h, a->open.bytes);
    h = hash_u64(h, a->kept_from);
    h = hash_u64(h, a->closed_entry);
    h = hash_u64(h, a->close_bytes);
    return hash_u64(h, a->bytes);
}

/* ---- reading ---- */
struct archive_totals root_archive(const struct root *r)
{
    const struct archive *a = &r->archive;
    struct archive_totals t = {.begun = a->begun,
                               .segments = a->newest,
                               .kept_from = a->kept_from,
                               .records = a->records + a->open.records,
                               .bytes = a->bytes + a->open.bytes,
                               .open = a->open};

    for (int i = 0; i < ARCHIVE_KINDS; i++)
        t.counts[i] = a->counts[i] + a->open.counts[i];
    return t;
}

uint64_t root_archive_newest(const struct root *r)
{
    return r->archive.newest;
}

bool root_archive_info(const struct root *r, uint64_t number, struct archive_info *ret)
{
    const struct archive *a = &r->archive;
    const struct segment_box *s = segment_of(a, number);

    if (!a->begun || (!s && number != a->open.number))
        return false;
    *ret = s ? s->info : a->open;
    return true;
}

struct records_each {
    bool (*each)(struct slice record, void *arg);
    void *arg;
};

static bool record_each(struct slice key, const void *value, void *arg)
{
    const struct records_each *e = arg;
    const struct bytes_box *b = value;

    (void)key;
    return e->each(slice_make(b->p, b->n), e->arg);
}

bool root_archive_records(const struct root *r, uint64_t number,
                          bool (*each)(struct slice record, void *arg), void *arg)
{
    const struct archive *a = &r->archive;
    const struct segment_box *s = segment_of(a, number);
    const struct tree *t = s                                      ? s->records
                           : a->begun && number == a->open.number ? a->open_records
                                                                  : NULL;
    struct records_each e = {each, arg};

    if (!t)
        return false;
    tree_scan(t, slice_make("", 0), record_each, &e);
    return true;
}
