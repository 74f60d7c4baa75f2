/* What an agent of an older version would do otherwise than it is said is not sent to it. */
#include "connectors/agent/hub/hub_internal.h"
#include "tests/support/unit.h"

#include <string.h>

static void agents_that_do_not_know_it_are_not_given_it(void **state)
{
    AUTO_ARENA a = arena_create(0);
    const char *const argv[] = {"true", NULL};
    struct placement at = {.target = "t1"};
    const char *const env[] = {NULL};
    struct run_order o = {.key = {.uid = "u", .epoch = 1, .try_ = 1},
                          .ns = "default",
                          .name = "w",
                          .argv = argv,
                          .script = "",
                          .cwd = "",
                          .signal = "",
                          .save_signal = "",
                          .document = "",
                          .saves = true,
                          .placement = &at,
                          .env = env,
                          .checkpoint_dir = "/ck",
                          .resume_path = "",
                          .resume_digest = ""};
    struct hub_session session = {0};
    struct hub h = {.session = &session};
    struct wire_order sent;
    struct err e;

    (void)state;
    h.base.env.loop = loop_uv_create(&e);
    assert_non_null(h.base.env.loop);
    str_copy(h.base.target, sizeof h.base.target, "t1");
    assert_int_equal(hub_order(&h, &o, a, &sent, &e), 0);
    assert_false(sent.shared);
    o.shared = true;
    assert_int_equal(hub_order(&h, &o, a, &sent, &e), E_NOTIMPL);
    assert_string_equal(e.field, "spec.checkpoint.layout");
    assert_non_null(strstr(e.text, "target t1 is of an older version"));
    session.shares = true;
    assert_int_equal(hub_order(&h, &o, a, &sent, &e), 0);
    assert_true(sent.shared);
    o.reshard = true; /* nothing to resume: any agent can */
    assert_int_equal(hub_order(&h, &o, a, &sent, &e), 0);
    o.resume_path = "/ck/sealed/e1/cut-1.json";
    assert_int_equal(hub_order(&h, &o, a, &sent, &e), E_NOTIMPL);
    assert_string_equal(e.field, "spec.checkpoint.reshard");
    session.reshards = true;
    assert_int_equal(hub_order(&h, &o, a, &sent, &e), 0);
    assert_true(sent.reshard);
    loop_uv_destroy(h.base.env.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agents_that_do_not_know_it_are_not_given_it)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
