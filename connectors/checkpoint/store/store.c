/* Which driver a base asks for, and what is the same for all of them. */
#include "connectors/checkpoint/store/store.h"

#include "connectors/checkpoint/files/sealfs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool checkpoint_store_is_remote(const char *base)
{
    return strncmp(base, "s3://", 5) == 0;
}

int checkpoint_scratch_rename(const char *from, const char *to, struct err *err)
{
    if (rename(from, to) != 0 && errno != ENOENT)
        return err_set(err, E_IO, "renaming %.200s: %s", from, strerror(errno));
    return 0;
}

int checkpoint_scratch_remove(const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    char folder[CHECKPOINT_PATH_MAX];
    int dir = -1;

    if (!slash || slash == path || !slash[1] || strlen(path) >= sizeof folder)
        return err_set(err, E_INVALID, "%.200s is no scratch folder", path);
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    int rc = sealfs_dir_open(folder, &dir, err);
    if (rc < 0)
        return rc == E_NOTFOUND ? 0 : rc;
    rc = sealfs_remove(dir, slash + 1, err);
    sealfs_close(dir);
    return rc;
}

int checkpoint_shared_dir(const struct checkpoint_store *at, int64_t epoch,
                          char ret[CHECKPOINT_PATH_MAX + 64], struct err *err)
{
    const char *here = checkpoint_store_is_remote(at->base) ? at->scratch : at->base;

    if (!here || !*here)
        return err_set(err, E_INVALID, "%.200s needs a scratch folder on this machine", at->base);
    int rc = checkpoint_store_allowed(at, err);
    if (rc < 0)
        return rc;
    (void)snprintf(ret, CHECKPOINT_PATH_MAX + 64, "%.1000s/e%lld/0", here, (long long)epoch);
    return sealfs_dir_make(ret, err);
}

static int base_check(const struct checkpoint_store *at, struct err *err)
{
    const char *scratch = at->scratch ? at->scratch : "";

    if (at->base[0] != '/' && !checkpoint_store_is_remote(at->base))
        return err_set(err, E_INVALID,
                       "the checkpoint store %.100s is neither an absolute folder nor s3://BUCKET",
                       at->base);
    if (strlen(at->base) >= CHECKPOINT_PATH_MAX - 96 || strlen(scratch) >= CHECKPOINT_PATH_MAX - 96)
        return err_set(err, E_INVALID, "the checkpoint folder %.100s is longer than %d bytes",
                       at->base, CHECKPOINT_PATH_MAX - 97);
    if (*scratch && *scratch != '/')
        return err_set(err, E_INVALID, "%.100s is no absolute folder", scratch);
    return 0;
}

int store_open(const struct checkpoint_store *at, struct checkpoint_progress *p, struct store **ret,
               struct err *err)
{
    struct store *s = NULL;
    int rc = base_check(at, err);

    if (rc == 0)
        rc = checkpoint_store_allowed(at, err);
    if (rc < 0)
        return rc;
    if (at->base[0] == '/')
        s = store_directory_open();
    else
        rc = store_s3_open(at, &s, err);
    if (rc < 0)
        return rc;
    s->progress = p;
    str_copy(s->base, sizeof s->base, at->base);
    str_copy(s->local, sizeof s->local, !s->ops->put ? at->base : at->scratch ? at->scratch : "");
    *ret = s;
    return 0;
}

struct store *store_close(struct store *s)
{
    if (s)
        s->ops->close(s);
    return NULL;
}

void store_progress(struct store *s, struct checkpoint_progress *p)
{
    s->progress = p;
}

const char *store_base(const struct store *s)
{
    return s->base;
}

const char *store_local(const struct store *s)
{
    return s->local;
}

bool store_is_remote(const struct store *s)
{
    return s->ops->put != NULL;
}

bool store_is_here(struct store *s)
{
    return s->ops->is_here(s);
}

int store_make(struct store *s, const char *folder, struct err *err)
{
    return s->ops->make(s, folder, err);
}

int store_get(struct store *s, const char *name, size_t max, struct buf *ret,
              int64_t *ret_written_ns, struct err *err)
{
    return s->ops->get(s, name, max, ret, ret_written_ns, err);
}

int store_create(struct store *s, const char *name, const void *p, size_t n, struct err *err)
{
    return s->ops->create(s, name, p, n, err);
}

int store_list(struct store *s, const char *folder, int (*each)(const char *name, void *arg),
               void *arg, struct err *err)
{
    return s->ops->list(s, folder, each, arg, err);
}

int store_written(struct store *s, const char *folder, enum store_written what, int64_t *ret_ns,
                  struct err *err)
{
    return s->ops->written(s, folder, what, ret_ns, err);
}

int store_remove(struct store *s, const char *name, struct err *err)
{
    return s->ops->remove(s, name, err);
}

int store_put(struct store *s, const char *name, int fd, const struct checkpoint_file *f,
              struct err *err)
{
    PRE(s->ops->put);
    return s->ops->put(s, name, fd, f, err);
}

int store_copy(struct store *s, const char *from, const char *name, const struct checkpoint_file *f,
               bool *ret_copied, struct err *err)
{
    return s->ops->copy(s, from, name, f, ret_copied, err);
}

int store_fetch(struct store *s, const char *name, int to, const struct checkpoint_file *f,
                struct err *err)
{
    PRE(s->ops->fetch);
    return s->ops->fetch(s, name, to, f, err);
}
