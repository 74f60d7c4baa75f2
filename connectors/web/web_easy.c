/* See web_rules.h. This file must never skip the verification of a certificate, follow a redirect
 * (it would carry a signature or a token elsewhere), or write a secret to a file. */
#include "connectors/web/web_rules.h"

#include <curl/curl.h>
#include <string.h>

#define CONNECT_TIMEOUT_MS 10000L

static bool has(const char *text)
{
    return text && *text;
}

static void blob_set(CURL *h, CURLoption option, const char *pem)
{
    struct curl_blob b = {(void *)(uintptr_t)pem, strlen(pem), CURL_BLOB_NOCOPY};

    (void)curl_easy_setopt(h, option, &b);
}

static void tls_set(CURL *h, const struct web_trust *t)
{
    (void)curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, 1L);
    (void)curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 2L);
    (void)curl_easy_setopt(h, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (has(t->ca_pem) || has(t->ca_file)) /* those alone, and not the machine's too */
        (void)curl_easy_setopt(h, CURLOPT_CAPATH, NULL);
    if (has(t->ca_pem))
        blob_set(h, CURLOPT_CAINFO_BLOB, t->ca_pem);
    else if (has(t->ca_file))
        (void)curl_easy_setopt(h, CURLOPT_CAINFO, t->ca_file);
    if (has(t->cert_pem)) {
        (void)curl_easy_setopt(h, CURLOPT_SSLCERTTYPE, "PEM");
        (void)curl_easy_setopt(h, CURLOPT_SSLKEYTYPE, "PEM");
        blob_set(h, CURLOPT_SSLCERT_BLOB, t->cert_pem);
        blob_set(h, CURLOPT_SSLKEY_BLOB, t->key_pem);
    }
}

void web_easy_secure(void *easy, const struct web_trust *t)
{
    CURL *h = easy;

    (void)curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L);
    (void)curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, t->tls ? "https" : "http");
    (void)curl_easy_setopt(h, CURLOPT_HTTP09_ALLOWED, 0L);
    (void)curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
    (void)curl_easy_setopt(h, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    (void)curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(h, CURLOPT_QUICK_EXIT, 1L); /* never waits for a name */
    (void)curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    (void)curl_easy_setopt(h, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE); /* none to a proxy */
    if (t->direct)
        (void)curl_easy_setopt(h, CURLOPT_PROXY, "");
    if (t->tls)
        tls_set(h, t);
}

int web_easy_code(int curl_code)
{
    switch (curl_code) {
    case CURLE_OK:
        return 0;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        return E_TLS;
    default:
        return E_CONNECT;
    }
}
