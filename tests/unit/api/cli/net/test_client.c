/* The CLI's client against a small scripted server over a unix socket: what it repeats, what it
 * follows, and what it calls unknown. */
#include "api/cli/net/client.h"
#include "tests/support/unit.h"
#include "api/cli/net/http_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECTIONS_MAX 64

enum act { REPLY, REPLY_THEN_CLOSE, CLOSE, SILENCE };
struct step {
    enum act act;
    const char *text;
};
struct peer {
    struct script *script;
    struct buf in;
};
struct script { /* one server; outlives its test, because its streams end with the loop */
    struct listener *listener;
    const struct step *steps; /* one a request; the last one goes on */
    unsigned n, at, connections;
    char requests[16][2048];
    struct peer peers[CONNECTIONS_MAX];
};

static struct loop *loop;
static char dir[128];

static int begin(void **state)
{
    struct err e = {0};

    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/hanse-cli-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(dir));
    loop = loop_uv_create(&e);
    assert_non_null(loop);
    return 0;
}

static int end(void **state)
{
    (void)state;
    assert_int_equal(file_remove(loop, dir, NULL), 0);
    loop = loop_uv_destroy(loop);
    return 0;
}

/* The length of the first whole request in b, or 0. */
static size_t request_whole(const struct buf *b)
{
    const char *head = b->n ? memmem(b->p, b->n, "\r\n\r\n", 4) : NULL, *len;
    size_t n = 0;

    if (!head)
        return 0;
    len = memmem(b->p, (size_t)(head - b->p), "Content-Length: ", 16);
    if (len)
        n = strtoul(len + 16, NULL, 10);
    n += (size_t)(head - b->p) + 4;
    return n <= b->n ? n : 0;
}

static void peer_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct peer *peer = arg;
    struct script *sc = peer->script;
    size_t whole;

    buf_add(&peer->in, p, n);
    while ((whole = request_whole(&peer->in))) {
        const struct step *step = &sc->steps[sc->at < sc->n ? sc->at : sc->n - 1];
        if (sc->at < 16)
            (void)snprintf(sc->requests[sc->at], sizeof sc->requests[0], "%.*s", (int)whole,
                           peer->in.p);
        sc->at++;
        buf_consume(&peer->in, whole);
        if (step->text)
            stream_write(s, step->text, strlen(step->text));
        if (step->act == REPLY_THEN_CLOSE || step->act == CLOSE) {
            stream_close(s);
            return;
        }
    }
}
static void peer_closed(struct stream *s, const struct err *why, void *arg)
{
    struct peer *peer = arg;

    (void)s;
    (void)why;
    buf_fini(&peer->in);
}
static const struct stream_events peer_events = {.data = peer_data, .closed = peer_closed};

static void accepted(struct listener *l, struct stream *s, void *arg)
{
    struct script *sc = arg;
    struct peer *peer = &sc->peers[sc->connections++ % CONNECTIONS_MAX];

    (void)l;
    peer->script = sc;
    buf_init(&peer->in, 1u << 20);
    stream_set(s, &peer_events, peer);
}

static const char *script_listen(struct script *sc, const char *name, const struct step *steps,
                                 unsigned n)
{
    static char address[4][256];
    static unsigned i;
    char *a = address[i++ % 4];
    struct err e = {0};

    memset(sc, 0, sizeof *sc);
    sc->steps = steps;
    sc->n = n;
    (void)snprintf(a, 256, "unix:%s/%s", dir, name);
    if (listener_create(loop, a, NULL, accepted, sc, &sc->listener, NULL, &e))
        fail_msg("%s", e.text);
    return a;
}

static struct client *client_of(const char *const *servers, unsigned n, uint64_t timeout_ms)
{
    struct client_spec spec = {
        .loop = loop, .servers = servers, .n_servers = n, .timeout_ms = timeout_ms};
    struct client *c = NULL;
    struct err e = {0};

    if (client_create(&spec, &c, &e))
        fail_msg("%s", e.text);
    return c;
}

struct outcome_seen {
    int code, status;
    unsigned tries;
    char body[256], text[ERR_TEXT_MAX];
};
static struct outcome_seen ask(struct client_lane *l, const char *method, const char *body)
{
    struct client_request rq = {
        .method = method, .path = "/x?y=1", .body = slice_make(body, body ? strlen(body) : 0)};
    struct outcome_seen o = {0};
    struct client_answer a;
    struct err e = {0};

    client_answer_init(&a);
    o.code = client_perform(l, &rq, &a, &e);
    o.status = a.status;
    o.tries = a.tries;
    (void)snprintf(o.body, sizeof o.body, "%.*s", (int)a.body.n, a.body.n ? a.body.p : "");
    str_copy(o.text, sizeof o.text, e.text);
    client_answer_fini(&a);
    return o;
}

static const char *key_of(const char *request)
{
    static char keys[4][128];
    static unsigned i;
    char *out = keys[i++ % 4];
    const char *p = strstr(request, "Idempotency-Key: ");

    *out = '\0';
    if (p)
        (void)snprintf(out, 128, "%.*s", (int)strcspn(p + 17, "\r"), p + 17);
    return out;
}

#define OK_TEXT "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

static int piece_came(const void *p, size_t n, void *arg)
{
    buf_add(arg, p, n);
    return 0;
}

/* A member that hangs closes nothing: what it began to tell is lost all the same. */
static void a_body_that_falls_silent_is_lost(void **state)
{
    static const struct step steps[] = {
        {REPLY, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"}};
    static struct script sc;
    const char *servers[] = {script_listen(&sc, "silent", steps, 1)};
    struct client *c = client_of(servers, 1, 60000);
    struct client_lane *l = client_lane_create(c);
    struct client_answer a;
    struct err e = {0};
    AUTO_BUF b = {0};
    struct client_request rq = {
        .method = "GET", .path = "/x", .data = piece_came, .arg = &b, .patient = true,
        .silent_ms = 50};

    (void)state;
    buf_init(&b, 64);
    client_answer_init(&a);
    assert_int_equal(client_perform(l, &rq, &a, &e), E_CONNECT);
    assert_int_equal(a.status, 200);
    assert_string_equal(b.p, "abc");
    assert_non_null(strstr(e.text, "it tells nothing any more"));
    client_answer_fini(&a);
    (void)client_lane_destroy(l);
    (void)client_destroy(c);
    listener_close(sc.listener);
}

static void chunks_and_kept_connections(void **state)
{
    static const struct step steps[] = {
        {REPLY, "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
                "chunked\r\n\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\nT: 1\r\n\r\n"},
        {REPLY, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nfgh"},
        {REPLY_THEN_CLOSE, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end"}};
    static struct script sc;
    const char *servers[] = {script_listen(&sc, "a", steps, 3)};
    struct client *c = client_of(servers, 1, 5000);
    struct client_lane *l = client_lane_create(c);

    (void)state;
    assert_string_equal(ask(l, "GET", NULL).body, "abcde");
    assert_string_equal(ask(l, "GET", NULL).body, "fgh");
    assert_string_equal(ask(l, "GET", NULL).body, "until the end");
    assert_int_equal(sc.connections, 1);
    assert_non_null(strstr(sc.requests[0], "GET /x?y=1 HTTP/1.1\r\n"));
    (void)client_lane_destroy(l);
    (void)client_destroy(c);
    listener_close(sc.listener);
}

static void a_lost_answer_is_asked_for_again_with_the_same_key(void **state)
{
    static const struct step dies[] = {{CLOSE, NULL}};
    static const struct step good[] = {{REPLY, OK_TEXT}};
    static struct script a, b;
    const char *servers[] = {script_listen(&a, "a", dies, 1), script_listen(&b, "b", good, 1)};
    struct client *c = client_of(servers, 2, 5000);
    struct client_lane *l = client_lane_create(c);

    (void)state;
    struct outcome_seen o = ask(l, "POST", "{}");
    assert_int_equal(o.code, 0);
    assert_string_equal(o.body, "ok");
    assert_int_equal(a.at, 1);
    assert_int_equal(b.at, 1);
    assert_true(strlen(key_of(a.requests[0])) > 16);
    assert_string_equal(key_of(a.requests[0]), key_of(b.requests[0]));
    /* another request has another key, and goes where the last one was answered */
    assert_int_equal(ask(l, "POST", "{}").code, 0);
    assert_int_equal(a.at, 1);
    assert_string_not_equal(key_of(b.requests[0]), key_of(b.requests[1]));
    (void)client_lane_destroy(l);
    (void)client_destroy(c);
    listener_close(a.listener);
    listener_close(b.listener);
}

static void no_leader_is_waited_for(void **state)
{
    static const struct step steps[] = {
        {REPLY, "HTTP/1.1 503 x\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"},
        {REPLY, "HTTP/1.1 504 x\r\nContent-Length: 0\r\n\r\n"},
        {REPLY, OK_TEXT}};
    static struct script sc;
    const char *servers[] = {script_listen(&sc, "a", steps, 3)};
    struct client *c = client_of(servers, 1, 5000);
    struct client_lane *l = client_lane_create(c);

    (void)state;
    struct outcome_seen o = ask(l, "PATCH", "{}");
    assert_int_equal(o.code, 0);
    assert_int_equal(o.status, 200);
    assert_int_equal(o.tries, 3);
    assert_string_equal(key_of(sc.requests[0]), key_of(sc.requests[2]));
    (void)client_lane_destroy(l);
    (void)client_destroy(c);
    listener_close(sc.listener);
}

static void half_an_answer_is_unknown_for_a_write_and_unavailable_for_a_read(void **state)
{
    static const struct step steps[] = {
        {REPLY_THEN_CLOSE, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"}};
    static struct script sc;
    const char *servers[] = {script_listen(&sc, "a", steps, 1)};
    struct client *c = client_of(servers, 1, 300);
    struct client_lane *l = client_lane_create(c);

    (void)state;
    struct outcome_seen o = ask(l, "POST", "{}");
    assert_int_equal(o.code, E_UNKNOWN);
    assert_int_equal(err_info(o.code)->exit, 6);
    assert_non_null(strstr(o.text, "outcome is unknown"));
    o = ask(l, "GET", NULL);
    assert_int_equal(err_info(o.code)->exit, 7);
    assert_true(sc.at > 3);
    (void)client_lane_destroy(l);
    (void)client_destroy(c);
    listener_close(sc.listener);
}

static void nobody_there_is_no_unknown(void **state)
{
    char address[256];
    const char *servers[] = {address};

    (void)state;
    (void)snprintf(address, sizeof address, "unix:%s/nobody", dir);
    struct client *c = client_of(servers, 1, 200);
    struct client_lane *l = client_lane_create(c);
    struct outcome_seen o = ask(l, "POST", "{}");
    assert_int_equal(o.code, E_CONNECT);
    assert_int_equal(err_info(o.code)->exit, 7);
    (void)client_lane_destroy(l);
    (void)client_destroy(c);
}

static void silence_ends_at_the_timeout(void **state)
{
    static const struct step steps[] = {{SILENCE, NULL}};
    static struct script sc;
    const char *servers[] = {script_listen(&sc, "a", steps, 1)};
    struct client *c = client_of(servers, 1, 200);
    struct client_lane *l = client_lane_create(c);

    (void)state;
    assert_int_equal(ask(l, "POST", "{}").code, E_UNKNOWN);
    (void)client_lane_destroy(l);
    (void)client_destroy(c);
    listener_close(sc.listener);
}

/* A question whose answer takes long is not asked of one server after the other. */
static void a_slow_answer_is_waited_for(void **state)
{
    static const struct step silent[] = {{SILENCE, NULL}}, good[] = {{REPLY, OK_TEXT}};
    static struct script sc[4];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        const char *servers[] = {script_listen(&sc[2 * i], i ? "slow" : "quick", silent, 1),
                                 script_listen(&sc[2 * i + 1], i ? "b2" : "b1", good, 1)};
        struct client_spec spec = {.loop = loop,
                                   .servers = servers,
                                   .n_servers = 2,
                                   .timeout_ms = i ? 300 : 60000,
                                   .answer_ms = i ? 60000 : 50};
        struct client *c = NULL;
        struct err e;
        assert_int_equal(client_create(&spec, &c, &e), 0);
        struct client_lane *l = client_lane_create(c);
        client_lane_pin(l, 0);
        assert_int_equal(ask(l, "GET", NULL).status, i ? 0 : 200);
        assert_int_equal(sc[2 * i].at, 1);
        assert_int_equal(sc[2 * i + 1].at, i ? 0 : 1);
        (void)client_lane_destroy(l);
        (void)client_destroy(c);
        listener_close(sc[2 * i].listener);
        listener_close(sc[2 * i + 1].listener);
    }
}

static void a_redirect_is_followed_once(void **state)
{
    static char there[512];
    struct step first[] = {{REPLY, there}};
    struct step second[] = {{REPLY, there}, {REPLY, OK_TEXT}};
    static struct script a, b;
    const char *to = script_listen(&b, "b", second + 1, 1);
    const char *servers[] = {script_listen(&a, "a", first, 1)};
    struct client *c = client_of(servers, 1, 1000);
    struct client_lane *l = client_lane_create(c);

    (void)state;
    (void)snprintf(there, sizeof there,
                   "HTTP/1.1 307 x\r\nLocation: %s?y=1\r\nContent-Length: 0\r\n\r\n", to);
    struct outcome_seen o = ask(l, "GET", NULL);
    assert_int_equal(o.status, 200);
    assert_int_equal(b.at, 1);
    assert_non_null(strstr(b.requests[0], "GET /x?y=1 "));
    b.steps = second; /* sends on again: that is not followed */
    b.at = 0;
    assert_int_equal(ask(l, "GET", NULL).status, 307);
    assert_int_equal(b.at, 1);
    (void)client_lane_destroy(l);
    (void)client_destroy(c);
    listener_close(a.listener);
    listener_close(b.listener);
}

static void exec_is_never_sent_twice(void **state)
{
    static const struct step steps[] = {{CLOSE, NULL}};
    static struct script sc;
    const char *servers[] = {script_listen(&sc, "a", steps, 1)};
    struct client *c = client_of(servers, 1, 2000);
    struct client_lane *l = client_lane_create(c);
    struct client_request rq = {.method = "POST", .path = "/exec", .upgrade = "hanse-exec/1"};
    struct client_answer a;

    (void)state;
    client_answer_init(&a);
    assert_int_equal(client_perform(l, &rq, &a, NULL), E_UNKNOWN);
    assert_int_equal(sc.at, 1);
    client_answer_fini(&a);
    (void)client_lane_destroy(l);
    (void)client_destroy(c);
    listener_close(sc.listener);
}

static int nothing(const void *p, size_t n, void *arg)
{
    (void)p;
    (void)n;
    (void)arg;
    return 0;
}

/* A log that is cut off says nothing of members that were not even asked. */
static void who_is_lost_while_he_tells_is_said_so(void **state)
{
    static const struct step steps[] = {
        {REPLY_THEN_CLOSE, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n"}};
    static struct script a, b;
    const char *servers[] = {script_listen(&a, "a", steps, 1), script_listen(&b, "b", steps, 1)};
    struct client *c = client_of(servers, 2, 2000);
    struct client_lane *l = client_lane_create(c);
    struct client_request rq = {.method = "GET", .path = "/log", .data = nothing, .patient = true};
    struct client_answer answer;
    struct err e = {0};

    (void)state;
    client_answer_init(&answer);
    assert_int_equal(client_perform(l, &rq, &answer, &e), E_CONNECT);
    assert_non_null(strstr(e.text, "the member was lost while it told"));
    assert_null(strstr(e.text, "no member"));
    assert_int_equal(b.at, 0);
    client_answer_fini(&answer);
    (void)client_lane_destroy(l);
    (void)client_destroy(c);
    listener_close(a.listener);
    listener_close(b.listener);
}

static void status_objects_are_our_errors(void **state)
{
    struct client_answer a;
    struct err e = {0};

    (void)state;
    client_answer_init(&a);
    buf_str(&a.body, "{\"kind\":\"Status\",\"reason\":\"AlreadyExists\",\"message\":\"there\","
                     "\"details\":{\"causes\":"
                     "[{\"field\":\"metadata.name\"}]}}");
    a.status = 409;
    assert_int_equal(client_status(&a, &e), E_EXISTS);
    assert_string_equal(e.text, "there");
    assert_string_equal(e.field, "metadata.name");
    buf_reset(&a.body);
    a.status = 403;
    assert_int_equal(client_status(&a, &e), E_FORBIDDEN);
    a.status = 200;
    assert_int_equal(client_status(&a, &e), 0);
    client_answer_fini(&a);
}

static int collect(const void *p, size_t n, void *arg)
{
    buf_add(arg, p, n);
    return 0;
}

static void answers_byte_by_byte_and_wrong_ones(void **state)
{
    static const char good[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nRetry-After: "
                               "2\r\n\r\n4\r\nabcd\r\n0\r\n\r\n";
    static const char *const wrong[] = {
        "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 9 OK\r\n\r\n"};
    struct http_answer a;
    AUTO_BUF b = {0};

    (void)state;
    buf_init(&b, 1000);
    http_answer_init(&a);
    for (size_t i = 0; i < sizeof good - 1; i++) {
        assert_int_not_equal(a.state, ANSWER_DONE);
        assert_int_equal(http_answer_feed(&a, good + i, 1, collect, &b, NULL), 0);
    }
    assert_int_equal(a.state, ANSWER_DONE);
    assert_int_equal(a.retry_after_s, 2);
    assert_string_equal(b.p, "abcd");
    http_answer_fini(&a);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        http_answer_init(&a);
        assert_int_equal(http_answer_feed(&a, wrong[i], strlen(wrong[i]), collect, &b, NULL),
                         E_CONNECT);
        http_answer_fini(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_body_that_falls_silent_is_lost, begin, end),
        cmocka_unit_test_setup_teardown(chunks_and_kept_connections, begin, end),
        cmocka_unit_test_setup_teardown(a_lost_answer_is_asked_for_again_with_the_same_key, begin,
                                        end),
        cmocka_unit_test_setup_teardown(no_leader_is_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(
            half_an_answer_is_unknown_for_a_write_and_unavailable_for_a_read, begin, end),
        cmocka_unit_test_setup_teardown(nobody_there_is_no_unknown, begin, end),
        cmocka_unit_test_setup_teardown(silence_ends_at_the_timeout, begin, end),
        cmocka_unit_test_setup_teardown(a_slow_answer_is_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(a_redirect_is_followed_once, begin, end),
        cmocka_unit_test_setup_teardown(exec_is_never_sent_twice, begin, end),
        cmocka_unit_test_setup_teardown(who_is_lost_while_he_tells_is_said_so, begin, end),
        cmocka_unit_test(status_objects_are_our_errors),
        cmocka_unit_test(answers_byte_by_byte_and_wrong_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
