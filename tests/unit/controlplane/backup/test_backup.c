/* Backups as files: what was written is read back, with the archive; whatever is not whole, changed
 * or newer is refused, wherever it was cut or changed, and leaves nothing behind. */
#include "api/base/cluster.h"
#include "controlplane/archive/archive_files.h"
#include "controlplane/backup/backup.h"
#include "controlplane/store/archive/segment.h"
#include "tests/support/store/move_kit.h"

#include <stdlib.h>
#include <unistd.h>

#define DAY_MS 86400000ll
#define UID "0123456789abcdef0123456789abcdef"

struct world {
    struct kit k;
    struct loop *loop;
    char dir[256], archive[300], file[300], back[300];
    struct buf bytes; /* of the backup */
};

static void segment_write(struct world *w, uint64_t number)
{
    const struct segment_box *s = segment_hold(w->k.root, number);
    char path[ARCHIVE_PATH_MAX];
    struct err e = {0};
    AUTO_BUF b;

    assert_non_null(s);
    buf_init(&b, SEGMENT_FILE_MAX_BYTES);
    assert_int_equal(segment_build(s, &b, &e), 0);
    archive_path(w->archive, number, path);
    assert_int_equal(file_write(w->loop, path, b.p, b.n, 0600, &e), 0);
    segment_release(s);
}

/* Work that ran, ended and was archived, until so many segments are closed. */
static void archived(struct world *w, uint64_t segments)
{
    struct kit *k = &w->k;

    while (root_archive_newest(k->root) < segments) {
        uint64_t newest = root_archive_newest(k->root);
        union command c = {.archive = {.head = {.type = CMD_ARCHIVE, .user = "hanse:retention"},
                                       .close_bytes = ARCHIVE_CLOSE_MIN_BYTES,
                                       .close_after_ms = 10000 * DAY_MS}};
        struct archive_cursor at = {0};
        struct write_op ops[4];
        size_t listed;
        const char *name = arena_printf(k->a, "w%llu", (unsigned long long)k->number);

        kit_running(k, name, "", "fra.n0", 0, 1);
        assert_int_equal(kit_run(k, name, 1, 1, STEP_ENDED).code, 0);
        k->now += 8 * DAY_MS;
        (void)root_archive_due(k->root, k->now, &at, SIZE_MAX, ops, 4, &listed);
        c.archive.ops = ops;
        c.archive.n = (uint32_t)listed;
        assert_int_equal(kit_apply(k, &c).code, 0);
        if (root_archive_newest(k->root) > newest)
            segment_write(w, root_archive_newest(k->root));
    }
}

static void make(struct world *w)
{
    struct backup *b = backup_create(w->loop, w->k.root, root_rv(w->k.root), w->archive, w->dir);
    struct err e = {0};

    buf_reset(&w->bytes);
    for (bool last = false; !last;)
        if (backup_next(b, &w->bytes, &last, &e))
            fail_msg("%s", e.text);
    assert_false(w->bytes.failed);
    (void)backup_destroy(b);
}

static void begin(struct world *w)
{
    union command c = {.member = {.head = {.type = CMD_MEMBER},
                                  .member = {.id = 1, .feature_level = FEATURE_LEVEL},
                                  .cluster_uid = UID}};
    struct err e = {0};

    memset(w, 0, sizeof *w);
    w->loop = loop_uv_create(&e);
    assert_non_null(w->loop);
    (void)snprintf(w->dir, sizeof w->dir, "%s/hanse-backup-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(w->dir));
    (void)snprintf(w->archive, sizeof w->archive, "%s/archive", w->dir);
    (void)snprintf(w->back, sizeof w->back, "%s/back", w->dir);
    (void)snprintf(w->file, sizeof w->file, "%s/file", w->dir);
    assert_int_equal(file_mkdir(w->loop, w->archive, 0700, &e), 0);
    buf_init(&w->bytes, (size_t)64 << 20);
    kit_begin(&w->k);
    assert_int_equal(kit_apply(&w->k, &c).code, 0);
    kit_target(&w->k, "fra", TIER_HUB, 1, 4);
    archived(w, 3);
    assert_int_equal(kit_workload(&w->k, w->k.ns, "waits", 1, 1).code, 0);
    make(w);
}

static void end(struct world *w)
{
    struct err e;

    buf_fini(&w->bytes);
    kit_end(&w->k);
    assert_int_equal(file_remove(w->loop, w->dir, &e), 0);
    loop_uv_destroy(w->loop);
}

static int back(struct world *w, const void *p, size_t n, struct backup_read *ret, struct err *err)
{
    struct err e = {0};

    *err = e;
    assert_int_equal(file_write(w->loop, w->file, p, n, 0600, &e), 0);
    return backup_read(w->loop, w->file, w->back, ret, err);
}

static void name_seen(const char *name, void *arg)
{
    (void)name;
    (*(unsigned *)arg)++;
}

static unsigned files(struct world *w)
{
    struct err e;
    unsigned n = 0;

    assert_int_equal(file_list(w->loop, w->back, name_seen, &n, &e), 0);
    return n;
}

static void test_there_and_back(void **state)
{
    struct backup_read b;
    struct world w;
    struct err e;

    (void)state;
    begin(&w);
    if (back(&w, w.bytes.p, w.bytes.n, &b, &e))
        fail_msg("%s", e.text);
    assert_true(root_digest(b.root) == root_digest(w.k.root));
    assert_true(b.about.rv == root_rv(w.k.root) && b.about.segments == 3 && !b.about.absent);
    assert_string_equal(b.about.cluster, UID);
    assert_int_equal(files(&w), 3);
    for (uint64_t n = 1; n <= 3; n++) { /* as the state knows them */
        struct archive_info i, found;
        char path[ARCHIVE_PATH_MAX];
        AUTO_BUF file;

        buf_init(&file, SEGMENT_FILE_MAX_BYTES);
        archive_path(w.back, n, path);
        assert_int_equal(file_read(w.loop, path, SEGMENT_FILE_MAX_BYTES, &file, &e), 0);
        assert_true(root_archive_info(b.root, n, &i));
        assert_int_equal(segment_verify(slice_make(file.p, file.n), i.digest, &found, &e), 0);
    }
    (void)root_unref(b.root);

    /* A member that lacks a file says so: what it has not, a backup has not. */
    char path[ARCHIVE_PATH_MAX];
    archive_path(w.archive, 1, path);
    assert_int_equal(file_remove(w.loop, path, &e), 0);
    assert_int_equal(file_remove(w.loop, w.back, &e), 0);
    make(&w);
    assert_int_equal(back(&w, w.bytes.p, w.bytes.n, &b, &e), 0);
    assert_int_equal(b.about.absent, 1);
    assert_int_equal(files(&w), 2);
    (void)root_unref(b.root);
    end(&w);
}

static void test_less_than_whole(void **state)
{
    struct backup_read b;
    struct world w;
    struct err e;

    (void)state;
    begin(&w);
    size_t step = w.bytes.n / 97 + 1;
    for (size_t n = 0; n < w.bytes.n; n += n < 64 || n + 64 > w.bytes.n ? 1 : step) {
        assert_int_equal(back(&w, w.bytes.p, n, &b, &e), E_CORRUPT); /* cut off here */
        char was = w.bytes.p[n];
        w.bytes.p[n] = (char)(was ^ 4);
        int r = back(&w, w.bytes.p, w.bytes.n, &b, &e); /* changed there */
        if (r != E_CORRUPT && r != E_NOTIMPL)
            fail_msg("byte %zu: %d", n, r);
        w.bytes.p[n] = was;
        assert_int_equal(files(&w), 0);
    }
    assert_int_equal(back(&w, w.bytes.p, w.bytes.n, &b, &e), 0);
    (void)root_unref(b.root);
    end(&w);
}

struct frames {
    unsigned n;
    size_t bytes;
};

static int count(void *arg, uint32_t type, struct slice bytes, struct err *err)
{
    struct frames *f = arg;

    (void)type;
    f->n++;
    f->bytes += bytes.n;
    return f->n == 99 ? err_set(err, E_LIMIT, "enough") : 0;
}

static void test_parcels(void **state)
{
    static const char piece[3000] = "x";
    struct frames f = {0};
    struct err e = {0};
    struct buf out;

    (void)state;
    buf_init(&out, 1u << 20);
    struct parcel_out *p = parcel_out_create(&out);
    parcel_frame(p, &out, PARCEL_ABOUT, "{}", 2);
    parcel_frame(p, &out, 7, "", 0);
    for (unsigned i = 0; i < 40; i++)
        parcel_frame(p, &out, 8, piece, sizeof piece);
    parcel_end(p, &out);
    (void)parcel_out_destroy(p);
    static const size_t turns[] = {1, 7, 4096, 1u << 20}; /* however it comes */
    for (size_t t = 0; t < sizeof turns / sizeof *turns; t++) {
        struct parcel_in *in = parcel_in_create(count, &f);
        f = (struct frames){0};
        for (size_t at = 0; at < out.n; at += turns[t]) {
            assert_int_equal(parcel_whole(in, &e), E_CORRUPT);
            size_t n = out.n - at < turns[t] ? out.n - at : turns[t];
            assert_int_equal(parcel_feed(in, out.p + at, n, &e), 0);
        }
        assert_int_equal(parcel_whole(in, &e), 0);
        assert_true(f.n == 42 && f.bytes == 2 + 40 * sizeof piece);
        assert_int_equal(parcel_feed(in, "x", 1, &e), E_CORRUPT);
        (void)parcel_in_destroy(in);
    }
    struct parcel_in *in = parcel_in_create(count, &f);
    f = (struct frames){.n = 60};
    assert_int_equal(parcel_feed(in, out.p, out.n, &e), E_LIMIT); /* its reader has had enough */
    (void)parcel_in_destroy(in);
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parcels),
                                       cmocka_unit_test(test_there_and_back),
                                       cmocka_unit_test(test_less_than_whole)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
