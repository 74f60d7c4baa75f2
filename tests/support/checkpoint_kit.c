/* See checkpoint_kit.h. */
#include "tests/support/checkpoint_kit.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

char kit_base[64];
struct checkpoint_store kit_at;

/* ---- a program that saves ---- */
void kit_path_of(char out[512], const char *dir, const char *name)
{
    (void)snprintf(out, 512, "%s/%s", dir, name);
}

void kit_put(const char *dir, const char *name, const void *p, size_t n)
{
    char path[512];

    kit_path_of(path, dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), (ssize_t)n);
    assert_int_equal(close(fd), 0);
}

void kit_hex_of(const void *p, size_t n, char out[65])
{
    unsigned char d[32];

    assert_int_equal(EVP_Digest(p, n, d, NULL, EVP_sha256(), NULL), 1);
    for (size_t i = 0; i < 32; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", d[i]);
}

void kit_put_manifest(const char *dir, const char *text)
{
    char tmp[512], path[512];

    kit_put(dir, "m.tmp", text, strlen(text));
    kit_path_of(tmp, dir, "m.tmp");
    kit_path_of(path, dir, "manifest.json");
    assert_int_equal(rename(tmp, path), 0);
}

/* Saves `text` as state-STEP of that step. */
void kit_save(const char *dir, int64_t step, const char *text)
{
    char name[64], hex[65], m[512];

    (void)snprintf(name, sizeof name, "state-%lld", (long long)step);
    kit_put(dir, name, text, strlen(text));
    kit_hex_of(text, strlen(text), hex);
    (void)snprintf(m, sizeof m,
                   "{\"step\":%lld,\"files\":[{\"name\":\"%s\",\"bytes\":%zu,\"sha256\":\"%s\"}]}",
                   (long long)step, name, strlen(text), hex);
    kit_put_manifest(dir, m);
}

struct checkpoint_sealer *kit_sealer(int64_t epoch, int64_t rank)
{
    struct checkpoint_sealer *s;
    struct err e;

    if (checkpoint_sealer_create(&kit_at, epoch, rank, NULL, &s, &e) < 0)
        fail_msg("%s", e.text);
    return s;
}

void kit_look(struct checkpoint_sealer *s)
{
    struct checkpoint_progress p = {0};
    struct err e;

    if (checkpoint_sealer_look(s, false, &p, &e) < 0)
        fail_msg("%s", e.text);
}

void kit_look_refused(struct checkpoint_sealer *s, const char *reason, const char *says)
{
    struct checkpoint_progress p = {0};
    struct err e = {0};

    assert_int_equal(checkpoint_sealer_look(s, false, &p, &e), E_CHECKPOINT);
    assert_string_equal(e.field, reason);
    if (!strstr(e.text, says))
        fail_msg("\"%s\" does not say \"%s\"", e.text, says);
}

bool kit_exists(const char *fmt, ...)
{
    char name[256], path[512];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    kit_path_of(path, kit_base, name);
    return access(path, F_OK) == 0;
}

void kit_read_all(const char *path, char *out, size_t max)
{
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    size_t n = fread(out, 1, max - 1, f);
    out[n] = '\0';
    (void)fclose(f);
}

/* As if it had been written so long ago, or then. */
void kit_age(const char *name, int64_t seconds)
{
    struct timespec t[2];
    char path[512];

    kit_path_of(path, kit_base, name);
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &t[0]), 0);
    t[0].tv_sec -= seconds;
    t[1] = t[0];
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

/* A cut of what the sealers have newest. */
struct cut kit_cut(int64_t epoch, struct checkpoint_sealer **s, size_t n)
{
    struct checkpoint_rank ranks[8];
    struct checkpoint_cut c = {
        .workload = WORKLOAD, .epoch = epoch, .step = INT64_MAX, .ranks = ranks, .n_ranks = n};
    struct cut out;
    struct err e;

    for (size_t i = 0; i < n; i++) {
        const struct checkpoint_sealed *x = checkpoint_sealer_newest(s[i]);
        assert_true(x->present);
        ranks[i] = (struct checkpoint_rank){.rank = (int64_t)i, .step = x->step, .bytes = x->bytes};
        memcpy(ranks[i].manifest, x->manifest, sizeof x->manifest);
        c.step = x->step < c.step ? x->step : c.step;
    }
    if (checkpoint_cut_write(&kit_at, &c, CHECKPOINT_AFTER_ANY, out.path, &out.number, out.digest,
                             &e) < 0)
        fail_msg("%s", e.text);
    return out;
}

struct cut kit_saved(int64_t epoch, int64_t step, const char *text)
{
    struct checkpoint_sealer *s = kit_sealer(epoch, 0);

    kit_save(checkpoint_sealer_dir(s), step, text);
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, step);
    struct cut c = kit_cut(epoch, &s, 1);
    (void)checkpoint_sealer_destroy(s);
    return c;
}

int kit_verify_as(const struct cut *c, const char *workload, int64_t world, int64_t rank,
                  struct checkpoint_found *f, struct err *e)
{
    struct checkpoint_want w = {.path = c->path,
                                .at = kit_at,
                                .digest = c->digest,
                                .workload = workload,
                                .world = world,
                                .rank = rank};

    memset(e, 0, sizeof *e);
    return checkpoint_verify(&w, NULL, f, e);
}

void kit_refused_as(const struct cut *c, const char *workload, int64_t world, const char *reason)
{
    struct checkpoint_found f;
    struct err e;

    assert_int_equal(kit_verify_as(c, workload, world, 0, &f, &e), E_CHECKPOINT);
    assert_string_equal(e.field, reason);
    assert_true(strlen(e.text) > 20);
}

void kit_refused(const struct cut *c, const char *reason)
{
    kit_refused_as(c, WORKLOAD, 1, reason);
}

void kit_good(const struct cut *c, int64_t step)
{
    struct checkpoint_found f;
    struct err e;

    if (kit_verify_as(c, WORKLOAD, 1, 0, &f, &e) < 0)
        fail_msg("%s: %s", e.field, e.text);
    assert_int_equal(f.step, step);
}

int kit_setup(void **state)
{
    (void)state;
    (void)snprintf(kit_base, sizeof kit_base, "/tmp/hanse-ck-XXXXXX");
    kit_at = (struct checkpoint_store){.base = kit_base};
    return mkdtemp(kit_base) ? 0 : -1;
}

int kit_teardown(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        (void)execlp("rm", "rm", "-rf", kit_base, (char *)NULL);
        _exit(1);
    }
    return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}
