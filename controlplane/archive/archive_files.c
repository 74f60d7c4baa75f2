/* The files of a member's archive: which there are, which are written, which are wrong
 * (archive_files.h). */
#include "controlplane/archive/archive_files.h"
#include "api/base/failpoint.h"
#include "api/base/list.h"
#include "api/base/log.h"
#include "controlplane/store/archive/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MS 5000
#define SCRUB_EVERY_MS 10000
#define SAY_EVERY_MS 60000

enum kept_state { KEPT_ABSENT, KEPT_WAITING, KEPT_PRESENT };
struct kept {
    unsigned char digest[ARCHIVE_DIGEST];
    uint64_t bytes; /* of its records */
    enum kept_state state;
};
enum job_what { JOB_WRITE, JOB_GIVE, JOB_VERIFY };
struct job {
    struct list link;
    struct archive_files *k;
    enum job_what what;
    uint64_t number;
    const struct segment_box *segment; /* WRITE */
    struct buf file;                   /* GIVE */
    void (*done)(void *arg, const struct err *err);
    void *arg;
    unsigned char digest[ARCHIVE_DIGEST];
    int code;
    struct err err;
};
struct archive_files {
    struct loop *loop;
    char dir[ARCHIVE_PATH_MAX - 64];
    struct kept *v; /* by number - 1 */
    uint64_t n, cap;
    uint64_t *found; /* numbers of files seen at the start, until the state tells of them */
    size_t n_found, cap_found;
    struct list jobs; /* the first one is under way when busy */
    bool busy;
    struct timer retry, scrub;
    uint64_t scrub_next, bad, said_ms;
    char trouble[256];
    void (*closed)(void *arg);
    void *closed_arg;
};

/* ---- names ---- */
void archive_path(const char *dir, uint64_t number, char ret[ARCHIVE_PATH_MAX])
{
    (void)snprintf(ret, ARCHIVE_PATH_MAX, "%s/segment-%010llu.hsa", dir,
                   (unsigned long long)number);
}

uint64_t archive_path_number(const char *name)
{
    static const char head[] = "segment-";
    uint64_t n = 0;

    if (strncmp(name, head, sizeof head - 1) != 0)
        return 0;
    name += sizeof head - 1;
    size_t digits = strspn(name, "0123456789");
    if (digits < 10 || digits > 18 || strcmp(name + digits, ".hsa") != 0)
        return 0;
    for (size_t i = 0; i < digits; i++)
        n = n * 10 + (uint64_t)(name[i] - '0');
    return n;
}

/* ---- jobs, on the thread pool ---- */
static int job_write(struct job *j)
{
    char path[ARCHIVE_PATH_MAX];
    struct archive_info i;
    AUTO_BUF b;
    int r;

    buf_init(&b, SEGMENT_FILE_MAX_BYTES);
    if ((r = segment_build(j->segment, &b, &j->err)) < 0)
        return r;
    /* Read back ahead of the disk: a fault of ours must not become the only copy. */
    if ((r = segment_verify(slice_make(b.p, b.n), j->digest, &i, &j->err)) < 0)
        return r;
    archive_path(j->k->dir, j->number, path);
    FAILPOINT("archive.write.before");
    if ((r = file_write(j->k->loop, path, b.p, b.n, 0600, &j->err)) < 0)
        return r;
    FAILPOINT("archive.write.after");
    return 0;
}

static int job_give(struct job *j)
{
    char path[ARCHIVE_PATH_MAX];
    struct archive_info i;
    int r = segment_verify(slice_make(j->file.p, j->file.n), j->digest, &i, &j->err);

    if (r == 0 && i.number != j->number)
        r = err_set(&j->err, E_CORRUPT, "it is segment %llu", (unsigned long long)i.number);
    if (r < 0)
        return r;
    archive_path(j->k->dir, j->number, path);
    FAILPOINT("archive.fetch.before");
    r = file_write(j->k->loop, path, j->file.p, j->file.n, 0600, &j->err);
    FAILPOINT("archive.fetch.after");
    return r;
}

static int job_verify(struct job *j)
{
    char path[ARCHIVE_PATH_MAX];
    struct archive_info i;
    AUTO_BUF b;
    int r;

    buf_init(&b, SEGMENT_FILE_MAX_BYTES);
    archive_path(j->k->dir, j->number, path);
    if ((r = file_read(j->k->loop, path, SEGMENT_FILE_MAX_BYTES, &b, &j->err)) < 0)
        return r;
    return segment_verify(slice_make(b.p, b.n), j->digest, &i, &j->err);
}

static void job_run(void *arg)
{
    struct job *j = arg;

    j->code = j->what == JOB_WRITE  ? job_write(j)
              : j->what == JOB_GIVE ? job_give(j)
                                    : job_verify(j);
}

/* ---- jobs, on the loop ---- */
static void jobs_go(struct archive_files *k);

static void job_free(struct job *j)
{
    list_remove(&j->link);
    segment_release(j->segment);
    buf_fini(&j->file);
    mem_free(j);
}

static void job_add(struct archive_files *k, struct job *j)
{
    j->k = k;
    memcpy(j->digest, k->v[j->number - 1].digest, ARCHIVE_DIGEST);
    list_push(&k->jobs, &j->link);
    jobs_go(k);
}

static void say(struct archive_files *k, enum log_level level, const char *event, uint64_t number,
                const struct err *err)
{
    char path[ARCHIVE_PATH_MAX];

    archive_path(k->dir, number, path);
    str_copy(k->trouble, sizeof k->trouble, err->text);
    if (level != LOG_ERROR && k->said_ms && loop_now_ms(k->loop) - k->said_ms < SAY_EVERY_MS)
        return;
    k->said_ms = loop_now_ms(k->loop);
    log_event(level, event,
              LOG_FIELDS({"segment", log_u64(number)}, {"file", log_str(path)},
                         {"message", log_str(err->text)}));
}

/* A file that is not what it should be: it is as if it were not there. */
static void found_bad(struct archive_files *k, uint64_t number, const struct err *err)
{
    if (k->v[number - 1].state != KEPT_PRESENT)
        return;
    k->v[number - 1].state = KEPT_ABSENT;
    k->bad++;
    say(k, LOG_ERROR, "archive.bad", number, err);
}

static bool job_again(const struct job *j)
{
    return j->what == JOB_WRITE && j->code < 0;
}

static void gone(struct archive_files *k)
{
    void (*closed)(void *arg) = k->closed;
    void *arg = k->closed_arg;

    while (!list_empty(&k->jobs)) {
        struct job *j = container_of(k->jobs.next, struct job, link);
        struct err e = {0};

        (void)err_set(&e, E_UNAVAIL, "this member is stopping");
        if (j->done)
            j->done(j->arg, &e);
        job_free(j);
    }
    mem_free(k->v);
    mem_free(k->found);
    mem_free(k);
    closed(arg);
}

static void job_done(void *arg)
{
    struct job *j = arg;
    struct archive_files *k = j->k;
    struct kept *v = &k->v[j->number - 1];

    k->busy = false;
    if (j->code == 0) {
        if (j->what != JOB_VERIFY)
            v->state = KEPT_PRESENT;
        *k->trouble = '\0';
    } else if (j->what == JOB_WRITE) {
        say(k, LOG_WARN, "archive.write_failed", j->number, &j->err);
    } else if (j->what == JOB_VERIFY && (j->code == E_CORRUPT || j->code == E_NOTFOUND)) {
        found_bad(k, j->number, &j->err);
    }
    if (j->done)
        j->done(j->arg, j->code < 0 ? &j->err : NULL);
    j->done = NULL;
    if (k->closed) {
        gone(k);
        return;
    }
    if (job_again(j)) { /* a full disk: its records stay held, the log is not cut */
        timer_start(&k->retry, RETRY_MS);
        return;
    }
    job_free(j);
    jobs_go(k);
}

static void jobs_go(struct archive_files *k)
{
    if (k->busy || k->closed || list_empty(&k->jobs) || timer_active(&k->retry))
        return;
    k->busy = true;
    loop_work(k->loop, job_run, job_done, container_of(k->jobs.next, struct job, link));
}

static void retry(void *arg)
{
    jobs_go(arg);
}

/* One file after the other is read again, so that what rots is found while peers still have it. */
static void scrub(void *arg)
{
    struct archive_files *k = arg;

    timer_start(&k->scrub, SCRUB_EVERY_MS);
    if (!list_empty(&k->jobs))
        return;
    for (uint64_t i = 0; i < k->n; i++) {
        uint64_t number = k->scrub_next % k->n + 1;

        k->scrub_next++;
        if (k->v[number - 1].state == KEPT_PRESENT) {
            archive_files_suspect(k, number);
            return;
        }
    }
}

void archive_files_suspect(struct archive_files *k, uint64_t number)
{
    if (k->closed || !archive_files_has(k, number))
        return;
    struct job *j = mem_new(struct job);
    j->what = JOB_VERIFY;
    j->number = number;
    job_add(k, j);
}

void archive_files_give(struct archive_files *k, uint64_t number, struct buf *file,
                        void (*done)(void *arg, const struct err *err), void *arg)
{
    PRE(number > 0 && number <= k->n && !k->closed);
    struct job *j = mem_new(struct job);
    j->what = JOB_GIVE;
    j->number = number;
    j->file = *file;
    buf_init(file, file->max);
    j->done = done;
    j->arg = arg;
    job_add(k, j);
}

/* ---- opening ---- */
static void file_seen(const char *name, void *arg)
{
    struct archive_files *k = arg;
    uint64_t number = archive_path_number(name);

    if (!number)
        return;
    if (k->n_found == k->cap_found) {
        k->cap_found = k->cap_found ? 2 * k->cap_found : 64;
        k->found = mem_realloc(k->found, k->cap_found * sizeof *k->found);
    }
    k->found[k->n_found++] = number; /* names come sorted, and so do numbers of ten digits */
}

int archive_files_open(struct loop *l, const char *dir, struct archive_files **ret, struct err *err)
{
    struct archive_files *k = mem_new(struct archive_files);
    int r;

    k->loop = l;
    str_copy(k->dir, sizeof k->dir, dir);
    list_init(&k->jobs);
    timer_init(&k->retry, l, retry, k);
    timer_init(&k->scrub, l, scrub, k);
    if ((r = file_mkdir(l, k->dir, 0700, err)) < 0 ||
        (r = file_list(l, k->dir, file_seen, k, err)) < 0) {
        mem_free(k->found);
        mem_free(k);
        return r;
    }
    timer_start(&k->scrub, SCRUB_EVERY_MS);
    *ret = k;
    return 0;
}

void archive_files_close(struct archive_files *k, void (*closed)(void *arg), void *arg)
{
    PRE(!k->closed);
    k->closed = closed;
    k->closed_arg = arg;
    timer_stop(&k->retry);
    timer_stop(&k->scrub);
    if (!k->busy)
        gone(k);
}

/* ---- following the state ---- */
static int number_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static bool seen_at_start(const struct archive_files *k, uint64_t number)
{
    return k->n_found && bsearch(&number, k->found, k->n_found, sizeof number, number_order);
}

static void write_here(struct archive_files *k, uint64_t number, const struct segment_box *s)
{
    struct job *j = mem_new(struct job);

    k->v[number - 1].state = KEPT_WAITING;
    j->what = JOB_WRITE;
    j->number = number;
    j->segment = s;
    job_add(k, j);
}

static void learn(struct archive_files *k, const struct root *r, uint64_t number)
{
    struct archive_info i;

    INV(root_archive_info(r, number, &i));
    if (k->n == k->cap) {
        k->cap = k->cap ? 2 * k->cap : 64;
        k->v = mem_realloc(k->v, k->cap * sizeof *k->v);
    }
    struct kept *v = &k->v[k->n++];
    *v = (struct kept){.bytes = i.bytes, .state = KEPT_ABSENT};
    memcpy(v->digest, i.digest, ARCHIVE_DIGEST);
    if (seen_at_start(k, number)) {
        v->state = KEPT_PRESENT;
        return;
    }
    const struct segment_box *s = segment_hold(r, number);
    if (s)
        write_here(k, number, s);
}

void archive_files_follow(struct archive_files *k, const struct root *r)
{
    uint64_t newest = root_archive_newest(r);

    while (!k->closed && k->n < newest)
        learn(k, r, k->n + 1);
}

bool archive_files_settled(const struct archive_files *k, const struct root *r)
{
    uint64_t kept_from = root_archive(r).kept_from;

    list_for_each (it, &k->jobs) {
        const struct job *j = container_of(it, struct job, link);

        if (j->what == JOB_WRITE && j->number < kept_from)
            return false;
    }
    return true;
}

/* ---- telling ---- */
bool archive_files_has(const struct archive_files *k, uint64_t number)
{
    return number > 0 && number <= k->n && k->v[number - 1].state == KEPT_PRESENT;
}

uint64_t archive_files_bytes_max(const struct archive_files *k, uint64_t number)
{
    PRE(number > 0 && number <= k->n);
    return k->v[number - 1].bytes + k->v[number - 1].bytes / 2 + (1u << 20);
}

uint64_t archive_files_missing(const struct archive_files *k, uint64_t below)
{
    for (uint64_t n = below && below <= k->n ? below - 1 : k->n; n > 0; n--)
        if (k->v[n - 1].state == KEPT_ABSENT)
            return n;
    return 0;
}

void archive_files_status(const struct archive_files *k, struct archive_files_status *ret)
{
    *ret = (struct archive_files_status){.segments = k->n, .bad = k->bad};
    for (uint64_t i = k->n; i-- > 0;) {
        ret->present += k->v[i].state == KEPT_PRESENT;
        ret->waiting += k->v[i].state == KEPT_WAITING;
        ret->missing += k->v[i].state == KEPT_ABSENT;
        if (k->v[i].state == KEPT_ABSENT)
            ret->oldest_missing = i + 1;
    }
    str_copy(ret->trouble, sizeof ret->trouble, k->trouble);
}

const char *archive_files_dir(const struct archive_files *k)
{
    return k->dir;
}
