/* Bodies of frames: what is beyond a field's range is refused with its name, what is not known is
 * passed over, what is written is read as it was. */
#include "connectors/shim/shim.h"
#include "connectors/wire/wire.h"
#include "tests/support/unit.h"

#include <string.h>

static struct arena *mem;
static struct err err;

static int begin(void **state)
{
    (void)state;
    mem = arena_create(0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    mem = arena_destroy(mem);
    return 0;
}

static struct slice text_of(const char *s)
{
    return slice_make(s, strlen(s));
}

static void refused(const struct schema *s, const char *text, const char *field)
{
    void *body = NULL;

    if (wire_read_body(s, text_of(text), mem, &body, &err) == 0)
        fail_msg("taken: %s", text);
    assert_string_equal(err.field, field);
}

static void test_ranges(void **state)
{
    (void)state;
    refused(&schema_run_offer, "{\"key\":\"u.1.1\",\"number\":1,\"leaseMs\":5000}", "number");
    refused(&schema_run_offer, "{\"key\":\"u.1.1\",\"number\":2,\"leaseMs\":0}", "leaseMs");
    refused(&schema_run_offer, "{\"number\":2,\"leaseMs\":5000}", "key");
    refused(&schema_wire_renew, "{\"from\":-1}", "from");
    refused(&schema_wire_renew, "{\"from\":9007199254740994}", "from");
    refused(&schema_wire_renew, "{\"from\":1.5}", "from");
    refused(&schema_wire_renew, "{\"from\":\"5\"}", "from");
    refused(&schema_observation, "{\"key\":\"u/1.1\"}", "key");
    refused(&schema_observation, "{\"key\":\"u.1.1\",\"state\":\"asleep\"}", "state");
    refused(&schema_observation, "{\"key\":\"u.1.1\",\"exitCode\":4294967296}", "exitCode");
    refused(&schema_run_report, "{\"exitCode\":0}", "state");
    refused(&schema_wire_order, "{\"key\":\"u.1.1\",\"workers\":[]}", "workers");
    refused(&schema_wire_renew, "[]", "");
    refused(&schema_wire_renew, "", "");
}

static void test_what_is_not_known_is_passed_over(void **state)
{
    struct wire_renew *q = NULL;

    (void)state;
    assert_int_equal(
        wire_read(wire_renew, text_of("{\"from\":7,\"of\":{\"a\":[1]}}"), mem, &q, &err), 0);
    assert_int_equal(q->from_ms, 7);
    assert_int_equal(q->lease_ms, 0);
    assert_int_equal(q->n_offers, 0);
}

/* Last words of programs are any bytes. */
static void test_a_report_comes_as_it_was(void **state)
{
    struct run_report r = {.step = RUN_STEP_RUNNING,
                           .exit_code = -1,
                           .grant = 3,
                           .lease_ms = 5000,
                           .checkpoint = {.present = true,
                                          .step = 4,
                                          .bytes = 5,
                                          .writeTime = 61250,
                                          .writtenAt = 1795000000123,
                                          .manifest = "sha256:aa"}},
                      got;
    AUTO_BUF b;

    (void)state;
    for (size_t i = 0; i < sizeof r.message - 1; i++)
        r.message[i] = (char)(i + 1);
    buf_init(&b, WIRE_REPORT_MAX);
    assert_int_equal(run_report_print(&r, &b, &err), 0);
    assert_int_equal(run_report_parse(b.p, b.n, &got, &err), 0);
    assert_int_equal(got.step, r.step);
    assert_int_equal(got.exit_code, -1);
    assert_int_equal(got.grant, 3);
    assert_int_equal(got.lease_ms, 5000);
    assert_memory_equal(got.message, r.message, sizeof r.message);
    assert_int_equal(got.checkpoint.writeTime, 61250);
    assert_int_equal(got.checkpoint.writtenAt, 1795000000123);
    assert_string_equal(got.checkpoint.manifest, "sha256:aa");
    assert_true(got.checkpoint.present);
    buf_fini(&b);
    buf_init(&b, 64); /* no room: an error, and no end of the process */
    assert_int_equal(run_report_print(&r, &b, &err), E_TOOLARGE);
    assert_string_equal(err.field, "message");
}

/* A checkpoint that names no cut in a store is none. */
static void test_a_checkpoint_is_settled(void **state)
{
    static const char good[] = "{\"key\":\"u.1.1\",\"checkpoint\":{\"path\":\"/a\",\"digest\":"
                               "\"sha256:aa\"}}",
                      bad[] = "{\"key\":\"u.1.1\",\"checkpoint\":{\"path\":\"a\",\"digest\":"
                              "\"sha256:aa\"}}";
    struct observation *o = NULL;

    (void)state;
    assert_int_equal(wire_read(observation, text_of(good), mem, &o, &err), 0);
    observation_settle(o);
    assert_true(o->checkpoint.present);
    assert_int_equal(o->state, RUN_UNKNOWN);
    assert_int_equal(wire_read(observation, text_of(bad), mem, &o, &err), 0);
    observation_settle(o);
    assert_false(o->checkpoint.present);
    assert_string_equal(o->checkpoint.path, "");
}

static void sink(struct stream *s, const void *p, size_t n)
{
    (void)p;
    *(size_t *)s->arg += n;
}

static void test_what_has_no_room_in_a_frame(void **state)
{
    static const struct stream_ops ops = {.write = sink};
    size_t sent = 0;
    struct stream s = {.ops = &ops, .arg = &sent};
    char *script = mem_alloc(FRAME_BODY_MAX + 1);
    struct wire_order o = {.key = {.uid = "u", .epoch = 1, .try_ = 1}, .script = script};

    (void)state;
    memset(script, 'x', FRAME_BODY_MAX);
    script[FRAME_BODY_MAX] = '\0';
    assert_int_equal(wire_send(&s, AF_SUBMIT, 1, wire_order, &o, &err), E_TOOLARGE);
    assert_string_equal(err.field, "script");
    assert_int_equal(sent, 0);
    script[5] = '\0';
    assert_int_equal(wire_send(&s, AF_SUBMIT, 1, wire_order, &o, &err), 0);
    assert_true(sent > 0);
    mem_free(script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_what_is_not_known_is_passed_over),
        cmocka_unit_test(test_a_report_comes_as_it_was),
        cmocka_unit_test(test_a_checkpoint_is_settled),
        cmocka_unit_test(test_what_has_no_room_in_a_frame),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
