/* The data directory, and which process may use it. Two processes, two members or two clusters must
 * never share one, and no second cluster may start by accident: an empty directory needs
 * --bootstrap, or a cluster that takes the member in.
 *
 *   lock       held while the process lives
 *   meta.json  {"version":1,"member":3,"ready":true,"cluster":"…"}
 *   log/       libraft's segments, snapshots, term and vote */
#include "controlplane/raft/core_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define FREE_MIN_BYTES (32u << 20)

/* Asked of the kernel directly: libraft, whose files these are, does not go through the seam
 * either. */
bool files_disk_full(const struct core *c)
{
    struct statvfs s;

    if (c->cfg.raft_io_create || statvfs(c->cfg.data_dir, &s))
        return false;
    return (uint64_t)s.f_bavail * s.f_frsize < FREE_MIN_BYTES;
}

void files_second(struct core *c)
{
    if (files_disk_full(c))
        core_alarm_raise(c, ALARM_DISK, "less than %u MiB are free on the disk of %.300s",
                         FREE_MIN_BYTES >> 20, c->cfg.data_dir);
    else
        core_alarm_clear(c, ALARM_DISK);
}

static bool meta_parse(const char *text, struct core_meta *m)
{
    static const char head[] = "{\"version\":1,\"member\":", yes[] = ",\"ready\":true,",
                      no[] = ",\"ready\":false,";
    const char *cluster = strstr(text, "\"cluster\":\"");
    char *end;

    if (strncmp(text, head, strlen(head)) != 0 || !cluster)
        return false;
    m->member = strtoull(text + strlen(head), &end, 10);
    m->ready = !strncmp(end, yes, strlen(yes));
    if (!m->member || (!m->ready && strncmp(end, no, strlen(no)) != 0))
        return false;
    return sscanf(cluster, "\"cluster\":\"%63[^\"]", m->cluster) >= 0;
}

static void meta_path(const struct core *c, char *ret, size_t n)
{
    (void)snprintf(ret, n, "%s/meta.json", c->cfg.data_dir);
}

int files_save(struct core *c, struct err *err)
{
    char path[1100], text[256];
    int n;

    meta_path(c, path, sizeof path);
    n = snprintf(text, sizeof text,
                 "{\"version\":1,\"member\":%" PRIu64 ",\"ready\":%s,\"cluster\":\"%s\"}\n",
                 c->meta.member, c->meta.ready ? "true" : "false", c->meta.cluster);
    INV(n > 0 && (size_t)n < sizeof text);
    return file_write(c->loop, path, text, (size_t)n, 0600, err);
}

int files_meta(struct loop *l, const char *dir, struct core_meta *ret, struct err *err)
{
    char path[1100];
    struct err e = {0};
    AUTO_BUF text;

    buf_init(&text, 4096);
    (void)snprintf(path, sizeof path, "%s/meta.json", dir);
    int rv = file_read(l, path, 4096, &text, &e);
    if (rv == E_NOTFOUND)
        return err_set(err, rv, "%.300s is no data directory of a member: it holds no meta.json",
                       dir);
    if (rv)
        return err ? (void)(*err = e), rv : rv;
    *ret = (struct core_meta){0};
    if (!text.n || !meta_parse(text.p, ret))
        return err_set(err, E_CORRUPT, "%.300s cannot be read", path);
    return 0;
}

static void log_file_seen(const char *name, void *arg)
{
    (void)name;
    *(bool *)arg = true;
}

static int first_start(struct core *c, bool log_exists, struct err *err)
{
    if (log_exists)
        return err_set(
            err, E_CORRUPT,
            "%s holds a log but no meta.json: it is no data directory of Hanse, or was damaged; "
            "restore it, "
            "or start with an empty directory and let this member rejoin (hanse members add)",
            c->cfg.data_dir);
    if (!c->cfg.bootstrap && c->cfg.n_peers > 0)
        return err_set(err, E_INVALID,
                       "%s is empty, but this member is told of %u peers: to take it into their "
                       "cluster run `hanse "
                       "members add` there and start it without peers; to begin a new cluster "
                       "start it with --bootstrap",
                       c->cfg.data_dir, c->cfg.n_peers);
    c->meta.member = c->cfg.id;
    return files_save(c, err);
}

static int later_start(struct core *c, bool log_exists, struct err *err)
{
    if (c->meta.member != c->cfg.id)
        return err_set(err, E_INVALID,
                       "%s belongs to member %" PRIu64 ", this is member %" PRIu64
                       ": give each member its own data directory",
                       c->cfg.data_dir, c->meta.member, c->cfg.id);
    if (c->meta.ready && !log_exists)
        return err_set(err, E_CORRUPT,
                       "the log of member %" PRIu64
                       " in %s is gone: restore it, or remove the member (hanse members remove), "
                       "move the directory aside and add it again",
                       c->cfg.id, c->cfg.data_dir);
    return 0;
}

int files_open(struct core *c, struct err *err)
{
    char path[1100];
    bool log_exists = false;
    struct err e = {0};
    AUTO_BUF text;
    int rv;

    buf_init(&text, 4096);
    if ((rv = file_mkdir(c->loop, c->cfg.data_dir, 0700, err)))
        return rv;
    (void)snprintf(path, sizeof path, "%s/lock", c->cfg.data_dir);
    if ((rv = file_lock(c->loop, path, err)))
        return err_prefix(err, "data directory %s", c->cfg.data_dir), rv;
    if (files_disk_full(c))
        return err_set(err, E_NOSPACE,
                       "the disk of %s is full: free at least %u MiB, then start again",
                       c->cfg.data_dir, FREE_MIN_BYTES >> 20);
    (void)snprintf(c->log_dir, sizeof c->log_dir, "%s/log", c->cfg.data_dir);
    if ((rv = file_list(c->loop, c->log_dir, log_file_seen, &log_exists, err)))
        return rv;
    meta_path(c, path, sizeof path);
    rv = file_read(c->loop, path, 4096, &text, &e);
    if (rv == E_NOTFOUND)
        rv = first_start(c, log_exists, err);
    else if (rv) {
        if (err)
            *err = e;
    } else if (!text.n || !meta_parse(text.p, &c->meta))
        rv =
            err_set(err, E_CORRUPT,
                    "%s cannot be read: restore it from a backup, or let this member rejoin", path);
    else
        rv = later_start(c, log_exists, err);
    return rv ? rv : file_mkdir(c->loop, c->log_dir, 0700, err);
}
