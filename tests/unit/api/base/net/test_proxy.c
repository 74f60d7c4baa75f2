/* HTTP proxies: their URLs, for whom they are, and how their answers are read. */
#include "api/base/net/proxy.h"

#include "api/base/loop/loop.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

static void test_urls(void **state)
{
    static const struct {
        const char *text, *address, *authorization;
    } good[] = {{"http://p:3128", "p:3128", ""},
                {"HTTP://p.example/", "p.example:80", ""},
                {"10.0.0.1:8080", "10.0.0.1:8080", ""},
                {"http://[fd00::1]:3128", "[fd00::1]:3128", ""},
                {"http://anna:s%3Acr%40t@p:1", "p:1", "Basic YW5uYTpzOmNyQHQ="},
                {"http://anna@p:1", "p:1", "Basic YW5uYTo="},
                {"http://a:b@c@p:1", "p:1", "Basic YTpiQGM="}};
    static const char *const bad[] = {"",
                                      "http://",
                                      "http://:3128",
                                      "http://p:",
                                      "http://p:0",
                                      "http://p:70000",
                                      "http://p:1x",
                                      "http://p:1/path",
                                      "http://p:1?x",
                                      "http://p q:1",
                                      "http://p\r\nHost: x:1",
                                      "http://a:%0d@p:1",
                                      "http://a:%4@p:1",
                                      "http://a:%zz@p:1",
                                      "http://[fd00::1:3128",
                                      "https://p:3128",
                                      "socks5://p:1080",
                                      "http://hidden:hidden@"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct proxy p;
        struct err e;
        assert_int_equal(proxy_parse(good[i].text, &p, &e), 0);
        assert_string_equal(p.address, good[i].address);
        assert_string_equal(p.authorization, good[i].authorization);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct proxy p;
        struct err e;
        assert_int_equal(proxy_parse(bad[i], &p, &e), E_INVALID);
        assert_null(strstr(e.text, "hidden"));
    }
}

static void test_options(void **state)
{
    char text[] = "http://anna:hidden@p:3128", plain[] = "http://p:3128", word[] = "p:3128";
    char from[] = "environment";
    struct proxy p;
    struct err e;

    (void)state;
    assert_int_equal(proxy_option(text, &p, &e), 1);
    assert_null(strstr(text, "hidden")); /* no list of processes shows it */
    assert_int_equal(proxy_option(plain, &p, &e), 1);
    assert_string_equal(plain, "http://p:3128");
    assert_int_equal(proxy_option(word, &p, &e), E_INVALID);
    (void)unsetenv("HTTPS_PROXY");
    (void)unsetenv("https_proxy");
    assert_int_equal(proxy_option(from, &p, &e), 0);
    (void)setenv("https_proxy", "http://p:3128", 1);
    (void)setenv("NO_PROXY", "a.example", 1);
    assert_int_equal(proxy_option(from, &p, &e), 1);
    assert_string_equal(p.bypass, "a.example");
    (void)setenv("HTTPS_PROXY", "https://p:3128", 1);
    assert_int_equal(proxy_option(from, &p, &e), E_INVALID);
    assert_non_null(strstr(e.text, "HTTPS_PROXY"));
    (void)unsetenv("HTTPS_PROXY");
    (void)unsetenv("https_proxy");
    (void)unsetenv("NO_PROXY");
}

static void test_logins(void **state)
{
    struct proxy p = {.address = "p:1"};
    struct err e;
    char much[PROXY_LOGIN_MAX + 8];

    (void)state;
    assert_int_equal(proxy_login(&p, "anna:secret\r\nmore", &e), 0);
    assert_string_equal(p.authorization, "Basic YW5uYTpzZWNyZXQ=");
    assert_int_equal(proxy_login(&p, "", &e), E_INVALID);
    assert_int_equal(proxy_login(&p, "hidden", &e), E_INVALID);
    assert_null(strstr(e.text, "hidden"));
    assert_int_equal(proxy_login(&p, "a:\x01", &e), E_INVALID);
    memset(much, 'x', sizeof much);
    much[1] = ':';
    much[PROXY_LOGIN_MAX] = '\0';
    assert_int_equal(proxy_login(&p, much, &e), 0);
    much[PROXY_LOGIN_MAX] = 'x';
    much[PROXY_LOGIN_MAX + 1] = '\0';
    assert_int_equal(proxy_login(&p, much, &e), E_INVALID);
    proxy_wipe(&p);
    assert_string_equal(p.authorization, "");
}

static void test_for_whom(void **state)
{
    static const struct {
        const char *bypass, *address;
        bool through;
    } v[] = {{"", "a.example:7443", true},
             {"*", "a.example:7443", false},
             {"example", "a.example:7443", false},
             {".example", "a.example:7443", false},
             {"*.example", "A.EXAMPLE:7443", false},
             {"a.example", "a.example:7443", false},
             {".a.example", "a.example:7443", false},
             {"xample", "a.example:7443", true},
             {"a.example.com", "a.example:7443", true},
             {"b, a.example:7443", "a.example:7443", false},
             {"a.example:443", "a.example:7443", true},
             {"127.0.0.1", "127.0.0.1:7443", false},
             {"127.0.0.1:1", "127.0.0.1:7443", true},
             {"0.0.1", "127.0.0.1:7443", true},
             {"10.0.0.0/8", "10.200.3.4:7443", false},
             {"10.0.0.0/9", "10.200.3.4:7443", true},
             {"10.128.0.0/9", "10.200.3.4:7443", false},
             {"0.0.0.0/0", "10.200.3.4:7443", false},
             {"10.0.0.0/33", "10.0.0.1:7443", true},
             {"10.0.0.0/", "10.0.0.1:7443", true},
             {"10.0.0.0/8", "a.example:7443", true},
             {"fd00::/8", "[fd12::1]:7443", false},
             {"fd00::1", "[fd00::1]:7443", false},
             {"[fd00::1]:7443", "[fd00:0::1]:7443", false},
             {"[fd00::1]:1", "[fd00::1]:7443", true},
             {" ,, ", "a.example:7443", true}};
    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct proxy p = {.address = "p:1"};
        str_copy(p.bypass, sizeof p.bypass, v[i].bypass);
        if (proxy_is_for(&p, v[i].address) != v[i].through)
            fail_msg("\"%s\" and %s", v[i].bypass, v[i].address);
    }
}

/* As one piece, and byte by byte. Returns the status, 0 for more to come, or the error. */
static int status_of(const char *text, size_t n, size_t *ret_taken)
{
    struct proxy_answer whole = {0}, slow = {0};
    struct err e;
    size_t taken = 0, one = 0, i = 0;
    int rc = proxy_answer_take(&whole, text, n, &taken, &e), rv = 0;

    while (rv == 0 && i < n)
        rv = proxy_answer_take(&slow, text + i++, 1, &one, &e);
    assert_int_equal(rv, rc);
    if (rc > 0) {
        assert_int_equal(slow.status, whole.status);
        assert_int_equal(i, taken);
    }
    *ret_taken = taken;
    return rc > 0 ? whole.status : rc;
}

static void test_answers(void **state)
{
    static const struct {
        const char *text;
        int status;
        size_t after; /* bytes that are none of it */
    } v[] = {{"HTTP/1.1 200 Connection established\r\n\r\n", 200, 0},
             {"HTTP/1.0 200\r\n\r\n", 200, 0},
             {"HTTP/1.1 204 \nVia: x\n\n", 204, 0},
             {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, 3},
             {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 407 No\r\nA: b\r\n\r\n", 407, 0},
             {"HTTP/1.1 503 \xff\xfe\r\nX: \x01\r\n\r\n", 503, 0},
             {"HTTP/1.1 200 OK\r\n", 0, 0},
             {"HTTP/1.1 200 OK\r\nA: b\r\n\r", 0, 0},
             {"", 0, 0},
             {"\r\n", E_CONNECT, 0},
             {"HTTP/2 200\r\n\r\n", E_CONNECT, 0},
             {"HTTP/1.1 20\r\n\r\n", E_CONNECT, 0},
             {"HTTP/1.1 2000 OK\r\n\r\n", E_CONNECT, 0},
             {"HTTP/1.1 099 OK\r\n\r\n", E_CONNECT, 0},
             {"HTTP/1.1 600 OK\r\n\r\n", E_CONNECT, 0},
             {"HTTP/1.1  200 OK\r\n\r\n", E_CONNECT, 0},
             {"HTTP/1.1 101 Switching\r\n\r\n", E_CONNECT, 0},
             {"HTTP/1.1 200 OK\rX\r\n\r\n", E_CONNECT, 0},
             {"SSH-2.0-x\r\n", E_CONNECT, 0},
             {"\x15\x03\x01", E_CONNECT, 0}};
    size_t taken;

    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        size_t n = strlen(v[i].text);
        int got = status_of(v[i].text, n, &taken);
        if (got != v[i].status || (got > 0 && n - taken != v[i].after))
            fail_msg("%zu: %d, %zu taken", i, got, taken);
    }
    assert_int_equal(status_of("HTTP/1.1 200 O\0K\r\n\r\n", 20, &taken), E_CONNECT);
}

static void test_too_long(void **state)
{
    struct proxy_answer a = {0};
    struct err e;
    char line[1000];
    size_t taken, n = 0;
    int rc = proxy_answer_take(&a, "HTTP/1.1 200 OK\r\n", 17, &taken, &e);

    (void)state;
    memset(line, 'x', sizeof line);
    while (rc == 0 && (n += sizeof line) < 100000)
        rc = proxy_answer_take(&a, line, sizeof line, &taken, &e);
    assert_int_equal(rc, E_CONNECT);
    assert_in_range(n, PROXY_ANSWER_MAX - sizeof line, PROXY_ANSWER_MAX + sizeof line);
    assert_non_null(strstr(e.text, "longer than"));
}

/* Answers that were damaged anywhere end in one of three ways, the same by bytes and as a whole,
 * and never take more than there is. */
static void test_damage(void **state)
{
    static const char good[] = "HTTP/1.1 100 Go on\r\nA: b\r\n\r\nHTTP/1.1 200 Yes\r\n"
                               "Proxy-Agent: x/1\r\nDate: today\r\n\r\n\x16\x03\x01";
    unsigned long seed = 7;
    size_t taken;

    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        char text[sizeof good];
        size_t n = sizeof good - 1;
        memcpy(text, good, sizeof good);
        for (unsigned k = 0; k < 1 + round % 3; k++) {
            seed = seed * 6364136223846793005ul + 1442695040888963407ul;
            text[(seed >> 33) % n] = (char)(seed >> 57);
        }
        seed = seed * 6364136223846793005ul + 1442695040888963407ul;
        n = round % 5 ? n : (seed >> 33) % n;
        int got = status_of(text, n, &taken);
        assert_true(got == 0 || got == E_CONNECT || (got >= 200 && got < 600));
        assert_true(taken <= n);
    }
}

static void test_what_a_status_means(void **state)
{
    static const struct {
        int status;
        const char *word;
    } v[] = {{407, "user and a password"}, {401, "user and a password"}, {403, "rules"},
             {405, "no ways at all"},      {501, "no ways at all"},      {502, "at the moment"},
             {504, "(504)"},               {500, "a:1 at the moment"},   {302, "(302)"},
             {400, "(400)"}};
    struct err e;

    (void)state;
    assert_int_equal(proxy_answer_judge(200, "a:1", &e), 0);
    assert_int_equal(proxy_answer_judge(299, "a:1", &e), 0);
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        assert_int_equal(proxy_answer_judge(v[i].status, "a:1", &e), E_CONNECT);
        if (!strstr(e.text, v[i].word))
            fail_msg("%d: %s", v[i].status, e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_urls),
                                       cmocka_unit_test(test_options),
                                       cmocka_unit_test(test_logins),
                                       cmocka_unit_test(test_for_whom),
                                       cmocka_unit_test(test_answers),
                                       cmocka_unit_test(test_too_long),
                                       cmocka_unit_test(test_damage),
                                       cmocka_unit_test(test_what_a_status_means)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
