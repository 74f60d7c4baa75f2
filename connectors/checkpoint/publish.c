/* A sealed step on its way into a store. This file must never leave a manifest there whose files
 * are not all there: who finds a manifest takes the step for whole. */
#include "api/base/failpoint.h"
#include "connectors/checkpoint/checkpoint_internal.h"

#include <stdio.h>
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

static int publish(struct store *s, const char *folder, int dir, struct err *err)
{
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
    for (size_t i = 0; i < m.n_files && rc == 0 && !there; i++)
        rc = put_one(s, folder, dir, &m.files[i], err);
    FAILPOINT("shim.publish.before");
    if (rc < 0 || there)
        return rc;
    last.bytes = (int64_t)text.n;
    memcpy(last.sha256, m.digest + strlen("sha256:"), sizeof last.sha256);
    return put_one(s, folder, dir, &last, err);
}

int checkpoint_publish(struct store *s, const char *folder, struct err *err)
{
    char path[CHECKPOINT_PATH_MAX + 128];
    int dir = -1;

    if (!store_is_remote(s))
        return 0;
    (void)snprintf(path, sizeof path, "%s/%.100s", store_local(s), folder);
    int rc = sealfs_dir_open(path, &dir, err);
    if (rc < 0)
        return rc;
    rc = publish(s, folder, dir, err);
    sealfs_close(dir);
    return rc;
}
