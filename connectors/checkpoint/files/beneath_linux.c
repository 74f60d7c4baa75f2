/* Whether a folder truly lies below another one. What is there of the way down is walked part by
 * part: no part is a link, and nobody but root, the reader and the owner of the upper folder may
 * rename any of it, so that the answer stays true when the folder is opened by its name later. */
#include "connectors/checkpoint/files/sealfs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART_FLAGS (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* Without root's rights all that is started here is the same user, who may do no more in it than by
 * himself. */
static bool is_others(const struct stat *st, const struct stat *top)
{
    bool own = st->st_uid == 0 || st->st_uid == geteuid() || st->st_uid == top->st_uid;
    bool open_to_all = (st->st_mode & S_IWOTH) && !(st->st_mode & S_ISVTX);

    return geteuid() == 0 && (!own || open_to_all);
}

static int part_fault(int no, const char *root, const char *below, struct err *err)
{
    if (no == ENOTDIR || no == ELOOP)
        return err_set(err, E_FORBIDDEN,
                       "%.200s/%.200s: a part of it is a link, or no folder; the operator may "
                       "name where it leads to (hanse agent --store-root)",
                       root, below);
    return err_set(err, no == EACCES ? E_FORBIDDEN : E_IO, "looking at %.200s/%.200s: %s", root,
                   below, strerror(no));
}

int sealfs_beneath(const char *root, const char *below, struct err *err)
{
    const char *rest = below;
    struct stat top, st;
    int rc = 0;
    int at = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (at < 0) /* nothing of it is there yet */
        return errno == ENOENT ? 0 : part_fault(errno, root, below, err);
    if (fstat(at, &top) != 0)
        rc = part_fault(errno, root, below, err);
    while (rc == 0 && *rest) {
        char part[CHECKPOINT_NAME_MAX + 1];
        size_t n = strcspn(rest, "/");
        if (n == 0 || n >= sizeof part) {
            rc = err_set(err, E_INVALID, "%.200s is no name below a folder", below);
            break;
        }
        memcpy(part, rest, n);
        part[n] = '\0';
        int next = openat(at, part, PART_FLAGS);
        if (next < 0 && errno == ENOENT)
            break;
        if (next < 0 || fstat(next, &st) != 0)
            rc = part_fault(errno, root, below, err);
        else if (is_others(&st, &top))
            rc = err_set(err, E_FORBIDDEN,
                         "%.200s/%.200s: the part %.100s belongs to somebody else, or everybody "
                         "may write there",
                         root, below, part);
        sealfs_close(at);
        at = next;
        rest += n + (rest[n] == '/');
    }
    sealfs_close(at);
    return rc;
}
