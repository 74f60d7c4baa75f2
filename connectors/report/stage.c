/* `hanse run --stage`: looks at a checkpoint where runners would resume from it, ahead of their
 * start, and prints what it found as one line of JSON, which whoever started it hands on as it is.
 * It starts no program, and writes nothing into the store but cuts of what was sealed there. */
#include "connectors/checkpoint/checkpoint.h"
#include "connectors/report/report.h"
#include "connectors/report/report_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STAGE_MAX_S 7200 /* then a store that hangs is waited for no longer */
#define SAID_VERSION 1

static const char usage[] =
    "usage: hanse run --stage --workload UID --resume CUT --resume-digest D [--world N]\n"
    "       hanse run --stage --workload UID --checkpoint-dir BASE --look EPOCH [--workers N]\n"
    "                 [--shared] [--known-epoch N --known-step N]\n"
    "\n"
    "Reads a checkpoint as a runner does ahead of its program, or looks in BASE for the newest\n"
    "one of EPOCH or before that is newer than the known one. Prints one line of JSON; exit\n"
    "status 0 when there is one, whatever it says.\n";

struct stage_args {
    const char *workload, *resume, *digest, *base;
    int64_t world, look, workers, known_epoch, known_step;
    bool shared;
};

/* ---- what it says ---- */
void report_stage_print(const struct stage_said *s, struct buf *out)
{
    struct stage_said t = *s;
    AUTO_BUF text;

    t.version = SAID_VERSION;
    report_text_clean(t.reason);
    report_text_clean(t.message);
    if (!utf8_valid(t.checkpoint.path, strlen(t.checkpoint.path)))
        t.checkpoint = (struct run_checkpoint_report){0};
    buf_init(&text, WIRE_REPORT_MAX);
    while (body_print_json(&schema_stage_said, &t, &text, NULL) < 0 || text.n >= REPORT_STAGE_MAX) {
        INV(*t.message || t.checkpoint.present);
        if (*t.message)
            t.message[0] = '\0';
        else
            t.checkpoint = (struct run_checkpoint_report){0};
        buf_reset(&text);
    }
    buf_add(out, text.p, text.n);
    buf_char(out, '\n');
}

int report_stage_read(const char *text, size_t n, struct stage_said *ret, struct err *err)
{
    const char *end = memchr(text, '\n', n);
    struct stage_said *s = NULL;
    AUTO_ARENA a = arena_create(0);

    n = end ? (size_t)(end - text) : n;
    if (n > REPORT_STAGE_MAX)
        return err_set(err, E_TOOLARGE, "it has at most %d bytes", REPORT_STAGE_MAX);
    int rc = wire_read(stage_said, slice_make(text, n), a, &s, err);
    if (rc < 0)
        return err_set(err, E_SYNTAX, "it cannot be read");
    INV(s);
    if (s->version != SAID_VERSION)
        return err_set(err, E_NOTIMPL, "it is of version %lld; this is %d", (long long)s->version,
                       SAID_VERSION);
    enum end_checkpoint what = end_row(s->reason)->checkpoint;
    if (s->said == STAGE_REFUSED && what == CHECKPOINT_KEPT)
        return err_set(err, E_SYNTAX, "it refuses a checkpoint, and does not say why");
    *ret = *s;
    checkpoint_settle(&ret->checkpoint);
    if (ret->said != STAGE_HOLDS)
        ret->checkpoint = (struct run_checkpoint_report){0};
    return 0;
}

/* ---- the work ---- */
static int look(const struct stage_args *a, const char *scratch, struct checkpoint_found *ret,
                struct buf *passed, struct err *err)
{
    const struct checkpoint_search q = {.at = {.base = a->base, .scratch = scratch},
                                        .workload = a->workload,
                                        .epoch = a->look,
                                        .known_epoch = a->known_epoch,
                                        .known_step = a->known_step,
                                        .workers = a->workers,
                                        .shared = a->shared};

    return checkpoint_newest(&q, NULL, ret, passed, err);
}

static int read_whole(const struct stage_args *a, const char *scratch, struct checkpoint_found *ret,
                      struct err *err)
{
    const struct checkpoint_want want = {.path = a->resume,
                                         .at = {.scratch = scratch},
                                         .digest = a->digest,
                                         .workload = a->workload,
                                         .world = a->world,
                                         .rank = -1};

    return checkpoint_verify(&want, NULL, ret, err);
}

static void found_take(const struct checkpoint_found *f, struct stage_said *ret)
{
    ret->said = STAGE_HOLDS;
    ret->checkpoint = (struct run_checkpoint_report){.present = *f->path != '\0',
                                                     .epoch = f->epoch,
                                                     .step = f->step,
                                                     .bytes = f->bytes,
                                                     .writtenAt = f->writtenAt,
                                                     .ranks = f->ranks};
    str_copy(ret->checkpoint.digest, sizeof ret->checkpoint.digest, f->digest);
    str_copy(ret->checkpoint.path, sizeof ret->checkpoint.path, f->path);
}

static void stage(const struct stage_args *a, struct stage_said *ret)
{
    const char *tmp = getenv("TMPDIR"), *path = a->base ? a->base : a->resume;
    char scratch[512] = "";
    struct checkpoint_found f = {.epoch = 0};
    struct err err = {0}, why;
    int rc = 0;
    AUTO_BUF passed;

    buf_init(&passed, 4096);
    if (checkpoint_store_is_remote(path)) {
        (void)snprintf(scratch, sizeof scratch, "%.400s/hanse-stage-XXXXXX",
                       tmp && *tmp == '/' ? tmp : "/var/tmp");
        if (!mkdtemp(scratch))
            rc = err_set(&err, E_IO, "no folder can be made in %.400s", scratch);
    }
    if (rc == 0)
        rc = a->base ? look(a, scratch, &f, &passed, &err) : read_whole(a, scratch, &f, &err);
    if (*scratch && checkpoint_scratch_remove(scratch, &why) < 0)
        (void)fprintf(stderr, "hanse run: %s\n", why.text);
    if (rc == 0) {
        found_take(&f, ret);
        (void)snprintf(ret->message, sizeof ret->message, "%.500s", passed.n ? passed.p : "");
        return;
    }
    bool told = rc == E_CHECKPOINT || end_row(err.field)->checkpoint == CHECKPOINT_UNREACHED;
    ret->said = told ? STAGE_REFUSED : STAGE_UNKNOWN;
    str_copy(ret->reason, sizeof ret->reason, told ? err.field : "");
    (void)snprintf(ret->message, sizeof ret->message, "%.500s", err.text);
}

/* ---- options ---- */
static int number_read(const char *name, const char *text, int64_t *ret, struct err *err)
{
    char *end;

    errno = 0;
    *ret = strtoll(text, &end, 10);
    if ((*text < '0' || *text > '9') || *end || errno || *ret > RUN_KEY_NUMBER_MAX)
        return err_set(err, E_USAGE, "%s %.32s: expected a whole number", name, text);
    return 0;
}

static int args_read(int argc, char **argv, struct stage_args *a, struct err *err)
{
    const struct {
        const char *name;
        const char **text;
        int64_t *number;
    } options[] = {{"--workload", &a->workload, NULL},
                   {"--resume", &a->resume, NULL},
                   {"--resume-digest", &a->digest, NULL},
                   {"--checkpoint-dir", &a->base, NULL},
                   {"--world", NULL, &a->world},
                   {"--look", NULL, &a->look},
                   {"--workers", NULL, &a->workers},
                   {"--known-epoch", NULL, &a->known_epoch},
                   {"--known-step", NULL, &a->known_step}};
    const size_t n_options = sizeof options / sizeof *options;

    for (int i = 0; i < argc; i++) {
        size_t k = 0;
        if (strcmp(argv[i], "--shared") == 0) {
            a->shared = true;
            continue;
        }
        while (k < n_options && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (k == n_options)
            return err_set(err, E_USAGE, "unknown option \"%.64s\"", argv[i]);
        if (++i == argc)
            return err_set(err, E_USAGE, "%s needs a value", argv[i - 1]);
        if (options[k].text)
            *options[k].text = argv[i];
        else if (number_read(options[k].name, argv[i], options[k].number, err) < 0)
            return err->code;
    }
    const char *path = a->base ? a->base : a->resume;
    if (!a->workload || !path || !a->base != !a->look || (a->base && a->resume) ||
        (a->resume && !a->digest))
        return err_set(err, E_USAGE,
                       "expected --workload with --resume and --resume-digest, or with "
                       "--checkpoint-dir and --look");
    if ((*path != '/' && !checkpoint_store_is_remote(path)) || strlen(path) >= CHECKPOINT_PATH_MAX)
        return err_set(err, E_USAGE, "%.200s: expected an absolute path, or s3://…", path);
    return 0;
}

int report_stage_main(int argc, char **argv)
{
    struct stage_args a = {.known_step = -1};
    struct stage_said said = {.said = STAGE_UNKNOWN};
    struct err err;
    AUTO_BUF text = {0};

    if (args_read(argc, argv, &a, &err) < 0) {
        (void)fprintf(stderr, "hanse run --stage: %s\n%s", err.text, usage);
        return 2;
    }
    a.digest = a.digest ? a.digest : "";
    (void)alarm(STAGE_MAX_S);
    stage(&a, &said);
    buf_init(&text, REPORT_STAGE_MAX);
    report_stage_print(&said, &text);
    return fwrite(text.p, 1, text.n, stdout) == text.n && fflush(stdout) == 0 ? 0 : 1;
}
