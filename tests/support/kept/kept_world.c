/* A log, its writer and a store in a folder (kept_world.h). */
#include "tests/support/kept/kept_world.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct kept_world K;

int kept_world_setup(void **state)
{
    struct err err;

    (void)state;
    str_copy(K.dir, sizeof K.dir, "/tmp/hanse-kept-XXXXXX");
    assert_non_null(mkdtemp(K.dir));
    (void)snprintf(K.path, sizeof K.path, "%s/log.0", K.dir);
    (void)snprintf(K.store, sizeof K.store, "%s/store", K.dir);
    assert_int_equal(kept_base(K.store, "c-1", "team", "w", "u-1", K.base, &err), 0);
    K.l = loop_uv_create(NULL);
    K.log = open(K.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    K.marks = output_writer_create(K.path, 16u << 20);
    K.holds = false;
    assert_true(K.log >= 0);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

int kept_world_teardown(void **state)
{
    (void)state;
    K.marks = output_writer_destroy(K.marks);
    (void)loop_uv_destroy(K.l);
    (void)close(K.log);
    return nftw(K.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void print_at(int64_t ms, const char *text, size_t n)
{
    assert_int_equal(write(K.log, text, n), (ssize_t)n);
    (void)output_writer_mark(K.marks, ms);
}

/* ---- who keeps it ---- */
static void work(void *arg)
{
    kept_job_work(arg);
}

static void done(void *arg)
{
    kept_job_done(arg);
}

void kept_world_begin(struct kept_job *j, void *arg)
{
    (void)arg;
    if (K.holds)
        K.held = j;
    else
        loop_work(K.l, work, done, j);
}

void settled(void *arg)
{
    (void)arg;
    K.settled = true;
    loop_stop(K.l);
}

struct kept_writer *writer(uint64_t max_bytes)
{
    char base[KEPT_PATH_MAX + 16];
    const struct kept_config cfg = {.loop = K.l,
                                    .path = K.path,
                                    .base = base,
                                    .max_bytes = max_bytes,
                                    .begin = kept_world_begin,
                                    .settled = settled};

    (void)snprintf(base, sizeof base, "%s/e3.2", K.base);
    K.settled = false;
    return kept_writer_create(&cfg);
}

void keep_all(uint64_t max_bytes)
{
    struct kept_writer *w = writer(max_bytes);

    kept_writer_over(w);
    assert_false(kept_writer_settled(w));
    loop_uv_run(K.l);
    assert_true(K.settled);
    assert_string_equal(kept_writer_fault(w), "");
    (void)kept_writer_destroy(w);
}

/* ---- who reads it ---- */
struct kept_request all(void)
{
    return (struct kept_request){.base = K.base, .epoch = 3, .tail_lines = -1};
}

const char *kept(const struct kept_request *q)
{
    struct kept_reader *r = NULL;
    struct err err;
    bool more = true;
    AUTO_BUF b;

    K.n = 0;
    K.text[0] = '\0';
    assert_int_equal(kept_open(q, &r, &err), 0);
    while (more) {
        buf_init(&b, KEPT_ROOM);
        assert_int_equal(kept_next(r, &b, &more, &err), 0);
        assert_true(K.n + b.n < sizeof K.text);
        memcpy(K.text + K.n, b.n ? b.p : "", b.n);
        K.n += b.n;
        K.text[K.n] = '\0';
        buf_fini(&b);
    }
    (void)kept_close(r);
    return K.text;
}

/* As it is read from the log itself. */
char *logged(const struct kept_request *k, size_t *ret_n)
{
    const struct output_request q = {
        .tail_lines = k->tail_lines, .timestamps = k->timestamps, .since_ms = k->since_ms};
    struct output o;
    struct err err;
    AUTO_BUF b;

    buf_init(&b, sizeof K.text);
    assert_int_equal(output_open(&o, K.l, K.path, &q, &err), 0);
    for (bool again = true; again;)
        assert_int_equal(output_next(&o, T0, &b, &again, &err), 0);
    return buf_steal(&b, ret_n);
}

void same(const struct kept_request *q)
{
    size_t n = 0;
    char *expected = logged(q, &n);

    (void)kept(q);
    assert_int_equal(K.n, n);
    if (n > 0)
        assert_memory_equal(K.text, expected, n);
    mem_free(expected);
}

void print_much(size_t bytes)
{
    char line[256];
    int64_t ms = T0;

    for (size_t n = 0, i = 0; n < bytes; i++) {
        int k = snprintf(line, sizeof line, "step %zu %.*s%s", i, (int)(i * 7 % 90),
                         "loss loss loss loss loss loss loss loss loss loss loss loss loss loss "
                         "loss loss loss loss",
                         i % 5 == 3 ? "" : "\n");
        assert_int_equal(write(K.log, line, (size_t)k), k);
        n += (size_t)k;
        ms += 17;
        if (i % 37 == 0)
            (void)output_writer_mark(K.marks, ms);
    }
    (void)output_writer_mark(K.marks, ms);
}
