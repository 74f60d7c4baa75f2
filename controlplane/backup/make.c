/* A backup, piece by piece. The snapshot goes into a file without a name first, because it is made
 * in one go, and the reader of the pieces may be slow. This file must never hold more than a piece
 * in memory, nor add anything of a Secret that is not sealed (the state holds nothing else). */
#include "controlplane/backup/backup.h"

#include "controlplane/archive/archive_files.h"
#include "controlplane/store/archive/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)512 << 10)
#define SPACE_EVERY ((size_t)8 << 20)
#define SPACE_MIN_BYTES (64ull << 20) /* left on the scratch directory's disk */

struct backup {
    struct loop *loop;
    struct root *root;
    uint64_t known;
    char archive[ARCHIVE_PATH_MAX], scratch[1100];
    struct parcel_out *parcel;
    struct backup_about about;
    enum { ABOUT, ENCODE, STATE, SEGMENTS, END } at;
    int fd;
    uint64_t written, looked;        /* of the scratch file */
    uint64_t offset;                 /* in what is read now */
    uint64_t segment, segment_bytes; /* number; 0 bytes: its head is next */
    struct err failed;
};

struct backup *backup_create(struct loop *l, struct root *r, uint64_t known, const char *archive,
                             const char *scratch)
{
    struct backup *b = mem_new(struct backup);

    *b = (struct backup){
        .loop = l, .root = root_ref(r), .known = known, .at = ABOUT, .fd = -1, .segment = 1};
    str_copy(b->archive, sizeof b->archive, archive);
    str_copy(b->scratch, sizeof b->scratch, scratch);
    return b;
}

struct backup *backup_destroy(struct backup *b)
{
    if (!b)
        return NULL;
    if (b->fd >= 0)
        (void)close(b->fd);
    (void)root_unref(b->root);
    (void)parcel_out_destroy(b->parcel);
    mem_free(b);
    return NULL;
}

const struct backup_about *backup_about(const struct backup *b)
{
    return &b->about;
}

/* ---- what it is ---- */
/* Bytes of a segment's file; 0: it is not here, or not whole. */
static uint64_t segment_bytes(const struct backup *b, uint64_t number)
{
    char path[ARCHIVE_PATH_MAX];
    struct segment_head h;
    struct err e = {0};
    AUTO_BUF head = {0};

    buf_init(&head, 4096 + 65536);
    archive_path(b->archive, number, path);
    if (file_read_at(b->loop, path, 0, SEGMENT_HEAD_BYTES, &head, &e) ||
        segment_head_read(slice_make(head.p, head.n), &h, &e) || h.number != number)
        return 0;
    return h.file_bytes;
}

static void about_make(struct backup *b)
{
    struct archive_totals t = root_archive(b->root);
    struct backup_about *a = &b->about;
    const struct kind *kinds[KIND_LIMIT];
    size_t n = kind_all(kinds, KIND_LIMIT);

    *a = (struct backup_about){.rv = root_rv(b->root),
                               .known = b->known,
                               .number = root_number(b->root),
                               .feature_level = root_feature_level(b->root),
                               .time_ms = root_time(b->root),
                               .segments = t.segments};
    str_copy(a->cluster, sizeof a->cluster, root_cluster_uid(b->root));
    str_copy(a->version, sizeof a->version, HANSE_VERSION);
    (void)snprintf(a->digest, sizeof a->digest, "%016llx",
                   (unsigned long long)root_digest(b->root));
    for (size_t i = 0; i < n; i++)
        a->objects += root_count(b->root, kinds[i]->id);
    for (uint64_t s = 1; s <= t.segments; s++)
        a->absent += s < t.kept_from && !segment_bytes(b, s);
}

static int about_next(struct backup *b, struct buf *out, struct err *err)
{
    AUTO_BUF json = {0};

    if (!*root_cluster_uid(b->root))
        return err_set(err, E_UNAVAIL, "there is no state yet: no member has led");
    about_make(b);
    buf_init(&json, PARCEL_FRAME_MAX);
    backup_about_print(&b->about, &json);
    b->parcel = parcel_out_create(out);
    parcel_frame(b->parcel, out, BACKUP_ABOUT, json.p, json.n);
    b->at = ENCODE;
    return 0;
}

/* ---- the state ---- */
static int scratch_fail(struct backup *b, int no)
{
    return err_set(&b->failed, no == ENOSPC || no == EDQUOT ? E_NOSPACE : E_IO,
                   "a backup needs room for the state in %.300s: %s", b->scratch, strerror(no));
}

static bool scratch_add(void *arg, const void *p, size_t n)
{
    struct backup *b = arg;
    const char *at = p;
    struct statvfs s;

    if (b->written >= b->looked) {
        b->looked = b->written + SPACE_EVERY;
        if (!statvfs(b->scratch, &s) && (uint64_t)s.f_bavail * s.f_frsize < SPACE_MIN_BYTES) {
            (void)scratch_fail(b, ENOSPC);
            return false;
        }
    }
    while (n) {
        ssize_t done = write(b->fd, at, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) {
            (void)scratch_fail(b, errno);
            return false;
        }
        at += done;
        n -= (size_t)done;
        b->written += (uint64_t)done;
    }
    return true;
}

static int scratch_open(struct backup *b)
{
    char path[1200];
    int fd = open(b->scratch, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT))
        return fd;
    (void)snprintf(path, sizeof path, "%s/.backup-XXXXXX", b->scratch);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

static int encode(struct backup *b, struct err *err)
{
    b->fd = scratch_open(b);
    if (b->fd < 0) {
        (void)scratch_fail(b, errno);
        return err_set(err, b->failed.code, "%s", b->failed.text);
    }
    if (snapshot_write(b->root, scratch_add, b, err))
        return b->failed.code ? err_set(err, b->failed.code, "%s", b->failed.text)
               : err          ? err->code
                              : E_INTERNAL;
    b->at = STATE;
    b->offset = 0;
    return 0;
}

static int state_next(struct backup *b, struct buf *out, struct err *err)
{
    size_t n = b->written - b->offset < PIECE_BYTES ? b->written - b->offset : PIECE_BYTES;
    AUTO_BUF piece = {0};

    buf_init(&piece, PIECE_BYTES + 64);
    char *to = buf_reserve(&piece, n);
    ssize_t got = to ? pread(b->fd, to, n, (off_t)b->offset) : -1;
    if (got <= 0)
        return err_set(err, E_IO, "reading what was made in %.300s: %s", b->scratch,
                       strerror(errno));
    parcel_frame(b->parcel, out, BACKUP_STATE, to, (size_t)got);
    b->offset += (uint64_t)got;
    if (b->offset == b->written) {
        b->at = SEGMENTS;
        b->offset = 0;
        (void)close(b->fd);
        b->fd = -1;
    }
    return 0;
}

/* ---- the archive ---- */
static void put64(unsigned char *p, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

static int segment_next(struct backup *b, struct buf *out, struct err *err)
{
    char path[ARCHIVE_PATH_MAX];
    unsigned char head[16];
    AUTO_BUF piece = {0};

    while (!b->segment_bytes) {
        if (b->segment > b->about.segments) {
            b->at = END;
            return 0;
        }
        if ((b->segment_bytes = segment_bytes(b, b->segment)))
            break;
        b->segment++;
    }
    if (!b->offset) {
        put64(head, b->segment);
        put64(head + 8, b->segment_bytes);
        parcel_frame(b->parcel, out, BACKUP_SEGMENT, head, sizeof head);
    }
    buf_init(&piece, PIECE_BYTES + 65536);
    archive_path(b->archive, b->segment, path);
    int r = file_read_at(b->loop, path, b->offset, PIECE_BYTES, &piece, err);
    if (r)
        return r;
    if (!piece.n || piece.n > b->segment_bytes - b->offset)
        return err_set(err, E_CORRUPT, "%.300s changed while it was read: try again", path);
    parcel_frame(b->parcel, out, BACKUP_SEGMENT_BYTES, piece.p, piece.n);
    b->offset += piece.n;
    if (b->offset == b->segment_bytes) {
        b->offset = b->segment_bytes = 0;
        b->segment++;
    }
    return 0;
}

int backup_next(struct backup *b, struct buf *out, bool *ret_last, struct err *err)
{
    int r = 0;

    *ret_last = false;
    switch (b->at) {
    case ABOUT:
        return about_next(b, out, err);
    case ENCODE:
        if ((r = encode(b, err)))
            return r;
        return state_next(b, out, err);
    case STATE:
        return state_next(b, out, err);
    case SEGMENTS:
        r = segment_next(b, out, err);
        if (r || b->at != END)
            return r;
        break;
    case END:
        break;
    }
    parcel_end(b->parcel, out);
    *ret_last = true;
    return out->failed ? err_set(err, E_NOMEM, "there is no room for a piece of the backup") : 0;
}
