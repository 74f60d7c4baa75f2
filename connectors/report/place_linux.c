/* The system calls of a report's writer. */
#include "connectors/report/report_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno != EINTR)
            return errno;
        p += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
    return 0;
}

static int closed(int fd, int why)
{
    /* a pipe has nothing to sync */
    if (!why && fsync(fd) < 0 && errno != EINVAL && errno != EROFS)
        why = errno;
    if (close(fd) < 0 && !why)
        why = errno;
    return why;
}

/* The line is ahead of what was there before that is gone: whoever reads in between reads the first
 * line. It is at most a page, which one write() changes. */
int report_in_place(const char *path, const char *text, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644);
    struct stat st;
    int why = 0;

    if (fd < 0)
        return errno;
    if (fstat(fd, &st) < 0)
        why = errno;
    else if (!S_ISREG(st.st_mode))
        why = EINVAL;
    if (!why && n)
        why = write_all(fd, text, n);
    if (!why && n && ftruncate(fd, (off_t)n) < 0)
        why = errno;
    return closed(fd, why);
}

int report_there(const char *path, char ret[REPORT_LINE_MAX], size_t *ret_n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    ssize_t n = 0;
    int why = 0;

    *ret_n = 0;
    if (fd < 0)
        return errno;
    if (fstat(fd, &st) < 0)
        why = errno;
    else if (!S_ISREG(st.st_mode))
        why = EINVAL;
    if (!why && (n = read(fd, ret, REPORT_LINE_MAX)) < 0)
        why = errno;
    *ret_n = n > 0 ? (size_t)n : 0;
    (void)close(fd);
    return why;
}

int report_plainly(const char *path, const char *text, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644);

    return fd < 0 ? errno : closed(fd, write_all(fd, text, n));
}

int report_folder_look(const char *path)
{
    const char *last = strrchr(path, '/');
    char folder[PATH_MAX];
    int n = snprintf(folder, sizeof folder, "%.*s", last ? (int)(last - path) : 1,
                     last ? path : ".");

    if (n < 0 || (size_t)n >= sizeof folder)
        return ENAMETOOLONG;
    return access(*folder ? folder : "/", W_OK | X_OK) == 0 ? 0 : errno;
}

int report_tool_find(const char *name, char ret[REPORT_TOOL_MAX])
{
    const char *at = getenv("PATH"), *end;

    for (; at && *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, ":");
        int n = snprintf(ret, REPORT_TOOL_MAX, "%.*s/%s", (int)(end - at), at, name);
        if (end > at && n > 0 && n < REPORT_TOOL_MAX && access(ret, X_OK) == 0)
            return 0;
    }
    return ENOENT;
}
