/* TLS contexts: whom we trust, who we are, which protocols a port speaks. This file must never let
 * a protocol of members or agents through without a verified client certificate and TLS 1.3: that
 * is checked three times, when the protocol is chosen, when OpenSSL asks for the certificate, and
 * after the handshake (a resumed session passes by the second). */
#include "api/base/net/tls.h"
#include "api/base/mem.h"
#include "api/base/net/tls_internal.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MUTUAL_MAX 8

struct tls_config {
    atomic_int refs;
    SSL_CTX *ctx;
    bool server;
    struct tickets *tickets; /* server */
    char *mutual[MUTUAL_MAX + 1], *open[MUTUAL_MAX + 1];
    char *server_name;
    struct peer_identity *simulated; /* tests/sim only; then ctx is NULL */
};

int tls_failed(struct err *err, SSL *ssl, const char *doing)
{
    unsigned long e = ERR_peek_error();
    const char *reason = e ? ERR_reason_error_string(e) : NULL;
    long verify = ssl ? SSL_get_verify_result(ssl) : X509_V_OK;

    ERR_clear_error();
    if (e && ERR_GET_REASON(e) == SSL_R_CERTIFICATE_VERIFY_FAILED && verify != X509_V_OK)
        return err_set(err, E_TLS,
                       "%s: the peer's certificate is refused: %s (check the CA file and the "
                       "name that is connected to)",
                       doing, X509_verify_cert_error_string(verify));
    if (e && ERR_GET_REASON(e) == SSL_R_TLSV1_ALERT_UNKNOWN_CA)
        return err_set(err, E_TLS,
                       "%s: the peer refuses our certificate: it was not issued by the peer's CA "
                       "(check the certificate and key files)",
                       doing);
    return err_set(err, E_TLS, "%s failed: %s", doing, reason ? reason : "the connection was cut");
}

void tls_config_name(const struct tls_config *c, char *ret, size_t n)
{
    X509 *x = c->ctx ? SSL_CTX_get0_certificate(c->ctx) : NULL;
    X509_NAME *name = x ? X509_get_subject_name(x) : NULL;

    PRE(n > 0);
    ret[0] = '\0';
    if (name && X509_NAME_get_text_by_NID(name, NID_commonName, ret, (int)n) < 0)
        ret[0] = '\0';
}

/* ---- choosing the protocol ---- */

static bool is_of(char *const *list, const char *name, size_t n)
{
    for (int i = 0; list[i]; i++)
        if (strlen(list[i]) == n && memcmp(list[i], name, n) == 0)
            return true;
    return false;
}

static bool is_mutual(const struct tls_config *c, const char *name, size_t n)
{
    return is_of(c->mutual, name, n);
}

static int alpn_select(SSL *ssl, const unsigned char **out, unsigned char *out_n,
                       const unsigned char *in, unsigned n, void *arg)
{
    const struct tls_config *c = arg;

    for (unsigned i = 0; i < n && in[i] < n - i; i += in[i] + 1u) {
        const char *name = (const char *)in + i + 1;
        bool mutual = is_mutual(c, name, in[i]), open = is_of(c->open, name, in[i]);

        if (!mutual && !open &&
            !(in[i] == strlen(ALPN_HTTP) && memcmp(name, ALPN_HTTP, in[i]) == 0))
            continue;
        if ((mutual || open) && SSL_version(ssl) < TLS1_3_VERSION)
            return SSL_TLSEXT_ERR_ALERT_FATAL;
        if (mutual)
            SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        *out = (const unsigned char *)name;
        *out_n = in[i];
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* ---- loading ---- */

struct source {
    const char *what;
    const char *file, *pem; /* one of the two, or neither */
};

static const char *named(const struct source *s)
{
    return s->file ? s->file : "(given as text)";
}

static int open_pem(const struct source *s, BIO **ret, struct err *err)
{
    BIO *b = s->file ? BIO_new_file(s->file, "r") : BIO_new_mem_buf(s->pem, -1);

    ERR_clear_error();
    if (!b)
        return err_set(err, E_NOTFOUND, "the %s %s cannot be read", s->what, named(s));
    *ret = b;
    return 0;
}

/* now: UTC s that it is at least; 0: what this machine's clock says. */
static int check_dates(const X509 *x, const struct source *s, time_t now, struct err *err)
{
    char when[64] = "";
    BIO *b = NULL;
    bool late = X509_cmp_time(X509_get0_notAfter(x), now ? &now : NULL) < 0;
    bool early = !now && X509_cmp_current_time(X509_get0_notBefore(x)) > 0;

    if (!late && !early)
        return 0;
    b = BIO_new(BIO_s_mem());
    if (b && ASN1_TIME_print(b, late ? X509_get0_notAfter(x) : X509_get0_notBefore(x))) {
        int n = BIO_read(b, when, sizeof when - 1);
        when[n > 0 ? n : 0] = '\0';
    }
    (void)BIO_free(b);
    if (late)
        return err_set(err, E_TLS, "the %s %s expired at %s: issue a new one", s->what, named(s),
                       when);
    return err_set(err, E_TLS, "the %s %s is valid only from %s: check this machine's clock",
                   s->what, named(s), when);
}

static int load_cert(SSL_CTX *ctx, const struct source *s, struct err *err)
{
    BIO *b = NULL;
    int rc = open_pem(s, &b, err);
    X509 *x, *more;

    if (rc)
        return rc;
    x = PEM_read_bio_X509_AUX(b, NULL, NULL, NULL);
    if (!x) {
        rc = err_set(err, E_TLS, "the %s %s holds no PEM certificate", s->what, named(s));
    } else {
        rc = check_dates(x, s, 0, err);
        if (!rc && SSL_CTX_use_certificate(ctx, x) != 1)
            rc = tls_failed(err, NULL, named(s));
    }
    while (!rc && (more = PEM_read_bio_X509(b, NULL, NULL, NULL)))
        if (SSL_CTX_add0_chain_cert(ctx, more) != 1) {
            X509_free(more);
            rc = tls_failed(err, NULL, named(s));
        }
    ERR_clear_error();
    X509_free(x);
    (void)BIO_free(b);
    return rc;
}

/* Never ask on the terminal for a passphrase: a server would hang. */
static int no_passphrase(char *buf, int size, int rwflag, void *arg)
{
    (void)buf;
    (void)size;
    (void)rwflag;
    (void)arg;
    return -1;
}

static int load_key(SSL_CTX *ctx, const struct source *s, const struct source *cert,
                    struct err *err)
{
    BIO *b = NULL;
    int rc = open_pem(s, &b, err);

    if (rc)
        return rc;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(b, NULL, no_passphrase, NULL);
    if (!key)
        rc = err_set(err, E_TLS, "the %s %s holds no PEM key without a passphrase", s->what,
                     named(s));
    else if (SSL_CTX_use_PrivateKey(ctx, key) != 1 || SSL_CTX_check_private_key(ctx) != 1)
        rc = err_set(err, E_TLS, "the %s %s does not match the certificate %s", s->what, named(s),
                     named(cert));
    ERR_clear_error();
    EVP_PKEY_free(key);
    (void)BIO_free(b);
    return rc;
}

static int load_ca(SSL_CTX *ctx, const struct source *s, bool server, time_t now, struct err *err)
{
    BIO *b = NULL;
    int rc = open_pem(s, &b, err), n = 0;
    X509 *x;

    if (rc)
        return rc;
    STACK_OF(X509_NAME) *names = sk_X509_NAME_new_null();
    while (!rc && (x = PEM_read_bio_X509(b, NULL, NULL, NULL))) {
        if (n == 0)
            rc = check_dates(x, s, now, err);
        if (!rc && X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), x) != 1)
            rc = tls_failed(err, NULL, named(s));
        X509_NAME *name = X509_NAME_dup(X509_get_subject_name(x));
        if (name && !sk_X509_NAME_push(names, name))
            X509_NAME_free(name);
        X509_free(x);
        n++;
    }
    ERR_clear_error();
    if (!rc && n == 0)
        rc = err_set(err, E_TLS, "the %s %s holds no PEM certificate", s->what, named(s));
    if (server && !rc) /* Go's clients choose their certificate by this list */
        SSL_CTX_set_client_CA_list(ctx, names);
    else
        sk_X509_NAME_pop_free(names, X509_NAME_free);
    (void)BIO_free(b);
    return rc;
}

/* The time that verification goes by is a lower bound: what begins to be valid later than it may
 * well be valid by now. */
static int valid_by_now(int ok, X509_STORE_CTX *x)
{
    if (!ok && X509_STORE_CTX_get_error(x) == X509_V_ERR_CERT_NOT_YET_VALID) {
        X509_STORE_CTX_set_error(x, X509_V_OK);
        return 1;
    }
    return ok;
}

static int load(struct tls_config *c, const struct tls_config_spec *spec, struct err *err)
{
    struct source cert = {"certificate", spec->cert_file, spec->cert_pem};
    struct source key = {"key", spec->key_file, spec->key_pem};
    struct source ca = {"CA certificate", spec->ca_file, spec->ca_pem};
    time_t now = (time_t)(spec->not_before_ms / 1000);
    int rc = 0;

    if (cert.file || cert.pem) {
        if (!key.file && !key.pem)
            return err_set(err, E_INVALID, "the certificate %s comes without a key", named(&cert));
        rc = load_cert(c->ctx, &cert, err);
        if (!rc)
            rc = load_key(c->ctx, &key, &cert, err);
    } else if (c->server) {
        return err_set(err, E_INVALID, "a server needs a certificate and a key");
    }
    if (rc)
        return rc;
    if (ca.file || ca.pem)
        rc = load_ca(c->ctx, &ca, c->server, now, err);
    else if (!c->server && SSL_CTX_set_default_verify_paths(c->ctx) != 1)
        rc = tls_failed(err, NULL, "loading the system's CAs");
    else if (c->server && spec->alpn_mutual && spec->alpn_mutual[0])
        rc = err_set(err, E_INVALID, "protocols with client certificates need a CA file");
    SSL_CTX_set_verify(c->ctx, c->server && !ca.file && !ca.pem ? SSL_VERIFY_NONE : SSL_VERIFY_PEER,
                       now ? valid_by_now : NULL);
    if (now)
        X509_VERIFY_PARAM_set_time(SSL_CTX_get0_param(c->ctx), now);
    return rc;
}

static void set_defaults(struct tls_config *c)
{
    static const unsigned char session_id[] = "hanse";
    SSL_CTX *ctx = c->ctx;

    INV(SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1);
    INV(SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1);
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                    SSL_MODE_AUTO_RETRY);
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* tickets hold no memory here */
    if (!c->server)
        return;
    INV(SSL_CTX_set_session_id_context(ctx, session_id, sizeof session_id - 1) == 1);
    INV(SSL_CTX_set_num_tickets(ctx, 1) == 1);
    c->tickets = tickets_create(ctx);
    SSL_CTX_set_alpn_select_cb(ctx, alpn_select, c);
}

static void copy_spec(struct tls_config *c, const struct tls_config_spec *spec)
{
    for (unsigned i = 0; spec->alpn_mutual && spec->alpn_mutual[i]; i++) {
        PRE(i < MUTUAL_MAX &&
            strlen(spec->alpn_mutual[i]) < sizeof((struct peer_identity *)0)->alpn);
        c->mutual[i] = mem_strdup(spec->alpn_mutual[i]);
    }
    for (unsigned i = 0; spec->alpn_open && spec->alpn_open[i]; i++) {
        PRE(i < MUTUAL_MAX && strlen(spec->alpn_open[i]) < sizeof((struct peer_identity *)0)->alpn);
        c->open[i] = mem_strdup(spec->alpn_open[i]);
    }
    c->server_name = spec->server_name ? mem_strdup(spec->server_name) : NULL;
}

int tls_config_create(const struct tls_config_spec *spec, bool server, struct tls_config **ret,
                      struct err *err)
{
    struct tls_config *c = mem_new(struct tls_config);
    int rc;

    atomic_init(&c->refs, 1);
    c->server = server;
    c->ctx = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    INV(c->ctx);
    set_defaults(c);
    copy_spec(c, spec);
    rc = load(c, spec, err);
    if (rc) {
        (void)tls_config_unref(c);
        return rc;
    }
    *ret = c;
    return 0;
}

struct tls_config *tls_config_ref(struct tls_config *c)
{
    atomic_fetch_add(&c->refs, 1);
    return c;
}

struct tls_config *tls_config_unref(struct tls_config *c)
{
    if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
        return NULL;
    SSL_CTX_free(c->ctx);
    c->tickets = tickets_destroy(c->tickets);
    for (int i = 0; c->mutual[i]; i++)
        mem_free(c->mutual[i]);
    for (int i = 0; c->open[i]; i++)
        mem_free(c->open[i]);
    mem_free(c->server_name);
    mem_free(c->simulated);
    mem_free(c);
    return NULL;
}

void tls_config_age(struct tls_config *c, uint64_t ms)
{
    tickets_age(c->tickets, ms);
}

/* ---- one connection ---- */

static bool is_ip(const char *s)
{
    unsigned char a[16];

    return inet_pton(AF_INET, s, a) == 1 || inet_pton(AF_INET6, s, a) == 1;
}

/* "member:2": no DNS name, compared with the certificate's CN after the handshake. */
static bool is_common_name(const char *s)
{
    return strchr(s, ':') && !is_ip(s);
}

static bool set_client(const struct tls_config *c, SSL *ssl, const char *host, const char *alpn)
{
    const char *name = c->server_name ? c->server_name : host;
    unsigned char wire[64];

    SSL_set_connect_state(ssl);
    if (alpn && strcmp(alpn, ALPN_HTTP) != 0 && SSL_set_min_proto_version(ssl, TLS1_3_VERSION) != 1)
        return false;
    if (alpn) {
        size_t n = strlen(alpn);

        wire[0] = (unsigned char)n;
        memcpy(wire + 1, alpn, n);
        if (SSL_set_alpn_protos(ssl, wire, (unsigned)n + 1) != 0)
            return false;
    }
    if (!name || is_common_name(name))
        return name != NULL;
    if (is_ip(name))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set_tlsext_host_name(ssl, name) == 1 && SSL_set1_host(ssl, name) == 1;
}

int tls_ssl_create(const struct tls_config *c, const char *host, const char *alpn, SSL **ret,
                   struct err *err)
{
    PRE(!c->simulated);
    ERR_clear_error();
    SSL *ssl = SSL_new(c->ctx);
    bool ok = ssl && (!alpn || strlen(alpn) < sizeof((struct peer_identity *)0)->alpn);

    if (ok && c->server)
        SSL_set_accept_state(ssl);
    else if (ok)
        ok = set_client(c, ssl, host, alpn);
    if (!ok) {
        SSL_free(ssl);
        return tls_failed(err, NULL, "preparing TLS");
    }
    *ret = ssl;
    return 0;
}

/* A name's part as text; false when it does not fit or holds a NUL (a forged name could hide behind
 * it). */
static bool name_part(const X509_NAME *name, int index, char *ret, size_t max)
{
    const ASN1_STRING *s = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, index));
    unsigned char *utf8 = NULL;
    int n = ASN1_STRING_to_UTF8(&utf8, s);
    bool ok = n > 0 && (size_t)n < max && !memchr(utf8, 0, (size_t)n);

    if (ok) {
        memcpy(ret, utf8, (size_t)n);
        ret[n] = '\0';
    }
    OPENSSL_free(utf8);
    return ok;
}

static int read_identity(X509 *x, struct peer_identity *peer, struct err *err)
{
    const X509_NAME *name = X509_get_subject_name(x);
    unsigned char md[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    int i = X509_NAME_get_index_by_NID(name, NID_commonName, -1);

    if (i >= 0 && !name_part(name, i, peer->name, sizeof peer->name))
        return err_set(err, E_TLS, "the peer's certificate has an unusable common name");
    for (i = -1; (i = X509_NAME_get_index_by_NID(name, NID_organizationName, i)) >= 0;) {
        if (peer->n_groups == sizeof peer->groups / sizeof peer->groups[0] ||
            !name_part(name, i, peer->groups[peer->n_groups], PEER_NAME_MAX))
            return err_set(err, E_TLS,
                           "the peer's certificate has an unusable organization, or more "
                           "than 8");
        peer->n_groups++;
    }
    if (X509_digest(x, EVP_sha256(), md, &n) != 1 || n != 32)
        return err_set(err, E_TLS, "the peer's certificate cannot be digested");
    for (unsigned k = 0; k < n; k++)
        (void)snprintf(peer->fingerprint + (size_t)2 * k, 3, "%02x", md[k]);
    struct tm since;
    if (ASN1_TIME_to_tm(X509_get0_notBefore(x), &since) != 1)
        return err_set(err, E_TLS, "the peer's certificate has no readable beginning");
    peer->not_before_ms = (int64_t)timegm(&since) * 1000;
    peer->certified = true;
    return 0;
}

int tls_identify(const struct tls_config *c, SSL *ssl, struct peer_identity *peer, struct err *err)
{
    const unsigned char *alpn;
    unsigned n;
    X509 *x = SSL_get0_peer_certificate(ssl);
    int rc = 0;

    SSL_get0_alpn_selected(ssl, &alpn, &n);
    if (n >= sizeof peer->alpn)
        return err_set(err, E_TLS, "the protocol's name is too long");
    memcpy(peer->alpn, alpn ? (const char *)alpn : "", n);
    peer->alpn[n] = '\0';
    if (x && SSL_get_verify_result(ssl) == X509_V_OK)
        rc = read_identity(x, peer, err);
    if (rc)
        return rc;
    if (c->server && is_mutual(c, peer->alpn, n) &&
        (!peer->certified || SSL_version(ssl) < TLS1_3_VERSION))
        return err_set(err, E_TLS, "%s needs TLS 1.3 and a client certificate of this cluster's CA",
                       peer->alpn);
    if (!c->server && !peer->certified)
        return err_set(err, E_TLS, "the server showed no certificate that is trusted");
    if (!c->server && c->server_name && is_common_name(c->server_name) &&
        strcmp(peer->name, c->server_name) != 0)
        return err_set(err, E_TLS, "the server's certificate is for \"%s\", but \"%s\" was called",
                       peer->name, c->server_name);
    return 0;
}

/* ---- the simulator's ---- */

struct tls_config *tls_config_simulated(const struct tls_config_spec *spec, bool server,
                                        const struct peer_identity *self)
{
    struct tls_config *c = mem_new(struct tls_config);

    atomic_init(&c->refs, 1);
    c->server = server;
    copy_spec(c, spec);
    c->simulated = mem_alloc(sizeof *self);
    *c->simulated = *self;
    return c;
}

static void see(struct peer_identity *seen, const struct tls_config *c, const char *alpn)
{
    if (c && c->simulated->name[0]) {
        char address[PEER_NAME_MAX];

        memcpy(address, seen->address, sizeof address);
        *seen = *c->simulated;
        memcpy(seen->address, address, sizeof address);
        seen->certified = true;
    }
    str_copy(seen->alpn, sizeof seen->alpn, alpn ? alpn : "");
}

int tls_simulate(const struct tls_config *c, const struct tls_config *s, const char *alpn,
                 struct peer_identity *seen_by_client, struct peer_identity *seen_by_server,
                 struct err *err)
{
    PRE((!c || c->simulated) && (!s || s->simulated));
    if (!c != !s)
        return err_set(err, E_TLS, "one side speaks TLS, the other does not");
    if (s && alpn && strcmp(alpn, ALPN_HTTP) != 0 && !is_mutual(s, alpn, strlen(alpn)) &&
        !is_of(s->open, alpn, strlen(alpn)))
        return err_set(err, E_TLS, "the server does not speak %s", alpn);
    if (s && alpn && is_mutual(s, alpn, strlen(alpn)) && !c->simulated->name[0])
        return err_set(err, E_TLS, "%s needs a client certificate", alpn);
    if (c && c->server_name && is_common_name(c->server_name) &&
        strcmp(s->simulated->name, c->server_name) != 0)
        return err_set(err, E_TLS, "the server's certificate is for \"%s\", but \"%s\" was called",
                       s->simulated->name, c->server_name);
    see(seen_by_client, s, alpn);
    see(seen_by_server, c, alpn);
    return 0;
}
