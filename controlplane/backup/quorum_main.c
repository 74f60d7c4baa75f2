/* hanse server recover-quorum: one member goes on alone, with what its data directory holds, when
 * the majority of its cluster is gone for good.
 *
 * It keeps what the directory held, in a folder within it. The exchange is a series of renames that
 * can be interrupted anywhere: until the last one no member starts with the directory, and the same
 * command resumes. It must never delete anything. */
#include "controlplane/backup/backup.h"

#include "controlplane/archive/archive_files.h"
#include "controlplane/raft/core.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "usage: hanse server recover-quorum --data DIR [--yes] [option...]\n"
    "\n"
    "Makes the member of DIR a cluster of its own, with the state that it holds, when so many "
    "members are\n"
    "gone for good that there is no majority any more. Without --yes it tells what it found, and "
    "changes\n"
    "nothing. Look at all members that are left first: the one with the highest entry knows most.\n"
    "\n"
    "Stop this member before. The others must be gone for good: those that come back are refused, "
    "and stop.\n"
    "What only they had acknowledged is lost; whatever runs goes on, and is Unknown until targets "
    "have told\n"
    "what they carry (hanse recover --from-targets). As long as a majority can come back, wait for "
    "it instead.\n"
    "\n"
    "  --data DIR                  data directory of the member; what it holds is kept in it, in "
    "a\n"
    "                              folder before-TIME\n"
    "  --peer-advertise HOST:PORT  what members are told (default: as it was)\n"
    "  --yes                       do it\n"
    "  -o, --output json           what was found or done, as JSON\n";

enum { OPT_DATA = 256, OPT_PEER, OPT_YES };
static const struct option options[] = {
    {"data", 1, NULL, OPT_DATA}, {"peer-advertise", 1, NULL, OPT_PEER},
    {"yes", 0, NULL, OPT_YES},   {"output", 1, NULL, 'o'},
    {"help", 0, NULL, 'h'},      {0}};

#define PATH_BYTES 1400
struct quorum {
    struct loop *loop;
    bool yes, json;
    struct anew_ask ask;
    struct core_taken taken;
    char next[1000], kept[1000]; /* the directory that is made, and where the old one goes */
};

/* ---- renames ---- */
static bool there(const char *path)
{
    struct stat s;

    return stat(path, &s) == 0;
}

static int move(const char *from, const char *to, struct err *err)
{
    if (!there(from) || rename(from, to) == 0)
        return 0;
    return err_set(err, E_IO, "moving %.200s to %.200s: %s", from, to, strerror(errno));
}

static int move_named(const char *from, const char *to, const char *name, struct err *err)
{
    char a[PATH_BYTES], b[PATH_BYTES];

    (void)snprintf(a, sizeof a, "%s/%s", from, name);
    (void)snprintf(b, sizeof b, "%s/%s", to, name);
    return there(b) ? 0 : move(a, b, err);
}

/* meta.json says what a directory is: a copy of it goes aside, and the new one takes its place with
 * the last rename. */
static int meta_keep(struct quorum *x, struct err *err)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    AUTO_BUF text = {0};

    (void)snprintf(from, sizeof from, "%s/meta.json", x->ask.data);
    (void)snprintf(to, sizeof to, "%s/meta.json", x->kept);
    if (there(to))
        return 0;
    buf_init(&text, 8192);
    int r = file_read(x->loop, from, 4096, &text, err);
    return r ? r : file_write(x->loop, to, text.p, text.n, 0600, err);
}

static int exchange(struct quorum *x, struct err *err)
{
    static const char *const aside[] = {"log", "archive", "skips.json", "stopped.json"};
    char path[PATH_BYTES];
    int r = file_mkdir(x->loop, x->kept, 0700, err);

    if (!r)
        r = meta_keep(x, err);
    for (size_t i = 0; i < sizeof aside / sizeof *aside && !r; i++)
        r = move_named(x->ask.data, x->kept, aside[i], err);
    if (!r)
        r = move_named(x->next, x->ask.data, "log", err);
    if (!r)
        r = move_named(x->next, x->ask.data, "archive", err);
    if (!r) {
        char to[PATH_BYTES];
        (void)snprintf(path, sizeof path, "%s/meta.json", x->next);
        (void)snprintf(to, sizeof to, "%s/meta.json", x->ask.data);
        r = move(path, to, err);
    }
    if (!r) { /* its lock is all that is left */
        str_copy(path, sizeof path, x->next);
        r = file_remove(x->loop, path, err);
    }
    return r;
}

/* ---- the directory that takes its place ---- */
struct linking {
    struct quorum *x;
    char from[1100], to[1100];
    int code;
    struct err err;
};

/* Files of the archive never change: both directories have the same ones. */
static void link_each(const char *name, void *arg)
{
    struct linking *k = arg;
    char from[PATH_BYTES], to[PATH_BYTES];
    AUTO_BUF copy = {0};

    if (k->code || !archive_path_number(name))
        return;
    (void)snprintf(from, sizeof from, "%s/%s", k->from, name);
    (void)snprintf(to, sizeof to, "%s/%s", k->to, name);
    if (link(from, to) == 0)
        return;
    buf_init(&copy, (size_t)64 << 20); /* a file system without links */
    if ((k->code = file_read(k->x->loop, from, (size_t)63 << 20, &copy, &k->err)) == 0)
        k->code = file_write(k->x->loop, to, copy.p, copy.n, 0600, &k->err);
}

static int archive_link(struct quorum *x, struct err *err)
{
    struct linking k = {.x = x};

    (void)snprintf(k.from, sizeof k.from, "%s/archive", x->ask.data);
    (void)snprintf(k.to, sizeof k.to, "%s/archive", x->next);
    int r = file_mkdir(x->loop, k.to, 0700, err);
    if (!r)
        r = file_list(x->loop, k.from, link_each, &k, err);
    return r ? r : k.code ? err_set(err, k.code, "%s", k.err.text) : 0;
}

static void found_print(const struct quorum *x)
{
    const struct core_taken *t = &x->taken;
    struct member_info all[64];
    size_t n = root_members(t->root, all, sizeof all / sizeof *all);
    char at[32];

    time_print(root_time(t->root), at);
    if (x->json) {
        (void)printf("{\"data\":\"%s\",\"member\":%" PRIu64 ",\"cluster\":\"%s\",\"entry\":%" PRIu64
                     ",\"index\":%" PRIu64 ",\"term\":%" PRIu64 ",\"time\":\"%s\","
                     "\"resourceVersion\":\"%" PRIu64 "\",\"members\":%zu}\n",
                     x->ask.data, t->member, root_cluster_uid(t->root), root_number(t->root),
                     t->index, t->term, at, root_rv(t->root), n);
        return;
    }
    (void)printf("%s: member %" PRIu64 " of cluster %s\n"
                 "entry %" PRIu64 " of %s (index %" PRIu64 ", term %" PRIu64
                 "), resourceVersion %" PRIu64 "\n",
                 x->ask.data, t->member, root_cluster_uid(t->root), root_number(t->root), at,
                 t->index, t->term, root_rv(t->root));
    for (size_t i = 0; i < n && i < sizeof all / sizeof *all; i++)
        (void)printf("member %" PRIu64 " (%s) at %s%s\n", all[i].id, all[i].name, all[i].address,
                     all[i].id == t->member ? ": this one" : "");
}

/* The time that names where the old one goes is the directory's own that takes its place: the same
 * when it is said again. */
static void names(struct quorum *x)
{
    char meta[PATH_BYTES], at[32];
    struct stat s;

    (void)snprintf(x->next, sizeof x->next, "%s/anew", x->ask.data);
    (void)snprintf(meta, sizeof meta, "%s/meta.json", x->next);
    time_print(stat(meta, &s) ? loop_wall_ms(x->loop) / 1000 * 1000 : (int64_t)s.st_mtime * 1000,
               at);
    for (char *p = at; *p; p++)
        if (*p == ':')
            *p = '-';
    (void)snprintf(x->kept, sizeof x->kept, "%s/before-%s", x->ask.data, at);
}

static int recover(struct quorum *x, struct err *err)
{
    struct store_anew_found found = {0};
    struct core_taken *t = &x->taken;
    int r;

    x->ask.member.id = t->member;
    if (!x->yes) {
        found_print(x);
        return err_set(err, E_USAGE,
                       "nothing was changed: say --yes when the other members are gone "
                       "for good, and none that is left has a higher entry");
    }
    if ((r = file_remove(x->loop, x->next, err)) || /* of a time that was broken off */
        (r = file_mkdir(x->loop, x->next, 0700, err)) || (r = archive_link(x, err)) ||
        (r = anew_make(x->loop, x->next, &t->root, &x->ask, t->term, t->known, &found, err))) {
        (void)!file_remove(x->loop, x->next, NULL);
        return r;
    }
    names(x);
    if ((r = exchange(x, err)))
        return r;
    anew_print(t->root, &x->ask, &found, x->json, x->kept, 0);
    return 0;
}

static int begin(struct loop *l, void *arg, struct err *err)
{
    struct quorum *x = arg;
    char path[PATH_BYTES];
    int r;

    x->loop = l;
    if (!x->ask.data)
        return err_set(err, E_USAGE, "--data is needed; see hanse server recover-quorum --help");
    if (strlen(x->ask.data) > 900)
        return err_set(err, E_USAGE, "--data: the path is too long");
    names(x);
    (void)snprintf(path, sizeof path, "%s/anew/meta.json", x->ask.data);
    if (x->yes && there(path)) { /* broken off while directories were exchanged */
        (void)snprintf(path, sizeof path, "%s/lock", x->ask.data);
        if ((r = file_lock(x->loop, path, err)) || (r = exchange(x, err)))
            return r;
        (void)printf("%s: what was begun is done; what it held is kept in %s\n", x->ask.data,
                     x->kept);
        return 0;
    }
    r = core_offline_take(x->loop, x->ask.data, &x->taken, err);
    if (!r)
        r = recover(x, err);
    (void)root_unref(x->taken.root);
    return r;
}

static int option_take(struct quorum *x, int opt, const char *arg, struct err *err)
{
    struct member_info *m = &x->ask.member;

    switch (opt) {
    case OPT_DATA:
        x->ask.data = arg;
        return 0;
    case OPT_PEER:
        return *arg && snprintf(m->address, sizeof m->address, "%s", arg) < (int)sizeof m->address
                   ? 0
                   : err_set(err, E_USAGE, "--peer-advertise: expected HOST:PORT");
    case OPT_YES:
        x->yes = true;
        return 0;
    case 'o':
        x->json = true;
        return strcmp(arg, "json") ? err_set(err, E_USAGE, "-o %.40s: expected json", arg) : 0;
    default:
        return err_set(err, E_USAGE,
                       "unknown option or missing value; see hanse server recover-quorum --help");
    }
}

int quorum_main(int argc, char **argv)
{
    struct quorum x = {0};
    struct err err = {0};
    int rv = 0, opt;

    optind = 1;
    opterr = 0;
    while (!rv && (opt = getopt_long(argc, argv, "ho:", options, NULL)) != -1) {
        if (opt == 'h') {
            (void)fputs(help, stdout);
            return 0;
        }
        rv = option_take(&x, opt, optarg, &err);
    }
    if (!rv && optind < argc)
        rv = err_set(&err, E_USAGE, "unexpected argument %.100s", argv[optind]);
    return anew_run("hanse server recover-quorum", rv, begin, &x, &err);
}
