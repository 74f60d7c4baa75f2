/* The store that is a directory: sealfs does the work. What the system says is said as it is; a
 * folder that is not there holds nothing. */
#include "connectors/checkpoint/files/sealfs.h"
#include "connectors/checkpoint/store/store.h"

#include <stdio.h>
#include <string.h>

#define DIRECTORY_PATH_MAX (CHECKPOINT_PATH_MAX + CHECKPOINT_NAME_MAX + 128)

static void path_of(const struct store *s, const char *name, char out[DIRECTORY_PATH_MAX])
{
    (void)snprintf(out, DIRECTORY_PATH_MAX, "%s%s%s", s->base, *name ? "/" : "", name);
}

/* The folder that it lies in, open; *ret_last: its last part. */
static int folder_of(const struct store *s, const char *name, int *ret_fd, const char **ret_last,
                     struct err *err)
{
    char path[DIRECTORY_PATH_MAX];
    const char *slash = strrchr(name, '/');

    path_of(s, name, path);
    if (slash || s->base[0])
        *strrchr(path, '/') = '\0';
    *ret_last = slash ? slash + 1 : name;
    return sealfs_dir_open(path, ret_fd, err);
}

static void directory_close(struct store *s)
{
    mem_free(s);
}

static bool directory_is_here(struct store *s)
{
    int dir = -1;

    if (sealfs_dir_open(s->base, &dir, NULL) < 0)
        return false;
    sealfs_close(dir);
    return true;
}

static int directory_make(struct store *s, const char *folder, struct err *err)
{
    char path[DIRECTORY_PATH_MAX];

    path_of(s, folder, path);
    return sealfs_dir_make(path, err);
}

static int directory_get(struct store *s, const char *name, size_t max, struct buf *ret,
                         int64_t *ret_written_ns, struct err *err)
{
    struct file_facts facts;
    const char *last;
    int dir = -1, fd = -1;
    int rc = folder_of(s, name, &dir, &last, err);

    if (rc < 0)
        return rc;
    rc = sealfs_open(dir, last, &fd, &facts, err);
    sealfs_close(dir);
    if (rc < 0)
        return rc;
    rc = sealfs_read(fd, max, ret, err);
    sealfs_close(fd);
    if (rc == 0 && ret_written_ns)
        *ret_written_ns = facts.mtime_ns;
    return rc;
}

static int directory_create(struct store *s, const char *name, const void *p, size_t n,
                            struct err *err)
{
    const char *last;
    int dir = -1;
    int rc = folder_of(s, name, &dir, &last, err);

    if (rc < 0)
        return rc;
    rc = sealfs_create(dir, last, p, n, err);
    sealfs_close(dir);
    return rc;
}

static int directory_list(struct store *s, const char *folder,
                          int (*each)(const char *name, void *arg), void *arg, struct err *err)
{
    char path[DIRECTORY_PATH_MAX];

    path_of(s, folder, path);
    return sealfs_list_path(path, each, arg, err);
}

struct newest {
    const char *folder;
    int64_t at_ns;
};

static int newest_of(const char *name, void *arg)
{
    struct newest *n = arg;
    char path[DIRECTORY_PATH_MAX + 256];

    (void)snprintf(path, sizeof path, "%s/%.255s", n->folder, name);
    int64_t at = sealfs_mtime_ns(path);
    if (at > n->at_ns)
        n->at_ns = at;
    return 0;
}

static int directory_written(struct store *s, const char *folder, enum store_written what,
                             int64_t *ret_ns, struct err *err)
{
    char path[DIRECTORY_PATH_MAX];
    struct newest n = {.folder = path};
    int rc = 0;

    path_of(s, folder, path);
    if (what == STORE_FOLDER)
        n.at_ns = sealfs_mtime_ns(path);
    else
        rc = sealfs_list_path(path, newest_of, &n, err);
    if (rc == 0)
        *ret_ns = n.at_ns;
    return rc;
}

static int directory_remove(struct store *s, const char *name, struct err *err)
{
    const char *last;
    int dir = -1;
    int rc = folder_of(s, name, &dir, &last, err);

    if (rc == E_NOTFOUND)
        return 0;
    if (rc < 0)
        return rc;
    rc = sealfs_remove(dir, last, err);
    sealfs_close(dir);
    return rc;
}

static const struct store_ops directory_ops = {.close = directory_close,
                                               .is_here = directory_is_here,
                                               .make = directory_make,
                                               .get = directory_get,
                                               .create = directory_create,
                                               .list = directory_list,
                                               .written = directory_written,
                                               .remove = directory_remove};

struct store *store_directory_open(void)
{
    struct store *s = mem_new(struct store);

    s->ops = &directory_ops;
    return s;
}
