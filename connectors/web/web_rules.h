/* What holds for every request that leaves over HTTP, whoever waits for its answer: the client of
 * this folder on a loop, or the S3 store (connectors/checkpoint/store), which blocks in shims and
 * on worker threads and moves bodies of any size out of files. Nothing in here keeps a state. */
#ifndef HANSE_CONNECTORS_WEB_RULES_H
#define HANSE_CONNECTORS_WEB_RULES_H

#include "api/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- again, or not (web_rules.c) ---- */
/* Is it an answer after which the same request may do better? 408, 429, 500, 502, 503, 504. */
bool web_status_passes(int status);
/* How long to wait after that many attempts (from 1): twice as long each time up to 10 s, and of
 * that at least half, by chance. */
uint64_t web_backoff_ms(unsigned attempts, uint64_t random);
/* UTC ms of a date of HTTP; 0: it is none. */
int64_t web_date_ms(const char *date);
/* What Retry-After says (RFC 9110, 10.2.3): seconds, or a date, which is compared with the Date
 * that came with it, else with wall_ms (UTC). 0: nothing; at most an hour. Both may be "". */
uint64_t web_retry_after_ms(const char *said, const char *date, uint64_t wall_ms);

/* ---- secrets (web_rules.c) ---- */
/* Puts "***" in place of each secret of 4 letters or more. NULL is none. */
void web_redact_texts(const char *const *secrets, size_t n, char *text);

/* ---- libcurl's options (web_easy.c) ---- */
struct web_trust {                  /* borrowed while the handle is used */
    bool tls;                       /* else http */
    bool direct;                    /* through no proxy, whatever the environment says */
    const char *ca_pem;             /* PEM text: those alone; NULL or "": the machine's */
    const char *ca_file;            /* the same, as a file */
    const char *cert_pem, *key_pem; /* what to show; NULL or "": nothing */
};
/* Where an easy handle may go, and whom it believes: that one scheme, TLS 1.2 or later, always
 * verified, no redirect, no signals, 10 s to connect. */
void web_easy_secure(void *easy, const struct web_trust *trust);
/* E_TLS: the other side, or what we show it, is not believed; E_CONNECT. 0 for CURLE_OK. */
int web_easy_code(int curl_code);

#endif
