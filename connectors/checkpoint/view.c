/* What a program sees of a verified checkpoint: exactly what the manifests say, as links where a
 * file has that length, as copies where it has grown. Must never change what is sealed. */
#include "connectors/checkpoint/checkpoint_internal.h"

#include <stdio.h>
#include <string.h>

/* bytes -1: all of it. */
static int view_file(int dir, int view, const char *name, int64_t bytes, struct err *err)
{
    struct file_facts facts;
    int fd, copy = -1;
    int rc = sealfs_open(dir, name, &fd, &facts, err);

    if (rc < 0)
        return rc;
    if (bytes < 0)
        bytes = facts.size;
    rc = sealfs_take(fd, bytes, facts.size > bytes, view, name, &copy, err);
    sealfs_close(copy);
    sealfs_close(fd);
    return rc;
}

int checkpoint_view_clear(const char *path, struct err *err)
{
    const char *name = strrchr(path, '/') + 1;
    char parent[CHECKPOINT_PATH_MAX + 64];
    int above = -1;

    (void)snprintf(parent, sizeof parent, "%.*s", (int)(name - path - 1), path);
    int rc = sealfs_dir_make(parent, err);
    if (rc == 0)
        rc = sealfs_dir_open(parent, &above, err);
    if (rc == 0)
        rc = sealfs_remove(above, name, err);
    sealfs_close(above);
    return rc;
}

static int view_make(int dir, const char *path, const struct checkpoint_manifest *m,
                     struct err *err)
{
    int view = -1;
    int rc = checkpoint_view_clear(path, err);

    if (rc == 0)
        rc = sealfs_dir_make(path, err);
    if (rc == 0)
        rc = sealfs_dir_open(path, &view, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < m->n_files && rc == 0; i++)
        rc = view_file(dir, view, m->files[i].name, m->files[i].bytes, err);
    if (rc == 0)
        rc = view_file(dir, view, CHECKPOINT_MANIFEST_FILE, -1, err);
    sealfs_close(view);
    return rc;
}

static int is_longer(int dir, const struct checkpoint_manifest *m, bool *ret, struct err *err)
{
    *ret = false;
    for (size_t i = 0; i < m->n_files && !*ret; i++) {
        struct file_facts facts;
        int fd;
        int rc = sealfs_open(dir, m->files[i].name, &fd, &facts, err);
        if (rc < 0)
            return rc;
        sealfs_close(fd);
        *ret = facts.size > m->files[i].bytes;
    }
    return 0;
}

/* all: a view is made in any case. */
static int exact(const char *path, const char *view, bool all, char ret[CHECKPOINT_PATH_MAX + 64],
                 struct err *err)
{
    struct checkpoint_manifest m;
    AUTO_ARENA a = arena_create(0);
    bool longer = all;
    int dir = -1;
    int rc = sealfs_dir_open(path, &dir, err);

    if (rc < 0)
        return rc;
    rc = checkpoint_manifest_verify(path, dir, "", a, &m, err);
    if (rc == 0 && !all)
        rc = is_longer(dir, &m, &longer, err);
    if (rc == 0 && longer)
        rc = view_make(dir, view, &m, err);
    sealfs_close(dir);
    if (rc == 0)
        (void)snprintf(ret, CHECKPOINT_PATH_MAX + 64, "%s", longer ? view : path);
    return rc;
}

int checkpoint_exact(const char *path, const char *view, char ret[CHECKPOINT_PATH_MAX + 64],
                     struct err *err)
{
    return exact(path, view, false, ret, err);
}

int checkpoint_views_add(const char *path, int64_t rank, const char *dir, struct err *err)
{
    char view[CHECKPOINT_PATH_MAX + 64], seen[CHECKPOINT_PATH_MAX + 64];

    (void)snprintf(view, sizeof view, "%.1000s/%lld", path, (long long)rank);
    return exact(dir, view, true, seen, err);
}
