/* Lines that runners leave behind: what comes back is what was told, of that very runner, and
 * nothing else is believed. */
#include "tests/support/report/report_kit.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static struct run_report ended(void)
{
    struct run_report r = {.step = RUN_STEP_ENDED,
                           .exit_code = 75,
                           .stopped = true,
                           .grant = 4,
                           .lease_ms = 9000,
                           .started_ms = 1900000000100,
                           .ended_ms = 1900000000900,
                           .pid = 77};

    str_copy(r.reason, sizeof r.reason, "SavedAndStopped");
    str_copy(r.message, sizeof r.message, "exit status 75");
    r.cut = (struct run_checkpoint_report){.present = true, .step = 12, .bytes = 5, .ranks = 4};
    str_copy(r.cut.path, sizeof r.cut.path, "/ck/e3/cut-12.json");
    str_copy(r.cut.digest, sizeof r.cut.digest, "sha256:abc");
    return r;
}

static void printed(const struct run_report *r, unsigned by, struct buf *out)
{
    const struct home_token t = report_kit_token();
    char token[HOME_TOKEN_MAX];

    report_kit_token_text(&t, by, token);
    buf_init(out, 65536);
    report_line_print(token, r, 3, 1900000001000, out);
    assert_true(out->n <= REPORT_LINE_MAX && out->p[out->n - 1] == '\n');
    assert_ptr_equal(memchr(out->p, '\n', out->n), out->p + out->n - 1);
    assert_true(utf8_valid(out->p, out->n));
}

static void test_it_says_what_was_told(void **state)
{
    const struct run_report r = ended();
    struct report_line l;

    (void)state;
    for (unsigned by = 0; by < 2; by++) { /* also by a key that was replaced since */
        AUTO_BUF text;
        printed(&r, by, &text);
        assert_int_equal(report_kit_read(text.p, text.n, &l), 0);
        assert_int_equal(l.number, 3);
        assert_int_equal(l.at_ms, 1900000001000);
        assert_string_equal(l.of.cluster, report_kit_token().cluster);
        assert_int_equal(l.report.step, RUN_STEP_ENDED);
        assert_int_equal(l.report.exit_code, 75);
        assert_true(l.report.stopped);
        assert_string_equal(l.report.reason, r.reason);
        assert_string_equal(l.report.message, r.message);
        assert_int_equal(l.report.started_ms, r.started_ms);
        assert_int_equal(l.report.cut.step, 12);
        assert_string_equal(l.report.cut.path, r.cut.path);
        assert_int_equal(l.report.lease_ms, 0); /* no lease is told by it */
        assert_null(strstr(text.p, "\"checkpoint\""));
    }
}

/* Half of what was there before stands behind it: the writer was killed in between. */
static void test_the_first_line_counts(void **state)
{
    const struct run_report r = ended();
    struct report_line l;
    AUTO_BUF text;

    (void)state;
    printed(&r, 0, &text);
    size_t n = text.n;
    buf_str(&text, "rest of an older one\"}\n");
    assert_int_equal(report_kit_read(text.p, text.n, &l), 0);
    assert_int_equal(report_kit_read(text.p, n - 1, &l), 0); /* a comment has no end of line */
}

static int read_as(struct slice text, const char *uid, int64_t epoch, int64_t try_, int64_t rank,
                   int64_t ranks)
{
    struct run_key k = {.epoch = epoch, .try_ = try_};
    struct report_line l = {.number = -1};
    struct err err;

    str_copy(k.uid, sizeof k.uid, uid);
    int rc = report_line_read(text.p, text.n, &k, rank, ranks, &report_kit_keys, &l, &err);
    assert_true(rc == 0 || l.number == -1);
    return rc;
}

static void test_it_speaks_of_one_runner(void **state)
{
    const struct run_report r = ended();
    const struct home_token t = report_kit_token();
    struct report_line l;
    struct err err;
    AUTO_BUF text;

    (void)state;
    printed(&r, 0, &text);
    struct slice s = slice_make(text.p, text.n);
    assert_int_equal(read_as(s, "uid-1", 3, 2, 1, 4), 0);
    assert_int_equal(read_as(s, "uid-2", 3, 2, 1, 4), E_CONFLICT);
    assert_int_equal(read_as(s, "uid-1", 4, 2, 1, 4), E_CONFLICT);
    assert_int_equal(read_as(s, "uid-1", 3, 1, 1, 4), E_CONFLICT);
    assert_int_equal(read_as(s, "uid-1", 3, 2, 0, 4), E_CONFLICT);
    assert_int_equal(read_as(s, "uid-1", 3, 2, 1, 3), E_CONFLICT);
    assert_int_equal(report_line_read(text.p, text.n, &t.key, 1, 4, &report_kit_others, &l, &err),
                     E_UNAUTH);
    const struct home_keys none = {0};
    assert_int_equal(report_line_read(text.p, text.n, &t.key, 1, 4, &none, &l, &err), E_UNAUTH);
}

/* What a program can write that knows everything but the token. */
static void test_a_forgery_is_no_report(void **state)
{
    struct run_report r = ended();
    struct report_line l = {.number = -1};
    char other[HOME_TOKEN_MAX], key[RUN_KEY_MAX];
    struct home_token t = report_kit_token();
    AUTO_BUF text, forged;

    (void)state;
    printed(&r, 0, &text);
    const char *from = strstr(text.p, "\"exitCode\":75");
    assert_non_null(from);
    buf_init(&forged, 65536);
    buf_printf(&forged, "%.*s\"exitCode\":0%s", (int)(from - text.p), text.p,
               from + strlen("\"exitCode\":75"));
    assert_int_equal(report_kit_read(forged.p, forged.n, &l), E_UNAUTH);
    /* Of the same rank's other try, under this one's name. */
    t.key.try_ = 1;
    report_kit_token_text(&t, 0, other);
    buf_reset(&forged);
    report_line_print(other, &r, 1, 1, &forged);
    assert_int_equal(report_kit_read(forged.p, forged.n, &l), E_CONFLICT);
    t.key.try_ = 2;
    run_key_print(&t.key, key);
    char *at = strstr(forged.p, "uid-1.3.1");
    assert_non_null(at);
    memcpy(at, key, strlen("uid-1.3.1"));
    assert_int_equal(report_kit_read(forged.p, forged.n, &l), E_UNAUTH);
    /* Not signed at all. */
    char *mac = strstr(text.p, ",\"mac\"");
    buf_reset(&forged);
    buf_printf(&forged, "%.*s}\n", (int)(mac - text.p), text.p);
    assert_int_equal(report_kit_read(forged.p, forged.n, &l), E_UNAUTH);
    assert_int_equal(report_kit_read("", 0, &l), E_SYNTAX);
    assert_int_equal(report_kit_read("{\"state\":\"ended\"}", 17, &l), E_SYNTAX);
    assert_int_equal(l.number, -1);
}

static void test_a_newer_version_is_unknown(void **state)
{
    const struct run_report r = ended();
    struct report_line l;
    AUTO_BUF text;

    (void)state;
    printed(&r, 0, &text);
    text.p[strlen("{\"hanse\":")] = '2';
    assert_int_equal(report_kit_read(text.p, text.n, &l), E_NOTIMPL);
}

static void test_its_length_is_bounded(void **state)
{
    struct report_line l = {.number = -1};
    char *much = mem_alloc(1u << 20);

    (void)state;
    memset(much, '{', 1u << 20);
    assert_int_equal(report_kit_read(much, 1u << 20, &l), E_TOOLARGE);
    assert_int_equal(report_kit_read(much, REPORT_LINE_MAX, &l), E_TOOLARGE);
    assert_int_equal(report_kit_read(much, REPORT_LINE_MAX - 1, &l), E_SYNTAX);
    mem_free(much);
}

/* The longest of everything, and what must be escaped: the message gives way first, then the cut;
 * how it ended never does. */
static void test_what_does_not_fit_is_cut(void **state)
{
    struct run_report r = ended();
    struct report_line l;

    (void)state;
    memset(r.message, '"', sizeof r.message - 1);
    memset(r.cut.path + 1, '\\', sizeof r.cut.path - 2);
    for (int i = 0; i < 2; i++) {
        AUTO_BUF text;
        printed(&r, 0, &text);
        assert_int_equal(report_kit_read(text.p, text.n, &l), 0);
        assert_int_equal(l.report.exit_code, 75);
        assert_int_equal(l.report.cut.present, i == 0);
        if (i == 0)
            assert_string_equal(l.report.cut.path, r.cut.path);
        memset(r.cut.path + 1, 1, sizeof r.cut.path - 2); /* six bytes each */
    }
}

/* A pod's status takes UTF-8 alone, and a letter is not cut in two. */
static void test_last_words_become_text(void **state)
{
    struct run_report r = ended();
    struct report_line l;
    AUTO_BUF text;

    (void)state;
    str_copy(r.message, sizeof r.message, "Fehler: \xc3\xa4\xff\x01\x1b[0m\n\xe2\x82");
    str_copy(r.cut.path, sizeof r.cut.path, "/ck/\xff/cut-1.json"); /* it cannot be told right */
    printed(&r, 0, &text);
    assert_int_equal(report_kit_read(text.p, text.n, &l), 0);
    assert_string_equal(l.report.message, "Fehler: \xc3\xa4???[0m ??");
    assert_false(l.report.cut.present);
    for (size_t i = 0; i + 2 < sizeof r.message; i += 2)
        memcpy(r.message + i, "\xc3\xa4", 3);
    r.cut = ended().cut;
    memset(r.cut.path + 1, '"', sizeof r.cut.path - 2);
    memset(r.reason, '"', sizeof r.reason - 1);
    AUTO_BUF more;
    printed(&r, 0, &more);
    assert_int_equal(report_kit_read(more.p, more.n, &l), 0);
    assert_true(utf8_valid(l.report.message, strlen(l.report.message)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_it_says_what_was_told),
                                       cmocka_unit_test(test_the_first_line_counts),
                                       cmocka_unit_test(test_it_speaks_of_one_runner),
                                       cmocka_unit_test(test_a_forgery_is_no_report),
                                       cmocka_unit_test(test_a_newer_version_is_unknown),
                                       cmocka_unit_test(test_its_length_is_bounded),
                                       cmocka_unit_test(test_what_does_not_fit_is_cut),
                                       cmocka_unit_test(test_last_words_become_text)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
