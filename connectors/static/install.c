/* `hanse-run install`, in an init container of a pod: this executable and what the pod's runner is
 * told go into a folder that its main container has, too. The Secret of the run has the tokens of
 * all ranks, and is mounted here alone: the main container gets its own rank's, which its runner
 * removes. Nobody knows here as which user that runs, so modes keep nothing from it; no other
 * container has the folder. */
#include "connectors/static/install.h"

#include "api/base/loop/file.h"
#include "api/base/loop/loop.h"
#include "connectors/report/report.h"
#include "connectors/wire/wire.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 20)
#define PATH_LEN 2048
#define RANK_ENV "JOB_COMPLETION_INDEX"

static const char usage[] =
    "usage: hanse-run install --from FOLDER --to FOLDER [--rank N]\n"
    "\n"
    "In an init container of a pod: puts this executable, and what the runner of this rank is\n"
    "told, where its main container finds it:\n"
    "\n"
    "  hanse-run --installed FOLDER ... -- COMMAND\n"
    "\n"
    "  --from FOLDER  of a Secret: token-RANK of each rank, and ca, proxy and script if there\n"
    "  --to FOLDER    of the pod, in memory\n"
    "  --rank N       default JOB_COMPLETION_INDEX, or 0\n";

struct install {
    const char *from, *to;
    int64_t rank;
    struct loop *loop;
};

/* Whole or not at all; what was there before (the init container ran already) is replaced. */
static int copy(const struct install *in, const char *from, const char *to, unsigned mode,
                struct err *err)
{
    struct file_out *out;
    uint64_t at = 0;
    int rc = file_out_open(to, mode, &out, err);
    AUTO_BUF piece;

    buf_init(&piece, PIECE);
    if (rc < 0)
        return rc;
    do {
        buf_reset(&piece);
        rc = file_read_at(in->loop, from, at, PIECE, &piece, err);
        at += piece.n;
        if (rc == 0)
            rc = file_out_add(out, piece.p, piece.n, err);
        OPENSSL_cleanse(piece.p, piece.n);
    } while (rc == 0 && piece.n > 0);
    if (rc == 0)
        return file_out_commit(out, err);
    file_out_abort(out);
    return rc;
}

static int folder_make(const char *path, mode_t mode, struct err *err)
{
    if ((mkdir(path, mode) != 0 && errno != EEXIST) || chmod(path, mode) != 0)
        return err_errno(err, errno, "making", path);
    return 0;
}

/* What there is of the Secret; what is not there is not needed. */
static int part_copy(const struct install *in, const char *name, const char *folder, unsigned mode,
                     struct err *err)
{
    char from[PATH_LEN], to[PATH_LEN];

    (void)snprintf(from, sizeof from, "%s/%s", in->from, name);
    (void)snprintf(to, sizeof to, "%s/%s/%s", in->to, folder, name);
    if (access(from, F_OK) == 0)
        return copy(in, from, to, mode, err);
    if (unlink(to) != 0 && errno != ENOENT)
        return err_errno(err, errno, "removing", to);
    return 0;
}

static int token_check(const struct install *in, const char *path, struct err *err)
{
    struct home_token t;
    AUTO_BUF text;

    buf_init(&text, HOME_TOKEN_MAX);
    int rc = file_read(in->loop, path, HOME_TOKEN_MAX - 1, &text, err);
    if (rc < 0)
        return rc;
    buf_char(&text, '\0');
    text.p[strcspn(text.p, " \t\r\n")] = '\0';
    rc = home_token_read(text.p, &t, err);
    OPENSSL_cleanse(text.p, text.n);
    if (rc < 0)
        return err_prefix(err, "%.200s", path);
    return t.rank == in->rank ? 0
                              : err_set(err, E_CONFLICT, "%.200s is of rank %lld, not of %lld",
                                        path, (long long)t.rank, (long long)in->rank);
}

static int token_copy(const struct install *in, struct err *err)
{
    char from[PATH_LEN], to[PATH_LEN];

    (void)snprintf(from, sizeof from, "%s/token-%lld", in->from, (long long)in->rank);
    (void)snprintf(to, sizeof to, "%s/key/token", in->to);
    int rc = token_check(in, from, err);
    return rc < 0 ? rc : copy(in, from, to, 0444, err);
}

/* By this name programs call what they are to call anywhere: hanse checkpoint. */
static int name_make(const struct install *in, struct err *err)
{
    char path[PATH_LEN];

    (void)snprintf(path, sizeof path, "%s/bin/hanse", in->to);
    return symlink("hanse-run", path) == 0 || errno == EEXIST
               ? 0
               : err_errno(err, errno, "making", path);
}

/* The token comes last: where it is, all is. */
static int install(const struct install *in, struct err *err)
{
    static const struct {
        const char *name;
        mode_t mode;
    } folders[] = {{"bin", 0755}, {"key", 0777}, {"tmp", 01777}};
    char path[PATH_LEN];
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof folders / sizeof *folders; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", in->to, folders[i].name);
        rc = folder_make(path, folders[i].mode, err);
    }
    (void)snprintf(path, sizeof path, "%s/bin/hanse-run", in->to);
    if (rc == 0)
        rc = copy(in, "/proc/self/exe", path, 0555, err);
    if (rc == 0)
        rc = name_make(in, err);
    if (rc == 0)
        rc = part_copy(in, "script", "bin", 0555, err);
    if (rc == 0)
        rc = part_copy(in, "ca", "key", 0444, err);
    if (rc == 0)
        rc = part_copy(in, "proxy", "key", 0444, err);
    return rc < 0 ? rc : token_copy(in, err);
}

static int rank_read(const char *text, int64_t *ret, struct err *err)
{
    char *end = NULL;

    errno = 0;
    *ret = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || *ret >= LIMIT_GANG_MAX)
        return err_set(err, E_USAGE, "\"%.32s\" is no rank", text);
    return 0;
}

static int args_read(int argc, char **argv, struct install *in, struct err *err)
{
    const char *rank = getenv(RANK_ENV);
    const struct {
        const char *name, **value;
    } options[] = {{"--from", &in->from}, {"--to", &in->to}, {"--rank", &rank}};
    const size_t n_options = sizeof options / sizeof *options;

    for (int i = 1; i < argc; i++) {
        size_t k = 0;
        while (k < n_options && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (k == n_options)
            return err_set(err, E_USAGE, "unknown option \"%.64s\"", argv[i]);
        if (++i == argc)
            return err_set(err, E_USAGE, "%s needs a value", argv[i - 1]);
        *options[k].value = argv[i];
    }
    if (!in->from || !in->to || strlen(in->from) + 64 > PATH_LEN || strlen(in->to) + 64 > PATH_LEN)
        return err_set(err, E_USAGE, "--from and --to are needed: two folders");
    return rank && *rank ? rank_read(rank, &in->rank, err) : 0;
}

int install_main(int argc, char **argv)
{
    struct install in = {.rank = 0};
    struct err err;

    if (argc > 1 && strcmp(argv[1], "--help") == 0)
        return fputs(usage, stdout) < 0;
    if (args_read(argc, argv, &in, &err) < 0) {
        (void)fprintf(stderr, "hanse-run install: %s\n%s", err.text, usage);
        return 2;
    }
    in.loop = loop_uv_create(&err);
    int rc = in.loop ? install(&in, &err) : err.code;
    if (rc < 0)
        (void)fprintf(stderr, "hanse-run install: %s\n", err.text);
    if (in.loop)
        loop_uv_destroy(in.loop);
    return rc < 0;
}
