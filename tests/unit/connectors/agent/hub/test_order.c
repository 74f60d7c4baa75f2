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
    h.session = NULL; /* away: nobody knows what it can do, and nothing is sent */
    assert_int_equal(hub_order(&h, &o, a, &sent, &e), 0);
    loop_uv_destroy(h.base.env.loop);
}

/* Its lease counts from when the whole was asked for, however much later this part of it goes. */
static void part_of_a_gang_is_told_of_the_whole(void **state)
{
    AUTO_ARENA a = arena_create(0);
    const char *const argv[] = {"true", NULL}, *const peers[] = {"sa", "sb"};
    struct assignment at = {.node = "t.b.n", .rank = 3};
    struct placement p = {.target = "t", .assignments = &at, .n_assignments = 1};
    const char *const env[] = {NULL};
    struct run_span span = {.world = 4, .address = "10.0.0.1", .port = 15000, .peers = peers};
    struct run_order o = {.key = {.uid = "u", .epoch = 1, .try_ = 1},
                          .ns = "default",
                          .name = "w",
                          .argv = argv,
                          .script = "",
                          .cwd = "",
                          .signal = "",
                          .save_signal = "",
                          .document = "",
                          .placement = &p,
                          .env = env,
                          .span = &span};
    struct hub_session session = {.beat_ms = 1u << 20};
    struct hub h = {.session = &session};
    struct wire_order sent;
    struct err e;

    (void)state;
    h.base.env.loop = loop_uv_create(&e);
    assert_non_null(h.base.env.loop);
    span.n_peers = 2;
    span.asked_ms = session.beat_came_ms = loop_now_ms(h.base.env.loop);
    assert_int_equal(hub_order(&h, &o, a, &sent, &e), E_NOTIMPL); /* an older version */
    assert_non_null(strstr(e.text, "span agents"));
    session.spans = true;
    assert_int_equal(hub_order(&h, &o, a, &sent, &e), 0);
    uint64_t from = sent.lease_from_ms;
    span.asked_ms -= 3000;
    assert_int_equal(hub_order(&h, &o, a, &sent, &e), 0);
    assert_int_equal(from - sent.lease_from_ms, 3000);
    assert_int_equal(sent.world, 4);
    assert_int_equal(sent.n_workers, 1);
    assert_int_equal(sent.workers[0].rank, 3);
    assert_string_equal(sent.rendezvous, "10.0.0.1");
    assert_int_equal(sent.rendezvous_port, 15000);
    assert_string_equal(sent.peers[1], "sb");
    o.checkpoint_dir = "/srv/ck";
    assert_int_equal(hub_order(&h, &o, a, &sent, &e), E_NOTIMPL); /* an older version */
    assert_non_null(strstr(e.text, "makes no checkpoints of gangs"));
    session.gathers = true;
    assert_int_equal(hub_order(&h, &o, a, &sent, &e), 0);
    loop_uv_destroy(h.base.env.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agents_that_do_not_know_it_are_not_given_it),
        cmocka_unit_test(part_of_a_gang_is_told_of_the_whole)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
