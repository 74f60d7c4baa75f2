/* hanse backup --data DIR: a backup of what a member that does not run holds. Without --data it is
 * a verb of the command line, which asks a running cluster. */
#include "controlplane/backup/backup.h"

#include "api/cli/cli.h"
#include "controlplane/raft/core.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const struct option options[] = {
    {"data", 1, NULL, 'd'}, {"output", 1, NULL, 'o'}, {"json", 0, NULL, 'j'}, {0}};

struct offline {
    struct loop *loop;
    const char *data, *path;
    bool json;
};

static const char *folder_of(const char *path, char ret[1100])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;

    (void)snprintf(ret, 1100, "%.*s", slash ? (int)(n ? n : 1) : 1, slash ? path : ".");
    return ret;
}

static int write_all(struct offline *x, struct backup *b, struct file_out *out, uint64_t *ret_bytes,
                     struct err *err)
{
    bool last = false;
    AUTO_BUF piece = {0};
    int r = 0;

    buf_init(&piece, (size_t)4 << 20);
    while (!last && !r) {
        buf_reset(&piece);
        if ((r = backup_next(b, &piece, &last, err)) == 0)
            r = file_out_add(out, piece.p, piece.n, err);
        *ret_bytes += piece.n;
    }
    (void)x;
    return r;
}

static int offline_backup(struct loop *l, void *arg, struct err *err)
{
    struct offline *x = arg;
    struct core_taken taken = {0};
    struct file_out *out = NULL;
    char archive[1100], folder[1100];
    uint64_t bytes = 0;
    AUTO_BUF about = {0};
    int r;

    x->loop = l;
    if (!x->path || !strcmp(x->path, "-"))
        return err_set(err, E_USAGE, "-o FILE is needed; see hanse backup --help");
    if ((r = core_offline_take(x->loop, x->data, &taken, err)) ||
        (r = file_out_open(x->path, 0600, &out, err))) {
        (void)root_unref(taken.root);
        return r;
    }
    (void)snprintf(archive, sizeof archive, "%.900s/archive", x->data);
    struct backup *b =
        backup_create(x->loop, taken.root, taken.known, archive, folder_of(x->path, folder));
    r = write_all(x, b, out, &bytes, err);
    if (r)
        file_out_abort(out);
    else
        r = file_out_commit(out, err);
    if (!r && x->json) {
        buf_init(&about, 1u << 16);
        backup_about_print(backup_about(b), &about);
        (void)printf("%s\n", about.p);
        buf_fini(&about);
    } else if (!r) {
        (void)printf("%s: %llu bytes, cluster %s, resourceVersion %llu\n", x->path,
                     (unsigned long long)bytes, backup_about(b)->cluster,
                     (unsigned long long)backup_about(b)->rv);
    }
    (void)backup_destroy(b);
    (void)root_unref(taken.root);
    return r;
}

int backup_main(int argc, char **argv)
{
    struct offline x = {0};
    struct err err = {0};
    bool here = false;
    int rv = 0, opt;

    for (int i = 1; i < argc; i++)
        here |= !strcmp(argv[i], "--data") || !strncmp(argv[i], "--data=", 7);
    if (!here)
        return cli_main(argc, argv);
    optind = 1;
    opterr = 0;
    while (!rv && (opt = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
        if (opt == 'd')
            x.data = optarg;
        else if (opt == 'o')
            x.path = optarg;
        else if (opt == 'j')
            x.json = true;
        else
            rv = err_set(&err, E_USAGE,
                         "with --data there are -o FILE and --json only; see hanse backup --help");
    }
    if (!rv && optind < argc)
        rv = err_set(&err, E_USAGE, "unexpected argument %.100s", argv[optind]);
    return anew_run("hanse backup", rv, offline_backup, &x, &err);
}
