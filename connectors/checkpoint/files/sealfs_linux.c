/* See sealfs.h. Names are walked part by part with O_NOFOLLOW, so that a program which puts a link
 * into its folder gets nothing of anybody else's sealed, read or removed. */
#include "connectors/checkpoint/files/sealfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define CHUNK ((size_t)256 << 10)
#define SETTLED_NS 50000000 /* longer than any kernel's tick */
#define REMOVE_DEPTH_MAX 64

static int fault(struct err *err, int no, const char *doing, const char *what)
{
    int code = E_IO;

    if (no == ENOENT || no == ENOTDIR)
        code = E_NOTFOUND;
    else if (no == EACCES || no == EPERM || no == EROFS || no == ELOOP)
        code = E_FORBIDDEN;
    else if (no == ENOSPC || no == EDQUOT)
        code = E_NOSPACE;
    else if (no == EMFILE || no == ENFILE)
        code = E_LIMIT;
    return err_set(err, code, "%s %.300s: %s", doing, what, strerror(no));
}

bool file_facts_equal(const struct file_facts *a, const struct file_facts *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           a->mtime_ns == b->mtime_ns;
}

bool file_facts_settled(const struct file_facts *f, int64_t read_ns)
{
    return f->mtime_ns + SETTLED_NS < read_ns;
}

int64_t sealfs_now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void sealfs_close(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

int sealfs_dir_open(const char *path, int *ret_fd, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return fault(err, errno, "opening the folder", path);
    *ret_fd = fd;
    return 0;
}

int sealfs_dir_make(const char *path, struct err *err)
{
    char part[4096];
    size_t n = strlen(path);
    struct stat st;

    if (!n || n >= sizeof part)
        return err_set(err, E_INVALID, "the path %.200s is empty or too long", path);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char was = part[i];
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST) {
            int no = errno;
            if (stat(part, &st) != 0) /* a read-only root may refuse what exists */
                return fault(err, no, "making the folder", part);
        }
        part[i] = was;
    }
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode)
               ? 0
               : err_set(err, E_IO, "%.300s is no folder", path);
}

int sealfs_facts(int fd, struct file_facts *ret, struct err *err)
{
    struct statx x;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &x) != 0)
        return fault(err, errno, "reading", "a file's times");
    *ret = (struct file_facts){
        .device = makedev(x.stx_dev_major, x.stx_dev_minor),
        .inode = x.stx_ino,
        .size = (int64_t)x.stx_size,
        .mtime_ns = x.stx_mtime.tv_sec * 1000000000 + x.stx_mtime.tv_nsec,
        .ctime_ns = x.stx_ctime.tv_sec * 1000000000 + x.stx_ctime.tv_nsec,
        .birth_ns =
            x.stx_mask & STATX_BTIME ? x.stx_btime.tv_sec * 1000000000 + x.stx_btime.tv_nsec : 0};
    return 0;
}

int64_t sealfs_mtime_ns(const char *path)
{
    struct stat st;

    if (lstat(path, &st) != 0)
        return 0;
    return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

/* The folder that `name` is in, below dir; *ret_last: its last part. make: folders in between are
 * made. */
static int walk(int dir, const char *name, bool make, int *ret_fd, const char **ret_last,
                struct err *err)
{
    int at = fcntl(dir, F_DUPFD_CLOEXEC, 0);

    if (at < 0)
        return fault(err, errno, "opening", name);
    for (const char *slash; (slash = strchr(name, '/')) != NULL; name = slash + 1) {
        char part[CHECKPOINT_NAME_MAX + 1];
        size_t n = (size_t)(slash - name);
        if (n == 0 || n >= sizeof part) {
            sealfs_close(at);
            return err_set(err, E_INVALID, "%.200s is no name below a folder", name);
        }
        memcpy(part, name, n);
        part[n] = '\0';
        int no = make && mkdirat(at, part, 0700) != 0 && errno != EEXIST ? errno : 0;
        int next = no ? -1 : openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0) {
            no = no ? no : errno;
            sealfs_close(at);
            return fault(err, no, "opening the folder", part);
        }
        sealfs_close(at);
        at = next;
    }
    *ret_fd = at;
    *ret_last = name;
    return 0;
}

int sealfs_dir_below(int dir, const char *name, int *ret_fd)
{
    const char *last;
    int at;
    int rc = walk(dir, name, false, &at, &last, NULL);

    if (rc < 0)
        return rc;
    int fd = openat(at, last, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    sealfs_close(at);
    if (fd < 0)
        return E_NOTFOUND;
    *ret_fd = fd;
    return 0;
}

int sealfs_open(int dir, const char *name, int *ret_fd, struct file_facts *ret_facts,
                struct err *err)
{
    const char *last;
    struct stat st;
    int at;
    int rc = walk(dir, name, false, &at, &last, err);

    if (rc < 0)
        return rc;
    int fd = openat(at, last, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    int no = errno;
    sealfs_close(at);
    if (fd < 0)
        return fault(err, no, "opening", name);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        rc = err_set(err, E_FORBIDDEN, "%.300s is no regular file", name);
    else if (ret_facts)
        rc = sealfs_facts(fd, ret_facts, err);
    if (rc < 0) {
        sealfs_close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

int sealfs_read(int fd, size_t max, struct buf *b, struct err *err)
{
    off_t at = 0;

    for (;;) {
        char *to = buf_reserve(b, 65536);
        if (!to || (size_t)at > max)
            return err_set(err, E_TOOLARGE, "it is larger than %zu bytes", max);
        ssize_t n = pread(fd, to, 65536, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fault(err, errno, "reading", "a file");
        if (n == 0)
            break;
        b->n += (size_t)n;
        at += n;
    }
    buf_add(b, "", 1); /* NUL-terminated, also when empty */
    if (b->failed)
        return err_set(err, E_TOOLARGE, "it is larger than %zu bytes", max);
    b->n--;
    return 0;
}

int sealfs_sync(int fd, struct err *err)
{
    return fsync(fd) == 0 ? 0 : fault(err, errno, "syncing", "a file of the checkpoint");
}

void sealfs_sync_begin(int fd)
{
    (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
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

/* The kernel copies, and where the file system can, it shares the blocks. */
static int copy_bytes(int fd, int to, int64_t bytes)
{
    char *chunk = NULL;
    int64_t done = 0;
    int no = 0;

    while (!no && done < bytes) {
        off_t from = done;
        ssize_t n = chunk ? -1 : copy_file_range(fd, &from, to, NULL, (size_t)(bytes - done), 0);
        if (n > 0) {
            done += n;
            continue;
        }
        if (!chunk)
            chunk = mem_alloc(CHUNK);
        size_t want = (uint64_t)(bytes - done) < CHUNK ? (size_t)(bytes - done) : CHUNK;
        n = pread(fd, chunk, want, done);
        if (n < 0 && errno == EINTR)
            continue;
        no = n < 0 ? errno : n == 0 ? ENODATA : write_all(to, chunk, (size_t)n);
        done += n > 0 ? n : 0;
    }
    mem_free(chunk);
    return no;
}

static int copy(int fd, int64_t bytes, int at, const char *last, int *ret_copy, struct err *err)
{
    int to = openat(at, last, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int no = to < 0 ? errno : copy_bytes(fd, to, bytes);

    if (!no && fsync(to) != 0)
        no = errno;
    if (no) {
        sealfs_close(to);
        return no == ENODATA ? err_set(err, E_CORRUPT, "%.200s became shorter than %lld bytes",
                                       last, (long long)bytes)
                             : fault(err, no, "copying", last);
    }
    *ret_copy = to;
    return 0;
}

int sealfs_take(int fd, int64_t bytes, bool want_copy, int to, const char *name, int *ret_copy,
                struct err *err)
{
    char self[64];
    const char *last = name;
    int at = -1, rc;

    *ret_copy = -1;
    rc = walk(to, name, true, &at, &last, err);
    if (rc < 0)
        return rc;
    /* By descriptor: the very file that was read, whatever bears its name by now. */
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (!want_copy && linkat(AT_FDCWD, self, at, last, AT_SYMLINK_FOLLOW) != 0) {
        want_copy = errno != EEXIST;
        rc = want_copy ? 0 : fault(err, errno, "linking", name);
    }
    if (want_copy)
        rc = copy(fd, bytes, at, last, ret_copy, err);
    sealfs_close(at);
    return rc;
}

int sealfs_write(int dir, const char *name, const void *p, size_t n, bool durable, struct err *err)
{
    char tmp[256];

    if ((size_t)snprintf(tmp, sizeof tmp, "%s.tmp", name) >= sizeof tmp)
        return err_set(err, E_INVALID, "the name %.100s is too long", name);
    if (unlinkat(dir, tmp, 0) != 0 && errno != ENOENT)
        return fault(err, errno, "removing", tmp);
    int fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int no = fd < 0 ? errno : write_all(fd, p, n);
    if (!no && durable && fsync(fd) != 0)
        no = errno;
    if (fd >= 0 && close(fd) != 0 && !no)
        no = errno;
    if (!no && renameat(dir, tmp, dir, name) != 0)
        no = errno;
    if (!no && durable && fsync(dir) != 0)
        no = errno;
    return no ? fault(err, no, "writing", name) : 0;
}

int sealfs_create(int dir, const char *name, const void *p, size_t n, struct err *err)
{
    unsigned long long random;
    char tmp[256];

    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(err, E_INTERNAL, "no random number is to be had");
    if ((size_t)snprintf(tmp, sizeof tmp, ".%s.%016llx", name, random) >= sizeof tmp)
        return err_set(err, E_INVALID, "the name %.100s is too long", name);
    int fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int no = fd < 0 ? errno : write_all(fd, p, n);
    if (!no && fsync(fd) != 0)
        no = errno;
    if (fd >= 0 && close(fd) != 0 && !no)
        no = errno;
    if (!no && linkat(dir, tmp, dir, name, 0) != 0)
        no = errno;
    if (no == EPERM || no == EOPNOTSUPP || no == ENOSYS) /* no links here; some can rename so */
        no = renameat2(dir, tmp, dir, name, RENAME_NOREPLACE) ? errno : 0;
    (void)unlinkat(dir, tmp, 0);
    if (!no && fsync(dir) != 0)
        no = errno;
    if (no == EEXIST)
        return err_set(err, E_EXISTS, "%.200s is there already", name);
    return no ? fault(err, no, "writing", name) : 0;
}

int sealfs_new(int dir, const char *name, char *ret_part, size_t max, int *ret_fd, struct err *err)
{
    unsigned long long random;
    const char *last = name;
    int at = -1;

    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(err, E_INTERNAL, "no random number is to be had");
    int rc = walk(dir, name, true, &at, &last, err);
    if (rc < 0)
        return rc;
    if ((size_t)snprintf(ret_part, max, "%.*s.part-%016llx", (int)(last - name), name, random) >=
        max)
        rc = err_set(err, E_INVALID, "the name %.100s is too long", name);
    int fd = rc < 0 ? -1
                    : openat(at, ret_part + (last - name),
                             O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int no = errno;
    sealfs_close(at);
    if (fd < 0)
        return rc < 0 ? rc : fault(err, no, "making", name);
    *ret_fd = fd;
    return 0;
}

int sealfs_new_done(int dir, const char *part, const char *name, int fd, int64_t modified,
                    struct err *err)
{
    int64_t now = sealfs_now_ns() / 1000000000;
    /* Nobody writes to it any more: it need not look as if it were being written to. */
    int64_t at = modified > 0 && modified < now ? modified : now - 1;
    const struct timespec t[2] = {{.tv_sec = at}, {.tv_sec = at}};

    if (futimens(fd, t) != 0 || renameat(dir, part, dir, name) != 0)
        return fault(err, errno, "keeping", name);
    return 0;
}

static int tree_sync(int fd, unsigned depth) /* takes fd */
{
    DIR *d = fdopendir(fd);
    int no = 0;

    if (!d) {
        no = errno;
        sealfs_close(fd);
        return no;
    }
    for (struct dirent *e; !no && depth <= CHECKPOINT_DEPTH_MAX && (e = readdir(d)) != NULL;) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        int below = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0)
            no = tree_sync(below, depth + 1);
    }
    if (!no && fsync(fd) != 0)
        no = errno;
    (void)closedir(d);
    return no;
}

int sealfs_tree_sync(int dir, struct err *err)
{
    int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int no = again < 0 ? errno : tree_sync(again, 0);

    return no ? fault(err, no, "syncing", "the folders of the checkpoint") : 0;
}

int sealfs_rename(int dir, const char *from, const char *to, struct err *err)
{
    if (renameat(dir, from, dir, to) != 0 || fsync(dir) != 0)
        return fault(err, errno, "renaming to", to);
    return 0;
}

static int remove_at(int dir, const char *name, unsigned depth)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return errno;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), no = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        no = errno;
        sealfs_close(fd);
        return no;
    }
    if (depth >= REMOVE_DEPTH_MAX)
        no = ELOOP;
    for (struct dirent *e; !no && (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            no = remove_at(fd, e->d_name, depth + 1);
    (void)closedir(d);
    if (!no && unlinkat(dir, name, AT_REMOVEDIR) != 0)
        no = errno;
    return no;
}

int sealfs_remove(int dir, const char *name, struct err *err)
{
    int no = remove_at(dir, name, 0);

    return no ? fault(err, no, "removing", name) : 0;
}

int sealfs_list(int dir, int (*each)(const char *name, void *arg), void *arg, struct err *err)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        int no = errno;
        sealfs_close(fd);
        return fault(err, no, "listing", "a folder");
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && each(e->d_name, arg))
            break;
    (void)closedir(d);
    return 0;
}

int sealfs_list_path(const char *path, int (*each)(const char *name, void *arg), void *arg,
                     struct err *err)
{
    int dir = -1;
    int rc = sealfs_dir_open(path, &dir, err);

    if (rc == E_NOTFOUND)
        return 0;
    if (rc < 0)
        return rc;
    rc = sealfs_list(dir, each, arg, err);
    sealfs_close(dir);
    return rc;
}

int64_t sealfs_number(const char *name, const char *prefix, const char *suffix)
{
    size_t n = strlen(prefix);
    char *end;

    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9' ||
        (name[n] == '0' && name[n + 1] >= '0' && name[n + 1] <= '9'))
        return -1;
    errno = 0;
    long long v = strtoll(name + n, &end, 10);
    return errno == 0 && v <= CHECKPOINT_NUMBER_MAX && strcmp(end, suffix) == 0 ? v : -1;
}
