/* Streams through an HTTP proxy: TLS with the peer inside, and whatever a proxy may do instead of
 * opening the way. The peer listens where only the proxy gets to: on a unix socket. */
#include "tests/support/base/stream_kit.h"

#include "api/base/net/proxy.h"

enum trick { OPENS, ANSWERS, HANGS, DRIPS, LIES };

static struct fake {
    struct listener *li;
    struct proxy proxy;
    enum trick trick;
    const char *answer; /* by default that the way is open */
    char peer[160], request[2048];
    size_t n, fed;
    struct stream *in, *out;
    struct timer drip;
} F;

static void drop(struct stream **s)
{
    static const struct stream_events nobody = {0};

    if (*s) {
        stream_set(*s, &nobody, NULL);
        stream_close(*s);
    }
    *s = NULL;
}

static void out_data(struct stream *s, const void *p, size_t n, void *arg)
{
    (void)s;
    (void)arg;
    if (F.in)
        stream_write(F.in, p, n);
}

static void out_closed(struct stream *s, const struct err *why, void *arg)
{
    (void)s;
    (void)why;
    (void)arg;
    F.out = NULL;
    drop(&F.in);
}

static const struct stream_events out_events = {.data = out_data, .closed = out_closed};

static void drip(void *arg)
{
    (void)arg;
    if (!F.in)
        return;
    if (F.answer[F.fed])
        stream_write(F.in, F.answer + F.fed++, 1);
    else
        drop(&F.in);
    timer_start(&F.drip, 1);
}

static void asked(struct echo *w)
{
    struct err e;

    if (F.trick == OPENS || F.trick == LIES) {
        /* Without TLS of its own: it hands on what comes. */
        assert_int_equal(
            stream_connect(w->l, F.peer, NULL, NULL, 1000, &out_events, NULL, &F.out, &e), 0);
    }
    if (F.trick == DRIPS)
        drip(NULL);
    else if (F.trick != HANGS)
        stream_write(F.in, F.answer, strlen(F.answer));
    if (F.trick == ANSWERS)
        drop(&F.in);
}

static void in_data(struct stream *s, const void *p, size_t n, void *arg)
{
    bool was = strstr(F.request, "\r\n\r\n") != NULL;

    (void)s;
    if (was) {
        if (F.out)
            stream_write(F.out, p, n);
        return;
    }
    assert_true(F.n + n < sizeof F.request);
    memcpy(F.request + F.n, p, n);
    F.n += n;
    if (strstr(F.request, "\r\n\r\n"))
        asked(arg);
}

static void in_closed(struct stream *s, const struct err *why, void *arg)
{
    (void)s;
    (void)why;
    (void)arg;
    F.in = NULL;
    drop(&F.out);
}

static const struct stream_events in_events = {.data = in_data, .closed = in_closed};

static void accepted(struct listener *li, struct stream *s, void *arg)
{
    (void)li;
    F.in = s;
    stream_set(s, &in_events, arg);
}

static void begin(struct echo *w, enum trick trick, const char *answer, const char *login)
{
    struct err e;
    struct listener *behind;
    char url[200];
    int port;

    echo_init(w, "127.0.0.1:0");
    F = (struct fake){.trick = trick,
                      .answer = answer ? answer : "HTTP/1.1 200 Connection established\r\n\r\n"};
    (void)snprintf(F.peer, sizeof F.peer, "unix:%s", echo_path("behind"));
    assert_int_equal(
        listener_create(w->l, F.peer, w->server, echo_accept, w, &behind, NULL, &e), 0);
    assert_int_equal(
        listener_create(w->l, "127.0.0.1:0", NULL, accepted, w, &F.li, &port, &e), 0);
    (void)snprintf(url, sizeof url, "http://%s127.0.0.1:%d", login, port);
    assert_int_equal(proxy_parse(url, &F.proxy, &e), 0);
    timer_init(&F.drip, w->l, drip, NULL);
    w->client = echo_config(false, NULL, "ca", NULL);
    str_copy(w->address, sizeof w->address, "127.0.0.1:1"); /* where nobody listens */
}

static void dial(struct echo *w, uint64_t deadline_ms)
{
    struct err e;

    if (stream_connect_via(w->l, &F.proxy, w->address, w->client, NULL, deadline_ms,
                           &echo_client_events, w, &w->c, &e))
        fail_msg("%s", e.text);
}

static void end(struct echo *w)
{
    timer_stop(&F.drip);
    echo_fini(w);
}

static void test_way(void **state)
{
    struct echo w;
    char *big = calloc(1, ECHO_BIG);

    (void)state;
    begin(&w, OPENS, NULL, "anna:s3cret@");
    w.shut_after = true;
    dial(&w, 5000);
    stream_write(w.c, big, ECHO_BIG);
    free(big);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_true(w.open);
    assert_int_equal(w.got, ECHO_BIG);
    assert_int_equal(w.why.code, 0);
    assert_ptr_equal(strstr(F.request, "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n"),
                     F.request);
    assert_non_null(strstr(F.request, "\r\nProxy-Authorization: Basic YW5uYTpzM2NyZXQ=\r\n"));
    end(&w);
}

static void fails(enum trick trick, const char *answer, uint64_t deadline_ms, int code,
                  const char *word)
{
    struct echo w;

    begin(&w, trick, answer, "anna:s3cret@");
    dial(&w, deadline_ms);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_false(w.open);
    assert_int_equal(w.why.code, code);
    if (!strstr(w.why.text, word) || !strstr(w.why.text, "127.0.0.1:1 through the proxy"))
        fail_msg("%s", w.why.text);
    assert_null(strstr(w.why.text, "s3cret"));
    assert_null(strstr(w.why.text, "YW5uYTpz"));
    end(&w);
}

static void test_refusals(void **state)
{
    (void)state;
    fails(ANSWERS, "HTTP/1.1 407 Login\r\nProxy-Authenticate: Basic\r\n\r\n<html>", 5000, E_CONNECT,
          "a user and a password");
    fails(ANSWERS, "HTTP/1.1 403 Forbidden\r\n\r\n", 5000, E_CONNECT, "(403)");
    fails(ANSWERS, "HTTP/1.1 502 Bad Gateway\r\n\r\n", 5000, E_CONNECT, "at the moment (502)");
    fails(ANSWERS, "HTTP/1.1 30", 5000, E_CONNECT, "without an answer");
    fails(ANSWERS, "", 5000, E_CONNECT, "without an answer");
    fails(ANSWERS, "SSH-2.0-OpenSSH\r\n", 5000, E_CONNECT, "as an HTTP proxy does");
    fails(HANGS, NULL, 300, E_TIMEOUT, "its answer took longer");
    fails(DRIPS, "HTTP/1.1 200 Connection established\r\n", 5000, E_CONNECT, "without an answer");
    fails(LIES, "HTTP/1.1 200 OK\r\n\r\nhello", 5000, E_CONNECT, "only the peer may speak");
}

static void test_long_answer(void **state)
{
    static char much[2 * PROXY_ANSWER_MAX];

    (void)state;
    memset(much, 'x', sizeof much - 1);
    memcpy(much, "HTTP/1.1 200 OK\r\nA: ", 20);
    fails(ANSWERS, much, 5000, E_CONNECT, "longer than");
}

static void test_slow_answer(void **state)
{
    struct echo w;

    (void)state;
    begin(&w, DRIPS, "HTTP/1.1 100 Wait\r\n\r\nHTTP/1.1 502 No\r\n\r\n", "");
    dial(&w, 5000);
    loop_uv_run(w.l);
    assert_int_equal(w.why.code, E_CONNECT);
    assert_non_null(strstr(w.why.text, "(502)"));
    assert_null(strstr(F.request, "Authorization"));
    end(&w);
}

/* A proxy that leads to somebody else is found out by the certificate. */
static void test_another_peer(void **state)
{
    struct echo w;

    (void)state;
    begin(&w, OPENS, NULL, "");
    str_copy(w.address, sizeof w.address, "hub.example:7443");
    dial(&w, 5000);
    loop_uv_run(w.l);
    assert_false(w.open);
    assert_int_equal(w.why.code, E_TLS);
    assert_non_null(strstr(w.why.text, "certificate"));
    assert_non_null(strstr(F.request, "CONNECT hub.example:7443 ")); /* never looked up here */
    end(&w);
}

static void test_nobody_there(void **state)
{
    struct echo w;

    (void)state;
    begin(&w, OPENS, NULL, "");
    listener_close(F.li);
    dial(&w, 5000);
    loop_uv_run(w.l);
    assert_int_equal(w.why.code, E_CONNECT);
    assert_non_null(strstr(w.why.text, "through the proxy 127.0.0.1:"));
    assert_non_null(strstr(w.why.text, "refused"));
    end(&w);
}

static void test_what_is_not_sent(void **state)
{
    static const char *const bad[] = {"a\r\nX: y:7443", "a b:7443", "a/b:7443",
                                      "\xc3\xa4:7443",  ":7443",    "unix:/x"};
    struct echo w;

    (void)state;
    begin(&w, OPENS, NULL, "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e;
        assert_int_equal(stream_connect_via(w.l, &F.proxy, bad[i], w.client, NULL, 1000,
                                            &echo_client_events, &w, &w.c, &e),
                         E_INVALID);
    }
    struct err e;
    assert_int_equal(stream_connect_via(w.l, &F.proxy, "a:1", NULL, NULL, 1000, &echo_client_events,
                                        &w, &w.c, &e),
                     E_TLS);
    end(&w);
}

/* NO_PROXY: it is dialed straight. */
static void test_straight(void **state)
{
    struct echo w;

    (void)state;
    begin(&w, HANGS, NULL, "");
    (void)snprintf(w.address, sizeof w.address, "127.0.0.1:%d", w.port);
    str_copy(F.proxy.bypass, sizeof F.proxy.bypass, "127.0.0.0/8");
    w.shut_after = true;
    dial(&w, 5000);
    char *big = calloc(1, ECHO_BIG);
    stream_write(w.c, big, ECHO_BIG);
    free(big);
    loop_uv_run(w.l);
    assert_int_equal(w.got, ECHO_BIG);
    assert_int_equal(F.n, 0);
    end(&w);
}

/* Given up at every step: nothing stays behind (AddressSanitizer). */
static void test_given_up(void **state)
{
    struct echo w;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        begin(&w, HANGS, NULL, "");
        w.stop_on_server_close = false;
        dial(&w, 5000);
        if (i == 0)
            stream_abort(w.c, "enough");
        else
            stream_close(w.c);
        loop_uv_run(w.l);
        assert_true(w.client_closed);
        end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_way),          cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_long_answer),  cmocka_unit_test(test_slow_answer),
        cmocka_unit_test(test_another_peer), cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_what_is_not_sent), cmocka_unit_test(test_straight),
        cmocka_unit_test(test_given_up)};

    return cmocka_run_group_tests(tests, echo_make_pki, echo_remove_pki);
}
