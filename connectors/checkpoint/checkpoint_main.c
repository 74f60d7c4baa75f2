/* `hanse checkpoint …`: for programs that cannot write a manifest themselves, and for people who
 * want to know whether a checkpoint is whole. */
#include "connectors/checkpoint/files/sealfs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] =
    "usage: hanse checkpoint commit --step N [--dir DIR] FILE...\n"
    "       hanse checkpoint verify CUT|DIR [--digest sha256:...]\n"
    "\n"
    "commit writes DIR/manifest.json for files that are complete: reads and syncs each, then puts\n"
    "the manifest in place by rename. FILE is a path below DIR; a folder stands for all files in\n"
    "it; NAME:BYTES for the first BYTES bytes of a file that goes on growing. N must be larger\n"
    "than the step before. Run it before older files are removed. It ignores the signals that ask\n"
    "a run to save or to end; a program that may be asked while it is only being started calls\n"
    "it in a session of its own (setsid; start_new_session=True of Python's subprocess).\n"
    "\n"
    "verify reads every byte that a checkpoint answers for, and says what is wrong with it: a\n"
    "cut-N.json (all ranks) or a folder with a manifest.json. A cut in S3 (s3://BUCKET/...) is\n"
    "fetched into $TMPDIR or /var/tmp for that, and removed again.\n"
    "\n"
    "  --step N      the step that the files belong to\n"
    "  --dir DIR     default: $HANSE_CHECKPOINT_DIR\n"
    "  --digest D    what the cut, or the folder's manifest, must have\n"
    "  --help        this text\n"
    "\n"
    "Exit status: 0 whole, 2 wrong usage, 5 not to be resumed from, 1 or 3 it cannot be read.\n";

struct args {
    const char *step, *dir, *digest;
    char **names;
    int n_names;
    bool help;
};

static int args_parse(int argc, char **argv, struct args *a, struct err *err)
{
    const struct {
        const char *name;
        const char **value;
    } options[] = {{"--step", &a->step}, {"--dir", &a->dir}, {"--digest", &a->digest}};
    bool names_only = false;

    a->names = argv;
    for (int i = 0; i < argc; i++) {
        size_t k = 0;
        if (!names_only && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            a->help = true;
            continue;
        }
        if (!names_only && strcmp(argv[i], "--") == 0) {
            names_only = true;
            continue;
        }
        if (names_only || argv[i][0] != '-') {
            argv[a->n_names++] = argv[i];
            continue;
        }
        while (k < sizeof options / sizeof *options && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (k == sizeof options / sizeof *options)
            return err_set(err, E_USAGE, "unknown option \"%.100s\"", argv[i]);
        if (++i == argc)
            return err_set(err, E_USAGE, "%s needs a value", argv[i - 1]);
        *options[k].value = argv[i];
    }
    return 0;
}

/* ---- commit ---- */
struct committing {
    int dir;
    struct arena *arena;
    struct checkpoint_manifest m;
    size_t max;
    struct err *err;
    int rc;
};

static int commit_file(struct committing *c, const char *name, int64_t bytes)
{
    struct file_facts facts;
    int fd;
    int rc = checkpoint_name_check(name, c->err);

    if (rc < 0)
        return rc;
    rc = sealfs_open(c->dir, name, &fd, &facts, c->err);
    if (rc < 0)
        return rc;
    if (c->m.n_files == c->max) {
        struct checkpoint_file *old = c->m.files;
        c->max = c->max ? 2 * c->max : 16;
        c->m.files = arena_array(c->arena, struct checkpoint_file, c->max);
        if (c->m.n_files)
            memcpy(c->m.files, old, sizeof *old * c->m.n_files);
    }
    struct checkpoint_file *f = &c->m.files[c->m.n_files++];
    f->name = arena_strdup(c->arena, name);
    f->bytes = bytes < 0 ? facts.size : bytes;
    sealfs_sync_begin(fd);
    rc = sealfs_hash(fd, f->bytes, 0, NULL, f->sha256, NULL, c->err);
    if (rc == 0)
        rc = sealfs_sync(fd, c->err);
    sealfs_close(fd);
    return rc < 0 ? err_prefix(c->err, "%.200s", name) : 0;
}

struct folder {
    struct committing *c;
    const char *name;
};

static int commit_name(struct committing *c, const char *name, int64_t bytes);

static int commit_entry(const char *name, void *arg)
{
    struct folder *f = arg;
    const char *below = arena_printf(f->c->arena, "%s/%s", f->name, name);
    size_t n = strlen(name);

    if (n > 4 && strcmp(name + n - 4, ".tmp") == 0) /* nobody's: half written */
        return 0;
    f->c->rc = commit_name(f->c, below, -1);
    return f->c->rc < 0;
}

/* A folder stands for its files. */
static int commit_name(struct committing *c, const char *name, int64_t bytes)
{
    struct folder f = {.c = c, .name = name};
    int fd;
    int rc = checkpoint_name_check(name, c->err);

    if (rc < 0)
        return rc;
    if (sealfs_dir_below(c->dir, name, &fd) < 0)
        return commit_file(c, name, bytes);
    rc = sealfs_list(fd, commit_entry, &f, c->err);
    sealfs_close(fd);
    return rc < 0 ? rc : c->rc;
}

/* "NAME", "NAME:BYTES"; an absolute path below DIR will do as well. */
static int commit_argument(struct committing *c, const char *dir, const char *text)
{
    char *name = arena_strdup(c->arena, text);
    size_t n = strlen(dir);
    char *colon = strrchr(name, ':'), *end;
    int64_t bytes = -1;

    if (colon && colon[1] >= '0' && colon[1] <= '9') {
        long long v = strtoll(colon + 1, &end, 10);
        if (*end == '\0' && v <= CHECKPOINT_NUMBER_MAX) {
            bytes = v;
            *colon = '\0';
        }
    }
    if (strncmp(name, dir, n) == 0 && name[n] == '/')
        name += n + 1;
    while (strncmp(name, "./", 2) == 0)
        name += 2;
    for (n = strlen(name); n > 1 && name[n - 1] == '/'; n--)
        name[n - 1] = '\0';
    return commit_name(c, name, bytes);
}

static int commit(const struct args *a, struct err *err)
{
    /* They ask the program, and its whole group, to save and exit: this is the saving. */
    static const int asks[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    const char *dir = a->dir ? a->dir : getenv("HANSE_CHECKPOINT_DIR");
    struct checkpoint_manifest again;
    AUTO_ARENA m = arena_create(0);
    struct committing c = {.arena = m, .err = err};
    AUTO_BUF text;
    int rc;

    buf_init(&text, CHECKPOINT_MANIFEST_MAX);
    c.m.step = a->step ? sealfs_number(a->step, "", "") : -1;
    if (c.m.step < 0)
        return err_set(err, E_USAGE, "--step N is missing, or no whole number from 0");
    if (!dir || !*dir)
        return err_set(err, E_USAGE, "no --dir, and HANSE_CHECKPOINT_DIR is not set");
    if (a->n_names == 0)
        return err_set(err, E_USAGE, "no file is named");
    rc = sealfs_dir_open(dir, &c.dir, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++)
        (void)signal(asks[i], SIG_IGN);
    for (int i = 0; i < a->n_names && rc == 0; i++)
        rc = commit_argument(&c, dir, a->names[i]);
    if (rc == 0) {
        checkpoint_manifest_print(&c.m, &text);
        /* what nobody would take must not replace what was good */
        rc = text.failed ? err_set(err, E_TOOLARGE, "the manifest is too large")
                         : checkpoint_manifest_parse(text.p, text.n, m, &again, err);
    }
    if (rc == 0)
        rc = sealfs_tree_sync(c.dir, err);
    if (rc == 0)
        rc = sealfs_write(c.dir, CHECKPOINT_MANIFEST_FILE, text.p, text.n, true, err);
    sealfs_close(c.dir);
    return rc;
}

/* ---- verify ---- */
static int verify_remote(const char *path, const char *digest, struct checkpoint_found *ret,
                         struct err *err)
{
    const char *tmp = getenv("TMPDIR");
    char scratch[512];
    struct checkpoint_want want = {
        .path = path, .at = {.scratch = scratch}, .digest = digest, .workload = "", .rank = -1};
    struct err why;

    (void)snprintf(scratch, sizeof scratch, "%.400s/hanse-verify-XXXXXX",
                   tmp && *tmp == '/' ? tmp : "/var/tmp");
    if (!mkdtemp(scratch))
        return err_set(err, E_IO, "no folder can be made in %.400s", scratch);
    int rc = checkpoint_verify(&want, NULL, ret, err);
    int removed = checkpoint_scratch_remove(scratch, &why);
    return rc < 0 || removed == 0 ? rc : err_set(err, removed, "%s", why.text);
}

static int verify_local(const char *name, const char *digest, struct checkpoint_found *ret,
                        struct err *err)
{
    struct checkpoint_want want = {.digest = digest, .workload = "", .rank = -1};
    char path[CHECKPOINT_PATH_MAX];
    struct stat st;

    char *real = realpath(name, NULL);
    if (!real || strlen(real) >= sizeof path || stat(real, &st) != 0) {
        free(real);
        return err_field(err, E_CHECKPOINT, CHECKPOINT_MISSING, "%.300s is not there", name);
    }
    str_copy(path, sizeof path, real);
    free(real);
    want.path = path;
    return S_ISDIR(st.st_mode) ? checkpoint_verify_dir(path, digest, NULL, ret, err)
                               : checkpoint_verify(&want, NULL, ret, err);
}

static int verify(const struct args *a, struct err *err)
{
    const char *digest = a->digest ? a->digest : "";
    struct checkpoint_found f;

    if (a->n_names != 1)
        return err_set(err, E_USAGE, "verify needs one cut or folder");
    int rc = checkpoint_store_is_remote(a->names[0]) ? verify_remote(a->names[0], digest, &f, err)
                                                     : verify_local(a->names[0], digest, &f, err);
    if (rc < 0)
        return rc;
    return printf("whole: step %lld, %lld rank(s), %lld bytes\n", (long long)f.step,
                  (long long)f.ranks, (long long)f.bytes) < 0
               ? err_set(err, E_IO, "writing the answer failed")
               : 0;
}

int checkpoint_main(int argc, char **argv)
{
    struct args a = {0};
    struct err err = {0};
    int rc;

    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return fputs(usage, argc < 2 ? stderr : stdout) < 0 || argc < 2 ? 2 : 0;
    bool commits = strcmp(argv[1], "commit") == 0;
    rc = args_parse(argc - 2, argv + 2, &a, &err);
    if (rc == 0 && a.help)
        return fputs(usage, stdout) < 0;
    if (rc == 0 && !commits && strcmp(argv[1], "verify") != 0)
        rc = err_set(&err, E_USAGE, "there is no \"%.50s\": commit or verify", argv[1]);
    if (rc == 0)
        rc = commits ? commit(&a, &err) : verify(&a, &err);
    if (rc == 0)
        return 0;
    (void)fprintf(stderr, "hanse checkpoint: %s%s%s\n", err.field, *err.field ? ": " : "",
                  err.text);
    if (rc == E_USAGE)
        (void)fputs("See hanse checkpoint --help.\n", stderr);
    return err_info(err.code)->exit;
}
