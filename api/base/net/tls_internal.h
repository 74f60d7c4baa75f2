/* What streams need of a TLS context. For api/base/uv/stream_tls.c only. */
#ifndef HANSE_API_BASE_TLS_INTERNAL_H
#define HANSE_API_BASE_TLS_INTERNAL_H

#include "api/base/loop/loop.h"
#include "api/base/net/tls.h"

#include <openssl/ssl.h>

/* host: of the address, verified on clients unless the configuration names another. */
int tls_ssl_create(const struct tls_config *c, const char *host, const char *alpn, SSL **ret,
                   struct err *err) MUST_CHECK;
/* After the handshake: who the peer is, and whether it may speak the protocol agreed on. */
int tls_identify(const struct tls_config *c, SSL *ssl, struct peer_identity *peer,
                 struct err *err) MUST_CHECK;
/* Says why an SSL call failed; empties OpenSSL's error queue. ssl may be NULL. */
int tls_failed(struct err *err, SSL *ssl, const char *doing);

/* ---- tickets.c ---- */
/* Session tickets of a server, under keys that change every hour; good for two at most. */
struct tickets;
struct tickets *tickets_create(SSL_CTX *ctx);
struct tickets *tickets_destroy(struct tickets *t); /* behind SSL_CTX_free */
void tickets_age(struct tickets *t, uint64_t ms);
void tls_config_age(struct tls_config *c, uint64_t ms); /* tests: as if that much time had passed */

/* For tests/sim: a configuration that only a simulated loop understands. It holds no keys, so a
 * real stream made with it always fails. Its name and groups are what the peer sees as verified
 * identity. */
struct tls_config *tls_config_simulated(const struct tls_config_spec *spec, bool server,
                                        const struct peer_identity *self);
/* What the handshake of client c (NULL: plain) with server s would find; fills both peers'
 * identities. */
int tls_simulate(const struct tls_config *c, const struct tls_config *s, const char *alpn,
                 struct peer_identity *seen_by_client, struct peer_identity *seen_by_server,
                 struct err *err) MUST_CHECK;

#endif
