/* A large file that is written in pieces. This file must never leave less than all of it under its
 * name. */
#include "api/base/loop/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file_out {
    int fd;
    char path[PATH_MAX], part[PATH_MAX];
};

int file_out_open(const char *path, unsigned mode, struct file_out **ret, struct err *err)
{
    struct file_out *f = mem_new(struct file_out);
    struct stat st;

    str_copy(f->path, sizeof f->path, path);
    if ((size_t)snprintf(f->part, sizeof f->part, "%s.part", path) >= sizeof f->part) {
        mem_free(f);
        return err_set(err, E_INVALID, "the path %.200s… is too long", path);
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        mem_free(f);
        return err_set(err, E_INVALID, "%s is not a file that can be replaced", path);
    }
    /* A left-over of a crash may have another mode or be a link: it goes first. */
    if (unlink(f->part) == 0 || errno == ENOENT)
        f->fd = open(f->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, (mode_t)mode);
    else
        f->fd = -1;
    if (f->fd < 0 || fchmod(f->fd, (mode_t)mode)) {
        int no = errno, r = err_errno(err, no, "writing", f->part);

        if (f->fd >= 0)
            file_out_abort(f);
        else
            mem_free(f);
        return r;
    }
    *ret = f;
    return 0;
}

int file_out_add(struct file_out *f, const void *p, size_t n, struct err *err)
{
    const char *at = p;

    while (n) {
        ssize_t done = write(f->fd, at, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return err_errno(err, errno, "writing", f->part);
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

int file_out_commit(struct file_out *f, struct err *err)
{
    int no = fsync(f->fd) ? errno : 0, r;

    if (close(f->fd) && !no)
        no = errno;
    f->fd = -1;
    if (!no && rename(f->part, f->path))
        no = errno;
    if (no) {
        r = err_errno(err, no, "writing", f->path);
        file_out_abort(f);
        return r;
    }
    no = sync_parent(f->path);
    r = no ? err_errno(err, no, "writing the directory of", f->path) : 0;
    mem_free(f);
    return r;
}

void file_out_abort(struct file_out *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        (void)close(f->fd);
    (void)unlink(f->part);
    mem_free(f);
}
