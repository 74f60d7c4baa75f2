/* Frames cut anywhere, frames that must be refused, and the log's lines. */
#include "api/base/net/frame.h"
#include "tests/support/unit.h"
#include "api/base/limits.h"
#include "api/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct buf sent;

static void sink(struct stream *s, const void *p, size_t n)
{
    (void)s;
    buf_add(&sent, p, n);
}

static const struct stream_ops sink_ops = {.write = sink};

struct seen {
    unsigned n, stop_after;
    size_t bytes;
};

static int each(const struct frame *f, void *arg)
{
    struct seen *s = arg;

    assert_int_equal(f->type, s->n + 1);
    assert_int_equal(f->flags, 5);
    assert_true(f->id == 0x0102030405060708ull + s->n);
    for (size_t i = 0; i < f->body.n; i++)
        assert_int_equal(((const unsigned char *)f->body.p)[i], (unsigned char)(i * 3 + s->n));
    s->bytes += f->body.n;
    s->n++;
    return s->n == s->stop_after;
}

static const size_t sizes[] = {0, 1, 100, 20000, 3, 70000};
#define FRAMES (sizeof sizes / sizeof sizes[0])

static void make_frames(void)
{
    struct stream s = {.ops = &sink_ops};
    static unsigned char body[70000];

    buf_init(&sent, 1 << 20);
    for (unsigned k = 0; k < FRAMES; k++) {
        for (size_t i = 0; i < sizes[k]; i++)
            body[i] = (unsigned char)(i * 3 + k);
        frame_send(&s, (uint8_t)(k + 1), 5, 0x0102030405060708ull + k, body, sizes[k]);
    }
}

static void test_frames_cut_anywhere(void **state)
{
    static const size_t steps[] = {1, 2, 3, 7, 15, 16, 17, 1000, 16384, 1 << 20};

    (void)state;
    make_frames();
    for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
        struct frame_reader r;
        struct seen seen = {0};
        struct err err = {0};

        frame_reader_init(&r);
        for (size_t at = 0; at < sent.n; at += steps[k]) {
            size_t n = sent.n - at < steps[k] ? sent.n - at : steps[k];

            assert_int_equal(frame_feed(&r, sent.p + at, n, each, &seen, &err), 0);
        }
        assert_int_equal(seen.n, FRAMES);
        assert_int_equal(seen.bytes, 90104);
        frame_reader_fini(&r);
    }
    struct frame_reader r;
    struct seen seen = {.stop_after = 2};
    frame_reader_init(&r);
    assert_int_equal(frame_feed(&r, sent.p, sent.n, each, &seen, NULL), 0);
    assert_int_equal(seen.n, 2); /* nothing after the callee said stop */
    frame_reader_fini(&r);
    buf_fini(&sent);
}

static int each_enough(const struct frame *f, void *arg)
{
    assert_int_equal(each(f, arg), 0);
    return FRAME_ENOUGH;
}

/* An agent takes one order a turn: what came with it waits, in order, and whole. */
static void test_frames_wait_for_their_turn(void **state)
{
    static const size_t steps[] = {1, 17, 1000, 16384, 1 << 20};

    (void)state;
    make_frames();
    for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
        struct frame_reader r;
        struct seen seen = {0};
        struct err err = {0};
        unsigned turns = 0;

        frame_reader_init(&r);
        for (size_t at = 0; at < sent.n; at += steps[k]) {
            size_t n = sent.n - at < steps[k] ? sent.n - at : steps[k];
            unsigned before = seen.n;

            assert_int_equal(frame_feed(&r, sent.p + at, n, each_enough, &seen, &err), 0);
            assert_true(seen.n <= before + 1);
            if (k % 2) /* more may come before the next turn: it goes behind */
                continue;
            for (; r.waits; turns++) {
                before = seen.n;
                assert_int_equal(frame_feed(&r, NULL, 0, each_enough, &seen, &err), 0);
                assert_true(seen.n <= before + 1);
            }
        }
        for (; r.waits; turns++)
            assert_int_equal(frame_feed(&r, NULL, 0, each_enough, &seen, &err), 0);
        assert_int_equal(seen.n, FRAMES);
        assert_int_equal(seen.bytes, 90104);
        assert_true(steps[k] < sent.n || turns == FRAMES - 1);
        frame_reader_fini(&r);
    }
    buf_fini(&sent);
}

static int refuse(const char *bytes, size_t n, size_t step)
{
    struct frame_reader r;
    struct seen seen = {0};
    int rc = 0;

    frame_reader_init(&r);
    for (size_t at = 0; at < n && !rc; at += step)
        rc = frame_feed(&r, bytes + at, n - at < step ? n - at : step, each, &seen, NULL);
    assert_int_equal(seen.n, 0);
    assert_true(r.in.cap < 100); /* nothing was allocated for the length claimed */
    frame_reader_fini(&r);
    return rc;
}

static void test_frames_refused(void **state)
{
    (void)state;
    for (size_t step = 1; step <= 16; step += 15) {
        assert_int_equal(refuse("\xff\xff\xff\xff\1\0\0\0\0\0\0\0\0\0\0\0", 16, step), E_TOOLARGE);
        assert_int_equal(refuse("\x0b\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0", 16, step), E_SYNTAX);
        assert_int_equal(refuse("\x0c\0\0\0\1\0\0\1\0\0\0\0\0\0\0\0", 16, step), E_SYNTAX);
    }
}

/* ---- log ---- */

static char last[4096];
static unsigned lines, drops;

static void take(const char *line, void *arg)
{
    (void)arg;
    str_copy(last, sizeof last, line);
    lines++;
    drops += strstr(line, "log.dropped") != NULL;
}

static void test_log_lines(void **state)
{
    (void)state;
    log_capture(take, NULL);
    log_set(LOG_INFO, false);
    log_event(LOG_DEBUG, "quiet", NULL);
    assert_int_equal(lines, 0);
    log_event(LOG_WARN, "raft.leader",
              LOG_FIELDS({"term", log_u64(7)}, {"who", log_str("a \"b\"\n")}, {"d", log_i64(-1)}));
    assert_non_null(
        strstr(last, " level=warn event=raft.leader term=7 who=\"a \\\"b\\\"\\n\" d=-1"));
    log_set(LOG_INFO, true);
    log_event(LOG_INFO, "x", LOG_FIELDS({"s", log_str("\x01")}, {"f", log_f64(0.5)}));
    assert_non_null(
        strstr(last, "\"level\":\"info\",\"event\":\"x\",\"s\":\"\\u0001\",\"f\":0.5}"));
    char *big = calloc(1, 20000);
    memset(big, 'x', 19999);
    log_event(LOG_INFO, "x", LOG_FIELDS({"a", log_i64(1)}, {"s", log_str(big)}));
    assert_non_null(strstr(last, "\"a\":1}")); /* the field that does not fit is left out */
    free(big);
    log_capture(NULL, NULL);
}

static void test_log_rate(void **state)
{
    (void)state;
    log_capture(take, NULL);
    log_set(LOG_INFO, false);
    lines = drops = 0;
    for (int i = 0; i < 5000; i++)
        log_event(LOG_INFO, "noisy", NULL);
    assert_true(lines >= 100 && lines <= 310); /* a second or two may have begun meanwhile */
    lines = 0;
    log_event(LOG_INFO, "other", NULL);
    assert_true(lines >= 1);
    log_capture(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_cut_anywhere),
        cmocka_unit_test(test_frames_wait_for_their_turn),
        cmocka_unit_test(test_frames_refused),
        cmocka_unit_test(test_log_lines),
        cmocka_unit_test(test_log_rate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
