/* A loop with an echo server and a client, and certificates for both: for the tests of streams. */
#ifndef HANSE_TESTS_SUPPORT_BASE_STREAM_KIT_H
#define HANSE_TESTS_SUPPORT_BASE_STREAM_KIT_H

#include "api/base/loop/loop.h"
#include "tests/support/unit.h"
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
#define ECHO_BIG (1u << 20)

/* For cmocka: certificates of a CA, and of one that nobody believes, in a folder of their own. */
int echo_make_pki(void **state);
int echo_remove_pki(void **state);
const char *echo_path(const char *name); /* in that folder; of the last eight names */
struct tls_config *echo_config(bool server, const char *name, const char *ca, const char *verify);

/* ---- one loop with an echo server and a client ---- */

struct echo {
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

/* What a test sets for its own streams instead. */
void echo_server_closed(struct stream *s, const struct err *why, void *arg);
void echo_client_closed(struct stream *s, const struct err *why, void *arg);
extern const struct stream_events echo_client_events;
void echo_accept(struct listener *li, struct stream *s, void *arg);

void echo_init(struct echo *w, const char *listen);
void echo_fini(struct echo *w);
void echo_connect(struct echo *w, const char *alpn, uint64_t deadline_ms);
/* ECHO_BIG bytes go and come back, and both ends close. */
void echo_big(struct echo *w, const char *alpn);

#endif
