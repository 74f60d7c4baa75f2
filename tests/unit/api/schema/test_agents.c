/* The agents of a Target as a document: what is refused, and what may change later. */
#include <string.h>

#include "api/schema/schema.h"
#include "tests/support/unit.h"

static struct object *with(enum target_type type, const char *const *names)
{
    struct target_agent v[4];
    struct meta m = {.name = "t"};
    struct target_spec s = {.type = type, .tier = TIER_HUB, .agents = v};
    struct target t = {.metadata = &m, .spec = &s};

    for (; names && names[s.n_agents]; s.n_agents++)
        v[s.n_agents] = (struct target_agent){.name = names[s.n_agents]};
    return object_make(kind_by_id(KIND_TARGET), &t);
}

static void says(enum target_type type, const char *const *was, const char *const *now,
                 const char *said)
{
    struct object *old = was ? with(type, was) : NULL, *o = with(type, now);
    struct err e = {0};

    assert_int_equal(object_admit(old, o, &e), said ? E_INVALID : 0);
    if (said && !strstr(e.text, said))
        fail_msg("it says: %s", e.text);
    (void)object_unref(o);
    (void)object_unref(old);
}

static const char *const none[] = {NULL}, *const one[] = {"a", NULL},
                         *const two[] = {"b", "a", NULL}, *const twice[] = {"a", "a", NULL},
                         *const dotted[] = {"a.b", NULL}, *const large[] = {"A", NULL};

static void test_what_may_be_said(void **state)
{
    (void)state;
    says(TARGET_AGENT, NULL, one, NULL);
    says(TARGET_AGENT, NULL, two, NULL);
    says(TARGET_SLURM, NULL, one, "type agent alone");
    says(TARGET_AGENT, NULL, dotted, "lower-case letters");
    says(TARGET_AGENT, NULL, large, "lower-case letters");
    says(TARGET_AGENT, NULL, twice, "a");
}

static void test_addresses(void **state)
{
    static const struct {
        const char *text;
        bool good;
    } v[] = {{"", true},          {"10.0.0.1", true},   {"gpu-1.example", true}, {"fd00::7", true},
             {"10.0.0.1:1", false}, {"a b", false},     {"-x", false},           {"[::1]", false}};

    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct target_agent a = {.name = "a", .address = v[i].text};
        struct meta m = {.name = "t"};
        struct target_spec s = {
            .type = TARGET_AGENT, .tier = TIER_HUB, .agents = &a, .n_agents = 1};
        struct target t = {.metadata = &m, .spec = &s};
        struct object *o = object_make(kind_by_id(KIND_TARGET), &t);
        struct err e = {0};
        if (object_admit(NULL, o, &e) != (v[i].good ? 0 : E_INVALID))
            fail_msg("\"%s\": %s", v[i].text, e.text);
        (void)object_unref(o);
    }
}

/* The name says where a run is, as long as there is a log. */
static void test_what_may_change(void **state)
{
    (void)state;
    says(TARGET_AGENT, one, two, NULL);
    says(TARGET_AGENT, two, one, "was taken away");
    says(TARGET_AGENT, none, one, "from its creation on");
    says(TARGET_AGENT, one, none, "from its creation on");
    says(TARGET_AGENT, none, none, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_may_be_said),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_what_may_change),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
