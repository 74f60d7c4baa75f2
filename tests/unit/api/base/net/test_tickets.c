/* Session tickets: given, taken within their time and renewed, refused behind it, and never taken
 * by another configuration. Client and server are two SSLs over memory. */
#include "api/base/mem.h"
#include "tests/support/unit.h"
#include "api/base/net/tls_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HOUR_MS (3600ull * 1000)

static char dir[64], ca[96], ca_key[96], crt[96], key[96];

static int setup(void **state)
{
    static const char *const names[] = {"localhost", NULL};
    struct err e = {0};
    struct pki_request rq = {
        .common_name = "member:1", .dns_names = names, .server = true, .days = 1};

    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/hanse-tickets-XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(ca, sizeof ca, "%s/ca.crt", dir);
    (void)snprintf(ca_key, sizeof ca_key, "%s/ca.key", dir);
    (void)snprintf(crt, sizeof crt, "%s/m.crt", dir);
    (void)snprintf(key, sizeof key, "%s/m.key", dir);
    assert_int_equal(pki_ca_create(ca, ca_key, "test", 1, &e), 0);
    assert_int_equal(pki_issue(ca, ca_key, &rq, crt, key, &e), 0);
    return 0;
}
static int teardown(void **state)
{
    const char *const files[] = {ca, ca_key, crt, key};

    (void)state;
    for (int i = 0; i < 4; i++)
        (void)unlink(files[i]);
    (void)rmdir(dir);
    return 0;
}

static struct tls_config *server(void)
{
    struct tls_config_spec spec = {.cert_file = crt, .key_file = key, .ca_file = ca};
    struct tls_config *c = NULL;
    struct err e = {0};

    assert_int_equal(tls_config_create(&spec, true, &c, &e), 0);
    return c;
}

static SSL_SESSION *kept;
/* One connection, `with` offered; was it resumed? `kept` is the newest ticket that came. */
static bool connect_with(struct tls_config *to, SSL_SESSION *with, int version)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    struct err e = {0};
    SSL *s = NULL;
    char byte;

    assert_int_equal(SSL_CTX_set_max_proto_version(ctx, version), 1);
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL *c = SSL_new(ctx);
    assert_int_equal(tls_ssl_create(to, NULL, NULL, &s, &e), 0);
    SSL_set_connect_state(c);
    BIO *left, *right;
    assert_int_equal(BIO_new_bio_pair(&left, 65536, &right, 65536), 1);
    SSL_set_bio(c, left, left);
    SSL_set_bio(s, right, right);
    SSL_SESSION *copy =
        with ? SSL_SESSION_dup(with) : NULL; /* a client forgets a ticket that it used */
    if (copy)
        assert_int_equal(SSL_set_session(c, copy), 1);
    for (int i = 0; i < 20; i++) {
        (void)SSL_do_handshake(c);
        (void)SSL_do_handshake(s);
    }
    assert_true(SSL_is_init_finished(c) && SSL_is_init_finished(s));
    assert_int_equal(SSL_write(s, "x", 1), 1);
    assert_int_equal(SSL_read(c, &byte, 1), 1); /* TLS 1.3 sends tickets behind the handshake */
    bool resumed = SSL_session_reused(c) == 1;
    SSL_SESSION_free(kept);
    kept = SSL_SESSION_dup(SSL_get0_session(c));
    (void)SSL_shutdown(c);
    SSL_free(c);
    SSL_free(s);
    SSL_SESSION_free(copy);
    SSL_CTX_free(ctx);
    return resumed;
}

static SSL_SESSION *take(void)
{
    SSL_SESSION *s = kept;

    kept = NULL;
    return s;
}

static void life(int version)
{
    struct tls_config *c = server(), *other = server();

    assert_false(connect_with(c, NULL, version));
    SSL_SESSION *first = take();
    assert_non_null(first);
    assert_true(connect_with(c, first, version));
    assert_false(connect_with(other, first, version)); /* another process's keys */
    tls_config_age(c, HOUR_MS + 1);                    /* the key is the one before now */
    assert_true(connect_with(c, first, version));
    SSL_SESSION *renewed = take();
    assert_non_null(renewed);
    tls_config_age(c, HOUR_MS);
    assert_false(connect_with(c, first, version)); /* two periods: gone */
    assert_true(connect_with(c, renewed, version));
    tls_config_age(c, 10 * HOUR_MS); /* nobody came for long: nothing old is left */
    assert_false(connect_with(c, renewed, version));
    SSL_SESSION_free(first);
    SSL_SESSION_free(renewed);
    SSL_SESSION_free(take());
    (void)tls_config_unref(c);
    (void)tls_config_unref(other);
}

static void test_tls13(void **state)
{
    (void)state;
    life(TLS1_3_VERSION);
}
static void test_tls12(void **state)
{
    (void)state;
    life(TLS1_2_VERSION);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_tls13),
                                              cmocka_unit_test(test_tls12)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
