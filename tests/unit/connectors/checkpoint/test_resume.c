/* What is resumed from, what is refused and with which reason, what may go; the commands. */
#include "tests/support/checkpoint_kit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- resuming ---- */
static void bend(const char *name, const char *how)
{
    char path[512];

    kit_path_of(path, kit_base, name);
    if (strcmp(how, "remove") == 0) {
        assert_int_equal(unlink(path), 0);
    } else if (strcmp(how, "cut") == 0) {
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(truncate(path, st.st_size / 2), 0);
    } else { /* one byte */
        int fd = open(path, O_RDWR);
        char c;
        assert_true(fd >= 0);
        assert_int_equal(pread(fd, &c, 1, 2), 1);
        c = c == '7' ? '8' : '7';
        assert_int_equal(pwrite(fd, &c, 1, 2), 1);
        (void)close(fd);
    }
}

static void torn_missing_altered_are_told_apart(void **state)
{
    static const struct {
        const char *file, *how, *reason;
    } t[] = {{"sealed/e1/0/s10/state-10", "remove", "CheckpointTorn"},
             {"sealed/e1/0/s10/state-10", "cut", "CheckpointTorn"},
             {"sealed/e1/0/s10/state-10", "byte", "CheckpointAltered"},
             {"sealed/e1/0/s10/manifest.json", "remove", "CheckpointTorn"},
             {"sealed/e1/0/s10/manifest.json", "cut", "CheckpointTorn"},
             {"sealed/e1/cut-1.json", "remove", "CheckpointMissing"},
             {"sealed/e1/cut-1.json", "cut", "CheckpointTorn"}};

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct cut c = kit_saved(1, 10, "some state to be kept");
        kit_good(&c, 10);
        bend(t[i].file, t[i].how);
        kit_refused(&c, t[i].reason);
        char all[128];
        (void)snprintf(all, sizeof all, "rm -rf %s && mkdir %s", kit_base, kit_base);
        const char *const argv[] = {"sh", "-c", all, NULL};
        pid_t pid = fork();
        if (pid == 0) {
            union {
                const char *const *c;
                char **m;
            } u = {argv};
            (void)execvp("sh", u.m);
            _exit(1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

/* The store is not mounted here: that is no verdict on the checkpoint. */
static void a_store_that_is_not_here_is_told_apart(void **state)
{
    struct cut c = kit_saved(1, 10, "state");
    struct checkpoint_found f;
    char away[128];
    struct err e;

    (void)state;
    (void)snprintf(away, sizeof away, "%s-away", kit_base);
    assert_int_equal(rename(kit_base, away), 0);
    assert_int_equal(kit_verify_as(&c, WORKLOAD, 1, 0, &f, &e), E_NOTFOUND);
    assert_string_equal(e.field, CHECKPOINT_UNREACHABLE);
    assert_int_equal(rename(away, kit_base), 0);
    kit_good(&c, 10);
}

static void another_manifest_or_cut_is_altered(void **state)
{
    struct cut c = kit_saved(1, 10, "state"), other = c;
    char path[512], text[1024];

    (void)state;
    (void)snprintf(other.digest, sizeof other.digest, "sha256:" HEX64);
    kit_refused(&other, "CheckpointAltered");
    kit_path_of(path, kit_base, "sealed/e1/0/s10/manifest.json");
    kit_read_all(path, text, sizeof text - 1);
    size_t n = strlen(text);
    text[n] = ' '; /* the same to a parser, not to its digest */
    kit_put(kit_base, "sealed/e1/0/s10/manifest.json", text, n + 1);
    kit_refused(&c, "CheckpointAltered");
}

static void foreign_is_refused(void **state)
{
    struct cut c = kit_saved(1, 10, "state");
    struct checkpoint_found f;
    struct err e;

    (void)state;
    kit_refused_as(&c, "other-uid", 1, "CheckpointForeign");
    kit_refused_as(&c, WORKLOAD, 2, "CheckpointRanks");
    assert_int_equal(kit_verify_as(&c, WORKLOAD, 0, 3, &f, &e), E_CHECKPOINT);
    assert_string_equal(e.field, "CheckpointForeign");
    /* whole, with the right digest, and not of our making */
    const char *text = "{\"format\":\"somebody else's\"}\n";
    char hex[65];
    kit_put(kit_base, "sealed/e1/cut-1.json", text, strlen(text));
    kit_hex_of(text, strlen(text), hex);
    (void)snprintf(c.digest, sizeof c.digest, "sha256:%s", hex);
    kit_refused(&c, "CheckpointForeign");
}

static void each_rank_gets_its_own(void **state)
{
    struct checkpoint_sealer *s[2] = {kit_sealer(1, 0), kit_sealer(1, 1)};
    struct checkpoint_found f;
    struct err e;

    (void)state;
    kit_save(checkpoint_sealer_dir(s[0]), 40, "of rank 0");
    kit_save(checkpoint_sealer_dir(s[1]), 38, "of rank 1");
    kit_look(s[0]);
    kit_look(s[1]);
    struct cut c = kit_cut(1, s, 2);
    assert_int_equal(kit_verify_as(&c, WORKLOAD, 2, -1, &f, &e), 0);
    assert_int_equal(f.step, 38);
    assert_int_equal(f.bytes, 18);
    assert_int_equal(f.ranks, 2);
    assert_string_equal(f.dir, "");
    assert_int_equal(kit_verify_as(&c, WORKLOAD, 2, 0, &f, &e), 0);
    assert_true(strlen(f.dir) > 15 && !strcmp(f.dir + strlen(f.dir) - 15, "sealed/e1/0/s40"));
    bend("sealed/e1/1/s38/state-38", "byte");
    assert_int_equal(kit_verify_as(&c, WORKLOAD, 2, 0, &f, &e), 0); /* not its own */
    assert_int_equal(kit_verify_as(&c, WORKLOAD, 2, 1, &f, &e), E_CHECKPOINT);
    assert_int_equal(kit_verify_as(&c, WORKLOAD, 2, -1, &f, &e), E_CHECKPOINT);
    for (int i = 0; i < 2; i++)
        (void)checkpoint_sealer_destroy(s[i]);
}

/* What was read for stage is not read again, unless anything about the file is another. */
static void proofs_spare_reading_and_nothing_else(void **state)
{
    struct cut c = kit_saved(1, 10, "0123456789");
    struct checkpoint_progress p = {0};
    struct checkpoint_found f;
    char proofs[512], path[512];
    struct err e;

    (void)state;
    kit_path_of(proofs, kit_base, "proofs");
    struct checkpoint_want w = {.path = c.path,
                                .digest = c.digest,
                                .workload = WORKLOAD,
                                .world = 1,
                                .rank = -1,
                                .proofs_dir = proofs,
                                .write_proofs = true};
    kit_age("sealed/e1/0/s10/state-10", 5); /* older than the clock's tick: see sealfs.h */
    assert_int_equal(checkpoint_verify(&w, &p, &f, &e), 0);
    assert_int_equal(p.bytes, 10);
    w.rank = 0;
    w.write_proofs = false;
    assert_int_equal(checkpoint_verify(&w, &p, &f, &e), 0);
    assert_int_equal(p.bytes, 10); /* not a byte more */
    struct stat st;
    kit_path_of(path, kit_base, "sealed/e1/0/s10/state-10");
    assert_int_equal(stat(path, &st), 0);
    bend("sealed/e1/0/s10/state-10", "byte");
    struct timespec same[2] = {st.st_atim, st.st_mtim}; /* as somebody who hides it would */
    assert_int_equal(utimensat(AT_FDCWD, path, same, 0), 0);
    assert_int_equal(checkpoint_verify(&w, &p, &f, &e), E_CHECKPOINT);
    assert_string_equal(e.field, "CheckpointAltered");
}

/* A log that has grown since it was sealed: its program sees what was committed, and no more. */
static void a_view_is_as_long_as_the_manifest_says(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    const char *dir = checkpoint_sealer_dir(s);
    char hex[65], m[512], path[512], view[512], got[CHECKPOINT_PATH_MAX + 64], text[64];
    struct err e;

    (void)state;
    for (int step = 1; step <= 2; step++) { /* the second seal is a link */
        const char *log = step == 1 ? "a\n" : "a\nb\n";
        kit_path_of(path, dir, "log");
        FILE *f = fopen(path, "a");
        assert_non_null(f);
        (void)fputs(log + 2 * (step - 1), f);
        (void)fclose(f);
        kit_hex_of(log, strlen(log), hex);
        (void)snprintf(
            m, sizeof m,
            "{\"step\":%d,\"files\":[{\"name\":\"log\",\"bytes\":%zu,\"sha256\":\"%s\"}]}", step,
            strlen(log), hex);
        kit_put_manifest(dir, m);
        kit_look(s);
    }
    kit_path_of(path, kit_base, "sealed/e1/0/s2");
    kit_path_of(view, kit_base, "e2/0.resume");
    for (int twice = 0; twice < 2; twice++) {
        assert_int_equal(checkpoint_exact(path, view, got, &e), 0);
        assert_string_equal(got, twice ? view : path);
        kit_path_of(m, dir, "log");
        FILE *f = fopen(m, "a");
        assert_non_null(f);
        (void)fputs("c\n", f);
        (void)fclose(f);
    }
    kit_path_of(path, view, "log");
    kit_read_all(path, text, sizeof text);
    assert_string_equal(text, "a\nb\n");
    assert_true(kit_exists("e2/0.resume/manifest.json"));
    (void)checkpoint_sealer_destroy(s);
}

/* Who can resume with another number of ranks sees what all of them saved, each in its folder, and
 * nothing that an earlier try left there. */
static void all_ranks_are_seen(void **state)
{
    struct checkpoint_sealer *s[3];
    char view[512], text[64];
    struct checkpoint_found f;
    struct err e;

    (void)state;
    for (int i = 0; i < 3; i++) {
        char what[] = {'r', 'a', 'n', 'k', (char)('0' + i), 0};
        s[i] = kit_sealer(1, i);
        kit_save(checkpoint_sealer_dir(s[i]), 10, what);
        kit_look(s[i]);
    }
    struct cut three = kit_cut(1, s, 3), one = kit_saved(2, 20, "alone");
    kit_path_of(view, kit_base, "e3/0.resume");
    struct checkpoint_want w = {.path = three.path,
                                .at = kit_at,
                                .digest = three.digest,
                                .workload = WORKLOAD,
                                .rank = -1,
                                .view = view};
    if (checkpoint_verify(&w, NULL, &f, &e) < 0)
        fail_msg("%s", e.text);
    assert_string_equal(f.dir, view);
    assert_int_equal(f.ranks, 3);
    for (int i = 0; i < 3; i++) {
        char name[64], path[512];
        (void)snprintf(name, sizeof name, "e3/0.resume/%d/state-10", i);
        kit_path_of(path, kit_base, name);
        kit_read_all(path, text, sizeof text);
        assert_true(text[0] == 'r' && text[4] == '0' + i);
        assert_true(kit_exists("e3/0.resume/%d/manifest.json", i));
        (void)checkpoint_sealer_destroy(s[i]);
    }
    w.path = one.path; /* the next try, from another one */
    w.digest = one.digest;
    assert_int_equal(checkpoint_verify(&w, NULL, &f, &e), 0);
    assert_true(kit_exists("e3/0.resume/0/state-20"));
    assert_false(kit_exists("e3/0.resume/0/state-10") || kit_exists("e3/0.resume/1"));
    bend("sealed/e1/2/s10/state-10", "byte"); /* one rank's does not hold: none of it is taken */
    w.path = three.path;
    w.digest = three.digest;
    assert_int_equal(checkpoint_verify(&w, NULL, &f, &e), E_CHECKPOINT);
    assert_string_equal(e.field, "CheckpointAltered");
}

/* ---- retention ---- */
static void retain(int64_t epoch, int64_t keep, int64_t known, const char *resume, int64_t floor_)
{
    struct checkpoint_retain r = {.at = kit_at,
                                  .epoch = epoch,
                                  .keep = keep,
                                  .known = known,
                                  .told = known,
                                  .resume_path = resume,
                                  .floor = &floor_,
                                  .n_ranks = 1};
    struct err e;

    if (checkpoint_retain(&r, &e) < 0)
        fail_msg("%s", e.text);
}

static void the_newest_stay(void **state)
{
    (void)state;
    for (int64_t step = 1; step <= 5; step++)
        (void)kit_saved(1, step * 10, "state");
    struct checkpoint_sealer *s = kit_sealer(1, 0); /* sealed, part of no cut yet */
    kit_save(checkpoint_sealer_dir(s), 60, "newer");
    kit_look(s);
    retain(1, 3, 5, "", 50);
    assert_false(kit_exists("sealed/e1/cut-2.json") || kit_exists("sealed/e1/0/s20"));
    assert_true(kit_exists("sealed/e1/cut-3.json") && kit_exists("sealed/e1/0/s30"));
    assert_true(kit_exists("sealed/e1/cut-5.json") && kit_exists("sealed/e1/0/s50"));
    assert_true(kit_exists("sealed/e1/0/s60"));
    assert_true(kit_exists("e1/0/manifest.json"));
    retain(1, 0, 5, "", 50); /* never fewer than two */
    assert_false(kit_exists("sealed/e1/cut-3.json"));
    assert_true(kit_exists("sealed/e1/cut-4.json") && kit_exists("sealed/e1/cut-5.json"));
    (void)checkpoint_sealer_destroy(s);
}

static void what_the_hub_knows_stays(void **state)
{
    (void)state;
    for (int64_t step = 1; step <= 6; step++)
        (void)kit_saved(1, step * 10, "state");
    retain(1, 2, 1, "", 60); /* it has not heard of any since the first */
    assert_true(kit_exists("sealed/e1/cut-1.json") && kit_exists("sealed/e1/0/s10"));
    assert_false(kit_exists("sealed/e1/cut-3.json") || kit_exists("sealed/e1/0/s30"));
    assert_true(kit_exists("sealed/e1/cut-5.json") && kit_exists("sealed/e1/cut-6.json"));
}

static void what_it_came_from_stays_until_then(void **state)
{
    struct cut from = kit_saved(1, 10, "state"), c;
    static const char *const of_1[] = {"sealed/e1/cut-1.json", "sealed/e1/0", "e1/0"};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        kit_age(of_1[i], 5); /* epoch 1 has written nothing since epoch 2 began */
    for (int64_t step = 2; step <= 5; step++)
        c = kit_saved(2, step * 10, "state");
    retain(2, 2, 0, from.path, 50);
    kit_good(&from, 10);
    assert_false(kit_exists("sealed/e2/cut-2.json"));
    retain(2, 2, 4, from.path, 50); /* the hub has one of epoch 2 */
    assert_false(kit_exists("sealed/e1"));
    assert_false(kit_exists("e1"));
    kit_good(&c, 50);
    assert_true(kit_exists("e2/0"));
}

static void an_old_epoch_removes_nothing(void **state)
{
    (void)state;
    for (int64_t step = 1; step <= 5; step++)
        (void)kit_saved(1, step * 10, "state");
    (void)kit_saved(2, 60, "state");
    retain(1, 2, 5, "", 50);
    assert_true(kit_exists("sealed/e1/cut-1.json") && kit_exists("sealed/e1/0/s10"));
    assert_true(kit_exists("sealed/e2/cut-1.json"));
}

/* Two copies were accepted: the older one goes on, and keeps what it has. */
static void an_epoch_that_still_writes_keeps_its_own(void **state)
{
    (void)state;
    (void)kit_saved(1, 10, "state");
    for (int64_t step = 2; step <= 4; step++)
        (void)kit_saved(2, step * 10, "state");
    struct cut old = kit_saved(1, 15, "from the other side of the partition");
    kit_age("sealed/e1/cut-2.json", -5);
    retain(2, 2, 3, "", 40);
    kit_good(&old, 15);
    assert_true(kit_exists("e1/0/manifest.json"));
}

/* The epoch is in the path: what an old writer does is nobody else's checkpoint. */
static void an_old_writer_changes_nothing_of_the_new(void **state)
{
    struct checkpoint_sealer *old = kit_sealer(1, 0);
    struct cut first = kit_saved(1, 10, "ten"), second;

    (void)state;
    second = kit_saved(2, 20, "twenty");
    kit_save(checkpoint_sealer_dir(old), 90, "late");
    kit_look(old);
    struct cut late = kit_cut(1, &old, 1);
    kit_good(&second, 20);
    kit_good(&first, 10);
    assert_string_not_equal(late.path, second.path);
    assert_true(kit_exists("sealed/e1/0/s90") && !kit_exists("sealed/e2/0/s90"));
    (void)checkpoint_sealer_destroy(old);
}

/* ---- the commands ---- */
static int command(const char *const *argv)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        union {
            const char *const *c;
            char **m;
        } u = {argv};
        (void)dup2(null, 1);
        (void)dup2(getenv("HANSE_TEST_VERBOSE") ? 2 : null, 2);
        (void)execv("/proc/self/exe", u.m);
        _exit(99);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}
#define CMD(...) command((const char *const[]){"hanse", "checkpoint", __VA_ARGS__, NULL})

static void commit_and_verify(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    const char *dir = checkpoint_sealer_dir(s);
    char path[512], sub[512];

    (void)state;
    kit_path_of(sub, dir, "shards");
    assert_int_equal(mkdir(sub, 0700), 0);
    kit_put(sub, "0.pt", "zero", 4);
    kit_put(sub, "1.pt", "one", 3);
    kit_put(sub, "2.pt.tmp", "half", 4); /* not finished: no part of it */
    kit_put(dir, "log", "a\nb\nhalf", 8);
    assert_int_equal(CMD("commit", "--step", "7", "--dir", dir, "shards", "log:4"), 0);
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 7);
    assert_int_equal(checkpoint_sealer_newest(s)->bytes, 4 + 3 + 4);
    assert_true(kit_exists("sealed/e1/0/s7/shards/1.pt"));
    assert_false(kit_exists("sealed/e1/0/s7/shards/2.pt.tmp"));
    struct cut c = kit_cut(1, &s, 1);
    assert_int_equal(CMD("verify", c.path), 0);
    assert_int_equal(CMD("verify", c.path, "--digest", c.digest), 0);
    assert_int_equal(CMD("verify", c.path, "--digest", "sha256:" HEX64), 5);
    assert_int_equal(CMD("verify", dir), 0);
    /* what cannot be committed leaves what was good */
    assert_int_equal(CMD("commit", "--step", "8", "--dir", dir, "gone"), 3);
    assert_int_equal(CMD("commit", "--step", "8", "--dir", dir, "log:900"), 1);
    assert_int_equal(CMD("commit", "--step", "8", "--dir", dir, "../0/log"), 5);
    assert_int_equal(CMD("commit", "--step", "x", "--dir", dir, "log"), 2);
    assert_int_equal(CMD("commit", "--dir", dir, "log"), 2);
    assert_int_equal(CMD("verify", dir), 0);
    kit_path_of(path, sub, "0.pt");
    kit_put(sub, "0.pt", "zerO", 4); /* in place */
    assert_int_equal(CMD("verify", dir), 5);
    assert_int_equal(CMD("verify", c.path), 0);
    assert_int_equal(CMD("verify", "/nowhere/cut-1.json"), 5);
    assert_int_equal(CMD("bogus"), 2);
    (void)checkpoint_sealer_destroy(s);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "checkpoint") == 0)
        return checkpoint_main(argc - 1, argv + 1);
    const struct CMUnitTest tests[] = {T(torn_missing_altered_are_told_apart),
                                       T(a_store_that_is_not_here_is_told_apart),
                                       T(another_manifest_or_cut_is_altered),
                                       T(foreign_is_refused),
                                       T(all_ranks_are_seen),
                                       T(each_rank_gets_its_own),
                                       T(proofs_spare_reading_and_nothing_else),
                                       T(a_view_is_as_long_as_the_manifest_says),
                                       T(the_newest_stay),
                                       T(what_the_hub_knows_stays),
                                       T(what_it_came_from_stays_until_then),
                                       T(an_old_epoch_removes_nothing),
                                       T(an_epoch_that_still_writes_keeps_its_own),
                                       T(an_old_writer_changes_nothing_of_the_new),
                                       T(commit_and_verify)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
