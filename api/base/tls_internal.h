/* What streams need of a TLS context. For api/base/stream_tls.c only. */
#ifndef HANSE_API_BASE_TLS_INTERNAL_H
#define HANSE_API_BASE_TLS_INTERNAL_H

#include "api/base/loop.h"
#include "api/base/tls.h"

#include <openssl/ssl.h>

/* host: of the address, verified on clients unless the configuration names another. */
int tls_ssl_create(const struct tls_config *c, const char *host, const char *alpn, SSL **ret,
                   struct err *err) MUST_CHECK;
/* After the handshake: who the peer is, and whether it may speak the protocol agreed on. */
int tls_identify(const struct tls_config *c, SSL *ssl, struct peer_identity *peer,
                 struct err *err) MUST_CHECK;
/* Says why an SSL call failed; empties OpenSSL's error queue. ssl may be NULL. */
int tls_failed(struct err *err, SSL *ssl, const char *doing);

#endif
