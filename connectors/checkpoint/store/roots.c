/* Which folders may be stores. Whoever submits work names a folder, and what saves there has the
 * rights of who runs it: the operator of the machine says below which folders that may be. Names
 * alone are no answer, since a link below a root leads anywhere. */
#include "connectors/checkpoint/files/sealfs.h"
#include "connectors/checkpoint/store/store.h"

#include <stdio.h>
#include <string.h>

/* Absolute, and each part of it is a name. */
static bool is_plain(const char *path)
{
    if (path[0] != '/' || !path[1])
        return false;
    for (const char *p = path; *p;) {
        size_t n = strcspn(++p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
    }
    return true;
}

/* The n bytes of root, or what lies below them. */
static bool is_within(const char *root, size_t n, const char *path)
{
    return strncmp(root, path, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* The next root of a list, without its end; false: that was all. */
static bool root_next(const char **list, char ret[CHECKPOINT_PATH_MAX])
{
    size_t n = strcspn(*list, ":");

    if (!**list)
        return false;
    (void)snprintf(ret, CHECKPOINT_PATH_MAX, "%.*s",
                   (int)(n < CHECKPOINT_PATH_MAX ? n : CHECKPOINT_PATH_MAX - 1), *list);
    *list += n + ((*list)[n] == ':');
    return true;
}

int checkpoint_roots_check(const char *roots, struct err *err)
{
    char root[CHECKPOINT_PATH_MAX];
    unsigned n = 0;

    if (strlen(roots) >= CHECKPOINT_ROOTS_MAX)
        return err_set(err, E_INVALID, "folders of stores: more than %d bytes together",
                       CHECKPOINT_ROOTS_MAX - 1);
    for (; root_next(&roots, root); n++)
        if (!is_plain(root))
            return err_set(err, E_INVALID,
                           "%.200s is no folder for stores: give an absolute path below /, "
                           "without \".\", \"..\" and a / at its end",
                           root);
    return n ? 0 : err_set(err, E_INVALID, "no folder for stores is named");
}

int checkpoint_roots_allow(const char *roots, const char *path, char ret_root[CHECKPOINT_PATH_MAX],
                           struct err *err)
{
    const char *list = roots;

    if (is_plain(path))
        while (root_next(&list, ret_root))
            if (is_within(ret_root, strlen(ret_root), path))
                return 0;
    return err_field(err, E_FORBIDDEN, "spec.checkpoint.store",
                     "%.200s may not hold checkpoints here: this machine's operator allows "
                     "folders below %.300s (hanse agent --store-root)",
                     path, roots);
}

bool checkpoint_path_within(const char *folder, const char *path)
{
    return is_within(folder, strlen(folder), path);
}

int checkpoint_store_allowed(const struct checkpoint_store *at, struct err *err)
{
    char root[CHECKPOINT_PATH_MAX];
    struct err why;

    if (!at->roots || checkpoint_store_is_remote(at->base))
        return 0;
    int rc = checkpoint_roots_allow(at->roots, at->base, root, &why);
    if (rc == 0 && at->base[strlen(root)])
        rc = sealfs_beneath(root, at->base + strlen(root) + 1, &why);
    return rc < 0 ? err_field(err, rc, CHECKPOINT_UNREACHABLE, "%s", why.text) : 0;
}
