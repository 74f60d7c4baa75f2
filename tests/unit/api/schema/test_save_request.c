/* spec.saveRequest and spec.checkpoint.saveSignal: what is refused when they are written. */
#include "api/schema/schema.h"
#include "tests/support/unit.h"

#include <cJSON.h>
#include <stdio.h>
#include <string.h>

static struct object *made(const char *spec, int64_t number, enum phase phase)
{
    AUTO_ARENA a = arena_create(0);
    char text[1024];
    struct object *o = NULL;
    struct err e;

    (void)snprintf(text, sizeof text,
                   "{\"apiVersion\":\"hanse.dev/"
                   "v1alpha1\",\"kind\":\"Workload\",\"metadata\":{\"name\":\"w\",\"namespace\":"
                   "\"default\"},\"spec\":{\"run\":"
                   "{\"command\":[\"x\"]},\"saveRequest\":%lld%s}}",
                   (long long)number, spec);
    cJSON *j = NULL;
    assert_int_equal(json_parse(text, strlen(text), &j, &e), 0);
    assert_int_equal(object_from_json(kind_by_id(KIND_WORKLOAD), j, DECODE_USER, &o, &e), 0);
    cJSON_Delete(j);
    struct workload *w = object_edit_as(o, workload, a);
    w->status = arena_new(a, struct workload_status);
    *w->status = (struct workload_status){.phase = phase,
                                          .reason = "",
                                          .message = "",
                                          .queue = "",
                                          .revision = "",
                                          .migration = "",
                                          .resumedFrom = "",
                                          .activeIndexes = "",
                                          .completedIndexes = "",
                                          .failedIndexes = ""};
    struct object *with = object_make(kind_by_id(KIND_WORKLOAD), w);
    (void)object_unref(o);
    return with;
}

#define WAITS ",\"checkpoint\":{\"store\":\"/s\",\"saveSignal\":\"SIGUSR1\"}"

static void test_requests(void **state)
{
    static const struct {
        const char *spec;
        int64_t was, is;
        enum phase phase;
        const char *says; /* NULL: it is taken */
    } cases[] = {{WAITS, 0, 1, PHASE_RUNNING, NULL},
                 {WAITS, 4, 4, PHASE_SUCCEEDED, NULL},
                 {WAITS, 4, 9007199254740991, PHASE_RUNNING, NULL},
                 {WAITS, 4, 3, PHASE_RUNNING, "higher number"},
                 {WAITS, 4, 0, PHASE_RUNNING, "higher number"},
                 {WAITS, 0, 1, PHASE_QUEUED, "only what is Running"},
                 {WAITS, 0, 1, PHASE_SUCCEEDED, "only what is Running"},
                 {WAITS ",\"array\":{\"count\":2}", 0, 1, PHASE_RUNNING, "hanse save w-0"},
                 {",\"checkpoint\":{\"store\":\"/s\"}", 0, 1, PHASE_RUNNING, "saveSignal"},
                 {"", 0, 1, PHASE_RUNNING, "saveSignal"}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct object *was = made(cases[i].spec, cases[i].was, cases[i].phase),
                      *is = made(cases[i].spec, cases[i].is, cases[i].phase);
        struct err e = {0};
        int rc = object_admit(was, is, &e);
        assert_int_equal(rc, cases[i].says ? E_INVALID : 0);
        if (cases[i].says)
            assert_non_null(strstr(e.text, cases[i].says));
        (void)object_unref(was);
        (void)object_unref(is);
    }
}

static void test_signals(void **state)
{
    static const struct {
        const char *spec;
        bool taken;
    } cases[] = {{WAITS, true},
                 {",\"checkpoint\":{\"saveSignal\":\"SIGWINCH\"}", true},
                 {",\"checkpoint\":{\"saveSignal\":\"SIGKILL\"}", false},
                 {",\"checkpoint\":{\"saveSignal\":\"USR1\"}", false},
                 {",\"checkpoint\":{\"signal\":\"SIGUSR2\",\"saveSignal\":\"SIGUSR2\"}", false}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct object *o = made(cases[i].spec, 0, PHASE_QUEUED);
        struct err e = {0};
        assert_int_equal(object_admit(NULL, o, &e), cases[i].taken ? 0 : E_INVALID);
        if (!cases[i].taken)
            assert_string_equal(e.field, "spec.checkpoint.saveSignal");
        assert_int_equal(object_admit(o, o, &e) && !strstr(e.text, "of its own"), 0);
        (void)object_unref(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_requests),
                                       cmocka_unit_test(test_signals)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
