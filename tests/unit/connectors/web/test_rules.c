/* When a request is tried again, and what no error shows: the same for whoever waits for it. */
#include "connectors/web/web_rules.h"
#include "tests/support/unit.h"

#include <string.h>

static void what_passes_and_what_does_not(void **state)
{
    static const int pass[] = {408, 429, 500, 502, 503, 504};
    static const int stay[] = {200, 301, 307, 400, 401, 403, 404, 409, 412, 501, 505, 507};

    (void)state;
    for (size_t i = 0; i < sizeof pass / sizeof *pass; i++)
        assert_true(web_status_passes(pass[i]));
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        assert_false(web_status_passes(stay[i]));
}

static void it_waits_longer_each_time(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 40; n++) {
        uint64_t most = n >= 7 ? 10000 : (uint64_t)200 << (n - 1);
        assert_int_equal(web_backoff_ms(n, 0), most / 2);
        assert_int_equal(web_backoff_ms(n, most / 2), most);
        assert_in_range(web_backoff_ms(n, UINT64_MAX), most / 2, most);
    }
}

static void retry_after_is_seconds_or_a_date(void **state)
{
    static const struct {
        const char *said, *date;
        uint64_t ms;
    } t[] = {{"", "", 0},
             {"0", "", 0},
             {"7", "", 7000},
             {"-7", "", 0},
             {"7s", "", 0},
             {"99999999999999999999", "", 3600000},
             {"Fri, 24 May 2013 00:00:30 GMT", "Fri, 24 May 2013 00:00:10 GMT", 20000},
             {"Fri, 24 May 2013 00:00:30 GMT", "Fri, 24 May 2013 00:00:31 GMT", 0},
             {"Fri, 24 May 2014 00:00:30 GMT", "Fri, 24 May 2013 00:00:31 GMT", 3600000},
             {"Fri, 24 May 2013 00:00:30 GMT", "", 5000}, /* by our own clock */
             {"soon", "Fri, 24 May 2013 00:00:10 GMT", 0}};

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        assert_int_equal(web_retry_after_ms(t[i].said, t[i].date, 1369353625000), t[i].ms);
}

static void secrets_are_cut_out(void **state)
{
    const char *const secrets[] = {"hunter2hunter2", NULL, "", "abc", "s3cr"};
    char text[] = "key hunter2hunter2, again hunter2hunter2s3cr, abc";

    (void)state;
    web_redact_texts(secrets, sizeof secrets / sizeof *secrets, text);
    assert_string_equal(text, "key ***, again ******, abc"); /* three letters are of any text */
}

static void libcurls_codes_are_ours(void **state)
{
    (void)state;
    assert_int_equal(web_easy_code(0), 0);
    assert_int_equal(web_easy_code(60), E_TLS); /* CURLE_PEER_FAILED_VERIFICATION */
    assert_int_equal(web_easy_code(58), E_TLS); /* CURLE_SSL_CERTPROBLEM */
    assert_int_equal(web_easy_code(7), E_CONNECT);
    assert_int_equal(web_easy_code(28), E_CONNECT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_passes_and_what_does_not),
                                       cmocka_unit_test(it_waits_longer_each_time),
                                       cmocka_unit_test(retry_after_is_seconds_or_a_date),
                                       cmocka_unit_test(secrets_are_cut_out),
                                       cmocka_unit_test(libcurls_codes_are_ours)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
