/* What an S3 store has already is not sent to it again, and a copy that it makes is believed no
 * more than an upload. s3_kit.h has the server. */
#include "tests/support/s3_kit.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define COPIES " copied\n"

/* A base that never changes, and a state that does; both of some bytes. */
static void save(const char *dir, int64_t step)
{
    char base[65], state[65], text[64], m[640], name[32];

    (void)snprintf(text, sizeof text, "state of step %lld", (long long)step);
    (void)snprintf(name, sizeof name, "state-%lld", (long long)step);
    kit_put(dir, "base", "weights that are frozen", 23);
    kit_put(dir, name, text, strlen(text));
    kit_hex_of("weights that are frozen", 23, base);
    kit_hex_of(text, strlen(text), state);
    (void)snprintf(m, sizeof m,
                   "{\"step\":%lld,\"files\":[{\"name\":\"base\",\"bytes\":23,\"sha256\":\"%s\"},"
                   "{\"name\":\"%s\",\"bytes\":%zu,\"sha256\":\"%s\"}]}",
                   (long long)step, base, name, strlen(text), state);
    kit_put_manifest(dir, m);
}

static void save_and_look(struct checkpoint_sealer *s, int64_t step)
{
    (void)s3_kit_say("requests");
    save(checkpoint_sealer_dir(s), step);
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, step);
}

/* It is whole, and another machine can resume from it. */
static void holds(struct checkpoint_sealer *s, int64_t epoch, int64_t step)
{
    struct checkpoint_found f;
    struct err e;

    struct cut c = kit_cut(epoch, &s, 1);
    s3_kit_machine("another");
    if (kit_verify_as(&c, WORKLOAD, 1, 0, &f, &e) < 0)
        fail_msg("%s: %s", e.field, e.text);
    assert_int_equal(f.step, step);
    s3_kit_machine("one");
}

static void what_has_not_changed_is_not_sent_again(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);

    (void)state;
    save_and_look(s, 1);
    assert_int_equal(s3_kit_count(s3_kit_say("requests"), COPIES), 0);
    for (int64_t step = 2; step <= 4; step++) {
        save_and_look(s, step);
        const char *asked = s3_kit_say("requests");
        assert_int_equal(s3_kit_count(asked, COPIES), 1);
        assert_int_equal(s3_kit_count(asked, "PUT "), 3); /* the copy, the state, the manifest */
    }
    holds(s, 1, 4);
    (void)checkpoint_sealer_destroy(s);
}

/* A run that was moved sends what it resumed from no second time; nor does a shim begun anew. */
static void neither_after_a_move(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);

    (void)state;
    save_and_look(s, 1);
    holds(s, 1, 1);
    (void)checkpoint_sealer_destroy(s);
    s = kit_sealer(1, 0);
    kit_look(s); /* finds what is there */
    save_and_look(s, 2);
    assert_int_equal(s3_kit_count(s3_kit_say("requests"), COPIES), 1);
    (void)kit_cut(1, &s, 1);
    (void)checkpoint_sealer_destroy(s);
    s3_kit_machine("two");
    s = kit_sealer(2, 0);
    save_and_look(s, 3);
    assert_int_equal(s3_kit_count(s3_kit_say("requests"), COPIES), 1);
    holds(s, 2, 3);
    (void)checkpoint_sealer_destroy(s);
}

/* It cannot copy, says that it did, or copies something else; what it has is spoilt, or gone. */
static void what_cannot_be_copied_is_sent(void **state)
{
    static const char *const faults[] = {
        "fault 1 PUT base 501",       "fault 1 PUT base inside",   "fault 1 PUT base html200",
        "fault 1 PUT base 403",       "fault 1 PUT base truncate", "bend @s6/base byte",
        "bend @s7/base cut",          "bend @s8/base remove",      "bend @s9/manifest.json remove",
        "bend @s10/manifest.json cut"};
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    int64_t step = 1;

    (void)state;
    save_and_look(s, step);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        (void)s3_kit_say("%s", faults[i]);
        save_and_look(s, ++step);
        holds(s, 1, step);
    }
    (void)checkpoint_sealer_destroy(s);
}

/* An answer that is lost, and a store that wants to be asked less often. */
static void copies_are_asked_for_again(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);

    (void)state;
    save_and_look(s, 1);
    (void)s3_kit_say("fault 1 PUT base lost");
    save_and_look(s, 2);
    assert_int_equal(s3_kit_count(s3_kit_say("requests"), COPIES), 2);
    (void)s3_kit_say("fault 2 PUT base 503");
    save_and_look(s, 3);
    assert_int_equal(s3_kit_count(s3_kit_say("requests"), COPIES), 3);
    holds(s, 1, 3);
    (void)checkpoint_sealer_destroy(s);
}

/* ---- uploads under faults ---- */
/* A storm: everything is refused once or twice, and nothing is lost or kept by halves. */
static void a_throttling_storm_passes(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);

    (void)state;
    (void)s3_kit_say("fault 3 * * 503");
    save_and_look(s, 1);
    (void)s3_kit_say("fault 2 HEAD * 503");
    (void)s3_kit_say("fault 2 PUT manifest 503");
    save_and_look(s, 2);
    holds(s, 1, 2);
    (void)checkpoint_sealer_destroy(s);
}

/* The connection is cut when half of the body has come: it is sent again, whole. */
static void an_upload_that_was_cut_is_sent_again(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);

    (void)state;
    (void)s3_kit_say("fault 2 PUT state cut");
    save_and_look(s, 1);
    assert_int_equal(s3_kit_count(s3_kit_say("requests"), " cut\n"), 2);
    holds(s, 1, 1);
    (void)checkpoint_sealer_destroy(s);
}

/* The token's time is over: that is no verdict on what is there, nothing is told, nobody is asked a
 * hundred times, and with another one it goes on. */
static void an_expired_token_is_said(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    struct checkpoint_progress p = {0};
    struct err e = {0};

    (void)state;
    save_and_look(s, 1);
    save(checkpoint_sealer_dir(s), 2);
    (void)s3_kit_say("requests");
    (void)s3_kit_say("fault 50 * * expired");
    assert_true(checkpoint_sealer_look(s, false, &p, &e) < 0);
    assert_string_equal(e.field, CHECKPOINT_UNREACHABLE);
    assert_non_null(strstr(e.text, "ExpiredToken"));
    assert_null(strstr(e.text, S3_KIT_SECRET));
    assert_int_equal(checkpoint_sealer_newest(s)->step, 1);
    assert_int_equal(s3_kit_count(s3_kit_say("requests"), "expired"), 1);
    (void)s3_kit_say("faults");
    kit_look(s);
    assert_int_equal(checkpoint_sealer_newest(s)->step, 2);
    holds(s, 1, 2);
    (void)checkpoint_sealer_destroy(s);
}

/* A store may say when in words of a date; and what it says may hold what it was sent. */
static void what_the_store_says_is_kept_and_cut(void **state)
{
    struct checkpoint_sealer *s = kit_sealer(1, 0);
    struct checkpoint_progress p = {0};
    struct timespec from, to;
    struct err e = {0};

    (void)state;
    (void)s3_kit_say("fault 1 PUT base 503-date");
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &from), 0);
    save_and_look(s, 1);
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &to), 0);
    assert_true(to.tv_sec - from.tv_sec >= 1); /* it said two seconds, by its clock */
    save(checkpoint_sealer_dir(s), 2);
    (void)s3_kit_say("fault 1 PUT state echo");
    assert_true(checkpoint_sealer_look(s, false, &p, &e) < 0);
    assert_non_null(strstr(e.text, "your secret is ***"));
    assert_null(strstr(e.text, S3_KIT_SECRET));
    (void)checkpoint_sealer_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {S3T(what_has_not_changed_is_not_sent_again),
                                       S3T(neither_after_a_move),
                                       S3T(what_cannot_be_copied_is_sent),
                                       S3T(copies_are_asked_for_again),
                                       S3T(a_throttling_storm_passes),
                                       S3T(an_upload_that_was_cut_is_sent_again),
                                       S3T(an_expired_token_is_said),
                                       S3T(what_the_store_says_is_kept_and_cut)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
