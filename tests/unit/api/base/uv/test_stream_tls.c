/* TLS on streams: who is believed, who is refused and in which words, and how long a handshake may
 * take. */
#include "tests/support/base/stream_kit.h"

static void test_tls_echo(void **state)
{
    struct echo w;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, NULL, "ca", NULL);
    echo_big(&w, ALPN_HTTP);
    assert_false(w.seen_by_server.certified);
    assert_string_equal(w.seen_by_server.alpn, ALPN_HTTP);
    assert_non_null(strstr(w.seen_by_server.address, "127.0.0.1:"));
    echo_fini(&w);
}

static void test_localhost_by_name(void **state)
{
    struct echo w;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    (void)snprintf(w.address, sizeof w.address, "localhost:%d", w.port); /* ::1 may come first */
    w.client = echo_config(false, NULL, "ca", NULL);
    echo_big(&w, NULL);
    echo_fini(&w);
}

static void test_mutual_identity(void **state)
{
    struct echo w;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, "client", "ca", "member:2");
    echo_big(&w, ALPN_AGENT);
    assert_true(w.seen_by_server.certified);
    assert_string_equal(w.seen_by_server.name, "agent:fra");
    assert_int_equal(w.seen_by_server.n_groups, 2);
    assert_string_equal(w.seen_by_server.groups[0], "hanse:members");
    assert_string_equal(w.seen_by_server.groups[1], "second");
    assert_int_equal(strlen(w.seen_by_server.fingerprint), 64);
    assert_string_equal(w.seen_by_server.alpn, ALPN_AGENT);
    echo_fini(&w);
}

static void expect_refused(struct echo *w, const char *alpn, const char *says)
{
    echo_connect(w, alpn, 5000);
    loop_uv_run(w->l);
    assert_false(w->timed_out);
    assert_true(w->client_closed);
    assert_int_equal(w->accepted, 0);
    assert_int_equal(w->why.code, E_TLS);
    if (!strstr(w->why.text, says))
        fail_msg("\"%s\" does not say \"%s\"", w->why.text, says);
    echo_fini(w);
}

static void test_wrong_ca(void **state)
{
    struct echo w;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, NULL, "other", NULL);
    expect_refused(&w, ALPN_HTTP, "certificate is refused");
    assert_false(w.open);
}

static void test_wrong_host(void **state)
{
    struct echo w;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, NULL, "ca", "elsewhere.example");
    expect_refused(&w, ALPN_HTTP, "ame"); /* "hostname mismatch" */
    assert_false(w.open);
}

static void test_wrong_common_name(void **state)
{
    struct echo w;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, "client", "ca", "member:3");
    w.stop_on_server_close = false;
    echo_connect(&w, ALPN_RAFT, 5000);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_false(w.open);
    assert_int_equal(w.why.code, E_TLS);
    assert_non_null(strstr(w.why.text, "is for \"member:2\", but \"member:3\" was called"));
    echo_fini(&w);
}

static void test_strangers_certificate(void **state)
{
    struct echo w;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, "stranger", "ca", NULL);
    expect_refused(&w, ALPN_HTTP, "not issued by the peer's CA");
}

static void test_mutual_needs_certificate(void **state)
{
    struct echo w;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, NULL, "ca", NULL);
    expect_refused(&w, ALPN_RAFT, "certificate required");
}

static void test_unknown_protocol(void **state)
{
    struct echo w;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, "client", "ca", NULL);
    expect_refused(&w, "gopher/1", "protocol");
}

/* ---- a client that is not ours, on a thread ---- */

struct foreign {
    struct echo *w;
    int max_version;
    const char *alpn;
    bool silent; /* connects, then says nothing */
    int handshake, eof;
};

static void foreign_main(struct loop *l, void *arg)
{
    struct foreign *f = arg;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f->w->port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char c;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    if (f->silent) {
        f->eof = (int)read(fd, &c, 1);
    } else {
        SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
        unsigned char wire[32];

        (void)SSL_CTX_set_max_proto_version(ctx, f->max_version);
        assert_int_equal(
            SSL_CTX_use_certificate_file(ctx, echo_path("client.crt"), SSL_FILETYPE_PEM), 1);
        assert_int_equal(
            SSL_CTX_use_PrivateKey_file(ctx, echo_path("client.key"), SSL_FILETYPE_PEM), 1);
        SSL *ssl = SSL_new(ctx);
        wire[0] = (unsigned char)strlen(f->alpn);
        memcpy(wire + 1, f->alpn, wire[0]);
        (void)SSL_set_alpn_protos(ssl, wire, wire[0] + 1u);
        (void)SSL_set_fd(ssl, fd);
        f->handshake = SSL_connect(ssl);
        ERR_clear_error();
        SSL_free(ssl);
        SSL_CTX_free(ctx);
    }
    (void)close(fd);
    loop_stop(l);
    loop_post(f->w->l, (void (*)(void *))loop_stop, f->w->l);
}

static void run_foreign(struct foreign *f)
{
    struct loop *thread;
    struct err err = {0};

    assert_int_equal(loop_thread_start(f->w->l, "foreign", foreign_main, f, &thread, &err), 0);
    loop_uv_run(f->w->l);
    loop_thread_join(thread);
    assert_false(f->w->timed_out);
}

static void test_mutual_needs_tls13(void **state)
{
    struct echo w;
    struct foreign f = {&w, TLS1_2_VERSION, ALPN_RAFT, false, 0, 0};

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    run_foreign(&f);
    assert_int_not_equal(f.handshake, 1);
    assert_int_equal(w.accepted, 0);
    f.alpn = ALPN_HTTP; /* but users may come with TLS 1.2 */
    run_foreign(&f);
    assert_int_equal(f.handshake, 1);
    assert_int_equal(w.accepted, 1);
    f.max_version = TLS1_1_VERSION;
    run_foreign(&f);
    assert_int_not_equal(f.handshake, 1);
    assert_int_equal(w.accepted, 1);
    echo_fini(&w);
}

static void test_handshake_deadline(void **state)
{
    struct echo w;
    struct foreign f = {&w, 0, NULL, true, 0, -1};

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    loop_uv_set_handshake_ms(w.l, 50);
    run_foreign(&f);
    assert_int_equal(f.eof, 0); /* the server hung up */
    assert_int_equal(w.accepted, 0);
    echo_fini(&w);
}

/* ---- a storm of handshakes ---- */
#define STORM 100

struct storm {
    struct echo *w;
    int fds[STORM], other;
    struct timer look;
    unsigned answered;
};

static bool has_answer(int fd)
{
    char c;

    return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

static void storm_look(void *arg)
{
    struct storm *st = arg;

    if (!has_answer(st->other)) {
        timer_start(&st->look, 0);
        return;
    }
    for (int i = 0; i < STORM; i++)
        st->answered += has_answer(st->fds[i]);
    loop_stop(st->w->l);
}

static int say_hello(uint32_t from, int port, const char *hello, size_t n)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(from);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons((uint16_t)port);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(write(fd, hello, n), n);
    return fd;
}

static void test_a_storm_lets_others_in(void **state)
{
    struct echo w;
    struct storm st = {.w = &w};
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    BIO *out = BIO_new(BIO_s_mem());
    char *hello;

    (void)state;
    echo_init(&w, "127.0.0.1:0");
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
    assert_int_equal(SSL_connect(ssl), -1);
    size_t n = (size_t)BIO_get_mem_data(out, &hello);
    for (int i = 0; i < STORM; i++)
        st.fds[i] = say_hello(INADDR_LOOPBACK, w.port, hello, n);
    st.other = say_hello(INADDR_LOOPBACK + 1, w.port, hello, n); /* from another address, last */
    timer_init(&st.look, w.l, storm_look, &st);
    timer_start(&st.look, 0);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_true(st.answered <= STORM / 2);
    for (int i = 0; i < STORM; i++)
        (void)close(st.fds[i]);
    (void)close(st.other);
    timer_stop(&st.look);
    ERR_clear_error();
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    echo_fini(&w);
}

static void test_connect_deadline(void **state)
{
    struct echo w;
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* listens, never answers */

    (void)state;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    echo_init(&w, "127.0.0.1:0");
    w.client = echo_config(false, NULL, "ca", NULL);
    (void)snprintf(w.address, sizeof w.address, "127.0.0.1:%d", ntohs(a.sin_port));
    echo_connect(&w, NULL, 60);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_int_equal(w.why.code, E_TIMEOUT);
    (void)close(fd);
    /* And now nobody listens there. */
    w.client_closed = false;
    echo_connect(&w, NULL, 5000);
    loop_uv_run(w.l);
    assert_int_equal(w.why.code, E_CONNECT);
    assert_non_null(strstr(w.why.text, "is the server running?"));
    echo_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tls_echo),
        cmocka_unit_test(test_localhost_by_name),
        cmocka_unit_test(test_mutual_identity),
        cmocka_unit_test(test_wrong_ca),
        cmocka_unit_test(test_wrong_host),
        cmocka_unit_test(test_wrong_common_name),
        cmocka_unit_test(test_strangers_certificate),
        cmocka_unit_test(test_mutual_needs_certificate),
        cmocka_unit_test(test_unknown_protocol),
        cmocka_unit_test(test_mutual_needs_tls13),
        cmocka_unit_test(test_handshake_deadline),
        cmocka_unit_test(test_a_storm_lets_others_in),
        cmocka_unit_test(test_connect_deadline),
    };

    return cmocka_run_group_tests(tests, echo_make_pki, echo_remove_pki);
}
