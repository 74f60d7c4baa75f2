/* Which folders may be stores: those below the roots that the operator of a machine names, by their
 * names and by what is truly there. Nothing is made in any other. */
#include "connectors/checkpoint/files/sealfs.h"
#include "connectors/checkpoint/store/store.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], roots[200];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/hanse-roots-XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(roots, sizeof roots, "/nowhere/stores:%s/a", dir);
    return 0;
}

static int teardown(void **state)
{
    struct err e;
    int at = -1;

    (void)state;
    if (sealfs_dir_open("/tmp", &at, &e) < 0 || sealfs_remove(at, dir + strlen("/tmp/"), &e) < 0)
        fail_msg("%s", e.text);
    sealfs_close(at);
    return 0;
}

static const char *below(const char *name)
{
    static char p[8][300];
    static unsigned n;

    n = (n + 1) % 8;
    (void)snprintf(p[n], sizeof p[n], "%s/%s", dir, name);
    return p[n];
}

static void allowed(const char *path, bool yes)
{
    char root[CHECKPOINT_PATH_MAX];
    struct err e = {0};
    int rc = checkpoint_roots_allow(roots, path, root, &e);

    if ((rc == 0) != yes)
        fail_msg("%s: %d %s", path, rc, e.text);
    if (yes)
        return;
    assert_int_equal(rc, E_FORBIDDEN);
    assert_string_equal(e.field, "spec.checkpoint.store");
    assert_non_null(strstr(e.text, "--store-root"));
}

static void names_say_what_lies_below(void **state)
{
    (void)state;
    allowed(below("a"), true);
    allowed(below("a/team/w-1"), true);
    allowed("/nowhere/stores/x", true);
    allowed(below("ab"), false);
    allowed(below("b"), false);
    allowed("/", false);
    allowed("/etc/cron.d", false);
    allowed(below("a/../b"), false);
    allowed(below("a/./x"), false);
    allowed(below("a//x"), false);
    allowed(below("a/x/"), false);
    allowed("relative", false);
    allowed("", false);
}

static void roots_are_checked(void **state)
{
    static const char *const bad[] = {"", "/", "relative", "/a/../b", "/a/", "/a:/", "/a::b"};
    struct err e;

    (void)state;
    assert_int_equal(checkpoint_roots_check("/srv/hanse:/data/x", &e), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (checkpoint_roots_check(bad[i], &e) == 0)
            fail_msg("\"%s\" was taken", bad[i]);
}

static int opened(const char *base, struct err *e)
{
    const struct checkpoint_store at = {.base = base, .roots = roots};
    struct store *s = NULL;
    int rc = store_open(&at, NULL, &s, e);

    if (rc == 0)
        (void)store_close(s);
    return rc;
}

static void refused(const char *base, const char *says)
{
    char shared[CHECKPOINT_PATH_MAX + 64];
    const struct checkpoint_store at = {.base = base, .roots = roots};
    struct err e;

    if (opened(base, &e) != E_FORBIDDEN || !strstr(e.text, says))
        fail_msg("%s: %s", base, e.text);
    assert_string_equal(e.field, CHECKPOINT_UNREACHABLE); /* no verdict on what it holds */
    assert_int_equal(checkpoint_shared_dir(&at, 1, shared, &e), E_FORBIDDEN);
}

static void links_do_not_get_out(void **state)
{
    struct err e;

    (void)state;
    assert_int_equal(opened(below("a/w-1"), &e), 0); /* nothing of it is there yet */
    assert_int_equal(mkdir(below("a"), 0700), 0);
    assert_int_equal(mkdir(below("a/real"), 0700), 0);
    assert_int_equal(mkdir(below("out"), 0700), 0);
    assert_int_equal(symlink(below("out"), below("a/link")), 0);
    assert_int_equal(symlink("..", below("a/real/up")), 0);
    assert_int_equal(opened(below("a/real/w-1"), &e), 0);
    refused(below("a/link"), "is a link");
    refused(below("a/link/w-1"), "is a link");
    refused(below("a/real/up/w-1"), "is a link");
    refused(below("b/w-1"), "operator allows");
    assert_int_equal(rmdir(below("out")), 0); /* nothing was made in it */
}

/* Who may rename a part of the way down leads it elsewhere a moment after it was looked at. */
static void what_others_may_rename_is_no_way(void **state)
{
    struct err e;

    (void)state;
    if (geteuid() != 0)
        skip(); /* only root's programs may be somebody else */
    assert_int_equal(mkdir(below("a"), 0700), 0);
    assert_int_equal(mkdir(below("a/theirs"), 0700), 0);
    assert_int_equal(chown(below("a/theirs"), 4711, 4711), 0);
    assert_int_equal(mkdir(below("a/all"), 0777), 0);
    assert_int_equal(chmod(below("a/all"), 0777), 0);
    assert_int_equal(mkdir(below("a/sticky"), 0777), 0);
    assert_int_equal(chmod(below("a/sticky"), 01777), 0);
    refused(below("a/theirs/w-1"), "somebody else");
    refused(below("a/all/w-1"), "somebody else");
    assert_int_equal(opened(below("a/sticky/w-1"), &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_say_what_lies_below, setup, teardown),
        cmocka_unit_test_setup_teardown(roots_are_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(links_do_not_get_out, setup, teardown),
        cmocka_unit_test_setup_teardown(what_others_may_rename_is_no_way, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
