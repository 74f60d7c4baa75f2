/* What a program printed, and when: bounded, read from its end or since a time, while its front
 * goes. */
#include "connectors/output/output.h"

#include "api/schema/schema.h"
#include "tests/support/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define T0 1764104400000 /* 2025-11-25T21:00:00Z */
#define MIB (1u << 20)

static struct {
    char dir[64], path[96], times[112];
    struct loop *l;
    int log;
    char text[16u << 20];
    size_t n;
} W;

static int setup(void **state)
{
    (void)state;
    str_copy(W.dir, sizeof W.dir, "/tmp/hanse-output-XXXXXX");
    assert_non_null(mkdtemp(W.dir));
    (void)snprintf(W.path, sizeof W.path, "%s/log.0", W.dir);
    (void)snprintf(W.times, sizeof W.times, "%s.times", W.path);
    W.l = loop_uv_create(NULL);
    W.log = open(W.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    assert_true(W.log >= 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)loop_uv_destroy(W.l);
    (void)close(W.log);
    (void)unlink(W.path);
    (void)unlink(W.times);
    return rmdir(W.dir);
}

static void print(const char *text)
{
    assert_int_equal(write(W.log, text, strlen(text)), (ssize_t)strlen(text));
}

/* All that there is for now, added to W.text. */
static void more(struct output *o, int64_t now_ms)
{
    for (bool again = true; again;) {
        struct err err;
        AUTO_BUF b;
        buf_init(&b, 2u * OUTPUT_PIECE);
        assert_int_equal(output_next(o, now_ms, &b, &again, &err), 0);
        assert_true(W.n + b.n < sizeof W.text);
        memcpy(W.text + W.n, b.p ? b.p : "", b.n);
        W.n += b.n;
        W.text[W.n] = '\0';
    }
}

static const char *all(const struct output_request *q, int64_t now_ms)
{
    struct output o;
    struct err err;

    W.n = 0;
    assert_int_equal(output_open(&o, W.l, W.path, q, &err), 0);
    more(&o, now_ms);
    return W.text;
}

/* Behind the line at p, which is in W.text; NULL: there is none. */
static const char *line_end(const char *p)
{
    const char *end = memchr(p, '\n', W.n - (size_t)(p - W.text));

    return end ? end + 1 : NULL;
}

static void three_times(struct output_writer *w)
{
    print("one\ntwo\n");
    assert_true(output_writer_mark(w, T0));
    print("three, ");
    (void)output_writer_mark(w, T0 + 1000);
    (void)output_writer_mark(w, T0 + 1500); /* nothing came */
    print("and its rest\nfour\n");
    (void)output_writer_mark(w, T0 + 2250);
    print("five");
}

static void each_line_has_its_time(void **state)
{
    struct output_writer *w = output_writer_create(W.path, 16 * MIB);
    const struct output_request q = {.tail_lines = -1, .timestamps = true};
    struct output_request last = {.tail_lines = 2, .timestamps = true};

    (void)state;
    three_times(w);
    assert_string_equal(all(&q, T0 + 9001), "2025-11-25T21:00:00.000Z one\n"
                                            "2025-11-25T21:00:00.000Z two\n"
                                            "2025-11-25T21:00:01.000Z three, and its rest\n"
                                            "2025-11-25T21:00:02.250Z four\n"
                                            "2025-11-25T21:00:09.001Z five");
    assert_string_equal(all(&last, T0 + 9001), "2025-11-25T21:00:02.250Z four\n"
                                               "2025-11-25T21:00:09.001Z five");
    last.timestamps = false;
    assert_string_equal(all(&last, T0), "four\nfive");
    last.tail_lines = 0;
    assert_string_equal(all(&last, T0), "");
    (void)output_writer_destroy(w);
}

static void it_goes_on_from_a_byte(void **state)
{
    struct output_writer *w = output_writer_create(W.path, 16 * MIB);
    struct output_request q = {.tail_lines = 1, .resumes = true, .from = 4, .timestamps = true};

    (void)state;
    three_times(w);
    assert_string_equal(all(&q, T0 + 9001), "2025-11-25T21:00:00.000Z two\n"
                                            "2025-11-25T21:00:01.000Z three, and its rest\n"
                                            "2025-11-25T21:00:02.250Z four\n"
                                            "2025-11-25T21:00:09.001Z five");
    q.from = 10;
    q.mid = true; /* the line has had its time */
    assert_string_equal(all(&q, T0 + 9001), "ree, and its rest\n"
                                            "2025-11-25T21:00:02.250Z four\n"
                                            "2025-11-25T21:00:09.001Z five");
    (void)output_writer_destroy(w);
}

static void since_a_time(void **state)
{
    struct output_writer *w = output_writer_create(W.path, 16 * MIB);
    struct output_request q = {.tail_lines = -1, .since_ms = T0};

    (void)state;
    three_times(w);
    assert_string_equal(all(&q, T0), "one\ntwo\nthree, and its rest\nfour\nfive");
    q.since_ms = T0 + 1;
    assert_string_equal(all(&q, T0), "three, and its rest\nfour\nfive");
    q.since_ms = T0 + 1001; /* a line that had begun before is none */
    assert_string_equal(all(&q, T0), "four\nfive");
    q.since_ms = T0 + 2251;
    assert_string_equal(all(&q, T0), "five");
    q.tail_lines = 1; /* the narrower of the two */
    q.since_ms = T0;
    assert_string_equal(all(&q, T0), "five");
    q.since_ms = 0;
    q.tail_lines = -1;
    q.since_span_ms = 1000; /* of this machine's clock: long after all of it */
    assert_string_equal(all(&q, T0), "five");
    q.since_span_ms = loop_wall_ms(W.l) - T0 + 60000;
    assert_string_equal(all(&q, T0), "one\ntwo\nthree, and its rest\nfour\nfive");
    (void)output_writer_destroy(w);
}

/* A reader in the middle keeps his place while the front goes; what he had not read is passed over,
 * and the times stay those of their lines. */
static void the_front_goes(void **state)
{
    struct output_writer *w = output_writer_create(W.path, 4 * MIB);
    const struct output_request q = {.tail_lines = -1, .timestamps = true};
    struct output o, late;
    bool again = false;
    struct err err;
    char line[128];
    AUTO_BUF first;

    (void)state;
    buf_init(&first, (size_t)2 * OUTPUT_PIECE);
    assert_int_equal(output_open(&o, W.l, W.path, &q, &err), 0);
    late = o;
    W.n = 0;
    for (int i = 0; i < 120000;) { /* 6 MB, a second for each thousand lines */
        AUTO_BUF lines;
        buf_init(&lines, MIB);
        do
            buf_printf(&lines, "line %06d of many, which fills the file a bit\n", i++);
        while (i % 500);
        print(lines.p);
        if (i % 1000 == 0)
            (void)output_writer_mark(w, T0 + i - 1000);
        if (i == 50500)
            more(&o, T0 + 50000);
    }
    off_t size = lseek(W.log, 0, SEEK_END);
    assert_true(size > 0 && size <= 4 * (off_t)MIB);
    assert_int_equal(output_next(&late, T0, &first, &again, &err), 0);
    assert_true(late.missed > 1000000 && late.came == late.missed); /* he knows how much */
    size_t before = W.n;
    assert_non_null(strstr(W.text, "2025-11-25T21:00:49.000Z line 049999 "));
    assert_non_null(strstr(W.text, "2025-11-25T21:00:50.000Z line 050499 "));
    more(&o, T0 + 999000);
    assert_non_null(strstr(W.text + before, "2025-11-25T21:01:59.000Z line 119999 "));
    /* Each whole line stands once, under its own time. */
    int last = -1;
    for (const char *p = W.text, *end; (end = line_end(p)); p = end) {
        int i = 0, seconds = 0, minutes = 0;
        assert_true(end - p < (ptrdiff_t)sizeof line);
        memcpy(line, p, (size_t)(end - p));
        line[end - p] = '\0';
        if (sscanf(line, "2025-11-25T21:%d:%d.000Z line %d", &minutes, &seconds, &i) != 3)
            continue; /* cut */
        assert_true(i > last);
        assert_int_equal(minutes * 60 + seconds, i / 1000);
        last = i;
    }
    assert_int_equal(last, 119999);
    (void)output_writer_destroy(w);
}

/* Marks are bounded, too: fewer of them say a later time, never an earlier one. */
static void marks_are_thinned(void **state)
{
    struct output_writer *w = output_writer_create(W.path, 16 * MIB);
    const struct output_request q = {.tail_lines = -1, .timestamps = true};

    (void)state;
    for (int i = 0; i < OUTPUT_MARKS_MAX + 10; i++) {
        print("x\n");
        (void)output_writer_mark(w, T0 + i * 1000);
    }
    int fd = open(W.times, O_RDONLY | O_CLOEXEC);
    assert_true(lseek(fd, 0, SEEK_END) <= 16 + 16 * (OUTPUT_MARKS_MAX / 2 + 16));
    (void)close(fd);
    const char *p = all(&q, T0 + 999999000);
    for (int i = 0; i < OUTPUT_MARKS_MAX + 10; i++, p = line_end(p)) {
        char text[32] = "";
        int64_t ms = 0;
        memcpy(text, p, 24);
        assert_int_equal(time_parse(text, &ms, NULL), 0);
        assert_true(ms >= T0 + i * 1000 && ms <= T0 + (i + 1) * 1000);
    }
    (void)output_writer_destroy(w);
    w = output_writer_create(W.path, 16 * MIB); /* another runner goes on where the last one was */
    print("last\n");
    (void)output_writer_mark(w, T0 + 5);
    assert_non_null(strstr(all(&q, T0), "2025-11-25T21:00:00.005Z last\n"));
    (void)output_writer_destroy(w);
}

static void an_older_runner_kept_none(void **state)
{
    struct output_request q = {.tail_lines = -1, .timestamps = true};
    struct output o;
    struct err err;

    (void)state;
    assert_string_equal(all(&q, T0), ""); /* it has printed nothing yet */
    print("one\n");
    assert_int_equal(output_open(&o, W.l, W.path, &q, &err), E_NOTIMPL);
    q.timestamps = false;
    assert_string_equal(all(&q, T0), "one\n");
    q.since_span_ms = 1;
    assert_int_equal(output_open(&o, W.l, W.path, &q, &err), E_NOTIMPL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_line_has_its_time, setup, teardown),
        cmocka_unit_test_setup_teardown(since_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(it_goes_on_from_a_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(the_front_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(marks_are_thinned, setup, teardown),
        cmocka_unit_test_setup_teardown(an_older_runner_kept_none, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
