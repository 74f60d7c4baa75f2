/* Streams of the production loop: addresses, unix sockets, pausing, and how they end. */
#include "tests/support/base/stream_kit.h"

static void test_port_in_use(void **state)
{
    struct echo w;
    struct listener *second;
    struct err err = {0};

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    assert_int_equal(
        listener_create(w.l, w.address, w.server, echo_accept, &w, &second, NULL, &err), E_BUSY);
    assert_non_null(strstr(err.text, w.address));
    assert_non_null(strstr(err.text, "stop it, or listen on another address"));
    echo_fini(&w);
}

static void test_bad_addresses(void **state)
{
    static const char *const bad[] = {"",       "host",    "host:", "host:x", "host:70000",
                                      "::1:80", "[::1:80", "[]:80", "unix:",  "host:123456"};
    struct loop *l = loop_uv_create(NULL);
    struct stream *s;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err err = {0};
        int rc = stream_connect(l, bad[i], NULL, NULL, 10, &echo_client_events, NULL, &s, &err);

        assert_int_equal(rc, E_INVALID);
    }
    assert_int_equal(
        stream_connect(l, "127.0.0.1:1", NULL, NULL, 10, &echo_client_events, NULL, &s, NULL),
        E_TLS);
    (void)loop_uv_destroy(l);
}

static void test_unix_socket(void **state)
{
    struct echo w;
    char address[160];
    struct stat st;
    struct listener *second;
    struct err err = {0};

    (void)state;
    (void)snprintf(address, sizeof address, "unix:%s", echo_path("sock"));
    echo_init(&w, address);
    assert_int_equal(stat(address + 5, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(listener_create(w.l, address, NULL, echo_accept, &w, &second, NULL, &err),
                     E_BUSY);
    echo_big(&w, NULL);
    assert_int_equal(w.seen_by_server.unix_uid, getuid());
    assert_int_equal(w.seen_by_server.unix_pid, getpid());
    echo_fini(&w);
    assert_int_not_equal(stat(address + 5, &st), 0); /* removed by its owner */
}

static void test_stale_unix_socket(void **state)
{
    struct echo w;
    char address[160];
    struct sockaddr_un {
        sa_family_t family;
        char path[108];
    } a = {.family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    (void)snprintf(address, sizeof address, "unix:%s", echo_path("stale"));
    (void)snprintf(a.path, sizeof a.path, "%.100s", address + 5);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    (void)close(fd); /* the file stays, as after a crash */
    echo_init(&w, address);
    echo_big(&w, NULL);
    echo_fini(&w);
}

/* ---- ending ---- */

static void server_end_after(struct stream *s, const void *p, size_t n, void *arg)
{
    struct echo *w = arg;

    (void)p;
    if (w->echo_bytes == 0) { /* answer, and close with the client's bytes still coming */
        char *big = calloc(1, ECHO_BIG);

        stream_write(s, big, ECHO_BIG);
        free(big);
        stream_close(s);
    }
    w->echo_bytes += n;
}

static const struct stream_events ending_events = {.data = server_end_after,
                                                   .closed = echo_server_closed};

static void accept_ending(struct listener *li, struct stream *s, void *arg)
{
    struct echo *w = arg;

    echo_accept(li, s, arg);
    stream_set(s, &ending_events, w);
}

/* The server's last bytes arrive though it closes while the client still sends. */
static void test_close_sends_what_waits(void **state)
{
    struct echo w;
    struct err err = {0};
    struct listener *li;
    char *big = calloc(1, ECHO_BIG);

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, NULL, "ca", NULL);
    assert_int_equal(
        listener_create(w.l, "127.0.0.1:0", w.server, accept_ending, &w, &li, &w.port, &err), 0);
    (void)snprintf(w.address, sizeof w.address, "127.0.0.1:%d", w.port);
    echo_connect(&w, NULL, 5000);
    stream_write(w.c, big, ECHO_BIG);
    free(big);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_int_equal(w.got, ECHO_BIG);
    assert_int_equal(w.why.code, 0);
    echo_fini(&w);
}

static void resume(void *arg)
{
    struct echo *w = arg;

    assert_int_equal(w->got, 0); /* nothing came while paused */
    stream_pause(w->c, false);
    assert_int_equal(w->got, 0); /* nor from inside the call */
}

static void test_pause(void **state)
{
    struct echo w;
    char *big = calloc(1, ECHO_BIG);

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, NULL, "ca", NULL);
    w.shut_after = true;
    echo_connect(&w, NULL, 5000);
    stream_pause(w.c, true);
    stream_write(w.c, big, ECHO_BIG);
    free(big);
    timer_init(&w.step, w.l, resume, &w);
    timer_start(&w.step, 100);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_int_equal(w.got, ECHO_BIG);
    echo_fini(&w);
}

static void look(void *arg)
{
    struct echo *w = arg;

    assert_false(w->client_closed);
    if (stream_hung_up(w->c)) {
        stream_pause(w->c, false);
        return;
    }
    if (w->s)
        stream_abort(w->s, "it goes");
    w->s = NULL;
    timer_start(&w->step, 20);
}

/* Who pauses a stream hears that the other side is gone when he asks. */
static void test_hung_up(void **state)
{
    struct echo w;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, NULL, "ca", NULL);
    echo_connect(&w, NULL, 5000);
    stream_pause(w.c, true);
    stream_write(w.c, "x", 1);
    timer_init(&w.step, w.l, look, &w);
    timer_start(&w.step, 100);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_true(w.client_closed);
    echo_fini(&w);
}

static void abort_client(void *arg)
{
    struct echo *w = arg;

    stream_abort(w->c, "enough");
    assert_false(w->client_closed);
}

static void test_abort(void **state)
{
    struct echo w;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, NULL, "ca", NULL);
    echo_connect(&w, NULL, 5000);
    timer_init(&w.step, w.l, abort_client, &w);
    timer_start(&w.step, 100);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_int_equal(w.why.code, E_CANCELLED);
    assert_string_equal(w.why.text, "enough");
    assert_int_equal(w.server_why.code, E_CONNECT); /* cut without a TLS close */
    /* At once after connecting, too: while the name is being resolved. */
    w.client_closed = w.open = false;
    echo_connect(&w, NULL, 5000);
    abort_client(&w);
    loop_uv_run(w.l);
    assert_true(w.client_closed);
    echo_fini(&w);
}

/* Everything still open when the loop goes: each stream hears of it. */
static void test_destroy_closes(void **state)
{
    struct echo w;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, NULL, "ca", NULL);
    echo_connect(&w, NULL, 5000);
    echo_fini(&w);
    assert_true(w.client_closed);
    assert_int_equal(w.why.code, E_CANCELLED);
}

/* ---- half-closed, plain ---- */

static struct half {
    struct loop *l;
    struct stream *s;
    char got[64];
    size_t n;
    bool eof, closed, first; /* first: we end our side as soon as the stream is there */
    int code;
} half;

static void half_data(struct stream *s, const void *p, size_t n, void *arg)
{
    (void)s;
    (void)arg;
    assert_true(half.n + n < sizeof half.got);
    memcpy(half.got + half.n, p, n);
    half.n += n;
    if (half.first)
        loop_stop(half.l);
}

static void half_eof(struct stream *s, void *arg)
{
    (void)arg;
    assert_false(half.closed);
    half.eof = true;
    stream_write(s, "answer", 6);
    stream_finish(s);
    stream_write(s, "more", 4); /* nothing is written after the end */
    loop_stop(half.l);
}

static void half_closed(struct stream *s, const struct err *why, void *arg)
{
    (void)s;
    (void)arg;
    half.closed = true;
    half.code = why->code;
    loop_stop(half.l);
}

static const struct stream_events half_events = {
    .data = half_data, .closed = half_closed, .eof = half_eof};

static void half_accept(struct listener *li, struct stream *s, void *arg)
{
    (void)li;
    (void)arg;
    half.s = s;
    stream_set(s, &half_events, NULL);
    if (half.first) {
        stream_write(s, "answer", 6);
        stream_finish(s);
    }
    loop_stop(half.l);
}

static void half_read(int fd)
{
    char text[64];
    size_t n = 0;
    ssize_t k;

    while ((k = recv(fd, text + n, sizeof text - n, 0)) > 0)
        n += (size_t)k;
    assert_int_equal(k, 0);
    assert_int_equal(n, 6);
    assert_memory_equal(text, "answer", 6);
}

static void half_story(bool first)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct listener *li;
    struct err err = {0};
    int port, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    half = (struct half){.l = loop_uv_create(NULL), .first = first};
    assert_int_equal(listener_create(half.l, "0.0.0.0:0", NULL, half_accept, NULL, &li, NULL, &err),
                     E_TLS); /* only this machine's own may come without TLS */
    assert_int_equal(
        listener_create(half.l, "127.0.0.1:0", NULL, half_accept, NULL, &li, &port, &err), 0);
    a.sin_port = htons((uint16_t)port);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    loop_uv_run(half.l);
    if (first)
        half_read(fd);
    assert_int_equal(send(fd, "hello", 5, MSG_NOSIGNAL), 5);
    if (first)
        loop_uv_run(half.l);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    if (!first) {
        loop_uv_run(half.l); /* data, and the end of it */
        assert_true(half.eof);
        half_read(fd);
    }
    while (!half.closed)
        loop_uv_run(half.l);
    assert_int_equal(half.code, 0);
    assert_int_equal(half.n, 5);
    assert_int_equal(close(fd), 0);
    (void)loop_uv_destroy(half.l);
}

static void test_half_closed(void **state)
{
    (void)state;
    half_story(false);
    half_story(true);
}

/* ---- contexts ---- */

static void test_config_errors(void **state)
{
    struct tls_config *c;
    struct err err = {0};
    struct tls_config_spec spec = {.cert_file = echo_path("server.crt"),
                                   .key_file = echo_path("client.key"),
                                   .ca_file = echo_path("ca.crt")};

    (void)state;
    assert_int_equal(tls_config_create(&spec, true, &c, &err), E_TLS);
    assert_non_null(strstr(err.text, "does not match the certificate"));
    spec.key_file = echo_path("absent.key");
    assert_int_equal(tls_config_create(&spec, true, &c, &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "absent.key"));
    spec.key_file = echo_path("server.crt");
    assert_int_equal(tls_config_create(&spec, true, &c, &err), E_TLS);
    struct pki_request old = {.common_name = "old", .days = -1};
    assert_int_equal(pki_issue(echo_path("ca.crt"), echo_path("ca.key"), &old, echo_path("old.crt"),
                               echo_path("old.key"), &err),
                     0);
    spec.cert_file = echo_path("old.crt");
    spec.key_file = echo_path("old.key");
    assert_int_equal(tls_config_create(&spec, true, &c, &err), E_TLS);
    assert_non_null(strstr(err.text, "expired at"));
    static const char *const evil[] = {"a.example,IP:10.0.0.1", NULL};
    old.dns_names = evil;
    assert_int_equal(pki_issue(echo_path("ca.crt"), echo_path("ca.key"), &old, echo_path("old.crt"),
                               echo_path("old.key"), &err),
                     E_INVALID);
    struct stat st;
    assert_int_equal(stat(echo_path("old.key"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_bad_addresses),
        cmocka_unit_test(test_unix_socket),
        cmocka_unit_test(test_stale_unix_socket),
        cmocka_unit_test(test_close_sends_what_waits),
        cmocka_unit_test(test_pause),
        cmocka_unit_test(test_hung_up),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_destroy_closes),
        cmocka_unit_test(test_half_closed),
        cmocka_unit_test(test_config_errors),
    };

    return cmocka_run_group_tests(tests, echo_make_pki, echo_remove_pki);
}
