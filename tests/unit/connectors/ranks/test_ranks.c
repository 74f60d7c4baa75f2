/* The names of a rank: what frameworks read, and nothing that a library takes for a launcher. */
#include "connectors/ranks/ranks.h"
#include "tests/support/unit.h"

#include <string.h>

static const char *named(const struct ranks_name *v, size_t n, const char *name)
{
    const char *found = NULL;

    for (size_t i = 0; i < n; i++)
        if (strcmp(v[i].name, name) == 0) {
            assert_null(found); /* once */
            found = v[i].value;
        }
    return found ? found : "";
}

static void test_names(void **state)
{
    static const char *const want[][2] = {
        {"MASTER_ADDR", "10.0.0.7"},          {"MASTER_PORT", "15001"},
        {"RANK", "3"},                        {"WORLD_SIZE", "4"},
        {"LOCAL_RANK", "0"},                  {"LOCAL_WORLD_SIZE", "1"},
        {"NODE_RANK", "3"},                   {"GROUP_RANK", "3"},
        {"GROUP_WORLD_SIZE", "4"},            {"ROLE_RANK", "3"},
        {"ROLE_WORLD_SIZE", "4"},             {"PET_NNODES", "4"},
        {"PET_NODE_RANK", "3"},               {"PET_MASTER_ADDR", "10.0.0.7"},
        {"PET_MASTER_PORT", "15001"},         {"JAX_COORDINATOR_ADDRESS", "10.0.0.7:15001"},
        {"JAX_NUM_PROCESSES", "4"},           {"JAX_PROCESS_ID", "3"},
        {"OMPI_COMM_WORLD_RANK", "3"},        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},  {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
        {"OMPI_COMM_WORLD_NODE_RANK", "0"},
    };
    const struct ranks_place at = {.host = "10.0.0.7", .port = "15001", .rank = 3, .world = 4};
    const struct ranks_name *v;
    AUTO_ARENA a = arena_create(0);
    size_t n = ranks_names(&at, a, &v);

    (void)state;
    assert_int_equal(n, sizeof want / sizeof *want);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(named(v, n, want[i][0]), want[i][1]);
    for (size_t i = 0; i < n; i++) {
        assert_int_not_equal(strncmp(v[i].name, "PMI", 3), 0);
        assert_int_not_equal(strncmp(v[i].name, "TORCHELASTIC", 12), 0);
        assert_int_not_equal(strncmp(v[i].name, "SLURM", 5), 0);
    }
}

static void test_an_address_of_version_6_has_brackets(void **state)
{
    const struct ranks_place at = {.host = "fd00::7", .port = "15001", .rank = 0, .world = 2};
    const struct ranks_name *v;
    AUTO_ARENA a = arena_create(0);
    size_t n = ranks_names(&at, a, &v);

    (void)state;
    assert_string_equal(named(v, n, "MASTER_ADDR"), "fd00::7");
    assert_string_equal(named(v, n, "JAX_COORDINATOR_ADDRESS"), "[fd00::7]:15001");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_an_address_of_version_6_has_brackets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
