/* Reads a backup: once to its end, which proves it; then again for the archive, whose files it puts
 * in their place. It must never write anything because of a file that is not proved. */
#include "controlplane/backup/backup.h"

#include "controlplane/archive/archive_files.h"
#include "controlplane/keyring/keyring.h"
#include "controlplane/store/archive/segment.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define READ_BYTES ((size_t)1 << 20)
#define STATE_MAX_BYTES ((size_t)2 << 30)
#define SECRET_MAX ((size_t)2 << 20)

struct reading {
    struct loop *loop;
    const char *archive; /* NULL: the first time */
    struct backup_about about;
    struct buf state;
    struct file_out *out;
    uint64_t segment, left; /* of the one that is being written */
    struct root *root;
};

static uint64_t get64(const unsigned char *p)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < 8; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static int segment_begin(struct reading *x, struct slice in, struct err *err)
{
    const unsigned char *p = in.p;
    char path[ARCHIVE_PATH_MAX];

    if (in.n != 16 || x->left)
        return err_set(err, E_CORRUPT, "a segment of its archive cannot be");
    x->segment = get64(p);
    x->left = get64(p + 8);
    if (!x->segment || x->segment > x->about.segments || !x->left ||
        x->left > SEGMENT_FILE_MAX_BYTES)
        return err_set(err, E_CORRUPT, "a segment of its archive cannot be");
    if (!x->archive)
        return 0;
    archive_path(x->archive, x->segment, path);
    return file_out_open(path, 0600, &x->out, err);
}

static int segment_bytes(struct reading *x, struct slice in, struct err *err)
{
    int r;

    if (in.n > x->left)
        return err_set(err, E_CORRUPT, "a segment of its archive cannot be");
    x->left -= in.n;
    if (!x->out)
        return 0;
    if ((r = file_out_add(x->out, in.p, in.n, err)) || x->left)
        return r;
    struct file_out *out = x->out;
    x->out = NULL;
    return file_out_commit(out, err);
}

static int frame(void *arg, uint32_t type, struct slice in, struct err *err)
{
    struct reading *x = arg;
    int r;

    switch (type) {
    case BACKUP_ABOUT:
        if ((r = backup_about_read(in, &x->about, err)))
            return r;
        return x->about.feature_level > FEATURE_LEVEL
                   ? err_set(err, E_NOTIMPL,
                             "a newer version of hanse is needed: version %s wrote it (feature "
                             "level %u, this one has %u)",
                             x->about.version, x->about.feature_level, (unsigned)FEATURE_LEVEL)
                   : 0;
    case BACKUP_STATE:
        if (!x->archive)
            buf_add(&x->state, in.p, in.n);
        return x->state.failed ? err_set(err, E_TOOLARGE, "its state is larger than %zu MiB",
                                         STATE_MAX_BYTES >> 20)
                               : 0;
    case BACKUP_SEGMENT:
        return segment_begin(x, in, err);
    case BACKUP_SEGMENT_BYTES:
        return segment_bytes(x, in, err);
    default:
        return err_set(err, E_NOTIMPL,
                       "a newer version of hanse is needed: it holds parts of kind %u", type);
    }
}

static int read_all(struct reading *x, const char *path, struct err *err)
{
    struct parcel_in *in = parcel_in_create(frame, x);
    uint64_t offset = 0;
    bool more = true;
    AUTO_BUF b = {0};
    int r = 0;

    buf_init(&b, READ_BYTES + 65536);
    while (more && !r) {
        buf_reset(&b);
        if ((r = file_read_at(x->loop, path, offset, READ_BYTES, &b, err)))
            break;
        offset += b.n;
        more = b.n > 0;
        if (more && (r = parcel_feed(in, b.p, b.n, err)))
            err_prefix(err, "%.200s", path);
    }
    if (!r && (r = parcel_whole(in, err)))
        err_prefix(err, "%.200s", path);
    (void)parcel_in_destroy(in);
    file_out_abort(x->out);
    x->out = NULL;
    x->left = 0;
    return r;
}

static int state_read(struct reading *x, const char *path, struct err *err)
{
    char digest[20];
    int r = snapshot_decode(slice_make(x->state.p, x->state.n), &x->root, err);

    if (r) {
        err_prefix(err, "%.200s", path);
        return r;
    }
    (void)snprintf(digest, sizeof digest, "%016llx", (unsigned long long)root_digest(x->root));
    if (strcmp(digest, x->about.digest) != 0 || root_rv(x->root) != x->about.rv ||
        strcmp(root_cluster_uid(x->root), x->about.cluster) != 0)
        return err_set(err, E_CORRUPT, "%.200s: its state is not the one that it says", path);
    return 0;
}

int backup_read(struct loop *l, const char *path, const char *archive, struct backup_read *ret,
                struct err *err)
{
    struct reading x = {.loop = l};
    int r;

    buf_init(&x.state, STATE_MAX_BYTES);
    r = read_all(&x, path, err);
    if (!r)
        r = state_read(&x, path, err);
    buf_fini(&x.state);
    if (!r && archive && x.about.segments) {
        x.archive = archive;
        r = file_mkdir(l, archive, 0700, err);
        if (!r)
            r = read_all(&x, path, err);
    }
    if (r) {
        (void)root_unref(x.root);
        return r;
    }
    *ret = (struct backup_read){.about = x.about, .root = x.root};
    return 0;
}

/* ---- what is needed beside it ---- */
struct keys {
    const struct keyring *ring;
    uint64_t secrets;
    int code;
    struct err err;
};

static bool secret_each(const struct object *o, void *arg)
{
    const struct secret *s = object_as(o, secret);
    struct keys *k = arg;
    AUTO_BUF plain = {0};

    if (!s->sealed.n)
        return true;
    k->secrets++;
    buf_init(&plain, SECRET_MAX);
    k->code = keyring_unseal(k->ring, o->meta->uid, "data", s->sealed, &plain, &k->err);
    if (plain.p)
        OPENSSL_cleanse(plain.p, plain.cap);
    if (k->code)
        err_prefix(&k->err, "Secret %.64s/%.100s", o->meta->namespace_, o->meta->name);
    return !k->code;
}

int backup_keys_check(struct loop *l, const struct root *r, const char *ring, uint64_t *ret,
                      struct err *err)
{
    struct keys k = {0};
    struct keyring *open = NULL;
    int rv = keyring_open(l, ring, false, &open, err);

    if (rv)
        return rv;
    k.ring = open;
    root_scan(r, KIND_SECRET, NULL, NULL, NULL, secret_each, &k);
    (void)keyring_close(open);
    if (k.code)
        return err_set(err, k.code, "the key ring %.200s does not fit: %.250s", ring, k.err.text);
    *ret = k.secrets;
    return 0;
}
