/* See tenant_linux.h. The state folder is covered by an empty file system, in which the run's own
 * folders appear under their usual names: they are opened ahead, and mounted from there. */
#include "connectors/shim/tenant_linux.h"

#include "connectors/shim/tree_linux.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define GIVE_DEPTH 16 /* folders in a checkpoint */

static int failed(const char *what, const char *path)
{
    (void)fprintf(stderr, "hanse run: the program cannot be kept apart: %s %s: %s\n", what, path,
                  strerror(errno));
    return 126;
}

/* ---- what becomes the tenant's ---- */
/* Never through a link: what is in there was written by programs. */
static bool give(int dir, uint32_t uid, uint32_t gid, int depth)
{
    int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    const struct dirent *e;
    bool ok = d && fchown(dir, uid, gid) == 0;

    while (ok && (e = readdir(d)) != NULL) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        int fd = openat(dir, e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        ok = fd >= 0 && fstat(fd, &st) == 0;
        if (ok && S_ISDIR(st.st_mode))
            ok = depth < GIVE_DEPTH && give(fd, uid, gid, depth + 1);
        else if (ok && S_ISREG(st.st_mode) && st.st_uid != uid)
            ok = fchown(fd, uid, gid) == 0;
        if (fd >= 0)
            (void)close(fd);
    }
    if (d)
        (void)closedir(d);
    return ok;
}

static int open_own(const char *path, const struct tenant_spec *t)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0 && fchown(fd, t->uid, t->gid) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* ---- the view ---- */
/* Folders on the way to it, open to all for passing through. */
static bool way_to(const char *path)
{
    char part[PATH_BYTES];

    str_copy(part, sizeof part, path);
    for (char *p = part + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            if (mkdir(part, 0711) != 0 && errno != EEXIST)
                return false;
            *p = '/';
        }
    return mkdir(part, 0711) == 0 || errno == EEXIST;
}

static bool put_mount(int from, const char *to, unsigned long flags)
{
    char path[64];
    struct statvfs st;

    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", from);
    if (fstatvfs(from, &st) != 0)
        return false;
    flags |= st.f_flag & ST_NOEXEC ? MS_NOEXEC : 0; /* as the machine has it */
    return mount(path, to, NULL, MS_BIND, NULL) == 0 &&
           mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV | flags, NULL) == 0;
}

struct part {
    int fd; /* -1: it is not there */
    char at[PATH_BYTES];
    unsigned long flags;
    bool file;
};
enum { PART_TMP, PART_WORK, PART_SAVE, PART_RESUME, PART_SCRIPT, PARTS };

static bool parts_open(const struct tenant_spec *t, struct part p[PARTS])
{
    static const char *const names[] = {TENANT_TMP, TENANT_WORK, TENANT_SAVE, TENANT_RESUME};
    const char *const from[] = {NULL, NULL, t->save, t->resume};
    char tmp[PATH_BYTES];
    bool ok = true;

    for (int i = 0; i < PART_SCRIPT; i++)
        (void)snprintf(p[i].at, sizeof p[i].at, "%s/%s", t->dir, names[i]);
    str_copy(tmp, sizeof tmp, p[PART_TMP].at);
    (void)mkdir(tmp, 0700);
    for (int i = 0; i < PART_SCRIPT; i++) {
        p[i].fd = from[i] && !*from[i] ? -1 : open_own(from[i] ? from[i] : p[i].at, t);
        if (p[i].fd < 0 && (i == PART_TMP || (from[i] && *from[i])))
            return false;
    }
    if (p[PART_RESUME].fd >= 0)
        ok = give(p[PART_RESUME].fd, t->uid, t->gid, 0);
    p[PART_RESUME].flags = MS_RDONLY;
    str_copy(p[PART_SCRIPT].at, sizeof p[PART_SCRIPT].at, t->dir);
    char *end = strrchr(p[PART_SCRIPT].at, '/');
    (void)snprintf(end, 16, "/script");
    p[PART_SCRIPT].fd = open(p[PART_SCRIPT].at, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    p[PART_SCRIPT].flags = MS_RDONLY;
    p[PART_SCRIPT].file = true;
    return ok && (p[PART_SCRIPT].fd < 0 || fchmod(p[PART_SCRIPT].fd, 0555) == 0);
}

static bool part_show(const struct part *p)
{
    char folder[PATH_BYTES];

    if (p->fd < 0)
        return true;
    str_copy(folder, sizeof folder, p->at);
    if (p->file) {
        *strrchr(folder, '/') = '\0';
        if (!way_to(folder))
            return false;
        int fd = open(p->at, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
        if (fd < 0 || close(fd) != 0)
            return false;
    } else if (!way_to(folder)) {
        return false;
    }
    return put_mount(p->fd, p->at, p->flags);
}

static int view_make(const struct tenant_spec *t, struct part p[PARTS])
{
    if (!put_mount(p[PART_TMP].fd, "/tmp", 0))
        return failed("mounting", "/tmp");
    if (access("/var/tmp", F_OK) == 0 && !put_mount(p[PART_TMP].fd, "/var/tmp", 0))
        return failed("mounting", "/var/tmp");
    if (!way_to(t->state) || mount("hanse", t->state, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                                   "size=64k,mode=0711") != 0)
        return failed("covering", t->state);
    for (int i = 0; i < PARTS; i++)
        if (!part_show(&p[i]))
            return failed("showing", p[i].at);
    if (mount(NULL, t->state, NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "size=64k,mode=0711") != 0)
        return failed("closing", t->state);
    return 0;
}

int tenant_view(const struct tenant_spec *t)
{
    struct part p[PARTS] = {{.fd = -1}, {.fd = -1}, {.fd = -1}, {.fd = -1}, {.fd = -1}};
    int rc = parts_open(t, p) ? view_make(t, p) : failed("opening", t->dir);

    for (int i = 0; i < PARTS; i++)
        if (p[i].fd >= 0)
            (void)close(p[i].fd);
    return rc;
}

/* ---- the process ---- */
int tenant_become(const struct tenant_spec *t)
{
    char cwd[PATH_BYTES];
    struct stat st;

    if (!getcwd(cwd, sizeof cwd))
        return failed("its folder", "");
    for (int fd = 0; fd < 3; fd++) /* /dev/stdout and its like are opened anew */
        if (fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode)) && st.st_uid == 0)
            (void)!fchown(fd, t->uid, t->gid);
    if (setgroups(0, NULL) != 0 || setresgid(t->gid, t->gid, t->gid) != 0 ||
        setresuid(t->uid, t->uid, t->uid) != 0)
        return failed("taking", "its user");
    if (chdir(cwd) != 0) /* the one of its own view */
        return failed("entering", cwd);
    int e = syscalls_limit();
    errno = e;
    return e ? failed("limiting", "its system calls") : 0;
}

/* ---- may we? ---- */
/* Whoever is not root must get through to its own folder. */
static bool is_open_to_all(const char *path)
{
    char part[PATH_BYTES];
    struct stat st;

    str_copy(part, sizeof part, path);
    if (strncmp(path, "/tmp/", 5) == 0 || strncmp(path, "/var/tmp/", 9) == 0)
        return true; /* made anew in each view */
    for (char *end; (end = strrchr(part, '/')) != NULL && end != part;) {
        *end = '\0';
        if (stat(part, &st) != 0 || !(st.st_mode & S_IXOTH))
            return false;
    }
    return true;
}

static bool links_are_protected(void)
{
    char s[16];

    return group_text("/proc/sys/fs/protected_hardlinks", s, sizeof s) > 0 && s[0] == '1';
}

const char *tenant_try(const char *state)
{
    int status;

    if (geteuid() != 0)
        return "the agent is not root";
    if (!is_open_to_all(state))
        return "a folder above --state is closed to others (it needs mode 0711)";
    if (!links_are_protected())
        return "fs.protected_hardlinks is 0: one tenant could have another's files given to it";
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = unshare(CLONE_NEWNS) == 0 &&
                  mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 &&
                  mount("hanse", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k") == 0;
        if (!ok)
            _exit(1);
        _exit(setgroups(0, NULL) != 0 || syscalls_limit() != 0 ? 2 : 0);
    }
    if (pid < 0)
        return "no process can be started";
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return code == 1 ? "no mounts of its own can be made"
           : code    ? "the kernel takes no filter of system calls"
                     : NULL;
}
