/* Control groups: where they are made, how they are entered, ended and removed. A group that is not
 * Hanse's must never be removed or killed. */
#include "connectors/shim/tree_linux.h"

#include "api/base/mem.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP_DEPTH 8 /* programs make groups of their own in ours */
#define MAKE_TRIES 8  /* the folder of all groups goes with the last one, perhaps just now */

int group_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, out, size - 1);
    int e = errno;
    (void)close(fd);
    if (n < 0)
        return -e;
    out[n] = '\0';
    return (int)n;
}

bool group_write(const char *group, const char *file, const char *text)
{
    char path[RUN_GROUP_MAX + 32];

    (void)snprintf(path, sizeof path, "%s/%s", group, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    (void)close(fd);
    return ok;
}

bool group_join(const char *group)
{
    return group_write(group, "cgroup.procs", "0") && limits_join(group);
}

bool group_holds(const char *group)
{
    char path[RUN_GROUP_MAX + 32];

    (void)snprintf(path, sizeof path, "%s/cgroup.events", group);
    return access(path, F_OK) == 0;
}

/* Gone is empty: only an empty group can be removed. */
bool group_is_empty(const char *group)
{
    char path[RUN_GROUP_MAX + 32], s[256];

    (void)snprintf(path, sizeof path, "%s/cgroup.events", group);
    int n = group_text(path, s, sizeof s);
    if (n == -ENOENT || n == -ENODEV) {
        (void)snprintf(path, sizeof path, "%s/cgroup.procs", group); /* version 1 has no events */
        n = group_text(path, s, sizeof s);
        return n == 0 || (n < 0 && access(group, F_OK) != 0 && errno == ENOENT);
    }
    return n > 0 && strstr(s, "populated 0") != NULL;
}

/* Root's are below a folder of their own at the top of the hierarchy, wherever an agent was
 * started from: the next one, started from elsewhere, finds them. Who is not root has only its
 * own place. */
static bool place(bool own_place, char out[RUN_GROUP_MAX])
{
    static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char own[4096], path[RUN_GROUP_MAX + 64];

    out[0] = '\0';
    if (group_text("/proc/self/cgroup", own, sizeof own) <= 0)
        return false;
    char *p = strncmp(own, "0::", 3) == 0 ? own : strstr(own, "\n0::");
    if (p) {
        p += p == own ? 3 : 4;
        p[strcspn(p, "\n")] = '\0';
    }
    for (size_t i = 0; p && i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/cgroup.controllers", roots[i]);
        if (access(path, F_OK) != 0)
            continue;
        int n = own_place ? snprintf(path, sizeof path, "%s%s/hanse-", roots[i],
                                     strcmp(p, "/") == 0 ? "" : p)
                          : snprintf(path, sizeof path, "%s" GROUP_TOP, roots[i]);
        if (n >= RUN_GROUP_MAX)
            return false;
        str_copy(out, RUN_GROUP_MAX, path);
        return true;
    }
    /* Version 1 alone: for limits, it holds nothing. */
    if (own_place || access("/sys/fs/cgroup/memory/cgroup.procs", F_OK) != 0)
        return false;
    (void)snprintf(out, RUN_GROUP_MAX, "/sys/fs/cgroup/memory" GROUP_TOP);
    return true;
}

void tree_group_place(struct runner_os *os, bool of_old, char out[RUN_GROUP_MAX])
{
    (void)os;
    (void)place(of_old || geteuid() != 0, out);
}

/* The folder that a name is put into: a prefix may end within one. */
static void folder_of(const char *path, char out[RUN_GROUP_MAX])
{
    str_copy(out, RUN_GROUP_MAX, path);
    *strrchr(out, '/') = '\0';
}

bool group_make(const char *path)
{
    char folder[RUN_GROUP_MAX];

    folder_of(path, folder);
    for (int i = 0; i < MAKE_TRIES; i++) {
        if (mkdir(path, 0755) == 0 || errno == EEXIST)
            return true;
        if (errno != ENOENT || (mkdir(folder, 0755) != 0 && errno != EEXIST))
            return false;
    }
    return false;
}

void tree_group_create(struct runner_os *os, const char *name, char out[RUN_GROUP_MAX])
{
    char path[RUN_GROUP_MAX + 256];

    tree_group_place(os, false, out);
    int n = snprintf(path, sizeof path, "%s%.200s", out, name);
    bool ok = *out && n < RUN_GROUP_MAX && group_make(path);
    (void)snprintf(out, RUN_GROUP_MAX, "%.*s", ok ? n : 0, path);
}

static void group_remove(const char *group, int depth)
{
    char path[RUN_GROUP_MAX + 260];
    const struct dirent *e;

    if (rmdir(group) == 0 || depth == GROUP_DEPTH)
        return;
    DIR *d = opendir(group);
    if (!d)
        return;
    while ((e = readdir(d)) != NULL)
        if (e->d_type == DT_DIR && e->d_name[0] != '.') {
            (void)snprintf(path, sizeof path, "%s/%s", group, e->d_name);
            group_remove(path, depth + 1);
        }
    (void)closedir(d);
    (void)rmdir(group);
}

void tree_group_remove(struct runner_os *os, const char *group)
{
    char folder[RUN_GROUP_MAX];

    (void)os;
    if (!group || !*group)
        return;
    limits_remove(group);
    group_remove(group, 0);
    folder_of(group, folder);
    size_t n = strlen(folder), top = strlen(GROUP_TOP) - 1;
    if (n > top && strncmp(folder + n - top, GROUP_TOP, top) == 0)
        (void)rmdir(folder); /* with its last group, and not before */
}

/* local.PID... and probe.PID: whoever made them is dead, and nobody else knows of them. */
static bool is_left(const char *name)
{
    const char *p =
        strncmp(name, "local.", 6) == 0 || strncmp(name, "probe.", 6) == 0 ? name + 6 : NULL;
    long pid = p && isdigit((unsigned char)*p) ? strtol(p, NULL, 10) : 0;

    return pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

void group_sweep(void)
{
    char at[RUN_GROUP_MAX], folder[RUN_GROUP_MAX], path[RUN_GROUP_MAX + 260];
    const struct dirent *e;

    tree_group_place(NULL, false, at);
    if (!*at)
        return;
    folder_of(at, folder);
    const char *prefix = at + strlen(folder) + 1;
    DIR *d = opendir(folder);
    while (d && (e = readdir(d)) != NULL)
        if (strncmp(e->d_name, prefix, strlen(prefix)) == 0 &&
            is_left(e->d_name + strlen(prefix))) {
            (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            tree_group_remove(NULL, path); /* rmdir takes empty ones only */
        }
    if (d)
        (void)closedir(d);
}
