/* Where reports are left: `hanse run` with real processes, and its program that writes the same
 * file. */
#include "tests/support/report/report_kit.h"
#include "tests/support/run_kit.h"
#include "tests/support/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNAVAILABLE (err_info(E_UNAVAIL)->exit)
#define RUN(...) run_all((const char *[]){"hanse", "run", __VA_ARGS__, NULL})

static void put(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static size_t got(const char *path, char *ret, size_t max)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(ret, 1, max - 1, f) : 0;

    ret[n] = '\0';
    if (f)
        (void)fclose(f);
    return n;
}

static const char *token(void)
{
    const struct home_token t = report_kit_token();
    char text[HOME_TOKEN_MAX];

    report_kit_token_text(&t, 0, text);
    put(run_file("token"), text, 0600);
    return run_file("token");
}

static const char *place(const char *form, const char *name)
{
    static char text[2][256];
    static unsigned n;
    char *ret = text[n++ % 2];

    (void)snprintf(ret, sizeof text[0], "%s%s", form, run_file(name));
    return ret;
}

static struct report_line line_in(const char *path)
{
    static char text[65536];
    struct report_line l = {.number = 0};
    size_t n = got(path, text, sizeof text);

    if (report_kit_read(text, n, &l) != 0)
        fail_msg("%s holds no report: %.300s", path, text);
    return l;
}

static void each_form_tells_the_end(void **state)
{
    static const char *const forms[] = {"file:", "termination-message:"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        (void)unlink(run_file("report"));
        assert_int_equal(RUN("--report", place(forms[i], "report"), "--token-file", token(), "--",
                             "sh", "-c", "exit 7"),
                         7);
        struct report_line l = line_in(run_file("report"));
        assert_int_equal(l.report.step, RUN_STEP_ENDED);
        assert_int_equal(l.report.exit_code, 7);
        assert_int_equal(l.number, 1);
        assert_true(l.at_ms > 0 && l.report.started_ms > 0 && l.report.ended_ms > 0);
        assert_true(access(run_file("token"), F_OK) != 0); /* its program never sees it */
        (void)unlink(run_file("report"));
        assert_int_equal(RUN("--report", place(forms[i], "report"), "--token-file", token(),
                             "--start-by", "1000", "--", "true"),
                         126);
        l = line_in(run_file("report"));
        assert_true(l.report.never_started);
        assert_string_equal(l.report.reason, "StartedTooLate");
    }
}

/* A second process with a token whose first one has told its end begins nothing, and leaves that
 * end alone; what anybody else wrote there goes. */
static void a_second_process_leaves_an_end_alone(void **state)
{
    static const char *const forms[] = {"file:", "termination-message:"};
    struct home_token other = report_kit_token();
    char text[HOME_TOKEN_MAX], line[REPORT_LINE_MAX + 1];
    const struct run_report end = {.step = RUN_STEP_ENDED, .exit_code = 3};
    AUTO_BUF out;

    (void)state;
    other.rank = 2;
    buf_init(&out, REPORT_LINE_MAX);
    report_kit_token_text(&other, 0, text);
    report_line_print(text, &end, 1, 1, &out);
    (void)snprintf(line, sizeof line, "%.*s", (int)out.n, out.p);
    for (size_t i = 0; i < 2; i++) {
        (void)unlink(run_file("report"));
        assert_int_equal(RUN("--report", place(forms[i], "report"), "--token-file", token(), "--",
                             "sh", "-c", "exit 7"),
                         7);
        assert_int_equal(RUN("--report", place(forms[i], "report"), "--token-file", token(),
                             "--start-by", "1000", "--", "true"),
                         126);
        struct report_line l = line_in(run_file("report"));
        assert_false(l.report.never_started);
        assert_int_equal(l.report.exit_code, 7);
        put(run_file("report"), line, 0644); /* of another rank */
        assert_int_equal(RUN("--report", place(forms[i], "report"), "--token-file", token(),
                             "--start-by", "1000", "--", "true"),
                         126);
        assert_true(line_in(run_file("report")).report.never_started);
    }
}

/* A shared folder may hang, as a pipe does that nobody reads: the loop goes on, and renews. */
struct hang {
    struct loop *loop;
    struct report_writer *writer;
    struct timer turn;
    int reader, turns;
};

static void hang_turn(void *arg)
{
    struct hang *h = arg;

    h->turns++;
    if (h->reader < 0) {
        assert_false(report_writer_quiet(h->writer));
        h->reader = open(run_file("pipe"), O_RDONLY | O_NONBLOCK);
        assert_true(h->reader >= 0);
    }
    if (report_writer_quiet(h->writer))
        loop_stop(h->loop);
    else
        timer_start(&h->turn, 5);
}

static void what_hangs_holds_up_no_loop(void **state)
{
    const struct report_place p = {.form = REPORT_PLAIN, .path = run_file("pipe")};
    const struct run_report end = {.step = RUN_STEP_ENDED, .exit_code = 3};
    struct hang h = {.reader = -1};
    struct run_report r;
    char text[4096];
    struct err err;

    (void)state;
    assert_int_equal(mkfifo(p.path, 0600), 0);
    h.loop = loop_uv_create(&err);
    assert_non_null(h.loop);
    assert_int_equal(report_writer_create(h.loop, &p, "", &h.writer, &err), 0);
    report_writer_put(h.writer, &end);
    timer_init(&h.turn, h.loop, hang_turn, &h);
    timer_start(&h.turn, 5);
    loop_uv_run(h.loop);
    ssize_t n = read(h.reader, text, sizeof text);
    assert_true(n > 0);
    assert_int_equal(run_report_parse(text, (size_t)n, &r, &err), 0);
    assert_int_equal(r.exit_code, 3);
    (void)close(h.reader);
    h.writer = report_writer_destroy(h.writer);
    h.loop = loop_uv_destroy(h.loop);
}

/* FILE without a word ahead of it is as it always was. */
static void a_plain_file_is_not_signed(void **state)
{
    char text[4096];
    struct run_report r;
    struct err err;

    (void)state;
    assert_int_equal(RUN("--report", run_file("plain"), "--", "sh", "-c", "exit 3"), 3);
    size_t n = got(run_file("plain"), text, sizeof text);
    assert_int_equal(run_report_parse(text, n, &r, &err), 0);
    assert_int_equal(r.exit_code, 3);
    assert_null(strstr(text, "mac"));
}

/* It is told whose it is by its token, and finds no secret. */
static void its_program_has_names_and_no_token(void **state)
{
    char text[65536];

    (void)state;
    assert_int_equal(RUN("--report", place("file:", "report"), "--token-file", token(), "--", "sh",
                         "-c", "env >\"$0\"", run_file("env")),
                     0);
    (void)got(run_file("env"), text, sizeof text);
    assert_non_null(strstr(text, "HANSE_WORKLOAD_UID=uid-1\n"));
    assert_non_null(strstr(text, "HANSE_RANK=1\n"));
    assert_non_null(strstr(text, "HANSE_WORLD_SIZE=4\n"));
    assert_null(strstr(text, "hanse-run-1"));
    assert_null(strstr(text, "HANSE_TOKEN_FILE"));
}

/* Who started it says where it is; what it does not say stays as it was. */
static void its_program_is_told_where_it_is(void **state)
{
    char text[65536];

    (void)state;
    assert_int_equal(setenv("HANSE_NODE", "elsewhere", 1), 0);
    assert_int_equal(setenv("HANSE_GPUS", "9", 1), 0);
    assert_int_equal(RUN("--node", "n3", "--devices", "0,12", "--", "sh", "-c", "env >\"$0\"",
                         run_file("env")),
                     0);
    (void)got(run_file("env"), text, sizeof text);
    assert_non_null(strstr(text, "HANSE_NODE=n3\n"));
    assert_non_null(strstr(text, "HANSE_GPUS=0,12\n"));
    assert_int_equal(RUN("--node", "n4", "--", "sh", "-c", "env >\"$0\"", run_file("env")), 0);
    (void)got(run_file("env"), text, sizeof text);
    assert_non_null(strstr(text, "HANSE_NODE=n4\n"));
    assert_non_null(strstr(text, "HANSE_GPUS=9\n"));
    assert_int_equal(RUN("--devices", "", "--", "sh", "-c", "env >\"$0\"", run_file("env")), 0);
    (void)got(run_file("env"), text, sizeof text);
    assert_non_null(strstr(text, "HANSE_GPUS=\n"));
    assert_int_equal(RUN("--devices", "0,", "--", "true"), 2);
    assert_int_equal(RUN("--devices", ",0", "--", "true"), 2);
    assert_int_equal(RUN("--devices", "0,x", "--", "true"), 2);
    assert_int_equal(RUN("--devices", "12345", "--", "true"), 2);
    assert_int_equal(unsetenv("HANSE_NODE"), 0);
    assert_int_equal(unsetenv("HANSE_GPUS"), 0);
}

/* What its program writes there while it lives, longer than any report, is gone at the end. */
static void what_its_program_writes_is_overwritten(void **state)
{
    (void)state;
    assert_int_equal(RUN("--report", place("termination-message:", "log"), "--token-file", token(),
                         "--", "sh", "-c",
                         "yes '{\"hanse\":1,\"state\":\"ended\"}' | head -c 60000 >\"$0\"; exit 4",
                         run_file("log")),
                     4);
    assert_int_equal(line_in(run_file("log")).report.exit_code, 4);
    struct stat st;
    assert_int_equal(stat(run_file("log"), &st), 0);
    assert_true(st.st_size < REPORT_LINE_MAX);
}

/* A link, a pipe, a folder: nothing is written through them, nothing waits for them, and the exit
 * status is the program's. */
static void nothing_is_written_elsewhere(void **state)
{
    static const char *const tricks[] = {"ln -s \"$0.other\" \"$0\"", "mkfifo \"$0\"",
                                         "mkdir \"$0\""};
    char text[16], script[200];

    (void)state;
    for (size_t i = 0; i < sizeof tricks / sizeof *tricks; i++) {
        put(run_file("log.other"), "mine", 0644);
        (void)snprintf(script, sizeof script, "rm -f \"$0\"; %s; exit 6", tricks[i]);
        assert_int_equal(RUN("--report", place("termination-message:", "log"), "--token-file",
                             token(), "--", "sh", "-c", script, run_file("log")),
                         6);
        (void)got(run_file("log.other"), text, sizeof text);
        assert_string_equal(text, "mine");
        (void)unlink(run_file("log"));
        (void)rmdir(run_file("log"));
    }
    /* A new file takes the place of a link. */
    assert_int_equal(RUN("--report", place("file:", "log"), "--token-file", token(), "--", "sh",
                         "-c", "ln -s \"$0.other\" \"$0\"; exit 6", run_file("log")),
                     6);
    (void)got(run_file("log.other"), text, sizeof text);
    assert_string_equal(text, "mine");
    assert_int_equal(line_in(run_file("log")).report.exit_code, 6);
}

/* Who cannot tell its end begins nothing. */
static void what_cannot_report_never_starts(void **state)
{
    char begun[256];

    (void)state;
    str_copy(begun, sizeof begun, run_file("begun"));
    assert_int_equal(RUN("--report", "file:/nowhere/at/all", "--token-file", token(), "--", "touch",
                         begun),
                     UNAVAILABLE);
    assert_int_equal(RUN("--report", "termination-message:/nowhere/at/all", "--token-file", token(),
                         "--", "touch", begun),
                     UNAVAILABLE);
    assert_int_equal(RUN("--report", place("file:", "x"), "--", "touch", begun), 2); /* no token */
    assert_int_equal(RUN("--token-file", token(), "--", "touch", begun), 2);
    assert_int_equal(RUN("--report", "termination-message:here", "--token-file", token(), "--",
                         "touch", begun),
                     2);
    assert_int_equal(RUN("--report", "file:", "--token-file", token(), "--", "touch", begun), 2);
    put(run_file("token"), "hanse-run-1/no/token", 0600);
    assert_int_equal(RUN("--report", place("file:", "x"), "--token-file", run_file("token"), "--",
                         "touch", begun),
                     err_info(E_SYNTAX)->exit);
    assert_true(access(begun, F_OK) != 0);
}

/* What is looked at starts nothing; whatever is found is one line. */
static void a_checkpoint_is_looked_at(void **state)
{
    char script[1024], text[8192], self[512];
    struct stage_said said;
    struct err err;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    (void)state;
    assert_true(n > 0);
    self[n] = '\0';
    (void)snprintf(script, sizeof script,
                   "'%s' run --stage --workload u --resume '%s' --resume-digest sha256:00 >'%s'",
                   self, run_file("gone.json"), run_file("said"));
    assert_int_equal(RUN("--", "sh", "-c", script), 0);
    size_t got_n = got(run_file("said"), text, sizeof text);
    assert_int_equal(report_stage_read(text, got_n, &said, &err), 0);
    assert_int_equal(said.said, STAGE_REFUSED);
    assert_string_equal(said.reason, "CheckpointMissing");
    assert_int_equal(mkdir(run_file("store"), 0755), 0);
    (void)snprintf(script, sizeof script,
                   "'%s' run --stage --workload u --checkpoint-dir '%s' --look 3 >'%s'", self,
                   run_file("store"), run_file("said"));
    assert_int_equal(RUN("--", "sh", "-c", script), 0);
    got_n = got(run_file("said"), text, sizeof text);
    assert_int_equal(report_stage_read(text, got_n, &said, &err), 0);
    assert_int_equal(said.said, STAGE_HOLDS);
    assert_false(said.checkpoint.present);
    assert_int_equal(RUN("--stage"), 2);
    assert_int_equal(RUN("--stage", "--workload", "u", "--resume", "/x"), 2);
    assert_int_equal(RUN("--stage", "--workload", "u", "--checkpoint-dir", "here", "--look", "1"),
                     2);
    assert_int_equal(RUN("--stage", "--workload", "u", "--checkpoint-dir", "/x", "--look", "-1"),
                     2);
}

/* A program in place of scontrol: what it is told, how often, and that one which hangs or fails
 * changes nothing. The real one: tests/peers/slurm_report.sh. */
static void a_slurm_comment_is_told_by_its_tool(void **state)
{
    char text[8192], path[512], begun[256];
    const char *before = getenv("PATH");
    struct report_line l;

    (void)state;
    str_copy(begun, sizeof begun, run_file("begun"));
    assert_int_equal(unsetenv("SLURM_JOB_ID"), 0);
    assert_int_equal(RUN("--report", "slurm-comment", "--token-file", token(), "--", "touch",
                         begun),
                     UNAVAILABLE); /* no job */
    assert_int_equal(setenv("SLURM_JOB_ID", "4711", 1), 0);
    char *kept = mem_strdup(before ? before : "");
    assert_int_equal(mkdir(run_file("bin"), 0755), 0);
    (void)snprintf(path, sizeof path, "%s:%s", run_file("bin"), kept);
    assert_int_equal(setenv("PATH", path, 1), 0);
    (void)snprintf(text, sizeof text,
                   "#!/bin/sh\nprintf '%%s\\n' \"$#\" \"$@\" >>'%s'\nexit 1\n", run_file("told"));
    put(run_file("bin/scontrol"), text, 0755);
    assert_int_equal(RUN("--report", "slurm-comment", "--token-file", token(), "--", "sh", "-c",
                         "exit 5"),
                     5);
    (void)got(run_file("told"), text, sizeof text);
    char *comment = strstr(text, "3\nupdate\nJobId=4711\nComment={");
    assert_ptr_equal(comment, text);
    comment = strchr(comment, '{');
    assert_int_equal(report_kit_read(comment, strlen(comment), &l), 0);
    assert_int_equal(l.report.exit_code, 5);
    assert_int_equal(l.number, 1);
    (void)unlink(run_file("bin/scontrol"));
    assert_int_equal(setenv("PATH", run_file("bin"), 1), 0);
    assert_int_equal(RUN("--report", "slurm-comment", "--token-file", token(), "--", "/bin/touch",
                         begun),
                     UNAVAILABLE); /* no tool */
    assert_true(access(begun, F_OK) != 0);
    assert_int_equal(setenv("PATH", kept, 1), 0);
    assert_int_equal(unsetenv("SLURM_JOB_ID"), 0);
    mem_free(kept);
}

int main(int argc, char **argv)
{
    int rc = run_kit_main(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_form_tells_the_end),
                                       cmocka_unit_test(a_second_process_leaves_an_end_alone),
                                       cmocka_unit_test(what_hangs_holds_up_no_loop),
                                       cmocka_unit_test(a_plain_file_is_not_signed),
                                       cmocka_unit_test(its_program_has_names_and_no_token),
                                       cmocka_unit_test(its_program_is_told_where_it_is),
                                       cmocka_unit_test(what_its_program_writes_is_overwritten),
                                       cmocka_unit_test(nothing_is_written_elsewhere),
                                       cmocka_unit_test(what_cannot_report_never_starts),
                                       cmocka_unit_test(a_checkpoint_is_looked_at),
                                       cmocka_unit_test(a_slurm_comment_is_told_by_its_tool)};

    return rc >= 0 ? rc : cmocka_run_group_tests(tests, run_kit_setup, run_kit_teardown);
}
