/* A sealed step on its way into a store. This file must never leave a manifest there whose files
 * are not all there: who finds a manifest takes the step for whole. */
#include "api/base/failpoint.h"
#include "connectors/checkpoint/checkpoint_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES (CHECKPOINT_NAME_MAX + 128)

/* A crash may have come after the last of it was sent. */
static int is_there(struct store *s, const char *name, const char *digest, bool *ret,
                    struct err *err)
{
    char found[CHECKPOINT_DIGEST_MAX];
    AUTO_BUF text;

    buf_init(&text, CHECKPOINT_MANIFEST_MAX + (128u << 10));
    int rc = store_get(s, name, CHECKPOINT_MANIFEST_MAX, &text, NULL, err);
    *ret = false;
    if (rc == E_NOTFOUND || rc == E_TOOLARGE)
        return 0;
    if (rc == 0)
        rc = sealfs_digest(text.p, text.n, found, err);
    if (rc == 0)
        *ret = strcmp(found, digest) == 0;
    return rc;
}

/* ---- what a step before has ---- */
struct before {
    const char *folder; /* in the store */
    struct checkpoint_manifest m;
    const struct checkpoint_file **by_digest;
};

static int digest_compare(const void *a, const void *b)
{
    const struct checkpoint_file *const *x = a, *const *y = b;

    return strcmp((*x)->sha256, (*y)->sha256);
}

/* Only a manifest that is in the store counts, and it may have gone: then all is sent. */
static int before_read(struct store *s, const char *folder, struct arena *a, struct before *ret,
                       struct err *err)
{
    char name[NAME_MAX_BYTES];
    AUTO_BUF text;

    buf_init(&text, CHECKPOINT_MANIFEST_MAX + (128u << 10));
    ret->folder = folder;
    if (!*folder)
        return 0;
    (void)snprintf(name, sizeof name, "%.100s/" CHECKPOINT_MANIFEST_FILE, folder);
    int rc = store_get(s, name, CHECKPOINT_MANIFEST_MAX, &text, NULL, err);
    if (rc == E_NOTFOUND || rc == E_TOOLARGE)
        return 0;
    if (rc < 0)
        return rc;
    if (checkpoint_manifest_parse(text.p, text.n, a, &ret->m, NULL) < 0) {
        ret->m.n_files = 0;
        return 0;
    }
    ret->by_digest = arena_array(a, const struct checkpoint_file *, ret->m.n_files);
    for (size_t i = 0; i < ret->m.n_files; i++)
        ret->by_digest[i] = &ret->m.files[i];
    qsort(ret->by_digest, ret->m.n_files, sizeof(struct checkpoint_file *), digest_compare);
    return 0;
}

static const struct checkpoint_file *before_find(const struct before *b,
                                                 const struct checkpoint_file *f)
{
    const struct checkpoint_file **found =
        b->m.n_files ? bsearch(&f, b->by_digest, b->m.n_files, sizeof(struct checkpoint_file *),
                               digest_compare)
                     : NULL;

    return found && (*found)->bytes == f->bytes ? *found : NULL;
}

int checkpoint_published_before(const struct checkpoint_store *at, int64_t epoch, int64_t rank,
                                char *ret, size_t max, struct err *err)
{
    int64_t e = epoch - 1, number = INT64_MAX;
    char path[CHECKPOINT_PATH_MAX], name[96];
    struct store *store = NULL;
    struct checkpoint_cut c = {0};
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF text;

    *ret = '\0';
    buf_init(&text, CHECKPOINT_CUT_MAX + (128u << 10));
    int rc = e < 0 ? E_NOTFOUND : checkpoint_cut_before(at, &e, &number, path, err);
    if (rc < 0)
        return rc == E_NOTFOUND ? 0 : rc;
    rc = store_open(at, NULL, &store, err);
    if (rc < 0)
        return rc;
    (void)snprintf(name, sizeof name, "sealed/e%lld/cut-%lld.json", (long long)e,
                   (long long)number);
    rc = store_get(store, name, CHECKPOINT_CUT_MAX, &text, NULL, err);
    (void)store_close(store);
    if (rc == 0 && checkpoint_cut_parse(text.p, text.n, a, &c, NULL) == 0 &&
        rank < (int64_t)c.n_ranks)
        (void)snprintf(ret, max, "sealed/e%lld/%lld/s%lld", (long long)e, (long long)rank,
                       (long long)c.ranks[rank].step);
    return rc == E_NOTFOUND || rc == E_TOOLARGE ? 0 : rc;
}

/* ---- one step ---- */
static int put_one(struct store *s, const char *folder, int dir, const struct checkpoint_file *f,
                   struct err *err)
{
    char name[NAME_MAX_BYTES];
    int fd = -1;
    int rc = sealfs_open(dir, f->name, &fd, NULL, err);

    if (rc < 0)
        return err_prefix(err, "the sealed step on this machine");
    (void)snprintf(name, sizeof name, "%.100s/%s", folder, f->name);
    rc = store_put(s, name, fd, f, err);
    sealfs_close(fd);
    return rc;
}

static int bring_one(struct store *s, const char *folder, int dir, const struct before *b,
                     const struct checkpoint_file *f, struct err *err)
{
    const struct checkpoint_file *same = before_find(b, f);
    char from[NAME_MAX_BYTES], name[NAME_MAX_BYTES];
    bool copied = false;

    if (same) {
        (void)snprintf(from, sizeof from, "%.100s/%s", b->folder, same->name);
        (void)snprintf(name, sizeof name, "%.100s/%s", folder, f->name);
        int rc = store_copy(s, from, name, f, &copied, err);
        if (rc < 0)
            return rc;
    }
    return copied ? 0 : put_one(s, folder, dir, f, err);
}

static int publish(struct store *s, const char *folder, const char *before, int dir,
                   struct err *err)
{
    struct before b = {0};
    struct checkpoint_file last = {.name = CHECKPOINT_MANIFEST_FILE};
    struct checkpoint_manifest m;
    char name[NAME_MAX_BYTES];
    bool there = false;
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF text;

    buf_init(&text, CHECKPOINT_MANIFEST_MAX + (128u << 10));
    int rc = manifest_load(dir, a, NULL, &text, &m, err);
    if (rc < 0)
        return rc;
    (void)snprintf(name, sizeof name, "%.100s/%s", folder, last.name);
    rc = is_there(s, name, m.digest, &there, err);
    if (rc == 0 && !there)
        rc = before_read(s, before, a, &b, err);
    for (size_t i = 0; i < m.n_files && rc == 0 && !there; i++)
        rc = bring_one(s, folder, dir, &b, &m.files[i], err);
    FAILPOINT("shim.publish.before");
    if (rc < 0 || there)
        return rc;
    last.bytes = (int64_t)text.n;
    memcpy(last.sha256, m.digest + strlen("sha256:"), sizeof last.sha256);
    return put_one(s, folder, dir, &last, err);
}

int checkpoint_publish(struct store *s, const char *folder, const char *before, struct err *err)
{
    char path[CHECKPOINT_PATH_MAX + 128];
    int dir = -1;

    if (!store_is_remote(s))
        return 0;
    (void)snprintf(path, sizeof path, "%s/%.100s", store_local(s), folder);
    int rc = sealfs_dir_open(path, &dir, err);
    if (rc < 0)
        return rc;
    rc = publish(s, folder, before, dir, err);
    sealfs_close(dir);
    return rc;
}
