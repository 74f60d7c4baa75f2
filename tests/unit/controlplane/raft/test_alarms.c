/* Alarms: raised once, told with the newest sentence, cleared; each row has a name and a remedy. */
#include "tests/support/raft/core_rig.h"

static unsigned lines;
static char last[512];

static void seen(const char *line, void *arg)
{
    (void)arg;
    if (!strstr(line, "alarm."))
        return;
    lines++;
    str_copy(last, sizeof last, line);
}

static void test_raised_and_cleared(void **state)
{
    struct core_alarm a[ALARM_NR];
    struct rig r;

    (void)state;
    rig_create(&r, 1);
    rig_start(&r, 1);
    rig_wait_for(&r, rig_has_leader, &r);
    assert_int_equal(core_alarms(r.m[1].core, a), 0);
    log_capture(seen, NULL);
    core_alarm_clear(r.m[1].core, ALARM_APPLY);
    assert_int_equal(lines, 0);
    core_alarm_raise(r.m[1].core, ALARM_APPLY, "entry %d", 7);
    core_alarm_raise(r.m[1].core, ALARM_APPLY, "entry %d", 8);
    assert_int_equal(lines, 1); /* told when it begins, not each second */
    assert_non_null(strstr(last, "apply-stopped"));
    assert_int_equal(core_alarms(r.m[1].core, a), 1);
    assert_string_equal(a[0].name, "apply-stopped");
    assert_string_equal(a[0].text, "entry 8");
    assert_false(a[0].serves);
    core_alarm_clear(r.m[1].core, ALARM_APPLY);
    assert_int_equal(core_alarms(r.m[1].core, a), 0);
    assert_int_equal(lines, 2);
    log_capture(NULL, NULL);
    rig_destroy(&r);
}

static void test_each_row_is_told(void **state)
{
    struct core_alarm a[ALARM_NR];
    struct rig r;

    (void)state;
    rig_create(&r, 1);
    rig_start(&r, 1);
    for (unsigned i = 0; i < ALARM_NR; i++)
        core_alarm_raise(r.m[1].core, (enum alarm)i, "x");
    assert_int_equal(core_alarms(r.m[1].core, a), ALARM_NR);
    for (unsigned i = 0; i < ALARM_NR; i++) {
        assert_true(*a[i].name && strlen(a[i].remedy) > 10);
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(a[i].name, a[k].name);
    }
    rig_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_raised_and_cleared),
        cmocka_unit_test(test_each_row_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
