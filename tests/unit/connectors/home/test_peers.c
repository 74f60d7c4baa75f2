/* What the program of a rank that calls home finds of its peers. */
#include "connectors/home/home_runner.h"
#include "tests/support/unit.h"

#include <stdlib.h>

static const char *found(const char *name)
{
    const char *v = getenv(name);

    return v ? v : "";
}

static void test_it_is_told_where_its_peers_are(void **state)
{
    struct err err;

    (void)state;
    (void)unsetenv("MASTER_ADDR");
    (void)unsetenv("MASTER_PORT");
    (void)unsetenv("RANK");
    (void)setenv("NODE_RANK", "7", 1); /* its server has set it */
    assert_int_equal(home_peers_env(1, 2, &err), 0);
    assert_string_equal(found("RANK"), ""); /* nobody knows where they meet: none of the names */
    (void)setenv("MASTER_ADDR", "w-0.w", 1);
    (void)setenv("MASTER_PORT", "29500", 1);
    assert_int_equal(home_peers_env(0, 1, &err), 0);
    assert_string_equal(found("RANK"), ""); /* it has no peers */
    assert_int_equal(home_peers_env(1, 2, &err), 0);
    assert_string_equal(found("RANK"), "1");
    assert_string_equal(found("WORLD_SIZE"), "2");
    assert_string_equal(found("JAX_COORDINATOR_ADDRESS"), "w-0.w:29500");
    assert_string_equal(found("OMPI_COMM_WORLD_RANK"), "1");
    assert_string_equal(found("NODE_RANK"), "7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_told_where_its_peers_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
