/* A workload names the folder that its checkpoints go to. The agent and its shims write with rights
 * of their own, so it may be one below --store-root, and no other, however it is named. */
#include "tests/support/agent_world.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *in_world(const char *name)
{
    static char p[8][400];
    static unsigned n;

    n = (n + 1) % 8;
    (void)snprintf(p[n], sizeof p[n], "%s/%s", A.dir, name);
    return p[n];
}

static struct agent_order order_in(const char *base)
{
    return (struct agent_order){.key = agent_key(), .base = base, .script = "touch $D/$U.ran"};
}

static void refused(const char *base, const char *says)
{
    struct agent_order o = order_in(base);
    struct asked a;

    assert_int_equal(agent_submit(&o, &a), OUT_REJECTED);
    if (!strstr(a.err.text, says))
        fail_msg("%s: %s", base, a.err.text);
    assert_int_equal(a.err.code, E_FORBIDDEN);
    assert_false(agent_file_exists("%s.ran", o.key.uid));
}

static void folders_elsewhere_are_refused(void **state)
{
    (void)state;
    refused("/etc/cron.d", "--store-root");
    refused("/", "--store-root");
    refused(in_world("elsewhere/w"), "--store-root");
    refused(in_world("store/../elsewhere/w"), "--store-root");
    refused(in_world("state-t1/runs"), "--store-root");
    assert_false(agent_file_exists("elsewhere"));
}

static void links_below_a_root_lead_nowhere(void **state)
{
    struct agent_order o = order_in(in_world("store/link/w"));
    struct asked a;

    (void)state;
    (void)mkdir(in_world("store"), 0700);
    assert_int_equal(mkdir(in_world("outside"), 0700), 0);
    assert_int_equal(symlink(in_world("outside"), in_world("store/link")), 0);
    assert_int_equal(agent_submit(&o, &a), OUT_DONE); /* only who opens it can look */
    const struct observation *seen = agent_await(&o.key, RUN_ABSENT);
    assert_string_equal(seen->reason, "StoreUnreachable");
    assert_non_null(strstr(seen->message, "is a link"));
    assert_false(agent_file_exists("%s.ran", o.key.uid));
    assert_int_equal(rmdir(in_world("outside")), 0); /* nothing was made in it */
}

static void nothing_is_read_from_elsewhere(void **state)
{
    struct agent_order o = order_in(NULL);
    struct asked a;

    (void)state;
    o.resume_path = "/etc/sealed/e1/cut-1.json";
    o.resume_digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    assert_int_equal(agent_stage(&o, &a), OUT_REJECTED);
    assert_non_null(strstr(a.err.text, "--store-root"));
    assert_int_equal(agent_submit(&o, &a), OUT_REJECTED);
    assert_non_null(strstr(a.err.text, "--store-root"));
}

int main(int argc, char **argv)
{
    int rc = agent_world_main(argc, argv);

    if (rc >= 0)
        return rc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_elsewhere_are_refused),
        cmocka_unit_test(links_below_a_root_lead_nowhere),
        cmocka_unit_test(nothing_is_read_from_elsewhere),
    };
    return cmocka_run_group_tests(tests, agent_world_setup, agent_world_teardown);
}
