/* What a program may write, what is sealed of it, and which seals make a cut. */
#include "api/base/failpoint.h"
#include "tests/support/checkpoint_kit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- manifests ---- */
#define FILE_OF(name) "{\"name\":\"" name "\",\"bytes\":1,\"sha256\":\"" HEX64 "\"}"

static int parse(const char *text)
{
    struct checkpoint_manifest m;
    struct err e = {0};
    AUTO_ARENA a = arena_create(0);
    int rc = checkpoint_manifest_parse(text, strlen(text), a, &m, &e);

    if (rc < 0) {
        assert_int_equal(rc, E_CHECKPOINT);
        assert_string_equal(e.field, "CheckpointTorn");
    }
    return rc;
}

static void manifests_are_believed_in_nothing(void **state)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{\"step\":1}",
        "{\"step\":1,\"files\":[]}",
        "{\"step\":-1,\"files\":[" FILE_OF("a") "]}",
        "{\"step\":1.5,\"files\":[" FILE_OF("a") "]}",
        "{\"step\":\"1\",\"files\":[" FILE_OF("a") "]}",
        "{\"step\":9007199254740993,\"files\":[" FILE_OF("a") "]}",
        "{\"step\":1,\"step\":2,\"files\":[" FILE_OF("a") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("a") "]} trailing",
        "{\"step\":1,\"more\":1,\"files\":[" FILE_OF("a") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("a") "," FILE_OF("a") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("a") "," FILE_OF("a/b") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("a") "," FILE_OF("a.x") "," FILE_OF("a/b") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("/etc/passwd") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("../a") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("a/../../b") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("a//b") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("./a") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("a/") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("a\\n") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("manifest.json") "]}",
        "{\"step\":1,\"files\":[" FILE_OF("1/2/3/4/5/6/7/8/9") "]}",
        "{\"step\":1,\"files\":[{\"name\":\"a\",\"bytes\":1}]}",
        "{\"step\":1,\"files\":[{\"name\":\"a\",\"bytes\":-1,\"sha256\":\"" HEX64 "\"}]}",
        "{\"step\":1,\"files\":[{\"name\":\"a\",\"bytes\":1,\"sha256\":\"abc\"}]}",
        "{\"step\":1,\"files\":[{\"name\":\"a\",\"bytes\":1,\"sha256\":\"A" HEX64 "\"}]}",
        "{\"step\":1,\"files\":[{\"name\":\"a\",\"bytes\":9007199254740992,\"sha256\":\"" HEX64
        "\"}," FILE_OF("b") "]}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parse(bad[i]) == 0)
            fail_msg("taken: %s", bad[i]);
    assert_int_equal(parse("{\"step\":0,\"files\":[" FILE_OF("a") "]}"), 0);
    assert_int_equal(parse("{\"step\":7,\"files\":[" FILE_OF("a/b") "," FILE_OF("a.b") "]}\n"), 0);
}

/* ---- sealing ---- */
static void a_step_is_sealed_once_and_stays(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    const char *dir = checkpoint_sealer_dir(s);
    char path[512], text[64];

    (void)state;
    kit_look(s); /* nothing there yet */
    assert_false(checkpoint_sealer_newest(s)->present);
    kit_save(dir, 10, "ten");
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 10);
    assert_int_equal(checkpoint_sealer_newest(s)->bytes, 3);
    assert_true(checkpoint_sealer_newest(s)->writeTime >= 1);
    kit_look(s);
    kit_save(dir, 20, "twenty");
    kit_path_of(path, dir, "state-10"); /* the program may remove what it does not need */
    assert_int_equal(unlink(path), 0);
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 20);
    kit_path_of(path, kit_base, "sealed/e1/0/s10/state-10");
    kit_read_all(path, text, sizeof text);
    assert_string_equal(text, "ten");
    (void)checkpoint_sealer_destroy(s);
    s = kit_sealer(1, 0); /* another shim, the same place */
    assert_int_equal(checkpoint_sealer_newest(s)->step, 20);
    kit_look(s);
    (void)checkpoint_sealer_destroy(s);
}

/* From the first file's beginning until the manifest was there. */
static void the_time_of_writing_is_measured(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);

    (void)state;
    kit_save(checkpoint_sealer_dir(s), 10, "ten");
    kit_age("e1/0/manifest.json", -3);
    kit_look(s);
    int64_t ms = checkpoint_sealer_newest(s)->writeTime;
    if (ms < 2900 || ms > 10000)
        fail_msg("%d ms", (int)ms);
    int64_t written = checkpoint_sealer_newest(s)->writtenAt - (int64_t)time(NULL) * 1000;
    if (written < 0 || written > 4000) /* by its manifest, 3 s ahead; not by when it was sealed */
        fail_msg("written %d ms from now", (int)written);
    (void)checkpoint_sealer_destroy(s);
}

static void what_a_crash_left_is_removed(void **state)
{
    char path[512];

    (void)state;
    (void)checkpoint_sealer_destroy(kit_sealer(1, 0));
    kit_path_of(path, kit_base, "sealed/e1/0/.s5.part");
    assert_int_equal(mkdir(path, 0700), 0);
    kit_put(path, "half", "x", 1);
    (void)checkpoint_sealer_destroy(kit_sealer(1, 0));
    assert_false(kit_exists("sealed/e1/0/.s5.part"));
}

static void bad_saves_are_not_sealed(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    const char *dir = checkpoint_sealer_dir(s);
    char hex[65], m[512], path[512];

    (void)state;
    kit_hex_of("whole", 5, hex);
    (void)snprintf(m, sizeof m,
                   "{\"step\":5,\"files\":[{\"name\":\"f\",\"bytes\":5,\"sha256\":\"%s\"}]}", hex);
    kit_put_manifest(dir, m);
    kit_look_refused(s, "CheckpointTorn", "not there");
    kit_look_refused(s, "CheckpointTorn", "not there"); /* the same manifest, the same answer */
    kit_put(dir, "f", "who", 3);
    kit_put_manifest(dir, m);
    kit_look_refused(s, "CheckpointTorn", "3 bytes");
    kit_put(dir, "f", "wrong", 5);
    kit_put_manifest(dir, m);
    kit_look_refused(s, "CheckpointAltered", "SHA-256");
    kit_path_of(path, dir, "f");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/hostname", path), 0);
    kit_put_manifest(dir, m);
    kit_look_refused(s, "CheckpointAltered", "link");
    kit_put_manifest(dir, "{\"step\":5,");
    kit_look_refused(s, "CheckpointTorn", "not whole");
    assert_false(kit_exists("sealed/e1/0/s5"));
    assert_false(kit_exists("sealed/e1/0/.s5.part"));
    assert_int_equal(unlink(path), 0);
    kit_put(dir, "f", "whole", 5);
    kit_put_manifest(dir, m);
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 5);
    kit_save(dir, 4, "back");
    kit_look_refused(s, "CheckpointTorn", "must grow");
    (void)checkpoint_sealer_destroy(s);
}

static void folders_through_links_are_not_entered(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    char path[512], target[512], hex[65], m[512];

    (void)state;
    kit_path_of(target, kit_base, "elsewhere");
    assert_int_equal(mkdir(target, 0700), 0);
    kit_put(target, "secret", "s", 1);
    kit_path_of(path, checkpoint_sealer_dir(s), "d");
    assert_int_equal(symlink(target, path), 0);
    kit_hex_of("s", 1, hex);
    (void)snprintf(m, sizeof m,
                   "{\"step\":5,\"files\":[{\"name\":\"d/secret\",\"bytes\":1,\"sha256\":\"%s\"}]}",
                   hex);
    kit_put_manifest(checkpoint_sealer_dir(s), m);
    struct checkpoint_progress p = {0};
    struct err e = {0};
    assert_int_equal(checkpoint_sealer_look(s, false, &p, &e), E_CHECKPOINT);
    assert_false(kit_exists("sealed/e1/0/s5"));
    (void)checkpoint_sealer_destroy(s);
}

static void manifest_of_log(char m[512], int64_t step, const char *text, size_t n)
{
    char hex[65];

    kit_hex_of(text, n, hex);
    (void)snprintf(m, 512,
                   "{\"step\":%lld,\"files\":[{\"name\":\"log\",\"bytes\":%zu,\"sha256\":\"%s\"}]}",
                   (long long)step, n, hex);
}

static void a_log_may_grow_on(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    const char *dir = checkpoint_sealer_dir(s);
    char m[512];

    (void)state;
    kit_put(dir, "log", "one\ntwo\nthr", 11); /* longer than what is committed */
    manifest_of_log(m, 2, "one\ntwo\n", 8);
    kit_put_manifest(dir, m);
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 2);
    struct cut c = kit_cut(1, &s, 1);
    kit_good(&c, 2);
    char path[512];
    kit_path_of(path, dir, "log");
    FILE *f = fopen(path, "a"); /* and grows, as the file that was sealed */
    assert_non_null(f);
    (void)fputs("ee\n", f);
    (void)fclose(f);
    kit_good(&c, 2);
    manifest_of_log(m, 3, "one\ntwo\nthree\n", 14);
    kit_put_manifest(dir, m);
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 3);
    struct cut later = kit_cut(1, &s, 1);
    kit_good(&later, 3);
    f = fopen(path, "r+"); /* it is written over: found, and the step before is untouched */
    assert_non_null(f);
    (void)fputs("ONE", f);
    (void)fclose(f);
    kit_refused(&later, "CheckpointAltered");
    kit_good(&c, 2);
    (void)checkpoint_sealer_destroy(s);
}

static unsigned links(const char *name)
{
    struct stat st;
    char path[512];

    kit_path_of(path, kit_base, name);
    assert_int_equal(stat(path, &st), 0);
    return (unsigned)st.st_nlink;
}

static void save_in_place(const char *dir, int step, const char *text)
{
    char hex[65], m[512];

    kit_put(dir, "model.pt", text, strlen(text)); /* the same file, truncated and written */
    kit_hex_of(text, strlen(text), hex);
    (void)snprintf(
        m, sizeof m,
        "{\"step\":%d,\"files\":[{\"name\":\"model.pt\",\"bytes\":%zu,\"sha256\":\"%s\"}]}", step,
        strlen(text), hex);
    kit_put_manifest(dir, m);
}

/* One file, written over in place, and killed in the middle of that: what was sealed stays. */
static void a_file_written_over_is_copied(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    const char *dir = checkpoint_sealer_dir(s);
    struct cut c[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        save_in_place(dir, i + 1, i == 0 ? "first state" : i == 1 ? "second" : "third state");
        kit_look(s);
        c[i] = kit_cut(1, &s, 1);
    }
    kit_put(dir, "model.pt", "four", 2);
    for (int i = 0; i < 3; i++)
        kit_good(&c[i], i + 1);
    assert_int_equal(links("sealed/e1/0/s3/model.pt"), 1);
    (void)checkpoint_sealer_destroy(s);
}

/* Copies are made only where a link is no good: new names, logs and what is left at the end. */
static void what_is_not_written_over_is_linked(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    const char *dir = checkpoint_sealer_dir(s);
    struct checkpoint_progress p = {0};
    struct err e;

    (void)state;
    kit_save(dir, 1, "one");
    kit_look(s);
    assert_int_equal(links("sealed/e1/0/s1/state-1"), 1); /* nothing was known of its ways */
    kit_save(dir, 2, "two");
    kit_look(s);
    assert_int_equal(links("sealed/e1/0/s2/state-2"), 2);
    (void)checkpoint_sealer_destroy(s);
    s = kit_sealer(2, 0);
    kit_save(checkpoint_sealer_dir(s), 3, "three");
    assert_int_equal(checkpoint_sealer_look(s, true, &p, &e), 0); /* it has ended */
    assert_int_equal(links("sealed/e2/0/s3/state-3"), 2);
    (void)checkpoint_sealer_destroy(s);
}

/* Shards that did not change are not read again; one that did is. */
static void unchanged_files_are_read_once(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    const char *dir = checkpoint_sealer_dir(s);
    struct checkpoint_progress p = {0};
    char a[65], b[65], m[512], path[512];
    struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    struct err e;

    (void)state;
    for (int step = 1; step <= 4; step++) {
        static const char *const b_is[] = {"", "bbbb", "bbbb", "BBBB", "CCCC"};
        static const uint64_t read[] = {0, 12, 4, 16, 12}; /* what is copied: as the copy */
        kit_put(dir, "a", "aaaaaaaa", 8);
        kit_path_of(path, dir, "a");
        if (step == 1 || step == 2)
            assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0); /* long unwritten */
        kit_put(dir, "b", b_is[step], 4);
        kit_hex_of("aaaaaaaa", 8, a);
        kit_hex_of(b_is[step], 4, b);
        (void)snprintf(m, sizeof m,
                       "{\"step\":%d,\"files\":[{\"name\":\"a\",\"bytes\":8,\"sha256\":\"%s\"},"
                       "{\"name\":\"b\",\"bytes\":4,\"sha256\":\"%s\"}]}",
                       step, a, b);
        kit_put_manifest(dir, m);
        uint64_t before = p.bytes;
        assert_int_equal(checkpoint_sealer_look(s, false, &p, &e), 0);
        assert_int_equal(checkpoint_sealer_newest(s)->step, step);
        assert_int_equal(p.bytes - before, read[step]); /* b twice when it is first written over */
    }
    (void)checkpoint_sealer_destroy(s);
}

static void a_cancelled_look_ends(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    struct checkpoint_progress p = {.cancel = true};
    struct err e;

    (void)state;
    kit_save(checkpoint_sealer_dir(s), 1, "x");
    assert_int_equal(checkpoint_sealer_look(s, false, &p, &e), E_CANCELLED);
    p.cancel = false;
    assert_int_equal(checkpoint_sealer_look(s, false, &p, &e), 0);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 1);
    (void)checkpoint_sealer_destroy(s);
}

/* ---- which seals make a cut ---- */
static void seal(struct checkpoint_seals *s, int64_t step)
{
    struct checkpoint_sealed x = {.present = true, .step = step, .bytes = 1, .writeTime = step};

    assert_true(checkpoint_seals_add(s, &x));
    assert_false(checkpoint_seals_add(s, &x));
}

static int64_t chosen(const struct checkpoint_seals *s, size_t n, const int64_t *last, bool saved_,
                      int64_t *ret_other)
{
    struct checkpoint_rank r[4];
    struct checkpoint_times times;

    if (!checkpoint_cut_choose(s, n, last, saved_, r, &times))
        return -1;
    if (ret_other)
        *ret_other = r[1].step;
    return r[0].step;
}

static void ranks_that_save_together_stay_together(void **state)
{
    struct checkpoint_seals s[2] = {0};
    int64_t last[2] = {100, 100}, other;

    (void)state;
    seal(&s[0], 100);
    assert_int_equal(chosen(s, 2, NULL, false, NULL), -1); /* not all have saved */
    seal(&s[1], 100);
    assert_int_equal(chosen(s, 2, NULL, false, &other), 100);
    assert_int_equal(other, 100);
    seal(&s[0], 200);
    assert_int_equal(chosen(s, 2, last, false, NULL), -1); /* rank 1 is still writing */
    seal(&s[0], 300);
    seal(&s[1], 200);
    assert_int_equal(chosen(s, 2, last, false, &other), 200); /* not 300 and 200 */
    assert_int_equal(other, 200);
    last[0] = last[1] = 200;
    /* killed before rank 1 had saved: what all have is the checkpoint */
    assert_int_equal(chosen(s, 2, last, false, NULL), -1);
    /* all said that they saved: then each resumes from its own */
    assert_int_equal(chosen(s, 2, last, true, &other), 300);
    assert_int_equal(other, 200);
}

static void ranks_on_their_own_get_on(void **state)
{
    struct checkpoint_seals s[2] = {0};
    int64_t last[2] = {0, 0}, other;

    (void)state;
    seal(&s[0], 0);
    seal(&s[1], 0);
    seal(&s[0], 41);
    assert_int_equal(chosen(s, 2, last, false, NULL), -1);
    seal(&s[1], 39);
    assert_int_equal(chosen(s, 2, last, false, &other), 41);
    assert_int_equal(other, 39);
    last[0] = 41;
    last[1] = 39;
    for (int64_t i = 50; i < 60; i++)
        seal(&s[0], i);
    assert_int_equal(chosen(s, 2, last, false, NULL), -1);
    assert_int_equal(s[0].n, CHECKPOINT_SEALS);
    seal(&s[1], 45);
    assert_int_equal(chosen(s, 2, last, false, &other), 59);
    assert_int_equal(other, 45);
}

/* ---- cuts without an agent ---- */
static void gathered(const char *newest, int64_t number)
{
    struct checkpoint_gather g = {
        .at = kit_at, .workload = WORKLOAD, .resume_path = "", .epoch = 1, .world = 2, .keep = 3};
    int64_t epoch = INT64_MAX - 1, n = INT64_MAX;
    char path[CHECKPOINT_PATH_MAX] = "";
    struct err e;

    if (checkpoint_cut_gather(&g, false, NULL, &e) < 0)
        fail_msg("%s", e.text);
    int rc = checkpoint_cut_before(&kit_at, &epoch, &n, path, &e);
    assert_int_equal(rc, number ? 0 : E_NOTFOUND);
    if (number) {
        assert_int_equal(epoch, 1);
        assert_int_equal(n, number);
        assert_non_null(strstr(path, newest));
    }
}

static void ranks_find_their_cuts_in_the_store(void **state)
{
    struct checkpoint_sealer *s[2] = {kit_sealer(1, 0), kit_sealer(1, 1)};
    struct checkpoint_found f;
    struct err e;

    (void)state;
    kit_save(checkpoint_sealer_dir(s[0]), 10, "ten");
    kit_look(s[0]);
    gathered("", 0);
    kit_save(checkpoint_sealer_dir(s[1]), 10, "ten");
    kit_look(s[1]);
    gathered("sealed/e1/cut-1.json", 1);
    gathered("sealed/e1/cut-1.json", 1); /* the other rank looks, too: nothing new */
    kit_save(checkpoint_sealer_dir(s[0]), 20, "twenty");
    kit_look(s[0]);
    gathered("sealed/e1/cut-1.json", 1);
    kit_save(checkpoint_sealer_dir(s[1]), 20, "twenty");
    kit_look(s[1]);
    gathered("sealed/e1/cut-2.json", 2);
    struct cut c = {.digest = ""};
    kit_path_of(c.path, kit_base, "sealed/e1/cut-2.json");
    assert_int_equal(kit_verify_as(&c, WORKLOAD, 2, -1, &f, &e), 0);
    assert_int_equal(f.step, 20);
    for (int i = 0; i < 2; i++)
        (void)checkpoint_sealer_destroy(s[i]);
}

static void both_save(int64_t step, const char *text)
{
    for (int i = 0; i < 2; i++) {
        struct checkpoint_sealer *s = kit_sealer(1, i);
        kit_save(checkpoint_sealer_dir(s), step, text);
        kit_look(s);
        (void)checkpoint_sealer_destroy(s);
    }
}

/* A shim that gathers, in a process of its own; point: where it dies or stops. */
static pid_t gatherer(const char *point)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct checkpoint_gather g = {.at = kit_at,
                                      .workload = WORKLOAD,
                                      .resume_path = "",
                                      .epoch = 1,
                                      .world = 2,
                                      .keep = 3};
        struct err e;
        if (point && setenv("HANSE_FAILPOINT", point, 1) == 0)
            failpoint_init();
        _exit(checkpoint_cut_gather(&g, false, NULL, &e) == 0 ? 0 : 1);
    }
    return pid;
}

static void gatherer_ends(pid_t pid, int want)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), want);
}

/* All at the same moment: one cut, and nobody fails. */
static void ranks_that_race_make_one_cut(void **state)
{
    pid_t pid[6];

    (void)state;
    both_save(10, "ten");
    for (int i = 0; i < 6; i++)
        pid[i] = gatherer(NULL);
    for (int i = 0; i < 6; i++)
        gatherer_ends(pid[i], 0);
    assert_true(kit_exists("sealed/e1/cut-1.json"));
    assert_false(kit_exists("sealed/e1/cut-2.json"));
}

#ifdef HANSE_FAILPOINTS
/* One has looked, and stands still while another writes what it was about to write. */
static void who_looked_too_early_looks_again(void **state)
{
    int status;

    (void)state;
    both_save(10, "ten");
    pid_t slow = gatherer("shim.gather.looked=stop");
    assert_int_equal(waitpid(slow, &status, WUNTRACED), slow);
    assert_true(WIFSTOPPED(status));
    gatherer_ends(gatherer(NULL), 0);
    assert_true(kit_exists("sealed/e1/cut-1.json"));
    assert_int_equal(kill(slow, SIGCONT), 0);
    gatherer_ends(slow, 0);
    assert_false(kit_exists("sealed/e1/cut-2.json"));
}

/* It stood still for so long that the cut it was about to write has come and gone. */
static void who_slept_through_it_writes_nothing_old(void **state)
{
    static const char *const points[] = {"shim.gather.looked=stop", "agent.cut.before=stop"};
    pid_t slow[2];
    int status;

    (void)state;
    both_save(10, "ten");
    for (int i = 0; i < 2; i++) {
        slow[i] = gatherer(points[i]);
        assert_int_equal(waitpid(slow[i], &status, WUNTRACED), slow[i]);
        assert_true(WIFSTOPPED(status));
    }
    for (int64_t step = 20; step <= 60; step += 10) {
        both_save(step, "more");
        gatherer_ends(gatherer(NULL), 0);
    }
    assert_false(kit_exists("sealed/e1/cut-1.json"));
    assert_true(kit_exists("sealed/e1/cut-5.json"));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kill(slow[i], SIGCONT), 0);
        gatherer_ends(slow[i], 0);
        assert_false(kit_exists("sealed/e1/cut-1.json"));
        assert_false(kit_exists("sealed/e1/cut-6.json"));
    }
}

/* A writer that dies holds up nobody. */
static void a_writer_that_dies_leaves_it_to_the_next(void **state)
{
    (void)state;
    both_save(10, "ten");
    gatherer_ends(gatherer("shim.gather.looked"), 1000 + SIGKILL);
    gatherer_ends(gatherer("agent.cut.before"), 1000 + SIGKILL);
    assert_false(kit_exists("sealed/e1/cut-1.json"));
    gatherer_ends(gatherer("agent.cut.after"), 1000 + SIGKILL); /* written, nothing more */
    gatherer_ends(gatherer(NULL), 0);
    assert_true(kit_exists("sealed/e1/cut-1.json"));
    assert_false(kit_exists("sealed/e1/cut-2.json"));
}
#endif

static void cuts_are_walked_newest_first(void **state)
{
    int64_t epoch = INT64_MAX - 1, n = INT64_MAX, newest;
    char path[CHECKPOINT_PATH_MAX];
    struct err e;
    char seen[128] = "";

    (void)state;
    assert_int_equal(checkpoint_cut_before(&kit_at, &epoch, &n, path, &e), E_NOTFOUND);
    (void)kit_saved(1, 10, "a");
    (void)kit_saved(1, 20, "b");
    (void)checkpoint_sealer_destroy(kit_sealer(2, 0)); /* never saved */
    (void)kit_saved(3, 30, "c");
    epoch = INT64_MAX - 1;
    n = INT64_MAX;
    while (checkpoint_cut_before(&kit_at, &epoch, &n, path, &e) == 0)
        (void)snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%d/%d ", (int)epoch,
                       (int)n);
    assert_string_equal(seen, "3/1 1/2 1/1 ");
    assert_int_equal(checkpoint_epoch_newest(&kit_at, &newest, &e), 0);
    assert_int_equal(newest, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(manifests_are_believed_in_nothing),
                                       T(a_step_is_sealed_once_and_stays),
                                       T(the_time_of_writing_is_measured),
                                       T(what_a_crash_left_is_removed),
                                       T(bad_saves_are_not_sealed),
                                       T(folders_through_links_are_not_entered),
                                       T(a_log_may_grow_on),
                                       T(a_file_written_over_is_copied),
                                       T(what_is_not_written_over_is_linked),
                                       T(unchanged_files_are_read_once),
                                       T(a_cancelled_look_ends),
                                       T(ranks_that_save_together_stay_together),
                                       T(ranks_on_their_own_get_on),
                                       T(ranks_find_their_cuts_in_the_store),
                                       T(ranks_that_race_make_one_cut),
#ifdef HANSE_FAILPOINTS
                                       T(who_looked_too_early_looks_again),
                                       T(who_slept_through_it_writes_nothing_old),
                                       T(a_writer_that_dies_leaves_it_to_the_next),
#endif
                                       T(cuts_are_walked_newest_first)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
