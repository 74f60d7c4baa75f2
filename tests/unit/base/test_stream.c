/* Streams of the production loop: TCP with TLS, unix sockets, refusals, deadlines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/base/loop/loop.h"
#include "api/base/net/tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEADLINE_MS 20000
#define BIG (1u << 20)

static const char *const mutual[] = {ALPN_RAFT, ALPN_AGENT, NULL};
static char dir[128];

static const char *in_dir(const char *name)
{
    static char paths[8][256];
    static unsigned i;
    char *p = paths[i++ % 8];

    (void)snprintf(p, 256, "%s/%s", dir, name);
    return p;
}

static void issue(const char *ca, const char *name, const char *cn, bool server)
{
    static const char *const orgs[] = {"hanse:members", "second", NULL};
    static const char *const names[] = {"localhost", "127.0.0.1", NULL};
    struct pki_request rq = {cn, orgs, server ? names : NULL, server, 30};
    char files[4][64];
    struct err err = {0};

    (void)snprintf(files[0], 64, "%s.crt", ca);
    (void)snprintf(files[1], 64, "%s.key", ca);
    (void)snprintf(files[2], 64, "%s.crt", name);
    (void)snprintf(files[3], 64, "%s.key", name);
    if (pki_issue(in_dir(files[0]), in_dir(files[1]), &rq, in_dir(files[2]), in_dir(files[3]),
                  &err))
        fail_msg("%s", err.text);
}

static int make_pki(void **state)
{
    struct err err = {0};

    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/hanse-stream-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(pki_ca_create(in_dir("ca.crt"), in_dir("ca.key"), "test CA", 30, &err), 0);
    assert_int_equal(pki_ca_create(in_dir("other.crt"), in_dir("other.key"), "other CA", 30, &err),
                     0);
    issue("ca", "server", "member:2", true);
    issue("ca", "client", "agent:fra", false);
    issue("other", "stranger", "agent:fra", false);
    return 0;
}

static int remove_pki(void **state)
{
    struct loop *l = loop_uv_create(NULL);

    (void)state;
    assert_int_equal(file_remove(l, dir, NULL), 0);
    (void)loop_uv_destroy(l);
    return 0;
}

/* ---- one loop with an echo server and a client
 * ---------------------------------------------------------- */

struct world {
    struct loop *l;
    struct tls_config *server, *client;
    struct listener *li;
    struct timer limit, step;
    int port;
    char address[160];
    struct stream *c, *s;
    struct peer_identity seen_by_server;
    bool open, client_closed, server_closed, timed_out, drained;
    struct err why, server_why;
    size_t got, echo_bytes;
    unsigned accepted;
    uint32_t sum;
    bool shut_after; /* the client closes when it has got what it sent */
    bool stop_on_server_close;
};

static void server_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct world *w = arg;

    w->echo_bytes += n;
    stream_write(s, p, n);
}

static void server_closed(struct stream *s, const struct err *why, void *arg)
{
    struct world *w = arg;

    (void)s;
    w->server_closed = true;
    w->server_why = *why;
    w->s = NULL;
    if (w->stop_on_server_close || w->client_closed)
        loop_stop(w->l);
}

static const struct stream_events server_events = {.data = server_data, .closed = server_closed};

static void on_accept(struct listener *li, struct stream *s, void *arg)
{
    struct world *w = arg;

    (void)li;
    w->accepted++;
    w->s = s;
    w->seen_by_server = *stream_peer(s);
    stream_set(s, &server_events, w);
}

static void client_open(struct stream *s, void *arg)
{
    struct world *w = arg;

    (void)s;
    w->open = true;
}

static void client_data(struct stream *s, const void *p, size_t n, void *arg)
{
    struct world *w = arg;

    for (size_t i = 0; i < n; i++)
        w->sum = w->sum * 31 + ((const unsigned char *)p)[i];
    w->got += n;
    if (w->got == BIG && w->shut_after)
        stream_close(s);
}

static void client_drained(struct stream *s, void *arg)
{
    struct world *w = arg;

    assert_int_equal(stream_pending(s), 0);
    w->drained = true;
}

static void client_closed(struct stream *s, const struct err *why, void *arg)
{
    struct world *w = arg;

    (void)s;
    w->client_closed = true;
    w->why = *why;
    w->c = NULL;
    if (!w->s && !w->stop_on_server_close)
        loop_stop(w->l);
}

static const struct stream_events client_events = {client_open, client_data, client_drained,
                                                   client_closed};

static void on_limit(void *arg)
{
    struct world *w = arg;

    w->timed_out = true;
    loop_stop(w->l);
}

static struct tls_config *config(bool server, const char *name, const char *ca, const char *verify)
{
    char crt[64], key[64], ca_file[64];
    struct tls_config *c = NULL;
    struct err err = {0};

    (void)snprintf(crt, 64, "%s.crt", name ? name : "");
    (void)snprintf(key, 64, "%s.key", name ? name : "");
    (void)snprintf(ca_file, 64, "%s.crt", ca);
    struct tls_config_spec spec = {.cert_file = name ? in_dir(crt) : NULL,
                                   .key_file = name ? in_dir(key) : NULL,
                                   .ca_file = in_dir(ca_file),
                                   .alpn_mutual = server ? mutual : NULL,
                                   .server_name = verify};
    if (tls_config_create(&spec, server, &c, &err))
        fail_msg("%s", err.text);
    return c;
}

static void world_init(struct world *w, const char *listen)
{
    struct err err = {0};

    *w = (struct world){.l = loop_uv_create(&err)};
    assert_non_null(w->l);
    if (strncmp(listen, "unix:", 5) != 0)
        w->server = config(true, "server", "ca", NULL);
    if (listener_create(w->l, listen, w->server, on_accept, w, &w->li, &w->port, &err))
        fail_msg("%s", err.text);
    if (w->server)
        (void)snprintf(w->address, sizeof w->address, "127.0.0.1:%d", w->port);
    else
        (void)snprintf(w->address, sizeof w->address, "%s", listen);
    timer_init(&w->limit, w->l, on_limit, w);
    timer_start(&w->limit, DEADLINE_MS);
}

static void connect_client(struct world *w, const char *alpn, uint64_t deadline_ms)
{
    struct err err = {0};

    if (stream_connect(w->l, w->address, w->client, alpn, deadline_ms, &client_events, w, &w->c,
                       &err))
        fail_msg("%s", err.text);
    assert_false(w->open); /* callbacks never come from inside the call */
}

static void world_fini(struct world *w)
{
    timer_stop(&w->limit);
    w->l = loop_uv_destroy(w->l);
    (void)tls_config_unref(w->client);
    (void)tls_config_unref(w->server);
}

static void echo_big(struct world *w, const char *alpn)
{
    char *big = malloc(BIG);
    uint32_t sum = 0;

    assert_non_null(big);
    for (size_t i = 0; i < BIG; i++) {
        big[i] = (char)(i * 7 + i / 251);
        sum = sum * 31 + (unsigned char)big[i];
    }
    w->shut_after = true;
    connect_client(w, alpn, 5000);
    stream_write(w->c, big, BIG); /* before it is open: kept */
    assert_int_equal(stream_pending(w->c), BIG);
    free(big);
    loop_uv_run(w->l);
    assert_false(w->timed_out);
    assert_true(w->open);
    assert_int_equal(w->got, BIG);
    assert_int_equal(w->echo_bytes, BIG);
    assert_true(w->sum == sum);
    assert_true(w->drained);
    assert_int_equal(w->why.code, 0);
    assert_true(w->server_closed);
    assert_int_equal(w->server_why.code, 0);
}

static void test_tls_echo(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, NULL, "ca", NULL);
    echo_big(&w, ALPN_HTTP);
    assert_false(w.seen_by_server.certified);
    assert_string_equal(w.seen_by_server.alpn, ALPN_HTTP);
    assert_non_null(strstr(w.seen_by_server.address, "127.0.0.1:"));
    world_fini(&w);
}

static void test_localhost_by_name(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, "127.0.0.1:0");
    (void)snprintf(w.address, sizeof w.address, "localhost:%d", w.port); /* ::1 may come first */
    w.client = config(false, NULL, "ca", NULL);
    echo_big(&w, NULL);
    world_fini(&w);
}

static void test_mutual_identity(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, "client", "ca", "member:2");
    echo_big(&w, ALPN_AGENT);
    assert_true(w.seen_by_server.certified);
    assert_string_equal(w.seen_by_server.name, "agent:fra");
    assert_int_equal(w.seen_by_server.n_groups, 2);
    assert_string_equal(w.seen_by_server.groups[0], "hanse:members");
    assert_string_equal(w.seen_by_server.groups[1], "second");
    assert_int_equal(strlen(w.seen_by_server.fingerprint), 64);
    assert_string_equal(w.seen_by_server.alpn, ALPN_AGENT);
    world_fini(&w);
}

static void expect_refused(struct world *w, const char *alpn, const char *says)
{
    connect_client(w, alpn, 5000);
    loop_uv_run(w->l);
    assert_false(w->timed_out);
    assert_true(w->client_closed);
    assert_int_equal(w->accepted, 0);
    assert_int_equal(w->why.code, E_TLS);
    if (!strstr(w->why.text, says))
        fail_msg("\"%s\" does not say \"%s\"", w->why.text, says);
    world_fini(w);
}

static void test_wrong_ca(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, NULL, "other", NULL);
    expect_refused(&w, ALPN_HTTP, "certificate is refused");
    assert_false(w.open);
}

static void test_wrong_host(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, NULL, "ca", "elsewhere.example");
    expect_refused(&w, ALPN_HTTP, "ame"); /* "hostname mismatch" */
    assert_false(w.open);
}

static void test_wrong_common_name(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, "client", "ca", "member:3");
    w.stop_on_server_close = false;
    connect_client(&w, ALPN_RAFT, 5000);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_false(w.open);
    assert_int_equal(w.why.code, E_TLS);
    assert_non_null(strstr(w.why.text, "is for \"member:2\", but \"member:3\" was called"));
    world_fini(&w);
}

static void test_strangers_certificate(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, "stranger", "ca", NULL);
    expect_refused(&w, ALPN_HTTP, "not issued by the peer's CA");
}

static void test_mutual_needs_certificate(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, NULL, "ca", NULL);
    expect_refused(&w, ALPN_RAFT, "certificate required");
}

static void test_unknown_protocol(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, "client", "ca", NULL);
    expect_refused(&w, "gopher/1", "protocol");
}

/* ---- a client that is not ours, on a thread
 * ------------------------------------------------------------- */

struct foreign {
    struct world *w;
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
        assert_int_equal(SSL_CTX_use_certificate_file(ctx, in_dir("client.crt"), SSL_FILETYPE_PEM),
                         1);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(ctx, in_dir("client.key"), SSL_FILETYPE_PEM),
                         1);
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
    struct world w;
    struct foreign f = {&w, TLS1_2_VERSION, ALPN_RAFT, false, 0, 0};

    (void)state;
    world_init(&w, "127.0.0.1:0");
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
    world_fini(&w);
}

static void test_handshake_deadline(void **state)
{
    struct world w;
    struct foreign f = {&w, 0, NULL, true, 0, -1};

    (void)state;
    world_init(&w, "127.0.0.1:0");
    loop_uv_set_handshake_ms(w.l, 50);
    run_foreign(&f);
    assert_int_equal(f.eof, 0); /* the server hung up */
    assert_int_equal(w.accepted, 0);
    world_fini(&w);
}

static void test_connect_deadline(void **state)
{
    struct world w;
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* listens, never answers */

    (void)state;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, NULL, "ca", NULL);
    (void)snprintf(w.address, sizeof w.address, "127.0.0.1:%d", ntohs(a.sin_port));
    connect_client(&w, NULL, 60);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_int_equal(w.why.code, E_TIMEOUT);
    (void)close(fd);
    /* And now nobody listens there. */
    w.client_closed = false;
    connect_client(&w, NULL, 5000);
    loop_uv_run(w.l);
    assert_int_equal(w.why.code, E_CONNECT);
    assert_non_null(strstr(w.why.text, "is the server running?"));
    world_fini(&w);
}

static void test_port_in_use(void **state)
{
    struct world w;
    struct listener *second;
    struct err err = {0};

    (void)state;
    world_init(&w, "127.0.0.1:0");
    assert_int_equal(listener_create(w.l, w.address, w.server, on_accept, &w, &second, NULL, &err),
                     E_BUSY);
    assert_non_null(strstr(err.text, w.address));
    assert_non_null(strstr(err.text, "stop it, or listen on another address"));
    world_fini(&w);
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
        int rc = stream_connect(l, bad[i], NULL, NULL, 10, &client_events, NULL, &s, &err);

        assert_int_equal(rc, E_INVALID);
    }
    assert_int_equal(
        stream_connect(l, "127.0.0.1:1", NULL, NULL, 10, &client_events, NULL, &s, NULL), E_TLS);
    (void)loop_uv_destroy(l);
}

static void test_unix_socket(void **state)
{
    struct world w;
    char address[160];
    struct stat st;
    struct listener *second;
    struct err err = {0};

    (void)state;
    (void)snprintf(address, sizeof address, "unix:%s/sock", dir);
    world_init(&w, address);
    assert_int_equal(stat(address + 5, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(listener_create(w.l, address, NULL, on_accept, &w, &second, NULL, &err),
                     E_BUSY);
    echo_big(&w, NULL);
    assert_int_equal(w.seen_by_server.unix_uid, getuid());
    world_fini(&w);
    assert_int_not_equal(stat(address + 5, &st), 0); /* removed by its owner */
}

static void test_stale_unix_socket(void **state)
{
    struct world w;
    char address[160];
    struct sockaddr_un {
        sa_family_t family;
        char path[108];
    } a = {.family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    (void)snprintf(address, sizeof address, "unix:%s/stale", dir);
    (void)snprintf(a.path, sizeof a.path, "%.100s", address + 5);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    (void)close(fd); /* the file stays, as after a crash */
    world_init(&w, address);
    echo_big(&w, NULL);
    world_fini(&w);
}

/* ---- ending
 * --------------------------------------------------------------------------------------------- */

static void server_end_after(struct stream *s, const void *p, size_t n, void *arg)
{
    struct world *w = arg;

    (void)p;
    if (w->echo_bytes == 0) { /* answer, and close with the client's bytes still coming */
        char *big = calloc(1, BIG);

        stream_write(s, big, BIG);
        free(big);
        stream_close(s);
    }
    w->echo_bytes += n;
}

static const struct stream_events ending_events = {.data = server_end_after,
                                                   .closed = server_closed};

static void accept_ending(struct listener *li, struct stream *s, void *arg)
{
    struct world *w = arg;

    on_accept(li, s, arg);
    stream_set(s, &ending_events, w);
}

/* The server's last bytes arrive though it closes while the client still sends. */
static void test_close_sends_what_waits(void **state)
{
    struct world w;
    struct err err = {0};
    struct listener *li;
    char *big = calloc(1, BIG);

    (void)state;
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, NULL, "ca", NULL);
    assert_int_equal(
        listener_create(w.l, "127.0.0.1:0", w.server, accept_ending, &w, &li, &w.port, &err), 0);
    (void)snprintf(w.address, sizeof w.address, "127.0.0.1:%d", w.port);
    connect_client(&w, NULL, 5000);
    stream_write(w.c, big, BIG);
    free(big);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_int_equal(w.got, BIG);
    assert_int_equal(w.why.code, 0);
    world_fini(&w);
}

static void resume(void *arg)
{
    struct world *w = arg;

    assert_int_equal(w->got, 0); /* nothing came while paused */
    stream_pause(w->c, false);
    assert_int_equal(w->got, 0); /* nor from inside the call */
}

static void test_pause(void **state)
{
    struct world w;
    char *big = calloc(1, BIG);

    (void)state;
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, NULL, "ca", NULL);
    w.shut_after = true;
    connect_client(&w, NULL, 5000);
    stream_pause(w.c, true);
    stream_write(w.c, big, BIG);
    free(big);
    timer_init(&w.step, w.l, resume, &w);
    timer_start(&w.step, 100);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_int_equal(w.got, BIG);
    world_fini(&w);
}

static void abort_client(void *arg)
{
    struct world *w = arg;

    stream_abort(w->c, "enough");
    assert_false(w->client_closed);
}

static void test_abort(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, NULL, "ca", NULL);
    connect_client(&w, NULL, 5000);
    timer_init(&w.step, w.l, abort_client, &w);
    timer_start(&w.step, 100);
    loop_uv_run(w.l);
    assert_false(w.timed_out);
    assert_int_equal(w.why.code, E_CANCELLED);
    assert_string_equal(w.why.text, "enough");
    assert_int_equal(w.server_why.code, E_CONNECT); /* cut without a TLS close */
    /* At once after connecting, too: while the name is being resolved. */
    w.client_closed = w.open = false;
    connect_client(&w, NULL, 5000);
    abort_client(&w);
    loop_uv_run(w.l);
    assert_true(w.client_closed);
    world_fini(&w);
}

/* Everything still open when the loop goes: each stream hears of it. */
static void test_destroy_closes(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, "127.0.0.1:0");
    w.client = config(false, NULL, "ca", NULL);
    connect_client(&w, NULL, 5000);
    world_fini(&w);
    assert_true(w.client_closed);
    assert_int_equal(w.why.code, E_CANCELLED);
}

/* ---- contexts
 * -------------------------------------------------------------------------------------------- */

static void test_config_errors(void **state)
{
    struct tls_config *c;
    struct err err = {0};
    struct tls_config_spec spec = {.cert_file = in_dir("server.crt"),
                                   .key_file = in_dir("client.key"),
                                   .ca_file = in_dir("ca.crt")};

    (void)state;
    assert_int_equal(tls_config_create(&spec, true, &c, &err), E_TLS);
    assert_non_null(strstr(err.text, "does not match the certificate"));
    spec.key_file = in_dir("absent.key");
    assert_int_equal(tls_config_create(&spec, true, &c, &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "absent.key"));
    spec.key_file = in_dir("server.crt");
    assert_int_equal(tls_config_create(&spec, true, &c, &err), E_TLS);
    struct pki_request old = {.common_name = "old", .days = -1};
    assert_int_equal(pki_issue(in_dir("ca.crt"), in_dir("ca.key"), &old, in_dir("old.crt"),
                               in_dir("old.key"), &err),
                     0);
    spec.cert_file = in_dir("old.crt");
    spec.key_file = in_dir("old.key");
    assert_int_equal(tls_config_create(&spec, true, &c, &err), E_TLS);
    assert_non_null(strstr(err.text, "expired at"));
    static const char *const evil[] = {"a.example,IP:10.0.0.1", NULL};
    old.dns_names = evil;
    assert_int_equal(pki_issue(in_dir("ca.crt"), in_dir("ca.key"), &old, in_dir("old.crt"),
                               in_dir("old.key"), &err),
                     E_INVALID);
    struct stat st;
    assert_int_equal(stat(in_dir("old.key"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
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
        cmocka_unit_test(test_connect_deadline),
        cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_bad_addresses),
        cmocka_unit_test(test_unix_socket),
        cmocka_unit_test(test_stale_unix_socket),
        cmocka_unit_test(test_close_sends_what_waits),
        cmocka_unit_test(test_pause),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_destroy_closes),
        cmocka_unit_test(test_config_errors),
    };

    return cmocka_run_group_tests(tests, make_pki, remove_pki);
}
