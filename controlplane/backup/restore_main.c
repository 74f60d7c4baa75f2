/* hanse restore: makes a data directory from a backup. It refuses a directory that holds anything,
 * and removes what it made when it fails. */
#include "controlplane/backup/backup.h"

#include "controlplane/raft/core.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char help[] =
    "usage: hanse restore FILE --data DIR --id N [--key-ring FILE] [option...]\n"
    "\n"
    "Makes the data directory of one member out of a backup (hanse backup), for a cluster that has "
    "lost\n"
    "all of its members. DIR must be empty or absent. The file is checked to its end before "
    "anything of\n"
    "it is believed.\n"
    "\n"
    "What came after the backup is not in it: objects that were made since are gone, deletions "
    "and\n"
    "changes are undone. What runs goes on: everything that had not ended is Unknown until targets "
    "have\n"
    "told what they carry (hanse recover --from-targets), also what was submitted since.\n"
    "\n"
    "Needed beside it, and not in it: the CA with which certificates were made (agents and users "
    "trust no\n"
    "other) and the key ring that sealed the Secrets.\n"
    "\n"
    "  --data DIR                  data directory to make\n"
    "  --id N                      number of the member that it is for; its certificate's common\n"
    "                              name is member:N\n"
    "  --key-ring FILE             checks that it opens all Secrets; --no-key-ring leaves that "
    "out\n"
    "  --peer-advertise HOST:PORT  what members are told (default: as the backup has that member)\n"
    "  --advertise HOST:PORT       what users and agents are told (default: likewise)\n"
    "  --name NAME                 name for people (default: likewise, or mN)\n"
    "  -o, --output json           what was done, as JSON\n"
    "\n"
    "Exit status: 0 it is done, else as of every command of hanse; nothing was changed then.\n";

enum { OPT_DATA = 256, OPT_ID, OPT_RING, OPT_NO_RING, OPT_PEER, OPT_API, OPT_NAME };
static const struct option options[] = {{"data", 1, NULL, OPT_DATA},
                                        {"id", 1, NULL, OPT_ID},
                                        {"key-ring", 1, NULL, OPT_RING},
                                        {"no-key-ring", 0, NULL, OPT_NO_RING},
                                        {"peer-advertise", 1, NULL, OPT_PEER},
                                        {"advertise", 1, NULL, OPT_API},
                                        {"name", 1, NULL, OPT_NAME},
                                        {"output", 1, NULL, 'o'},
                                        {"help", 0, NULL, 'h'},
                                        {0}};

struct restore {
    struct loop *loop;
    const char *file, *ring;
    bool no_ring, json, made; /* made: its directory was not there */
    struct anew_ask ask;
    uint64_t secrets;
};

static int text_take(const char *flag, const char *arg, char *ret, size_t n, struct err *err)
{
    return *arg && snprintf(ret, n, "%s", arg) < (int)n
               ? 0
               : err_set(err, E_USAGE, "--%s: expected 1 to %zu bytes", flag, n - 1);
}

static int option_take(struct restore *x, int opt, const char *arg, struct err *err)
{
    struct member_info *m = &x->ask.member;
    char *end;

    switch (opt) {
    case OPT_DATA:
        x->ask.data = arg;
        return 0;
    case OPT_ID:
        m->id = strtoull(arg, &end, 10);
        return *arg >= '0' && *arg <= '9' && !*end && m->id >= 1 && m->id <= 1000000
                   ? 0
                   : err_set(err, E_USAGE, "--id %.40s: expected a number from 1 to 1000000", arg);
    case OPT_RING:
        x->ring = arg;
        return 0;
    case OPT_NO_RING:
        x->no_ring = true;
        return 0;
    case OPT_PEER:
        return text_take("peer-advertise", arg, m->address, sizeof m->address, err);
    case OPT_API:
        return text_take("advertise", arg, m->api_address, sizeof m->api_address, err);
    case OPT_NAME:
        return text_take("name", arg, m->name, sizeof m->name, err);
    case 'o':
        x->json = true;
        return strcmp(arg, "json") ? err_set(err, E_USAGE, "-o %.40s: expected json", arg) : 0;
    default:
        return err_set(err, E_USAGE, "unknown option or missing value; see hanse restore --help");
    }
}

static void entry_seen(const char *name, void *arg)
{
    if (strcmp(name, "lost+found") != 0) /* of a file system of its own */
        *(bool *)arg = true;
}

static int directory_check(struct restore *x, struct err *err)
{
    bool holds = false;
    struct stat s;

    x->made = stat(x->ask.data, &s) != 0;
    int r = file_list(x->loop, x->ask.data, entry_seen, &holds, err);

    if (!r && holds)
        r = err_set(err, E_EXISTS,
                    "%.300s is not empty: nothing is restored over what is there; name "
                    "another directory, or move it aside",
                    x->ask.data);
    return r;
}

static void undo(struct restore *x)
{
    static const char *const made[] = {"log", "archive", "meta.json", "lock"};
    char path[1100];

    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", x->ask.data, made[i]);
        (void)!file_remove(x->loop, path, NULL);
    }
    if (x->made)
        (void)rmdir(x->ask.data);
}

#define LOG_BYTES (32ull << 20) /* that the member's log takes for itself once it runs */

/* Looked at first: libraft waits for ever on a disk that is full, or says nothing that helps. */
static int room_check(const struct restore *x, bool full, struct err *err)
{
    char folder[1100];
    struct statvfs fs;
    struct stat file;

    str_copy(folder, sizeof folder, x->ask.data);
    if (x->made) { /* it is not there: its parent is asked */
        char *end = strrchr(folder, '/');
        (void)snprintf(end ? end + (end == folder) : folder, 2, "%s", end ? "" : ".");
    }
    if (stat(x->file, &file) || statvfs(folder, &fs))
        return 0; /* their user reports what is wrong with them */
    uint64_t free = (uint64_t)fs.f_bavail * fs.f_frsize,
             needed = 2 * (uint64_t)file.st_size + LOG_BYTES;
    if (!full && free >= needed)
        return 0;
    return err_set(err, E_NOSPACE,
                   "the disk of %.300s is full: %llu MiB are free there, and about %llu MiB are "
                   "needed, with its log; free some, or name a directory elsewhere. Nothing of it "
                   "is left there",
                   x->ask.data, (unsigned long long)(free >> 20),
                   (unsigned long long)(needed >> 20) + 1);
}

static int make(struct restore *x, struct backup_read *b, struct store_anew_found *found,
                struct err *err)
{
    int r = 0;

    if (x->ring)
        r = backup_keys_check(x->loop, b->root, x->ring, &x->secrets, err);
    if (!r)
        r = anew_make(x->loop, x->ask.data, &b->root, &x->ask, 0, b->about.known, found, err);
    return r;
}

static int restore(struct loop *l, void *arg, struct err *err)
{
    struct restore *x = arg;
    struct store_anew_found found = {0};
    struct backup_read b = {0};
    char archive[1100];
    int r;

    x->loop = l;
    if (!x->file || !x->ask.data || !x->ask.member.id)
        return err_set(err, E_USAGE, "FILE, --data and --id are needed; see hanse restore --help");
    if (!x->ring && !x->no_ring)
        return err_set(err, E_USAGE,
                       "--key-ring FILE is needed: without the keys that sealed them "
                       "Secrets are lost. --no-key-ring leaves the check out");
    if (strlen(x->ask.data) > 900)
        return err_set(err, E_USAGE, "--data: the path is too long");
    if ((r = directory_check(x, err)) || (r = room_check(x, false, err)))
        return r;
    (void)snprintf(archive, sizeof archive, "%s/archive", x->ask.data);
    r = backup_read(x->loop, x->file, archive, &b, err);
    if (!r)
        r = make(x, &b, &found, err);
    if (r)
        undo(x);
    if (r == E_NOSPACE)
        (void)!room_check(x, true, err);
    if (!r)
        anew_print(b.root, &x->ask, &found, x->json, NULL, b.about.absent);
    (void)root_unref(b.root);
    return r;
}

int restore_main(int argc, char **argv)
{
    struct restore x = {0};
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
    x.file = optind < argc ? argv[optind] : NULL;
    if (!rv && optind + 1 < argc)
        rv = err_set(&err, E_USAGE, "unexpected argument %.100s", argv[optind + 1]);
    return anew_run("hanse restore", rv, restore, &x, &err);
}
