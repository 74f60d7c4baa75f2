/* Files: small and rare. This file must never leave a half-written file under its final name, and
 * never follow a symbolic link while removing. */
#include "api/base/loop/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define REMOVE_DEPTH_MAX 64

int err_errno(struct err *err, int no, const char *doing, const char *what)
{
    int code = E_IO;
    const char *remedy = "";

    if (no == ENOENT || no == ENOTDIR)
        code = E_NOTFOUND;
    else if (no == EACCES || no == EPERM || no == EROFS)
        code = E_FORBIDDEN;
    else if (no == ENOSPC || no == EDQUOT)
        code = E_NOSPACE, remedy = ": free some space, nothing was changed";
    else if (no == EMFILE || no == ENFILE)
        code = E_LIMIT, remedy = ": raise the limit of open files";
    return err_set(err, code, "%s %s: %s%s", doing, what, strerror(no), remedy);
}

int posix_read(struct loop *l, const char *path, uint64_t offset, size_t max, bool whole,
               struct buf *b, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = 0;
    size_t left = max;
    struct stat st;
    char extra;

    (void)l;
    if (fd < 0)
        return err_errno(err, errno, "reading", path);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        (void)close(fd);
        return err_set(err, E_IO, "reading %s: it is a directory", path);
    }
    for (;;) {
        size_t want = left < 65536 ? left : 65536;
        char *to = want ? buf_reserve(b, want) : &extra;

        if (!to) {
            rc = err_set(err, E_TOOLARGE, "%s does not fit in %zu bytes", path, b->max);
            break;
        }
        if (!want && !whole)
            break;
        ssize_t n = pread(fd, to, want ? want : 1, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = err_errno(err, errno, "reading", path);
        else if (n && !want)
            rc = err_set(err, E_TOOLARGE, "%s is larger than %zu bytes", path, max);
        if (n <= 0 || !want)
            break;
        b->n += (size_t)n;
        b->p[b->n] = '\0';
        offset += (uint64_t)n;
        left -= (size_t)n;
    }
    (void)close(fd);
    return rc;
}

static int write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t done = write(fd, p, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return errno;
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

/* The directory that a path is in: a rename is on disk only once its directory is. */
int sync_parent(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;

    if (n >= sizeof dir)
        return ENAMETOOLONG;
    memcpy(dir, path, n);
    dir[n] = '\0';
    int fd = open(!slash ? "." : n ? dir : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int no = fsync(fd) ? errno : 0;
    (void)close(fd);
    return no;
}

int posix_write(struct loop *l, const char *path, const void *p, size_t n, unsigned mode,
                struct err *err)
{
    char tmp[PATH_MAX];

    (void)l;
    if ((size_t)snprintf(tmp, sizeof tmp, "%s.tmp", path) >= sizeof tmp)
        return err_set(err, E_INVALID, "the path %.200s… is too long", path);
    /* A left-over of a crash may have another mode or be a link: it goes first. */
    if (unlink(tmp) != 0 && errno != ENOENT)
        return err_errno(err, errno, "removing", tmp);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, (mode_t)mode);
    if (fd < 0)
        return err_errno(err, errno, "writing", tmp);
    int no = fchmod(fd, (mode_t)mode) ? errno : 0; /* whatever the umask */
    if (!no)
        no = write_all(fd, p, n);
    if (!no && fsync(fd))
        no = errno;
    if (close(fd) && !no)
        no = errno;
    if (!no && rename(tmp, path))
        no = errno;
    if (no) {
        (void)unlink(tmp);
        return err_errno(err, no, "writing", path);
    }
    no = sync_parent(path);
    return no ? err_errno(err, no, "writing the directory of", path) : 0;
}

static int remove_at(int dir, const char *name, unsigned depth);

static int remove_dir(int parent, const char *name, unsigned depth)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), no = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        no = errno;
        if (fd >= 0)
            (void)close(fd);
        return no;
    }
    if (depth >= REMOVE_DEPTH_MAX)
        no = ELOOP;
    for (struct dirent *e; !no && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            no = remove_at(fd, e->d_name, depth + 1);
    (void)closedir(d);
    if (!no && unlinkat(parent, name, AT_REMOVEDIR))
        no = errno;
    return no;
}

static int remove_at(int dir, const char *name, unsigned depth)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return errno;
    return remove_dir(dir, name, depth);
}

int posix_remove(struct loop *l, const char *path, struct err *err)
{
    (void)l;
    PRE(path[0] && strcmp(path, "/"));
    int no = remove_at(AT_FDCWD, path, 0);
    return no && no != ENOTDIR ? err_errno(err, no, "removing", path) : 0;
}

int posix_mkdir(struct loop *l, const char *path, unsigned mode, struct err *err)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    struct stat st;

    (void)l;
    if (!n || n >= sizeof part)
        return err_set(err, E_INVALID, "the path %.200s is empty or too long", path);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char was = part[i];
        part[i] = '\0';
        if (mkdir(part, (mode_t)mode) != 0 && errno != EEXIST) {
            int no = errno;
            /* A read-only root may refuse what exists with another error. */
            if (stat(part, &st) != 0)
                return err_errno(err, no, "making the directory", part);
        }
        part[i] = was;
    }
    if (stat(path, &st) != 0)
        return err_errno(err, errno, "making the directory", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, E_EXISTS, "%s exists and is no directory", path);
    return 0;
}

static int skip_dots(const struct dirent *e)
{
    return strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name,
                  (*b)->d_name); /* not alphasort: the order must not depend on the locale */
}

int posix_list(struct loop *l, const char *dir, void (*each)(const char *, void *), void *arg,
               struct err *err)
{
    struct dirent **v;
    int n = scandir(dir, &v, skip_dots, by_name);

    (void)l;
    if (n < 0)
        return errno == ENOENT ? 0 : err_errno(err, errno, "listing", dir);
    for (int i = 0; i < n; i++) {
        each(v[i]->d_name, arg);
        free(v[i]);
    }
    free(v);
    return 0;
}

int posix_lock(struct loop *l, const char *path, struct err *err)
{
    char text[32] = "";
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    (void)l;
    if (fd < 0)
        return err_errno(err, errno, "locking", path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int no = errno;
        ssize_t n = pread(fd, text, sizeof text - 1, 0);

        (void)close(fd);
        if (no != EWOULDBLOCK)
            return err_errno(err, no, "locking", path);
        text[n > 0 ? n : 0] = '\0';
        text[strcspn(text, "\n")] = '\0';
        return err_set(err, E_BUSY, "%s is locked by process %s: stop it, or use another directory",
                       path, text[0] ? text : "(unknown)");
    }
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) {
        int no = errno;

        (void)close(fd);
        return err_errno(err, no, "locking", path);
    }
    return 0; /* fd stays open on purpose: the lock lives as long as the process */
}
