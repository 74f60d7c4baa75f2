/* The HTTP server over a unix socket: what it must refuse, and that answers come whole and in
 * order. */
#include "api/base/limits.h"
#include "tests/support/unit.h"
#include "api/http/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct world {
    struct loop *loop;
    struct http_server *http;
    struct listener *listener;
    struct stream *client;
    struct buf got;
    const char *want; /* stop once this was received */
    bool closed;
    struct timer limit;
    char path[64], address[80];
    char last_path[256], last_body[128];
    unsigned handled;
};

static void handle(struct http_request *rq, void *arg)
{
    struct world *w = arg;
    const struct http_message *m = http_message(rq);

    w->handled++;
    str_copy(w->last_path, sizeof w->last_path, m->path);
    (void)snprintf(w->last_body, sizeof w->last_body, "%.*s",
                   (int)(m->body.n < 100 ? m->body.n : 100), (const char *)m->body.p);
    if (m->n_segments && !strcmp(m->segments[0], "stream")) {
        http_chunk_begin(rq, 200, "text/plain", NULL, NULL, NULL);
        http_chunk(rq, "one", 3);
        http_chunk(rq, "two", 3);
        http_chunk_end(rq);
        return;
    }
    char text[300];
    int n = snprintf(text, sizeof text, "[%s %s q=%s n=%zu]", m->method_text, m->path,
                     http_param_get(rq, "q") ? http_param_get(rq, "q") : "-", m->body.n);
    http_reply(rq, 200, "text/plain", slice_make(text, (size_t)n), NULL);
}

static void client_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct world *w = arg;

    (void)s;
    buf_add(&w->got, p, n);
    if (w->want && w->got.n && strstr(w->got.p, w->want))
        loop_stop(w->loop);
}
static void client_closed(struct stream *s, const struct err *why, void *arg)
{
    struct world *w = arg;

    (void)s;
    (void)why;
    w->closed = true;
    w->client = NULL;
    loop_stop(w->loop);
}
static const struct stream_events client_events = {.data = client_data, .closed = client_closed};

static void accepted(struct listener *li, struct stream *st, void *arg)
{
    struct world *w = arg;

    (void)li;
    http_server_accept(w->http, st);
}
static void over(void *arg)
{
    loop_stop(((struct world *)arg)->loop);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct err e;
    struct http_config cfg = {.header_timeout_ms = 300};

    w->loop = loop_uv_create(&e);
    assert_non_null(w->loop);
    (void)snprintf(w->path, sizeof w->path, "/tmp/hanse-http-%d.sock", (int)getpid());
    (void)snprintf(w->address, sizeof w->address, "unix:%s", w->path);
    w->http = http_server_create(w->loop, &cfg, handle, w);
    int port;
    assert_int_equal(
        listener_create(w->loop, w->address, NULL, accepted, w, &w->listener, &port, &e), 0);
    buf_init(&w->got, 1 << 24);
    timer_init(&w->limit, w->loop, over, w);
    *state = w;
    return 0;
}
static void http_closed(void *arg)
{
    struct world *w = arg;

    w->http = NULL;
    loop_stop(w->loop);
}
static int teardown(void **state)
{
    struct world *w = *state;

    if (w->client)
        stream_abort(w->client, "test over");
    listener_close(w->listener);
    http_server_close(w->http, 100, http_closed, w);
    while (w->client || w->http)
        loop_uv_run(w->loop);
    buf_fini(&w->got);
    timer_stop(&w->limit);
    (void)loop_uv_destroy(w->loop);
    (void)unlink(w->path);
    free(w);
    return 0;
}

/* Sends bytes on the (new) connection; runs until `want` came, the connection closed, or 3 s
 * passed. */
static void talk(struct world *w, const char *bytes, size_t n, const char *want)
{
    struct err e;

    if (!w->client) {
        w->closed = false;
        assert_int_equal(
            stream_connect(w->loop, w->address, NULL, "", 2000, &client_events, w, &w->client, &e),
            0);
    }
    buf_reset(&w->got);
    buf_char(&w->got, ' ');
    w->want = want;
    stream_write(w->client, bytes, n);
    timer_start(&w->limit, 3000);
    loop_uv_run(w->loop);
    timer_stop(&w->limit);
}
static void ask(struct world *w, const char *bytes, const char *want)
{
    talk(w, bytes, strlen(bytes), want);
    if (!strstr(w->got.p, want))
        fail_msg("asked <<%s>>, wanted <<%s>>, got <<%s>>", bytes, want, w->got.p);
}

static void answers_and_pipelines(void **state)
{
    struct world *w = *state;

    ask(w, "GET /a/b%2Fc?q=x+y%21 HTTP/1.1\r\nHost: h\r\n\r\n", "[GET /a/b%2Fc q=x y! n=0]");
    ask(w,
        "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: "
        "3\r\n\r\nabcGET /3 HTTP/1.1\r\n"
        "Host: h\r\n\r\n",
        "[GET /3");
    assert_true(strstr(w->got.p, "[GET /1") < strstr(w->got.p, "[POST /2"));
    assert_true(strstr(w->got.p, "[POST /2 q=- n=3]") < strstr(w->got.p, "[GET /3"));
    ask(w,
        "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
        "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        "[POST /c q=- n=5]");
    assert_string_equal(w->last_body, "abcde");
    ask(w, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n", "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
    assert_false(w->closed);
}

/* A command of exec has one a word. */
static void as_many_parameters_as_fit(void **state)
{
    struct world *w = *state;
    char text[LIMIT_URL_MAX_BYTES + 64];

    for (unsigned n = 65; n <= LIMIT_URL_PARAMS_MAX + 1; n += LIMIT_URL_PARAMS_MAX - 64) {
        int at = snprintf(text, sizeof text, "GET /x?q=q");
        for (unsigned i = 1; i < n; i++)
            at += snprintf(text + at, sizeof text - (size_t)at, "&a");
        (void)snprintf(text + at, sizeof text - (size_t)at, " HTTP/1.1\r\nHost: h\r\n\r\n");
        ask(w, text, n <= LIMIT_URL_PARAMS_MAX ? "[GET /x q=q" : "414: too many query");
    }
}

static void bytewise_head_and_expect(void **state)
{
    struct world *w = *state;
    const char *head =
        "PUT /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";

    ask(w, "GET /first HTTP/1.1\r\nHost: h\r\n\r\n", "/first"); /* connects */
    for (const char *p = head; p[1]; p++)
        stream_write(w->client, p, 1);
    ask(w, "\n", "100 Continue");
    ask(w, "ok", "[PUT /x q=- n=2]");
}

static void refusals(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *bytes, *want;
    } t[] = {
        {"GET / HTTP/1.1\r\n\r\n", "400: no Host"},
        {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400: more than one Host"},
        {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", "HTTP/1.1 505"},
        {"GET / HTTP/1.1\nHost: a\n\n", "400: a bare line feed"},
        {"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", "400: a bare line feed"},
        {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", "400: a character that header names"},
        {"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", "400: a folded"},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: "
         "chunked\r\n\r\n0\r\n\r\n",
         "HTTP/1.1 400"},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
         "HTTP/1.1 400"},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc", "HTTP/1.1 400"},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nabc", "HTTP/1.1 400"},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 400"},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", "HTTP/1.1 413"},
        {"GET //a HTTP/1.1\r\nHost: a\r\n\r\n", "400: an empty path segment"},
        {"GET /../a HTTP/1.1\r\nHost: a\r\n\r\n", "400: a malformed path segment"},
        {"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", "400: a malformed path segment"},
        {"GET /%2 HTTP/1.1\r\nHost: a\r\n\r\n", "400: a malformed path segment"},
        {"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 400"},
        {"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 501"},
    };

    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        unsigned before = w->handled;
        ask(w, t[i].bytes, t[i].want);
        assert_int_equal(w->handled, before);
        while (!w->closed)
            talk(w, "", 0, NULL);
    }
    char nul[] = "GET / HTTP/1.1\r\nHost: a\r\nX: b?c\r\n\r\n";
    *strchr(nul, '?') = 0;
    talk(w, nul, sizeof nul - 1, "400: a control character");
    assert_non_null(strstr(w->got.p, "400: a control character"));
}

static void too_large_and_too_slow(void **state)
{
    struct world *w = *state;
    struct buf b;

    buf_init(&b, 1 << 20);
    buf_str(&b, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 150; i++)
        buf_printf(&b, "X-%d: y\r\n", i);
    buf_str(&b, "\r\n");
    ask(w, b.p, "HTTP/1.1 431");
    while (!w->closed)
        talk(w, "", 0, NULL);
    buf_reset(&b);
    buf_str(&b, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    for (int i = 0; i < 60000; i++)
        buf_char(&b, 'y');
    ask(w, b.p, "HTTP/1.1 431");
    while (!w->closed)
        talk(w, "", 0, NULL);
    buf_reset(&b); /* less than what a head may be, more than its headers */
    buf_str(&b, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 4; i++) {
        buf_printf(&b, "X-%d: ", i);
        for (unsigned n = 0; n < LIMIT_HEADERS_MAX_BYTES / 4; n++)
            buf_char(&b, 'y');
        buf_str(&b, "\r\n");
    }
    buf_str(&b, "\r\n");
    ask(w, b.p, "HTTP/1.1 431");
    buf_fini(&b);
    while (!w->closed)
        talk(w, "", 0, NULL);
    ask(w, "GET / HT", "HTTP/1.1 408"); /* the head's deadline is 300 ms here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers_and_pipelines, setup, teardown),
        cmocka_unit_test_setup_teardown(as_many_parameters_as_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(bytewise_head_and_expect, setup, teardown),
        cmocka_unit_test_setup_teardown(refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(too_large_and_too_slow, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
