/* What a sealer has read is not read again on its machine, unless anything about it is another; and
 * what several threads read is refused as one of them would refuse it. */
#include "tests/support/checkpoint_kit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE "sealed/e1/0/s10/state-10"
#define PROOFS "sealed/e1/0/s10.read"

/* Bytes that are read to verify it; *ret_rc is what came of it. */
static uint64_t reads(const struct cut *c, bool by_sealer, int *ret_rc)
{
    struct checkpoint_progress p = {0};
    struct checkpoint_want w = {.path = c->path,
                                .at = kit_at,
                                .digest = c->digest,
                                .workload = WORKLOAD,
                                .world = 1,
                                .rank = 0,
                                .by_sealer = by_sealer};
    struct checkpoint_found f;
    struct err e = {0};

    *ret_rc = checkpoint_verify(&w, &p, &f, &e);
    if (*ret_rc < 0)
        assert_string_equal(e.field, "CheckpointAltered");
    return p.bytes;
}

/* Saved long enough ago (see sealfs.h), by a program that has ended, or goes on. */
static struct cut sealed(bool over)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    struct checkpoint_progress p = {0};
    struct err e;

    kit_save(checkpoint_sealer_dir(s), 9, "before");
    kit_look(s);
    kit_save(checkpoint_sealer_dir(s), 10, "0123456789");
    kit_age("e1/0/state-10", 5);
    if (checkpoint_sealer_look(s, over, &p, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(p.bytes, 10);
    struct cut c = kit_cut(1, &s, 1);
    (void)checkpoint_sealer_destroy(s);
    return c;
}

/* Somebody writes over one byte, and hides it as well as he can. */
static void alter(const char *name)
{
    char path[512];
    struct stat st;

    kit_path_of(path, kit_base, name);
    assert_int_equal(stat(path, &st), 0);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "X", 1, 3), 1);
    assert_int_equal(close(fd), 0);
    struct timespec same[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, same, 0), 0);
}

static void what_the_sealer_read_is_not_read_again(void **state)
{
    struct cut c = sealed(true);
    int rc;

    (void)state;
    assert_true(kit_exists(PROOFS));
    assert_int_equal(reads(&c, true, &rc), 0);
    assert_int_equal(rc, 0);
    assert_int_equal(reads(&c, false, &rc), 10); /* who does not ask for it reads all */
    assert_int_equal(rc, 0);
    alter(STATE);
    assert_int_equal(reads(&c, true, &rc), 10);
    assert_int_equal(rc, E_CHECKPOINT);
}

/* Its own name for the file is as good as ours. */
static void altered_through_the_programs_own_name(void **state)
{
    struct cut c = sealed(true);
    int rc;

    (void)state;
    alter("e1/0/state-10");
    assert_int_equal(reads(&c, true, &rc), 10);
    assert_int_equal(rc, E_CHECKPOINT);
}

static void put_in_its_place(void **state)
{
    struct cut c = sealed(true);
    char path[512], other[512];
    int rc;

    (void)state;
    kit_put(kit_base, "other", "012345678X", 10);
    kit_age("other", 5);
    kit_path_of(path, kit_base, STATE);
    kit_path_of(other, kit_base, "other");
    assert_int_equal(rename(other, path), 0);
    assert_int_equal(reads(&c, true, &rc), 10);
    assert_int_equal(rc, E_CHECKPOINT);
}

/* What a program has mapped it may change without a trace, as long as it lives. */
static void of_one_that_goes_on_nothing_is_proved(void **state)
{
    struct cut c = sealed(false);
    int rc;

    (void)state;
    assert_int_equal(reads(&c, true, &rc), 10);
    assert_int_equal(rc, 0);
}

/* Another machine, or this one before it was started again; another's manifest; another's hand. */
static void proofs_that_are_not_believed(void **state)
{
    struct cut c = sealed(true);
    char path[512], text[1024];
    int rc;

    (void)state;
    kit_path_of(path, kit_base, PROOFS);
    kit_read_all(path, text, sizeof text);
    size_t n = strlen(text);
    for (size_t at = 0; at < 3; at++) { /* of the boot, of the manifest, of the end */
        char bent[sizeof text];
        size_t where = at == 0 ? 3 : at == 1 ? 60 : n - 1;
        memcpy(bent, text, n);
        bent[where] = bent[where] == '1' ? '2' : '1';
        kit_put(kit_base, PROOFS, bent, n);
        assert_int_equal(reads(&c, true, &rc), 10);
        assert_int_equal(rc, 0);
    }
    kit_put(kit_base, PROOFS, text, n);
    assert_int_equal(reads(&c, true, &rc), 0);
    assert_int_equal(chmod(path, 0620), 0);
    assert_int_equal(reads(&c, true, &rc), 10);
    assert_int_equal(chmod(path, 0600), 0);
    if (geteuid() != 0)
        return;
    assert_int_equal(reads(&c, true, &rc), 0);
    assert_int_equal(chown(path, 65534, 65534), 0);
    assert_int_equal(reads(&c, true, &rc), 10);
}

static void proofs_go_with_their_step(void **state)
{
    struct cut c = sealed(true);
    int64_t at = 40;
    struct checkpoint_retain r = {.at = kit_at,
                                  .epoch = 1,
                                  .keep = 2,
                                  .known = 4,
                                  .told = 4,
                                  .resume_path = "",
                                  .floor = &at,
                                  .n_ranks = 1};
    struct err e;

    (void)state;
    (void)c;
    for (int64_t step = 20; step <= 40; step += 10)
        (void)kit_saved(1, step, "state");
    if (checkpoint_retain(&r, &e) < 0)
        fail_msg("%s", e.text);
    assert_false(kit_exists("sealed/e1/0/s10") || kit_exists(PROOFS));
    assert_true(kit_exists("sealed/e1/0/s40") && kit_exists("sealed/e1/0/s40.read"));
}

/* ---- several at once ---- */
#define SHARDS 12
#define SHARD_BYTES ((size_t)512 << 10)

static void shards_save(const char *dir, int64_t step)
{
    char *bytes = test_malloc(SHARD_BYTES), *m = test_malloc(8192), name[16], hex[65];
    size_t n = (size_t)snprintf(m, 8192, "{\"step\":%lld,\"files\":[", (long long)step);

    for (int i = 0; i < SHARDS; i++) {
        memset(bytes, 'a' + i, SHARD_BYTES);
        (void)snprintf(name, sizeof name, "shard-%02d", i);
        kit_put(dir, name, bytes, SHARD_BYTES);
        kit_hex_of(bytes, SHARD_BYTES, hex);
        n +=
            (size_t)snprintf(m + n, 8192 - n, "%s{\"name\":\"%s\",\"bytes\":%zu,\"sha256\":\"%s\"}",
                             i ? "," : "", name, SHARD_BYTES, hex);
    }
    (void)snprintf(m + n, 8192 - n, "]}");
    kit_put_manifest(dir, m);
    test_free(m);
    test_free(bytes);
}

static void many_files_are_read_once_each(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    struct checkpoint_progress p = {0};
    struct err e;

    (void)state;
    shards_save(checkpoint_sealer_dir(s), 1);
    if (checkpoint_sealer_look(s, true, &p, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(p.bytes, SHARDS * SHARD_BYTES);
    struct cut c = kit_cut(1, &s, 1);
    kit_good(&c, 1);
    for (int i = 0; i < SHARDS; i++)
        assert_true(kit_exists("sealed/e1/0/s1/shard-%02d", i));
    (void)checkpoint_sealer_destroy(s);
}

/* Whichever thread finds it first: the sentence is about the first that is wrong. */
static void the_first_that_is_wrong_is_told(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    struct checkpoint_progress p = {0};
    struct checkpoint_found f;
    struct err e = {0};

    (void)state;
    shards_save(checkpoint_sealer_dir(s), 1);
    for (int i = SHARDS - 1; i >= 3; i -= 4) { /* 11, 7, 3 */
        char name[32];
        (void)snprintf(name, sizeof name, "e1/0/shard-%02d", i);
        alter(name);
    }
    assert_int_equal(checkpoint_sealer_look(s, true, &p, &e), E_CHECKPOINT);
    assert_string_equal(e.field, "CheckpointAltered");
    assert_non_null(strstr(e.text, "shard-03"));
    assert_false(kit_exists("sealed/e1/0/s1") || kit_exists("sealed/e1/0/.s1.part"));
    shards_save(checkpoint_sealer_dir(s), 2);
    assert_int_equal(checkpoint_sealer_look(s, true, &p, &e), 0);
    struct cut c = kit_cut(1, &s, 1);
    for (int i = SHARDS - 1; i >= 2; i -= 3) { /* 11, 8, 5, 2 */
        char name[48];
        (void)snprintf(name, sizeof name, "sealed/e1/0/s2/shard-%02d", i);
        alter(name);
    }
    assert_int_equal(kit_verify_as(&c, WORKLOAD, 1, 0, &f, &e), E_CHECKPOINT);
    assert_non_null(strstr(e.text, "shard-02"));
    (void)checkpoint_sealer_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(what_the_sealer_read_is_not_read_again),
                                       T(altered_through_the_programs_own_name),
                                       T(put_in_its_place),
                                       T(of_one_that_goes_on_nothing_is_proved),
                                       T(proofs_that_are_not_believed),
                                       T(proofs_go_with_their_step),
                                       T(many_files_are_read_once_each),
                                       T(the_first_that_is_wrong_is_told)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
