/* A small CA of our own: for `hanse dev`, bootstrap and tests. This file must never write a key
 * that others can read, nor leave a certificate without its key: the key is written first. */
#include "api/base/mem.h"
#include "api/base/net/tls.h"
#include "api/base/loop/file.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#define SAN_MAX 4096

static int failed(struct err *err, const char *doing)
{
    unsigned long e = ERR_get_error();

    ERR_clear_error();
    return err_set(err, E_INTERNAL, "%s failed: %s", doing,
                   e ? ERR_reason_error_string(e) : "OpenSSL");
}

static bool add_name(X509_NAME *name, const char *key, const char *value)
{
    return X509_NAME_add_entry_by_txt(name, key, MBSTRING_UTF8, (const unsigned char *)value, -1,
                                      -1, 0) == 1;
}

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    bool ok = e && X509_add_ext(x, e, -1) == 1;
    X509_EXTENSION_free(e);
    return ok;
}

/* Key, serial number, dates: what a CA and a leaf have in common. */
static X509 *begin_cert(EVP_PKEY *key, int days)
{
    X509 *x = X509_new();
    unsigned char serial[16];
    BIGNUM *bn = NULL;
    bool ok = x && RAND_bytes(serial, sizeof serial) == 1;

    if (ok) {
        serial[0] = (unsigned char)((serial[0] & 0x7f) | 0x40); /* positive, and of full length */
        bn = BN_bin2bn(serial, sizeof serial, NULL);
        /* Five minutes back: machines' clocks differ a little. */
        ok = bn && BN_to_ASN1_INTEGER(bn, X509_get_serialNumber(x)) &&
             X509_set_version(x, 2) == 1 && X509_set_pubkey(x, key) == 1 &&
             X509_gmtime_adj(X509_getm_notBefore(x), -300) &&
             X509_time_adj_ex(X509_getm_notAfter(x), days, 0, NULL);
    }
    BN_free(bn);
    if (!ok) {
        X509_free(x);
        return NULL;
    }
    return x;
}

static int write_pem(const char *path, X509 *x, EVP_PKEY *key, struct err *err)
{
    BIO *b = BIO_new(BIO_s_mem());
    char *p;
    int rc;

    if (!b || (x && PEM_write_bio_X509(b, x) != 1) ||
        (key && PEM_write_bio_PKCS8PrivateKey(b, key, NULL, NULL, 0, NULL, NULL) != 1)) {
        (void)BIO_free(b);
        return failed(err, "encoding PEM");
    }
    long n = BIO_get_mem_data(b, &p);
    rc = posix_write(NULL, path, p, (size_t)n, 0600, err);
    if (key)
        OPENSSL_cleanse(p, (size_t)n);
    (void)BIO_free(b);
    return rc;
}

static int write_both(const char *cert_file, const char *key_file, X509 *x, EVP_PKEY *key,
                      struct err *err)
{
    int rc = write_pem(key_file, NULL, key, err);

    return rc ? rc : write_pem(cert_file, x, NULL, err);
}

int pki_ca_create(const char *cert_file, const char *key_file, const char *common_name, int days,
                  struct err *err)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = key ? begin_cert(key, days) : NULL;
    int rc;

    if (!x || !add_name(X509_get_subject_name(x), "O", "hanse") ||
        !add_name(X509_get_subject_name(x), "CN", common_name) ||
        X509_set_issuer_name(x, X509_get_subject_name(x)) != 1 ||
        !add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        !add_extension(x, x, NID_subject_key_identifier, "hash") ||
        X509_sign(x, key, EVP_sha256()) == 0)
        rc = failed(err, "making the CA");
    else
        rc = write_both(cert_file, key_file, x, key, err);
    X509_free(x);
    EVP_PKEY_free(key);
    return rc;
}

static int read_ca(const char *cert_file, const char *key_file, X509 **cert, EVP_PKEY **key,
                   struct err *err)
{
    BIO *c = BIO_new_file(cert_file, "r"), *k = BIO_new_file(key_file, "r");
    int rc = 0;

    if (!c || !k)
        rc = err_set(err, E_NOTFOUND, "the CA's %s cannot be read", c ? key_file : cert_file);
    else if (!(*cert = PEM_read_bio_X509(c, NULL, NULL, NULL)))
        rc = err_set(err, E_TLS, "%s holds no PEM certificate", cert_file);
    else if (!(*key = PEM_read_bio_PrivateKey(k, NULL, NULL, (void *)"")))
        rc = err_set(err, E_TLS, "%s holds no PEM key without a passphrase", key_file);
    else if (X509_check_private_key(*cert, *key) != 1)
        rc = err_set(err, E_TLS, "the CA's key %s does not match its certificate %s", key_file,
                     cert_file);
    ERR_clear_error();
    (void)BIO_free(c);
    (void)BIO_free(k);
    return rc;
}

/* "DNS:a,IP:b". Names come from configuration: what could break out of the list is refused. */
static int san_text(const char *const *names, char *ret, size_t max, struct err *err)
{
    unsigned char ip[16];
    size_t n = 0;

    ret[0] = '\0';
    for (; names && *names; names++) {
        bool is_ip = inet_pton(AF_INET, *names, ip) == 1 || inet_pton(AF_INET6, *names, ip) == 1;

        for (const char *p = *names; *p; p++)
            if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_*:",
                        *p) ||
                (*p == ':' && !is_ip))
                return err_set(err, E_INVALID, "\"%s\" is no DNS name or IP address", *names);
        int k = snprintf(ret + n, max - n, "%s%s:%s", n ? "," : "", is_ip ? "IP" : "DNS", *names);
        if (k < 0 || (size_t)k >= max - n)
            return err_set(err, E_TOOLARGE, "too many names for one certificate");
        n += (size_t)k;
    }
    return 0;
}

static bool fill_leaf(X509 *x, X509 *ca, const struct pki_request *rq, const char *san)
{
    X509_NAME *name = X509_get_subject_name(x);

    for (const char *const *o = rq->organizations; o && *o; o++)
        if (!add_name(name, "O", *o))
            return false;
    return add_name(name, "CN", rq->common_name) &&
           X509_set_issuer_name(x, X509_get_subject_name(ca)) == 1 &&
           add_extension(x, ca, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(x, ca, NID_key_usage, "critical,digitalSignature") &&
           add_extension(x, ca, NID_ext_key_usage,
                         rq->server ? "serverAuth,clientAuth" : "clientAuth") &&
           add_extension(x, ca, NID_subject_key_identifier, "hash") &&
           add_extension(x, ca, NID_authority_key_identifier, "keyid") &&
           (!san[0] || add_extension(x, ca, NID_subject_alt_name, san));
}

int pki_issue(const char *ca_cert_file, const char *ca_key_file, const struct pki_request *rq,
              const char *cert_file, const char *key_file, struct err *err)
{
    char san[SAN_MAX];
    X509 *ca = NULL, *x = NULL;
    EVP_PKEY *ca_key = NULL, *key = NULL;
    int rc = san_text(rq->dns_names, san, sizeof san, err);

    if (!rc && strlen(rq->common_name) > 64)
        rc = err_set(err, E_INVALID, "the common name \"%s\" is longer than 64 bytes",
                     rq->common_name);
    if (!rc)
        rc = read_ca(ca_cert_file, ca_key_file, &ca, &ca_key, err);
    if (!rc) {
        key = EVP_EC_gen("P-256");
        x = key ? begin_cert(key, rq->days) : NULL;
        if (!x || !fill_leaf(x, ca, rq, san) || X509_sign(x, ca_key, EVP_sha256()) == 0)
            rc = failed(err, "issuing the certificate");
    }
    if (!rc)
        rc = write_both(cert_file, key_file, x, key, err);
    X509_free(x);
    X509_free(ca);
    EVP_PKEY_free(key);
    EVP_PKEY_free(ca_key);
    return rc;
}
