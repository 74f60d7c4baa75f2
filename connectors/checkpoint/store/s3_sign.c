/* AWS Signature Version 4, as its documentation describes it. libcurl has a signer of its own, but
 * that of 7.88 signs the query as it comes (neither sorted nor encoded), and the payload's hash
 * only when it computes it itself, so every request with a query is refused.
 *
 * Every value must come here exactly as it is sent: path and query are signed so. */
#include "connectors/checkpoint/store/s3.h"

#include "connectors/checkpoint/files/sealfs.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANONICAL_MAX (64u << 10)

static bool unreserved(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '~';
}

void s3_encode(const char *s, bool keep_slashes, struct buf *out)
{
    static const char digits[] = "0123456789ABCDEF";

    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (unreserved(c) || (c == '/' && keep_slashes)) {
            buf_char(out, *s);
        } else {
            const char hex[3] = {'%', digits[c >> 4], digits[c & 15]};
            buf_add(out, hex, sizeof hex);
        }
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct s3_pair *)a)->name, ((const struct s3_pair *)b)->name);
}

/* The names that S3 knows are of letters and '-': their order is the same before and after they are
 * encoded. */
void s3_query_print(struct s3_pair *pairs, size_t n, struct buf *out)
{
    if (n)
        qsort(pairs, n, sizeof *pairs, by_name);
    for (size_t i = 0; i < n; i++) {
        if (i)
            buf_char(out, '&');
        s3_encode(pairs[i].name, false, out);
        buf_char(out, '=');
        s3_encode(pairs[i].value, false, out);
    }
}

static bool hmac(const void *key, size_t n_key, const char *text, unsigned char out[32])
{
    unsigned int n = 32;

    return HMAC(EVP_sha256(), key, (int)n_key, (const unsigned char *)text, strlen(text), out,
                &n) != NULL;
}

static void names_print(const struct s3_signing *r, struct buf *out)
{
    for (size_t i = 0; i < r->n_headers; i++)
        buf_printf(out, "%s%s", i ? ";" : "", r->headers[i].name);
}

static int canonical_digest(const struct s3_signing *r, char ret_hex[65], struct err *err)
{
    unsigned char digest[32];
    AUTO_BUF b;

    buf_init(&b, CANONICAL_MAX);
    buf_printf(&b, "%s\n%s\n", r->method, r->path);
    buf_str(&b, r->query); /* may be longer than a formatted piece */
    buf_char(&b, '\n');
    for (size_t i = 0; i < r->n_headers; i++) {
        buf_str(&b, r->headers[i].name);
        buf_char(&b, ':');
        buf_str(&b, r->headers[i].value);
        buf_char(&b, '\n');
    }
    buf_char(&b, '\n');
    names_print(r, &b);
    buf_printf(&b, "\n%s", r->payload);
    if (b.failed || EVP_Digest(b.p, b.n, digest, NULL, EVP_sha256(), NULL) != 1)
        return err_set(err, E_TOOLARGE, "the request is too large to be signed");
    sealfs_hex(digest, ret_hex);
    return 0;
}

int s3_sign(const struct s3_signing *r, struct buf *out, struct err *err)
{
    char first[S3_TEXT_MAX + 8], text[512], hex[65], scope[128];
    unsigned char key[32], next[32];

    qsort(r->headers, r->n_headers, sizeof *r->headers, by_name);
    int rc = canonical_digest(r, hex, err);
    if (rc < 0)
        return rc;
    (void)snprintf(scope, sizeof scope, "%.8s/%.64s/s3/aws4_request", r->date, r->region);
    (void)snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%.16s\n%s\n%s", r->date, scope, hex);
    char day[9];
    (void)snprintf(day, sizeof day, "%.8s", r->date);
    (void)snprintf(first, sizeof first, "AWS4%.*s", S3_TEXT_MAX, r->secret);
    bool good = hmac(first, strlen(first), day, key) && hmac(key, 32, r->region, next) &&
                hmac(next, 32, "s3", key) && hmac(key, 32, "aws4_request", next) &&
                hmac(next, 32, text, key);
    if (good) {
        sealfs_hex(key, hex);
        buf_printf(out, "AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=", r->key_id, scope);
        names_print(r, out);
        buf_printf(out, ",Signature=%s", hex);
    }
    OPENSSL_cleanse(first, sizeof first);
    OPENSSL_cleanse(key, sizeof key);
    OPENSSL_cleanse(next, sizeof next);
    return good && !out->failed ? 0
                                : err_set(err, E_INTERNAL, "HMAC is not to be had from OpenSSL");
}

void s3_base64(const unsigned char *p, size_t n, char *out)
{
    (void)EVP_EncodeBlock((unsigned char *)out, p, (int)n);
}

bool s3_unhex(const char hex[65], unsigned char out[32])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < 32; i++) {
        const char *a = hex[2 * i] ? strchr(digits, hex[2 * i]) : NULL;
        const char *b = a && hex[2 * i + 1] ? strchr(digits, hex[2 * i + 1]) : NULL;
        if (!b)
            return false;
        out[i] = (unsigned char)((a - digits) << 4 | (b - digits));
    }
    return hex[64] == '\0';
}
