/* TLS contexts for streams: TLS 1.2+ for users, 1.3 for members and agents; ECDSA P-256.
 *
 * One port serves users, members and agents: the ALPN that the client offers says which protocol it
 * speaks ("http/1.1" when it offers none). Protocols in `alpn_mutual` require a client certificate
 * and TLS 1.3; for the others a client certificate is asked for and, when given, must be signed by
 * the CA. */
#ifndef HANSE_API_BASE_TLS_H
#define HANSE_API_BASE_TLS_H

#include "api/base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define ALPN_HTTP "http/1.1"
#define ALPN_RAFT "hanse-raft/1"   /* libraft between members */
#define ALPN_PEER "hanse-peer/1"   /* our own calls between members: forwards, ReadIndex, digests */
#define ALPN_RELAY "hanse-relay/1" /* logs and exec: to the leader, from who was asked */
#define ALPN_AGENT "hanse-agent/1" /* agents */
#define ALPN_RUNNER "hanse-runner/1" /* runners that call home: they show a token */

struct tls_config;
struct tls_config_spec {
    const char *cert_file, *key_file;        /* PEM; NULL for a client without a certificate */
    const char *ca_file;                     /* PEM; whom to trust */
    const char *cert_pem, *key_pem, *ca_pem; /* the same as text, when the file is NULL */
    const char *const *alpn_mutual;          /* server: NULL-terminated list, see above */
    const char *const *alpn_open; /* server: the same, of protocols without client certificates */
    /* client: name to verify in the certificate; NULL = the host of the address */
    const char *server_name;
    /* client: UTC ms; it is at least so late, by somebody whose clock is right, and this machine's
     * clock is not asked: what had expired by then is refused, and what is valid only from a later
     * time on is not. 0: this machine's clock decides. */
    int64_t not_before_ms;
};
/* Errors name the file and what to do ("expired at …", "key does not match the certificate"). */
int tls_config_create(const struct tls_config_spec *spec, bool server, struct tls_config **ret,
                      struct err *err) MUST_CHECK;
/* The common name of its own certificate; "" when it has none. */
void tls_config_name(const struct tls_config *c, char *ret, size_t n);
struct tls_config *tls_config_unref(struct tls_config *c);
struct tls_config *tls_config_ref(struct tls_config *c);

/* A small CA of our own, for `hanse dev`, bootstrap and tests. Keys ECDSA P-256, files 0600. */
struct pki_request {
    const char *common_name; /* "member:1", "agent:fra-hub", "admin" */
    const char *const
        *organizations; /* NULL-terminated: "hanse:members", "hanse:agents", "system:masters" */
    const char *const *dns_names; /* NULL-terminated; IP literals become IP SANs */
    bool server;                  /* extended key usage serverAuth besides clientAuth */
    int days;
};
int pki_ca_create(const char *cert_file, const char *key_file, const char *common_name, int days,
                  struct err *err) MUST_CHECK;
int pki_issue(const char *ca_cert_file, const char *ca_key_file, const struct pki_request *rq,
              const char *cert_file, const char *key_file, struct err *err) MUST_CHECK;

#endif
