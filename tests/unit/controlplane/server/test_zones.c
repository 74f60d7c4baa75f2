/* Which time zones a member lets in: those whose files are there, and are files of a zone. */
#include "controlplane/server/zones.h"

#include <unistd.h>

#include "tests/support/unit.h"

static void test_known(void **state)
{
    static const char *const never[] = {"",         "Europe/Atlantis", "europe/berlin",
                                        "Europe",   "../zoneinfo/UTC", "/usr/share/zoneinfo/UTC",
                                        "zone.tab", "tzdata.zi",       "iso3166.tab",
                                        "Mars/Base"};
    int seconds;

    (void)state;
    assert_true(zone_known("UTC")); /* also where there is no tzdata */
    assert_true(zone_known("Etc/UTC"));
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (zone_known(never[i]))
            fail_msg("%s is known", never[i]);
    assert_false(zone_offset("Europe/Atlantis", 0, &seconds));
    assert_true(zone_offset("UTC", 0, &seconds));
    assert_int_equal(seconds, 0);
}

/* What is let in can be computed, both halves of the year. */
static void test_computed(void **state)
{
    int winter, summer;

    (void)state;
    if (access("/usr/share/zoneinfo/Europe/Berlin", R_OK) != 0)
        skip();
    assert_true(zone_known("Europe/Berlin"));
    assert_true(zone_offset("Europe/Berlin", 1736935200000, &winter)); /* 2025-01-15 */
    assert_true(zone_offset("Europe/Berlin", 1752573600000, &summer)); /* 2025-07-15 */
    assert_int_equal(winter, 3600);
    assert_int_equal(summer, 7200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known),
                                       cmocka_unit_test(test_computed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
