/* Searches the archive: the state's records first, then files, newest first. A search is bounded by
 * a number of segments and of records, with one block in memory at a time.
 *
 * It must never silently return less than there is: it names files that are not here, or cannot be
 * read. */
#include "controlplane/archive/archive_files.h"
#include "controlplane/store/archive/segment.h"

#include <stdio.h>
#include <string.h>

#define HEAD_READ_MAX (1u << 20)

struct search {
    struct loop *loop;
    const char *dir;
    const struct root *root;
    const struct archive_search *q;
    bool (*each)(const struct archive_record *rec, uint64_t segment, void *arg);
    void *arg;
    struct archive_found *found;
    uint64_t segment;
    bool stopped;
    int code;
    struct err *err;
};

static bool matches(const struct archive_search *q, const struct archive_record *r)
{
    return strcmp(r->workload, q->workload) == 0 && strcmp(r->ns, q->ns) == 0 &&
           (!*q->uid || strcmp(r->uid, q->uid) == 0) && (!q->kind || r->kind == q->kind);
}

static bool record_each(struct slice record, void *arg)
{
    struct search *s = arg;
    struct archive_record r;

    if ((s->code = archive_record_read(record, &r, s->err)) < 0)
        return false;
    if (!matches(s->q, &r))
        return true;
    s->found->records++;
    s->stopped = !s->each(&r, s->segment, s->arg);
    return !s->stopped;
}

static int in_block(struct search *s, const struct segment_meta *m, uint32_t block,
                    const char *path)
{
    struct slice record;
    uint64_t offset;
    size_t n, at = 0;
    AUTO_BUF packed;
    AUTO_BUF raw;
    int r;

    segment_block_place(m, block, &offset, &n);
    buf_init(&packed, n + 65536);
    buf_init(&raw, ARCHIVE_RECORD_MAX + SEGMENT_BLOCK_BYTES + 4096);
    if ((r = file_read_at(s->loop, path, offset, n, &packed, s->err)) < 0 ||
        (r = segment_block_read(m, block, slice_make(packed.p, packed.n), &raw, s->err)) < 0)
        return r;
    while ((r = segment_record_next(slice_make(raw.p, raw.n), &at, &record, s->err)) > 0)
        if (!record_each(record, s))
            return s->code;
    return r;
}

/* Reads head, description and index of a file, and checks that it is the segment that the state
 * holds. */
static int open_file(struct search *s, const struct archive_info *want, const char *path,
                     struct buf *head, struct segment_meta *m)
{
    struct segment_head h;
    int r = file_read_at(s->loop, path, 0, SEGMENT_HEAD_BYTES, head, s->err);

    if (r < 0 || (r = segment_head_read(slice_make(head->p, head->n), &h, s->err)) < 0)
        return r;
    if (h.meta_bytes > HEAD_READ_MAX)
        return err_set(s->err, E_CORRUPT, "%s: its index is too large", path);
    if ((r = file_read_at(s->loop, path, SEGMENT_HEAD_BYTES, h.meta_bytes, head, s->err)) < 0 ||
        (r = segment_meta_read(
             slice_make(head->p, SEGMENT_HEAD_BYTES),
             slice_make(head->p + SEGMENT_HEAD_BYTES, head->n - SEGMENT_HEAD_BYTES), m, s->err)) <
            0)
        return r;
    if (memcmp(m->info.digest, want->digest, ARCHIVE_DIGEST) != 0)
        return err_set(s->err, E_CORRUPT, "%s: it is not the segment that the state holds", path);
    return 0;
}

static int in_file(struct search *s, const struct archive_info *want)
{
    char path[ARCHIVE_PATH_MAX];
    struct segment_meta m;
    uint32_t at = 0, block;
    AUTO_BUF head;
    int r;

    buf_init(&head, HEAD_READ_MAX + 65536);
    archive_path(s->dir, want->number, path);
    if ((r = open_file(s, want, path, &head, &m)) < 0)
        return r;
    while (!s->stopped && segment_block_next(&m, s->q->ns, s->q->workload, &at, &block))
        if ((r = in_block(s, &m, block, path)) < 0)
            return r;
    return 0;
}

static void absent(struct archive_found *f, uint64_t number)
{
    f->absent++;
    f->oldest_absent = number;
    if (!f->newest_absent)
        f->newest_absent = number;
}

static int in_segment(struct search *s, uint64_t number)
{
    struct archive_found *f = s->found;
    struct archive_info i;
    int r;

    s->segment = number;
    f->from = number;
    f->searched++;
    if (root_archive_records(s->root, number, record_each, s))
        return s->code;
    INV(root_archive_info(s->root, number, &i));
    r = *s->dir ? in_file(s, &i) : E_NOTFOUND;
    if (r == 0)
        return 0;
    if (r == E_CORRUPT && !f->bad) {
        f->bad = number;
        str_copy(f->why, sizeof f->why, s->err->text);
    }
    if (r != E_NOTFOUND && r != E_CORRUPT)
        return r;
    f->searched--;
    absent(f, number);
    return 0;
}

int archive_find(struct loop *l, const char *dir, const struct root *r,
                 const struct archive_search *q,
                 bool (*each)(const struct archive_record *rec, uint64_t segment, void *arg),
                 void *arg, struct archive_found *ret, struct err *err)
{
    struct archive_totals t = root_archive(r);
    struct err e = {0};
    struct search s = {.loop = l,
                       .dir = dir,
                       .root = r,
                       .q = q,
                       .each = each,
                       .arg = arg,
                       .found = ret,
                       .err = err ? err : &e};
    uint64_t number = t.begun ? t.segments + 1 : 0;
    struct archive_info i;

    *ret = (struct archive_found){0};
    if (q->before && q->before <= number)
        number = q->before - 1;
    for (uint64_t n = 0; number > 0 && !s.stopped; number--, n++) {
        if (n == q->segments_max || ret->records >= q->records_max) {
            ret->next = number + 1;
            return 0;
        }
        INV(root_archive_info(r, number, &i));
        if (i.records && i.last_ms < q->since_ms)
            return 0; /* and so were all before it */
        int rc = in_segment(&s, number);
        if (rc < 0)
            return rc;
    }
    return 0;
}
