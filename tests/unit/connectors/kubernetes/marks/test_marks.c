/* Names of Jobs, marks that nobody else can make, and which rank is on which node. */
#include "connectors/kubernetes/marks/marks.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

/* Not for secrets: two texts of one sum are none that this test makes. */
static void sign(void *arg, const char *text, unsigned char ret[HOME_MAC_BYTES])
{
    uint64_t h = *(const uint64_t *)arg;

    for (unsigned i = 0; i < HOME_MAC_BYTES; i++) {
        for (const char *s = text; *s; s++)
            h = (h ^ (unsigned char)*s) * 1099511628211u;
        ret[i] = (unsigned char)(h >> 32);
    }
}

static bool holds(void *arg, const char *text, const unsigned char mac[HOME_MAC_BYTES])
{
    unsigned char own[HOME_MAC_BYTES];

    sign(arg, text, own);
    return !memcmp(own, mac, sizeof own);
}

static uint64_t first = 7, second = 8;
static const struct home_keys keys = {.sign = sign, .holds = holds, .arg = &first};
static const struct home_keys other = {.sign = sign, .holds = holds, .arg = &second};

static const struct kube_mark mark = {.key = {.uid = "u-1", .epoch = 3, .try_ = 2},
                                      .cluster = "c1",
                                      .place = "work",
                                      .ns = "team",
                                      .name = "job.a",
                                      .ranks = 4,
                                      .state_rv = 77};

static void a_name_is_one_that_pods_can_have(void **state)
{
    struct run_key k = {.uid = "0b5e9c9e-6f0c-4d2e-9d1b-0f6a6a0c1234", .epoch = 12, .try_ = 3};
    char name[KUBE_NAME_MAX];
    struct err e;

    (void)state;
    assert_int_equal(kube_run_name(&k, 4096, name, &e), 0);
    assert_string_equal(name, "hanse-0b5e9c9e-6f0c-4d2e-9d1b-0f6a6a0c1234-12-3");
    k.epoch = 1234567890123456;
    assert_int_equal(kube_run_name(&k, 1, name, &e), 0);
    k.epoch = 12345678901234567;
    assert_int_equal(kube_run_name(&k, 1, name, &e), E_INVALID); /* with "-0" behind it */
    k.epoch = 1;
    str_copy(k.uid, sizeof k.uid, "A_b");
    assert_int_equal(kube_run_name(&k, 1, name, &e), E_INVALID);
}

static void a_mark_holds_where_it_was_made(void **state)
{
    struct kube_mark m;
    char text[KUBE_MARK_MAX], changed[KUBE_MARK_MAX];
    struct err e;

    (void)state;
    assert_int_equal(kube_mark_make(&mark, &keys, text, &e), 0);
    assert_true(kube_mark_read(text, &keys, &m));
    assert_true(run_key_same(&m.key, &mark.key));
    assert_string_equal(m.cluster, "c1");
    assert_string_equal(m.place, "work");
    assert_string_equal(m.ns, "team");
    assert_string_equal(m.name, "job.a");
    assert_int_equal(m.ranks, 4);
    assert_int_equal(m.state_rv, 77);
    assert_false(kube_mark_read(text, &other, &m));
    assert_false(kube_mark_read(text, NULL, &m));
    for (size_t i = 0; i < strlen(text); i++) { /* no letter of it can be another one */
        str_copy(changed, sizeof changed, text);
        changed[i] = changed[i] == '1' ? '2' : '1';
        assert_false(kube_mark_read(changed, &keys, &m));
        changed[i] = '\0';
        assert_false(kube_mark_read(changed, &keys, &m));
    }
    assert_int_equal(kube_mark_make(&mark, NULL, text, &e), E_UNAVAIL);
}

static bool is_ours_of(const char *place, const char *name, const char *key, bool job,
                       const char *owners)
{
    char text[KUBE_MARK_MAX], json[4096];
    struct kube_mark m;

    assert_int_equal(kube_mark_make(&mark, &keys, text, NULL), 0);
    (void)snprintf(json, sizeof json,
                   "{\"metadata\":{\"namespace\":\"%s\",\"name\":\"%s\",\"labels\":{"
                   "\"" KUBE_RUN_LABEL "\":\"%s\"},\"annotations\":{\"" KUBE_MARK_ANNOTATION
                   "\":\"%s\"},\"ownerReferences\":[%s]}}",
                   place, name, key, text, owners);
    cJSON *o = cJSON_Parse(json);
    bool is = kube_mark_of(o, job, &keys, &m);
    cJSON_Delete(o);
    return is;
}

static bool is_ours(const char *place, const char *name, const char *key, bool job)
{
    return is_ours_of(place, name, key, job, "");
}

static bool is_owned(const char *kind, const char *name, bool controller)
{
    char text[200];

    (void)snprintf(text, sizeof text,
                   "{\"kind\":\"%s\",\"name\":\"%s\",\"uid\":\"u\",\"controller\":%s}", kind, name,
                   controller ? "true" : "false");
    return is_ours_of("work", "p", "u-1.3.2", false, text);
}

/* Of a Job of ours, or made by one that was deleted without its pods. */
static void a_pod_is_ours_by_its_job(void **state)
{
    (void)state;
    assert_true(is_owned("Job", "hanse-u-1-3-2", true));
    assert_false(is_owned("Job", "hanse-u-1-3-2", false));
    assert_false(is_owned("Job", "hanse-u-1-3-3", true));
    assert_false(is_owned("ReplicaSet", "hanse-u-1-3-2", true));
    assert_true(is_ours("work", "hanse-u-1-3-2-0-abcde", "u-1.3.2", false));
    assert_false(is_ours("work", "hanse-u-1-3-20-0-abcde", "u-1.3.2", false));
    assert_false(is_ours("work", "debug", "u-1.3.2", false));
}

static void a_mark_that_was_copied_is_none(void **state)
{
    (void)state;
    assert_true(is_ours("work", "hanse-u-1-3-2", "u-1.3.2", true));
    assert_true(is_ours("work", "hanse-u-1-3-2-0-abcde", "u-1.3.2", false));
    assert_false(is_ours("other", "hanse-u-1-3-2", "u-1.3.2", true));
    assert_false(is_ours("work", "another", "u-1.3.2", true));
    assert_false(is_ours("work", "hanse-u-1-3-2", "u-1.3.3", true));
    assert_false(is_ours("other", "p", "u-1.3.2", false));
}

static void ranks_are_told_by_nodes(void **state)
{
    static const char *const nodes[] = {"a", "a", "a", "b-1.x", "a", "c", "c"};
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF text;

    (void)state;
    buf_init(&text, 1000);
    kube_nodes_print(nodes, 7, &text);
    assert_string_equal(text.p, "a*3 b-1.x a c*2");
    for (int64_t i = 0; i < 7; i++)
        assert_string_equal(kube_nodes_of_rank(text.p, i, a), nodes[i]);
    assert_null(kube_nodes_of_rank(text.p, 7, a));
    assert_null(kube_nodes_of_rank(text.p, -1, a));
    assert_null(kube_nodes_of_rank("a*0 b", 0, a));
    assert_null(kube_nodes_of_rank("a*x b", 0, a));
    assert_null(kube_nodes_of_rank("", 0, a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_name_is_one_that_pods_can_have),
                                       cmocka_unit_test(a_mark_holds_where_it_was_made),
                                       cmocka_unit_test(a_mark_that_was_copied_is_none),
                                       cmocka_unit_test(a_pod_is_ours_by_its_job),
                                       cmocka_unit_test(ranks_are_told_by_nodes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
