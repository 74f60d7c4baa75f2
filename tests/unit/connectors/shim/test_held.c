/* What a PID namespace proves of a runner's tree, by the file in which the runner begins it. */
#include "connectors/shim/tree_linux.h"
#include "tests/support/unit.h"
#include "connectors/shim/will_linux.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A runner that was killed before it began has left no such file: it held its work until its lease
 * was over, a day later. */
static void test_a_runner_that_never_began(void **state)
{
    char dir[] = "/tmp/hanse-held-XXXXXX", path[64];
    struct runner_tree t = {.marker = "nobody-has-this.1.1", .held = RUN_NAMESPACE, .will = path};

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/will", dir);
    assert_int_equal(tree_process_count(NULL, &t), 0);
    struct err e;
    assert_int_equal(will_begin(NULL, path, &e), 0); /* it died before it became anything */
    assert_int_equal(tree_process_count(NULL, &t), 0);
    assert_true(will_program(path, getpid())); /* the first process of its namespace lives */
    assert_true(tree_process_count(NULL, &t) != 0);
    t.will = NULL;
    assert_true(tree_process_count(NULL, &t) != 0); /* not known */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_runner_that_never_began)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
